"""A small fixed draw of the benchmark `defaults`: hostile tables, every entry point with its defaults."""

import pytest

pytest.importorskip("pyarrow")

from benchmarks.defaults import CALLS, attempt


@pytest.mark.parametrize("name", CALLS)
def test_defaults_end_without_a_fault_on_hostile_tables(name):
    """Within five minutes each, which is a bound and not a timing: a call takes a second."""
    outcomes = [attempt(7, index, seconds=300.0, name=name, most_rows=200) for index in range(3)]
    assert [outcome for outcome in outcomes if outcome["fault"]] == []
