"""The rows of a fit from what it is given: a scan or other `Rows`, Dask collections, or tensors."""

from __future__ import annotations

from typing import Any

from .rows import Rows


def as_rows(X: Any, y: Any = None, sample_weight: Any = None, estimator: Any = None) -> Rows:
    """The rows, with their targets and weights."""
    if isinstance(X, Rows):
        if y is not None or sample_weight is not None:
            raise TypeError(
                "a scan already contains the target and the weights, got y or sample_weight as well; name the columns "
                "in rankrange.scan(path, target=..., weight=...)"
            )
        return X
    if hasattr(X, "__dask_graph__"):
        from .dask_rows import DaskRows

        return DaskRows(X, y, sample_weight)
    try:
        from .tensor_rows import tensor_rows
    except ImportError as error:
        raise ImportError(
            f"a fit on a device needs PyTorch, which cannot be imported ({error}); run: pip install torch"
        ) from error
    return tensor_rows(X, y, sample_weight, estimator)
