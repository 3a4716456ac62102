"""Shared style of the figures: one colour per method (safe for colour blindness), plain axes, shaded errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

COLOURS = {
    "Maximum": "#CC79A7",
    "Robust_Max": "#E69F00",
    "Average": "#0072B2",
    "AT_k": "#009E73",
    "AoRR": "#D55E00",
    "Bayes": "#222222",
}
STYLES = {"Maximum": ":", "Robust_Max": "-.", "Average": "--", "AT_k": (0, (5, 1)), "AoRR": "-", "Bayes": (0, (1, 1))}
NAMES = {"AT_k": "AT$_k$", "Robust_Max": "Robust Max", "Bayes": "Bayes rule"}


def sheet(rows: int, columns: int, *, width: float = 2.9, height: float = 2.6, **options: Any) -> tuple[Any, Any]:
    """Make a figure with a grid of axes.

    Parameters
    ----------
    rows, columns : int
        The size of the grid.
    width, height : float
        The size of one axis, in inches.
    **options
        Passed to matplotlib's `subplots`.

    Returns
    -------
    figure, axes : Figure and ndarray of shape (rows, columns)
        The figure and its axes, in the plain style of `quiet`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for one in axes.flat:
        quiet(one)
    return figure, axes


def quiet(axes: Any) -> None:
    """Apply the plain style to an axis: only the left and bottom spines, and light horizontal grid lines."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(labelsize=8, color="#888888")
    axes.grid(axis="y", color="#e6e6e6", lw=0.7)
    axes.set_axisbelow(True)


def curve(axes: Any, x: Any, values: Any, method: str, *, label: str | None = None, **style: Any) -> None:
    """Draw the mean over the splits of values (splits, points), and two standard errors around it as a shaded area.

    A single split has no shaded area. `method` is a key of `COLOURS`, and `style` are options of the line.
    """
    values = np.asarray(values, dtype=float)
    mean = values.mean(axis=0)
    line = {"color": COLOURS[method], "ls": STYLES[method], "lw": 1.8, **style}
    axes.plot(x, mean, label=label or NAMES.get(method, method), **line)
    if len(values) > 1:
        error = 2.0 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axes.fill_between(x, mean - error, mean + error, color=line["color"], alpha=0.13, lw=0)


def level(axes: Any, values: Sequence[float], method: str) -> None:
    """Draw the mean of the values of a method that does not depend on x, as a horizontal line."""
    name = NAMES.get(method, method)
    axes.axhline(float(np.mean(values)), color=COLOURS[method], ls=STYLES[method], lw=1.4, label=name)


def shared_legend(figure: Any, axes: Any, *, columns: int = 6) -> None:
    """Draw one legend for all axes, above them."""
    found: dict[str, Any] = {}
    for one in np.ravel(axes):
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(
        list(found.values()), list(found), loc="outside upper center", ncols=columns, frameon=False, fontsize=9
    )
