"""Figures 5 and 6: two sets of points in the plane with 1 to 20 outliers, and the line that each aggregate draws.

The paper shows one draw of each set and prints no numbers. Here each case is drawn several times, and the error is
measured on 20,000 new points without outliers. With h outliers AT_k keeps k = h + 1 losses and AoRR rank h + 1 alone.
A model that is no better than scores of zero predicts the larger class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrange import AoRRClassifier, algorithms

from .. import data, plots
from . import Cell, Row, every

TITLE = "Figures 5 and 6: points in the plane with outliers"
NEEDS = ("toy_multimodal", "toy_imbalanced")
METRIC, AGAINST_K = "error %", "error % against k"
TABLES = {METRIC: ("Error on fresh points without outliers, %", "lower")}
METHODS = ("Average", "Maximum", "AT_k", "AoRR")
LOSSES = ("logistic", "hinge")
CASES = (1, 2, 3, 4, 5, 10, 20)
PAPERS = "1 outlier of the paper"  # its own points, for the figure
C = 1e4  # the paper's for its other data; its toy settings do not state it
ZERO = {"logistic": float(np.log(2.0)), "hinge": 1.0}  # the loss of each row at scores of zero
OUTER, INNER, RATE = {"logistic": 100, "hinge": 5}, 1000, 0.01  # Table 11


def cells(protocol: str, quick: bool) -> list[Cell]:
    """One cell for each number of outliers and draw; the imbalanced set has one outlier only."""
    splits = 2 if quick else 10 if protocol == "held-out" else 3
    cases = (1, 5) if quick else CASES
    found = every("toy", protocol, quick, NEEDS[:1], [f"{h} outliers" for h in cases], splits)
    found += every("toy", protocol, quick, NEEDS[1:], ["1 outliers"], splits)
    return found + every("toy", protocol, quick, NEEDS, [PAPERS], 1)


def run(cell: Cell) -> tuple[list[Row], dict[str, Any]]:
    """Fit all aggregates with both losses to one draw; with one outlier also AT_k and AoRR for other values of k."""
    h = int(cell.part.split()[0])
    drawn = _papers_points(cell) if cell.part == PAPERS else None
    drawn = drawn or data.load(cell.dataset, n_outliers=h, random_state=cell.seed)
    fresh = data.load(cell.dataset, n_samples=20_000, n_outliers=0, random_state=cell.seed + 500_000)
    n = len(drawn.target)
    ranges = {"Average": (0, n), "Maximum": (0, 1), "AT_k": (0, h + 1), "AoRR": (h, h + 1)}
    rows, lines = [], {}
    for loss in LOSSES:
        for method, (m, k) in ranges.items():
            line, error = _fit(cell, drawn, fresh, m, k, loss)
            rows.append(Row(method, f"{loss}, {h} outliers", METRIC, error))
            lines[f"{method} {loss}"] = line
        if cell.part == "1 outliers" and cell.protocol == "held-out":
            for k in (2, 100, n) if cell.quick else (2, 4, 10, 20, 50, 100, 150, n):
                for method, m in (("AT_k", 0), ("AoRR", 1)):
                    error = _fit(cell, drawn, fresh, m, k, loss)[1]
                    rows.append(Row(f"{method}, k={k}", loss, AGAINST_K, error))
    bayes = [*drawn.bayes_coef.tolist(), float(drawn.bayes_intercept)]
    points = {name: drawn[name].tolist() for name in ("data", "target", "outliers")} if cell.split == 0 else {}
    return ([] if cell.part == PAPERS else rows), {"lines": lines, "bayes": bayes, "points": points}


def _papers_points(cell: Cell) -> Any:
    """The paper's own 200 points; None if the folder does not have them, and the figure then shows a draw."""
    try:
        return data.load(cell.dataset, source="paper")
    except FileNotFoundError:
        return None


def _fit(cell: Cell, drawn: Any, fresh: Any, m: int, k: int, loss: str) -> tuple[list[float], float]:
    """The line w1, w2, b of one fit and its error on fresh points, in percent."""
    if cell.protocol == "held-out":
        model = AoRRClassifier(m, k, loss=loss, C=C / (k - m), n_starts=5, tol=1e-4, random_state=0)
        model.fit(drawn.data, drawn.target)
        line, objective = [*model.coef_[0], model.intercept_[0]], model.objective_ / C
    else:  # the step is that of the average of the kept losses: n / (k - m) times that of the mean over all rows
        X, n = np.column_stack([drawn.data, np.ones(len(drawn.data))]), len(drawn.data)
        steps = {"outer_steps": OUTER[loss], "inner_steps": INNER // 50 if cell.quick else INNER}
        run = algorithms.dca(X, 2 * drawn.target - 1, m, k, loss=loss, C=C, step=RATE * n / (k - m), **steps)
        line, objective = list(run.theta[0]), float(run.objective[-1])
    predicted = (fresh.data @ line[:2] + line[2] > 0).astype(int)
    if objective >= 0.999 * ZERO[loss]:
        predicted[:] = np.bincount(drawn.target).argmax()
    return [float(w) for w in line], 100.0 * float(np.mean(predicted != fresh.target))


def figures(results: Any) -> dict[str, Any]:
    """The lines of one draw of each case and, for one outlier, the error against k."""
    first = [record for record in results.records if record["extra"]["points"]]
    if not first:
        return {}
    first.sort(key=lambda record: (record["dataset"] != NEEDS[0], int(record["part"].split()[0])))
    figure, axes = plots.sheet(len(LOSSES), len(first), width=2.4, height=2.5)
    for column, record in enumerate(first):
        for row, loss in enumerate(LOSSES):
            _lines(axes[row, column], record, loss)
            axes[row, column].set_title(f"{record['dataset'][4:]}, {record['part']}\n{loss}", fontsize=8)
    plots.shared_legend(figure, axes)
    found = {"figures-5-and-6-lines": figure}
    if results.settings(AGAINST_K):
        found["figure-5-against-k"] = _against_k(results)
    return found


def _against_k(results: Any) -> Any:
    places = results.settings(AGAINST_K)
    figure, (axes,) = plots.sheet(1, len(places))
    for axis, place in zip(axes, places, strict=True):
        for method in ("AT_k", "AoRR"):
            ks = [int(m.partition("=")[2]) for m in results.methods(AGAINST_K) if m.startswith(f"{method},")]
            values = [results.array(AGAINST_K, *place, f"{method}, k={k}") for k in ks]
            plots.curve(axis, ks, np.transpose(values), method, marker="o", ms=3)
        axis.set(xscale="log", xlabel="k", ylabel="error on fresh points, %", title=" ".join(place))
    plots.shared_legend(figure, axes)
    return figure


def _lines(axes: Any, record: dict[str, Any], loss: str) -> None:
    x, y, outliers = (np.array(record["extra"]["points"][name]) for name in ("data", "target", "outliers"))
    for label, colour in ((1, "#6FA8DC"), (0, "#E78B82")):
        axes.scatter(*x[~outliers & (y == label)].T, s=9, color=colour, lw=0)
    axes.scatter(*x[outliers].T, s=38, color="#1F4E8C", marker="x", label="outliers")
    axes.set(xlim=(x[:, 0].min() - 0.25, x[:, 0].max() + 0.25), ylim=(x[:, 1].min() - 0.25, x[:, 1].max() + 0.25))
    lines = {"Bayes": record["extra"]["bayes"]}
    lines |= {method: record["extra"]["lines"][f"{method} {loss}"] for method in METHODS}
    for method, (w1, w2, b) in lines.items():
        style = {"color": plots.COLOURS[method], "ls": plots.STYLES[method], "label": method}
        if abs(w1) + abs(w2) > 1e-6:  # a model of zeros has no line
            point = -b / (w1**2 + w2**2) * np.array([w1, w2])
            axes.axline(point, point + np.array([-w2, w1]), **style)
        else:
            axes.plot([], [], **style)
