"""AoRRRegressor: linear regression trained on a ranked range of its losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, validate_data

from ..core.arrays import Array
from ..core.losses import Absolute, Huber, Squared
from ..core.objective import Design
from .linear import AoRRLinear, clean_rows


class AoRRRegressor(RegressorMixin, AoRRLinear):
    """Linear regression that keeps the training losses ranked m+1..k; with loss="squared", k=1.0 least trimmed squares.

    It minimises C times the sum of the kept losses + ||coef||^2 / 2: with loss="squared" that is scikit-learn's
    Ridge(alpha=1 / (2 C)) on the rows it keeps. loss is "squared", (y - z)^2; "absolute", |y - z|; or "huber",
    (y - z)^2 / 2 within 1 of y and linear beyond. The other parameters and the attributes are those of
    `AoRRClassifier`.
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> AoRRRegressor:
        """Fit to the rows of X (dense or sparse) and their targets y; X_val and y_val are rows without outliers."""
        self._check_params()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        clean = clean_rows(self, X_val, y_val, X.dtype)
        if clean is not None:
            clean = clean[0], np.asarray(clean[1], dtype=X.dtype)
        self._solve(X, y.astype(X.dtype, copy=False), weight, self._loss(), 1, clean)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> AoRRRegressor:
        """Learn from one more part of a stream. m and k must be fractions."""
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
        return self._linear(X)[:, 0]
