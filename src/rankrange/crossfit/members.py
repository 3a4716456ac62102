"""Members of the label-noise ensemble: a table for `find_label_issues`, and simple models beside that of a user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from .folds import Folds, default_repeats, draw_folds
from .models import Task
from .neighbours import POOL, neighbour_means
from .numeric import numeric_view, standardised, with_levels
from .predictions import linear_predictions, sparse_predictions, text_predictions
from .trees import fit_extra_trees, fit_trees, out_of_fold


class MemberTask(NamedTuple):
    """Rows (n, features) or None, label codes from 0, the number of classes, folds, random numbers, texts or None.

    The folds may be drawn several times; `folds.once()` are those of the first draw.
    """

    X: Array | None
    codes: Array
    n_classes: int
    folds: Folds
    rng: np.random.Generator
    texts: Sequence[str] | None = None


def _trees(task: MemberTask) -> Mapping[str, Array]:
    if task.X is None:
        return {}
    return out_of_fold(fit_trees(Task(task.X, task.codes, np.arange(task.n_classes)), task.folds.once(), task.rng))


def _sparse(task: MemberTask) -> Mapping[str, Array]:
    return {} if task.X is None else sparse_predictions(task.X, task.codes, task.n_classes, task.folds.once())


def _text(task: MemberTask) -> Mapping[str, Array]:
    return {} if task.texts is None else text_predictions(task.texts, task.codes, task.n_classes, task.folds)


# To add a member, write a function that returns a dict of out-of-fold probabilities (n, n_classes), and add an entry
# here. The weight of a member is fitted to the labels; an uninformative member gets weight 0.
MEMBERS: dict[str, Callable[[MemberTask], Mapping[str, Array]]] = {
    "trees": _trees,
    "sparse": _sparse,
    "text": _text,
}


def simple_predictions(
    X: Any,
    codes: Array,
    n_classes: int,
    rng: np.random.Generator,
    folds: Folds | None = None,
    mass: Array | None = None,
) -> dict[str, Array]:
    """Out-of-fold probabilities (n, n_classes) of linear models, nearest neighbours (up to 20,000 rows) and forests.

    The dict is empty if no column of X can be made numeric. Five folds are drawn if none are given.
    """
    view, n = numeric_view(X), len(codes)
    if view is None:
        return {}
    view = standardised(with_levels(view), mass)
    if folds is None:
        folds = draw_folds(n, rng, strata=codes, n_folds=5, n_repeats=default_repeats(n, n_classes))
    ordinary, trimmed = linear_predictions(view, codes, n_classes, folds, mass)
    found = {"linear": ordinary, "trimmed": trimmed}
    if n <= POOL:
        found["neighbours"] = neighbour_means(view, np.eye(n_classes)[codes], folds, rng, mass)
    return found | out_of_fold(fit_extra_trees(Task(view, codes, np.arange(n_classes), mass), folds.once(), rng))
