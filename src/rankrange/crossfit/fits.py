"""Trimmed fits of one linear model for many training sets and many m at once.

Choosing m needs fits on every fold, at every m, from several starts. They share the rows of X, so they run as one
batched descent. A training set is a row of masses (0 excludes a row), and one product with X serves all fits. The fits
are only as accurate as a comparison needs.

`Sets` are the training sets. `Fits` are the fits of the candidates, at several m, each on every training set. In the
shapes of arrays, F is the number of training sets, S of fits, n of rows, r of scores per row (1, or one per class), and
p of parameters per score, the intercept included.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..core.arrays import Array
from ..core.cuts import cuts_of, top_weights
from ..core.losses import Softmax
from ..core.objective import Objective
from ..core.threads import threads_for
from ..solvers.descent import Metric, descend
from ..solvers.trim import pair_direction, rough_metric, scaled_directions

# Scores are processed in blocks of about this many numbers, small enough for the caches of the processor.
_PART = 1 << 16
# One product with X computes the scores of all fits, up to this many scores.
_PRODUCT = 1 << 23
# The largest share of distant rows, which are winsorised in the metric.
_FAR = 0.25
_TOL = 1e-5
_MEDIAN_ROWS = 4000
Report = Callable[[str], None]  # called with a short text before each stage of the work


@dataclass(frozen=True, eq=False)
class Sets:
    """The model and its training sets: one row of masses (F, n) per set.

    C is relative to the mean loss of all rows: n times scikit-learn's. Fits to a subset of the rows then have the same
    penalty as the fit to all rows.

    Parameters
    ----------
    model : Objective
        The model and its rows; its m, k and C are ignored.
    masses : ndarray of shape (F, n)
        The mass of each row in each training set; bool if each row counts once.
    C : float
        Inverse of regularization strength.
    metric : Metric
        The scaling of the steps.
    distances : ndarray of shape (n,)
        The squared robust distance of each row from the median.
    n_jobs : int, default=1
        The number of threads.
    """

    model: Objective
    masses: Array
    C: float
    metric: Metric
    distances: Array
    n_jobs: int = 1

    @classmethod
    def of(cls, model: Objective, masses: Array, C: float) -> Sets:
        """The training sets with these masses (F, n), with the metric and the distances computed from the rows.

        In the metric, distant rows are winsorised and not excluded. All rows of a rare category may be distant, and
        fits in a metric without these rows would converge slowly.
        """
        with threads_for(model.design.X):
            distances, beyond = robust_distances(model)
            limit = np.quantile(beyond, 1.0 - _FAR) or beyond[beyond > 0].min(initial=np.inf)
            drawn_in = np.where(beyond > limit, limit / np.where(beyond > limit, beyond, 1.0), 1.0)
            return cls(model, masses, C, rough_metric(replace(model, C=C), drawn_in), distances)

    @cached_property
    def totals(self) -> Array:
        """The mass (F,) of each training set."""
        return self.masses.sum(axis=1).astype(np.float64)

    def fit(
        self, starts: Array, which: Array, m: Array, k: Array, *, max_iter: int, tol: float = _TOL
    ) -> tuple[Array, Array]:
        """Run S fits at once: their solutions (S, r, p) and objectives (S,).

        Fit s starts at starts[s] and uses the training set which[s], with the ranks m[s]+1 to k[s] as masses.
        """

        def batch(W: Array, numbers: Array) -> tuple[Array, Array]:
            return self.values_and_gradients(W, which[numbers], m[numbers], k[numbers])

        with threads_for(self.model.design.X):
            W, values, _ = descend(batch, starts, self.metric, max_iter=max_iter, tol=tol, numbered=True)
        return W, values

    def values_and_gradients(self, W: Array, which: Array, m: Array, k: Array) -> tuple[Array, Array]:
        """Objectives (S,) and gradients (S, r, p) of S fits at W (S, r, p), with shared products with X; see `fit`."""
        values, gradients = np.empty(len(W)), np.empty(W.shape)
        numbers = self.model.design.n * self.model.n_outputs
        step = max(1, _PART // numbers)
        together = max(step, _PRODUCT // numbers)
        for start in range(0, len(W), together):
            group = slice(start, min(start + together, len(W)))
            Z = self.scores(W[group])

            def work(first: int, group: slice = group, Z: Array = Z) -> None:
                part = slice(first, min(first + step, group.stop))
                inside = slice(first - group.start, part.stop - group.start)
                values[part], Z[inside] = self._part(Z[inside], which[part], m[part], k[part])

            self._each(work, range(group.start, group.stop, step))
            gradients[group] = self.model.design.adjoint(Z.reshape(-1, self.model.design.n)).reshape(W[group].shape)
        coef = W[:, :, : self.model.design.d]
        ridge = self.totals[which] / (self.C * (k - m))
        values += 0.5 * ridge * (coef**2).sum(axis=(1, 2))
        gradients[:, :, : self.model.design.d] += ridge[:, None, None] * coef
        return values, gradients

    def _each(self, work: Callable[[int], None], firsts: range) -> None:
        """Process all blocks, in threads if there are several jobs.

        Blocks write to disjoint memory, so their order does not matter.
        """
        if self.n_jobs == 1 or len(firsts) == 1:
            for first in firsts:
                work(first)
            return
        with ThreadPoolExecutor(self.n_jobs) as pool:
            list(pool.map(work, firsts))

    def _part(self, Z: Array, which: Array, m: Array, k: Array) -> tuple[Array, Array]:
        """The mean of the kept losses (S,) and its derivative with respect to the scores Z (S, r, n)."""
        s, slope = self._losses_and_slopes(Z)
        mass = self.masses[which]
        q = mass - self.model.aggregate.top(s, mass, m) if (m > 0).any() else mass.astype(np.float64)
        if (k < self.totals[which]).any():
            q = top_weights(s, q, k - m)
        q /= (k - m)[:, None]
        slope *= q[:, None, :]
        return (q * s).sum(axis=1), slope

    def scores(self, W: Array) -> Array:
        """Scores (S, r, n) of all rows under each W (S, r, p)."""
        flat = self.model.design.scores(W.reshape(-1, W.shape[2]))
        return np.ascontiguousarray(flat).reshape(len(W), W.shape[1], -1)

    def _losses_and_slopes(self, Z: Array) -> tuple[Array, Array]:
        """The losses (S, n) and their slopes (S, r, n) at the scores Z (S, r, n)."""
        model = self.model
        if model.n_outputs == 1:
            s, slope = model.loss.value_and_derivative(model.y, Z[:, 0])
            return s, slope[:, None]
        if isinstance(model.loss, Softmax):
            return _softmax(model.y, Z)
        points = [model.losses_and_slopes(scores) for scores in Z]
        return np.array([s for s, _ in points]), np.array([slope for _, slope in points])


def _softmax(y: Array, Z: Array) -> tuple[Array, Array]:
    """Softmax losses (S, n) and their slopes (S, r, n) at the scores Z (S, r, n) of S fits.

    `core.losses.Softmax` is more accurate for losses near zero, but two to four times slower.
    """
    peak = Z.max(axis=1)
    of_label = np.take_along_axis(Z, np.broadcast_to(y, (len(Z), 1, len(y))), axis=1)
    slope = Z - peak[:, None]
    np.exp(slope, out=slope)
    total = slope.sum(axis=1)
    slope /= total[:, None]
    s = np.log(total) + (peak - of_label[:, 0])
    rows = np.arange(len(y))
    slope[:, y, rows] -= 1
    return s, slope


def robust_distances(model: Objective) -> tuple[Array, Array]:
    """Two squared robust distances (n,) of each row; in the second, rare categories are not distant.

    Both are distances from the median, in robust scales of the columns, estimated from a few thousand evenly spaced
    rows. A column in which more than half of the rows have one value has no robust scale. The first distance then uses
    the mean absolute deviation, which makes rare values distant; the second uses the median deviation of the other
    values.
    """
    n = model.design.n
    sample = _dense(model, np.arange(0, n, 1 + n // _MEDIAN_ROWS))
    centre = np.median(sample, axis=0)
    distance = np.abs(sample - centre)
    middle = np.median(distance, axis=0)
    of_levels = np.flatnonzero((middle == 0) & distance.any(axis=0))
    scales = np.where(middle > 0, middle, 1.0) * np.ones((2, 1))
    scales[0, of_levels] = distance[:, of_levels].mean(axis=0)
    scales[1, of_levels] = [np.median(column[column > 0]) for column in distance[:, of_levels].T]
    blocks = (_dense(model, np.arange(i, min(i + _MEDIAN_ROWS, n))) for i in range(0, n, _MEDIAN_ROWS))
    distances, beyond = np.concatenate([(block - centre) ** 2 @ scales.T**-2.0 for block in blocks]).T
    return distances, beyond


def masses_of(sets: Sets, shares: Array, k_share: float) -> tuple[Array, Array]:
    """m (M, F) for these shares (M,) of each training set's mass, and k (F,); counts if masses are counts.

    As a count, m is at most k - 1.
    """
    totals = sets.totals
    m, k = shares[:, None] * totals, k_share * totals
    if (sets.masses == np.floor(sets.masses)).all():
        m, k = np.rint(m), np.rint(k)
        return np.minimum(m, k - 1), k
    return m, k


def ordinary(sets: Sets, start: Array | None = None, tol: float = 1e-7) -> Array:
    """The ordinary fit on each training set, (F, r, p), from zero or from `start`."""
    model, n_sets = sets.model, len(sets.masses)
    start = np.zeros((n_sets, model.n_outputs, model.design.p)) if start is None else start
    return sets.fit(start, np.arange(n_sets), np.zeros(n_sets), sets.totals, max_iter=100, tol=tol)[0]


def upward(sets: Sets, start: Array, m: Array, k: Array) -> Array:
    """A path of fits (M, F, r, p) at increasing m (M, F) and k (F,); each starts at the last, the first at `start`."""
    every = np.arange(len(sets.masses))
    path = [start]
    for level in m:
        path.append(sets.fit(path[-1], every, level, k, max_iter=_steps(sets))[0])
    return np.array(path[1:])


def searched(sets: Sets, m: Array, k: Array, rng: np.random.Generator, n_random: int) -> Array:
    """The best fits (M, F, r, p) of a search at each m (M, F), from random starts and one without high-leverage rows.

    After a few steps each (m, set) continues with its best two fits and the best of the next smaller and the next
    larger m, and after more steps with the best one. `n_random` is the number of random starts per set; with 0, only
    the other start is used.
    """
    # Fits that drop the distant rows use the metric of the other rows.
    near = sets.distances <= np.quantile(sets.distances, 1.0 - _FAR)
    sets = replace(sets, metric=rough_metric(replace(sets.model, C=sets.C), near))
    drawn = random_starts(sets, n_random, rng)
    drawn = np.broadcast_to(drawn, (len(m), *drawn.shape))
    starts = np.concatenate([near_starts(sets, m)[:, :, None], drawn], axis=2)
    for steps, survivors in ((6, 2), (12, 1)) if n_random else ():
        starts, values = _fit_grid(sets, starts, m, k, steps, 1e-4)
        best = np.argsort(values, axis=2, kind="stable")[:, :, :survivors]
        starts = np.take_along_axis(starts, best[..., None, None], axis=2)
        if survivors > 1:
            first_best = starts[:, :, :1]
            starts = np.concatenate([starts, np.roll(first_best, 1, axis=0), np.roll(first_best, -1, axis=0)], axis=2)
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
    """Starts (M, F, r, p): one Newton step from zero without the m most distant rows."""
    model, n_sets = sets.model, len(sets.masses)
    zero = np.zeros((n_sets, model.n_outputs, model.design.p))
    every, none = np.arange(n_sets), np.zeros(n_sets)
    found = []
    for share in (m / sets.totals).mean(axis=1):
        near = sets.distances <= np.quantile(sets.distances, 1.0 - share)
        part = replace(sets, masses=sets.masses * near)
        gradient = part.values_and_gradients(zero, every, none, part.totals)[1]
        found.append(-rough_metric(replace(model, C=sets.C), near).solve(gradient))
    return np.array(found)


def random_starts(sets: Sets, n_random: int, rng: np.random.Generator) -> Array:
    """Random starts (F, n_random, r, p).

    For numeric targets each is a fit to a few rows; for classes it is a direction from two random rows
    (`pair_direction`), scaled. With several scores per row, only the parameters of the first are random.
    """
    design = sets.model.design
    W = np.zeros((len(sets.masses), n_random, sets.model.n_outputs, design.p))
    if not n_random:
        return W
    draw = _through_few if sets.model.loss.targets == "numbers" else pair_direction
    for i, mass in enumerate(sets.masses):
        rows = np.flatnonzero(mass)
        for j in range(n_random):
            W[i, j, 0] = draw(sets.model, rows, rng)
    if sets.model.loss.targets == "numbers":
        return W
    return scaled_directions(design, W.reshape(-1, design.p)).reshape(W.shape)


def _through_few(model: Objective, rows: Array, rng: np.random.Generator) -> Array:
    """Least squares through a few random rows, two more than there are parameters."""
    few = rng.choice(rows, min(len(rows), model.design.p + 2), replace=False)
    X = _dense(model, few)
    X = np.column_stack([X, np.ones(len(X))]) if model.design.fit_intercept else X
    return np.linalg.lstsq(X, model.y[few].astype(np.float64), rcond=1e-6)[0]


def _dense(model: Objective, rows: Array) -> Array:
    X = model.design.X[rows]
    return X.toarray() if model.design.sparse else np.asarray(X, dtype=np.float64)


@dataclass(frozen=True)
class Fits:
    """The candidate fits, each on every training set; the first is the ordinary one.

    Attributes
    ----------
    sets : Sets
        The training sets.
    shares : ndarray of shape (candidates,)
        The share of the mass that each candidate drops.
    names : list of str
        The kind of each candidate: "none" (m = 0), "up" (on a path of increasing m) or "search" (from several starts).
    W : ndarray of shape (candidates, F, r, p)
        The parameters.
    """

    sets: Sets
    shares: Array
    names: list[str]
    W: Array

    @classmethod
    def on(
        cls,
        sets: Sets,
        shares: Array,
        k_share: float,
        rng: np.random.Generator,
        n_random: int,
        report: Report,
    ) -> Fits:
        """All candidates for m: the fit with m = 0, a path of increasing m, and a search at each share.

        Searches use `n_random` random starts with one score per row, and none with several.
        """
        n_sets = len(sets.masses)
        m, k = masses_of(sets, shares, k_share)
        plain = ordinary(sets)
        report(f"{n_sets} ordinary fits to choose m")
        zero = upward(sets, plain, np.zeros((1, n_sets)), k) if k_share < 1 else plain[None]
        up = upward(sets, zero[0], m, k)
        report(f"{n_sets * len(shares)} fits with increasing m")
        found = searched(sets, m, k, rng, n_random if sets.model.n_outputs == 1 else 0)
        report(f"{n_sets * len(shares)} searches")
        names = ["none"] + ["up"] * len(shares) + ["search"] * len(shares)
        return cls(sets, np.concatenate([[0.0], shares, shares]), names, np.concatenate([zero, up, found]))

    def with_candidate(self, chosen: int, share: float, k_share: float) -> Fits:
        """These fits and one more of the kind of `chosen` (path or search) at `share`, from the nearest fit."""
        path = [0, *(i for i, name in enumerate(self.names) if name == self.names[chosen])]
        near = min(path, key=lambda i: abs(self.shares[i] - share))
        m, k = masses_of(self.sets, np.array([share]), k_share)
        W, _ = self.sets.fit(self.W[near], np.arange(len(self.sets.masses)), m[0], k, max_iter=40)
        names = [*self.names, self.names[chosen]]
        return Fits(self.sets, np.append(self.shares, share), names, np.concatenate([self.W, W[None]]))

    def cuts(self, candidate: int) -> Array:
        """The cut s_[m] of a candidate among the losses of each training set, (F,); infinite for m = 0."""
        m, _ = masses_of(self.sets, self.shares[[candidate]], 1.0)
        found = []
        for mass, level, W in zip(self.sets.masses, m[0], self.W[candidate], strict=True):
            s = self.sets.model.losses(self.sets.model.design.scores(W))
            rows = np.flatnonzero(mass)
            weight = None if mass.dtype == bool else mass[rows]
            found.append(float(cuts_of(s[rows], 0, level, weight)[0].value) if level else np.inf)
        return np.array(found)

    def out_of_fold(self, objective: Objective, tests: Array) -> list[tuple[Array, Array]]:
        """For each test fold its rows, and their out-of-fold scores (candidates, r, rows)."""
        parts = []
        for f, test in enumerate(tests):
            rows = np.flatnonzero(test)
            design = objective.design.take(rows)
            flat = design.scores(self.W[:, f].reshape(-1, design.p))
            parts.append((rows, np.ascontiguousarray(flat).reshape(len(self.W), -1, len(rows))))
        return parts
