"""Data sets with planted errors, for the benchmarks that choose m and find wrong labels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits

from rankrange import noise

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction import data

BINARY = ("australian", "phoneme", "splice", "titanic", "breast cancer")


def load(name: str) -> tuple[Any, Any]:
    if name in ("breast cancer", "digits"):
        X, y = (load_breast_cancer if name == "breast cancer" else load_digits)(return_X_y=True)
    else:
        bunch = data.load(name)
        X, y = bunch.data, bunch.target
    return np.asarray(X, dtype=float), np.asarray(y).astype(int)


def scaled(X: Any, *others: Any) -> list[Any]:
    """X and the others with the mean and the standard deviation of X's columns taken out."""
    centre, spread = X.mean(axis=0), X.std(axis=0)
    spread[spread == 0] = 1.0
    return [(part - centre) / spread for part in (X, *others)]


def corrupt(X: Any, y: Any, kind: str, rate: float, seed: int) -> tuple[Any, Any]:
    """New X and y with a share `rate` of errors.

    symmetric: the label becomes any other. class-dependent: class 1 becomes 0 (of more than two: even c becomes c + 1)
    at twice the rate, so that about `rate` of all labels are wrong where classes are even. far: rows move 5 to 15 times
    as far out along their own direction, and their labels are wrong.
    """
    if kind == "class-dependent":
        classes = np.unique(y)
        mapping = {1: 0} if len(classes) == 2 else {int(c): int(c) + 1 for c in classes if c % 2 == 0}
        return X, noise.asymmetric(y, mapping, 2 * rate, seed)
    wrong = noise.symmetric(y, rate, seed)
    if kind == "far":
        moved = wrong != y
        X = X.copy()
        X[moved] *= np.random.default_rng(seed).uniform(5, 15, (moved.sum(), 1))
    return X, wrong
