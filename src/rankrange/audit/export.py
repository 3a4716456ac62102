"""The contents of the output files of an audit: suspects, other problems, the cleaned table, the model, the page.

In CSV, cells that a spreadsheet program would read as a formula get a leading apostrophe; Parquet keeps values
unchanged. `tables.write` writes the files.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..core.arrays import Array
from ..errors import UserError
from ..pages.text import csv_safe, plural, visible
from ..tables.formats import batches
from ..tables.read import Source, rows_as_text
from ..tables.write import Writer, csv_lines, packed
from .applying import changed, write_typed

if TYPE_CHECKING:
    from .findings import Audit, Suspect

_ADDED = ("rank", "row", "given", "suggested", "p_wrong", "loss", "action", "why")
# Rows with at least this probability of being wrong are changed without a review.
CLEAN_IF = 0.9
# Types that a model file may contain besides those that skops trusts by default.
_TRUSTED = (
    "rankrange.tables.encode.ColumnReport",
    "rankrange.tables.encode.TableEncoder",
    "rankrange.estimators.classifier.AoRRClassifier",
    "rankrange.estimators.regressor.AoRRRegressor",
    "rankrange.estimators.tkml.TKMLClassifier",
)


def contents_of(
    audit: Audit, source: Source, outputs: Mapping[str, Path], *, relabel: bool = False, clean_if: float = CLEAN_IF
) -> dict[Path, bytes | Writer]:
    """The contents of each output file, by path: bytes, or a function that writes them.

    `outputs` has the path of each output by its option, such as "--clean". The cleaned table drops the rows with a
    p_wrong of at least `clean_if`; with `relabel`, it relabels those of them for which one other label fits, which is
    an error unless the target has classes.
    """
    if relabel:
        check_relabel(audit.result.task)
    made: dict[str, Callable[[Path], bytes | Writer]] = {
        "--report": lambda path: audit.report().encode(),
        "--out": lambda path: packed(path, lambda file: _write_suspects(audit, source, file, path)),
        "--clean": lambda path: packed(path, lambda file: _write_clean(audit, source, file, path, (relabel, clean_if))),
        "--model": lambda path: _model(audit),
        "--problems": lambda path: packed(path, lambda file: _write_problems(audit, file)),
    }
    return {path: made[option](path) for option, path in outputs.items()}


def _write_problems(audit: Audit, file: BinaryIO) -> None:
    """Write one line per row of each problem; a column that leaks or drifts has one line without a row."""
    names = ["kind", "row", "column", "value", "usual", "strength", "action", "sentence"]
    file.write(csv_lines([names], ","))
    for problem in audit.row_problems:
        cells = [csv_safe(visible(text)) for text in (problem.column or "", problem.value, problem.usual)]
        ending = [f"{problem.strength:.3f}", problem.action, csv_safe(visible(problem.sentence))]
        file.write(csv_lines(([problem.kind, row, *cells, *ending] for row in problem.rows or ("",)), ","))


def check_relabel(task: str) -> None:
    """Raise an error unless the target has classes, because only these can be relabelled without a review."""
    if task != "classes":
        what = "a numeric target" if task == "numbers" else "a multi-label target"
        raise UserError(f"clean_how='relabel' needs a target with classes, got {what}; use clean_how='drop'")


def load_model(path: str | os.PathLike[str]) -> Any:
    """Load a model that an audit saved. Loading does not run any code from the file.

    Parameters
    ----------
    path : path
        The file that `rankrange audit --model` wrote.

    Returns
    -------
    sklearn.pipeline.Pipeline
        The fitted model. It predicts from a table (pyarrow, pandas, polars or a dict of columns) with the feature
        columns of the audited table.

    Raises
    ------
    ValueError
        If the file contains a type that neither skops trusts by default nor a model of this package needs.

    Examples
    --------
    >>> import os, tempfile
    >>> import skops.io
    >>> from rankrange.audit import audit_table, load_model
    >>> table = {"x": [i % 7 + i // 20 * 9 for i in range(40)], "kind": ["a"] * 20 + ["b"] * 20}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.skops")
    ...     skops.io.dump(audit_table(table, "kind").pipeline, path)  # as --model does
    ...     model = load_model(path)
    >>> model.predict({"x": [0, 14]}).tolist()
    ['a', 'b']
    """
    import skops.io

    unknown = set(skops.io.get_untrusted_types(file=path)) - set(_TRUSTED)
    if unknown:
        raise ValueError(
            f"a model file must contain types of rankrange only, got {sorted(unknown)[0]} in {path}; do not load it"
        )
    return skops.io.load(path, trusted=list(_TRUSTED))


def _model(audit: Audit) -> bytes:
    import skops.io

    return skops.io.dumps(audit.pipeline)


# ---- suspects --------------------------------------------------------------------------------------------------------


def _write_suspects(audit: Audit, source: Source, file: BinaryIO, path: Path) -> None:
    """Write one line per listed row, worst first: the findings, then the cells of the row as in the file.

    A column of the file with the name of a finding is renamed, such as "row in the file".
    """
    suspects = audit.suspects()
    rows = audit.target.rows[audit.result.order]
    cells = rows_as_text(source, rows)
    added = [*_ADDED, *(["residual"] if audit.result.residuals is not None else [])]
    names = [f"{name} in the file" if name in added else name for name in source.names]
    file.write(csv_lines([[*added, *map(csv_safe, names)]], ","))
    for start in range(0, len(suspects), 10_000):
        part = slice(start, start + 10_000)
        lines = (
            [*_found(suspect), *map(csv_safe, row)] for suspect, row in zip(suspects[part], cells[part], strict=True)
        )
        file.write(csv_lines(lines, ","))


def _found(suspect: Suspect) -> list[Any]:
    cells = [csv_safe(suspect.given), csv_safe(suspect.suggested), f"{suspect.p_wrong:.4f}", f"{suspect.loss:.6g}"]
    off = [] if suspect.residual is None else [f"{suspect.residual:.6g}"]
    return [suspect.rank, suspect.row, *cells, suspect.action, csv_safe(visible(suspect.why)), *off]


# ---- the cleaned table -----------------------------------------------------------------------------------------------


def _write_clean(audit: Audit, source: Source, file: BinaryIO, path: Path, how: tuple[bool, float]) -> None:
    """Write the cleaned table, as Parquet if the path ends so, otherwise as CSV; rows without a target are kept.

    `how` has the arguments `relabel` and `clean_if` of `contents_of`.
    """
    result, rows = audit.result, audit.target.rows
    order = result.order
    relabelled, drop = _relabelled_and_dropped(audit, *how)
    dropped = np.zeros(audit.n_rows, dtype=bool)
    dropped[rows[order[drop]]] = True
    labels = {int(rows[i]): result.suggested[rank] for rank, i in enumerate(order.tolist()) if relabelled[rank]}
    if path.name.lower().endswith(".parquet"):
        _clean_parquet(audit, source, file, dropped, labels)
    else:
        _clean_csv(audit, source, file, dropped, labels)


def _relabelled_and_dropped(audit: Audit, relabel: bool, clean_if: float) -> tuple[Array, Array]:
    """Masks of the suspects to relabel (those with the action "relabel", if `relabel`) and of those to drop."""
    result = audit.result
    selected = result.wrong[result.order] >= clean_if
    relabelled = selected & (result.actions == "relabel") if relabel else np.zeros_like(selected)
    return relabelled, selected & ~relabelled


def clean_in_words(audit: Audit, relabel: bool, clean_if: float = CLEAN_IF) -> str:
    """A description of the cleaned table: how many rows were relabelled, dropped, or are likely wrong and kept."""
    relabelled, dropped = (int(mask.sum()) for mask in _relabelled_and_dropped(audit, relabel, clean_if))
    limit = f"p(wrong) of at least {clean_if:.0%}"
    text = (
        f"the table without the {plural(dropped, 'row')} with {limit}"
        if dropped
        else f"the table without changes, because no row has {limit}"
    )
    if relabel:
        text = f"the table with {plural(relabelled, 'row')} relabelled and {dropped:,} dropped, those with {limit}"
    left = audit.n_likely - relabelled - dropped
    return f"{text}; {plural(left, 'likely wrong row')} {'stays' if left == 1 else 'stay'}" if left > 0 else text


def _clean_csv(audit: Audit, source: Source, file: BinaryIO, dropped: Array, labels: dict[int, str]) -> None:
    column = source.names.index(audit.target.columns[0])
    file.write(csv_lines([list(map(csv_safe, source.names))], source.delimiter))
    start = 0
    for batch in source.text_batches():
        part = slice(start, start + batch.num_rows)
        new = [(row - start, label) for row, label in labels.items() if part.start <= row < part.stop]
        batch = _relabelled(batch, column, new) if new else batch
        kept = batch.filter(~dropped[part]) if dropped[part].any() else batch
        file.write(_batch_as_csv(kept, source.delimiter))
        start = part.stop


def _relabelled(batch: Any, column: int, new: list[tuple[int, str]]) -> Any:
    import pyarrow

    values = batch.column(column).to_pylist()
    for position, label in new:
        values[position] = label
    return batch.set_column(column, batch.schema.names[column], pyarrow.array(values, type=pyarrow.string()))


def _batch_as_csv(batch: Any, delimiter: str) -> bytes:
    """Lines of CSV: fast if no cell needs quotes or looks like a formula, otherwise cell by cell."""
    import pyarrow
    import pyarrow.compute as compute
    import pyarrow.csv

    # Empty, a number, or a first character that cannot start a formula. This is stricter than csv_safe.
    plain = r"^$|^-?[0-9.]+(e-?[0-9]+)?$|^[\pL0-9_(\[{<>/#$&!*.:;~^]"
    if all(compute.all(compute.match_substring_regex(column, plain)).as_py() is not False for column in batch.columns):
        buffer = io.BytesIO()
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none", delimiter=delimiter)
        try:
            pyarrow.csv.write_csv(batch, buffer, options)
            return buffer.getvalue()
        except pyarrow.ArrowInvalid:  # a cell holds the delimiter, a quote or a new line
            pass
    return csv_lines(zip(*(map(csv_safe, column.to_pylist()) for column in batch.columns), strict=True), delimiter)


def _clean_parquet(audit: Audit, source: Source, file: BinaryIO, dropped: Array, labels: dict[int, str]) -> None:
    column = source.names.index(audit.target.columns[0])
    if getattr(source, "kind", "") != "parquet":
        write_typed(source.read(), {row: {column: label} for row, label in labels.items()}, dropped, file, ".parquet")
        return
    import pyarrow
    import pyarrow.parquet

    start, writer = 0, None
    for batch in batches(source):  # in batches, because the table may be larger than memory
        part = slice(start, start + batch.num_rows)
        new = {row - start: {column: label} for row, label in labels.items() if part.start <= row < part.stop}
        table = changed(pyarrow.Table.from_batches([batch]), new, dropped[part])
        writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
        start = part.stop
    if writer is not None:
        writer.close()
