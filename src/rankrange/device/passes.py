"""One pass over rows on a device: losses, and the sums that `shards` needs.

Eager PyTorch in float64, in blocks of rows, defines the results. On a GPU a Triton kernel reads X only once, for losses
of one score. `EagerPass` is used on the CPU, for several scores, for hinges, and for more than 1024 parameters.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.arrays import Array
from ..shards.shard_kernels import Model, Request, TangentTable, n_slope_groups

try:
    import triton

    from . import _pass_kernels
except ImportError:
    triton = None

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
# Parameters of the kernel: rows per tile, columns per block, warps; and the number of sums of a program before those of
# its columns.
BLOCK, WIDTH, WARPS, HEAD = 128, 32, 4, 16
_MAX_COLUMNS = 1024
_PROGRAMS_PER_PROCESSOR = 12
# Tiles per program when losses are written.
_TILES = 16
KERNEL_LOSSES = {"logistic": 0, "squared": 1, "huber": 2}


class PassSums(NamedTuple):
    """The results of a pass: five masses (`_sorted_out`), the smallest loss, `tangent_sums`, and the undecided rows."""

    masses: Array
    least: float
    table: Array
    n_undecided: int  # may exceed the number of listed rows
    rows: Tensor  # row numbers of the undecided rows, at most `Sizes.listed_rows` by the kernel
    losses: Tensor
    scores: Tensor  # (r, rows)


@dataclass(frozen=True)
class Sizes:
    """How many rows or entries of X are used for each purpose; tests use smaller numbers.

    Parameters
    ----------
    search_rows, choice_rows : int
        The rows of the sample for the search, and for choosing m or C.
    bracket_rows : int
        The rows whose losses give the brackets of the cuts.
    metric_numbers : int
        The number of entries of X in the rows whose Hessian is the metric of the steps.
    crossing_rows : int
        The rows on both sides of a cut, per parameter, from which the curvature of F at the cut is estimated.
    chunk_numbers : int
        The number of entries of X that are converted to float64 at a time.
    listed_rows : int
        The largest number of undecided rows that the kernel lists.
    """

    search_rows: int = 1 << 14
    choice_rows: int = 1 << 18
    bracket_rows: int = 1 << 19
    metric_numbers: int = 1 << 26
    crossing_rows: int = 500
    chunk_numbers: int = 1 << 25
    listed_rows: int = 1 << 22


@dataclass(frozen=True)
class Data:
    """Rows on one device: y as signs, codes or numbers; weight is None if each row counts once.

    The class weights are those of the model.
    """

    X: Tensor
    y: Tensor
    weight: Tensor | None
    model: Model
    sizes: Sizes = Sizes()

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.X.shape[0])

    def mass(self, rows: Any) -> Tensor:
        """The mass of some rows, float64: weight times the factor of the class."""
        y = self.y[rows]
        mass = torch.ones(len(y), dtype=torch.float64, device=y.device)
        if self.model.class_weight is not None:
            factor = torch.as_tensor(self.model.class_weight, device=y.device)
            mass = factor[(y > 0).long() if self.model.n_outputs == 1 else y.long()]
        return mass if self.weight is None else mass * self.weight[rows].to(torch.float64)

    def scores(self, W: Tensor, rows: Any) -> tuple[Tensor, Tensor]:
        """Some rows in float64, and their scores (r, rows)."""
        x = self.X[rows].to(torch.float64)
        Z = W[:, : x.shape[1]] @ x.T
        return x, Z + W[:, -1:] if self.model.fit_intercept else Z


def loss_and_slope(model: Model, y: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Losses (n,) and slopes (r, n) at scores Z (r, n): `shard_kernels.Model.losses_and_slopes` in PyTorch."""
    if model.loss == "softmax":
        labels = y.long()[None]
        s = torch.logsumexp(Z, 0) - Z.gather(0, labels)[0]
        return s, torch.softmax(Z, 0).scatter_add(0, labels, -torch.ones_like(Z[:1]))
    y, z = y.to(torch.float64), Z[0]
    if model.loss == "logistic":
        t = -y * z
        return t.clamp(min=0.0) + torch.log1p(torch.exp(-t.abs())), (-y * torch.sigmoid(t))[None]
    if model.loss == "hinge":
        return 1.0 - y * z, -y[None]
    r = z - y
    if model.loss == "squared":
        return r * r, 2.0 * r[None]
    slope = r.clamp(-1.0, 1.0)
    return slope * (r - slope / 2), slope[None]


def curvature(model: Model, y: Tensor, z: Tensor) -> Tensor:
    """The second derivative of a loss of one score: logistic, squared or huber."""
    if model.loss == "logistic":
        p = torch.sigmoid(z)
        return p * (1.0 - p)
    r = z - y.to(torch.float64)
    return torch.full_like(r, 2.0) if model.loss == "squared" else (r.abs() <= 1.0).to(torch.float64)


def has_kernels(data: Data) -> bool:
    """Whether Triton kernels are available for this device and this loss."""
    return triton is not None and (data.X.is_cuda or INTERPRETED) and data.model.loss in KERNEL_LOSSES


class Limits(NamedTuple):
    """The ends of the lower and of the upper bracket of a request; a missing cut has a bracket at infinity.

    If the brackets overlap, they are merged into the upper one, which then starts at the lower end of the lower one.
    """

    low_low: float
    low_high: float
    high_low: float
    high_high: float

    @classmethod
    def of(cls, request: Request) -> Limits:
        """The limits of a request."""
        low = (-math.inf, -math.inf) if request.lower is None else request.lower
        high = (math.inf, math.inf) if request.upper is None else request.upper
        if high[0] <= low[1]:
            return cls(low[0], -math.inf, -math.inf, high[1])
        return cls(*low, *high)


class EagerPass:
    """A pass over the rows in eager PyTorch, in blocks of rows; the reference implementation."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.chunk = max(1, data.sizes.chunk_numbers // (data.X.shape[1] + 4 * data.model.n_outputs))

    def losses(self, W: Array, start: int, stop: int) -> Tensor:
        """The losses of the rows [start, stop); start is a multiple of `chunk`, and stop at most start + chunk."""
        data = self.data
        _, Z = data.scores(torch.as_tensor(W, device=data.X.device), slice(start, stop))
        return loss_and_slope(data.model, data.y[start:stop], Z)[0]

    def sums(self, request: Request) -> PassSums:
        """The `tangent_sums` of the rows that are certainly kept, masses, and all undecided rows in order."""
        W = torch.as_tensor(request.W, device=self.data.X.device)
        parts = [self._chunk(W, request, a) for a in range(0, self.data.n, self.chunk)]
        masses, least, tables, rows, losses, scores = zip(*parts, strict=True)
        return PassSums(
            torch.stack(masses).sum(0).cpu().numpy(),
            float(torch.stack(least).min()),
            torch.stack(tables).sum(0).cpu().numpy(),
            sum(len(part) for part in rows),
            torch.cat(rows),
            torch.cat(losses),
            torch.cat(scores, dim=1),
        )

    def _chunk(self, W: Tensor, request: Request, start: int) -> tuple[Tensor, ...]:
        data, rows = self.data, slice(start, min(start + self.chunk, self.data.n))
        x, Z = data.scores(W, rows)
        s, slope = loss_and_slope(data.model, data.y[rows], Z)
        mass = data.mass(rows)
        kept, undecided, masses = _sorted_out(Limits.of(request), s, mass)
        weight = mass * kept
        table = tangent_sums(data.model, x, data.y[rows], s, slope * weight, Z, weight)
        chosen = (undecided & (mass > 0)).nonzero()[:, 0]
        least = torch.where(mass > 0, s, math.inf).min()
        return masses, least, table, chosen + start, s[chosen], Z[:, chosen]


def _sorted_out(at: Limits, s: Tensor, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Masks of the certainly kept and of the undecided rows, and the five masses of `shard_kernels._sorted_out`."""
    above, below = s > at.high_high, s < at.low_low
    in_low, in_high = ~below & (s <= at.low_high), ~below & (s >= at.high_low) & ~above
    kept = ~(above | below | in_low | in_high)
    masks = torch.stack([below, in_low, kept, in_high, above])
    return kept, in_low | in_high, masks.to(torch.float64) @ mass


def tangent_sums(model: Model, x: Tensor, y: Tensor, s: Tensor, weighted: Tensor, Z: Tensor, weight: Tensor) -> Tensor:
    """The table of `shard_kernels.tangent_sums`: sums by the sign of the slope, or by class."""
    lost = s * weight
    columns = torch.stack([weight, lost, lost - (weighted * Z).sum(0), *weighted])
    side = (weighted[0] > 0).long() if model.n_outputs == 1 else y.long()
    sides = torch.nn.functional.one_hot(side, n_slope_groups(model.n_outputs)).to(torch.float64).T
    products = torch.stack([(weighted * one_side) @ x for one_side in sides])
    return torch.cat([sides @ columns.T, products.flatten(1)], dim=1)


class FusedPass(EagerPass):
    """A pass by the Triton kernel, for one score and up to 1024 parameters, on a GPU or in Triton's interpreter."""

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        X = data.X
        parameters = X.shape[1] + data.model.fit_intercept
        self.parts = 1 << max(0, -(-parameters // WIDTH) - 1).bit_length()
        self.chunk = min(1 << 24, 1 << (data.n - 1).bit_length() if data.n > 1 else 1)
        tiles = -(-data.n // BLOCK)
        processors = torch.cuda.get_device_properties(X.device).multi_processor_count if X.is_cuda else 1
        self.tiles = -(-tiles // (processors * _PROGRAMS_PER_PROCESSOR))
        self.programs = -(-tiles // self.tiles)
        new = X.new_empty
        self.listed = min(data.sizes.listed_rows, data.n)
        self.sums_of = new((self.programs, HEAD + 2 * self.parts * WIDTH), dtype=torch.float64)
        self.scratch = new(max(self.programs * BLOCK, self.chunk // _TILES + BLOCK), dtype=torch.float64)
        self.list = new(self.listed, dtype=torch.int64)
        self.pairs = new((self.listed, 2), dtype=torch.float64)
        self.count = torch.zeros(1, dtype=torch.int32, device=X.device)
        self.none = new(1, dtype=torch.float64)

    @staticmethod
    def takes(data: Data) -> bool:
        """Whether the kernel supports these rows."""
        return has_kernels(data) and data.X.shape[1] + data.model.fit_intercept <= _MAX_COLUMNS

    def _launch(self, W: Array, at: Limits, rows: tuple[int, int], losses: Tensor | None) -> None:
        """Write the losses of the rows [first, stop) to `losses`; if it is None, write sums and undecided rows."""
        data, (first, stop) = self.data, rows
        model, X = data.model, data.X
        padded = np.zeros(self.parts * WIDTH)
        padded[: W.shape[1]] = W[0]
        factors = (1.0, 1.0) if model.class_weight is None else model.class_weight
        given = torch.as_tensor(np.concatenate([[*at, *factors], padded]), device=X.device)
        programs, tiles = (self.programs, self.tiles)
        if losses is not None:
            tiles = min(_TILES, -(-(stop - first) // BLOCK))
            programs = -(-(stop - first) // (BLOCK * tiles))
        self.count.zero_()
        _pass_kernels.one_pass[(programs,)](
            X, data.y, X if data.weight is None else data.weight, given[6:], given, self.sums_of,
            self.none if losses is None else losses, self.list, self.pairs, self.count, self.scratch,
            first, stop, X.stride(0), X.shape[1], self.listed, 0 if losses is None else 1, tiles,
            LOSS=KERNEL_LOSSES[model.loss], WEIGHTED=data.weight is not None, INTERCEPT=model.fit_intercept,
            PARTS=self.parts, WIDTH=WIDTH, BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip

    def losses(self, W: Array, start: int, stop: int) -> Tensor:
        """The losses of the rows [start, stop), with the same bits as in `sums`."""
        out = self.data.X.new_empty(stop - start, dtype=torch.float64)
        self._launch(W, Limits(*[0.0] * 4), (start, stop), out)
        return out

    def sums(self, request: Request) -> PassSums:
        """The `tangent_sums` of the rows that are certainly kept, masses, and at most `listed_rows` undecided rows."""
        self._launch(request.W, Limits.of(request), (0, self.data.n), None)
        least = self.sums_of[:, 5].min()
        total = torch.cat([self.sums_of.sum(0), least[None], self.count.to(torch.float64)]).cpu().numpy()
        count, listed = int(total[-1]), min(int(total[-1]), self.listed)
        rows, order = self.list[:listed].sort()
        pairs = self.pairs[:listed][order]
        table = _table_of(total[6:12], total[HEAD:-2].reshape(2, -1), self.data)
        return PassSums(total[:5], float(total[-2]), table, count, rows, pairs[:, 0], pairs[:, 1][None])


def _table_of(head: Array, products: Array, data: Data) -> Array:
    """The sums of the kernel as the table of `tangent_sums`; without an intercept the sums of slopes are 0.

    `head` has mass, loss and offset of both slope groups, `products` (2, columns) their sums of slopes times features.
    """
    d = data.X.shape[1]
    table = np.zeros((2, TangentTable.width(1, d)))
    table[:, : TangentTable.SLOPES] = head.reshape(2, 3)
    table[:, TangentTable.SLOPES + 1 :] = products[:, :d]
    if data.model.fit_intercept:
        table[:, TangentTable.SLOPES] = products[:, d]
    return table


def pass_over(data: Data) -> EagerPass:
    """The pass over these rows: the kernel if it supports them, otherwise eager PyTorch."""
    return FusedPass(data) if FusedPass.takes(data) else EagerPass(data)
