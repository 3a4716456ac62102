"""Choosing m without clean data: what the choice promises, and the path of fits it is made from."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import balanced_accuracy_score

from rankrange import AoRRClassifier, AoRRRegressor, noise
from rankrange.core.losses import LOSSES, Logistic
from rankrange.core.objective import Design, Objective
from rankrange.crossfit import choose as tuning
from rankrange.crossfit.held_out import gate
from rankrange.crossfit.path import dropping, ordinary_fit, upwards, walk


def overlapping(n=200, seed=0, flipped=0.0, far=0.0):
    """Two classes of points, some with wrong labels, some moved far out with wrong labels."""
    X, y = make_classification(n, 4, n_redundant=0, n_clusters_per_class=1, class_sep=1.5, flip_y=0, random_state=seed)
    rng = np.random.default_rng(seed)
    wrong = rng.permutation(n)
    for part, out in ((wrong[: int(flipped * n)], 1.0), (wrong[n - int(far * n) :], 20.0)):
        X[part] *= out
        y[part] = 1 - y[part]
    return X, y


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
    assert AoRRClassifier(aggregate="per-class", random_state=0).fit(X, y).m_ <= 0.05 * len(y)


def test_stratified_cuts_drop_far_rows_with_wrong_labels_from_imbalanced_classes():
    X, y = imbalanced((0.8, 0.2), 0)
    far = np.random.default_rng(0).random(len(y)) < 0.1
    X_given, given = np.where(far[:, None], 10 * X, X), np.where(far, 1 - y, y)
    fit = AoRRClassifier(aggregate="per-class", random_state=0).fit(X_given, given)
    ordinary = AoRRClassifier(0, 1.0).fit(X_given, given)
    assert fit.dropped_[far].mean() > 3 * fit.dropped_[~far].mean()
    assert balanced_accuracy_score(y, fit.predict(X)) > balanced_accuracy_score(y, ordinary.predict(X)) + 0.1
    assert fit.score(X, y) > ordinary.score(X, y)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_stratified_cuts_are_scored_with_the_weights_of_the_fit(class_weight):
    X, y = imbalanced((0.8, 0.2), 0, n=150)
    scores = [
        AoRRClassifier(aggregate=by_class, class_weight=class_weight, random_state=0).fit(X, y).path_["score"][0]
        for by_class in ("per-class", None)
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


def test_the_chosen_m_stays_below_a_given_k():
    X, y = overlapping(120, flipped=0.2)
    fit = AoRRClassifier(k=0.3, random_state=0).fit(X, y)
    assert fit.k_ == 36
    assert fit.m_ < 36
    assert max(fit.path_["m"]) < 0.3


def test_the_table_has_the_scores_that_were_compared():
    X, y = overlapping(200, far=0.1)
    table = AoRRClassifier(C=100.0, random_state=0).fit(X, y).path_
    assert table["m"][0] == 0
    assert table["gain"][0] == 0
    np.testing.assert_allclose(table["gain"], table["score"] - table["score"][0])


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
        X, y = overlapping(n)
        model = Objective(Design(X, True), 2.0 * y - 1.0, Logistic(), 2.0, m=0, k=k)
        choice = tuning.choose_m(model, np.random.default_rng(0), groups=groups)
        assert choice.m == 0
        return choice.reason

    assert reason(100, 1).startswith("k = 0.01 n")
    assert "rows" in reason(15, 15)
    assert "one group" in reason(100, 100, np.zeros(100))


@pytest.mark.parametrize("share", [0.0, 0.15])
def test_a_boundary_that_is_no_line_is_not_taken_for_wrong_labels(share):
    X = np.random.default_rng(0).normal(size=(800, 3))
    y = ((X[:, 0] > 0.4) ^ (X[:, 1] > -0.3)).astype(int)
    given = noise.symmetric(y, share, 0)
    fit = AoRRClassifier(random_state=0).fit(X, given)
    assert fit.noise_estimate_ == pytest.approx(share, abs=0.07)
    assert fit.noise_interval_[0] <= share <= fit.noise_interval_[1]


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
@pytest.mark.parametrize("k", [100, 70])
def test_no_fit_of_the_path_is_above_the_path_upwards(loss, k):
    """The oracle is the definition: the sum of the ranks m+1..k, plus the penalty."""
    X, y = overlapping(100, far=0.2)
    target = {"logistic": 2.0 * y - 1.0, "squared": X[:, 0] + 9.0 * (X[:, 1] > 9), "softmax": y + (X[:, 0] > 1)}[loss]
    whole = Objective(Design(X, True), target, LOSSES[loss](), 1.0 * k, 3 if loss == "softmax" else 1, m=0, k=k)
    shares = (0.0, 0.1, 0.2, 0.3)
    path = walk(whole, shares)
    plain = upwards(whole, shares[1:], ordinary_fit(whole))
    for share, W, (value, _) in zip(shares[1:], path[1:], plain, strict=True):
        here, m = dropping(whole, share), round(share * 100)
        s = sorted(here.losses(W[:, :-1] @ X.T + W[:, -1:]), reverse=True)
        assert here.value(W) == pytest.approx(sum(s[m:k]) / (k - m) + (W[:, :-1] ** 2).sum() / 2 / (k - m))
        assert here.value(W) <= value + 1e-12


def test_the_path_downwards_finds_what_the_path_upwards_misses():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    X[:45] = [8.0, 0.0, 0.0] + 0.1 * rng.normal(size=(45, 3))  # a cluster with the wrong label
    y[:45] = -1.0
    whole = Objective(Design(X, True), y, Logistic(), 300.0, m=0, k=300)
    both, up = walk(whole, (0.0, 0.1, 0.2))[-1], upwards(whole, (0.1, 0.2), ordinary_fit(whole))[-1]
    assert dropping(whole, 0.2).value(both) < 0.9 * up[0]


def test_equal_scores_and_excluded_candidates_are_never_chosen():
    rng, mass = np.random.default_rng(0), np.ones(100)
    chosen = set()
    for _ in range(200):
        scores = (rng.random((4, 100)) < rng.random((4, 1))).astype(float)
        allowed = np.append(True, rng.random(3) < 0.5)
        best = gate(scores, mass, np.array([0.0, 0.1, 0.2, 0.3]), allowed, 0.0)[0]
        assert allowed[best]
        chosen.add(best)
        same = np.repeat(scores[:1] / 3.0, 3, axis=0)
        assert gate(same, mass * rng.random(), np.zeros(3), np.ones(3, dtype=bool), 1.0)[0] == 0
    assert chosen == {0, 1, 2, 3}


@pytest.mark.parametrize("share", [0.25, 0.3])
@pytest.mark.parametrize("seed", range(2))
def test_clustered_outliers_of_a_regression_are_cut(share, seed):
    """With 30% of the rows in a cluster m was 0, and the interval of their share ended at .01."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=300)
    bad = rng.permutation(300)[: int(share * 300)]
    y[bad], X[bad] = 20.0 + 0.3 * rng.normal(size=len(bad)), X[bad] + [3.0, 0.0, 0.0]
    model = AoRRRegressor(random_state=0).fit(X, y)
    assert model.dropped_[bad].all()
    assert abs(model.intercept_) < 0.4
    assert model.noise_interval_[0] <= share <= model.noise_interval_[1]


def test_the_share_of_errors_is_computed_when_it_is_read(monkeypatch):
    X, y = overlapping(100, flipped=0.2)
    calls = []
    monkeypatch.setattr(tuning, "share_of_wrong_labels", lambda *given: calls.append(1) or (0.2, 0.1, 0.3))
    model = AoRRClassifier(random_state=0).fit(X, y)
    assert not calls
    assert (model.noise_estimate_, model.noise_interval_, len(calls)) == (0.2, (0.1, 0.3), 1)
    assert not hasattr(AoRRClassifier(m=0.1).fit(X, y), "noise_estimate_")
