"""Audit of a numeric target: ordinary and robust least squares, and the posterior of outliers."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.preprocessing import RobustScaler

from ..core.arrays import Array
from ..core.losses import Squared
from ..core.objective import Design, Objective
from ..estimators import AoRRRegressor
from ..label_noise import LIKELY, POSSIBLE, actions
from ..outliers import Widths, outlier_posterior, robust_scale, sizes
from ..pages.text import number
from .plan import Plan, Progress, choose_penalty, fit_ordinary, fit_robust
from .target import Target
from .task_result import Group, Interval, Measure, TaskResult, facts_of

_GROUPS = 5
# The largest number of rows for boosted trees and for extra trees, and the number of extra trees.
_BOOSTED_ON, _EXTRA_UP_TO, _EXTRA_TREES = 40_000, 20_000, 60


def study_regression(X: Array, target: Target, plan: Plan, progress: Progress) -> TaskResult:
    """Audit a numeric target, given the encoded rows X (n, features)."""
    scaler = RobustScaler(unit_variance=True).fit(target.y[:, None])
    y = scaler.transform(target.y[:, None])[:, 0].astype(X.dtype)
    plan = plan.draw(np.zeros(len(y), dtype=np.intp))
    progress("choosing the penalty")
    penalty = choose_penalty(_objective(X, y), plan)
    predicted = np.empty((2, len(y)))
    fold_m = plan.fit_both(_fold, (X, y, penalty), predicted, progress)
    progress("fitting the model on all rows")
    fitted = fit_robust(AoRRRegressor, X, y, penalty, plan, plan.n_folds, plan.blocks())
    progress("looking for wrong numbers")
    best = predicted[1] if plan.models == "linear" else _blend(X, y, predicted[1], plan)
    residual = y.astype(np.float64) - best
    width = Widths.of(residual, X).of_rows(X)
    residuals = (scaler.transform(target.original[:, None])[:, 0] - best) / width
    found = outlier_posterior(residuals, clean="skewed")
    wrong, noise = found.p_wrong, Interval(found.rate, *found.interval)
    if (wrong >= POSSIBLE).any():
        wrong = np.minimum(wrong, _within_scatter(X, residuals, plan))
        noise = Interval(float(wrong.mean()), min(noise.low, Interval.of_mean(wrong).low), noise.high)
    wrong, noise = np.where(target.relabelled, 0.0, wrong), noise.without(float(target.relabelled.mean()))
    order = np.argsort(-np.abs(residual / width), kind="stable")
    order = order[wrong[order] >= POSSIBLE]
    return regression_result(
        target,
        scaler,
        fitted,
        fold_m,
        errors=y - predicted,
        residual=residual,
        width=width,
        wrong=wrong,
        order=order,
        noise=noise,
        rows=X[order],
    )


def regression_result(
    target: Target,
    scaler: RobustScaler,
    fitted: AoRRRegressor,
    fold_m: list[int],
    *,
    errors: Array,
    residual: Array,
    width: Array,
    wrong: Array,
    order: Array,
    noise: Interval,
    rows: Array,
) -> TaskResult:
    """The result for a numeric target, in its units; `scaler` maps these to the units of the fits.

    `errors` (2, n) are the out-of-fold errors of the ordinary and the robust model, and `residual` (n,) those of the
    best predictions, in the units of the fits. `width` (n,) is the factor by which the residual of a row is expected to
    be larger, for example because a cell is missing. `wrong` (n,) is the probability that a target is wrong. `order`
    are the suspects, worst first, and `rows` their encoded rows. `fitted` is the robust fit to all rows, and `fold_m`
    the number of rows that the fit of each fold dropped.
    """
    scale, off = float(scaler.scale_[0]), residual[order]
    usual = max(robust_scale(residual / width), 1e-9 * float(np.abs(residual).max()), 1e-300)
    expected = target.y[order] - scale * off.astype(np.float64)
    return TaskResult(
        task="numbers",
        ordinary_name="least squares, all rows",
        robust_name="AoRR, worst rows ignored",
        model=_in_units(fitted, scaler),
        **facts_of(fitted, fold_m),
        measures=_measures(scale * errors, wrong < LIKELY),
        losses=residual**2,
        wrong=wrong,
        order=order,
        # a numeric target is never replaced: no prediction is certain enough
        actions=actions(wrong[order], np.zeros(len(order))),
        suggested=[number(value) for value in expected.tolist()],
        residuals=scale * residual,
        expected=_explanation(expected, scale * off, scale * usual * width[order]),
        against=-np.sign(off)[:, None] * rows * fitted.coef_,
        groups=_groups(target.y, fitted.dropped_, wrong),
        noise=noise,
        loss_name=f"squared error divided by {number(scale, 4)}^2",
        notes=[
            "For a numeric target, wrong means an outlier given the other columns. The value may be rare and correct."
        ],
    )


def _objective(X: Array, y: Array) -> Objective:
    return Objective(Design(X, True), y, Squared(), 1.0, 1, m=0, k=len(y))


def _fold(X: Array, y: Array, penalty: float, plan: Plan, f: int) -> tuple[Array, int]:
    train, test = plan.of_fold(f)
    X_train = X[train]
    if plan.together is not None:  # rows that are excluded from training must not choose the penalty
        penalty = choose_penalty(_objective(X_train, y[train]), plan, train)
    ordinary = fit_ordinary(AoRRRegressor, X_train, y[train], penalty)
    robust = fit_robust(AoRRRegressor, X_train, y[train], penalty, plan, f, plan.blocks(train))
    return np.stack([fit.predict(X[test]) for fit in (ordinary, robust)]), int(robust.m_)


def _blend(X: Array, y: Array, linear: Array, plan: Plan) -> Array:
    """A weighted mean of the out-of-fold predictions of the robust linear fit, boosted trees and extra trees.

    With more than 20,000 rows there are no extra trees. The weights minimise the mean of the smallest 70% of the
    absolute errors, which is robust to wrong targets. Errors are not divided by their expected size, because it is
    predicted by a model that also learns from wrong targets.
    """
    target = y.astype(np.float64)
    models: list[Any] = [HistGradientBoostingRegressor(loss="absolute_error", early_stopping=False)]
    if len(y) <= _EXTRA_UP_TO:
        models.append(ExtraTreesRegressor(_EXTRA_TREES, min_samples_leaf=3))
    parts = (_out_of_fold(model, X, target, plan, 5 + stream) for stream, model in enumerate(models))
    predictions = np.stack([linear, *parts])
    sample = slice(None, None, 1 + len(y) // _BOOSTED_ON)
    blends = _shares(len(predictions))
    costs = [_trimmed_error(target[sample] - shares @ predictions[:, sample]) for shares in blends]
    return np.asarray(blends[int(np.argmin(costs))] @ predictions)


def _shares(count: int) -> Array:
    """Array (blends, count): all weights in tenths that sum to one."""
    tenths = [part for part in product(range(11), repeat=count) if sum(part) == 10]
    return np.array(tenths) / 10.0


def _within_scatter(X: Array, residual: Array, plan: Plan) -> Array:
    """Array (n,): p(wrong) with residuals divided by the local scale of similar rows.

    Noise that grows with a column is not an error. The caller takes the smaller p(wrong) of this and the usual one.
    """
    model = HistGradientBoostingRegressor(max_iter=30, min_samples_leaf=40, early_stopping=False)
    expected = _out_of_fold(model, X, sizes(residual), plan, 7)
    return outlier_posterior(residual, expected=expected, clean="skewed").p_wrong


def _out_of_fold(model: Any, X: Array, y: Array, plan: Plan, stream: int) -> Array:
    """Array (n,): out-of-fold predictions of clones of the model, fitted to a sample if there are many rows."""
    found = np.empty(len(y))
    for f in range(plan.n_folds):
        rows, test = plan.of_fold(f)
        if len(rows) > _BOOSTED_ON:
            rows = np.sort(plan.rng(stream, f).choice(rows, _BOOSTED_ON, replace=False))
        copy = clone(model).set_params(random_state=int(plan.rng(stream, f, 1).integers(2**31)))
        found[test] = copy.fit(X[rows], y[rows]).predict(X[test])
    return found


def _trimmed_error(errors: Array) -> float:
    """The mean of the smallest 70% of the absolute errors."""
    size = np.sort(np.abs(errors))
    return float(size[: max(1, int(0.7 * len(size)))].mean())


def _explanation(expected: Array, residual: Array, core: Array) -> list[str]:
    """The reason in words for each suspect: the expected value, and the residual in units and in standard deviations.

    All arrays are in the units of the target; `core` has the standard deviation for each suspect.
    """
    return [
        f"expected {number(value, 4)} by a model fitted without the row; the value is {number(abs(off), 4)} "
        f"{'more' if off > 0 else 'less'}, {abs(off) / usual:.1f} standard deviations of the other rows"
        for value, off, usual in zip(expected, residual, core, strict=True)
    ]


def _in_units(fitted: AoRRRegressor, scaler: RobustScaler) -> TransformedTargetRegressor:
    """The fit as a regressor that predicts in the units of the target."""
    model = TransformedTargetRegressor(regressor=fitted, transformer=scaler)
    model.regressor_, model.transformer_, model._training_dim = fitted, scaler, 1
    return model


def _measures(errors: Array, kept: Array) -> list[Measure]:
    size = np.abs(errors)
    found = [Measure.of_rows("mean absolute error", *size, higher=False)]
    if not kept.all():
        found.append(Measure.of_rows("mean absolute error without outliers", *size[:, kept], higher=False))
    return [*found, Measure.of_rows("mean squared error", *(errors**2), higher=False)]


def _groups(y: Array, dropped: Array, wrong: Array) -> list[Group]:
    edges = np.unique(np.quantile(y, np.linspace(0, 1, _GROUPS + 1)))
    bins = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, max(len(edges) - 2, 0))
    groups = []
    for g in range(max(len(edges) - 1, 1)):
        inside = bins == g
        name = f"{edges[g]:.4g} to {edges[min(g + 1, len(edges) - 1)]:.4g}"
        groups.append(
            Group(name, int(inside.sum()), int((inside & dropped).sum()), int((inside & (wrong >= LIKELY)).sum()))
        )
    return groups
