"""Choosing m without clean data: what the choice promises, and the batched fits it is made from."""

import io
from contextlib import redirect_stdout
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_classification
from sklearn.metrics import balanced_accuracy_score

from rankrange import AoRRClassifier, AoRRRegressor, noise
from rankrange.core.cuts import top_weights
from rankrange.core.losses import Logistic, Softmax, Squared
from rankrange.core.objective import Design, Objective
from rankrange.crossfit import choose as tuning
from rankrange.crossfit import fits as paths
from rankrange.crossfit import folds
from rankrange.crossfit.held_out import RowScores


def overlapping(n=200, seed=0, flipped=0.0, far=0.0):
    """Two classes of points, some with wrong labels, some moved far out with wrong labels."""
    X, y = make_classification(n, 4, n_redundant=0, n_clusters_per_class=1, class_sep=1.5, flip_y=0, random_state=seed)
    rng = np.random.default_rng(seed)
    wrong = rng.permutation(n)
    for part, out in ((wrong[: int(flipped * n)], 1.0), (wrong[n - int(far * n) :], 20.0)):
        X[part] *= out
        y[part] = 1 - y[part]
    return X, y


def objective(loss, n=60, weights=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    targets = {"binary": rng.choice([-1.0, 1.0], n), "classes": rng.integers(0, 3, n), "numbers": rng.normal(size=n)}
    outputs = 3 if loss.targets == "classes" else 1
    return Objective(Design(X, True), targets[loss.targets], loss, 2.0, outputs, m=0, k=n, sample_weight=weights)


def by_definition(s, mass, m):
    """Take the largest first until the mass is m."""
    weights, left = np.zeros(len(s)), m
    for i in sorted(range(len(s)), key=lambda i: -s[i]):
        weights[i] = min(mass[i], left)
        left -= weights[i]
    return weights


@pytest.mark.parametrize("units", [True, False])
def test_top_weights_are_the_largest_up_to_the_mass(units):
    rng = np.random.default_rng(0)
    s = rng.exponential(size=(5, 30))
    mass = rng.random((5, 30)) < 0.7 if units else rng.uniform(0, 3, (5, 30))
    m = np.array([0, 1, 4, 7, 10.0])
    expected = [by_definition(s[i], mass[i], m[i]) for i in range(5)]
    np.testing.assert_allclose(top_weights(s, mass, m), expected, atol=1e-12)


def test_tied_losses_share_the_cut():
    weights = top_weights(np.array([[2.0, 1, 1, 1, 0]]), np.ones((1, 5), dtype=bool), np.array([2.0]))
    np.testing.assert_allclose(weights, [[1, 1 / 3, 1 / 3, 1 / 3, 0]])


@pytest.mark.parametrize("loss", [Logistic(), Softmax(), Squared()])
@pytest.mark.parametrize("k_share", [1.0, 0.6])
def test_a_batched_fit_has_the_objective_of_its_own_rows(loss, k_share):
    model = objective(loss)
    train = np.random.default_rng(1).random((4, 60)) < 0.7
    sets = paths.Sets.of(model, train, 2.0)
    m, k = paths.masses_of(sets, np.array([0.2]), k_share)
    W = np.random.default_rng(2).normal(size=(4, model.n_outputs, 4))
    values, gradients = sets.values_and_gradients(W, np.arange(4), m[0], k)
    for i in range(4):
        # C is relative to the mean of all rows: C (k - m) / n to that of those that are kept.
        alone = replace(model.rows(np.flatnonzero(train[i]), m[0, i], k[i]), C=2.0 * (k[i] - m[0, i]) / train[i].sum())
        value, gradient = alone.value_and_gradient(W[i])
        assert values[i] == pytest.approx(value, rel=1e-10)
        np.testing.assert_allclose(gradients[i], gradient, atol=1e-10)


def test_test_parts_hold_every_row_once_a_repeat_and_every_class():
    model = objective(Logistic())
    strata = (model.y > 0).astype(int)
    tests = folds.split(model, strata, np.random.default_rng(0), (2, 5, 5))
    assert tests.shape == (10, 60)
    assert (tests[:5].sum(axis=0) == 1).all()
    for cls in (0, 1):
        counts = tests[:, strata == cls].sum(axis=1)
        assert counts.max() - counts.min() <= 1


def test_a_whole_weight_is_dealt_out_one_by_one():
    model = objective(Logistic(), n=8, weights=np.full(8, 10.0))
    tests = folds.split(model, (model.y > 0).astype(int), np.random.default_rng(0), (2, 5, 5))
    assert (tests[:5].sum(axis=0) == 10).all()
    assert (tests == np.floor(tests)).all()


def test_nothing_is_cut_where_cutting_does_not_help():
    X, y = make_blobs(300, random_state=0, cluster_std=0.6)
    fit = AoRRClassifier(random_state=0).fit(X, y)
    assert fit.m_ == 0
    assert not fit.dropped_.any()


def test_far_rows_with_wrong_labels_are_cut():
    X, y = overlapping(300, far=0.15)
    clean_X, clean_y = overlapping(300)
    fit = AoRRClassifier(random_state=0).fit(X, y)
    moved = (clean_X != X).any(axis=1)
    assert fit.dropped_[moved].mean() > 0.85
    assert fit.score(clean_X, clean_y) > AoRRClassifier(0, 1.0).fit(X, y).score(clean_X, clean_y) + 0.2


def test_outliers_of_a_regression_are_cut():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    coef = np.array([1.0, -2.0, 3.0])
    y = X @ coef + rng.normal(scale=0.1, size=200)
    assert AoRRRegressor(C=1e4, random_state=0).fit(X, y).m_ == 0
    X[:30], y[:30] = X[:30] + 10, 50.0
    fit = AoRRRegressor(C=1e4, random_state=0).fit(X, y)
    assert fit.dropped_[:30].all()
    np.testing.assert_allclose(fit.coef_, coef, atol=0.05)


def test_a_weight_is_a_repetition_and_the_order_of_rows_does_not_matter():
    X, y = overlapping(100, flipped=0.2)
    weight = np.random.default_rng(0).integers(0, 4, 100)
    weighted = AoRRClassifier(random_state=0).fit(X, y, weight)
    order = np.random.default_rng(1).permutation(weight.sum())
    repeated = AoRRClassifier(random_state=0).fit(np.repeat(X, weight, 0)[order], np.repeat(y, weight)[order])
    assert weighted.m_ == repeated.m_
    np.testing.assert_array_equal(weighted.coef_, repeated.coef_)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_a_constant_guess_scores_one_over_the_number_of_classes(classes):
    """However unbalanced they are: that is what makes the score fair to a class that lost labels to another."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.r_[np.zeros(300 - 10 * (classes - 1), dtype=int), np.repeat(np.arange(1, classes), 10)])
    fit = AoRRClassifier(k=1.0, C=1e-9, random_state=0).fit(rng.normal(size=(300, 2)), y)
    np.testing.assert_allclose(fit.tuning_["score"], 1 / classes)
    assert fit.m_ == 0
    assert set(fit.predict(rng.normal(size=(50, 2)))) == {0}


def imbalanced(shares, seed, n=400):
    """Overlapping normal classes of these shares, with right labels."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), n, p=shares)
    return rng.normal(size=(n, 4)) + 1.6 * np.eye(4)[y], y


@pytest.mark.parametrize("shares", [(0.88, 0.12), (0.75, 0.25), (0.65, 0.25, 0.1)])
@pytest.mark.parametrize("seed", range(2))
def test_stratified_cuts_leave_right_labels_of_imbalanced_classes_alone(shares, seed):
    """Cuts by class move the boundary towards the frequent class, which is no reason to drop rows."""
    X, y = imbalanced(shares, seed)
    assert AoRRClassifier(stratify=True, random_state=0).fit(X, y).m_ <= 0.05 * len(y)


def test_stratified_cuts_drop_far_rows_with_wrong_labels_from_imbalanced_classes():
    X, y = imbalanced((0.8, 0.2), 0)
    far = np.random.default_rng(0).random(len(y)) < 0.1
    X_given, given = np.where(far[:, None], 10 * X, X), np.where(far, 1 - y, y)
    fit = AoRRClassifier(stratify=True, random_state=0).fit(X_given, given)
    ordinary = AoRRClassifier(0, 1.0).fit(X_given, given)
    assert fit.dropped_[far].mean() > 3 * fit.dropped_[~far].mean()
    assert balanced_accuracy_score(y, fit.predict(X)) > balanced_accuracy_score(y, ordinary.predict(X)) + 0.1
    assert fit.score(X, y) > ordinary.score(X, y)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_stratified_cuts_are_scored_with_the_weights_of_the_fit(class_weight):
    X, y = imbalanced((0.8, 0.2), 0, n=150)
    scores = [
        AoRRClassifier(stratify=by_class, class_weight=class_weight, random_state=0).fit(X, y).tuning_["score"][0]
        for by_class in (True, False)
    ]
    assert (scores[0] == scores[1]) == (class_weight == "balanced")


@pytest.mark.parametrize("seed", range(4))
def test_labels_of_one_class_wrong_more_often_do_not_hide_the_gain_of_cutting_them(seed):
    """Of one class 45% bear the other's label.

    By accuracy against these labels nothing is gained in some of the cases; balanced accuracy grows with the clean one
    in all of them.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(1200) % 2
    X = rng.normal(size=(1200, 2)) + np.outer(4 * y - 2, [1.0, 0.0])
    given = np.where((y == 1) & (rng.random(1200) < 0.45), 0, y)
    fit = AoRRClassifier(C=1e3, random_state=0).fit(X, given)
    assert fit.m_ > 0
    assert fit.score(X, y) > 0.94
    assert AoRRClassifier(0, 1.0, C=1e3).fit(X, given).score(X, y) < 0.8


@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_on_few_rows_nothing_is_cut_by_luck(task):
    """Twenty sets of 24 rows without a wrong one. The best of many scores often wins by a standard error on so few."""
    cut = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        y = np.arange(24) % 2
        X = rng.normal(size=(24, 2)) + np.outer(y - 0.5, [1.0, 0.0])
        model = AoRRClassifier if task == "classes" else AoRRRegressor
        target = y if task == "classes" else X[:, 0] + rng.normal(size=24)
        cut.append(model(C=100.0, random_state=0).fit(X, target).m_ > 0)
    assert np.mean(cut) <= 0.1


def test_normal_errors_are_no_outliers():
    """Of normal errors 0.27% lie beyond three standard deviations; they are what is expected, not what is wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12_000, 2))
    fit = AoRRRegressor(C=1e4, random_state=0).fit(X, X[:, 0] + rng.normal(size=12_000))
    assert fit.noise_interval_[0] == 0.0
    assert fit.noise_estimate_ < 0.001


def test_how_far_out_an_outlier_lies_moves_neither_the_choice_nor_the_estimate():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=400)
    out = rng.permutation(400)[:40]
    found = []
    for distance in (10.0, 1e3, 1e5):
        moved = y.copy()
        moved[out] += distance
        fit = AoRRRegressor(C=1e4, random_state=0).fit(X, moved)
        assert fit.dropped_[out].all()
        found.append((fit.m_, fit.noise_estimate_))
    assert {m for m, _ in found} == {found[0][0]}
    np.testing.assert_allclose([share for _, share in found], 0.1, atol=0.005)


def test_too_few_rows_to_choose_cut_nothing():
    X, y = overlapping(18, flipped=0.2)
    assert AoRRClassifier(random_state=0).fit(X, y).m_ == 0


def test_the_chosen_m_stays_below_a_given_k():
    X, y = overlapping(120, flipped=0.2)
    fit = AoRRClassifier(k=0.3, random_state=0).fit(X, y)
    assert fit.k_ == 36
    assert fit.m_ < 36
    assert max(fit.tuning_["m"]) < 0.3


def test_the_table_has_the_scores_that_were_compared():
    X, y = overlapping(200, far=0.1)
    table = AoRRClassifier(C=100.0, random_state=0).fit(X, y).tuning_
    assert table["m"][0] == 0
    assert table["gain"][0] == 0
    np.testing.assert_allclose(table["gain"], table["score"] - table["score"][0])


@pytest.mark.parametrize("name", ["m", "k"])
def test_a_word_other_than_auto_is_refused(name):
    X, y = overlapping(30)
    with pytest.raises(ValueError, match=f"{name} must be 'auto'"):
        AoRRClassifier(**{name: "best"}).fit(X, y)


def test_on_many_rows_m_is_the_estimated_share_of_errors_where_that_scores_as_well():
    X, y = make_blobs(4500, centers=np.eye(3) * 3, random_state=0)
    given = noise.asymmetric(y, {0: 1, 1: 2, 2: 0}, 0.3, 0)
    fit = AoRRClassifier(random_state=0).fit(X, given)
    assert fit.m_ / 4500 == pytest.approx(0.3, abs=0.05)
    assert fit.m_ == round(fit.noise_estimate_ * 4500)
    table = fit.tuning_
    assert table["score"][-1] == pytest.approx(table["score"].max(), abs=table["error"].max())


def test_a_share_that_scores_worse_is_not_taken_for_being_preferred():
    model = objective(Logistic(), n=100)
    scores = np.zeros((3, 100))
    scores[1, :60], scores[2, :30] = 1.0, 1.0  # candidate 1 is the best by far
    fits = tuning.Fits(None, np.array([0.0, 0.1, 0.2]), ["none", "up", "up"], np.zeros((3, 1, 1, 1)))
    assert tuning._gate(RowScores(scores, model.mass), model, fits, preferred=2)[0] == 1
    scores[2, :59] = 1.0
    assert tuning._gate(RowScores(scores, model.mass), model, fits, preferred=2)[0] == 2


class EqualScores:
    """Candidates with the same score on every row, whose means were summed in different orders."""

    mass = 100.0

    def __init__(self, mean, last_digits):
        self.mean = np.array([mean + i * np.spacing(mean) for i in last_digits])

    def errors(self, candidate):
        return np.zeros(len(self.mean))


@pytest.mark.parametrize("loss", [Logistic(), Squared()])
def test_a_candidate_that_predicts_the_same_as_the_ordinary_fit_is_never_chosen(loss):
    model = objective(loss, n=100)
    fits = tuning.Fits(None, np.array([0.0, 0.1, 0.2]), ["none", "up", "up"], np.zeros((3, 1, 1, 1)))
    for digits in np.random.default_rng(0).integers(1, 10**12, 200):  # means at which rounding to 12 digits changes
        scores = EqualScores((digits + 0.5) / 1e12, [-8, 8, 0])
        assert tuning._gate(scores, model, fits)[0] == 0


@pytest.mark.parametrize("loss", [Logistic(), Squared()])
def test_an_excluded_candidate_is_never_chosen(loss):
    model, rng = objective(loss, n=100), np.random.default_rng(0)
    fits = tuning.Fits(None, np.array([0.0, 0.1, 0.2, 0.3]), ["none", *["up"] * 3], np.zeros((4, 1, 1, 1)))
    chosen = set()
    for _ in range(200):
        scores = RowScores((rng.random((4, 100)) < rng.random((4, 1))).astype(float), model.mass)
        allowed = np.append(True, rng.random(3) < 0.5)
        best = tuning._gate(scores, model, fits, allowed)[0]
        assert allowed[best]
        chosen.add(best)
    assert chosen == {0, 1, 2, 3}


def test_the_choice_ends_if_every_m_drops_more_than_half_of_a_class(monkeypatch):
    X, y = overlapping(100, flipped=0.2)
    rounds = []

    def always_the_first(*arguments, **settings):
        rounds.append(1)
        assert len(rounds) < 1000, "the choice does not end"
        return 1, {}, "the first candidate"

    monkeypatch.setattr(tuning, "_gate", always_the_first)
    monkeypatch.setattr(tuning, "loses_a_class", lambda *arguments: True)
    monkeypatch.setattr(tuning, "on_all_rows", lambda *arguments: (1.0, None))
    model = Objective(Design(X, True), 2.0 * y - 1.0, Logistic(), 1.0, 1, m=0, k=100)
    found = tuning.choose_m(model, np.random.default_rng(0), C=1.0, with_noise=False)
    assert found.m == 0
    assert "half of each class" in found.reason


def test_progress_of_the_choice_is_shown(capsys):
    X, y = overlapping(100, flipped=0.2)
    AoRRClassifier(random_state=0, verbose=1).fit(X, y)
    shown = capsys.readouterr().out
    assert "fits with increasing m" in shown
    assert "m = " in shown
    AoRRClassifier(random_state=0).fit(X, y)
    assert capsys.readouterr().out == ""


class InterruptedOutput(io.StringIO):
    """Standard output that is interrupted in the middle of the choice of m."""

    def write(self, text):
        if "fits with increasing m" in text:
            raise KeyboardInterrupt
        return super().write(text)


def test_an_interrupt_comes_through_and_the_next_fit_is_whole():
    X, y = overlapping(100, flipped=0.2)
    expected = AoRRClassifier(random_state=0).fit(X, y)
    model = AoRRClassifier(random_state=0, verbose=1)
    with redirect_stdout(InterruptedOutput()), pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not hasattr(model, "coef_")
    np.testing.assert_array_equal(model.set_params(verbose=0).fit(X, y).coef_, expected.coef_)


def test_the_same_seed_gives_the_same_choice():
    X, y = overlapping(150, flipped=0.2)
    one, two = (AoRRClassifier(random_state=7).fit(X, y) for _ in range(2))
    assert (one.m_, one.noise_estimate_, one.noise_interval_) == (two.m_, two.noise_estimate_, two.noise_interval_)
    np.testing.assert_array_equal(one.coef_, two.coef_)


@pytest.mark.parametrize(("n", "seed"), [(200, 2), (600, 4), (2000, 3)])
def test_noise_with_a_peak_and_without_errors_costs_few_rows(n, seed):
    """Fits to the middle of Laplace noise score better; 30, 35 and 40% of these rows were cut for that."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, 5)), rng.normal(size=5)
    assert AoRRRegressor(random_state=0).fit(X, X @ w + rng.laplace(size=n)).m_ <= 0.05 * n


@pytest.mark.parametrize(("law", "seed"), [("laplace", 11), ("standard_t", 13)])
def test_few_gross_errors_cost_few_rows(law, seed):
    """Scores are flat once the errors are cut; the luckiest of them cut 45% and 35% of these rows."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(2000, 5)), rng.normal(size=5)
    rng.normal(size=2000)
    y = X @ w + (rng.laplace(size=2000) if law == "laplace" else rng.standard_t(3, 2000))
    bad = rng.choice(2000, 16, replace=False)
    y[bad] += rng.choice([-1, 1], 16) * rng.uniform(10, 100, 16) * np.std(y) / 3
    fit = AoRRRegressor(random_state=0).fit(X, y)
    assert fit.dropped_[bad].all()
    assert fit.m_ <= 0.05 * 2000


def copies_of_guesses(seed):
    """Few rows, each ten times with one label drawn at random: a fit that cuts most of a class may score best."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(40, 30)), rng.integers(0, 2, 40)
    return np.repeat(X, 10, axis=0), np.repeat(y, 10), np.repeat(np.arange(40), 10)


@pytest.mark.parametrize("C", [1.0, "auto"])
@pytest.mark.parametrize("seed", range(3))
def test_auto_never_cuts_more_than_half_of_a_class(seed, C):
    X, y, groups = copies_of_guesses(seed)
    model = AoRRClassifier(C=C, random_state=0).fit(X, y, groups=groups)  # a warning would be an error
    assert max(model.dropped_[y == label].mean() for label in (0, 1)) <= 0.5


def test_auto_leaves_half_of_a_rare_class_beside_wrong_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 8))
    z = 3.0 * X @ rng.normal(size=8) / np.sqrt(8) + rng.logistic(size=1500)
    y = noise.symmetric((z > np.quantile(z, 0.88)).astype(int), 0.1, 0)
    model = AoRRClassifier(random_state=0).fit(X, y)  # a warning would be an error
    assert model.m_ > 0
    assert max(model.dropped_[y == label].mean() for label in (0, 1)) <= 0.5


def test_the_rule_counts_the_mass_of_each_class():
    y = np.where(np.arange(100) < 20, 1.0, -1.0)
    objective = Objective(Design(np.ones((100, 1)), False), y, Logistic(), 1.0, m=0, k=100)
    against = np.array([[-3.0]])  # all of the 20 rows of the first class cost most
    for m, lost in ((5, False), (10, False), (11, True), (30, True)):
        assert tuning.loses_a_class(objective, against, m) is lost
    weight = np.where(y > 0, 4.0, 1.0)
    heavier = replace(objective, sample_weight=weight, k=float(weight.sum()))
    assert not tuning.loses_a_class(heavier, against, 40.0)
    assert tuning.loses_a_class(heavier, against, 41.0)


def test_the_reason_for_m_0_is_the_one_that_applies():
    def reason(n, k, groups=None):
        choice = tuning.choose_m(replace(objective(Logistic(), n), k=k), np.random.default_rng(0), groups=groups)
        assert choice.m == 0
        return choice.reason

    assert reason(100, 1).startswith("k = 0.01 n")
    assert "rows" in reason(15, 15)
    assert "one group" in reason(100, 100, np.zeros(100))


def test_each_m_that_would_drop_half_of_a_class_is_followed_by_a_smaller_one(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 3))
    y = np.where((X[:, 0] > 0) ^ (rng.random(5000) < 0.25), 1.0, -1.0)
    tried = []

    def lost(objective, W, m):
        assert len(tried) < 5  # a choice without an end would fail here
        tried.append(m / objective.total)
        return tried[-1] > 0.15  # in place of a fit to all rows that drops more than half of a class

    monkeypatch.setattr(tuning, "loses_a_class", lost)
    ranked = Objective(Design(X, True), y, Logistic(), 1.0, m=0, k=5000)
    choice = tuning.choose_m(ranked, np.random.default_rng(0), C=1.0)
    assert len(tried) > 1
    assert all(later < 0.99 * earlier for earlier, later in pairwise(tried))
    assert choice.m <= 0.15 * 5000


@pytest.mark.parametrize("share", [0.0, 0.15])
def test_a_boundary_that_is_no_line_is_not_taken_for_wrong_labels(share):
    X = np.random.default_rng(0).normal(size=(800, 3))
    y = ((X[:, 0] > 0.4) ^ (X[:, 1] > -0.3)).astype(int)
    given = noise.symmetric(y, share, 0)
    fit = AoRRClassifier(random_state=0).fit(X, given)
    assert fit.noise_estimate_ == pytest.approx(share, abs=0.07)
    assert fit.noise_interval_[0] <= share <= fit.noise_interval_[1]
