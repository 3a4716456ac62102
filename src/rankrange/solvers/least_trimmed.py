"""Least trimmed squares with or without a ridge penalty: for squared losses with k = n.

Up to 1,000 rows are searched together (`elemental`). Up to 10,000 rows, a random subset is searched first, and its best
fits are continued on all rows. With more, they are continued on a larger subset and then on all rows, by concentration
steps only. For fixed kept rows the problem is quadratic, so the certificate is the gain of a final Newton step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from .descent import Result
from .elemental import TrimmedSquares, elemental_fits, improve, screen, smallest

# The number of rows for elemental starts, and for continuing the best of them.
_FIRST, _SECOND = 1_000, 10_000
# The same for larger data, which have fewer continued starts, and the relative gain at which their steps end.
_FIRST_OF_MANY, _SECOND_OF_MANY, _CONTINUED_OF_MANY, _TOL_OF_MANY = 300, 4_000, 3, 1e-9
# The number of elemental starts for each of n_starts, and the number that are continued.
_ELEMENTAL, _CONTINUED = 50, 20
# The number of rows for computing medians and the whitening.
_MEDIAN_ROWS = 5_000
# Singular values below this share of the largest are treated as 0.
_RANK = 1e-10
_BLOCK = 8192


class Coordinates:
    """The coordinates Z = [(X - centre) / scale, 1] T, where the matrix T makes the columns of Z nearly orthogonal.

    Z has as many columns as the rank of the rows. Without an intercept, the centre is 0 and there is no column of ones.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The rows.
    fit_intercept : bool
        Whether there is a column of ones.
    rng : numpy.random.Generator
        Generator that samples rows for medians and whitening.
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
        """T, from the half of the rows Z nearest to the centre if it has the rank of all rows, otherwise from all of Z.

        If Z is a sample without full rank, T is from the Gram matrix of all rows instead of from all of Z.
        """
        length = np.einsum("ij,ij->i", Z, Z)
        half = _directions(Z[length <= np.median(length)])
        if half.shape[1] == Z.shape[1]:
            return half
        whole = _directions(Z)
        if whole.shape[1] < Z.shape[1] and len(Z) < len(self.X):
            whole = _directions_of(self._gram() * (len(Z) / len(self.X)), len(Z))
        return half if half.shape[1] == whole.shape[1] else whole

    def _gram(self) -> Array:
        """The Gram matrix of all rows in these coordinates; that of a subset may miss rare categories."""
        p = len(self.T)
        total = np.zeros((p, p))
        for start in range(0, len(self.X), _BLOCK):
            Z = self.rows(slice(start, start + _BLOCK))
            total += Z.T @ Z
        return total

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


def _directions_of(gram: Array, n: int) -> Array:
    """`_directions` from the Gram matrix of n rows, with half of the digits, because it squares the singular values."""
    values, vectors = np.linalg.eigh(gram)
    good = values > 1e-13 * values.max(initial=0.0)
    return vectors[:, good] / np.sqrt(values[good]) * np.sqrt(n)


def least_trimmed_squares(objective: Objective, start: Array | None, settings: Any) -> Result:
    """Minimise the mean of the n - m smallest squared residuals plus the penalty.

    The certificate refers to the minimum with the same rows kept. `start` is one more start, and `settings` is a
    `rankrange.solvers.Settings`.
    """
    at = Coordinates(objective.design.X, objective.design.fit_intercept, settings.rng)
    y, h = objective.y.astype(np.float64), int(objective.kept)
    P = at.penalty(objective.C_of_sum)
    starts = [] if start is None else [at.inside(start)]
    rows = _All(at, y, h, P)
    ends = _ends(rows, starts, settings)
    settings.log("search", rows.keep(ends[0])[1] / h)
    few = len(y) <= _SECOND
    b, steps, gap = rows.settle(ends[0], 1e-15 if few else _TOL_OF_MANY, settings.max_iter)
    if few:
        b, gap = rows.polish(b)
    return _result(objective, rows, b, steps, gap, settings)


def _ends(rows: _All, starts: list[Array], settings: Any) -> Array:
    """The lowest fit (1, p) of a search on all rows; if these are more than 1,000, on a subset first.

    The best fits of the subset are continued on all rows or, if these are more than 10,000, on a larger subset.
    """
    n, rng, n_elemental = len(rows.y), settings.rng, _ELEMENTAL * settings.n_starts
    # Passes over more rows cost more, and minima are closer together.
    ends, restarts = (
        max(many * _FIRST // max(n, _FIRST), few) for many, few in ((n_elemental // 25, 2), (n_elemental // 2, 10))
    )
    first, continued = (_FIRST, _CONTINUED) if n <= _SECOND else (_FIRST_OF_MANY, _CONTINUED_OF_MANY)
    order = np.arange(n) if n <= _SECOND else rng.choice(n, _SECOND_OF_MANY, replace=False)
    order = order if n <= first else rng.permutation(order)
    small = rows.part(order[:first])
    B = np.concatenate([_starts(small, starts), elemental_fits(small, n_elemental, rng)])
    fits = screen(small, B, 2 * continued)
    if n <= first:
        return improve(small, fits, restarts if n_elemental else 0, ends, rng).B[:1]
    large = rows.part(order)
    fits = large.keep(np.concatenate([small.concentrate(fits).best(continued).B, *(b[None] for b in starts)]))
    return (improve(large, fits, restarts, ends, rng) if n <= _SECOND else large.concentrate(fits, 5).best(1)).B[:1]


def _starts(problem: TrimmedSquares, starts: list[Array]) -> Array:
    """Starts (S, p): least squares on all rows, on the 50% and the 75% with the smallest norm, and the given starts.

    With many columns no elemental start is free of outliers. Rows of large norm have high leverage.
    """
    length = np.einsum("ij,ij->i", problem.Z, problem.Z)
    cuts = [np.inf, *np.quantile(length, (0.5, 0.75))]
    return np.concatenate([problem.fit(np.array([length <= cut for cut in cuts])), *(b[None] for b in starts)])


class _All:
    """All rows of a problem, processed in blocks; their coordinates are not stored."""

    def __init__(self, at: Coordinates, y: Array, h: int, P: Array) -> None:
        self.at, self.y, self.h, self.P = at, y, h, P

    def part(self, rows: Array) -> TrimmedSquares:
        """The problem on a subset of the rows, of which the same share is kept."""
        h = max(round(self.h * len(rows) / len(self.y)), 1)
        return TrimmedSquares(self.at.rows(rows), self.y[rows], h, self.P)

    def squares(self, b: Array) -> Array:
        """Squared residuals of all rows."""
        W = self.at.as_given(b)[0]
        d = self.at.X.shape[1]
        r = self.at.X @ W[:d] - self.y
        if self.at.fit_intercept:
            r += W[d]
        return np.multiply(r, r, out=r)

    def sums(self, rows: Array, sign: Array | None = None) -> tuple[Array, Array]:
        """The Gram matrix and Z'y of some rows, each multiplied by its sign (None: 1)."""
        p = self.at.T.shape[1]
        G, g = np.zeros((p, p)), np.zeros(p)
        for start in range(0, len(rows), _BLOCK):
            part = rows[start : start + _BLOCK]
            Z = self.at.rows(part)
            signed = Z if sign is None else Z * sign[start : start + _BLOCK, None]
            G += signed.T @ Z
            g += signed.T @ self.y[part]
        return G, g

    def keep(self, b: Array) -> tuple[Array, float, float]:
        """A mask of the kept rows, the objective times h, and the factor by which a concentration step is too short."""
        squares = self.squares(b)
        kept, value = smallest(squares[None], self.h)
        cut = float(squares[kept[0]].max())
        near = np.count_nonzero((squares > 0.81 * cut) & (squares < 1.21 * cut)) / 0.2
        return kept[0], float(value[0] + b @ self.P @ b), 1.0 / max(1.0 - near / self.h, 0.1)

    def settle(self, b: Array, tol: float, most: int) -> tuple[Array, int, float]:
        """Concentration steps from b: the end point, the number of steps, and the possible gain with the kept rows.

        They end when that gain is at most `tol` of the objective, when no step lowers it, or after `most` steps. Like
        the value of `keep`, the gain is that of the objective times h. The density of residuals at the cut gives the
        factor by which a step is too short. If there are enough rows to estimate the density (more than 10,000), a
        longer step is tried as well. Sums are updated only for rows that enter or leave.
        """
        kept, value, stretch = self.keep(b)
        G, g = self.sums(np.flatnonzero(kept))
        gap, steps = np.inf, 0
        while steps < most:
            steps += 1
            target = _solve(G + self.P, g)
            gap = float((target - b) @ (G + self.P) @ (target - b))
            if gap <= tol * value:
                break
            point, expected = b + stretch * (target - b), value - gap
            step_result = self.keep(point) if len(self.y) > _SECOND else None
            if step_result is None or step_result[1] > expected:  # the plain step achieves its gain
                point, step_result = target, self.keep(target)
            if not step_result[1] < value:
                break
            after, value, stretch = step_result
            changed = np.flatnonzero(after != kept)
            more, more_g = self.sums(changed, np.where(after[changed], 1.0, -1.0))
            b, kept, G, g = point, after, G + more, g + more_g
        return b, steps, gap

    def polish(self, b: Array) -> tuple[Array, float]:
        """Least squares on the rows that b keeps, by three refinement steps, and the gain of the last one, times h."""
        rows = np.flatnonzero(self.keep(b)[0])
        Z, y = self.at.rows(rows), self.y[rows]
        G = Z.T @ Z + self.P
        for _ in range(3):
            slope = Z.T @ (y - Z @ b) - self.P @ b
            step = _solve(G, slope)
            b = b + step
        return b, float(step @ slope)


def _solve(G: Array, g: Array) -> Array:
    """G^-1 g, with coefficient 0 in the null space of G."""
    values, vectors = np.linalg.eigh(G)
    good = values > 1e-14 * values.max(initial=0.0)
    return vectors[:, good] @ ((vectors[:, good].T @ g) / values[good])


def _result(objective: Objective, rows: _All, b: Array, steps: int, gap: float, settings: Any) -> Result:
    """The result; it has not converged if the steps ended at `max_iter` and the gap is above `tol`."""
    W = rows.at.as_given(b)
    losses = objective.losses(objective.design.scores(W))
    value = objective.value_at(W, losses)
    settings.log("polish", value)
    message = "the kept rows are fitted by least squares"
    if value <= _rounding(rows.y):
        message, gap = f"exact fit: the {rows.h} kept rows lie on one hyperplane", 0.0
    certificate = gap / (value * rows.h) if gap > 0 else 0.0
    converged = certificate <= settings.tol or steps < settings.max_iter
    if not converged:
        message = f"the relative gap is {certificate:.2g} after {steps} steps"
    return Result(W, value, steps, converged, message, settings.log.history, certificate, losses)


def _rounding(y: Array) -> float:
    """The mean squared residual that rounding errors of these targets can explain."""
    return float((64 * np.finfo(np.float64).eps * np.abs(y).max(initial=0.0)) ** 2)
