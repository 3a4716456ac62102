"""`rankrange audit`: find the rows of a table that are probably wrong, and measure the gain of ignoring them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pages.text import plural
from .entry import Progress, add_file, add_file_options, count, jobs, print_audit, seed, share

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
    add_file(
        parser,
        "file",
        metavar="FILE",
        nargs="+",
        help="the table: CSV, JSON, Excel, Parquet, Arrow, ORC, a Hugging Face folder; several with the same "
        "columns; - is standard input",
    )
    parser.add_argument(
        "--target",
        "-t",
        action="append",
        required=True,
        metavar="COL",
        help="the column to predict; repeat it, or use a pattern such as 'label:*', for 0/1 columns (multi-label)",
    )
    outputs = parser.add_argument_group("what to write")
    add_file(outputs, "--report", metavar="HTML", help="the report as a web page: one file, works offline")
    outputs.add_argument(
        "--no-rows",
        action="store_true",
        help="leave cells of single rows out of the report, for readers without access",
    )
    add_file(outputs, "--out", "-o", metavar="CSV", help="all suspects with their values, worst first")
    add_file(
        outputs,
        "--clean",
        metavar="CSV",
        help="the table without the rows that are almost certainly wrong (--clean-if)",
    )
    outputs.add_argument(
        "--clean-if",
        type=share,
        metavar="P",
        help="--clean changes rows with at least this probability of being wrong (default: 0.9; review the others)",
    )
    outputs.add_argument(
        "--clean-how",
        choices=("drop", "relabel"),
        default="drop",
        help="drop these rows (default), or relabel those for which one other label fits and drop the others",
    )
    add_file(outputs, "--model", metavar="SKOPS", help="the robust model, in a format that loads without running code")
    add_file(outputs, "--problems", metavar="CSV", help="other problems of rows: outliers, duplicates and more")
    outputs.add_argument(
        "--export",
        action="append",
        type=_export,
        default=[],
        metavar="TOOL=FILE",
        help="all suspects for a review tool: label-studio=tasks.json (and tasks.xml, its labelling configuration); "
        "`rankrange apply` reads the export of that tool",
    )
    outputs.add_argument("--json", action="store_true", help="print the findings as JSON instead of tables")
    add_file(
        parser.add_argument_group("earlier decisions"),
        "--decisions",
        metavar="CSV",
        help="decisions from the page of an earlier audit, or an export of a review tool (.json): decided rows are not "
        "suspects any more, and p(wrong) of the others takes the decisions into account",
    )
    _add_reading(parser.add_argument_group("how to read the file"))
    _add_running(parser.add_argument_group("how to run"))


def _export(text: str) -> tuple[str, Path]:
    """Parse TOOL=FILE: a review tool and the file for it."""
    tool, _, path = text.partition("=")
    if tool != "label-studio" or not path.lower().endswith(".json"):
        raise argparse.ArgumentTypeError(f"must be label-studio=FILE.json, got {text!r}")
    return tool, Path(path)


def _add_reading(how: Any) -> None:
    add_file_options(how)
    how.add_argument(
        "--ignore", action="append", default=[], metavar="COL", help="leave this column out; can be repeated"
    )
    how.add_argument(
        "--task",
        choices=("auto", "classes", "numbers", "labels"),
        default="auto",
        help="what the target is: classes, numbers (regression) or labels (multi-label); default: by its values",
    )
    how.add_argument(
        "--labels",
        choices=("annotated", "observed"),
        default="annotated",
        help="annotated labels may be wrong; observed outcomes, such as a purchase, are at most surprising",
    )
    how.add_argument("--labels-by", metavar="CHAR", help="the separator, if a cell holds several labels")
    how.add_argument(
        "--dates", choices=("day-first", "month-first"), help="how to read 03/04/2025, if the column is ambiguous"
    )
    how.add_argument("--decimal", choices=("point", "comma"), help="how to read 1,234, if the column is ambiguous")
    how.add_argument("--group", metavar="COL", help="rows with the same value in this column stay in one fold")
    how.add_argument(
        "--time",
        metavar="COL",
        help="a column of dates or numbers: each of up to five periods is predicted from the earlier ones, and the "
        "first from the second",
    )
    add_file(how, "--embeddings", metavar="NPY", help="further features: an array with one row per row of the table")
    how.add_argument("--pixels", type=count, metavar="N", help="the columns are the pixels of N x N images")
    add_file(how, "--images", metavar="FOLDER", help="the folder of the images, if a column holds their file names")


def _add_running(run_group: Any) -> None:
    run_group.add_argument(
        "--models",
        choices=("all", "linear", "trees"),
        default="all",
        help="which kinds of models predict the target (default: all; linear is the fastest)",
    )
    run_group.add_argument(
        "--estimator",
        metavar="NAME",
        help="a classifier of scikit-learn that replaces the linear models, such as GaussianNB",
    )
    add_file(
        run_group,
        "--pred-probs",
        metavar="NPY",
        help="out-of-fold probabilities of your own model: one row per row of the table, one column per class",
    )
    run_group.add_argument("--seed", type=seed, default=0, help="the same seed gives the same result (default: 0)")
    run_group.add_argument(
        "--jobs",
        "-j",
        type=jobs,
        default=None,
        metavar="N",
        help="how many models to fit in parallel (default: one per core)",
    )
    run_group.add_argument(
        "--top", type=count, default=10, metavar="N", help="how many suspects to print (default: 10)"
    )
    run_group.add_argument("--quiet", "-q", action="store_true", help="show no progress")


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
        options = {
            "labels": arguments.labels,
            "task": arguments.task,
            "labels_by": arguments.labels_by,
            "ignore": arguments.ignore,
            "group": arguments.group,
            "time": arguments.time,
            "dates": arguments.dates,
            "decimal": arguments.decimal,
            "models": arguments.models,
            "estimator": arguments.estimator,
            "pred_probs": arguments.pred_probs,
            "embeddings": arguments.embeddings,
            "images": arguments.images,
            "pixels": arguments.pixels,
            "seed": arguments.seed,
            "jobs": arguments.jobs,
            "decisions": decisions,
        }
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
