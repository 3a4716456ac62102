"""`rankrange audit`: find the rows of a table that are probably wrong, and measure the gain of ignoring them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pages.text import plural
from .options import AUDIT, DECISIONS, FILES, OUTPUTS, READING, RUNNING, SHOWING, TARGET, add_options, add_value
from .terminal import Progress, print_audit

if TYPE_CHECKING:
    from ..audit import Audit
    from ..tables.read import Source

HELP = "find the rows of a table that are probably wrong"
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
    add_value(
        parser,
        "file",
        metavar="FILE",
        nargs="+",
        help="the table: CSV, JSON, Excel, Parquet, Arrow, ORC, a Hugging Face folder; several with the same "
        "columns; - is standard input",
    )
    add_options(parser, TARGET)
    add_options(parser.add_argument_group("what to write"), OUTPUTS)
    add_options(parser.add_argument_group("earlier decisions"), DECISIONS)
    add_options(parser.add_argument_group("how to read the file"), {**FILES, **READING})
    add_options(parser.add_argument_group("how to run"), {**RUNNING, **SHOWING})


def run(arguments: argparse.Namespace) -> int:
    """Audit the file, write the requested outputs, print the findings, and return the exit code."""
    outputs, source = _checked(arguments)
    # Imported after the checks, so errors in the arguments are reported immediately.
    from ..audit.exchange import export_contents, read_reviews
    from ..audit.export import CLEAN_IF, check_relabel, contents_of
    from ..audit.from_file import audit_source
    from ..audit.reviewers import merge_decisions
    from ..tables.write import write_whole

    reviews = None if arguments.decisions is None else read_reviews([arguments.decisions])
    decisions = None if reviews is None else merge_decisions(reviews).decisions
    how = {"relabel": arguments.clean_how == "relabel", "clean_if": arguments.clean_if or CLEAN_IF}
    with Progress(quiet=arguments.quiet) as progress:
        options = {name.split()[0]: getattr(arguments, name.split()[0]) for name in AUDIT} | {"decisions": decisions}
        check = check_relabel if how["relabel"] else (lambda task: None)
        audit = audit_source(source, arguments.target, check=check, progress=progress, **options)
        if outputs:
            progress("writing")
            exported = {option: path for option, path in outputs.items() if option.startswith("--export")}
            named = {key: outputs[key] for key in outputs if key not in exported}
            files = contents_of(audit, source, named, rows=not arguments.no_rows, **how)
            for option, path in exported.items():
                files.update(export_contents(audit, option.partition(" ")[2], path))
            write_whole(files)
    if arguments.json:
        json.dump(audit.to_dict(), sys.stdout, ensure_ascii=True, indent=1, allow_nan=False)
        print()
    else:
        print_audit(audit, arguments.top, _written(audit, outputs, how))
    return 0


def _checked(arguments: argparse.Namespace) -> tuple[dict[str, Path], Source]:
    """The paths of the outputs, by option, and the opened table, after all quick checks.

    Patterns in the arguments target, ignore, group and time are replaced by the names of columns.
    """
    from ..errors import UserError
    from ..tables.columns import find_columns, find_one_column
    from ..tables.read import open_table
    from ..tables.write import check_paths

    paths = {f"--{name}": getattr(arguments, name) for name in ("report", "out", "clean", "model", "problems")}
    outputs = {option: path for option, path in paths.items() if path is not None}
    tools = [tool for tool, _ in arguments.export]
    if len(set(tools)) < len(tools):
        raise UserError(f"--export takes each tool once, got {tools[-1]} twice; leave one of them out")
    outputs.update({f"--export {tool}": path for tool, path in arguments.export})
    read = ["the file that is read"] + [f"file {i} that is read" for i in range(2, len(arguments.file) + 1)]
    inputs = {**dict(zip(read, arguments.file, strict=True)), "the decisions": arguments.decisions}
    inputs |= {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in ("embeddings", "pred_probs")}
    beside = {path.with_suffix(".xml"): path for _, path in arguments.export}
    check_paths(outputs, {name: path for name, path in inputs.items() if path is not None}, beside)
    if arguments.clean is None and arguments.clean_if is not None:
        raise UserError("--clean-if needs --clean, got it without --clean; add --clean clean.csv")
    if arguments.clean is None and arguments.clean_how == "relabel":
        raise UserError("--clean-how needs --clean, got it without --clean; add --clean clean.csv")
    if arguments.estimator is not None and arguments.pred_probs is not None:
        raise UserError("--estimator and --pred-probs exclude each other, got both; leave one of them out")
    source = open_table(
        arguments.file, delimiter=arguments.delimiter, encoding=arguments.encoding, sheet=arguments.sheet
    )
    arguments.target = find_columns(source.names, arguments.target, source.path, "--target")
    arguments.ignore = find_columns(source.names, arguments.ignore, source.path, "--ignore")
    for option in ("group", "time"):
        column = find_one_column(source.names, getattr(arguments, option), source.path, f"--{option}")
        setattr(arguments, option, column)
    clash = [column for column in arguments.ignore if column in arguments.target]
    if clash:
        raise UserError(f"a column cannot be both --target and --ignore, got {clash[0]!r} for both; leave one out")
    return outputs, source


def _written(audit: Audit, outputs: dict[str, Path], how: dict[str, Any]) -> list[tuple[str, str]]:
    from ..audit.export import clean_in_words

    listed, others = audit.listed_in_words(), "no other problems"
    if audit.row_problems:
        others = plural(len(audit.row_problems), "other problem")
    what = {
        "--report": "the report",
        "--out": listed if audit.n_listed else "no suspects, only the header",
        "--clean": clean_in_words(audit, **how),
        "--model": "the model",
        "--export label-studio": f"{listed} as tasks for Label Studio, and its configuration (.xml)",
        "--problems": others,
    }
    return [(what[option], str(path)) for option, path in outputs.items()]
