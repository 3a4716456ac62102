"""The ranked range inside one LightGBM run against RankedRangeClassifier around LightGBM, with planted wrong labels.

    RANKRANGE_DATA=... python benchmarks/boosting_objective.py [--seeds 2] [--first 0] [--sets ...]
    RANKRANGE_DATA=... python benchmarks/boosting_objective.py --summary

Tables, noise and splits are those of any_model.py, with at most 500 training rows. Accuracy in percent on right labels:
- plain, clean: LightGBM on the labels as they are, and on the true ones.
- objective known m: `lightgbm_objective(m)` with m the true share of wrong labels; objective m=.2: without knowing it.
- classifier: RankedRangeClassifier(LGBMClassifier()), which chooses m itself.
The share regained is (method - plain) / (clean - plain) as a ratio of sums over cells. Times are core seconds in units
of the plain fit.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np

import any_model
import record
from rankrange import RankedRangeClassifier
from rankrange.boosting import lightgbm_objective

SETS = ("monk", "australian", "titanic", "breast cancer", "splice")
METHODS = ("plain", "clean", "objective known m", "objective m=.2", "classifier")


def accuracies(name: str, kind: str, rate: float, seed: int) -> dict[str, Any]:
    X, y, X_test, y_test = any_model.split(name, seed, 500)
    given = any_model.plant(X, y, kind, rate, seed)
    base = any_model.base_of("lightgbm").set_params(random_state=seed)
    wrong = float((given != y).mean())
    row: dict[str, Any] = {"set": name, "noise": kind, "rate": rate, "seed": seed}
    for method in METHODS:
        start = time.process_time()
        labels = y if method == "clean" else given
        if method.startswith("objective"):
            m = wrong if "known" in method else 0.2
            model = base.__class__(**{**base.get_params(), "objective": lightgbm_objective(m)}).fit(X, labels)
            scores = np.asarray(model.predict(X_test, raw_score=True))
            found = scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0).astype(int)
        else:
            model = RankedRangeClassifier(base, random_state=seed) if method == "classifier" else base
            found = model.fit(X, labels).predict(X_test)
        row[f"{method} seconds"] = round(time.process_time() - start, 3)
        row[method] = round(100 * float((found == y_test).mean()), 3)
    return row


def summary() -> None:
    with open(record.RESULTS / "boosting_objective.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    by: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        by[f"{row['noise']} {row['rate']}"].append(row)
    print(f"{len(rows)} cells; share regained in percent (clean labels: points above the plain fit)")
    for cell, found in by.items():
        gap = sum(float(r["clean"]) - float(r["plain"]) for r in found)
        parts = []
        for method in METHODS[2:]:
            gain = sum(float(r[method]) - float(r["plain"]) for r in found)
            text = f"{gain / len(found):+.2f} points" if cell[:4] == "none" else f"{100 * gain / gap:.0f}"
            parts.append(f"{method} {text}")
        print(f"{cell} (gap {gap / len(found):.1f}): {'; '.join(parts)}")
    for method in METHODS[2:]:
        ratios = [float(r[f"{method} seconds"]) / max(float(r["plain seconds"]), 1e-3) for r in rows]
        print(f"{method}: time in plain fits, median {np.median(ratios):.1f}, worst {max(ratios):.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    for seed in range(arguments.first, arguments.first + arguments.seeds) if not arguments.summary else ():
        for name in arguments.sets:
            rows = [accuracies(name, kind, rate, seed) for kind, rate in any_model.CELLS]
            record.append("boosting_objective", rows)
            print(seed, name, flush=True)
    if arguments.summary:
        summary()
