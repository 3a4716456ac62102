"""A table of members of the label-noise ensemble: trees, and sparse linear models for wide tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from .folds import Folds
from .sparse_member import sparse_predictions
from .trees import tree_predictions


class MemberTask(NamedTuple):
    """Rows (n, features), label codes from 0, the number of classes, the folds, and a generator of random numbers."""

    X: Array
    codes: Array
    n_classes: int
    folds: Folds
    rng: np.random.Generator


def _trees(task: MemberTask) -> Mapping[str, Array]:
    return tree_predictions(*task)[0]


def _sparse(task: MemberTask) -> Mapping[str, Array]:
    return sparse_predictions(task.X, task.codes, task.n_classes, task.folds)


# To add a member, write a function that returns a dict of out-of-fold probabilities (n, n_classes), and add an entry
# here. The weight of a member is fitted to the labels; an uninformative member gets weight 0.
MEMBERS: dict[str, Callable[[MemberTask], Mapping[str, Array]]] = {"trees": _trees, "sparse": _sparse}
