"""Exact ranking over the losses of all processes of a group, without exchanging the losses.

Both cuts are found digit by digit, from the highest digit of the bit patterns of the losses. In each round every
process counts its losses from each value of the next digit on, the counts are summed over the group, and every process
reads the same digit from the sums: four rounds of 4 KB for float32 (eight for float64), for any batch size, after one
for its size. If a process dies, the next round of the others fails with an error of torch.distributed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..core.ranges import RankedRange
from .cuts import cut_weights, make_cut, open_cut, ranks_on_device, sum_dtype, weighted_sum

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_DIGIT = 8
_BASE = 1 << _DIGIT
_INTEGER = {torch.float32: torch.int32, torch.float64: torch.int64}


def joint_ranked_range(
    losses: Tensor,
    keep: RankedRange,
    reduction: str,
    group: ProcessGroup,
    *,
    in_batches: bool = False,
    keep_all: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The mean or sum and the cut of the joined batch, as `ranked_range` defines them; 0 without losses.

    If m or k does not fit the joined batch, it is an error on a CPU and NaN on a GPU. With `in_batches` fractions keep
    at least one loss (`counts_in_batch`). If `keep_all` is true, all losses are kept.
    """
    wide = losses.detach().to(sum_dtype(losses))
    n, n_nan = sum_over(torch.stack([wide.new_full((), len(wide)).long(), wide.isnan().sum()]), group)
    m, k = ranks_on_device(keep, n, in_batches)
    cut = _joint_cut(wide, m, k, group).to(wide.dtype)
    if keep_all is not None:
        m, k, cut = torch.where(keep_all, 0, m), torch.where(keep_all, n, k), torch.where(keep_all, open_cut(cut), cut)
    valid = (m >= 0) & (m < k) & (k <= n) & (n_nan == 0) | (n == 0)
    cut = torch.where(valid, cut, torch.nan)
    scale = 1.0 / (k - m).clamp(min=1).to(cut.dtype) if reduction == "mean" else 1.0
    return joint_value(weighted_sum(losses, cut_weights(wide, cut), scale), group), cut


def joint_value(value: Tensor, group: ProcessGroup | None) -> Tensor:
    """The sum of `value` over the group, in every process, with the gradient that DistributedDataParallel averages."""
    if group is None:
        return value
    return _Joint.apply(value, sum_over(value.detach().clone(), group), dist.get_world_size(group))


def sum_over(values: Tensor, group: ProcessGroup | None) -> Tensor:
    """The sum over the processes of the group, in place."""
    if group is not None:
        dist.all_reduce(values, group=group)
    return values


def share_of_items(counted: Tensor, n_items: Tensor | int, group: ProcessGroup | None) -> Tensor:
    """The share of an accumulation's items that this batch has; with a group that of all its batches per process.

    The value of a group is that of all processes, and a trainer multiplies it by their number.
    """
    n_counted = sum_over(counted.sum().float(), group)
    return n_counted / n_items / (1 if group is None else dist.get_world_size(group))


def gather_rows(rows: Tensor, group: ProcessGroup | None) -> tuple[Tensor, slice]:
    """The rows of all processes, each padded with zeros to the largest number, and where those of this process are.

    For the largest number the processes and the device synchronise.
    """
    if group is None:
        return rows, slice(None)
    size = torch.tensor([len(rows)], device=rows.device)
    dist.all_reduce(size, dist.ReduceOp.MAX, group=group)
    capacity = max(int(size), 1)
    padded = torch.cat([rows, rows.new_zeros(capacity - len(rows), rows.shape[1])])
    parts = [torch.empty_like(padded) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, padded, group=group)
    start = dist.get_rank(group) * capacity
    return torch.cat(parts), slice(start, start + len(rows))


class _Joint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, joint: Tensor, n_processes: int) -> Tensor:
        ctx.n_processes = n_processes
        return joint

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient * ctx.n_processes, None, None


def _joint_cut(values: Tensor, m: Tensor, k: Tensor, group: ProcessGroup) -> Tensor:
    """The cut of the ranks m+1 to k. A round counts the losses from 256 values on and finds one digit of both cuts."""
    keys = _ordered(torch.where(values == 0, 0.0, values).view(_INTEGER[values.dtype])).sort().values
    ranks, steps = torch.stack([k, m])[:, None], torch.arange(_BASE, dtype=keys.dtype, device=keys.device)
    found = torch.full_like(ranks, torch.iinfo(keys.dtype).min, dtype=keys.dtype)
    above = torch.zeros_like(ranks)
    for shift in range(8 * keys.element_size() - _DIGIT, -1, -_DIGIT):
        from_step = sum_over(len(keys) - torch.searchsorted(keys, found + (steps << shift)), group)
        digit = ((from_step >= ranks).sum(1, keepdim=True) - 1).clamp(min=0)
        above = torch.where(digit < _BASE - 1, from_step.gather(1, (digit + 1).clamp(max=_BASE - 1)), above)
        tied = from_step.gather(1, digit) - above
        found = found + (digit.to(keys.dtype) << shift)
    lam, lam_hat = _ordered(found[:, 0]).view(values.dtype).unbind()
    (above_k, above_m), (tied_k, tied_m) = above[:, 0].double(), tied[:, 0].double()
    return make_cut(lam, torch.where(m > 0, lam_hat, torch.inf), above_k, tied_k, above_m, tied_m, m, k)


def _ordered(bits: Tensor) -> Tensor:
    """The bits of floats as integers in the order of the floats, and the other way round."""
    limits = torch.iinfo(bits.dtype)
    return bits ^ ((bits >> (limits.bits - 1)) & limits.max)
