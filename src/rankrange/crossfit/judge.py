"""How likely is each label wrong, by all that several out-of-fold opinions say?

Each opinion is read through two models of wrong labels (`core.flips`): one rate for all classes, and a rate for each.
Which of them holds is decided once for all opinions, by their likelihoods less one unit for each further rate (AIC):
held to the likelihood alone, rates of their own make clean labels suspect; held together by more, wrong labels of one
class pass as a class that is rarer than it is. Read this way opinions are comparable, however sure of themselves they
were, and their weights are those of the mixture that makes the given labels most likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from ..core.arrays import Array
from ..core.flips import TIED, WrongLabels, wrong_labels

# No opinion is surer than this of the label that a row has.
_LEAST = 1e-4
_ROUNDS = 300
_WIDTH = 1.96
# From this probability on a label is called wrong.


@dataclass(frozen=True)
class Verdict:
    """p_wrong (n,) of each label; the share of wrong labels with its 95% interval; and the sources behind both.

    `weights` and `rates` (a share of wrong labels) are one per source. `by_class` is how much the model with a rate for
    each class counts, in [0, 1].
    """

    p_wrong: Array
    rate: float
    interval: tuple[float, float]
    sources: tuple[str, ...]
    weights: Array
    rates: Array
    by_class: float


def judge(opinions: Mapping[str, Array], codes: Array, mass: Array | None = None) -> Verdict:
    """Join opinions, each probabilities (n, classes) by fits that had not seen the row, into one verdict.

    Rows of which an opinion says nothing (NaN) are judged by none: they get the share of wrong labels for all.
    """
    P = [np.asarray(opinion, dtype=np.float64) for opinion in opinions.values()]
    known = np.all([np.isfinite(opinion).all(axis=1) for opinion in P], axis=0)
    worth = np.ones(len(codes)) if mass is None else mass
    rows, weight = np.flatnonzero(known), worth[known] / worth[known].sum()
    pairs = [_readings(opinion[rows], codes[rows], None if mass is None else mass[rows]) for opinion in P]
    extra = P[0].shape[1] - 1
    gains = (
        np.array(
            [
                worth[rows] @ (_log_likelihood(free, codes[rows]) - _log_likelihood(tied, codes[rows]))
                for free, tied in pairs
            ]
        )
        - extra
    )
    likelihood = np.stack(
        [
            np.exp(_log_likelihood(free, codes[rows])) * s + np.exp(_log_likelihood(tied, codes[rows])) * (1.0 - s)
            for (free, tied), s in zip(pairs, expit(gains), strict=True)
        ]
    )
    weights = mixture_weights(likelihood, weight)
    by_class = float(expit(weights @ gains))
    return _joined(pairs, weights, by_class, rows, len(codes), tuple(opinions))


def _joined(
    pairs: list[tuple[WrongLabels, WrongLabels]], weights: Array, by_class: float, rows: Array, n: int, names: Any
) -> Verdict:
    wrong, rates, errors = [], [], []
    for free, tied in pairs:
        wrong.append(by_class * free.wrong + (1.0 - by_class) * tied.wrong)
        rates.append(by_class * free.rate + (1.0 - by_class) * tied.rate)
        widths = [(model.interval[1] - model.interval[0]) / (2.0 * _WIDTH) for model in (free, tied)]
        errors.append(by_class * widths[0] + (1.0 - by_class) * widths[1])
    rate = float(weights @ np.array(rates))
    # Opinions that differ are as good a sign of how little is known as the error that each claims.
    spread = _WIDTH * float(np.sqrt(weights @ (np.square(errors) + np.square(np.array(rates) - rate))))
    p_wrong = np.full(n, rate)
    p_wrong[rows] = weights @ np.stack(wrong)
    return Verdict(
        p_wrong, rate, (max(0.0, rate - spread), min(1.0, rate + spread)), names, weights, np.array(rates), by_class
    )


def _readings(P: Array, codes: Array, mass: Array | None) -> tuple[WrongLabels, WrongLabels]:
    """The opinion read with a rate for each class, and with one for all."""
    Z = np.log(np.clip(P, _LEAST, 1.0))
    return wrong_labels(Z, codes, mass, prior=0.0), wrong_labels(Z, codes, mass, prior=TIED)


def _log_likelihood(reading: WrongLabels, codes: Array) -> Array:
    """(n,) of the labels as they are."""
    return np.log(np.maximum(reading.expected[np.arange(len(codes)), codes], 1e-12))


def mixture_weights(likelihood: Array, share: Array) -> Array:
    """The weights of the sources (S,) whose mixture makes the labels most likely: EM on likelihoods (S, n)."""
    weights = np.full(len(likelihood), 1.0 / len(likelihood))
    for _ in range(_ROUNDS):
        parts = weights[:, None] * likelihood
        weights = (parts / parts.sum(axis=0)) @ share
    return np.asarray(weights)
