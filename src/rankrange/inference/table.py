"""The summary of a fit: coefficients with standard errors, tests and intervals, as text, as a frame and as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from scipy.stats import t as student

from ..core.arrays import Array
from ..errors import import_pandas

COLUMNS = ("coef", "std err", "t", "P>|t|")


@dataclass(frozen=True, eq=False)
class Summary:
    """Coefficients of a fit with their precision; print it, or see it in a notebook.

    Parameters
    ----------
    title : str
        The kind of model, printed above the table.
    names : tuple of str
        Names of the coefficients.
    coef, bse : ndarray of shape (p,)
        Coefficients and their standard errors; NaN if a coefficient is not identified.
    df : float
        Degrees of freedom of the t distribution; infinity is the normal.
    facts : dict of str to str
        Lines above the table.
    notes : tuple of str
        Notes below the table.
    level : float, default=0.95
        The confidence level of the intervals.
    other : ndarray of shape (p,), optional
        Second estimates of the coefficients; intervals cover both estimates.
    """

    title: str
    names: tuple[str, ...]
    coef: Array
    bse: Array
    df: float
    facts: dict[str, str]
    notes: tuple[str, ...]
    level: float = 0.95
    other: Array | None = None

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {self.level!r}; 0.95 is usual")

    @property
    def tvalues(self) -> Array:
        """Coefficients divided by their standard errors; 0 for a coefficient of 0 whose error is 0 as well."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.coef == 0, 0.0, self.coef / self.bse) + 0.0 * self.bse

    @property
    def pvalues(self) -> Array:
        """Probabilities of a larger |t| if the coefficient were 0."""
        return 2 * student.sf(np.abs(self.tvalues), self.df)

    def conf_int(self) -> Array:
        """Confidence intervals (p, 2) at `level`; if there are `other` estimates, they cover the intervals of both."""
        reach = student.ppf((1 + self.level) / 2, self.df) * self.bse
        other = self.coef if self.other is None else self.other
        return np.column_stack([np.minimum(self.coef, other) - reach, np.maximum(self.coef, other) + reach])

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame, one row for each coefficient."""
        low, high = self._ends()
        values = [self.coef, self.bse, self.tvalues, self.pvalues, *self.conf_int().T]
        columns = dict(zip((*COLUMNS, low, high), values, strict=True))
        return import_pandas("to_frame()").DataFrame(columns, index=list(self.names))

    def _ends(self) -> tuple[str, str]:
        tail = (1 - self.level) / 2
        return f"[{tail:.3g}", f"{1 - tail:.3g}]"

    def _cells(self) -> list[tuple[str, ...]]:
        """The cells of the table as text: t with two decimals, p-values with three, other values with four digits."""
        rows = zip(self.coef, self.bse, self.tvalues, self.pvalues, *self.conf_int().T, strict=True)
        return [
            (_number(c), _number(s), f"{t:.2f}", f"{p:.3f}", _number(low), _number(high))
            for c, s, t, p, low, high in rows
        ]

    def __str__(self) -> str:
        head = ("", *COLUMNS, *self._ends())
        body = [(name, *cells) for name, cells in zip(self.names, self._cells(), strict=True)]
        widths = [max(len(row[j]) for row in [head, *body]) for j in range(len(head))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in [head, *body]
        ]
        facts = [f"{name}: {value}" for name, value in self.facts.items()]
        half = (len(facts) + 1) // 2
        wide = max([*map(len, lines), 2 * max(map(len, facts[:half]), default=0) + 4])
        above = [f"{a:<{wide // 2}}{b}" for a, b in zip(facts[:half], [*facts[half:], ""], strict=False)]
        notes = [f"- {note}" for note in self.notes]
        text = [self.title.center(wide).rstrip(), "=" * wide, *above, "-" * wide, lines[0], "-" * wide, *lines[1:]]
        return "\n".join(line.rstrip() for line in [*text, "=" * wide, *notes])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The summary as HTML for notebooks; all text is escaped."""
        head = "".join(f"<th>{escape(name)}</th>" for name in ("", *COLUMNS, *self._ends()))
        rows = "".join(
            f"<tr><th>{escape(name)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
            for name, cells in zip(self.names, self._cells(), strict=True)
        )
        facts = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in self.facts.items())
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return (
            f"<table><caption>{escape(self.title)}</caption>{facts}</table>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table><ul>{notes}</ul>"
        )


def _number(value: float) -> str:
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e5 or value == 0 or np.isnan(value) else f"{value:.3e}"
