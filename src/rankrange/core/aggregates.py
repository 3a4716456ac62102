"""Aggregates combine the losses of all rows into one number. Only aggregates select rows.

The arguments of an aggregate are the losses s (n,), the `mass` (n,) of the rows (None means 1 each), and the masses m
and k: ranks m+1 to k are kept. `select` returns weights q >= 0 that sum to k - m, and the `total`, which the objective
divides by k - m; q is the derivative of the total with respect to s. `take` returns the same aggregate for a subset of
the rows. An aggregate for which m and k have no effect has `uses_m = False`.

Optional methods decide which solvers can be used:
- `cuts` (rows, and the cut among their losses), `caps` (the mass that is left of each row after dropping) and `blurred`
  (rows that are tied at a cut) define a sum of the largest losses. It is an upper bound on the objective that equals it
  at the current losses, and the exact methods minimise and certify it.
- `majorant` (a convex function and the tangent at s that is subtracted from it, which give a convex upper bound that
  equals the objective at s) is minimised and certified by the descent of upper bounds.
- `start` (an aggregate with `caps`, and its m: the given mass or a fraction) is the simpler problem whose solution
  starts this descent.

A new aggregate is one class and one entry in `AGGREGATES`; the tests of solvers run over the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from .arrays import Array
from .cuts import Cut, Dropping, Ranked, Selection, cuts_of, top_within
from .rank_weights import Spectrum, on_ranks, spectrum_source
from .risks import GroupRisk, SpectrumRisk


@runtime_checkable
class Aggregate(Protocol):
    """The methods that every aggregate has."""

    name: ClassVar[str]

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights q >= 0 of the losses s (n,), which sum to k - m; the total, whose derivative in s is q; and the cuts.

        m and k are masses, 0 <= m < k <= the total mass, and `mass` (n,) is that of each row (None: 1 each). The lower
        and the upper cut are infinite if the aggregate has none.
        """

    def take(self, rows: Array) -> Aggregate:
        """The same aggregate for a subset of the rows, given by their indices."""


@dataclass(frozen=True, eq=False)
class Stratified(Dropping):
    """The ranked range with the same share dropped in each class, which protects rare classes.

    The m_c largest losses of each class c are dropped. The m_c sum to m and are proportional to the sizes of the
    classes; if m and all sizes are integers, they are rounded to integers. Of the remaining losses the k - m largest
    are kept. For k = n this is a trimmed mean within classes.
    """

    groups: Array  # the class of each row, 0..G-1
    name: ClassVar[str] = "stratified"

    def cuts(self, s: Array, m: float, mass: Array | None) -> list[tuple[Array | slice, Cut]]:
        """For each class its rows and the cut at its share of m; classes without dropped rows are left out."""
        sizes = map(len, self._members) if mass is None else np.bincount(self.groups, weights=mass)
        found: list[tuple[Array | slice, Cut]] = []
        for rows, quota in zip(self._members, _quotas_of(float(m), *map(float, sizes)), strict=True):
            if quota > 0:
                found.append((rows, cuts_of(s[rows], 0, quota, None if mass is None else mass[rows])[0]))
        return found

    @cached_property
    def _members(self) -> list[Array]:
        """The rows of each class."""
        return [np.flatnonzero(self.groups == group) for group in range(int(self.groups.max()) + 1)]

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights, total and cuts; the upper cut is an array with one entry per class with dropped rows.

        It is empty if m = 0.
        """
        weights = top_within(s, self.caps(s, m, mass), k - m)
        highest = np.array([cut.value for _, cut in self.cuts(s, m, mass)])
        return Selection(weights, float(weights.astype(np.float64) @ s), float(s[weights > 0].min()), highest)

    def take(self, rows: Array) -> Stratified:
        """The same aggregate for a subset of the rows."""
        return Stratified(self.groups[rows])


@dataclass(frozen=True, eq=False)
class WorstGroup:
    """The largest of the groups' mean losses, or the average of the largest ones.

    The m_g largest losses of each group g are dropped first, as in `Stratified`. k does not affect the objective: no
    small losses are dropped. Tied groups share the weight equally. Groups without mass are left out.

    Parameters
    ----------
    groups : ndarray of shape (n,)
        The group of each row, 0..G-1.
    worst : float, default=0.0
        The share of the groups to average over, at least one group; 0 is the worst group only.
    """

    groups: Array
    worst: float = 0.0
    name: ClassVar[str] = "worst group"

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights within the worst groups, and their mean loss times k - m as the total; both cuts are infinite."""
        value, weights = self.majorant(s, m, mass)[0].exact(s.astype(np.float64, copy=False))
        return Selection(((k - m) * weights).astype(s.dtype), (k - m) * value, -np.inf, np.inf)

    def take(self, rows: Array) -> WorstGroup:
        """The same aggregate for a subset of the rows."""
        return WorstGroup(self.groups[rows], self.worst)

    def majorant(self, s: Array, m: float, mass: Array | None) -> tuple[GroupRisk, None]:
        """The convex upper bound in which the rows dropped at s stay dropped; no tangent is subtracted (None)."""
        caps = Stratified(self.groups).caps(s, m, mass)
        caps = np.ones(len(s)) if caps is None else caps.astype(np.float64)
        present = np.count_nonzero(np.bincount(self.groups, weights=caps) > 0)
        share = min(1.0, max(self.worst, 1.0 / present))
        return GroupRisk(Spectrum(*_first(share)), self.groups, caps), None

    def start(self, m: float) -> tuple[Any, float]:
        """The aggregate and the m, as given, of the fit from which the solver starts: a trimmed mean within groups."""
        return Stratified(self.groups), m


@dataclass(frozen=True, eq=False, init=False, repr=False)
class RankWeights:
    """Weighted mean of the losses with a weight for each rank, where rank 1 is the largest loss.

    Parameters
    ----------
    weights : str, array_like or callable
        The weights, finite and not negative; only their ratios matter. A name: "extremile" (tau), "exponential" (rate),
        "superquantile" (alphas, weights), "trimmed" (m, k), "winsorised" (m, k) or "close-k" (center, width), with the
        parameters in parentheses. Or an array of weights with that of the largest loss first, which is interpolated if
        there are more or fewer rows. Or a function of the rank share u in (0, 1), the rank divided by n, so small u are
        large losses; it is integrated over the interval of each rank.
    **params
        The parameters of the named weights. Ranks such as m and k are shares of the rows, in [0, 1].

    Notes
    -----
    If larger losses never have smaller weights, the weighted mean is convex, and fits are certified. Otherwise it is a
    difference of two convex functions, and a fit finds a local minimum. m and k of the estimator must be left out (m=0
    and k=1.0 are allowed).

    The window of "close-k" has a fixed rank; in the paper of that name it follows the loss at the decision boundary.
    Models with a lambda cannot be pickled; pass a named function.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import RankWeights
    >>> RankWeights("trimmed", m=0.25, k=1.0).mean([9.0, 1.0, 2.0, 3.0])
    2.0
    >>> RankWeights([3, 1]).mean([1.0, 5.0])  # (3 * 5 + 1) / 4
    4.0
    >>> RankWeights(lambda u: 2 * (1 - u)).convex
    True
    """

    source: Any
    given: tuple[Any, ...]
    name: ClassVar[str] = "weights by rank"
    uses_m: ClassVar[bool] = False

    def __init__(self, weights: Any, /, **params: Any) -> None:
        self.__setstate__({"given": (weights, params)})

    def __getstate__(self) -> dict[str, Any]:
        """The arguments of the constructor, because `source` may be a nested function, which cannot be pickled."""
        return {"given": self.given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        weights, params = state["given"]
        object.__setattr__(self, "source", spectrum_source(weights, params))
        object.__setattr__(self, "given", (weights, params))

    def __repr__(self) -> str:
        weights, params = self.given
        shown = np.array2string(np.asarray(weights), threshold=10) if isinstance(weights, np.ndarray) else repr(weights)
        return f"RankWeights({', '.join([shown, *(f'{name}={value!r}' for name, value in params.items())])})"

    @property
    def convex(self) -> bool:
        """Whether larger losses never have smaller weights; for weights that depend on n, with n = 1000."""
        return on_ranks(self.source, _FINE).convex

    def on(self, values: Any, sample_weight: Any = None) -> Array:
        """Weights (n,) of the values (n,), which sum to 1; tied values share in proportion to their sample weights.

        Values that are not finite, and weights that are negative, not finite or all 0, are a ValueError.
        """
        s = np.asarray(values, dtype=np.float64)
        if s.ndim != 1 or not len(s) or not np.isfinite(s).all():
            raise ValueError(f"values must be finite, of shape (n,) with n >= 1, got shape {s.shape}; check them")
        mass = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if mass is not None and (
            mass.shape != s.shape or not np.isfinite(mass).all() or mass.min() < 0 or not mass.any()
        ):
            raise ValueError(f"sample_weight must be {len(s)} finite weights >= 0, not all 0, got shape {mass.shape}")
        return self._spectrum(s, mass).weights(s, mass)

    def mean(self, values: Any, sample_weight: Any = None) -> float:
        """The weighted mean of the values (n,), with the weights and errors of `on`."""
        return float(self.on(values, sample_weight) @ np.asarray(values, dtype=np.float64))

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights by rank that sum to k - m, and the weighted sum of the losses; both cuts are infinite."""
        s64 = s.astype(np.float64, copy=False)
        weights = (k - m) * self._spectrum(s, mass).weights(s64, mass)
        return Selection(weights.astype(s.dtype), float(weights @ s64), -np.inf, np.inf)

    def take(self, rows: Array) -> RankWeights:
        """The aggregate itself, which does not depend on the rows."""
        return self

    def majorant(self, s: Array, m: float, mass: Array | None) -> tuple[SpectrumRisk, Array | None]:
        """A convex function, and the weights of the tangent at s that is subtracted from it to get an upper bound.

        The weights are None if the function itself is the aggregate.
        """
        upper, lower = self._spectrum(s, mass).split()
        taken = None if lower is None else lower[0] * lower[1].weights(s.astype(np.float64, copy=False), mass)
        return SpectrumRisk(upper[1], mass, upper[0]), taken

    def start(self, m: float) -> tuple[Any, float]:
        """The aggregate and the m, as a fraction, of the trimmed fit from which the solver starts.

        m is the largest rank share u such that the losses up to u, the largest ones, have a total weight of at most
        u / 2, half of that under equal weights. It is 0 if this u is not below 1/2. The argument m has no effect.
        """
        spectrum = on_ranks(self.source, _FINE)
        under = spectrum.knots[spectrum.cumulative <= 0.5 * spectrum.knots]
        return Ranked(), float(under[-1]) if under[-1] < 0.5 else 0.0

    def _spectrum(self, s: Array, mass: Array | None) -> Spectrum:
        return on_ranks(self.source, len(s) if mass is None else float(mass.sum()))


# Number of ranks at which a weight function is evaluated, to see whether it is convex and where the start should trim.
_FINE = 1000


def _first(share: float) -> tuple[Array, Array]:
    """Knots and cumulative weights of the spectrum that weights the largest `share` of the values equally."""
    return (np.array([0.0, 1.0]),) * 2 if share >= 1 else (np.array([0.0, share, 1.0]), np.array([0.0, 1.0, 1.0]))


# By name: a constructor from the groups 0..G-1 of n rows. The tests of objective and solvers run over all of them.
AGGREGATES: dict[str, Callable[[Array], Any]] = {
    "ranked": lambda classes: Ranked(),
    "stratified": Stratified,
    "worst group": WorstGroup,
    "extremile": lambda classes: RankWeights("extremile", tau=0.8),
    "winsorised": lambda classes: RankWeights("winsorised", m=0.1, k=0.9),
}


@lru_cache(maxsize=256)
def _quotas_of(m: float, *sizes: float) -> tuple[float, ...]:
    """`quotas` for a single m, as a tuple; cached, because each step of a fit repeats the call."""
    return tuple(quotas(np.array([m]), np.array([sizes]))[0].tolist())


def quotas(m: Array, sizes: Array) -> Array:
    """m (S,) divided in proportion to sizes (S, G), as an array (S, G).

    If m and the sizes are integers, so are the quotas, by the largest remainder method.
    """
    exact = m[:, None] * sizes / sizes.sum(axis=1, keepdims=True)
    if (m != np.floor(m)).any() or (sizes != np.floor(sizes)).any():
        return exact
    whole = np.floor(exact + 1e-9)
    left = np.rint(m - whole.sum(axis=1))
    order = np.argsort(-(exact - whole), axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(order.shape[1]), order.shape), axis=1)
    return whole + (rank < left[:, None])
