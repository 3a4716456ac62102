"""Sparse robust models: prediction error, support recovery and time against sparse LTS, enetLTS, skglm and plain nets.

    python benchmarks/sparse_models.py designs [--repeats 3] [--sizes 100x1000 200x10000] [--kinds vertical ...]
    python benchmarks/sparse_models.py path
    python benchmarks/sparse_models.py time [--repeats 5] [--kinds vertical leverage | flipped] [--saga]
    python benchmarks/sparse_models.py starts [--repeats 20]
    python benchmarks/sparse_models.py ranges [--repeats 3]
    python benchmarks/sparse_models.py alarms [--repeats 5]

designs: predictors are normal with correlation .5^|i-j|, six of them matter (1.5, .5, 1, 1.5, 1, -1), noise has
standard deviation .5, as in the simulations of Alfons, Croux and Gelper (2013), or the sign of the signal is the
label, as in Kurnaz, Hoffmann and Filzmoser (2018). Contaminated rows: vertical (targets + N(20, 1)), leverage (all
predictors N(50, 1), targets by the opposite coefficients), flipped (labels of the rows exchanged), flipped_leverage
(the six predictors N(20, 1) as well, with the wrong label). Each method gets the same penalty: lambda of 15% of the
largest one that the clean rows have, and each robust one drops 25% of the rows, of labels
25% of each class, as enetLTS does. `rmse` and `error` are on 1,000 clean
rows (root mean squared error; share of wrong labels), `f1` of the support, `found` the share of the contaminated rows
that got no weight.

The reference `published` is our reimplementation of the published algorithms: 500 random subsets of 3 rows (2 of each
class), a net on each, 2 concentration steps, the 10 best to convergence, inner nets by scikit-learn; R cannot be run
here. `published_reweighted` is their second step: rows within 2.24 robust standard deviations (Pearson residuals for
labels) are fitted once more, all with weight one. `rankrange_reweighted` is the same step after our fit.

path: core seconds of 50 penalties at n=200, p=10,000, m=.25, each fit from the last, to gaps of 1e-4 and 1e-6 (as in
`path_`).

ranges: core seconds of fits of the ranks m+1 to .8 n and of all ranks m+1 to n, at 120 x 800 (scikit-learn's
make_regression, six columns that matter, targets of a tenth of the rows + 1,000), for m = 0 and .15 and three C.

time: core seconds of one fit over one fit of scikit-learn's ElasticNet with the same penalty at tol=1e-6 and its 1,000
iterations; for flipped labels over LogisticRegression by liblinear (and saga) at tol=1e-4. If skglm can be imported,
one fit of its ElasticNet (not with leverage points, where one took minutes) and one of our net to all rows (m=0) as
well; objectives are compared. Times below half a second are the lower of two.

starts: small problems of all losses, n up to 60, p up to 200; our objective over the lowest of 500 random starts, half
of them of a few rows and half of random kept rows, each with concentration steps to convergence.

alarms: rows that find_label_issues flags in wide tables, with and without its l1-penalised members; clean labels and
10% wrong ones. Genes: correlated columns in groups of ten, four matter, 150 x 1,000 and three classes 200 x 1,000.
Texts: counts of 1,500 words in 200 documents of 60 words as TF-IDF, two topics that prefer 30 words each.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.datasets import make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import ElasticNet, LogisticRegression
from sklearn.metrics import average_precision_score

import record
from rankrange import AoRRClassifier, AoRRRegressor, find_label_issues
from rankrange.core.losses import Absolute, Huber, Logistic, Softmax, Squared
from rankrange.crossfit.members import MEMBERS
from rankrange.solvers import sparse

try:
    from skglm import ElasticNet as Theirs
except ImportError:
    Theirs = None

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
    labels = kind.startswith("flipped")
    if labels:
        y, y_test = np.sign(y), np.sign(y_test)
    net = sparse.ElasticNet(X, y, Logistic() if labels else Squared(), 1, L1)
    C = net.largest_penalty(np.ones(n)) / SHARE
    bad = rng.choice(n, size=int(share * n), replace=False)
    X = X.copy()
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


def inner(problem: dict[str, Any], rows: np.ndarray, weight: float) -> Any:
    """The net of some rows by scikit-learn, each row `weight` times."""
    X, y, C = problem["X"][rows], problem["y"][rows], problem["C"] * weight
    if problem["labels"]:
        # liblinear penalises the intercept, glmnet and thus enetLTS do not: 1 / 1000 of the penalty is left.
        settings = {"solver": "liblinear", "intercept_scaling": 1000.0, "tol": 1e-4, "random_state": 0}
        return LogisticRegression(C=C, l1_ratio=L1, **settings).fit(X, y)
    return ElasticNet(alpha=1 / (2 * C * len(rows)), l1_ratio=L1).fit(X, y)


def losses(problem: dict[str, Any], model: Any) -> np.ndarray:
    if problem["labels"]:
        return np.logaddexp(0, -problem["y"] * model.decision_function(problem["X"]))
    return (problem["y"] - model.predict(problem["X"])) ** 2


def smallest(problem: dict[str, Any], cost: np.ndarray, h: int) -> np.ndarray:
    """The rows of smallest loss; of labels the same share of each class, as enetLTS has it."""
    if not problem["labels"]:
        return np.argsort(cost)[:h]
    y = problem["y"]
    of_class = [np.flatnonzero(y == c) for c in (-1, 1)]
    return np.concatenate([rows[np.argsort(cost[rows])[: round(h * len(rows) / len(y))]] for rows in of_class])


def published(problem: dict[str, Any], seed: int, subsets: int) -> Any:
    """Sparse LTS / enetLTS as published: many small subsets, two steps each, the ten best to convergence."""
    rng = np.random.default_rng(seed)
    y = problem["y"]
    n, h = len(y), len(y) - round(TRIM * len(y))

    def step(model: Any) -> tuple[float, Any]:
        kept = smallest(problem, losses(problem, model), h)
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


def reweighted(problem: dict[str, Any], model: Any) -> Any:
    """The second step of the papers: rows with small standardised residuals are fitted once more."""
    if problem["labels"]:
        p = 1 / (1 + np.exp(-model.decision_function(problem["X"])))
        t = (problem["y"] > 0) - p
        scaled = np.abs(t) / np.sqrt(np.maximum(p * (1 - p), 1e-12))
    else:
        r = problem["y"] - model.predict(problem["X"])
        kept = np.sort(np.abs(r - np.median(r)))[: len(r) - round(TRIM * len(r))]
        # The root mean square of the smallest 75% of normal residuals is .599 standard deviations.
        scaled = np.abs(r - np.median(r)) / max(float(np.sqrt(np.mean(kept**2))) / 0.599, 1e-12)
    rows = np.flatnonzero(scaled <= 2.24)
    if problem["labels"] and len(np.unique(problem["y"][rows])) < 2:
        return model
    second = inner(problem, rows, 1.0)
    second.dropped = np.setdiff1d(np.arange(len(scaled)), rows)
    return second


def again(problem: dict[str, Any], fitted: dict[str, Any], first: str) -> Any:
    return reweighted(problem, fitted[first])


def ours(problem: dict[str, Any], seed: int) -> Any:
    settings = {"C": problem["C"], "l1_ratio": L1, "random_state": seed}
    by_class = {"aggregate": "per-class"} if problem["labels"] else {}
    model = (AoRRClassifier if problem["labels"] else AoRRRegressor)(TRIM, **settings, **by_class)
    return model.fit(problem["X"], problem["y"])


def measured(problem: dict[str, Any], model: Any) -> dict[str, float]:
    coef = np.ravel(model.coef_)
    used, true = set(np.flatnonzero(coef)), set(range(6))
    predicted = model.predict(problem["X_test"])
    wrong = np.mean(predicted != problem["y_test"]) if problem["labels"] else np.nan
    rmse = np.nan if problem["labels"] else np.sqrt(np.mean((predicted - problem["y_test"]) ** 2))
    if hasattr(model, "dropped_"):
        dropped = np.flatnonzero(model.dropped_)
    elif hasattr(model, "dropped"):
        dropped = model.dropped
    else:
        n = len(problem["y"])
        dropped = np.setdiff1d(np.arange(n), smallest(problem, losses(problem, model), n - round(TRIM * n)))
    found = np.isin(problem["bad"], dropped).mean() if len(problem["bad"]) else np.nan
    f1 = 2 * len(used & true) / (len(used) + len(true))
    return {"rmse": rmse, "error": wrong, "f1": f1, "columns": len(used), "found": found}


METHODS = ("rankrange", "rankrange_reweighted", "published", "published_reweighted", "plain")


def designs(repeats: int, sizes: list[str], kinds: list[str], shares: list[float], subsets: int, first: int) -> None:
    for size in sizes:
        n, p = map(int, size.split("x"))
        for kind in kinds:
            for share in shares:
                if share == 0 and kind.endswith("leverage"):
                    continue  # the same rows as without leverage
                rows = []
                for seed in range(first, first + repeats):
                    problem = drawn(seed, n, p, kind, share)
                    fitted: dict[str, Any] = {}
                    ways: dict[str, Callable[[], Any]] = {
                        "rankrange": partial(ours, problem, seed),
                        "rankrange_reweighted": partial(again, problem, fitted, "rankrange"),
                        "published": partial(published, problem, seed, subsets),
                        "published_reweighted": partial(again, problem, fitted, "published"),
                        "plain": partial(inner, problem, np.arange(n), 1.0),
                    }
                    for name in METHODS:
                        began = time.process_time()
                        fitted[name] = ways[name]()
                        spent = time.process_time() - began
                        facts = {"n": n, "p": p, "kind": kind, "share": share, "seed": seed, "method": name}
                        measures = measured(problem, fitted[name])
                        rows.append({**facts, **measures, "seconds": round(spent, 4), "subsets": subsets})
                record.append("sparse_designs", rows)
                for name in METHODS:
                    mine = [row for row in rows if row["method"] == name]
                    figures = [np.mean([row[c] for row in mine]) for c in ("rmse", "error", "f1", "found", "seconds")]
                    text = "rmse {:.2f} error {:.3f} f1 {:.2f} found {:.2f} s {:.3f}".format(*figures)
                    print(size, kind, share, f"{name:21}", text, flush=True)


def path() -> None:
    problem = drawn(1000, 200, 10_000, "vertical", 0.2)
    net = sparse.ElasticNet(problem["X"], problem["y"], Squared(), 1, L1)
    Cs = problem["C"] * SHARE * np.geomspace(1, 50, 50)
    for tol in (1e-4, 1e-6):
        began = time.process_time()
        start = None
        for C in Cs:
            cut = sparse.Cut(50, None, float(C))
            if start is None:
                found = sparse.trimmed_net(net, cut, rng=np.random.default_rng(0), tol=tol)
            else:
                found = sparse.follow(net, cut, start, tol=tol, max_iter=20)
            start = found.coef, found.intercept
        spent = time.process_time() - began
        columns = np.count_nonzero(start[0])
        print(f"50 penalties at 200 x 10,000, gap {tol:g}: {spent:.2f} core seconds, {columns} columns at the end")
        row = {"n": 200, "p": 10_000, "penalties": 50, "tol": tol, "seconds": round(spent, 3)}
        record.append("sparse_models_path", [row])


def ranges(repeats: int, first: int) -> None:
    rows = []
    for seed in range(first, first + repeats):
        X, y = make_regression(120, 800, n_informative=6, noise=5, random_state=seed)
        y[np.random.default_rng(seed).choice(120, 12, replace=False)] += 1000
        for m in (0, 0.15):
            for C in (0.001, 0.01, 0.1):
                facts = {"n": 120, "p": 800, "m": m, "C": C, "seed": seed}
                fits = {
                    k: timed_once(partial(AoRRRegressor(m, k, l1_ratio=L1, C=C, random_state=seed).fit, X, y))
                    for k in (1.0, 0.8)
                }
                (all_ranks, whole), (some, part) = fits[1.0], fits[0.8]
                above = part.objective_ / whole.objective_ - 1
                rows.append({**facts, "seconds": all_ranks, "seconds_of_ranks": some, "objective_above": above})
                print(facts, f"k=1 {all_ranks:.2f} s, k=.8 {some:.2f} s, objective {above:+.2%}", flush=True)
    ratio = np.array([row["seconds_of_ranks"] / row["seconds"] for row in rows])
    print(f"k=.8 over k=1: median {np.median(ratio):.2f}, worst {ratio.max():.2f}")
    record.append("sparse_ranges", rows)


def timed(fit: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    model = fit()
    spent = time.process_time() - began
    if spent < 0.5:
        began = time.process_time()
        fit()
        spent = min(spent, time.process_time() - began)
    return spent, model


def timing(repeats: int, kinds: list[str], first: int, saga: bool) -> None:
    rows = []
    for seed in range(first - 1, first + repeats):  # the first one is for compilers
        rng = np.random.default_rng(seed)
        n, p = int(rng.choice([100, 200, 500])), int(rng.choice([1000, 3000, 10_000]))
        kind, share = str(rng.choice(kinds)), float(rng.choice([0.0, 0.1, 0.2]))
        problem = drawn(seed, n, p, kind, share)
        facts = {"n": n, "p": p, "kind": kind, "share": share, "seed": seed}
        row = {**facts, **(times_of_labels(problem, seed, saga) if problem["labels"] else times(problem, seed))}
        if seed >= first:
            rows.append(row)
            print({name: round(v, 4) if isinstance(v, float) else v for name, v in row.items()}, flush=True)
    own = ("ordinary", "above", "n", "p", "seed", "share")
    for name in [name for name in rows[0] if name not in own and not name.endswith("above") and name != "kind"]:
        ratio = np.array([row[name] / row["ordinary"] for row in rows])
        if np.isnan(ratio).all():  # not timed
            continue
        print(f"{name} per ordinary fit: median {np.nanmedian(ratio):.2f}, 90% {np.nanquantile(ratio, 0.9):.2f}")
    print("worst", max(rows, key=lambda row: row["rankrange"] / row["ordinary"]))
    record.append("sparse_time_labels" if "flipped" in kinds else "sparse_time", rows)


def times(problem: dict[str, Any], seed: int) -> dict[str, float]:
    X, y, C = problem["X"], problem["y"], problem["C"]
    alpha = 1 / (2 * C * len(y))
    net = sparse.ElasticNet(X, y, Squared(), 1, L1)
    found: dict[str, tuple[float, Any]] = {
        "ordinary": timed(partial(ElasticNet(alpha=alpha, l1_ratio=L1, tol=1e-6).fit, X, y)),
        "rankrange": timed(partial(ours, problem, seed)),
        "all_rows": timed(partial(net.fit, np.full(len(y), C))),
    }
    found["skglm"] = (np.nan, None)
    if Theirs is not None and not np.abs(X).max() > 30:
        found["skglm"] = timed(partial(Theirs(alpha=alpha, l1_ratio=L1, tol=1e-6).fit, X, y))
    values = {"all_rows": found["all_rows"][1].value, "skglm": np.nan}
    for name in ("ordinary", "skglm"):
        model = found[name][1]
        if model is not None:
            values[name] = C * float(((y - model.predict(X)) ** 2).sum()) + float(np.abs(model.coef_).sum())
    least = np.nanmin(list(values.values()))
    above = {f"{name}_above": values[name] / least - 1 for name in ("all_rows", "ordinary", "skglm")}
    return {**{name: spent for name, (spent, _) in found.items()}, **above}


def times_of_labels(problem: dict[str, Any], seed: int, saga: bool) -> dict[str, float]:
    X, y, C = problem["X"], problem["y"], problem["C"]
    net = sparse.ElasticNet(X, y, Logistic(), 1, L1)
    ordinary = {"C": C, "l1_ratio": L1, "tol": 1e-4, "max_iter": 1000, "random_state": 0}
    return {
        "ordinary": timed(partial(LogisticRegression(solver="liblinear", **ordinary).fit, X, y))[0],
        "rankrange": timed(partial(ours, problem, seed))[0],
        "all_rows": timed(partial(net.fit, np.full(len(y), C)))[0],
        "saga": timed(partial(LogisticRegression(solver="saga", **ordinary).fit, X, y))[0] if saga else np.nan,
    }


def small_problem(seed: int) -> tuple[sparse.ElasticNet, sparse.Cut, dict[str, Any]]:
    rng = np.random.default_rng(seed)
    n, p = int(rng.choice([20, 40, 60])), int(rng.choice([5, 20, 60, 200]))
    name = str(rng.choice(["squared", "huber", "absolute", "logistic", "softmax"]))
    X = rng.normal(size=(n, p))
    if rng.random() < 0.5:
        X = 0.6 * np.repeat(rng.normal(size=(n, -(-p // 5))), 5, axis=1)[:, :p] + 0.8 * X
    w = np.zeros(p)
    used = rng.choice(p, min(p, 4), replace=False)
    w[used] = rng.choice([-2, -1, 1, 2], len(used))
    y = X @ w + rng.choice([0.3, 1.0, 2.0]) * rng.normal(size=n)
    bad = rng.choice(n, int(rng.choice([0, 0.1, 0.2, 0.3]) * n), replace=False)
    outputs, loss = (
        1,
        {"squared": Squared(), "huber": Huber(), "absolute": Absolute(), "logistic": Logistic()}.get(name),
    )
    if name == "logistic":
        y = np.where(y > 0, 1.0, -1.0)
        y[bad] *= -1
    elif name == "softmax":
        y = np.digitize(y, np.quantile(y, [0.33, 0.66]))
        y[bad] = (y[bad] + 1) % 3
        outputs, loss = 3, Softmax()
    elif rng.random() < 0.5:
        y[bad] += rng.normal(10, 3, len(bad))
    else:
        X[bad] += 5
        y[bad] = -(X[bad] @ w)
    net = sparse.ElasticNet(X, y, loss, outputs, float(rng.choice([0.2, 0.5, 1.0])))
    C = net.largest_penalty(np.ones(n)) / float(rng.choice([0.02, 0.05, 0.1, 0.2, 0.4]))
    m = round(float(rng.choice([0.1, 0.2, 0.3, 0.4])) * n)
    return net, sparse.Cut(m, None, C), {"n": n, "p": p, "loss": name, "m": m}


def random_starts(net: sparse.ElasticNet, cut: sparse.Cut, rng: np.random.Generator, count: int) -> float:
    """The lowest objective of concentration steps from random rows.

    Absolute losses take many fits, so that steps have Huber's loss, and the ten lowest ends go on with absolute ones.
    """
    n, every, ends = len(net.y), cut.all(len(net.y)), []
    part, mine = net, cut
    if isinstance(net.loss, Absolute):
        part, delta = net.smoothed(0.05 * float(np.abs(net.y - np.median(net.y)).mean()))
        mine = cut._replace(C=cut.C / delta)
    for i in range(count):
        if i % 2:
            h = mine.weights(rng.random(n))
        else:
            h = np.zeros(n)
            few = rng.choice(n, 3 if net.n_outputs == 1 else 6, replace=False)
            h[few] = every.sum() / len(few)
        ends.append(concentrated(part, mine, part.fit(h, tol=1e-2, max_rounds=5), 1e-3))
    ends.sort(key=lambda end: end[0])
    count = 1 if part is net else 10
    return min(concentrated(net, cut, fit, 1e-6)[0] for _, fit in ends[:count])


def concentrated(net: sparse.ElasticNet, cut: sparse.Cut, fit: sparse.Net, tol: float) -> tuple[float, sparse.Net]:
    """Concentration steps, each a fit to this tolerance, until the objective falls no more; its value and the fit."""

    def trimmed(fit: sparse.Net) -> tuple[float, np.ndarray]:
        cost = net.losses(net.scores(fit.coef, fit.intercept))
        h = cut.weights(cost)
        return float(h @ cost) + net.penalty(fit.coef), h

    value, h = trimmed(fit)
    for _ in range(100):
        after = net.fit(h, fit[:2], tol=tol)
        now, kept = trimmed(after)
        if now > value:
            break
        settled = np.array_equal(kept, h)
        value, h, fit = now, kept, after
        if settled:
            break
    return value, fit


def starts(repeats: int, first: int) -> None:
    excess = []
    for seed in range(first, first + repeats):
        net, cut, facts = small_problem(seed)
        spent, found = timed_once(partial(sparse.trimmed_net, net, cut, rng=np.random.default_rng(seed)))
        theirs, least = timed_once(partial(random_starts, net, cut, np.random.default_rng(seed), 500))
        row = {"seed": seed, **facts, "objective": found.value, "random_starts": least}
        row.update(excess=found.value / least - 1, seconds=round(spent, 3), seconds_of_starts=round(theirs, 3))
        excess.append(row["excess"])
        record.append("sparse_starts", [row])
        print(seed, facts, f"{row['excess']:+.2%} {spent:.1f} s against {theirs:.1f} s", flush=True)
    above = sum(each > 1e-5 for each in excess)
    print(f"{above} of {repeats} above 500 random starts, worst {max(excess):+.2%}, median {np.median(excess):+.2%}")


def genes(rng: np.random.Generator, classes: int) -> tuple[np.ndarray, np.ndarray]:
    n = 150 if classes == 2 else 200
    X = 0.6 * np.repeat(rng.normal(size=(n, 100)), 10, axis=1) + 0.8 * rng.normal(size=(n, 1000))
    t = X[:, [5, 25, 45, 65]] @ np.array([2.0, -2.0, 2.0, -2.0]) + 0.5 * rng.logistic(size=n)
    return X, np.digitize(t, np.quantile(t, np.arange(1, classes) / classes))


def texts(rng: np.random.Generator, classes: int) -> tuple[Any, np.ndarray]:
    n, words = 200, 1500
    frequency = 1 / np.arange(1, words + 1)
    y = rng.integers(classes, size=n)
    counts = np.zeros((n, words))
    for c in range(classes):
        own = frequency.copy()
        own[50 + 30 * c : 80 + 30 * c] *= 5
        mine = np.flatnonzero(y == c)
        counts[mine] = rng.multinomial(60, own / own.sum(), size=len(mine))
    return TfidfTransformer().fit_transform(csr_matrix(counts)), y


def alarms(repeats: int, first: int, chosen: list[str]) -> None:
    kinds = {"genes": (genes, 2), "genes, 3 classes": (genes, 3), "texts": (texts, 2)}
    for kind, (make, classes) in kinds.items():
        for share in (0.0, 0.1) if kind.partition(",")[0] in chosen else ():
            rows = []
            for seed in range(first, first + repeats):
                rng = np.random.default_rng(seed)
                X, y = make(rng, classes)
                wrong = np.zeros(len(y), dtype=bool)
                wrong[rng.choice(len(y), int(share * len(y)), replace=False)] = True
                y = np.where(wrong, (y + 1) % classes, y)
                for l1 in (True, False):
                    kept = dict(MEMBERS)
                    if not l1:
                        del MEMBERS["sparse"]
                    spent, issues = timed_once(partial(find_label_issues, X, y, random_state=seed))
                    MEMBERS.update(kept)
                    flagged = np.zeros(len(y), dtype=bool)
                    flagged[issues["row"]] = True
                    facts = {"kind": kind, "n": len(y), "share": share, "seed": seed, "l1": l1}
                    precision = average_precision_score(wrong, issues.p_wrong) if share else np.nan
                    false, hit = flagged[~wrong].mean(), flagged[wrong].mean() if share else np.nan
                    rows.append(
                        {**facts, "false_alarms": false, "found": hit, "ap": precision, "seconds": round(spent, 2)}
                    )
            record.append("sparse_alarms", rows)
            for l1 in (True, False):
                mine = [row for row in rows if row["l1"] == l1]
                figures = [np.mean([row[c] for row in mine]) for c in ("false_alarms", "found", "ap", "seconds")]
                text = "false alarms {:.3f} found {:.2f} ap {:.2f} s {:.1f}".format(*figures)
                print(kind, share, "with l1" if l1 else "without", text, flush=True)


def timed_once(fit: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = fit()
    return time.process_time() - began, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["designs", "path", "time", "starts", "ranges", "alarms"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", default=["100x1000", "200x10000"])
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.1, 0.2])
    parser.add_argument("--subsets", type=int, default=500)
    parser.add_argument("--first", type=int, help="first seed, 1000 (time: 2000); 0 to 99 are for development")
    parser.add_argument("--saga", action="store_true", help="time saga too, which takes up to half a minute a fit")
    given = parser.parse_args()
    given.first = given.first or (2000 if given.what == "time" else 1000)
    if given.what == "designs":
        kinds = given.kinds or ["vertical", "leverage", "flipped", "flipped_leverage"]
        designs(given.repeats, given.sizes, kinds, given.shares, given.subsets, given.first)
    elif given.what == "path":
        path()
    elif given.what == "starts":
        starts(given.repeats, given.first)
    elif given.what == "ranges":
        ranges(given.repeats, given.first)
    elif given.what == "alarms":
        alarms(given.repeats, given.first, given.kinds or ["genes", "texts"])
    else:
        timing(given.repeats, given.kinds or ["vertical", "leverage"], given.first, given.saga)
