"""How the cost of a fit grows with the rows, and the memory it needs beside X: float32, 30 columns.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/linear_scale.py
        [--rows 100000,1000000,10000000] [--settings 3] [--record NAME]

10% of the rows lie ten times as far out with wrong labels. Core seconds; memory is the peak of the process over the
fit less what it held before. Targets: seconds per row within 15% of each other; 20,000,000 rows below 60 s on two
cores, and at most 1.3 times the memory of X beside it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import record
from rankrange import AoRRClassifier

SETTINGS = ((0.1, 1.0), (0.1, 0.9), (0.0, 0.9))


def data(n: int, d: int = 30, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    w = rng.standard_normal(d, dtype=np.float32)
    z = X @ (3.0 * w / np.linalg.norm(w))
    y = z + rng.logistic(size=n).astype(np.float32) > 0
    del z
    wild = np.flatnonzero(rng.random(n, dtype=np.float32) < 0.1)
    X[wild] *= 10.0
    y[wild] = ~y[wild]
    return X, y.astype(np.int8)


def memory(name: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    return 0


def measure(n: int, m: float, k: float, X: Any, y: Any, repeats: int) -> dict[str, Any]:
    seconds, walls = [], []
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak starts anew
    before = memory("VmRSS")
    for _ in range(repeats):
        start, wall = time.process_time(), time.perf_counter()
        fit = AoRRClassifier(m=m, k=k, C=1.0, random_state=0).fit(X, y)
        seconds.append(time.process_time() - start)
        walls.append(time.perf_counter() - wall)
    return {
        "rows": n,
        "m": m,
        "k": k,
        "core_s": round(float(np.median(seconds)), 4),
        "wall_s": round(float(np.median(walls)), 4),
        "core_s_per_million": round(float(np.median(seconds)) / n * 1e6, 4),
        "memory_over_X": round((memory("VmHWM") - before) / X.nbytes, 3),
        "certificate": f"{fit.certificate_:.2g}",
        "n_iter": fit.n_iter_,
        "objective": f"{fit.objective_:.10g}",
        "seed": 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="100000,1000000,10000000")
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="how many of the settings (m, k)")
    parser.add_argument("--record", help="append the rows to benchmarks/results/NAME.csv")
    arguments = parser.parse_args()
    rows = []
    for n in map(int, arguments.rows.split(",")):
        X, y = data(n)
        for m, k in SETTINGS[: arguments.settings]:
            rows.append(measure(n, m, k, X, y, 5 if n <= 100_000 else 3 if n <= 1_000_000 else 1))
            print(rows[-1], flush=True)
        del X, y
    if arguments.record:
        record.append(arguments.record, rows)


if __name__ == "__main__":
    main()
