"""Problems of single columns: batches of consecutive rows with unusual values, target leakage, and drift."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ..core.arrays import Array
from ..pages.text import visible
from .problems import BLOCK, MAX_COLUMNS, Column, RowProblem, covariance, each, median, quantiles, value_text
from .target import Target

# The mean of neighbouring rows is unusual if it deviates by at least this many standard deviations of single rows.
_MIN_SHIFT = 0.5
# A column leaks if it removes at least the first share of the errors of guessing and no other column more than the
# second, or if it removes at least the third.
_LEAK, _NO_LEAK, _CERTAIN_LEAK = 0.95, 0.9, 0.99
# The largest number of bins of a column, and of rows for finding leaks.
_MAX_BINS, _LEAK_ROWS = 200, 100_000
# A column drifts if the largest difference between two distribution functions is at least this.
_DRIFT = 0.5
# A sentence compares means only if they differ by at least this many standard deviations.
_SHOWN = 0.1
# The least number of rows of a batch that is found by outlying cells or by digits.
_MIN_CLUSTER = 5
# Ratios of common units.
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


# ---- batches ---------------------------------------------------------------------------------------------------------


def find_batches(
    numeric: list[Column], far: list[Array], target: Target, numbers: Array, jobs: int = 1
) -> list[RowProblem]:
    """Find batches: consecutive rows in which a numeric column has unusual values.

    A batch has many outlying cells, many cells with more decimals than elsewhere, one repeated value, or an unusual
    mean: of the values, of their distances from the median, or of their residuals given the other columns. Values are
    compared within their class, or decile of a numeric target, because a table may be sorted by its target. `far` marks
    the outlying cells of each column, -1 below and 1 above. `numbers` are the row numbers to report. With more than 150
    numeric columns the result is empty.
    """
    if not numeric or len(numeric) > MAX_COLUMNS:
        return []
    kinds = _kinds(target)
    levels = np.stack(each(lambda column: _within(_levels(column), kinds, 5.0), numeric, jobs))
    rest = _residuals_given_others(levels, kinds, jobs)

    def batches(j: int) -> list[RowProblem]:
        return _batches_in(numeric[j], far[j], (levels[j], rest[j]), 3 * len(numeric), numbers)

    return [problem for found in each(batches, range(len(numeric)), jobs) for problem in found]


def _batches_in(
    column: Column, far: Array, levels: tuple[Array, Array], tests: int, numbers: Array
) -> list[RowProblem]:
    """The batches of one column.

    `levels` has its values standardised within each class, and its residuals given the other columns. `tests` is the
    number of tests over all columns. Of overlapping batches one is kept; batches of which at least half of the cells
    are missing are left out.
    """
    assert column.values is not None
    runs = _constant_runs(column)
    reasons = dict.fromkeys(_clusters_in(far > 0) + _clusters_in(far < 0), "several of its cells are outliers")
    odd = _odd_digits(column)  # converted values differ from each other
    digits = [(a, b) for a, b in _clusters_in(odd) if len(np.unique(column.values[a:b][odd[a:b]])) > 3]
    reasons.update(dict.fromkeys(digits, "its cells have more digits than elsewhere"))
    residuals, rest = levels
    if residuals.any():
        for x, reason in (
            (residuals, "its values differ from those of other rows"),
            (rest, "its relation to the other columns differs from that in other rows"),
            (np.log(np.abs(residuals) + 0.05), "its values vary more or less than in other rows"),
        ):
            for span in _shifted_spans(x, tests):
                reasons.setdefault(span, reason)
    found = [_describe_constant_run(column, run, numbers) for run in runs]
    present = ~np.isnan(column.values)  # a block of missing cells has no values to compare
    filled = [span for span in reasons if present[slice(*span)].mean() > 0.5]
    apart = _non_overlapping(filled, [(run.start, run.stop) for run in runs])
    return found + [_describe_batch(column, slice(*span), numbers, reasons[span]) for span in apart]


def _levels(column: Column) -> Array:
    """The values, or their logarithms if they are positive and widely spread; missing cells get the median.

    All are 0 if the column has no value.
    """
    x = column.values
    assert x is not None
    present = ~np.isnan(x)
    if not present.any():
        return np.zeros(len(x), dtype=np.float32)
    x = x if present.all() else x[present]
    low, high = quantiles(x, [0.1, 0.9])
    if low > 0 and high > 3 * low and x.min() > 0:
        x = np.log(x)
    levels = np.full(len(present), median(x), dtype=np.float32)
    levels[present] = x
    return levels


def _kinds(target: Target) -> list[Array]:
    """The rows of each class, or of each decile of a numeric target; all rows of a multi-label target."""
    if target.task == "labels":
        return [np.arange(len(target.y))]
    codes = target.y
    if target.task == "numbers":
        codes = np.searchsorted(np.quantile(target.y, np.arange(0.1, 0.95, 0.1)), target.y)
    order = np.argsort(codes, kind="stable")
    return [rows for rows in np.split(order, np.cumsum(np.bincount(codes))[:-1]) if len(rows)]


def _within(x: Array, kinds: list[Array], most: float) -> Array:
    """Differences from the median of the row's class, in robust standard deviations, clipped to [-most, most].

    The standard deviation is that of the class, but at least a tenth of that of all rows, which also replaces it in
    classes of fewer than 20 rows. All are 0 if at least half of the cells have the same value.
    """
    out = np.zeros_like(x)
    overall = 1.4826 * median(np.abs(x - np.float32(median(x))))
    if overall == 0:  # most cells have the same value
        return out
    for rows in kinds:
        values = x[rows]
        values -= np.float32(median(values))
        spread = 1.4826 * median(np.abs(values)) if len(rows) >= 20 else overall
        out[rows] = values / max(spread, 0.1 * overall)
    return np.clip(out, -most, most)


def _odd_digits(column: Column) -> Array:
    """Mask of the cells with more decimals than 90% of the column, as after a conversion of units.

    No cell is marked if more than 10% of the cells have more than four decimals.
    """
    x = column.values
    assert x is not None
    for digits in range(5):
        if _has_more_digits(x[:: max(1, len(x) // 10_000)], digits).mean() > 0.2:
            continue  # a sample of cells is enough
        odd = _has_more_digits(x, digits)
        if odd.sum() <= 0.1 * len(x):
            return odd
    return np.zeros(len(x), dtype=bool)


def _has_more_digits(x: Array, digits: int) -> Array:
    scaled = x * 10.0**digits
    return np.abs(scaled - np.round(scaled)) > 1e-6 * np.maximum(1.0, np.abs(scaled))


def _clusters_in(mask: Array) -> list[tuple[int, int]]:
    """Spans (start, stop) in which the rows of the mask are closer together than chance explains.

    A span has at least five rows of the mask, at most four rows apart. There is none if the mask has more than 20% of
    the rows.
    """
    rows, n = np.flatnonzero(mask), len(mask)
    if len(rows) < _MIN_CLUSTER or len(rows) > 0.2 * n:
        return []
    share = len(rows) / n
    near = 1.0 - (1.0 - share) ** 4
    least = max(_MIN_CLUSTER, 1.0 + np.log(1e-3 / (n * share)) / np.log(near))
    pieces = np.split(rows, np.flatnonzero(np.diff(rows) > 4) + 1)
    return [(int(piece[0]), int(piece[-1]) + 1) for piece in pieces if len(piece) >= least]


def _residuals_given_others(z: Array, kinds: list[Array], jobs: int) -> Array:
    """Array (columns, rows): residuals of linear fits of each column on the others, standardised and clipped.

    With one column, or fewer than five rows per column, it is `z` itself.
    """
    p, n = z.shape
    if n < 5 * p or p < 2:
        return z
    inverse = np.linalg.inv(covariance(z) + 1e-3 * np.eye(p))
    weights = inverse / np.diag(inverse)[:, None]
    rest = np.concatenate([weights @ z[:, a : a + BLOCK] for a in range(0, n, BLOCK)], axis=1, dtype=z.dtype)
    # Clipped: one outlying cell must not make its neighbours a batch.
    return np.stack(each(lambda x: _within(x, kinds, 3.0), rest, jobs))


def _shifted_spans(x: Array, tests: int) -> list[tuple[int, int]]:
    """Spans (start, stop) of rows whose mean differs from that of most spans of the same length, most unusual first.

    Spans of 8, 16, 32, ... rows, up to an eighth of the table, are compared, and those found are then extended or
    shrunk to their edges. The means of all spans of a length show their usual variation, so a table with a trend raises
    no false alarm. If more than 15% of the spans of a length, and more than 12, differ in one direction, none of them
    is used. `tests` is the number of tests over all columns.
    """
    sums = np.concatenate([[0.0], np.cumsum(x, dtype=np.float64)])
    n, spans = len(x), []
    centred = x - x.mean()
    # the autocorrelation: 1 if rows are sorted
    order = max(0.0, float(centred[1:] @ centred[:-1]) / max(float(centred @ centred), 1e-12))
    length, levels, spread = 8, np.array([0.75, 0.9, 0.95]), float(x.std())
    while length <= n // 8:
        step = length // 4
        means = (sums[length::step] - sums[: n - length + 1 : step]) / length
        *low, centre, third, ninth, last = quantiles(means, [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]).tolist()
        for sign, ends in ((-1.0, low[::-1]), (1.0, [third, ninth, last])):
            usual = float(np.median(sign * (np.array(ends) - centre) / ndtri(levels)))
            scale = max(usual, spread / length**0.5)  # means are nearly normal, unless the rows are ordered
            least = max((1.25 + 2.0 * order) * scale * -ndtri(0.05 / (len(means) * tests)), _MIN_SHIFT)
            far = np.flatnonzero(sign * (means - centre) > least)
            if 0 < len(far) <= max(12, 0.15 * len(means)):
                spans += [
                    (sign * (float(means[i]) - centre) * length**0.5, sign, centre, i * step, length)
                    for i in far.tolist()
                ]
        length *= 2
    return _best_of(x, spans)


def _best_of(x: Array, spans: list[tuple[float, float, float, int, int]]) -> list[tuple[int, int]]:
    """The most unusual of `spans` (size, sign, usual mean, start, length), each extended or shrunk to its edges.

    Left out are spans that overlap a more unusual one, spans without sharp edges, and spans that are longer than both
    40 rows and a tenth of the table.
    """
    kept: list[tuple[int, int]] = []
    for _, sign, centre, start, length in sorted(spans, reverse=True):
        if all(start + length <= first or start >= last for first, last in kept):
            kept.append(_refined(sign * (x - centre), start, start + length))
    most = max(40, len(x) // 10)  # for a larger span it is unclear whether the span or the rest is unusual
    return [(start, stop) for start, stop in kept if stop - start <= most and _has_edges(x, start, stop)]


def _has_edges(x: Array, start: int, stop: int) -> bool:
    """Whether the values jump at both ends of a span. In ordered tables they change gradually instead.

    An end with fewer than four rows beyond it is not tested.
    """
    reach = max(8, (stop - start) // 4)
    mean, usual = float(x[start:stop].mean()), float(np.median(x))
    sides = [side for side in (x[max(0, start - reach) : start], x[stop : stop + reach]) if len(side) >= 4]
    shift = mean - usual
    return shift != 0 and all((mean - float(side.mean())) / shift > 0.65 for side in sides)


def _refined(x: Array, start: int, stop: int) -> tuple[int, int]:
    """Extend or shrink a span so that it has most of the values closer to its median than to 0, and few others.

    It is extended by at most four times its length on each side.
    """
    middle = 0.5 * float(np.median(x[start:stop]))
    reach = 4 * (stop - start)
    low, high = max(0, start - reach), min(len(x), stop + reach)
    gains = np.where(x[low:high] > middle, 1.0, -1.0)
    total = np.concatenate([[0.0], np.cumsum(gains)])
    centre = (start + stop) // 2 - low
    first = int(np.argmin(total[: centre + 1]))
    last = centre + int(np.argmax(total[centre:]))
    return low + first, low + max(last, first + 1)


def _non_overlapping(spans: list[tuple[int, int]], taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that overlap neither each other nor `taken`; of overlapping spans the first is kept."""
    kept: list[tuple[int, int]] = []
    for span in spans:
        if all(span[1] <= other[0] or span[0] >= other[1] for other in [*kept, *taken]):
            kept.append(span)
    return sorted(kept)


def _describe_batch(column: Column, run: slice, numbers: Array, reason: str) -> RowProblem:
    """Describe a batch: its median or mean and that of the other rows if they differ, otherwise the reason.

    The action is "fix" if the medians suggest another unit.
    """
    assert column.values is not None
    inside = column.values[run]
    outside = np.concatenate([column.values[: run.start], column.values[run.stop :]])
    median_inside, median_outside = float(np.nanmedian(inside)), float(np.nanmedian(outside))
    low, high = (value_text(column, float(end)) for end in np.nanquantile(outside, [0.05, 0.95]))
    unit = _unit_between(median_inside, median_outside)
    text = _both(column, "median", median_inside, median_outside) + unit
    if value_text(column, median_inside) == value_text(column, median_outside):
        means = float(np.nanmean(inside)), float(np.nanmean(outside))
        apart = abs(means[0] - means[1]) > _SHOWN * float(np.nanstd(outside))
        text = _both(column, "mean", *means) if apart else reason
    sentence = (
        f"{visible(column.name, 60)} is unusual in the {run.stop - run.start:,} rows {int(numbers[run.start]):,} to "
        f"{int(numbers[run.stop - 1]):,}: {text}"
    )
    rows, action = tuple(numbers[run].tolist()), "fix" if unit else "look"
    return RowProblem(
        "batch", rows, column.name, value_text(column, median_inside), f"{low} to {high}", sentence, 0.85, action
    )


def _both(column: Column, word: str, inside: float, outside: float) -> str:
    return f"its {word} there is {value_text(column, inside)}, in the other rows {value_text(column, outside)}"


def _unit_between(inside: float, outside: float) -> str:
    """A remark on the unit, if the ratio of the two medians is about that of two common units; otherwise ''."""
    if outside == 0 or inside / outside <= 0:
        return ""
    factor = inside / outside
    for name, size in _UNITS.items():
        for times, words in ((size, f"{name}"), (1.0 / size, f"1/{name}")):
            if abs(np.log(factor / times)) < 0.08:
                return f", about {words} times as much: perhaps another unit"
    return ""


def _constant_runs(column: Column) -> list[slice]:
    """Runs of one value that are too long for chance, in a column whose neighbouring cells rarely agree.

    A run has at least six cells. The result is empty if there are more than 20 such runs.
    """
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


def _describe_constant_run(column: Column, run: slice, numbers: Array) -> RowProblem:
    assert column.values is not None
    value = value_text(column, float(column.values[run.start]))
    sentence = (
        f"{visible(column.name, 60)} is {value} in the {run.stop - run.start:,} rows {int(numbers[run.start]):,} to "
        f"{int(numbers[run.stop - 1]):,} in a row, although neighbouring rows rarely have equal values"
    )
    return RowProblem("batch", tuple(numbers[run].tolist()), column.name, value, "different values", sentence, 0.9)


# ---- target leakage and drift -------------------------------------------------------


def find_leaks(columns: list[Column], target: Target) -> list[RowProblem]:
    """Find columns that alone nearly determine the target.

    Such a column removes at least 95% of the errors of a constant prediction, or 99% if another column removes more
    than 90%. Errors are measured on held-out rows of a sample of up to 100,000, for a numeric target by the variance of
    its ranks. For a multi-label target the result is empty.
    """
    # A random half, because classes may alternate from row to row.
    rng = np.random.default_rng(0)
    sample = np.sort(rng.permutation(len(target.y))[:_LEAK_ROWS])
    half = rng.random(len(sample)) < 0.5
    shares = np.array([_explained_share(column, target, sample, half) for column in columns])
    found = []
    for j, share in enumerate(shares.tolist()):
        others = float(np.delete(shares, j).max()) if len(shares) > 1 else 0.0
        if share >= _LEAK and (others <= _NO_LEAK or share >= _CERTAIN_LEAK):
            name = visible(columns[j].name, 60)
            sentence = (
                f"{name} nearly determines the target: it removes {100 * share:.1f}% of the errors of guessing"
                + (f", the next best column {100 * max(others, 0.0):.0f}%" if len(shares) > 1 else "")
            )
            found.append(
                RowProblem("leak", (), columns[j].name, f"{share:.3f}", f"up to {others:.3f}", sentence, share, "drop")
            )
    return found


def _explained_share(column: Column, target: Target, sample: Array, half: Array) -> float:
    """The share of the errors of a constant prediction that predictions from the column alone remove.

    It is measured on held-out rows of `sample` (positions), those outside the mask `half`. It may be negative, and is 0
    for a multi-label target.
    """
    if target.task == "labels":
        return 0.0
    bins, y = _bins(column, sample), target.y[sample]
    if target.task == "numbers":
        return _variance_explained_share(bins, y, half)
    K = len(target.names)
    base = 1.0 - np.bincount(y, minlength=K).max() / len(y)
    counts = np.bincount(bins[half] * K + y[half], minlength=(bins.max() + 1) * K).reshape(-1, K)
    guess = np.where(counts.any(axis=1), counts.argmax(axis=1), np.bincount(y).argmax())
    wrong = float((guess[bins[~half]] != y[~half]).mean())
    return 1.0 - wrong / max(base, 1e-12)


def _variance_explained_share(bins: Array, y: Array, half: Array) -> float:
    """The share of the variance of the ranks of y that the means of the bins explain, on the rows outside `half`.

    The prediction for a bin without rows in `half` is the mean rank.
    """
    ranks = np.empty(len(y))
    ranks[np.argsort(y, kind="stable")] = np.arange(len(y))
    counts, sums = (np.bincount(bins[half], w, int(bins.max()) + 1) for w in (None, ranks[half]))
    means = np.where(counts > 0, sums / np.maximum(counts, 1), ranks.mean())
    errors = ranks[~half] - means[bins[~half]]
    return 1.0 - float((errors**2).mean()) / float(ranks.var())


def _bins(column: Column, sample: Array | slice = slice(None)) -> Array:
    """The bin of each row; 0 is for missing cells. Numbers have up to 200 bins with about equal numbers of rows.

    Each text has its own bin; texts after the first 199 share one.
    """
    if column.values is None:
        assert column.codes is not None
        return np.minimum(column.codes[sample] + 1, _MAX_BINS)
    x = column.values[sample]
    present = x[~np.isnan(x)]
    if not len(present):
        return np.zeros(len(x), dtype=np.intp)
    edges = np.unique(np.quantile(present, np.linspace(0, 1, min(_MAX_BINS, max(2, len(present) // 10)))))
    bins = np.searchsorted(edges, x, side="right")
    return np.where(np.isnan(x), 0, bins + 1).astype(np.intp)


def find_drift(columns: list[Column], time: str) -> list[RowProblem]:
    """Find columns whose distribution differs strongly between the first and the last third of the rows by time.

    The Kolmogorov-Smirnov distance, for texts the total variation distance, must be at least 0.5, and both thirds must
    have at least 20 rows. `time` names a numeric column.
    """
    clock = next(column for column in columns if column.name == time)
    assert clock.values is not None
    first, last = np.nanquantile(clock.values, [1 / 3, 2 / 3])
    early, late = clock.values <= first, clock.values > last
    found = []
    for column in columns:
        if column.name == time:
            continue
        bins = _bins(column)
        shares = [
            np.cumsum(np.bincount(bins[part], minlength=bins.max() + 1)) / max(part.sum(), 1) for part in (early, late)
        ]
        gap = np.abs(shares[0] - shares[1])
        size = (
            float(gap.max())
            if column.values is not None
            else 0.5 * float(np.abs(np.diff(shares[0] - shares[1], prepend=0)).sum())
        )
        if size >= _DRIFT and min(early.sum(), late.sum()) >= 20:
            found.append(_drift_problem(column, early, late, size, visible(time, 60)))
    return found


def _drift_problem(column: Column, early: Array, late: Array, size: float, time: str) -> RowProblem:
    if column.values is not None:
        late_value, early_value = (
            value_text(column, float(np.nanmedian(column.values[part]))) for part in (late, early)
        )
        words = f"its median is {early_value} in the first third along {time} and {late_value} in the last"
    else:
        late_value, early_value = "other values", "values of the first third"
        words = f"{100 * size:.0f}% of its values differ between the first and the last third along {time}"
    sentence = f"{visible(column.name, 60)} drifts: {words}"
    return RowProblem("drift", (), column.name, late_value, early_value, sentence, min(1.0, size))
