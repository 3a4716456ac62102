"""Any table in: formats good and damaged, prose, many values, dates, money, groups, time; files that others made."""

import csv
import datetime
import gzip
import io
import json
import re
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st

from rankrange import cli
from rankrange.errors import UserError

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet  # noqa: E402

for package in ("jinja2", "rich", "skops"):
    pytest.importorskip(package)

from rankrange.audit import audit_file, audit_table  # noqa: E402
from rankrange.audit.target import find_target, folds_by_group, folds_by_time  # noqa: E402
from rankrange.tables.columns import find_columns, read_columns, typed  # noqa: E402
from rankrange.tables.encode import TableEncoder  # noqa: E402
from rankrange.tables.read import open_table  # noqa: E402

ROWS = [{"a": i, "b": f"x{i % 3}", "c": i / 2, "y": ["no", "yes"][i % 2]} for i in range(40)]


# ---- formats ---------------------------------------------------------------------------------------------------------


def save_excel(path):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    book.active.append(list(ROWS[0]))
    for row in ROWS:
        book.active.append(list(row.values()))
    book.save(path)


def save_arrow_formats(path):
    import pyarrow.feather
    import pyarrow.orc

    table = pa.Table.from_pylist(ROWS)
    if path.suffix == ".orc":
        pyarrow.orc.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, path)


def save_stream(path):
    table = pa.Table.from_pylist(ROWS)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def lines():
    return "\n".join(map(json.dumps, ROWS))


SAVE = {
    "t.jsonl": lambda path: path.write_text(lines()),
    "t.ndjson.gz": lambda path: path.write_bytes(gzip.compress(lines().encode())),
    "t.json": lambda path: path.write_text(json.dumps(ROWS, indent=1)),
    "columns.json": lambda path: path.write_text(json.dumps({k: [row[k] for row in ROWS] for k in ROWS[0]})),
    "t.xlsx": save_excel,
    "t.orc": save_arrow_formats,
    "t.parquet": lambda path: pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), path),
    "t.stream": save_stream,
    "t.feather": save_arrow_formats,
}


@pytest.mark.parametrize("name", SAVE)
def test_every_format_gives_the_same_values_whatever_the_file_is_called(name, tmp_path):
    path = tmp_path / name
    SAVE[name](path)
    other = path.rename(tmp_path / "unnamed")
    source = open_table(other)
    assert source.read().to_pylist() == ROWS
    cells = [row for batch in source.batches(as_written=True) for row in batch.to_pylist()]
    assert [row["b"] for row in cells] == [row["b"] for row in ROWS]


@pytest.mark.parametrize("name", [name for name in SAVE if name != "t.jsonl"])
def test_half_of_a_file_is_an_error_with_a_remedy(name, tmp_path):
    path = tmp_path / name
    SAVE[name](path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match=r"; .*(copy|mend|check)"):
        open_table(path).read()


def test_a_format_that_is_not_read_from_gzip_says_so(tmp_path):
    path = tmp_path / "t.orc"
    save_arrow_formats(path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(UserError, match=r"only CSV and JSON are read from gzip, got orc in .*; decompress it first"):
        open_table(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "y": 2}\n{"a": 1, "y"\n', "one whole object, got a damaged line 2"),
        ('{"a": 1, "y": 2}\n[1, 2]\n', "must be an object, got line 2"),
        ("[[1, 2], [3, 4]]", "array of objects"),
        ('{"a": [1, 2], "y": [1]}', "same length"),
        ("[]", "array of objects"),
    ],
)
def test_json_that_is_no_table_is_an_error(text, message, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        open_table(path).read()


def test_json_of_several_types_and_of_objects_in_objects_becomes_columns(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1, "in": {"x": 1, "y": "u"}}\n{"a": "two", "in": {"x": 2.5, "y": null}}\n{"in": {"x": 3}}\n')
    assert open_table(path).read().to_pydict() == {
        "a": ["1", "two", None],
        "in.x": [1, 2.5, 3],
        "in.y": ["u", None, None],
    }


def test_a_workbook_of_two_sheets_is_asked_about_and_dates_are_dates(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    for sheet, value in ((book.active, datetime.date(2025, 3, 4)), (book.create_sheet("other"), 7)):
        sheet.append(["a", "y"])
        sheet.append([value, "x"])
    path = tmp_path / "t.xlsx"
    book.save(path)
    with pytest.raises(UserError, match=r"got Sheet, other .*sheet="):
        open_table(path)
    assert open_table(path, sheet="Sheet").read()["a"].to_pylist() == [datetime.datetime(2025, 3, 4)]
    assert open_table(path, sheet="other").read()["a"].to_pylist() == [7]


def test_several_files_are_one_table_and_must_have_the_same_columns(tmp_path):
    one, two, odd = (tmp_path / name for name in ("1.csv", "2.csv", "3.csv"))
    one.write_text("a,y\n1,u\n")
    two.write_text("y,a\nv,2.5\n")
    odd.write_text("a,z\n1,u\n")
    source = open_table([one, two])
    assert source.read().to_pylist() == [{"a": 1.0, "y": "u"}, {"a": 2.5, "y": "v"}]
    assert [row for batch in source.batches(as_written=True) for row in batch.to_pylist()][1] == {"a": "2.5", "y": "v"}
    with pytest.raises(UserError, match=r"same columns, got 'y' in only one"):
        open_table([one, odd])
    odd.write_text("a,y\nmany,u\n")
    with pytest.raises(UserError, match=r"same type in all files, got int64 in .*1.csv and string in .*3.csv in 'a'"):
        open_table([one, odd]).read()


def test_standard_input_is_read_once_and_kept_until_the_end(capsys):
    text = "a,y\n" + "1,u\n2,v\n" * 30
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()))):
        assert cli.main(["audit", "-", "--target", "y", "--quiet", "--json", "--models", "linear"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 60


def test_images_in_a_folder_become_pixels(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for i in range(4):
        Image.new("L", (20, 30), color=60 * i).save(tmp_path / f"{i}.png")
    table = pa.table({"file": [f"{i}.png" for i in range(4)], "y": ["u", "v"] * 2})
    from rankrange.tables.formats import with_images

    wide = with_images(table, tmp_path)
    assert wide.num_columns == 257
    assert wide["pixel 256"].to_pylist() == [0, 60, 120, 180]
    (tmp_path / "2.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"2\.png, which is not"):
        with_images(table, tmp_path)
    with pytest.raises(UserError, match="name a file"):
        with_images(pa.table({"file": ["../x.png"], "y": ["u"]}), tmp_path)


# ---- cells -----------------------------------------------------------------------------------------------------------

DAYS = st.dates(datetime.date(1970, 1, 1), datetime.date(2060, 12, 31))


@settings(max_examples=40, deadline=None)
@given(st.lists(DAYS, min_size=1, max_size=20), st.sampled_from(["%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d"]))
def test_dates_come_back_in_every_order_or_are_asked_about(days, form):
    cells = [day.strftime(form) for day in days]
    order = "day-first" if form.startswith("%d") else "month-first" if form.startswith("%m") else None
    table, _ = typed(pa.table({"when": cells}), dates=order)
    assert [moment.date() for moment in table["when"].to_pylist()] == days
    clear = form in ("%d.%m.%Y", "%Y/%m/%d") or any(day.day > 12 for day in days)
    if clear:
        assert typed(pa.table({"when": cells}))[0]["when"].equals(table["when"])
    else:
        with pytest.raises(UserError, match=r"two ways; pass dates='day-first' or dates='month-first'"):
            typed(pa.table({"when": cells}))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.decimals(-(10**7), 10**7, places=2), min_size=1, max_size=20), st.sampled_from(["$", "€", "%"]))
def test_money_and_percent_come_back_with_point_or_comma(values, unit):
    points = [f"-{unit}{-v:,.2f}" if v < 0 and unit == "$" else f"{v:,.2f} {unit}" for v in values]
    swap = str.maketrans(",.", ".,")
    for cells in (points, [cell.translate(swap) for cell in points]):
        table, _ = typed(pa.table({"price": cells}))
        np.testing.assert_allclose(table["price"].to_pylist(), [float(v) for v in values])


def test_numbers_that_can_be_read_in_two_ways_are_asked_about():
    table = pa.table({"price": ["1,234", "5,678 €"]})
    with pytest.raises(UserError, match=r"pass decimal='point' or decimal='comma'"):
        typed(table)
    assert typed(table, decimal="comma")[0]["price"].to_pylist() == [1.234, 5.678]
    assert typed(table, decimal="point")[0]["price"].to_pylist() == [1234.0, 5678.0]


@pytest.mark.parametrize(
    "cells", [["1.2.3", "2.0.1"], ["99/99/2020"], ["a-b"], ["12:30"], ["3", "4e5"], ["31/31/2020"]]
)
def test_what_is_neither_date_nor_money_stays_as_it_is(cells):
    table = pa.table({"x": cells})
    assert typed(table)[0].equals(table)


def test_a_model_reads_a_new_table_in_the_form_of_the_first():
    when = [f"{day:02d}/{1 + day % 12:02d}/2024" for day in range(1, 29)]
    encoder = TableEncoder().fit(pa.table({"when": when}))
    early, late = encoder.transform(pa.table({"when": ["01/02/2024", "01/03/2024"]}))[:, 0]
    assert late > early  # February and March, not 2 and 3 January
    assert late - early == pytest.approx(29 / encoder.columns_[0]["scale"])


# ---- prose and many values -------------------------------------------------------------------------------------------

GOOD = ["great phone works well", "really nice and good quality", "excellent product love it"]
POOR = ["terrible waste of money", "bad quality broke at once", "awful do not buy it"]


def reviews(n, rng):
    y = rng.integers(0, 2, n)
    extra = ["the", "item", "bought", "last", "week", "from", "shop", "town"]
    return y, [
        f"{(GOOD if v else POOR)[rng.integers(3)]} {' '.join(rng.choice(extra, 4))} {i}" for i, v in enumerate(y)
    ]


def test_prose_becomes_informative_features():
    from sklearn.linear_model import LogisticRegression

    y, texts = reviews(300, np.random.default_rng(0))
    encoder = TableEncoder().fit(pa.table({"review": texts[:200]}))
    X = [encoder.transform(pa.table({"review": part})) for part in (texts[:200], texts[200:])]
    assert LogisticRegression().fit(X[0], y[:200]).score(X[1], y[200:]) > 0.95
    assert np.isfinite(encoder.transform(pa.table({"review": ["", "???", None]}))).all()


def test_names_and_numbers_of_rows_are_no_prose():
    names = [f"row {i:05d}" for i in range(100)]
    keys = [f"{i * 7919 % 10007:x}-{i:x}" for i in range(100)]
    encoder = TableEncoder().fit(pa.table({"x": np.arange(100.0) ** 2, "name": names, "key": keys}))
    assert [report.used for report in encoder.report_] == [True, False, False]


def test_a_feature_does_not_depend_on_the_target():
    table = pa.table({"value": [f"v{i}" for i in np.random.default_rng(0).integers(0, 900, 4000)]})
    X = TableEncoder().fit_transform(table, np.arange(4000) % 2)
    np.testing.assert_array_equal(X, TableEncoder().fit_transform(table))


@pytest.mark.parametrize(
    "cells",
    [
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
def test_addresses_telephone_numbers_and_codes_stay_texts(cells):
    (column,) = read_columns(pa.table({"x": cells * 5}))
    assert column.kind == "text"
    assert column.texts() == cells * 5


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1 234 567", "12 345"], [1234567.0, 12345.0]),
        (["1.234.567", "890"], [1234567.0, 890.0]),
        (["₹12,34,567.50", "₹9"], [1234567.5, 9.0]),
        (["(1,234.50)", "2.25"], [-1234.5, 2.25]),
        (["1'234.50", "2.25"], [1234.5, 2.25]),
    ],
)
def test_groups_of_thousands_are_numbers(cells, values):
    (column,) = read_columns(pa.table({"x": cells}))
    np.testing.assert_allclose(column.values, values)


# ---- groups, time, columns -------------------------------------------------------------------------------------------


def a_target(n=60):
    return find_target(pa.table({"y": ["u", "v"] * (n // 2)}), ["y"])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=60, max_size=60))
def test_a_group_is_never_in_two_parts(groups):
    target = find_target(pa.table({"y": np.arange(60.0)}), ["y"])
    column = pa.chunked_array([[f"g{g}" for g in groups]])
    if len(set(groups)) < 5:
        with pytest.raises(UserError, match="needs at least 5 groups"):
            folds_by_group(column, "g", target, 5, np.random.default_rng(0))
        return
    parts = folds_by_group(column, "g", target, 5, np.random.default_rng(0))
    assert all(len(set(parts[np.array(groups) == g])) == 1 for g in set(groups))
    assert set(parts) == set(range(5))


def test_folds_along_time_are_in_order_and_the_past_predicts_the_future():
    from rankrange.crossfit.folds import Folds

    rng = np.random.default_rng(0)
    when = rng.permutation(60)
    parts = folds_by_time(pa.chunked_array([when]), "when", a_target(), 5)
    assert all(when[parts == f].max() < when[parts == f + 1].min() for f in range(4))
    folds = Folds.forward(parts)
    for f in range(1, 5):
        assert when[folds.train[f]].max() < when[folds.test[f]].min()
    assert not (folds.train & folds.test).any()


def test_a_pattern_names_all_columns_that_match_it(tmp_path):
    names = ["x", "label:a", "label:b", "odd*name"]
    assert find_columns(names, ["label:*"], tmp_path) == ["label:a", "label:b"]
    assert find_columns(names, ["odd*name"], tmp_path) == ["odd*name"]
    with pytest.raises(UserError, match=r"must match some column, got 'genre:\*'"):
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
    table, forms = typed(pa.table({"d": texts}))
    assert {value.year for value in table["d"].to_pylist()} == {2003}
    new, _ = typed(pa.table({"d": [*texts, stray]}), forms)
    assert new["d"].to_pylist() == [*table["d"].to_pylist(), None]


@pytest.mark.parametrize("option", ["group", "time"])
def test_group_and_time_may_be_patterns_of_one_column(tmp_path, capsys, option):
    rng = np.random.default_rng(0)
    table = {
        "x": rng.normal(size=60),
        "part a": np.arange(60) % 10,
        "part b": np.arange(60) // 6,
        "kind": ["a", "b"] * 30,
    }
    named = audit_table(table, "kind", models="linear", **{option: "part b"})
    matched = audit_table(table, "kind", models="linear", **{option: "*b"})
    np.testing.assert_array_equal(matched.result.wrong, named.result.wrong)
    assert matched.feature_columns == named.feature_columns
    with pytest.raises(
        UserError, match=rf"{option} must be one column, got 'part\*', which matches 'part a', 'part b'"
    ):
        audit_table(table, "kind", **{option: "part*"})
    assert audited(tmp_path, table, f"--{option}", "*b") == audited(tmp_path, table, f"--{option}", "part b")
    capsys.readouterr()
    assert cli.main(["audit", str(tmp_path / "table.csv"), "--target", "kind", f"--{option}", "part*"]) == 2
    assert f"--{option} must be one column" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pred_probs": np.full((39, 2), 0.5)}, "with the 40 rows of the table"),
        ({"pred_probs": np.full((40, 3), 0.5)}, "a column per class"),
        ({"pred_probs": np.full((40, 2), 0.5), "estimator": "GaussianNB"}, "by estimator or by pred_probs, got both"),
        ({"embeddings": np.full((40, 2), np.nan)}, "must be finite"),
        ({"group": "a", "time": "c"}, "by group or by time, got both"),
        ({"time": "b"}, "time needs a date or a number in each row, got texts"),
        ({"models": "forest"}, "models is one of all, linear, trees"),
        ({"estimator": "os.system"}, "names a classifier of scikit-learn"),
        ({"estimator": "RandomForest"}, "did you mean RandomForestClassifier"),
        ({"estimator": "LinearRegression"}, "names a classifier of scikit-learn"),
        ({"estimator": "VotingClassifier"}, "must work with its default settings"),
        ({"dates": "american"}, "dates must be one of day-first, month-first"),
    ],
)
def test_options_that_cannot_be_used_are_errors_before_anything_is_fitted(options, message):
    stages = []
    with pytest.raises(UserError, match=message):
        audit_table(pa.Table.from_pylist(ROWS), "y", progress=stages.append, **options)
    assert not [stage for stage in stages if stage.startswith(("choosing", "fitting"))]


def test_a_classifier_can_be_named(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3))
    kinds = np.where(rows[:, 0] * rows[:, 1] > 0, "same", "other")
    kinds[:15] = np.where(kinds[:15] == "same", "other", "same")
    table = tmp_path / "table.csv"
    lines = [",".join([*(f"{value:.4f}" for value in row), kind]) for row, kind in zip(rows, kinds, strict=True)]
    table.write_text("\n".join(["a,b,c,kind", *lines]))
    arguments = ["audit", str(table), "--target", "kind", "--estimator", "ExtraTreesClassifier", "--json", "--quiet"]
    arguments += ["--models", "linear"]  # no trees beside the named classifier
    assert cli.main(arguments) == 0
    wrong = [suspect["row"] for suspect in json.loads(capsys.readouterr().out)["suspects"][:10]]
    assert sum(row <= 15 for row in wrong) >= 8


# ---- whole audits ----------------------------------------------------------------------------------------------------


def test_a_table_with_everything_is_audited_with_no_preparation(tmp_path):
    rng = np.random.default_rng(1)
    n = 150
    y, texts = reviews(n, rng)
    rows = ["review;city;price;discount;when;patient;verdict"]
    for i in range(n):
        day = f"{rng.integers(1, 29):02d}.{rng.integers(1, 13):02d}.2025"
        price = f"{rng.integers(1, 9)}.{rng.integers(100, 999)},{rng.integers(10, 99)} €"
        rows.append(
            f"{texts[i]};city{rng.integers(60)};{price};{rng.integers(60)}%;{day};p{i // 3};{['poor', 'good'][y[i]]}"
        )
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    audit = audit_file(path, "verdict", delimiter=";", group="patient", models="linear")
    assert [(c.name, c.kind, c.used) for c in audit.columns] == [
        ("review", "text", True),
        ("city", "text", True),
        ("price", "numbers", True),
        ("discount", "numbers", True),
        ("when", "dates", True),
    ]
    assert audit.result.measures[0].robust.value > 0.95
    assert audit.report().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e9])
def test_a_new_cell_outside_of_the_fitted_values_is_encoded_as_the_nearest_of_them(scale):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    encoder = TableEncoder().fit({"x": x.tolist(), "z": rng.normal(size=200).tolist()})
    for new, nearest in ((x.max() + scale, x.max()), (x.min() - scale, x.min())):
        found, expected = (encoder.transform({"x": [cell], "z": [0.0]}) for cell in (new, nearest))
        np.testing.assert_array_equal(found, expected)


SHIPPED = Path(sklearn.__file__).parent / "datasets" / "data"


def test_tables_that_scikit_learn_ships_are_read_or_refused_with_the_reason():
    """The first line of some holds counts and names of classes, fewer than there are columns."""
    import sklearn.datasets

    table = open_table(SHIPPED / "iris.csv").read()
    assert TableEncoder().fit_transform(table).shape[0] == 150
    frame = sklearn.datasets.load_diabetes(as_frame=True, scaled=False).frame
    assert TableEncoder().fit_transform(frame).shape == frame.shape
    for name, width in (("wine_data.csv", 14), ("breast_cancer.csv", 31)):
        with pytest.raises(UserError, match=rf"got {width} in line 2 of .*{name}; correct that line"):
            open_table(SHIPPED / name).read()


def test_a_table_that_matplotlib_ships_has_dates_with_names_of_months():
    matplotlib = pytest.importorskip("matplotlib")
    path = Path(matplotlib.get_data_path()) / "sample_data" / "msft.csv"
    if not path.exists():
        pytest.skip("this matplotlib ships no tables")
    table = open_table(path).read()
    read, forms = typed(table)
    assert forms == {"Date": "month-named"}
    days = read["Date"].to_pylist()
    assert days[0] == datetime.datetime(2003, 9, 19)
    assert table["Date"].to_pylist()[0] == "19-Sep-03"
    assert None not in days


@pytest.fixture(scope="module")
def tickets():
    """Texts of two queues, with an amount that is money, and every thirteenth label wrong."""
    rng = np.random.default_rng(0)
    queue = np.where(np.arange(260) % 2, "refund", "tech")
    said = {
        "refund": ["charged twice", "money back", "invoice wrong"],
        "tech": ["black screen", "app crashes", "no login"],
    }
    fill = ["the", "a", "my", "your", "on", "in", "today", "yesterday", "really", "since", "order", "phone"]
    texts = [" ".join([*rng.choice(said[q], 2), *rng.choice(fill, 7)]) for q in queue]
    amount = 1500 + 1000 * (queue == "refund") + rng.normal(0, 50, 260)
    given = queue.copy()
    given[::13] = np.where(queue[::13] == "tech", "refund", "tech")
    return pa.table({"text": texts, "amount": [f"${value:,.2f}" for value in amount], "queue": given})


def test_the_reason_of_a_text_is_a_word_that_its_label_hardly_has(tickets):
    audit = audit_table(tickets.drop(["amount"]), "queue", models="linear")
    texts, queue = (np.array(tickets.column(name).to_pylist()) for name in ("text", "queue"))
    suspects = audit.suspects()
    assert len(suspects) > 10
    for place, suspect in enumerate(suspects):
        word = re.search(r"the word '(\w+)' is in", audit.evidence.reasons[place]).group(1)
        has = np.array([word in text.split() for text in texts])
        assert has[suspect.row]
        assert has[queue == suspect.given].mean() < has[queue == suspect.suggested].mean()


@pytest.mark.parametrize("task", ["auto", "numbers"])
def test_money_is_a_target_of_numbers(tickets, task):
    target = find_target(tickets, ["amount"], task)
    plain = [float(cell.replace("$", "").replace(",", "")) for cell in tickets.column("amount").to_pylist()]
    assert target.task == "numbers"
    np.testing.assert_allclose(target.y, plain)


def test_rows_along_time_are_predicted_by_the_default_model_only(tickets):
    table = tickets.drop(["amount"]).append_column("when", pa.array(np.arange(260)))
    audit = audit_table(table, "queue", time="when", models="linear")
    assert any("predicted by the linear model alone" in note for note in audit.notes)
    assert not any("given model" in note for note in audit.notes)


# ---- whole audits of what an option brings ---------------------------------------------------------------------------


def with_errors(truth, rng):
    """Labels of which 6% are wrong, and the numbers of these rows as an audit of a file counts them."""
    wrong = rng.random(len(truth)) < 0.06
    return np.where(truth ^ wrong, "yes", "no"), set((np.flatnonzero(wrong) + 1).tolist())


def audited(folder, columns, *options, target="kind"):
    """What the command says of a table: rows that are likely wrong, and the problems besides."""
    table, out, problems = (folder / name for name in ("table.csv", "suspects.csv", "problems.csv"))
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    order = ["audit", table, "--target", target, "--out", out, "--problems", problems, "--models", "linear", "--quiet"]
    assert cli.main([str(word) for word in [*order, *options]]) == 0
    with out.open(encoding="utf-8", newline="") as file:
        likely = {int(row["row"]) for row in csv.DictReader(file) if float(row["p_wrong"]) >= 0.5}
    return likely, problems.read_text(encoding="utf-8")


def overlap(found, wanted):
    """(the share of the wanted that was found, the share of what was found that is wanted)."""
    return len(found & wanted) / len(wanted), len(found & wanted) / max(len(found), 1)


def test_given_probabilities_find_errors_that_the_columns_do_not_predict(tmp_path, capsys):
    rng = np.random.default_rng(0)
    truth = rng.random(400) < 0.5
    given, wrong = with_errors(truth, rng)
    sure = np.clip(np.where(truth, 0.95, 0.05) + 0.03 * rng.normal(size=400), 0.01, 0.99)
    np.save(tmp_path / "p.npy", np.column_stack([1 - sure, sure]))  # columns in the order no, yes
    columns = {"noise": rng.normal(size=400), "kind": given}
    columns["kind"][[50, 51]] = ""  # rows without a label are not judged, and the others keep their probabilities
    likely, _ = audited(tmp_path, columns, "--pred-probs", tmp_path / "p.npy")
    assert overlap(likely, wrong - {51, 52}) == (1.0, 1.0)
    assert audited(tmp_path, columns, "--models", "linear")[0] == set()


def test_embeddings_are_used_like_other_columns(tmp_path, capsys):
    rng = np.random.default_rng(1)
    E = rng.normal(size=(400, 3))
    given, wrong = with_errors(E @ [3.0, -3.0, 2.0] > 0, rng)
    np.save(tmp_path / "e.npy", E.astype(np.float32))
    columns = {"noise": rng.normal(size=400), "kind": given}
    found, right = overlap(audited(tmp_path, columns, "--embeddings", tmp_path / "e.npy")[0], wrong)
    assert found > 0.6
    assert right > 0.8


def test_along_time_the_past_predicts_the_future_and_drift_is_reported(tmp_path, capsys):
    n, shares = 400, []
    for seed in (2, 3, 4):
        rng = np.random.default_rng(seed)
        x, when = rng.normal(size=n), rng.permutation(n)
        given, wrong = with_errors(x > 0, rng)
        sensor = 0.1 * rng.normal(size=n) + 5.0 * (when > 0.7 * n)
        columns = {"x": x, "sensor": sensor, "when": when, "kind": given}
        likely, problems = audited(tmp_path, columns, "--time", "when")
        shares.append(overlap(likely, wrong))
        assert re.search(r"(?m)^drift,.*sensor", problems)
    found, right = np.mean(shares, axis=0)
    assert found > 0.75
    assert right > 0.85


def test_trees_predict_labels_that_no_linear_model_predicts():
    """Two columns whose signs say it together: linear models are at chance, and yet the labels are not blind."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(500, 2))
    given, wrong = with_errors(X[:, 0] * X[:, 1] > 0, rng)
    audit = audit_table({"a": X[:, 0], "b": X[:, 1], "kind": given}, "kind", models="trees")
    likely = {suspect.row + 1 for suspect in audit.suspects() if suspect.p_wrong >= 0.5}
    found, right = overlap(likely, wrong)
    assert found > 0.6
    assert right > 0.7


def test_a_new_format_is_one_entry_in_a_table(tmp_path, monkeypatch):
    """Files are recognised by their first bytes, and an error of the library that reads them becomes a message."""
    import sqlite3
    from contextlib import closing

    from rankrange.tables.formats import FORMATS, Format

    def load(path):
        with closing(sqlite3.connect(path)) as base:
            rows = base.execute("SELECT x, y FROM t").fetchall()
        return pa.table({"x": [x for x, _ in rows], "y": [y for _, y in rows]})

    monkeypatch.setitem(FORMATS, "sqlite", Format(b"SQLite format 3", load))
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE t (x REAL, y TEXT)")
        base.executemany("INSERT INTO t VALUES (?, ?)", [(1.5, "a"), (2.5, "b")])
        base.commit()
    assert open_table(path).read().to_pydict() == {"x": [1.5, 2.5], "y": ["a", "b"]}
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(UserError, match="starts like Sqlite but cannot be read"):
        open_table(path).read()
    (tmp_path / "t.pdf").write_bytes(b"%PDF-1.7")
    (tmp_path / "t.bin").write_bytes(bytes(100))
    for name, what in {"t.pdf": "a PDF file", "t.bin": "a binary file"}.items():
        with pytest.raises(UserError, match=f"a table is CSV, .* or SQLITE, got {what}"):
            open_table(tmp_path / name)


def test_a_new_format_of_texts_may_begin_with_a_byte_order_mark(tmp_path, monkeypatch):
    from rankrange.tables.formats import FORMATS, Format

    monkeypatch.setitem(FORMATS, "xml", Format(b"<?xml", lambda path: pa.table({"x": [1], "y": ["a"]}), text=True))
    (tmp_path / "t.xml").write_text("<?xml version='1.0'?>", encoding="utf-8-sig")
    assert open_table(tmp_path / "t.xml").kind == "xml"
