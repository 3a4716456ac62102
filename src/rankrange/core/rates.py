"""Which labels are wrong, averaged over all the rates at which they may be: what labels cannot tell is not claimed.

The model is that of `core.flips`: the true class follows softmax(a z + b), and labels of each class are wrong at some
rate. The most likely rate alone claims too much: on tables that are hard to predict, "few are wrong, and the classes
overlap" and "the classes are apart, and many are wrong" make the labels about equally likely, and the best of many
such stories is lucky. So every story counts with its probability. With two classes they are a grid of pairs of rates,
the scale a and the shift b fitted to each and their width put in by Laplace's method; with more classes a grid of
rates at which labels become any other class alike, and two fits of errors of a kind: one rate for all classes, or one
for each, that lead to some classes more than to others. Where they lead is many numbers, which gain by chance and must
gain more. No rate at all has a probability of its own, `none`: where it stays above a few percent, the labels do not
show that any of them is wrong. Several opinions are averaged the same way: a line shows a rate of wrong labels that
trees, which fit the labels closely, have taken in.

Two witnesses are heard about the stories, and each counts one half. The first takes the scores at their size. But a
model that has learned wrong labels at a constant rate knows how often it will be contradicted, and its sizes show
nothing. The second therefore takes the order of the rows alone, the surest first: where labels are right, the surest
rows are contradicted least, and where they are wrong at random, as often as others. Rows that differ in nothing that is
known can look that way too, so that one witness is not enough to say that any label is wrong. Where both say so, the
rates are those of the second. With more than two classes the second can only raise the probability of no error: errors
of a kind are easily mistaken for what models do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, ndtr, softmax
from scipy.stats import rankdata

from .arrays import Array
from .flips import TIED, WIDTH, WrongLabels, coarse, wrong_labels

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
# More than two classes: rates of errors that lead to any other class alike; how likely no error is, before anything is
# seen; and numbers, rows by classes, that tell the scale of the scores.
_EVEN = np.array([0.0, *_SHARED, 0.5, 0.55, 0.6])
_NONE_OF_MANY, _NUMBERS = 0.1, 200_000
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


def _at_rates_of_the_order(stories: Array, order: Array) -> Array:
    """(stories,): no error as likely as it is, and all others as the order of the rows has them.

    Where errors have been seen, the order tells their rate better than the sizes of the scores: models take wrong
    labels in, and are less sure of all rows than the true classes are.
    """
    return np.concatenate([stories[:1], (1.0 - stories[0]) * softmax(order[1:])])


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
    claims = _weights(evidence, prior, _at_rates_of_the_order(stories, order + prior))
    loose = _weights(evidence, prior, _both_witnesses(evidence, order, open_prior, _ORDER_SAYS_RANKING))
    told = np.argwhere(np.maximum(np.maximum(weights, claims), loose) > 1e-3)
    known, claimed, open_minded = (w[tuple(told.T)] / w[tuple(told.T)].sum() for w in (weights, claims, loose))
    p, rates, errors = np.zeros((2, n)), np.zeros(len(told)), np.zeros(len(told))
    for at, (source, i) in enumerate(told):
        wrong = fits[source].wrong(i, scores[source], codes)
        p += np.array([[claimed[at]], [open_minded[at]]]) * wrong
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


# ---- more classes: errors that lead to any class alike, and errors of a kind -----------------------------------------


def _more_classes(logs: list[Array], codes: Array, stories: Array | None) -> AveragedLabels:
    n, K = logs[0].shape
    even = [_Even(Z, codes) for Z in logs]
    found = [[wrong_labels(Z, codes, prior=prior) for prior in (TIED, 0.0)] for Z in logs]
    evidence = np.stack(
        [[*fit.evidence, *(_evidence(labels, codes) for labels in pair)] for fit, pair in zip(even, found, strict=True)]
    )

    prior = _prior_of_many(_NONE_OF_MANY, K, _FURTHER * np.log(n))
    weights = _weights(evidence + _doubt(evidence + prior, K), prior, stories)
    if stories is None:
        weights = _seen_by_order(weights, _none_by_order(logs[0], codes))
    loose = _weights(evidence, _prior_of_many(_RANKING[0], K, 1.0))
    loose[:, 0] = 0.0
    told = np.argwhere(np.maximum(weights, loose) > 1e-3)
    known, open_minded = (w[tuple(told.T)] / w[tuple(told.T)].sum() for w in (weights, loose))
    true, ranking, T = np.zeros((n, K)), np.zeros(n), np.zeros((K, K))
    rates, errors = np.zeros(len(told)), np.zeros(len(told))
    for at, (source, i) in enumerate(told):
        story = even[source].story(i) if i < len(_EVEN) else found[source][i - len(_EVEN)]
        true += known[at] * story.true
        ranking += open_minded[at] * story.wrong
        T += known[at] * story.transition
        rates[at], errors[at] = story.rate, (story.interval[1] - story.interval[0]) / (2.0 * WIDTH)
    return AveragedLabels(
        wrong=1.0 - true[np.arange(n), codes],
        ranking=ranking,
        true=true,
        rate=float(known @ rates),
        interval=_interval(known, rates, errors, n),
        none=float(weights[:, 0].sum()),
        transition=T,
        stories=weights.sum(axis=0),
    )


def _seen_by_order(weights: Array, none: float) -> Array:
    """(opinions, stories): no error half as likely as it was and half as the order has it, if that is more."""
    now = float(weights[:, 0].sum())
    then = max(now, (1.0 - _ORDER_SAYS) * now + _ORDER_SAYS * none)
    heard = np.array(weights) * ((1.0 - then) / max(1.0 - now, 1e-300))
    heard[:, 0] = then * weights.sum(axis=1)
    return heard


def _none_by_order(Z: Array, codes: Array) -> float:
    """The probability that no label is wrong, by the order of the rows alone: the surest first, whatever their class.

    Where labels are right, the surest rows are contradicted least. That holds for models that do not fit the classes
    too, as lines and trees do not fit rings: errors of a kind explain what these miss as well as wrong labels.
    """
    (n, K), two = Z.shape, np.sort(Z, axis=1)[:, -2:]
    surest = np.log((n + 1.0) / rankdata(two[:, 0] - two[:, 1]))
    agrees = (Z.argmax(axis=1) == codes).astype(np.intp)
    pairs = np.column_stack([_EVEN / (K - 1), _EVEN])
    evidence = _Curves.of(surest, agrees, pairs, np.full(len(_EVEN), _STEEP)).evidence()
    prior = _prior_of_many(_NONE_OF_MANY, K, 0.0)[: len(_EVEN)]
    return float(softmax(evidence + prior)[0])


def _evidence(labels: WrongLabels, codes: Array) -> float:
    return float(np.log(np.maximum(labels.expected[np.arange(len(codes)), codes], 1e-12)).sum())


def _prior_of_many(none: float, n_classes: int, further: float) -> Array:
    """The logarithm of the probability of each story, less what the parameters of the last two must gain.

    Where wrong labels of a class lead to is a number for each other class but one. Fitted to errors that lead anywhere,
    each gains one half by chance (Akaike's rule).
    """
    even = np.exp(-_EVEN[1:] / _FALL) * np.gradient(_EVEN)[1:]
    some, leads = 1.0 - none, 0.5 * n_classes * (n_classes - 2)
    kinds = np.log(some * (1.0 - _TOGETHER) / 2.0) - _GAIN - leads - np.array([0.0, (n_classes - 1) * further])
    return np.array([np.log(none), *np.log(some * _TOGETHER * even / even.sum()), *kinds])


def _doubt(total: Array, n_classes: int) -> Array:
    """(opinions, stories): what the last two stories are given back where they seem worse than the others.

    What their parameters gain by chance varies from table to table by the root of one half each. A loss that is small
    beside it says little.
    """
    others, chance = logsumexp(total[:, :-2]), max(1.0, np.sqrt(0.5 * n_classes * (n_classes - 2)))
    behind = np.minimum(total[:, -2:] - others, 0.0)
    return np.pad(behind / chance - behind, [(0, 0), (total.shape[1] - 2, 0)])


class _Even:
    """For each rate at which labels are replaced by any other class, the most likely scale and shifts of the scores.

    The true class is drawn from softmax(exp(x[0]) Z + x[1:]).
    """

    def __init__(self, Z: Array, codes: Array) -> None:
        (n, K), self.Z, self.codes = Z.shape, Z, codes
        some = slice(None, None, 1 + n * K // _NUMBERS)  # of many rows some tell the few parameters
        x, self.points = np.zeros(1 + K), []
        for rate in _EVEN:
            x = _scaled(Z[some], codes[some], self.transition(rate), x)
            self.points.append(x)
        rows = np.arange(n)
        self.evidence = np.array(
            [
                np.log(np.maximum((P @ self.transition(r))[rows, codes], 1e-300)).sum()
                for r, P in zip(_EVEN, map(self._classes, self.points), strict=True)
            ]
        )

    def transition(self, rate: float) -> Array:
        K = self.Z.shape[1]
        return np.where(np.eye(K) == 1.0, 1.0 - rate, rate / (K - 1))

    def _classes(self, x: Array) -> Array:
        return np.asarray(softmax(np.exp(x[0]) * self.Z + x[1:], axis=1))

    def story(self, i: int) -> WrongLabels:
        """What one of the rates says of the labels."""
        P, T, n = self._classes(self.points[i]), self.transition(_EVEN[i]), len(self.codes)
        joint = P * T[self.codes]
        true = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
        wrong = 1.0 - true[np.arange(n), self.codes]
        rate = float(wrong.mean())
        spread = WIDTH * (np.sqrt(float((wrong * (1.0 - wrong)).mean()) / n) + _GRID_ERROR * (i > 0))
        return WrongLabels(rate, (rate - spread, rate + spread), T, wrong, true, P @ T)


def _scaled(Z: Array, codes: Array, T: Array, start: Array) -> Array:
    """The logarithm of the scale and the shifts under which labels that come by T are most likely."""
    to = T[:, codes].T

    def cost(x: Array) -> tuple[float, Array]:
        scores = np.exp(x[0]) * Z + x[1:]
        P = np.exp(scores - scores.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        joint = P * to
        q = np.maximum(joint.sum(axis=1), 1e-300)
        off = P - joint / q[:, None]
        prior = np.array([_SCALE_WIDTH**-2, *np.full(len(x) - 1, _SHIFT_WIDTH**-2)])
        pull = np.array([np.exp(x[0]) * float((off * Z).sum()), *off.sum(axis=0)])
        return float(0.5 * prior @ x**2 - np.log(q).sum()), pull + prior * x

    bounds = [(-4.0, 4.0)] + [(-8.0, 8.0)] * Z.shape[1]
    return np.asarray(minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-8}).x)


def _interval(weights: Array, rates: Array, errors: Array, n: int) -> tuple[float, float]:
    """The middle 95% of a mixture of normal errors around the rates; 3 of n rows may always be wrong unseen."""
    grid = np.linspace(0.0, 1.0, 2001)
    below = ndtr((grid[:, None] - rates) / np.maximum(errors, 1e-9)) @ (weights / weights.sum())
    low, high = grid[np.searchsorted(below, [0.025, 0.975]).clip(0, len(grid) - 1)]
    low = 0.0 if low <= grid[1] else low
    return float(low), float(min(1.0, max(high, rates @ weights + 3.0 / n)))
