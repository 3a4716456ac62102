"""One logistic regression per label, fitted together: the start of the multi-label solvers, and a baseline.

The labels share each product with X and one metric, the Hessian at zero scores. It is an upper bound of every label's
Hessian, because the curvature of the logistic loss is at most 1/4.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array
from ..core.objective import Design
from .blocks import Blocks
from .descent import Metric, descend

# With more columns, a p x p metric costs more than it saves.
_METRIC_COLUMNS = 1500


def logistic_per_label(
    design: Design,
    blocks: Blocks,
    C: float,
    sample_weight: Array | None = None,
    *,
    tol: float = 1e-5,
    max_iter: int = 100,
) -> tuple[Array, float, int]:
    """W (L, p) that minimises the weighted mean over the rows of the sum of the labels' losses + ||coef||^2 / (2 C).

    The sum separates into one problem per label. `blocks` has the labels; `tol` and `max_iter` are those of `descend`.
    Returns also the value and the number of iterations.
    """
    mass = np.full(design.n, 1.0 / design.n) if sample_weight is None else sample_weight / sample_weight.sum()
    ridge = np.full(design.p, 1.0 / C)
    if design.fit_intercept:
        ridge[-1] = 0.0

    def batch(Ws: Array) -> tuple[Array, Array]:
        value, gradient = _value_and_gradient(blocks, Ws[0], mass, ridge)
        return np.array([value]), gradient[None]

    start = np.zeros((blocks.n_labels, design.p))
    if design.fit_intercept:
        start[:, -1] = _prior(blocks, mass)
    metric = shared_metric(design, mass, ridge)
    ends, values, n_iter = descend(batch, start[None], metric, max_iter=max_iter, tol=tol)
    return ends[0], float(values[0]), n_iter


def _value_and_gradient(blocks: Blocks, W: Array, mass: Array, ridge: Array) -> tuple[float, Array]:
    total, gradient = 0.0, W * ridge
    total += 0.5 * float(np.vdot(gradient, W))
    for block in blocks:
        z = block.scores(W)
        e = np.abs(z)
        np.negative(e, out=e)
        np.exp(e, out=e)
        share = np.where(z > 0, 1.0, e)
        share /= 1.0 + e  # the probability of the label
        np.log1p(e, out=e)
        z[block.true] *= -1.0  # minus the margin; the loss is log(1 + exp(z))
        e += np.maximum(z, 0.0, out=z)
        total += float((mass[block.rows] @ e).sum(dtype=np.float64))
        share -= block.true
        share *= mass[block.rows, None]
        gradient += block.design.adjoint(share.T)
    return total, gradient


def _prior(blocks: Blocks, mass: Array) -> Array:
    """The intercepts that fit the frequencies of the labels; finite even if a label is the same in all rows."""
    share = sum(mass[block.rows] @ block.true for block in blocks)
    share = np.clip(share, 1e-3, 1.0 - 1e-3)
    return np.log(share / (1.0 - share))


def shared_metric(design: Design, mass: Array, ridge: Array) -> Metric | None:
    """A metric that is an upper bound of the Hessian of every label's problem; None if X has over 1500 columns."""
    if design.p > _METRIC_COLUMNS:
        return None
    matrix = 0.25 * design.gram(mass)
    matrix[np.diag_indices_from(matrix)] += ridge
    return Metric(matrix)
