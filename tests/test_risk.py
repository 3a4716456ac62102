"""CVaR, ICVaR and the deviation bounds of the paper's theorem on ICVaRs, against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from rankrange import ranked_range
from rankrange.risk import cvar, icvar, icvar_bounds

samples = st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6)), min_size=1, max_size=40)
levels = st.floats(0.001, 1.0)


def cvar_by_definition(values, alpha, weights=None):
    """inf over lam of lam + E[max(s - lam, 0)] / alpha: convex and piecewise linear, so a sample point attains it."""
    s = np.asarray(values, dtype=float)
    w = np.ones_like(s) if weights is None else np.asarray(weights, dtype=float)
    return min(lam + w @ np.maximum(s - lam, 0) / w.sum() / alpha for lam in s)


@given(samples, levels)
def test_cvar_is_the_infimum_over_lambda(values, alpha):
    # The oracle divides rounding errors of the mean by alpha.
    scale = max(1.0, np.abs(values).max())
    assert cvar(values, alpha) == pytest.approx(cvar_by_definition(values, alpha), abs=1e-13 * scale / alpha)


@given(samples, levels, levels)
def test_theorem_icvars_identity(values, one, other):
    """ICVaR is the difference of two CVaRs, and also inf over lam and sup over lam_hat of its population form."""
    mu, nu = sorted((one, other))
    if mu == nu:
        return
    scale = max(1.0, np.abs(values).max())
    expected = nu * cvar_by_definition(values, nu) - mu * cvar_by_definition(values, mu)
    assert icvar(values, mu, nu) == pytest.approx(expected, abs=1e-12 * scale)
    s = np.asarray(values)
    lower = min(np.maximum(s - lam, 0).mean() + nu * lam for lam in s)
    upper = max(-np.maximum(s - lam, 0).mean() - mu * lam for lam in s)
    assert icvar(values, mu, nu) == pytest.approx(lower + upper, abs=1e-12 * scale)


@given(samples, st.data())
def test_theorem_icvars_identity_with_the_ranked_range(values, data):
    n = len(values)
    m = data.draw(st.integers(0, n - 1))
    k = data.draw(st.integers(m + 1, n))
    psi = sum(sorted(values, reverse=True)[m:k])
    assert n * icvar(values, m / n, k / n) == pytest.approx(psi, abs=1e-10 * max(1.0, np.abs(values).max()))
    assert n * icvar(values, m / n, k / n) == pytest.approx(
        ranked_range(values, m, k, reduction="sum"), abs=1e-10 * max(1.0, np.abs(values).max())
    )


def test_icvar_is_not_touched_by_what_lies_beyond_mu():
    """m/n * n is not always m in floating point; a value of 1e300 would show it."""
    for n in range(2, 200):
        values = np.r_[1e300, np.ones(n - 1)]
        assert icvar(values, 1 / n, 1.0) == pytest.approx((n - 1) / n, rel=1e-14)


def test_icvar_of_values_whose_sum_overflows():
    assert icvar([1.7e308, 1.7e308, 1.0], 0.0, 2 / 3) == pytest.approx(1.7e308 / 3 * 2)
    assert cvar([1.7e308, 1.7e308], 1.0) == pytest.approx(1.7e308)


@given(st.lists(st.tuples(st.floats(-100, 100), st.integers(0, 4)), min_size=1, max_size=20), levels)
def test_sample_weight_is_repetition(pairs, alpha):
    values, weights = map(np.array, zip(*pairs, strict=True))
    if weights.sum() == 0:
        return
    assert cvar(values, alpha, sample_weight=weights) == pytest.approx(cvar(np.repeat(values, weights), alpha))


def test_fractional_weights_follow_the_definition():
    rng = np.random.default_rng(1)
    values, weights = rng.normal(size=30), rng.uniform(size=30)
    for alpha in (0.01, 0.2, 0.77, 1.0):
        expected = cvar_by_definition(values, alpha, weights)
        assert cvar(values, alpha, sample_weight=weights) == pytest.approx(expected, rel=1e-12)


def population_icvar(distribution, mu, nu):
    return integrate.quad(lambda u: distribution.ppf(1 - u), mu, nu)[0]


@pytest.mark.parametrize("method", ["paper", "dkw"])
@pytest.mark.parametrize("distribution", [stats.uniform(), stats.beta(0.5, 2.0), stats.beta(5.0, 1.0)])
@pytest.mark.parametrize(("n", "m", "k"), [(20, 0, 3), (100, 10, 80), (100, 50, 100), (400, 39, 40)])
def test_theorem_icvars_bounds_cover(method, distribution, n, m, k):
    """2,000 samples: the share outside each bound stays below delta (plus three standard errors)."""
    delta, trials = 0.2, 2000
    draws = distribution.rvs((trials, n), random_state=np.random.default_rng(n + k))
    deviation = population_icvar(distribution, m / n, k / n) - ranked_range(draws, m, k, reduction="sum") / n
    lower, upper = icvar_bounds(n, m, k, delta, 0.0, 1.0, method=method)
    allowed = delta + 3 * np.sqrt(delta * (1 - delta) / trials)
    assert np.mean(deviation > upper) <= allowed
    assert np.mean(deviation < -lower) <= allowed


def test_theorem_icvars_bounds_cover_can_fail():
    """The simulation has the power to see a bound that is too small: the mean of coins nearly attains dkw."""
    n, delta, trials = 100, 0.2, 4000
    draws = np.random.default_rng(0).integers(2, size=(trials, n))
    _, upper = icvar_bounds(n, 0, n, delta, 0.0, 1.0, method="dkw")
    deviation = 0.5 - draws.mean(axis=1)
    assert np.mean(deviation > upper) <= delta
    assert np.mean(deviation > upper / 3) > delta


def test_theorem_icvars_bounds_are_the_printed_terms():
    n, m, k, delta, a, b = 50, 10, 40, 0.05, -1.0, 3.0
    second = np.sqrt(np.log(1 / delta) / (2 * n))
    lower, upper = icvar_bounds(n, m, k, delta, a, b)
    assert upper == pytest.approx((b - a) * (np.sqrt(5 * k * np.log(3 / delta) / n**2) + second))
    assert lower == pytest.approx((b - a) * (np.sqrt(5 * m * np.log(3 / delta) / n**2) + second))
    assert icvar_bounds(n, 0.2, 0.8, delta, a, b) == pytest.approx((lower, upper))


@given(st.integers(1, 10**6), st.floats(1e-12, 0.5), st.data())
def test_dkw_is_never_wider_than_the_paper(n, delta, data):
    m = data.draw(st.integers(0, n - 1))
    k = data.draw(st.integers(m + 1, n))
    tight, printed = (icvar_bounds(n, m, k, delta, 0.0, 1.0, method=method) for method in ("dkw", "paper"))
    assert tight[0] <= printed[0]
    assert tight[1] <= printed[1]


@pytest.mark.parametrize("n", [1, 2, 5, 20, 100, 1000])
@pytest.mark.parametrize("delta", [0.001, 0.1, 0.4, 0.5, 0.501, 0.6, 0.75, 0.9, 0.99, 1.0])
def test_dkw_is_no_less_than_the_distance_of_distribution_functions_that_it_stands_for(n, delta):
    """Against the exact laws of Kolmogorov and Smirnov.

    Massart's constant is proved for one side alone up to delta = 1/2; beyond, the bound must hold for both together.
    """
    exact = (stats.ksone if delta <= 0.5 else stats.kstwo).isf(delta, n)
    assert min(icvar_bounds(n, 0, n, delta, 0.0, 1.0, method="dkw")) >= min(1.0, exact)


@given(samples, st.integers(1, 5), st.data())
def test_icvar_is_a_clipped_tail_integral(values, digits, data):
    """The identity under "dkw": a (nu - mu) + integral over [a, b] of clip(P(s > t) - mu, 0, nu - mu) dt."""
    mu, nu = sorted(data.draw(st.tuples(levels, levels)))
    if mu == nu:
        return
    s = np.sort(np.round(values, digits))
    tail = 1.0 - np.arange(1, len(s)) / len(s)  # P(s > t) between neighbours
    expected = s[0] * (nu - mu) + np.clip(tail - mu, 0, nu - mu) @ np.diff(s)
    assert icvar(s, mu, nu) == pytest.approx(expected, abs=1e-12 * max(1.0, np.abs(s).max()))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cvar([1.0], 0.0), ValueError, "0 < alpha <= 1"),
        (lambda: cvar([1.0], 1.5), ValueError, "alpha=1.5"),
        (lambda: cvar([1.0], "0.1"), TypeError, "str"),
        (lambda: cvar([], 0.5), ValueError, "n >= 1"),
        (lambda: cvar([[1.0]], 0.5), ValueError, r"shape \(1, 1\)"),
        (lambda: cvar([1.0, np.nan], 0.5), ValueError, "finite"),
        (lambda: icvar([1.0], 0.5, 0.5), ValueError, "mu < nu"),
        (lambda: icvar([1.0, 2.0, 3.0], 1, 2), ValueError, "divide a count by n"),
        (lambda: icvar([1.0], 0, 1, sample_weight=[1.0, 2.0]), ValueError, r"shape \(1,\), .* got shape \(2,\)"),
        (lambda: icvar([1.0], 0, 1, sample_weight=[-1.0]), ValueError, "not be negative, got -1.0"),
        (lambda: icvar([1.0], 0, 1, sample_weight=[0.0]), ValueError, "not all be 0"),
        (lambda: icvar_bounds(10, 5, 3, 0.1, 0, 1), ValueError, "m < k"),
        (lambda: icvar_bounds(10.0, 0, 1, 0.1, 0, 1), TypeError, "n must be an int"),
        (lambda: icvar_bounds(10, 0, 1, 0.0, 0, 1), ValueError, "delta=0.0"),
        (lambda: icvar_bounds(10, 0, 1, 0.1, 1, 1), ValueError, "a < b"),
        (lambda: icvar_bounds(10, 0, 1, 0.1, 0, np.inf), ValueError, "bound the loss"),
        (lambda: icvar_bounds(10, 0, 1, 0.1, 0, 1, method="x"), ValueError, "'x'"),
    ],
)
def test_bad_input_gets_rule_value_and_remedy(call, error, message):
    with pytest.raises(error, match=message):
        call()
