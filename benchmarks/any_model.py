"""RankedRangeClassifier around boosted trees, forests and LightGBM, on tables with planted wrong labels.

    RANKRANGE_DATA=... python benchmarks/any_model.py [--seeds 10] [--first 0] [--sets ...] [--base hgb] [--cleanlab]
    RANKRANGE_DATA=... python benchmarks/any_model.py --tables 4 [--seeds 1] [--first 0]      a random part of the cells
    RANKRANGE_DATA=... python benchmarks/any_model.py --summary [--base hgb] [--seeds 10] [--first 0]

Methods that do not depend on this library (plain, clean, cleanlab) are recorded once for each cell. A run that was
cut off goes on where it ended, as long as the commit is the same; in the summary the last measurement of a cell counts.
`--tables` draws so many of the tables at random for each kind of noise and seed.

60% of the rows train, at most `--rows` of them (1,000; digits 500), the rest tests, at most 3,000 rows; wrong labels
are planted in the training part alone. Accuracy in percent on the test part:
- plain: the base fitted to the labels as they are; clean: the same fitted to the true labels.
- ensemble, single: RankedRangeClassifier(base, refit=...). The rows that are dropped are the same for both, and judged
  once; time, log loss and calibration of "single" are those of the last fit alone, without its temperature.
- cleanlab: CleanLearning(base): 5-fold probabilities, prune, refit; with its default settings.
The gap is clean - plain; the share won back is (method - plain) / gap, as a ratio of sums over cells, because single
gaps can be close to zero. Log loss on the test rows measures calibration. Times are core seconds in
units of a 5-fold cross-validation of the base in the same process.

Noise: none; symmetric at .1, .2, .4 (any other class); one class: of class 1 (of even classes, where there are more
than two) 30% become another; boundary: 20% of the rows, those near the boundary more likely (weight exp(-margin / .3),
margins of a random forest fitted to the true labels out of fold), take their second most likely class.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import OrdinalEncoder

import record
from corrupted import load
from rankrange import RankedRangeClassifier, noise

PAPER = ("monk", "australian", "phoneme", "titanic", "splice", "breast cancer", "digits")
TABLES = ("dry_bean", "mushrooms", "car_evaluation", "compas")
CELLS = (
    ("none", 0.0),
    ("symmetric", 0.1),
    ("symmetric", 0.2),
    ("symmetric", 0.4),
    ("one class", 0.3),
    ("boundary", 0.2),
)
METHODS = ("plain", "clean", "ensemble", "single", "cleanlab")


def table(name: str) -> tuple[Any, Any]:
    """X, with nominal columns as pandas categories, and y as codes."""
    if name in PAPER:
        return load(name)
    frame = pd.read_csv(os.path.join(os.environ["RANKRANGE_DATA"], "label_errors", f"{name}.csv.gz"))
    y = np.unique(frame.pop("target"), return_inverse=True)[1]
    texts = frame.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]]
    return frame.astype(dict.fromkeys(texts, "category")), y


def numbers(X: Any) -> Any:
    """For models that take numbers alone, the codes of the categories."""
    return OrdinalEncoder().fit_transform(X) if isinstance(X, pd.DataFrame) else X


def base_of(name: str) -> Any:
    if name == "hgb":
        return HistGradientBoostingClassifier()
    if name == "forest":
        return RandomForestClassifier()
    from lightgbm import LGBMClassifier

    return LGBMClassifier(verbose=-1, n_jobs=1)


def plant(X: Any, y: Any, kind: str, rate: float, seed: int) -> Any:
    K = int(y.max()) + 1
    if kind == "none":
        return y.copy()
    if kind == "symmetric":
        return noise.symmetric(y, rate, seed)
    if kind == "one class":
        mapping = {1: 0} if K == 2 else {c: (c + 1) % K for c in range(0, K, 2)}
        return noise.asymmetric(y, mapping, rate, seed)
    forest = RandomForestClassifier(100, min_samples_leaf=3, random_state=0)
    P = cross_val_predict(forest, numbers(X), y, method="predict_proba")
    ordered = np.sort(P, axis=1)
    draw = np.log(np.random.default_rng(seed).random(len(y))) * np.exp((ordered[:, -1] - ordered[:, -2]) / 0.3)
    rows = np.argsort(-draw)[: round(rate * len(y))]
    P[np.arange(len(y)), y] = -1.0
    given = y.copy()
    given[rows] = P[rows].argmax(axis=1)
    return given


def split(name: str, seed: int, most: int) -> tuple[Any, Any, Any, Any]:
    X, y = table(name)
    order = np.random.default_rng(seed).permutation(len(y))
    n = min(int(0.6 * len(y)), 500 if name == "digits" else most)
    train, test = order[:n], order[max(n, int(0.6 * len(y))) :][:3000]
    take = (lambda rows: X.iloc[rows].reset_index(drop=True)) if isinstance(X, pd.DataFrame) else (lambda rows: X[rows])
    return take(train), y[train], take(test), y[test]


def noisy(name: str, kind: str, rate: float, seed: int, base_name: str, most: int) -> tuple[Any, ...]:
    """The training rows with their true and their given labels, the test rows, and the base."""
    X, y, X_test, y_test = split(name, seed, most)
    given = plant(X, y, kind, rate, seed)
    if base_name == "forest":
        X, X_test = numbers(X), numbers(X_test)
    return X, y, given, X_test, y_test, base_of(base_name).set_params(random_state=seed)


def timed(work: Any, *arguments: Any, **named: Any) -> tuple[Any, float]:
    start = time.process_time()
    result = work(*arguments, **named)
    return result, time.process_time() - start


def tested(row: dict[str, Any], method: str, model: Any, X_test: Any, y_test: Any, seconds: float, unit: float) -> None:
    """Accuracy, log loss and times of a fitted model, into the row."""
    known = getattr(model, "classes_", getattr(getattr(model, "clf", None), "classes_", None))
    found, asking = timed(model.predict_proba, X_test)
    P = np.zeros((len(y_test), 1 + int(max(y_test.max(), np.max(known)))))
    P[:, np.asarray(known)] = found
    row[f"{method}_time"], row[f"{method}_predict"] = round(seconds / unit, 3), round(asking / unit, 4)
    row[method] = round(100 * float((P.argmax(axis=1) == y_test).mean()), 3)
    row[f"{method}_log_loss"] = round(float(log_loss(y_test, P.clip(1e-6), labels=np.arange(P.shape[1]))), 5)
    row[f"{method}_calibration"] = round(calibration_error(P, y_test), 5)


def calibration_error(P: Any, y: Any) -> float:
    """How far the probability of the predicted class is from how often it is right: mean over ten equal parts."""
    sure, right = P.max(axis=1), P.argmax(axis=1) == y
    parts = np.array_split(np.argsort(sure, kind="stable"), 10)
    return float(sum(abs(sure[rows].sum() - right[rows].sum()) for rows in parts) / len(y))


def cross_validation(base: Any, X: Any, given: Any) -> float:
    """Core seconds of a 5-fold cross-validation of the base: the unit of all times."""
    return timed(cross_val_predict, base, X, given, cv=5, method="predict_proba")[1]


def references(cell: tuple[Any, ...], key: dict[str, Any], unit: float, cleanlab: bool) -> dict[str, Any]:
    """What does not depend on this library: the base on the labels as they are and on the true ones, and cleanlab."""
    X, y, given, X_test, y_test, base = cell
    row = {**key, "n": len(y)}
    cleaned = None
    if cleanlab:
        from cleanlab.classification import CleanLearning

        cleaned = CleanLearning(clone(base), seed=key["seed"])
    for method, model, labels in (
        ("plain", clone(base), given),
        ("clean", clone(base), y),
        ("cleanlab", cleaned, given),
    ):
        if model is None:
            row |= dict.fromkeys(
                [f"cleanlab{name}" for name in ("_time", "_predict", "", "_log_loss", "_calibration")], ""
            )
            continue
        seconds = timed(model.fit, X, labels)[1]
        tested(row, method, model, X_test, y_test, seconds, unit)
    return row


def ours(cell: tuple[Any, ...], key: dict[str, Any], unit: float) -> dict[str, Any]:
    X, y, given, X_test, y_test, base = cell
    row = {**key, "n": len(y)}
    model = RankedRangeClassifier(base, random_state=key["seed"])
    seconds = timed(model.fit, X, given)[1]
    tested(row, "ensemble", model, X_test, y_test, seconds, unit)
    single, kept = clone(base), np.flatnonzero(~model.dropped_)  # what refit="single" fits, without judging twice
    seconds = timed(single.fit, X.iloc[kept] if isinstance(X, pd.DataFrame) else X[kept], given[kept])[1]
    tested(row, "single", single, X_test, y_test, seconds, unit)
    wrong, dropped = given != y, model.dropped_
    row["cut"] = round(float(dropped.mean()), 4)
    row["precision"] = round(float(wrong[dropped].mean()), 4) if dropped.any() else ""
    row["recall"] = round(float(dropped[wrong].mean()), 4) if wrong.any() else ""
    row["wrong"], row["estimate"] = round(float(wrong.mean()), 4), round(model.noise_estimate_, 4)
    row["low"], row["high"] = (round(float(end), 4) for end in model.noise_interval_)
    return row


def mean_and_error(values: Any) -> str:
    values = np.array([value for value in values if value != ""], dtype=float)
    if not len(values):
        return "     -       "
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():6.2f} ({error:.2f})"


def share(rows: list[dict[str, Any]], method: str, over: str = "set") -> tuple[float, float]:
    """The share of the gap won back, a ratio of sums, and its standard error over sets, or seeds (jackknife)."""
    gain, gap = defaultdict(float), defaultdict(float)
    for row in [row for row in rows if row[method] != ""]:
        gain[row[over]] += float(row[method]) - float(row["plain"])
        gap[row[over]] += float(row["clean"]) - float(row["plain"])
    total, whole, sets = sum(gain.values()), sum(gap.values()), list(gain)
    rest = [whole - gap[s] for s in sets]
    if len(sets) < 2 or whole == 0 or 0 in rest:  # without a gap there is nothing to win back
        return total / whole if whole else float("nan"), float("nan")
    left = np.array([(total - gain[s]) / other for s, other in zip(sets, rest, strict=True)])
    return total / whole, float(np.sqrt((len(sets) - 1) * ((left - left.mean()) ** 2).mean()))


def recorded(name: str) -> list[dict[str, str]]:
    path = record.RESULTS / f"{name}.csv"
    return list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []


def key_of(row: Any) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("base", "set", "kind", "rate", "seed", "n"))


def summary(base: str, seeds: range) -> None:
    beside = {key_of(row): row for row in recorded("any_model_references")}
    latest = {key_of(row): row for row in recorded("any_model") if row["base"] == base}
    rows = [{**beside[key], **row} for key, row in latest.items() if key in beside and int(row["seed"]) in seeds]
    print(f"base {base}: {len(rows)} cells, seeds {sorted({int(row['seed']) for row in rows})}")
    print(
        f"{'set':>14} {'noise':>14}   " + "  ".join(f"{method:>14}" for method in METHODS) + "   cut, precision, recall"
    )
    cells = defaultdict(list)
    for row in rows:
        cells[row["set"], row["kind"], row["rate"]].append(row)
    for (name, kind, rate), found in cells.items():
        numbers_of = "  ".join(mean_and_error([row[method] for row in found]) for method in METHODS)
        shown = [
            np.mean([float(row[key]) for row in found if row[key] != ""] or [np.nan])
            for key in ("cut", "precision", "recall")
        ]
        print(f"{name:>14} {kind:>9} {rate:>4}   {numbers_of}   " + " ".join(f"{value:.2f}" for value in shown))
    print("\nShare of the gap won back, percent (standard error over sets; over seeds)")
    groups = {
        "symmetric and one class": [row for row in rows if row["kind"] in ("symmetric", "one class")],
        "boundary": [row for row in rows if row["kind"] == "boundary"],
        **{
            f"{kind} {rate}": [r for r in rows if (r["kind"], r["rate"]) == (kind, str(rate))]
            for kind, rate in CELLS[1:]
        },
    }
    for title, part in groups.items():
        shown = {m: (*share(part, m), share(part, m, "seed")[1]) for m in METHODS[2:]} if part else {}
        parts = [f"{m} {100 * v:.0f} ({100 * e:.0f}; {100 * s:.0f})" for m, (v, e, s) in shown.items()]
        print(f"{title:>26}: " + ", ".join(parts))
    for name in sorted({row["set"] for row in rows}):
        part = [row for row in groups["symmetric and one class"] if row["set"] == name]
        print(f"{name:>26}: " + ", ".join(f"{m} {100 * share(part, m)[0]:.0f}" for m in METHODS[2:]))
    _same_cells(groups)
    by_seed = [
        share([row for row in groups["symmetric and one class"] if row["seed"] == seed], "ensemble")[0]
        for seed in sorted({row["seed"] for row in rows})
    ]
    print(f"the ensemble's first line, seed by seed: {' '.join(f'{100 * value:.0f}' for value in by_seed)}")
    _clean_and_costs(rows)


def _same_cells(groups: dict[str, list[dict[str, Any]]]) -> None:
    print("on the cells where cleanlab was measured too:")
    for title in ("symmetric and one class", "boundary"):
        part = [row for row in groups[title] if row["cleanlab"] != ""]
        shown = {method: share(part, method) for method in METHODS[2:]} if part else {}
        parts = [f"{m} {100 * v:.0f} ({100 * e:.0f})" for m, (v, e) in shown.items()]
        print(f"{title:>26}: {len(part)} cells, " + ", ".join(parts))


def _clean_and_costs(rows: list[dict[str, Any]]) -> None:
    print("\nClean labels, points over the plain base, by set")
    for method in METHODS[2:]:
        by_set = defaultdict(list)
        for row in rows:
            if row["kind"] == "none" and row[method] != "":
                by_set[row["set"]].append(float(row[method]) - float(row["plain"]))
        if by_set:
            means = {name: float(np.mean(values)) for name, values in by_set.items()}
            worst = min(means, key=lambda name: means[name])
            print(f"{method:>10}: {mean_and_error(list(means.values()))}, worst {worst} {means[worst]:+.2f}")
    print(
        "\nBeside the plain base: log loss, ratio (median, 90%, worst; above 1); calibration error, difference (mean;"
    )
    print("above 0); and time in 5-fold cross-validations (median, 90%, worst)")
    for method in METHODS[2:]:
        there = [row for row in rows if row[method] != ""]
        if not there:
            continue
        ratio, error, times = _beside(there, method)
        at = there[int(np.argmax(ratio))]
        print(
            f"{method:>10}: {_spread(ratio)} ({at['set']}, {at['kind']} {at['rate']}); {np.mean(ratio > 1):.0%}; "
            f"{error.mean():+.3f}; {np.mean(error > 0):.0%}; {_spread(times)} ({there[int(np.argmax(times))]['set']}), "
            f"up to 3.5 in {np.mean(times <= 3.5):.0%}"
        )
    inside = [float(row["low"]) <= float(row["wrong"]) <= float(row["high"]) for row in rows]
    print(f"95% intervals of the share of wrong labels that hold it: {100 * np.mean(inside):.0f}%")


def _beside(rows: list[dict[str, Any]], method: str) -> tuple[Any, Any, Any]:
    def column(name: str) -> Any:
        return np.array([float(row[name]) for row in rows])

    ratio = column(f"{method}_log_loss") / column("plain_log_loss")
    return ratio, column(f"{method}_calibration") - column("plain_calibration"), column(f"{method}_time")


def _spread(values: Any) -> str:
    return f"{np.median(values):.2f} {np.quantile(values, 0.9):.2f} {max(values):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--sets", nargs="+", default=[*PAPER, *TABLES])
    parser.add_argument("--tables", type=int, help="so many tables for each kind of noise, drawn at random")
    parser.add_argument("--base", default="hgb", choices=["hgb", "forest", "lightgbm"])
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--references", action="store_true", help="plain, clean and cleanlab alone, where missing")
    parser.add_argument(
        "--cleanlab", action="store_true", help="measure cleanlab as well, where references are missing"
    )
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if not arguments.summary:
        warnings.simplefilter("ignore")
        for seed in seeds:
            for name in arguments.sets:
                run(name, seed, arguments)
    if not arguments.no_record and not arguments.references:
        summary(arguments.base, seeds)


def drawn_cells(name: str, seed: int, arguments: argparse.Namespace) -> list[tuple[str, float]]:
    """The kinds of noise that this table is measured with: all, unless a part of the tables is drawn for each."""
    if arguments.tables is None:
        return list(CELLS)
    drawn = [
        np.random.default_rng([seed, i]).choice(arguments.sets, arguments.tables, False) for i in range(len(CELLS))
    ]
    return [cell for cell, names in zip(CELLS, drawn, strict=True) if name in names]


def run(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """All kinds of noise on one table: the references where they are not recorded yet, and this library."""
    there = {key_of(row)[:-1] for row in recorded("any_model_references")}
    commit = record.circumstances()["commit"]
    done = {key_of(row)[:-1] for row in recorded("any_model") if row["commit"] == commit}
    for kind, rate in drawn_cells(name, seed, arguments):
        key = {"base": arguments.base, "set": name, "kind": kind, "rate": rate, "seed": seed}
        this = key_of({**key, "n": 0})[:-1]
        if this in there and (arguments.references or this in done):
            continue
        cell = noisy(name, kind, rate, seed, arguments.base, arguments.rows)
        found, unit = {}, cross_validation(cell[-1], cell[0], cell[2])
        if this not in there:
            found["any_model_references"] = references(cell, key, unit, arguments.cleanlab)
        if not arguments.references and this not in done:
            found["any_model"] = ours(cell, key, unit)
        for file, row in found.items():
            shown = ("set", "kind", "rate", "seed", *[m for m in METHODS if m in row], "cut", "ensemble_time")
            print(" ".join(f"{column}={row[column]}" for column in shown if column in row), flush=True)
            if not arguments.no_record:
                record.append(file, [row])


if __name__ == "__main__":
    main()
