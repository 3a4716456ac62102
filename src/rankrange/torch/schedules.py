"""Schedules of m and k: all samples at first, then fewer and fewer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.ranges import check_rank


class LinearSchedule:
    """Move a loss's m and k linearly to their final values: call `step` after each batch.

    Parameters
    ----------
    loss : AoRRLoss or LinearAoRRLoss
        The loss whose m and k are set, both fractions.
    m, k : float, optional
        Final values. One that is not given stays as it is.
    start : int, default=0
        Batches before they move, at the initial values of the loss.
    steps : int, default=1
        Batches over which they move.

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
        """Count a batch, and set and return (m, k) for the next one."""
        self.count += 1
        self._set()
        return self.loss.m, self.loss.k

    def _set(self) -> None:
        way = min(max((self.count - self.start) / self.steps, 0.0), 1.0)
        for name, (begin, end) in self.ends.items():
            setattr(self.loss, name, begin + way * (end - begin))

    def state_dict(self) -> dict[str, Any]:
        """The state to save with a checkpoint."""
        return {"count": self.count, "ends": {name: list(ends) for name, ends in self.ends.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue a saved schedule; the loss gets the m and k of that time."""
        self.count = state["count"]
        self.ends = {name: (ends[0], ends[1]) for name, ends in state["ends"].items()}
        self._set()


def _fraction(name: str, rank: Any) -> float:
    if isinstance(rank, str):
        raise ValueError(f"a schedule moves fractions, got {name}={rank!r}; make the loss with numbers")
    if not isinstance(check_rank(name, rank), float) and rank != 0:
        raise ValueError(f"a schedule moves fractions, got the count {name}={rank!r}; pass a float in [0, 1]")
    return float(rank)
