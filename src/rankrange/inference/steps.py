"""Inference after a trimmed fit: scale, reweighted or MM coefficients, weights and covariance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from ..core.arrays import Array
from ..solvers.elemental import TrimmedSquares
from ..solvers.least_trimmed import Coordinates
from . import factors
from .bisquare import constant_of, weight
from .bootstrap import resampled_mm, resampled_reweighted, resampled_trimmed
from .influence import after_reweighting, after_trimming, mm_covariance
from .mm import m_estimate, s_estimate

# A regular row lies within this many standard deviations with probability 97.5%.
CUT = float(norm.ppf(0.9875))


@dataclass(frozen=True, eq=False)
class RobustFit:
    """One robust linear fit with its scale and its precision, in the units of the data.

    `method` is "LTS", "reweighted LTS", "MM", "least squares" or "exact fit". W (1, p) has the intercept last. `scale`
    and `raw_scale` are those of the residuals of the final (for "MM" of the S-estimate) and of the trimmed fit.
    `weights` (n,) are 1 or 0, or Tukey's for "MM"; `support` masks the rows that W was fitted to. `covariance` (p, p)
    is the sandwich estimate, NaN for coefficients that are not identified. `rank` is the number of independent columns.
    `resample` maps the counts of drawn rows (samples, n) to deviations of the coefficients (samples, p).
    """

    method: str
    W: Array
    scale: float
    raw_scale: float
    weights: Array
    support: Array
    residuals: Array
    covariance: Array
    rank: int
    resample: Callable[[Array], Array]


class Line:
    """The rows of a fit, transformed to nearly orthogonal columns. All steps use these coordinates.

    C is that of scikit-learn, and `alpha` the share of rows to keep that the user gave, or None. `rank` is the number
    of these columns, `slopes` that without the intercept.
    """

    def __init__(
        self, X: Array, y: Array, fit_intercept: bool, C: float, rng: np.random.Generator, alpha: float | None = None
    ) -> None:
        self.at = Coordinates(X, fit_intercept, rng)
        self.y, self.rng = y.astype(np.float64), rng
        self.Z, self.P = self.at.rows(slice(None)), self.at.penalty(C)
        self.n, self.rank = self.Z.shape
        self.problem = TrimmedSquares(self.Z, self.y, self.n, self.P)
        self.slopes, self.alpha = self.rank - fit_intercept, alpha

    def small_sample(self, h: int, *, reweighted: bool) -> float:
        """The small-sample correction factor of the scale, for h kept rows."""
        alpha = factors.share_of(h, self.n, self.rank) if self.alpha is None else self.alpha
        return factors.small_sample(self.n, self.slopes, self.at.fit_intercept, alpha, reweighted=reweighted)

    def to_given(self) -> Array:
        """The matrix (p, rank) that maps coefficients to those of the original columns; NaN if not identified."""
        J = np.column_stack([self.at.as_given(unit)[0] for unit in np.eye(self.rank)])
        J[~self.at.identified()] = np.nan
        return J

    def in_units(self, covariance: Array) -> Array:
        """The covariance of the coefficients of the original columns."""
        J = self.to_given()
        return J @ covariance @ J.T


def finish(rows: Line, W: Array, kept: Array, reweight: bool, efficiency: float | None, n_starts: int) -> RobustFit:
    """The final fit with scale, weights and covariance, from the trimmed fit W and the mask of its kept rows.

    It is the MM fit if `efficiency` is given, otherwise the reweighted fit if `reweight` is True, otherwise W itself.
    If the scale is 0, it is an exact fit. `n_starts` is that of the S-estimate of the MM fit.
    """
    b, h = rows.at.inside(W), int(np.count_nonzero(kept))
    r = rows.y - rows.Z @ b
    raw_scale = _raw_scale(rows, r, kept, h)
    if raw_scale <= _rounding(rows.y):
        return _exact_fit(rows, W, r)
    if efficiency is not None:
        return _mm(rows, b, raw_scale, efficiency, n_starts)
    inside = np.abs(r) <= CUT * raw_scale
    core = factors.spread_of_core(r, CUT * raw_scale)
    cut = float(np.abs(r[kept]).max()) / core if h < rows.n else np.inf
    raw = after_trimming(rows.Z, rows.P, r, kept, cut)

    def resample(counts: Array) -> Array:
        return resampled_trimmed(rows.problem, b, kept, cut, counts)

    if reweight:
        return _reweighted(rows, raw_scale, inside, h, core, raw, resample)
    method = "LTS" if h < rows.n else "least squares"
    cov = rows.in_units(_inflated(raw, rows))
    return RobustFit(method, W, raw_scale, raw_scale, inside * 1.0, kept, r, cov, rows.rank, _given(rows, resample))


def _given(rows: Line, resample: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda counts: resample(counts) @ rows.to_given().T


def _raw_scale(rows: Line, r: Array, kept: Array, h: int) -> float:
    """The scale of the kept residuals, consistent for normal errors; that of least squares if all rows are kept."""
    total = float(r[kept] @ r[kept])
    if h == rows.n:
        return float(np.sqrt(total / max(rows.n - rows.rank, 1)))
    return float(np.sqrt(total / h) * factors.consistency(h / rows.n) * rows.small_sample(h, reweighted=False))


def _reweighted(
    rows: Line,
    raw_scale: float,
    inside: Array,
    h: int,
    core: float,
    raw: Array,
    resample_raw: Callable[[Array], Array],
) -> RobustFit:
    """Least squares on the rows `inside` 2.24 raw scales. Its own scale then determines the weights of all rows.

    Of the trimmed fit, h is the number of kept rows, `core` the `spread_of_core`, and `raw` (n, p) the influence.
    """
    b = rows.problem.fit(inside[None])[0]
    r = rows.y - rows.Z @ b
    count = int(np.count_nonzero(inside))
    scale = float(np.sqrt(r[inside] @ r[inside] / (count - 1)))
    if count < rows.n:
        scale *= factors.consistency(count / rows.n) * rows.small_sample(h, reweighted=True)
    cut = CUT * raw_scale / core
    cov = rows.in_units(_inflated(after_reweighting(rows.Z, rows.P, r, inside, cut, raw), rows))
    weights = (np.abs(r) <= CUT * scale) * 1.0
    W = rows.at.as_given(b)

    def resample(counts: Array) -> Array:
        return resampled_reweighted(rows.problem, b, inside, cut, resample_raw(counts), counts)

    return RobustFit("reweighted LTS", W, scale, raw_scale, weights, inside, r, cov, rows.rank, _given(rows, resample))


def _mm(rows: Line, b: Array, raw_scale: float, efficiency: float, n_starts: int) -> RobustFit:
    """The MM-estimate: an S-estimate that starts at the trimmed fit, then an M-estimate; an exact fit if scale is 0."""
    c = constant_of(efficiency)
    first = s_estimate(rows.problem, b, rows.rng, n_starts)
    if first.scale <= _rounding(rows.y):
        return _exact_fit(rows, rows.at.as_given(first.b), rows.y - rows.Z @ first.b)
    b = m_estimate(rows.problem, first, c)
    r = rows.y - rows.Z @ b
    cov = rows.in_units(mm_covariance(rows.Z, rows.P, r, rows.y - rows.Z @ first.b, first.scale, c))
    weights = weight(r / first.scale, c)
    W = rows.at.as_given(b)

    def resample(counts: Array) -> Array:
        return resampled_mm(rows.problem, b, first.b, first.scale, c, counts)

    return RobustFit("MM", W, first.scale, raw_scale, weights, weights > 0, r, cov, rows.rank, _given(rows, resample))


def _exact_fit(rows: Line, W: Array, r: Array) -> RobustFit:
    """The result if the scale is 0, because most rows lie on one hyperplane. All rows off it are outliers."""
    on = np.abs(r) <= 8 * _rounding(rows.y)
    none = rows.in_units(np.zeros((rows.rank, rows.rank)))
    J = rows.to_given()
    return RobustFit(
        "exact fit",
        W,
        0.0,
        0.0,
        on * 1.0,
        on,
        np.where(on, 0.0, r),
        none,
        rows.rank,
        lambda counts: np.zeros((len(counts), rows.rank)) @ J.T,
    )


def _inflated(influence: Array, rows: Line) -> Array:
    """The covariance from the influence of each row, times n / (n - p)."""
    return influence.T @ influence * (rows.n / max(rows.n - rows.rank, 1))


def _rounding(y: Array) -> float:
    """The largest residual that rounding errors of these targets can explain."""
    return float(256 * np.finfo(np.float64).eps * np.abs(y).max(initial=0.0))
