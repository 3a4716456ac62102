"""`rankrange apply`: carry out what was decided about the rows of a table."""

from __future__ import annotations

import argparse

from .entry import add_file, add_file_options

HELP = "carry out decisions about the rows of a table"
DESCRIPTION = """\
Carry out what was decided about the rows of a table on the page of an audit: relabel rows, drop rows, keep the others.

Each decision is compared with its row first: where the table has changed since, or has no such label, nothing is
written. FILE is only read. In CSV, rows about which nothing was decided keep their bytes.
"""
EPILOG = """\
examples:
  rankrange audit patients.csv --target diagnosis --report report.html   (decide on the page, download decisions.csv)
  rankrange apply patients.csv decisions.csv --out fixed.csv
  rankrange audit fixed.csv --target diagnosis --decisions decisions.csv --report report.html

exit codes: 0 done, 2 bad input, 130 interrupted. The output appears whole or not at all.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rankrange apply`."""
    add_file(parser, "file", metavar="FILE", help="the table that was audited")
    add_file(parser, "decisions", metavar="DECISIONS", help="the CSV that the page of the audit gave")
    add_file(
        parser,
        "--out",
        "-o",
        required=True,
        metavar="FILE",
        help="where the table goes: .parquet, .arrow and .feather keep types, .gz packs, anything else is CSV",
    )
    parser.add_argument(
        "--new-labels", action="store_true", help="allow labels that no row of the table has; an error otherwise"
    )
    add_file_options(parser)
    parser.add_argument("--quiet", "-q", action="store_true", help="say nothing")


def run(arguments: argparse.Namespace) -> int:
    """Carry out the decisions, say what was done, and return the exit code."""
    from ..audit.applying import changes_of, fixed_contents
    from ..audit.decisions import read_decisions
    from ..tables.read import open_table
    from ..tables.write import check_places, write_whole

    inputs = {"the file that is read": arguments.file, "the decisions": arguments.decisions}
    check_places({"--out": arguments.out}, inputs)
    decisions = read_decisions(arguments.decisions)
    how = {"delimiter": arguments.delimiter, "encoding": arguments.encoding, "sheet": arguments.sheet}
    source = open_table(arguments.file, **how)
    changes = changes_of(decisions, source, new_labels=arguments.new_labels)
    write_whole({arguments.out: fixed_contents(source, changes, arguments.out)})
    if not arguments.quiet:
        print(f"{changes.in_words()}: {arguments.out}")
    return 0
