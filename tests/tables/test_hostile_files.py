"""Files that mean harm or look like another format: a clear error, and never more memory than the limit."""

import gzip
import io
import struct
import zipfile
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from rankrange.errors import UserError
from rankrange.tables import formats, read
from rankrange.tables.read import open_table, rows_as_text


def workbook(path, sheets):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("python_calamine")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_json_in_gzip_is_decompressed_up_to_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MAX_UNPACKED", 100_000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'[{"a": 1, "y": "' + b"x" * 5_000_000 + b'"}]'))
    assert path.stat().st_size < 10_000
    with pytest.raises(UserError, match=r"at most 100,000 bytes after decompression, got more in .*; save it as"):
        open_table(path)


def test_a_workbook_is_decompressed_up_to_the_limit(tmp_path, monkeypatch):
    path = workbook(tmp_path / "t.xlsx", {"one": [["a", "y"], *([i, "x"] for i in range(5000))]})
    assert open_table(path).read().num_rows == 5000
    monkeypatch.setattr(formats, "MAX_UNPACKED", 50_000)
    with pytest.raises(UserError, match="at most 50,000 bytes after decompression"):
        open_table(path)


def test_a_workbook_that_states_false_sizes_is_damaged(tmp_path):
    path = workbook(tmp_path / "t.xlsx", {"one": [["a", "y"], *([i, "x"] for i in range(500))]})
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        size = packed.getinfo("xl/worksheets/sheet1.xml").file_size
    start = data.rindex(b"PK\x01\x02", 0, data.rindex(b"xl/worksheets/sheet1.xml"))
    assert struct.unpack_from("<I", data, start + 24)[0] == size
    struct.pack_into("<I", data, start + 24, 100)
    path.write_bytes(data)
    with pytest.raises(UserError, match="starts like Excel but cannot be read"):
        open_table(path)


class OpenedBook:
    """A workbook that records which of its sheets are read."""

    def __init__(self, book):
        self.book, self.sheet_names, self.read = book, book.sheet_names, []

    def get_sheet_by_name(self, name):
        self.read.append(name)
        return self.book.get_sheet_by_name(name)


def test_of_a_workbook_with_many_sheets_only_what_is_needed_is_read(tmp_path, monkeypatch):
    python_calamine = pytest.importorskip("python_calamine")
    sheets = {f"sheet {i}": [["a", "y"], [i, "x"]] for i in range(200)}
    path = workbook(tmp_path / "t.xlsx", {"empty": [], **sheets})
    book = OpenedBook(python_calamine.CalamineWorkbook.from_path(str(path)))
    monkeypatch.setattr(python_calamine, "CalamineWorkbook", SimpleNamespace(from_path=lambda path: book))
    assert open_table(path, sheet="sheet 7").read().to_pylist() == [{"a": 7, "y": "x"}]
    assert book.read == ["sheet 7"]
    with pytest.raises(UserError, match=r"several sheets needs a choice, got 'empty', .* \.\.\. in .*; name") as raised:
        open_table(path)
    assert book.read[1:] == ["empty", "sheet 0", "sheet 1"]
    assert len(str(raised.value)) < 300 + len(str(path))


def _tenfold(i):
    return 10 * f"&l{i};"


def test_entities_of_a_workbook_are_not_expanded(tmp_path):
    path = workbook(tmp_path / "t.xlsx", {"one": [["a", "y"], ["first", "second"]]})
    with zipfile.ZipFile(path) as packed:
        parts = {name: packed.read(name) for name in packed.namelist()}
    laughs = "".join(f'<!ENTITY l{i} "{_tenfold(i - 1)}">' for i in range(1, 9))
    part = next(name for name in parts if b"first" in parts[name])
    body = parts[part].decode().replace("first", "&l8;", 1).removeprefix('<?xml version="1.0"?>')
    root = body.lstrip("<").split()[0].split(">")[0]
    parts[part] = (f'<!DOCTYPE {root} [<!ENTITY l0 "lol">{laughs}]>' + body).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    try:
        found = open_table(path).read().to_pylist()
    except UserError:
        return
    assert len(str(found)) < 1000


@pytest.mark.parametrize("rows", [1, 4_000_000], ids=["short", "longer than its head"])
def test_the_size_that_a_gzip_file_states_is_not_believed(rows, tmp_path):
    path = tmp_path / "t.csv.gz"
    data = gzip.compress(b"a,y\n" + b"1,u\n" * rows, 1)
    path.write_bytes(data[:-4] + struct.pack("<I", 7))  # the last four bytes are the size modulo 2^32
    with pytest.raises(UserError, match="gzip file must be complete"):
        open_table(path)
    path.write_bytes(data)
    assert open_table(path).n_bytes == 4 + 4 * rows


def test_csv_in_gzip_is_as_large_as_it_is_however_its_head_is_compressed(tmp_path, monkeypatch):
    """Its head says that it is small: above the limit it is read in batches, never as a whole."""
    head = "a,y\n" + "".join(f"{v:064x},u\n" for v in np.random.default_rng(0).integers(2**62, size=10_000))
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(head.encode() + b"1,u\n" * 5_000_000, 1))
    assert path.stat().st_size < len(head)
    monkeypatch.setattr(formats, "MAX_UNPACKED", 10_000_000)
    source = open_table(path)
    assert source.n_bytes > 10_000_000
    with pytest.raises(UserError, match=r"gzip files .* at most 10,000,000 bytes after decompression, got more in"):
        source.read()
    assert sum(batch.num_rows for batch in source.batches()) == 5_010_000


@pytest.mark.parametrize("end", ["\n", "\r"])
@pytest.mark.parametrize("start", ["ORC", "ORCID", "PAR1", "PAR1s", "ARROW1", "BZh", "%PDF", "SQLite format"])
def test_a_csv_file_whose_header_begins_like_a_binary_format_is_csv(start, end, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(f"{start},y{end}1,u{end}2,v{end}", newline="")
    assert open_table(path).read().to_pydict() == {start: [1, 2], "y": ["u", "v"]}


def test_a_cell_of_three_megabytes_is_read_and_an_endless_one_is_an_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,y\n1,"' + "x" * 40_000_000)
    with pytest.raises(UserError, match=r"row of CSV must have at most 16,777,216 bytes, .*; check that every"):
        open_table(path).read()
    long = "x" * 3_000_000
    path.write_text("a,y\n" + "1,u\n" * 50 + f'"{long}",v\n' + "2,w\n" * 50)
    source = open_table(path)
    assert source.read().num_rows == 101
    assert rows_as_text(source, [0, 50, 100]) == [["1", "u"], [long, "v"], ["2", "w"]]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("there is no file data/time=2024/x.csv; check", "there is no file data/time=2024/x.csv; check"),
        ("no file time=2024; name it with delimiter=", "no file time=2024; name it with --delimiter"),
        ("pass encoding='latin-1', or ignore=", "pass --encoding latin-1, or --ignore"),
        ("got C:\\group='a'\\t.csv", "got C:\\group='a'\\t.csv"),
    ],
)
def test_paths_in_messages_are_not_rewritten(message, shown):
    assert UserError(message).for_command_line() == shown


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_a_batch_has_few_rows_however_short_they_are(name, tmp_path):
    """Each row may become hundreds of features."""
    whole = pa.table({"a": ["u", "v"] * 200_000, "y": ["0", "1"] * 200_000})
    if name == "t.csv":
        arrow_csv.write_csv(whole, tmp_path / name)
    else:
        pq.write_table(whole, tmp_path / name)
    sizes = [batch.num_rows for batch in open_table(tmp_path / name).batches()]
    assert sum(sizes) == 400_000
    assert max(sizes) <= 1 << 15


def test_only_the_rows_that_are_asked_for_become_texts(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i % 3}\n" for i in range(100_000)))
    converted = []
    monkeypatch.setattr(read, "texts_of", lambda batch, of=read.texts_of: converted.append(batch.num_rows) or of(batch))
    assert rows_as_text(open_table(path), [70_001, 5, 99_999]) == [["70001", "2"], ["5", "2"], ["99999", "0"]]
    assert sum(converted) == 3
