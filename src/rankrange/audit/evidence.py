"""Evidence for a reviewer: unusual values, usual values and nearest rows of each suspect, and charts of the table.

A reason compares a value of the row with the values of the rows that have its label or, if the target has no classes,
of all rows. Shares are estimated from at most 20,000 random rows per label. `pictures` computes the data of the charts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..label_noise import POSSIBLE
from ..tables.columns import Column
from .pictures import ColumnPicture, colours, column_picture, points_of
from .target import Target
from .task_result import TaskResult

# The largest number of suspects on the page, and of columns shown for each.
SHOWN, SHOWN_IMAGES, SHOWN_COLUMNS = 1000, 500, 40
# The largest number of suspects with nearest rows, of nearest rows per label, and of rows to search.
WITH_NEIGHBOURS, WITH_IMAGES, _NEAREST, _SEARCHED = 250, 100, 2, 30_000
_SAMPLE = 20_000
_TAILS = ((0.01, 0.99), (0.05, 0.95), (0.10, 0.90), (0.25, 0.75))
_RARE = 0.02
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
    """The evidence that the page shows.

    Attributes
    ----------
    reasons : list of str
        For each suspect, worst first: a sentence about up to two values that are unusual for its target, or "".
    marks : list of dict
        For each suspect on the page: a dict from column names to the reason why the cell is unusual.
    near : list of list of Near
        For the first suspects: the nearest rows that are not suspects. If the target has classes, they have the given
        or the suggested label.
    columns : list of ColumnPicture
        The distribution of each column on the page that can be compared (numbers, repeated texts), for the overview.
    labels : list of str
        The label that each colour of the charts stands for.
    points : dict
        The scatter plot: "x" and "y" from 0 to 1, the "label" of each point as a position in `labels`, and its "rank"
        among the suspects (0 for other rows). Empty if the model has no scores.
    axes : tuple of str
        The axis labels of the scatter plot.
    """

    reasons: list[str] = field(default_factory=list)
    marks: list[dict[str, str]] = field(default_factory=list)
    near: list[list[Near]] = field(default_factory=list)
    columns: list[ColumnPicture] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    points: dict[str, list[Any]] = field(default_factory=dict)
    axes: tuple[str, str] = ("", "")


class Values:
    """One column, with its usual values in each group of rows (`Groups`).

    `numbers` is None for texts, which have `codes` and `levels` instead; `prose` marks free text.
    """

    def __init__(self, column: Column, groups: Groups) -> None:
        self.column, self.name, self.groups = column, column.name, groups
        self.numbers, self.codes, self.levels, self.prose = column.values, column.codes, column.levels, column.is_prose
        self._usual: dict[int, Any] = {}
        self._word_shares: dict[int, dict[str, float]] = {}

    def text(self, i: int) -> str:
        """The cell of a row, formatted for a sentence."""
        if self.column.missing[i]:
            return "missing"
        if self.numbers is not None:
            return self.formatted(float(self.numbers[i]))
        return f"'{self.levels[self.codes[i]][:40]}'"  # type: ignore[index]

    def formatted(self, value: float) -> str:
        """A number or a date, formatted for a sentence."""
        return self.column.value_text(value, 4)

    def usual(self, group: int) -> Any:
        """The quantiles `_TAILS` of the numbers of a group, or the share of each text; last, that of missing cells."""
        if group not in self._usual:
            rows = self.groups.sample(group)
            if self.numbers is not None:
                values = self.numbers[rows]
                present = values[~np.isnan(values)]
                levels = [q for pair in _TAILS for q in pair]
                quantiles = np.quantile(present, levels) if len(present) else np.full(len(levels), np.nan)
                self._usual[group] = np.append(quantiles, np.isnan(values).mean())
            else:
                codes = self.codes[rows]  # type: ignore[index]
                counts = np.bincount(np.where(codes < 0, len(self.levels), codes), minlength=len(self.levels) + 1)
                self._usual[group] = counts / max(len(rows), 1)
        return self._usual[group]

    def unusual(self, i: int, group: int, other: int | None) -> tuple[float, str]:
        """The share of a group that has cells like that of row i, or more extreme ones, and a sentence about it.

        The share of a number is that of its tail: 0.01, 0.05, 0.1 or 0.25, or 0.5 for the middle half. The share of a
        text is that of equal cells; see `_unusual_word` for free text. For texts and missing cells the sentence also
        compares with the group `other`, unless it is None.
        """
        if self.prose:
            return self._unusual_word(i, group, other)
        usual, of = self.usual(group), self.groups.of(group)
        if self.numbers is None or np.isnan(self.numbers[i]):
            code = -1 if self.numbers is not None else int(self.codes[i])  # type: ignore[index]
            share = float(usual[code])
            sentence = f"{_percent(share)} of {of}"
            if other is None:
                return share, sentence
            return (
                share,
                f"{sentence}, {_percent(float(self.usual(other)[code]))} of those {self.groups.of(other, True)}",
            )
        value = float(self.numbers[i])
        for t, (low, high) in enumerate(_TAILS):
            if value > usual[2 * t + 1]:
                return 1.0 - high, f"{high:.0%} of {of} are at or below {self.formatted(usual[2 * t + 1])}"
            if value < usual[2 * t]:
                return low, f"{high:.0%} of {of} are at or above {self.formatted(usual[2 * t])}"
        middle = f"{self.formatted(usual[-3])} to {self.formatted(usual[-2])}"
        return 0.5, f"the middle half of {of} is {middle}"

    def _unusual_word(self, i: int, group: int, other: int | None) -> tuple[float, str]:
        """The share of `group` that has the word of row i most typical of the group `other`, and a sentence about it.

        It is the word whose share in `other` exceeds that in `group` most. The sentence has both shares.
        Without such a word the result is 1 and "".
        """
        words = set() if other is None else self._words(i)
        if other is None or not words:
            return 1.0, ""
        shares, other_shares = self._shares(group), self._shares(other)
        best = max(sorted(words), key=lambda word: other_shares.get(word, 0.0) - shares.get(word, 0.0))
        share, of = shares.get(best, 0.0), self.groups.of(group)
        if other_shares.get(best, 0.0) <= share:
            return 1.0, ""
        other_share = f"{_percent(other_shares[best])} of those {self.groups.of(other, True)}"
        return share, f"the word '{best[:40]}' is in {_percent(share)} of {of}, {other_share}"

    def _words(self, i: int) -> set[str]:
        code = int(self.codes[i])  # type: ignore[index]
        return set() if code < 0 else set(_WORD.findall(self.levels[code].casefold()))

    def _shares(self, group: int) -> dict[str, float]:
        """The share of the rows of a group that have each word."""
        if group not in self._word_shares:
            rows = self.groups.sample(group).tolist()
            counts = Counter(word for i in rows for word in self._words(i))
            self._word_shares[group] = {word: count / len(rows) for word, count in counts.items()}
        return self._word_shares[group]


class Groups:
    """The groups of rows to compare a row with: the rows of each class, or all rows if the target has no classes."""

    def __init__(self, target: Target, rng: np.random.Generator) -> None:
        self.target, self.rng = target, rng
        self.by_class = target.task == "classes"
        self._samples: dict[int, Array] = {}

    @cached_property
    def counts(self) -> Array:
        """The number of rows in each group."""
        if not self.by_class:
            return np.array([len(self.target.y)])
        return np.bincount(self.target.y, minlength=len(self.target.names))

    def group(self, i: int) -> int:
        """The group of a row."""
        return int(self.target.y[i]) if self.by_class else 0

    def sample(self, group: int) -> Array:
        """A sample of 20,000 rows of a group, or all if there are fewer."""
        if group not in self._samples:
            rows = np.flatnonzero(self.target.y == group) if self.by_class else np.arange(len(self.target.y))
            sample = self.rng.choice(len(rows), _SAMPLE, replace=False) if len(rows) > _SAMPLE else slice(None)
            self._samples[group] = rows[sample]
        return self._samples[group]

    def of(self, group: int | None, short: bool = False) -> str:
        """The group in words; `short` leaves out the number of its rows."""
        if not self.by_class or group is None:
            return f"the {int(self.counts[0]):,} rows"
        label = f"labelled '{self.target.names[group][:40]}'"
        return label if short else f"the {int(self.counts[group]):,} rows {label}"


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

    `features`, `table` (pyarrow, the columns on the page) and `X` (encoded) hold the rows that have a target, and
    `owners` the column of each feature of X. If the columns are pixels, `side` is the side of the images.
    """
    rng = np.random.default_rng([seed, 15])
    groups = Groups(target, rng)
    columns = {column.name: Values(column, groups) for column in features}
    others = _suggested_groups(target, result)
    order = result.order
    names, weight = _by_column(result.against, owners)
    reasons = [
        _reason([columns[names[c]] for c in best], int(i), groups, other)
        for i, other, best in zip(order, others, _strongest(weight), strict=True)
    ]
    usable = [columns[name] for name in table.column_names if _comparable(columns[name].column)]
    labels = colours(target)
    pixels = (lambda rows: pixels_of(features, rows, side)) if side else None
    points, axes = points_of(X, target, result, labels, rng)
    return Evidence(
        reasons=reasons,
        marks=[_marks(usable, int(i), groups) for i in order[:SHOWN]],
        near=_nearest(table, X, target, result, others, rng, pixels),
        columns=[column_picture(column, target, labels) for column in usable],
        labels=labels,
        points=points,
        axes=axes,
    )


def _comparable(column: Column) -> bool:
    """Whether the cells of a column can be compared: numbers, or texts with at most 20 or n / 2 distinct values."""
    repeated = len(column.levels) <= max(20, len(column) // 2)
    return column.values is not None or (column.kind != "other" and repeated)


# ---- reasons ---------------------------------------------------------------------------------------------------------


def _suggested_groups(target: Target, result: TaskResult) -> list[int | None]:
    """The group of the suggested label of each suspect; None if the target has no classes."""
    if target.task != "classes":
        return [None] * len(result.order)
    code_of = {name: code for code, name in enumerate(target.names)}
    return [code_of.get(name) for name in result.suggested]


def _by_column(against: Any, owners: Sequence[str]) -> tuple[list[str], Array]:
    """The names of the columns, and array (suspects, columns): the sum of `against` over the features of each."""
    names = list(dict.fromkeys(owners))
    column_of = {name: c for c, name in enumerate(names)}
    total = np.zeros((against.shape[0], len(names)))
    against = against.toarray() if hasattr(against, "toarray") else np.asarray(against)
    for j, owner in enumerate(owners[: against.shape[1]]):
        total[:, column_of[owner]] += against[:, j]
    return names, total


def _strongest(weight: Array, most: int = 3) -> list[list[int]]:
    """For each row up to `most` columns with the strongest evidence, each with over a tenth of that of the first."""
    top = np.argsort(-weight, axis=1, kind="stable")[:, :most]
    return [
        [int(c) for c in best if row[c] > 0 and row[c] > 0.1 * row.max()] for row, best in zip(weight, top, strict=True)
    ]


def _reason(columns: list[Values], i: int, groups: Groups, other: int | None) -> str:
    """The two rarest values of row i in these columns, the rarer first, in words; "" if there are none.

    `other` is the group of the suggested label, for comparison, or None.
    """
    if not columns:
        return ""
    found = sorted(((*column.unusual(i, groups.group(i), other), column) for column in columns), key=lambda one: one[0])
    found = [one for one in found if one[1]]
    return "; ".join(f"{column.name[:60]} {column.text(i)}: {words}" for _, words, column in found[:2])


def _marks(columns: list[Values], i: int, groups: Groups) -> dict[str, str]:
    marks = {}
    for column in columns:
        share, words = column.unusual(i, groups.group(i), None)
        if share <= _RARE:
            marks[column.name] = words
    return marks


def _percent(share: float) -> str:
    return "none" if share == 0 else "under 1%" if share < 0.01 else f"{share:.0%}"


# ---- the nearest rows ------------------------------------------------------------------------------------------------


def _nearest(
    table: Any,
    X: Any,
    target: Target,
    result: TaskResult,
    others: list[int | None],
    rng: np.random.Generator,
    pixels: Callable[[Array], list[bytes]] | None,
) -> list[list[Near]]:
    suspects = result.order[: WITH_NEIGHBOURS if pixels is None else WITH_IMAGES]
    right = np.setdiff1d(np.flatnonzero(result.wrong < POSSIBLE), result.order)
    if not len(suspects) or not len(right):
        return []
    if len(right) > _SEARCHED:
        right = np.sort(rng.choice(right, _SEARCHED, replace=False))
    distance = _distances(X[suspects], X[right])
    chosen = []
    for index, i in enumerate(suspects):
        pools = [np.arange(len(right))]
        if target.task == "classes":
            given, other = target.y[i], others[index]
            pools = [np.flatnonzero(target.y[right] == code) for code in (given, other) if code is not None]
        count = _NEAREST if len(pools) > 1 else 2 * _NEAREST
        best = [pool[np.argsort(distance[index, pool], kind="stable")[:count]] for pool in pools]
        chosen.append(right[np.concatenate(best)])
    flat = np.unique(np.concatenate(chosen))
    cells = table.take(flat).to_pydict()
    images = [b""] * len(flat) if pixels is None else pixels(flat)
    shown = [[short_text(cells[name][k]) for name in table.column_names] for k in range(len(flat))]
    found = {int(i): Near(int(target.rows[i]), target.text_of(int(i)), shown[k], images[k]) for k, i in enumerate(flat)}
    return [[found[int(i)] for i in rows] for rows in chosen]


def _distances(A: Any, B: Any) -> Array:
    """Squared distances (rows of A, rows of B), up to a constant for each row of A."""
    if hasattr(B, "multiply"):
        return np.asarray(B.multiply(B).sum(axis=1)).ravel() - 2.0 * (A @ B.T).toarray()
    A, B = (np.asarray(M, dtype=np.float32) for M in (A, B))
    return np.einsum("ij,ij->i", B, B) - 2.0 * (A @ B.T)


def short_text(value: Any, most: int = 60) -> str:
    """The value of a cell for display, at most `most` characters; floats have six digits, and None becomes ""."""
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


# ---- images and cells ------------------------------------------------------------------------------------------------


def pixels_of(features: Sequence[Column], rows: Array, side: int) -> list[bytes]:
    """The images of these rows as bytes, scaled so that the largest value is 255; empty if `side` is 0 (no images)."""
    if not side or not len(rows):
        return []
    values = np.nan_to_num(np.stack([column.values[rows] for column in features], axis=1))  # type: ignore[index]
    grey = np.clip(values * (255.0 / max(float(values.max()), 1e-12)), 0, 255).astype(np.uint8)
    return [row.tobytes() for row in grey]


def cells_of(table: Any, rows: Array) -> dict[str, list[str]]:
    """The cells of these rows as truncated text, by column."""
    chosen = table.take(rows)
    return {name: [short_text(value) for value in chosen.column(name).to_pylist()] for name in chosen.column_names}
