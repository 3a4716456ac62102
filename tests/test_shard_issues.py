"""find_label_issues on shards: folds by hash, fits that share passes, rows by their number, the same bits always."""

import concurrent.futures
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, log_loss

import rankrange
from rankrange import AoRRClassifier, find_label_issues
from rankrange.shards import ShardList, array_shards, label_issues
from rankrange.shards.fold_models import predict_rows
from rankrange.shards.shard_kernels import fold_numbers
from shaped_tables import shaped

N, D = 12_000, 4  # two blocks of rows
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


@pytest.fixture(scope="module")
def plain():
    """The issues of `table()` on shards in this process."""
    X, given, _ = table()
    return find_label_issues(sharded(X, given), random_state=0)


@pytest.fixture(scope="module")
def of_files(tmp_path_factory):
    """The issues of `table()` in two files, with texts for labels."""
    folder = tmp_path_factory.mktemp("files")
    X, given, _ = table()
    np.save(folder / "X.npy", X), np.save(folder / "y.npy", np.array(["no", "yes"])[given])
    return find_label_issues(
        rankrange.scan(folder / "X.npy", target=str(folder / "y.npy"), sample_rows=SAMPLE), random_state=0
    )


def sharded(X, y, edges=EDGES, ordered_map=map, weight=None):
    pairs = list(pairwise(edges))
    columns = [None if part is None else [part[a:b] for a, b in pairs] for part in (X, y, weight)]
    return ShardList(array_shards(*columns), ordered_map, sample_rows=SAMPLE)


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


@pytest.mark.parametrize(
    ("classes", "noise"), [(2, 0.0), (2, 0.02), (2, 0.3), (3, 0.1), pytest.param(3, 0.3, marks=pytest.mark.slow)]
)
def test_p_wrong_is_calibrated_and_ranks_as_well_as_in_memory(classes, noise):
    X, given, wrong = table(classes, noise)
    outside = find_label_issues(sharded(X, given), random_state=0)
    p_wrong = np.asarray(outside.p_wrong)
    assert_calibrated(p_wrong, wrong)
    assert outside.noise_interval[0] - 0.01 < wrong.mean() < outside.noise_interval[1] + 0.01
    assert p_wrong.mean() == pytest.approx(wrong.mean(), abs=0.02)
    if noise == 0.02 or classes == 3:
        inside = find_label_issues(X, given, neighbours=False, random_state=0)
        scores = [average_precision_score(wrong, np.asarray(found.score)) for found in (outside, inside)]
        assert scores[0] > scores[1] - 0.01


def test_the_table_lists_the_rows_from_a_fifth_on_with_their_given_labels(plain):
    _, given, wrong = table()
    p_wrong = np.asarray(plain.p_wrong)
    assert len(plain.p_wrong) == len(p_wrong) == N
    np.testing.assert_array_equal(np.asarray(plain.given), given)
    np.testing.assert_array_equal(p_wrong[plain["row"]], plain["p_wrong"])
    np.testing.assert_array_equal(np.sort(plain["row"]), np.flatnonzero(p_wrong >= 0.2))
    np.testing.assert_array_equal(plain["action"] != "look", plain["p_wrong"] >= 0.5)
    assert (plain["given"] != plain["suggested"]).all()
    assert_calibrated(p_wrong, wrong)


def test_a_row_is_predicted_by_fits_to_the_rows_outside_its_fold():
    """Each fit of the judgement is the fit in memory to the rows whose hash gives them another fold."""
    X, given, _ = table()
    found = label_issues.issues_in_shards(sharded(X, given), AoRRClassifier(C=0.01), 3, False, 0, 0)
    members = found.task.members
    fold = fold_numbers(members.seed, 3, 0, N)
    for number in range(3):
        rows = np.flatnonzero(fold != number)
        share = round(found.share * len(rows))
        for v, m in ((0, 0), (1, share)):
            inside = AoRRClassifier(m, 1.0, C=0.01, random_state=0).fit(X[rows], given[rows])
            W = np.append(inside.coef_[0], inside.intercept_)
            np.testing.assert_allclose(members.linear[v, number, 0], W, atol=0.02 * np.abs(W).max())
    rows = predict_rows(found.task, 0, X, 2.0 * given - 1.0)
    own = members.linear[0, fold, 0]
    scores = (X * own[:, :D]).sum(axis=1) + own[:, D]
    np.testing.assert_allclose(rows.linear[0][:, 1], 1.0 / (1.0 + np.exp(-scores)), atol=1e-9)


def test_trees_have_not_seen_the_rows_that_they_predict():
    """Labels drawn at random cannot be predicted, in no fold and by no member that has not seen them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1_200, D)), rng.integers(0, 2, 1_200)
    found = label_issues.issues_in_shards(ShardList(array_shards([X], [y]), sample_rows=SAMPLE), None, 4, True, 0, 0)
    members = found.task.members
    fold = fold_numbers(members.seed, 4, 0, len(y))
    for name, P in members.predictions(fold, X).items():
        for number in range(4):
            rows = fold == number
            assert log_loss(y[rows], P[rows], labels=[0, 1]) > np.log(2.0) - 0.003, (name, number)
    seen = members.predictions((fold + 1) % 4, X)  # each row by models that have seen it
    assert min(log_loss(y, seen[name]) for name in ("boosting", "forest")) < np.log(2.0) - 0.1


def test_the_judgement_has_the_same_bits_however_the_rows_are_cut_and_whoever_runs_them(plain, capsys):
    """And its eight fits share their passes."""
    X, given, _ = table()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        other = find_label_issues(sharded(X, given, (0, 6_333, N), pool.map), random_state=0, verbose=1)
    np.testing.assert_array_equal(plain.table, other.table)
    told = capsys.readouterr().out
    assert "pass 2 over the data (8 fits)" in told
    assert told.count("over the data") <= 8


@pytest.mark.parametrize(
    "name",
    [
        "xor",
        "overlap",
        "three classes",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("circle", "checkerboard")),
    ],
)
def test_clean_labels_are_not_called_wrong(name):
    """A line at chance is no evidence: what trees explain is right, and overlap is no noise."""
    X, y, _ = shaped(name, 3_000, 0.0)
    outside = find_label_issues(
        ShardList(array_shards([X[:1_000], X[1_000:]], [y[:1_000], y[1_000:]]), sample_rows=SAMPLE), random_state=0
    )
    inside = find_label_issues(X, y, random_state=0)
    for found in (outside, inside):
        assert (np.asarray(found.p_wrong) >= 0.5).mean() <= 0.005
    assert abs(outside.noise_estimate - inside.noise_estimate) < 0.02
    assert np.abs(np.asarray(outside.p_wrong) - inside.p_wrong).mean() < 0.01
    assert len(outside.top(20)) == 20  # there is a ranking even if nothing is listed


def test_the_posterior_out_of_core_is_that_in_memory(tmp_path):
    """Over shapes with a fifth of the labels wrong; single tables differ by the draw of their folds."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    differences = []
    for name in ("xor", "circle", "three classes"):
        X, y, wrong = shaped(name, 3_000, 0.2)
        parquet.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": y}), tmp_path / "t.parquet")
        outside = find_label_issues(
            rankrange.scan(tmp_path / "t.parquet", target="y", sample_rows=SAMPLE), random_state=0
        )
        inside = find_label_issues(X, y, random_state=0)
        p_wrong = np.asarray(outside.p_wrong)
        differences.append((np.abs(p_wrong - inside.p_wrong).mean(), outside.noise_estimate - inside.noise_estimate))
        np.testing.assert_allclose(p_wrong.mean(), outside.noise_estimate, atol=0.01)
        assert average_precision_score(wrong, p_wrong) > average_precision_score(wrong, inside.p_wrong) - 0.03
    rows, shares = np.abs(differences).T
    assert rows.mean() < 0.05
    assert shares.mean() < 0.02


def test_without_trees_none_are_grown():
    X, y, _ = shaped("xor", 2_000, 0.0)
    found = label_issues.issues_in_shards(ShardList(array_shards([X], [y]), sample_rows=SAMPLE), None, 4, False, 0, 0)
    assert set(found.posterior.weights) == {"ordinary", "robust"}
    issues = find_label_issues(ShardList(array_shards([X], [y]), sample_rows=SAMPLE), trees=False, random_state=0)
    rates = np.asarray(issues.p_wrong)
    assert (rates < 0.5).all()  # a line at chance knows nothing about single labels


def test_fewer_rows_than_columns():
    X, y, wrong = shaped("line", 300, 0.1)
    wide = np.hstack([X, 0.05 * np.random.default_rng(0).normal(size=(300, 396))])
    issues = find_label_issues(ShardList(array_shards([wide], [y]), sample_rows=SAMPLE), random_state=0)
    assert average_precision_score(wrong, np.asarray(issues.score)) > 0.5


def test_rows_without_weight_are_never_suspects():
    X, y, _ = shaped("overlap", 3_000, 0.2)
    weight = np.where(np.arange(3_000) % 3 == 0, 0.0, 1.0)
    issues = find_label_issues(ShardList(array_shards([X], [y], [weight]), sample_rows=SAMPLE), random_state=0)
    assert len(issues) > 100
    for table in (issues.table, issues.ranked):
        assert (weight[table["row"]] > 0).all()
    assert (np.asarray(issues.p_wrong)[weight == 0] == 0.0).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_class_weights_are_weights_of_rows_of_these_classes(classes):
    """Also in the mass of the rows outside a fold, of which trimmed fits drop a share."""
    X, given, _ = table(classes)
    factor = {label: 5.0 if label else 1.0 for label in range(classes)}
    weight = np.array([factor[label] for label in given.tolist()])
    settings = {"trees": False, "random_state": 0}
    found = find_label_issues(sharded(X, given), estimator=AoRRClassifier(class_weight=factor), **settings)
    expected = find_label_issues(sharded(X, given, weight=weight), estimator=AoRRClassifier(), **settings)
    assert found.noise_estimate == expected.noise_estimate
    np.testing.assert_array_equal(found.p_wrong, expected.p_wrong)


def test_costs_decide_which_rows_are_listed_and_what_is_done_about_them():
    X, y, _ = shaped("overlap", 3_000, 0.2)
    rows = ShardList(array_shards([X], [y]), sample_rows=SAMPLE)
    plain = find_label_issues(rows, random_state=0)
    other = find_label_issues(rows, review_cost=0.4, drop_cost=4.0, random_state=0)
    np.testing.assert_array_equal(np.asarray(plain.p_wrong), np.asarray(other.p_wrong))
    np.testing.assert_array_equal(other["row"], plain["row"][plain["p_wrong"] >= 0.4])
    np.testing.assert_array_equal(other["action"] == "look", other["p_wrong"] < 0.8)


@pytest.mark.parametrize(
    "options", [{"y": [0, 1]}, {"pred_probs": [[1.0, 0.0]]}, {"learn_from": [0, 1]}, {"n_repeats": 2}, {"n_jobs": 2}]
)
def test_what_a_scan_cannot_use_is_an_error(options):
    X, y, _ = shaped("line", 200, 0.0)
    with pytest.raises(TypeError, match=next(iter(options))):
        find_label_issues(ShardList(array_shards([X], [y]), sample_rows=SAMPLE), **options)


def test_rows_of_a_file_are_named_by_their_number(plain, of_files):
    issues, given = of_files, table()[1]
    np.testing.assert_array_equal(issues["row"], plain["row"])
    np.testing.assert_array_equal(issues["p_wrong"], plain["p_wrong"])
    np.testing.assert_array_equal(issues["given"], np.array(["no", "yes"])[given[issues["row"]]])
    pytest.importorskip("pandas")
    assert issues.to_cleanlab()["is_label_issue"].sum() == (issues["p_wrong"] >= 0.5).sum()


def test_decisions_about_rows_of_a_scan(of_files):
    issues, y = of_files, np.array(["no", "yes"])[table()[1]]
    assert (issues["suggested"] != issues["given"]).all()
    first, second = issues["row"][0].item(), issues["row"][1].item()
    issues.decide(first, "relabel")
    issues.decide(second, "drop")
    right = int(np.setdiff1d(np.arange(len(y)), issues["row"])[0])
    with pytest.raises(ValueError, match="not among the suspects"):
        issues.decide(right, "relabel")
    with pytest.raises(ValueError, match="one of those in y, got 'maybe'"):
        issues.decide(first, "relabel", "maybe")
    with pytest.raises(ValueError, match="which 0 rows have"):
        issues.decide(len(y), "keep")
    labels, kept = issues.decided()
    assert np.flatnonzero(labels != y).tolist() == [first]
    assert np.flatnonzero(~kept).tolist() == [second]


def test_options_that_shards_do_not_support_are_errors():
    from sklearn.linear_model import LogisticRegression

    X, given, _ = table()
    with pytest.raises(ValueError, match=r"needs an AoRRClassifier with loss='logistic'.*got LogisticRegression"):
        find_label_issues(sharded(X, given), estimator=LogisticRegression())
    with pytest.raises(ValueError, match="cv must be a number of folds from 2 to 4"):
        find_label_issues(sharded(X, given), cv=1)


def test_an_error_in_a_shared_pass_ends_the_judgement_and_does_not_hang():
    X, given, _ = table()
    calls = []

    def breaks(function, shards):
        calls.append(1)
        if len(calls) == 2:
            raise OSError("the disk is gone")
        return map(function, shards)

    with pytest.raises(OSError, match="the disk is gone"):
        find_label_issues(sharded(X, given, ordered_map=breaks), random_state=0)
