"""Selection of the largest losses on the CPU, with ties shared equally.

The weights of phi_k, the sum of the k largest values, are 1 above the cut s_[k] and 0 below; values tied at the cut
share the remaining weight equally. The weights of the ranked range phi_k - phi_m are the difference of the two. With
sample weights, ranks are cumulative weights, a cut may fall inside a value, and ties share in proportion to their
weights.

`select` and `cuts_of` take one set of losses, `select_rows` and `cuts_of_rows` many sets at once. `Ranked` is the
default aggregate of objectives. Inputs are not validated; `rankrange.core.select` has the validated public functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .arrays import Array

# A mass counts as reached at this share of it, because sums of weights have rounding errors.
BUT_ROUNDING = 1.0 - 1e-12


class Cut(NamedTuple):
    """The top of a set: all values above `value`, and `taken` of the `tied` values equal to it (counts or masses).

    It stores counts instead of a share, because differences of counts are exact.
    """

    value: Any  # a number or one per row, like the other fields
    taken: Any
    tied: Any

    @property
    def takes_tie(self) -> bool:
        """Whether all values equal to the cut are taken, up to rounding errors of sums of weights."""
        return bool(self.taken >= self.tied * (1.0 - 1e-9))

    def takes(self, values: Array) -> Array:
        """A mask of the values that are taken completely; values equal to the cut may be taken in part."""
        # All m values count: values > cut would leave out the m-th itself (docs/paper.md).
        return values >= self.value if self.takes_tie else values > self.value


class Selection(NamedTuple):
    """The result of a selection: the weights, the total, the lower cut `lam` and the upper cut `lam_hat`.

    The total is the weighted sum in float64. If many sets are selected together, total and cuts have one entry per set.
    The upper cut of `Stratified` has one entry per class with dropped rows.
    """

    weights: Array
    total: Any
    lam: Any
    lam_hat: Any


def select(values: Array, m: float, k: float, mass: Array | None = None) -> Selection:
    """Weights, total and cuts of one set of losses. Every solver iteration calls this function.

    m and k are counts, or masses if there are weights; 0 <= m < k <= n is not checked.
    """
    found = select_rows(values[None], m, k, mass)
    return Selection(found.weights[0], *(float(each[0]) for each in found[1:]))


def cuts_of(values: Array, m: float, k: float, mass: Array | None = None) -> tuple[Cut, Cut]:
    """The lower cut (rank k) and the upper cut (rank m) of one set; the upper one is infinite for m = 0."""
    lower, upper = cuts_of_rows(values[None], m, k, mass)
    return Cut(*(float(each[0]) for each in lower)), Cut(*(float(each[0]) for each in upper))


def select_rows(values: Array, m: float, k: float, mass: Array | None = None) -> Selection:
    """`select` for all rows of a matrix together; cuts and totals have one entry per row.

    `mass` (n,) is the mass of the values, the same for every row.
    """
    n_rows, n = values.shape
    if mass is None:
        at_k, at_m = _ranked_values(values, int(m), int(k))
        inside = values >= at_k
        untied = np.count_nonzero(inside) == n_rows * int(k)
        if m:
            below = values < at_m
            untied = untied and np.count_nonzero(below) == n_rows * (n - int(m))
            inside &= below
        if untied:  # the usual case: the value at the lower cut is kept, the value at the upper cut is not
            weights = inside.astype(values.dtype)
            return Selection(weights, _sums(weights, values), at_k[:, 0], at_m[:, 0])
    lower, upper = cuts_of_rows(values, m, k, mass)
    units = np.ones(n) if mass is None else mass
    # If both cuts have the same value, the kept part of the ties is counted at the lower cut.
    same = lower.value == upper.value
    shared = (upper, np.where(same, 0.0, upper.tied - upper.taken)), (lower, lower.taken - same * upper.taken)
    inside = (values > lower.value[:, None]) & (values < upper.value[:, None])
    weights = (inside * units).astype(values.dtype)
    total = _sums(weights, values)
    for cut, kept in shared:
        share = (kept / cut.tied)[:, None] * units
        np.copyto(weights, share, where=values == cut.value[:, None], casting="same_kind")
        total += np.where(np.isinf(cut.value), 0.0, cut.value) * kept
    return Selection(weights, total, lower.value, upper.value)


def _sums(weights: Array, values: Array) -> Array:
    return np.einsum("ij,ij->i", weights, values, dtype=np.float64)


def cuts_of_rows(values: Array, m: float, k: float, mass: Array | None = None) -> tuple[Cut, Cut]:
    """`cuts_of` for all rows of a matrix together; the fields of both cuts have one entry per row."""
    if mass is not None:
        lower = mass_cuts(values, mass, k)
        return lower, mass_cuts(values, mass, m) if m else _no_cut(values)
    at_k, at_m = _ranked_values(values, int(m), int(k))
    return _counted(values, at_k, int(k)), _counted(values, at_m, int(m)) if m else _no_cut(values)


def _no_cut(values: Array) -> Cut:
    return Cut(np.full(len(values), math.inf, values.dtype), np.zeros(len(values)), np.ones(len(values)))


def _counted(values: Array, at: Array, rank: int) -> Cut:
    above = np.count_nonzero(values > at, axis=1)
    return Cut(at[:, 0], (rank - above).astype(np.float64), np.count_nonzero(values == at, axis=1).astype(np.float64))


def _ranked_values(values: Array, m: int, k: int) -> tuple[Array, Array]:
    """The values of the ranks k and m in each row, one column each; infinity for the rank 0.

    One rank is found among the values below the other: np.partition is several times slower for two ranks.
    """
    n = values.shape[1]
    at_m = np.full((len(values), 1), math.inf, values.dtype)
    if m:
        values = np.partition(values, n - m, axis=1)[:, : n - m + 1]
        at_m = values[:, -1:].copy()
    if k == n:
        return values.min(axis=1, keepdims=True), at_m
    return np.partition(values, n - k, axis=1)[:, n - k : n - k + 1], at_m


def mass_cuts(values: Array, mass: Array, top: float, above: float = 0.0) -> Cut:
    """The cut at which the mass from the largest value reaches `top`, for each row of the values (rows, n).

    `mass` (n,) is the mass of the values, the same for every row, and `above` that of further values above all these.
    """
    order = np.argsort(values, axis=1)[:, ::-1]
    reached = above + np.cumsum(mass[order], axis=1, dtype=np.float64)
    # Rounding errors may leave a tiny mass below a value that is taken completely, or below the last one.
    last = np.minimum((reached < top * BUT_ROUNDING).sum(axis=1), values.shape[1] - 1)
    value = np.take_along_axis(values, np.take_along_axis(order, last[:, None], axis=1), axis=1)
    units = mass.astype(np.float64)
    tied = (values == value) @ units
    return Cut(value[:, 0], np.minimum(tied, top - above - (values > value) @ units), tied)


class Dropping:
    """The methods of an aggregate that drops rows above one or several `cuts`."""

    def cuts(self, s: Array, m: float, mass: Array | None) -> list[tuple[Array | slice, Cut]]:
        """Pairs of rows and the cut among their losses; empty if m = 0."""
        raise NotImplementedError

    def caps(self, s: Array, m: float, mass: Array | None) -> Array | None:
        """The mass that is left of each row, None for 1 each; rows tied at a cut lose equal shares."""
        if m == 0:
            return mass
        caps = np.ones(len(s)) if mass is None else mass.astype(np.float64)
        for rows, cut in self.cuts(s, m, mass):
            over, tied = s[rows] > cut.value, s[rows] == cut.value
            caps[rows] *= np.where(over, 0.0, np.where(tied, 1.0 - cut.taken / cut.tied, 1.0))
        return caps

    def blurred(self, s: Array, m: float, mass: Array | None) -> list[Array]:
        """For each cut that divides tied losses, the tied rows."""
        every, cuts = np.arange(len(s)), self.cuts(s, m, mass)
        return [every[rows][s[rows] == cut.value] for rows, cut in cuts if cut.taken < cut.tied]


@dataclass(frozen=True)
class Ranked(Dropping):
    """The ranked range: the losses ranked m+1..k; losses tied at a cut share its weight in proportion to their mass."""

    name: ClassVar[str] = "ranked"

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights, total and cuts of the ranked range."""
        return select(s, m, k, mass)

    def take(self, rows: Array) -> Ranked:
        """The aggregate itself, which does not depend on the rows."""
        return self

    def cuts(self, s: Array, m: float, mass: Array | None) -> list[tuple[Array | slice, Cut]]:
        """A list of one pair, all rows and the upper cut; empty if m = 0."""
        return [(slice(None), cuts_of(s, 0, m, mass)[0])] if m > 0 else []


def top_within(s: Array, caps: Array | None, K: float) -> Array:
    """Weights of the largest losses that sum to K, at most `caps` (None means 1 each); ties share in proportion."""
    if caps is None:
        return select(s, 0, K).weights
    inside = caps > 0
    weights = np.zeros_like(s)
    counts = int(K) == K and bool((caps[inside] == 1.0).all())  # unweighted selection is faster
    weights[inside] = select(s[inside], 0, K, None if counts else caps[inside]).weights
    return weights
