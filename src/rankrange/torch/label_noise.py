"""The noise model of m="auto" in training: the upper cut of the ranked range, estimated class by class.

Samples are ranked by the regret of their label, computed from the running mean of predictions:

    regret = log p(predicted class) - log p(given label) >= 0,     p the stored softmax, ratio = exp(-regret).

In class c the mean ratio is r_c. If all labels were right and the network certain, it would be 1; the difference is the
estimated share of wrong labels, m_c = 1 - r_c. The upper cut lam_hat_c lies at the regret whose ratio is

    trust_c * min(1, EDGE m_c) * r_c * min(1, n_c / PRIOR),     n_c the number of samples of the class so far.

Regrets up to the cut have weight 1, larger regrets exp(lam_hat_c - regret)^POWER. The cut is soft, so samples that were
cut by mistake can return.

- If a network disagrees with a correct label, it often predicts another class at the next visit. If it disagrees with a
  wrong label, it mostly predicts the same class again. In class c a share d_c of the disagreements is repeated: about
  .45 for correct labels of hard images, .6 to .7 with human errors, .95 with planted errors. trust_c increases from 0
  to 1 as d_c increases from TRAIN_LOW to TRAIN_HIGH. Clean labels therefore keep their weight. Predictions of a network
  at the start of training change often, so trust_c is small and no warm-up of fixed length is needed.
- Each class has its own cut. The ratio at the cut is at most the mean ratio of the class, so no class can be dropped,
  and a class whose labels agree with the predictions loses nothing.
- The paper's Algorithm 2 computes lam_hat from the losses of clean samples and counts m above it; here the class itself
  replaces the clean samples. Algorithm 3 tracks lam_hat over the batches, as the sums in this module do.

Losses without classes (regression, multi-label) have no predicted class. For them lam_hat is TIMES the mean of the kept
non-zero losses, and a larger loss has weight (lam_hat / loss)^2. The rule of Algorithm 2, mean plus one standard
deviation, would be twice the mean for exponential losses and would drop one in seven clean losses. Outliers are
detected up to a share of 1 / TIMES.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .memory import Resizable

EDGE = 4.0
POWER = 2.0
TRAIN_LOW, TRAIN_HIGH = 0.45, 0.65
# The same limits for the report after training. Then the network repeats .3 of its disagreements with correct labels,
# .7 to .83 with human errors (75 to 90% of its suspects were wrong), and nearly all with planted errors.
REPORT_LOW, REPORT_HIGH = 0.3, 0.85
DEFAULT_TRUST = 0.5  # the value without a memory, when repeated disagreements are unknown
TIMES = 4.0
# The half-life of class statistics, in samples of the class: they follow the network within about an epoch.
HALF_LIFE = 500.0
# The weight of the prior: a class with fewer samples loses little, and its disagreements are shrunk to those of all
# classes.
PRIOR = 20.0


class Prediction(NamedTuple):
    """The predictions of the samples of a batch, running means if there is a memory.

    `given` is p(label) and `first` p(predicted class). `disagreed`: the class predicted by the running mean before this
    visit was not the label. `again`: it was not, and the network now predicts the same class again. Both are None
    without a memory.
    """

    given: Tensor
    first: Tensor
    disagreed: Tensor | None
    again: Tensor | None


class ClassNoise(Resizable):
    """Weights of samples from their probabilities, and the estimated share of wrong labels in each class."""

    sums: Tensor  # (classes, 4): discounted number of samples, and sums of ratios, disagreements and repeated ones

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(0, 4))

    def prepare(self, n_classes: int, device: torch.device) -> None:
        sums = self.sums
        if sums.shape[0] != n_classes or sums.device != device:
            self.sums = sums.to(device) if sums.shape[0] == n_classes else torch.zeros(n_classes, 4, device=device)

    def forward(self, prediction: Prediction, target: Tensor, known: Tensor | None) -> Tensor:
        """The weight of each sample, in [0, 1], after the class sums are updated (in training mode only).

        Samples that are not `known` do not enter the sums; None means that all are known.
        """
        ratio = (prediction.given / prediction.first.clamp(min=torch.finfo(torch.float32).tiny)).clamp(max=1.0)
        group = target if known is None else torch.where(known, target, 0)
        if self.training:
            self._follow(prediction, ratio, group, known)
        share = self.shares()
        edge = (EDGE * share).clamp(max=1.0) * (1.0 - share) * (self.sums[:, 0] / PRIOR).clamp(max=1.0)
        edge = edge * (DEFAULT_TRUST if prediction.disagreed is None else self.trust())
        return (ratio / edge[group].clamp(min=1e-6)).clamp(max=1.0) ** POWER

    def _follow(self, prediction: Prediction, ratio: Tensor, group: Tensor, known: Tensor | None) -> None:
        # Sums over a mask: index_add is not deterministic on a GPU, and a matrix product would lose digits in autocast.
        member = group[:, None] == torch.arange(len(self.sums), device=group.device)
        if known is not None:
            member = member & known[:, None]
        none = torch.zeros_like(ratio)
        disagreed, again = (none if flag is None else flag for flag in (prediction.disagreed, prediction.again))
        counted = torch.stack([torch.ones_like(ratio), ratio, disagreed.to(ratio.dtype), again.to(ratio.dtype)], 1)
        batch = torch.where(member[:, :, None], counted[:, None, :], 0.0).sum(0).to(self.sums.dtype)
        self.sums.mul_(torch.exp2(-batch[:, :1] / HALF_LIFE)).add_(batch)

    def shares(self) -> Tensor:
        """Tensor (classes,): the estimated share of wrong labels in each class; 0 for a class without samples."""
        return torch.where(self.sums[:, 0] > 0, 1.0 - self.sums[:, 1] / self.sums[:, 0].clamp(min=1e-6), 0.0)

    def trust(self) -> Tensor:
        """Tensor (classes,): trust_c of the module's docstring, from 0 (no label loses weight) to 1."""
        return self._between(TRAIN_LOW, TRAIN_HIGH)

    def p_wrong_factor(self) -> Tensor:
        """Tensor (classes,): the factor of p_wrong after training, from the share of repeated disagreements."""
        return self._between(REPORT_LOW, REPORT_HIGH)

    def _between(self, low: float, high: float) -> Tensor:
        """Tensor (classes,): the share of repeated disagreements, mapped linearly to 0 at `low` and 1 at `high`.

        For classes with few disagreements, the share is shrunk to that of all classes.
        """
        disagreements, again = self.sums[:, 2], self.sums[:, 3]
        overall = again.sum() / disagreements.sum().clamp(min=1.0)
        repeated = (again + PRIOR * overall) / (disagreements + PRIOR)
        return ((repeated - low) / (high - low)).clamp(0.0, 1.0)


class LossCut(Resizable):
    """Weights of samples from their losses, for targets without classes."""

    sums: Tensor  # (3,): discounted number of samples, sum of their weights, and of weight x loss

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(3))

    def prepare(self, n_classes: int, device: torch.device) -> None:
        self.sums = self.sums.to(device)

    def forward(self, losses: Tensor, known: Tensor | None) -> Tensor:
        """The weight of each loss, in [0, 1]; in training mode the sums are updated afterwards.

        Losses that are not positive, and samples that are not `known`, do not enter the sums; None means that all are
        known.
        """
        cut = self.cut()
        weights = torch.where(losses > cut, (cut / losses) ** 2, 1.0)
        if self.training:
            # Zero losses, which a hinge has in most samples, are excluded: otherwise lam_hat would shrink to 0.
            seen = (losses > 0 if known is None else known & (losses > 0)).to(losses.dtype)
            kept = seen * weights
            batch = torch.stack([seen, kept, kept * losses]).sum(1)
            self.sums.mul_(torch.exp2(-batch[:1] / HALF_LIFE)).add_(batch)
        return weights

    def cut(self) -> Tensor:
        """The upper cut lam_hat; infinite until PRIOR positive losses were seen."""
        mean = self.sums[2] / self.sums[1].clamp(min=1.0)
        return torch.where(self.sums[0] >= PRIOR, TIMES * mean, torch.inf)

    def shares(self) -> Tensor:
        """Tensor (1,): the dropped share of the positive losses: 1 minus their mean weight; 0 if there were none."""
        return ((self.sums[0] - self.sums[1]) / self.sums[0].clamp(min=1.0)).reshape(1)
