"""Shared style of the figures: one colour per method (safe for colour blindness), plain axes, shaded errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

COLOURS = {
    "Maximum": "#CC79A7",
    "Robust_Max": "#E69F00",
    "Average": "#0072B2",
    "AT_k": "#009E73",
    "AoRR": "#D55E00",
    "Bayes": "#222222",
}
STYLES = {"Maximum": ":", "Robust_Max": "-.", "Average": "--", "AT_k": (0, (5, 1)), "AoRR": "-", "Bayes": (0, (1, 1))}


def sheet(rows: int, columns: int, *, width: float = 2.9, height: float = 2.6, **options: Any) -> tuple[Any, Any]:
    """A figure with a grid of plain axes; width and height are those of one axis, in inches."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=8)
        one.grid(axis="y", color="#e6e6e6", lw=0.7)
        one.set_axisbelow(True)
    return figure, axes


def curve(axes: Any, x: Any, values: Any, method: str, **style: Any) -> None:
    """The mean over the splits of values (splits, points), and two standard errors around it as a shaded area."""
    values = np.asarray(values, dtype=float)
    mean = values.mean(axis=0)
    line = {"color": COLOURS[method], "ls": STYLES[method], "lw": 1.8, "label": method, **style}
    axes.plot(x, mean, **line)
    if len(values) > 1:
        error = 2.0 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axes.fill_between(x, mean - error, mean + error, color=line["color"], alpha=0.13, lw=0)


def level(axes: Any, values: Any, method: str, label: str = "") -> None:
    """The mean of a method that does not depend on x, as a horizontal line."""
    if len(values):
        style = {"color": COLOURS[method], "ls": STYLES[method], "lw": 1.4}
        axes.axhline(float(np.mean(values)), label=label or method, **style)


def shared_legend(figure: Any, axes: Any) -> None:
    """One legend for all axes, above them."""
    found: dict[str, Any] = {}
    for one in np.ravel(axes):
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(list(found.values()), list(found), loc="outside upper center", ncols=6, frameon=False, fontsize=9)
