"""scikit-learn estimators: they validate, build an objective, solve it, and store what came out."""

from .linear import AoRRClassifier, AoRRRegressor

__all__ = ["AoRRClassifier", "AoRRRegressor"]
