"""Triton kernels for TKML: the loss of each row and its gradient, with about one read of the scores each.

The loss of a row is max(0, 1 + rise - fall), where `rise` and `fall` are two of its scores:
  at most k true labels, or the paper's form   rise = (k+1)-th largest score,  fall = lowest true score
  more than k (two-sided)                      rise = highest false score,     fall = k-th largest true score
It is 0 for a row without true labels, and NaN for a row with a NaN score. The kernels also find the number of scores
tied at each, because ties share the gradient.

A row is divided into as many lanes as a tile has entries, and one read keeps only the best score of each lane. A value
that at least r of these reach is a lower bound of the r-th largest score of the row, and only lanes that reach it are
read again. If too many lanes are tied at the bound, the row is read once more to count the ties.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from ._select_kernels import highest_key, key_of, kth_value, lowest_key

# The values of a row that backward needs.
RISE = tl.constexpr(0)
FALL = tl.constexpr(1)
UP = tl.constexpr(2)  # share of each score tied at `rise`; 0 if the loss of the row is 0, NaN if it is NaN
DOWN = tl.constexpr(3)  # the same for `fall`
EXCEEDS_K = tl.constexpr(4)  # 1 if `rise` is the highest false score, so true labels are not pushed down
MARKS = tl.constexpr(8)  # words per row


@triton.jit
def store_row(loss_ptr, marks_ptr, row, rise, fall, tied_up, tied_down, n_true, n_nan, exceeds_k):
    loss = 1.0 + rise - fall
    loss = tl.where((loss <= 0.0) | (n_true == 0), 0.0, loss)  # a NaN (infinity minus infinity) stays
    active = (loss > 0.0).to(tl.float32)
    broken = tl.where((n_nan > 0) | (loss != loss), float("nan"), 0.0)
    tl.store(loss_ptr + row, loss + broken)
    marks = marks_ptr + row * MARKS
    tl.store(marks + RISE, rise)
    tl.store(marks + FALL, fall)
    tl.store(marks + UP, active / tl.maximum(tied_up, 1).to(tl.float32) + broken)
    tl.store(marks + DOWN, active / tl.maximum(tied_down, 1).to(tl.float32) + broken)
    tl.store(marks + EXCEEDS_K, exceeds_k.to(tl.float32))


@triton.jit
def scores_of(x_ptr, target_ptr, offsets, n_labels, sign, want_true, want_false):
    """sign * scores at these offsets of a row; NaN outside of the row and for labels that are not wanted."""
    x = sign * tl.load(x_ptr + offsets, mask=offsets < n_labels, other=float("nan")).to(tl.float32)
    if want_true + want_false < 2:
        true = (tl.load(target_ptr + offsets, mask=offsets < n_labels, other=0) > 0).to(tl.int32)
        x = tl.where(true * want_true + (1 - true) * want_false > 0, x, float("nan"))
    return x


@triton.jit
def count_equal(x_ptr, target_ptr, value, n_labels, sign, want_true, want_false, TILE: tl.constexpr):
    """Count the wanted sign * scores of the row that equal `value`, by another read; needed only for many ties."""
    equal = tl.zeros((TILE,), tl.int32)
    for start in range(0, n_labels, TILE):
        offsets = start + tl.arange(0, TILE)
        x = scores_of(x_ptr, target_ptr, offsets, n_labels, sign, want_true, want_false)
        equal += (x == value).to(tl.int32)
    return tl.sum(equal, 0)


@triton.jit
def ranked(
    best, rank, x_ptr, target_ptr, lanes_ptr, n_labels, sign, want_true, want_false,
    TILE: tl.constexpr, CHOSEN: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The rank-th largest of the wanted sign * scores of a row, and how many of them equal it.

    `best` has the largest of these values in each lane. Up to CHOSEN lanes of DEPTH scores are read again; `lanes_ptr`
    is a workspace for their numbers.
    """
    # Any bound that at least `rank` lanes reach is valid, if these lanes are few enough to be read again.
    bound = kth_value(best, rank, CHOSEN + 1 - rank, lowest_key(best), highest_key(best))
    above, tied = (best > bound).to(tl.int32), (best == bound).to(tl.int32)
    n_above, n_leading = tl.sum(above, 0), tl.sum(above + tied, 0)
    slot = tl.where(above > 0, tl.cumsum(above, 0) - 1, n_above + tl.cumsum(tied, 0) - 1)
    tl.store(lanes_ptr + slot, tl.arange(0, TILE), mask=(above + tied > 0) & (slot < CHOSEN))
    tl.debug_barrier()
    i = tl.arange(0, CHOSEN)
    lanes = tl.load(lanes_ptr + i, mask=i < n_leading, other=n_labels, volatile=True)
    offsets = tl.reshape(lanes[:, None] + TILE * tl.arange(0, DEPTH)[None, :], (CHOSEN * DEPTH,))
    x = scores_of(x_ptr, target_ptr, offsets, n_labels, sign, want_true, want_false)
    if (n_leading <= CHOSEN) | (tl.sum((x > bound).to(tl.int32), 0) >= rank):
        value = kth_value(x, rank, 0, key_of(bound), highest_key(x))
        n_tied = tl.sum((x == value).to(tl.int32), 0)
    else:  # more lanes are tied at the bound than can be read again, so the bound is the value
        value = bound
        n_tied = count_equal(x_ptr, target_ptr, value, n_labels, sign, want_true, want_false, TILE)
    tl.debug_barrier()
    return value, n_tied


# Alignment is not specialized: scores and mask, four bytes and one, then have the same layout, and no tile has to pass
# through shared memory to be compared with its mask.
@triton.jit(do_not_specialize=["x_ptr", "target_ptr", "top_k"])
def rows(
    x_ptr, target_ptr, loss_ptr, marks_ptr, lanes_ptr, n_labels, top_k,
    TILE: tl.constexpr, CHOSEN: tl.constexpr, DEPTH: tl.constexpr, TWO_SIDED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n_labels
    target_ptr += row * n_labels
    lanes_ptr += row * CHOSEN
    offsets = tl.arange(0, TILE)
    # For each lane, the largest of all scores, of the false, of the true, and of the negated true scores.
    top = tl.full((TILE,), float("-inf"), tl.float32)
    false_top, true_top, true_low = top, top, top
    n_true = tl.zeros((TILE,), tl.int32)
    x_next = tl.load(x_ptr + offsets, mask=offsets < n_labels, other=float("-inf"))
    true_next = tl.load(target_ptr + offsets, mask=offsets < n_labels, other=0)
    for start in range(0, n_labels, TILE):
        x, true = x_next.to(tl.float32), true_next > 0
        ahead = start + TILE + offsets  # prefetched before this tile is processed
        x_next = tl.load(x_ptr + ahead, mask=ahead < n_labels, other=float("-inf"))
        true_next = tl.load(target_ptr + ahead, mask=ahead < n_labels, other=0)
        top = tl.maximum(top, x, propagate_nan=tl.PropagateNan.ALL)
        true_low = tl.maximum(true_low, tl.where(true, -x, float("-inf")))
        n_true += true.to(tl.int32)
        if TWO_SIDED:
            false_top = tl.maximum(false_top, tl.where(true, float("-inf"), x))
            true_top = tl.maximum(true_top, tl.where(true, x, float("-inf")))

    n_nan = tl.sum((top != top).to(tl.int32), 0)
    n_true = tl.sum(n_true, 0)
    exceeds_k = (n_true > top_k) & TWO_SIDED
    if exceeds_k:
        top, true_low = false_top, true_top
    rise, tied_up = ranked(
        top, tl.where(exceeds_k, 1, top_k + 1), x_ptr, target_ptr, lanes_ptr, n_labels,
        1.0, tl.where(exceeds_k, 0, 1), 1, TILE, CHOSEN, DEPTH,
    )  # fmt: skip
    sign = tl.where(exceeds_k, 1.0, -1.0)
    fall, tied_down = ranked(
        true_low, tl.where(exceeds_k, top_k, 1), x_ptr, target_ptr, lanes_ptr, n_labels,
        sign, 1, 0, TILE, CHOSEN, DEPTH,
    )  # fmt: skip
    store_row(loss_ptr, marks_ptr, row, rise, sign * fall, tied_up, tied_down, n_true, n_nan, exceeds_k)


@triton.jit(do_not_specialize=["target_ptr", "gradient_ptr"])
def spread(x_ptr, target_ptr, marks_ptr, gradient_ptr, out_ptr, n_labels, TILE: tl.constexpr):
    """The gradient with respect to a tile of scores; NaN if the loss of the row is NaN.

    Rows with loss 0 are not read, and the target is read only for scores equal to `rise` or `fall`.
    """
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * TILE + tl.arange(0, TILE)
    valid = offsets < n_labels
    marks = marks_ptr + row * MARKS
    up, down = tl.load(marks + UP), tl.load(marks + DOWN)
    result = tl.zeros((TILE,), tl.float32)
    if up != 0.0:
        x = tl.load(x_ptr + row * n_labels + offsets, mask=valid, other=float("nan")).to(tl.float32)
        at_rise, at_fall = x == tl.load(marks + RISE), x == tl.load(marks + FALL)
        tied = at_rise | at_fall
        true = tl.load(target_ptr + row * n_labels + offsets, mask=tied, other=0) > 0
        is_true = true.to(tl.float32)
        pushed = at_rise.to(tl.float32) * (1.0 - is_true * tl.load(marks + EXCEEDS_K))
        pulled = at_fall.to(tl.float32) * is_true
        result = tl.load(gradient_ptr + row).to(tl.float32) * (up * pushed - down * pulled)
    tl.store(out_ptr + row * n_labels + offsets, result, mask=valid)
