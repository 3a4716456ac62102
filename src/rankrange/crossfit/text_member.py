"""Out-of-fold predictions of a linear model of the words and character n-grams of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from ..core.arrays import Array
from .folds import Folds
from .predictions import penalised_predictions

# The largest numbers of columns of words and of character n-grams, and the weight of the latter: words of long texts
# are more specific, but short or misspelt texts have few words in common.
_WORDS, _CHARACTERS, _CHARACTER_WEIGHT = 40_000, 20_000, 0.5


def text_features(texts: Sequence[str]) -> Any:
    """TF-IDF of words, pairs of words and character n-grams, as a CSR matrix; without columns if no text has words."""
    settings: dict[str, Any] = {"sublinear_tf": True, "min_df": 2 if len(texts) > 20 else 1}
    words = TfidfVectorizer(ngram_range=(1, 2), max_features=_WORDS, **settings)
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), max_features=_CHARACTERS, **settings)
    parts = []
    for vectorizer, weight in ((words, 1.0), (characters, _CHARACTER_WEIGHT)):
        try:
            parts.append(weight * vectorizer.fit_transform(texts))
        except ValueError:  # no word occurs twice
            continue
    return sp.hstack(parts).tocsr() if parts else sp.csr_matrix((len(texts), 0))


def text_predictions(texts: Sequence[str], codes: Array, n_classes: int, folds: Folds) -> dict[str, Array]:
    """Probabilities (n, n_classes) of `penalised_predictions` from `text_features`; empty without features."""
    X = text_features(texts)
    return {"text": penalised_predictions(X, codes, n_classes, folds)} if X.shape[1] else {}
