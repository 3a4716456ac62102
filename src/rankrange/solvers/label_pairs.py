"""The convex loss of TKML with fixed pairs of labels in every row, for the convex solver.

Each row has scores f, labels to push down, A, and labels to pull up, B. Its loss is the maximum of 0 and its margins
1 + f_a - f_b, one for each pair of a in A and b in B.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.losses import Loss

# The margin of a pair that does not exist.
_NO_PAIR = -1e100
_ROUNDING = 1e-12


class LabelPairs(Loss):
    """The loss max(0, 1 + largest score in A - smallest score in B); `down` and `up` (n, L) are A and B of each row.

    The labels of each row are stored as padded arrays (n, |A|) and (n, |B|). The targets y are not used.
    """

    targets: ClassVar[str] = "labels"

    def __init__(self, down: Array, up: Array) -> None:
        self._sets = down, up
        self._down, here_down = _columns(down)
        self._up, here_up = _columns(up)
        self._rows = np.arange(len(down))[:, None]
        self._offset = np.where(here_down[:, :, None] & here_up[:, None, :], 1.0, _NO_PAIR)
        self._overlap = (down & up).any(axis=1)

    def value_and_derivative(self, y: Array, z: Array) -> tuple[Array, Array]:
        """The losses, and their derivative; tied pairs share it."""
        margins = self.margins(y, z)
        s = np.maximum(margins.max(axis=1), 0.0)
        top = (margins == s[:, None]) & (margins > 0)
        return s, self.margins_adjoint(y, top / np.maximum(top.sum(axis=1, keepdims=True), 1))

    def margins(self, y: Array, z: Array) -> Array:
        """The margins (n, |A| |B|) of the pairs."""
        high, low = np.take_along_axis(z, self._down, 1), np.take_along_axis(z, self._up, 1)
        return np.asarray((self._offset + high[:, :, None] - low[:, None, :]).reshape(len(z), -1))

    def margins_matrix(self, rows: Array, columns: Array) -> Any:
        """The linear part of these margins, a sparse matrix (len(rows), n L)."""
        n, n_labels = self._sets[0].shape
        down, up = np.divmod(columns, self._up.shape[1])
        at = rows * n_labels + np.stack([self._down[rows, down], self._up[rows, up]])
        entries = np.repeat([1.0, -1.0], len(rows)), (np.tile(np.arange(len(rows)), 2), at.ravel())
        return sp.csr_array(entries, shape=(len(rows), n * n_labels))

    def margins_adjoint(self, y: Array, a: Array) -> Array:
        """The derivative of the weighted margins with respect to the scores, (n, L)."""
        down, up = self.of_labels(a)
        return down - up

    def of_labels(self, rho: Array) -> tuple[Array, Array]:
        """The sums (n, L) of weights of pairs over the labels to push down and to pull up."""
        cube = rho.reshape(self._offset.shape)
        down, up = np.zeros((2, *self._sets[0].shape))
        down[self._rows, self._down] = cube.sum(axis=2)
        up[self._rows, self._up] = cube.sum(axis=1)
        return down, up

    def of_pairs(self, down: Array, up: Array) -> Array:
        """Weights of pairs with about these sums: products of the sums, and 0 for pairs that do not exist."""
        total = np.maximum(down.sum(axis=1), 1e-300)[:, None, None]
        high, low = np.take_along_axis(down, self._down, 1), np.take_along_axis(up, self._up, 1)
        cube = np.where(self._offset > 0, high[:, :, None] * (low[:, None, :] / total), 0.0)
        return np.asarray(cube.reshape(len(down), -1))

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        """The conjugate of each loss at the slopes a, minus a z; infinite outside of its domain.

        The conjugate is minus the largest total weight of pairs with these slopes: 1 if a label is in both sets.
        """
        down, up = self._sets
        weight = np.maximum(a, 0.0).sum(axis=1)
        outside = ((a > _ROUNDING) & ~down) | ((a < -_ROUNDING) & ~up)
        valid = ~outside.any(axis=1) & (np.abs(a.sum(axis=1)) <= _ROUNDING) & (weight <= 1.0 + _ROUNDING)
        return np.where(valid, -np.where(self._overlap, 1.0, weight) - (a * z).sum(axis=1), np.inf)

    def balanced(self, y: Array, a: Array, h: Array, target: Any = 0.0) -> Array | None:
        """The slopes, each row times a factor in [0, 1], so that their sums weighted by h are 0; None if none is found.

        The factors differ least from those in proportion to 1.
        """
        weighted = h[:, None] * a
        change = weighted @ (np.linalg.pinv(weighted.T @ weighted, rcond=1e-12, hermitian=True) @ weighted.sum(axis=0))
        factor = (1.0 - change) / max(1.0, float((1.0 - change).max()))
        return None if factor.min() < 0 or np.any(target) else factor[:, None] * a


def _columns(members: Array) -> tuple[Array, Array]:
    width = max(1, int(members.sum(axis=1).max()))
    columns = np.argsort(~members, axis=1, kind="stable")[:, :width]
    return columns, np.take_along_axis(members, columns, 1)
