"""Intervals of a trimmed logistic regression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import expit

from rankrange import AoRRClassifier

from .harness import Row, benchmark, rounded

N, M, TRUTH = 500, 0.1, np.array([0.0, 1.0, 1.0])


def sample(share: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows and labels of which share * M * N are wrong, on rows whose right label has a probability above .9."""
    X = rng.normal(size=(N, 2))
    p = expit(X.sum(axis=1))
    y = (rng.random(N) < p).astype(int)
    sure = np.flatnonzero(np.where(y == 1, p, 1 - p) > 0.9)
    wrong = rng.choice(sure, min(round(share * M * N), len(sure)), replace=False)
    y[wrong] = 1 - y[wrong]
    return X, y


def intervals(X: Any, y: Any) -> tuple[Any, Any, Any, Any]:
    """Estimates, our standard errors and intervals, and standard errors as if no row had been dropped."""
    model = AoRRClassifier(M, 1.0, C=1000.0, random_state=0).fit(X, y)
    found = model.summary()
    Z, p = np.column_stack([np.ones(len(y)), X]), expit(model.intercept_ + X @ model.coef_[0])
    hessian = (Z * (~model.dropped_ * p * (1 - p))[:, None]).T @ Z + np.diag([0.0, 1.0, 1.0]) / model.C_
    return found.coef, found.bse, found.conf_int(), np.sqrt(np.diag(np.linalg.inv(hessian)))


@benchmark(lambda rows: rows.set_index(["dropped_wrong", "coefficient"]), repeats=3)
def classification_intervals(seed: int = 20_000, repeats: int = 200) -> Iterator[Row]:
    """Coverage of 95% intervals, ours and by the ordinary formula on the rows that are kept.

    500 rows of two standard normal predictors, slopes 1, of which a tenth is dropped (m=.1, C=1000); none, half or all
    of the dropped rows have wrong labels.
    """
    for share in (0.0, 0.5, 1.0):
        seeds = range(seed, seed + repeats)
        found = zip(*(intervals(*sample(share, np.random.default_rng(s))) for s in seeds), strict=True)
        b, bse, ends, ordinary = map(np.array, found)
        for j, name in enumerate(("intercept", "slope 1", "slope 2")):
            inside = (ends[:, j, 0] <= TRUTH[j]) & (TRUTH[j] <= ends[:, j, 1])
            row: Row = {"dropped_wrong": share, "coefficient": name, "mean": b[:, j].mean(), "sd": b[:, j].std()}
            row |= {"bse": bse[:, j].mean(), "covered": inside.mean(), "ordinary_bse": ordinary[:, j].mean()}
            row["ordinary_covered"] = (np.abs(b[:, j] - TRUTH[j]) <= 1.96 * ordinary[:, j]).mean()
            yield rounded(row | {"repeats": repeats, "first_seed": seed})
