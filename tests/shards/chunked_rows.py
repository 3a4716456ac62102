"""Tables for tests of fits in passes, and the same tables in chunks."""

from itertools import pairwise

import numpy as np

from rankrange.shards import ArrayRows

N, D = 30_000, 5
EDGES = (0, 1_000, 9_000, 9_000, 20_001, N)


def table(classes=2, dtype=np.float64, n=N, far=0.1, seed=0):
    """Rows of overlapping classes; exactly a tenth of them far away with a wrong label, so that one cut is the best."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(D, classes))
    X = rng.normal(size=(n, D))
    y = (X @ truth + rng.gumbel(size=(n, classes))).argmax(axis=1)
    bad = rng.permutation(n)[: round(far * n)]
    X[bad] += 12 * (truth[:, 0] - truth[:, 1]) / np.linalg.norm(truth[:, 0] - truth[:, 1])
    y[bad] = 1
    return X.astype(dtype), y


def in_chunks(X, y, weight=None, edges=EDGES, sample_rows=6_000, columns=None):
    """A sample that is much smaller than the data, as it is with data that do not fit into memory."""
    parts = [None if part is None else [part[a:b] for a, b in pairwise(edges)] for part in (X, y, weight)]
    rows = ArrayRows(*parts, columns=columns)
    rows.sample_rows = sample_rows
    return rows


def weights(kind, n=N):
    rng = np.random.default_rng(5)
    return {"none": None, "whole": rng.integers(0, 3, n).astype(float), "parts": rng.uniform(0.5, 1.5, n)}[kind]
