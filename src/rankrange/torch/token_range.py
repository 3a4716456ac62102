"""The ranked range of the token losses of a language model, fused with its last layer to save memory.

    logits = hidden @ weight.T          losses = cross_entropy(logits, target)          ranked range of the losses

A first pass over blocks of tokens finds the loss and the rank of every token. A second pass, over blocks of words,
computes logits and gradients of the kept tokens only: 1 + 3 s matrix products for a kept share s. The mean of all
losses takes one pass and 3 products.

Nothing synchronises with the device: with ignored tokens the second pass has room for the largest possible number of
kept ones, and unused positions have weight 0. Only in a process group, where the number of kept tokens of a process
depends on the others, do the processes and the device synchronise. Ties at a cut are broken by position, so weights are
0 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..core.ranges import Rank, RankedRange
from .cuts import ranks_on_device, sum_dtype
from .distributed import gather_rows
from .functional import as_range, check_choice
from .kernels import out_of_bounds, transforms_active
from .token_passes import Head, Kept, Scores, Tokens, document_means, kept_mean, mean_of_all, score_all

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

TokenWeights: TypeAlias = Tensor | Callable[[Tensor], Tensor]


def linear_ranked_range(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    m: Rank | RankedRange,
    k: Rank | None = None,
    *,
    key: str | None = None,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    per: str = "token",
    reference: Tensor | None = None,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
    token_weights: TokenWeights | None = None,
    reduction: str = "mean",
    chunk: int | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Mean cross-entropy of the tokens or sequences ranked m+1 to k, from hidden states and the last layer.

    The logits of all tokens are never in memory at once.

    Parameters
    ----------
    hidden, weight : Tensor of shape (..., features) and (words, features)
        Input and matrix of the model's last layer, of any floating dtype: logits are `hidden @ weight.T + bias`.
    target : Tensor of shape (...)
        The index of the true word of each token; for next-token prediction, already shifted by one. An index outside
        of the words, other than `ignore_index`, is an error on a CPU; on a GPU it is not checked.
    m, k : int, float or RankedRange
        How many tokens or sequences to drop, and the last rank to keep, as counts or fractions; at least one is kept.
        Counts that exceed the batch are an error on a CPU and make the loss NaN on a GPU. One `RankedRange` as m
        defines both; the median and a single rank as a fraction synchronise with the device.
    key : {"excess", "loss", "reference"}, optional
        What decides which tokens are kept. "excess", the default for tokens, is the loss (without label smoothing)
        minus the entropy of the prediction. "loss" is the default for sequences. "reference", the default if
        `reference` is given, is the loss minus `reference`.
    bias, ignore_index : Tensor of shape (words,) and int, default=None and -100
        The bias of the last layer, and the target of tokens that are neither ranked nor counted.
    per : {"token", "sequence"}, default="token"
        Whether to rank single tokens, or by their mean key the rows of a target of shape (sequences, length).
    reference : Tensor of the shape of `target`, optional
        The losses of the same tokens under another model, for key="reference".
    softcap, label_smoothing : float
        Logits become softcap * tanh(logits / softcap); label smoothing is that of `torch.nn.CrossEntropyLoss`.
    token_weights : Tensor of the shape of `target` or function, optional
        Weights w, without gradient, that do not change the ranks: the mean is the sum of w * loss over the kept tokens
        divided by the sum of their w. A function gets the losses (n,) of a block of tokens and returns their weights.
    reduction : {"mean", "sum"}, default="mean"
        "sum" does not divide; use it for weights that may be negative, such as advantages.
    chunk : int, optional
        How many tokens may have their logits in memory at a time (1,024 need .25 GiB for 128,000 words in bfloat16),
        instead of .5 GiB on a GPU. If everything is kept, the gradient of the matrix is then accumulated in the dtype
        of the matrix and not in float32, and backward can be called once only.
    group : torch.distributed process group, optional
        The processes whose tokens are ranked together, as in `ranked_range`.

    Returns
    -------
    Tensor
        The mean or sum over the kept tokens, float64 for float64 and float32 otherwise; 0 if no token counts. It
        carries gradients for `hidden`, `weight` and `bias`.

    Notes
    -----
    Only first derivatives exist, and transforms of `torch.func` are an error. A vocabulary that is split over processes
    is not supported. Equal keys do not share the weight of a cut: they are ranked by position, the first one first. A
    NaN among the logits of a token that is not ignored makes the loss and all gradients NaN.

    Examples
    --------
    >>> import torch
    >>> hidden, weight = torch.eye(3), 2.0 * torch.eye(3)
    >>> target = torch.tensor([0, 1, 0])  # the last one is not what the model expects
    >>> round(float(linear_ranked_range(hidden, weight, target, 0, 1.0)), 4)
    0.9062
    >>> round(float(linear_ranked_range(hidden, weight, target, 1, 3)), 4)
    0.2395
    """
    check_choice("reduction", reduction, "mean", "sum")
    head = Head(weight, bias, softcap, label_smoothing, chunk)
    tokens = prepared(hidden, head, target, ignore_index, token_weights)
    ranking = Ranking.checked(as_range(m, k), key, per, reference, target)
    return mean_in_range(tokens, ranking, group, reduction)[0]


def token_losses(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    ignore_index: int = -100,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
    chunk: int | None = None,
) -> Tensor:
    """Cross-entropy of every token, without gradient; the logits of all tokens are never in memory at once.

    Parameters
    ----------
    hidden, weight, target, bias, ignore_index, softcap, label_smoothing, chunk : Tensor, int or float
        As in `linear_ranked_range`.

    Returns
    -------
    Tensor of the shape of `target`
        The losses, float64 for float64 and float32 otherwise; 0 for ignored tokens.

    Examples
    --------
    >>> import torch
    >>> token_losses(torch.eye(3), 2.0 * torch.eye(3), torch.tensor([0, 1, 0]))
    tensor([0.2395, 0.2395, 2.2395])
    """
    head = Head(weight, bias, softcap, label_smoothing, chunk)
    tokens = prepared(hidden.detach(), head, target, ignore_index, None)
    return torch.where(tokens.counted, score_all(tokens).loss, 0.0).reshape(target.shape)


class Ranking(NamedTuple):
    """What is ranked, by which key, and what is kept of it."""

    keep: RankedRange
    key: str
    per: str
    reference: Tensor | None

    @classmethod
    def checked(cls, keep: RankedRange, key: str | None, per: str, reference: Tensor | None, target: Tensor) -> Ranking:
        checked_names(key, per)
        if per == "sequence" and target.dim() < 2:
            raise ValueError(
                f"per='sequence' needs a target (sequences, length), got shape {tuple(target.shape)}; do not flatten it"
            )
        if key is None:
            key = "reference" if reference is not None else "excess" if per == "token" else "loss"
        if (key == "reference") != (reference is not None):
            given = "no reference" if reference is None else "a reference"
            raise ValueError(f"key='reference' and reference= belong together, got key={key!r} with {given}; pass both")
        if reference is not None and reference.shape != target.shape:
            raise ValueError(
                f"reference must hold one loss per token, shape {tuple(target.shape)}, got {tuple(reference.shape)}"
            )
        return cls(keep, key, per, reference)

    @property
    def keeps_all(self) -> bool:
        return self.keep.m == 0 and isinstance(self.keep.k, float) and self.keep.k == 1.0  # k=1 keeps one

    def keys(self, scores: Scores) -> Tensor:
        if self.reference is not None:
            return scores.loss - self.reference.reshape(-1).to(scores.loss.dtype)
        return scores.loss if self.key == "loss" else scores.excess


def mean_in_range(
    tokens: Tokens, ranking: Ranking, group: ProcessGroup | None, reduction: str = "mean"
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The mean or sum of the losses of the kept tokens, the weights of all tokens, and the two cuts, if any."""
    if ranking.keeps_all:
        value, _, weights = mean_of_all(tokens, group, reduction)
        return value, weights, None
    scores = score_all(tokens)
    if tokens.weigh is not None:
        tokens = tokens._replace(weights=tokens.weights * tokens.weigh(scores).to(tokens.weights.dtype))
    kept, cut = choose(scores, tokens, ranking, group)
    weights = torch.zeros_like(tokens.weights).scatter(0, kept.position, kept.weight)
    return kept_mean(tokens, scores, kept, group, reduction), weights, cut


@torch.no_grad()
def choose(scores: Scores, tokens: Tokens, ranking: Ranking, group: ProcessGroup | None) -> tuple[Kept, Tensor]:
    """The tokens whose key, or whose sequence's mean key, has a rank from m+1 to k, and the cuts of the keys."""
    keys, counted = ranking.keys(scores), tokens.counted
    if ranking.per == "token":
        position, chosen, cut = _in_range(keys, counted, ranking.keep, group)
    else:
        inside, length = counted.view(tokens.shape), tokens.shape[1]
        sequence, chosen, cut = _in_range(document_means(keys, tokens), inside.any(1), ranking.keep, group)
        position = (sequence[:, None] * length + torch.arange(length, device=keys.device)).reshape(-1)
        chosen = (chosen[:, None] & inside[sequence]).reshape(-1)
    weight = chosen * tokens.weights[position]
    broken = ((keys.isnan() | scores.loss.isnan()) & counted).any() | cut.isnan().any()
    return Kept(position, weight, torch.where(broken, torch.nan, weight.sum())), cut


def _in_range(
    keys: Tensor, counted: Tensor, keep: RankedRange, group: ProcessGroup | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Positions in this process, a mask of those in the range, and the cuts (lam, lam_hat), NaN unless m < k <= n."""
    if group is None:
        order, first, many, cut = _ordered(keys, counted, keep)
        # m and k of a median do not bound the number that it keeps, but `ranks_on_device` has counted on the host.
        room = _capacity(keep, len(keys)) if type(keep) is RankedRange else int(many)
        slot = torch.arange(room, device=keys.device)
        return order[(slot + first) % max(len(keys), 1)], slot < many, cut
    joined, mine = gather_rows(torch.stack([keys.double(), counted.double()], 1), group)
    order, first, many, cut = _ordered(joined[:, 0].to(keys.dtype), joined[:, 1] > 0, keep)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=keys.device))[mine]
    inside = (rank >= first) & (rank < first + many)
    # The number of kept tokens in this process is known only on the device, so this synchronises.
    return inside.nonzero()[:, 0], inside.new_ones(int(inside.sum())), cut


def _ordered(keys: Tensor, counted: Tensor, keep: RankedRange) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Positions by decreasing key, the start and length of the range in them, and the cuts as in `_in_range`.

    NaN is ranked as the smallest key; positions that are not counted come last.
    """
    low = torch.finfo(keys.dtype).min
    finite = torch.where(counted, keys.nan_to_num(nan=low, posinf=torch.inf, neginf=low), -torch.inf)
    values, order = finite.sort(descending=True, stable=True)
    n = counted.sum()
    m, k = ranks_on_device(keep, n)
    ends = torch.stack([k, m])
    cut = torch.full_like(ends, -torch.inf, dtype=keys.dtype)
    cut[1].fill_(torch.inf)
    if len(keys):
        cut = torch.where(ends > 0, values[(ends - 1).clamp(0, len(keys) - 1)], cut)
    exist = (m >= 0) & (m < k) & (k <= n) | (n == 0)
    return order, m, (k - m).clamp(min=0), torch.where(exist, cut, torch.nan)


def _capacity(keep: RankedRange, n: int) -> int:
    """The largest number that can be kept of up to n counted tokens."""
    ends = [[rank * size if isinstance(rank, float) else rank for rank in (keep.m, keep.k)] for size in (0, n)]
    return min(n, max(math.floor(max(k - m for m, k in ends)) + 1, 1))


# --- validation of inputs


def checked_names(key: str | None, per: str) -> None:
    check_choice("per", per, "token", "sequence")
    if key is not None:
        check_choice("key", key, "excess", "loss", "reference")


def prepared(
    hidden: Tensor, head: Head, target: Tensor, ignore_index: int, token_weights: TokenWeights | None
) -> Tokens:
    """Validated, gathered and flattened inputs, in the dtype of autocast if it is on."""
    if transforms_active():
        raise NotImplementedError(
            "transforms of torch.func do not support this loss; use torch.autograd, or rankrange.torch.ranked_range of "
            "the losses of all logits"
        )
    _check_head(hidden, head)
    if target.shape != hidden.shape[:-1] or target.is_floating_point() or target.dtype == torch.bool:
        raise ValueError(
            f"target must hold one integer per token, shape {tuple(hidden.shape[:-1])}, got {target.dtype} of shape "
            f"{tuple(target.shape)}"
        )
    if isinstance(token_weights, Tensor) and token_weights.shape != target.shape:
        raise ValueError(
            f"token_weights must hold one weight per token, shape {tuple(target.shape)}, got "
            f"{tuple(token_weights.shape)}"
        )
    bias = None if head.bias is None else _gathered(head.bias)
    hidden, weight, bias = _one_dtype(hidden, _gathered(head.weight), bias)
    flat = target.reshape(-1).long()
    counted = flat != ignore_index
    inside = torch.where(counted, flat, 0)
    if wrong := out_of_bounds(inside, 0, len(weight)):
        raise ValueError(f"targets must be from 0 to {len(weight) - 1} or ignore_index={ignore_index}, got {wrong}")
    weights, weigh = counted.to(sum_dtype(hidden)), None
    if isinstance(token_weights, Tensor):
        weights = torch.where(counted, token_weights.detach().reshape(-1).to(weights.dtype), 0.0)
    elif token_weights is not None:
        weigh = lambda scores: token_weights(scores.loss).detach()  # noqa: E731
    head, hidden = head._replace(weight=weight, bias=bias), hidden.reshape(-1, hidden.shape[-1])
    shape = math.prod(target.shape[:-1]), target.shape[-1]
    return Tokens(hidden, inside, counted, weights, shape, head, weigh)


def _check_head(hidden: Tensor, head: Head) -> None:
    weight, bias = head.weight, head.bias
    if hidden.dim() < 2 or weight.dim() != 2 or hidden.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"need hidden (..., features) and weight (words, features), got shapes {tuple(hidden.shape)} and "
            f"{tuple(weight.shape)}; pass the last layer's input and its matrix"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must have shape ({len(weight)},), got {tuple(bias.shape)}")
    if head.softcap is not None and not 0 < head.softcap < math.inf:
        raise ValueError(f"softcap must be positive, got {head.softcap!r}; leave it out for none")
    if not 0.0 <= head.label_smoothing < 1.0:
        raise ValueError(f"label_smoothing must be in [0, 1), got {head.label_smoothing!r}")
    if head.chunk is not None and head.chunk < 1:
        raise ValueError(f"chunk must be a number of tokens of at least 1, got {head.chunk!r}; leave it out for none")


def _gathered(parameter: Tensor) -> Tensor:
    """Gather a parameter that is sharded over processes (FSDP2), and average its gradient; return others unchanged."""
    if not hasattr(parameter, "full_tensor"):
        return parameter
    from torch.distributed.tensor import Partial

    whole: Tensor = parameter.full_tensor(grad_placements=[Partial("avg")] * parameter.device_mesh.ndim)  # type: ignore[attr-defined]
    return whole


def _one_dtype(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    kind = hidden.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        if hidden.dtype != torch.float64:
            hidden, weight = hidden.to(dtype), weight.to(dtype)
    if not hidden.is_floating_point() or hidden.dtype != weight.dtype:
        raise TypeError(
            f"hidden and weight must be floating point of one dtype, got {hidden.dtype} and {weight.dtype}; "
            "convert one of them, or use torch.autocast"
        )
    return hidden, weight, None if bias is None else bias.to(weight.dtype)
