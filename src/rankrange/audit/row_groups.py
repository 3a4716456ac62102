"""Rows that belong together: repeated ones, and batches that are off together."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ..core.arrays import Array
from ..pages.text import visible
from .problems import BLOCK, MOST_COLUMNS, Column, RowProblem, covariance, each, median, quantiles, said_value
from .target import Target

# A mean of neighbouring rows is off from this many standard deviations of single rows on.
_LEAST_OFF = 0.5
# So many rows at least are a batch by their far cells or their digits.
_LEAST_TOGETHER = 5
# Rows from which the chance of equal cells is told, and columns that are left out one at a time.
_TOLD_ON, _LEFT_OUT = 100_000, 12
# A column in which two rows agree more often does not tell rows apart; more nearly equal rows are no accident.
_TELLING, _MOST_NEAR = 0.05, 0.05
_UNITS = {
    "1,000": 1000.0,
    "100": 100.0,
    "10": 10.0,
    "2.2": 2.2046,
    "2.54": 2.54,
    "25.4": 25.4,
    "1.6": 1.609,
    "60": 60.0,
}
_ODD = np.uint64(0x9E3779B97F4A7C15)


# ---- repeated rows ---------------------------------------------------------------------------------------------------


def find_repeats(columns: list[Column], target: Target, numbers: Array, jobs: int = 1) -> list[RowProblem]:
    """Rows that are equal to an earlier one, with the same target or another."""
    total: Array = np.zeros(len(numbers), dtype=np.uint64)
    chances = np.zeros(len(columns))
    for j, column in enumerate(columns):
        marks = _marks(column, j)
        total += marks
        chances[j] = _chance(marks[:_TOLD_ON])
    # What tells rows most: columns in which they hardly ever agree, and the rows without each of these.
    telling = np.argsort(chances)[:_LEFT_OUT].tolist()
    groups = _groups_of(total)
    y = _codes_of_target(target)
    found = []
    if groups and not _by_chance(columns, telling, chances, total, jobs):
        found = [_repeat(rows, bool((y[rows] == y[rows[0]]).all()), target, numbers) for rows in groups]
    return found + _nearly_equal(columns, telling, total, chances, numbers, jobs)


def _chance(marks: Array) -> float:
    """The probability that two rows agree in a column."""
    return float(((np.unique(marks, return_counts=True)[1] / len(marks)) ** 2).sum())


def _nearly_equal(
    columns: list[Column], telling: list[int], total: Array, chances: Array, numbers: Array, jobs: int
) -> list[RowProblem]:
    """Rows that are equal in all columns but one, where the others have so many values that chance explains none."""
    n, rare = len(total), chances < _TELLING

    def without(j: int) -> list[Array]:
        others = rare & (np.arange(len(chances)) != j)
        if others.sum() < 3 or np.log(chances[others]).sum() > np.log(1e-4) - 2.0 * np.log(n):
            return []
        return [rows for rows in _groups_of(total - _marks(columns[j], j)) if len(np.unique(total[rows])) > 1]

    found: dict[tuple[int, ...], RowProblem] = {}
    for j, groups in zip(telling, each(without, telling, jobs), strict=True):
        for rows in groups if len(groups) <= _MOST_NEAR * n else []:
            shown = tuple(int(numbers[i]) for i in rows)
            values = " and ".join(dict.fromkeys(columns[j].said(int(i)) for i in rows[:4]))
            name = visible(columns[j].name, 60)
            said = f"rows {_listed(shown)} are equal in all columns but {name}, which is {values}"
            found.setdefault(shown, RowProblem("duplicate", shown, columns[j].name, values, "", said, 0.6))
    return list(found.values())


def _listed(rows: tuple[int, ...]) -> str:
    return ", ".join(f"{row:,}" for row in rows[:6]) + (" ..." if len(rows) > 6 else "")


def _marks(column: Column, j: int) -> Array:
    """A number for each cell that is the same for equal cells; sums of them tell rows apart."""
    with np.errstate(over="ignore"):
        if column.values is not None:
            bits = (column.values + 0.0).view(np.uint64).copy()
            bits[np.isnan(column.values)] = np.uint64(0x7FF8000000000000)
        else:
            assert column.codes is not None
            bits = (column.codes + 1).astype(np.uint64)
        x = bits * _ODD + np.uint64(2 * j + 1) * np.uint64(0xD1B54A32D192ED03)
        x ^= x >> np.uint64(32)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(29)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(32)
    return x


def _groups_of(marks: Array) -> list[Array]:
    """The rows of equal marks, where there is more than one, in the order of the table."""
    # Sorting values is faster than sorting places, and half of the digits are enough to leave out most rows.
    half = marks.astype(np.uint32)
    ordered = np.sort(half)
    again = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(again):
        return []
    few = np.flatnonzero(again[np.minimum(np.searchsorted(again, half), len(again) - 1)] == half)
    order = few[np.argsort(marks[few], kind="stable")]
    ordered = marks[order]
    edges = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(edges, len(order)))
    many = sizes > 1
    starts, sizes = edges[many], sizes[many]
    groups = [order[s : s + c] for s, c in zip(starts.tolist(), sizes.tolist(), strict=True)]
    return sorted(groups, key=lambda rows: int(rows[0]))


def _pairs(marks: Array) -> float:
    """How many pairs of rows have equal marks."""
    ordered = np.sort(marks)
    edges = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(edges, len(ordered))).astype(np.float64)
    return float((sizes * (sizes - 1) / 2).sum())


def _by_chance(columns: list[Column], telling: list[int], chances: Array, total: Array, jobs: int) -> bool:
    """Whether as many rows would be equal if each column were independent of the others: columns of few values.

    Pairs that differ in one column alone, times the odds that this column agrees by chance, are the pairs to expect.
    Columns with many values tell most, so only these are asked.
    """
    equal = _pairs(total)
    pairs = each(lambda j: _pairs(total - _marks(columns[j], j)), telling, jobs)
    odds = chances[telling] / np.maximum(1.0 - chances[telling], 1e-9)
    expected = float(((np.array(pairs) - equal) * odds).max(initial=0.0))
    return equal < 4.0 * expected + 0.5


def _codes_of_target(target: Target) -> Array:
    if target.y.ndim == 1:
        return target.y
    return np.unique(target.y, axis=0, return_inverse=True)[1].ravel()


def _repeat(rows: Array, same: bool, target: Target, numbers: Array) -> RowProblem:
    shown = tuple(int(numbers[i]) for i in rows)
    listed = _listed(shown)
    if same:
        said = f"rows {listed} are equal in all columns, the target included"
        return RowProblem("duplicate", shown, None, "", "", said, 0.9, "drop")
    targets = list(dict.fromkeys(target.said(int(i)) for i in rows))
    words = " and ".join(f"'{visible(text, 40)}'" for text in targets[:4])
    said = f"rows {listed} are equal in all columns but the target, which is {words}"
    return RowProblem("conflicting duplicate", shown, ", ".join(target.columns), words, "", said, 0.95, "fix")


# ---- batches ---------------------------------------------------------------------------------------------------------


def find_batches(
    amounts: list[Column], far: list[Array], target: Target, numbers: Array, jobs: int = 1
) -> list[RowProblem]:
    """Neighbouring rows in which a column is off together.

    Signs are far cells one after the other, cells with more digits than the others have, one value again and again, and
    means of neighbouring rows, of the values, of their distances from the median, and of what the other columns do not
    tell. Values are compared within their class: a table sorted by its target is no batch. `far` are the far cells of
    each column, -1 below and 1 above.
    """
    if not amounts or len(amounts) > MOST_COLUMNS:
        return []
    kinds = _kinds(target)
    levels = np.stack(each(lambda column: _within(_levels(column), kinds, 5.0), amounts, jobs))
    rest = _without_each_other(levels, kinds, jobs)

    def batches(j: int) -> list[RowProblem]:
        return _batches_in(amounts[j], far[j], (levels[j], rest[j]), 3 * len(amounts), numbers)

    return [problem for found in each(batches, range(len(amounts)), jobs) for problem in found]


def _batches_in(
    column: Column, far: Array, levels: tuple[Array, Array], tests: int, numbers: Array
) -> list[RowProblem]:
    """The batches of one column, its values given as distances within the class and as what other columns leave."""
    assert column.values is not None
    runs = _constant_runs(column)
    spans = _together_in(far > 0) + _together_in(far < 0)
    odd = _odd_digits(column)  # converted values differ from each other
    spans += [(a, b) for a, b in _together_in(odd) if len(np.unique(column.values[a:b][odd[a:b]])) > 3]
    own, rest = levels
    if own.any():
        for x in (own, rest, np.log(np.abs(own) + 0.05)):
            spans += _off_together(x, tests)
    found = [_stuck(column, run, numbers) for run in runs]
    apart = _apart(spans, [(run.start, run.stop) for run in runs])
    return found + [_off(column, slice(*span), numbers) for span in apart]


def _levels(column: Column) -> Array:
    """The values, or their logarithms where they spread over decades; missing cells are the median."""
    x = column.values
    assert x is not None
    known = ~np.isnan(x)
    if not known.any():
        return np.zeros(len(x), dtype=np.float32)
    x = x if known.all() else x[known]
    low, high = quantiles(x, [0.1, 0.9])
    if low > 0 and high > 3 * low and x.min() > 0:
        x = np.log(x)
    levels = np.full(len(known), median(x), dtype=np.float32)
    levels[known] = x
    return levels


def _kinds(target: Target) -> list[Array]:
    """The rows of each class, or of each tenth of the numbers."""
    if target.task == "labels":
        return [np.arange(len(target.y))]
    codes = target.y
    if target.task == "numbers":
        codes = np.searchsorted(np.quantile(target.y, np.arange(0.1, 0.95, 0.1)), target.y)
    order = np.argsort(codes, kind="stable")
    return [rows for rows in np.split(order, np.cumsum(np.bincount(codes))[:-1]) if len(rows)]


def _within(x: Array, kinds: list[Array], most: float) -> Array:
    """Distances from the median of the row's kind, in robust standard deviations of it, brought in to `most`."""
    out = np.zeros_like(x)
    whole = 1.4826 * median(np.abs(x - np.float32(median(x))))
    if whole == 0:  # most cells have one value
        return out
    for rows in kinds:
        own = x[rows]
        own -= np.float32(median(own))
        spread = 1.4826 * median(np.abs(own)) if len(rows) >= 20 else whole
        out[rows] = own / max(spread, 0.1 * whole)
    return np.clip(out, -most, most)


def _odd_digits(column: Column) -> Array:
    """Cells with more digits behind the point than nine in ten cells have: converted, not measured."""
    x = column.values
    assert x is not None
    for digits in range(5):
        if _has_more_digits(x[:: max(1, len(x) // 10_000)], digits).mean() > 0.2:
            continue  # not worth looking at all cells
        odd = _has_more_digits(x, digits)
        if odd.sum() <= 0.1 * len(x):
            return odd
    return np.zeros(len(x), dtype=bool)


def _has_more_digits(x: Array, digits: int) -> Array:
    scaled = x * 10.0**digits
    return np.abs(scaled - np.round(scaled)) > 1e-6 * np.maximum(1.0, np.abs(scaled))


def _together_in(mask: Array) -> list[tuple[int, int]]:
    """Spans in which rows of the mask follow each other more closely than chance allows."""
    rows, n = np.flatnonzero(mask), len(mask)
    if len(rows) < _LEAST_TOGETHER or len(rows) > 0.2 * n:
        return []
    share = len(rows) / n
    near = 1.0 - (1.0 - share) ** 4
    least = max(_LEAST_TOGETHER, 1.0 + np.log(1e-3 / (n * share)) / np.log(near))
    pieces = np.split(rows, np.flatnonzero(np.diff(rows) > 4) + 1)
    return [(int(piece[0]), int(piece[-1]) + 1) for piece in pieces if len(piece) >= least]


def _without_each_other(z: Array, kinds: list[Array], jobs: int) -> Array:
    """(columns, rows): what the other columns do not tell of each, residuals of linear fits."""
    p, n = z.shape
    if n < 5 * p or p < 2:
        return z
    inverse = np.linalg.inv(covariance(z) + 1e-3 * np.eye(p))
    weights = inverse / np.diag(inverse)[:, None]
    rest = np.concatenate([weights @ z[:, a : a + BLOCK] for a in range(0, n, BLOCK)], axis=1, dtype=z.dtype)
    # Brought in: one wild cell must not make its neighbours a batch.
    return np.stack(each(lambda x: _within(x, kinds, 3.0), rest, jobs))


def _off_together(x: Array, tests: int) -> list[tuple[int, int]]:
    """Spans of neighbouring rows whose mean lies far from that of other spans of the same length, farthest first.

    The lengths double; for each the means of other spans say what is usual, so an order of the rows does not alarm.
    """
    sums = np.concatenate([[0.0], np.cumsum(x, dtype=np.float64)])
    n, spans = len(x), []
    centred = x - x.mean()
    order = max(
        0.0, float(centred[1:] @ centred[:-1]) / max(float(centred @ centred), 1e-12)
    )  # 1 where rows are sorted
    length, levels, spread = 8, np.array([0.75, 0.9, 0.95]), float(x.std())
    while length <= n // 8:
        step = length // 4
        means = (sums[length::step] - sums[: n - length + 1 : step]) / length
        *low, centre, third, ninth, last = quantiles(means, [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]).tolist()
        for sign, ends in ((-1.0, low[::-1]), (1.0, [third, ninth, last])):
            usual = float(np.median(sign * (np.array(ends) - centre) / ndtri(levels)))
            scale = max(usual, spread / length**0.5)  # means are nearly normal, unless the rows have an order
            least = max((1.25 + 2.0 * order) * scale * -ndtri(0.05 / (len(means) * tests)), _LEAST_OFF)
            far = np.flatnonzero(sign * (means - centre) > least)
            if 0 < len(far) <= max(12, 0.15 * len(means)):
                spans += [
                    (sign * (float(means[i]) - centre) * length**0.5, sign, centre, i * step, length)
                    for i in far.tolist()
                ]
        length *= 2
    return _best_of(x, spans)


def _best_of(x: Array, spans: list[tuple[float, float, float, int, int]]) -> list[tuple[int, int]]:
    """The spans that stand out most, each drawn to its edges; those that touch a better one are left out."""
    kept: list[tuple[int, int]] = []
    for _, sign, centre, start, length in sorted(spans, reverse=True):
        if all(start + length <= first or start >= last for first, last in kept):
            kept.append(_refined(sign * (x - centre), start, start + length))
    most = max(40, len(x) // 10)  # of a larger part nobody can say that it is the one that is off
    return [(start, stop) for start, stop in kept if stop - start <= most and _has_edges(x, start, stop)]


def _has_edges(x: Array, start: int, stop: int) -> bool:
    """Whether the values jump at both ends of a span: where rows have an order, they rise and fall instead."""
    reach = max(8, (stop - start) // 4)
    here, usual = float(x[start:stop].mean()), float(np.median(x))
    sides = [side for side in (x[max(0, start - reach) : start], x[stop : stop + reach]) if len(side) >= 4]
    off = here - usual
    return off != 0 and all((here - float(side.mean())) / off > 0.65 for side in sides)


def _refined(x: Array, start: int, stop: int) -> tuple[int, int]:
    """The span around the given one in which the values lie closer to its median than to 0, as far as they go on."""
    middle = 0.5 * float(np.median(x[start:stop]))
    reach = 4 * (stop - start)
    low, high = max(0, start - reach), min(len(x), stop + reach)
    gains = np.where(x[low:high] > middle, 1.0, -1.0)
    total = np.concatenate([[0.0], np.cumsum(gains)])
    centre = (start + stop) // 2 - low
    first = int(np.argmin(total[: centre + 1]))
    last = centre + int(np.argmax(total[centre:]))
    return low + first, low + max(last, first + 1)


def _apart(spans: list[tuple[int, int]], taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of spans that overlap the first; those that overlap what is taken are left out."""
    kept: list[tuple[int, int]] = []
    for span in spans:
        if all(span[1] <= other[0] or span[0] >= other[1] for other in [*kept, *taken]):
            kept.append(span)
    return sorted(kept)


def _off(column: Column, run: slice, numbers: Array) -> RowProblem:
    assert column.values is not None
    inside = column.values[run]
    outside = np.concatenate([column.values[: run.start], column.values[run.stop :]])
    here, usual = float(np.nanmedian(inside)), float(np.nanmedian(outside))
    low, high = np.nanquantile(outside, [0.05, 0.95])
    unit = _unit_between(here, usual)
    said = (
        f"{visible(column.name, 60)} is off in the {run.stop - run.start:,} rows {int(numbers[run.start]):,} to "
        f"{int(numbers[run.stop - 1]):,} together: its median there is {said_value(column, here)}, in the other rows "
        f"{said_value(column, usual)}{unit}"
    )
    rows = tuple(numbers[run].tolist())
    span = f"{said_value(column, float(low))} to {said_value(column, float(high))}"
    return RowProblem("batch", rows, column.name, said_value(column, here), span, said, 0.85, "fix" if unit else "look")


def _unit_between(here: float, usual: float) -> str:
    """The unit that may have been taken for another, where the factor is that of two units."""
    if usual == 0 or here / usual <= 0:
        return ""
    factor = here / usual
    for name, size in _UNITS.items():
        for times, words in ((size, f"{name}"), (1.0 / size, f"1/{name}")):
            if abs(np.log(factor / times)) < 0.08:
                return f", about {words} times as much: perhaps another unit"
    return ""


def _constant_runs(column: Column) -> list[slice]:
    """Runs of one value that are too long for chance, in a column in which neighbours hardly ever agree."""
    x = column.values
    assert x is not None
    same = np.append(False, x[1:] == x[:-1])
    edges = np.flatnonzero(~same)
    sizes = np.diff(np.append(edges, len(x)))
    long = sizes >= 6
    if not long.any():
        return []
    usual = sizes[~long] if (~long).any() else sizes
    share = float((usual - 1).sum() + 1) / max(float(usual.sum()), 1.0)
    if share > 0.1 or long.sum() > 20:
        return []
    runs = [slice(int(s), int(s + c)) for s, c in zip(edges[long], sizes[long], strict=True)]
    chance = [max(share, float((x == x[run.start]).mean())) for run in runs]
    return [
        run
        for run, p in zip(runs, chance, strict=True)
        if (run.stop - run.start - 1) * -np.log2(p) > 20 + np.log2(len(x))
    ]


def _stuck(column: Column, run: slice, numbers: Array) -> RowProblem:
    assert column.values is not None
    value = said_value(column, float(column.values[run.start]))
    said = (
        f"{visible(column.name, 60)} is {value} in the {run.stop - run.start:,} rows {int(numbers[run.start]):,} to "
        f"{int(numbers[run.stop - 1]):,} one after the other, where neighbouring rows hardly ever agree"
    )
    return RowProblem("batch", tuple(numbers[run].tolist()), column.name, value, "different values", said, 0.9)
