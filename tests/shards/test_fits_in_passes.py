"""Fits in passes by chunks, Dask and tensors: the minimum of the fit in memory, repeatable, errors that name things."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from chunked_rows import WAYS, D, N, fit_by, in_chunks, numeric, table, weights
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from rankrange import AoRRClassifier, AoRRRegressor, RankedRange
from rankrange.core.losses import Logistic
from rankrange.core.objective import Design, Objective
from rankrange.shards import ArrayRows, Chunk, LazyRows
from rankrange.shards.evaluation import FullData, Passes
from rankrange.shards.kernels import MASS, Model, Sampling, hashed, tangent_sums
from rankrange.shards.rows import given

TIGHT = {"C": 0.002, "tol": 1e-13, "random_state": 0, "max_iter": 200}
in_every_way = pytest.mark.parametrize("way", WAYS)


def quietly(fit, *arguments):
    """The last digits of a tolerance of 1e-13 may be out of reach."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(*arguments)


def kept_losses(model, X, y):
    """The losses of the ranks m+1 to k, from their definition."""
    Z = X @ model.coef_.T + model.intercept_
    Z = np.column_stack([0 * Z, Z]) if Z.shape[1] == 1 else Z
    s = np.logaddexp.reduce(Z, axis=1) - Z[np.arange(len(y)), y]
    return np.sort(s)[::-1][int(model.m_) : int(model.k_)]


@pytest.mark.parametrize(
    ("way", "classes", "m", "k", "weight"),
    [
        *(("chunks", 2, 0.1, k, w) for k in (1.0, 0.8) for w in ("none", "whole", "parts")),
        *(("chunks", 3, 0.1, 1.0, "parts"), ("chunks", 3, 0.1, 0.8, "whole"), ("chunks", 3, 0, 1.0, "none")),
        *(("chunks", 2, 0, 1.0, "none"), ("chunks", 3, 0, 0.9, "none")),
        *(("dask", 2, 0.1, 0.8, "whole"), ("dask", 3, 0.1, 1.0, "none"), ("dask", 2, 0, 0.9, "none")),
        *(("tensors", 2, 0.1, 0.8, "none"), ("tensors", 3, 0.1, 1.0, "whole"), ("tensors", 2, 0, 0.9, "none")),
    ],
)
def test_the_minimum_is_that_of_the_fit_in_memory(way, classes, m, k, weight):
    """Coefficients to 1e-6, or to what the certificates prove: F grows by ||change||^2 / (2 C) around its minimum.

    In memory several scores with a lower cut take minutes to reach the tight tolerance, so that one is asked for less.
    """
    # With other seeds and three classes, fits that keep the far rows are lower by .2%, and a sample may not show it.
    X, y = table(classes, seed=3, far=0.1 if m or k == 1.0 else 0.0)
    w = weights(weight)
    if w is not None and m:  # the mass of the far rows, so that the upper cut falls into the gap below them
        far = np.linalg.norm(X, axis=1) > 7
        m = float(w[far].sum()) / float(w.sum())
    loose = k < 1.0 and classes > 2
    inside = quietly(AoRRClassifier(m, k, **(TIGHT | ({"tol": 1e-8} if loose else {}))).fit, X, y, w)
    outside = quietly(fit_by, way, AoRRClassifier(m, k, **TIGHT), X, y, w)
    proved = sum(np.sqrt(2 * model.objective_ * model.certificate_) for model in (inside, outside))
    np.testing.assert_allclose(outside.coef_, inside.coef_, atol=max(1e-6, proved) if loose else 1e-6)
    if not loose:
        shift = (classes > 2) * (outside.intercept_ - inside.intercept_).mean()
        np.testing.assert_allclose(outside.intercept_ - shift, inside.intercept_, atol=1e-6)
    assert outside.objective_ <= inside.objective_ * (1 + 1e-9)
    assert outside.certificate_ < 1e-8
    assert (outside.m_, outside.k_) == pytest.approx((inside.m_, inside.k_), rel=1e-12)
    np.testing.assert_array_equal(np.asarray(outside.dropped_), inside.dropped_)
    assert outside.lam_ == pytest.approx(inside.lam_, abs=1e-5)
    if weight != "parts":  # there the cut falls between two rows by construction, and rounding decides for one of them
        assert outside.lam_hat_ == pytest.approx(inside.lam_hat_, abs=1e-5)
    if w is None:
        defined = outside.C_ * kept_losses(outside, X, y).sum() + (outside.coef_**2).sum() / 2
        assert outside.objective_ == pytest.approx(defined, rel=1e-9)


@in_every_way
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_regression_equals_the_fit_in_memory(way, loss):
    X, y = numeric()
    model = AoRRRegressor(0.1, 0.9, loss=loss, **{**TIGHT, "tol": 1e-11})
    inside, outside = quietly(clone(model).fit, X, y), quietly(fit_by, way, model, X, y)
    np.testing.assert_allclose(outside.coef_, inside.coef_, atol=1e-6)
    assert outside.intercept_ == pytest.approx(inside.intercept_, abs=1e-6)
    assert np.asarray(outside.dropped_)[: N // 10].all()


@in_every_way
def test_a_table_no_larger_than_its_sample_gets_the_fit_in_memory(way):
    X, y = table(n=2_000)
    y, w = np.array(["no", "yes"])[y] if way != "dask" else y, weights("whole", 2_000)
    model = AoRRClassifier(0.1, 0.9, random_state=0)
    outside, inside = fit_by(way, clone(model), X, y, w), model.fit(X, y, w)
    np.testing.assert_array_equal(outside.coef_, inside.coef_)
    np.testing.assert_array_equal(np.asarray(outside.dropped_), inside.dropped_)
    np.testing.assert_array_equal(outside.classes_, inside.classes_)
    assert outside.n_passes_ == 1


@in_every_way
@pytest.mark.parametrize("k", [1.0, 0.8])
def test_rows_that_tie_at_a_cut_share_it(way, k):
    """Eight different rows, thousands of times: far more ties at each cut than rows that may be collected."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (9_000, 3)).astype(np.float32)
    y = (X @ [1.0, -1.0, 0.5] + 0.7 * rng.logistic(size=len(X)) > 0).astype(int)
    model = fit_by(way, AoRRClassifier(0.1, k, random_state=0), X, y, sample_rows=1_000)
    assert model.objective_ == pytest.approx(kept_losses(model, X, y).sum() + (model.coef_**2).sum() / 2, rel=1e-6)
    assert model.certificate_ <= 1e-6
    assert np.asarray(model.dropped_).sum() <= 900


@in_every_way
@pytest.mark.parametrize("C", [0.05, "auto"])
def test_m_and_C_are_chosen_on_the_sample(way, C):
    X, y = table()
    model = fit_by(way, AoRRClassifier(C=C, random_state=0), X, y)
    assert model.m_ > 0.05 * N
    near = np.linalg.norm(X, axis=1) < 7
    ordinary = AoRRClassifier(0, 1.0, C=0.05).fit(X, y)
    assert model.score(X[near], y[near]) > ordinary.score(X[near], y[near]) + 0.02
    assert model.noise_interval_[0] <= model.noise_estimate_ <= model.noise_interval_[1]
    assert 0 < model.temperature_ <= 1
    np.testing.assert_allclose(model.predict_proba(X[:100]).sum(axis=1), 1.0)


@in_every_way
def test_the_cut_of_a_regression_is_chosen_too(way):
    X, y = numeric()
    assert 0.05 * N < fit_by(way, AoRRRegressor(random_state=0), X, y).m_ < 0.2 * N
    assert fit_by(way, AoRRRegressor("half", 1.0, random_state=0), X, y).m_ == N - (N + D + 2) // 2


@in_every_way
def test_class_weights_multiply_the_weights_of_rows(way):
    X, y = table()
    w = weights("parts")
    model = AoRRClassifier(0.1, 1.0, C=0.002, random_state=0)
    by_class = fit_by(way, clone(model).set_params(class_weight={0: 1, 1: 2}), X, y, w)
    by_row = fit_by(way, clone(model), X, y, np.where(y == 1, 2.0, 1.0) * w)
    assert by_class.m_ == pytest.approx(by_row.m_, rel=1e-12)
    assert by_class.objective_ == pytest.approx(by_row.objective_, rel=1e-5)  # the cut is in no gap: many minima
    balanced = clone(model).set_params(m=0, class_weight="balanced")
    inside, outside = clone(balanced).fit(X, y, w), fit_by(way, balanced, X, y, w)
    assert outside.objective_ == pytest.approx(inside.objective_, rel=1e-6)


@pytest.mark.parametrize(("m", "k"), [(0.1, 1.0), (0.1, 0.9), (0, 1.0)])
@pytest.mark.parametrize("classes", [2, 3])
def test_the_rounding_of_float32_neither_ends_a_fit_above_its_tolerance_nor_takes_many_passes(classes, m, k):
    passes = []
    for seed in range(3):
        X, y = table(classes, np.float32, seed=seed)
        X = sp.csr_array(np.where(np.abs(X) < 0.5, 0, X).astype(np.float32)) if seed == 2 else X
        fit = AoRRClassifier(m, k, C=0.05, random_state=seed).fit(in_chunks(X, y, weights("parts")))
        assert fit.certificate_ <= fit.tol
        assert fit.coef_.dtype == np.float32
        passes.append(fit.n_passes_)
    assert np.median(passes) <= 12


def test_the_same_chunks_give_the_same_bits_and_others_the_same_minimum():
    X, y = table(dtype=np.float32)
    model = AoRRClassifier(0.12, 0.9, C=0.05, random_state=0)
    first, *fits = [fit_by(way, clone(model), X, y) for way in ("chunks", "chunks", "dask")]
    for again in fits:
        for name in ("coef_", "intercept_", "objective_", "certificate_", "lam_", "lam_hat_", "n_passes_"):
            np.testing.assert_array_equal(getattr(again, name), getattr(first, name), err_msg=name)
        np.testing.assert_array_equal(np.asarray(again.dropped_), np.asarray(first.dropped_))
    for edges in ((0, N), (*range(0, N, 1_237), N)):
        other = clone(model).fit(in_chunks(X, y, edges=edges))
        assert other.objective_ == pytest.approx(first.objective_, rel=2 * model.tol)
        assert (np.asarray(other.dropped_) != np.asarray(first.dropped_)).mean() < 1e-3


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


@pytest.mark.parametrize("r", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_tangent_sums_are_the_sums_of_their_definition(r, sparse):
    rng = np.random.default_rng(0)
    n = 20_000  # more than two blocks
    X, Z, u = (rng.normal(size=shape) for shape in ((n, D), (r, n), (r, n)))
    q, s = rng.random((2, n))
    y = rng.integers(0, 3, n)
    groups = [u[0] <= 0, u[0] > 0] if r == 1 else [y == c for c in range(3)]
    found = tangent_sums(sp.csr_array(X) if sparse else X, y, s, u * q, Z, q)
    for row, group in zip(found, groups, strict=True):
        tangents = s - (u * Z).sum(axis=0)
        heads = [(q * value)[group].sum() for value in (np.ones(n), s, tangents)]
        slopes = (u * q)[:, group] @ np.column_stack([X, np.ones(n)])[group]
        np.testing.assert_allclose(row, [*heads, *slopes.ravel()], rtol=1e-10)


def test_brackets_that_would_hold_too_many_rows_are_narrowed_by_counts():
    X, y = table()
    model, few = AoRRClassifier(0.12, 0.9, C=0.05, tol=1e-9, random_state=0), in_chunks(X, y)
    few.collected_bytes = 1  # at least a thousand rows are collected
    plain, narrow = clone(model).fit(in_chunks(X, y)), clone(model).fit(few)
    assert narrow.n_passes_ > plain.n_passes_
    np.testing.assert_allclose(narrow.coef_, plain.coef_, atol=1e-4)


def test_a_pass_sends_no_more_bytes_of_rows_than_allowed(monkeypatch):
    X, y = table()
    rows, sent = in_chunks(X, y), []
    rows.collected_bytes = 200_000  # the brackets of both cuts together hold more
    reduce = rows.reduce

    def recorded(kernel, message):
        found = reduce(kernel, message)
        sent.append(sum(part.nbytes for near in getattr(found, "near", ()) for part in near))
        return found

    monkeypatch.setattr(rows, "reduce", recorded)
    AoRRClassifier(0.12, 0.9, C=0.05, random_state=0).fit(rows)
    assert 50_000 < max(sent) <= 200_000


def test_the_unit_of_weights_changes_nothing():
    X, y = table()
    fits = [
        AoRRClassifier(0.12, 0.9, C=0.05 / unit, random_state=0).fit(in_chunks(X, y, np.full(N, unit)))
        for unit in (1.0, 1024.0)
    ]
    np.testing.assert_allclose(fits[1].coef_, fits[0].coef_, rtol=1e-9)
    assert fits[1].n_passes_ == fits[0].n_passes_


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


@pytest.mark.parametrize(("m", "k"), [(3_000, N), (0, 12_000), (3_000, 12_000)])
def test_the_curvature_of_a_step_counts_the_rows_that_cross_the_cuts(m, k):
    """It is the change of the gradient along a step, per length: by finite differences over thousands of rows."""
    X, y = table()
    W, step = np.random.default_rng(1).normal(scale=0.5, size=(2, 1, D + 1))
    sample = Objective(Design(X, True), 2.0 * y - 1.0, Logistic(), 1e9, 1)
    model = Model("logistic", 1, fit_intercept=True, dtype="float64", classes=np.arange(2))
    data = FullData(Passes(in_chunks(X, y)), model, sample, Chunk(0, X, y), float(N), m, k)
    ends = [data.evaluate_at(W + length * step) for length in (-0.02, 0.0, 0.02)]
    bent = np.vdot(step, ends[2].gradient - ends[0].gradient) / 0.04
    of_kept = np.vdot(step, data.hessian(ends[1]) @ step.ravel())
    crossed = np.vdot(step, data.crossing(ends[1]) @ step.ravel())
    losses = np.logaddexp(0.0, -(2 * y - 1) * (X @ W[0, :-1] + W[0, -1]))
    between = (losses > ends[1].between.low) & (losses < ends[1].between.high)
    assert ends[1].certain[:, MASS].sum() == between.sum() > 0.9 * (k - m)
    assert abs(crossed) > 0.2 * of_kept
    assert bent == pytest.approx(of_kept - crossed, abs=0.1 * abs(crossed))


def test_a_range_may_be_given_as_one_object_and_labels_may_be_text():
    X, y = table()
    names = np.array(["no", "yes"])[y]
    rows = in_chunks(X, names, columns=list("abcde"))
    model = AoRRClassifier(RankedRange.trimmed(0.1), C=0.05, random_state=0).fit(rows)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.feature_names_in_.tolist() == list("abcde")
    with pytest.warns(UserWarning, match="valid feature names"):
        np.testing.assert_array_equal(model.predict(rows), model.predict(X))
    assert model.score(rows) == np.mean(model.predict(rows) == names)


@in_every_way
def test_where_nothing_beats_zero_the_fit_says_so(way):
    X, y = table()
    with pytest.warns(ConvergenceWarning, match="k is too small for the number of errors"):
        model = fit_by(way, AoRRClassifier(0, 0.02, C=0.05, random_state=0), X, y)
    assert not model.coef_.any()
    assert model.lam_ == pytest.approx(np.log(2.0))


def test_most_of_a_class_that_is_dropped_is_a_warning():
    X, y = table(far=0.0)
    y[::50] = 2  # a rare class that nothing predicts
    with pytest.warns(UserWarning, match="of the rows of class 2 were dropped"):
        AoRRClassifier(0.05, 1.0, C=0.05, random_state=0).fit(in_chunks(X, y))


@in_every_way
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": "hinge"}, "needs one of the losses logistic, got loss='hinge'"),
        ({"aggregate": "per-class"}, "needs aggregate=None"),
        ({"l1_ratio": 1.0}, "needs l1_ratio=0.0, got l1_ratio=1.0"),
        ({"k": "adaptive"}, "got k='adaptive'"),
        ({"C": np.inf}, "needs a finite C"),
    ],
)
def test_what_needs_rows_in_memory_is_said(way, change, message):
    X, y = table(n=60)
    with pytest.raises(ValueError, match=message):
        fit_by(way, AoRRClassifier(**{"m": 0.1, "k": 1.0, **change}), X, y)
    with pytest.raises(ValueError, match="needs step=None"):
        fit_by(way, AoRRRegressor(0.1, 1.0, step="mm"), X, X[:, 0])


def test_targets_beside_rows_that_have_them_are_an_error():
    X, y = table(n=60)
    with pytest.raises(TypeError, match="already contains the target and the weights"):
        AoRRClassifier(0.1, 1.0).fit(in_chunks(X, y), y)
    with pytest.raises(ValueError, match="got groups as well"):
        AoRRClassifier(0.1, 1.0).fit(in_chunks(X, y), groups=y)


@in_every_way
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, w: (X + np.where(np.arange(N) == 12_345, np.nan, 0.0)[:, None], y, w),
         r"5 NaN or infinite in .*, the first in column 0 of row 12345"),
        (lambda X, y, w: (X, y + np.where(np.arange(N) == 17, np.inf, 0.0), w), "got NaN or infinity in .* in row 17"),
        (lambda X, y, w: (X, y, w - 2.0 * (np.arange(N) == 9_500)), r"got -1.0 in .*, row 9500"),
        (lambda X, y, w: (X, y, w * np.nan), r"weights must be finite and not negative, got nan in .*, row 0"),
        (lambda X, y, w: (X, 0 * y, w), "needs at least two classes with positive weight"),
        (lambda X, y, w: (X, y, w * (y == 1)), "needs at least two classes with positive weight"),
        (lambda X, y, w: (X, X[:, 0], w), r"at most 10000 classes, got \d+ or more; the target seems to be a number"),
    ],
)  # fmt: skip
def test_wrong_data_are_named_by_chunk_column_and_row(way, change, message):
    with pytest.raises(ValueError, match=message):
        fit_by(way, AoRRClassifier(0.1, 1.0), *change(*table(), np.ones(N)))


def test_no_rows_and_chunks_that_differ_are_errors():
    with pytest.raises(ValueError, match="at least one row, got none"):
        AoRRClassifier(0.1, 1.0).fit(ArrayRows([], []))
    X, y = table()
    with pytest.raises(ValueError, match=r"same number of columns, got \[4, 5\]"):
        AoRRClassifier(0.1, 1.0).fit(ArrayRows([X[:9_000], X[9_000:, :4]], [y[:9_000], y[9_000:]]))
    with pytest.raises(ValueError, match=r"same number of rows, got \[3, 4\] in chunk 0"):
        ArrayRows([X[:3]], [y[:4]])


@pytest.mark.parametrize("edges", [(0, 50), (0, 7, 7, 30, 50), (0, 1, 49, 50)])
def test_lazy_values_have_the_places_of_one_array(edges):
    values = np.random.default_rng(0).random(50) < 0.4
    parts = [np.zeros(b - a) for a, b in pairwise(edges)]
    lazy = LazyRows(ArrayRows([part[:, None] for part in parts], parts), given, values, bool)
    assert len(lazy) == 50
    np.testing.assert_array_equal(np.asarray(lazy), values)
    np.testing.assert_array_equal(lazy.indices(), np.flatnonzero(values))


@pytest.mark.parametrize("weighted", [(True, False), (False, True)])
def test_chunks_without_weights_count_once_beside_those_with_weights(weighted):
    X, y = table()
    sizes = 9_000, N - 9_000
    parts = [np.full(size, 2.0) if some else None for size, some in zip(sizes, weighted, strict=True)]
    mixed = AoRRClassifier(0, 1.0, **TIGHT).fit(ArrayRows([X[:9_000], X[9_000:]], [y[:9_000], y[9_000:]], parts))
    whole = np.concatenate([np.ones(size) if w is None else w for size, w in zip(sizes, parts, strict=True)])
    np.testing.assert_allclose(mixed.coef_, AoRRClassifier(0, 1.0, **TIGHT).fit(X, y, whole).coef_, atol=1e-8)


@pytest.mark.filterwarnings("ignore:.*rows of class 1 were dropped")
@pytest.mark.parametrize("seed", range(3))
def test_the_search_of_the_sample_keeps_a_rare_class_that_m_could_take(seed):
    rng = np.random.default_rng(seed)
    n, d = 60_000, 10
    X, y = rng.normal(size=(n, d)), (rng.random(n) < 0.004).astype(int)
    X[:, 0] += 3 * y
    model = AoRRClassifier(m=0.003, random_state=0)
    scanned, whole = quietly(model.fit, in_chunks(X, y, sample_rows=30_000)).objective_, model.fit(X, y).objective_
    assert scanned < 1.5 * whole, (scanned, whole)
