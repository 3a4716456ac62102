"""The usual solver of solver="auto": many starts on a subsample, the best continued on all rows, and a certificate.

If m > 0, F has many local minima, and the start determines which one is found. The starts are screened together on a
subsample, which is cheap. All rows are used only for a few quasi-Newton steps from a point near the minimum, in the
metric of a subsample's Hessian. Final Newton steps lower F further and compute the certificate. If m = 0, one start is
enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.cuts import Ranked
from ..core.objective import MAX_FACTORED, Design, Objective
from .descent import Log, Metric, Result, add_diagonal, descend, relative
from .inner import convex
from .majorise import bilevel, by_products
from .newton import applies, close_enough, newton
from .samples import Rough, hessian_rows, identifying_mass, in_single_precision, rare_left, screen_rows, subsample
from .starts import low_leverage_rows, one_step, rough_metric, simple_and_random_starts
from .trivial import constant_is_best, constant_is_best_next_to, equal_scores

# Rounds of screening on a subsample: the number of starts that remain after each round, and its steps.
_ROUNDS = ((4, 4), (2, 8))
# The same if all rows are screened.
_FEW_ROWS = (5, 8)
# An intercept with which losses are nearly zero, and whose exponential is finite in float32.
_FAR = 80.0
# With more columns than this, sparse rows and one score per row, products with X are faster than a factored Hessian.
PRODUCTS_FROM = 200
# The number of products with sparse rows in a Newton step, and the cost of their operations relative to a dense
# Hessian.
_PRODUCTS, _SLOWER = 40, 5
# The pairs that L-BFGS keeps, and the number of parameters up to which a full matrix takes less time in longer runs.
_PAIRS, _FULL_MATRIX = 10, 100
# With this many rows, the minima of a sample are those of all rows, and neighbours are searched there.
_ENOUGH_ROWS = 10_000
# If m leaves less than this share of the rare classes, a sample may have too few of their rows.
_RARE = 0.5
# Equal scores are tried as the minimum if a search ends at most this share below them.
_NEARLY_EQUAL = 1e-3
# The number of steps after which the metric of a descent is computed anew.
_STALE = 50


def multistart(
    objective: Objective,
    W: Array | None = None,
    *,
    n_starts: int = 10,
    rng: np.random.Generator,
    tol: float = 1e-6,
    max_iter: int = 200,
    log: Log | None = None,
) -> Result:
    """Minimise from `n_starts` random starts, the ordinary fit, fits without high-leverage rows and, if given, W.

    If m = 0, F is convex and one start is enough: W or a rough ordinary fit. No search is made if m can drop all
    classes but one (`one_class_left`).

    Parameters
    ----------
    objective : Objective
        The objective to minimise.
    W : ndarray of shape (outputs, p), optional
        The initial coefficients.
    n_starts : int
        Number of random starts.
    rng : numpy.random.Generator
        The random number generator.
    tol : float
        The relative duality gap at which to stop.
    max_iter : int
        Maximum number of steps.
    log : Log, optional
        Receives progress messages.

    Returns
    -------
    Result
        The final point and its certificate.
    """
    log = Log() if log is None else log
    if objective.m == 0:
        return _convex(objective, W, rng, tol, max_iter, log)
    trivial = one_class_left(objective, log)
    if trivial is not None:
        return trivial
    if objective.design.sparse and objective.design.p > PRODUCTS_FROM and objective.n_outputs == 1:
        objective = replace(objective, design=objective.design.unfactored())
    screen = subsample(objective, screen_rows(objective), rng)
    rough = in_single_precision(screen)
    few_rows, screen = screen is objective, rough.objective
    near = low_leverage_rows(screen)
    metric = rough_metric(screen, near[0])
    starts = simple_and_random_starts(screen, near, metric, n_starts, rng)
    if rare_left(objective) < _RARE and objective.n_outputs == 1 and objective.design.fit_intercept:
        starts = np.concatenate([_start_without_rare_rows(screen), starts])
    if W is not None:
        starts = np.concatenate([rough.inward(W[None]), starts])
    if few_rows:
        return _search_all_rows(objective, rough, starts, metric, rng, tol, max_iter, log)
    simple = rough.outward(starts[: -n_starts or None])
    for survivors, steps in _ROUNDS:
        starts, values, _ = _steps(screen, starts, metric, steps, 1e-4)
        starts = starts[np.argsort(values, kind="stable")[:survivors]]
    # If the screened rows cannot determine all parameters, further steps would only overfit these rows.
    steps = 100 if identifying_mass(screen) > 5 * objective.n_outputs * objective.design.p else 5
    ends, values, _ = _steps(screen, starts, metric, steps, 1e-4)
    log("screen", float(values.min()))
    ends = rough.outward(_distinct(ends, values))
    if rare_left(objective) < _RARE:
        ends = _checked(objective, ends, simple, rng)
    return _on_all_rows(objective, ends, rng, tol, max_iter, log)


def _constant(
    objective: Objective, part: Objective, ends: Array, values: Array, rng: np.random.Generator, tol: float, log: Log
) -> Result | None:
    """The minimum next to equal scores, if no end of a search on `part` is clearly lower and it is proved.

    Otherwise None, also for numeric targets, for m = 0 or k = n, and for aggregates other than the ranked range.
    """
    classes = objective.loss.targets in ("binary", "classes") and type(objective.aggregate) is Ranked
    if not classes or not objective.total > objective.k > objective.m > 0:
        return None
    if float(values.min()) < (1.0 - _NEARLY_EQUAL) * part.value(equal_scores(part)):
        return None
    return constant_is_best_next_to(objective, ends[int(values.argmin())], rng, tol, log)


def _steps(
    objective: Objective,
    starts: Array,
    metric: Metric,
    max_iter: int,
    tol: float,
    **settings: Any,
) -> tuple[Array, Array, int]:
    """Quasi-Newton steps from each start, as in `descend`."""
    few = objective.m > 0 and objective.n_outputs * objective.design.p <= _FULL_MATRIX
    # Short runs from far away need the metric rescaled in each step, as L-BFGS does.
    memory = None if few and max_iter > _PAIRS else _PAIRS
    settings |= {"max_iter": max_iter, "memory": memory, "tol": tol}
    return descend(objective.batch, starts, metric, lazily=objective.value_then_gradient, **settings)


def _long_descent(
    objective: Objective, part: Objective, starts: Array, curved: Array, max_iter: int, tol: float
) -> tuple[Array, Array, int, Array]:
    """Quasi-Newton steps with a new metric, the Hessian of `part`, every 50 steps; `curved` is the first one.

    Returns the ends, their values, the number of steps, and the last metric. The first one belongs to a minimum of few
    rows. If that is far from the minimum of all rows, a descent in this metric alone takes more than 100 steps.
    """
    ends, values, used = _steps(objective, starts, Metric(curved), min(_STALE, max_iter), tol)
    for before in range(_STALE, max_iter, _STALE):
        if used < before:
            break
        curved = hessian(part, ends[0])
        ends, values, more = _steps(objective, ends, Metric(curved), min(_STALE, max_iter - used), tol)
        used += more
    return ends, values, used, curved


def _start_without_rare_rows(objective: Objective) -> Array:
    """A start (1, 1, p) with equal scores: the intercept that is best if all m dropped rows are of the rare class."""
    masses = np.bincount(objective.strata, weights=objective.sample_weight, minlength=2)
    left = max(float(masses.min()) - objective.m, 0.5)
    W = np.zeros((1, 1, objective.design.p))
    W[..., -1] = (1.0 if masses[1] > masses[0] else -1.0) * np.log(max(float(masses.max()) / left, 1.0))
    return W


def _checked(objective: Objective, ends: Array, simple: Array, rng: np.random.Generator) -> Array:
    """The results of the screening or, if a simple start is lower on all rows, the best of both after some steps.

    If m leaves little of a rare class, the screened rows can be separable although all rows are not. A perfect fit of
    the screened rows is worse on all rows than a simple start, and its Hessian is nearly zero, which is useless as a
    metric.
    """
    values = objective.values(np.concatenate([ends, simple]))
    if values[: len(ends)].min() <= values[len(ends) :].min():
        return ends
    rough = in_single_precision(objective)
    part = subsample(rough.objective, hessian_rows(objective), rng)
    metric = Metric(hessian(part, rough.inward(simple[int(values[len(ends) :].argmin())])))
    starts = np.concatenate([ends[[int(values[: len(ends)].argmin())]], simple])
    ends, values, _ = _steps(rough.objective, rough.inward(starts), metric, 30, 1e-4)
    return rough.outward(ends[[int(values.argmin())]])


def one_class_left(objective: Objective, log: Log) -> Result | None:
    """The minimum if m suffices to drop all classes but one and there is an intercept; otherwise None.

    F decreases to zero along the intercept of the remaining class, and the result has an intercept at which it is
    nearly zero. None also for numeric targets and for aggregates other than the ranked range.
    """
    if objective.m <= 0 or not objective.design.fit_intercept or objective.loss.targets not in ("binary", "classes"):
        return None
    if not isinstance(objective.aggregate, Ranked):
        return None
    masses = np.bincount(objective.strata, weights=objective.sample_weight)
    if objective.total - float(masses.max()) > objective.m:
        return None
    left = int(masses.argmax())
    W = np.zeros((objective.n_outputs, objective.design.p))
    if objective.n_outputs == 1:
        W[0, -1] = _FAR if left else -_FAR
    else:
        W[:, -1] = -_FAR / 2
        W[left, -1] = _FAR / 2
    value = objective.value(W)
    log("trivial", value)
    message = "only one class remains after the cut: any other fit is worse"
    # F is not negative, so its value bounds the possible gain.
    return Result(W, value, 0, True, message, log.history, relative(value, value))


def _search_all_rows(
    objective: Objective,
    rough: Rough,
    starts: Array,
    metric: Metric,
    rng: np.random.Generator,
    tol: float,
    max_iter: int,
    log: Log,
) -> Result:
    """The search if there are few rows: the best starts are run to convergence, and the lowest end is improved.

    If equal scores are proved to be the minimum, they are returned (`_constant`).
    """
    low, (survivors, steps) = rough.objective, _FEW_ROWS
    starts, values, _ = _steps(low, starts, metric, min(steps, max_iter), 1e-4)
    starts = starts[np.argsort(values, kind="stable")[:survivors]]
    ends, values, _ = _steps(low, starts, metric, min(100, max_iter), 1e-5)
    log("screen", float(values.min()))
    trivial = _constant(objective, low, rough.outward(ends), values, rng, tol, log)
    if trivial is not None:
        return trivial
    best = int(values.argmin())
    curved = hessian(low, ends[best])
    found = _searched_nearby(low, ends[best], float(values[best]), Metric(curved), len(_NEARBY), max_iter)
    exact = Metric(rough.outward_metric(curved))
    W = _steps(objective, rough.outward(found[None]), exact, min(100, max_iter), 1e-6)[0][0]
    result = _polish(objective, W, rng, tol, max_iter, log)
    if not result.converged:  # for example because all losses are tied: try the end of the screening
        other = _polish(objective, rough.outward(ends[best]), rng, tol, max_iter, log)
        if other.converged and other.value <= result.value + tol * abs(result.value):
            return other
    return result


def _searched_nearby(
    objective: Objective, W: Array, value: float, metric: Metric, patience: int, max_iter: int
) -> Array:
    """The lowest minimum found by steps on a problem with another m or C, followed by steps on F, several times.

    The search ends after `patience` failures in a row or `max_iter` steps. Minima lie close to each other and differ in
    some dropped rows. With another m or C other rows are near the cut, so the descent on F may end in another minimum.
    """
    failures = used = 0
    for _ in range(max_iter):
        if failures >= patience or used >= max_iter:
            break
        trial, reached = W, value
        for problem, most, tol, beat in (
            (_NEARBY[failures](objective), 10, 1e-4, np.inf),
            (objective, 100, 1e-5, value),
        ):
            found, values, steps = _steps(problem, trial[None], metric, min(most, max_iter), tol, beat=beat)
            trial, reached, used = found[0], float(values[0]), used + steps
        if reached < value * (1.0 - 1e-5):
            W, value, failures = trial, reached, 0
        else:
            failures += 1
    return W


def _cutting_more(objective: Objective, factor: float) -> Objective:
    """The same objective with m multiplied by this factor; k moves by as much, but not beyond all rows.

    m is at most 90% of the total mass and, without weights, an integer of at least 1.
    """
    m = min(objective.m * factor, 0.9 * objective.total)
    m = m if objective.sample_weight is not None else max(1, round(m))
    return replace(objective, m=m, k=min(objective.total, objective.k + m - objective.m))


# Neighbouring problems, in the order in which they are tried.
_NEARBY: tuple[Callable[[Objective], Objective], ...] = (
    lambda objective: _cutting_more(objective, 0.8),
    lambda objective: _cutting_more(objective, 1.2),
    lambda objective: replace(objective, C=0.03 * objective.C),
)


def _distinct(ends: Array, values: Array) -> Array:
    """Distinct minima at most 20% above the best, lowest first; a subsample does not rank these reliably."""
    order = np.argsort(values, kind="stable")
    steps = np.diff(values[order], prepend=-np.inf) > 1e-3 * np.abs(values[order])
    return ends[order][steps & (values[order] < 1.2 * values.min() + 1e-12)]


def _on_all_rows(
    objective: Objective, candidates: Array, rng: np.random.Generator, tol: float, max_iter: int, log: Log
) -> Result:
    """Choose the candidate (S, r, p) that is lowest on a subsample, and refine it on larger samples and on all rows.

    The metric is the Hessian of the subsample. Half of `max_iter` is left for the steps to the certificate. If equal
    scores are proved to be the minimum, they are returned (`_constant`).
    """
    rough = in_single_precision(objective) if objective.m > 0 else Rough(objective, None)
    low, candidates, budget = rough.objective, rough.inward(candidates), -(-max_iter // 2)
    part = subsample(low, hessian_rows(low), rng)
    if len(candidates) > 1:
        candidates = candidates[[int(np.argmin([part.value(W) for W in candidates]))]]
    curved = hessian(part, candidates[0])
    size, searched = max(part.design.n, low.design.n // 10), False
    if low.design.n > 5 * size:
        middle = subsample(low, size, rng)
        candidates, values, _ = _steps(middle, candidates, Metric(curved), 30, 1e-5)
        trivial = _constant(objective, middle, rough.outward(candidates), values, rng, tol, log)
        if trivial is not None:
            return trivial
        searched = objective.m > 0 and middle.design.n >= _ENOUGH_ROWS
        if searched:
            found = _searched_nearby(middle, candidates[0], float(values[0]), Metric(curved), len(_NEARBY), max_iter)
            candidates = found[None]
        curved = hessian(part, candidates[0])
        del middle
    if low is not objective:
        # Steps in double precision take twice as long.
        ends, values, used, curved = _long_descent(low, part, candidates, curved, budget, 1e-6 if searched else 1e-5)
        trivial = _constant(objective, low, rough.outward(ends), values, rng, tol, log)
        if trivial is not None:
            return trivial
        budget -= used
        if budget > 0 and not searched:
            ends = _searched_nearby(low, ends[0], float(values[0]), Metric(curved), 1, budget)[None]
        candidates = rough.outward(ends)
    del part  # copies of rows: the steps on all rows need their memory
    metric = Metric(rough.outward_metric(curved))
    ends, _, n_iter = _steps(
        objective,
        candidates,
        metric,
        max(1, budget),  # the other half is for steps that prove the minimum
        close_enough(objective, tol) * tol,
        left=objective.gap_left,
        on_step=lambda v: log("descent", v),
    )
    n_iter += -(-max_iter // 2) - budget
    result = _polish(objective, ends[0], rng, tol, max(1, max_iter - n_iter), log, metric)
    return replace(result, n_iter=result.n_iter + n_iter)


def _polish(
    objective: Objective,
    W: Array,
    rng: np.random.Generator,
    tol: float,
    max_iter: int,
    log: Log,
    metric: Metric | None = None,
) -> Result:
    """Newton steps to a certificate of `tol`; if they do not apply or do not converge, exact convex problems.

    Sparse rows with many columns are first tried by products with X, without a Hessian. If Newton steps do not
    converge, equal scores are returned if they are proved to be the minimum (`_constant`).
    """
    n_iter, by_products = 0, objective.design.sparse and not objective.design.factored
    if by_products and objective.design.p <= MAX_FACTORED:
        result = bilevel(
            objective,
            W,
            tol=tol,
            max_iter=min(_product_steps(objective.design), max_iter),
            log=log,
            phase="polish",
            warm=True,
            each_step=True,
        )
        if result.converged or result.n_iter >= max_iter:
            return result
        W, n_iter, metric = result.w, result.n_iter, None
        objective = replace(objective, design=Design(objective.design.X, objective.design.fit_intercept))
    if applies(objective):
        result = newton(
            objective,
            W,
            rng=rng,
            tol=tol,
            max_iter=min(40, max_iter - n_iter),
            log=log,
            phase="polish",
            near=True,
        )
        result = replace(result, n_iter=result.n_iter + n_iter)
        if result.converged or result.n_iter >= max_iter:
            return result
        W, n_iter = result.w, result.n_iter
        trivial = _constant(objective, objective, W[None], np.array([result.value]), rng, tol, log)
        if trivial is not None:
            return replace(trivial, n_iter=trivial.n_iter + n_iter)
    left = max_iter - n_iter
    result = bilevel(
        objective, W, tol=tol, max_iter=left, log=log, phase="polish", metric=metric, warm=True, each_step=by_products
    )
    return replace(result, n_iter=result.n_iter + n_iter)


def _product_steps(design: Design) -> int:
    """The number of Newton steps by conjugate gradients, at least 10, that cost as much as building one Hessian."""
    return max(10, int(design.n * design.p**2 / (_PRODUCTS * _SLOWER * design.X.nnz)))


def refine(objective: Objective, W: Array, settings: Any) -> Result:
    """Minimise from W, which is close to a minimum.

    Parameters
    ----------
    objective : Objective
        The objective to minimise.
    W : ndarray of shape (outputs, p)
        The initial coefficients.
    settings : Settings
        Tolerance, number of iterations, random number generator and log; `n_starts` has no effect.

    Returns
    -------
    Result
        The final point and its certificate.
    """
    return _on_all_rows(objective, W[None], settings.rng, settings.tol, settings.max_iter, settings.log)


def _convex(
    objective: Objective, W: Array | None, rng: np.random.Generator, tol: float, max_iter: int, log: Log
) -> Result:
    """Minimise for m = 0, where one start is enough: by default a rough ordinary fit of a subsample.

    Sparse rows with many columns are first tried by products with X. If k < n, equal scores are returned if they are
    proved to be the minimum.
    """
    if objective.design.sparse and objective.design.p > PRODUCTS_FROM and objective.n_outputs == 1:
        budget = max(1, max_iter // 2) if objective.design.factored else max_iter
        result = by_products(objective, W, tol=tol, max_iter=budget, log=log)
        if result.converged or not objective.design.factored:
            return result
        W, max_iter = result.w, max(1, max_iter - result.n_iter)
    if hasattr(objective.loss, "margins") or not applies(objective):
        return _convex_by_margins(objective, W, rng, tol, max_iter, log)
    part = subsample(objective, hessian_rows(objective), rng)
    if W is None:
        W = _rough_ordinary_fit(part, rng)
    path = _path_from_constant(part, W)
    values = part.values(path)
    classes = objective.loss.targets in ("binary", "classes")
    if objective.k < objective.total and classes and _constant_is_lowest(part, values):
        trivial = constant_is_best(objective, rng, tol, log)
        if trivial is not None:
            return trivial
    return _on_all_rows(objective, path[[int(values[:-1].argmin())]], rng, tol, max_iter, log)


def _rough_ordinary_fit(objective: Objective, rng: np.random.Generator) -> Array:
    """The ordinary fit, accurate to about 1%: Newton steps or, with several scores, cheaper quasi-Newton steps."""
    every = replace(objective, k=objective.total)
    if objective.n_outputs == 1:
        zero = np.zeros((1, objective.design.p))
        return newton(every, zero, rng=rng, tol=0.0, max_iter=3, stop=1e-2).w
    rows = np.ones(objective.design.n, dtype=bool)
    metric = rough_metric(objective, rows)
    start = one_step(objective, rows, metric)
    return _steps(every, start[None], metric, 10, 1e-2)[0][0]


def _path_from_constant(objective: Objective, W: Array) -> Array:
    """Points (5, r, p) on the line from W, the first, to the best model with equal scores for all rows, the last."""
    constant = equal_scores(objective)
    return np.array([constant + length * (W - constant) for length in (1.0, 0.3, 0.1, 0.03, 0.0)])


def _constant_is_lowest(objective: Objective, values: Array) -> bool:
    """Whether no value on the path is clearly below the last one, the value at equal scores."""
    # A subset is fitted better than all rows, by about one row's share per parameter.
    return float(values[:-1].min()) > (0.999 - 2.0 * objective.design.p / objective.design.n) * float(values[-1])


def _convex_by_margins(
    objective: Objective, W: Array | None, rng: np.random.Generator, tol: float, max_iter: int, log: Log
) -> Result:
    """Minimise for m = 0 if the loss has margins or there are many parameters.

    With many rows the start is the solution of a subsample, or zero if that is nearly optimal there.
    """
    zero = np.zeros((objective.n_outputs, objective.design.p))
    screen = subsample(objective, screen_rows(objective), rng)
    if screen is objective:
        if W is None:
            # At zero all margins are tied, and with a weak penalty Newton steps from there do not converge. One step
            # towards the ordinary fit breaks the ties.
            all_rows = np.ones(objective.design.n, dtype=bool)
            step = one_step(objective, all_rows, rough_metric(objective, all_rows))
            W = step if objective.value(step) < objective.value(zero) else zero
        return bilevel(objective, W, tol=tol, max_iter=max_iter, log=log, phase="convex")
    steps = 50 if objective.n_outputs == 1 else 15
    W = convex.solve(screen.cutting(np.empty(0)), zero if W is None else W, tol=1e-2, max_iter=steps).W
    if screen.value(W) > 0.999 * screen.value(zero):
        # If k is below about twice the number of errors, zero is optimal and all losses are tied there. A start near it
        # would have an arbitrary ranking and would be worse than none.
        return bilevel(objective, zero, tol=tol, max_iter=max_iter, log=log, phase="convex")
    return _on_all_rows(objective, W[None], rng, tol, max_iter, log)


def hessian(objective: Objective, W: Array) -> Array:
    """An approximate Hessian (p, p) of F at W, or its diagonal (p,) if there are many columns.

    With several scores it is that of one score, for equal class probabilities. A piecewise linear loss counts as having
    curvature 1.
    """
    Z = objective.design.scores(W)
    q = objective.select(objective.losses(Z)).weights
    if objective.n_outputs == 1:
        h = objective.loss.curvature(objective.y, Z[0])
        # A piecewise linear loss has curvature only from rows near its kink, which are distributed like all rows.
        h = h if h.any() else np.ones_like(h)
    else:
        h = np.full(len(q), (1.0 - 1.0 / objective.n_outputs) / objective.n_outputs)
    return add_diagonal(objective.design.spread(q * h) / objective.kept, objective.penalty_diagonal())
