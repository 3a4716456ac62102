"""The data of the charts of an audit: losses, the cut, columns by label, the scatter plot of rows, confused labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from ..core.arrays import Array
from .row_problems import placeholders_of
from .target import Target
from .task_result import TaskResult

# The number of positions of the slider, and of bars of the loss histogram.
_STEPS, _LOSS_BARS = 200, 48
# The largest number of bars of a column and of labels in the table of confusions, of colours, and of points in the
# scatter plot.
_BARS, MAX_COLOURS, _POINTS = 12, 4, 1500


@dataclass(frozen=True)
class ColumnPicture:
    """The distribution of a column by label: counts (labels, bars), and the texts of the first and the last bar.

    For numbers, `ends` are the 0.5% and 99.5% quantiles, and `values` is empty.
    """

    name: str
    counts: list[list[int]]
    ends: tuple[str, str]
    values: list[str]  # for texts: the text of each bar


# ---- losses and the cut ----------------------------------------------------------------------------------------------


def cut_curve(result: TaskResult, n_likely: int) -> dict[str, list[float]]:
    """The effect of moving the cut; see `Audit.cut_curve`. The cuts include those of m and of `n_likely` rows."""
    order = np.argsort(-result.losses, kind="stable")
    losses, wrong = result.losses[order], np.cumsum(result.wrong[order])
    n, most = len(order), max(20, int(0.6 * len(order)))
    counts = np.concatenate([np.geomspace(1, most, _STEPS).round(), np.arange(1, 41), [result.m, n_likely]])
    counts = np.unique(counts[(counts >= 1) & (counts <= min(most, n))]).astype(int)
    # Rows with equal losses are cut together, so the cut is at the last of them.
    ends = np.unique(n - np.searchsorted(losses[::-1], losses[counts - 1], side="left"))
    return {
        "cut": losses[ends - 1].tolist(),
        "count": ends.tolist(),
        "precision": (wrong[ends - 1] / ends).tolist(),
        "found": (wrong[ends - 1] / max(float(wrong[-1]), 1e-12)).tolist(),
    }


def loss_bars(result: TaskResult) -> dict[str, list[float]]:
    """The distribution of the losses; see `Audit.distribution`."""
    losses = result.losses
    high = float(losses.max()) or 1.0
    # The first bar contains all losses near zero, which would otherwise stretch the logarithmic axis.
    sample = losses[losses > 1e-6 * (float(np.quantile(losses, 0.9)) or high)]
    least, low = map(float, np.quantile(sample, [0.005, 0.1])) if len(sample) else (0.1, 0.1)
    # Four decades, or more if the first bar would otherwise contain nearly all rows.
    low = max(least, min(low, 1e-4 * high), 1e-12 * high)
    edges = np.geomspace(low, max(high, 1.01 * low), _LOSS_BARS + 1)
    bar = np.clip(np.searchsorted(edges, losses, side="right") - 1, 0, _LOSS_BARS - 1)
    return {
        "edges": edges.tolist(),
        "rows": np.bincount(bar, minlength=_LOSS_BARS).tolist(),
        "wrong": np.bincount(bar, weights=result.wrong, minlength=_LOSS_BARS).tolist(),
    }


def found_curve(result: TaskResult) -> Array:
    """Array (listed + 1,): the share of all expected errors in the first 0, 1, 2, ... rows of the list."""
    return np.cumsum([0.0, *result.wrong[result.order]]) / max(float(result.wrong.sum()), 1e-12)


def confusions(target: Target, result: TaskResult) -> tuple[list[str], list[list[int]]]:
    """The 12 most frequent labels of suspects, and the number of suspects for each pair of given and suggested label.

    Both are empty if the target has no classes.
    """
    if target.task != "classes":
        return [], []
    pairs = Counter(zip((target.names[target.y[i]] for i in result.order), result.suggested, strict=True))
    often = Counter(label for pair in pairs.elements() for label in pair)
    labels = sorted(label for label, _ in often.most_common(_BARS))
    return labels, [[pairs[one, other] for other in labels] for one in labels]


# ---- columns and rows ------------------------------------------------------------------------------------------------


def colours(target: Target) -> tuple[list[str], Array]:
    """The label of each colour, and the colour of each row: up to 4 classes, or the 3 largest and "other labels"."""
    if target.task != "classes":
        return ["rows"], np.zeros(len(target.y), dtype=np.intp)
    frequent = [code for code, _ in Counter(target.y.tolist()).most_common(MAX_COLOURS)]
    others = len(target.names) > MAX_COLOURS
    shown = sorted(frequent[:-1] if others else frequent)
    colour_of = np.full(len(target.names), len(shown))
    colour_of[shown] = np.arange(len(shown))
    return [target.names[code] for code in shown] + ["other labels"] * others, colour_of[target.y]


def column_picture(column: Any, colour: Array, n_colours: int) -> ColumnPicture:
    """The distribution of a column (`Column`) by colour: a histogram, or counts of the 12 most frequent texts.

    Missing cells and placeholders do not count; numbers beyond the central 99% are in the outer bars.
    """
    if column.values is not None:
        present = ~column.missing & ~np.isin(column.values, placeholders_of(column))
        values = column.values[present]
        low, high = np.quantile(values, [0.005, 0.995], method="nearest") if len(values) else (0.0, 1.0)
        bars, names = (_BARS if low < high else 1), []
        # Clipped before the division: an extreme value would overflow the integer.
        inside = (np.clip(values, low, high) - low) / (high - low if high > low else 1.0)
        bar = np.minimum((inside * bars).astype(int), bars - 1)
        ends = (column.value_text(float(low), 4), column.value_text(float(high), 4))
    else:
        present = column.codes >= 0
        order = np.argsort(-np.bincount(column.codes[present], minlength=len(column.levels)), kind="stable")[:_BARS]
        bars, names = len(order), [column.levels[i][:30] for i in order]
        place = np.full(len(column.levels), -1)
        place[order] = np.arange(bars)
        bar = place[column.codes[present]]
        ends = (names[0], names[-1]) if names else ("", "")
    counts = [np.bincount(bar[(colour[present] == c) & (bar >= 0)], minlength=bars).tolist() for c in range(n_colours)]
    return ColumnPicture(column.name, counts, ends, names)


def points_of(
    X: Any, target: Target, result: TaskResult, colour: Array, rng: np.random.Generator
) -> tuple[dict[str, list[Any]], tuple[str, str]]:
    """The scatter plot of a sample of rows as in `Evidence.points`, and its axis labels.

    The axes are the expected and the given values of a numeric target, two principal components of the scores, or the
    only score and the first principal component of the rest of X.
    """
    rank = np.zeros(len(target.y), dtype=int)
    rank[result.order] = np.arange(1, len(result.order) + 1)
    others = np.flatnonzero(rank == 0)
    if len(others) > _POINTS:
        others = rng.choice(others, _POINTS, replace=False)
    rows = np.concatenate([np.sort(others), result.order[: _POINTS // 3][::-1]])
    both, axes = _components(X[rows], target.y[rows], result.model, target.task)
    low, high = np.quantile(both, [0.005, 0.995], axis=0)
    both = np.clip((both - low) / np.maximum(high - low, 1e-12), 0.0, 1.0).round(3)
    x, y = both.T.tolist()
    return {"x": x, "y": y, "label": colour[rows].tolist(), "rank": rank[rows].tolist()}, axes


def _components(X: Any, y: Array, model: Any, task: str) -> tuple[Array, tuple[str, str]]:
    if task == "numbers":
        return np.column_stack([np.asarray(model.predict(X)).ravel(), y]), ("expected", "given")
    scores = np.asarray(model.decision_function(X), dtype=np.float64)
    if scores.ndim > 1 and scores.shape[1] > 2:
        both = PCA(2, svd_solver="full").fit_transform(scores)
        return both, ("first component of the scores", "second component of the scores")
    score = scores.ravel() if scores.ndim == 1 else scores[:, 1] - scores[:, 0]
    rest = np.asarray(X, dtype=np.float64)
    rest = rest - rest.mean(axis=0)
    centred = score - score.mean()
    rest = rest - np.outer(centred, centred @ rest) / max(float(centred @ centred), 1e-12)
    axes = ("score of the model", "first component of the other directions")
    return np.column_stack([score, PCA(1, svd_solver="full").fit_transform(rest)]), axes
