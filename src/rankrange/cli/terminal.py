"""Terminal output: progress on standard error, findings on standard output."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..errors import with_flags
from ..pages.text import number, percent, visible

if TYPE_CHECKING:
    from ..audit.findings import Audit

_WIDTH_OF_TEXT = 28


class Progress:
    """Progress with the elapsed time: an updated line on a terminal, one line per stage elsewhere, or nothing."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console

        self.quiet, self.words = quiet, ""
        self.console = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)
        self.start = time.perf_counter()
        self.status: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *problem: object) -> None:
        if self.status is not None:
            self.status.stop()

    def __rich__(self) -> Any:
        """The current text of the progress line."""
        from rich.text import Text

        return Text(f"[{time.perf_counter() - self.start:5.1f} s] {visible(self.words)}")

    def __call__(self, words: str) -> None:
        """Start the stage that `words` describe, and show it."""
        self.words = words
        if self.quiet:
            return
        if not self.console.is_terminal:
            self.console.print(self)
        elif self.status is None:
            self.status = self.console.status(self)
            self.status.start()


def print_audit(audit: Audit, top: int, written: list[tuple[str, str]]) -> None:
    """Print the findings, the scores, the first `top` suspects and other problems of rows, notes, and what was written.

    `written` has a description and the path of each file. If `top` is 0, neither suspects nor problems are printed.
    """
    from rich.console import Console

    from ..audit.problems import most_certain
    from ..audit.sentences import columns_in_words

    console = Console(markup=False, highlight=False, emoji=False)
    for sentence in [*audit.sentences(), *audit.review_in_words()]:
        console.print(visible(with_flags(sentence)))
    console.print("\nOut-of-fold scores: ordinary model, and AoRR, which ignores the worst rows", style="bold")
    console.print(_scores(audit))
    if audit.n_listed and top:
        first = f"The first {top:,} of " if top < audit.n_listed else ""
        console.print(f"\n{first}{audit.listed_in_words()}, worst first", style="bold")
        console.print(_suspects(audit, top))
        numbers = audit.result.residuals is not None
        meaning = "off by: given minus expected" if numbers else f"loss: {audit.result.loss_name}"
        console.print(f"{meaning}, out of fold", style="dim")
    if audit.row_problems and top:
        shown = most_certain(audit.row_problems, top)
        count = f"({len(shown)} of {len(audit.row_problems):,})"
        console.print(f"\nOther problems of rows, the most certain first {count}", style="bold")
        for problem in shown:
            console.print(f"  {problem.kind}: {visible(problem.sentence, 200)}")
    for note in [*(f"Note: {visible(note, 600)}" for note in audit.notes), columns_in_words(audit)]:
        console.print(note, style="dim")
    for what, where in written:
        console.print(f"{what[0].upper()}{what[1:]}: {visible(where)}", soft_wrap=True)
    if not written:
        console.print(
            "Add --report report.html for a report as a web page, --out suspects.csv for all rows.", style="dim"
        )


def _table(columns: dict[str, bool]) -> Any:
    """An empty table; the values of `columns` are whether a column is aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name, right in columns.items():
        table.add_column(name, justify="right" if right else "left", no_wrap=name == "score")
    return table


def _scores(audit: Audit) -> Any:
    from rich.text import Text

    table = _table({"score": False, "ordinary": True, "AoRR": True, "gain": True})
    for m in audit.result.measures:
        colour = "green" if m.gain.low > 0 else "red" if m.gain.high < 0 else ""
        gain = Text(f"{m.gain_text(m.gain.value)} ({m.gain_range})", style=colour)
        table.add_row(m.name, m.text(m.ordinary.value), m.text(m.robust.value), gain)
    return table


def _suspects(audit: Audit, top: int) -> Any:
    from ..audit.sentences import suggestion
    from ..audit.target import row_text

    off = "loss" if audit.result.residuals is None else "off by"
    columns = {"row": True, "given": False, audit.words.suggested: False, audit.words.p: True, off: True}
    table = _table(columns if audit.observed else {**columns, "action": False})
    for s in audit.suspects(top):
        given, other = (visible(text, _WIDTH_OF_TEXT) for text in (s.given, suggestion(audit, s)))
        size = f"{s.loss:.3g}" if s.residual is None else number(s.residual, 4)
        p = percent(s.probability if audit.observed else s.p_wrong)
        table.add_row(row_text(s.row), given, other, p, size, *([] if audit.observed else [s.action]))
    return table
