"""The paper's Algorithm 3 for TKML-AoRR: simultaneous steps on W and on both thresholds, also with mini-batches.

With lam the lower threshold and lam_hat the width of the range above it, the objective is min over W and lam, max over
lam_hat, of lam + (n-m)/(k-m) lam_hat - (1/(k-m)) sum_i [lam_hat - [s_i - lam]_+]_+ + penalty. One step descends in W
and lam and ascends in lam_hat. lam_hat starts at s_[m] - lam, because it refers to the losses minus lam
(docs/paper.md).

With mini-batches, sums are scaled by n / batch. With ranking="batch" the thresholds are computed in each batch;
settings of m and k then give ordered SGD (m = 0, k of the batch), ITLM (k = batch), MKL-SGD (m = batch - 1, k = batch)
and, with top_k > 1 and one label per row, doubly-stochastic mining (m = 0).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, repeat

import numpy as np

from ..core.arrays import Array
from ..core.cuts import select
from .descent import Log, Result
from .label_ranking import LabelObjective, Watch


def minmax(
    objective: LabelObjective,
    W: Array,
    *,
    rate: float = 0.3,
    max_iter: int = 1000,
    batch_size: int | None = None,
    ranking: str = "stream",
    rng: np.random.Generator | None = None,
    log: Log | None = None,
    watch: Watch | None = None,
) -> Result:
    """Run Algorithm 3 of the paper: `max_iter` steps of fixed length on W and both thresholds.

    Parameters
    ----------
    objective : LabelObjective
        The objective to minimise.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    rate : float
        The step length.
    max_iter : int
        Number of steps.
    batch_size : int, optional
        Rows per step; by default all rows. With fewer rows, the history has F only at the start and at the end.
    ranking : {"stream", "batch"}
        Whether a step updates the thresholds ("stream") or each batch has its own, computed from its losses ("batch").
    rng : numpy.random.Generator, optional
        Generator that shuffles the rows for mini-batches; by default seeded with 0.
    log : Log, optional
        Receives progress messages.
    watch : callable, optional
        Called with the coefficients after each step.

    Returns
    -------
    Result
        The final point, without a certificate; it always counts as converged.
    """
    log = Log() if log is None else log
    rng = np.random.default_rng(0) if rng is None else rng
    whole = batch_size is None or batch_size >= objective.design.n
    start = objective.select(objective.losses_of(W))
    lam = float(start.lam)
    lam_hat = float(start.lam_hat) - lam if objective.m > 0 else np.inf
    log("start", start.total / objective.kept + objective.penalty(W))
    batches = repeat(objective, max_iter) if whole else _batches(objective, int(batch_size or 0), max_iter, rng)
    for step, batch in enumerate(islice(batches, max_iter)):
        s, down, up = batch.moving_labels(W)
        if whole and step:
            log("minmax", objective.value_at(W, s))
        if ranking == "batch":
            weights = select(s, batch.m, batch.k, batch.sample_weight).weights
        else:
            weights, lam, lam_hat = _tracked(batch, s, lam, lam_hat, rate)
        weights = np.where(s > 0, weights, 0.0)
        W = W - rate * (batch.pull(down, up, weights / batch.kept) + objective.penalty_gradient(W))
        if watch is not None:
            watch(W)
    value = objective.value(W)
    log("minmax", value)
    return Result(W, value, max_iter, True, f"{max_iter} steps", log.history)


def _tracked(batch: LabelObjective, s: Array, lam: float, lam_hat: float, rate: float) -> tuple[Array, float, float]:
    """The weights of the rows, 0 outside the thresholds, and the thresholds after one step; m and k are the batch's.

    lam_hat is not negative, and stays infinite if m = 0.
    """
    mass = np.ones(len(s)) if batch.sample_weight is None else batch.sample_weight
    below_top = np.maximum(s - lam, 0.0) < lam_hat
    weights = mass * (below_top & (s > lam))
    new_lam = lam - rate * (1.0 - weights.sum() / batch.kept)
    if np.isfinite(lam_hat):
        lam_hat += rate * (batch.total - batch.m - float(mass @ below_top)) / batch.kept
    return weights, new_lam, max(lam_hat, 0.0)


def _batches(objective: LabelObjective, size: int, least: int, rng: np.random.Generator) -> Iterator[LabelObjective]:
    """Epochs of batches in random order, with the shares m/n and k/n, at least `least`; smaller ones are left out.

    Without weights, m and k are rounded, and at least one loss is kept.
    """
    total = objective.total
    for _ in range(-(-least // (objective.design.n // size))):
        order = rng.permutation(objective.design.n)
        for start in range(0, len(order) - size + 1, size):
            rows = order[start : start + size]
            weight = objective.sample_weight
            mass = float(size) if weight is None else float(weight[rows].sum())
            m, k = objective.m * mass / total, objective.k * mass / total
            if weight is None:
                k = max(1, round(k))
                m = min(round(m), k - 1)
            yield objective.rows(rows, m, k)
