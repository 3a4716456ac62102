"""Top-k metrics of ranked classes and labels, and the partial AUC between two false positive rates.

Arguments have the order (truth, scores, k), with one column of scores per label. Ties are broken as in scikit-learn's
`top_k_accuracy_score`: of labels tied at rank k, those with the highest index are predicted.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from .core.ranges import check_rates
from .core.select import as_floats, as_sample_weight, check_finite, ranked_range

__all__ = [
    "partial_auc_score",
    "top_k_labels",
    "top_k_multilabel_accuracy",
]


def top_k_multilabel_accuracy(Y: Any, scores: ArrayLike, k: int, *, sample_weight: ArrayLike | None = None) -> float:
    """Share of rows whose k predicted labels are all true or include all true labels.

    A row is correct if the set Z of its k labels with the highest scores is a subset of the set Y of its true labels,
    or Y a subset of Z. A row without a true label is therefore always correct.

    Parameters
    ----------
    Y : array_like or sparse matrix of shape (n, labels)
        An indicator matrix of 0 and 1, or NaN for a label that nobody looked at: it is neither ranked nor counted.
    scores : array_like of shape (n, labels)
        The higher, the more likely the label.
    k : int
        How many labels are predicted.
    sample_weight : array_like of shape (n,), optional
        Weights of the rows.

    Returns
    -------
    float
        The accuracy, between 0 and 1.

    Examples
    --------
    >>> from rankrange.metrics import top_k_multilabel_accuracy
    >>> Y = [[1, 1, 0], [1, 0, 0], [0, 0, 1]]
    >>> scores = [[0.9, 0.1, 0.5], [0.2, 0.3, 0.9], [0.1, 0.2, 0.3]]
    >>> top_k_multilabel_accuracy(Y, scores, 1)  # the second row is wrong
    0.6666666666666666
    """
    labels = check_indicator(Y)
    z = _checked_scores(scores, k)
    if z.shape != labels.shape:
        raise ValueError(
            f"scores must have one row per row of Y and one column per label, got shape {z.shape} for Y of shape "
            f"{labels.shape}; pass the scores of the same rows and labels"
        )
    right = rows_in_order(labels == 1, known_scores(labels, z), k)
    return float(ranked_range(right, 0, 1.0, sample_weight=sample_weight))


def known_scores(labels: NDArray[Any], scores: NDArray[Any]) -> NDArray[Any]:
    """The scores, with minus infinity for unknown labels, which are -1 in `labels`."""
    return scores if labels.dtype == bool else np.where(labels < 0, -np.inf, scores)


def rows_in_order(true: NDArray[np.bool_], scores: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Whether the k labels with the highest scores are all true or include all true labels, row by row.

    One set contains the other if and only if the intersection has the size of the smaller set. Labels with a score of
    minus infinity are unknown, and not in `true`.
    """
    return np.asarray((true & _top_marks(scores, k)).sum(axis=1) == np.minimum(true.sum(axis=1), k))


def partial_auc_score(
    y: ArrayLike,
    score: ArrayLike,
    *,
    fpr: tuple[float, float] = (0.0, 1.0),
    tpr: tuple[float, float] = (0.0, 1.0),
    standardize: bool = True,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Area under the ROC curve between two false positive rates, standardised as with scikit-learn's `max_fpr`.

    The ROC curve is a straight line within tied scores. With `fpr=(0, b)` and the other defaults the score is
    ``roc_auc_score(y, score, max_fpr=b)``; scikit-learn has no range that starts above 0.

    Parameters
    ----------
    y : array_like of shape (n,)
        Two classes; the larger label is the positive one, as in scikit-learn.
    score : array_like of shape (n,)
        The higher, the more likely positive.
    fpr : pair of float, default=(0.0, 1.0)
        The range of false positive rates, 0 <= lo < hi <= 1. Of the n negatives it selects the ranks lo * n + 1 to
        hi * n, by decreasing score. If lo * n or hi * n is not an integer, the row at this bound counts in part.
    tpr : pair of float, default=(0.0, 1.0)
        The range of true positive rates: only the area between these two heights counts (two-way partial AUC).
    standardize : bool, default=True
        Whether to scale the area so that chance is 0.5 and the maximum 1. If False, the score is the share of the
        rectangle `fpr` x `tpr` that lies under the curve; for tpr=(0, 1) this is the mean true positive rate.
    sample_weight : array_like of shape (n,), optional
        Weights of the rows; weight 2 equals the row twice.

    Returns
    -------
    float
        The score; a standardised score below 0.5 is worse than chance.

    Examples
    --------
    >>> from rankrange.metrics import partial_auc_score
    >>> y, score = [0, 0, 0, 0, 1, 1], [0.1, 0.2, 0.3, 0.9, 0.4, 0.8]
    >>> partial_auc_score(y, score, fpr=(0, 0.25)) < 0.5  # one negative is above all positives
    True
    >>> partial_auc_score(y, score, fpr=(0.25, 0.5))  # without it they are in order
    1.0
    """
    positive, z = _binary_scores(y, score)
    given = as_sample_weight(sample_weight, z, -1)
    mass = np.ones(len(z)) if given is None else given[0]
    if not (mass @ positive > 0 and mass @ ~positive > 0):
        raise ValueError("sample_weight must be positive for a row of each class; check the weights")
    return roc_area(positive, z, mass, check_rates("fpr", fpr), check_rates("tpr", tpr), standardize)


def roc_area(
    positive: NDArray[np.bool_],
    score: NDArray[Any],
    mass: NDArray[Any],
    fpr: tuple[float, float],
    tpr: tuple[float, float] = (0.0, 1.0),
    standardize: bool = False,
) -> float:
    """`partial_auc_score` of validated input, by default not standardised.

    `positive` (n,) marks the rows of the positive class, and `mass` (n,) are the weights of the rows.
    """
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.diff(score[order], append=np.nan) != 0)  # the last index of each set of tied scores
    x, height = (np.append(0.0, np.cumsum(mass[order] * side[order])[last]) for side in (~positive, positive))
    area = _band_area(x / x[-1], height / height[-1], fpr, tpr)
    chance = _band_area(_DIAGONAL, _DIAGONAL, fpr, tpr)
    best = (fpr[1] - fpr[0]) * (tpr[1] - tpr[0])
    return float(0.5 * (1.0 + (area - chance) / (best - chance)) if standardize else area / best)


_DIAGONAL = np.array([0.0, 1.0])


def _band_area(x: Any, height: Any, fpr: tuple[float, float], tpr: tuple[float, float]) -> float:
    """Area under a piecewise linear curve, restricted to a range of x and a range of heights."""
    left, right = (np.clip(side, *fpr) for side in (x[:-1], x[1:]))
    wide = right > left
    left, right, x0, x1, h0, h1 = (a[wide] for a in (left, right, x[:-1], x[1:], height[:-1], height[1:]))
    at_left, at_right = (h0 + (h1 - h0) * (side - x0) / (x1 - x0) for side in (left, right))
    rise = at_right - at_left

    def under(h: Any) -> Any:
        """Antiderivative of the clipped height, clip(h, *tpr) - tpr[0]."""
        inside = np.clip(h, *tpr)
        return (inside - tpr[0]) ** 2 / 2 + (tpr[1] - tpr[0]) * (np.maximum(h, tpr[1]) - tpr[1])

    flat = np.clip((at_left + at_right) / 2, *tpr) - tpr[0]
    mean = np.divide(under(at_right) - under(at_left), rise, out=flat, where=rise > 1e-9)
    return float((right - left) @ mean)


def _binary_scores(y: ArrayLike, score: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """A mask of the positive rows, and the scores in float64; other than two classes in y are a ValueError."""
    z = as_floats(score, "score").astype(np.float64)
    labels = np.asarray(y)
    if z.ndim != 1 or labels.shape != z.shape:
        raise ValueError(
            f"y and score must have one entry per row, got shapes {labels.shape} and {z.shape}; "
            "pass the score of the positive class, as predict_proba(X)[:, 1]"
        )
    check_finite(z[None], "score")
    if labels.dtype.kind == "f":
        check_finite(labels[None], "y")
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) != 2:
        raise ValueError(
            f"partial AUC needs rows of exactly two classes, got {len(classes)}: {classes[:5].tolist()}; "
            "pass rows of both"
        )
    return codes == 1, z


def top_k_labels(scores: ArrayLike, k: int) -> NDArray[np.bool_]:
    """Mark the k labels with the highest scores in each row.

    Parameters
    ----------
    scores : array_like of shape (n, labels)
        The higher, the better; all of them finite.
    k : int
        How many labels to mark, at least 1 and at most the number of labels.

    Returns
    -------
    ndarray of bool of shape (n, labels)
        A mask with exactly k True values per row. Of labels tied at rank k, those with the highest index are marked.

    Examples
    --------
    >>> from rankrange.metrics import top_k_labels
    >>> top_k_labels([[0.1, 0.9, 0.5], [0.2, 0.2, 0.2]], 2)
    array([[False,  True,  True],
           [False,  True,  True]])
    """
    return _top_marks(_checked_scores(scores, k), k)


def _checked_scores(scores: ArrayLike, k: int) -> NDArray[Any]:
    z = as_floats(scores, "scores")
    if z.ndim != 2 or z.size == 0:
        raise ValueError(f"scores must be a matrix (rows, labels), got shape {z.shape}; pass one column per label")
    check_finite(z, "scores")
    if isinstance(k, bool) or not isinstance(k, numbers.Integral):
        raise TypeError(f"k must be an int, the number of labels predicted, got {k!r} of type {type(k).__name__}")
    if not 1 <= k <= z.shape[1]:
        raise ValueError(f"need 1 <= k <= number of labels, got k={k} for {z.shape[1]} labels; choose k in that range")
    return z


def _top_marks(scores: NDArray[Any], k: int) -> NDArray[np.bool_]:
    place = scores.shape[1] - k
    cut = np.partition(scores, place, axis=1)[:, [place]]
    above, tied = scores > cut, scores == cut
    tied_from_here_on = np.cumsum(tied[:, ::-1], axis=1)[:, ::-1]
    return above | (tied & (tied_from_here_on <= k - above.sum(axis=1, keepdims=True)))


def check_indicator(Y: Any, name: str = "Y") -> NDArray[Any]:
    """Check an indicator matrix, dense or sparse, and return it as a dense array of bool.

    If it has NaN (unknown labels), the result is int8 with -1 for these. Error messages call the matrix `name` and
    suggest a conversion.
    """
    remedy = "sklearn.preprocessing.MultiLabelBinarizer makes one from lists of labels"
    try:
        array = Y.toarray() if sparse.issparse(Y) else np.asarray(Y)
    except ValueError as error:
        raise ValueError(f"{name} must be an indicator matrix of 0 and 1, got ragged rows; {remedy}") from error
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"{name} must be an indicator matrix (rows, labels), got shape {array.shape}; {remedy}")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be an indicator matrix of 0 and 1, got dtype {array.dtype}; {remedy}")
    ones, unknown = array == 1, np.isnan(array)
    valid = ones | (array == 0) | unknown
    if not valid.all():
        raise ValueError(f"{name} must hold only 0 and 1, or NaN for unknown labels, got {array[~valid][0]}; {remedy}")
    return np.where(unknown, -1, ones).astype(np.int8) if unknown.any() else ones
