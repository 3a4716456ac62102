"""The search for the rows to keep: sparse starts and concentration steps.

A concentration step fits the elastic net to the kept rows, then keeps the rows with the smallest losses. Neither part
increases the objective, and the duality gap of the last fit bounds the remaining gain with the same rows dropped.
Random starts are elastic nets of a few rows, as in the sparse LTS literature (Alfons, Croux and Gelper 2013; Kurnaz,
Hoffmann and Filzmoser 2018). They are compared after two rough steps, and the best are continued. Further starts are
the ordinary net, one without high-leverage rows and, for a numeric target, one without extreme targets. For classes,
there is one for each class that drops rows of this class first.

Concentration steps end in one of many local minima. Small tables have more random starts, and from the end of each,
single rows are exchanged until no exchange lowers the objective. Then the search restarts from random halves of the
rows that the best fits keep.

Rows change in most steps, so a step of the search takes one proximal Newton step instead of a fit; only the last steps
are fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...core.aggregates import Stratified
from ...core.arrays import Array
from ...core.cuts import select, top_within
from .elastic_net import ElasticNet, Net
from .exchange import costs_of_rows

Report = Callable[[str, float], object]

# The number of rows of a random start: for a numeric target, and for each class.
_ROWS, _ROWS_OF_CLASS = 3, 2
# The number of steps before starts are compared, the tolerance of starts, the number of continued starts per random
# start, and the tolerance of fits that are only compared.
_ROUGH_STEPS, _ROUGH, _FINALISTS, _FINE = 2, 1e-2, 0.3, 1e-4
# The number of starts that are always tried, and the share of random starts in a row that may bring no improvement.
_FIRST, _PATIENCE = 6, 0.4
# The tolerance of the last fit: full precision costs little more, and equal problems then have equal results.
_LAST = 1e-10
# Exchanges: the number of dropped rows to try, of kept rows for each, and the largest predicted value, relative to the
# best, for which a fit is computed. Predictions are of second order.
_CANDIDATES, _OUT, _SLACK = 8, 2, 1.02
# The largest number of entries of X (times classes) for exchanges of rows, which would take many ordinary fits.
_SMALL = 50_000
# Small tables: the factors of random starts and of restarts, the rounds of restarts, and the fits that they restart.
_MORE, _RESTARTS, _ROUNDS, _PARENTS = 6, 3, 3, 3
# The relative gain below which steps with the same rows end.
_SMALL_GAIN = 1e-6
# The largest number of working sets of a fit that is only compared.
_FEW_ROUNDS = 10
# The number of columns, those with the largest variance, for computing leverage.
_LEVERAGE_COLUMNS = 300
# The number of columns of the search if there are more than twice as many: those most correlated with the target.
_SCREENED = 1000
# The share of rows with high leverage in that selection.
_OUTER = 0.3


class Cut(NamedTuple):
    """Which rows are dropped: the mass m of the largest losses, where `mass` is that of each row (None means 1 each).

    C is the factor of the sum of the losses. With `groups`, the classes of the rows, the same share of each is dropped.
    With `k`, only the mass k - m of the largest remaining losses counts.
    """

    m: float
    mass: Array | None
    C: float
    groups: Stratified | None = None
    k: float | None = None

    def weights(self, losses: Array) -> Array:
        """C times the mass of each row that is not dropped; `k` is ignored."""
        if self.groups is not None:
            left = self.groups.caps(losses, self.m, self.mass)
            return self.all(len(losses)) if left is None else self.C * np.asarray(left, dtype=np.float64)
        total = len(losses) if self.mass is None else float(self.mass.sum())
        return self.C * np.asarray(select(losses, self.m, total, self.mass).weights, dtype=np.float64)

    def all(self, n: int) -> Array:
        """C times the mass of each row."""
        return np.full(n, self.C) if self.mass is None else self.C * self.mass

    @property
    def top(self) -> float | None:
        """C times the mass that counts; None if all kept rows count."""
        return None if self.k is None else self.C * (self.k - self.m)

    def value(self, net: ElasticNet, fit: Net, losses: Array, h: Array) -> float:
        """The objective of a fit with these losses; h are their `weights`."""
        weights = h if self.top is None else top_within(losses, h, self.top)
        return float(weights @ losses) + net.penalty(fit.coef)


def trimmed_net(
    net: ElasticNet,
    cut: Cut,
    start: tuple[Array, Array] | None = None,
    *,
    n_starts: int = 10,
    rng: np.random.Generator,
    tol: float = 1e-6,
    max_iter: int = 200,
    exchange: bool = True,
    report: Report = lambda phase, value: None,
) -> Net:
    """Minimise over coefficients and kept rows.

    With m = 0 it is one convex fit. With more than 2,000 columns, the search uses at most 1,000 of them, and only the
    last steps use all.

    Parameters
    ----------
    net : ElasticNet
        The rows and their loss.
    cut : Cut
        The rows to drop.
    start : pair of ndarray or None
        Coefficients and intercepts of one more start.
    n_starts : int, default=10
        The number of random starts; small tables have six times as many if `exchange` is True. Otherwise they end early
        if they bring no improvement.
    rng : numpy.random.Generator
        The generator of random starts.
    tol : float, default=1e-6
        The relative gap of the last fit. Unless m = 0, at most 1e-10 is used.
    max_iter : int, default=200
        Maximum number of concentration steps of one descent; with m = 0, of working sets.
    exchange : bool, default=True
        Whether small tables get a longer search, with more starts, exchanges of rows and restarts.
    report : callable
        Called with the phase and the objective, after each start and after each of the last steps.

    Returns
    -------
    Net
        Its gap refers to the same rows dropped. It is infinite if the dropped rows still change after `max_iter` steps.
    """
    if cut.m == 0:
        fit = net.fit(cut.all(len(net.y)), start, top=cut.top, tol=tol, max_rounds=max_iter)
        report("fit", fit.value)
        return fit
    columns = _screened(net)
    part = replace(net, X=net.columns[:, columns])
    begin = None if start is None else (start[0][:, columns], start[1])
    fine = _finalists(part, cut._replace(k=None), begin, n_starts, rng, max_iter, exchange, report)
    if cut.k is not None:
        fine = _distinct(sorted(fine, key=lambda fit: fit.value))
        fine = [_concentrate(part, cut, fit, _FINE, max_iter) for fit in fine]
    best = min(fine, key=lambda fit: fit.value)
    coef, _ = net.zero()
    coef[:, columns] = best.coef
    return _concentrate(net, cut, best._replace(coef=coef), min(tol, _LAST), max_iter, report)


def _finalists(
    net: ElasticNet,
    cut: Cut,
    start: tuple[Array, Array] | None,
    n_starts: int,
    rng: np.random.Generator,
    max_iter: int,
    exchange: bool,
    report: Report,
) -> list[Net]:
    """Results of concentration steps from the starts that are best after two steps.

    In a small table, if `exchange` is True, all starts are continued, because the ranking after two steps hardly
    predicts the final one. Then rows are exchanged in all results, for the same reason, and the search restarts from
    some of the rows that the best results keep.
    """
    if not (exchange and _is_small(net)):
        rough = _competing(net, cut, _starts(net, cut, start, n_starts, rng, False), _PATIENCE * n_starts)
        rough.sort(key=lambda fit: fit.value)
        for fit in rough:
            report("start", fit.value)
        count = max(3, round(_FINALISTS * n_starts))
        return [_descend(net, cut, fit, max_iter) for fit in _distinct(rough)[:count]]
    fine = [_descend(net, cut, fit, max_iter) for fit in _starts(net, cut, start, _MORE * n_starts, rng, True)]
    for fit in fine:
        report("start", fit.value)
    seen: set[bytes] = set()
    fine = [_exchanged(net, cut, fit, max_iter, seen) for fit in fine]
    return _restarted(net, cut, fine, _RESTARTS * n_starts, rng, max_iter, seen)


def _screened(net: ElasticNet) -> Array | slice:
    """The columns of the search: those with the largest covariance with the target, or all if there are at most 2,000.

    500 are the best over all rows, and 500, some of them the same, over the low-leverage rows. Numeric targets are
    clipped around their median, because otherwise a single outlier would decide.
    """
    n, p = net.X.shape
    if p <= 2 * _SCREENED:
        return slice(None)
    codes = net.classes()
    if codes is None:
        y = near_the_median(net.y)
        targets = (y - y.mean())[None]
    else:
        targets = np.eye(int(codes.max()) + 1)[codes].T
    inner = np.isin(np.arange(n), inner_rows(net, _OUTER))
    chosen = []
    for rows in (np.ones(n), inner):
        centred = (targets - (targets @ rows / rows.sum())[:, None]) * rows
        slopes = np.abs(net.gradient(centred)).max(axis=0)
        chosen.append(np.argpartition(-slopes, _SCREENED // 2)[: _SCREENED // 2])
    return np.union1d(*chosen)


def near_the_median(y: Array) -> Array:
    """Clip targets to three robust standard deviations around their median; unchanged if most are equal."""
    center = np.median(y)
    reach = 3 * 1.4826 * np.median(np.abs(y - center))
    return np.clip(y, center - reach, center + reach) if reach > 0 else y


def _competing(net: ElasticNet, cut: Cut, starts: Iterator[Net], patience: float) -> list[Net]:
    """The results of two steps from each start, at least seven, until `patience` starts in a row do not improve."""
    found: list[Net] = []
    without_gain = 0
    for number, fit in enumerate(starts):
        after = _descend(net, cut, fit, _ROUGH_STEPS)
        better = not found or after.value < min(each.value for each in found)
        found.append(after)
        without_gain = 0 if better else without_gain + 1
        if number >= _FIRST and without_gain >= patience:
            break
    return found


def follow(net: ElasticNet, cut: Cut, start: tuple[Array, Array], *, tol: float = 1e-3, max_iter: int = 10) -> Net:
    """Take concentration steps from one start, as along a path of penalties; parameters as in `trimmed_net`."""
    fit = Net(*start, np.inf, np.inf, 0)
    if cut.m > 0 and cut.k is None:
        fit = _descend(net, cut, fit, max_iter)
    return _concentrate(net, cut, fit, tol, max_iter)


def inner_rows(net: ElasticNet, share: float) -> Array:
    """The indices of all rows but the share with the highest leverage; at least one row."""
    n = len(net.y)
    count = max(1, n - int(np.ceil(share * n)))
    return np.sort(np.argsort(_leverages(net.X), kind="stable")[:count])


def _distinct(fits: list[Net]) -> list[Net]:
    """The first fit of each distinct objective value, in the order given."""
    kept: list[Net] = []
    for fit in fits:
        if all(abs(fit.value - other.value) > 1e-6 * abs(other.value) for other in kept):
            kept.append(fit)
    return kept


def _concentrate(net: ElasticNet, cut: Cut, fit: Net, tol: float, max_steps: int, report: Report | None = None) -> Net:
    """Concentration steps until the kept rows do not change; the value of the result is the trimmed objective.

    The gap is infinite if the rows still change after `max_steps` steps.
    """
    losses = net.losses(net.scores(fit.coef, fit.intercept))
    h = cut.weights(losses)
    value = cut.value(net, fit, losses, h)
    for _ in range(max_steps):
        rounds = _FEW_ROUNDS if report is None else 50
        after = net.fit(h, (fit.coef, fit.intercept), top=cut.top, tol=tol, max_rounds=rounds)
        losses = net.losses(net.scores(after.coef, after.intercept))
        kept = cut.weights(losses)
        now = cut.value(net, after, losses, kept)
        if now > value:  # at the minimum, up to rounding errors; the bound that `after` proves holds for both
            return fit._replace(value=value, gap=max(0.0, value - after.value + after.gap))
        settled = np.array_equal(kept, h) or value - now <= 1e-13 * abs(now)
        fit, h, value = after._replace(value=now), kept, now
        if report is not None:
            report("step", now)
        if settled:
            return fit
    return fit._replace(gap=np.inf)


def _descend(net: ElasticNet, cut: Cut, fit: Net, max_steps: int) -> Net:
    """Concentration steps with one proximal Newton step instead of a fit, because most of them change the rows anyway.

    They end if the objective does not fall, or if it hardly falls and the kept rows stay. The loss must be smooth, and
    `cut.k` None.
    """
    losses = net.losses(net.scores(fit.coef, fit.intercept))
    h = cut.weights(losses)
    value = cut.value(net, fit, losses, h)
    for _ in range(max_steps):
        after = net.step(h, (fit.coef, fit.intercept))
        losses = net.losses(net.scores(after.coef, after.intercept))
        kept = cut.weights(losses)
        now = cut.value(net, after, losses, kept)
        gain = value - now
        if gain <= 0:
            break
        settled = gain <= _SMALL_GAIN * abs(now) and np.array_equal(kept, h)
        fit, h, value = after, kept, now
        if settled:
            break
    return fit._replace(value=value)


def _cut_anew(net: ElasticNet, cut: Cut, fit: Net) -> Net:
    """The fit with the trimmed objective as its value."""
    losses = net.losses(net.scores(fit.coef, fit.intercept))
    return fit._replace(value=cut.value(net, fit, losses, cut.weights(losses)))


def _is_small(net: ElasticNet) -> bool:
    """Whether the table is small enough for exchanges of rows."""
    return len(net.y) * max(net.X.shape[1], 1) * net.n_outputs <= _SMALL


def _exchanged(net: ElasticNet, cut: Cut, fit: Net, max_steps: int, seen: set[bytes]) -> Net:
    """Exchange a kept row for a dropped one, then concentrate, until no promising exchange lowers the objective.

    Exchanges also end at kept rows that were `seen`, from which an earlier call has continued.
    """
    for _ in range(max_steps):
        losses = net.losses(net.scores(fit.coef, fit.intercept))
        h = cut.weights(losses)
        if h.tobytes() in seen:
            break
        seen.add(h.tobytes())
        dropped = np.flatnonzero(h == 0)
        for row in dropped[np.argsort(losses[dropped], kind="stable")][:_CANDIDATES]:
            after = _exchange(net, cut, fit, h, row)
            if after.value < fit.value * (1 - 1e-6):
                fit = _descend(net, cut, after, max_steps)
                break
        else:
            break
    return fit


def _restarted(
    net: ElasticNet,
    cut: Cut,
    fine: list[Net],
    n_starts: int,
    rng: np.random.Generator,
    max_steps: int,
    seen: set[bytes],
) -> list[Net]:
    """The best fits, and those after restarts from random halves of the rows that they keep.

    There are three rounds, or fewer if one brings no lower fit. Rows that a good fit keeps are mostly regular, so these
    are starts for nearby minima that differ in several rows, which single exchanges do not reach.
    """
    best = np.inf
    for _ in range(_ROUNDS):
        fine = _distinct(sorted(fine, key=lambda fit: fit.value))[:_PARENTS]
        if not fine[0].value < best * (1 - 1e-6):
            break
        best = fine[0].value
        ends = []
        for i in range(n_starts):
            parent = fine[i % len(fine)]
            h = cut.weights(net.losses(net.scores(parent.coef, parent.intercept)))
            h *= 2 * (rng.random(len(h)) < 0.5)
            if not h.any():
                continue
            start = net.step(h, (parent.coef, parent.intercept))
            ends.append(_descend(net, cut, start, max_steps))
        ends.sort(key=lambda fit: fit.value)
        new = _distinct(fine + ends)[len(fine) :][:_PARENTS]
        fine = fine + [_exchanged(net, cut, end, max_steps, seen) for end in new]
    return fine


def _exchange(net: ElasticNet, cut: Cut, fit: Net, h: Array, row: int) -> Net:
    """The fit with this row instead of one of the two rows that then cost most; `fit` itself if none is lower.

    With `cut.groups`, these are rows of the same class.
    """
    mass = 1.0 if cut.mass is None else float(cut.mass[row])
    trial = h.copy()
    trial[row] = cut.C * mass
    more = net.step(trial, (fit.coef, fit.intercept))
    costs = costs_of_rows(net, more, trial, trial[row])
    costs[row] = -np.inf
    if cut.groups is not None:
        costs[cut.groups.groups != cut.groups.groups[row]] = -np.inf
    found = fit
    for out in np.argsort(-costs, kind="stable")[:_OUT]:
        if not more.value - costs[out] <= fit.value * _SLACK:
            break
        without = trial.copy()
        without[out] -= trial[row]
        after = net.step(without, (more.coef, more.intercept))
        found = min(found, _cut_anew(net, cut, after), key=lambda each: each.value)
    return found


def _starts(
    net: ElasticNet, cut: Cut, start: tuple[Array, Array] | None, n_starts: int, rng: np.random.Generator, half: bool
) -> Iterator[Net]:
    """Yield the starts: the ordinary net, `start`, a net without high-leverage rows, and further nets.

    The further nets are one without the rows of extreme targets or, for classes, one for each class that drops its rows
    first (not with `cut.groups`), and `n_starts` nets of a few random rows. With `half`, every second random net has as
    many rows as are kept.
    """
    n = len(net.y)
    every = cut.all(n)
    ordinary = net.step(every, net.step(every, net.zero())[:2])
    near = ordinary.coef, ordinary.intercept
    yield ordinary
    if start is not None:
        yield Net(*start, np.inf, np.inf, 0)
    yield net.fit(cut.weights(_leverages(net.X)), near, tol=_ROUGH)
    codes = net.classes()
    if codes is None:
        yield net.fit(cut.weights(np.abs(net.y - np.median(net.y))), near, tol=_ROUGH)
    else:
        for code in range(int(codes.max()) + 1) if cut.groups is None else ():
            # The rows may be easiest to fit without one class, or without its rows of largest loss.
            losses = net.losses(net.scores(*near))
            first = losses + (codes == code) * (1 + losses.max())
            yield net.fit(cut.weights(first), near, tol=_ROUGH, max_rounds=_FEW_ROUNDS)
    for i in range(n_starts):
        if half and i % 2:
            yield net.step(cut.weights(rng.random(n)), net.zero())
            continue
        rows = _few_rows(codes, every, rng)
        h = np.zeros(n)
        h[rows] = every.sum() / len(rows)
        yield net.step(h, net.zero())


def _few_rows(codes: Array | None, mass: Array, rng: np.random.Generator) -> Array:
    if codes is None:
        present = np.flatnonzero(mass)
        return rng.choice(present, size=min(_ROWS, len(present)), replace=False)
    groups = [np.flatnonzero((codes == code) & (mass > 0)) for code in range(int(codes.max()) + 1)]
    chosen = [rng.choice(rows, size=min(_ROWS_OF_CLASS, len(rows)), replace=False) for rows in groups if len(rows)]
    return np.concatenate(chosen)


def _leverages(X: Any) -> Array:
    """The squared distance of each row from the column medians, in robust units, over the columns of largest variance.

    There are at most 300 columns. If most values of a column are equal, as in text, the standard deviation is the unit.
    """
    n, p = X.shape
    squares = X.multiply(X).mean(axis=0) if sp.issparse(X) else np.einsum("ij,ij->j", X, X) / n
    spread = np.ravel(squares) - np.ravel(X.mean(axis=0)) ** 2
    count = min(_LEVERAGE_COLUMNS, p)
    chosen = np.argpartition(-spread, count - 1)[:count] if count else np.arange(0)
    chosen = chosen[spread[chosen] > 1e-12 * np.ravel(squares)[chosen]]
    part = X[:, chosen]
    part = part.toarray() if sp.issparse(part) else part
    part = part - np.median(part, axis=0)
    scale = np.median(np.abs(part), axis=0)
    scale = np.where(scale > 0, 1.4826 * scale, np.sqrt(spread[chosen]))
    return np.asarray(((part / scale) ** 2).sum(axis=1))
