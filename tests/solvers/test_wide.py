"""Fewer rows than columns: linear fits have as many unknowns as rows, and nothing else changes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from rankrange import AoRRClassifier, AoRRRegressor, find_label_issues
from rankrange.core.row_space import RowSpace, spanned


def _rows(n=40, p=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) * rng.uniform(0.1, 10.0, size=p)
    return X, X[:, 0] / X[:, 0].std() + X[:, 1] / X[:, 1].std() + 0.3 * rng.normal(size=n)


def test_the_basis_is_orthonormal_and_gives_the_rows_back():
    X, _ = _rows()
    space = RowSpace.of(X)
    assert space.X.shape == (40, 40)
    np.testing.assert_allclose(space.basis.T @ space.basis, np.eye(40), atol=1e-12)
    np.testing.assert_allclose(space.X @ space.basis.T, X, atol=1e-10)
    np.testing.assert_allclose(spanned(X) @ spanned(X).T, X @ X.T, rtol=1e-10)


def test_nothing_is_done_where_it_would_save_nothing():
    assert RowSpace.of(np.ones((5, 5))) is None
    X = np.ones((6, 3))
    assert spanned(X) is X


@pytest.mark.parametrize("intercept", [True, False])
def test_without_a_cut_the_fit_is_that_of_scikit_learn(intercept):
    X, z = _rows()
    fitted = AoRRClassifier(0, 1.0, C=0.01, fit_intercept=intercept, tol=1e-9).fit(X, z > 0.2)
    anchor = LogisticRegression(C=0.01, tol=1e-10, max_iter=10_000, fit_intercept=intercept).fit(X, z > 0.2)
    np.testing.assert_allclose(fitted.coef_, anchor.coef_, rtol=1e-4, atol=1e-6)
    numbers = AoRRRegressor(0, 1.0, loss="squared", C=0.01, fit_intercept=intercept).fit(X, z)
    np.testing.assert_allclose(
        numbers.coef_, Ridge(alpha=50.0, fit_intercept=intercept).fit(X, z).coef_, rtol=1e-5, atol=1e-8
    )


def test_validation_sets_know_the_span():
    X, z = _rows(60, 150)
    y = z > 0
    chosen = AoRRClassifier(C=0.05, random_state=0).fit(X[:40], y[:40], X_val=X[40:], y_val=y[40:])
    assert chosen.coef_.shape == (1, 150)


@pytest.mark.parametrize("model", [AoRRClassifier(random_state=0), AoRRRegressor(random_state=0)])
def test_no_solver_sees_more_unknowns_than_rows(model):
    """Nothing takes the memory of a matrix of columns by columns, or of a quarter of it."""
    X, z = _rows(40, 3000)
    tracemalloc.start()
    model.fit(X, z > 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * X.shape[1] ** 2 / 4


def test_label_issues_of_a_wide_table_do_not_depend_on_columns_of_zeros():
    X, z = _rows(80, 70)
    y = np.where(z > 0, "a", "b")
    given = y.copy()
    given[:5] = np.where(given[:5] == "a", "b", "a")
    settings = {"estimator": AoRRClassifier(C=0.001), "trees": False, "neighbours": False, "random_state": 0}
    narrow = find_label_issues(X, given, **settings)
    wide = find_label_issues(np.column_stack([X, np.zeros((80, 50))]), given, **settings)
    (name, _, P), (_, _, Q) = wide.members[0], narrow.members[0]
    assert name == "ordinary"
    np.testing.assert_allclose(P, Q, atol=5e-3)
