"""Sample weights, and the arrays that a solver gets for them.

Integer weights are counts: weight 2 equals the row twice, exactly so on small data sets. Other weights are relative,
and a fit that chooses m or C does not depend on their scale: C refers to weights that average one (`scale_of`), and
standard errors are computed in units of one effective row (`unit_of`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.class_weight import compute_class_weight

from ..core.arrays import Array
from ..crossfit.folds import row_keys

# Up to this many rows are sorted. An integer weight then gives exactly the fit of repeated rows.
_SORTED_UP_TO = 5000
# A sparse matrix of up to this many entries is searched as a dense one, which for numbers ends up to 40% lower.
_DENSE_UP_TO = 1_000_000


def is_whole(weight: Array | None) -> bool:
    """Whether all weights are integers, so that they are counts; True without weights."""
    return weight is None or bool((weight == np.floor(weight)).all())


def as_count(mass: float) -> float:
    """A mass as an int if it is an integer up to rounding errors, otherwise as a float."""
    near = round(mass)
    return near if abs(mass - near) <= 1e-9 * max(1.0, abs(mass)) else float(mass)


def product_of(weight: Array | None, factor: Array | None) -> Array | None:
    """The mass of each row: its weight times the factor of its class; None if neither is given."""
    return weight if factor is None else factor if weight is None else weight * factor


def scale_of(weight: Array | None) -> float:
    """The mean of the positive weights, by which relative weights are divided if m is chosen; 1 for counts."""
    if weight is None or is_whole(weight):
        return 1.0
    return float(weight.sum() / np.count_nonzero(weight))


def unit_of(weight: Array | None, factor: Array | None = None) -> float:
    """The mass of one effective row: 1 for counts, c for weights that are all c.

    The mass of all rows in this unit is Kish's effective number of rows, (sum w)^2 / sum w^2. A weighted mean has the
    standard error of an unweighted mean of this many rows.
    """
    mass = product_of(weight, factor)
    if mass is None or is_whole(mass):
        return 1.0
    present = mass > 0
    counted = factor is not None and weight is not None and is_whole(weight)
    of_one = (factor if counted else mass)[present]  # type: ignore[index]
    if (of_one == of_one[0]).all():
        return float(of_one[0])
    return float(mass[present] @ of_one / mass[present].sum())


def class_factors(class_weight: Any, classes: Array, codes: Array, weight: Array | None) -> Array:
    """The class weight of each row, as in scikit-learn; "balanced" counts a row of weight 2 twice."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        sizes = np.bincount(codes, weights=weight, minlength=len(classes)).astype(np.float64)
        present = sizes > 0
        balance = np.divide(sizes.sum(), present.sum() * sizes, out=np.ones_like(sizes), where=present)
        return balance[codes]
    present = np.unique(codes)
    balance = compute_class_weight(class_weight, classes=classes[present], y=classes[codes])
    return np.asarray(balance[np.searchsorted(present, codes)], dtype=np.float64)


def canonical_rows(
    X: Any,
    y: Array,
    weight: Array | None,
    factor: Array | None = None,
    groups: Array | None = None,
    *,
    as_sparse: bool = False,
) -> tuple[Any, Array, Array | None, Array | None]:
    """Training rows, targets, masses and groups in canonical form: without rows of zero weight, and sorted if few.

    Weight 2 must equal the row twice. A search from random starts guarantees that only if both forms of the data become
    the same arrays, so a small data set is sorted, and repeated rows are written out or, if there are many, merged.
    Class weights, and a weight shared by all rows, change neither the order nor the merging. `factor` is the class
    weight of each row. With `as_sparse`, a sparse X stays sparse even if it is small. A returned mass of None means
    that each row counts once. Rows with groups are not sorted.
    """
    if sp.issparse(X) and X.shape[0] * X.shape[1] <= _DENSE_UP_TO and not as_sparse:
        X = X.toarray()
    mass = product_of(weight, factor)
    if mass is not None and not (mass > 0).all():
        present = np.flatnonzero(mass > 0)
        X, y, mass = X[present], y[present], mass[present]
        weight, factor, groups = (None if part is None else part[present] for part in (weight, factor, groups))
    if groups is not None:
        return X, y, mass, groups
    if is_whole(mass):
        weight, factor = (None if mass is None or (mass == 1.0).all() else mass), None
    elif weight is not None and (weight == weight[0]).all():
        weight, factor = None, mass
    total = X.shape[0] if weight is None else float(weight.sum())
    if not is_whole(weight) or total > _SORTED_UP_TO:
        return X, y, product_of(weight, factor), None
    rows, counts = _sorted(X, y, weight, int(total))
    return X[rows], y[rows], product_of(counts, None if factor is None else factor[rows]), None


def _sorted(X: Any, y: Array, weight: Array | None, total: int) -> tuple[Array, Array | None]:
    """The order of the rows, by a hash of X and y, and their counts: None if they are repeated instead."""
    keys = row_keys(X, 0) + row_keys(y if y.ndim == 2 else y[:, None], 1)
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(keys[order]) > 0))
    if len(first) <= total // 2:
        return order[first], np.add.reduceat(np.ones(len(order)) if weight is None else weight[order], first)
    return (order if weight is None else np.repeat(order, weight[order].astype(np.intp))), None
