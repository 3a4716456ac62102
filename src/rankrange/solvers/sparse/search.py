"""The search for the rows to keep: sparse starts and concentration steps.

A step fits the elastic net to the kept rows and keeps the rows of smallest loss. Neither half raises the objective, and
the duality gap of the last fit bounds what is left for the same rows cut. Starts with more columns than rows are those
of the sparse LTS literature (Alfons, Croux and Gelper 2013; Kurnaz, Hoffmann and Filzmoser 2018): nets of a few random
rows. They compete after two rough steps, and the best ones go on. The ordinary net and one without high-leverage rows
start too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...core.arrays import Array
from ...core.cuts import select
from ...core.losses import Logistic, Softmax
from .elastic_net import ElasticNet, Net

Report = Callable[[str, float], object]

# Rows of a random start for a numeric target, and rows of each class.
_ROWS, _ROWS_OF_CLASS = 3, 2
# The rough steps of a start, their tolerance, how many starts go on, and their tolerance.
_ROUGH_STEPS, _ROUGH, _FINALISTS, _FINE = 2, 1e-2, 3, 1e-4
# The last fit costs little more to the last digits, so that equal problems have equal results.
_LAST = 1e-10
# Columns by which rows are compared for leverage: those of largest variance.
_LEVERAGE_COLUMNS = 300


class Cut(NamedTuple):
    """How rows are cut: the mass m of the largest losses, the mass of each row (None: 1), and C."""

    m: float
    mass: Array | None
    C: float

    def weights(self, losses: Array) -> Array:
        """C times what is kept of each row."""
        total = len(losses) if self.mass is None else float(self.mass.sum())
        return self.C * np.asarray(select(losses, self.m, total, self.mass).weights, dtype=np.float64)

    def all(self, n: int) -> Array:
        """C times the mass of each row."""
        return np.full(n, self.C) if self.mass is None else self.C * self.mass


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

    Parameters
    ----------
    net : ElasticNet
        The rows and their loss.
    cut : Cut
        What is cut.
    start : pair of ndarray or None
        Coefficients and intercepts of one more start.
    n_starts : int, default=10
        Random starts.
    rng : numpy.random.Generator
        Where they come from.
    tol : float, default=1e-6
        The relative gap of the last fit.
    max_iter : int, default=200
        Concentration steps at most.
    report : callable
        Called with the phase and the objective after each step.

    Returns
    -------
    Net
        Its gap is that for the same rows cut; infinite if `max_iter` steps did not settle which rows these are.
    """
    if cut.m == 0:
        fit = net.fit(cut.all(len(net.y)), start, tol=tol, max_rounds=max_iter)
        report("fit", fit.value)
        return fit
    rough = [_concentrate(net, cut, fit, _ROUGH, _ROUGH_STEPS) for fit in _starts(net, cut, start, n_starts, rng)]
    rough.sort(key=lambda fit: fit.value)
    for fit in rough:
        report("start", fit.value)
    fine = [_concentrate(net, cut, fit, _FINE, max_iter) for fit in _distinct(rough)[:_FINALISTS]]
    best = min(fine, key=lambda fit: fit.value)
    return _concentrate(net, cut, best, min(tol, _LAST), max_iter, report)


def follow(net: ElasticNet, cut: Cut, start: tuple[Array, Array], *, tol: float = 1e-3, max_iter: int = 10) -> Net:
    """Concentration steps from one start, as along a path of penalties.

    Parameters
    ----------
    net, cut, start, tol, max_iter
        As in `trimmed_net`.

    Returns
    -------
    Net
        Where the steps end.
    """
    return _concentrate(net, cut, Net(*start, np.inf, np.inf, 0), tol, max_iter)


def inner_rows(net: ElasticNet, share: float) -> Array:
    """The numbers of the rows without this share of the highest leverages, never none."""
    n = len(net.y)
    count = max(1, n - int(np.ceil(share * n)))
    return np.sort(np.argsort(_leverages(net.X), kind="stable")[:count])


def _distinct(fits: list[Net]) -> list[Net]:
    """One of those that have the same objective."""
    kept: list[Net] = []
    for fit in fits:
        if all(abs(fit.value - other.value) > 1e-6 * abs(other.value) for other in kept):
            kept.append(fit)
    return kept


def _concentrate(net: ElasticNet, cut: Cut, fit: Net, tol: float, max_steps: int, report: Report | None = None) -> Net:
    """Concentration steps until the kept rows stay; the value of the result is the trimmed objective."""
    Z = net.scores(fit.coef, fit.intercept)
    h = cut.weights(net.losses(Z))
    value = net.value(fit.coef, Z, h)
    for _ in range(max_steps):
        after = net.fit(h, (fit.coef, fit.intercept), tol=tol)
        Z = net.scores(after.coef, after.intercept)
        kept = cut.weights(net.losses(Z))
        now = net.value(after.coef, Z, kept)
        if now > value:  # rounding, at the minimum
            return fit._replace(value=value)
        settled = np.array_equal(kept, h) or value - now <= 1e-13 * abs(now)
        fit, h, value = after._replace(value=now), kept, now
        if report is not None:
            report("step", now)
        if settled:
            return fit
    return fit._replace(gap=np.inf)


def _starts(
    net: ElasticNet, cut: Cut, start: tuple[Array, Array] | None, n_starts: int, rng: np.random.Generator
) -> Iterator[Net]:
    """The ordinary net, one of low-leverage rows, that of `start`, and nets of a few random rows."""
    n = len(net.y)
    every = cut.all(n)
    ordinary = net.fit(every, tol=_ROUGH)
    yield ordinary
    if start is not None:
        yield Net(*start, np.inf, np.inf, 0)
    yield net.fit(cut.weights(_leverages(net.X)), tol=_ROUGH)
    codes = _strata(net)
    if codes is None:
        yield net.fit(cut.weights(np.abs(net.y - np.median(net.y))), tol=_ROUGH)
    for _ in range(n_starts):
        rows = _few_rows(codes, every, rng)
        h = np.zeros(n)
        h[rows] = every.sum() / len(rows)
        yield net.fit(h, tol=_ROUGH, max_rounds=5)


def _strata(net: ElasticNet) -> Array | None:
    """The class of each row; None for numeric targets."""
    if isinstance(net.loss, Logistic):
        return np.asarray(net.y > 0, dtype=np.intp)
    return net.y if isinstance(net.loss, Softmax) else None


def _few_rows(codes: Array | None, mass: Array, rng: np.random.Generator) -> Array:
    if codes is None:
        present = np.flatnonzero(mass)
        return rng.choice(present, size=min(_ROWS, len(present)), replace=False)
    groups = [np.flatnonzero((codes == code) & (mass > 0)) for code in range(int(codes.max()) + 1)]
    chosen = [rng.choice(rows, size=min(_ROWS_OF_CLASS, len(rows)), replace=False) for rows in groups if len(rows)]
    return np.concatenate(chosen)


def _leverages(X: Any) -> Array:
    """How far each row is from the medians of the columns of largest variance, in robust standard deviations."""
    if sp.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    spread = X.var(axis=0)
    count = min(_LEVERAGE_COLUMNS, X.shape[1])
    part = X[:, np.argpartition(-spread, count - 1)[:count]]
    part = part - np.median(part, axis=0)
    scale = np.median(np.abs(part), axis=0)
    usable = scale > 0
    return np.asarray(((part[:, usable] / scale[usable]) ** 2).sum(axis=1))
