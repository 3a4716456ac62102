"""Bad input to the ranked range: each gets an error that states the rule, the value and the remedy."""

import math

import numpy as np
import pytest

from rankrange import RankedRange, ThresholdRange, range_weights, ranked_range, thresholds

MAX = np.finfo(float).max
ONE = [1.0, 2.0, 3.0]
BAD_INPUT = {
    "NaN": (lambda: ranked_range([1.0, math.nan], 0, 1), ValueError, r"values must be finite, got 1 NaN .* of 2; drop"),
    "infinity": (lambda: range_weights([math.inf, 1.0, -math.inf], 0, 1), ValueError, r"finite, got 2 .* of 3; drop"),
    "NaN, long": (lambda: thresholds(np.r_[np.ones(10**5), math.nan], 0, 1), ValueError, r"got 1 .* of 100001; drop"),
    "NaN, rows": (lambda: ranked_range(np.full((7, 3), math.nan), 0, 1), ValueError, r"finite, got 21 .* of 21; drop"),
    "empty": (lambda: ranked_range([], 0, 1), ValueError, r"at least one value, got shape \(0,\); pass a non-empty"),
    "empty rows": (lambda: ranked_range(np.ones((3, 0)), 0, 1), ValueError, r"got shape \(3, 0\); pass a non-empty"),
    "no rows": (lambda: ranked_range(np.ones((0, 3)), 0, 1), ValueError, r"got shape \(0, 3\); pass a non-empty"),
    "scalar": (lambda: ranked_range(3.0, 0, 1), ValueError, r"at least one dimension, got the single number 3.0; pass"),
    "m >= k": (lambda: ranked_range(ONE, 2, 2), ValueError, r"need m < k, got m=2, k=2; lower m or raise k"),
    "k > n": (lambda: ranked_range(ONE, 0, 4), ValueError, r"need 0 <= m < k <= n, got m=0, k=4 for n=3 .*; lower"),
    "negative": (lambda: range_weights(ONE, -1, 2), ValueError, r"m must not be negative, got m=-1; use 0"),
    "fraction": (lambda: ranked_range(ONE, 0, 1.1), ValueError, r"must be in \[0, 1\], got k=1.1; pass an int"),
    "tiny fraction": (lambda: ranked_range(ONE, 0, 0.1), ValueError, r"got m=0, k=0 for n=3 .*; lower m or raise k"),
    "type of k": (lambda: ranked_range(ONE, 0, "2"), TypeError, r"k must be an int .*, got '2' of type str; pass"),
    "no k": (lambda: ranked_range(ONE, 1), TypeError, r"need both m and k, got m=1 alone; pass m and k"),
    "k twice": (lambda: ranked_range(ONE, RankedRange(), 2), TypeError, r"already defines k, got k=2 as well; leave"),
    "objects": (
        lambda: ranked_range(np.array([1, None]), 0, 1),
        TypeError,
        r"real numbers, got dtype object; pass an array",
    ),
    "strings": (
        lambda: ranked_range(["a", "b"], 0, 1),
        TypeError,
        r"must be real numbers, got dtype <U1; pass an array",
    ),
    "complex": (
        lambda: ranked_range([1j, 2.0], 0, 1),
        TypeError,
        r"must be real numbers, got dtype complex128; pass an array",
    ),
    "dates": (
        lambda: ranked_range(np.array(["2020"], "M8[D]"), 0, 1),
        TypeError,
        r"got dtype datetime64\[D\]; pass an array",
    ),
    "ragged": (lambda: ranked_range([[1.0, 2.0], [3.0]], 0, 1), ValueError, r"rectangular array, got ragged rows; pad"),
    "huge integer": (
        lambda: ranked_range([2**53 + 2, 1], 0, 1),
        ValueError,
        r"not exceed 2\*\*53.*, got .*; scale",
    ),
    "reduction": (lambda: ranked_range(ONE, 0, 1, reduction="max"), ValueError, r"'mean' or 'sum', got 'max'; choose"),
    "axis": (lambda: ranked_range(ONE, 0, 1, axis=1), ValueError, r"axis must lie in \[-1, 1\), got axis=1 .*; "),
    "axis type": (lambda: ranked_range(ONE, 0, 1, axis=0.0), TypeError, r"axis must be an int or None, got 0.0; pass"),
    "axis bool": (
        lambda: ranked_range(ONE, 0, 1, axis=True),
        TypeError,
        r"axis must be an int .*, got True; pass",
    ),
    "weight < 0": (
        lambda: ranked_range(ONE, 0, 1, sample_weight=[1, -2, 1]),
        ValueError,
        r"sample_weight must not be negative, got -2.0; use 0 to leave",
    ),
    "weight NaN": (
        lambda: ranked_range(ONE, 0, 1, sample_weight=[1, math.nan, 1]),
        ValueError,
        r"sample_weight must be finite, got 1 NaN or infinite of 3; drop",
    ),
    "weight shape": (
        lambda: ranked_range(ONE, 0, 1, sample_weight=[1, 2]),
        ValueError,
        r"shape \(3,\), or one per value, shape \(3,\), got shape \(2,\); pass",
    ),
    "weight type": (
        lambda: ranked_range(ONE, 0, 1, sample_weight=["a", "b", "c"]),
        TypeError,
        r"sample_weight must be real numbers, got dtype <U1; pass an array",
    ),
    "weights all 0": (
        lambda: ranked_range(ONE, 0, 1, sample_weight=[0, 0, 0]),
        ValueError,
        r"got n=0.*; pass a non",
    ),
    "mass": (lambda: ranked_range(ONE, 0, 4, sample_weight=[1, 1, 0.5]), ValueError, r"got m=0, k=4 for n=2.5 .*lower"),
    "threshold rows": (
        lambda: ranked_range([ONE, ONE], ThresholdRange(1, 2)),
        ValueError,
        r"one unweighted set at a time, got shape \(2, 3\); pass axis=None",
    ),
    "thresholds apart": (
        lambda: ranked_range(ONE, ThresholdRange(5, 6)),
        ValueError,
        r"got none in \(5.0, 6.*; lower",
    ),
    "overflow": (
        lambda: ranked_range([MAX, MAX], 0, 2, reduction="sum"),
        ValueError,
        r"sum of the kept values must fit float64, got .*; use reduction='mean', or scale",
    ),
    "overflow32": (
        lambda: ranked_range(np.full((2, 4), 3e38, np.float32), 0, 4, reduction="sum"),
        ValueError,
        r"sum of the kept values must fit float32, got .*; use reduction='mean', or scale",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_gets_rule_value_and_remedy(case):
    call, error, message = BAD_INPUT[case]
    with pytest.raises(error, match=message) as caught:
        call()
    assert "got" in str(caught.value)
    assert ";" in str(caught.value)
