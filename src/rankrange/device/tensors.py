"""Conversion of arrays of any library to validated tensors on one device, and of labels to codes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from ..core.arrays import Array
from ..shards.shard_kernels import MAX_CLASSES

# Integer labels within a range of this size are counted instead of sorted.
_COUNTED = 1 << 16


class Labels(NamedTuple):
    """The sorted distinct labels, on the host, and the code of each row's label, on the device."""

    classes: Array
    codes: Tensor


def as_tensor(array: Any, device: torch.device | None) -> Tensor:
    """Convert to a tensor, sharing memory if possible, on `device` if it is given; a sparse matrix is an error."""
    if sp.issparse(array) or (isinstance(array, Tensor) and array.layout != torch.strided):
        raise TypeError("a fit on a device needs dense rows, got a sparse matrix; fit SciPy's with device=None")
    if isinstance(array, Tensor):
        found = array.detach()
    elif hasattr(array, "__cuda_array_interface__"):  # CuPy
        found = from_dlpack(array)
    else:
        found = torch.as_tensor(np.ascontiguousarray(array))
    return found if device is None else found.to(device)


def as_matrix(X: Any, device: torch.device | None) -> Tensor:
    """Convert X to a tensor (n, d) in float32 or float64, row-major; an error if it is empty or not finite."""
    if not isinstance(X, Tensor) and not hasattr(X, "__cuda_array_interface__") and not sp.issparse(X):
        X = np.asarray(X)
        X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    X = as_tensor(X, device)
    if X.dim() != 2 or not X.shape[0] or not X.shape[1]:
        raise ValueError(f"X must be a matrix with at least one row and one column, got shape {tuple(X.shape)}")
    if X.is_complex():
        raise ValueError("X must hold real numbers, got complex ones")
    if X.dtype not in (torch.float32, torch.float64):
        X = X.to(torch.float32 if X.dtype in (torch.float16, torch.bfloat16) else torch.float64)
    X = X if X.stride(1) == 1 else X.contiguous()
    if not finite(X):
        raise ValueError("X must be finite, got NaN or infinity; drop or fill these rows")
    return X


def finite(values: Tensor) -> bool:
    """Whether all values are finite. If the fast check by a sum overflows, values are checked in blocks."""
    if bool(torch.isfinite(values.sum())):
        return True
    return all(bool(torch.isfinite(part).all()) for part in values.split(1 << 22))


def as_column(values: Any, name: str, n: int, device: torch.device) -> Tensor:
    """Convert one value per row (numeric targets or weights) to a float tensor (n,); an error if one is not finite."""
    found = as_tensor(values, device)
    found = found[:, 0] if found.dim() == 2 and found.shape[1] == 1 else found
    check_length(name, tuple(found.shape), n)
    found = found if found.is_floating_point() else found.to(torch.float64)
    if not finite(found):
        raise ValueError(f"{name} must be finite, got NaN or infinity; drop these rows")
    return found.contiguous()


def check_length(name: str, shape: tuple[int, ...], n: int) -> None:
    """Raise a ValueError unless `shape` is that of one value for each of n rows."""
    if shape != (n,):
        raise ValueError(f"{name} must hold one value for each of the {n} rows of X, got shape {shape}")


def as_labels(y: Any, n: int, device: torch.device) -> Labels:
    """The classes of y, which may be of any type, and codes.

    More than MAX_CLASSES classes, another number of labels than n, and NaN or infinity are errors.
    """
    if isinstance(y, Tensor) or hasattr(y, "__cuda_array_interface__"):
        y = as_tensor(y, device)
        y = y[:, 0] if y.dim() == 2 and y.shape[1] == 1 else y
        check_length("y", tuple(y.shape), n)
        if y.is_floating_point() and not finite(y):
            raise ValueError("y must be finite, got NaN or infinity; drop these rows")
        return _codes_of(y)
    y = np.asarray(y)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    check_length("y", y.shape, n)
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError("y must be finite, got NaN or infinity; drop these rows")
    classes, codes = np.unique(y, return_inverse=True)
    return Labels(classes, _compact(torch.as_tensor(codes).to(device), len(classes)))


def _codes_of(y: Tensor) -> Labels:
    """The classes and codes. Two classes, and integers in a small range, need no sorting."""
    y = y.to(torch.uint8) if (was_bool := y.dtype == torch.bool) else y
    low, high = y.aminmax()
    upper = y == high
    if bool((upper | (y == low)).all()) and bool(low != high):
        values, codes = torch.stack([low, high]), upper
    elif not y.is_floating_point() and int(high) - int(low) <= _COUNTED:
        counts = torch.bincount((y - low).to(torch.int64))
        present = counts.nonzero()[:, 0]
        code_of = torch.zeros(len(counts), dtype=torch.int64, device=y.device)
        code_of[present] = torch.arange(len(present), device=y.device)
        values, codes = present.to(y.dtype) + low, code_of[(y - low).to(torch.int64)]
    else:
        values, codes = torch.unique(y, return_inverse=True)
    classes = values.cpu().numpy()
    return Labels(classes.astype(bool) if was_bool else classes, _compact(codes, len(classes)))


def _compact(codes: Tensor, n_classes: int) -> Tensor:
    if n_classes > MAX_CLASSES:
        raise ValueError(
            f"a classifier needs at most {MAX_CLASSES} classes, got {n_classes}; the target seems to be a number: use "
            "AoRRRegressor"
        )
    return codes.to(torch.int8 if n_classes <= 127 else torch.int32)
