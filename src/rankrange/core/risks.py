"""Convex risks of the losses s: the maximum of q . s over a polytope of weights q, exact and smoothed.

`TopRisk` is the sum of the largest losses with a cap on the weight of each row, `SpectrumRisk` weights rows by rank,
and `GroupRisk` weights the mean losses of groups by rank. `exact` returns the value and the weights. `smoothed`
subtracts width / 2 times the squared distance of the densities of q from a centre: it is smooth in s, at most the exact
value, and its weights lie in the same polytope, so they prove lower bounds. A density is the weight of a row (or group)
divided by its largest or its mean weight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import isotonic_regression

from .arrays import Array
from .cuts import top_within
from .rank_weights import Spectrum

# The relative accuracy of a level, limited by rounding.
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)


class Smooth(NamedTuple):
    """A smoothed risk at given losses: its value, its gradient `weights`, and what its second derivative needs.

    Only the weights of `free` units, rows or groups, change with the losses: by `rates` times the change of a unit's
    loss minus the mean of its block. `map` (units, n) is the matrix that averages rows to groups; None for rows.
    """

    value: float
    weights: Array
    densities: Array
    free: Array
    rates: Array
    block: Array
    map: Any = None

    def change(self, ds: Array) -> Array:
        """The change (n,) of the weights for a small change ds (n,) of the losses."""
        moved = (ds if self.map is None else self.map @ ds)[self.free]
        by_unit = np.zeros(len(self.densities))
        by_unit[self.free] = self.rates * (moved - self._means(moved[:, None])[self.block, 0])
        return by_unit if self.map is None else self.map.T @ by_unit

    def factor(self, gradients: Array) -> Array:
        """A matrix whose square is the second derivative, from the gradients (free units, p) of the units' losses."""
        return np.sqrt(self.rates)[:, None] * (gradients - self._means(gradients)[self.block])

    def _means(self, values: Array) -> Array:
        if not self.block.any():  # the usual case: one block
            return (self.rates @ values / max(float(self.rates.sum()), 1e-300))[None]
        blocks = int(self.block.max(initial=-1)) + 1
        sums = sp.csr_matrix((self.rates, (self.block, np.arange(len(self.free)))), (blocks, len(self.free)))
        return (sums @ values) / np.maximum(np.asarray(sums.sum(axis=1)), 1e-300)

    def sampled(self, most: int) -> Smooth:
        """The same with at most about this many of the free units, whose rates are raised."""
        every = max(1, len(self.free) // most)
        return self._replace(free=self.free[::every], rates=every * self.rates[::every], block=self.block[::every])


def unchanging(value: float, weights: Array, densities: Array) -> Smooth:
    """A risk with weights that do not change with the losses."""
    nothing = np.zeros(0, dtype=np.intp)
    return Smooth(value, weights, densities, nothing, np.zeros(0), nothing)


@dataclass(frozen=True, eq=False)
class TopRisk:
    """The maximum of q . s / K over 0 <= q <= caps with sum K; q = caps if these sum to at most K.

    The densities are q / caps, in [0, 1].
    """

    caps: Array
    K: float
    # The level of the last call times its width, about the loss at the cut: a good guess of the next one.
    _level: list[float] = field(default_factory=lambda: [0.0], init=False, repr=False)

    @cached_property
    def fixed(self) -> bool:
        """Whether the weights do not depend on the losses."""
        return float(self.caps.sum()) * (1.0 - 1e-14) <= self.K

    def exact(self, s: Array) -> tuple[float, Array]:
        """The value and the weights q / K."""
        q = (self.caps if self.fixed else top_within(s, self.caps, self.K)) / self.K
        return float(q @ s), q

    def densities(self, q: Array) -> Array:
        """The densities of weights."""
        return np.divide(q * self.K, self.caps, out=np.zeros(len(q)), where=self.caps > 0)

    def smoothed(self, s: Array, width: float, centre: Array) -> Smooth:
        """The smoothed value with its weights."""
        if self.fixed:
            value, q = self.exact(s)
            return unchanging(value, q, np.ones(len(s)))
        pushed = centre + s / width
        self._level[0] = _level_of_mass(pushed, self.caps, self.K, self._level[0] / width) * width
        shares = np.clip(pushed - self._level[0] / width, 0.0, 1.0)
        value = float(self.caps @ (shares * s - 0.5 * width * (shares - centre) ** 2)) / self.K
        free = np.flatnonzero((shares > 0) & (shares < 1) & (self.caps > 0))
        rates = self.caps[free] / (width * self.K)
        return Smooth(value, self.caps * shares / self.K, shares, free, rates, np.zeros(len(free), dtype=np.intp))


def _level_of_mass(pushed: Array, caps: Array, K: float, level: float) -> float:
    """The level at which the weights caps * clip(pushed - level, 0, 1) have the mass K, by Newton's method."""
    inside = caps > 0
    low, high = float(pushed[inside].min()) - 1.0, float(pushed[inside].max())
    for _ in range(100):
        if not low < level < high:
            level = 0.5 * (low + high)
        shares = pushed - level
        moving = float(caps @ ((shares > 0) & (shares < 1)))
        excess = float(caps @ np.clip(shares, 0.0, 1.0)) - K
        if abs(excess) <= max(1e-14 * K, _ROUNDING * abs(level) * moving) or high - low <= 1e-15 * max(1.0, abs(high)):
            break
        low, high = (level, high) if excess > 0 else (low, level)
        level += excess / moving if moving > 0 else np.inf
    return level


@dataclass(frozen=True, eq=False)
class SpectrumRisk:
    """The mean of the losses, weighted by rank, times a factor; larger losses never have smaller weights.

    `spectrum`, which must be convex, has the weights by rank; `mass` (n,) are sample weights (None means 1 each). The
    densities have the mean 1.
    """

    spectrum: Spectrum
    mass: Array | None = None
    factor: float = 1.0

    @property
    def fixed(self) -> bool:
        """Whether the weights do not depend on the losses."""
        return len(self.spectrum.knots) == 2

    def exact(self, s: Array) -> tuple[float, Array]:
        """The value and the weights, which sum to the factor."""
        q = self.factor * self.spectrum.weights(s, self.mass)
        return float(q @ s), q

    def _shares(self, n: int) -> Array:
        return np.full(n, 1.0 / n) if self.mass is None else self.mass / float(self.mass.sum())

    def densities(self, q: Array) -> Array:
        """The densities of weights."""
        p = self.factor * self._shares(len(q))
        return np.divide(q, p, out=np.zeros(len(q)), where=p > 0)

    def smoothed(self, s: Array, width: float, centre: Array) -> Smooth:
        """The smoothed value with its weights: a projection, computed by isotonic regression of the sorted values."""
        if self.fixed:
            value, q = self.exact(s)
            return unchanging(value, q, np.ones(len(s)))
        pushed = centre + s / width
        order, cell, p = self.spectrum.cells(pushed, self.mass)
        positive = p > 0
        order, cell, p = order[positive], cell[positive], p[positive]
        t = pushed[order]
        edges = isotonic_regression(t - cell / p, weights=p, increasing=False).blocks
        # Within a block densities differ as the pushed values do. Their mean is that of the ranks of the block.
        sizes, share = np.diff(edges), np.add.reduceat(p, edges[:-1])
        level, middle = (np.add.reduceat(x, edges[:-1]) / share for x in (cell, p * t))
        found = np.maximum(t + np.repeat(level - middle, sizes), 0.0)
        densities = np.zeros(len(s))
        densities[order] = found
        q = self.factor * self._shares(len(s)) * densities
        value = float(q @ s) - 0.5 * width * self.factor * float(p @ (found - centre[order]) ** 2)
        tied = np.repeat(sizes > 1, sizes)
        block = np.unique(np.repeat(np.arange(len(sizes)), sizes)[tied], return_inverse=True)[1]
        return Smooth(value, q, densities, order[tied], self.factor * p[tied] / width, block)


@dataclass(frozen=True, eq=False)
class GroupRisk:
    """The weighted mean of the groups' mean losses, with weights by rank; a row has its cap as weight in its group.

    `groups` and `caps` are (n,). Groups without remaining mass are left out. `spectrum` has the weights of the others
    by rank and must be convex.
    """

    spectrum: Spectrum
    groups: Array
    caps: Array

    @cached_property
    def _of_groups(self) -> SpectrumRisk:
        return SpectrumRisk(self.spectrum)

    @property
    def fixed(self) -> bool:
        """Whether the weights do not depend on the losses."""
        return self._of_groups.fixed or self._map.shape[0] == 1

    @cached_property
    def _map(self) -> Any:
        """The matrix (groups with mass, n) that maps losses to means."""
        sizes = np.bincount(self.groups, weights=self.caps)
        rows = np.flatnonzero(self.caps > 0)
        _, index = np.unique(self.groups[rows], return_inverse=True)
        shares = self.caps[rows] / sizes[self.groups[rows]]
        return sp.csr_matrix((shares, (index, rows)), (int(index.max()) + 1, len(self.caps)))

    def exact(self, s: Array) -> tuple[float, Array]:
        """The value and the weights, which sum to 1."""
        value, shares = self._of_groups.exact(self._map @ s)
        return value, self._map.T @ shares

    def densities(self, q: Array) -> Array:
        """The densities of the weights of groups."""
        return self._of_groups.densities(np.bincount(self.groups, weights=q)[np.unique(self.groups[self.caps > 0])])

    def smoothed(self, s: Array, width: float, centre: Array) -> Smooth:
        """The smoothed value with its weights."""
        found = self._of_groups.smoothed(self._map @ s, width, centre)
        return found._replace(weights=self._map.T @ found.weights, map=self._map)
