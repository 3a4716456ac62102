"""Predictions and scores of linear models on scans, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import assert_all_finite, validate_data

from ..core.arrays import Array
from .on_device import on_device, tensor_score


def checked_rows(estimator: Any, X: Any) -> Iterator[Any]:
    """Yield validated batches of rows: X itself if it is an array, or the batches of a scan; at least one."""
    if not hasattr(X, "__rankrange_rows__"):
        yield validate_data(estimator, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return
    fitted, scanned = (None if names is None else list(names) for names in (_names(estimator), X.columns))
    if fitted is not None and scanned is not None and fitted != scanned:
        odd = next((name for name in [*fitted, *scanned] if (name in fitted) != (name in scanned)), None)
        what = "them in another order" if odd is None else f"{odd!r} in only one of the two"
        raise ValueError(f"a scan must have the columns of the fit, got {what}; name them by columns=[...]")
    count = 0
    for rows in X.__rankrange_rows__():
        if rows.shape[1] != estimator.n_features_in_:
            raise ValueError(
                f"a scan must have the {estimator.n_features_in_} columns of the fit, got {rows.shape[1]}; name them "
                "by columns=[...]"
            )
        assert_all_finite(rows, input_name="X")
        count += 1
        yield rows
    if not count:
        yield np.empty((0, estimator.n_features_in_))


def _names(estimator: Any) -> Array | None:
    return getattr(estimator, "feature_names_in_", None)


class ScoresScans:
    """Mixin: a `score` that also accepts a scan, which contains its targets and weights."""

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean accuracy of a classifier, or R squared of a regressor.

        Parameters
        ----------
        X : array_like, sparse matrix or scan
            The rows.
        y : array_like of shape (n,)
            The true labels or targets; not needed for a scan, which contains them.
        sample_weight : array_like of shape (n,), optional
            Weights of the rows; not allowed for a scan, which contains them.

        Returns
        -------
        float
            The score.
        """
        if hasattr(X, "__rankrange_targets__"):
            if y is not None or sample_weight is not None:
                raise TypeError(
                    "a scan already contains the target and the weights, got y or sample_weight as well; leave these "
                    "out"
                )
            y, sample_weight = X.__rankrange_targets__()
        elif on_device(X):
            return tensor_score(self, X, y, sample_weight)
        elif y is None:
            raise TypeError("score needs y, the targets of the rows of X, got none; pass score(X, y)")
        return float(super().score(X, y, sample_weight))  # type: ignore[misc]
