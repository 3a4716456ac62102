"""Solvers of the AoRR objective: `solve(name, objective, start, settings)` runs the solver of this name.

`SOLVERS` is the table of the names. Its entries take an objective, a start, which may be None, and settings, and return
a `Result`. They also list what each solver needs of the loss and of the aggregate; `solve` checks this first.
May import: `core`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.cuts import Ranked
from ..core.losses import Squared, is_convex, needs
from ..core.objective import Objective
from .descent import Log, Result, Settings
from .empty_columns import with_empty_columns, without_empty_columns
from .equal_rows import merged, undone
from .least_trimmed import least_trimmed_squares
from .majorise import dca
from .polish import bilevel, certify
from .smoothing import smoothing
from .subgradient import subgradient
from .trim import search
from .uncertified import descend_from_starts

__all__ = [
    "SOLVERS",
    "Log",
    "Result",
    "Settings",
    "Solver",
    "bilevel",
    "certify",
    "dca",
    "descend_from_starts",
    "search",
    "solve",
    "subgradient",
]

# The largest number of columns for the special search of least trimmed squares, which forms matrices of column pairs.
_MAX_COLUMNS = 200


class Solver(NamedTuple):
    """An entry of `SOLVERS`: how to run the solver, and what it needs of the loss and of the aggregate.

    Parameters
    ----------
    run : callable
        Called as run(objective, start, settings), returns a `Result`.
    exact : bool
        Whether it needs a convex loss with curvature or margins (`rankrange.core.losses.needs`).
    aggregate : tuple of str
        The methods that the aggregate must have.
    """

    run: Callable[[Objective, Array | None, Settings], Result]
    exact: bool
    aggregate: tuple[str, ...]


def _search(objective: Objective, start: Array | None, settings: Settings) -> Result:
    if hasattr(objective.aggregate, "majorant") and is_convex(objective.loss):
        return smoothing(objective, start, settings)
    if _nothing_to_prove(objective):
        return descend_from_starts(objective, start, settings)
    if _is_least_trimmed(objective):
        return least_trimmed_squares(objective, start, settings)
    return search(objective, start, settings)


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


def _nothing_to_prove(objective: Objective) -> bool:
    """Whether no exact method of the ranked range applies: the aggregate has no `caps`, or the loss is not convex."""
    return not hasattr(objective.aggregate, "caps") or not is_convex(objective.loss)


def _bilevel(objective: Objective, start: Array | None, settings: Settings) -> Result:
    W = _ordinary_fit(objective) if start is None else start
    return bilevel(objective, W, tol=settings.tol, max_iter=settings.max_iter, log=settings.log)


def _dca(objective: Objective, start: Array | None, settings: Settings) -> Result:
    W = _ordinary_fit(objective) if start is None else start
    return dca(objective, W, tol=settings.tol, max_iter=settings.max_iter, log=settings.log)


def _subgradient(objective: Objective, start: Array | None, settings: Settings) -> Result:
    shape = (objective.n_outputs, objective.design.p)
    W = settings.rng.normal(scale=0.01, size=shape) if start is None else start
    return subgradient(objective, W, inner=10 * settings.max_iter, tol=settings.tol, log=settings.log)


def _ordinary_fit(objective: Objective) -> Array:
    """The coefficients of a rough fit that drops no rows (m = 0).

    They are a better start than zero, where the losses of a classifier are all tied and no row ranks above another.
    """
    every = replace(objective, m=0, k=objective.total)
    return bilevel(every, np.zeros((objective.n_outputs, objective.design.p)), tol=1e-4).w


SOLVERS: dict[str, Solver] = {
    "auto": Solver(_search, exact=True, aggregate=()),
    "dca": Solver(_dca, exact=True, aggregate=("upper", "caps")),
    "subgradient": Solver(_subgradient, exact=False, aggregate=("upper", "caps")),
    "bilevel": Solver(_bilevel, exact=True, aggregate=("caps",)),
}


def _needs_exact(solver: Solver, objective: Objective) -> bool:
    """Whether the solver needs a convex loss with curvature or margins; "auto" does not if `_nothing_to_prove`."""
    return solver.exact and not (solver.run is _search and _nothing_to_prove(objective))


def solve(name: str, objective: Objective, start: Array | None = None, settings: Settings | None = None) -> Result:
    """Minimise an objective with the solver of the given name.

    Empty columns of a sparse X are left out and equal rows are merged first, if there are many. The result has the
    original columns and rows.

    Parameters
    ----------
    name : str
        A key of `SOLVERS`.
    objective : Objective
        The objective to minimise.
    start : ndarray of shape (r, p) or None
        The initial coefficients; None leaves them to the solver.
    settings : Settings or None
        Tolerance, number of iterations and starts; None means the defaults.

    Returns
    -------
    Result
        The final point and its certificate.

    Raises
    ------
    ValueError
        If there is no solver of this name, or if the aggregate lacks what it needs.
    TypeError
        If the loss lacks what the solver needs.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.core.losses import Squared
    >>> from rankrange.core.objective import Design, Objective
    >>> from rankrange.solvers import solve
    >>> X, y = np.arange(6.0)[:, None], np.array([0.0, 2.0, 4.0, 6.0, 8.0, 99.0])
    >>> line = solve("auto", Objective(Design(X, True), y, Squared(), 1e6, 1, m=1, k=6)).w
    >>> print(line.round(3) + 0.0)  # the slope and the intercept of all points but one
    [[2. 0.]]
    """
    if name not in SOLVERS:
        raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, got {name!r}")
    solver = SOLVERS[name]
    for method in solver.aggregate:
        if not hasattr(objective.aggregate, method):
            raise ValueError(
                f"solver={name!r} needs an aggregate with the method {method!r}; the aggregate "
                f"{objective.aggregate.name!r} has none. Use solver='auto'."
            )
    if _needs_exact(solver, objective):
        others = [
            repr(other)
            for other, it in SOLVERS.items()
            if not _needs_exact(it, objective) and all(hasattr(objective.aggregate, need) for need in it.aggregate)
        ]
        remedy = f"Use solver={' or '.join(others)}." if others else "Use another loss."
        needs(objective.loss, objective.n_outputs, f"solver={name!r}", remedy)
    p = objective.design.p
    objective, columns = without_empty_columns(objective)
    objective, which = merged(objective)
    start = start if start is None or columns is None else start[:, columns]
    result = solver.run(objective, start, Settings() if settings is None else settings)
    return with_empty_columns(undone(result, which), columns, p)
