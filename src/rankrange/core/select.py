"""Public functions for the ranked range of an array: its value, its weights and its two cuts.

This module validates the input and arranges it in rows; `rankrange.core.cuts` selects. With `sample_weight`, ranks are
cumulative weights: weight 2 equals the value twice, and a cut may fall inside a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .cuts import Cut, Selection, cuts_of, cuts_of_rows, select, select_rows
from .ranges import Rank, RankedRange, ThresholdRange

# The number of values that are checked at once, to save memory.
_BLOCK = 1 << 15


def ranked_range(
    values: ArrayLike,
    m: Rank | RankedRange | ThresholdRange,
    k: Rank | None = None,
    *,
    axis: int | None = -1,
    reduction: str = "mean",
    sample_weight: ArrayLike | None = None,
) -> Any:
    """Mean or sum of the values ranked m+1 to k, where rank 1 is the largest value.

    The maximum, the average, the median, the average top-k and the trimmed mean are special cases.

    Parameters
    ----------
    values : array_like
        Losses or any other real numbers; all of them finite.
    m : int, float, RankedRange or ThresholdRange
        How many of the largest values to drop. An int is a count, a float in [0, 1] a fraction of the values. A range
        object defines both m and k; leave k out then. A ThresholdRange needs a single slice and no `sample_weight`.
    k : int or float, optional
        The last rank to keep, as a count or a fraction: `k=1` keeps only the largest value, `k=1.0` keeps all.
    axis : int or None, default=-1
        The axis along which values are ranked; None ranks the flattened array.
    reduction : {"mean", "sum"}, default="mean"
        Whether to return the mean or the sum of the kept values.
    sample_weight : array_like, optional
        One weight per position along the axis, or one per value. Weight 2 equals the value twice, so ranks are
        cumulative weights, a cut may fall inside a value, and the mean is the weighted sum divided by k - m.

    Returns
    -------
    float or ndarray
        One number per slice along `axis`, in the dtype of the values (float64 for integers, float32 for float16). Sums
        are accumulated in float64.

    Raises
    ------
    ValueError
        Unless 0 <= m < k <= n, if a value is NaN or infinite, or if the requested sum overflows.

    Examples
    --------
    >>> from rankrange import RankedRange, ranked_range
    >>> losses = [9.0, 0.2, 0.7, 0.7, 0.1, 0.4]
    >>> float(ranked_range(losses, 1, 4))  # the mean of the ranks 2, 3 and 4
    0.6
    >>> float(ranked_range(losses, RankedRange.median()))
    0.55
    >>> ranked_range([[3.0, 1.0, 2.0], [0.0, 5.0, 5.0]], 0, 2, reduction="sum")
    array([ 5., 10.])
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
    """Weight of each value in the sum of the ranks m+1 to k.

    The weights are the derivative of `ranked_range(..., reduction="sum")`. If values are tied at a cut, the weights
    are a subgradient of the sum of the k largest values minus a subgradient of the sum of the m largest.

    Parameters
    ----------
    values : array_like
        Losses, ranked along `axis` from the largest (rank 1) to the smallest.
    m : int, float, RankedRange or ThresholdRange
        Ranks to drop: a count, a fraction in [0, 1], or a range object that defines both m and k, as in `ranked_range`.
    k : int or float, optional
        The last rank to keep, as a count or a fraction.
    axis : int or None, default=-1
        The axis along which values are ranked; None ranks the flattened array.
    sample_weight : array_like, optional
        One weight per position along the axis, or one per value; weight 2 equals the value twice.

    Returns
    -------
    ndarray of the shape of `values`
        Weights in [0, 1] that sum to k - m in each slice. Values tied at a cut share the remaining weight equally. With
        `sample_weight`, weights lie in [0, sample_weight], and tied values share in proportion to it.

    Examples
    --------
    >>> from rankrange import range_weights
    >>> range_weights([9.0, 0.7, 0.7, 0.1], 1, 2)
    array([0. , 0.5, 0.5, 0. ])
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
    """The two cuts of a ranked range: the k-th and the m-th largest value.

    Parameters
    ----------
    values : array_like
        Losses; all of them finite.
    m, k : int or float; m may also be a RankedRange or a ThresholdRange
        The ranks to keep, m+1 to k, as in `ranked_range`.
    axis : int or None, default=-1
        The axis along which values are ranked; None ranks the flattened array.
    sample_weight : array_like, optional
        Weights, one per position along the axis or one per value; weight 2 equals the value twice.

    Returns
    -------
    lam : float or ndarray
        The lower cut: the smallest value that is kept.
    lam_hat : float or ndarray
        The upper cut: the smallest of the m largest values, which are dropped; infinite if m = 0.

    Examples
    --------
    >>> from rankrange import thresholds
    >>> lam, lam_hat = thresholds([9.0, 0.2, 0.7, 0.7, 0.1, 0.4], 1, 4)
    >>> float(lam), float(lam_hat)
    (0.4, 9.0)
    """
    rows = _Rows(values, m, k, axis, sample_weight)
    lower, upper = rows.cuts()
    return rows.one_per_row(lower.value), rows.one_per_row(upper.value)


def _mean_of_large(values: NDArray[Any], weights: NDArray[Any], kept: Any) -> NDArray[Any]:
    """Weighted means of finite rows whose sums overflow: values are divided before the summation.

    Means are clipped to the range of the dtype of the values, which rounding errors may exceed.
    """
    half = np.einsum("ij,ij->i", weights / np.reshape(kept, (-1, 1)), values / 2)
    limit = np.finfo(values.dtype).max / 2
    return 2 * np.clip(half, -limit, limit)


class _Rows:
    """Validated input as a matrix whose rows are ranked separately, and the conversion back to the caller's shape."""

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
        self.weights = as_sample_weight(sample_weight, array, self.axis)
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

    def _one_by_one(self) -> Iterator[tuple[NDArray[Any], float, float, NDArray[Any]]]:
        assert self.weights is not None
        n_rows = len(self.values)
        masses = zip(np.broadcast_to(self.m, n_rows), np.broadcast_to(self.k, n_rows), strict=True)
        for i, (m, k) in enumerate(masses):
            yield self.values[i], m, k, self.weights[i]

    def cuts(self) -> tuple[Cut, Cut]:
        if self.weights is None:
            return cuts_of_rows(self.values, self.m, self.k)
        lower, upper = np.array([cuts_of(*row) for row in self._one_by_one()]).transpose(1, 2, 0)
        return Cut(*lower), Cut(*upper)

    def select(self) -> Selection:
        """Select in all rows. Totals may overflow to infinity or NaN without a warning; weights and cuts cannot."""
        with np.errstate(over="ignore", invalid="ignore"):
            if self.weights is None:
                return select_rows(self.values, self.m, self.k)
            found = [select(*row) for row in self._one_by_one()]
        return Selection(*(np.array(each) for each in zip(*found, strict=True)))

    def one_per_row(self, result: NDArray[Any]) -> Any:
        return result.astype(self.values.dtype).reshape(self._moved_shape[:-1])[()]

    def like_values(self, matrix: NDArray[Any]) -> NDArray[Any]:
        if self.axis is None:
            return matrix.reshape(self._shape)
        return np.moveaxis(matrix.reshape(self._moved_shape), -1, self.axis)


def as_range(m: Rank | RankedRange | ThresholdRange, k: Rank | None) -> RankedRange | ThresholdRange:
    """The range that m and k define; m may be a range object if k is left out."""
    if isinstance(m, RankedRange | ThresholdRange):
        if k is not None:
            raise TypeError(f"{m!r} already defines k, got k={k!r} as well; leave k out")
        return m
    if k is None:
        raise TypeError(f"need both m and k, got m={m!r} alone; pass m and k, or one RankedRange")
    return RankedRange(m, k)


def as_floats(values: ArrayLike, name: str = "values") -> NDArray[Any]:
    """Convert to floats: float16 to float32, integers and booleans to float64; anything else is an error.

    A single number is an error, and so are 64-bit integers beyond 2^53, which float64 cannot represent exactly. An
    array of float32 or float64 is not copied.
    """
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
                f"integer {name} must not exceed 2**53, where float64 stops distinguishing neighbours, "
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
    """Raise a ValueError with the number of NaN and infinite values if there are any; `array` is (rows, n).

    The array is read in blocks, to save memory.
    """
    bad = 0
    n_rows, n = array.shape
    step = max(1, _BLOCK // n)
    for i in range(0, n_rows, step):
        for start in range(0, n, _BLOCK):
            block = array[i : i + step, start : start + _BLOCK]
            bad += block.size - int(np.count_nonzero(np.isfinite(block)))
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


def as_sample_weight(weight: ArrayLike | None, array: NDArray[Any], axis: int | None) -> NDArray[Any] | None:
    """One weight per value, as a float64 matrix of the shape of the rows, because sums of weights determine ranks.

    None stays None. Another shape, and weights that are negative or not finite, are a ValueError.
    """
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
            f"sample_weight must have one weight per position along the axis, shape ({n},), or one per value, "
            f"shape {array.shape}, got shape {given.shape}; pass one of the two"
        )
    rows = moved.reshape(-1, n)
    check_finite(rows, "sample_weight")
    if (rows < 0).any():
        raise ValueError(f"sample_weight must not be negative, got {rows.min()}; use 0 to leave a value out")
    return rows
