"""Geometry of the charts: each function returns the SVG coordinates of one chart, as a dict for its template.

The templates draw the charts and escape all texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT = 760, 310
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 38, 54


def histogram(bars: dict[str, list[float]], cuts: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    """A histogram of losses on a logarithmic axis. Heights have a square-root scale, which keeps small bars visible.

    `bars` is the result of `Audit.distribution`, and `cuts` has names and values; a value of None is not drawn.
    """
    edges, rows, wrong = bars["edges"], bars["rows"], bars["wrong"]
    top = max(max(rows), 1)
    floor = HEIGHT - BOTTOM

    def height(value: float) -> float:
        return round((floor - TOP) * math.sqrt(max(value, 0.0) / top), 2)

    drawn = []
    for low, high, count, bad in zip(edges[:-1], edges[1:], rows, wrong, strict=True):
        x, right = x_of(low, edges), x_of(high, edges)
        drawn.append(
            {
                "x": round(x + 0.5, 2),
                "width": round(max(right - x - 1.0, 0.5), 2),
                "rows": int(count),
                "wrong": bad,
                "height": height(count),
                "wrong_height": height(bad),
                "low": f"{low:.3g}",
                "high": f"{high:.3g}",
            }
        )
    lines = [
        {"name": name, "x": round(x_of(value, edges), 2), "value": f"= {value:.3g}" if value >= 1e-3 else "≈ 0"}
        for name, value in cuts
        if value is not None
    ]
    ticks = [{"y": round(floor - height(v), 2), "text": f"{v:,}"} for v in _round_counts(top)]
    return {
        "bars": drawn,
        "floor": floor,
        "ticks": ticks,
        "lines": lines,
        "decades": [{"x": round(x_of(v, edges), 2), "text": f"{v:g}"} for v in _decades(edges[0], edges[-1])],
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "log_low": math.log10(edges[0]),
        "log_high": math.log10(edges[-1]),
    }


def x_of(value: float, edges: Sequence[float]) -> float:
    """The x coordinate of a loss on the logarithmic axis from the first to the last edge, clipped to its ends."""
    low, high = math.log10(edges[0]), math.log10(edges[-1])
    share = (math.log10(max(value, 1e-300)) - low) / max(high - low, 1e-12)
    return LEFT + (WIDTH - LEFT - RIGHT) * min(max(share, 0.0), 1.0)


def _decades(low: float, high: float) -> list[float]:
    marks = [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    if sum(low <= mark <= high for mark in marks) < 3:
        marks = [step * mark for mark in marks for step in (1, 2, 5)]
    return [mark for mark in marks if low <= mark <= high]


def _round_counts(top: float) -> list[int]:
    """Zero and up to six round numbers of at most `top`, spaced for a square-root scale."""
    unit = 10 ** math.floor(math.log10(top))
    candidates = [round(unit * f) for f in (0.1, 0.5, 1, 2, 3, 5, 7, 10)]
    chosen = [0]
    for value in candidates:
        if value > 0 and value <= top and math.sqrt(value / top) - math.sqrt(chosen[-1] / top) > 0.13:
            chosen.append(value)
    return chosen


def whiskers(measure: Any) -> dict[str, Any]:
    """Positions of the scores of both models and of their intervals, on a common axis that covers the intervals."""
    both = [measure.ordinary, measure.robust]
    low, high = min(i.low for i in both), max(i.high for i in both)
    margin = 0.08 * max(high - low, 1e-9)
    low, high = low - margin, high + margin

    def position(value: float) -> float:
        return round(10 + 300 * (value - low) / (high - low), 2)

    return {
        name: {"low": position(i.low), "high": position(i.high), "at": position(i.value)}
        for name, i in (("ordinary", both[0]), ("robust", both[1]))
    }


def rising(rows: Sequence[float], shares: Sequence[float]) -> dict[str, Any]:
    """A curve of shares from 0 to 1 against increasing numbers of rows, with at most 11 of its points as a table."""
    width, height, left, right, top, floor = 380, 250, 46, 368, 12, 206
    most = max(rows[-1], 1)

    def at(x: float, y: float) -> tuple[float, float]:
        return round(left + (right - left) * x / most, 1), round(floor - (floor - top) * min(y, 1.0), 1)

    points = [at(x, y) for x, y in zip(rows, shares, strict=True)]
    step = _round_step(most)
    marks = [step * i for i in range(int(most / step) + 1)]
    return {
        "width": width,
        "height": height,
        "left": left,
        "right": right,
        "floor": floor,
        "path": "M" + "L".join(f"{x} {y}" for x, y in points),
        "x_ticks": [{"at": at(mark, 0)[0], "text": f"{mark:,}"} for mark in marks],
        "y_ticks": [{"at": at(0, share)[1], "text": f"{share:.0%}"} for share in (0.25, 0.5, 0.75, 1.0)],
        "table": _some(list(zip(rows, shares, strict=True)), 11),
    }


def _round_step(most: float) -> int:
    """A round step with at most five steps up to `most`."""
    unit = 10 ** max(0, math.floor(math.log10(max(most, 1))) - 1)
    return next(int(unit * f) for f in (1, 2, 5, 10, 20, 50, 100) if most / (unit * f) <= 5)


def _some(items: list[Any], most: int) -> list[Any]:
    """At most `most` items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def scatter(points: dict[str, list[Any]], n_labels: int) -> dict[str, Any]:
    """Points of the unit square: dots for rows, crosses for suspects (rank above 0), one path per label of each.

    `points` is `Evidence.points`: lists "x", "y", "label" (from 0 to `n_labels` - 1) and "rank".
    """
    width, height, left, right, top, floor = 380, 340, 26, 372, 8, 314
    dots: list[list[str]] = [[] for _ in range(n_labels)]
    crosses: list[list[str]] = [[] for _ in range(n_labels)]
    for x, y, label, rank in zip(points["x"], points["y"], points["label"], points["rank"], strict=True):
        at_x, at_y = round(left + 6 + (right - left - 12) * x, 1), round(floor - 6 - (floor - top - 12) * y, 1)
        if rank:
            crosses[label].append(f"M{at_x - 3:.1f} {at_y - 3:.1f}l6 6m0-6l-6 6")
        else:
            dots[label].append(f"M{at_x} {at_y}h0")
    drawn = {
        name: [{"label": c, "path": "".join(paths)} for c, paths in enumerate(layers) if paths]
        for name, layers in (("dots", dots), ("crosses", crosses))
    }
    return {"width": width, "height": height, "left": left, "right": right, "top": top, "floor": floor, **drawn}


def stacked(counts: list[list[int]]) -> dict[str, Any]:
    """Small stacked bars, one path per label; counts[label][bar] is a number of rows."""
    width, height = 160, 34
    bars = len(counts[0]) if counts else 0
    top = max((sum(label[b] for label in counts) for b in range(bars)), default=0) or 1
    paths = [""] * len(counts)
    for b in range(bars):
        below = 0.0
        for c, label in enumerate(counts):
            tall = height * label[b] / top
            if tall >= 0.05:
                x, wide = width * b / bars + 0.5, width / bars - 1
                paths[c] += f"M{x:.1f} {height - below:.1f}v-{tall:.1f}h{wide:.1f}v{tall:.1f}z"
            below += tall
    return {"width": width, "height": height, "paths": paths}
