"""The ranked range inside one boosting run against RankedRangeClassifier around the same library, with wrong labels.

    RANKRANGE_DATA=... python benchmarks/boosting_objective.py [--library NAME] [--seeds 2] [--first 14] [--sets ...]
    RANKRANGE_DATA=... python benchmarks/boosting_objective.py --summary

Tables, noise and splits are those of any_model.py: eleven tables, at most 1,000 training rows. CatBoost has the tables
of two classes, because its objectives for more are asked row by row. Accuracy in percent on right labels:
- plain, clean: the library on the labels as they are, and on the true ones.
- objective known m: `LightGBM(m).objective` and so on with m the true share of wrong labels; objective m=.2: a guess.
- classifier: RankedRangeClassifier around the library's estimator, which chooses m itself.
The share regained is (method - plain) / (clean - plain) as a ratio of sums over cells. Times are core seconds in units
of the plain fit. Nominal columns are codes for XGBoost and CatBoost. Cells that are recorded are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd

import any_model
import record
from rankrange import RankedRangeClassifier
from rankrange.boosting import CatBoost, LightGBM, XGBoost, labels_of_scores

LIBRARIES = ("lightgbm", "xgboost", "catboost")
OF_TWO_CLASSES = ("monk", "australian", "phoneme", "titanic", "splice", "breast cancer", "mushrooms", "compas")
METHODS = ("plain", "clean", "objective known m", "objective m=.2", "classifier")
FILE = record.RESULTS / "boosting_objective.csv"


def as_codes(X: Any) -> Any:
    """A table with the codes of its nominal columns."""
    if not isinstance(X, pd.DataFrame):
        return X
    return np.column_stack([c.cat.codes if isinstance(c.dtype, pd.CategoricalDtype) else c for _, c in X.items()])


def plain(library: str, seed: int) -> Any:
    """The estimator of a library with its own log loss: 100 rounds, one thread."""
    if library == "lightgbm":
        return any_model.base_of("lightgbm").set_params(random_state=seed)
    if library == "xgboost":
        import xgboost

        return xgboost.XGBClassifier(n_estimators=100, n_jobs=1, random_state=seed)
    import catboost

    return catboost.CatBoostClassifier(**of_catboost(seed))


def of_catboost(seed: int) -> dict[str, Any]:
    """Settings of the plain fit and of that with the objective."""
    return {
        "iterations": 100,
        "learning_rate": 0.1,
        "boosting_type": "Plain",
        "leaf_estimation_iterations": 1,
        "thread_count": 1,
        "random_seed": seed,
        "allow_writing_files": False,
        "verbose": 0,
    }


def by_objective(library: str, m: float, seed: int, X: Any, y: Any, X_test: Any) -> Any:
    """The labels that a run with the objective predicts."""
    base = plain(library, seed)
    if library == "xgboost":
        return base.set_params(objective=XGBoost(m).objective).fit(X, y).predict(X_test)
    if library == "lightgbm":
        more = {"num_class": int(y.max()) + 1} if y.max() > 1 else {}
        model = base.set_params(objective=LightGBM(m).objective, **more).fit(X, y)
        return labels_of_scores(model.predict(X_test, raw_score=True))
    objective = CatBoost(m, n_rows=len(y)).objective
    model = base.__class__(loss_function=objective, eval_metric="Logloss", **of_catboost(seed)).fit(X, y)
    return labels_of_scores(model.predict(X_test, prediction_type="RawFormulaVal"))


def accuracies(library: str, name: str, kind: str, rate: float, seed: int) -> dict[str, Any]:
    X, y, X_test, y_test = any_model.split(name, seed, 1000)
    given = any_model.plant(X, y, kind, rate, seed)
    if library != "lightgbm":
        X, X_test = as_codes(X), as_codes(X_test)
    wrong = float((given != y).mean())
    row: dict[str, Any] = {"library": library, "set": name, "noise": kind, "rate": rate, "seed": seed}
    for method in METHODS:
        start = time.process_time()
        labels = y if method == "clean" else given
        if method.startswith("objective"):
            found = by_objective(library, wrong if "known" in method else 0.2, seed, X, labels, X_test)
        else:
            base = plain(library, seed)
            model = RankedRangeClassifier(base, random_state=seed) if method == "classifier" else base
            found = model.fit(X, labels).predict(X_test)
        row[f"{method} seconds"] = round(time.process_time() - start, 3)
        row[method] = round(100 * float((np.ravel(found) == y_test).mean()), 3)
    return row


def recorded() -> list[dict[str, str]]:
    if not FILE.exists():
        return []
    with FILE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def summary() -> None:
    for library in LIBRARIES:
        rows = [row for row in recorded() if row["library"] == library]
        if not rows:
            continue
        by: dict[str, list[dict[str, str]]] = defaultdict(list)
        for row in rows:
            by[f"{row['noise']} {row['rate']}"].append(row)
        print(f"{library}, {len(rows)} cells; share regained in percent (clean labels: points above the plain fit)")
        for cell, found in by.items():
            gap = sum(float(r["clean"]) - float(r["plain"]) for r in found)
            parts = []
            for method in METHODS[2:]:
                gain = sum(float(r[method]) - float(r["plain"]) for r in found)
                text = f"{gain / len(found):+.2f} points" if cell[:4] == "none" else f"{100 * gain / gap:.0f}"
                parts.append(f"{method} {text}")
            better = sum(float(r["objective known m"]) > float(r["classifier"]) for r in found)
            print(
                f"  {cell} (gap {gap / len(found):.1f}): {'; '.join(parts)}; objective above {better} of {len(found)}"
            )
        for method in METHODS[2:]:
            ratios = [float(r[f"{method} seconds"]) / max(float(r["plain seconds"]), 1e-3) for r in rows]
            print(f"  {method}: plain fits, median {np.median(ratios):.1f}, 90% {np.quantile(ratios, 0.9):.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", choices=LIBRARIES, default="lightgbm")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=14)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--summary", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    usual = OF_TWO_CLASSES if arguments.library == "catboost" else (*any_model.PAPER, *any_model.TABLES)
    done = {tuple(row[key] for key in ("library", "set", "noise", "rate", "seed")) for row in recorded()}
    for seed in range(arguments.first, arguments.first + arguments.seeds) if not arguments.summary else ():
        for name in arguments.sets or usual:
            for kind, rate in any_model.CELLS:
                if (arguments.library, name, kind, str(rate), str(seed)) not in done:
                    record.append("boosting_objective", [accuracies(arguments.library, name, kind, rate, seed)])
            print(arguments.library, seed, name, flush=True)
    if arguments.summary:
        summary()
