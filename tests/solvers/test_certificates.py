"""A certificate is a proof: a lower bound at every step; and none where losses tie at the cut."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import conic
from rankrange import AoRRClassifier, AoRRRegressor
from rankrange.core.losses import LOSSES
from rankrange.core.objective import Design, Objective
from rankrange.solvers import Settings, convex, search
from rankrange.solvers.polish import bilevel
from reproduction import data

BINARY = ("logistic", "hinge")
C = 10.0


def unbalanced(n=40, d=3, seed=0):
    """One row in eight is of the second class, and both lie away from zero: the best intercept does too."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 8 == 0, 1.0, -1.0)
    return rng.normal(size=(n, d)) + 0.5 * y[:, None] + 1.0, y


@pytest.mark.parametrize("K", [1300, 1000, 500])
@pytest.mark.parametrize("name", BINARY)
def test_the_certificate_on_many_rows_is_a_bound_at_every_budget(name, K):
    """Far more rows than parameters: the search goes on from some of the rows, and weighs those near the cut alone."""
    X, y = unbalanced(1300, 2, seed=1)
    best = conic.least_value(name, X, y, C, K)
    objective = Objective(Design(X, True), y, LOSSES[name](), C, 1, m=0, k=K)
    for budget in (1, 2, 3, 5, 100):
        result = search(objective, None, Settings(max_iter=budget))
        assert result.value - best <= result.certificate * result.value + 1e-7 * best
    assert result.certificate <= 1e-6


# ---- ties --------------------------------------------------------------------------------------------------------


def tied_rows(n=60, seed=0):
    """Five different rows, each many times and with either label: losses tie wherever the cut falls."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, size=(5, 2))[rng.integers(5, size=n)] + 0.5, rng.choice([-1.0, 1.0], n)


def value_by_definition(losses, mass, m, k):
    """Take ranks m+1..k of the mass, largest first."""
    total, before = 0.0, 0.0
    for i in np.argsort(-losses):
        total += losses[i] * max(0.0, min(before + mass[i], k) - max(before, m))
        before += mass[i]
    return total / (k - m)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("m", [1, 7, 13, 20, 31])
@pytest.mark.parametrize("loss", BINARY)
def test_cutting_touches_the_objective_at_its_own_point_and_lies_above_elsewhere_with_ties(loss, m, weighted):
    X, y = tied_rows()
    rng = np.random.default_rng(m)
    mass = rng.integers(1, 4, len(y)).astype(float) if weighted else np.ones(len(y))
    k = mass.sum() - 5
    weight = mass if weighted else None
    objective = Objective(Design(X, True), y, LOSSES[loss](), C, 1, m=m, k=k, sample_weight=weight)
    for W in (np.zeros((1, 3)), rng.normal(size=(1, 3)), np.array([[1.0, 1.0, 0.0]])):
        s = objective.losses(objective.design.scores(W))
        cut = objective.cutting(s)
        expected = value_by_definition(s, mass, m, k) + (W[0, :2] ** 2).sum() / (2 * C)
        assert cut.value(W) == pytest.approx(expected, rel=1e-12)
        assert cut.value(W) == pytest.approx(objective.value(W), rel=1e-12)
        for _ in range(20):
            V = W + rng.normal(size=W.shape)
            assert cut.value(V) >= objective.value(V) - 1e-12


def test_tied_rows_are_cut_in_equal_parts_and_the_fit_does_not_stop_for_it():
    """Titanic has 24 different rows. Cut whole, tied rows leave nothing to learn from and a fit ends at 0.154."""
    titanic = data.load("titanic")
    y = np.where(titanic.target == 1, 1.0, -1.0)
    objective = Objective(Design(titanic.data.astype(float), True), y, LOSSES["logistic"](), 1e3, 1, m=400, k=len(y))
    ordinary = bilevel(Objective(objective.design, y, objective.loss, 1e3, 1, m=0, k=len(y)), np.zeros((1, 4))).w
    result = bilevel(objective, ordinary)
    assert result.converged
    assert result.value == pytest.approx(0.0912, abs=1e-4)
    s = objective.losses(objective.design.scores(result.w))
    assert convex.minimise(objective.cutting(s), result.w, max_iter=0).gap <= 1e-6


def contradictory(n=40, d=2, seed=0):
    """Every row twice, once with each label: at W = 0 all losses tie, and any W that cuts the wrong half is lower."""
    X = np.random.default_rng(seed).normal(size=(n // 2, d))
    return np.repeat(X, 2, axis=0), np.tile([-1.0, 1.0], n // 2)


@pytest.mark.parametrize("loss", BINARY)
def test_no_certificate_where_losses_tie_at_the_cut(loss):
    """The problem with all rows cut in equal parts is least at W = 0, with no gap; the objective is not."""
    X, y = contradictory()
    objective = Objective(Design(X, True), y, LOSSES[loss](), 1e3, 1, m=20, k=40)
    zero = np.zeros((1, 3))
    lower = np.array([[1e-3, 1e-3, 0.0]])
    assert objective.value(lower) < objective.value(zero)
    result = bilevel(objective, zero)
    if objective.value(result.w) >= objective.value(lower):
        assert result.certificate == np.inf
        assert not result.converged


@pytest.mark.parametrize("rows", [3000, 20_000])
@pytest.mark.parametrize("kind", ["logistic", "hinge", "softmax", "weighted", "float32", "rare"])
def test_uninformative_labels_end_with_a_certificate_although_all_losses_tie(kind, rows):
    rng = np.random.default_rng(0)
    X, y, mass = rng.normal(size=(rows, 5)), rng.integers(3 if kind == "softmax" else 2, size=rows), None
    if kind == "float32":
        X = X.astype(np.float32)
    if kind == "rare":
        y = (np.arange(rows) % 4 == 0).astype(int)
    if kind == "weighted":
        mass = rng.integers(1, 4, rows).astype(float)
    loss, k = "hinge" if kind == "hinge" else "logistic", 0.3 if kind == "softmax" else 0.45
    fit = AoRRClassifier(0.1, k, loss=loss, C=10.0, random_state=0).fit(X, y, sample_weight=mass)
    assert fit.certificate_ <= 1e-6
    assert np.abs(fit.coef_).max() < 1e-3


def test_one_row_repeated_at_the_cut_does_not_spoil_the_certificate():
    """Copies of a row move together: near W the same mass of them stays cut."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(15, 2)), 4, axis=0)
    y = np.repeat(np.where(rng.normal(size=15) > 0, 1.0, -1.0), 4)
    objective = Objective(Design(X, True), y, LOSSES["logistic"](), C, 1, m=10, k=60)
    result = bilevel(objective, rng.normal(size=(1, 3)))
    assert result.certificate <= 1e-6
    for scale in (1e-5, 1e-4, 1e-3):
        for _ in range(40):
            V = result.w + scale * rng.normal(size=result.w.shape)
            assert objective.value(V) >= result.value * (1 - 1e-6)


def text_like(n, d, noise, seed=0):
    """Thirty words per row of a Zipf law, weighted by rarity and of unit length."""
    rng = np.random.default_rng(seed)
    word = np.minimum(rng.zipf(1.3, size=30 * n) - 1, d - 1)
    X = sp.csr_matrix((np.ones(30 * n), word, np.arange(0, 30 * n + 1, 30)), shape=(n, d))
    X.sum_duplicates()
    X = X @ sp.diags(np.log(n / (1.0 + np.asarray((X > 0).sum(axis=0)).ravel())))
    X = sp.csr_matrix(sp.diags(1.0 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel() + 1e-12)) @ X)
    z = X @ rng.normal(size=d)
    return X, np.where(3.0 * z / z.std() + noise * rng.logistic(size=n) > 0, 1, 0)


def test_wide_sparse_rows_of_which_many_tie_at_the_cut_end_with_a_certificate():
    X, y = text_like(8000, 1500, noise=2.0)
    fit = AoRRClassifier(m=0, k=0.5, random_state=0).fit(X, y)
    assert fit.certificate_ <= 1e-6


def test_a_class_that_is_cut_whole_does_not_spoil_the_bound():
    """Its intercept falls without end. Without it each loss is smaller, so that the bound of the others holds."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(4, size=300)
    objective = Objective(Design(X, True), y, LOSSES["softmax"](), 50.0, 4, m=0, k=300)
    kept = replace(objective, sample_weight=(y < 3).astype(float)).average()
    found = convex.minimise(kept, np.zeros((4, 4)), tol=1e-6, max_iter=200)
    assert found.gap <= 1e-6
    three = replace(objective.rows(np.flatnonzero(y < 3), 0, int((y < 3).sum())), n_outputs=3).average()
    assert found.value >= convex.minimise(three, tol=1e-9).value * (1 - 1e-6)


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_an_absolute_loss_that_drops_rows_ends_with_a_certificate(seed):
    """Rows dropped anew after a step that does not lower F end elsewhere: 200 steps proved nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(600, 55))
    y = 3 * X @ rng.normal(size=55) / np.sqrt(55) + rng.normal(size=600)
    fit = AoRRRegressor(0.25, 1.0, loss="absolute", C=1.75, random_state=0).fit(X, y)
    assert fit.certificate_ <= 1e-6
    assert fit.n_iter_ < 200


def test_a_cut_that_takes_nearly_all_of_a_rare_class_ends_with_a_certificate():
    rng = np.random.default_rng(1)
    X = np.sqrt(0.1) * rng.normal(size=(6000, 12)) + np.sqrt(0.9) * rng.normal(size=(6000, 1))
    z = X @ rng.normal(size=12)
    noisy = 3 * z / z.std() + rng.logistic(size=6000)
    y = (noisy > np.quantile(noisy, 0.7)).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the class that loses most of its rows
        fit = AoRRClassifier(m=0.28, k=0.7, C=0.25, random_state=0).fit(X, y)
    assert fit.certificate_ <= 1e-6
