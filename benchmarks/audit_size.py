"""Time and peak memory of `rankrange audit` on large files, as a user runs it.

    python benchmarks/audit_size.py [--case mixed|long|wide] [--rows N] [--seed 0] [--jobs 2] [--no-record]

Cases, each a target of two classes of which some are wrong:
  mixed   1,000,000 x 30 as CSV: numbers, one column with missing cells, five of text; 5% wrong; all four outputs
  long    2,800,000 x 11 as CSV (about 270 MB): numbers, one of them skewed, a product in the truth; 2% wrong; the page.
          All models; below 150 seconds on two cores and 3 GB is the aim
  wide    1,000,000 x 31 as Parquet: numbers; 5% wrong; `--models linear`, nothing written. Below 40 seconds is the aim
The file is made anew for each run, from the seed. Where suspects are written, it prints how many of the wrong rows are
found. Seconds of the wall depend on what else runs; core seconds hardly do.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet

import record

Made = tuple[dict[str, Any], np.ndarray]


def with_texts(rows: int, rng: np.random.Generator) -> Made:
    """24 columns of numbers, five of texts, one target: the columns, and True where the label is wrong."""
    columns, texts = 30, 5
    X = rng.normal(size=(rows, columns - 1 - texts))
    codes = rng.integers(0, 8, size=(rows, texts))
    score = X @ rng.normal(scale=0.7, size=X.shape[1]) + rng.normal(size=(texts, 8))[np.arange(texts), codes].sum(
        axis=1
    )
    y = score + rng.logistic(scale=0.5, size=rows) > 0
    wrong = rng.random(rows) < 0.05
    X[rng.random(rows) < 0.02, 0] = np.nan
    table = {f"number {j}": pyarrow.array(X[:, j].round(5), from_pandas=True) for j in range(X.shape[1])}
    table |= {f"text {j}": pyarrow.array(np.array(list("abcdefgh"))[codes[:, j]]) for j in range(texts)}
    return {**table, "label": pyarrow.array(np.where(y ^ wrong, "yes", "no"))}, wrong


def ten_numbers(rows: int, rng: np.random.Generator) -> Made:
    X = rng.normal(size=(rows, 10)).round(6)
    X[:, 3] = np.exp(X[:, 3]).round(4)
    y = X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=rows) > 0
    wrong = rng.random(rows) < 0.02
    return {**{f"c{j}": X[:, j] for j in range(10)}, "label": np.where(y ^ wrong, "yes", "no")}, wrong


def thirty_numbers(rows: int, rng: np.random.Generator) -> Made:
    X = rng.normal(size=(rows, 30)).astype(np.float32)
    y = X[:, :5].sum(axis=1) + rng.normal(size=rows) > 0
    wrong = rng.random(rows) < 0.05
    return {**{f"c{j}": X[:, j] for j in range(30)}, "label": np.where(y ^ wrong, "yes", "no")}, wrong


class Case(NamedTuple):
    rows: int
    make: Callable[[int, np.random.Generator], Made]
    file: str
    models: str
    outputs: tuple[str, ...]


CASES = {
    "mixed": Case(
        1_000_000, with_texts, "data.csv", "all", ("out=suspects.csv", "report=r.html", "clean=c.csv", "model=m.skops")
    ),
    "long": Case(2_800_000, ten_numbers, "data.csv", "all", ("report=r.html",)),
    "wide": Case(1_000_000, thirty_numbers, "data.parquet", "linear", ()),
}


def write(path: Path, columns: dict[str, Any]) -> int:
    """Write the table; its size in bytes."""
    table = pyarrow.table(columns)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with path.open("wb") as file:
            file.write((",".join(table.column_names) + "\n").encode())
            options = pyarrow.csv.WriteOptions(quoting_style="none", include_header=False)
            pyarrow.csv.write_csv(table, file, options)
    return path.stat().st_size


def measure(name: str, rows: int, seed: int, jobs: int) -> dict[str, Any]:
    case = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        columns, wrong = case.make(rows, np.random.default_rng(seed))
        size = write(Path(folder, case.file), columns)
        width = len(columns)
        del columns
        command = [sys.executable, "-m", "rankrange", "audit", f"{folder}/{case.file}", "--target", "label"]
        command += [f"--{option}={folder}/{file}" for option, file in (out.split("=") for out in case.outputs)]
        start = time.perf_counter()
        subprocess.run([*command, "--models", case.models, "--jobs", str(jobs)], check=True, env={**os.environ})
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        page = Path(folder, "r.html")
        likely = _likely(Path(folder, "suspects.csv"))
        page_mb = round(page.stat().st_size / 1e6, 2) if page.exists() else ""
    return {
        "case": name,
        "seed": seed,
        "rows": rows,
        "columns": width,
        "models": case.models,
        "jobs": jobs,
        "file_mb": round(size / 1e6, 1),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gb": round(used.ru_maxrss / 1e6, 2),
        "load": round(os.getloadavg()[1], 1),
        "page_mb": page_mb,
        "wrong": int(wrong.sum()),
        "likely": "" if likely is None else len(likely),
        "hits": "" if likely is None else int(wrong[likely].sum()),
    }


def _likely(suspects: Path) -> list[int] | None:
    """Places of the rows called likely wrong, where suspects were written."""
    if not suspects.exists():
        return None
    with suspects.open(encoding="utf-8", newline="") as file:
        return [int(row["row"]) - 1 for row in csv.DictReader(file) if row["action"] != "look"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), default="mixed")
    parser.add_argument("--rows", type=int, default=None, help="fewer than the case has, to try it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    rows = arguments.rows or CASES[arguments.case].rows
    row = measure(arguments.case, rows, arguments.seed, arguments.jobs)
    print(*(f"{key} {value}" for key, value in row.items()), sep=", ")
    if not arguments.no_record:
        record.append("audit_size", [row])


if __name__ == "__main__":
    main()
