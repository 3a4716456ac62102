"""Triton kernels for a ranked range in registers, and functions shared by all selection kernels.

Floats are compared as floats; only the search runs on integers in the order of the floats ("keys"), halving an
interval of keys until it holds one entry. A missing entry is NaN, which no comparison counts.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

KEY_MIN = tl.constexpr(-2139095041)  # of minus infinity
KEY_MAX = tl.constexpr(2139095040)  # of infinity


@triton.jit
def key_of(x):
    """The float as an integer with the same order; adding 0.0 maps -0.0 to 0.0."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def float_of(key):
    key = key.to(tl.int32)
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def lowest_key(x):
    return key_of(tl.min(tl.where(x == x, x, float("inf")), 0))


@triton.jit
def highest_key(x):
    return key_of(tl.max(tl.where(x == x, x, float("-inf")), 0))


@triton.jit
def kth_value(x, rank, near, lo, hi):
    """The rank-th largest of x, whose key is in [lo, hi].

    With near > 1 the result may be any v such that at least `rank` and fewer than `rank` + `near` entries are >= v. If
    ties make this impossible, it is the rank-th largest.
    """
    lo = lo.to(tl.int64)
    hi = hi.to(tl.int64)
    at_lo, over_hi = tl.full((), 1 << 30, tl.int32), tl.full((), 0, tl.int32)
    while (lo < hi) & (at_lo - over_hi > 1):  # if one x is left between them, it is the result
        mid = lo + ((hi - lo + 1) >> 1)
        count = tl.sum((x >= float_of(mid)).to(tl.int32), 0)
        enough, close = count >= rank, (count >= rank) & (count < rank + near)
        hi = tl.where(enough, tl.where(close, mid, hi), mid - 1)
        over_hi = tl.where(enough, over_hi, count)
        lo = tl.where(enough, mid, lo)
        at_lo = tl.where(enough, count, at_lo)
    top = float_of(hi)
    return tl.where(near > 1, top, tl.max(tl.where(x <= top, x, float("-inf")), 0))


@triton.jit
def band_weight(x, lam, lam_hat, at_lam, at_hat):
    """`cuts.cut_weights` in Triton, with the same operations."""
    inside = ((x > lam) & (x < lam_hat)).to(tl.float32)
    return inside + at_lam * (x == lam).to(tl.float32) + at_hat * (x == lam_hat).to(tl.float32)


@triton.jit
def make_cut(lam, lam_hat, above_k, tied_k, above_m, tied_m, m, k, n_nan):
    """The four columns of a cut (see `cuts`), from the numbers of losses above and equal to its two values.

    All are NaN if a loss is NaN.
    """
    same = (lam == lam_hat) & (m > 0)
    at_lam = tl.where(same, k - m, k - above_k).to(tl.float32) / tl.maximum(tied_k, 1).to(tl.float32)
    at_hat = tl.where(m > 0, (above_m + tied_m - m).to(tl.float32) / tl.maximum(tied_m, 1).to(tl.float32), 1.0)
    at_hat = tl.where(same | ((m == 0) & (lam == float("inf"))), 0.0, at_hat)
    lam = tl.where(n_nan > 0, float("nan"), lam)
    lam_hat = tl.where(n_nan > 0, float("nan"), lam_hat)
    at_lam = tl.where(n_nan > 0, float("nan"), at_lam)
    return lam, lam_hat, at_lam, tl.where(n_nan > 0, float("nan"), at_hat)


@triton.jit
def store_cut(cut_ptr, lam, lam_hat, at_lam, at_hat):
    tl.store(cut_ptr, lam)
    tl.store(cut_ptr + 1, lam_hat)
    tl.store(cut_ptr + 2, at_lam)
    tl.store(cut_ptr + 3, at_hat)


@triton.jit(do_not_specialize=["value_ptr", "cut_ptr", "m", "k", "scale"])
def small(x_ptr, value_ptr, cut_ptr, weight_ptr, n, m, k, scale, BLOCK: tl.constexpr):
    """Value, cut and scale times the weights of one row per program, in registers."""
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    valid = offsets < n
    x = tl.load(x_ptr + row * n + offsets, mask=valid, other=float("nan")).to(tl.float32)
    lowest, highest = lowest_key(x), highest_key(x)
    lam = kth_value(x, k, 0, lowest, highest)
    lam_hat = tl.where(m > 0, kth_value(x, m, 0, tl.where(m > 0, lowest, highest), highest), float("inf"))
    above = tl.sum((x > lam).to(tl.int32) + ((x > lam_hat).to(tl.int32) << 16), 0)
    tied = tl.sum((x == lam).to(tl.int32) + ((x == lam_hat).to(tl.int32) << 16), 0)
    n_nan = tl.sum(((x != x) & valid).to(tl.int32), 0)
    lam, lam_hat, at_lam, at_hat = make_cut(
        lam, lam_hat, above & 0xFFFF, tied & 0xFFFF, (above >> 16) & 0xFFFF, (tied >> 16) & 0xFFFF, m, k, n_nan
    )
    store_cut(cut_ptr + row * 4, lam, lam_hat, at_lam, at_hat)
    weights = scale * band_weight(x, lam, lam_hat, at_lam, at_hat)
    kept = tl.where(valid & (weights != 0.0), x, 0.0)
    tl.store(value_ptr + row, tl.sum(tl.where(valid, weights, 0.0) * kept, 0))
    tl.store(weight_ptr + row * n + offsets, weights, mask=valid)


@triton.jit(do_not_specialize=["cut_ptr", "gradient_ptr", "scale"])
def weigh(x_ptr, cut_ptr, gradient_ptr, out_ptr, n, scale, TILE: tl.constexpr):
    """gradient * scale * weight of every loss of a row, the weights from the cut: one read and one write."""
    n_tiles = tl.cdiv(n, TILE)
    row = (tl.program_id(0) // n_tiles).to(tl.int64)
    offsets = (tl.program_id(0) % n_tiles) * TILE + tl.arange(0, TILE)
    lam, lam_hat = tl.load(cut_ptr + 4 * row), tl.load(cut_ptr + 4 * row + 1)
    at_lam, at_hat = tl.load(cut_ptr + 4 * row + 2), tl.load(cut_ptr + 4 * row + 3)
    factor = tl.load(gradient_ptr + row).to(tl.float32) * scale
    x = tl.load(x_ptr + row * n + offsets, mask=offsets < n, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * n + offsets, factor * band_weight(x, lam, lam_hat, at_lam, at_hat), mask=offsets < n)
