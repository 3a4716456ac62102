"""Scores of tokens from their logits, derivatives of the loss with respect to logits, and blocked matrix products.

Logits are processed in blocks: some tokens with all words, or all tokens with some words. Eager PyTorch defines the
results; on a GPU with Triton one kernel computes the scores and one the derivatives.

For the logits z of one token with target y (after the soft cap, cap * tanh(z / cap)) and p = softmax(z):
    nll     = log-sum-exp(z) - z_y
    loss    = (1 - s) nll + s (log-sum-exp(z) - mean z)          s = label_smoothing, as in nn.CrossEntropyLoss
    excess  = nll - entropy(p) = sum p z - z_y                   the nll minus its expectation under the model
    rank    = share of the words that are less likely than y
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import kernels
from .cuts import sum_dtype

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
