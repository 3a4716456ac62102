"""Column names and types: finds columns by name or pattern, and reads texts as dates, money, percent or numbers.

Errors about unknown names suggest a similar name. Texts may be dates in the formats of many countries, money, percent,
or numbers with decimal commas. The format is determined from the whole column: 03/04/2025 is ambiguous alone, but not
in a column with 31/12/2025. Ambiguous columns raise an error, unless an option resolves them, and are never guessed.
`typed` returns a table with converted columns, and the format of each, which reads another table in the same way.
"""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..pages.text import visible
from .cell_values import is_mark, is_text

# Delimiters of CSV files, and their names in messages.
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar", " ": "space", ":": "colon"}


def find_columns(names: Sequence[str], wanted: Sequence[str], path: Path, option: str = "target") -> list[str]:
    """Find columns by name or by patterns with *, ? or [...], without repetition.

    A name that is itself a column is not a pattern. `path` and `option` are for the error message.
    """
    found: dict[str, None] = {}
    for name in wanted:
        if name in names or not set(name) & set("*?["):
            found[find_column(names, name, path, option)] = None
            continue
        matching = [other for other in names if fnmatch.fnmatchcase(other, name)]
        if not matching:
            raise UserError(
                f"{option} must match some column, got {shown(name)}, which none of {path} matches; it has "
                f"{', '.join(shown(n) for n in names[:6])}{' ...' if len(names) > 6 else ''}"
            )
        found.update(dict.fromkeys(matching))
    return list(found)


def find_one_column(names: Sequence[str], wanted: str | None, path: Path, option: str) -> str | None:
    """Find the column with this name, or the only one that matches this pattern (`find_columns`); None for None."""
    if wanted is None:
        return None
    found = find_columns(names, [wanted], path, option)
    if len(found) > 1:
        listed = ", ".join(shown(n) for n in found[:6]) + (" ..." if len(found) > 6 else "")
        raise UserError(f"{option} must be one column, got {shown(wanted)}, which matches {listed}; name one of them")
    return found[0]


def find_column(names: Sequence[str], wanted: str, path: Path, option: str = "target") -> str:
    """Return the name if there is such a column; otherwise raise an error with a hint, such as a similar name."""
    if wanted in names:
        return wanted
    near = nearest(wanted, names)
    if near:
        hint = f"did you mean {shown(near)}?"
    elif any(wanted in names[0].split(other) for other in DELIMITERS):
        hint = "the header seems to have another delimiter; name it with delimiter="
    elif all(re.fullmatch(r"\s*[-+]?[\d.]+(e[-+]?\d+)?\s*", name) for name in names):
        hint = "the first line must hold the names of the columns, and here it holds numbers; add a header"
    else:
        hint = f"it has {', '.join(shown(n) for n in names[:6])}{' ...' if len(names) > 6 else ''}"
    raise UserError(f"{option} must name a column, got {shown(wanted)}, which {path} does not have; {hint}")


def nearest(wanted: str, names: Sequence[str]) -> str | None:
    """The name that was probably meant, by similar spelling regardless of case, or None."""
    folded = {name.strip().casefold(): name for name in names}
    near = difflib.get_close_matches(wanted.strip().casefold(), list(folded)[:20_000], n=1, cutoff=0.7)
    return folded[near[0]] if near else None


def shown(name: str) -> str:
    """A name from the data for messages: quoted, truncated, with hidden characters made visible."""
    return "'" + visible(name, 60) + "'"


DATES = ("day-first", "month-first")
DECIMALS = ("point", "comma")
# The number of distinct texts to check first; most columns are neither dates nor money.
_FIRST = 200
# The least share of distinct texts that must have the format; the others count as missing.
_MOSTLY = 0.95
_DATE = re.compile(
    r"(\d{1,4})([./-])(\d{1,2})\2(\d{1,4})(?:[T ]+(\d{1,2}):(\d\d)(?::(\d\d)(?:\.\d+)?)?\s*([AaPp][Mm])?)?"
)
_NAMED = re.compile(r"(?:(\d{1,2})[ .-]+([A-Za-z]{3,9})|([A-Za-z]{3,9})[ .]+(\d{1,2}))[ .,-]+(\d{4}|\d\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CURRENCY = r"(?:[$€£¥₹₽₩₺₴¢]|USD|EUR|GBP|CHF|JPY|INR|CNY|CAD|AUD|SEK|NOK|DKK|PLN|BRL|Fr\.|kr|zł|R\$)"
_AMOUNT = re.compile(
    rf"(?P<minus>[-\u2212(])?\s*(?P<first>{_CURRENCY})?\s*(?P<sign>[-\u2212+])?\s*"
    rf"(?P<digits>\d[\d.,'\u2019\s]*|[.,]\d+)\s*(?P<last>{_CURRENCY}|%)?\s*\)?"
)


def typed(
    table: Any, forms: Mapping[str, str] | None = None, *, dates: str | None = None, decimal: str | None = None
) -> tuple[Any, dict[str, str]]:
    """Convert text columns with dates, money, percent or decimal commas to dates and numbers.

    Currencies and percent signs are dropped: 5% becomes 5. A column is converted if at least 95% of its distinct texts,
    and of the first 200 of these, have one format; texts without this format become missing.

    Parameters
    ----------
    table : pyarrow.Table
        The table; columns of other types and of plain numbers do not change.
    forms : mapping of str to str, optional
        The formats from an earlier call. Only these columns are then converted, and `dates` and `decimal` are not used.
    dates : {"day-first", "month-first"}, optional
        The meaning of 03/04/2025, if the column is ambiguous.
    decimal : {"point", "comma"}, optional
        The meaning of 1,234, if the column is ambiguous.

    Returns
    -------
    table : pyarrow.Table
        The table with converted columns.
    forms : dict
        The format of each converted column, by name.

    Raises
    ------
    UserError
        If a column is ambiguous and the option was not given, or if an option has another value.
    """
    for option, value, allowed in (("dates", dates, DATES), ("decimal", decimal, DECIMALS)):
        if value is not None and value not in allowed:
            raise UserError(f"{option} must be one of {', '.join(allowed)}, got {value!r}; leave it out to detect it")
    found: dict[str, str] = {}
    for index, name in enumerate(table.column_names):
        column = table.column(index)
        if not is_text(_value_type(column)):
            continue
        if forms is None:
            form = _form_of(name, column, dates, decimal)
        else:
            form = forms.get(name)
        if form is not None:
            found[name] = form
            table = table.set_column(index, name, _read_as(column, form))
    return table, found


def _value_type(column: Any) -> Any:
    import pyarrow as pa

    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def _form_of(name: str, column: Any, dates: str | None, decimal: str | None) -> str | None:
    """The format of a text column; None for other texts, contradictory formats and plain numbers.

    It is "day-first", "month-first", "year-first" or "month-named" for dates, "point" or "comma" for numbers. An
    ambiguous column is an error without `dates` or `decimal`. At most 200 distinct texts of the first 2,000 rows are
    checked before all texts.
    """
    sample = (_texts(column.slice(0, 2000)) or _texts(column))[:_FIRST]
    for pattern, decide in ((_DATE, _order_of_dates), (_NAMED, _named_dates), (_AMOUNT, _decimal_of)):
        if sample and sum(pattern.fullmatch(text) is not None for text in sample) >= _MOSTLY * len(sample):
            texts = _texts(column)
            matches = [match for match in map(pattern.fullmatch, texts) if match is not None]
            if len(matches) < _MOSTLY * len(texts):
                return None
            return decide(name, matches, decimal if pattern is _AMOUNT else dates)
    return None


def _texts(column: Any) -> list[str]:
    """The distinct texts of a column, stripped, without markers of missing cells."""
    import pyarrow.compute as pc

    texts = [str(value).strip() for value in pc.unique(column).to_pylist() if value is not None]
    return [text for text in texts if not is_mark(text)]


# ---- dates -----------------------------------------------------------------------------------------------------------


def _order_of_dates(name: str, matches: list[re.Match[str]], dates: str | None) -> str | None:
    if all(_year_is_first(match) for match in matches):
        return "year-first"
    if not all(_year_is_last(match) for match in matches):
        return None
    first, second = max(int(match[1]) for match in matches), max(int(match[3]) for match in matches)
    if max(first, second) > 31 or (first > 12 and second > 12):
        return None
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


def _named_dates(name: str, matches: list[re.Match[str]], dates: str | None) -> str | None:
    """The format of dates with English month names, such as 19-Sep-03 and September 19, 2003; None for other texts."""
    return "month-named" if all(_month_of(match) in _MONTHS for match in matches) else None


def _month_of(match: re.Match[str]) -> str:
    """The first three letters of the month of a date with a named month."""
    return (match[2] or match[3])[:3].lower()


def _milliseconds(text: str, form: str) -> int | None:
    """Milliseconds since 1970 (UTC) of a date in this format, or None if the text is not such a date.

    Two-digit years are 1969 to 2068. Fractions of a second are dropped.
    """
    from datetime import datetime, timezone

    if form == "month-named":
        found = _NAMED.fullmatch(text.strip())
        if found is None or _month_of(found) not in _MONTHS:
            return None
        text, form = f"{found[1] or found[4]}.{_MONTHS.index(_month_of(found)) + 1}.{found[5]}", "day-first"
    match = _DATE.fullmatch(text.strip())
    if match is None or not (_year_is_first(match) if form == "year-first" else _year_is_last(match)):
        return None
    one, two, three = int(match[1]), int(match[3]), int(match[4])
    year, month, day = {"day-first": (three, two, one), "month-first": (three, one, two)}.get(form, (one, two, three))
    if len(match[4]) == 2 and form != "year-first":
        year += 2000 if year < 69 else 1900
    hour, minute, second = (int(match[i] or 0) for i in (5, 6, 7))
    if match[8]:
        hour = hour % 12 + (12 if match[8].lower() == "pm" else 0)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    except ValueError:
        return None
    return int(moment.timestamp() * 1000)


# ---- money, percent, decimal commas ----------------------------------------------------------------------------------


def _decimal_of(name: str, matches: list[re.Match[str]], decimal: str | None) -> str | None:
    """The decimal separator, "point" or "comma"; None if all texts are plain numbers or some contradict each other.

    It is "point" if no text has a separator. An error if it is ambiguous and `decimal` is not given.
    """
    plain = all(re.fullmatch(r"[-+]?\d*\.?\d*", match[0]) for match in matches)
    if plain:
        return None
    orders = {found for match in matches if (found := _separator_shown(match["digits"]))}
    if len(orders) == 2:
        return None
    if orders:
        return orders.pop()
    if not any("," in match["digits"] or "." in match["digits"] for match in matches):
        return "point"
    if decimal is not None:
        return decimal
    shown = next(match[0] for match in matches if "," in match["digits"] or "." in match["digits"])
    raise UserError(
        f"numbers must show whether the comma or the point is the decimal separator, got '{visible(shown, 40)}' and "
        f"others like it in '{visible(name, 60)}', which can be read in two ways; pass decimal='point' or "
        "decimal='comma', or leave the column out with ignore="
    )


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
    other = "comma" if last == "." else "point"
    if len(marks) > 1:
        return other  # 1.234.567: a repeated separator groups thousands
    before, after = digits.strip().split(last)
    if len(after.strip()) == 3 and 1 <= len(before.strip()) <= 3 and before.strip() != "0":
        return None
    return "point" if last == "." else "comma"


def _amount(text: str, form: str) -> float | None:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return None
    decimals, thousands = (".", ",") if form == "point" else (",", ".")
    digits = re.sub(r"['\u2019\s]", "", match["digits"]).replace(thousands, "").replace(decimals, ".")
    try:
        value = float(digits)
    except ValueError:
        return None
    minus = match["minus"] or (match["sign"] or "+") != "+"
    return -value if minus else value


def _read_as(column: Any, form: str) -> Any:
    """Convert a column in this format; texts of another format become missing."""
    import pyarrow as pa

    kind = pa.float64() if form in DECIMALS else pa.timestamp("ms")
    read = _amount if form in DECIMALS else _milliseconds
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    chunks = []
    for chunk in encoded.chunks:
        values = pa.array([None if t is None else read(str(t), form) for t in chunk.dictionary.to_pylist()], type=kind)
        chunks.append(values.take(chunk.indices))
    return pa.chunked_array(chunks, type=kind)
