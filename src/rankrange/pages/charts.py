"""Geometry of the charts: numbers in, places on an SVG out. The templates draw them, so every text is escaped there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT = 760, 310
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 38, 54


def histogram(bars: dict[str, list[float]], cuts: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    """Bars over a logarithmic axis of the loss, heights by square root so that a few rows still show beside many.

    Parameters
    ----------
    bars : dict
        Lists "edges", "rows" and "wrong", as `Audit.distribution` gives them.
    cuts : sequence of tuple
        Names and places of the cuts; None is not drawn.

    Returns
    -------
    dict
        Places on the SVG, as the template wants them.
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
    """Where a loss lies on the axis of these edges; what is outside is put at its end."""
    low, high = math.log10(edges[0]), math.log10(edges[-1])
    share = (math.log10(max(value, 1e-300)) - low) / max(high - low, 1e-12)
    return LEFT + (WIDTH - LEFT - RIGHT) * min(max(share, 0.0), 1.0)


def _decades(low: float, high: float) -> list[float]:
    marks = [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    if sum(low <= mark <= high for mark in marks) < 3:
        marks = [step * mark for mark in marks for step in (1, 2, 5)]
    return [mark for mark in marks if low <= mark <= high]


def _round_counts(top: float) -> list[int]:
    """Zero and up to four round numbers, further apart as they grow, as the square root asks for."""
    unit = 10 ** math.floor(math.log10(top))
    candidates = [round(unit * f) for f in (0.1, 0.5, 1, 2, 3, 5, 7, 10)]
    chosen = [0]
    for value in candidates:
        if value > 0 and value <= top and math.sqrt(value / top) - math.sqrt(chosen[-1] / top) > 0.13:
            chosen.append(value)
    return chosen


def whiskers(measure: Any) -> dict[str, Any]:
    """Both models' values with their intervals on one axis, which is as long as the intervals ask for."""
    both = [measure.ordinary, measure.robust]
    low, high = min(i.low for i in both), max(i.high for i in both)
    margin = 0.08 * max(high - low, 1e-9)
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return round(10 + 300 * (value - low) / (high - low), 2)

    return {
        name: {"low": place(i.low), "high": place(i.high), "at": place(i.value)}
        for name, i in (("ordinary", both[0]), ("robust", both[1]))
    }
