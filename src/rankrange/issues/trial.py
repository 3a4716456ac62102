"""Are the claims true on a table like this one? Errors of the estimated kinds are planted, judged again, and counted.

The labels that the first judgement holds for true are taken as such, wrong ones are planted among them at the estimated
rates, class by class, and the same opinions judge the result. What share of the rows with a given claim was planted is
then known, and a curve through it corrects the claims of the first judgement. How likely each rate is comes from the
first judgement: the trial is about the opinions, and its own luck with the rates would only add to that of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit

from ..core.arrays import Array
from ..crossfit.folds import Folds, draw_folds
from ..crossfit.judge import Weighed, weigh
from ..crossfit.opinions import (
    TreeSettings,
    label_shares,
    less_sure,
    log_probabilities,
    logistic_objective,
    tree_opinions,
    trimmed_fits,
)

# Rows of a trial at most, and planted errors that it needs to say anything.
_ROWS, _LEAST_PLANTED, _LEAST_OF_CLASS = 2500, 20, 5
# Claims below this are not corrected: they are not told.
_FROM = 0.05
# How far intercept and slope of the correction may lie from none, in units of one standard deviation of a prior.
_SHIFT, _SLOPE = 0.5, 0.25
# A trial is one draw whose luck its rows share: on development tables following it further made claims no truer.
_ONE_DRAW = 0.05
# Opinions of a smaller weight are not asked again.
_COUNTS = 0.05


@dataclass(frozen=True)
class Stack:
    """The opinions that are asked about a table of numbers, so that they can be asked again about other labels.

    Attributes
    ----------
    X : ndarray or sparse matrix
        The rows as numbers.
    n_classes : int
        How many classes there are.
    C : float
        scikit-learn's C of the linear fits.
    trees : TreeSettings or None
        What was settled about the trees; None asks none.
    neighbours : bool
        Whether the nearest rows are asked.
    """

    X: Any
    n_classes: int
    C: float
    trees: TreeSettings | None
    neighbours: bool

    def counting(self, weights: Mapping[str, float]) -> Stack:
        """The same with those opinions alone that counted."""
        trees = self.trees
        if trees is not None:
            stop = trees.stop if weights.get("boosting", 0.0) >= _COUNTS else 0
            trees = replace(trees, stop=stop, forest=weights.get("forest", 0.0) >= _COUNTS)
        return replace(self, trees=trees, neighbours=weights.get("neighbours", 0.0) >= _COUNTS)

    def opinions(self, codes: Array, folds: Folds, rng: np.random.Generator) -> dict[str, Array]:
        """Out-of-fold probabilities of these labels by each opinion."""
        objective = logistic_objective(self.X, codes, self.n_classes)
        _, parts, _ = trimmed_fits(objective, codes, folds, self.C)
        logs = [log_probabilities(Z) for _, Z in parts]
        found = {name: np.exp(folds.average([log[v] for log in logs])) for name, v in (("ordinary", 0), ("robust", 2))}
        if self.trees is not None:
            found.update(tree_opinions(self.X, codes, self.n_classes, folds, rng, self.trees)[0])
        if self.neighbours:
            found["neighbours"] = label_shares(self.X, codes, self.n_classes, np.arange(len(codes)), rng)
        return found


@dataclass(frozen=True)
class Correction:
    """p -> expit(shift + slope logit(p)), with what it was learned from.

    `claimed` and `found` are the mean claim and the share of planted errors among the rows that the trial called likely
    wrong; `rows` and `planted` count what was judged.
    """

    shift: float = 0.0
    slope: float = 1.0
    rows: int = 0
    planted: int = 0
    claimed: float = float("nan")
    found: float = float("nan")

    def __call__(self, p: Array) -> Array:
        """The claims, corrected; those that are not told stay as they are."""
        moved = expit(self.shift + self.slope * logit(np.clip(p, 1e-9, 1.0 - 1e-9)))
        return np.where(p >= _FROM, moved, np.minimum(p, np.maximum(moved, p)))


def try_claims(stack: Stack, weighed: Weighed, far: Array, rng: np.random.Generator) -> Correction:
    """Plant errors, judge them, and fit the correction; none where the table is too small or nothing was told.

    Parameters
    ----------
    stack : Stack
        Who judged.
    weighed : Weighed
        The judgement whose claims are to be corrected.
    far : ndarray of shape (n,)
        Rows far out, which are left out.
    rng : Generator
        Draws rows and errors.
    """
    if not weighed.told:
        return Correction()
    rows = np.flatnonzero(~far)
    rows = np.sort(rng.choice(rows, min(len(rows), _ROWS), replace=False))
    true = weighed.true[rows].argmax(axis=1)
    given = _drawn(weighed.transition[true], rng)
    planted = given != true
    counts = np.bincount(given, minlength=stack.n_classes)
    if planted.sum() < _LEAST_PLANTED or counts.min() < _LEAST_OF_CLASS:
        return Correction()
    folds = draw_folds(len(rows), rng, strata=given, n_folds=5, n_repeats=1)
    some = replace(stack, X=stack.X[rows]).counting(weighed.weights)
    opinions = less_sure(some.opinions(given, folds, rng), given, some.X, weighed.transition)
    again = weigh(opinions, given, stories=weighed.stories)
    return _fitted(again.p_wrong, planted)


def _drawn(P: Array, rng: np.random.Generator) -> Array:
    """One class per row, with the probabilities of that row."""
    edges = np.cumsum(P, axis=1)
    return (rng.random((len(P), 1)) > edges[:, :-1]).sum(axis=1)


def _fitted(p: Array, planted: Array) -> Correction:
    asked = p >= _FROM
    x, y = logit(np.clip(p[asked], 1e-6, 1.0 - 1e-6)), planted[asked]

    def cost(at: Array) -> float:
        q = np.clip(expit(at[0] + at[1] * x), 1e-9, 1.0 - 1e-9)
        prior = 0.5 * (at[0] / _SHIFT) ** 2 + 0.5 * ((at[1] - 1.0) / _SLOPE) ** 2
        return float(prior - _ONE_DRAW * np.where(y, np.log(q), np.log(1.0 - q)).sum())

    shift, slope = minimize(cost, np.array([0.0, 1.0]), method="L-BFGS-B", bounds=[(-3.0, 3.0), (0.3, 3.0)]).x
    likely = p >= 0.5
    told = (float(p[likely].mean()), float(planted[likely].mean())) if likely.any() else (float("nan"),) * 2
    return Correction(float(shift), float(slope), len(p), int(planted.sum()), *told)
