"""m by itself: what the network remembers of each sample decides how much of it is cut (`AoRRLoss(base, m="auto")`).

A step costs a softmax of the batch and a few small operations: the sample's row of the memory moves towards what the
network says now, the judge turns the row into a weight, and the loss is the weighted mean. Without indices there is no
memory and the judge sees what the network says now. Over a process group the rows of all batches travel once per step,
so that every process holds the same memory, that of one process on the joined batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from .functional import weighted_sum
from .judge import ClassJudge, LossJudge
from .memory import Memory

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

FACTOR = 0.7
# Visits of a sample before it may be cut: what an untrained network says of it counts for nothing.
VISITS = 1
# Up to so many classes the whole softmax is remembered, which `suspects` needs; beyond, two numbers per sample.
SOFTMAX_UP_TO = 128


class Batch(NamedTuple):
    """What is judged: values (B, width), class labels or None, sample indices or None, and which rows are real.

    With `n_classes` of 0 the values are losses. They are the softmax where it has n_classes columns, and p(label) and
    p(first choice) where there are too many classes for that.
    """

    values: Tensor
    target: Tensor | None
    n_classes: int
    sample: Tensor | None
    known: Tensor


class AutoCut(nn.Module):
    """Weights of the samples of a batch, and the memory they come from."""

    def __init__(self, n_samples: int | None = None) -> None:
        super().__init__()
        self.memory = Memory(n_samples, FACTOR)
        self.judge: ClassJudge | LossJudge = ClassJudge()
        self._room = 0

    def forward(
        self,
        losses: Tensor,
        args: tuple[Any, ...],
        index: Tensor | None,
        group: ProcessGroup | None,
        warm: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """(value, weights) of a batch: the weighted mean of its losses (over the group), and the weight of each."""
        values, target, n_classes = values_of(losses.detach(), args)
        own = Batch(values, target, n_classes, index, values.isfinite().all(1))
        self._prepare(own)
        batch, start = own, 0
        if group is not None:
            batch, start = self._gathered(own, group)
        weights = self._weigh(batch)
        if warm is not None:
            weights = torch.where(warm, 1.0, weights)
        total = torch.where(batch.known, weights, 0.0).sum().clamp(min=1.0)
        weights = weights[start : start + len(losses)]
        value = weighted_sum(losses, weights, 1.0 / total)
        if group is not None:
            from .distributed import joint_value

            value = joint_value(value, group)
        return value, weights.to(losses.dtype)

    def _prepare(self, batch: Batch) -> None:
        """Buffers of the right shape and place; nothing to do after the first batches."""
        if batch.target is None and isinstance(self.judge, ClassJudge):
            self.judge = LossJudge().train(self.training)
        if isinstance(self.judge, LossJudge) != (batch.target is None):
            raise ValueError("one AoRRLoss(m='auto') judges either classes or losses, got both; use one per task")
        self.judge.prepare(batch.n_classes, batch.values.device)
        if batch.sample is not None:
            self.memory.prepare(batch.sample, batch.values.shape[1], batch.values.device)

    def _weigh(self, batch: Batch) -> Tensor:
        if batch.sample is None:
            return self._judged(batch.values, batch)
        place = self.memory.place(batch.sample, batch.values.device)
        old, visits = self.memory.recall(place)
        rows = torch.where((visits > 0)[:, None], torch.lerp(batch.values, old, self.memory.factor), batch.values)
        weights = torch.where(visits >= VISITS, self._judged(rows, batch), 1.0)
        if self.training:
            place = torch.where(batch.known, place, self.memory.size)
            self.memory.remember(place, rows, visits, batch.target, weights < 0.5)
        return weights

    def _judged(self, rows: Tensor, batch: Batch) -> Tensor:
        if batch.target is None:
            return self.judge(rows[:, 0], batch.known)
        if batch.n_classes > SOFTMAX_UP_TO:
            return self.judge(rows[:, 0], rows[:, 1], batch.target, batch.known)
        given = rows.gather(1, batch.target.clamp(min=0)[:, None])[:, 0]
        return self.judge(given, rows.amax(1), batch.target, batch.known)

    def _gathered(self, own: Batch, group: ProcessGroup) -> tuple[Batch, int]:
        from .distributed import gather_rows, largest_over

        target = own.target if own.target is not None else torch.zeros_like(own.known, dtype=torch.int64)
        index = own.sample if own.sample is not None else torch.full_like(target, -1)
        columns = [own.known, target, index.to(own.values.device, non_blocking=True), *own.values.unbind(1)]
        if not self._room:  # once, at the first batch: the one time that processes wait for each other's sizes
            self._room = largest_over(len(target), target.device, group)
        rows, start = gather_rows(torch.stack([column.double() for column in columns], 1), group, self._room)
        joined = own._replace(
            values=rows[:, 3:].to(own.values.dtype),
            target=None if own.target is None else rows[:, 1].long(),
            sample=None if own.sample is None else rows[:, 2].long(),
            known=rows[:, 0] > 0,
        )
        return joined, start


def values_of(losses: Tensor, args: tuple[Any, ...]) -> tuple[Tensor, Tensor | None, int]:
    """What is remembered of a batch, (B, width), its class labels, and how many classes there are; see `Batch`."""
    if len(args) < 2 or not has_classes(args[0], args[1]):
        return losses.reshape(-1, 1).float(), None, 0
    output, target = args[0].detach(), args[1].long()
    belief, n_classes = output.float().softmax(1), output.shape[1]
    if n_classes > SOFTMAX_UP_TO:
        belief = torch.stack([belief.gather(1, target[:, None])[:, 0], belief.amax(1)], 1)
    return belief, target, n_classes


def has_classes(output: Any, target: Any) -> bool:
    """Whether these are scores (B, classes) and one class label per sample."""
    return (
        isinstance(output, Tensor)
        and isinstance(target, Tensor)
        and output.dim() == 2
        and target.dim() == 1
        and len(output) == len(target)
        and not target.is_floating_point()
        and target.dtype != torch.bool
    )
