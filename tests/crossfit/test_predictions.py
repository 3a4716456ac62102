"""The simple opinions beside a model: lines, nearest rows, smooth functions and trees that have not seen the row."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from rankrange import RankedRangeClassifier, noise
from rankrange.crossfit.folds import Folds, draw_folds
from rankrange.crossfit.numeric import standardised, with_levels
from rankrange.crossfit.predictions import linear_predictions
from rankrange.crossfit.simple_models import smooth_functions
from rankrange.crossfit.trees import _LEAVES, Boosted, Forest, _shares, tree_predictions


def told(P, codes):
    return float(np.log(np.maximum(P[np.arange(len(codes)), codes], 1e-12)).mean())


def rings(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, (np.hypot(*X.T) > 1.2).astype(np.intp), rng


@pytest.mark.parametrize("seed", range(3))
def test_a_line_learns_a_level_that_only_rows_far_out_have(seed):
    rng = np.random.default_rng(seed)
    rare = rng.random(600) < 0.2
    X = np.column_stack([rng.integers(0, 3, 600), rng.random(600) < 0.05, rare]).astype(float)
    codes = (rng.random(600) < np.where(rare, 0.8, 0.2)).astype(np.intp)
    X, folds = standardised(X), draw_folds(600, rng, strata=codes, n_folds=5, n_repeats=1)
    usual = cross_val_predict(LogisticRegression(C=0.1), X, codes, cv=5, method="predict_proba")
    assert told(linear_predictions(X, codes, 2, folds)[0], codes) > told(usual, codes) - 0.01


def test_numbers_of_few_values_have_columns_of_levels_beside_them():
    X = np.column_stack([[1, 2, 3, 1, 2, 3, 4, 4], range(8), [0, 1] * 4]).astype(float)
    view = with_levels(X)
    np.testing.assert_array_equal(view[:, :3], X)
    np.testing.assert_array_equal(view[:, 3:], X[:, :1] == [1, 2, 3, 4])
    wide = np.tile(X, (1, 120))
    assert with_levels(wide).shape == wide.shape
    sparse = sp.csr_matrix(X)
    assert with_levels(sparse) is sparse


def forest(X, codes, mass=None, seed=0):
    """Two predictions (n, 2) of a forest, by leaf size."""
    folds = draw_folds(len(X), np.random.default_rng(1), n_folds=5, n_repeats=1)
    return Forest.fit(X, codes, 2, folds, np.random.default_rng(seed), mass).out_of_fold(X, folds)


def test_smooth_functions_and_trees_see_a_ring_behind_wrong_labels():
    X, codes, _ = rings(1000)
    given = noise.symmetric(codes, 0.2, 0)
    smooth = smooth_functions(X, given, 2, np.random.default_rng(0), None)
    trees, rougher = forest(X, given)
    for P in (smooth, trees, rougher):
        np.testing.assert_allclose(P.sum(axis=1), 1.0)
        assert (P.argmax(axis=1) == codes).mean() > 0.75
    assert rougher[:, 0].std() < trees[:, 0].std()


def test_weights_of_zero_say_nothing_to_smooth_functions_and_trees():
    X, codes, rng = rings()
    mass = np.ones(300)
    mass[:50] = 0.0
    other = codes.copy()
    other[:50] = rng.integers(0, 2, 50)
    for labels in (codes, other):
        smooth = smooth_functions(X, labels, 2, np.random.default_rng(0), mass)
        trees = forest(X, labels, mass)
        if labels is codes:
            first = smooth, *trees
    for P, Q in zip(first, (smooth, *trees), strict=True):
        np.testing.assert_allclose(P[50:], Q[50:])


def test_small_leaves_are_joined_to_the_last_branch_that_holds_enough_rows():
    X, codes, _ = rings()
    X = X.astype(np.float32)
    tree = DecisionTreeClassifier(min_samples_leaf=_LEAVES[0], random_state=0).fit(X, codes)
    inner, path = tree.tree_, tree.decision_path(X).toarray()
    for size, P in zip(_LEAVES, _shares(tree, X, _LEAVES, 2), strict=True):
        enough = path.astype(bool) & (inner.n_node_samples >= size)
        last = enough.shape[1] - 1 - enough[:, ::-1].argmax(axis=1)  # nodes are numbered from the root on
        members = path[:, last].T.astype(float)
        np.testing.assert_allclose(P[:, 1], members @ codes / members.sum(axis=1))


def test_numbered_levels_are_distinguished_if_two_labels_of_five_are_wrong():
    gains = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 4, size=(3200, 6)).astype(float)
        y = (np.isin(X[:, :3], (0, 2)).sum(axis=1) > 1).astype(np.intp)  # no order of the numbers tells
        given = noise.symmetric(y[:1600], 0.4, seed)
        plain = DecisionTreeClassifier(random_state=0).fit(X[:1600], given).score(X[1600:], y[1600:])
        model = RankedRangeClassifier(DecisionTreeClassifier(), random_state=0).fit(X[:1600], given)
        gains.append(model.score(X[1600:], y[1600:]) - plain)
        assert "smooth" in model.tuning_["source"]
    assert min(gains) > 0.1


def test_no_tree_gets_more_than_a_few_thousand_rows():
    X = np.random.default_rng(0).normal(size=(12_000, 2))
    test = np.arange(5)[:, None] == np.arange(12_000) % 5
    folds = Folds(~test, test)
    for rows in (slice(0, 1_000), slice(0, 12_000)):
        some = Folds(folds.train[:, rows], folds.test[:, rows])
        fitted = Forest.fit(X[rows], (X[rows, 0] > 0).astype(int), 2, some, np.random.default_rng(0))
        sizes = {int(tree.tree_.n_node_samples[0]) for _, tree in fitted.trees}
        assert sizes <= ({600, 800} if rows.stop == 1_000 else {5_000})


def test_trees_find_what_no_line_can_and_boosting_stops_before_it_learns_wrong_labels():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    test = np.arange(800) % 5 == np.arange(5)[:, None]
    stops = []
    for given in (y, noise.symmetric(y, 0.15, 0)):
        found = tree_predictions(X, given, 2, Folds(~test, test), rng)
        assert all((P.argmax(axis=1) == y).mean() > 0.8 for P in found.values())
        stops.append(Boosted.fit(X, given, 2, Folds(~test, test), 0).stop)
    assert stops[1] < stops[0]
