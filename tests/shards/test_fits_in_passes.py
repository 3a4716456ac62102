"""Fits in passes over chunks: the same minimum as in memory, repeatable, errors that name things."""

import concurrent.futures
import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from chunked_rows import EDGES, D, N, in_chunks, table, weights
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from rankrange import AoRRClassifier, AoRRRegressor, RankedRange
from rankrange.core.losses import LOSSES, Logistic
from rankrange.core.objective import Design, Objective
from rankrange.core.threads import one_thread
from rankrange.shards import ArrayRows, Chunk, LazyRows
from rankrange.shards.evaluation import FullData, Passes
from rankrange.shards.kernels import LOSSES as KERNEL_LOSSES
from rankrange.shards.kernels import Model, Near, Sampling, _without_repetition, describe, hashed, tangent_sums
from rankrange.shards.rows import added

TIGHT = {"C": 0.002, "tol": 1e-13, "random_state": 0, "max_iter": 200}


def both(m, k, X, y, w):
    """The fit in memory and the one in passes; the last digits of a tolerance of 1e-13 may be out of reach of either.

    In memory several scores with a lower cut take minutes to get there, so that one is asked for less.
    """
    settings = TIGHT if k == 1.0 or y.max() == 1 else {**TIGHT, "tol": 1e-8}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        inside = AoRRClassifier(m, k, **settings).fit(X, y, w)
        return inside, AoRRClassifier(m, k, **TIGHT).fit(in_chunks(X, y, w))


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
    outside = AoRRClassifier(0, 1.0, **{**TIGHT, "C": 1.0}).fit(in_chunks(X, y))
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
        inside.fit(X, y), outside.fit(in_chunks(X, y))
    np.testing.assert_allclose(outside.coef_, inside.coef_, atol=1e-6)
    assert outside.intercept_ == pytest.approx(inside.intercept_, abs=1e-6)
    assert np.asarray(outside.dropped_)[: N // 10].all()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_table_no_larger_than_its_sample_gets_the_fit_in_memory(weighted):
    X, y = table(n=2_000)
    w = weights("whole", 2_000) if weighted else None
    names = [f"x{j}" for j in range(D)]
    settings = {"m": 0.1, "k": 0.9, "random_state": 0}
    outside = AoRRClassifier(**settings).fit(in_chunks(X, y, w, (0, 700, 2_000), columns=names))
    inside = AoRRClassifier(**settings).fit(X, y, w)
    np.testing.assert_array_equal(outside.coef_, inside.coef_)
    np.testing.assert_array_equal(np.asarray(outside.dropped_), inside.dropped_)
    assert outside.feature_names_in_.tolist() == names
    assert outside.n_passes_ == 1


@pytest.mark.parametrize(("m", "k"), [(0.1, 1.0), (0.1, 0.9), (0, 1.0)])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_rounding_of_float32_neither_ends_a_fit_above_its_tolerance_nor_takes_many_passes(classes, m, k):
    passes = []
    for seed in range(3):
        X, y = table(classes, np.float32, seed=seed)
        X = sp.csr_array(np.where(np.abs(X) < 0.5, 0, X).astype(np.float32)) if seed == 2 else X
        fit = AoRRClassifier(m, k, C=0.05, random_state=seed).fit(in_chunks(X, y, weights("parts")))
        assert fit.certificate_ <= fit.tol
        passes.append(fit.n_passes_)
    assert np.median(passes) <= 12


class InThreads(ArrayRows):
    """Another engine: only `reduce` and `each` say who computes."""

    def each(self, kernel, message):
        with one_thread(), concurrent.futures.ThreadPoolExecutor(2) as pool:
            yield from pool.map(kernel, self.chunks(), [message] * len(self._parts))

    def reduce(self, kernel, message):
        return added(self.each(kernel, message))


def test_results_are_repeatable_and_those_of_any_engine_that_adds_up_in_order():
    X, y = table(dtype=np.float32)
    rows = in_chunks(X, y)
    others = InThreads([chunk.X for chunk in rows.chunks()], [chunk.y for chunk in rows.chunks()])
    others.sample_rows = rows.sample_rows
    fits = [AoRRClassifier(0.12, 0.9, C=0.05, random_state=0).fit(source) for source in (rows, rows, others)]
    for model in fits[1:]:
        for name in ("coef_", "intercept_", "objective_", "certificate_", "lam_", "lam_hat_", "n_passes_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(fits[0], name), err_msg=name)
        np.testing.assert_array_equal(np.asarray(model.dropped_), np.asarray(fits[0].dropped_))


@pytest.mark.parametrize("edges", [(0, N), (*range(0, N, 1_237), N)])
def test_other_chunks_give_the_same_minimum_of_the_same_sample(edges):
    X, y = table(3)
    model = AoRRClassifier(0.12, 0.9, **{**TIGHT, "tol": 1e-9})
    one, other = (clone(model).fit(in_chunks(X, y, edges=of_chunks)) for of_chunks in (EDGES, edges))
    assert other.objective_ == pytest.approx(one.objective_, rel=2e-9)
    np.testing.assert_array_equal(np.asarray(other.dropped_), np.asarray(one.dropped_))


def test_the_sample_has_one_row_of_each_window_whatever_the_chunks():
    sampling = Sampling(7, 10, True)
    whole = sampling.numbers(0, 100_003)
    np.testing.assert_array_equal(whole[:10_000] // 10, np.arange(10_000))
    parts = [sampling.numbers(a, b - a) for a, b in ((0, 1), (1, 40_004), (40_004, 40_004), (40_004, 100_003))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    places = np.bincount(whole[:10_000] % 10, minlength=10)
    assert np.abs(places - 1_000).max() < 6 * np.sqrt(900)
    assert len(np.unique(hashed(7, np.arange(100_000)))) == 100_000
    np.testing.assert_array_equal(Sampling(7, 1, True).numbers(5, 9), np.arange(5, 14))


def test_rows_of_no_weight_are_counted_but_have_no_mass():
    X, y = table(n=1_500)
    weight = np.where(np.arange(1_500) % 3 == 0, 0.0, 2.0)
    found = in_chunks(X, y, weight, (0, 300, 300, 1_500)).reduce(describe, Sampling(7, 4, True))
    assert found.n == 1_500
    assert found.mass == weight.sum()
    counts = {label: list(counts) for label, counts in found.labels[0].items()}
    assert counts == {c: [int((y == c).sum()), int(((y == c) & (weight > 0)).sum())] for c in (0, 1)}


@pytest.mark.parametrize("loss", list(KERNEL_LOSSES))
def test_losses_and_slopes_are_those_of_the_definitions(loss):
    rng = np.random.default_rng(0)
    r = 4 if loss == "softmax" else 1
    Z = np.concatenate([10.0 * rng.normal(size=(r, 400)), 800.0 * rng.normal(size=(r, 10))], axis=1)
    y = rng.integers(0, r, 410) if r > 1 else np.sign(rng.normal(size=410)) * (1.0 if loss == "logistic" else 3.0)
    s, slopes = KERNEL_LOSSES[loss][0](y, Z)
    expected, expected_slopes = LOSSES[loss]().value_and_derivative(y, Z.T if r > 1 else Z[0])
    np.testing.assert_allclose(s, expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slopes, expected_slopes.T if r > 1 else expected_slopes[None], rtol=1e-12, atol=1e-14)
    if r == 1:
        curvature = LOSSES[loss]().curvature(y, Z[0])
        np.testing.assert_allclose(KERNEL_LOSSES[loss][1](np.abs(slopes[0])), curvature, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("r", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_tangent_sums_are_the_sums_of_their_definition(r, sparse):
    rng = np.random.default_rng(0)
    n = 20_000  # more than two blocks
    X, Z, u, q, s = (
        rng.normal(size=(n, D)),
        rng.normal(size=(r, n)),
        rng.normal(size=(r, n)),
        rng.random(n),
        rng.random(n),
    )
    y = rng.integers(0, 3, n)
    groups = [u[0] <= 0, u[0] > 0] if r == 1 else [y == c for c in range(3)]
    found = tangent_sums(sp.csr_array(X) if sparse else X, y, s, u * q, Z, q)
    for row, group in zip(found, groups, strict=True):
        tangents = s - (u * Z).sum(axis=0)
        heads = [(q * value)[group].sum() for value in (np.ones(n), s, tangents)]
        slopes = (u * q)[:, group] @ np.column_stack([X, np.ones(n)])[group]
        np.testing.assert_allclose(row, [*heads, *slopes.ravel()], rtol=1e-10)


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
        outside = AoRRClassifier(0.05, 0.9, C=0.05, random_state=0).fit(in_chunks(X, y))
    assert outside.certificate_ <= 1e-6
    assert outside.objective_ <= inside.objective_ * 1.001  # the two samples may lead to different minima


def test_equal_rows_are_merged_with_their_common_mass():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 4, 400)
    mass = rng.uniform(0.5, 2.0, 400)
    X = np.stack([3.0 - values, values**2.0], axis=1)
    rows = Near(X, np.ones(400), values.astype(float), -values[None] * 1.0, 2.0 * values[None], mass)
    merged = _without_repetition(rows)
    assert len(merged.y) == 4
    for i, value in enumerate(merged.losses):
        assert merged.mass[i] == pytest.approx(mass[values == value].sum())
        np.testing.assert_array_equal(merged.X[i], [3.0 - value, value**2])
        assert (merged.slopes[0, i], merged.scores[0, i]) == (-value, 2.0 * value)


def test_brackets_that_would_hold_too_many_rows_are_narrowed_by_counts():
    X, y = table()
    plain = AoRRClassifier(0.12, 0.9, C=0.05, tol=1e-9, random_state=0).fit(in_chunks(X, y))
    few = in_chunks(X, y)
    few.collected_bytes = 1  # at least a thousand rows are collected
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
    model = Model("logistic", 1, fit_intercept=True, dtype="float64", classes=np.arange(2))
    passes = Passes(in_chunks(X, y))
    data = FullData(passes, model, sample, Chunk(0, X[easy], y[easy]), float(N), 3_000, 27_000)
    iterate = data.evaluate_at(W)
    assert passes.count > 1
    ranked = -np.sort(-losses)
    assert (iterate.upper.value, iterate.lower.value) == pytest.approx((ranked[2_999], ranked[26_999]))
    assert iterate.value == pytest.approx(ranked[3_000:27_000].mean() + sample.penalty(W))


@pytest.mark.parametrize("C", [0.05, "auto"])
def test_m_and_C_are_chosen_on_the_sample(C):
    X, y = table()
    model = AoRRClassifier(C=C, random_state=0).fit(in_chunks(X, y))
    assert model.m_ > 0.05 * N
    near = np.linalg.norm(X, axis=1) < 7
    ordinary = AoRRClassifier(0, 1.0, C=0.05).fit(X, y)
    assert model.score(X[near], y[near]) > ordinary.score(X[near], y[near]) + 0.02
    assert model.noise_interval_[0] <= model.noise_estimate_ <= model.noise_interval_[1]
    assert 0 < model.temperature_ <= 1
    np.testing.assert_allclose(model.predict_proba(X[:100]).sum(axis=1), 1.0)


def test_the_cut_of_a_regression_is_chosen_too():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, D))
    y = X @ np.arange(1.0, D + 1) + 0.3 * rng.normal(size=N)
    y[: N // 10] += 50
    assert 0.05 * N < AoRRRegressor(random_state=0).fit(in_chunks(X, y)).m_ < 0.2 * N
    half = AoRRRegressor("half", 1.0, random_state=0).fit(in_chunks(X, y))
    assert half.m_ == N - (N + D + 2) // 2


def test_class_weight_is_a_weight_per_class():
    X, y = table()
    by_class = AoRRClassifier(0.1, 1.0, class_weight={0: 1, 1: 2}, **TIGHT).fit(in_chunks(X, y))
    by_row = AoRRClassifier(0.1, 1.0, **TIGHT).fit(in_chunks(X, y, np.where(y == 1, 2.0, 1.0)))
    np.testing.assert_allclose(by_class.coef_, by_row.coef_, atol=1e-9)


def test_a_range_may_be_given_as_one_object_and_labels_may_be_text():
    X, y = table()
    names = np.array(["no", "yes"])[y]
    rows = in_chunks(X, names)
    model = AoRRClassifier(RankedRange.trimmed(0.1), C=0.05, random_state=0).fit(rows)
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(model.predict(rows), model.predict(X))
    assert model.score(rows) == model.score(X, names)


def test_where_nothing_beats_zero_the_fit_says_so():
    X, y = table()
    with pytest.warns(ConvergenceWarning, match="k is too small for the number of errors"):
        model = AoRRClassifier(0, 0.02, C=0.05, random_state=0).fit(in_chunks(X, y))
    assert not model.coef_.any()


def test_most_of_a_class_that_is_dropped_is_a_warning():
    X, y = table(far=0.0)
    y[::50] = 2  # a rare class that nothing predicts
    with pytest.warns(UserWarning, match="of the rows of class 2 were dropped"):
        AoRRClassifier(0.05, 1.0, C=0.05, random_state=0).fit(in_chunks(X, y))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "hinge"}, "needs one of the losses logistic, got loss='hinge'"),
        ({"aggregate": "per-class"}, "needs aggregate=None"),
        ({"k": "adaptive"}, "got k='adaptive'"),
        ({"C": np.inf}, "finite"),
    ],
)
def test_what_needs_rows_in_memory_is_said(change, message):
    X, y = table()
    with pytest.raises(ValueError, match=message):
        AoRRClassifier(**{"m": 0.1, "k": 1.0, **change}).fit(in_chunks(X, y))


def test_targets_beside_rows_that_have_them_are_an_error():
    X, y = table()
    with pytest.raises(TypeError, match="already contains the target and the weights"):
        AoRRClassifier(0.1, 1.0).fit(in_chunks(X, y), y)
    with pytest.raises(ValueError, match="got groups as well"):
        AoRRClassifier(0.1, 1.0).fit(in_chunks(X, y), groups=y)


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
        AoRRClassifier(0.1, 1.0).fit(in_chunks(*broken(what)))


def test_no_rows_and_chunks_that_differ_are_errors():
    with pytest.raises(ValueError, match="at least one row, got none"):
        AoRRClassifier(0.1, 1.0).fit(ArrayRows([], []))
    X, y = table()
    with pytest.raises(ValueError, match=r"same number of columns, got \[4, 5\]"):
        AoRRClassifier(0.1, 1.0).fit(ArrayRows([X[:9_000], X[9_000:, :4]], [y[:9_000], y[9_000:]]))
    with pytest.raises(ValueError, match=r"same number of rows, got \[3, 4\] in chunk 0"):
        ArrayRows([X[:3]], [y[:4]])


def test_a_number_as_the_target_of_a_classifier_is_an_error():
    X, _ = table()
    with pytest.raises(ValueError, match=r"at most 10000 classes, got \d+ or more; the target seems to be a number"):
        AoRRClassifier(0.1, 1.0).fit(in_chunks(X, X[:, 0]))


class InParts(ArrayRows):
    """Rows whose values are known."""

    def __init__(self, parts):
        super().__init__([np.zeros((len(part), 1)) for part in parts], parts)

    def each(self, kernel, message):
        return iter([chunk.y for chunk in self.chunks()])


@pytest.mark.parametrize("edges", [(0, 50), (0, 7, 7, 30, 50), (0, 1, 49, 50)])
def test_lazy_values_have_the_places_of_one_array(edges):
    values = np.random.default_rng(0).random(50) < 0.4
    lazy = LazyRows(InParts([values[a:b] for a, b in pairwise(edges)]), describe, None, bool)
    assert len(lazy) == 50
    np.testing.assert_array_equal(np.asarray(lazy), values)
    np.testing.assert_array_equal(lazy.indices(), np.flatnonzero(values))


@pytest.mark.parametrize("weighted", [(True, True), (True, False), (False, True)])
def test_chunks_without_weights_count_once_beside_those_with_weights(weighted):
    X, y = table()
    sizes = 9_000, N - 9_000
    parts = [np.full(size, 2.0) if some else None for size, some in zip(sizes, weighted, strict=True)]
    mixed = AoRRClassifier(0, 1.0, **TIGHT).fit(ArrayRows([X[:9_000], X[9_000:]], [y[:9_000], y[9_000:]], parts))
    whole = np.concatenate([np.ones(size) if w is None else w for size, w in zip(sizes, parts, strict=True)])
    np.testing.assert_allclose(mixed.coef_, AoRRClassifier(0, 1.0, **TIGHT).fit(X, y, whole).coef_, atol=1e-8)
