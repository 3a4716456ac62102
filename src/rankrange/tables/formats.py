"""File formats: detection, readers for formats other than CSV and Parquet, and reading in batches.

JSON, Excel, ORC and folders of images are read at once. CSV, Parquet and Arrow are read in batches. Standard input is
first saved to a temporary file. Parquet and Arrow contain their types. The types of CSV are known only at the end of
the file, because the last row of a numeric column may have a text. `count_rows` reads the file, again from the start
for each such column, and its result is passed to `batches`.
"""

from __future__ import annotations

import atexit
import gzip
import importlib.util
import json
import shutil
import sys
import tempfile
import zipfile
import zlib
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import UserError
from ..pages.text import visible
from .cell_formats import MISSING

if TYPE_CHECKING:
    from .read import Source
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

# Images are reduced to this many pixels on each side.
_SIDE = 16
_LIMIT = 2_000_000_000
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
    """A format that is read into memory at once: the first bytes of its files, and a reader into a pyarrow Table."""

    start: bytes
    load: Callable[[Path], Any]


def _load_orc(path: Path) -> Any:
    import pyarrow.orc

    return pyarrow.orc.read_table(path)


# To add a format, write a function and add an entry here.
FORMATS: dict[str, Format] = {"orc": Format(b"ORC", _load_orc)}


def not_a_table(path: Path, what: str) -> UserError:
    """The error for a file of a format that is not read."""
    *others, last = ["CSV", "JSON", "Excel", "Parquet", "Arrow", *(name.upper() for name in FORMATS)]
    return UserError(f"a table is {', '.join(others)} or {last}, got {what} in {path}; export it as CSV or Parquet")


def saved_input() -> Path:
    """Save standard input to a temporary file, which is deleted at the end of the program; a terminal is an error."""
    folder = Path(tempfile.mkdtemp(prefix="rankrange-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "standard input"
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError(
            "'-' reads the table from standard input, got a terminal; try: cat table.csv | rankrange audit -"
        )
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def kind_of(path: Path, head: bytes) -> str:
    """The format of a file, by its first bytes `head`. An error for other known formats, such as PDF.

    It is "parquet", "arrow", "stream" (Arrow without its footer), "excel" or a name in `FORMATS`. Everything else is
    text: "lines" or "json" if it looks like JSON, otherwise "csv".
    """
    if head[:4] == b"PAR1":
        return "parquet"
    if head[:6] == b"ARROW1":
        return "arrow"
    if head[:4] == b"\xff\xff\xff\xff":
        return "stream"
    for name, form in FORMATS.items():
        if head.removeprefix(b"\xef\xbb\xbf").startswith(form.start):  # a text may begin with a byte order mark
            return name
    if (head[:4] == b"PK\x03\x04" and _is_workbook(path)) or head[:4] == b"\xd0\xcf\x11\xe0":
        return "excel"
    for start, what in _OTHER_KINDS.items():
        if head.startswith(start):
            raise not_a_table(path, what)
    return _kind_of_text(head)


def _kind_of_text(head: bytes) -> str:
    """ "lines" for JSON with one object per line (at least two lines), "json" for other JSON, otherwise "csv"."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start[:1] == b"[":
        return "json" if start[1:].lstrip()[:1] in (b"{", b"]", b"[") else "csv"
    if start[:1] != b"{" or start[1:].lstrip()[:1] not in (b'"', b"}"):
        return "csv"
    first = start.splitlines()[0].rstrip()
    return "lines" if first.endswith(b"}") and len(start.splitlines()) > 1 else "json"


def load(path: Path, kind: str, zipped: bool, sheet: str | None = None) -> Any:
    """Read a file of one of the formats of this module.

    Parameters
    ----------
    path : Path
        The file.
    kind : str
        "lines", "json", "excel" or a name in `FORMATS`.
    zipped : bool
        Whether the file is compressed with gzip.
    sheet : str or None
        The sheet of a workbook; required if several sheets have rows below a header.

    Returns
    -------
    pyarrow.Table
        The table. Nested JSON objects become columns such as "a.b", up to five levels deep.

    Raises
    ------
    UserError
        If the file is damaged, has no rows or is JSON of more than 2 GB, or if it is not clear which sheet to read.
    """
    if kind == "excel":
        return _load_excel(path, sheet)
    if kind in FORMATS:
        try:
            return FORMATS[kind].load(path)
        except (UserError, ImportError):
            raise
        except Exception as error:  # each library has its own errors for a damaged file
            raise _damaged(path, kind.upper(), error) from error
    if path.stat().st_size > _LIMIT:
        raise UserError(f"a JSON file must have at most 2 GB, got more in {path}; save it as Parquet or CSV")
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if zipped else data).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise _damaged(path, "JSON", error) from error
    return _flat(_of_records(path, _json_lines(path, text) if kind == "lines" else _json_rows(path, text)))


def _damaged(path: Path, kind: str, error: BaseException) -> UserError:
    return UserError(
        f"{path} starts like {kind} but cannot be read ({visible(str(error), 100)}); check the file, or copy it again"
    )


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _json_lines(path: Path, text: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(
                f"each line of JSON lines must be one whole object, got a damaged line {number} in {path} "
                f"({visible(str(error), 80)}); correct that line"
            ) from error
        if not isinstance(row, dict):
            raise UserError(
                f"each line of JSON lines must be an object, got line {number} of {path} without names; add them"
            )
        rows.append(row)
    return rows


def _json_rows(path: Path, text: str) -> list[dict[str, Any]]:
    """The rows of an array of objects, or of one object with lists of equal length as columns; otherwise an error."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"JSON must be complete, got {path}, which is damaged ({visible(str(error), 80)}); copy it again"
        ) from error
    if isinstance(found, dict) and found and all(isinstance(column, list) for column in found.values()):
        if len({len(column) for column in found.values()}) > 1:
            raise UserError(f"columns of JSON must have the same length, got different ones in {path}; export it again")
        return [dict(zip(found, cells, strict=True)) for cells in zip(*found.values(), strict=True)]
    if not isinstance(found, list) or not found or not all(isinstance(row, dict) for row in found):
        raise UserError(f"JSON must be an array of objects, one per row, got something else in {path}; export it again")
    return found


def _of_records(path: Path, rows: list[dict[str, Any]]) -> Any:
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows:
        raise UserError(f"a table needs rows, got none in {path}; check the export")
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            columns[name] = _mixed(values)
    return pa.table(columns)


def _mixed(values: list[Any]) -> Any:
    """Convert values of mixed types: integers and floats to floats, everything else to texts (JSON of non-strings)."""
    import pyarrow as pa

    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return pa.array([None if value is None else float(value) for value in values], type=pa.float64())
    return pa.array([None if v is None else v if isinstance(v, str) else json.dumps(v, default=str) for v in values])


def _flat(table: Any) -> Any:
    import pyarrow as pa

    for _ in range(5):
        if not any(pa.types.is_struct(field.type) for field in table.schema):
            break
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
    sheets = _sheets(path)
    full = {name: rows for name, rows in sheets.items() if len(rows) > 1}
    if sheet is not None and sheet not in sheets:
        raise UserError(f"sheet must name a sheet, got {sheet!r}, and {path} has {', '.join(sheets)}; name one of them")
    if sheet is None and len(full) != 1:
        if not full:
            raise UserError(f"a table needs a header and rows, got no sheet with them in {path}; check the file")
        raise UserError(
            f"a workbook with several sheets needs a choice, got {', '.join(visible(name, 40) for name in full)} "
            f"in {path}; name one with sheet="
        )
    rows = sheets[sheet] if sheet is not None else next(iter(full.values()))
    header = [str(cell).strip() for cell in rows[0]]
    names = [name or f"column {number}" for number, name in enumerate(header, 1)]
    cells = [list(row) + [None] * (len(names) - len(row)) for row in rows[1:]]
    wide = next((number for number, row in enumerate(cells, 2) if len(row) > len(names)), None)
    if wide is not None:
        raise UserError(
            f"every row needs the {len(names)} cells of the header, got more in row {wide} of {path}; correct it"
        )
    return _of_cells(names, cells)


def _of_cells(names: list[str], rows: list[list[Any]]) -> Any:
    import pyarrow as pa

    arrays = []
    for j in range(len(names)):
        values = [None if row[j] in ("", None) else row[j] for row in rows]
        present = [value for value in values if value is not None]
        if present and all(isinstance(v, float) and abs(v) < 1e15 and v == int(v) for v in present):
            values = [None if v is None else int(v) for v in values]
        elif present and all(isinstance(v, date) for v in present):
            values = [None if v is None else _moment(v) for v in values]
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            arrays.append(
                pa.array([None if v is None else f"{v:g}" if isinstance(v, float) else str(v) for v in values])
            )
    return pa.Table.from_arrays(arrays, names)


def _moment(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


def _sheets(path: Path) -> dict[str, list[list[Any]]]:
    """The rows of each sheet, read by python-calamine or openpyxl; an error if neither is installed."""
    try:
        if importlib.util.find_spec("python_calamine"):
            import python_calamine

            book = python_calamine.CalamineWorkbook.from_path(str(path))
            return {name: book.get_sheet_by_name(name).to_python() for name in book.sheet_names}
        if importlib.util.find_spec("openpyxl"):
            import openpyxl

            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            return {sheet.title: [list(row) for row in sheet.iter_rows(values_only=True)] for sheet in book.worksheets}
    except Exception as error:  # any error of the Excel package means a damaged file
        raise _damaged(path, "Excel", error) from error
    raise UserError(
        f"Excel needs a reader, got {path} and none is installed; run: pip install 'rankrange[excel]', or save CSV"
    )


# ---- images ----------------------------------------------------------------------------------------------------------


def with_images(table: Any, folder: Path) -> Any:
    """Replace the column of image file names by 256 columns of grey values, from 0 to 255, of 16 x 16 pixels.

    They are appended as "pixel 1" to "pixel 256". It is an error if a row has no file or an image cannot be read.
    """
    import pyarrow as pa

    if importlib.util.find_spec("PIL") is None:
        raise UserError("images need the package pillow, which is not installed; run: pip install pillow")
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
    from .columns import _is_text as is_text

    inside = folder.resolve()
    best = ("", 0)
    for name in table.column_names:
        if is_text(table.column(name).type):
            cells = table.column(name).to_pylist()
            existing = [
                c for c in cells if c and (folder / c).resolve().is_relative_to(inside) and (folder / c).is_file()
            ]
            if len(existing) == table.num_rows:
                return str(name)
            best = max(best, (str(name), len(existing)), key=lambda pair: pair[1])
    hint = f"; in '{visible(best[0], 60)}' only {best[1]:,} of {table.num_rows:,} are" if best[1] else ""
    raise UserError(f"some column must name a file in {folder} in each row, got none{hint}; check the names")


def _grey(path: Path) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            small = image.convert("L").resize((_SIDE, _SIDE))
            return np.asarray(small, dtype=np.uint8).ravel()
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise UserError(
            f"an image must be readable, got {path}, which is not ({visible(str(error), 80)}); copy it again"
        ) from error


# ---- reading in batches ----------------------------------------------------------------------------------------------


class StrayCell(ValueError):
    """Raised for a CSV cell that does not have the type of the first rows of its column, whose name is the argument."""


def batches(source: Source, columns: Sequence[str] | None = None, types: Mapping[str, Any] | None = None) -> Any:
    """Record batches with typed columns, in file order; in CSV, markers in `MISSING` are null.

    `types` are those from `count_rows`, which is called for CSV if they are not given. Several files are not supported.
    """
    if source.kind != "csv":
        return source.packed_batches(columns)
    found = count_rows(source)[1] if types is None else types
    return _csv_batches(source, list(source.names if columns is None else columns), dict(found))


def count_rows(source: Source) -> tuple[int, dict[str, Any]]:
    """The number of rows, and the types by name of CSV columns that are text although their first rows are not."""
    import pyarrow

    if source.kind == "parquet":
        import pyarrow.parquet

        return int(pyarrow.parquet.read_metadata(source.path).num_rows), {}
    types: dict[str, Any] = {}
    while True:
        try:
            return sum(batch.num_rows for batch in batches(source, None, types)), types
        except StrayCell as stray:
            types[str(stray.args[0])] = pyarrow.string()


def _csv_batches(source: Source, columns: list[str], types: dict[str, Any]) -> Iterator[Any]:
    import pyarrow.csv

    convert = pyarrow.csv.ConvertOptions(
        null_values=list(MISSING), strings_can_be_null=True, include_columns=columns, column_types=types
    )
    try:
        with source._stream() as file:
            yield from pyarrow.csv.open_csv(file, source._read_options(), source._parse_options(), convert)
    except (OSError, ValueError, EOFError, zlib.error, MemoryError) as error:
        stray = re.search(r"In CSV column #(\d+).*conversion error", str(error))
        if stray:
            raise StrayCell(source.names[int(stray.group(1))]) from error  # an index into all columns of the file
        raise source._unreadable(error) from error
