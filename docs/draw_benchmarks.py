"""Draw the tables and plots of the page of benchmarks from benchmarks/results: `python docs/draw_benchmarks.py`.

Nothing is measured here. The CSV files are what `benchmarks/*.py` recorded, one row per run, with commit, device
and versions.
"""

from __future__ import annotations

import csv
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
OUT = HERE / "benchmarks" / "generated"
BLUE, ORANGE, GREEN, GREY = "#3b74c4", "#d95f02", "#1b9e77", "#7f8fa6"
Runs = list[dict[str, str]]


def runs_of(name: str) -> Runs:
    """All recorded runs of a benchmark."""
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def grouped(runs: Iterable[dict[str, str]], key: Callable[[dict[str, str]], Any]) -> dict[Any, Runs]:
    """Runs by a key, in the order in which the keys first occur."""
    groups: dict[Any, Runs] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return groups


def column(runs: Runs, name: str) -> np.ndarray:
    """One column as numbers; empty cells are left out."""
    return np.array([float(run[name]) for run in runs if run.get(name) not in (None, "")])


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _spread(values: np.ndarray, digits: int = 1) -> list[str]:
    return [f"{np.mean(values):+.{digits}f}", f"{np.median(values):+.{digits}f}", f"{values.min():+.{digits}f}"]


class Part(NamedTuple):
    """A table, and its figure, if there is one."""

    table: str
    figure: Any = None

    def write(self, name: str) -> None:
        """Write both to files of this name."""
        (OUT / f"{name}.txt").write_text(self.table, encoding="utf-8")
        if self.figure is not None:
            for axis in self.figure.axes:
                axis.spines[["top", "right"]].set_visible(False)
            self.figure.savefig(OUT / f"{name}.png", dpi=130)
            plt.close(self.figure)


def suspects() -> Part:
    """`find_label_issues` against cleanlab: average precision of planted errors."""
    runs = runs_of("label_issues")
    figure, axis = plt.subplots(figsize=(5.6, 5), layout="constrained")
    for (kind, group), colour in zip(
        grouped(runs, lambda run: run["kind"]).items(), [BLUE, ORANGE, GREEN], strict=False
    ):
        axis.plot(
            column(group, "cleanlab"), column(group, "rankrange"), "o", ms=4, alpha=0.55, color=colour, label=kind
        )
    axis.plot([0, 1], [0, 1], color="0.3", lw=1)
    axis.set(
        xlabel="cleanlab",
        ylabel="rankrange",
        title="Average precision, one dot per run",
        xlim=(0, 1.02),
        ylim=(0, 1.02),
    )
    axis.legend(frameon=False, title="wrong labels")
    rows = []
    for (name, kind), group in grouped(runs, lambda run: (run["set"], run["kind"])).items():
        gain = column(group, "rankrange") - column(group, "cleanlab")
        rows.append([name, kind, str(len(group)), *_spread(gain, 3)])
    return Part(table(["set", "wrong labels", "runs", "mean difference", "median", "worst"], rows), figure)


KINDS = ("symmetric", "one class", "far", "boundary")


def _kind(name: str) -> str:
    """The recorded name of a kind of noise as the pages write it."""
    return "high leverage" if name == "far" else name


def claims() -> Part:
    """Mean p_wrong against the share of labels that were wrong, by kind of noise."""
    runs = [run for run in runs_of("label_errors") if run["kind"] != "none"]
    figure, axis = plt.subplots(figsize=(5.6, 5), layout="constrained")
    rows = []
    for kind, colour in zip(KINDS, (BLUE, ORANGE, GREEN, GREY), strict=True):
        group = [run for run in runs if run["kind"] == kind]
        cells = [_kind(kind), str(len(group))]
        for level in ("0.2", "0.5", "0.8"):
            some = [run for run in group if int(run[f"rows_{level}"]) >= 10]
            off = column(some, f"claim_{level}") - column(some, f"truth_{level}")
            sizes = np.abs(off)
            cells.append(f"{sizes.mean():.2f} ({off.mean():+.2f}), {100 * (sizes <= 0.15).mean():.0f}%" if some else "")
            if level == "0.5":
                cells.insert(2, str(len(some)))
                axis.plot(column(some, "claim_0.5"), column(some, "truth_0.5"), "o", ms=5, alpha=0.55, color=colour)
        axis.plot([], [], "o", color=colour, label=_kind(kind))
        rows.append(cells)
    axis.plot([0.4, 1], [0.4, 1], color="0.3", lw=1)
    axis.set(
        xlabel="mean p_wrong", ylabel="share that was wrong", title="Rows with p_wrong of at least .5, one dot per run"
    )
    axis.legend(frameon=False, title="wrong labels")
    return Part(table(["wrong labels", "runs", "with 10 flagged", "at .2", "at .5", "at .8"], rows), figure)


def precision() -> Part:
    """Average precision of `find_label_issues` and of cleanlab's self-confidence on the same folds."""
    rows = []
    runs = [run for run in runs_of("label_errors") if run["ap_ours"]]
    for (kind, rate), group in grouped(runs, lambda run: (run["kind"], run["rate"])).items():
        values = [column(group, f"ap_{method}") for method in ("ours", "hgb", "lr")]
        sets = grouped(group, lambda run: run["set"])
        gains = {
            name: column(part, "ap_ours").mean() - max(column(part, "ap_hgb").mean(), column(part, "ap_lr").mean())
            for name, part in sets.items()
        }
        worst = min(gains, key=lambda name: gains[name])
        cells = [f"{_kind(kind)} {float(rate):g}", *(f"{value.mean():.2f}" for value in values)]
        rows.append([*cells, f"{np.mean(list(gains.values())):+.2f}", f"{gains[worst]:+.2f} ({worst})"])
    return Part(
        table(["wrong labels", "rankrange", "cleanlab, HGB", "cleanlab, LR", "gain over the better", "worst set"], rows)
    )


def chosen() -> Part:
    """`m="auto"` against an ordinary logistic regression on binary sets."""
    runs = runs_of("auto_tabular")
    groups = grouped(
        runs, lambda run: "no errors" if float(run["rate"]) == 0 else f"{_kind(run['kind'])} {float(run['rate']):g}"
    )
    names = sorted(groups)
    figure, axis = plt.subplots(figsize=(8.4, 4), layout="constrained")
    for i, name in enumerate(names):
        gain = column(groups[name], "auto") - column(groups[name], "LR")
        places = i + 0.13 * np.random.default_rng(0).standard_normal(len(gain)).clip(-2, 2)
        axis.plot(places, gain, "o", ms=3, alpha=0.4, color=BLUE)
        axis.plot([i - 0.3, i + 0.3], [gain.mean()] * 2, color=ORANGE, lw=3)
    axis.axhline(0, color="0.4", lw=0.8)
    axis.set(ylabel="gain in accuracy on clean rows (points)", title="One dot per run, the bar is the mean")
    axis.set_xticks(range(len(names)), names, rotation=20, ha="right")
    rows = [
        [name, str(len(groups[name])), *_spread(column(groups[name], "auto") - column(groups[name], "LR"))]
        for name in names
    ]
    return Part(table(["wrong labels", "runs", "mean gain", "median", "worst"], rows), figure)


def any_model_runs(*, latest_rules: bool = False) -> Runs:
    """The last run of each cell, with its references: the base model on wrong and on right labels, and cleanlab."""

    def cell(run: dict[str, str]) -> tuple[str, ...]:
        return tuple(run[name] for name in ("base", "set", "kind", "rate", "seed", "n"))

    references = {cell(run): run for run in runs_of("any_model_references")}
    # Seeds from 80 on were measured with today's inference: docs/benchmarks/label_noise.md has them.
    latest = {cell(run): run for run in runs_of("any_model") if (int(run["seed"]) >= 80) == latest_rules}
    return [{**references[key], **run} for key, run in latest.items() if key in references]


def regained(runs: Runs, method: str) -> float:
    """Share of the accuracy lost to wrong labels that a method regains: a ratio of sums, nan if nothing was lost."""
    measured = [run for run in runs if run.get(method)]
    lost = (column(measured, "clean") - column(measured, "plain")).sum()
    return float((column(measured, method) - column(measured, "plain")).sum() / lost) if lost > 0 else float("nan")


BASES = {"hgb": "boosted trees", "lightgbm": "LightGBM", "forest": "random forest"}


def any_model() -> Part:
    """Share of the accuracy lost to wrong labels that is regained, by base model and kind of noise."""
    runs = any_model_runs()
    methods = [method for method in ("ensemble", "single", "cleanlab") if any(run.get(method) for run in runs)]
    rows = []
    for (base, kind, rate), group in grouped(runs, lambda r: (r["base"], r["kind"], r["rate"])).items():
        gap = (column(group, "clean") - column(group, "plain")).mean()
        if float(rate) == 0 or gap <= 0:
            continue
        shares = [regained(group, method) for method in methods]
        parts = ["" if np.isnan(share) else f"{100 * share:.0f}" for share in shares]
        rows.append([BASES[base], f"{kind} {float(rate):g}", str(len(group)), f"{gap:.1f}", *parts])
    head = ["model", "wrong labels", "runs", "points lost to them", *(f"regained: {method}, %" for method in methods)]
    return Part(table(head, rows))


def fits() -> Part:
    """What a linear fit costs, in ordinary fits of the same data."""
    groups = grouped(runs_of("linear_suite_after"), lambda run: run["loss"])
    figure, axis = plt.subplots(figsize=(8.4, 3.8), layout="constrained")
    colours = plt.get_cmap("tab10").colors
    rows = []
    for (loss, group), colour in zip(groups.items(), colours, strict=False):
        ratio = np.sort(column(group, "ratio"))
        axis.step(ratio, np.arange(1, len(ratio) + 1) / len(ratio), color=colour, lw=2, label=loss, where="post")
        worst = max(group, key=lambda run: float(run["ratio"]))
        case = f"{worst['size']}, {worst['kind']}, m={worst['m']}, k={worst['k']}"
        rows.append(
            [loss, str(len(ratio)), *(f"{v:.1f}" for v in (np.median(ratio), np.quantile(ratio, 0.9), ratio[-1])), case]
        )
    axis.set(
        xscale="log",
        xlabel="cost in ordinary fits",
        ylabel="share of problems",
        title="Cost of a fit relative to one ordinary fit",
    )
    axis.legend(frameon=False, fontsize=9)
    return Part(table(["loss", "problems", "median", "90%", "worst", "the worst case"], rows), figure)


def network_runs() -> Runs:
    """The last run of each data set, kind of labels, method and seed: some were repeated with a later commit."""
    names = ("data", "column", "method", "seed")
    return list({tuple(run[name] for name in names): run for run in runs_of("torch_noise")}.values())


def scale() -> Part:
    """Core seconds against rows, by where the rows are."""
    runs = [run for run in runs_of("scale") if run["m"] == "0.1" and run["k"] == "1.0" and run["core_seconds"]]
    figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
    rows = []
    for method, group in sorted(grouped(runs, lambda run: run["method"]).items()):
        sizes = grouped(group, lambda run: int(run["n"]))
        medians = {n: float(np.median(column(sizes[n], "core_seconds"))) for n in sorted(sizes)}
        axis.plot(list(medians), list(medians.values()), "o-", label=method)
        rows += [[method, f"{n:,}", str(len(sizes[n])), f"{seconds:.1f}"] for n, seconds in medians.items()]
    axis.set(xscale="log", yscale="log", xlabel="rows", ylabel="core seconds", title="30 columns, m = 0.1, k = 1")
    axis.legend(frameon=False, fontsize=9)
    return Part(table(["rows are", "rows", "runs", "core seconds (median)"], rows), figure)


def _ranking() -> list[str]:
    runs = [run for run in runs_of("label_errors") if float(run["rate"]) > 0]
    gain = [float(run["ap_ours"]) - max(float(run["ap_hgb"]), float(run["ap_lr"])) for run in runs]
    tables = len({run["set"] for run in runs})
    lower = np.mean(np.array(gain) < -0.005)
    return [
        "rank wrong labels (average precision)",
        "the better of cleanlab with a linear model and with trees",
        f"{np.mean(gain):+.2f}, lower in {100 * lower:.0f}% of the runs, worst {min(gain):+.2f}",
        f"{len(runs)} runs on {tables} tables, 10 to 40% wrong",
    ]


def _trees() -> list[str]:
    kinds = ("symmetric", "one class")
    runs = [run for run in any_model_runs(latest_rules=True) if run["base"] == "hgb" and run["kind"] in kinds]
    lost = (column(runs, "clean") - column(runs, "plain")).mean()
    return [
        "boosted trees, wrong labels",
        f"the same trees, which lose {lost:.1f} points",
        f"{100 * regained(runs, 'ensemble'):.0f}% of the loss regained",
        f"{len(runs)} runs on {len({run['set'] for run in runs})} tables, 10 to 40% wrong",
    ]


def _lines() -> list[list[str]]:
    runs = runs_of("auto_tabular")
    rows = []
    for what, kind, rate, where in (
        ("linear model, labels wrong in one class", "class-dependent", 0.2, "20% wrong"),
        ("linear model, high-leverage rows with wrong labels", "far", 0.1, "10% of the rows"),
        ("the same, all labels right", "symmetric", 0.0, "none wrong"),
    ):
        cell = [run for run in runs if run["kind"] == kind and float(run["rate"]) == rate]
        gain = column(cell, "auto") - column(cell, "LR")
        text = f"{gain.mean():+.1f} points, worst run {gain.min():+.1f}"
        rows.append([what, "`LogisticRegression`", text, f"{len(cell)} runs on 5 binary sets, {where}"])
    return rows


def _human_errors() -> list[str]:
    ours = ("auto", "stream, true m", "remember and cut", "range, true m")
    runs = [run for run in network_runs() if run["data"] == "cifar10n" and run["column"] != "clean"]
    gains = []
    for group in grouped(runs, lambda run: run["column"]).values():
        mean = {name: column(found, "accuracy").mean() for name, found in grouped(group, lambda r: r["method"]).items()}
        gains.append(mean["auto"] - max(value for name, value in mean.items() if name not in ours))
    others = len({run["method"] for run in runs} - set(ours))
    return [
        "network, human label errors",
        f"the best of {others} other losses",
        f"{min(gains):+.1f} to {max(gains):+.1f} points",
        "CIFAR-10N, 9 to 40% wrong",
    ]


def _cost() -> list[str]:
    ratio = column([run for run in runs_of("linear_random") if run["loss"] == "logistic"], "ratio")
    text = f"{np.median(ratio):.1f} times (90% quantile {np.quantile(ratio, 0.9):.1f}, worst {ratio.max():.1f})"
    measured_on = f"{len(ratio)} random logistic problems"
    return ["time of a linear fit with its certificate", "one ordinary fit", text, measured_on]


def evidence() -> str:
    """The table of the README: `python docs/draw_benchmarks.py --evidence` prints it, and a test compares the two."""
    rows = [_ranking(), _trees(), *_lines(), _human_errors(), _cost()]
    return table(["task", "alternative", "rankrange", "measured on"], rows)


PARTS = {
    "suspects": suspects,
    "claims": claims,
    "precision": precision,
    "chosen": chosen,
    "any_model": any_model,
    "fits": fits,
    "scale": scale,
}


def main() -> None:
    if sys.argv[1:] == ["--evidence"]:
        print(evidence(), end="")
        return
    OUT.mkdir(parents=True, exist_ok=True)
    for name, draw in PARTS.items():
        draw().write(name)


if __name__ == "__main__":
    main()
