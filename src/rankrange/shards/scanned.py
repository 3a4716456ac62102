"""`rankrange.scan`: a table in files as shards of rows, for fits that never hold it in memory."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from .engine import SAMPLE_ROWS, Kernel
from .readers import FileShard, Layout, Npy, Part, pyarrow_module, readable
from .row_blocks import Batch, split_rows
from .shard_list import ShardList

# Copies of fewer bytes do not save time.
_MIN_SPILL = 200_000_000
_KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".csv": "csv",
}


def scan(
    path: Any,
    target: Any,
    weight: Any = None,
    spill: Any = "auto",
    *,
    columns: Sequence[Any] | None = None,
    sample_rows: int = SAMPLE_ROWS,
) -> Scan:
    """Describe files for an out-of-core fit: pass the result to `fit` instead of X and y.

    Parameters
    ----------
    path : str or Path
        A Parquet, Arrow IPC (Feather), .npy, .csv or .csv.gz file, or a folder of Parquet or Arrow files (also in
        subfolders), which are taken in the order of their paths. CSV is converted once, into the `spill` folder or a
        temporary one; its features must be numbers.
    target : str, Path or int
        The column of labels or numbers to predict; for .npy the number of the column, or the path of another .npy file.
    weight : str, Path or int, optional
        The column of weights, given like `target`. Weight 2 is the row twice.
    spill : "auto", None, True, str or Path, default="auto"
        A folder for an uncompressed copy of the rows, which the first pass writes so that later passes need no
        decoding; True is a temporary folder, which is removed when the process ends. The copy takes rows times columns
        times 4 bytes (float32) or 8 bytes (float64). "auto" makes a copy of Parquet files if it takes at least 200 MB
        and the folder for temporary files is on a disk with three times that space; the copy is removed together with
        the scan. None never makes a copy.
    columns : sequence of str or int, optional
        The features; by default all columns except target and weight.
    sample_rows : int, default=131072
        About the number of rows of the sample that is used to search for starts and to choose m and C; fewer if there
        are hundreds of columns. The sample must fit into memory.

    Returns
    -------
    Scan
        The rows, for `fit` of AoRRClassifier or AoRRRegressor and for `find_label_issues`.

    Examples
    --------
    >>> import numpy as np, tempfile, os, rankrange
    >>> X = np.random.default_rng(0).normal(size=(20_000, 3))
    >>> folder = tempfile.mkdtemp()
    >>> np.save(os.path.join(folder, "table.npy"), np.column_stack([X, X[:, 0] > 0.5]))
    >>> rows = rankrange.scan(os.path.join(folder, "table.npy"), target=3)
    >>> model = rankrange.AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(rows)
    >>> model.n_passes_ <= 6
    True
    """
    automatic = isinstance(spill, str) and spill == "auto"
    folder = None if automatic else _spill_folder(spill)
    files, kind = _files(Path(path))
    if kind == "csv":
        folder = folder or _spill_folder(True)
        assert folder is not None
        files, kind = [_as_arrow(files[0], target, weight, columns, folder)], "arrow"
    parts, layout = (
        _npy_layout(files, target, weight, columns)
        if kind == "npy"
        else _arrow_layout(files, kind, target, weight, columns)
    )
    rows = Scan(parts, layout, folder if spill and not automatic else None, sample_rows)
    if automatic and kind == "parquet" and rows.worth_spilling():
        rows.spill_temporarily()
    return rows


class Scan(ShardList):
    """Rows in files as shards; the result of `rankrange.scan`.

    Parameters
    ----------
    parts : tuple of Part
        The files, or parts of them, in order.
    layout : Layout
        Which columns are features, target and weight.
    spill : str, optional
        The folder for an uncompressed copy.
    sample_rows : int
        Rows of the sample.

    Attributes
    ----------
    n_rows : int
        The number of rows.
    columns : list of str or None
        Names of the features.
    """

    def __init__(
        self, parts: tuple[Part, ...], layout: Layout, spill: str | None = None, sample_rows: int = SAMPLE_ROWS
    ) -> None:
        self.parts, self.layout = parts, layout
        self.n_rows = parts[-1].first_row + parts[-1].n_rows if parts else 0
        self.n_columns = len(layout.features)
        names = list(layout.features) if all(isinstance(name, str) for name in layout.features) else None
        self._spill, self._temporary = spill, False
        self._permanent = (parts, layout)
        super().__init__(self.split(1), map, names, sample_rows=sample_rows)

    def split(self, n: int) -> list[FileShard]:
        """Split the rows into at most n shards of about equal size, which do not use a temporary copy."""
        return self._shards_of(n, *self._permanent)

    def _shards_of(self, n: int, parts: tuple[Part, ...], layout: Layout) -> list[FileShard]:
        shards = []
        for start, stop in split_rows(self.n_rows, n):
            inside = [p for p in parts if p.first_row < stop and p.first_row + p.n_rows > start]
            shards.append(FileShard(start, stop, tuple(inside), layout))
        return shards

    def worth_spilling(self) -> bool:
        """Whether an uncompressed copy on disk would save much decoding, and the disk has enough space for it."""
        needed = self.n_rows * self.n_columns * np.dtype(self.layout.dtype).itemsize
        return needed >= _MIN_SPILL and not _in_memory(tempfile.gettempdir()) and _free_disk() >= 3 * needed

    def spill_temporarily(self) -> None:
        """Write a copy of the rows to a temporary folder on the next pass; it is removed together with the scan."""
        self._spill = tempfile.mkdtemp(prefix="rankrange-")
        weakref.finalize(self, shutil.rmtree, self._spill, ignore_errors=True)
        self._temporary = True

    def reduce(self, kernel: Kernel, message: Any) -> Any:
        """Run the kernel over all files and merge the results; the first pass also writes the copy, if any.

        If the result has an `error`, the copy is removed, and the next pass writes it again.
        """
        if self._spill is None or self.n_rows == 0:
            return super().reduce(kernel, message)
        spilling = Spilling(self.split(1)[0], self._spill, self.n_rows, self.layout)
        result = kernel(spilling, message)
        if getattr(result, "error", None) is None:
            self.parts, self.layout = spilling.finish()
            self.shards = list(self._shards_of(1, self.parts, self.layout))
            if not self._temporary:
                self._permanent = (self.parts, self.layout)
            self._spill = None
        else:
            spilling.abandon()
        return result

    def __repr__(self) -> str:
        return f"<Scan of {self.n_rows} rows, {self.n_columns} features, {len(self.parts)} parts>"


def _spill_folder(spill: Any) -> str | None:
    if spill is None or spill is False:
        return None
    if spill is True:
        folder = tempfile.mkdtemp(prefix="rankrange-")
        weakref.finalize(_CLEANUP, shutil.rmtree, folder, ignore_errors=True)
        return folder
    os.makedirs(spill, exist_ok=True)
    return str(spill)


def _free_disk() -> int:
    try:
        return shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:
        return 0


def _in_memory(folder: str) -> bool:
    """Whether the folder is on a file system in memory, where a copy would take memory; False if it is not known."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return False
    inside = [(mount, kind) for mount, kind in mounts if Path(folder).resolve().is_relative_to(mount)]
    return bool(inside) and max(inside, key=lambda found: len(found[0]))[1] in ("tmpfs", "ramfs")


class _FolderCleanup:
    """A single object that exists until the process ends; its finalizers then remove temporary folders."""


_CLEANUP = _FolderCleanup()


def _files(path: Path) -> tuple[list[Path], str]:
    if not path.exists():
        raise FileNotFoundError(f"a scan needs an existing file or folder, got {path}; check the path")
    found = sorted(_entries(path)) if path.is_dir() else [path]
    if not found:
        raise ValueError(f"a folder to scan must hold Parquet or Arrow files, got none in {path}; check the path")
    kinds = {_KINDS.get(_suffix(file)) for file in found}
    if None in kinds or len(kinds) > 1 or (len(found) > 1 and kinds <= {"csv", "npy"}):
        names = ", ".join(sorted({file.suffix or file.name for file in found}))
        raise ValueError(
            f"a scan reads Parquet or Arrow files of one kind, one .npy, .csv or .csv.gz file, got {names} in {path}; "
            "convert the files, or name one of them"
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
        if file.is_file() and not any(name.startswith((".", "_")) for name in below) and _suffix(file) in _KINDS:
            yield file


def _arrow_layout(
    files: list[Path], kind: str, target: Any, weight: Any, columns: Sequence[Any] | None
) -> tuple[tuple[Part, ...], Layout]:
    parts: list[Part] = []
    first_schema = None
    at = 0
    for file in files:
        with readable(str(file), str(file)):
            schema, lengths = _footer(file, kind)
        first_schema = schema if first_schema is None else first_schema
        _check_same(first_schema, schema, files[0], file)
        word = "row group" if kind == "parquet" else "batch"
        for number, length in enumerate(lengths):
            name = str(file) if len(lengths) == 1 else f"{file}, {word} {number}"
            parts.append(Part(str(file), number, at, length, name))
            at += length
    assert first_schema is not None
    names = first_schema.names
    _check_roles(names, target, weight)
    features = tuple(columns) if columns is not None else tuple(n for n in names if n not in (target, weight))
    return tuple(parts), Layout(kind, features, target, weight, _common_dtype(first_schema, features))


def _footer(file: Path, kind: str) -> tuple[Any, list[int]]:
    if kind == "parquet":
        metadata = pyarrow_module("parquet").ParquetFile(file)
        with metadata:
            groups = metadata.metadata
            lengths = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
            return metadata.schema_arrow, lengths
    with pyarrow_module().memory_map(str(file)) as source:
        reader = pyarrow_module("ipc").open_file(source)
        return reader.schema, [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]


def _check_same(expected: Any, found: Any, first: Path, file: Path) -> None:
    for name in [*expected.names, *found.names]:
        type_first, type_other = (
            str(schema.field(name).type) if name in schema.names else "no such column" for schema in (expected, found)
        )
        if type_first != type_other:
            raise ValueError(
                f"all files of a scan must have the same columns, got {name!r} as {type_first} in {first} and as "
                f"{type_other} in {file}; write them with one schema, or scan them separately"
            )


def _check_roles(names: list[str], target: Any, weight: Any) -> None:
    for role, column in (("target", target), ("weight", weight)):
        if column is not None and column not in names:
            raise ValueError(
                f"{role} must be a column of the table, got {column!r}; it has {', '.join(map(repr, names[:20]))}"
            )


def _common_dtype(schema: Any, features: tuple[Any, ...]) -> Any:
    if not features:
        raise ValueError("a scan needs at least one column of features, got only target and weight; add columns")
    small = True
    for name in features:
        if name not in schema.names:
            raise ValueError(f"columns must be columns of the table, got {name!r}; check the name")
        kind = schema.field(name).type
        _check_numbers(name, kind)
        small &= str(kind) in ("float", "halffloat", "bool", "int8", "uint8", "int16", "uint16")
    return np.float32 if small else np.float64


def _check_numbers(name: str, kind: Any) -> None:
    types = pyarrow_module().types
    if not (types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind)):
        raise ValueError(_no_number(name, f"of type {kind}"))


def _no_number(name: str, got: str) -> str:
    return (
        f"features must be numbers, got column {name!r} {got}; encode it, or name the columns to use by columns=[...]"
    )


def _npy_layout(
    files: list[Path], target: Any, weight: Any, columns: Sequence[Any] | None
) -> tuple[tuple[Part, ...], Layout]:
    with readable(str(files[0]), str(files[0])):
        X = Npy(files[0])
    if len(X.shape) != 2 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"a .npy file must hold a table of numbers, got shape {X.shape} and dtype {X.dtype} in {files[0]}"
        )
    taken = []
    for role, column in (("target", target), ("weight", weight)):
        if isinstance(column, int | np.integer) and 0 <= column < X.shape[1]:
            taken.append(int(column))
        elif isinstance(column, str | Path):
            length = Npy(column).shape[0]
            if length != X.shape[0]:
                raise ValueError(
                    f"the {role} must have one entry per row, got {length} for {X.shape[0]} rows in {column}"
                )
        elif column is not None or role == "target":
            raise ValueError(
                f"{role} of a .npy file must be the number of a column below {X.shape[1]} or another .npy file, got "
                f"{column!r}"
            )
    features = tuple(columns) if columns is not None else tuple(i for i in range(X.shape[1]) if i not in taken)
    dtype = np.float32 if X.dtype in (np.float32, np.float16) else np.float64
    y, mass = (None if c is None else int(c) if isinstance(c, int | np.integer) else str(c) for c in (target, weight))
    part = Part(str(files[0]), 0, 0, X.shape[0], str(files[0]))
    return (part,), Layout("npy", features, y, mass, dtype)


class Spilling:
    """A shard that writes a copy of its rows (X.npy, y.npy and, if any, weight.npy) during a pass.

    The copy lies in a folder of its own inside `folder`, named by what is copied, so that scans may share `folder`.
    Files have temporary names until all rows are written, so an incomplete copy is never read.
    """

    def __init__(self, shard: FileShard, folder: str, n: int, layout: Layout) -> None:
        self.shard, self.n, self.layout = shard, n, layout
        files = sorted({part.path for part in shard.parts})
        self.folder = Path(folder) / _name_by_content(
            files, n, layout.features, layout.target, layout.weight, layout.dtype
        )
        self.start, self.stop = shard.start, shard.stop
        self._codes: dict[Any, int] = {}
        self._coded = False

    def batches(self) -> Iterator[Batch]:
        """The rows, batch by batch; each batch is written to the copy."""
        files: dict[str, Any] = {}
        try:
            for batch in self.shard.batches():
                for name, values in self._columns(batch):
                    if name not in files:
                        files[name] = self._open(name, values)
                    files[name].write(np.ascontiguousarray(values).data)
                yield batch
        finally:
            for file in files.values():
                file.close()

    def _columns(self, batch: Batch) -> Iterator[tuple[str, Array]]:
        yield "X", np.asarray(batch.X, dtype=self.layout.dtype)
        yield "y", self._plain(batch.y)
        if batch.weight is not None:
            yield "weight", batch.weight

    def _plain(self, y: Array) -> Array:
        """Convert labels that are not numbers to text, and this to codes; new labels of a batch get the next codes."""
        if y.dtype.kind in "fiub" and not self._coded:
            return y
        self._coded = True
        values, inverse = np.unique(y.astype(str), return_inverse=True)
        return np.array([self._codes.setdefault(str(v), len(self._codes)) for v in values], dtype=np.int32)[inverse]

    def _open(self, name: str, values: Array) -> Any:
        self.folder.mkdir(exist_ok=True)
        file = open(self.folder / f"{name}.npy.part", "wb")  # noqa: SIM115 - closed when the pass ends
        header = {"descr": values.dtype.str, "fortran_order": False, "shape": (self.n, *values.shape[1:])}
        np.lib.format.write_array_header_1_0(file, header)
        return file

    def finish(self) -> tuple[tuple[Part, ...], Layout]:
        """Rename the files, and return the parts and the layout of the copy."""
        names = ["X", "y"] + (["weight"] if self.layout.weight is not None else [])
        paths = {name: str(self.folder / f"{name}.npy") for name in names}
        for path in paths.values():
            os.replace(path + ".part", path)
        labels = np.array(list(self._codes)) if self._coded else None
        features = tuple(self.layout.features)
        layout = Layout("npy", features, paths["y"], paths.get("weight"), self.layout.dtype, labels)
        return (Part(paths["X"], 0, 0, self.n, paths["X"]),), layout

    def abandon(self) -> None:
        """Remove the incomplete copy."""
        for name in ("X", "y", "weight"):
            (self.folder / f"{name}.npy.part").unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()


_BLOCK_BYTES = 1 << 24


def _name_by_content(paths: Sequence[str], *described: Any) -> str:
    """A name for the copy of files that differs if their paths, sizes, times or the description of the copy do."""
    files = [(os.path.realpath(path), os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in paths]
    digest = hashlib.sha256(repr((files, described)).encode()).hexdigest()
    return f"{Path(paths[0]).name.split('.')[0]}-{digest[:16]}"


def _as_arrow(path: Path, target: Any, weight: Any, columns: Sequence[Any] | None, folder: str) -> Path:
    """Convert the needed columns of a CSV file to an Arrow file in `folder`; features and weights become float64.

    A feature with text is an error.
    """
    arrow_csv, pyarrow = pyarrow_module("csv"), pyarrow_module()
    out = Path(folder) / f"{_name_by_content([str(path)], target, weight, columns)}.arrow"
    read = arrow_csv.ReadOptions(block_size=_BLOCK_BYTES)
    with readable(str(path), str(path)), arrow_csv.open_csv(_unpacked(path), read) as head:
        schema = head.schema
    _check_roles(schema.names, target, weight)
    wanted = None if columns is None else [n for n in schema.names if n in {*columns, target, weight}]
    features = [n for n in (schema.names if wanted is None else wanted) if n not in (target, weight)]
    for name in features:
        _check_numbers(name, schema.field(name).type)
    kinds = {name: pyarrow.float64() for name in [*features, *([] if weight is None else [weight])]}
    convert = arrow_csv.ConvertOptions(column_types=kinds, include_columns=wanted, strings_can_be_null=True)
    try:
        with (
            readable(str(path), str(path)),
            arrow_csv.open_csv(_unpacked(path), read, convert_options=convert) as reader,
            pyarrow.ipc.new_file(f"{out}.part", reader.schema) as writer,
        ):
            for batch in reader:
                writer.write_batch(batch)
    except ValueError as error:
        Path(f"{out}.part").unlink(missing_ok=True)
        found = re.search(r"In CSV column #(\d+).*conversion error to \w+: invalid value '(.*)'", str(error.__cause__))
        if found is None:
            raise
        name = schema.names[int(found[1])]
        raise ValueError(_no_number(name, f"with the text {found[2][:40]!r}")) from error
    os.replace(f"{out}.part", out)
    return out


def _unpacked(path: Path) -> Any:
    packed = path.suffix.lower() == ".gz"
    return pyarrow_module().input_stream(str(path), compression="gzip" if packed else None)
