"""The ranked range and the TKML loss in eager PyTorch. The kernels are tested against these definitions.

Cuts (see `cuts`) are found on detached losses, and no gradient flows through a sort: the derivative of the sum with
respect to a loss is its weight. No function synchronises with the device, so values are not checked: a NaN among the
losses makes the result and every weight NaN. An infinite loss among the m largest is dropped like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..core.ranges import Rank, RankedRange
from . import kernels
from .cuts import cut_at_ranks, cut_weights, ranks_of, sum_dtype, weighted_sum
from .distributed import joint_ranked_range

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from ..core.aggregates import RankWeights


def ranked_range(
    losses: Tensor,
    m: Rank | RankedRange,
    k: Rank | None = None,
    *,
    dim: int | None = None,
    reduction: str = "mean",
    group: ProcessGroup | None = None,
) -> Tensor:
    """Mean or sum of the losses ranked m+1 to k, where rank 1 is the largest loss.

    Parameters
    ----------
    losses : Tensor
        Losses of any floating dtype, with at least one dimension. The result for an empty tensor is 0.
    m, k : int, float or RankedRange
        How many of the largest losses to drop, and the last rank to keep, 0 <= m < k <= n; an int is a count, a float a
        fraction, rounded to a count. One `RankedRange` as m defines both.
    dim : int, optional
        The dimension along which losses are ranked; by default all losses are ranked together.
    reduction : {"mean", "sum"}, default="mean"
        The reduction of the kept losses.
    group : torch.distributed process group, optional
        A group whose losses are ranked together, exactly. Every process returns the value of the joined batch; the
        average of its gradients over the processes, as in DistributedDataParallel, is that of the joined batch.

    Returns
    -------
    Tensor
        The mean or sum: a scalar, or with `dim` a tensor without that dimension. Losses tied at a cut share its weight
        equally. A NaN among the losses makes it NaN.

    Examples
    --------
    >>> import torch
    >>> ranked_range(torch.tensor([9.0, 2.0, 1.0, 0.0]), 1, 3)
    tensor(1.5000)
    """
    check_choice("reduction", reduction, "mean", "sum")
    rows = as_rows(losses, dim)
    if group is not None:
        if dim is not None:
            raise ValueError(f"a group ranks all its losses together, got dim={dim} as well; leave dim out")
        return joint_ranked_range(rows, as_range(m, k), reduction, group)[0]
    if rows.shape[-1] == 0:
        as_range(m, k)
        return rows.sum(-1)
    return select(rows, *as_range(m, k).counts(rows.shape[-1]), reduction)[0]


def select(rows: Tensor, m: int, k: int, reduction: str = "mean") -> tuple[Tensor, Tensor]:
    """The mean or sum and the cut of each row, for 0 <= m < k <= n; the cut has no gradient."""
    scale = 1.0 / (k - m) if reduction == "mean" else 1.0
    if kernels.fits_ranked_range(rows):
        return kernels.ranked_range(rows, m, k, scale)
    cut = cut_at_ranks(rows.detach(), m, k)
    return weighted_sum(rows, cut_weights(rows.detach(), cut), scale), cut


def rank_weighted_mean(losses: Tensor, weights: RankWeights) -> Tensor:
    """Weighted mean of the losses with a weight for each rank, where rank 1 is the largest loss.

    Parameters
    ----------
    losses : Tensor of shape (n,)
        One loss per sample.
    weights : RankWeights
        The weight of each rank; tied losses share the weights of their ranks equally.

    Returns
    -------
    Tensor
        A scalar; 0 for an empty batch.

    Examples
    --------
    >>> import rankrange, torch
    >>> rank_weighted_mean(torch.tensor([1.0, 5.0]), rankrange.RankWeights([3, 1]))
    tensor(4.)
    """
    if losses.dim() != 1:
        raise ValueError(f"losses must have shape (n,), got {tuple(losses.shape)}; reshape them")
    if not hasattr(weights, "on"):
        raise TypeError(f"weights must be RankWeights(...), got {type(weights).__name__}; use RankWeights({weights!r})")
    n = len(losses)
    if n == 0:
        return losses.sum()
    by_rank = np.append(0.0, np.cumsum(weights.on(np.arange(n, 0, -1))))
    total = torch.as_tensor(by_rank, device=losses.device)
    ranks = ranks_of(losses.detach(), torch.zeros(n, dtype=torch.int64, device=losses.device))
    shares = (total[ranks.through.long()] - total[ranks.above.long()]) / (ranks.through - ranks.above)
    return weighted_sum(losses, torch.where(losses.detach().isnan().any(), torch.nan, shares), 1.0)


def tkml(scores: Tensor, target: Tensor, top_k: int, *, two_sided: bool = True, reduction: str = "mean") -> Tensor:
    """Top-k multi-label loss: the true labels of a row should be among its top_k highest scores.

    Parameters
    ----------
    scores, target : Tensor of shape (B, L), and Tensor
        Scores of the labels, and a 0/1 mask (B, L), label indices (B, P) padded with -1, or one index per row (B,). A
        target with the shape of the scores is always a mask. An index outside of -1 to L - 1 is an error on a CPU; on a
        GPU and in transforms such as `torch.func.grad` it makes the loss of its row NaN.
    top_k : int
        How many labels are predicted; fewer than L.
    two_sided : bool, default=True
        False is the loss of the paper, with k = top_k: max(0, 1 + the (k+1)-th largest score - the lowest true score).
        True differs for rows with more than k true labels: max(0, 1 + the highest false score - the k-th largest true
        score).
    reduction : {"mean", "sum", "none"}, default="mean"
        The reduction over the rows.

    Returns
    -------
    Tensor
        The mean or sum, a scalar (0 for B = 0), or with reduction="none" the loss of each row, (B,). The loss is 0 for
        a row without true labels, and in the two-sided form for a row without false labels. It is NaN for a row with a
        NaN score. Scores tied at a selected value share its gradient equally; at the kink of the hinge it is 0.

    Examples
    --------
    >>> import torch
    >>> tkml(torch.tensor([[3.0, 1.0, 0.5]]), torch.tensor([[1, 0, 0]]), 1)
    tensor(0.)
    >>> tkml(torch.tensor([[3.0, 1.0, 0.5]]), torch.tensor([[0, 1, 0]]), 1)
    tensor(1.)
    """
    check_choice("reduction", reduction, "mean", "sum", "none")
    mask, invalid = _label_mask(_check_tkml(scores, target, top_k), scores.shape[1])
    if kernels.fits_tkml(scores, top_k):
        losses = kernels.tkml(scores, mask, top_k, two_sided)
    else:
        losses = _tkml_rows(scores, mask, top_k, two_sided)
    if invalid is not None:
        losses = torch.where(invalid, torch.nan, losses)
    if reduction == "none":
        return losses
    return losses.mean() if reduction == "mean" and len(losses) else losses.sum()


def _tkml_rows(scores: Tensor, true: Tensor, top_k: int, two_sided: bool) -> Tensor:
    z = scores.detach()
    n_true = true.sum(1, keepdim=True)
    rise = z.topk(top_k + 1, 1).values[:, -1:]
    fall = z.masked_fill(~true, torch.inf).amin(1, keepdim=True)
    rivals = torch.ones_like(true)
    if two_sided:
        exceeds_k = n_true > top_k
        rise = torch.where(exceeds_k, z.masked_fill(true, -torch.inf).amax(1, keepdim=True), rise)
        fall = torch.where(exceeds_k, z.masked_fill(~true, -torch.inf).topk(top_k, 1).values[:, -1:], fall)
        rivals = ~(true & exceeds_k)
    # amax and amin over the tied scores alone give the value exactly and share its gradient equally.
    up = scores.masked_fill(~((z == rise) & rivals & (n_true > 0)), -torch.inf).amax(1)
    down = scores.masked_fill(~((z == fall) & true), torch.inf).amin(1).masked_fill(n_true[:, 0] == 0, 0.0)
    wide = sum_dtype(scores)
    losses = torch.relu(1.0 + up.to(wide) - down.to(wide))
    broken = z.isnan().any(1) | losses.isnan()  # a NaN score, or a true label at minus infinity among others
    not_a_number = torch.where(broken, torch.nan, 1.0) * scores.sum(1, dtype=wide)  # NaN, and so is its gradient
    return torch.where(broken, not_a_number, losses).to(scores.dtype)


def _check_tkml(scores: Tensor, target: Tensor, top_k: int) -> Tensor:
    if scores.dim() != 2 or not scores.is_floating_point():
        raise ValueError(
            f"scores must be floating point of shape (batch, labels), got {scores.dtype} of shape {tuple(scores.shape)}"
        )
    check_top_k(top_k)
    if top_k >= scores.shape[1]:
        raise ValueError(f"need 1 <= top_k < labels, got top_k={top_k} for {scores.shape[1]} labels; lower top_k")
    if target.dim() == 1:
        target = target.unsqueeze(1)
    if target.dim() != 2 or len(target) != len(scores):
        raise ValueError(
            f"target must be a 0/1 mask of shape {tuple(scores.shape)} or label indices of shape "
            f"({len(scores)}, P), got shape {tuple(target.shape)}"
        )
    if target.shape[1] != scores.shape[1] and (target.is_floating_point() or target.dtype == torch.bool):
        raise ValueError(
            f"a {target.dtype} target is a mask and must have the shape of the scores, {tuple(scores.shape)}, got "
            f"{tuple(target.shape)}; pass label indices as integers"
        )
    return target


def _label_mask(target: Tensor, n_labels: int) -> tuple[Tensor, Tensor | None]:
    """A mask (B, L) of the true labels, from a 0/1 mask or, for another width, from indices padded with -1.

    Of indices also the rows (B,) with one that is neither a label nor -1, which is no error if it takes waiting to see.
    """
    if target.shape[1] == n_labels:
        return target if target.dtype == torch.bool else target > 0, None
    if wrong := kernels.out_of_bounds(target, -1, n_labels):
        raise ValueError(
            f"label indices must be from 0 to {n_labels - 1}, or -1 for padding, got {wrong}; count labels from 0"
        )
    index = target.long()
    outside = (index < 0) | (index >= n_labels)
    # Padding has a column of its own, which is cut off, because a selection would wait for the device.
    mask = torch.zeros(len(target), n_labels + 1, dtype=torch.bool, device=target.device)
    mask = mask.scatter(1, torch.where(outside, n_labels, index), True)[:, :n_labels]
    return mask, (outside & (index != -1)).any(1)


def check_choice(name: str, value: Any, *choices: str) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}; choose one of these")


def check_top_k(top_k: Any) -> None:
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise ValueError(f"top_k must be an int of at least 1, got {top_k!r}")


def as_range(m: Rank | RankedRange, k: Rank | None) -> RankedRange:
    if isinstance(m, RankedRange):
        if k is not None:
            raise TypeError(f"{m!r} already defines k, got k={k!r} as well; leave k out")
        return m
    if k is None:
        raise TypeError(f"need both m and k, got m={m!r} alone; pass m and k, or one RankedRange")
    return RankedRange(m, k)


def as_rows(losses: Tensor, dim: int | None) -> Tensor:
    """The losses with the ranked dimension last; without `dim` all losses as one row."""
    if not losses.is_floating_point():
        raise TypeError(f"losses must be floating point, got {losses.dtype}; convert with .float()")
    if losses.dim() == 0:
        raise ValueError(
            "losses must have at least one dimension, got a single number; compute one loss per sample, "
            "with reduction='none'"
        )
    if dim is None:
        return losses if losses.dim() == 1 else losses.reshape(-1)
    return losses.movedim(dim, -1)
