"""A block of logits at a time: scores of tokens, derivatives of their losses, and the passes that use them.

Logits are processed in blocks: some tokens with all words, or all tokens with some words. Eager PyTorch defines the
results; on a GPU with Triton one kernel computes the scores and one the derivatives.

For the logits z of one token with target y (after the soft cap, cap * tanh(z / cap)) and p = softmax(z):
    nll     = log-sum-exp(z) - z_y
    loss    = (1 - s) nll + s (log-sum-exp(z) - mean z)          s = label_smoothing, as in nn.CrossEntropyLoss
    excess  = nll - entropy(p) = sum p z - z_y                   the nll minus its expectation under the model
    rank    = share of the words that are less likely than y

There is one pass over blocks of tokens with all gradients, or a pass for scores and a second one over the kept tokens
only, which runs over blocks of words and uses the log-sum-exp of the first. Gradients are accumulated in float32; that
of the matrix with `chunk` in place, in its own dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from . import kernels
from .cuts import sum_dtype
from .distributed import joint_value, sum_over

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

if kernels.TRITON:
    import triton

    from . import _token_kernels

# Bytes of logits in memory at a time. On a GPU products need large blocks to run at full speed.
_MAX_BYTES = {"cuda": 1 << 29, "cpu": 1 << 25}
_WIDE_PRODUCTS = "dtype_out" in torch.ops.aten.addmm.overloads()  # half-precision products accumulated in float32


class Head(NamedTuple):
    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None
    label_smoothing: float = 0.0
    chunk: int | None = None

    @property
    def settings(self) -> tuple[float | None, float, int | None]:
        return self[2:]


class Scores(NamedTuple):
    """Scores of tokens, one number per token: the log-sum-exp `lse`, and those of the module docstring."""

    lse: Tensor
    nll: Tensor
    loss: Tensor
    excess: Tensor
    rank: Tensor


def logits_of(hidden: Tensor, head: Head, words: slice = slice(None)) -> Tensor:
    weight = head.weight[words]
    return hidden @ weight.t() if head.bias is None else torch.addmm(head.bias[words], hidden, weight.t())


def blocks(n: int, width: int, head: Head) -> Iterator[slice]:
    """Slices of n rows, so that blocks of this width fit into the memory limit of logits."""
    weight = head.weight
    most_bytes = _MAX_BYTES.get(weight.device.type, _MAX_BYTES["cuda"])
    if head.chunk is not None:
        most_bytes = head.chunk * weight.shape[0] * weight.element_size()
    most = max(most_bytes // max(width * weight.element_size(), 1), 1)
    size = max(-(-n // -(-n // most)), 1) if n else 1
    size = min(-(-size // 128) * 128, most) if size > 128 else size  # multiples of the tile size
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def score(logits: Tensor, target: Tensor, head: Head) -> Scores:
    wide = sum_dtype(logits)
    if kernels.fits(logits):
        columns = _token_scores(logits, target, head.softcap)
    else:
        columns = _eager_columns(logits.to(wide), target, head.softcap)
    lse, given, expected, mean, rank = columns.unbind()
    nll, smooth = lse - given, head.label_smoothing
    loss = nll if smooth == 0 else (1 - smooth) * nll + smooth * (lse - mean)
    return Scores(lse, nll, loss, expected - given, rank)


def slopes_(logits: Tensor, target: Tensor, lse: Tensor, weight: Tensor, head: Head, first_word: int = 0) -> Tensor:
    """Overwrite the logits of a block by the weight of each token times the derivative of its loss, and return them.

    The block starts at the word `first_word`. For weight 0 the result is 0, even if the derivative is NaN.
    """
    smooth = head.label_smoothing
    on_all = smooth / head.weight.shape[0]
    if kernels.fits(logits):
        _token_slopes_(logits, target, lse, weight, first_word, head.softcap, 1 - smooth, on_all)
        return logits
    z = _capped(logits.to(lse.dtype), head.softcap)
    slope = torch.exp(z - lse[:, None]) - on_all
    words = torch.arange(first_word, first_word + z.shape[1], device=z.device)
    slope = slope - (words == target[:, None]).to(slope.dtype) * (1 - smooth)
    if head.softcap is not None:
        slope = slope * (1 - (z / head.softcap) ** 2)
    return logits.copy_(torch.where(weight[:, None] == 0, 0.0, weight[:, None] * slope))


def add_product_(total: Tensor, a: Tensor, b: Tensor, overwrite: bool = False) -> None:
    """total += a @ b, or total = a @ b, in the dtype of `total`, which may be wider than that of the factors."""
    beta = 0 if overwrite else 1
    if a.is_cuda and _WIDE_PRODUCTS and a.dtype != total.dtype:
        torch.ops.aten.addmm.dtype_out(total, a, b, total.dtype, beta=beta, out=total)
    else:
        total.addmm_(a.to(total.dtype), b.to(total.dtype), beta=beta)


def _eager_columns(z: Tensor, target: Tensor, softcap: float | None) -> Tensor:
    z = _capped(z, softcap)
    lse = z.logsumexp(1)
    p = torch.exp(z - lse[:, None])
    given = z.gather(1, target[:, None])[:, 0]
    expected = torch.where(p == 0, 0.0, p * z).sum(1)  # impossible words have a logit of minus infinity
    rank = (z < given[:, None]).to(z.dtype).mean(1)
    return torch.stack([lse, given, expected, z.mean(1), rank])


def _capped(z: Tensor, softcap: float | None) -> Tensor:
    return z if softcap is None else softcap * torch.tanh(z / softcap)


@torch.library.custom_op("rankrange::token_scores", mutates_args=())
def _token_scores(logits: Tensor, target: Tensor, softcap: float | None) -> Tensor:
    logits = logits.contiguous()
    n_tokens, n_words = logits.shape
    out = torch.empty(5, n_tokens, dtype=torch.float32, device=logits.device)
    block = min(triton.next_power_of_2(n_words), 1 << 13)
    _token_kernels.token_scores[(n_tokens,)](
        logits, target.contiguous(), out, n_tokens, n_words, softcap or 1.0,
        CAP=softcap is not None, BLOCK=block, num_warps=8 if block >= 2048 else 4,
    )  # fmt: skip
    return out


@_token_scores.register_fake
def _(logits: Tensor, target: Tensor, softcap: float | None) -> Tensor:
    return logits.new_empty((5, logits.shape[0]), dtype=torch.float32)


@torch.library.custom_op("rankrange::token_slopes_", mutates_args=("logits",))
def _token_slopes_(
    logits: Tensor,
    target: Tensor,
    lse: Tensor,
    weight: Tensor,
    first_word: int,
    softcap: float | None,
    on_target: float,
    on_all: float,
) -> None:
    n_tokens, n_words = logits.shape
    block = min(triton.next_power_of_2(n_words), 1 << 12)
    _token_kernels.token_slopes[(n_tokens, triton.cdiv(n_words, block))](
        logits, target.contiguous(), lse.float().contiguous(), weight.float().contiguous(), n_words, first_word,
        softcap or 1.0, on_target, on_all, CAP=softcap is not None, BLOCK=block, num_warps=8 if block >= 2048 else 4,
    )  # fmt: skip


@_token_slopes_.register_fake
def _(logits: Tensor, *_: Any) -> None:
    return None


# --- passes


class Tokens(NamedTuple):
    """A flattened batch and the last layer; ignored tokens (not `counted`) have the target 0 and the weight 0."""

    hidden: Tensor
    target: Tensor
    counted: Tensor
    weights: Tensor
    shape: tuple[int, int]  # the number of documents, and the length of each
    head: Head
    weigh: Callable[[Scores], Tensor] | None = None  # further factors of the weights, by the scores of a block


def document_means(values: Tensor, tokens: Tokens) -> Tensor:
    """The mean over the counted tokens of each document; 0 without any."""
    counted = tokens.counted.view(tokens.shape)
    return torch.where(counted, values.view_as(counted), 0.0).sum(1) / counted.sum(1).clamp(min=1)


class Kept(NamedTuple):
    """The tokens in the loss: distinct positions and their weights, 0 for unused positions."""

    position: Tensor
    weight: Tensor
    total: Tensor  # the sum of the weights; NaN makes the loss and its gradients NaN


@torch.no_grad()
def score_all(tokens: Tokens) -> Scores:
    """The scores of all tokens, a block of logits at a time."""
    hidden, target, head = tokens.hidden, tokens.target, tokens.head
    columns = hidden.new_zeros(5, len(hidden), dtype=sum_dtype(hidden))
    for block in blocks(len(hidden), len(head.weight), head):
        columns[:, block] = torch.stack(score(logits_of(hidden[block], head), target[block], head))
    return Scores(*columns)


def kept_mean(
    tokens: Tokens, scores: Scores, kept: Kept, group: ProcessGroup | None, reduction: str = "mean"
) -> Tensor:
    """The weighted mean or sum of the losses of the kept tokens over the group; its gradient takes a second pass."""
    losses, head = scores.loss[kept.position], tokens.head
    value = (torch.where(kept.weight != 0, losses, 0.0) * kept.weight).sum()
    picked = kept.position, tokens.target[kept.position], kept.weight, scores.lse[kept.position]
    value = _KeptSum.apply(tokens.hidden, head.weight, head.bias, value, picked, head.settings)
    return _reduced(value, kept.total, group, reduction)


def mean_of_all(tokens: Tokens, group: ProcessGroup | None, reduction: str = "mean") -> tuple[Tensor, Scores, Tensor]:
    """The weighted mean or sum of the losses over the group, and scores and weights of all tokens."""
    head = tokens.head
    inputs: tuple[Tensor | None, ...] = (tokens.hidden, head.weight, head.bias)
    if not torch.is_grad_enabled():  # autograd would still ask for the gradients of parameters
        inputs = tuple(x if x is None else x.detach() for x in inputs)
    value, weights, scores = _OnePass.apply(*inputs, (tokens.target, tokens.weights, tokens.weigh), head.settings)
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
