"""The result of `find_label_issues`: the suspects, worst first, and what is known of all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.arrays import Array
from ..core.flips import LIKELY


@dataclass(frozen=True)
class LabelIssues:
    """The suspects, worst first, and what is known of all rows.

    table : structured array, a suspect a row: "row" (its place in X), "given" and "suggested" label, "p_wrong", "loss"
        (out of sample), "distance" (loss less the cut lam_hat), "cut" (how often the loss was above the cut, of all
        fits that had not seen the row), "fdr" (estimated share of right labels among the suspects up to here) and
        "action": "relabel" (likely wrong, and one other label fits), "drop" (likely wrong), "look" (possibly wrong).
    score : (n,) the higher, the more suspect; what the table is sorted by
    noise_estimate, noise_interval : estimated share of wrong labels, and its 95% interval
    neighbour_weight : how much the labels of the nearest rows count; 0 where they add nothing to the linear model
    opinions : what p_wrong is made of, as (source, weight, probabilities (n, classes) out of sample)
    """

    table: Array
    score: Array
    p_wrong: Array
    given: Array
    suggested: Array
    noise_estimate: float
    noise_interval: tuple[float, float]
    neighbour_weight: float
    opinions: tuple[tuple[str, float, Array], ...] = ()

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __repr__(self) -> str:
        names = self.table.dtype.names or ()
        lines = ["  ".join(f"{name:>9}" for name in names)]
        for suspect in self.table[:10]:
            lines.append("  ".join(f"{_shown(value):>9}" for value in suspect.tolist()))
        low, high = self.noise_interval
        head = f"{len(self)} suspects among {len(self.score)} rows; wrong labels: about {self.noise_estimate:.1%}"
        return "\n".join([f"{head} ({low:.1%} to {high:.1%})", *lines, *(["..."] if len(self) > 10 else [])])

    def _repr_html_(self) -> str | None:
        """For notebooks; without Jinja2 they show the text."""
        try:
            from .notebook import issues_fragment
        except ImportError:
            return None
        return str(issues_fragment(self))

    def to_pandas(self) -> Any:
        """The table as a DataFrame."""
        return _pandas("to_pandas").DataFrame({name: self.table[name] for name in self.table.dtype.names or ()})

    def to_cleanlab(self) -> Any:
        """A DataFrame of all rows, in their order, with the columns of cleanlab's `CleanLearning.get_label_issues`."""
        return _pandas("to_cleanlab").DataFrame(
            {
                "is_label_issue": self.p_wrong >= LIKELY,
                "label_quality": 1.0 - self.score,
                "given_label": self.given,
                "predicted_label": self.suggested,
            }
        )


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)[:9]


def _pandas(purpose: str) -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            f"{purpose}() needs pandas, which is not installed; run: pip install 'rankrange[data]'"
        ) from error
    return pandas
