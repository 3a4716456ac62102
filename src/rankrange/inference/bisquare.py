"""Tukey's bisquare: rho, psi, weights, and the constants for a breakdown point or an efficiency."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm

from ..core.arrays import Array

# With this constant the mean of rho at the normal is 1/2, the largest breakdown point.
FOR_BREAKDOWN = 1.54764


def rho(u: Array, c: float) -> Array:
    """1 - (1 - (u/c)^2)^3 within c, and 1 beyond."""
    inside = np.maximum(1 - (u / c) ** 2, 0.0)
    return 1 - inside**3


def weight(u: Array, c: float) -> Array:
    """(1 - (u/c)^2)^2 within c, and 0 beyond."""
    return np.maximum(1 - (u / c) ** 2, 0.0) ** 2


def psi(u: Array, c: float) -> Array:
    """u times the weight: the derivative of rho, times c^2 / 6."""
    return u * weight(u, c)


def psi_derivative(u: Array, c: float) -> Array:
    """The derivative of psi."""
    v = (u / c) ** 2
    return np.where(v < 1, (1 - v) * (1 - 5 * v), 0.0)


@lru_cache(maxsize=32)
def constant_of(efficiency: float) -> float:
    """The constant for which the M-estimate has this efficiency at the normal model; 4.685 for 0.95.

    It is searched between 0.5 and 40; a ValueError is raised if it is not in this range.
    """
    return float(brentq(lambda c: _efficiency(c) - efficiency, 0.5, 40.0, xtol=1e-10))


def _efficiency(c: float) -> float:
    def mean(f: object) -> float:
        return 2 * quad(lambda u: f(u, c) * norm.pdf(u), 0, c)[0]  # type: ignore[operator]

    return mean(psi_derivative) ** 2 / mean(lambda u, c: psi(u, c) ** 2)
