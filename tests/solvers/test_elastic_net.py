"""Elastic nets, also of the ranks m+1 to k: other solvers, optimality conditions, all sets of dropped rows."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.datasets import make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet as SkElasticNet
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from rankrange import AoRRClassifier, AoRRRegressor
from rankrange.core.losses import Huber, Logistic, Softmax, Squared
from rankrange.core.objective import Design, Objective
from rankrange.solvers import solve
from rankrange.solvers.convex import minimise


def drawn(seed, n=60, d=30, loss="squared"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.3, 3, size=d) + rng.normal(size=d)
    w = np.where(rng.uniform(size=d) < 0.2, rng.normal(size=d), 0)
    t = X @ w + rng.normal(size=n)
    y = {"squared": t, "huber": t, "logistic": np.where(t > np.median(t), 1.0, -1.0)}.get(loss)
    return X, np.digitize(t, np.quantile(t, [0.3, 0.6])) if y is None else y


def objective_of(X, y, loss, l1_ratio, C, m=0, k=None):
    """The objective with scikit-learn's C; its value times its own C is the documented objective."""
    made = {"squared": Squared, "huber": Huber, "logistic": Logistic, "softmax": Softmax}[loss]()
    k, outputs = k or len(y), 3 if loss == "softmax" else 1
    return Objective(Design(X, True), y, made, C * (k - m), outputs, l1_ratio=l1_ratio, m=m, k=k)


def least_over_dropped_rows(problem, m):
    """The least value that the fits to all sets of n - m rows prove."""
    least, n = np.inf, problem.design.n
    for rows in itertools.combinations(range(n), m):
        kept = problem.rows(np.setdiff1d(np.arange(n), rows), 0, problem.k - m)
        fit = minimise(kept.cutting(np.empty(0)), tol=1e-3)
        least = min(least, fit.value * (1 - fit.gap))
    return least


LOSSES = ["squared", "huber", "logistic", "softmax"]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("l1_ratio", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(60, 30), (30, 120)])
def test_the_optimality_conditions_hold(loss, l1_ratio, shape):
    for seed in range(3):
        X, y = drawn(seed, *shape, loss)
        h = np.random.default_rng(seed).uniform(0, 0.2, size=len(y)) * (np.arange(len(y)) % 5 > 0)
        problem = replace(objective_of(X, y, loss, l1_ratio, 1.0), sample_weight=h, C=h.sum())
        W = minimise(problem.average(), tol=1e-9).W
        coef, Z = W[:, :-1], problem.design.scores(W)
        slopes = problem.losses_and_slopes(Z)[1].T * h[:, None]
        gradient = (X.T @ slopes).T + (1 - l1_ratio) * coef
        used = coef != 0
        np.testing.assert_allclose(gradient[used], -l1_ratio * np.sign(coef[used]), atol=1e-4)
        assert (np.abs(gradient[~used]) <= l1_ratio + 1e-4).all()
        np.testing.assert_allclose(slopes.sum(axis=0), 0, atol=1e-5)


@pytest.mark.parametrize("C", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("settings", [{"m": 0}, {"m": 0.1}, {"m": 0.1, "k": 0.8}])
@pytest.mark.parametrize("target", ["classes", "three classes", "separable", "numbers"])
def test_a_weak_l1_penalty_is_certified(C, settings, target):
    """The last steps lower the objective by less than its rounding error. Separable rows need losses of about 1 / C."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 8))
    y = {"classes": rng.integers(0, 2, 60), "three classes": rng.integers(0, 3, 60), "separable": X[:, 0] > 0}
    made = AoRRRegressor if target == "numbers" else AoRRClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class may be lost
        warnings.simplefilter("error", ConvergenceWarning)
        model = made(**settings, C=C, l1_ratio=1.0, n_starts=1, random_state=0).fit(X, y.get(target, X[:, 0] ** 2))
    assert model.converged_
    assert model.certificate_ <= 1e-6


@pytest.mark.parametrize("l1_ratio", [0.2, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_m_0_is_the_elastic_net_of_scikit_learn(l1_ratio, fit_intercept):
    X, y = drawn(1, 50, 80)
    C = 0.03
    model = AoRRRegressor(0, l1_ratio=l1_ratio, C=C, fit_intercept=fit_intercept, tol=1e-9).fit(X, y)
    theirs = SkElasticNet(
        alpha=1 / (2 * C * len(y)), l1_ratio=l1_ratio, fit_intercept=fit_intercept, tol=1e-12, max_iter=100_000
    ).fit(X, y)
    # Their objective is ours divided by 2 C n.
    penalty = l1_ratio * np.abs(theirs.coef_).sum() + (1 - l1_ratio) / 2 * (theirs.coef_**2).sum()
    value = C * ((y - theirs.predict(X)) ** 2).sum() + penalty
    assert model.objective_ == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
def test_m_0_is_the_logistic_regression_of_scikit_learn(classes, l1_ratio):
    X, y = drawn(2, 80, 10, "logistic" if classes == 2 else "softmax")
    model = AoRRClassifier(0, l1_ratio=l1_ratio, C=0.5, tol=1e-9).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # older versions want penalty="elasticnet" beside it
        theirs = LogisticRegression(solver="saga", l1_ratio=l1_ratio, C=0.5, tol=1e-9, max_iter=50_000)
        if "penalty" in theirs.get_params() and theirs.penalty == "l2":
            theirs.set_params(penalty="elasticnet")
        theirs.fit(X, y)
    p = theirs.predict_proba(X)[np.arange(len(y)), np.searchsorted(theirs.classes_, y)]
    penalty = l1_ratio * np.abs(theirs.coef_).sum() + (1 - l1_ratio) / 2 * (theirs.coef_**2).sum()
    assert model.objective_ == pytest.approx(-0.5 * np.log(p).sum() + penalty, rel=1e-8)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("seed", "n", "d", "m", "k"), [(20, 11, 5, 2, None), (21, 11, 5, 2, None), (3, 9, 4, 1, 6)])
def test_in_a_small_table_no_other_rows_are_better_to_drop(loss, seed, n, d, m, k):
    """All sets of m rows are dropped in turn: the least of the fits is the global minimum."""
    problem = objective_of(*drawn(seed, n, d, loss), loss, 0.7, 1.0, m=m, k=k)
    assert solve(problem).value <= least_over_dropped_rows(problem, m) * (1 + 2e-3)


def estimator(loss, *args, **settings):
    if loss in ("logistic", "softmax"):
        return AoRRClassifier(*args, **settings)
    return AoRRRegressor(*args, loss=loss, **settings)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("m", "k"), [(0, 1.0), (0.1, 1.0), (0.1, 0.7)])
def test_sparse_rows_give_the_same_model(loss, m, k):
    X, y = drawn(14, 30, 40, loss)
    X = np.where(np.abs(X) > 1.5, X, 0.0)
    kinds = (X, sp.csr_matrix(X), sp.csc_array(X))
    fits = [estimator(loss, m, k, l1_ratio=0.8, C=0.1, n_starts=0, random_state=0).fit(rows, y) for rows in kinds]
    for fit in fits:
        assert fit.certificate_ <= 1e-6
        assert fit.objective_ == pytest.approx(fits[0].objective_, rel=1e-6 if m == 0 else 2e-2)
        if m == 0:
            np.testing.assert_allclose(fit.predict(X), fits[0].predict(X), atol=1e-2)
        np.testing.assert_array_equal(fit.predict(kinds[1]), fit.predict(kinds[2]))


@pytest.mark.filterwarnings("ignore:a coefficient needs kept rows")
def test_sparse_rows_of_many_columns_stay_sparse():
    rng = np.random.default_rng(0)
    X = sp.random(200, 100_000, density=2e-4, random_state=0, format="csr")  # 160 MB if it were dense
    y = X[:, :1000] @ np.full(1000, 5.0) + 0.1 * rng.normal(size=200)
    model = AoRRRegressor(0.1, l1_ratio=0.8, C=1.0, n_starts=0, random_state=0).fit(X, y)
    assert model.certificate_ <= 1e-6


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
def test_duplicated_and_constant_columns_are_no_trouble(loss, l1_ratio):
    X, y = drawn(6, 50, 12, loss)
    wide = np.column_stack([X, X, np.ones((50, 2)), np.zeros((50, 2))])
    fits = [estimator(loss, 0, l1_ratio=l1_ratio, C=0.1, random_state=0).fit(rows, y) for rows in (X, wide)]
    assert (np.atleast_2d(fits[1].coef_)[:, 24:] == 0).all()
    if l1_ratio == 1.0:  # two equal columns share a coefficient at no cost
        assert fits[1].objective_ == pytest.approx(fits[0].objective_, rel=3e-6)
    else:  # at a gain
        assert fits[1].objective_ <= fits[0].objective_ * (1 + 1e-6)
    trimmed = estimator(loss, 5, l1_ratio=l1_ratio, C=0.1, n_starts=1, random_state=0).fit(wide, y)
    assert (np.atleast_2d(trimmed.coef_)[:, 24:] == 0).all()
    assert trimmed.converged_


@pytest.mark.parametrize("loss", LOSSES)
def test_all_coefficients_may_be_zero(loss):
    """Of a constant model the intercept is known: a mean, a median, log odds, or an M-estimate of location."""
    X, y = drawn(7, 41, 25, loss)
    model = estimator(loss, 0, l1_ratio=0.5, C=1e-6, tol=1e-9).fit(X, y)
    assert not np.any(model.coef_)
    assert model.converged_
    if loss in ("logistic", "softmax"):
        share = np.bincount(np.unique(y, return_inverse=True)[1]) / len(y)
        np.testing.assert_allclose(model.predict_proba(X[:1])[0], share, atol=1e-5)
    else:
        r = y - model.intercept_
        assert abs((r if loss == "squared" else np.clip(r, -1, 1)).sum()) <= 1e-5
    dropped = estimator(loss, 4, l1_ratio=0.5, C=1e-6, n_starts=1, random_state=0).fit(X, y)
    assert not np.any(dropped.coef_)
    assert dropped.converged_


def test_constant_columns_only_and_constant_targets():
    X, y = np.ones((20, 3)), np.arange(20.0)
    model = AoRRRegressor(2, l1_ratio=0.5).fit(X, y)
    assert not model.coef_.any()
    assert model.converged_
    flat = AoRRRegressor(2, l1_ratio=0.5).fit(np.arange(20.0)[:, None], np.ones(20))
    assert flat.objective_ == pytest.approx(0, abs=1e-12)
    assert flat.intercept_ == pytest.approx(1)


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.filterwarnings("ignore:a coefficient needs kept rows")
@pytest.mark.parametrize("m", [0.5, 0.9, 19])
def test_nearly_all_rows_may_be_dropped(loss, m):
    X, y = drawn(11, 20, 30)
    model = AoRRRegressor(m, loss=loss, l1_ratio=0.5, C=0.1, n_starts=2, random_state=0).fit(X, y)
    assert np.isfinite(model.objective_)
    assert model.dropped_.sum() == round(m * 20 if m < 1 else m)
    if m == 19:  # one row is left, and the intercept alone fits it
        assert not model.coef_.any()
        assert model.objective_ == pytest.approx(0, abs=1e-6)


def test_one_class_may_be_all_that_is_kept_unless_classes_lose_alike():
    X, y = drawn(12, 30, 10, "logistic")
    y[3:] = 1.0
    y[:3] = -1.0
    gone = AoRRClassifier(3, l1_ratio=1.0, C=0.1, n_starts=1, random_state=0)
    with pytest.warns(UserWarning, match="class"):
        gone.fit(X, y)
    assert not gone.coef_.any()  # a constant is enough, and the warning names the class
    alike = AoRRClassifier(0.34, aggregate="per-class", l1_ratio=1.0, C=0.1, n_starts=1, random_state=0).fit(X, y)
    assert alike.dropped_[:3].sum() <= 1  # a third of each class; rows that tie share what is dropped
    assert alike.dropped_[3:].sum() <= 9


def test_classes_that_lose_alike_are_at_a_minimum_of_their_kept_rows():
    X, y = drawn(13, 40, 8, "softmax")
    model = AoRRClassifier(0.2, aggregate="per-class", l1_ratio=0.6, C=0.5, n_starts=1, random_state=0).fit(X, y)
    kept = ~model.dropped_
    share = np.bincount(y[~kept]) / np.bincount(y)
    np.testing.assert_allclose(share, 0.2, atol=0.06)  # whole rows
    alone = AoRRClassifier(0, l1_ratio=0.6, C=0.5, tol=1e-9).fit(X[kept], y[kept])
    assert model.objective_ == pytest.approx(alone.objective_, rel=1e-6)
    assert model.certificate_ <= 1e-6


def test_few_coefficients_can_be_held_sparsely():
    X, y = drawn(9, 50, 40)
    model = AoRRRegressor(5, l1_ratio=1.0, C=0.02).fit(X, y)
    predicted, coef = model.predict(X), model.coef_
    assert sp.issparse(model.sparse_coef_)
    assert model.sparse_coef_.nnz == np.count_nonzero(coef)
    np.testing.assert_array_equal(model.sparsify().predict(X), predicted)
    np.testing.assert_array_equal(model.densify().coef_, coef)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"l1_ratio": 1.5}, r"'l1_ratio' parameter of AoRRRegressor must be a float in the range \[0"),
        ({"step": "reweight", "l1_ratio": 0.5}, "needs l1_ratio=0, got l1_ratio=0.5"),
    ],
)
def test_what_an_l1_penalty_does_not_support_is_an_error(settings, message):
    X, y = drawn(0)
    with pytest.raises(ValueError, match=message):
        AoRRRegressor(**{"m": 0.1, **settings}).fit(X, y)


def test_piecewise_linear_losses_have_no_l1_penalty():
    X, y = drawn(0, loss="logistic")
    with pytest.raises(ValueError, match="use one of 'squared', 'huber'"):
        AoRRRegressor(0.1, loss="absolute", l1_ratio=0.5).fit(X, y)
    with pytest.raises(ValueError, match="use one of 'logistic'"):
        AoRRClassifier(0.1, loss="hinge", l1_ratio=0.5).fit(X, y)


def test_too_few_rounds_are_reported():
    X, y = drawn(0, 100, 400, "logistic")
    with pytest.warns(ConvergenceWarning, match="did not reach tol"):
        AoRRClassifier(0, l1_ratio=0.9, C=10.0, max_iter=1, tol=1e-12).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [AoRRClassifier(0.1, l1_ratio=0.5, n_starts=2), AoRRRegressor(0.1, l1_ratio=0.5, n_starts=2)]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_accepts_the_estimators_with_an_l1_penalty(model):
    check_estimator(model)


# ---- of the ranks m+1 to k ------------------------------------------------------------------------------------------


def least_by_slsqp(problem):
    """Minimise over (positive part, negative part, intercepts, level, excesses): smooth with smooth constraints."""
    n, d, r = problem.design.n, problem.design.d, problem.n_outputs
    K, C, ratio, X = problem.k, problem.C_of_sum, problem.l1_ratio, problem.design.X

    def split(v):
        up, down, intercept, rest = np.split(v, [r * d, 2 * r * d, 2 * r * d + r])
        return (up - down).reshape(r, d), intercept, rest[0], rest[1:]

    def value(v):
        coef, _, level, excess = split(v)
        ridge = (1 - ratio) / 2 * (coef**2).sum()
        return C * (K * level + excess.sum()) + ridge + ratio * v[: 2 * r * d].sum()

    def room(v):
        coef, intercept, level, excess = split(v)
        return excess + level - problem.losses(coef @ X.T + intercept[:, None])

    start = np.concatenate([np.full(2 * r * d, 0.1), np.zeros(r), [1.0], np.full(n, 10.0)])
    bounds = [(0, None)] * (2 * r * d) + [(None, None)] * (r + 1) + [(0, None)] * n
    limits = [{"type": "ineq", "fun": room}]
    return minimize(value, start, bounds=bounds, constraints=limits, options={"maxiter": 500, "ftol": 1e-12}).fun


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("K", [3, 12])
def test_the_largest_losses_have_the_least_value_of_another_solver(loss, K):
    problem = objective_of(*drawn(K, 16, 3, loss), loss, 0.5, 0.6, k=K)
    found = solve(problem)
    assert found.certificate <= 1e-6
    least = least_by_slsqp(problem) / problem.C
    assert found.value == pytest.approx(least, rel=2e-6)
    assert found.value * (1 - found.certificate) <= least * (1 + 1e-9)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_the_objective_is_that_of_the_ranks_kept_and_certified_for_the_rows_cut(loss):
    X, y = drawn(5, 50, 80)
    y[:5] += 40
    m, k, C = 5, 30, 0.1
    model = AoRRRegressor(m, k, loss=loss, l1_ratio=0.6, C=C, n_starts=2, random_state=0).fit(X, y)
    r = y - model.predict(X)
    of_loss = {"squared": r**2, "huber": np.where(np.abs(r) <= 1, r**2 / 2, np.abs(r) - 0.5)}
    kept = sorted(of_loss[loss], reverse=True)[m:k]
    penalty = 0.6 * np.abs(model.coef_).sum() + 0.2 * (model.coef_**2).sum()
    assert model.objective_ == pytest.approx(C * sum(kept) + penalty)
    assert model.certificate_ <= 1e-6
    assert model.dropped_[:5].all()
    assert model.lam_ == pytest.approx(kept[-1])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("stratify", [False, True])
def test_a_vanishing_l1_penalty_is_the_l2_penalty(classes, stratify):
    X, y = drawn(6, 60, 5, "logistic" if classes == 2 else "softmax")
    settings = {"C": 0.5, "aggregate": "per-class" if stratify else None}
    fits = [AoRRClassifier(0, 0.6, l1_ratio=ratio, **settings).fit(X, y) for ratio in (0.0, 1e-7)]
    assert fits[1].objective_ == pytest.approx(fits[0].objective_, rel=1e-5)
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, atol=1e-2)


@pytest.mark.parametrize("seed", [0, 1])
def test_fewer_ranks_never_cost_more(seed):
    """The losses of ranks m+1 to k are some of those of ranks m+1 to n: the search must not end above the latter."""
    X, y = make_regression(n_samples=40, n_features=60, n_informative=6, noise=5, random_state=seed)
    y[:4] += 1000
    settings = {"l1_ratio": 1.0, "C": 0.01, "random_state": 0}
    ends = [AoRRRegressor(0.15, k, **settings).fit(X, y).objective_ for k in (1.0, 0.8)]
    assert ends[1] <= ends[0]


def test_all_ranks_are_no_range():
    X, y = drawn(7, 40, 20)
    settings = {"l1_ratio": 0.5, "C": 0.1, "random_state": 0}
    ends = [AoRRRegressor(0, k, **settings).fit(X, y).objective_ for k in (40, 39, 0.5)]
    assert ends[0] == pytest.approx(AoRRRegressor(0, **settings).fit(X, y).objective_, rel=1e-9)
    assert ends[0] >= ends[1] >= ends[2]  # fewer losses cost less
