"""Finding wrong labels: `find_label_issues`, its result, and the formats of review tools.

May import: `core`, `solvers`, `crossfit`, `label_noise`, `estimators`, and `pages` for notebooks.
"""

from .find import find_label_issues
from .label_studio import LabelStudioTasks
from .suspects import LabelIssues

__all__ = ["LabelIssues", "LabelStudioTasks", "find_label_issues"]
