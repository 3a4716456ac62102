"""Figure 7: test error of AoRR against m, with k fixed at the best k of AT_k."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..harness.candidates import Bench, Candidate, Grid, choose
from ..harness.cells import Cell, Claim, Measure, Outcome, Plan, Results, every_split, standard_error
from ..harness.split import split_of_seed
from .binary import DATASETS, LOSSES, METRIC, pairs_of

NAME = "m-sweep"
TITLE = "Error against m (Figure 7)"
NEEDS = DATASETS
TABLES = ()
SPLITS = {"full": 10, "quick": 2, "smoke": 1}
SHARES = {
    "full": (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.02),
    "quick": (0.8, 0.5, 0.3, 0.15, 0.05),
    "smoke": (0.5, 0.1),
}
_GRIDS = {
    "full": Grid(),
    "quick": Grid(k=(1.0, 0.7, 0.5, 0.3), slack=(1.0, 10.0)),
    "smoke": Grid(k=(1.0, 0.5), slack=(3.0,)),
}


def cells(plan: Plan) -> list[Cell]:
    """One cell for each data set, loss and split."""
    datasets = ("monk",) if plan.size == "smoke" else DATASETS
    return every_split(NAME, plan, datasets, LOSSES, SPLITS[plan.size])


def cost(cell: Cell) -> float:
    """About how many seconds a cell takes."""
    return {"full": 4.0, "quick": 1.5, "smoke": 0.3}[cell.size] * (2.0 if cell.part == "hinge" else 1.0)


def run(cell: Cell) -> Outcome:
    """Choose k for AT_k, then C for each m at this k, on the validation rows. All reported errors are test errors.

    In the protocol "paper" these choices use the test rows.
    """
    split = split_of_seed(cell.dataset, cell.seed)
    shares = SHARES[cell.size]
    bench = Bench(split.train, (split.validation, split.test), cell.part, _GRIDS[cell.size])
    part = 1 if cell.protocol == "paper" else 0
    top = choose(bench.top_k(), part)
    # AoRR needs m < k: if AT_k chose k = 1, as for tied zero models, take the next larger k.
    k = int(max(top.settings["k"], bench.grid.ks(bench.n)[-2]))
    ms = sorted({1, *(round(share * k) for share in shares)} - {0, k}, reverse=True)
    found = bench.ranked_range([(m, k) for m in ms])
    best = {m: choose([c for c in found if c.settings["m"] == m], part) for m in ms}
    levels = {
        "Average": choose(bench.average(), part),
        "Maximum": choose(bench.maximum(), part),
        "Robust_Max": choose(bench.robust_max(), part),
        "AT_k": top,
    }
    measures = [Measure(method, cell.part, METRIC, one.errors[1]) for method, one in levels.items()]
    return Outcome(measures, {"k": k, "n": bench.n, "curve": _curve(best, k, shares)})


def _curve(best: dict[int, Candidate], k: int, shares: tuple[float, ...]) -> dict[str, list[float]]:
    """Errors at the shares m/k of the grid, which are the same for all splits although k differs.

    Each share has the error of the nearest m.
    """
    nearest = [min(best, key=lambda m: (abs(m - share * k), m)) for share in sorted(shares)]
    return {"m/k": sorted(shares), "error %": [best[m].errors[1] for m in nearest]}


def _curves(results: Results, dataset: str, loss: str) -> tuple[list[float], Any]:
    found = [o.extra["curve"] for c, o in results.outcomes if (c.dataset, c.part) == (dataset, loss)]
    return found[0]["m/k"], np.array([curve["error %"] for curve in found])


def claims(results: Results) -> list[Claim]:
    """The paper: on all data sets there is a clear range of m that is better than AT_k."""
    lines, held = [], 0
    for dataset, loss in pairs_of(results):
        shares, curves = _curves(results, dataset, loss)
        top = np.array([v for _, v in sorted(results.values(dataset, "AT_k", loss, METRIC).items())])
        differences = curves - top[:, None]
        if len(differences) < 2:
            continue
        error = standard_error(differences)
        better = differences.mean(axis=0) + 2 * error < 0
        held += bool(better.any())
        best = int(differences.mean(axis=0).argmin())
        lines.append(
            f"{dataset} {loss}: {better.sum()} of {len(shares)} values of m, the best at m = {shares[best]:g} k by "
            f"{differences.mean(axis=0)[best]:+.2f} ({error[best]:.2f})"
        )
    if not lines:
        return []
    verdict = "holds" if held == len(lines) else "does not hold"
    text = "There is a clear range of m with a smaller error than AT_k on every data set."
    evidence = f"Smaller by two standard errors somewhere in {held} of {len(lines)}. " + "; ".join(lines)
    note = (
        " The best of several m is picked by looking, so that its gain is an upper estimate. As far as we know: "
        "leaving rows out helps where no line fits part of them, as on Monk, whose rule is not linear; elsewhere the "
        "ordinary fit is as good."
    )
    return [Claim(text, verdict, evidence + "." + note)]


def figures(results: Results) -> dict[str, Any]:
    """Test error against m, one panel for each data set and loss."""
    from ..harness import figures as plots

    pairs = pairs_of(results)
    datasets = list(dict.fromkeys(dataset for dataset, _ in pairs))
    figure, axes = plots.sheet(len(LOSSES), len(datasets), width=2.8, height=2.6)
    for column, dataset in enumerate(datasets):
        for row, loss in enumerate(LOSSES):
            one = axes[row, column]
            for method in ("Maximum", "Robust_Max", "Average", "AT_k"):
                plots.level(one, list(results.values(dataset, method, loss, METRIC).values()), method)
            shares, curves = _curves(results, dataset, loss)
            plots.curve(one, shares, curves, "AoRR", marker="o", ms=3)
            levels = [_mean(results, dataset, loss, method) for method in ("Average", "AT_k")]
            _zoom(one, float(curves.mean(axis=0).min()), min(levels), max(levels))
            one.set_title(f"{dataset}, {loss}", fontsize=10)
        axes[-1, column].set_xlabel("m / k", fontsize=9)
    for row in range(len(LOSSES)):
        axes[row, 0].set_ylabel("test error, %", fontsize=9)
    plots.shared_legend(figure, axes)
    return {"m-sweep": figure}


def _mean(results: Results, dataset: str, loss: str, method: str) -> float:
    return float(np.mean(list(results.values(dataset, method, loss, METRIC).values())))


def _zoom(axes: Any, best: float, low: float, high: float) -> None:
    """Limit the y axis: for large m every curve rises to the error of the larger class and above."""
    low = min(best, low)
    room = max(high - low, 1.5)
    axes.set_ylim(low - 0.4 * room, high + 1.2 * room)
