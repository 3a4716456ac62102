"""Conditional value at risk, interval CVaR and their confidence bounds (section 4.2 of the paper).

CVaR_alpha is the mean of the largest share alpha of a distribution. The mean of the k largest of n values is the
empirical CVaR at level k/n. The sum of the ranks m+1 to k, divided by n, is the interval CVaR, nu CVaR_nu - mu CVaR_mu
with mu = m/n and nu = k/n. It is the contribution to the mean of the values between two quantiles. Levels are shares in
[0, 1], never counts.
"""

from __future__ import annotations

import math
import numbers

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .core.cuts import select
from .core.ranges import Rank, RankedRange
from .core.select import as_floats, as_sample_weight, check_finite

__all__ = ["cvar", "icvar", "icvar_bounds"]


def cvar(values: ArrayLike, alpha: float, *, sample_weight: ArrayLike | None = None) -> float:
    """Empirical conditional value at risk: the mean of the largest n * alpha values.

    It equals the minimum over lam of lam + mean(max(values - lam, 0)) / alpha. If n * alpha is not a whole number, the
    last value counts in part.

    Parameters
    ----------
    values : array_like of shape (n,)
        A sample, for example of losses.
    alpha : float
        The share of the largest values, in (0, 1].
    sample_weight : array_like of shape (n,), optional
        Weights of the values; weight 2 equals the value twice.

    Returns
    -------
    float
        The mean of the largest share alpha of the sample.

    Examples
    --------
    >>> from rankrange import risk
    >>> risk.cvar([1.0, 2.0, 3.0, 6.0], 0.5)
    4.5
    """
    alpha = _check_level("alpha", alpha)
    if alpha == 0.0:
        raise ValueError(f"need 0 < alpha <= 1, got alpha={alpha}; the limit for small alpha is the largest value")
    return icvar(values, 0.0, alpha, sample_weight=sample_weight) / alpha


def icvar(values: ArrayLike, mu: float, nu: float, *, sample_weight: ArrayLike | None = None) -> float:
    """Empirical interval CVaR: the contribution to the mean of the values between two quantiles.

    It is nu CVaR_nu - mu CVaR_mu, so n * icvar(values, m/n, k/n) is the sum of the values ranked m+1 to k. The largest
    share mu of the values has no influence, however large they are.

    Parameters
    ----------
    values : array_like of shape (n,)
        A sample, for example of losses.
    mu, nu : float
        Shares of the largest values, 0 <= mu < nu <= 1. The values up to mu are left out, those from mu to nu are used.
    sample_weight : array_like of shape (n,), optional
        Weights of the values; weight 2 equals the value twice.

    Returns
    -------
    float
        The interval CVaR.

    Examples
    --------
    >>> from rankrange import risk
    >>> risk.icvar([1.0, 2.0, 3.0, 6.0], 0.25, 1.0)  # (1 + 2 + 3) / 4
    1.5
    """
    mu, nu = _check_level("mu", mu), _check_level("nu", nu)
    if not mu < nu:
        raise ValueError(f"need 0 <= mu < nu <= 1, got mu={mu}, nu={nu}; lower mu or raise nu")
    values = _check_vector(values)
    given = as_sample_weight(sample_weight, values, -1)
    weights = np.ones_like(values) if given is None else given[0]
    total = float(weights.sum())
    if total == 0.0:
        raise ValueError(f"sample_weight must not all be 0, got {len(weights)} zeros; a weight counts repetitions")
    with np.errstate(over="ignore"):  # the sum of large values may overflow; the mean, divided first, does not
        kept = select(values, _mass(mu, total), _mass(nu, total), weights).weights
    return float(np.dot(kept / total, values))


def icvar_bounds(
    n: int, m: Rank, k: Rank, delta: float, a: float, b: float, *, method: str = "paper"
) -> tuple[float, float]:
    """Confidence bounds for the interval CVaR of a distribution, from the empirical one of n independent values.

    Parameters
    ----------
    n : int
        The number of values.
    m, k : int or float
        The ranks to keep, m+1 to k, as counts or fractions; the empirical value is `icvar(values, m/n, k/n)`.
    delta : float
        The largest probability that a bound does not hold, in (0, 1].
    a, b : float
        All values lie in [a, b].
    method : {"paper", "dkw"}, default="paper"
        "paper" is the theorem as printed; "dkw" is never wider for delta <= 1/2.

    Returns
    -------
    lower, upper : float
        The true value is above empirical - lower with probability at least 1 - delta, and below empirical + upper with
        probability at least 1 - delta; both hold with probability at least 1 - 2 delta.

    Notes
    -----
    The bound "paper" is upper = (b - a) [sqrt(5 k ln(3/delta))/n + sqrt(ln(1/delta)/(2n))]; lower has m instead of k.
    The printed proof combines two events of probability 1 - delta, which proves only 1 - 2 delta. The bound still holds
    for delta <= 1/2, because its second term alone is a valid bound.

    The bound "dkw" is this second term, or (b - a) (k - m) / n if that is smaller. The interval CVaR of s equals
    a (nu - mu) + integral over [a, b] of clip(P(s > t) - mu, 0, nu - mu) dt. It therefore changes by at most b - a
    times the largest difference between two distribution functions, which the inequality of Dvoretzky, Kiefer,
    Wolfowitz and Massart bounds. The distribution need not be continuous. For delta above 1/2 the term has ln(2/delta)
    instead of ln(1/delta).

    Examples
    --------
    >>> from rankrange import risk
    >>> lower, upper = risk.icvar_bounds(1000, 100, 900, 0.05, 0.0, 1.0)
    >>> round(lower, 3), round(upper, 3)
    (0.084, 0.174)
    """
    if isinstance(n, bool) or not isinstance(n, numbers.Integral):
        raise TypeError(f"n must be an int, the number of values, got {n!r} of type {type(n).__name__}")
    mass_m, mass_k = RankedRange(m, k).masses(int(n), whole=False)
    width = _check_width(a, b)
    if not 0.0 < delta <= 1.0:
        raise ValueError(f"delta must be in (0, 1], the chance that a bound fails, got delta={delta}; take 0.05")
    if method == "paper":
        common = math.sqrt(math.log(1.0 / delta) / (2 * n))
        lower, upper = (math.sqrt(5.0 * mass * math.log(3.0 / delta)) / n + common for mass in (mass_m, mass_k))
    elif method == "dkw":
        # Massart's one-sided constant needs delta <= 1/2; a larger delta uses the two-sided bound.
        distance = math.sqrt(math.log((1.0 if delta <= 0.5 else 2.0) / delta) / (2 * n))
        lower = upper = min(distance, (mass_k - mass_m) / n)
    else:
        raise ValueError(f"method must be 'paper' or 'dkw', got {method!r}; choose one of the two")
    return width * lower, width * upper


def _mass(level: float, total: float) -> float:
    """level * total, rounded to an integer if it differs from one only by rounding errors, as m/n * n does."""
    mass = level * total
    return float(round(mass)) if abs(mass - round(mass)) <= 2.0 * np.finfo(float).eps * mass else mass


def _check_level(name: str, level: float) -> float:
    if isinstance(level, bool) or not isinstance(level, numbers.Real):
        raise TypeError(f"{name} must be a number in [0, 1], got {level!r} of type {type(level).__name__}")
    if not 0.0 <= float(level) <= 1.0:  # also catches NaN
        raise ValueError(f"{name} must be in [0, 1], a share of the values, got {name}={level}; divide a count by n")
    return float(level)


def _check_width(a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and a < b):
        raise ValueError(f"need finite a < b, the range of the values, got a={a}, b={b}; bound the loss first")
    return float(b) - float(a)


def _check_vector(values: ArrayLike) -> NDArray[np.float64]:
    array = as_floats(values).astype(np.float64, copy=False)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"values must have shape (n,) with n >= 1, got shape {array.shape}; pass one flat sample")
    check_finite(array[None], "values")
    return array
