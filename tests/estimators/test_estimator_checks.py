"""scikit-learn's own checks of an estimator, for each of ours under several settings and without exceptions."""

import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from rankrange import AoRRClassifier, AoRRRegressor, TKMLClassifier
from scikit_learn_checks import parametrize_with_fewer_checks

# C is left at its default: what a user gets who sets nothing but the range and the loss must pass.
ESTIMATORS = [
    AoRRClassifier(m=0, k=1.0),
    AoRRClassifier(m=0.1, k=1.0),
    AoRRRegressor(m=0.1, k=1.0),
]
# Settings whose fits take longer: m is chosen, or the loss has kinks.
LONGER = [
    AoRRClassifier(),
    AoRRRegressor(),
    TKMLClassifier(),
]
# Other losses and ranges of the same estimators.
SLOW = [
    AoRRClassifier(m=0, k=0.8, loss="hinge"),
    AoRRRegressor(m=0.1, k=1.0, loss="huber"),
    AoRRRegressor(m=0.1, k=0.9),
    AoRRRegressor(m=0.1, k=1.0, loss="absolute"),
    AoRRClassifier(m=0.1, k=0.9, loss="hinge"),
    AoRRClassifier(m=0.1, k=1.0, aggregate="per-class"),
    TKMLClassifier(m=0.1, k=1.0),
    TKMLClassifier(m=0.1, k=0.9, loss="paper"),
]


@parametrize_with_checks(ESTIMATORS)
def test_the_contract_of_scikit_learn_is_kept(estimator, check):
    run_check(estimator, check)


@parametrize_with_fewer_checks(LONGER)
def test_the_contract_of_scikit_learn_is_kept_by_longer_fits(estimator, check):
    run_check(estimator, check)


@pytest.mark.slow
@parametrize_with_checks(SLOW)
def test_the_contract_of_scikit_learn_is_kept_by_slow_settings(estimator, check):
    run_check(estimator, check)


def run_check(estimator, check):
    with warnings.catch_warnings():
        # The checks fit random labels, data of huge scale and a handful of rows: there anything may be cut, and a
        # budget may be spent. Both are said by a warning, which is not what the checks are about.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*rows of class")
        check(estimator)
