"""The members of the label-noise ensemble beside the linear fits, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array
from .folds import Folds
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


# A new member is a function that returns out-of-fold probabilities (n, n_classes) by name, and an entry here. Its
# weight in the ensemble follows from the likelihood of the labels: an uninformative member gets none.
MEMBERS: dict[str, Callable[[MemberTask], Mapping[str, Array]]] = {"trees": _trees}
