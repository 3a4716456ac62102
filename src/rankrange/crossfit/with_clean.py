"""Automatic m and k with a clean validation set: the paper's Algorithm 2.

The two cuts are values of losses: rows above lam_hat are dropped, rows below lam are not used. The algorithm learns
these values instead of m and k, from the losses of rows with correct labels:

    minimise the average loss                 (the paper stops when the validation loss no longer falls; no better)
    repeat:  lam_hat, lam = operation 1, operation 2 of the validation losses      (lam_hat >= lam is kept)
             m, k = the numbers of training losses above each
             train some steps on the ranked range (m, k)
    until m and k converge, at most 40 times.

The operations are mean + 1 and mean - 2 standard deviations; the latter is mostly negative, and then k = n
(docs/paper.md). Clean rows above lam_hat are dropped too, so the number of wrong labels is estimated from predictions
of clean rows of each class instead. A last step, which the paper does not have, also fits at this estimate, half-way to
it and at m = 0, and keeps the fit with the best predictions of the validation set.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from ..core.transition import WIDTH, predicted_codes
from ..outliers import outlier_share
from ..solvers.concentration import concentrate
from .choose import Choice
from .folds import draw_folds
from .path import dropping, ordinary_fit, part_of, with_C

# The largest number of evaluations of m and k on the validation set.
_ROUNDS = 40
_CONVERGED = 0.001  # of the rows
_RESAMPLES = 200


def choose_with_validation(
    objective: Objective, clean: Objective, *, choose_m: bool = True, choose_k: bool = True
) -> Choice:
    """Choose m and k from the losses of clean rows: Algorithm 2 of the paper and, if m is chosen, the last step.

    An m or k that is not chosen is that of the objective.
    """
    warm = W = ordinary_fit(objective.ranked(0, objective.total))
    m, k, rounds = objective.m, objective.k, []
    for _ in range(_ROUNDS):
        losses = clean.losses(clean.design.scores(W)).astype(np.float64)
        lam_hat, lam = losses.mean() + losses.std(), losses.mean() - 2.0 * losses.std()
        above, inside = _counts(objective, W, lam_hat, lam)
        new_m = above if choose_m else m
        new_k = max(inside, new_m + 1) if choose_k else k
        rounds.append((new_m, new_k, lam_hat, lam, float(losses.mean())))
        converged = abs(new_m - m) + abs(new_k - k) <= _CONVERGED * objective.total and len(rounds) > 1
        m, k = min(new_m, 0.95 * new_k), min(new_k, objective.total)
        if converged:
            break
        W = _fit(objective, W, m, k)
    whole = objective.sample_weight is None
    noise = partial(_noise, objective, clean, W, m)
    if choose_m:
        m, W = _best_of(objective, clean, [W, warm], m, k, noise()[0] * objective.total)
    names = ("m", "k", "lam_hat", "lam", "validation_loss")
    table = {name: np.array(column) for name, column in zip(names, zip(*rounds, strict=True), strict=True)}
    reason = f"the best predictions of the validation set, after {len(rounds)} evaluations"
    return Choice([(int(m) if whole else m, W)], table, reason, noise, int(k) if whole else k)


def _fit(objective: Objective, start: Array, m: float, k: float) -> Array:
    if objective.sample_weight is None:
        m, k = np.rint(m), np.rint(k)
    return concentrate(objective.ranked(m, k), start, steps=1)[0]


def _best_of(
    objective: Objective, clean: Objective, starts: list[Array], m: float, k: float, estimate: float
) -> tuple[float, Array]:
    """The best of m, the `estimate`, their mean and 0, with its fit (r, p), by the predictions of the validation set.

    Each is at most 95% of k. All fits start from the one of `starts` with the best predictions.
    """
    start = min(starts, key=lambda W: _error(clean, W))
    levels = np.minimum([m, 0.5 * (m + estimate), estimate, 0.0], 0.95 * k)
    levels = levels if objective.sample_weight is not None else np.rint(levels)
    fits = [_fit(objective, start, level, k) for level in levels]
    best = int(np.argmin([_error(clean, W) for W in fits]))
    return float(levels[best]), fits[best]


def _error(clean: Objective, W: Array) -> float:
    """The error rate for classes, or the mean loss for numeric targets."""
    Z = clean.design.scores(W)
    if clean.loss.targets == "numbers":
        return float(clean.losses(Z).mean())
    return float((predicted_codes(Z) != clean.strata).mean())


def _counts(objective: Objective, W: Array, lam_hat: float, lam: float) -> tuple[float, float]:
    s = objective.losses(objective.design.scores(W))
    mass = objective.mass
    return float(mass[s > lam_hat].sum()), float(mass[s > lam].sum())


def _noise(objective: Objective, clean: Objective, W: Array, m: float) -> tuple[float, float, float]:
    """The share of wrong labels, or of outliers, and the lower and upper limit of its 95% interval."""
    if objective.loss.targets == "numbers":
        return outlier_share(objective.design.scores(W)[0] - objective.y, objective.mass.astype(np.float64))
    K = 2 if objective.n_outputs == 1 else objective.n_outputs
    clean_table, given_table = _confusions(objective, clean, m / objective.total, K)
    rng = np.random.default_rng(0)
    estimate = _wrong_share(clean_table[None], given_table[None])[0]
    drawn = [rng.multinomial(max(int(t.sum()), 1), t.ravel() / t.sum(), _RESAMPLES) for t in (clean_table, given_table)]
    spread = WIDTH * float(_wrong_share(*(d.reshape(-1, K, K).astype(np.float64) for d in drawn)).std(ddof=1))
    return estimate, max(0.0, estimate - spread), min(1.0, estimate + spread)


def _confusions(objective: Objective, clean: Objective, share: float, K: int) -> tuple[Array, Array]:
    """Confusion tables: (predicted, true) of the clean rows and (predicted, given) of the training rows.

    Each half of the rows is predicted by a fit to the other half without the `share` of the largest losses.
    """
    halves = draw_folds(objective.design.n, np.random.default_rng(0), strata=objective.strata, n_repeats=1)
    # Any fit that predicts is valid here, and a weak penalty would only add variance.
    objective = with_C(objective.ranked(0, objective.total), min(1.0, objective.C_of_sum))
    tables = []
    for train, test in zip(halves.train, halves.test, strict=True):
        part = dropping(part_of(objective, np.flatnonzero(train)), share)
        fit = concentrate(part, ordinary_fit(part.ranked(0, part.k)), rounds=30)[0]
        tables.append((_table(clean, fit, K), _table(objective.rows(np.flatnonzero(test), 0, 1), fit, K)))
    known, given = (np.array(found) for found in zip(*tables, strict=True))
    return known.mean(axis=0), given.sum(axis=0)


def _table(objective: Objective, W: Array, K: int) -> Array:
    """The mass (K, K) of the rows by predicted and given class."""
    cells = predicted_codes(objective.design.scores(W)) * K + objective.strata
    return np.bincount(cells, weights=objective.mass.astype(np.float64), minlength=K * K).reshape(K, K)


def _wrong_share(clean_table: Array, given_table: Array) -> Array:
    """The share of wrong labels, from tables (B, predicted, true) and (B, predicted, given).

    Predictions depend on the true class and not on the given label, so given = P(predicted | true) @ joint. EM fits the
    non-negative joint distribution of (true, given) by maximum likelihood.
    """
    K = clean_table.shape[-1]
    rates = (clean_table + 1e-3 * np.eye(K)) / (clean_table.sum(axis=1, keepdims=True) + 1e-3)
    given_table = given_table / given_table.sum(axis=(1, 2), keepdims=True)
    joint = 0.5 * given_table.sum(axis=1, keepdims=True) * (np.eye(K) + 1.0 / K)
    for _ in range(500):
        ratio = given_table / np.maximum(rates @ joint, 1e-300)
        joint = joint * (rates.transpose(0, 2, 1) @ ratio)
    return 1.0 - np.trace(joint, axis1=1, axis2=2) / joint.sum(axis=(1, 2))
