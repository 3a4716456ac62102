"""Weights of the rows in a fit: fixed, or smoothed weights of the largest losses.

The sum of the largest losses is a maximum over weights q <= h of mass K. As in the l2 solver (`inner/convex.py`),
subtracting (mu/2) times a squared distance to a centre makes it smooth: q = h clip(centre + (loss - lam)/mu, 0, 1),
with lam >= 0 such that q has the mass K. Rows with weights strictly between 0 and h (tied rows) add curvature along
their gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...core.arrays import Array
from ...core.cuts import top_within
from ..inner.bounds import level_of_mass


class Weights(Protocol):
    """The interface of row weights; all methods take the losses (n,)."""

    @property
    def h(self) -> Array:
        """The largest weight of each row."""

    def at(self, losses: Array) -> Array:
        """The weights (n,)."""

    def total(self, losses: Array) -> float:
        """The weighted sum of the losses, smoothed if the weights are; its derivative in the losses is the weights."""

    def tied(self, losses: Array) -> tuple[Array, Array, bool]:
        """The rows whose weight changes with the loss, the rates of change, and whether the sum of weights is fixed."""


@dataclass(frozen=True, eq=False)
class Fixed:
    """Weights that do not depend on the losses."""

    h: Array

    def at(self, losses: Array) -> Array:
        """The weights (n,)."""
        return self.h

    def total(self, losses: Array) -> float:
        """The weighted sum of the losses."""
        return float(self.h @ losses)

    def tied(self, losses: Array) -> tuple[Array, Array, bool]:
        """No rows: the weights are fixed."""
        return np.zeros(0, dtype=np.intp), np.zeros(0), False


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Weights of the largest losses, smoothed around a centre.

    Parameters
    ----------
    h : ndarray of shape (n,)
        The largest weight of each row, above 0.
    mass : float
        The largest sum of the weights.
    centre : ndarray of shape (n,)
        Shares of h in [0, 1].
    mu : float
        The change of a loss that changes its share by one.
    """

    h: Array
    mass: float
    centre: Array
    mu: float
    # The level of the last call, which is a good guess of the next one.
    _last: list[float] = field(default_factory=lambda: [0.0], init=False, repr=False)

    def at(self, losses: Array) -> Array:
        """The weights (n,)."""
        return self.h * self._shares(losses)[0]

    def total(self, losses: Array) -> float:
        """The weighted sum of the losses minus mu/2 times the squared distance of the shares from the centre."""
        shares, _ = self._shares(losses)
        return float(self.h @ (shares * losses - 0.5 * self.mu * (shares - self.centre) ** 2))

    def tied(self, losses: Array) -> tuple[Array, Array, bool]:
        """The rows whose share is neither 0 nor 1, the rates of change, and whether the sum of weights is fixed."""
        shares, level = self._shares(losses)
        rows = np.flatnonzero((shares > 0) & (shares < 1))
        return rows, self.h[rows] / self.mu, level > 0

    def _shares(self, losses: Array) -> tuple[Array, float]:
        pushed = self.centre + losses / self.mu
        self._last[0] = level = level_of_mass(pushed[:, None], self.h, self.mass, self._last[0])
        return np.clip(pushed - level, 0.0, 1.0), level


def largest(losses: Array, h: Array, mass: float | None) -> Array:
    """Weights of at most h for the largest losses, up to this mass; h itself if `mass` is None. Ties share equally."""
    return h if mass is None else top_within(losses, h, mass)
