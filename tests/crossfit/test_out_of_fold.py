"""No label has a say in its own out-of-fold prediction: every member of the ensemble, repeated rows, weights, scans."""

from unittest import mock

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from rankrange.crossfit import predictions, trees
from rankrange.crossfit.folds import Folds, draw_folds
from rankrange.crossfit.models import Task, fit_folds, predict_with
from rankrange.crossfit.neighbours import neighbour_means

N, CLASSES = 180, 3


def problem(repeats=1, seed=0):
    """Rows of three noisy classes, each row standing `repeats` times, in random order."""
    rng = np.random.default_rng(seed)
    X = np.tile(rng.normal(size=(N // repeats, 3)), (repeats, 1))
    codes = (X + 0.7 * rng.normal(size=X.shape)).argmax(axis=1)
    order = rng.permutation(len(X))
    return X[order], codes[order]


def of_trees(name):
    def predict(X, codes, folds, mass):
        with mock.patch.object(trees, "_ROUNDS", (5,)):  # the round at which boosting stops is chosen on all rows
            task = Task(X, codes, np.arange(CLASSES))
            return trees.fit_trees(task, folds, np.random.default_rng(0))[name].out_of_fold

    return predict


def of_linear(place):
    def predict(X, codes, folds, mass):
        with mock.patch.object(predictions, "wrong_share", return_value=0.1):  # one share to cut for all folds
            return predictions.linear_predictions(X, codes, CLASSES, folds, mass)[place]

    return predict


def of_sparse(name):
    def predict(X, codes, folds, mass):
        X = np.hstack([X, 0.1 * np.random.default_rng(5).normal(size=(N, N))])
        # one penalty, and one share to cut, are chosen for all folds
        with mock.patch.multiple(predictions, wrong_share=lambda *given: 0.1, best_C=lambda *given: 0.1):
            return predictions.sparse_predictions(X, codes, CLASSES, folds)[name]

    return predict


def of_neighbours(X, codes, folds, mass):
    return neighbour_means(X, np.eye(CLASSES)[codes], folds, np.random.default_rng(0), mass)


def of_model(model):
    def predict(X, codes, folds, mass):
        return fit_folds(model, Task(X, codes, np.arange(CLASSES), mass), folds).out_of_fold

    return predict


# Members, and how much their predictions may move: fits are solved to a tolerance, the penalty is chosen on all rows.
BY_FOLD = {
    "ordinary": (of_linear(0), 2e-3),
    "trimmed": (of_linear(1), 2e-2),
    "neighbours": (of_neighbours, 1e-12),
    "extra trees": (of_model(ExtraTreesClassifier(10, min_samples_leaf=10, bootstrap=True, random_state=0)), 1e-12),
    "naive Bayes": (of_model(GaussianNB()), 1e-12),
    "nearest neighbour": (of_model(KNeighborsClassifier(1)), 1e-12),
}
UNWEIGHTED = {
    **{name: (of_trees(name), 1e-12) for name in ("boosting", "forest", "coarse_forest")},
    "sparse": (of_sparse("sparse"), 2e-3),
    "sparse robust": (of_sparse("sparse robust"), 2e-2),
}
LINEAR = {"ordinary": 0, "trimmed": 1}  # one penalty, and one share to cut, are chosen for all folds
MEMBERS = {**BY_FOLD, **UNWEIGHTED}
MASSES = {
    "none": lambda n: None,
    "all 4": lambda n: np.full(n, 4.0),
    "whole": lambda n: np.random.default_rng(1).integers(0, 4, n).astype(float),
    "fractions": lambda n: np.random.default_rng(1).uniform(0.2, 3.0, n),
}


def assert_own_label_has_no_say(predict, slack, X, codes, folds, mass):
    before = predict(X, codes, folds, mass)
    np.testing.assert_allclose(before.sum(axis=1), 1.0)
    moved = 0.0
    for row in (0, 41, 97):
        other = codes.copy()
        other[row] = (other[row] + 1) % CLASSES
        after = predict(X, other, folds, mass)
        np.testing.assert_allclose(after[row], before[row], rtol=0, atol=slack)
        moved = max(moved, float(np.abs(after - before).max()))
    assert moved > 2e-3  # the label does say something of other rows


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("member", MEMBERS)
def test_no_label_has_a_say_in_its_own_prediction(member, repeats):
    X, codes = problem(repeats)
    folds = draw_folds(len(X), np.random.default_rng(2), n_folds=4, n_repeats=1)
    assert_own_label_has_no_say(*MEMBERS[member], X, codes, folds, None)


@pytest.mark.parametrize(
    ("member", "mass"),
    [
        (member, mass)
        for member in BY_FOLD
        for mass in ("all 4", "whole", "fractions")
        if (member, mass) != ("nearest neighbour", "fractions")  # its fit takes no weights
    ],
)
def test_no_label_has_a_say_in_its_own_prediction_whatever_its_weight(member, mass):
    X, codes = problem(3 if "neighbour" in member else 1)
    folds = draw_folds(len(X), np.random.default_rng(2), n_folds=4, n_repeats=1)
    assert_own_label_has_no_say(*MEMBERS[member], X, codes, folds, MASSES[mass](len(X)))


@pytest.mark.parametrize("member", [name for name in MEMBERS if name not in LINEAR])
def test_rows_that_a_plan_forbids_change_no_prediction(member):
    """Folds along time: whatever happens to rows and labels later than a test row, its prediction stays.

    Columns of sparse members are scaled by all rows.
    """
    X, codes = problem()
    part = np.arange(N) * 4 // N
    folds = Folds(np.array([part < f for f in (1, 2, 3)]), np.array([part == f for f in (1, 2, 3)]))
    predict, slack = MEMBERS[member]
    before = predict(X, codes, folds, None)
    later, other = part == 3, X if "sparse" in member else 3.0 * np.random.default_rng(9).normal(size=X.shape)
    after = predict(np.where(later[:, None], other, X), np.where(later, (codes + 1) % CLASSES, codes), folds, None)
    asked = (part > 0) & (part < 3)
    np.testing.assert_allclose(after[asked], before[asked], rtol=0, atol=slack)


def test_a_model_that_lacks_a_class_gives_it_no_probability():
    X, codes = problem()
    classes = np.array([2, 5, 9])
    for lacking in range(CLASSES):
        rows = codes != lacking
        P = predict_with(LogisticRegression().fit(X[rows], classes[codes[rows]]), X, classes)
        assert (P[:, lacking] == 0.0).all()
        there = np.delete(np.arange(CLASSES), lacking)
        assert (P[rows][:, there].argmax(axis=1) == np.searchsorted(there, codes[rows])).mean() > 0.7
