"""m="auto" on five binary sets with planted errors, against logistic regression on given and on clean labels.

    RANKRANGE_DATA=... python benchmarks/auto_tabular.py [--seeds 20] [--sets ...] [--no-record]
    RANKRANGE_DATA=... python benchmarks/auto_tabular.py --summary

60% of the rows train, 40% test; features are scaled by the training part; errors are planted in the training part
alone. Accuracy in percent on the test part:
- LR: scikit-learn's LogisticRegression; LRCV: with C by 5-fold cross-validation on the labels as they are.
- auto: AoRRClassifier with its default C = 1.0, which is the penalty of LR.
- clean: LogisticRegression on the clean labels and rows, which nothing can be expected to beat. Regret is clean - auto.
Seconds are those of one core for "auto".
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

import record
from corrupted import BINARY, corrupt, load, scaled
from rankrange import AoRRClassifier

CELLS = (
    *(("symmetric", rate) for rate in (0.0, 0.1, 0.2, 0.3)),
    ("class-dependent", 0.2),
    ("far", 0.1),
    ("far", 0.2),
)


def measure(name: str, kind: str, rate: float, seed: int) -> dict[str, Any]:
    X, y = load(name)
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: int(0.6 * len(y))], order[int(0.6 * len(y)) :]
    X_train, X_test = scaled(X[train], X[test])
    X_train, given = corrupt(X_train, y[train], kind, rate, seed)
    plain = LogisticRegression(max_iter=2000).fit(X_train, given)
    tuned = LogisticRegressionCV(
        Cs=np.logspace(-4, 2, 13), cv=5, max_iter=2000, scoring="accuracy", use_legacy_attributes=False
    ).fit(X_train, given)
    start = time.process_time()
    auto = AoRRClassifier(random_state=seed).fit(X_train, given)
    seconds = time.process_time() - start
    clean = LogisticRegression(max_iter=2000).fit(scaled(X[train])[0], y[train])
    accuracy = [model.score(X_test, y[test]) for model in (plain, tuned, auto, clean)]
    names = ("LR", "LRCV", "auto", "clean")
    return {
        "set": name,
        "kind": kind,
        "rate": rate,
        "seed": seed,
        **{name: round(100 * value, 3) for name, value in zip(names, accuracy, strict=True)},
        "m": round(auto.m_ / len(given), 4),
        "wrong": round(float((given != y[train]).mean()), 4),
        "estimate": round(auto.noise_estimate_, 4),
        "low": round(auto.noise_interval_[0], 4),
        "high": round(auto.noise_interval_[1], 4),
        "seconds": round(seconds, 3),
    }


def mean_and_error(values: Any) -> str:
    values = np.asarray(values)
    return f"{values.mean():6.2f} ({values.std(ddof=1) / np.sqrt(len(values)):.2f})"


def summary() -> None:
    rows = list(csv.DictReader((record.RESULTS / "auto_tabular.csv").open(encoding="utf-8")))
    cells: dict[Any, Any] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for key in ("LR", "LRCV", "auto", "clean", "m", "wrong", "estimate", "seconds"):
            cells[row["set"], row["kind"], row["rate"]][key].append(float(row[key]))
    print("set, errors: LR, LRCV, auto, clean; regret of auto; m/n; wrong, estimate; seconds")
    regrets: dict[str, dict[Any, float]] = {method: {} for method in ("auto", "LR", "LRCV")}
    for cell, found in cells.items():
        values = {key: np.array(found[key]) for key in found}
        for method, kept in regrets.items():
            kept[cell] = float((values["clean"] - values[method]).mean())
        accuracy = "  ".join(mean_and_error(values[key]) for key in ("LR", "LRCV", "auto", "clean"))
        others = " ".join(f"{values[key].mean():.3f}" for key in ("m", "wrong", "estimate"))
        regret = mean_and_error(values["clean"] - values["auto"])
        print(
            f"{cell[0]:>14} {cell[1]:>16} {cell[2]:>4}  {accuracy}  {regret}  {others}  {values['seconds'].mean():.2f}"
        )
    for method, kept in regrets.items():
        symmetric = {cell: value for cell, value in kept.items() if cell[1] == "symmetric"}
        worst = max(symmetric, key=lambda cell: symmetric[cell])
        mean = np.mean(list(symmetric.values()))
        print(f"symmetric, regret of {method}: mean {mean:.2f}, worst {symmetric[worst]:.2f} {worst}")
    for cell, found in cells.items():
        gain = np.array(found["auto"]) - found["LR"]
        if cell[1:] == ("symmetric", "0.0") or cell[1] == "far":
            print(f"{cell}: auto - LR {mean_and_error(gain)}")
    uneven = [found for cell, found in cells.items() if cell[1] == "class-dependent"]
    gains = [np.mean([np.mean(found[key]) - np.mean(found["LR"]) for found in uneven]) for key in ("auto", "clean")]
    share = gains[0] / gains[1]
    print(f"class-dependent 0.2: gain over LR {gains[0]:.2f}, with clean labels {gains[1]:.2f}: {share:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--sets", nargs="+", default=list(BINARY))
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    if arguments.summary:
        return summary()
    warnings.simplefilter("ignore")  # of fits that stop at max_iter
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name in arguments.sets:
            rows = [measure(name, kind, rate, seed) for kind, rate in CELLS]
            for row in rows:
                print(*row.values(), flush=True)
            if not arguments.no_record:
                record.append("auto_tabular", rows)


if __name__ == "__main__":
    main()
