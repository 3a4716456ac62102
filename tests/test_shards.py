"""Fits on shards: the same minimum as in memory, the same bits however the rows are cut, errors that name things."""

import concurrent.futures
import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import rankrange
from rankrange import AoRRClassifier, AoRRRegressor, RankedRange
from rankrange.core.losses import Logistic
from rankrange.core.objective import Design, Objective
from rankrange.shards import BLOCK_ROWS, ShardList, array_shards
from rankrange.shards.evaluation import FullData
from rankrange.shards.holdout import Candidate, confirmed
from rankrange.shards.row_blocks import TreeSum, aligned_ranges
from rankrange.shards.shard_kernels import Model, Sampling, hashed

N, D = 30_000, 5
TIGHT = {"C": 0.002, "tol": 1e-13, "random_state": 0, "max_iter": 200}


def table(classes=2, dtype=np.float64, n=N, far=0.1, seed=0):
    """Rows of overlapping classes; exactly a tenth of them far away with a wrong label, so that one cut is the best."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(D, classes))
    X = rng.normal(size=(n, D))
    y = (X @ truth + rng.gumbel(size=(n, classes))).argmax(axis=1)
    bad = rng.permutation(n)[: round(far * n)]
    X[bad] += 12 * (truth[:, 0] - truth[:, 1]) / np.linalg.norm(truth[:, 0] - truth[:, 1])
    y[bad] = 1
    return X.astype(dtype), y


def cut(array, edges):
    return None if array is None else [array[a:b] for a, b in pairwise(edges)]


def sharded(X, y, weight=None, edges=(0, 1_000, 9_000, 9_000, 20_001, N), ordered_map=map, **limits):
    """A sample that is much smaller than the data, as it is with data that do not fit into memory."""
    shards = array_shards(cut(X, edges), cut(y, edges), cut(weight, edges))
    return ShardList(shards, ordered_map, **{"sample_rows": 6_000, **limits})


def weights(kind, n=N):
    rng = np.random.default_rng(5)
    return {"none": None, "whole": rng.integers(0, 3, n).astype(float), "parts": rng.uniform(0.5, 1.5, n)}[kind]


def both(m, k, X, y, w):
    """The fit in memory and the one on shards; the last digits of a tolerance of 1e-13 may be out of reach of either.

    In memory several scores with a lower cut take minutes to get there, so that one is asked for less.
    """
    settings = TIGHT if k == 1.0 or y.max() == 1 else {**TIGHT, "tol": 1e-8}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        inside = AoRRClassifier(m, k, **settings).fit(X, y, w)
        return inside, AoRRClassifier(m, k, **TIGHT).fit(sharded(X, y, w))


def assert_same_minimum(inside, outside):
    """Coefficients to 1e-6, or to what the certificates prove: F grows by ||change||^2 / (2 C) around its minimum."""
    proved = sum(np.sqrt(2 * model.objective_ * model.certificate_) for model in (inside, outside))
    slack = 1e-6 if inside.tol == outside.tol else max(1e-6, proved)
    np.testing.assert_allclose(outside.coef_, inside.coef_, atol=slack)
    if inside.tol == outside.tol:
        shift = (len(inside.classes_) > 2) * (outside.intercept_ - inside.intercept_).mean()
        np.testing.assert_allclose(outside.intercept_ - shift, inside.intercept_, atol=1e-6)
    assert outside.objective_ <= inside.objective_ * (1 + 1e-9)
    assert outside.certificate_ < 1e-8


@pytest.mark.parametrize("weight", ["none", "whole", "parts"])
@pytest.mark.parametrize(("m", "k"), [(0.1, 1.0), (0, 1.0), (0.1, 0.8)], ids=["trimmed", "average", "aorr"])
@pytest.mark.parametrize("classes", [2, 3])
def test_coefficients_equal_those_of_the_fit_in_memory(classes, m, k, weight):
    # With other seeds and three classes, fits that keep the far rows are lower by .2%, and a sample may not show it.
    X, y = table(classes, seed=3)
    w = weights(weight)
    if w is not None and m:  # the mass of the far rows, so that the upper cut falls into the gap below them
        far = np.linalg.norm(X, axis=1) > 7
        m = float(w[far].sum()) / float(w.sum())
    inside, outside = both(m, k, X, y, w)
    assert_same_minimum(inside, outside)
    assert (outside.m_, outside.k_) == (inside.m_, inside.k_)
    np.testing.assert_array_equal(np.asarray(outside.dropped_), inside.dropped_)
    assert outside.lam_ == pytest.approx(inside.lam_, abs=1e-5)
    if weight != "parts":  # there the cut falls between two rows by construction, and rounding decides for one of them
        assert outside.lam_hat_ == pytest.approx(inside.lam_hat_, abs=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_average_top_k_equals_the_fit_in_memory(classes):
    X, y = table(classes, far=0.0)
    inside, outside = both(0, 0.9, X, y, None)
    assert_same_minimum(inside, outside)


def test_an_uncut_fit_equals_scikit_learn():
    X, y = table()
    outside = AoRRClassifier(0, 1.0, **{**TIGHT, "C": 1.0}).fit(sharded(X, y))
    reference = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(outside.coef_, reference.coef_, atol=1e-5)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_regression_equals_the_fit_in_memory(loss):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, D))
    y = X @ np.arange(1.0, D + 1) + 0.3 * rng.normal(size=N)
    y[: N // 10] += 50
    inside, outside = (AoRRRegressor(0.1, 0.9, loss=loss, **{**TIGHT, "tol": 1e-11}) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        inside.fit(X, y), outside.fit(sharded(X, y))
    np.testing.assert_allclose(outside.coef_, inside.coef_, atol=1e-6)
    assert outside.intercept_ == pytest.approx(inside.intercept_, abs=1e-6)
    assert np.asarray(outside.dropped_)[: N // 10].all()


@pytest.mark.parametrize("weight", ["none", "parts"])
@pytest.mark.parametrize(("far", "m", "k"), [(0.0, 0, 1.0), (0.1, 0.1, 1.0), (0.1, 0.1, 0.95)])
def test_a_hinge_equals_the_fit_in_memory(far, m, k, weight):
    """Its kinks are those of a lower cut at zero: the rows next to it are known one by one, and the bound is proved."""
    X, y = table(far=far)
    w = weights(weight)
    settings = {"loss": "hinge", "C": 0.002, "tol": 1e-7, "random_state": 0}
    inside, outside = AoRRClassifier(m, k, **settings).fit(X, y, w), AoRRClassifier(m, k, **settings)
    outside.fit(sharded(X, y, w, collected_rows=4_000))
    assert outside.certificate_ <= 1e-7
    assert outside.objective_ == pytest.approx(inside.objective_, rel=2e-7)
    np.testing.assert_allclose(outside.coef_, inside.coef_, atol=2e-3)
    again = AoRRClassifier(m, k, **settings).fit(sharded(X, y, w, (0, 4_321, N), collected_rows=4_000))
    np.testing.assert_array_equal(again.coef_, outside.coef_)


def test_a_hinge_with_a_lower_cut_above_zero_counts_the_worst_margins_alone():
    X, y = table(far=0.0)
    settings = {"loss": "hinge", "C": 0.002, "tol": 1e-6, "random_state": 0}
    k = 0.66  # below the number of rows with a loss, above twice the number of errors
    outside = AoRRClassifier(0, k, **settings).fit(sharded(X, y, collected_rows=4_000))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        inside = AoRRClassifier(0, k, **settings).fit(X, y)
    assert 0 < outside.lam_ < 1
    assert outside.objective_ == pytest.approx(inside.objective_, rel=2e-6)


def test_a_hinge_of_several_classes_is_refused():
    X, y = table(3)
    with pytest.raises(ValueError, match="a hinge on shards needs two classes, got 3"):
        AoRRClassifier(0.1, 1.0, loss="hinge").fit(sharded(X, y))


EDGES = {
    "one": (0, N),
    "few": (0, 10_001, 10_001, 23_333, N),
    "many": (*range(0, N, 1_237), N),
    "blocks": (*range(0, N, BLOCK_ROWS), N),
}


@pytest.mark.parametrize("seed", [4, 5, 8, 22])
def test_the_rounding_of_float32_does_not_end_a_fit_above_its_tolerance(seed):
    X, y = table(3, np.float32)
    X = sp.csr_array(np.where(np.abs(X) < 0.5, 0, X).astype(np.float32))
    fit = AoRRClassifier(0.12, 0.9, C=0.05, random_state=seed).fit(sharded(X, y, weights("parts"), EDGES["one"]))
    assert fit.certificate_ <= fit.tol


@pytest.mark.parametrize(
    ("classes", "dtype", "sparse"),
    [
        (2, np.float32, False),
        (2, np.float32, True),
        (2, np.float64, False),
        (2, np.float64, True),
        (3, np.float32, True),
        pytest.param(3, np.float64, False, marks=pytest.mark.slow),
        pytest.param(3, np.float32, False, marks=pytest.mark.slow),
        pytest.param(3, np.float64, True, marks=pytest.mark.slow),
    ],
)
def test_the_answer_has_the_same_bits_however_the_rows_are_cut(classes, dtype, sparse):
    X, y = table(classes, dtype)
    X = sp.csr_array(np.where(np.abs(X) < 0.5, 0, X).astype(dtype)) if sparse else X
    w = weights("parts")
    fits = [AoRRClassifier(0.12, 0.9, C=0.05, random_state=0).fit(sharded(X, y, w, edges)) for edges in EDGES.values()]
    for model in fits[1:]:
        for name in ("coef_", "intercept_", "objective_", "certificate_", "lam_", "lam_hat_", "n_passes_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(fits[0], name), err_msg=name)
        np.testing.assert_array_equal(np.asarray(model.dropped_), np.asarray(fits[0].dropped_))


@pytest.mark.parametrize(
    ("pool", "workers"),
    [
        (concurrent.futures.ThreadPoolExecutor, 1),
        (concurrent.futures.ThreadPoolExecutor, 2),
        (concurrent.futures.ThreadPoolExecutor, 4),
        (concurrent.futures.ProcessPoolExecutor, 2),
    ],
)
def test_an_executor_is_an_engine_and_changes_no_bit(pool, workers, tmp_path):
    """The third engine: any ordered map over shards will do."""
    X, y = table(dtype=np.float32)
    np.save(tmp_path / "X.npy", X), np.save(tmp_path / "y.npy", y)
    source = rankrange.scan(tmp_path / "X.npy", target=str(tmp_path / "y.npy"))
    alone = AoRRClassifier(0.12, 0.9, C=0.05, random_state=0).fit(source)
    context = {} if pool is concurrent.futures.ThreadPoolExecutor else {"mp_context": _spawn()}
    with pool(workers, **context) as executor:
        together = AoRRClassifier(0.12, 0.9, C=0.05, random_state=0).fit(ShardList(source.split(3), executor.map))
    np.testing.assert_array_equal(together.coef_, alone.coef_)
    assert together.certificate_ == alone.certificate_


def _spawn():
    import multiprocessing

    return multiprocessing.get_context("spawn")


def test_a_tree_sum_does_not_depend_on_where_it_is_cut():
    values = np.random.default_rng(0).normal(size=(37, 4)) * 10.0 ** np.arange(-8, 8, 4)
    whole = TreeSum()
    for block, value in enumerate(values):
        whole.add(block, value)
    for edges in ([0, 1, 37], [0, 5, 6, 30, 37], list(range(38))):
        joined = None
        for a, b in pairwise(edges):
            part = TreeSum()
            for block in range(a, b):
                part.add(block, values[block])
            if joined is None:
                joined = part
            else:
                joined.extend(part)
        np.testing.assert_array_equal(joined.total(), whole.total())
    np.testing.assert_allclose(whole.total(), values.sum(axis=0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("lengths", [[5], [BLOCK_ROWS], [0, 3, 0], [BLOCK_ROWS + 1, 2 * BLOCK_ROWS, 7], [100] * 300])
def test_ranges_begin_at_blocks_and_hold_each_row_once(lengths):
    ranges = aligned_ranges(lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    seen = [offsets[i] + row for at in ranges for i, a, b in at.pieces for row in (a, b - 1)]
    assert all(at.start % BLOCK_ROWS == 0 for at in ranges)
    assert sum(b - a for at in ranges for _, a, b in at.pieces) == sum(lengths)
    assert seen == sorted(seen)


def test_the_hash_of_a_row_does_not_depend_on_the_batch_and_is_uniform():
    whole = hashed(7, 0, 100_000)
    np.testing.assert_array_equal(hashed(7, 40_000, 10), whole[40_000:40_010])
    share = np.mean(whole < np.uint64(2**64 // 10))
    assert share == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / 100_000))


def test_repeated_rows_are_tied_rows_and_share_a_cut():
    """Few distinct rows, as of categories: thousands tie at each cut, which no bracket of distinct values can hold."""
    rng = np.random.default_rng(3)
    kinds = rng.normal(size=(30, D))
    which = rng.integers(0, 30, N)
    X, y = kinds[which], (kinds @ np.ones(D) + rng.normal(size=30) > 0)[which].astype(int)
    y[rng.random(N) < 0.1] ^= 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        inside = AoRRClassifier(0.05, 0.9, C=0.05, random_state=0).fit(X, y)
        outside = AoRRClassifier(0.05, 0.9, C=0.05, random_state=0).fit(sharded(X, y))
    assert outside.objective_ <= inside.objective_ * (1 + 1e-6)


def test_brackets_that_would_hold_too_many_rows_are_narrowed_by_counts():
    X, y = table()
    plain = AoRRClassifier(0.12, 0.9, C=0.05, tol=1e-9, random_state=0).fit(sharded(X, y))
    few = sharded(X, y, collected_rows=1_000)
    narrow = AoRRClassifier(0.12, 0.9, C=0.05, tol=1e-9, random_state=0).fit(few)
    assert narrow.n_passes_ > plain.n_passes_
    np.testing.assert_allclose(narrow.coef_, plain.coef_, atol=1e-4)


def test_a_bracket_that_misses_its_cut_is_widened():
    """Of a sample without the rows of large losses: the cuts are those of all rows, after further passes."""
    X, y = table()
    W = np.random.default_rng(0).normal(size=(1, D + 1))
    losses = np.logaddexp(0.0, -(2 * y - 1) * (X @ W[0, :-1] + W[0, -1]))
    easy = np.argsort(losses)[:6_000]
    sample = Objective(Design(X[easy], True), 2.0 * y[easy] - 1.0, Logistic(), 1.0, 1)
    model = Model("logistic", 1, fit_intercept=True, dtype=np.float64, classes=np.arange(2))
    passes = []
    iterate = FullData(sharded(X, y), model, sample, N, float(N), 3_000, 27_000, passes.append).evaluate_at(W)
    assert len(passes) > 1
    ranked = -np.sort(-losses)
    assert (iterate.upper.value, iterate.lower.value) == pytest.approx((ranked[2_999], ranked[26_999]))


def test_m_is_chosen_on_the_sample():
    X, y = table()
    model = AoRRClassifier(C=0.05, random_state=0).fit(sharded(X, y))
    assert model.m_ > 0.05 * N
    near = np.linalg.norm(X, axis=1) < 7
    ordinary = AoRRClassifier(0, 1.0, C=0.05).fit(X, y)
    assert model.score(X[near], y[near]) > ordinary.score(X[near], y[near]) + 0.02
    assert model.noise_interval_[0] <= model.noise_estimate_ <= model.noise_interval_[1]


@pytest.mark.parametrize("C", [0.05, "auto"])
def test_what_the_sample_chose_is_confirmed_on_the_rows_that_no_candidate_has_seen(C):
    """The scores are those of the definition: balanced accuracy over all rows outside the sample."""
    X, y = table()
    model = AoRRClassifier(C=C, random_state=0).fit(sharded(X, y))
    found = model.confirmation_
    assert len(found["m"]) <= 8
    assert found["m"][0] == 0
    best = int(np.argmin(np.abs(found["m"] - model.m_) + np.abs(np.log(found["C"] / model.C_))))
    assert found["gain"][best] > found["error"][best]
    assert found["score"][best] >= found["score"].max() - 4 * found["error"].max()
    balanced = np.mean([np.mean(model.predict(X[y == c]) == c) for c in (0, 1)])
    assert found["score"][best] == pytest.approx(balanced, abs=0.01)


def test_a_choice_of_the_sample_that_all_rows_refute_is_withdrawn():
    """A candidate that predicts worse than the ordinary fit on unseen rows is not taken, whoever chose it."""
    X, y = table()
    fitted = AoRRClassifier(0.1, 1.0, C=0.05, random_state=0).fit(X, y)
    W = np.column_stack([fitted.coef_, fitted.intercept_])
    model = Model("logistic", 1, fit_intercept=True, dtype=np.float64, classes=np.arange(2))
    sampling = Sampling(0, 2**61, True, 0)
    ordinary = Candidate(0.0, 0.05, W)
    for sign, taken in ((-1.0, 0), (1.0, 1)):
        better = Candidate(0.1 * N, 0.05, sign * W)
        poor = ordinary if sign < 0 else Candidate(0.0, 0.05, -W)
        assert confirmed(sharded(X, y), model, sampling, [poor, better], 1.0, lambda kind: None)[0] == taken


def test_the_cut_of_a_regression_is_confirmed_too():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, D))
    y = X @ np.arange(1.0, D + 1) + 0.3 * rng.normal(size=N)
    y[: N // 10] += 50
    model = AoRRRegressor(random_state=0).fit(sharded(X, y))
    assert 0.05 * N < model.m_ < 0.2 * N
    assert model.confirmation_["gain"][1] > 0


def test_class_weight_is_a_weight_per_class():
    X, y = table()
    by_class = AoRRClassifier(0.1, 1.0, class_weight={0: 1, 1: 2}, **TIGHT).fit(sharded(X, y))
    by_row = AoRRClassifier(0.1, 1.0, **TIGHT).fit(sharded(X, y, np.where(y == 1, 2.0, 1.0)))
    np.testing.assert_allclose(by_class.coef_, by_row.coef_, atol=1e-9)


def test_a_range_may_be_given_as_one_object_and_labels_may_be_text():
    X, y = table()
    names = np.array(["no", "yes"])[y]
    model = AoRRClassifier(RankedRange.trimmed(0.1), C=0.05, random_state=0).fit(sharded(X, names))
    assert model.classes_.tolist() == ["no", "yes"]
    assert set(model.predict(X[:10])) <= {"no", "yes"}


def test_where_nothing_beats_zero_the_fit_says_so():
    X, y = table()
    with pytest.warns(ConvergenceWarning, match="k is too small for the number of errors"):
        model = AoRRClassifier(0, 0.02, C=0.05, random_state=0).fit(sharded(X, y))
    assert not model.coef_.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "absolute"}, "loss"),
        ({"aggregate": "per-class"}, "needs aggregate=None"),
        ({"k": "adaptive"}, "got k='adaptive'"),
    ],
)
def test_what_shards_cannot_do_is_said(change, message):
    X, y = table()
    with pytest.raises(ValueError, match=message):
        AoRRClassifier(**{"m": 0.1, "k": 1.0, **change}).fit(sharded(X, y))


def test_targets_beside_shards_are_an_error():
    X, y = table()
    with pytest.raises(TypeError, match="already contains the target and the weights"):
        AoRRClassifier(0.1, 1.0).fit(sharded(X, y), y)


def broken(what):
    X, y = table()
    w = np.ones(N)
    if what == "nan":
        X[12_345, 3] = np.nan
    elif what == "infinite target":
        y = y.astype(float)
        y[17] = np.inf
    elif what == "negative weight":
        w[9_500] = -1
    elif what == "one class":
        y[:] = 1
    elif what == "one class with weight":
        w[y == 0] = 0
    return X, y, w


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nan", r"1 NaN or infinite in chunk 3, the first in column 3 of row 12345"),
        ("infinite target", r"target must be finite, got NaN or infinity in chunk 0, the first in row 17"),
        ("negative weight", r"got -1.0 in chunk 3, row 9500"),
        ("one class", "needs at least two classes with positive weight"),
        ("one class with weight", "needs at least two classes with positive weight"),
    ],
)
def test_wrong_data_are_named_by_chunk_column_and_row(what, message):
    with pytest.raises(ValueError, match=message):
        AoRRClassifier(0.1, 1.0).fit(sharded(*broken(what)))


def test_no_rows_and_chunks_that_differ_are_errors():
    with pytest.raises(ValueError, match="at least one row, got none"):
        AoRRClassifier(0.1, 1.0).fit(ShardList([]))
    X, y = table()
    with pytest.raises(ValueError, match=r"same number of columns, got \[4, 5\]"):
        AoRRClassifier(0.1, 1.0).fit(ShardList(array_shards([X[:9_000], X[9_000:, :4]], [y[:9_000], y[9_000:]])))
    with pytest.raises(ValueError, match=r"same number of rows, got \[3, 4\] in chunk 0"):
        array_shards([X[:3]], [y[:4]])


def test_a_number_as_the_target_of_a_classifier_is_an_error():
    X, _ = table()
    with pytest.raises(ValueError, match=r"at most 10000 classes, got \d+ in all; the target seems to be a number"):
        AoRRClassifier(0.1, 1.0).fit(sharded(X, X[:, 0]))
