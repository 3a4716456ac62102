"""Estimators on rows that are not in this process's memory: scans, Dask collections, tensors and CuPy arrays."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import is_classifier
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Array
from ..core.engines import engine

STREAMED_ROWS = "array_like, sparse matrix of shape (n_samples, n_features), scan, Dask collection or tensor"


def is_tensor(X: Any) -> bool:
    """Whether X is a PyTorch tensor. This does not import PyTorch."""
    return "torch" in sys.modules and isinstance(X, sys.modules["torch"].Tensor)


def on_device(X: Any) -> bool:
    """Whether to compute on the device of X: a GPU, or the CPU for tensors with scikit-learn's array API dispatch."""
    if is_tensor(X):
        return X.device.type != "cpu" or bool(get_config()["array_api_dispatch"])
    return hasattr(X, "__cuda_array_interface__")


def is_streamed(X: Any) -> bool:
    """Whether fits pass over X in chunks instead of converting it to an array."""
    return hasattr(X, "__rankrange_rows__") or hasattr(X, "__dask_graph__") or on_device(X)


def fit_streamed(estimator: Any, X: Any, y: Any, sample_weight: Any, **others: Any) -> Any:
    """Fit to a scan, Dask collections or rows on a device; the `others`, further arguments of `fit`, must be None."""
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise ValueError(
            f"a fit to a scan, to Dask collections or on a device takes X, y and sample_weight, got "
            f"{' and '.join(given)} as well; leave these out, or fit NumPy arrays"
        )
    return engine("rows")(estimator, X, y, sample_weight)


def by_chunks(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method that predicts an array X also predict scans, chunk by chunk, and Dask collections, lazily."""

    @wraps(method)
    def predict(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        scanned, lazy = hasattr(X, "__rankrange_rows__"), hasattr(X, "__dask_graph__")
        if not scanned and not lazy:
            return method(self, X, *args, **options)
        check_is_fitted(self, "coef_")
        if any(args) or any(options.values()):
            raise ValueError("return_std=True needs rows in memory, got a scan or a Dask collection; pass arrays")
        _check_columns(self, X)
        row = np.zeros((1, self.n_features_in_), dtype=self.coef_.dtype)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names")  # they were compared
            none = method(self, row)[:0]
            if scanned:
                return np.concatenate([none, *(method(self, chunk.X) for chunk in X.chunks() if len(chunk.y))])
        return engine("lazy")(method.__name__, self, X, none)

    return predict


def _check_columns(estimator: Any, X: Any) -> None:
    """Raise a ValueError unless X has the columns of the fit."""
    names, fitted = getattr(X, "columns", None), getattr(estimator, "feature_names_in_", None)
    names, fitted = (None if columns is None else list(columns) for columns in (names, fitted))
    if fitted is not None and names is not None and fitted != names:
        odd = next((name for name in [*fitted, *names] if (name in fitted) != (name in names)), None)
        what = "them in another order" if odd is None else f"{odd!r} in only one of the two"
        raise ValueError(f"the rows must have the columns of the fit, got {what}; name them by columns=[...]")
    count = X.n_columns if hasattr(X, "n_columns") else X.shape[1]
    if count != estimator.n_features_in_:
        raise ValueError(f"the rows must have the {estimator.n_features_in_} columns of the fit, got {count}")


def tensor_scores(estimator: Any, X: Any, W: Array) -> Any:
    """Scores (n, r) of the rows of X for the parameters W (r, d + 1), on its device and in its library."""
    check_is_fitted(estimator, "coef_")
    import torch
    from torch.utils.dlpack import from_dlpack

    rows = X.detach() if is_tensor(X) else from_dlpack(X)
    if rows.dim() != 2 or rows.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X must have the {estimator.n_features_in_} columns of the fit, got shape {tuple(rows.shape)}; pass the "
            "same columns"
        )
    rows = rows if rows.dtype in (torch.float32, torch.float64) else rows.to(torch.float64)
    if not bool(torch.isfinite(rows.sum())) and not bool(torch.isfinite(rows).all()):
        raise ValueError("X must be finite, got NaN or infinity; drop or fill these rows")
    return like(X, rows @ rows.new_tensor(W[:, :-1].T) + rows.new_tensor(W[:, -1]))


def like(X: Any, values: Any) -> Any:
    """Convert a tensor or a NumPy array to an array of the same library and device as X."""
    if isinstance(X, np.ndarray):
        return values
    import torch

    if is_tensor(X):
        return torch.as_tensor(values, device=X.device)
    return sys.modules["cupy"].from_dlpack(values) if is_tensor(values) else sys.modules["cupy"].asarray(values)


def on_host(values: Any) -> Any:
    """Convert tensors, CuPy arrays and Dask collections to NumPy arrays; return other values unchanged."""
    if is_tensor(values):
        return values.detach().cpu().numpy()
    if hasattr(values, "__dask_graph__"):
        return np.asarray(values)
    return values.get() if hasattr(values, "__cuda_array_interface__") else values


class ScoresRows:
    """Mixin: a `score` that also accepts scans, Dask collections, tensors and CuPy arrays."""

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean accuracy of a classifier, or R squared of a regressor.

        Parameters
        ----------
        X : array_like, sparse matrix, scan, Dask collection or tensor
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
        if hasattr(X, "__rankrange_rows__"):
            if y is not None or sample_weight is not None:
                raise TypeError(
                    "a scan already contains the target and the weights, got y or sample_weight as well; leave these "
                    "out"
                )
            y, sample_weight = X.targets()
        elif y is None:
            raise TypeError("score needs y, the targets of the rows of X, got none; pass score(X, y)")
        measure = accuracy_score if is_classifier(self) else r2_score
        return float(measure(on_host(y), on_host(self.predict(X)), sample_weight=on_host(sample_weight)))  # type: ignore[attr-defined]
