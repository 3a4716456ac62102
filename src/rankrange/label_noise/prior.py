"""`NoisePrior`: the prior of the label-noise model, and the grid of rates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array

# The grid of rates of wrong labels of a class: dense where the posterior of a clean table has its mass.
RATES = np.array([0, 3, 10, 20, 35, 50, 75, 100, 130, 160, 200, 240, 280, 330, 380, 440, 480, 520, 560]) / 1000.0
_PROBABILITIES = {"no_error", "shared_rate", "class_unaffected", "unpredictable", "surprises", "hidden_errors"}


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
        Otherwise the hardness t of a table has a density proportional to t^(-1/2) (1 - t)^hardness_decay: t is 0 if all
        true classes are predicted, and 1 if predictions are no better than the class frequencies.
    surprises : float
        Least probability that the predicted class is not the true one, even with the highest confidence.
    steepness, steepness_sd : float
        How steeply errors decrease with the rank of the confidence: the log steepness has a normal prior around
        log(steepness (1 - t) / h), where h is the share of rows of a class whose prediction is wrong, whatever the
        label. steepness_sd is the standard deviation between tables, and also between the classes of a table.
    class_sd : float
        Standard deviation between the classes of a table: of the log odds of their hardness, and of the shift and the
        log scale of their curves by log odds relative to calibrated predictions.
    evidence_power : float
        Power to which the likelihood of the rates is raised.
    hidden_errors : float
        Probability that overlap of the classes hides errors: an unknown part, from a tenth to all, of the labels that
        predictions contradict without confidence, and of those that models have learnt. It widens the interval only.
    dirichlet_rows : float
        Weight, in rows, of the two Dirichlet priors: equal weights of the members, and equal probabilities of the wrong
        labels of a true class.

    Examples
    --------
    >>> from rankrange.label_noise import LabelNoiseModel, NoisePrior
    >>> LabelNoiseModel(NoisePrior(no_error=0.9)).prior.no_error  # the labels were checked before
    0.9
    """

    no_error: float = 0.35
    shared_rate: float = 0.5
    class_unaffected: float = 0.5
    rate_decay: float = 0.5
    unpredictable: float = 0.12
    hardness_decay: float = 0.5
    surprises: float = 0.001
    steepness: float = 0.6
    steepness_sd: float = 0.35
    class_sd: float = 1.0
    evidence_power: float = 0.7
    hidden_errors: float = 0.5
    dirichlet_rows: float = 5.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            probability = name in _PROBABILITIES
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not np.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value!r}")
            if probability and not 0.0 <= value <= 1.0:
                raise ValueError(f"{name} must be a probability from 0 to 1, got {value!r}")
            if not probability and value <= 0.0:
                raise ValueError(f"{name} must be positive, got {value!r}")
        if not 0.0 < self.surprises < 0.5:
            raise ValueError(f"surprises must be above 0 and below 0.5, got {self.surprises!r}; 0.001 is usual")

    def rates(self, n_classes: int) -> tuple[Array, Array]:
        """Prior probabilities of the grid `RATES`: of a rate that all classes share, and of the rate of one class.

        Rates from 1 - 1 / n_classes on, at which labels are random, have the probability 0, and so has a shared rate of
        0. There must be at least two classes.
        """
        density = np.exp(-(RATES - RATES[1]).clip(0.0) / self.rate_decay) * np.gradient(RATES)
        density[(RATES == 0.0) | (1.0 - 1.0 / n_classes <= RATES)] = 0.0
        shared = density / density.sum()
        by_class = (1.0 - self.class_unaffected) * shared
        by_class[0] = self.class_unaffected
        return shared, by_class
