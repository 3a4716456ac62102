"""Audits of large files: the flow of `study` on a sample of the rows, then one pass that predicts all other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.isotonic import IsotonicRegression

from ..core.arrays import Array
from ..errors import UserError
from ..label_noise import LIKELY, POSSIBLE, actions
from ..pages.text import number
from ..tables.columns import Column, find_columns, read_columns
from ..tables.read import Source
from .evidence import SHOWN, SHOWN_COLUMNS, short_text
from .findings import Audit
from .plan import Progress
from .study import audit_table
from .target import RowNames, Target, target_of
from .task_result import LISTED, SURPRISING, Group, Interval, ranking

# Larger files, in bytes of text or of uncompressed columns, are audited by a sample of this many rows and one pass.
LARGE, SAMPLE_ROWS = 200_000_000, 100_000
# Options of `audit_table` that need the table in memory.
_NEED_ALL_ROWS = (
    "labels_by",
    "decisions",
    "group",
    "time",
    "estimator",
    "pred_probs",
    "embeddings",
    "images",
    "pixels",
)


def is_large(source: Source, target: Sequence[str], options: dict[str, Any], limit: int) -> bool:
    """Whether a file is audited by a sample: it is large, with one target and no option that needs all rows."""
    held = options.get("task") == "labels" or any(options.get(name) is not None for name in _NEED_ALL_ROWS)
    return source.n_bytes > limit and len(target) == 1 and not held


def audit_large(source: Source, target: str, progress: Progress, sample_rows: int, **options: Any) -> Audit:
    """Audit a sample of the rows, and predict all other rows in one pass over the file."""
    import pyarrow

    ignored = find_columns(source.names, options.get("ignore", ()), source.path, "ignore")
    columns = [name for name in source.names if name not in ignored]
    progress(f"reading {source.path.name}: a sample of {sample_rows:,} rows")
    sample, rows, n = _sample(source, columns, sample_rows, options.get("seed", 0))
    counts = [name for name in columns if name != target and _counts_rows(sample.column(name), rows)]
    names, options = RowNames(rows + 1), {**options, "ignore": counts}
    audit = audit_table(
        sample, target, source=source, row_names=names, name=source.path.name, progress=progress, **options
    )
    progress(f"predicting all {n:,} rows of {source.path.name}")
    predict = _Predictor(audit, sample, options.get("models", "all"))
    form = read_columns(sample.select([target]), dates=options.get("dates"), decimal=options.get("decimal"))[0].form
    found, at = [], 0
    for batch in (pyarrow.Table.from_batches([one]) for one in source.batches(columns)):
        y = target_of(batch.column(target), audit.target, form)
        kept = np.flatnonzero(~np.isnan(y) if audit.target.task == "numbers" else y >= 0)
        found.append((at + kept, *predict(batch, y, kept)))
        at += batch.num_rows
    return _all_rows(audit, [np.concatenate(part) for part in zip(*found, strict=True)], n)


def _sample(source: Source, columns: list[str], size: int, seed: int) -> tuple[Any, Array, int]:
    """A random sample of rows (pyarrow Table), their positions, and the number of rows, in one pass.

    Every row gets a random key, and the rows with the smallest keys are kept.
    """
    import pyarrow as pa

    rng, table, limit, n = np.random.default_rng(seed), None, 1.0, 0
    keys, rows = np.empty(0), np.empty(0, dtype=np.intp)
    for batch in source.batches(columns):
        drawn = rng.random(batch.num_rows)
        chosen = np.flatnonzero(drawn <= limit)
        part = pa.Table.from_batches([batch]).take(chosen)
        table = part if table is None else pa.concat_tables([table, part])
        keys, rows, n = np.append(keys, drawn[chosen]), np.append(rows, n + chosen), n + batch.num_rows
        if len(keys) > 2 * size:
            kept = np.sort(np.argpartition(keys, size)[:size])
            table, keys, rows = table.take(kept).combine_chunks(), keys[kept], rows[kept]
            limit = float(keys.max())
    if table is None:
        raise UserError(f"a table needs rows, got none in {source.path}; add rows")
    kept = np.sort(np.argsort(keys, kind="stable")[:size])
    return table.take(kept), rows[kept], n


def _counts_rows(cells: Any, rows: Array) -> bool:
    """Whether a sampled column has row numbers, which the encoder cannot recognise in a sample."""
    values = Column.of("", cells).values
    return values is not None and len(set((values - rows).tolist())) == 1


class _Predictor:
    """Predicts further rows with models of the sample: the robust linear one and, unless "linear", boosted trees.

    p(wrong) is a monotone function of the predicted probability of the given class, or of the residual on each side,
    which is fitted to the sample.
    """

    def __init__(self, audit: Audit, sample: Any, models: str) -> None:
        self.result, self.target = audit.result, audit.target
        self.encoder = audit.pipeline.named_steps["encode"]
        self.columns = [column["name"] for column in self.encoder.columns_]
        self.forms = self.encoder.forms_
        self.classes = self.target.task == "classes"
        X, y = self.encoder.transform(sample.select(self.columns).take(self.target.rows)), self.target.y
        self.weights, self.trees = self._weights(), None
        if models != "linear" and self.weights[1] > 0:
            trees = HistGradientBoostingClassifier if self.classes else HistGradientBoostingRegressor
            loss = {} if self.classes else {"loss": "absolute_error"}
            self.trees = trees(early_stopping=False, random_state=0, **loss).fit(X, y)
        known: Any = self._out_of_fold() if self.classes else self.result.residuals
        self.sides = self._side_of(known, y)
        self.curves = {
            side: IsotonicRegression(increasing=not self.classes, out_of_bounds="clip").fit(
                np.abs(known[self.sides == side]), self.result.wrong[self.sides == side]
            )
            for side in np.unique(self.sides).tolist()
        }

    def _weights(self) -> Array:
        """The weights of the linear model and of the trees, from those of the ensemble."""
        if not self.classes:
            return np.asarray(self.result.posterior[:2]) / sum(self.result.posterior[:2])
        boosted = sum(weight for name, weight, _ in self.result.posterior.members if name == "boosting")
        linear = sum(weight for name, weight, _ in self.result.posterior.members if name in ("ordinary", "robust"))
        return np.array([linear, boosted]) / max(linear + boosted, 1e-12) if linear + boosted else np.array([1.0, 0.0])

    def _out_of_fold(self) -> Array:
        """The out-of-fold probability of the given class in the sample, by the same two kinds of models."""
        members = {name: P / P.sum(axis=1, keepdims=True) for name, _, P in self.result.posterior.members}
        P = self.weights[0] * members["robust"] + self.weights[1] * members.get("boosting", members["robust"])
        return np.asarray(P[np.arange(len(P)), self.target.y])

    def _side_of(self, known: Array, y: Array) -> Array:
        return y if self.classes else (known >= 0).astype(np.intp)

    def __call__(self, table: Any, y: Array, kept: Array) -> tuple[Array, ...]:
        """y, p(wrong), probability, loss, suggestion and residual of the rows `kept` of a table of one batch."""
        X, y = self.encoder.transform(table.select(self.columns).take(kept)), y[kept]
        if not self.classes:
            predicted = self.result.model.predict(X)
            if self.trees is not None:
                predicted = self.weights[0] * predicted + self.weights[1] * self.trees.predict(X)
            residual, scale = y - predicted, float(self.result.model.transformer_.scale_[0])
            wrong = self._p_wrong(np.abs(residual), self._side_of(residual, y))
            return y, wrong, 1.0 - wrong, (residual / scale) ** 2, predicted, residual
        order = [self.result.model.classes_.tolist().index(name) for name in self.target.names]
        P = self.result.model.predict_proba(X)[:, order]
        P = self.weights[0] * P + self.weights[1] * (self.trees.predict_proba(X) if self.trees else P)
        probability = P[np.arange(len(y)), y]
        P[np.arange(len(y)), y] = -1.0
        wrong = self._p_wrong(probability, y)
        return y, wrong, probability, -np.log(np.maximum(probability, 1e-30)), P.argmax(axis=1), P.max(axis=1)

    def _p_wrong(self, known: Array, sides: Array) -> Array:
        wrong = np.zeros(len(known))
        for side, curve in self.curves.items():
            rows = sides == side
            wrong[rows] = curve.predict(known[rows]) if rows.any() else 0.0
        return wrong


def _all_rows(audit: Audit, found: list[Array], n: int) -> Audit:
    """The audit with the results of all rows; those of the sample stay as they are."""
    rows, y, wrong, probability, losses, suggested, other = found
    j, sampled = audit.result, np.searchsorted(rows, audit.row_names.numbers(audit.target.rows) - 1)
    wrong[sampled], probability[sampled], losses[sampled] = j.wrong, j.probability, j.losses
    wrong = np.zeros(len(rows)) if audit.observed else wrong
    classes = j.task == "classes"
    if audit.observed:
        order = ranking(1.0 - probability, probability < SURPRISING, LISTED)
    else:
        score = 0.8 * wrong + 0.2 * (1.0 - probability) if classes else wrong + losses / max(losses.max(), 1e-300)
        order = ranking(score, wrong >= POSSIBLE, LISTED if classes else 0)
    names = audit.target.names
    texts = [names[int(c)] if classes else number(float(c)) for c in suggested[order]]
    dropped = np.zeros(len(rows), dtype=bool)
    dropped[sampled] = j.dropped
    target: Target = replace(audit.target, y=y.astype(audit.target.y.dtype), rows=rows, notes=[])
    result = replace(
        j,
        wrong=wrong,
        probability=probability,
        losses=losses,
        dropped=dropped,
        order=order,
        suggested=texts,
        actions=actions(wrong[order], wrong[order] * (other[order] > 0.5) if classes else np.zeros(len(order))),
        expected=[
            f"models of other rows give '{names[int(y[i])]}' {probability[i]:.0%} and '{text}' {max(other[i], 0):.0%}"
            if classes
            else f"expected {text} by models of other rows; the value is off by {number(abs(float(other[i])), 4)}"
            for i, text in zip(order.tolist(), texts, strict=True)
        ],
        against=np.zeros((len(order), 0)),
        residuals=None if classes else other,
        groups=_groups(j.groups, y, wrong, dropped, names) if classes else j.groups,
        noise=Interval(float(wrong.mean()), j.noise.low, j.noise.high),
    )
    note = (
        f"The file is large: models, scores, the description of columns and the checks of rows come from a sample of "
        f"{len(sampled):,} rows; all {n:,} rows were then predicted in one pass."
    )
    names_of = RowNames(None, 1)
    whole = replace(audit, n_rows=n, target=target, result=result, row_names=names_of, notes=[note, *audit.notes])
    evidence = replace(audit.evidence, reasons=[], marks=[], near=[], points={})
    shown = whole.identified.cells[:SHOWN]
    place = {name: i for i, name in enumerate(whole.source.names)}
    cells = {name: [short_text(row[place[name]]) for row in shown] for name in list(audit.cells)[:SHOWN_COLUMNS]}
    return replace(whole, cells=cells, evidence=evidence)


def _groups(groups: list[Group], y: Array, wrong: Array, dropped: Array, names: list[str]) -> list[Group]:
    counts = [np.bincount(y[mask], minlength=len(names)) for mask in (slice(None), dropped, wrong >= LIKELY)]
    return [Group(group.name, *(int(count[c]) for count in counts)) for c, group in enumerate(groups)]
