"""Columns: dates, money, percent and yes and no as numbers, everything else as text; and their encoding."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankrange.errors import UserError
from rankrange.tables.columns import find_columns, read_columns

DAY0 = datetime.datetime(1970, 1, 1)


def column(cells, form=None, **options):
    forms = None if form is None else {"x": form}
    return read_columns(pa.table({"x": cells}), forms=forms, **options)[0]


def moments(found):
    return [
        None if np.isnan(day) else DAY0 + datetime.timedelta(milliseconds=round(day * 86.4e6)) for day in found.values
    ]


DAYS = st.dates(datetime.date(1970, 1, 1), datetime.date(2060, 12, 31))


@given(st.lists(DAYS, min_size=1, max_size=20), st.sampled_from(["%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d"]))
def test_dates_come_back_in_every_order_or_are_asked_about(days, form):
    cells = [day.strftime(form) for day in days]
    order = "day-first" if form.startswith("%d") else "month-first" if form.startswith("%m") else None
    found = column(cells, dates=order)
    assert [moment.date() for moment in moments(found)] == days
    clear = form in ("%d.%m.%Y", "%Y/%m/%d") or any(day.day > 12 for day in days)
    if clear:
        np.testing.assert_array_equal(column(cells).values, found.values)
    else:
        with pytest.raises(UserError, match=r"two ways; pass dates='day-first' or dates='month-first'"):
            column(cells)


@given(st.lists(st.decimals(-(10**7), 10**7, places=2), min_size=1, max_size=20), st.sampled_from(["$", "€", "%"]))
def test_money_and_percent_come_back_with_point_or_comma(values, unit):
    points = [f"-{unit}{-v:,.2f}" if v < 0 and unit == "$" else f"{v:,.2f} {unit}" for v in values]
    swap = str.maketrans(",.", ".,")
    for cells in (points, [cell.translate(swap) for cell in points]):
        np.testing.assert_allclose(column(cells).values, [float(v) for v in values])


def test_numbers_that_can_be_read_in_two_ways_are_asked_about():
    cells = ["1,234", "5,678 €"]
    with pytest.raises(UserError, match=r"pass decimal='point' or decimal='comma'"):
        column(cells)
    assert column(cells, decimal="comma").values.tolist() == [1.234, 5.678]
    assert column(cells, decimal="point").values.tolist() == [1234.0, 5678.0]


@pytest.mark.parametrize(
    "cells",
    [
        ["1.2.3", "2.0.1"],
        ["99/99/2020"],
        ["a-b"],
        ["12:30"],
        ["31/31/2020"],
        ["12.31.2020"],
        ["-", "unknown"],
        ["192.168.1.1", "10.0.0.12", "172.16.254.3"],
        ["192.168.100.200", "172.168.100.201", "192.168.255.255"],
        ["555 123 4567", "555 765 4321"],
        ["612 345 678", "698 765 432"],
        ["+1 555 123 456", "+1 555 123 457"],
        ["030 123 456", "040 987 654"],
        ["12_34", "56_78", "1_000"],
        ["3)", "4)", "12)"],
    ],
)
def test_what_is_no_number_stays_text(cells):
    found = column(cells)
    assert (found.kind, found.values, found.texts()) == ("text", None, cells)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1 234 567", "12 345"], [1234567.0, 12345.0]),
        (["1.234.567", "890"], [1234567.0, 890.0]),
        (["₹12,34,567.50", "₹9"], [1234567.5, 9.0]),
        (["1'234.50", "2.25"], [1234.5, 2.25]),
        *(
            ([minus.format("1,234.50"), minus.format("0.75"), "$8.50"], [-1234.5, -0.75, 8.5])
            for minus in ("-{}", "\u2212{}", "({})", "-${}", "$-{}", "(${})", "\u2212 {} EUR", "-{}%")
        ),
    ],
)
def test_amounts_are_numbers_however_groups_and_signs_are_written(cells, values):
    np.testing.assert_allclose(column(cells).values, values)


@pytest.mark.parametrize("half", ["AM", "pm"])
def test_every_hour_of_the_clock_is_one_of_the_day(half):
    found = column([f"{day}/12/2024 {hour}:07 {half}" for day, hour in zip(range(13, 25), range(1, 13), strict=True)])
    assert found.form == "day-first"
    hours = [hour % 12 + (12 if half == "pm" else 0) for hour in range(1, 13)]
    assert moments(found) == [datetime.datetime(2024, 12, 12 + i, hour, 7) for i, hour in enumerate(hours, start=1)]


def test_a_column_knows_its_missing_cells_strays_and_marks():
    found = column(["1", "2.5", " -", "3", None, "old", "-", "na"] + ["4"] * 30)
    assert (found.kind, found.form, found.marks) == ("numbers", "number", {"-": 2, "na": 1})
    assert np.flatnonzero(found.missing).tolist() == [2, 4, 5, 6, 7]
    assert np.flatnonzero(found.strays).tolist() == [5]
    words = column(["u", "v", None, "u"])
    assert (words.missing.tolist(), words.texts(), words.cell_text(0)) == (
        [False, False, True, False],
        ["u", "v", "", "u"],
        "u",
    )


def test_the_cell_of_a_date_has_its_time():
    found = column(["2024-01-31 06:45", "2024-02-01", "2024-02-03 23:59:59"])
    assert [found.cell_text(i) for i in range(3)] == ["2024-01-31T06:45", "2024-02-01", "2024-02-04T00:00"]
    assert column(["yes", "no", "yes"]).cell_text(0) == "yes"


def test_a_pattern_names_all_columns_that_match_it(tmp_path):
    names = ["x", "label:a", "label:b", "odd*name"]
    assert find_columns(names, ["label:*"], tmp_path) == ["label:a", "label:b"]
    assert find_columns(names, ["odd*name"], tmp_path) == ["odd*name"]
    with pytest.raises(UserError, match=r"must name a column, got 'genre:\*'"):
        find_columns(names, ["genre:*"], tmp_path)


@pytest.mark.parametrize(
    ("usual", "stray"),
    [
        ("{d}-Sep-03", "2003-09-19"),
        ("{d}-Sep-03", "1/2/03"),
        ("{d}-Sep-03", "19-Abc-03"),
        ("2003-09-{d}", "01/02/03"),
        ("2003-09-{d}", "19.9.2003"),
        ("{d}.9.2003", "2003-09-19"),
        ("{d}.9.2003", "19.9.003"),
    ],
)
def test_a_date_in_another_format_than_its_column_is_missing(usual, stray):
    texts = [usual.format(d=d) for d in range(10, 31)]
    found = column(texts)
    assert {moment.year for moment in moments(found)} == {2003}
    assert moments(column([*texts, stray], found.form)) == [*moments(found), None]
