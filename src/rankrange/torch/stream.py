"""Cuts that are tracked across batches: ranks refer to the data set and not to the current batch.

The sum of the ranked range is a saddle value (the paper's Algorithm 3 follows its gradients):
    psi_{m,k} = min over lam, max over lam_hat of  k lam - m lam_hat + sum [s_i - lam]_+ - sum [s_i - lam_hat]_+.
The paper's lam_hat is the difference lam_hat - lam of our cuts; with our lam_hat the two updates separate:
    lam     += step * (share of losses above lam     - k)
    lam_hat += step * (share of losses above lam_hat - m)          m and k as fractions of the data set
A batch of any size estimates the shares. Shares have no unit, so steps are multiplied by the inter-quartile range of
the losses, which is robust to outliers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.ranges import RankedRange
from .cuts import counts_in_batch, cut_weights, open_cut, sum_dtype, weighted_sum
from .distributed import joint_value, sum_over

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class GrowingModule(nn.Module):
    """A module whose buffers take the dtype of saved ones, and if they are empty the shape."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, buffer in list(self.named_buffers(recurse=False)):
            saved = state_dict.get(prefix + name)
            if saved is not None:
                shape = buffer.shape if buffer.numel() else saved.shape
                setattr(self, name, buffer.new_zeros(shape, dtype=saved.dtype))
        super()._load_from_state_dict(state_dict, prefix, *args)


class StreamingCuts(GrowingModule):
    """The two cuts of a stream of batches, which start at those of the first one."""

    def __init__(self, step: float) -> None:
        super().__init__()
        if not 0.0 < step <= 1.0:
            raise ValueError(f"step must be in (0, 1], got {step!r}; the default is 0.1")
        self.step = step
        self.tracked: Tensor  # lam, lam_hat, spread
        self.register_buffer("tracked", torch.full((3,), torch.nan))

    def forward(
        self, losses: Tensor, keep: RankedRange, group: ProcessGroup | None, warm: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The value and the cut of a batch, after the tracked cuts are updated (in training mode only).

        The value is the sum of the kept losses divided by (k - m) n, with the n losses of the batch or of the group. If
        `warm` is true, it is the mean of all losses. A batch that is empty or has a NaN does not change the cuts.
        """
        dtype = sum_dtype(losses)
        if self.tracked.device != losses.device or self.tracked.dtype != dtype:
            self.to(losses.device, dtype)
        m, k = keep.masses(1.0, whole=False)
        n, n_nan, of_batch, above = self._measure(losses.detach(), keep, group)
        fresh = ~self.tracked.isfinite().all()
        tracked = torch.where(fresh, of_batch, self._moved(of_batch, above, m, k) if self.training else self.tracked)
        if self.training:
            self.tracked.copy_(torch.where((n > 0) & (n_nan == 0), tracked, self.tracked))
        lam = tracked[0] if k < 1 else torch.full_like(n, -torch.inf)
        lam_hat = torch.maximum(lam, tracked[1]) if m > 0 else torch.full_like(n, torch.inf)
        cut, share = torch.stack([lam, lam_hat, torch.zeros_like(n), torch.ones_like(n)]), torch.full_like(n, k - m)
        if warm is not None:
            cut, share = torch.where(warm, open_cut(cut), cut), torch.where(warm, 1.0, share)
        cut = cut.masked_fill(n_nan > 0, torch.nan)
        value = weighted_sum(losses, cut_weights(losses.detach(), cut), 1.0 / (share * n.clamp(min=1)))
        return joint_value(value, group), cut

    def _moved(self, of_batch: Tensor, above: Tensor, m: float, k: float) -> Tensor:
        # In a small batch outliers affect the quartiles, so a single batch may change the range only slightly.
        spread = self.tracked[2:]
        spread = torch.lerp(spread, of_batch[2:].clamp(spread / 4, spread * 4), 0.1)
        errors = torch.stack([above[0] - k, above[1] - m])
        return torch.cat([self.tracked[:2] + self.step * spread * errors, spread])

    def _measure(
        self, batch: Tensor, keep: RankedRange, group: ProcessGroup | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Size, number of NaN, both cuts with the inter-quartile range, and shares of losses above the tracked cuts."""
        n = batch.shape[0]
        batch = batch.to(self.tracked.dtype)  # of half precision
        of_batch, above = torch.zeros_like(self.tracked), torch.zeros_like(self.tracked[:2])
        if n > 0:
            m, k = counts_in_batch(keep, n)
            ordered = batch.sort(descending=True).values
            of_batch = torch.stack(
                [ordered[k - 1], ordered[m - 1 if m else k - 1], ordered[n // 4] - ordered[3 * n // 4]]
            )
            above = (batch > self.tracked[:2, None]).sum(1).to(of_batch.dtype)
        sizes = torch.stack([of_batch.new_full((), n), batch.isnan().sum().to(of_batch.dtype)])
        # The weighted average of the processes' cuts is a good start for the cut of the joined batch.
        sums = sum_over(torch.cat([sizes, of_batch * n, above]), group)
        size = sums[0].clamp(min=1.0)
        return sums[0], sums[1], sums[2:5] / size, sums[5:] / size
