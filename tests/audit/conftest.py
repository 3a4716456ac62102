"""Audits that several files look at, each fitted once; a test that changes one makes a copy."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def audit():
    """Two classes, 12% of the labels wrong."""
    from rankrange.audit import audit_table

    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = X @ [2.0, -1.0, 0.5] > 0
    wrong = rng.random(500) < 0.12
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "kind": rng.choice(["p", "q"], 500)}
    return audit_table({**table, "y": np.where(y ^ wrong, "good", "bad")}, "y", name="made")


@pytest.fixture(scope="session")
def outlying():
    """(table, outliers, audit) of numbers: 15 too small in rows with high leverage, which turn a line, 3 too large."""
    from rankrange.audit import audit_table

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = 100 + X @ [3.0, -2.0, 1.0] + rng.normal(scale=0.5, size=300)
    bad = rng.choice(300, 18, replace=False)
    X[bad[:15], 0] += 3.0
    y[bad[:15]] -= 30.0
    y[bad[15:]] += 30.0
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}
    return table, bad, audit_table(table, "y", jobs=1)


def _moods(form):
    """(table, target, labels of each row, names): three labels, of which all are wrong in the first eight rows."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4))
    Y = X @ rng.normal(size=(4, 3)) + 0.3 * rng.normal(size=(200, 3)) > 0
    Y[:8] = ~Y[:8]
    names = ["calm", "happy", "sad"]
    table = {f"x{j}": X[:, j] for j in range(4)}
    sets = [[name for name, true in zip(names, row, strict=True) if true] for row in Y]
    if form == "columns":
        return table | {name: Y[:, j].astype(int) for j, name in enumerate(names)}, names, Y, names
    return table | {"mood": ["|".join(labels) for labels in sets] if form == "cells" else sets}, "mood", Y, names


@pytest.fixture(scope="session")
def moods():
    """A function of the form of a multi-label target: in columns, cells or lists."""
    return _moods


@pytest.fixture(scope="session")
def multilabel():
    """(labels of each row, names, audit) of `moods`."""
    from rankrange.audit import audit_table

    table, target, Y, names = _moods("columns")
    return Y, names, audit_table(table, target)
