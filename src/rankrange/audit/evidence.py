"""Evidence for a reviewer: unusual values, usual values and nearest rows of each suspect, and charts of the table.

A reason compares a value with those of the rows that have its label or, without classes, of all rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from ..core.arrays import Array
from ..label_noise import POSSIBLE
from ..pages.text import percent
from ..tables.columns import Column
from .pictures import ColumnPicture, colours, column_picture, points_of
from .target import Target
from .task_result import TaskResult

# The largest number of suspects on the page, and of columns shown for each.
SHOWN, SHOWN_COLUMNS = 1000, 40
# The largest number of suspects with nearest rows, the number of these per label, and the share of rare cells.
_WITH_NEIGHBOURS, _NEAREST, _RARE = 250, 2, 0.02
# A cell that more than this share of the rows exceed, or that is as frequent as this, is not unusual.
_USUAL = 0.25
_WORD = re.compile(r"\w{2,}")


@dataclass(frozen=True)
class Near:
    """A neighbour of a suspect: its position in the table, its target, and its cells or pixels."""

    row: int
    target: str
    cells: list[str]
    image: bytes = b""


@dataclass(frozen=True)
class Evidence:
    """The evidence that the page shows."""

    # For each suspect, worst first: a sentence about up to two values that are unusual for its target, or "".
    reasons: list[str] = field(default_factory=list)
    # For each suspect on the page: why a cell is unusual, by the name of its column.
    marks: list[dict[str, str]] = field(default_factory=list)
    # For the first suspects: the nearest rows that are no suspects; of classes, with the given or the suggested label.
    near: list[list[Near]] = field(default_factory=list)
    columns: list[ColumnPicture] = field(default_factory=list)  # those on the page that can be compared
    labels: list[str] = field(default_factory=list)  # the label that each colour of the charts stands for
    # The scatter plot: "x" and "y" from 0 to 1, the "label" of each point as a position in `labels`, and its "rank"
    # among the suspects, 0 for other rows; empty if the model has no scores.
    points: dict[str, list[Any]] = field(default_factory=dict)
    axes: tuple[str, str] = ("", "")


class Groups:
    """The rows to compare a row with: those of its class, or all rows if the target has no classes."""

    def __init__(self, target: Target) -> None:
        classes = target.task == "classes"
        self.of_row = target.y if classes else np.zeros(len(target.y), dtype=np.intp)
        self.words = [f"labelled '{name[:40]}'" for name in target.names] if classes else [""]
        self.rows = [np.flatnonzero(self.of_row == group) for group in range(len(self.words))]

    def of(self, group: int) -> str:
        """The group in words, with the number of its rows."""
        return f"the {len(self.rows[group]):,} rows {self.words[group]}".rstrip()


def _in_words(column: Column) -> Column:
    """The column, as texts if its numbers have at most two values: such values are counted, larger numbers ranked."""
    values = np.empty(0) if column.values is None else np.unique(column.values[~column.missing])
    if not 0 < len(values) <= 2:
        return column
    codes = np.where(column.missing, -1, np.searchsorted(values, column.cells))
    return replace(column, values=None, codes=codes, levels=[column.value_text(value) for value in values.tolist()])


class Values:
    """One column, with its usual values in each group of rows."""

    def __init__(self, column: Column, groups: Groups) -> None:
        self.column, self.groups = _in_words(column), groups
        self.usual, self.as_rare = cache(self._usual_in), cache(self._as_rare_in)

    def text(self, i: int) -> str:
        """The cell of a row, formatted for a sentence."""
        if self.column.missing[i]:
            return "missing"
        text = self.column.cell_text(i)
        return text if self.column.values is not None else f"'{text}'"

    def _usual_in(self, group: int) -> Any:
        """The sorted numbers of a group; or the share of its rows with each code, or with each word of prose."""
        rows, column = self.groups.rows[group], self.column
        if column.values is not None:
            return np.sort(column.values[rows][~column.missing[rows]])
        if column.is_prose:
            counts = Counter(word for i in rows.tolist() for word in self._words(i))
        else:
            counts = Counter(column.cells[rows].tolist())
        return {key: count / len(rows) for key, count in counts.items()}

    def _as_rare_in(self, group: int) -> dict[float, float]:
        """The share of a group whose texts are as rare as one with this share, or rarer."""
        shares = np.sort([*self.usual(group).values()])
        return dict(zip(shares.tolist(), np.cumsum(shares).tolist(), strict=True))  # the last of equal shares counts

    def _share_in(self, group: int, key: Any) -> float:
        """The share of a group with this code or word; of a column of numbers, the share of missing cells."""
        if self.column.values is not None:
            return 1.0 - len(self.usual(group)) / max(len(self.groups.rows[group]), 1)
        return float(self.usual(group).get(key, 0.0))

    def unusual(self, i: int, group: int, other: int | None) -> tuple[float, str]:
        """The share of a group that has cells as extreme or as rare as that of row i, and a sentence about it.

        For texts and missing cells the sentence also compares with the group `other`, if there is one. The share of
        prose is that of the word that `other` has most of all compared with the group. Without such a word, and for a
        number in the middle half of the group, the share is 1. These have no sentence, nor has a frequent text without
        `other`.
        """
        column, of, what = self.column, self.groups.of(group), ""
        if column.values is not None and not column.missing[i]:
            usual, value = self.usual(group), float(column.values[i])
            below, above = np.searchsorted(usual, value, "right"), len(usual) - np.searchsorted(usual, value)
            share = float(min(below, above)) / max(len(usual), 1)
            if not len(usual) or share > _USUAL:  # the middle half of a group
                return 1.0, ""
            size, side = ("low", "above") if below < above else ("high", "below")
            middle = column.value_text(float(usual[len(usual) // 2]), 4)
            return share, f"{_share(share)} of {of} are as {size}, half are {side} {middle}"
        key: Any = int(column.cells[i]) if column.values is None else None
        if column.is_prose:
            if other is None:
                return 1.0, ""
            more = {word: self._share_in(other, word) - self._share_in(group, word) for word in sorted(self._words(i))}
            key = max(more, key=lambda word: more[word], default="")
            if more.get(key, 0.0) <= 0.0:
                return 1.0, ""
            what = f"the word '{key[:40]}' is in "
        share, compared = self._share_in(group, key), ""
        if other is not None:
            compared = f", {_share(self._share_in(other, key))} of those {self.groups.words[other]}"
        rare = share if column.is_prose or column.values is not None else self.as_rare(group)[share]
        unremarkable = other is None and rare > _USUAL
        return rare, "" if unremarkable else f"{what}{_share(share)} of {of}{compared}"

    def _words(self, i: int) -> set[str]:
        code = int(self.column.cells[i])
        return set() if code < 0 else set(_WORD.findall(self.column.levels[code].casefold()))


def gather(
    features: Sequence[Column],
    table: Any,
    X: Any,
    target: Target,
    result: TaskResult,
    owners: Sequence[str],
    seed: int,
    side: int = 0,
) -> Evidence:
    """Compute the evidence for the suspects and the charts of the table.

    `features`, `table` (pyarrow, the columns on the page) and `X` (encoded) hold the rows that have a target. `owners`
    are the columns of the features of X, and `side` is the side of images.
    """
    groups = Groups(target)
    columns = {column.name: Values(column, groups) for column in features}
    code_of = {name: code for code, name in enumerate(target.names)} if target.task == "classes" else {}
    others = [code_of.get(name) for name in result.suggested]  # the group of the suggested label
    usable = [columns[name] for name in table.column_names if _comparable(columns[name].column)]
    names = list(dict.fromkeys(owners))
    labels, colour = colours(target)
    against = np.stack([result.against[:, np.array(owners) == name].sum(axis=1) for name in names], axis=1)
    reasons = [
        _reason([columns[names[c]] for c in _strongest(weight)], i, groups, other)
        for i, other, weight in zip(result.order.tolist(), others, against, strict=True)
    ]
    points, axes = points_of(X, target, result, colour, np.random.default_rng([seed, 15]))
    return Evidence(
        reasons=reasons,
        marks=[_marks(usable, i, groups) for i in result.order[:SHOWN].tolist()],
        near=_nearest(features, table, X, target, result, groups, others, side),
        columns=[column_picture(one.column, colour, len(labels)) for one in usable],
        labels=labels,
        points=points,
        axes=axes,
    )


def _comparable(column: Column) -> bool:
    """Whether the cells of a column can be compared: numbers, or texts with at most 20 or n / 2 distinct values."""
    repeated = column.kind != "other" and len(column.levels) <= max(20, len(column) // 2)
    return not column.missing.all() and (column.values is not None or repeated)


# ---- reasons ---------------------------------------------------------------------------------------------------------


def _strongest(weight: Array) -> list[int]:
    """Up to three columns with the strongest evidence against a label, each with over a tenth of that of the first."""
    best = np.argsort(-weight, kind="stable")[:3]
    return [c for c in best.tolist() if weight[c] > max(0.0, 0.1 * weight.max())]


def _reason(columns: list[Values], i: int, groups: Groups, other: int | None) -> str:
    """The two rarest values of row i in these columns, the rarer first, in words, compared with the group `other`."""
    found = [(*one.unusual(i, int(groups.of_row[i]), other), one) for one in columns]
    found = sorted((one for one in found if one[1]), key=lambda one: one[0])
    return "; ".join(f"{one.column.name[:60]} {one.text(i)}: {words}" for _, words, one in found[:2])


def _marks(columns: list[Values], i: int, groups: Groups) -> dict[str, str]:
    found = {one.column.name: one.unusual(i, int(groups.of_row[i]), None) for one in columns}
    return {name: words for name, (share, words) in found.items() if share <= _RARE}


def _share(share: float) -> str:
    return percent(share) if share else "none"


# ---- the nearest rows ------------------------------------------------------------------------------------------------


def _nearest(
    features: Sequence[Column],
    table: Any,
    X: Any,
    target: Target,
    result: TaskResult,
    groups: Groups,
    others: list[int | None],
    side: int,
) -> list[list[Near]]:
    """For the first suspects, the nearest rows that are none: of classes, those of the given and the suggested one."""
    suspects = result.order[:_WITH_NEIGHBOURS]
    right = np.setdiff1d(np.flatnonzero(result.wrong < POSSIBLE), result.order)
    if not len(suspects) or not len(right):
        return []
    count = _NEAREST if target.task == "classes" else 2 * _NEAREST
    pairs = list(zip(groups.of_row[suspects].tolist(), others, strict=False))
    near = {}
    for group in {one for pair in pairs for one in pair if one is not None}:
        pool = np.intersect1d(groups.rows[group], right)
        if len(pool):
            neighbours = NearestNeighbors(n_neighbors=min(count, len(pool))).fit(X[pool])
            near[group] = pool[neighbours.kneighbors(X[suspects], return_distance=False)]
    chosen = [
        np.concatenate([right[:0], *(near[one][k] for one in pair if one in near)]) for k, pair in enumerate(pairs)
    ]
    flat = np.unique(np.concatenate(chosen)).tolist()
    cells = list(zip(*cells_of(table, flat).values(), strict=True)) or [()] * len(flat)
    images = pixels_of(features, flat, side) or [b""] * len(flat)
    rows = {i: Near(int(target.rows[i]), target.text_of(i), list(cells[k]), images[k]) for k, i in enumerate(flat)}
    return [[rows[i] for i in found.tolist()] for found in chosen]


def short_text(value: Any, most: int = 60) -> str:
    """The value of a cell for display, at most `most` characters; floats have six digits, and None becomes ""."""
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


# ---- images and cells ------------------------------------------------------------------------------------------------


def pixels_of(features: Sequence[Column], rows: Sequence[int] | Array, side: int) -> list[bytes]:
    """The images of these rows as bytes, scaled so that the largest value is 255; empty if `side` is 0 (no images)."""
    if not side or not len(rows):
        return []
    values = np.nan_to_num(np.stack([column.values[rows] for column in features], axis=1))  # type: ignore[index]
    grey = np.clip(values * (255.0 / max(float(values.max()), 1e-12)), 0, 255).astype(np.uint8)
    return [row.tobytes() for row in grey]


def cells_of(table: Any, rows: Sequence[int] | Array) -> dict[str, list[str]]:
    """The cells of these rows as truncated text, by column."""
    chosen = table.take(rows)
    return {name: [short_text(value) for value in chosen.column(name).to_pylist()] for name in chosen.column_names}
