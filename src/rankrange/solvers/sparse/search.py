"""Trimmed elastic nets: the rows to drop are searched by `trim`, then fits and cuts alternate until the rows repeat.

A concentration step fits the elastic net to the kept rows, then keeps the rows with the smallest losses. Neither part
increases the objective, and the duality gap of the last fit bounds the remaining gain with the same rows dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...core.aggregates import Stratified
from ...core.arrays import Array
from ...core.cuts import select, top_within
from ...core.objective import Design, Objective
from ..descent import Log, Settings
from ..trim import near_minimum, one_class_left
from .elastic_net import ElasticNet, Net

Report = Callable[[str, float], object]

# The tolerance of the last fit: full precision costs little more, and equal problems then have equal results.
_LAST = 1e-10
# The largest number of entries of a sparse X that the search makes dense.
_SMALL = 4_000_000
# The relative gain below which steps with the same rows end.
_SMALL_GAIN = 1e-6
# The largest number of working sets of a fit that is only compared.
_FEW_ROUNDS = 10
# The number of columns, those with the largest variance, for computing leverage.
_LEVERAGE_COLUMNS = 300


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
    report: Report = lambda phase, value: None,
) -> Net:
    """Minimise over coefficients and kept rows.

    With m = 0 it is one convex fit. The rows to drop are searched by `trim`, and the last steps are fits.

    Parameters
    ----------
    net : ElasticNet
        The rows and their loss.
    cut : Cut
        The rows to drop.
    start : pair of ndarray or None
        Coefficients and intercepts of one more start.
    n_starts : int, default=10
        The number of random starts.
    rng : numpy.random.Generator
        The generator of random starts.
    tol : float, default=1e-6
        The relative gap of the last fit. Unless m = 0, at most 1e-10 is used.
    max_iter : int, default=200
        Maximum number of concentration steps of one descent; with m = 0, of working sets.
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
    objective, log = _objective(net, cut), Log()
    given = None if start is None else (np.column_stack(start) if net.fit_intercept else start[0])
    left = one_class_left(objective, log)
    W = near_minimum(objective, given, Settings(tol, max_iter, n_starts, rng, log)) if left is None else left.w
    for phase, value in log.history:
        report(phase, objective.C * value)
    d = net.X.shape[1]
    fit = Net(W[:, :d], W[:, d] if net.fit_intercept else np.zeros(len(W)), np.inf, np.inf, 0)
    return _concentrate(net, cut, fit, min(tol, _LAST), max_iter, report)


def _objective(net: ElasticNet, cut: Cut) -> Objective:
    """The same problem, divided by C times the kept mass; small sparse rows become dense."""
    total = len(net.y) if cut.mass is None else float(cut.mass.sum())
    k = total if cut.k is None else cut.k
    ranks: dict[str, Any] = {"m": cut.m, "k": k, "sample_weight": cut.mass, "l1_ratio": net.l1_ratio}
    X, small = net.design.X, net.design.n * net.design.d <= _SMALL
    design = Design(X.toarray(), net.fit_intercept) if small and net.design.sparse else net.design
    objective = Objective(design, net.y, net.loss, cut.C * (k - cut.m), net.n_outputs, **ranks)
    return objective if cut.groups is None else replace(objective, aggregate=cut.groups)


def near_the_median(y: Array) -> Array:
    """Clip targets to three robust standard deviations around their median; unchanged if most are equal."""
    center = np.median(y)
    reach = 3 * 1.4826 * np.median(np.abs(y - center))
    return np.clip(y, center - reach, center + reach) if reach > 0 else y


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
