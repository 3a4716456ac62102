"""Partial AUC as a loss for networks: pairs of positives and the negatives between two false positive rates.

Weights and derivatives are computed on detached scores, and nothing is differentiated through a sort. The squared hinge
is computed by sorting and cumulative sums: a batch of B scores costs O(B log B) without a matrix of pairs. The logistic
loss forms that matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core.ranges import RankedRange, check_rates
from .cuts import cut_weights, sum_dtype
from .stream import StreamingCuts

_LOSSES = ("squared_hinge", "logistic")


class PartialAUCLoss(nn.Module):
    """Pair loss between positives and the negatives ranked between two false positive rates.

    Parameters
    ----------
    fpr : pair of float, default=(0.0, 0.05)
        The range of false positive rates, 0 <= lo < hi <= 1. With lo > 0 the negatives with the highest scores, which
        may be mislabelled positives, are left out. With ranking="batch", if lo or hi times the number of negatives is
        not a whole number, the negative at that cut has a fractional weight.
    tpr : pair of float, default=(0.0, 1.0)
        The range of true positive rates: (0.5, 1.0) uses the half of the positives with the lower scores.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
        The loss of a pair with the score difference d (positive minus negative): max(0, 1 - d)^2 or log(1 + exp(-d)).
    ranking : {"batch", "stream"}, default="batch"
        "batch" ranks within the batch, which should hold at least 1 / hi negatives. "stream" tracks the cuts across
        batches, so that the range may be narrower than 1 / (negatives per batch).
    step : float, default=0.1
        Step size of the tracked cuts (ranking="stream").

    Notes
    -----
    The loss of a batch without positives or without negatives is 0. A NaN among the scores makes it NaN. Tracked cuts
    change in training mode only and are part of the state_dict. Only first derivatives are exact.

    Examples
    --------
    >>> import torch
    >>> criterion = PartialAUCLoss(fpr=(0.0, 0.5))
    >>> criterion(torch.tensor([2.0, 1.5, 0.0]), torch.tensor([1, 0, 0]))
    tensor(0.2500)
    """

    def __init__(
        self,
        fpr: tuple[float, float] = (0.0, 0.05),
        *,
        tpr: tuple[float, float] = (0.0, 1.0),
        loss: str = "squared_hinge",
        ranking: str = "batch",
        step: float = 0.1,
    ) -> None:
        super().__init__()
        self.fpr, self.tpr = check_rates("fpr", fpr), check_rates("tpr", tpr)
        if loss not in _LOSSES:
            raise ValueError(f"loss must be one of {', '.join(_LOSSES)}, got {loss!r}; choose one of them")
        if ranking not in ("batch", "stream"):
            raise ValueError(f"ranking must be 'batch' or 'stream', got {ranking!r}; choose one of the two")
        self.loss, self.ranking = loss, ranking
        stream = ranking == "stream"
        self.negative_cuts = StreamingCuts(step) if stream else None
        self.positive_cuts = StreamingCuts(step) if stream and self.tpr != (0.0, 1.0) else None

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The mean loss of the kept pairs of a batch: scores (B,) or (B, 1), target above 0 (or True) for positives."""
        flat, positive = scores.reshape(-1), target.reshape(-1) > 0
        if flat.shape != positive.shape:
            raise ValueError(
                f"need one score and one target per row, got {tuple(scores.shape)} and {tuple(target.shape)}; pass the "
                "scores of the positive class"
            )
        z = flat.detach().to(sum_dtype(flat))
        q = self._weights(z, ~positive, self.fpr, self.negative_cuts)
        p = self._weights(-z, positive, (1.0 - self.tpr[1], 1.0 - self.tpr[0]), self.positive_cuts)
        pair_sums = _squared_hinge if self.loss == "squared_hinge" else _logistic
        losses, pull = pair_sums(z, z, q)
        _, push = pair_sums(-z, -z, p)
        value, slope = (p * losses).sum(), q * push - p * pull
        slope = slope + 0.0 * z.sum()  # any NaN makes the loss NaN
        wide = flat.to(z.dtype)
        return (value + (slope * (wide - z)).sum() + 0.0 * z.sum()).to(scores.dtype)

    def _weights(self, z: Tensor, inside: Tensor, rates: tuple[float, float], cuts: StreamingCuts | None) -> Tensor:
        """The weight of each score in the mean over its class; scores of the other class have weight 0.

        `rates` are the ranks to keep, as fractions. With tracked cuts the sum of the weights is only about 1, because
        the number of scores between the cuts varies.
        """
        if cuts is None:
            return range_shares(z, inside, *rates)
        _, cut = cuts(z[inside], RankedRange(*rates), None, None)
        kept = (rates[1] - rates[0]) * inside.sum().clamp(min=1)
        return torch.where(inside, cut_weights(z, cut), 0.0) / kept

    def extra_repr(self) -> str:
        return f"fpr={self.fpr}, tpr={self.tpr}, loss={self.loss!r}, ranking={self.ranking!r}"


def range_shares(z: Tensor, inside: Tensor, lo: float, hi: float) -> Tensor:
    """Weights (B,) of the scores z in the mean over the ranks lo n to hi n, among the n scores that are `inside`.

    The largest score has rank 1, and ties share equally. The weights sum to 1, or are all 0 if no score is `inside`.
    """
    n = inside.sum()
    ranked = torch.where(inside, -z, torch.inf).sort().values
    above, with_ties = torch.searchsorted(ranked, -z), torch.searchsorted(ranked, -z, right=True)
    m, k = lo * n.to(z.dtype), hi * n.to(z.dtype)
    taken = with_ties.to(z.dtype).clamp(m, k) - above.to(z.dtype).clamp(m, k)
    share = taken / ((with_ties - above).clamp(min=1) * (k - m).clamp(min=torch.finfo(z.dtype).tiny))
    return torch.where(inside, share, 0.0)


def _squared_hinge(u: Tensor, v: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """For each u the sum over v of q max(0, 1 - (u - v))^2, and minus its derivative with respect to u."""
    middle = v.mean()
    ordered, order = (v - middle).sort()
    weights, reach = q[order], 1.0 - (u - middle)
    index = torch.searchsorted(ordered, -reach, right=True)
    mass, first, second = (_sums_from_the_top(weights * ordered**power)[index] for power in range(3))
    return second + reach * (2.0 * first + reach * mass), 2.0 * (first + reach * mass)


def _sums_from_the_top(values: Tensor) -> Tensor:
    return torch.cat([values.flip(0).cumsum(0).flip(0), values.new_zeros(1)])


def _logistic(u: Tensor, v: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """For each u the sum over v of q log(1 + exp(v - u)), and minus its derivative with respect to u."""
    t = v[None, :] - u[:, None]
    return nn.functional.softplus(t) @ q, torch.sigmoid(t) @ q
