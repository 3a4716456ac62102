"""Trimmed fits of one linear model for many training sets and many m at once.

Choosing m needs the same model on every fold, at every m, from several starts. All of them share the rows of X, so
they run as the columns of one batched descent: a training set is a row of masses (0 leaves a row out), and one product
with X serves all columns. The fits are as precise as a choice between them needs, not more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .losses import Softmax
from .objective import Objective
from .solvers.descent import Metric, descend
from .stratified import StratifiedObjective, quotas

Array = NDArray[Any]
# Columns are worked on in parts of about this many numbers, which stay in a core's cache.
_PART = 1 << 18
# Products with X serve all columns together, up to this many numbers of scores.
_PRODUCT = 1 << 23
# Far rows are left out of the metric up to this share: enough for any outliers that a fit can survive.
_FAR = 0.25
_TOL = 1e-5
_MEDIAN_ROWS = 4000
_METRIC_ROWS = 20_000


def top_weights(s: Array, mass: Array, m: Array) -> Array:
    """Weights of the largest losses of each row of s (S, n) up to the mass m (S,); `mass` is what each loss has.

    Where all masses are 0 or 1, ties at the cut share equally; else the first of them is taken first.
    """
    if mass.dtype == bool:
        return _top_of_units(s, mass, m)
    order = np.argsort(-s, axis=1, kind="stable")
    sorted_mass = np.take_along_axis(mass, order, axis=1)
    before = np.cumsum(sorted_mass, axis=1) - sorted_mass
    taken = np.clip(m[:, None] - before, 0.0, sorted_mass)
    weights = np.empty_like(taken)
    np.put_along_axis(weights, order, taken, axis=1)
    return weights


def _top_of_units(s: Array, mass: Array, m: Array) -> Array:
    inside = np.where(mass, s, -np.inf)
    ranks = np.maximum(m.astype(np.intp), 1)
    cut = np.empty((len(s), 1), dtype=s.dtype)
    for rank in np.unique(ranks):
        rows, place = ranks == rank, s.shape[1] - rank
        cut[rows, 0] = np.partition(inside[rows], place, axis=1)[:, place]
    above = inside > cut
    tied = inside == cut
    share = (m - above.sum(axis=1)) / tied.sum(axis=1)
    weights = above + tied * share[:, None]
    weights[m == 0] = 0.0
    return weights


@dataclass(frozen=True, eq=False)
class Sets:
    """The model (an objective whose m and k do not matter) and its training sets, a row of masses (F, n) each."""

    model: Objective
    masses: Array
    metric: Metric
    far: Array  # how far out each row lies

    @classmethod
    def of(cls, model: Objective, masses: Array) -> Sets:
        far = farness(model)
        near = far <= np.quantile(far, 1.0 - _FAR)
        return cls(model, masses, rough_metric(model, near), far)

    def top(self, s: Array, mass: Array, m: Array) -> Array:
        """Weights of what m cuts: the largest losses, or those of each class."""
        if not isinstance(self.model, StratifiedObjective):
            return top_weights(s, mass, m)
        groups = self.model.groups
        members = [groups == group for group in range(int(groups.max()) + 1)]
        sizes = np.stack([mass[:, rows].sum(axis=1) for rows in members], axis=1).astype(np.float64)
        weights = np.zeros(s.shape)
        for rows, quota in zip(members, quotas(m, sizes).T, strict=True):
            weights[:, rows] = top_weights(s[:, rows], mass[:, rows], quota)
        return weights

    @property
    def totals(self) -> Array:
        return self.masses.sum(axis=1).astype(np.float64)

    def fit(
        self, starts: Array, which: Array, m: Array, k: Array, *, max_iter: int, tol: float = _TOL
    ) -> tuple[Array, Array]:
        """Minimise from each start (S, r, p) on the training set `which` (S,), with m (S,) and k (S,) of its mass."""

        def batch(W: Array, numbers: Array) -> tuple[Array, Array]:
            return self.values_and_gradients(W, which[numbers], m[numbers], k[numbers])

        W, values, _ = descend(batch, starts, self.metric, max_iter=max_iter, tol=tol, numbered=True)
        return W, values

    def values_and_gradients(self, W: Array, which: Array, m: Array, k: Array) -> tuple[Array, Array]:
        """Values (S,) and gradients (S, r, p): one product with X for many columns, the rest in parts of the cache."""
        values, gradients = np.empty(len(W)), np.empty(W.shape)
        numbers = self.model.design.n * self.model.n_outputs
        step = max(1, _PART // numbers)
        together = max(step, _PRODUCT // numbers)
        for start in range(0, len(W), together):
            group = slice(start, min(start + together, len(W)))
            Z = self.scores(W[group])
            for first in range(group.start, group.stop, step):
                part = slice(first, min(first + step, group.stop))
                inside = slice(first - start, part.stop - start)
                values[part], Z[inside] = self._part(Z[inside], which[part], m[part], k[part])
            gradients[group] = self.model.design.adjoint(Z.reshape(-1, self.model.design.n)).reshape(W[group].shape)
        coef = W[:, :, : self.model.design.d]
        values += (coef**2).sum(axis=(1, 2)) / (2.0 * self.model.C)
        gradients[:, :, : self.model.design.d] += coef / self.model.C
        return values, gradients

    def _part(self, Z: Array, which: Array, m: Array, k: Array) -> tuple[Array, Array]:
        """The mean of the kept losses (S,), and its derivative in the scores Z (S, r, n)."""
        s, slope = self._losses_and_slopes(Z)
        mass = self.masses[which]
        q = mass - self.top(s, mass, m) if (m > 0).any() else mass.astype(np.float64)
        if (k < self.totals[which]).any():
            q = top_weights(s, q, k - m)
        q /= (k - m)[:, None]
        slope *= q[:, None, :]
        return (q * s).sum(axis=1), slope

    def scores(self, W: Array) -> Array:
        """(S, r, n)."""
        flat = self.model.design.scores(W.reshape(-1, W.shape[2]))
        return np.ascontiguousarray(flat).reshape(len(W), W.shape[1], -1)

    def _losses_and_slopes(self, Z: Array) -> tuple[Array, Array]:
        """s (S, n) and ds/dz (S, r, n)."""
        model = self.model
        if model.n_outputs == 1:
            s, slope = model.loss.value_and_derivative(model.y, Z[:, 0])
            return s, slope[:, None]
        if isinstance(model.loss, Softmax):
            return _softmax(model.y, Z)
        points = [model.losses_and_slopes(scores) for scores in Z]
        return np.array([s for s, _ in points]), np.array([slope for _, slope in points])


def _softmax(y: Array, Z: Array) -> tuple[Array, Array]:
    """Softmax losses (S, n) and slopes of scores (S, r, n), along the rows: as precise as a choice needs."""
    peak = Z.max(axis=1)
    own = np.take_along_axis(Z, np.broadcast_to(y, (len(Z), 1, len(y))), axis=1)
    slope = Z - peak[:, None]
    np.exp(slope, out=slope)
    total = slope.sum(axis=1)
    slope /= total[:, None]
    s = np.log(total) + (peak - own[:, 0])
    rows = np.arange(len(y))
    slope[:, y, rows] -= 1
    return s, slope


def farness(model: Objective) -> Array:
    """How far out each row lies: the squared distance from the median, in robust spreads of the columns.

    Medians come from some thousand rows, evenly spaced, where there are more.
    """
    design = model.design
    sample = _dense(model, np.arange(0, design.n, 1 + design.n // _MEDIAN_ROWS))
    centre = np.median(sample, axis=0)
    distance = np.abs(sample - centre)
    spread = np.median(distance, axis=0)
    spread = np.where(spread > 0, spread, np.where(distance.any(axis=0), distance.mean(axis=0), 1.0))
    blocks = [np.arange(i, min(i + _MEDIAN_ROWS, design.n)) for i in range(0, design.n, _MEDIAN_ROWS)]
    return np.concatenate([(((_dense(model, rows) - centre) / spread) ** 2).sum(axis=1) for rows in blocks])


def rough_metric(model: Objective, near: Array) -> Metric:
    """The spread of these rows, as the Hessian of a loss would see it at scores of zero."""
    rows = np.flatnonzero(near)
    rows = rows[:: 1 + len(rows) // _METRIC_ROWS]
    matrix = model.design.gram(np.ones(len(rows)), rows) * (0.25 / max(len(rows), 1))
    matrix[np.diag_indices_from(matrix)] += model.penalty_diagonal()
    return Metric(matrix)


def masses_of(sets: Sets, shares: Array, k_share: float) -> tuple[Array, Array]:
    """m (M, F) and k (F,) for the shares of each training set's mass; rounded to counts where masses are counts."""
    totals = sets.totals
    m, k = shares[:, None] * totals, k_share * totals
    if (sets.masses == np.floor(sets.masses)).all():
        m, k = np.rint(m), np.rint(k)
        return np.minimum(m, k - 1), k
    return m, k


def ordinary(sets: Sets, start: Array | None = None, tol: float = 1e-7) -> Array:
    """The fit of all losses on each training set (F, r, p)."""
    model, n_sets = sets.model, len(sets.masses)
    start = np.zeros((n_sets, model.n_outputs, model.design.p)) if start is None else start
    return sets.fit(start, np.arange(n_sets), np.zeros(n_sets), sets.totals, max_iter=100, tol=tol)[0]


def upward(sets: Sets, start: Array, m: Array, k: Array) -> Array:
    """(M, F, r, p): each m (M, F) starts from the fit of the one before, the first from `start`."""
    every = np.arange(len(sets.masses))
    path = [start]
    for level in m:
        path.append(sets.fit(path[-1], every, level, k, max_iter=_steps(sets))[0])
    return np.array(path[1:])


def searched(sets: Sets, m: Array, k: Array, rng: np.random.Generator, n_random: int) -> Array:
    """(M, F, r, p): the lowest of a search from the fit without far rows and `n_random` random starts, at each m.

    All start together. After a few steps each (m, set) goes on with its best two and the best of the next smaller and
    the next larger m; after some more with the best one.
    """
    drawn = random_starts(sets, n_random, rng)
    drawn = np.broadcast_to(drawn, (len(m), *drawn.shape))
    starts = np.concatenate([near_starts(sets, m)[:, :, None], drawn], axis=2)
    for steps, survivors in ((6, 2), (12, 1)) if n_random else ():
        starts, values = _fit_grid(sets, starts, m, k, steps, 1e-4)
        best = np.argsort(values, axis=2, kind="stable")[:, :, :survivors]
        starts = np.take_along_axis(starts, best[..., None, None], axis=2)
        if survivors > 1:
            own = starts[:, :, :1]
            starts = np.concatenate([starts, np.roll(own, 1, axis=0), np.roll(own, -1, axis=0)], axis=2)
    return _fit_grid(sets, starts, m, k, _steps(sets), _TOL)[0][:, :, 0]


def _steps(sets: Sets) -> int:
    return 40 if sets.model.n_outputs == 1 else 25


def _fit_grid(sets: Sets, starts: Array, m: Array, k: Array, max_iter: int, tol: float) -> tuple[Array, Array]:
    """Fits from starts (M, F, J, r, p), with their values (M, F, J)."""
    n_m, n_sets, n_starts = starts.shape[:3]
    which = np.broadcast_to(np.arange(n_sets)[None, :, None], starts.shape[:3]).ravel()
    level = np.broadcast_to(m[:, :, None], starts.shape[:3]).ravel()
    W, values = sets.fit(starts.reshape(-1, *starts.shape[3:]), which, level, k[which], max_iter=max_iter, tol=tol)
    return W.reshape(starts.shape), values.reshape(n_m, n_sets, n_starts)


def near_starts(sets: Sets, m: Array) -> Array:
    """(M, F, r, p): one Newton step from zero on the rows that are left when the m farthest are cut."""
    model, n_sets = sets.model, len(sets.masses)
    zero = np.zeros((n_sets, model.n_outputs, model.design.p))
    every, none = np.arange(n_sets), np.zeros(n_sets)
    found = []
    for share in (m / sets.totals).mean(axis=1):
        near = sets.far <= np.quantile(sets.far, 1.0 - share)
        part = Sets(model, sets.masses * near, sets.metric, sets.far)
        gradient = part.values_and_gradients(zero, every, none, part.totals)[1]
        found.append(-rough_metric(model, near).solve(gradient))
    return np.array(found)


def random_starts(sets: Sets, n_random: int, rng: np.random.Generator) -> Array:
    """(F, n_random, r, p): through few rows for numbers, else the direction of two random rows with their labels."""
    design = sets.model.design
    W = np.zeros((len(sets.masses), n_random, sets.model.n_outputs, design.p))
    if not n_random:
        return W
    draw = _through_few if sets.model.loss.targets == "numbers" else _of_pairs
    for i, mass in enumerate(sets.masses):
        rows = np.flatnonzero(mass)
        for j in range(n_random):
            W[i, j, 0] = draw(sets.model, rows, rng)
    return W if sets.model.loss.targets == "numbers" else _scaled(sets, W)


def _of_pairs(model: Objective, rows: Array, rng: np.random.Generator) -> Array:
    pair = rng.choice(rows, 2)
    w = np.zeros(model.design.p)
    w[: model.design.d] = (_dense(model, pair) * model.y[pair, None]).sum(axis=0)
    return w


def _through_few(model: Objective, rows: Array, rng: np.random.Generator) -> Array:
    """Least squares on as many rows as there are parameters, and two."""
    few = rng.choice(rows, min(len(rows), model.design.p + 2), replace=False)
    X = _dense(model, few)
    X = np.column_stack([X, np.ones(len(X))]) if model.design.fit_intercept else X
    return np.linalg.lstsq(X, model.y[few].astype(np.float64), rcond=1e-6)[0]


def _dense(model: Objective, rows: Array) -> Array:
    X = model.design.X[rows]
    return X.toarray() if model.design.sparse else np.asarray(X, dtype=np.float64)


def _scaled(sets: Sets, W: Array) -> Array:
    """Directions with scores that spread about two units around a median of zero."""
    Z = sets.scores(W.reshape(-1, 1, W.shape[-1]))[:, 0]
    centre = np.median(Z, axis=1)
    spread = np.median(np.abs(Z - centre[:, None]), axis=1)
    scale = np.where(spread > 0, 2.0 / np.where(spread > 0, spread, 1.0), 1.0).reshape(W.shape[:3])
    if sets.model.design.fit_intercept:
        W[..., -1] = -centre.reshape(W.shape[:3])
    return W * scale[..., None]
