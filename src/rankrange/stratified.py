"""The ranked range cut class by class: each class loses the same share of its rows, so that a rare one is not erased.

F(W) = (sum of the k - m largest of the losses that are left when each class has lost its m_c largest) / (k - m) +
penalty, with m_c in proportion to the classes and summing to m. For k = n this is a trimmed mean within classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .objective import Objective, TopSum
from .select import Cut, Selection, cuts_of

Array = NDArray[Any]


def quotas(m: Array, sizes: Array) -> Array:
    """m (S,) dealt out in proportion to sizes (S, G); whole where all of them are whole, by the largest remainders."""
    exact = m[:, None] * sizes / sizes.sum(axis=1, keepdims=True)
    if (m != np.floor(m)).any() or (sizes != np.floor(sizes)).any():
        return exact
    whole = np.floor(exact + 1e-9)
    left = np.rint(m - whole.sum(axis=1))
    order = np.argsort(-(exact - whole), axis=1, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    return whole + (place < left[:, None])


@dataclass(frozen=True, eq=False)
class StratifiedObjective(Objective):
    groups: Array = field(default_factory=lambda: np.zeros(0, dtype=np.intp))  # the class of each row, 0..G-1

    @property
    def cuts_by_class(self) -> bool:
        return True

    def cuts(self, s: Array) -> list[tuple[Array, Cut]]:
        """For each class its rows and the cut at its share of m; classes that lose nothing are left out."""
        mass = np.ones(len(s)) if self.sample_weight is None else self.sample_weight
        sizes = np.bincount(self.groups, weights=mass)
        found = []
        for group, quota in enumerate(quotas(np.array([float(self.m)]), sizes[None])[0]):
            if quota > 0:
                rows = np.flatnonzero(self.groups == group)
                weight = None if self.sample_weight is None else self.sample_weight[rows]
                found.append((rows, cuts_of(s[rows], 0, quota, weight)[0]))
        return found

    def left(self, s: Array) -> Array:
        """The mass of each row that is not cut."""
        caps = np.ones(len(s)) if self.sample_weight is None else self.sample_weight.astype(np.float64)
        for rows, cut in self.cuts(s):
            over, tied = s[rows] > cut.value, s[rows] == cut.value
            caps[rows] *= np.where(over, 0.0, np.where(tied, 1.0 - cut.taken / cut.tied, 1.0))
        return caps

    def select(self, s: Array) -> Selection:
        weights = self.cutting(s).weights(s)
        lowest = float(s[weights > 0].min())
        highest = np.array([cut.value for _, cut in self.cuts(s)])
        return Selection(weights, float(weights.astype(np.float64) @ s), lowest, highest)

    def batch(self, Ws: Array) -> tuple[Array, Array]:
        points = [self.value_and_gradient(W) for W in Ws]
        return np.array([value for value, _ in points]), np.array([gradient for _, gradient in points])

    def rows(self, rows: Array, m: float, k: float) -> Objective:
        part = super().rows(rows, m, k)
        assert isinstance(part, StratifiedObjective)
        return replace(part, groups=self.groups[rows])

    def cutting(self, s: Array) -> TopSum:
        caps = self.left(s) if self.m > 0 else self.sample_weight
        return TopSum(self.design, self.y, self.loss, self.C, self.n_outputs, self.kept, self.kept, caps)

    def caps_at(self, s: Array, rows: Array) -> Array:
        return self.left(s)[rows]

    def partly_cut(self, s: Array) -> list[Array]:
        return [rows[s[rows] == cut.value] for rows, cut in self.cuts(s) if cut.taken < cut.tied]

    def tilted(self, W: Array) -> TopSum:
        raise ValueError(
            "solver='dca' needs the sum of all m largest losses, which stratify=True replaces by sums within classes; "
            "use solver='auto' or 'bilevel'"
        )
