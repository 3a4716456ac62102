"""Choosing m and k with a clean validation set: the paper's Algorithm 2.

At the optimum the two cuts are values of losses: rows above lam_hat are cut, rows below lam are not counted. So instead
of m and k one may learn the two values, from the losses that rows with right labels have:

    warm up on the average loss until the validation loss stops falling
    repeat:  lam_hat, lam = operation 1, operation 2 of the validation losses      (lam_hat >= lam is kept)
             m, k = how many training losses lie above each
             train some steps on the ranked range (m, k)
    until m and k settle.

Operations are mean + 1 and mean - 2 standard deviations; the latter is mostly negative for a loss that has a long tail,
and then k = n (docs/paper.md). A share above lam_hat of the clean rows is cut with the wrong ones, so m is no estimate
of the number of wrong labels; that comes from how clean rows of each class are predicted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import paths
from .objective import Objective
from .tuning import Choice, mass_of, strata_of

Array = NDArray[Any]
Operation = Callable[[Array], float]
_STEPS = 10  # between two looks at the validation set
_WARM_UP = 20  # looks at most
_ROUNDS = 40
_SETTLED = 0.001  # of the rows
_RESAMPLES = 200


def mean_plus(deviations: float) -> Operation:
    """The mean of the losses plus so many standard deviations."""

    def operation(losses: Array) -> float:
        return float(losses.mean() + deviations * losses.std())

    return operation


def quantile(share: float) -> Operation:
    """The value below which this share of the losses lies."""

    def operation(losses: Array) -> float:
        return float(np.quantile(losses, share))

    return operation


def operations_of(given: Any) -> tuple[Operation, Operation]:
    """(operation 1, operation 2) from None (the paper's), two shares (quantiles), or two functions of the losses."""
    if given is None:
        return mean_plus(1.0), mean_plus(-2.0)
    if isinstance(given, tuple | list) and len(given) == 2:
        if all(callable(part) for part in given):
            return given[0], given[1]
        if all(isinstance(part, int | float) and 0 <= part <= 1 for part in given) and given[0] >= given[1]:
            return quantile(float(given[0])), quantile(float(given[1]))
    raise ValueError(
        "operations must be None, two quantiles (upper, lower) in [0, 1] with upper >= lower, or two functions of the "
        f"validation losses, got {given!r}; pass for example (0.95, 0.0)"
    )


def choose_with_validation(
    objective: Objective, clean: Objective, operations: Any = None, *, choose_m: bool = True, choose_k: bool = True
) -> Choice:
    """m, k and a start for `objective`, from the rows of `clean`; what is not to be chosen stays as it is."""
    upper, lower = operations_of(operations)
    sets = paths.Sets.of(objective, mass_of(objective)[None])
    W = _warm_up(sets, clean)
    m, k, looks = objective.m, objective.k, []
    for _ in range(_ROUNDS):
        losses = clean.losses(clean.design.scores(W[0])).astype(np.float64)
        lam_hat = upper(losses)
        lam = min(lower(losses), lam_hat)
        above, inside = _counts(objective, W[0], lam_hat, lam)
        new_m = above if choose_m else m
        new_k = max(inside if choose_k else k, new_m + 1 if choose_k else k)
        looks.append((new_m, new_k, lam_hat, lam, float(losses.mean())))
        settled = abs(new_m - m) + abs(new_k - k) <= _SETTLED * objective.total and len(looks) > 1
        m, k = min(new_m, 0.95 * new_k), min(new_k, objective.total)
        if settled:
            break
        W = sets.fit(W, np.zeros(1, dtype=int), np.array([m]), np.array([k]), max_iter=_STEPS, tol=1e-6)[0]
    if objective.sample_weight is None:
        m, k = int(m), int(k)
    table = dict(
        zip(("m", "k", "lam_hat", "lam", "validation_loss"), map(np.array, zip(*looks, strict=True)), strict=True)
    )
    reason = f"m and k settled after {len(looks)} looks at the validation set"
    return Choice(m, W[0], table, reason, _noise(objective, clean, W[0], float(lam_hat)), k)


def _warm_up(sets: paths.Sets, clean: Objective) -> Array:
    """(1, r, p): the average loss, minimised until the validation loss stops falling."""
    one, none = np.zeros(1, dtype=int), np.zeros(1)
    W = np.zeros((1, clean.n_outputs, clean.design.p))
    least = np.inf
    for _ in range(_WARM_UP):
        moved = sets.fit(W, one, none, sets.totals, max_iter=_STEPS, tol=1e-6)[0]
        loss = float(clean.losses(clean.design.scores(moved[0])).mean())
        if loss >= least * (1.0 - 1e-4):
            return W if loss > least else moved
        W, least = moved, loss
    return W


def _counts(objective: Objective, W: Array, lam_hat: float, lam: float) -> tuple[float, float]:
    s = objective.losses(objective.design.scores(W))
    mass = mass_of(objective)
    return float(mass[s > lam_hat].sum()), float(mass[s > lam].sum())


def _noise(objective: Objective, clean: Objective, W: Array, lam_hat: float) -> tuple[float, float, float]:
    """The share of wrong labels, or of outliers, with its 95% interval."""
    if objective.loss.targets == "numbers":
        return _outliers(objective, clean, W, lam_hat)
    K = 2 if objective.n_outputs == 1 else objective.n_outputs
    known = _table(clean, W, K)
    given = _table(objective, W, K)
    rng = np.random.default_rng(0)
    estimate = _wrong_share(known[None], given[None])[0]
    drawn = [rng.multinomial(max(int(t.sum()), 1), t.ravel() / t.sum(), _RESAMPLES) for t in (known, given)]
    spread = 1.96 * float(_wrong_share(*(d.reshape(-1, K, K).astype(np.float64) for d in drawn)).std(ddof=1))
    return estimate, max(0.0, estimate - spread), min(1.0, estimate + spread)


def _table(objective: Objective, W: Array, K: int) -> Array:
    """Mass by (predicted, given)."""
    Z = objective.design.scores(W)
    guess = (Z[0] > 0).astype(np.intp) if objective.n_outputs == 1 else Z.argmax(axis=0)
    cells = guess * K + strata_of(objective)
    return np.bincount(cells, weights=mass_of(objective).astype(np.float64), minlength=K * K).reshape(K, K)


def _wrong_share(known: Array, given: Array) -> Array:
    """For tables (B, predicted, true) and (B, predicted, given): the share of labels that are not the true ones.

    Rows of one true class are predicted alike whatever their label says, so given = P(predicted | true) @ joint, and
    the joint of (true, given) is fitted by maximum likelihood: EM, which keeps it non-negative.
    """
    K = known.shape[-1]
    rates = (known + 1e-3 * np.eye(K)) / (known.sum(axis=1, keepdims=True) + 1e-3)
    given = given / given.sum(axis=(1, 2), keepdims=True)
    joint = 0.5 * given.sum(axis=1, keepdims=True) * (np.eye(K) + 1.0 / K)
    for _ in range(500):
        ratio = given / np.maximum(rates @ joint, 1e-300)
        joint = joint * (rates.transpose(0, 2, 1) @ ratio)
    return 1.0 - np.trace(joint, axis1=1, axis2=2) / joint.sum(axis=(1, 2))


def _outliers(objective: Objective, clean: Objective, W: Array, lam_hat: float) -> tuple[float, float, float]:
    """Rows above lam_hat, less the share of clean rows there."""
    above, _ = _counts(objective, W, lam_hat, lam_hat)
    share = above / objective.total
    known = float((clean.losses(clean.design.scores(W)) > lam_hat).mean())
    spread = 1.96 * np.sqrt(share * (1 - share) / objective.total + known * (1 - known) / clean.design.n)
    low, mid, high = (min(1.0, max(0.0, (s - known) / (1.0 - known))) for s in (share - spread, share, share + spread))
    return mid, low, high
