"""Folds: which rows are left out when, as masses (F, n) of the test parts, dealt out within each class."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective

# One score per row: five folds twice up to this many rows; then, and with many scores, five folds; then one hold-out.
TWICE_UP_TO = 4000
FOLDS_UP_TO = 20_000
# With one score per row, from this many rows on, a part of them is fitted and all others score the fits: what a share
# of m gains shows in as many held-out rows as can be had, and hardly depends on how many are fitted.
PART_FROM = 10_000
_LEAST_FITTED = 4000
_FITTED_PER_COLUMN = 60
Report = Callable[[str], None]  # is told a few words before each part of the work


def silent(message: str) -> None:
    """Report nothing: the progress that nobody asked for."""


def mass_of(objective: Objective) -> Array:
    """The mass of each row; all True where each counts once."""
    return objective.mass


def strata_of(objective: Objective) -> Array:
    """The class of each row; one class for numbers."""
    return objective.strata


def plan_of(objective: Objective) -> tuple[int, int, int]:
    """(repeats, folds, folds used): five folds twice on few rows, one hold-out on many.

    A negative number of folds is one hold-out too: one fold is fitted, and all others score it.
    """
    n = objective.design.n
    if objective.n_outputs == 1 and n > PART_FROM:
        return 1, -max(2, n // max(_LEAST_FITTED, _FITTED_PER_COLUMN * objective.design.p)), 1
    return (2 if n <= TWICE_UP_TO and objective.n_outputs == 1 else 1), 5, 5 if n <= FOLDS_UP_TO else 1


def split(objective: Objective, strata: Array, rng: np.random.Generator, plan: tuple[int, int, int]) -> Array:
    """Deal out the rows into test parts, within each class.

    A row that stands for several (a whole weight) is dealt out one by one, so that a weight is the same as repetition;
    one of a fractional weight goes into one part.

    Parameters
    ----------
    objective : Objective
        The rows and their weights.
    strata : ndarray of shape (n,)
        The class of each row.
    rng : Generator
        Shuffles.
    plan : tuple of int
        Repeats, folds, and how many of the folds are used.

    Returns
    -------
    ndarray of shape (F, n)
        Masses of the rows that each fold leaves out; bool where each row counts once.
    """
    n = objective.design.n
    mass = mass_of(objective)
    whole = bool((mass == np.floor(mass)).all()) and mass.sum() <= max(2 * n, TWICE_UP_TO)
    rows = np.repeat(np.arange(n), mass.astype(np.intp)) if whole else np.arange(n)
    repeats, folds, used = plan
    tests = []
    for _ in range(repeats):
        fold = deal(strata[rows], abs(folds), rng)
        for f in range(used):
            count = np.bincount(rows[(fold == f) == (folds > 0)], minlength=n)
            tests.append(count if whole else count * mass)
    result = np.array(tests)
    return result.astype(bool) if mass.dtype == bool else result


def deal(strata: Array, folds: int, rng: np.random.Generator) -> Array:
    """A fold for each row, as even as can be within each class and over all.

    Parameters
    ----------
    strata : ndarray of shape (n,)
        The class of each row.
    folds : int
        How many folds there are.
    rng : Generator
        Shuffles.

    Returns
    -------
    ndarray of shape (n,)
        Numbers from 0 to folds - 1.
    """
    order = np.lexsort((rng.permutation(len(strata)), strata))
    fold = np.empty(len(strata), dtype=np.intp)
    fold[order] = np.arange(len(strata)) % folds
    return fold
