"""The ranked range of an array: its weights, its value and its two cuts, by selection (never a full sort).

phi_k, the sum of the k largest, is linear between ties: weight 1 above the cut s_[k], an equal share of what is left
on the values tied with it, 0 below. The ranked range is phi_k - phi_m, so its weights are the difference of the two.

With `sample_weight`, ranks become mass: weight 2 is the value twice, and a cut may fall inside a value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .ranges import Rank, RankedRange, ThresholdRange

# Below this many values np.partition alone is quicker than sampling pivots first.
_SAMPLED_FROM = 1 << 14
_SAMPLE_SIZE = 1 << 15  # at most; a smaller set is sampled more sparsely
# Blocks that stay in a core's cache: several passes over a block cost little more than one over memory.
_BLOCK = 1 << 15
# Up to this length the rows of an array are selected together; beyond it, one after the other.
_ROWS_TOGETHER = 1 << 14


class Cut(NamedTuple):
    """The top of a set: everything above `value`, and `taken` out of the `tied` that equal it (counts, or mass).

    Counts and not a share of the tie: differences of counts are exact, those of shares lose their digits.
    """

    value: Any  # a number, or one a row, as all three
    taken: Any
    tied: Any


class Selection(NamedTuple):
    """Weights like the values; the weighted sum (accumulated in float64) and the two cuts, a number or one a row."""

    weights: NDArray[Any]
    total: Any
    lam: Any
    lam_hat: Any


def ranked_range(
    values: ArrayLike,
    m: Rank | RankedRange | ThresholdRange,
    k: Rank | None = None,
    *,
    axis: int | None = -1,
    reduction: str = "mean",
    sample_weight: ArrayLike | None = None,
) -> Any:
    """Mean (or sum) of the values ranked m+1..k along `axis`, rank 1 the largest.

    m and k are counts (int) or fractions of n (float); one `RankedRange` or `ThresholdRange` may stand for both.
    `axis=None` ranks the flattened array. The result has the dtype of the values (integers give float64), and sums
    are accumulated in float64. With `sample_weight` (one weight a position along the axis, or one a value) ranks are
    mass, and the mean is over the mass k - m.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum', got {reduction!r}; choose one of the two")
    rows = _Rows(values, m, k, axis, sample_weight)
    selection = rows.select()
    kept = rows.k - rows.m
    total, mean = selection.total, selection.total / kept
    if not np.isfinite(total).all():
        mean = _mean_of_large(rows.values, selection.weights, kept)
        with np.errstate(over="ignore"):
            total = mean * kept
    if reduction == "mean":
        return rows.one_per_row(mean)
    if np.abs(total).max() > np.finfo(rows.values.dtype).max:
        raise ValueError(
            f"the sum of the kept values must fit {rows.values.dtype}, got a mean of {np.abs(mean).max():.3g} over "
            f"{np.max(kept):.12g} values; use reduction='mean', or scale the values"
        )
    return rows.one_per_row(total)


def range_weights(
    values: ArrayLike,
    m: Rank | RankedRange | ThresholdRange,
    k: Rank | None = None,
    *,
    axis: int | None = -1,
    sample_weight: ArrayLike | None = None,
) -> NDArray[Any]:
    """Weights in [0, 1] that sum to k - m along `axis`: 1 inside ranks m+1..k, shared equally by values tied at a cut.

    They are the derivative of `ranked_range(..., reduction="sum")` (a subgradient of phi_k less one of phi_m where
    values tie). With `sample_weight` they lie in [0, sample_weight] and sum to the mass k - m.
    """
    rows = _Rows(values, m, k, axis, sample_weight)
    return rows.like_values(rows.select().weights)


def thresholds(
    values: ArrayLike,
    m: Rank | RankedRange | ThresholdRange,
    k: Rank | None = None,
    *,
    axis: int | None = -1,
    sample_weight: ArrayLike | None = None,
) -> tuple[Any, Any]:
    """(lam, lam_hat) = (s_[k], s_[m]): the lower and the upper cut along `axis`; lam_hat is infinite where m = 0."""
    rows = _Rows(values, m, k, axis, sample_weight)
    lower, upper = rows.cuts()
    return rows.one_per_row(lower.value), rows.one_per_row(upper.value)


def select(
    values: NDArray[Any],
    m: float,
    k: float,
    sample_weight: NDArray[Any] | None = None,
    out: NDArray[Any] | None = None,
) -> Selection:
    """Weights, total and cuts of one set of finite floats, 0 <= m < k <= n given. What every solver iteration calls."""
    lower, upper = cuts_of(values, m, k, sample_weight)
    weights = np.empty_like(values) if out is None else out
    # Most values lie strictly inside or outside. A cut kept whole counts as inside; only a shared one is written apart.
    at_lower, at_upper = _kept_of_ties(lower, upper)
    shared = [(cut, kept) for cut, kept in ((upper, at_upper), (lower, at_lower)) if 0 < kept < cut.tied]
    above = np.greater if at_lower < lower.tied else np.greater_equal
    below = np.less if at_upper < upper.tied else np.less_equal
    total = math.fsum(cut.value * kept for cut, kept in shared)
    for start in range(0, len(values), _BLOCK):
        block = slice(start, start + _BLOCK)
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


def cuts_of(values: NDArray[Any], m: float, k: float, sample_weight: NDArray[Any] | None = None) -> tuple[Cut, Cut]:
    """The lower cut (rank k) and the upper cut (rank m) of one set."""
    if sample_weight is not None:
        return _mass_cut(values, sample_weight, k), _NO_CUT if m == 0 else _mass_cut(values, sample_weight, m)
    if k == len(values):  # nothing is cut below: no selection is needed to find the smallest
        lower = _cut_at(values, float(values.min()), len(values))
        return lower, _NO_CUT if m == 0 else cuts_of(values, 0, m)[0]
    ranks = [int(k), int(m)] if m else [int(k)]
    cuts = _sampled_cuts(values, ranks) if len(values) >= _SAMPLED_FROM else None
    if cuts is None:
        positions = [len(values) - rank for rank in ranks]  # ascending: rank r stands at position n - r
        part = np.partition(values, positions)
        cuts = [_cut_at(values, float(part[p]), rank) for p, rank in zip(positions, ranks, strict=True)]
    return cuts[0], cuts[1] if m else _NO_CUT


_NO_CUT = Cut(math.inf, 0.0, 1.0)


def _cut_at(values: NDArray[Any], value: float, rank: int) -> Cut:
    above = tied = 0
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        above += np.count_nonzero(block > value)
        tied += np.count_nonzero(block == value)
    return Cut(value, rank - above, tied)


def _kept_of_ties(lower: Cut, upper: Cut) -> tuple[Any, Any]:
    """How much is kept of the values tied with the lower cut, and of those tied with the upper."""
    same = lower.value == upper.value  # then all that is kept is here, and counted as the lower cut's
    return lower.taken - same * upper.taken, (1 - same) * (upper.tied - upper.taken)


def _mean_of_large(values: NDArray[Any], weights: NDArray[Any], kept: Any) -> NDArray[Any]:
    """Weighted means of finite rows whose sums leave the range of floats: divided first, and by two more for safety."""
    half = np.einsum("ij,ij->i", weights / np.reshape(kept, (-1, 1)), values / 2)
    limit = np.finfo(values.dtype).max / 2
    return 2 * np.clip(half, -limit, limit)


def _dot(weights: NDArray[Any], values: NDArray[Any]) -> float:
    if values.dtype != np.float64:
        weights, values = weights.astype(np.float64), values.astype(np.float64)
    return float(np.dot(weights, values))


def select_rows(values: NDArray[Any], m: int, k: int) -> Selection:
    """`select` for all rows of a matrix of short rows together."""
    lower, upper = _cuts_of_rows(values, m, k)
    weights = ((values > lower.value[:, None]) & (values < upper.value[:, None])).astype(values.dtype)
    total = np.einsum("ij,ij->i", weights, values, dtype=np.float64)
    at_lower, at_upper = _kept_of_ties(lower, upper)
    for cut, kept in ((upper, at_upper), (lower, at_lower)):
        share = (kept / cut.tied)[:, None]
        np.copyto(weights, share, where=values == cut.value[:, None], casting="same_kind")
        total += np.where(np.isinf(cut.value), 0.0, cut.value) * kept
    return Selection(weights, total, lower.value, upper.value)


def _cuts_of_rows(values: NDArray[Any], m: int, k: int) -> tuple[Cut, Cut]:
    n_rows, n = values.shape
    # The smallest needs no selection, and asking for it would slow down the one for the other rank.
    positions = [n - rank for rank in (k, m) if 0 < rank < n]
    part = np.partition(values, positions, axis=1) if positions else values
    cuts = [Cut(np.full(n_rows, math.inf, values.dtype), np.zeros(n_rows), np.ones(n_rows))] * 2
    for i, rank in enumerate((k, m)):
        if rank:
            value = part[:, n - rank].copy() if rank < n else values.min(axis=1)
            above, tied = (test(values, value[:, None]).sum(axis=1) for test in (np.greater, np.equal))
            cuts[i] = Cut(value, rank - above, tied)
    return cuts[0], cuts[1]


def _sampled_cuts(values: NDArray[Any], ranks: list[int]) -> list[Cut] | None:
    """Floyd and Rivest: a sorted sample brackets each cut; one pass over the values collects what lies between.

    Exact, or None when the sample was unlucky and a cut lies outside its bracket.
    """
    n = len(values)
    sample = np.sort(values[_sampled_rows(n)])
    brackets = [_bracket(sample, 1.0 - rank / n) for rank in ranks]
    below, over = [0] * len(ranks), [0] * len(ranks)
    between: list[list[NDArray[Any]]] = [[] for _ in ranks]
    for start in range(0, n, _BLOCK):
        block = values[start : start + _BLOCK]
        for i, (low, high) in enumerate(brackets):
            inner = block > low
            over[i] += np.count_nonzero(inner)
            if low == high:  # a tie so large that it fills the bracket: nothing lies between
                below[i] += np.count_nonzero(block < low)
            else:
                inner &= block < high
                between[i].append(block[inner])
    cuts = []
    for rank, (low, high), n_below, n_over, blocks in zip(ranks, brackets, below, over, between, strict=True):
        inner = np.concatenate(blocks or [values[:0]])
        position = n - rank - (n - n_over)  # of the cut among the values over `low`, ascending
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
def _sampled_rows(n: int) -> NDArray[Any]:
    """The same rows each time: results and times repeat, and a solver that selects again and again draws once."""
    return np.random.default_rng(0).integers(n, size=min(_SAMPLE_SIZE, n // 12 + 3))


def _bracket(sample: NDArray[Any], share: float) -> tuple[Any, Any]:
    """Two values between which the quantile `share` of the whole set almost surely lies: six standard deviations."""
    size = len(sample)
    reach = 6.0 * math.sqrt(size * share * (1.0 - share)) + 8.0
    low, high = math.floor(size * share - reach), math.ceil(size * share + reach)
    return sample[low] if low >= 0 else -math.inf, sample[high] if high < size else math.inf


def _mass_cut(values: NDArray[Any], weights: NDArray[Any], mass: float) -> Cut:
    """The value at which the mass counted from the top reaches `mass`, by quickselect on medians."""
    present = weights > 0
    values, weights = values[present], weights[present].astype(np.float64)
    above = 0.0
    while True:
        middle = len(values) // 2
        pivot = np.partition(values, middle)[middle]
        higher, tied = values > pivot, values == pivot
        mass_higher, mass_tied = float(weights[higher].sum()), float(weights[tied].sum())
        if above + mass_higher >= mass:
            kept = higher
        else:
            lower = ~(higher | tied)
            # Rounding of the sums may leave a hair of mass when nothing is left below: the cut is the last value.
            if above + mass_higher + mass_tied >= mass or not lower.any():
                return Cut(float(pivot), min(mass_tied, mass - above - mass_higher), mass_tied)
            above += mass_higher + mass_tied
            kept = lower
        values, weights = values[kept], weights[kept]


class _Rows:
    """Validated input as a matrix whose rows are ranked one by one, and the way back to the caller's shape."""

    def __init__(
        self,
        values: ArrayLike,
        m: Rank | RankedRange | ThresholdRange,
        k: Rank | None,
        axis: int | None,
        sample_weight: ArrayLike | None,
    ) -> None:
        array = as_floats(values)
        self.axis = None if axis is None else _check_axis(axis, array.ndim)
        self._shape = array.shape
        moved = array.reshape(-1) if self.axis is None else np.moveaxis(array, self.axis, -1)
        self._moved_shape = moved.shape
        n = moved.shape[-1]
        if array.size == 0:
            raise ValueError(
                f"a ranked range needs at least one value, got shape {array.shape}; pass a non-empty array"
            )
        self.values = moved.reshape(-1, n)
        check_finite(self.values, "values")
        self.weights = _as_sample_weight(sample_weight, array, self.axis)
        self.m, self.k = self._masses(as_range(m, k), n)

    def _masses(self, keep: RankedRange | ThresholdRange, n: int) -> tuple[Any, Any]:
        if isinstance(keep, ThresholdRange):
            if len(self.values) > 1 or self.weights is not None:
                raise ValueError(
                    f"a ThresholdRange ranks one unweighted set at a time, got shape {self._shape}; "
                    "pass axis=None or one slice, and no sample_weight"
                )
            with np.errstate(over="ignore"):  # a threshold beyond float32 compares as infinite, which is right
                return keep.counts(self.values[0])
        if self.weights is None:
            return keep.counts(n)
        whole = bool((self.weights == np.floor(self.weights)).all())
        per_row = [keep.masses(float(total), whole=whole) for total in self.weights.sum(axis=1)]
        m, k = np.array(per_row).T
        return (m[0], k[0]) if len(per_row) == 1 else (m, k)

    @property
    def _together(self) -> bool:
        return self.weights is None and len(self.values) > 1 and self.values.shape[1] <= _ROWS_TOGETHER

    def _one_by_one(self) -> Iterator[tuple[NDArray[Any], float, float, NDArray[Any] | None]]:
        n_rows = len(self.values)
        masses = zip(np.broadcast_to(self.m, n_rows), np.broadcast_to(self.k, n_rows), strict=True)
        for i, (m, k) in enumerate(masses):
            yield self.values[i], m, k, None if self.weights is None else self.weights[i]

    def cuts(self) -> tuple[Cut, Cut]:
        if self._together:
            return _cuts_of_rows(self.values, self.m, self.k)
        lower, upper = np.array([cuts_of(*row) for row in self._one_by_one()]).transpose(1, 2, 0)
        return Cut(*lower), Cut(*upper)

    def select(self) -> Selection:
        """Totals may overflow to infinity or NaN without a warning; weights and cuts cannot."""
        with np.errstate(over="ignore", invalid="ignore"):
            if self._together:
                return select_rows(self.values, self.m, self.k)
            weights = np.empty_like(self.values)
            found = [select(*row, out=weights[i]) for i, row in enumerate(self._one_by_one())]
        return Selection(weights, *np.array([(s.total, s.lam, s.lam_hat) for s in found]).T)

    def one_per_row(self, result: NDArray[Any]) -> Any:
        return result.astype(self.values.dtype).reshape(self._moved_shape[:-1])[()]

    def like_values(self, matrix: NDArray[Any]) -> NDArray[Any]:
        if self.axis is None:
            return matrix.reshape(self._shape)
        return np.moveaxis(matrix.reshape(self._moved_shape), -1, self.axis)


def as_range(m: Rank | RankedRange | ThresholdRange, k: Rank | None) -> RankedRange | ThresholdRange:
    """The range that (m, k) stand for; a range object stands for itself, with k left out."""
    if isinstance(m, RankedRange | ThresholdRange):
        if k is not None:
            raise TypeError(f"{m!r} already says what to keep, got k={k!r} beside it; leave k out")
        return m
    if k is None:
        raise TypeError(f"need both m and k, got m={m!r} alone; pass m and k, or one RankedRange")
    return RankedRange(m, k)


def as_floats(values: ArrayLike, name: str = "values") -> NDArray[Any]:
    """Floats as they are (float16 as float32), integers and booleans as float64; anything else is an error."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must form a rectangular array, got ragged rows; pad or split them") from error
    if array.dtype in (np.float64, np.float32):
        result = array
    elif array.dtype == np.float16:
        result = array.astype(np.float32)
    elif array.dtype.kind in "iub":
        result = array.astype(np.float64)
        if array.dtype.itemsize == 8 and array.size and np.abs(result).max() > 2.0**53:
            raise ValueError(
                f"integer {name} must not exceed 2**53, where float64 stops telling neighbours apart, "
                f"got {np.abs(result).max():.17g}; scale them or pass floats"
            )
    else:
        raise TypeError(f"{name} must be real numbers, got dtype {array.dtype}; pass an array of floats or integers")
    if result.ndim == 0:
        raise ValueError(
            f"{name} must have at least one dimension, got the single number {array}; pass a list or array"
        )
    return result


def check_finite(array: NDArray[Any], name: str) -> None:
    """An error that counts what is not finite; block by block, so that no mask of the whole array is built."""
    bad = 0
    n_rows, n = array.shape
    step = max(1, _BLOCK // n)
    for i in range(0, n_rows, step):
        for start in range(0, n, _BLOCK):
            block = array[i : i + step, start : start + _BLOCK]
            bad += block.size - np.count_nonzero(np.isfinite(block))
    if bad:
        raise ValueError(
            f"{name} must be finite, got {bad} NaN or infinite of {array.size}; "
            "drop these entries, or find out where they come from"
        )


def _check_axis(axis: int, ndim: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise TypeError(f"axis must be an int or None, got {axis!r}; pass -1 for the last axis, None for all values")
    if not -ndim <= axis < ndim:
        raise ValueError(
            f"axis must lie in [-{ndim}, {ndim}), got axis={axis} for an array of {ndim} dimensions; "
            "pass -1 for the last axis, None for all values"
        )
    return int(axis)


def _as_sample_weight(weight: ArrayLike | None, array: NDArray[Any], axis: int | None) -> NDArray[Any] | None:
    """One weight a value, as a matrix like the rows: float64, because sums of weights decide ranks."""
    if weight is None:
        return None
    given = as_floats(weight, "sample_weight").astype(np.float64)
    n = array.size if axis is None else array.shape[axis]
    if given.shape == array.shape:
        moved = given if axis is None else np.moveaxis(given, axis, -1)
    elif given.shape == (n,):
        moved = np.broadcast_to(given, (array.size // n, n))
    else:
        raise ValueError(
            f"sample_weight must have one weight a position along the axis, shape ({n},), or one a value, "
            f"shape {array.shape}, got shape {given.shape}; pass one of the two"
        )
    rows = moved.reshape(-1, n)
    check_finite(rows, "sample_weight")
    if (rows < 0).any():
        raise ValueError(
            f"sample_weight must not be negative, got {rows.min()}; a weight counts how often a value is there"
        )
    return rows
