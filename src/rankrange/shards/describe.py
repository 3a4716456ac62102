"""The first pass over the data, which counts rows and classes, checks all values, and draws a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..core.arrays import Array
from .engine import Shard
from .row_blocks import BLOCK_ROWS, Batch, TreeSum, aligned_blocks, as_rows, joined, one_thread
from .shard_kernels import MAX_CLASSES, Sampling, fold_numbers


@dataclass
class Description:
    """The results of the first pass over consecutive shards."""

    n: int = 0
    n_columns: set[int] = field(default_factory=set)  # all numbers of columns; more than one is an error
    dtypes: set[str] = field(default_factory=set)  # of the features
    sparse: bool = False  # whether some features are sparse
    mass: TreeSum = field(default_factory=TreeSum)  # the sum of all weights, then the sum of each fold
    whole: bool = True  # whether all weights are integers
    weighted: bool = False  # whether some weight is not 1
    # label: [rows, rows of positive weight, rows of each fold]
    labels: dict[Any, list[int]] = field(default_factory=dict)
    sample: list[Batch] = field(default_factory=list)  # sampled rows of positive weight
    numbers: list[Array] = field(default_factory=list)  # row numbers of the sample
    error: str | None = None  # the first problem, in the order of the rows

    def copy(self) -> Description:
        """A copy that can be merged into."""
        labels = {label: list(counts) for label, counts in self.labels.items()}
        same = replace(self, mass=self.mass.copy(), labels=labels, sample=list(self.sample))
        same.numbers = list(self.numbers)
        same.n_columns, same.dtypes = set(self.n_columns), set(self.dtypes)
        return same

    def merge(self, later: Description) -> None:
        """Add the results of a later shard."""
        self.n += later.n
        self.n_columns |= later.n_columns
        self.dtypes |= later.dtypes
        self.sparse |= later.sparse
        self.mass.extend(later.mass)
        self.whole &= later.whole
        self.weighted |= later.weighted
        for label, counts in later.labels.items():
            _add(self.labels, label, counts)
        self.sample += later.sample
        self.numbers += later.numbers
        self.error = self.error or later.error

    @property
    def dtype(self) -> Any:
        """float32 if all features are float32 or float16, otherwise float64."""
        small = all(np.dtype(name) in (np.dtype(np.float32), np.dtype(np.float16)) for name in self.dtypes)
        return np.float32 if small else np.float64


def describe(shard: Shard, message: Sampling) -> Description:
    """The kernel of the first pass: count and check the rows of a shard up to the first error, and draw the sample."""
    found = Description()
    with one_thread():
        for batch in aligned_blocks(_until_error(shard.batches(), message, found)):
            _describe_batch(batch, message, found)
    if found.sample:  # as one array, which is faster to send
        found.sample, found.numbers = [joined(found.sample)], [np.concatenate(found.numbers)]
    return found


def _until_error(batches: Iterable[Batch], message: Sampling, found: Description) -> Iterator[Batch]:
    """Yield batches until one has an error, which is stored in `found.error`, or another number of columns.

    All numbers of columns are in `found.n_columns`.
    """
    for batch in batches:
        name = batch.source or f"the rows from {batch.first_row} on"
        found.n_columns.add(batch.X.shape[1])
        found.error = (
            _not_a_number(batch, name)
            or _wrong_weight(batch, name)
            or _wrong_target(batch, message, name)
            or _too_many_classes(found, name)
        )
        if found.error is not None or len(found.n_columns) > 1:
            return
        found.dtypes.add(str(batch.X.dtype))
        found.sparse |= sp.issparse(batch.X)
        yield batch


def _too_many_classes(found: Description, name: str) -> str | None:
    if len(found.labels) <= MAX_CLASSES:
        return None
    return (
        f"a classifier needs at most {MAX_CLASSES} classes, got more before {name}; the target seems to be a number: "
        "use AoRRRegressor"
    )


def _describe_batch(batch: Batch, message: Sampling, found: Description) -> None:
    n = batch.X.shape[0]
    found.n += n
    weight = batch.weight
    present = None if weight is None else weight > 0
    mass = float(n) if weight is None else float(weight.sum(dtype=np.float64))
    masks = [np.ones(n, dtype=bool) if present is None else present]
    masses = np.array([mass])
    if message.n_folds:
        fold = fold_numbers(message.seed, message.n_folds, batch.first_row, n)
        masses = np.append(masses, np.bincount(fold, weights=weight, minlength=message.n_folds))
        masks += [fold == number for number in range(message.n_folds)]
    found.mass.add(batch.first_row // BLOCK_ROWS, masses)
    if weight is not None:
        found.weighted |= bool((weight != 1).any())
        found.whole &= bool((weight == np.floor(weight)).all())
    if message.classify:
        _count_labels(found.labels, batch.y, masks)
    chosen = message.chosen(batch.first_row, n)
    chosen = np.flatnonzero(chosen if present is None else chosen & present)
    if len(chosen):
        part = None if weight is None else weight[chosen].astype(np.float64)
        rows = as_rows(batch.X, np.float32 if batch.X.dtype == np.float32 else np.float64)[chosen]
        found.sample.append(Batch(batch.first_row, rows, batch.y[chosen], part))
        found.numbers.append(batch.first_row + chosen)


def _count_labels(labels: dict[Any, list[int]], y: Array, masks: list[Array]) -> None:
    """Add the labels y to the counts of each label: the number of its rows, and of its rows in each mask.

    Up to 16 known labels are counted by comparison, which is faster than sorting.
    """
    rest = np.ones(len(y), dtype=bool)
    if len(labels) <= 16:
        for label in labels:
            of_label = y == label
            rest &= ~of_label
            _add(labels, label, [int(np.count_nonzero(rows)) for rows in (of_label, *(of_label & m for m in masks))])
    if not rest.any():
        return
    values, inverse = np.unique(y[rest], return_inverse=True)
    groups = [inverse, *(inverse[mask[rest]] for mask in masks)]
    columns = [np.bincount(group, minlength=len(values)) for group in groups]
    for label, counts in zip(values.tolist(), np.transpose(columns).tolist(), strict=True):
        _add(labels, label, counts)


def _add(labels: dict[Any, list[int]], label: Any, counts: list[int]) -> None:
    known = labels.get(label)
    labels[label] = counts if known is None else [a + b for a, b in zip(known, counts, strict=True)]


def _not_a_number(batch: Batch, name: str) -> str | None:
    X = batch.X
    if X.dtype.kind not in "fiub":
        return f"features must be numbers, got dtype {X.dtype} in {name}; encode or leave out columns of text"
    data = X.data if sp.issparse(X) else X
    if data.dtype.kind != "f":
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(data.sum()):  # fast check; if the sum overflows, each value is checked
            return None
    bad = ~np.isfinite(X.toarray() if sp.issparse(X) else X)
    if not bad.any():
        return None
    row, column = (int(indices[0]) for indices in np.nonzero(bad))
    return (
        f"features must be finite, got {bad.sum()} NaN or infinite in {name}, the first in column {{column:{column}}} "
        f"of row {batch.first_row + row}; drop or fill these rows"
    )


def _wrong_weight(batch: Batch, name: str) -> str | None:
    weight = batch.weight
    if weight is None or (np.isfinite(weight).all() and (weight >= 0).all()):
        return None
    wrong = int(np.flatnonzero(~np.isfinite(weight) | (weight < 0))[0])
    return (
        f"weights must be finite and not negative, got {weight[wrong]} in {name}, row {batch.first_row + wrong}; a "
        "weight is a number of repetitions"
    )


def _wrong_target(batch: Batch, message: Sampling, name: str) -> str | None:
    y = batch.y
    if y.ndim != 1:
        return f"the target must be one column, got shape {y.shape} in {name}; pass one label or number per row"
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        row = batch.first_row + int(np.flatnonzero(~np.isfinite(y))[0])
        return f"the target must be finite, got NaN or infinity in {name}, the first in row {row}; drop these rows"
    if y.dtype.kind == "O" and any(value is None or value != value for value in y):
        return f"the target must not be missing, got a missing value in {name}; drop these rows"
    if not message.classify and y.dtype.kind not in "fiub":
        return f"a regressor needs a target of numbers, got dtype {y.dtype} in {name}; use AoRRClassifier for classes"
    return None
