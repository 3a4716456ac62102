"""Kernels of the streaming engine: pure functions of a chunk and a message, over NumPy arrays or PyTorch tensors.

Results are NumPy values that add up in the order of the rows. Products are taken in the dtype of X, in blocks of
BLOCK_ROWS rows; sums over blocks are float64.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array, namespace
from ..core.hashing import splitmix64
from ..core.losses import LOSSES
from .rows import Chunk, added

# Rows of a block: a block of 30 columns fits into the cache, and float32 sums over it lose no digits that matter.
BLOCK_ROWS = 1 << 13
# A target with more distinct labels is numeric, not classes.
MAX_CLASSES = 10_000
# The first columns of a table of `tangent_sums`; slopes times features follow.
MASS, LOSS, OFFSET, SLOPES = range(4)


def host(values: Any) -> Any:
    """A tensor as a NumPy array; other values unchanged."""
    return values.cpu().numpy() if hasattr(values, "cpu") else values


def beside(values: Any, other: Any) -> Any:
    """A NumPy array in the namespace and on the device of another array."""
    xp = namespace(other)
    return values if xp is np else xp.as_tensor(values, device=other.device)


def cast(values: Any, dtype: str) -> Any:
    """An array in this dtype."""
    xp = namespace(values)
    return values.astype(dtype, copy=False) if xp is np else values.to(getattr(xp, dtype))


def dtype_of(values: Any) -> str:
    return str(values.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Model:
    """The linear model of a fit, the same in every pass: it encodes targets and computes scores and losses."""

    loss: str
    n_outputs: int  # scores per row: 1, or with more than two classes one per class
    fit_intercept: bool
    dtype: str  # of features and scores
    classes: Array | None = None  # sorted labels; None for a numeric target
    class_weight: Array | None = None  # one factor per class

    @property
    def n_classes(self) -> int:
        assert self.classes is not None
        return len(self.classes)

    def encoded(self, y: Any) -> Any:
        """The targets, encoded for the loss: -1 and +1 for two classes, codes for more, numbers for regression."""
        if self.classes is None:
            return cast(y, self.dtype)
        if self.n_outputs == 1:
            return cast(y == self.classes[1].item(), self.dtype) * 2 - 1
        xp = namespace(y)
        return xp.searchsorted(self.classes if xp is np else beside(self.classes, y).to(y.dtype), y)

    def codes(self, y: Any) -> Any:
        return cast(y > 0, "int64") if self.n_outputs == 1 else y

    def factor(self, y: Any) -> Any:
        """The class weight of rows with encoded y; None if there are no class weights."""
        return None if self.class_weight is None else beside(self.class_weight, y)[self.codes(y)]

    def mass(self, y: Any, weight: Any) -> Any:
        """The weight times the class weight of rows with encoded y; None if every row counts once."""
        weight, factor = None if weight is None else cast(weight, "float64"), self.factor(y)
        return weight if factor is None else factor if weight is None else factor * weight

    def features(self, X: Any) -> Any:
        """X in the dtype of the model, row-major or CSR."""
        X = cast(X, self.dtype)
        return np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X

    def scores(self, W: Array, X: Any) -> Any:
        """Scores (r, n) of the rows of X for the parameters W (r, p)."""
        coef, intercept = beside(W[:, : X.shape[1]].astype(self.dtype), X), beside(W[:, -1:].astype(self.dtype), X)
        Z = (X @ coef[0])[None] if len(W) == 1 else (X @ coef.T).T if sp.issparse(X) else coef @ X.T
        return Z + intercept if self.fit_intercept else Z

    def losses(self, y: Any, Z: Any) -> tuple[Any, Any]:
        """The losses (n,) of encoded targets at scores Z (r, n), and their derivatives by the scores, slopes (r, n)."""
        one = self.n_outputs == 1
        s, slopes = LOSSES[self.loss]().value_and_derivative(y, Z[0] if one else Z.T)
        return s, slopes[None] if one else slopes.T


@dataclass(frozen=True)
class Sampling:
    """The sample: one row of each window of `step` rows, which a hash chooses by the seed and the window's number."""

    seed: int
    step: int
    classify: bool  # whether the target has classes
    columns: list[str] | None = None  # the names of the features, for messages

    def numbers(self, first: int, n: int) -> Array:
        """The numbers of the rows of the sample among the n rows from `first` on."""
        windows = np.arange(first // self.step, -(-(first + n) // self.step))
        rows = windows * self.step + (hashed(self.seed, windows) % np.uint64(self.step)).astype(np.int64)
        return rows[(rows >= first) & (rows < first + n)]


def hashed(seed: int, numbers: Array) -> Array:
    with np.errstate(over="ignore"):
        x = np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64) + numbers.astype(np.uint64)
        return splitmix64(x * np.uint64(0x9E3779B97F4A7C15))


@dataclass(frozen=True)
class Description:
    """The results of the first pass over consecutive chunks."""

    columns: frozenset[int] = frozenset()  # all numbers of columns; more than one is an error
    dtypes: frozenset[str] = frozenset()  # of the features
    mass: float = 0.0
    whole: bool = True  # whether all weights are integers
    mass_of_label: Counter[Any] = field(default_factory=Counter)
    sample: tuple[Chunk, ...] = ()
    error: str | None = None  # the first problem, in the order of the rows

    def __add__(self, later: Description) -> Description:
        masses, error = Counter(self.mass_of_label), self.error or later.error
        masses.update(later.mass_of_label)  # which keeps labels without mass
        if error is None and len(masses) > MAX_CLASSES:
            error = (
                f"a classifier needs at most {MAX_CLASSES} classes, got {len(masses)} or more; the target seems to be "
                "a number: use AoRRRegressor"
            )
        return Description(
            self.columns | later.columns,
            self.dtypes | later.dtypes,
            self.mass + later.mass,
            self.whole and later.whole,
            masses if error is None else Counter(),
            self.sample + later.sample,
            error,
        )

    @property
    def dtype(self) -> str:
        """float32 if all features are float32 or float16, otherwise float64."""
        return "float32" if self.dtypes <= {"float32", "float16"} else "float64"


def describe(chunk: Chunk, message: Sampling) -> Description:
    """The kernel of the first pass: count and check the rows of a chunk, and draw its part of the sample."""
    X, y, weight = chunk.X, chunk.y, chunk.weight
    error = problem_of(chunk, message.classify, message.columns)
    if error is not None or not X.shape[0]:
        return Description(frozenset([X.shape[1]]), error=error)
    xp, weight = namespace(y), None if weight is None else cast(weight, "float64")
    mass_of_label: Counter[Any] = Counter()
    if message.classify:
        if weight is None:
            labels, masses = xp.unique(y, return_counts=True)
        else:
            labels, codes = xp.unique(y, return_inverse=True)
            masses = xp.bincount(codes, weights=weight)
        mass_of_label.update(dict(zip(host(labels).tolist(), host(masses).tolist(), strict=True)))
    chosen = message.numbers(chunk.first_row, X.shape[0]) - chunk.first_row
    part = chunk.rows(beside(chosen, X))
    part = part._replace(X=host(part.X), y=host(part.y), weight=None if weight is None else host(part.weight))
    return Description(
        frozenset([X.shape[1]]),
        frozenset([dtype_of(X)]),
        float(X.shape[0] if weight is None else weight.sum()),
        weight is None or bool((weight == xp.floor(weight)).all()),
        mass_of_label,
        (part,) if len(chosen) else (),
    )


def _kind(values: Any) -> str:
    """The kind of dtype, as NumPy names it: "f" for floating point, "i" for integers, "O" for objects."""
    if namespace(values) is np:
        return str(values.dtype.kind)
    return "f" if values.is_floating_point() else "i"


def _all_finite(values: Any) -> bool:
    """Whether all values are finite. If their sum overflows, each is checked."""
    xp = namespace(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(xp.isfinite(values.sum())) or bool(xp.isfinite(values).all())


def _first(wrong: Any) -> int:
    return int(np.flatnonzero(host(wrong))[0])


def problem_of(chunk: Chunk, classify: bool, columns: list[str] | None) -> str | None:
    """What is wrong with the rows of a chunk, whose features may have names; None if nothing is."""
    X, y, weight, name = chunk.X, chunk.y, chunk.weight, chunk.source or f"the rows from {chunk.first_row} on"
    xp = namespace(y)
    if _kind(X) not in "fiub":
        return f"features must be numbers, got dtype {X.dtype} in {name}; encode or leave out columns of text"
    if not _all_finite(X.data if sp.issparse(X) else X):
        bad = ~np.isfinite(X.toarray() if sp.issparse(X) else host(X))
        row, column = (int(places[0]) for places in np.nonzero(bad))
        named = column if columns is None else repr(columns[column])
        return (
            f"features must be finite, got {bad.sum()} NaN or infinite in {name}, the first in column "
            f"{named} of row {chunk.first_row + row}; drop or fill these rows"
        )
    if weight is not None and not (_all_finite(weight) and bool((weight >= 0).all())):
        wrong = _first(~((weight >= 0) & xp.isfinite(weight)))
        return (
            f"weights must be finite and not negative, got {weight[wrong]} in {name}, row {chunk.first_row + wrong}; "
            "a weight is a number of repetitions"
        )
    if y.ndim != 1:
        return f"the target must be one column, got shape {y.shape} in {name}; pass one label or number per row"
    if _kind(y) == "f" and not _all_finite(y):
        row = chunk.first_row + _first(~xp.isfinite(y))
        return f"the target must be finite, got NaN or infinity in {name}, the first in row {row}; drop these rows"
    if _kind(y) == "O" and any(value is None or value != value for value in y):
        return f"the target must not be missing, got a missing value in {name}; drop these rows"
    if not classify and _kind(y) not in "fiub":
        return f"a regressor needs a target of numbers, got dtype {y.dtype} in {name}; use AoRRClassifier for classes"
    return None


class Interval(NamedTuple):
    """An interval [low, high] of losses; as a bracket it very probably contains a cut."""

    low: float = -np.inf
    high: float = np.inf


class Request(NamedTuple):
    """One evaluation at W. Rows inside a bracket are collected, rows between the brackets are summed.

    `lower` is None if nothing is cut below, `upper` if nothing is cut above. With `edges`, the pass only sums the
    masses between neighbouring edges of the losses. With `among` = (W0, interval), only rows whose losses at W0 lie
    strictly inside the interval are summed, and none is collected. `limit` is the largest number of rows to collect.
    """

    W: Array
    lower: Interval | None = None
    upper: Interval | None = None
    edges: Array | None = None
    among: tuple[Array, Interval] | None = None
    limit: int = 500_000

    @property
    def overlap(self) -> bool:
        return self.lower is not None and self.upper is not None and self.upper.low <= self.lower.high


class Near(NamedTuple):
    """Collected rows: features, encoded targets, losses, slopes (r, n), scores (r, n) and masses."""

    X: Any
    y: Array
    losses: Array
    slopes: Array
    scores: Array
    mass: Array

    def take(self, which: Array) -> Near:
        return Near(self.X[which], *(values[..., which] for values in self[1:]))

    @staticmethod
    def joined(parts: tuple[Near, ...]) -> Near:
        """The rows of several parts in float64; class codes stay integers. If many losses are tied, rows are merged."""
        X = [part.X for part in parts]
        stacked = sp.vstack(X, format="csr") if any(map(sp.issparse, X)) else np.concatenate(X)
        rest = [np.concatenate(values, axis=-1) for values in list(zip(*parts, strict=True))[1:]]
        wide = [values.astype(np.float64, copy=False) if values.dtype.kind == "f" else values for values in rest]
        found = Near(stacked.astype(np.float64, copy=False), *wide)
        tied = not sp.issparse(stacked) and 2 * len(np.unique(found.losses)) <= len(found.losses)
        return _without_repetition(found) if tied else found

    def sums(self, weights: Array) -> Array:
        return tangent_sums(self.X, self.y, self.losses, self.slopes * weights, self.scores, weights)


@dataclass(frozen=True)
class Partial:
    """The results of an evaluation for consecutive rows."""

    sums: Array  # five masses (`_sorted_out`) and `tangent_sums`, flat; with `edges` the masses between them
    least: float = np.inf  # the smallest loss of a row of positive mass
    near: tuple[Near, ...] = ()  # empty if there are more than `limit`
    n_near: int = 0  # the number of collected rows, also above the limit
    limit: int = 0

    def __add__(self, later: Partial) -> Partial:
        n_near, near = self.n_near + later.n_near, self.near + later.near
        if n_near > self.limit:
            discarded = any(part.n_near and not part.near for part in (self, later)) or sp.issparse(near[0].X)
            merged = () if discarded else (Near.joined(near),)
            fewer = sum(len(part.y) for part in merged)
            near, n_near = (merged, fewer) if 0 < fewer <= self.limit else ((), n_near)
        return Partial(self.sums + later.sums, min(self.least, later.least), near, n_near, self.limit)


def blocks(chunk: Chunk) -> Iterator[Chunk]:
    """The chunk in blocks of BLOCK_ROWS rows; a tensor is one block."""
    n = chunk.X.shape[0]
    if n <= BLOCK_ROWS or namespace(chunk.X) is not np:
        yield chunk
        return
    for start in range(0, n, BLOCK_ROWS):
        yield chunk.rows(slice(start, min(start + BLOCK_ROWS, n)))


def evaluate(chunk: Chunk, message: tuple[Model, Request]) -> Partial:
    """The kernel of an evaluation: the sums over certainly kept rows, and the undecided rows."""
    model, ask = message
    empty = Partial(np.zeros(1), limit=ask.limit)
    return added(_evaluate_block(model, ask, block) for block in blocks(chunk)) if chunk.X.shape[0] else empty


def _evaluate_block(model: Model, ask: Request, block: Chunk) -> Partial:
    X, y = model.features(block.X), model.encoded(block.y)
    xp, mass = namespace(X), model.mass(y, block.weight)
    Z = model.scores(ask.W, X)
    s, slopes = model.losses(y, Z)
    if ask.edges is not None:
        bins = xp.searchsorted(beside(ask.edges, s), s)
        return Partial(host(cast(xp.bincount(bins, weights=mass, minlength=len(ask.edges) + 1), "float64")))
    if ask.among is None:
        kept, undecided, masks = _sorted_out(ask, s)
        counted = [mask.sum() if mass is None else (mask * mass).sum() for mask in masks]
        near = _collected(X, y, s, slopes, Z, mass, undecided)
    else:
        at, (low, high) = ask.among
        before = model.losses(y, model.scores(at, X))[0]
        kept, near, counted = (before > low) & (before < high), (), [0.0 * s[0]] * 5
    weight = cast(kept, dtype_of(s)) if mass is None else kept * mass
    table = tangent_sums(X, y, s, slopes * weight, Z, weight)
    least = xp.amin(s if mass is None else xp.where(mass > 0, s, 0 * s + np.inf))
    sums = host(xp.concatenate([xp.stack([cast(value, "float64") for value in (least, *counted)]), table.ravel()]))
    return Partial(sums[1:], float(sums[0]), near, sum(len(part.y) for part in near), ask.limit)


def _sorted_out(ask: Request, s: Any) -> tuple[Any, Any, list[Any]]:
    """Masks of the certainly kept and of the undecided rows, and five masks that divide the rows.

    They are the rows below the brackets, in the lower bracket, certainly kept, in the upper bracket, and above the
    brackets. If the brackets overlap, all rows from the lower to the upper end are in the upper bracket.
    """
    low = Interval(-np.inf, -np.inf) if ask.lower is None else ask.lower
    high = Interval(np.inf, np.inf) if ask.upper is None else ask.upper
    if ask.overlap:
        low, high = Interval(low.low, -np.inf), Interval(-np.inf, high.high)
    above, below = s > high.high, s < low.low
    in_low, in_high = ~below & (s <= low.high), ~below & (s >= high.low) & ~above
    kept = ~(above | below | in_low | in_high)
    return kept, in_low | in_high, [below, in_low, kept, in_high, above]


def _collected(X: Any, y: Any, s: Any, slopes: Any, Z: Any, mass: Any, undecided: Any) -> tuple[Near, ...]:
    """The undecided rows of positive mass, on the host."""
    xp = namespace(X)
    chosen = xp.where(undecided if mass is None else undecided & (mass > 0))[0]
    if not len(chosen):
        return ()
    mass = cast(0 * s[chosen] + 1, "float64") if mass is None else mass[chosen]
    near = Near(X[chosen], y[chosen], s[chosen], slopes[:, chosen], Z[:, chosen], mass)
    if len(chosen) > BLOCK_ROWS // 8 and not sp.issparse(X):
        near = _without_repetition(near)
    return (Near(*map(host, near)),)


def _without_repetition(near: Near) -> Near:
    """Merge equal rows and add their masses: if columns have few values, many equal rows are tied at a cut."""
    xp, (d, r), dtype = namespace(near.X), (near.X.shape[1], len(near.slopes)), dtype_of(near.y)
    rest = [cast(near.y, dtype_of(near.X))[None], near.losses[None], near.slopes, near.scores]
    rows = xp.concatenate([near.X, *(values.T for values in rest)], 1)
    found, group = xp.unique(rows, return_inverse=True, **({"axis": 0} if xp is np else {"dim": 0}))
    mass = xp.bincount(group.ravel(), weights=near.mass)
    parts = found[:, d + 2 : d + 2 + r].T, found[:, d + 2 + r :].T
    return Near(found[:, :d], cast(found[:, d], dtype), found[:, d + 1], *parts, mass)


def n_slope_groups(n_outputs: int) -> int:
    """The number of slope groups, whose tangents the certificate scales alike: by the sign of the slope or by class."""
    return 2 if n_outputs == 1 else n_outputs


def tangent_sums(X: Any, y: Any, s: Any, weighted: Any, Z: Any, weight: Any) -> Any:
    """The weighted sums over rows that determine the sum of the tangents of their losses, one row per slope group.

    A tangent is the linear function of the scores that touches the loss at the scores Z (r, n). s are the losses,
    `weighted` the slopes (r, n) times the weights. The columns are the mass, the loss, loss - slope . score, and for
    each score the slopes times the features, with a feature of ones as the last.
    """
    xp = namespace(Z)
    lost = s * weight
    columns = xp.stack([weight, lost, lost - (weighted * Z).sum(0)])
    if len(weighted) == 1:
        rising = weighted[0] > 0
        sides = [~rising, rising]
        products = _with_ones(xp.stack([weighted[0] * side for side in sides]), X)
        heads = [(columns * side).sum(1, dtype=xp.float64) for side in sides]
        return xp.stack([xp.concatenate(pair) for pair in zip(heads, products, strict=True)])
    table = []
    for label in range(len(weighted)):
        rows = xp.where(y == label)[0]
        products = _with_ones(weighted[:, rows], X[rows])
        table.append(xp.concatenate([columns[:, rows].sum(1, dtype=xp.float64), products.ravel()]))
    return xp.stack(table)


def _with_ones(U: Any, X: Any) -> Any:
    """U @ (X, 1) in float64, for U (g, n): products of blocks in the dtype of X, sums over blocks in float64."""
    xp, U = namespace(U), cast(U, dtype_of(X))
    ones = U.sum(1, dtype=xp.float64)[:, None]
    n = X.shape[0]
    whole = n - n % BLOCK_ROWS if n > BLOCK_ROWS else 0
    product = (X[whole:].T @ U[:, whole:].T).T if sp.issparse(X) else U[:, whole:] @ X[whole:]
    product = cast(product, "float64")
    if whole:
        parts = U[:, :whole].reshape(len(U), -1, BLOCK_ROWS).swapaxes(0, 1)
        product = product + (parts @ X[:whole].reshape(-1, BLOCK_ROWS, X.shape[1])).sum(0, dtype=xp.float64)
    return xp.concatenate([product, ones], 1)


def slopes_of(table: Array, r: int) -> Array:
    """The sums of slopes times features in a table of `tangent_sums`: its last axis becomes (r, d + 1)."""
    return table[..., SLOPES:].reshape(*table.shape[:-1], r, -1)


class Cutting(NamedTuple):
    """The message of `dropped`: a fitted model and its upper cut."""

    model: Model
    W: Array
    lam_hat: float
    whole_tie: bool  # whether rows equal to the cut are dropped


def dropped(chunk: Chunk, message: Cutting) -> Array:
    """The kernel of `dropped_`: a mask of the rows above the upper cut, or at it if the whole tie is dropped."""
    masks = [np.zeros(0, dtype=bool)]
    for block in blocks(chunk):
        model = message.model
        s = model.losses(model.encoded(block.y), model.scores(message.W, model.features(block.X)))[0]
        masks.append(host(s >= message.lam_hat if message.whole_tie else s > message.lam_hat))
    return np.concatenate(masks)
