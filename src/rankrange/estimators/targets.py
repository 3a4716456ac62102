"""Shared by the multi-label estimators: reading targets, and predicting the labels with the highest scores.

Targets are an indicator matrix, lists of labels, or one class per row.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import ClassifierMixin
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.utils import check_consistent_length, column_or_1d, gen_batches
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..core.arrays import Array
from ..core.select import ranked_range
from ..metrics import check_indicator, known_scores, rows_in_order, top_k_labels
from ..solvers.label_ranking import rows_that_fit
from .fitted import FORMATS, LinearModel, of_rows
from .linear import check_present, weights_of
from .streamed import on_device

# An indicator matrix of up to this many entries is kept dense, one byte per entry.
_DENSE_UP_TO = 1 << 26


class Targets(NamedTuple):
    """Validated targets: the indicator matrix `true` (n, L) and the L labels `classes`.

    The matrix is bool, dense or CSR, or int8 with -1 for unknown labels.
    """

    true: Any
    classes: Array
    kind: str  # the format of y: "classes" (one per row), "indicator" (a matrix) or "sets" (lists of labels)
    sparse: bool  # whether y was sparse, so predictions are too


def read_targets(y: Any, X: Any) -> Targets:
    """Read the targets y of the rows of X: an indicator matrix, lists of labels, or one class per row."""
    check_consistent_length(X, y)
    if sp.issparse(y):
        return Targets(_sparse_indicator(y), np.arange(y.shape[1]), "indicator", True)
    if _are_sets(y):
        binarizer = MultiLabelBinarizer(sparse_output=True)
        true = binarizer.fit_transform(y)
        return Targets(_dense_if_small(sp.csr_array(true).astype(bool)), binarizer.classes_, "sets", False)
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] != 1:
        return Targets(check_indicator(array, "y"), _column_names(y, array.shape[1]), "indicator", False)
    column = column_or_1d(y, warn=True)
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise ValueError(f"y must not hold NaN or infinity, got {np.sum(~np.isfinite(column))}; drop these rows")
    check_classification_targets(column)
    classes, codes = np.unique(column, return_inverse=True)
    n = len(codes)
    one_hot = sp.csr_array((np.ones(n, dtype=bool), codes, np.arange(n + 1)), shape=(n, len(classes)))
    return Targets(_dense_if_small(one_hot), classes, "classes", False)


def indicator_of(y: Any, X: Any, classes: Array, kind: str) -> Any:
    """The indicator matrix (n, labels) of y, with the columns of a fitted estimator; dense if it is small.

    `kind` is the format of the targets in `fit`: "classes", "indicator" or "sets". The columns of an indicator matrix
    are matched by name if both have names, otherwise by position. Unknown labels are an error.
    """
    targets = read_targets(y, X)
    if targets.kind == "indicator" and kind != "classes":
        if targets.true.shape[1] != len(classes):
            raise ValueError(
                f"y must have one column per label of the training data, got {targets.true.shape[1]} columns for "
                f"{len(classes)} labels; pass the labels in the same columns"
            )
        if targets.classes.dtype != object or classes.dtype != object:
            return targets.true  # without names, columns are matched by position
    column_of = {label: column for column, label in enumerate(classes.tolist())}
    unknown = [label for label in targets.classes.tolist() if label not in column_of]
    if unknown:
        raise ValueError(f"y must hold labels of the training data, got unknown {unknown[:5]}; drop these rows")
    given = sp.csr_array(targets.true)
    columns = np.array([column_of[label] for label in targets.classes.tolist()], dtype=np.intp)[given.indices]
    return _dense_if_small(sp.csr_array((given.data, columns, given.indptr), shape=(given.shape[0], len(classes))))


def _column_names(y: Any, n_labels: int) -> Array:
    """The column names of a data frame; column numbers if there are no names or if not all of them are strings."""
    names = [] if not hasattr(y, "columns") else list(y.columns)
    if not names or not all(isinstance(name, str) for name in names):
        return np.arange(n_labels)
    if len(set(names)) < n_labels:
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"column names of y must be unique, got {twice!r} twice; rename one of them")
    return np.array(names, dtype=object)


def _are_sets(y: Any) -> bool:
    """Whether y holds lists or sets of labels, and not the rows of a matrix.

    Lists of equal length without strings are rows of a matrix.
    """
    if (isinstance(y, np.ndarray) and y.dtype != object) or not isinstance(y, Sequence | np.ndarray) or not len(y):
        return False
    if all(isinstance(row, set | frozenset) for row in y):
        return True
    if not all(isinstance(row, list | tuple | set | frozenset) for row in y):
        return False
    lengths = {len(row) for row in y}
    return len(lengths) > 1 or any(isinstance(label, str) for row in y for label in row)


def _sparse_indicator(y: Any) -> Any:
    matrix = sp.csr_array(y)
    matrix.sum_duplicates()
    if matrix.ndim != 2 or matrix.shape[1] < 2 or not np.isin(matrix.data, (0, 1)).all():
        return check_indicator(y, "y")  # raises the error for invalid entries
    matrix = matrix.astype(bool)
    matrix.eliminate_zeros()
    return _dense_if_small(matrix)


def _dense_if_small(true: Any) -> Any:
    """Convert a small matrix to a dense one, which is faster in every pass."""
    return true.toarray() if true.shape[0] * true.shape[1] <= _DENSE_UP_TO else true


class LabelRanker(ClassifierMixin, LinearModel):
    """Base class of linear models with one score per label, which predict the labels with the highest scores.

    A subclass has the parameter `top_k`, and its `fit` calls `_read` and `_store_coefficients`.
    """

    top_k: int

    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Targets, Array | None]:
        """Validate X, targets and weights, and return them; set `classes_` and the other attributes of the targets."""
        self._refuse_device(X)
        if y is None:
            validate_data(self, X, y)  # raises scikit-learn's own error
        X = validate_data(self, X, **FORMATS)
        targets = read_targets(y, X)
        weight = weights_of(sample_weight, X)
        self.classes_ = targets.classes
        if targets.kind == "classes":
            codes = _codes(targets.true)
            check_present(self, codes if weight is None else codes[weight > 0])
        if self.top_k >= len(self.classes_):
            raise ValueError(
                f"top_k must be below the number of labels, got top_k={self.top_k} for {len(self.classes_)} labels; "
                "lower top_k, or pass more labels"
            )
        counts = np.asarray((targets.true == 1).sum(axis=1)).ravel()
        present = counts if weight is None else counts[weight > 0]
        if not present.any():
            raise ValueError("y must have at least one true label, got none; check that 1 means true")
        self.target_kind_ = targets.kind
        self.sparse_output_ = targets.sparse
        self.n_without_labels_ = int((counts == 0).sum())
        known = (targets.true >= 0).sum(axis=1) if targets.true.dtype == np.int8 else len(targets.classes)
        self.n_with_all_labels_ = int((counts == known).sum())
        return X, targets, weight

    def _scores(self, X: Any) -> Array:
        """Scores (n, L) of validated rows."""
        return X @ self.coef_.T + self.intercept_

    def _checked(self, X: Any) -> Any:
        self._refuse_device(X)
        return super()._checked(X)

    def _refuse_device(self, X: Any) -> None:
        if on_device(X):
            raise TypeError(
                f"{type(self).__name__} needs rows in the host's memory, got rows on a device; pass X.cpu().numpy() of "
                "a tensor, X.get() of a CuPy array. AoRRClassifier fits rows on a device"
            )

    @of_rows("ndarray of shape (n_samples, n_labels) or (n_samples,): The scores.")
    def decision_function(self, X: Any) -> Array:
        """Scores of the labels for the rows of X; if y had one of two classes, one, positive for `classes_[1]`."""
        scores = self._scores(self._checked(X))
        one_column = self.target_kind_ == "classes" and len(self.classes_) == 2
        return scores[:, 1] - scores[:, 0] if one_column else scores

    @of_rows("ndarray or sparse matrix: An indicator matrix, sparse if y was, or the classes.")
    def predict(self, X: Any) -> Any:
        """Predict the top_k labels with the highest scores for each row, or its class if y had one class per row."""
        X = self._checked(X)
        if self.target_kind_ == "classes":
            best = [self._best(X[rows], 1)[:, 0] for rows in self._row_blocks(X)]
            return self.classes_[np.concatenate(best)]
        chosen = [top_k_labels(self._scores(X[rows]), int(self.top_k)) for rows in self._row_blocks(X)]
        if self.sparse_output_:
            return sp.vstack([sp.csr_array(part) for part in chosen]).astype(np.int64).tocsr()
        return np.concatenate(chosen).astype(np.int64)

    def predict_top_k(self, X: Any, k: int | None = None) -> Array:
        """The labels with the highest scores for each row, highest first.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n_samples, n_features)
            The rows.
        k : int, optional
            The number of labels; by default `top_k`.

        Returns
        -------
        ndarray of shape (n_samples, k)
            Labels from `classes_`.
        """
        X = self._checked(X)
        k = int(self.top_k) if k is None else k
        if isinstance(k, bool) or not isinstance(k, numbers.Integral) or not 1 <= k <= len(self.classes_):
            raise ValueError(f"need 1 <= k <= number of labels, got k={k!r} for {len(self.classes_)} labels")
        return self.classes_[np.concatenate([self._best(X[rows], int(k)) for rows in self._row_blocks(X)])]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Top-k multi-label accuracy: the share of rows whose top_k labels are all true or include all true ones.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : indicator matrix, lists of labels or classes
            The true labels; NaN marks a label that nobody looked at. With one class per row the score is the share of
            rows whose class is among the top_k.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the rows.

        Returns
        -------
        float
            The accuracy, between 0 and 1.
        """
        X = self._checked(X)
        true = indicator_of(y, X, self.classes_, self.target_kind_)
        right = np.empty(X.shape[0], dtype=bool)
        for rows in self._row_blocks(X):
            labels = true[rows].toarray() if sp.issparse(true) else true[rows]
            right[rows] = rows_in_order(labels == 1, known_scores(labels, self._scores(X[rows])), int(self.top_k))
        return float(ranked_range(right, 0, 1.0, sample_weight=sample_weight))

    def _best(self, X: Any, k: int) -> Array:
        """Columns of the k highest scores, highest first; of tied scores the last column first, as in `metrics`."""
        scores = self._scores(X)
        columns = np.nonzero(top_k_labels(scores, k))[1].reshape(len(scores), k)[:, ::-1]
        order = np.argsort(-np.take_along_axis(scores, columns, 1), axis=1, kind="stable")
        return np.take_along_axis(columns, order, 1)

    def _row_blocks(self, X: Any) -> Iterator[slice]:
        return gen_batches(X.shape[0], rows_that_fit(len(self.classes_)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _codes(one_hot: Any) -> Array:
    return one_hot.indices if sp.issparse(one_hot) else one_hot.argmax(axis=1)
