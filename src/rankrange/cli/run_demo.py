"""`rankrange demo`: an audit of digits with planted label errors, compared with the truth."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pages.text import plural
from .options import DEMO, add_options
from .terminal import Progress, print_audit

if TYPE_CHECKING:
    from ..audit import Audit

HELP = "see an audit of 500 handwritten digits with planted errors, a review, and a second audit"
DESCRIPTION = """\
Audit 500 handwritten digits (threes, fives, eights and nines of 8 x 8 pixels, part of scikit-learn) with 40 wrong
labels planted at random. Report how many of these errors were found, and write the page. Then review the first 15
suspects with the true labels, as a reviewer of the images would, apply the decisions, and audit again. It takes a few
seconds and needs no network.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rankrange demo`."""
    add_options(parser, DEMO)
    parser.set_defaults(report=Path("rankrange-demo.html"))


def run(arguments: argparse.Namespace) -> int:
    """Audit the digits, write the report, review, apply and audit again, and return the exit code."""
    from ..audit import audit_table
    from ..label_noise import LIKELY
    from ..tables.write import check_paths, write_whole

    check_paths({"--report": arguments.report})
    table, truth = digits_with_errors(arguments.seed)
    planted = table["digit"] != truth
    print(f"{len(truth)} handwritten digits, {int(planted.sum())} of their labels wrong, unknown to the audit.\n")
    with Progress(quiet=arguments.quiet) as progress:
        audit = audit_table(
            table, "digit", pixels=8, seed=arguments.seed, name="digits with planted errors", progress=progress
        )
        write_whole({arguments.report: audit.report().encode()})
    print_audit(audit, 5, [("the report", arguments.report.resolve().as_uri())])
    likely = audit.result.order[audit.result.wrong[audit.result.order] >= LIKELY]
    print(
        f"\n{plural(len(likely), 'row')} are flagged as likely wrong; {int(planted[likely].sum())} of these are "
        f"planted errors. The list of {audit.n_listed} rows has {int(planted[audit.result.order].sum())} of the "
        f"{int(planted.sum())} planted errors."
    )
    with Progress(quiet=arguments.quiet) as progress:
        print("\n".join(_reviewed(audit, table, truth, progress)))
    return 0


def _reviewed(audit: Audit, table: dict[str, Any], truth: Any, progress: Any) -> list[str]:
    """Review the first suspects with the true labels, apply the decisions, audit again, and return the sentences."""
    from ..audit import apply_decisions, audit_table

    planted, rows = table["digit"] != truth, [suspect.row for suspect in audit.suspects(15)]
    for row in rows:
        audit.decide(row, "relabel" if planted[row] else "keep", str(truth[row]) if planted[row] else None)
    relabelled = int(planted[rows].sum())
    fixed = apply_decisions(table, audit.decisions)
    again = audit_table(fixed, "digit", decisions=audit.decisions, progress=progress)
    left = sum(int(given) != true for given, true in zip(fixed["digit"], truth, strict=True))
    return [
        f"\nA reviewer looks at the first {len(rows)} images: {relabelled} are relabelled, {len(rows) - relabelled} "
        f"kept. {left} of the {int(planted.sum())} errors remain. The next audit:",
        *(f"  {sentence}" for sentence in again.review_in_words()),
        "On your own table: decide on the page, download decisions.csv, then",
        "  rankrange apply table.csv decisions.csv --out fixed.csv",
        "  rankrange audit fixed.csv --target COLUMN --decisions decisions.csv --report next.html",
    ]


def digits_with_errors(seed: int) -> tuple[dict[str, Any], Any]:
    """The first 500 threes, fives, eights and nines with 8% wrong labels, as a dict of columns, and the true labels."""
    import numpy as np
    from sklearn.datasets import load_digits

    from ..noise import symmetric

    digits = load_digits()
    rows = np.flatnonzero(np.isin(digits.target, (3, 5, 8, 9)))[:500]
    columns: dict[str, Any] = {name: digits.data[rows, i] for i, name in enumerate(digits.feature_names)}
    return columns | {"digit": symmetric(digits.target[rows], 0.08, seed)}, digits.target[rows]
