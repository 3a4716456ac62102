"""AoRRRegressor: linear regression trained on a ranked range of its losses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, validate_data

from ..core.losses import Absolute, Huber, Squared
from ..core.objective import Design
from .linear import AoRRLinear, clean_rows, fitted_elsewhere

Array = NDArray[Any]


class AoRRRegressor(RegressorMixin, AoRRLinear):
    """Linear regression that keeps the training losses ranked m+1..k; with loss="squared", k=1.0 least trimmed squares.

    It minimises the average of the kept losses + ||coef||^2 / (2 C). loss is "squared", (y - z)^2; "absolute",
    |y - z|; or "huber", (y - z)^2 / 2 within 1 of y and linear beyond. The other parameters and the attributes are
    those of `AoRRClassifier`.
    """

    def __init__(
        self,
        m: Any = "auto",
        k: Any = "auto",
        *,
        loss: str = "squared",
        C: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        n_starts: int = 10,
        max_iter: int = 200,
        tol: float = 1e-6,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        operations: Any = None,
    ) -> None:
        super().__init__(
            m,
            k,
            loss=loss,
            C=C,
            fit_intercept=fit_intercept,
            solver=solver,
            n_starts=n_starts,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
            warm_start=warm_start,
            operations=operations,
        )

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None
    ) -> AoRRRegressor:
        """Fit to the rows of X (dense or sparse) and their targets y; X_val and y_val are rows without outliers.

        X may also be rows beyond memory, from `rankrange.scan`, which hold their targets and weights themselves.
        """
        if fitted_elsewhere(self, X, y, sample_weight, X_val, y_val):
            return self
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
