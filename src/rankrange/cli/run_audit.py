"""`rankrange audit`: find the rows of a table that are probably wrong, and measure the gain of ignoring them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pages.text import plural
from .options import AUDIT, FILES, GROUPS, TARGET, add_argument, add_options, python_name
from .terminal import Progress, print_audit

if TYPE_CHECKING:
    from ..audit import Audit
    from ..tables.read import Source

HELP = "find the rows of a table that are probably wrong"
USAGE = "rankrange audit FILE [FILE ...] --target COLUMN [--report report.html] [further options]"
DESCRIPTION = """\
Find the rows of a table whose target is probably wrong, and measure the gain of a model that ignores them.

An ordinary and a robust (AoRR) linear model are fitted with automatic settings and compared out of fold. FILE is CSV,
JSON, Excel, Parquet, Arrow, ORC or a folder that Hugging Face datasets saved; - is standard input. FILE is not changed.
"""
EPILOG = """\
examples:
  rankrange audit patients.csv --target diagnosis --report report.html
  rankrange audit houses.parquet --target price --out suspects.csv --clean clean.csv --clean-if 0.95
  rankrange audit fixed.csv --target diagnosis --decisions decisions.csv --report report.html
  rankrange audit songs.csv --target happy --target calm --target sad
  rankrange audit visits.csv --target outcome --group patient --dates day-first
  rankrange audit 2024.csv 2025.csv --target 'label:*' --models linear
  rankrange audit patients.csv --target diagnosis --export label-studio=tasks.json
  rankrange audit films.csv --target genres --labels-by '|' --json > films.json

exit codes: 0 done, 2 bad input, 130 interrupted. Output files are written completely or not at all.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rankrange audit`."""
    add_argument(
        parser,
        "file",
        metavar="FILE",
        nargs="+",
        help="the table: CSV, JSON, Excel, Parquet, Arrow, ORC, a Hugging Face folder; several with the same "
        "columns; - is standard input",
    )
    add_options(parser, TARGET)
    for title, options in GROUPS.items():
        add_options(parser.add_argument_group(title), options)


def run(arguments: argparse.Namespace) -> int:
    """Audit the file, write the requested outputs, print the findings, and return the exit code."""
    outputs, source = _checked(arguments)
    # Imported after the checks, so errors in the arguments are reported immediately.
    from ..audit.exchange import read_reviews
    from ..audit.export import CLEAN_IF, contents_of
    from ..audit.from_file import audit_file
    from ..audit.reviewers import merge_decisions
    from ..tables.write import write_whole

    decisions = None
    if arguments.decisions is not None:
        decisions = merge_decisions(read_reviews([arguments.decisions])).decisions
    how = {"relabel": arguments.clean_how == "relabel", "clean_if": arguments.clean_if or CLEAN_IF}
    options = {name: getattr(arguments, name) for name in map(python_name, AUDIT)} | {"decisions": decisions}
    with Progress(quiet=arguments.quiet) as progress:
        audit = audit_file(source, arguments.target, progress=progress, **options)
        if outputs:
            progress("writing")
            write_whole(contents_of(audit, source, outputs, rows=not arguments.no_rows, **how))
    if arguments.json:
        json.dump(audit.to_dict(), sys.stdout, ensure_ascii=True, indent=1, allow_nan=False)
        print()
    else:
        print_audit(audit, arguments.top, _written(audit, outputs, how))
    return 0


def _checked(arguments: argparse.Namespace) -> tuple[dict[str, Path], Source]:
    """The paths of the outputs, by option, and the opened table, after all quick checks."""
    from ..errors import UserError, flag
    from ..tables.read import open_table
    from ..tables.write import check_paths

    if len(arguments.export) > 1:
        raise UserError("--export takes each tool once, got label-studio twice; leave one of them out")
    paths = {f"--{name}": getattr(arguments, name) for name in ("report", "out", "clean", "model", "problems")}
    paths |= {f"--export {tool}": path for tool, path in arguments.export}
    inputs = [("a file that is read", path) for path in arguments.file]
    inputs += [(flag(name), getattr(arguments, name)) for name in ("decisions", "embeddings", "pred_probs", "images")]
    outputs = check_paths(paths, inputs, {path.with_suffix(".xml"): path for _, path in arguments.export})
    if arguments.clean is not None and arguments.labels == "observed":
        raise UserError(
            "--clean drops rows whose target is wrong, got labels='observed': observed outcomes are not wrong; use "
            "--out for the list of surprising rows"
        )
    how = {"--clean-if": arguments.clean_if is not None, "--clean-how": arguments.clean_how == "relabel"}
    for option, given in how.items():
        if given and arguments.clean is None:
            raise UserError(f"{option} needs --clean, got it without --clean; add --clean clean.csv")
    return outputs, open_table(arguments.file, **{name: getattr(arguments, name) for name in map(python_name, FILES)})


def _written(audit: Audit, outputs: dict[str, Path], how: dict[str, Any]) -> list[tuple[str, str]]:
    from ..audit.export import clean_in_words

    listed = audit.listed_in_words()
    what = {
        "--report": "the report",
        "--out": listed if audit.n_listed else "no suspects, only the header",
        "--clean": clean_in_words(audit, **how),
        "--model": "the model",
        "--export label-studio": f"{listed} as tasks for Label Studio, and its configuration (.xml)",
        "--problems": f"{plural(len(audit.row_problems), 'other problem')} of rows",
    }
    return [(what[option], str(path)) for option, path in outputs.items()]
