"""What every solver returns, and how it reports on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..core.arrays import Array


@dataclass(frozen=True)
class Result:
    """Where a solver ended.

    Parameters
    ----------
    w : ndarray of shape (outputs, p)
        The coefficients.
    value : float
        The objective there.
    n_iter : int
        Steps taken.
    converged : bool
        Whether the solver did what it promises.
    message : str
        Why it stopped.
    history : list of (str, float)
        The value after each step under the name of its phase.
    certificate : float, default=inf
        Bounds (value - best) / value, where best is the least value of the convex problem that fixes which rows are
        cut: the least of all for m = 0, a local minimum of F where s_[m] > s_[m+1]. Infinite where nothing is known.
    losses : ndarray of shape (n,), optional
        Of the rows at w, where the solver has them at hand.
    """

    w: Array
    value: float
    n_iter: int
    converged: bool
    message: str
    history: list[tuple[str, float]]
    certificate: float = np.inf
    losses: Array | None = None


@dataclass
class Log:
    """The history of one run, and its printed form for `verbose`.

    Parameters
    ----------
    report : callable, optional
        Takes a line of text at each step.
    history : list of (str, float), optional
        Steps before this run.
    """

    report: Callable[[str], None] | None = None
    history: list[tuple[str, float]] = field(default_factory=list)

    def __call__(self, phase: str, value: float) -> None:
        self.history.append((phase, float(value)))
        if self.report is not None:
            self.report(f"{phase:<12} step {len(self.history):>4}   objective {value:.10g}")


def relative(gap: float, value: float) -> float:
    """A gap relative to the objective, which is never negative; at an objective of 0 there is nothing left to gain."""
    return max(gap, 0.0) / max(abs(value), 1e-9)
