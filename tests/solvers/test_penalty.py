"""C means what it means in scikit-learn: with nothing cut the fits are scikit-learn's, coefficient for coefficient."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import scale
from sklearn.svm import SVC, LinearSVC

from rankrange import AoRRClassifier, AoRRRegressor, TKMLClassifier

BREAST = tuple(part.copy() for part in load_breast_cancer(return_X_y=True))
ALL = {"m": 0, "k": 1.0, "random_state": 0}


def breast():
    return scale(BREAST[0]), BREAST[1]


def weights_of(y, seed=0):
    return np.random.default_rng(seed).uniform(0.2, 3.0, len(y))


@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_nothing_cut_is_logistic_regression(C, weighted):
    X, y = breast()
    weight = weights_of(y) if weighted else None
    ours = AoRRClassifier(C=C, tol=1e-10, **ALL).fit(X, y, weight)
    theirs = LogisticRegression(C=C, tol=1e-10, max_iter=20_000).fit(X, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4 * np.abs(theirs.coef_).max())
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-3)


@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_nothing_cut_is_softmax_regression(load, C):
    X, y = load(return_X_y=True)
    X = scale(X)
    ours = AoRRClassifier(C=C, tol=1e-10, **ALL).fit(X, y)
    theirs = LogisticRegression(C=C, tol=1e-10, max_iter=20_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)


@pytest.mark.parametrize("class_weight", [{0: 3.0, 1: 1.0}, "balanced"])
def test_class_weights_are_scikit_learns(class_weight):
    X, y = breast()
    ours = AoRRClassifier(class_weight=class_weight, tol=1e-10, **ALL).fit(X, y)
    theirs = LogisticRegression(class_weight=class_weight, tol=1e-10, max_iter=20_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)


@pytest.mark.parametrize("C", [0.1, 1.0, 10.0, 100.0])
def test_nothing_cut_under_the_hinge_is_a_linear_svc(C):
    X, y = breast()
    ours = AoRRClassifier(loss="hinge", C=C, tol=1e-9, **ALL).fit(X, y)
    theirs = SVC(kernel="linear", C=C, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4 * np.abs(theirs.coef_).max())


def test_nothing_cut_under_the_squared_hinge_is_linear_svc():
    for X, y in (breast(), load_iris(return_X_y=True)):
        ours = AoRRClassifier(loss="squared_hinge", fit_intercept=False, tol=1e-10, **ALL).fit(X, y)
        theirs = LinearSVC(fit_intercept=False, tol=1e-9, max_iter=200_000).fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_nothing_cut_under_squares_is_ridge(C):
    X, y = load_diabetes(return_X_y=True)
    weight = weights_of(y)
    ours = AoRRRegressor(C=C, tol=1e-12, **ALL).fit(X, y, weight)
    theirs = Ridge(alpha=1 / (2 * C)).fit(X, y, weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-5, atol=1e-5 * np.abs(theirs.coef_).max())


@pytest.mark.parametrize("m", [0.05, 0.2])
def test_a_fit_that_cuts_is_logistic_regression_on_the_rows_it_keeps(m):
    X, y = breast()
    ours = AoRRClassifier(m=m, k=1.0, C=0.5, tol=1e-10, random_state=0).fit(X, y)
    kept = ~ours.dropped_
    theirs = LogisticRegression(C=0.5, tol=1e-10, max_iter=20_000).fit(X[kept], y[kept])
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)


def noisy_wide(n=300, d=120, seed=0):
    """Few rows, many columns, of which three matter: a strong penalty predicts better than a weak one."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, :3].sum(axis=1) + rng.normal(size=n) > 0).astype(int)


def test_auto_finds_a_penalty_that_predicts_better_than_a_weak_one():
    X, y = noisy_wide()
    X_new, y_new = noisy_wide(4000, seed=1)
    fit = AoRRClassifier(m=0, k=1.0, C="auto", random_state=0).fit(X, y)
    weak = AoRRClassifier(m=0, k=1.0, C=100.0, random_state=0).fit(X, y)
    assert fit.C_ < 1.0
    assert fit.score(X_new, y_new) > weak.score(X_new, y_new) + 0.02


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_auto_takes_a_strong_penalty_if_a_weak_one_predicts_equally_well(seed):
    """30,000 rows of 3 columns: from C = 0.1 to 100 the log loss differs in the sixth digit."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30_000, 3))
    y = (X @ [1.0, -1.0, 0.5] + rng.logistic(size=len(X)) > 0).astype(int)
    assert AoRRClassifier(m=0, k=1.0, C="auto", random_state=seed).fit(X, y).C_ <= 0.1


def test_auto_chooses_the_penalty_of_a_regression_with_outliers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5))
    y = X @ [1.0, -2.0, 0.0, 3.0, 0.5] + 0.1 * rng.normal(size=200)
    y[:20] += 50.0
    fit = AoRRRegressor(C="auto", random_state=0).fit(X, y)
    assert fit.dropped_[:20].all()
    np.testing.assert_allclose(fit.coef_, [1.0, -2.0, 0.0, 3.0, 0.5], atol=0.1)


def test_tkml_chooses_its_penalty_by_default():
    """Wide 0/1 features: the right C differs by orders of magnitude from that of a few standardised columns."""
    rng = np.random.default_rng(0)
    X = (rng.random((400, 200)) < 0.05).astype(float)
    Y = (X @ rng.normal(size=(200, 6)) + 0.3 * rng.normal(size=(400, 6)) > 0.6).astype(int)
    fit = TKMLClassifier(2, random_state=0).fit(X[:300], Y[:300])
    strong = TKMLClassifier(2, C=0.001, random_state=0).fit(X[:300], Y[:300])
    assert fit.C_ > 0.001
    assert fit.score(X[300:], Y[300:]) >= strong.score(X[300:], Y[300:])


@pytest.mark.parametrize("C", ["best", 0.0, -1.0, np.nan, None])
def test_a_bad_c_is_named(C):
    X, y = breast()
    for model in (AoRRClassifier(m=0, k=1.0, C=C), TKMLClassifier(1, C=C)):
        with pytest.raises(ValueError, match=r"C\b.* must be .*'auto'"):
            model.fit(X, y)


@pytest.mark.parametrize("m", ["auto", 0.1])
def test_the_fit_does_not_depend_on_the_number_of_jobs(m):
    X, y = noisy_wide(4500, 10)
    one, two = (AoRRClassifier(m=m, k=1.0, C="auto", n_jobs=jobs, random_state=0).fit(X, y) for jobs in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.C_ == two.C_
