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
from typing import Any

import numpy as np
from scipy.special import softmax

from ..core.arrays import Array
from ..core.flips import LIKELY, TIED, WrongLabels, wrong_labels

# No opinion is surer than this of the label that a row has.
_LEAST = 1e-4
_ROUNDS = 300
# Units of log likelihood that an opinion must gain over the shares of the classes to be one.
_ANYTHING = 3.0
_WIDTH = 1.96


@dataclass(frozen=True)
class Verdict:
    """p_wrong (n,) of each label; the share of wrong labels with its 95% interval; and the sources behind both.

    The upper end of the interval is at least the share of labels that differ from what the sources predict together.

    `weights` and `rates` (a share of wrong labels) are one per source. `readings` is how much each reading counts:
    nothing is known, one rate for all classes, a rate for each.
    """

    p_wrong: Array
    rate: float
    interval: tuple[float, float]
    sources: tuple[str, ...]
    weights: Array
    rates: Array
    readings: Array


def judge(opinions: Mapping[str, Array], codes: Array, mass: Array | None = None) -> Verdict:
    """Join opinions, each probabilities (n, classes) by fits that had not seen the row, into one verdict.

    Rows of which an opinion says nothing (NaN) are judged by none: they get the share of wrong labels for all.
    """
    P = [np.asarray(opinion, dtype=np.float64) for opinion in opinions.values()]
    known = np.all([np.isfinite(opinion).all(axis=1) for opinion in P], axis=0)
    worth = np.ones(len(codes)) if mass is None else mass
    rows, weight = np.flatnonzero(known), worth[known] / worth[known].sum()
    readings = [Readings.of(opinion[rows], codes[rows], None if mass is None else mass[rows]) for opinion in P]
    merits = np.stack([reading.merits(codes[rows], worth[rows]) for reading in readings])
    own = softmax(merits, axis=1)
    likelihood = np.stack([r.likelihood(codes[rows], part) for r, part in zip(readings, own, strict=True)])
    weights = mixture_weights(likelihood, weight)
    shares = softmax(weights @ merits)
    if shares[0] < LIKELY:
        shares = np.array([0.0, *shares[1:]]) / shares[1:].sum()
    verdict = _joined(readings, weights, shares, rows, len(codes), tuple(opinions))
    told = np.tensordot(weights, np.stack([opinion[rows] for opinion in P]), axes=1).argmax(axis=1)
    return replace(
        verdict, interval=(verdict.interval[0], max(verdict.interval[1], _unlike(told, codes[rows], weight)))
    )


@dataclass(frozen=True)
class Readings:
    """One opinion read as saying nothing (the share of each label), with one rate, and with a rate for each class."""

    idle: Array
    tied: WrongLabels
    free: WrongLabels

    @classmethod
    def of(cls, P: Array, codes: Array, mass: Array | None) -> Readings:
        """The readings of one opinion: by one rate for all classes, and by a rate for each."""
        Z = np.log(np.clip(P, _LEAST, 1.0))
        tied, free = (wrong_labels(Z, codes, mass, prior=prior) for prior in (TIED, 0.0))
        overall = np.bincount(codes, weights=mass, minlength=P.shape[1]) / (len(codes) if mass is None else mass.sum())
        return cls(np.broadcast_to(overall, P.shape), tied, free)

    def merits(self, codes: Array, worth: Array) -> Array:
        """(3,): the log likelihood of the labels, less what each reading must gain."""
        further = self.idle.shape[1] - 1
        costs = np.array([0.0, _ANYTHING, _ANYTHING + further])
        return np.array([worth @ np.log(part) for part in self._parts(codes)]) - costs

    def likelihood(self, codes: Array, shares: Array) -> Array:
        """(n,) of the labels as they are, where the readings count with these shares."""
        return np.asarray(shares @ np.stack(self._parts(codes)))

    def _parts(self, codes: Array) -> list[Array]:
        rows = np.arange(len(codes))
        return [np.maximum(E[rows, codes], 1e-12) for E in (self.idle, self.tied.expected, self.free.expected)]


def _joined(readings: list[Readings], weights: Array, shares: Array, rows: Array, n: int, names: Any) -> Verdict:
    one, each = shares[1:]
    wrong = [one * reading.tied.wrong + each * reading.free.wrong for reading in readings]
    rates = np.array([one * reading.tied.rate + each * reading.free.rate for reading in readings])
    rate = float(weights @ rates)
    # Readings and opinions that differ are as good a sign of how little is known as the error that each claims.
    square = np.zeros(len(readings)) + shares[0] * rate**2
    for share, models in ((one, [r.tied for r in readings]), (each, [r.free for r in readings])):
        errors = np.array([(model.interval[1] - model.interval[0]) / (2.0 * _WIDTH) for model in models])
        square += share * (errors**2 + (np.array([model.rate for model in models]) - rate) ** 2)
    spread = _WIDTH * float(np.sqrt(weights @ square))
    p_wrong = np.full(n, rate)
    p_wrong[rows] = weights @ np.stack(wrong)
    interval = (max(0.0, rate - spread), min(1.0, rate + max(spread, 3.0 / n)))
    return Verdict(p_wrong, rate, interval, names, weights, rates, shares)


def _unlike(told: Array, codes: Array, share: Array) -> float:
    """The share of labels that differ from what is predicted, at the upper end of its 95% interval.

    So many may be wrong at most, give or take: those near a boundary look like rows that are hard, and no model of
    wrong labels can tell how many of the hard ones are wrong.
    """
    unlike = float(share @ (told != codes))
    return min(1.0, unlike + _WIDTH * float(np.sqrt(unlike * (1.0 - unlike) * (share**2).sum())))


def mixture_weights(likelihood: Array, share: Array) -> Array:
    """The weights of the sources (S,) whose mixture makes the labels most likely: EM on likelihoods (S, n)."""
    weights = np.full(len(likelihood), 1.0 / len(likelihood))
    for _ in range(_ROUNDS):
        parts = weights[:, None] * likelihood
        weights = (parts / parts.sum(axis=0)) @ share
    return np.asarray(weights)
