"""Reading tables from files. The format is detected from the content, and files are checked before use.

CSV (also gzip), Parquet and Arrow are read here, JSON, Excel and ORC in `formats`, folders in `dataset_folder`.

`open_table(path)` detects the format and the column names, `Source.read()` returns typed columns, and
`Source.text_batches()` returns every cell as text. Problems of a file raise a `UserError` with the remedy. Files are
never modified.
"""

from __future__ import annotations

import gzip
import importlib
import io
import os
import re
import stat
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..errors import UserError
from ..pages.text import visible
from .cell_formats import MISSING
from .columns import DELIMITERS, nearest, shown
from .columns import find_column as find_column
from .dataset_folder import load_folder
from .formats import FORMATS, kind_of, load, not_a_table, saved_input
from .records import line_count, records

# More columns would need more memory than most machines have.
MAX_COLUMNS = 10_000
_HEAD = 1 << 22
# Rows per batch.
_ROWS_AT_A_TIME = 1 << 15


@dataclass(frozen=True)
class Source:
    """A table in a file, a folder or several files: path, format and column names."""

    path: Path
    kind: str  # "csv", "parquet", "arrow", "stream" (Arrow without its footer), "folder", "several", or as in `formats`
    names: list[str]
    delimiter: str = ","
    encoding: str = "utf-8"
    zipped: bool = False
    n_bytes: int = 0  # uncompressed size, if it is known without reading the file
    header_lines: int = 1  # of CSV: the number of lines up to the end of the header
    held: Any = None  # the table itself, for formats that are read at once
    parts: tuple[Source, ...] = ()  # the files, if there are several with the same columns

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """Read all or some columns as a typed pyarrow Table; in CSV, markers in `MISSING` are null.

        Raises a UserError if the file cannot be read or has no rows.
        """
        try:
            table = self._read(list(self.names if columns is None else columns))
        except (OSError, ValueError, EOFError, zlib.error, MemoryError) as error:
            raise self._unreadable(error) from error
        broken = [field.name for field in table.schema if self.kind == "csv" and str(field.type) == "binary"]
        if broken:
            raise self._not_text(f"column {shown(broken[0])} holds bytes that are not")
        if table.num_rows == 0:
            raise UserError(f"a table needs rows, got only a header in {self.path}; add rows below it")
        return table

    def packed_batches(self, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Record batches of one file that is not CSV. Parquet and Arrow are never read as a whole."""
        wanted = list(self.names if columns is None else columns)
        if self.held is not None:
            yield from self.held.select(wanted).to_batches()
            return
        try:
            if self.kind == "parquet":
                with _arrow("parquet")[1].ParquetFile(self.path) as file:
                    for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=wanted, use_threads=False):
                        yield batch.select(wanted)
                return
            reader = _open_arrow(self.path, self.kind)
            stream = reader if self.kind == "stream" else map(reader.get_batch, range(reader.num_record_batches))
            for batch in stream:
                yield batch.select(wanted)
        except (OSError, ValueError, MemoryError) as error:
            raise self._unreadable(error) from error

    def text_batches(self) -> Iterator[Any]:
        """Record batches of all columns, every cell as text: as written in CSV, otherwise by str; '' if missing."""
        for part in self.parts:
            yield from (batch.select(self.names) for batch in part.text_batches())
        if self.parts:
            return
        arrow, arrow_csv = _arrow("csv")
        if self.kind == "csv":
            types = {name: arrow.string() for name in self.names}
            convert = arrow_csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            with self._stream() as file:
                yield from arrow_csv.open_csv(file, self._read_options(), self._parse_options(), convert)
            return
        for batch in self.packed_batches():
            cells = [arrow.array(["" if v is None else str(v) for v in column.to_pylist()]) for column in batch.columns]
            yield arrow.record_batch(cells, names=self.names)

    def _read(self, columns: list[str]) -> Any:
        if self.parts:
            return self._joined(columns)
        if self.held is not None:
            return self.held.select(columns)
        if self.kind == "parquet":
            _, parquet = _arrow("parquet")
            return parquet.read_table(self.path, columns=columns, use_pandas_metadata=False).select(columns)
        if self.kind != "csv":
            return _open_arrow(self.path, self.kind).read_all().select(columns)
        _, arrow_csv = _arrow("csv")
        convert = arrow_csv.ConvertOptions(
            null_values=list(MISSING), strings_can_be_null=True, include_columns=columns, auto_dict_encode=False
        )
        with self._stream() as file:
            return arrow_csv.read_csv(file, self._read_options(), self._parse_options(), convert)

    def _joined(self, columns: list[str]) -> Any:
        arrow, _ = _arrow("csv")
        tables = [part.read(columns) for part in self.parts]
        try:
            return arrow.concat_tables(tables, promote_options="permissive")
        except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
            for name in columns:
                kinds = {
                    str(table.schema.field(name).type): part.path
                    for table, part in zip(tables, self.parts, strict=True)
                }
                if len(kinds) > 1:
                    both = " and ".join(f"{kind} in {path}" for kind, path in list(kinds.items())[:2])
                    raise UserError(
                        f"a column must have the same type in all files, got {both} in {shown(name)}; convert one"
                    ) from error
            raise

    def _stream(self) -> Any:
        arrow, _ = _arrow("csv")
        return arrow.input_stream(str(self.path), compression="gzip" if self.zipped else None)

    def _read_options(self) -> Any:
        _, arrow_csv = _arrow("csv")
        # The names are passed, because a header may have blank ones. A block must be larger than the longest row.
        size = min(max(1 << 20, 64 * sum(map(len, self.names))), 1 << 26)
        return arrow_csv.ReadOptions(
            column_names=self.names, skip_rows=self.header_lines, encoding=self.encoding, block_size=size
        )

    def _parse_options(self) -> Any:
        _, arrow_csv = _arrow("csv")
        return arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)

    def _unreadable(self, error: BaseException) -> UserError:
        if isinstance(error, PermissionError):
            return _no_permission(self.path)
        text = str(error)
        if self.kind == "csv" and "columns, got" in text:
            return self._ragged(text)
        if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile) or "zlib" in text:
            return _damaged_gzip(self.path)
        if isinstance(error, UnicodeDecodeError) or "UTF8" in text or "encoding" in text:
            return self._not_text("it holds bytes that are not")
        first = visible(text.splitlines()[0] if text else type(error).__name__, 150)
        return UserError(f"cannot read {self.path} as {self.kind}: {first}; check the file, or save it as CSV again")

    def _not_text(self, what: str) -> UserError:
        return UserError(
            f"a CSV file must be {self.encoding} text, but in {self.path} {what}; save it as UTF-8, or name its "
            "encoding, for example encoding='latin-1'"
        )

    def _ragged(self, text: str) -> UserError:
        found = re.search(r"Expected (\d+) columns, got (\d+)", text)
        line, got = self._first_ragged_line()
        where = f"line {line}" if line else "a line"
        width = got or (found.group(2) if found else "another number")
        return UserError(
            f"every line needs the {len(self.names)} cells of the header, got {width} in {where} of {self.path}; "
            "correct that line, put cells that hold the delimiter in quotes, or name it with delimiter="
        )

    def _first_ragged_line(self) -> tuple[int, int]:
        opener: Any = gzip.open if self.zipped else open
        try:
            with opener(self.path, "rt", encoding=self.encoding, errors="replace", newline="") as file:
                line = 0
                for record, cells in records(file, self.delimiter):
                    line += line_count(record)
                    if cells and len(cells) != len(self.names):
                        return line, len(cells)
        except OSError:
            pass
        return 0, 0


# ---- opening a file --------------------------------------------------------------------------------------------------


def open_table(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    sheet: str | None = None,
) -> Source:
    """Open a file: detect its format and its column names. CSV, Parquet and Arrow files are not read as a whole.

    Parameters
    ----------
    path : path, or sequence of paths
        CSV, JSON lines, a JSON array (all also as gzip), Parquet, Arrow, Feather, ORC or Excel, recognised by content.
        "-" is standard input. A folder is a saved Hugging Face data set or has Parquet files. Several files must have
        the same columns.
    delimiter : str or None
        The separator of CSV columns, one character or "tab"; None is the comma, or the tab for .tsv and .tab.
    encoding : str
        The encoding of CSV.
    sheet : str or None
        The sheet of a workbook that has several.

    Returns
    -------
    Source
        The source, from which the table can be read.

    Raises
    ------
    UserError
        If the file cannot be used; the message contains the remedy.
    """
    if not isinstance(path, str | os.PathLike):
        parts = [open_table(one, delimiter=delimiter, encoding=encoding, sheet=sheet) for one in path]
        return parts[0] if len(parts) == 1 else _of_one_schema(parts)
    file = saved_input() if str(path) == "-" else Path(path)
    if file.is_dir():
        held = load_folder(file)
        return _checked(Source(file, "folder", list(held.schema.names), n_bytes=held.nbytes, held=held))
    head, zipped, size = _head_of(file)
    kind = kind_of(file, head)
    if zipped and kind not in ("csv", "lines", "json"):
        raise UserError(f"only CSV and JSON are read from gzip, got {kind} in {file}; decompress it first")
    if kind in ("lines", "json", "excel", *FORMATS):
        held = load(file, kind, zipped, sheet)
        return _checked(Source(file, kind, list(held.schema.names), n_bytes=max(size, held.nbytes), held=held))
    if kind == "csv":
        return _open_csv(file, head, zipped, size, delimiter, encoding)
    try:
        if kind == "parquet":
            facts = _arrow("parquet")[1].read_metadata(file)
            names = list(facts.schema.to_arrow_schema().names)
            size = max(size, 8 * facts.num_rows * len(names))
        else:
            names = list(_open_arrow(file, kind).schema.names)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file} starts like {kind.title()} but cannot be read ({visible(str(error), 100)}); copy it again"
        ) from error
    return _checked(Source(file, kind, names, n_bytes=size))


def _of_one_schema(parts: list[Source]) -> Source:
    """Combine several files into one source, after checking that they have the same columns, in any order."""
    if not parts:
        raise UserError("a table comes from at least one file, got none; name a file")
    first = parts[0]
    for part in parts[1:]:
        odd = sorted(set(part.names) ^ set(first.names))
        if odd:
            raise UserError(
                f"files that are read together must have the same columns, got {shown(odd[0])} in only one of "
                f"{first.path} and {part.path}; rename or drop it"
            )
    return replace(first, kind="several", n_bytes=sum(part.n_bytes for part in parts), parts=tuple(parts))


def _head_of(path: Path) -> tuple[bytes, bool, int]:
    """The first 4 MiB after decompression, whether the file is compressed by gzip, and about its uncompressed size.

    It is an error if the file does not exist, is not a regular file or cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise UserError(f"a regular file is needed, got {path}, a pipe or device; save it as a file first")
        with path.open("rb") as file:
            head, size = file.read(_HEAD), path.stat().st_size
            if head[:2] != b"\x1f\x8b":
                return head, False, size
            file.seek(-4, io.SEEK_END)
            size = max(size, struct.unpack("<I", file.read(4))[0])
        with gzip.open(path) as packed:
            return packed.read(_HEAD), True, size
    except FileNotFoundError as error:
        near = nearest(path.name, [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else [])
        hint = f"did you mean {path.parent / near}?" if near else "check the path"
        raise UserError(f"there is no file {path}; {hint}") from error
    except PermissionError as error:
        raise _no_permission(path) from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _damaged_gzip(path) from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}; check the path") from error


def _damaged_gzip(path: Path) -> UserError:
    return UserError(f"a gzip file must be complete, got {path}, which ends early or is damaged; copy it again")


def _no_permission(path: Path) -> UserError:
    return UserError(f"no permission to read {path}; ask its owner, or run: chmod u+r {path.name}")


def _open_csv(path: Path, head: bytes, zipped: bool, size: int, delimiter: str | None, encoding: str) -> Source:
    if not head.strip(b"\xef\xbb\xbf\r\n\t ,;"):
        raise UserError(f"a table needs a header line and rows, got the empty file {path}; check the export")
    if b"\0" in head and not encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32", "utf16", "utf32")):
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise UserError(f"a CSV file must be UTF-8 text, got UTF-16 in {path}; pass encoding='utf-16'")
        raise not_a_table(path, "a binary file")
    delimiter = "\t" if delimiter in ("tab", "\\t") else delimiter
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise UserError(f"a delimiter is one ASCII character or 'tab', got {delimiter!r}; for example delimiter=';'")
    whole = len(head) < _HEAD
    text = _decoded(path, head, encoding, whole)
    chosen = delimiter or ("\t" if re.search(r"\.(tsv|tab)(\.gz)?$", path.name.lower()) else ",")
    names, lines, more = _header(text, chosen)
    if len(names) == 1:
        raise _one_column(path, text, chosen)
    if not more and not whole:
        raise _too_many(path, f"more than {len(names):,}")
    if not more:
        raise UserError(f"a table needs rows, got only a header in {path}; add rows below it")
    return _checked(Source(path, "csv", _named(names), chosen, encoding, zipped, size, lines))


def _decoded(path: Path, head: bytes, encoding: str, whole: bool) -> str:
    try:
        text = head.decode(encoding)
    except LookupError as error:
        raise UserError(f"unknown encoding {visible(encoding)!r}; use for example encoding='latin-1'") from error
    except UnicodeDecodeError as error:
        if whole or len(head) - error.start > 8:  # a character that is truncated at the end of the head is not an error
            line = head[: error.start].count(b"\n") + 1
            raise UserError(
                f"a CSV file must be {encoding} text, got byte 0x{head[error.start]:02X} in line {line} of {path}; "
                "save it as UTF-8, or name its encoding, for example encoding='latin-1'"
            ) from error
        text = head[: error.start].decode(encoding)
    return text.removeprefix("\ufeff")


def _header(text: str, delimiter: str) -> tuple[list[str], int, bool]:
    """The column names, the number of lines up to the end of the header, and whether rows follow."""
    found, lines = records(io.StringIO(text, newline=""), delimiter), 0
    names: list[str] = []
    for record, names in found:
        lines += line_count(record)
        if names:
            break
    return names, lines, any(cells for _, cells in found)


def _one_column(path: Path, text: str, delimiter: str) -> UserError:
    lines = [line for line in text.splitlines()[:20] if line.strip()]
    for other, name in DELIMITERS.items():
        counts = {line.count(other) for line in lines}
        if other != delimiter and len(lines) > 1 and counts and min(counts) > 0:
            written = "'tab'" if other == "\t" else f"'{other}'"
            return UserError(
                f"columns must be separated by the {DELIMITERS.get(delimiter, repr(delimiter))}, but in {path} they "
                f"seem to be by the {name}; pass delimiter={written}"
            )
    return UserError(
        f"a table needs a target and at least one other column, got one column in {path}; if there are more, pass "
        "their separator as delimiter="
    )


def _named(names: list[str]) -> list[str]:
    """Replace blank names by "column 3" and so on."""
    return [name if name.strip() else f"column {number}" for number, name in enumerate(names, 1)]


def _checked(source: Source) -> Source:
    if len(source.names) > MAX_COLUMNS:
        raise _too_many(source.path, f"{len(source.names):,}")
    if len(source.names) < 2:
        raise UserError(
            f"a table needs a target and at least one other column, got {'one column' if source.names else 'none'} in "
            f"{source.path}; add columns"
        )
    twice = [name for name, count in Counter(source.names).items() if count > 1]
    if twice:
        raise UserError(
            f"column names must differ, got {shown(twice[0])} more than once in {source.path}; rename one of them"
        )
    return source


def _too_many(path: Path, count: str) -> UserError:
    return UserError(
        f"at most {MAX_COLUMNS:,} columns are audited, got {count} in {path}; keep the relevant ones, or "
        "reduce them, for example by PCA"
    )


def _open_arrow(path: Path, kind: str) -> Any:
    arrow, ipc = _arrow("ipc")
    file = arrow.memory_map(str(path))
    return ipc.open_file(file) if kind == "arrow" else ipc.open_stream(file)


def _arrow(module: str) -> tuple[Any, Any]:
    return importlib.import_module("pyarrow"), importlib.import_module(f"pyarrow.{module}")


# ---- rows as written in the file ------------------------------------------------------------------------------------


class Held:
    """A table in memory with `names`, `path` and `text_batches`, like a `Source`."""

    def __init__(self, table: Any) -> None:
        self.table, self.names, self.path = table, list(table.column_names), Path("the table")

    def text_batches(self) -> Iterator[Any]:
        """Record batches of all columns with every cell as text; missing cells are ''."""
        import pyarrow

        for batch in self.table.to_batches(max_chunksize=10_000):
            texts = [["" if v is None else str(v) for v in column.to_pylist()] for column in batch.columns]
            yield pyarrow.record_batch([pyarrow.array(cells, pyarrow.string()) for cells in texts], names=self.names)


def rows_as_text(source: Any, rows: Sequence[int] | Array) -> list[list[str]]:
    """The cells of these rows as text (`text_batches`), in the given order; [] for a row that does not exist."""
    wanted = np.unique(np.asarray(rows, dtype=np.int64))
    found: dict[int, list[str]] = {}
    start = 0
    for batch in source.text_batches():
        in_batch = wanted[(wanted >= start) & (wanted < start + batch.num_rows)]
        if len(in_batch):
            columns = [column.to_pylist() for column in batch.take(in_batch - start).columns]
            found.update(zip(in_batch.tolist(), map(list, zip(*columns, strict=True)), strict=True))
        start += batch.num_rows
    return [found.get(int(row), []) for row in rows]
