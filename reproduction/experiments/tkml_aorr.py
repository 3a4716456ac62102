"""Table 10 and Figure 9: TKML with an aggregate over the samples, on Yeast with noisy labels, and accuracy against m.

k' is the k of the top-k accuracy, and m and k are those of the aggregate; 80% of the rows train and get noise, the
others are clean test rows.

Held-out protocol: the two-sided loss. TKML-AT_k chooses k, and TKML-AoRR with that k chooses m (0 allowed), by the
accuracy of a fit to four fifths of the training rows on the last fifth; C is the estimator's own choice. LR, trained on
the same noisy or on the clean labels, and the most frequent labels are for comparison.

The paper's protocol: the paper's loss, 1,000 steps of Algorithm 3 at a rate of 0.3 (Table 17), and "the optimal values"
of k in [1, n) and of m in [1, k), on a grid of shares, chosen on the test rows as in the released code.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankrange import TKMLClassifier, algorithms, noise

from .. import data, plots
from . import Cell, Row, every
from .multilabel import KS, METRIC, accuracy, tuned

TITLE = "Table 10 and Figure 9: TKML-AoRR on Yeast with noisy labels"
NEEDS = ("yeast",)
AGAINST_M = "top-k accuracy % against m"
TABLES = {METRIC: ("Table 10: top-k' multi-label accuracy on Yeast, %", "higher")}
AVERAGE, TOP, AORR = "TKML-Average", "TKML-AT_k", "TKML-AoRR"
NOISE = (0.0, 0.1, 0.2, 0.3)
TOPS, CUTS = (1.0, 0.8), (0.0, 0.1, 0.2, 0.3)  # held-out protocol: k, and m, as shares of n
PAPERS_TOPS = (0.2, 0.4, 0.6, 0.8, 0.95)  # shares of n
SWEEP = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # m as shares of k, in Figure 9
STEPS, RATE = 1000, 0.3  # Table 17


def cells(protocol: str, quick: bool) -> list[Cell]:
    """One cell for each rate of noise and split."""
    splits = 1 if quick else 10 if protocol == "held-out" else 3
    parts = [f"noise={rate:g}" for rate in ((0.2,) if quick else NOISE)]
    return every("tkml-aorr", protocol, quick, NEEDS, parts, splits)


def run(cell: Cell) -> tuple[list[Row], dict[str, Any]]:
    """Top-k' accuracy of each aggregate for k' = 1 to 5, and the accuracy against m."""
    (X, clean), (X_test, Y_test) = data.split("yeast", cell.seed, (0.8, 0.2))
    Y = noise.multilabel(clean, float(cell.part.partition("=")[2]), random_state=cell.seed)
    rows, chosen = [], {}
    shared = {"constant label set": np.tile(Y.mean(axis=0), (len(Y_test), 1))}
    if cell.protocol == "held-out":
        shared["LR"] = tuned("LR", X, Y).decision_function(X_test)
        shared["LR, clean labels"] = tuned("LR", X, clean).decision_function(X_test)
    for k in KS[1:2] if cell.quick else KS:
        setting = f"{cell.part}, k'={k}"
        rows += [Row(name, setting, METRIC, accuracy(Y_test, f, k)) for name, f in shared.items()]
        aggregates = _held_out if cell.protocol == "held-out" else _papers_steps
        found, curve, chosen[setting] = aggregates(cell, k, (X, Y), (X_test, Y_test))
        rows += [Row(name, setting, METRIC, value) for name, value in found.items()]
        rows += [Row(f"{AORR}, m/k={share:g}", setting, AGAINST_M, value) for share, value in curve.items()]
        rows += [Row(name, setting, AGAINST_M, found[name]) for name in (AVERAGE, TOP)]
    return rows, {"chosen": chosen}


Found = tuple[dict[str, float], dict[float, float], list[float]]  # accuracies, accuracy against m / k, chosen k and m


def _held_out(cell: Cell, top_k: int, train: Any, test: Any) -> Found:
    (X, Y), first = train, len(train[0]) * 4 // 5

    def fit(m: float, k: float, rows: slice) -> Any:
        model = TKMLClassifier(top_k, m=m * k, k=k, C="auto", random_state=cell.seed)
        return model.fit(X[rows], Y[rows])

    def held_out(m: float, k: float) -> float:
        return accuracy(Y[first:], fit(m, k, slice(first)).decision_function(X[first:]), top_k)

    def on_test(m: float, k: float) -> float:
        return accuracy(test[1], fit(m, k, slice(None)).decision_function(test[0]), top_k)

    k = max(TOPS[1:] if cell.quick else TOPS, key=lambda k: held_out(0.0, k))
    m = max(CUTS[:2] if cell.quick else CUTS, key=lambda m: held_out(m, k))
    found = {AVERAGE: on_test(0.0, 1.0), TOP: on_test(0.0, k), AORR: on_test(m, k)}
    return found, {share: on_test(share, k) for share in ((0.3,) if cell.quick else SWEEP[:6])}, [k, m]


def _papers_steps(cell: Cell, top_k: int, train: Any, test: Any) -> Found:
    (X, Y), (X_test, Y_test) = ((np.column_stack([X, np.ones(len(X))]), Y) for X, Y in (train, test))
    n, steps = len(X), 50 if cell.quick else STEPS

    def on_test(m: float, k: float) -> float:
        count = max(1, round(k * n))
        found = algorithms.tkml_aorr(X, Y, top_k, round(m * count), count, steps=steps, step=RATE)
        return accuracy(Y_test, X_test @ found.theta.T, top_k)

    tops = {k: on_test(0.0, k) for k in ((0.8,) if cell.quick else PAPERS_TOPS)}
    k = max(tops, key=lambda k: tops[k])
    curve = {share: on_test(share, k) for share in (SWEEP[2::4] if cell.quick else SWEEP)}
    m = max(curve, key=lambda share: curve[share])
    return {AVERAGE: on_test(0.0, 1.0), TOP: tops[k], AORR: curve[m]}, curve, [k, m]


def figures(results: Any) -> dict[str, Any]:
    """Figure 9: accuracy against m, a row for each noise level and a column for k' = 1, 3, 5."""
    places = [place for place in results.settings(AGAINST_M) if place[1].endswith(("k'=1", "k'=3", "k'=5"))]
    if not places:
        return {}
    shares = [float(name.partition("=")[2]) for name in results.methods(AGAINST_M) if "=" in name]
    figure, axes = plots.sheet(-(-len(places) // 3), 3, height=2.2)
    for axis, place in zip(axes.flat, places, strict=False):
        values = [results.array(AGAINST_M, *place, f"{AORR}, m/k={share:g}") for share in shares]
        plots.curve(axis, shares, np.transpose(values), "AoRR", label=AORR, marker="o", ms=3)
        for name, style in ((AVERAGE, "Average"), (TOP, "AT_k")):
            plots.level(axis, results.array(AGAINST_M, *place, name), style, label=name)
        axis.set(title=place[1], xlabel="m / k", ylabel="accuracy, %")
    plots.shared_legend(figure, axes)
    return {"figure-9": figure}
