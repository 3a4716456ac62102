"""Aggregates: what a set of losses costs, and which rows it rests on. The objective asks one of these, and nobody else
selects.

An aggregate looks at losses s (n,) of rows that have a `mass` (n,), None meaning 1 each, with masses m to drop and k to
keep up to. `select` gives weights q >= 0 that sum to k - m, and the `total` that the objective divides by k - m; q is
the derivative of that total in s. `take` is the same aggregate for some of the rows.

What else it can do decides which solvers it meets:
- `cuts` (which rows, and the cut among their losses), `caps` (the mass of each row that is left when what it drops at s
  is dropped for good) and `blurred` (rows that tie where a cut falls among them) make the rest a sum of the largest
  losses: a bound that touches the objective, which the exact methods minimise and certify.
- `upper` (the weights of what is dropped, a subgradient of a convex function of the losses) is what DCA linearises.
- `top` (what is dropped of many sets of losses together) lets many fits share their products with X.

A new aggregate is one class here and one entry in `AGGREGATES`; the tests of solvers run over the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from scipy.special import expit

from .arrays import Array
from .cuts import Cut, Ranked, Selection, blurred_rows, cuts_of, left_of, top_weights, top_within


@runtime_checkable
class Aggregate(Protocol):
    """What the objective asks of every aggregate."""

    name: ClassVar[str]
    linear: ClassVar[bool]  # whether the total is q . s

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights q >= 0 of the losses s that sum to k - m, the total of which they are the derivative, and the cuts.

        Parameters
        ----------
        s : ndarray of shape (n,)
            The losses of all rows.
        m, k : float
            Masses to drop and to keep up to, 0 <= m < k <= n.
        mass : ndarray of shape (n,) or None
            The mass of each row; None means 1 each.

        Returns
        -------
        Selection
            Weights, total, and the lower and the upper cut (infinite where the aggregate has none).
        """

    def take(self, rows: Array) -> Aggregate:
        """The same aggregate for some of the rows, given by their places."""


@dataclass(frozen=True, eq=False)
class Stratified:
    """The ranked range cut class by class: each class loses the same share of its rows, so that a rare one stays.

    The m_c largest losses of each class c are dropped, with m_c in proportion to the classes and summing to m; of what
    is left the k - m largest are kept. For k = n this is a trimmed mean within classes.
    """

    groups: Array  # the class of each row, 0..G-1
    name: ClassVar[str] = "stratified"
    linear: ClassVar[bool] = True

    def cuts(self, s: Array, m: float, mass: Array | None) -> list[tuple[Array | slice, Cut]]:
        """For each class its rows and the cut at its share of m; classes that lose nothing are left out."""
        sizes = np.bincount(self.groups, weights=mass)
        found: list[tuple[Array | slice, Cut]] = []
        for group, quota in enumerate(quotas(np.array([float(m)]), sizes[None].astype(np.float64))[0]):
            if quota > 0:
                rows = np.flatnonzero(self.groups == group)
                found.append((rows, cuts_of(s[rows], 0, quota, None if mass is None else mass[rows])[0]))
        return found

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights, total and cuts; the upper cut is an array with one entry per class that loses something."""
        weights = top_within(s, self.caps(s, m, mass), k - m)
        highest = np.array([cut.value for _, cut in self.cuts(s, m, mass)])
        return Selection(weights, float(weights.astype(np.float64) @ s), float(s[weights > 0].min()), highest)

    def take(self, rows: Array) -> Stratified:
        """The same cut by class for some of the rows."""
        return Stratified(self.groups[rows])

    def caps(self, s: Array, m: float, mass: Array | None) -> Array | None:
        """The mass of each row that is left when each class has lost its share of m; None means 1 each."""
        return mass if m == 0 else left_of(s, self.cuts(s, m, mass), mass)

    def blurred(self, s: Array, m: float, mass: Array | None) -> list[Array]:
        """For each class whose cut falls among tied losses, the rows that tie there."""
        return blurred_rows(s, self.cuts(s, m, mass))

    def top(self, s: Array, mass: Array, m: Array) -> Array:
        """Weights of what is dropped of many sets of losses s (S, n) with masses (S, n), m (S,) of each."""
        members = [self.groups == group for group in range(int(self.groups.max()) + 1)]
        sizes = np.stack([mass[:, rows].sum(axis=1) for rows in members], axis=1).astype(np.float64)
        weights = np.zeros(s.shape)
        for rows, quota in zip(members, quotas(m, sizes).T, strict=True):
            weights[:, rows] = top_weights(s[:, rows], mass[:, rows], quota)
        return weights


@dataclass(frozen=True)
class Soft:
    """The soft ranked range: sigmoid cuts of a given temperature instead of sharp ones.

    The sum of the k largest is the least of k lam + sum [s - lam]_+ over lam; with softplus of temperature T in the
    place of [.]_+ it is smooth, its weights are sigmoid((s - lam) / T) and sum to k, and it lies at most
    T n log 2 above. The soft ranked range is the difference of two of these. As T falls it becomes the ranked range.
    """

    temperature: float = 0.1
    name: ClassVar[str] = "soft"
    linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.temperature < np.inf:
            raise ValueError(
                f"a soft ranked range needs a temperature above 0 and finite, got {self.temperature}; use Ranked() for "
                "sharp cuts"
            )

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights, total and the two levels of the sigmoid cuts."""
        units = np.ones(len(s)) if mass is None else mass
        low, high = self._top(s, k, units), self._top(s, m, units)
        return Selection((low[1] - high[1]).astype(s.dtype), low[0] - high[0], low[2], high[2])

    def take(self, rows: Array) -> Soft:
        """The soft range knows nothing about single rows, so it stays the same."""
        return self

    def upper(self, s: Array, m: float, mass: Array | None) -> Array:
        """Weights of what is dropped: those of the soft sum of the m largest losses."""
        return self._top(s, m, np.ones(len(s)) if mass is None else mass)[1].astype(s.dtype)

    def _top(self, s: Array, k: float, mass: Array) -> tuple[float, Array, float]:
        """The soft sum of the largest losses up to the mass k, its weights, and its cut."""
        s = s.astype(np.float64, copy=False)
        if k <= 0:
            return 0.0, np.zeros(len(s)), np.inf
        if k >= float(mass.sum()) * (1.0 - 1e-14):
            return float(mass @ s), mass.astype(np.float64), -np.inf
        lam = self._level(s, k, mass)
        t = (s - lam) / self.temperature
        value = k * lam + self.temperature * float(mass @ np.logaddexp(0.0, t))
        return value, mass * expit(t), lam

    def _level(self, s: Array, k: float, mass: Array) -> float:
        """The cut at which the weights have the mass k: Newton, kept in a bracket."""
        reach = self.temperature * 40.0
        low, high = float(s.min()) - reach, float(s.max()) + reach
        lam = float(np.median(s))
        for _ in range(200):
            weights = mass * expit((s - lam) / self.temperature)
            excess = float(weights.sum()) - k
            if abs(excess) <= 1e-13 * k or high - low <= 1e-15 * max(abs(low), abs(high)):
                break
            low, high = (lam, high) if excess > 0 else (low, lam)
            slope = float((weights * expit((lam - s) / self.temperature)).sum()) / self.temperature
            step = lam + excess / slope if slope > 0 else np.inf
            lam = step if low < step < high else 0.5 * (low + high)
        return lam


@dataclass(frozen=True, eq=False)
class WorstGroup:
    """The largest mean loss over given groups: what a model costs the group that it serves worst. m and k play no part.

    Groups that tie share equally. Weights sum to k - m as those of the other aggregates do, but are not below 1.
    """

    groups: Array  # the group of each row, 0..G-1
    name: ClassVar[str] = "worst group"
    linear: ClassVar[bool] = True

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Equal weights within the group of the largest mean loss, and that mean times k - m as the total."""
        units = np.ones(len(s)) if mass is None else mass.astype(np.float64)
        sizes = np.bincount(self.groups, weights=units)
        sums = np.bincount(self.groups, weights=units * s)
        means = np.divide(sums, sizes, out=np.full(len(sums), -np.inf), where=sizes > 0)
        worst = means == means.max()
        share = np.divide(worst / worst.sum(), sizes, out=np.zeros(len(sizes)), where=sizes > 0)
        weights = (k - m) * units * share[self.groups]
        return Selection(weights.astype(s.dtype), (k - m) * float(means.max()), -np.inf, np.inf)

    def take(self, rows: Array) -> WorstGroup:
        """The same groups for some of the rows."""
        return WorstGroup(self.groups[rows])


# By name: how to make one for n rows, of classes 0..G-1. The tests of objective and solvers run over all of them.
AGGREGATES: dict[str, Callable[[Array], Any]] = {
    "ranked": lambda classes: Ranked(),
    "stratified": Stratified,
    "soft": lambda classes: Soft(),
    "worst group": WorstGroup,
}


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
