"""A model of class-conditional label noise for out-of-fold scores, which estimates the share of wrong labels.

For out-of-fold scores z and given labels, the model is

    true class c ~ softmax(a z + b),     given label ~ row c of a transition matrix T,

fitted by maximum likelihood in (a, b, T). It gives the share of wrong labels. Labels that the scores do not explain at
any scale count as wrong, so the share is too high if a linear model does not fit. It is a first estimate of how many
rows a fit may drop. `rankrange.label_noise` estimates which labels are wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit

from .arrays import Array
from .losses import softmax

# Levels of p(wrong) that are reported as certain, likely and possible. Rows below the last are not suspects.
SURE, LIKELY, POSSIBLE = 0.8, 0.5, 0.2
# With more classes, wrong labels are spread evenly over the other classes: a full matrix cannot be estimated.
_FULL_UP_TO = 30
# The initial rates of wrong labels.
STARTS = (0.05, 0.35)
# The scale of a Cauchy prior on the difference between the logit rate of a class and the mean, and the weight of this
# prior in units of one row's loss.
APART, _PRIOR = 1.0, 1.0
# Quantile bins per class if there are two classes, and the largest number of rows if there are more.
_SLICES = 250
_MAX_ROWS = 10_000
# Standard errors on each side of a 95% interval.
WIDTH = 1.96
# The least probability, and the standard deviation of the prior on the log temperature.
MIN_PROBABILITY, _LOG_TEMPERATURE = 1e-4, 0.5
# The margin by which the predicted class exceeds an equally likely class.
IN_FRONT = 1e-9


def wrong_rate(scores: Array, codes: Array, mass: Array | None = None) -> float:
    """The share of wrong labels, estimated by penalised maximum likelihood from out-of-fold scores.

    Scores are (n, classes), or (n,) for two classes; `codes` (n,) are the given labels, `mass` (n,) the row weights.
    Many rows are reduced to fewer by `coarse` for the fit.
    """
    Z = np.column_stack([np.zeros(len(scores)), scores]) if scores.ndim == 1 else np.asarray(scores, dtype=np.float64)
    share = np.ones(len(Z)) if mass is None else np.asarray(mass, dtype=np.float64)
    n, share = float(share.sum()), share / share.sum()
    Z = normed(Z)
    few = coarse(Z, codes, share)
    quick = _Model(*few[:2], _PRIOR / n)
    starts = STARTS if Z.shape[1] == 2 else STARTS[:1]  # with two classes, a low and a high rate may both fit
    best = min((quick.fit(quick.start(rate), few[2]) for rate in starts), key=lambda fit: fit.value)
    return _Model(Z, codes).rate(best.x, share)


def transition_of(P: Array, codes: Array, wrong: Array, mass: Array) -> Array:
    """The transition matrix (true, given), from the probability `wrong` that each label is wrong.

    P (n, classes) has the probabilities of the classes. If a label is wrong, its true class has the probabilities of P
    without the given class, normalised. `mass` (n,) has the row weights. The row of a true class without any
    probability is that of the identity matrix.
    """
    rows, K = np.arange(len(codes)), P.shape[1]
    instead = P.copy()
    instead[rows, codes] = 0.0
    instead *= (mass * wrong / np.maximum(instead.sum(axis=1), 1e-300))[:, None]
    instead[rows, codes] = mass * (1.0 - wrong)
    flow = np.stack([instead[codes == label].sum(axis=0) for label in range(K)], axis=1) + 1e-12 * np.eye(K)
    return np.asarray(flow / flow.sum(axis=1, keepdims=True))


def temperature(P: Array, codes: Array, transition: Array, mass: Array) -> float:
    """The temperature of out-of-fold probabilities that maximises the likelihood of the given labels.

    Given labels are drawn from true classes by `transition`. A normal prior with standard deviation 1/2 on the log
    temperature, which is limited to [-1, 3], regularises fits to few rows.
    """
    rows = np.arange(len(codes))

    def loss(log: float) -> float:
        expected = (tempered(P, float(np.exp(log))) @ transition)[rows, codes]
        return -float(mass @ np.log(np.maximum(expected, 1e-12))) + 0.5 * (log / _LOG_TEMPERATURE) ** 2

    return float(np.exp(minimize_scalar(loss, bounds=(-1.0, 3.0), method="bounded", options={"xatol": 1e-6}).x))


def tempered(P: Array, temperature: float) -> Array:
    """Probabilities (n, classes), at least 1e-4, to the power 1 / temperature, normalised.

    Temperatures above 1 make them less extreme.
    """
    return softmax(np.log(np.clip(P, MIN_PROBABILITY, 1.0)) / temperature)


def probabilities_of(scores: Array) -> Array:
    """Probabilities (n, classes) from scores (n, classes), or (n, 1) for two classes."""
    if scores.shape[1] == 1:
        return np.stack([expit(-scores[:, 0]), expit(scores[:, 0])], axis=1)
    return softmax(scores)


def predicted_codes(Z: Array, axis: int = 0) -> Array:
    """The codes of the predicted classes, from scores with one entry per class along `axis`, or one for two classes."""
    return np.asarray((Z.take(0, axis) > 0).astype(np.intp) if Z.shape[axis] == 1 else Z.argmax(axis=axis))


def joined(robust: Array, ordinary: Array, share: float) -> Array:
    """A mixture of probabilities (n, classes) that keeps the most probable class of the robust fit.

    `share` is the weight of the ordinary fit. If other classes are more probable in the mixture, they and the class of
    the robust fit get the mean of their probabilities, and the latter a tiny margin.
    """
    P, rows, first = share * ordinary + (1.0 - share) * robust, np.arange(len(robust)), robust.argmax(axis=1)
    before = P[rows, first][:, None] <= P
    mean = (P * before).sum(axis=1) / before.sum(axis=1)
    P = np.where(before, mean[:, None], P)
    P[rows, first] += IN_FRONT
    return np.asarray(P / (1.0 + IN_FRONT))


def normed(Z: Array) -> Array:
    """Centre the scores of each row, then divide all by the median over the rows of the largest absolute score.

    If the median is 0, the scores are only centred.
    """
    centred = Z - Z.mean(axis=1, keepdims=True)
    scale = float(np.median(np.abs(centred).max(axis=1)))
    return centred / (scale if scale > 0 else 1.0)


def coarse(Z: Array, codes: Array, share: Array, slices: int = _SLICES) -> tuple[Array, Array, Array]:
    """Reduce the number of rows: means over quantile bins of each class if there are two, otherwise every j-th row.

    Returns the scores, labels and masses of the reduced rows: up to `slices` bins per class, without those of mass 0,
    or at most 10,000 rows, whose masses are normalised to sum to 1. Up to 2 * slices rows are returned unchanged. The
    model has few parameters, so the fit loses almost no accuracy.
    """
    if len(Z) <= 2 * slices:
        return Z, codes, share
    if Z.shape[1] > 2:
        rows = np.arange(0, len(Z), 1 + len(Z) // _MAX_ROWS)
        return Z[rows], codes[rows], share[rows] / share[rows].sum()
    order = np.lexsort((Z[:, 1], codes))
    edges = np.flatnonzero(np.diff(codes[order], prepend=-1))
    parts = []
    for start, end in zip(edges, [*edges[1:], len(Z)], strict=True):
        cuts = np.linspace(start, end, min(slices, end - start) + 1).astype(np.intp)[:-1]
        parts.append(cuts)
    first = np.concatenate(parts)
    mass = np.add.reduceat(share[order], first)
    mean = np.add.reduceat((share[:, None] * Z)[order], first, axis=0)
    usable = mass > 0
    return mean[usable] / mass[usable, None], codes[order][first][usable], mass[usable]


class _Fit(NamedTuple):
    x: Array
    value: float


class _Point(NamedTuple):
    """The model at given parameters.

    It has the class probabilities p (n, K), the likelihoods q (n,) of the given labels, the posterior (n, K) of the
    true class, and the rates (K,) of wrong labels.
    """

    p: Array
    q: Array
    posterior: Array
    rates: Array  # the rate of wrong labels in each true class


class _Model:
    """The likelihood of the model and its gradient.

    The parameter vector x has log a, b (K), the logits of the rate of wrong labels of each true class (K) and, for 3 to
    30 classes, the logits of the given label if it is wrong (K, K).

    Rates are below 1 - 1/K, because otherwise classes could be permuted. A weak prior shrinks the rates of the classes
    towards each other, because a few unusual rows should not make all labels of a class suspect. Its weight is `prior`.
    """

    def __init__(self, Z: Array, codes: Array, prior: float = 0.0) -> None:
        self.n, self.K = Z.shape
        self.Z = np.asfortranarray(Z)  # column-major: sums over the few classes are faster
        self.prior = prior
        self.codes = codes
        self.given = np.zeros((self.n, self.K), order="F")
        self.given[np.arange(self.n), codes] = 1.0
        self.cap = 1.0 - 1.0 / self.K
        self.full = 2 < self.K <= _FULL_UP_TO

    def start(self, rate: float) -> Array:
        level = np.log(rate / (self.cap - rate))
        return np.concatenate([[0.7], np.zeros(self.K), np.full(self.K, level), np.zeros(self.K**2 * self.full)])

    def at(self, x: Array) -> _Point:
        rates, wrong_labels = self._rates(x)
        T = rates[:, None] * wrong_labels
        T[np.diag_indices(self.K)] = 1.0 - rates
        p = softmax(np.exp(x[0]) * self.Z + x[1 : self.K + 1])
        joint = p * T[:, self.codes].T
        q = np.maximum(joint.sum(axis=1), 1e-300)
        return _Point(p, q, joint / q[:, None], rates)

    def rate(self, x: Array, share: Array) -> float:
        point = self.at(x)
        return float(share @ (point.p @ point.rates))

    def _rates(self, x: Array) -> tuple[Array, Array]:
        """The rates of wrong labels (K,), and the distribution (K, K) of the given label if it is wrong."""
        rates = self.cap * expit(x[self.K + 1 : 2 * self.K + 1])
        logits = x[2 * self.K + 1 :].reshape(self.K, self.K).copy() if self.full else np.zeros((self.K, self.K))
        np.fill_diagonal(logits, -np.inf)
        return rates, softmax(logits)

    def fit(self, x: Array, share: Array) -> _Fit:
        bounds = [(-4.0, 6.0)] + [(-8.0, 8.0)] * self.K + [(-9.0, 7.0)] * self.K
        bounds += [(-9.0, 9.0)] * (len(x) - len(bounds))
        found = minimize(self._value_and_gradient, x, (share,), "L-BFGS-B", True, bounds=bounds, options={"ftol": 1e-7})
        return _Fit(found.x, float(found.fun))

    def _value_and_gradient(self, x: Array, share: Array) -> tuple[float, Array]:
        point, K = self.at(x), self.K
        flow = point.posterior.T @ (share[:, None] * self.given)  # (true, given)
        all_of, correct = flow.sum(axis=1), flow.diagonal().copy()
        gradient, rates = np.zeros_like(x), slice(K + 1, 2 * K + 1)
        gradient[0] = np.exp(x[0]) * float(share @ ((point.p - point.posterior) * self.Z).sum(axis=1))
        gradient[1 : K + 1] = share @ point.p - all_of
        gradient[rates] = self._rate_slopes(point) * (correct / (1.0 - point.rates) - (all_of - correct) / point.rates)
        deviation = x[rates] - x[rates].mean()
        pull = 2.0 * deviation / (APART**2 + deviation**2)
        gradient[rates] += self.prior * (pull - pull.mean())
        if self.full:
            np.fill_diagonal(flow, 0.0)
            gradient[2 * K + 1 :] = (flow.sum(axis=1, keepdims=True) * self._rates(x)[1] - flow).ravel()
        return -float(share @ np.log(point.q)) + self.prior * float(np.log1p((deviation / APART) ** 2).sum()), gradient

    def _rate_slopes(self, point: _Point) -> Array:
        """The derivative (K,) of each rate with respect to its logit."""
        return point.rates * (1.0 - point.rates / self.cap)
