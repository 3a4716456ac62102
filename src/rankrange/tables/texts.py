"""Text columns as numbers: weighted counts of words and of runs of characters, reduced to a few dozen directions.

Words say what a text is about, runs of three to five characters forgive spelling and endings. Counts are weighted by
how rare they are (TF-IDF) and reduced by a truncated SVD, so that neighbours, trees and linear models can take them.
Where the texts are long altogether, counts are hashed: no list of all words is kept. A column of many values that
are no prose gets columns with what the target usually is beside each of them, learnt from other rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array

# Features of a text column, and entries of its lists of words and of runs of characters.
_DIRECTIONS, _WORDS = 50, 20_000
# From so many characters on counts are hashed; of a cell so many are read.
_HASHED_FROM, _READ = 30_000_000, 20_000
# Prose has so many words per cell.
_WORDS_OF_PROSE = 3.0
# Rows from which the directions are learnt.
_LEARNT_ON = 50_000
# What the target usually is beside a value counts so many rows of the overall mean; up to so many classes less one.
_DRAWN, _MOST_USUAL = 10.0, 9


def is_prose(levels: list[str]) -> bool:
    """Whether different texts are prose: half of them have words that some others have, but not most."""
    some = levels[:: max(1, len(levels) // 500)][:500]
    words = [set(text.casefold().split()) for text in some]
    if not words or np.mean([len(w) for w in words]) < _WORDS_OF_PROSE:
        return False
    counts: dict[str, int] = {}
    for own in words:
        for word in own:
            counts[word] = counts.get(word, 0) + 1
    informative = {word for word, count in counts.items() if 1 < count < 0.6 * len(words)}
    return sum(bool(own & informative) for own in words) >= 0.5 * len(words)


def as_texts(column: Any) -> list[str]:
    """The cells of a pyarrow column as texts; a missing one is ""."""
    return ["" if value is None else str(value) for value in column.to_pylist()]


def learn_texts(texts: list[str], seed: int = 0) -> dict[str, Any]:
    """Learn the directions of a column of texts.

    Parameters
    ----------
    texts : list of str
        One per row; a missing cell is "".
    seed : int
        Of the random start of the SVD.

    Returns
    -------
    dict
        The fitted parts, which `encode_texts` needs, and their number of features as "width".
    """
    from sklearn.decomposition import TruncatedSVD

    step = max(1, len(texts) // _LEARNT_ON)
    some = [text[:_READ] for text in texts[::step]]
    hashed = sum(map(len, some)) > _HASHED_FROM
    words, runs = _counter("word", hashed), _counter("char_wb", hashed)
    X = _weighted(words.fit_transform(some), runs.fit_transform(some))
    width = int(min(_DIRECTIONS, X.shape[1] - 1, max(2, len(some) // 10)))
    svd = TruncatedSVD(width, n_iter=2, random_state=seed).fit(X)
    svd.components_ = svd.components_.astype(np.float32)
    return {"counters": [words, runs], "svd": svd, "width": width}


def encode_texts(settings: dict[str, Any], texts: list[str]) -> Array:
    """The texts as numbers of about unit size, (rows, width); an empty text is all 0."""
    parts = []
    for start in range(0, len(texts), 20_000):
        some = [text[:_READ] for text in texts[start : start + 20_000]]
        words, runs = (counter.transform(some) for counter in settings["counters"])
        Z = settings["svd"].transform(_weighted(words, runs))
        size = np.linalg.norm(Z, axis=1, keepdims=True)
        parts.append(Z / np.maximum(size, 1e-9) * np.sqrt(settings["width"]) * (size > 1e-9))
    return np.concatenate(parts).astype(np.float32)


def _counter(analyzer: str, hashed: bool) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer, TfidfVectorizer
    from sklearn.pipeline import make_pipeline

    span = (1, 2) if analyzer == "word" else (3, 5)
    shared = {"analyzer": analyzer, "ngram_range": span, "dtype": np.float32}
    if analyzer == "word":
        shared["token_pattern"] = r"(?u)\b\w+\b"
    if hashed:
        return make_pipeline(
            HashingVectorizer(n_features=2**15, alternate_sign=False, norm=None, **shared),
            TfidfTransformer(sublinear_tf=True),
        )
    return TfidfVectorizer(max_features=_WORDS, sublinear_tf=True, **shared)


def _weighted(words: Any, runs: Any) -> Any:
    from scipy import sparse

    return sparse.hstack([words, runs], format="csr")


# ---- many values -----------------------------------------------------------------------------------------------------


def learn_usual(codes: Array, levels: list[str], y: Any) -> dict[str, Any]:
    """What the target usually is beside each value: the mean of each class, drawn towards that of all rows."""
    if y is None or np.ndim(y) != 1:
        return {}
    Y = _targets(np.asarray(y))
    if Y.shape[1] > _MOST_USUAL:
        return {}
    means, centre = _usual_of(codes, len(levels), Y, Y.mean(axis=0)), Y.mean(axis=0)
    return {"levels": levels, "means": means, "centre": centre, "scale": Y.std(axis=0), "width": Y.shape[1]}


def _targets(y: Array) -> Array:
    """(n, outputs): numbers brought in to their middle 98%, or 0/1 columns of the classes but the first."""
    if y.dtype.kind == "f":
        return np.clip(y, *np.quantile(y, [0.01, 0.99]))[:, None]
    return (y[:, None] == np.arange(1, y.max() + 1)).astype(np.float64)


def _usual_of(codes: Array, count: int, Y: Array, centre: Array) -> Array:
    """(values + 1, outputs): means of the target, each with `_DRAWN` rows of the overall mean; the last is missing."""
    place = np.where(codes < 0, count, codes)
    sizes = np.bincount(place, minlength=count + 1)[:, None]
    sums = np.stack([np.bincount(place, weights=Y[:, k], minlength=count + 1) for k in range(Y.shape[1])], axis=1)
    return (sums + _DRAWN * centre) / (sizes + _DRAWN)


def encode_usual(usual: dict[str, Any], codes: Array, levels: list[str], y: Any, out: Array) -> None:
    """Rows of the fit (with y) get means of other rows: each fifth from the four others."""
    place = {level: i for i, level in enumerate(usual["levels"])}
    own = np.array([place.get(level, -2) for level in levels] + [len(place)])[codes]
    scale = np.maximum(usual["scale"], 1e-12)
    if y is None:
        table = np.vstack([usual["means"], usual["centre"][None]])
        out[:] = (table[np.where(own == -2, len(place) + 1, own)] - usual["centre"]) / scale
        return
    Y = _targets(np.asarray(y))
    part = np.random.default_rng(0).permutation(len(own)) % 5
    for f in range(5):
        seen = part != f
        means = _usual_of(own[seen], len(place), Y[seen], Y[seen].mean(axis=0))
        out[~seen] = (means[own[~seen]] - usual["centre"]) / scale
