"""Wrong labels found and flagged: find_label_issues beside cleanlab, on planted errors and on real ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import StratifiedKFold, train_test_split

from rankrange import find_label_issues, noise

from .data import DATA, KINDS, PAPER, TABLES, corrupt, drawn, labelled, scaled, standardised, table
from .harness import Row, benchmark, rounded, timed

MADE = ("circles", "checkerboard", "xor", "spirals")
CELLS = (*KINDS, ("far", 0.1))
LEVELS = (0.2, 0.5, 0.8)


def of_cleanlab(model: Any, X: Any, given: Any, folds: Any) -> Any:
    """1 - self-confidence out of fold."""
    from cleanlab.rank import get_label_quality_scores

    P = np.zeros((len(given), int(given.max()) + 1))
    for train, test in folds:
        fit = model.fit(X[train], given[train])
        P[np.ix_(test, fit.classes_)] = fit.predict_proba(X[test])
    return 1 - get_label_quality_scores(given, P)


def calibration(p_wrong: Any, wrong: Any) -> Row:
    """At each level: the mean p_wrong, the share of wrong labels and the number of rows."""
    found: Row = {}
    for level in LEVELS:
        flagged = p_wrong >= level
        found[f"rows_{level}"] = int(flagged.sum())
        found[f"claim_{level}"] = float(p_wrong[flagged].mean()) if flagged.any() else ""
        found[f"truth_{level}"] = float(wrong[flagged].mean()) if flagged.any() else ""
    return found


def shares(issues: Any, wrong: Any) -> Row:
    low, high = issues.noise_interval
    return {"wrong": wrong.mean(), "estimate": issues.noise_estimate, "low": low, "high": high}


def _planted(rows: pd.DataFrame) -> pd.DataFrame:
    """Average precision and calibration by kind of noise; on clean labels the share of rows flagged."""
    best = rows[["ap_hgb", "ap_lr"]].apply(pd.to_numeric).max(axis=1)
    rows = rows.assign(gain=pd.to_numeric(rows["ap_ours"]) - best, flagged=rows["rows_0.5"] / rows["n"])
    many = rows["rows_0.5"] >= 10
    off = (pd.to_numeric(rows["claim_0.5"]) - pd.to_numeric(rows["truth_0.5"])).where(many)
    rows = rows.assign(off=off.abs(), inside=(rows["low"] <= rows["wrong"]) & (rows["wrong"] <= rows["high"]))
    for column in ("ap_ours", "ap_hgb", "ap_lr"):
        rows[column] = pd.to_numeric(rows[column])
    groups = rows.groupby(["kind", "rate"], sort=False)
    found = groups[["ap_ours", "ap_hgb", "ap_lr", "gain", "off", "flagged", "inside"]].mean()
    return found.assign(worst=groups["gain"].min(), runs=groups.size())


@benchmark(_planted, seeds=1, sets=("breast cancer",), most=150)
def label_errors(
    seed: int = 0, seeds: int = 1, sets: tuple = (*PAPER, *TABLES, *MADE), most: int = 600
) -> Iterator[Row]:
    """Planted errors: average precision of the ranking, calibration of p_wrong, share, false alarms, and time.

    On the same five folds: ours by `score`, and cleanlab's self-confidence with logistic regression and boosted trees.
    """
    for draw in range(seed, seed + seeds):
        for name in sets:
            for kind, rate in CELLS:
                X, y = drawn(name, draw, most)
                X, given = corrupt(X, y, kind, rate, draw)
                wrong, given = given != y, np.unique(given, return_inverse=True)[1]
                folds = list(StratifiedKFold(5, shuffle=True, random_state=draw).split(X, given))
                issues, seconds = timed(find_label_issues, X, given, cv=folds, random_state=draw)
                trees = HistGradientBoostingClassifier(random_state=draw)
                hgb, seconds_hgb = timed(of_cleanlab, trees, X, given, folds)
                lr = of_cleanlab(LogisticRegression(max_iter=500), X, given, folds)
                row: Row = {"most": most, "set": name, "kind": kind, "rate": rate, "seed": draw, "n": len(y)}
                row |= {"seconds": seconds, "seconds_hgb": seconds_hgb}
                for method, score in (("ours", issues.score), ("hgb", hgb), ("lr", lr)):
                    row[f"ap_{method}"] = float(average_precision_score(wrong, score)) if wrong.any() else ""
                yield rounded({**row, **calibration(issues.p_wrong, wrong), **shares(issues, wrong)})


# ---- real errors -----------------------------------------------------------------------------------------------------


@benchmark(lambda rows: rows.set_index("set").select_dtypes("number").T, rows=120)
def label_errors_real(seed: int = 0, rows: int | None = None) -> Iterator[Row]:
    """Crowd labels of songs (music_genre): average precision, calibration, and test accuracy after automatic cleaning.

    Rows with p_wrong of at least .5 are dropped or relabelled, or all with at least .2 are dropped, beside what
    cleanlab's CleanLearning keeps and the true labels.
    """
    from cleanlab.classification import CleanLearning

    frame, test = labelled("music_genre_train").head(rows), labelled("music_genre_test")
    wrong = (frame["given_label"] != frame["true_label"]).to_numpy()
    columns = [c for c in frame.columns if c not in ("given_label", "true_label", "is_error")]
    X, T = frame[columns].to_numpy(dtype=float), test[columns].to_numpy(dtype=float)
    X, T = scaled(X, T)
    classes, given = np.unique(frame["given_label"], return_inverse=True)
    target, truth = (np.searchsorted(classes, labels) for labels in (test["target"], frame["true_label"]))
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, given))
    issues = find_label_issues(X, given, cv=folds, random_state=seed)
    row: Row = {"set": "music_genre", "ap": average_precision_score(wrong, issues.score)}
    models = {"lr": LogisticRegression(C=0.1, max_iter=500), "hgb": HistGradientBoostingClassifier(random_state=seed)}
    for name, model in models.items():
        row[f"ap_{name}"] = average_precision_score(wrong, of_cleanlab(model, X, given, folds))
    row |= {**shares(issues, wrong), **calibration(issues.p_wrong, wrong)}
    likely, everything = issues.p_wrong >= 0.5, np.ones(len(given), dtype=bool)
    theirs = CleanLearning(models["hgb"], seed=seed).find_label_issues(X, given)
    plans = {
        "as_given": (given, everything),
        "dropped": (given, ~likely),
        "suspects_dropped": (given, issues.p_wrong < 0.2),
        "relabelled": (np.where(likely, issues.suggested, given), everything),
        "cleanlab": (given, ~theirs["is_label_issue"].to_numpy()),
        "truth": (truth, everything),
    }
    for (name, (labels, keep)), (tag, model) in product(plans.items(), models.items()):
        fit = model.fit(X[keep], labels[keep])
        row[f"{name}_{tag}"] = 100 * float((fit.predict(T) == target).mean())
    yield rounded(row)


NUMERIC = ("airquality_co", "airquality_nmhc", "telomere_cq_telo", "telomere_ts", "metaphor_novelty", "politeness_wiki")


def _precision(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.groupby("set")[["ap", "ap_cleanlab", "ap_p_wrong", "seconds", "seconds_cleanlab"]].mean()


@benchmark(_precision, seeds=1, sets=("telomere_ts",), rows=150)
def label_errors_numbers(seed: int = 0, seeds: int = 5, sets: tuple = NUMERIC, rows: int = 3000) -> Iterator[Row]:
    """Numeric targets with known errors: average precision of the audit's order, by residuals and by its p(wrong)."""
    from cleanlab.regression.learn import CleanLearning

    from rankrange.audit import audit_table

    for name, draw in product(sets, range(seed, seed + seeds)):
        frame = labelled(name).sample(frac=1.0, random_state=draw).head(rows).reset_index(drop=True)
        wrong = frame.pop("is_error").astype(bool).to_numpy()
        frame = frame.drop(columns=["true_label"])
        if "text" in frame:  # what else the file has of a text comes from the same annotations
            words = TfidfVectorizer(min_df=3, sublinear_tf=True).fit_transform(frame["text"])
            X = TruncatedSVD(40, random_state=0).fit_transform(words)
            frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(40)]).assign(given_label=frame["given_label"])
        audit, seconds = timed(audit_table, frame, "given_label", task="numbers", seed=draw)
        X = pd.get_dummies(frame.drop(columns=["given_label"])).to_numpy(dtype=float)
        start = time.process_time()
        trees = HistGradientBoostingRegressor(random_state=draw)
        theirs = CleanLearning(trees, seed=draw).find_label_issues(X, frame["given_label"].to_numpy())
        seconds_cleanlab = time.process_time() - start
        result = audit.result
        off = np.abs(result.residuals)
        row: Row = {"set": name, "seed": draw, "n": len(frame), "wrong": wrong.mean()}
        scores = {"ap": off, "ap_cleanlab": 1 - theirs["label_quality"], "ap_p_wrong": result.wrong + 1e-9 * off}
        row |= {key: average_precision_score(wrong, score) for key, score in scores.items()}
        row |= calibration(result.wrong, wrong)
        yield rounded(row | {"seconds": seconds, "seconds_cleanlab": seconds_cleanlab})


@benchmark(lambda rows: rows.set_index(["set", "noise"]), sets=("car_evaluation",), rows=300)
def label_errors_aqua(seed: int = 0, sets: tuple = TABLES, rows: int | None = None) -> Iterator[Row]:
    """AQuA's protocol on four sets beside its printed figures: weighted F1 of the flags, mean over rates .1 and .4."""
    printed = pd.read_csv(DATA / "label_errors" / "aqua_published.csv")
    for name, kind in product(sets, ("uniform", "asymmetric")):
        X, y = table(name)
        X, _, y, _ = train_test_split(standardised(X), y, test_size=0.15, stratify=y, random_state=1)
        X, y, scores, nothing = X[:rows], y[:rows], [], []
        for rate in (0.1, 0.4):
            K = int(y.max()) + 1
            mapping = {c: (c + 1) % K for c in range(K)}
            given = noise.symmetric(y, rate, 42) if kind == "uniform" else noise.asymmetric(y, mapping, rate, 42)
            flags = find_label_issues(X, given, random_state=seed).p_wrong >= 0.5
            for found, marks in ((scores, flags), (nothing, np.zeros(len(y), dtype=bool))):
                found.append(100 * f1_score(given != y, marks, average="weighted"))
        known = printed[(printed["dataset"] == name) & (printed["noise"] == kind)]
        row: Row = {"set": name, "noise": kind, "ours": np.mean(scores), "at_0.1": scores[0], "at_0.4": scores[1]}
        best = "; ".join(f"{m} {v}" for m, v in zip(known["method"], known["value"], strict=True))
        yield rounded(row | {"nothing": np.mean(nothing), "printed": best}, 1)
