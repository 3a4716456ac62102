"""A note on the robust linear fit of a numeric target: the scale of its residuals, and bad leverage points."""

from __future__ import annotations

from ..estimators import AoRRRegressor
from ..pages.text import number
from .target import RowNames, Target
from .task_result import TaskResult

# The largest number of features for distances, and of bad leverage points to name.
_MAX_FEATURES, _NAMED = 50, 5


def regions(result: TaskResult, target: Target, names: RowNames) -> list[str]:
    """A list with the note; empty after an out-of-core fit, with more than 50 features, or if k is below n."""
    fitted = getattr(result.model, "regressor_", None)
    if not isinstance(fitted, AoRRRegressor) or not 0 < fitted.n_features_in_ <= _MAX_FEATURES:
        return []
    if getattr(fitted, "_training", None) is None or fitted.k_ != len(target.y):  # out of core there is no scale
        return []
    found = fitted.diagnostics()
    unit = float(result.model.transformer_.scale_[0]) * fitted.scale_
    outliers = ", ".join(f"{count:,} {kind}s" for kind, count in list(found.counts.items())[1:] if count)
    words = (
        f"The residuals of the robust linear fit have a standard deviation of {number(unit, 4)}; "
        f"{outliers or 'no outlier'}."
    )
    bad = (found.kinds == "bad leverage point").nonzero()[0]
    worst = sorted(bad.tolist(), key=lambda i: -abs(found.residuals[i]))[:_NAMED]
    off = [f"{names.name(int(target.rows[i]))} (by {number(abs(found.residuals[i]) * unit, 4)})" for i in worst]
    more = f" and {len(bad) - _NAMED:,} more" if len(bad) > _NAMED else ""
    return [
        words
        + (
            f" Bad leverage points, with outlying features and large residuals: rows {', '.join(off)}{more}."
            if off
            else ""
        )
    ]
