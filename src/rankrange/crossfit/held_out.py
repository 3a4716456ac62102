"""Scores of candidates on held-out rows, and standard errors of their differences."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import ndtri

from ..core.aggregates import Stratified
from ..core.arrays import Array
from ..core.objective import Objective
from ..core.transition import predicted_codes

# A residual of more robust standard deviations than this is an outlier.
OUTLYING = 3.0


class Scored(Protocol):
    """Candidates that were scored on the same rows."""

    @property
    def mass(self) -> float:
        """The mass of the rows."""

    @property
    def mean(self) -> Array:
        """Array (candidates,): the mean score."""

    def errors(self, candidate: int) -> Array:
        """Array (candidates,): the standard error of the difference from one candidate."""


class RowScores:
    """Scores (candidates, n) by row; NaN for rows that no fold tests."""

    def __init__(self, scores: Array, mass: Array) -> None:
        tested = ~np.isnan(scores[0])
        self._mass, self._value = mass[tested].astype(np.float64), scores[:, tested]

    @property
    def mass(self) -> float:
        """The mass of the rows."""
        return float(self._mass.sum())

    @property
    def mean(self) -> Array:
        """Array (candidates,): the mean score."""
        return np.asarray(self._value @ self._mass / self._mass.sum())

    def errors(self, candidate: int) -> Array:
        """Array (candidates,): the standard error of the difference from one candidate."""
        gain = self._value - self._value[candidate]
        return np.asarray(np.sqrt(((gain - gain @ self._mass[:, None] / self.mass) ** 2) @ self._mass) / self.mass)


def row_scores(objective: Objective, strata: Array, parts: list[tuple[Array, Array]], tests: Array) -> Array:
    """The contribution (candidates, n) of each row to the score of each candidate, averaged over its test folds.

    `parts` has for each fold its test rows and their scores (candidates, r, rows), `tests` (F, n) the masses of the
    test rows. The weighted mean over rows is the score of a candidate. Rows that no fold tests are NaN.
    """
    gains = _right if objective.loss.targets != "numbers" else _close
    total = np.zeros((len(parts[0][1]), objective.design.n))
    times = np.zeros(objective.design.n)
    for (rows, _), value, test in zip(parts, gains(objective, strata, parts), tests, strict=True):
        total[:, rows] += value * test[rows]
        times[rows] += test[rows]
    return np.divide(total, times, out=np.full_like(total, np.nan), where=times > 0)


def _right(objective: Objective, strata: Array, parts: list[tuple[Array, Array]]) -> list[Array]:
    """For each fold an array (candidates, rows): 0 for wrong predictions, a class weight for correct ones.

    The mean over all rows is the balanced accuracy, or the accuracy if rows are dropped class by class. Then dropping
    moves the boundary towards the frequent classes, which balanced accuracy rewards even if all labels are right.
    """
    mass = np.bincount(strata, weights=objective.mass.astype(np.float64))
    present = mass > 0
    weight = np.divide(mass.sum() / present.sum(), mass, out=np.zeros_like(mass), where=present)
    if _by_class(objective, strata):
        weight = np.ones_like(mass)
    found = []
    for rows, Z in parts:
        found.append((predicted_codes(Z, axis=1) == strata[rows]) * weight[strata[rows]])
    return found


def _by_class(objective: Objective, strata: Array) -> bool:
    """Whether the same share of each class is dropped."""
    return isinstance(objective.aggregate, Stratified) and np.array_equal(objective.aggregate.groups, strata)


def _close(objective: Objective, strata: Array, parts: list[tuple[Array, Array]]) -> list[Array]:
    """For each fold an array (candidates, rows): 1 - min(1, (residual / 3 sigma)^2).

    Sigma is the smallest robust scale of the candidates, estimated from the 70% quantile of absolute residuals. Their
    median could be 0 if targets repeat, as in counts with many zeros.
    """
    residuals = [np.abs(Z[:, 0] - objective.y[rows]) for rows, Z in parts]
    spread = np.quantile(np.concatenate(residuals, axis=1), 0.7, axis=1).min()
    sigma = max(float(spread) / ndtri(0.85), 1e-9 * float(np.abs(objective.y).max()), 1e-300)
    return [1.0 - np.minimum(1.0, (residual / (OUTLYING * sigma)) ** 2) for residual in residuals]
