"""Text for display: hidden characters are made visible, formulas are quoted, counts get the right plural."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

# The start of a formula in a spreadsheet program (the last four are full-width forms), after optional white space.
_FORMULA = re.compile("^[\t\r\n]|^[\\s\\x00-\\x20\ufeff]*[=+@|%\\-\uff1d\uff0b\uff0d\uff20]")
# A number or a single sign, which is often a label: not a formula.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]")
# Cc control, Cf format (direction marks, zero-width), Cs lone surrogates, Co private, Zl and Zp separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def visible(value: Any, limit: int | None = None) -> str:
    """The value as text, first truncated to `limit` characters; hidden characters are then made visible.

    U+202E becomes ⟨202E⟩, so the result may be longer than `limit`. None becomes an empty text.
    """
    text = "" if value is None else str(value)
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"⟨{ord(c):04X}⟩" if unicodedata.category(c) in _HIDDEN else c for c in text)


def number(value: float, digits: int = 6) -> str:
    """The number with `digits` significant digits; a large one below 1e9 as an integer (3500000, not 3.5e+06)."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e9 else text


def plural(n: int, noun: str) -> str:
    """A count with its noun: 1 row, 2 rows, 1,200 classes."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}{'es' if noun.endswith('s') else 's'}"


def percent(p: float) -> str:
    """A probability in whole percent. Rounding never makes it certain: it is <1% or >99% instead."""
    return "<1%" if p <= 0.005 else ">99%" if p >= 0.995 else f"{100 * p:.0f}%"


def csv_safe(text: str) -> str:
    """Add a leading apostrophe if a spreadsheet program would read the text as a formula; numbers, + and - stay.

    Texts of apostrophes and a formula get one more, so that `csv_unsafe` is the inverse.
    """
    formula = text.lstrip("'")
    return "'" + text if _FORMULA.match(formula) and not _NUMBER.fullmatch(formula) else text


def csv_unsafe(text: str) -> str:
    """Remove the apostrophe that `csv_safe` added."""
    return text[1:] if text[:1] == "'" and csv_safe(text[1:]) == text else text
