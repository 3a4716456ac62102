"""The duality gap of every convex problem: weights of the losses, slopes of each loss, and any penalty.

For weights q whose sum q . s is never above the risk of the losses s, and slopes a at which the conjugates of the
losses are finite, the minimum over W of q . (a z - conjugate) plus the penalty is a lower bound on the minimum.
An intercept is not penalised, so the weighted slopes of each score must sum to zero: the loss balances them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.losses import shrunk_to_balance
from ..core.objective import ConvexProblem

# The relative rounding error of a sum over rows, by the norms of its factors.
_ROUNDING = 8.0 * float(np.finfo(np.float64).eps)


def duality_gap(problem: ConvexProblem, W: Array, Z: Array, q: Array, slopes: Array, risk: float) -> float:
    """The value at W, whose scores are Z (r, n), minus a lower bound on the minimum; infinite if none is proved.

    The value is `risk`, which is at least q . losses, plus the linear part of the problem. `slopes` (r, n) are
    derivatives of the losses, at Z or at a point close to the minimum.
    """
    design, y, tilt, one = problem.design, problem.y, problem.tilt, problem.n_outputs == 1
    z, a = (Z[0], slopes[0]) if one else (Z.T, slopes.T)
    a = a.astype(np.float64, copy=False)
    loss = problem.loss if hasattr(problem.loss, "fenchel") else _Tangents(problem.loss.value(y, z), a)
    if design.fit_intercept:
        target = np.zeros(problem.n_outputs) if tilt is None else tilt[:, -1]
        a = loss.balanced(y, a, q, float(target[0]) if one else target)
        if a is None:
            return np.inf
    best = np.inf
    pulled = (q * a)[None, :] if one else (q[:, None] * a).T
    V = -design.adjoint(pulled)[:, : design.d]
    rounding = _ROUNDING * design.largest_norm * float(np.linalg.norm(pulled, axis=1).max())
    for share in _shares(problem, V, tilt, rounding):
        terms = np.where(q > 0, loss.fenchel(y, z, share * a), 0.0)
        toward = share * V if tilt is None else V + tilt[:, : design.d]
        best = min(best, risk + float(q @ terms) + problem.penalty_gap(W, toward, rounding))
    return max(best, 0.0)


def _shares(problem: ConvexProblem, V: Array, tilt: Array | None, rounding: float) -> set[float]:
    """The factors of the slopes to try: 1 and, with an l1 penalty, the one that makes its conjugate finite."""
    if not problem.l1_ratio or tilt is not None:
        return {1.0}
    steepest = max(float(np.abs(V).max(initial=0.0)) - rounding, 0.0) * problem.C
    return {1.0, min(1.0, (1.0 - 1e-12) * problem.l1_ratio / steepest)} if steepest else {1.0}


class _Tangents:
    """`fenchel` and `balanced` of a loss that has none: it is at least every share in [0, 1] of its tangents.

    This needs losses that are not negative. Slopes of several scores are not changed, so they must be balanced already.
    """

    def __init__(self, s: Array, slopes: Array) -> None:
        self.s, self.slopes = s, slopes

    def balanced(self, y: Array, a: Array, h: Array, target: Any) -> Array | None:
        found = shrunk_to_balance(a, h, target)
        return found if a.ndim == 1 or found is None or np.allclose(found, a, rtol=1e-12, atol=0.0) else None

    def fenchel(self, y: Array, z: Array, a: Array) -> Array:
        used, whole = (a, self.slopes) if a.ndim == 1 else (a[:, 0], self.slopes[:, 0])
        return -self.s * np.divide(used, whole, out=np.zeros_like(used), where=whole != 0)
