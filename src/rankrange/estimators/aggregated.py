"""The `aggregate` of the linear estimators: worst groups, or any aggregate of rows, instead of one ranked range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from ..core.aggregates import Aggregate, Stratified, WorstGroup
from ..core.arrays import Array
from ..core.cuts import Ranked
from ..core.objective import Objective

# The share of the groups that "group-cvar" averages over.
_CVAR_SHARE = 0.5
# Aggregates of groups, by name: constructors from the group of each row and the estimator.
GROUPED: dict[str, Callable[[Array, Any], Any]] = {
    "worst-group": lambda groups, estimator: WorstGroup(groups),
    "group-cvar": lambda groups, estimator: WorstGroup(groups, _CVAR_SHARE),
}


def by_groups(aggregate: Any) -> bool:
    """Whether the aggregate of an estimator compares groups of rows."""
    return isinstance(aggregate, str) and aggregate in GROUPED


def is_per_class(aggregate: Any) -> bool:
    """Whether an estimator drops the same share of each class."""
    return isinstance(aggregate, str) and aggregate == "per-class"


def uses_m(aggregate: Any) -> bool:
    """Whether m has an effect on the aggregate of an estimator."""
    return bool(getattr(aggregate, "uses_m", True))


def check_aggregate(estimator: Any, groups: Any) -> None:
    """Raise an error if the aggregate is unknown, lacks groups, or contradicts the other parameters."""
    aggregate = estimator.aggregate
    if aggregate is None or (is_per_class(aggregate) and is_classifier(estimator)):
        return
    whole = isinstance(aggregate, Aggregate) and not isinstance(aggregate, type)
    if not whole and not by_groups(aggregate):
        names = ", ".join(map(repr, [*(["per-class"] if is_classifier(estimator) else []), *GROUPED]))
        raise ValueError(f"aggregate must be None, {names}, RankWeights(...) or another aggregate, got {aggregate!r}")
    if hasattr(aggregate, "groups"):
        raise ValueError(
            f"{type(aggregate).__name__} has the groups of some rows, and the rows of a fit change; pass groups to "
            f"fit, and one of {', '.join(map(repr, GROUPED))} as the aggregate"
        )
    if (by_groups(aggregate) or not uses_m(aggregate)) and not _is_default(estimator.k, 1.0):
        raise ValueError(f"aggregate={aggregate!r} keeps all ranks after m, got k={estimator.k!r}; leave k out")
    if not uses_m(aggregate) and not _is_default(estimator.m, 0):
        raise ValueError(f"{aggregate!r} already weights the ranks, got m={estimator.m!r} as well; leave m out")
    if by_groups(aggregate) and groups is None:
        raise ValueError(f"aggregate={aggregate!r} needs the group of each row; pass groups to fit")


def _is_default(value: Any, same: float) -> bool:
    """Whether m or k is "auto", or the number that has the same effect."""
    return value == "auto" if isinstance(value, str) else bool(value == same)


def searched(estimator: Any, objective: Objective, groups: Array | None) -> Objective:
    """The objective for choosing m, with a ranked range; for aggregates of groups with one in each group."""
    if estimator.aggregate is None or is_per_class(estimator.aggregate):
        return objective
    if not by_groups(estimator.aggregate):
        return replace(objective, aggregate=Ranked())
    assert groups is not None
    return replace(objective, aggregate=Stratified(groups))


def aggregated(estimator: Any, objective: Objective, groups: Array | None) -> Objective:
    """The objective with the `aggregate` of the estimator."""
    if estimator.aggregate is None or is_per_class(estimator.aggregate):
        return objective
    if not by_groups(estimator.aggregate):
        return replace(objective, aggregate=estimator.aggregate)
    assert groups is not None
    return replace(objective, aggregate=GROUPED[estimator.aggregate](groups, estimator))


def cuts_by_group(losses: Array, objective: Objective, aggregate: Stratified) -> tuple[Array, Array]:
    """The upper cut of each group, infinite if no row of it is dropped, and a mask of the dropped rows."""
    highest, dropped = np.full(int(aggregate.groups.max()) + 1, np.inf), np.zeros(len(losses), dtype=bool)
    for rows, cut in aggregate.cuts(losses, objective.m, objective.sample_weight):
        assert isinstance(rows, np.ndarray)
        highest[aggregate.groups[rows[0]]] = cut.value
        over = losses[rows] >= cut.value if cut.takes_tie else losses[rows] > cut.value
        dropped[rows[over]] = True
    return highest, dropped


def group_table(
    names: Array,
    groups: Array,
    mass: Array,
    dropped: Array,
    losses: tuple[Array, Array],
    right: tuple[Array, Array] | None,
) -> dict[str, Array]:
    """One entry per group: the number of rows, the share dropped, and mean loss and accuracy of the kept rows.

    `losses` and `right` (whether a row is predicted correctly) are pairs: for the ordinary fit and for the model. If
    `right` is None, there is no accuracy. `mass` are the weights of the rows, and `names` the names of the groups 0, 1,
    and so on.
    """
    rows = np.bincount(groups, minlength=len(names))
    kept = mass * ~dropped

    def mean(values: Array, weight: Array) -> Array:
        total = np.bincount(groups, weights=weight, minlength=len(names))
        return np.bincount(groups, weights=weight * values, minlength=len(names)) / np.maximum(total, 1e-300)

    table = {"group": names, "rows": rows, "dropped": mean(dropped, mass)}
    table["loss_before"], table["loss"] = mean(losses[0], kept), mean(losses[1], kept)
    if right is not None:
        table["accuracy_before"], table["accuracy"] = mean(right[0], kept), mean(right[1], kept)
    return table
