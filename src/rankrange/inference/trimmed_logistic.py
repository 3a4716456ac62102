"""Standard errors of a trimmed logistic regression of two classes.

The usual formula on the kept rows is wrong: a change of the coefficients moves rows across the cut, which makes the
objective flatter, and the cut itself is an estimate. Both effects follow from the density of the losses at the cut.

Trimming is also inconsistent for the logistic model, because it drops correct labels that are unlikely. If no label is
wrong, the coefficients are too large by the factor 1 / `temperature_`, an attribute of the classifier; if every dropped
label is wrong, they are correct. The truth lies between, so intervals cover both.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..core.arrays import Array
from ..solvers.descent import bounded_difference

# At least this share of the curvature of the kept rows remains, because the density is only an estimate.
_LEFT = 0.25


def trimmed_covariance(Z: Array, y: Array, b: Array, kept: Array, penalty: Array) -> Array:
    """The sandwich covariance (p, p) of the coefficients b (p,) of the rows Z (n, p).

    y is -1 or 1, `kept` is a mask (n,), and `penalty` (p,) is the second derivative of the penalty.
    """
    n, p = Z.shape
    margin = y * (Z @ b)
    wrong = expit(-margin)
    slopes = -(y * wrong)[:, None] * Z
    H = (Z * (kept * wrong * (1 - wrong))[:, None]).T @ Z + np.diag(penalty)
    scores = slopes * kept[:, None]
    if not kept.all():
        flat, mean = _at_cut(np.logaddexp(0.0, -margin), slopes, int(np.count_nonzero(~kept)))
        H = bounded_difference(H, flat, _LEFT)
        scores = scores - np.outer(kept - kept.mean(), mean)
    scores = scores - scores.mean(axis=0)
    bread = np.linalg.inv(H)
    return bread @ (scores.T @ scores) @ bread * n / max(n - p, 1)


def _at_cut(losses: Array, slopes: Array, dropped: int) -> tuple[Array, Array]:
    """The curvature (p, p) lost to rows that cross the cut, and the mean gradient (p,) of the rows near the cut.

    The curvature is 0 if the losses near the cut are all equal.
    """
    n = len(losses)
    reach = max(5, round(0.5 * n**0.8))
    order = np.argsort(-losses, kind="stable")
    near = order[max(dropped - reach, 0) : dropped + reach]
    width = float(losses[near].max() - losses[near].min())
    g = slopes[near]
    mean = g.mean(axis=0)
    if width <= 0:
        return np.zeros((g.shape[1], g.shape[1])), mean
    return (g - mean).T @ (g - mean) / width, mean
