"""File formats: detection, and readers of all formats but CSV; also folders of images.

`FORMATS` lists the binary formats by their first bytes. JSON and Excel are decompressed up to a limit, so a small file
cannot fill the memory. Excel is read by python-calamine, which neither expands XML entities nor runs macros.
"""

from __future__ import annotations

import atexit
import gzip
import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UserError, missing_package
from ..pages.text import visible
from .dataset_folder import read_stream

# Images are reduced to this many pixels on each side.
_SIDE = 16
# The largest number of bytes, after decompression, of a file that is read into memory at once.
MAX_UNPACKED = 2_000_000_000
_OTHER_KINDS = {
    b"PK\x03\x04": "a zip file",
    b"%PDF": "a PDF file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"SQLite format": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a NumPy file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
}


class Format(NamedTuple):
    """A format: the first bytes of its files, and a reader into a pyarrow Table or Dataset."""

    start: bytes
    load: Callable[[Path], Any]


def _dataset(format: str) -> Callable[[Path], Any]:
    def load(path: Path) -> Any:
        import pyarrow.dataset

        return pyarrow.dataset.dataset(str(path), format=format)

    return load


# To add a format, write a function and add an entry here.
FORMATS: dict[str, Format] = {
    "Parquet": Format(b"PAR1", _dataset("parquet")),
    "Arrow": Format(b"ARROW1", _dataset("ipc")),
    "Arrow stream": Format(b"\xff\xff\xff\xff", read_stream),
    "ORC": Format(b"ORC", _dataset("orc")),
}


def not_a_table(path: Path, what: str) -> UserError:
    """The error for a file of a format that is not read."""
    names = ["CSV", "JSON", "Excel", *FORMATS]
    return UserError(
        f"a table is {', '.join(names[:-1])} or {names[-1]}, got {what} in {path}; export it as CSV or Parquet"
    )


def saved_input() -> Path:
    """Save standard input to a temporary file, which is deleted at the end of the program; a terminal is an error."""
    folder = Path(tempfile.mkdtemp(prefix="rankrange-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "standard input"
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("'-' reads the table from standard input, got a terminal; try: cat t.csv | rankrange audit -")
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def kind_of(path: Path, head: bytes) -> str:
    """The format of a file, by its first bytes `head`. An error for other known formats, such as PDF.

    It is a name in `FORMATS`, "Excel", "JSON" (also one object per line), otherwise "CSV". A text that begins like a
    binary format, such as a CSV file with the column ORCID, is a text.
    """
    if b"\n" not in head or re.search(rb"[\x00-\x08\x0e-\x1f]", head):
        for name, form in FORMATS.items():
            if head.startswith(form.start):
                return name
        if (head[:4] == b"PK\x03\x04" and _is_workbook(path)) or head[:4] == b"\xd0\xcf\x11\xe0":
            return "Excel"
        for start, what in _OTHER_KINDS.items():
            if head.startswith(start):
                raise not_a_table(path, what)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    following = start[1:].lstrip()[:1]
    is_json = following in {b"[": (b"{", b"]", b"["), b"{": (b'"', b"}")}.get(start[:1], ())
    return "JSON" if is_json else "CSV"


def load(path: Path, kind: str, zipped: bool, sheet: str | None = None) -> Any:
    """Read a file of the kind "JSON", "Excel" or a name in `FORMATS` as a pyarrow Table or Dataset.

    Nested JSON objects become columns such as "a.b", up to five levels deep. `sheet` is required if several sheets of a
    workbook have rows below a header. At most 2 GB after decompression are read.
    """
    try:
        if kind in FORMATS:
            return FORMATS[kind].load(path)
        if kind == "Excel":
            return _load_excel(path, sheet)
        text = _unpacked(path, zipped).decode("utf-8-sig")
    except (UserError, ImportError):
        raise
    except Exception as error:  # each library has its own errors for a damaged file
        raise UserError(
            f"{path} starts like {kind} but cannot be read ({visible(str(error), 100)}); copy it again"
        ) from error
    return _flat(_of_columns(path, _json_columns(path, text)))


def _too_large(path: Path) -> UserError:
    return UserError(
        f"JSON and Excel files must have at most {MAX_UNPACKED:,} bytes after decompression, got more in {path}; save "
        "it as Parquet or CSV"
    )


def _unpacked(path: Path, zipped: bool) -> bytes:
    """The contents of a file; an error if it is too large, before more than the limit is decompressed."""
    opener: Any = gzip.open if zipped else open
    with opener(path, "rb") as file:
        data = file.read(MAX_UNPACKED + 1)
    if len(data) > MAX_UNPACKED:
        raise _too_large(path)
    return bytes(data)


def _of_columns(path: Path, columns: dict[str, list[Any]]) -> Any:
    """A pyarrow Table from columns of Python values; mixed types become floats if all are numbers, otherwise texts."""
    import pyarrow as pa

    if not columns:
        raise UserError(f"a table needs rows, got none in {path}; check the export")
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            arrays[name] = pa.array([None if v is None else _as_text(v) for v in values])
    return pa.table(arrays)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _json_columns(path: Path, text: str) -> dict[str, list[Any]]:
    """The columns of an array of objects, of an object per line, or of an object of lists, one per column."""
    first, _, more = text.strip().partition("\n")
    if more and first.startswith("{") and first.rstrip().endswith("}"):
        rule = "each line of JSON lines must be one whole object, got another line"
        rows = [_parsed(line, f"{rule} {n} in {path}") for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    else:
        rows = _parsed(text, f"JSON must be complete, got {path}, which is damaged", object)
    if isinstance(rows, dict) and rows and all(isinstance(column, list) for column in rows.values()):
        if len({len(column) for column in rows.values()}) > 1:
            raise UserError(f"columns of JSON must have the same length, got different ones in {path}; export it again")
        return rows
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"JSON must be an array of objects, one per row, got something else in {path}; export it again")
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def _parsed(text: str, problem: str, kind: type = dict) -> Any:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{problem} ({visible(str(error), 80)}); correct it, or copy it again") from error
    if not isinstance(found, kind):
        raise UserError(f"{problem}, which has no names; add them")
    return found


def _flat(table: Any) -> Any:
    import pyarrow as pa

    for _ in range(5):
        if any(pa.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
    return table


# ---- Excel -----------------------------------------------------------------------------------------------------------


def _is_workbook(path: Path) -> bool:
    """Whether a zip file is a workbook of Excel or of another program; a damaged file is judged by its suffix."""
    try:
        with zipfile.ZipFile(path) as packed:
            names = set(packed.namelist())
    except (zipfile.BadZipFile, OSError):
        return path.suffix.lower() in (".xlsx", ".xlsm", ".xlsb", ".ods")
    return bool(names & {"xl/workbook.xml", "xl/workbook.bin", "content.xml"})


def _load_excel(path: Path, sheet: str | None) -> Any:
    """Read the named sheet, or the only one with rows below a header."""
    try:
        import python_calamine
    except ImportError as error:
        raise missing_package("python-calamine", "Excel", extra="excel") from error
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            if sum(part.file_size for part in packed.infolist()) > MAX_UNPACKED:
                raise _too_large(path)
            if packed.testzip() is not None:  # the sizes in the directory of a zip file may be false
                raise zipfile.BadZipFile("its parts do not have the sizes or checksums that it states")
    book = python_calamine.CalamineWorkbook.from_path(str(path))
    if sheet is not None and sheet not in book.sheet_names:
        listed = visible(", ".join(book.sheet_names), 200)
        raise UserError(f"sheet must name a sheet, got {sheet!r}, and {path} has {listed}; name one of them")
    names = book.sheet_names if sheet is None else [sheet]
    full = {name: rows for name in names if len(rows := book.get_sheet_by_name(name).to_python()) > 1}
    if not full:
        raise UserError(f"a table needs a header and rows, got no sheet with them in {path}; check the file")
    if len(full) > 1:
        raise UserError(
            f"a workbook with several sheets needs a choice, got {', '.join(visible(name, 40) for name in full)} "
            f"in {path}; name one with sheet="
        )
    header, *rows = full.popitem()[1]
    columns = {str(cell).strip() or f"column {number}": number - 1 for number, cell in enumerate(header, 1)}
    if len(columns) < len(header):
        raise UserError(f"column names must differ, got one more than once in {path}; rename one of them")
    return _of_columns(path, {name: [_value(row[j]) for row in rows] for name, j in columns.items()})


def _value(cell: Any) -> Any:
    """The value of an Excel cell: numbers are stored as floats, dates may lack a time."""
    if isinstance(cell, float) and abs(cell) < 1e15 and cell == int(cell):
        return int(cell)
    if isinstance(cell, date) and not isinstance(cell, datetime):
        return datetime(cell.year, cell.month, cell.day)
    return None if cell == "" else cell


# ---- images ----------------------------------------------------------------------------------------------------------


def with_images(table: Any, folder: Path) -> Any:
    """Replace the column of image file names by 256 columns of grey values, from 0 to 255, of 16 x 16 pixels.

    They are appended as "pixel 1" to "pixel 256". It is an error if a row has no file or an image cannot be read.
    """
    import pyarrow as pa

    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise missing_package("pillow", "images", extra="images") from error
    if not folder.is_dir():
        raise UserError(f"images must lie in a folder, got {folder}; check the path")
    column = _file_column(table, folder)
    pixels = np.stack([_grey(folder / name) for name in table.column(column).to_pylist()])
    rest = table.drop_columns([column])
    for index in range(pixels.shape[1]):
        rest = rest.append_column(f"pixel {index + 1}", pa.array(pixels[:, index]))
    return rest


def _file_column(table: Any, folder: Path) -> str:
    """The first column whose cells are all names of files in the folder; an error if there is none."""
    inside = folder.resolve()
    most, best = 0, ""
    for name in table.column_names:
        cells = [cell for cell in table.column(name).to_pylist() if isinstance(cell, str) and cell]
        existing = sum((folder / c).resolve().is_relative_to(inside) and (folder / c).is_file() for c in cells)
        if existing == table.num_rows:
            return str(name)
        most, best = max((most, best), (existing, str(name)))
    hint = f"; in '{visible(best, 60)}' only {most:,} of {table.num_rows:,} are" if most else ""
    raise UserError(f"some column must name a file in {folder} in each row, got none{hint}; check the names")


def _grey(path: Path) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("L").resize((_SIDE, _SIDE)), dtype=np.uint8).ravel()
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise UserError(
            f"an image must be readable, got {path}, which is not ({visible(str(error), 80)}); copy it again"
        ) from error
