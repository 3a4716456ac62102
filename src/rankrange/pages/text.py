"""Text from data made harmless to show: control characters and direction marks become visible, formulas stay text."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

# What starts a formula in a spreadsheet program (the last four are its full-width forms), white space skipped.
_FORMULA = re.compile("^[\t\r\n]|^[\\s\\x00-\\x20\ufeff]*[=+@|%\\-\uff1d\uff0b\uff0d\uff20]")
# A number, or a sign alone, which is no formula and often a label.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]")
# Cc control, Cf format (direction marks, zero-width), Cs lone surrogates, Co private, Zl and Zp separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def visible(value: Any, limit: int | None = None) -> str:
    """The value as text in which nothing is hidden: U+202E is written ⟨202E⟩; a text over `limit` is cut short."""
    text = "" if value is None else str(value)
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"⟨{ord(c):04X}⟩" if unicodedata.category(c) in _HIDDEN else c for c in text)


def number(value: float, digits: int = 6) -> str:
    """The number with so many digits; below a thousand million all digits before the point are written, not 3.5e+06."""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e9 else text


def counted(n: int, one: str, many: str | None = None) -> str:
    """A number of things: "1 row", "2 rows"; `many` if it does not end with s."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def share_of(value: float) -> str:
    """A share as it is written, in percent."""
    return f"{100 * value:.1f}%" if value < 0.995 else f"{100 * value:.0f}%"


def csv_safe(text: str) -> str:
    """The text with a leading quote where a spreadsheet program would take it for a formula; numbers stay numbers."""
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return "'" + text
    return text
