"""Several reviewers: merge their decisions, measure their agreement, list disagreements, and recalibrate p_wrong.

The decision with the most votes wins; "unsure" is an abstention. A row with a tie is a conflict: it keeps its target
and is listed for another review. The filled in list counts as the vote of one more reviewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import cohen_kappa_score

from ..errors import UserError
from ..issues.label_studio import majority
from ..pages.text import plural, visible
from .decisions import Decision, Decisions


class Disagreement(NamedTuple):
    """A row on which reviewers disagree.

    Parameters
    ----------
    row : str
        The name of the row.
    votes : dict of str
        The decision of each reviewer, in words.
    settled : bool
        Whether one decision has the most votes.
    """

    row: str
    votes: dict[str, str]
    settled: bool


@dataclass(frozen=True)
class Merged:
    """The merged decisions of several reviewers.

    Parameters
    ----------
    decisions : Decisions
        The decision with the most votes; rows with a tie or without votes are "unsure".
    kappa : dict
        For each pair of reviewers that decided common rows: Cohen's kappa and the number of these rows. Kappa is NaN if
        both made one and the same decision for all of them.
    disagreements : list of Disagreement
        The rows on which reviewers disagree.
    """

    decisions: Decisions
    kappa: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    disagreements: list[Disagreement] = field(default_factory=list)

    @property
    def conflicts(self) -> list[Disagreement]:
        """The disagreements that end in a tie."""
        return [found for found in self.disagreements if not found.settled]

    def in_words(self) -> list[str]:
        """The agreement of the reviewers, as sentences."""
        sentences = []
        for (one, other), (kappa, n) in self.kappa.items():
            value = "not defined, because both always made the same decision" if np.isnan(kappa) else f"{kappa:.2f}"
            sentences.append(
                f"Agreement of the reviewers {one} and {other} on {plural(n, 'row')}: Cohen's kappa {value}."
            )
        if self.disagreements:
            ties = f"ties, which change nothing: {len(self.conflicts):,}"
            sentences.append(f"Reviewers differ on {plural(len(self.disagreements), 'row')}; {ties}.")
        return sentences

    def conflicts_csv(self) -> bytes:
        """All disagreements as CSV for another reviewer: decisions "unsure", to be filled in, and the votes."""
        made = {decision.row: decision for decision in self.decisions.made}
        again = [made[found.row]._replace(choice="unsure", new_label="") for found in self.disagreements]
        votes = [
            visible("; ".join(f"{name}: {vote}" for name, vote in found.votes.items())) for found in self.disagreements
        ]
        settled = ["yes" if found.settled else "no" for found in self.disagreements]
        return replace(self.decisions, made=again).as_csv({"votes": votes, "settled": settled})


def merge_decisions(reviews: Mapping[str, Decisions]) -> Merged:
    """Merge the decisions of several reviewers.

    Parameters
    ----------
    reviews : mapping of str to Decisions
        The decisions of each reviewer, all about the same table and target.

    Returns
    -------
    Merged
        The decisions with the most votes, Cohen's kappa of each pair of reviewers, and the disagreements.

    Examples
    --------
    >>> from rankrange.audit import Decision, Decisions, merge_decisions
    >>> def review(*choices):
    ...     made = [Decision(str(i), "b", choice) for i, choice in enumerate(choices)]
    ...     return Decisions(["kind"], "classes", "0123", made)
    >>> merged = merge_decisions({"anna": review("keep", "drop", "keep"), "ben": review("keep", "drop", "drop")})
    >>> [made.choice for made in merged.decisions.made]
    ['keep', 'drop', 'unsure']
    >>> round(merged.kappa["anna", "ben"][0], 2)
    0.4
    """
    if not reviews:
        raise UserError("merging needs the decisions of at least one reviewer, got none; give a file")
    first = next(iter(reviews.values()))
    by_row: dict[str, dict[str, Decision]] = {}
    for name, decisions in reviews.items():
        if (decisions.table, decisions.target, decisions.task) != (first.table, first.target, first.task):
            raise UserError(
                f"reviewers must have decided about the same table and target, got another one from "
                f"{visible(name, 60)}; give decisions that were made on one audit"
            )
        for made in decisions.made:
            by_row.setdefault(made.row, {})[name] = made
    merged, differing = [], []
    for row, votes in by_row.items():
        one = next(iter(votes.values()))
        if any((made.given, made.contents) != (one.given, one.contents) for made in votes.values()):
            raise UserError(
                f"reviewers must have seen the same row {visible(row, 40)}, got different cells; audit again"
            )
        most, differ = majority((made.choice, made.new_label) for made in votes.values() if made.choice != "unsure")
        choice, label = most or ("unsure", "")
        merged.append(one._replace(choice=choice, new_label=label))
        if differ:
            words = {name: _in_words(made) for name, made in votes.items()}
            differing.append(Disagreement(row, words, most is not None))
    pairs = {pair: _kappa(by_row, *pair) for pair in combinations(reviews, 2)}
    return Merged(replace(first, made=merged), {pair: found for pair, found in pairs.items() if found[1]}, differing)


def _in_words(made: Decision) -> str:
    return f"relabel to {made.new_label}" if made.choice == "relabel" else made.choice


def _kappa(by_row: dict[str, dict[str, Decision]], one: str, other: str) -> tuple[float, int]:
    """Cohen's kappa of two reviewers over the rows that both decided, and the number of these rows."""
    both = [(votes[one], votes[other]) for votes in by_row.values() if one in votes and other in votes]
    pairs = [(a[2:4], b[2:4]) for a, b in both if "unsure" not in (a.choice, b.choice)]
    if len({choice for pair in pairs for choice in pair}) < 2:
        return float("nan"), len(pairs)
    return float(cohen_kappa_score(*(list(map(repr, choices)) for choices in zip(*pairs, strict=True)))), len(pairs)


# ---- recalibration ---------------------------------------------------------------------------------------------------


def recalibrate(p_wrong: Any, wrong: Any = None) -> IsotonicRegression:
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
    sklearn.isotonic.IsotonicRegression
        The isotonic regression of the reviews (wrong or not) on p_wrong; its `predict` recalibrates probabilities.

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
    given, p = np.asarray(wrong), np.asarray(p_wrong, dtype=float)
    judged = given.dtype.kind in "bui" and given.size > 0 and bool(np.isin(given, (0, 1)).all())
    if not judged or p.ndim != 1 or p.shape != given.shape or not ((p >= 0.0) & (p <= 1.0)).all():
        raise UserError(
            f"recalibration needs p_wrong from 0 to 1 and wrong, True or False for each row, got shapes {p.shape} and "
            f"{given.shape} of {given.dtype}; compare decisions first, as in wrong = decision != 'keep'"
        )
    return IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(p, given.astype(bool))


def reviews_in_words(decisions: Decisions) -> list[str]:
    """A sentence that compares p_wrong with the reviews; none if no row was decided."""
    made = _decided(decisions)
    wrong, expected = sum(d.choice != "keep" for d in made), sum(d.p_wrong for d in made)
    sentence = f"Wrong: {wrong:,} of {plural(len(made), 'decided row')}; the audit had expected {expected:.1f}."
    return [sentence] if made else []


def _decided(decisions: Decisions) -> list[Decision]:
    return [d for d in decisions.made if d.choice != "unsure" and np.isfinite(d.p_wrong)]
