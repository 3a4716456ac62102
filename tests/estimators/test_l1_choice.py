"""C and m chosen for an l1 penalty: outliers in test folds do not decide, and the path is what it is called."""

import matplotlib
import numpy as np
import pytest
import scipy.sparse as sp

from definitions import slow
from rankrange import AoRRClassifier, AoRRRegressor, RankWeights
from rankrange.plots import plot_path

matplotlib.use("Agg")


def wide(seed, share, n=80, d=60):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X[:, :3] @ np.array([2.0, -2.0, 2.0]) + 0.5 * rng.normal(size=n)
    bad = rng.choice(n, size=int(share * n), replace=False)
    y[bad] += 40.0
    return X, y, bad


def chosen(kind=AoRRRegressor, m="auto", **settings):
    return kind(m, C="auto", l1_ratio=1.0, n_starts=1, random_state=0, **settings)


def test_m_and_the_penalty_are_chosen_in_spite_of_outliers():
    X, y, bad = wide(0, 0.15)
    model = chosen().fit(X, y)
    assert model.dropped_[bad].all()
    assert model.m_ <= 0.3 * len(y)
    assert set(range(3)) <= set(np.flatnonzero(model.coef_))
    clean = np.setdiff1d(np.arange(len(y)), bad)
    assert np.mean((model.predict(X[clean]) - y[clean]) ** 2) < 2.0
    assert model.certificate_ <= 1e-6


def test_one_outlier_in_a_test_fold_changes_no_score_by_its_size():
    X, y, _ = wide(1, 0.0, d=40)
    scores = []
    for size in (1e3, 1e6):
        y[5] = size
        scores.append(chosen(m=0.1).fit(X, y).path_["loss"].min())
    assert scores[0] == pytest.approx(scores[1], rel=0.5)
    assert scores[0] < 2.0


@pytest.mark.parametrize(("density", "kind"), [(0.2, AoRRClassifier), *slow((1.0, AoRRRegressor))])
def test_sparse_rows_have_the_choice_of_the_same_rows_as_a_dense_array(density, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 40)) * (rng.random((60, 40)) < density)
    y = 3 * X[:, 0] - 3 * X[:, 1] + 0.1 * rng.normal(size=60)
    y = y > 0 if kind is AoRRClassifier else y
    dense, sparse = (chosen(kind, 0.1).fit(rows, y) for rows in (X, sp.csr_matrix(X)))
    assert pytest.approx(dense.C_, rel=1e-10) == sparse.C_
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-6)


def test_the_one_standard_error_rule_takes_the_larger_penalty():
    X, y, _ = wide(2, 0.0)
    model = chosen(m=0).fit(X, y)
    table, best = model.path_, model.path_["loss"].argmin()
    index = np.flatnonzero(np.isclose(table["C"], model.C_))[0]
    limit = table["loss"][best] + table["loss_error"][best]
    assert table["loss"][index] <= limit
    assert (table["loss"][:index] > limit).all()


def test_the_path_starts_without_coefficients_and_is_drawn():
    X, y, _ = wide(3, 0.0)
    model = chosen(m=0).fit(X, y)
    coef = model.path_["coef"]
    assert coef.shape == (len(model.path_["C"]), 1, 60)
    assert np.count_nonzero(coef[0]) <= 3 < np.count_nonzero(coef[-1])
    at = np.flatnonzero(np.isclose(model.path_["C"], model.C_))[0]
    np.testing.assert_allclose(coef[at, 0], model.coef_, atol=1e-12)
    for index in (at // 2, (at + len(coef)) // 2):
        alone = AoRRRegressor(0, C=model.path_["C"][index], l1_ratio=1.0).fit(X, y)
        np.testing.assert_allclose(coef[index, 0], alone.coef_, atol=1e-3)
    assert len(plot_path(model).get_lines()) == 1 + np.count_nonzero(coef.any(axis=(0, 1)))
    with pytest.raises(ValueError, match="path of penalties"):
        plot_path(AoRRRegressor(0).fit(X, y))


@pytest.mark.parametrize("aggregate", ["worst-group", RankWeights("superquantile", alphas=[0.5], weights=[1.0])])
@pytest.mark.parametrize("kind", [AoRRClassifier, AoRRRegressor])
def test_an_l1_penalty_works_with_every_aggregate(kind, aggregate):
    X, y, _ = wide(5, 0.0, d=10)
    y = y > 0 if kind is AoRRClassifier else y
    groups = np.arange(80) % 2 if aggregate == "worst-group" else None
    C = 0.3 if kind is AoRRClassifier else 0.02
    model = kind(0, aggregate=aggregate, l1_ratio=1.0, C=C).fit(X, y, groups=groups)
    assert model.certificate_ <= 1e-6
    assert 0 < np.count_nonzero(model.coef_) < 10
