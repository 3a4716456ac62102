"""Triton kernels for the ranked range of many losses, in two launches that read them once each.

The method is that of Floyd and Rivest: a sample gives pivots close to the cuts.
  narrow   every program finds the same pivots around both cuts from the same sample; one pass counts what lies above
           them and, for the few losses between, fills a histogram. The program that finishes last picks the histogram
           bin that holds each cut.
  finish   one pass sums the losses that are certainly kept and collects the losses in the two bins: as a list if
           they are few, as a finer histogram if they are many (ties). The program that finishes last computes the cuts.
Counts are exact and independent of the order of programs. Sums use a partition that depends only on the size and the
device, or integers, so the same losses give the same bits in every run. If the pivots miss a cut (about one call in ten
thousand), the counts show it. The bin is then wide, and the last program may have to search all losses. The cuts are
always exact. If a loss is NaN, the value and the cut are NaN.
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
    lowest_key,
    make_cut,
    search_two,
    store_cut,
    two_values,
)

# Layout of the workspace, in 32-bit words, all zero at first. If there are two entries, that of k comes first.
TICKETS = tl.constexpr(0)  # programs that have finished `narrow`, and `finish`
COUNTS = tl.constexpr(8)  # losses at or above the low pivot, and above the high one
BINS = tl.constexpr(16)  # low key, high key (exclusive), losses above, losses inside
LISTED = tl.constexpr(32)  # losses in the list
N_NAN = tl.constexpr(40)
PARTS = tl.constexpr(64)  # the sum of each program
MAX_PROGRAMS = tl.constexpr(1024)
LIST = tl.constexpr(64 + 1024)
# then CAP words of list, and two histograms of REPLICAS * N_BINS words for `narrow`, and two for `finish`


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
def shift_for(lo, hi, N_BINS: tl.constexpr):
    """A shift for which N_BINS bins of 2**shift keys each cover the keys [lo, hi): the smallest, up to rounding."""
    exponent = (tl.maximum(hi - 1 - lo, 1).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 126
    N_BITS: tl.constexpr = N_BINS.bit_length() - 1
    return tl.maximum(exponent - N_BITS, 0).to(tl.int32)


@triton.jit
def fill_histograms(hist_ptr, x, k_lo, k_over, k_shift, m_lo, m_over, m_shift, SIZE: tl.constexpr):
    """Add the losses x above key lo that are not `over` to the histograms of k and m, with bins of 2**shift keys.

    A loss that belongs to both is counted for m only. Losses equal to lo may be many. They are not counted; subtraction
    gives their number.
    """
    of_k = (x > float_of(k_lo)) & ~k_over
    of_m = (x > float_of(m_lo)) & ~m_over
    # The difference may exceed an int32, but not its 32 bits.
    difference = key_of(x) - tl.where(of_m, m_lo.to(tl.int32), k_lo.to(tl.int32))
    bin_ = difference.to(tl.uint32, bitcast=True) >> tl.where(of_m, m_shift, k_shift).to(tl.uint32)
    tl.atomic_add(hist_ptr + (bin_.to(tl.int32) + tl.where(of_m, SIZE, 0)), 1, mask=of_k | of_m, sem="relaxed")


@triton.jit
def load_histogram(hist_ptr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr):
    counts = tl.zeros((N_BINS,), tl.int32)
    for replica in tl.static_range(REPLICAS):
        counts += tl.load(hist_ptr + replica * N_BINS + tl.arange(0, N_BINS), cache_modifier=".cg")
    return counts


@triton.jit
def search_histogram(counts, rank, lo, hi, above, inside, shift, N_BINS: tl.constexpr):
    """The bin that holds the rank: its keys [low, high) in [lo, hi), and the numbers of losses above and inside it.

    `counts` are those of bins of 2**shift keys from lo on, `above` and `inside` the numbers of losses above and inside
    of [lo, hi). The key lo is a bin of its own, which the histogram does not count.
    """
    bins = tl.arange(0, N_BINS)
    at_or_above = tl.cumsum(counts, 0, reverse=True)
    found = tl.max(tl.where(above + at_or_above >= rank, bins, -1), 0)
    above_bin = above + tl.sum(tl.where(bins > found, counts, 0), 0)
    in_bin = tl.sum(tl.where(bins == found, counts, 0), 0)
    low = lo + (tl.maximum(found, 0).to(tl.int64) << shift)
    high = tl.minimum(lo + ((found + 1).to(tl.int64) << shift), hi)
    low = tl.where(found == 0, lo + 1, low)
    high = tl.where(found < 0, lo + 1, high)
    return low, high, above_bin, tl.where(found < 0, above + inside - above_bin, in_bin)


@triton.jit
def last_to_arrive(ticket_ptr, programs):
    """Whether this program is the last to arrive; it then sees the writes of all others."""
    tl.debug_barrier()
    last = tl.atomic_add(ticket_ptr, 1, sem="acq_rel") == programs - 1
    tl.debug_barrier()
    return last


@triton.jit
def histograms(ws_ptr, level: tl.constexpr, CAP: tl.constexpr, SIZE: tl.constexpr):
    """Pointer to the histogram of k, of level 0 (`narrow`) or 1 (`finish`); that of m follows SIZE words later."""
    return ws_ptr + LIST + CAP + 2 * level * SIZE


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
def pivots(sample, lowest, highest, rank, n, SAMPLE: tl.constexpr):
    """An interval [lo, hi) of keys that very likely contains the key of the rank-th largest of n losses.

    It misses the key only if the count in the sample is off by more than 4.5 standard deviations plus 8. Close to the
    first or last rank it reaches to the largest or smallest key. `lowest` and `highest` are keys of the sample.
    """
    centre = rank.to(tl.float32) * (SAMPLE / n.to(tl.float32))
    reach = 4.5 * tl.sqrt(tl.maximum(centre * (1.0 - centre / SAMPLE), 0.0)) + 8.0
    near = (reach * 0.25).to(tl.int32)
    low_rank = (centre + reach).to(tl.int32) + 1
    high_rank = tl.maximum((centre - reach).to(tl.int32) + 1, 1)  # fewer than this of the sample lie at or above hi
    near_high = tl.minimum(near, high_rank - 1)
    no_low, no_high = low_rank > SAMPLE, centre < reach
    lo, _, _, hi = search_two(
        sample, sample, low_rank, high_rank - near_high, near, near_high,
        tl.where(no_low, highest, lowest), highest, tl.where(no_high, highest, lowest), highest,
    )  # fmt: skip
    return tl.where(no_low, KEY_MIN, lo), tl.where(no_high, KEY_MAX, hi) + 1


@triton.jit
def narrowed(ws_ptr, which, counts, rank, n, lo, hi, shift, N_BINS: tl.constexpr):
    """The bin of one cut: its keys [low, high), and the numbers of losses above and inside it.

    It comes from the histogram. If the pivots miss the cut, the bin has all keys on that side of the pivots. `which` is
    0 for the counts in the bracket of k, 1 for those in the bracket of m.
    """
    at_or_above_lo = tl.load(ws_ptr + COUNTS + 2 * which, cache_modifier=".cg")
    above_hi = tl.load(ws_ptr + COUNTS + 2 * which + 1, cache_modifier=".cg")
    low, high, above, inside = search_histogram(
        counts, rank, lo, hi, above_hi, at_or_above_lo - above_hi, shift, N_BINS
    )
    over, under = rank <= above_hi, rank > at_or_above_lo
    low = tl.where(over, hi, tl.where(under, KEY_MIN, low))
    high = tl.where(over, KEY_MAX + 1, tl.where(under, lo, high))
    above = tl.where(over, 0, tl.where(under, at_or_above_lo, above))
    inside = tl.where(over, above_hi, tl.where(under, n - at_or_above_lo, inside))
    return low, high, above, inside


@triton.jit
def store_bin(ws_ptr, which: tl.constexpr, low, high, above, inside):
    tl.store(ws_ptr + BINS + 4 * which, low.to(tl.int32))
    tl.store(ws_ptr + BINS + 4 * which + 1, high.to(tl.int32))
    tl.store(ws_ptr + BINS + 4 * which + 2, above)
    tl.store(ws_ptr + BINS + 4 * which + 3, inside)


@triton.jit
def store_bins(
    ws_ptr, m, k, n, k_lo, k_hi, k_shift, m_lo, m_hi, m_shift, shared,
    CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    """Find and store the bins of both cuts, which are disjoint or equal; for m = 0 that of m is above all floats."""
    hist_ptr = histograms(ws_ptr, 0, CAP, REPLICAS * N_BINS)
    counts = load_histogram(hist_ptr, REPLICAS, N_BINS)
    k_low, k_high, k_above, k_inside = narrowed(ws_ptr, 0, counts, k, n, k_lo, k_hi, k_shift, N_BINS)
    if shared:
        m_lo, m_hi, m_shift = k_lo, k_hi, k_shift
    else:
        counts = load_histogram(hist_ptr + REPLICAS * N_BINS, REPLICAS, N_BINS)
    which = tl.where(shared, 0, 1)
    m_low, m_high, m_above, m_inside = narrowed(ws_ptr, which, counts, m, n, m_lo, m_hi, m_shift, N_BINS)
    if m == 0:  # there is no upper cut
        m_low, m_high, m_above, m_inside = m_lo, m_lo + 1, m_above * 0, m_inside * 0
    elif (m_low < k_high) & (k_low < m_high):  # they overlap: one bin for both
        above = tl.where(m_high > k_high, m_above, k_above)
        inside = tl.where(m_low < k_low, m_above + m_inside, k_above + k_inside) - above
        low, high = tl.minimum(k_low, m_low), tl.maximum(k_high, m_high)
        k_low, k_high, k_above, k_inside = low, high, above, inside
        m_low, m_high, m_above, m_inside = low, high, above, inside
    store_bin(ws_ptr, 0, k_low, k_high, k_above, k_inside)
    store_bin(ws_ptr, 1, m_low, m_high, m_above, m_inside)


@triton.jit
def brackets(x_ptr, n, m, k, SAMPLE: tl.constexpr, N_BINS: tl.constexpr):
    """A bracket (an interval of keys) around each cut with the shift of its bins, and whether both cuts share one.

    The result is equal in every program. If they share one, or m = 0, the bracket of m is above all floats.
    """
    sample = sample_of(x_ptr, n, SAMPLE)
    lowest, highest = lowest_key(sample), highest_key(sample)
    k_lo, k_hi = pivots(sample, lowest, highest, k, n, SAMPLE)
    m_lo, m_hi = tl.full((), KEY_MAX + 1, tl.int64), tl.full((), KEY_MAX + 2, tl.int64)  # no float lies there
    if m > 0:
        m_lo, m_hi = pivots(sample, lowest, highest, m, n, SAMPLE)
    shared = m_lo < k_hi  # the cuts are close: both use the bracket of k
    if shared:
        k_lo, k_hi = tl.minimum(k_lo, m_lo), tl.maximum(k_hi, m_hi)
        m_lo, m_hi = tl.full((), KEY_MAX + 1, tl.int64), tl.full((), KEY_MAX + 2, tl.int64)
    return k_lo, k_hi, shift_for(k_lo, k_hi, N_BINS), m_lo, m_hi, shift_for(m_lo, m_hi, N_BINS), shared


@triton.jit
def narrow_pass(
    x_ptr, ws_ptr, n, k_lo, k_hi, k_shift, m_lo, m_hi, m_shift, program, programs,
    TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    """Add the losses of this program to the counts and histograms."""
    # Several copies, so ties do not contend for one word.
    hist_ptr = histograms(ws_ptr, 0, CAP, REPLICAS * N_BINS) + (program % REPLICAS) * N_BINS
    at_or_above = tl.zeros((TILE,), tl.int32)  # two counts per word: k in the low half, m in the high half
    above = tl.zeros((TILE,), tl.int32)
    following = load_tile(x_ptr, program, n, TILE)
    for tile in range(program, tl.cdiv(n, TILE), programs):
        x = following.to(tl.float32)
        following = load_tile(x_ptr, tl.minimum(tile + programs, tl.cdiv(n, TILE) - 1), n, TILE)  # prefetch
        k_over, m_over = x > float_of(k_hi - 1), x > float_of(m_hi - 1)
        above += k_over.to(tl.int32) + (m_over.to(tl.int32) << 16)
        at_or_above += (x >= float_of(k_lo)).to(tl.int32) + ((x >= float_of(m_lo)).to(tl.int32) << 16)
        fill_histograms(hist_ptr, x, k_lo, k_over, k_shift, m_lo, m_over, m_shift, REPLICAS * N_BINS)
    tl.atomic_add(ws_ptr + COUNTS, tl.sum(at_or_above & 0xFFFF, 0), sem="relaxed")
    tl.atomic_add(ws_ptr + COUNTS + 1, tl.sum(above & 0xFFFF, 0), sem="relaxed")
    tl.atomic_add(ws_ptr + COUNTS + 2, tl.sum((at_or_above >> 16) & 0xFFFF, 0), sem="relaxed")
    tl.atomic_add(ws_ptr + COUNTS + 3, tl.sum((above >> 16) & 0xFFFF, 0), sem="relaxed")


@triton.jit(do_not_specialize=["x_ptr", "value_ptr", "cut_ptr", "m", "k", "scale"])
def narrow(
    x_ptr, ws_ptr, value_ptr, cut_ptr, n, m, k, scale,
    SAMPLE: tl.constexpr, TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    """Store the bin that holds each cut; value, cut and scale are arguments only because `finish` has them."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    k_lo, k_hi, k_shift, m_lo, m_hi, m_shift, shared = brackets(x_ptr, n, m, k, SAMPLE, N_BINS)
    narrow_pass(
        x_ptr, ws_ptr, n, k_lo, k_hi, k_shift, m_lo, m_hi, m_shift, program, programs, TILE, CAP, REPLICAS, N_BINS
    )
    if last_to_arrive(ws_ptr + TICKETS, programs):
        store_bins(ws_ptr, m, k, n, k_lo, k_hi, k_shift, m_lo, m_hi, m_shift, shared, CAP, REPLICAS, N_BINS)


# --- finish


@triton.jit
def load_bin(ws_ptr, which: tl.constexpr):
    low = tl.load(ws_ptr + BINS + 4 * which, cache_modifier=".cg").to(tl.int64)
    high = tl.load(ws_ptr + BINS + 4 * which + 1, cache_modifier=".cg").to(tl.int64)
    above = tl.load(ws_ptr + BINS + 4 * which + 2, cache_modifier=".cg")
    inside = tl.load(ws_ptr + BINS + 4 * which + 3, cache_modifier=".cg")
    return low, high, above, inside


@triton.jit
def to_collect(low, high, inside):
    """The number of losses of a bin to collect; 0 if the bin is a single key, because its losses are equal."""
    return tl.where(high - low > 1, inside, 0)


@triton.jit
def sum_and_collect(
    x_ptr, ws_ptr, n, scale, program, programs,
    TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    """Sum scale times the losses of this program that are certainly kept, and collect those in the two bins.

    They are collected as a list if there are at most CAP, otherwise as finer histograms. NaNs are counted, including
    the padding of the last tile.
    """
    k_low, k_high, _, k_inside = load_bin(ws_ptr, 0)
    m_low, m_high, _, m_inside = load_bin(ws_ptr, 1)
    kept_from, kept_to = float_of(k_high - 1), float_of(m_low - 1)  # between the bins: certainly kept
    k_many, m_many = to_collect(k_low, k_high, k_inside), to_collect(m_low, m_high, m_inside)
    # A bin that is not collected becomes an empty interval.
    k_low, k_high = tl.where(k_many > 0, k_low, KEY_MAX + 1), tl.where(k_many > 0, k_high, KEY_MAX + 2)
    m_low, m_high = tl.where(m_many > 0, m_low, KEY_MAX + 1), tl.where(m_many > 0, m_high, KEY_MAX + 2)
    k_shift, m_shift = shift_for(k_low, k_high, N_BINS), shift_for(m_low, m_high, N_BINS)
    listing = k_many + m_many <= CAP
    hist_ptr = histograms(ws_ptr, 1, CAP, REPLICAS * N_BINS) + (program % REPLICAS) * N_BINS
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
            fill_histograms(hist_ptr, x, k_low, k_over, k_shift, m_low, m_over, m_shift, REPLICAS * N_BINS)
    tl.store(ws_ptr.to(tl.pointer_type(tl.float32)) + PARTS + program, tl.sum(total, 0))
    tl.atomic_add(ws_ptr + N_NAN, tl.sum(n_nan, 0), sem="relaxed")


@triton.jit
def sum_in_any_order(x, chosen):
    """The sum of the chosen x as integer multiples of about 2**-50 of the largest, so their order has no effect."""
    largest = tl.max(tl.where(chosen, tl.abs(x), 0.0), 0)
    exponent = ((largest.to(tl.int32, bitcast=True) >> 23) & 0xFF).to(tl.int64) - 126
    unit = ((1023 + 50 - exponent) << 52).to(tl.float64, bitcast=True)
    whole = tl.where(chosen, x, 0.0).to(tl.float64) * unit
    return (tl.sum(whole.to(tl.int64), 0).to(tl.float64) / unit).to(tl.float32)


@triton.jit
def resolve_list(ws_ptr, m, k, CAP: tl.constexpr):
    """The values of both cuts, how many losses are above and equal to each, and the sum of listed losses between them.

    The list has the losses in the bins.
    """
    k_low, k_high, above_k, k_inside = load_bin(ws_ptr, 0)
    m_low, m_high, above_m, m_inside = load_bin(ws_ptr, 1)
    i = tl.arange(0, CAP)
    length = tl.load(ws_ptr + LISTED, cache_modifier=".cg")
    entries = ws_ptr.to(tl.pointer_type(tl.float32)) + LIST + i
    x = tl.load(entries, mask=i < length, other=float("nan"), cache_modifier=".cg")
    of_k = tl.where((x >= float_of(k_low)) & (x <= float_of(k_high - 1)), x, float("nan"))
    of_m = tl.where((x >= float_of(m_low)) & (x <= float_of(m_high - 1)), x, float("nan"))
    lam, lam_hat = two_values(of_k, of_m, k - above_k, m - above_m, k_low, k_high - 1, m_low, m_high - 1)
    # The losses of a bin with one key were not collected; all are equal to that key.
    lam = tl.where(k_high - k_low > 1, lam, float_of(k_low))
    lam_hat = tl.where(m_high - m_low > 1, lam_hat, float_of(m_low))
    lam_hat = tl.where(m > 0, lam_hat, float("inf"))
    over = tl.sum((of_k > lam).to(tl.int32) + ((of_m > lam_hat).to(tl.int32) << 16), 0)
    tied = tl.sum((of_k == lam).to(tl.int32) + ((of_m == lam_hat).to(tl.int32) << 16), 0)
    tied_k = tl.where(k_high - k_low > 1, tied & 0xFFFF, k_inside)
    tied_m = tl.where(m_high - m_low > 1, (tied >> 16) & 0xFFFF, m_inside)
    between = sum_in_any_order(x, (x > lam) & (x < lam_hat))
    return lam, lam_hat, above_k + (over & 0xFFFF), tied_k, above_m + ((over >> 16) & 0xFFFF), tied_m, between


@triton.jit
def resolve_histograms(
    x_ptr, ws_ptr, m, k, n, TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr
):  # fmt: skip
    """The result of `resolve_list`, from the finer histograms; if a bin still has several keys, all losses are read."""
    k_low, k_high, above_k, k_inside = load_bin(ws_ptr, 0)
    m_low, m_high, above_m, m_inside = load_bin(ws_ptr, 1)
    shared = k_low == m_low
    k_shift, m_shift = shift_for(k_low, k_high, N_BINS), shift_for(m_low, m_high, N_BINS)
    hist_ptr = histograms(ws_ptr, 1, CAP, REPLICAS * N_BINS)
    of_m = load_histogram(hist_ptr + REPLICAS * N_BINS, REPLICAS, N_BINS)
    of_k = load_histogram(hist_ptr + tl.where(shared, REPLICAS * N_BINS, 0), REPLICAS, N_BINS)
    lo_k, hi_k, above_k, tied_k = search_histogram(of_k, k, k_low, k_high, above_k, k_inside, k_shift, N_BINS)
    lo_m, hi_m, above_m, tied_m = search_histogram(of_m, m, m_low, m_high, above_m, m_inside, m_shift, N_BINS)
    if hi_k - lo_k > 1:
        lo_k, above_k, tied_k = search_losses(x_ptr, n, k, lo_k, hi_k, TILE)
    if (hi_m - lo_m > 1) & (m > 0):
        lo_m, above_m, tied_m = search_losses(x_ptr, n, m, lo_m, hi_m, TILE)
    lam, lam_hat = float_of(lo_k), tl.where(m > 0, float_of(lo_m), float("inf"))
    between = tl.zeros((), tl.float32)
    if (k_shift == 0) & (m_shift == 0):  # every bin is one value
        bins = tl.arange(0, N_BINS)
        x = float_of(k_low + bins)
        between = tl.sum(tl.where((of_k > 0) & (x > lam) & (x < lam_hat), x * of_k, 0.0), 0)
        x = float_of(m_low + bins)
        between_cuts = (of_m > 0) & (x > lam) & (x < lam_hat) & (shared == 0)
        between += tl.sum(tl.where(between_cuts, x * of_m, 0.0), 0)
    else:
        parts = tl.zeros((TILE,), tl.float32)
        for tile in range(tl.cdiv(n, TILE)):
            x = load_tile(x_ptr, tile, n, TILE).to(tl.float32)
            inside = (x >= float_of(k_low)) & (x <= float_of(k_high - 1))
            inside |= (x >= float_of(m_low)) & (x <= float_of(m_high - 1))
            parts += tl.where(inside & (x > lam) & (x < lam_hat), x, 0.0)
        between = tl.sum(parts, 0)
    return lam, lam_hat, above_k, tied_k, above_m, tied_m, between


@triton.jit
def search_losses(x_ptr, n, rank, low, high, TILE: tl.constexpr):
    """The key of the rank-th largest loss, which lies in [low, high), and the numbers of losses above and equal to it.

    Slow, but rarely needed.
    """
    high -= 1
    above, tied = count_losses(x_ptr, n, low, TILE)
    while low < high:
        mid = low + ((high - low + 1) >> 1)
        above, tied = count_losses(x_ptr, n, mid, TILE)
        low, high = tl.where(above + tied >= rank, mid, low), tl.where(above + tied >= rank, high, mid - 1)
    above, tied = count_losses(x_ptr, n, low, TILE)
    return low, above, tied


@triton.jit
def count_losses(x_ptr, n, key, TILE: tl.constexpr):
    above = tl.zeros((TILE,), tl.int32)
    tied = tl.zeros((TILE,), tl.int32)
    for tile in range(tl.cdiv(n, TILE)):
        x = load_tile(x_ptr, tile, n, TILE).to(tl.float32)
        above += (x > float_of(key)).to(tl.int32)
        tied += (x == float_of(key)).to(tl.int32)
    return tl.sum(above, 0), tl.sum(tied, 0)


@triton.jit
def resolve(
    x_ptr, ws_ptr, value_ptr, cut_ptr, n, m, k, scale, programs,
    TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    """Compute and store both cuts and the value, or NaN if a loss is NaN; only the last program calls this."""
    k_low, k_high, _, k_inside = load_bin(ws_ptr, 0)
    m_low, m_high, _, m_inside = load_bin(ws_ptr, 1)
    if to_collect(k_low, k_high, k_inside) + to_collect(m_low, m_high, m_inside) <= CAP:
        lam, lam_hat, above_k, tied_k, above_m, tied_m, between = resolve_list(ws_ptr, m, k, CAP)
    else:
        lam, lam_hat, above_k, tied_k, above_m, tied_m, between = resolve_histograms(
            x_ptr, ws_ptr, m, k, n, TILE, CAP, REPLICAS, N_BINS
        )
    padding = tl.cdiv(n, TILE) * TILE - n
    n_nan = tl.load(ws_ptr + N_NAN, cache_modifier=".cg") - padding
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


@triton.jit(do_not_specialize=["x_ptr", "value_ptr", "cut_ptr", "m", "k", "scale"])
def finish(
    x_ptr, ws_ptr, value_ptr, cut_ptr, n, m, k, scale,
    TILE: tl.constexpr, CAP: tl.constexpr, REPLICAS: tl.constexpr, N_BINS: tl.constexpr,
):  # fmt: skip
    """Value and cut, from the bins that `narrow` stored."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    sum_and_collect(x_ptr, ws_ptr, n, scale, program, programs, TILE, CAP, REPLICAS, N_BINS)
    if last_to_arrive(ws_ptr + TICKETS + 1, programs):
        resolve(x_ptr, ws_ptr, value_ptr, cut_ptr, n, m, k, scale, programs, TILE, CAP, REPLICAS, N_BINS)
