"""m="auto" with more than two classes: noise from even classes to the next, against logistic regression with tuned C.

    RANKRANGE_DATA=... python benchmarks/auto_multiclass.py [--seeds 5] [--sets digits mnist] [--rows 50000]
    RANKRANGE_DATA=... python benchmarks/auto_multiclass.py --summary

Even digits c become c + 1 with probability .4, so that about .2 of all labels are wrong. digits: 60% of the rows train.
mnist: `--rows` of the 60,000 training images train, the 10,000 test images test. Accuracy in percent on clean labels:
- LRCV: logistic regression with C by cross-validation on the labels as they are: scikit-learn's with 13 values and 5
  folds on digits; on mnist, where that would take an hour, an ordinary fit of ours with 4 values and one hold-out of a
  fifth of the rows.
- auto: AoRRClassifier with its default C = 1.0 on digits and C = 0.1 on mnist; it has no clean rows and chooses m.
Symmetric noise on MNIST is an experiment of the paper: `make reproduce ARGS=mnist-symmetric`.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV

import record
from corrupted import corrupt, load, scaled
from rankrange import AoRRClassifier

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction import data

PENALTIES = (0.0001, 0.001, 0.01, 0.1)
PENALTY = {"digits": 1.0, "mnist": 0.1}  # C; the latter from splits that are not reported (seeds from 100)


def parts(name: str, seed: int, rows: int) -> tuple[Any, Any, Any, Any]:
    """Training and test rows, all with clean labels."""
    rng = np.random.default_rng(seed)
    if name == "mnist":
        bunch = data.load("mnist")
        train = rng.permutation(len(bunch.target))[:rows]
        X, X_test = ((part / 255.0).astype(np.float32) for part in (bunch.data[train], bunch.test_data))
        return X, np.asarray(bunch.target)[train].astype(int), X_test, np.asarray(bunch.test_target).astype(int)
    X, y = load(name)
    order = rng.permutation(len(y))
    train, test = order[: int(0.6 * len(y))], order[int(0.6 * len(y)) :]
    X_train, X_test = scaled(X[train], X[test])
    return X_train, y[train], X_test, y[test]


def tuned(name: str, X: Any, y: Any, seed: int) -> Any:
    if name != "mnist":
        settings: dict[str, Any] = {"Cs": np.logspace(-4, 2, 13), "cv": 5, "max_iter": 2000, "scoring": "accuracy"}
        return LogisticRegressionCV(**settings, use_legacy_attributes=False).fit(X, y)
    held = np.random.default_rng(seed).random(len(y)) < 0.2
    scores = [ordinary(C, X[~held], y[~held]).score(X[held], y[held]) for C in PENALTIES]
    return ordinary(PENALTIES[int(np.argmax(scores))], X, y)


def ordinary(C: float, X: Any, y: Any) -> AoRRClassifier:
    return AoRRClassifier(0, 1.0, C=C, tol=1e-4).fit(X, y)


def measure(name: str, seed: int, rows: int) -> dict[str, Any]:
    X, y, X_test, y_test = parts(name, seed, rows)
    _, given = corrupt(X, y, "class-dependent", 0.2, seed)
    start = time.process_time()
    auto = AoRRClassifier(C=PENALTY[name], tol=1e-4, random_state=seed).fit(X, given)
    seconds = time.process_time() - start
    models = {"LRCV": tuned(name, X, given, seed), "auto": auto}
    return {
        "set": name,
        "seed": seed,
        "rows": len(y),
        **{key: round(100 * model.score(X_test, y_test), 3) for key, model in models.items()},
        "m": round(auto.m_ / len(given), 4),
        "wrong": round(float((given != y).mean()), 4),
        "estimate": round(auto.noise_estimate_, 4),
        "seconds": round(seconds, 2),
    }


def summary() -> None:
    found: dict[str, list[Any]] = defaultdict(list)
    for row in csv.DictReader((record.RESULTS / "auto_multiclass.csv").open(encoding="utf-8")):
        found[row["set"]].append([float(row[key]) for key in ("LRCV", "auto", "m", "wrong", "estimate", "seconds")])
    for name, rows in found.items():
        values = np.array(rows)
        gain = values[:, 1] - values[:, 0]
        error = gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
        means = " ".join(f"{value:.3f}" for value in values.mean(axis=0))
        print(f"{name}: LRCV, auto, m/n, wrong, estimate, seconds: {means}; gain {gain.mean():.2f} ({error:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--sets", nargs="+", default=["digits", "mnist"])
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    if arguments.summary:
        return summary()
    warnings.simplefilter("ignore")  # of fits that stop at max_iter, and of classes that lose many rows
    for name in arguments.sets:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            row = measure(name, seed, arguments.rows)
            print(*row.values(), flush=True)
            if not arguments.no_record:
                record.append("auto_multiclass", [row])


if __name__ == "__main__":
    main()
