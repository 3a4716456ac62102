"""Out-of-core fits and fits on Dask: seconds, passes and memory, beside the fit in memory and one epoch of SGD."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import rankrange
from rankrange import AoRRClassifier

from .harness import Row, alone, benchmark, peak_mb

COLUMNS = 30
GROUP = 1 << 17
METHODS = ("memory", "parquet", "spill", "npy", "sgd", "dask")


def rows_of(first: int, n: int) -> tuple[Any, Any]:
    """Rows `first` to first + n, the same whatever the size of the table; `first` is a multiple of GROUP."""
    truth = np.random.default_rng(0).normal(size=COLUMNS)
    rng = np.random.default_rng((0, first))
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32)
    y = X @ truth.astype(np.float32) / 2 + rng.logistic(size=n) > 0
    far = rng.random(n) < 0.1
    X[far] += (6 * truth / np.linalg.norm(truth)).astype(np.float32)
    y[far] = False
    return X, y.astype(np.int8)


def chunk(first: int, n: int) -> tuple[Any, Any]:
    parts = [rows_of(at, min(GROUP, first + n - at)) for at in range(first, first + n, GROUP)]
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def parquet(n: int, folder: Path) -> Path:
    """A Parquet file of n rows, made once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"rows-{n}.parquet"
    if path.exists():
        return path
    schema = pa.schema([(f"x{j}", pa.float32()) for j in range(COLUMNS)] + [("y", pa.int8())])
    with pq.ParquetWriter(f"{path}.part", schema) as writer:
        for first in range(0, n, GROUP):
            X, y = rows_of(first, min(GROUP, n - first))
            columns = [pa.array(np.ascontiguousarray(X[:, j])) for j in range(COLUMNS)]
            writer.write_table(pa.table([*columns, pa.array(y)], schema=schema))
    os.replace(f"{path}.part", path)
    return path


def timed_fit(fit: Callable[[], Any]) -> Row:
    clock, cores = time.perf_counter(), time.process_time()
    model = fit()
    row: Row = {"seconds": round(time.perf_counter() - clock, 3), "core_seconds": round(time.process_time() - cores, 3)}
    names = {"passes": "n_passes_", "certificate": "certificate_", "objective": "objective_"}
    return row | {key: getattr(model, name, "") for key, name in names.items()}


def on_dask(n: int, workers: int, model: Any) -> Row:
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster, wait

    with LocalCluster(workers, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        size = 4 * GROUP if n > 2_000_000 else GROUP
        sizes = [min(size, n - first) for first in range(0, n, size)]
        parts = [dask.delayed(chunk)(i * size, rows) for i, rows in enumerate(sizes)]
        X = [da.from_delayed(part[0], (rows, COLUMNS), np.float32) for part, rows in zip(parts, sizes, strict=True)]
        y = [da.from_delayed(part[1], (rows,), np.int8) for part, rows in zip(parts, sizes, strict=True)]
        X, y = client.persist([da.concatenate(X), da.concatenate(y)])
        wait([X, y])
        model.fit(X[:20_000], y[:20_000])  # imports on the workers
        before = sum(client.run(time.process_time).values())
        row = timed_fit(lambda: model.fit(X, y))
        workers_seconds = sum(client.run(time.process_time).values()) - before
        return row | {"core_seconds": round(row["core_seconds"] + workers_seconds, 3)}


def measure(method: str, n: int, m: float, k: float, folder: str, workers: int) -> Row:
    """One fit, timed from data at rest to coefficients. C is 1 in scikit-learn's meaning."""
    model = AoRRClassifier(m=m, k=k, tol=1e-6, random_state=0)
    if method == "dask":
        return on_dask(n, workers, model) | {"peak_mb": peak_mb()}
    model.fit(*chunk(0, 5000))  # imports
    if method == "memory":
        X, y = chunk(0, n)
        return timed_fit(lambda: model.fit(X, y)) | {"peak_mb": peak_mb()}
    path = parquet(n, Path(folder))
    with tempfile.TemporaryDirectory(dir=folder) as copy:
        os.environ["TMPDIR"] = tempfile.tempdir = copy
        if method == "npy":
            for name, part in zip("Xy", chunk(0, n), strict=True):
                np.save(f"{copy}/{name}.npy", part)
            source = rankrange.scan(f"{copy}/X.npy", target=f"{copy}/y.npy")
        else:
            source = rankrange.scan(path, target="y", spill=copy if method == "spill" else None)
        return timed_fit(lambda: epoch(path) if method == "sgd" else model.fit(source)) | {"peak_mb": peak_mb()}


def epoch(path: Path) -> Any:
    """One epoch of SGD over batches of the file."""
    import pyarrow.parquet as pq
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="log_loss", random_state=0)
    for batch in pq.ParquetFile(path).iter_batches(1 << 16):
        values = [batch.column(j).to_numpy() for j in range(COLUMNS + 1)]
        model.partial_fit(np.column_stack(values[:-1]), values[-1], classes=[0, 1])
    return model


def _by_size(rows: pd.DataFrame) -> pd.DataFrame:
    by = ["n", "m", "k", "method"]
    return (
        rows.groupby(by, sort=False)[["seconds", "core_seconds", "peak_mb"]]
        .median()
        .join(rows.groupby(by)[["passes", "certificate"]].first())
    )


@benchmark(_by_size, rows=(6000,), methods=("memory", "parquet", "npy"), repeat=1)
def scale(
    rows: tuple = (1_000_000, 5_000_000),
    methods: tuple = METHODS,
    folder: str = "",
    workers: int = 2,
    repeat: int = 3,
) -> Iterator[Row]:
    """Seconds, core seconds (of all processes of a cluster), passes and peak memory, in processes of their own.

    Binary data, 30 columns of float32, a tenth of the rows far outliers with one label. "parquet" is a scan as it
    comes, "spill" copies to plain numbers first, "sgd" is one epoch of SGDClassifier. Methods run in turn.
    """
    place = folder or str(Path(tempfile.gettempdir(), "rankrange-scale"))
    Path(place).mkdir(parents=True, exist_ok=True)
    for n in rows:
        parquet(n, Path(place))
        for m, k in ((0.1, 1.0), (0.1, 0.9)):
            for _ in range(repeat):
                for method in methods:
                    common = {"method": method, "n": n, "d": COLUMNS, "m": m, "k": k, "workers": workers}
                    yield common | alone(measure, method, n, m, k, place, workers)
