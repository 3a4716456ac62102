"""A binary data set split into 50% training, 25% validation and 25% test rows, and standardised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.preprocessing import StandardScaler

from ...core.arrays import Array
from ...datasets import load


@dataclass(frozen=True)
class Part:
    """Training, validation or test rows with their classes."""

    X: Array
    y: Array

    def error(self, predicted: Array) -> float:
        """The share of wrong predictions in percent."""
        return 100.0 * float(np.mean(predicted != self.y))


@dataclass(frozen=True)
class Split:
    """Training, validation and test rows of a split."""

    train: Part
    validation: Part
    test: Part


def split_of_seed(dataset: str, seed: int, *, scale_on: str = "train") -> Split:
    """The random split of a data set by this seed.

    Columns are standardised by means and standard deviations of the training rows or, if `scale_on` is "all", of all
    rows.
    """
    data = load(dataset)
    n = len(data.target)
    order, first, second = np.random.default_rng(seed).permutation(n), n // 2, n // 2 + (n - n // 2) // 2
    scale = StandardScaler().fit(data.data if scale_on == "all" else data.data[order[:first]]).transform
    parts = (order[:first], order[first:second], order[second:])
    return Split(*(Part(scale(data.data[rows]), data.target[rows]) for rows in parts))
