"""Weights by rank: the definition by sorting, repetition, ties, the difference of two convex functions, fits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import trim_mean
from scipy.stats.mstats import winsorize

from rankrange import AoRRClassifier, AoRRRegressor, RankWeights, range_weights, risk
from rankrange.core.aggregates import WorstGroup
from rankrange.core.losses import Logistic, Softmax, Squared
from rankrange.core.objective import Design, Objective
from rankrange.solvers import solve

NAMED = {
    "extremile": RankWeights("extremile", tau=0.8),
    "low extremile": RankWeights("extremile", tau=0.3),
    "exponential": RankWeights("exponential", rate=3.0),
    "superquantile": RankWeights("superquantile", alphas=[0.1, 0.6], weights=[1, 2]),
    "trimmed": RankWeights("trimmed", m=0.2, k=0.9),
    "winsorised": RankWeights("winsorised", m=0.2, k=0.8),
    "close-k": RankWeights("close-k", center=0.3, width=0.4),
    "array": RankWeights([5.0, 0.0, 2.0, 1.0, 1.0]),
    "function": RankWeights(lambda u: 1.0 + np.sin(6 * u)),
}
CONVEX = {"extremile", "exponential", "superquantile"}
few_values = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=20).map(np.array)


def sorted_weights(rank_weights, n):
    """The weights of n different values, the largest first."""
    return rank_weights.on(-np.arange(float(n)))


# ---- the definition --------------------------------------------------------------------------------------------------


def test_an_array_of_weights_is_the_definition_by_sorting():
    rng = np.random.default_rng(0)
    weights, values = rng.random(50), rng.normal(size=50)
    expected = np.sort(values)[::-1] @ weights / weights.sum()
    assert RankWeights(weights).mean(values) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [1, 7, 40])
def test_names_are_their_formulas(n):
    values = np.random.default_rng(n).normal(size=n)
    ranked, u = np.sort(values)[::-1], np.arange(n + 1) / n
    r = np.log(0.5) / np.log(0.8)
    assert RankWeights("extremile", tau=0.8).mean(values) == pytest.approx(ranked @ np.diff(1 - (1 - u) ** r))
    assert RankWeights("extremile", tau=0.2).mean(values) == pytest.approx(
        -RankWeights("extremile", tau=0.8).mean(-values)
    )
    assert RankWeights("exponential", rate=3.0).mean(values) == pytest.approx(
        ranked @ np.diff(1 - np.exp(-3 * u)) / (1 - np.exp(-3))
    )
    mixture = (risk.cvar(values, 0.1) + 2 * risk.cvar(values, 0.6)) / 3
    assert RankWeights("superquantile", alphas=[0.1, 0.6], weights=[1, 2]).mean(values) == pytest.approx(mixture)


def test_trimmed_and_winsorised_means_are_scipys():
    values = np.random.default_rng(1).normal(size=40)
    assert RankWeights("trimmed", m=0.1, k=0.9).mean(values) == pytest.approx(trim_mean(values, 0.1))
    assert RankWeights("winsorised", m=0.1, k=0.9).mean(values) == pytest.approx(
        float(winsorize(values, (0.1, 0.1)).mean())
    )


@settings(max_examples=60, deadline=None)
@given(few_values, st.integers(0, 5), st.integers(1, 6))
def test_equal_weights_on_a_range_are_the_ranked_range(values, low, width):
    n = len(values)
    m, k = min(low, n - 1), min(min(low, n - 1) + width, n)
    weights = np.zeros(n)
    weights[m:k] = 1.0
    np.testing.assert_allclose(RankWeights(weights).on(values), range_weights(values, m, k) / (k - m), atol=1e-12)


def test_a_function_is_integrated_over_the_share_of_each_rank():
    weights = sorted_weights(RankWeights(lambda u: 3 * u**2), 10)
    np.testing.assert_allclose(weights, np.diff((np.arange(11) / 10) ** 3), atol=1e-7)


# ---- the contract: one set of properties over all of them ------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
@settings(max_examples=25, deadline=None)
@given(values=few_values)
def test_values_that_tie_share_equally_and_weights_sum_to_one(name, values):
    weights = NAMED[name].on(values)
    assert weights.sum() == pytest.approx(1.0)
    assert weights.min() >= 0
    for value in np.unique(values):
        assert np.ptp(weights[values == value]) <= 1e-12
    # A slightly different ranking of the tied values has the same mean, up to the difference.
    assert NAMED[name].mean(values + 1e-9 * np.arange(len(values))) == pytest.approx(NAMED[name].mean(values), abs=1e-6)


@pytest.mark.parametrize("name", NAMED)
@settings(max_examples=25, deadline=None)
@given(values=few_values, seed=st.integers(0, 1000))
def test_a_weight_is_a_repetition(name, values, seed):
    counts = np.random.default_rng(seed).integers(0, 4, size=len(values))
    counts[0] += 1
    repeated = NAMED[name].mean(np.repeat(values, counts))
    assert NAMED[name].mean(values, counts) == pytest.approx(repeated, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", NAMED)
def test_convex_is_said_of_weights_that_never_rise(name):
    weights = sorted_weights(NAMED[name], 200)
    assert NAMED[name].convex == bool((np.diff(weights) <= 1e-9).all()) == (name in CONVEX)


@pytest.mark.parametrize("name", NAMED)
def test_the_majorant_touches_and_lies_above(name):
    rng = np.random.default_rng(2)
    at = rng.normal(size=30)
    convex, taken = NAMED[name].majorant(at, 0, None)
    taken = np.zeros(30) if taken is None else taken
    # At `at` the two parts are the weighted mean; elsewhere the tangent lies below the part that is taken off.
    assert convex.exact(at)[0] - taken @ at == pytest.approx(NAMED[name].mean(at))
    for _ in range(20):
        other = at + rng.normal(size=30)
        assert convex.exact(other)[0] - taken @ other >= NAMED[name].mean(other) - 1e-9


def test_smoothed_weights_are_the_best_of_their_polytope():
    rng = np.random.default_rng(3)
    values, width = rng.normal(size=5), 0.7
    weights = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
    risk_of_rows = RankWeights(weights).majorant(values, 0, None)[0]
    found = risk_of_rows.smoothed(values, width, np.ones(5))

    def value(q):
        return q @ values - 0.5 * width * np.mean((5 * q - 1) ** 2)

    assert found.value == pytest.approx(value(found.weights))
    for _ in range(200):  # no mixture of permutations is better
        parts = rng.dirichlet(np.full(6, 0.3))
        assert value(sum(part * rng.permutation(weights) for part in parts)) <= found.value + 1e-12
    # It lies in the polytope: a mixture of permutations (by a linear program over doubly stochastic matrices).
    A = np.vstack([np.kron(np.eye(5), weights), np.kron(np.eye(5), np.ones(5)), np.kron(np.ones(5), np.eye(5))])
    assert linprog(np.zeros(25), A_eq=A, b_eq=np.r_[found.weights, np.ones(10)], bounds=(0, None)).status == 0
    step = 1e-6 * np.eye(5)
    slopes = [(risk_of_rows.smoothed(values + s, width, np.ones(5)).value - found.value) / 1e-6 for s in step]
    np.testing.assert_allclose(slopes, found.weights, atol=1e-5)


# ---- fits ------------------------------------------------------------------------------------------------------------


def problem(aggregate, n=60, classes=2, m=0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    score = X @ rng.normal(size=3) + 0.5 * rng.normal(size=n)
    if classes == 2:
        return Objective(
            Design(X, True), np.where(score > 0, 1.0, -1.0), Logistic(), float(n), m=m, k=n, aggregate=aggregate
        )
    codes = np.digitize(score, [-0.5, 0.5])
    return Objective(Design(X, True), codes, Softmax(), float(n), 3, m=m, k=n, aggregate=aggregate)


@pytest.mark.parametrize("name", sorted(CONVEX))
def test_convex_weights_are_certified_and_no_other_point_is_lower(name):
    objective = problem(NAMED[name])
    result = solve(objective)
    assert result.certificate <= 1e-6
    rng = np.random.default_rng(4)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(20):
            other = result.w + size * rng.normal(size=result.w.shape)
            assert objective.value(other) >= result.value * (1 - 1e-6)


@pytest.mark.parametrize("name", ["trimmed", "winsorised", "array", "function"])
def test_other_weights_descend_from_the_ordinary_fit(name):
    objective = problem(NAMED[name])
    ordinary = solve(problem(RankWeights("trimmed", m=0.0, k=1.0)))
    assert solve(objective).value <= objective.value(ordinary.w) * (1 + 1e-9)


def test_the_maximum_of_squared_losses_is_the_minimax_line():
    rng = np.random.default_rng(5)
    x = rng.normal(size=30)
    y = 2 * x + rng.uniform(-1, 1, size=30)
    fitted = solve(
        Objective(Design(x[:, None], True), y, Squared(), 1e9, m=0, k=30, aggregate=RankWeights([1] + 29 * [0]))
    )
    A = np.vstack([np.c_[s * x, s * np.ones(30), -np.ones(30)] for s in (1, -1)])
    best = linprog([0, 0, 1], A_ub=A, b_ub=np.r_[y, -y], bounds=(None, None))
    scale = Squared().value(np.array([1.0]), np.array([0.0]))[0]
    assert fitted.value == pytest.approx(scale * best.fun**2, rel=1e-5)


def test_worst_groups_lose_the_same_share_and_the_largest_mean_counts():
    rng = np.random.default_rng(6)
    s, groups = rng.exponential(size=40), np.arange(40) % 4
    kept = [np.sort(s[groups == g])[:-2] for g in range(4)]
    means = sorted((part.mean() for part in kept), reverse=True)
    for worst, expected in ((0.0, means[0]), (0.5, np.mean(means[:2])), (1.0, np.mean(means))):
        found = WorstGroup(groups, worst).select(s, 8, 40, None)
        assert found.total / 32 == pytest.approx(expected)
        assert found.weights.sum() == pytest.approx(32)


# ---- estimators ------------------------------------------------------------------------------------------------------


def grouped_data(seed=0, n=400):
    rng = np.random.default_rng(seed)
    groups = np.where(rng.random(n) < 0.2, "small", "large")
    X = rng.normal(size=(n, 3))
    direction = np.where((groups == "small")[:, None], [0.2, 1.0, 0.0], [1.0, 0.2, 0.0])
    return X, (X * direction).sum(axis=1) > 0, groups


def test_the_worst_group_is_served_better_and_the_table_says_so():
    X, y, groups = grouped_data()
    model = AoRRClassifier(0, aggregate="worst-group", random_state=0).fit(X, y, groups=groups)
    table = model.groups_
    assert table["group"].tolist() == ["large", "small"]
    assert table["rows"].sum() == 400
    assert table["loss"].max() < table["loss_before"].max()
    assert model.certificate_ <= 1e-6
    for place, name in enumerate(table["group"]):
        assert table["accuracy"][place] == pytest.approx(model.score(X[groups == name], y[groups == name]))


def test_trimming_is_within_groups():
    X, y, groups = grouped_data()
    wrong = np.flatnonzero(groups == "small")[:8]
    y = y.copy()
    y[wrong] = ~y[wrong]
    model = AoRRClassifier(0.1, aggregate="group-cvar", random_state=0).fit(X, y, groups=groups)
    for name in ("large", "small"):
        assert abs(model.dropped_[groups == name].mean() - 0.1) < 0.02
    np.testing.assert_allclose(
        model.groups_["dropped"], [model.dropped_[groups == g].mean() for g in ("large", "small")]
    )


@pytest.mark.parametrize("aggregate", ["worst-group", "group-cvar"])
def test_m_is_chosen_with_groups_and_dropped_in_each(aggregate):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(800, 3)), rng.integers(0, 3, 800)
    y = X @ [1, 1, 0] > 0
    given = np.where((rng.random(800) < 0.15) & y, False, y)
    model = AoRRClassifier(aggregate=aggregate, random_state=0).fit(X, given, groups=groups)
    assert model.m_ > 0
    assert np.ptp(model.groups_["dropped"]) < 0.02
    assert model.score(X, y) > 0.95


def test_weights_by_rank_fit_through_the_estimators():
    X, y, _ = grouped_data()
    mean = AoRRClassifier(0).fit(X, y)
    same = AoRRClassifier(aggregate=RankWeights("superquantile", alphas=[1.0])).fit(X, y)
    np.testing.assert_allclose(same.coef_, mean.coef_, atol=1e-3)
    number = X @ [1.0, 2.0, 0.0]
    number[:20] += 50
    robust = AoRRRegressor(aggregate=RankWeights("trimmed", m=0.1), random_state=0).fit(X, number)
    np.testing.assert_allclose(robust.coef_, [1.0, 2.0, 0.0], atol=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda X, y: AoRRClassifier(aggregate="worst").fit(X, y), "aggregate must be None"),
        (lambda X, y: AoRRClassifier(aggregate="worst-group").fit(X, y), "needs the group of each row"),
        (lambda X, y: AoRRClassifier(0.1, aggregate=RankWeights([1])).fit(X, y), "leave m out"),
        (lambda X, y: AoRRClassifier(0.1, 0.5, aggregate=RankWeights([1])).fit(X, y), "leave k out"),
        (lambda X, y: RankWeights("median"), "one of 'extremile'"),
        (lambda X, y: RankWeights([1, -1]), ">= 0"),
        (lambda X, y: RankWeights([0, 0]), "not all 0"),
        (lambda X, y: RankWeights([[1]]), r"shape \(n,\)"),
        (lambda X, y: RankWeights(lambda u: 1.0), "one weight per share"),
        (lambda X, y: RankWeights("extremile", tau=1.0), r"tau must be in \(0, 1\)"),
        (lambda X, y: RankWeights("trimmed", m=0.5, k=0.4), "m < k"),
        (lambda X, y: RankWeights("extremile", tau="x"), "tau must be in"),
        (lambda X, y: RankWeights("trimmed", m=1, k=4), "divide counts by"),
        (lambda X, y: AoRRClassifier(0, aggregate="worst-group").fit(X, y, groups=[None, *"ab" * 24, "a"]), "missing"),
        (lambda X, y: AoRRClassifier(0, aggregate="worst-group").fit(X, y, groups=[[1, 2]] * 50), "one value per row"),
        (lambda X, y: AoRRRegressor(aggregate="per-class").fit(X, 1.0 * y), "aggregate must be None"),
        (lambda X, y: RankWeights([1]).mean([1.0, np.nan]), "finite"),
        (lambda X, y: RankWeights([1]).mean([1.0, 2.0], [0, 0]), "not all 0"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    X, y, _ = grouped_data(n=50)
    with pytest.raises((ValueError, TypeError), match=message):
        make(X, y)


def test_parameters_of_a_name_are_checked_by_name():
    with pytest.raises(TypeError, match="'extremile' take tau, got rate"):
        RankWeights("extremile", rate=2.0)
    with pytest.raises(TypeError, match="only named weights take parameters"):
        RankWeights([1, 2], tau=0.5)
