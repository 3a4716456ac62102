"""Label noise for experiments, with an exact number of wrong labels.

Every function returns new labels and leaves its input unchanged. The noisy rows are those whose new label differs.
Their number is exact: round(rate * n) of n rows, chosen uniformly without replacement (by `asymmetric` within each
class). The paper calls the noise rate p a probability, but uses p * n as the number of noisy rows, for example as the
best m.
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
        Seed for the choice of rows and classes.

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


def asymmetric(y: ArrayLike, mapping: Mapping[Any, Any], rate: float, random_state: Any = None) -> NDArray[Any]:
    """Class-conditional label noise: replace a share of the labels of some classes by one other class each.

    All labels are replaced at once: with {5: 6, 6: 5} no label changes twice.

    Parameters
    ----------
    y : array_like of shape (n,)
        The labels.
    mapping : mapping
        The class that replaces each class; labels of other classes do not change. All classes in it must occur in y.
        The mapping of the paper for MNIST is {2: 7, 3: 8, 5: 6, 6: 5, 7: 1}.
    rate : float
        The share of the labels to replace in each class of the mapping: exactly round(rate * n_c) of the n_c labels of
        class c.
    random_state : int, RandomState or None, default=None
        Seed for the choice of rows.

    Returns
    -------
    ndarray of shape (n,)
        New labels; y is not changed.

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
    for source, target in sorted(_codes_of(mapping, classes).items()):
        # `codes` are the labels before any change: a row that 5 -> 6 changed is not changed back by 6 -> 5.
        rows = _choose(np.flatnonzero(codes == source), rate, rng)
        noisy[rows] = classes[target]
    return noisy


def multilabel(Y: Any, rate: float, random_state: Any = None) -> Any:
    """Move the true labels of a share of the rows to other labels.

    A chosen row keeps its number of true labels; the new ones are drawn uniformly from the labels that were false. If
    there are too few of those, all of them become true, and some of the old ones, drawn at random, stay true. Rows
    without a true or without a false label are never chosen.

    Parameters
    ----------
    Y : array_like or sparse matrix of shape (n, labels)
        An indicator matrix of 0 and 1.
    rate : float
        The share of rows to change, in [0, 1]: exactly round(rate * n) rows.
    random_state : int, RandomState or None, default=None
        Seed for the choice of rows and labels.

    Returns
    -------
    ndarray or sparse matrix of shape (n, labels)
        A new matrix in the format and dtype of Y.

    Raises
    ------
    ValueError
        If fewer rows can change than `rate` asks for.

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
    # Random order with the false labels first: the first n_true labels of each row in this order become true.
    order = np.argsort(rng.random_sample((n_noisy, n_labels)) + true[rows], axis=1)
    moved = np.empty((n_noisy, n_labels), dtype=bool)
    np.put_along_axis(moved, order, np.arange(n_labels) < n_true[rows, None], axis=1)
    noisy = true.copy()
    noisy[rows] = moved
    return type(Y)(noisy.astype(Y.dtype)) if sparse.issparse(Y) else noisy.astype(np.asarray(Y).dtype)


def _classes_of(y: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.intp]]:
    """A copy of the labels, the sorted classes, and for each label the index of its class; invalid y is an error."""
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


def _codes_of(mapping: Mapping[Any, Any], classes: NDArray[Any]) -> dict[int, int]:
    """The mapping in terms of indices into `classes`; an unknown class, or one mapped to itself, is an error."""
    if not isinstance(mapping, Mapping):
        raise TypeError(f"mapping must be a dict from class to class, got {mapping!r}; pass for example {{2: 7, 3: 8}}")
    if not mapping:
        raise ValueError("mapping must name at least one class, got an empty one; pass for example {2: 7, 3: 8}")
    number = {label: i for i, label in enumerate(classes.tolist())}
    unknown = [label for pair in mapping.items() for label in pair if label not in number]
    if unknown:
        raise ValueError(
            f"mapping must name classes that are in y, got {unknown} for the classes {list(number)}; "
            "correct them, and note that 1 and '1' are different"
        )
    same = [label for label, target in mapping.items() if label == target]
    if same:
        raise ValueError(f"mapping must change each class, got {same} mapped to itself; leave it out")
    return {number[label]: number[target] for label, target in mapping.items()}


def _choose(rows: NDArray[np.intp], rate: float, rng: np.random.RandomState) -> NDArray[np.intp]:
    return rng.permutation(rows)[: _count(rate, len(rows))]


def _count(rate: float, n: int) -> int:
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real):
        raise TypeError(f"rate must be a number in [0, 1], got {rate!r} of type {type(rate).__name__}")
    if not 0.0 <= float(rate) <= 1.0:  # also catches NaN
        raise ValueError(f"rate must be in [0, 1], the share of noisy rows, got rate={rate}; divide a count by n")
    return round(float(rate) * n)
