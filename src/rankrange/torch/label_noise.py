"""How many samples to cut, and which: the upper cut of the ranked range, estimated class by class during training.

Samples are ranked by the remembered regret of their label: how much less likely the network finds it than its first
choice,

    regret = log p(first choice) - log p(given label) >= 0,        p the remembered softmax, ratio = exp(-regret).

In class c the mean ratio is r_c. If all labels were right and the network certain, it would be 1; the difference is the
estimated share of wrong labels, m_c = 1 - r_c. The upper cut lam_hat_c lies at the regret whose ratio is

    trust_c * min(1, EDGE m_c) * r_c.

Regrets up to it have weight 1, and regrets beyond it exp(lam_hat_c - regret)^POWER: the cut is soft, so that samples
cut by mistake can come back.

- If a network disagrees with a right label, it wavers: at the next visit another class comes first. It disagrees with a
  wrong label in the same way again. Of the disagreements remembered in class c a share d_c is repeated, about .45 if
  labels are right and the images hard, .6 to .7 with human errors, .95 with planted ones; trust_c rises from 0 to 1 as
  d_c goes from WAVERING to FIRM. So clean labels are left alone, and the warm-up lasts as long as the network needs it.
- Each class has its own reference: about half of it always lies below its own cut, so no class can be cut away, and a
  class whose labels the network agrees with loses nothing.
- The paper's Algorithm 2 sets lam_hat from the losses of clean samples and counts m above it; here the class itself
  stands in for the clean samples. Algorithm 3 tracks lam_hat over the batches, as the sums below do.

Losses without classes (regression, multi-label) have no first choice. There lam_hat is TIMES the mean of the kept
losses that are not 0, and a loss beyond it has weight (lam_hat / loss)^2. Algorithm 2's mean plus one standard
deviation would be twice the mean for exponential losses, and cut one in eight of clean ones. Outliers are found up to a
share of 1 / TIMES.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .memory import Resizable

EDGE = 4.0
POWER = 2.0
WAVERING, FIRM = 0.45, 0.65
# The same for what is reported after training. Then the network repeats .3 of its disagreements if labels are right, .7
# to .83 with human errors (75 to 90% of its suspects were wrong), and nearly all with planted ones.
HOLLOW, SOLID = 0.3, 0.85
UNKNOWN_TRUST = 0.5  # if there is no memory, so that disagreements cannot be followed
TIMES = 4.0
# Class statistics halve their weight after so many samples of the class: they follow the network within an epoch or so.
HALF_LIFE = 500.0
# A class with fewer samples than this loses little, and its few disagreements are taken to be like those of all.
PRIOR = 20.0


class Prediction(NamedTuple):
    """The predictions of the samples of a batch: p(label) and p(first choice), remembered if there is a memory.

    `objected`: another class came first in the memory; `again`: and the network predicts the same class now. None
    without a memory.
    """

    given: Tensor
    first: Tensor
    objected: Tensor | None
    again: Tensor | None


class ClassNoise(Resizable):
    """Weights of samples from remembered probabilities, and the share of wrong labels in each class."""

    sums: Tensor  # (classes, 4): discounted number of samples, and sums of ratios, disagreements and repeated ones

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(0, 4))

    def prepare(self, n_classes: int, device: torch.device) -> None:
        sums = self.sums
        if sums.shape[0] != n_classes or sums.device != device:
            self.sums = sums.to(device) if sums.shape[0] == n_classes else torch.zeros(n_classes, 4, device=device)

    def forward(self, prediction: Prediction, target: Tensor, known: Tensor | None) -> Tensor:
        """Weights in [0, 1]; samples that are not `known` are not counted (None: all are)."""
        ratio = (prediction.given / prediction.first.clamp(min=torch.finfo(torch.float32).tiny)).clamp(max=1.0)
        group = target if known is None else torch.where(known, target, 0)
        if self.training:
            self._follow(prediction, ratio, group, known)
        share = self.shares()
        edge = (EDGE * share).clamp(max=1.0) * (1.0 - share) * (self.sums[:, 0] / PRIOR).clamp(max=1.0)
        edge = edge * (UNKNOWN_TRUST if prediction.objected is None else self.trust())
        return (ratio / edge[group].clamp(min=1e-6)).clamp(max=1.0) ** POWER

    def _follow(self, prediction: Prediction, ratio: Tensor, group: Tensor, known: Tensor | None) -> None:
        # Sums over a mask: index_add would add in any order on a GPU, and a product would lose digits in autocast.
        member = group[:, None] == torch.arange(len(self.sums), device=group.device)
        if known is not None:
            member = member & known[:, None]
        none = torch.zeros_like(ratio)
        objected, again = (none if flag is None else flag for flag in (prediction.objected, prediction.again))
        counted = torch.stack([torch.ones_like(ratio), ratio, objected.to(ratio.dtype), again.to(ratio.dtype)], 1)
        batch = torch.where(member[:, :, None], counted[:, None, :], 0.0).sum(0).to(self.sums.dtype)
        self.sums.mul_(torch.exp2(-batch[:, :1] / HALF_LIFE)).add_(batch)

    def shares(self) -> Tensor:
        """(classes,) the estimated share of wrong labels among the labels of each class."""
        return 1.0 - self.sums[:, 1] / self.sums[:, 0].clamp(min=1e-6)

    def trust(self) -> Tensor:
        """(classes,) how far disagreements with the labels of each class can be trusted: 0 wavering, 1 firm."""
        return self._between(WAVERING, FIRM)

    def firmness(self) -> Tensor:
        """(classes,) the factor of p(wrong) after training, from the share of repeated disagreements."""
        return self._between(HOLLOW, SOLID)

    def _between(self, low: float, high: float) -> Tensor:
        """The share of repeated disagreements, mapped to 0 at `low` and 1 at `high`."""
        objections, again = self.sums[:, 2], self.sums[:, 3]
        overall = again.sum() / objections.sum().clamp(min=1.0)
        repeated = (again + PRIOR * overall) / (objections + PRIOR)
        return ((repeated - low) / (high - low)).clamp(0.0, 1.0)


class LossCut(Resizable):
    """Weights of samples from remembered losses alone."""

    sums: Tensor  # (3,): discounted number of samples, sum of their weights, and of weight x loss

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(3))

    def prepare(self, n_classes: int, device: torch.device) -> None:
        self.sums = self.sums.to(device)

    def forward(self, losses: Tensor, known: Tensor | None) -> Tensor:
        """Weights in [0, 1]; samples that are not `known` are not counted (None: all are)."""
        cut = self.cut()
        weights = torch.where(losses > cut, (cut / losses) ** 2, 1.0)
        if self.training:
            # A hinge leaves most losses at 0: with them in the mean, lam_hat would shrink to 0.
            seen = (losses > 0 if known is None else known & (losses > 0)).to(losses.dtype)
            kept = seen * weights
            batch = torch.stack([seen, kept, kept * losses]).sum(1)
            self.sums.mul_(torch.exp2(-batch[:1] / HALF_LIFE)).add_(batch)
        return weights

    def cut(self) -> Tensor:
        """lam_hat: infinite until some losses have been seen."""
        mean = self.sums[2] / self.sums[1].clamp(min=1.0)
        return torch.where(self.sums[0] >= PRIOR, TIMES * mean, torch.inf)

    def shares(self) -> Tensor:
        """The share of the losses, by weight, that is cut."""
        return (1.0 - self.sums[1] / self.sums[0].clamp(min=1.0)).reshape(1)
