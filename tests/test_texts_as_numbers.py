"""Texts of tables that are amounts and moments: every way of writing a minus, and every hour of the clock."""

import datetime

import pytest

pa = pytest.importorskip("pyarrow")

from rankrange.tables.columns import typed  # noqa: E402


@pytest.mark.parametrize("form", ["-{}", "\u2212{}", "({})", "-${}", "$-{}", "(${})", "\u2212 {} EUR", "-{}%"])
def test_an_amount_is_negative_however_its_minus_is_written(form):
    amounts = ["1,234.50", "3.25", "0.75", "12.00"]
    read, forms = typed(pa.table({"x": [form.format(amount) for amount in amounts] + ["$8.50"]}))
    assert forms == {"x": "point"}
    assert read["x"].to_pylist() == [-1234.5, -3.25, -0.75, -12.0, 8.5]


@pytest.mark.parametrize("half", ["AM", "pm"])
def test_every_hour_of_the_clock_is_one_of_the_day(half):
    texts = [f"{day}/12/2024 {hour}:07 {half}" for day, hour in zip(range(13, 25), range(1, 13), strict=True)]
    read, forms = typed(pa.table({"when": texts}))
    assert forms == {"when": "day-first"}
    hours = [hour % 12 + (12 if half == "pm" else 0) for hour in range(1, 13)]
    expected = [datetime.datetime(2024, 12, 12 + i, hour, 7) for i, hour in enumerate(hours, start=1)]
    assert read["when"].to_pylist() == expected
