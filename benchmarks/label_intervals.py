"""Interval score of the 95% interval of the share of wrong labels, by kind of data.

    RANKRANGE_DATA=... python benchmarks/label_intervals.py [--seed 7000] [--draws 3]

The score of an interval is its width plus 40 times its distance from the true share. Kinds: three Gaussian classes with
random noise matrices of trace .95, .8 and .65 (cleanlab's generator), by probabilities of logistic regression and by X;
tables with symmetric noise; human errors in texts. Development used seed 0 and the tables of `label_noise_tables`.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from cleanlab.benchmarking.noise_generation import generate_noise_matrix_from_trace, generate_noisy_labels
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from label_noise_tables import _made
from rankrange import find_label_issues, noise

MEANS = ((3, 2), (7, 7), (0, 8))
COVARIANCES = (((5, -1.5), (-1.5, 1)), ((1, 0.5), (0.5, 4)), ((5, 1), (1, 5)))
SIZES = (400, 200, 200)
TABLES = {"cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris, "digits": load_digits}
RATES = (0.0, 0.05, 0.15, 0.3)


def gaussian(seed: int, trace: float) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.multivariate_normal(m, c, n) for m, c, n in zip(MEANS, COVARIANCES, SIZES, strict=True)])
    y = np.repeat([0, 1, 2], SIZES)
    np.random.seed(seed)  # noqa: NPY002 - cleanlab draws from the global generator
    matrix = generate_noise_matrix_from_trace(
        3, 3 * trace, py=np.bincount(y) / len(y), valid_noise_matrix=True, seed=seed
    )
    return X, y, np.asarray(generate_noisy_labels(y, matrix))


def cells(seed: int, draws: int) -> Iterator[tuple[str, float, Any]]:
    """Kind, true share and result of each cell."""
    for draw in range(draws):
        for trace in (0.95, 0.8, 0.65):
            X, y, given = gaussian(seed + 10 * draw + int(100 * trace), trace)
            P = cross_val_predict(LogisticRegression(), X, given, cv=5, method="predict_proba")
            yield f"Gaussian {trace}, probabilities", (y != given).mean(), find_label_issues(y=given, pred_probs=P)
            yield f"Gaussian {trace}, X", (y != given).mean(), find_label_issues(X, given, random_state=draw)
    tables = {name: load(return_X_y=True) for name, load in TABLES.items()}
    tables |= {name: _made(name, 700, np.random.default_rng(seed)) for name in ("spirals", "checkerboard", "colours")}
    for X, y in tables.values():
        rows = np.random.default_rng(seed).permutation(len(y))[:700]
        for rate in RATES:
            given = noise.symmetric(y[rows], rate, random_state=seed)
            yield f"tables, {rate:.0%}", (y[rows] != given).mean(), find_label_issues(X[rows], given, random_state=0)
    path = Path(os.environ.get("RANKRANGE_DATA", ""), "label_errors", "movie_reviews_crowd.csv.gz")
    if path.exists():
        crowd = pd.read_csv(path)
        yield "crowd text", crowd["is_error"].mean(), find_label_issues(y=crowd["given_label"], texts=crowd["text"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seed", type=int, default=7000)
    options.add_argument("--draws", type=int, default=3)
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for kind, share, issues in cells(asked.seed, asked.draws):
        low, high = issues.noise_interval
        score = high - low + 40 * max(0.0, low - share, share - high)
        rows.append((kind, share, issues.contradicted, low, high, score, low <= share <= high))
    names = ("kind", "true", "contradicted", "low", "high", "score", "covered")
    table = pd.DataFrame(rows, columns=names).groupby("kind", sort=False).mean()
    print(table.round(3).to_string(), f"\nmean over kinds: {table['score'].mean():.3f}, {table['covered'].mean():.3f}")


if __name__ == "__main__":
    main()
