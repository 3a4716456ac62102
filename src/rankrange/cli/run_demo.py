"""`rankrange demo`: an audit of digits with planted label errors, compared with the truth."""

from __future__ import annotations

import argparse
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
_DIGITS, _ROWS, _SHARE, _DECIDED = (3, 5, 8, 9), 500, 0.08, 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rankrange demo`."""
    add_options(parser, DEMO)


def run(arguments: argparse.Namespace) -> int:
    """Audit the digits, write the report, review, apply and audit again, and return the exit code."""
    from ..audit import audit_table
    from ..tables.write import check_paths, write_whole

    check_paths({"--report": arguments.report}, {})
    table, planted = digits_with_errors(arguments.seed)
    print(f"{_ROWS:,} handwritten digits, {int(planted.sum())} of their labels wrong, unknown to the audit.\n")
    with Progress(quiet=arguments.quiet) as progress:
        audit = audit_table(
            table, "digit", pixels=8, seed=arguments.seed, name="digits with planted errors", progress=progress
        )
        write_whole({arguments.report: audit.report().encode()})
    print_audit(audit, 5, [("the report", arguments.report.resolve().as_uri())])
    print(f"\n{found_in_words(audit, planted)}")
    with Progress(quiet=arguments.quiet) as progress:
        print("\n".join(_reviewed(audit, table, planted, progress)))
    return 0


def _reviewed(audit: Audit, table: dict[str, Any], planted: Any, progress: Any) -> list[str]:
    """Review the first suspects with the true labels, apply the decisions, audit again, and return the sentences."""
    import numpy as np

    from ..audit import apply_decisions, audit_table

    truth = true_digits()
    suspects = audit.suspects(_DECIDED)
    for suspect in suspects:
        wrong = bool(planted[suspect.row])
        audit.decide(suspect.row, "relabel" if wrong else "keep", str(truth[suspect.row]) if wrong else None)
    relabelled = sum(bool(planted[suspect.row]) for suspect in suspects)
    fixed = apply_decisions(table, audit.decisions)
    again = audit_table(fixed, "digit", decisions=audit.decisions, progress=progress)
    left = int((np.asarray(fixed["digit"]).astype(int) != truth).sum())
    return [
        f"\nA reviewer looks at the first {len(suspects)} images: {relabelled} are relabelled, "
        f"{len(suspects) - relabelled} kept. {left} of the {int(planted.sum())} errors remain. The next audit:",
        *(f"  {sentence}" for sentence in again.review_in_words()),
        "On your own table: decide on the page, download decisions.csv, then",
        "  rankrange apply table.csv decisions.csv --out fixed.csv",
        "  rankrange audit fixed.csv --target COLUMN --decisions decisions.csv --report next.html",
    ]


def digits_with_errors(seed: int) -> tuple[dict[str, Any], Any]:
    """The digits with 8% wrong labels, as a dict of columns, and a mask of the wrong labels."""
    from sklearn.datasets import load_digits

    from ..noise import symmetric

    digits, truth = load_digits(), true_digits()
    rows = _chosen(digits.target)
    given = symmetric(truth, _SHARE, seed)
    columns: dict[str, Any] = {name: digits.data[rows, i] for i, name in enumerate(digits.feature_names)}
    columns["digit"] = given
    return columns, given != truth


def true_digits() -> Any:
    """The true labels of the digits of the demo."""
    from sklearn.datasets import load_digits

    target = load_digits().target
    return target[_chosen(target)]


def _chosen(target: Any) -> Any:
    import numpy as np

    return np.flatnonzero(np.isin(target, _DIGITS))[:_ROWS]


def found_in_words(audit: Audit, planted: Any) -> str:
    """How many of the planted errors are among the rows flagged as likely wrong, and in the whole list, in words."""
    from ..label_noise import LIKELY

    j = audit.result
    likely = j.order[j.wrong[j.order] >= LIKELY]
    total, found, flagged = int(planted.sum()), int(planted[likely].sum()), len(likely)
    return (
        f"{plural(flagged, 'row')} are flagged as likely wrong; {found} of these are planted errors. "
        f"The list of {len(j.order)} rows has {int(planted[j.order].sum())} of the {total} planted errors."
    )
