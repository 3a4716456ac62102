"""Encoding of text columns: TF-IDF of words and character n-grams, reduced by a truncated SVD; and target encoding.

Words carry the topic of a text. N-grams of three to five characters are robust to spelling and word endings. The SVD
reduces the TF-IDF matrix to a few dozen components, which neighbours, trees and linear models can use. If a column has
very much text, words and n-grams are hashed, which needs no vocabulary. A column with many values that is not prose
gets an out-of-fold target encoding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array

# The number of components of a text column, and the sizes of the vocabularies of words and n-grams.
_DIRECTIONS, _WORDS = 50, 20_000
# A sample of texts with more than this many characters in total is hashed; cells are truncated to this length.
_HASHED_FROM, _READ = 30_000_000, 20_000
# The least number of words per cell of prose.
_WORDS_OF_PROSE = 3.0
# The components are fitted to evenly spaced rows, fewer than twice this many.
_LEARNT_ON = 50_000
# The target encoding is shrunk to the overall mean with the weight of this many rows; the largest number of outputs.
_PRIOR_ROWS, _MAX_OUTPUTS = 10.0, 9


def is_prose(levels: list[str]) -> bool:
    """Whether distinct texts are prose, by a sample of 500.

    They must have at least three distinct words on average, and at least half of them must have a word in common with
    some, but less than 60%, of the texts.
    """
    sample = levels[:: max(1, len(levels) // 500)][:500]
    words = [set(text.casefold().split()) for text in sample]
    if not words or np.mean([len(w) for w in words]) < _WORDS_OF_PROSE:
        return False
    counts: dict[str, int] = {}
    for index in words:
        for word in index:
            counts[word] = counts.get(word, 0) + 1
    informative = {word for word, count in counts.items() if 1 < count < 0.6 * len(words)}
    return sum(bool(index & informative) for index in words) >= 0.5 * len(words)


def as_texts(column: Any) -> list[str]:
    """The cells of a pyarrow column as texts; missing cells are ""."""
    return ["" if value is None else str(value) for value in column.to_pylist()]


def learn_texts(texts: list[str], seed: int = 0) -> dict[str, Any]:
    """Fit the encoding of texts ("" if missing) to fewer than 100,000 rows, and return the settings of `encode_texts`.

    Their entry "width" is the number of features, at most 50. Only the first 20,000 characters of a text are used.
    """
    from sklearn.decomposition import TruncatedSVD

    step = max(1, len(texts) // _LEARNT_ON)
    sample = [text[:_READ] for text in texts[::step]]
    hashed = sum(map(len, sample)) > _HASHED_FROM
    words, ngrams = _counter("word", hashed), _counter("char_wb", hashed)
    X = _side_by_side(words.fit_transform(sample), ngrams.fit_transform(sample))
    width = int(min(_DIRECTIONS, X.shape[1] - 1, max(2, len(sample) // 10)))
    svd = TruncatedSVD(width, n_iter=2, random_state=seed).fit(X)
    svd.components_ = svd.components_.astype(np.float32)
    return {"counters": [words, ngrams], "svd": svd, "width": width}


def encode_texts(settings: dict[str, Any], texts: list[str]) -> Array:
    """Encode texts as features (rows, width), float32, scaled so that the mean square of each row is 1.

    Texts without known words or n-grams, such as empty ones, are all 0.
    """
    parts = []
    for start in range(0, len(texts), 20_000):
        sample = [text[:_READ] for text in texts[start : start + 20_000]]
        words, ngrams = (counter.transform(sample) for counter in settings["counters"])
        Z = settings["svd"].transform(_side_by_side(words, ngrams))
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


def _side_by_side(words: Any, ngrams: Any) -> Any:
    from scipy import sparse

    return sparse.hstack([words, ngrams], format="csr")


# ---- many values -----------------------------------------------------------------------------------------------------


def learn_target_encoding(codes: Array, levels: list[str], y: Any) -> dict[str, Any]:
    """Fit the target encoding: the mean of the target for each value, shrunk towards the overall mean.

    {} if y is None or has several columns, or if there is one class or more than ten.
    """
    if y is None or np.ndim(y) != 1:
        return {}
    Y = _targets(np.asarray(y))
    if not 1 <= Y.shape[1] <= _MAX_OUTPUTS:
        return {}
    means, centre = _target_means(codes, len(levels), Y, Y.mean(axis=0)), Y.mean(axis=0)
    return {"levels": levels, "means": means, "centre": centre, "scale": Y.std(axis=0), "width": Y.shape[1]}


def _targets(y: Array) -> Array:
    """Array (n, outputs): numbers clipped to their central 98%, or 0/1 columns of all classes but the first."""
    if y.dtype.kind == "f":
        return np.clip(y, *np.quantile(y, [0.01, 0.99]))[:, None]
    return (y[:, None] == np.arange(1, y.max() + 1)).astype(np.float64)


def _target_means(codes: Array, count: int, Y: Array, centre: Array) -> Array:
    """Array (values + 1, outputs): shrunken means of the target by value; the last row is for missing cells."""
    slots = np.where(codes < 0, count, codes)
    sizes = np.bincount(slots, minlength=count + 1)[:, None]
    sums = np.stack([np.bincount(slots, weights=Y[:, k], minlength=count + 1) for k in range(Y.shape[1])], axis=1)
    return (sums + _PRIOR_ROWS * centre) / (sizes + _PRIOR_ROWS)


def encode_with_target(encoding: dict[str, Any], codes: Array, levels: list[str], y: Any, out: Array) -> None:
    """Write the standardised target encoding to `out`; values that were not in the fit get the overall mean.

    Training rows (with y) get means from the other four of five folds.
    """
    code_of = {level: i for i, level in enumerate(encoding["levels"])}
    index = np.array([code_of.get(level, -2) for level in levels] + [len(code_of)])[codes]
    scale = np.maximum(encoding["scale"], 1e-12)
    if y is None:
        table = np.vstack([encoding["means"], encoding["centre"][None]])
        out[:] = (table[np.where(index == -2, len(code_of) + 1, index)] - encoding["centre"]) / scale
        return
    Y = _targets(np.asarray(y))
    fold = np.random.default_rng(0).permutation(len(index)) % 5
    for f in range(5):
        train = fold != f
        means = _target_means(index[train], len(code_of), Y[train], Y[train].mean(axis=0))
        out[~train] = (means[index[~train]] - encoding["centre"]) / scale
