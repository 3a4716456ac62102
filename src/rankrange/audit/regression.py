"""Audit of a numeric target: ordinary and robust least squares, and the posterior of outliers."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.preprocessing import RobustScaler

from ..core.arrays import Array
from ..estimators import AoRRRegressor
from ..label_noise import LIKELY, POSSIBLE, actions
from ..outliers import outlier_posterior, robust_scale, sizes
from ..pages.text import number
from .plan import SAMPLE, Plan, Progress
from .target import Target
from .task_result import (
    SURPRISING,
    Group,
    Interval,
    Measure,
    TaskResult,
    facts_of,
    groups_of,
    ranking,
    without_decided,
)

_GROUPS = 5


def study_regression(X: Array, target: Target, plan: Plan, progress: Progress) -> TaskResult:
    """Audit a numeric target, given the encoded rows X (n, features)."""
    progress("fitting the model on all rows")
    robust = AoRRRegressor(C="auto", random_state=plan.seed)
    model = TransformedTargetRegressor(robust, transformer=RobustScaler(unit_variance=True))
    model.fit(X, target.y, groups=plan.groups)
    fitted, scaler = model.regressor_, model.transformer_
    y = scaler.transform(target.y[:, None])[:, 0].astype(X.dtype)
    share = float(fitted.m_) / len(y)
    progress("predicting every row out of fold")
    models = {m: AoRRRegressor(m, 1.0, C=fitted.C_, tol=1e-3, random_state=plan.seed) for m in (0.0, share)}
    found = {m: plan.out_of_fold(model, X, y) for m, model in models.items()}
    predicted = np.stack([found[0.0], found[share]])
    progress("looking for outliers")
    weights, best = ([1.0, 0.0], predicted[1]) if plan.models == "linear" else _blend(X, y, predicted[1], plan)
    residual = y.astype(np.float64) - best
    given = scaler.transform(target.original[:, None])[:, 0] - best
    wrong, noise = (np.zeros(len(y)), Interval(0.0, 0.0, 0.0)) if plan.observed else _outliers(X, given, plan)
    wrong, noise = without_decided(wrong, noise, target, plan)
    usual = usual_size(residual)
    probability = 2.0 * norm.sf(np.abs(residual) / usual)
    order = ranking(np.abs(residual), wrong, probability, 0, observed=plan.observed)
    scale, off = float(scaler.scale_[0]), residual[order]
    expected = target.y[order] - scale * off
    return TaskResult(
        task="numbers",
        ordinary_name="least squares, all rows",
        robust_name="AoRR, worst rows ignored",
        model=model,
        **facts_of(fitted, share, plan),
        measures=_measures(scale * (y - predicted), wrong < LIKELY),
        losses=residual**2,
        wrong=wrong,
        probability=probability,
        order=order,
        # a numeric target is never replaced: no prediction is certain enough
        actions=actions(wrong[order], np.zeros(len(order))),
        suggested=[expected_text(*pair) for pair in zip(expected.tolist(), (scale * off).tolist(), strict=True)],
        residuals=scale * residual,
        expected=residual_in_words(expected, scale * off, scale * usual),
        against=-np.sign(off)[:, None] * (X[order] - X.mean(axis=0)) * fitted.coef_,
        groups=_groups(target.y, fitted.dropped_, wrong, residual**2),
        noise=noise,
        contradicted=float((np.abs(residual) > 3.0 * usual).mean()),
        posterior=weights,
        expected_surprises=SURPRISING * len(y),
        loss_name=f"squared error divided by {number(scale, 4)}^2",
        notes=[]
        if plan.observed
        else [
            "For a numeric target, wrong means an outlier given the other columns. The value may be rare and correct."
        ],
    )


def _outliers(X: Array, residuals: Array, plan: Plan) -> tuple[Array, Interval]:
    """p(wrong) of each scaled residual, and the share of outliers.

    Noise that grows with a column is not an error: the smaller p(wrong), with and without a local scale, counts.
    """
    found = outlier_posterior(residuals, clean="skewed")
    wrong, noise = found.p_wrong, Interval(found.rate, *found.interval)
    if (wrong < POSSIBLE).all():
        return wrong, noise
    model = HistGradientBoostingRegressor(
        max_iter=30, min_samples_leaf=40, early_stopping=False, random_state=plan.seed
    )
    expected = plan.out_of_fold(model, X, sizes(residuals))
    wrong = np.minimum(wrong, outlier_posterior(residuals, expected=expected, clean="skewed").p_wrong)
    return wrong, Interval(float(wrong.mean()), min(noise.low, Interval.of_mean(wrong).low), noise.high)


def _blend(X: Array, y: Array, linear: Array, plan: Plan) -> tuple[list[float], Array]:
    """The weights and the weighted mean of the predictions of the robust linear fit, boosted trees and extra trees.

    Extra trees need at most 20,000 rows. The weights minimise the mean of the smallest 70% of the absolute errors.
    """
    trees = HistGradientBoostingRegressor(loss="absolute_error", early_stopping=False, random_state=plan.seed)
    models: list[Any] = [trees]
    if len(y) <= SAMPLE:
        models.append(ExtraTreesRegressor(60, min_samples_leaf=3, random_state=plan.seed))
    target = y.astype(np.float64)
    predictions = np.stack([linear, *(plan.out_of_fold(model, X, target) for model in models)])
    tenths = [weights for weights in product(range(11), repeat=len(predictions)) if sum(weights) == 10]
    sizes_of = [np.sort(np.abs(target - np.array(w) / 10.0 @ predictions)) for w in tenths]
    costs = [size[: max(1, int(0.7 * len(size)))].mean() for size in sizes_of]
    weights = np.array(tenths[int(np.argmin(costs))]) / 10.0
    return weights.tolist(), np.asarray(weights @ predictions)


def expected_text(expected: float, residual: float) -> str:
    """The expected value with four significant digits, or as many as show the first two of the residual."""
    more = np.log10(max(abs(expected), 1e-300) / max(abs(residual), 1e-300))
    return number(expected, int(np.clip(np.ceil(more) + 2, 4, 12)))


def usual_size(residuals: Array) -> float:
    """The robust standard deviation of residuals, above 0."""
    return max(robust_scale(residuals), 1e-9 * float(np.abs(residuals).max()), 1e-300)


def residual_in_words(expected: Array, residual: Array, usual: float) -> list[str]:
    """The reason for each suspect: the expected value, and the residual in units and in standard deviations."""
    return [
        f"expected {expected_text(value, off)} by a model fitted without the row; the value is {number(abs(off), 4)} "
        f"{'more' if off > 0 else 'less'}, {abs(off) / usual:.1f} standard deviations of the other rows"
        for value, off in zip(expected, residual, strict=True)
    ]


def _measures(errors: Array, kept: Array) -> list[Measure]:
    size = np.abs(errors)
    return [
        Measure.of_rows("mean absolute error", *size, higher=False),
        *Measure.without(kept, "mean absolute error without outliers", size, higher=False),
        Measure.of_rows("mean squared error", *(errors**2), higher=False),
    ]


def _groups(y: Array, dropped: Array, wrong: Array, losses: Array) -> list[Group]:
    """Up to five ranges of the target with about equal numbers of rows."""
    edges = np.unique(np.quantile(y, np.linspace(0, 1, _GROUPS + 1)))
    bins = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, len(edges) - 2)
    names = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)]
    return groups_of(names, bins, dropped, wrong, losses)
