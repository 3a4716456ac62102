"""Wrong labels found and claimed: find_label_issues beside cleanlab, on planted errors and on real ones.

    RANKRANGE_DATA=... python benchmarks/label_errors.py [--full] [--seeds 1] [--first 0] [--sets ...] [--no-record]
    RANKRANGE_DATA=... python benchmarks/label_errors.py --real | --numbers | --aqua | --sizes
    RANKRANGE_DATA=... python benchmarks/label_errors.py --summary

A cell is a set, a kind of noise and a seed. For each of them, on the same rows and five folds:
- average precision (AP) of the ranking: ours (`score`), cleanlab's self-confidence with logistic regression (LR) and
  with boosted trees (HGB) on the same folds;
- claims: among rows with p_wrong >= .2, .5, .8 the mean claim and the share that was planted, and how many there are;
- the estimated share of wrong labels, its 95% interval and the truth; without planted errors the share of rows flagged;
- with `--clean`, accuracy of HGB on clean test rows when fitted to all labels, to those that each method keeps (ours:
  p_wrong < .5; cleanlab: `CleanLearning`), and to the true ones;
- core seconds of ours and of cleanlab with HGB.
The default has 600 rows and one seed (six core minutes), `--full` up to 1,200 rows; both go on where they were stopped:
cells that are in the results are not run again. Sets are those of docs/any_model.md, and circles,
checkerboards, xor and two spirals; `--sizes` has these at 5,000 and 100,000 rows, and a colour rule at 245,000 rows,
without planted errors.
Noise as in benchmarks/any_model.py, and far: rows moved out 5 to 15 times along their own direction, label wrong.
Real errors: `--real` music_genre (crowd labels with known truth); `--numbers` numeric targets with known errors beside
cleanlab's regression module; `--aqua` four sets in AQuA's protocol beside its printed figures, where flagging nothing
scores 65. Needs `pip install cleanlab`.
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
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import StratifiedKFold, train_test_split

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


def numbers(X: Any) -> Any:
    """Numbers as they are, categories as columns of zeros and ones, all standardised."""
    if isinstance(X, pd.DataFrame):
        X = pd.get_dummies(X).to_numpy(dtype=float)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def data(name: str, seed: int, most: int) -> tuple[Any, Any, Any, Any]:
    """X, y, and test rows with true labels."""
    rng = np.random.default_rng([seed, len(name)])
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
        told = issues.p_wrong >= level
        row[f"rows_{level}"] = int(told.sum())
        row[f"claim_{level}"] = round(float(issues.p_wrong[told].mean()), 4) if told.any() else ""
        row[f"truth_{level}"] = round(float(wrong[told].mean()), 4) if told.any() else ""
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
    sets = arguments.sets or SETS
    most, done = 1200 if arguments.full else 600, set()
    file = "label_errors_cleaned" if arguments.clean else "label_errors"
    path = record.RESULTS / f"{file}.csv"
    if path.exists() and not arguments.no_record:
        rows = csv.DictReader(path.open(encoding="utf-8"))
        done = {(row["set"], row["kind"], float(row["rate"]), int(row["seed"]), int(row["most"])) for row in rows}
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for name in sets:
            for kind, rate in CELLS:
                if (name, kind, rate, seed, most) in done:
                    continue
                row = {"most": most, **measure(name, kind, rate, seed, most, arguments.clean)}
                print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)
                if not arguments.no_record:
                    record.append(file, [row])


# ---- summaries -------------------------------------------------------------------------------------------------------


def summary() -> None:
    rows = list(csv.DictReader((record.RESULTS / "label_errors.csv").open(encoding="utf-8")))
    print(f"{len(rows)} cells, seeds {sorted({int(row['seed']) for row in rows})}")
    _claims(rows)
    cells = defaultdict(list)
    for row in rows:
        if row["ap_ours"]:
            cells[row["kind"], row["rate"]].append([float(row[f"ap_{m}"]) for m in ("ours", "hgb", "lr")])
    print("\nAverage precision: ours, cleanlab with HGB, with LR; ours less the better of both: mean, worst")
    for key, values in cells.items():
        ap = np.array(values)
        gain = ap[:, 0] - ap[:, 1:].max(axis=1)
        told = " ".join(f"{value:.3f}" for value in ap.mean(axis=0))
        print(f"{key[0]:>10} {key[1]:>4}: {told}   {gain.mean():+.3f} {gain.min():+.3f}")
    gain = np.concatenate([np.array(v)[:, 0] - np.array(v)[:, 1:].max(axis=1) for v in cells.values()])
    print(f"all: {gain.mean():+.3f}, below -.005 in {100 * (gain < -0.005).mean():.0f}% of cells")
    none = [row for row in rows if row["kind"] == "none"]
    flagged = {row["set"]: int(row["rows_0.5"]) / int(row["n"]) for row in none}
    worst = max(flagged, key=lambda name: flagged[name])
    print(f"\nNo planted errors: flagged at most {100 * flagged[worst]:.2f}% ({worst})")
    inside = [float(row["low"]) <= float(row["wrong"]) <= float(row["high"]) for row in rows]
    print(f"95% intervals that hold the truth: {100 * np.mean(inside):.0f}% of cells")
    times = [float(row["seconds"]) / float(row["seconds_hgb"]) for row in rows]
    told = f"median {np.median(times):.2f}, 90% {np.quantile(times, 0.9):.2f}, worst {max(times):.2f}"
    print(f"time over cleanlab's with HGB: {told}")
    path = record.RESULTS / "label_errors_cleaned.csv"
    rows = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    for method in ("plain", "cleaned", "cleaned_cleanlab", "clean"):
        values = [float(row[method]) for row in rows if row["kind"] != "none"]
        if values:
            print(f"accuracy on clean rows, {method}: {np.nanmean(values):.2f}")


def _claims(rows: list[dict[str, Any]]) -> None:
    print("claims less truth among rows told, cells with ten rows or more: mean size, signed mean, share within .15")
    for tag in ("", "raw_"):
        for level in LEVELS:
            off = [
                float(row[f"{tag}claim_{level}"]) - float(row[f"{tag}truth_{level}"])
                for row in rows
                if row["kind"] != "none" and int(row[f"{tag}rows_{level}"]) >= 10
            ]
            sizes = np.abs(off)
            print(
                f"{tag or 'tried '}{level}: {sizes.mean():.3f} {np.mean(off):+.3f} {100 * (sizes <= 0.15).mean():.0f}% "
                f"of {len(off)} cells"
            )


# ---- sizes, real errors, numbers, AQuA -------------------------------------------------------------------------------


def sizes() -> None:
    """Tables that trees can learn, without planted errors: how many rows are flagged, and in what time."""
    for name, n in [(name, n) for n in (5000, 100_000) for name in MADE] + [("colours", 245_000)]:
        X, y = made(name, n, np.random.default_rng([0, len(name)]))
        start, cpu = time.perf_counter(), time.process_time()
        issues = find_label_issues(X, y, random_state=0)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        flagged = (issues.p_wrong >= 0.5).mean()
        row = {"set": name, "n": n, "flagged": round(float(flagged), 5), "estimate": round(issues.noise_estimate, 5)}
        row |= {"high": round(issues.noise_interval[1], 5), "wall": round(wall, 1), "core": round(cpu, 1)}
        print(row, flush=True)
        record.append("label_errors_sizes", [row])


def folder(name: str) -> Any:
    return pd.read_csv(os.path.join(os.environ["RANKRANGE_DATA"], "label_errors", f"{name}.csv.gz"))


def real() -> None:
    """Crowd labels of songs: AP of the 213 wrong ones, claims, and test accuracy after cleaning by itself."""
    frame, test = folder("music_genre_train"), folder("music_genre_test")
    wrong = (frame["given_label"] != frame["true_label"]).to_numpy()
    columns = [c for c in frame.columns if c not in ("given_label", "true_label", "is_error")]
    X, T = frame[columns].to_numpy(dtype=float), test[columns].to_numpy(dtype=float)
    centre, spread = X.mean(axis=0), X.std(axis=0)
    X, T = (X - centre) / spread, (T - centre) / spread
    classes, given = np.unique(frame["given_label"], return_inverse=True)
    target = np.searchsorted(classes, test["target"])
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, given))
    issues = find_label_issues(X, given, cv=folds, random_state=0)
    for name, model in (
        ("lr", LogisticRegression(C=0.1, max_iter=500)),
        ("hgb", HistGradientBoostingClassifier(random_state=0)),
    ):
        print(f"cleanlab {name}: AP {average_precision_score(wrong, of_cleanlab(model, X, given, folds)[0]):.3f}")
    print(f"ours: AP {average_precision_score(wrong, issues.score):.3f}, {issues.noise_estimate:.3f} wrong, ", end="")
    print(f"interval {issues.noise_interval}, truth {wrong.mean():.3f}")
    for level in LEVELS:
        told = issues.p_wrong >= level
        if told.any():
            print(
                f"  p_wrong >= {level}: {told.sum()} rows, {issues.p_wrong[told].mean():.2f} / {wrong[told].mean():.2f}"
            )
    plans = {
        "as given": (given, np.ones(len(given), dtype=bool)),
        "dropped": (given, issues.p_wrong < 0.5),
        "relabelled": (np.where(issues.p_wrong >= 0.5, issues.suggested, given), np.ones(len(given), dtype=bool)),
    }
    for name, (labels, keep) in plans.items():
        fit = LogisticRegression(C=0.1, max_iter=500).fit(X[keep], labels[keep])
        print(f"  test accuracy {name}: {(fit.predict(T) == target).mean():.3f}")


def real_numbers() -> None:
    """Numeric targets with known errors: AP of the audit's p(wrong) and of cleanlab's regression module."""
    from cleanlab.regression.learn import CleanLearning

    from rankrange.audit import audit_table

    for name in ("airquality_co", "airquality_nmhc", "telomere_cq_telo", "telomere_ts", "metaphor_novelty"):
        frame = folder(name)
        wrong = frame.pop("is_error").astype(bool).to_numpy()
        frame = frame.drop(columns=["true_label"])
        start = time.process_time()
        judged = audit_table(frame, "given_label", task="numbers").judgement
        seconds = time.process_time() - start
        size = np.abs(judged.residuals)
        X = pd.get_dummies(frame.drop(columns=["given_label"])).to_numpy(dtype=float)
        start = time.process_time()
        theirs = CleanLearning(HistGradientBoostingRegressor(random_state=0), seed=0).find_label_issues(
            X, frame["given_label"].to_numpy()
        )
        told = judged.wrong >= 0.5
        claim = f"{judged.wrong[told].mean():.2f} / {wrong[told].mean():.2f} of {told.sum()}" if told.any() else "none"
        print(
            f"{name}: AP ours {average_precision_score(wrong, judged.wrong + 1e-9 * size):.3f}, cleanlab's module "
            f"{average_precision_score(wrong, 1 - theirs['label_quality']):.3f}; claim / truth {claim}; "
            f"seconds {seconds:.1f} and {time.process_time() - start:.1f}",
            flush=True,
        )


def aqua() -> None:
    """AQuA's protocol: weighted F1 of the flags, mean over rates .1 and .4, beside its printed figures."""
    printed = pd.read_csv(os.path.join(os.environ["RANKRANGE_DATA"], "label_errors", "aqua_published.csv"))
    for name in TABLES:
        X, y = table(name)
        X = numbers(X)
        X, _, y, _ = train_test_split(X, y, test_size=0.15, stratify=y, random_state=1)
        for kind in ("uniform", "asymmetric"):
            scores = []
            for rate in (0.1, 0.4):
                K = int(y.max()) + 1
                flips = {c: (c + 1) % K for c in range(K)}
                given = noise.symmetric(y, rate, 42) if kind == "uniform" else noise.asymmetric(y, flips, rate, 42)
                flags = find_label_issues(X, given, calibrate=False, random_state=0).p_wrong >= 0.5
                scores.append(100 * f1_score(given != y, flags, average="weighted"))
            known = printed[(printed["dataset"] == name) & (printed["noise"] == kind)]
            told = ", ".join(f"{m} {v}" for m, v in zip(known["method"], known["value"], strict=True))
            print(f"{name} {kind}: ours {np.mean(scores):.1f} ({scores[0]:.1f}, {scores[1]:.1f}); {told}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sets", nargs="+")
    for flag in ("full", "clean", "sizes", "real", "numbers", "aqua", "summary", "no-record"):
        parser.add_argument(f"--{flag}", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    parts = {"sizes": sizes, "real": real, "numbers": real_numbers, "aqua": aqua, "summary": summary}
    asked = [part for name, part in parts.items() if getattr(arguments, name)]
    for part in asked:
        part()
    if not asked:
        run(arguments)


if __name__ == "__main__":
    main()
