"""Aggregates of a batch other than the ranked range: worst groups with trimming within groups, and weights by rank.

Weights are computed on detached losses, and tied losses have equal weights. Gradients flow only through the losses.
`rankrange.core.aggregates` is the definition.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..core.aggregates import RankWeights
from ..core.ranges import Rank, RankedRange
from ..core.rank_weights import on_ranks
from .cuts import counts_in_batch


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
        The weighted mean, a scalar; 0 for an empty batch.

    Examples
    --------
    >>> import torch
    >>> from rankrange import RankWeights
    >>> rank_weighted_mean(torch.tensor([1.0, 5.0]), RankWeights([3, 1]))
    tensor(4.)
    """
    if not isinstance(weights, RankWeights):
        raise TypeError(
            f"weights must be RankWeights(...), got {type(weights).__name__}; wrap it: RankWeights({weights!r})"
        )
    if losses.dim() != 1:
        raise ValueError(f"losses must have shape (n,), got {tuple(losses.shape)}; reshape them")
    if len(losses) == 0:
        return losses.sum()
    detached = losses.detach().double()
    order = torch.argsort(detached, descending=True, stable=True)
    spectrum = on_ranks(weights.source, len(losses))
    knots, total = (torch.as_tensor(x, device=losses.device) for x in (spectrum.knots, spectrum.cumulative))
    edges = torch.arange(len(losses) + 1, device=losses.device, dtype=torch.float64) / len(losses)
    cells = torch.diff(_interpolated(edges, knots, total))
    share = torch.empty_like(detached).index_copy(0, order, _shared_by_ties(cells, detached[order]))
    return (share.to(losses.dtype) * losses).sum()


def worst_group_mean(losses: Tensor, groups: Tensor, m: Rank = 0.0, *, worst: float = 0.0) -> Tensor:
    """Average of the largest group means, after the largest losses of each group are dropped.

    Parameters
    ----------
    losses : Tensor of shape (n,)
        One loss per sample.
    groups : Tensor of int of shape (n,)
        The group of each sample, any integers.
    m : int or float, default=0.0
        How many samples to drop, as a count or a fraction of the batch; up to rounding, the same share of each group
        is dropped. A group that loses all its samples does not count.
    worst : float, default=0.0
        The share of the groups to average over, at least one group; 0 is the worst group only. If this is not a whole
        number of groups, the last group has a fractional weight.

    Returns
    -------
    Tensor
        The average, a scalar; 0 for an empty batch.

    Examples
    --------
    >>> import torch
    >>> worst_group_mean(torch.tensor([1.0, 2.0, 3.0, 5.0]), torch.tensor([0, 0, 1, 1]))
    tensor(4.)
    """
    weights = group_weights(losses, groups, m, worst)
    return (weights.to(losses.dtype) * losses).sum()


def group_weights(losses: Tensor, groups: Tensor, m: Rank, worst: float) -> Tensor:
    """The weights (n,) of `worst_group_mean`, which sum to 1, in float64."""
    if losses.dim() != 1 or groups.shape != losses.shape or groups.is_floating_point():
        raise ValueError(
            f"groups must hold one integer per loss, got {groups.dtype} of shape {tuple(groups.shape)} for losses of "
            f"shape {tuple(losses.shape)}"
        )
    if not 0.0 <= worst <= 1.0:
        raise ValueError(f"worst must be a share of the groups in [0, 1], got {worst!r}")
    s = losses.detach().double()
    if len(s) == 0:
        return s
    _, code, sizes = torch.unique(groups, return_inverse=True, return_counts=True)
    caps = _left_in_groups(s, code, sizes, _quotas(counts_in_batch(RankedRange(m, 1.0), len(s))[0], sizes))
    left = torch.zeros(len(sizes), dtype=torch.float64, device=s.device).index_add(0, code, caps)
    means = torch.zeros_like(left).index_add(0, code, caps * s) / left.clamp_min(1e-300)
    share = _worst_share(torch.where(left > 0, means, -torch.inf), int((left > 0).sum()), worst)
    return (share / left.clamp_min(1e-300))[code] * caps


def _quotas(m: float, sizes: Tensor) -> Tensor:
    """m divided in proportion to the sizes, in integers, by largest remainders."""
    exact = float(m) * sizes.double() / sizes.sum()
    whole = torch.floor(exact + 1e-9)
    left = round(float(m) - float(whole.sum()))
    most = torch.argsort(whole - exact, stable=True)[:left]
    return whole.index_add(0, most, torch.ones(len(most), dtype=torch.float64, device=sizes.device))


def _left_in_groups(s: Tensor, code: Tensor, sizes: Tensor, quotas: Tensor) -> Tensor:
    """The weight of each loss, in [0, 1], after the `quotas` largest of each group are dropped; ties share equally.

    `code` is the group of each loss, from 0 on.
    """
    order = torch.argsort(s, descending=True, stable=True)
    order = order[torch.argsort(code[order], stable=True)]
    first = torch.cumsum(sizes, 0) - sizes
    rank = torch.arange(len(s), device=s.device) - first[code[order]]
    kept = (rank + 1 - quotas[code[order]]).clamp(0.0, 1.0)
    return torch.empty_like(s).index_copy(0, order, _shared_by_ties(kept, s[order], code[order]))


def _worst_share(means: Tensor, present: int, worst: float) -> Tensor:
    """The weight of each group: equal for the groups with the largest means, otherwise 0; the weights sum to 1.

    The share `worst` of the `present` groups has weights, and at least one group. If this is not a whole number, the
    last group has a smaller weight. Groups with equal means share their weights equally. `present` is the number of
    groups with samples left; the others have the mean minus infinity.
    """
    count = max(worst * present, 1.0)
    order = torch.argsort(means, descending=True, stable=True)
    cells = (count - torch.arange(len(means), device=means.device)).clamp(0.0, 1.0).double() / count
    return torch.empty_like(means).index_copy(0, order, _shared_by_ties(cells, means[order]))


def _shared_by_ties(cells: Tensor, ranked: Tensor, code: Tensor | None = None) -> Tensor:
    """Average the weights by rank, `cells`, over each run of equal values in `ranked` and equal groups in `code`."""
    change = ranked[1:] != ranked[:-1]
    if code is not None:
        change = change | (code[1:] != code[:-1])
    run = torch.cumsum(torch.cat([change.new_zeros(1), change]).long(), 0)
    sums = torch.zeros(len(cells), dtype=cells.dtype, device=cells.device).index_add(0, run, cells)
    sizes = torch.zeros_like(sums).index_add(0, run, torch.ones_like(cells))
    return (sums / sizes.clamp_min(1.0))[run]


def _interpolated(x: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Linear interpolation of `values` between `knots`; constant outside of them."""
    piece = torch.searchsorted(knots, x, right=True).clamp(1, len(knots) - 1)
    low, high = knots[piece - 1], knots[piece]
    return values[piece - 1] + (values[piece] - values[piece - 1]) * ((x - low) / (high - low)).clamp(0.0, 1.0)
