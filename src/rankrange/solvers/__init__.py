"""The solver of the AoRR objective: `solve(objective, start, settings)` returns the lowest point found.

An objective is a point of the product of loss, aggregate, penalty and rows. Aggregates with a convex upper bound go to
`polish.bilevel`, ranked ranges to the trim search (`trim`), or for squared losses to `least_trimmed`. Every convex
problem is solved by `convex`; other losses and aggregates are descended without a certificate. May import: `core`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.arrays import Array
from ..core.cuts import Ranked
from ..core.losses import Squared, needs
from ..core.objective import Objective
from .convex import minimise
from .descent import Log, Result, Settings, descend
from .empty_columns import with_empty_columns, without_empty_columns
from .equal_rows import merged, undone
from .least_trimmed import least_trimmed_squares
from .polish import bilevel, is_convex
from .trim import search

__all__ = [
    "Log",
    "Result",
    "Settings",
    "search",
    "solve",
]

# The largest number of columns for the special search of least trimmed squares, which forms matrices of column pairs.
_MAX_COLUMNS = 200


def _search(objective: Objective, start: Array | None, settings: Settings) -> Result:
    if not _is_exact(objective):
        return _descend(objective, start, settings)
    if hasattr(objective.aggregate, "majorant"):
        return _majorised(objective, start, settings)
    if _is_least_trimmed(objective):
        return least_trimmed_squares(objective, start, settings)
    return search(objective, start, settings)


def _is_exact(objective: Objective) -> bool:
    """Whether a solver with a certificate applies: to convex losses, and aggregates with `caps` or a `majorant`."""
    methods = hasattr(objective.aggregate, "caps") or hasattr(objective.aggregate, "majorant")
    return methods and getattr(objective.loss, "convex", True)


def _descend(objective: Objective, W: Array | None, settings: Settings) -> Result:
    """Quasi-Newton descent from W (zero if None) and from small random points: the lowest result, uncertified."""
    log, max_iter, shape = settings.log, settings.max_iter, (objective.n_outputs, objective.design.p)
    starts = [np.zeros(shape) if W is None else W]
    starts += [settings.rng.normal(scale=0.1, size=shape) for _ in range(settings.n_starts)]
    ends, values, n_iter = descend(objective.batch, np.array(starts), None, max_iter=max_iter, tol=0.01 * settings.tol)
    best = int(np.argmin(values))
    log("descent", values[best])
    done = n_iter < max_iter
    end = "the steps gain little" if done else f"stopped after {n_iter} of {max_iter} iterations"
    return Result(ends[best], float(values[best]), n_iter, done, f"{end}; there is no certificate", log.history)


def _majorised(objective: Objective, start: Array | None, settings: Settings) -> Result:
    """The lowest descent by upper bounds from `start`, the ordinary fit and, if rows are dropped, a trimmed fit.

    A convex objective needs only the first of these that is given.
    """
    ordinary = minimise(objective.average(), tol=1e-4).W
    starts = [ordinary] if start is None else [start, ordinary]
    if is_convex(objective, objective.upper_bound(ordinary)):
        starts = starts[:1]
    else:
        aggregate, m = objective.aggregate.start(objective.m)
        m = np.floor(m if m == objective.m else m * objective.total)
        if m >= 1:
            trimmed = replace(objective, aggregate=aggregate, m=float(m), k=objective.total)
            starts.append(search(trimmed, None, Settings(1e-3, n_starts=settings.n_starts, rng=settings.rng)).w)
    ends = [bilevel(objective, W, tol=settings.tol, max_iter=settings.max_iter, phase="majorise") for W in starts]
    return min(ends, key=lambda end: end.value)


def _is_least_trimmed(objective: Objective) -> bool:
    """Whether the search of least trimmed squares applies: squared losses, k = n, and m > 0 or no penalty (infinite C).

    It is for the ranked range of dense rows without weights, with at most 200 columns and no l1 penalty.
    """
    return (
        isinstance(objective.loss, Squared)
        and type(objective.aggregate) is Ranked
        and objective.sample_weight is None
        and not objective.design.sparse
        and objective.design.p <= _MAX_COLUMNS
        and objective.k == objective.design.n
        and not objective.l1_ratio
        and (objective.m > 0 or not np.isfinite(objective.C))
    )


def solve(objective: Objective, start: Array | None = None, settings: Settings | None = None) -> Result:
    """Minimise an objective from `start` (r, p), or from starts of the solver's own.

    Empty columns of a sparse X are left out and equal rows are merged first, if there are many. The result has the
    original columns and rows. A convex loss with neither curvature nor margins is a TypeError.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.core.losses import Squared
    >>> from rankrange.core.objective import Design, Objective
    >>> from rankrange.solvers import solve
    >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 2.0, 4.0, 6.0, 8.0, 99.0])
    >>> line = solve(Objective(Design(X, True), y, Squared(), 1e6, 1, m=1, k=6)).w
    >>> print(line.round(3) + 0.0)  # the slope and the intercept of all points but one
    [[2. 0.]]
    """
    if _is_exact(objective):
        needs(objective.loss, objective.n_outputs)
    p = objective.design.p
    objective, columns = without_empty_columns(objective)
    objective, which = merged(objective)
    start = start if start is None or columns is None else start[:, columns]
    result = _search(objective, start, Settings() if settings is None else settings)
    return with_empty_columns(undone(result, which), columns, p)
