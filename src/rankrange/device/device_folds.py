"""Cross-validation on a device: fits are made on a sample on the host, and scored on all other rows on the device.

The choice of m with many rows in memory works in the same way (`crossfit.folds.plan_of`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from ..core.arrays import Array
from ..crossfit.fits import Fits
from ..crossfit.folds import CrossFit
from ..crossfit.held_out import OUTLYING, Scored
from .passes import Data, loss_and_slope

# The number of rows for estimating the size of residuals.
_RESIDUAL_ROWS = 1 << 18


@dataclass(frozen=True)
class MomentScores:
    """The mean score of each candidate, and the mean products of the scores of each pair, for standard errors.

    `mean` is (candidates,), `second` (candidates, candidates), and `mass` is the number of effective rows scored.
    """

    mass: float
    mean: Array
    second: Array

    def errors(self, candidate: int) -> Array:
        """Array (candidates,): the standard errors of the differences of the mean scores from that of one candidate."""
        variances = np.diag(self.second)
        square = variances + variances[candidate] - 2.0 * self.second[candidate]
        variance = square - (self.mean - self.mean[candidate]) ** 2
        different = square > 1e-13 * variances.max()  # otherwise the variance consists of rounding errors
        return np.asarray(np.sqrt(np.where(different, np.maximum(variance, 0.0), 0.0) / self.mass))


class DeviceCrossFit(CrossFit):
    """Cross-fitting with one hold-out: fits are made on the host and scored on all other rows on the device.

    With several folds (small samples) everything runs on the host. `sampled` are the numbers of the rows of the
    objective, and `unit` is the mass of one effective row. The other arguments are those of `CrossFit`.
    """

    def __init__(self, data: Data, sampled: Tensor, unit: float, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.data, self.unit = data, unit
        self.hold_out = len(self.tests) == 1 and self.objective.design.n == len(sampled)
        if self.hold_out:
            fitted = torch.as_tensor(np.asarray(self.tests[0]) == 0, device=sampled.device)
            self.outside = torch.ones(data.n, dtype=torch.bool, device=sampled.device)
            self.outside[sampled[fitted]] = False
            # Of a row that stands for several equal ones, a part may be tested and the rest fitted.
            share = self._test_masses[0] / np.maximum(self.objective.mass, 1e-300)
            self.tested_share = torch.ones(data.n, dtype=torch.float64, device=sampled.device)
            self.tested_share[sampled] = torch.as_tensor(share, dtype=torch.float64, device=sampled.device)

    def scored(self, fits: Fits) -> Scored:
        """The scores of each candidate on all rows outside its training set; with several folds as in `CrossFit`."""
        if not self.hold_out:
            return super().scored(fits)
        W = torch.as_tensor(fits.W[:, 0], device=self.data.X.device)
        class_weights = self._class_weights()
        sigma = self._sigma(W) if self.data.model.classes is None else 1.0
        count = len(W) + 1
        total = torch.zeros(count, count, dtype=torch.float64, device=W.device)
        for rows in self._chunks(count * self.data.model.n_outputs):
            mass = self.data.mass(rows) * self.outside[rows] / self.unit
            right = _right(self.data, W, rows, sigma)
            right = right if class_weights is None else right * class_weights[_codes(self.data, rows)]
            right = torch.cat([right, torch.ones_like(right[:1])])
            total += (right * mass) @ right.T
        sums = total.cpu().numpy()
        means = sums / sums[-1, -1]
        return MomentScores(float(sums[-1, -1]), means[-1, :-1], means[:-1, :-1])

    def _chunks(self, scores_per_row: int) -> Any:
        size = max(1, self.data.sizes.chunk_numbers // (self.data.X.shape[1] + 3 * scores_per_row))
        return (slice(start, min(start + size, self.data.n)) for start in range(0, self.data.n, size))

    def _class_weights(self) -> Tensor | None:
        """The weight of each class that makes the mean over rows a balanced accuracy; None for numeric targets."""
        if self.data.model.classes is None:
            return None
        mass = torch.zeros(self.data.model.n_classes, dtype=torch.float64, device=self.data.X.device)
        for rows in self._chunks(1):
            mass.index_add_(0, _codes(self.data, rows), self.data.mass(rows))
        present = mass > 0
        return torch.where(present, mass.sum() / present.sum() / mass.clamp(min=1e-300), 0.0)

    def _sigma(self, W: Tensor) -> float:
        """The scale of residuals, from a sample: the smallest robust scale of the candidates."""
        rows = slice(0, self.data.n, -(-self.data.n // _RESIDUAL_ROWS))
        x = self.data.X[rows].to(torch.float64)
        residual = (_scores(x, W, self.data.model.fit_intercept)[:, 0] - self.data.y[rows]).abs()
        residual = residual[:, self.outside[rows]]
        rank = max(1, round(0.7 * residual.shape[1]))
        spread = float(residual.sort(dim=1).values[:, rank - 1].min())
        return max(spread / float(ndtri(0.85)), 1e-9 * float(self.data.y.abs().max()), 1e-300)

    def _cost(self, fits: Fits) -> float:
        """The total loss of the ordinary fit on all rows outside its training set.

        With several folds or a numeric target, the cost of `CrossFit`.
        """
        if not self.hold_out or self.data.model.classes is None:
            return super()._cost(fits)
        W = torch.as_tensor(fits.W[0, :1], device=self.data.X.device)
        total = torch.zeros((), dtype=torch.float64, device=W.device)
        for rows in self._chunks(self.data.model.n_outputs):
            Z = _scores(self.data.X[rows].to(torch.float64), W, self.data.model.fit_intercept)[0]
            s = loss_and_slope(self.data.model, self.data.y[rows], Z)[0].clamp(min=0.0)  # margins for hinges
            total += (s * self.data.mass(rows) * self.tested_share[rows]).sum()
        return float(total)


def _codes(data: Data, rows: slice) -> Tensor:
    y = data.y[rows]
    return (y > 0).long() if data.model.n_outputs == 1 else y.long()


def _scores(x: Tensor, W: Tensor, fit_intercept: bool) -> Tensor:
    """Scores (candidates, r, rows) of rows x under W (candidates, r, p)."""
    d = x.shape[1]
    flat = W.reshape(-1, W.shape[2])
    Z = flat[:, :d] @ x.T
    return (Z + flat[:, d:] if fit_intercept else Z).reshape(len(W), -1, len(x))


def _right(data: Data, W: Tensor, rows: slice, sigma: float) -> Tensor:
    """Tensor (candidates, rows): 1 if correct, otherwise 0; for numeric targets 1 - min(1, (residual / 3 sigma)^2)."""
    model = data.model
    Z = _scores(data.X[rows].to(torch.float64), W, model.fit_intercept)
    if model.classes is None:
        return 1.0 - ((Z[:, 0] - data.y[rows]) / (OUTLYING * sigma)).square().clamp(max=1.0)
    codes = _codes(data, rows)
    guess = (Z[:, 0] > 0).long() if model.n_outputs == 1 else Z.argmax(1)
    return (guess == codes).to(torch.float64)
