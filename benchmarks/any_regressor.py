"""RankedRangeRegressor around boosted trees and forests, on tables with planted wrong numbers.

    RANKRANGE_DATA=... python benchmarks/any_regressor.py [--seeds 5] [--first 0] [--sets ...] [--base hgb]
    python benchmarks/any_regressor.py --summary [--base hgb]

60% of the rows train, at most 600, the rest tests, at most 1,000 rows; wrong numbers are planted in the training part
alone. Mean absolute error on the test part, in units of the target's standard deviation:
- plain: the base fitted to the numbers as they are; clean: the same fitted to the true ones;
- ensemble: RankedRangeRegressor(base); single: the base fitted to the rows that it keeps.
The gap is plain - clean; the share won back is (plain - method) / gap, as a ratio of sums over cells. Without planted
errors the ratio to the plain error counts, and the share of rows dropped. Times are core seconds in units of a 5-fold
cross-validation of the base in the same process.

Wrong numbers: none; shifted by 5 to 15 standard deviations of the target to either side (5, 10, 20%), upwards alone
(10%), and exchanged for those of other rows (20%), which keeps them within the range. `growing`, `laplace` and `heavy`
are made: noise that grows with a column, of a peak, and of long tails; nothing is wrong there unless planted.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import cross_val_predict

import record
from any_model import timed
from rankrange import RankedRangeRegressor

MADE = ("friedman1", "friedman2", "friedman3", "growing", "laplace", "heavy")
FILES = {"boston": "Boston.csv", "nox": "NOxEmissions.csv.gz"}
SETS = ("diabetes", "boston", "nox", *MADE)
CELLS = (
    ("none", 0.0),
    ("both sides", 0.05),
    ("both sides", 0.1),
    ("both sides", 0.2),
    ("upwards", 0.1),
    ("other", 0.2),
)


def made(name: str, seed: int, n: int = 1600) -> tuple[Any, Any]:
    """Tables of which the noise is known."""
    if name.startswith("friedman"):
        kind = {"friedman1": make_friedman1, "friedman2": make_friedman2, "friedman3": make_friedman3}[name]
        X, y = kind(n, noise=0.0, random_state=seed)
        return X, y + 0.2 * y.std() * np.random.default_rng(seed).normal(size=n)
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    signal = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * X[:, 3]
    if name == "growing":
        return X, signal + (0.1 + np.abs(X[:, 4])) * rng.normal(size=n)
    return X, signal + 0.5 * (rng.laplace(size=n) if name == "laplace" else rng.standard_t(3, n))


def table(name: str, seed: int) -> tuple[Any, Any]:
    """X and y; the rows of real tables in an order that the seed draws."""
    if name in MADE:
        return made(name, seed)
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        frame = pd.read_csv(os.path.join(os.environ["RANKRANGE_DATA"], "robust_regression", FILES[name]))
        y, X = frame.pop("target").to_numpy(), frame.to_numpy(dtype=float)
    order = np.random.default_rng(seed).permutation(len(y))
    return X[order], y[order]


def plant(y: Any, kind: str, rate: float, seed: int) -> Any:
    rng, given = np.random.default_rng([seed, 1]), y.copy()
    rows = rng.choice(len(y), round(rate * len(y)), replace=False)
    if kind == "other":
        given[rows] = y[np.roll(rows, 1)]
    elif kind != "none":
        sign = 1.0 if kind == "upwards" else rng.choice([-1.0, 1.0], len(rows))
        given[rows] += sign * rng.uniform(5, 15, len(rows)) * y.std()
    return given


def measure(name: str, kind: str, rate: float, seed: int, base_name: str) -> dict[str, Any]:
    X, y = table(name, seed)
    n = min(int(0.6 * len(y)), 600)
    X, X_test, truth, y_test = X[:n], X[n : n + 1000], y[:n], y[n : n + 1000]
    given = plant(truth, kind, rate, seed)
    base = (HistGradientBoostingRegressor if base_name == "hgb" else RandomForestRegressor)(random_state=seed)
    unit = timed(cross_val_predict, base, X, given, cv=5)[1]
    model = RankedRangeRegressor(base, random_state=seed)
    seconds = timed(model.fit, X, given)[1]
    kept, wrong = ~model.dropped_, given != truth
    fits = {
        "plain": clone(base).fit(X, given),
        "clean": clone(base).fit(X, truth),
        "ensemble": model,
        "single": clone(base).fit(X[kept], given[kept]),
    }
    row: dict[str, Any] = {"base": base_name, "set": name, "kind": kind, "rate": rate, "seed": seed, "n": n}
    for method, fit in fits.items():
        row[method] = round(float(np.abs(fit.predict(X_test) - y_test).mean() / truth.std()), 5)
    row["time"], row["dropped"] = round(seconds / unit, 3), round(float(model.dropped_.mean()), 4)
    row["precision"] = round(float(wrong[~kept].mean()), 4) if not kept.all() else ""
    row["recall"] = round(float((~kept)[wrong].mean()), 4) if wrong.any() else ""
    return row


def recorded() -> list[dict[str, str]]:
    path = record.RESULTS / "any_regressor.csv"
    return list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []


def summary(base: str) -> None:
    rows = [row for row in recorded() if row["base"] == base]
    cells: dict[Any, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        cells[row["kind"], row["rate"]].append(row)
    print(f"base {base}: {len(rows)} cells, seeds {sorted({int(row['seed']) for row in rows})}")
    for (kind, rate), found in cells.items():
        errors = {m: np.array([float(row[m]) for row in found]) for m in ("plain", "clean", "ensemble", "single")}
        recall = [float(row["recall"]) for row in found if row["recall"]]
        precision = [float(row["precision"]) for row in found if row["precision"]]
        parts = [f"dropped {np.mean([float(row['dropped']) for row in found]):.3f}"]
        if kind == "none":
            ratio = errors["ensemble"] / errors["plain"]
            by_set = {
                name: np.mean([r for r, row in zip(ratio, found, strict=True) if row["set"] == name]) for name in SETS
            }
            worst = max(by_set, key=lambda name: by_set[name])
            parts.append(f"error over plain {ratio.mean():.3f}, worst set {worst} {by_set[worst]:.3f}")
        else:
            gap = (errors["plain"] - errors["clean"]).sum()
            back = {m: (errors["plain"] - errors[m]).sum() / gap for m in ("ensemble", "single")}
            parts += [f"{m} wins back {100 * share:.0f}%" for m, share in back.items()]
            parts.append(f"recall {np.mean(recall):.2f}, precision {np.mean(precision or [np.nan]):.2f}")
        print(f"{kind:>10} {rate:>4}: " + ", ".join(parts))
    times = np.array([float(row["time"]) for row in rows])
    print(f"time {np.median(times):.2f} {np.quantile(times, 0.9):.2f} {times.max():.2f} (median, 90%, worst)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--base", default="hgb", choices=["hgb", "forest"])
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--no-record", action="store_true")
    arguments = parser.parse_args()
    if not arguments.summary:
        warnings.simplefilter("ignore")
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            for name in arguments.sets:
                for kind, rate in CELLS:
                    row = measure(name, kind, rate, seed, arguments.base)
                    print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
                    if not arguments.no_record:
                        record.append("any_regressor", [row])
    if not arguments.no_record:
        summary(arguments.base)


if __name__ == "__main__":
    main()
