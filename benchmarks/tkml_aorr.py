"""TKML-AoRR on Yeast with label noise, beside the paper's Table 10: ten random 80/20 splits, noise 0, .1, .2, .3.

    RANKRANGE_DATA=... python benchmarks/tkml_aorr.py [--splits 10]
    python benchmarks/tkml_aorr.py --summary

Noise is put into the training part alone. C, m, k and the stopping step are chosen by 5-fold cross-validation on the
noisy training part; the test part is clean and read once. C is the one that does best for TKML-Average over all k'.
- constant: the k' most frequent labels. LR: one logistic regression a label, C by its log-loss.
- Average: m = 0, k = n. ATk: m = 0, k of .8 and 1 times n. AoRR: m of 0, .1, .2 and .3 times n, k = n.
Rows go to benchmarks/results/tkml_aorr.csv as they are done; those already there are not run again.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from rankrange import TKMLClassifier, datasets, noise
from rankrange.estimators import LogisticPerLabel
from rankrange.metrics import top_k_multilabel_accuracy
from record import RESULTS, append
from tkml_accuracy import chosen_by_loss, difference, log_loss, mean_and_error

NOISE = (0.0, 0.1, 0.2, 0.3)
KS = range(1, 6)
CS = (3.0, 10.0, 30.0)
METHODS = ("constant", "LR", "Average", "ATk", "AoRR")
# Table 10 of the paper, TKML-AoRR: mean and deviation.
PAPER = {
    0.0: ((74.94, 1.82), (73.88, 1.26), (50.25, 1.39), (45.93, 2.15), (46.13, 1.77)),
    0.1: ((74.55, 1.62), (73.68, 1.52), (50.19, 0.81), (45.52, 2.35), (46.05, 2.20)),
    0.2: ((74.36, 1.61), (73.50, 1.38), (49.73, 1.41), (45.48, 2.35), (46.00, 1.59)),
    0.3: ((74.31, 1.40), (73.48, 1.36), (49.69, 1.07), (44.71, 2.11), (45.79, 1.98)),
}


def run(seed: int, rate: float) -> list[dict[str, Any]]:
    bunch = datasets.load("yeast")
    order = np.random.default_rng(seed).permutation(len(bunch.data))
    train, test = np.split(order, [int(0.8 * len(order))])
    scaler = StandardScaler().fit(bunch.data[train])
    X, X_test = scaler.transform(bunch.data[train]), scaler.transform(bunch.data[test])
    Y, Y_test = noise.multilabel(bunch.target[train], rate, random_state=seed), bunch.target[test]

    def fit(k: int, C: float, m: float = 0.0, kept: float = 1.0) -> Any:
        return TKMLClassifier(k, m=m, k=kept, C=C, validation=5, max_iter=100, random_state=seed).fit(X, Y)

    average = {(k, C): fit(k, C) for k in KS for C in CS}
    C = max(CS, key=lambda C: sum(average[k, C].stop_score_ for k in KS))
    C_lr, _ = chosen_by_loss(lambda C: LogisticPerLabel(C=C, tol=1e-6), log_loss, X, Y, seed)
    lr = LogisticPerLabel(C=C_lr).fit(X, Y).decision_function(X_test)
    rows = []
    for k in KS:
        top = [average[k, C], *(fit(k, C, kept=kept) for kept in (0.8,))]
        cut = [average[k, C], *(fit(k, C, m=m) for m in (0.1, 0.2, 0.3))]
        aorr = max(cut, key=lambda model: model.stop_score_)
        scores = {
            "constant": np.tile(Y.mean(axis=0), (len(Y_test), 1)),
            "LR": lr,
            "Average": average[k, C].decision_function(X_test),
            "ATk": max(top, key=lambda model: model.stop_score_).decision_function(X_test),
            "AoRR": aorr.decision_function(X_test),
        }
        figures = {method: f"{100 * top_k_multilabel_accuracy(Y_test, z, k):.4f}" for method, z in scores.items()}
        rows.append({"noise": rate, "split": seed, "k": k, "C": C, "C_LR": C_lr, "m": float(aorr.m), **figures})
    return rows


def read() -> list[dict[str, str]]:
    path = RESULTS / "tkml_aorr.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summary() -> None:
    table: dict[tuple[float, int], list[dict[str, str]]] = defaultdict(list)
    for row in read():
        table[float(row["noise"]), int(row["k"])].append(row)
    met = 0
    for rate in NOISE:
        cells = {k: table[rate, k] for k in KS if table[rate, k]}
        if not cells:
            continue
        print(f"\nnoise {rate}, {len(cells[1])} splits | " + " | ".join(f"k'={k}" for k in cells))
        for method in METHODS:
            print(f"{method:16s} | " + " | ".join(mean_and_error(cell, method) for cell in cells.values()))
        print("paper's AoRR     | " + " | ".join(f"{m:.2f} ({d:.2f})" for m, d in PAPER[rate]))
        for other in ("LR", "Average"):
            print(f"AoRR - {other:9s} | " + " | ".join(difference(cell, "AoRR", other) for cell in cells.values()))
        print("mean m/n         | " + " | ".join(f"{np.mean([float(r['m']) for r in c]):.2f}" for c in cells.values()))
        for k, cell in cells.items():
            mean, deviation = PAPER[rate][k - 1]
            met += np.mean([float(row["AoRR"]) for row in cell]) >= mean - deviation
    print(f"\nat least the paper's mean less one deviation in {met} of {len(table)} cells")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    if not arguments.summary:
        warnings.simplefilter("ignore", ConvergenceWarning)
        done = {(int(row["split"]), float(row["noise"])) for row in read()}
        for seed in range(arguments.splits):
            for rate in NOISE:
                if (seed, rate) not in done:
                    append("tkml_aorr", run(seed, rate))
    summary()


if __name__ == "__main__":
    main()
