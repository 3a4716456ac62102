"""Label noise for experiments: wrong labels in known numbers, so that the right m is known.

Every function returns new labels and leaves the given ones untouched; the rows changed are where the two differ.
The paper speaks of flipping "with probability p" and then counts p * n noisy rows (its ground truth for m). Here the
counts are exact: round(rate * n) rows, chosen uniformly without replacement. Seeds are as in scikit-learn.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_random_state

from .metrics import check_indicator

__all__ = ["asymmetric", "multilabel", "symmetric"]


def symmetric(y: ArrayLike, rate: float, random_state: Any = None) -> NDArray[Any]:
    """Replace the labels of a share of the rows by another class, chosen uniformly.

    Parameters
    ----------
    y : array_like of shape (n,)
        Labels of at least two classes.
    rate : float
        The share of rows to change, in [0, 1]: exactly round(rate * n) labels become wrong.
    random_state : int, RandomState or None, default=None
        A seed, as in scikit-learn.

    Returns
    -------
    ndarray of shape (n,)
        New labels; y is not changed.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import noise
    >>> y = np.array(["a", "b", "c"] * 10)
    >>> int((noise.symmetric(y, 0.2, random_state=0) != y).sum())
    6
    """
    noisy, classes, codes = _classes_of(y)
    rng = check_random_state(random_state)
    rows = _choose(np.arange(len(noisy)), rate, rng)
    if len(rows) and len(classes) < 2:
        raise ValueError(
            f"symmetric noise needs at least two classes in y, got only {classes.tolist()}; "
            "pass labels of two or more classes, or rate=0"
        )
    if len(rows):
        step = rng.randint(1, len(classes), size=len(rows))
        noisy[rows] = classes[(codes[rows] + step) % len(classes)]
    return noisy


def asymmetric(y: ArrayLike, flips: Mapping[Any, Any], rate: float, random_state: Any = None) -> NDArray[Any]:
    """Turn a share of the rows of some classes into one other class each.

    All flips happen at once: with {5: 6, 6: 5} no row is turned back.

    Parameters
    ----------
    y : array_like of shape (n,)
        The labels.
    flips : mapping
        What each class becomes; classes that are not named stay. The paper's for MNIST is {2: 7, 3: 8, 5: 6, 6: 5, 7:
        1}.
    rate : float
        The share of the rows of each named class to change: exactly round(rate * n_c) of the n_c rows of class c.
        Together these are about `rate` times the rows of the named classes, not of all rows.
    random_state : int, RandomState or None, default=None
        A seed, as in scikit-learn.

    Returns
    -------
    ndarray of shape (n,)
        New labels; y stays as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import noise
    >>> y = np.repeat([0, 1, 2], 10)
    >>> np.bincount(noise.asymmetric(y, {0: 1}, 0.3, random_state=0))
    array([ 7, 13, 10])
    """
    noisy, classes, codes = _classes_of(y)
    rng = check_random_state(random_state)
    for source, target in sorted(_flips_between(classes, flips).items()):
        # codes are the labels as given: what 5 -> 6 has moved is not moved back by 6 -> 5.
        rows = _choose(np.flatnonzero(codes == source), rate, rng)
        noisy[rows] = classes[target]
    return noisy


def multilabel(Y: Any, rate: float, random_state: Any = None) -> Any:
    """Move the true labels of a share of the rows to other labels.

    The paper chooses samples and "changes each of their labels to another random label". A chosen row keeps its number
    of true labels, and they move to labels that were false, each equally likely. Where there are too few of those, all
    of them become true and the rest stays true at random. Rows with no or only true labels cannot change and are not
    chosen.

    Parameters
    ----------
    Y : array_like or sparse matrix of shape (n, labels)
        An indicator matrix of 0 and 1.
    rate : float
        The share of rows to change, in [0, 1]: exactly round(rate * n) rows.
    random_state : int, RandomState or None, default=None
        A seed, as in scikit-learn.

    Returns
    -------
    ndarray or sparse matrix of shape (n, labels)
        A new matrix in the format and dtype of Y.

    Raises
    ------
    ValueError
        Where fewer rows can change than are to be changed.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import noise
    >>> Y = np.eye(4, dtype=int)
    >>> noisy = noise.multilabel(Y, 0.5, random_state=0)
    >>> int((noisy != Y).any(axis=1).sum()), noisy.sum(axis=1)
    (2, array([1, 1, 1, 1]))
    """
    true = check_indicator(Y)
    n, n_labels = true.shape
    n_true = true.sum(axis=1)
    rng = check_random_state(random_state)
    movable = np.flatnonzero((n_true > 0) & (n_true < n_labels))
    n_noisy = _count(rate, n)
    if n_noisy > len(movable):
        raise ValueError(
            f"multi-label noise can change only rows with a true and a false label, got rate={rate}, {n_noisy} rows, "
            f"for {len(movable)} such rows of {n}; lower the rate"
        )
    rows = rng.permutation(movable)[:n_noisy]
    # Random order with the false labels first: the leading n_true places of each row become true.
    order = np.argsort(rng.random_sample((n_noisy, n_labels)) + true[rows], axis=1)
    moved = np.empty((n_noisy, n_labels), dtype=bool)
    np.put_along_axis(moved, order, np.arange(n_labels) < n_true[rows, None], axis=1)
    noisy = true.copy()
    noisy[rows] = moved
    return type(Y)(noisy.astype(Y.dtype)) if sparse.issparse(Y) else noisy.astype(np.asarray(Y).dtype)


def _classes_of(y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.intp]]:
    """A copy of the labels, their classes in order, and the number of its class for each."""
    try:
        labels = np.array(y)
    except ValueError as error:
        raise ValueError("y must be one label per row, got ragged rows; use multilabel for several") from error
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(
            f"y must be one label per row, shape (n,) with n >= 1, got shape {labels.shape}; "
            "pass y.ravel(), or use multilabel for an indicator matrix"
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"y must not hold NaN, got {np.isnan(labels).sum()} of {len(labels)}; drop these rows")
    try:
        classes, codes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise TypeError(
            f"the labels of y must be of one kind, all strings or all numbers, got a mixture ({error}); "
            "drop rows without a label and convert the others"
        ) from error
    return labels, classes, codes


def _flips_between(classes: NDArray[Any], flips: Mapping[Any, Any]) -> dict[int, int]:
    """The mapping `flips`, in numbers of the classes."""
    if not isinstance(flips, Mapping):
        raise TypeError(f"flips must map classes to the classes they become, got {flips!r}; for example {{2: 7, 3: 8}}")
    if not flips:
        raise ValueError("flips must name at least one class, got an empty mapping; for example {2: 7, 3: 8}")
    number = {label: i for i, label in enumerate(classes.tolist())}
    unknown = [label for pair in flips.items() for label in pair if label not in number]
    if unknown:
        raise ValueError(
            f"flips must name classes that are in y, got {unknown} for the classes {list(number)}; "
            "correct them, and mind that 1 and '1' are different"
        )
    same = [label for label, target in flips.items() if label == target]
    if same:
        raise ValueError(f"flips must change a class, got {same} mapped to itself; leave it out")
    return {number[label]: number[target] for label, target in flips.items()}


def _choose(rows: NDArray[np.intp], rate: float, rng: np.random.RandomState) -> NDArray[np.intp]:
    return rng.permutation(rows)[: _count(rate, len(rows))]


def _count(rate: float, n: int) -> int:
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real):
        raise TypeError(f"rate must be a number in [0, 1], got {rate!r} of type {type(rate).__name__}")
    if not 0.0 <= float(rate) <= 1.0:  # also catches NaN
        raise ValueError(f"rate must be in [0, 1], the share of noisy rows, got rate={rate}; divide a count by n")
    return round(float(rate) * n)
