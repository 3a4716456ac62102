"""Linear models for every m, k and C of a grid, one of which is chosen by its error on validation (or test) rows.

Every aggregate gets the same six values of C and, if it has k, the same values of k. Aggregates with more parameters
have more candidates. Convex problems are solved to convergence; AoRR stops after 20 steps or at a tolerance of 1e-2.

A model whose objective is not below that of the zero model (all coefficients 0) is uninformative, and the larger class
is predicted instead. If no model is better than zero at (m, k, C), none is at a smaller m, k or C, because a smaller m
or k increases the average of the kept losses, and a smaller C increases the relative weight of the penalty. These fits
are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import AoRRClassifier
from ...estimators import RobustMaxClassifier
from .cells import scikit_learns_C
from .split import Part

ZERO = {"logistic": float(np.log(2.0)), "hinge": 1.0}  # the loss of each row at scores of zero
CS = (1e0, 1e1, 1e2, 1e3, 1e4, 1e5)
# The search from many starts is run at one value of C and every second m. The other fits continue from there at a tenth
# of the cost; they may find other minima than a full search.
_SEARCHED, _UP, _DOWN = 1e3, (1e4, 1e5), (1e2, 1e1, 1e0)
_ENOUGH: dict[str, Any] = {"max_iter": 20, "tol": 1e-2}  # accurate enough to choose between candidates


@dataclass(frozen=True)
class Grid:
    """The grid: k as shares of n, m as shares of k (k = 1 and m = 1 are always included), and slacks of Robust_Max."""

    k: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
    m: tuple[float, ...] = (0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05)
    slack: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0, 30.0)

    def ks(self, n: int) -> list[int]:
        """Counts of k for n rows, largest first."""
        return sorted({1, *(round(share * n) for share in self.k)} - {0}, reverse=True)

    def ms(self, k: int) -> list[int]:
        """Counts of m in [1, k), largest first."""
        return sorted({1, *(round(share * k) for share in self.m)} - {0, k}, reverse=True) if k > 1 else []


@dataclass
class Candidate:
    """The settings of a fitted model, and its errors in percent on the validation and on the test rows."""

    settings: dict[str, float]
    errors: list[float]

    @property
    def order(self) -> tuple[float, float, float]:
        """Sort key, the simplest model first: small m, large k, small C.

        For Robust_Max a large slack comes first, because it is nearer to the average.
        """
        s = self.settings
        return s.get("m", 0.0), -s.get("k", s.get("slack", 0.0)), s["C"]


def choose(candidates: list[Candidate], part: int = 0) -> Candidate:
    """The candidate with the smallest error on validation (part 0) or test rows (1); if errors tie, the simplest."""
    return min(candidates, key=lambda candidate: (candidate.errors[part], candidate.order))


@dataclass
class Bench:
    """Fits models to the training rows and measures their errors on the `others`: validation and test rows."""

    train: Part
    others: tuple[Part, ...]
    loss: str
    grid: Grid = field(default_factory=Grid)
    nothing: list[tuple[float, float, float]] = field(default_factory=list)  # (m, k, C) at which no model beats zero

    @property
    def n(self) -> int:
        """The number of training rows."""
        return len(self.train.y)

    def average(self) -> list[Candidate]:
        """Candidates with the average loss, for every C."""
        return self.top_k([self.n])

    def maximum(self) -> list[Candidate]:
        """Candidates with the maximum loss, for every C."""
        return self.top_k([1])

    def top_k(self, ks: list[int] | None = None) -> list[Candidate]:
        """Candidates with m = 0, for every k of the grid, or those given, and every C.

        These problems are convex and solved to convergence.
        """
        found = []
        for k in self.grid.ks(self.n) if ks is None else ks:
            model = AoRRClassifier(0, int(k), loss=self.loss, warm_start=True, random_state=0)
            found += [self._fit(model, 0, k, C) for C in sorted(CS, reverse=True)]
        return found

    def ranked_range(self, pairs: list[tuple[int, int]] | None = None) -> list[Candidate]:
        """Candidates for all (m, k) of the grid, or those given, and every C; the largest k and m come first."""
        if pairs is None:
            pairs = [(m, k) for k in self.grid.ks(self.n) for m in self.grid.ms(k)]
        # Starts: the ordinary fit, two fits without high-leverage rows, two random ones, and the last solution.
        search = AoRRClassifier(loss=self.loss, n_starts=2, warm_start=True, random_state=0, **_ENOUGH)
        found = []
        for index, (m, k) in enumerate(pairs):
            from_scratch = index == 0 or k != pairs[index - 1][1] or index % 2 == 0
            search.set_params(m=int(m), k=int(k), solver="auto" if from_scratch else "bilevel")
            found.append(self._fit(search, m, k, _SEARCHED))
            for Cs in (_UP, _DOWN):
                found += self._follow(search, m, k, Cs)
        return found

    def one(self, m: int, k: int, C: float) -> Candidate:
        """Fit one setting to convergence; C is the paper's, relative to the mean of the kept losses."""
        return self._fit(AoRRClassifier(int(m), int(k), loss=self.loss, random_state=0), m, k, C)

    def robust_max(self) -> list[Candidate]:
        """Candidates with Robust_Max, for every slack and C."""
        found = []
        for slack in self.grid.slack:
            for C in CS:
                model = RobustMaxClassifier(slack, loss=self.loss, C=C).fit(self.train.X, self.train.y)
                zero = model.objective_ / C >= 0.999 * self._robust_zero(slack)
                found.append(Candidate({"slack": slack, "C": C}, self._errors(None if zero else model)))
        return found

    def _follow(self, found: AoRRClassifier, m: int, k: int, Cs: tuple[float, ...]) -> list[Candidate]:
        """Fit a sequence of C, each started at the last solution."""
        model = AoRRClassifier(int(m), int(k), loss=self.loss, solver="bilevel", warm_start=True, **_ENOUGH)
        if hasattr(found, "coef_"):
            model.coef_, model.intercept_ = found.coef_, found.intercept_
        return [self._fit(model, m, k, C) for C in Cs]

    def _fit(self, model: AoRRClassifier, m: int, k: int, C: float) -> Candidate:
        settings = {"m": m, "k": k, "C": C}
        zero = any(m <= a and k <= b and c >= C for a, b, c in self.nothing)
        if not zero:
            model.set_params(C=scikit_learns_C(C, self.n, int(m), int(k))).fit(self.train.X, self.train.y)
            zero = model.objective_ / C >= 0.999 * ZERO[self.loss]
            if zero:
                self.nothing.append((m, k, C))
        return Candidate(settings, self._errors(None if zero else model))

    def _errors(self, model: Any) -> list[float]:
        if model is None:
            larger = np.bincount(self.train.y).argmax()
            return [part.error(np.full(len(part.y), larger)) for part in self.others]
        return [part.error(model.predict(part.X)) for part in self.others]

    def _robust_zero(self, slack: float) -> float:
        """The value of Robust_Max at scores of zero, where all losses equal s: s - slack / sqrt(n)."""
        return ZERO[self.loss] - slack / np.sqrt(self.n)
