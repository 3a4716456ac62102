"""Which labels are wrong, averaged over all the rates at which they may be: what labels cannot tell is not claimed.

The model is that of `core.flips`: the true class follows softmax(a z + b), and labels of each class are wrong at some
rate. The most likely rate alone claims too much: on tables that are hard to predict, "few are wrong, and the classes
overlap" and "the classes are apart, and many are wrong" make the labels about equally likely, and the best of many
such stories is lucky. So every story counts with its probability. With two classes they are a grid of pairs of rates,
the scale a and the shift b fitted to each and their width put in by Laplace's method; with more classes there are
three: no label is wrong, one rate for all classes, a rate for each pair of them. No rate at all has a probability of
its own, `none`: where it stays above a few percent, the labels do not show that any of them is wrong. Several opinions
are averaged the same way: a line shows a rate of wrong labels that trees, which fit the labels closely, have taken in.

With two classes two witnesses are heard about the stories, and each counts one half. The first takes the scores at
their size. But a model that has learned wrong labels at a constant rate knows how often it will be contradicted, and
its sizes show nothing. The second therefore takes the order of the rows alone, the surest first: where labels are
right, the surest rows are contradicted least, and where they are wrong at random, as often as others. Rows that differ
in nothing that is known can look that way too, so that one witness is not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, ndtr, softmax
from scipy.stats import rankdata

from .arrays import Array
from .flips import TIED, coarse, wrong_labels

# Rates that all classes share, and rates of single classes, that are tried.
_SHARED = np.array([0.003, 0.01, 0.02, 0.035, 0.05, 0.075, *np.arange(0.1, 0.46, 0.025)])
_SINGLE = np.array([0.0, 0.01, 0.03, 0.07, 0.12, 0.2, 0.28, 0.36, 0.45, 0.6])
_MOST_WRONG = 0.8  # of two rates together; at 1 the labels would say nothing
# Before anything is seen: no label is wrong; all classes share a rate; and rates fall off as exp(-rate / fall).
_NONE, _TOGETHER, _FALL = 0.35, 0.5, 0.3
# The same where only the order of the rows is asked for, and nothing is claimed.
_RANKING = (0.05, 0.6, 2.0)
# How much the order of the rows counts as a witness of the stories: for claims, and where only the order is asked for.
_ORDER_SAYS, _ORDER_SAYS_RANKING = 0.5, 0.3
# The logarithm of how steeply errors become rarer among surer rows where labels are right, before anything is seen.
_STEEP = 0.7
_SCALE_WIDTH, _SHIFT_WIDTH = 1.0, 2.0
_SURE = 1e-3  # no opinion is surer than this of a label being wrong
_STEPS = 30
_PARTS = 40  # slices of the scores of each class that the curves are fitted to
# Units of log likelihood that one rate must gain, where classes are more than two; a rate for each must gain so many
# times log(n) more per class (Schwarz's rule) to be claimed, and one more to be ranked by.
_GAIN, _FURTHER = 3.0, 0.5
_GRID_ERROR = 0.004


@dataclass(frozen=True)
class AveragedLabels:
    """What is known of the labels when no single rate is believed.

    Attributes
    ----------
    wrong : ndarray of shape (n,)
        The probability that the label of each row is wrong.
    ranking : ndarray of shape (n,)
        The same under a prior that lets high rates and rates of single classes in more easily: for the order of rows.
    true : ndarray of shape (n, classes)
        The probability of each class being the true one.
    rate, interval : float and tuple of float
        The share of wrong labels and its 95% interval.
    none : float
        The probability that no label is wrong.
    transition : ndarray of shape (classes, classes)
        How often a row of one true class (rows) is given each label (columns).
    stories : ndarray
        The probability of each story, whatever the opinion.
    """

    wrong: Array
    ranking: Array
    true: Array
    rate: float
    interval: tuple[float, float]
    none: float
    transition: Array
    stories: Array


def averaged_labels(opinions: Sequence[Array], codes: Array, stories: Array | None = None) -> AveragedLabels:
    """Average over opinions, and over the rates of wrong labels under each.

    Parameters
    ----------
    opinions : sequence of ndarray of shape (n, classes)
        Probabilities of the labels as they are, by models that have not seen the row.
    codes : ndarray of shape (n,)
        The labels as they are, 0..classes-1.
    stories : ndarray, optional
        The probability of each story, where it is known: that of another result.

    Returns
    -------
    AveragedLabels
        The probability of each label being wrong, and the share of wrong labels.
    """
    logs = [np.log(np.clip(P, _SURE, 1.0)) for P in opinions]
    if logs[0].shape[1] == 2:
        return _two_classes([Z[:, 1] - Z[:, 0] for Z in logs], codes, stories)
    return _more_classes(logs, codes, stories)


def _weights(evidence: Array, prior: Array, stories: Array | None = None) -> Array:
    """(opinions, stories): their probabilities, by the logarithms of the likelihoods and of the prior.

    Where the stories have probabilities already, those of the opinions within each follow.
    """
    if stories is not None:
        return np.asarray(stories * softmax(evidence, axis=0))
    total = evidence + prior
    return np.asarray(softmax(total.ravel()).reshape(total.shape))


def _both_witnesses(evidence: Array, order: Array, prior: Array, share: float) -> Array:
    """(stories,): their probabilities by the sizes of the scores and by the order of the rows, which counts `share`."""
    return np.asarray(share * softmax(order + prior) + (1.0 - share) * _weights(evidence, prior).sum(axis=0))


# ---- two classes: a grid of rates ------------------------------------------------------------------------------------


def _pairs() -> Array:
    """(pairs, 2): how often class 0 is called 1, and class 1 called 0; nothing wrong first, then shared rates."""
    both = [(a, b) for a in _SINGLE for b in _SINGLE if a != b and a + b <= _MOST_WRONG]
    return np.array([(0.0, 0.0), *((rate, rate) for rate in _SHARED), *both])


def _prior(none: float, together: float, fall: float) -> Array:
    """The logarithm of the probability of each pair before anything is seen."""
    shared = np.exp(-_SHARED / fall) * np.gradient(_SHARED)
    single = np.exp(-_SINGLE / fall) * np.gradient(_SINGLE)
    single[0] = single[1:].sum() / 2.0  # often one class alone is mistaken for the other
    weight = dict(zip(_SINGLE.tolist(), single.tolist(), strict=True))
    apart = np.array([weight[a] * weight[b] for a, b in _pairs()[1 + len(_SHARED) :].tolist()])
    some = 1.0 - none
    shared, apart = some * together * shared / shared.sum(), some * (1.0 - together) * apart / apart.sum()
    return np.log(np.concatenate([[none], shared, apart]))


def _two_classes(scores: list[Array], codes: Array, stories: Array | None) -> AveragedLabels:
    n, pairs = len(codes), _pairs()
    centre = -np.log(1.0 - pairs.sum(axis=1))  # a model of the labels as they are is too flat for the true classes
    fits = [_Curves.of(z, codes, pairs, centre) for z in scores]
    evidence = np.stack([fit.evidence() for fit in fits])
    order = _Curves.of(_by_rank(scores[0]), codes, pairs, np.full(len(pairs), _STEEP)).evidence()
    prior, open_prior = _prior(_NONE, _TOGETHER, _FALL), _prior(*_RANKING)
    stories = _both_witnesses(evidence, order, prior, _ORDER_SAYS) if stories is None else stories
    weights = _weights(evidence, prior, stories)
    loose = _weights(evidence, prior, _both_witnesses(evidence, order, open_prior, _ORDER_SAYS_RANKING))
    told = np.argwhere(np.maximum(weights, loose) > 1e-3)
    known, open_minded = (w[tuple(told.T)] / w[tuple(told.T)].sum() for w in (weights, loose))
    p, rates, errors = np.zeros((2, n)), np.zeros(len(told)), np.zeros(len(told))
    for at, (source, i) in enumerate(told):
        wrong = fits[source].wrong(i, scores[source], codes)
        p += np.array([[known[at]], [open_minded[at]]]) * wrong
        rates[at], errors[at] = wrong.mean(), np.sqrt(float((wrong * (1.0 - wrong)).mean()) / n) + _GRID_ERROR * (i > 0)
    up, down = known @ pairs[told[:, 1]]
    return AveragedLabels(
        wrong=p[0],
        ranking=p[1],
        true=np.where(np.arange(2) == codes[:, None], 1.0 - p[0][:, None], p[0][:, None]),
        rate=float(known @ rates),
        interval=_interval(known, rates, errors, n),
        none=float(weights[:, 0].sum()),
        transition=np.array([[1.0 - up, up], [down, 1.0 - down]]),
        stories=weights.sum(axis=0),
    )


def _by_rank(z: Array) -> Array:
    """Scores made of the order alone: on each side log(n / rank) of the surest row and so on, with the sign of z.

    sigmoid(a z) is then a probability of error that falls as a power of the rank. Sides are apart because labels that
    are wrong in one class make all rows of the other side less sure.
    """
    found = np.zeros(len(z))
    for side in (z > 0, z < 0):
        found[side] = np.sign(z[side]) * np.log((side.sum() + 1.0) / rankdata(-np.abs(z[side])))
    return found


class _Curves:
    """For each pair of rates the most likely scale and shift of sigmoid(exp(scale) z + shift), by damped Newton steps.

    `centre` (pairs,) is where the logarithm of the scale is thought to be before anything is seen.
    """

    def __init__(self, z: Array, ones: Array, zeros: Array, pairs: Array, centre: Array) -> None:
        self.z, self.ones, self.zeros, self.pairs, self.centre = z, ones, zeros, pairs, centre
        self.up, self.slope = pairs[:, :1], 1.0 - pairs.sum(axis=1, keepdims=True)
        self.scale, self.shift = self.centre.copy(), np.zeros(len(pairs))
        self._climb()

    @classmethod
    def of(cls, z: Array, codes: Array, pairs: Array, centre: Array) -> _Curves:
        """Fit to the mean scores of slices of the rows: with two parameters nothing is lost."""
        n = len(codes)
        points, labels, share = coarse(np.column_stack([-z / 2, z / 2]), codes, np.full(n, 1.0 / n), _PARTS)
        return cls(points[:, 1] - points[:, 0], n * share * (labels == 1), n * share * (labels == 0), pairs, centre)

    def wrong(self, i: int, z: Array, codes: Array) -> Array:
        """(n,): the probability that each label is wrong under one pair of rates."""
        one = expit(np.exp(self.scale[i]) * z + self.shift[i])
        up, down = self.pairs[i]
        given_one = np.clip(up + (1.0 - up - down) * one, 1e-12, 1.0 - 1e-12)
        return np.where(codes == 1, up * (1.0 - one) / given_one, down * one / (1.0 - given_one))

    def _at(self, scale: Array, shift: Array) -> tuple[Array, Array, Array]:
        one = expit(np.exp(scale)[:, None] * self.z + shift[:, None])
        q = np.clip(self.up + self.slope * one, 1e-12, 1.0 - 1e-12)
        value = (self.ones * np.log(q) + self.zeros * np.log(1.0 - q)).sum(axis=1)
        prior = ((scale - self.centre) / _SCALE_WIDTH) ** 2 + (shift / _SHIFT_WIDTH) ** 2
        return value - 0.5 * prior, one, q

    def _curvature(self, one: Array, q: Array, scale: Array) -> tuple[Array, Array, Array, Array]:
        bend = self.slope * one * (1.0 - one)
        pull = (self.ones / q - self.zeros / (1.0 - q)) * bend
        weight = (self.ones + self.zeros) / (q * (1.0 - q)) * bend**2
        along = np.exp(scale)[:, None] * self.z
        square, plain = (weight * along**2).sum(axis=1), weight.sum(axis=1)
        pulls = np.stack([pull, pull * along])
        return pulls, square + _SCALE_WIDTH**-2, (weight * along).sum(axis=1), plain + _SHIFT_WIDTH**-2

    def _climb(self) -> None:
        value, one, q = self._at(self.scale, self.shift)
        damp = np.ones(len(value))
        for _ in range(_STEPS):
            pull, square, cross, plain = self._curvature(one, q, self.scale)
            to_shift = pull[0].sum(axis=1) - self.shift / _SHIFT_WIDTH**2
            to_scale = pull[1].sum(axis=1) - (self.scale - self.centre) / _SCALE_WIDTH**2
            square, plain = square * (1.0 + 0.1 * damp), plain * (1.0 + 0.1 * damp)
            size = square * plain - cross**2
            scale = self.scale + np.clip((plain * to_scale - cross * to_shift) / size, -1.0, 1.0)
            shift = self.shift + np.clip((square * to_shift - cross * to_scale) / size, -2.0, 2.0)
            moved, one_there, q_there = self._at(scale, shift)
            better = moved >= value - 1e-12
            self.scale, self.shift = np.where(better, scale, self.scale), np.where(better, shift, self.shift)
            gain = float(np.abs(moved - value).max())
            value = np.where(better, moved, value)
            one, q = (np.where(better[:, None], new, old) for new, old in ((one_there, one), (q_there, q)))
            damp = np.where(better, damp / 3.0, 6.0 * damp + 0.01)
            if gain < 1e-3:
                break
        self._value, self._one, self._q = value, one, q

    def evidence(self) -> Array:
        """The logarithm of the likelihood with scale and shift integrated out."""
        _, square, cross, plain = self._curvature(self._one, self._q, self.scale)
        return np.asarray(self._value - 0.5 * np.log(square * plain - cross**2))


# ---- more classes: three stories -------------------------------------------------------------------------------------


def _more_classes(logs: list[Array], codes: Array, stories: Array | None) -> AveragedLabels:
    (n, K), rows = logs[0].shape, np.arange(len(codes))
    found = [[wrong_labels(Z, codes, prior=prior) for prior in (TIED, 0.0)] for Z in logs]
    evidence = np.empty((len(logs), 3))
    for values, Z, pair in zip(evidence, logs, found, strict=True):
        fits = [_calibrated(Z, codes), *(labels.expected for labels in pair)]
        values[:] = [np.log(np.maximum(E[rows, codes], 1e-12)).sum() for E in fits]

    def believed(none: float, together: float, further: float, known: Array | None = None) -> Array:
        prior = np.log([none, (1.0 - none) * together, (1.0 - none) * (1.0 - together)])
        return _weights(evidence - np.array([0.0, _GAIN, _GAIN + (K - 1.0) * further]), prior, known)

    weights = believed(_NONE, _TOGETHER, _FURTHER * np.log(n), stories)
    none, loose = float(weights[:, 0].sum()), believed(*_RANKING[:2], 1.0)[:, 1:].ravel()
    some, models = weights[:, 1:].ravel(), [labels for pair in found for labels in pair]
    given = np.zeros((n, K))
    given[rows, codes] = 1.0
    rates = np.array([0.0, *(labels.rate for labels in models)])
    errors = np.array([0.0, *((labels.interval[1] - labels.interval[0]) / 3.92 for labels in models)])
    return AveragedLabels(
        wrong=_mean(some, [labels.wrong for labels in models]),
        ranking=_mean(loose, [labels.wrong for labels in models]),
        true=none * given + _mean(some, [labels.true for labels in models]),
        rate=float(some @ rates[1:]),
        interval=_interval(np.array([none, *some]), rates, errors, n),
        none=none,
        transition=_mean(some / max(float(some.sum()), 1e-12), [labels.transition for labels in models]),
        stories=weights.sum(axis=0),
    )


def _mean(weights: Array, values: list[Array]) -> Array:
    return np.tensordot(weights, np.stack(values), axes=1)


def _calibrated(Z: Array, codes: Array) -> Array:
    """(n, classes): probabilities of the labels with the best scale and shifts, and no wrong labels."""
    rows = np.arange(0, len(Z), 1 + len(Z) // 10_000)
    given = np.zeros((len(rows), Z.shape[1]))
    given[np.arange(len(rows)), codes[rows]] = 1.0

    def cost(x: Array) -> tuple[float, Array]:
        P = softmax(np.exp(x[0]) * Z[rows] + x[1:], axis=1)
        off = P - given
        value = -np.log(np.maximum(P[given == 1.0], 1e-300)).mean() + 0.5e-3 * float(x[1:] @ x[1:])
        scale = float((off * Z[rows]).sum(axis=1).mean()) * np.exp(x[0])
        return float(value), np.concatenate([[scale], off.mean(axis=0) + 1e-3 * x[1:]])

    bounds = [(-4.0, 4.0)] + [(-8.0, 8.0)] * Z.shape[1]
    x = minimize(cost, np.zeros(1 + Z.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds).x
    return np.asarray(softmax(np.exp(x[0]) * Z + x[1:], axis=1))


def _interval(weights: Array, rates: Array, errors: Array, n: int) -> tuple[float, float]:
    """The middle 95% of a mixture of normal errors around the rates; 3 of n rows may always be wrong unseen."""
    grid = np.linspace(0.0, 1.0, 2001)
    below = ndtr((grid[:, None] - rates) / np.maximum(errors, 1e-9)) @ (weights / weights.sum())
    low, high = grid[np.searchsorted(below, [0.025, 0.975]).clip(0, len(grid) - 1)]
    low = 0.0 if low <= grid[1] else low
    return float(low), float(min(1.0, max(high, rates @ weights + 3.0 / n)))
