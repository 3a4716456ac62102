"""The paper's algorithms as printed: their subgradients, the descent of DCA, and the library's optimum."""

import numpy as np
import pytest

from definitions import tkml_by_definition
from rankrange import AoRRClassifier, TKMLClassifier, algorithms


def _table(seed: int, n: int = 60, d: int = 3, wrong: int = 6):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ rng.normal(size=d) + 0.3 * rng.normal(size=n) > 0, 1, -1)
    y[:wrong] *= -1
    return X, y


def _labels(seed: int, n: int = 50, d: int = 4, labels: int = 5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, labels)) + 0.2 * rng.normal(size=(n, labels))
    return X, (scores >= np.sort(scores, axis=1)[:, -2:-1]).astype(int)  # two labels in each row


def _largest(s, count: int) -> float:
    return float(sum(sorted(s, reverse=True)[:count]))


@pytest.mark.parametrize("seed", range(3))
def test_dca_with_exact_inner_solves_never_increases_the_objective(seed):
    cvxpy = pytest.importorskip("cvxpy")
    X, y = _table(seed, n=30)
    m, k, C = 3, 20, 10.0

    def exact(theta, theta_hat):
        w = cvxpy.Variable(X.shape[1])
        losses = cvxpy.pos(1.0 - cvxpy.multiply(y, X @ w))
        rest = cvxpy.sum_largest(losses, k) - theta_hat[0] @ w + (k - m) * cvxpy.sum_squares(w) / (2 * C)
        cvxpy.Problem(cvxpy.Minimize(rest)).solve(solver=cvxpy.CLARABEL)
        return w.value[None]

    start = np.random.default_rng(seed).normal(size=(1, X.shape[1]))
    values = algorithms.dca(X, y, m, k, loss="hinge", C=C, outer_steps=4, inner=exact, theta=start).objective
    assert (np.diff(values) <= 1e-6 * values[:-1]).all()
    assert values[-1] < values[0]


@pytest.mark.parametrize("batch_size", [None, 8])
def test_dca_reaches_the_optimum_of_a_convex_range(batch_size):
    X, y = _table(0)
    k, C = 40, 10.0
    best = AoRRClassifier(m=0, k=k, C=C / k, fit_intercept=False, tol=1e-9).fit(X, y)
    run = algorithms.dca(X, y, 0, k, C=C, outer_steps=3, step=0.05, inner_steps=4000, batch_size=batch_size)
    losses = np.logaddexp(0.0, -y * (X @ best.coef_[0]))
    optimum = _largest(losses, k) / k + (best.coef_**2).sum() / (2 * C)
    assert optimum <= run.objective[-1] + 1e-9
    assert run.objective[-1] <= optimum * (1.001 if batch_size is None else 1.05)
    np.testing.assert_allclose(run.lam, sorted(losses, reverse=True)[k - 1], rtol=0.05 if batch_size is None else 0.5)


def test_dca_without_wrong_labels_in_its_range_finds_the_library_optimum():
    X, y = _table(3)
    m, k, C = 6, 60, 10.0
    best = AoRRClassifier(m=m, k=k, C=C / (k - m), fit_intercept=False, random_state=0).fit(X, y)
    losses = np.logaddexp(0.0, -y * (X @ best.coef_[0]))
    optimum = (_largest(losses, k) - _largest(losses, m)) / (k - m) + (best.coef_**2).sum() / (2 * C)
    mean = algorithms.dca(X, y, 0, k, C=C, outer_steps=1, step=0.1)
    run = algorithms.dca(X, y, m, k, C=C, outer_steps=10, step=0.1, theta=mean.theta)
    assert optimum - 1e-9 <= run.objective[-1] <= 1.02 * optimum


def test_thresholds_from_clean_rows_drop_about_the_wrong_labels():
    rng = np.random.default_rng(5)
    centres = 4.0 * np.eye(3)
    truth = rng.integers(3, size=400)
    X = np.column_stack([centres[truth] + rng.normal(size=(400, 3)), np.ones(400)])
    given_labels = truth.copy()
    given_labels[:60] = (truth[:60] + 1) % 3
    run = algorithms.dca_without_k_and_m(
        X[:300], given_labels[:300], X[300:], truth[300:], outer_steps=8, inner_steps=300, step=0.1
    )
    assert run.lam <= run.lam_hat
    losses = algorithms._softmax(X[:300] @ run.theta.T, given_labels[:300])[0]
    assert 45 <= (losses > run.lam_hat).sum() <= 90
    assert ((X[:300] @ run.theta.T).argmax(axis=1) == truth[:300]).mean() > 0.95


def test_without_thresholds_algorithm_2_finds_the_ordinary_fit():
    X, y = _table(2)
    run = algorithms.dca_without_k_and_m(
        *(X, y, X, y), loss="logistic", upper=lambda s: np.inf, lower=lambda s: -1.0, outer_steps=1, inner_steps=3000
    )
    ordinary = AoRRClassifier(m=0, k=1.0, C=1e4, fit_intercept=False, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(run.theta, ordinary.coef_, rtol=1e-3)


@pytest.mark.parametrize("m", [0, 5])
def test_the_library_ends_at_most_two_percent_above_the_algorithms_for_labels(m):
    X, Y = _labels(3)
    n, C, Z = len(X), 10.0, np.column_stack([X, np.ones(len(X))])  # the intercept is penalised too
    library = TKMLClassifier(2, m=m, k=1.0, C=C / (n - m), loss="paper", validation=None, random_state=0).fit(X, Y)
    ends = [algorithms.tkml_aorr(Z, Y, 2, m, n, C=C, steps=2000, step=0.05)]
    if m == 0:
        ends.append(algorithms.tkml(Z, Y, 2, C=C, outer_steps=10, inner_steps=300))
    for run in ends:
        assert library.objective_ / C <= run.objective[-1] * 1.02  # either may end at another local minimum


@pytest.mark.parametrize("m", [0, 5])
def test_the_algorithms_for_labels_lower_the_objective_of_the_definition(m):
    X, Y = _labels(1)
    k = 50 if m == 0 else 40
    run = (
        algorithms.tkml_aorr(X, Y, 2, m, k, steps=600, step=0.05)
        if m
        else algorithms.tkml(X, Y, 2, outer_steps=5, inner_steps=300)
    )
    rows = zip(Y == 1, X @ run.theta.T, strict=True)
    losses = sorted((tkml_by_definition(y, z, 2, two_sided=False) for y, z in rows), reverse=True)
    assert run.objective[-1] == pytest.approx(np.mean(losses[m:k]))
    assert run.objective[-1] < 0.8 * run.objective[0]
    assert m == 0 or (run.lam_hat, run.lam) == pytest.approx((losses[m - 1], losses[k - 1]))


def test_without_dropped_rows_the_upper_threshold_is_infinite():
    X, Y = _labels(2)
    assert algorithms.tkml_aorr(X, Y, 1, 0, 50, steps=3).lam_hat == np.inf


def test_an_unknown_loss_is_refused():
    with pytest.raises(ValueError, match=r"loss must be one of .*logistic"):
        algorithms.dca(np.eye(2), np.array([1, -1]), 0, 2, loss="square")
