"""The ranked range of an array against its definition, `sorted(values, reverse=True)[m:k]`."""

import itertools
import math
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankrange import RankedRange, ThresholdRange, range_weights, ranked_range, thresholds

EPS = np.finfo(float).eps
TINY = 5e-324  # the smallest subnormal
POOL = [0.0, -0.0, TINY, -TINY, 1e-310, -1e-310, 2.3e-308, 1.0, -1.0, 1.0 + EPS, 3.0, 1e16, -1e300, 1e300]


# --- The definitions ---


def weights_by_definition(values, m, k):
    """The part of the copies of each value that stands in ranks m+1..k."""
    ranked = sorted(values, reverse=True)
    kept, present = Counter(ranked[m:k]), Counter(ranked)
    return np.array([kept[v] / present[v] for v in values])


def thresholds_by_definition(values, m, k):
    ranked = sorted(values, reverse=True)
    return ranked[k - 1], ranked[m - 1] if m else math.inf


def assert_is_ranked_range(values, m, k):
    """Weights and cuts equal the definition to the last bit, the value to the rounding of a sum."""
    kept = sorted(values.tolist(), reverse=True)[m:k]
    slack = (len(values) + 4) * EPS * math.fsum(map(abs, kept)) + len(values) * TINY
    assert abs(ranked_range(values, m, k, reduction="sum") - math.fsum(kept)) <= slack
    assert abs(ranked_range(values, m, k) - math.fsum(kept) / (k - m)) <= slack
    np.testing.assert_array_equal(range_weights(values, m, k), weights_by_definition(values.tolist(), m, k))
    assert thresholds(values, m, k) == thresholds_by_definition(values.tolist(), m, k)


# --- Inputs ---

entries = st.one_of(st.sampled_from(POOL), st.integers(-3, 3).map(float), st.floats(-1e300, 1e300))
arrays = st.lists(entries, min_size=1, max_size=40).map(np.array)


@st.composite
def with_ranks(draw, values=arrays):
    array = draw(values)
    m = draw(st.integers(0, len(array) - 1))
    return array, m, draw(st.integers(m + 1, len(array)))


@st.composite
def long_arrays(draw):
    """Up to 10^4 values, from few distinct ones to all distinct."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, distinct = draw(st.integers(1, 10_000)), draw(st.sampled_from([1, 2, 3, 20, 10_000]))
    pool = np.r_[POOL, rng.normal(size=distinct)] if draw(st.booleans()) else rng.normal(size=distinct)
    return rng.choice(pool, size=n)


# --- Value, weights and thresholds ---


@given(with_ranks())
@settings(max_examples=500)
def test_value_weights_and_thresholds_are_the_definition(case):
    assert_is_ranked_range(*case)


@given(with_ranks(long_arrays()))
@settings(max_examples=60)
def test_value_weights_and_thresholds_of_up_to_ten_thousand_values(case):
    assert_is_ranked_range(*case)


@pytest.mark.parametrize("n", range(1, 7))
def test_every_pattern_of_ties_and_every_range_of_few_values(n):
    for values in itertools.combinations_with_replacement([-1.0, -0.0, 0.0, TINY], n):
        for m, k in itertools.combinations(range(n + 1), 2):
            assert_is_ranked_range(np.array(values), m, k)


# --- What follows from the definition ---


@given(with_ranks(long_arrays()))
@settings(max_examples=50)
def test_weights_lie_between_zero_and_one_and_sum_to_k_minus_m(case):
    values, m, k = case
    for array in (values, np.clip(values, -1e30, 1e30).astype(np.float32)):
        weights = range_weights(array, m, k)
        assert weights.dtype == array.dtype
        assert weights.min() >= 0
        assert weights.max() <= 1
        assert math.fsum(weights.tolist()) == pytest.approx(k - m, rel=2 * float(np.finfo(array.dtype).eps))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(200_000,), (2, 10_000)])
def test_weights_of_one_huge_tie_keep_their_digits(shape, dtype):
    # The difference of the two shares would lose as many digits as there are digits in the number of ties.
    n = shape[-1]
    for m, k, top in ((n // 2, n // 2 + 1, n), (n - 2, n, n - 1)):
        values = np.zeros(shape, dtype)
        values[..., :top] = 1
        weights = range_weights(values, m, k)
        sums = np.apply_along_axis(lambda row: math.fsum(row.tolist()), -1, weights)
        np.testing.assert_allclose(sums, k - m, rtol=2 * np.finfo(dtype).eps)


# --- Weights of the rows ---

counts = st.integers(0, 3)


@given(st.lists(st.tuples(entries, counts), min_size=1, max_size=25), st.data())
@settings(max_examples=300)
def test_weight_two_equals_the_row_twice(pairs, data):
    values, weight = (np.array(column) for column in zip(*pairs, strict=True))
    if weight.sum() == 0:
        return
    repeated = np.repeat(values, weight)
    m = data.draw(st.integers(0, len(repeated) - 1))
    k = data.draw(st.integers(m + 1, len(repeated)))
    expected = np.zeros(len(values))
    np.add.at(expected, np.repeat(np.arange(len(values)), weight), range_weights(repeated, m, k))
    np.testing.assert_allclose(range_weights(values, m, k, sample_weight=weight), expected, rtol=8 * EPS)
    assert thresholds(values, m, k, sample_weight=weight) == thresholds(repeated, m, k)
    slack = 50 * len(repeated) * EPS * math.fsum(abs(repeated)) + len(repeated) * TINY
    for reduction in ("mean", "sum"):
        weighted = ranked_range(values, m, k, sample_weight=weight, reduction=reduction)
        assert abs(weighted - ranked_range(repeated, m, k, reduction=reduction)) <= slack


def weights_by_mass(values, weight, m, k):
    """The overlap of [m, k] with the mass of each distinct value, counted from the top, shared by weight."""
    result, above = np.zeros(len(values)), 0.0
    for v in sorted(set(values.tolist()), reverse=True):
        mass = weight[values == v].sum()
        if mass:
            overlap = max(0.0, min(k, above + mass) - max(m, above))
            result[values == v] = weight[values == v] * overlap / mass
        above += mass
    return result


@given(st.lists(st.tuples(entries, st.integers(0, 16)), min_size=1, max_size=25), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=300)
def test_fractional_weights_are_mass(pairs, one, other):
    values, sixteenths = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    weight = sixteenths / 16  # sums of these are exact
    m, k = sorted((one, other))
    whole = (weight == np.floor(weight)).all()
    if weight.sum() == 0 or m == k or whole:
        return
    expected = weights_by_mass(values, weight, m * weight.sum(), k * weight.sum())
    found = range_weights(values, m, k, sample_weight=weight)
    np.testing.assert_allclose(found, expected, atol=1e-14 * weight.sum())
    assert math.fsum(found) == pytest.approx((k - m) * weight.sum(), abs=1e-14 * weight.sum())


def test_fractions_of_whole_weights_are_rounded_as_those_of_repeated_rows_are():
    values, weight = np.array([5.0, 4.0, 3.0]), np.array([2, 1, 4])
    assert ranked_range(values, 0.3, 0.8, sample_weight=weight) == ranked_range(np.repeat(values, weight), 0.3, 0.8)


def test_weights_may_differ_from_row_to_row():
    values = np.array([[5.0, 4.0, 3.0], [3.0, 4.0, 5.0]])
    weight = np.array([[1, 2, 1], [0, 1, 1]])
    np.testing.assert_array_equal(
        range_weights(values, 0.5, 1.0, sample_weight=weight), [[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]]
    )
    np.testing.assert_array_equal(ranked_range(values, 0.5, 1.0, sample_weight=weight), [3.5, 4.0])
    lam, lam_hat = thresholds(values, 0.5, 1.0, sample_weight=weight)
    np.testing.assert_array_equal(lam, [3.0, 4.0])
    np.testing.assert_array_equal(lam_hat, [4.0, 5.0])


# --- Axes, dtypes and containers ---


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("length", [5, (1 << 14) + 1], ids=["all slices together", "one slice at a time"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_axis_is_the_last_one_moved(axis, length, weighted, order):
    rng = np.random.default_rng(0)
    shape = [2, 3, 2]
    shape[axis] = length
    values = np.asarray(rng.integers(-3, 4, size=shape) * 0.5, order=order)
    weight = rng.integers(1, 3, size=length) if weighted else None
    call = {"sample_weight": weight}
    found = ranked_range(values, 1, 3, axis=axis, **call)
    weights = range_weights(values, 1, 3, axis=axis, **call)
    cuts = thresholds(values, 1, 3, axis=axis, **call)
    along = np.apply_along_axis
    np.testing.assert_allclose(found, along(lambda v: ranked_range(v, 1, 3, **call), axis, values), rtol=1e-15)
    np.testing.assert_array_equal(weights, along(lambda v: range_weights(v, 1, 3, **call), axis, values))
    np.testing.assert_array_equal(cuts[0], along(lambda v: thresholds(v, 1, 3, **call)[0], axis, values))
    np.testing.assert_array_equal(cuts[1], along(lambda v: thresholds(v, 1, 3, **call)[1], axis, values))


def test_axis_none_ranks_the_flattened_array():
    values = np.random.default_rng(1).integers(0, 5, size=(3, 4, 2))
    weight = np.arange(24) % 3
    assert ranked_range(values, 2, 9, axis=None) == ranked_range(values.ravel(), 2, 9)
    np.testing.assert_array_equal(range_weights(values, 2, 9, axis=None).ravel(), range_weights(values.ravel(), 2, 9))
    assert thresholds(values, 2, 9, axis=None) == thresholds(values.ravel(), 2, 9)
    for shaped in (weight, weight.reshape(values.shape)):
        assert ranked_range(values, 2, 9, axis=None, sample_weight=shaped) == ranked_range(
            values.ravel(), 2, 9, sample_weight=weight
        )


@pytest.mark.parametrize(
    ("dtype", "result"),
    [(d, np.float64) for d in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float64")]
    + [("float32", np.float32), ("float16", np.float32), (bool, np.float64)],
)
@pytest.mark.parametrize("shape", [(12,), (3, 4)])
def test_float32_stays_float32_and_integers_become_float64(dtype, result, shape):
    values = (np.arange(12) % 5).astype(dtype).reshape(shape)
    found, weights, cuts = ranked_range(values, 1, 3), range_weights(values, 1, 3), thresholds(values, 1, 3)
    assert found.dtype == weights.dtype == cuts[0].dtype == cuts[1].dtype == result
    np.testing.assert_allclose(found, ranked_range(values.astype(float), 1, 3), rtol=1e-6)


def test_sums_are_accumulated_in_float64():
    values = np.full(1 << 18, 0.1, dtype=np.float32)  # added up in float32 this is off in the fourth digit
    assert ranked_range(values, 0, 1.0, reduction="sum") == np.float32(len(values) * float(np.float32(0.1)))


def test_lists_read_only_and_strided_arrays_are_fine_and_no_input_is_changed():
    values = np.array([3.0, 1.0, 2.0, 1.0])
    values.flags.writeable = False
    assert ranked_range(values, 1, 2) == ranked_range([3, 1, 2, 1], 1, 2) == 2
    np.testing.assert_array_equal(range_weights(values[::-2], 0, 1), [0.5, 0.5])
    np.testing.assert_array_equal(values, [3.0, 1.0, 2.0, 1.0])


def test_a_range_object_stands_for_m_and_k():
    values = [4.0, 3.0, 2.0, 1.0]
    assert ranked_range(values, RankedRange(1, 3)) == ranked_range(values, 1, 3)
    np.testing.assert_array_equal(range_weights(values, ThresholdRange(1.0, 3.0)), [0, 1, 1, 0])
    assert thresholds(values, ThresholdRange(1.0, 3.0)) == (2.0, 4.0)


# --- At the ends of the floating-point range ---

MAX = np.finfo(float).max


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("n", [2, 3, 5, 6, 7, 80])
def test_a_mean_is_right_where_the_sum_overflows(n, rows):
    same = np.full((rows, n), MAX)
    np.testing.assert_allclose(ranked_range(same, 0, n), MAX, rtol=4 * EPS)
    np.testing.assert_array_equal(range_weights(same, 0, n), 1.0)
    mixed = np.resize([MAX, MAX, -MAX, -MAX], (rows, 4 * n))
    np.testing.assert_allclose(ranked_range(mixed, 0, 4 * n), 0.0, atol=1e-12 * MAX)
    np.testing.assert_allclose(ranked_range(mixed, 0, 4 * n, reduction="sum"), 0.0, atol=1e-12 * MAX)


def test_weights_of_values_near_the_end_of_float32():
    values = np.full((2, 5), np.finfo(np.float32).max)
    np.testing.assert_array_equal(ranked_range(values, 1, 3), values[:, 0])
    np.testing.assert_array_equal(range_weights(values, 0, 5), 1)


# ---- bad input: the rule, the value and the remedy ------------------------------------------------------------------


ONE = [1.0, 2.0, 3.0]
# Values, or weights of `ONE`; the type of the error, and what it says.
BAD_VALUES = [
    ([1.0, math.nan], ValueError, r"values must be finite, got 1 NaN .* of 2; drop"),
    ([math.inf, 1.0, -math.inf], ValueError, r"finite, got 2 .* of 3; drop"),
    (np.r_[np.ones(10**5), math.nan], ValueError, r"got 1 .* of 100001; drop"),
    (np.full((7, 3), math.nan), ValueError, r"finite, got 21 .* of 21; drop"),
    ([], ValueError, r"at least one value, got shape \(0,\); pass a non-empty"),
    (np.ones((3, 0)), ValueError, r"got shape \(3, 0\); pass a non-empty"),
    (np.ones((0, 3)), ValueError, r"got shape \(0, 3\); pass a non-empty"),
    (3.0, ValueError, r"at least one dimension, got the single number 3.0; pass"),
    (np.array([1, None]), TypeError, r"real numbers, got dtype object; pass an array"),
    (["a", "b"], TypeError, r"must be real numbers, got dtype <U1; pass an array"),
    ([1j, 2.0], TypeError, r"must be real numbers, got dtype complex128; pass an array"),
    (np.array(["2020"], "M8[D]"), TypeError, r"got dtype datetime64\[D\]; pass an array"),
    ([[1.0, 2.0], [3.0]], ValueError, r"rectangular array, got ragged rows; pad"),
    ([2**53 + 2, 1], ValueError, r"not exceed 2\*\*53.*, got .*; scale"),
]
BAD_WEIGHTS = [
    ([1, -2, 1], ValueError, r"sample_weight must not be negative, got -2.0; use 0 to leave"),
    ([1, math.nan, 1], ValueError, r"sample_weight must be finite, got 1 NaN or infinite of 3; drop"),
    ([1, 2], ValueError, r"shape \(3,\), or one per value, shape \(3,\), got shape \(2,\); pass"),
    (["a", "b", "c"], TypeError, r"sample_weight must be real numbers, got dtype <U1; pass an array"),
    ([0, 0, 0], ValueError, r"got n=0.*; pass a non"),
]
HUGE = np.full((2, 4), 3e38, np.float32)
BAD_CALLS = [
    (lambda: ranked_range(ONE, 1), TypeError, r"need both m and k, got m=1 alone; pass m and k"),
    (lambda: ranked_range(ONE, RankedRange(), 2), TypeError, r"already defines k, got k=2 as well; leave"),
    (lambda: ranked_range(ONE, 0, 1, reduction="max"), ValueError, r"'mean' or 'sum', got 'max'; choose"),
    (lambda: ranked_range(ONE, 0, 1, axis=1), ValueError, r"axis must lie in \[-1, 1\), got axis=1 .*; "),
    (lambda: ranked_range(ONE, 0, 1, axis=0.0), TypeError, r"axis must be an int or None, got 0.0; pass"),
    (lambda: ranked_range(ONE, 0, 1, axis=True), TypeError, r"axis must be an int .*, got True; pass"),
    (lambda: ranked_range(ONE, 0, 4, sample_weight=[1, 1, 0.5]), ValueError, r"got m=0, k=4 for n=2.5 .*lower"),
    (
        lambda: ranked_range([ONE, ONE], ThresholdRange(1, 2)),
        ValueError,
        r"one unweighted set .* \(2, 3\); pass axis=None",
    ),
    (lambda: ranked_range(ONE, ThresholdRange(5, 6)), ValueError, r"got none in \(5.0, 6.*; lower"),
    (lambda: ranked_range([MAX, MAX], 0, 2, reduction="sum"), ValueError, r"must fit float64, got .*'mean', or scale"),
    (lambda: ranked_range(HUGE, 0, 4, reduction="sum"), ValueError, r"sum .* must fit float32, got .*'mean', or scale"),
]
for select in (ranked_range, range_weights, thresholds):
    BAD_CALLS += [(partial(select, values, 0, 1), error, said) for values, error, said in BAD_VALUES]
    BAD_CALLS += [
        (partial(select, ONE, 0, 1, sample_weight=weight), error, said) for weight, error, said in BAD_WEIGHTS
    ]


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_input_gets_rule_value_and_remedy(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "got" in str(caught.value)
    assert ";" in str(caught.value)
