"""Rows far from all others, mended labels, units, order and names: what `find_label_issues` must not depend on."""

import numpy as np
import pytest
from sklearn.model_selection import KFold

from rankrange import find_label_issues
from rankrange.crossfit.distant_rows import high_leverage_rows, rows_with_unique_levels
from rankrange.crossfit.numeric import standardised

N, FAR = 200, [5, 60, 111, 180]


def rows(seed=0):
    """Two classes in three columns of different units; four rows lie far out, each on its own."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    y = (X[:, 0] + 0.5 * X[:, 1] + 0.4 * rng.normal(size=N) > 0).astype(int)
    X[FAR] = [[60, 61, -62], [-63, 64, 65], [66, -67, 68], [-69, -70, -71]]
    return X * [1.0, 100.0, 0.01], y


def predictions(X, y, **options):
    """The out-of-fold probabilities of every member, and the issues they came from."""
    found = find_label_issues(X, y, cv=KFold(4, shuffle=True, random_state=0), random_state=0, **options)
    return {name: P for name, _, P in found.members}, found


@pytest.fixture(scope="module")
def as_given():
    return predictions(*rows())


def assert_same(found, expected, at=slice(None), atol=2e-3):
    """Every member of both ensembles predicts the same; linear fits to their tolerance."""
    assert {"ordinary", "robust", "boosting", "forest"} <= found.keys() & expected.keys()
    for name in found.keys() & expected.keys():
        slack = atol if name in ("ordinary", "robust") else min(atol, 1e-9)
        np.testing.assert_allclose(found[name][at], expected[name][at], rtol=0, atol=slack, err_msg=name)


NEAR = np.setdiff1d(np.arange(N), FAR)


def test_labels_of_high_leverage_rows_change_no_prediction_of_others(as_given):
    X, y = rows()
    before, found = as_given
    np.testing.assert_array_equal(np.flatnonzero(found.high_leverage), FAR)
    other = y.copy()
    other[FAR] = 1 - other[FAR]
    p_wrong = found.p_wrong
    after, found = predictions(X, other)
    np.testing.assert_array_equal(np.flatnonzero(found.high_leverage), FAR)
    assert_same(after, before, NEAR, atol=0.02)
    np.testing.assert_allclose(found.p_wrong[NEAR], p_wrong[NEAR], atol=0.01)


@pytest.mark.parametrize("factor", [3.0, 1e4])
def test_high_leverage_rows_that_move_further_change_no_prediction_of_others(as_given, factor):
    X, y = rows()
    X[FAR] *= factor
    after, found = predictions(X, y)
    np.testing.assert_array_equal(np.flatnonzero(found.high_leverage), FAR)
    assert_same(after, as_given[0], NEAR)


@pytest.mark.parametrize("factor", [1.0, 3.0, 1e6])
def test_columns_are_in_units_of_the_rows_that_are_not_far(factor):
    X, _ = rows()
    far = np.isin(np.arange(N), FAR)
    X[far] *= factor
    scaled = standardised(X, (~far).astype(float))[~far]
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(scaled.std(axis=0), 1.0)


def test_predictions_of_corrected_labels_are_those_of_the_labels_themselves():
    X, y = rows()
    mended = y.copy()
    mended[NEAR[:15]] = 1 - mended[NEAR[:15]]
    learnt, found = predictions(X, y, learn_from=mended)
    assert_same(learnt, predictions(X, mended)[0])
    np.testing.assert_array_equal(found.given, y)


def test_after_a_correction_labels_are_not_held_to_be_all_right(as_given):
    X, y = rows()
    mended = y.copy()
    mended[NEAR[0]] = 1 - mended[NEAR[0]]
    found = predictions(X, y, learn_from=mended)[1]
    assert found.no_error < 0.8 * as_given[1].no_error
    assert found.noise_estimate > as_given[1].noise_estimate


def test_of_rows_with_the_same_p_wrong_the_less_likely_label_comes_first():
    """Probabilities closer to 1 than 1 / n are not told apart by p_wrong."""
    y = np.arange(200) % 2
    P = np.where(y[:, None] == np.arange(2), 0.9, 0.1)
    far = 10.0 ** -np.arange(4, 9)
    P[:10:2] = np.column_stack([1 - far, far])
    found = find_label_issues(y=y, pred_probs=P)
    assert np.ptp(found.p_wrong[:10:2]) < 1e-12
    assert (np.diff(found.score[:10:2]) < 0).all()


def test_neighbours_vote_with_corrected_labels():
    """A chessboard: neighbours predict it, lines do not, so that neighbours are members of both ensembles."""
    X = np.random.default_rng(0).uniform(0, 4, size=(400, 2))
    mended = np.floor(X).astype(int).sum(axis=1) % 2
    y = mended.copy()
    y[:20] = 1 - y[:20]
    learnt, found = (predictions(X, y, learn_from=t, trees=False)[0]["neighbours"] for t in (mended, y))
    np.testing.assert_allclose(learnt, predictions(X, mended, trees=False)[0]["neighbours"], atol=1e-12)
    assert np.abs(learnt - found).max() > 0.1  # the corrections are seen


def test_units_of_columns_change_no_prediction(as_given):
    X, y = rows()
    after, found = predictions(X * [1e-6, 1e3, 7.0], y)
    np.testing.assert_array_equal(found.high_leverage, as_given[1].high_leverage)
    for name in ("ordinary", "robust"):
        np.testing.assert_allclose(after[name], as_given[0][name], atol=2e-3)
    for name in ("boosting", "forest", "coarse_forest"):  # of a forest float32 decides between splits that are as good
        assert np.abs(after[name] - as_given[0][name])[NEAR].mean() < 0.02


@pytest.mark.parametrize("names", [("no", "yes"), ("z", "a")])
def test_names_of_classes_change_no_finding(as_given, names):
    """Where their order changes, columns change places; each row is as suspect as before."""
    X, y = rows()
    after, found = predictions(X, np.array(names)[y])
    turn = slice(None) if names[0] < names[1] else slice(None, None, -1)
    for name in ("ordinary", "robust", "boosting"):
        np.testing.assert_allclose(after[name][:, turn], as_given[0][name], atol=5e-3, err_msg=name)
    np.testing.assert_allclose(found.p_wrong, as_given[1].p_wrong, atol=0.1)
    np.testing.assert_array_equal(found.given, np.array(names)[y])


def test_the_order_of_rows_changes_no_prediction_of_linear_fits(as_given):
    X, y = rows()
    order = np.random.default_rng(1).permutation(N)
    place = np.argsort(order)
    pairs = [(place[train], place[test]) for train, test in KFold(4, shuffle=True, random_state=0).split(X)]
    found = find_label_issues(X[order], y[order], cv=pairs, random_state=0)
    after = {name: P[place] for name, _, P in found.members}
    np.testing.assert_array_equal(found.high_leverage[place], as_given[1].high_leverage)
    for name in ("ordinary", "robust", "boosting"):
        np.testing.assert_allclose(after[name], as_given[0][name], atol=5e-3, err_msg=name)


def test_two_cells_of_one_code_are_two_outliers_and_a_rare_level_is_none():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(50.0, 10.0, size=(500, 4)), np.arange(500) % 2
    X[[20, 300], 0] = -999.0
    assert np.flatnonzero(high_leverage_rows(X, codes)).tolist() == [20, 300]
    X[[20, 300], 0], X[:, 1] = 50.0, 0.0
    X[[20, 300], 1] = 1.0  # a level that two rows have
    assert not high_leverage_rows(X, codes).any()


def test_rows_with_levels_of_their_own_do_not_belong():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, (300, 4)), rng.normal(size=(300, 2))]).astype(float)
    assert not rows_with_unique_levels(X).any()
    X[7, :4] = [7.5, -9.25, 6.5, 11.0]
    X[11, 0] = 40.0  # one odd value alone is a problem of that cell
    assert np.flatnonzero(rows_with_unique_levels(X)).tolist() == [7]
    levels = np.eye(30)[np.r_[rng.integers(0, 3, 297), [27, 28, 29]]]  # a column for each level, three of them rare
    assert not rows_with_unique_levels(levels).any()


def test_odd_rows_train_nothing_and_are_never_relabelled():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (400, 5)).astype(float), rng.integers(0, 2, 400)  # nothing can be predicted
    X[:20] += rng.uniform(5.0, 9.0, (20, 5))
    issues = find_label_issues(X, y, random_state=0)
    assert issues.high_leverage[:20].all()
    assert issues.p_wrong[20:].max() < 0.5
    assert "relabel" not in issues["action"][np.isin(issues["row"], np.arange(20))].tolist()
    assert not (high_leverage_rows(X[20:], y[20:])).any()


def test_a_kind_of_row_that_lies_far_out_belongs_and_single_rows_do_not():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 4)), rng.integers(0, 3, 600)
    X[:25] = 12.0 + 0.5 * rng.normal(size=(25, 4))  # a class of its own, though most of its labels name others
    X[25:35] = 30.0 * rng.normal(size=(10, 4))
    assert np.flatnonzero(high_leverage_rows(X, y)).tolist() == list(range(25, 35))
