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
- `majorant` (a convex function that touches at s and lies above, with the tangent that is taken off it) is what the
  smoothing solver minimises and certifies.
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
from .convex_risks import GroupRisk, RowRisk
from .cuts import Cut, Ranked, Selection, blurred_rows, cuts_of, left_of, top_weights, top_within
from .rank_weights import Spectrum, on_ranks, spectrum_source


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
            Weights, total, and the lower and the upper cut (infinite if the aggregate has none).
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
    """What a model costs the groups that it serves worst: the largest mean loss, or the mean over the worst groups.

    Each group loses the same share of its rows first, those of its m_g largest losses, with m_g in proportion to the
    groups and summing to m; k plays no part. Groups that tie share equally.

    Parameters
    ----------
    groups : ndarray of shape (n,)
        The group of each row, 0..G-1.
    worst : float, default=0.0
        The share of the groups that counts; less than one group is one group.
    """

    groups: Array
    worst: float = 0.0
    name: ClassVar[str] = "worst group"
    linear: ClassVar[bool] = True

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights within the worst groups, and their mean loss times k - m as the total."""
        value, weights = self.majorant(s, m, mass)[0].exact(s.astype(np.float64, copy=False))
        return Selection(((k - m) * weights).astype(s.dtype), (k - m) * value, -np.inf, np.inf)

    def take(self, rows: Array) -> WorstGroup:
        """The same groups for some of the rows."""
        return WorstGroup(self.groups[rows], self.worst)

    def majorant(self, s: Array, m: float, mass: Array | None) -> tuple[GroupRisk, None]:
        """The convex function that is left when what is dropped at s is dropped for good; it lies above everywhere."""
        caps = Stratified(self.groups).caps(s, m, mass)
        caps = np.ones(len(s)) if caps is None else caps.astype(np.float64)
        present = np.count_nonzero(np.bincount(self.groups, weights=caps) > 0)
        share = min(1.0, max(self.worst, 1.0 / present))
        return GroupRisk(Spectrum(*_first(share)), self.groups, caps), None

    def start(self, m: float) -> tuple[Any, float]:
        """The aggregate, and what it drops, of a fit that leads near a good minimum."""
        return Stratified(self.groups), m


@dataclass(frozen=True, eq=False, init=False, repr=False)
class RankWeights:
    """Weighted mean of the losses with a weight for each rank, rank 1 being the largest loss.

    Parameters
    ----------
    weights : str, array_like or callable
        A name: "extremile" (tau), "exponential" (rate), "superquantile" (alphas, weights), "trimmed" (m, k),
        "winsorised" (m, k) or "close-k" (center, width), each with its parameters. Or an array of weights, that of the
        largest loss first; for another number of rows it is stretched to that length. Or a function of the rank share u
        in (0, 1), 0 being the largest loss, which is integrated over the interval of each rank. Weights are finite and
        >= 0; only their ratios matter.
    **params
        The parameters of the named weights.

    Notes
    -----
    If no smaller loss has a larger weight than a larger loss, the weighted mean is convex, and a fit is certified.
    Otherwise it is a difference of two convex functions, and a fit descends to a local minimum. m and k are not used.

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
    linear: ClassVar[bool] = True

    def __init__(self, weights: Any, /, **params: Any) -> None:
        object.__setattr__(self, "source", spectrum_source(weights, params))
        object.__setattr__(self, "given", (weights, params))

    def __repr__(self) -> str:
        weights, params = self.given
        shown = np.array2string(np.asarray(weights), threshold=10) if isinstance(weights, np.ndarray) else repr(weights)
        return f"RankWeights({', '.join([shown, *(f'{name}={value!r}' for name, value in params.items())])})"

    @property
    def convex(self) -> bool:
        """Whether no smaller loss weighs more than a larger one."""
        return on_ranks(self.source, _FINE).convex

    def on(self, values: Any, sample_weight: Any = None) -> Array:
        """The weights of the values (n,), which sum to 1; values that tie share equally."""
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
        """The weighted mean of the values (n,)."""
        return float(self.on(values, sample_weight) @ np.asarray(values, dtype=np.float64))

    def select(self, s: Array, m: float, k: float, mass: Array | None) -> Selection:
        """Weights by rank that sum to k - m, and their total."""
        s64 = s.astype(np.float64, copy=False)
        weights = (k - m) * self._spectrum(s, mass).weights(s64, mass)
        return Selection(weights.astype(s.dtype), float(weights @ s64), -np.inf, np.inf)

    def take(self, rows: Array) -> RankWeights:
        """Weights by rank know nothing about single rows, so they stay the same."""
        return self

    def majorant(self, s: Array, m: float, mass: Array | None) -> tuple[RowRisk, Array | None]:
        """A convex function, and the weights of the tangent at s that is taken off it; together they lie above."""
        upper, lower = self._spectrum(s, mass).split()
        taken = None if lower is None else lower[0] * lower[1].weights(s.astype(np.float64, copy=False), mass)
        return RowRisk(upper[1], mass, upper[0]), taken

    def start(self, m: float) -> tuple[Any, float]:
        """The ranked range that drops the largest share of rows that together count less than half."""
        spectrum = on_ranks(self.source, _FINE)
        under = spectrum.knots[spectrum.cumulative <= 0.5 * spectrum.knots]
        return Ranked(), float(under[-1]) if under[-1] < 0.5 else 0.0

    def _spectrum(self, s: Array, mass: Array | None) -> Spectrum:
        return on_ranks(self.source, len(s) if mass is None else float(mass.sum()))


# Ranks on which the shape of weights that are given as a function is looked at.
_FINE = 1000


def _first(share: float) -> tuple[Array, Array]:
    """Knots and cumulative weights of equal weights on the first share."""
    return (np.array([0.0, 1.0]),) * 2 if share >= 1 else (np.array([0.0, share, 1.0]), np.array([0.0, 1.0, 1.0]))


# By name: how to make one for n rows, of classes 0..G-1. The tests of objective and solvers run over all of them.
AGGREGATES: dict[str, Callable[[Array], Any]] = {
    "ranked": lambda classes: Ranked(),
    "stratified": Stratified,
    "soft": lambda classes: Soft(),
    "worst group": WorstGroup,
    "extremile": lambda classes: RankWeights("extremile", tau=0.8),
    "winsorised": lambda classes: RankWeights("winsorised", m=0.1, k=0.9),
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
