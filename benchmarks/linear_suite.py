"""What a certified fit costs on many kinds of data, in ordinary fits of the same loss: the distribution, not one case.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/linear_suite.py
        [--sizes small,medium,large] [--losses logistic,sparse,hinge,softmax3,softmax10,squared,absolute]
        [--only TEXT] [--repeats N] [--record NAME] [--against NAME]

Every problem is fitted by us and by the ordinary estimator of its loss, by turns; the ratio is that of the median core
seconds. The penalty is scikit-learn's C = 1.0 on both sides. Objectives are computed here, from the definition. The
rows are appended to benchmarks/results/NAME.csv, and `--against` names an earlier record whose objectives may not be
exceeded. Targets for the logistic loss: median 2, 90% quantile 5, worst 15.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import HuberRegressor, LogisticRegression, Ridge
from sklearn.svm import LinearSVC

import record
from rankrange import AoRRClassifier, AoRRRegressor

RANGES = ((0.1, 1.0), (0.1, 0.9), (0.2, 0.7), (0.0, 0.9), (0.0, 0.5))
SIZES = {"small": (2_000, 10), "medium": (20_000, 50), "large": (200_000, 30)}
KINDS = ("clean", "flipped", "scattered", "cluster", "rare", "correlated")
REPEATS = {"small": 7, "medium": 3, "large": 1}
CLASSES = {"softmax3": 3, "softmax10": 10}
LOSSES = ("logistic", "sparse", "hinge", "softmax3", "softmax10", "squared", "absolute")


class Problem(NamedTuple):
    loss: str
    size: str
    kind: str
    m: float
    k: float

    @property
    def name(self) -> str:
        return f"{self.loss} {self.size} {self.kind} m={self.m:g} k={self.k:g}"


def ours(problem: Problem) -> Any:
    """Our estimator with scikit-learn's C = 1.0 (ridge: alpha = 1.0)."""
    settings: dict[str, Any] = {"m": problem.m, "k": problem.k, "C": penalty(problem), "random_state": 0}
    if problem.loss in ("squared", "absolute"):
        return AoRRRegressor(loss=problem.loss, **settings)
    return AoRRClassifier(loss="hinge" if problem.loss == "hinge" else "logistic", **settings)


def penalty(problem: Problem) -> float:
    """C in C (sum of the losses) + ||w||^2 / 2."""
    return 0.5 if problem.loss == "squared" else 1.0


def ordinary(problem: Problem) -> Any:
    if problem.loss == "hinge":
        return LinearSVC(loss="hinge", random_state=0)
    if problem.loss == "squared":
        return Ridge(alpha=1.0)
    if problem.loss == "absolute":
        return HuberRegressor(alpha=0.5, max_iter=1000)
    return LogisticRegression(tol=1e-6, max_iter=1000)


def objective(problem: Problem, fit: Any, X: Any, y: Any) -> float:
    """The mean of the losses ranked m+1..k + ||w||^2 / (2 C (k - m)), from the definition."""
    coef = np.atleast_2d(fit.coef_).astype(np.float64)
    z = X @ coef.T + fit.intercept_
    if problem.loss in ("squared", "absolute"):
        s = np.abs(z[:, 0] - y) ** (2 if problem.loss == "squared" else 1)
    elif problem.loss in CLASSES:
        s = np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), y]
    else:
        margin = np.where(y == 1, 1, -1) * z[:, 0]
        s = np.maximum(0, 1 - margin) if problem.loss == "hinge" else np.logaddexp(0, -margin)
    m, k = round(problem.m * len(y)), round(problem.k * len(y))
    return float(np.sort(s)[::-1][m:k].mean() + (coef**2).sum() / (2 * penalty(problem) * (k - m)))


def data(problem: Problem, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    if problem.loss == "sparse":
        return text_like(problem, rng)
    n, d = SIZES[problem.size]
    X = rng.normal(size=(n, d))
    if problem.kind == "correlated":
        X = np.sqrt(0.1) * X + np.sqrt(0.9) * rng.normal(size=(n, 1))  # each pair of columns: 0.9
    wild = rng.random(n) < 0.1 if problem.kind in ("flipped", "scattered", "cluster") else np.zeros(n, dtype=bool)
    n_outputs = CLASSES.get(problem.loss, 1)
    w = rng.normal(size=(d, n_outputs)) / np.sqrt(d)
    z = 3.0 * (X @ w) / (X @ w).std(axis=0)
    if problem.kind == "scattered":
        X[wild] *= 10.0
    if problem.kind == "cluster":
        X[wild] = 12.0 * w[:, 0] / np.linalg.norm(w[:, 0]) + 0.5 * rng.normal(size=(int(wild.sum()), d))
    if problem.loss in ("squared", "absolute"):
        y = z[:, 0] + rng.normal(size=n)
        y[wild] = -10.0 * y[wild] + 20.0
        return X, y
    if n_outputs > 1:
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        y[wild] = (y[wild] + 1) % n_outputs
        return X, y
    shift = np.quantile(z[:, 0] + rng.logistic(size=n), 0.97) if problem.kind == "rare" else 0.0
    y = (z[:, 0] + rng.logistic(size=n) > shift).astype(int)
    y[wild] = 0 if problem.kind == "cluster" else 1 - y[wild]
    return X, y


def text_like(problem: Problem, rng: np.random.Generator) -> tuple[Any, Any]:
    """Words of a Zipf law, about 60 a row, weighted by rarity and of unit length."""
    n, d = (2_000, 500) if problem.size == "small" else (20_000, 5_000)
    word = np.minimum(rng.zipf(1.3, size=n * 60) - 1, d - 1)
    X = sp.csr_matrix((np.ones(n * 60), word, np.arange(0, n * 60 + 1, 60)), shape=(n, d))
    X.sum_duplicates()
    X = X @ sp.diags(np.log(n / (1.0 + np.asarray((X > 0).sum(axis=0)).ravel())))
    X = sp.csr_matrix(sp.diags(1.0 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel() + 1e-12)) @ X)
    z = X @ rng.normal(size=d)
    y = (3.0 * z / z.std() + rng.logistic(size=n) > 0).astype(int)
    wild = rng.random(n) < (0.1 if problem.kind == "flipped" else 0.0)
    y[wild] = 1 - y[wild]
    return X, y


def problems(sizes: list[str], losses: list[str]) -> Iterator[Problem]:
    for loss in losses:
        kinds = {"logistic": KINDS, "sparse": ("clean", "flipped")}.get(loss, ("clean", "scattered"))
        there = [size for size in sizes if loss == "logistic" or size != "large"]
        for size, kind, (m, k) in itertools.product(there, kinds, RANGES):
            yield Problem(loss, size, kind, m, k)


def core_seconds(estimator: Any, X: Any, y: Any) -> float:
    start = time.process_time()
    estimator.fit(X, y)
    return time.process_time() - start


def measure(problem: Problem, repeats: int | None) -> dict[str, Any]:
    X, y = data(problem)
    fit, peer = ours(problem), ordinary(problem)
    times = []
    for _ in range(repeats or REPEATS[problem.size]):
        times.append((core_seconds(peer, X, y), core_seconds(fit, X, y)))
        if times[-1][1] > 5.0:  # long enough to be known from once
            break
    theirs_s, ours_s = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        **problem._asdict(),
        "ordinary_s": round(theirs_s, 5),
        "ours_s": round(ours_s, 5),
        "ratio": round(ours_s / theirs_s, 3),
        "objective": f"{objective(problem, fit, X, y):.12g}",
        "certificate": f"{fit.certificate_:.3g}",
        "n_iter": fit.n_iter_,
        "seed": 0,
    }


def earlier(name: str) -> dict[Problem, float]:
    with open(record.RESULTS / f"{name}.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {
        Problem(row["loss"], row["size"], row["kind"], float(row["m"]), float(row["k"])): float(row["objective"])
        for row in rows
    }


def report(rows: list[dict[str, Any]], before: dict[Problem, float]) -> None:
    for loss in dict.fromkeys(row["loss"] for row in rows):
        part = sorted((row for row in rows if row["loss"] == loss), key=lambda row: row["ratio"])
        ratios = [row["ratio"] for row in part]
        worst = Problem(*(part[-1][field] for field in Problem._fields))
        print(
            f"{loss}: {len(part)} problems, ratio to one ordinary fit: median {np.median(ratios):.2f}, 90% "
            f"{np.quantile(ratios, 0.9):.2f}, worst {ratios[-1]:.1f} ({worst.name})"
        )
        open_ones = [row for row in part if not float(row["certificate"]) <= 1e-6]
        print(f"    certificate above 1e-6: {len(open_ones)}, infinite: {_infinite(open_ones)}")
        if before:
            changes = [
                (above(row, before[key]), key.name)
                for row in part
                if (key := Problem(*(row[field] for field in Problem._fields))) in before
            ]
            if changes:
                change, name = max(changes)
                print(f"    objective above the earlier one: worst {change:.2e} ({name}), best {min(changes)[0]:.2e}")


def above(row: dict[str, Any], before: float) -> float:
    """By how much of itself the objective is above an earlier one; values below 1e-9 are all zero."""
    return (float(row["objective"]) - before) / max(before, 1e-9)


def _infinite(rows: list[dict[str, Any]]) -> int:
    return sum(row["certificate"] == "inf" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="small,medium,large")
    parser.add_argument("--losses", default=",".join(LOSSES))
    parser.add_argument("--only", default="", help="problems whose name holds this text")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--record", help="append the rows to benchmarks/results/NAME.csv")
    parser.add_argument("--against", help="an earlier record to compare objectives with")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    before = earlier(arguments.against) if arguments.against else {}
    rows = []
    for problem in problems(arguments.sizes.split(","), arguments.losses.split(",")):
        if arguments.only in problem.name:
            row = measure(problem, arguments.repeats)
            rows.append(row)
            change = f"{above(row, before[problem]):+.1e}" if problem in before else ""
            print(
                f"{problem.name:<44} ordinary {row['ordinary_s']:8.4f} ours {row['ours_s']:8.4f} ratio "
                f"{row['ratio']:7.2f} gap {row['certificate']:>9} objective {row['objective']} {change}",
                flush=True,
            )
    report(rows, before)
    if arguments.record:
        record.append(arguments.record, rows)


if __name__ == "__main__":
    main()
