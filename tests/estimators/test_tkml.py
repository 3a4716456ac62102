"""TKMLClassifier: what it minimises, what it predicts, what it accepts, and when it stays where it started."""

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.datasets import load_digits, make_blobs, make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning

import rankrange
from definitions import tkml_by_definition
from rankrange import TKMLClassifier, ranked_range
from rankrange.core.losses import TKML
from rankrange.core.objective import Design
from rankrange.metrics import top_k_multilabel_accuracy
from rankrange.solvers.label_ranking import LabelObjective


@pytest.fixture(scope="module")
def problem():
    X, Y = make_multilabel_classification(150, 8, n_classes=5, n_labels=2, allow_unlabeled=True, random_state=0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    Y[0], Y[1] = 0, 1
    return X, Y


def converged(**settings):
    """A fit to the end of its path, where the end is what is tested."""
    return TKMLClassifier(validation=None, max_iter=2000, **settings)


@pytest.mark.parametrize("loss", ["two_sided", "paper"])
@pytest.mark.parametrize(("m", "k"), [(0, 1.0), (0, 0.6), (0.1, 0.9), (10, 100)])
def test_objective_is_c_times_the_sum_of_the_ranked_losses_and_the_penalty(problem, loss, m, k):
    X, Y = problem
    model = TKMLClassifier(2, m=m, k=k, C=0.03, loss=loss, validation=None, max_iter=30).fit(X, Y)
    scores = model.decision_function(X)
    s = np.array([tkml_by_definition(t, f, 2, loss == "two_sided") for t, f in zip(Y == 1, scores, strict=True)])
    expected = 0.03 * ranked_range(s, m, k, reduction="sum") + (model.coef_**2).sum() / 2
    assert model.objective_ == pytest.approx(expected, rel=1e-12)
    kept = sorted(s, reverse=True)
    assert model.lam_ == pytest.approx(kept[model.k_ - 1])
    assert model.lam_hat_ == (pytest.approx(kept[model.m_ - 1]) if model.m_ else np.inf)


@pytest.mark.parametrize("sparse_X", [False, True])
def test_all_forms_of_the_labels_mean_the_same(problem, sparse_X):
    X, Y = problem
    X = sp.csr_array(X) if sparse_X else X
    names = np.array(["a", "b", "c", "d", "e"])
    sets = [set(names[row == 1]) for row in Y]
    lists = [list(names[row == 1]) for row in Y]
    fits = [
        TKMLClassifier(2, random_state=0).fit(X, y) for y in (Y, Y == 1, Y.astype(float), sp.csr_array(Y), sets, lists)
    ]
    for model in fits[1:]:
        np.testing.assert_array_equal(model.coef_, fits[0].coef_)
    assert list(fits[4].classes_) == list(names)
    assert set(fits[5].predict_top_k(X).ravel()) <= set(names)
    dense, sparse = fits[0].predict(X), fits[3].predict(X)
    assert sp.issparse(sparse)
    np.testing.assert_array_equal(sparse.toarray(), dense)
    assert fits[0].score(X, Y) == fits[3].score(X, sp.csr_array(Y)) == fits[4].score(X, sets)
    assert fits[0].score(X, Y) == top_k_multilabel_accuracy(Y, fits[0].decision_function(X), 2)


def test_rows_without_and_with_all_labels_are_counted_and_right(problem):
    X, Y = problem
    model = TKMLClassifier(2).fit(X, Y)
    assert model.n_without_labels_ == (Y.sum(axis=1) == 0).sum() > 0
    assert model.n_with_all_labels_ == (Y.sum(axis=1) == 5).sum() > 0
    assert model.score(X[:2], Y[:2]) == 1.0
    for loss in ("two_sided", "paper"):
        losses = LabelObjective(Design(X, True), Y == 1, TKML(2, loss == "two_sided"), 1.0, 5).losses_of(
            np.ones((5, 9))
        )
        assert losses[0] == 0.0
        assert losses[1] == (0.0 if loss == "two_sided" else 1.0)


def test_predictions_are_the_best_scored_labels(problem):
    X, Y = problem
    model = TKMLClassifier(3).fit(X, Y)
    scores = model.decision_function(X)
    best = model.predict_top_k(X, 5)
    np.testing.assert_array_equal(np.take_along_axis(scores, best, axis=1), -np.sort(-scores, axis=1))
    np.testing.assert_array_equal(model.predict_top_k(X), best[:, :3])
    expected = np.zeros_like(Y)
    np.put_along_axis(expected, best[:, :3], 1, axis=1)
    np.testing.assert_array_equal(model.predict(X), expected)
    with sklearn.config_context(working_memory=0.001):
        np.testing.assert_array_equal(model.predict(X), expected)


def test_one_class_a_row_is_the_multi_class_case():
    X, y = load_digits(return_X_y=True)
    mixed = np.random.default_rng(0).permutation(len(X))[:600]
    X, y, names = X[mixed] / 16.0, y[mixed], np.array([f"digit {j}" for j in range(10)])
    model = TKMLClassifier(1, C=100.0, random_state=0).fit(X[:400], names[y[:400]])
    one_hot = TKMLClassifier(1, C=100.0, random_state=0).fit(X[:400], np.eye(10)[y[:400]])
    np.testing.assert_array_equal(model.coef_, one_hot.coef_)
    assert model.score(X[400:], names[y[400:600]]) == np.mean(model.predict(X[400:]) == names[y[400:600]]) > 0.85
    np.testing.assert_array_equal(model.predict_top_k(X, 2)[:, 0], model.predict(X))
    three = TKMLClassifier(3, C=100.0).fit(X[:400], y[:400])
    inside = (three.predict_top_k(X[400:]) == y[400:600, None]).any(axis=1)
    assert three.score(X[400:], y[400:600]) == inside.mean() > 0.95


def test_two_sided_fits_what_the_metric_counts_where_true_labels_outnumber_k():
    """Rows with more true labels than k: the paper's loss pulls their scores together, the two-sided one does not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    order = np.argsort(X @ rng.normal(size=(6, 6)), axis=1)
    Y = (order >= 3).astype(int)
    accuracy = {
        loss: converged(top_k=1, C=1e4, loss=loss).fit(X[:200], Y[:200]).score(X[200:], Y[200:])
        for loss in ("two_sided", "paper")
    }
    assert accuracy["two_sided"] > accuracy["paper"] + 0.05


def test_stop_is_where_the_held_out_accuracy_is_best():
    """Here a strong penalty leaves the start much to gain."""
    X, Y = load_digits(return_X_y=True)
    X, Y = X[:300] / 16.0, Y[:300]
    model = TKMLClassifier(1, C=0.005, validation=5, random_state=0).fit(X, Y)
    best = int(np.argmax(model.stop_scores_))
    assert best > 0
    assert not model.stopped_at_start_
    assert model.stop_score_ == model.stop_scores_.max()
    assert len(model.history_["objective"]) <= best + 1  # a path may end before
    assert (np.diff(model.history_["objective"]) <= 0).all()
    assert model.history_["phase"][0] == "start"
    free = TKMLClassifier(1, C=1.0, validation=None, max_iter=1, n_starts=1)
    with sklearn.config_context(working_memory=0.01), pytest.warns(ConvergenceWarning, match="raise max_iter"):
        free.fit(X, Y)  # without memory for exact steps
    assert free.stop_scores_ is None
    assert not free.stopped_at_start_


def test_a_penalty_chosen_without_early_stopping_is_that_of_a_whole_fit():
    """The first steps from a logistic regression rank well for a penalty so strong that the minimum is 0."""
    X, y = make_blobs(200, centers=[[0, 0], [3, 0]], random_state=0)
    for seed in range(4):
        assert TKMLClassifier(m=0.1, max_iter=30, validation=None, random_state=seed).fit(X, y).score(X, y) > 0.85


def test_a_start_that_cannot_be_improved_is_kept():
    rng = np.random.default_rng(0)
    classes = rng.integers(3, size=200)
    X = 20 * np.eye(3)[classes] + rng.normal(size=(200, 3))  # the regressions rank every row right
    model = TKMLClassifier(1, C=100.0, random_state=0).fit(X, np.eye(3)[classes])
    assert model.stop_scores_[0] == pytest.approx(1.0)
    assert model.stopped_at_start_
    assert model.n_iter_ == 1
    assert model.message_ == "stayed at the start"


def test_on_labels_that_say_nothing_the_start_is_mostly_kept():
    """The best of many steps beats the start on held-out rows more often than not, by luck; by more than a standard
    error it does in a quarter of the cases."""
    kept = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, Y = rng.normal(size=(100, 5)), rng.random((100, 5)) < 0.4
        model = TKMLClassifier(2, C=100.0, validation=5, max_iter=60, random_state=seed).fit(X, Y)
        kept.append(model.stopped_at_start_)
        assert model.stopped_at_start_ == (model.message_ == "stayed at the start")
    assert np.mean(kept) >= 0.55


def test_float32_in_float32_out(problem):
    X, Y = problem
    model = TKMLClassifier(2).fit(X.astype(np.float32), Y)
    assert model.coef_.dtype == model.decision_function(X.astype(np.float32)).dtype == np.float32


BAD = [
    ({}, lambda Y: Y * 2, "only 0 and 1"),
    ({}, lambda Y: sp.csr_array(Y * 2), "only 0 and 1"),
    ({}, lambda Y: Y[:-1], "inconsistent numbers of samples"),
    ({}, lambda Y: Y * 0, "at least one true label"),
    ({}, lambda Y: Y[:, :0], "indicator matrix|at least one"),
    ({}, lambda Y: np.ones(len(Y)), "one class"),
    ({}, lambda Y: Y[:, 0] + 0.5 + np.arange(len(Y)), "continuous|Unknown label type"),
    ({"top_k": 5}, lambda Y: Y, "below the number of labels"),
    ({"top_k": 0}, lambda Y: Y, "'top_k' parameter of TKMLClassifier must be an int"),
    ({"m": 200}, lambda Y: Y, "need 0 <= m < k <= n"),
    ({}, lambda Y: np.where(Y, np.inf, 0.0), "only 0 and 1"),
    ({}, lambda Y: np.where(Y, np.nan, 0.0), "at least one true label"),
    ({"loss": "hinge"}, lambda Y: Y, "'loss' parameter of TKMLClassifier must be"),
    ({"validation": 1.0}, lambda Y: Y, "'validation' parameter of TKMLClassifier must be"),
    ({"validation": True}, lambda Y: Y, "'validation' parameter of TKMLClassifier must be"),
]


@pytest.mark.parametrize(("settings", "damage", "message"), BAD)
def test_bad_input_gets_a_clear_error(problem, settings, damage, message):
    X, Y = problem
    with pytest.raises(ValueError, match=message):
        TKMLClassifier(**settings).fit(X, damage(Y))


@pytest.mark.parametrize("k", [0.7, 1, 100])
def test_a_range_that_already_says_what_to_keep_is_not_overruled_in_silence(problem, k):
    X, Y = problem
    with pytest.raises(TypeError, match=f"RankedRange.* already defines k, got k={k} as well; leave k out"):
        TKMLClassifier(2, m=rankrange.RankedRange(0.1, 0.5), k=k).fit(X, Y)
    alone = TKMLClassifier(2, m=rankrange.RankedRange(0.1, 0.5), random_state=0).fit(X, Y)
    both = TKMLClassifier(2, m=0.1, k=0.5, random_state=0).fit(X, Y)
    assert (alone.m_, alone.k_) == (both.m_, both.k_) == (15, 75)
    np.testing.assert_array_equal(alone.coef_, both.coef_)


def test_bad_weights_and_bad_questions_get_a_clear_error(problem):
    X, Y = problem
    with pytest.raises(ValueError, match="non-zero"):
        TKMLClassifier().fit(X, Y, sample_weight=np.zeros(len(X)))
    model = TKMLClassifier(2, m=0, C=1.0).fit(X, Y)
    with pytest.raises(ValueError, match="need 1 <= k"):
        model.predict_top_k(X, 6)
    with pytest.raises(ValueError, match="one column per label"):
        model.score(X, Y[:, :4])
    named = TKMLClassifier(1, m=0, C=1.0).fit(X, ["a", "b", "c"] * 50)
    with pytest.raises(ValueError, match="unknown"):
        named.score(X, ["a", "b", "z"] * 50)


def test_labels_of_a_frame_are_called_as_its_columns_and_others_by_place():
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(80, 4))
    Y = pandas.DataFrame((X[:, :3] > 0).astype(int), columns=["sky", "sea", "land"])
    model, plain = (TKMLClassifier(top_k=1, C=1.0, random_state=0).fit(X, each) for each in (Y, Y.to_numpy()))
    assert model.classes_.tolist() == ["sky", "sea", "land"]
    assert plain.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(model.predict_top_k(X), model.classes_[plain.predict_top_k(X)])
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    score = model.score(X, Y)
    assert model.score(X, Y[["land", "sky", "sea"]]) == score == model.score(X, Y.to_numpy())
    assert model.score(X, [set(Y.columns[row]) for row in Y.to_numpy(dtype=bool)]) == score
    with pytest.raises(ValueError, match=r"labels of the training data, got unknown \['fire'\]"):
        model.score(X, Y.rename(columns={"sea": "fire"}))
    with pytest.raises(ValueError, match="'sky' twice; rename"):
        TKMLClassifier().fit(X, Y.rename(columns={"sea": "sky"}))


def test_fit_reaches_its_certificate(problem):
    X, Y = problem
    model = TKMLClassifier(2, m=0.1, C=0.1, validation=None).fit(X, Y)
    assert model.converged_
    assert model.certificate_ <= 1e-3
    early = TKMLClassifier(2, m=0.1, C=0.1, max_iter=4).fit(X, Y)
    assert early.converged_
    assert early.certificate_ == np.inf


def test_labels_that_nobody_looked_at_are_neither_ranked_nor_counted(problem):
    """A label that is unknown in every row changes nothing for the others, up to the tolerance of a fit."""
    X, Y = problem
    known = Y.astype(float)
    known[np.random.default_rng(0).random(Y.shape) < 0.2] = np.nan
    one_more = np.column_stack([known, np.full(len(Y), np.nan)])
    settings = {"C": 0.3, "validation": None, "random_state": 0}
    model, wider = (TKMLClassifier(2, **settings).fit(X, each) for each in (known, one_more))
    assert wider.objective_ == pytest.approx(model.objective_, rel=1e-3)
    assert not wider.coef_[5].any()
    scores = model.decision_function(X)
    s = [tkml_by_definition(y[~np.isnan(y)] == 1, f[~np.isnan(y)], 2, True) for y, f in zip(known, scores, strict=True)]
    assert model.objective_ == pytest.approx(0.3 * np.sum(s) + (model.coef_**2).sum() / 2, rel=1e-9)
    right = []
    for y, f in zip(known, scores, strict=True):
        there = np.flatnonzero(~np.isnan(y))
        best, true = set(there[np.argsort(-f[there])][:2]), set(np.flatnonzero(y == 1))
        right.append(best <= true or true <= best)
    assert model.score(X, known) == pytest.approx(np.mean(right))
    assert top_k_multilabel_accuracy(known, scores, 2) == pytest.approx(np.mean(right))


def test_most_labels_may_be_unknown(problem):
    """Early stopping, C="auto" and accuracy with half of the labels unknown, close to the fit with all of them."""
    X, Y = problem
    known = np.where(np.random.default_rng(0).random(Y.shape) < 0.5, np.nan, Y)
    model, complete = (TKMLClassifier(2, random_state=0).fit(X, each) for each in (known, Y))
    assert model.score(X, Y) > complete.score(X, Y) - 0.15
