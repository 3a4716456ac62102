"""Wrong labels found and flagged: find_label_issues beside cleanlab, on planted errors and on real ones.

    RANKRANGE_DATA=... python benchmarks/label_errors.py [--full] [--seeds 1] [--first 0] [--sets ...] [--no-record]
    RANKRANGE_DATA=... python benchmarks/label_errors.py --real | --numbers | --aqua | --sizes | --limit | --log-loss
    python benchmarks/label_errors.py --small [--seeds 10] [--first 0]
    python benchmarks/label_errors.py --probs FOLDER
    RANKRANGE_DATA=... python benchmarks/label_errors.py --summary [--small]

A cell is a set, a kind of noise and a seed. For each of them, on the same rows and five folds:
- average precision (AP) of the ranking: ours (`score`), cleanlab's self-confidence with logistic regression (LR) and
  with boosted trees (HGB) on the same folds;
- calibration: among rows with p_wrong >= .2, .5, .8 the mean p_wrong, the share that was planted, and how many there
are;
- the estimated share of wrong labels, its 95% interval and the truth; without planted errors the share of rows flagged;
- with `--clean`, accuracy of HGB on clean test rows when fitted to all labels, to those that each method keeps (ours:
  p_wrong < .5; cleanlab: `CleanLearning`), and to the true ones;
- core seconds of ours and of cleanlab with HGB.
The default has 600 rows and one seed (six core minutes), `--full` up to 1,200 rows; both go on where they were stopped:
cells that are in the results are not run again. Sets are those of docs/benchmarks/any_model.md, and circles,
checkerboards, xor and two spirals.
Noise as in benchmarks/any_model.py, and far: rows moved out 5 to 15 times along their own direction, label wrong.
`--small` takes tables of 150 to 400 rows whose classes touch, where a row at a boundary looks like an error: iris,
wine, 150 rows of breast cancer, two moons and blobs.
The other flags are those of label_errors_real.py: sizes, real errors, numbers, AQuA, probabilities of networks. Needs
`pip install cleanlab`.
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
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold

import record
from any_model import PAPER, TABLES, plant, table
from rankrange import find_label_issues, noise

MADE = ("circles", "checkerboard", "xor", "spirals")
SETS = (*PAPER, *TABLES, *MADE)
CELLS = (
    ("none", 0.0),
    ("symmetric", 0.1),
    ("symmetric", 0.2),
    ("symmetric", 0.4),
    ("one class", 0.3),
    ("boundary", 0.2),
    ("far", 0.1),
)
LEVELS = (0.2, 0.5, 0.8)
# Tables of few rows whose classes touch; blobs by the places of their middles, of unit width, and their rows.
BLOBS = {
    "two blobs": (300, [[0.0, 0.0, 0.0], [2.5, 0.0, 0.0]]),
    "three blobs": (250, [[0.0, 0.0], [3.0, 0.0], [1.5, 2.6]]),
    "four blobs": (400, [[0.0] * 5, [2.5, 0, 0, 0, 0], [0, 2.5, 0, 0, 0], [0, 0, 2.5, 0, 0]]),
}
SMALL = ("iris", "wine", "cancer 150", "moons 200", "moons 400", *BLOBS)
SMALL_CELLS = (("none", 0.0), ("symmetric", 0.05), ("symmetric", 0.1), ("symmetric", 0.2), ("one class", 0.3))


# ---- tables with planted errors --------------------------------------------------------------------------------------


def made(name: str, n: int, rng: Any) -> tuple[Any, Any]:
    """Tables in two columns that no line can learn; `colours` has three, and a rule that is known."""
    if name == "colours":
        X = rng.integers(0, 256, (n, 3)).astype(float)
        r, g, b = X.T
        y = (r > 95) & (g > 40) & (b > 20) & (r - np.minimum(g, b) > 15) & (np.abs(r - g) > 15) & (r > g) & (r > b)
        return X, y.astype(int)
    X = rng.uniform(-1, 1, (n, 2))
    if name == "circles":
        y = (X**2).sum(axis=1) < 0.55
    elif name == "checkerboard":
        y = (np.floor(2 * X[:, 0]) + np.floor(2 * X[:, 1])) % 2 == 0
    elif name == "xor":
        y = X[:, 0] * X[:, 1] > 0
    else:
        radius, y = np.sqrt(rng.uniform(0.05, 1, n)), rng.integers(0, 2, n)
        angle = 3 * np.pi * radius + np.pi * y
        X = np.c_[radius * np.cos(angle), radius * np.sin(angle)] + 0.02 * rng.normal(size=(n, 2))
    return X, np.asarray(y).astype(int)


def small(name: str, seed: int) -> tuple[Any, Any]:
    """A table of few rows whose classes touch."""
    if name in BLOBS:
        n, middles = BLOBS[name]
        return datasets.make_blobs(n, centers=np.array(middles), cluster_std=1.0, random_state=seed)
    if name.startswith("moons"):
        return datasets.make_moons(int(name.split()[1]), noise=0.2, random_state=seed)
    load = {"iris": datasets.load_iris, "wine": datasets.load_wine}.get(name, datasets.load_breast_cancer)
    X, y = load(return_X_y=True)
    order = np.random.default_rng([seed, 77]).permutation(len(y))[: 150 if name == "cancer 150" else len(y)]
    return X[order], y[order]


def numbers(X: Any) -> Any:
    """Numbers as they are, categories as columns of zeros and ones, all standardised."""
    if isinstance(X, pd.DataFrame):
        X = pd.get_dummies(X).to_numpy(dtype=float)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def data(name: str, seed: int, most: int) -> tuple[Any, Any, Any, Any]:
    """X, y, and test rows with true labels."""
    rng = np.random.default_rng([seed, len(name)])
    if name in SMALL:
        X, y = small(name, seed)
        return numbers(X), y, numbers(X), y
    if name in MADE:
        X, y = made(name, 2 * most, rng)
        return X[:most], y[:most], X[most:], y[most:]
    X, y = table(name)
    X, order = numbers(X), rng.permutation(len(y))
    n = min(int(0.6 * len(y)), most, 600 if name == "digits" else most)
    return X[order[:n]], y[order[:n]], X[order[n:]][:2000], y[order[n:]][:2000]


def corrupted(X: Any, y: Any, kind: str, rate: float, seed: int) -> tuple[Any, Any]:
    if kind != "far":
        return X, plant(X, y, kind, rate, seed)
    given = noise.symmetric(y, rate, seed)
    moved = given != y
    X = X.copy()
    X[moved] *= np.random.default_rng(seed).uniform(5, 15, (moved.sum(), 1))
    return X, given


def of_cleanlab(model: Any, X: Any, given: Any, folds: Any) -> tuple[Any, float]:
    """1 - self-confidence out of fold, and core seconds."""
    start, P = time.process_time(), np.zeros((len(given), int(given.max()) + 1))
    for train, test in folds:
        fit = model.fit(X[train], given[train])
        P[np.ix_(test, fit.classes_)] = fit.predict_proba(X[test])
    from cleanlab.rank import get_label_quality_scores

    return 1 - get_label_quality_scores(given, P), time.process_time() - start


def cleaned(X: Any, given: Any, keep: Any, X_test: Any, y_test: Any, seed: int) -> float:
    if len(np.unique(given[keep])) < 2:
        return float("nan")
    fit = HistGradientBoostingClassifier(random_state=seed).fit(X[keep], given[keep])
    return round(100 * float((fit.predict(X_test) == y_test).mean()), 2)


def kept_by_cleanlab(X: Any, given: Any, seed: int) -> Any:
    from cleanlab.classification import CleanLearning

    found = CleanLearning(HistGradientBoostingClassifier(random_state=seed), seed=seed).find_label_issues(X, given)
    return ~found["is_label_issue"].to_numpy()


def measure(name: str, kind: str, rate: float, seed: int, most: int, clean: bool) -> dict[str, Any]:
    X, y, X_test, y_test = data(name, seed, most)
    X, given = corrupted(X, y, kind, rate, seed)
    wrong = given != y
    given = np.unique(given, return_inverse=True)[1] if len(np.unique(given)) <= given.max() else given
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, given))
    row: dict[str, Any] = {"set": name, "kind": kind, "rate": rate, "seed": seed, "n": len(y)}
    start = time.process_time()
    issues = find_label_issues(X, given, cv=folds, random_state=seed)
    row["seconds"] = round(time.process_time() - start, 2)
    hgb = HistGradientBoostingClassifier(random_state=seed)
    trees, row["seconds_hgb"] = of_cleanlab(hgb, X, given, folds)
    line, _ = of_cleanlab(LogisticRegression(max_iter=500), X, given, folds)
    row["seconds_hgb"] = round(row["seconds_hgb"], 2)
    for method, score in (("ours", issues.score), ("hgb", trees), ("lr", line)):
        row[f"ap_{method}"] = round(float(average_precision_score(wrong, score)), 4) if wrong.any() else ""
    for level in LEVELS:
        flagged = issues.p_wrong >= level
        row[f"rows_{level}"] = int(flagged.sum())
        row[f"claim_{level}"] = round(float(issues.p_wrong[flagged].mean()), 4) if flagged.any() else ""
        row[f"truth_{level}"] = round(float(wrong[flagged].mean()), 4) if flagged.any() else ""
    row["wrong"], row["estimate"] = round(float(wrong.mean()), 4), round(issues.noise_estimate, 4)
    row["low"], row["high"] = (round(float(end), 4) for end in issues.noise_interval)
    everything = np.ones(len(y), dtype=bool)
    if not clean:
        return row
    row["plain"] = cleaned(X, given, everything, X_test, y_test, seed)
    row["cleaned"] = cleaned(X, given, issues.p_wrong < 0.5, X_test, y_test, seed)
    row["cleaned_cleanlab"] = cleaned(X, given, kept_by_cleanlab(X, given, seed), X_test, y_test, seed)
    row["clean"] = cleaned(X, y, everything, X_test, y_test, seed)
    return row


def run(arguments: argparse.Namespace) -> None:
    sets, cells = (SMALL, SMALL_CELLS) if arguments.small else (SETS, CELLS)
    sets = arguments.sets or sets
    most, done = 1200 if arguments.full else 600, set()
    file = "label_errors_small" if arguments.small else "label_errors_cleaned" if arguments.clean else "label_errors"
    path = record.RESULTS / f"{file}.csv"
    if path.exists() and not arguments.no_record:
        rows = csv.DictReader(path.open(encoding="utf-8"))
        done = {(row["set"], row["kind"], float(row["rate"]), int(row["seed"]), int(row["most"])) for row in rows}
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for name in sets:
            for kind, rate in cells:
                if (name, kind, rate, seed, most) in done:
                    continue
                row = {"most": most, **measure(name, kind, rate, seed, most, arguments.clean)}
                print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
                if not arguments.no_record:
                    record.append(file, [row])


# ---- summaries -------------------------------------------------------------------------------------------------------


def summary(file: str) -> None:
    rows = list(csv.DictReader((record.RESULTS / f"{file}.csv").open(encoding="utf-8")))
    planted = [row for row in rows if row["kind"] != "none"]
    print(f"{len(rows)} cells, seeds {sorted({int(row['seed']) for row in rows})}")
    print(
        "\np_wrong minus share planted among flagged rows, cells of 10+ rows: mean size, signed mean, share within .15"
    )
    _claims("all kinds of noise", planted)
    _claims("all but boundary", [row for row in planted if row["kind"] != "boundary"])
    for kind in ("symmetric", "one class", "far", "boundary"):
        _claims(kind, [row for row in planted if row["kind"] == kind])
    print("\nflagged rows, all cells together: mean p_wrong, share planted, rows")
    for level in LEVELS:
        shown = [
            [float(row[f"{c}_{level}"]) for c in ("claim", "truth", "rows")] for row in planted if row[f"claim_{level}"]
        ]
        claim, truth, count = np.array(shown).T
        print(f"{level}: {claim @ count / count.sum():.3f} {truth @ count / count.sum():.3f} {int(count.sum())}")
    _precision(planted)
    none = [row for row in rows if row["kind"] == "none"]
    flagged = {(row["set"], row["seed"]): 100 * int(row["rows_0.5"]) / int(row["n"]) for row in none}
    worst = max(flagged, key=lambda key: flagged[key])
    above = sum(share > 0.5 for share in flagged.values())
    print(f"\nno planted errors: {above} of {len(none)} cells above .5% flagged, most {flagged[worst]:.2f}% {worst}")
    inside = np.array([float(row["low"]) <= float(row["wrong"]) <= float(row["high"]) for row in rows])
    width = np.array([float(row["high"]) - float(row["low"]) for row in rows])
    print(f"95% intervals hold the truth in {100 * inside.mean():.0f}% of cells; median width {np.median(width):.2f}")
    ratios = [float(row["seconds"]) / float(row["seconds_hgb"]) for row in rows]
    where = rows[int(np.argmax(ratios))]
    print(
        f"time over cleanlab's with HGB: median {np.median(ratios):.2f}, 90% {np.quantile(ratios, 0.9):.2f}, worst "
        f"{max(ratios):.2f} ({where['set']}, {where['kind']})"
    )
    _cleaned()


def _claims(name: str, rows: list[dict[str, Any]]) -> None:
    for level in LEVELS:
        off = np.array(
            [
                float(row[f"claim_{level}"]) - float(row[f"truth_{level}"])
                for row in rows
                if int(row[f"rows_{level}"]) >= 10
            ]
        )
        if len(off):
            print(
                f"{name:>20} {level}: {np.abs(off).mean():.3f} {off.mean():+.3f} "
                f"{100 * (np.abs(off) <= 0.15).mean():.0f}% of {len(off)} cells"
            )


def _precision(rows: list[dict[str, Any]]) -> None:
    """Average precision by kind of noise; a cell is a set and a noise, its value the mean over seeds."""
    cells = defaultdict(list)
    for row in rows:
        cells[row["kind"], row["rate"], row["set"]].append([float(row[f"ap_{m}"]) for m in ("ours", "hgb", "lr")])
    means = {key: np.mean(values, axis=0) for key, values in cells.items()}
    print("\naverage precision: ours, cleanlab with HGB, with LR; ours less the better of both: mean, worst set")
    for kind in dict.fromkeys(key[:2] for key in means):
        part = {key[2]: value for key, value in means.items() if key[:2] == kind}
        gain = {name: value[0] - value[1:].max() for name, value in part.items()}
        low = min(gain, key=lambda name: gain[name])
        shown = " ".join(f"{value:.3f}" for value in np.mean(list(part.values()), axis=0))
        print(f"{kind[0]:>10} {kind[1]:>4}: {shown}   {np.mean(list(gain.values())):+.3f} {gain[low]:+.3f} ({low})")
    gain = np.array([value[0] - value[1:].max() for value in means.values()])
    print(f"all: {gain.mean():+.3f}, below -.005 in {100 * (gain < -0.005).mean():.0f}% of {len(gain)} cells")
    far = {key[2]: round(float(value[0]), 3) for key, value in means.items() if key[0] == "far"}
    if far:
        print(f"high-leverage rows by set: {far}")


def _cleaned() -> None:
    path = record.RESULTS / "label_errors_cleaned.csv"
    rows = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    for method in ("plain", "cleaned", "cleaned_cleanlab", "clean"):
        values = [float(row[method]) for row in rows if row["kind"] != "none"]
        if values:
            print(f"accuracy on clean rows, {method}: {np.nanmean(values):.2f} ({len(values)} cells)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--probs", metavar="FOLDER")
    for flag in (
        "full",
        "clean",
        "small",
        "sizes",
        "limit",
        "real",
        "numbers",
        "aqua",
        "log-loss",
        "summary",
        "no-record",
    ):
        parser.add_argument(f"--{flag}", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    import label_errors_real as others

    parts = {name: getattr(others, name) for name in ("sizes", "limit", "real", "numbers", "aqua", "log_loss")}
    asked = [part for name, part in parts.items() if getattr(arguments, name)]
    for part in asked:
        part(arguments.sets or ())
    if arguments.probs:
        others.probabilities(arguments.probs)
    if arguments.summary:
        summary("label_errors_small" if arguments.small else "label_errors")
    if not (asked or arguments.probs or arguments.summary):
        run(arguments)


if __name__ == "__main__":
    main()
