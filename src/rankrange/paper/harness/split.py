"""A binary data set cut into 50% training, 25% validation and 25% test rows, and scaled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.preprocessing import StandardScaler

from ...core.arrays import Array
from ...datasets import load


@dataclass(frozen=True)
class Part:
    """Rows of one part with their classes."""

    X: Array
    y: Array

    def error(self, predicted: Array) -> float:
        """The share of wrong predictions in per cent."""
        return 100.0 * float(np.mean(predicted != self.y))


@dataclass(frozen=True)
class Split:
    """The three parts of a split."""

    train: Part
    validation: Part
    test: Part


def halves_and_quarters(dataset: str, seed: int, *, scale_on: str = "train") -> Split:
    """The split of this seed. Means and deviations are those of the training part, or of "all" rows."""
    data = load(dataset)
    n = len(data.target)
    order, first, second = np.random.default_rng(seed).permutation(n), n // 2, n // 2 + (n - n // 2) // 2
    scale = StandardScaler().fit(data.data if scale_on == "all" else data.data[order[:first]]).transform
    parts = (order[:first], order[first:second], order[second:])
    return Split(*(Part(scale(data.data[rows]), data.target[rows]) for rows in parts))
