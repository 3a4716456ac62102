"""An audit of a file: in memory (`study`), or if it is large by a sample and one pass that predicts all other rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.isotonic import IsotonicRegression

from ..core.arrays import Array
from ..errors import UserError
from ..issues.find import P_WRONG_IN_SCORE
from ..label_noise import actions
from ..tables.columns import Column, read_columns
from ..tables.read import Source, open_table
from .classification import prediction
from .evidence import SHOWN, short_text
from .findings import Audit
from .plan import Progress
from .regression import expected_text, residual_in_words, usual_size
from .study import audit_table, column_roles
from .target import RowNames, target_of
from .task_result import LISTED, groups_of, ranking

# Larger files, in bytes of text or of uncompressed columns, are audited by a sample of this many rows and one pass.
LARGE, SAMPLE_ROWS = 200_000_000, 100_000
# Options of `audit_table` that need the table in memory.
_ALL_ROWS = ("labels_by", "decisions", "group", "time", "estimator", "pred_probs", "embeddings", "images", "pixels")


def audit_file(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Source,
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
    path : path, sequence of paths, or Source
        A file in one of the formats CSV, JSON lines, JSON array (these also as gzip), Parquet, Arrow, Feather, ORC or
        Excel; a folder with a saved Hugging Face data set or Parquet files; or several files with the same columns. "-"
        is standard input. A file that was opened by `rankrange.tables.read.open_table` is a Source.
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
    source = path if isinstance(path, Source) else open_table(path, delimiter=delimiter, encoding=encoding, sheet=sheet)
    columns, _, _, rest = column_roles(source.names, target, options, source.path)  # before the whole file is read
    progress = progress or (lambda words: None)
    # With one target and no option that needs all rows.
    held = options.get("task") == "labels" or any(options.get(name) is not None for name in _ALL_ROWS)
    if source.n_bytes > large_from and len(columns) == 1 and not held:
        return _audit_large(source, columns[0], rest, progress, sample_rows, **options)
    progress(f"reading {source.path.name}")
    table = source.read()
    return audit_table(table, columns, name=source.path.name, source=source, progress=progress, **options)


def _audit_large(
    source: Source, target: str, rest: list[str], progress: Progress, sample_rows: int, **options: Any
) -> Audit:
    """Audit a sample of the rows, and predict all other rows in one pass over the file."""
    import pyarrow

    columns = [name for name in source.names if name == target or name in rest]
    progress(f"reading {source.path.name}: a sample of {sample_rows:,} rows")
    sample, rows, n = _sample(source, columns, sample_rows, options.get("seed", 0))
    options["ignore"] = [name for name in rest if _counts_rows(sample.column(name), rows)]
    audit = audit_table(
        sample, target, source=source, row_names=RowNames(rows + 1), name=source.path.name, progress=progress, **options
    )
    progress(f"predicting all {n:,} rows of {source.path.name}")
    predictor = _Predictor(audit, sample, options.get("models", "all"))
    form = read_columns(sample.select([target]), dates=options.get("dates"), decimal=options.get("decimal"))[0].form
    parts, at = [], 0
    for batch in (pyarrow.Table.from_batches([one]) for one in source.batches(columns)):
        y = target_of(batch.column(target), audit.target, form)
        kept = np.flatnonzero(~np.isnan(y) if audit.target.task == "numbers" else y >= 0)
        parts.append((at + kept, y[kept], *predictor.predict(batch.take(kept), y[kept])))
        at += batch.num_rows
    return _all_rows(audit, predictor, n, *(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _sample(source: Source, columns: list[str], size: int, seed: int) -> tuple[Any, Array, int]:
    """A random sample of rows (pyarrow Table), their positions, and the number of rows, in one pass.

    Every row gets a random key, and the rows with the smallest keys are kept.
    """
    import pyarrow as pa

    rng, parts, limit, n = np.random.default_rng(seed), [], 1.0, 0
    keys, rows = np.empty(0), np.empty(0, dtype=np.intp)
    for batch in source.batches(columns):
        drawn = rng.random(batch.num_rows)
        chosen = np.flatnonzero(drawn <= limit)
        parts.append(pa.Table.from_batches([batch]).take(chosen))
        keys, rows, n = np.append(keys, drawn[chosen]), np.append(rows, n + chosen), n + batch.num_rows
        if len(keys) > 2 * size:
            kept = np.sort(np.argpartition(keys, size)[:size])
            parts, keys, rows = [pa.concat_tables(parts).take(kept).combine_chunks()], keys[kept], rows[kept]
            limit = float(keys.max())
    if not parts:
        raise UserError(f"a table needs rows, got none in {source.path}; add rows")
    kept = np.sort(np.argsort(keys, kind="stable")[:size])
    return pa.concat_tables(parts).take(kept), rows[kept], n


def _counts_rows(cells: Any, rows: Array) -> bool:
    """Whether a sampled column has row numbers, which the encoder cannot recognise in a sample."""
    values = Column.of("", cells).values
    return values is not None and len(set((values - rows).tolist())) == 1


class _Predictor:
    """Predicts further rows with models of the sample: the robust linear one and, unless "linear", boosted trees."""

    def __init__(self, audit: Audit, sample: Any, models: str) -> None:
        result, y, names = audit.result, audit.target.y, audit.target.names
        self.encoder, self.classes = audit.pipeline.named_steps["encode"], audit.target.task == "classes"
        if self.classes:
            weights = {name: weight for name, weight, _ in result.posterior.members}
            linear, boosted = weights.get("ordinary", 0.0) + weights["robust"], weights.get("boosting", 0.0)
            self.order = [result.model.classes_.tolist().index(name) for name in names]
        else:
            linear, boosted = result.posterior[:2]
            self.unit = float(result.model.transformer_.scale_[0])
        share = boosted / max(linear + boosted, 1e-12) if models != "linear" else 0.0
        self.models = [(1.0 - share, result.model)]
        if share > 0:
            trees: Any = HistGradientBoostingClassifier(early_stopping=False, random_state=0)
            if not self.classes:
                trees = HistGradientBoostingRegressor(loss="absolute_error", early_stopping=False, random_state=0)
            given = np.array(names)[y] if self.classes else y
            self.models.append((share, trees.fit(self.encoder.transform(sample.take(audit.target.rows)), given)))
        self.known = np.asarray(result.probability if self.classes else result.residuals)
        self.side = self._sides(self.known, y)

    def _sides(self, known: Array, y: Array) -> Array:
        return y if self.classes else (known >= 0).astype(np.intp)

    def predict(self, table: Any, y: Array) -> tuple[Array, Array, Array]:
        """What is known of rows with the target y: the probability of their class, or their residual.

        The others are the best other class and its probability, or the expected value and again the residual.
        """
        X, rows = self.encoder.transform(table), np.arange(len(y))
        found: Any = 0.0
        for share, model in self.models:
            found = found + share * (model.predict_proba(X)[:, self.order] if self.classes else model.predict(X))
        if not self.classes:
            return y - found, found, y - found
        known = found[rows, y]
        found[rows, y] = -1.0
        return known, found.argmax(axis=1), found.max(axis=1)

    def p_wrong(self, wrong: Array, known: Array, y: Array) -> Array:
        """p(wrong) of rows by monotone functions of what is known of them, fitted to p(wrong) of the sample."""
        sides, found = self._sides(known, y), np.zeros(len(y))
        for side in np.intersect1d(sides, self.side):
            inside, rows = self.side == side, sides == side
            curve = IsotonicRegression(increasing=not self.classes, out_of_bounds="clip")
            found[rows] = curve.fit(np.abs(self.known[inside]), wrong[inside]).predict(np.abs(known[rows]))
        return found


def _all_rows(
    audit: Audit, predictor: _Predictor, n: int, rows: Array, y: Array, known: Array, suggested: Array, other: Array
) -> Audit:
    """The audit with the results of all rows; those of the sample stay as they are."""
    j, names, classes = audit.result, audit.target.names, audit.target.task == "classes"
    sampled = np.searchsorted(rows, audit.row_names.name(audit.target.rows) - 1)
    dropped = np.zeros(len(rows), dtype=bool)
    known[sampled], dropped[sampled] = predictor.known, j.dropped
    wrong, usual = predictor.p_wrong(j.wrong, known, y), usual_size(predictor.known)
    probability = known.copy() if classes else 2.0 * norm.sf(np.abs(known) / usual)
    wrong[sampled], probability[sampled] = j.wrong, j.probability
    losses = -np.log(np.maximum(known, 1e-30)) if classes else (known / predictor.unit) ** 2
    score = P_WRONG_IN_SCORE * wrong + (1.0 - P_WRONG_IN_SCORE) * (1.0 - probability) if classes else losses
    order = ranking(score, wrong, probability, LISTED if classes else 0, observed=audit.observed)
    if classes:
        texts = [names[int(c)] for c in suggested[order]]
        both = np.stack([probability, other], axis=1)
        labels = [[names[int(y[i])], text] for i, text in zip(order, texts, strict=True)]
        expected = [prediction({}, both, i, (0, 1), wrong[i], two) for i, two in zip(order, labels, strict=True)]
    else:
        pairs = zip(suggested[order].tolist(), other[order].tolist(), strict=True)
        texts = [expected_text(*pair) for pair in pairs]
        expected = residual_in_words(suggested[order], other[order], usual)
    result = replace(
        j,
        wrong=wrong,
        probability=probability,
        losses=losses,
        dropped=dropped,
        order=order,
        suggested=texts,
        actions=actions(wrong[order], wrong[order] * (other[order] > 0.5) if classes else np.zeros(len(order))),
        expected=expected,
        against=np.zeros((len(order), 0)),
        residuals=None if classes else known,
        groups=groups_of(names, y, dropped, wrong, losses) if classes else j.groups,
        noise=replace(j.noise, value=float(wrong.mean())),
    )
    note = (
        f"The file is large: models, scores, the description of columns and the checks of rows come from a sample of "
        f"{len(sampled):,} rows; all {n:,} rows were then predicted in one pass."
    )
    whole = replace(
        audit,
        n_rows=n,
        target=replace(audit.target, y=y.astype(audit.target.y.dtype), rows=rows, notes=[]),
        result=result,
        row_names=RowNames(None, 1),
        notes=[note, *audit.notes],
        evidence=replace(audit.evidence, reasons=[], marks=[], near=[], points={}),
    )
    cells = zip(*whole.identified.cells[:SHOWN], strict=True)
    shown = dict(zip(whole.source.names, cells, strict=False))
    return replace(whole, cells={name: [short_text(cell) for cell in shown.get(name, ())] for name in audit.cells})
