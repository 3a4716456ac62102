"""`summary()` of AoRRClassifier: a logistic fit of two classes with its standard errors."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..inference.table import Summary
from ..inference.trimmed_logistic import trimmed_covariance
from .linear import AoRRLinear
from .robust_line import feature_names


class AoRRLogistic(AoRRLinear):
    """`AoRRLinear` with a summary for logistic regression with two classes."""

    def summary(self, level: float = 0.95) -> Summary:
        """Coefficients with standard errors, z tests and confidence intervals.

        If rows were dropped, an interval covers both extremes: the coefficient itself, which is correct if every
        dropped label is wrong, and the coefficient times `temperature_`, which is correct if none is.

        It needs a fit of two classes with loss="logistic", k=1.0, l1_ratio=0, dense X and no sample_weight, and is not
        available for a model that was loaded.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level of the intervals.

        Returns
        -------
        Summary
            Prints as a table; `to_frame()` gives a DataFrame.

        Examples
        --------
        >>> import numpy as np
        >>> from rankrange import AoRRClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1))
        >>> y = X[:, 0] + rng.logistic(size=300) > 0
        >>> print(AoRRClassifier(0, 1.0, C=100.0).fit(X, y).summary().coef.round(1))
        [-0.   1.]
        """
        check_is_fitted(self, "coef_")
        if getattr(self, "l1_ratio", 0.0):
            raise AttributeError(
                f"summary has no standard errors for an l1 penalty, got l1_ratio={self.l1_ratio!r}; fit with l1_ratio=0"
            )
        rows = getattr(self, "_training", None)
        if self.loss != "logistic" or len(self.coef_) != 1 or rows is None or self.k_ != len(rows[1]):
            raise AttributeError(
                "summary needs the training rows of a fit of two classes with loss='logistic', k=1.0, dense X and no "
                "weights; a model that was loaded does not have them: call summary() before saving"
            )
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}; 0.95 is usual")
        X, y = rows
        Z = np.column_stack([X, np.ones(len(y))]) if self.fit_intercept else np.asarray(X)
        b = np.append(self.coef_[0], self.intercept_) if self.fit_intercept else self.coef_[0]
        penalty = np.append(np.full(X.shape[1], 1 / self.C_), [0.0] * bool(self.fit_intercept))
        covariance = trimmed_covariance(Z.astype(np.float64), y, b.astype(np.float64), ~self.dropped_, penalty)
        bse, names = np.sqrt(np.diag(covariance)), feature_names(self)
        if self.fit_intercept:
            b, bse, names = np.roll(b, 1), np.roll(bse, 1), ("Intercept", *names)
        facts = {
            "rows": f"{len(y):,}",
            "rows dropped": f"{np.count_nonzero(self.dropped_):,}",
            "positive class": str(self.classes_[1]),
            "temperature": f"{self.temperature_:.3f}",
        }
        return Summary(
            "Trimmed logistic regression" if self.m_ else "Logistic regression",
            names,
            b.astype(np.float64),
            bse,
            np.inf,
            facts,
            self._notes(),
            level,
            other=self.temperature_ * b,
        )

    def _notes(self) -> tuple[str, ...]:
        notes = [f"Penalised with C={self.C_:g}; intervals are for the penalised coefficients."]
        if self.m_:
            notes.append(
                "Dropping correct labels makes coefficients too large. Intervals cover both extremes: temperature x "
                "coefficient (no dropped label is wrong) and the coefficient itself (all are wrong)."
            )
        return tuple(notes)
