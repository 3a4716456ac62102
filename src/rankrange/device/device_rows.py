"""The engine for rows on a device: implements the interface of `shards` with passes over tensors.

Search, choice of m and C, steps and certificate are those of `shards`. They run on the host, with a sample of the rows
and with sums. All passes over the rows run on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import is_classifier
from torch import Tensor

from ..core.arrays import Array
from ..shards.describe import Description, describe
from ..shards.engine import Kernel
from ..shards.fit import check_supported, fit_on_shards
from ..shards.holdout import Scores, Scoring, score_held_out
from ..shards.row_blocks import Batch, TreeSum
from ..shards.shard_kernels import (
    Cutting,
    Evaluation,
    Interval,
    Model,
    Partial,
    Partials,
    Request,
    Rows,
    Sampling,
    evaluate,
)
from ..shards.shard_kernels import dropped as dropped_rows
from .device_objective import DeviceData
from .passes import Data, EagerPass, Sizes, loss_and_slope, pass_over
from .tensors import Labels, as_column, as_labels, as_matrix

# The number of rows for calibrating probabilities.
SOME_ROWS = 1 << 15
# The largest number of undecided rows that are copied to the host; otherwise a counting pass, which is cheaper, narrows
# the brackets.
COLLECTED_ROWS = 1 << 15


class DeviceRows:
    """Rows, targets and weights on one device, as an engine of `shards`.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Features.
    y : Tensor or Labels
        Numeric targets, or labels as codes.
    weight : Tensor, optional
        Weights.
    choosing : bool, default=False
        Whether m or C is chosen, which needs a larger sample.
    sizes : Sizes, optional
        How many rows are used for each purpose.
    """

    columns: list[str] | None = None
    place = "on a device"
    further_steps = 4  # steps are cheap, so the gap is reduced far below the tolerance
    full_data = DeviceData

    def __init__(
        self,
        X: Tensor,
        y: Tensor | Labels,
        weight: Tensor | None = None,
        choosing: bool = False,
        sizes: Sizes | None = None,
    ) -> None:
        self.X, self.weight = X, weight
        self.sizes = Sizes() if sizes is None else sizes
        self.labels = y if isinstance(y, Labels) else None
        self.y = y.codes if isinstance(y, Labels) else y
        self.n_rows, self.n_columns = int(X.shape[0]), int(X.shape[1])
        self.sample_rows = self.sizes.choice_rows if choosing else max(self.sizes.search_rows, 40 * self.n_columns)
        self.search_rows = self.sample_rows // 4
        self.search_dtype = np.float32 if X.dtype == torch.float32 else np.float64
        self.collected_rows = COLLECTED_ROWS
        self._sampled: Tensor | None = None
        self._last: tuple[Model, EagerPass] | None = None

    def __rankrange_fit__(self, estimator: Any) -> Any:
        fit_on_shards(self, estimator)
        dtype = np.float32 if self.X.dtype == torch.float32 else np.float64
        estimator.coef_ = estimator.coef_.astype(dtype)
        if np.ndim(estimator.intercept_):
            estimator.intercept_ = estimator.intercept_.astype(dtype)
        return estimator

    def some(self) -> tuple[Array, Array, Array, Array | None, float]:
        """Evenly spaced rows on the host: row numbers, X, codes, weights or None, and their share of the total mass.

        At most SOME_ROWS rows; only for labels.
        """
        assert self.labels is not None
        rows = slice(0, self.n_rows, -(-self.n_rows // SOME_ROWS))
        codes = self.labels.codes[rows].to(torch.int64).cpu().numpy()
        weight = None if self.weight is None else self.weight[rows].to(torch.float64).cpu().numpy()
        share = len(codes) / self.n_rows
        if weight is not None and self.weight is not None:
            share = float(weight.sum()) / float(self.weight.sum(dtype=torch.float64))
        return np.arange(0, self.n_rows, rows.step), self.X[rows].cpu().numpy(), codes, weight, share

    def reduce(self, kernel: Kernel, message: Any) -> Any:
        """The result of a kernel of `shards` (`describe`, `evaluate` or `score_held_out`), computed on the device."""
        answers: dict[Any, Any] = {describe: self._describe, evaluate: self._evaluate, score_held_out: self._score}
        return answers[kernel](message)

    def map_lazy(self, kernel: Kernel, message: Any) -> Any:
        """An iterator with a single result of `lazy_rows`, because all rows are one shard."""
        return iter([self.lazy_rows(kernel, message)])

    def lazy_rows(self, kernel: Kernel, message: Cutting) -> Array:
        """A mask (n,) of the dropped rows, on the host, computed at once; the kernel must be `dropped`."""
        assert kernel is dropped_rows
        found = np.empty(self.n_rows, dtype=bool)
        for rows, s in self._losses(message.model, message.W):
            over = s >= message.lam_hat if message.whole_tie else s > message.lam_hat
            found[rows] = over.cpu().numpy()
        return found

    def pass_of(self, model: Model) -> EagerPass:
        """The pass over all rows for this model; the last one is cached."""
        if self._last is None or self._last[0] is not model:
            y = self.y
            if model.classes is not None and model.n_outputs == 1:
                y = 2 * y - 1  # int8: signs
            self._last = model, pass_over(Data(self.X, y, self.weight, model, self.sizes))
        return self._last[1]

    def _losses(self, model: Model, W: Array) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of all rows with their losses, which have the same bits as in other passes."""
        run = self.pass_of(model)
        for start in range(0, self.n_rows, run.chunk):
            rows = slice(start, min(start + run.chunk, self.n_rows))
            yield rows, run.losses(W, rows.start, rows.stop)

    def _describe(self, message: Sampling) -> Description:
        """Count rows and labels, and draw the sample, in float64. All numbers were already checked to be finite.

        Folds are not counted.
        """
        found = Description(n=self.n_rows, n_columns={self.n_columns}, dtypes={"float64"})
        weight = self.weight
        total = float(self.n_rows) if weight is None else float(weight.sum(dtype=torch.float64))
        found.mass = TreeSum()
        found.mass.add(0, np.array([total]))
        if weight is not None:
            found.weighted = bool((weight != 1).any())
            found.whole = bool((weight == weight.floor()).all())
        if self.labels is not None:
            found.labels = self._counts(self.labels)
        self._sampled = rows = self._draw(message)
        if len(rows):
            y = self.y[rows].cpu().numpy()
            y = y.astype(np.float64) if self.labels is None else self.labels.classes[y]
            part = None if weight is None else weight[rows].to(torch.float64).cpu().numpy()
            found.sample = [Batch(0, self.X[rows].to(torch.float64).cpu().numpy(), y, part)]
            found.numbers = [rows.cpu().numpy()]
        return found

    def _counts(self, labels: Labels) -> dict[Any, list[int]]:
        """For each label the number of rows, and the number of rows with positive weight."""
        size = len(labels.classes)
        rows = _counted(labels.codes, size)
        present = rows if self.weight is None else _counted(labels.codes[self.weight > 0], size)
        return dict(zip(labels.classes.tolist(), map(list, zip(rows, present, strict=True)), strict=True))

    def _draw(self, message: Sampling) -> Tensor:
        """Numbers of the rows in the sample, in order; rows of weight 0 are left out."""
        size = min(self.n_rows, round(self.n_rows * ((message.threshold + 1) / 2.0**64)))
        if size == self.n_rows:
            rows = torch.arange(size, device=self.X.device)
        else:
            chosen = np.random.default_rng(message.seed).choice(self.n_rows, size, replace=False, shuffle=False)
            rows = torch.as_tensor(np.sort(chosen), device=self.X.device)
        return rows if self.weight is None else rows[self.weight[rows] > 0]

    def _evaluate(self, message: Evaluation) -> Partials:
        return Partials([self._answer(message.model, request) for request in message.requests])

    def _answer(self, model: Model, request: Request) -> Partial:
        part = Partial(limit=request.limit)
        if request.edges is not None:
            part.sums.add(0, self._between(model, request.W, request.edges))
            return part
        found = self.pass_of(model).sums(request)
        part.sums.add(0, np.concatenate([found.masses, found.table.ravel()]))
        part.n_rows, part.least = found.n_undecided, found.least
        if not 0 < found.n_undecided <= len(found.rows):
            return part
        rows = self.collected(model, found.rows, found.losses, found.scores, request.limit)
        part.n_rows = found.n_undecided if rows is None else len(rows.y)
        part.rows = [] if rows is None else [rows]
        return part

    def collected(self, model: Model, rows: Tensor, losses: Tensor, scores: Tensor, limit: int) -> Rows | None:
        """The undecided rows on the host; None if there are more than `limit`.

        Equal rows are merged first if there are more than `limit` rows or if many losses are equal.
        """
        data = self.pass_of(model).data
        mass = data.mass(rows)
        if len(rows) > limit or 2 * len(torch.unique(losses)) <= len(rows):
            first, mass = _joined(torch.cat([self.X[rows], data.y[rows, None].to(self.X.dtype)], dim=1), mass)
            if len(first) > limit:
                return None
            rows, losses, scores = rows[first], losses[first], scores[:, first]
        x, y = self.X[rows].to(torch.float64), data.y[rows]
        slopes = loss_and_slope(model, y, scores)[1]
        y = y.to(torch.float64) if model.n_outputs == 1 else y.long()
        return Rows(*(values.cpu().numpy() for values in (x, y, losses, slopes, scores, mass)))

    def _between(self, model: Model, W: Array, edges: Array) -> Array:
        """The masses up to the first edge, between neighbouring edges, and above the last one: (edges + 1,)."""
        at = torch.as_tensor(edges.astype(np.float64), device=self.X.device)
        data, plain = self.pass_of(model).data, self.weight is None and model.class_weight is None
        total = torch.zeros(len(edges) + 1, dtype=torch.float64, device=self.X.device)
        for rows, s in self._losses(model, W):
            below, above = s <= at[0], s > at[-1]
            inside = (~(below | above)).nonzero()[:, 0]
            bins = torch.bucketize(s[inside], at)
            if plain:
                total[0] += below.sum()
                total[-1] += above.sum()
                total += torch.bincount(bins, minlength=len(total)).to(torch.float64)
            else:
                mass = data.mass(rows)
                total[0] += (mass * below).sum()
                total[-1] += (mass * above).sum()
                total.index_add_(0, bins, mass[inside])
        return total.cpu().numpy()

    def certain_at(self, model: Model, W: Array, between: Interval, at: Array) -> Array:
        """The `tangent_sums` at the parameters `at`, over the rows whose loss at W lies strictly inside `between`."""
        data = self.pass_of(model).data
        weight = torch.empty(
            self.n_rows, dtype=torch.uint8 if self.weight is None else self.weight.dtype, device=self.X.device
        )
        for rows, s in self._losses(model, W):
            inside = (s > between.low) & (s < between.high)
            weight[rows] = inside if self.weight is None else inside * self.weight[rows]
        return pass_over(replace(data, weight=weight)).sums(Request(at)).table

    def _score(self, message: Scoring) -> Scores:
        """`holdout.score_held_out`: sums of the scores of each fit on the rows outside the sample."""
        model = message.model
        data = self.pass_of(model).data
        sets = [torch.as_tensor(W, device=self.X.device) for W in message.sets]
        weight = torch.ones(self.n_rows, dtype=torch.bool, device=self.X.device)
        assert self._sampled is not None
        weight[self._sampled] = False
        n_classes = 1 if model.classes is None else len(model.classes)
        total = torch.zeros(3 * len(sets) + 1, n_classes, dtype=torch.float64, device=self.X.device)
        chunk = max(1, (1 << 24) // (self.n_columns + 4 * len(sets) * model.n_outputs))
        for start in range(0, self.n_rows, chunk):
            rows = slice(start, start + chunk)
            total += _scored(data, sets, rows, data.mass(rows) * weight[rows], message.sigma, n_classes)
        found = Scores()
        found.sums.add(0, total.cpu().numpy())
        return found


def _counted(codes: Tensor, size: int) -> list[int]:
    """The number of occurrences of each code; few codes are counted one by one, which needs no 64-bit copy."""
    if size <= 16:
        return torch.stack([(codes == code).sum() for code in range(size)]).tolist()
    return torch.bincount(codes, minlength=size).tolist()


def _joined(rows: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    """The position of the first of each set of equal rows, and their total mass."""
    _, group = torch.unique(rows, dim=0, return_inverse=True)
    count = int(group.max()) + 1
    first = torch.full((count,), len(rows), device=rows.device)
    first = first.scatter_reduce(0, group, torch.arange(len(rows), device=rows.device), "amin")
    return first, torch.zeros(count, dtype=mass.dtype, device=mass.device).index_add(0, group, mass)


def _scored(data: Data, sets: list[Tensor], rows: slice, mass: Tensor, sigma: float, n_classes: int) -> Tensor:
    """The sums of `holdout.Scores` over some rows, with these masses."""
    y, model = data.y[rows], data.model
    x, _ = data.scores(sets[0], rows)
    scores = []
    for W in sets:
        Z = W[:, : x.shape[1]] @ x.T + (W[:, -1:] if model.fit_intercept else 0.0)
        if model.classes is None:
            right = 1.0 - (((Z[0] - y) / (3.0 * sigma)) ** 2).clamp(max=1.0)
        else:
            right = ((Z[0] > 0) == (y > 0) if model.n_outputs == 1 else Z.argmax(0) == y).to(torch.float64)
        scores.append(right)
    S = torch.stack(scores)
    gains = S - S[:1]
    columns = torch.cat([S, gains, gains**2, torch.ones_like(S[:1])]) * mass
    if n_classes == 1:
        return columns.sum(1, keepdim=True)
    codes = (y > 0).long() if model.n_outputs == 1 else y.long()
    return columns @ torch.nn.functional.one_hot(codes, n_classes).to(torch.float64)


def rows_on_device(estimator: Any, X: Any, y: Any, sample_weight: Any = None, sizes: Sizes | None = None) -> DeviceRows:
    """Validate X, y and weights, and return them as an engine on the device of X."""
    check_supported(estimator, DeviceRows.place)
    if y is None:
        raise ValueError(f"{type(estimator).__name__}.fit needs y, the targets of the rows of X, got None")
    X = as_matrix(X, None)
    n = X.shape[0]
    target: Any = as_labels(y, n, X.device) if is_classifier(estimator) else as_column(y, "y", n, X.device)
    weight = None
    if sample_weight is not None:
        if np.ndim(sample_weight) == 0:
            raise ValueError(f"sample_weight must hold one value per row, got {sample_weight!r}")
        weight = as_column(sample_weight, "sample_weight", n, X.device)
        if bool((weight < 0).any()):
            raise ValueError(
                "sample_weight must not be negative, got negative values; a weight is a number of repetitions"
            )
    choosing = any(isinstance(value, str) and value == "auto" for value in (estimator.m, estimator.C))
    return DeviceRows(X, target, weight, choosing, sizes)


def _device(name: Any) -> torch.device:
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be a device of PyTorch such as 'cuda', 'cuda:1' or 'cpu', got {name!r}"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name!r} needs a GPU that PyTorch can use, got none; leave it out to fit on the CPU")
    return device
