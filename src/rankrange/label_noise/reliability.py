"""Reliability curves: the probability that labels agree with a prediction, as a function of its confidence.

A row that is predicted to be of class c has the label c with probability

    q(s) = low + (1 - low - high) p(s),    p(s) = d + (1 - 2 d) sigmoid(curve(s)),

where s is its confidence, p(s) the probability that c is its true class, `high` the rate at which labels of true class
c are wrong, and `low` the rate at which labels of other classes become c. The share d of surprises, which no feature
explains, bounds the evidence of a single label.

A row is hard if its true class is not the predicted one. The share of hard rows of the class is h = t (1 - f), where f
is the frequency of the class and t its hardness, whose log odds have a normal distribution around those of the table.

**By rank**, for the evidence of the rates. The confidence is log(1 / u), where u is the share of the rows predicted to
be of class c that have a higher confidence, and the curve is a s + b. Here f is the frequency of the true class, given
the rates. The shift b follows from h. The steepness a is about proportional to (1 - t) / h: the confidence is
uninformative if the predictions are.

With three classes or more the other labels of the disagreeing rows add evidence (`Destinations`).

**By log odds**, for the probabilities of rows. The curve is logit(f) + a (s - logit(f)) + b, with b = 0 and a = 1 for
calibrated predictions of clean labels. Here f is the frequency of the label. Predictions of noisy labels are less
confident: the prior of log a has the mean -log(1 - low - high). The share of hard rows under the curve has the hardness
of the table, up to the same deviation.

With t = 1 both curves are constant. All parameters of the curves are integrated out by sums over grids, so the evidence
is a smooth function of the labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_ndtr, logit, logsumexp, softmax

from ..core.arrays import Array
from .prior import NoisePrior

# The number of groups of rows with similar confidence, and of confidences at which curves are computed: enough for
# curves with two parameters.
POINTS = 50
# Grids: the log odds of the hardness of a table and of a class, log a of both kinds of curves, and deviations in
# standard deviations.
HARDNESS_LOG_ODDS = np.linspace(-8.0, 4.5, 26)
_LOG_SCALE = np.linspace(-5.0, 5.0, 20)
_DEVIATIONS = np.linspace(-2.5, 2.5, 9)
_SHARES = np.linspace(0.0, 1.0, 11)
_BY_RATE = (-1, 1, 1, 1)
# The other label of a hard row follows the predictions in one of these parts, and otherwise the frequencies.
_PREDICTED = (1.0, 0.7, 0.4, 0.0)
# The prior probability that models have learnt where wrong labels lead; and the share of wrong labels that are one
# label, if they lead to one.
_LEARNT, _ONE = 0.9, 0.98


class Groups(NamedTuple):
    """Groups of rows: mean confidence, weights of agreeing and disagreeing labels, and the group of each row."""

    confidence: Array
    agree: Array
    disagree: Array
    of_row: Array

    @classmethod
    def of(cls, confidence: Array, agree: Array, weight: Array) -> Groups:
        """Divide the rows, in the order of their confidence, into at most 50 groups of about equal mass.

        Rows with equal confidence stay together. `agree` (n,) is 1 if the label is the predicted class, otherwise 0.
        """
        values, value_of = np.unique(confidence, return_inverse=True)
        total, agreeing = (np.bincount(value_of, part, len(values)) for part in (weight, weight * agree))
        # Rounding errors of the sum must not move a value across the edge of a group.
        group = np.ceil(POINTS * np.cumsum(total) / max(float(weight.sum()), 1e-300) - 1e-9)
        first = np.flatnonzero(np.diff(group, prepend=-1))
        mean = np.add.reduceat(total * values, first) / np.maximum(np.add.reduceat(total, first), 1e-300)
        total, agreeing = np.add.reduceat(total, first), np.add.reduceat(agreeing, first)
        of_row = np.searchsorted(first, value_of, side="right") - 1
        return cls(mean, agreeing, total - agreeing, of_row)


class Destinations(NamedTuple):
    """How likely the other labels of the disagreeing rows of a class are: those of hard rows, and wrong ones.

    Hard rows have labels in proportion to the predictions of other classes, the frequencies of the labels, or a mixture
    of both. Wrong labels are distributed like these, because models have learnt where they lead, or they may be any, or
    almost always one label, whatever the features are. `logs` (options, groups, shares) are the log likelihoods of all
    these options if `_SHARES` of the disagreeing labels of each group are wrong, and `log_prior` (options,) their log
    prior.
    """

    log_prior: Array
    logs: Array

    @classmethod
    def of(cls, groups: Groups, P: Array, label: int, codes: Array, mass: Array) -> Destinations:
        """The options for the rows with prediction P that are predicted to be of class `label` but have another."""
        rows, others = np.flatnonzero(codes != label), P.shape[1] - 1
        found, codes = np.unique(codes[rows], return_inverse=True)
        group, mass = groups.of_row[rows], mass[rows]
        predicted = P[rows, found[codes]] / np.delete(P[rows], label, axis=1).sum(axis=1)
        frequency = np.bincount(codes, mass) + 1.0
        usual = (frequency / (frequency.sum() + others - len(found)))[codes]
        unlearnt, options = (1.0 - _LEARNT) / 2.0, []
        for part in _PREDICTED:
            hard, chance = part * predicted + (1.0 - part) * usual, 1.0 / len(_PREDICTED)
            options.append((chance * _LEARNT, hard, hard))
            options.append((chance * unlearnt, hard, np.full(len(codes), 1.0 / others)))
            for other in range(len(found)):
                one = np.where(codes == other, _ONE, (1.0 - _ONE) / max(others - 1, 1))
                options.append((chance * unlearnt / others, hard, one))
        logs = np.zeros((len(options), len(groups.agree), len(_SHARES)))
        for option, (_, hard, wrong) in enumerate(options):
            mixed = np.log(np.outer(hard, 1.0 - _SHARES) + np.outer(wrong, _SHARES))
            np.add.at(logs[option], group, mass[:, None] * mixed)
        return cls(np.log([chance for chance, _, _ in options]), logs)

    def log_likelihood(self, curve: Array, low: Array, high: Array) -> Array:
        """Array (rates, ...): log likelihood if the predicted class is true with probability `curve` (..., groups)."""
        low, high = low.reshape(_BY_RATE), high.reshape(_BY_RATE)
        wrong, hard = high * curve, (1.0 - low) * (1.0 - curve)
        place = wrong / (wrong + hard) * (len(_SHARES) - 1)
        below = np.minimum(place.astype(np.intp), len(_SHARES) - 2)
        part, group = place - below, np.arange(self.logs.shape[1])
        found = [
            ((1.0 - part) * logs[group, below] + part * logs[group, below + 1]).sum(axis=-1) + log_prior
            for log_prior, logs in zip(self.log_prior, self.logs, strict=True)
        ]
        return np.asarray(logsumexp(found, axis=0))


def latent_log_prior(prior: NoisePrior) -> Array:
    """Log prior probabilities of the pairs of a hardness and a deviation of the log steepness, and last of t = 1."""
    hardness = expit(HARDNESS_LOG_ODDS)
    chance = np.sqrt(hardness) * (1.0 - hardness) ** (1.0 + prior.hardness_decay)  # the density of the log odds
    logs = np.log(chance / chance.sum())[:, None] + _normal(_DEVIATIONS, 0)
    with np.errstate(divide="ignore"):
        return np.append(np.log1p(-prior.unpredictable) + logs.ravel(), np.log(prior.unpredictable))


def by_hardness(latents: Array) -> Array:
    """Sums of values (..., latent variables, rates) over the deviations: (..., hardness, rates), with t = 1 last."""
    inner = latents[..., :-1, :].reshape(*latents.shape[:-2], len(HARDNESS_LOG_ODDS), len(_DEVIATIONS), -1).sum(axis=-2)
    return np.concatenate([inner, latents[..., -1:, :]], axis=-2)


def rank_evidence(
    prior: NoisePrior,
    groups: Groups,
    destinations: Destinations | None,
    low: Array,
    high: Array,
    frequency: float,
    n: float,
) -> Array:
    """Array (latent variables, rates): log evidence of the rates of a class from the ranks of the confidence.

    `groups` are by log(1 / u). `low` and `high` are the rates of errors to and from the class, `frequency` is the share
    of the class among the n labels. The likelihood is raised to the power `prior.evidence_power`. Rates that would need
    more wrong labels of the class than there are labels of other classes get little evidence. `destinations` is None
    for two classes.
    """
    hardness, agree = expit(HARDNESS_LOG_ODDS), bounded(frequency, n)
    true = _true_frequency(frequency, low, high, n)
    hard = hardness * (1.0 - true[:, None])
    steepness = np.exp(_LOG_SCALE)[:, None]
    shift = -logit(hard)[:, None, :] - np.log1p(steepness)
    curve = _bounded(prior, steepness[..., None] * groups.confidence + shift[..., None])
    likelihood = _log_likelihood(groups, curve, low, high)
    constant = groups.agree.sum() * np.log(agree) + groups.disagree.sum() * np.log1p(-agree)
    disagreeing = groups.disagree > 0.0
    if destinations is not None and disagreeing.any():
        some = destinations._replace(logs=destinations.logs[:, disagreeing])
        likelihood = likelihood + some.log_likelihood(curve[..., disagreeing], low, high)
        constant = constant + some.log_likelihood(true[:, None, None, None], low, high)[:, 0, 0]
    likelihood = prior.evidence_power * likelihood
    usual = np.log(prior.steepness * (1.0 - hardness) / hard)
    distance = _LOG_SCALE[:, None, None] - usual[:, None, :, None] - prior.steepness_sd * _DEVIATIONS
    by_class = logsumexp(likelihood[..., None] + _normal(distance / prior.steepness_sd, -3), axis=-3)
    distance = HARDNESS_LOG_ODDS[:, None] - HARDNESS_LOG_ODDS[:, None, None, None]
    by_table = logsumexp(by_class + _normal(distance / prior.class_sd, -2), axis=-2)
    evidence = by_table.transpose(0, 2, 1).reshape(-1, len(high))
    # The wrong labels of this class are labels of other classes, so they cannot outnumber these.
    odds = 1.0 / agree - 1.0
    possible = np.where(high > 0.0, log_ndtr((odds - high) / np.sqrt(odds / n)), 0.0)
    return np.vstack([evidence, np.full(len(high), prior.evidence_power * constant)]) + possible


class OddsCurves(NamedTuple):
    """Curves of one class by log odds.

    `weights` (hardness, rates, curves) has the posterior probability of each curve of the grid, for each hardness below
    1. With t = 1 the curve is constant: `true` (rates,), the frequency of the true class. `frequency` is the share of
    the class among the labels. All frequencies are `bounded`.
    """

    weights: Array
    frequency: float
    true: Array

    @classmethod
    def of(cls, prior: NoisePrior, groups: Groups, low: Array, high: Array, frequency: float, n: float) -> OddsCurves:
        """The curves that are likely for `groups` of log odds; other arguments as in `rank_evidence`."""
        frequency = float(bounded(frequency, n))
        logs = _log_odds_curves(prior, groups.confidence, frequency)
        likelihood = _log_likelihood(groups, _bounded(prior, logs), low, high)
        scale = -np.log(1.0 - low - high)  # predictions of noisy labels are less confident
        calibrated = _square(_LOG_SCALE - scale[:, None], prior.class_sd)[:, :, None] + _square(_DEVIATIONS, 1.0)
        mass = groups.agree + groups.disagree
        hard = expit(-logs) @ mass / max(float(mass.sum()), 1e-300)
        with np.errstate(divide="ignore"):
            hardness = logit(np.minimum(hard / (1.0 - frequency), 1.0)).clip(*HARDNESS_LOG_ODDS[[0, -1]])
        consistent = _square(hardness - HARDNESS_LOG_ODDS[:, None, None], prior.class_sd)
        chance = (calibrated + consistent[:, None]).reshape(len(HARDNESS_LOG_ODDS), len(low), -1)
        weights = softmax(chance + likelihood.reshape(1, len(low), -1), axis=-1)
        return cls(np.asarray(weights), frequency, _true_frequency(frequency, low, high, n))

    def mean(self, prior: NoisePrior, hardness: Array, confidence: Array) -> Array:
        """Array (rates, n): the mean curve p(s), for probabilities (hardness, rates), normalised for each rate."""
        hardness = hardness / np.maximum(hardness.sum(axis=0), 1e-300)
        weights = np.einsum("hr,hrc->rc", hardness[:-1], self.weights)
        curves = _bounded(prior, _log_odds_curves(prior, confidence, self.frequency))
        return np.asarray(weights @ curves.reshape(-1, len(confidence)) + (hardness[-1] * self.true)[:, None])


def bounded(probability: Any, n: float) -> Any:
    """The probability, at least 1 / (n + 1) and at most n / (n + 1): n rows cannot show a higher certainty."""
    return np.clip(probability, 1.0 / (n + 1.0), n / (n + 1.0))


def _true_frequency(frequency: float, low: Array, high: Array, n: float) -> Array:
    return np.asarray(bounded((frequency - low) / (1.0 - low - high), n))


def _log_odds_curves(prior: NoisePrior, confidence: Array, frequency: float) -> Array:
    """Array (scales, shifts, n): the log odds of the curves of the grid; `frequency` is that of the label."""
    usual = logit(frequency)
    return np.asarray(
        usual + np.exp(_LOG_SCALE)[:, None, None] * (confidence - usual) + prior.class_sd * _DEVIATIONS[:, None]
    )


def _bounded(prior: NoisePrior, logs: Array) -> Array:
    return np.asarray(prior.surprises + (1.0 - 2.0 * prior.surprises) * expit(logs))


def _log_likelihood(groups: Groups, curve: Array, low: Array, high: Array) -> Array:
    """Array (rates, ...): log likelihood of the labels; `curve` is (scales, shifts, groups), also by rate in front."""
    agree = low.reshape(_BY_RATE) + (1.0 - low - high).reshape(_BY_RATE) * curve
    return np.asarray(np.log(agree) @ groups.agree + np.log1p(-agree) @ groups.disagree)


def _normal(distance: Array, axis: int) -> Array:
    """Log probabilities of grid points along `axis`, from their distances from the mean in standard deviations."""
    weight = -0.5 * distance**2
    return np.asarray(weight - logsumexp(weight, axis=axis, keepdims=True))


def _square(distance: Array, sd: float) -> Array:
    return np.asarray(-0.5 * (distance / sd) ** 2)
