"""`rankrange audit`: which rows of a table are wrong, and how much better is a model that ignores them?"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .entry import Progress, add_file, add_file_options, count, jobs, print_audit, seed, share

if TYPE_CHECKING:
    from ..audit import Audit
    from ..tables.read import Source

HELP = "find the rows of a table that are probably wrong"
DESCRIPTION = """\
Find the rows of a table whose target is probably wrong, and see how much better a model is that ignores them.

An ordinary and a robust (AoRR) linear model are fitted with everything on auto and compared on rows that neither has
seen; every prediction is out of fold. FILE is CSV, JSON, Excel, Parquet, Arrow, ORC or a folder that Hugging Face
datasets saved; - is standard input. It is only read.
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

exit codes: 0 done, 2 bad input, 130 interrupted. Outputs appear whole or not at all.
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
        help="the column to predict; several times, or as 'label:*', for columns of 0 and 1 (multi-label)",
    )
    outputs = parser.add_argument_group("what to write")
    add_file(outputs, "--report", metavar="HTML", help="a page to read: one file, works offline")
    add_file(outputs, "--out", "-o", metavar="CSV", help="all suspects with their values, worst first")
    add_file(
        outputs, "--clean", metavar="CSV", help="the table without the rows that are almost surely wrong (--clean-if)"
    )
    outputs.add_argument(
        "--clean-if",
        type=share,
        metavar="P",
        help="how probably wrong a row must be for --clean to touch it (default: 0.9; look at the others yourself)",
    )
    outputs.add_argument(
        "--clean-how",
        choices=("drop", "relabel"),
        default="drop",
        help="drop these rows (default), or relabel those for which one other label fits and drop the others",
    )
    add_file(outputs, "--model", metavar="SKOPS", help="the robust model, in a format that loads without running code")
    add_file(outputs, "--problems", metavar="CSV", help="what else is wrong with rows: far outside, repeated")
    outputs.add_argument(
        "--export",
        action="append",
        type=_export,
        default=[],
        metavar="TOOL=FILE",
        help="all suspects for a review tool: label-studio=tasks.json (and tasks.xml, its labelling configuration) or "
        "argilla=records.json; `rankrange apply` takes the export of that tool",
    )
    outputs.add_argument("--json", action="store_true", help="print the findings as JSON instead of tables")
    add_file(
        parser.add_argument_group("what was decided before"),
        "--decisions",
        metavar="CSV",
        help="decisions from the page of an earlier audit, or an export of a review tool (.json): these rows are no "
        "suspects, and the others learn from them",
    )
    _add_reading(parser.add_argument_group("how to read the file"))
    _add_running(parser.add_argument_group("how to run"))


def _export(text: str) -> tuple[str, Path]:
    """A review tool and the file for it, from the command line."""
    tool, _, path = text.partition("=")
    if tool not in ("label-studio", "argilla") or not path.lower().endswith(".json"):
        raise argparse.ArgumentTypeError(f"must be label-studio=FILE.json or argilla=FILE.json, got {text!r}")
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
    how.add_argument("--labels-by", metavar="CHAR", help="what stands between several labels in one cell")
    how.add_argument("--dates", choices=("day-first", "month-first"), help="what 03/04/2025 means, where it is open")
    how.add_argument("--decimal", choices=("point", "comma"), help="what 1,234 means, where it is open")
    how.add_argument("--group", metavar="COL", help="rows with the same value here stay in one fold")
    how.add_argument("--time", metavar="COL", help="rows are predicted by fits on rows that are earlier by this column")
    add_file(how, "--embeddings", metavar="NPY", help="more columns: an array of one row per row of the table")
    add_file(how, "--images", metavar="FOLDER", help="the images whose files some column names")


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
        help="a classifier of scikit-learn that predicts labels beside trees, such as GaussianNB",
    )
    add_file(
        run_group,
        "--pred-probs",
        metavar="NPY",
        help="probabilities of your own model: a row per row, a column per class",
    )
    run_group.add_argument("--seed", type=seed, default=0, help="the same seed gives the same result (default: 0)")
    run_group.add_argument(
        "--jobs",
        "-j",
        type=jobs,
        default=None,
        metavar="N",
        help="how many parts to fit at a time (default: one per core)",
    )
    run_group.add_argument(
        "--top", type=count, default=10, metavar="N", help="how many suspects to print (default: 10)"
    )
    run_group.add_argument("--quiet", "-q", action="store_true", help="show no progress")


def run(arguments: argparse.Namespace) -> int:
    """Audit the file, write what was asked for, print the findings, and return the exit code."""
    outputs, source = _checked(arguments)
    # Imported only now: errors in the file are reported at once.
    from ..audit.exchange import export_contents, read_reviews
    from ..audit.export import CLEAN_IF, check_relabel, contents_of
    from ..audit.from_file import audit_source, can_be_read_out_of_core
    from ..audit.reviewers import merge_decisions
    from ..tables.write import write_whole

    reviews = None if arguments.decisions is None else read_reviews([arguments.decisions])
    decisions = None if reviews is None else merge_decisions(reviews).decisions
    how = {"relabel": arguments.clean_how == "relabel", "clean_if": arguments.clean_if or CLEAN_IF}
    with Progress(quiet=arguments.quiet) as progress:
        options = {
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
            "seed": arguments.seed,
            "jobs": arguments.jobs,
            "decisions": decisions,
        }
        progress.say(_up_front(source, can_be_read_out_of_core(source, arguments.target, options)))
        check = check_relabel if how["relabel"] else (lambda task: None)
        audit = audit_source(source, arguments.target, check=check, progress=progress, **options)
        if outputs:
            progress("writing")
            exported = {option: path for option, path in outputs.items() if option.startswith("--export")}
            files = contents_of(audit, source, {key: outputs[key] for key in outputs if key not in exported}, **how)
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
    """Where outputs go and the opened table, after everything was checked that takes no time."""
    from ..errors import UserError
    from ..tables.columns import find_columns
    from ..tables.read import open_table
    from ..tables.write import check_places

    places = {f"--{name}": getattr(arguments, name) for name in ("report", "out", "clean", "model", "problems")}
    outputs = {option: path for option, path in places.items() if path is not None}
    tools = [tool for tool, _ in arguments.export]
    if len(set(tools)) < len(tools):
        raise UserError(f"--export names each tool once, got {tools[-1]} again; leave one of them out")
    outputs.update({f"--export {tool}": path for tool, path in arguments.export})
    read = ["the file that is read"] + [f"file {i} that is read" for i in range(2, len(arguments.file) + 1)]
    inputs = {**dict(zip(read, arguments.file, strict=True)), "the decisions": arguments.decisions}
    check_places(outputs, {name: path for name, path in inputs.items() if path is not None})
    if arguments.clean is None and arguments.clean_if is not None:
        raise UserError("--clean-if says what --clean may touch, got it without --clean; add --clean clean.csv")
    if arguments.clean is None and arguments.clean_how == "relabel":
        raise UserError("--clean-how says what --clean does to rows, got it without --clean; add --clean clean.csv")
    if arguments.estimator is not None and arguments.pred_probs is not None:
        raise UserError("labels are predicted by --estimator or by --pred-probs, got both; leave one of them out")
    source = open_table(
        arguments.file, delimiter=arguments.delimiter, encoding=arguments.encoding, sheet=arguments.sheet
    )
    arguments.target = find_columns(source.names, arguments.target, source.path, "--target")
    arguments.ignore = find_columns(source.names, arguments.ignore, source.path, "--ignore")
    for option in ("group", "time"):
        if getattr(arguments, option) is not None:
            find_columns(source.names, [getattr(arguments, option)], source.path, f"--{option}")
    clash = [column for column in arguments.ignore if column in arguments.target]
    if clash:
        raise UserError(f"a column cannot be both --target and --ignore, got {clash[0]!r} for both; leave one out")
    return outputs, source


def _up_front(source: Source, in_passes: bool) -> str:
    """Size and memory, before the work begins."""
    from ..audit.memory import free_memory, memory_needed, sized

    needed, free = memory_needed(source), free_memory()
    size = f"{sized(source.n_bytes or source.path.stat().st_size)}, {len(source.names):,} columns"
    text = f"{source.path.name}: {size}; needs about {sized(needed)} of memory"
    if free is None:
        return text
    if needed > free and in_passes:
        return f"{text}, and {sized(free)} are free: the audit is out of core, with the rows as numbers on disk"
    if needed > free:
        return f"{text}, and {sized(free)} are free, but this kind of file, target or option needs it in memory"
    return f"{text}, {sized(free)} are free"


def _written(audit: Audit, outputs: dict[str, Path], how: dict[str, Any]) -> list[tuple[str, str]]:
    from ..audit.export import clean_in_words

    listed = audit.listed_in_words()
    what = {
        "--report": "the report",
        "--out": audit.listed_in_words() if audit.n_listed else "no suspects, only the header",
        "--clean": clean_in_words(audit, **how),
        "--model": "the model",
        "--export label-studio": f"{listed} as tasks for Label Studio, its configuration beside them as .xml",
        "--export argilla": f"{listed} as records for Argilla, its settings beside them",
        "--problems": f"all {len(audit.row_problems):,} other problems" if audit.row_problems else "no other problems",
    }
    return [(what[option], str(path)) for option, path in outputs.items()]
