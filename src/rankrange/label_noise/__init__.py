"""Which labels are wrong? One model for every entry point: out-of-fold predictions and labels in, a posterior out.

`model` is the model and its fit, `reliability` the curves that it is made of, `high_leverage` the rows whose
predictions are extrapolations, `actions` what to do about a row given what each mistake costs.
May import: `core`; NumPy and SciPy only.
"""

from .actions import LIKELY, POSSIBLE, SURE, Costs, actions
from .high_leverage import high_leverage_labels
from .model import LabelNoiseModel, LabelNoisePosterior, NoisePrior, RowPosterior, mixture_weights

__all__ = [
    "LIKELY",
    "POSSIBLE",
    "SURE",
    "Costs",
    "LabelNoiseModel",
    "LabelNoisePosterior",
    "NoisePrior",
    "RowPosterior",
    "actions",
    "high_leverage_labels",
    "mixture_weights",
]
