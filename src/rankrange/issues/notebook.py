"""What `find_label_issues` found, as a notebook shows it."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from ..pages.shell import fragment


def issues_fragment(issues: Any, limit: int = 10) -> Markup:
    """What a notebook shows: the estimate and the first suspects, without script or style. Rows count from 0."""
    low, high = issues.noise_interval
    return fragment(
        "issues.html",
        head=f"{len(issues)} suspects among {len(issues.score)} rows; wrong labels: about {issues.noise_estimate:.1%} "
        f"({low:.1%} to {high:.1%})",
        names=issues.table.dtype.names,
        rows=[[_shown(value) for value in suspect.tolist()] for suspect in issues.table[:limit]],
        more=max(0, len(issues) - limit),
    )


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
