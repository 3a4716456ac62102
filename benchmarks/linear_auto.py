"""What m="auto" costs on 20,000 x 50, in ordinary fits, over the kinds of data of the suite.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/linear_auto.py [--seeds 3] [--record NAME]

`AoRRClassifier()` and `LogisticRegression(tol=1e-6)`, both with C = 1.0, by turns; the ratio is that of the median core
seconds of three fits each. The share that is cut stands beside the share of wrong labels. Target: 25 ordinary fits.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from typing import Any

import numpy as np

import record
from linear_suite import KINDS, Problem, core_seconds, data, ordinary
from rankrange import AoRRClassifier

WRONG = {"flipped": 0.1, "scattered": 0.1, "cluster": 0.1}


def measure(kind: str, seed: int, repeats: int = 3) -> dict[str, Any]:
    problem = Problem("logistic", "medium", kind, 0.0, 1.0)
    X, y = data(problem, seed)
    fit = AoRRClassifier(random_state=seed)
    times = [(core_seconds(ordinary(problem), X, y), core_seconds(fit, X, y)) for _ in range(repeats)]
    theirs, ours = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "kind": kind,
        "seed": seed,
        "ordinary_s": round(theirs, 4),
        "ours_s": round(ours, 4),
        "ratio": round(ours / theirs, 2),
        "cut": round(fit.m_ / len(y), 4),
        "wrong": WRONG.get(kind, 0.0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--record", help="append the rows to benchmarks/results/NAME.csv")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for kind in KINDS:
        for seed in range(arguments.seeds):
            rows.append(measure(kind, seed))
            print(*rows[-1].values(), flush=True)
    ratios = [row["ratio"] for row in rows]
    worst = max(rows, key=lambda row: row["ratio"])
    print(
        f"{len(rows)} problems, ratio to one ordinary fit: median {np.median(ratios):.1f}, 90% "
        f"{np.quantile(ratios, 0.9):.1f}, worst {worst['ratio']} ({worst['kind']}, seed {worst['seed']})"
    )
    if arguments.record:
        record.append(arguments.record, rows)


if __name__ == "__main__":
    main()
