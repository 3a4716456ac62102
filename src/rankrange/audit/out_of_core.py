"""Audits of tables larger than memory.

The file is read several times: to count its rows, to draw a sample that determines the types and the encoding of the
columns, and to encode all rows, which are written as numbers to a temporary folder. Fits and posteriors are passes over
this folder (`rankrange.shards`). About sixty bytes per row stay in memory.
"""

from __future__ import annotations

import platform
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from .. import __version__
from ..core.arrays import Array
from ..errors import UserError
from ..tables.cell_values import numbers_of
from ..tables.columns import find_columns, typed
from ..tables.encode import TableEncoder
from ..tables.formats import batches, count_rows
from ..tables.read import Source
from .evidence import SHOWN, cells_of
from .findings import Audit
from .fit_warnings import recorded_warnings, warning_texts
from .memory import memory_needed, sized
from .plan import Progress, check_models
from .target import RowNames, Target, _classes, find_target
from .task_result import TaskResult

# The size of the sample that determines column types, and on which fits are searched.
SAMPLE_ROWS = 100_000
# Options of `audit_table` that need the table in memory.
NEEDS_ALL_ROWS = ("labels_by", "decisions", "group", "time", "estimator", "pred_probs", "embeddings", "images")


class OutOfCoreAudit:
    """An out-of-core audit: it samples the table, encodes the rows to disk, and runs passes over them.

    `column` is the target. The options are those of `audit_table`; `jobs` and `calibrate` have no effect, and those in
    `NEEDS_ALL_ROWS` must be None.
    """

    def __init__(
        self,
        source: Source,
        column: str,
        progress: Progress,
        *,
        task: str = "auto",
        ignore: Sequence[str] = (),
        seed: int = 0,
        dates: str | None = None,
        decimal: str | None = None,
        models: str = "all",
        jobs: int | None = None,
        calibrate: bool | None = None,
        sample_rows: int = SAMPLE_ROWS,
        **of_memory: None,
    ) -> None:
        check_models(models)
        unknown = sorted(set(of_memory) - set(NEEDS_ALL_ROWS))
        if unknown:
            raise TypeError(f"an audit has no option {unknown[0]!r}; see rankrange.audit.audit_table for all of them")
        self.sample_rows = sample_rows
        self.models = models  # jobs have no effect, which `_settings` reports
        self.target_forms: dict[str, str] = {}
        self.source, self.column, self.progress, self.task, self.seed = source, column, progress, task, seed
        self.ignore, self.forms = find_columns(source.names, ignore, source.path, "ignore"), (dates, decimal)
        self.rest = [name for name in source.names if name != column and name not in set(self.ignore)]
        self.start = time.perf_counter()
        if not self.rest:
            raise UserError(f"a table needs a column besides the target, got only {column} in {source.path}; add one")

    def audit(self, check: Callable[[str], None]) -> Audit | None:
        """Run the audit.

        `check` is called with the task before anything is fitted, and may raise an error. Returns None if the table is
        needed in memory: for a multi-label target, or for models="trees" and a numeric target.
        """
        self.progress(f"reading {self.source.path.name}: counting its rows")
        n, types = count_rows(self.source)
        sample, numbers = self._sampled(n, types)
        found = find_target(sample, [self.column], self.task, None, self.forms)
        if found.task == "numbers":
            self.target_forms = typed(sample.select([self.column]), dates=self.forms[0], decimal=self.forms[1])[1]
        if found.task == "labels" or (found.task == "numbers" and self.models == "trees"):
            return None
        check(found.task)
        # Imported here, because audits in memory do not need shards.
        from ..shards.scanned import scan
        from .out_of_core_models import classify_out_of_core, regress_out_of_core

        self.rest = [name for name in self.rest if not _counts_rows(sample.column(name), numbers)]
        encoder = TableEncoder(*self.forms).fit(sample.select(self.rest))
        folder = tempfile.mkdtemp(prefix="rankrange-")
        try:
            with recorded_warnings() as raised:
                before = len(raised)
                target = self._encoded(encoder, found, types, n, Path(folder))
                scanned = scan(f"{folder}/X.npy", target=f"{folder}/y.npy", sample_rows=self.sample_rows)
                rows = _ReportedShards(scanned, self.progress)
                if target.task == "classes":
                    trees = self.models != "linear"
                    result = classify_out_of_core(rows, target, Path(folder) / "X.npy", self.seed, trees)
                else:
                    result = regress_out_of_core(rows, target, Path(folder) / "X.npy", self.seed)
                words = warning_texts(raised[before:])
            audit = self._audit_of(target, result, encoder, types, n, words)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        # The reasons of the suspects are computed from the folder when first used.
        weakref.finalize(audit, shutil.rmtree, folder, ignore_errors=True)
        return audit

    def _sampled(self, n: int, types: dict[str, Any]) -> tuple[Any, Array]:
        import pyarrow

        from ..shards.shard_kernels import hashed

        self.progress(f"reading {self.source.path.name}: a sample of its {n:,} rows")
        threshold = np.uint64(min(int(self.sample_rows / max(n, 1) * 2.0**64), 2**64 - 1))
        parts, numbers, at = [], [], 0
        for batch in batches(self.source, [*self.rest, self.column], types):
            chosen = np.flatnonzero(hashed(self.seed, at, batch.num_rows) <= threshold)
            parts.append(batch.take(pyarrow.array(chosen)))
            numbers.append(at + chosen)
            at += batch.num_rows
        if not parts:
            raise UserError(f"a table needs rows, got none in {self.source.path}; add rows")
        return pyarrow.Table.from_batches(parts), np.concatenate(numbers)

    def _encoded(self, encoder: TableEncoder, found: Target, types: dict[str, Any], n: int, folder: Path) -> Target:
        """Write the rows with a target (a class must be in the sample) to X.npy and y.npy, and return their target.

        Too little free disk space is an error.
        """
        import pyarrow

        width = len(encoder.owner_)
        free, needed = shutil.disk_usage(folder).free, 4 * n * width + 8 * n
        if free < 1.1 * needed:
            raise UserError(
                f"an out-of-core audit needs {sized(needed)} of disk in {folder.parent}, got {sized(free)}; free "
                "some space, or set TMPDIR to another folder"
            )
        self.progress(f"reading {self.source.path.name}: {n:,} rows as {width:,} numbers each, {sized(needed)} on disk")
        kept_y, kept_rows, at = [], [], 0
        with open(folder / "X.npy", "wb") as file:
            _write_header(file, (n, width))
            for batch in batches(self.source, [*self.rest, self.column], types):
                table = pyarrow.Table.from_batches([batch])
                y = _target_of(typed(table.select([self.column]), self.target_forms)[0].column(0), found)
                labelled = np.flatnonzero(~np.isnan(y) if found.task == "numbers" else y >= 0)
                X = encoder.transform(table.select(self.rest))
                file.write(np.ascontiguousarray(X[labelled], dtype=np.float32).data)
                kept_y.append(y[labelled])
                kept_rows.append(at + labelled)
                at += batch.num_rows
            rows, y = np.concatenate(kept_rows), np.concatenate(kept_y)
            file.seek(0)
            _write_header(file, (len(rows), width))
        np.save(folder / "y.npy", y)
        left_out = at - len(rows)
        notes = [f"{left_out:,} rows without a target, or with a class that is not in the sample, are left out"]
        return replace(found, y=y, rows=rows, notes=notes if left_out else [])

    def _audit_of(
        self, target: Target, result: TaskResult, encoder: TableEncoder, types: Any, n: int, words: list[str]
    ) -> Audit:
        shown = target.rows[result.order[:SHOWN]]
        note = (
            f"The table would not fit into memory ({sized(memory_needed(self.source))} needed), so it was audited out "
            "of core, in passes over the file. The descriptions of its columns come from a sample of "
            f"{min(n, self.sample_rows):,} rows. Rows were not checked for other problems, such as "
            "outliers and duplicates."
        )
        return Audit(
            name=self.source.path.name,
            n_rows=n,
            target=target,
            result=result,
            columns=encoder.report_,
            feature_columns=[encoder.columns_[index]["name"] for index in encoder.owner_],
            pipeline=Pipeline([("encode", encoder), ("model", result.model)]),
            settings=self._settings(target, encoder, n),
            notes=[note, *target.notes, *result.notes, *words],
            cells=cells_of(_picked(self.source, self.rest, shown, types), self.rest, np.arange(len(shown))),
            seconds=time.perf_counter() - self.start,
            source=self.source,
            row_names=RowNames(None, 1),
            rows_checked=False,
        )

    def _settings(self, target: Target, encoder: TableEncoder, n: int) -> dict[str, str]:
        from .out_of_core_models import FOLDS

        return {
            "task": target.task,
            "target": self.column,
            "ignored columns": ", ".join(dict.fromkeys(self.ignore)) or "none",
            "rows and columns": f"{n:,} x {len(self.source.names):,}, {len(encoder.owner_):,} features after encoding",
            "cross-validation": f"{FOLDS} folds by row number",
            "read": "out of core, because it would not fit into memory",
            "models": "linear" if self.models == "linear" or target.task == "numbers" else "linear, trees of a sample",
            "jobs": "1, because passes run one after the other",
            "m chosen on": "a sample, confirmed on all other rows",
            "seed": str(self.seed),
            "rankrange": __version__,
            "Python": platform.python_version(),
        }


class _ReportedShards:
    """Shards that report each pass over the rows to `progress`."""

    def __init__(self, rows: Any, progress: Progress) -> None:
        self.rows, self.progress, self.count = rows, progress, 0
        self.columns, self.n_rows, self.n_columns = rows.columns, rows.n_rows, rows.n_columns
        self.sample_rows = rows.sample_rows

    def reduce(self, kernel: Any, message: Any) -> Any:
        """Report the pass, and run it."""
        self.count += 1
        fits = len(getattr(message, "requests", ())) or 1
        what = f"{kernel.__name__.replace('_', ' ')}{f', {fits} fits' if fits > 1 else ''}"
        self.progress(f"pass {self.count} over {self.n_rows:,} rows ({what})")
        return self.rows.reduce(kernel, message)

    def map_lazy(self, kernel: Any, message: Any) -> Any:
        """One lazy result per shard."""
        return self.rows.map_lazy(kernel, message)


def _counts_rows(column: Any, numbers: Array) -> bool:
    """Whether a sampled column has row numbers (rows at `numbers`), which the encoder cannot recognise in a sample."""
    values, kind, _ = numbers_of(column)
    return kind == "whole numbers" and values is not None and len(set((values - numbers).tolist())) == 1


def _target_of(column: Any, found: Target) -> Array:
    """The target of each row: a class code, -1 if missing or not in the sample; or a number, NaN if missing."""
    numbers, kind, _ = numbers_of(column)
    if found.task == "numbers":
        return np.full(len(column), np.nan) if numbers is None else numbers
    found_here = _classes(found.columns[0], column, numbers, kind)
    code_of = {name: code for code, name in enumerate(found.names)}
    return np.array([*(code_of.get(name, -1) for name in found_here.names), -1], dtype=np.int32)[found_here.y]


def _write_header(file: Any, shape: tuple[int, int]) -> None:
    header = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _picked(source: Source, columns: list[str], rows: Array, types: Any) -> Any:
    """Read these columns and rows (positions) of the file, in the given order, as a pyarrow Table."""
    import pyarrow

    order, parts, at = np.argsort(rows, kind="stable"), [], 0
    wanted = rows[order]
    for batch in batches(source, columns, types):
        in_batch = wanted[(wanted >= at) & (wanted < at + batch.num_rows)] - at
        parts.append(batch.take(pyarrow.array(in_batch)))
        at += batch.num_rows
    return pyarrow.Table.from_batches(parts).take(pyarrow.array(np.argsort(order, kind="stable")))
