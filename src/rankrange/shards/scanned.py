"""`rankrange.scan`: a table in files, read chunk by chunk, for fits that never hold it in memory."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..errors import missing_package
from .kernels import problem_of
from .rows import Chunk, LocalRows, Rows

# Rows that are read at a time, and bytes of CSV.
_READ_ROWS, _CSV_BLOCK = 1 << 16, 1 << 22
_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "feather",
    ".feather": "feather",
    ".ipc": "feather",
    ".orc": "orc",
    ".npy": "npy",
    ".csv": "csv",
}


def scan(
    path: Any,
    target: Any,
    weight: Any = None,
    spill: Any = None,
    *,
    columns: Sequence[Any] | None = None,
    sample_rows: int = Rows.sample_rows,
) -> Scan:
    """Describe files for an out-of-core fit: pass the result to `fit` instead of X and y.

    Parameters
    ----------
    path : str or Path
        A Parquet, Arrow IPC (Feather), ORC, .npy, .csv or .csv.gz file, or a folder of Parquet, Arrow or ORC files
        (also in subfolders), which are taken in the order of their paths. Features must be numbers.
    target, weight : str, Path or int
        The column to predict and perhaps that of the weights (2 is the row twice); for .npy the number of the column,
        or the path of another .npy file.
    spill : True, str or Path, optional
        A folder for an uncompressed copy of the rows, which is written when they are first read, so that passes need
        no decoding; True is a temporary folder, which is removed together with the scan. The copy takes rows times
        columns times 4 bytes (float32) or 8 bytes (float64). CSV is always copied.
    columns : sequence of str or int, optional
        The features; by default all columns except target and weight.
    sample_rows : int, default=131072
        About the number of rows of the sample, in memory, for the search and the choice of m and C; fewer if there are
        hundreds of columns. A table with no more rows is fitted in memory.

    Returns
    -------
    Scan
        The rows, for `fit`, `predict` and `score` of AoRRClassifier or AoRRRegressor and for `find_label_issues`.

    Examples
    --------
    >>> import numpy as np, tempfile, rankrange
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3))
    >>> path = tempfile.mkdtemp() + "/table.npy"
    >>> np.save(path, np.column_stack([X, X[:, 0] > 0.5]))
    >>> rankrange.AoRRClassifier(m=0.1, random_state=0).fit(rankrange.scan(path, target=3)).n_passes_
    1
    """
    return Scan(path, target, weight, spill, columns, sample_rows)


class Scan(LocalRows):
    """Rows in files; the result of `rankrange.scan`, which describes the parameters.

    Attributes
    ----------
    n_rows, n_columns : int
        The numbers of rows and of features.
    columns : list of str or None
        Names of the features.
    """

    def __init__(
        self,
        path: Any,
        target: Any,
        weight: Any = None,
        spill: Any = None,
        columns: Sequence[Any] | None = None,
        sample_rows: int = Rows.sample_rows,
    ) -> None:
        self._arguments = (path, target, weight, spill, columns, sample_rows)
        self._files, self._kind = _files(Path(path))
        self._versions = _versions(self._files)
        self._target, self._weight, self.sample_rows = target, weight, sample_rows
        self._ranks: Array | None = None
        self._copied: dict[str, _Values] | None = None
        if self._kind == "npy":
            self._open_npy(columns)
            self._folder = None
        else:
            self._open_table(columns)
            self._folder = self._folder_of_copy(spill)
            if self._kind == "csv":
                self._copy()

    def __reduce__(self) -> Any:
        return Scan, self._arguments

    def __repr__(self) -> str:
        return (
            f"<Scan of {self._files[0].parent if len(self._files) > 1 else self._files[0]}, {self.n_columns} features>"
        )

    def chunks(self) -> Iterator[Chunk]:
        """The rows, at most 2^16 at a time; the first time, they are copied if that was decided."""
        if self._folder is None or self._copied is None:
            found = _versions(self._files)
            changed = [file for file, old, new in zip(self._files, self._versions, found, strict=True) if old != new]
            if changed:
                raise ValueError(
                    f"the files of a scan must not change, got another version of {changed[0]}; scan and fit again"
                )
        if self._copied is None and self._folder is not None:
            self._copy()
        return self._of_table() if self._copied is None else self._of_arrays(self._copied)

    def _open_npy(self, columns: Sequence[Any] | None) -> None:
        with readable(self._files[0]):
            X = _Values.of_npy(self._files[0])
        if len(X.shape) != 2 or X.dtype.kind not in "fiub":
            raise ValueError(
                f"a .npy file must hold a table of numbers, got shape {X.shape} and dtype {X.dtype} in {X.path}"
            )
        self._copied = {"X": X}
        taken = []
        for role, column in (("target", self._target), ("weight", self._weight)):
            if isinstance(column, int | np.integer) and 0 <= column < X.shape[1]:
                taken.append(int(column))
                self._copied[role] = X._replace(column=int(column))
            elif isinstance(column, str | Path):
                self._copied[role] = found = _Values.of_npy(column)
                if found.shape[0] != X.shape[0]:
                    raise ValueError(
                        f"the {role} must have one entry per row, got {found.shape[0]} for {X.shape[0]} rows in "
                        f"{column}"
                    )
            elif column is not None or role == "target":
                raise ValueError(
                    f"{role} of a .npy file must be the number of a column below {X.shape[1]} or another .npy file, "
                    f"got {column!r}"
                )
        self._features = _chosen(columns, [i for i in range(X.shape[1]) if i not in taken])
        self.n_rows, self.n_columns, self.columns = X.shape[0], len(self._features), None
        self._dtype: Any = np.float32 if X.dtype in (np.float32, np.float16) else np.float64

    def _open_table(self, columns: Sequence[Any] | None) -> None:
        schemas = []
        self.n_rows = 0  # of CSV: counted when they are copied
        for file in self._files:
            with readable(file):
                if self._kind == "csv":
                    with _csv_reader(file) as reader:
                        schemas.append(reader.schema)
                else:
                    found = self._dataset(file)
                    schemas.append(found.schema)
                    self.n_rows += found.count_rows()
            _check_same(schemas[0], schemas[-1], self._files[0], file)
        schema = self._schema = schemas[0]
        for role, column in (("target", self._target), ("weight", self._weight)):
            if column is not None and column not in schema.names:
                raise ValueError(
                    f"{role} must be a column of the table, got {column!r}; it has "
                    f"{', '.join(map(repr, schema.names[:20]))}"
                )
        self._features = _chosen(columns, [name for name in schema.names if name not in (self._target, self._weight)])
        self.columns, self.n_columns, self._dtype = self._features, len(self._features), self._common_dtype(schema)

    def _common_dtype(self, schema: Any) -> Any:
        if not self._features:
            raise ValueError("a scan needs at least one column of features, got only target and weight; add columns")
        types, small = pyarrow_module().types, True
        for name in self._features:
            kind = schema.field(name).type
            if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind)):
                raise ValueError(_no_number(name, f"of type {kind}"))
            small &= str(kind) in ("float", "halffloat", "bool", "int8", "uint8", "int16", "uint16")
        return np.float32 if small and self._kind != "csv" else np.float64

    def _folder_of_copy(self, spill: Any) -> str | None:
        """The folder for a copy of the rows; None if they are not copied."""
        if spill is True or (not spill and self._kind == "csv"):
            folder = tempfile.mkdtemp(prefix="rankrange-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            return folder
        if not spill:
            return None
        os.makedirs(spill, exist_ok=True)
        return str(spill)

    def _of_table(self) -> Iterator[Chunk]:
        at = 0
        for file in self._files:
            with readable(file, self._schema.names):
                for batch in self._batches(file):
                    X = np.column_stack([_numbers(batch.column(column), self._dtype) for column in self._features])
                    weight = None if self._weight is None else _numbers(batch.column(self._weight), np.float64)
                    yield Chunk(at, X, _target(batch.column(self._target)), weight, str(file))
                    at += batch.num_rows

    def _batches(self, file: Path) -> Iterator[Any]:
        """The needed columns of a file; little is read in advance, to save memory."""
        numbers = [*self._features, *([] if self._weight is None else [self._weight])]
        wanted = list(dict.fromkeys([*numbers, self._target]))
        if self._kind == "csv":
            # Types are guessed from the first rows: a later number may have decimals.
            types = dict.fromkeys(numbers, pyarrow_module().float64())
            with _csv_reader(file, column_types=types, include_columns=wanted) as reader:
                yield from reader
            return
        options = {"batch_size": _READ_ROWS, "batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
        if self._kind == "parquet":
            options["fragment_scan_options"] = pyarrow_module("dataset").ParquetFragmentScanOptions(pre_buffer=False)
        yield from self._dataset(file, self._schema).to_batches(columns=wanted, **options)

    def _dataset(self, file: Path, schema: Any = None) -> Any:
        return pyarrow_module("dataset").dataset(str(file), format=self._kind, schema=schema)

    def _of_arrays(self, arrays: dict[str, _Values]) -> Iterator[Chunk]:
        """The rows of .npy files or of the copy."""
        for start in range(0, self.n_rows, _READ_ROWS):
            rows = slice(start, start + _READ_ROWS)
            with readable(arrays["X"].path):
                X, y = arrays["X"].read(rows), arrays["target"].read(rows)
                weight = arrays["weight"].read(rows) if "weight" in arrays else None
            X = X if self.n_columns == X.shape[1] else X[:, self._features]
            y = y if self._ranks is None else self._ranks[y]
            yield Chunk(start, X.astype(self._dtype, copy=False), y, weight, str(self._files[0]))

    def _copy(self) -> None:
        """Write the features, targets and weights as plain numbers, in a folder of their own inside the given one.

        It is named by what is copied, so that scans may share the given folder, and it is moved into place when all
        rows are written, so an incomplete copy is never read. If it exists already, it has the same rows.
        """
        assert self._folder is not None
        described = self._features, self._target, self._weight, self._dtype
        folder = Path(self._folder) / _name_by_content(self._files, *described)
        dtypes: dict[str, Any] = {}
        codes: dict[str, int] = {}
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as unfinished:
            with ExitStack() as files:
                opened: dict[str, Any] = {}
                for chunk in self._of_table():
                    error = problem_of(chunk, True, self.columns)
                    if error is not None:
                        raise ValueError(error)
                    y = chunk.y
                    if y.dtype.kind not in "fiub" or codes:  # labels that are not numbers become codes
                        values, inverse = np.unique(y.astype(str), return_inverse=True)
                        y = np.array([codes.setdefault(str(v), len(codes)) for v in values], dtype=np.int32)[inverse]
                    for name, values in (("X", chunk.X), ("target", y), ("weight", chunk.weight)):
                        if values is not None and name not in opened:
                            opened[name] = files.enter_context(open(Path(unfinished) / name, "wb"))
                            dtypes[name] = values.dtype
                        if values is not None:
                            opened[name].write(np.ascontiguousarray(values, dtype=dtypes[name]).data)
                    self.n_rows = chunk.first_row + len(y)
            if not folder.exists():
                os.replace(unfinished, folder)
        shapes = {"X": (self.n_rows, self.n_columns)}
        self._copied = {name: _Values(folder / name, d, shapes.get(name, (self.n_rows,))) for name, d in dtypes.items()}
        if codes:
            self.labels, self._ranks = np.unique(list(codes), return_inverse=True)


class _Values(NamedTuple):
    """The numbers of a file, from `offset` on; mapped anew for each read, because mapped pages count as memory."""

    path: Path
    dtype: Any
    shape: tuple[int, ...]
    offset: int = 0
    order: Any = "C"
    column: int | None = None  # the only one to read of a matrix

    @classmethod
    def of_npy(cls, path: Any) -> _Values:
        found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        return cls(Path(path), found.dtype, found.shape, found.offset, "C" if found.flags.c_contiguous else "F")

    def read(self, rows: slice) -> Array:
        """These rows; an error if the file ends before the last one of all."""
        mapped: Any = np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)
        return np.array(mapped[rows] if self.column is None else mapped[rows, self.column], order="C")


def _csv_reader(file: Path, **options: Any) -> Any:
    """A reader of a CSV file in blocks; the types of columns without one in `options` are guessed from the first."""
    csv = pyarrow_module("csv")
    packed = "gzip" if file.suffix.lower() == ".gz" else None
    source = pyarrow_module().input_stream(str(file), compression=packed)
    convert = csv.ConvertOptions(strings_can_be_null=True, **options)
    return csv.open_csv(source, csv.ReadOptions(block_size=_CSV_BLOCK, use_threads=False), convert_options=convert)


def pyarrow_module(name: str = "") -> Any:
    """pyarrow or one of its modules; if it is missing, the error contains the command to install it."""
    try:
        return importlib.import_module("pyarrow" + (f".{name}" if name else ""))
    except ImportError as error:
        raise missing_package("pyarrow", "scanning Parquet, Arrow, ORC and CSV") from error


@contextmanager
def readable(path: Any, names: Sequence[str] = ()) -> Iterator[None]:
    """Context manager that turns read errors into messages with the file name and the remedy."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the files of a scan must not be moved or deleted, got no file at {path}; restore it, or scan again"
        ) from error
    except (OSError, ValueError, EOFError) as error:
        text = " ".join(str(error).split())
        cell = re.search(r"In CSV column #(\d+).*conversion error to \w+: invalid value '(.*)'", text)
        if cell is not None and int(cell[1]) < len(names):
            raise ValueError(_no_number(names[int(cell[1])], f"with the text {cell[2][:40]!r}")) from error
        raise ValueError(
            f"every file of a scan must be readable, got {path}, which is damaged or cut off ({text[:160]}); write it "
            "again, or leave it out"
        ) from error


def _no_number(name: Any, got: str) -> str:
    return (
        f"features must be numbers, got column {name!r} {got}; encode it, or name the columns to use by columns=[...]"
    )


def _files(path: Path) -> tuple[list[Path], str]:
    if not path.exists():
        raise FileNotFoundError(f"a scan needs an existing file or folder, got {path}; check the path")
    found = sorted(_entries(path)) if path.is_dir() else [path]
    if not found:
        raise ValueError(f"a folder to scan must hold Parquet, Arrow or ORC files, got none in {path}; check the path")
    kinds = {_FORMATS.get(_suffix(file)) for file in found}
    if None in kinds or len(kinds) > 1 or (len(found) > 1 and kinds <= {"csv", "npy"}):
        names = ", ".join(sorted({file.suffix or file.name for file in found}))
        raise ValueError(
            f"a scan reads Parquet, Arrow or ORC files of one kind, one .npy, .csv or .csv.gz file, got {names} in "
            f"{path}; convert the files, or name one of them"
        )
    return found, str(kinds.pop())


def _suffix(file: Path) -> str:
    """The suffix of a file in lower case; .csv for .csv.gz, because only CSV may be compressed."""
    packed = file.suffix.lower() == ".gz" and Path(file.stem).suffix.lower() == ".csv"
    return ".csv" if packed else file.suffix.lower()


def _entries(folder: Path) -> Iterator[Path]:
    """Files of tables below the folder, without hidden files and files such as _SUCCESS."""
    for file in folder.rglob("*"):
        below = file.relative_to(folder).parts
        if file.is_file() and not any(name.startswith((".", "_")) for name in below) and _suffix(file) in _FORMATS:
            yield file


def _chosen(columns: Sequence[Any] | None, others: list[Any]) -> list[Any]:
    """The features: by default all `others`, the columns besides target and weight."""
    chosen = others if columns is None else list(columns)
    for number, column in enumerate(chosen):
        if column not in others or column in chosen[:number]:
            raise ValueError(
                "features must be columns of the table, each once and none of them target or weight, got "
                f"{column!r}; name others in columns=[...]"
            )
    return chosen


def _check_same(expected: Any, found: Any, first: Path, file: Path) -> None:
    types = [dict(zip(schema.names, schema.types, strict=True)) for schema in (expected, found)]
    for name in [*expected.names, *found.names]:
        type_first, type_other = (str(of.get(name, "no such column")) for of in types)
        if type_first != type_other:
            raise ValueError(
                f"all files of a scan must have the same columns, got {name!r} as {type_first} in {first} and as "
                f"{type_other} in {file}; write them with one schema, or scan them separately"
            )


def _numbers(column: Any, dtype: Any) -> Array:
    kind = pyarrow_module().from_numpy_dtype(np.dtype(dtype))
    column = column if column.type == kind else pyarrow_module("compute").cast(column, kind, safe=False)
    return column.to_numpy(zero_copy_only=False)


def _target(column: Any) -> Array:
    if pyarrow_module().types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.to_numpy(zero_copy_only=False)


def _name_by_content(files: Sequence[Path], *described: Any) -> str:
    """A name for the copy of files that differs if their paths, sizes, times or the description of the copy do."""
    digest = hashlib.sha256(repr((_versions(files), described)).encode()).hexdigest()
    return f"{files[0].name.split('.')[0]}-{digest[:16]}"


def _versions(files: Sequence[Path]) -> list[tuple[str, int, int]]:
    """The path, the size and the time of the last change of each file."""
    found = []
    for file in files:
        with readable(file):
            state = file.stat()
            found.append((os.path.realpath(file), state.st_size, state.st_mtime_ns))
    return found
