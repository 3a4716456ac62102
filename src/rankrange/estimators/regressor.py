"""AoRRRegressor: linear regression trained on a ranked range of its losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, validate_data

from ..core.arrays import Array
from ..core.losses import Absolute, Huber, Squared
from ..core.objective import Design
from ..core.threads import threads_for
from .linear import AoRRLinear, clean_rows, fitted_elsewhere, group_codes
from .on_scans import ScoresScans


class AoRRRegressor(ScoresScans, RegressorMixin, AoRRLinear):
    """Linear regression that ignores the training rows it fits worst.

    It keeps the training losses ranked m+1 to k: C times the sum of the kept losses + ||coef||^2 / 2 is minimised,
    where the intercept is not penalised. With loss="squared" this is scikit-learn's Ridge(alpha=1 / (2 C)) on the rows
    it keeps, and with k=1.0 least trimmed squares.

    Parameters
    ----------
    m : "auto", int, float or RankedRange, default="auto"
        How many of the largest losses to drop: a count, or a fraction of the training rows. "auto" chooses it by
        cross-validation, by a squared error that stops growing at three robust standard deviations, and drops nothing
        unless that shows a gain. A RankedRange stands for m and k together.
    k : "auto", int or float, default="auto"
        The last rank that is kept, as a count or a fraction. "auto" is all rows, or what a clean validation set says.
    loss : {"squared", "absolute", "huber"}, default="squared"
        What one row costs: (y - z)^2; |y - z|; or (y - z)^2 / 2 within 1 of y and linear beyond.
    C : float or "auto", default=1.0
        Inverse strength of the penalty. "auto" chooses it among 0.001 to 100 on the folds that also choose m.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    solver : {"auto", "dca", "subgradient", "bilevel"}, default="auto"
        As in `AoRRClassifier`; "auto" ends with a certificate.
    n_starts : int, default=10
        How many random starts "auto" tries.
    max_iter : int, default=200
        How many iterations there are at most.
    tol : float, default=1e-6
        The relative duality gap to reach.
    random_state : int, RandomState or None, default=None
        A seed for starts and folds.
    n_jobs : int or None, default=None
        Threads that the fits behind "auto" are shared among.
    verbose : int, default=0
        1 prints progress.
    warm_start : bool, default=False
        Whether to start from the last solution too.
    operations : None, pair of float or pair of callable, default=None
        How a clean validation set gives the two cuts; see `AoRRClassifier`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the features.
    intercept_ : float
        The intercept.
    m_, k_, C_, lam_, lam_hat_, dropped_, objective_, certificate_, converged_, n_iter_, message_, history_, tuning_
        As in `AoRRClassifier`.
    noise_estimate_, noise_interval_ : float and pair of float
        Where m or k was chosen: the estimated share of outliers and its 95% interval.

    References
    ----------
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

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        groups: Any = None,
    ) -> AoRRRegressor:
        """Fit the model to training rows.

        Parameters
        ----------
        X : array_like, sparse matrix of shape (n_samples, n_features), or shards
            The rows; from `rankrange.scan` they bring their targets and weights themselves.
        y : array_like of shape (n_samples,)
            Their targets, numbers.
        sample_weight : array_like of shape (n_samples,), optional
            A whole weight is a repetition: weight 2 equals the row twice. Other weights are relative: with m="auto" a
            common factor changes nothing, and C is about weights that average one (docs/auto.md).
        X_val, y_val : array_like, optional
            Rows without outliers; what is "auto" of m and k is then learnt from their losses.
        groups : array_like of shape (n_samples,), optional
            The group of each row, such as the patient: where m or C is chosen, no group is on both sides of a fold.

        Returns
        -------
        AoRRRegressor
            The fitted model itself.
        """
        if fitted_elsewhere(self, X, y, sample_weight, X_val, y_val, groups):
            return self
        self._check_params()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        clean = clean_rows(self, X_val, y_val, X.dtype)
        if clean is not None:
            clean = clean[0], np.asarray(clean[1], dtype=X.dtype)
        with threads_for(X):
            self._solve(X, y.astype(X.dtype, copy=False), weight, self._loss(), 1, clean, None, group_codes(groups, X))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> AoRRRegressor:
        """Learn from one more part of a stream; m and k must be fractions, and C is relative to the rows seen so far.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n_samples, n_features)
            The next rows.
        y : array_like of shape (n_samples,)
            Their targets.
        sample_weight : array_like of shape (n_samples,), optional
            How often each row counts.

        Returns
        -------
        AoRRRegressor
            The model itself.
        """
        self._check_params()
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            y_numeric=True,
            reset=not hasattr(self, "stream_"),
        )
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self._learn(X, y.astype(X.dtype, copy=False), weight, self._loss(), 1)
        return self

    def _loss(self) -> Any:
        losses = {"squared": Squared, "absolute": Absolute, "huber": Huber}
        if self.loss not in losses:
            raise ValueError(f"loss must be one of {', '.join(losses)}, got {self.loss!r}")
        return losses[self.loss]()

    def _store_weights(self, W: Array, design: Design) -> None:
        self.coef_ = W[0, : design.d].astype(design.X.dtype)
        self.intercept_ = float(W[0, -1]) if design.fit_intercept else 0.0

    def predict(self, X: Any) -> Array:
        """Predicted targets (n,) of the rows of X."""
        return self._linear(X)[:, 0]
