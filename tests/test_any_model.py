"""RankedRangeClassifier and RankedRangeRegressor: any model, without the rows that are probably wrong."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankrange import RankedRangeClassifier, RankedRangeRegressor

QUICK = HistGradientBoostingClassifier(max_iter=10)


@parametrize_with_checks(
    [
        RankedRangeClassifier(QUICK, n_repeats=2),
        RankedRangeClassifier(QUICK, n_repeats=1, refit="single"),
        RankedRangeClassifier(LogisticRegression(), n_repeats=2),
        RankedRangeClassifier(GaussianNB(), m=0.1, k=0.9, n_repeats=1),
        RankedRangeRegressor(HistGradientBoostingRegressor(max_iter=10), n_repeats=2),
        RankedRangeRegressor(Ridge(), refit="single", n_repeats=2),
        RankedRangeRegressor(Ridge(), m=0.1, n_repeats=1),
    ]
)
def test_scikit_learn_compatible_estimator(estimator, check):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rows of class")  # on random labels anything may be cut
        check(estimator)
