"""Class probabilities: from scores, at a temperature under a transition matrix of labels, in a mixture of two fits."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from .arrays import Array
from .losses import softmax

# Standard errors on each side of a 95% interval.
WIDTH = 1.96
# The least probability, and the standard deviation of the prior on the log temperature.
MIN_PROBABILITY, _LOG_TEMPERATURE = 1e-4, 0.5
# The margin by which the predicted class exceeds an equally likely class.
IN_FRONT = 1e-9


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
