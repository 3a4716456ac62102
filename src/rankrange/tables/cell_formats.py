"""Formats of texts that are numbers: yes and no, plain numbers, dates of many countries, money, percent.

A column has the format that reads its texts: 03/04/2025 is ambiguous alone, but not beside 31/12/2025. Ambiguous
columns raise an error unless an option resolves them. IP addresses, telephone numbers and codes such as 12_34 are
texts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

from ..errors import UserError
from ..pages.text import visible

MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "?", "#N/A", "<NA>")
# Further markers of missing cells in columns of numbers or dates. In text columns they are often values.
_MARKS = {
    *(mark.casefold() for mark in MISSING),
    *(".", "..", "...", "-", "--", "---", "\u2013", "\u2014", "*", "na", "n.a.", "n.a", "n/d", "nd", "nil", "none"),
    *("missing", "(missing)", "unknown", "unk", "not known", "not available", "not applicable", "not recorded"),
    *("#div/0!", "#value!", "#ref!", "#num!", "#name?", "#null!"),
}
# A column has a format if at least this share of its cells have it; the others count as missing.
_MOSTLY = 0.95
# Infinite values, and values whose square overflows, count as missing.
HUGE = 1e150
TEXT, YES_OR_NO, NUMBER = "text", "yes or no", "number"
DATES = ("day-first", "month-first")
DECIMALS = ("point", "comma")
_PAIRS = ({"yes", "no"}, {"y", "n"}, {"true", "false"}, {"t", "f"})
_YES, _NO = {"yes", "y", "true", "t", "1"}, {"no", "n", "false", "f", "0"}
_PLAIN = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def is_mark(text: str) -> bool:
    """Whether a text marks a missing cell in a column of numbers or dates."""
    return text.strip().casefold() in _MARKS


def plain_number(text: str) -> float:
    """The value of a text such as -1.5e3, NaN for other texts and for huge values."""
    stripped = text.strip()
    value = float(stripped) if _PLAIN.fullmatch(stripped) else math.nan
    return value if abs(value) < HUGE else math.nan


def yes_or_no(text: str) -> float:
    """1 or 0 for the meaning of a cell of a 0/1 column, NaN if it has neither."""
    folded = text.strip().casefold().removesuffix(".0")
    return 1.0 if folded in _YES else 0.0 if folded in _NO else math.nan


def means_one(text: str) -> bool:
    """Whether a cell of a 0/1 column means 1."""
    return yes_or_no(text) == 1.0


# ---- dates -----------------------------------------------------------------------------------------------------------

_DAY, _MONTH, _YEAR = r"(?P<day>\d{1,2})", r"(?P<month>\d{1,2})", r"(?P<year>\d{4}|\d\d)"
_TIME = (
    r"(?:[T ]+(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.\d+)?)?"
    r"\s*(?P<zone>[AaPp][Mm]|Z|[+-]\d\d:?\d\d)?)?"
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _dates(pattern: str) -> Callable[[str], float]:
    """A reader of dates as days since 1970 (UTC). Two-digit years are 1969 to 2068."""
    compiled = re.compile(pattern + _TIME)

    def read(text: str) -> float:
        match = compiled.fullmatch(text)
        if match is None:
            return math.nan
        year, month, zone = int(match["year"]), match["month"].lower()[:3], (match["zone"] or "Z").lower()
        year += 0 if len(match["year"]) == 4 else 2000 if year < 69 else 1900
        hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
        if zone in ("am", "pm"):
            hour = hour % 12 + (12 if zone == "pm" else 0)
        try:
            number = int(month) if month.isdigit() else 1 + _MONTHS.index(month)
            moment = datetime(year, number, int(match["day"]), hour, minute, second, tzinfo=_zone(zone))
        except ValueError:
            return math.nan
        return (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(days=1)

    return read


def _zone(text: str) -> tzinfo | None:
    return datetime.strptime(text, "%z").tzinfo if text[0] in "+-" else UTC


_day_and_name = _dates(rf"{_DAY}[ .-]+(?P<month>[A-Za-z]{{3,9}})[ .,-]+{_YEAR}")


def _named_days(text: str) -> float:
    """A date with an English month name, such as 19-Sep-03 or September 19, 2003."""
    return _day_and_name(re.sub(r"^([A-Za-z]{3,9})[ .]+(\d{1,2})\b", r"\2 \1", text))


# ---- money, percent, decimal commas ----------------------------------------------------------------------------------

_CURRENCY = r"(?:[$€£¥₹₽₩₺₴¢]|USD|EUR|GBP|CHF|JPY|INR|CNY|CAD|AUD|SEK|NOK|DKK|PLN|BRL|Fr\.|kr|zł|R\$)"
_IP_ADDRESS = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}")


def _amounts(decimal: str, thousands: str) -> Callable[[str], float]:
    """A reader of amounts with this decimal separator; ( ) and minus signs make them negative."""
    digits = (  # Groups of thousands have three digits and no leading zero; the second line is as in India.
        rf"[1-9]\d{{0,2}}(?P<group>[{thousands}'\u2019\s])\d{{3}}(?:(?P=group)\d{{3}})*(?:[{decimal}]\d+)?"
        rf"|[1-9]\d?(?:[{thousands}]\d\d)+[{thousands}]\d{{3}}(?:[{decimal}]\d+)?"
        rf"|\d+(?:[{decimal}]\d*)?|[{decimal}]\d+"
    )
    compiled = re.compile(
        rf"(?P<open>\()?[-\u2212]?\s*{_CURRENCY}?\s*[-\u2212+]?\s*(?P<digits>{digits})\s*(?:{_CURRENCY}|%)?\s*(?(open)\))"
    )

    def read(text: str) -> float:
        match = compiled.fullmatch(text)
        if match is None or _IP_ADDRESS.fullmatch(text):
            return math.nan
        value = plain_number(re.sub(rf"[{thousands}'\u2019\s]", "", match["digits"]).replace(decimal, "."))
        return -value if set("(-\u2212") & set(text) else value

    return read


_TELEPHONE = re.compile(r"\+?\d+(\s\d{3}){2,}")


def _are_telephone_numbers(texts: Collection[str]) -> bool:
    """Whether all texts are like 612 345 678, or like +1 555 123 456, with equally many digits."""
    return all(map(_TELEPHONE.fullmatch, texts)) and len({len(text.removeprefix("+")) for text in texts}) == 1


# ---- the format of a column ------------------------------------------------------------------------------------------


class _Family(NamedTuple):
    """Formats of which a column has at most one, with their readers, and the option for an ambiguous column."""

    readers: dict[str, Callable[[str], float]]
    option: str
    rule: str


# In the order in which they are tried.
_FAMILIES = (
    _Family(
        {
            "year-first": _dates(rf"(?P<year>\d{{4}})(?P<separator>[./-]){_MONTH}(?P=separator){_DAY}"),
            "day-first": _dates(rf"{_DAY}(?P<separator>[./-]){_MONTH}(?P=separator){_YEAR}"),
            "month-first": _dates(rf"{_MONTH}(?P<separator>[/-]){_DAY}(?P=separator){_YEAR}"),  # points: day first
            "month-named": _named_days,
        },
        "dates",
        "dates must show which number is the day",
    ),
    _Family(
        {NUMBER: plain_number, "point": _amounts(".", ","), "comma": _amounts(",", ".")},
        "decimal",
        "numbers must show whether the comma or the point is the decimal separator",
    ),
)
_READERS = {YES_OR_NO: yes_or_no} | {form: read for family in _FAMILIES for form, read in family.readers.items()}


def read_texts(texts: Iterable[str], form: str) -> dict[str, float]:
    """The texts that are no marks as numbers, dates in days since 1970 (UTC); NaN if they have another format."""
    return {text: _READERS[form](text.strip()) for text in texts if not is_mark(text)}


def find_form(name: str, counts: Mapping[str, int], options: Mapping[str, str | None]) -> str:
    """The format of a column, by its distinct texts and the number of cells with each; the name is for errors.

    It is a key of `_READERS`, otherwise "text". `options` has "dates" and "decimal", which resolve an ambiguous column.
    """
    known: Counter[str] = Counter()
    for text, count in counts.items():
        known[text.strip()] += 0 if is_mark(text) else count
    folded = {text.casefold() for text in known}
    if folded and any(folded <= pair for pair in _PAIRS):
        return YES_OR_NO
    known = +known  # without markers of missing cells, which a column of yes and no does not have
    if _are_telephone_numbers(known):
        return TEXT
    found = (_form_in(family, name, known, options) for family in _FAMILIES)
    return next((form for form in found if form), TEXT)


def _form_in(family: _Family, name: str, counts: Counter[str], options: Mapping[str, str | None]) -> str | None:
    """The format that reads at least 95% of the cells, and each text that another such format reads."""
    allowed = (1.0 - _MOSTLY) * counts.total()
    read: dict[str, dict[str, float]] = {form: {} for form in family.readers}
    left = dict.fromkeys(read, allowed)
    for text, count in counts.items():
        for form, reader in family.readers.items():
            value = reader(text)
            if math.isnan(value):
                left[form] -= count
            else:
                read[form][text] = value
        if max(left.values()) < 0:
            return None
    fits = [form for form in read if left[form] >= 0 and counts]
    fits = [form for form in fits if all(read[form].keys() >= read[other].keys() for other in fits)]
    unclear = [text for form in fits for text, value in read[form].items() if value != read[fits[0]][text]]
    if not unclear or fits[0] == NUMBER:
        return fits[0] if fits else None
    chosen = options.get(family.option)
    if chosen in fits:
        return chosen
    remedies = " or ".join(f"{family.option}={form!r}" for form in fits)
    raise UserError(
        f"{family.rule}, got '{visible(unclear[0], 40)}' and others like it in '{visible(name, 60)}', which can be "
        f"read in two ways; pass {remedies}, or leave the column out with ignore="
    )
