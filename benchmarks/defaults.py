"""Whether the defaults of every public estimator end, on hostile tables drawn at random.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/defaults.py --seed S --count N [--limit SECONDS]
        [--only NAME] [--index I] [--record NAME]

A call is drawn from the seed and its number alone: one of the estimators with all defaults, and a table. Rows:
log-uniform from 5 to 5,000; columns: log-uniform from 1 to 40; classes: 2 to 12, one with 0.5 to 50% of the rows.
Columns are normal, heavy-tailed (Student's t with 1.5 degrees of freedom), binary, or copies of few rows. Any of these
is added with probability 1/4 each: a constant column, a copied column, a column times 1e12 and one times 1e-12, a
cluster of outliers, float32.

A call is good if it ends within the limit, without an exception other than a ValueError, without a RuntimeWarning, and
with finite predictions. The time is given in core seconds and in ordinary fits (LogisticRegression or Ridge).
"""

from __future__ import annotations

import argparse
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge

import rankrange
import record

COLUMNS = ("normal", "heavy", "binary", "repeated rows")
EXTRAS = ("constant", "copied", "huge", "tiny", "cluster", "float32")


class Call(NamedTuple):
    """How to call one entry point with its defaults; `target` is "classes", "two classes", "numbers" or "labels"."""

    target: str
    predictions: Callable[[Any, Any], Any]


def _fitted(make: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    return lambda X, y: make().fit(X, y).predict(X)


CALLS = {
    "AoRRClassifier": Call("classes", _fitted(rankrange.AoRRClassifier)),
    "AoRRRegressor": Call("numbers", _fitted(rankrange.AoRRRegressor)),
    "TKMLClassifier": Call("labels", _fitted(rankrange.TKMLClassifier)),
    "PartialAUCClassifier": Call("two classes", _fitted(rankrange.PartialAUCClassifier)),
    "RankedRangeClassifier": Call("classes", _fitted(rankrange.RankedRangeClassifier)),
    "RankedRangeRegressor": Call("numbers", _fitted(rankrange.RankedRangeRegressor)),
    "find_label_issues": Call("classes", lambda X, y: rankrange.find_label_issues(X, y).p_wrong),
    "lts": Call("numbers", lambda X, y: rankrange.regression.lts(X, y).predict(X)),
    "mm": Call("numbers", lambda X, y: rankrange.regression.mm(X, y).predict(X)),
}


@dataclass(frozen=True)
class Outcome:
    """One row of the record."""

    seed: int
    index: int
    name: str
    table: str
    seconds: float
    ordinary_fits: float
    fault: str  # empty if the call was good


class OutOfTime(Exception):
    """The call did not end within the limit."""


def draw(seed: int, index: int, name: str | None = None, most_rows: int = 5000) -> tuple[str, Any, Any, str]:
    """The name of the entry point, X, y, and a description of the table."""
    rng = np.random.default_rng((seed, index))
    name = name or list(CALLS)[index % len(CALLS)]
    n, d = int(10 ** rng.uniform(np.log10(5), np.log10(most_rows))), int(10 ** rng.uniform(0, 1.6))
    kind = str(rng.choice(COLUMNS))
    X = rng.standard_t(1.5, size=(n, d)) if kind == "heavy" else rng.normal(size=(n, d))
    X = (X > 0.8).astype(float) if kind == "binary" else X
    X = X[rng.integers(max(2, n // 10), size=n)] if kind == "repeated rows" else X
    extras = [extra for extra in EXTRAS if rng.random() < 0.25]
    scores = np.clip(X, -10, 10) @ rng.normal(size=d) + rng.logistic(size=n)
    for extra in extras:
        X = _with(extra, X, rng)
    y = _target(CALLS[name].target, scores, rng)
    return name, X, y, f"{n} x {X.shape[1]} {kind}, " + (", ".join(extras) or "no extras")


def _with(extra: str, X: Any, rng: np.random.Generator) -> Any:
    if extra == "constant":
        return np.column_stack([X, np.full(len(X), 3.0)])
    if extra == "copied":
        return np.column_stack([X, X[:, 0]])
    if extra in ("huge", "tiny"):
        return np.column_stack([X, rng.normal(size=len(X)) * (1e12 if extra == "huge" else 1e-12)])
    if extra == "cluster":
        X[: len(X) // 5] = 8.0 + 0.1 * rng.normal(size=(len(X) // 5, X.shape[1]))
        return X
    return X.astype(np.float32)


def _target(target: str, scores: Any, rng: np.random.Generator) -> Any:
    n = len(scores)
    if target == "numbers":
        return scores * 10.0 ** rng.uniform(-6, 6)
    if target == "labels":
        Y = (scores[:, None] + 3.0 * rng.normal(size=(n, int(rng.integers(3, 8)))) > 0).astype(int)
        Y[np.arange(n), rng.integers(Y.shape[1], size=n)] = 1
        return Y
    classes = 2 if target == "two classes" else int(rng.integers(2, 13))
    rare = 10 ** rng.uniform(np.log10(0.005), np.log10(0.5))
    edges = np.quantile(scores, np.r_[rare, rare + (1 - rare) * np.arange(1, classes - 1) / (classes - 1)])
    y = np.searchsorted(edges, scores)
    y[:2] = 0, 1
    return y


def attempt(seed: int, index: int, limit: float, name: str | None = None, most_rows: int = 5000) -> Outcome:
    """Make one call within the time limit."""
    name, X, y, table = draw(seed, index, name, most_rows)
    start, fault = time.process_time(), ""
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = np.asarray(CALLS[name].predictions(X, y), dtype=np.float64)
        leaked = [str(w.message) for w in seen if issubclass(w.category, RuntimeWarning)]
        fault = f"RuntimeWarning: {leaked[0]}" if leaked else "" if np.isfinite(found).all() else "not finite"
    except OutOfTime:
        fault = f"not finished after {limit:g} s"
    except ValueError as error:
        table += f"; refused: {str(error)[:80]}"
    except Exception as error:  # each other exception is a fault, and the run goes on
        fault = f"{type(error).__name__}: {str(error)[:120]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    seconds = time.process_time() - start
    return Outcome(seed, index, name, table, seconds, seconds / _ordinary(X, y), fault)


def _out_of_time(*_: Any) -> None:
    raise OutOfTime


def _ordinary(X: Any, y: Any) -> float:
    model = LogisticRegression() if y.ndim == 1 and y.dtype.kind == "i" else Ridge()
    X = X.astype(np.float64)
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-300)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return max(time.process_time() - start, 1e-4)


def main() -> None:
    """Make the calls, print each fault and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=900)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--limit", type=float, default=30.0)
    parser.add_argument("--only", choices=CALLS)
    parser.add_argument("--index", type=int)
    parser.add_argument("--record")
    given = parser.parse_args()
    numbers = range(given.count) if given.index is None else [given.index]
    outcomes = []
    for index in numbers:
        outcomes.append(attempt(given.seed, index, given.limit, given.only))
        if outcomes[-1].fault or given.index is not None:
            print(outcomes[-1], flush=True)
    ratios = np.array([outcome.ordinary_fits for outcome in outcomes])
    slowest = max(outcomes, key=lambda outcome: outcome.seconds)
    faults = sum(bool(outcome.fault) for outcome in outcomes)
    print(
        f"{len(outcomes)} calls, {faults} with a fault; ordinary fits: median {np.median(ratios):.0f}, "
        f"90% {np.quantile(ratios, 0.9):.0f}; slowest: {slowest.seconds:.1f} s, {slowest.name} on {slowest.table}"
    )
    if given.record:
        record.append(given.record, [asdict(outcome) for outcome in outcomes])


if __name__ == "__main__":
    main()
