"""m="auto" with aggregate="per-class" on random imbalanced tables: the share dropped, and the gain over m = 0.

    RANKRANGE_DATA=... python benchmarks/auto_imbalanced.py [--seeds 60] [--first-seed 0] [--no-record]

Each seed draws a table of two classes with 10 to 30% of the rows in the rare class: simulated (Gaussian classes,
heavy-tailed classes, a curved boundary, separate clusters, or a logistic model) or real (one class of a real set
against the others, rows of one class left out if it is not rare). Half of the rows test. Errors are planted in the
training half alone:
- symmetric: any label is wrong at this rate. rare: labels of the rare class at three times the rate.
  frequent: labels of the frequent class at this rate. far: rows 5 to 15 times as far out, with wrong labels.
Reported: the share of rows dropped, and accuracy, balanced accuracy and AUC on clean labels, minus those of m = 0.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

import record
from corrupted import corrupt, scaled
from rankrange import AoRRClassifier, noise

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction import data

CELLS = (
    ("none", 0.0),
    ("symmetric", 0.1),
    ("symmetric", 0.2),
    ("rare", 0.1),
    ("frequent", 0.1),
    ("far", 0.1),
)
SIMULATED = ("gaussian", "heavy", "curved", "clusters", "logistic")
REAL = ("breast cancer", "digits", "wine", "australian", "phoneme", "splice", "titanic", "emotions", "yeast")


_MOST_ROWS = 2500


def draw(seed: int) -> tuple[str, Any, Any]:
    """The name of a random table, its rows, and its labels: 1 is the rare class."""
    rng = np.random.default_rng(seed)
    rare = rng.uniform(0.1, 0.3)
    name = str(rng.choice(SIMULATED if seed % 2 else REAL))
    X, y = _simulated(name, rare, rng) if seed % 2 else _real(name, rare, rng)
    return name, X, y


def _simulated(name: str, rare: float, rng: Any) -> tuple[Any, Any]:
    n, d = int(np.exp(rng.uniform(np.log(400), np.log(4000)))), int(rng.integers(2, 16))
    apart = rng.uniform(1.0, 3.5)
    if name == "logistic":
        X = rng.normal(size=(n, d))
        z = apart * X @ rng.normal(size=d) / np.sqrt(d) + rng.logistic(size=n)
        return X, (z > np.quantile(z, 1.0 - rare)).astype(int)
    y = (rng.random(n) < rare).astype(int)
    X = rng.normal(size=(n, d))
    if name == "heavy":
        X = rng.standard_t(3, size=(n, d))
    if name == "clusters":
        X += 2.0 * rng.normal(size=(6, d))[rng.integers(6, size=n)]
    direction = rng.normal(size=d)
    X += apart * y[:, None] * direction / np.linalg.norm(direction)
    if name == "curved":
        X[:, 0] += 0.5 * (X[:, 1] ** 2 - 1.0)
    return X, y


def _real(name: str, rare: float, rng: Any) -> tuple[Any, Any]:
    if name in ("breast cancer", "digits", "wine"):
        X, y = {"breast cancer": load_breast_cancer, "digits": load_digits, "wine": load_wine}[name](return_X_y=True)
    else:
        bunch = data.load(name)
        X, y = np.asarray(bunch.data, dtype=float), np.asarray(bunch.target)
    if y.ndim == 2:
        shares = y.mean(axis=0)
        y = y[:, rng.choice(np.flatnonzero((shares > 0.08) & (shares < 0.6)))]
    y = (y == rng.choice(np.unique(y))).astype(int)
    y = 1 - y if y.mean() > 0.5 else y
    most = int(rare / (1.0 - rare) * (y == 0).sum())
    ones = rng.permutation(np.flatnonzero(y))[: max(most, 20)]
    rows = rng.permutation(np.concatenate([np.flatnonzero(y == 0), ones]))[:_MOST_ROWS]
    return X[rows], y[rows]


def halves(seed: int) -> tuple[str, Any, Any, Any, Any]:
    """The name of a table, and scaled rows and labels of its training half and of its test half."""
    name, X, y = draw(seed)
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    return name, *scaled(X[train], X[test]), y[train], y[test]


def planted(X: Any, y: Any, kind: str, rate: float, seed: int) -> tuple[Any, Any]:
    if kind == "none":
        return X, y
    if kind in ("rare", "frequent"):
        return X, noise.asymmetric(y, {1: 0} if kind == "rare" else {0: 1}, 3 * rate if kind == "rare" else rate, seed)
    return corrupt(X, y, kind, rate, seed)


def figures(model: Any, X: Any, y: Any) -> dict[str, float]:
    found = {
        "accuracy": model.score(X, y),
        "balanced": balanced_accuracy_score(y, model.predict(X)),
        "auc": roc_auc_score(y, model.decision_function(X)),
    }
    return {key: 100 * float(value) for key, value in found.items()}


def measure(seed: int, kind: str, rate: float) -> dict[str, Any]:
    name, X, X_test, y, y_test = halves(seed)
    X, given = planted(X, y, kind, rate, seed)
    ordinary = figures(AoRRClassifier(m=0).fit(X, given), X_test, y_test)
    auto = AoRRClassifier(aggregate="per-class", random_state=seed).fit(X, given)
    found = figures(auto, X_test, y_test)
    return {
        "seed": seed,
        "set": name,
        "n": len(y),
        "rare": round(float(y.mean()), 3),
        "kind": kind,
        "rate": rate,
        "dropped": round(auto.m_ / len(y), 4),
        "wrong": round(float((given != y).mean()), 4),
        **{f"{key}_ordinary": round(value, 3) for key, value in ordinary.items()},
        **{key: round(value, 3) for key, value in found.items()},
    }


def summary(rows: list[dict[str, Any]]) -> None:
    """By kind of errors: the median and the largest share dropped, and the mean gain over m = 0 with its error."""
    print("errors, tables; dropped: median, 90%, worst; gain in accuracy, balanced accuracy and AUC (error), worst")
    for kind, rate in CELLS:
        of = [row for row in rows if (row["kind"], row["rate"]) == (kind, rate)]
        dropped = np.array([row["dropped"] for row in of])
        gains = []
        for key in ("accuracy", "balanced", "auc"):
            gain = np.array([row[key] - row[f"{key}_ordinary"] for row in of])
            gains.append(f"{gain.mean():+6.2f} ({gain.std(ddof=1) / np.sqrt(len(gain)):.2f}) {gain.min():+6.1f}")
        worst = of[int(dropped.argmax())]
        print(
            f"{kind:>10} {rate:.1f}  {len(of):6}  {np.median(dropped):.2f} {np.quantile(dropped, 0.9):.2f} "
            f"{dropped.max():.2f} ({worst['set']}, seed {worst['seed']})   {'  '.join(gains)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of fits that stop at max_iter
    rows = []
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        rows += [measure(seed, kind, rate) for kind, rate in CELLS]
        for row in rows[-len(CELLS) :]:
            print(*row.values(), flush=True)
    summary(rows)
    if not arguments.no_record:
        print(f"added to {record.append('auto_imbalanced', rows)}")


if __name__ == "__main__":
    main()
