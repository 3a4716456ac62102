"""An audit on a terminal: progress on standard error, a short table on standard output."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..pages.text import number, visible

if TYPE_CHECKING:
    from .findings import Audit

_WIDTH_OF_TEXT = 28


# About what share of its time each part of an audit takes, on digits of 500 to 1,000 rows. The time that is left is
# told from these and from what the parts before have taken on this table.
_PARTS = (
    ("reading", 3.0),
    ("encoding", 3.0),
    ("choosing the penalty", 4.0),
    ("fitting both models", 34.0),
    ("fitting the model", 9.0),
    ("looking for wrong", 40.0),
    ("looking for other", 4.0),
    ("gathering", 1.0),
    ("writing", 2.0),
)
# Where nothing moves on a screen, a step that takes longer says so every so many seconds.
_STILL = 20.0


class Clock:
    """How long it has taken, and about how long it will: the part that is done, by what its steps usually take."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.start = self.step_start = now()
        self.words, self.done, self.share, self.later = "", 0.0, 0.0, sum(share for _, share in _PARTS)

    def step(self, words: str) -> None:
        """The next step begins."""
        place = next((i for i, (name, _) in enumerate(_PARTS) if words.startswith(name)), None)
        part, parts = (int(x) for x in (re.findall(r"part (\d+) of (\d+)", words) or [(1, 1)])[0])
        self.words, self.step_start = words, self.now()
        if place is None:
            return
        self.share = _PARTS[place][1] / parts
        self.done = sum(share for _, share in _PARTS[:place]) + (part - 1) * self.share
        self.later = sum(share for _, share in _PARTS) - self.done - self.share

    def left(self) -> float | None:
        """Seconds that are left, about; None while nothing is known yet."""
        before = self.step_start - self.start
        if self.done < 10.0 or before < 1.0:
            return None
        pace = before / self.done
        within = self.now() - self.step_start
        # A step that takes longer than it should says that all of it is slower.
        return max(self.share * pace - within, 0.0) + self.later * max(pace, within / max(self.share, 1e-9))

    def line(self) -> str:
        """The elapsed time, what is being done, and how long it will take."""
        left = self.left()
        ahead = "" if left is None or left < 3.0 else f" (about {_rounded_time(left)} left)"
        return f"[{self.now() - self.start:5.1f} s] {visible(self.words)}{ahead}"


def _rounded_time(seconds: float) -> str:
    if seconds < 60:
        return f"{5 * max(1, round(seconds / 5)):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else "1 min"


class Progress:
    """Says what is being done: a line that moves on a terminal, one line per step elsewhere, nothing when quiet.

    The time moves inside a step too: on a terminal by itself, elsewhere by a line every twenty seconds.
    """

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console

        self.quiet = quiet
        self.console = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)
        self.clock = Clock()
        self.status: Any = None
        self.over = threading.Event()
        self.beat: threading.Thread | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *problem: object) -> None:
        self.over.set()
        if self.status is not None:
            self.status.stop()
        if self.beat is not None:
            self.beat.join()

    def __rich__(self) -> Any:
        """What the moving line shows now."""
        from rich.text import Text

        return Text(self.clock.line())

    def say(self, words: str) -> None:
        """Print a line that stays."""
        if not self.quiet:
            self.console.print(visible(words), style="dim")

    def __call__(self, words: str) -> None:
        """The next part of the work."""
        self.clock.step(words)
        if self.quiet:
            return
        if not self.console.is_terminal:
            self.console.print(self.clock.line())
            if self.beat is None:
                self.beat = threading.Thread(target=self._still, daemon=True)
                self.beat.start()
        elif self.status is None:
            self.status = self.console.status(self)
            self.status.start()

    def _still(self) -> None:
        while not self.over.wait(_STILL):
            self.console.print(f"{self.clock.line()}, still at it")


def print_audit(audit: Audit, top: int, written: list[tuple[str, str]]) -> None:
    """Print the findings in words, the scores, the first suspects, and where the rest is.

    Parameters
    ----------
    audit : Audit
        What was found.
    top : int
        How many suspects to print.
    written : list of tuple
        What was written, and where.
    """
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    for sentence in audit.sentences():
        console.print(visible(sentence))
    for sentence in audit.review_in_words():
        console.print(visible(sentence))
    console.print()
    console.print(_scores(audit))
    if audit.scores_note():
        console.print(audit.scores_note(), style="dim")
    if audit.n_suspects and top:
        console.print(_suspects(audit, top))
        numbers = audit.judgement.residuals is not None
        meaning = "off by: given less expected" if numbers else f"loss: {audit.judgement.loss_name}"
        console.print(f"{meaning}, by models that have not seen the row", style="dim")
    if audit.row_problems and top:
        console.print(f"\nOther problems of rows: the {min(top, len(audit.row_problems))} surest", style="bold")
        for problem in sorted(audit.row_problems, key=lambda problem: -problem.strength)[:top]:
            console.print(f"  {problem.kind}: {visible(problem.sentence, 200)}")
    for note in audit.notes:
        console.print(f"Note: {visible(note, 300)}", style="dim")
    left_out = [column for column in audit.columns if not column.used]
    if left_out:
        console.print(f"Left out: {_with_reasons(left_out)}.", style="dim")
    missing = sum(column.missing for column in audit.columns)
    if missing:
        console.print(f"Missing: {missing:,} cells, filled in and marked.", style="dim")
    for what, where in written:
        console.print(f"{what[0].upper()}{what[1:]}: {visible(where)}", soft_wrap=True)
    if not written:
        console.print("Add --report report.html for a page to read, --out suspects.csv for all suspects.", style="dim")


def _with_reasons(columns: list[Any], most: int = 5) -> str:
    """The first columns by the reason for which they were left out, and how many more there are."""
    by_reason: dict[str, list[str]] = {}
    for column in columns[:most]:
        by_reason.setdefault(column.how.removeprefix("left out: "), []).append(visible(column.name, 30))
    said = [f"{', '.join(names)} ({visible(reason, 80)})" for reason, names in by_reason.items()]
    return "; ".join(said) + (f" and {len(columns) - most} more" if len(columns) > most else "")


def _scores(audit: Audit) -> Any:
    from rich.table import Table
    from rich.text import Text

    from .findings import show, show_gain, show_range

    title = "On unseen rows: an ordinary model, and one that ignores the worst rows"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("score", no_wrap=True)
    for name in ("ordinary", "AoRR", "gain"):
        table.add_column(name, justify="right")
    for m in audit.judgement.measures:
        gain = Text(f"{show_gain(m, m.gain.value)} ({show_range(m)})")
        gain.stylize("green" if m.gain.low > 0 else "red" if m.gain.high < 0 else "")
        table.add_row(Text(m.name), Text(show(m, m.ordinary.value)), Text(show(m, m.robust.value)), gain)
    return table


def _suspects(audit: Audit, top: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    count = min(top, audit.n_suspects)
    title = f"\nThe {count} most suspect of {audit.n_suspects:,} rows"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    from .decisions import row_said

    numbers = audit.judgement.residuals is not None
    better, off = ("expected", "off by") if numbers else ("suggested", "loss")
    for name in ("row", "given", better, "p(wrong)", off, "action"):
        table.add_column(name, justify="right" if name in ("row", "p(wrong)", "loss", "off by") else "left")
    for s in audit.suspects(top):
        p = ">99%" if s.p_wrong > 0.995 else f"{s.p_wrong:.0%}"
        given, other = (Text(visible(text, _WIDTH_OF_TEXT)) for text in (s.given, s.suggested))
        size = f"{s.loss:.3g}" if s.residual is None else number(s.residual, 4)
        table.add_row(row_said(s.row), given, other, p, size, s.action)
    return table
