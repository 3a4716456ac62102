"""AoRRRegressor: linear regression trained on a ranked range of its losses."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..compatibility import StrOptions
from ..core.arrays import Array
from ..core.losses import losses_for
from ..core.ranges import RankedRange
from ..inference import factors
from ..inference.leverage import Diagnostics
from ..inference.steps import Line, RobustFit, finish
from ..inference.table import Summary
from .fitted import FORMATS
from .linear import AoRRLinear, Rows, check_loss, clean_rows, group_codes, numeric_target, weights_of
from .streamed import ScoresRows, by_chunks
from .summaries import diagnose, prediction_error, robust_summary, standardised, warn_of_constant_columns
from .weights import is_whole


def _of_fit(name: str, meaning: str) -> property:
    """An attribute of the robust fit, as it was saved or, if it was not, computed when first used."""

    def read(self: AoRRRegressor) -> Any:
        saved = getattr(self, "_saved", {})
        return saved[name] if name in saved else getattr(self._robust(), name)

    return property(read, doc=meaning)


class AoRRRegressor(ScoresRows, RegressorMixin, AoRRLinear):
    """Linear regression that ignores the training rows it fits worst.

    The objective is C times the sum of the training losses ranked m+1 to k, plus ||coef||^2 / 2; the intercept is not
    penalised. With loss="squared" the fit equals scikit-learn's Ridge(alpha=1 / (2 C)) on the kept rows, and with k=1.0
    and C=inf it is least trimmed squares (LTS). `summary()` gives standard errors, tests and intervals, and
    `diagnostics()` classifies each row as regular, outlier or leverage point.

    Parameters
    ----------
    m : "auto", "half", int, float or RankedRange, default="auto"
        How many of the largest losses to drop, as in `AoRRClassifier`. "auto" scores by a squared error capped at three
        robust standard deviations. "half" keeps floor((n + p + 1) / 2) rows, for p coefficients with the intercept,
        which tolerates the largest possible share of outliers.
    k : "auto", int or float, default="auto"
        The last rank to keep, as in `AoRRClassifier`.
    loss : {"squared", "absolute", "huber"}, default="squared"
        The loss of one row with target y and prediction z: (y - z)^2, |y - z|, or the Huber loss with threshold 1.
    C, fit_intercept : object
        As in `AoRRClassifier`.
    n_starts : int, default=10
        Number of random starts. With loss="squared", k=1.0, dense X and no sample_weight, each of them
        is replaced by 50 fits to as many random rows as there are coefficients (elemental starts).
    max_iter, tol : object
        As in `AoRRClassifier`.
    step : None, "reweight" or "mm", default=None
        A step after the trimmed fit, which makes `coef_` more efficient. "reweight" is least squares on the rows within
        2.24 robust standard deviations of the trimmed fit, "mm" an MM-estimate (Tukey's bisquare) with an efficiency of
        95% for normal errors, which tolerates as many outliers as the trimmed fit. Both need loss="squared", k=1.0,
        l1_ratio=0, aggregate=None, dense X and integer sample weights, which repeat rows.
    random_state, n_jobs, aggregate, l1_ratio : object
        As in `AoRRClassifier`, without "per-class"; l1_ratio needs loss="squared" or "huber".

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_features,) and float
        Weights of the features, and the intercept.
    m_, k_, C_, lam_, lam_hat_, dropped_, objective_, certificate_, converged_, n_iter_, message_, history_, path_
        As in `AoRRClassifier`; n_iter_ is an int, as in scikit-learn's regressors.
    noise_estimate_, noise_interval_ : float and pair of float
        The estimated share of outliers and its 95% interval; only if m or k was chosen.
    raw_coef_, raw_intercept_ : ndarray of shape (n_features,) and float
        Coefficients of the trimmed fit, to which `objective_` and `dropped_` refer; only with a `step`.
    groups_ : dict
        As in `AoRRClassifier`, without accuracies.
    scale_, raw_scale_ : float
        The robust standard deviation of the errors under the final and under the trimmed fit. These and the attributes
        below need loss="squared", k=1.0, l1_ratio=0, dense X and no sample_weight, and are computed when first used. A
        loaded model has only `scale_`, `raw_scale_`, `bse_` and `cov_`, if they were computed before it was saved.
    bse_ : ndarray of shape (n_features,) or (n_features + 1,)
        Standard errors by the sandwich formula, the intercept's last; `cov_` is the covariance matrix.
    weights_ : ndarray of shape (n_samples,)
        Weights of the training rows: 0 if the residual exceeds 2.24 times the scale and 1 otherwise; Tukey's
        bisquare weights for an MM-estimate.
    support_, residuals_ : ndarray of bool and of float of shape (n_samples,)
        The rows that `coef_` was fitted to, and the residuals divided by `scale_`.

    References
    ----------
    Rousseeuw and Van Driessen, "Computing LTS regression for large data sets", DMKD 12 (2006).

    Hu, Ying, Wang and Lyu, "Sum of Ranked Range Loss for Supervised Learning", JMLR 23 (2022).

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import AoRRRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1))
    >>> y = 3.0 * X[:, 0] + 0.1 * rng.normal(size=100)
    >>> y[:10] = 100.0  # ten values are wrong
    >>> model = AoRRRegressor(m=0.1, k=1.0, random_state=0).fit(X, y)
    >>> round(float(model.coef_[0]), 1), int(model.dropped_[:10].sum())
    (3.0, 10)
    """

    _efficiency = 0.95  # of an MM-estimate for normal errors; `rankrange.regression.mm` may set another
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **AoRRLinear._parameter_constraints,
        "m": [RankedRange, Real, StrOptions({"auto", "half"})],
        "step": [None, StrOptions({"reweight", "mm"})],
    }
    _l1_losses = ("squared", "huber")

    def __init__(
        self,
        m: Any = "auto",
        k: Any = "auto",
        *,
        loss: str = "squared",
        C: Any = 1.0,
        fit_intercept: bool = True,
        n_starts: int = 10,
        max_iter: int = 200,
        tol: float = 1e-6,
        step: str | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        aggregate: Any = None,
        l1_ratio: float = 0.0,
    ) -> None:
        self.m = m
        self.k = k
        self.loss = loss
        self.C = C
        self.fit_intercept = fit_intercept
        self.n_starts = n_starts
        self.max_iter = max_iter
        self.tol = tol
        self.step = step
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.aggregate = aggregate
        self.l1_ratio = l1_ratio

    def _validated(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any, groups: Any) -> Rows:
        X, y = validate_data(self, X, numeric_target(y), y_numeric=True, ensure_min_samples=2, **FORMATS)
        clean = clean_rows(self, X_val, y_val, X.dtype)
        if clean is not None:
            clean = clean[0], np.asarray(clean[1], dtype=X.dtype)
        weight = weights_of(sample_weight, X)
        return Rows(X, y.astype(X.dtype, copy=False), weight, None, group_codes(groups, X), clean)

    def _loss(self) -> tuple[Any, int]:
        known = losses_for("numbers")
        check_loss(self.loss, known)
        return known[self.loss](), 1

    def _solve(self, rows: Rows) -> None:
        n = rows.X.shape[0] if rows.weight is None or not is_whole(rows.weight) else int(rows.weight.sum())
        self._shape = n, rows.X.shape[1]
        self._check_fit(rows)
        super()._solve(rows)

    def _finish(self, rows: Rows) -> None:
        super()._finish(rows)
        if self.step is not None:
            self._take_step(rows)
        warn_of_constant_columns(self, rows.X)

    def _take_step(self, rows: Rows) -> None:
        """Replace the trimmed coefficients by those of the step. Weights repeat rows; of such a fit scales are kept."""
        if rows.weight is not None:
            times = rows.weight.astype(np.intp)
            self._training = np.repeat(rows.X, times, axis=0), np.repeat(rows.y, times)
        fit = self._robust()
        self.raw_coef_, self.raw_intercept_ = self.coef_, self.intercept_
        self._store_coefficients(fit.W, rows.X.dtype)
        if rows.weight is not None:
            del self._training, self._finished

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the training rows and their residuals and weights. A saved model contains no data.

        Scales and covariance are kept if they were computed.
        """
        return {name: value for name, value in super().__getstate__().items() if name != "_finished"}

    def _range(self) -> RankedRange:
        if not (isinstance(self.m, str) and self.m == "half"):
            return super()._range()
        if not hasattr(self, "_shape"):
            raise ValueError(
                "m='half' depends on the number of rows, which is not known here; pass a fraction such as m=0.5"
            )
        n, d = self._shape
        h = factors.half(n, d + bool(self.fit_intercept))
        return RankedRange((n - h) / n, 1.0 if self.k == "auto" else self.k)

    def _check_fit(self, rows: Rows) -> None:
        """Raise an error if `step`, or m without a penalty, does not suit the data or the other parameters."""
        n, p = self._shape[0], self._shape[1] + bool(self.fit_intercept)
        m, k = self._range().counts(n) if is_whole(rows.weight) else (0, n)
        if np.inf == self.C and n - m <= p < n:
            raise ValueError(
                f"C=inf has no penalty, so more than {p} rows must be kept to fit {p} coefficients, got m={self.m!r} "
                f"of {n} rows; lower m, leave out columns, or pass a finite C"
            )
        if self.step is None:
            return
        rules = {
            "loss='squared'": (self.loss == "squared", f"loss={self.loss!r}"),
            "k=1.0": (k == n, f"k={self.k!r}"),
            "l1_ratio=0": (not self._l1, f"l1_ratio={self.l1_ratio!r}"),
            "aggregate=None": (self.aggregate is None, f"aggregate={self.aggregate!r}"),
            "dense X": (not sp.issparse(rows.X), "a sparse matrix"),
            "integer weights": (is_whole(rows.weight), "sample_weight with fractions"),
        }
        broken = [(rule, given) for rule, (holds, given) in rules.items() if not holds]
        if broken:
            needed, given = (", ".join(side) for side in zip(*broken, strict=True))
            raise ValueError(f"step={self.step!r} needs {needed}, got {given}; change that, or use step=None")

    def _robust(self) -> RobustFit:
        """Scale, covariance and weights of the final fit, computed once; an AttributeError without training rows."""
        check_is_fitted(self, "coef_")
        if not hasattr(self, "_finished"):
            training = getattr(self, "_training", None)
            if self.loss != "squared" or training is None or self.k_ != len(training[1]):
                raise AttributeError(
                    "scale and standard errors need the training rows of a fit with loss='squared', k=1.0, l1_ratio=0, "
                    "aggregate=None, dense X and no sample_weight; a model that was loaded or fitted on a device does "
                    "not have them: fit in memory and call summary() before saving"
                )
            X, y = training
            alpha = 0.5 if isinstance(self.m, str) and self.m == "half" else getattr(self, "_alpha", None)
            line = Line(X, y, bool(self.fit_intercept), float(self.C_), np.random.default_rng(0), alpha)
            coef = np.append(self.coef_, self.intercept_) if self.fit_intercept else self.coef_
            W = np.atleast_2d(np.asarray(coef, dtype=np.float64))
            steps = self.step == "reweight", self._efficiency if self.step == "mm" else None, int(self.n_starts)
            fit = self._finished = finish(line, W, self._kept(), *steps)
            self._saved = {"scale": fit.scale, "raw_scale": fit.raw_scale, "covariance": fit.covariance}
        return self._finished

    def _kept(self) -> Array:
        """Mask of the n - m rows with the smallest losses; the first ones if rows are tied at the cut."""
        X, y = self._training
        order = np.argsort(np.abs(y - (X @ self.coef_ + self.intercept_)), kind="stable")
        kept = np.zeros(len(y), dtype=bool)
        kept[order[: len(y) - int(self.m_)]] = True
        return kept

    scale_ = _of_fit("scale", "The robust standard deviation of the errors.")
    raw_scale_ = _of_fit("raw_scale", "The robust standard deviation of the errors under the trimmed fit.")
    cov_ = _of_fit("covariance", "The covariance of the coefficients, the intercept last, by the sandwich formula.")
    weights_ = _of_fit("weights", "The weight of each training row in [0, 1].")
    support_ = _of_fit("support", "Mask of the training rows that the coefficients were fitted to.")

    @property
    def bse_(self) -> Array:
        """Standard errors of the coefficients, the intercept's last."""
        return np.sqrt(np.diag(self.cov_))

    @property
    def residuals_(self) -> Array:
        """Residuals of the training rows in robust standard deviations; 0 or infinite after an exact fit."""
        return standardised(self._robust().residuals, self._robust().scale)

    def summary(self, level: float = 0.95, *, errors: str = "auto") -> Summary:
        """Coefficients with standard errors, t tests and confidence intervals, of a fit in this process.

        It needs a fit with loss="squared", k=1.0, l1_ratio=0, dense X and no sample_weight.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level of the intervals.
        errors : {"auto", "sandwich", "bootstrap"}, default="auto"
            How standard errors are estimated. "bootstrap" is the fast and robust bootstrap of the estimating equations,
            "sandwich" the formula behind `bse_`. "auto" uses the bootstrap for up to 200 rows.

        Returns
        -------
        Summary
            Prints as a table; `to_frame()` gives a DataFrame.

        Examples
        --------
        >>> import numpy as np
        >>> from rankrange import AoRRRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 1))
        >>> y = 1.0 + 3.0 * X[:, 0] + rng.normal(size=60)
        >>> y[:10] = 100.0
        >>> model = AoRRRegressor("half", C=np.inf, step="mm", random_state=0).fit(X, y)
        >>> low, high = model.summary().conf_int()[1]
        >>> bool(low < 3.0 < high)
        True
        """
        return robust_summary(self, level, errors)

    def diagnostics(self, X: Any = None, y: Any = None) -> Diagnostics:
        """Residuals, robust distances and the kind of each row: regular, outlier, or good or bad leverage point.

        Parameters
        ----------
        X, y : array_like, optional
            The rows to classify; by default the training rows.

        Returns
        -------
        Diagnostics
            The result, with `kinds`, `counts` and `to_frame()`.

        Examples
        --------
        >>> import numpy as np
        >>> from rankrange import AoRRRegressor
        >>> x = np.arange(40.0)
        >>> y = 2 * x + np.sin(9 * x)
        >>> x[0], y[1] = 500.0, 60.0  # one row far out in x, one off in y
        >>> found = AoRRRegressor("half", C=np.inf, step="reweight", random_state=0).fit(x[:, None], y).diagnostics()
        >>> [str(kind) for kind in found.kinds[:3]]
        ['bad leverage point', 'vertical outlier', 'regular']
        """
        if (X is None) != (y is None):
            raise ValueError("diagnostics needs X and y together, got one of them; pass both or neither")
        if X is None:
            self._robust()
            X, y = self._training
        else:
            X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return diagnose(self, X, np.asarray(y, dtype=np.float64))

    def _store_coefficients(self, W: Array, dtype: Any) -> None:
        super()._store_coefficients(W, dtype)
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.step is None
        return tags

    @by_chunks
    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict the targets of the rows of X.

        Parameters
        ----------
        X : array_like, sparse matrix of shape (n_samples, n_features), scan, Dask collection or tensor
            The rows.
        return_std : bool, default=False
            Whether to return the standard deviation of a new target around each prediction as well. It combines the
            standard deviation of the errors (`scale_`, whose settings it needs) and the standard error of the fit.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            The predicted targets.
        std : ndarray of shape (n_samples,)
            The standard deviations, only if `return_std` is True.
        """
        predicted = self._linear(X)[:, 0]
        return (predicted, prediction_error(self, X)) if return_std else predicted
