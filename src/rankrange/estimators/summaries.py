"""Inference for the linear estimators: summaries, diagnostics of rows, standard deviation of predictions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..core.arrays import Array
from ..inference.bootstrap import draws
from ..inference.leverage import Diagnostics, robust_distances
from ..inference.steps import CUT, RobustFit
from ..inference.table import Summary
from ..inference.trimmed_logistic import trimmed_covariance

if TYPE_CHECKING:
    from .classifier import AoRRClassifier
    from .regressor import AoRRRegressor

# Up to this many rows, the bootstrap estimates standard errors.
_FEW_ROWS = 200
# The largest number of columns that a warning names.
_NAMED = 5


def robust_summary(model: AoRRRegressor, level: float, errors: str) -> Summary:
    """The summary of a fitted regressor; `level` and `errors` are those of `AoRRRegressor.summary`.

    Coefficients that are not identified are NaN. After an exact fit, all standard errors are NaN.
    """
    if errors not in ("auto", "sandwich", "bootstrap"):
        raise ValueError(f"errors must be 'auto', 'sandwich' or 'bootstrap', got {errors!r}")
    fit = model._robust()
    n = len(fit.residuals)
    resampling = errors == "bootstrap" or (errors == "auto" and n <= _FEW_ROWS)
    bse = _resampled(fit, n) if resampling else np.sqrt(np.diag(fit.covariance))
    coef = np.where(np.isnan(bse), np.nan, fit.W[0])
    if fit.method == "exact fit":  # the scale is 0: standard errors of 0 would make every coefficient significant
        coef, bse = fit.W[0], np.full(len(coef), np.nan)
    facts = _facts(model, fit, "fast bootstrap" if resampling else "sandwich")
    title = f"Robust linear regression: {fit.method}"
    return Summary(title, *_intercept_first(model, coef, bse), n - fit.rank, facts, _notes(model, fit), level)


def logistic_summary(model: AoRRClassifier, level: float) -> Summary:
    """The summary of a fitted classifier of two classes; `level` is that of `AoRRClassifier.summary`."""
    check_is_fitted(model, "coef_")
    rows = getattr(model, "_training", None)
    if model.loss != "logistic" or len(model.coef_) != 1 or rows is None or model.k_ != len(rows[1]):
        raise AttributeError(
            "summary needs the training rows of a fit of two classes with loss='logistic', k=1.0, l1_ratio=0, dense X "
            "and no weights; a model that was loaded does not have them: call summary() before saving"
        )
    X, y = rows
    Z = np.column_stack([X, np.ones(len(y))]) if model.fit_intercept else np.asarray(X)
    b = np.append(model.coef_[0], model.intercept_) if model.fit_intercept else model.coef_[0]
    penalty = np.append(np.full(X.shape[1], 1 / model.C_), [0.0] * bool(model.fit_intercept))
    covariance = trimmed_covariance(Z.astype(np.float64), y, b.astype(np.float64), ~model.dropped_, penalty)
    facts = {
        "rows": f"{len(y):,}",
        "rows dropped": f"{np.count_nonzero(model.dropped_):,}",
        "positive class": str(model.classes_[1]),
        "temperature": f"{model.temperature_:.3f}",
    }
    notes = [f"Penalised with C={model.C_:g}; intervals are for the penalised coefficients."]
    if model.m_:
        notes.append(
            "Dropping correct labels makes coefficients too large. Intervals cover both extremes: temperature x "
            "coefficient (no dropped label is wrong) and the coefficient itself (all are wrong)."
        )
    title = "Trimmed logistic regression" if model.m_ else "Logistic regression"
    names, coef, bse = _intercept_first(model, b, np.sqrt(np.diag(covariance)))
    return Summary(title, names, coef, bse, np.inf, facts, tuple(notes), level, model.temperature_ * coef)


def _intercept_first(model: Any, coef: Array, bse: Array) -> tuple[tuple[str, ...], Array, Array]:
    """Names, coefficients and standard errors in the order of the table."""
    names, coef = feature_names(model), coef.astype(np.float64)
    return (("Intercept", *names), np.roll(coef, 1), np.roll(bse, 1)) if model.fit_intercept else (names, coef, bse)


def feature_names(model: Any) -> tuple[str, ...]:
    """The column names of the fitted DataFrame, or x0, x1, ..."""
    given = getattr(model, "feature_names_in_", None)
    return tuple(f"x{j}" for j in range(model.n_features_in_)) if given is None else tuple(map(str, given))


def warn_of_constant_columns(model: AoRRRegressor, X: Any) -> None:
    """Warn of columns that are constant among the rows that the trimmed fit keeps, but not in X.

    A fit that may drop half of the rows can drop those in which a nearly constant column varies. It can fit any p of
    them exactly, so a column counts as constant if at most p kept rows, less than a quarter of before, differ from it.
    """
    kept = ~model.dropped_
    if kept.all() or not kept.any():
        return
    usual = np.zeros(X.shape[1]) if hasattr(X, "toarray") else np.median(X[kept], axis=0)
    before, after = (np.asarray((rows != usual).sum(axis=0)).ravel() for rows in (X, X[kept]))
    lost = np.flatnonzero((after <= X.shape[1] + bool(model.fit_intercept)) & (4 * after < before))
    if not len(lost):
        return
    names = feature_names(model)
    named = [f"{names[j]} ({after[j]} of {before[j]} rows)" for j in lost[:_NAMED]]
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    warnings.warn(
        "a coefficient needs kept rows in which its column varies, got columns that are constant among the "
        f"{int(kept.sum()):,} kept rows, but for a few: {', '.join(named)}{more}. The dropped rows may be rare, not "
        "wrong; lower m, or leave these columns out",
        UserWarning,
        stacklevel=3,
    )


def _resampled(fit: RobustFit, n: int) -> Array:
    """Standard deviations over bootstrap samples, from 16% and 84% quantiles, because some samples may be singular."""
    low, high = np.quantile(fit.resample(draws(n, np.random.default_rng(0))), (0.158655, 0.841345), axis=0)
    return (high - low) / 2


def _facts(model: AoRRRegressor, fit: RobustFit, errors: str) -> dict[str, str]:
    n, y, w = len(fit.residuals), np.asarray(model._training[1], dtype=np.float64), fit.weights
    total = w @ (y - w @ y / w.sum()) ** 2
    explained = 1 - w @ fit.residuals**2 / total if total > 0 else np.nan
    return {
        "rows": f"{n:,}",
        "rows kept by LTS": f"{n - int(model.m_):,}",
        "rows of weight 0": f"{np.count_nonzero(fit.weights == 0):,}",
        "residual df": f"{n - fit.rank:,}",
        "robust scale": f"{fit.scale:.4g}",
        "robust R squared": f"{explained:.4f}",
        "standard errors": errors if fit.method != "exact fit" else "none, exact fit",
    }


def _notes(model: AoRRRegressor, fit: RobustFit) -> tuple[str, ...]:
    notes = []
    if fit.method == "exact fit":
        on = int(np.count_nonzero(fit.support))
        notes.append(
            f"{on} of {len(fit.residuals)} rows lie on one hyperplane: the scale is 0, and every other row is an "
            "outlier."
        )
    if fit.method == "LTS":
        notes.append("Trimmed fits are inefficient, so these intervals are wide; step='mm' gives shorter ones.")
    if fit.rank < len(fit.W[0]):
        notes.append(_not_identified(model, fit))
    if np.isfinite(model.C_):
        notes.append(
            f"Penalised with C={model.C_:g}: intervals are for the penalised coefficients; C=inf has no penalty."
        )
    return tuple(notes)


def _not_identified(model: AoRRRegressor, fit: RobustFit) -> str:
    """A sentence that names the coefficients that are not identified, with the reason."""
    names = (*feature_names(model), *(("Intercept",) if model.fit_intercept else ()))
    lost = np.isnan(np.diag(fit.covariance))
    X = np.asarray(model._training[0])
    constant = [name for name, column in zip(names, X.T, strict=False) if (column == column[0]).all()]
    why = f"{', '.join(constant)} constant" if constant else "linearly dependent columns"
    unidentified = ", ".join(name for name, without in zip(names, lost, strict=True) if without)
    return (
        f"Not identified, so NaN: {unidentified} (rank {fit.rank} of {len(lost)}: {why}). Predictions are unaffected. "
        "To get all coefficients, leave columns out."
    )


def diagnose(model: AoRRRegressor, X: Array, y: Array) -> Diagnostics:
    """Classify the rows X with targets y. Distances are computed among these rows.

    If the scale is 0, residuals are 0 or infinite.
    """
    fitted = np.asarray(X @ model.coef_ + model.intercept_, dtype=np.float64)
    residuals = y - fitted
    if model.scale_ == 0:
        residuals[np.abs(residuals) <= 1e-10 * np.abs(y).max(initial=1e-290)] = 0.0
    distances, cut = robust_distances(X)
    return Diagnostics(standardised(residuals, model.scale_), distances, fitted, CUT, cut)


def standardised(residuals: Array, scale: float) -> Array:
    """Residuals in units of the scale; after an exact fit, whose scale is 0, they are 0 or infinite."""
    with np.errstate(divide="ignore"):
        return np.divide(residuals, scale, out=np.zeros_like(residuals), where=residuals != 0)


def prediction_error(model: AoRRRegressor, X: Any) -> Array:
    """The standard deviation (n,) of a new target around its prediction, for each row of X."""
    X = model._checked(X)
    X = X.toarray() if hasattr(X, "toarray") else X
    rows = np.column_stack([X, np.ones(len(X))]) if model.fit_intercept else X
    return np.sqrt(model.scale_**2 + np.einsum("ij,jk,ik->i", rows, np.nan_to_num(model.cov_), rows))
