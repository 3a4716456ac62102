"""Standard errors of a trimmed logistic regression of two classes.

The rows that are dropped depend on the coefficients, so the usual formula on the kept rows is wrong twice: moving the
coefficients moves rows across the cut, which flattens the objective, and the cut itself is estimated. Both enter here
by the density of the losses at the cut.

Trimming is not consistent for the logistic model either: of right labels it drops the unlikely ones, and the line
through the rest is too steep. If no label is wrong, the coefficients are those of the model times a factor, of which
the reciprocal is the `temperature_`; if every dropped label is wrong, they are right as they are. The truth lies
between, so the intervals reach over both.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ..core.arrays import Array

# The smallest share of the curvature of the kept rows that may be left: the density is an estimate.
_LEFT = 0.25


def trimmed_covariance(Z: Array, y: Array, b: Array, kept: Array, penalty: Array) -> Array:
    """The sandwich covariance (p, p) of b (p,); y is -1 or 1, `penalty` (p,) the curvature of the penalty."""
    n, p = Z.shape
    margin = y * (Z @ b)
    wrong = expit(-margin)
    slopes = -(y * wrong)[:, None] * Z
    H = (Z * (kept * wrong * (1 - wrong))[:, None]).T @ Z + np.diag(penalty)
    scores = slopes * kept[:, None]
    if not kept.all():
        flat, mean = _at_cut(np.logaddexp(0.0, -margin), slopes, int(np.count_nonzero(~kept)))
        H = _less(H, flat)
        scores = scores - np.outer(kept - kept.mean(), mean)
    scores = scores - scores.mean(axis=0)
    bread = np.linalg.inv(H)
    return bread @ (scores.T @ scores) @ bread * n / max(n - p, 1)


def naive_covariance(Z: Array, y: Array, b: Array, kept: Array, penalty: Array) -> Array:
    """What the usual formula gives on the kept rows, as if they had been all."""
    wrong = expit(-y * (Z @ b))
    return np.linalg.inv((Z * (kept * wrong * (1 - wrong))[:, None]).T @ Z + np.diag(penalty))


def _at_cut(losses: Array, slopes: Array, dropped: int) -> tuple[Array, Array]:
    """The curvature that moving rows undo (p, p), and the mean slope (p,) of the rows near the cut."""
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


def _less(H: Array, flat: Array) -> Array:
    """H - flat, no direction of it below a share of H."""
    values, vectors = np.linalg.eigh(H)
    root = vectors * np.sqrt(np.maximum(values, 1e-300))
    back = np.linalg.inv(root)
    shares, axes = np.linalg.eigh(np.eye(len(H)) - back @ flat @ back.T)
    return root @ (axes * np.maximum(shares, _LEFT)) @ axes.T @ root.T
