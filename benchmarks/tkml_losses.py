"""What minimising each form of the TKML loss does to accuracy, on Yeast: both losses at the same C, no early stop.

    RANKRANGE_DATA=... python benchmarks/tkml_losses.py [--splits 30]

Three quarters of the rows train, the last quarter is read once; features are scaled by the former. Both losses start
from the same logistic regression per label and take 400 quasi-Newton steps at C = 10 (relative to the mean loss), the
value that cross-validation chooses for the two-sided loss. Objectives are of the training part, accuracies of the test
part. Rows go to benchmarks/results/tkml_losses.csv.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from rankrange.core.losses import TKML
from rankrange.core.objective import Design
from rankrange.metrics import top_k_multilabel_accuracy
from rankrange.solvers.label_ranking import LabelObjective, logistic_per_label, quasi_newton
from record import append

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction.data import load

C = 10.0  # relative to the mean of the losses
KS = range(1, 6)
FIRST = 100  # the seed of the first split
STEPS = 400


def split(seed: int) -> tuple[Any, Any, Any, Any]:
    data = load("yeast")
    order = np.random.default_rng(seed).permutation(len(data.data))
    train, test = np.split(order, [int(0.75 * len(order))])
    scale = StandardScaler().fit(data.data[train]).transform
    return scale(data.data[train]), data.target[train], scale(data.data[test]), data.target[test]


def run(seed: int) -> list[dict[str, Any]]:
    X, Y, X_test, Y_test = split(seed)
    design, test = Design(X, True), Design(X_test, True)
    rows = []
    for k in KS:
        row: dict[str, Any] = {"split": seed, "k": k, "crowded": f"{np.mean(Y.sum(axis=1) > k):.4f}"}
        for name in ("two_sided", "paper"):
            loss = TKML(k, two_sided=name == "two_sided")
            objective = LabelObjective(design, Y == 1, loss, C, Y.shape[1], m=0, k=len(X))
            start = logistic_per_label(design, objective.blocks, C)[0]
            end = quasi_newton(objective, start, max_iter=STEPS).w
            for at, W in (("start", start), ("end", end)):
                row[f"F_{name}_{at}"] = f"{objective.value(W):.6f}"
                row[f"accuracy_{name}_{at}"] = f"{100 * top_k_multilabel_accuracy(Y_test, test.scores(W).T, k):.4f}"
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=30)
    rows = [row for seed in range(FIRST, FIRST + parser.parse_args().splits) for row in run(seed)]
    append("tkml_losses", rows)
    for k in KS:
        of_k = [row for row in rows if row["k"] == k]
        print(f"k={k}")
        for key in [key for key in rows[0] if key not in ("split", "k")]:
            values = np.array([float(row[key]) for row in of_k])
            print(f"  {key:26s} {values.mean():8.3f} ({values.std(ddof=1) / np.sqrt(len(values)):.3f})")
        gain = np.array([float(row["accuracy_two_sided_end"]) - float(row["accuracy_paper_end"]) for row in of_k])
        print(f"  two-sided - paper, end     {gain.mean():8.2f} ({gain.std(ddof=1) / np.sqrt(len(gain)):.2f})")


if __name__ == "__main__":
    main()
