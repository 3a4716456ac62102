"""The fused kernels as PyTorch operators: which inputs they take, how they are launched, and their gradients.

Registered as `torch.ops.rankrange.*` with fake tensors and autograd, so that torch.compile and torch.export see one
operator each way. They take float32, bfloat16 and float16 on a GPU; everything else, float64 among it, is left to eager
PyTorch, which defines the results. With TRITON_INTERPRET=1 they also run on a CPU, which is how they are tested.
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

    from . import _joint_kernels, _label_kernels, _large_kernels, _memory_kernels, _select_kernels
except ImportError:
    triton = None

_INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MOST = 1 << 30  # of losses: offsets and counts are 32-bit
_REGISTERS = {"long_rows_by_mask": 128, "long_rows_by_index": 64}  # a thread; more would leave processors idle
_MOST_REMEMBERED = 1 << 19  # scores of a batch for m="auto"; more of them keep one processor busy for too long
_MOST_LANES = 1 << 13
_MOST_READ_AGAIN = 1 << 14  # scores of a long row; 64 ranks of a million labels, more of fewer
_MOST_ENTRIES = 128  # of a row's list of labels, beyond which it becomes a mask


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


class Plan(NamedTuple):
    """Sizes of the launches, all powers of two. Tests use small ones, so that small inputs take every path."""

    small: int = 1 << 14  # losses a row that one program takes
    joint: int = 1 << 20  # losses up to which one launch does everything
    sample: int = 1 << 12
    tile: int = 1 << 12
    list: int = 1 << 12
    replicas: int = 8
    bins: int = 1 << 11
    warps: int = 16
    weigh_tile: int = 1 << 12
    short: int = 1 << 12  # labels a row that one program takes at once
    label_tile: int = 1 << 11
    per_thread: int = 8


class MemoryBatch(NamedTuple):
    """A batch of samples with classes, the memory and class sums that it changes, and the constants of the rule."""

    output: Tensor
    target: Tensor
    sample: Tensor
    buffers: tuple[Tensor, ...]  # rows, visits, cuts, given, sums
    constants: tuple[float, ...]


PLAN = Plan()
# As measured on an H200: from these numbers of losses on, larger tiles and samples pay.
_LARGER = PLAN._replace(tile=1 << 13, warps=32, sample=1 << 13)
_LARGEST = _LARGER._replace(sample=1 << 14, list=1 << 13, bins=1 << 12)


def _plan_for(n: int) -> Plan:
    return PLAN if n < 1 << 22 else _LARGER if n < 1 << 25 else _LARGEST


def fits_ranked_range(rows: Tensor) -> bool:
    """Whether the kernels take these rows: one of any length, or many that fit a program each."""
    if triton is None or rows.dtype not in _DTYPES or not (rows.is_cuda or _INTERPRETED) or rows.numel() > _MOST:
        return False
    return rows.shape[-1] <= PLAN.small or rows.numel() == rows.shape[-1]


def ranked_range(rows: Tensor, m: int, k: int, scale: float, want_cut: bool) -> tuple[Tensor, Tensor | None]:
    """(value, cut) of each row: `functional.select` by kernels; the cut may be None unless it is wanted."""
    if torch.compiler.is_compiling():
        value, cut = torch.ops.rankrange.ranked_range(rows, m, k, scale)
        return value, cut.detach()
    if not (rows.requires_grad and torch.is_grad_enabled()):
        value, cut, _ = find_range(rows, m, k, scale)
        return value, cut
    asked = _Asked(m, k, scale, want_cut)
    return _RankedRange.apply(rows, asked), asked.cut


def fits_tkml(scores: Tensor, target: Tensor, top_k: int) -> bool:
    """Whether the kernels take these scores: in a long row not too many ranks may be asked for."""
    if triton is None or scores.dtype not in _DTYPES or not (scores.is_cuda or _INTERPRETED) or scores.numel() == 0:
        return False
    n_labels = scores.shape[1]
    if n_labels <= PLAN.short:
        return True
    _, chosen, depth = _lanes(n_labels, top_k, PLAN)
    return chosen * depth <= _MOST_READ_AGAIN


def tkml(scores: Tensor, target: Tensor, top_k: int, two_sided: bool) -> Tensor:
    """The loss of each row: `functional._tkml_rows` by kernels."""
    if torch.compiler.is_compiling():
        return torch.ops.rankrange.tkml(scores, target, top_k, two_sided)[0]
    if scores.requires_grad and torch.is_grad_enabled():
        return _TKML.apply(scores, target, top_k, two_sided)
    return find_scores(scores.detach(), target, top_k, two_sided)[0]


def fits_memory(losses: Tensor, output: Tensor) -> bool:
    """Whether the kernel of m="auto" takes a batch: on a GPU, of a size that one program is done with in no time."""
    if triton is None or not (losses.is_cuda or _INTERPRETED) or torch.compiler.is_compiling():
        return False
    return losses.dtype in _DTYPES and output.dtype in _DTYPES and 0 < output.numel() <= _MOST_REMEMBERED


# --- launches


def find_range(
    rows: Tensor, m: int, k: int, scale: float, plan: Plan | None = None, keep_weights: bool = False, own: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Value and cut of each row, and scale times its weights if they are to be kept and the losses are not too many.

    With `own` False the workspace may be the one kept for the current stream.
    """
    shape = rows.shape
    n = shape[-1]
    plan = plan or _plan_for(n)
    rows = rows.contiguous()
    value = torch.empty(shape[:-1], dtype=rows.dtype, device=rows.device)
    cut = torch.empty((*shape[:-1], 4), dtype=torch.float32, device=rows.device)
    keep_weights = keep_weights and n <= max(plan.small, plan.joint if _JOINT else 0)
    weights = torch.empty(shape, dtype=torch.float32, device=rows.device) if keep_weights else None
    if n <= plan.small:
        given = rows, value, cut, cut if weights is None else weights, n, m, k, scale
        _launch_small(rows.numel() // n, given, keep_weights, True)
        return value, cut, weights
    programs = min(-(-n // plan.tile), _processors(rows.device), 1024)
    sizes = plan.tile, plan.list, plan.replicas, plan.bins
    if _JOINT and n <= plan.joint:
        workspace = _workspace(plan, rows.device, own)
        to_fill = rows, workspace, value, cut, cut if weights is None else weights, n, m, k, scale
        constants = plan.sample, *sizes, keep_weights
        _launch("joint", 1 if _INTERPRETED else programs, 1, to_fill, constants, plan.warps, launch_cooperative_grid=True)
        return value, cut, weights
    given = rows, _workspace(plan, rows.device, True), value, cut, n, m, k, scale
    _launch("narrow", programs, 1, given, (plan.sample, *sizes), plan.warps)
    _launch("finish", programs, 1, given, sizes, plan.warps)
    return value, cut, None


def _workspace(plan: Plan, device: torch.device, own: bool) -> Tensor:
    """Zeros for a launch: its own, or those kept for the current stream, which every `joint` on it leaves at zero.

    What runs in a CUDA graph may be replayed beside any stream, and has a workspace of its own.
    """
    words = 64 + 1024 + plan.list + 4 * plan.replicas * plan.bins
    if own or _INTERPRETED or torch.cuda.is_current_stream_capturing():
        return torch.zeros(words, dtype=torch.int32, device=device)
    key = words, torch.cuda.current_stream(device).cuda_stream, device
    kept = _WORKSPACES.get(key)
    if kept is None:
        kept = _WORKSPACES[key] = torch.zeros(words, dtype=torch.int32, device=device)
    return kept


def _launch_small(n_rows: int, given: tuple[Any, ...], keep_weights: bool, keep_cut: bool) -> None:
    block = 1 << (given[4] - 1).bit_length()
    warps = min(max(block // 256, 1), 8 if block < 16384 else 16)
    _launch("small", n_rows, 1, given, (block, keep_weights, keep_cut), warps)


def weigh(rows: Tensor, cut: Tensor, gradient: Tensor, scale: float, plan: Plan | None = None) -> Tensor:
    """gradient * scale * weight of every loss."""
    rows = rows.contiguous()
    n = rows.shape[-1]
    out = torch.empty_like(rows)
    tile = min((plan or PLAN).weigh_tile, 1 << (n - 1).bit_length())
    given = rows, cut, gradient.contiguous(), out, n, scale
    _launch("weigh", -(-n // tile) * (rows.numel() // n), 1, given, (tile,), 8 if tile >= 2048 else 4)
    return out


def find_scores(
    scores: Tensor, target: Tensor, top_k: int, two_sided: bool, plan: Plan = PLAN
) -> tuple[Tensor, Tensor]:
    """The loss of each row, and the marks from which `spread` makes its gradient."""
    scores, target, by_index = _prepared(scores, target)
    n_rows, n_labels = scores.shape
    n_entries = target.shape[1]
    losses = torch.empty(n_rows, dtype=scores.dtype, device=scores.device)
    marks = torch.empty((n_rows, 8), dtype=torch.float32, device=scores.device)
    if n_labels <= plan.short:
        block = 1 << (n_labels - 1).bit_length()
        given = scores, target, losses, marks, n_labels, n_entries, top_k
        _launch("short_rows", n_rows, 1, given, (block, by_index, two_sided), min(max(block // 1024, 1), 8))
        return losses, marks
    tile, chosen, depth = _lanes(n_labels, top_k, plan)
    lanes = torch.empty((n_rows, chosen), dtype=torch.int32, device=scores.device)
    to_fill = scores, target, losses, marks, lanes, n_labels, n_entries, top_k
    if by_index:
        sizes = tile, chosen, depth, two_sided, 1 << (n_entries - 1).bit_length()
        _launch("long_rows_by_index", n_rows, 1, to_fill, sizes, tile // plan.per_thread // 32)
    else:
        _launch(
            "long_rows_by_mask", n_rows, 1, to_fill, (tile, chosen, depth, two_sided), tile // plan.per_thread // 32
        )
    return losses, marks


def _lanes(n_labels: int, top_k: int, plan: Plan) -> tuple[int, int, int]:
    """Lanes that a row is dealt out to, lanes that may be read again, and the length of a lane."""
    chosen = max(1 << top_k.bit_length(), 8)
    tile = plan.label_tile
    while tile < _MOST_LANES and chosen * -(-n_labels // tile) > _MOST_READ_AGAIN:
        tile *= 2
    return tile, chosen, 1 << (-(-n_labels // tile) - 1).bit_length()


def spread(scores: Tensor, target: Tensor, marks: Tensor, gradient: Tensor, plan: Plan = PLAN) -> Tensor:
    """The gradient of the scores, from the gradient of the rows' losses."""
    scores, target, by_index = _prepared(scores, target)
    n_rows, n_labels = scores.shape
    out = torch.empty_like(scores)
    tile = min(plan.label_tile, 1 << (n_labels - 1).bit_length())
    given = scores, target, marks, gradient.contiguous(), out, n_labels, target.shape[1]
    _launch("spread", n_rows, -(-n_labels // tile), given, (tile, by_index), min(max(tile // 512, 1), 8))
    return out


def remember(batch: MemoryBatch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The weights of a batch as `auto.AutoCut` defines them, and over their sum in `dtype`; the memory moves on."""
    output = batch.output.contiguous()
    n, n_classes = output.shape
    weights = torch.empty(n, dtype=torch.float32, device=output.device)
    slopes = torch.empty(n, dtype=dtype, device=output.device)
    given = (
        output, slopes, batch.target.contiguous(), batch.sample.contiguous(), *batch.buffers,
        weights, n, batch.buffers[1].shape[0] - 1, n_classes,
    )  # fmt: skip
    classes = max(1 << (n_classes - 1).bit_length(), 16)
    tile = min(max(1 << (n - 1).bit_length(), 32), 2048 // classes)
    _launch("remember", 1, 1, given, (*batch.constants, classes, tile), 4)
    return weights, slopes


# Where the arguments of each kernel hold the size that Triton specializes.
_SIZE_AT = {"small": 4, "narrow": 4, "finish": 4, "weigh": 4, "short_rows": 4, "spread": 5}
_SIZE_AT |= {"joint": 5, "long_rows_by_mask": 5, "long_rows_by_index": 5, "remember": 10}
_KERNELS: dict[str, Any] = {}
if triton is not None:
    for module in (_joint_kernels, _label_kernels, _large_kernels, _memory_kernels, _select_kernels):
        _KERNELS |= {name: getattr(module, name) for name in _SIZE_AT if hasattr(module, name)}
# How a compiled kernel is run is Triton's own business: known of these versions, the usual way for all others.
_LAUNCH_COMPILED = triton is not None and not _INTERPRETED and (3, 6) <= _version(triton.__version__) <= (3, 9)
_COMPILED: dict[Any, Any] = {}
_JOINT = _INTERPRETED or (_LAUNCH_COMPILED and torch.version.cuda is not None)
_WORKSPACES: dict[Any, Tensor] = {}


def _launch(
    name: str, grid_0: int, grid_1: int, given: tuple[Any, ...], constants: tuple[Any, ...], warps: int, **options: int
) -> None:
    """Launch a kernel: all its tensors on one device, the first of them the only one whose alignment may vary.

    Triton looks up the compiled kernel by all its arguments, at more than the cost of the launch itself; what the
    code depends on is known here, so that the second launch of a kind goes straight to it.
    """
    first, n = given[0], given[_SIZE_AT[name]]
    device = first.get_device()
    key = name, device, first.dtype, first.data_ptr() % 16, n % 16, n == 1, given[1].dtype, constants, warps
    compiled = _COMPILED.get(key)
    if compiled is not None and device == torch.cuda.current_device():
        stream = triton.runtime.driver.active.get_current_stream(device)
        compiled.run(
            grid_0, grid_1, 1, stream, compiled.function, compiled.packed_metadata, None, None, None, *given, *constants
        )
        return
    with torch.cuda.device(device) if first.is_cuda else contextlib.nullcontext():
        compiled = _KERNELS[name][(grid_0, grid_1, 1)](*given, *constants, num_warps=warps, **options)
    if _LAUNCH_COMPILED and not hasattr(compiled, "result"):
        _COMPILED[key] = compiled


def _prepared(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Contiguous scores and target, and whether it lists labels; long lists become a mask."""
    from .functional import label_mask

    by_index = target.shape[1] != scores.shape[1]
    if by_index and target.shape[1] > _MOST_ENTRIES:
        target, by_index = label_mask(target, scores.shape[1]), False
    if target.dtype == torch.bool:
        target = target.contiguous().view(torch.uint8)
    return scores.contiguous(), target.contiguous(), by_index


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


# --- autograd -----------------------------------------------------------------------------------------------------
# In eager mode a Function calls the launches directly: the operators below cost some tens of microseconds a call.


class _Asked:
    """What is asked of a ranked range, and its cut: every argument and output of a Function costs time."""

    __slots__ = ("cut", "k", "m", "scale", "want_cut")

    def __init__(self, m: int, k: int, scale: float, want_cut: bool) -> None:
        self.m, self.k, self.scale, self.want_cut = m, k, scale, want_cut
        self.cut: Tensor | None = None


class _RankedRange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, asked: _Asked) -> Tensor:
        n, device = rows.shape[-1], rows.device
        ctx.few = n <= (PLAN.joint if _JOINT else PLAN.small) and rows.dim() == 1
        if n > PLAN.small or not ctx.few:
            value, asked.cut, ctx.weights = find_range(
                rows, asked.m, asked.k, asked.scale, keep_weights=ctx.few, own=False
            )
            if ctx.few:
                return value
            ctx.scale = asked.scale
            ctx.save_for_backward(rows, asked.cut)
            return value
        value = torch.empty((), dtype=rows.dtype, device=device)
        ctx.weights = torch.empty(n, dtype=torch.float32, device=device)
        if asked.want_cut:
            asked.cut = torch.empty(4, dtype=torch.float32, device=device)
        cut = asked.cut if asked.want_cut else ctx.weights
        given = rows.contiguous(), value, cut, ctx.weights, n, asked.m, asked.k, asked.scale
        _launch_small(1, given, True, asked.want_cut)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if ctx.few:  # the weights were kept, and to multiply them costs less than a launch
            product = gradient * ctx.weights
            return product if gradient.dtype == torch.float32 else product.to(gradient.dtype), None
        run: Any = torch.ops.rankrange.weigh if torch.is_grad_enabled() else weigh
        return run(*ctx.saved_tensors, gradient, ctx.scale), None


class _TKML(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, target: Tensor, top_k: int, two_sided: bool) -> Tensor:
        losses, marks = find_scores(scores, target, top_k, two_sided)
        ctx.save_for_backward(scores, target, marks)
        return losses

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        run: Any = torch.ops.rankrange.spread if torch.is_grad_enabled() else spread
        return run(*ctx.saved_tensors, gradient), None, None, None


@torch.library.custom_op("rankrange::ranked_range", mutates_args=())
def _ranked_range_op(rows: Tensor, m: int, k: int, scale: float) -> tuple[Tensor, Tensor]:
    return find_range(rows, m, k, scale)[:2]


@torch.library.custom_op("rankrange::weigh", mutates_args=())
def _weigh_op(rows: Tensor, cut: Tensor, gradient: Tensor, scale: float) -> Tensor:
    return weigh(rows, cut, gradient, scale)


@torch.library.custom_op("rankrange::tkml", mutates_args=())
def _tkml_op(scores: Tensor, target: Tensor, top_k: int, two_sided: bool) -> tuple[Tensor, Tensor]:
    return find_scores(scores, target, top_k, two_sided)


@torch.library.custom_op("rankrange::spread", mutates_args=())
def _spread_op(scores: Tensor, target: Tensor, marks: Tensor, gradient: Tensor) -> Tensor:
    return spread(scores, target, marks, gradient)


@_ranked_range_op.register_fake
def _(rows: Tensor, m: int, k: int, scale: float) -> tuple[Tensor, Tensor]:
    shape = rows.shape[:-1]
    return rows.new_empty(shape), rows.new_empty((*shape, 4), dtype=torch.float32)


@_weigh_op.register_fake
def _(rows: Tensor, cut: Tensor, gradient: Tensor, scale: float) -> Tensor:
    return torch.empty_like(rows, memory_format=torch.contiguous_format)


@_tkml_op.register_fake
def _(scores: Tensor, target: Tensor, top_k: int, two_sided: bool) -> tuple[Tensor, Tensor]:
    return scores.new_empty(scores.shape[0]), scores.new_empty((scores.shape[0], 8), dtype=torch.float32)


@_spread_op.register_fake
def _(scores: Tensor, target: Tensor, marks: Tensor, gradient: Tensor) -> Tensor:
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


def _keep_range(ctx: Any, inputs: Any, output: Any) -> None:
    rows, _, _, ctx.scale = inputs
    ctx.save_for_backward(rows, output[1])


def _keep_scores(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2], output[1])


# The weights are constant between kinks: a second derivative goes through the upstream gradient alone.
def _keep_weighing(ctx: Any, inputs: Any, output: Any) -> None:
    rows, cut, gradient, ctx.scale = inputs
    ctx.save_for_backward(rows, cut, gradient)


def _weigh_backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    rows, cut, gradient = ctx.saved_tensors
    weights = _weigh_op(rows, cut, torch.ones_like(gradient), ctx.scale)
    return None, None, (upstream * weights).sum(-1), None


def _keep_spreading(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _spread_backward(ctx: Any, upstream: Tensor) -> tuple[Any, ...]:
    scores, target, marks, gradient = ctx.saved_tensors
    weights = _spread_op(scores, target, marks, torch.ones_like(gradient))
    return None, None, None, (upstream * weights).sum(-1)


_ranked_range_op.register_autograd(
    lambda ctx, gradient, _: (_weigh_op(*ctx.saved_tensors, gradient, ctx.scale), None, None, None),
    setup_context=_keep_range,
)
_tkml_op.register_autograd(
    lambda ctx, gradient, _: (_spread_op(*ctx.saved_tensors, gradient), None, None, None), setup_context=_keep_scores
)
_weigh_op.register_autograd(_weigh_backward, setup_context=_keep_weighing)
_spread_op.register_autograd(_spread_backward, setup_context=_keep_spreading)
