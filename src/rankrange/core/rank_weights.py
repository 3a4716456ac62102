"""Weights by rank: spectral risks, extremiles, trimmed and winsorised means, as functions of the rank share.

The rank share of a value is its rank divided by n. All these means are defined by W(u), the total weight of the share u
of the values that are largest: W(0) = 0, W(1) = 1, and W is nondecreasing. A row that covers the rank shares from a to
b gets the weight W(b) - W(a). So a sample weight of 2 equals two copies of the row, and tied values share the weight of
their ranks. W is stored as a `Spectrum`, linear between knots. If W is concave, larger losses never have smaller
weights, and the weighted mean is a convex function of the losses s: the maximum of the inner product q . s over all
weights q that the spectrum majorises. Any other W is a difference of two concave functions.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .arrays import Array

# Cells in which a function of the rank share is integrated, and the Gauss-Legendre points in each.
_CELLS, _POINTS = 4096, 4
# Tolerance for rounding errors in a rank share such as m / n, and in the test that densities do not increase.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A cumulative weight by rank share, linear between knots.

    The knots (J + 1,) are rank shares, increasing from 0 to 1; `cumulative` (J + 1,) is the total weight of the largest
    values up to each of them, from 0 to 1.
    """

    knots: Array
    cumulative: Array

    @cached_property
    def density(self) -> Array:
        """The slopes (J,) of the cumulative weight between the knots."""
        return np.diff(self.cumulative) / np.diff(self.knots)

    @property
    def convex(self) -> bool:
        """Whether larger losses never have smaller weights."""
        return bool((np.diff(self.density) <= _ROUNDING * max(1.0, float(self.density.max()))).all())

    def weights(self, values: Array, mass: Array | None = None) -> Array:
        """Weights of the values (n,) that sum to 1; ties share in proportion to their mass."""
        order, cell, p = self.cells(values, mass)
        first = np.flatnonzero(np.append(True, np.diff(values[order]) != 0))
        group = np.cumsum(np.append(False, np.diff(values[order]) != 0))
        total = np.add.reduceat(p, first)
        share = np.divide(np.add.reduceat(cell, first), total, out=np.zeros(len(first)), where=total > 0)
        out = np.empty(len(values))
        out[order] = share[group] * p
        return out

    def split(self) -> tuple[tuple[float, Spectrum], tuple[float, Spectrum] | None]:
        """The spectrum as a difference of two convex ones, each as (factor, spectrum).

        The second is None if the spectrum is convex.
        """
        if self.convex:
            return (1.0, self), None
        rises = np.maximum(np.diff(self.density), 0.0)
        lower = np.append(np.cumsum(rises[::-1])[::-1], 0.0)  # the total increase at smaller losses
        return self._of(self.density + lower), self._of(lower)

    def _of(self, density: Array) -> tuple[float, Spectrum]:
        total = np.append(0.0, np.cumsum(density * np.diff(self.knots)))
        return float(total[-1]), Spectrum(self.knots, total / total[-1])

    def cells(self, values: Array, mass: Array | None) -> tuple[Array, Array, Array]:
        """The order of the values from the largest, and in that order the weight of each value and its mass share.

        Ties do not share these weights.
        """
        order = np.argsort(-values, kind="stable")
        p = np.full(len(values), 1.0 / len(values)) if mass is None else mass[order] / float(mass.sum())
        edges = np.append(0.0, np.cumsum(p))
        edges[-1] = 1.0
        return order, np.diff(np.interp(edges, self.knots, self.cumulative)), p


# ---- named weights ---------------------------------------------------------------------------------------------------

Cumulative = Callable[[Array], Array]


def _extremile(tau: float = 0.9) -> Cumulative:
    """The expected maximum of r independent values with r = log(1/2) / log(tau), for tau of at least 1/2.

    For a smaller tau it is the expected minimum, with 1 - tau instead of tau.
    """
    _check("tau", tau, 0.0, 1.0)
    if tau >= 0.5:
        r = np.log(0.5) / np.log(tau)
        return lambda u: 1.0 - (1.0 - u) ** r
    r = np.log(0.5) / np.log1p(-tau)
    return lambda u: u**r


def _exponential(rate: float = 5.0) -> Cumulative:
    """The exponential spectral risk: the density falls as exp(-rate u)."""
    _check("rate", rate, 0.0, np.inf)
    return lambda u: np.expm1(-rate * u) / np.expm1(-rate)


def _superquantiles(alphas: Any = (0.1,), weights: Any = None) -> Spectrum:
    """A weighted mean of CVaRs at the levels `alphas`; without `weights` they count equally.

    The CVaR at level alpha is the mean of the largest values, which make up the share alpha of all.
    """
    shares = np.atleast_1d(np.asarray(alphas, dtype=np.float64))
    parts = np.ones(len(shares)) if weights is None else np.asarray(weights, dtype=np.float64)
    if shares.ndim != 1 or not len(shares) or not ((shares > 0) & (shares <= 1)).all():
        raise ValueError(f"alphas must be shares in (0, 1], got {alphas!r}")
    if parts.shape != shares.shape or not (np.isfinite(parts) & (parts >= 0)).all() or parts.sum() == 0:
        raise ValueError(f"weights must be one number >= 0 per alpha and not all 0, got {weights!r} for {alphas!r}")
    knots = np.unique(np.concatenate([[0.0, 1.0], shares]))
    cumulative = (parts / parts.sum()) @ np.minimum(knots[None, :] / shares[:, None], 1.0)
    return Spectrum(knots, cumulative)


def _trimmed(m: float = 0.1, k: float = 1.0) -> Spectrum:
    """The ranked range: equal weights between the rank shares m and k."""
    _check_range(m, k)
    knots = np.unique([0.0, m, k, 1.0])
    return Spectrum(knots, np.clip((knots - m) / (k - m), 0.0, 1.0))


def _winsorised(m: float = 0.1, k: float = 1.0) -> Cumulative:
    """The winsorised mean: values outside the rank shares m to k are replaced by the nearest value inside."""
    _check_range(m, k)
    return lambda u: np.where(u >= k - _ROUNDING, 1.0, np.where(u <= m + _ROUNDING, 0.0, u)) * (u > 0)


def _close(center: float = 0.5, width: float = 0.2) -> Spectrum:
    """Equal weights on a window of rank shares of size `width` around `center`, shifted into [0, 1]."""
    _check("width", width, 0.0, 1.0, closed=True)
    if not 0.0 <= center <= 1.0:
        raise ValueError(f"center must be a rank share in [0, 1], got {center!r}")
    m = min(max(center - width / 2, 0.0), 1.0 - width)
    return _trimmed(m, min(m + width, 1.0))


NAMES: dict[str, Callable[..., Spectrum | Cumulative]] = {
    "extremile": _extremile,
    "exponential": _exponential,
    "superquantile": _superquantiles,
    "trimmed": _trimmed,
    "winsorised": _winsorised,
    "close-k": _close,
}


def _check(name: str, value: Any, low: float, high: float, *, closed: bool = False) -> None:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not low < value or not (value <= high if closed else value < high):
        raise ValueError(f"{name} must be in ({low:g}, {high:g}{']' if closed else ')'}, got {value!r}")


def _check_range(m: float, k: float) -> None:
    if not all(isinstance(end, numbers.Real) for end in (m, k)) or not 0.0 <= m < k <= 1.0:
        raise ValueError(f"need rank shares 0 <= m < k <= 1, got m={m!r}, k={k!r}; divide counts by the number of rows")


# ---- from user input --------------------------------------------------------------------------------------------


def spectrum_source(weights: Any, params: dict[str, Any]) -> Spectrum | Cumulative:
    """Validate weights and convert them to a spectrum, or to a cumulative function for some named weights.

    They are a name with its parameters, an array of weights by rank, or a function of the rank share.
    """
    if isinstance(weights, str):
        if weights not in NAMES:
            raise ValueError(f"weights must be one of {', '.join(map(repr, NAMES))}, got {weights!r}")
        allowed = list(inspect.signature(NAMES[weights]).parameters)
        unknown = [name for name in params if name not in allowed]
        if unknown:
            raise TypeError(f"the weights {weights!r} take {', '.join(allowed)}, got {', '.join(unknown)}")
        return NAMES[weights](**params)
    if params:
        raise TypeError(
            f"only named weights take parameters, got {sorted(params)} with {type(weights).__name__}; leave them out"
        )
    return _of_function(weights) if callable(weights) else _of_array(weights)


def on_ranks(source: Spectrum | Cumulative, total: float) -> Spectrum:
    """The spectrum for rows of this total mass: a cumulative function is evaluated at one knot per unit of mass.

    The total is rounded, to at least 1. A spectrum is returned unchanged.
    """
    if isinstance(source, Spectrum):
        return source
    knots = np.linspace(0.0, 1.0, max(1, round(total)) + 1)
    cumulative = np.asarray(source(knots), dtype=np.float64)
    cumulative[[0, -1]] = 0.0, 1.0
    return Spectrum(knots, cumulative)


def _of_array(weights: Any) -> Spectrum:
    given = np.asarray(weights, dtype=np.float64)
    if given.ndim != 1 or not len(given):
        raise ValueError(f"weights by rank must have shape (n,), got shape {given.shape}")
    _check_weights(given)
    return Spectrum(np.linspace(0.0, 1.0, len(given) + 1), np.append(0.0, np.cumsum(given)) / given.sum())


def _of_function(function: Callable[[Array], Any]) -> Spectrum:
    """The spectrum of a density, integrated over 4096 cells of the rank share, whatever the number of values."""
    knots = np.linspace(0.0, 1.0, _CELLS + 1)
    points, parts = np.polynomial.legendre.leggauss(_POINTS)
    nodes = knots[:-1, None] + (points + 1.0) * (0.5 / _CELLS)
    density = np.asarray(function(nodes.ravel()), dtype=np.float64)
    if density.shape != (nodes.size,):
        raise ValueError(
            f"a function of the rank share must return one weight per share, got shape {density.shape} for "
            f"{nodes.size} shares; use NumPy functions of u"
        )
    _check_weights(density)
    total = np.append(0.0, np.cumsum(density.reshape(nodes.shape) @ parts))
    return Spectrum(knots, total / total[-1])


def _check_weights(weights: Array) -> None:
    if not np.isfinite(weights).all() or weights.min() < 0 or weights.max() == 0:
        raise ValueError(
            "weights by rank must be finite, >= 0 and not all 0, got values from "
            f"{weights.min():g} to {weights.max():g}"
        )
