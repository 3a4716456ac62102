"""Selection of the largest losses on the CPU, with ties shared equally.

The weights of phi_k, the sum of the k largest values, are 1 above the cut s_[k] and 0 below; values tied at the cut
share the remaining weight equally. The weights of the ranked range phi_k - phi_m are the difference of the two. With
sample weights, ranks are cumulative weights, a cut may fall inside a value (`mass_cuts` finds these cuts), and ties
share in proportion to their weights.

`select` and `cuts_of` take one set of losses, `select_rows` and `top_weights` many sets at once. `Ranked` is the
default aggregate of objectives. Inputs are not validated; `rankrange.core.select` has the validated public functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .arrays import Array
from .mass_cuts import BUT_ROUNDING, cuts_of_mass, mass_cuts
from .mass_cuts import Cut as Cut

# Below this many values, np.partition is faster than sampling pivots first.
_SAMPLED_FROM = 1 << 14
# From this many values on, a search near the last cut is faster than np.partition.
_FOLLOWED_FROM = 1 << 12
# From this many values on, blocks that fit into the cache are faster than few calls.
_BLOCKS_FROM = 1 << 17
_SAMPLE_SIZE = 1 << 15  # the largest sample; smaller sets get a smaller sample
# The last cut of each rank and how far it moved: {(number of values, rank): (value, move)}.
Trail = dict[tuple[int, int], tuple[float, float]]
_REACH = 5.0  # the next cut is searched within this many moves of the last one
_OVERFLOW = 1e38  # about the largest number of single precision
_FORGET = 0.1  # the factor of the last move in the estimate of the next one
# The size of blocks that fit into the cache: several passes over a block cost little more than one.
BLOCK = 1 << 15


class Selection(NamedTuple):
    """The result of a selection: the weights, the total, the lower cut `lam` and the upper cut `lam_hat`.

    The total is the weighted sum in float64; for the soft ranked range it is the soft sum. If many sets are selected
    together, total and cuts have one entry per set. The upper cut of `Stratified` has one entry per class with dropped
    rows.
    """

    weights: Array
    total: Any
    lam: Any
    lam_hat: Any


def select(
    values: Array,
    m: float,
    k: float,
    sample_weight: Array | None = None,
    out: Array | None = None,
    trail: Trail | None = None,
) -> Selection:
    """Weights, total and cuts of one set of losses. Every solver iteration calls this function.

    m and k are counts, or masses if there are weights; 0 <= m < k <= n is not checked. `out` receives the weights,
    `trail` is as in `cuts_of`.
    """
    if out is None and len(values) < (_SAMPLED_FROM if sample_weight is not None or trail is None else _BLOCKS_FROM):
        if sample_weight is None:
            chosen = _select_untied(values, int(m), int(k), trail)
        else:
            chosen = _select_untied_masses(values, m, k, sample_weight)
        if chosen is not None:
            return chosen
    lower, upper = cuts_of(values, m, k, sample_weight, trail)
    weights = np.empty_like(values) if out is None else out
    # Most values lie strictly inside or outside. Values tied at a cut that are all kept count as inside. Only ties that
    # a cut divides need an extra pass.
    at_lower, at_upper = _kept_of_ties(lower, upper)
    shared = [(cut, kept) for cut, kept in ((upper, at_upper), (lower, at_lower)) if 0 < kept < cut.tied]
    above = np.greater if at_lower < lower.tied else np.greater_equal
    below = np.less if at_upper < upper.tied else np.less_equal
    total = math.fsum(cut.value * kept for cut, kept in shared)
    for start in range(0, len(values), BLOCK):
        block = slice(start, start + BLOCK)
        inside = above(values[block], lower.value)
        inside &= below(values[block], upper.value)
        weights[block] = inside
        if sample_weight is not None:
            weights[block] *= sample_weight[block]
        total += _dot(weights[block], values[block])
        for cut, kept in shared:
            tied = values[block] == cut.value
            share = kept / cut.tied * (1.0 if sample_weight is None else sample_weight[block])
            np.copyto(weights[block], share, where=tied, casting="same_kind")
    return Selection(weights, total, lower.value, upper.value)


def _select_untied(values: Array, m: int, k: int, trail: Trail | None) -> Selection | None:
    """The selection if no values are tied at a cut, in few NumPy calls; otherwise None. `trail` is updated."""
    n, part, inside, upper = len(values), values, None, math.inf
    if m:
        upper, part = _value_of_rank(values, m, trail, part)
        inside = values < upper
        if np.count_nonzero(inside) != n - m:
            _remember_ties(trail, n, m, upper)
            return None
    if k < n:
        lower, _ = _value_of_rank(values, k, trail, part)
        above = values >= lower
        if np.count_nonzero(above) != k:
            _remember_ties(trail, n, k, lower)
            return None
        inside = above if inside is None else np.logical_and(inside, above, out=inside)
    else:
        lower = part.min()
    if inside is None:
        inside = np.ones(n, dtype=bool)
    weights = inside.astype(values.dtype)
    return Selection(weights, _dot(weights, values), float(lower), float(upper))


def _remember_ties(trail: Trail | None, n: int, rank: int, value: Any) -> None:
    """Remember that values tie at a cut: it probably stays there, and np.partition is slow if many values are equal."""
    if trail is not None:
        trail[n, rank] = (float(value), 0.0)


def _value_of_rank(values: Array, rank: int, trail: Trail | None, among: Array) -> tuple[Any, Array]:
    """The value of a rank, and an array that contains all values ranked after it.

    The value is first searched near its last one in `trail`, if there are at least 2^12 values or it did not move, then
    with a sample, if there are at least 2^14. If both fail, `among` is partitioned: all values, or the array that an
    earlier call returned, which is changed in place. `trail` is updated.
    """
    n = len(values)
    last, moved = (math.nan, math.nan) if trail is None else trail.get((n, rank), (math.nan, math.nan))
    value = None
    if (n >= _FOLLOWED_FROM and moved >= 0) or moved == 0:
        value = _value_near(values, rank, last, moved)
    if value is None and n >= _SAMPLED_FROM:
        cuts = _sampled_cuts(values, [rank])
        value = None if cuts is None else cuts[0].value
    if value is None:
        part = among.copy() if among is values else among
        part.partition(n - rank)
        value, among = part[n - rank], part[: n - rank]
    if trail is not None:
        move = abs(float(value) - last)
        trail[n, rank] = (float(value), max(move, _FORGET * moved) if math.isfinite(moved) else move)
    return value, among


def _value_near(values: Array, rank: int, last: float, moved: float) -> Any:
    """The value of a rank if it lies within 5 times `moved` of its `last` value; otherwise None.

    The result is also None if more than an eighth of the values lie so close, or if float32 could overflow.
    """
    number, reach = values.dtype.type, _REACH * moved
    if not abs(last) + reach < _OVERFLOW:
        return None
    low, high = number(last - reach), number(last + reach)
    inner = values > low
    over = np.count_nonzero(inner)
    if over < rank:
        return low if np.count_nonzero(values >= low) >= rank else None
    inner &= values < high
    if np.count_nonzero(inner) > len(values) // 8:
        return None
    few, position = values[inner], over - rank
    if position >= len(few):
        return None
    few.partition(position)
    return few[position]


def _select_untied_masses(values: Array, m: float, k: float, mass: Array) -> Selection | None:
    """The selection of values with masses if none are tied at a cut, in few NumPy calls; otherwise None."""
    order = np.argsort(values)[::-1]
    ranked, weights = values[order], mass[order].astype(np.float64)
    reached, last, upper = weights.cumsum(), len(values) - 1, math.inf
    at_k, at_m = (min(int(reached.searchsorted(top * BUT_ROUNDING)), last) for top in (k, m))
    for at in (at_k, at_m) if m else (at_k,):
        if (at < last and ranked[at + 1] == ranked[at]) or (at and ranked[at - 1] == ranked[at]):
            return None
    dropped = m - float(reached[at_m] - weights[at_m])
    weights[at_k] = min(float(weights[at_k]), k - float(reached[at_k] - weights[at_k]))
    weights[at_k + 1 :] = 0.0
    if m:
        weights[:at_m] = 0.0
        weights[at_m] = max(0.0, float(weights[at_m]) - dropped)
        upper = float(ranked[at_m])
    total = float(weights.dot(ranked.astype(np.float64)))
    found = np.empty_like(values)
    found[order] = weights
    return Selection(found, total, float(ranked[at_k]), upper)


def cuts_of(
    values: Array, m: float, k: float, sample_weight: Array | None = None, trail: Trail | None = None
) -> tuple[Cut, Cut]:
    """The lower cut (rank k) and the upper cut (rank m) of one set; the upper one is infinite for m = 0.

    `trail` has the cuts of earlier calls and is updated. They speed up the search if values change little between
    calls, as in the steps of a solver, and do not affect the result. With sample weights, `trail` is not used.
    """
    if sample_weight is not None:
        of_mass = mass_cuts(values, sample_weight, [k, m] if m else [k])
        return of_mass[0], of_mass[1] if m else _NO_CUT
    if k == len(values):  # nothing is cut below: the lower cut is the minimum
        lower = _cut_of(values, float(values.min()), len(values))
        return lower, _NO_CUT if m == 0 else cuts_of(values, 0, m, None, trail)[0]
    ranks = [int(k), int(m)] if m else [int(k)]
    cuts = None
    if len(values) >= _SAMPLED_FROM:
        cuts = _sampled_cuts(values, ranks) if trail is None else _followed_cuts(values, ranks, trail)
    if cuts is None:
        if trail is not None and len(values) < _SAMPLED_FROM:
            found = [_value_of_rank(values, rank, trail, values)[0] for rank in ranks]
        else:  # in ascending order, rank r is at position n - r
            found = values_at(values, [len(values) - rank for rank in ranks])
        cuts = [_cut_of(values, float(value), rank) for value, rank in zip(found, ranks, strict=True)]
    return cuts[0], cuts[1] if m else _NO_CUT


_NO_CUT = Cut(math.inf, 0.0, 1.0)


def values_at(values: Array, positions: Sequence[int]) -> list[Array]:
    """The values at ascending positions of the sorted last axis.

    The last position is selected first, then the others among the values below it. np.partition is vectorised for one
    position only; several positions in one call take several times as long.
    """
    found: list[Array] = []
    for position in reversed(positions):
        values = np.partition(values, position)[..., : position + 1]
        found.insert(0, values[..., position].copy())
    return found


def _cut_of(values: Array, value: float, rank: int) -> Cut:
    """The cut at a value that is known to have this rank. Without ties, the usual case, one count is enough."""
    if len(values) <= BLOCK and np.count_nonzero(values == value) == 1:
        return Cut(value, 1, 1)
    return _cut_at(values, value, rank)


def _cut_at(values: Array, value: float, rank: int) -> Cut:
    above = tied = 0
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        above += int(np.count_nonzero(block > value))
        tied += int(np.count_nonzero(block == value))
    return Cut(value, rank - above, tied)


def _kept_of_ties(lower: Cut, upper: Cut) -> tuple[Any, Any]:
    """The kept counts or masses of the values tied at the lower cut and of those tied at the upper cut."""
    same = lower.value == upper.value  # both cuts have the same value: count the kept part at the lower cut
    return lower.taken - same * upper.taken, (1 - same) * (upper.tied - upper.taken)


def _dot(weights: Array, values: Array) -> float:
    if values.dtype != np.float64:
        weights, values = weights.astype(np.float64), values.astype(np.float64)
    return float(np.dot(weights, values))


def select_rows(values: Array, m: float, k: float, mass: Array | None = None) -> Selection:
    """`select` for all rows of a matrix of short rows together; cuts and totals have one entry per row.

    `mass` (n,) is the mass of the values, the same for every row.
    """
    if mass is not None:
        return _shared(values, *cuts_of_mass(values, m, k, mass), mass)
    n_rows, n = values.shape
    at_k, at_m = _ranked_values(values, int(m), int(k))
    inside = values >= at_k
    untied = np.count_nonzero(inside) == n_rows * k
    if m:
        below = values < at_m
        untied = untied and np.count_nonzero(below) == n_rows * (n - m)
        inside &= below
    if untied:  # the usual case: the value at the lower cut is kept, the value at the upper cut is not
        weights = inside.astype(values.dtype)
        total = np.einsum("ij,ij->i", weights, values, dtype=np.float64)
        return Selection(weights, total, at_k[:, 0], at_m[:, 0])
    return _shared(values, *cuts_of_rows(values, int(m), int(k)), np.ones(n))


def _shared(values: Array, lower: Cut, upper: Cut, mass: Array) -> Selection:
    """The weights for the cuts of each row; ties at a cut share its remaining weight in proportion to their mass."""
    at_lower, at_upper = _kept_of_ties(lower, upper)
    inside = (values > lower.value[:, None]) & (values < upper.value[:, None])
    weights = (inside * mass).astype(values.dtype)
    total = np.einsum("ij,ij->i", weights, values, dtype=np.float64)
    for cut, kept in ((upper, at_upper), (lower, at_lower)):
        share = (kept / cut.tied)[:, None] * mass
        np.copyto(weights, share, where=values == cut.value[:, None], casting="same_kind")
        total += np.where(np.isinf(cut.value), 0.0, cut.value) * kept
    return Selection(weights, total, lower.value, upper.value)


def _ranked_values(values: Array, m: int, k: int) -> tuple[Array, Array]:
    """The values of the ranks k and m in each row, one column each; infinity for the rank 0."""
    n = values.shape[1]
    # The minimum needs no partition, and including it would slow down the partition for the other rank.
    ranks = [rank for rank in (k, m) if 0 < rank < n]
    found = dict(zip(ranks, values_at(values, [n - rank for rank in ranks]), strict=True))
    at_k = found[k][:, None] if k < n else values.min(axis=1, keepdims=True)
    return at_k, found[m][:, None] if m else np.full_like(at_k, math.inf)


def cuts_of_rows(values: Array, m: int, k: int) -> tuple[Cut, Cut]:
    """`cuts_of` for all rows of a matrix together; the fields of both cuts have one entry per row."""
    n_rows = len(values)
    cuts = [Cut(np.full(n_rows, math.inf, values.dtype), np.zeros(n_rows), np.ones(n_rows))] * 2
    for i, (rank, at) in enumerate(zip((k, m), _ranked_values(values, m, k), strict=True)):
        if rank:
            value = at[:, 0]
            tied = (values == value[:, None]).sum(axis=1)
            # Without ties, all values of lower rank are above the cut.
            above = rank - 1 if (tied == 1).all() else (values > value[:, None]).sum(axis=1)
            cuts[i] = Cut(value, rank - above + 0 * tied, tied)
    return cuts[0], cuts[1]


def _sampled_cuts(
    values: Array, ranks: list[int], sample_size: int = _SAMPLE_SIZE, block_size: int = BLOCK
) -> list[Cut] | None:
    """Floyd and Rivest: a sorted sample brackets each cut, and one pass collects the values inside the brackets.

    The result is exact, or None if a cut lies outside its bracket.
    """
    n = len(values)
    sample = np.sort(values[_sampled_rows(n, sample_size)])
    return _cuts_between(values, ranks, [_bracket(sample, 1.0 - rank / n) for rank in ranks], block_size)


def _followed_cuts(values: Array, ranks: list[int], trail: Trail) -> list[Cut] | None:
    """The cuts, searched in brackets around the last ones, and from a sample if a bracket is wide or misses its cut.

    A bracket is wide if it contains more than 20 of about 256 sampled values. The result is exact, or None if the
    sample fails as well. `trail` is updated.
    """
    n, number = len(values), values.dtype.type
    last = [trail.get((n, rank), (math.nan, math.nan)) for rank in ranks]
    brackets = [(number(value - _REACH * moved), number(value + _REACH * moved)) for value, moved in last]
    few = values[:: -(-n // 256)]
    narrow = all(np.count_nonzero((few > low) & (few < high)) <= 20 for low, high in brackets)
    cuts = _cuts_between(values, ranks, brackets) if narrow and not np.isnan(brackets).any() else None
    cuts = _sampled_cuts(values, ranks) if cuts is None else cuts
    for rank, (value, moved), cut in zip(ranks, last, cuts or [], strict=False):
        move = abs(cut.value - value)
        # The first move is unknown, and a short move may be chance.
        trail[n, rank] = (cut.value, max(move, _FORGET * moved) if math.isfinite(moved) else move)
    return cuts


def _cuts_between(
    values: Array, ranks: list[int], brackets: list[tuple[Any, Any]], block_size: int = BLOCK
) -> list[Cut] | None:
    """The cuts if each lies in its bracket, otherwise None; one pass collects the values inside the brackets."""
    n = len(values)
    below, over = [0] * len(ranks), [0] * len(ranks)
    between: list[list[Array]] = [[] for _ in ranks]
    for start in range(0, n, block_size):
        block = values[start : start + block_size]
        for i, (low, high) in enumerate(brackets):
            inner = block > low
            over[i] += int(np.count_nonzero(inner))
            if low == high:  # ties fill the bracket: no values lie strictly inside
                below[i] += int(np.count_nonzero(block < low))
            else:
                inner &= block < high
                between[i].append(block[inner])
    cuts = []
    for rank, (low, high), n_below, n_over, blocks in zip(ranks, brackets, below, over, between, strict=True):
        inner = np.concatenate(blocks or [values[:0]])
        position = n - rank - (n - n_over)  # the position of the cut among the values above `low`, ascending
        if position < 0 and low == high:
            cut = Cut(float(low), rank - n_over, n - n_over - n_below)
        elif position < 0:
            cut = _cut_at(values, float(low), rank)
        elif position < len(inner):
            value = float(np.partition(inner, position)[position])
            at_most = np.count_nonzero(inner <= value)
            cut = Cut(value, rank - n_over + at_most, np.count_nonzero(inner == value))
        else:
            cut = _cut_at(values, float(high), rank)
        if not 0 < cut.taken <= cut.tied:
            return None
        cuts.append(cut)
    return cuts


@lru_cache(maxsize=8)
def _sampled_rows(n: int, sample_size: int = _SAMPLE_SIZE) -> Array:
    """A fixed random sample of the positions 0..n-1 with replacement, of size n / 12 + 3 up to `sample_size`.

    Results are reproducible. It is cached, so it is drawn only once.
    """
    return np.random.default_rng(0).integers(n, size=min(sample_size, n // 12 + 3))


def _bracket(sample: Array, share: float) -> tuple[Any, Any]:
    """Two values of the sorted sample, or infinities, that bracket the quantile `share` of the whole set.

    The bracket extends six standard deviations to each side.
    """
    size = len(sample)
    reach = 6.0 * math.sqrt(size * share * (1.0 - share)) + 8.0
    low, high = math.floor(size * share - reach), math.ceil(size * share + reach)
    return sample[low] if low >= 0 else -math.inf, sample[high] if high < size else math.inf


def _values_of_ranks(values: Array, ranks: Array) -> Array:
    """Array (S, 1): the value of rank ranks[i] in row i of values (S, n), where rank 1 is the largest."""
    n = values.shape[1]
    if (ranks == ranks[0]).all():
        index = n - ranks[0]
        return np.partition(values, index, axis=1)[:, index, None]
    found = np.empty((len(values), 1), dtype=values.dtype)
    for rank in np.unique(ranks):
        same, index = ranks == rank, n - rank
        found[same, 0] = np.partition(values[same], index, axis=1)[:, index]
    return found


def top_weights(values: Array, mass: Array, top: Array) -> Array:
    """Weights (S, n) of the largest values of each row, which sum to `top` (S,).

    `mass` (S, n) is the largest weight of each value. Ties at the cut share in proportion to their mass. If all masses
    are 0 or 1 and `top` has integers, `mass` may be bool, which is faster.
    """
    units = mass.dtype == bool
    inside = np.where(mass if units else mass > 0, values, -np.inf)
    rows = np.arange(len(values))
    if units:
        ranks = np.maximum(top.astype(np.intp), 1)
        cut = _values_of_ranks(inside, ranks)
        taken = inside >= cut
        if (taken.sum(axis=1) == top).all():  # the usual case: no ties at a cut
            return taken.astype(np.float64)
    else:
        order = np.argsort(-inside, axis=1, kind="stable")
        reached = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1)
        # The first position at which the mass is reached, up to rounding errors of the sum.
        index = (reached < (top * (1.0 - 1e-14))[:, None]).sum(axis=1).clip(max=values.shape[1] - 1)
        cut = inside[rows, order[rows, index]][:, None]
    above = mass * (inside > cut)
    tied = mass * (inside == cut)
    share = (top - above.sum(axis=1)) / np.maximum(tied.sum(axis=1), 1e-300)
    weights = above + tied * np.clip(share, 0.0, 1.0)[:, None]
    weights[top == 0] = 0.0
    return weights


@dataclass(frozen=True)
class Ranked:
    """The ranked range: the losses ranked m+1..k; losses tied at a cut share its weight in proportion to their mass.

    An object remembers its last cuts, which speed up the next selection and do not affect it.
    """

    name: ClassVar[str] = "ranked"
    linear: ClassVar[bool] = True
    _trail: Trail = field(default_factory=dict, init=False, repr=False, compare=False)

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights, total and cuts of the ranked range."""
        return select(s, m, k, mass, trail=self._trail)

    def take(self, rows: Array) -> Ranked:
        """The aggregate itself, which does not depend on the rows."""
        return self

    def caps(self, s: Array, m: float, mass: Array | None) -> Array | None:
        """The remaining mass of each row if the m largest losses are dropped; None means 1 each."""
        return mass if m == 0 else left_of(s, [(np.arange(len(s)), cuts_of(s, 0, m, mass)[0])], mass)

    def cuts(self, s: Array, m: float, mass: Array | None) -> list[tuple[Array | slice, Cut]]:
        """A list of one pair, all rows and the upper cut; empty if m = 0."""
        return [(slice(None), cuts_of(s, 0, m, mass)[0])] if m > 0 else []

    def blurred(self, s: Array, m: float, mass: Array | None) -> list[Array]:
        """A list of one array, the rows tied at the upper cut; empty if the cut does not divide ties or m = 0."""
        return blurred_rows(s, self.cuts(s, m, mass))

    def upper(self, s: Array, m: float, mass: Array | None) -> Array:
        """Weights of the m largest losses, which are dropped, for m > 0."""
        return select(s, 0, m, mass).weights

    def top(self, s: Array, mass: Array, m: Array) -> Array:
        """Weights of the dropped losses for many sets s (S, n) with masses (S, n); m is (S,)."""
        return top_weights(s, mass, m)


def top_within(s: Array, caps: Array | None, K: float) -> Array:
    """Weights of the largest losses that sum to K, at most `caps` (None means 1 each); ties share in proportion."""
    if caps is None:
        return select(s, 0, K).weights
    inside = caps > 0
    weights = np.zeros_like(s)
    weights[inside] = select(s[inside], 0, K, caps_that_matter(caps[inside], K)).weights
    return weights


def caps_that_matter(caps: Array, K: float) -> Array | None:
    """The caps, or None if all are 1 and K is an integer, because unweighted selection is faster."""
    return None if int(K) == K and (caps == 1.0).all() else caps


def left_of(s: Array, cuts: list[tuple[Array | slice, Cut]], mass: Array | None) -> Array:
    """The remaining mass of each row after these cuts; rows tied at a cut lose equal shares."""
    caps = np.ones(len(s)) if mass is None else mass.astype(np.float64)
    for rows, cut in cuts:
        over, tied = s[rows] > cut.value, s[rows] == cut.value
        caps[rows] *= np.where(over, 0.0, np.where(tied, 1.0 - cut.taken / cut.tied, 1.0))
    return caps


def blurred_rows(s: Array, cuts: list[tuple[Array | slice, Cut]]) -> list[Array]:
    """For each cut that divides tied losses, the tied rows."""
    every = np.arange(len(s))
    return [every[rows][s[rows] == cut.value] for rows, cut in cuts if cut.taken < cut.tied]
