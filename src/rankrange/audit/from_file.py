"""An audit of a file: in memory (`study`), or if it is large by a sample and one pass (`large`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..tables.columns import find_columns
from ..tables.read import Source, open_table
from .findings import Audit
from .large import LARGE, SAMPLE_ROWS, audit_large, is_large
from .plan import Progress
from .study import audit_table


def audit_file(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | Sequence[str],
    *,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    sheet: str | None = None,
    progress: Progress | None = None,
    large_from: int = LARGE,
    sample_rows: int = SAMPLE_ROWS,
    **options: Any,
) -> Audit:
    r"""Audit a file: find the rows that are probably wrong, and measure the gain of a model that ignores them.

    The file is not changed. A large file is audited by a sample of its rows, and one pass then predicts all others.
    Formats other than CSV, Parquet and Arrow, several files, a multi-label target, and options such as `group` and
    `time` need all rows in memory.

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
    large_from : int, default=200000000
        Files with more bytes of text, or of uncompressed columns, are audited by a sample.
    sample_rows : int, default=100000
        The size of that sample.
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
    limits = {"large_from": large_from, "sample_rows": sample_rows}
    return audit_source(source, columns, progress=progress or (lambda words: None), **limits, **options)


def audit_source(
    source: Source,
    target: Sequence[str],
    *,
    progress: Progress,
    large_from: int = LARGE,
    sample_rows: int = SAMPLE_ROWS,
    **options: Any,
) -> Audit:
    """Audit a file; the parameters are those of `audit_file` and `audit_table`."""
    if is_large(source, target, options, large_from):
        return audit_large(source, target[0], progress, sample_rows, **options)
    progress(f"reading {source.path.name}")
    table = source.read()
    return audit_table(table, target, name=source.path.name, source=source, progress=progress, **options)
