"""RankedRange and ThresholdRange: which ranks a setting means."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rankrange import RankedRange, ThresholdRange, ranked_range

sizes = st.integers(1, 10_000)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 11, 2201])
def test_special_cases_are_settings_of_m_and_k(n):
    assert RankedRange.average().counts(n) == (0, n)
    assert RankedRange.maximum().counts(n) == (0, 1)
    assert RankedRange.top(1).counts(n) == (0, 1)
    assert RankedRange.top(n).counts(n) == (0, n)
    assert RankedRange.trimmed(n - 1).counts(n) == (n - 1, n)
    assert RankedRange.kth(n).counts(n) == (n - 1, n)
    assert RankedRange.robust_maximum(n - 1).counts(n) == (n - 1, n)
    assert RankedRange.median().counts(n) == (math.floor((n + 1) / 2) - 1, math.ceil((n + 1) / 2))
    assert RankedRange().counts(n) == (0, n)


def test_special_cases_take_fractions():
    assert RankedRange.top(0.3).counts(10) == (0, 3)
    assert RankedRange.trimmed(0.3).counts(10) == (3, 10)
    assert RankedRange.kth(0.3).counts(10) == (2, 3)
    assert RankedRange.kth(1.0).counts(10) == (9, 10)
    assert RankedRange.robust_maximum(0.3).counts(10) == (3, 4)
    assert RankedRange.robust_maximum(0.0).counts(10) == (0, 1)
    assert RankedRange(2, 0.5).counts(10) == (2, 5)
    assert RankedRange(0.2, 9).counts(10) == (2, 9)


def test_an_int_is_a_count_and_a_float_a_fraction():
    assert RankedRange(0, 1).counts(7) == (0, 1)
    assert RankedRange(0, 1.0).counts(7) == (0, 7)
    assert RankedRange(np.int64(2), np.float32(0.5)).counts(8) == (2, 4)
    assert RankedRange(0, Fraction(1, 2)).counts(8) == (0, 4)


@given(sizes, st.floats(0, 1), st.floats(0, 1))
def test_a_fraction_is_the_nearest_count(n, one, other):
    low, high = sorted((one, other))
    assume(all(abs(share * n % 1 - 0.5) > 1e-9 for share in (low, high)))  # a tie may go either way
    m, k = round(Fraction(low) * n), round(Fraction(high) * n)  # in exact arithmetic
    if low < high and m < k:
        assert RankedRange(low, high).counts(n) == (m, k)
    else:
        with pytest.raises(ValueError, match=r"m < k"):
            RankedRange(low, high).counts(n)


@given(sizes, st.data())
def test_every_range_with_m_below_k_at_most_n_is_allowed_and_no_other(n, data):
    m, k = data.draw(st.integers(0, n + 3)), data.draw(st.integers(0, n + 3))
    if m < k <= n:
        assert RankedRange(m, k).counts(n) == (m, k)
    else:
        with pytest.raises(ValueError, match=r"need (0 <= )?m < k"):
            RankedRange(m, k).counts(n)


def test_mass_is_not_rounded_where_weights_are_fractions():
    assert RankedRange(0.25, 1.0).masses(2.5, whole=False) == (0.625, 2.5)
    assert RankedRange(1, 2).masses(2.5, whole=False) == (1, 2)
    assert RankedRange(0.25, 1.0).masses(10, whole=True) == (2, 10)


def test_ranges_are_values():
    assert RankedRange(1, 2) == RankedRange(1, 2) == RankedRange.kth(2)
    assert len({RankedRange(1, 2), RankedRange.kth(2), RankedRange.median(), RankedRange.median()}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        RankedRange(1, 2).m = 0  # type: ignore[misc]


@pytest.mark.parametrize(
    "keep", [RankedRange(1, 0.5), RankedRange.median(), RankedRange.kth(0.25), RankedRange.robust_maximum(0.25)]
)
def test_the_repr_gives_the_range_back(keep):
    names = {"RankedRange": RankedRange}
    constructor, _, arguments = repr(keep).removesuffix(")").partition("(")
    owner, _, method = constructor.partition(".")
    values = [float(a.split("=")[-1]) if "." in a else int(a.split("=")[-1]) for a in arguments.split(", ") if a]
    assert (getattr(names[owner], method) if method else names[owner])(*values) == keep


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30), st.integers(-6, 6), st.integers(-6, 6))
def test_a_threshold_range_keeps_what_lies_between_its_thresholds(values, one, other):
    lam, lam_hat = sorted((one, other))
    kept = [v for v in values if lam < v <= lam_hat]
    keep = ThresholdRange(lam, lam_hat)
    if kept:
        assert keep.counts(np.array(values)) == (sum(v > lam_hat for v in values), sum(v > lam for v in values))
        assert ranked_range(values, keep) == pytest.approx(sum(kept) / len(kept), abs=1e-12)
    else:
        with pytest.raises(ValueError, match=r"need a value in \(lam, .*, got none in .*; lower lam or raise lam_hat"):
            keep.counts(np.array(values))


@pytest.mark.parametrize("keep", [ThresholdRange(), ThresholdRange(-1e300, 1e300)])
def test_thresholds_beyond_the_dtype_keep_everything(keep):
    assert ranked_range(np.array([1, 2, 6], dtype=np.float32), keep) == 3


BAD_RANGES = [
    (lambda: RankedRange(5, 3), ValueError, r"need m < k, got m=5, k=3; lower m or raise k"),
    (lambda: RankedRange(0.5, 0.5), ValueError, r"need m < k, got m=0.5, k=0.5"),
    (lambda: RankedRange(0, 0), ValueError, r"need m < k, got m=0, k=0"),
    (lambda: RankedRange(-1, 3), ValueError, r"m must not be negative, got m=-1; use 0 or a positive count"),
    (lambda: RankedRange(0, -0.5), ValueError, r"in \[0, 1\], got k=-0.5; pass an int"),
    (lambda: RankedRange(0, 1.5), ValueError, r"a float k is a fraction and must be in \[0, 1\], got k=1.5; pass an"),
    (lambda: RankedRange(0, 10.0), ValueError, r"got k=10.0; pass an int for a count"),
    (lambda: RankedRange(0, math.nan), ValueError, r"in \[0, 1\], got k=nan; pass an int"),
    (lambda: RankedRange(0, math.inf), ValueError, r"in \[0, 1\], got k=inf; pass an int"),
    (lambda: RankedRange(True, 3), TypeError, r"m must be an int .*, got True of type bool; pass for example m=10"),
    (lambda: RankedRange(0, "3"), TypeError, r"k must be an int .*, got '3' of type str; pass for example k=10"),
    (lambda: RankedRange(0, None), TypeError, r"got None of type NoneType; pass"),
    (lambda: RankedRange(0, 1j), TypeError, r"got 1j of type complex; pass"),
    (lambda: RankedRange(0, np.array([1])), TypeError, r"of type ndarray; pass"),
    (lambda: RankedRange(0, 11).counts(10), ValueError, r"need 0 <= m < k <= n, got m=0, k=11 for n=10 .* lower k to"),
    (lambda: RankedRange(6, 0.5).counts(10), ValueError, r"got m=6, k=5 for n=10 .*; lower m or raise k"),
    (lambda: RankedRange(0, 0.01).counts(10), ValueError, r"got m=0, k=0 for n=10 .*k=0.01.*; lower m or raise k"),
    (lambda: RankedRange(0, 1.0).counts(0), ValueError, r"at least one value, got n=0; pass a non-empty set"),
    (lambda: RankedRange.kth(0), ValueError, r"needs k >= 1, got k=0; the largest value is k=1"),
    (lambda: RankedRange.kth(0.0), ValueError, r"needs k >= 1, got k=0.0; the largest"),
    (lambda: RankedRange.robust_maximum(1.0).counts(5), ValueError, r"need 0 <= m < k <= n, got m=5, k=6 for n=5"),
    (lambda: RankedRange.median().masses(2.5, whole=False), ValueError, r"median needs whole counts, got .*2.5.*; use"),
    (lambda: ThresholdRange(2, 1), ValueError, r"need lam <= lam_hat, got lam=2.0, lam_hat=1.0; lam is the lower"),
    (lambda: ThresholdRange(math.nan, 1), ValueError, r"need lam <= lam_hat, got lam=nan.*; .*NaN"),
    (lambda: ThresholdRange("0", 1), TypeError, r"lam must be a number, got '0' of type str; pass"),
    (lambda: ThresholdRange(0, True), TypeError, r"lam_hat must be a number, got True of type bool; pass"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_RANGES)
def test_bad_input_gets_rule_value_and_remedy(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "got" in str(caught.value)
    assert ";" in str(caught.value)
