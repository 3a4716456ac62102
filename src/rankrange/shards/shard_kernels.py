"""Kernels: pure functions of a shard and a small message, with results that are merged in order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from ..core.hashing import splitmix64
from ..core.losses import LOSSES
from .engine import Shard
from .row_blocks import BLOCK_ROWS, TreeSum, aligned_blocks, as_rows, one_thread

# A target with more distinct labels is numeric, not classes.
MAX_CLASSES = 10_000


@dataclass(frozen=True)
class Sampling:
    """The sample: rows whose hash is at most the threshold. The hash depends only on the seed and the row number."""

    seed: int
    threshold: int
    classify: bool  # whether the target has classes
    n_folds: int = 0  # masses are also counted for this many folds

    def chosen(self, first_row: int, n: int) -> Array:
        """A mask of the rows of the sample among the n rows from `first_row` on."""
        return hashed(self.seed, first_row, n) <= np.uint64(self.threshold)


class Fold(NamedTuple):
    """The test rows of one fold, chosen by a hash of the row number that is independent of the sample's."""

    seed: int
    n_folds: int
    number: int

    def left(self, first_row: int, mass: Array | None, y: Array) -> Array:
        """The mass of consecutive rows from `first_row` on, with 0 for the test rows of the fold."""
        inside = fold_numbers(self.seed, self.n_folds, first_row, len(y)) != self.number
        return inside.astype(np.float64) if mass is None else mass * inside


@dataclass(frozen=True)
class Model:
    """The linear model of a fit, the same in every pass: it encodes targets and computes scores and losses."""

    loss: str
    n_outputs: int  # scores per row: 1, or with more than two classes one per class
    fit_intercept: bool
    dtype: Any  # of features and scores
    classes: Array | None = None  # sorted labels; None for a numeric target
    class_weight: Array | None = None  # one factor per class

    def encoded(self, y: Array) -> Array:
        """The targets, encoded for the loss: -1 and +1 for two classes, codes for more, numbers for regression."""
        if self.classes is None:
            return np.asarray(y, dtype=self.dtype)
        if self.n_outputs == 1:
            signs = (y == self.classes[1]).astype(self.dtype)
            signs *= 2
            signs -= 1
            return signs
        return np.searchsorted(self.classes, y)

    def codes(self, y: Array) -> Array:
        """The class codes of encoded targets."""
        return (y > 0).astype(np.intp) if self.n_outputs == 1 else y

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        assert self.classes is not None
        return len(self.classes)

    def mass(self, y: Array, weight: Array | None) -> Array | None:
        """The weight times the class weight of rows with encoded y; None if every row counts once."""
        if self.class_weight is None:
            return None if weight is None else weight.astype(np.float64, copy=False)
        factor = self.class_weight[self.codes(y)]
        return factor if weight is None else factor * weight

    def scores(self, W: Array, X: Any) -> Array:
        """Scores (r, rows) of the rows of X for the parameters W (r, p), in the dtype of the model."""
        coef = W[:, : X.shape[1]].astype(self.dtype)
        Z = (X @ coef[0])[None, :] if len(coef) == 1 else np.ascontiguousarray((X @ np.ascontiguousarray(coef.T)).T)
        if self.fit_intercept:
            Z += W[:, -1:].astype(self.dtype)
        return Z

    @property
    def by_margin(self) -> bool:
        """Whether the loss is a hinge, max(0, margin), where the margin is 1 - y z for the score z.

        Rows are then ranked by this margin, which also orders the rows with loss 0.
        """
        return self.loss == "hinge"

    def losses(self, y: Array, Z: Array) -> Array:
        """The losses (n,) of encoded targets y at scores Z (r, n); margins 1 - y z if the loss is a hinge."""
        if self.by_margin:
            return 1.0 - y * Z[0]
        return LOSSES[self.loss]().value(y, Z[0] if self.n_outputs == 1 else Z.T)

    def losses_and_slopes(self, y: Array, Z: Array) -> tuple[Array, Array]:
        """The result of `losses` (n,), and its derivatives by the scores, called slopes (r, n), at scores Z (r, n)."""
        if self.by_margin:
            return self.losses(y, Z), -y[None, :]
        s, slope = LOSSES[self.loss]().value_and_derivative(y, Z[0] if self.n_outputs == 1 else Z.T)
        return s, slope[None, :] if self.n_outputs == 1 else np.ascontiguousarray(slope.T)


class Interval(NamedTuple):
    """A bracket of a cut: an interval [low, high] that very probably contains it."""

    low: float
    high: float


@dataclass(frozen=True)
class Request:
    """One evaluation at W. Rows inside a bracket are collected, rows between the brackets are summed.

    `lower` is None if nothing is cut below, `upper` if nothing is cut above. With `edges`, the pass only sums the
    masses between neighbouring edges of the losses. `limit` is the largest number of rows to collect over all shards.
    The rows of the fold `without` are left out.
    """

    W: Array
    lower: Interval | None = None
    upper: Interval | None = None
    edges: Array | None = None
    limit: int = 500_000
    without: Fold | None = None


@dataclass(frozen=True)
class Evaluation:
    """The message of an evaluation pass: the model and one request per parameter set."""

    model: Model
    requests: tuple[Request, ...]


class Rows(NamedTuple):
    """Collected rows: features, encoded targets, losses, slopes (r, n), scores (r, n) and masses."""

    X: Any
    y: Array
    losses: Array
    slopes: Array
    scores: Array
    mass: Array

    @classmethod
    def joined(cls, parts: list[Rows]) -> Rows:
        """The rows of several parts, in order."""
        X = [part.X for part in parts]
        stacked = sp.vstack(X, format="csr") if any(map(sp.issparse, X)) else np.concatenate(X)
        rest = [np.concatenate(column, axis=-1) for column in list(zip(*parts, strict=True))[1:]]
        return cls(stacked, *rest)


@dataclass
class Partial:
    """The results of an evaluation for consecutive shards."""

    sums: TreeSum = field(default_factory=TreeSum)  # see `evaluate`
    rows: list[Rows] = field(default_factory=list)  # empty if there are more than `limit`
    n_rows: int = 0  # the number of collected rows, also above the limit
    limit: int = 500_000  # the largest number of rows to collect
    least: float = np.inf  # the smallest loss of a row of positive mass

    def merge(self, later: Partial) -> None:
        """Add the results of a later shard."""
        self.sums.extend(later.sums)
        self.n_rows += later.n_rows
        self.least = min(self.least, later.least)
        # Above the limit, the rows are discarded and the driver narrows its brackets.
        self.rows = self.rows + later.rows if self.n_rows <= self.limit else []

    def copy(self) -> Partial:
        """A copy that can be merged into."""
        return replace(self, sums=self.sums.copy(), rows=list(self.rows))

    def pack(self) -> Partial:
        """Join the collected rows into one `Rows` for sending, in place, and return self."""
        self.rows = [Rows.joined(self.rows)] if len(self.rows) > 1 else self.rows
        return self


@dataclass
class Partials:
    """One `Partial` per request."""

    parts: list[Partial]

    def copy(self) -> Partials:
        """A copy that can be merged into."""
        return Partials([part.copy() for part in self.parts])

    def merge(self, later: Partials) -> None:
        """Add the results of a later shard for each request."""
        for part, other in zip(self.parts, later.parts, strict=True):
            part.merge(other)


def evaluate(shard: Shard, message: Evaluation) -> Partials:
    """The kernel of an evaluation: for each request the sums over certainly kept rows, and the undecided rows.

    The sums are five masses (`_sorted_out`) and the table of `tangent_sums`; with `edges`, the masses between them.
    """
    model = message.model
    parts = [Partial(limit=request.limit) for request in message.requests]
    with one_thread():
        for batch in aligned_blocks(shard.batches()):
            X = as_rows(batch.X, model.dtype)
            y = model.encoded(batch.y)
            mass = model.mass(y, batch.weight)
            for request, part in zip(message.requests, parts, strict=True):
                left = mass if request.without is None else request.without.left(batch.first_row, mass, y)
                _evaluate_block(model, request, part, batch.first_row // BLOCK_ROWS, X, y, left)
    return Partials([part.pack() for part in parts])


def _evaluate_block(
    model: Model, request: Request, part: Partial, block: int, X: Any, y: Array, mass: Array | None
) -> None:
    Z = model.scores(request.W, X)
    if request.edges is not None:
        bins = np.searchsorted(request.edges, model.losses(y, Z))
        part.sums.add(block, np.bincount(bins, weights=mass, minlength=len(request.edges) + 1).astype(np.float64))
        return
    s, slope = model.losses_and_slopes(y, Z)
    present = s if mass is None else s[mass > 0]
    part.least = min(part.least, float(present.min(initial=np.inf)))
    kept, undecided, masses = _sorted_out(request, s, mass)
    if undecided is not None:
        chosen = np.flatnonzero(undecided if mass is None else undecided & (mass > 0))
        if len(chosen):
            _collect(
                part, Rows(X[chosen], y[chosen], s[chosen], slope[:, chosen], Z[:, chosen], _mass_of(mass, chosen))
            )
    weight = kept.astype(s.dtype) if mass is None else kept * mass
    slope *= weight
    part.sums.add(block, np.concatenate([masses, tangent_sums(X, y, s, slope, Z, weight).ravel()]))


def _mass_of(mass: Array | None, rows: Array) -> Array:
    return np.ones(len(rows)) if mass is None else mass[rows]


def _sorted_out(request: Request, s: Array, mass: Array | None) -> tuple[Array, Array | None, Array]:
    """Masks of the certainly kept and of the undecided rows, and five masses.

    The masses are those of the rows below the brackets, in the lower bracket, certainly kept, in the upper bracket, and
    above the brackets. If the brackets overlap, all rows from the lower to the upper end count as in the upper bracket.
    The mask of undecided rows is None without brackets.
    """
    low, high = request.lower, request.upper
    if high is not None and low is not None and high.low <= low.high:  # one bracket for both cuts
        over, undecided = s > high.high, (s >= low.low) & (s <= high.high)
        kept = np.zeros(len(s), dtype=bool)
        return kept, undecided, _masses(mass, ~(over | undecided), None, kept, undecided, over)
    above = below = in_low = in_high = None
    kept = np.ones(len(s), dtype=bool)
    if high is not None:
        above, in_high = s > high.high, s >= high.low
        kept &= ~in_high
        in_high &= ~above
    if low is not None:
        below, in_low = s < low.low, s <= low.high
        kept &= ~in_low
        in_low &= ~below
    both = in_high if in_low is None else in_low if in_high is None else in_low | in_high
    return kept, both, _masses(mass, below, in_low, kept, in_high, above)


def _masses(mass: Array | None, *masks: Array | None) -> Array:
    if mass is None:
        return np.array([0.0 if mask is None else np.count_nonzero(mask) for mask in masks], dtype=np.float64)
    return np.array([0.0 if mask is None else mass[mask].sum() for mask in masks])


def n_slope_groups(n_outputs: int) -> int:
    """The number of slope groups: groups of rows whose tangents the certificate multiplies by the same factor.

    With one score there are two, the rows with negative and with positive slopes; with several scores, one per class.
    """
    return 2 if n_outputs == 1 else n_outputs


class TangentTable:
    """The columns of `tangent_sums`: mass, loss, loss - slope . score, slope (r columns), slope times x (r d)."""

    MASS, LOSS, OFFSET, SLOPES = 0, 1, 2, 3

    @staticmethod
    def width(r: int, d: int) -> int:
        """The number of columns of the table for r scores and d features."""
        return 3 + r + r * d


def tangent_sums(X: Any, y: Array, s: Array, weighted: Array, Z: Array, weight: Array) -> Array:
    """The weighted sums over rows that determine the sum of the tangents of their losses, one row per slope group.

    A tangent is the linear function of the scores that touches the loss at the scores Z (r, n). `TangentTable` names
    the columns. s are the losses, `weighted` the slopes (r, n) times the weights. The result is float64; products of
    float32 features are summed in float32, for which blocks are small enough.
    """
    weighted_loss = s * weight
    offset = weighted_loss - np.einsum("rn,rn->n", weighted, Z)
    columns = (weight, weighted_loss, offset)
    return _by_sign(X, weighted, columns) if len(weighted) == 1 else _by_class(X, y, weighted, columns)


def _by_sign(X: Any, weighted: Array, columns: tuple[Array, ...]) -> Array:
    out = np.zeros((2, TangentTable.width(1, X.shape[1])))
    rising = weighted[0] > 0
    split = np.empty((2, X.shape[0]), dtype=weighted.dtype)
    np.multiply(weighted[0], rising, out=split[1])
    np.subtract(weighted[0], split[1], out=split[0])
    out[:, TangentTable.SLOPES + 1 :] = (X.T @ split.T).T if sp.issparse(X) else split @ X
    sides = np.empty((2, X.shape[0]))
    sides[1] = rising
    np.subtract(1.0, sides[1], out=sides[0])
    out[:, : TangentTable.SLOPES + 1] = sides @ np.stack([*columns, weighted[0]], dtype=np.float64).T
    return out


def _by_class(X: Any, y: Array, weighted: Array, columns: tuple[Array, ...]) -> Array:
    r, d = len(weighted), X.shape[1]
    out = np.zeros((r, TangentTable.width(r, d)))
    order = np.argsort(y, kind="stable")
    X, weighted = X[order], weighted[:, order]
    edges = np.searchsorted(y[order], np.arange(r + 1))
    for side, (a, b) in enumerate(pairwise(edges)):
        if a == b:
            continue
        part = np.ascontiguousarray(weighted[:, a:b])
        out[side, : TangentTable.SLOPES] = [values[order[a:b]].sum(dtype=np.float64) for values in columns]
        out[side, TangentTable.SLOPES : TangentTable.SLOPES + r] = part.sum(axis=1, dtype=np.float64)
        product = (X[a:b].T @ part.T).T if sp.issparse(X) else part @ X[a:b]
        out[side, TangentTable.SLOPES + r :] = product.ravel()
    return out


def _collect(part: Partial, rows: Rows) -> None:
    if len(rows.y) > BLOCK_ROWS // 8 and not sp.issparse(rows.X):
        rows = _without_repetition(rows)
    part.n_rows += len(rows.y)
    if part.n_rows <= part.limit:
        part.rows.append(rows)
    else:
        part.rows = []


def _without_repetition(rows: Rows) -> Rows:
    """Merge equal rows and add their masses, unless more than half of the rows are distinct.

    If columns have few values, many equal rows are tied at a cut.
    """
    table = np.ascontiguousarray(np.column_stack([rows.X, rows.y, rows.losses]).astype(np.float64))
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > len(keys) // 2:
        return rows
    mass = np.bincount(inverse, weights=rows.mass)
    order = np.argsort(first)
    first = first[order]
    return Rows(
        rows.X[first], rows.y[first], rows.losses[first], rows.slopes[:, first], rows.scores[:, first], mass[order]
    )


@dataclass(frozen=True)
class Cutting:
    """The message of `dropped`: a fitted model and its upper cut."""

    model: Model
    W: Array
    lam_hat: float
    whole_tie: bool  # whether rows equal to the cut are dropped


def dropped(shard: Shard, message: Cutting) -> Array:
    """The kernel of `dropped_`: a mask of the rows above the upper cut, or at it if the whole tie is dropped."""
    masks = []
    model = message.model
    with one_thread():
        for batch in aligned_blocks(shard.batches()):
            y = model.encoded(batch.y)
            s = model.losses(y, model.scores(message.W, as_rows(batch.X, model.dtype)))
            masks.append(s >= message.lam_hat if message.whole_tie else s > message.lam_hat)
    return np.concatenate(masks) if masks else np.zeros(0, dtype=bool)


def fold_numbers(seed: int, n_folds: int, first_row: int | Array, n: int) -> Array:
    """The fold of each of n rows from `first_row` on, or of the rows with these numbers."""
    return (hashed(seed ^ 0x5851F42D4C957F2D, first_row, n) % np.uint64(n_folds)).astype(np.intp)


def hashed(seed: int, first_row: int | Array, n: int) -> Array:
    """64-bit hashes (splitmix64) of the seed and of the numbers of n rows from `first_row` on, or of these numbers."""
    rows = np.arange(n, dtype=np.uint64) + np.uint64(first_row) if np.ndim(first_row) == 0 else first_row
    with np.errstate(over="ignore"):
        x = np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64) + np.asarray(rows).astype(np.uint64)
        return splitmix64(x * np.uint64(0x9E3779B97F4A7C15))
