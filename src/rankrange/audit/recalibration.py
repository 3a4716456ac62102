"""Recalibration of p_wrong by reviewed rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..errors import UserError
from ..pages.text import plural
from .decisions import Decision, Decisions


@dataclass(frozen=True)
class Recalibration:
    """Recalibrated probabilities; the result of `recalibrate`.

    Parameters
    ----------
    p_wrong, fitted : ndarray
        Knots of the isotonic regression of the reviews (wrong or not) on p_wrong; `predict` interpolates.
    n : int
        The number of reviewed rows.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.audit import recalibrate
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(0.3, 1.0, 400)
    >>> found = recalibrate(p, rng.random(400) < p**2)  # p_wrong was too high
    >>> bool(found.predict([0.6])[0] < 0.5)
    True
    """

    p_wrong: Array
    fitted: Array
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
        return np.interp(_checked(p_wrong), self.p_wrong, self.fitted)


def recalibrate(p_wrong: Any, wrong: Any = None) -> Recalibration:
    """Recalibrate p_wrong with the decisions of reviewers.

    Parameters
    ----------
    p_wrong : Decisions or array_like
        The estimated probability of each reviewed row; or decisions, of which "relabel" and "drop" mean wrong, "keep"
        means right, and those that are "unsure" or have no p_wrong are left out. The reviewed rows should be drawn at
        random from all rows to be decided. If only the most suspect rows were reviewed, the result holds for such rows.
    wrong : array_like of bool, optional
        Whether reviewers found each row wrong; required unless decisions are passed.

    Returns
    -------
    Recalibration
        The recalibrated probabilities.

    Raises
    ------
    UserError
        If there is no row, or if an argument has other values than described.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange.audit import recalibrate
    >>> found = recalibrate(np.linspace(0.5, 1.0, 60), np.arange(60) >= 30)
    >>> found.predict([0.6, 0.9]).tolist()
    [0.0, 1.0]
    """
    if isinstance(p_wrong, Decisions):
        made = _decided(p_wrong)
        p_wrong, wrong = [d.p_wrong for d in made], [d.choice != "keep" for d in made]
    given = np.asarray(wrong)
    if given.size and (given.dtype.kind not in "bui" or not np.isin(given, (0, 1)).all()):
        raise UserError(
            f"wrong must be True or False for each row, got values of type {given.dtype}; compare decisions first, as "
            "in wrong = decision != 'keep'"
        )
    p, found = _checked(p_wrong), given.astype(bool)
    if p.ndim != 1 or p.shape != found.shape or not len(p):
        raise UserError(
            f"recalibration needs p_wrong and a decision for each row, got shapes {p.shape}, {found.shape}; pass both"
        )
    from sklearn.isotonic import IsotonicRegression

    fit = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(p, found)
    return Recalibration(fit.X_thresholds_, fit.y_thresholds_, len(p))


def _checked(values: Any) -> Array:
    array = np.asarray(values, dtype=float)
    if not ((array >= 0.0) & (array <= 1.0)).all():
        raise UserError("p_wrong must be from 0 to 1 and never NaN, got other values; leave these rows out")
    return array


def reviews_in_words(decisions: Decisions) -> list[str]:
    """A sentence that compares p_wrong with the reviews; none if no row was decided."""
    made = _decided(decisions)
    wrong, expected = sum(d.choice != "keep" for d in made), sum(d.p_wrong for d in made)
    verb = "was" if wrong == 1 else "were"
    sentence = f"{wrong:,} of {plural(len(made), 'decided row')} {verb} wrong; the audit had expected {expected:.1f}."
    return [sentence] if made else []


def _decided(decisions: Decisions) -> list[Decision]:
    return [d for d in decisions.made if d.choice != "unsure" and np.isfinite(d.p_wrong)]
