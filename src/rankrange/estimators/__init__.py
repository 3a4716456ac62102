"""scikit-learn estimators. `fit` validates the data, builds an objective, calls a solver and stores the result.

May import: `core`, `solvers`, `crossfit`, `label_noise`, `outliers`, `inference`, and `metrics`.
"""

from .any_classifier import RankedRangeClassifier
from .any_regressor import RankedRangeRegressor
from .classifier import AoRRClassifier
from .partial_auc import PartialAUCClassifier
from .regressor import AoRRRegressor
from .tkml import TKMLClassifier

__all__ = [
    "AoRRClassifier",
    "AoRRRegressor",
    "PartialAUCClassifier",
    "RankedRangeClassifier",
    "RankedRangeRegressor",
    "TKMLClassifier",
]
