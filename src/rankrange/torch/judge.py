"""How many samples to cut, and which: the upper cut of the ranked range, estimated class by class as training goes on.

What is ranked is the remembered regret of a label: how much less likely the network finds it than its own first choice,

    regret = log p(first choice) - log p(given label) >= 0,        p the remembered softmax, ratio = exp(-regret).

In class c the mean ratio is r_c. Were all labels right and the network sure, it would be 1; what is missing is the
estimated share of wrong labels, m_c = 1 - r_c. The upper cut lam_hat_c lies at the regret whose ratio is
min(1, EDGE m_c) r_c: regrets up to it weigh 1, and regrets beyond it exp(lam_hat_c - regret)^POWER, so that the cut is
soft and what is cut by mistake can come back. With this EDGE about m_c of each class is cut.

- A class is measured against itself: about half of it always lies below its own cut, so no class can be cut away, and a
  class whose labels the network takes as they are loses nothing.
- Early on the network is unsure, ratios lie close together, and little is cut: the warm-up is built in.
- The paper's Algorithm 2 sets lam_hat from the losses of clean samples and counts m above it; here the class itself
  stands in for the clean samples. Algorithm 3 tracks lam_hat over the batches, as the sums below do.

Losses without classes (regression, many labels) have no first choice. There lam_hat is the mean of the kept losses
plus three of their standard deviations, Algorithm 2's cut with a wider margin, and a loss beyond it weighs
(lam_hat / loss)^2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EDGE = 3.0
POWER = 2.0
SIGMAS = 3.0
# Class statistics halve their weight after so many samples of the class: they follow the network within an epoch or so.
HALF_LIFE = 500.0
# A class of which little was seen is taken to be like all others: so many samples count as much as the rest.
PRIOR = 20.0


class ClassJudge(nn.Module):
    """Weights of samples from remembered probabilities, and the share of wrong labels in each class."""

    sums: Tensor  # (classes, 2): discounted number of samples, and sum of their ratios

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(0, 2))

    def prepare(self, n_classes: int, device: torch.device) -> None:
        if self.sums.shape[0] != n_classes or self.sums.device != device:
            fresh = torch.zeros(n_classes, 2, device=device)
            if self.sums.shape[0] == n_classes:
                fresh.copy_(self.sums)
            self.sums = fresh

    def forward(self, given: Tensor, first: Tensor, target: Tensor, known: Tensor) -> Tensor:
        """Weights in [0, 1], given the remembered p(label) and p(first choice); the unknown count for nothing."""
        ratio = (given / first.clamp(min=torch.finfo(first.dtype).tiny)).clamp(max=1.0)
        group = torch.where(known, target, 0)
        if self.training:
            # Sums over a mask: index_add would add in any order on a GPU, and a product would lose digits in autocast.
            member = (group[:, None] == torch.arange(len(self.sums), device=group.device)) & known[:, None]
            batch = torch.stack([member.sum(0), torch.where(member, ratio[:, None], 0.0).sum(0)], 1).to(self.sums.dtype)
            self.sums.mul_(torch.exp2(-batch[:, :1] / HALF_LIFE)).add_(batch)
        mean = 1.0 - self.shares()
        edge = (EDGE * (1.0 - mean)).clamp(max=1.0) * mean
        return (ratio / edge[group].clamp(min=1e-6)).clamp(max=1.0) ** POWER

    def shares(self) -> Tensor:
        """(classes,) the estimated share of wrong labels among the labels of each class."""
        total = self.sums.sum(0)
        overall = total[1] / total[0].clamp(min=1.0)
        mean = (self.sums[:, 1] + PRIOR * overall) / (self.sums[:, 0] + PRIOR)
        return (1.0 - mean).clamp(0.0, 1.0)


class LossJudge(nn.Module):
    """Weights of samples from remembered losses alone."""

    sums: Tensor  # (4,): discounted sums of samples, of their weights, of weight x loss, of weight x loss^2

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sums", torch.zeros(4))

    def prepare(self, n_classes: int, device: torch.device) -> None:
        self.sums = self.sums.to(device)

    def forward(self, losses: Tensor, known: Tensor) -> Tensor:
        cut = self.cut()
        weights = torch.where(losses > cut, (cut / losses) ** 2, 1.0)
        if self.training:
            seen = known.to(losses.dtype)
            kept = seen * weights
            batch = torch.stack([seen, kept, kept * losses, kept * losses**2]).nan_to_num(posinf=0.0).sum(1)
            self.sums.mul_(torch.exp2(-batch[:1] / HALF_LIFE)).add_(batch)
        return weights

    def cut(self) -> Tensor:
        """lam_hat: infinite until enough losses have been seen to know their spread."""
        _, kept, first, second = self.sums.unbind()
        kept = kept.clamp(min=1.0)
        mean = first / kept
        spread = (second / kept - mean**2).clamp(min=0.0).sqrt()
        return torch.where(self.sums[0] >= PRIOR, mean + SIGMAS * spread, torch.inf)

    def shares(self) -> Tensor:
        """The share of the losses, by weight, that is cut."""
        return (1.0 - self.sums[1] / self.sums[0].clamp(min=1.0)).reshape(1)
