"""`NoisePrior`: the prior of the label-noise model, and the grid of rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array

# The grid of rates of wrong labels of a class: dense where the posterior of a clean table has its mass.
RATES = np.array([0, 3, 10, 20, 35, 50, 75, 100, 130, 160, 200, 240, 280, 330, 380, 440, 500, 560]) / 1000.0
# Rates above this share of the rate of random labels are excluded, because such labels are uninformative.
LARGEST = 0.95
_PROBABILITIES = {"no_error", "shared_rate", "class_unaffected", "unpredictable", "surprises"}
_ANY_SIGN = {"log_steepness", "steepness_slope"}


@dataclass(frozen=True)
class NoisePrior:
    """The prior of the label-noise model. Its defaults were chosen by log loss on development tables.

    The docstring of the module `reliability` defines the hardness of a table, hard rows and the two kinds of curves.

    Parameters
    ----------
    no_error : float
        Probability of the hypothesis that no label is wrong. If rates differ, all of them can be zero as well.
    shared_rate : float
        If some labels are wrong: probability that all classes have the same rate.
    class_unaffected : float
        If rates differ: probability that a class has no wrong label.
    rate_decay : float
        The density of rates decreases as exp(-rate / rate_decay).
    unpredictable : float
        Probability that the predictions are no better than the class frequencies, whatever the labels are.
    hardness_decay : float
        Otherwise the hardness t of a table has the density t^(-1/2) (1 - t)^hardness_decay, up to a constant: t is 0 if
        all true classes are predicted, and 1 if predictions are no better than the class frequencies.
    hardness_sd : float
        Standard deviation of the log odds of the hardness between the classes of a table.
    surprises : float
        Least probability that the predicted class is not the true one, even with the highest confidence.
    log_steepness, steepness_slope, steepness_sd : float
        Normal prior of the log steepness with which errors decrease with the rank of the confidence. Its mean is
        log_steepness + steepness_slope log(h) + log(1 - t), where h is the share of hard rows of a class and t the
        hardness of the class. steepness_sd is the standard deviation between tables, and also between the classes of a
        table. A row is hard if its prediction is wrong, whatever its label.
    log_scale_sd, shift_sd : float
        Standard deviations of the curve by log odds, relative to calibrated predictions: of the logarithm of its scale
        and of its shift.
    evidence_power : float
        Power to which the likelihood of the rates is raised.
    direction_rows : float
        Weight of the Dirichlet prior for the wrong labels of a true class, in rows.

    Examples
    --------
    >>> from rankrange.label_noise import LabelNoiseModel, NoisePrior
    >>> LabelNoiseModel(NoisePrior(no_error=0.9)).prior.no_error  # the labels were checked before
    0.9
    """

    no_error: float = 0.35
    shared_rate: float = 0.5
    class_unaffected: float = 0.5
    rate_decay: float = 0.4
    unpredictable: float = 0.1
    hardness_decay: float = 0.5
    hardness_sd: float = 1.0
    surprises: float = 0.001
    log_steepness: float = -0.7
    steepness_slope: float = -1.15
    steepness_sd: float = 0.35
    log_scale_sd: float = 0.7
    shift_sd: float = 1.0
    evidence_power: float = 0.8
    direction_rows: float = 2.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            probability, any_sign = name in _PROBABILITIES, name in _ANY_SIGN
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value!r}")
            if probability and not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must be a probability from 0 to 1, got {value!r}")
            if not probability and not any_sign and value <= 0.0:
                raise ValueError(f"{name} must be positive, got {value!r}")

    def rates(self, n_classes: int) -> tuple[Array, Array]:
        """Prior probabilities of the grid `RATES`: of a rate that all classes share, and of the rate of one class.

        Rates above 0.95 (1 - 1 / n_classes) have the probability 0, and so has a shared rate of 0. There must be at
        least two classes.
        """
        density = np.exp(-RATES / self.rate_decay) * np.gradient(RATES)
        density[(RATES == 0.0) | (LARGEST * (1.0 - 1.0 / n_classes) < RATES)] = 0.0
        shared = density / density.sum()
        by_class = (1.0 - self.class_unaffected) * shared
        by_class[0] = self.class_unaffected
        return shared, by_class
