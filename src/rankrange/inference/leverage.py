"""Diagnostics of rows: outliers by their residuals, and leverage points by the robust distances of their features."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import chi2
from sklearn.covariance import MinCovDet

from ..core.arrays import Array
from ..errors import import_pandas

KINDS = ("regular", "vertical outlier", "good leverage point", "bad leverage point")
# The covariance of the features is estimated on at most this many rows.
_ENOUGH = 2_000
# The number of outliers that printed diagnostics list.
_LISTED = 10


@dataclass(frozen=True, eq=False, repr=False)
class Diagnostics:
    """Residual, robust distance and kind of each row; print it for the counts and the largest outliers.

    Parameters
    ----------
    residuals : ndarray of shape (n,)
        Residuals in robust standard deviations.
    distances : ndarray of shape (n,)
        Robust Mahalanobis distances of the features.
    fitted : ndarray of shape (n,)
        Predicted targets.
    residual_cut, distance_cut : float
        Cut-offs for outliers and for leverage points, which 2.5% of regular normal rows exceed.
    """

    residuals: Array
    distances: Array
    fitted: Array
    residual_cut: float
    distance_cut: float

    @property
    def kinds(self) -> Array:
        """The kind of each row: one of "regular", "vertical outlier", "good leverage point", "bad leverage point"."""
        off, far = np.abs(self.residuals) > self.residual_cut, self.distances > self.distance_cut
        return np.array(KINDS)[off + 2 * far]

    @property
    def counts(self) -> dict[str, int]:
        """How many rows are of each kind."""
        kinds = self.kinds
        return {kind: int(np.count_nonzero(kinds == kind)) for kind in KINDS}

    def __str__(self) -> str:
        kinds, size = self.kinds, np.abs(self.residuals)
        lines = [f"{count:>7,}  {kind}" for kind, count in self.counts.items()]
        lines += [f"residuals beyond {self.residual_cut:.2f} scales, robust distances beyond {self.distance_cut:.2f}"]
        worst = [i for i in np.argsort(-size, kind="stable")[:_LISTED] if size[i] > self.residual_cut]
        if worst:
            lines += ["largest residuals:", "    row  residual (in scales)  distance  kind"]
        lines += [f"{i:7d}  {self.residuals[i]:20.2f}  {self.distances[i]:8.2f}  {kinds[i]}" for i in worst]
        return "\n".join([f"{len(kinds):,} rows", *lines])

    __repr__ = __str__

    def to_frame(self) -> Any:
        """A pandas DataFrame with the kind, residual (in robust scales), distance and fitted value of each row."""
        return import_pandas("to_frame()").DataFrame(
            {"kind": self.kinds, "residual": self.residuals, "distance": self.distances, "fitted": self.fitted}
        )


def robust_distances(X: Array, seed: int = 0) -> tuple[Array, float]:
    """Mahalanobis distances (n,) by the minimum covariance determinant, and the cut that 2.5% of normal rows exceed.

    Columns with one value in half of the rows have no robust scale and are left out, and so are directions in which the
    central half of the rows does not vary. Without a column, or with too few rows, all distances are 0 and the cut is
    infinite. The covariance is estimated on at most 2000 rows.
    """
    X = np.asarray(X, dtype=np.float64)
    rng = np.random.default_rng(seed)
    sample = X if len(X) <= _ENOUGH else X[rng.choice(len(X), _ENOUGH, replace=False)]
    centre = np.median(sample, axis=0)
    spread = np.median(np.abs(sample - centre), axis=0)
    X, sample = ((part[:, spread > 0] - centre[spread > 0]) / spread[spread > 0] for part in (X, sample))
    if sample.shape[1] == 0 or len(sample) < 2 * sample.shape[1] + 2:
        return np.zeros(len(X)), np.inf
    central = sample[(length := np.linalg.norm(sample, axis=1)) <= np.median(length)]
    _, s, V = np.linalg.svd(central - central.mean(axis=0), full_matrices=False)
    T = V[s > 1e-8 * s.max(initial=0.0)].T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the caller cannot act on its warnings about ties and few rows
        found = MinCovDet(random_state=seed).fit(sample @ T)
    distance = np.sqrt(np.maximum(found.mahalanobis(X @ T), 0.0))
    return distance, float(np.sqrt(chi2.ppf(0.975, T.shape[1])))
