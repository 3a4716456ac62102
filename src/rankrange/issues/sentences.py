"""Sentences about labels, which are the same in the terminal, in notebooks, on pages and in review tools."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..label_noise import LIKELY

# The least share that is written as a number.
_LEAST = 0.0005
# Labels with a lower probability are named, if there are many and few are listed, though another class has the rest.
_UNLIKELY, _MANY = 0.1, 12
# Observed outcomes that models gave less than this are surprising.
SURPRISING = 0.05


def percent(share: float) -> str:
    """A share in per cent, with one decimal below 10%; never 0.0%."""
    if share < _LEAST:
        return "less than 0.1%"
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def assumption(labels: str) -> str:
    """What is assumed about the origin of the labels, "annotated" or "observed", and the option to change it."""
    if labels == "observed":
        return (
            "The target is taken as observed outcomes: unlikely ones are surprising, not errors, and are not decided; "
            "if people or programs assigned it, use labels='annotated'."
        )
    return (
        "The target is taken as annotated, so it may be wrong; if it is an outcome that was observed, such as a "
        "purchase or a default, use labels='observed'."
    )


def share_sentence(
    share: float, interval: tuple[float, float], contradicted: float | None = None, noun: str = "labels"
) -> str:
    """The share of wrong labels with its 95% interval, beside the share that models contradict at all.

    Errors near a class boundary look like hard rows, so predictions alone cannot tell how many of the contradicted
    labels are wrong. `noun` is "labels" or, for a numeric target, "targets".
    """
    (low, high), sure = interval, percent(share) if share else "none"
    ends = f"up to {percent(high)}" if low < _LEAST else f"{percent(low)} to {percent(high)}"
    sentence = f"{ends} of the {noun} are wrong (95% interval)"
    if contradicted is None or contradicted <= share + _LEAST:
        return f"{sure} of the {noun} are contradicted with confidence; {sentence}"
    return (
        f"models disagree with {percent(contradicted)} of the {noun} and contradict {sure} with confidence; the"
        f"{' other' * (share > 0)} disagreements may be errors or hard rows; {sentence}"
    )


def remark(given: Any, suggested: Any, p_given: float, p_suggested: float, p_wrong: float) -> str:
    """Why p_wrong is higher than the out-of-fold probabilities of the label suggest; "" if they explain it."""
    # If one label in ten is wrong, p_wrong is 1/2 at about this probability of the label.
    if p_wrong < LIKELY or p_given <= 0.1:
        return ""
    if p_given > p_suggested:
        return f"; but '{given}' is often wrong in this table, so '{suggested}' is likelier"
    return "; models that learn from wrong labels are less certain than they should be"


def headline(issues: Any) -> str:
    """The number of suspects and the share of wrong labels; for observed outcomes the number of surprising rows."""
    n, listed = len(issues.score), len(issues)
    if issues.labels == "observed":
        rows = f"{listed} of {n} rows {'has' if listed == 1 else 'have'} an outcome that models gave less than"
        return f"{rows} {SURPRISING:.0%}; about {issues.expected_surprises:.0f} are expected by chance"
    suspects = "1 suspect" if listed == 1 else f"{listed} suspects"
    sentence = share_sentence(issues.noise_estimate, issues.noise_interval, issues.contradicted)
    return f"{suspects} among {n} rows; {sentence}{_unlisted(issues)}{_unused(issues)}"


def _unlisted(issues: Any) -> str:
    """Why confidently contradicted labels are not listed; "" if at least half of them are."""
    if not issues.members:
        return ""
    mean = _mixed(issues)
    contradicted = (mean[np.arange(len(mean)), issues.codes] < _UNLIKELY) & (mean.max(axis=1) > 1.0 - _UNLIKELY)
    n = int(contradicted.sum())
    if n < _MANY or 2 * len(issues) >= n:
        return ""
    return (
        f"; models give less than {_UNLIKELY:.0%} to {n} labels and more than {1.0 - _UNLIKELY:.0%} to another class, "
        "but few are listed: a class that models find hard, or that lost its labels, explains them as well as errors "
        f"do; top({n}) shows the likeliest"
    )


def _unused(issues: Any) -> str:
    """The limit of rows that are predicted to be of a class that no label has; "" without such rows."""
    if not issues.members or issues.classes is None:
        return ""
    unused = np.bincount(issues.codes, minlength=len(issues.classes)) == 0
    predicted = _mixed(issues).argmax(axis=1)
    found = np.flatnonzero(unused & (np.bincount(predicted, minlength=len(unused)) > 0))
    if not len(found):
        return ""
    names, n = ", ".join(map(str, issues.classes[found].tolist())), int(unused[predicted].sum())
    return (
        f"; {n} rows are predicted to be of a class that no label has ({names}): labels alone cannot show whether "
        "these predictions are right, so most of these rows are not listed, and the share may be too low; review them"
    )


def _mixed(issues: Any) -> Any:
    return sum(weight * P for _, weight, P in issues.members)
