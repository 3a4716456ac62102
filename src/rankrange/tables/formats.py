"""File formats: detection, and readers of all formats but CSV; also folders of images.

What is read as a whole has a limit after decompression, so a small file cannot fill the memory. Excel is read by
python-calamine, which neither expands XML entities nor runs macros.
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
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UserError, missing_package
from ..pages.text import visible
from .columns import listed, shown
from .dataset_folder import read_stream

# Images are reduced to this many pixels on each side.
_SIDE = 16
# The largest number of bytes, after decompression, of a file that is read into memory at once.
MAX_UNPACKED = 2_000_000_000


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


def not_a_table(path: Path) -> UserError:
    """The error for a binary file of a format that is not read, such as PDF."""
    names = ["CSV", "JSON", "Excel", *FORMATS]
    return UserError(
        f"a table is {', '.join(names[:-1])} or {names[-1]}, got a binary file in {path}; export it as CSV or Parquet"
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


def kind_of(head: bytes) -> str:
    """The format of a file, by its first bytes: a name in `FORMATS`, "Excel", "JSON" (also of lines), or "CSV".

    A text that begins like a binary format, such as a CSV file with the column ORCID, is a text.
    """
    if re.search(rb"[\x00-\x08\x0e-\x1f]", head) or not re.search(rb"[\r\n]", head):
        for name, form in FORMATS.items():
            if head.startswith(form.start):
                return name
        if head.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
            return "Excel"
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
    following = start[1:].lstrip()[:1]
    is_json = following in {b"[": (b"{", b"]", b"["), b"{": (b'"', b"}")}.get(start[:1], ())
    return "JSON" if is_json else "CSV"


def load(path: Path, kind: str, zipped: bool, sheet: str | None = None) -> Any:
    """Read a file of the kind "JSON", "Excel" or a name in `FORMATS` as a pyarrow Table or Dataset.

    Nested JSON objects become columns such as "a.b", up to five levels deep.
    """
    try:
        if kind in FORMATS:
            return FORMATS[kind].load(path)
        if kind == "Excel":
            return _load_excel(path, sheet)
        with gzip.open(path) if zipped else path.open("rb") as file:
            text = file.read().decode("utf-8-sig")
    except (UserError, ImportError):
        raise
    except Exception as error:  # each library has its own errors for a damaged file
        raise UserError(
            f"{path} starts like {kind} but cannot be read ({visible(str(error), 100)}); copy it again, or export it "
            "as CSV"
        ) from error
    return _flat(_of_columns(path, _json_columns(path, text)))


def check_size(path: Path, size: int) -> None:
    """An error if a file that must be read as a whole has more than `MAX_UNPACKED` bytes after decompression."""
    if size > MAX_UNPACKED:
        raise UserError(
            f"JSON, Excel and gzip files that are read as a whole must have at most {MAX_UNPACKED:,} bytes after "
            f"decompression, got more in {path}; save it as Parquet or CSV"
        )


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
            arrays[name] = pa.array([None if v is None else as_text(v) for v in values])
    return pa.table(arrays)


def as_text(value: Any) -> str:
    """A cell as text: lists of texts and objects as JSON, other values by str."""
    cell = [str(one) for one in value] if isinstance(value, list) else value
    return json.dumps(cell, ensure_ascii=False, default=str) if isinstance(cell, list | dict) else str(cell)


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


def _load_excel(path: Path, sheet: str | None) -> Any:
    """Read the named sheet, or the only one with rows below a header."""
    try:
        import python_calamine
    except ImportError as error:
        raise missing_package("python-calamine", "Excel") from error
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            check_size(path, sum(part.file_size for part in packed.infolist()))
            if packed.testzip() is not None:  # the sizes in the directory of a zip file may be false
                raise zipfile.BadZipFile("its parts do not have the sizes or checksums that it states")
    book = python_calamine.CalamineWorkbook.from_path(str(path))
    if sheet is not None and sheet not in book.sheet_names:
        found = listed(book.sheet_names)
        raise UserError(f"sheet must name a sheet, got {shown(sheet)}, and {path} has {found}; name one of them")
    sheets = map(book.get_sheet_by_name, book.sheet_names if sheet is None else [sheet])
    full = list(islice((found for found in sheets if found.height > 1), 2))
    if not full:
        raise UserError(f"a table needs a header and rows, got no sheet with them in {path}; check the file")
    if len(full) > 1:
        found = listed(book.sheet_names)
        raise UserError(f"a workbook with several sheets needs a choice, got {found} in {path}; name one with sheet=")
    header, *rows = full[0].to_python()
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
        raise missing_package("pillow", "images") from error
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
