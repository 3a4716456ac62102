"""The fused kernels as PyTorch operators: supported inputs, launches and gradients.

The operators are registered as `torch.ops.rankrange.*` with autograd and fake implementations, for torch.compile and
torch.export. They support float32, bfloat16 and float16 on a GPU. All other inputs, including float64, use eager
PyTorch, which defines the results. With TRITON_INTERPRET=1 the kernels also run on a CPU, for tests.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .compatibility import transforms_active
from .launching import (
    INTERPRETED,
    JOINT,
    PLAN,
    TRITON,
    Plan,
    compiled_for,
    current_device,
    current_stream,
    kept_workspace,
    launch,
    plan_for,
    workspace,
)

_compiling, _grad_enabled = torch.compiler.is_compiling, torch.is_grad_enabled  # looked up once

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_MAX_LOSSES = 1 << 30  # the largest number of losses: offsets and counts are 32-bit
# the largest number of scores of a batch for m="auto", because one program processes them all
_MAX_REMEMBERED = 1 << 19
_MAX_LANES = 1 << 13
_MAX_READ_AGAIN = 1 << 14  # limits top_k in a long row: to 127 for a million labels, to more for fewer labels
_MAX_ENTRIES = 128  # a longer list of labels is converted to a mask


class _Ready(NamedTuple):
    """The parameters of an earlier launch, without its tensors."""

    run: Any  # with function and metadata: see `launching.Compiled`
    function: Any
    metadata: Any
    programs: int
    device: int
    only: bool  # whether there is no other device
    words: int  # the size of the workspace; 0 for the kernel `small`, which has none
    numbers: tuple[Any, ...]  # n, m, k, scale and the constants of the kernel


_PLAIN = (int, float)
_READY: dict[Any, _Ready] = {}
_MAX_READY = 1 << 10  # sizes and ranks; the cache is cleared when it is full


class MemoryBatch(NamedTuple):
    """A batch of samples with classes, the memory and class sums to update, and the constants of the noise model."""

    output: Tensor  # scores (B, classes)
    target: Tensor  # class labels
    sample: Tensor  # the index of each sample in the data set
    buffers: tuple[Tensor, ...]  # rows, visits, cuts, given, sums
    constants: tuple[float, ...]  # from FACTOR to PRIOR, in the order of the kernel


def fits_ranked_range(rows: Tensor) -> bool:
    """Whether the kernels support the dtype, device and size of these rows.

    Supported are at most `_MAX_LOSSES` losses, in one row or in many rows that each fit into one program.
    """
    if not TRITON or rows.dtype not in _DTYPES or not (rows.is_cuda or INTERPRETED) or rows.numel() > _MAX_LOSSES:
        return False
    return rows.shape[-1] <= PLAN.small or rows.numel() == rows.shape[-1]


def again(losses: Tensor, m: Any, k: Any, how: str, cuts: list[Tensor] | None = None) -> Tensor | None:
    """The value of a ranked range, by repeating an earlier launch with the same m, k, shape and dtype.

    The result is None if there was no such launch (see `keep_ready`), or if it cannot be repeated, for example without
    gradients or in torch.compile. `how` is the reduction, or "batch" for `functional.select_in_batch`. The cut is
    appended to `cuts` if there is such a list. Repeating saves time, because finding the parameters of a launch takes
    longer in Python than the launch.
    """
    type_m, type_k = type(m), type(k)
    if _compiling() or type(losses) is not Tensor or type_m not in _PLAIN or type_k not in _PLAIN:
        return None
    ready = _READY.get((losses.shape, losses.dtype, losses.get_device(), m, k, type_m, type_k, how))
    if ready is None or not (losses.requires_grad and _grad_enabled()) or transforms_active():
        return None
    if losses.data_ptr() % 16 or not losses.is_contiguous() or not (ready.only or ready.device == current_device()):
        return None
    return _apply(losses, (ready, cuts))


def keep_ready(losses: Tensor, m: Any, k: Any, how: str, counts: tuple[int, int], scale: float, want_cut: bool) -> None:
    """Store the parameters of a call, with its counts and its scale, if `again` can repeat its launch."""
    if torch.compiler.is_compiling() or not (losses.requires_grad and fits_ranked_range(losses)):
        return
    n = losses.shape[-1]
    fits = losses.dim() == 1 and n <= (PLAN.joint if JOINT else PLAN.small) and losses.data_ptr() % 16 == 0
    if not fits or type(m) not in _PLAIN or type(k) not in _PLAIN:
        return
    words, programs, constants, warps = _one_launch(PLAN, n, losses, (True, want_cut))
    name, second = ("joint", torch.int32) if words else ("small", losses.dtype)
    compiled = compiled_for(name, losses, n, second, constants, warps)
    if compiled is not None:
        if len(_READY) >= _MAX_READY:
            _READY.clear()
        only, numbers = losses.is_cpu or torch.cuda.device_count() == 1, (n, *counts, scale, *constants)
        ready = _Ready(*compiled, programs, losses.get_device(), only, words, numbers)
        _READY[losses.shape, losses.dtype, losses.get_device(), m, k, type(m), type(k), how] = ready  # 1 is not 1.0


def ranked_range(rows: Tensor, m: int, k: int, scale: float, want_cut: bool) -> tuple[Tensor, Tensor | None]:
    """`scale` times the sum of the kept losses, and the cut, for each row; the cut may be None unless `want_cut`."""
    if torch.compiler.is_compiling():
        value, cut = torch.ops.rankrange.ranked_range(rows, m, k, scale)
        return value, cut.detach()
    if not (rows.requires_grad and torch.is_grad_enabled()):
        return find_range(rows, m, k, scale, keep_cut=want_cut, own=False)[:2]
    cuts: list[Tensor] = []
    return _RankedRange.apply(rows, (m, k, scale, want_cut, cuts)), cuts[0]


def fits_tkml(scores: Tensor, target: Tensor, top_k: int) -> bool:
    """Whether the kernels support these scores; top_k is limited for long rows."""
    if not TRITON or scores.dtype not in _DTYPES or not (scores.is_cuda or INTERPRETED) or scores.numel() == 0:
        return False
    n_labels = scores.shape[1]
    if n_labels <= PLAN.short:
        return True
    _, chosen, depth = _lanes(n_labels, top_k, PLAN)
    return chosen * depth <= _MAX_READ_AGAIN


def tkml(scores: Tensor, target: Tensor, top_k: int, two_sided: bool) -> Tensor:
    """The loss of each row, as `functional._tkml_rows`."""
    if torch.compiler.is_compiling():
        return torch.ops.rankrange.tkml(scores, target, top_k, two_sided)[0]
    if scores.requires_grad and torch.is_grad_enabled():
        return _TKML.apply(scores, target, top_k, two_sided)
    return find_scores(scores.detach(), target, top_k, two_sided)[0]


def fits_memory(losses: Tensor, output: Tensor) -> bool:
    """Whether the kernel of m="auto" supports a batch: its dtypes and device, and a size that fits into one program.

    In torch.compile it is not used.
    """
    if not TRITON or not (losses.is_cuda or INTERPRETED) or torch.compiler.is_compiling():
        return False
    return losses.dtype in _DTYPES and output.dtype in _DTYPES and 0 < output.numel() <= _MAX_REMEMBERED


# --- launches


def find_range(
    rows: Tensor,
    m: int,
    k: int,
    scale: float,
    plan: Plan | None = None,
    *,
    keep_weights: bool = False,
    keep_cut: bool = True,
    own: bool = True,
) -> tuple[Tensor, Any, Any]:
    """Value and cut of each row, and scale times the weights of its losses.

    The value is `scale` times the sum of the kept losses. The weights are None unless `keep_weights` is set and one
    launch is enough; the cut is None if one launch is enough and `keep_cut` is False. If `own` is False, the cached
    workspace of the current stream may be used.
    """
    shape = rows.shape
    n = shape[-1]
    plan = plan or plan_for(n)
    rows = rows.contiguous()
    value = rows.new_empty(shape[:-1])
    cut: Any
    if n > (plan.joint if JOINT else plan.small):
        cut = rows.new_empty((*shape[:-1], 4), dtype=torch.float32)
        _launch_twice(plan, rows, value, cut, n, m, k, scale)
        return value, cut, None
    cut = rows.new_empty((*shape[:-1], 4), dtype=torch.float32) if keep_cut else None
    weights = torch.empty_like(rows, dtype=torch.float32) if keep_weights else None
    # Outputs that are not kept still need a pointer, which the kernel does not use.
    given: Any = value, value if cut is None else cut, value if weights is None else weights, n, m, k, scale
    words, programs, constants, warps = _one_launch(plan, n, rows, (keep_weights, keep_cut))
    if words:
        given = workspace(words, rows, own), *given
    launch("joint" if words else "small", programs, 1, (rows, *given), constants, warps, words > 0)
    return value, cut, weights


def _one_launch(plan: Plan, n: int, rows: Tensor, kept: tuple[bool, bool]) -> tuple[int, int, tuple[Any, ...], int]:
    """Size of the workspace, number of programs, constants and warps of a single launch.

    If the size is 0, the kernel is `small`, which has no workspace; otherwise it is `joint`. `kept` is whether it
    stores the weights, and the cut.
    """
    if n <= plan.small:
        block = 1 << (n - 1).bit_length()
        return 0, rows.numel() // n, (block, *kept), min(max(block // 256, 1), 8 if block < 16384 else 16)
    constants = plan.sample, plan.tile, plan.list, plan.replicas, plan.bins, *kept
    # The interpreter runs programs one after the other, so they must not wait.
    return plan.words, 1 if INTERPRETED else plan.programs(n, rows.device), constants, plan.warps


def _launch_twice(plan: Plan, rows: Tensor, *given: Any) -> None:
    sizes = plan.tile, plan.list, plan.replicas, plan.bins
    programs = plan.programs(rows.shape[-1], rows.device)
    to_fill = rows, workspace(plan.words, rows, True), *given
    launch("narrow", programs, 1, to_fill, (plan.sample, *sizes), plan.warps)
    launch("finish", programs, 1, to_fill, sizes, plan.warps)


def weigh(rows: Tensor, cut: Tensor, gradient: Tensor, scale: float, plan: Plan | None = None) -> Tensor:
    """gradient * scale * weight of every loss, with the gradient and the cut of its row."""
    rows = rows.contiguous()
    n = rows.shape[-1]
    out = torch.empty_like(rows)
    tile = min((plan or PLAN).weigh_tile, 1 << (n - 1).bit_length())
    given = rows, cut, gradient.contiguous(), out, n, scale
    launch("weigh", -(-n // tile) * (rows.numel() // n), 1, given, (tile,), 8 if tile >= 2048 else 4)
    return out


def find_scores(
    scores: Tensor, target: Tensor, top_k: int, two_sided: bool, plan: Plan = PLAN
) -> tuple[Tensor, Tensor]:
    """The loss of each row, and the marks from which `spread` computes its gradient."""
    scores, target, by_index = _prepared(scores, target)
    n_rows, n_labels = scores.shape
    n_entries = target.shape[1]
    losses = torch.empty(n_rows, dtype=scores.dtype, device=scores.device)
    marks = torch.empty((n_rows, 8), dtype=torch.float32, device=scores.device)
    if n_labels <= plan.short:
        block = 1 << (n_labels - 1).bit_length()
        given = scores, target, losses, marks, n_labels, n_entries, top_k
        launch("short_rows", n_rows, 1, given, (block, by_index, two_sided), min(max(block // 1024, 1), 8))
        return losses, marks
    tile, chosen, depth = _lanes(n_labels, top_k, plan)
    lanes = torch.empty((n_rows, chosen), dtype=torch.int32, device=scores.device)
    to_fill = scores, target, losses, marks, lanes, n_labels, n_entries, top_k
    if by_index:
        sizes = tile, chosen, depth, two_sided, 1 << (n_entries - 1).bit_length()
        launch("long_rows_by_index", n_rows, 1, to_fill, sizes, tile // plan.per_thread // 32)
    else:
        launch("long_rows_by_mask", n_rows, 1, to_fill, (tile, chosen, depth, two_sided), tile // plan.per_thread // 32)
    return losses, marks


def _lanes(n_labels: int, top_k: int, plan: Plan) -> tuple[int, int, int]:
    """The number of lanes of a row, how many may be read again, and their length (see `_label_kernels`)."""
    chosen = max(1 << top_k.bit_length(), 8)
    tile = plan.label_tile
    while tile < _MAX_LANES and chosen * -(-n_labels // tile) > _MAX_READ_AGAIN:
        tile *= 2
    return tile, chosen, 1 << (-(-n_labels // tile) - 1).bit_length()


def spread(scores: Tensor, target: Tensor, marks: Tensor, gradient: Tensor, plan: Plan = PLAN) -> Tensor:
    """The gradient with respect to the scores, from that with respect to the losses and the marks of `find_scores`."""
    scores, target, by_index = _prepared(scores, target)
    n_rows, n_labels = scores.shape
    out = torch.empty_like(scores)
    tile = min(plan.label_tile, 1 << (n_labels - 1).bit_length())
    given = scores, target, marks, gradient.contiguous(), out, n_labels, target.shape[1]
    launch("spread", n_rows, -(-n_labels // tile), given, (tile, by_index), min(max(tile // 512, 1), 8))
    return out


def remember(batch: MemoryBatch, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Update the memory with a batch, and compute its weights as defined by `auto.AutoCut`.

    Returns the weights in float32, and the weights divided by max(1, their sum) in `dtype`.
    """
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
    launch("remember", 1, 1, given, (*batch.constants, classes, tile), 4)
    return weights, slopes


def _prepared(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Contiguous scores and target, and whether the target is a list of labels; long lists become a mask."""
    from .cuts import label_mask

    by_index = target.shape[1] != scores.shape[1]
    if by_index and target.shape[1] > _MAX_ENTRIES:
        target, by_index = label_mask(target, scores.shape[1]), False
    if target.dtype == torch.bool:
        target = target.contiguous().view(torch.uint8)
    return scores.contiguous(), target.contiguous(), by_index


# --- autograd ---------------------------------------------------------------------------------------------------------
# In eager mode a Function launches kernels directly: the operators below take some tens of microseconds per call.


class _RankedRange(torch.autograd.Function):
    """The value of a ranked range, with its gradient.

    The cut is appended to a list, because every output of a Function costs time.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, asked: Any) -> Tensor:
        m, k, ctx.scale, want_cut, cuts = asked
        alone = rows.dim() == 1
        value, cut, weights = find_range(
            rows, m, k, ctx.scale, keep_weights=alone, keep_cut=want_cut or not alone, own=False
        )
        cuts.append(cut)
        if weights is None:
            ctx.save_for_backward(rows, cut)
        else:
            ctx.save_for_backward(weights)
        return value

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        saved = ctx.saved_tensors
        if len(saved) == 1:  # multiplying the stored weights is faster than a launch
            product = gradient * saved[0]
            return product if gradient.dtype == torch.float32 else product.to(gradient.dtype), None
        run: Any = torch.ops.rankrange.weigh if torch.is_grad_enabled() else weigh
        return run(*saved, gradient, ctx.scale), None


class _Again(_RankedRange):
    """`_RankedRange` for a repeated launch, with minimal Python overhead."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, asked: Any) -> Tensor:
        (run, function, metadata, programs, device, _, words, numbers), cuts = asked
        value = cut = rows.new_empty(())
        weights = rows.new_empty(numbers[0], dtype=torch.float32)
        ctx.save_for_backward(weights)
        if cuts is not None:
            cut = rows.new_empty(4, dtype=torch.float32)
            cuts.append(cut)
        stream = current_stream(device)
        if words:
            kept = kept_workspace(words, device, stream)
            run(
                programs, 1, 1, stream, function, metadata, None, None, None,
                rows, kept, value, cut, weights, *numbers,
            )  # fmt: skip
        else:
            run(1, 1, 1, stream, function, metadata, None, None, None, rows, value, cut, weights, *numbers)
        return value


# Function.apply would also check for transforms of torch.func, which `again` has done.
_apply = super(torch.autograd.Function, _Again).apply


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


# The weights are constant between kinks, so second derivatives come only from the upstream gradient.
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
