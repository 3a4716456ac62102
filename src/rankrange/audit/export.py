"""The contents of the output files of an audit; `tables.write` writes them.

In CSV, cells like formulas get a leading apostrophe; Parquet keeps values unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..pages.text import plural, visible
from ..tables.read import Source
from ..tables.write import Writer, csv_lines, packed
from .applying import changes_of, fixed_contents
from .decisions import Decision, decisions_about, target_as_text
from .evidence import short_text
from .findings import RECORDS

if TYPE_CHECKING:
    from .findings import Audit

_ABOUT: tuple[str, ...] = ("contents", "table", "target", "task")
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
    audit: Audit,
    source: Source,
    outputs: Mapping[str, Path],
    *,
    relabel: bool = False,
    clean_if: float = CLEAN_IF,
    rows: bool = True,
) -> dict[Path, bytes | Writer]:
    """The contents of each output file, by path: bytes, or a function that writes them. An export has two files.

    `outputs` has the path of each output by its option, such as "--clean": the table after the decision to drop the
    rows with a p_wrong of at least `clean_if`, or with `relabel` to relabel those for which another target fits.
    Without `rows` the page has no cells of single rows.
    """
    made: dict[str, Callable[[Path], bytes | Writer]] = {
        "--report": lambda path: audit.report(rows).encode(),
        "--out": lambda path: packed(path, lambda file: _write_suspects(audit, source, file)),
        "--clean": lambda path: _cleaned(audit, source, path, relabel, clean_if),
        "--model": lambda path: _model(audit),
        "--problems": lambda path: packed(path, lambda file: _write_problems(audit, file)),
    }
    files: dict[Path, bytes | Writer] = {}
    for option, path in outputs.items():
        files |= audit.to_label_studio().contents(path) if option not in made else {path: made[option](path)}
    return files


def _write_problems(audit: Audit, file: BinaryIO) -> None:
    """Write one line per row of each problem; a column that leaks or drifts has one line without a row."""
    names = ["kind", "row", "column", "value", "usual", "strength", "action", "sentence"]
    file.write(csv_lines([names]))
    for problem in audit.row_problems:
        cells = [visible(text) for text in (problem.column or "", problem.value, problem.usual)]
        ending = [f"{problem.strength:.3f}", problem.action, visible(problem.sentence)]
        file.write(csv_lines([problem.kind, row, *cells, *ending] for row in problem.rows or ("",)))


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


def _write_suspects(audit: Audit, source: Source, file: BinaryIO) -> None:
    """Write one line per listed row, worst first: the findings, then the cells of the row as in the file.

    A column of the table with the name of a finding is renamed, such as "row in the file".
    """
    identified, added, about = audit.identified, list(RECORDS[audit.labels]), _ABOUT
    if audit.observed:
        about = ()
    else:
        at = added.index("why")
        added[at:at] = ["decision", "new_label"]
    names = [f"{name} in the file" if name in (*added, *about) else name for name in source.names]
    file.write(csv_lines([[*added, *names, *about]]))
    of_table = (identified.table, target_as_text(audit.target.columns), audit.target.task)
    for i, record in enumerate(audit.records()):
        row = {**record, "given": identified.given[i], "why": visible(record["why"])}
        ending = (identified.contents[i], *of_table) if about else ()
        file.write(csv_lines([[*(short_text(row.get(name), 10**6) for name in added), *identified.cells[i], *ending]]))


# ---- the cleaned table -----------------------------------------------------------------------------------------------


def certain(audit: Audit, relabel: bool, clean_if: float) -> dict[int, Decision]:
    """The decisions to drop or relabel the rows that are almost certainly wrong, by position."""
    result, found = audit.result, {}
    for rank, i in enumerate(result.order.tolist()):
        p = float(result.wrong[i])
        if p >= clean_if:
            position = int(audit.target.rows[i])
            changes = relabel and result.actions[rank] == "relabel"
            choice, label = ("relabel", result.suggested[rank]) if changes else ("drop", "")
            found[position] = Decision(str(position + 1), "", choice, label, p)
    return found


def _cleaned(audit: Audit, source: Source, path: Path, relabel: bool, clean_if: float) -> Writer:
    decisions = decisions_about(audit, certain(audit, relabel, clean_if))
    return fixed_contents(source, changes_of(decisions, source), path, copy=False)


def clean_in_words(audit: Audit, relabel: bool, clean_if: float = CLEAN_IF) -> str:
    """A description of the cleaned table: how many rows were relabelled, dropped, or are likely wrong and kept."""
    choices = [made.choice for made in certain(audit, relabel, clean_if).values()]
    relabelled, dropped = choices.count("relabel"), choices.count("drop")
    limit = f"p(wrong) of at least {clean_if:.0%}"
    text = f"the table without the {plural(dropped, 'row')} with {limit}"
    if not choices:
        text = f"the table without changes, because no row has {limit}"
    if relabel:
        text = f"the table with {plural(relabelled, 'row')} relabelled and {dropped:,} dropped, those with {limit}"
    left = audit.n_likely - len(choices)
    return f"{text}; {plural(left, 'likely wrong row')} {'stays' if left == 1 else 'stay'}" if left > 0 else text
