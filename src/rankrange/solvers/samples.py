"""Samples of the rows: their size, their m and k, and their share of rare classes; and rows in single precision."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.objective import Design, Objective

# The largest sample for screening starts.
_MAX_SCREENED = 20_000
# With more rows a pass is so expensive that a better metric is worthwhile.
_MANY_ROWS = 500_000


# Entries of X up to which a copy in single precision may be made.
_COPIED = 10_000_000


class Rough(NamedTuple):
    """An objective, in single precision if possible, and the means subtracted from the columns of X (None if none)."""

    objective: Objective
    centre: Array | None

    def inward(self, W: Array) -> Array:
        """Convert parameters (..., p) of the objective to those of the rough one, which differ in the intercept."""
        return self._moved(W, 1.0)

    def outward(self, W: Array) -> Array:
        """Convert parameters of the rough objective to those of the objective."""
        return self._moved(W, -1.0)

    def outward_metric(self, hessian: Array) -> Array:
        """Convert a Hessian (p, p), or its diagonal (p,), of the rough objective to that of the objective."""
        if self.centre is None:
            return hessian
        if hessian.ndim == 1:  # the entries between a column and the intercept are not known, and count as 0
            return np.asarray(hessian + hessian[-1] * np.append(self.centre**2, 0.0))
        change = np.eye(len(hessian))
        change[-1, :-1] = self.centre
        return np.asarray(change.T @ hessian @ change)

    def _moved(self, W: Array, sign: float) -> Array:
        if self.centre is None:
            return W
        moved = W.copy()
        moved[..., -1] += sign * (W[..., :-1] @ self.centre)
        return moved


def in_single_precision(objective: Objective) -> Rough:
    """The objective in single precision, in which a search takes half as long.

    It is unchanged for numeric targets, and for an X that is sparse, large, not float64 or beyond the range of float32.

    With an intercept, shifting columns does not change the problem, so their means are subtracted first. The
    differences then have all digits of single precision.
    """
    design = objective.design
    if design.sparse or design.X.dtype != np.float64 or objective.loss.targets not in ("binary", "classes"):
        return Rough(objective, None)
    if design.n * design.d > _COPIED:
        return Rough(objective, None)
    centre = design.X.mean(axis=0) if design.fit_intercept else None
    with np.errstate(over="ignore"):
        X = (design.X if centre is None else design.X - centre).astype(np.float32, order="F")  # products are faster
    if not np.isfinite(X).all():
        return Rough(objective, None)
    part = Design(X, design.fit_intercept)
    part.factored = design.factored
    y = objective.y.astype(np.float32) if objective.y.dtype.kind == "f" else objective.y
    return Rough(replace(objective, design=part, y=y), centre)


def screen_rows(objective: Objective) -> int:
    """The number of rows for screening starts: twelve per column, within limits.

    If m leaves few rows of the rare classes, the sample is large enough to expect two of them per column, but has at
    most 20,000 rows.
    """
    p, r = objective.design.p, objective.n_outputs
    left = max(identifying_mass(objective), 1.0) / objective.total
    return max(min(12 * p, 4000, int(2e7 / (p * r))), 600, math.ceil(min(2 * p / left, _MAX_SCREENED)))


def hessian_rows(objective: Objective) -> int:
    """The number of rows for a Hessian with which each step on all rows gains about a digit, limited by its cost."""
    n, p = objective.design.n, objective.design.p
    few = max(min(80 * p, 20000, int(2e9 / p**2)), 2000)
    return few if n < _MANY_ROWS else max(few, min(n // 50, 100_000, int(1e9 / p**2)))


def subsample(objective: Objective, size: int, rng: np.random.Generator, margin: float = 2.5) -> Objective:
    """The objective on `size` random rows with the same shares m/n and k/n; on all rows if n is at most 2 size.

    A sample may have more outliers than expected, and if too many are left, it does not have the good minimum.
    Therefore m and k are raised by `margin` standard deviations of the number of outliers, unless m = 0. m is lowered
    again if it would leave too few rows of rare classes. With sample weights, the masses of the sample are the numbers
    of times that its rows were drawn.
    """
    n = objective.design.n
    if n <= 2 * size:
        return objective
    rows, mass = _drawn(objective, size, rng)
    shares = (objective.m / objective.total, objective.k / objective.total)
    spread = margin * math.sqrt(size * shares[0] * (1.0 - shares[0]))
    m, k = (round(min(share * size + (spread if objective.m else 0.0), size)) for share in shares)
    k = min(size, max(k, m + 1))
    part = replace(objective.rows(rows, min(m, 0.9 * k) if objective.m else 0, k), sample_weight=mass)
    return _with_rare_rows(part, rare_left(objective)) if objective.m else part


def _drawn(objective: Objective, size: int, rng: np.random.Generator) -> tuple[Array, Array | None]:
    """Draw `size` rows: the distinct rows in order, and the number of times that each was drawn (None: once each).

    With sample weights, rows are drawn with replacement, in proportion to their weights.
    """
    n, mass = objective.design.n, objective.sample_weight
    if mass is None:
        return np.sort(rng.choice(n, size, replace=False)), None
    times = np.bincount(rng.choice(n, size, p=mass / mass.sum()), minlength=n)
    rows = np.flatnonzero(times)
    return rows, times[rows].astype(np.float64)


def rare_left(objective: Objective) -> float:
    """The share of the rare classes (all but the largest) that remains if m drops only their rows.

    1 for a numeric target, 0 if there is only one class.
    """
    rare = _rare_mass(objective)
    return max(0.0, 1.0 - objective.m / rare) if rare > 0 else 0.0


def _rare_mass(objective: Objective) -> float:
    """The mass of all classes but the largest; infinite for a numeric target."""
    if objective.loss.targets not in ("binary", "classes"):
        return math.inf
    masses = np.bincount(objective.strata, weights=objective.sample_weight)
    return objective.total - float(masses.max())


def identifying_mass(objective: Objective) -> float:
    """The mass that determines the parameters: what m leaves of the rare classes, or that of all rows if it is smaller.

    Negative if m exceeds the rare classes (all but the largest).
    """
    return min(objective.total, _rare_mass(objective) - objective.m)


def _with_rare_rows(part: Objective, left: float) -> Objective:
    """The sample with m lowered, if necessary, to keep at least half of the share `left` of the rare classes.

    Without rows of these classes, a constant model fits perfectly.
    """
    most = (1.0 - 0.5 * left) * _rare_mass(part)
    if part.m <= most:
        return part
    return replace(part, m=most if part.sample_weight is not None else math.floor(most))
