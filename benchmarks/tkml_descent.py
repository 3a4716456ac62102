"""Does the descent of TKML-AoRR from several starts end below majorisation from the first start alone?

    RANKRANGE_DATA=... python benchmarks/tkml_descent.py [--sets emotions scene yeast]

For each data set (a random half of the rows, scaled), k' = 1..5 and label noise 0 and 0.3, with m a tenth of the rows,
or three tenths with noise: the objective at the start (one logistic regression per label), after majorisation from it
(DCA with exact inner solves), and after `minimise`. Seconds are those of the processor. One row per cell in
benchmarks/results/tkml_descent.csv.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from rankrange import noise
from rankrange.core.losses import TKML
from rankrange.core.objective import Design
from rankrange.solvers.label_ranking import LabelObjective, by_separation, logistic_per_label, minimise
from record import append

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction import data

SETS = ("emotions", "scene", "yeast")
C = 10.0  # relative to the mean of the kept losses


def cell(name: str, k: int, rate: float) -> dict[str, Any]:
    bunch = data.load(name)
    rows = np.random.default_rng(0).permutation(len(bunch.data))[: len(bunch.data) // 2]
    X = StandardScaler().fit_transform(bunch.data[rows])
    true = noise.multilabel(bunch.target[rows], rate, random_state=0) == 1
    m = round((0.3 if rate else 0.1) * len(X))
    objective = LabelObjective(Design(X, True), true, TKML(k), C, true.shape[1], m=m, k=len(X))
    start = logistic_per_label(objective.design, objective.blocks, C)[0]
    row: dict[str, Any] = {"set": name, "k": k, "noise": rate, "m": m, "F_start": f"{objective.value(start):.8g}"}
    for method, run in (("dca", by_separation), ("several_starts", minimise)):
        begun = time.process_time()
        result = run(objective, start)
        row[f"F_{method}"] = f"{result.value:.8g}"
        row[f"{method}_s"] = f"{time.process_time() - begun:.3g}"
        row[f"{method}_certificate"] = f"{result.certificate:.2g}"
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    for name in parser.parse_args().sets:
        for rate in (0.0, 0.3):
            for k in range(1, 6):
                row = cell(name, k, rate)
                append("tkml_descent", [row])
                print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
