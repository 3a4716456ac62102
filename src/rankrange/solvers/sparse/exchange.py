"""Exchange of rows: add a dropped row to the fit, and drop the row that then costs most.

Concentration steps end if every dropped row has a larger loss than every kept row. A row with a large loss may still
have a small one once it is fitted, and a kept row with a small loss may distort the model. The fit with one more row is
computed. The cost of a row is its loss plus the gain of the other rows without it, to second order in the nonzero
coefficients.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ...core.arrays import Array
from .elastic_net import ElasticNet, Net


def costs_of_rows(net: ElasticNet, fit: Net, h: Array, C: float) -> Array:
    """C times the loss of each row, plus the gain of the others without it; minus infinity for rows of weight below C.

    `fit` is near the minimum for the weights h. The gain is that of lowering the weight of the row by C; it counts as 0
    if the Hessian cannot be factored.
    """
    Z = net.scores(fit.coef, fit.intercept)
    losses = C * net.losses(Z)
    pushes, bends, metric = _local(net, fit, Z, h, C)
    try:
        solved = cho_solve(cho_factor(metric, check_finite=False), pushes.T, check_finite=False)
    except LinAlgError:
        solved = np.zeros_like(pushes.T)
    leverage = np.einsum("nq,qn->n", pushes, solved)
    # Without row i the metric loses bend_i push_i push_i'; nothing remains if the model interpolates the row.
    gain = leverage / np.maximum(1 - bends * leverage, 1e-3) / 2
    return np.where(h >= C, losses + gain, -np.inf)


def _local(net: ElasticNet, fit: Net, Z: Array, h: Array, C: float) -> tuple[Array, Array, Array]:
    """Each row's gradient (n, q) for nonzero coefficients and intercepts, its curvature along it, and the Hessian."""
    output, column = np.nonzero(fit.coef)
    block = net.columns[:, column]
    block = np.asarray(block.toarray() if hasattr(block, "toarray") else block)
    n, r = len(net.y), net.n_outputs
    slopes = C * net.slopes(Z)
    pushes = block * slopes[output].T
    if net.fit_intercept:
        pushes = np.hstack([pushes, slopes.T])
    roots = net.curvature_roots(Z, np.full(n, C))
    roots = roots[:, None, None] if roots.ndim == 1 else roots
    unit = np.zeros((n, len(column) + (r if net.fit_intercept else 0), r))
    unit[:, : len(column)] = block[:, :, None] * roots[:, output]
    if net.fit_intercept:
        unit[:, len(column) :] = roots
    bent = unit * np.sqrt(h / C)[:, None, None]
    flat = bent.transpose(1, 0, 2).reshape(unit.shape[1], -1)
    metric = flat @ flat.T
    metric[np.arange(len(column)), np.arange(len(column))] += 1 - net.l1_ratio
    metric[np.diag_indices_from(metric)] += 1e-8 * max(float(np.trace(metric)) / max(len(metric), 1), 1e-12)
    size = (slopes**2).sum(axis=0)
    along = (np.einsum("nca,cn->na", roots, slopes) ** 2).sum(axis=1)
    bends = along / np.maximum(size**2, 1e-24 * max(float((size**2).max()), 1e-300))
    return pushes, bends, metric
