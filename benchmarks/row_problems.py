"""How many planted problems of rows does an audit find, and how many rows of clean tables does it accuse?

    python benchmarks/row_problems.py [--which develop|report] [--seeds 5] [--record]

Kinds of junk: single cells times 1,000; a run of rows entered twice; rows entered again with another target, with other
values in up to three cells, or with all numbers changed by next to nothing; a column that gives the target away.
A planted row counts as found when some problem names it (a leak: when the column is named). A row of the clean table
counts as false when some problem names it, whether or not it is really wrong: tables that people published have
outliers of their own (rows that are repeated exactly are taken out first). Limits were chosen on the
tables of "develop".
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
import record
from rankrange.audit.problems import COPIES
from rankrange.audit.row_problems import find_row_problems
from rankrange.audit.target import find_target
from rankrange.tables.encode import as_table

DATA = Path(os.environ.get("RANKRANGE_DATA", "data"))


def of_sklearn(name):
    import sklearn.datasets as datasets

    how = {"scaled": False} if name == "diabetes" else {}  # as measured: whitened columns have no unit
    bunch = getattr(datasets, f"load_{name}")(as_frame=True, **how)
    return bunch.frame.rename(columns={"target": "TARGET"})


def of_file(path, target, drop=()):
    frame = pd.read_csv(DATA / path)
    frame = frame.drop(columns=[c for c in frame if c in drop or (c.startswith("label:") and c != target)])
    return frame.rename(columns={target: "TARGET"})


TABLES = {
    "develop": {
        "wine": lambda: of_sklearn("wine"),
        "phoneme": lambda: of_file("phoneme.csv.gz", "target"),
        "Boston": lambda: of_file("robust_regression/Boston.csv", "target"),
        "australian": lambda: of_file("australian.csv.gz", "target"),
        "music": lambda: of_file("label_errors/music_genre_train.csv.gz", "true_label", ("given_label", "is_error")),
        "yeast": lambda: of_file("yeast.csv.gz", "label:Class3"),
        "air": lambda: of_file("label_errors/airquality_co.csv.gz", "true_label", ("given_label", "is_error")),
    },
    "report": {
        "breast cancer": lambda: of_sklearn("breast_cancer"),
        "diabetes": lambda: of_sklearn("diabetes"),
        "iris": lambda: of_sklearn("iris"),
        "emotions": lambda: of_file("emotions.csv.gz", "label:amazed-suprised"),
        "dry bean": lambda: of_file("label_errors/dry_bean.csv.gz", "target"),
    },
}


def numeric(frame):
    """Columns of numbers with more than ten values, which is where a unit or a factor means anything."""
    names = [c for c in frame if c != "TARGET" and pd.api.types.is_numeric_dtype(frame[c]) and frame[c].nunique() > 10]
    return names


def cells(frame, rng):
    """1% of the rows (three at least): one cell that is not zero times 1,000."""
    frame = frame.copy()
    names = numeric(frame)
    frame[names] = frame[names].astype(float)
    sizes = frame[names].abs().to_numpy() > 0.05 * frame[names].std().to_numpy()
    rows = rng.choice(np.flatnonzero(sizes.any(axis=1)), max(3, len(frame) // 100), replace=False)
    for row in rows:
        usable = [c for c, large in zip(names, sizes[row], strict=True) if large]
        frame.at[row, rng.choice(usable)] *= 1000.0
    return frame, rows


def block(frame, rng):
    """A run of 3% of the rows (5 at least) comes again, elsewhere."""
    size = max(5, int(0.03 * len(frame)))
    start = rng.integers(0, len(frame) - size)
    place = rng.integers(0, len(frame))
    parts = [frame.iloc[:place], frame.iloc[start : start + size], frame.iloc[place:]]
    return pd.concat(parts, ignore_index=True), np.arange(place, place + size)


def other_targets(frame, rng):
    """1% of the rows come again with another target."""
    rows = rng.choice(len(frame), max(3, len(frame) // 100), replace=False)
    again = frame.iloc[rows].copy()
    for i in range(len(again)):
        others = frame["TARGET"][frame["TARGET"] != again["TARGET"].iloc[i]]
        again.iloc[i, again.columns.get_loc("TARGET")] = others.iloc[rng.integers(len(others))]
    return pd.concat([frame, again], ignore_index=True), np.arange(len(frame), len(frame) + len(rows))


def leak(frame, rng):
    """A column that is the target in other words, wrong in 1% of the rows."""
    y = frame["TARGET"]
    if y.nunique() <= 20:
        column = y.astype("category").cat.codes.to_numpy() * 7 + 3
        odd = rng.random(len(y)) < 0.01
        column = np.where(odd, rng.permutation(column), column)
    else:
        column = 3.0 * y.to_numpy() + 7 + 0.01 * y.std() * rng.normal(size=len(y))
    return pd.concat([frame, pd.Series(column, name="outcome")], axis=1), "outcome"


def altered(frame, rng):
    """2% of the rows (three at least) come again with other values in up to three cells, a quarter of them at most."""
    names = numeric(frame)
    rows = rng.choice(len(frame), max(3, len(frame) // 50), replace=False)
    again = frame.iloc[rows].reset_index(drop=True)
    for i in range(len(again)):
        for name in rng.choice(names, max(1, min(3, len(names) // 4)), replace=False):
            again.loc[i, name] = frame[name].iloc[rng.integers(len(frame))]
    return pd.concat([frame, again], ignore_index=True), np.arange(len(frame), len(frame) + len(rows))


def remeasured(frame, rng):
    """2% of the rows come again with all numbers changed by about a ten thousandth of their standard deviation."""
    names = numeric(frame)
    rows = rng.choice(len(frame), max(3, len(frame) // 50), replace=False)
    again = frame.iloc[rows].copy()
    again[names] = again[names] + 1e-4 * rng.normal(size=(len(rows), len(names))) * frame[names].std().to_numpy()
    return pd.concat([frame, again], ignore_index=True), np.arange(len(frame), len(frame) + len(rows))


PLANTS = {
    "cells x 1,000": cells,
    "repeated block": block,
    "other targets": other_targets,
    "altered copies": altered,
    "remeasured copies": remeasured,
    "leaking column": leak,
}


def problems_of(frame):
    table = as_table(frame)
    target = find_target(table, ["TARGET"])
    features = table.select([c for c in table.column_names if c != "TARGET"]).take(target.rows)
    return find_row_problems(features, target)


def accused(problems):
    return {row - 1 for problem in problems for row in problem.rows[problem.kind in COPIES :]}


def measure(which, seeds):
    rows = []
    for name, load in TABLES[which].items():
        frame = load().drop_duplicates().reset_index(drop=True)
        start = time.process_time()
        clean = problems_of(frame)
        seconds = time.process_time() - start
        base = accused(clean)
        kinds = {p.kind: sum(len(q.rows) for q in clean if q.kind == p.kind) for p in clean}
        print(
            f"{name}: {len(frame):,} rows, {len(base) / len(frame):.2%} accused {kinds}, {seconds:.2f} core s",
            flush=True,
        )
        leaks = [p.column for p in clean if p.kind == "leak"]
        for plant, make in PLANTS.items():
            for seed in range(seeds):
                planted, where = make(frame, np.random.default_rng([seed, 15]))
                found = problems_of(planted)
                if plant == "leaking column":
                    share = float(any(p.kind == "leak" and p.column == where for p in found))
                    false = len({p.column for p in found if p.kind == "leak"} - {where} - set(leaks))
                else:
                    named = {row - 1 for p in found for row in p.rows}
                    share = len(named & set(where.tolist())) / len(where)
                    twins = {row - 1 for p in found if "duplicate" in p.kind for row in p.rows}
                    false = len(accused(found) - set(where.tolist()) - twins) / len(planted)
                rows.append(
                    {
                        "table": name,
                        "plant": plant,
                        "seed": seed,
                        "found": share,
                        "false": false,
                        "clean": len(base) / len(frame),
                    }
                )
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--which", choices=list(TABLES), default="report")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    rows = measure(arguments.which, arguments.seeds)
    frame = pd.DataFrame(rows)
    print(frame.pivot_table(index="table", columns="plant", values="found").round(3).to_string())
    for plant, part in frame.groupby("plant"):
        worst = part.sort_values("found").iloc[0]
        print(
            f"{plant}: found {part['found'].mean():.1%} (median {part['found'].median():.1%}, a tenth below "
            f"{part['found'].quantile(0.1):.1%}, worst {worst['found']:.1%} on {worst['table']}), false "
            f"{part['false'].median():.2%} (median), {part['false'].max():.2%} (worst)"
        )
    by_rows = frame[frame["plant"] != "leaking column"]
    print(f"all rows: found {by_rows['found'].mean():.1%}, false {frame.groupby('table')['clean'].first().to_dict()}")
    if arguments.record:
        record.append("row_problems", [{"which": arguments.which, **row} for row in rows])


if __name__ == "__main__":
    main()
