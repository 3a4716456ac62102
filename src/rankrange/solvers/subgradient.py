"""Algorithm 1 as printed in the paper, with the corrections listed in docs/paper.md. For comparison only.

With g_i the gradient of the loss s_i of row i, lam the lower threshold and phi_m the sum of the m largest losses, an
inner step is W <- W - rate ((sum of g_i over the rows with s_i > lam) - (gradient of the tangent of phi_m)) / n and
lam <- lam - rate (k/n - share of the rows with s_i > lam). The gradient of the penalty, scaled by (k - m)/n, is part of
the step on W, so the minimum is that of F.
"""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array
from ..core.losses import is_convex
from ..core.objective import Objective
from .descent import Log, Result, finish
from .polish import certify


def subgradient(
    objective: Objective,
    W: Array,
    *,
    outer: int = 5,
    inner: int = 2000,
    rate: float = 0.01,
    batch_size: int | None = None,
    rng: np.random.Generator | None = None,
    tol: float = 1e-6,
    log: Log | None = None,
) -> Result:
    """Run Algorithm 1 of the paper with the corrections of docs/paper.md, for comparison.

    phi_m is linearised `outer` times, and each linearisation is followed by `inner` steps.

    Parameters
    ----------
    objective : Objective
        The objective to minimise.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    outer, inner : int
        Number of linearisations, and number of steps for each.
    rate : float
        The step length.
    batch_size : int, optional
        Number of rows per step; by default all.
    rng : numpy.random.Generator, optional
        Generator that draws the rows of a step; by default seeded with 0.
    tol : float
        The certificate up to which the result counts as converged. The number of steps does not depend on it.
    log : Log, optional
        Receives progress messages.

    Returns
    -------
    Result
        The final point and its certificate.
    """
    log = Log() if log is None else log
    rng = np.random.default_rng(0) if rng is None else rng
    total, n = objective.total, objective.design.n
    log("subgradient", objective.value(W))
    lam = float(np.median(objective.losses(objective.design.scores(W))))
    for _ in range(outer):
        tangent = objective.tilted(W).tilt
        for _ in range(inner):
            rows = None if batch_size is None or batch_size >= n else rng.choice(n, batch_size, replace=False)
            part = objective if rows is None else objective.rows(rows, 0, len(rows))
            mass = np.ones(part.design.n) if part.sample_weight is None else part.sample_weight
            s, slope = part.losses_and_slopes(part.design.scores(W))
            above = mass * (s > lam) / mass.sum()
            slope *= above
            pull = (objective.penalty_gradient(W) - tangent) * (objective.kept / total)
            W = W - rate * (part.design.adjoint(slope) + pull)
            lam -= rate * (objective.k / total - above.sum())
        log("subgradient", objective.value(W))
    value = objective.value(W)
    reason = "losses are tied at the upper cut" if is_convex(objective.loss) else "the loss is not convex"
    return finish(W, value, outer * inner, certify(objective, W), tol, outer * inner, log, reason=reason)
