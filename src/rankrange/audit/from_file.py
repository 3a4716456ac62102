"""An audit of a file: in memory if it fits (`study`), otherwise out of core (`out_of_core`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from ..tables.columns import find_columns
from ..tables.read import Source, open_table
from .findings import Audit
from .memory import fits_memory
from .out_of_core import NEEDS_ALL_ROWS, SAMPLE_ROWS, OutOfCoreAudit
from .plan import Progress
from .study import audit_table, renamed_progress


def audit_file(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | Sequence[str],
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    sheet: str | None = None,
    progress: Progress | None = None,
    tell: Progress | None = None,
    memory_limit: int | None = None,
    sample_rows: int = SAMPLE_ROWS,
    **options: Any,
) -> Audit:
    r"""Audit a file: find the rows that are probably wrong, and measure the gain of a model that ignores them.

    The file is not changed. If the audit does not fit into memory, it is out of core: it makes a few passes over the
    rows, which are stored as numbers in a temporary folder. Formats other than CSV, Parquet and Arrow, several files, a
    multi-label target, and options such as `group` and `time` need all rows in memory.

    Parameters
    ----------
    path : path, or sequence of paths
        A file in one of the formats CSV, JSON lines, JSON array (these also as gzip), Parquet, Arrow, Feather, ORC or
        Excel; a folder with a saved Hugging Face data set or Parquet files; or several files with the same columns. "-"
        is standard input.
    target : str or sequence of str
        The column to predict, or several columns of 0 and 1; ``"label:*"`` stands for all columns that match.
    delimiter : str, optional
        The separator of CSV columns; by default the comma, or the tab for .tsv and .tab.
    encoding : str, default="utf-8"
        The encoding of CSV.
    sheet : str, optional
        The sheet to read, if a workbook has several.
    progress : callable, optional
        Called with a short text before each stage of the work.
    tell : callable, optional
        Deprecated: the old name of `progress`.
    memory_limit : int, optional
        Bytes of memory that the audit may use; by default the free memory. If it would need more, it is out of core.
    sample_rows : int, default=100000
        For an out-of-core audit: the size of the sample that determines the encoding of columns and the candidates for
        m and C.
    **options
        Further parameters of `audit_table`.

    Returns
    -------
    Audit
        The result.

    Raises
    ------
    UserError
        If the file or the target cannot be used; the message gives the reason and the remedy.

    Examples
    --------
    >>> import os, tempfile
    >>> from rankrange.audit import audit_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "table.csv")
    ...     with open(path, "w") as file:
    ...         print("x,kind", *(f"{i % 7 + i // 20 * 9},{'ab'[i // 20]}" for i in range(40)), sep="\n", file=file)
    ...     audit = audit_file(path, "kind")
    >>> audit.n_rows, audit.n_suspects
    (40, 0)
    """
    source = open_table(path, delimiter=delimiter, encoding=encoding, sheet=sheet)
    wanted = [target] if isinstance(target, str) else list(target)
    columns = find_columns(source.names, wanted, source.path)  # before the whole file is read
    progress = renamed_progress(progress, tell) or (lambda words: None)
    limits: dict[str, Any] = {"memory_limit": memory_limit, "sample_rows": sample_rows}
    return audit_source(source, columns, progress=progress, **limits, **options)


def audit_source(
    source: Source,
    target: Sequence[str],
    *,
    check: Callable[[str], None] = lambda task: None,
    progress: Progress,
    memory_limit: int | None = None,
    sample_rows: int = SAMPLE_ROWS,
    **options: Any,
) -> Audit:
    """Audit a file, out of core if that is necessary and possible; the parameters are those of `audit_file`.

    `check` is called with the task before anything is fitted, and may raise an error.
    """
    if can_be_read_out_of_core(source, target, options) and not fits_memory(source, memory_limit):
        found = OutOfCoreAudit(source, target[0], progress, sample_rows=sample_rows, **options).audit(check)
        if found is not None:
            return found
    progress(f"reading {source.path.name}")
    table = source.read()
    return audit_table(table, target, name=source.path.name, source=source, check=check, progress=progress, **options)


def can_be_read_out_of_core(source: Source, target: Sequence[str], options: dict[str, Any]) -> bool:
    """Whether the audit can be out of core: one file read in batches, one target, no option that needs all rows."""
    in_batches = source.kind in ("csv", "parquet", "arrow", "stream") and not source.parts
    held = any(options.get(name) is not None for name in NEEDS_ALL_ROWS)
    return in_batches and len(target) == 1 and options.get("task") != "labels" and not held
