"""Robust regression for statisticians: least trimmed squares and MM-estimates, for arrays or for a formula.

`lts` and `mm` return a fitted `AoRRRegressor` without penalty. Its `summary()` is a table like that of statsmodels.
Formulas need the package formulaic.
"""

from __future__ import annotations

import inspect
import numbers
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from .core.arrays import Array
from .estimators import AoRRRegressor
from .inference.factors import kept_rows

__all__ = ["lts", "mm"]


class FormulaRegressor(AoRRRegressor):
    """A regressor that computes its features from a DataFrame by a formula, in `fit` and in `predict`.

    Parameters
    ----------
    formula : str
        For example "y ~ a + C(b)". The left side is the target if `fit` gets no y.
    m, k, **settings
        Parameters of `AoRRRegressor`; `fit_intercept` must agree with the formula.
    """

    def __init__(self, formula: Any = None, m: Any = "half", k: Any = 1.0, **settings: Any) -> None:
        super().__init__(m, k, **settings)
        self.formula = formula

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, X_val: Any = None, **more: Any) -> Any:
        """Fit to the columns of the formula, computed from the DataFrame X.

        The target is the formula's left side. If y is given, it is the target instead, on the scale of the left side:
        for "log(y) ~ a" pass the logarithms. X_val is a DataFrame too; `more` are further arguments of
        `AoRRRegressor.fit`, such as y_val.
        """
        columns, target, made = _by_formula(self.formula, X, with_target=y is None)
        if made.intercept != bool(self.fit_intercept):
            raise ValueError(
                f"the formula decides whether there is an intercept, got fit_intercept={self.fit_intercept!r} with "
                f"{self.formula!r}; leave fit_intercept out, and write '0 + ' into a formula without one"
            )
        X_val = None if X_val is None else made.columns_of(X_val)
        super().fit(columns, target if y is None else y, sample_weight, X_val=X_val, **more)
        self.formula_ = made
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict targets, from a DataFrame or from the columns of the formula.

        The target is the left side of the formula: for "log(y) ~ a" it is the logarithm. With `return_std` the result
        is a pair of the predictions and their standard deviations.
        """
        return super().predict(self._columns_of(X), return_std)

    def diagnostics(self, X: Any = None, y: Any = None) -> Any:
        """The diagnostics of `AoRRRegressor`, for rows of a DataFrame; by default for the training rows.

        y is on the scale of the left side of the formula.
        """
        return super().diagnostics(self._columns_of(X), y)

    def _columns_of(self, X: Any) -> Any:
        formula = getattr(self, "formula_", None)
        if formula is None or not hasattr(X, "columns") or list(X.columns) == list(self.feature_names_in_):
            return X
        return formula.columns_of(X)


def _with_formula(init: Any) -> inspect.Signature:
    """The signature of `init` with the parameter `formula` added; scikit-learn's clone reads parameters from it."""
    signature = inspect.signature(init)
    first, *rest = signature.parameters.values()
    formula = inspect.Parameter("formula", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    return signature.replace(parameters=[first, formula, *rest])


setattr(FormulaRegressor.__init__, "__signature__", _with_formula(AoRRRegressor.__init__))  # noqa: B010


@dataclass(frozen=True)
class FormulaColumns:
    """The columns of a fitted formula: formulaic's specification, and whether the formula has an intercept."""

    spec: Any
    intercept: bool

    def columns_of(self, data: Any) -> Any:
        """The columns of the formula for new rows; a missing cell or an unknown category raises a ValueError."""
        _check_cells(data, self.spec.required_variables)
        return _columns(_model_matrix(self.spec, data))


def lts(formula: Any, data: Any, *, alpha: float = 0.5, reweight: bool = True, **settings: Any) -> AoRRRegressor:
    """Least trimmed squares, by default followed by reweighted least squares, as in R's ltsReg.

    Parameters
    ----------
    formula : str or array_like of shape (n_samples, n_features)
        A formula such as "y ~ a + C(b)", or the features.
    data : DataFrame or array_like of shape (n_samples,)
        The DataFrame with the variables of the formula or, if `formula` is an array of features, the targets.
    alpha : float, default=0.5
        The share of rows to keep, from 0.5 (the highest breakdown point) to 1. Near 0.5 a few more rows are kept, by
        R's rule, which depends on the number of coefficients.
    reweight : bool, default=True
        Whether to follow with least squares on the rows that are not outliers.
    **settings
        Parameters of `AoRRRegressor`, such as random_state or fit_intercept.

    Returns
    -------
    AoRRRegressor
        The fitted model. If it has a formula, clones of it (`sklearn.base.clone`, `cross_val_score`) keep the formula
        and are fitted to a DataFrame; y is then optional.

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
    return _fit(formula, data, alpha, {"step": "reweight" if reweight else None, **settings})


def mm(formula: Any, data: Any, *, efficiency: float = 0.95, **settings: Any) -> AoRRRegressor:
    """MM-estimate: as robust as least trimmed squares, and nearly as efficient as least squares.

    Parameters
    ----------
    formula, data : str and DataFrame, or array_like and array_like
        As in `lts`.
    efficiency : float, default=0.95
        The efficiency relative to least squares if the errors are normal.
    **settings
        Parameters of `AoRRRegressor`, such as random_state or fit_intercept.

    Returns
    -------
    AoRRRegressor
        The fitted model, as from `lts`.

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
    return _fit(formula, data, 0.5, {"step": "mm", **settings}, efficiency)


def _fit(formula: Any, data: Any, alpha: float, settings: dict[str, Any], efficiency: float = 0.95) -> AoRRRegressor:
    if isinstance(alpha, bool) or not isinstance(alpha, numbers.Real) or not 0.5 <= float(alpha) <= 1:
        raise ValueError(f"alpha must be a number from 0.5 to 1, the share of rows to keep, got {alpha!r}")
    if settings.get("sample_weight") is not None:
        raise TypeError(
            "lts and mm do not support sample_weight, because their standard errors and breakdown point need equal "
            "weights; use AoRRRegressor(m, k=1.0).fit(X, y, sample_weight)"
        )
    settings = {"C": np.inf, **settings}
    if isinstance(formula, str):
        X, _, made = _by_formula(formula, data, with_target=True)
        settings = {"fit_intercept": made.intercept, **settings}
    else:
        X = formula
    if np.ndim(X) != 2:
        raise ValueError(
            f"features must have shape (rows, columns), got shape {np.shape(X)}; pass one column as x[:, None]"
        )
    n, d = np.shape(X)
    m = _share(float(alpha), n, d + bool(settings.get("fit_intercept", True)))
    by_formula = isinstance(formula, str)
    model = FormulaRegressor(formula, m, 1.0, **settings) if by_formula else AoRRRegressor(m, 1.0, **settings)
    model._efficiency = efficiency
    model._alpha = float(alpha)  # the correction of the scale depends on it, and several alpha keep as many rows
    return model.fit(data) if by_formula else model.fit(X, data)


def _share(alpha: float, n: int, p: int) -> str | float:
    """The parameter m that keeps a share alpha of the rows.

    It is "half" or a fraction, not a count, because cross-validation fits the model to other numbers of rows. The
    fraction follows R's rule, which depends on the number p of coefficients. If n is not above p, it is a ValueError.
    """
    if n <= p:
        raise ValueError(f"{p} coefficients need more than {p} rows, got {n}; add rows or leave out columns")
    return "half" if alpha == 0.5 else (n - kept_rows(alpha, n, p)) / n


def _by_formula(formula: Any, data: Any, *, with_target: bool) -> tuple[Any, Array | None, FormulaColumns]:
    """The columns (without the intercept), the target (None without `with_target`), and the fitted formula."""
    try:
        from formulaic import Formula
    except ImportError:
        raise ImportError("formulas need the package formulaic; pip install formulaic, or pass arrays") from None
    if not hasattr(data, "columns"):
        raise TypeError(f"a formula needs a DataFrame with its columns, got {type(data).__name__}; pass a DataFrame")
    parsed = Formula(formula, _context={"__formulaic_variables_available__": list(data.columns)})
    if not hasattr(parsed, "lhs"):
        raise ValueError(f"a formula needs one target, as 'y ~ a + b', got {formula!r}")
    y = _target(formula, parsed, data) if with_target else None
    _check_cells(data, parsed.rhs.required_variables)
    made = _model_matrix(parsed.rhs, data)
    return _columns(made), y, FormulaColumns(made.model_spec, "Intercept" in made.columns)


def _target(formula: str, parsed: Any, data: Any) -> Array:
    _check_cells(data, parsed.lhs.required_variables)
    made = parsed.lhs.get_model_matrix(data, na_action="raise")
    if np.shape(made)[1] != 1:
        raise ValueError(f"a formula needs one target, as 'y ~ a + b', got {formula!r}")
    return np.asarray(check_array(made, ensure_2d=True, dtype=np.float64)[:, 0])


def _check_cells(data: Any, names: Any) -> None:
    """Raise an error if one of the columns `names` is not in the DataFrame, or has a missing cell."""
    names = sorted(map(str, names))
    absent = [name for name in names if name not in data.columns]
    if absent:
        raise ValueError(f"the formula needs the columns {', '.join(names)}, got none named {', '.join(absent)}")
    for name in names:
        missing = int(data[name].isna().sum())
        if missing:
            raise ValueError(
                f"column {name!r} has {missing} missing cells of {len(data)} (NaN); drop these rows first, as "
                f"data.dropna(subset=[{name!r}])"
            )


def _model_matrix(maker: Any, data: Any) -> Any:
    """The model matrix of a formula. An unknown category raises an error; formulaic would encode it as the baseline."""
    from formulaic.errors import DataMismatchWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", DataMismatchWarning)
        try:
            return maker.get_model_matrix(data, na_action="raise")
        except DataMismatchWarning as warning:
            raise ValueError(
                f"a category must have values of the training rows; leave the other rows out, or add rows with their "
                f"value to the training data: {warning}"
            ) from None


def _columns(matrix: Any) -> Any:
    """A DataFrame of floats without the intercept column, because the model adds an intercept."""
    return matrix.drop(columns=["Intercept"], errors="ignore").astype(np.float64)
