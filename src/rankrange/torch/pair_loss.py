"""Partial AUC as a loss for networks: pairs of positives and the negatives between two false positive rates.

Weights are computed on detached scores. Pair losses are computed by sorting and cumulative sums: a batch of B scores
costs O(B log B) without a matrix of pairs. The order is constant, so all derivatives are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..core.ranges import RankedRange, check_rates
from .cuts import cut_weights, ranks_of, sum_dtype
from .functional import check_choice
from .stream import StreamingCuts


class PartialAUCLoss(nn.Module):
    """Pair loss between positives and the negatives ranked between two false positive rates.

    The loss of a pair with the score difference d (positive minus negative) is max(0, 1 - d)^2.

    Parameters
    ----------
    fpr : pair of float, default=(0.0, 0.05)
        The range of false positive rates, 0 <= lo < hi <= 1. With lo > 0 the negatives with the highest scores, which
        may be mislabelled positives, are left out. A negative at a cut may have a fractional weight.
    tpr : pair of float, default=(0.0, 1.0)
        The range of true positive rates: (0.5, 1.0) uses the positives with the lower scores.
    ranking, step : str and float, default="batch" and 0.1
        As in `AoRRLoss`. A batch should hold at least 1 / hi negatives; "stream" allows narrower ranges.

    Notes
    -----
    The loss of a batch without positives or without negatives is 0. A NaN among the scores makes it NaN. Tracked cuts
    change in training mode only and are part of the state_dict.

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
        ranking: str = "batch",
        step: float = 0.1,
    ) -> None:
        super().__init__()
        self.fpr, self.tpr = check_rates("fpr", fpr), check_rates("tpr", tpr)
        check_choice("ranking", ranking, "batch", "stream")
        self.ranking = ranking
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
        z = flat.to(sum_dtype(flat))
        q = self._weights(z.detach(), ~positive, self.fpr, self.negative_cuts)
        p = self._weights(-z.detach(), positive, (1.0 - self.tpr[1], 1.0 - self.tpr[0]), self.positive_cuts)
        return (p * _squared_hinge(z, q)).sum().to(scores.dtype)

    def _weights(self, z: Tensor, inside: Tensor, rates: tuple[float, float], cuts: StreamingCuts | None) -> Tensor:
        """The weight of each score in the mean over its class; with tracked cuts their sum is only about 1."""
        n = inside.sum().to(z.dtype)
        kept = ((rates[1] - rates[0]) * n).clamp(min=torch.finfo(z.dtype).tiny)
        if cuts is None:
            shares = ranks_of(z, inside.long()).shares(rates[0] * n, rates[1] * n)
        else:
            shares = cut_weights(z, cuts(z[inside], RankedRange(*rates), None, None)[1])
        return torch.where(inside, shares, 0.0).to(z.dtype) / kept

    def extra_repr(self) -> str:
        return f"fpr={self.fpr}, tpr={self.tpr}, ranking={self.ranking!r}"


def _squared_hinge(z: Tensor, q: Tensor) -> Tensor:
    """For each score u the sum over all scores v of q max(0, 1 - (u - v))^2."""
    z = z - z.detach().mean()  # small numbers have exact squares; and a NaN makes all of them NaN
    ordered, order = z.detach().sort()
    v, weights, reach = z[order], q[order], 1.0 - z
    first = torch.searchsorted(ordered, -reach.detach(), right=True)
    mass, linear, square = (_sums_from_the_top(weights * v**power)[first] for power in range(3))
    return square + reach * (2.0 * linear + reach * mass)


def _sums_from_the_top(values: Tensor) -> Tensor:
    return torch.cat([values.flip(0).cumsum(0).flip(0), values.new_zeros(1)])
