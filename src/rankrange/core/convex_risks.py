"""Convex functions of the losses: the maximum of q . s over a polytope of weights q, and smoothed versions.

`RowRisk` weights rows by rank, `GroupRisk` weights the mean losses of groups by rank. `exact` returns the value and the
weights. `smoothed` returns a smooth lower bound whose weights lie in the same polytope; they prove a lower bound on the
minimum over the coefficients of a model. `bend` is the part of the second derivative that comes from the change of the
weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from .arrays import Array
from .rank_weights import Smoothed, Spectrum

_ROWS = 4096  # rows per dense block


@dataclass(frozen=True, eq=False)
class RowRisk:
    """The mean of the losses, weighted by rank, times a factor; larger losses never have smaller weights.

    `spectrum`, which must be convex, has the weights by rank; `mass` (n,) has the sample weights (None means 1 each).
    """

    spectrum: Spectrum
    mass: Array | None = None
    factor: float = 1.0

    def exact(self, s: Array) -> tuple[float, Array]:
        """The value and the weights q (n,), which sum to the factor."""
        q = self.factor * self.spectrum.weights(s, self.mass)
        return float(q @ s), q

    def smoothed(self, s: Array, width: float) -> Smoothed:
        """Like `exact`, with weights that are continuous in the losses; a larger `width` smooths more."""
        found = self.spectrum.smoothed(s, width, self.mass)
        return Smoothed(self.factor * found.value, self.factor * found.weights, found.blocks)

    def bend(self, design: Any, slope: Array, blocks: Array, width: float) -> Array:
        """The sum over i and j of (dq_i / ds_j) g_i g_j', a matrix (p, p), where g_i = slope_i x_i.

        `design` has the matrix X with the rows x_i, to which a 1 is appended if `design.fit_intercept`. `slope` (n,)
        has the derivatives of the losses with respect to the scores. `blocks` is a result of `smoothed` with this
        `width`.
        """
        p = np.full(len(slope), 1.0 / len(slope)) if self.mass is None else self.mass / float(self.mass.sum())
        sizes = np.bincount(blocks)
        shared = sizes[blocks] > 1
        if not shared.any():
            return np.zeros((design.p, design.p))
        rows = np.flatnonzero(shared & (p > 0))
        _, block = np.unique(blocks[rows], return_inverse=True)
        inside = sp.csr_matrix((p[rows] * slope[rows], (block, rows)), shape=(block.max() + 1, design.n))
        means = _times(inside, design) / np.bincount(block, weights=p[rows])[:, None]
        total = np.zeros((design.p, design.p))
        for start in range(0, len(rows), _ROWS):  # centred before squaring, to avoid cancellation
            part = slice(start, start + _ROWS)
            centred = _scaled(design, rows[part], slope[rows[part]]) - means[block[part]]
            total += (p[rows[part]][:, None] * centred).T @ centred
        return (self.factor / width) * total


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
    def sizes(self) -> Array:
        """The remaining mass of each group."""
        return np.bincount(self.groups, weights=self.caps)

    @cached_property
    def present(self) -> Array:
        """The groups with remaining mass."""
        return np.flatnonzero(self.sizes > 0)

    def means(self, s: Array) -> Array:
        """The mean loss of each group that is present."""
        return (np.bincount(self.groups, weights=self.caps * s)[self.present]) / self.sizes[self.present]

    def exact(self, s: Array) -> tuple[float, Array]:
        """The value and the weights q (n,), which sum to 1."""
        means = self.means(s)
        share = self.spectrum.weights(means)
        return float(share @ means), self._spread(share)

    def smoothed(self, s: Array, width: float) -> Smoothed:
        """Like `exact`, with group weights that are continuous in the mean losses; a larger `width` smooths more.

        The blocks of the result are those of the groups in `present`, not of rows.
        """
        found = self.spectrum.smoothed(self.means(s), width)
        return Smoothed(found.value, self._spread(found.weights), found.blocks)

    def bend(self, design: Any, slope: Array, blocks: Array, width: float) -> Array:
        """The part of the second derivative (p, p) that comes from the change of the group weights.

        The arguments are those of `RowRisk.bend`; `blocks` are blocks of the groups in `present`.
        """
        index = np.zeros(len(self.sizes), dtype=np.intp)
        index[self.present] = np.arange(len(self.present))
        share = np.divide(self.caps, self.sizes[self.groups], out=np.zeros(len(self.caps)), where=self.caps > 0)
        of_groups = sp.csr_matrix(
            (share * slope, (index[self.groups], np.arange(len(slope)))), (len(self.present), len(slope))
        )
        gradients = _times(of_groups, design)
        p, total = 1.0 / len(self.present), np.zeros((design.p, design.p))
        for block in np.unique(blocks):
            part = gradients[blocks == block]
            part = part - part.mean(axis=0)
            total += p * part.T @ part
        return total / width

    def _spread(self, share: Array) -> Array:
        by_group = np.zeros(len(self.sizes))
        by_group[self.present] = share / self.sizes[self.present]
        return by_group[self.groups] * self.caps


def _scaled(design: Any, rows: Array, slope: Array) -> Array:
    """These rows of [X, 1], or of X without an intercept, each multiplied by its slope, as a dense array."""
    block = design.X[rows]
    block = (block.toarray() if sp.issparse(block) else block) * slope[:, None]
    return np.column_stack([block, slope]) if design.fit_intercept else np.asarray(block, dtype=np.float64)


def _times(left: Any, design: Any) -> Array:
    """The product left @ [X, 1], or left @ X without an intercept, as a dense array."""
    product = left @ design.X
    product = product.toarray() if sp.issparse(product) else np.asarray(product, dtype=np.float64)
    if not design.fit_intercept:
        return product
    return np.column_stack([product, np.asarray(left.sum(axis=1)).ravel()])
