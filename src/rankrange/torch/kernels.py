"""The fused kernels as PyTorch operators `torch.ops.rankrange.*`: supported inputs, launches, gradients.

They support float32, bfloat16 and float16 on a GPU. All other inputs, float64 and transforms of torch.func among them,
use eager PyTorch, which defines the results. With TRITON_INTERPRET=1 the kernels also run on a CPU, for tests.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

try:
    import triton

    from . import _label_kernels, _large_kernels, _select_kernels
except ImportError:
    triton = None

TRITON = triton is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
# PyTorch has no public function that tells.
_transforms_active: Any = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MAX_LOSSES = 1 << 30  # offsets and counts are 32-bit


class Sizes(NamedTuple):
    """Sizes of the launches, all powers of two. Tests use small ones to cover all code paths with small inputs."""

    small: int = 1 << 14  # the largest number of losses per row for one program
    sample: int = 1 << 13  # losses from which the pivots near the cuts are found
    tile: int = 1 << 13  # losses that a program reads at once
    list: int = 1 << 12  # the largest number of losses near both cuts that are listed
    replicas: int = 8  # copies of each histogram, which avoid contention
    bins: int = 1 << 11  # of a histogram
    label_tile: int = 1 << 11  # labels of a row that a program reads at once
    read_again: int = 1 << 14  # scores of a row that are read twice; limits top_k, to 127 for a million labels


SIZES = Sizes()
_HERE = contextlib.nullcontext()


def transforms_active() -> bool:
    """Whether a transform of torch.func (vmap, grad) is active."""
    return not torch.compiler.is_compiling() and _transforms_active()


def out_of_bounds(index: Tensor, low: int, high: int) -> str:
    """The least and the largest index, unless all are in [low, high) or they cannot be read without waiting."""
    if not index.is_cpu or not index.numel() or torch.compiler.is_compiling() or transforms_active():
        return ""
    least, largest = (int(end) for end in index.aminmax())
    return "" if low <= least and largest < high else f"{least} to {largest}"


def fits(values: Tensor) -> bool:
    """Whether the kernels support the dtype and device, outside of transforms of torch.func."""
    supported = TRITON and values.dtype in _DTYPES and (values.is_cuda or INTERPRETED)
    return supported and values.numel() > 0 and not transforms_active()


def fits_ranked_range(rows: Tensor) -> bool:
    """Whether the kernels support these rows: one row, or many that each fit into one program."""
    one_program = rows.shape[-1] <= SIZES.small
    return fits(rows) and rows.numel() <= _MAX_LOSSES and (one_program or rows.numel() == rows.shape[-1])


def fits_tkml(scores: Tensor, top_k: int) -> bool:
    """Whether the kernels support these scores; top_k is limited for long rows."""
    if not fits(scores):
        return False
    _, chosen, depth = _lanes(scores.shape[1], top_k)
    return chosen * depth <= SIZES.read_again


# --- launches


def ranked_range(rows: Tensor, m: int, k: int, scale: float) -> tuple[Tensor, Tensor]:
    """`scale` times the sum of the kept losses of each row, with its gradient, and its cut (see `cuts`)."""
    return _RankedRange.apply(rows, m, k, scale)


def find_range(rows: Tensor, m: int, k: int, scale: float) -> tuple[Tensor, Tensor, Tensor | None]:
    """`scale` times the sum of the kept losses of each row, its cut, and if it is short scale times the weights."""
    rows = rows.contiguous()
    n = rows.shape[-1]
    value = rows.new_empty(rows.shape[:-1])
    cut = rows.new_empty((*rows.shape[:-1], 4), dtype=torch.float32)
    with _on_device(rows):
        if n > SIZES.small:
            _large(rows, value, cut, m, k, scale)
            return value, cut, None
        weights, block = torch.empty_like(rows, dtype=torch.float32), triton.next_power_of_2(n)
        warps = min(max(block // 256, 1), 8 if block < 1 << 14 else 16)
        _select_kernels.small[(rows.numel() // n,)](
            rows, value, cut, weights, n, m, k, scale, BLOCK=block, num_warps=warps
        )
    return value, cut, weights


def _large(losses: Tensor, value: Tensor, cut: Tensor, m: int, k: int, scale: float) -> None:
    n, sizes = losses.shape[-1], SIZES
    words = 64 + 1024 + sizes.list + 4 * sizes.replicas * sizes.bins  # the layout is in `_large_kernels`
    given = losses, losses.new_zeros(words, dtype=torch.int32), value, cut, n, m, k, scale
    common = {"TILE": sizes.tile, "CAP": sizes.list, "REPLICAS": sizes.replicas, "N_BINS": sizes.bins, "num_warps": 32}
    grid = (min(-(-n // sizes.tile), _processors(losses.device), 1024),)
    _large_kernels.narrow[grid](*given, SAMPLE=sizes.sample, **common)
    _large_kernels.finish[grid](*given, **common)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def weigh(rows: Tensor, cut: Tensor, scale: float, gradient: Tensor) -> Tensor:
    """gradient * scale * weight of every loss, with the gradient and the cut of its row."""
    rows = rows.contiguous()
    n, out = rows.shape[-1], torch.empty_like(rows)
    tile = min(SIZES.tile // 2, triton.next_power_of_2(n))
    grid = (-(-n // tile) * (rows.numel() // n),)
    warps = 8 if tile >= 1 << 11 else 4
    with _on_device(rows):
        _select_kernels.weigh[grid](rows, cut, gradient.contiguous(), out, n, scale, TILE=tile, num_warps=warps)
    return out


def tkml(scores: Tensor, mask: Tensor, top_k: int, two_sided: bool) -> Tensor:
    """The loss of each row, as `functional._tkml_rows`."""
    return _TKML.apply(scores, mask, top_k, two_sided)


def find_scores(scores: Tensor, mask: Tensor, top_k: int, two_sided: bool) -> tuple[Tensor, Tensor]:
    """The loss of each row, and the marks from which `spread` computes its gradient."""
    scores, true = scores.contiguous(), mask.contiguous().view(torch.uint8)
    n_rows, n_labels = scores.shape
    losses, marks = scores.new_empty(n_rows), scores.new_empty((n_rows, 8), dtype=torch.float32)
    tile, chosen, depth = _lanes(n_labels, top_k)
    lanes = torch.empty((n_rows, chosen), dtype=torch.int32, device=scores.device)
    with _on_device(scores):
        _label_kernels.rows[(n_rows,)](
            scores, true, losses, marks, lanes, n_labels, top_k,
            TILE=tile, CHOSEN=chosen, DEPTH=depth, TWO_SIDED=two_sided, num_warps=min(max(tile // 256, 1), 16),
        )  # fmt: skip
    return losses, marks


def _lanes(n_labels: int, top_k: int) -> tuple[int, int, int]:
    """The number of lanes of a row, how many may be read again, and their length (see `_label_kernels`)."""
    chosen = max(1 << top_k.bit_length(), 8)
    tile = min(max(SIZES.label_tile, chosen), 1 << (n_labels - 1).bit_length())  # more lanes than top_k
    for _ in range(2):  # up to four times as many lanes
        if chosen * -(-n_labels // tile) > SIZES.read_again:
            tile *= 2
    return tile, chosen, 1 << (-(-n_labels // tile) - 1).bit_length()


def spread(scores: Tensor, mask: Tensor, marks: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with respect to the scores, from that with respect to the losses and the marks of `tkml`."""
    scores, true = scores.contiguous(), mask.contiguous().view(torch.uint8)
    n_rows, n_labels = scores.shape
    out = torch.empty_like(scores)
    tile = min(SIZES.label_tile, 1 << (n_labels - 1).bit_length())
    with _on_device(scores):
        _label_kernels.spread[(n_rows, -(-n_labels // tile))](
            scores, true, marks, gradient.contiguous(), out, n_labels, TILE=tile, num_warps=min(max(tile // 512, 1), 8)
        )
    return out


def _on_device(values: Tensor) -> Any:
    elsewhere = values.is_cuda and values.get_device() != torch.cuda.current_device()
    return torch.cuda.device(values.device) if elsewhere else _HERE


# --- gradients. The weights are constant between kinks, so second derivatives come only from the upstream gradient.
# torch.compile, which has no second derivatives, needs operators; in eager mode they would take some tens of
# microseconds more than the launches themselves.


class _RankedRange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, m: int, k: int, scale: float) -> tuple[Tensor, Tensor]:
        weights = None
        if torch.compiler.is_compiling():
            value, cut = _ranked_range_op(rows, m, k, scale)
        else:
            value, cut, weights = find_range(rows, m, k, scale)
        ctx.scale, ctx.short = scale, weights is not None
        ctx.save_for_backward(*((rows, cut) if weights is None else (weights,)))
        ctx.mark_non_differentiable(cut)
        ctx.set_materialize_grads(False)
        return value, cut

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor, None, None, None]:
        if ctx.short:  # multiplying the stored weights is faster than a launch
            (weights,) = ctx.saved_tensors
            found = (gradient if weights.dim() == 1 else gradient.unsqueeze(-1)) * weights
            return found.to(gradient.dtype), None, None, None
        run = _weigh_op if torch.compiler.is_compiling() else weigh
        return _times(gradient, run, *ctx.saved_tensors, ctx.scale), None, None, None


class _TKML(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, mask: Tensor, top_k: int, two_sided: bool) -> Tensor:
        find = _tkml_op if torch.compiler.is_compiling() else find_scores
        losses, marks = find(scores, mask, top_k, two_sided)
        ctx.save_for_backward(scores, mask, marks)
        return losses

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        run = _spread_op if torch.compiler.is_compiling() else spread
        return _times(gradient, run, *ctx.saved_tensors), None, None, None


def _times(gradient: Tensor, run: Any, *saved: Any) -> Tensor:
    """gradient times what `run` computes of the saved values, differentiable in the gradient."""
    if torch.is_grad_enabled():
        return gradient.unsqueeze(-1) * run(*saved, torch.ones_like(gradient))
    return run(*saved, gradient)


@torch.library.custom_op("rankrange::ranked_range", mutates_args=())
def _ranked_range_op(rows: Tensor, m: int, k: int, scale: float) -> tuple[Tensor, Tensor]:
    return find_range(rows, m, k, scale)[:2]


_weigh_op = torch.library.custom_op("rankrange::weigh", weigh, mutates_args=())
_tkml_op = torch.library.custom_op("rankrange::tkml", find_scores, mutates_args=())
_spread_op = torch.library.custom_op("rankrange::spread", spread, mutates_args=())


@_ranked_range_op.register_fake
def _(rows: Tensor, m: int, k: int, scale: float) -> tuple[Tensor, Tensor]:
    shape = rows.shape[:-1]
    return rows.new_empty(shape), rows.new_empty((*shape, 4), dtype=torch.float32)


@_tkml_op.register_fake
def _(scores: Tensor, mask: Tensor, top_k: int, two_sided: bool) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), scores.new_empty((scores.shape[0], 8), dtype=torch.float32)


@_weigh_op.register_fake
@_spread_op.register_fake
def _(values: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)
