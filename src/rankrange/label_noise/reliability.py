"""Reliability curves: the probability that labels agree with a prediction, as a function of its confidence.

A row that is predicted to be of class c has the label c with probability

    q(s) = low + (1 - low - high) p(s),    p(s) = d + (1 - 2 d) sigmoid(a s + b),

where s is its confidence, p(s) the probability that c is its true class, `high` the rate at which labels of true class
c are wrong, and `low` the rate at which labels of other classes become c. The share d of surprises, which no feature
explains, bounds the evidence of a single label. All hypotheses about `high` are fitted together by damped Newton steps;
the evidence of each integrates over a and b by Laplace's method.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from ..core.arrays import Array

# The number of groups of rows with similar confidence, enough for curves with two parameters.
_GROUPS = 40
# Newton steps end when no hypothesis gains more log likelihood than this, which changes no p_wrong visibly.
_LEAST_GAIN = 1e-3


class Groups(NamedTuple):
    """Rows grouped by confidence: the mean confidence, and the weights of agreeing and disagreeing labels."""

    confidence: Array
    agree: Array
    disagree: Array

    @classmethod
    def of(cls, confidence: Array, agree: Array, weight: Array) -> Groups:
        """Divide the rows, in the order of their confidence, into at most 40 groups of about equal mass.

        Rows with equal confidence stay together.
        """
        values, value_of = np.unique(confidence, return_inverse=True)
        total, agreeing = (np.bincount(value_of, part, len(values)) for part in (weight, weight * agree))
        # Rounding errors of the sum must not move a value across the edge of a group.
        group = np.ceil(_GROUPS * np.cumsum(total) / max(float(weight.sum()), 1e-300) - 1e-9)
        first = np.flatnonzero(np.diff(group, prepend=-1))
        mean = np.add.reduceat(total * values, first) / np.maximum(np.add.reduceat(total, first), 1e-300)
        total, agreeing = np.add.reduceat(total, first), np.add.reduceat(agreeing, first)
        used = total > 0.0
        return cls(mean[used], agreeing[used], (total - agreeing)[used])


class Curves(NamedTuple):
    """For each hypothesis the log of a (`scale`), the shift b and the log evidence; and the share of surprises.

    The log evidence lacks the normalising constant of the prior, -log(scale_sd * shift_sd).
    """

    scale: Array
    shift: Array
    evidence: Array
    surprises: float

    def true(self, hypothesis: int, confidence: Array) -> Array:
        """The probability that the predicted class is the true one, under one hypothesis."""
        steep = np.exp(self.scale[hypothesis]) * confidence + self.shift[hypothesis]
        return np.asarray(self.surprises + (1.0 - 2.0 * self.surprises) * expit(steep))


class CurvePrior(NamedTuple):
    """Normal priors of log a, with mean `scale` (per hypothesis), and of b, with mean 0; and the share of surprises."""

    scale: Array
    scale_sd: float
    shift_sd: float
    surprises: float


def fit_curves(groups: Groups, low: Array, high: Array, prior: CurvePrior) -> Curves:
    """The most probable curve under each hypothesis, given by its low and high rates, and the log evidence of each."""
    fit = _Fit(groups, low, high, prior)
    scale = np.broadcast_to(prior.scale, low.shape).astype(np.float64)
    shift, damping = np.zeros(len(low)), np.ones(len(low))
    value, p, q = fit.at(scale, shift)
    gain = np.inf
    while gain > _LEAST_GAIN:  # it ends, because rejected steps become shorter and accepted ones increase the value
        step_scale, step_shift = fit.step(scale, shift, p, q, damping)
        new_scale, new_shift = scale + np.clip(step_scale, -1.0, 1.0), shift + np.clip(step_shift, -2.0, 2.0)
        new_value, new_p, new_q = fit.at(new_scale, new_shift)
        better = new_value >= value - 1e-12
        gain = float(np.abs(new_value - value).max(initial=0.0))
        scale, shift = np.where(better, new_scale, scale), np.where(better, new_shift, shift)
        value = np.where(better, new_value, value)
        p, q = np.where(better[:, None], new_p, p), np.where(better[:, None], new_q, q)
        damping = np.where(better, damping / 3.0, 6.0 * damping + 0.01)
    square, cross, plain = fit.curvature(scale, p, q)
    return Curves(scale, shift, value - 0.5 * np.log(square * plain - cross**2), prior.surprises)


class _Fit(NamedTuple):
    groups: Groups
    low: Array
    high: Array
    prior: CurvePrior

    def at(self, scale: Array, shift: Array) -> tuple[Array, Array, Array]:
        """The penalised log likelihood of each hypothesis, sigmoid(a s + b) and q (hypotheses, groups)."""
        p = expit(np.exp(scale)[:, None] * self.groups.confidence + shift[:, None])
        floor = self.low[:, None] + self.prior.surprises * np.asarray(1.0 - self.low - self.high)[:, None]
        q = np.clip(floor + self._slope * p, 1e-12, 1.0 - 1e-12)
        value = (self.groups.agree * np.log(q) + self.groups.disagree * np.log1p(-q)).sum(axis=1)
        scale_sd, shift_sd = self.prior.scale_sd, self.prior.shift_sd
        return value - 0.5 * ((scale - self.prior.scale) / scale_sd) ** 2 - 0.5 * (shift / shift_sd) ** 2, p, q

    @property
    def _slope(self) -> Array:
        """Array (hypotheses, 1): the derivative of q with respect to sigmoid(a s + b)."""
        return (1.0 - 2.0 * self.prior.surprises) * np.asarray(1.0 - self.low - self.high)[:, None]

    def step(self, scale: Array, shift: Array, p: Array, q: Array, damping: Array) -> tuple[Array, Array]:
        """A damped Newton step in (log a, b) with the expected curvature."""
        pull = (self.groups.agree / q - self.groups.disagree / (1.0 - q)) * self._slope * p * (1.0 - p)
        along = np.exp(scale)[:, None] * self.groups.confidence
        to_scale = (pull * along).sum(axis=1) - (scale - self.prior.scale) / self.prior.scale_sd**2
        to_shift = pull.sum(axis=1) - shift / self.prior.shift_sd**2
        square, cross, plain = self.curvature(scale, p, q)
        square, plain = square * (1.0 + 0.1 * damping), plain * (1.0 + 0.1 * damping)
        size = square * plain - cross**2
        return (plain * to_scale - cross * to_shift) / size, (square * to_shift - cross * to_scale) / size

    def curvature(self, scale: Array, p: Array, q: Array) -> tuple[Array, Array, Array]:
        """Expected second derivatives of the negative log posterior: in log a, mixed, and in b."""
        weight = (self.groups.agree + self.groups.disagree) / (q * (1.0 - q)) * (self._slope * p * (1.0 - p)) ** 2
        along = np.exp(scale)[:, None] * self.groups.confidence
        square = (weight * along**2).sum(axis=1) + self.prior.scale_sd**-2
        return square, (weight * along).sum(axis=1), weight.sum(axis=1) + self.prior.shift_sd**-2
