"""What is claimed of wrong labels holds, and where labels do not show any, nothing is claimed."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.datasets import load_wine, make_gaussian_quantiles
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from rankrange import find_label_issues, noise
from rankrange.audit import audit_table
from rankrange.crossfit.distant_rows import high_leverage_rows, rows_with_unique_levels
from rankrange.crossfit.folds import Folds, draw_folds
from rankrange.crossfit.trees import Boosted, tree_predictions
from rankrange.label_noise import LabelNoiseModel
from rankrange.outliers import Widths


def both(p):
    """Probabilities of two classes from that of the second."""
    return np.column_stack([1.0 - p, p])


def learned(n, rates, seed):
    """Rows of two classes that are apart, their labels, and a model that knows how often it will be contradicted."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 2, n)
    given = np.where(rng.random(n) < np.asarray(rates)[true], 1 - true, true)
    share = np.where(true == 1, 1.0 - rates[1], rates[0])
    return true, given, both(expit(np.log(share + 0.01) - np.log(1.01 - share) + 0.05 * rng.normal(size=n)))


@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.2, 0.2), (0.0, 0.3)])
def test_a_rate_that_a_model_has_learned_is_seen_by_the_order_of_the_rows(rates):
    true, given, P = learned(1500, rates, seed=1)
    found = LabelNoiseModel().fit({"model": P}, given)
    wrong = true != given
    assert found.share == pytest.approx(wrong.mean(), abs=0.03)
    assert found.interval[0] <= wrong.mean() <= found.interval[1]
    likely = found.p_wrong >= 0.5
    assert found.p_wrong[likely].mean() == pytest.approx(wrong[likely].mean(), abs=0.2)


def test_classes_that_overlap_are_not_called_wrong():
    flagged = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 800)
        z = 2.0 * (y - 0.5) * 1.5 + rng.normal(size=800)  # 7% lie on the wrong side
        found = LabelNoiseModel().fit({"model": both(expit(3.0 * z))}, y)
        flagged.append(int((found.p_wrong >= 0.5).sum()))
        assert found.interval[0] == 0.0
    assert max(flagged) == 0


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


def test_what_trees_explain_is_no_error_though_a_line_of_your_own_cannot():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1200, 2))
    y = ((X**2).sum(axis=1) < 0.55).astype(int)
    issues = find_label_issues(X, y, estimator=LogisticRegression(), neighbours=False, random_state=0)
    assert (issues.p_wrong >= 0.5).mean() <= 0.005
    assert issues.noise_interval[0] == 0.0
    assert issues.noise_estimate < 0.01
    alone = find_label_issues(X, y, estimator=LogisticRegression(), neighbours=False, trees=False, random_state=0)
    assert alone.noise_estimate > issues.noise_estimate
    given = noise.symmetric(y, 0.1, 0)
    issues = find_label_issues(X, given, estimator=LogisticRegression(), neighbours=False, random_state=0)
    likely = issues.p_wrong >= 0.5
    assert likely.sum() > 60
    expected, wrong = issues.p_wrong[likely].mean(), (given != y)[likely].mean()
    assert wrong > 0.85
    assert wrong > expected - 3.0 * np.sqrt(expected * (1.0 - expected) / likely.sum())  # not overconfident


def log_loss_of(P, y):
    return -np.log(P[np.arange(len(y)), y]).mean()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_line_is_fitted_as_well_on_a_table_of_rare_levels_as_by_anyone_else(seed):
    """A quarter of the rows was taken for far: all those of a rare level, which the steps then did not know."""
    rng = np.random.default_rng(seed)
    X = (rng.random((600, 3)) < [0.1, 0.08, 0.12]).astype(float)
    y = (rng.random(600) < expit(X @ [2.0, -2.0, 1.5] - 1.0)).astype(int)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    opinions = {name: P for name, _, P in find_label_issues(X, y, trees=False, random_state=0).members}
    reference = cross_val_predict(LogisticRegression(), X, y, cv=5, method="predict_proba")
    assert log_loss_of(opinions["ordinary"], y) == pytest.approx(log_loss_of(reference, y), abs=0.02)


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_predictions_of_trees_do_not_depend_on_the_label_of_the_row(n_folds):
    """Labels are drawn by chance: whoever has seen a row's own label would guess it better than by chance."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1000, 3)), rng.integers(0, 2, 1000)
    found = tree_predictions(X, y, 2, draw_folds(1000, rng, n_folds=n_folds, n_repeats=1), rng)
    for name, P in found.items():
        assert np.isfinite(P).all(), name
        assert (P.argmax(axis=1) == y).mean() < 0.56, name  # four standard errors above one half


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


def with_missing_cells(seed, n=500):
    """Three columns of which the first says most, a tenth of its cells missing; what the target comes from."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    missing = rng.random(n) < 0.1
    truth = 3.0 * X[:, 0] + X[:, 1]
    X[missing, 0] = np.nan
    return X, missing, truth, rng


def test_rows_whose_telling_cell_is_missing_are_not_called_wrong():
    claimed, found, lacking = [], [], []
    for seed in (0, 2, 3):
        X, missing, truth, _ = with_missing_cells(seed)
        y = (truth > 0).astype(int)
        given = noise.symmetric(y, 0.1, random_state=seed)
        p_wrong = find_label_issues(X, given, random_state=0).p_wrong
        told = p_wrong >= 0.5
        claimed.append(p_wrong[told])
        found.append((given != y)[told])
        lacking.append(missing[told])
    claimed, found, lacking = (np.concatenate(part) for part in (claimed, found, lacking))
    assert len(claimed) > 60
    assert found.mean() > claimed.mean() - 0.1
    assert lacking.mean() < 0.1  # a third of them, where rows count as complete


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


def test_the_units_of_columns_do_not_matter():
    X, y = load_wine(return_X_y=True)
    given = noise.symmetric(y, 0.1, random_state=1)
    units = 10.0 ** np.random.default_rng(0).integers(-4, 5, X.shape[1])
    one, other = (find_label_issues(rows, given, random_state=0) for rows in (X, X * units + 3.0 * units))
    np.testing.assert_allclose(one.p_wrong, other.p_wrong, atol=0.02)


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


def many_classes(n, n_classes, rate, seed):
    """A model that knows how classes overlap, true classes drawn by it, and labels that are replaced by any other."""
    rng = np.random.default_rng(seed)
    P = softmax(rng.normal(scale=2.0, size=(n, n_classes)), axis=1)
    true = (rng.random((n, 1)) > np.cumsum(P, axis=1)[:, :-1]).sum(axis=1)
    other = (true + rng.integers(1, n_classes, n)) % n_classes
    return P, true, np.where(rng.random(n) < rate, other, true)


def test_a_kind_of_row_that_lies_far_out_belongs_and_single_rows_do_not():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 4)), rng.integers(0, 3, 600)
    X[:25] = 12.0 + 0.5 * rng.normal(size=(25, 4))  # a class of its own, though most of its labels name others
    X[25:35] = 30.0 * rng.normal(size=(10, 4))
    assert np.flatnonzero(high_leverage_rows(X, y)).tolist() == list(range(25, 35))


def test_several_classes_that_models_do_not_fit_are_not_called_wrong():
    X, y = make_gaussian_quantiles(n_samples=1000, n_features=5, n_classes=4, random_state=0)
    assert (find_label_issues(X, y, random_state=0).p_wrong < 0.5).all()  # rings: 142 of them were


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_that_columns_hardly_predict_may_all_be_right(seed):
    """All labels are right. The interval includes that, and less than half are flagged (9 to 38% over four seeds)."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(700, 4))
    y = np.where(rng.random(700) < 0.3, 8, 4 * (X[:, 0] > 0) + rng.integers(0, 4, 700))
    issues = find_label_issues(X, y, random_state=seed)
    assert issues.noise_interval[0] == 0.0
    assert (issues.p_wrong >= 0.5).mean() < 0.5
