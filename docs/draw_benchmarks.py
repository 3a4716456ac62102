"""Make the tables of the benchmark pages and of the README from benchmarks/results: `python docs/draw_benchmarks.py`.

Nothing is measured here. `--evidence` prints the table of the README, and a test compares the two.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from benchmarks.__main__ import MODULES, load  # noqa: E402
from benchmarks.harness import path_of, recorded, regained  # noqa: E402

OUT = HERE / "benchmarks" / "generated"
# Below a table stand date, commit and device; notes are for whoever reads the record.
UNSHOWN = ["date", "commit", "device", "python", "numpy", "torch", "scikit-learn", "seeds", "note"]
PAGES = {
    "labels": ["automatic_m", "label_errors", "label_noise", "label_noise_scan", "models", "audits"],
    "linear": [
        *("linear", "regression", "classification_intervals", "sparse_models", "partial_auc", "groups", "multilabel"),
        "defaults",
    ],
    "scale": ["scale", "linear_gpu", "torch_gpu", "torch_noise", "torch_text"],
}


def shown(value: Any) -> str:
    """A cell: numbers with three digits, nothing for what is missing."""
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value).replace("|", "; ").removeprefix("nan")


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table with the index in front."""
    frame = frame.drop(columns=UNSHOWN, errors="ignore")
    columns = [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in frame.columns]
    names = [str(name or "") for name in frame.index.names]
    lines = [[*names, *columns], ["---"] * (len(names) + len(columns))]
    for key, values in zip(frame.index, frame.to_numpy(dtype=object), strict=True):
        lines.append([shown(part) for part in [*(key if isinstance(key, tuple) else [key]), *values]])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def section(name: str) -> str:
    """The heading, what is measured, the table, and where its rows are from."""
    benchmark, rows = load(name), recorded(name)
    commits, devices = (", ".join(dict.fromkeys(rows[key].astype(str))) for key in ("commit", "device"))
    first, last = rows["date"].min()[:10], rows["date"].max()[:10]
    when = first if first == last else f"{first} to {last}"
    source = f"{len(rows)} rows, {when}, {devices}; commits {commits}. `python -m benchmarks {name}`"
    text = (inspect.getdoc(benchmark.measure) or "").replace("`--", "`\\-\\-")
    return f"## {name.replace('_', ' ')}\n\n{text}\n\n{markdown(benchmark.table(rows))}\n{source}\n"


# ---- the evidence of the README --------------------------------------------------------------------------------------


KINDS = {
    "symmetric": "random errors",
    "boundary": "near the boundary",
    "one class": "in one class",
    "far": "high leverage",
}


def _when(rows: pd.DataFrame) -> str:
    return str(rows["date"].max())[:10]


def _of_runs(gain: pd.Series) -> str:
    """A mean alone hides that most runs gain nothing, and where a method fails."""
    return f"mean {gain.mean():+.1f} points, median {gain.median():.1f}, worst run {gain.min():+.1f}"


def _ranking() -> list[str]:
    rows = recorded("label_errors")
    rows = rows[rows["rate"] > 0]
    gain = rows["ap_ours"] - rows[["ap_hgb", "ap_lr"]].max(axis=1)
    by_kind = gain.groupby(rows["kind"]).mean().sort_values()
    found = ", ".join(f"{KINDS[kind]} {mean:+.2f}" for kind, mean in by_kind.items())
    found += f"; lower in {100 * (gain < -0.005).mean():.0f}% of the runs, worst {gain.min():+.2f}"
    other = "the better of cleanlab with a linear model and with trees"
    where = f"{len(rows)} runs on {rows['set'].nunique()} tables, 10 to 40% wrong"
    return ["rank wrong labels (average precision)", other, found, where, _when(rows)]


def _trees() -> list[str]:
    rows = recorded("any_model")
    rows = rows[(rows["base"] == "hgb") & (rows["rate"] > 0)].assign(all="")
    found, kinds = (regained(rows, by, ["ensemble"])["ensemble"] for by in ("all", ["kind", "rate"]))
    lost = (rows["clean"] - rows["plain"]).mean()
    text = (
        f"{100 * found.iloc[0]:.0f}% of the loss regained, {100 * kinds.min():.0f} to {100 * kinds.max():.0f}% by kind"
    )
    other = f"the same trees, which lose {lost:.1f} points"
    where = f"{len(rows)} runs on {rows['set'].nunique()} tables, 10 to 40% wrong"
    return [
        "boosted trees, wrong labels",
        other,
        f"{text}; {_of_runs(rows['ensemble'] - rows['plain'])}",
        where,
        _when(rows),
    ]


def _lines() -> list[list[str]]:
    rows = recorded("linear_auto")
    rows = rows[rows["aggregate"] == "all rows"]
    lines = []
    for what, kind, rate, where in (
        ("linear model, labels wrong in one class", "class-dependent", 0.2, "20% wrong"),
        ("linear model, high-leverage rows with wrong labels", "far", 0.1, "10% of the rows"),
        ("linear model, all labels right", "none", 0.0, "none wrong"),
    ):
        cell = rows[(rows["kind"] == kind) & (rows["rate"] == rate)]
        rare = (cell["sort"] != "even").mean()
        runs = f"{len(cell)} runs on drawn tables, {100 * rare:.0f}% of them with a rare class, {where}"
        lines.append([what, "`LogisticRegression`", _of_runs(cell["ours"] - cell["theirs"]), runs, _when(cell)])
    return lines


def _human_errors() -> list[str]:
    ours = ("auto", "stream, true m", "range, true m")
    rows = recorded("torch_noise")
    rows = rows[(rows["data"] == "cifar10n") & (rows["column"] != "clean")]
    means = rows.groupby(["column", "method"])["accuracy"].mean().unstack()
    others = means.drop(columns=[name for name in ours if name in means])
    gain = means["auto"] - others.max(axis=1)
    found = f"{gain.min():+.1f} to {gain.max():+.1f} points"
    other = f"the best of {others.shape[1]} other losses"
    return ["network, human label errors", other, found, "CIFAR-10N, 9 to 40% wrong", _when(rows)]


def _cost() -> list[str]:
    rows = recorded("linear_random")
    ratio = rows.loc[rows["loss"] == "logistic", "ratio"]
    found = f"{ratio.median():.1f} times (90% quantile {ratio.quantile(0.9):.1f}, worst {ratio.max():.1f})"
    where = f"{len(ratio)} random logistic problems"
    return ["time of a linear fit with its certificate", "one ordinary fit", found, where, _when(rows)]


def evidence() -> str:
    """The table of the README."""
    rows = [_ranking(), _trees(), *_lines(), _human_errors(), _cost()]
    frame = pd.DataFrame(rows, columns=["task", "alternative", "rankrange", "measured on", "recorded"])
    return markdown(frame.set_index("task"))


# ---- pages -----------------------------------------------------------------------------------------------------------


def scale_picture() -> None:
    """Core seconds against rows, by where the rows are."""
    rows = recorded("scale").query("m == 0.1 and k == 1.0")
    figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
    for method, part in rows.groupby("method"):
        medians = part.groupby("n")["core_seconds"].median()
        axis.plot(medians.index, medians.to_numpy(), "o-", label=method)
    axis.set(xscale="log", yscale="log", xlabel="rows", ylabel="core seconds", title="30 columns, m = 0.1, k = 1")
    axis.legend(frameon=False, fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(OUT / "scale.png", dpi=130)
    plt.close(figure)


def main() -> None:
    if sys.argv[1:] == ["--evidence"]:
        print(evidence(), end="")
        return
    OUT.mkdir(parents=True, exist_ok=True)
    for page, modules in PAGES.items():
        names = [name for module in modules for name in MODULES[module] if path_of(name).exists()]
        (OUT / f"{page}.txt").write_text("\n".join(section(name) for name in names), encoding="utf-8")
    (OUT / "evidence.txt").write_text(evidence(), encoding="utf-8")
    scale_picture()


if __name__ == "__main__":
    main()
