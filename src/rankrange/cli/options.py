"""One table of all arguments of the command line; those in `AUDIT` have the names and defaults of `audit_table`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import flag


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


# What the metavars mean; those of files and folders are completed by shells.
_PATHS = ("HTML", "CSV", "SKOPS", "NPY", "FOLDER", "FILE", "DECISIONS")
_COMPLETE = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
_TYPES: dict[str, Any] = {"SEED": _number(0), "ROWS": _number(0), "N": _number(1), "P": _number(0.01, 1)}
_TYPES |= {"TOOL=FILE": _export, **dict.fromkeys(_PATHS, Path)}
_SUFFIXES: dict[str, dict[str, Any]] = {
    "...": {"action": "append", "default": []},
    "+": {"nargs": "+", "default": []},
    "!": {"required": True},
}
_DEFAULTS: dict[str, Any] = {"task": "auto", "labels": "annotated", "models": "all", "clean_how": "drop"}
_DEFAULTS |= {"encoding": "utf-8", "seed": 0, "top": 10}

# Of each argument the name, a short form, and the metavar or the choices; and its help. Without a metavar or choices it
# is a flag. A metavar with "..." may be repeated, one with "+" has several values, and one with "!" must be given.
Options = dict[str, str]
FILES: Options = {
    "delimiter CHAR": "the separator of CSV columns (default: comma; tab for .tsv and .tab)",
    "encoding NAME": "the encoding of CSV (default: utf-8)",
    "sheet NAME": "the sheet to read, if a workbook has several",
}
READING: Options = {
    "ignore COL...": "leave this column out; can be repeated",
    "task auto|classes|numbers|labels": "what the target is: classes, numbers (regression) or labels (multi-label); "
    "by default its values decide",
    "labels annotated|observed": "annotated labels (default) may be wrong; observed outcomes, such as a purchase, are "
    "at most surprising",
    "labels_by CHAR": "the separator, if a cell holds several labels",
    "dates day-first|month-first": "how to read 03/04/2025, if the column is ambiguous",
    "decimal point|comma": "how to read 1,234, if the column is ambiguous",
    "group COL": "rows with the same value in this column stay in one fold",
    "time COL": "a column of dates or numbers: each of up to five periods is predicted from the earlier ones, and the "
    "first from the second",
    "embeddings NPY": "further features: an array with one row per row of the table",
    "pixels N": "the columns are the pixels of N x N images",
    "images FOLDER": "the folder of the images, if a column holds their file names",
}
RUNNING: Options = {
    "models all|linear|trees": "which kinds of models predict the target (default: all; linear is the fastest)",
    "estimator NAME": "a classifier of scikit-learn that replaces the linear models, such as GaussianNB",
    "pred_probs NPY": "out-of-fold probabilities of your own model: one row per row of the table, one column per class",
    "seed SEED": "the same seed gives the same result (default: 0)",
    "jobs -j N": "how many models to fit in parallel (default: one per core)",
}
DECISIONS: Options = {
    "decisions CSV": "decisions from the page of an earlier audit, or an export of a review tool (.json): decided rows "
    "are not suspects any more, and p(wrong) of the others takes the decisions into account",
}
OUTPUTS: Options = {
    "report HTML": "the report as a web page: one file, works offline",
    "no_rows": "leave cells of single rows out of the report, for readers without access",
    "out -o CSV": "all suspects with their values, worst first",
    "clean CSV": "the table without the rows that are almost certainly wrong (--clean-if)",
    "clean_if P": "--clean changes rows with at least this probability of being wrong (default: 0.9)",
    "clean_how drop|relabel": "drop these rows (default), or relabel those for which one other label fits and drop the "
    "others",
    "model SKOPS": "the robust model, in a format that loads without running code",
    "problems CSV": "other problems of rows: outliers, duplicates and more",
    "export TOOL=FILE...": "all suspects for a review tool: label-studio=tasks.json (and tasks.xml, its labelling "
    "configuration); `rankrange apply` reads the export of that tool",
    "json": "print the findings as JSON instead of tables",
}
SHOWING: Options = {"top ROWS": "how many suspects to print (default: 10)", "quiet -q": "show no progress"}
AUDIT: Options = {**READING, **RUNNING, **DECISIONS}
GROUPS: dict[str, Options] = {
    "what to write": OUTPUTS,
    "earlier decisions": DECISIONS,
    "what the table holds": READING,
    "how to read CSV and workbooks": FILES,
    "how to run": {**RUNNING, **SHOWING},
}
TARGET: Options = {
    "target -t COL...": "the column to predict; repeat it, or use a pattern such as 'label:*', for 0/1 columns "
    "(multi-label); without it, the columns are listed",
}
APPLY: Options = {
    "decisions FILE+": "the decisions of one or several reviewers: the one with the most votes wins, 'unsure' is no "
    "vote, and rows with a tie do not change",
    "out -o FILE!": "the file to write: .parquet, .arrow and .feather keep types, .gz is compressed, others are CSV",
    "conflicts CSV": "write the rows on which reviewers disagree to this file, to be decided again",
    "new_labels": "allow new labels that no row of the table has (otherwise an error)",
    "quiet -q": "print nothing",
}
DEMO: Options = {
    "report HTML": "where to write the report (default: rankrange-demo.html in this folder)",
    "seed SEED": "which labels are made wrong (default: 0)",
    "quiet -q": "show no progress",
}


def python_name(words: str) -> str:
    """The name of an argument in Python, from its entry in a table: "out" for "out -o CSV"."""
    return words.split()[0]


def add_options(group: Any, options: Options) -> None:
    """Add the arguments of a table."""
    for words, help in options.items():
        name, *more = words.split()
        short = [word for word in more if word.startswith("-")]
        settings: dict[str, Any] = {"help": help, "default": _DEFAULTS.get(name)}
        if more == short:
            settings |= {"action": "store_true", "default": False}
        elif "|" in more[-1]:
            settings["choices"] = more[-1].split("|")
        else:
            settings["metavar"] = more[-1].rstrip(".+!")
            for suffix, meaning in _SUFFIXES.items():
                settings |= meaning if suffix in more[-1] else {}
        add_argument(group, flag(name), *short, **settings)


def add_argument(group: Any, *names: str, **settings: Any) -> None:
    """Add an argument, whose metavar says its type."""
    metavar = settings.get("metavar")
    if metavar in _TYPES:
        settings["type"] = _TYPES[metavar]
    action = group.add_argument(*names, **settings)
    if metavar in _PATHS:
        action.complete = _COMPLETE
