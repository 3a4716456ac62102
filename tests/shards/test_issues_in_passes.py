"""find_label_issues in passes: members and posterior from a sample, out of fold, then one pass over all rows."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from chunked_rows import in_chunks
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score

import rankrange
from definitions import slow
from rankrange import AoRRClassifier, find_label_issues
from rankrange.label_noise import Costs
from rankrange.shards.evaluation import Passes
from rankrange.shards.fit import first_pass
from rankrange.shards.issues import _fitted, fold_numbers
from shaped_tables import shaped

N, D = 12_000, 4
EDGES = (0, 500, 4_500, 4_500, 10_001, N)
# A sample that is smaller than the data, as it is with data that do not fit into memory.
SAMPLE = 3_000


def table(classes=2, noise=0.1):
    """Rows, their labels as given, and which of these are wrong: a share `noise` of all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    true = (4 * X @ rng.normal(size=(D, classes)) + rng.gumbel(size=(N, classes))).argmax(axis=1)
    given = true.copy()
    wrong = rng.random(N) < noise
    given[wrong] = (given[wrong] + rng.integers(1, classes, wrong.sum())) % classes
    return X, given, wrong


def chunks(X, y, weight=None, edges=None, sample_rows=SAMPLE):
    return in_chunks(X, y, weight, EDGES if edges is None else edges, sample_rows)


@pytest.fixture(scope="module")
def plain():
    """The issues of `table()` in chunks."""
    X, given, _ = table()
    return find_label_issues(chunks(X, given), random_state=0)


@pytest.fixture(scope="module")
def of_files(tmp_path_factory):
    """The issues of `table()` in two files, with texts for labels."""
    folder = tmp_path_factory.mktemp("files")
    X, given, _ = table()
    np.save(folder / "X.npy", X), np.save(folder / "y.npy", np.array(["no", "yes"])[given])
    rows = rankrange.scan(folder / "X.npy", target=str(folder / "y.npy"), sample_rows=SAMPLE)
    return find_label_issues(rows, random_state=0)


def assert_calibrated(p_wrong, wrong):
    """The expected calibration error is below .03, and in no group of rows are fewer labels wrong than p_wrong says.

    A group may fall short by four standard errors of drawn labels, and by .05 for what the models do not know.
    """
    error = 0.0
    for low, high in pairwise((0.0, 0.02, 0.1, 0.3, 0.6, 0.9, 1.0001)):
        rows = (p_wrong >= low) & (p_wrong < high)
        if rows.any():
            expected, found = p_wrong[rows].mean(), wrong[rows].mean()
            error += rows.mean() * abs(found - expected)
            assert found > expected - 0.05 - 4 * np.sqrt(expected * (1 - expected) / rows.sum()), (low, high)
    assert error < 0.03


@pytest.mark.parametrize(("classes", "noise"), [(3, 0.1), *slow((2, 0.02), (3, 0.3))])
def test_p_wrong_is_calibrated_and_ranks_as_well_as_in_memory(classes, noise):
    X, given, wrong = table(classes, noise)
    outside = find_label_issues(chunks(X, given), random_state=0)
    p_wrong = np.asarray(outside.p_wrong)
    assert_calibrated(p_wrong, wrong)
    assert outside.noise_interval[0] - 0.01 < wrong.mean() < outside.noise_interval[1] + 0.01
    assert p_wrong.mean() == pytest.approx(wrong.mean(), abs=0.02)
    inside = find_label_issues(X, given, neighbours=False, random_state=0)
    scores = [average_precision_score(wrong, np.asarray(found.score)) for found in (outside, inside)]
    assert scores[0] > scores[1] - 0.01


def test_the_table_lists_the_rows_from_a_fifth_on_with_their_given_labels(plain):
    _, given, _ = table()
    p_wrong = np.asarray(plain.p_wrong)
    assert len(plain.p_wrong) == len(p_wrong) == N
    np.testing.assert_array_equal(np.asarray(plain.given), given)
    np.testing.assert_array_equal(p_wrong[plain["row"]], plain["p_wrong"])
    np.testing.assert_array_equal(np.sort(plain["row"]), np.flatnonzero(p_wrong >= 0.2))
    np.testing.assert_array_equal(plain["action"] != "look", plain["p_wrong"] >= 0.5)
    assert (plain["given"] != plain["suggested"]).all()
    assert len(plain.top(N)) == len(plain) + 100


@pytest.mark.parametrize("sample_rows", [4_000, 2_000])
def test_the_posterior_out_of_core_is_that_in_memory(sample_rows):
    """With all rows in the sample exactly, otherwise over shapes; single tables differ by the draw of their sample."""
    differences = []
    for name in ("xor", "circle", "three classes") if sample_rows == 2_000 else ("circle",):
        X, y, wrong = shaped(name, 4_000, 0.2)
        outside = find_label_issues(chunks(X, y, edges=(0, 1_000, 4_000), sample_rows=sample_rows), random_state=0)
        inside = find_label_issues(X, y, random_state=0)
        p_wrong = np.asarray(outside.p_wrong)
        differences.append((np.abs(p_wrong - inside.p_wrong).mean(), outside.noise_estimate - inside.noise_estimate))
        assert average_precision_score(wrong, p_wrong) > average_precision_score(wrong, inside.p_wrong) - 0.03
    rows, shares = np.abs(differences).T
    assert rows.mean() <= (0.0 if sample_rows == 4_000 else 0.05)
    assert shares.mean() <= (0.0 if sample_rows == 4_000 else 0.02)


@pytest.mark.parametrize("name", ["xor", "overlap", *slow("checkerboard")])
def test_clean_labels_are_not_called_wrong(name):
    """A line at chance is no evidence: what trees explain is right, and overlap is no noise."""
    X, y, _ = shaped(name, 6_000, 0.0)
    found = find_label_issues(chunks(X, y, edges=(0, 1_000, 6_000)), random_state=0)
    assert (np.asarray(found.p_wrong) >= 0.5).mean() <= 0.005
    assert len(found.top(20)) == 20  # there is a ranking even if nothing is listed


def fitted(X, y, n_folds, trees, estimator=None, sample_rows=1_200):
    """The fitted members and posterior, and the fold of each row."""
    model = AoRRClassifier(C=0.1) if estimator is None else estimator
    rows = chunks(X, y, edges=(0, 300, 300, 1_100, len(y)), sample_rows=sample_rows)
    data = first_pass(Passes(rows), model, 7)
    task = _fitted(data, rows, model, n_folds, trees, Costs(), np.random.default_rng(0))
    return task, fold_numbers(data.sampling.seed, n_folds, np.arange(len(y)))


def test_no_label_has_a_say_in_its_own_prediction():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_400, 3))
    y = (np.hypot(X[:, 0], X[:, 1]) > 1.2).astype(int)  # trees see the ring, a line does not
    y = np.where(rng.random(2_400) < 0.1, 1 - y, y)

    def predicted(labels):
        task, fold = fitted(X, labels, 3, True)
        assert task.members.trees is not None
        return sum(task.posterior.weights[name] * P for name, P in task.members.predictions(fold, X).items())

    before = predicted(y)
    sampled = first_pass(Passes(chunks(X, y, edges=(0, 2_400), sample_rows=1_200)), AoRRClassifier(), 7).numbers
    for row in sampled[[3, 500]]:
        other = y.copy()
        other[row] = 1 - other[row]
        after = predicted(other)
        np.testing.assert_allclose(after[row], before[row], atol=1e-2)
        assert np.abs(after - before).max() > 0.02


def test_linear_members_are_the_fits_in_memory_to_the_sampled_rows_outside_their_fold():
    X, y, _ = table()
    X, y = X[:1_200], y[:1_200]
    task, fold = fitted(X, y, 3, False, AoRRClassifier(C=0.01))
    for number in range(3):
        rows = np.flatnonzero(fold != number)
        C = 0.01 * len(y) / len(rows)  # the penalty has the same weight as in the fit to all rows
        inside = AoRRClassifier(0, 1.0, C=C, random_state=0).fit(X[rows], y[rows])
        W = np.append(inside.coef_[0], inside.intercept_)
        np.testing.assert_allclose(task.members.linear[0, number, 0], W, atol=0.02 * np.abs(W).max())


def test_other_chunks_change_nothing_but_rounding_and_passes_are_few(plain, capsys):
    X, given, _ = table()
    other = find_label_issues(chunks(X, given, edges=(0, 6_333, N)), random_state=0, verbose=1)
    np.testing.assert_allclose(np.asarray(plain.p_wrong), np.asarray(other.p_wrong), atol=1e-9)
    assert capsys.readouterr().out.count("over the data") == 2


def test_without_trees_none_are_grown():
    X, y, _ = shaped("xor", 2_000, 0.0)
    task, _ = fitted(X, y, 4, False)
    assert set(task.posterior.weights) == {"ordinary", "robust"}
    issues = find_label_issues(chunks(X, y, edges=(0, 2_000), sample_rows=1_000), trees=False, random_state=0)
    assert (np.asarray(issues.p_wrong) < 0.5).all()  # a line at chance knows nothing about single labels


def test_sparse_rows_stay_sparse_without_trees(monkeypatch):
    X, y, _ = table()
    X = sp.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0)[:2_000])
    dense = sp.csr_matrix.toarray  # of the Gram matrix, with the intercept, not of rows
    monkeypatch.setattr(sp.csr_matrix, "toarray", lambda X: dense(X) if X.shape[0] <= D + 1 else pytest.fail("dense"))
    found = find_label_issues(chunks(X, y[:2_000], edges=(0, 2_000), sample_rows=1_000), trees=False, random_state=0)
    assert np.isfinite(found.p_wrong).all()


def test_fewer_sampled_rows_than_columns():
    X, y, wrong = shaped("line", 900, 0.1)
    wide = np.hstack([X, 0.05 * np.random.default_rng(0).normal(size=(900, 496))])
    issues = find_label_issues(chunks(wide, y, edges=(0, 900), sample_rows=300), trees=False, random_state=0)
    assert average_precision_score(wrong, np.asarray(issues.score)) > 0.5


def test_rows_without_weight_are_never_suspects():
    X, y, _ = shaped("overlap", 3_000, 0.2)
    weight = np.where(np.arange(3_000) % 3 == 0, 0.0, 1.0)
    issues = find_label_issues(chunks(X, y, weight, (0, 3_000), 1_500), random_state=0)
    assert len(issues) > 20
    for found in (issues.table, issues.ranked):
        assert (weight[found["row"]] > 0).all()
    assert (np.asarray(issues.p_wrong)[weight == 0] == 0.0).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_class_weights_are_weights_of_rows_of_these_classes(classes):
    X, given, _ = table(classes)
    factor = {label: 5.0 if label else 1.0 for label in range(classes)}
    weight = np.array([factor[label] for label in given.tolist()])
    settings = {"trees": False, "random_state": 0}
    found = find_label_issues(chunks(X, given), estimator=AoRRClassifier(class_weight=factor), **settings)
    expected = find_label_issues(chunks(X, given, weight), estimator=AoRRClassifier(), **settings)
    assert found.noise_estimate == expected.noise_estimate
    np.testing.assert_array_equal(found.p_wrong, expected.p_wrong)


def test_costs_decide_which_rows_are_listed_and_what_is_done_about_them():
    X, y, _ = shaped("overlap", 3_000, 0.2)
    rows = chunks(X, y, edges=(0, 3_000), sample_rows=1_500)
    plain = find_label_issues(rows, random_state=0)
    other = find_label_issues(rows, review_cost=0.4, drop_cost=4.0, random_state=0)
    np.testing.assert_array_equal(np.asarray(plain.p_wrong), np.asarray(other.p_wrong))
    np.testing.assert_array_equal(other["row"], plain["row"][plain["p_wrong"] >= 0.4])
    np.testing.assert_array_equal(other["action"] == "look", other["p_wrong"] < 0.8)


def test_rows_of_a_file_are_named_by_their_number(plain, of_files):
    issues, given = of_files, table()[1]
    np.testing.assert_array_equal(issues["row"], plain["row"])
    np.testing.assert_allclose(issues["p_wrong"], plain["p_wrong"], atol=1e-9)
    np.testing.assert_array_equal(issues["given"], np.array(["no", "yes"])[given[issues["row"]]])
    pytest.importorskip("pandas")
    assert issues.to_cleanlab()["is_label_issue"].sum() == (issues["p_wrong"] >= 0.5).sum()


def test_decisions_about_rows_of_a_scan(of_files):
    issues, y = of_files, np.array(["no", "yes"])[table()[1]]
    first, second = issues["row"][0].item(), issues["row"][1].item()
    issues.decide(first, "relabel")
    issues.decide(second, "drop")
    labels, kept = issues.decided()
    assert np.flatnonzero(labels != y).tolist() == [first]
    assert np.flatnonzero(~kept).tolist() == [second]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        *(({name: value}, TypeError, name) for name, value in
          (("pred_probs", [[1.0, 0.0]]), ("learn_from", [0, 1]), ("n_repeats", 2), ("y", [0]), ("n_jobs", 2),
           ("texts", ["a", "b"]))),
        ({"estimator": LogisticRegression()}, ValueError, "needs an AoRRClassifier with loss='logistic', got Logis"),
        ({"cv": 1}, ValueError, "cv must be a number of folds from 2 on"),
    ],
)  # fmt: skip
def test_what_a_scan_cannot_use_is_an_error(options, error, message):
    X, y, _ = shaped("line", 200, 0.0)
    with pytest.raises(error, match=message):
        find_label_issues(chunks(X, y, edges=(0, 200)), **options)
