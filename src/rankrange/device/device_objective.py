"""The objective over all rows on a device, which computes cuts, sums and curvature; little is copied to the host.

The losses of many evenly spaced rows give a bracket of each cut. One pass sums the rows between the brackets and lists
the rows inside them. The exact cuts are found among the listed rows, and those that are kept are added to the sums. The
listed rows also give the curvature of F from rows that cross a cut: with so many rows near a cut, F is smooth at the
scale of a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.arrays import Array
from ..core.cuts import Cut
from ..shards.evaluation import FullData, Iterate, Movable, kept_share, sums_of
from ..shards.shard_kernels import Interval, Request, TangentTable, n_slope_groups
from ..shards.shard_steps import band_size
from .newton_pass import newton_pass
from .passes import Data, EagerPass, PassSums, loss_and_slope, pass_over, tangent_sums

# The largest share of all rows for estimating the curvature of F at a cut.
_CROSSING_SHARE = 0.02


@dataclass(frozen=True, eq=False)
class DeviceIterate(Iterate):
    """An `Iterate` with `crossing` (p, p), the reduction of the Hessian because rows cross the cuts when W moves."""

    crossing: Array


class _Bracket:
    """The bracket of one cut, an interval of losses that very probably contains it, from the losses of a sample.

    At first it is around the rank of the cut, later around the last exact cut. `target` is the mass of the rows down to
    the cut (m or k), `total` that of all rows, and `part` the share of rows in the sample. `least` is the least share
    of the sample that the bracket contains on either side of the cut.
    """

    def __init__(self, target: float, total: float, mass: Tensor, part: float, least: float) -> None:
        self.target, share = target, target / total
        held = float(mass.sum())
        self.unit, self.centre, self.least = held / len(mass), share * held, least * held
        spread = math.sqrt(float((mass**2).sum()) * share * (1.0 - share) * max(1.0 - part, 0.0))
        self.reach = 6.0 * spread + 8.0 * self.unit
        self.above: Tensor | None = None  # whether each row was above the cut in the last pass

    def interval(self, s: Tensor, mass: Tensor, ranked: Tensor, reached: Tensor) -> Interval:
        """The bracket: two losses of the sample, or infinite ends.

        `ranked` are the losses s in decreasing order, `reached` their cumulative masses.
        """
        reach = self.reach
        if self.above is not None:
            middle = ranked[_position(reached, self.centre).clamp(max=len(s) - 1)]
            changed = (s > middle) != self.above
            reach = max(reach, 6.0 * math.sqrt(float((mass[changed] ** 2).sum())) + 24.0 * self.unit)
        reach = max(reach, self.least)
        top, bottom = int(_position(reached, self.centre - reach)) - 1, int(_position(reached, self.centre + reach))
        low = -math.inf if bottom >= len(s) else float(ranked[bottom])
        return Interval(low, math.inf if top < 0 else float(ranked[top]))

    def found(self, value: float, s: Tensor, mass: Tensor) -> None:
        """Record the exact cut of this pass. From then on, only rows that cross it can change its rank."""
        self.above = s > value
        self.centre, self.reach = float(mass[self.above].sum()), 0.0

    def widen(self) -> None:
        self.reach = 4.0 * max(self.reach, self.least, 24.0 * self.unit)


def _position(reached: Tensor, mass: float) -> Tensor:
    return torch.searchsorted(reached, torch.tensor(mass, dtype=reached.dtype, device=reached.device))


class _SampledRows:
    """A sample of at most `most` evenly spaced rows, and the pass over them."""

    def __init__(self, data: Data, most: int) -> None:
        self.step = max(1, -(-data.n // most))
        rows = slice(0, data.n, self.step)
        weight = None if data.weight is None else data.weight[rows].contiguous()
        self.data = replace(data, X=data.X[rows], y=data.y[rows].contiguous(), weight=weight)
        self.run = pass_over(self.data)

    def losses(self, W: Array) -> Tensor:
        """The losses of the sampled rows at the parameters W (1, p)."""
        n, chunk = self.data.n, self.run.chunk
        return torch.cat([self.run.losses(W, start, min(start + chunk, n)) for start in range(0, n, chunk)])

    def with_weight(self, weight: Tensor) -> EagerPass:
        """The pass over these rows with other weights."""
        return pass_over(replace(self.data, weight=weight))


class _ListedRows(NamedTuple):
    """The rows inside the brackets: row numbers, losses, scores, masses and kept shares, all on the device."""

    rows: Tensor
    losses: Tensor
    scores: Tensor
    mass: Tensor
    share: Tensor

    def of(self, chosen: Tensor) -> _ListedRows:
        """A subset of the rows."""
        return _ListedRows(
            self.rows[chosen], self.losses[chosen], self.scores[:, chosen], self.mass[chosen], self.share[chosen]
        )

    def chunks(self, size: int) -> Iterator[_ListedRows]:
        """The rows in blocks of this size."""
        for start in range(0, len(self.rows), size):
            yield self.of(torch.arange(start, min(start + size, len(self.rows)), device=self.rows.device))


class DeviceData(FullData):
    """The objective F over all rows on a device. Hinges and several scores use the methods of `FullData`."""

    def __init__(self, shards: Any, *arguments: Any) -> None:
        super().__init__(shards, *arguments)
        self.engine = shards
        self.smooth = self.model.n_outputs == 1 and not self.model.by_margin
        if not self.smooth:
            return
        self.run = shards.pass_of(self.model)
        self.data = self.run.data
        n, p = self.data.n, self.sample.design.p
        sizes = self.data.sizes
        self._ranks = _SampledRows(self.data, sizes.bracket_rows)
        self._metric = _SampledRows(self.data, max(sizes.metric_numbers // p, 1))
        self._rank_mass = self._ranks.data.mass(slice(None))
        least = 0.5 * min(sizes.crossing_rows * p / n, _CROSSING_SHARE)
        self._device_brackets = {
            name: _Bracket(bracket.target, self.total, self._rank_mass, len(self._rank_mass) / n, least)
            for name, bracket in self._brackets.items()
        }

    def evaluate_at(self, W: Array) -> Iterate:
        """Evaluate F at W in one pass, or in more if a cut lies outside its bracket.

        If too many rows lie inside the brackets or are tied at a cut, `FullData.evaluate_at` does it.
        """
        if not self.smooth:
            return super().evaluate_at(W)
        s = self._ranks.losses(W)
        ranked, order = s.sort(descending=True)
        reached = self._rank_mass[order].cumsum(0)
        for _ in range(12):
            intervals = {
                name: bracket.interval(s, self._rank_mass, ranked, reached)
                for name, bracket in self._device_brackets.items()
            }
            request = self._request(W, intervals)
            self._on_pass("evaluate")
            found = self.run.sums(request)
            if found.n_undecided > len(found.rows):
                return super().evaluate_at(W)  # millions of equal rows
            cuts = self._cuts_among(found, request)
            missed = [name for name, cut in cuts.items() if cut is None]
            if not missed:
                iterate = self._finish_on_device(request, found, cuts.get("lower"), cuts.get("upper"))
                for name, bracket in self._device_brackets.items():
                    bracket.found(cuts[name].value, s, self._rank_mass)  # type: ignore[union-attr]
                return super().evaluate_at(W) if iterate is None else iterate
            for name in missed:
                self._device_brackets[name].widen()
        raise RuntimeError("no bracket held the cut after twelve passes; please report this")

    def _cuts_among(self, found: PassSums, request: Request) -> dict[str, Cut | None]:
        """The exact cuts; None for a cut outside its bracket."""
        _, _, kept, in_high, above = map(float, found.masses)
        mass, low, high = self.data.mass(found.rows), request.lower, request.upper
        merged = _merged(request)
        cuts: dict[str, Cut | None] = {}
        if high is not None:
            inside = slice(None) if merged else found.losses >= high.low
            cuts["upper"] = cut_among(found.losses[inside], mass[inside], above, self.m)
        if low is not None:
            inside = slice(None) if merged else found.losses <= low.high
            over = above if merged else above + in_high + kept
            cuts["lower"] = cut_among(found.losses[inside], mass[inside], over, self.k)
        return cuts

    def _finish_on_device(
        self, request: Request, found: PassSums, lower: Cut | None, upper: Cut | None
    ) -> Iterate | None:
        """The result of a pass, given its cuts; None if too many rows are tied at a cut for the host."""
        W = request.W
        mass, share = self.data.mass(found.rows), _kept_share(found.losses, lower, upper)
        near = _ListedRows(found.rows, found.losses, found.scores, mass, share)
        reach = self._band_reach(near, request, lower)
        undecided = torch.zeros_like(share, dtype=torch.bool)
        if lower is not None:
            undecided |= (near.losses - lower.value).abs() <= reach
        if upper is not None and upper.taken < upper.tied:
            undecided |= near.losses == upper.value
        rows, weights = None, np.empty(0)
        if bool(undecided.any()):
            inside = near.of(undecided)
            rows = self.engine.collected(self.model, inside.rows, inside.losses, inside.scores, self.limit)
            if rows is None:
                return None
            weights = rows.mass * kept_share(rows.losses, lower, upper)
        certain, crossing = self._sums_near(near, ~undecided & (share > 0), request)
        certain = certain + found.table
        between = Interval(-np.inf if lower is None else lower.value + reach, np.inf if upper is None else upper.value)
        value = self._value_and_gradient(W, certain if rows is None else certain + sums_of(rows, weights))
        return DeviceIterate(W, *value, lower, upper, certain, rows, weights, found.least, between, crossing)

    def _band_reach(self, near: _ListedRows, request: Request, lower: Cut | None) -> float:
        """A distance from the lower cut within which all rows are listed, at most about `band_size` rows.

        0 if there is no lower cut.
        """
        if lower is None or request.lower is None:
            return 0.0
        high = request.upper.high if _merged(request) and request.upper is not None else request.lower.high
        most = max(min(lower.value - request.lower.low, high - lower.value), 0.0)
        distance = (near.losses - lower.value).abs()
        size = min(band_size(self.sample.design.p), len(distance))
        return min(most, float(distance.topk(size, largest=False).values.max()))

    def _sums_near(self, near: _ListedRows, certain: Tensor, request: Request) -> tuple[Array, Array]:
        """The `tangent_sums` of the listed rows that are certainly kept, and the curvature lost to crossing rows.

        The latter is a matrix (p, p). Rows that cross the upper cut lower the curvature, those that cross the lower cut
        raise it. It is 0 if the brackets overlap.
        """
        p, model = self.sample.design.p, self.model
        size = TangentTable.width(1, self.sample.design.d)
        table = torch.zeros(n_slope_groups(1), size, dtype=torch.float64, device=near.losses.device)
        windows = [] if _merged(request) else [(1.0, request.upper), (-1.0, request.lower)]
        moments = [(sign, at, table.new_zeros(p + 1, p + 1)) for sign, at in windows if at is not None]
        marked = replace_share(near, certain)
        for part in marked.chunks(max(1, self.data.sizes.chunk_numbers // p)):
            x, y = self.data.X[part.rows].to(torch.float64), self.data.y[part.rows]
            slope = loss_and_slope(model, y, part.scores)[1]
            weight = part.mass * part.share
            table += tangent_sums(model, x, y, part.losses, slope * weight, part.scores, weight)
            G = torch.cat([x, torch.ones_like(x[:, : p - x.shape[1]])], dim=1) * slope[0, :, None]
            G = torch.cat([G, torch.ones_like(G[:, :1])], dim=1)
            for _, at, moment in moments:
                moment += (G * (part.mass * (part.losses >= at.low) * (part.losses <= at.high))[:, None]).T @ G
        crossing = np.zeros((p, p))
        for sign, at, moment in moments:
            crossing += sign * _bend(moment.cpu().numpy(), _width(near.losses, at)) / self.kept
        return table.cpu().numpy(), crossing

    def hessians(self, iterate: Iterate) -> tuple[Array, Array]:
        """The Hessian of the mean of the kept losses from many rows, and its reduction because rows cross the cuts.

        The Hessian is only used as a metric. With two million rows of 30 columns it differs from that of all rows by
        less than 1% in every direction.
        """
        low = -math.inf if iterate.lower is None else iterate.lower.value
        high = math.inf if iterate.upper is None else iterate.upper.value
        found = newton_pass(self._metric.data, iterate.W, low, high)
        crossing = iterate.crossing if isinstance(iterate, DeviceIterate) else np.zeros_like(found.hessian)
        return found.hessian / max(found.mass, 1e-300), crossing

    def movable(self, iterate: Iterate) -> Movable | None:
        """The rows from which the Hessian is computed and that are certainly kept; None if there are none."""
        if not self.smooth:
            return super().movable(iterate)
        s = self._metric.losses(iterate.W)
        slack = 1e-9 * (1.0 + s.abs())
        inside = (s > iterate.between.low + slack) & (s < iterate.between.high - slack)
        mass = float((self._metric.data.mass(slice(None)) * inside).sum())
        if mass == 0:
            return None
        given = self._metric.data.weight
        run = self._metric.with_weight(inside.to(torch.uint8) if given is None else given * inside)
        return Movable(mass, lambda W: run.sums(Request(W)).table)


def _merged(request: Request) -> bool:
    return request.lower is not None and request.upper is not None and request.upper.low <= request.lower.high


def replace_share(near: _ListedRows, chosen: Tensor) -> _ListedRows:
    """The listed rows, with a kept share of 0 for rows that are not chosen."""
    return near._replace(share=near.share * chosen)


def _width(losses: Tensor, at: Interval) -> float:
    """The range of the losses inside a bracket; 0 if there are none."""
    inside = losses[(losses >= at.low) & (losses <= at.high)]
    return float(inside.max() - inside.min()) if len(inside) else 0.0


def _bend(moment: Array, width: float) -> Array:
    """The covariance of the gradients of rows in a bracket, times the density of their mass, mass / width.

    `moment` is the sum of the outer products of (gradient, 1). 0 if all losses are tied (`width` is at most 1e-9) or
    there are no rows.
    """
    mass, total = float(moment[-1, -1]), moment[-1, :-1]
    if mass <= 0 or width <= 1e-9:
        return np.zeros_like(moment[:-1, :-1])
    return np.asarray((moment[:-1, :-1] - np.outer(total, total) / mass) / width)


def _kept_share(s: Tensor, lower: Cut | None, upper: Cut | None) -> Tensor:
    """`evaluation.kept_share` in PyTorch."""
    share = torch.ones_like(s)
    if upper is not None:
        share[s > upper.value] = 0.0
        share[s == upper.value] = 1.0 - upper.taken / upper.tied
    if lower is not None:
        same = upper is not None and upper.value == lower.value
        share[s < lower.value] = 0.0
        share[s == lower.value] = (lower.taken - (upper.taken if same and upper is not None else 0.0)) / lower.tied
    return share


def cut_among(values: Tensor, mass: Tensor, above: float, target: float) -> Cut | None:
    """`evaluation.cut_among` in PyTorch."""
    if not len(values) or above >= target:
        return None
    ranked, order = values.sort(descending=True)
    reached = above + mass[order].cumsum(0)
    at = int(_position(reached, target * (1.0 - 1e-14)))
    if at == len(ranked):
        return None
    value = ranked[at]
    found = torch.stack([value, (mass * (values == value)).sum(), (mass * (values > value)).sum()])
    cut, tied, over = found.cpu().tolist()
    return Cut(cut, min(tied, target - above - over), tied)
