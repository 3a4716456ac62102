"""Schedules that change m and k of a loss during training, for example from all samples to fewer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.ranges import Rank, RankedRange, check_rank


class LinearSchedule:
    """Change m and k of a loss linearly to their final values. Call `step` after each batch.

    Parameters
    ----------
    loss : AoRRLoss or LinearAoRRLoss
        The loss whose m and k are changed. Values that change must be fractions, not counts.
    m, k : float, optional
        The final values; by default the initial ones.
    start, steps : int, default=0 and 1
        The number of first calls of `step` that change nothing, and of further calls over which m and k change.

    Examples
    --------
    >>> from rankrange.torch import AoRRLoss
    >>> loss = AoRRLoss(m=0.0, k=1.0)
    >>> schedule = LinearSchedule(loss, m=0.1, start=1, steps=2)
    >>> [round(schedule.step()[0], 2) for _ in range(4)]
    [0.0, 0.05, 0.1, 0.1]
    """

    def __init__(
        self, loss: Any, *, m: float | None = None, k: float | None = None, start: int = 0, steps: int = 1
    ) -> None:
        if start < 0 or steps < 1:
            raise ValueError(f"need start >= 0 and steps >= 1, got start={start}, steps={steps}")
        self.loss, self.start, self.steps, self.count = loss, start, steps, 0
        self.ends = {
            name: (_fraction(name, getattr(loss, name)), _fraction(name, end))
            for name, end in (("m", m), ("k", k))
            if end is not None
        }

    def step(self) -> tuple[Any, Any]:
        """Count one batch, set m and k for the next one, and return them."""
        self.count += 1
        self._set()
        return self.loss.m, self.loss.k

    def _set(self) -> None:
        way = min(max((self.count - self.start) / self.steps, 0.0), 1.0)
        ranks = {name: begin + way * (end - begin) for name, (begin, end) in self.ends.items()}
        self.loss.set_range(ranks.get("m", self.loss.m), ranks.get("k", self.loss.k))

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "ends": self.ends}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state, and set m and k of the loss accordingly."""
        self.count, self.ends = state["count"], state["ends"]
        self._set()


def _fraction(name: str, rank: Any) -> float:
    if isinstance(rank, str) or (not isinstance(check_rank(name, rank), float) and rank != 0):
        raise ValueError(f"a schedule changes fractions, got {name}={rank!r}; pass a float in [0, 1]")
    return float(rank)


class AccuracySchedule:
    """Set k of a loss by the training accuracy, as ordered SGD does: easy samples are dropped as accuracy increases.

    Parameters
    ----------
    loss : AoRRLoss or LinearAoRRLoss
        The loss whose k is set.
    levels : mapping of float to int or float
        The k to use from each accuracy on. Below the lowest of these accuracies k has its initial value.

    Examples
    --------
    >>> from rankrange.torch import AoRRLoss
    >>> schedule = AccuracySchedule(AoRRLoss(k=1.0), {0.8: 0.5, 0.9: 0.25})
    >>> schedule.step(0.85)  # once per epoch
    0.5
    """

    def __init__(self, loss: Any, levels: Mapping[float, Rank]) -> None:
        for k in levels.values():
            RankedRange(loss.m, k)  # validate k now, not after ten epochs
        self.loss, self.levels, self.start = loss, dict(sorted(levels.items())), loss.k

    def step(self, accuracy: float) -> Rank:
        """Set k for the given training accuracy, and return it."""
        reached = [k for level, k in self.levels.items() if accuracy >= level]
        self.loss.k = reached[-1] if reached else self.start
        return self.loss.k

    def state_dict(self) -> dict[str, Rank]:
        return {"start": self.start, "k": self.loss.k}

    def load_state_dict(self, state: Mapping[str, Rank]) -> None:
        self.start, self.loss.k = state["start"], state["k"]
