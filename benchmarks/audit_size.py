"""Time and peak memory of `rankrange audit` on a large CSV file, as a user runs it: read, study, all four outputs.

    python benchmarks/audit_size.py [--rows 1000000] [--columns 30] [--jobs 2] [--no-record]

The table has a target of two classes of which 5% are wrong, 24 columns of numbers, one of them with missing cells, and
5 of text. Its file is made anew for each run. How many of the wrong rows are found is printed too.
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

import numpy as np
import pyarrow
import pyarrow.csv

import record

SHARE = 0.05


def make(path: Path, rows: int, columns: int) -> np.ndarray:
    """Write the table; True where the label is wrong."""
    rng = np.random.default_rng(0)
    texts = columns // 6
    X = rng.normal(size=(rows, columns - 1 - texts))
    codes = rng.integers(0, 8, size=(rows, texts))
    score = X @ rng.normal(scale=0.7, size=X.shape[1]) + rng.normal(size=(texts, 8))[np.arange(texts), codes].sum(
        axis=1
    )
    y = score + rng.logistic(scale=0.5, size=rows) > 0
    wrong = rng.random(rows) < SHARE
    X[rng.random(rows) < 0.02, 0] = np.nan
    table = {f"number {j}": pyarrow.array(X[:, j].round(5), from_pandas=True) for j in range(X.shape[1])}
    table |= {f"text {j}": pyarrow.array(np.array(list("abcdefgh"))[codes[:, j]]) for j in range(texts)}
    table["label"] = pyarrow.array(np.where(y ^ wrong, "yes", "no"))
    options = pyarrow.csv.WriteOptions(quoting_style="none")
    names = pyarrow.table(table)
    with path.open("wb") as file:
        file.write((",".join(names.column_names) + "\n").encode())
        options.include_header = False
        pyarrow.csv.write_csv(names, file, options)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=30, help="with the target")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "data.csv"), Path(folder, "suspects.csv")
        wrong = make(data, arguments.rows, arguments.columns)
        size = data.stat().st_size
        outputs = [
            f"--{name}={folder}/{file}"
            for name, file in (("report", "report.html"), ("clean", "clean.csv"), ("model", "model.skops"))
        ]
        command = [sys.executable, "-m", "rankrange", "audit", str(data), "--target", "label", "--out", str(out)]
        start = time.perf_counter()
        subprocess.run([*command, *outputs, "--jobs", str(arguments.jobs)], check=True, env={**os.environ})
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
        page = Path(folder, "report.html").stat().st_size
        with out.open(encoding="utf-8", newline="") as file:
            likely = [int(row["row"]) - 1 for row in csv.DictReader(file) if row["action"] != "look"]
    row = {
        "rows": arguments.rows,
        "columns": arguments.columns,
        "jobs": arguments.jobs,
        "csv_mb": round(size / 1e6, 1),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_gb": round(peak, 2),
        "page_mb": round(page / 1e6, 2),
        "wrong": int(wrong.sum()),
        "likely": len(likely),
        "hits": int(wrong[likely].sum()),
    }
    print(*(f"{key} {value}" for key, value in row.items()), sep=", ")
    if not arguments.no_record:
        record.append("audit_size", [row])


if __name__ == "__main__":
    main()
