"""The action for a row, from the probability that its label is wrong and the costs of mistakes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array

# Levels of p(wrong) that are reported as certain, likely and possible. Rows below the last are not suspects.
SURE, LIKELY, POSSIBLE = 0.8, 0.5, 0.2


@dataclass(frozen=True)
class Costs:
    """Costs of mistakes, in units of training on one wrong label.

    Parameters
    ----------
    drop : float
        The cost of dropping a row with a correct label. With 1, the default, rows with p_wrong of at least 1/2 are
        dropped or relabelled.
    review : float
        The cost of reviewing a row by hand, after which its label is correct. With 1/5, the default, rows with p_wrong
        of at least 1/5 that are not dropped or relabelled are listed for review. If it is at least drop / (1 + drop),
        no row is listed for review.

    Examples
    --------
    >>> from rankrange.label_noise import Costs
    >>> Costs(drop=3.0).flag_from  # a good row is worth three wrong labels
    0.75
    """

    drop: float = 1.0
    review: float = 0.2

    def __post_init__(self) -> None:
        for name, value in (("drop_cost", self.drop), ("review_cost", self.review)):
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0.0 < value < np.inf:
                raise ValueError(f"{name} must be a positive number, got {value!r}; 1 is the cost of one wrong label")

    @property
    def flag_from(self) -> float:
        """The smallest p_wrong at which dropping the row costs no more than keeping it: drop (1 - p) <= p."""
        return self.drop / (1.0 + self.drop)

    @property
    def review_from(self) -> float:
        """The smallest p_wrong at which reviewing or dropping the row costs no more than keeping it."""
        return min(self.review, self.flag_from)


def actions(p_wrong: Array, p_best: Array, costs: Costs | None = None) -> Array:
    """The action for each row: "relabel", "drop", "look" (review it) or "".

    A row is flagged if dropping it costs no more than keeping it, even if a review would cost less. A flagged row is
    relabelled if `p_best`, the posterior probability of the suggested class (0 if none may be suggested), is at least
    0.8, and dropped otherwise. Another row is reviewed if that costs no more than keeping it. The default is `Costs()`.
    """
    costs = Costs() if costs is None else costs
    sure = p_best >= SURE
    found = np.where(p_wrong >= costs.review_from, "look", "").astype("U7")
    flagged = p_wrong >= costs.flag_from
    return np.where(flagged, np.where(sure, "relabel", "drop"), found)
