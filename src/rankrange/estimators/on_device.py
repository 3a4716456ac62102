"""PyTorch tensors and CuPy arrays as X: whether to fit on their device, and predictions in the library of X."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Array
from ..core.engines import engine
from ..core.transition import joined, probabilities_of


def is_tensor(X: Any) -> bool:
    """Whether X is a PyTorch tensor. This does not import PyTorch."""
    return "torch" in sys.modules and isinstance(X, sys.modules["torch"].Tensor)


def on_device(X: Any) -> bool:
    """Whether to compute on the device of X: a GPU, or the CPU for tensors with scikit-learn's array API dispatch."""
    if is_tensor(X):
        return X.device.type != "cpu" or bool(get_config()["array_api_dispatch"])
    return hasattr(X, "__cuda_array_interface__")


def prepared_for_device(estimator: Any, X: Any, y: Any, sample_weight: Any, **others: Any) -> tuple[Any, Any, Any]:
    """X, y and weights for `fit`. For a fit on a device they are an engine that contains all three, None and None.

    A fit runs on a device if X is on one; otherwise nothing is changed. The search
    from many starts runs on the host, on a sample of the rows. If the sample would contain all rows, X, y and the
    weights are returned as NumPy arrays. `others` are the further arguments of `fit`, which must be None for a fit on a
    device, as must the `aggregate` of the estimator.
    """
    if hasattr(X, "__rankrange_fit__") or hasattr(X, "__dask_graph__"):
        return X, y, sample_weight
    if not on_device(X):
        return X, y, sample_weight
    given = [name for name, value in others.items() if value is not None]
    given += ["aggregate"] if getattr(estimator, "aggregate", None) is not None else []
    if given:
        raise ValueError(
            f"a fit on a device takes X, y and sample_weight, got {' and '.join(given)} as well; leave these out, "
            "or fit NumPy arrays"
        )
    try:
        build = engine("device")
    except ImportError as error:
        raise ImportError(
            f"a fit on a device needs PyTorch, which cannot be imported ({error}); run: pip install 'rankrange[torch]'"
        ) from error
    estimator._check_params()
    rows = build(estimator, X, y, sample_weight)
    if rows.n_rows <= rows.sample_rows:
        return on_host(X), on_host(y), on_host(sample_weight)
    rows.columns = _names(X)
    return rows, None, None


def _names(X: Any) -> list[str] | None:
    """The column names of a data frame; None if there are none or if they are not strings."""
    names = list(X.columns) if hasattr(X, "columns") else []
    return names if names and all(isinstance(name, str) for name in names) else None


def tensor_scores(estimator: Any, X: Any, W: Array | None = None) -> Any:
    """Scores (n, r) of the rows of X, on its device, for the fitted coefficients or for W (r, p)."""
    check_is_fitted(estimator, "coef_")
    torch = importlib.import_module("torch")
    X = X.detach() if is_tensor(X) else torch.from_dlpack(X)
    if X.dim() != 2 or X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X must have the {estimator.n_features_in_} columns of the fit, got shape {tuple(X.shape)}; pass the same "
            "columns"
        )
    X = X if X.dtype in (torch.float32, torch.float64) else X.to(torch.float64)
    if not bool(torch.isfinite(X.sum())) and not bool(torch.isfinite(X).all()):
        raise ValueError("X must be finite, got NaN or infinity; drop or fill these rows")
    d = X.shape[1]
    coef, intercept = np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)
    if W is not None:
        coef, intercept = W[:, :d], W[:, -1] if estimator.fit_intercept else np.zeros(len(W))
    return X @ X.new_tensor(coef.T) + X.new_tensor(intercept)


def like(X: Any, tensor: Any) -> Any:
    """Convert a tensor to an array of the same library as X."""
    return tensor if is_tensor(X) else sys.modules["cupy"].from_dlpack(tensor)


def tensor_labels(classes: Array, scores: Any) -> Any:
    """The classes with the highest scores, as a tensor; a NumPy array if they are not numbers.

    Scores have shape (n, classes), or (n,) for two classes: positive for the second.
    """
    chosen = (scores > 0).long() if scores.dim() == 1 else scores.argmax(1)
    if classes.dtype.kind not in "biuf":
        return classes[chosen.cpu().numpy()]
    return sys.modules["torch"].as_tensor(classes, device=scores.device)[chosen]


def tensor_probabilities(estimator: Any, X: Any) -> Any:
    """Probabilities (n, classes), computed on the host and returned as a tensor on the device of the scores."""
    scores = tensor_scores(estimator, X)
    found = probabilities_of(estimator.temperature_ * scores.cpu().numpy())
    share = getattr(estimator, "ordinary_share_", 0.0)
    if share:
        ordinary = tensor_scores(estimator, X, estimator._ordinary_line).cpu().numpy()
        found = joined(found, probabilities_of(ordinary), share)
    return scores.new_tensor(found)


def on_host(values: Any) -> Any:
    """Convert tensors and CuPy arrays to NumPy arrays; return other values unchanged."""
    if is_tensor(values):
        return values.detach().cpu().numpy()
    return values.get() if hasattr(values, "__cuda_array_interface__") else values


def tensor_score(estimator: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Accuracy of a classifier or R squared of a regressor, for rows on a device."""
    measure = accuracy_score if hasattr(estimator, "classes_") else r2_score
    predicted = on_host(estimator.predict(X))
    return float(measure(on_host(y), predicted, sample_weight=on_host(sample_weight)))
