"""Beside planted errors: sizes, limits, real errors, numbers, AQuA, networks' probabilities. Run by label_errors.py.

- `--sizes`: circles, checkerboards, xor and two spirals at 5,000 and 100,000 rows and a rule of colours at 245,000,
  without planted errors: rows flagged, time, and whether a sample of the rows and all of them get the same verdict.
- `--real`: music_genre, crowd labels with known truth: average precision (AP), calibration of p_wrong, and test
accuracy after cleaning
  without a hand (rows with p_wrong >= .5 dropped, or relabelled; or all suspects dropped, p_wrong >= .2).
- `--numbers`: numeric targets with known errors, five seeds (of the rows that are taken, the folds and the models): AP
  of the audit's order, by how far numbers are off, and of its p(wrong), beside cleanlab's regression module.
- `--aqua`: four sets in AQuA's protocol beside its printed figures. The measure is the weighted F1 of the flags, the
  mean over rates .1 and .4, and flagging nothing scores 65.
- `--log-loss`: AoRRClassifier beside logistic regression on clean tables.
- `--limit`: p_wrong from the same out-of-fold predictions with the true transition matrix: how often labels of each
class are replaced by
  each other, at 600 and at 1,800 rows: the remaining error is due to the predictions and to chance.
`--sets` names some of the sets of these.
- `--probs FOLDER`: probabilities of CIFAR-10N labels by networks that have not seen the image (the files that
  `torch_suspects.py --train FOLDER` leaves), with nothing but them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.metrics import log_loss as log_loss_of
from sklearn.model_selection import StratifiedKFold, train_test_split

import label_errors
import record
from any_model import TABLES, table
from label_errors import LEVELS, MADE, made, of_cleanlab
from rankrange import AoRRClassifier, find_label_issues, noise

NUMBERS = ("airquality_co", "airquality_nmhc", "telomere_cq_telo", "telomere_ts", "metaphor_novelty", "politeness_wiki")
CLEAN = ("monk", "australian", "phoneme", "titanic", "splice", "breast cancer", "compas", "mushrooms")
Sets = Collection[str]


def sizes(sets: Sets) -> None:
    """Tables that trees can learn, without planted errors: how many rows are flagged, and in what time."""
    cases = [(name, n) for n in (5000, 100_000) for name in MADE] + [("colours", 245_000)]
    for name, n in (case for case in cases if not sets or case[0] in sets):
        X, y = made(name, n, np.random.default_rng([0, len(name)]))
        start, cpu = time.perf_counter(), time.process_time()
        issues = find_label_issues(X, y, random_state=0)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        part = find_label_issues(X[: n // 5], y[: n // 5], random_state=0)
        both = (issues.p_wrong[: n // 5] >= 0.5, part.p_wrong >= 0.5)
        row = {"set": name, "n": n, "flagged": int((issues.p_wrong >= 0.5).sum()), "flagged_in_a_fifth": both[1].sum()}
        row |= {"disagree": int((both[0] != both[1]).sum()), "estimate": round(issues.noise_estimate, 5)}
        row |= {"high": round(issues.noise_interval[1], 5), "wall": round(wall, 1), "core": round(cpu, 1)}
        print(row, flush=True)
        record.append("label_errors_sizes", [row])


def folder(name: str) -> Any:
    return pd.read_csv(os.path.join(os.environ["RANKRANGE_DATA"], "label_errors", f"{name}.csv.gz"))


def calibration(p_wrong: Any, wrong: Any) -> dict[str, Any]:
    """The mean p_wrong, the share of wrong labels and the number of rows at each level."""
    found: dict[str, Any] = {}
    for level in LEVELS:
        flagged = p_wrong >= level
        found[f"rows_{level}"] = int(flagged.sum())
        found[f"claim_{level}"] = round(float(p_wrong[flagged].mean()), 3) if flagged.any() else ""
        found[f"truth_{level}"] = round(float(wrong[flagged].mean()), 3) if flagged.any() else ""
    return found


def real(_: Sets) -> None:
    """Crowd labels of songs: AP of the 213 wrong ones, calibration, and test accuracy after automatic cleaning."""
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
    row: dict[str, Any] = {"set": "music_genre", "ap": round(average_precision_score(wrong, issues.score), 4)}
    models = {"lr": LogisticRegression(C=0.1, max_iter=500), "hgb": HistGradientBoostingClassifier(random_state=0)}
    for name, model in models.items():
        row[f"ap_{name}"] = round(average_precision_score(wrong, of_cleanlab(model, X, given, folds)[0]), 4)
    row |= {"wrong": round(wrong.mean(), 4), "estimate": round(issues.noise_estimate, 4)}
    row |= {"low": round(issues.noise_interval[0], 4), "high": round(issues.noise_interval[1], 4)}
    row |= calibration(issues.p_wrong, wrong)
    likely, everything = issues.p_wrong >= 0.5, np.ones(len(given), dtype=bool)
    plans = {
        "as_given": (given, everything),
        "dropped": (given, ~likely),
        "suspects_dropped": (given, issues.p_wrong < 0.2),
        "relabelled": (np.where(likely, issues.suggested, given), everything),
        "cleanlab": (given, label_errors.kept_by_cleanlab(X, given, 0)),
        "truth": (np.searchsorted(classes, frame["true_label"]), everything),
    }
    for name, (labels, keep) in plans.items():
        for tag, model in models.items():
            fit = model.fit(X[keep], labels[keep])
            row[f"{name}_{tag}"] = round(100 * float((fit.predict(T) == target).mean()), 2)
    print(row)
    record.append("label_errors_real", [row])


def numbers(sets: Sets) -> None:
    """Numeric targets with known errors: AP of the audit's order and of cleanlab's regression module, five seeds."""
    from cleanlab.regression.learn import CleanLearning

    from rankrange.audit import audit_table

    for name, seed in product(sets or NUMBERS, range(5)):
        frame = folder(name).sample(frac=1.0, random_state=seed).head(3000).reset_index(drop=True)
        wrong = frame.pop("is_error").astype(bool).to_numpy()
        frame = frame.drop(columns=["true_label"])
        if "text" in frame:  # what else the file has of a text comes from the same annotations
            words = TfidfVectorizer(min_df=3, sublinear_tf=True).fit_transform(frame["text"])
            X = TruncatedSVD(40, random_state=0).fit_transform(words)
            frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(40)]).assign(given_label=frame["given_label"])
        start = time.process_time()
        result = audit_table(frame, "given_label", task="numbers", seed=seed).result
        seconds = time.process_time() - start
        X = pd.get_dummies(frame.drop(columns=["given_label"])).to_numpy(dtype=float)
        start = time.process_time()
        theirs = CleanLearning(HistGradientBoostingRegressor(random_state=seed), seed=seed).find_label_issues(
            X, frame["given_label"].to_numpy()
        )
        score = result.wrong + 1e-9 * np.abs(result.residuals)
        row: dict[str, Any] = {"set": name, "seed": seed, "n": len(frame), "wrong": round(wrong.mean(), 4)}
        row |= {"ap": round(average_precision_score(wrong, np.abs(result.residuals)), 4)}
        row |= {"ap_cleanlab": round(average_precision_score(wrong, 1 - theirs["label_quality"]), 4)}
        row |= {"ap_p_wrong": round(average_precision_score(wrong, score), 4)}
        row |= {**calibration(result.wrong, wrong), "seconds": round(seconds, 1)}
        row["seconds_cleanlab"] = round(time.process_time() - start, 1)
        print(row, flush=True)
        record.append("label_errors_numbers", [row])


def aqua(sets: Sets) -> None:
    """AQuA's protocol: weighted F1 of the flags, mean over rates .1 and .4, beside its printed figures."""
    printed = pd.read_csv(os.path.join(os.environ["RANKRANGE_DATA"], "label_errors", "aqua_published.csv"))
    for name in sets or TABLES:
        X, y = table(name)
        X = label_errors.numbers(X)
        X, _, y, _ = train_test_split(X, y, test_size=0.15, stratify=y, random_state=1)
        for kind in ("uniform", "asymmetric"):
            scores, nothing = [], []
            for rate in (0.1, 0.4):
                K = int(y.max()) + 1
                mapping = {c: (c + 1) % K for c in range(K)}
                given = noise.symmetric(y, rate, 42) if kind == "uniform" else noise.asymmetric(y, mapping, rate, 42)
                flags = find_label_issues(X, given, random_state=0).p_wrong >= 0.5
                scores.append(100 * f1_score(given != y, flags, average="weighted"))
                nothing.append(100 * f1_score(given != y, np.zeros(len(y), dtype=bool), average="weighted"))
            known = printed[(printed["dataset"] == name) & (printed["noise"] == kind)]
            row = {"set": name, "noise": kind, "ours": round(np.mean(scores), 1), "at_0.1": round(scores[0], 1)}
            row |= {"at_0.4": round(scores[1], 1), "nothing": round(np.mean(nothing), 1)}
            row["printed"] = "; ".join(f"{m} {v}" for m, v in zip(known["method"], known["value"], strict=True))
            print(row, flush=True)
            record.append("label_errors_aqua", [row])


def planted_transition(kind: str, rate: float, n_classes: int) -> Any:
    """(true, given): how often labels of each class are replaced, as `any_model.plant` does it."""
    if kind == "symmetric":
        return np.where(np.eye(n_classes) == 1, 1 - rate, rate / (n_classes - 1))
    T = np.eye(n_classes)
    for c in (1,) if n_classes == 2 else range(0, n_classes, 2):
        T[c, c], T[c, 0 if n_classes == 2 else (c + 1) % n_classes] = 1 - rate, rate
    return T


def known_rates(issues: Any, codes: Any, T: Any) -> Any:
    """p(wrong) from the mixture of the members for a known T; high-leverage rows are left out."""
    mean = sum(weight * np.asarray(P, dtype=float) for _, weight, P in issues.members)
    Z, near = np.log(np.clip(mean, 1e-3, 1.0)), ~issues.high_leverage

    def cost(x: Any) -> float:
        likelihood = softmax(np.exp(x[0]) * Z[near] + x[1:], axis=1) @ T
        own = likelihood[np.arange(len(likelihood)), codes[near]]
        return float(0.5 * x[0] ** 2 + 0.125 * x[1:] @ x[1:] - np.log(np.maximum(own, 1e-300)).sum())

    x = minimize(cost, np.zeros(1 + Z.shape[1])).x
    joint = softmax(np.exp(x[0]) * Z + x[1:], axis=1) * T[:, codes].T
    return np.where(near, 1 - joint[np.arange(len(codes)), codes] / joint.sum(axis=1), 0.0)


def limit(sets: Sets) -> None:
    """p_wrong with known rates beside ours, symmetric noise and one class, one seed."""
    for most in (600, 1800):
        for name in sets or label_errors.SETS:
            for kind, rate in (("symmetric", 0.1), ("symmetric", 0.2), ("one class", 0.3)):
                X, y, _, _ = label_errors.data(name, 0, most)
                given = label_errors.corrupted(X, y, kind, rate, 0)[1]
                if len(y) < most / 2 or len(np.unique(given)) <= given.max():
                    continue
                issues = find_label_issues(X, given, random_state=0)
                estimates = {"ours": issues.p_wrong}
                estimates["known"] = known_rates(issues, given, planted_transition(kind, rate, int(y.max()) + 1))
                row = {"set": name, "kind": kind, "rate": rate, "n": len(y)}
                for who, p in estimates.items():
                    row |= {f"{who}_{key}": value for key, value in calibration(p, given != y).items()}
                print(row, flush=True)
                record.append("label_errors_limit", [row])


def log_loss(sets: Sets) -> None:
    """AoRRClassifier with its defaults beside logistic regression on clean tables, three splits."""
    for name in sets or CLEAN:
        values = []
        for seed in range(3):
            X, y, T, target = label_errors.data(name, seed, 800)
            models = (AoRRClassifier(random_state=0), LogisticRegression(max_iter=1000))
            values.append([log_loss_of(target, model.fit(X, y).predict_proba(T)) for model in models])
        ours, theirs = np.mean(values, axis=0)
        row = {"set": name, "aorr": round(ours, 4), "lr": round(theirs, 4), "difference": round(ours - theirs, 4)}
        print(row, flush=True)
        record.append("label_errors_log_loss", [row])


def probabilities(where: str) -> None:
    """Probabilities only: AP beside self-confidence and normalised margin, and calibration."""
    for path in sorted(Path(where).glob("folds_cifar10n_*.npz")):
        held = np.load(path)
        P, given = held["p"].astype(float), held["labels"].astype(int)
        P, wrong, rows = P / P.sum(axis=1, keepdims=True), given != held["clean"], np.arange(len(given))
        issues = find_label_issues(y=given, pred_probs=P)
        own, others = P[rows, given], P.copy()
        others[rows, given] = -1.0
        row: dict[str, Any] = {"set": path.stem, "ap": round(average_precision_score(wrong, issues.score), 4)}
        row["ap_self_confidence"] = round(average_precision_score(wrong, -own), 4)
        row["ap_margin"] = round(average_precision_score(wrong, others.max(axis=1) - own), 4)
        row |= {"wrong": round(wrong.mean(), 4), "estimate": round(issues.noise_estimate, 4)}
        row |= {"low": round(issues.noise_interval[0], 4), "high": round(issues.noise_interval[1], 4)}
        row |= calibration(issues.p_wrong, wrong)
        print(row, flush=True)
        record.append("label_errors_probabilities", [row])
