"""Ranks, cuts and weights of a ranked range in eager PyTorch.

A cut is a tensor (..., 4), one for each row of losses; all four numbers are NaN if a loss of the row is NaN:
  LAM, LAM_HAT        the k-th largest loss (the lower cut) and the m-th largest loss (the upper cut, infinite if m = 0)
  AT_LAM, AT_LAM_HAT  the weight of a loss equal to that cut; if both cuts are equal, AT_LAM has it and AT_LAM_HAT is 0
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.ranges import RankedRange

LAM, LAM_HAT, AT_LAM, AT_LAM_HAT = range(4)


def cut_at_ranks(rows: Tensor, m: int, k: int) -> Tensor:
    """The cut of each row for the ranks m+1 to k: two order statistics, and the weights of the losses equal to them."""
    lam = _of_rank(rows, k)
    lam_hat = _of_rank(rows, m) if m else torch.full_like(lam, torch.inf)
    cut = make_cut(lam, lam_hat, *_above_and_tied(rows, lam), *_above_and_tied(rows, lam_hat), m, k)
    return cut.masked_fill(rows.isnan().any(-1, keepdim=True), torch.nan)


def make_cut(
    lam: Tensor, lam_hat: Tensor, above_k: Tensor, tied_k: Tensor, above_m: Tensor, tied_m: Tensor, m: Any, k: Any
) -> Tensor:
    """The cut from its two values and the numbers of losses above and equal to them; lam_hat is infinite for m = 0."""
    same = lam == lam_hat
    at_lam = torch.where(same, k - m, k - above_k) / tied_k  # masked_fill would wait for m and k of a device
    at_hat = (1.0 - (m - above_m) / tied_m.clamp(min=1.0)).masked_fill(same, 0.0)
    return torch.stack([lam.to(at_lam.dtype), lam_hat.to(at_lam.dtype), at_lam, at_hat], -1)


def open_cut(losses: Tensor) -> Tensor:
    """The cut (4,) that keeps all losses, in their `sum_dtype` and on their device; the tensor may be empty."""
    cut = losses.new_ones(4, dtype=sum_dtype(losses))
    cut[LAM].fill_(-torch.inf)  # on the device: an assignment would copy from the host and synchronise
    cut[LAM_HAT].fill_(torch.inf)
    return cut


def counts_in_batch(keep: RankedRange, n: int) -> tuple[int, int]:
    """m and k as counts for a batch of n >= 1; if they round to an empty range, one rank between them is kept."""
    if type(keep) is not RankedRange:
        return keep.counts(n)
    m, k = keep.masses(n, whole=False)
    if round(m) < round(k):
        return round(m), round(k)
    middle = int((m + k) / 2)
    return middle, middle + 1


def ranks_on_device(keep: RankedRange, n: Tensor, in_batches: bool = True) -> tuple[Tensor, Tensor]:
    """m and k as tensors, for a number of losses n that may be known only on the device; 0 if n = 0.

    With `in_batches` they are those of `counts_in_batch`, otherwise those of `RankedRange.counts`. On a device they are
    not validated. For a subclass of `RankedRange`, n is always copied to the host.
    """
    if type(keep) is not RankedRange or (n.is_cpu and not torch.compiler.is_compiling()):
        size = int(n)
        counts = (0, 0) if size == 0 else counts_in_batch(keep, size) if in_batches else keep.counts(size)
        return torch.full_like(n, counts[0]), torch.full_like(n, counts[1])
    whole = n.double()
    m, k = (rank * whole if isinstance(rank, float) else torch.full_like(whole, rank) for rank in (keep.m, keep.k))
    low, high = m.round(), k.round()  # half to even, as Python rounds
    if in_batches:
        middle = ((m + k) / 2).floor()
        low, high = torch.where(low < high, low, middle), torch.where(low < high, high, middle + 1)
    low, high = (torch.where(whole > 0, rank, 0.0) for rank in (low, high))
    return low.long(), high.long()


def cut_weights(rows: Tensor, cut: Tensor) -> Tensor:
    """The weight of each loss, in [0, 1], for the cut of its row. If the cut is NaN, all weights of the row are NaN."""
    lam, lam_hat, at_lam, at_hat = cut.unsqueeze(-2).unbind(-1)
    return ((rows > lam) & (rows < lam_hat)) + at_lam * (rows == lam) + at_hat * (rows == lam_hat)


def weighted_sum(rows: Tensor, weights: Tensor, scale: float | Tensor) -> Tensor:
    """The sum of scale * weight * loss in each row; a loss with weight 0 contributes 0 even if it is infinite."""
    kept = rows.masked_fill(weights == 0, 0.0).to(weights.dtype)
    return (kept * (weights * scale)).sum(-1).to(rows.dtype)


class Ranks(NamedTuple):
    """Ranks of values within segments, as masses: what is ranked above a value, above or equal, and in its segment."""

    above: Tensor
    through: Tensor
    total: Tensor

    def shares(self, low: Tensor | float, high: Tensor | float) -> Tensor:
        """The share of each value, in [0, 1], that lies between two masses of its segment; ties share equally."""
        through, above = (mass.clamp(min=low).clamp(max=high) for mass in (self.through, self.above))
        taken = through - above
        return taken / (self.through - self.above).clamp(min=torch.finfo(taken.dtype).tiny)


def ranks_of(values: Tensor, segment: Tensor, mass: Tensor | None = None) -> Ranks:
    """Ranks of the values (n,), the largest first, within segments (integers), by mass (1 each by default)."""
    n, rising = len(values), -values.to(sum_dtype(values))
    place = torch.searchsorted(rising.sort().values, rising)  # the same for equal values
    own = segment * n + place
    ordered, order = own.sort()
    sums = torch.arange(n + 1, device=values.device, dtype=torch.float64)
    if mass is not None:
        sums = torch.cat([sums[:1], mass.double()[order].cumsum(0)])
    begin = sums[torch.searchsorted(ordered, segment * n)]
    end = sums[torch.searchsorted(ordered, segment * n + n)]
    above, through = (sums[torch.searchsorted(ordered, own, right=right)] - begin for right in (False, True))
    return Ranks(above, through, end - begin)


def _of_rank(rows: Tensor, rank: int) -> Tensor:
    """The value of this rank in each row; rank 1 is the largest. On a GPU kthvalue is far slower than a sort."""
    if rows.is_cpu:
        return rows.kthvalue(rows.shape[-1] - rank + 1, -1).values
    return rows.sort(-1, descending=True).values[..., rank - 1]


def _above_and_tied(rows: Tensor, cut: Tensor) -> tuple[Tensor, Tensor]:
    cut, dtype = cut.unsqueeze(-1), sum_dtype(rows)
    return (rows > cut).sum(-1, dtype=dtype), (rows == cut).sum(-1, dtype=dtype)


def sum_dtype(values: Tensor) -> torch.dtype:
    """The dtype of sums and cuts: float64 for float64, otherwise float32."""
    return torch.float64 if values.dtype == torch.float64 else torch.float32
