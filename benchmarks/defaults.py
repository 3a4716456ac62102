"""Whether the defaults of every public estimator end, on hostile tables drawn at random."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression, Ridge

import rankrange

from .harness import OutOfTime, Row, benchmark, limit, spread, timed

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


def attempt(seed: int, index: int, seconds: float, name: str | None = None, most_rows: int = 5000) -> Row:
    """One call within the time limit; `fault` is empty if it was good."""
    name, X, y, table = draw(seed, index, name, most_rows)
    (fault, refused), spent = timed(_fault, name, X, y, seconds)
    table += f"; refused: {refused}" if refused else ""
    row: Row = {"seed": seed, "index": index, "name": name, "table": table, "seconds": round(spent, 3)}
    return row | {"ordinary_fits": round(spent / _ordinary(X, y), 1), "fault": fault}


def _fault(name: str, X: Any, y: Any, seconds: float) -> tuple[str, str]:
    """What went wrong, and why a table was refused."""
    try:
        with limit(seconds), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = np.asarray(CALLS[name].predictions(X, y), dtype=np.float64)
    except OutOfTime:
        return f"not finished after {seconds:g} core seconds", ""
    except ValueError as error:
        return "", str(error)[:80]
    except Exception as error:  # each other exception is a fault, and the run goes on
        return f"{type(error).__name__}: {str(error)[:120]}", ""
    leaked = [str(w.message) for w in seen if issubclass(w.category, RuntimeWarning)]
    return f"RuntimeWarning: {leaked[0]}" if leaked else "" if np.isfinite(found).all() else "not finite", ""


def _ordinary(X: Any, y: Any) -> float:
    model = LogisticRegression() if y.ndim == 1 and y.dtype.kind == "i" else Ridge()
    X = X.astype(np.float64)
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return max(timed(model.fit, X, y)[1], 1e-4)


def _by_name(rows: pd.DataFrame) -> pd.DataFrame:
    found = spread(rows, "name", "ordinary_fits")
    return found.assign(
        slowest=rows.groupby("name")["seconds"].max(), faults=(rows["fault"] != "").groupby(rows["name"]).sum()
    )


@benchmark(_by_name, count=9, most_rows=100)
def defaults(
    seed: int = 900,
    count: int = 100,
    seconds: float = 30.0,
    only: str | None = None,
    index: int | None = None,
    most_rows: int = 5000,
) -> Iterator[Row]:
    """Calls of every public estimator with its defaults on hostile tables: none may fail, hang or warn.

    Drawn from the seed and the number alone. Rows: log-uniform from 5 to 5,000; columns from 1 to 40; 2 to 12 classes,
    one with .5 to 50% of the rows. Columns are normal, heavy-tailed (Student's t with 1.5 degrees of freedom), binary,
    or copies of few rows; each of these is added with probability 1/4: a constant column, a copied one, one times 1e12,
    one times 1e-12, a cluster of outliers, float32. A call is good if it ends within the limit, without an exception
    other than a ValueError, without a RuntimeWarning, and with finite predictions.
    """
    for number in range(count) if index is None else [index]:
        yield attempt(seed, number, seconds, only, most_rows)
