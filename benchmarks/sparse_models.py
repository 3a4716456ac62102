"""Sparse robust models: prediction error, support recovery and time against sparse LTS, enetLTS and plain nets.

    python benchmarks/sparse_models.py designs [--repeats 3] [--sizes 100x1000 200x10000]
    python benchmarks/sparse_models.py path
    python benchmarks/sparse_models.py time [--repeats 5]

designs: predictors are normal with correlation .5^|i-j|, six of them matter (1.5, .5, 1, 1.5, 1, -1), noise has
standard deviation .5, as in the simulations of Alfons, Croux and Gelper (2013), or the sign of the signal is the
label, as in
Kurnaz, Hoffmann and Filzmoser (2018). Contaminated rows: vertical (targets + N(20, 1)), leverage (all predictors
N(50, 1), targets by the opposite coefficients), flipped (labels of the rows exchanged). Each method gets the same
penalty: lambda of 15% of the largest one that the clean rows have, and each robust one drops 25% of the rows. `rmse`
and `error` are on 1,000 clean rows (root mean squared error; share of wrong labels), `f1` of the support.

The reference is our reimplementation of the published algorithm: 500 random subsets of 3 rows (2 of each class), a net
on each, 2 concentration steps, the 10 best to convergence, inner nets by scikit-learn; R cannot be run here. At 10,000
columns it draws `--subsets` of them.

path: core seconds of 50 penalties at n=200, p=10,000, m=.25, each fit from the last.

time: core seconds of one fit over one fit of scikit-learn's ElasticNet with the same penalty at its tol=1e-6.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, LogisticRegression

import record
from rankrange import AoRRClassifier, AoRRRegressor
from rankrange.core.losses import Logistic, Squared
from rankrange.solvers import sparse

warnings.simplefilter("ignore", ConvergenceWarning)
warnings.simplefilter("ignore", UserWarning)
COEF = np.array([1.5, 0.5, 1.0, 1.5, 1.0, -1.0])
TRIM, L1, SHARE = 0.25, 1.0, 0.15


def predictors(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
    return X


def drawn(seed: int, n: int, p: int, kind: str, share: float) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    X, X_test = predictors(rng, n, p), predictors(rng, 1000, p)
    y, y_test = X[:, :6] @ COEF + 0.5 * rng.normal(size=n), X_test[:, :6] @ COEF + 0.5 * rng.normal(size=1000)
    labels = kind == "flipped"
    if labels:
        y, y_test = np.sign(y), np.sign(y_test)
    net = sparse.ElasticNet(X, y, Logistic() if labels else Squared(), 1, L1)
    C = net.largest_penalty(np.ones(n)) / SHARE
    bad = rng.choice(n, size=int(share * n), replace=False)
    X = X.copy()
    if kind == "vertical":
        y[bad] += rng.normal(20, 1, size=len(bad))
    elif kind == "leverage":
        X[bad] = rng.normal(50, 1, size=(len(bad), p))
        y[bad] = -X[bad, :6] @ COEF
    else:
        y[bad] *= -1
    return {"X": X, "y": y, "X_test": X_test, "y_test": y_test, "C": C, "labels": labels}


def inner(problem: dict[str, Any], rows: np.ndarray, weight: float) -> Any:
    """The net of some rows by scikit-learn, each row `weight` times."""
    X, y, C = problem["X"][rows], problem["y"][rows], problem["C"] * weight
    if problem["labels"]:
        return LogisticRegression(C=C, l1_ratio=L1, solver="liblinear", tol=1e-4, random_state=0).fit(X, y)
    return ElasticNet(alpha=1 / (2 * C * len(rows)), l1_ratio=L1).fit(X, y)


def losses(problem: dict[str, Any], model: Any) -> np.ndarray:
    if problem["labels"]:
        return np.logaddexp(0, -problem["y"] * model.decision_function(problem["X"]))
    return (problem["y"] - model.predict(problem["X"])) ** 2


def published(problem: dict[str, Any], seed: int, subsets: int) -> Any:
    """Sparse LTS / enetLTS as published: many small subsets, two steps each, the ten best to convergence."""
    rng = np.random.default_rng(seed)
    y = problem["y"]
    n, h = len(y), len(y) - round(TRIM * len(y))

    def step(model: Any) -> tuple[float, Any]:
        kept = np.argsort(losses(problem, model))[:h]
        after = inner(problem, kept, 1.0)
        value = problem["C"] * losses(problem, after)[kept].sum() + np.abs(after.coef_).sum()
        return float(value), after

    rough = []
    for _ in range(subsets):
        if problem["labels"]:
            rows = np.concatenate([rng.choice(np.flatnonzero(y == c), 2, replace=False) for c in (-1, 1)])
        else:
            rows = rng.choice(n, 3, replace=False)
        found = step(step(inner(problem, rows, h / len(rows)))[1])
        rough.append(found)
    rough.sort(key=lambda pair: pair[0])
    best = (np.inf, None)
    for value, model in rough[:10]:
        for _ in range(20):
            last, (value, model) = value, step(model)
            if last - value <= 1e-4 * last:
                break
        best = min(best, (value, model), key=lambda pair: pair[0])
    return best[1]


def ours(problem: dict[str, Any], seed: int) -> Any:
    kind = AoRRClassifier if problem["labels"] else AoRRRegressor
    return kind(TRIM, C=problem["C"], l1_ratio=L1, random_state=seed).fit(problem["X"], problem["y"])


def measured(problem: dict[str, Any], model: Any) -> dict[str, float]:
    coef = np.ravel(model.coef_)
    used, true = set(np.flatnonzero(coef)), set(range(6))
    predicted = model.predict(problem["X_test"])
    wrong = np.mean(predicted != problem["y_test"]) if problem["labels"] else np.nan
    rmse = np.nan if problem["labels"] else np.sqrt(np.mean((predicted - problem["y_test"]) ** 2))
    return {"rmse": rmse, "error": wrong, "f1": 2 * len(used & true) / (len(used) + len(true)), "columns": len(used)}


def designs(repeats: int, sizes: list[str], subsets: int, first: int) -> None:
    for size in sizes:
        n, p = map(int, size.split("x"))
        for kind in ("vertical", "leverage", "flipped"):
            for share in (0.0, 0.1, 0.2):
                rows = []
                for seed in range(first, first + repeats):
                    problem = drawn(seed, n, p, kind, share)
                    ways: dict[str, Callable[[], Any]] = {
                        "rankrange": partial(ours, problem, seed),
                        "published": partial(published, problem, seed, subsets),
                        "plain": partial(inner, problem, np.arange(n), 1.0),
                    }
                    for name, way in ways.items():
                        began = time.process_time()
                        model = way()
                        spent = time.process_time() - began
                        facts = {"n": n, "p": p, "kind": kind, "share": share, "seed": seed, "method": name}
                        rows.append(
                            {**facts, **measured(problem, model), "seconds": round(spent, 4), "subsets": subsets}
                        )
                record.append("sparse_models", rows)
                for name in ("rankrange", "published", "plain"):
                    mine = [row for row in rows if row["method"] == name]
                    figures = [np.median([row[c] for row in mine]) for c in ("rmse", "error", "f1", "seconds")]
                    print(
                        size,
                        kind,
                        share,
                        f"{name:10}",
                        "rmse {:.2f} error {:.3f} f1 {:.2f} s {:.3f}".format(*figures),
                        flush=True,
                    )


def path() -> None:
    problem = drawn(1000, 200, 10_000, "vertical", 0.2)
    net = sparse.ElasticNet(problem["X"], problem["y"], Squared(), 1, L1)
    Cs = problem["C"] * SHARE * np.geomspace(1, 50, 50)
    began = time.process_time()
    start = None
    for C in Cs:
        cut = sparse.Cut(50, None, float(C))
        if start is None:
            found = sparse.trimmed_net(net, cut, rng=np.random.default_rng(0), tol=1e-4)
        else:
            found = sparse.follow(net, cut, start, tol=1e-4, max_iter=20)
        start = found.coef, found.intercept
    spent = time.process_time() - began
    print(f"50 penalties at 200 x 10,000: {spent:.2f} core seconds, {np.count_nonzero(start[0])} columns at the end")
    record.append("sparse_models_path", [{"n": 200, "p": 10_000, "penalties": 50, "seconds": round(spent, 3)}])


def timing(repeats: int) -> None:
    rows = []
    for seed in range(2000, 2000 + repeats):
        rng = np.random.default_rng(seed)
        n, p = int(rng.choice([100, 200, 500])), int(rng.choice([1000, 3000, 10_000]))
        problem = drawn(seed, n, p, str(rng.choice(["vertical", "leverage"])), float(rng.choice([0.0, 0.1, 0.2])))
        began = time.process_time()
        ElasticNet(alpha=1 / (2 * problem["C"] * n), l1_ratio=L1, tol=1e-6, max_iter=10_000).fit(
            problem["X"], problem["y"]
        )
        ordinary = time.process_time() - began
        began = time.process_time()
        ours(problem, seed)
        spent = time.process_time() - began
        rows.append({"n": n, "p": p, "seed": seed, "ordinary": ordinary, "seconds": spent, "ratio": spent / ordinary})
    ratio = [row["ratio"] for row in rows]
    worst = max(rows, key=lambda row: row["ratio"])
    print(f"ordinary nets per fit: median {np.median(ratio):.1f}, 90% {np.quantile(ratio, 0.9):.1f}, worst {worst}")
    record.append("sparse_models_time", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["designs", "path", "time"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", default=["100x1000", "200x10000"])
    parser.add_argument("--subsets", type=int, default=500)
    parser.add_argument("--first", type=int, default=1000, help="first seed; 0 to 99 are for development")
    given = parser.parse_args()
    if given.what == "designs":
        designs(given.repeats, given.sizes, given.subsets, given.first)
    elif given.what == "path":
        path()
    else:
        timing(given.repeats)
