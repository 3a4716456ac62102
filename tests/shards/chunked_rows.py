"""Tables for tests of fits in passes, and the three ways to pass over them: chunks, Dask and tensors."""

from itertools import pairwise

import numpy as np
import pytest

from rankrange.shards import ArrayRows

N, D = 30_000, 5
WAYS = ("chunks", "dask", "tensors")


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


def numeric(n=N, seed=1):
    """A linear target whose first tenth are outliers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    y = X @ np.arange(1.0, D + 1) + 0.3 * rng.normal(size=n)
    y[: n // 10] += 50
    return X, y


def weights(kind, n=N):
    rng = np.random.default_rng(5)
    return {"none": None, "whole": rng.integers(0, 3, n).astype(float), "parts": rng.uniform(0.5, 1.5, n)}[kind]


def edges_of(n):
    """Uneven chunks, one of them empty."""
    return 0, n // 30, 3 * n // 10, 3 * n // 10, 2 * n // 3 + 1, n


def in_chunks(X, y, weight=None, edges=None, sample_rows=6_000, columns=None):
    """A sample that is much smaller than the data, as it is with data that do not fit into memory."""
    edges = edges_of(X.shape[0]) if edges is None else edges
    parts = [None if part is None else [part[a:b] for a, b in pairwise(edges)] for part in (X, y, weight)]
    rows = ArrayRows(*parts, columns=columns)
    rows.sample_rows = sample_rows
    return rows


def fit_by(way, model, X, y, weight=None, sample_rows=6_000):
    """The model, fitted to the table in one of the ways."""
    if way == "chunks":
        return model.fit(in_chunks(X, y, weight, sample_rows=sample_rows))
    if way == "dask":
        dask, arrays = pytest.importorskip("dask"), pytest.importorskip("dask.array")
        chunks = tuple(b - a for a, b in pairwise(edges_of(X.shape[0])))
        given = (
            None if part is None else arrays.from_array(part, chunks=(chunks, *part.shape[1:]))
            for part in (X, y, weight)
        )
        with dask.config.set({"scheduler": "synchronous", "rankrange.sample-rows": sample_rows}):
            return model.fit(*given)
    pytest.importorskip("torch")
    from rankrange.shards.tensor_rows import tensor_rows

    rows = tensor_rows(X, y, weight, model)
    rows.sample_rows, rows.spaced_rows, rows.chunk_rows = sample_rows, sample_rows, 9_001
    return model.fit(rows)
