"""Exact evaluation of the objective over all rows, usually in one pass of the kernel `shard_kernels.evaluate`.

For each cut, the sample gives a bracket: an interval of losses that very probably contains the cut. Workers sum the
rows between the brackets and send the few rows inside them to the driver, the process of the fit. It finds the exact
cuts and the weights of tied rows. If a cut lies outside its bracket, or the brackets have too many rows, further passes
follow. The result is always exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.mass_cuts import BUT_ROUNDING, Cut, sorted_cuts
from ..core.objective import Objective
from .engine import Shards
from .shard_kernels import (
    Evaluation,
    Interval,
    Model,
    Partial,
    Request,
    Rows,
    TangentTable,
    evaluate,
    n_slope_groups,
    tangent_sums,
)

# The largest size of the undecided rows that one pass may send to the driver, in bytes.
_COLLECT_BYTES = 96_000_000
# A counting pass divides brackets into at most this many bins.
_PARTS = 1024
# Bins with at most this many rows are not divided further.
_PART_ROWS = 2000
# The number of rows on either side of the kink of the hinge that are sent to the driver: a step is exact if no other
# row crosses the kink.
_KINK_ROWS = 60_000


@dataclass(frozen=True, eq=False)
class Iterate:
    """The objective at W after one pass: value, gradient and cuts, and the sums and rows that the pass returned."""

    W: Array
    value: float
    gradient: Array
    lower: Cut | None  # None if k keeps all rows; a hinge always has one
    upper: Cut | None  # None if m = 0
    certain: Array  # `tangent_sums` over the rows between the brackets, which are certainly kept
    rows: Rows | None  # the undecided rows, inside the brackets, in float64; None if there are none
    weights: Array  # their weights, each in [0, mass]
    least: float  # the smallest loss, for a hinge the smallest margin
    between: Interval  # rows with losses strictly inside are certainly kept and in `certain`

    def table(self) -> Array:
        """The `tangent_sums` over all kept rows."""
        return self.certain if self.rows is None else self.certain + sums_of(self.rows, self.weights)


class Movable(NamedTuple):
    """Sampled rows that are certainly kept, with the tangents of their losses at any parameters.

    `mass` is their total weight, and `sums` a function from parameters W to their `tangent_sums` at W.
    """

    mass: float
    sums: Callable[[Array], Array]


def sums_of(rows: Rows, weights: Array, chosen: Array | None = None) -> Array:
    """The `tangent_sums` over these rows, or over the `chosen` ones, with these weights."""
    if chosen is not None:
        rows, weights = take(rows, chosen), weights[chosen]
    return tangent_sums(rows.X, rows.y, rows.losses, rows.slopes * weights, rows.scores, weights)


def take(rows: Rows, chosen: Array) -> Rows:
    """A subset of these rows."""
    return Rows(
        rows.X[chosen],
        rows.y[chosen],
        rows.losses[chosen],
        rows.slopes[:, chosen],
        rows.scores[:, chosen],
        rows.mass[chosen],
    )


class _Bracket:
    """The bracket of one cut, from the losses of the sample: at first around its rank, later around the last cut.

    `target` is the mass of the rows down to the cut (m or k), `total` that of all rows, and `part` the share of rows in
    the sample.
    """

    def __init__(self, target: float, total: float, sample_mass: Array, part: float) -> None:
        self.target = target
        share = target / total
        self.unit = float(sample_mass.mean())
        self.even = bool((sample_mass == 1.0).all())
        self.centre = share * float(sample_mass.sum())
        # Six standard deviations of the mass above the cut in a sample of this share of all rows.
        spread = np.sqrt(float((sample_mass**2).sum()) * share * (1.0 - share) * max(1.0 - part, 0.0))
        self.reach = 6.0 * spread + 8.0 * self.unit
        self.above: Array | None = None  # whether each sampled row was above the cut in the last pass

    def interval(self, s: Array, mass: Array, slack: float) -> Interval:
        """The bracket, given the losses s and the masses of the sample.

        Its ends are two of these losses, moved outwards by about `slack`, or infinite.
        """
        if self.even:  # sort is faster than argsort
            ranked, reached = -np.sort(-s), np.arange(1.0, len(s) + 1.0)
        else:
            order = np.argsort(-s, kind="stable")
            ranked, reached = s[order], np.cumsum(mass[order])
        reach = self.reach
        if self.above is not None:
            middle = ranked[min(int(np.searchsorted(reached, self.centre)), len(s) - 1)]
            changed = (s > middle) != self.above
            reach = max(reach, 6.0 * np.sqrt(float((mass[changed] ** 2).sum())) + 24.0 * self.unit)
        top = int(np.searchsorted(reached, self.centre - reach)) - 1
        bottom = int(np.searchsorted(reached, self.centre + reach))
        high = np.inf if top < 0 else float(ranked[top]) * (1.0 + slack) + slack
        low = -np.inf if bottom >= len(s) else float(ranked[bottom]) * (1.0 - slack) - slack
        return Interval(low, high)

    def found(self, value: float, s: Array, mass: Array) -> None:
        """Record the exact cut of this pass. From now on, only rows that cross it can change its rank in the sample."""
        self.above = s > value
        self.centre = float(mass[self.above].sum())
        self.reach = 0.0

    def widen(self) -> None:
        self.reach = 4.0 * max(self.reach, 24.0 * self.unit)


class FullData:
    """The objective F over all shards.

    `sample` is the objective on the sampled rows, with the same loss, C and shares m/n and k/n. n is the number of all
    rows, `total` their mass, and m and k are masses. `on_pass` is called with the kind of each pass before it.
    `evaluate_one` replaces the pass of a request, for fits that share passes.

    An engine may have a subclass with `smooth = True` and the method `hessians`, if so many rows lie near a cut that F
    is nearly smooth there.
    """

    smooth = False

    def __init__(
        self,
        shards: Shards,
        model: Model,
        sample: Objective,
        n: int,
        total: float,
        m: float,
        k: float,
        on_pass: Callable[[str], None] = lambda text: None,
        evaluate_one: Callable[[Request], Partial] | None = None,
    ) -> None:
        self.shards, self.model, self.sample = shards, model, sample
        self.total, self.m, self.k = total, m, k
        self.mass = np.ones(sample.design.n) if sample.sample_weight is None else sample.sample_weight
        part = sample.design.n / n
        self.tol = 1e-6  # the target of the certificate
        self._on_pass = on_pass
        self._evaluate_one = self._single_pass if evaluate_one is None else evaluate_one
        self._brackets = {
            name: _Bracket(target, total, self.mass, part)
            for name, target in (("lower", k), ("upper", m))
            if 0 < target < total * (1.0 - 1e-14)
        }
        row_bytes = sample.design.d * np.dtype(model.dtype).itemsize + 8 * (3 + 2 * model.n_outputs)
        most = _COLLECT_BYTES // row_bytes
        # the largest number of undecided rows of a pass
        self.limit = max(min(most, getattr(shards, "collected_rows", None) or most), 1000)
        self._scale_up = n / sample.design.n

    @property
    def kept(self) -> float:
        """The mass of the kept rows, k - m."""
        return self.k - self.m

    def evaluate_at(self, W: Array) -> Iterate:
        """Evaluate the objective at W in one pass.

        Further passes follow if a cut lies outside its bracket or the brackets have too many rows. `TooManyTies` is
        raised if even narrow brackets have too many.
        """
        s = self.model.losses(self.sample.y, self.sample.design.scores(W)).astype(np.float64)
        slack = 1e-5 if self.model.dtype == np.float32 else 1e-12
        for _ in range(12):
            intervals = {name: bracket.interval(s, self.mass, slack) for name, bracket in self._brackets.items()}
            if self.model.by_margin:
                intervals["lower"] = self._around_kink(s, intervals.get("lower"))
            if self._expected(s, intervals) > self.limit:
                intervals = self._narrowed(W, s, intervals)
            request = self._request(W, intervals)
            part = self._pass("evaluate", request)
            if part.n_rows > part.limit:
                request = self._request(W, self._narrowed(W, s, intervals))
                part = self._pass("evaluate", request)
                if part.n_rows > part.limit:
                    raise self._too_many(part.n_rows)
            cuts = self._cuts(part, request)
            missed = [name for name, cut in cuts.items() if cut is None]
            for name in missed:
                self._brackets[name].widen()
            if not missed:
                return self._finish(request, part, cuts, s)
        raise RuntimeError("no bracket held the cut after twelve passes; please report this")

    def hessians(self, iterate: Iterate) -> tuple[Array, Array]:
        """The Hessian of the mean of the kept losses, and its reduction because rows cross the cuts when W moves.

        Only subclasses with `smooth` implement it.
        """
        raise NotImplementedError

    def movable(self, iterate: Iterate) -> Movable | None:
        """The sampled rows that are certainly kept; None if there are none."""
        s = self.model.losses(self.sample.y, self.sample.design.scores(iterate.W))
        slack = 1e-4 * (1.0 + np.abs(s))
        inside = np.flatnonzero((s > iterate.between.low + slack) & (s < iterate.between.high - slack))
        if not len(inside):
            return None
        part, mass = self.sample.rows(inside, self.sample.m, self.sample.k), self.mass[inside]

        def sums(W: Array) -> Array:
            Z = part.design.scores(W).astype(np.float64)
            s, slope = part.losses_and_slopes(Z)
            return tangent_sums(part.design.X, part.y, s, (slope * mass).astype(part.design.X.dtype), Z, mass)

        return Movable(float(mass.sum()), sums)

    def _around_kink(self, s: Array, lower: Interval | None) -> Interval:
        """For a hinge, a bracket of margins around the kink: the lower cut if that is positive, otherwise 0.

        It also covers the positive part of `lower`, the bracket of the lower cut.
        """
        middle = 0.0 if lower is None else max(0.0, 0.5 * (lower.low + lower.high))
        middle = middle if np.isfinite(middle) else 0.0
        rank = min(max(int(min(_KINK_ROWS, self.limit // 2) / self._scale_up), 10), len(s) - 1)
        reach = max(float(np.partition(np.abs(s - middle), rank)[rank]), 1e-6)
        if lower is None:
            return Interval(middle - reach, middle + reach)
        return Interval(min(middle - reach, max(lower.low, -reach)), max(middle + reach, lower.high))

    def _request(self, W: Array, intervals: dict[str, Interval]) -> Request:
        return Request(W, intervals.get("lower"), intervals.get("upper"), limit=self.limit)

    def _too_many(self, n_rows: int) -> TooManyTies:
        return TooManyTies(
            f"at most {self.limit} rows may have losses next to a cut, got {n_rows}: too many rows are tied "
            "at the cut; use other m and k"
        )

    def _expected(self, s: Array, intervals: dict[str, Interval]) -> float:
        inside = np.zeros(len(s), dtype=bool)
        for low, high in intervals.values():
            inside |= (s >= low) & (s <= high)
        return float(np.count_nonzero(inside)) * self._scale_up

    def _pass(self, kind: str, request: Request) -> Partial:
        self._on_pass(kind)
        return self._evaluate_one(request)

    def _single_pass(self, request: Request) -> Partial:
        """A pass for this request only; fits that share passes replace this function."""
        return self.shards.reduce(evaluate, Evaluation(self.model, (request,))).parts[0].pack()

    def _narrowed(self, W: Array, s: Array, intervals: dict[str, Interval]) -> dict[str, Interval]:
        """Narrow the brackets by a pass that sums the mass of the rows in many bins of the losses.

        The edges of the bins are losses of the sample, and values between them if a bin would have too many rows.
        """
        values, enough = [], max(_PART_ROWS, 40 * W.size)
        for low, high in intervals.values():
            inside = np.unique(s[(s >= low) & (s <= high)])
            count = min(max(len(inside), int(len(inside) * self._scale_up / enough)), _PARTS)
            values.append(np.interp(np.linspace(0, len(inside) - 1, count), np.arange(len(inside)), inside))
        edges = np.unique(np.concatenate(values).astype(self.model.dtype))
        masses = self._pass("count", Request(W, edges=edges)).sums.total()
        over = np.append(np.cumsum(masses[::-1])[::-1][1:], 0.0)  # mass above each edge; none above infinity
        narrowed = {}
        for name, bracket in self._brackets.items():
            first = int(np.argmax(over < bracket.target))  # the first edge with less mass above it than the target
            low = float(edges[first - 1]) if first > 0 else -np.inf
            narrowed[name] = Interval(low, float(edges[first]) if first < len(edges) else np.inf)
        if self.model.by_margin:
            narrowed["lower"] = self._around_kink(s, narrowed.get("lower"))
        return narrowed

    def _cuts(self, part: Partial, request: Request) -> dict[str, Cut | None]:
        """The exact cuts; None for a cut outside its bracket."""
        if not self._brackets and not self.model.by_margin:
            return {}
        _, _, kept, in_high, above = map(float, part.sums.total()[:5])
        rows = part.rows[0] if part.rows else None
        values, mass = (np.empty(0), np.empty(0)) if rows is None else (rows.losses, rows.mass)
        low, high = request.lower, request.upper
        merged = low is not None and high is not None and high.low <= low.high
        cuts: dict[str, Cut | None] = {}
        if high is not None:
            inside = slice(None) if merged else values >= high.low
            cuts["upper"] = cut_among(values[inside], mass[inside], above, self.m)
        if low is not None:
            inside = slice(None) if merged else values <= low.high
            over = above if merged else above + in_high + kept
            lower = cut_among(values[inside], mass[inside], over, self.k)
            cuts["lower"] = _at_least_zero(lower, over < self.k) if self.model.by_margin else lower
        return cuts

    def _finish(self, request: Request, part: Partial, cuts: dict[str, Cut | None], s: Array) -> Iterate:
        W = request.W
        r, d = self.model.n_outputs, self.sample.design.d
        certain = part.sums.total()[5:].reshape(n_slope_groups(r), TangentTable.width(r, d))
        rows = None if not part.rows else in_float64(part.rows[0])
        weights = np.empty(0)
        if rows is not None:
            weights = rows.mass * kept_share(rows.losses, cuts.get("lower"), cuts.get("upper"))
        for name, cut in cuts.items():
            at_kink = self.model.by_margin and name == "lower" and cut is not None and cut.value == 0
            if cut is not None and name in self._brackets and not at_kink:
                self._brackets[name].found(cut.value, s, self.mass)
        table = certain if rows is None else certain + sums_of(rows, weights)
        between = Interval(
            -np.inf if request.lower is None else request.lower.high,
            np.inf if request.upper is None else request.upper.low,
        )
        found = self._value_and_gradient(W, table)
        return Iterate(W, *found, cuts.get("lower"), cuts.get("upper"), certain, rows, weights, part.least, between)

    def _value_and_gradient(self, W: Array, table: Array) -> tuple[float, Array]:
        return (
            float(table[:, TangentTable.LOSS].sum()) / self.kept + self.sample.penalty(W),
            slopes_of(table.sum(axis=0), len(W), W.shape[1], self.model.fit_intercept) / self.kept
            + self.sample.penalty_gradient(W),
        )


def _at_least_zero(cut: Cut | None, inside: bool) -> Cut | None:
    """The lower cut of a hinge, at least 0: rows with negative margins have loss 0 and get no weight.

    `inside` is whether the mass above the bracket is below k. If it is not, the cut lies above the bracket, and the
    result is None.
    """
    if cut is not None and cut.value > 0:
        return cut
    return Cut(0.0, 0.0, 1.0) if inside else None


class TooManyTies(ValueError):
    """More rows are tied at a cut than one pass may send to the driver, the process of the fit."""


def slopes_of(sums: Array, r: int, p: int, fit_intercept: bool) -> Array:
    """The sum over data rows of the outer product of slopes and features, (r, p), with the intercept last.

    `sums` is one row of `tangent_sums`, or the sum of its rows.
    """
    slopes = sums[TangentTable.SLOPES :]
    flows, products = slopes[:r], slopes[r:].reshape(r, -1)
    return np.concatenate([products, flows[:, None]], axis=1) if fit_intercept else products.copy()


def in_float64(rows: Rows) -> Rows:
    """The rows with all values in float64; class codes stay integers."""
    X = rows.X.astype(np.float64)
    y = rows.y.astype(np.float64) if rows.y.dtype.kind == "f" else rows.y
    wide = (column.astype(np.float64) for column in (rows.losses, rows.slopes, rows.scores, rows.mass))
    return Rows(X, y, *wide)


def cut_among(values: Array, mass: Array, above: float, target: float) -> Cut | None:
    """The cut at which the cumulative mass from the top reaches `target`; `above` is the mass above all these values.

    None if the cut is not among the values.
    """
    if not len(values) or above >= target or above + float(mass.sum()) < target * BUT_ROUNDING:
        return None
    return sorted_cuts(values, mass, above, [target])[0]


def kept_share(s: Array, lower: Cut | None, upper: Cut | None) -> Array:
    """The kept share of each row, by its loss in s: 1 between the cuts, 0 outside, equal for rows tied at a cut."""
    share = np.ones(len(s))
    if upper is not None:
        share[s > upper.value] = 0.0
        share[s == upper.value] = 1.0 - upper.taken / upper.tied
    if lower is not None:
        share[s < lower.value] = 0.0
        same = upper is not None and upper.value == lower.value
        share[s == lower.value] = (lower.taken - (upper.taken if same and upper is not None else 0.0)) / lower.tied
    return share
