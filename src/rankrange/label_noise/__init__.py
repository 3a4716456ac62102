"""The label-noise model.

It turns out-of-fold predictions and given labels into posterior probabilities of wrong labels.

`prior` has the prior, `model` the model and its fit, `reliability` its reliability curves, `high_leverage` the model of
high-leverage rows, and `actions` the choice of an action from the costs of mistakes. May import: `core`; NumPy and
SciPy only.
"""

from .actions import LIKELY as LIKELY
from .actions import POSSIBLE as POSSIBLE
from .actions import SURE as SURE
from .actions import Costs
from .actions import actions as actions
from .high_leverage import with_high_leverage as with_high_leverage
from .model import LabelNoiseModel, LabelNoisePosterior
from .model import RowPosterior as RowPosterior
from .model import mixture_weights as mixture_weights
from .prior import NoisePrior

__all__ = ["Costs", "LabelNoiseModel", "LabelNoisePosterior", "NoisePrior"]
