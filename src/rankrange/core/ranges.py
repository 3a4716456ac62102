"""Ranges of a ranked set to keep: by rank (`RankedRange`) or by value (`ThresholdRange`). Pure Python.

Conventions, used everywhere in the package: values are ranked from the largest (rank 1) to the smallest (rank n); the
range keeps ranks m+1..k with 0 <= m < k <= n. An int is a count, a float in [0, 1] a fraction of n rounded to the
nearest count, so `k=1` keeps the largest value and `k=1.0` keeps all.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any, TypeAlias

Rank: TypeAlias = int | float


def check_rank(name: str, rank: object) -> Rank:
    """Return a rank as a plain int (a count) or float in [0, 1] (a fraction); anything else is an error."""
    if isinstance(rank, bool) or not isinstance(rank, numbers.Real):
        raise TypeError(
            f"{name} must be an int (a count) or a float in [0, 1] (a fraction), got {rank!r} of type "
            f"{type(rank).__name__}; pass for example {name}=10 or {name}=0.1"
        )
    if isinstance(rank, numbers.Integral):
        if rank < 0:
            raise ValueError(f"{name} must not be negative, got {name}={rank}; use 0 or a positive count")
        return int(rank)
    if not 0.0 <= float(rank) <= 1.0:  # also catches NaN
        raise ValueError(
            f"a float {name} is a fraction and must be in [0, 1], got {name}={rank}; pass an int for a count"
        )
    return float(rank)


def check_rates(name: str, rates: Any) -> tuple[float, float]:
    """Return a pair of rates with 0 <= lo < hi <= 1 as plain numbers; anything else is an error."""
    remedy = f"pass for example {name}=(0.0, 0.05)"
    if not hasattr(rates, "__len__") or isinstance(rates, str) or len(rates) != 2:
        raise TypeError(f"{name} must be a pair of rates (lo, hi), got {rates!r}; {remedy}")
    lo, hi = rates
    if any(isinstance(rate, bool) or not isinstance(rate, numbers.Real) for rate in (lo, hi)):
        raise TypeError(f"{name} must be a pair of numbers (lo, hi), got {rates!r}; {remedy}")
    if not 0.0 <= float(lo) < float(hi) <= 1.0:  # also catches NaN
        raise ValueError(f"need 0 <= lo < hi <= 1, got {name}={rates!r}; {remedy}")
    return float(lo), float(hi)


@dataclass(frozen=True)
class RankedRange:
    """The ranks of a set of values to keep: m+1 to k, where rank 1 is the largest value.

    A range can be defined before the number of values is known. The class methods give the usual ranges: `average`,
    `maximum`, `median`, `top`, `trimmed` and `kth`.

    Parameters
    ----------
    m : int or float, default=0
        How many of the largest values to drop. An int is a count, a float in [0, 1] a fraction of the values.
    k : int or float, default=1.0
        The last rank to keep, as a count or a fraction: `k=1` keeps only the largest value, `k=1.0` keeps all.

    Raises
    ------
    TypeError, ValueError
        If m or k is neither a count nor a fraction, or if both are counts or both fractions and m is not below k.

    Examples
    --------
    >>> from rankrange import RankedRange, ranked_range
    >>> keep = RankedRange(0.2, 1.0)  # drop the largest fifth
    >>> keep.counts(10)
    (2, 10)
    >>> float(ranked_range([9.0, 0.25, 0.75, 0.75, 0.25], keep))
    0.5
    """

    m: Rank = 0
    k: Rank = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", check_rank("m", self.m))
        object.__setattr__(self, "k", check_rank("k", self.k))
        if type(self.m) is type(self.k) and self.m >= self.k:
            raise ValueError(f"need m < k, got m={self.m}, k={self.k}; lower m or raise k")

    def counts(self, n: int) -> tuple[int, int]:
        """Convert m and k to counts for a set of n values; fractions are rounded to the nearest count.

        A ValueError unless 0 <= m < k <= n.

        Examples
        --------
        >>> RankedRange(1, 0.5).counts(8)
        (1, 4)
        """
        m, k = self.masses(n, whole=True)
        return int(m), int(k)

    def masses(self, total: float, *, whole: bool) -> tuple[float, float]:
        """Convert m and k to sums of weights, for values with weights that sum to `total`.

        An int is such a sum already; a float is a fraction of the total, rounded if all weights are integers (`whole`).
        The median of other weights is a ValueError.
        """
        if not total > 0:
            raise ValueError(f"a ranked range needs at least one value, got n={total}; pass a non-empty set")
        m, k = self._masses(total, whole)
        if not 0 <= m < k <= total:
            raise ValueError(
                f"need 0 <= m < k <= n, got m={m:.12g}, k={k:.12g} for n={total:.12g} values "
                f"(from m={self.m!r}, k={self.k!r}); {'lower k to n' if m < total < k else 'lower m or raise k'}"
            )
        return m, k

    def _masses(self, total: float, whole: bool) -> tuple[float, float]:
        return _mass(self.m, total, whole), _mass(self.k, total, whole)

    @classmethod
    def average(cls) -> RankedRange:
        """Keep all values: m = 0, k = n."""
        return cls(0, 1.0)

    @classmethod
    def maximum(cls) -> RankedRange:
        """Keep only the largest value: m = 0, k = 1."""
        return cls(0, 1)

    @classmethod
    def median(cls) -> RankedRange:
        """Keep the middle value, or the two middle ones: m = floor((n+1)/2) - 1, k = ceil((n+1)/2).

        Examples
        --------
        >>> RankedRange.median().counts(5), RankedRange.median().counts(6)
        ((2, 3), (2, 4))
        """
        return _Median()

    @classmethod
    def top(cls, k: Rank) -> RankedRange:
        """Keep the k largest values, a count or a fraction, whose mean is the average top-k (AT_k): m = 0."""
        return cls(0, k)

    @classmethod
    def trimmed(cls, m: Rank) -> RankedRange:
        """Keep all but the m largest values, a count or a fraction: k = n."""
        return cls(m, 1.0)

    @classmethod
    def kth(cls, k: Rank) -> RankedRange:
        """Keep only the k-th largest value: m = k - 1. The rank k is a count of at least 1 or a fraction."""
        k = check_rank("k", k)
        if k == 0:
            raise ValueError(f"the k-th largest needs k >= 1, got k={k}; the largest value is k=1")
        return cls(k - 1, k) if isinstance(k, int) else _SingleRank(k, k)

    @classmethod
    def robust_maximum(cls, outliers: Rank) -> RankedRange:
        """Keep only the largest value after dropping some as outliers, a count or a fraction.

        This is Robust_Max, a baseline of the paper, without its convex relaxation.
        """
        m = check_rank("outliers", outliers)
        return cls(m, m + 1) if isinstance(m, int) else _SingleRank(m, m, below=1)


def _mass(rank: Rank, total: float, whole: bool) -> float:
    if isinstance(rank, int):
        return rank
    if rank == 1.0:
        return total
    return round(rank * total) if whole else rank * total


@dataclass(frozen=True, repr=False)
class _Median(RankedRange):
    m: Rank = 0.5
    k: Rank = 0.5

    def __post_init__(self) -> None:
        """No checks: the counts depend only on n."""

    def _masses(self, total: float, whole: bool) -> tuple[float, float]:
        if not whole:
            raise ValueError(
                f"the median needs whole counts, got a total weight of {total:.12g} made of fractions; "
                "use integer weights, or RankedRange(m, k) with fractions around 0.5"
            )
        return (total + 1) // 2 - 1, -((-total - 1) // 2)

    def __repr__(self) -> str:
        return "RankedRange.median()"


@dataclass(frozen=True, repr=False)
class _SingleRank(RankedRange):
    """A single rank given as a fraction: `below` = 1 keeps the first rank after that fraction, 0 the last before it."""

    below: int = 0

    def __post_init__(self) -> None:
        """No checks: m and k are one fraction, which the class method has validated."""

    def _masses(self, total: float, whole: bool) -> tuple[float, float]:
        k = _mass(self.k, total, whole) + self.below
        return k - 1, k

    def __repr__(self) -> str:
        return f"RankedRange.{'robust_maximum' if self.below else 'kth'}({self.k!r})"


@dataclass(frozen=True)
class ThresholdRange:
    """The values to keep, given by two thresholds: those with lam < value <= lam_hat.

    It is the ranked range with m = #{values > lam_hat} and k = #{values > lam}. Both thresholds are values of losses,
    not ranks.

    Parameters
    ----------
    lam : float, default=-inf
        The lower cut. Values at or below it are dropped.
    lam_hat : float, default=inf
        The upper cut. Values above it are dropped.

    Raises
    ------
    TypeError, ValueError
        If one of them is not a number, or if lam is above lam_hat.

    Examples
    --------
    >>> from rankrange import ThresholdRange, ranked_range
    >>> float(ranked_range([9.0, 0.25, 0.75, 0.75, 0.1], ThresholdRange(0.2, 1.0), reduction="sum"))
    1.75
    """

    lam: float = -math.inf
    lam_hat: float = math.inf

    def __post_init__(self) -> None:
        for name in ("lam", "lam_hat"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise TypeError(
                    f"{name} must be a number, got {value!r} of type {type(value).__name__}; pass a loss value"
                )
            object.__setattr__(self, name, float(value))
        if not self.lam <= self.lam_hat:
            raise ValueError(
                f"need lam <= lam_hat, got lam={self.lam}, lam_hat={self.lam_hat}; lam is the lower cut, lam_hat the "
                "upper, and neither may be NaN"
            )

    def counts(self, values: Any) -> tuple[int, int]:
        """m, the number of values (n,) above lam_hat, and k, the number above lam; a ValueError if none is between.

        Examples
        --------
        >>> import numpy as np
        >>> ThresholdRange(0.15, 1.0).counts(np.array([9.0, 0.2, 0.7, 0.7, 0.1]))
        (1, 4)
        """
        m, k = int((values > self.lam_hat).sum()), int((values > self.lam).sum())
        if m == k:
            raise ValueError(
                f"need a value in (lam, lam_hat], got none in ({self.lam}, {self.lam_hat}]: {m} of {len(values)} are "
                "above, the others at or below; lower lam or raise lam_hat"
            )
        return m, k
