"""Rows as PyTorch tensors on one device: every pass over the rows runs there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import is_classifier
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from ..core.arrays import Array
from .rows import Chunk, LocalRows

# Rows of one chunk, whose losses, slopes and sums take about 150 bytes each.
_CHUNK_ROWS = 1 << 24
# The largest number of entries of the rows that brackets and Hessians come from, and of these rows.
_SPACED_NUMBERS, _SPACED_ROWS = 1 << 26, 1 << 19


class TensorRows(LocalRows):
    """Rows (n, d) in float32 or float64, targets and weights on one device; `labels` if the targets are their codes."""

    place = "on a device"
    collected_bytes = 16_000_000

    def __init__(
        self, X: Tensor, y: Tensor, weight: Tensor | None, labels: Array | None = None, sample_rows: int = 1 << 14
    ) -> None:
        self.X, self.y, self.weight, self.labels = X, y, weight, labels
        self.n_rows, self.n_columns = map(int, X.shape)
        self.sample_rows = sample_rows
        self.chunk_rows = _CHUNK_ROWS
        self.spaced_rows = min(_SPACED_ROWS, max(_SPACED_NUMBERS // self.n_columns, 1))

    def chunks(self) -> Iterator[Chunk]:
        whole = Chunk(0, self.X, self.y, self.weight)
        for start in range(0, self.n_rows, self.chunk_rows):
            yield whole.rows(slice(start, min(start + self.chunk_rows, self.n_rows)))

    def spaced(self) -> Chunk:
        """Up to _SPACED_ROWS evenly spaced rows, as a copy."""
        step = slice(0, self.n_rows, -(-self.n_rows // self.spaced_rows))
        chunk = Chunk(0, self.X, self.y, self.weight).rows(step)
        return chunk._replace(X=chunk.X.contiguous(), y=chunk.y.contiguous())

    def per_row(self, kernel: Any, message: Any, dtype: Any = bool) -> Array:
        return np.concatenate(list(self.each(kernel, message)))


def tensor_rows(X: Any, y: Any, sample_weight: Any, estimator: Any) -> TensorRows:
    """X, y and weights as rows on the device of X."""
    X = _matrix(X)
    n, labels = X.shape[0], None
    if y is None:
        raise ValueError(f"{type(estimator).__name__}.fit needs y, the targets of the rows of X, got None")
    if not isinstance(y, Tensor) and not hasattr(y, "__cuda_array_interface__"):
        y = np.asarray(y)
        if y.dtype.kind not in "biuf" and is_classifier(estimator):
            labels, y = np.unique(y, return_inverse=True)
    y = _column(y, "y", n, X.device)
    weight = None if sample_weight is None else _column(sample_weight, "sample_weight", n, X.device)
    choosing = any(isinstance(value, str) and value == "auto" for value in (estimator.m, estimator.C))
    return TensorRows(X, y, weight, labels, 1 << 18 if choosing else max(1 << 14, 40 * X.shape[1]))


def _tensor(values: Any) -> Tensor:
    """Convert to a tensor, sharing memory if possible; a sparse matrix is an error."""
    if sp.issparse(values) or (isinstance(values, Tensor) and values.layout != torch.strided):
        raise TypeError("a fit on a device needs dense rows, got a sparse matrix; fit SciPy's, which stay in memory")
    if isinstance(values, Tensor):
        return values.detach()
    if hasattr(values, "__cuda_array_interface__"):  # CuPy
        return from_dlpack(values)
    return torch.as_tensor(np.ascontiguousarray(values))


def _matrix(X: Any) -> Tensor:
    """Convert X to a tensor (n, d) in float32 or float64, row-major; an error if it is empty."""
    X = _tensor(X)
    if X.dim() != 2 or not X.shape[0] or not X.shape[1]:
        raise ValueError(f"X must be a matrix with at least one row and one column, got shape {tuple(X.shape)}")
    if X.is_complex():
        raise ValueError("X must hold real numbers, got complex ones")
    if X.dtype not in (torch.float32, torch.float64):
        X = X.to(torch.float32 if X.dtype in (torch.float16, torch.bfloat16) else torch.float64)
    return X if X.stride(1) == 1 else X.contiguous()


def _column(values: Any, name: str, n: int, device: torch.device) -> Tensor:
    """Convert one value per row to a tensor (n,) on the device."""
    found = _tensor(values).to(device)
    found = found[:, 0] if found.dim() == 2 and found.shape[1] == 1 else found
    if tuple(found.shape) != (n,):
        raise ValueError(f"{name} must hold one value for each of the {n} rows of X, got shape {tuple(found.shape)}")
    return found.contiguous()
