"""What a certified AoRR fit costs, as ratios inside one run: against ONE scikit-learn fit, and against Algorithm 1.

    OMP_NUM_THREADS=1 python benchmarks/linear.py [--quick]

Prints tables and appends the rows to benchmarks/results/linear.csv with commit and device. Targets: one full fit at
most 1.5 times LogisticRegression(lbfgs, tol=1e-6) at 20,000 x 50 and 1.0 times at 200,000 x 100 and 1,000,000 x 50;
AT_k at most 1.5 times; at most 10 vectors of length n beside X.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import record
from rankrange import AoRRClassifier, RankedRange
from rankrange.core.losses import Logistic, Softmax
from rankrange.core.objective import Design, Objective
from rankrange.solvers import subgradient

warnings.simplefilter("ignore", ConvergenceWarning)
# Relative to the mean of the kept losses, so that the penalty weighs the same at every size and every range.
C_OF_MEAN = 1e3


def seconds(repeats, run, *args):
    """Median wall time and the last result."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = run(*args)
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


def far_outliers(n, d, seed=0, share=0.1, strength=2.5):
    """Logistic data; `share` of the rows in one far cluster with the wrong label."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, d)), rng.normal(size=d)
    w *= strength / np.linalg.norm(w)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-X @ w)), 1, -1)
    out = rng.choice(n, int(share * n), replace=False)
    X[out] = 12.0 * w / np.linalg.norm(w) + 0.5 * rng.normal(size=(len(out), d))
    y[out] = -1
    return X, y


def fit_of(n, **ranks):
    """A classifier for n rows with the C of scikit-learn's meaning, relative to the sum of the kept losses."""
    m, k = RankedRange(**ranks).counts(n)
    return AoRRClassifier(C=C_OF_MEAN / (k - m), random_state=0, **ranks)


SETTINGS = {
    "trimmed m=.1 k=1": ({"m": 0.1, "k": 1.0}, {}),
    "AoRR m=.1 k=.9": ({"m": 0.1, "k": 0.9}, {}),
    "AT_k k=.9, clean data": ({"m": 0.0, "k": 0.9}, {"share": 0.0, "strength": 4.0}),
    "AT_k k=.5, clean data": ({"m": 0.0, "k": 0.5}, {"share": 0.0, "strength": 4.0}),
    "average, clean data": ({"m": 0.0, "k": 1.0}, {"share": 0.0, "strength": 4.0}),
}


def against_one_ordinary_fit(sizes, repeats):
    rows = []
    print(f"{'rows x columns':>16} {'setting':<24} {'ordinary s':>10} {'ours s':>8} {'ratio':>6} {'certificate':>12}")
    for n, d in sizes:
        for name, (ranks, data) in SETTINGS.items():
            X, y = far_outliers(n, d, **data)
            fit_ordinary = LogisticRegression(solver="lbfgs", tol=1e-6)
            fit_ours = fit_of(n, **ranks)
            pairs = [(seconds(1, fit_ordinary.fit, X, y)[0], seconds(1, fit_ours.fit, X, y)[0]) for _ in range(repeats)]
            ordinary, ours = (statistics.median(times) for times in zip(*pairs, strict=True))
            ratio = statistics.median(second / first for first, second in pairs)
            size = f"{n:,} x {d}"
            print(f"{size:>16} {name:<24} {ordinary:>10.3f} {ours:>8.3f} {ratio:>6.2f} {fit_ours.certificate_:>12.1e}")
            rows.append(
                {
                    "table": "ordinary",
                    "size": size,
                    "setting": name,
                    "seconds": ours,
                    "ratio": ratio,
                    "certificate": fit_ours.certificate_,
                }
            )
    return rows


def against_algorithm_1(n, d):
    """Time of `auto` to its objective, over the time the printed algorithm needs to come within 1% of it, or had."""
    X, y = far_outliers(n, d)
    ours_s, ours = seconds(3, fit_of(n, m=0.1, k=1.0).fit, X, y)
    ours_value = ours.objective_ / C_OF_MEAN
    problem = Objective(Design(X, True), y.astype(float), Logistic(), C_OF_MEAN, 1, m=ours.m_, k=ours.k_)
    start = 0.01 * np.random.default_rng(0).normal(size=(1, d + 1))
    theirs_s, theirs = seconds(1, subgradient, problem, start)
    reached = theirs.value <= 1.01 * ours_value
    end = "" if reached else "; it did not get there"
    print(f"\nAlgorithm 1 at {n:,} x {d}: {theirs_s:.1f} s to {theirs.value:.4f}")
    print(f"auto: {ours_s:.3f} s to {ours_value:.4f}, 1/{theirs_s / ours_s:.0f} of the time{end}")
    return [
        {
            "table": "algorithm 1",
            "size": f"{n:,} x {d}",
            "setting": "trimmed m=.1 k=1",
            "seconds": ours_s,
            "ratio": ours_s / theirs_s,
            "certificate": ours.certificate_,
        }
    ]


def growth(ns, d=30):
    rows = []
    print("\n      rows   seconds   seconds per million rows   peak vectors of length n beside X")
    for n in ns:
        X, y = far_outliers(n, d)
        fit = fit_of(n, m=0.1, k=1.0)
        taken, _ = seconds(3, fit.fit, X, y)
        tracemalloc.start()
        fit.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1] / (8 * n)
        tracemalloc.stop()
        print(f"{n:>10,} {taken:>9.3f} {taken / n * 1e6:>26.2f} {peak:>35.1f}")
        rows.append(
            {
                "table": "growth",
                "size": f"{n:,} x {d}",
                "setting": "trimmed m=.1 k=1",
                "seconds": taken,
                "ratio": peak,
                "certificate": fit.certificate_,
            }
        )
    return rows


def softmax_step(n=50_000, d=784, classes=10):
    """One gradient of the trimmed softmax in float32, against the obvious NumPy, in float32 and by default."""
    rng = np.random.default_rng(0)
    X, y, m = rng.random((n, d), dtype=np.float32), rng.integers(0, classes, n), n // 5
    W = 0.01 * rng.normal(size=(classes, d + 1))
    problem = Objective(Design(X, True), y, Softmax(), 1e4, classes, m=m, k=n)

    def obvious(W):
        Z = X @ W[:, :-1].T + W[:, -1]
        Z = Z - Z.max(axis=1, keepdims=True)
        P = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
        s = -np.log(P[np.arange(n), y])
        kept = np.argsort(-s)[m:]
        P[np.arange(n), y] -= 1
        return P[kept].T @ X[kept] / len(kept)

    ours, _ = seconds(5, problem.at, W)
    plain, _ = seconds(3, obvious, W)
    single, _ = seconds(3, obvious, W.astype(np.float32))
    print(
        f"\nsoftmax step {n:,} x {d} x {classes}: {ours * 1e3:.0f} ms; obvious NumPy {plain * 1e3:.0f} ms (ratio"
        f" {ours / plain:.2f}), with float32 parameters {single * 1e3:.0f} ms (ratio {ours / single:.2f})"
    )
    return [
        {
            "table": "softmax step",
            "size": f"{n:,} x {d} x {classes}",
            "setting": "float32",
            "seconds": ours,
            "ratio": ours / plain,
            "certificate": float("nan"),
        }
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    quick = parser.parse_args().quick
    sizes = [(20_000, 50)] if quick else [(20_000, 50), (200_000, 100), (1_000_000, 50)]
    rows = against_one_ordinary_fit(sizes, 3 if quick else 5)
    rows += against_algorithm_1(20_000, 50)
    rows += growth([10_000, 30_000] if quick else [10_000, 30_000, 100_000, 300_000, 1_000_000])
    if not quick:
        rows += softmax_step()
    record.append("linear", rows)


if __name__ == "__main__":
    main()
