"""Automatic m for networks: history of the samples, the noise model, weights and suspects.

In each step the running mean of the predictions of each sample is updated, the noise model computes a weight from it,
and the loss is the weighted mean. The weight is 1 at the first visit of a sample. In a process group all batches are
exchanged once per step, so every process stores the running means of one process with the joined batch.

Samples are ranked by the regret of their label, computed from the running mean:

    regret = log p(predicted class) - log p(given label) >= 0,     p the stored softmax, ratio = exp(-regret).

In class c the mean ratio is r_c, and the estimated share of wrong labels m_c = 1 - r_c. The upper cut lam_hat_c lies at
the regret whose ratio is

    trust_c * min(1, EDGE m_c) * r_c * min(1, n_c / PRIOR),     n_c the number of samples of the class so far.

Regrets up to the cut have weight 1, larger ones exp(2 (lam_hat_c - regret)). The cut is soft, so samples that were cut
by mistake can return. The ratio at the cut is at most the mean ratio of the class, so no class can be dropped.

If a network disagrees with a correct label, it often predicts another class at the next visit; with a wrong label,
mostly the same class again. In class c a share d_c of the disagreements is repeated: about .45 for correct labels of
hard images, .6 to .7 with human errors, .95 with planted errors. trust_c increases from 0 to 1 as d_c increases from
TRAIN[0] to TRAIN[1]. Because predictions change often at the start of training, no warm-up is needed.

Losses without classes (regression, multi-label) have no predicted class. For them lam_hat is TIMES the mean of the kept
non-zero losses, and a larger loss has weight (lam_hat / loss)^2. Outliers are detected up to a share of 1 / TIMES.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .cuts import sum_dtype, weighted_sum
from .distributed import gather_rows, joint_value
from .kernels import out_of_bounds
from .stream import GrowingModule

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from ..issues import LabelIssues

FACTOR = 0.5  # the weight of the past in a running mean
# The softmax is stored up to this many classes, because `suspects` needs it; otherwise three numbers per sample.
SOFTMAX_UP_TO = 128
EDGE = 4.0
TRAIN = 0.45, 0.65
# The same limits for the report after training. Then the network repeats .3 of its disagreements with correct labels,
# .7 to .83 with human errors (75 to 90% of its suspects were wrong), and nearly all with planted errors.
REPORT = 0.3, 0.85
DEFAULT_TRUST = 0.5  # the value without a history, when repeated disagreements are unknown
TIMES = 4.0
HALF_LIFE = 500.0  # of class sums, in samples of the class: they follow the network within about an epoch
PRIOR = 20.0  # a class with fewer samples loses little, and its disagreements are shrunk to those of all classes


class History(GrowingModule):
    """Running means `rows` of each sample across visits, the number of visits, and of visits with a weight below 0.5.

    The last row is a spare one, for padding and ignored samples; its content has no meaning.
    """

    rows: Tensor
    visits: Tensor
    cuts: Tensor

    def __init__(self, n_samples: int | None, argument: str) -> None:
        super().__init__()
        if isinstance(n_samples, bool) or not isinstance(n_samples, int) or n_samples < 1:
            raise ValueError(
                f"m='auto' needs the size of the data set, got {argument}={n_samples!r}; pass {argument}=len(dataset)"
            )
        self.n_samples, self.argument = n_samples, argument
        self.register_buffer("rows", torch.zeros(0, 0))
        self.register_buffer("visits", torch.zeros(n_samples + 1, dtype=torch.int32))
        self.register_buffer("cuts", torch.zeros(n_samples + 1, dtype=torch.int32))

    def locate(self, index: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The row of each index on the device of the values, and whether it exists; otherwise, on a CPU, an error."""
        if wrong := out_of_bounds(index, 0, self.n_samples):
            raise ValueError(
                f"indices must be at least 0 and below {self.argument}={self.n_samples}, got {wrong}; pass the index "
                f"of each sample in the data set, and {self.argument}=len(dataset)"
            )
        if self.rows.numel() == 0:
            self.rows = values.new_zeros(self.n_samples + 1, values.shape[1])
        if self.rows.shape[1] != values.shape[1]:
            raise ValueError(
                f"all outputs must have the same width, got {values.shape[1]} after {self.rows.shape[1]}; use one loss "
                "per model"
            )
        index = index.to(values.device, non_blocking=True)
        inside = (index >= 0) & (index < self.n_samples)
        return torch.where(inside, index, self.n_samples), inside

    def means(self, row: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The running means including these values, and the mask of the samples that were visited before."""
        seen = self.visits[row] > 0
        return torch.where(seen[:, None], torch.lerp(values, self.rows[row], FACTOR), values), seen

    def store(self, row: Tensor, rows: Tensor, cut: Tensor) -> Tensor:
        """Store running means, and count the visit and whether the sample was cut.

        Of equal rows the last one is stored, by writing its values at all of them, which is deterministic on a GPU. The
        result is the position of that one for each position.
        """
        ordered, order = row.sort(stable=True)
        last = order[torch.searchsorted(ordered, row, right=True) - 1]
        self.rows.index_copy_(0, row, rows[last])
        self.cuts.index_copy_(0, row, self.cuts[row] + cut[last])
        self.visits.index_copy_(0, row, self.visits[row] + 1)
        return last


def checked_index(index: Any, n: int) -> Tensor:
    """The indices of n samples or documents in the data set."""
    index = torch.as_tensor(index)
    if index.shape != (n,) or index.is_floating_point() or index.dtype == torch.bool:
        raise ValueError(
            f"index must hold one integer per sample, shape ({n},), got {index.dtype} of shape {tuple(index.shape)}; "
            "wrap the data set in rankrange.torch.WithIndex and pass the index that it returns"
        )
    return index.long()


class Batch(NamedTuple):
    """A batch: values (B, width), class labels, indices or None, and a mask, False for padding and ignored targets.

    Without classes (`n_classes` is 0) the values are losses, of width 1. With up to SOFTMAX_UP_TO classes they are the
    softmax, and with more they are three columns: p(label), p(predicted class) and the predicted class.
    """

    values: Tensor
    target: Tensor
    n_classes: int
    sample: Tensor | None
    known: Tensor


class NoisyLabels(GrowingModule):
    """Weights of the samples of a batch, from their history and the noise model."""

    given: Tensor  # the label of each sample, -1 if it was not visited
    # (classes, 4): discounted number of samples, and sums of ratios, disagreements and repeated ones. Without classes
    # (1, 3): discounted number of positive losses, sums of their weights, and of weight x loss.
    sums: Tensor

    def __init__(self, n_samples: int | None) -> None:
        super().__init__()
        self.history = History(n_samples, "n_samples")
        self.register_buffer("given", torch.full((self.history.n_samples + 1,), -1))
        self.register_buffer("sums", torch.zeros(0, 0))

    def forward(
        self,
        losses: Tensor,
        args: tuple[Any, ...],
        index: Tensor | None,
        counted: Tensor | None,
        group: ProcessGroup | None,
        warm: Tensor | None,
        masses: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The weighted mean of the losses of the batch (with a group, of the joined batch), their weights, what counts.

        The weighted sum is divided by the sum of the weights, at least 1 (with class weights `masses`, at least their
        mean). Losses that are not `counted` have the weight 0. If `warm` is true, all others have the weight 1. In
        training mode history and noise model are updated.
        """
        n_classes = args[0].shape[1] if len(args) > 1 and has_classes(args[0], args[1]) else 0
        local = batch_of(losses.detach(), args, n_classes, index)
        if counted is not None:
            local = local._replace(known=local.known & counted)
        self._prepare(local)
        batch, mine = (local, slice(None)) if group is None else self._gathered(local, group)
        weights, valid = self._weigh(batch)
        if warm is not None:
            weights = torch.where(warm, batch.known.to(weights.dtype), weights)
        own = weights[mine]
        counts, least = (weights, 1.0) if masses is None else (own * masses, masses.mean())
        total = counts.sum().clamp(min=least)
        sound = valid & ~(losses.isnan() & local.known).any()  # a NaN may have the weight 0
        value = torch.where(sound, 1.0, torch.nan) * weighted_sum(losses, own, 1.0 / total)
        return joint_value(value.to(losses.dtype), group), own.to(losses.dtype), local.known

    def _prepare(self, batch: Batch) -> None:
        shape = (batch.n_classes, 4) if batch.n_classes else (1, 3)
        if self.given.device != batch.values.device:
            self.to(batch.values.device)
        if self.sums.numel() == 0:
            self.sums = batch.values.new_zeros(shape)
        if self.sums.shape != shape:
            raise ValueError(
                f"an AoRRLoss(m='auto') takes one kind of target, got {batch.n_classes} classes (0 for none) after "
                f"{len(self.sums) if self.sums.shape[1] == 4 else 0}; use one loss per task"
            )

    def _weigh(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Weights of the samples, 0 for unknown ones; and False if an index is outside of the data set."""
        if batch.sample is None:
            return self._weights_from(batch.values, None, batch, self.training), batch.known.new_ones(())
        row, inside = self.history.locate(batch.sample, batch.values)
        rows, seen = self.history.means(row, batch.values)
        if batch.n_classes > SOFTMAX_UP_TO:
            rows[:, 2] = batch.values[:, 2]  # a class has no running mean
        weights = self._weights_from(rows, (self.history.rows[row], seen), batch, self.training)
        weights = torch.where(seen, weights, batch.known.to(weights.dtype))
        if self.training:
            row = torch.where(batch.known, row, self.history.n_samples)
            last = self.history.store(row, rows, weights < 0.5)
            self.given.index_copy_(0, row, batch.target[last])
        return weights, (inside | ~batch.known).all()

    def _weights_from(self, rows: Tensor, before: tuple[Tensor, Tensor] | None, batch: Batch, learning: bool) -> Tensor:
        """Weights from these running means; `before` has the rows before this visit and which samples had one."""
        if not batch.n_classes:
            return torch.where(batch.known, self._by_loss(rows[:, 0], batch.known, learning), 0.0)
        target = torch.where(batch.known, batch.target, 0)
        if batch.n_classes > SOFTMAX_UP_TO:
            given, first = rows[:, 0], rows[:, 1]
        else:
            given, first = rows.gather(1, target[:, None])[:, 0], rows.amax(1)
        ratio = (given / first.clamp(min=torch.finfo(torch.float32).tiny)).clamp(max=1.0)
        disagreed = again = torch.zeros_like(batch.known)
        if before is not None:
            choice = _first_choice(before[0], batch.n_classes)
            disagreed = (choice != target) & before[1]
            again = disagreed & (choice == _first_choice(batch.values, batch.n_classes))
        if learning:
            counted = [torch.ones_like(ratio), ratio, disagreed.to(ratio.dtype), again.to(ratio.dtype)]
            # Sums over a mask: index_add is not deterministic on a GPU, a matrix product loses digits in autocast.
            member = (target[:, None] == torch.arange(batch.n_classes, device=target.device)) & batch.known[:, None]
            self._add(torch.where(member[:, :, None], torch.stack(counted, 1)[:, None, :], 0.0).sum(0))
        share, count = self.shares(), self.sums[:, 0]
        edge = (EDGE * share).clamp(max=1.0) * (1.0 - share) * (count / PRIOR).clamp(max=1.0)
        edge = edge * (DEFAULT_TRUST if before is None else self.trust(*TRAIN))
        return torch.where(batch.known, (ratio / edge[target].clamp(min=1e-6)).clamp(max=1.0) ** 2, 0.0)

    def _by_loss(self, losses: Tensor, known: Tensor, learning: bool) -> Tensor:
        count, mass, total = self.sums[0].unbind()
        cut = torch.where(count >= PRIOR, TIMES * total / mass.clamp(min=1.0), torch.inf)
        weights = torch.where(losses > cut, (cut / losses) ** 2, 1.0)
        if learning:
            # Zero losses, which a hinge has in most samples, are excluded: otherwise lam_hat would shrink to 0.
            seen = (known & (losses > 0)).to(losses.dtype)
            self._add(torch.stack([seen, seen * weights, seen * weights * losses]).sum(1)[None])
        return weights

    def _add(self, batch: Tensor) -> None:
        self.sums.mul_(torch.exp2(-batch[:, :1] / HALF_LIFE)).add_(batch)

    def shares(self) -> Tensor:
        if self.sums.numel() == 0:
            return self.sums.new_zeros(0)
        count, kept = self.sums[:, 0], self.sums[:, 1]
        return (count - kept) / count.clamp(min=1e-6)

    def trust(self, low: float, high: float) -> Tensor:
        """Tensor (classes,): the share of repeated disagreements, mapped linearly to 0 at `low` and 1 at `high`."""
        disagreements, again = self.sums[:, 2], self.sums[:, 3]
        overall = again.sum() / disagreements.sum().clamp(min=1.0)
        repeated = (again + PRIOR * overall) / (disagreements + PRIOR)
        return ((repeated - low) / (high - low)).clamp(0.0, 1.0)

    @torch.no_grad()
    def weights_of_all(self) -> Tensor:
        rows, visited = self.history.rows[:-1], self.history.visits[:-1] > 0
        if rows.numel() == 0:
            return torch.ones(self.history.n_samples, device=visited.device)
        n_classes = len(self.sums) if self.sums.shape[1] == 4 else 0
        batch = Batch(rows, self.given[:-1], n_classes, None, visited)
        return torch.where(visited, self._weights_from(rows, (rows, visited), batch, learning=False), 1.0)

    def _gathered(self, local: Batch, group: ProcessGroup) -> tuple[Batch, slice]:
        """The joined batch of the group, padded, and the part of this process."""
        index = local.sample if local.sample is not None else torch.full_like(local.target, -1)
        columns = [local.known, local.target, index.to(local.values.device), *local.values.unbind(1)]
        rows, mine = gather_rows(torch.stack([column.double() for column in columns], 1), group)
        joined = local._replace(
            values=rows[:, 3:].to(local.values.dtype),
            target=rows[:, 1].long(),
            sample=None if local.sample is None else rows[:, 2].long(),
            known=rows[:, 0] > 0,
        )
        return joined, mine

    def suspects(self) -> LabelIssues:
        """The suspects among the samples used in training; copies the running means from the device.

        The network was trained on these labels, so it is overconfident. Repeated disagreements are better evidence:
        p_wrong is that of `find_label_issues` times the trust in the class of the label.
        """
        from ..issues import find_label_issues

        visits = self.history.visits[:-1].cpu().numpy()
        visited, width = np.flatnonzero(visits), self.history.rows.shape[1]
        if len(visited) == 0 or width < 2:
            raise ValueError(
                f"suspects() needs the stored class probabilities of samples, got {len(visited)} samples of width "
                f"{width}; train with criterion(output, target, index) first"
            )
        if len(self.sums) > SOFTMAX_UP_TO:
            raise ValueError(
                f"suspects() needs the whole softmax, which is stored for up to {SOFTMAX_UP_TO} classes, got "
                f"{len(self.sums)}; use sample_weights() for these samples"
            )
        given = self.given[:-1].cpu().numpy()[visited]
        present = np.unique(given)
        probabilities = self.history.rows[:-1].cpu().double().numpy()[visited][:, present] + 1e-12
        found = find_label_issues(y=given, pred_probs=probabilities / probabilities.sum(1, keepdims=True))
        found = _discounted(found, self.trust(*REPORT).cpu().double().numpy()[given])
        cut = self.history.cuts[:-1].cpu().numpy()[visited] / visits[visited]
        tables = {name: getattr(found, name).copy() for name in ("table", "ranked")}
        for table in tables.values():
            table["cut"], table["row"] = cut[table["row"]], visited[table["row"]]
        return replace(found, index=visited, **tables)


def _discounted(found: LabelIssues, factor: Any) -> LabelIssues:
    """Multiply each p_wrong by its factor, and compute the ranking, the actions, the fdr and the suspects again."""
    from ..issues.find import P_WRONG_IN_SCORE, add_fdr
    from ..label_noise import SURE, actions

    p_wrong = found.p_wrong * factor
    score = found.score - P_WRONG_IN_SCORE * (found.p_wrong - p_wrong)
    ranked: Any = found.ranked
    ranked = ranked[np.argsort(-score[ranked["row"]], kind="stable")]
    ranked["p_wrong"] = probability = p_wrong[ranked["row"]]
    sure = (ranked["action"] == "relabel") & (probability >= SURE)
    chosen = actions(probability, sure.astype(np.float64))
    ranked["action"] = np.where(chosen == "", "look", chosen)
    table = ranked[chosen != ""]
    for part in (ranked, table):
        add_fdr(part)
    return replace(found, table=table, ranked=ranked, p_wrong=p_wrong, score=score)


def batch_of(losses: Tensor, args: tuple[Any, ...], n_classes: int, index: Tensor | None) -> Batch:
    """The values to store for a batch, with 0 for NaN; targets that are no class are not known."""
    if not n_classes:
        values = losses.reshape(-1, 1).to(sum_dtype(losses)).nan_to_num()
        target = torch.zeros(len(values), dtype=torch.int64, device=losses.device)
        return Batch(values, target, 0, index, torch.ones_like(target, dtype=torch.bool))
    output, target = args[0].detach(), args[1].long()
    known = (target >= 0) & (target < n_classes)
    target = torch.where(known, target, -1)
    values = output.to(sum_dtype(output)).softmax(1).nan_to_num()  # a NaN appears in the loss, but is not stored
    if n_classes > SOFTMAX_UP_TO:
        first, choice = values.max(1)
        of_label = values.gather(1, target.clamp(min=0)[:, None])[:, 0]
        values = torch.stack([of_label, first, choice.to(values.dtype)], 1)
    return Batch(values, target, n_classes, index, known)


def _first_choice(rows: Tensor, n_classes: int) -> Tensor:
    return rows[:, 2].long() if n_classes > SOFTMAX_UP_TO else rows.argmax(1)


def has_classes(output: Any, target: Any) -> bool:
    """Whether these are scores (B, classes) and one class label per sample."""
    tensors = isinstance(output, Tensor) and isinstance(target, Tensor)
    labels = tensors and not target.is_floating_point() and target.dtype != torch.bool
    return labels and output.dim() == 2 and target.shape == output.shape[:1]
