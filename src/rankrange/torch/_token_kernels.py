"""Triton kernels for blocks of logits: one read for the scores of tokens, one read and write for derivatives.

A block of logits is the part of `hidden @ weight.T` that is in memory at a time. Sums run in float32, in a fixed
order, so that results are the same bits on every run.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def capped(z, cap, CAP: tl.constexpr):
    """cap * tanh(z / cap), which stays exact for large z; z itself without a cap."""
    if CAP:
        e = tl.exp(-2.0 * tl.abs(z) / cap)
        size = cap * (1.0 - e) / (1.0 + e)
        return tl.where(z < 0, -size, size)
    return z


@triton.jit
def token_scores(logits, target, out, n_tokens, n_words, cap, CAP: tl.constexpr, BLOCK: tl.constexpr):
    """For one token: log-sum-exp, logit of the target, expected and mean logit, share of words below the target."""
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * n_words
    given = capped(tl.load(row + tl.load(target + token)).to(tl.float32), cap, CAP)
    top = tl.full((), float("-inf"), tl.float32)
    total, moment, plain, below = 0.0, 0.0, 0.0, 0.0
    for start in range(0, n_words, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < n_words
        z = capped(tl.load(row + at, inside, other=float("-inf")).to(tl.float32), cap, CAP)
        z = tl.where(inside, z, float("-inf"))
        higher = tl.maximum(top, tl.max(z, 0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        shrink = tl.exp(top - shift)
        e = tl.exp(z - shift)
        total = total * shrink + tl.sum(e, 0)
        moment = moment * shrink + tl.sum(tl.where(e == 0.0, 0.0, e * z), 0)
        plain += tl.sum(tl.where(inside, z, 0.0), 0)
        below += tl.sum((inside & (z < given)).to(tl.float32), 0)
        top = higher
    tl.store(out + token, top + tl.log(total))
    tl.store(out + n_tokens + token, given)
    tl.store(out + 2 * n_tokens + token, moment / total)
    tl.store(out + 3 * n_tokens + token, plain / n_words)
    tl.store(out + 4 * n_tokens + token, below / n_words)


@triton.jit
def token_slopes(
    logits, target, lse, weight, n_words, first_word, cap, on_target, on_all,
    CAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Overwrite the logits of a block, which starts at `first_word`, by weight times the derivative of the loss.

    With label smoothing s, `on_target` is 1 - s and `on_all` is s divided by the number of all words. For weight 0 the
    result is 0, even if the derivative is NaN.
    """
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n_words
    row = logits + token * n_words
    z = capped(tl.load(row + at, inside, other=0.0).to(tl.float32), cap, CAP)
    w = tl.load(weight + token)
    slope = tl.exp(z - tl.load(lse + token)) - on_all
    slope -= tl.where(at + first_word == tl.load(target + token), on_target, 0.0)
    if CAP:
        slope *= 1.0 - (z / cap) * (z / cap)
    slope = tl.where(w == 0.0, 0.0, w * slope)
    tl.store(row + at, slope, inside)
