"""The Triton kernel for the ranked range of 16 thousand to a million losses: one launch for cuts, value and weights.

For this size the passes of `_large_kernels` are short, and most of the time goes into launching them from Python,
clearing their workspace and launching the gradient. Here all programs run at once (a cooperative launch) and wait for
each other at the end of each pass. Each program then writes the weights of its own losses, so the gradient is a
product. The kernel clears the counts and histograms of the workspace for the next launch on the same stream.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from ._large_kernels import (
    COUNTS,
    CUT,
    LISTED,
    N_NAN,
    TICKETS,
    TURN,
    brackets,
    histograms,
    last_to_arrive,
    load_bin,
    load_tile,
    narrow_pass,
    resolve,
    store_bins,
    sum_and_collect,
    to_collect,
)
from ._select_kernels import band_weight


@triton.jit
def release(ws_ptr, which: tl.constexpr):
    """Let the waiting programs continue, and reset ticket `which` (0 or 1); only the last program calls this."""
    tl.store(ws_ptr + TICKETS + which, 0)
    tl.debug_barrier()
    tl.atomic_add(ws_ptr + TURN, 1, sem="release")


@triton.jit
def wait_while_turn(ws_ptr, turn):
    while tl.atomic_add(ws_ptr + TURN, 0, sem="acquire") == turn:
        pass
    tl.debug_barrier()


@triton.jit
def clear_histograms(
    ws_ptr, level: tl.constexpr, program, programs,
    TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    hist_ptr = histograms(ws_ptr, level, CAP, REPLICAS * N_BINS)
    for tile in range(program, tl.cdiv(2 * REPLICAS * N_BINS, TILE), programs):
        offsets = tile * TILE + tl.arange(0, TILE)
        tl.store(hist_ptr + offsets, tl.zeros((TILE,), tl.int32), mask=offsets < 2 * REPLICAS * N_BINS)


@triton.jit
def clear_counts(
    ws_ptr, TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr
):  # fmt: skip
    """Clear the counts and, if they were filled, the finer histograms; only the last program calls this."""
    k_low, k_high, _, k_inside = load_bin(ws_ptr, 0)
    m_low, m_high, _, m_inside = load_bin(ws_ptr, 1)
    tl.debug_barrier()
    tl.store(ws_ptr + COUNTS + tl.arange(0, 4), tl.zeros((4,), tl.int32))
    tl.store(ws_ptr + LISTED, 0)
    tl.store(ws_ptr + N_NAN, 0)
    if to_collect(k_low, k_high, k_inside) + to_collect(m_low, m_high, m_inside) > CAP:
        clear_histograms(ws_ptr, 1, 0, 1, TILE, CAP, REPLICAS, N_BINS)


@triton.jit(do_not_specialize=["x_ptr", "value_ptr", "cut_ptr", "weight_ptr", "m", "k", "scale"])
def joint(
    x_ptr, ws_ptr, value_ptr, cut_ptr, weight_ptr, n, m, k, scale,
    SAMPLE: tl.constexpr, TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
    KEEP_WEIGHTS: tl.constexpr, KEEP_CUT: tl.constexpr,
):  # fmt: skip
    """The passes of `narrow` and `finish` in one cooperative launch, which stores the value.

    With KEEP_CUT the cut is stored too, with KEEP_WEIGHTS scale times the weights. Tickets, counts and histograms are
    zero again at the end. TURN goes on counting, and other words are overwritten by the next launch.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    if not KEEP_CUT:  # the programs still need the cut, so it is stored in the workspace
        cut_ptr = ws_ptr.to(tl.pointer_type(tl.float32)) + CUT
    turn = tl.load(ws_ptr + TURN, volatile=True)
    k_lo, k_hi, k_shift, m_lo, m_hi, m_shift, shared = brackets(x_ptr, n, m, k, SAMPLE, N_BINS)
    narrow_pass(
        x_ptr, ws_ptr, n, k_lo, k_hi, k_shift, m_lo, m_hi, m_shift, program, programs, TILE, CAP, REPLICAS, N_BINS
    )
    if last_to_arrive(ws_ptr + TICKETS, programs):
        store_bins(ws_ptr, m, k, n, k_lo, k_hi, k_shift, m_lo, m_hi, m_shift, shared, CAP, REPLICAS, N_BINS)
        release(ws_ptr, 0)
    wait_while_turn(ws_ptr, turn)
    sum_and_collect(x_ptr, ws_ptr, n, scale, program, programs, TILE, CAP, REPLICAS, N_BINS)
    clear_histograms(ws_ptr, 0, program, programs, TILE, CAP, REPLICAS, N_BINS)
    if last_to_arrive(ws_ptr + TICKETS + 1, programs):
        resolve(x_ptr, ws_ptr, value_ptr, cut_ptr, n, m, k, scale, programs, TILE, CAP, REPLICAS, N_BINS)
        clear_counts(ws_ptr, TILE, CAP, REPLICAS, N_BINS)
        release(ws_ptr, 1)
    if KEEP_WEIGHTS:
        wait_while_turn(ws_ptr, turn + 1)
        lam, lam_hat = tl.load(cut_ptr, cache_modifier=".cg"), tl.load(cut_ptr + 1, cache_modifier=".cg")
        at_lam, at_hat = tl.load(cut_ptr + 2, cache_modifier=".cg"), tl.load(cut_ptr + 3, cache_modifier=".cg")
        for tile in range(program, tl.cdiv(n, TILE), programs):
            x = load_tile(x_ptr, tile, n, TILE).to(tl.float32)
            offsets = tile * TILE + tl.arange(0, TILE)
            weights = scale * band_weight(x, lam, lam_hat, at_lam, at_hat)
            tl.store(weight_ptr + offsets, weights, mask=offsets < n)
