"""Geometry of the charts: each function returns the SVG coordinates of one chart, as a dict for its template."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

_FRAME = ("width", "height", "left", "right", "top", "floor")


def histogram(bars: dict[str, list[float]], cuts: Sequence[tuple[str, float | None]]) -> dict[str, Any]:
    """A histogram of losses on a logarithmic axis. Heights have a square-root scale, which keeps small bars visible.

    `bars` is the result of `Audit.distribution`, and `cuts` has names and values; a value of None is not drawn.
    """
    frame = (760, 310, 64, 744, 38, 256)
    _, _, left, right, top, floor = frame
    edges, rows, wrong = bars["edges"], bars["rows"], bars["wrong"]
    most = max(max(rows), 1)
    log_low, log_high = math.log10(edges[0]), math.log10(edges[-1])
    on_axis = _scale(log_low, log_high, left, right)

    def x_of(loss: float) -> float:
        return on_axis(min(max(math.log10(max(loss, 1e-300)), log_low), log_high))

    def tall(count: float) -> float:
        return round((floor - top) * math.sqrt(max(count, 0.0) / most), 2)

    drawn = [
        {
            "x": round(x_of(low) + 0.5, 2),
            "width": round(max(x_of(high) - x_of(low) - 1.0, 0.5), 2),
            "rows": int(count),
            "wrong": bad,
            "height": tall(count),
            "wrong_height": tall(bad),
            "low": f"{low:.3g}",
            "high": f"{high:.3g}",
        }
        for low, high, count, bad in zip(edges[:-1], edges[1:], rows, wrong, strict=True)
    ]
    lines = [
        {"name": name, "x": x_of(value), "value": f"= {value:.3g}" if value >= 1e-3 else "≈ 0"}
        for name, value in cuts
        if value is not None
    ]
    return {
        **dict(zip(_FRAME, frame, strict=True)),
        "log_low": log_low,
        "log_high": log_high,
        "bars": drawn,
        "lines": lines,
        "ticks": [{"y": round(floor - tall(v), 2), "text": f"{v:,}"} for v in _round_counts(most)],
        "decades": [{"x": x_of(v), "text": f"{v:g}"} for v in _decades(edges[0], edges[-1])],
    }


def _scale(low: float, high: float, start: float, stop: float) -> Callable[[float], float]:
    return lambda value: round(start + (stop - start) * (value - low) / max(high - low, 1e-12), 2)


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten on an axis, also 2 and 5 times these if they are fewer than three."""
    powers = [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    inside = [mark for mark in powers if low <= mark <= high]
    return inside if len(inside) > 2 else [f * p for p in powers for f in (1, 2, 5) if low <= f * p <= high]


def _round_counts(most: float) -> list[int]:
    """Zero and a few round numbers of at most `most`, spaced for a square-root scale."""
    return sorted({0, *(_round_step(most * share) for share in (0.04, 0.2, 0.5, 1.0))})


def _round_step(value: float) -> int:
    """The largest of 1, 2, 5, 10, 20, ... that is at most `value`, at least 1."""
    unit = 10 ** math.floor(math.log10(max(value, 1)))
    return max(unit * f for f in (1, 2, 5) if unit * f <= max(value, 1))


def whiskers(measure: Any) -> dict[str, Any]:
    """Positions of the scores of both models and of their intervals, on a common axis that covers the intervals."""
    both = {"ordinary": measure.ordinary, "robust": measure.robust}
    low, high = min(i.low for i in both.values()), max(i.high for i in both.values())
    position = _scale(low, high, 33, 287) if high > low else _scale(low - 1, low + 1, 33, 287)
    return {
        name: {"low": position(i.low), "high": position(i.high), "at": position(i.value)} for name, i in both.items()
    }


def rising(rows: Sequence[float], shares: Sequence[float]) -> dict[str, Any]:
    """A curve of shares from 0 to 1 against increasing numbers of rows, with at most 11 of its points as a table."""
    frame = (380, 250, 46, 368, 12, 206)
    _, _, left, right, top, floor = frame
    most = max(rows[-1], 1)
    x_of, y_of = _scale(0, most, left, right), _scale(0, 1, floor, top)
    points = list(zip(rows, shares, strict=True))
    step = max(_round_step(most / 3), 1)
    shown = sorted({round(i * (len(points) - 1) / 10) for i in range(11)})
    return {
        **dict(zip(_FRAME, frame, strict=True)),
        "path": "M" + "L".join(f"{x_of(x)} {y_of(min(y, 1.0))}" for x, y in points),
        "x_ticks": [{"at": x_of(mark), "text": f"{mark:,}"} for mark in range(0, int(most) + 1, step)],
        "y_ticks": [{"at": y_of(share), "text": f"{share:.0%}"} for share in (0.25, 0.5, 0.75, 1.0)],
        "table": [points[i] for i in shown],
    }


def scatter(points: dict[str, list[Any]], n_labels: int) -> dict[str, Any]:
    """Points of the unit square (`Evidence.points`): dots for rows and crosses for suspects, a path per label."""
    frame = (380, 340, 26, 372, 8, 314)
    _, _, left, right, top, floor = frame
    x_of, y_of = _scale(0, 1, left + 6, right - 6), _scale(0, 1, floor - 6, top + 6)
    paths = {"dots": [""] * n_labels, "crosses": [""] * n_labels}
    for x, y, label, rank in zip(points["x"], points["y"], points["label"], points["rank"], strict=True):
        if rank:
            paths["crosses"][label] += f"M{x_of(x) - 3:.1f} {y_of(y) - 3:.1f}l6 6m0-6l-6 6"
        else:
            paths["dots"][label] += f"M{x_of(x):.1f} {y_of(y):.1f}h0"
    layers = {
        name: [{"label": c, "path": path} for c, path in enumerate(found) if path] for name, found in paths.items()
    }
    return {**dict(zip(_FRAME, frame, strict=True)), **layers}


def stacked(counts: list[list[int]]) -> dict[str, Any]:
    """Small stacked bars, one path per label; counts[label][bar] is a number of rows."""
    width, height = 160, 34
    sums = [sum(bar) for bar in zip(*counts, strict=True)]
    most, bars = max(sums, default=0) or 1, len(sums)
    below = [0.0] * bars
    paths = []
    for label in counts:
        path = ""
        for b, count in enumerate(label):
            tall = height * count / most
            if tall >= 0.05:
                x, wide = width * b / bars + 0.5, width / bars - 1
                path += f"M{x:.1f} {height - below[b]:.1f}v-{tall:.1f}h{wide:.1f}v{tall:.1f}z"
            below[b] += tall
        paths.append(path)
    return {"width": width, "height": height, "paths": paths}
