"""Triton kernels for the ranked range of many losses, in two launches that read them once each.

The method is that of Floyd and Rivest: a sample gives an interval of values, a bracket, around each cut.
  narrow   one pass counts the losses above each bracket and fills a histogram of the few inside. The program that
           finishes last picks the histogram bin that holds the cut.
  finish   one pass sums the losses that are certainly kept and collects those in the two bins: as a list if they are
           few, as finer histograms if they are many (ties). The program that finishes last computes cuts and value.
Counts are exact, and sums use a partition that depends only on the size and the device, or integers, so the same losses
give the same bits in every run. If a bracket misses its cut (about one call in ten thousand), the counts show it, and
the bin is wide. If a bin still holds several values at the end, the last program searches all losses, which is slow.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

from ._select_kernels import (
    KEY_MAX,
    KEY_MIN,
    float_of,
    highest_key,
    key_of,
    kth_value,
    lowest_key,
    make_cut,
    store_cut,
)

# Layout of the workspace, in 32-bit words, all zero at first. Of two entries the first is that of k, the other of m.
TICKETS = tl.constexpr(0)  # programs that have finished `narrow`, and `finish`
COUNTS = tl.constexpr(8)  # losses at or above the bracket, and above it
BINS = tl.constexpr(16)  # low key, high key (exclusive), losses above, losses inside
LISTED = tl.constexpr(32)  # losses in the list
N_NAN = tl.constexpr(40)
PARTS = tl.constexpr(64)  # the sum of each program
MAX_PROGRAMS = tl.constexpr(1024)
LIST = tl.constexpr(64 + 1024)
# then CAP words of list, and for `narrow` and for `finish` two histograms of REPLICAS * N_BINS words


@triton.jit
def load_tile(x_ptr, tile, n, TILE: tl.constexpr):
    # The kernels do not specialize x_ptr: with known alignment, Triton would load four losses per thread and then pass
    # every tile through shared memory into the layout of the atomics.
    offsets = tile * TILE + tl.arange(0, TILE)
    if (tile + 1) * TILE <= n:
        x = tl.load(x_ptr + offsets)
    else:
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=float("nan"))
    return x


@triton.jit
def shift_for(low, high, N_BINS: tl.constexpr):
    """A shift for which N_BINS bins of 2**shift keys each cover the keys [low, high): the smallest, up to rounding."""
    exponent = (tl.maximum(high - 1 - low, 1).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 126
    N_BITS: tl.constexpr = N_BINS.bit_length() - 1
    return tl.maximum(exponent - N_BITS, 0).to(tl.int32)


@triton.jit
def fill_histogram(hist_ptr, x, over, low, shift):
    """Add the losses above key `low` that are not `over` to a histogram with bins of 2**shift keys.

    Losses equal to `low` may be many. They are not counted; subtraction gives their number.
    """
    difference = (key_of(x) - low.to(tl.int32)).to(tl.uint32, bitcast=True)  # it may exceed an int32, but not 32 bits
    bin_ = (difference >> shift.to(tl.uint32)).to(tl.int32)
    tl.atomic_add(hist_ptr + bin_, 1, mask=(x > float_of(low)) & ~over, sem="relaxed")


@triton.jit
def load_histogram(hist_ptr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr):
    counts = tl.zeros((N_BINS,), tl.int32)
    for replica in tl.static_range(REPLICAS):
        counts += tl.load(hist_ptr + replica * N_BINS + tl.arange(0, N_BINS), cache_modifier=".cg")
    return counts


@triton.jit
def search_histogram(counts, rank, low, high, above, inside, N_BINS: tl.constexpr):
    """The bin that holds the rank: its keys [low, high), and the numbers of losses above and inside it.

    `counts` are those of the keys above `low`; `above` and `inside` are the numbers of losses above and in [low, high).
    """
    bins, shift = tl.arange(0, N_BINS), shift_for(low, high, N_BINS)
    at_or_above = tl.cumsum(counts, 0, reverse=True)
    found = tl.max(tl.where(above + at_or_above >= rank, bins, -1), 0)  # -1 is the key `low`, a bin of its own
    above_bin = above + tl.sum(tl.where(bins > found, counts, 0), 0)
    in_bin = tl.sum(tl.where(bins == found, counts, 0), 0)
    bin_low = low + tl.maximum((found.to(tl.int64) << shift), tl.where(found == 0, 1, 0))
    bin_high = tl.minimum(low + ((found + 1).to(tl.int64) << shift), high)
    bin_low = tl.where(found < 0, low, bin_low)
    bin_high = tl.where(found < 0, low + 1, bin_high)
    return bin_low, bin_high, above_bin, tl.where(found < 0, above + inside - above_bin, in_bin)


@triton.jit
def last_to_arrive(ticket_ptr, programs):
    """Whether this program is the last to arrive; it then sees the writes of all others."""
    tl.debug_barrier()
    last = tl.atomic_add(ticket_ptr, 1, sem="acq_rel") == programs - 1
    tl.debug_barrier()
    return last


@triton.jit
def histogram(ws_ptr, level: tl.constexpr, which: tl.constexpr, CAP: tl.constexpr, SIZE: tl.constexpr):
    """Pointer to the histogram of k (0) or m (1), of level 0 (`narrow`) or 1 (`finish`)."""
    return ws_ptr + LIST + CAP + (2 * level + which) * SIZE


# --- narrow


@triton.jit
def sample_of(x_ptr, n, SAMPLE: tl.constexpr):
    """One loss from each of SAMPLE intervals of n // SAMPLE losses, at a pseudo-random position, equal in all calls."""
    i = tl.arange(0, SAMPLE)
    stretch = n // SAMPLE
    scrambled = (i.to(tl.uint32) * 2654435761) ^ ((i.to(tl.uint32) * 2246822519) >> 15)
    jitter = ((scrambled >> 4) % stretch.to(tl.uint32)).to(tl.int64)
    return tl.load(x_ptr + i.to(tl.int64) * stretch + jitter).to(tl.float32)


@triton.jit
def bracket(sample, lowest, highest, rank, n, SAMPLE: tl.constexpr):
    """Keys [low, high) that very likely contain that of the rank-th largest of n losses; for rank 0 above all floats.

    They miss it only if the count in the sample is off by more than 4.5 standard deviations plus 8. Close to the
    first or last rank they reach to the largest or smallest key. `lowest` and `highest` are keys of the sample.
    """
    low, high = tl.full((), KEY_MAX + 1, tl.int64), tl.full((), KEY_MAX + 1, tl.int64)
    if rank > 0:
        centre = rank.to(tl.float32) * (SAMPLE / n.to(tl.float32))
        reach = 4.5 * tl.sqrt(tl.maximum(centre * (1.0 - centre / SAMPLE), 0.0)) + 8.0
        near = (reach * 0.25).to(tl.int32)
        low_rank = (centre + reach).to(tl.int32) + 1
        high_rank = tl.maximum((centre - reach).to(tl.int32) + 1, 1)  # fewer than this of the sample reach `high`
        if low_rank > SAMPLE:
            low = tl.full((), KEY_MIN, tl.int64)
        else:
            low = key_of(kth_value(sample, low_rank, near, lowest, highest)).to(tl.int64)
        if centre < reach:
            high = tl.full((), KEY_MAX, tl.int64)
        else:
            near = tl.minimum(near, high_rank - 1)
            high = key_of(kth_value(sample, high_rank - near, near, lowest, highest)).to(tl.int64)
    return low, high + 1


@triton.jit
def add_counts(ws_ptr, which: tl.constexpr, at_or_above, above):
    tl.atomic_add(ws_ptr + COUNTS + 2 * which, tl.sum(at_or_above, 0), sem="relaxed")
    tl.atomic_add(ws_ptr + COUNTS + 2 * which + 1, tl.sum(above, 0), sem="relaxed")


@triton.jit
def store_bin(
    ws_ptr, which: tl.constexpr, rank, n, low, high, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr
):
    """Store the bin of the cut. If the bracket [low, high) misses the cut, it has all keys on that side."""
    at_or_above = tl.load(ws_ptr + COUNTS + 2 * which, cache_modifier=".cg")
    above = tl.load(ws_ptr + COUNTS + 2 * which + 1, cache_modifier=".cg")
    counts = load_histogram(histogram(ws_ptr, 0, which, CAP, REPLICAS * N_BINS), REPLICAS, N_BINS)
    bin_low, bin_high, bin_above, inside = search_histogram(counts, rank, low, high, above, at_or_above - above, N_BINS)
    if rank <= above:
        bin_low, bin_high, bin_above, inside = high, tl.full((), KEY_MAX + 1, tl.int64), above * 0, above
    elif rank > at_or_above:
        bin_low, bin_high, bin_above, inside = tl.full((), KEY_MIN, tl.int64), low, at_or_above, n - at_or_above
    if rank == 0:  # there is no cut: a bin above all floats
        bin_low, bin_high, bin_above, inside = low, low + 1, above * 0, above * 0
    tl.store(ws_ptr + BINS + 4 * which, bin_low.to(tl.int32))
    tl.store(ws_ptr + BINS + 4 * which + 1, bin_high.to(tl.int32))
    tl.store(ws_ptr + BINS + 4 * which + 2, bin_above)
    tl.store(ws_ptr + BINS + 4 * which + 3, inside)


@triton.jit(do_not_specialize=["x_ptr", "value_ptr", "cut_ptr", "m", "k", "scale"])
def narrow(
    x_ptr, ws_ptr, value_ptr, cut_ptr, n, m, k, scale,
    SAMPLE: tl.constexpr, TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    """Store the bin that holds each cut; value, cut and scale are arguments only because `finish` has them."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    sample = sample_of(x_ptr, n, SAMPLE)
    lowest, highest = lowest_key(sample), highest_key(sample)
    k_low, k_high = bracket(sample, lowest, highest, k, n, SAMPLE)
    m_low, m_high = bracket(sample, lowest, highest, m, n, SAMPLE)
    k_shift, m_shift = shift_for(k_low, k_high, N_BINS), shift_for(m_low, m_high, N_BINS)
    replica = (program % REPLICAS) * N_BINS  # several copies, so ties do not contend for one word
    k_hist = histogram(ws_ptr, 0, 0, CAP, REPLICAS * N_BINS) + replica
    m_hist = histogram(ws_ptr, 0, 1, CAP, REPLICAS * N_BINS) + replica
    at_or_above = tl.zeros((TILE,), tl.int32)  # two counts per word: k in the low half, m in the high half
    above = tl.zeros((TILE,), tl.int32)
    following = load_tile(x_ptr, program, n, TILE)
    for tile in range(program, tl.cdiv(n, TILE), programs):
        x = following.to(tl.float32)
        following = load_tile(x_ptr, tl.minimum(tile + programs, tl.cdiv(n, TILE) - 1), n, TILE)  # prefetch
        k_over, m_over = x > float_of(k_high - 1), x > float_of(m_high - 1)
        above += k_over.to(tl.int32) + (m_over.to(tl.int32) << 16)
        at_or_above += (x >= float_of(k_low)).to(tl.int32) + ((x >= float_of(m_low)).to(tl.int32) << 16)
        fill_histogram(k_hist, x, k_over, k_low, k_shift)
        fill_histogram(m_hist, x, m_over, m_low, m_shift)
    add_counts(ws_ptr, 0, at_or_above & 0xFFFF, above & 0xFFFF)
    add_counts(ws_ptr, 1, (at_or_above >> 16) & 0xFFFF, (above >> 16) & 0xFFFF)
    if last_to_arrive(ws_ptr + TICKETS, programs):
        store_bin(ws_ptr, 0, k, n, k_low, k_high, CAP, REPLICAS, N_BINS)
        store_bin(ws_ptr, 1, m, n, m_low, m_high, CAP, REPLICAS, N_BINS)


# --- finish


@triton.jit
def load_bin(ws_ptr, which: tl.constexpr):
    low = tl.load(ws_ptr + BINS + 4 * which, cache_modifier=".cg").to(tl.int64)
    high = tl.load(ws_ptr + BINS + 4 * which + 1, cache_modifier=".cg").to(tl.int64)
    above = tl.load(ws_ptr + BINS + 4 * which + 2, cache_modifier=".cg")
    inside = tl.load(ws_ptr + BINS + 4 * which + 3, cache_modifier=".cg")
    return low, high, above, inside


@triton.jit
def collected(low, high, inside):
    """The keys to collect: those of the bin, or none if it is a single key, because its losses are equal."""
    many = high - low > 1
    return tl.where(many, low, KEY_MAX + 1), tl.where(many, high, KEY_MAX + 2), tl.where(many, inside, 0)


@triton.jit
def sum_and_collect(
    x_ptr, ws_ptr, n, scale, program, programs,
    TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    """Sum scale times the losses of this program that are certainly kept, and collect those in the two bins.

    They are collected as a list if there are at most CAP, otherwise as finer histograms. NaNs are counted, including
    the padding of the last tile. The result is whether it is a list.
    """
    k_low, k_high, _, k_inside = load_bin(ws_ptr, 0)
    m_low, m_high, _, m_inside = load_bin(ws_ptr, 1)
    kept_from, kept_to = float_of(k_high - 1), float_of(m_low - 1)  # between the bins: certainly kept
    k_low, k_high, k_many = collected(k_low, k_high, k_inside)
    m_low, m_high, m_many = collected(m_low, m_high, m_inside)
    k_shift, m_shift = shift_for(k_low, k_high, N_BINS), shift_for(m_low, m_high, N_BINS)
    listing = k_many + m_many <= CAP
    replica = (program % REPLICAS) * N_BINS
    k_hist = histogram(ws_ptr, 1, 0, CAP, REPLICAS * N_BINS) + replica
    m_hist = histogram(ws_ptr, 1, 1, CAP, REPLICAS * N_BINS) + replica
    list_ptr = ws_ptr.to(tl.pointer_type(tl.float32)) + LIST
    total = tl.zeros((TILE,), tl.float32)
    n_nan = tl.zeros((TILE,), tl.int32)
    following = load_tile(x_ptr, tl.minimum(program, tl.cdiv(n, TILE) - 1), n, TILE)
    for tile in range(program, tl.cdiv(n, TILE), programs):
        x = following.to(tl.float32)
        following = load_tile(x_ptr, tl.minimum(tile + programs, tl.cdiv(n, TILE) - 1), n, TILE)
        n_nan += (x != x).to(tl.int32)
        total += tl.where((x > kept_from) & (x <= kept_to), x, 0.0) * scale
        k_over, m_over = x > float_of(k_high - 1), x > float_of(m_high - 1)
        if listing:
            in_bins = ((x >= float_of(k_low)) & ~k_over) | ((x >= float_of(m_low)) & ~m_over)
            slot = tl.atomic_add(ws_ptr + LISTED + tl.zeros((TILE,), tl.int32), 1, mask=in_bins, sem="relaxed")
            tl.store(list_ptr + slot, x, mask=in_bins & (slot < CAP))
        else:
            fill_histogram(k_hist, x, k_over, k_low, k_shift)
            fill_histogram(m_hist, x, m_over, m_low, m_shift)
    tl.store(ws_ptr.to(tl.pointer_type(tl.float32)) + PARTS + program, tl.sum(total, 0))
    tl.atomic_add(ws_ptr + N_NAN, tl.sum(n_nan, 0), sem="relaxed")
    return listing


@triton.jit
def sum_in_any_order(x, chosen):
    """The sum of the chosen x as integer multiples of about 2**-50 of the largest, so their order has no effect."""
    largest = tl.max(tl.where(chosen, tl.abs(x), 0.0), 0)
    exponent = ((largest.to(tl.int32, bitcast=True) >> 23) & 0xFF).to(tl.int64) - 126
    unit = ((1023 + 50 - exponent) << 52).to(tl.float64, bitcast=True)
    whole = tl.where(chosen, x, 0.0).to(tl.float64) * unit
    return (tl.sum(whole.to(tl.int64), 0).to(tl.float64) / unit).to(tl.float32)


@triton.jit
def cut_of_list(x, ws_ptr, which: tl.constexpr, rank):
    """The value of a cut, and how many losses are above and equal to it, from the list of the losses in both bins."""
    low, high, above, inside = load_bin(ws_ptr, which)
    value = float_of(low)  # of a bin with one key, which is not listed
    if high - low > 1:
        mine = tl.where((x >= value) & (x <= float_of(high - 1)), x, float("nan"))
        value = kth_value(mine, rank - above, 0, low, high - 1)
        above += tl.sum((mine > value).to(tl.int32), 0)
        inside = tl.sum((mine == value).to(tl.int32), 0)
    return value, above, inside


@triton.jit
def cut_of_histogram(x_ptr, counts, ws_ptr, which: tl.constexpr, rank, n, TILE: tl.constexpr, N_BINS: tl.constexpr):
    """The result of `cut_of_list`, from the finer histogram; if its bin still has several keys, all losses are read."""
    low, high, above, inside = load_bin(ws_ptr, which)
    if high - low > 1:
        low, high, above, inside = search_histogram(counts, rank, low, high, above, inside, N_BINS)
    if (high - low > 1) & (rank > 0):
        high -= 1
        while low < high:
            mid = low + ((high - low + 1) >> 1)
            above, inside = count_losses(x_ptr, n, mid, TILE)
            low, high = tl.where(above + inside >= rank, mid, low), tl.where(above + inside >= rank, high, mid - 1)
        above, inside = count_losses(x_ptr, n, low, TILE)
    return float_of(low), above, inside


@triton.jit
def count_losses(x_ptr, n, key, TILE: tl.constexpr):
    """The numbers of losses above and equal to a key."""
    above = tl.zeros((TILE,), tl.int32)
    tied = tl.zeros((TILE,), tl.int32)
    for tile in range(tl.cdiv(n, TILE)):
        x = load_tile(x_ptr, tile, n, TILE).to(tl.float32)
        above += (x > float_of(key)).to(tl.int32)
        tied += (x == float_of(key)).to(tl.int32)
    return tl.sum(above, 0), tl.sum(tied, 0)


@triton.jit
def sum_of_bins(x_ptr, of_k, of_m, ws_ptr, lam, lam_hat, n, TILE: tl.constexpr, N_BINS: tl.constexpr):
    """The sum of the losses in either bin that lie between the cuts; the bins may overlap."""
    k_low, k_high, _, _ = load_bin(ws_ptr, 0)
    m_low, m_high, _, m_inside = load_bin(ws_ptr, 1)
    if (shift_for(k_low, k_high, N_BINS) == 0) & (shift_for(m_low, m_high, N_BINS) == 0):  # a count is of one value
        bins = tl.arange(0, N_BINS)
        x = float_of(k_low + bins)
        between = tl.sum(tl.where((of_k > 0) & (x > lam) & (x < lam_hat), x * of_k, 0.0), 0)
        x = float_of(m_low + bins)
        mine = (of_m > 0) & (x > float_of(k_high - 1)) & (x > lam) & (x < lam_hat)
        between += tl.sum(tl.where(mine, x * of_m, 0.0), 0)
        at_low = (m_inside - tl.sum(of_m, 0)).to(tl.float32)  # which the histogram does not count
        x = float_of(m_low)
        counts = (m_low >= k_high) & (m_high - m_low > 1) & (x < lam_hat)
        between += at_low * tl.where(counts, x, 0.0)
    else:
        parts = tl.zeros((TILE,), tl.float32)
        for tile in range(tl.cdiv(n, TILE)):
            x = load_tile(x_ptr, tile, n, TILE).to(tl.float32)
            inside = (x >= float_of(k_low)) & (x <= float_of(k_high - 1))
            inside |= (x >= float_of(m_low)) & (x <= float_of(m_high - 1))
            parts += tl.where(inside & (x > lam) & (x < lam_hat), x, 0.0)
        between = tl.sum(parts, 0)
    return between


@triton.jit(do_not_specialize=["x_ptr", "value_ptr", "cut_ptr", "m", "k", "scale"])
def finish(
    x_ptr, ws_ptr, value_ptr, cut_ptr, n, m, k, scale,
    TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    """Value and cut, from the bins that `narrow` stored; both are NaN if a loss is NaN."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    listing = sum_and_collect(x_ptr, ws_ptr, n, scale, program, programs, TILE, CAP, REPLICAS, N_BINS)
    if last_to_arrive(ws_ptr + TICKETS + 1, programs):
        if listing:
            i = tl.arange(0, CAP)
            listed = tl.load(ws_ptr + LISTED, cache_modifier=".cg")
            entries = ws_ptr.to(tl.pointer_type(tl.float32)) + LIST + i
            x = tl.load(entries, mask=i < listed, other=float("nan"), cache_modifier=".cg")
            lam, above_k, tied_k = cut_of_list(x, ws_ptr, 0, k)
            lam_hat, above_m, tied_m = cut_of_list(x, ws_ptr, 1, m)
            lam_hat = tl.where(m > 0, lam_hat, float("inf"))
            between = sum_in_any_order(x, (x > lam) & (x < lam_hat))
        else:
            of_k = load_histogram(histogram(ws_ptr, 1, 0, CAP, REPLICAS * N_BINS), REPLICAS, N_BINS)
            of_m = load_histogram(histogram(ws_ptr, 1, 1, CAP, REPLICAS * N_BINS), REPLICAS, N_BINS)
            lam, above_k, tied_k = cut_of_histogram(x_ptr, of_k, ws_ptr, 0, k, n, TILE, N_BINS)
            lam_hat, above_m, tied_m = cut_of_histogram(x_ptr, of_m, ws_ptr, 1, m, n, TILE, N_BINS)
            lam_hat = tl.where(m > 0, lam_hat, float("inf"))
            between = sum_of_bins(x_ptr, of_k, of_m, ws_ptr, lam, lam_hat, n, TILE, N_BINS)
        n_nan = tl.load(ws_ptr + N_NAN, cache_modifier=".cg") - (tl.cdiv(n, TILE) * TILE - n)
        cut_lam, cut_hat, at_lam, at_hat = make_cut(lam, lam_hat, above_k, tied_k, above_m, tied_m, m, k, n_nan)
        store_cut(cut_ptr, cut_lam, cut_hat, at_lam, at_hat)
        i = tl.arange(0, MAX_PROGRAMS)
        parts = ws_ptr.to(tl.pointer_type(tl.float32)) + PARTS + i
        total = tl.sum(tl.load(parts, mask=i < programs, other=0.0, cache_modifier=".cg"), 0) + scale * between
        same = (lam == lam_hat) & (m > 0)
        total += tl.where(same, k - m, k - above_k).to(tl.float32) * scale * lam
        left = above_m + tied_m - m
        if (m > 0) & (left > 0) & (lam != lam_hat):
            total += left.to(tl.float32) * scale * lam_hat
        tl.store(value_ptr, tl.where(n_nan > 0, float("nan"), total))
