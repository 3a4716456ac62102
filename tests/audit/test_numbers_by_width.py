"""Numeric targets that scatter more in some rows are right there."""

import numpy as np

from rankrange.audit import audit_table
from rankrange.outliers import Widths


def with_missing_cells(seed, n=500):
    """Three columns of which the first says most, a tenth of its cells missing; what the target comes from."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    missing = rng.random(n) < 0.1
    truth = 3.0 * X[:, 0] + X[:, 1]
    X[missing, 0] = np.nan
    return X, missing, truth, rng


def test_numbers_that_scatter_because_a_cell_is_missing_are_right():
    X, missing, truth, rng = with_missing_cells(0)
    y = truth + 0.5 * rng.normal(size=len(truth))
    wrong = rng.random(len(y)) < 0.05
    y_wrong = y + np.where(wrong, 8.0 * rng.choice([-1.0, 1.0], len(y)), 0.0)
    for target, planted, models in ((y, np.zeros(len(y), dtype=bool), "all"), (y_wrong, wrong, "linear")):
        table = {name: column.tolist() for name, column in zip("abc", X.T, strict=True)} | {"y": target.tolist()}
        told = audit_table(table, "y", models=models).result.wrong >= 0.5
        assert (told & ~planted).sum() <= 2
        assert told[planted & ~missing].all()


def test_residuals_are_as_wide_as_those_of_rows_with_the_same_mark():
    rng = np.random.default_rng(0)
    mark, other = rng.random(800) < 0.15, rng.random(800) < 0.5
    X = np.column_stack([rng.normal(size=800), mark, other])
    residual = rng.normal(size=800)
    assert Widths.of(residual, X).sides == ()
    width = Widths.of(np.where(mark, 4.0, 1.0) * residual, X).of_rows(X)
    np.testing.assert_allclose(width[~mark], 1.0)
    np.testing.assert_allclose(width[mark], 4.0, rtol=0.25)
    tight = Widths.of(np.where(mark, 0.2, 1.0) * residual, X).of_rows(X)
    assert tight[~mark].min() > 3.0 * tight[mark].max()


def test_numbers_that_scatter_more_in_some_rows_are_right_there():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = X[:, 0] + (0.1 + np.abs(X[:, 2])) * rng.normal(size=500)
    table = {name: column.tolist() for name, column in zip("abc", X.T, strict=True)}
    assert (audit_table(table | {"y": y.tolist()}, "y").result.wrong < 0.5).all()
    calm = np.flatnonzero(np.abs(X[:, 2]) < 0.3)[:15]
    y[calm] += 9.0
    told = audit_table(table | {"y": y.tolist()}, "y", models="linear").result.wrong >= 0.5
    assert told[calm].all()
    assert told.sum() <= len(calm) + 3
