"""Planted label errors in texts: find_label_issues beside cleanlab with logistic regression on the same features.

    RANKRANGE_DATA=... python benchmarks/label_noise_text.py [--evaluation] [--seeds 1] [--first 0] [--rows 600]
        [--words N]
    python benchmarks/label_noise_text.py --summary [--evaluation]

A cell is a table of texts, a way to make numbers of them (TF-IDF of scikit-learn, sparse; or the encoding that audits
use), a kind of noise and a seed. Reported is the average precision of planted errors: ours by p_wrong and by `score`,
cleanlab's by self-confidence and by normalised margin of five-fold probabilities of LogisticRegression() on the same
numbers (by its formulas where cleanlab is not installed). Texts are those that are at hand: docstrings and sources of
packages by where they are from, names of characters, C++ headers, requests by politeness, and made reviews.
`--evaluation` takes the tables that nothing was chosen on.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sysconfig
import time
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import record
from rankrange import AoRRClassifier, find_label_issues, noise
from rankrange.tables.encode import TableEncoder

NOISE = (("symmetric", 0.05), ("symmetric", 0.2), ("one class", 0.2))
Texts = dict[str, list[str]]


def _library(name: str) -> Path:
    folders = sysconfig.get_paths()
    inside = Path(folders["stdlib"]) / name
    return inside if inside.exists() else Path(folders["purelib"]) / name


def _python(folder: Path, docstrings: bool) -> list[str]:
    """The first sentences of docstrings, or the bodies of functions without them."""
    found = []
    for file in sorted(folder.rglob("*.py"))[:150]:
        source = file.read_text(encoding="utf-8", errors="ignore")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            words = ast.get_docstring(node)
            if docstrings and words:
                found.append(" ".join(words.split("\n\n")[0].split())[:300])
            elif not docstrings and len(node.body) > 2:
                found.append(" ".join("\n".join(ast.unparse(part) for part in node.body[1:]).split())[:300])
    return [text for text in dict.fromkeys(found) if len(text.split()) >= 3]


def packages() -> Texts:
    """First sentences of docstrings by package."""
    return {name: _python(_library(name), True) for name in ("pandas", "scipy", "networkx", "matplotlib")}


def characters() -> Texts:
    """Names of characters by category: capital and small letters, numbers, other symbols and marks."""
    found: Texts = {"Lu": [], "Ll": [], "No": [], "So": [], "Mn": []}
    for code in range(0x20000):
        kind = unicodedata.category(chr(code))
        if kind in found:
            name = unicodedata.name(chr(code), "")
            found[kind].append(re.sub(r"\b(CAPITAL|SMALL|SIGN|NUMBER)\b", "", name).strip())
    return found


def sources() -> Texts:
    """Bodies of functions of the standard library by package."""
    return {name: _python(_library(name), False) for name in ("asyncio", "email", "unittest", "tkinter", "xml")}


def mathematics() -> Texts:
    """First sentences of docstrings by part of sympy."""
    parts = ("combinatorics", "physics", "geometry", "matrices", "stats", "polys")
    return {name: _python(_library("sympy") / name, True) for name in parts}


def learners() -> Texts:
    """Docstrings of two packages that do similar things."""
    return {name: _python(_library(name), True) for name in ("sklearn", "torch")}


def headers() -> Texts:
    """Lines of comments of C++ headers by folder."""
    found: Texts = {}
    for name in ("ATen", "c10", "torch"):
        lines: list[str] = []
        for file in sorted((_library("torch") / "include" / name).rglob("*.h"))[:400]:
            lines += re.findall(r"// (.{30,200})", file.read_text(encoding="utf-8", errors="ignore"))
        found[name] = [line for line in dict.fromkeys(lines) if len(line.split()) >= 5]
    return found


def politeness() -> Texts:
    """Requests of Wikipedia editors: the quarter that people called most polite, and the least."""
    frame = pd.read_csv(Path(os.environ["RANKRANGE_DATA"]) / "label_errors" / "politeness_wiki.csv.gz")
    return {
        name: frame.loc[frame["meta.Binary"] == k, "text"].astype(str).tolist()
        for name, k in (("rude", -1), ("kind", 1))
    }


def reviews() -> Texts:
    """Three words of one of two disjoint vocabularies, and five of neither."""
    rng, found = np.random.default_rng(0), {}
    for kind in ("bad", "good"):
        own = [f"{kind}{i}" for i in range(40)]
        lines = [[*rng.choice(own, 3), *(f"w{i}" for i in rng.integers(0, 100, 5))] for _ in range(2000)]
        found[kind] = [" ".join(line) for line in lines]
    return found


DEVELOPMENT: dict[str, Callable[[], Texts]] = {"packages": packages, "characters": characters, "learners": learners}
EVALUATION: dict[str, Callable[[], Texts]] = {
    "sources": sources,
    "mathematics": mathematics,
    "headers": headers,
    "politeness": politeness,
    "reviews": reviews,
}


def drawn(texts: Texts, n: int, seed: int) -> tuple[list[str], Any]:
    """n of the texts at random, and the codes of their classes; a class has at most its even share and a half."""
    rng, most = np.random.default_rng([seed, len(texts)]), int(1.5 * n / len(texts))
    parts = [rng.permutation(np.array(part, dtype=object))[:most] for part in texts.values()]
    rows = rng.permutation(sum(map(len, parts)))[:n]
    codes = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[rows]
    return np.concatenate(parts)[rows].tolist(), codes


def planted(y: Any, kind: str, rate: float, seed: int) -> Any:
    if kind == "symmetric":
        return noise.symmetric(y, rate, seed)
    return noise.asymmetric(y, {0: 1}, rate, seed)


def of_cleanlab(X: Any, given: Any, seed: int) -> dict[str, Any]:
    """How doubtful each label is, by cleanlab's two ways; large is doubtful."""
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    P = cross_val_predict(LogisticRegression(max_iter=1000), X, given, cv=folds, method="predict_proba")
    try:
        from cleanlab.rank import get_label_quality_scores

        ways = ("self_confidence", "normalized_margin")
        return {way: -get_label_quality_scores(given, P, method=way) for way in ways}
    except ImportError:
        rows, others = np.arange(len(given)), P.copy()
        others[rows, given] = -1.0
        return {"self_confidence": -P[rows, given], "normalized_margin": others.max(axis=1) - P[rows, given]}


def encodings(texts: list[str], words: int | None) -> dict[str, Any]:
    encoded = TableEncoder().fit_transform(pd.DataFrame({"text": texts}))
    return {"tfidf": TfidfVectorizer(max_features=words).fit_transform(texts), "audit": encoded}


def measured(X: Any, y: Any, given: Any, seed: int) -> dict[str, Any]:
    wrong, start = given != y, time.process_time()
    estimator = None if sp.issparse(X) else AoRRClassifier(C="auto")  # audits take their encoding as it is
    issues = find_label_issues(X, given, estimator=estimator, random_state=seed)
    seconds, start = time.process_time() - start, time.process_time()
    theirs = of_cleanlab(X, given, seed)
    row: dict[str, Any] = {"wrong": int(wrong.sum()), "ap_p_wrong": average_precision_score(wrong, issues.p_wrong)}
    row["ap_score"] = average_precision_score(wrong, issues.score)
    row |= {f"ap_{way}": average_precision_score(wrong, score) for way, score in theirs.items()}
    flagged = issues.p_wrong >= 0.5
    row |= {"flagged": int(flagged.sum()), "right": int((flagged & wrong).sum()), "share": issues.noise_estimate}
    row |= {"seconds": seconds, "seconds_cleanlab": time.process_time() - start}
    row = {name: round(float(value), 4) for name, value in row.items()}
    row["weights"] = " ".join(f"{name}:{weight:.2f}" for name, weight, _ in issues.members)
    return row


def run(names: Any, seeds: Any, n: int, words: int | None, file: str | None) -> None:
    every = DEVELOPMENT | EVALUATION
    for name in names:
        texts = every[name]()
        for seed in seeds:
            some, y = drawn(texts, n, seed)
            for encoding, X in encodings(some, words).items():
                for kind, rate in NOISE:
                    key = {"table": name, "encoding": encoding, "kind": kind, "rate": rate, "seed": seed, "n": len(y)}
                    key |= {"classes": len(texts), "features": X.shape[1]}
                    row = {**key, **measured(X, y, planted(y, kind, rate, seed), seed)}
                    print(" ".join(str(value) for value in row.values()), flush=True)
                    if file is not None:
                        record.append(file, [row])


def summary(file: str) -> None:
    rows = pd.read_csv(record.RESULTS / f"{file}.csv")
    rows["best"] = rows[["ap_self_confidence", "ap_normalized_margin"]].max(axis=1)
    columns = ["ap_p_wrong", "ap_score", "ap_self_confidence", "ap_normalized_margin", "best"]
    print(rows.groupby(["encoding", "table"])[columns].mean().round(3).to_string())
    print(rows.groupby(["encoding", "kind", "rate"])[columns].mean().round(3).to_string())
    for encoding, part in rows.groupby("encoding"):
        for other in ("ap_self_confidence", "best"):
            gain = part["ap_p_wrong"] - part[other]
            worst = part.loc[gain.idxmin()]
            told = f"{worst['table']}, {worst['kind']} {worst['rate']}, seed {worst['seed']}"
            equal = f"at least equal in {(gain >= 0).sum()} of {len(part)} cells"
            print(
                f"{encoding}: p_wrong less {other}: mean {gain.mean():+.3f}, {equal}, worst {gain.min():+.3f} ({told})"
            )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--evaluation", action="store_true", help="the tables that nothing was chosen on")
    options.add_argument("--summary", action="store_true", help="of what is recorded")
    options.add_argument("--no-record", action="store_true")
    options.add_argument("--tables", nargs="*")
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--rows", type=int, default=600)
    options.add_argument("--words", type=int, help="so many of the most frequent words at most")
    asked = options.parse_args()
    file = "label_noise_text" if asked.evaluation else "label_noise_text_development"
    if not asked.summary:
        warnings.simplefilter("ignore")
        names = asked.tables or (EVALUATION if asked.evaluation else DEVELOPMENT)
        run(
            names,
            range(asked.first, asked.first + asked.seeds),
            asked.rows,
            asked.words,
            None if asked.no_record else file,
        )
    if not asked.no_record:
        summary(file)


if __name__ == "__main__":
    main()
