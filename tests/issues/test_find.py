"""find_label_issues: planted wrong labels come first, and what models do not predict is not called wrong."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.datasets import make_blobs, make_gaussian_quantiles, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold, RepeatedStratifiedKFold, ShuffleSplit, cross_val_predict
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from rankrange import AoRRClassifier, find_label_issues, noise
from rankrange.crossfit.folds import label_folds


def planted(classes=3, n=300, rate=0.1, flips=None, seed=0):
    X, y = make_blobs(n, centers=np.eye(classes) * 4, random_state=seed)
    given = noise.symmetric(y, rate, seed) if flips is None else noise.asymmetric(y, flips, rate, seed)
    return X, y, given


@pytest.mark.parametrize("classes", [2, 3])
def test_planted_wrong_labels_come_first(classes):
    X, y, given = planted(classes)
    issues = find_label_issues(X, given, random_state=0)
    wrong = given != y
    assert average_precision_score(wrong, issues.score) > 0.95
    assert wrong[issues["row"][:20]].all()
    assert issues.noise_estimate == pytest.approx(0.1, abs=0.03)


def test_the_table_is_sorted_and_says_what_it_means():
    X, y, given = planted()
    issues = find_label_issues(X, np.array(["red", "green", "blue"])[given], random_state=0)
    table, names = issues.table, np.array(["red", "green", "blue"])
    assert (np.diff(issues.score[table["row"]]) <= 0).all()
    assert (table["given"] == names[given][table["row"]]).all()
    relabel = table[table["action"] == "relabel"]
    assert (relabel["suggested"] == names[y][relabel["row"]]).mean() > 0.9
    assert (table["p_wrong"][table["action"] == "look"] < 0.5).all()
    assert (table["p_wrong"][table["action"] == "drop"] >= 0.5).all()
    assert set(np.unique(table["cut"])) <= {0.0, 0.5, 1.0}
    np.testing.assert_array_equal(table["cut"] == 1, table["cut"] > 0.99)
    assert (table["distance"][table["cut"] == 1] > 0).all()
    np.testing.assert_allclose(
        table["fdr"], np.cumsum(1.0 - table["p_wrong"]) / np.arange(1, len(table) + 1), atol=1e-12
    )
    assert "suspects among 300 rows" in repr(issues)
    assert len(issues) == len(table)


def test_every_prediction_of_an_audit_is_out_of_fold():
    X, _, given = planted(2, rate=0.2)
    memory = DecisionTreeClassifier(random_state=0)  # gives probability 1 to every label that it has seen
    assert (memory.fit(X, given).predict_proba(X)[np.arange(300), given] == 1).all()
    issues = find_label_issues(X, given, estimator=memory, neighbours=False, random_state=0)
    assert (issues.score > 0.3).sum() > 30


def test_ready_probabilities_do_as_the_estimator_that_made_them():
    X, _, given = planted()
    folds = list(KFold(5, shuffle=True, random_state=0).split(X))
    model = LogisticRegression()
    P = cross_val_predict(model, X, given, cv=folds, method="predict_proba")
    fitted = find_label_issues(X, given, estimator=model, cv=folds, trees=False, neighbours=False, random_state=0)
    ready = find_label_issues(X, given, pred_probs=P, neighbours=False, random_state=0)
    np.testing.assert_allclose(fitted.score, ready.score, atol=1e-4)
    np.testing.assert_allclose(find_label_issues(y=given, pred_probs=P).score, ready.score)


def test_if_a_line_does_not_fit_nearest_neighbours_predict():
    X, y = make_moons(800, noise=0.15, random_state=0)
    given = noise.symmetric(y, 0.1, 0)
    wrong = given != y
    near, alone = (find_label_issues(X, given, neighbours=use, trees=False, random_state=0) for use in (True, False))
    assert {name: weight for name, weight, _ in near.members}["neighbours"] > 0.5
    assert "neighbours" not in [name for name, *_ in alone.members]
    precision = [average_precision_score(wrong, found.score) for found in (near, alone)]
    assert precision[0] > precision[1] + 0.1
    assert near.noise_estimate == pytest.approx(0.1, abs=0.03)


def test_results_repeat_with_the_seed_and_sparse_input_works():
    X, _, given = planted()
    a, b = (find_label_issues(X[:120], given[:120], random_state=3) for _ in range(2))
    np.testing.assert_array_equal(a.score, b.score)
    c = find_label_issues(sp.csr_matrix(X), given, random_state=3, neighbours=False, trees=False)
    d = find_label_issues(X, given, random_state=3, neighbours=False, trees=False)
    np.testing.assert_allclose(c.score, d.score, atol=1e-3)


def test_an_aorr_classifier_brings_its_own_penalty():
    X, _, given = planted(2)
    weak, strong = (find_label_issues(X, given, estimator=AoRRClassifier(C=C), trees=False) for C in (1e-4, 100))
    assert not np.allclose(weak.score, strong.score)


def test_exports():
    pandas = pytest.importorskip("pandas")
    X, _, given = planted()
    issues = find_label_issues(X, given, trees=False, random_state=0)
    frame = issues.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["row", "given", "suggested", "p_wrong", "loss", "distance", "cut", "fdr", "action"]
    every = issues.to_cleanlab()
    assert list(every.columns) == ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert len(every) == 300
    flagged = issues["row"][np.isin(issues["action"], ["relabel", "drop"])]
    assert set(np.flatnonzero(every["is_label_issue"])) == set(flagged)
    named = pandas.DataFrame(X, index=[f"row {i}" for i in range(300)])
    issues = find_label_issues(named, given, trees=False, random_state=0)
    assert issues.to_cleanlab().index.tolist() == named.index.tolist()
    assert set(issues.to_cleanlab().query("is_label_issue").index) == set(issues["row"][issues["p_wrong"] >= 0.5])


def test_the_columns_are_those_of_cleanlab():
    cleanlab = pytest.importorskip("cleanlab.classification")
    X, _, given = planted(2)
    theirs = cleanlab.CleanLearning(LogisticRegression(), verbose=False).find_label_issues(X, given)
    ours = find_label_issues(X, given, trees=False, random_state=0).to_cleanlab()
    assert set(ours.columns) <= set(theirs.columns)
    agree = (theirs["is_label_issue"].to_numpy() == ours["is_label_issue"].to_numpy()).mean()
    assert agree > 0.95


X3, Y3, _ = planted(3, 30)
THIRDS = np.full((30, 3), 1 / 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": X3}, "needs y"),
        ({"y": Y3}, "X or pred_probs"),
        ({"X": X3, "y": Y3[:-1]}, "same number of rows, got 30 and 29"),
        ({"X": X3, "y": np.zeros(30)}, "at least two classes"),
        ({"X": X3, "y": np.r_[Y3[:-1], 9]}, "each class needs two rows, got one of 9"),
        ({"X": X3, "y": Y3, "cv": 1}, "cv must be an int of at least 2"),
        ({"X": X3, "y": Y3, "n_repeats": 0}, "n_repeats must be an int of at least 1"),
        ({"X": X3, "y": Y3, "cv": ShuffleSplit(3, test_size=0.3)}, "equally often"),
        ({"X": X3, "y": Y3, "cv": [(np.arange(30), np.arange(30))]}, "must not overlap, got 30 rows"),
        ({"X": X3, "y": Y3, "estimator": LinearSVC()}, "predict_proba, got LinearSVC"),
        ({"X": X3, "y": Y3, "estimator": AoRRClassifier(loss="hinge")}, "loss='logistic'"),
        ({"y": Y3, "pred_probs": THIRDS[:, :2]}, r"shape \(30, 3\), got \(30, 2\)"),
        ({"y": Y3, "pred_probs": THIRDS[:, :2], "classes": [0, 1, 2]}, "must name each column of pred_probs once"),
        ({"X": Y3, "y": THIRDS}, r"one label per row, got an array of shape \(30, 3\).*pred_probs="),
        ({"y": Y3, "pred_probs": np.eye(3)[(Y3 + 1) % 3]}, r"got 0% .* 100% with classes=\[2, 0, 1\]; pass these"),
        ({"y": Y3, "pred_probs": 2 * THIRDS}, "must be probabilities"),
        (
            {"X": np.full_like(X3, np.nan), "y": Y3},
            "at least one number, got only missing values.*check how it was read",
        ),
        ({"X": np.full_like(X3, np.inf), "y": Y3}, "finite, got infinite values"),
        ({"X": X3, "y": [None, *Y3[1:].tolist()]}, r"label in every row, got 1 missing .* position 0; drop"),
        ({"X": X3, "y": np.r_[Y3[:-2], np.nan, np.nan]}, r"label in every row, got 2 missing .* position 28; drop"),
        ({"X": X3, "y": [*"ab" * 14, "a", float("nan")]}, r"label in every row, got 1 missing .* position 29; drop"),
        ({"X": X3, "y": X3[:, 0]}, "is for classes, got a y that looks numeric.*audit_table or RankedRangeRegr"),
        ({"X": X3, "y": np.arange(30)}, "looks numeric"),
        ({"X": X3, "y": Y3, "estimator": LogisticRegression(), "pred_probs": THIRDS}, "estimator or pred_probs, got b"),
        ({"X": X3, "y": Y3, "estimator": LogisticRegression}, "an instance, got the class LogisticRegression"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        find_label_issues(**arguments)


@pytest.mark.parametrize(("n", "classes", "repeats"), [(4000, 2, 2), (4001, 2, 1), (100, 3, 1)])
def test_folds_of_two_classes_and_few_rows_are_drawn_twice(n, classes, repeats):
    folds = label_folds(np.arange(n) % classes, 5, None, np.random.default_rng(0))
    assert len(folds) == 5 * repeats
    assert (folds.test.sum(axis=0) == repeats).all()


def test_repeated_folds_can_be_given():
    X, _, given = planted(2, 100)
    issues = find_label_issues(X, given, cv=RepeatedStratifiedKFold(n_splits=4, n_repeats=3, random_state=0))
    assert set(np.round(np.unique(issues["cut"]) * 3, 6)) <= {0, 1, 2, 3}


def circle(rng):
    X = rng.uniform(-1, 1, (1200, 2))
    return X, ((X**2).sum(axis=1) < 0.55).astype(int)


def hardly_predicted(rng):
    X = rng.normal(size=(700, 4))
    return X, np.where(rng.random(700) < 0.3, 8, 4 * (X[:, 0] > 0) + rng.integers(0, 4, 700))


def of_chance(rng):
    return rng.normal(size=(400, 3)), rng.integers(0, 2, 400)


def rings(rng):
    return make_gaussian_quantiles(n_samples=1000, n_features=5, n_classes=4, random_state=0)


@pytest.mark.parametrize(
    ("table", "draws", "options", "most"),
    [
        (of_chance, 4, {}, 0.0),
        (rings, 1, {}, 0.0),  # 142 rows were
        (hardly_predicted, 2, {}, 0.02),
        (circle, 1, {"estimator": LogisticRegression(), "neighbours": False}, 0.005),  # trees explain it, lines do not
    ],
)
def test_right_labels_that_models_do_not_fit_are_not_called_wrong(table, draws, options, most):
    for seed in range(draws):
        issues = find_label_issues(*table(np.random.default_rng(seed)), random_state=0, **options)
        assert (issues.p_wrong >= 0.5).mean() <= most
        assert issues.noise_interval[0] == 0.0
    if table is of_chance:
        assert set(issues["action"]) <= {"look"}
        assert issues.noise_interval[1] > 0.05
        for shown in (str(issues), issues._repr_html_() or str(issues)):
            assert "other disagreements may be errors or hard rows" in shown
        assert "p_wrong" in str(issues)  # the rows most worth a look are shown whatever is known of the share
        assert (issues.top(5)["suggested"] != issues.top(5)["given"]).all()


def test_labels_that_only_trees_contradict_are_found_without_overconfidence():
    X, y = circle(np.random.default_rng(0))
    given = noise.symmetric(y, 0.1, 0)
    issues = find_label_issues(X, given, estimator=LogisticRegression(), neighbours=False, random_state=0)
    likely = issues.p_wrong >= 0.5
    assert likely.sum() > 60
    expected, wrong = issues.p_wrong[likely].mean(), (given != y)[likely].mean()
    assert wrong > 0.85
    assert wrong > expected - 3.0 * np.sqrt(expected * (1.0 - expected) / likely.sum())


def log_loss_of(P, y):
    return -np.log(P[np.arange(len(y)), y]).mean()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_line_is_fitted_as_well_on_a_table_of_rare_levels_as_by_anyone_else(seed):
    """A quarter of the rows was taken for far: all those of a rare level, which the steps then did not know."""
    rng = np.random.default_rng(seed)
    X = (rng.random((600, 3)) < [0.1, 0.08, 0.12]).astype(float)
    y = (rng.random(600) < expit(X @ [2.0, -2.0, 1.5] - 1.0)).astype(int)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    members = {name: P for name, _, P in find_label_issues(X, y, trees=False, random_state=0).members}
    reference = cross_val_predict(LogisticRegression(), X, y, cv=5, method="predict_proba")
    assert log_loss_of(members["ordinary"], y) == pytest.approx(log_loss_of(reference, y), abs=0.02)


def test_rows_whose_telling_cell_is_missing_are_not_called_wrong():
    """Of three columns the first says most, and a tenth of its cells are missing."""
    flagged = []
    for seed in (0, 2, 3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(500, 3))
        missing, y = rng.random(500) < 0.1, (3.0 * X[:, 0] + X[:, 1] > 0).astype(int)
        X[missing, 0] = np.nan
        given = noise.symmetric(y, 0.1, random_state=seed)
        p_wrong = find_label_issues(X, given, random_state=0).p_wrong
        flagged.append(np.stack([p_wrong, given != y, missing])[:, p_wrong >= 0.5])
    stated, wrong, lacking = np.concatenate(flagged, axis=1)
    assert len(stated) > 60
    assert wrong.mean() > stated.mean() - 0.1
    assert lacking.mean() < 0.1  # a third of them, where rows count as complete


def words_in_units(informative, others):
    """300 rows of 2 of 20 words that tell the class and 12 of 600 that do not, each kind in units of its own."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = sp.lil_matrix((300, 640))
    for row, c in enumerate(y):
        X[row, 20 * c + rng.choice(20, 2, replace=False)] = informative
        X[row, 40 + rng.choice(600, 12, replace=False)] = others
    return X.tocsr(), y, np.where(np.arange(300) < 30, 1 - y, y)


@pytest.mark.parametrize(("informative", "others"), [(1.0, 0.02), (0.02, 1.0)])
def test_units_of_a_sparse_table_are_kept_if_they_help_and_undone_if_not(informative, others):
    """Weights of words (TF-IDF) say how much each counts; units that hide what counts are replaced."""
    losses = []
    for X, _, given_labels in (words_in_units(informative, others), words_in_units(1.0, 1.0)):
        issues = find_label_issues(X, given_labels, trees=False, neighbours=False, random_state=0)
        losses.append(log_loss_of(issues.members[0][2], given_labels))
    assert losses[0] <= losses[1] + (-0.05 if informative > others else 0.05)
