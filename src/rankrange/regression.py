"""Robust regression for statisticians: least trimmed squares and MM-estimates of arrays or of a formula.

Both functions return a fitted `AoRRRegressor` without penalty; `summary()` prints what statsmodels users know.
Formulas need the package formulaic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from .core.arrays import Array
from .estimators import AoRRRegressor
from .inference.factors import kept_rows

__all__ = ["lts", "mm"]


class FormulaRegressor(AoRRRegressor):
    """A regressor that knows how to make its columns from a frame as it was given."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted targets of rows as they were given, or of the columns that the formula makes of them."""
        if hasattr(self, "formula_") and hasattr(X, "columns"):
            names = list(self.feature_names_in_)
            X = X[names] if set(names) <= set(X.columns) else _columns(self.formula_.get_model_matrix(X))
        return super().predict(X, return_std)


def lts(formula: Any, data: Any, *, alpha: float = 0.5, reweight: bool = True, **settings: Any) -> AoRRRegressor:
    """Least trimmed squares, by default followed by reweighted least squares, as in R's ltsReg.

    Parameters
    ----------
    formula : str or array_like of shape (n_samples, n_features)
        A formula such as "y ~ a + C(b)", or the features.
    data : DataFrame or array_like of shape (n_samples,)
        The columns of the formula, or the targets.
    alpha : float, default=0.5
        The share of the rows that is kept, from 0.5 (the highest breakdown point) to 1.
    reweight : bool, default=True
        Whether to follow with least squares on the rows that are not outliers.
    **settings
        Parameters of `AoRRRegressor`, such as random_state or fit_intercept.

    Returns
    -------
    AoRRRegressor
        The fitted model.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.regression import lts
    >>> x = np.arange(20.0)
    >>> y = 3 * x + np.cos(5 * x)
    >>> y[:5] += 50.0
    >>> model = lts(x[:, None], y, random_state=0)
    >>> round(float(model.coef_[0]), 1), np.flatnonzero(model.weights_ == 0).tolist()
    (3.0, [0, 1, 2, 3, 4])
    """
    return _fit(formula, data, alpha, {"reweight": reweight, **settings})


def mm(formula: Any, data: Any, *, efficiency: float = 0.95, **settings: Any) -> AoRRRegressor:
    """MM-estimate: as robust as least trimmed squares, and nearly as efficient as least squares.

    Parameters
    ----------
    formula : str or array_like of shape (n_samples, n_features)
        A formula, as "y ~ a + C(b)", or the features.
    data : DataFrame or array_like of shape (n_samples,)
        The columns of the formula, or the targets.
    efficiency : float, default=0.95
        Relative to least squares if the errors are normal.
    **settings
        Of `AoRRRegressor`, as random_state or fit_intercept.

    Returns
    -------
    AoRRRegressor
        The fitted model.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.regression import mm
    >>> x = np.arange(20.0)
    >>> y = 3 * x + np.cos(5 * x)
    >>> y[:5] += 50.0
    >>> print(mm(x[:, None], y, random_state=0).coef_.round(1))
    [3.]
    """
    return _fit(formula, data, 0.5, {"efficiency": efficiency, **settings})


def _fit(formula: Any, data: Any, alpha: float, settings: dict[str, Any]) -> AoRRRegressor:
    if not 0.5 <= alpha <= 1:
        raise ValueError(f"alpha is the share of the rows that is kept, from 0.5 to 1, got {alpha!r}")
    settings = {"C": np.inf, **settings}
    if not isinstance(formula, str):
        X, y, spec = formula, data, None
    else:
        X, y, spec, intercept = _by_formula(formula, data)
        settings["fit_intercept"] = intercept
    if np.ndim(X) != 2:
        raise ValueError(
            f"features must be a table of shape (rows, columns), got shape {np.shape(X)}; of one column pass x[:, None]"
        )
    n, d = np.shape(X)
    h = kept_rows(alpha, n, d + bool(settings.get("fit_intercept", True)))
    if spec is None:
        return AoRRRegressor(n - h, 1.0, **settings).fit(X, y)
    model = FormulaRegressor(n - h, 1.0, **settings)
    model.formula_ = spec
    return model.fit(X, y)


def _by_formula(formula: str, data: Any) -> tuple[Any, Array, Any, bool]:
    """Columns, targets, how the columns are made, and whether there is an intercept."""
    try:
        import formulaic
    except ImportError:
        raise ImportError("formulas need the package formulaic; pip install formulaic, or pass arrays") from None
    made = formulaic.model_matrix(formula, data, na_action="raise")
    if not hasattr(made, "lhs") or np.shape(made.lhs)[1] != 1:
        raise ValueError(f"a formula needs one target, as 'y ~ a + b', got {formula!r}")
    intercept = "Intercept" in made.rhs.columns
    y = check_array(made.lhs, ensure_2d=True, dtype=np.float64)[:, 0]
    return _columns(made.rhs), y, made.rhs.model_spec, intercept


def _columns(matrix: Any) -> Any:
    """A plain DataFrame of numbers without the intercept, which the model adds itself."""
    return matrix.drop(columns=["Intercept"], errors="ignore").astype(np.float64)
