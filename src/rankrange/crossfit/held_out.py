"""How well candidates do on the rows that their folds left out, and how certain the differences are."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import ndtri

from ..core.arrays import Array
from ..core.objective import Objective

OUTLYING = 3.0


class Scored(Protocol):
    """Candidates that were scored on the same rows."""

    @property
    def mass(self) -> float:
        """The mass of the rows."""

    @property
    def mean(self) -> Array:
        """(candidates,): the mean score."""

    def errors(self, candidate: int) -> Array:
        """(candidates,): the standard error of the difference from one of them."""

    def only(self, allowed: Array) -> Scored:
        """The same with the score of the first for all that are not allowed, so that none of these is best."""


class RowScores:
    """Scores (candidates, n) by row; NaN for rows that no fold left out."""

    def __init__(self, scores: Array, mass: Array) -> None:
        seen = ~np.isnan(scores[0])
        self._mass, self._value = mass[seen].astype(np.float64), scores[:, seen]
        self._scores = scores, mass

    @property
    def mass(self) -> float:
        """The mass of the rows."""
        return float(self._mass.sum())

    @property
    def mean(self) -> Array:
        """(candidates,): the mean score."""
        return np.asarray(self._value @ self._mass / self._mass.sum())

    def errors(self, candidate: int) -> Array:
        """(candidates,): the standard error of the difference from one of them."""
        gain = self._value - self._value[candidate]
        return np.asarray(np.sqrt(((gain - gain @ self._mass[:, None] / self.mass) ** 2) @ self._mass) / self.mass)

    def only(self, allowed: Array) -> RowScores:
        """The same with the score of the first for all that are not allowed."""
        scores, mass = self._scores
        return RowScores(np.where(allowed[:, None], scores, scores[0]), mass)


def row_scores(objective: Objective, strata: Array, parts: list[tuple[Array, Array]], tests: Array) -> Array:
    """What each row adds to the score of each candidate, averaged over the folds that left it out.

    Parameters
    ----------
    objective : Objective
        The model and its rows.
    strata : ndarray of shape (n,)
        The class of each row.
    parts : list of tuple
        For each fold the rows it left out and their scores (candidates, r, rows).
    tests : ndarray of shape (F, n)
        Masses of the rows that each fold leaves out.

    Returns
    -------
    ndarray of shape (candidates, n)
        The score of a candidate is the mean of its row; NaN for rows that no fold left out.
    """
    gains = _right if objective.loss.targets != "numbers" else _close
    total = np.zeros((len(parts[0][1]), objective.design.n))
    seen = np.zeros(objective.design.n)
    for (rows, _), value, test in zip(parts, gains(objective, strata, parts), tests, strict=True):
        total[:, rows] += value * test[rows]
        seen[rows] += test[rows]
    return np.divide(total, seen, out=np.full_like(total, np.nan), where=seen > 0)


def _right(objective: Objective, strata: Array, parts: list[tuple[Array, Array]]) -> list[Array]:
    """1 if the class is predicted, in units that make the mean over rows the mean over classes."""
    mass = np.bincount(strata, weights=objective.mass.astype(np.float64))
    present = mass > 0
    worth = np.divide(mass.sum() / present.sum(), mass, out=np.zeros_like(mass), where=present)
    found = []
    for rows, Z in parts:
        guess = (Z[:, 0] > 0).astype(np.intp) if objective.n_outputs == 1 else Z.argmax(axis=1)
        found.append((guess == strata[rows]) * worth[strata[rows]])
    return found


def _close(objective: Objective, strata: Array, parts: list[tuple[Array, Array]]) -> list[Array]:
    """1 - min(1, (residual / 3 sigma)^2), sigma from the candidate that has most of its residuals small.

    "Most" is 70%: a half could be fitted exactly where targets repeat, as in counts with many zeros.
    """
    residuals = [np.abs(Z[:, 0] - objective.y[rows]) for rows, Z in parts]
    spread = np.quantile(np.concatenate(residuals, axis=1), 0.7, axis=1).min()
    sigma = max(float(spread) / ndtri(0.85), 1e-9 * float(np.abs(objective.y).max()), 1e-300)
    return [1.0 - np.minimum(1.0, (residual / (OUTLYING * sigma)) ** 2) for residual in residuals]
