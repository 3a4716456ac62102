"""find_label_issues against cleanlab: average precision of the ranking of planted wrong labels, and time.

    RANKRANGE_DATA=... python benchmarks/label_issues.py [--seeds 10] [--sets ...] [--rates .05 .1 .2] [--no-record]
    RANKRANGE_DATA=... python benchmarks/label_issues.py --summary
    RANKRANGE_DATA=... python benchmarks/label_issues.py --without-trees [--seeds 1] [--sets ...] [--no-record]

Both get the same folds (5, twice for two classes) and logistic models; C comes from the same four values by the log
loss over these folds, for each on its own. cleanlab ranks by its default, self-confidence, with the mean of the
probabilities over repeats. Its time is that of cross-validation and ranking: with the choice of C, as ours, and
without; both in seconds of one core. `--without-trees` sets beside them what linear models and neighbours alone
(`trees=False`) take and find, on symmetric errors of 10% (results/label_issues_trees.csv). "mnist 5000" is a sample of
5,000 training images. Needs `pip install cleanlab`.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, log_loss
from sklearn.model_selection import RepeatedStratifiedKFold

import record
from corrupted import BINARY, corrupt, load, scaled
from rankrange import find_label_issues

PENALTIES = (1.0, 0.1, 0.01, 0.001)


def data(name: str, seed: int) -> tuple[Any, Any]:
    if not name.startswith("mnist"):
        X, y = load(name)
        return scaled(X)[0], y
    X, y = load("mnist")
    rows = np.random.default_rng(seed).permutation(len(y))[: int((name.split() + ["20000"])[1])]
    return (X[rows] / 255).astype(np.float32), y[rows]


def with_cleanlab(X: Any, y: Any, folds: list[Any], repeats: int) -> tuple[Any, float, float]:
    """Quality scores, seconds with the choice of C, and without."""
    from cleanlab.rank import get_label_quality_scores

    start, found = time.process_time(), []
    for C in PENALTIES:
        P = np.zeros((len(y), len(np.unique(y))))
        for train, test in folds:
            P[test] += LogisticRegression(C=C, max_iter=1000).fit(X[train], y[train]).predict_proba(X[test]) / repeats
        found.append((log_loss(y, P), P))
    P = min(found, key=lambda pair: pair[0])[1]
    fitted = time.process_time() - start
    start = time.process_time()
    quality = get_label_quality_scores(y, P)
    ranked = time.process_time() - start
    return quality, fitted + ranked, fitted / len(PENALTIES) + ranked


def measure(name: str, kind: str, rate: float, seed: int) -> dict[str, Any]:
    X, y = data(name, seed)
    X, given = corrupt(X, y, kind, rate, seed)
    wrong = given != y
    repeats = 2 if len(np.unique(y)) == 2 else 1
    splitter = RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=seed)
    folds = list(splitter.split(X, given))
    quality, tuned, untuned = with_cleanlab(X, given, folds, repeats)
    start = time.process_time()
    issues = find_label_issues(X, given, cv=folds, random_state=seed)
    seconds = time.process_time() - start
    flagged = np.isin(issues.table["action"], ["relabel", "drop"])
    rows = issues.table["row"][flagged]
    return {
        "set": name,
        "kind": kind,
        "rate": rate,
        "seed": seed,
        "wrong": round(float(wrong.mean()), 4),
        "cleanlab": round(average_precision_score(wrong, 1 - quality), 4),
        "rankrange": round(average_precision_score(wrong, issues.score), 4),
        "estimate": round(issues.noise_estimate, 4),
        "neighbours": round(issues.neighbour_weight, 3),
        "flagged": len(rows),
        "flagged_right": round(float(1 - wrong[rows].mean()) if len(rows) else 0.0, 4),
        "fdr": round(float(issues.table["fdr"][flagged][-1]) if len(rows) else 0.0, 4),
        "cleanlab_s": round(tuned, 3),
        "cleanlab_untuned_s": round(untuned, 3),
        "rankrange_s": round(seconds, 3),
    }


def without_trees(name: str, seed: int, rate: float = 0.1) -> dict[str, Any]:
    """Seconds and average precision: cleanlab, with all models, and with `trees=False`."""
    X, y = data(name, seed)
    X, given = corrupt(X, y, "symmetric", rate, seed)
    wrong = given != y
    repeats = 2 if len(np.unique(y)) == 2 else 1
    splitter = RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=seed)
    folds = list(splitter.split(X, given))
    quality, tuned, untuned = with_cleanlab(X, given, folds, repeats)
    row = {"set": name, "rows": len(y), "seed": seed, "cleanlab_s": round(tuned, 3), "untuned_s": round(untuned, 3)}
    row["cleanlab"] = round(average_precision_score(wrong, 1 - quality), 4)
    for label, trees in (("all", True), ("without_trees", False)):
        start = time.process_time()
        issues = find_label_issues(X, given, cv=folds, random_state=seed, trees=trees)
        row[f"{label}_s"] = round(time.process_time() - start, 3)
        row[label] = round(average_precision_score(wrong, issues.score), 4)
    return row


def summary() -> None:
    rows = list(csv.DictReader((record.RESULTS / "label_issues.csv").open(encoding="utf-8")))
    gains: dict[Any, list[float]] = defaultdict(list)
    times: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        gain = float(row["rankrange"]) - float(row["cleanlab"])
        group = "five binary sets" if row["set"] in BINARY else row["set"]
        for key in (
            (row["set"], row["kind"], row["rate"]),
            (row["set"], row["kind"], "mean"),
            (group, row["kind"], ""),
        ):
            gains[key].append(gain)
        ratios = times[row["set"]]
        ratios.append(float(row["rankrange_s"]) / float(row["cleanlab_s"]))
        times[row["set"], "untuned"].append(float(row["rankrange_s"]) / float(row["cleanlab_untuned_s"]))
    for key in sorted(gains, key=str):
        found = np.array(gains[key])
        error = found.std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
        print(f"{key[0]:>18} {key[1]:>16} {key[2]:>5}  {found.mean():+.4f} ({error:.4f})  runs {len(found)}")
    for key, ratios in times.items():
        print(f"time over cleanlab's: {key}: median {np.median(ratios):.2f}, largest {max(ratios):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--sets", nargs="+", default=[*BINARY, "digits"])
    parser.add_argument("--kinds", nargs="+", default=["symmetric", "class-dependent"])
    parser.add_argument("--rates", nargs="+", type=float, default=[0.05, 0.1, 0.2])
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--without-trees", action="store_true")
    arguments = parser.parse_args()
    if arguments.summary:
        return summary()
    warnings.simplefilter("ignore")  # of logistic regressions that stop at max_iter
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name in arguments.sets:
            if arguments.without_trees:
                row = without_trees(name, seed)
                print(row, flush=True)
                if not arguments.no_record:
                    record.append("label_issues_trees", [row])
                continue
            rows = [measure(name, kind, rate, seed) for kind in arguments.kinds for rate in arguments.rates]
            for row in rows:
                print(*row.values(), flush=True)
            if not arguments.no_record:
                record.append("label_issues", rows)


if __name__ == "__main__":
    main()
