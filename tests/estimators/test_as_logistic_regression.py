"""scikit-learn's own tests of LogisticRegression, run with AoRRClassifier(m=0, k=1.0) in its place."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from rankrange import AoRRClassifier

theirs = pytest.importorskip("sklearn.linear_model.tests.test_logistic")

# Those that are about the result, not about a solver or a message.
CHOSEN = (
    "test_predict_2_classes",
    "test_predict_3_classes",
    "test_sparsify",
    "test_inconsistent_input",
    "test_write_parameters",
    "test_nan",
    "test_logistic_glmnet",
    "test_multinomial_identifiability_on_iris",
    "test_n_iter",
    "test_sample_weight_not_modified",
    "test_logistic_regression_class_weights",
    "test_logistic_regression_multinomial",
    "test_multinomial_binary",
)
for name in CHOSEN:  # older versions of scikit-learn lack some, and marks of their own are unknown here
    test = getattr(theirs, name, None)
    if test is not None and {mark.name for mark in getattr(test, "pytestmark", [])} <= {"parametrize"}:
        globals()[name] = test


def in_its_place(C=1.0, l1_ratio=0.0, max_iter=200, **other):
    """The classifier with the parameters that both have; solvers and tolerances are ours."""
    ours = {name: other[name] for name in ("fit_intercept", "class_weight", "random_state") if name in other}
    return AoRRClassifier(0, 1.0, C=C, l1_ratio=l1_ratio or 0.0, max_iter=max_iter, tol=1e-10, **ours)


@pytest.fixture
def global_random_seed():
    return 42


@pytest.fixture(autouse=True)
def _replaced(monkeypatch):
    monkeypatch.setattr(theirs, "LogisticRegression", in_its_place)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("C", [1.0, np.inf])
def test_the_fit_is_that_of_logistic_regression_also_without_a_penalty(classes, C):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = (X @ rng.normal(size=(4, classes)) + rng.gumbel(size=(300, classes))).argmax(axis=1)
    model = AoRRClassifier(0, 1.0, C=C, tol=1e-10).fit(X, y)
    expected = LogisticRegression(C=C, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-5)
    assert model.certificate_ <= 1e-10
    assert model.n_iter_.shape == (1,)
    if classes > 2:
        np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-10)


@pytest.mark.parametrize("max_iter", [1, 2, 5])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_max_iter_limits_the_steps(max_iter):
    X = np.random.default_rng(0).normal(size=(100, 3)) * [1.0, 1e3, 1e-3]
    assert AoRRClassifier(0, 1.0, C=1e6, max_iter=max_iter, tol=1e-15).fit(X, X[:, 0] > 0.1).n_iter_[0] <= max_iter
