"""Triton kernels of one pass over the rows: score, loss, weight between the cuts, sums of the tangents, and Hessian.

X is read from memory once; with more than 32 columns a tile is read a second time from the cache. Scores, losses and
all sums that determine ranks are float64 for any dtype of X. Products of slopes and rows are summed in the dtype of X
within a tile and in float64 over tiles. The outputs of a launch are chosen at run time, not at compile time, so a loss
has the same bits in every launch. Counts, collected rows and the mask of dropped rows therefore agree at a cut.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

# Sums of a program before those of its columns; see `passes.HEAD`.
HEAD = tl.constexpr(16)
LOGISTIC = tl.constexpr(0)
SQUARED = tl.constexpr(1)
HUBER = tl.constexpr(2)


@triton.jit
def loss_and_slope(y, z, LOSS: tl.constexpr):
    """Loss and slope at a score z, float64."""
    if LOSS == LOGISTIC:
        t = -y * z
        e = tl.exp(-tl.abs(t))
        u = 1.0 + e
        # log(1 + e) loses digits for small e; this quotient corrects the rounding of 1 + e.
        small = u == 1.0
        log1p = tl.where(small, e, tl.log(u) * (e / tl.where(small, 1.0, u - 1.0)))
        return tl.maximum(t, 0.0) + log1p, -y * tl.where(t > 0, 1.0, e) / u
    elif LOSS == SQUARED:
        r = z - y
        return r * r, 2.0 * r
    else:
        r = z - y
        slope = tl.minimum(tl.maximum(r, -1.0), 1.0)
        return slope * (r - slope * 0.5), slope


@triton.jit
def load_columns(x_ptr, rows, valid, columns, stride, d, INTERCEPT: tl.constexpr):
    """Some columns of a tile of rows, 0 outside of X; the column after the last is 1 if there is an intercept."""
    addresses = x_ptr + rows[:, None] * stride + columns[None, :]
    x = tl.load(addresses, mask=valid[:, None] & (columns < d)[None, :], other=0.0)
    if INTERCEPT:
        x = tl.where((columns == d)[None, :], 1.0, x).to(x.dtype)
    return x


@triton.jit(do_not_specialize=["first", "n", "limit", "write", "tiles"])
def one_pass(
    x_ptr, y_ptr, mass_ptr, w_ptr, request_ptr, sums_ptr, loss_ptr, list_ptr, score_ptr, count_ptr, scratch_ptr,
    first, n, stride, d, limit, write, tiles,
    LOSS: tl.constexpr, WEIGHTED: tl.constexpr, INTERCEPT: tl.constexpr,
    PARTS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One pass over the rows [first, n); each program processes `tiles` tiles of BLOCK rows.

    With `write` it stores the losses, otherwise the sums and the undecided rows. At most `limit` of these are stored,
    and all are counted. `request_ptr` has the ends of both brackets (`passes.Limits`) and the weights of two classes.
    Columns are processed in PARTS blocks of WIDTH columns; PARTS is a power of two.
    """
    program = tl.program_id(0).to(tl.int64)
    lanes, parts = tl.arange(0, WIDTH), tl.arange(0, PARTS)
    low_low, low_high = tl.load(request_ptr), tl.load(request_ptr + 1)
    high_low, high_high = tl.load(request_ptr + 2), tl.load(request_ptr + 3)
    factor_0, factor_1 = tl.load(request_ptr + 4), tl.load(request_ptr + 5)
    falling = tl.zeros((PARTS, WIDTH), tl.float64)
    rising = tl.zeros((PARTS, WIDTH), tl.float64)
    none = tl.zeros((BLOCK,), tl.float64)
    m_below, m_low, m_high, m_above, least = none, none, none, none, none + float("inf")
    m_down, m_up, s_down, s_up, o_down, o_up = none, none, none, none, none, none
    scratch = scratch_ptr + program * BLOCK + tl.arange(0, BLOCK)
    for tile in range(tiles):
        rows = first + (program * tiles + tile) * BLOCK + tl.arange(0, BLOCK)
        valid = rows < n
        y = tl.load(y_ptr + rows, mask=valid, other=1).to(tl.float64)
        x = load_columns(x_ptr, rows, valid, lanes, stride, d, INTERCEPT)
        products = x.to(tl.float64) * tl.load(w_ptr + lanes)[None, :]
        for part in range(1, PARTS):
            x = load_columns(x_ptr, rows, valid, part * WIDTH + lanes, stride, d, INTERCEPT)
            products += x.to(tl.float64) * tl.load(w_ptr + part * WIDTH + lanes)[None, :]
        # Through memory, each thread gets one row; otherwise all threads of a row would compute its exponential.
        tl.store(scratch, tl.sum(products, 1))
        tl.debug_barrier()
        z = tl.load(scratch)
        tl.debug_barrier()
        s, slope = loss_and_slope(y, z, LOSS)
        if write:
            tl.store(loss_ptr + (rows - first), s, mask=valid)
        else:
            mass = tl.where(valid, tl.where(y > 0, factor_1, factor_0), 0.0)
            if WEIGHTED:
                mass *= tl.load(mass_ptr + rows, mask=valid, other=0.0).to(tl.float64)
            above = s > high_high
            below = s < low_low
            in_low = (s >= low_low) & (s <= low_high)
            in_high = (s >= low_low) & (s >= high_low) & (s <= high_high)
            undecided = in_low | in_high
            weight = tl.where(above | below | undecided, 0.0, mass)
            u = slope * weight
            up = u > 0
            lost, shift = weight * s, weight * (s - slope * z)
            m_below += tl.where(below, mass, 0.0)
            m_low += tl.where(in_low, mass, 0.0)
            m_high += tl.where(in_high, mass, 0.0)
            m_above += tl.where(above, mass, 0.0)
            least = tl.minimum(least, tl.where(mass > 0, s, float("inf")))
            m_down += tl.where(up, 0.0, weight)
            m_up += tl.where(up, weight, 0.0)
            s_down += tl.where(up, 0.0, lost)
            s_up += tl.where(up, lost, 0.0)
            o_down += tl.where(up, 0.0, shift)
            o_up += tl.where(up, shift, 0.0)
            chosen = undecided & (mass > 0)
            slot = tl.atomic_add(count_ptr + tl.zeros((BLOCK,), tl.int32), 1, mask=chosen)
            room = chosen & (slot < limit)
            tl.store(list_ptr + slot, rows, mask=room)
            tl.store(score_ptr + 2 * slot, s, mask=room)
            tl.store(score_ptr + 2 * slot + 1, z, mask=room)
            u_down, u_up = tl.where(up, 0.0, u), tl.where(up, u, 0.0)
            for part in range(PARTS):
                if PARTS > 1:
                    x = load_columns(x_ptr, rows, valid, part * WIDTH + lanes, stride, d, INTERCEPT)
                down = tl.sum(x * u_down.to(x.dtype)[:, None], 0).to(tl.float64)
                top = tl.sum(x * u_up.to(x.dtype)[:, None], 0).to(tl.float64)
                of_part = (parts == part)[:, None]
                falling += tl.where(of_part, down[None, :], 0.0)
                rising += tl.where(of_part, top[None, :], 0.0)
    if write == 0:
        out = sums_ptr + program * (HEAD + 2 * PARTS * WIDTH)
        tl.store(out, tl.sum(m_below, 0))
        tl.store(out + 1, tl.sum(m_low, 0))
        tl.store(out + 2, tl.sum(m_down, 0) + tl.sum(m_up, 0))
        tl.store(out + 3, tl.sum(m_high, 0))
        tl.store(out + 4, tl.sum(m_above, 0))
        tl.store(out + 5, tl.min(least, 0))
        tl.store(out + 6, tl.sum(m_down, 0))
        tl.store(out + 7, tl.sum(s_down, 0))
        tl.store(out + 8, tl.sum(o_down, 0))
        tl.store(out + 9, tl.sum(m_up, 0))
        tl.store(out + 10, tl.sum(s_up, 0))
        tl.store(out + 11, tl.sum(o_up, 0))
        offsets = parts[:, None] * WIDTH + lanes[None, :]
        tl.store(out + HEAD + offsets, falling)
        tl.store(out + HEAD + PARTS * WIDTH + offsets, rising)


@triton.jit
def curvature(z, y, LOSS: tl.constexpr):
    """The second derivative of a loss at a score z, float64."""
    if LOSS == LOGISTIC:
        e = tl.exp(-tl.abs(z))
        return e / ((1.0 + e) * (1.0 + e))
    elif LOSS == SQUARED:
        return tl.zeros_like(z) + 2.0
    else:
        return tl.where(tl.abs(z - y) <= 1.0, 1.0, 0.0)


@triton.jit(do_not_specialize=["n", "tiles"])
def newton_pass(
    x_ptr, y_ptr, mass_ptr, w_ptr, request_ptr, gram_ptr, sums_ptr, scratch_ptr, n, stride, d, tiles,
    LOSS: tl.constexpr, WEIGHTED: tl.constexpr, INTERCEPT: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr, INTERPRETED: tl.constexpr,
):  # fmt: skip
    """Score, loss, weight between two cuts, gradient and Hessian in one read of X, up to WIDTH columns.

    The Hessian is a product on tensor cores. It is less precise than float32, and the caller makes it symmetric.
    Scores, losses and sums are float64; the gradient is summed in the dtype of X within a tile. The sums of a program
    are the mass, the loss and, from index 2, the gradient. `request_ptr` has the cuts and the weights of two classes.
    """
    program = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, WIDTH)
    w = tl.load(w_ptr + lanes)
    low, high = tl.load(request_ptr), tl.load(request_ptr + 1)
    factor_0, factor_1 = tl.load(request_ptr + 2), tl.load(request_ptr + 3)
    gram = tl.zeros((WIDTH, WIDTH), tl.float32)
    gradient = tl.zeros((WIDTH,), tl.float64)
    masses, lost = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
    scratch = scratch_ptr + program * BLOCK + tl.arange(0, BLOCK)
    for tile in range(tiles):
        rows = (program * tiles + tile) * BLOCK + tl.arange(0, BLOCK)
        valid = rows < n
        y = tl.load(y_ptr + rows, mask=valid, other=1).to(tl.float64)
        x = load_columns(x_ptr, rows, valid, lanes, stride, d, INTERCEPT)
        tl.store(scratch, tl.sum(x.to(tl.float64) * w[None, :], 1))
        tl.debug_barrier()
        z = tl.load(scratch)
        tl.debug_barrier()
        s, slope = loss_and_slope(y, z, LOSS)
        weight = tl.where(valid & (s >= low) & (s <= high), tl.where(y > 0, factor_1, factor_0), 0.0)
        if WEIGHTED:
            weight *= tl.load(mass_ptr + rows, mask=valid, other=0.0).to(tl.float64)
        masses += weight
        lost += weight * s
        gradient += tl.sum(x * (weight * slope).to(x.dtype)[:, None], 0).to(tl.float64)
        bent = x * tl.sqrt(weight * curvature(z, y, LOSS)).to(x.dtype)[:, None]
        if PRECISION == "bf16x2":
            # Each number is split into two halves. The sum has the product of the larger halves and twice one of the
            # mixed products, which equals both of them once the sum is made symmetric. Tensor cores take 16-bit tiles
            # in either order.
            large = bent.to(tl.bfloat16)
            small = ((bent - large.to(tl.float32)) * 2.0).to(tl.bfloat16)
            if INTERPRETED:  # Triton's interpreter has no products of this dtype
                large, small = large.to(tl.float32), small.to(tl.float32)
            gram = tl.dot(tl.trans(large), large, gram)
            gram = tl.dot(tl.trans(large), small, gram)
        else:
            gram = tl.dot(tl.trans(bent), bent, gram, input_precision=PRECISION)
    out = sums_ptr + program * (2 + WIDTH)
    tl.store(out, tl.sum(masses, 0))
    tl.store(out + 1, tl.sum(lost, 0))
    tl.store(out + 2 + lanes, gradient)
    offsets = lanes[:, None] * WIDTH + lanes[None, :]
    tl.store(gram_ptr + program * WIDTH * WIDTH + offsets, gram)
