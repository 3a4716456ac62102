"""The posterior of labels of high-leverage rows, whose predictions are extrapolations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import softmax

from ..core.arrays import Array
from .model import LabelNoisePosterior

# The prior probability that high-leverage rows are outliers with a rate of wrong labels of their own. Outliers are
# rare, and a few contradicted labels are enough evidence.
_OUTLIERS = 0.1
# The rates of wrong labels of outliers, all equally likely.
_RATES = np.arange(1, 100) / 100.0


def with_high_leverage(posterior: LabelNoisePosterior, codes: Array, high_leverage: Array) -> LabelNoisePosterior:
    """The posterior with that of high-leverage rows (a mask), which may have a rate of wrong labels of their own."""
    rows, part = np.flatnonzero(high_leverage), float(high_leverage.mean())
    if not len(rows):
        return posterior
    p_wrong, p_true, others = posterior.p_wrong.copy(), posterior.p_true.copy(), posterior.mean[rows].copy()
    p_wrong[rows], outer, ends = high_leverage_labels(posterior.mean[rows], codes[rows], p_wrong[rows])
    others[np.arange(len(rows)), codes[rows]] = 0.0
    p_true[rows] = others * (p_wrong[rows] / np.maximum(others.sum(axis=1), 1e-300))[:, None]
    p_true[rows, codes[rows]] = 1.0 - p_wrong[rows]
    share = (1.0 - part) * float(p_wrong[~high_leverage].mean()) + part * outer
    low, high = ((1.0 - part) * a + part * b for a, b in zip(posterior.interval, ends, strict=True))
    low = low if low * len(codes) >= 0.5 else 0.0  # less than half a row
    return replace(posterior, p_wrong=p_wrong, p_true=p_true, share=share, interval=(low, high))


def high_leverage_labels(P: Array, codes: Array, usual: Array) -> tuple[Array, float, tuple[float, float]]:
    """p_wrong (n,) of high-leverage rows, the share of wrong labels among them, and its 95% interval.

    Either these rows are like the others, with p_wrong `usual` (n,), or they are outliers with another rate of wrong
    labels. P (n, classes), for at least two classes, are predictions of models that were not fitted to any
    high-leverage row; `codes` (n,) are the given labels. The interval is widened if it does not contain the share.
    """
    of_label = P[np.arange(len(codes)), codes]
    right, wrong = (1.0 - _RATES[:, None]) * of_label, _RATES[:, None] * (1.0 - of_label) / (P.shape[1] - 1)
    prior = np.append(np.full(len(_RATES), _OUTLIERS / len(_RATES)), 1.0 - _OUTLIERS)
    likelihood = np.vstack([right + wrong, of_label])  # rows like the others have the predicted labels
    weights = softmax(np.log(np.maximum(likelihood, 1e-300)).sum(axis=1) + np.log(prior))
    p_wrong = weights @ np.vstack([wrong / np.maximum(right + wrong, 1e-300), usual])
    rates, share = np.append(_RATES, usual.mean()), float(p_wrong.mean())
    order = np.argsort(rates)
    low, high = rates[order][np.searchsorted(np.cumsum(weights[order]), [0.025, 0.975]).clip(0, len(rates) - 1)]
    return p_wrong, share, (min(float(low), share), max(float(high), share))
