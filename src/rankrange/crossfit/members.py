"""A table of members of the label-noise ensemble: trees, sparse linear models for wide tables, and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from .folds import Folds
from .predictions import sparse_predictions
from .text_member import text_predictions
from .trees import tree_predictions


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
    return {} if task.X is None else tree_predictions(task.X, task.codes, task.n_classes, task.folds.once(), task.rng)


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
