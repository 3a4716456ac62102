"""Least trimmed squares with or without a ridge penalty: for squared losses with k = n.

Up to 1,000 rows are searched together (`elemental`). With more rows a random subset is searched first, its best
fits are continued on at most 10,000 rows, and the lowest of these is settled on all rows. For fixed kept rows the
problem is quadratic, so the certificate is the gain of a final Newton step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from .descent import Result
from .elemental import Fits, TrimmedSquares, elemental_fits, improve, screen

# The number of rows for elemental starts, and for continuing the best of them.
_FIRST, _SECOND = 1_000, 10_000
# The number of elemental starts for each of n_starts, and the number that are continued.
_ELEMENTAL, _CONTINUED = 50, 20
# The number of rows for computing medians and the whitening.
_MEDIAN_ROWS = 5_000
# Singular values below this share of the largest are treated as 0.
_RANK = 1e-10


class Coordinates:
    """The coordinates Z = [(X - centre) / scale, 1] T, where the matrix T makes the columns of Z nearly orthogonal.

    Z has as many columns as the rank of the rows X (n, d). Without an intercept, the centre is 0 and there is no column
    of ones. `rng` samples rows for medians and whitening.
    """

    def __init__(self, X: Array, fit_intercept: bool, rng: np.random.Generator) -> None:
        self.X, self.fit_intercept = X, fit_intercept
        n, d = X.shape
        some = X if n <= _MEDIAN_ROWS else X[np.sort(rng.choice(n, _MEDIAN_ROWS, replace=False))]
        some = some.astype(np.float64, copy=False)
        self.centre = np.median(some, axis=0) if fit_intercept else np.zeros(d)
        self.scale = _spread(some - self.centre, X, self.centre)
        self.T = np.eye(d + fit_intercept)
        self.T = self._whitening(self.rows(slice(None)) if some is X else self.rows_of(some))

    def rows_of(self, X: Array) -> Array:
        """Transform rows to these coordinates."""
        Z = (X.astype(np.float64, copy=False) - self.centre) / self.scale
        Z = np.column_stack([Z, np.ones(len(Z))]) if self.fit_intercept else Z
        return Z @ self.T

    def rows(self, which: Any) -> Array:
        """A subset of the rows in these coordinates."""
        return self.rows_of(self.X[which])

    def _whitening(self, Z: Array) -> Array:
        """T, from the half of the rows Z nearest to the centre if it has the rank of all rows, otherwise from all rows.

        Z may be a sample of the rows.
        """
        length = np.einsum("ij,ij->i", Z, Z)
        half = _directions(Z[length <= np.median(length)])
        if half.shape[1] == Z.shape[1]:
            return half
        whole = _directions(self.rows(slice(None)))
        return half if half.shape[1] == whole.shape[1] else whole

    def as_given(self, b: Array) -> Array:
        """Transform coefficients in these coordinates to W (1, p) of the original columns."""
        w = self.T @ b
        coef = w[: self.X.shape[1]] / self.scale
        return np.append(coef, w[-1] - coef @ self.centre)[None] if self.fit_intercept else coef[None]

    def inside(self, W: Array) -> Array:
        """The coefficients in these coordinates that are closest to W (1, p) of the original columns."""
        d = self.X.shape[1]
        w = W[0, :d] * self.scale
        w = np.append(w, W[0, -1] + W[0, :d] @ self.centre) if self.fit_intercept else w
        return np.linalg.lstsq(self.T, w, rcond=None)[0]

    def identified(self) -> Array:
        """Which of the original coefficients (p,) are identified: those orthogonal to the null space of the rows."""
        free = np.eye(len(self.T)) - self.T @ np.linalg.pinv(self.T)  # the null space of the rows
        if self.fit_intercept:  # the original intercept is the value at 0, not at the centre
            free[-1] -= (self.centre / self.scale) @ free[:-1]
            size = 1.0 + np.append(np.ones(len(self.scale)), np.abs(self.centre / self.scale).sum())
        else:
            size = np.ones(len(free))
        return np.abs(free).max(axis=1) <= 1e-8 * size

    def penalty(self, C_of_sum: float) -> Array:
        """The matrix P of the penalty in these coordinates: b' P b = ||coef||^2 / (2 C), with scikit-learn's C."""
        S = self.T[: self.X.shape[1]] / self.scale[:, None]
        return S.T @ S / (2.0 * C_of_sum)


def _spread(centred: Array, X: Array, centre: Array) -> Array:
    """The scale (d,) of each column: the median absolute deviation of the sampled rows `centred`.

    If that is 0, their mean absolute deviation; if that is 0 too, the one of all rows; for a constant column 1.
    """
    scale = np.median(np.abs(centred), axis=0)
    for j in np.flatnonzero(scale == 0):
        scale[j] = np.abs(centred[:, j]).mean() or np.abs(X[:, j].astype(np.float64) - centre[j]).mean() or 1.0
    return scale


def _directions(Z: Array) -> Array:
    """T (p, r) such that Z T has orthogonal columns with mean square 1, where r is the rank of the rows."""
    _, s, V = np.linalg.svd(np.linalg.qr(Z, mode="r") if len(Z) > Z.shape[1] else Z, full_matrices=False)
    good = s > _RANK * s.max(initial=0.0)
    return V[good].T / s[good] * np.sqrt(len(Z))


def least_trimmed_squares(objective: Objective, start: Array | None, settings: Any) -> Result:
    """Minimise the mean of the n - m smallest squared residuals plus the penalty.

    The certificate refers to the minimum with the same rows kept. `start` is one more start, and `settings` is a
    `rankrange.solvers.Settings`.
    """
    at = Coordinates(objective.design.X, objective.design.fit_intercept, settings.rng)
    y = objective.y.astype(np.float64)
    problem = TrimmedSquares(at.rows(slice(None)), y, int(objective.kept), at.penalty(objective.C_of_sum))
    found = _searched(problem, [] if start is None else [at.inside(start)], settings)
    settings.log("search", float(problem.keep(found.B).value[0]) / problem.h)
    b, steps, gap = problem.settle(found.B[0], settings.max_iter)
    W = at.as_given(b)
    losses = objective.losses(objective.design.scores(W))
    value = objective.value_at(W, losses)
    settings.log("polish", value)
    message = "the kept rows are fitted by least squares"
    if value <= _rounding(y):
        message, gap = f"exact fit: the {problem.h} kept rows lie on one hyperplane", 0.0
    certificate = gap / (value * problem.h) if gap > 0 else 0.0
    converged = certificate <= settings.tol or steps < settings.max_iter
    if not converged:
        message = f"the relative gap is {certificate:.2g} after {steps} steps"
    return Result(W, value, steps, converged, message, settings.log.history, certificate, losses)


def _searched(problem: TrimmedSquares, starts: list[Array], settings: Any) -> Fits:
    """The lowest fit of a search on at most 10,000 rows, which begins on at most 1,000 of them."""
    rng, n_elemental = settings.rng, _ELEMENTAL * settings.n_starts
    n = len(problem.y)
    order = np.arange(n) if n <= _FIRST else rng.permutation(n)[:_SECOND]
    # Passes over more rows cost more, and minima are closer together.
    ends, restarts = (
        max(many * _FIRST // max(len(order), _FIRST), few)
        for many, few in ((n_elemental // 25, 2), (n_elemental // 2, 10))
    )
    large = small = problem.part(order)
    if n > _FIRST:
        small = problem.part(order[:_FIRST])
    fits = screen(
        small, np.concatenate([_starts(small, starts), elemental_fits(small, n_elemental, rng)]), 2 * _CONTINUED
    )
    if n > _FIRST:
        fits = large.keep(np.concatenate([small.concentrate(fits).best(_CONTINUED).B, *(b[None] for b in starts)]))
    if n > _SECOND:
        return large.concentrate(fits, 5).best(1)
    return improve(large, fits, restarts if n_elemental or n > _FIRST else 0, ends, rng).best(1)


def _starts(problem: TrimmedSquares, starts: list[Array]) -> Array:
    """Starts (S, p): least squares on all rows, on the 50% and the 75% with the smallest norm, and the given starts.

    With many columns no elemental start is free of outliers. Rows of large norm have high leverage.
    """
    length = np.einsum("ij,ij->i", problem.Z, problem.Z)
    cuts = [np.inf, *np.quantile(length, (0.5, 0.75))]
    return np.concatenate([problem.fit(np.array([length <= cut for cut in cuts])), *(b[None] for b in starts)])


def _rounding(y: Array) -> float:
    """The mean squared residual that rounding errors of these targets can explain."""
    return float((64 * np.finfo(np.float64).eps * np.abs(y).max(initial=0.0)) ** 2)
