"""Rows of the results: the mean over splits of each measure, compared with the number printed in the paper."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import EXPERIMENTS, experiment
from .cells import Cell, Outcome, Plan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NOT_PRINTED = "not printed"


@dataclass(frozen=True)
class Row:
    """One number of the results: a mean over n splits, with its standard deviation and the numbers of the paper.

    `sd` is None for a single split, and the numbers of the paper are None if it does not print them. `verdict` compares
    the means, in units of the combined standard deviation. "same" is within one unit, "better" and "worse" are beyond
    it; "not printed" means that the paper has no such number, or that no table shows the metric.
    """

    experiment: str
    dataset: str
    method: str
    setting: str
    metric: str
    protocol: str
    paper_mean: float | None
    paper_sd: float | None
    mean: float
    sd: float | None
    n: int
    verdict: str

    @property
    def units(self) -> float | None:
        """(Ours - paper) in combined standard deviations; None if nothing is printed or nothing varies."""
        spread = math.hypot(self.sd or 0.0, self.paper_sd or 0.0)
        return None if self.paper_mean is None or spread == 0.0 else (self.mean - self.paper_mean) / spread

    def reached(self, higher_is_better: bool) -> bool:
        """Whether the mean is at most one standard deviation worse than the paper's; False if none is printed.

        The standard deviation is the paper's, or ours if it prints none.
        """
        sign = 1.0 if higher_is_better else -1.0
        slack = self.paper_sd if self.paper_sd is not None else self.sd or 0.0
        return self.paper_mean is not None and sign * (self.mean - self.paper_mean) >= -slack


@cache
def expected() -> dict[str, Any]:
    """The paper's numbers in nested dicts, by experiment, metric, dataset, setting and method.

    An entry is [mean, standard deviation]; the latter may be missing.
    """
    return tomllib.loads((Path(__file__).parent / "expected.toml").read_text(encoding="utf-8"))


def printed(name: str, metric: str, dataset: str, setting: str, method: str) -> tuple[float | None, float | None]:
    """The printed mean and standard deviation; None if the paper does not print them."""
    found: Any = expected()
    for key in (name, metric, dataset, setting, method):
        found = found.get(key, {})
    return tuple([*found, None, None][:2]) if found else (None, None)


def higher_is_better(name: str, metric: str) -> bool | None:
    """Whether larger values of a metric are better; None if no table shows the metric."""
    return next((table.higher_is_better for table in experiment(name).TABLES if table.metric == metric), None)


def rows_of(outcomes: Iterable[tuple[Cell, Outcome]]) -> list[Row]:
    """One row for each experiment, dataset, method, setting, metric and protocol; protocols are never mixed."""
    values: dict[tuple[str, ...], list[float]] = {}
    for cell, outcome in sorted(outcomes, key=lambda pair: _position(pair[0])):
        for measure in outcome.measures:
            key = (cell.experiment, cell.dataset, measure.method, measure.setting, measure.metric, cell.protocol)
            values.setdefault(key, []).append(measure.value)
    return [_row(key, np.array(found)) for key, found in values.items()]


def _position(cell: Cell) -> tuple[int, int, str]:
    """The position of a cell in the plan of its experiment, which orders the tables."""
    order = _order(cell.experiment, Plan(cell.protocol, cell.size))
    return list(EXPERIMENTS).index(cell.experiment), order.get(cell.key, len(order)), cell.key


@cache
def _order(name: str, plan: Plan) -> dict[str, int]:
    return {cell.key: index for index, cell in enumerate(experiment(name).cells(plan))}


def _row(key: tuple[str, ...], found: Any) -> Row:
    name, dataset, method, setting, metric, protocol = key
    paper_mean, paper_sd = printed(name, metric, dataset, setting, method)
    mean, sd = float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else None
    row = Row(name, dataset, method, setting, metric, protocol, paper_mean, paper_sd, mean, sd, len(found), NOT_PRINTED)
    return replace(row, verdict=_verdict(row))


def _verdict(row: Row) -> str:
    up = higher_is_better(row.experiment, row.metric)
    if row.paper_mean is None or up is None:
        return NOT_PRINTED
    difference = row.mean - row.paper_mean
    units = row.units if row.units is not None else math.copysign(math.inf, difference) if difference else 0.0
    return "same" if abs(units) <= 1.0 else "better" if (units > 0) == up else "worse"


@dataclass(frozen=True)
class Move:
    """A number that differs between two runs: its key, both means, and the noise (two standard errors).

    A mean is None, and the noise 0, if only one run has the number.
    """

    key: tuple[str, ...]
    before: float | None
    after: float | None
    noise: float

    def __str__(self) -> str:
        shown = ["absent" if value is None else f"{value:.4g}" for value in (self.before, self.after)]
        return f"{', '.join(self.key)}: {shown[0]} -> {shown[1]}" + (f" (noise {self.noise:.2g})" if self.noise else "")


def moved(before: Iterable[Row], after: Iterable[Row]) -> list[Move]:
    """Numbers that differ between two runs by more than two standard errors, or that only one of them has.

    The standard errors are those for independent splits. Runs on the same splits vary less, so a listed number did
    change.
    """
    old, new = ({_key(row): row for row in rows} for rows in (before, after))
    found = []
    for key in [*old, *(key for key in new if key not in old)]:
        one, other = old.get(key), new.get(key)
        if one is None or other is None:
            found.append(Move(key, None if one is None else one.mean, None if other is None else other.mean, 0.0))
            continue
        noise = 2.0 * math.hypot(*((row.sd or 0.0) / math.sqrt(row.n) for row in (one, other)))
        if abs(other.mean - one.mean) > max(noise, 1e-9 * abs(one.mean)):
            found.append(Move(key, one.mean, other.mean, noise))
    return found


def _key(row: Row) -> tuple[str, ...]:
    return row.experiment, row.dataset, row.method, row.setting, row.metric, row.protocol
