"""Search of least trimmed squares on a few thousand rows: elemental starts, concentration steps and exchanges.

A start is the exact fit of as many rows as there are coefficients. A concentration step keeps the h rows with the
smallest squared residuals and fits these; it never increases the objective. When the kept rows no longer change,
exchanging one kept row for one dropped row may still lower the objective. All starts are computed together: the Gram
matrices of many sets of rows are one product with the outer products of the rows.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array

# Exchanges with a smaller relative gain are rounding errors.
_GAIN = 1e-10
# The relative gain at which concentration steps on all rows end.
_SETTLED = 1e-12
# The number of kept and of dropped rows that are candidates for an exchange.
_CANDIDATES = 100
_MAX_STEPS = 300
# The number of rounds of restarts, and of fits whose kept rows are used for restarts.
_ROUNDS, _PARENTS = 3, 4


class Fits(NamedTuple):
    """Several trimmed fits: coefficients (S, p), masks of the kept rows (S, n) and objectives (S,)."""

    B: Array
    kept: Array
    value: Array

    def best(self, count: int) -> Fits:
        """The lowest fits with distinct values, at most `count`, lowest first."""
        order = np.argsort(self.value, kind="stable")
        value = self.value[order]
        order = order[np.append(True, np.diff(value) > 1e-12 * np.abs(value[1:]))][:count]
        return Fits(self.B[order], self.kept[order], self.value[order])


def smallest(squares: Array, h: int) -> tuple[Array, Array]:
    """A mask (S, n) of the h smallest entries of each row, and their sums (S,); the choice among ties is arbitrary."""
    ordered = np.partition(squares, h - 1, axis=1)
    kept = squares <= ordered[:, h - 1 : h]
    for s in np.flatnonzero(np.count_nonzero(kept, axis=1) > h):  # ties at the cut
        kept[s] = False
        kept[s, np.argpartition(squares[s], h - 1)[:h]] = True
    return kept, ordered[:, :h].sum(axis=1)


class TrimmedSquares:
    """The problem min over B of the sum of the h smallest (y - Z B)^2 plus B' P B, with steps on many B at once.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        The rows, transformed to nearly orthonormal columns.
    y : ndarray of shape (n,)
        Their targets.
    h : int
        The number of rows to keep.
    P : ndarray of shape (p, p)
        The matrix of the quadratic penalty.
    """

    def __init__(self, Z: Array, y: Array, h: int, P: Array) -> None:
        self.Z, self.y, self.h, self.P = Z, y, h, P
        self.n, self.p = Z.shape

    @cached_property
    def _moments(self) -> tuple[Array, Array, Array]:
        """The indices i, j of the upper triangle, and for each row z its z_i z_j followed by z y: (n, pairs + p)."""
        i, j = np.triu_indices(self.p)
        return i, j, np.column_stack([self.Z[:, i] * self.Z[:, j], self.Z * self.y[:, None]])

    def systems(self, weights: Array) -> tuple[Array, Array]:
        """The normal equations for S sets of row weights (S, n): Gram matrices plus P (S, p, p), and Z'y (S, p).

        A tiny ridge is added to the Gram matrices, so that singular ones can be solved.
        """
        if len(weights) == 1:
            weighted = self.Z * weights[0][:, None]
            G, b = (weighted.T @ self.Z)[None] + self.P, (weighted.T @ self.y)[None]
        else:
            i, j, moments = self._moments
            sums = weights.astype(np.float64) @ moments
            G, b = np.empty((len(weights), self.p, self.p)), sums[:, len(i) :]
            G[:, i, j] = G[:, j, i] = sums[:, : len(i)]
            G += self.P
        # If a set has no row of some category, its matrix is singular; a tiny ridge makes the solution unique.
        G[:, range(self.p), range(self.p)] += 1e-13 * np.trace(G, axis1=1, axis2=2)[:, None] + 1e-300
        return G, b

    def fit(self, kept: Array) -> Array:
        """The coefficients (S, p) of penalised least squares on each set of rows, given by masks (S, n)."""
        G, b = self.systems(kept)
        return np.linalg.solve(G, b[:, :, None])[:, :, 0]

    def keep(self, B: Array) -> Fits:
        """The fits with coefficients B (S, p), which keep the h rows with the smallest squared residuals."""
        squares = (B @ self.Z.T - self.y) ** 2
        kept, value = smallest(squares, self.h)
        return Fits(B, kept, value + np.einsum("sp,pq,sq->s", B, self.P, B))

    def concentrate(self, fits: Fits, steps: int = _MAX_STEPS) -> Fits:
        """The fits after concentration steps, until no objective decreases or after `steps` steps."""
        B, kept, value = (part.copy() for part in fits)
        moving = np.arange(len(B))
        for _ in range(steps):
            after = self.keep(self.fit(kept[moving]))
            lower = after.value < value[moving] * (1 - 1e-14)
            moving, after = moving[lower], Fits(*(part[lower] for part in after))
            if not len(moving):
                break
            B[moving], kept[moving], value[moving] = after
        return Fits(B, kept, value)

    def settle(self, b: Array, most: int) -> tuple[Array, int, float]:
        """Concentration steps from b until they gain nothing: the end point, their number, and what is left to gain.

        There are at most `most` steps, each from the residuals at b, so that the last ones refine it.
        """
        steps, gap = 0, np.inf
        while steps < most:
            steps += 1
            fits = self.keep(b[None])
            Z, y = self.Z[fits.kept[0]], self.y[fits.kept[0]]
            slope = Z.T @ (y - Z @ b) - self.P @ b
            step = _solve(Z.T @ Z + self.P, slope)
            gap = float(step @ slope)
            if gap <= _SETTLED * fits.value[0]:
                break
            b = b + step
        return b, steps, gap

    def part(self, rows: Array) -> TrimmedSquares:
        """The problem on a subset of the rows, of which the same share is kept."""
        return TrimmedSquares(self.Z[rows], self.y[rows], max(round(self.h * len(rows) / self.n), 1), self.P)

    def exchange(self, fits: Fits, steps: int = _MAX_STEPS) -> Fits:
        """Exchange a kept row for a dropped one, always the pair with the largest gain, until none gains.

        There are at most `steps` exchanges per fit. Pairs are formed from the 100 most promising kept and dropped rows.
        Concentration steps follow.
        """
        B, kept, value = (part.copy() for part in fits)
        moving = np.arange(len(B))
        for _ in range(steps):
            G, b = self.systems(kept[moving])
            B[moving] = np.linalg.solve(G, b[:, :, None])[:, :, 0]
            gained = [
                self._best_pair(B[i], A, kept[i], value[i]) for i, A in zip(moving, np.linalg.inv(G), strict=True)
            ]
            for i, pair in zip(moving, gained, strict=True):
                if pair is not None:
                    kept[i, pair[0]], kept[i, pair[1]] = True, False
                    value[i] += pair[2]
            moving = moving[[pair is not None for pair in gained]]
            if not len(moving):
                break
        return self.concentrate(self.keep(B))

    def _best_pair(self, b: Array, A: Array, kept: Array, value: float) -> tuple[int, int, float] | None:
        """The exchange that lowers the objective most: row to keep, row to drop, change; None if none lowers it.

        The residuals and the leverages z'Az, where A is the inverse of the Gram matrix, give the change without a fit.
        A change below 1e-10 of the objective `value` is a rounding error and does not count.
        """
        ZA = self.Z @ A
        r, leverage = self.y - self.Z @ b, np.einsum("np,np->n", ZA, self.Z)
        inside, outside = np.flatnonzero(kept), np.flatnonzero(~kept)
        if not len(outside):
            return None
        i = _least(r[outside] ** 2 / (1 + leverage[outside]), outside)
        left = np.maximum(1 - leverage, 1e-12)
        j = _least(-(r[inside] ** 2) / left[inside], inside)
        cross, more, less = ZA[i] @ self.Z[j].T, 1 + leverage[i][:, None], left[j]
        ri, rj = r[i][:, None], r[j]
        change = (ri**2 * less - rj**2 * more + 2 * ri * rj * cross) / (more * less + cross**2)
        at = np.unravel_index(change.argmin(), change.shape)
        return (int(i[at[0]]), int(j[at[1]]), float(change[at])) if change[at] < -_GAIN * value else None


def _solve(G: Array, g: Array) -> Array:
    """G^-1 g, with coefficient 0 in the null space of G."""
    values, vectors = np.linalg.eigh(G)
    good = values > 1e-14 * values.max(initial=0.0)
    return vectors[:, good] @ ((vectors[:, good].T @ g) / values[good])


def _least(score: Array, rows: Array) -> Array:
    return rows if len(rows) <= _CANDIDATES else rows[np.argpartition(score, _CANDIDATES)[:_CANDIDATES]]


def elemental_fits(problem: TrimmedSquares, count: int, rng: np.random.Generator) -> Array:
    """Fits (count, p) of p random rows each, exact if these are linearly independent; of h / 2 rows if these are fewer.

    A category without any of these rows has coefficients near 0, which the concentration steps that follow correct.
    """
    size = min(problem.p, (problem.h + 1) // 2)
    order = np.argpartition(rng.random((count, problem.n)), size - 1, axis=1)
    sets = np.zeros((count, problem.n), dtype=bool)
    np.put_along_axis(sets, order[:, :size], True, axis=1)
    return np.concatenate([problem.fit(part) for part in np.array_split(sets, max(1, count // 50))])


def screen(problem: TrimmedSquares, B: Array, best: int) -> Fits:
    """Take two concentration steps from each B (S, p), and return the `best` lowest fits."""
    fits = problem.concentrate(problem.keep(B), 2)
    order = np.argsort(fits.value, kind="stable")[:best]
    return Fits(*(part[order] for part in fits))


def improve(problem: TrimmedSquares, fits: Fits, count: int, ends: int, rng: np.random.Generator) -> Fits:
    """Concentrate all fits, exchange rows in the lowest, and restart from subsets of the rows that these keep.

    At most `ends` fits are exchanged and returned. Each of three rounds has `count` restarts, which are fits to 2 p
    rows that one of the best fits keeps. Such rows are mostly regular, so these are good starts for nearby minima.
    There are no restarts if 2 p is at least h.
    """
    fits = problem.exchange(problem.concentrate(fits).best(ends)).best(ends)
    size = min(2 * problem.p, problem.h)
    for _ in range(_ROUNDS if size < problem.h and count else 0):
        of = fits.kept[np.arange(count) % min(len(fits.B), _PARENTS)]
        chance = np.where(of, rng.random(of.shape), 2.0)
        parts = np.zeros(of.shape, dtype=bool)
        np.put_along_axis(parts, np.argpartition(chance, size - 1, axis=1)[:, :size], True, axis=1)
        restarted = problem.concentrate(screen(problem, problem.fit(parts), 2 * ends)).best(ends)
        restarted = problem.exchange(restarted)
        fits = Fits(*(np.concatenate(pair) for pair in zip(fits, restarted, strict=True))).best(ends)
    return fits
