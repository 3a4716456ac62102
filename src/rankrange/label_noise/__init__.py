"""Which labels are wrong? One model for every entry point: out-of-fold predictions and labels in, a posterior out.

`model` is the model and its fit, `reliability` the curves that it is made of, `high_leverage` the rows whose
predictions are extrapolations, `actions` what to do about a row given what each mistake costs.
May import: `core`; NumPy and SciPy only.
"""

from .actions import LIKELY as LIKELY
from .actions import POSSIBLE as POSSIBLE
from .actions import SURE as SURE
from .actions import Costs
from .actions import actions as actions
from .high_leverage import high_leverage_labels as high_leverage_labels
from .model import LabelNoiseModel, LabelNoisePosterior, NoisePrior
from .model import RowPosterior as RowPosterior
from .model import mixture_weights as mixture_weights

__all__ = ["Costs", "LabelNoiseModel", "LabelNoisePosterior", "NoisePrior"]
