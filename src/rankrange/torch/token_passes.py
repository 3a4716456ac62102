"""Two ways to process tokens: one pass with all gradients, or a pass for scores and a second one over kept tokens only.

The second pass runs over blocks of words and uses the log-sum-exp of the first. The single pass runs over blocks of
tokens. Gradients are accumulated in float32; that of the matrix with `chunk` in place, in its own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from .cuts import sum_dtype
from .distributed import joint_value, sum_over
from .token_scores import Head, Scores, add_product_, blocks, logits_of, score, slopes_

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Tokens(NamedTuple):
    """A flattened batch; ignored tokens (not `counted`) have the target 0 and the weight 0."""

    hidden: Tensor
    target: Tensor
    counted: Tensor
    weights: Tensor
    length: int  # of a document


def document_means(values: Tensor, tokens: Tokens) -> Tensor:
    """The mean over the counted tokens of each document; 0 without any."""
    counted = tokens.counted.view(-1, tokens.length)
    return torch.where(counted, values.view_as(counted), 0.0).sum(1) / counted.sum(1).clamp(min=1)


class Kept(NamedTuple):
    """The tokens in the loss: distinct positions and their weights, 0 for unused positions."""

    position: Tensor
    weight: Tensor
    total: Tensor  # the sum of the weights; NaN makes the loss and its gradients NaN


@torch.no_grad()
def score_all(tokens: Tokens, head: Head) -> Scores:
    """The scores of all tokens, a block of logits at a time."""
    hidden, target = tokens.hidden, tokens.target
    columns = hidden.new_zeros(5, len(hidden), dtype=sum_dtype(hidden))
    for block in blocks(len(hidden), len(head.weight), head):
        columns[:, block] = torch.stack(score(logits_of(hidden[block], head), target[block], head))
    return Scores(*columns)


def kept_mean(
    tokens: Tokens, head: Head, scores: Scores, kept: Kept, group: ProcessGroup | None, reduction: str = "mean"
) -> Tensor:
    """The weighted mean or sum of the losses of the kept tokens over the group; its gradient takes a second pass."""
    losses = scores.loss[kept.position]
    value = (torch.where(kept.weight != 0, losses, 0.0) * kept.weight).sum()
    picked = kept.position, tokens.target[kept.position], kept.weight, scores.lse[kept.position]
    value = _KeptSum.apply(tokens.hidden, head.weight, head.bias, value, picked, head.settings)
    return _reduced(value, kept.total, group, reduction)


def mean_of_all(
    tokens: Tokens,
    head: Head,
    group: ProcessGroup | None,
    weigh: Callable[[Scores], Tensor] | None = None,
    reduction: str = "mean",
) -> tuple[Tensor, Scores, Tensor]:
    """The weighted mean or sum of the losses over the group, and scores and weights of all tokens.

    The weights of a block of tokens are multiplied by `weigh` of its scores.
    """
    inputs: tuple[Tensor | None, ...] = (tokens.hidden, head.weight, head.bias)
    if not torch.is_grad_enabled():  # autograd would still ask for the gradients of parameters
        inputs = tuple(x if x is None else x.detach() for x in inputs)
    value, weights, scores = _OnePass.apply(*inputs, (tokens.target, tokens.weights, weigh), head.settings)
    return _reduced(value, weights.sum(), group, reduction), Scores(*scores), weights


def _reduced(value: Tensor, total: Tensor, group: ProcessGroup | None, reduction: str) -> Tensor:
    """The mean or sum over the group, from the weighted sum of losses and the sum of weights in this process."""
    total = sum_over(total.clone(), group)
    total = torch.where(total == 0, 1.0, total) if reduction == "mean" else torch.where(total.isnan(), total, 1.0)
    return joint_value(value, group) / total


class _KeptSum(torch.autograd.Function):
    """A value that was computed before, with the gradient of the second pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, value: Tensor, picked: Any, settings: Any
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias, *picked)
        ctx.settings = settings
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivatives()
        hidden, weight, bias, index, target, slopes, lse = ctx.saved_tensors
        head, wants = Head(weight, bias, *ctx.settings), ctx.needs_input_grad
        h, slopes = hidden[index], slopes * upstream[0]
        wide = sum_dtype(hidden)
        grad_h = torch.zeros(h.shape, dtype=wide, device=h.device) if wants[0] else None
        grad_w = torch.zeros_like(weight) if wants[1] else None
        grad_b = None if bias is None or not wants[2] else torch.zeros_like(bias)
        for words in blocks(len(weight), len(h), head) if len(h) else ():
            z = slopes_(logits_of(h, head, words), target, lse, slopes, head, words.start)
            if grad_h is not None:
                add_product_(grad_h, z, weight[words])
            if grad_w is not None:
                torch.mm(z.t(), h, out=grad_w[words])
            if grad_b is not None:
                grad_b[words] = z.sum(0, dtype=wide).to(bias.dtype)
            del z
        if grad_h is not None:
            grad_h = torch.zeros_like(hidden).index_copy_(0, index, grad_h.to(hidden.dtype))
        return grad_h, grad_w, grad_b, None, None, None


class _OnePass(torch.autograd.Function):
    """The sum of the weighted losses, the weights and the scores of the tokens; gradients in the same pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, given: Any, settings: Any
    ) -> tuple[Tensor, ...]:
        target, weights, weigh = given
        head, wants, wide = Head(weight, bias, *settings), ctx.needs_input_grad, sum_dtype(hidden)
        # With chunks in place, except in float16, where a sum over many tokens may overflow.
        sums = weight.dtype if head.chunk and weight.dtype != torch.float16 else wide
        grad_h = torch.zeros_like(hidden) if wants[0] else None
        new = torch.empty if len(hidden) else torch.zeros  # the first block overwrites it
        grad_w = new(weight.shape, dtype=sums, device=weight.device) if wants[1] else None
        grad_b = None if bias is None or not wants[2] else torch.zeros(bias.shape, dtype=wide, device=bias.device)
        columns, weights = hidden.new_zeros(5, len(hidden), dtype=wide), weights.clone()
        for block in blocks(len(hidden), len(weight), head):
            h, y = hidden[block], target[block]
            z = logits_of(h, head)
            found = score(z, y, head)
            if weigh is not None:
                weights[block] *= weigh(found).to(wide)
            columns[:, block] = torch.stack(found)
            if any(wants[:3]):
                slopes_(z, y, found.lse, weights[block], head)
            if grad_h is not None:
                torch.mm(z, weight, out=grad_h[block])
            if grad_w is not None:
                add_product_(grad_w, z.t(), h, overwrite=block.start == 0)
            if grad_b is not None:
                grad_b += z.sum(0, dtype=wide)
            del z  # before the next block is computed
        value = (torch.where(weights != 0, Scores(*columns).loss, 0.0) * weights).sum()
        ctx.dtypes = hidden.dtype, weight.dtype, None if bias is None else bias.dtype
        ctx.once = [grad_h, grad_w, grad_b] if head.chunk else None
        if ctx.once is None:
            ctx.save_for_backward(grad_h, grad_w, grad_b)
        ctx.mark_non_differentiable(weights, columns)
        return value, weights, columns

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivatives()
        gradients = ctx.saved_tensors if ctx.once is None else ctx.once
        if not gradients:
            raise RuntimeError("with chunk= gradients are scaled in place; call backward once, or leave chunk out")
        scaled = [
            None if gradient is None else _scaled(gradient, upstream[0], dtype, ctx.once is not None)
            for gradient, dtype in zip(gradients, ctx.dtypes, strict=True)
        ]
        if ctx.once is not None:
            ctx.once.clear()
        return *scaled, None, None


def _refuse_second_derivatives() -> None:
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # only with create_graph=True
        raise RuntimeError(
            "this loss has no second derivatives, got create_graph=True; leave it out, or use "
            "rankrange.torch.ranked_range of the losses of all logits"
        )


def _scaled(gradient: Tensor, by: Tensor, dtype: torch.dtype, in_place: bool) -> Tensor:
    """gradient * by in this dtype, without a whole copy in a wider one."""
    if in_place:
        return gradient.mul_(by).to(dtype)
    return torch.mul(gradient, by, out=torch.empty_like(gradient, dtype=dtype))
