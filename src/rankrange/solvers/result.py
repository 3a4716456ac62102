"""What every solver returns, and how it reports on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..core.arrays import Array


@dataclass(frozen=True)
class Result:
    """Where a solver ended.

    `certificate` bounds (value - best) / value, where best is the least value of the convex problem that fixes which
    rows are cut: the least of all for m = 0, a local minimum of F where s_[m] > s_[m+1]. Infinite where nothing is
    known. `history` lists the value after each step under the name of its phase.
    """

    w: Array
    value: float
    n_iter: int
    converged: bool
    message: str
    history: list[tuple[str, float]]
    certificate: float = np.inf
    losses: Array | None = None  # of the rows at w, where the solver has them at hand


@dataclass
class Log:
    """The history of one run, and its printed form for `verbose`."""

    report: Callable[[str], None] | None = None
    history: list[tuple[str, float]] = field(default_factory=list)

    def __call__(self, phase: str, value: float) -> None:
        self.history.append((phase, float(value)))
        if self.report is not None:
            self.report(f"{phase:<12} step {len(self.history):>4}   objective {value:.10g}")


def relative(gap: float, value: float) -> float:
    """A gap relative to the objective, which is never negative; at an objective of 0 there is nothing left to gain."""
    return max(gap, 0.0) / max(abs(value), 1e-9)
