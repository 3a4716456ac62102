"""Confirmation of m on the rows outside the sample. One pass scores up to eight fits of the sample.

No fit was trained on rows outside the sample, so all of them are test rows and no folds are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..core.objective import Objective
from ..crossfit.choose import loses_a_class
from ..solvers import Settings
from ..solvers.concentration import hessian
from ..solvers.descent import Metric, descend
from ..solvers.trim import search
from .engine import Shard, Shards
from .row_blocks import BLOCK_ROWS, TreeSum, aligned_blocks, as_rows, one_thread
from .shard_kernels import Model, Sampling

# The number of parameter sets that one pass scores.
MAX_SETS = 8
# Residuals are clipped at this many standard deviations.
_OUTLYING = 3.0


@dataclass(frozen=True)
class Scoring:
    """The message of a scoring pass: fits to score on the rows outside the sample.

    `sets` are their parameters, and `sigma` is the scale of residuals.
    """

    model: Model
    sets: tuple[Array, ...]
    sampling: Sampling
    sigma: float = 1.0


@dataclass
class Scores:
    """Weighted sums over data rows by class: an array (3 S + 1, classes) for S sets of parameters.

    It has S scores, S differences of these scores from the first, S squared differences, and the mass. A numeric target
    has one class.
    """

    sums: TreeSum = field(default_factory=TreeSum)

    def copy(self) -> Scores:
        """A copy that can be merged into."""
        return Scores(self.sums.copy())

    def merge(self, later: Scores) -> None:
        """Add the results of a later shard."""
        self.sums.extend(later.sums)


def score_held_out(shard: Shard, message: Scoring) -> Scores:
    """The kernel of a scoring pass: the sums of `Scores` over the rows of a shard that are not in the sample."""
    found, model = Scores(), message.model
    with one_thread():
        for batch in aligned_blocks(shard.batches()):
            y = model.encoded(batch.y)
            mass = model.mass(y, batch.weight)
            mass = np.ones(len(y)) if mass is None else mass.copy()
            mass[message.sampling.chosen(batch.first_row, len(y))] = 0.0
            X = as_rows(batch.X, model.dtype)
            scores = np.stack([_score(message, y, model.scores(W, X)) for W in message.sets])
            found.sums.add(batch.first_row // BLOCK_ROWS, _by_class(model, y, mass, scores))
    return found


def _score(message: Scoring, y: Array, Z: Array) -> Array:
    """Array (n,): 1 for correct predictions, otherwise 0; for numeric targets 1 - min(1, (residual / 3 sigma)^2)."""
    if message.model.classes is None:
        return 1.0 - np.minimum(1.0, ((Z[0] - y) / (_OUTLYING * message.sigma)) ** 2)
    return ((Z[0] > 0) == (y > 0) if message.model.n_outputs == 1 else Z.argmax(axis=0) == y).astype(np.float64)


def _by_class(model: Model, y: Array, mass: Array, scores: Array) -> Array:
    classes = 1 if model.classes is None else len(model.classes)
    codes = np.zeros(len(y), dtype=np.intp) if classes == 1 else (y > 0).astype(np.intp) if model.n_outputs == 1 else y
    gains = scores - scores[0]
    columns = [*scores, *gains, *gains**2, np.ones(len(y))]
    return np.stack([np.bincount(codes, weights=mass * column, minlength=classes) for column in columns])


class Candidate(NamedTuple):
    """A fit to the sample: m as a mass of all rows, scikit-learn's C, and the parameters."""

    m: float
    C: float
    W: Array


def candidates(
    sample: Objective, start: Array, m: float, share: float, C: float, shares: Array, open_C: bool
) -> list[Candidate]:
    """The candidates: the ordinary fit, the chosen one, and fits at neighbouring m and C.

    The sample is at the chosen m and k, and `start` is the chosen fit. `m` is the chosen mass of all rows, and `share`
    the mass of the sample divided by that of all rows. `shares` are the dropped shares that were compared when m was
    chosen; the nearest are candidates. If C is chosen too (`open_C`), weaker penalties are candidates as well. There
    are at most MAX_SETS. Neighbouring fits that drop most rows of a class are left out.
    """
    rng = np.random.default_rng(0)
    total = sample.total
    nearest = sorted(
        {float(s) for s in shares if 0 < s < 0.9 * sample.k / total}, key=lambda s: abs(s - sample.m / total)
    )
    masses = [s * total for s in nearest if abs(s * total - sample.m) > 0.01 * sample.m][
        : MAX_SETS - (4 if open_C else 2)
    ]
    found = [
        Candidate(0.0, C, search(_at(sample, 0.0, C, share), None, Settings(tol=1e-4, rng=rng)).w),
        Candidate(m, C, start),
    ]
    metric = Metric(hessian(sample, start))
    weaker = [(sample.m, factor * C) for factor in (10.0, 100.0)] if open_C else []
    for mass, penalty in [*((mass, C) for mass in masses), *weaker]:
        part = _at(sample, mass, penalty, share)
        W = descend(part.batch, start[None], metric, max_iter=40, tol=1e-6)[0][0]
        if not loses_a_class(part, W, mass):
            found.append(Candidate(m if mass == sample.m else mass / share, penalty, W))
    return found


def _at(sample: Objective, m: float, C: float, share: float) -> Objective:
    """The objective of the sample with another m (a mass of the sample) and another C (scikit-learn's, for all rows).

    Without weights m is rounded to a count. C is converted so that the penalty has the same weight as in the objective
    of all rows. `share` is the mass of the sample divided by that of all rows.
    """
    m = m if sample.sample_weight is not None else round(m)
    return replace(sample, m=m, C=C * (sample.k - m) / share)


def confirmed(
    shards: Shards,
    model: Model,
    sampling: Sampling,
    tried: list[Candidate],
    sigma: float,
    on_pass: Callable[[str], None],
    unit: float = 1.0,
) -> tuple[int, dict[str, Array]]:
    """The index of the chosen candidate, and the table of scores on the rows outside the sample.

    The table has, for each candidate, m, C, the score (the mean over classes), its gain over the first candidate, and
    the standard error of this gain. The candidate with the best score is chosen, or the choice of the sample (the
    second) if its score is within twice the sum of both standard errors. If this one does not beat the ordinary fit
    (the first) by a standard error, the ordinary fit is chosen. `unit` is the mass of one effective row.
    """
    on_pass("confirm")
    found: Any = shards.reduce(score_held_out, Scoring(model, tuple(one.W for one in tried), sampling, sigma))
    sums, count = found.sums.total(), len(tried)
    mass = sums[-1]
    present = mass > 0
    mean, gain, square = (sums[i * count : (i + 1) * count][:, present] / mass[present] for i in range(3))
    score, gains = mean.mean(axis=1), gain.mean(axis=1)
    errors = np.sqrt((np.maximum(square - gain**2, 0.0) * unit / mass[present]).sum(axis=1)) / present.sum()
    best = int(score.argmax())
    if score[best] - score[1] <= 2.0 * (errors[best] + errors[1]):
        best = 1
    if gains[best] <= errors[best]:
        best = 0
    table = {
        "m": np.array([one.m for one in tried]),
        "C": np.array([one.C for one in tried]),
        "score": score,
        "gain": gains,
        "error": errors,
    }
    return best, table
