"""The model of wrong labels (`core.flips`) for two classes, for many scores of the same rows at once.

It has four parameters here, so that one call of an optimiser costs more than its arithmetic: all problems are stacked
and take Newton's steps together, in a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from .arrays import Array
from .flips import APART, STARTS, WIDTH, WrongLabels, coarse, normed, wrong_labels

# Labels of two classes are wrong less often than the first of these; the second is as good as never.
_HALF, _NEVER = 0.5, 0.5 * float(expit(-9.0))
# At most so many steps, none of them longer, until one gains no more than this in the mean loss.
_STEPS, _FARTHEST, _GAINED = 60, 2.0, 1e-8
# Rows times problems whose slopes are held in memory together.
_AT_ONCE = 200_000


def wrong_labels_by_prior(
    scores: Sequence[Array], codes: Array, mass: Array | None, priors: Sequence[float]
) -> list[list[WrongLabels]]:
    """For each of several scores (n, classes) the model of wrong labels with each of these priors.

    As `wrong_labels` for each; but where no wrong label at all is as likely up to 2 units, intervals of two classes
    reach down to zero, wherever the optimiser came from.
    """
    if scores[0].shape[1] > 2:
        return [[wrong_labels(Z, codes, mass, prior=prior) for prior in priors] for Z in scores]
    share = np.ones(len(codes)) if mass is None else np.asarray(mass, dtype=np.float64)
    n, share = float(share.sum()), share / share.sum()
    scaled = [normed(np.asarray(Z, dtype=np.float64)) for Z in scores]
    starts = (*STARTS, _NEVER)
    jobs = [(source, prior / n, rate) for source in range(len(scores)) for prior in priors for rate in starts]
    which, weights, rates = (np.array(column) for column in zip(*jobs, strict=True))
    x, values = _sliced([Z for Z, _ in scaled], codes, share).minimised(which, weights, rates, rates == _NEVER)
    values = values.reshape(-1, len(starts))
    best = values[:, : len(STARTS)].argmin(axis=1)
    worse = values > values[np.arange(len(best)), best][:, None] + 2.0 / n
    every = _TwoClasses(
        np.stack([Z[:, 1] for Z, _ in scaled]), codes, np.broadcast_to(share, (len(scores), len(share)))
    )
    limits = every.intervals(x, which, n).reshape(2, *worse.shape)
    low, high = np.where(worse, 1.0, limits[0]).min(axis=1), np.where(worse, 0.0, limits[1]).max(axis=1)
    found = []
    for i, start in enumerate(best):
        job = i * len(starts) + int(start)
        source = int(which[job])
        found.append(every.told(x[job], source, (float(low[i]), float(high[i])), scaled[source][1]))
    return [found[i : i + len(priors)] for i in range(0, len(found), len(priors))]


def _sliced(Z: list[Array], codes: Array, share: Array) -> _TwoClasses:
    """Means over slices of the rows, which are the same rows by rank in all scores: a fit notices no difference."""
    live = np.flatnonzero(share > 0)
    parts = [coarse(scores[live], codes[live], share[live]) for scores in Z]
    return _TwoClasses(np.stack([part[0][:, 1] for part in parts]), parts[0][1], np.stack([part[2] for part in parts]))


class _Slopes(NamedTuple):
    """For several problems: the loss of each row, its gradient (problems, 4, n), and the mean second derivatives."""

    losses: Array
    first: Array
    second: Array
    p: Array
    rates: Array  # (2, problems, 1)


class _TwoClasses:
    """The same model for two classes and many scores z (S, n) at once; z is half of the difference of the two.

    Parameters of each problem: log a, b, and how often the labels of each class are wrong; p(class 1) is the logistic
    function of 2 a z + b.
    """

    low, high = np.array([-4.0, -16.0, -9.0, -9.0]), np.array([6.0, 16.0, 7.0, 7.0])

    def __init__(self, z: Array, codes: Array, share: Array) -> None:
        self.z, self.share = 2.0 * z, share
        self.sign = np.where(codes == 1, -1.0, 1.0)  # what a rate adds to the probability that class 1 has the label
        self.ones = (codes == 1).astype(np.float64)

    def slopes(self, x: Array, which: Array) -> _Slopes:
        """At parameters x (problems, 4), for the scores `which` of each problem."""
        e, r = np.exp(x[:, :1]) * self.z[which], _HALF * expit(x[:, 2:].T[:, :, None])
        p = expit(e + x[:, 1:2])
        bend = r * (1.0 - r / _HALF)
        to, fro = self.ones + self.sign * r[1], (1.0 - self.ones) - self.sign * r[0]  # of class 1 and of class 0
        d_to, d_fro = self.sign * bend[1], -self.sign * bend[0]
        q, pq = np.maximum(fro + p * (to - fro), 1e-300), p * (1.0 - p)
        steep = pq * (to - fro) / q
        gradient = np.stack([steep * e, steep, (1.0 - p) * d_fro / q, p * d_to / q], axis=1)  # of log q
        twice = np.stack([steep * (1.0 - 2.0 * p), -pq * d_fro / q, pq * d_to / q], axis=1)
        share = self.share[which]
        powers = np.stack([e * e, e, np.ones_like(e)], axis=2) * share[:, :, None]
        sums, means = twice @ powers, (gradient @ share[:, :, None])[:, :, 0]
        less = np.zeros((len(x), 4, 4))
        less[:, 0, 0], less[:, 0, 1], less[:, 1, 1] = sums[:, 0, 0] + means[:, 0], sums[:, 0, 1], sums[:, 0, 2]
        less[:, 0, 2:], less[:, 1, 2:] = sums[:, 1:, 1], sums[:, 1:, 2]
        less[:, [2, 3], [2, 3]] = means[:, 2:] * (1.0 - 2.0 * r[:, :, 0].T / _HALF)
        less[:, [1, 2, 2, 3, 3], [0, 0, 1, 0, 1]] = less[:, [0, 0, 1, 0, 1], [1, 2, 2, 3, 3]]
        second = (gradient * share[:, None]) @ gradient.transpose(0, 2, 1) - less
        return _Slopes(-np.log(q), -gradient, second, p, r)

    def minimised(self, which: Array, prior: Array, rates: Array, held: Array) -> tuple[Array, Array]:
        """Parameters and mean losses of all problems by damped Newton steps; where `held`, the rates do not move."""
        level = np.log(rates / (_HALF - rates))
        x = np.stack([np.full(len(which), 0.7), np.zeros(len(which)), level, level], axis=1)
        todo = np.arange(len(x))
        value, first, second = self._penalised(x, which, prior)
        damp = np.full(len(x), 1e-4)
        for _ in range(_STEPS):
            step = _newton_step(first[todo], second[todo], damp[todo], self._free(x[todo], first[todo], held[todo]))
            trial = np.clip(x[todo] + step, self.low, self.high)
            found = self._penalised(trial, which[todo], prior[todo])
            gained = value[todo] - found[0]
            good = gained >= 0.0
            damp[todo] = np.where(good, 0.1 * damp[todo], np.maximum(10.0 * damp[todo], 1e-3))
            better = todo[good]
            x[better] = trial[good]
            value[better], first[better], second[better] = (part[good] for part in found)
            todo = todo[~(good & (gained <= _GAINED)) & (damp[todo] < 1e4)]
            if not len(todo):
                break
        return x, value

    def _free(self, x: Array, first: Array, held: Array) -> Array:
        """Which parameters may move: not those that push at a bound."""
        free = ~(((x <= self.low) & (first > 0)) | ((x >= self.high) & (first < 0)))
        free[held, 2:] = False
        return free

    def _penalised(self, x: Array, which: Array, prior: Array) -> tuple[Array, Array, Array]:
        at, share = self.slopes(x, which), self.share[which]
        value, first, second = (share * at.losses).sum(axis=-1), (at.first @ share[:, :, None])[:, :, 0], at.second
        apart = (x[:, 3] - x[:, 2]) / 2.0
        bend = 1.0 + (apart / APART) ** 2
        pull, curve = apart / bend * 2.0 / APART**2, (2.0 - bend) / bend**2 / APART**2
        first[:, 2:] += (prior * pull)[:, None] * np.array([-1.0, 1.0])
        second[:, 2:, 2:] += (prior * curve)[:, None, None] * np.array([[1.0, -1.0], [-1.0, 1.0]])
        return value + 2.0 * prior * np.log(bend), first, second

    def intervals(self, x: Array, which: Array, n: float) -> Array:
        """(2, problems): the limits of each rate, by 1.96 standard errors or the rule of three."""
        parts = np.array_split(np.arange(len(x)), 1 + len(x) * self.z.shape[1] // _AT_ONCE)
        return np.concatenate([self._intervals(x[part], which[part], n) for part in parts if len(part)], axis=1)

    def _intervals(self, x: Array, which: Array, n: float) -> Array:
        at, share = self.slopes(x, which), self.share[which]
        wrong = at.p * at.rates[1] + (1.0 - at.p) * at.rates[0]
        rate = (share * wrong).sum(axis=-1)
        bend, e = at.rates * (1.0 - at.rates / _HALF), np.exp(x[:, :1]) * self.z[which]
        steep = at.p * (1.0 - at.p) * (at.rates[1] - at.rates[0])
        toward = np.stack([steep * e, steep, (1.0 - at.p) * bend[0], at.p * bend[1]], axis=1) @ share[:, :, None]
        direction = np.linalg.pinv(at.second, rcond=1e-8, hermitian=True) @ toward
        influence = wrong - rate[:, None] - (at.first * direction).sum(axis=1)
        spread = WIDTH * np.sqrt((share * influence**2).sum(axis=-1) / n)
        return np.stack([np.maximum(0.0, rate - spread), np.minimum(1.0, rate + np.maximum(spread, 3.0 / n))])

    def told(self, x: Array, which: int, interval: tuple[float, float], scale: float) -> WrongLabels:
        """All rows judged by these parameters."""
        p = expit(np.exp(x[0]) * self.z[which] + x[1])
        zero, one = _HALF * expit(x[2:])
        p, T = np.stack([1.0 - p, p], axis=1), np.array([[1.0 - zero, zero], [one, 1.0 - one]])
        codes = self.ones.astype(np.intp)
        joint = p * T[:, codes].T
        true = joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)
        rate = float(self.share[which] @ (p @ np.array([zero, one])))
        wrong, shift = 1.0 - true[np.arange(len(codes)), codes], np.array([-0.5, 0.5]) * x[1]
        return WrongLabels(rate, interval, T, wrong, true, p @ T, float(np.exp(x[0])) / scale, shift)


def _newton_step(first: Array, second: Array, damp: Array, free: Array) -> Array:
    """Steps downhill, however the function bends, none beyond a length; parameters that are not free stay."""
    second = second * free[:, :, None] * free[:, None, :] + np.eye(4) * ~free[:, :, None]
    values, vectors = np.linalg.eigh(second)
    along = np.einsum("bij,bi->bj", vectors, first * free)
    step = -np.einsum("bij,bj->bi", vectors, along / (np.maximum(np.abs(values), 1e-10) + damp[:, None]))
    length = np.sqrt((step**2).sum(axis=1, keepdims=True))
    return np.asarray(step * np.minimum(1.0, _FARTHEST / np.maximum(length, 1e-300)))
