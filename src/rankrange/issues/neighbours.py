"""What the labels of the nearest rows say: an opinion that needs no model, and counts only where it adds something."""

from __future__ import annotations

import numpy as np

from ..core.arrays import Array
from ..crossfit.opinions import label_shares
from .views import Data

# Of so many rows at most the neighbours are asked first, whether they add anything.
_ASKED = 2000


def neighbour_view(data: Data, plain: Array, rng: np.random.Generator) -> tuple[float, Array]:
    """How much the labels of the nearest rows should count, and the probabilities that they give.

    The mixture of both is fitted to the labels by maximum likelihood, first on some rows; a gain of up to two standard
    errors counts as none.

    Parameters
    ----------
    data : Data
        The rows and their labels.
    plain : ndarray of shape (n, classes)
        Probabilities by the model.
    rng : Generator
        Chooses some of the rows.

    Returns
    -------
    weight, near : float and ndarray of shape (n, classes)
        The weight is 0 where neighbours add nothing.
    """
    n = len(data.codes)
    some = np.sort(rng.choice(n, min(n, _ASKED), replace=False))
    for rows in (some, np.arange(n)) if len(some) < n else (some,):
        near = label_shares(data.X, data.codes, len(data.classes), rows, rng)
        own = np.stack([plain[rows, data.codes[rows]], near[np.arange(len(rows)), data.codes[rows]]])
        weight = _mixture_weight(own)
        gain = np.log((1.0 - weight) * own[0] + weight * own[1]) - np.log(own[0])
        if gain.mean() <= 2.0 * gain.std() / np.sqrt(len(rows)):
            return 0.0, plain
    return weight, near


def _mixture_weight(likelihood: Array) -> float:
    """The share of the second of two sources that makes the labels most likely: EM."""
    weight = 0.5
    for _ in range(200):
        second = weight * likelihood[1]
        weight = float((second / (second + (1.0 - weight) * likelihood[0])).mean())
    return weight
