"""The Triton kernel of `AoRRLoss(m="auto")`: memory, noise model and weights of a batch in one launch.

`auto.AutoCut` and `label_noise.ClassNoise` define the result. One program processes the batch tile by tile, because
every weight depends on the class sums of the whole batch, and because sums in a fixed order are deterministic. Values
that several threads share are all read before a barrier and written after it.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

TINY = tl.constexpr(1.1754943508222875e-38)
UNDECIDED = tl.constexpr(2.0)  # marks the ratio of a sample that may not be cut yet; ratios are at most 1
# Inputs may be slices and the memory may grow, so the compiled kernel does not depend on their alignment or size.
_ANY = ["output", "target", "index", "size", "n_classes"]


@triton.jit
def stored_row(index, row, valid, size):
    """The memory row of each sample (`size`, the spare row, if it has none), and whether it has one."""
    stored = tl.load(index + row, valid, -1).to(tl.int64)
    known = (stored >= 0) & (stored < size)
    return tl.where(known, stored, size), known


@triton.jit
def probabilities_of(output, row, one_class, inside, n_classes):
    """The softmax of each row over the classes; a NaN becomes 0."""
    scores = tl.load(output + row[:, None] * n_classes + one_class[None, :], inside, -float("inf")).to(tl.float32)
    raised = tl.exp(scores - tl.max(scores, 1)[:, None])
    probabilities = raised / tl.sum(raised, 1)[:, None]
    return tl.where(inside & (probabilities == probabilities), probabilities, 0.0)


@triton.jit
def update_means(
    output, target, index, rows, visits, given, weights, row, n, size, n_classes,
    FACTOR: tl.constexpr, VISITS: tl.constexpr, CLASSES: tl.constexpr,
):  # fmt: skip
    """Update the memory of a tile of samples, and write their ratios into the array of weights.

    The ratio of a sample is the running mean of p(label) divided by that of the predicted class; it is UNDECIDED if
    there were fewer than VISITS earlier visits. A sample without a memory row has no earlier visits and is not stored.
    Returns four sums by class: samples, ratios, disagreements and repeated disagreements.
    """
    one_class = tl.arange(0, CLASSES)
    valid = row < n
    inside = valid[:, None] & (one_class < n_classes)[None, :]
    probabilities = probabilities_of(output, row, one_class, inside, n_classes)
    label = tl.load(target + row, valid, 0).to(tl.int32)
    stored, known = stored_row(index, row, valid, size)
    n_visits = tl.load(visits + stored, known, 0)
    cell = rows + stored[:, None] * n_classes + one_class[None, :]
    old = tl.load(cell, inside & known[:, None], 0.0)
    new = tl.where((n_visits > 0)[:, None], old - (old - probabilities) * (1.0 - FACTOR), probabilities)
    choice = tl.argmax(tl.where(inside, old, -1.0), 1)
    disagreed = (n_visits > 0) & (choice != label)
    again = disagreed & (choice == tl.argmax(tl.where(inside, probabilities, -1.0), 1))
    own = (label[:, None] == one_class[None, :]) & valid[:, None]
    ratio = tl.sum(tl.where(own, new, 0.0), 1) / tl.maximum(tl.max(new, 1), TINY)
    ratio = tl.minimum(ratio, 1.0)
    tl.debug_barrier()
    tl.store(cell, new, inside & known[:, None])
    tl.store(visits + stored, n_visits + 1, known)
    tl.store(given + stored, label.to(tl.int64), known)
    tl.store(weights + row, tl.where(n_visits >= VISITS, ratio, UNDECIDED), valid)
    ones, ratios = tl.sum(own.to(tl.float32), 0), tl.sum(tl.where(own, ratio[:, None], 0.0), 0)
    disagreements = tl.sum((own & disagreed[:, None]).to(tl.float32), 0)
    return ones, ratios, disagreements, tl.sum((own & again[:, None]).to(tl.float32), 0)


@triton.jit
def edges_of(
    s0, s1, s2, s3, EDGE: tl.constexpr, TRAIN_LOW: tl.constexpr, TRAIN_HIGH: tl.constexpr, PRIOR: tl.constexpr
):
    """The ratio below which labels lose weight, for each class, from the four sums s0 to s3 of the classes."""
    kept = s1 / tl.maximum(s0, 1e-6)
    edge = tl.minimum(EDGE * (1.0 - kept), 1.0) * kept * tl.minimum(s0 / PRIOR, 1.0)
    overall = tl.sum(s3, 0) / tl.maximum(tl.sum(s2, 0), 1.0)
    repeated = (s3 + PRIOR * overall) / (s2 + PRIOR)
    trust = (repeated - TRAIN_LOW) / (TRAIN_HIGH - TRAIN_LOW)
    return edge * tl.minimum(tl.maximum(trust, 0.0), 1.0)


@triton.jit
def weigh_tile(target, index, cuts, weights, edge, row, n, size, CLASSES: tl.constexpr):
    """Turn the ratios of a tile into weights, and count weights below 0.5 as cuts; returns the sum of the weights.

    The weight of an UNDECIDED sample is 1.
    """
    valid = row < n
    ratio = tl.load(weights + row, valid, UNDECIDED)
    label = tl.load(target + row, valid, 0).to(tl.int32)
    own = label[:, None] == tl.arange(0, CLASSES)[None, :]
    below = tl.minimum(ratio / tl.maximum(tl.sum(tl.where(own, edge[None, :], 0.0), 1), 1e-6), 1.0)
    weight = tl.where(valid, tl.where(ratio == UNDECIDED, 1.0, below * below), 0.0)
    stored, known = stored_row(index, row, valid, size)
    count = tl.load(cuts + stored, known, 0) + (weight < 0.5).to(tl.int32)
    tl.debug_barrier()
    tl.store(cuts + stored, count, known)
    tl.store(weights + row, weight, valid)
    return tl.sum(weight, 0)


@triton.jit(do_not_specialize=_ANY)
def remember(
    output, slopes, target, index, rows, visits, cuts, given, sums, weights, n, size, n_classes,
    FACTOR: tl.constexpr, VISITS: tl.constexpr, HALF_LIFE: tl.constexpr, EDGE: tl.constexpr, TRAIN_LOW: tl.constexpr,
    TRAIN_HIGH: tl.constexpr, PRIOR: tl.constexpr, CLASSES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Store the predictions for n samples and compute their weights; `slopes` are weights / max(1, their sum).

    The memory (`rows`, `visits`, `cuts`, and the labels `given`) and the class sums `sums` are updated in place.
    """
    tile, one_class = tl.arange(0, TILE), tl.arange(0, CLASSES)
    b0, b1 = tl.zeros((CLASSES,), tl.float32), tl.zeros((CLASSES,), tl.float32)
    b2, b3 = tl.zeros((CLASSES,), tl.float32), tl.zeros((CLASSES,), tl.float32)
    for start in range(0, n, TILE):
        c0, c1, c2, c3 = update_means(
            output, target, index, rows, visits, given, weights, start + tile, n, size, n_classes,
            FACTOR, VISITS, CLASSES,
        )  # fmt: skip
        b0, b1, b2, b3 = b0 + c0, b1 + c1, b2 + c2, b3 + c3
    inner, decay, column = one_class < n_classes, tl.exp2(-b0 / HALF_LIFE), sums + 4 * one_class
    s0, s1 = tl.load(column, inner, 0.0) * decay + b0, tl.load(column + 1, inner, 0.0) * decay + b1
    s2, s3 = tl.load(column + 2, inner, 0.0) * decay + b2, tl.load(column + 3, inner, 0.0) * decay + b3
    tl.debug_barrier()
    tl.store(column, s0, inner)
    tl.store(column + 1, s1, inner)
    tl.store(column + 2, s2, inner)
    tl.store(column + 3, s3, inner)
    edge = edges_of(s0, s1, s2, s3, EDGE, TRAIN_LOW, TRAIN_HIGH, PRIOR)
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, n, TILE):
        total += weigh_tile(target, index, cuts, weights, edge, start + tile, n, size, CLASSES)
    scale = 1.0 / tl.maximum(total, 1.0)
    tl.debug_barrier()
    for start in range(0, n, TILE):
        row = start + tile
        tl.store(slopes + row, tl.load(weights + row, row < n, 0.0) * scale, row < n)
