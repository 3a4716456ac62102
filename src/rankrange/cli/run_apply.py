"""`rankrange apply`: apply decisions to the rows of a table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..pages.text import visible
from .options import APPLY, FILES, add_argument, add_options, python_name

HELP = "apply decisions to the rows of a table"
USAGE = """\
rankrange apply FILE DECISIONS [...] --out FILE [further options]
       rankrange apply FILE [FILE ...] --decisions DECISIONS [...] --out FILE [further options]"""
DESCRIPTION = """\
Apply decisions that were made on the page of an audit, in its list of suspects (--out) or in Label Studio: relabel
rows, drop rows, keep the others.

Each decision is first compared with its row. If one of these rows has changed since the audit, or if no row has the
new label (--new-labels), nothing is written. FILE is not changed. In CSV, all other rows stay the same, byte for byte.
Of several files that were audited together, name all in the same order, and the decisions after --decisions. --out gets
the rows of all; cells like formulas then get an apostrophe.
"""
EPILOG = """\
examples:
  rankrange audit patients.csv --target diagnosis --report report.html   (decide on the page, download decisions.csv)
  rankrange apply patients.csv decisions.csv --out fixed.csv
  rankrange apply patients.csv label-studio-export.json --out fixed.csv
  rankrange apply patients.csv --decisions anna.csv ben.csv --conflicts conflicts.csv --out fixed.csv
  rankrange apply patients.csv --decisions anna.csv ben.csv conflicts.csv --out fixed.csv   (filled in)
  rankrange apply 2024.csv 2025.csv --decisions decisions.csv --out fixed.csv   (audited together)
  rankrange audit fixed.csv --target diagnosis --decisions decisions.csv --report report.html

exit codes: 0 done, 2 bad input, 130 interrupted. The output is written completely or not at all.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rankrange apply`."""
    add_argument(
        parser,
        "file",
        metavar="FILE",
        nargs="+",
        help="the table that was audited, and without --decisions also the decisions: the CSV downloaded from the page "
        "of the audit, the list of suspects with a column of decisions, or an export of Label Studio (.json)",
    )
    add_options(parser, {**APPLY, **FILES})


def run(arguments: argparse.Namespace) -> int:
    """Apply the decisions, print what was done, and return the exit code."""
    from ..audit.applying import changes_of, fixed_contents
    from ..audit.exchange import read_reviews
    from ..audit.reviewers import merge_decisions, reviews_in_words
    from ..errors import UserError
    from ..tables.read import open_table
    from ..tables.write import check_paths, write_whole

    tables, reviews = arguments.file, arguments.decisions
    if not reviews:
        tables, reviews = tables[:1], tables[1:]
    if not reviews:
        raise UserError("apply needs decisions, got none; pass the CSV downloaded from the page of the audit")
    check_paths(
        {"--out": arguments.out, "--conflicts": arguments.conflicts},
        [("a file that is read", path) for path in (*tables, *reviews)],
    )
    by_reviewer = read_reviews(reviews)
    merged = merge_decisions(by_reviewer)
    source = open_table(tables, **{name: getattr(arguments, name) for name in map(python_name, FILES)})
    changes = changes_of(merged.decisions, source, new_labels=arguments.new_labels)
    files: dict[Path, Any] = {arguments.out: fixed_contents(source, changes, arguments.out)}
    if arguments.conflicts is not None:
        files[arguments.conflicts] = merged.conflicts_csv()
    write_whole(files)
    if not arguments.quiet:
        about_p_wrong = reviews_in_words(merged.decisions) if len(by_reviewer) > 1 else []
        print(*map(visible, [*merged.in_words(), *about_p_wrong, f"{changes.in_words()}: {arguments.out}"]), sep="\n")
    return 0
