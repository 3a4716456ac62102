"""The record of a problem of rows other than a wrong target, and the words for each kind of problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .target import row_text

# The names of each kind in the singular and in the plural, in the order in which they are shown. Other kinds follow;
# their names are made from the kind.
KINDS = {
    "outlier": ("row with an outlier", "rows with outliers"),
    "impossible": ("row with an impossible value", "rows with impossible values"),
    "placeholder": ("row with a placeholder for a missing value", "rows with placeholders for missing values"),
    "duplicate": ("duplicate row", "duplicate rows"),
    "conflicting duplicate": (
        "row equal to another except for its target",
        "rows equal to others except for their target",
    ),
    "near duplicate": ("near duplicate", "near duplicates"),
    "bad leverage point": ("bad leverage point", "bad leverage points"),
    "leak": ("column that leaks the target", "columns that leak the target"),
}
# Kinds whose first row is the original, which is not counted.
COPIES = ("duplicate", "near duplicate")


@dataclass(frozen=True)
class RowProblem:
    """A problem of one or several rows other than a wrong target.

    Attributes
    ----------
    kind : str
        A key of `KINDS`, or the name of a check that was added.
    rows : tuple of int or str
        The rows with the problem; of duplicates the first is the original. Empty if a whole column leaks.
    column : str or None
        The column whose cells are in doubt, or that leaks; None if the problem concerns the whole row.
    value, usual : str
        The value in that cell and the usual values of the column; "" if there are none.
    sentence, strength : str and float
        The evidence in plain English, with values, and its strength, from 0 to 1.
    action : str
        The suggested action: "look", "drop" or "fix".
    """

    kind: str
    rows: tuple[Any, ...]
    column: str | None
    value: str
    usual: str
    sentence: str
    strength: float
    action: str = "look"


def words_of(kind: str) -> tuple[str, str]:
    """The names of a kind of problem, in the singular and in the plural."""
    return KINDS.get(kind, (f"row with {kind}", f"rows with {kind}"))


def kinds_in(problems: Sequence[RowProblem]) -> list[str]:
    """The kinds that occur, in the order of `KINDS`; others follow in the order of their occurrence."""
    found = dict.fromkeys(problem.kind for problem in problems)
    return [*(kind for kind in KINDS if kind in found), *(kind for kind in found if kind not in KINDS)]


def count_problems(problems: Sequence[RowProblem]) -> dict[str, int]:
    """The number of rows, or of columns for a "leak", with each kind of problem that occurs; originals do not count."""
    counts = {}
    for kind in kinds_in(problems):
        found = [problem for problem in problems if problem.kind == kind]
        counts[kind] = len({row for problem in found for row in problem.rows[kind in COPIES :]}) or len(found)
    return counts


def problems_in_words(problems: Sequence[RowProblem]) -> str:
    """One sentence that counts the problems by kind; empty if there are none."""
    counts = count_problems(problems)
    parts = [f"{count:,} {words_of(kind)[count > 1]}" for kind, count in counts.items()]
    return f"Other problems: {', '.join(parts)}." if parts else ""


def most_certain(problems: Sequence[RowProblem], count: int) -> list[RowProblem]:
    """The first `count` problems: the strongest of each kind, then the second of each kind, and so on.

    By strength alone, many single cells could hide a leaking column.
    """
    by_kind = [
        sorted((p for p in problems if p.kind == kind), key=lambda p: (-p.strength, -len(p.rows)))
        for kind in kinds_in(problems)
    ]
    ranked = [(rank, -found.strength, found) for kind in by_kind for rank, found in enumerate(kind)]
    return [found for _, _, found in sorted(ranked, key=lambda entry: entry[:2])[:count]]


def listed_rows(rows: Sequence[Any]) -> str:
    """The first six rows as text."""
    return ", ".join(map(row_text, rows[:6])) + (" ..." if len(rows) > 6 else "")
