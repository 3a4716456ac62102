"""scikit-learn's own checks of an estimator: every public one with its defaults, and under settings drawn at random."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from rankrange import (
    AoRRClassifier,
    AoRRRegressor,
    PartialAUCClassifier,
    RankedRangeClassifier,
    RankedRangeRegressor,
    RankWeights,
    TKMLClassifier,
)

DEFAULTS = [
    AoRRClassifier(),
    AoRRRegressor(),
    TKMLClassifier(),
    RankedRangeClassifier(HistGradientBoostingClassifier(max_iter=3)),
    RankedRangeRegressor(HistGradientBoostingRegressor(max_iter=10)),
    PartialAUCClassifier(),
]
# The same check with sparse arrays, and with a read-only map of float32 and a writable array, stays in the default run.
REPEATED = {
    "check_estimator_sparse_matrix",
    "check_classifiers_train(readonly_memmap=True)",
    "check_regressors_train(readonly_memmap=True)",
}
SUPERQUANTILE = RankWeights("superquantile", alphas=[0.5], weights=[1.0])
LINEAR = {
    "m": ["auto", 0, 0.1, 3],
    "k": ["auto", 1.0, 0.9],
    "C": [1.0, 100.0, np.inf, "auto"],  # a check asks for an accuracy that no strong l1 penalty has
    "n_starts": [10, 0, 2],
    "tol": [1e-6, 1e-3],
    "random_state": [None, 0],
    "n_jobs": [None, 2],
    "l1_ratio": [0.0, 0.0, 0.5, 1.0],
}
# A check compares weights with repeated rows, of which a number of folds draws others: a given m then drops other rows.
ANY_MODEL = {"m": ["auto", 0], "cv": [5, 2], "ensemble": [True, False], "n_jobs": [None, 2]}
# Values of the parameters, of which each draw takes one.
VALUES = {
    AoRRClassifier: LINEAR
    | {
        "k": ["auto", "adaptive", 1.0, 0.9],
        "loss": ["logistic", "logistic", "hinge", "squared_hinge"],
        "class_weight": [None, "balanced"],
        "aggregate": [None, None, "per-class", SUPERQUANTILE],
    },
    AoRRRegressor: LINEAR
    | {
        "m": ["auto", 0, 0.1, 3, "half"],
        "loss": ["squared", "squared", "absolute", "huber"],
        "step": [None, None, "reweight", "mm"],
        "fit_intercept": [True, False],  # without one, LogisticRegression fails the check of class weights as well
        "aggregate": [None, None, SUPERQUANTILE],
    },
    TKMLClassifier: {
        "m": [0, 0.1],
        "k": [1.0, 0.9],
        "C": ["auto", 1.0],
        "loss": ["two_sided", "paper"],
        "validation": [0.2, 3, None],
        "n_starts": [1, 3],
        "max_iter": [30, 200],
    },
    PartialAUCClassifier: {
        "fpr": [(0.0, 0.05), (0.0, 0.5), (0.1, 0.9)],
        "tpr": [(0.0, 1.0), (0.3, 1.0)],
        "train_fpr": ["auto", (0.0, 0.5), (0.2, 0.8)],
        "C": [1.0, 0.01, 100.0, "auto"],
        "cv": [5, 2],
        "tol": [1e-6, 1e-3],
        "max_iter": [200, 50],
    },
    RankedRangeClassifier: ANY_MODEL | {"estimator": [GaussianNB(), LogisticRegression()]},
    RankedRangeRegressor: ANY_MODEL | {"estimator": [Ridge(), DecisionTreeRegressor(max_depth=3, random_state=0)]},
}

# The checks fit random labels, data of huge scale and a handful of rows: there anything may be dropped, and max_iter
# reached. A warning says so.
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:.*rows of class"),
    pytest.mark.filterwarnings("ignore:all coefficients are 0"),
]


def parametrize_with_fewer_checks(estimators):
    """As scikit-learn's decorator; checks that repeat another one with a container of another kind are slow.

    Of RankedRangeClassifier, which fits eleven models and forests, every third check is in the default run.
    """
    names, cases = (decorator := parametrize_with_checks(estimators)).args
    name_of, marked = decorator.kwargs["ids"], []
    for number, (model, check) in enumerate(cases):
        left_out = name_of(check) in REPEATED or (isinstance(model, RankedRangeClassifier) and number % 3)
        marked.append(pytest.param(model, check, marks=pytest.mark.slow if left_out else ()))
    return pytest.mark.parametrize(names, marked, ids=name_of)


@parametrize_with_fewer_checks(DEFAULTS)
def test_the_contract_of_scikit_learn_is_kept(estimator, check):
    check(estimator)


def drawn(kind, seed):
    """An estimator with random settings, the first of the draw that do not contradict each other."""
    rng = np.random.default_rng(seed)
    X = np.random.default_rng(0).normal(size=(40, 3))
    for _ in range(100):
        model = kind(**{name: values[rng.integers(len(values))] for name, values in VALUES[kind].items()})
        try:
            model.fit(X, X[:, 0] if kind in (AoRRRegressor, RankedRangeRegressor) else (X[:, 0] > 0).astype(int))
        except (TypeError, ValueError):
            continue
        return model
    raise AssertionError(f"a hundred settings of {kind.__name__} contradict each other")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.filterwarnings("ignore")
def test_settings_drawn_at_random_keep_the_contract(kind, seed):
    check_estimator(drawn(kind, seed))
