"""Audits: time and memory of the command, and planted problems of rows that are found."""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets

from rankrange.audit.problems import COPIES
from rankrange.audit.row_problems import find_row_problems
from rankrange.audit.target import find_target
from rankrange.tables.encode import as_table

from .harness import DATA, Row, benchmark, rounded, timed

# Rows, columns of numbers, and columns of texts.
CASES = {"census": (48_842, 7, 6), "columns": (100_000, 44, 5), "large": (1_000_000, 24, 5)}


def typical(rows: int, numbers: int, texts: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Numbers, texts, missing cells and a target of two classes; and True where the label is wrong (5%)."""
    import pyarrow

    X = rng.normal(size=(rows, numbers))
    codes = rng.integers(0, 8, size=(rows, texts))
    effects = rng.normal(size=(texts, 8))[np.arange(texts), codes].sum(axis=1)
    y = X @ rng.normal(scale=0.7, size=numbers) + effects + rng.logistic(scale=0.5, size=rows) > 0
    wrong = rng.random(rows) < 0.05
    X[rng.random(rows) < 0.02, 0] = np.nan
    table = {f"number {j}": pyarrow.array(X[:, j].round(5), from_pandas=True) for j in range(numbers)}
    table |= {f"text {j}": pyarrow.array(np.array(list("abcdefgh"))[codes[:, j]]) for j in range(texts)}
    return pyarrow.table({**table, "label": pyarrow.array(np.where(y ^ wrong, "yes", "no"))}), wrong


@benchmark(
    lambda rows: rows.set_index("case").select_dtypes("number").drop(columns="seed").T, cases=("census",), rows=300
)
def audit_size(
    seed: int = 0, cases: tuple = ("census", "columns"), rows: int | None = None, jobs: int = 2
) -> Iterator[Row]:
    """Time and peak memory of `rankrange audit` on a CSV, as a user runs it: census, columns or large."""
    import pyarrow.csv

    for case in cases:
        n, *columns = CASES[case]
        table, wrong = typical(rows or n, *columns, np.random.default_rng(seed))
        with tempfile.TemporaryDirectory() as folder:
            path, out = Path(folder, "data.csv"), Path(folder, "suspects.csv")
            pyarrow.csv.write_csv(table, path)
            command = [sys.executable, "-m", "rankrange", "audit", str(path), "--target", "label", "--jobs", str(jobs)]
            start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*command, f"--out={out}", f"--report={folder}/r.html"], check=True, capture_output=True)
            seconds, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            with out.open(encoding="utf-8", newline="") as file:
                likely = [int(row["row"]) - 1 for row in csv.DictReader(file) if row["action"] in ("relabel", "drop")]
            row: Row = {"case": case, "seed": seed, "rows": len(wrong), "columns": table.num_columns, "jobs": jobs}
            row |= {"file_mb": path.stat().st_size / 1e6, "seconds": seconds, "load": os.getloadavg()[1]}
            core = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
            row |= {"cpu_seconds": core, "peak_gb": used.ru_maxrss / 1e6, "wrong": int(wrong.sum())}
            yield rounded(row | {"likely": len(likely), "hits": int(wrong[likely].sum())}, 2)


# ---- problems of rows ------------------------------------------------------------------------------------------------


def of_sklearn(name: str) -> Any:
    how = {"scaled": False} if name == "diabetes" else {}  # as measured: whitened columns have no unit
    frame = getattr(datasets, f"load_{name}")(as_frame=True, **how).frame
    return frame.rename(columns={"target": "TARGET"})


def of_file(path: str, target: str, drop: tuple = ()) -> Any:
    frame = pd.read_csv(DATA / path)
    frame = frame.drop(columns=[c for c in frame if c in drop or (c.startswith("label:") and c != target)])
    return frame.rename(columns={target: "TARGET"})


GIVEN = ("given_label", "is_error")
# Limits of the checks were chosen on the tables of "develop".
TABLES: dict[str, dict[str, Callable[[], Any]]] = {
    "develop": {
        "wine": lambda: of_sklearn("wine"),
        "phoneme": lambda: of_file("phoneme.csv.gz", "target"),
        "Boston": lambda: of_file("robust_regression/Boston.csv", "target"),
        "australian": lambda: of_file("australian.csv.gz", "target"),
        "music": lambda: of_file("label_errors/music_genre_train.csv.gz", "true_label", GIVEN),
        "yeast": lambda: of_file("yeast.csv.gz", "label:Class3"),
        "air": lambda: of_file("label_errors/airquality_co.csv.gz", "true_label", GIVEN),
    },
    "report": {
        "breast cancer": lambda: of_sklearn("breast_cancer"),
        "diabetes": lambda: of_sklearn("diabetes"),
        "iris": lambda: of_sklearn("iris"),
        "emotions": lambda: of_file("emotions.csv.gz", "label:amazed-suprised"),
        "dry bean": lambda: of_file("label_errors/dry_bean.csv.gz", "target"),
    },
}


def numeric(frame: Any) -> list[str]:
    """Columns of numbers with more than ten values, which is where a unit or a factor means anything."""
    return [c for c in frame if c != "TARGET" and pd.api.types.is_numeric_dtype(frame[c]) and frame[c].nunique() > 10]


def cells(frame: Any, rng: Any) -> tuple[Any, Any]:
    """1% of the rows (three at least): one cell that is not zero times 1,000."""
    frame, names = frame.copy(), numeric(frame)
    frame[names] = frame[names].astype(float)
    sizes = frame[names].abs().to_numpy() > 0.05 * frame[names].std().to_numpy()
    rows = rng.choice(np.flatnonzero(sizes.any(axis=1)), max(3, len(frame) // 100), replace=False)
    for row in rows:
        frame.at[row, rng.choice([c for c, big in zip(names, sizes[row], strict=True) if big])] *= 1000.0
    return frame, rows


def block(frame: Any, rng: Any) -> tuple[Any, Any]:
    """A run of 3% of the rows (5 at least) comes again, elsewhere."""
    size = max(5, int(0.03 * len(frame)))
    start, place = rng.integers(0, len(frame) - size), rng.integers(0, len(frame))
    parts = [frame.iloc[:place], frame.iloc[start : start + size], frame.iloc[place:]]
    return pd.concat(parts, ignore_index=True), np.arange(place, place + size)


def other_targets(frame: Any, rng: Any) -> tuple[Any, Any]:
    """1% of the rows come again with another target."""
    rows = rng.choice(len(frame), max(3, len(frame) // 100), replace=False)
    copies = frame.iloc[rows].copy()
    for i in range(len(copies)):
        others = frame["TARGET"][frame["TARGET"] != copies["TARGET"].iloc[i]]
        copies.iloc[i, copies.columns.get_loc("TARGET")] = others.iloc[rng.integers(len(others))]
    return pd.concat([frame, copies], ignore_index=True), np.arange(len(frame), len(frame) + len(rows))


def leak(frame: Any, rng: Any) -> tuple[Any, Any]:
    """A column that is the target in other words, wrong in 1% of the rows."""
    y = frame["TARGET"]
    if y.nunique() <= 20:
        column = y.astype("category").cat.codes.to_numpy() * 7 + 3
        column = np.where(rng.random(len(y)) < 0.01, rng.permutation(column), column)
    else:
        column = 3.0 * y.to_numpy() + 7 + 0.01 * y.std() * rng.normal(size=len(y))
    return pd.concat([frame, pd.Series(column, name="outcome")], axis=1), "outcome"


def altered(frame: Any, rng: Any) -> tuple[Any, Any]:
    """2% of the rows (three at least) come again with other values in up to three cells, a quarter of them at most."""
    names, rows = numeric(frame), rng.choice(len(frame), max(3, len(frame) // 50), replace=False)
    copies = frame.iloc[rows].reset_index(drop=True)
    for i in range(len(copies)):
        for name in rng.choice(names, max(1, min(3, len(names) // 4)), replace=False):
            copies.loc[i, name] = frame[name].iloc[rng.integers(len(frame))]
    return pd.concat([frame, copies], ignore_index=True), np.arange(len(frame), len(frame) + len(rows))


def remeasured(frame: Any, rng: Any) -> tuple[Any, Any]:
    """2% of the rows come again with all numbers changed by about a ten thousandth of their standard deviation."""
    names, rows = numeric(frame), rng.choice(len(frame), max(3, len(frame) // 50), replace=False)
    copies = frame.iloc[rows].copy()
    copies[names] = copies[names] + 1e-4 * rng.normal(size=(len(rows), len(names))) * frame[names].std().to_numpy()
    return pd.concat([frame, copies], ignore_index=True), np.arange(len(frame), len(frame) + len(rows))


PLANTS = {
    "cells x 1,000": cells,
    "repeated block": block,
    "other targets": other_targets,
    "altered copies": altered,
    "remeasured copies": remeasured,
    "leaking column": leak,
}


def problems_of(frame: Any) -> Any:
    table = as_table(frame)
    target = find_target(table, ["TARGET"])
    features = table.select([c for c in table.column_names if c != "TARGET"]).take(target.rows)
    return find_row_problems(features, target)


def accused(problems: Any) -> set[int]:
    return {row - 1 for problem in problems for row in problem.rows[problem.kind in COPIES :]}


def _by_plant(rows: pd.DataFrame) -> pd.DataFrame:
    found = rows.pivot_table(index="plant", columns="table", values="found")
    return found.assign(mean=rows.groupby("plant")["found"].mean(), false=rows.groupby("plant")["false"].median())


@benchmark(_by_plant, seeds=1, tables=("iris",))
def row_problems(seed: int = 0, seeds: int = 5, which: str = "report", tables: tuple = ("all",)) -> Iterator[Row]:
    """Planted problems of rows that an audit finds, and rows of clean tables that it reports.

    A planted row counts as found when some problem names it (a leak: when the column is named). A row of the clean
    table counts as false when some problem names it, whether or not it is really wrong; exact copies are taken out
    first.
    """
    chosen = {name: load for name, load in TABLES[which].items() if name in tables or tables == ("all",)}
    for name, load in chosen.items():
        frame = load().drop_duplicates().reset_index(drop=True)
        clean, seconds = timed(problems_of, frame)
        leaks = {p.column for p in clean if p.kind == "leak"}
        for plant, draw in product(PLANTS, range(seed, seed + seeds)):
            planted, where = PLANTS[plant](frame, np.random.default_rng([draw, 15]))
            found = problems_of(planted)
            if plant == "leaking column":
                columns = {p.column for p in found if p.kind == "leak"}
                share, false = float(where in columns), len(columns - {where} - leaks)
            else:
                right, named = set(where.tolist()), {row - 1 for p in found for row in p.rows}
                twins = {row - 1 for p in found if "duplicate" in p.kind for row in p.rows}
                share, false = len(named & right) / len(right), len(accused(found) - right - twins) / len(planted)
            row: Row = {"which": which, "table": name, "plant": plant, "seed": draw, "found": share, "false": false}
            yield rounded(row | {"clean": len(accused(clean)) / len(frame), "seconds": seconds})
