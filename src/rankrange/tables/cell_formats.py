"""Formats of texts that are numbers: yes and no, plain numbers, dates of many countries, money, percent.

The format of a column is determined from all its texts: 03/04/2025 is ambiguous alone, but not in a column with
31/12/2025. Ambiguous columns raise an error unless an option resolves them, and are never guessed. IP addresses,
telephone numbers and codes such as 12_34 are texts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo

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
_DATE = re.compile(
    r"(\d{1,4})([./-])(\d{1,2})\2(\d{1,4})"
    r"(?:[T ]+(\d{1,2}):(\d\d)(?::(\d\d)(?:\.\d+)?)?\s*([AaPp][Mm]|Z|[+-]\d\d:?\d\d)?)?"
)
_NAMED = re.compile(r"(?:(\d{1,2})[ .-]+([A-Za-z]{3,9})|([A-Za-z]{3,9})[ .]+(\d{1,2}))[ .,-]+(\d{4}|\d\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CURRENCY = r"(?:[$€£¥₹₽₩₺₴¢]|USD|EUR|GBP|CHF|JPY|INR|CNY|CAD|AUD|SEK|NOK|DKK|PLN|BRL|Fr\.|kr|zł|R\$)"
# Groups of thousands have three digits and no leading zero.
_DIGITS = (
    r"[1-9]\d{0,2}(?P<group>[.,'\u2019\s])\d{3}(?:(?P=group)\d{3})*(?:(?!(?P=group))[.,]\d+)?"
    r"|[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d+)?"  # as in India
    r"|\d+(?:[.,]\d*)?|[.,]\d+"
)
_AMOUNT = re.compile(
    rf"(?P<open>\()?(?P<minus>[-\u2212])?\s*(?P<first>{_CURRENCY})?\s*(?P<sign>[-\u2212+])?\s*"
    rf"(?P<digits>{_DIGITS})\s*(?P<last>{_CURRENCY}|%)?\s*(?(open)\))"
)
_IP_ADDRESS = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}")


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


def find_form(name: str, counts: Mapping[str, int], dates: str | None, decimal: str | None) -> str:
    """The format of a column, by its distinct texts and the number of cells with each; the name is for errors.

    It is "yes or no", "day-first", "month-first", "year-first" or "month-named" for dates, "point" or "comma" for money
    and grouped digits, "number" for plain numbers, otherwise "text".
    """
    known: Counter[str] = Counter()
    for text, count in counts.items():
        known[text.strip()] += 0 if is_mark(text) else count
    folded = {text.casefold() for text in known}
    if folded and any(folded <= pair for pair in _PAIRS):
        return YES_OR_NO
    known = +known  # without markers of missing cells, which a column of yes and no does not have
    choices: tuple[tuple[re.Pattern[str], Callable[..., str], str | None], ...] = (
        (_DATE, _order_of_dates, dates),
        (_NAMED, _named_dates, dates),
        (_AMOUNT, _decimal_of, decimal),
        (_PLAIN, lambda *_: NUMBER, None),
    )
    for pattern, decide, option in choices:
        matches = _mostly(pattern, known)
        if matches and (form := decide(name, matches, option)) != TEXT:
            return form
    return TEXT


def _mostly(pattern: re.Pattern[str], counts: Mapping[str, int]) -> list[re.Match[str]]:
    """The matches of a pattern if at least 95% of the cells have one, otherwise none."""
    left = (1.0 - _MOSTLY) * sum(counts.values())
    matches = []
    for text, count in counts.items():
        if match := pattern.fullmatch(text):
            matches.append(match)
        else:
            left -= count
            if left < 0:
                return []
    return matches


def read_text(text: str, form: str) -> float:
    """A text in one of the formats as a number, dates in days since 1970 (UTC); NaN if it has another format."""
    text = text.strip()
    if form == NUMBER:
        return plain_number(text)
    if form == YES_OR_NO:
        return yes_or_no(text)
    return _amount(text, form) if form in DECIMALS else _days(text, form)


# ---- dates -----------------------------------------------------------------------------------------------------------


def _order_of_dates(name: str, matches: list[re.Match[str]], dates: str | None) -> str:
    if all(_year_is_first(match) for match in matches):
        return "year-first"
    if not all(_year_is_last(match) for match in matches):
        return TEXT
    first, second = max(int(match[1]) for match in matches), max(int(match[3]) for match in matches)
    if max(first, second) > 31 or (first > 12 and second > 12):
        return TEXT
    if first > 12:
        return "day-first"
    if second > 12:
        return "month-first"
    if all(match[2] == "." for match in matches):
        return "day-first"  # dates with points are never month-first
    if dates is not None:
        return dates
    raise UserError(
        f"dates must show which number is the day, got '{visible(matches[0][0], 40)}' and others like it in "
        f"'{visible(name, 60)}', which can be read in two ways; pass dates='day-first' or dates='month-first', or "
        "leave the column out with ignore="
    )


def _year_is_first(match: re.Match[str]) -> bool:
    return len(match[1]) == 4


def _year_is_last(match: re.Match[str]) -> bool:
    return len(match[1]) <= 2 and len(match[4]) in (2, 4)


def _named_dates(name: str, matches: list[re.Match[str]], dates: str | None) -> str:
    """The format of dates with English month names, such as 19-Sep-03 and September 19, 2003."""
    return "month-named" if all(_month_of(match) in _MONTHS for match in matches) else TEXT


def _month_of(match: re.Match[str]) -> str:
    return (match[2] or match[3])[:3].lower()


def _days(text: str, form: str) -> float:
    """Days since 1970 of a date in this format. Two-digit years are 1969 to 2068, fractions of a second are dropped."""
    if form == "month-named":
        found = _NAMED.fullmatch(text)
        if found is None or _month_of(found) not in _MONTHS:
            return math.nan
        text, form = f"{found[1] or found[4]}.{_MONTHS.index(_month_of(found)) + 1}.{found[5]}", "day-first"
    match = _DATE.fullmatch(text)
    if match is None or not (_year_is_first(match) if form == "year-first" else _year_is_last(match)):
        return math.nan
    one, two, three = int(match[1]), int(match[3]), int(match[4])
    year, month, day = {"day-first": (three, two, one), "month-first": (three, one, two)}.get(form, (one, two, three))
    if len(match[4]) == 2 and form != "year-first":
        year += 2000 if year < 69 else 1900
    hour, minute, second = (int(match[i] or 0) for i in (5, 6, 7))
    zone = (match[8] or "Z").lower()
    if zone in ("am", "pm"):
        hour = hour % 12 + (12 if zone == "pm" else 0)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone))
    except ValueError:
        return math.nan
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(days=1)


def _zone(text: str) -> tzinfo | None:
    if text[0] not in "+-":
        return UTC
    return datetime.strptime(text, "%z").tzinfo


# ---- money, percent, decimal commas ----------------------------------------------------------------------------------


def _decimal_of(name: str, matches: list[re.Match[str]], decimal: str | None) -> str:
    """The decimal separator, "point" or "comma"; "text" for plain numbers, contradictions and other codes.

    It is "point" if no text has a separator. An error if it is ambiguous and `decimal` is not given.
    """
    if all(_PLAIN.fullmatch(match[0]) for match in matches) or _are_codes(matches):
        return TEXT
    orders = {shown for match in matches if (shown := _separator_shown(match["digits"]))}
    if len(orders) == 2:
        return TEXT
    if orders:
        return orders.pop()
    unclear = next((match[0] for match in matches if "," in match["digits"] or "." in match["digits"]), None)
    if unclear is None:
        return "point"
    if decimal is not None:
        return decimal
    raise UserError(
        f"numbers must show whether the comma or the point is the decimal separator, got '{visible(unclear, 40)}' and "
        f"others like it in '{visible(name, 60)}', which can be read in two ways; pass decimal='point' or "
        "decimal='comma', or leave the column out with ignore="
    )


def _are_codes(matches: list[re.Match[str]]) -> bool:
    """Whether some digits are an IP address, or all are telephone numbers such as 612 345 678 and +1 555 123 456."""
    if any(_IP_ADDRESS.fullmatch(match[0]) for match in matches):
        return True
    shapes = {re.sub(r"\d", "0", match[0]).removeprefix("+") for match in matches}
    return len(shapes) == 1 and bool(re.fullmatch(r"0+(\s000){2,}", shapes.pop()))


def _separator_shown(digits: str) -> str | None:
    """The decimal separator of one number, None if it is ambiguous (1,234) or has none (12).

    It is "point" for 1,234.5, 12.50 or 1,234,567, and "comma" for 1.234,5, 12,5 or 1.234.567.
    """
    marks = [c for c in digits if c in ".,"]
    if not marks:
        return None
    last = marks[-1]
    if len(set(marks)) == 2:
        return "point" if last == "." else "comma"
    if len(marks) > 1:
        return "comma" if last == "." else "point"  # 1.234.567: a repeated separator groups thousands
    before, after = digits.split(last)
    if len(after) == 3 and 1 <= len(before) <= 3 and before != "0":
        return None
    return "point" if last == "." else "comma"


def _amount(text: str, form: str) -> float:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        return math.nan
    decimals, thousands = (".", ",") if form == "point" else (",", ".")
    digits = re.sub(r"['\u2019\s]", "", match["digits"]).replace(thousands, "").replace(decimals, ".")
    value = plain_number(digits)
    return -value if match["open"] or match["minus"] or match["sign"] in ("-", "\u2212") else value
