"""Time and peak memory of `rankrange audit` on files, as a user runs it.

    python benchmarks/audit_size.py [--case census|columns|large] [--rows N] [--seed 0] [--jobs 2] [--no-record]

Cases, each a CSV with numbers, texts, missing cells and a target of two classes, 5% of which are wrong:
  census    48,842 x 14; below 60 seconds on two cores is the aim
  columns   100,000 x 50; below 90 seconds and 1 GB is the aim
  large     1,000,000 x 30 (about 215 MB): a sample and one pass
Prints how many of the wrong rows are flagged. Seconds of the wall depend on what else runs; core seconds hardly do.
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
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv

import record

# Rows, columns of numbers, and columns of texts.
CASES = {"census": (48_842, 7, 6), "columns": (100_000, 44, 5), "large": (1_000_000, 24, 5)}
OUTPUTS = {"out": "suspects.csv", "report": "r.html"}


def make(rows: int, numbers: int, texts: int, rng: np.random.Generator) -> tuple[dict[str, Any], np.ndarray]:
    """The columns, and True where the label is wrong."""
    X = rng.normal(size=(rows, numbers))
    codes = rng.integers(0, 8, size=(rows, texts))
    effects = rng.normal(size=(texts, 8))[np.arange(texts), codes].sum(axis=1)
    y = X @ rng.normal(scale=0.7, size=numbers) + effects + rng.logistic(scale=0.5, size=rows) > 0
    wrong = rng.random(rows) < 0.05
    X[rng.random(rows) < 0.02, 0] = np.nan
    table = {f"number {j}": pyarrow.array(X[:, j].round(5), from_pandas=True) for j in range(numbers)}
    table |= {f"text {j}": pyarrow.array(np.array(list("abcdefgh"))[codes[:, j]]) for j in range(texts)}
    return {**table, "label": pyarrow.array(np.where(y ^ wrong, "yes", "no"))}, wrong


def measure(name: str, rows: int, seed: int, jobs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "data.csv")
        columns, wrong = make(rows, *CASES[name][1:], np.random.default_rng(seed))
        pyarrow.csv.write_csv(pyarrow.table(columns), path)
        command = [sys.executable, "-m", "rankrange", "audit", str(path), "--target", "label", "--jobs", str(jobs)]
        start = time.perf_counter()
        subprocess.run([*command, *(f"--{option}={folder}/{file}" for option, file in OUTPUTS.items())], check=True)
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        with Path(folder, OUTPUTS["out"]).open(encoding="utf-8", newline="") as file:
            likely = [int(row["row"]) - 1 for row in csv.DictReader(file) if row["action"] in ("relabel", "drop")]
        return {
            "case": name,
            "seed": seed,
            "rows": rows,
            "columns": len(columns),
            "jobs": jobs,
            "file_mb": round(path.stat().st_size / 1e6, 1),
            "seconds": round(seconds, 1),
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
            "peak_gb": round(used.ru_maxrss / 1e6, 2),
            "load": round(os.getloadavg()[1], 1),
            "wrong": int(wrong.sum()),
            "likely": len(likely),
            "hits": int(wrong[likely].sum()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES), default="columns")
    parser.add_argument("--rows", type=int, default=None, help="fewer than the case has, to try it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    row = measure(arguments.case, arguments.rows or CASES[arguments.case][0], arguments.seed, arguments.jobs)
    print(*(f"{key} {value}" for key, value in row.items()), sep=", ")
    if not arguments.no_record:
        record.append("audit_size", [row])


if __name__ == "__main__":
    main()
