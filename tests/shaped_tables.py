"""Tables of known true classes: shapes that a line sees and shapes that it does not, with and without overlap."""

from collections.abc import Callable

import numpy as np


def _xor(X, rng):
    return (X[:, 0] * X[:, 1] > 0).astype(int)


def _shifted_xor(X, rng):
    return ((X[:, 0] + 0.4) * (X[:, 1] - 0.3) > 0).astype(int)


def _circle(X, rng):
    return (np.hypot(X[:, 0], X[:, 1]) > 1.18).astype(int)


def _checkerboard(X, rng):
    return ((np.floor(X[:, 0] / 1.2) + np.floor(X[:, 1] / 1.2)) % 2).astype(int)


def _three_rings(X, rng):
    return np.digitize(np.hypot(X[:, 0], X[:, 1]), [0.9, 1.5])


def _line(X, rng):
    return (X @ np.array([2.0, -1.0, 1.0, 0.0]) > 0).astype(int)


def _overlap(X, rng):
    return (2.0 * X[:, 0] - X[:, 1] + rng.logistic(size=len(X)) > 0).astype(int)


def _rare_overlap(X, rng):
    return (1.5 * X[:, 0] + X[:, 2] + rng.logistic(size=len(X)) > 3).astype(int)


def _three_classes(X, rng):
    W = np.array([[3.0, -2.0, 0.0], [0.0, 2.0, -3.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    return (X @ W + rng.gumbel(size=(len(X), 3))).argmax(axis=1)


def _circle_with_overlap(X, rng):
    return (4.0 * (np.hypot(X[:, 0], X[:, 1]) - 1.18) + rng.logistic(size=len(X)) > 0).astype(int)


SHAPES: dict[str, Callable] = {
    "xor": _xor,
    "shifted xor": _shifted_xor,
    "circle": _circle,
    "checkerboard": _checkerboard,
    "three rings": _three_rings,
    "line": _line,
    "overlap": _overlap,
    "rare overlap": _rare_overlap,
    "three classes": _three_classes,
    "circle with overlap": _circle_with_overlap,
}


def shaped(name, n, noise, seed=0):
    """X (n, 4), the given labels, and which of them are wrong: a share `noise` of all, any other class alike."""
    rng = np.random.default_rng([list(SHAPES).index(name), seed])
    X = rng.normal(size=(n, 4))
    true = SHAPES[name](X, rng)
    K = int(true.max()) + 1
    wrong = rng.random(n) < noise
    return X, np.where(wrong, (true + rng.integers(1, K, n)) % K, true), wrong
