"""Every format gives the same table, whatever the file is called; damaged ones are errors with a remedy."""

import datetime
import gzip
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from rankrange.errors import UserError
from rankrange.tables.read import open_table

ROWS = [{"a": i, "b": f"x{i % 3}", "c": i / 2, "y": ["no", "yes"][i % 2]} for i in range(40)]


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
    with pytest.raises(UserError, match=r"only CSV and JSON are read from gzip, got ORC in .*; decompress it first"):
        open_table(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "y": 2}\n{"a": 1, "y"\n', "one whole object, got another line 2"),
        ('{"a": 1, "y": 2}\n[1, 2]\n', "one whole object, got another line 2 .*no names; add them"),
        ("[[1, 2], [3, 4]]", "array of objects"),
        ('{"a": [1, 2], "y": [1]}', "same length"),
        ("[]", "array of objects"),
        ("[" * 100_000, "JSON must be complete, got .*; correct it, or copy it again"),
        ('{"a": [1], "y": [', "JSON must be complete"),
        ('[{"a": 1, "y": 1}, 2]', "array of objects"),
    ],
)
def test_json_that_is_no_table_is_an_error(text, message, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        open_table(path).read()


def test_json_of_several_types_and_of_objects_in_objects_becomes_columns(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"a": 1, "code": "007", "in": {"x": 1, "y": "u"}}\n'
        '{"a": "two", "n": 9007199254740993, "in": {"x": 2.5, "y": null}}\n{"n": 1' + 400 * "0" + ', "in": {"x": 3}}\n'
    )
    assert open_table(path).read().to_pydict() == {
        "a": ["1", "two", None],
        "code": ["007", None, None],
        "in.x": [1, 2.5, 3],
        "in.y": ["u", None, None],
        "n": [None, str(2**53 + 1), "1" + 400 * "0"],
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
    with pytest.raises(UserError, match=r"got 'Sheet', 'other' in .*; name one with sheet="):
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
    with pytest.raises(UserError, match=r"same type in all files, got .* a .*int64 vs string; convert one"):
        open_table([one, odd]).read()


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


def test_a_new_format_is_one_entry_in_a_table(tmp_path, monkeypatch):
    """Files are recognised by their first bytes, and an error of the library that reads them becomes a message."""
    import sqlite3
    from contextlib import closing

    from rankrange.tables.formats import FORMATS, Format

    def load(path):
        with closing(sqlite3.connect(path)) as base:
            rows = base.execute("SELECT x, y FROM t").fetchall()
        return pa.table({"x": [x for x, _ in rows], "y": [y for _, y in rows]})

    monkeypatch.setitem(FORMATS, "SQLite", Format(b"SQLite format 3", load))
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE t (x REAL, y TEXT)")
        base.executemany("INSERT INTO t VALUES (?, ?)", [(1.5, "a"), (2.5, "b")])
        base.commit()
    assert open_table(path).read().to_pydict() == {"x": [1.5, 2.5], "y": ["a", "b"]}
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(UserError, match="starts like SQLite but cannot be read"):
        open_table(path).read()
    (tmp_path / "t.bin").write_bytes(b"\x89PNG" + bytes(100))
    with pytest.raises(UserError, match=r"a table is CSV, .* or SQLite, got a binary file in .*t\.bin; export it"):
        open_table(tmp_path / "t.bin")


@pytest.mark.parametrize(("name", "encoding"), [("t.csv.gz", "utf-8"), ("t.tsv", "utf-8"), ("t.csv", "latin-1")])
def test_csv_compressed_with_tabs_or_in_another_encoding_is_the_same_table(name, encoding, tmp_path):
    mark = "\t" if name == "t.tsv" else ","
    lines = [mark.join(["a", "é", "y"]), *(mark.join([str(row["a"]), f"é{row['b']}", row["y"]]) for row in ROWS)]
    data = "\r\n".join([*lines, ""]).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    found = open_table(tmp_path / name, encoding=encoding).read().to_pylist()
    assert found == [{"a": row["a"], "é": f"é{row['b']}", "y": row["y"]} for row in ROWS]


def test_blank_lines_are_no_header_and_no_rows(tmp_path):
    (tmp_path / "t.csv").write_text("\n\na,y\n1,u\n\n2,v\n")
    assert open_table(tmp_path / "t.csv").read().to_pydict() == {"a": [1, 2], "y": ["u", "v"]}
