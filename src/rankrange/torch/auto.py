"""Automatic m for networks: the weight of each sample is computed from a running mean of its predictions.

In each step of `AoRRLoss(base, m="auto")`, the running mean of each sample is updated with the current prediction, the
noise model (`label_noise`) computes a weight from it, and the loss is the weighted mean. The weight is 1 at the first
visit of a sample. Without class targets the running mean is that of the loss. On a GPU with Triton one kernel does all
of this for up to SOFTMAX_UP_TO classes, in training without a group or a warm-up. Without indices there are no running
means, and the weights come from the current predictions. In a process group the rows of all batches are exchanged once
per step, so every process stores the same running means as one process with the joined batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from . import kernels
from .cuts import weighted_sum
from .label_noise import EDGE, HALF_LIFE, PRIOR, TRAIN_HIGH, TRAIN_LOW, ClassNoise, LossCut, Prediction
from .memory import Memory

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

FACTOR = 0.5  # the weight of the past in a running mean
# The number of visits before a sample may be dropped: predictions of an untrained network are uninformative.
VISITS = 1
# The softmax is stored up to this many classes, because `suspects` needs it; otherwise three numbers per sample.
SOFTMAX_UP_TO = 128


class Batch(NamedTuple):
    """A batch: values (B, width), class labels `target`, indices `sample`, and a mask `known`, False for padding.

    Labels, indices and mask may be None. Without classes (`n_classes` is 0) the values are losses, of width 1. With up
    to SOFTMAX_UP_TO classes they are the softmax, and with more they are three columns: p(label), p(predicted class)
    and the predicted class.
    """

    values: Tensor
    target: Tensor | None
    n_classes: int
    sample: Tensor | None
    known: Tensor | None


class AutoCut(nn.Module):
    """Computes the weights of a batch and updates the memory of running means."""

    def __init__(self, n_samples: int | None = None) -> None:
        super().__init__()
        self.memory = Memory(n_samples, FACTOR)
        self.noise_model: ClassNoise | LossCut = ClassNoise()
        self._capacity = 0

    def forward(
        self,
        losses: Tensor,
        args: tuple[Any, ...],
        index: Tensor | None,
        group: ProcessGroup | None,
        warm: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """The weighted mean of the losses of a batch (with a group, of the joined batch), and the weight of each loss.

        `args` are the arguments of the base loss, and `index` the index of each sample or None. The weighted sum is
        divided by max(1, sum of the weights). If `warm` is true, all weights are 1. In training mode the running means
        and the noise model are updated, also if `warm` is true.
        """
        n_classes = args[0].shape[1] if len(args) > 1 and has_classes(args[0], args[1]) else 0
        self._prepare(n_classes, index, losses.device, group)
        plain = group is None and warm is None and self.training and 0 < n_classes <= SOFTMAX_UP_TO
        if plain and index is not None and kernels.fits_memory(losses, args[0]):
            return self._fused(losses, args[0], args[1], index)
        values, target = values_of(losses.detach(), args, n_classes)
        local = Batch(values, target, n_classes, index, None)
        batch, start = local, 0
        if group is not None:
            batch, start = self._gathered(local, group)
        weights = self._weigh(batch)
        if warm is not None:
            weights = torch.where(warm, 1.0, weights)
        total = (weights if batch.known is None else torch.where(batch.known, weights, 0.0)).sum().clamp(min=1.0)
        weights = weights[start : start + len(losses)]
        # Without classes an infinite loss is an outlier and is dropped. With classes it makes the loss NaN (0 * inf).
        value = weighted_sum(losses, weights, 1.0 / total) if target is None else _mean(losses, weights / total)
        if group is not None:
            from .distributed import joint_value

            value = joint_value(value, group)
        return value, weights.to(losses.dtype)

    def _fused(self, losses: Tensor, output: Tensor, target: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """The result of `forward` from one kernel, because launching many small operations takes longer."""
        memory, sums = self.memory, self.noise_model.sums
        buffers = memory.rows, memory.visits, memory.cuts, memory.given, sums
        rule = FACTOR, VISITS, HALF_LIFE, EDGE, TRAIN_LOW, TRAIN_HIGH, PRIOR
        if index.device != losses.device:
            index = index.to(losses.device, non_blocking=True)
        batch = kernels.MemoryBatch(output.detach(), target.long(), index, buffers, rule)
        weights, slopes = kernels.remember(batch, losses.dtype)
        return torch.dot(losses, slopes), weights

    def _prepare(self, n_classes: int, sample: Tensor | None, device: torch.device, group: ProcessGroup | None) -> None:
        """Choose the noise model in the first batch, and allocate buffers of the shape and device of the batch.

        A change between class targets and other targets is an error, and so are indices in a group without `n_samples`.
        """
        if group is not None and sample is not None and self.memory.n_samples is None:
            raise ValueError(
                "m='auto' in a process group needs n_samples, got n_samples=None; pass n_samples=len(dataset)"
            )
        if not n_classes:
            self._without_classes()
        noise_model = self.noise_model
        if isinstance(noise_model, LossCut) != (n_classes == 0):
            raise ValueError(
                "an AoRRLoss(m='auto') takes either class targets or losses, got both; use one loss per task"
            )
        noise_model.prepare(n_classes, device)
        if sample is not None:
            self.memory.prepare(sample, 1 if not n_classes else n_classes if n_classes <= SOFTMAX_UP_TO else 3, device)

    def _without_classes(self) -> None:
        """Use the noise model of losses, unless class targets were seen before."""
        if isinstance(self.noise_model, ClassNoise) and len(self.noise_model.sums) == 0:
            self.noise_model = LossCut().train(self.training)

    def _weigh(self, batch: Batch) -> Tensor:
        if batch.sample is None:
            return self._weights_from(batch.values, None, batch)
        row = self.memory.row_of(batch.sample, batch.values.device)
        old, visits = self.memory.recall(row)
        rows = torch.where((visits > 0)[:, None], torch.lerp(batch.values, old, self.memory.factor), batch.values)
        if batch.n_classes > SOFTMAX_UP_TO:
            rows[:, 2] = batch.values[:, 2]  # a class has no running mean
        weights = torch.where(visits >= VISITS, self._weights_from(rows, (old, visits > 0), batch), 1.0)
        if self.training:
            if batch.known is not None:
                row = torch.where(batch.known, row, self.memory.size)
            self.memory.remember(row, rows, visits, batch.target, weights < 0.5)
        return weights

    @torch.no_grad()
    def weights_of_all(self) -> Tensor:
        """Tensor (n,): the weight of each sample from its stored running mean; 1 for samples never visited.

        n is the size of the data set if it was given, otherwise the largest visited index plus 1 (0 if there is none).
        """
        memory, was_training = self.memory, self.noise_model.training
        visited = memory.visits[:-1].nonzero()[:, 0]
        if len(visited) == 0:  # the memory may have no columns yet
            return memory.rows.new_ones(memory.n_samples or 0)
        size = memory.n_samples or int(visited.max()) + 1
        rows, has_visits = memory.rows[:size], memory.visits[:size] > 0
        target = memory.given[:size] if isinstance(self.noise_model, ClassNoise) else None
        n_classes = 0 if target is None else len(self.noise_model.sums)
        self.noise_model.eval()
        weights = self._weights_from(rows, (rows, has_visits), Batch(rows, target, n_classes, None, has_visits))
        self.noise_model.train(was_training)
        return torch.where(has_visits, weights, 1.0)

    def _weights_from(self, rows: Tensor, before: tuple[Tensor, Tensor] | None, batch: Batch) -> Tensor:
        """Weights from these rows of running means.

        `before` has the rows before this visit and a mask of the samples that had one; it is None without a memory.
        """
        if isinstance(self.noise_model, LossCut) or batch.target is None:
            return self.noise_model(rows[:, 0], batch.known)
        disagreed = again = None
        if before is not None:
            choice = self._first_choice(before[0], batch)
            disagreed = (choice != batch.target) & before[1]
            again = disagreed & (choice == self._first_choice(batch.values, batch))
        if batch.n_classes > SOFTMAX_UP_TO:
            prediction = Prediction(rows[:, 0], rows[:, 1], disagreed, again)
        else:
            given = rows.gather(1, batch.target.clamp(min=0)[:, None])[:, 0]
            prediction = Prediction(given, rows.amax(1), disagreed, again)
        return self.noise_model(prediction, batch.target, batch.known)

    @staticmethod
    def _first_choice(rows: Tensor, batch: Batch) -> Tensor:
        return rows[:, 2].long() if batch.n_classes > SOFTMAX_UP_TO else rows.argmax(1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for key in [key for key in state_dict if key.startswith(f"{prefix}judge.")]:  # the old name, for one release
            state_dict[key.replace(f"{prefix}judge.", f"{prefix}noise_model.")] = state_dict.pop(key)
        saved = state_dict.get(f"{prefix}noise_model.sums")
        if saved is not None and saved.dim() == 1:
            self._without_classes()
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _gathered(self, local: Batch, group: ProcessGroup) -> tuple[Batch, int]:
        from .distributed import gather_rows, largest_over

        target = (
            local.target
            if local.target is not None
            else torch.zeros(len(local.values), dtype=torch.int64, device=local.values.device)
        )
        index = local.sample if local.sample is not None else torch.full_like(target, -1)
        columns = [
            torch.ones_like(target),
            target,
            index.to(local.values.device, non_blocking=True),
            *local.values.unbind(1),
        ]
        if not self._capacity:  # only at the first batch do processes wait for the sizes of the others
            self._capacity = largest_over(len(target), target.device, group)
        rows, start = gather_rows(torch.stack([column.double() for column in columns], 1), group, self._capacity)
        joined = local._replace(
            values=rows[:, 3:].to(local.values.dtype),
            target=None if local.target is None else rows[:, 1].long(),
            sample=None if local.sample is None else rows[:, 2].long(),
            known=rows[:, 0] > 0,
        )
        return joined, start


def values_of(losses: Tensor, args: tuple[Any, ...], n_classes: int) -> tuple[Tensor, Tensor | None]:
    """The values to store for a batch, (B, width), with 0 for NaN, and its class labels or None; see `Batch`."""
    if not n_classes:
        return losses.reshape(-1, 1).float().nan_to_num(), None
    output, target = args[0].detach(), args[1].long()
    probabilities = output.float().softmax(1).nan_to_num()  # a NaN appears in the loss, but is not stored
    if n_classes > SOFTMAX_UP_TO:
        first, choice = probabilities.max(1)
        probabilities = torch.stack(
            [probabilities.gather(1, target[:, None])[:, 0], first, choice.to(probabilities.dtype)], 1
        )
    return probabilities, target


def _mean(losses: Tensor, slopes: Tensor) -> Tensor:
    return (losses * slopes).sum().to(losses.dtype)


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
