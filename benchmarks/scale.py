"""Out-of-core fits and fits on Dask: seconds, passes and memory, beside the fit in memory and one epoch of SGD.

Binary data, 30 columns of float32, a tenth of the rows far outliers with one label. Each measurement runs in a process
of its own, so that peak memory is its own, and reports core seconds (of all processes of a cluster) beside the clock.

    python benchmarks/scale.py --rows 1000000 5000000 --repeat 3
    python benchmarks/scale.py --rows 20000000 --methods parquet spill sgd
    python benchmarks/scale.py --rows 1000000 --methods dask dask-ml     # needs dask-ml, which is in no extra

"parquet" is `rankrange.scan(path)` as it comes, which copies a large file to plain numbers on its first pass where the
disk has space; "decode" never copies, "spill" always does. "dask-ml" is an ordinary fit by dask-ml's lbfgs, on a
cluster of the same size, to the same chunks.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import record

COLUMNS = 30
GROUP = 1 << 17
SEED = 0
METHODS = ("memory", "parquet", "spill", "npy", "sgd", "dask", "dask-ml", "decode")
RANGES = ((0.1, 1.0), (0.1, 0.9))


def rows(first: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows `first` to first + n, the same whatever the size of the table; `first` is a multiple of GROUP."""
    truth = np.random.default_rng(SEED).normal(size=COLUMNS)
    rng = np.random.default_rng((SEED, first))
    X = rng.standard_normal((n, COLUMNS), dtype=np.float32)
    y = X @ truth.astype(np.float32) / 2 + rng.logistic(size=n) > 0
    far = rng.random(n) < 0.1
    X[far] += (6 * truth / np.linalg.norm(truth)).astype(np.float32)
    y[far] = False
    return X, y.astype(np.int8)


def table(n: int, folder: Path) -> Path:
    """A Parquet file of n rows, with the default settings of pyarrow unless given others, made once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"rows-{n}.parquet"
    if path.exists():
        return path
    schema = pa.schema([(f"x{j}", pa.float32()) for j in range(COLUMNS)] + [("y", pa.int8())])
    with pq.ParquetWriter(f"{path}.part", schema) as writer:
        for first in range(0, n, GROUP):
            X, y = rows(first, min(GROUP, n - first))
            columns = [pa.array(np.ascontiguousarray(X[:, j])) for j in range(COLUMNS)]
            writer.write_table(pa.table([*columns, pa.array(y)], schema=schema))
    os.replace(f"{path}.part", path)
    return path


def in_memory(n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = np.empty((n, COLUMNS), dtype=np.float32), np.empty(n, dtype=np.int8)
    for first in range(0, n, GROUP):
        stop = min(first + GROUP, n)
        X[first:stop], y[first:stop] = rows(first, stop - first)
    return X, y


def estimator(m: float, k: float, n: int) -> Any:
    """C is 1 in scikit-learn's meaning: C * (sum of the kept losses) + ||w||^2 / 2."""
    from rankrange import AoRRClassifier

    return AoRRClassifier(m=m, k=k, tol=1e-6, random_state=0)


def measure(method: str, n: int, m: float, k: float, folder: Path, workers: int) -> dict[str, Any]:
    """One fit, timed from data at rest to coefficients."""
    warnings.simplefilter("ignore")
    own = {"memory": run_memory, "dask": run_dask, "dask-ml": run_dask, "sgd": run_sgd}
    run = own.get(method, run_files)
    result = run(method, n, m, k, folder, workers)
    result["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return result


def timed(fit: Any) -> dict[str, Any]:
    clock, cores = time.perf_counter(), time.process_time()
    model = fit()
    return {
        "seconds": round(time.perf_counter() - clock, 3),
        "core_seconds": round(time.process_time() - cores, 3),
        "passes": getattr(model, "n_passes_", ""),
        "certificate": getattr(model, "certificate_", ""),
        "objective": getattr(model, "objective_", ""),
    }


def run_memory(method: str, n: int, m: float, k: float, folder: Path, workers: int) -> dict[str, Any]:
    X, y = in_memory(n)
    estimator(m, k, n).fit(X[:5000], y[:5000])  # imports
    return timed(lambda: estimator(m, k, n).fit(X, y))


def run_files(method: str, n: int, m: float, k: float, folder: Path, workers: int) -> dict[str, Any]:
    import rankrange

    path = table(n, folder)
    estimator(m, k, n).fit(*in_memory(5000))
    if method == "npy":
        with tempfile.TemporaryDirectory(dir=folder) as copy:
            X, y = in_memory(n)
            np.save(f"{copy}/X.npy", X), np.save(f"{copy}/y.npy", y)
            del X, y
            return timed(lambda: estimator(m, k, n).fit(rankrange.scan(f"{copy}/X.npy", target=f"{copy}/y.npy")))
    with tempfile.TemporaryDirectory(dir=folder) as copy:
        spill = {"spill": copy, "decode": None}.get(method, "auto")
        os.environ["TMPDIR"] = tempfile.tempdir = copy
        return timed(lambda: estimator(m, k, n).fit(rankrange.scan(path, target="y", spill=spill)))


def run_sgd(method: str, n: int, m: float, k: float, folder: Path, workers: int) -> dict[str, Any]:
    """One epoch over the batches that the scan reads."""
    from sklearn.linear_model import SGDClassifier

    import rankrange

    source = rankrange.scan(table(n, folder), target="y")
    model = SGDClassifier(loss="log_loss", random_state=0)

    def epoch() -> Any:
        for batch in source.shards[0].batches():
            model.partial_fit(batch.X, batch.y, classes=[0, 1])
        return model

    return timed(epoch)


def run_dask(method: str, n: int, m: float, k: float, folder: Path, workers: int) -> dict[str, Any]:
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    import rankrange.dask

    with LocalCluster(workers, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        chunk = 4 * GROUP if n > 2_000_000 else GROUP
        parts = [dask.delayed(chunk_of)(first, min(chunk, n - first)) for first in range(0, n, chunk)]
        sizes = [min(chunk, n - first) for first in range(0, n, chunk)]
        X = da.concatenate([da.from_delayed(p[0], (s, COLUMNS), np.float32) for p, s in zip(parts, sizes, strict=True)])
        y = da.concatenate([da.from_delayed(p[1], (s,), np.int8) for p, s in zip(parts, sizes, strict=True)])
        X, y = client.persist([X, y])
        from distributed import wait

        wait([X, y])
        names = ("m", "k", "C", "tol", "random_state")
        params = {name: value for name, value in estimator(m, k, n).get_params().items() if name in names}
        small = client.persist([X[:20_000], y[:20_000]])
        if method == "dask-ml":
            from dask_ml.linear_model import LogisticRegression

            def fit(X: Any, y: Any) -> Any:
                return LogisticRegression(solver="lbfgs", C=1.0).fit(X, y)
        else:

            def fit(X: Any, y: Any) -> Any:
                return rankrange.dask.AoRRClassifier(**params).fit(X, y)

        fit(*small)  # imports on the workers
        before = sum(client.run(time.process_time).values())
        result = timed(lambda: fit(X, y))
        result["core_seconds"] = round(result["core_seconds"] + sum(client.run(time.process_time).values()) - before, 3)
        return result


def chunk_of(first: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    parts = [rows(at, min(GROUP, first + n - at)) for at in range(first, first + n, GROUP)]
    return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])


def in_own_process(arguments: argparse.Namespace, method: str, n: int, m: float, k: float) -> dict[str, Any]:
    asked = json.dumps([method, n, m, k, str(arguments.folder), arguments.workers])
    done = subprocess.run([sys.executable, __file__, "--one", asked], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{method} at {n} rows failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(lines[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--methods", nargs="+", default=list(METHODS[:-2]), choices=METHODS)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "rankrange-scale")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        method, n, m, k, folder, workers = json.loads(arguments.one)
        print(json.dumps(measure(method, n, m, k, Path(folder), workers)))
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for n in arguments.rows:
        table(n, arguments.folder)
        for m, k in RANGES:
            compare(arguments, n, m, k)


def compare(arguments: argparse.Namespace, n: int, m: float, k: float) -> None:
    """Methods in turn, so that a busy moment of the machine hits all; medians are printed, all runs recorded."""
    found: dict[str, list[dict[str, Any]]] = {method: [] for method in arguments.methods}
    for _ in range(arguments.repeat):
        for method in arguments.methods:
            found[method].append(in_own_process(arguments, method, n, m, k))
    print(f"\n{n:,} x {COLUMNS} float32, m={m}, k={k}, tol=1e-6, median of {arguments.repeat} (worst)")
    for method, runs in found.items():
        seconds = [run["seconds"] for run in runs]
        print(
            f"  {method:<8} {np.median(seconds):8.2f} s ({max(seconds):.2f})  cores "
            f"{np.median([run['core_seconds'] for run in runs]):8.2f} s  passes {runs[0]['passes']!s:>2}  peak "
            f"{max(run['peak_mb'] for run in runs):>5} MB  certificate {runs[0]['certificate']}",
            flush=True,
        )
        common = {"method": method, "n": n, "d": COLUMNS, "m": m, "k": k, "workers": arguments.workers}
        record.append("scale", [{**common, **run} for run in runs])


if __name__ == "__main__":
    main()
