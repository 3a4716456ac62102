"""What linear fits cost and reach on problems drawn at random, and what one selection of ranks costs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet, HuberRegressor, LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from rankrange import AoRRClassifier, AoRRRegressor, range_weights, ranked_range

from .harness import Row, benchmark, medians, spread

LOSSES = ("logistic", "sparse", "softmax3", "softmax10", "hinge", "squared", "absolute")
NETS = {"l1": "logistic", "l1_squared": "squared"}
CLASSES = {"softmax3": 3, "softmax10": 10}
COLUMNS = ("normal", "heavy", "correlated", "binary", "unscaled")
OUTLIERS = ("none", "flipped", "scattered", "cluster")
NUMERIC = ("squared", "absolute", "l1_squared")
RARE_SIZES = ((2000, 10), (20_000, 50), (200_000, 30))
NET_SIZE = (3000, 40)


# ---- problems drawn at random ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    loss: str
    seed: int
    index: int
    n: int
    d: int
    columns: str
    outliers: str
    share: float
    wild: float
    m: float
    k: float
    C: float


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def draw(loss: str, seed: int, index: int, kind: str = "any", rows: int = 10**9) -> tuple[Problem, Any]:
    """The problem of this number, with at most so many rows, and the generator that goes on to draw its data."""
    own = NETS.get(loss, loss)
    rng = np.random.default_rng([seed, index, LOSSES.index(own)])
    n = round(log_uniform(rng, 500, 100_000 if own == "logistic" else 30_000))
    widest = 50 if own in CLASSES or own == "hinge" else 100
    d = round(log_uniform(rng, 200, 20_000) if own == "sparse" else log_uniform(rng, 3, widest))
    columns = "text" if own == "sparse" else str(rng.choice(COLUMNS))
    outliers = str(rng.choice(("none", "flipped") if own == "sparse" else OUTLIERS))
    share = rng.uniform(0.03, 0.5)
    wild = rng.uniform(0.02, 0.2) if outliers != "none" else 0.0
    part = rng.random()
    m = 0.0 if part < 0.25 else share * rng.uniform(0.7, 1.0) if part < 0.375 else rng.uniform(0.0, 0.4)
    k = 1.0 if rng.random() < 0.25 else rng.uniform(max(0.3, m + 0.1), 1.0)
    C = log_uniform(rng, 0.001, 100.0)
    problem = Problem(loss, seed, index, n, d, columns, outliers, share, float(wild), float(m), float(k), C)
    if kind == "convex":
        problem = replace(problem, m=0.0)
    if kind == "rare":
        n, d = RARE_SIZES[index // 2 % len(RARE_SIZES)]
        problem = replace(problem, n=n, d=d, columns="normal", outliers="none", share=0.12, wild=0.0)
        problem = replace(problem, m=0.1, k=0.9 if index % 2 else 1.0, C=1.0)
    if loss in NETS:
        problem = replace(problem, n=min(problem.n, NET_SIZE[0]), d=min(d, NET_SIZE[1]), k=1.0)
    return replace(problem, n=min(problem.n, rows)), rng


def data(problem: Problem, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows and targets."""
    X = text(problem, rng) if problem.columns == "text" else table(problem, rng)
    n, d = X.shape
    wild = rng.random(n) < problem.wild
    n_outputs = CLASSES.get(problem.loss, 1)
    scale = 1.0 if problem.columns == "text" else 1.0 / np.maximum(X.std(axis=0), 1e-12)
    z = np.asarray(X @ (rng.normal(size=(d, n_outputs)) * np.reshape(scale, (-1, 1))))
    z = 3.0 * (z - z.mean(axis=0)) / np.maximum(z.std(axis=0), 1e-12)
    if problem.outliers == "scattered":
        X[wild] *= 10.0
    if problem.outliers == "cluster":
        scales, direction = X.std(axis=0), rng.normal(size=d)
        X[wild] = scales * (12.0 * direction / np.linalg.norm(direction) + 0.5 * rng.normal(size=(int(wild.sum()), d)))
    return X, targets(problem, z, wild, rng)


def targets(problem: Problem, z: Any, wild: Any, rng: np.random.Generator) -> Any:
    """Labels or numbers of the scores z (n, outputs), wrong where `wild`."""
    n, n_outputs = z.shape
    if problem.loss in NUMERIC:
        y = z[:, 0] + rng.normal(size=n)
        y[wild] = -10.0 * y[wild] + 20.0
        return y
    if n_outputs > 1:
        z = z + np.linspace(0.0, np.log(problem.share), n_outputs)
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        y[wild] = (y[wild] + 1) % n_outputs
    else:
        noisy = z[:, 0] + rng.logistic(size=n)
        y = (noisy > np.quantile(noisy, 1.0 - problem.share)).astype(int)
        y[wild] = 0 if problem.outliers == "cluster" else 1 - y[wild]
    y[: n_outputs + 1] = np.arange(n_outputs + 1) % max(n_outputs, 2)  # no class without a row
    return y


def table(problem: Problem, rng: np.random.Generator) -> Any:
    n, d = problem.n, problem.d
    if problem.columns == "binary":
        return (rng.random((n, d)) < rng.uniform(0.1, 0.9, size=d)).astype(np.float64)
    if problem.columns == "heavy":
        return rng.standard_t(2.0, size=(n, d))
    X = rng.normal(size=(n, d))
    if problem.columns == "correlated":
        X = np.sqrt(0.1) * X + np.sqrt(0.9) * rng.normal(size=(n, 1))
    if problem.columns == "unscaled":
        X = X * 10.0 ** rng.uniform(-3.0, 3.0, size=d) + rng.normal(size=d)
    return X


def text(problem: Problem, rng: np.random.Generator) -> Any:
    """Words of a Zipf law, weighted by rarity and of unit length."""
    n, d, length = problem.n, problem.d, int(rng.integers(20, 101))
    word = np.minimum(rng.zipf(rng.uniform(1.2, 1.6), size=n * length) - 1, d - 1)
    X = sp.csr_matrix((np.ones(n * length), word, np.arange(0, n * length + 1, length)), shape=(n, d))
    X.sum_duplicates()
    X = X @ sp.diags(np.log(1.0 + n / (1.0 + np.asarray((X > 0).sum(axis=0)).ravel())))
    return sp.csr_matrix(sp.diags(1.0 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel() + 1e-12)) @ X)


def ours(problem: Problem) -> Any:
    settings: dict[str, Any] = {"m": problem.m, "k": problem.k, "C": problem.C, "random_state": 0}
    if problem.loss in NETS:
        settings["l1_ratio"] = 0.9
    if problem.loss in NUMERIC:
        return AoRRRegressor(loss=problem.loss.removeprefix("l1_"), **settings)
    return AoRRClassifier(loss="hinge" if problem.loss == "hinge" else "logistic", **settings)


def ordinary(problem: Problem) -> Any:
    """The ordinary fit with the same penalty: C (sum of the losses) + the penalty."""
    C = problem.C
    fits: dict[str, Callable[[], Any]] = {
        "hinge": lambda: LinearSVC(loss="hinge", C=C, random_state=0),
        "squared": lambda: Ridge(alpha=0.5 / C),
        "absolute": lambda: HuberRegressor(alpha=0.5 / C, max_iter=1000),
        "l1": lambda: LogisticRegression(C=C, l1_ratio=0.9, solver="saga", tol=1e-6, max_iter=1000),
        "l1_squared": lambda: ElasticNet(alpha=0.5 / (C * problem.n), l1_ratio=0.9, tol=1e-6),
    }
    return fits.get(problem.loss, lambda: LogisticRegression(C=C, tol=1e-6, max_iter=1000))()


def objective(problem: Problem, fit: Any, X: Any, y: Any) -> float:
    """The mean of the losses ranked m+1..k and the penalty over C (k - m), from the definition."""
    coef = np.atleast_2d(fit.coef_).astype(np.float64)
    z = np.asarray(X @ coef.T + fit.intercept_)
    if problem.loss in NUMERIC:
        s = np.abs(z[:, 0] - y) ** (1 if problem.loss == "absolute" else 2)
    elif problem.loss in CLASSES:
        s = np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), y]
    else:
        margin = np.where(y == 1, 1, -1) * z[:, 0]
        s = np.maximum(0, 1 - margin) if problem.loss == "hinge" else np.logaddexp(0, -margin)
    m, k = round(problem.m * len(y)), round(problem.k * len(y))
    ratio = 0.9 if problem.loss in NETS else 0.0
    penalty = ratio * np.abs(coef).sum() + (1 - ratio) / 2 * (coef**2).sum()
    return float(np.sort(s)[::-1][m:k].mean() + penalty / (problem.C * (k - m)))


def costs(rows: pd.DataFrame) -> pd.DataFrame:
    """Ordinary fits, open certificates, and objectives and seconds over those of an earlier run."""
    found = spread(rows, "loss", "ratio")
    open_ones = ~(pd.to_numeric(rows["certificate"]) <= 1e-6)
    found["certificate above 1e-6"] = open_ones.groupby(rows["loss"]).sum()
    if "objective_before" in rows:
        change = (rows["objective"].astype(float) + 1e-9) / (rows["objective_before"].astype(float) + 1e-9)
        by = change.groupby(rows["loss"])
        found["objective over before"], found["worst objective"] = by.mean(), by.max()
        found["higher by 1%"] = (change > 1.01).groupby(rows["loss"]).sum()
        found["lower by 1%"] = (change < 0.99).groupby(rows["loss"]).sum()
        found["seconds over before"] = (rows["ours_s"] / rows["ours_s_before"]).groupby(rows["loss"]).median()
    return found


@benchmark(costs, keys=("loss", "seed", "index"), count=1, rows=500, losses=("logistic", "squared"))
def linear_random(
    seed: int = 100,
    count: int = 20,
    losses: tuple = LOSSES,
    kind: str = "any",
    rows: int = 10**9,
    index: int | None = None,
) -> Iterator[Row]:
    """Cost of a certified fit in ordinary fits, and its objective, on problems drawn at random.

    A problem is drawn from its loss, the seed and its number alone. Rows: log-uniform from 500 to 100,000 (30,000 if
    the loss is not logistic), columns from 3 to 100 (50 for several classes and hinge): normal, heavy-tailed (Student's
    t, 2 degrees of freedom), correlated (pairs .9), binary, or unscaled (units from .001 to 1,000). Rare class: 3 to
    50%. Outliers: none, or 2 to 20% of the rows with wrong labels, as scattered rows, or in one cluster. m is 0 for one
    of four, .7 to 1 times the rare class for one of eight, otherwise uniform to .4; k is 1 for one of four, otherwise
    uniform from .3; C log-uniform from .001 to 100. Sparse rows are text-like. `--losses l1 l1_squared` are elastic
    nets of at most 3,000 x 40 with k = 1. `--kind convex`: m = 0. `--kind rare`: 12% positive, m = .1, three sizes.
    The ordinary fit is scikit-learn's with the same C at tol=1e-6. Development uses the seeds 51 to 899.
    """
    for loss in losses:
        for number in range(count) if index is None else [index]:
            problem, rng = draw(loss, seed, number, kind, rows)
            X, y = data(problem, rng)
            theirs, fit = ordinary(problem), ours(problem)
            calls = {"theirs": lambda theirs=theirs, X=X, y=y: theirs.fit(X, y)}
            calls["ours"] = lambda fit=fit, X=X, y=y: fit.fit(X, y)
            seconds = medians(calls, most=2.0)
            yield {
                **asdict(problem),
                "ordinary_s": round(seconds["theirs"], 5),
                "ours_s": round(seconds["ours"], 5),
                "ratio": round(seconds["ours"] / seconds["theirs"], 3),
                "objective": f"{objective(problem, fit, X, y):.12g}",
                "certificate": f"{fit.certificate_:.3g}",
                "n_iter": int(np.max(fit.n_iter_)),
                "message": fit.message_.replace(",", ";"),
            }


# ---- one selection ---------------------------------------------------------------------------------------------------

VALUES: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "exponential": lambda rng, n: rng.exponential(size=n),
    "24 distinct": lambda rng, n: rng.choice(rng.exponential(size=24), size=n),
    "sorted": lambda rng, n: np.sort(rng.exponential(size=n)),
    "constant": lambda rng, n: np.full(n, 0.7),
}


@benchmark(lambda rows: rows.set_index("values").select_dtypes("number"), n=10_000, repeats=2)
def selection(seed: int = 0, n: int = 10**7, repeats: int = 7) -> Iterator[Row]:
    """Value and weights of a ranked range in units of one np.partition at the same two ranks, and of np.sort."""
    m, k = n // 10, n - n // 10
    for name, make in VALUES.items():
        values = make(np.random.default_rng(seed), n)
        calls: dict[str, Callable[[], Any]] = {
            "ours": lambda values=values: (ranked_range(values, m, k), range_weights(values, m, k)),
            "partition": lambda values=values: np.partition(values, [n - k, n - m]),
            "sort": lambda values=values: np.sort(values),
        }
        assert np.isclose(calls["ours"]()[0], calls["sort"]()[::-1][m:k].mean(), rtol=1e-10)
        tracemalloc.start()
        calls["ours"]()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        ms = {f"{key}_ms": round(1000 * spent, 2) for key, spent in medians(calls, repeats).items()}
        ratio = round(ms["ours_ms"] / max(ms["partition_ms"], 1e-3), 2)
        yield {
            "n": n,
            "values": name,
            **ms,
            "over_partition": ratio,
            "memory_over_input": round(1 + peak / values.nbytes, 2),
        }
