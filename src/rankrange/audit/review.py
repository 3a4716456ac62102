"""Apply a review to an audit: settle the decided rows, and update p(wrong) of the others.

Models are trained on relabelled rows with their new labels and without dropped rows. The share of reviewed suspects
that were wrong is compared with the expected share, and the odds of all other rows are multiplied by one factor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from ..errors import UserError
from ..label_noise import POSSIBLE, SURE, actions
from ..pages.text import visible
from ..tables.cell_formats import plain_number
from ..tables.read import texts_of
from .decisions import Decision, Decisions, contents_of_row, read_decisions, same_label, split_labels
from .target import RowNames, Target
from .task_result import TaskResult


@dataclass(frozen=True)
class Review:
    """Decisions matched to the rows of an audited table."""

    decided: dict[int, Decision]  # those whose rows were found, by the position of the row
    lost: int = 0  # decisions whose rows were not found, except decisions to drop a row
    wrong: int = 0  # decisions to relabel or drop a row
    right: int = 0  # decisions to keep it
    expected: float = float("nan")  # wrong rows among them, the sum of p_wrong; NaN if no decision has a p_wrong
    shift: float = 0.0  # the correction of the log odds of all rows that are undecided or "unsure"

    def in_words(self, left: int) -> list[str]:
        """The decisions and the correction as sentences; `left` is the number of rows that are still likely wrong."""
        if not (self.wrong or self.right or self.decided):
            return []
        sentences = [f"Decided so far: {self.wrong:,} wrong, {self.right:,} right."]
        if np.isfinite(self.expected) and self.wrong + self.right:
            changed = f"odds of being wrong are multiplied by {np.exp(self.shift):.2g} for the remaining rows"
            sentences.append(f"The audit had expected {self.expected:.1f} of these to be wrong, so the {changed}.")
        sentences.append(f"Further rows that are likely wrong: {left:,}.")
        if self.lost:
            sentences.append(f"Decisions that fit no row of this table and are not used: {self.lost:,}.")
        return sentences


def match(decisions: Decisions, source: Any, target: Target, names: RowNames) -> Review:
    """Find the rows of decisions in a table: the reviewed table, or the table after `rankrange apply`.

    Rows are identified by their fingerprints; of several equal rows, the one at the position that the name implies
    counts. If no row is found, and no decision was to drop one, this is an error.
    """
    if decisions.target != target.columns:
        raise UserError(
            f"decisions must be about the target of the audit, {', '.join(target.columns)}, got decisions about "
            f"{visible(', '.join(decisions.target), 80)}; give the file that belongs to it"
        )
    columns = [source.names.index(name) for name in target.columns]
    positions = np.array([(names.positions(one.row) or [-1])[-1] for one in decisions.made])
    dropped = np.sort([p for p, one in zip(positions, decisions.made, strict=True) if p >= 0 and one.choice == "drop"])
    after = positions - np.searchsorted(dropped, positions)  # the positions after dropped rows were removed
    rows = _rows_with({made.contents for made in decisions.made}, source, columns)
    decided: dict[int, Decision] = {}
    lost = 0
    for made, *expected in zip(decisions.made, positions.tolist(), after.tolist(), strict=True):
        free = [row for row in rows.get(made.contents, ()) if row not in decided]
        found = [row for row in expected if row in free] or (free if made.choice != "drop" else [])
        if found:
            decided[found[0]] = made
        elif made.choice != "drop":
            lost += 1
    if lost == len(decisions.made):
        raise UserError(
            f"decisions must be about rows of the table, got {lost:,} of which none is in it; give the decisions that "
            "were made on this table, or leave them out"
        )
    return _learnt(decisions, Review(decided, lost))


def _rows_with(contents: set[str], source: Any, columns: list[int]) -> dict[str, list[int]]:
    """The positions of the rows with these fingerprints."""
    found: dict[str, list[int]] = {}
    row = 0
    for batch in source.batches(as_written=True):
        for cells in texts_of(batch):
            name = contents_of_row(cells, columns)
            if name in contents:
                found.setdefault(name, []).append(row)
            row += 1
    return found


def _learnt(decisions: Decisions, review: Review) -> Review:
    """Compare the decisions with the estimated probabilities, and compute the correction of the log odds.

    It is the posterior mode under a standard normal prior, so a few decisions change little; at most 6 in size.
    """
    decided_rows = [made for made in decisions.made if made.choice != "unsure"]
    wrong = sum(made.choice != "keep" for made in decided_rows)
    estimated = [made for made in decided_rows if 0 <= made.p_wrong <= 1]
    if not estimated:
        return replace(review, wrong=wrong, right=len(decided_rows) - wrong)
    odds = logit(np.clip([made.p_wrong for made in estimated], 0.005, 0.995))
    was_wrong = np.array([made.choice != "keep" for made in estimated])
    n = len(estimated)
    mode = brentq(lambda shift: float((expit(odds + shift) - was_wrong).sum() + shift), -n, n)
    shift = float(np.clip(mode, -6.0, 6.0))
    return replace(review, wrong=wrong, right=len(decided_rows) - wrong, expected=float(expit(odds).sum()), shift=shift)


def with_decisions(target: Target, review: Review) -> Target:
    """The target after the review: new labels for training, given labels for the noise estimate, no dropped rows."""
    y, given, keep = target.y.copy(), target.y.copy(), np.ones(len(target.rows), dtype=bool)
    position_of = {int(row): i for i, row in enumerate(target.rows)}
    for row, made in review.decided.items():
        if row not in position_of:
            continue
        if made.choice == "drop":
            keep[position_of[row]] = False
        elif made.choice == "relabel":
            # The decisions may already be applied to this table, so both labels come from the decision.
            for labels, label in ((y, made.new_label), (given, made.given)):
                coded = _coded(target, label)
                if coded is not None:
                    labels[position_of[row]] = coded
    rare = None if target.rare is None else target.rare[keep]
    return replace(target, y=y[keep], rows=target.rows[keep], given=given[keep], rare=rare)


def _coded(target: Target, label: str) -> Any:
    """A label as in y: a number, a class code or a mask (unknown labels are left out); None if there is none."""
    if target.task == "numbers":
        number = plain_number(label)
        return None if np.isnan(number) else number
    if target.task == "classes":
        return next((code for code, name in enumerate(target.names) if same_label(name, label)), None)
    labels = split_labels(label, target.separator)
    return np.array([any(same_label(name, one) for one in labels) for name in target.names])


def reviewed(target: Target, decisions: Any, source: Any, names: RowNames) -> tuple[Target, Review]:
    """The target after the decisions (or the file of decisions), and the matched review."""
    made = decisions if isinstance(decisions, Decisions) else read_decisions(decisions)
    review = match(made, source, target, names)
    return with_decisions(target, review), review


def apply_review(result: TaskResult, target: Target, review: Review) -> TaskResult:
    """The result after the review: decided rows are no longer suspects, and the log odds of the others are corrected.

    Rows with the decision "unsure" are undecided. Suspects whose p_wrong falls below 0.2 leave the list.
    """
    kept_or_relabelled = {row for row, made in review.decided.items() if made.choice in ("keep", "relabel")}
    is_decided = np.array([int(row) in kept_or_relabelled for row in target.rows], dtype=bool)
    before = result.wrong[result.order]
    wrong = expit(logit(np.clip(result.wrong, 0.0, 1.0)) + review.shift)
    wrong[is_decided] = 0.0
    after = wrong[result.order]
    stays = np.flatnonzero(((after >= POSSIBLE) | (before < POSSIBLE)) & ~is_decided[result.order])
    order = result.order[stays]
    relabel = (result.actions == "relabel") & (after >= (SURE if review.shift else np.minimum(before, SURE)))
    return replace(
        result,
        wrong=wrong,
        order=order,
        actions=actions(after, relabel.astype(np.float64))[stays],
        suggested=[result.suggested[i] for i in stays],
        expected=[result.expected[i] for i in stays],
        against=result.against[stays],
    )
