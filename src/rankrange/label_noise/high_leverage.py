"""The posterior of labels of high-leverage rows, whose predictions are extrapolations."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from ..core.arrays import Array

# Candidate rates of wrong labels of high-leverage rows, and the exponent of the prior. A rate of 0 has probability one
# half; the probability of other rates is proportional to this power, because such rows are mostly all correct or all
# wrong.
_RATES = np.linspace(0.0, 0.99, 34)
_MOSTLY_WRONG = 8.0


def high_leverage_labels(P: Array, codes: Array) -> tuple[Array, float, tuple[float, float]]:
    """p_wrong (n,) of high-leverage rows, the share of wrong labels among them, and its 95% interval.

    These rows have their own rate of wrong labels; the prior favours 0 and rates near 1. P (n, classes) are predictions
    of models that were not fitted to any high-leverage row; `codes` (n,) are the given labels.
    """
    of_label = P[np.arange(len(codes)), codes]
    other = (1.0 - of_label) / (P.shape[1] - 1)
    right, wrong = (1.0 - _RATES[:, None]) * of_label, _RATES[:, None] * other
    prior = _RATES**_MOSTLY_WRONG
    prior[0] = prior[1:].sum()
    weights = softmax(np.log(np.maximum(right + wrong, 1e-300)).sum(axis=1) + np.log(prior))
    p_wrong = weights @ (wrong / np.maximum(right + wrong, 1e-300))
    low, high = _RATES[np.searchsorted(np.cumsum(weights), [0.025, 0.975]).clip(0, len(weights) - 1)]
    share = float(p_wrong.mean())
    return p_wrong, share, (min(float(low), share), max(float(high), share))
