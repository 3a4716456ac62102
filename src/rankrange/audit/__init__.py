"""The audit of a table: finds rows that are probably wrong and writes the result as a page or as files.

May import: all packages from `core` to `tables`. Only the command line imports this package.
"""

from .applying import apply_decisions
from .decisions import Decision, Decisions, read_decisions
from .exchange import read_reviews
from .export import load_model
from .findings import Audit, Suspect
from .from_file import audit_file
from .problems import RowProblem
from .reviewers import Disagreement, Merged, merge_decisions, recalibrate
from .study import audit_table
from .target import TASKS

__all__ = [
    "TASKS",
    "Audit",
    "Decision",
    "Decisions",
    "Disagreement",
    "Merged",
    "RowProblem",
    "Suspect",
    "apply_decisions",
    "audit_file",
    "audit_table",
    "load_model",
    "merge_decisions",
    "read_decisions",
    "read_reviews",
    "recalibrate",
]
