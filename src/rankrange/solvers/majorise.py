"""Algorithm 1 of the paper with exact inner solves: phi_m is replaced by its tangent."""

from __future__ import annotations

from ..core.arrays import Array
from ..core.objective import Objective
from .convex import minimise
from .descent import Log, Result, finish
from .polish import certify


def dca(objective: Objective, W: Array, *, tol: float = 1e-6, max_iter: int = 200, log: Log | None = None) -> Result:
    """Run Algorithm 1 of the paper with exact inner solves, warm-started at the last iterate.

    Parameters
    ----------
    objective : Objective
        The objective to minimise.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    tol : float
        The relative duality gap of the inner solves. The run ends when a step gains at most a tenth of this share.
    max_iter : int
        Maximum number of steps; each is one inner solve, of at most 50 steps.
    log : Log, optional
        Receives progress messages.

    Returns
    -------
    Result
        The final point and its certificate.
    """
    log = Log() if log is None else log
    value, n_iter, settled = objective.value(W), 0, False
    log("dca", value)
    while n_iter < max_iter and not settled:
        solution = minimise(objective.tilted(W), W, tol=tol, max_iter=50)
        n_iter += 1
        reached = objective.value(solution.W)
        settled = reached >= value - 0.1 * tol * abs(value)
        if reached <= value:
            W, value = solution.W, reached
            log("dca", value)
    return finish(W, value, n_iter, certify(objective, W), tol, max_iter, log, settled)
