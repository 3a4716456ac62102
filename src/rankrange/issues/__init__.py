"""Which labels are wrong: `find_label_issues` and its result.

May import: `core`, `solvers`, `crossfit`, `estimators`, and `pages` for notebooks.
"""

from .find import find_label_issues
from .suspects import LabelIssues

__all__ = ["LabelIssues", "find_label_issues"]
