"""Automatic m of linear models: accuracy on clean test rows when labels or rows are wrong, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import balanced_accuracy_score

from rankrange import AoRRClassifier
from reproduction import data as paper

from . import linear
from .data import BINARY, SKLEARN, corrupt, load, scaled
from .harness import OutOfTime, Row, benchmark, gains, limit, rounded, spread, timed

SIMULATED = ("gaussian", "heavy", "curved", "clusters", "logistic")
REAL = ("breast cancer", "digits", "wine", "australian", "phoneme", "splice", "titanic", "emotions", "yeast")
MOST_ROWS, MOST_CELLS, MOST_SECONDS = 2500, 2_000_000, 60


# ---- tables ----------------------------------------------------------------------------------------------------------


def imbalanced(seed: int) -> tuple[str, Any, Any]:
    """The name of a random table, its rows, and its labels: 1 is the rare class, 10 to 30% of the rows.

    Simulated (Gaussian or heavy-tailed classes, a curved boundary, clusters, a logistic model), or one class of a real
    set against the others, some of its rows left out if it is not rare.
    """
    rng = np.random.default_rng(seed)
    rare = rng.uniform(0.1, 0.3)
    name = str(rng.choice(SIMULATED if seed % 2 else REAL))
    return name, *(_simulated if seed % 2 else _real)(name, rare, rng)


def _simulated(name: str, rare: float, rng: Any) -> tuple[Any, Any]:
    n, d = int(np.exp(rng.uniform(np.log(400), np.log(4000)))), int(rng.integers(2, 16))
    apart = rng.uniform(1.0, 3.5)
    if name == "logistic":
        X = rng.normal(size=(n, d))
        z = apart * X @ rng.normal(size=d) / np.sqrt(d) + rng.logistic(size=n)
        return X, (z > np.quantile(z, 1.0 - rare)).astype(int)
    y = (rng.random(n) < rare).astype(int)
    X = rng.normal(size=(n, d))
    if name == "heavy":
        X = rng.standard_t(3, size=(n, d))
    if name == "clusters":
        X += 2.0 * rng.normal(size=(6, d))[rng.integers(6, size=n)]
    direction = rng.normal(size=d)
    X += apart * y[:, None] * direction / np.linalg.norm(direction)
    if name == "curved":
        X[:, 0] += 0.5 * (X[:, 1] ** 2 - 1.0)
    return X, y


def _real(name: str, rare: float, rng: Any) -> tuple[Any, Any]:
    if name in SKLEARN:
        X, y = load(name)
    else:
        bunch = paper.load(name)
        X, y = np.asarray(bunch.data, dtype=float), np.asarray(bunch.target)
    if y.ndim == 2:
        shares = y.mean(axis=0)
        y = y[:, rng.choice(np.flatnonzero((shares > 0.08) & (shares < 0.6)))]
    y = (y == rng.choice(np.unique(y))).astype(int)
    y = 1 - y if y.mean() > 0.5 else y
    most = int(rare / (1.0 - rare) * (y == 0).sum())
    ones = rng.permutation(np.flatnonzero(y))[: max(most, 20)]
    rows = rng.permutation(np.concatenate([np.flatnonzero(y == 0), ones]))[:MOST_ROWS]
    return X[rows], y[rows]


# ---- the defaults ----------------------------------------------------------------------------------------------------

ERRORS = (
    *(("none", 0.0), ("symmetric", 0.1), ("symmetric", 0.2), ("symmetric", 0.3)),
    *(("class-dependent", 0.2), ("rare", 0.1), ("frequent", 0.1), ("far", 0.1), ("far", 0.2)),
)
SORTS = ("even", "rare", "simulated")


def _since_before(rows: pd.DataFrame) -> pd.DataFrame:
    by = ["aggregate", "kind", "rate"]
    found = gains(rows, by, "ours", "theirs")
    gain = rows.assign(gain=rows["ours"] - rows["theirs"])
    found = found.join(gain.pivot_table(index=by, columns="sort", values="gain").reindex(columns=list(SORTS)))
    found["balanced"] = gains(rows, by, "ours_balanced", "theirs_balanced")["mean gain"]
    found = found.join(spread(rows, by, "cut")[["median", "worst"]].add_prefix("dropped, "))
    if "ours_before" in rows:
        found = found.join(gains(rows, by, "ours", "ours_before").add_prefix("since before: "))
    return found


@benchmark(_since_before, keys=("aggregate", "kind", "seed", "index", "rate"), tables=1)
def linear_auto(seed: int = 500, tables: int = 20, aggregate: str = "") -> Iterator[Row]:
    """Accuracy of AoRRClassifier() less that of LogisticRegression in points, on clean test rows of drawn tables.

    In turn a real set of two even classes, a real one with a rare class, and a simulated one with a rare class. Errors
    are planted in the training half alone. `--aggregate per-class` has m inside each class. `even`, `rare` and
    `simulated` are the mean gains on these three, `balanced` is that in balanced accuracy. Development uses the seeds
    500 to 599.
    """
    for number in range(tables):
        own, third = 1000 * seed + number, number % 3
        name = BINARY[number // 3 % len(BINARY)]
        X, y = load(name) if not third else (None, None)
        if third:
            name, X, y = imbalanced(2 * own + third - 1)
        order = np.random.default_rng(own).permutation(len(y))[: 2 * MOST_ROWS]
        train, test = order[: len(order) // 2], order[len(order) // 2 :]
        clean, X_test = scaled(X[train], X[test])
        for kind, rate in ERRORS:
            rows, given = corrupt(clean, y[train], kind, rate, seed)
            models = {
                "theirs": LogisticRegression(max_iter=2000),
                "ours": AoRRClassifier(aggregate=aggregate or None, random_state=seed),
            }
            row: Row = {"kind": kind, "seed": seed, "index": number, "sort": SORTS[third], "name": name, "rate": rate}
            row["aggregate"] = aggregate or "all rows"
            for who, model in models.items():
                predicted = model.fit(rows, given).predict(X_test)
                row[who] = 100 * np.mean(predicted == y[test])
                row[f"{who}_balanced"] = 100 * balanced_accuracy_score(y[test], predicted)
            yield rounded(row | {"cut": models["ours"].m_ / len(given), "wrong": np.mean(given != y[train])})


def seconds_of(fit: Callable[[], Any]) -> float:
    """Core seconds; infinite if it does not end within a minute."""
    try:
        with limit(MOST_SECONDS):
            return timed(fit)[1]
    except OutOfTime:
        return np.inf


@benchmark(lambda rows: spread(rows.assign(all=""), "all", "ratio"), problems=1)
def linear_auto_time(seed: int = 500, problems: int = 30) -> Iterator[Row]:
    """Core seconds of AoRRClassifier() over LogisticRegressionCV(Cs=10, cv=5), problems of linear_random."""
    found = 0
    for index in range(10 * problems):
        problem, rng = linear.draw("logistic", seed, index)
        if found == problems or problem.n * problem.d > MOST_CELLS:
            continue
        found += 1
        X, y = linear.data(problem, rng)
        peer, model = LogisticRegressionCV(Cs=10, cv=5, use_legacy_attributes=False), AoRRClassifier(random_state=0)
        theirs = seconds_of(lambda peer=peer, X=X, y=y: peer.fit(X, y))
        ours = seconds_of(lambda model=model, X=X, y=y: model.fit(X, y))
        row: Row = {"seed": seed, "index": index, "n": problem.n, "d": problem.d, "columns": problem.columns}
        row |= {"outliers": problem.outliers, "wild": problem.wild, "cut": getattr(model, "m_", np.nan) / len(y)}
        yield rounded(row | {"theirs": theirs, "ours": ours, "ratio": ours / theirs})
