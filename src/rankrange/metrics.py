"""Top-k metrics. What scikit-learn already has is scikit-learn's own; the top-k multi-label accuracy is added.

Arguments come in the order (truth, scores, k), scores one column a label. Labels whose scores tie at the k-th place
are taken from the highest index down: one rule for every metric here, and the one of scikit-learn's
`top_k_accuracy_score`.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.metrics import label_ranking_average_precision_score, top_k_accuracy_score

from .core.select import as_floats, check_finite, ranked_range

__all__ = ["label_ranking_average_precision", "top_k_accuracy", "top_k_labels", "top_k_multilabel_accuracy"]


def top_k_multilabel_accuracy(Y: Any, scores: ArrayLike, k: int, *, sample_weight: ArrayLike | None = None) -> float:
    """Share of rows whose k best-scored labels Z are all true, or hold all true labels: Z in Y or Y in Z.

    Y is an indicator matrix of 0 and 1, dense or SciPy sparse. A row without a true label counts as right: the empty
    set lies in every Z. With `sample_weight` the share is of the weight.
    """
    true = check_indicator(Y)
    top = top_k_labels(scores, k)
    if top.shape != true.shape:
        raise ValueError(
            f"scores must have one row a row of Y and one column a label, got shape {top.shape} for Y of shape "
            f"{true.shape}; pass the scores of the same rows and labels"
        )
    # One set holds the other exactly when they share as many labels as the smaller one has.
    right = (true & top).sum(axis=1) == np.minimum(true.sum(axis=1), k)
    return float(ranked_range(right, 0, 1.0, sample_weight=sample_weight))


def top_k_accuracy(
    y: ArrayLike,
    scores: ArrayLike,
    k: int = 1,
    *,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Share of rows whose class is among the k best-scored: scikit-learn's `top_k_accuracy_score`, k in third place.

    It asks for scores of shape (n,) with two classes; `labels` names the columns where y does not hold every class.
    """
    return float(top_k_accuracy_score(y, scores, k=k, labels=labels, sample_weight=sample_weight))


def label_ranking_average_precision(Y: Any, scores: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Average precision of section 5 as it is meant: scikit-learn's `label_ranking_average_precision_score`.

    The printed formula counts the true labels ranked strictly before each true label and so gives 0 to a perfect
    ranking of one true label (docs/paper.md); this counts the label itself as well.
    """
    return float(label_ranking_average_precision_score(Y, scores, sample_weight=sample_weight))


def top_k_labels(scores: ArrayLike, k: int) -> NDArray[np.bool_]:
    """Mask of the k best-scored labels of each row: exactly k, ties at the k-th place from the highest index down."""
    scores = as_floats(scores, "scores")
    if scores.ndim != 2 or scores.size == 0:
        raise ValueError(f"scores must be a matrix (rows, labels), got shape {scores.shape}; one column a label")
    check_finite(scores, "scores")
    n_labels = scores.shape[1]
    if isinstance(k, bool) or not isinstance(k, numbers.Integral):
        raise TypeError(f"k must be an int, the number of labels predicted, got {k!r} of type {type(k).__name__}")
    if not 1 <= k <= n_labels:
        raise ValueError(f"need 1 <= k <= number of labels, got k={k} for {n_labels} labels; choose k in that range")
    cut = np.partition(scores, n_labels - k, axis=1)[:, [n_labels - k]]
    above, tied = scores > cut, scores == cut
    tied_from_here_on = np.cumsum(tied[:, ::-1], axis=1)[:, ::-1]
    return above | (tied & (tied_from_here_on <= k - above.sum(axis=1, keepdims=True)))


def check_indicator(Y: Any, name: str = "Y") -> NDArray[np.bool_]:
    """An indicator matrix (rows, labels), dense or sparse, as a dense boolean one; anything else is an error."""
    remedy = "sklearn.preprocessing.MultiLabelBinarizer makes one from lists of labels"
    try:
        array = Y.toarray() if sparse.issparse(Y) else np.asarray(Y)
    except ValueError as error:
        raise ValueError(f"{name} must be an indicator matrix of 0 and 1, got ragged rows; {remedy}") from error
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"{name} must be an indicator matrix (rows, labels), got shape {array.shape}; {remedy}")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be an indicator matrix of 0 and 1, got dtype {array.dtype}; {remedy}")
    ones = array == 1
    if not (ones | (array == 0)).all():
        value = array[~(ones | (array == 0))][0]
        raise ValueError(f"{name} must hold only 0 and 1, got {value}; {remedy}")
    return ones
