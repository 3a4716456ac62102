"""Search of least trimmed squares on a few thousand rows: elemental starts, concentration steps and restarts.

A start is the exact fit of as many rows as there are coefficients. A concentration step keeps the h rows with the
smallest squared residuals and fits these; it never increases the objective. Fits to a few of the rows that the best
fits keep are further starts. All starts are computed together: the Gram matrices of many sets of rows are one product
with the outer products of the rows.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array

# The relative gain at which concentration steps on all rows end.
_SETTLED = 1e-12
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

    The rows Z (n, p) are transformed to nearly orthonormal columns, h is the number of rows to keep, and P (p, p) is
    the matrix of the quadratic penalty.
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


def _solve(G: Array, g: Array) -> Array:
    """G^-1 g, with coefficient 0 in the null space of G."""
    values, vectors = np.linalg.eigh(G)
    good = values > 1e-14 * values.max(initial=0.0)
    return vectors[:, good] @ ((vectors[:, good].T @ g) / values[good])


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
    """Concentrate all fits, and restart from subsets of the rows that the lowest of them keep.

    At most `ends` fits are returned. Each of three rounds has `count` restarts, which are fits to 2 p
    rows that one of the best fits keeps. Such rows are mostly regular, so these are good starts for nearby minima.
    There are no restarts if 2 p is at least h.
    """
    fits = problem.concentrate(fits).best(ends)
    size = min(2 * problem.p, problem.h)
    for _ in range(_ROUNDS if size < problem.h and count else 0):
        of = fits.kept[np.arange(count) % min(len(fits.B), _PARENTS)]
        chance = np.where(of, rng.random(of.shape), 2.0)
        parts = np.zeros(of.shape, dtype=bool)
        np.put_along_axis(parts, np.argpartition(chance, size - 1, axis=1)[:, :size], True, axis=1)
        restarted = problem.concentrate(screen(problem, problem.fit(parts), 2 * ends)).best(ends)
        fits = Fits(*(np.concatenate(pair) for pair in zip(fits, restarted, strict=True))).best(ends)
    return fits
