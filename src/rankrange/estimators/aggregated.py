"""The `aggregate` of the linear estimators: worst groups, or any aggregate of rows, instead of one ranked range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from ..core.aggregates import Aggregate, Stratified, WorstGroup
from ..core.arrays import Array
from ..core.cuts import Ranked
from ..core.objective import Objective
from ..core.transition import predicted_codes

# Aggregates of groups, by name: constructors from the group of each row. "group-cvar" averages over half of the groups.
GROUPED: dict[str, Callable[[Array], Any]] = {
    "worst-group": WorstGroup,
    "group-cvar": lambda groups: WorstGroup(groups, 0.5),
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


def aggregates_of(aggregate: Any, classes: Array, groups: Array | None) -> tuple[Any, Any]:
    """The ranked range by which m is chosen, and the aggregate of the fit, for rows of these classes and groups."""
    if aggregate is None:
        return Ranked(), Ranked()
    if is_per_class(aggregate):
        return Stratified(classes), Stratified(classes)
    if not by_groups(aggregate):
        return Ranked(), aggregate
    assert groups is not None
    return Stratified(groups), GROUPED[aggregate](groups)


def cuts_by_group(losses: Array, objective: Objective) -> tuple[Array, Array]:
    """The upper cut of each group, infinite if no row of it is dropped, and a mask of the dropped rows."""
    groups = objective.aggregate.groups
    highest, dropped = np.full(int(groups.max()) + 1, np.inf), np.zeros(len(losses), dtype=bool)
    for rows, cut in Stratified(groups).cuts(losses, objective.m, objective.sample_weight):
        assert isinstance(rows, np.ndarray)
        highest[groups[rows[0]]] = cut.value
        dropped[rows[cut.takes(losses[rows])]] = True
    return highest, dropped


def group_table(
    names: Array, groups: Array, objective: Objective, dropped: Array, before: Array, after: Array
) -> dict[str, Array]:
    """One entry per group: the number of rows, the share dropped, and mean loss and accuracy of the kept rows.

    `before` and `after` are the scores (r, n) of the ordinary fit and of the model. Regressors have no accuracy.
    """
    mass = objective.mass.astype(np.float64)

    def mean(values: Array, weight: Array) -> Array:
        total, product = (np.bincount(groups, weights=w, minlength=len(names)) for w in (weight, weight * values))
        return product / np.maximum(total, 1e-300)

    kept = mass * ~dropped
    rows = np.bincount(groups, minlength=len(names))
    table = {"group": names, "rows": rows, "dropped": mean(dropped, mass)}
    scores = {"_before": before, "": after}
    table |= {f"loss{name}": mean(objective.losses(Z), kept) for name, Z in scores.items()}
    if objective.loss.targets != "numbers":
        table |= {f"accuracy{name}": mean(predicted_codes(Z) == objective.strata, kept) for name, Z in scores.items()}
    return table
