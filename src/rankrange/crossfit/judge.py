"""How likely is each label wrong, by all that several out-of-fold opinions say?

Each opinion is read in three ways: it says nothing about the labels; it does, and they are wrong at one rate for all
classes; or at a rate for each (`core.flips`). How much each reading counts is decided once for all opinions, by their
likelihoods less a few units for what each has to explain. Where opinions say nothing no label is called wrong: labels
that nothing predicts would else be explained as half of them being wrong. Rates of their own, held to the likelihood
alone, make clean labels suspect; held together by more than a unit each, wrong labels of one class pass as a class that
is rarer than it is. Read this way opinions are comparable, however sure of themselves they were, and their weights are
those of the mixture that makes the given labels most likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit, softmax
from sklearn.neighbors import NearestNeighbors

from ..core.arrays import Array
from ..core.flips import LIKELY, POSSIBLE, TIED, WIDTH, WrongLabels
from ..core.flips_of_two import wrong_labels_by_prior
from ..core.rates import averaged_labels

# No opinion is surer than this of the label that a row has.
_LEAST = 1e-4
_ROUNDS = 300
# Units of log likelihood that an opinion must gain over the shares of the classes to be one.
_ANYTHING = 3.0
# Above this probability that no label is wrong nothing is claimed: p_wrong is not told above the second number, unless
# a label has a probability below the first of these: it may be looked at; or below the second: then p_wrong stands.
_UNTOLD, _SILENT, _UNLIKELY, _IMPOSSIBLE = 0.05, POSSIBLE - 0.01, 0.03, 0.003
# Of two classes, the share of labels that the mixture may miss where something is claimed; classes count alike, or one
# that is rarely seen would hide behind the other.
_HOPELESS = 0.3
# Where more labels seem wrong than this, nothing says which are: they would teach models more than the right ones.
_MOST_WRONG = 0.5
# A share of wrong labels below the first number is not claimed where it may be as low as the second.
_FEW_WRONG, _NEXT_TO_NONE = 0.01, 0.002
# Rows whose distance from the middle is so many times that of three quarters of the rows are far, if they are few.
_FAR, _FEW_FAR = 2.5, 0.25
# A row is not far, wherever it lies, whose neighbour of this rank is at most so many times as far away as that of three
# quarters of the rows; it is looked for among so many rows, and so many pairs of rows are compared at most.
_NEXT, _AS_NEAR, _LOOKED_AMONG, _COMPARED = 5, 3.0, 20_000, 2e8
# A value that so many rows have is not far out in its column.
_COMMON_ROWS = 2
# How often labels of far rows may be wrong; before anything is seen, not at all with probability one half, else mostly.
_FAR_RATES = np.linspace(0.0, 0.99, 34)
_FAR_MOSTLY = 8.0
# Averages over models and rates are too cautious, but not on few rows, nor where classes are bells that overlap. The
# log odds of what is told are multiplied by 1 up to the first number of rows, and by 1.15 from so many more on: half of
# what was best on development tables. Those of far rows, which in one table are mostly wrong or mostly right, by the
# last number.
_STEEP_FROM, _STEEP_OVER, _STEEP_BY, _STEEP_FAR = 200, 400, 0.15, 1.5
# Columns of at most so many levels; in how many of them a row that does not belong has a level of its own; how sure
# that is; and rows that show whether a column may be one of these.
_LEVELS, _ODD_LEVELS, _ODD, _SHOWN = 20, 3, 0.95, 2000


@dataclass(frozen=True)
class Verdict:
    """p_wrong (n,) of each label; the share of wrong labels with its 95% interval; and the sources behind both.

    The upper end of the interval is at least the share of labels that differ from what the sources predict together.

    `weights`, `rates` (a share of wrong labels) and `gains` are one per source. A gain says by how many units of log
    likelihood a source makes the labels more likely than the shares of the classes do; `gain` is that of all sources
    together, and `unlike` (n,) are the labels that these would not have given. `readings` is how much each reading
    counts: nothing is known, one rate for all classes, a rate for each.
    """

    p_wrong: Array
    rate: float
    interval: tuple[float, float]
    sources: tuple[str, ...]
    weights: Array
    rates: Array
    readings: Array
    gains: Array
    gain: float
    unlike: Array


def judge(opinions: Mapping[str, Array], codes: Array, mass: Array | None = None) -> Verdict:
    """Join opinions, each probabilities (n, classes) by fits that had not seen the row, into one verdict.

    Rows of which an opinion says nothing (NaN) are judged by none: they get the share of wrong labels for all.
    """
    P = [np.asarray(opinion, dtype=np.float64) for opinion in opinions.values()]
    known = np.all([np.isfinite(opinion).all(axis=1) for opinion in P], axis=0)
    worth = np.ones(len(codes)) if mass is None else mass
    rows, weight = np.flatnonzero(known), worth[known] / worth[known].sum()
    readings = Readings.of([opinion[rows] for opinion in P], codes[rows], None if mass is None else mass[rows])
    merits = np.stack([reading.merits(codes[rows], worth[rows]) for reading in readings])
    labels = codes[rows]
    expected = np.stack([r.expected(part) for r, part in zip(readings, softmax(merits, axis=1), strict=True)])
    weights = mixture_weights(expected[:, np.arange(len(rows)), labels], weight)
    shares = softmax(weights @ merits)
    if shares[0] < LIKELY:
        shares = np.array([0.0, *shares[1:]]) / shares[1:].sum()
    together = _together(expected, weights, labels, None if mass is None else mass[rows])
    gain, *gains = (_gain(E, readings[0].idle, labels, worth[rows]) for E in (together, *expected))
    unlike = np.zeros(len(codes), dtype=bool)
    unlike[rows] = together.argmax(axis=1) != labels
    told = _Told(tuple(opinions), weights, np.array(gains), gain, unlike, _most(unlike[rows], weight))
    verdict = _joined(readings, shares, rows, told)
    if expected.shape[2] == 2 and float(weight @ unlike[rows]) > _HOPELESS:
        # Overlap and wrong labels look alike to models that miss so many: there may be no wrong label at all.
        verdict = replace(verdict, interval=(0.0, verdict.interval[1]))
    return verdict


@dataclass(frozen=True)
class Readings:
    """One opinion read as saying nothing (the share of each label), with one rate, and with a rate for each class."""

    idle: Array
    tied: WrongLabels
    free: WrongLabels

    @classmethod
    def of(cls, opinions: list[Array], codes: Array, mass: Array | None) -> list[Readings]:
        """The readings of each opinion: by one rate for all classes, and by a rate for each."""
        logs = [np.log(np.clip(P, _LEAST, 1.0)) for P in opinions]
        shape, worth = opinions[0].shape, float(len(codes)) if mass is None else mass.sum()
        idle = np.broadcast_to(np.bincount(codes, weights=mass, minlength=shape[1]) / worth, shape)
        return [cls(idle, tied, free) for tied, free in wrong_labels_by_prior(logs, codes, mass, (TIED, 0.0))]

    def merits(self, codes: Array, worth: Array) -> Array:
        """(3,): the log likelihood of the labels, less what each reading must gain."""
        further = self.idle.shape[1] - 1
        costs = np.array([0.0, _ANYTHING, _ANYTHING + further])
        return np.array([worth @ np.log(part) for part in self._parts(codes)]) - costs

    def expected(self, shares: Array) -> Array:
        """(n, classes): the probability of each label, where the readings count with these shares."""
        parts = zip(shares, (self.idle, self.tied.expected, self.free.expected), strict=True)
        return np.asarray(sum(share * E for share, E in parts))

    def _parts(self, codes: Array) -> list[Array]:
        rows = np.arange(len(codes))
        return [np.maximum(E[rows, codes], 1e-12) for E in (self.idle, self.tied.expected, self.free.expected)]


def _together(expected: Array, weights: Array, codes: Array, mass: Array | None) -> Array:
    """(n, classes): the probability of each label by what all sources expect (S, n, classes), averaged as logarithms.

    A mixture believes the surest source; this one adds up what many weak ones say, which is all there is where many
    labels are wrong. It is read once more, because sources that agree are surer together than each.
    """
    logs = np.tensordot(weights, np.log(np.clip(expected, _LEAST, 1.0)), axes=1)
    (reading,) = Readings.of([softmax(logs, axis=1)], codes, mass)
    return reading.expected(softmax(reading.merits(codes, np.ones(len(codes)) if mass is None else mass)))


def _gain(E: Array, idle: Array, codes: Array, worth: Array) -> float:
    """Units of log likelihood by which the labels are more likely under E than by the shares of the classes."""
    rows = np.arange(len(codes))
    return float(worth @ (np.log(np.maximum(E[rows, codes], 1e-12)) - np.log(idle[rows, codes])))


class _Told(NamedTuple):
    """What of a verdict does not depend on how the sources are read."""

    sources: tuple[str, ...]
    weights: Array
    gains: Array
    gain: float
    unlike: Array
    most: float


def _joined(readings: list[Readings], shares: Array, rows: Array, told: _Told) -> Verdict:
    (one, each), n, weights = shares[1:], len(told.unlike), told.weights
    wrong = [one * reading.tied.wrong + each * reading.free.wrong for reading in readings]
    rates = np.array([one * reading.tied.rate + each * reading.free.rate for reading in readings])
    rate = float(weights @ rates)
    # Readings and opinions that differ are as good a sign of how little is known as the error that each claims.
    square = np.zeros(len(readings)) + shares[0] * rate**2
    for share, models in ((one, [r.tied for r in readings]), (each, [r.free for r in readings])):
        errors = np.array([(model.interval[1] - model.interval[0]) / (2.0 * WIDTH) for model in models])
        square += share * (errors**2 + (np.array([model.rate for model in models]) - rate) ** 2)
    spread = WIDTH * float(np.sqrt(weights @ square))
    p_wrong = np.full(n, rate)
    p_wrong[rows] = weights @ np.stack(wrong)
    interval = (max(0.0, rate - spread), min(1.0, max(rate + max(spread, 3.0 / n), told.most)))
    return Verdict(p_wrong, rate, interval, told.sources, weights, rates, shares, told.gains, told.gain, told.unlike)


def _most(unlike: Array, share: Array) -> float:
    """The share of labels that differ from what is predicted, at the upper end of its 95% interval.

    So many may be wrong at most, give or take: those near a boundary look like rows that are hard, and no model of
    wrong labels can tell how many of the hard ones are wrong.
    """
    part = float(share @ unlike)
    return min(1.0, part + WIDTH * float(np.sqrt(part * (1.0 - part) * (share**2).sum())))


# So many rows tell the weights of a mixture to one or two hundredths, where it is flat around them; more take time.
_MIXED_ON = 200_000


def mixture_weights(likelihood: Array, share: Array) -> Array:
    """The weights of the sources (S,) whose mixture makes the labels most likely: EM on likelihoods (S, n)."""
    if len(share) > _MIXED_ON:
        some = np.sort(np.random.default_rng(0).choice(len(share), _MIXED_ON, replace=False))
        likelihood, share = likelihood[:, some], share[some] / share[some].sum()
    weights = np.full(len(likelihood), 1.0 / len(likelihood))
    for _ in range(_ROUNDS):
        weights = weights * (likelihood @ (share / (weights @ likelihood)))
    return np.asarray(weights)


# ---- one verdict by averaging over rates: what `find_label_issues` and the audit tell --------------------------------


@dataclass(frozen=True)
class Weighed:
    """All opinions as one, and what they say of the labels.

    Attributes
    ----------
    p_wrong, ranking : ndarray of shape (n,)
        The probability that each label is wrong; and what rows are ranked by, which claims nothing.
    mean : ndarray of shape (n, classes)
        The mixture of the opinions that makes the given labels most likely.
    true : ndarray of shape (n, classes)
        The probability of each class being the true one.
    weights : dict of str to float
        How much each opinion counts.
    rate, interval : float and tuple of float
        The share of wrong labels, and its 95% interval.
    none : float
        The probability that no label of the rows that are not far is wrong. Above 5% nothing is claimed of them.
    transition : ndarray of shape (classes, classes)
        How often a row of one true class (rows) is given each label (columns).
    stories : ndarray
        The probability of each story of how labels became wrong (`core.rates`).
    """

    p_wrong: Array
    ranking: Array
    mean: Array
    true: Array
    weights: dict[str, float]
    rate: float
    interval: tuple[float, float]
    none: float
    transition: Array
    stories: Array

    @property
    def told(self) -> bool:
        """Whether the labels of rows that are not far show that some of them are wrong."""
        return self.none <= _UNTOLD


def mixed(opinions: Mapping[str, Array], codes: Array, far: Array | None = None) -> tuple[Array, Array]:
    """The weights of the opinions, and their mixture (n, classes), under which labels of near rows are most likely."""
    near = np.arange(len(codes)) if far is None else np.flatnonzero(~far)
    own = np.stack([np.asarray(P, dtype=np.float64)[near, codes[near]] for P in opinions.values()])
    weights = mixture_weights(np.clip(own, _LEAST, 1.0), np.full(len(near), 1.0 / len(near)))
    return weights, np.asarray(sum(weight * P for weight, P in zip(weights, opinions.values(), strict=True)))


def weigh(
    opinions: Mapping[str, Array],
    codes: Array,
    far: Array | None = None,
    stories: Array | None = None,
    odd: Array | None = None,
) -> Weighed:
    """Mix opinions by the likelihood of the labels, and average over the rates at which labels may be wrong.

    Parameters
    ----------
    opinions : mapping of str to ndarray of shape (n, classes)
        Probabilities of the labels as they are, by fits that had not seen the row, nor any far row.
    codes : ndarray of shape (n,)
        The labels as they are.
    far : ndarray of shape (n,), optional
        Rows that lie far out: their labels are wrong at a rate of their own.
    stories : ndarray, optional
        The probability of each story, where it is known: that of another result.
    odd : ndarray of shape (n,), optional
        Those of the far rows that do not belong, whatever is expected of their labels.
    """
    n, K = len(codes), next(iter(opinions.values())).shape[1]
    weights, mean = mixed(opinions, codes, far)
    P = np.stack([np.asarray(opinion, dtype=np.float64) for opinion in opinions.values()])
    near = np.arange(n) if far is None else np.flatnonzero(~far)
    own = np.clip(P[:, near, codes[near]], _LEAST, 1.0)
    kinds = range(len(P)) if K == 2 else [int(np.argmax(np.log(own).sum(axis=1)))]
    found = averaged_labels([mean[near], *(P[kind, near] for kind in kinds)], codes[near], stories)
    missed = mean[near].argmax(axis=1) != codes[near]
    by_class = np.bincount(codes[near], missed, K) / np.maximum(np.bincount(codes[near], minlength=K), 1)
    hopeless = (K == 2 and max(missed.mean(), by_class.mean()) > _HOPELESS) or found.rate > _MOST_WRONG
    if hopeless or (found.rate < _FEW_WRONG and found.interval[0] <= _NEXT_TO_NONE):
        # Overlap and wrong labels look alike to models that miss so many: whatever the evidence, nobody can tell. Nor
        # whether a handful of labels is wrong or next to impossible, where all may be right.
        found = replace(found, none=max(found.none, LIKELY), interval=(0.0, found.interval[1]))
    p_wrong, ranking, true = np.zeros(n), np.zeros(n), np.zeros((n, K))
    # Where the rate is in doubt, a label that is all but impossible may still be told: its p_wrong knows of the doubt.
    given = mean[near, codes[near]]
    most = np.select([given > _UNLIKELY, given > _IMPOSSIBLE], [_SILENT, LIKELY - 0.01], 1.0)
    seen = found.wrong / max(1.0 - found.none, 1e-12)  # in a table that is told, some labels are wrong
    p_wrong[near] = np.minimum(found.wrong, most) if found.none > _UNTOLD else _sharper(seen, _steepness(len(near)))
    ranking[near], true[near] = found.ranking, found.true
    # Errors among rows that are hard anyway look like them: as many labels as are not predicted may be wrong.
    unlike = _most(missed, np.full(len(near), 1.0 / len(near)))
    rate, interval = found.rate, (found.interval[0], max(found.interval[1], unlike))
    if far is not None and far.any():
        rows = np.flatnonzero(far)
        p_wrong[rows], outer = _far_labels(mean[rows, codes[rows]], K)
        if odd is not None and odd.any():
            p_wrong[odd] = np.maximum(p_wrong[odd], _ODD)
            outer = np.maximum(outer, _ODD * float(odd[rows].mean()))
        # Where many of them are wrong, the others are not to be trusted either: a guess far out is right half the time.
        ranking[rows] = np.maximum(p_wrong[rows], min(1.0, 2.0 * outer[1]) if outer[0] > _UNTOLD else outer[1])
        true[rows] = _others_of(mean[rows], codes[rows], p_wrong[rows])
        share = len(rows) / n
        rate = (1.0 - share) * rate + share * outer[1]
        interval = ((1.0 - share) * interval[0] + share * outer[0], (1.0 - share) * interval[1] + share * outer[2])
    told = dict(zip(opinions, weights.tolist(), strict=True))
    return Weighed(p_wrong, ranking, mean, true, told, rate, interval, found.none, found.transition, found.stories)


def _far_labels(own: Array, n_classes: int) -> tuple[Array, Array]:
    """p(wrong) of far rows, whose labels have these probabilities; and their rate between its limits (3,)."""
    other = (1.0 - own) / (n_classes - 1)
    right, wrong = (1.0 - _FAR_RATES[:, None]) * own, _FAR_RATES[:, None] * other
    prior = _FAR_RATES**_FAR_MOSTLY
    prior[0] = prior[1:].sum()
    weights = softmax(np.log(np.maximum(right + wrong, 1e-300)).sum(axis=1) + np.log(prior))
    p_wrong = weights @ (wrong / np.maximum(right + wrong, 1e-300))
    low, high = _FAR_RATES[np.searchsorted(np.cumsum(weights), [0.025, 0.975]).clip(0, len(weights) - 1)]
    middle = float(p_wrong.mean())
    p_wrong = np.minimum(p_wrong, _SILENT) if weights[0] > _UNTOLD else _sharper(p_wrong, _STEEP_FAR)
    return p_wrong, np.array([min(float(low), middle), middle, max(float(high), middle)])


def _sharper(p: Array, steepness: float) -> Array:
    """Probabilities whose log odds are so many times as large."""
    return np.asarray(expit(steepness * logit(np.clip(p, 1e-9, 1.0 - 1e-9))))


def _steepness(n: int) -> float:
    """By how much the log odds that near labels are wrong are too small, where so many rows are judged."""
    return 1.0 + _STEEP_BY * float(np.clip((n - _STEEP_FROM) / _STEEP_OVER, 0.0, 1.0))


def _others_of(P: Array, codes: Array, p_wrong: Array) -> Array:
    """p(true class) where the label is wrong with this probability and the other classes are as P has them."""
    true = P.copy()
    true[np.arange(len(P)), codes] = 0.0
    true *= (p_wrong / np.maximum(true.sum(axis=1), 1e-300))[:, None]
    true[np.arange(len(P)), codes] = 1.0 - p_wrong
    return true


def odd_rows(X: Any) -> Array:
    """Which rows have levels of their own where all others share a few: they do not belong, whatever their label.

    Asked are the columns of 2 to 20 levels that several rows have. A row is odd that has a value of its own in at least
    three of them, and in half of them.
    """
    n = X.shape[0]
    alone, asked = np.zeros(n, dtype=np.intp), 0
    for column in () if sp.issparse(X) else X.T:
        shown = column[:: 1 + n // _SHOWN]
        if len(np.unique(shown)) > _LEVELS + _FEW_FAR * len(shown):
            continue
        values, counts = np.unique(column, return_counts=True)
        single = values[counts == 1]
        if 2 <= len(values) - len(single) <= _LEVELS and len(single) <= _FEW_FAR * n:
            alone[np.isin(column, single)] += 1
            asked += 1
    return np.asarray(alone >= max(_ODD_LEVELS, asked / 2.0))


def far_rows(X: Any, codes: Array) -> Array:
    """Which rows lie so far out that they should not train: few, alone, and of classes that mostly lie near.

    Distances are in units of each column's middle rows. A value that many rows share is not far out in its column, rows
    that are close together are a kind of their own, and a class most of whose rows are far lies where it lies.
    """
    nowhere = np.zeros(len(codes), dtype=bool)
    if sp.issparse(X) or X.shape[1] == 0:
        return nowhere
    centre = np.median(X, axis=0)
    low, high = np.quantile(X, [0.1, 0.9], axis=0)
    width = np.maximum(1.4826 * np.median(np.abs(X - centre), axis=0), (high - low) / 2.56)
    spread = X.std(axis=0)
    width = np.where(width > 1e-9 * spread, width, spread)
    Z = (X - centre) / np.where(width > 0, width, 1.0)
    radius = np.sqrt((Z**2).mean(axis=1))
    limit = _FAR * float(np.quantile(radius, 0.75))
    asked = np.flatnonzero(radius > limit)
    if not len(asked):
        return nowhere
    own = Z[asked]
    for column in range(X.shape[1]):
        values, counts = np.unique(X[:, column], return_counts=True)
        own[np.isin(X[asked, column], values[counts >= _COMMON_ROWS]), column] = 0.0
    far = nowhere
    far[asked] = np.sqrt((own**2).mean(axis=1)) > limit
    if far.mean() > _FEW_FAR:
        return np.zeros(len(codes), dtype=bool)
    far[far] = _alone(Z, np.flatnonzero(far))
    mostly = np.bincount(codes, weights=far) > 0.5 * np.bincount(codes)
    return far & ~mostly[codes]


def _alone(Z: Array, rows: Array) -> Array:
    """Which of these rows of Z have no others around them, compared with what is usual for all rows.

    A kind of row that lies far out, whatever its labels say, has neighbours; rows that do not belong have none.
    """
    rng, n = np.random.default_rng(0), len(Z)
    size = int(min(n, _LOOKED_AMONG, max(_COMPARED / max(len(rows), 1), 10 * _NEXT)))
    if not len(rows) or size <= _NEXT:
        return np.ones(len(rows), dtype=bool)
    pool = rng.choice(n, size, replace=False)
    search = NearestNeighbors(n_neighbors=_NEXT + 1).fit(Z[pool])  # one more, because a row of the pool finds itself
    usual = float(np.quantile(search.kneighbors(Z[pool[:_SHOWN]])[0][:, -1], 0.75))
    return np.asarray(search.kneighbors(Z[rows])[0][:, -1] > _AS_NEAR * usual)
