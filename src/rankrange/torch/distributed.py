"""Exact ranking over the losses of all processes of a group, without exchanging the losses.

Both cuts are found digit by digit, from the highest digit of the bit patterns of the losses. In each round every
process counts its losses for each value of the next digit, the counts are summed over the group, and every process
reads the same digit from the sums: four rounds of 4 KB for float32 (eight for float64), for any batch size. If a
process dies, the next round of the others fails with an error of torch.distributed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..core.ranges import RankedRange
from .cuts import cut_weights, open_cut, ranks_on_device, sum_dtype, weighted_sum

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_DIGIT = 8
_BASE = 1 << _DIGIT


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
    keys = _ordered_bits(wide)
    alive = torch.ones(2, len(keys), dtype=torch.int64, device=keys.device)
    counts, n_nan = _count_digits(keys, keys.element_size() * 8 - _DIGIT, alive, wide.isnan().sum(), group)
    n = counts[0].sum()
    m, k = ranks_on_device(keep, n, in_batches)
    cut = _joint_cut(keys, alive, counts, m, k, group).to(wide.dtype)
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


def gather_rows(rows: Tensor, group: ProcessGroup, capacity: int = 0) -> tuple[Tensor, slice]:
    """The rows of all processes, each padded with zeros to `capacity` rows, and where those of this process are.

    Without a capacity it is the largest number of rows, for which the processes and the device synchronise.
    """
    capacity = capacity or max(largest_over(len(rows), rows.device, group), 1)
    if len(rows) > capacity:
        raise ValueError(
            f"over a group no batch may be larger than the largest first batch, got {len(rows)} samples after "
            f"{capacity}; start with a full batch in some process"
        )
    padded = torch.cat([rows, rows.new_zeros(capacity - len(rows), rows.shape[1])])
    parts = [torch.empty_like(padded) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, padded, group=group)
    start = dist.get_rank(group) * capacity
    return torch.cat(parts), slice(start, start + len(rows))


def largest_over(size: int, device: torch.device, group: ProcessGroup) -> int:
    """The largest size over the processes; this waits for the other processes and for the device."""
    sizes = torch.tensor([size], device=device)
    dist.all_reduce(sizes, dist.ReduceOp.MAX, group=group)
    return int(sizes)


class _Joint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, joint: Tensor, n_processes: int) -> Tensor:
        ctx.n_processes = n_processes
        return joint

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient * ctx.n_processes, None, None


def _joint_cut(keys: Tensor, alive: Tensor, counts: Tensor, m: Tensor, k: Tensor, group: ProcessGroup) -> Tensor:
    """The cut of the ranks m+1 to k, given the counts of the highest digit. Each round finds one digit of both cuts."""
    left = torch.stack([k, m])  # ranks of the cuts among the losses that share the digits found so far
    found = torch.zeros_like(left, dtype=keys.dtype)
    for shift in range(keys.element_size() * 8 - _DIGIT, -1, -_DIGIT):
        if shift < keys.element_size() * 8 - _DIGIT:
            counts, _ = _count_digits(keys, shift, alive, left.new_zeros(()), group)
        downward = counts.flip(1)
        at_least = downward.cumsum(1)
        from_top = (at_least < left[:, None]).sum(1, keepdim=True).clamp(max=_BASE - 1)
        tied = downward.gather(1, from_top)[:, 0]
        left = left - (at_least.gather(1, from_top)[:, 0] - tied)
        digit = _BASE - 1 - from_top
        alive = alive * (_digits(keys, shift) == digit)
        found |= digit[:, 0].to(keys.dtype) << shift
    lam, lam_hat = _from_ordered_bits(found).unbind()
    lam_hat = torch.where(m > 0, lam_hat, torch.inf)
    same = lam == lam_hat
    tied = tied.double()
    at_lam = torch.where(same, k - m, left[0]) / tied[0]
    at_hat = torch.where(same, 0.0, torch.where(m > 0, (tied[1] - left[1]) / tied[1], 1.0))
    return torch.stack([lam.double(), lam_hat.double(), at_lam, at_hat])


def _count_digits(keys: Tensor, shift: int, alive: Tensor, extra: Tensor, group: ProcessGroup) -> tuple[Tensor, Tensor]:
    """For both cuts, how many losses with the higher digits found so far (`alive`) have each digit at `shift`."""
    counts = alive.new_zeros(2 * _BASE + 1)
    counts[: 2 * _BASE].view(2, _BASE).scatter_add_(1, _digits(keys, shift).expand(2, -1), alive)
    counts[-1] = extra
    sum_over(counts, group)
    return counts[:-1].view(2, _BASE), counts[-1]


def _digits(keys: Tensor, shift: int) -> Tensor:
    return ((keys >> shift) & (_BASE - 1)).long()


def _ordered_bits(values: Tensor) -> Tensor:
    """Integers that have, read as unsigned, the order of the values; 0.0 and -0.0 are equal."""
    integer = torch.int64 if values.dtype == torch.float64 else torch.int32
    bits = torch.where(values == 0, 0.0, values).view(integer)
    limits = torch.iinfo(integer)
    return bits ^ ((bits >> (limits.bits - 1)) & limits.max) ^ limits.min


def _from_ordered_bits(keys: Tensor) -> Tensor:
    limits = torch.iinfo(keys.dtype)
    bits = keys ^ limits.min
    bits = bits ^ ((bits >> (limits.bits - 1)) & limits.max)
    return bits.view(torch.float64 if keys.dtype == torch.int64 else torch.float32)
