"""Sparse robust models: prediction error, support, objectives and time beside sparse LTS, enetLTS and plain nets.

Predictors are normal with correlation .5^|i-j|; six of them matter (1.5, .5, 1, 1.5, 1, -1), noise has standard
deviation .5, as in the simulations of Alfons, Croux and Gelper (2013), or the sign of the signal is the label, as in
Kurnaz, Hoffmann and Filzmoser (2018). Contaminated rows: vertical (targets + N(20, 1)), leverage (all predictors
N(50, 1), targets by the opposite coefficients), flipped (labels exchanged), flipped_leverage (the six predictors
N(20, 1) as well, with the wrong label). Each method gets 15% of the largest penalty that the clean rows have.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import ElasticNet, LogisticRegression

from rankrange import AoRRClassifier, AoRRRegressor

from .harness import Row, benchmark, rounded, spread, timed

COEF = np.array([1.5, 0.5, 1.0, 1.5, 1.0, -1.0])
TRIM, SHARE = 0.25, 0.15


def least_C(X: Any, y: Any, labels: bool) -> float:
    """The C up to which all coefficients are zero."""
    slopes = np.abs(X.T @ (((y > 0) - (y > 0).mean()) if labels else 2 * (y - y.mean())))
    return 1.0 / float(slopes.max())


def drawn(seed: int, n: int, p: int, kind: str, share: float) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    parts = []
    for rows in (n, 1000):
        X = rng.normal(size=(rows, p))
        for j in range(1, p):
            X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
        parts.append(X)
    X, X_test = parts
    y, y_test = X[:, :6] @ COEF + 0.5 * rng.normal(size=n), X_test[:, :6] @ COEF + 0.5 * rng.normal(size=1000)
    labels = kind.startswith("flipped")
    if labels:
        y, y_test = np.sign(y), np.sign(y_test)
    C = least_C(X, y, labels) / SHARE
    bad = rng.choice(n, size=int(share * n), replace=False)
    if kind == "vertical":
        y[bad] += rng.normal(20, 1, size=len(bad))
    elif kind == "flipped_leverage":
        X[bad, :6] = rng.normal(20, 1, size=(len(bad), 6)) * np.sign(COEF)
        y[bad] = -1
    elif kind == "leverage":
        X[bad] = rng.normal(50, 1, size=(len(bad), p))
        y[bad] = -X[bad, :6] @ COEF
    else:
        y[bad] *= -1
    return {"X": X, "y": y, "X_test": X_test, "y_test": y_test, "C": C, "labels": labels, "bad": bad}


# ---- the published algorithms ----------------------------------------------------------------------------------------


def net(problem: dict[str, Any], rows: Any, weight: float = 1.0) -> Any:
    """The net of some rows by scikit-learn, each row `weight` times."""
    X, y, C = problem["X"][rows], problem["y"][rows], problem["C"] * weight
    if problem["labels"]:
        # liblinear penalises the intercept, glmnet and thus enetLTS do not: 1 / 1000 of the penalty is left.
        settings: dict[str, Any] = {"intercept_scaling": 1000.0, "tol": 1e-4, "random_state": 0}
        return LogisticRegression(C=C, l1_ratio=1.0, solver="liblinear", **settings).fit(X, y)
    return ElasticNet(alpha=1 / (2 * C * len(rows)), l1_ratio=1.0).fit(X, y)


def losses(problem: dict[str, Any], model: Any) -> Any:
    if problem["labels"]:
        return np.logaddexp(0, -problem["y"] * model.decision_function(problem["X"]))
    return (problem["y"] - model.predict(problem["X"])) ** 2


def smallest(problem: dict[str, Any], cost: Any) -> Any:
    """The rows of smallest loss, without a quarter; of labels the same share of each class, as enetLTS has it."""
    y, h = problem["y"], len(cost) - round(TRIM * len(cost))
    if not problem["labels"]:
        return np.argsort(cost)[:h]
    of_class = [np.flatnonzero(y == c) for c in (-1, 1)]
    return np.concatenate([rows[np.argsort(cost[rows])[: round(h * len(rows) / len(y))]] for rows in of_class])


def published(problem: dict[str, Any], seed: int, subsets: int) -> Any:
    """Sparse LTS / enetLTS as published: many small subsets, two concentration steps each, the ten best to convergence.

    Our reimplementation with inner nets by scikit-learn, because R is not at hand.
    """
    rng, y, n = np.random.default_rng(seed), problem["y"], len(problem["y"])
    h = n - round(TRIM * n)

    def step(model: Any) -> tuple[float, Any]:
        kept = smallest(problem, losses(problem, model))
        after = net(problem, kept)
        return float(problem["C"] * losses(problem, after)[kept].sum() + np.abs(after.coef_).sum()), after

    rough = []
    for _ in range(subsets):
        if problem["labels"]:
            rows = np.concatenate([rng.choice(np.flatnonzero(y == c), 2, replace=False) for c in (-1, 1)])
        else:
            rows = rng.choice(n, 3, replace=False)
        rough.append(step(step(net(problem, rows, h / len(rows)))[1]))
    rough.sort(key=lambda pair: pair[0])
    ends = []
    for value, model in rough[:10]:
        for _ in range(20):
            last, (value, model) = value, step(model)
            if last - value <= 1e-4 * last:
                break
        ends.append((value, model))
    return min(ends, key=lambda pair: pair[0])[1]


def reweighted(problem: dict[str, Any], model: Any) -> Any:
    """The second step of the papers: rows within 2.24 robust standard deviations are fitted once more."""
    if problem["labels"]:
        p = 1 / (1 + np.exp(-model.decision_function(problem["X"])))
        scale = np.abs((problem["y"] > 0) - p) / np.sqrt(np.maximum(p * (1 - p), 1e-12))
    else:
        r = problem["y"] - model.predict(problem["X"])
        kept = np.sort(np.abs(r - np.median(r)))[: len(r) - round(TRIM * len(r))]
        # The root mean square of the smallest 75% of normal residuals is .599 standard deviations.
        scale = np.abs(r - np.median(r)) / max(float(np.sqrt(np.mean(kept**2))) / 0.599, 1e-12)
    rows = np.flatnonzero(scale <= 2.24)
    return model if problem["labels"] and len(np.unique(problem["y"][rows])) < 2 else net(problem, rows)


def ours(problem: dict[str, Any], seed: int) -> Any:
    settings: dict[str, Any] = {"C": problem["C"], "l1_ratio": 1.0, "random_state": seed}
    if problem["labels"]:
        return AoRRClassifier(TRIM, 1.0, aggregate="per-class", **settings).fit(problem["X"], problem["y"])
    return AoRRRegressor(TRIM, 1.0, **settings).fit(problem["X"], problem["y"])


def measured(problem: dict[str, Any], model: Any) -> Row:
    """Error on 1,000 clean rows (root mean squared, or share wrong), F1 of the support, contaminated rows dropped."""
    used, predicted = set(np.flatnonzero(np.ravel(model.coef_))), model.predict(problem["X_test"])
    error = np.mean(predicted != problem["y_test"]) if problem["labels"] else np.nan
    rmse = np.nan if problem["labels"] else np.sqrt(np.mean((predicted - problem["y_test"]) ** 2))
    kept = smallest(problem, losses(problem, model))
    found = 1 - np.isin(problem["bad"], kept).mean() if len(problem["bad"]) else np.nan
    f1 = 2 * len(used & set(range(6))) / (len(used) + 6)
    return {"rmse": rmse, "error": error, "f1": f1, "columns": len(used), "found": found}


def _by_method(rows: pd.DataFrame) -> pd.DataFrame:
    """Error, F1 and core seconds of each method by design."""
    rows = rows.assign(error=rows["error"].fillna(rows["rmse"]))
    values = ["error", "f1", "seconds"]
    return rows.pivot_table(index=["n", "p", "kind", "share"], columns="method", values=values, sort=False)


@benchmark(
    _by_method,
    repeats=1,
    sizes=("40x30",),
    kinds=("vertical",),
    subsets=3,
)
def sparse_designs(
    seed: int = 1000,
    repeats: int = 3,
    sizes: tuple = ("100x1000", "200x10000"),
    kinds: tuple = ("vertical", "leverage", "flipped", "flipped_leverage"),
    shares: tuple = (0.0, 0.1, 0.2),
    subsets: int = 500,
) -> Iterator[Row]:
    """Ours, the published algorithms, both with their second step, and a plain net, at the same penalty."""
    for size, kind, share, draw in product(sizes, kinds, shares, range(seed, seed + repeats)):
        n, p = map(int, size.split("x"))
        if share == 0 and kind.endswith("leverage"):
            continue  # the same rows as without leverage
        problem = drawn(draw, n, p, kind, share)
        fits: dict[str, Any] = {
            "rankrange": timed(ours, problem, draw),
            "published": timed(published, problem, draw, subsets),
            "plain": timed(net, problem, np.arange(n)),
        }
        fits |= {f"{name}_reweighted": timed(reweighted, problem, fits[name][0]) for name in ("rankrange", "published")}
        for name, (model, seconds) in fits.items():
            row: Row = {"n": n, "p": p, "kind": kind, "share": share, "seed": draw, "method": name}
            yield rounded({**row, **measured(problem, model), "seconds": seconds, "subsets": subsets})


# ---- time and objectives ---------------------------------------------------------------------------------------------


@benchmark(lambda rows: rows.set_index("tol"), n=50, p=60, penalties=5)
def sparse_path(seed: int = 1000, n: int = 200, p: int = 10_000, penalties: int = 50) -> Iterator[Row]:
    """Core seconds of 50 penalties at 200 x 10,000 with 25% of the rows dropped: each alone, and C="auto"."""
    problem = drawn(seed, n, p, "vertical", 0.2)
    Cs = problem["C"] * SHARE * np.geomspace(1, 50, penalties)
    for tol in (1e-4, 1e-6):
        models = [AoRRRegressor(TRIM, 1.0, C=C, l1_ratio=1.0, tol=tol, random_state=0) for C in Cs]
        fits, seconds = timed(lambda models=models: [model.fit(problem["X"], problem["y"]) for model in models])
        auto = AoRRRegressor(TRIM, 1.0, C="auto", l1_ratio=1.0, tol=tol, random_state=0)
        path = timed(auto.fit, problem["X"], problem["y"])[1]
        row: Row = {"n": n, "p": p, "penalties": penalties, "tol": tol, "alone": seconds, "auto": path}
        yield rounded(row | {"columns": int(np.count_nonzero(fits[-1].coef_))})


@benchmark(lambda rows: spread(rows, "kind", "ratio"), repeats=1, sizes=(60,), columns=(40,))
def sparse_time(
    seed: int = 2000,
    repeats: int = 5,
    kinds: tuple = ("vertical", "leverage"),
    sizes: tuple = (100, 200, 500),
    columns: tuple = (1000, 3000, 10_000),
) -> Iterator[Row]:
    """Core seconds of one fit over one of scikit-learn's net with the same penalty: ElasticNet, or liblinear."""
    for draw in range(seed, seed + repeats):
        rng = np.random.default_rng(draw)
        n, p, kind = int(rng.choice(sizes)), int(rng.choice(columns)), str(rng.choice(kinds))
        share = float(rng.choice([0.0, 0.1, 0.2]))
        problem = drawn(draw, n, p, kind, share)
        row: Row = {"n": n, "p": p, "kind": kind, "share": share, "seed": draw}
        row["ordinary"] = min(timed(net, problem, np.arange(n))[1] for _ in range(2))
        row["rankrange"] = min(timed(ours, problem, draw)[1] for _ in range(2))
        yield rounded(row | {"ratio": row["rankrange"] / row["ordinary"]})


def small_problem(seed: int) -> tuple[Any, Any, Row]:
    """X, y and the settings of a small problem of one of three losses."""
    rng = np.random.default_rng(seed)
    n, p = int(rng.choice([20, 40, 60])), int(rng.choice([5, 20, 60, 200]))
    loss = str(rng.choice(["squared", "logistic", "softmax"]))
    X = rng.normal(size=(n, p))
    if rng.random() < 0.5:
        X = 0.6 * np.repeat(rng.normal(size=(n, -(-p // 5))), 5, axis=1)[:, :p] + 0.8 * X
    w, used = np.zeros(p), rng.choice(p, min(p, 4), replace=False)
    w[used] = rng.choice([-2, -1, 1, 2], len(used))
    y = X @ w + rng.choice([0.3, 1.0, 2.0]) * rng.normal(size=n)
    bad = rng.choice(n, int(rng.choice([0, 0.1, 0.2, 0.3]) * n), replace=False)
    if loss != "squared":
        y = np.digitize(y, [0.0] if loss == "logistic" else np.quantile(y, [0.33, 0.66]))
        y[bad] = (y[bad] + 1) % (2 if loss == "logistic" else 3)
    elif rng.random() < 0.5:
        y[bad] += rng.normal(10, 3, len(bad))
    else:
        X[bad] += 5
        y[bad] = -(X[bad] @ w)
    C = least_C(X, y > 0 if loss != "squared" else y, loss != "squared") / float(
        rng.choice([0.02, 0.05, 0.1, 0.2, 0.4])
    )
    m, ratio = round(float(rng.choice([0.1, 0.2, 0.3, 0.4])) * n), float(rng.choice([0.2, 0.5, 1.0]))
    return X, y, {"n": n, "p": p, "loss": loss, "m": m, "C": C, "l1_ratio": ratio}


def fitted(X: Any, y: Any, facts: Row, m: int, C: float, tol: float = 1e-6) -> Any:
    make = AoRRRegressor if facts["loss"] == "squared" else AoRRClassifier
    return make(m, 1.0, C=C, l1_ratio=facts["l1_ratio"], tol=tol, random_state=0).fit(X, y)


def trimmed(X: Any, y: Any, facts: Row, model: Any) -> tuple[float, Any]:
    """The objective of a fit and the rows that it keeps, from the definition."""
    Z = np.atleast_2d(model.coef_) @ X.T + np.reshape(model.intercept_, (-1, 1))
    if facts["loss"] == "squared":
        s = (y - Z[0]) ** 2
    elif facts["loss"] == "logistic":
        s = np.logaddexp(0, np.where(y == 1, -1, 1) * Z[0])
    else:
        s = np.logaddexp.reduce(Z, axis=0) - Z[y, np.arange(len(y))]
    kept, coef, ratio = np.argsort(s)[: len(s) - facts["m"]], np.ravel(model.coef_), facts["l1_ratio"]
    return facts["C"] * s[kept].sum() + ratio * np.abs(coef).sum() + (1 - ratio) / 2 * (coef**2).sum(), np.sort(kept)


def concentrated(X: Any, y: Any, facts: Row, rows: Any) -> float:
    """The lowest objective of concentration steps, each a fit of the rows that the last one keeps."""
    C = facts["C"] * (len(y) - facts["m"]) / len(rows)
    value = np.inf
    for _ in range(30):
        if facts["loss"] != "squared" and len(np.unique(y[rows])) < len(np.unique(y)):
            break
        now, kept = trimmed(X, y, facts, fitted(X[rows], y[rows], facts, 0, C))
        if now >= value or np.array_equal(kept, rows):
            return min(now, value)
        value, rows, C = now, kept, facts["C"]
    return value


def _excess(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.assign(higher=rows["excess"] > 1e-5, far_higher=rows["excess"] > 0.005)
    groups = rows.groupby("loss")
    return groups[["higher", "far_higher"]].sum().assign(worst=groups["excess"].max(), problems=groups.size())


@benchmark(_excess, repeats=1, starts=5)
def sparse_starts(seed: int = 9000, repeats: int = 45, starts: int = 500) -> Iterator[Row]:
    """Our objective over the lowest of 500 random starts, on small problems of all losses, n up to 60, p up to 200.

    Half of the starts are a few rows and half random kept rows, each with concentration steps to convergence.
    """
    for draw in range(seed, seed + repeats):
        X, y, facts = small_problem(draw)
        rng, n, few = np.random.default_rng(draw), len(y), 6 if facts["loss"] == "softmax" else 3
        model, seconds = timed(fitted, X, y, facts, facts["m"], facts["C"])
        sizes = [n - facts["m"] if i % 2 else few for i in range(starts)]
        subsets = [rng.choice(n, size, replace=False) for size in sizes]
        ends, theirs = timed(
            lambda X=X, y=y, facts=facts, subsets=subsets: min(
                concentrated(X, y, facts, np.sort(rows)) for rows in subsets
            )
        )
        value = trimmed(X, y, facts, model)[0]
        row: Row = {"seed": draw, **facts, "objective": value, "random_starts": ends, "excess": value / ends - 1}
        yield rounded(row | {"seconds": seconds, "seconds_of_starts": theirs}, 6)
