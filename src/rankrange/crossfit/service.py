"""Folds, penalty and out-of-fold scores of one data set, each made once: what "auto", suspects and audits are built on.

The penalty is scikit-learn's C. Where it is left open, the fits of all rows at a grid of C are compared by what they
cost on the rows left out; for numbers by the smaller 70% of the errors, which outliers cannot raise, over fits that cut
0, 10 and 20%: an ordinary fit that outliers turn is the better the more it is shrunk, and so says nothing about C.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from .fits import Fits, Sets, masses_of, ordinary, training_sets, upward
from .folds import Report, mass_of, silent

# What is tried for C, in scikit-learn's meaning, from strong to weak; the cost falls and then rises.
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
# Shares cut while the penalty of a regression is chosen.
_CUTS = np.array([0.1, 0.2])
_ENOUGH = 1e-4  # precision of fits that only a penalty is chosen by


class CrossFit:
    """Fits of one linear model that have not seen the rows they score.

    Parameters
    ----------
    objective : Objective
        The model and its rows. Its m, k and C do not matter.
    tests : ndarray of shape (F, n)
        Masses of the rows that each fold leaves out; bool where each row counts once.
    C : float or None
        scikit-learn's C; None chooses it.
    train : ndarray of shape (F, n) or None
        Masses of the rows that each fold is fitted to, where that is not all that it does not test.
    n_jobs : int
        Threads that the fits are shared among; the result does not depend on it.
    """

    def __init__(
        self,
        objective: Objective,
        tests: Array,
        C: float | None = None,
        train: Array | None = None,
        n_jobs: int = 1,
    ) -> None:
        self.objective = objective
        self.tests = tests
        self._given = C
        self._train = train
        self._n_jobs = n_jobs

    @cached_property
    def sets(self) -> Sets:
        """The training sets, under the penalty given or the weakest that is tried."""
        C = PENALTIES[-1] if self._given is None else self._given
        if self._train is None:
            sets = training_sets(self.objective, self.tests, C * self.objective.total)
        else:
            sets = Sets.of(self.objective, self._train, C * self.objective.total)
        return replace(sets, n_jobs=self._n_jobs)

    @cached_property
    def ordinary(self) -> Fits:
        """The fits of all losses, at the C of least cost where it was left open."""
        if self._given is not None:
            return self._fits(self.sets, ordinary(self.sets, tol=_ENOUGH))
        W: Array | None = None
        found: list[tuple[float, int, Fits]] = []
        for C in PENALTIES:
            # The metric stays: steps are scaled by the spread of the rows, whatever the penalty.
            sets = replace(self.sets, C=C * self.objective.total)
            W = ordinary(sets, W, tol=_ENOUGH)
            fits = self._fits(sets, W)
            found.append((self._cost(fits), len(found), fits))
            if len(found) > 1 and found[-1][0] > found[-2][0]:
                break
        return min(found)[2]

    @property
    def C(self) -> float:
        """scikit-learn's C of all fits."""
        return self._given if self._given is not None else self.ordinary.sets.C / self.objective.total

    def trimmed(self, shares: Array) -> Fits:
        """The ordinary fits, and fits that drop these growing shares of the rows, each from the one before."""
        return _cutting(self.ordinary, shares)

    def candidates(
        self, shares: Array, k_share: float, rng: np.random.Generator, n_random: int, report: Report = silent
    ) -> Fits:
        """All fits that a choice of m compares, as `Fits.on` makes them: paths that cut more and more, and searches."""
        sets = replace(self.sets, C=self.C * self.objective.total)
        return Fits.on(sets, shares, k_share, rng, n_random, report)

    def scores(self, fits: Fits) -> list[tuple[Array, Array]]:
        """For each test part its rows, and their scores (candidates, r, rows) by fits that have not seen them."""
        return fits.out_of_fold(self.objective, self.tests)

    def _fits(self, sets: Sets, W: Array) -> Fits:
        return Fits(sets, np.zeros(1), ["none"], W[None])

    def _cost(self, fits: Fits) -> float:
        if self.objective.loss.targets == "numbers":
            return self._middle_error(fits)
        mass = mass_of(self.objective).astype(np.float64)
        return sum(
            float(mass[rows] @ replace(self.objective, y=self.objective.y[rows]).losses(Z[0]))
            for rows, Z in self.scores(fits)
        )

    def _middle_error(self, fits: Fits) -> float:
        """The mean of the smaller 70% of the out-of-fold errors: the least over some cuts."""
        parts = self.scores(_cutting(fits, _CUTS))
        errors = np.concatenate([np.abs(self.objective.y[rows] - Z.reshape(len(Z), -1)) for rows, Z in parts], axis=1)
        return float(np.sort(errors, axis=1)[:, : max(1, int(0.7 * errors.shape[1]))].mean(axis=1).min())


def _cutting(fits: Fits, shares: Array) -> Fits:
    """These ordinary fits, and fits that cut more and more from there."""
    m, k = masses_of(fits.sets, shares, 1.0)
    W = np.concatenate([fits.W, upward(fits.sets, fits.W[0], m, k)])
    return Fits(fits.sets, np.array([0.0, *shares]), ["none", *["up"] * len(shares)], W)
