"""TKML: its objective, both forms of its loss, and time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from rankrange import TKMLClassifier, noise
from rankrange.metrics import top_k_multilabel_accuracy
from reproduction import data as paper

from .data import scaled
from .harness import Row, alone, benchmark, extra_memory, rounded, timed

SETS = ("emotions", "scene", "yeast")
C = 10.0  # relative to the mean of the kept losses


def _worst_ratio(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.assign(ratio=rows["objective"] / rows["descent"], above=rows["objective"] > rows["descent"] * 1.0001)
    return rows.groupby(["set", "noise"]).agg({"ratio": ["mean", "max"], "above": "sum", "seconds": "median"})


@benchmark(_worst_ratio, sets=("emotions",), most_k=1)
def tkml_descent(seed: int = 0, sets: tuple = SETS, most_k: int = 5) -> Iterator[Row]:
    """Objective of TKMLClassifier with its default starts over that of majorisation from the first start alone.

    A random half of the rows, scaled, top_k = 1..5, label noise 0 (m a tenth of the rows) and .3 (m three tenths).
    """
    for name in sets:
        bunch = paper.load(name)
        rows = np.random.default_rng(seed).permutation(len(bunch.data))[: len(bunch.data) // 2]
        X = scaled(bunch.data[rows])[0]
        for rate in (0.0, 0.3):
            Y = noise.multilabel(bunch.target[rows], rate, random_state=seed)
            m = round((0.3 if rate else 0.1) * len(X))
            for k in range(1, most_k + 1):
                settings = {"m": m, "C": C / (len(X) - m), "validation": None, "random_state": seed}
                model, seconds = timed(TKMLClassifier(k, **settings).fit, X, Y)
                first = TKMLClassifier(k, n_starts=1, **settings).fit(X, Y)
                row: Row = {"set": name, "k": k, "noise": rate, "m": m, "objective": model.objective_}
                row |= {"descent": first.objective_, "seconds": seconds, "certificate": f"{model.certificate_:.2g}"}
                yield rounded(row, 6)


def _two_sided_gain(rows: pd.DataFrame) -> pd.DataFrame:
    gain = rows["two_sided"] - rows["paper"]
    return (
        rows.groupby("k")[["two_sided", "paper"]]
        .mean()
        .assign(gain=gain.groupby(rows["k"]).mean(), error=gain.groupby(rows["k"]).sem())
    )


@benchmark(_two_sided_gain, splits=1, most_k=1)
def tkml_losses(seed: int = 100, splits: int = 30, most_k: int = 5) -> Iterator[Row]:
    """What minimising each form of the TKML loss does to accuracy on Yeast: same C, no early stop.

    Three quarters of the rows train, the last quarter is read once; `crowded` is the share of rows with more than k
    labels.
    """
    bunch = paper.load("yeast")
    for draw in range(seed, seed + splits):
        order = np.random.default_rng(draw).permutation(len(bunch.data))
        train, test = np.split(order, [int(0.75 * len(order))])
        X, X_test = scaled(bunch.data[train], bunch.data[test])
        Y, Y_test = bunch.target[train], bunch.target[test]
        for k in range(1, most_k + 1):
            row: Row = {"split": draw, "k": k, "crowded": np.mean(Y.sum(axis=1) > k)}
            for loss in ("two_sided", "paper"):
                model = TKMLClassifier(k, loss=loss, C=C / len(X), validation=None, max_iter=400, random_state=0)
                scores = model.fit(X, Y).decision_function(X_test)
                row |= {loss: 100 * top_k_multilabel_accuracy(Y_test, scores, k), f"F_{loss}": model.objective_}
            yield rounded(row)


# ---- time ------------------------------------------------------------------------------------------------------------


def many_labels(n: int, n_labels: int, d: int = 100, per_row: int = 4) -> tuple[Any, Any]:
    """Four labels a row by a linear model; Y is sparse above 100 labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    directions = rng.normal(size=(n_labels, d)) / np.sqrt(d)
    columns = []
    for start in range(0, n, 1000):
        part = X[start : start + 1000]
        scores = part @ directions.T + 0.3 * rng.gumbel(size=(len(part), n_labels))
        columns.append(np.argpartition(-scores, per_row, axis=1)[:, :per_row])
    places = np.concatenate(columns).ravel(), np.arange(0, n * per_row + 1, per_row)
    Y = sp.csr_array((np.ones(n * per_row, dtype=np.int8), *places), shape=(n, n_labels))
    return X, Y if n_labels > 100 else Y.toarray()


def one_fit(n: int, n_labels: int, name: str) -> Row:
    if n_labels:
        X, Y = many_labels(n, n_labels)
    else:
        bunch = paper.load("yeast")
        X, Y = scaled(bunch.data[:n])[0], bunch.target[:n]
    model: Any = OneVsRestClassifier(LogisticRegression())
    if name == "tkml":
        model = TKMLClassifier(3, C=10.0 / len(X), m=0, random_state=0)
    start = time.process_time()
    memory = extra_memory(lambda: model.fit(X, Y))
    row: Row = {"rows": len(X), "labels": Y.shape[1], "model": name, "seconds": time.process_time() - start}
    return rounded(row | {"extra_mib": memory / 2**20, "data_mib": X.nbytes / 2**20})


@benchmark(lambda rows: rows.set_index(["rows", "labels", "model"]), sizes=("300x14",))
def tkml_speed(
    sizes: tuple = ("2417x0", "1000x14", "10000x14", "100000x14", "2000x100", "2000x1000", "2000x10000"),
) -> Iterator[Row]:
    """Core seconds and memory of one TKMLClassifier fit beside one-vs-rest logistic regression; x0 is Yeast."""
    for size in sizes:
        n, n_labels = map(int, size.split("x"))
        for name in ("tkml", "one-vs-rest") if n_labels <= 1000 else ("tkml",):
            yield alone(one_fit, n, n_labels, name)
