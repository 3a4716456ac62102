"""What to keep of a ranked set: by rank (`RankedRange`) or by value (`ThresholdRange`). Pure Python.

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
    """A plain int (a count) or a plain float in [0, 1] (a fraction); anything else is an error."""
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


@dataclass(frozen=True)
class RankedRange:
    """Keep the values ranked m+1..k. `counts(n)` turns fractions into counts for a set of n values."""

    m: Rank = 0
    k: Rank = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", check_rank("m", self.m))
        object.__setattr__(self, "k", check_rank("k", self.k))
        if type(self.m) is type(self.k) and self.m >= self.k:
            raise ValueError(f"need m < k, got m={self.m}, k={self.k}; lower m or raise k")

    def counts(self, n: int) -> tuple[int, int]:
        """(m, k) as counts for n values; an error unless 0 <= m < k <= n."""
        m, k = self.masses(n, whole=True)
        return int(m), int(k)

    def masses(self, total: float, *, whole: bool) -> tuple[float, float]:
        """(m, k) as masses out of `total`; fractions are rounded to counts only where the mass consists of `whole`s."""
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
        """All values: m = 0, k = n."""
        return cls(0, 1.0)

    @classmethod
    def maximum(cls) -> RankedRange:
        """The largest value alone: m = 0, k = 1."""
        return cls(0, 1)

    @classmethod
    def median(cls) -> RankedRange:
        """The middle value, or the two middle ones: m = floor((n+1)/2) - 1, k = ceil((n+1)/2)."""
        return _Median()

    @classmethod
    def top(cls, k: Rank) -> RankedRange:
        """The k largest (the average top-k, AT_k): m = 0."""
        return cls(0, k)

    @classmethod
    def trimmed(cls, m: Rank) -> RankedRange:
        """All but the m largest: k = n."""
        return cls(m, 1.0)

    @classmethod
    def kth(cls, k: Rank) -> RankedRange:
        """The k-th largest value alone: m = k - 1."""
        k = check_rank("k", k)
        if k == 0:
            raise ValueError(f"the k-th largest needs k >= 1, got k={k}; the largest value is k=1")
        return cls(k - 1, k) if isinstance(k, int) else _SingleRank(k, k)

    @classmethod
    def robust_maximum(cls, outliers: Rank) -> RankedRange:
        """The largest value once `outliers` values are left out: what Robust_Max becomes without its relaxation."""
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
        """Nothing to check: the counts depend on n alone."""

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
    """One rank, placed by a fraction: `below` = 1 keeps the rank after that fraction, 0 the last one inside it."""

    below: int = 0

    def __post_init__(self) -> None:
        """m and k are one fraction, checked by the constructor that is called."""

    def _masses(self, total: float, whole: bool) -> tuple[float, float]:
        k = _mass(self.k, total, whole) + self.below
        return k - 1, k

    def __repr__(self) -> str:
        return f"RankedRange.{'robust_maximum' if self.below else 'kth'}({self.k!r})"


@dataclass(frozen=True)
class ThresholdRange:
    """Keep the values with lam < value <= lam_hat: the ranked range with m = #{> lam_hat} and k = #{> lam}."""

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
        """(m, k) of an array of values: how many lie above each threshold; an error where nothing lies between."""
        m, k = int((values > self.lam_hat).sum()), int((values > self.lam).sum())
        if m == k:
            raise ValueError(
                f"need a value in (lam, lam_hat], got none in ({self.lam}, {self.lam_hat}]: {m} of {len(values)} are "
                "above, the others at or below; lower lam or raise lam_hat"
            )
        return m, k
