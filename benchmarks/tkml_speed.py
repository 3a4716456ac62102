"""Time and memory of one TKMLClassifier fit: beside scikit-learn on Yeast, and as rows and labels grow.

    RANKRANGE_DATA=... python benchmarks/tkml_speed.py

Each fit runs in a process of its own, with one thread. Seconds are those of the processor, so that other work on the
machine does not count; memory is the peak of that process less what it held before the fit.
Rows go to benchmarks/results/tkml_speed.csv. "ratio" is against one OneVsRestClassifier(LogisticRegression()) fit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction import data as paper_data

FITS = {
    "yeast TKMLClassifier": {"data": "yeast", "model": "tkml"},
    "yeast TKMLClassifier m=0.1": {"data": "yeast", "model": "tkml", "m": 0.1},
    "yeast TKMLClassifier validation=None": {"data": "yeast", "model": "tkml_end"},
    "yeast OneVsRest": {"data": "yeast", "model": "ovr"},
}
FITS |= {
    f"n={n} L=14 {model}": {"data": "made", "n": n, "L": 14, "model": model}
    for n in (1_000, 10_000, 100_000)
    for model in ("tkml", "ovr")
}
FITS |= {
    f"n=2000 L={L} {model}": {"data": "made", "n": 2000, "L": L, "model": model, "sparse_Y": L > 100}
    for L in (14, 100, 1_000, 10_000)
    for model in ("tkml", "ovr")
    if not (model == "ovr" and L > 1_000)
}
FITS |= {
    f"n=4000 L=10000 working_memory={mib}": {
        "data": "made",
        "n": 4_000,
        "L": 10_000,
        "model": "tkml_short",
        "sparse_Y": True,
        "working_memory": mib,
    }
    for mib in (1024, 64)
}


def data(fit: dict[str, Any]) -> tuple[Any, Any]:
    if fit["data"] == "yeast":
        from sklearn.preprocessing import StandardScaler

        bunch = paper_data.load("yeast")
        return StandardScaler().fit_transform(bunch.data), bunch.target
    rng = np.random.default_rng(0)
    n, n_labels, d, per_row = fit["n"], fit["L"], 100, 4
    X = rng.normal(size=(n, d))
    directions = rng.normal(size=(n_labels, d)) / np.sqrt(d)
    columns = np.concatenate(
        [
            np.argpartition(
                -(X[i : i + 1000] @ directions.T + 0.3 * rng.gumbel(size=(len(X[i : i + 1000]), n_labels))),
                per_row,
                axis=1,
            )[:, :per_row]
            for i in range(0, n, 1000)
        ]
    )
    import scipy.sparse as sp

    Y = sp.csr_array(
        (np.ones(n * per_row, dtype=np.int8), columns.ravel(), np.arange(0, n * per_row + 1, per_row)),
        shape=(n, n_labels),
    )
    return X, Y if fit.get("sparse_Y") else Y.toarray()


def model(fit: dict[str, Any], n: int) -> Any:
    """The model for n rows; C is 10 relative to the mean of the kept losses."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    from rankrange import TKMLClassifier

    if fit["model"] == "ovr":
        return OneVsRestClassifier(LogisticRegression())
    m = fit.get("m", 0)
    common = {"C": 10.0 / (n - round(m * n)), "m": m, "random_state": 0}
    if fit["model"] == "tkml_end":
        return TKMLClassifier(3, validation=None, **common)
    return TKMLClassifier(3, max_iter=5 if fit["model"] == "tkml_short" else 200, **common)


def start_peak() -> int:
    """Forget the peak so far, which making the data has raised, and return what is held now, in KiB. Linux alone."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return status("VmRSS")


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def measure(fit: dict[str, Any]) -> dict[str, float]:
    """In a process of its own."""
    import warnings

    import sklearn
    from sklearn.exceptions import ConvergenceWarning

    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", message="Label .* is present")
    if "working_memory" in fit:
        sklearn.set_config(working_memory=fit["working_memory"])
    X, Y = data(fit)
    repeats = 5 if fit["data"] == "yeast" else 1
    model(fit, X.shape[0])  # its imports are not the fit's
    before = start_peak()
    times = []
    for _ in range(repeats):
        begun = time.process_time()
        fitted = model(fit, X.shape[0]).fit(X, Y)
        times.append(time.process_time() - begun)
    peak = status("VmHWM") - before
    return {
        "seconds": float(np.median(times)),
        "peak_mib": peak / 1024,
        "data_mib": X.nbytes / 2**20,
        "steps": int(getattr(fitted, "n_iter_", 0)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="run the fits whose name has this in it")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(FITS[arguments.one])))
        return
    from record import append

    seconds = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for name in FITS:
        if arguments.only not in name:
            continue
        command = [sys.executable, __file__, "--one", name]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        figures = json.loads(out.splitlines()[-1])
        seconds[name] = figures["seconds"]
        row = {"fit": name, **{key: f"{value:.4g}" for key, value in figures.items()}}
        append("tkml_speed", [row])
        print(row, flush=True)
    if "yeast OneVsRest" in seconds:
        for name in [name for name in seconds if name.startswith("yeast T")]:
            print(f"{name}: {seconds[name] / seconds['yeast OneVsRest']:.2f} times one OneVsRest fit")


if __name__ == "__main__":
    main()
