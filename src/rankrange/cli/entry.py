"""The `rankrange` command, and code shared by its subcommands: arguments, progress, terminal output.

Exit codes: 0 success, 2 bad input, a missing package or too little memory, 130 interrupted. Subcommands import the rest
of the package only when they run, so help is fast.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import UserError, missing_package
from ..pages.text import number, percent, plural, visible

if TYPE_CHECKING:
    from ..audit.findings import Audit

_COMMANDS = {
    "audit": "rankrange.cli.run_audit",
    "apply": "rankrange.cli.run_apply",
    "demo": "rankrange.cli.run_demo",
}
_PACKAGES = ("jinja2", "markupsafe", "matplotlib", "pandas", "pyarrow", "rich", "skops")
_DESCRIPTION = """\
Learning with the ranked range: find the rows of a table that are wrong, and train models that ignore them.

Start with `rankrange demo`, or with your own table:
  rankrange audit FILE --target COLUMN --report report.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line with the arguments `argv` (by default those of the process) and return the exit code.

    As usual with argparse, --help, --version and bad options raise SystemExit.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parser(words).parse_args(words)
        return int(arguments.run(arguments) or 0)
    except UserError as error:
        return _fail(error.for_command_line())
    except KeyboardInterrupt:
        print("rankrange: interrupted; nothing was left half-written", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        return _fail(str(missing_package(package, "this")))
    except MemoryError:
        return _fail("there is not enough memory for this; audit a sample of the rows, or fewer columns")
    except BrokenPipeError:
        # The reader of our output has closed the pipe: discard the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _fail(message: str) -> int:
    print(f"rankrange: {visible(message)}", file=sys.stderr)
    return 2


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """The argument parser; only the subcommand in `words` gets its arguments, or all of them for --print-completion."""
    parser = argparse.ArgumentParser(
        prog="rankrange",
        description=_DESCRIPTION,
        epilog="`rankrange COMMAND --help` lists the options of a command. Exit codes: 0 done, "
        "2 bad input, 130 interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rankrange {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help='print a completion script for the shell, for example: eval "$(rankrange --print-completion bash)"',
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    every = "--print-completion" in words or any(word.startswith("--print-completion=") for word in words)
    for name, module in _COMMANDS.items():
        wanted = every or name in words
        _add_command(commands, name, module, wanted)
    return parser


def _add_command(commands: Any, name: str, module: str, wanted: bool) -> None:
    facts = vars(importlib.import_module(module))
    parser = commands.add_parser(
        name,
        help=facts["HELP"],
        description=facts["DESCRIPTION"],
        epilog=facts.get("EPILOG"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if wanted:
        facts["add_arguments"](parser)
        parser.set_defaults(run=facts["run"])


class _PrintCompletion(argparse.Action):
    """Print the completion script of a shell and exit; without the package shtab, exit with code 2."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        try:
            import shtab
        except ImportError:
            parser.exit(2, "rankrange: completion needs shtab, which is not installed; run: pip install shtab\n")
        print(shtab.complete(parser, shell=rest[1]))
        parser.exit(0)


# ---- arguments that several commands take ----------------------------------------------------------------------------


def seed(text: str) -> int:
    """Parse a seed: an integer from 0 to 2^31 - 1."""
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"must be an integer from 0 to 2^31 - 1, got {text!r}; try --seed 1")
    return int(text)


def count(text: str) -> int:
    """Parse an integer of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be an integer of at least 0, got {text!r}; try 10")
    return int(text)


def jobs(text: str) -> int:
    """Parse a number of jobs, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, got {text!r}; try --jobs 2")
    return int(text)


def share(text: str) -> float:
    """Parse a probability above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 < value <= 1.0:
        raise argparse.ArgumentTypeError(f"must be a probability above 0 and at most 1, got {text!r}; try 0.9")
    return value


def add_file_options(group: Any) -> None:
    """Add the options for reading files."""
    group.add_argument(
        "--delimiter", metavar="CHAR", help="the separator of CSV columns (default: comma; tab for .tsv and .tab)"
    )
    group.add_argument("--encoding", default="utf-8", metavar="NAME", help="the encoding of CSV (default: utf-8)")
    group.add_argument("--sheet", metavar="NAME", help="the sheet to read, if a workbook has several")


def add_file(group: Any, *flags: str, metavar: str, help: str, **more: Any) -> None:
    """Add an argument that is a path, which shells complete with file names."""
    from pathlib import Path

    action = group.add_argument(*flags, type=Path, metavar=metavar, help=help, **more)
    action.complete = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}


# ---- terminal output: progress on standard error, findings on standard output ----------------------------------------

_WIDTH_OF_TEXT = 28
# The minimum and maximum share of the time that each stage of an audit takes, over tables of 60 to 45,000 rows and 4 to
# 10,000 columns. Trees and nearest neighbours take from a fifth of the time to nearly all of it.
_PARTS: tuple[tuple[str, float, float], ...] = (
    ("reading", 2.0, 5.0),
    ("encoding", 2.0, 5.0),
    ("choosing the penalty", 2.0, 8.0),
    ("fitting both models", 20.0, 60.0),
    ("fitting the model", 4.0, 15.0),
    ("looking for wrong", 20.0, 300.0),
    ("checking rows", 1.0, 25.0),
    ("collecting evidence", 0.5, 5.0),
    ("writing", 0.5, 15.0),
)


class Clock:
    """Elapsed time, and an interval for the remaining time, estimated from the finished stages of an audit."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.start = self.step_start = now()
        self.words = ""
        # Minimum and maximum time, in the units of `_PARTS`: of the finished stages, this stage and the later ones.
        self.done = self.share = self.later = (0.0, 0.0)

    def step(self, words: str) -> None:
        """Start the stage that `words` describe; words that start with no name of `_PARTS` keep the last estimate.

        Words with "fold 2 of 5" start the second of five equal parts of a stage.
        """
        stage = next((i for i, (name, *_) in enumerate(_PARTS) if words.startswith(name)), None)
        part, parts = (int(x) for x in (re.findall(r"fold (\d+) of (\d+)", words) or [(1, 1)])[0])
        self.words, self.step_start = words, self.now()
        if stage is None:
            return
        self.share = (_PARTS[stage][1] / parts, _PARTS[stage][2] / parts)
        before, after = (
            (sum(least for _, least, _ in steps), sum(most for _, _, most in steps))
            for steps in (_PARTS[:stage], _PARTS[stage + 1 :])
        )
        self.done = (before[0] + (part - 1) * self.share[0], before[1] + (part - 1) * self.share[1])
        self.later = (after[0] + (parts - part) * self.share[0], after[1] + (parts - part) * self.share[1])

    def left(self) -> tuple[float, float] | None:
        """Minimum and maximum of the remaining seconds; None if there is no estimate yet.

        If the current stage exceeds its estimate, the maximum is at least the time already spent in this stage.
        """
        before, within = self.step_start - self.start, self.now() - self.step_start
        if self.done[0] < 5.0 or before < 1.0:
            return None
        # The finished stages took between their minimum and their maximum share of the time.
        slow, fast = before / self.done[0], before / self.done[1]
        least = max(self.share[0] * fast - within, 0.0) + self.later[0] * fast
        most = max(self.share[1] * slow - within, 0.0) + self.later[1] * slow
        return least, max(most, within if within > self.share[1] * slow else 0.0)

    def line(self) -> str:
        """The elapsed time, the current stage, and the remaining time, if it is known and at least 3 s."""
        left = self.left()
        ahead = "" if left is None or left[1] < 3.0 else f" ({_span_of_time(*left)} left)"
        return f"[{self.now() - self.start:5.1f} s] {visible(self.words)}{ahead}"


def _span_of_time(least: float, most: float) -> str:
    """An interval of times in words, such as "5 s to 2 min", or "about 5 s" if both round to the same."""
    first, last = _rounded_time(least), _rounded_time(most)
    return f"about {last}" if first == last else f"{first} to {last}"


def _rounded_time(seconds: float) -> str:
    if seconds < 60:
        return f"{5 * max(1, round(seconds / 5)):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else "1 min"


class Progress:
    """Progress messages: an updated line on a terminal, one line per stage elsewhere, nothing if quiet.

    Within a stage the time is updated: continuously on a terminal, otherwise by a line every `still` seconds.
    """

    def __init__(self, quiet: bool = False, still: float = 20.0) -> None:
        from rich.console import Console

        self.quiet, self.still = quiet, still
        self.console = Console(stderr=True, markup=False, highlight=False, emoji=False, soft_wrap=True)
        self.clock = Clock()
        self.status: Any = None
        self.over = threading.Event()
        self.heartbeat: threading.Thread | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *problem: object) -> None:
        self.over.set()
        if self.status is not None:
            self.status.stop()
        if self.heartbeat is not None:
            self.heartbeat.join()

    def __rich__(self) -> Any:
        """The current text of the progress line."""
        from rich.text import Text

        return Text(self.clock.line())

    def note(self, words: str) -> None:
        """Print a line that is not overwritten, unless quiet."""
        if not self.quiet:
            self.console.print(visible(words), style="dim")

    def __call__(self, words: str) -> None:
        """Start the stage that `words` describe, and show it."""
        self.clock.step(words)
        if self.quiet:
            return
        if not self.console.is_terminal:
            self.console.print(self.clock.line())
            if self.heartbeat is None:
                self.heartbeat = threading.Thread(target=self._report_still_running, daemon=True)
                self.heartbeat.start()
        elif self.status is None:
            self.status = self.console.status(self)
            self.status.start()

    def _report_still_running(self) -> None:
        while not self.over.wait(self.still):
            self.console.print(f"{self.clock.line()}, still running")


def print_audit(audit: Audit, top: int, written: list[tuple[str, str]]) -> None:
    """Print the findings, the scores, the first `top` suspects and other problems of rows, notes, and what was written.

    `written` has a description and the path of each file. If `top` is 0, neither suspects nor problems are printed.
    """
    from rich.console import Console

    from ..audit.problems import most_certain

    console = Console(markup=False, highlight=False, emoji=False)
    for sentence in audit.sentences():
        console.print(visible(sentence))
    for sentence in audit.review_in_words():
        console.print(visible(sentence))
    console.print()
    console.print(_scores(audit))
    if audit.n_listed and top:
        console.print(_suspects(audit, top))
        numbers = audit.result.residuals is not None
        meaning = "off by: given minus expected" if numbers else f"loss: {audit.result.loss_name}"
        console.print(f"{meaning}, out of fold", style="dim")
    if audit.row_problems and top:
        shown = most_certain(audit.row_problems, top)
        console.print(
            f"\nOther problems of rows, the most certain first ({len(shown)} of {len(audit.row_problems):,})",
            style="bold",
        )
        for problem in shown:
            console.print(f"  {problem.kind}: {visible(problem.sentence, 200)}")
    for note in audit.notes:
        console.print(f"Note: {visible(note, 600)}", style="dim")
    left_out = [column for column in audit.columns if not column.used]
    if left_out:
        console.print(f"Left out: {_with_reasons(left_out)}.", style="dim")
    missing = sum(column.missing for column in audit.columns)
    if missing:
        console.print(f"Missing: {plural(missing, 'cell')}, filled in and marked.", style="dim")
    for what, where in written:
        console.print(f"{what[0].upper()}{what[1:]}: {visible(where)}", soft_wrap=True)
    if not written:
        console.print(
            "Add --report report.html for a report as a web page, --out suspects.csv for all suspects.", style="dim"
        )


def _with_reasons(columns: list[Any], most: int = 5) -> str:
    """The first `most` columns, grouped by the reason why they were left out, and the number of the others."""
    by_reason: dict[str, list[str]] = {}
    for column in columns[:most]:
        by_reason.setdefault(column.how.removeprefix("left out: "), []).append(visible(column.name, 30))
    texts = [f"{', '.join(names)} ({visible(reason, 80)})" for reason, names in by_reason.items()]
    return "; ".join(texts) + (f" and {len(columns) - most} more" if len(columns) > most else "")


def _scores(audit: Audit) -> Any:
    from rich.table import Table
    from rich.text import Text

    from ..audit.task_result import show, show_gain, show_range

    title = "Out-of-fold scores: ordinary model, and AoRR, which ignores the worst rows"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("score", no_wrap=True)
    for name in ("ordinary", "AoRR", "gain"):
        table.add_column(name, justify="right")
    for m in audit.result.measures:
        gain = Text(f"{show_gain(m, m.gain.value)} ({show_range(m)})")
        gain.stylize("green" if m.gain.low > 0 else "red" if m.gain.high < 0 else "")
        table.add_row(Text(m.name), Text(show(m, m.ordinary.value)), Text(show(m, m.robust.value)), gain)
    return table


def _suspects(audit: Audit, top: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    count = min(top, audit.n_listed)
    title = f"\nThe first {count:,} of {plural(audit.n_listed, 'row')}: {audit.listed_in_words()}"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    from ..audit.target import row_text

    numbers = audit.result.residuals is not None
    better, off = ("expected", "off by") if numbers else (audit.words.suggested, "loss")
    p = audit.words.p
    for name in ("row", "given", better, p, off, *([] if audit.observed else ["action"])):
        table.add_column(name, justify="right" if name in ("row", p, "loss", "off by") else "left")
    for s in audit.suspects(top):
        given, other = (Text(visible(text, _WIDTH_OF_TEXT)) for text in (s.given, s.suggested))
        size = f"{s.loss:.3g}" if s.residual is None else number(s.residual, 4)
        p = percent(s.probability if audit.observed else s.p_wrong)
        table.add_row(row_text(s.row), given, other, p, size, *([] if audit.observed else [s.action]))
    return table
