"""One table of all arguments of the command line; those in `AUDIT` have the names and defaults of `audit_table`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import flag

# Metavars of files and folders, which shells complete.
_PATHS = ("HTML", "CSV", "SKOPS", "NPY", "FOLDER", "FILE", "DECISIONS")
_COMPLETE = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}


def _number(least: float, most: float = 2**31 - 1) -> Callable[[str], Any]:
    """A parser of numbers from `least` to `most`, of integers if `least` is one."""
    of = type(least)

    def parse(text: str) -> Any:
        try:
            value = of(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            what = "an integer" if of is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {what} from {least} to {most}, got {text!r}")
        return value

    return parse


def _export(text: str) -> tuple[str, Path]:
    tool, _, path = text.partition("=")
    if tool != "label-studio" or not path.lower().endswith(".json"):
        raise argparse.ArgumentTypeError(f"must be label-studio=FILE.json, got {text!r}")
    return tool, Path(path)


# Each argument: its help, then its metavar (or its choices), then further settings of argparse.
Options = dict[str, tuple[str, Any, dict[str, Any]]]
FILES: Options = {
    "delimiter": ("the separator of CSV columns (default: comma; tab for .tsv and .tab)", "CHAR", {}),
    "encoding": ("the encoding of CSV (default: utf-8)", "NAME", {"default": "utf-8"}),
    "sheet": ("the sheet to read, if a workbook has several", "NAME", {}),
}
READING: Options = {
    "ignore": ("leave this column out; can be repeated", "COL", {"action": "append", "default": []}),
    "task": (
        "what the target is: classes, numbers (regression) or labels (multi-label); default: by its values",
        ("auto", "classes", "numbers", "labels"),
        {},
    ),
    "labels": (
        "annotated labels (default) may be wrong; observed outcomes, such as a purchase, are at most surprising",
        ("annotated", "observed"),
        {},
    ),
    "labels_by": ("the separator, if a cell holds several labels", "CHAR", {}),
    "dates": ("how to read 03/04/2025, if the column is ambiguous", ("day-first", "month-first"), {"default": None}),
    "decimal": ("how to read 1,234, if the column is ambiguous", ("point", "comma"), {"default": None}),
    "group": ("rows with the same value in this column stay in one fold", "COL", {}),
    "time": (
        "a column of dates or numbers: each of up to five periods is predicted from the earlier ones, and the first "
        "from the second",
        "COL",
        {},
    ),
    "embeddings": ("further features: an array with one row per row of the table", "NPY", {}),
    "pixels": ("the columns are the pixels of N x N images", "N", {"type": _number(1)}),
    "images": ("the folder of the images, if a column holds their file names", "FOLDER", {}),
}
RUNNING: Options = {
    "models": (
        "which kinds of models predict the target (default: all; linear is the fastest)",
        ("all", "linear", "trees"),
        {},
    ),
    "estimator": ("a classifier of scikit-learn that replaces the linear models, such as GaussianNB", "NAME", {}),
    "pred_probs": (
        "out-of-fold probabilities of your own model: one row per row of the table, one column per class",
        "NPY",
        {},
    ),
    "seed": ("the same seed gives the same result (default: 0)", "N", {"type": _number(0), "default": 0}),
    "jobs -j": (
        "how many models to fit in parallel (default: one per core)",
        "N",
        {"type": _number(1)},
    ),
}
DECISIONS: Options = {
    "decisions": (
        "decisions from the page of an earlier audit, or an export of a review tool (.json): decided rows are not "
        "suspects any more, and p(wrong) of the others takes the decisions into account",
        "CSV",
        {},
    ),
}
AUDIT: Options = {**READING, **RUNNING, **DECISIONS}
OUTPUTS: Options = {
    "report": ("the report as a web page: one file, works offline", "HTML", {}),
    "no_rows": ("leave cells of single rows out of the report, for readers without access", None, {}),
    "out -o": ("all suspects with their values, worst first", "CSV", {}),
    "clean": ("the table without the rows that are almost certainly wrong (--clean-if)", "CSV", {}),
    "clean_if": (
        "--clean changes rows with at least this probability of being wrong (default: 0.9; review the others)",
        "P",
        {"type": _number(0.01, 1)},
    ),
    "clean_how": (
        "drop these rows (default), or relabel those for which one other label fits and drop the others",
        ("drop", "relabel"),
        {},
    ),
    "model": ("the robust model, in a format that loads without running code", "SKOPS", {}),
    "problems": ("other problems of rows: outliers, duplicates and more", "CSV", {}),
    "export": (
        "all suspects for a review tool: label-studio=tasks.json (and tasks.xml, its labelling configuration); "
        "`rankrange apply` reads the export of that tool",
        "TOOL=FILE",
        {"action": "append", "type": _export, "default": []},
    ),
    "json": ("print the findings as JSON instead of tables", None, {}),
}
SHOWING: Options = {
    "top": ("how many suspects to print (default: 10)", "N", {"type": _number(0), "default": 10}),
    "quiet -q": ("show no progress", None, {}),
}
GROUPS: dict[str, Options] = {
    "what to write": OUTPUTS,
    "earlier decisions": DECISIONS,
    "how to read the file": {**FILES, **READING},
    "how to run": {**RUNNING, **SHOWING},
}
TARGET: Options = {
    "target -t": (
        "the column to predict; repeat it, or use a pattern such as 'label:*', for 0/1 columns (multi-label)",
        "COL",
        {"action": "append", "required": True},
    ),
}
APPLY: Options = {
    "decisions": (
        "the decisions of several reviewers: the one with the most votes wins, 'unsure' is no vote, and rows with a "
        "tie do not change",
        "FILE",
        {"nargs": "+", "default": []},
    ),
    "conflicts": ("write the rows on which reviewers disagree to this file, to be decided again", "CSV", {}),
    "out -o": (
        "the file to write: .parquet, .arrow and .feather keep types, .gz is compressed, anything else is CSV",
        "FILE",
        {"required": True},
    ),
    "new_labels": ("allow new labels that no row of the table has (otherwise an error)", None, {}),
    "quiet -q": ("print nothing", None, {}),
}
DEMO: Options = {
    "report": (
        "where to write the report (default: rankrange-demo.html in this folder)",
        "HTML",
        {"default": Path("rankrange-demo.html")},
    ),
    "seed": ("which labels are made wrong (default: 0)", "N", {"type": _number(0), "default": 0}),
    "quiet -q": ("show no progress", None, {}),
}


def python_name(names: str) -> str:
    """The name of an argument in Python, from its entry in a table: "out" for "out -o"."""
    return names.split()[0]


def add_options(group: Any, options: Options) -> None:
    """Add the arguments of a table; without a metavar an argument is a flag."""
    for names, (help, metavar, settings) in options.items():
        if metavar is None:
            settings = {"action": "store_true"}
        elif isinstance(metavar, tuple):
            settings = {"choices": metavar, "default": metavar[0], **settings}
        else:
            settings = {"metavar": metavar, **settings}
        add_argument(group, flag(python_name(names)), *names.split()[1:], help=help, **settings)


def add_argument(group: Any, *names: str, **settings: Any) -> None:
    """Add an argument; those whose metavar names a file are paths."""
    if settings.get("metavar") not in _PATHS:
        group.add_argument(*names, **settings)
    else:
        group.add_argument(*names, type=Path, **settings).complete = _COMPLETE
