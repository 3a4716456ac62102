"""The `aggregate` of the linear estimators: worst groups and weights by rank instead of one ranked range."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.aggregates import RankWeights, Stratified, WorstGroup
from ..core.arrays import Array
from ..core.objective import Objective

GROUPED = ("worst-group", "group-cvar")


def check_aggregate(estimator: Any, groups: Any) -> None:
    """Raise an error if the aggregate is unknown, lacks groups, or contradicts the other parameters."""
    aggregate = estimator.aggregate
    if aggregate is None:
        return
    if not isinstance(aggregate, RankWeights) and aggregate not in GROUPED:
        names = ", ".join(map(repr, GROUPED))
        raise ValueError(f"aggregate must be None, {names} or RankWeights(...), got {aggregate!r}")
    if not (isinstance(estimator.k, str) and estimator.k == "auto") and estimator.k != 1.0:
        raise ValueError(f"aggregate={aggregate!r} keeps all ranks after m, got k={estimator.k!r}; leave k out")
    if getattr(estimator, "stratify", False):
        raise ValueError(
            f"stratify=True drops rows class by class, got aggregate={aggregate!r} as well; use one of them"
        )
    if isinstance(aggregate, RankWeights):
        if not (isinstance(estimator.m, str) and estimator.m == "auto") and estimator.m != 0:
            raise ValueError(f"{aggregate!r} already weights the ranks, got m={estimator.m!r} as well; leave m out")
    elif groups is None:
        raise ValueError(f"aggregate={aggregate!r} needs the group of each row; pass groups to fit")
    share = estimator.group_share
    if isinstance(share, bool) or not isinstance(share, numbers.Real) or not 0.0 < float(share) <= 1.0:
        raise ValueError(f"group_share must be a number in (0, 1], a share of the groups, got {share!r}")


def searched(estimator: Any, objective: Objective, groups: Array | None) -> Objective:
    """The objective for choosing m. If groups are aggregated, the same share of each group is dropped."""
    if estimator.aggregate not in GROUPED:
        return objective
    assert groups is not None
    return replace(objective, aggregate=Stratified(groups))


def aggregated(estimator: Any, objective: Objective, groups: Array | None) -> Objective:
    """The objective with the `aggregate` of the estimator."""
    if estimator.aggregate is None:
        return objective
    if isinstance(estimator.aggregate, RankWeights):
        return replace(objective, aggregate=estimator.aggregate)
    assert groups is not None
    share = estimator.group_share if estimator.aggregate == "group-cvar" else 0.0
    return replace(objective, aggregate=WorstGroup(groups, share))


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
