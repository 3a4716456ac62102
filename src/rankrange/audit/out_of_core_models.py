"""The models of `classification` and `regression` for rows on disk, computed in a few passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import RobustScaler

from ..core.arrays import Array
from ..core.transition import POSSIBLE, WIDTH
from ..estimators import AoRRClassifier, AoRRRegressor
from ..label_noise import actions
from ..outliers import Widths, outlier_posterior
from ..shards.fit import fit_on_shards
from ..shards.fold_fits import regress_folds
from ..shards.label_issues import ShardIssues, issues_in_shards
from ..shards.shard_kernels import fold_numbers
from .classification import _LISTED, _gives, _weights
from .regression import regression_result
from .target import Target
from .task_result import (
    Group,
    Interval,
    Measure,
    TaskResult,
    facts_of,
    lost_groups,
    marked_at_chance,
)

# The fits of two models for each fold, eight in all, share their passes.
FOLDS = 4


# ---- classes ---------------------------------------------------------------------------------------------------------


def classify_out_of_core(rows: Any, target: Target, X: Path, seed: int, trees: bool = True) -> TaskResult:
    """Audit a target with classes in passes over `rows`, whose features are in the file X.

    `trees`: whether trees, fitted to a sample, also predict the classes. If the linear models predict no better than
    chance, there are no suspects.
    """
    model = fit_on_shards(rows, AoRRClassifier(C="auto", random_state=seed, tol=1e-4))
    linear_model = AoRRClassifier(C=model.C_)
    found = issues_in_shards(rows, linear_model, FOLDS, trees, seed, 0, every_row=True, cut=model.m_ / len(target.y))
    names, present = target.names, model.classes_.astype(np.intp)
    model.classes_ = np.array(names, dtype=str)[present]
    suspects, todo = _listed(found)
    order = suspects["row"].astype(np.intp)
    every = np.concatenate(found.suspects.rows, axis=1)
    wrong, losses = every[0], every[1]
    dropped = model.dropped_ = np.asarray(model.dropped_)
    given, other = present[suspects["given"]], present[suspects["suggested"]]
    weights = np.zeros((len(names), model.coef_.shape[1]))
    weights[present] = _weights(model, list(range(len(present))))
    groups = _groups_of(found.suspects.sums, target, dropped, present)
    result = TaskResult(
        task="classes",
        ordinary_name="logistic regression, all rows",
        robust_name="AoRR, worst rows ignored",
        model=model,
        **facts_of(model, [round(model.m_ * (1 - 1 / FOLDS))] * FOLDS),
        measures=_measures_of(found.suspects.sums),
        losses=losses,
        wrong=wrong,
        order=order,
        actions=todo,
        suggested=[names[c] for c in other.tolist()],
        expected=_Explanations(suspects, given, other, names),  # type: ignore[arg-type]
        against=_EvidenceAgainst(X, order, weights, other, given),  # type: ignore[arg-type]
        groups=groups,
        noise=Interval(found.posterior.share, *found.posterior.interval),
        loss_name="log loss",
        notes=lost_groups(groups),
    )
    return marked_at_chance(result, 1.0 / len(present), result.measures[1])


def _listed(found: ShardIssues) -> tuple[Array, Array]:
    """The suspects and the first 20 rows of the ranking, and the action for each."""
    ranked = found.ranked
    todo = actions(ranked["p_wrong"], ranked["p_suggested"])
    listed = (todo != "") | (np.arange(len(ranked)) < _LISTED)
    return ranked[listed], todo[listed]


class _Explanations:
    """The reason for each suspect, computed on access, because there may be millions of suspects."""

    def __init__(self, suspects: Array, given: Array, other: Array, names: list[str]) -> None:
        self.suspects, self.given, self.other, self.names = suspects, given, other, names

    def __getitem__(self, rank: int) -> str:
        one, pair = self.suspects[rank], (int(self.given[rank]), int(self.other[rank]))
        shares = [float(np.exp(-one["loss"])), float(one["predicted"])]
        return f"models fitted without the row predict {_gives(shares, pair, self.names)}"


class _EvidenceAgainst:
    """The evidence of each feature against the label of each suspect; rows are read on access."""

    def __init__(self, X: Path, order: Array, weights: Array, other: Array, given: Array) -> None:
        self.X, self.order, self.weights, self.other, self.given = X, order, weights, other, given

    def __getitem__(self, part: slice) -> Array:
        rows = np.load(self.X, mmap_mode="r")[self.order[part]]
        return np.asarray(rows * (self.weights[self.other[part]] - self.weights[self.given[part]]), dtype=np.float32)


def _groups_of(sums: Any, target: Target, dropped: Array, present: Array) -> list[Group]:
    cut = np.bincount(target.y[dropped], minlength=len(target.names))
    return [
        Group(target.names[code], int(sums[0, index]), int(cut[code]), int(sums[1, index]))
        for index, code in enumerate(present.tolist())
    ]


def _measures_of(sums: Any) -> list[Measure]:
    """The scores of both models from sums over all rows (`Suspects`), with intervals from sums of squares."""
    by_class, total = sums, sums.sum(axis=1)
    n, likely = total[0], total[1]
    rows = by_class[0]
    balanced = [by_class[i] / rows for i in (2, 3, 4)]
    found = [
        _share("accuracy on labels as given", total[2:5] / n, n),
        _balanced("balanced accuracy on labels as given", balanced, rows),
    ]
    if likely:
        found.append(_share("accuracy without likely wrong labels", total[5:8] / (n - likely), n - likely))
    both = [_interval(total[8 + v] / n, total[10 + v] / n, n, 0.0, np.inf) for v in (0, 1)]
    gain = _interval((total[8] - total[9]) / n, total[12] / n, n, -np.inf, np.inf)
    return [*found, Measure("log loss on labels as given", False, False, both[0], both[1], gain)]


def _interval(mean: float, square: float, n: float, low: float, high: float) -> Interval:
    error = WIDTH * np.sqrt(max(square - mean**2, 0.0) / n)
    return Interval(float(mean), float(mean - error), float(mean + error)).within(low, high)


def _share(name: str, shares: Array, n: float) -> Measure:
    ordinary, robust, apart = map(float, shares)
    gain = _interval(robust - ordinary, apart, n, -1.0, 1.0)
    both = [_interval(v, v, n, 0.0, 1.0) for v in (ordinary, robust)]
    return Measure(name, True, True, both[0], both[1], gain)


def _balanced(name: str, shares: list[Array], rows: Array) -> Measure:
    ordinary, robust, apart = shares
    spread = [np.sqrt((v * (1.0 - v) / rows).sum()) / len(rows) for v in (ordinary, robust)]
    moved = np.sqrt((np.maximum(apart - (robust - ordinary) ** 2, 0.0) / rows).sum()) / len(rows)
    means = [float(v.mean()) for v in (ordinary, robust)]
    both = [Interval(m, m - WIDTH * e, m + WIDTH * e).within(0.0, 1.0) for m, e in zip(means, spread, strict=True)]
    gain = means[1] - means[0]
    return Measure(name, True, True, both[0], both[1], Interval(gain, gain - WIDTH * moved, gain + WIDTH * moved))


# ---- numbers ---------------------------------------------------------------------------------------------------------


def regress_out_of_core(rows: Any, target: Target, X: Path, seed: int) -> TaskResult:
    """Audit a numeric target in passes over `rows`, whose features are in the file X. Writes the scaled y to y.npy."""
    scaler = RobustScaler(unit_variance=True).fit(target.y[:: 1 + len(target.y) // rows.sample_rows, None])
    y = scaler.transform(target.y[:, None])[:, 0].astype(np.float32)
    np.save(X.parent / "y.npy", y)
    ordinary = fit_on_shards(rows, AoRRRegressor(0, 1.0, C="auto", random_state=seed, tol=1e-4))
    fitted = fit_on_shards(rows, AoRRRegressor(C=ordinary.C_, random_state=seed, tol=1e-4))
    fitted.dropped_ = np.asarray(fitted.dropped_)
    predicted = _out_of_fold_predictions(X, *regress_folds(rows, (ordinary, fitted), FOLDS, seed))
    residual = y - predicted[1]
    step = 1 + len(y) // rows.sample_rows
    width = _widths(residual, X, step)
    wrong, noise = outliers_of_all(residual / width, step)
    order = np.flatnonzero(wrong >= POSSIBLE)
    order = order[np.argsort(-np.abs(residual[order] / width[order]), kind="stable")]
    return regression_result(
        target,
        scaler,
        fitted,
        [round(fitted.m_ * (1 - 1 / FOLDS))] * FOLDS,
        errors=y - predicted,
        residual=residual,
        width=width,
        wrong=wrong,
        order=order,
        noise=noise,
        rows=np.load(X, mmap_mode="r")[order],
    )


def _widths(residual: Array, X: Path, step: int) -> Array:
    """The relative size of the noise in each row (`Widths`), estimated from every `step`-th row."""
    rows = np.load(X, mmap_mode="r")
    found = Widths.of(residual[::step].astype(np.float64), np.asarray(rows[::step]))
    return np.concatenate(
        [found.of_rows(rows[start : start + (1 << 17)]) for start in range(0, len(rows), 1 << 17)]
    ).astype(np.float32)


def outliers_of_all(residual: Array, step: int) -> tuple[Array, Interval]:
    """p(wrong) of each residual, and the share of outliers.

    p(wrong) is interpolated from `outlier_posterior` of every `step`-th residual. On each side of zero it never
    decreases with the size of the residual; it is 0 on a side without sampled residuals.
    """
    sample = residual[::step].astype(np.float64)
    found = outlier_posterior(sample, clean="skewed")
    wrong = np.zeros(len(residual), dtype=np.float32)
    for side, sampled_side in ((residual >= 0, sample >= 0), (residual < 0, sample < 0)):
        if sampled_side.any():
            sizes, order = np.abs(sample[sampled_side]), np.argsort(np.abs(sample[sampled_side]))
            farther = np.maximum.accumulate(found.p_wrong[sampled_side][order])
            wrong[side] = np.interp(np.abs(residual[side]), sizes[order], farther)
    return wrong, Interval(found.rate, *found.interval)


def _out_of_fold_predictions(X: Path, coef: Array, seed: int) -> Array:
    """Out-of-fold predictions (2, n) of both models with the coefficients `coef` (2, folds, 1, features + 1)."""
    rows = np.load(X, mmap_mode="r")
    predicted = np.empty((2, len(rows)), dtype=np.float32)
    for start in range(0, len(rows), 1 << 17):
        part = np.asarray(rows[start : start + (1 << 17)])
        fold = fold_numbers(seed, FOLDS, start, len(part))
        every = np.einsum("nd,vfd->vfn", part, coef[:, :, 0, :-1]) + coef[:, :, 0, -1:]
        predicted[:, start : start + len(part)] = np.take_along_axis(every, fold[None, None], axis=1)[:, 0]
    return predicted
