"""What the defaults of AoRRClassifier cost and gain: time over LogisticRegressionCV, accuracy on clean test rows.

    RANKRANGE_DATA=... OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/linear_auto.py
        [--seed 500] [--problems 30] [--tables 20] [--record NAME] [--against NAME]

Time: the drawn problems of linear_random.py of up to 2 million cells; core seconds of `AoRRClassifier()` over those of
`LogisticRegressionCV(Cs=10, cv=5)`, which chooses one number on five folds as well. Targets: 1, 3 and 10 (median, 90%,
worst), none unfinished after 60 s.

Accuracy: tables drawn by seed, in turn a real set of two even classes, a real one with a rare class, and a simulated
one with a rare class. Errors are planted in the training half alone, and the test half is clean. Reported by kind of
error: the accuracy minus that of LogisticRegression in points, its worst, the mean share that is dropped, and the
difference from the record NAME of an earlier run, which must be at most .2 points below on average; clean tables never
lose a point. Development uses seeds from 500 to 599; evaluation others.
"""

from __future__ import annotations

import argparse
import csv
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import balanced_accuracy_score

import linear_random
import record
from auto_imbalanced import draw as draw_imbalanced
from auto_imbalanced import planted
from corrupted import BINARY, load, scaled
from rankrange import AoRRClassifier

ERRORS = (("none", 0.0), ("symmetric", 0.1), ("symmetric", 0.3), ("rare", 0.1), ("far", 0.1))
MOST_CELLS, MOST_ROWS, MOST_SECONDS = 2_000_000, 2500, 60


class OutOfTime(Exception):
    """The fit did not end within the limit."""


def _out_of_time(*_: Any) -> None:
    raise OutOfTime


def seconds_of(fit: Callable[[], Any]) -> float:
    """Core seconds; infinite if it does not end within a minute."""
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(MOST_SECONDS)
    start = time.process_time()
    try:
        fit()
    except OutOfTime:
        return np.inf
    finally:
        signal.alarm(0)
    return time.process_time() - start


def timed(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """A row per problem with the seconds of both."""
    found = 0
    for index in range(10 * count):
        problem, rng = linear_random.draw("logistic", seed, index)
        if found == count or problem.n * problem.d > MOST_CELLS:
            continue
        found += 1
        X, y = linear_random.data(problem, rng)
        theirs = seconds_of(lambda X=X, y=y: LogisticRegressionCV(Cs=10, cv=5, use_legacy_attributes=False).fit(X, y))
        model = AoRRClassifier(random_state=0)
        ours = seconds_of(lambda X=X, y=y, model=model: model.fit(X, y))
        cut = getattr(model, "m_", np.nan) / len(y)
        name = f"{problem.n} x {problem.d} {problem.columns} {problem.outliers} {problem.wild:.2f}"
        yield _row("time", seed, index, name, 0.0, cut, theirs, ours, ours / theirs, 0.0)


def tables(seed: int, count: int) -> Iterator[tuple[int, str, Any, Any]]:
    for number in range(count):
        own, third = 1000 * seed + number, number % 3
        if third:
            name, X, y = draw_imbalanced(2 * own + third - 1)
        else:
            name = BINARY[number // 3 % len(BINARY)]
            X, y = load(name)
        order = np.random.default_rng(own).permutation(len(y))[: 2 * MOST_ROWS]
        yield number, name, X[order], y[order]


def compared(seed: int, count: int) -> Iterator[dict[str, Any]]:
    """A row per table and kind of error with the accuracies of both, in percent."""
    for number, name, X, y in tables(seed, count):
        half = len(y) // 2
        X_train, X_test = scaled(X[:half], X[half:])
        for kind, rate in ERRORS:
            rows, given = planted(X_train, y[:half], kind, rate, seed)
            plain = LogisticRegression(max_iter=2000).fit(rows, given)
            auto = AoRRClassifier(random_state=seed).fit(rows, given)
            accuracy = [100 * model.score(X_test, y[half:]) for model in (plain, auto)]
            balanced = [100 * balanced_accuracy_score(y[half:], model.predict(X_test)) for model in (plain, auto)]
            gains = accuracy[1] - accuracy[0], balanced[1] - balanced[0]
            yield _row(kind, seed, number, name, rate, auto.m_ / len(given), *accuracy, *gains)


def _row(kind: str, seed: int, index: int, name: str, rate: float, cut: float, *figures: float) -> dict[str, Any]:
    names = ("theirs", "ours", "gain", "gain_balanced")
    rounded = {key: round(float(value), 4) for key, value in zip(names, figures, strict=True)}
    return {"kind": kind, "seed": seed, "index": index, "name": name, "rate": rate, "cut": round(cut, 4), **rounded}


def earlier(name: str) -> dict[Any, float]:
    with open(record.RESULTS / f"{name}.csv", encoding="utf-8") as file:
        return {_key(row): float(row["ours"]) for row in csv.DictReader(file)}


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[key]) for key in ("kind", "seed", "index", "rate"))


def report(rows: list[dict[str, Any]], before: dict[Any, float]) -> None:
    ratios = sorted((row["gain"], row["name"]) for row in rows if row["kind"] == "time")
    if ratios:
        values = [ratio for ratio, _ in ratios]
        print(f"time: median {np.median(values):.2f}, 90% {np.quantile(values, 0.9):.2f}, worst {ratios[-1]}")
    for kind, rate in ERRORS:
        part = [row for row in rows if (row["kind"], row["rate"]) == (kind, rate)]
        if not part:
            continue
        gain, cut = np.array([row["gain"] for row in part]), np.mean([row["cut"] for row in part])
        balanced = np.mean([row["gain_balanced"] for row in part])
        worst = min(part, key=lambda row: row["gain"])
        change = np.array([row["ours"] - before[_key(row)] for row in part if _key(row) in before])
        text = f"{kind:>10} {rate:.1f}: gain {gain.mean():+.2f}, balanced {balanced:+.2f}, worst {gain.min():+.2f} "
        text += f"({worst['name']} {worst['index']}), dropped {cut:.3f}"
        if len(change):
            error = change.std(ddof=1) / np.sqrt(len(change))
            text += f"; since the record {change.mean():+.2f} ({error:.2f}), worst {change.min():+.2f}"
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=500)
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--record", help="append the rows to benchmarks/results/NAME.csv")
    parser.add_argument("--against", help="an earlier record to compare with")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for source in (timed(arguments.seed, arguments.problems), compared(arguments.seed, arguments.tables)):
        for row in source:
            rows.append(row)
            if arguments.verbose:
                print(*row.values(), flush=True)
    report(rows, earlier(arguments.against) if arguments.against else {})
    if arguments.record:
        record.append(arguments.record, rows)


if __name__ == "__main__":
    main()
