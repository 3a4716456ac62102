"""Value, gradient and Hessian of the losses between two cuts, by a kernel in one read of X or in eager float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.arrays import Array
from .passes import INTERPRETED, KERNEL_LOSSES, Data, curvature, has_kernels, loss_and_slope

try:
    from . import _pass_kernels
except ImportError:
    _pass_kernels = None  # type: ignore[assignment]


class Tile(NamedTuple):
    """Launch parameters: rows per tile, warps, programs per processor."""

    rows: int
    warps: int
    programs: int


# Tiles by the number of columns with the intercept, as the next power of two; other tiles take up to ten times as long.
TILES = {16: Tile(32, 4, 4), 32: Tile(32, 4, 4), 128: Tile(128, 8, 2)}
# Two products of half-precision parts, accurate to about 1e-5.
PRECISION = "bf16x2"
# The product is used as a metric if no pivot of the scaled matrix is smaller, which excludes nearly dependent columns.
MIN_PIVOT = 1e-2


class Newton(NamedTuple):
    """Sums over rows: mass, loss, gradient (p,) and Hessian (p, p)."""

    mass: float
    loss: float
    gradient: Array
    hessian: Array


def newton_pass(data: Data, W: Array, low: float, high: float) -> Newton:
    """The sums over rows with losses in [low, high], by the kernel if it is accurate enough, otherwise by `eager`."""
    if takes(data):
        found = by_kernel(data, W, low, high)
        if _well_conditioned(found.hessian):
            return found
    return eager(data, W, low, high)


def takes(data: Data) -> bool:
    """Whether the kernel supports these rows."""
    return has_kernels(data) and data.X.dtype == torch.float32 and width_of(data) in TILES


def width_of(data: Data) -> int:
    """The number of columns, with the intercept, rounded up to a power of two of at least 16."""
    return max(16, 1 << (data.X.shape[1] + data.model.fit_intercept - 1).bit_length())


def eager(data: Data, W: Array, low: float, high: float) -> Newton:
    """The sums of `newton_pass` in eager PyTorch and float64, the reference for the kernel."""
    model = data.model
    x, Z = data.scores(torch.as_tensor(W, device=data.X.device), slice(None))
    s, slope = loss_and_slope(model, data.y, Z)
    q = data.mass(slice(None)) * ((s >= low) & (s <= high))
    h, u, d = q * curvature(model, data.y, Z[0]), q * slope[0], x.shape[1]
    p = d + model.fit_intercept
    found = torch.empty(p, p + 1, dtype=x.dtype, device=x.device)
    found[:d, :d], found[:d, p] = x.T @ (x * h[:, None]), u @ x
    if model.fit_intercept:
        found[d, :d] = found[:d, d] = h @ x
        found[d, d], found[d, p] = h.sum(), u.sum()
    mass, loss = torch.stack([q.sum(), (q * s).sum()]).tolist()
    table = found.cpu().numpy()
    return Newton(mass, loss, table[:, p], table[:, :p])


def by_kernel(data: Data, W: Array, low: float, high: float, tile: Tile | None = None) -> Newton:
    """The sums of `eager` by the Triton kernel, with a less accurate Hessian."""
    X, model, width = data.X, data.model, width_of(data)
    tile = TILES[width] if tile is None else tile
    p = X.shape[1] + model.fit_intercept
    tiles = -(-data.n // tile.rows)
    processors = torch.cuda.get_device_properties(X.device).multi_processor_count if X.is_cuda else 1
    per_program = -(-tiles // (processors * tile.programs))
    programs = -(-tiles // per_program)
    factors = (1.0, 1.0) if model.class_weight is None else model.class_weight
    given = np.zeros(4 + width)
    given[:4], given[4 : 4 + p] = [low, high, *factors], W[0]
    at = torch.as_tensor(given, device=X.device)
    gram = X.new_empty((programs, width, width))
    sums = X.new_empty((programs, 2 + width), dtype=torch.float64)
    scratch = X.new_empty(programs * tile.rows, dtype=torch.float64)
    _pass_kernels.newton_pass[(programs,)](
        X, data.y, X if data.weight is None else data.weight, at[4:], at, gram, sums, scratch,
        data.n, X.stride(0), X.shape[1], per_program,
        LOSS=KERNEL_LOSSES[model.loss], WEIGHTED=data.weight is not None, INTERCEPT=model.fit_intercept,
        WIDTH=width, BLOCK=tile.rows, PRECISION=PRECISION, INTERPRETED=INTERPRETED, num_warps=tile.warps,
    )  # fmt: skip
    total = sums.sum(0)
    hessian = _summed(gram)[:p, :p]
    both = torch.cat([total, hessian.reshape(-1)]).cpu().numpy()
    matrix = both[2 + width :].reshape(p, p)
    return Newton(float(both[0]), float(both[1]), both[2 : 2 + p], 0.5 * (matrix + matrix.T))


def _summed(parts: Tensor) -> Tensor:
    return parts.sum(0, dtype=torch.float64)


def _well_conditioned(matrix: Array) -> bool:
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    try:
        pivots = np.diag(np.linalg.cholesky(matrix / scale[:, None] / scale[None, :]))
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(pivots).all() and (pivots**2).min() >= MIN_PIVOT)
