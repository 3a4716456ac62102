"""The simple opinions beside a model: lines, nearest rows and trees that have not seen the row."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from rankrange import RankedRangeClassifier, noise
from rankrange.crossfit.folds import Folds, draw_folds
from rankrange.crossfit.models import Task
from rankrange.crossfit.numeric import standardised
from rankrange.crossfit.predictions import less_confident, linear_predictions, penalised_predictions, text_features
from rankrange.crossfit.trees import fit_forests, fit_trees


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


def test_calibration_of_a_strong_penalty_keeps_the_class_frequencies():
    """A power of the probabilities themselves favours the frequent class: a quarter of the gain was left."""
    rng = np.random.default_rng(0)
    codes = (rng.random(600) < 0.2).astype(np.intp)
    X = (rng.random((600, 200)) < 0.05 + 0.1 * np.outer(codes, np.arange(200) < 20)) / 10.0
    folds = draw_folds(600, rng, strata=codes, n_folds=5, n_repeats=1)
    P = penalised_predictions(X, codes, 2, folds)
    assert P[:, 1].mean() == pytest.approx(codes.mean(), abs=0.02)
    assert told(P, codes) > told(np.tile(P.mean(axis=0), (600, 1)), codes) + 0.05


@pytest.mark.parametrize("share", [0.5, 0.15])
def test_rows_without_their_informative_cell_are_predicted_by_the_class_frequencies(share):
    """They were drawn towards equal frequencies."""
    rng = np.random.default_rng(0)
    codes = (rng.random(800) < share).astype(np.intp)
    missing = rng.random(800) < 0.2
    believed = np.where(missing, rng.random(800) < share, codes)  # a value that a model fills in
    P = np.where(believed[:, None] == np.arange(2), 0.97, 0.03)
    X = np.column_stack([np.where(missing, 0.5, rng.normal(size=800)), missing])
    found = less_confident({"model": P}, codes, X, np.eye(2))["model"]
    np.testing.assert_allclose(found[missing].mean(axis=0), [1.0 - share, share], atol=0.08)
    np.testing.assert_array_equal(found[~missing], P[~missing])


def forest(X, codes, mass=None):
    """Two predictions (n, 2) of forests, with small and with large leaves."""
    folds = draw_folds(len(X), np.random.default_rng(1), n_folds=5, n_repeats=1)
    task, rng = Task(X, codes, np.arange(2), mass), np.random.default_rng(0)
    fits = fit_forests(RandomForestClassifier(24), {"small": 3, "large": 30}, task, folds, rng)
    return [found.out_of_fold for found in fits.values()]


def test_trees_see_a_ring_behind_wrong_labels():
    X, codes, _ = rings(1000)
    trees, rougher = forest(X, noise.symmetric(codes, 0.2, 0))
    for P in (trees, rougher):
        np.testing.assert_allclose(P.sum(axis=1), 1.0)
        assert (P.argmax(axis=1) == codes).mean() > 0.75
    assert rougher[:, 0].std() < trees[:, 0].std()


def test_weights_of_zero_say_nothing_to_trees():
    X, codes, rng = rings()
    mass = np.ones(300)
    mass[:50] = 0.0
    other = codes.copy()
    other[:50] = rng.integers(0, 2, 50)
    for P, Q in zip(*(forest(X, labels, mass) for labels in (codes, other)), strict=True):
        np.testing.assert_allclose(P[50:], Q[50:])


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
    assert min(gains) > 0.1


def test_no_tree_gets_more_than_a_few_thousand_rows():
    X = np.random.default_rng(0).normal(size=(12_000, 2))
    test = np.arange(3)[:, None] == np.arange(12_000) % 3
    for n in (1_200, 12_000):
        task = Task(X[:n], (X[:n, 0] > 0).astype(int), np.arange(2))
        folds, stumps = Folds(~test[:, :n], test[:, :n]), RandomForestClassifier(24, max_leaf_nodes=2)
        fits = fit_forests(stumps, {"forest": 3}, task, folds, np.random.default_rng(0))
        trees = [tree for model in fits["forest"].models for tree in model.estimators_]
        sizes = {int(tree.tree_.weighted_n_node_samples[0]) for tree in trees}
        assert sizes == {800} if n == 1_200 else max(sizes) <= 5_000


def test_trees_find_what_no_line_can_and_boosting_stops_before_it_learns_wrong_labels():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    test = np.arange(800) % 5 == np.arange(5)[:, None]
    rounds = []
    for given in (y, noise.symmetric(y, 0.15, 0)):
        found = fit_trees(Task(X, given, np.arange(2)), Folds(~test, test), rng)
        assert all((fits.out_of_fold.argmax(axis=1) == y).mean() > 0.8 for fits in found.values())
        rounds.append(found["boosting"].models[0].max_iter)
    assert rounds[1] < rounds[0]


def test_marks_and_single_letters_are_words():
    """Five of words and pairs (a, ;, b, "a ;", "; b") and three of characters (" a ", " ; ", " b ")."""
    assert text_features(["a ; b"] * 30).shape == (30, 8)
