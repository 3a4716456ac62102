"""`partial_fit`: mini-batch steps with thresholds that are tracked across batches.

Ranks within a batch differ from ranks in the data. The thresholds lam and lam_hat are therefore tracked across batches
by the minimax updates of the paper's Algorithm 3: each moves by the difference between the share of losses above it and
the share that should be above it. The first batches use all rows, because the losses of an untrained model are
uninformative. The penalty is that of a fit to all rows so far, so its weight decreases with their number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..core.arrays import Array
from ..core.cuts import select
from ..core.objective import Objective

_BATCH = 128
_WARM_UP_BATCHES = 20
_RATE = 0.5


class Stream:
    """The state of `partial_fit`: the coefficients W (r, p), both thresholds, and running sums and counts.

    An estimator stores it as the dict `state()`, from which a new `Stream` continues.
    """

    def __init__(self, state: dict[str, Array]) -> None:
        self.W, self.squares = state["W"], state["squares"]
        self.lam, self.lam_hat, self.spread, self.batches = (float(v) for v in state["thresholds"])
        self.seen = float(state["seen"])  # the mass of all rows so far

    @classmethod
    def start(cls, shape: tuple[int, int]) -> Stream:
        """A stream before the first batch, for coefficients of this shape."""
        zero = np.zeros(shape)
        return cls({"W": zero, "squares": zero.copy(), "thresholds": np.zeros(4), "seen": np.zeros(())})

    def state(self) -> dict[str, Array]:
        """The current state as a dict of arrays."""
        thresholds = np.array([self.lam, self.lam_hat, self.spread, self.batches])
        return {"W": self.W, "squares": self.squares, "thresholds": thresholds, "seen": np.array(self.seen)}

    def learn(self, objective: Objective, C: float, m: float, k: float) -> None:
        """Learn from the rows of an objective, in order, in one pass, with a step for each batch of 128 rows.

        m and k are shares of the stream, and C is scikit-learn's, relative to all rows so far; the C of the objective
        is ignored.
        """
        n = objective.design.n
        for start in range(0, n, _BATCH):
            rows = np.arange(start, min(start + _BATCH, n))
            self._step(objective.rows(rows, 0, len(rows)), C, m, k)

    def _step(self, batch: Objective, C: float, m: float, k: float) -> None:
        mass = np.ones(batch.design.n) if batch.sample_weight is None else batch.sample_weight
        if mass.sum() <= 0:
            return
        self.seen += float(mass.sum())
        batch = replace(batch, C=C * self.seen * (k - m))
        s, slope = batch.losses_and_slopes(batch.design.scores(self.W))
        s = s.astype(np.float64, copy=False)
        self._track(s, mass / mass.sum(), m, k)
        if self.batches <= _WARM_UP_BATCHES:
            kept = mass / mass.sum()
        else:
            kept = mass * ((s > self.lam) & (s <= self.lam_hat)) / (mass.sum() * (k - m))
        slope *= kept
        gradient = batch.design.adjoint(slope) + batch.penalty_gradient(self.W)
        self.squares = self.squares + gradient**2
        # AdaGrad: one rate serves columns of any scale.
        self.W = self.W - _RATE * gradient / np.sqrt(np.maximum(self.squares, 1e-300))

    def _track(self, s: Array, share: Array, m: float, k: float) -> None:
        """Update the thresholds: average the cuts of the batches during warm-up, then take steps.

        `share` has the masses of the losses s, with a sum of 1. After the warm-up lam is -inf for k = 1, and lam_hat is
        inf for m = 0.
        """
        self.batches += 1
        spread = float(np.abs(s - share @ s) @ share)
        rate = max(1.0 / self.batches, 0.02)
        self.spread += rate * (spread - self.spread)
        if self.batches <= _WARM_UP_BATCHES:
            cuts = select(s, m, k, share)
            self.lam += (cuts.lam - self.lam) / self.batches
            top = cuts.lam_hat if np.isfinite(cuts.lam_hat) else 0.0
            self.lam_hat += (top - self.lam_hat) / self.batches
        else:
            self.lam += 10 * rate * self.spread * (float(share @ (s > self.lam)) - k)
            self.lam_hat += 10 * rate * self.spread * (float(share @ (s > self.lam_hat)) - m)
        if k >= 1.0:
            self.lam = -np.inf if self.batches > _WARM_UP_BATCHES else self.lam
        if m <= 0.0:
            self.lam_hat = np.inf if self.batches > _WARM_UP_BATCHES else self.lam_hat
        self.lam_hat = max(self.lam_hat, self.lam)
