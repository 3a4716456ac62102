"""Exact evaluation of the objective over all rows, usually in one pass of the kernel `evaluate`.

For each cut, a sample gives a bracket: an interval of losses that very probably contains the cut. The pass sums the
rows between the brackets and collects the few rows inside them. Among these are the exact cuts. If a cut lies outside
its bracket, or the brackets have too many rows, further passes follow. The result is always exact.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Array, namespace
from ..core.cuts import BUT_ROUNDING, Cut, mass_cuts
from ..core.losses import LOSSES
from ..core.objective import Design, Objective
from .kernels import (
    LOSS,
    Interval,
    Model,
    Near,
    Partial,
    Request,
    beside,
    cast,
    evaluate,
    host,
    n_slope_groups,
    slopes_of,
)
from .rows import Chunk, Kernel, Rows

# A counting pass divides each bracket into this many bins.
_BINS = 1024
# The largest cost of the Hessian of several scores: fewer rows are used for it.
_HESSIAN_WORK = 4e10
# The share of the rows that the density at a cut comes from.
_AT_CUT = 0.01


class Passes:
    """Runs and counts the passes of one fit, and prints them if `verbose`."""

    def __init__(self, rows: Rows, verbose: int = 0) -> None:
        self.rows, self.verbose, self.count = rows, verbose, 0

    def __call__(self, kernel: Kernel, message: Any) -> Any:
        self.count += 1
        if self.verbose:
            print(f"pass {self.count} over the data ({kernel.__name__})")
        return self.rows.reduce(kernel, message)


@dataclass(frozen=True, eq=False)
class Iterate:
    """The objective at W after one pass: value, gradient and cuts, and the sums and rows that the pass returned."""

    W: Array
    value: float
    gradient: Array
    lower: Cut | None  # None if k keeps all rows
    upper: Cut | None  # None if m = 0
    table: Array  # `tangent_sums` over all kept rows
    certain: Array  # the same over the rows between the brackets, which are certainly kept
    near: Near | None  # the undecided rows, inside the brackets; None if there are none
    weights: Array  # their weights, each in [0, mass]
    least: float  # the smallest loss
    request: Request

    @property
    def between(self) -> Interval:
        """Rows with losses strictly inside are certainly kept and in `certain`."""
        lower, upper = self.request.lower, self.request.upper
        return Interval(-np.inf if lower is None else lower.high, np.inf if upper is None else upper.low)

    def is_kept(self, s: Any) -> Any:
        """Whether rows with losses s are between the cuts."""
        low = -np.inf if self.lower is None else self.lower.value
        return (s >= low) & (s <= (np.inf if self.upper is None else self.upper.value))


class _Bracket:
    """The bracket of one cut, from the losses of a sample: at first around its rank, later around the last exact cut.

    `target` is the mass of the rows down to the cut (m or k), `total` that of all rows, `mass` (n,) that of the sampled
    rows, and `part` their share of all rows.
    """

    def __init__(self, target: float, total: float, mass: Array, part: float) -> None:
        self.target, share = target, target / total
        held = float(mass.sum())
        self.unit, self.centre = held / len(mass), share * held
        # Six standard deviations of the mass above the cut in a sample of this share of all rows.
        spread = np.sqrt(float((mass**2).sum()) * share * (1.0 - share) * max(1.0 - part, 0.0))
        self.reach = 6.0 * spread + 8.0 * self.unit
        self.above: Array | None = None  # whether each sampled row was above the cut in the last pass

    def interval(self, s: Array, mass: Array, ranked: Array, reached: Array, slack: float) -> Interval:
        """The bracket: two losses of the sample, moved outwards by about `slack`, or infinite.

        `ranked` has the losses s (n,) of the sample in decreasing order, `reached` their cumulative masses.
        """
        reach = self.reach
        if self.above is not None:  # only rows that have crossed the cut can have changed its rank
            middle = ranked[min(int(np.searchsorted(reached, self.centre)), len(s) - 1)]
            changed = (s > middle) != self.above
            reach = max(reach, 6.0 * np.sqrt(float((mass[changed] ** 2).sum())))
        top = int(np.searchsorted(reached, self.centre - reach)) - 1
        bottom = int(np.searchsorted(reached, self.centre + reach))
        high = np.inf if top < 0 else float(ranked[top]) * (1.0 + slack) + slack
        low = -np.inf if bottom >= len(s) else float(ranked[bottom]) * (1.0 - slack) - slack
        return Interval(low, high)

    def found(self, value: float, s: Array, mass: Array) -> None:
        """Record the exact cut of this pass."""
        self.above = s > value
        self.centre, self.reach = float(mass[self.above].sum()), 0.0

    def widen(self) -> None:
        self.reach = 4.0 * max(self.reach, 24.0 * self.unit)


class FullData:
    """The objective F over all rows.

    `sample` is the objective on the sampled rows, with the same loss, C and shares m/n and k/n, and `chunk` these rows.
    `total` is the mass of all rows, and m and k are masses.
    """

    def __init__(
        self,
        passes: Passes,
        model: Model,
        sample: Objective,
        chunk: Chunk,
        total: float,
        m: float,
        k: float,
        tol: float = 1e-6,
    ) -> None:
        self.passes, self.sample, self.chunk = passes, sample, chunk
        self.total, self.m, self.k, self.tol = total, m, k, tol
        rows, spaced = passes.rows, passes.rows.spaced()
        self._spaced = chunk if spaced is None else spaced  # brackets and Hessians come from these rows
        self.use(model)
        mass = model.mass(self._y, self._spaced.weight)
        self.mass = np.ones(len(self._y)) if mass is None else host(mass)
        part = len(self.mass) / rows.n_rows
        self._brackets = {
            name: _Bracket(target, total, self.mass, part)
            for name, target in (("lower", k), ("upper", m))
            if 0 < target < total * (1.0 - 1e-14)
        }
        row_bytes = sample.design.d * np.dtype(model.dtype).itemsize + 8 * (3 + 2 * model.n_outputs)
        self.limit = max(rows.collected_bytes // row_bytes, 1000)  # the largest number of undecided rows of a pass
        self._scale_up = 1.0 / part

    def use(self, model: Model) -> None:
        """Compute with this model from now on."""
        self.model = model
        self._X, self._y = model.features(self._spaced.X), model.encoded(self._spaced.y)

    def on_all(self, request: Request) -> Array:
        """The `tangent_sums` of a request, over all rows."""
        sums = self.passes(evaluate, (self.model, request)).sums
        return sums[5:].reshape(n_slope_groups(len(request.W)), -1)

    def on_sample(self, request: Request) -> Array:
        return evaluate(self.chunk, (self.model, request)).sums[5:].reshape(n_slope_groups(len(request.W)), -1)

    @property
    def kept(self) -> float:
        return self.k - self.m

    def evaluate_at(self, W: Array) -> Iterate:
        """Evaluate the objective at W in one pass, or in more if a bracket misses its cut or has too many rows."""
        s = host(self._losses(W)[0])
        ranked, reached = self._ranked(s)
        slack = 1e-5 if self.model.dtype == "float32" else 1e-12
        for _ in range(12):
            brackets = {
                name: bracket.interval(s, self.mass, ranked, reached, slack) for name, bracket in self._brackets.items()
            }
            narrow = self._expected(s, brackets) > self.limit
            for counted in [True] if narrow else [False, True]:
                chosen = self._narrowed(W, s, brackets) if counted else brackets
                request = Request(W, chosen.get("lower"), chosen.get("upper"), limit=self.limit)
                part = self.passes(evaluate, (self.model, request))
                if part.n_near <= self.limit:
                    break
            else:
                raise ValueError(
                    f"at most {self.limit} rows may have losses next to a cut, got {part.n_near}: too many rows are "
                    "tied at the cut; use other m and k"
                )
            near = Near.joined(part.near) if part.near else None
            cuts = self._cuts(part, near, request)
            missed = [name for name, cut in cuts.items() if cut is None]
            for name in missed:
                self._brackets[name].widen()
            if not missed:
                for name, cut in cuts.items():
                    self._brackets[name].found(cut.value, s, self.mass)  # type: ignore[union-attr]
                return self._iterate(request, part, near, cuts.get("lower"), cuts.get("upper"))
        raise RuntimeError("no bracket held the cut after twelve passes; please report this")

    def hessian(self, iterate: Iterate) -> Array:
        """The Hessian (r p, r p) of the mean of the kept losses, from many rows.

        With several scores these are rows of the sample, and only the first ones if all would take too long.
        """
        if self.model.n_outputs > 1:
            return self._hessian_of_classes(iterate)
        Z = self.model.scores(iterate.W, self._X)
        s, xp = self.model.losses(self._y, Z)[0], namespace(Z)
        q = beside(self.mass, s) * iterate.is_kept(s)
        bent = q * LOSSES[self.model.loss]().curvature(self._y, Z[0])
        if xp is np:
            gram = Design(self._X, self.model.fit_intercept).gram(bent)
        else:
            X = cast(self._X, "float64")
            X = xp.concatenate([X, xp.ones_like(X[:, :1])], 1) if self.model.fit_intercept else X
            gram = host((X * bent[:, None]).T @ X)
        return gram / max(float(q.sum()), 1e-300)

    def crossing(self, iterate: Iterate) -> Array:
        """The curvature (p, p) that the mean of the kept losses, of one score, has less because rows cross the cuts.

        At each cut it is the density of the rows there times the covariance of their gradients; at the lower cut it is
        negative. The density is the lower one of both sides, because there may be a gap at the cut.
        """
        s, slopes = self._losses(iterate.W)
        lost = np.zeros((iterate.W.size, iterate.W.size))
        for sign, cut in ((1.0, iterate.upper), (-1.0, iterate.lower)):
            if cut is None:
                continue
            distance = host(s) - cut.value
            count = int(_AT_CUT * len(distance))
            reach = float(np.partition(np.abs(distance), count)[count])
            rows = np.flatnonzero(np.abs(distance) <= reach)
            mass, above = self.mass[rows], distance[rows] > 0
            density = min(mass[above].sum(), mass[~above].sum()) / max(reach, 1e-9)
            at = beside(rows, s)
            G = Design(host(self._X[at]), self.model.fit_intercept).dense(np.arange(len(rows)))
            G *= host(slopes[0][at])[:, None]
            G -= mass @ G / mass.sum()
            lost += sign * density / mass.sum() * (G.T * mass) @ G
        return lost / self.mass.sum() * self.total / self.kept

    def _hessian_of_classes(self, iterate: Iterate) -> Array:
        """The mean over rows of (diag(P) - P P') kron (x x'), with the class probabilities P (r,) of a row."""
        sample, size, p = self.sample, iterate.W.size, iterate.W.shape[1]
        Z = sample.design.scores(iterate.W)
        q = sample.mass * iterate.is_kept(self.model.losses(sample.y, Z)[0])
        rows = np.arange(min(len(q), max(int(_HESSIAN_WORK / size**2), 5 * size)))
        q = q[rows] / max(float(q[rows].sum()), 1e-300)
        P = sample.loss.probabilities(Z.T[rows].astype(np.float64)).T
        matrix = np.empty((size, size))
        for a, b in itertools.combinations_with_replacement(range(len(P)), 2):
            of_a, of_b = slice(a * p, (a + 1) * p), slice(b * p, (b + 1) * p)
            block = sample.design.gram(q * P[a] * (1.0 - P[a] if a == b else P[b]), rows)
            matrix[of_a, of_b] = matrix[of_b, of_a] = block if a == b else -block
        return matrix

    def _losses(self, W: Array) -> tuple[Any, Any]:
        return self.model.losses(self._y, self.model.scores(W, self._X))

    def _ranked(self, s: Array) -> tuple[Array, Array]:
        """The losses of the sample in decreasing order, and their cumulative masses."""
        if (self.mass == 1.0).all():  # sorting is faster than finding the order
            return -np.sort(-s), np.arange(1.0, len(s) + 1.0)
        order = np.argsort(-s, kind="stable")
        return s[order], np.cumsum(self.mass[order])

    def _expected(self, s: Array, brackets: dict[str, Interval]) -> float:
        inside = np.zeros(len(s), dtype=bool)
        for low, high in brackets.values():
            inside |= (s >= low) & (s <= high)
        return float(np.count_nonzero(inside)) * self._scale_up

    def _narrowed(self, W: Array, s: Array, brackets: dict[str, Interval]) -> dict[str, Interval]:
        """Narrow the brackets by a pass that sums the mass of the rows between many losses of the sample."""
        values = []
        for low, high in brackets.values():
            inside = np.unique(s[(s >= low) & (s <= high)])
            values.append(np.interp(np.linspace(0, len(inside) - 1, _BINS), np.arange(len(inside)), inside))
        edges = np.unique(np.concatenate(values).astype(self.model.dtype))
        masses = self.passes(evaluate, (self.model, Request(W, edges=edges))).sums
        over = np.append(np.cumsum(masses[::-1])[::-1][1:], 0.0)  # mass above each edge; none above infinity
        narrowed = {}
        for name, bracket in self._brackets.items():
            first = int(np.argmax(over < bracket.target))  # the first edge with less mass above it than the target
            low = float(edges[first - 1]) if first > 0 else -np.inf
            narrowed[name] = Interval(low, float(edges[first]) if first < len(edges) else np.inf)
        return narrowed

    def _cuts(self, part: Partial, near: Near | None, request: Request) -> dict[str, Cut | None]:
        """The exact cuts; None for a cut outside its bracket."""
        _, _, kept, in_high, above = map(float, part.sums[:5])
        values, mass = (np.empty(0), np.empty(0)) if near is None else (near.losses, near.mass)
        cuts: dict[str, Cut | None] = {}
        if request.upper is not None:
            inside = values >= (-np.inf if request.overlap else request.upper.low)
            cuts["upper"] = cut_among(values[inside], mass[inside], above, self.m)
        if request.lower is not None:
            inside = values <= (np.inf if request.overlap else request.lower.high)
            over = above if request.overlap else above + in_high + kept
            cuts["lower"] = cut_among(values[inside], mass[inside], over, self.k)
        return cuts

    def _iterate(
        self, request: Request, part: Partial, near: Near | None, lower: Cut | None, upper: Cut | None
    ) -> Iterate:
        W, sample = request.W, self.sample
        weights = np.empty(0) if near is None else near.mass * kept_share(near.losses, lower, upper)
        certain = part.sums[5:].reshape(n_slope_groups(len(W)), -1)
        table = certain if near is None else certain + near.sums(weights)
        value = float(table[:, LOSS].sum()) / self.kept + sample.penalty(W)
        gradient = slopes_of(table.sum(axis=0), len(W))[:, : W.shape[1]] / self.kept + sample.penalty_gradient(W)
        return Iterate(W, value, gradient, lower, upper, table, certain, near, weights, part.least, request)


def cut_among(values: Array, mass: Array, above: float, target: float) -> Cut | None:
    """The cut with the mass `target` down to it, `above` of it above all these values; None if it is not among them."""
    if not len(values) or above >= target or above + float(mass.sum()) < target * BUT_ROUNDING:
        return None
    return Cut(*(float(each[0]) for each in mass_cuts(values[None], mass, target, above)))


def kept_share(s: Array, lower: Cut | None, upper: Cut | None) -> Array:
    """The kept share of each row with losses s: that of phi_k minus that of phi_m."""
    kept = np.ones(len(s)) if lower is None else _share_above(s, lower)
    return kept if upper is None else kept - _share_above(s, upper)


def _share_above(s: Array, cut: Cut) -> Array:
    """1 above the cut, 0 below, and the same share for all rows tied at it."""
    return (s > cut.value) + (s == cut.value) * (cut.taken / cut.tied)
