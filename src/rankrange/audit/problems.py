"""The record of a problem of rows other than a wrong target, and the words for each kind of problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A kind of problem: its name in the singular and in the plural, and what it concerns.

    `of_columns`: a whole column, not rows. `of_cells`: cells whose value is in doubt; the page counts them by column,
    and they do not widen the rules of a schema.
    """

    one: str
    many: str
    of_columns: bool = False
    of_cells: bool = False


# In the order in which they are shown. Other kinds follow; their names are made from the kind.
KINDS = {
    "outlier": Kind("row with an outlier", "rows with outliers", of_cells=True),
    "impossible": Kind("row with an impossible value", "rows with impossible values", of_cells=True),
    "placeholder": Kind(
        "row with a placeholder for a missing value", "rows with placeholders for missing values", of_cells=True
    ),
    "duplicate": Kind("duplicate row", "duplicate rows"),
    "conflicting duplicate": Kind(
        "row equal to another except for its target", "rows equal to others except for their target"
    ),
    "near duplicate": Kind("near duplicate", "near duplicates"),
    "bad leverage point": Kind("bad leverage point", "bad leverage points"),
    "leak": Kind("column that leaks the target", "columns that leak the target", of_columns=True),
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
    rows : tuple of int
        The rows with the problem, numbered as in the audit; of duplicates the first is the original. Empty for "leak",
        which concerns a whole column.
    column : str or None
        The column with the problem; None if it concerns the whole row.
    value : str
        The value in that cell; "" if there is none.
    usual : str
        The usual values of the column; "" if there are none.
    sentence : str
        The evidence in plain English, with values.
    strength : float
        The strength of the evidence, from 0 to 1.
    action : str
        The suggested action: "look", "drop" or "fix".
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


def words_of(kind: str) -> Kind:
    """The names of a kind of problem. A kind that is not in `KINDS` concerns cells."""
    return KINDS.get(kind, Kind(f"row with {kind}", f"rows with {kind}", of_cells=True))


def kinds_in(problems: Sequence[RowProblem]) -> list[str]:
    """The kinds that occur, in the order of `KINDS`; others follow in the order of their occurrence."""
    found = dict.fromkeys(problem.kind for problem in problems)
    return [*(kind for kind in KINDS if kind in found), *(kind for kind in found if kind not in KINDS)]


def count_problems(problems: Sequence[RowProblem]) -> dict[str, int]:
    """The number of rows, or of columns for a "leak", with each kind of problem that occurs; originals do not count."""
    counts = {}
    for kind in kinds_in(problems):
        found = [problem for problem in problems if problem.kind == kind]
        rows = {row for problem in found for row in problem.rows[kind in COPIES :]}
        counts[kind] = len(found) if words_of(kind).of_columns else len(rows)
    return {kind: count for kind, count in counts.items() if count}


def problems_in_words(problems: Sequence[RowProblem]) -> str:
    """One sentence that counts the problems by kind; empty if there are none."""
    counts = count_problems(problems)
    parts = [f"{count:,} {words_of(kind).many if count > 1 else words_of(kind).one}" for kind, count in counts.items()]
    if not parts:
        return ""
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"Besides the target, there {'is' if parts[0].startswith('1 ') else 'are'} {listed}."


def most_certain(problems: Sequence[RowProblem], count: int) -> list[RowProblem]:
    """The first `count` problems: the strongest of each kind, then the second of each kind, and so on.

    A list by strength alone could begin with many single cells and hide a leaking column. Of two equally strong
    problems, the one with more rows comes first.
    """
    by_kind = [
        sorted((p for p in problems if p.kind == kind), key=lambda p: (-p.strength, -len(p.rows)))
        for kind in kinds_in(problems)
    ]
    ranked = [(rank, -found.strength, found) for kind in by_kind for rank, found in enumerate(kind)]
    return [found for _, _, found in sorted(ranked, key=lambda entry: entry[:2])[:count]]


def listed_rows(rows: Sequence[int]) -> str:
    """The first six row numbers as text."""
    return ", ".join(f"{row:,}" for row in rows[:6]) + (" ..." if len(rows) > 6 else "")
