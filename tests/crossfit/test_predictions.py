"""The simple opinions beside a model: lines, nearest rows, smooth functions and trees that have not seen the row."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from rankrange import RankedRangeClassifier, noise
from rankrange.crossfit.folds import Folds, draw_folds
from rankrange.crossfit.numeric import standardised, with_levels
from rankrange.crossfit.predictions import linear_predictions
from rankrange.crossfit.simple_models import smooth_functions
from rankrange.crossfit.trees import _LEAVES, _rows_of_trees, _shares, smooth_forests


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


def test_predictions_of_trees_and_nearly_those_of_smooth_functions_do_not_depend_on_the_label_of_the_row():
    X, codes, _ = rings()
    before = smooth_forests(X, codes, 2, 0)
    smooth = smooth_functions(X, codes, 2, np.random.default_rng(0), None)
    for row in (0, 7, 123):
        other = codes.copy()
        other[row] = 1 - other[row]
        for P, Q in zip(before, smooth_forests(X, other, 2, 0), strict=True):
            np.testing.assert_array_equal(P[row], Q[row])
            assert (P != Q).any()
        again = smooth_functions(X, other, 2, np.random.default_rng(0), None)
        assert abs(again[row, 0] - smooth[row, 0]) < 0.01  # the overall shares of the classes alone


def test_smooth_functions_and_trees_see_a_ring_behind_wrong_labels():
    X, codes, _ = rings(1000)
    given = noise.symmetric(codes, 0.2, 0)
    smooth = smooth_functions(X, given, 2, np.random.default_rng(0), None)
    trees, rougher = smooth_forests(X, given, 2, 0)
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
        trees = smooth_forests(X, labels, 2, 0, None, mass)
        if labels is codes:
            first = smooth, *trees
    for P, Q in zip(first, (smooth, *trees), strict=True):
        np.testing.assert_allclose(P[50:], Q[50:])


def test_trees_keep_to_the_folds_that_are_given():
    X, codes, rng = rings()
    folds = draw_folds(300, rng, strata=codes, n_folds=3, n_repeats=1)
    before = smooth_forests(X, codes, 2, 0, folds)
    other = np.where(folds.test[0], 1 - codes, codes)
    for P, Q in zip(before, smooth_forests(X, other, 2, 0, folds), strict=True):
        np.testing.assert_array_equal(P[folds.test[0]], Q[folds.test[0]])


def test_small_leaves_are_joined_to_the_last_branch_that_holds_enough_rows():
    X, codes, _ = rings()
    X = X.astype(np.float32)
    tree = ExtraTreeClassifier(min_samples_leaf=_LEAVES[0], max_features=2, random_state=0).fit(X, codes)
    inner, path = tree.tree_, tree.decision_path(X).toarray()
    for size, P in zip(_LEAVES, _shares(tree, X, _LEAVES, 2).transpose(1, 0, 2), strict=True):
        enough = path.astype(bool) & (inner.n_node_samples >= size)
        last = enough.shape[1] - 1 - enough[:, ::-1].argmax(axis=1)  # nodes are numbered from the root on
        members = path[:, last].T.astype(float)
        np.testing.assert_allclose(P[:, 1], members @ codes / members.sum(axis=1))


def test_numbered_levels_are_distinguished_if_two_labels_of_five_are_wrong():
    """How much is gained differs from draw to draw."""
    gains = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 4, size=(2400, 6)).astype(float)
        y = (np.isin(X[:, :3], (0, 2)).sum(axis=1) > 1).astype(np.intp)  # no order of the numbers tells
        given = noise.symmetric(y[:800], 0.4, seed)
        plain = DecisionTreeClassifier(random_state=0).fit(X[:800], given).score(X[800:], y[800:])
        model = RankedRangeClassifier(DecisionTreeClassifier(), random_state=0).fit(X[:800], given)
        gains.append(model.score(X[800:], y[800:]) - plain)
        assert "smooth" in model.tuning_["source"]
    assert np.median(gains) > 0.1
    assert min(gains) > 0.0


@pytest.mark.parametrize("with_folds", [True, False])
def test_a_tree_never_gets_fewer_rows_if_there_are_more(with_folds):
    sizes = []
    for n in (100, 6_000, 6_250, 6_260, 9_000, 12_600, 30_000):
        folds = Folds.from_numbers(np.arange(n) % 5) if with_folds else None
        rows, test_rows, _ = next(_rows_of_trees(n, 0, folds, None))
        assert not np.intersect1d(rows, test_rows).size
        sizes.append(len(rows))
    assert sizes == sorted(sizes)
    assert sizes[0] == (80 if with_folds else 50)
    assert sizes[-1] == 5_000
