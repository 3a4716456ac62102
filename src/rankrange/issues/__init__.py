"""Which labels are wrong: the levels of suspicion, `find_label_issues`, and its result.

May import: `core`, `solvers`, `crossfit`, `estimators`, and `pages` for notebooks.
"""

from .find import LabelIssues, find_label_issues

__all__ = ["LabelIssues", "find_label_issues"]
