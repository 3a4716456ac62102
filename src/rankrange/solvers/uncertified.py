"""Descent without a certificate, for aggregates and losses that the exact methods do not support."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from .descent import Result, descend


def descend_from_starts(objective: Objective, W: Array | None, settings: Any) -> Result:
    """Quasi-Newton descent from W (zero if None) and from small random points; returns the lowest result, uncertified.

    No step increases the objective. `settings` is a `rankrange.solvers.Settings`.
    """
    log, max_iter = settings.log, settings.max_iter
    shape = (objective.n_outputs, objective.design.p)
    starts = [
        np.zeros(shape) if W is None else W,
        *(settings.rng.normal(scale=0.1, size=shape) for _ in range(settings.n_starts)),
    ]
    log("start", objective.value(starts[0]))
    ends, values, n_iter = descend(objective.batch, np.array(starts), None, max_iter=max_iter, tol=0.01 * settings.tol)
    best = int(np.argmin(values))
    log("descent", values[best])
    done = n_iter < max_iter
    message = (
        "the steps gain little; there is no certificate" if done else f"stopped after {n_iter} of {max_iter} iterations"
    )
    return Result(ends[best], float(values[best]), n_iter, done, message, log.history)
