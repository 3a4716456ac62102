"""What the labels of the nearest rows say: an opinion that needs no model, and counts only where it adds something."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from ..core.arrays import Array
from .views import Data

# Neighbours, of how many rows at most, among how many.
_NEIGHBOURS, _ASKED, _POOL = 15, 2000, 20_000


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
        near = _label_shares(data, rows, rng)
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


def _label_shares(data: Data, asked: Array, rng: np.random.Generator) -> Array:
    """(asked, K): the shares of the classes among each row's neighbours, which do not include itself."""
    K = len(data.classes)
    near = _neighbours(data, asked, _NEIGHBOURS, rng)
    overall = np.bincount(data.codes, minlength=K) / len(data.codes)
    counts = np.stack([(data.codes[near] == c).sum(axis=1) for c in range(K)], axis=1)
    return (counts + 2.0 * overall) / (near.shape[1] + 2.0)


def _neighbours(data: Data, asked: Array, count: int, rng: np.random.Generator) -> Array:
    """(asked, count): the nearest rows among all, or among some where there are many; columns count alike."""
    n = len(data.codes)
    pool = np.sort(rng.choice(n, min(n, _POOL), replace=False))
    X, wanted = data.X[pool], data.X[asked]
    if not sp.issparse(X):
        spread = X.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)
        X, wanted = X / scale, wanted / scale
    count = min(count, len(pool) - 1)
    near = pool[NearestNeighbors(n_neighbors=count + 1).fit(X).kneighbors(wanted, return_distance=False)]
    # A row is among its own neighbours, unless it is repeated or not in the pool: then the last one is left out.
    itself = near == asked[:, None]
    itself[~itself.any(axis=1), -1] = True
    return near[~itself].reshape(len(asked), count)
