"""Reading tables from files. The format is detected from the content, and files are checked before use.

CSV is read here, all other formats are pyarrow data sets (`formats`, `dataset_folder`). Problems of a file raise a
`UserError` with the remedy. Files are never modified.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import stat
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
from . import formats
from .cell_formats import MISSING
from .columns import DELIMITERS, nearest, shown
from .dataset_folder import files_of
from .records import records

# More columns would need more memory than most machines have.
MAX_COLUMNS = 10_000
# The number of bytes that are read at once: the head of a file, a block of CSV (at least its longest row), and the
# numbers of a batch; and the largest number of rows of a batch, each of which may become hundreds of features.
_BLOCK, _BATCH_ROWS = 1 << 24, 1 << 15


@dataclass(frozen=True)
class Source:
    """A table in memory, in a file, in a folder or in several files: path, format and column names."""

    path: Path
    kind: str  # "CSV", "table", "several", or as in `formats`
    names: list[str]
    delimiter: str = ","
    encoding: str = "utf-8"
    zipped: bool = False
    n_bytes: int = 0  # the uncompressed size; of gzip at most a block more than `MAX_UNPACKED`
    header_lines: int = 1  # of CSV: the number of lines up to the end of the header
    data: Any = None  # the pyarrow Dataset, unless it is CSV
    parts: tuple[Source, ...] = ()  # the files, if there are several with the same columns

    def read(self) -> Any:
        """Read the table as a typed pyarrow Table; in CSV, markers in `MISSING` are null."""
        try:
            table = self._table()
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error
        broken = [field.name for field in table.schema if self.kind == "CSV" and str(field.type) == "binary"]
        if broken:
            raise _not_text(self.encoding, f"other bytes in column {shown(broken[0])} of {self.path}")
        if table.num_rows == 0:
            raise UserError(f"a table needs rows, got only a header in {self.path}; add rows below it")
        return table

    def batches(self, columns: Sequence[str] | None = None, *, as_written: bool = False) -> Iterator[Any]:
        """Record batches of all or some columns, in one pass and without reading the whole file.

        In CSV all cells are texts; markers in `MISSING` are null, unless `as_written`.
        """
        import pyarrow as pa
        import pyarrow.csv

        wanted = list(self.names if columns is None else columns)
        rows = max(1, min(_BATCH_ROWS, _BLOCK // (8 * max(1, len(wanted)))))
        try:
            for part in self.parts:
                yield from part.batches(wanted, as_written=as_written)
            if self.data is not None:
                yield from self.data.to_batches(
                    columns=wanted, batch_size=rows, batch_readahead=2, fragment_readahead=1
                )
            elif not self.parts:
                texts, null = dict.fromkeys(wanted, pa.string()), [] if as_written else MISSING
                for block in pyarrow.csv.open_csv(*self._csv(wanted, column_types=texts, null_values=null)):
                    yield from (block.slice(start, rows) for start in range(0, block.num_rows, rows))
        except (OSError, ValueError) as error:
            raise self._unreadable(error) from error

    def _table(self) -> Any:
        import pyarrow as pa
        import pyarrow.csv

        if self.data is not None:
            return self.data.to_table()
        if not self.parts:
            if self.zipped:
                formats.check_size(self.path, self.n_bytes)
            return pyarrow.csv.read_csv(*self._csv(self.names, null_values=MISSING))
        tables = [part.read() for part in self.parts]
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UserError(
                f"a column must have the same type in all files, got {visible(str(error), 150)}; convert one"
            ) from error

    def _csv(self, columns: list[str], **converting: Any) -> tuple[Any, ...]:
        """What pyarrow's readers of CSV need: the stream, and how to read, to parse and to convert it."""
        import pyarrow
        import pyarrow.csv

        stream = pyarrow.input_stream(str(self.path), compression="gzip" if self.zipped else None)
        # The names are passed, because a header may have blank ones.
        reading = pyarrow.csv.ReadOptions(
            column_names=self.names, skip_rows=self.header_lines, encoding=self.encoding, block_size=_BLOCK
        )
        parsing = pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True)
        found = pyarrow.csv.ConvertOptions(include_columns=columns, strings_can_be_null=True, **converting)
        return stream, reading, parsing, found

    def _unreadable(self, error: BaseException) -> UserError:
        text = str(error)
        if self.kind == "CSV" and "columns, got" in text:
            return self._ragged()
        if "straddl" in text:
            return UserError(
                f"a row of CSV must have at most {_BLOCK:,} bytes, got a longer one in {self.path}; check that every "
                "quoted cell ends with a quote, or save the table as Parquet"
            )
        if isinstance(error, UnicodeDecodeError) or "UTF8" in text or "encoding" in text:
            return _not_text(self.encoding, f"other bytes in {self.path}")
        return _unreadable(self.path, error)

    def _ragged(self) -> UserError:
        got, where = "another number", "a line"
        opener: Any = gzip.open if self.zipped else open
        with opener(self.path, "rt", encoding=self.encoding, errors="replace", newline="") as file:
            for _, cells, line in records(file, self.delimiter):
                if cells and len(cells) != len(self.names):
                    got, where = str(len(cells)), f"line {line}"
                    break
        return UserError(
            f"every line needs the {len(self.names)} cells of the header, got {got} in {where} of {self.path}; "
            "correct that line, put cells that hold the delimiter in quotes, or name it with delimiter="
        )


# ---- opening a file --------------------------------------------------------------------------------------------------


def open_table(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    sheet: str | None = None,
) -> Source:
    """Open a file: detect its format and its column names. CSV, Parquet, Arrow and ORC are not read as a whole.

    "-" is standard input. A folder is a saved Hugging Face data set or has Parquet files. Several files must have the
    same columns. `delimiter` (one character or "tab"; by default the comma, or the tab for .tsv and .tab) and
    `encoding` are those of CSV, and `sheet` is that of a workbook that has several.
    """
    if not isinstance(path, str | os.PathLike):
        parts = [open_table(one, delimiter=delimiter, encoding=encoding, sheet=sheet) for one in path]
        return parts[0] if len(parts) == 1 else _of_one_schema(parts)
    file = formats.saved_input() if str(path) == "-" else Path(path)
    if file.is_dir():
        return replace(open_table(files_of(file)), path=file)
    head, zipped, size = _head_of(file)
    kind = formats.kind_of(head)
    if zipped and kind not in ("CSV", "JSON"):
        raise UserError(f"only CSV and JSON are read from gzip, got {kind} in {file}; decompress it first")
    if kind == "CSV":
        return _open_csv(file, head, zipped, size, delimiter, encoding)
    if kind == "JSON":
        formats.check_size(file, size)
    return _checked(_held(file, kind, formats.load(file, kind, zipped, sheet), size))


def in_memory(table: Any) -> Source:
    """A pyarrow Table as a source."""
    return _held(Path("the table"), "table", table)


def _held(path: Path, kind: str, data: Any, size: int = 0) -> Source:
    """A source of a pyarrow Table or Dataset."""
    import pyarrow.dataset

    data = data if isinstance(data, pyarrow.dataset.Dataset) else pyarrow.dataset.dataset(data)
    names = list(data.schema.names)
    return Source(path, kind, names, n_bytes=max(size, 8 * data.count_rows() * len(names)), data=data)


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
    size = sum(part.n_bytes for part in parts)
    return replace(first, kind="several", n_bytes=size, data=None, parts=tuple(parts))


def _head_of(path: Path) -> tuple[bytes, bool, int]:
    """The first 16 MiB after decompression, whether the file is compressed by gzip, and its uncompressed size.

    A size above the limit `MAX_UNPACKED` is not measured further. The size that a gzip file states may be false.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"a regular file is needed, got {path}, a pipe or device; save it as a file first")
        with path.open("rb") as file:
            head = file.read(_BLOCK)
        if head[:2] != b"\x1f\x8b":
            return head, False, path.stat().st_size
        with gzip.open(path) as file:
            head = block = file.read(_BLOCK)
            size = len(head)
            while block and size <= formats.MAX_UNPACKED:
                block = file.read(_BLOCK)
                size += len(block)
            return head, True, size
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> UserError:
    """The error for a file that does not exist, may not be read, or is damaged."""
    text = str(error)
    if isinstance(error, FileNotFoundError):
        near = nearest(path.name, [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else [])
        return UserError(f"no file {path}; {f'did you mean {path.parent / near}?' if near else 'check the path'}")
    if isinstance(error, PermissionError):
        return UserError(f"no permission to read {path}; ask its owner, or run: chmod u+r {path.name}")
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile) or "compressed" in text:
        return UserError(f"a gzip file must be complete, got {path}, which ends early or is damaged; copy it again")
    first = visible(text.splitlines()[0] if text else type(error).__name__, 150)
    return UserError(f"cannot read {path}: {first}; check the file, or save it as CSV again")


def _open_csv(path: Path, head: bytes, zipped: bool, size: int, delimiter: str | None, encoding: str) -> Source:
    if not head.strip(b"\xef\xbb\xbf\r\n\t ,;"):
        raise UserError(f"a table needs a header line and rows, got the empty file {path}; check the export")
    if b"\0" in head and not re.match(r"utf[-_]?(16|32)", encoding.lower()):
        if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise UserError(f"a CSV file must be UTF-8 text, got UTF-16 in {path}; pass encoding='utf-16'")
        raise formats.not_a_table(path)
    delimiter = "\t" if delimiter in ("tab", "\\t") else delimiter
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'):
        raise UserError(f"a delimiter is one ASCII character or 'tab', got {delimiter!r}; for example delimiter=';'")
    text = _decoded(path, head, encoding)
    chosen = delimiter or ("\t" if re.search(r"\.(tsv|tab)(\.gz)?$", path.name.lower()) else ",")
    filled = (record for record in records(io.StringIO(text, newline=""), chosen) if record[1])
    _, names, lines = next(filled, ("", [], 0))
    if len(names) == 1:
        _check_delimiter(path, text, chosen)
    names = [name if name.strip() else f"column {number}" for number, name in enumerate(names, 1)]
    source = _checked(Source(path, "CSV", names, chosen, encoding, zipped, size, lines))
    if next(filled, None) is None:
        raise UserError(f"a table needs rows, got only a header in {path}; add rows below it")
    return source


def _decoded(path: Path, head: bytes, encoding: str) -> str:
    """The text of the head of a file, without a character that is cut at its end unless it is the whole file."""
    try:
        head[:1].decode(encoding, "ignore")  # an encoding such as "hex" is not one of texts
        text = codecs.getincrementaldecoder(encoding)().decode(head, len(head) < _BLOCK)
    except LookupError as error:
        raise UserError(f"unknown encoding {visible(encoding)!r}; use for example encoding='latin-1'") from error
    except UnicodeDecodeError as error:
        line = head[: error.start].count(b"\n") + 1
        raise _not_text(encoding, f"byte 0x{head[error.start]:02X} in line {line} of {path}") from error
    return text.removeprefix("\ufeff")


def _not_text(encoding: str, what: str) -> UserError:
    return UserError(
        f"a CSV file must be {encoding} text, got {what}; save it as UTF-8, or name its encoding, for example "
        "encoding='latin-1'"
    )


def _check_delimiter(path: Path, text: str, delimiter: str) -> None:
    """An error if the first lines have another delimiter."""
    lines = [line for line in text.splitlines()[:20] if line.strip()]
    for other, name in DELIMITERS.items():
        if other != delimiter and len(lines) > 1 and all(other in line for line in lines):
            written = "'tab'" if other == "\t" else f"'{other}'"
            raise UserError(
                f"columns must be separated by the {DELIMITERS.get(delimiter, repr(delimiter))}, but in {path} they "
                f"seem to be by the {name}; pass delimiter={written}"
            )


def _checked(source: Source) -> Source:
    names, path = source.names, source.path
    if len(names) > MAX_COLUMNS:
        raise UserError(
            f"at most {MAX_COLUMNS:,} columns are audited, got {len(names):,} or more in {path}; keep the relevant "
            "ones, or reduce them, for example by PCA"
        )
    if len(names) < 2:
        got = f"one column, {shown(names[0])}," if names else "none"
        raise UserError(
            f"a table needs a target and at least one other column, got {got} in {path}; delete lines above the "
            "header, or pass the separator of CSV as delimiter=, or add columns"
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"column names must differ, got {shown(twice[0])} more than once in {path}; rename one")
    return source


# ---- rows as written in the file ------------------------------------------------------------------------------------


def texts_of(batch: Any) -> list[list[str]]:
    """The rows of a record batch as texts: as written in CSV, lists as JSON, others by str; "" for a missing cell."""
    columns = [["" if v is None else formats.as_text(v) for v in column.to_pylist()] for column in batch.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def rows_as_text(source: Source, rows: Sequence[int] | Array) -> list[list[str]]:
    """The cells of these rows as text (`texts_of`), in the given order; [] for a row that does not exist."""
    wanted = np.unique(np.asarray(rows, dtype=np.int64))
    found: dict[int, list[str]] = {}
    start = 0
    for batch in source.batches(as_written=True):
        in_batch = wanted[(wanted >= start) & (wanted < start + batch.num_rows)]
        if len(in_batch):
            found.update(zip(in_batch.tolist(), texts_of(batch.take(in_batch - start)), strict=True))
        start += batch.num_rows
    return [found.get(int(row), []) for row in rows]
