"""Intervals of a trimmed logistic regression: ours, and the ordinary formula on the rows that are kept.

    python benchmarks/classification_intervals.py [--repeats 200] [--first-seed 20000]

500 rows of two standard normal predictors, slopes 1 and intercept 0, of which a tenth is dropped (m=0.1, C=1000). As
many labels are wrong as none, half or all of the dropped rows; they are planted on rows that are drawn from those whose
right label has a probability above 0.9. For each coefficient: the mean estimate, the standard deviation of the
estimates, the mean standard error, and the share of samples whose 95% interval contains the truth.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy.special import expit

import record
from rankrange import AoRRClassifier

N, M, TRUTH = 500, 0.1, np.array([0.0, 1.0, 1.0])
NAMES = ("intercept", "slope 1", "slope 2")


def sample(share: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows and labels of which share * M * N are wrong."""
    X = rng.normal(size=(N, 2))
    p = expit(X.sum(axis=1))
    y = (rng.random(N) < p).astype(int)
    sure = np.flatnonzero(np.where(y == 1, p, 1 - p) > 0.9)
    wrong = rng.choice(sure, min(round(share * M * N), len(sure)), replace=False)
    y[wrong] = 1 - y[wrong]
    return X, y


def intervals(X: Any, y: Any) -> tuple[Any, Any, Any, Any, Any]:
    """(estimates, our standard errors, our intervals, ordinary standard errors, ordinary intervals)."""
    model = AoRRClassifier(M, 1.0, C=1000.0, random_state=0).fit(X, y)
    found = model.summary()
    Z, b = np.column_stack([np.ones(len(y)), X]), found.coef
    penalty = np.array([0.0, 1.0, 1.0]) / model.C_
    p = expit(Z @ b)
    # The usual formula on the kept rows, as if no row had been dropped.
    hessian = (Z * (~model.dropped_ * p * (1 - p))[:, None]).T @ Z + np.diag(penalty)
    ordinary = np.sqrt(np.diag(np.linalg.inv(hessian)))
    return b, found.bse, found.conf_int(), ordinary, np.column_stack([b - 1.96 * ordinary, b + 1.96 * ordinary])


def cell(share: float, repeats: int, first_seed: int) -> list[dict[str, Any]]:
    seeds = range(first_seed, first_seed + repeats)
    b, bse, ours, ordinary, plain = (
        np.array(part)
        for part in zip(*(intervals(*sample(share, np.random.default_rng(s))) for s in seeds), strict=True)
    )
    return [
        {
            "dropped_wrong": share, "coefficient": name, "truth": float(TRUTH[j]),
            "mean": round(float(b[:, j].mean()), 3), "sd": round(float(b[:, j].std()), 3),
            "bse": round(float(bse[:, j].mean()), 3),
            "covered": _covered(ours[:, j], TRUTH[j]), "ordinary_bse": round(float(ordinary[:, j].mean()), 3),
            "ordinary_covered": _covered(plain[:, j], TRUTH[j]), "repeats": repeats, "first_seed": first_seed,
        }
        for j, name in enumerate(NAMES)
    ]  # fmt: skip


def _covered(ends: Any, truth: float) -> float:
    return round(float(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=20_000)
    given = parser.parse_args()
    for share in (0.0, 0.5, 1.0):
        rows = cell(share, given.repeats, given.first_seed)
        for row in rows:
            print(row, flush=True)
        record.append("classification_intervals", rows)


if __name__ == "__main__":
    main()
