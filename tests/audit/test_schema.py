"""Schemas of audited tables for pandera."""

import numpy as np
import pytest

from rankrange.audit import audit_table
from rankrange.audit.schema import _column, _flagged


@pytest.fixture(scope="module")
def audit_of_table():
    rng = np.random.default_rng(0)
    n = 300
    x = rng.normal(size=n).round(3)
    colour = rng.choice(["red", "blue"], n)
    kind = np.where((x > 0) ^ (rng.random(n) < 0.05), "a", "b")
    age = rng.integers(18, 80, n).astype(float)
    age[7] = 1e6
    table = {"x": x.tolist(), "colour": colour.tolist(), "age": age.tolist(), "kind": kind.tolist()}
    return table, audit_table(table, "kind", models="linear")


@pytest.fixture
def audited(audit_of_table):
    """(table, its audit), without decisions of other tests."""
    audit_of_table[1].decided.clear()
    return audit_of_table


def rules(audit, name):
    """What the schema allows in a column: the range, or the levels."""
    pytest.importorskip("pandera")
    return audit.to_pandera().columns[name].checks[-1].statistics


def test_rules_are_what_all_unflagged_cells_satisfy(audited):
    table, audit = audited
    assert any(7 in problem.rows and problem.column == "age" for problem in audit.row_problems)
    assert rules(audit, "age")["max_value"] < 80
    assert rules(audit, "colour")["allowed_values"] == ["blue", "red"]
    assert rules(audit, "x") == {
        "min_value": min(table["x"]),
        "max_value": max(table["x"]),
        "include_min": True,
        "include_max": True,
    }
    assert not audit.to_pandera().columns["x"].nullable


def test_texts_that_hardly_repeat_have_no_levels():
    pyarrow, pandera = pytest.importorskip("pyarrow"), pytest.importorskip("pandera.pandas")
    for texts, rules in ((["a", "b"] * 10, 1), ([f"name {i}" for i in range(20)], 0)):
        assert len(_column(pyarrow.chunked_array([texts]), np.ones(20, dtype=bool), pandera).checks) == rules


def test_rows_that_were_dropped_do_not_widen_a_range(audited):
    table, audit = audited
    largest = int(np.argmax(table["x"]))
    audit.decide(largest, "drop")
    assert rules(audit, "x")["max_value"] == sorted(table["x"])[-2]


@pytest.mark.filterwarnings("ignore")
def test_pandera_accepts_the_fixed_table_and_rejects_what_was_wrong(audited):
    import pandas

    pandera = pytest.importorskip("pandera.pandas")
    table, audit = audited
    schema = audit.to_pandera()
    frame = pandas.DataFrame(table)
    schema.validate(frame.drop(index=7))
    for name, value in (("age", 1e6), ("colour", "green"), ("kind", "c")):
        broken = frame.drop(index=7).reset_index(drop=True)
        broken.loc[0, name] = value
        with pytest.raises(pandera.errors.SchemaError):
            schema.validate(broken)


@pytest.mark.parametrize(("choice", "flagged"), [("unsure", True), ("keep", False), ("drop", True)])
def test_an_unsure_decision_leaves_a_flag_as_it_is(audited, choice, flagged):
    audited[1].decide(7, choice)
    assert _flagged(audited[1], "age")[7] == flagged


def test_a_frame_with_an_index_of_texts_and_an_outlier_gives_a_schema(audit_of_table):
    import pandas

    pytest.importorskip("pandera")
    frame = pandas.DataFrame(audit_of_table[0])
    frame.index = [f"row {i}" for i in range(len(frame))]
    audit = audit_table(frame, "kind", models="linear")
    (outlier,) = (problem for problem in audit.row_problems if problem.kind == "outlier")
    assert outlier.rows == ("row 7",)  # as suspects are named
    assert "in row 'row 7'" in outlier.sentence
    schema = audit.to_pandera()
    schema.validate(frame.drop(index="row 7"))
    with pytest.raises(Exception, match="in_range"):
        schema.validate(frame)
