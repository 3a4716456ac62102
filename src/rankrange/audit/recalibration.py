"""Recalibration of p_wrong by reviewed rows: corrected probabilities, and a cut with a guarantee.

The guarantee is conformal risk control by fixed-sequence testing: cuts are tested from the highest downwards, each by
the exact binomial test of "more than `share` of the rows above it are right", until one is not rejected. The
family-wise error of such a sequence is that of a single test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta, binom

from ..core.arrays import Array
from ..errors import UserError
from ..pages.text import plural
from .decisions import Decision, Decisions

# The number of cuts to test, and the rows above the first, in units of the smallest number of rows that could pass.
_CUTS, _FIRST = 20, 2


@dataclass(frozen=True)
class Recalibration:
    """Recalibrated probabilities and a cut with a guarantee; the result of `recalibrate`.

    Parameters
    ----------
    p_wrong, fitted : ndarray
        Knots of the isotonic regression of the reviews (wrong or not) on p_wrong; `predict` interpolates.
    threshold : float
        The cut: the guarantee holds for rows with at least this p_wrong. Infinite if it holds for no cut.
    share, confidence : float
        The guarantee: with this confidence at most this share of the rows above the cut is right.
    next_rows : int or None
        The number of further rows that the guarantee is about; None if it is about all rows above the cut.
    n : int
        The number of reviewed rows.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.audit import recalibrate
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.3, 1.0, 400)
    >>> found = recalibrate(p, rng.random(400) < p**2, share=0.2)  # p_wrong was too high
    >>> bool(found.predict([0.6])[0] < 0.5), bool(0.6 < found.threshold < 1.0)
    (True, True)
    """

    p_wrong: Array
    fitted: Array
    threshold: float
    share: float
    confidence: float
    next_rows: int | None
    n: int

    def predict(self, p_wrong: Any) -> Array:
        """The recalibrated probabilities.

        Parameters
        ----------
        p_wrong : array_like
            Probabilities estimated by an audit.

        Returns
        -------
        ndarray
            The recalibrated probabilities, in the order of `p_wrong`.
        """
        return np.interp(_checked(p_wrong, "p_wrong"), self.p_wrong, self.fitted)

    def in_words(self) -> str:
        """The guarantee as one sentence, or that it holds for no cut."""
        rows = "the rows" if self.next_rows is None else f"the next {plural(self.next_rows, 'row')}"
        sure = f"with {self.confidence:.0%} confidence"
        if np.isinf(self.threshold):
            rows = f"{plural(self.n, 'reviewed row')} {'does' if self.n == 1 else 'do'}"
            return f"{rows} not show a cut above which at most {self.share:.0%} are right, {sure}."
        return f"Of {rows} with p_wrong of at least {self.threshold:.3f}, at most {self.share:.0%} are right, {sure}."


def recalibrate(
    p_wrong: Any, wrong: Any = None, *, share: float = 0.1, confidence: float = 0.9, next_rows: int | None = None
) -> Recalibration:
    """Recalibrate p_wrong with the decisions of reviewers, and choose a cut with a guarantee.

    Parameters
    ----------
    p_wrong : Decisions or array_like
        The estimated probability of each reviewed row; or decisions, of which "relabel" and "drop" mean wrong, "keep"
        means right, and those that are "unsure" or have no p_wrong are left out. The guarantee holds only if the
        reviewed rows were drawn at random from all rows to be decided, and not if only the most suspect rows were
        reviewed.
    wrong : array_like of bool, optional
        Whether reviewers found each row wrong; required unless decisions are passed.
    share : float, default=0.1
        The accepted share of right rows above the cut.
    confidence : float, default=0.9
        The confidence of the guarantee.
    next_rows : int, optional
        If given, the guarantee is about this number of further rows above the cut, instead of all of them. It then
        needs more reviewed rows, because the share of right rows varies from one set of rows to the next.

    Returns
    -------
    Recalibration
        The recalibrated probabilities and the cut.

    Raises
    ------
    UserError
        If there is no row, if an argument has other values than described, or if share * next_rows is less than 1.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.audit import recalibrate
    >>> found = recalibrate(np.linspace(0.5, 1.0, 60), np.ones(60, dtype=bool), next_rows=100)
    >>> print(found.in_words())
    Of the next 100 rows with p_wrong of at least 0.500, at most 10% are right, with 90% confidence.
    """
    if isinstance(p_wrong, Decisions):
        made = _decided(p_wrong)
        p_wrong, wrong = [d.p_wrong for d in made], [d.choice != "keep" for d in made]
    given = np.asarray(wrong)
    if given.dtype.kind not in "bui" or not np.isin(given, (0, 1)).all():
        raise UserError(
            f"wrong must be True or False for each row, got values of type {given.dtype}; compare decisions first, as "
            "in wrong = decision != 'keep'"
        )
    p, found = _checked(p_wrong, "p_wrong"), given.astype(bool)
    if p.ndim != 1 or p.shape != found.shape or not len(p):
        raise UserError(f"recalibration needs p_wrong and a decision for each row, got shapes {p.shape}, {found.shape}")
    if not (0.0 < share < 1.0 and 0.0 < confidence < 1.0):
        raise UserError(f"share and confidence must be between 0 and 1, got {share} and {confidence}; try 0.1 and 0.9")
    from sklearn.isotonic import IsotonicRegression

    fit = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(p, found)
    threshold = _cut(p, ~found, *_limit(share, 1.0 - confidence, next_rows))
    return Recalibration(fit.X_thresholds_, fit.y_thresholds_, threshold, share, confidence, next_rows, len(p))


def _checked(values: Any, name: str) -> Array:
    array = np.asarray(values, dtype=float)
    if not ((array >= 0.0) & (array <= 1.0)).all():
        raise UserError(f"{name} must be from 0 to 1 and never NaN, got other values; leave these rows out")
    return array


def _limit(share: float, risk: float, next_rows: int | None) -> tuple[float, float]:
    """The share and the level of the tests. With `next_rows`, half of the level covers their sampling error."""
    if next_rows is None:
        return share, risk
    if next_rows < 1 or next_rows * share < 1.0:
        raise UserError(f"share * next_rows must be at least one row, got {share} of {next_rows}; raise one of them")
    allowed = np.floor(share * next_rows + 1e-9)
    # The largest share for which more right rows than allowed have at most half of the risk.
    return min(share, float(beta.ppf(risk / 2, allowed + 1, next_rows - allowed))), risk / 2


def _cut(p: Array, right: Array, share: float, risk: float) -> float:
    """The lowest cut such that all tests down to it reject "more than `share` are right above it"; inf if none."""
    order = np.argsort(-p, kind="stable")
    ordered, n_right = p[order], np.cumsum(right[order])
    smallest = int(np.ceil(np.log(risk) / np.log1p(-share)))
    first = min(_FIRST * smallest, len(p))
    sizes = np.unique(np.linspace(first, len(p), _CUTS).astype(int))
    cut = float("inf")
    for size in sizes:
        # Rows tied with the last one are also above the cut.
        rows = int(np.searchsorted(-ordered, -ordered[size - 1], side="right"))
        if binom.cdf(n_right[rows - 1], rows, share) > risk:
            break
        cut = float(ordered[rows - 1])
    return cut


def reviews_in_words(decisions: Decisions, next_rows: int = 100) -> list[str]:
    """Sentences that compare p_wrong with the reviews; none if no row was decided."""
    made = _decided(decisions)
    if not made:
        return []
    wrong, expected = sum(d.choice != "keep" for d in made), sum(d.p_wrong for d in made)
    verb = "was" if wrong == 1 else "were"
    found = recalibrate(decisions, next_rows=next_rows).in_words()
    return [
        f"{wrong:,} of {plural(len(made), 'decided row')} {verb} wrong; the audit had expected {expected:.1f}.",
        f"If the reviewed rows were drawn at random from the suspects: {found[0].lower()}{found[1:]}",
    ]


def _decided(decisions: Decisions) -> list[Decision]:
    return [d for d in decisions.made if d.choice != "unsure" and np.isfinite(d.p_wrong)]
