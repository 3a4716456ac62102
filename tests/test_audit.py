"""find_label_issues: planted wrong labels are found out of fold; and the model of class-conditional noise."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import check_grad
from scipy.special import softmax
from sklearn.datasets import make_blobs, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import KFold, RepeatedStratifiedKFold, ShuffleSplit, cross_val_predict
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from rankrange import AoRRClassifier, find_label_issues, noise
from rankrange.core import transition as mislabel
from rankrange.core.transition import wrong_rate


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
    assert "suspects among 300 rows" in repr(issues)
    assert len(issues) == len(table)


def test_the_false_discovery_rate_is_the_mean_of_one_less_p_wrong_and_not_too_low():
    """No more labels of the list are right than it estimates, up to three standard errors of drawn labels."""
    X, y = make_blobs(2000, centers=[[0, 0], [2.5, 0]], random_state=0)
    given = noise.symmetric(y, 0.1, 0)
    issues = find_label_issues(X, given, random_state=0)
    counts = np.arange(1, len(issues) + 1)
    np.testing.assert_allclose(issues["fdr"], np.cumsum(1.0 - issues["p_wrong"]) / counts, atol=1e-12)
    right = np.cumsum((given == y)[issues["row"]]) / counts
    error = np.sqrt(issues["fdr"] * (1.0 - issues["fdr"]) / counts)
    assert (right <= issues["fdr"] + 3.0 * error)[19:].all()


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
    assert near.neighbour_weight > 0.5
    assert alone.neighbour_weight == 0
    precision = [average_precision_score(wrong, found.score) for found in (near, alone)]
    assert precision[0] > precision[1] + 0.1
    assert near.noise_estimate == pytest.approx(0.1, abs=0.03)


def test_labels_of_one_class_that_are_wrong_more_often_are_found():
    X, y = make_blobs(1000, centers=[[0, 0], [2.5, 0]], random_state=0)
    given = noise.asymmetric(y, {1: 0}, 0.3, 0)
    wrong = given != y
    plain = LogisticRegression()
    P = cross_val_predict(plain, X, given, method="predict_proba")
    issues = find_label_issues(X, given, random_state=0)
    before = average_precision_score(wrong, 1 - P[np.arange(1000), given])
    assert average_precision_score(wrong, issues.score) > before + 0.2


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


def test_progress_is_shown(capsys):
    X, _, given = planted(2)
    find_label_issues(X, given, trees=False, verbose=1)
    assert "ordinary fits" in capsys.readouterr().out


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
        ({"X": X3, "y": Y3, "cv": [(np.arange(30), np.arange(30))]}, "exactly the rows that it does not test"),
        ({"X": X3, "y": Y3, "estimator": LinearSVC()}, "predict_proba, got LinearSVC"),
        ({"X": X3, "y": Y3, "estimator": AoRRClassifier(loss="hinge")}, "loss='logistic'"),
        ({"y": Y3, "pred_probs": THIRDS[:, :2]}, r"shape \(30, 3\), got \(30, 2\)"),
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


def test_repeated_folds_can_be_given():
    X, _, given = planted(2, 100)
    issues = find_label_issues(X, given, cv=RepeatedStratifiedKFold(n_splits=4, n_repeats=3, random_state=0))
    assert set(np.round(np.unique(issues["cut"]) * 3, 6)) <= {0, 1, 2, 3}


def drawn(n, T, a=3.0, seed=0):
    """Scores, and labels drawn from the model of class-conditional noise."""
    rng = np.random.default_rng(seed)
    K = len(T)
    Z = rng.normal(size=(n, K)) * a
    pick = lambda P: (rng.random((len(P), 1)) > np.cumsum(P, axis=1)).sum(axis=1).clip(max=K - 1)  # noqa: E731
    true = pick(softmax(Z, axis=1))
    return Z, true, pick(T[true])


@pytest.mark.parametrize(
    "T", [[[0.9, 0.1], [0.3, 0.7]], [[0.8, 0.1, 0.1], [0.0, 1.0, 0.0], [0.0, 0.3, 0.7]]], ids=["two", "three"]
)
def test_the_model_of_flips_is_recovered_from_its_own_draws(T):
    T = np.array(T)
    Z, true, given = drawn(20_000, T)
    for temperature in (0.4, 1.0, 3.0):
        assert wrong_rate(temperature * Z, given) == pytest.approx((true != given).mean(), abs=0.02)


def test_the_rate_of_one_class_alone_is_found():
    """Of one class 30% are wrong and of the other none."""
    Z, true, given = drawn(3000, np.array([[1.0, 0.0], [0.3, 0.7]]), a=6.0)
    assert wrong_rate(Z, given) == pytest.approx((true != given).mean(), abs=0.03)


def test_a_row_of_weight_two_counts_as_two_rows():
    Z, _, given = drawn(400, np.array([[0.9, 0.1], [0.2, 0.8]]))
    mass = np.random.default_rng(1).integers(1, 4, 400)
    repeated = np.repeat(np.arange(400), mass)
    assert wrong_rate(Z, given, mass) == pytest.approx(wrong_rate(Z[repeated], given[repeated]), abs=0.005)


def test_the_gradient_of_the_flips_is_right():
    rng = np.random.default_rng(0)
    model = mislabel._Model(rng.normal(size=(50, 4)), rng.integers(0, 4, 50), 0.1)
    x = model.start(0.1) + 0.3 * rng.normal(size=len(model.start(0.1)))
    share = rng.dirichlet(np.ones(50))
    error = check_grad(
        lambda x: model._value_and_gradient(x, share)[0], lambda x: model._value_and_gradient(x, share)[1], x
    )
    assert error < 1e-5


def test_slices_lose_nothing_that_matters():
    Z, _, given = drawn(5000, np.array([[0.9, 0.1], [0.2, 0.8]]))
    scores = mislabel.normed(Z)
    coarse = mislabel.coarse(scores, given, np.full(5000, 1 / 5000))
    assert len(coarse[0]) <= 500
    assert coarse[2].sum() == pytest.approx(1)
    quick, full = mislabel._Model(*coarse[:2]), mislabel._Model(scores, given)
    share = np.full(5000, 1 / 5000)
    rates = [full.rate(m.fit(m.start(0.1), w).x, share) for m, w in ((quick, coarse[2]), (full, share))]
    assert rates[0] == pytest.approx(rates[1], abs=0.01)


def test_where_no_label_is_wrong_the_rate_is_nothing():
    Z, _, given = drawn(2000, np.eye(2), a=8.0)
    assert wrong_rate(Z, given) < 0.005


def test_of_labels_that_nothing_predicts_none_is_called_wrong():
    """Their p_wrong is about the estimated share, which is uncertain, so rows may be listed for a look."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        issues = find_label_issues(rng.normal(size=(400, 3)), rng.integers(0, 2, 400), random_state=0)
        assert issues.p_wrong.max() < 0.5
        assert set(issues["action"]) <= {"look"}
        assert issues.noise_interval[0] == 0
        assert issues.noise_interval[1] > 0.05
    for shown in (str(issues), issues._repr_html_() or str(issues)):
        assert "the others may be errors or hard rows" in shown
    assert "p_wrong" in str(issues)  # the rows most worth a look are shown whatever is known of the share
    assert (issues.top(5)["suggested"] != issues.top(5)["given"]).all()


def test_a_circle_without_wrong_labels_has_no_suspects():
    X = np.random.default_rng(0).uniform(-1, 1, (1000, 2))
    assert len(find_label_issues(X, (X**2).sum(axis=1) < 0.55, random_state=0)) == 0


def test_far_rows_with_wrong_labels_come_first_and_are_never_relabelled():
    X, y, _ = planted(2)
    X = X - X.mean(axis=0)
    far = np.arange(0, 300, 15)
    given = y.copy()
    given[far], X[far] = 1 - y[far], X[far] * 10
    issues = find_label_issues(X, given, trees=False, random_state=0)
    assert set(issues["row"][:20].tolist()) == set(far.tolist())
    assert "relabel" not in issues["action"][:20]
