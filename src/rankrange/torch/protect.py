"""Protection of classes for a given m: detects a class that is being dropped, and ranks within classes instead.

With class-conditional noise, or at the start of training, the m largest losses of a batch can be most of one class.
Once it is dropped, the network forgets it, and its losses stay the largest. `ClassGuard` tracks the share of each class
that the ranking would keep. If a class keeps less than KEPT_TO_PROTECT of its proportional share, losses are ranked
within the classes of the batch, and each class loses the same share, until every class would keep KEPT_TO_RELEASE.
Switching back earlier would drop the class again, and frequent switching can make training diverge.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from .cuts import sum_dtype
from .memory import Resizable, arrived, copy_to_host

KEPT_TO_PROTECT, KEPT_TO_RELEASE = 0.7, 0.9
_HALF_LIFE = 200.0  # samples of a class
_FEW = 30.0
_CHECK_EVERY = 64


class ClassGuard(Resizable):
    """Tracks the share of each class that a ranking keeps, and whether a class is being dropped."""

    sums: Tensor  # (classes, 2): discounted number of samples, and sum of their weights
    on: Tensor  # whether classes are being protected

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(0, 2))
        self.register_buffer("on", torch.zeros((), dtype=torch.bool))
        self._checks, self._warned = 0, False
        self._copy: tuple[Tensor, object] | None = None

    def prepare(self, n_classes: int, device: torch.device) -> None:
        """Move the state to the device of a batch; only another number of classes starts it anew."""
        if self.sums.shape[0] != n_classes:
            self.sums, self.on = self.sums.new_zeros(n_classes, 2), torch.zeros_like(self.on)
        if self.sums.device != device:
            self.sums, self.on = self.sums.to(device), self.on.to(device)

    def forward(self, weights: Tensor, target: Tensor, share: float) -> Tensor:
        """Whether classes are protected from this batch on; only training mode updates this.

        `weights` are those of the ranking of the whole batch, and `share` is the share of all samples that it keeps.
        """
        if self.training:
            member = target[:, None] == torch.arange(len(self.sums), device=target.device)
            kept = torch.where(member, weights[:, None], 0.0).sum(0)
            batch = torch.stack([member.sum(0).to(kept.dtype), kept], 1).to(self.sums.dtype)
            self.sums.mul_(torch.exp2(-batch[:, :1] / _HALF_LIFE)).add_(batch)
            self.on.copy_(self.cut_away(share, torch.where(self.on, KEPT_TO_RELEASE, KEPT_TO_PROTECT)).any())
        return self.on

    def cut_away(self, share: float, least: Tensor | float = KEPT_TO_PROTECT) -> Tensor:
        """Tensor (classes,): which classes keep less than `least` times `share` of their samples.

        Classes with few samples so far are not among them.
        """
        seen, kept = self.sums.unbind(1)
        return (seen >= _FEW) & (kept < least * share * seen)

    def warn(self, share: float) -> None:
        """Warn once that classes are being dropped.

        This is checked at intervals, and the warning comes some batches later, because the copy is asynchronous.
        """
        if self._warned:
            return
        self._checks += 1
        if self._copy is not None and arrived(self._copy[1]):
            named = self._copy[0].nonzero()[:, 0].tolist()
            self._copy = None
            if named:
                self._warned = True
                warnings.warn(
                    f"ranking the losses of a batch would drop too many samples of the classes {named}; for now ranks "
                    "are taken within classes. m may be too large for class-conditional noise: lower it, add a "
                    "warm-up, or use m='auto'",
                    UserWarning,
                    stacklevel=4,
                )
        elif self._copy is None and self._checks % _CHECK_EVERY == 0 and not self._captured():
            self._copy = copy_to_host(self.cut_away(share))

    def _captured(self) -> bool:
        return self.on.is_cuda and torch.cuda.is_current_stream_capturing()


def weights_inside_classes(losses: Tensor, target: Tensor, m: float, k: float) -> Tensor:
    """Weights of the ranked range within each class of the batch; m and k are fractions of the class.

    If m or k times the size of a class is not a whole number, the sample at that cut has a fractional weight. Equal
    losses are ranked by position.
    """
    n = len(losses)
    order = losses.argsort(descending=True, stable=True)
    order = order[target[order].argsort(stable=True)]  # class by class, the largest loss first
    ordered = target[order]
    position = torch.arange(n, device=losses.device, dtype=sum_dtype(losses))
    first = torch.searchsorted(ordered, ordered).to(position.dtype)
    size = torch.searchsorted(ordered, ordered, right=True).to(position.dtype) - first
    rank = position - first
    inside = torch.minimum(rank + 1.0, k * size) - torch.maximum(rank, m * size)
    return torch.empty_like(position).scatter_(0, order, inside.clamp(min=0.0))
