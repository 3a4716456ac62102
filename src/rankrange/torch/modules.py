"""Losses as modules: the aggregate over a batch (or a stream of batches), and the top-k multi-label loss.

AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m=0.1, k=0.9)          # samples
TKMLLoss(top_k=5)                                                      # labels
AoRRLoss(TKMLLoss(top_k=5, reduction="none"), m=0.1, k=0.9)            # one inside the other: TKML-AoRR
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.ranges import Rank, RankedRange
from .functional import LAM, LAM_HAT, counts_in_batch, cut_weights, open_cut, select, tkml
from .stream import StreamingCuts

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class AoRRLoss(nn.Module):
    """Average of the losses ranked m+1..k: the m largest, likely outliers, and the n-k smallest are left out.

    base:    any criterion or function that returns one loss a sample (reduction="none"); None where the losses
             themselves are passed in. All its losses are ranked together, whatever their shape.
    m, k:    counts (int) or fractions (float), as everywhere; they may be reassigned during training.
    ranking: "batch" ranks within the batch. "stream" tracks the two cuts across batches, so that ranks are ranks in
             the data set and a batch full of outliers loses all of them (fractions only; see `StreamingCuts`).
    group:   a torch.distributed process group whose batches are ranked together (see `ranked_range`).
    warmup:  so many training batches at first average all their losses.
    step:    of the tracked cuts; the default follows the losses within some twenty batches.

    An empty batch gives 0, and a batch too small for its fractions keeps one loss. After a call `lam`, `lam_hat` and
    `last_weights` tell the cuts and weights of that batch. Tracked cuts and the count of warm-up batches change in
    training mode only and are part of the state_dict.
    """

    def __init__(
        self,
        base: Callable[..., Tensor] | None = None,
        m: Rank = 0.0,
        k: Rank = 1.0,
        *,
        ranking: str = "batch",
        group: ProcessGroup | None = None,
        warmup: int = 0,
        step: float = 0.1,
    ) -> None:
        super().__init__()
        if ranking not in ("batch", "stream"):
            raise ValueError(f"ranking must be 'batch' or 'stream', got {ranking!r}; choose one of the two")
        reduction = getattr(base, "reduction", "none")
        if reduction != "none":
            raise ValueError(f"base must return one loss a sample, got reduction={reduction!r}; use reduction='none'")
        if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
            raise ValueError(f"warmup must be a count of batches, got {warmup!r}; 0 switches it off")
        self.base, self.ranking, self.group, self.warmup = base, ranking, group, warmup
        self.cuts = StreamingCuts(step) if ranking == "stream" else None
        self._keep = self._checked(m, k)
        self._last: dict[str, Tensor] = {}  # filled, not assigned: assigning to a module costs more than the rest
        self.batches: Tensor
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64), persistent=warmup > 0)

    def _checked(self, m: Rank, k: Rank) -> RankedRange:
        keep = RankedRange(m, k)
        if self.cuts is not None and not (isinstance(keep.k, float) and (isinstance(keep.m, float) or keep.m == 0)):
            raise ValueError(
                f"ranking='stream' ranks over the data set, whose size it does not know: m and k must be fractions, "
                f"got m={m!r}, k={k!r}; divide them by the number of samples"
            )
        return keep

    @property
    def m(self) -> Rank:
        return self._keep.m

    @m.setter
    def m(self, m: Rank) -> None:
        self._keep = self._checked(m, self._keep.k)

    @property
    def k(self) -> Rank:
        return self._keep.k

    @k.setter
    def k(self, k: Rank) -> None:
        self._keep = self._checked(self._keep.m, k)

    @property
    def lam(self) -> Tensor:
        """The lower cut of the last batch."""
        return self._last_call("cut")[LAM]

    @property
    def lam_hat(self) -> Tensor:
        """The upper cut of the last batch: the losses above it were dropped."""
        return self._last_call("cut")[LAM_HAT]

    @property
    def last_weights(self) -> Tensor:
        """The weight of each loss of the last batch, in [0, 1] and of the losses' shape; 0 where it was dropped."""
        losses, cut = self._last_call("losses"), self._last_call("cut")
        return cut_weights(losses.reshape(-1), cut).reshape(losses.shape).to(losses.dtype)

    def _last_call(self, what: str) -> Tensor:
        if not self._last:
            raise RuntimeError("lam, lam_hat and last_weights describe the last batch; call the loss first")
        return self._last[what]

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        losses = args[0] if self.base is None else self.base(*args, **kwargs)
        if losses.dim() == 0:
            raise ValueError("base must return one loss a sample, got a single number; use reduction='none'")
        value, cut = self._aggregate(losses if losses.dim() == 1 else losses.reshape(-1))
        self._last["losses"], self._last["cut"] = losses.detach(), cut
        if self.warmup and self.training:
            self.batches += 1
        return value

    def _aggregate(self, losses: Tensor) -> tuple[Tensor, Tensor]:
        warm = self.batches < self.warmup if self.warmup else None
        if self.cuts is not None:
            return self.cuts(losses, self._keep, self.group, warm)
        if self.group is not None:
            from .distributed import joint_ranked_range

            return joint_ranked_range(losses, self._keep, "mean", self.group, in_batches=True, keep_all=warm)
        n = losses.shape[0]
        if n == 0:
            return losses.sum(), open_cut(losses)
        value, cut = select(losses, *counts_in_batch(self._keep, n), "mean")
        if warm is not None:
            value, cut = torch.where(warm, losses.mean(), value), torch.where(warm, open_cut(losses), cut)
        return value, cut

    def extra_repr(self) -> str:
        return f"m={self.m!r}, k={self.k!r}, ranking={self.ranking!r}, warmup={self.warmup}"


class TKMLLoss(nn.Module):
    """Top-k multi-label loss: the true labels of a row should be among its top_k highest scores. See `tkml`."""

    def __init__(self, top_k: int, *, two_sided: bool = True, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}; choose one of the three")
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
            raise ValueError(f"top_k must be an int of at least 1, got {top_k!r}")
        self.top_k, self.two_sided, self.reduction = top_k, two_sided, reduction

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        return tkml(scores, target, self.top_k, two_sided=self.two_sided, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"top_k={self.top_k}, two_sided={self.two_sided}, reduction={self.reduction!r}"


class AccuracySchedule:
    """Sets a loss's k by the training accuracy, as ordered SGD does: once most samples are right, learn from the rest.

    `levels` maps an accuracy to the k used from there on, for example {0.8: 0.5, 0.9: 0.25}; below the lowest level k
    is what it was at the start. Call `step(accuracy)` once an epoch.
    """

    def __init__(self, loss: AoRRLoss, levels: Mapping[float, Rank]) -> None:
        for k in levels.values():
            loss._checked(loss.m, k)  # a level that cannot be set is an error now, not ten epochs later
        self.loss, self.levels, self.start = loss, dict(sorted(levels.items())), loss.k

    def step(self, accuracy: float) -> Rank:
        """Set and return the k of the highest level that `accuracy` reaches."""
        reached = [k for level, k in self.levels.items() if accuracy >= level]
        self.loss.k = reached[-1] if reached else self.start
        return self.loss.k

    def state_dict(self) -> dict[str, Rank]:
        return {"start": self.start, "k": self.loss.k}

    def load_state_dict(self, state: Mapping[str, Rank]) -> None:
        self.start, self.loss.k = state["start"], state["k"]
