"""The contract of an individual loss, over the whole table `LOSSES`: a new entry is tested without touching this file.

The one thing to add for a new loss is its definition in `ORACLES`, which the test against mpmath asks for.
"""

import itertools

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankrange.core.losses import LOSSES, TKML, Hinge, Huber, Logistic, Loss, log_of_sum

CASES = {name: loss() for name, loss in LOSSES.items()} | {
    "huber, narrow": Huber(delta=0.25),
    "tkml, paper": TKML(two_sided=False),
    "tkml, top 3": TKML(top_k=3),
    "tkml, top 3, paper": TKML(top_k=3, two_sided=False),
}
N_COLUMNS = 5

EPS = np.finfo(float).eps

every_loss = pytest.mark.parametrize("name", CASES)
every_convex_loss = pytest.mark.parametrize("name", [n for n, loss in CASES.items() if getattr(loss, "convex", True)])


def every_loss_with(method):
    return pytest.mark.parametrize("name", [n for n, loss in CASES.items() if hasattr(loss, method)])


# --- Targets and scores of every kind a loss may ask for ---


def targets_for(loss, n, rng, dtype=np.float64):
    if loss.targets == "binary":
        return rng.choice([-1.0, 1.0], size=n).astype(dtype)
    if loss.targets == "numbers":
        return rng.normal(size=n).astype(dtype)
    if loss.targets == "classes":
        return rng.integers(N_COLUMNS, size=n)
    if loss.targets == "labels":
        return rng.random((n, N_COLUMNS)) < rng.choice([0.0, 0.2, 0.5, 0.8, 1.0], size=(n, 1))
    raise AssertionError(f"unknown kind of targets {loss.targets!r}; add it to the contract")


def scores_for(loss, n, rng, scale=2.0):
    return scale * rng.normal(size=n if loss.targets in ("binary", "numbers") else (n, N_COLUMNS))


@st.composite
def problems(draw, loss, step=0.5, n=6):
    """Targets, and two sets of scores full of ties and kinks: small multiples of `step`."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    y = targets_for(loss, n, rng)
    if loss.targets == "numbers":
        y = np.round(y / step) * step
    shape = scores_for(loss, n, rng).shape
    return y, *(step * rng.integers(-5, 6, size=shape) for _ in range(2))


def inner(slope, step):
    """<slope, step>, one a sample."""
    return (slope * step).reshape(len(slope), -1).sum(axis=1)


# --- The contract ---


@every_loss
def test_a_loss_is_what_the_objective_asks_for(name):
    loss, rng = CASES[name], np.random.default_rng(0)
    assert isinstance(loss, Loss)
    assert type(loss).__doc__
    assert hasattr(loss, "curvature") == (loss.targets in ("binary", "numbers")), "one score: say how it bends"
    y, z = targets_for(loss, 50, rng), scores_for(loss, 50, rng)
    y_before, z_before = y.copy(), z.copy()
    s, slope = loss.value_and_derivative(y, z)
    assert s.shape == (50,)
    assert slope.shape == z.shape
    np.testing.assert_array_equal(loss.value(y, z), s)
    np.testing.assert_array_equal(y, y_before)
    np.testing.assert_array_equal(z, z_before)


@every_loss
def test_the_layout_of_the_scores_does_not_matter(name):
    loss, rng = CASES[name], np.random.default_rng(1)
    y, z = targets_for(loss, 50, rng), scores_for(loss, 50, rng)
    for found, expected in zip(
        loss.value_and_derivative(y, np.asfortranarray(z)), loss.value_and_derivative(y, z), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-14)


@every_convex_loss
@given(data=st.data())
def test_derivative_is_a_subgradient_on_ties_and_kinks(name, data):
    loss = CASES[name]
    y, z, other = data.draw(problems(loss))
    s, slope = loss.value_and_derivative(y, z)
    tangent = s + inner(slope, other - z)
    assert (loss.value(y, other) >= tangent - 1e-12 * (1 + abs(tangent))).all()


@every_convex_loss
@given(data=st.data())
def test_convexity(name, data):
    loss = CASES[name]
    y, z, other = data.draw(problems(loss, step=0.37))
    chord = (loss.value(y, z) + loss.value(y, other)) / 2
    assert (loss.value(y, (z + other) / 2) <= chord + 1e-12 * (1 + chord)).all()


@every_loss
@given(data=st.data())
def test_a_loss_is_never_negative(name, data):
    loss = CASES[name]
    y, *scores = data.draw(problems(loss))
    assert all((loss.value(y, z) >= 0).all() for z in scores)


@every_loss_with("curvature")
def test_curvature_is_the_derivative_of_the_derivative(name):
    loss, rng = CASES[name], np.random.default_rng(3)
    y, z = targets_for(loss, 400, rng), scores_for(loss, 400, rng)
    wide, narrow = (
        (loss.value_and_derivative(y, z + step)[1] - loss.value_and_derivative(y, z - step)[1]) / (2 * step)
        for step in (1e-5, 5e-6)
    )
    kinked = np.abs(wide - narrow) > 1e-3 * np.abs(wide)  # a kink inside the step: half of it gives another quotient
    assert kinked.mean() < 0.01
    np.testing.assert_allclose(loss.curvature(y, z)[~kinked], wide[~kinked], rtol=1e-6, atol=1e-9)


@every_loss_with("margins")
def test_margins_of_a_piecewise_linear_loss(name):
    loss, rng = CASES[name], np.random.default_rng(4)
    y, z = targets_for(loss, 60, rng), scores_for(loss, 60, rng)
    margins = loss.margins(y, z)
    if loss.targets in ("binary", "numbers"):
        assert margins.shape == (60, 1), "with one score per row the exact methods follow one margin per row"
    signed = getattr(loss, "signed_margins", False)
    best = np.abs(margins).max(axis=1) if signed else np.maximum(0, margins.max(axis=1))
    np.testing.assert_allclose(loss.value(y, z), best, rtol=1e-14)
    # The adjoint of the linear part: <a, margins(z') - margins(z)> = <adjoint(a), z' - z>.
    other, a = scores_for(loss, 60, rng), rng.random(margins.shape)
    a[~np.isfinite(margins)] = 0
    moved = np.where(np.isfinite(margins), loss.margins(y, other), 0) - np.where(np.isfinite(margins), margins, 0)
    np.testing.assert_allclose(inner(a, moved), inner(loss.margins_adjoint(y, a), other - z), rtol=1e-10, atol=1e-12)


@every_loss
def test_float32_in_float32_out(name):
    loss, rng = CASES[name], np.random.default_rng(5)
    y, z = targets_for(loss, 50, rng, np.float32), scores_for(loss, 50, rng).astype(np.float32)
    s, slope = loss.value_and_derivative(y, z)
    assert s.dtype == slope.dtype == loss.value(y, z).dtype == np.float32
    wide = y.astype(float) if loss.targets == "numbers" else y
    for found, exact in zip((s, slope), loss.value_and_derivative(wide, z.astype(float)), strict=True):
        np.testing.assert_allclose(found, exact, rtol=2e-6, atol=2e-6)
    if hasattr(loss, "curvature"):
        assert loss.curvature(y, z).dtype == np.float32


EXTREMES = [0.0, 1e-12, 0.3, 1.0, 1.7, 36.5, 300.0, 690.0, 1e4]
NEAR = [1e4, 1e4 - 0.7, 8191.6, 8191.9, 8192.3, -1e4, -1e4 + 0.3, -8192.3]  # far from zero, close to one another


# 1 + a difference of scores that nearly cancels keeps the digits of the 1, and cannot keep more.
FLOORS = {"tkml": 2 * EPS}


def _table_name(name):
    return name.partition(",")[0]


def extreme_problems(loss):
    """(y, z) with scores up to 1e4, near and far from each other."""
    rng = np.random.default_rng(6)
    signed = np.unique([sign * value for value in EXTREMES + NEAR for sign in (-1, 1)])
    if loss.targets == "binary":
        return np.repeat([-1.0, 1.0], len(signed)), np.tile(signed, 2)
    if loss.targets == "numbers":
        y, z = np.array(list(itertools.product(signed, signed))).T
        return y, z
    z = np.vstack([rng.choice(pool, size=(60, N_COLUMNS)) for pool in (signed, NEAR, [-1.0, 0.0, 0.5, 36.5])])
    return targets_for(loss, len(z), rng), z


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stable_at_scores_of_ten_thousand(name, dtype):
    loss = CASES[name]
    y, z = extreme_problems(loss)
    y = y.astype(dtype) if loss.targets in ("binary", "numbers") else y
    with np.errstate(all="raise", under="ignore"):
        s, slope = loss.value_and_derivative(y, z.astype(dtype))
    assert np.isfinite(s).all()
    assert np.isfinite(slope).all()
    assert (s >= 0).all()


# --- Accuracy against mpmath: each loss as its definition reads, on one sample ---


def _kth(scores, k):
    return sorted(scores, reverse=True)[k - 1]


def _tkml(y, z, loss):
    true, false = [f for f, t in zip(z, y, strict=True) if t], [f for f, t in zip(z, y, strict=True) if not t]
    if not true:
        return mp.mpf(0)
    if loss.two_sided and len(true) > loss.top_k:
        return max(0, 1 + max(false) - _kth(true, loss.top_k)) if false else mp.mpf(0)
    return max(0, 1 + _kth(z, loss.top_k + 1) - min(true))


def _huber(y, z, loss):
    r = abs(z - y)
    return r**2 / 2 if r <= loss.delta else loss.delta * (r - mp.mpf(loss.delta) / 2)


ORACLES = {
    "logistic": lambda y, z, loss: mp.log1p(mp.exp(-y * z)),
    "hinge": lambda y, z, loss: max(0, 1 - y * z),
    "squared_hinge": lambda y, z, loss: max(0, 1 - y * z) ** 2,
    "one_vs_rest_squared_hinge": lambda y, z, loss: mp.fsum(
        max(0, 1 - (f if j == y else -f)) ** 2 for j, f in enumerate(z)
    ),
    "softmax": lambda y, z, loss: -mp.log(mp.exp(z[y]) / mp.fsum(map(mp.exp, z))),
    "squared": lambda y, z, loss: (z - y) ** 2,
    "absolute": lambda y, z, loss: abs(z - y),
    "huber": _huber,
    "tkml": _tkml,
}


def mp_value_and_slopes(oracle, loss, y, z):
    """The definition at one sample, and its difference quotients to either side in each score.

    In 700 digits, which is enough for exp(-1000).
    """
    h = mp.mpf(10) ** -100
    if np.ndim(z) == 0:
        y, z = mp.mpf(float(y)), mp.mpf(float(z))
        value = oracle(y, z, loss)
        return value, [((oracle(y, z + h, loss) - value) / h, (value - oracle(y, z - h, loss)) / h)]
    z = [mp.mpf(float(f)) for f in z]
    value, slopes = oracle(y, z, loss), []
    for j in range(len(z)):
        up, down = ([f + sign * h * (i == j) for i, f in enumerate(z)] for sign in (1, -1))
        slopes.append(((oracle(y, up, loss) - value) / h, (value - oracle(y, down, loss)) / h))
    return value, slopes


@every_loss
def test_twelve_digits_against_mpmath_at_extremes(name):
    table_name, loss = _table_name(name), CASES[name]
    if table_name not in ORACLES:
        pytest.skip(f"no definition of {table_name!r} to compare with; add it to ORACLES")
    y, z = extreme_problems(loss)
    s, slope = loss.value_and_derivative(y, z)
    floor = FLOORS.get(table_name, 1e-300)
    with mp.workdps(700):
        for i in range(len(z)):
            value, slopes = mp_value_and_slopes(ORACLES[table_name], loss, y[i], z[i])
            assert float(s[i]) == pytest.approx(float(value), rel=1e-12, abs=floor), (y[i], z[i])
            if _smooth_at(loss, z[i], slopes):
                found, expected = np.atleast_1d(slope[i]), [float((right + left) / 2) for right, left in slopes]
                np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300, err_msg=str((y[i], z[i])))


def _smooth_at(loss, z, slopes):
    """Whether the quotients are the derivative here: both sides agree, and no tie hides a kink from them.

    The middle one of three tied scores stays where it is when a single one of them moves.
    """
    if not getattr(loss, "convex", True) and np.ndim(z) and len(set(z)) < len(z):
        return False
    return all(abs(right - left) <= 1e-50 * max(abs(right), abs(left)) + 1e-300 for right, left in slopes)


# --- What single losses promise beyond the contract ---


def test_hinge_has_slope_zero_at_its_kink_and_logistic_half_at_zero():
    np.testing.assert_array_equal(Hinge().value_and_derivative(np.ones(1), np.ones(1))[1], [0.0])
    np.testing.assert_array_equal(Logistic().value_and_derivative(np.ones(1), np.zeros(1))[1], [-0.5])


@st.composite
def label_problems(draw):
    n_labels = draw(st.integers(2, 7))
    y = draw(st.lists(st.booleans(), min_size=n_labels, max_size=n_labels))
    z = draw(st.lists(st.integers(-4, 4), min_size=n_labels, max_size=n_labels))
    return np.array(y), np.array(z, dtype=float), draw(st.integers(1, n_labels - 1))


@given(label_problems())
def test_two_sided_tkml_is_at_least_one_where_the_metric_counts_a_mistake(problem):
    """Below 1 the k best-scored labels are all true or hold all true labels: what top-k multi-label accuracy asks."""
    y, z, top_k = problem
    best = set(np.argsort(-z, kind="stable")[:top_k].tolist())
    true = set(np.flatnonzero(y).tolist())
    if TKML(top_k).value(y[None], z[None])[0] < 1:
        assert best <= true or true <= best


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Huber(delta=0), ValueError, r"0 < delta < infinity, got delta=0; 1.0 is"),
        (lambda: Huber(delta=float("nan")), ValueError, r"0 < delta < infinity, got delta=nan; 1.0 is"),
        (lambda: Huber(delta=float("inf")), ValueError, r"0 < delta < infinity, got delta=inf; 1.0 is"),
        (lambda: TKML(top_k=0), ValueError, r"top_k must be an int of at least 1, got 0; "),
        (lambda: TKML(top_k=1.5), ValueError, r"top_k must be an int of at least 1, got 1.5; "),
        (lambda: TKML(top_k=True), ValueError, r"top_k must be an int of at least 1, got True; "),
        (
            lambda: TKML(top_k=3).value(np.ones((1, 3), bool), np.ones((1, 3))),
            ValueError,
            r"top_k must be below the number of labels, got top_k=3 for 3 labels; ",
        ),
    ],
)
def test_bad_input_gets_rule_value_and_remedy(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_logarithm_of_a_sum_is_accurate_for_all_sizes(dtype):
    least = float(np.finfo(dtype).tiny)
    e = np.concatenate([np.geomspace(least, 1.0, 20_000), np.random.default_rng(0).random(20_000)]).astype(dtype)
    exact = np.log1p(e.astype(np.longdouble))
    assert np.abs(log_of_sum(e.copy(), 1 + e) / exact - 1).max() <= 3 * np.finfo(dtype).eps


# --- Slopes at ties ---


def slope_without_ties(z, true, k, two_sided):
    """By the definition: one label is pushed down and one pulled up."""
    order = np.argsort(-z)
    down, up = order[k], min(np.flatnonzero(true), key=lambda label: z[label])
    if two_sided and true.sum() > k:
        down = max(np.flatnonzero(~true), key=lambda label: z[label])
        up = [label for label in order if true[label]][k - 1]
    slope = np.zeros(len(z))
    slope[down] += 1.0
    slope[up] -= 1.0
    return slope


@given(
    st.lists(st.integers(-1, 1), min_size=4, max_size=4),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.integers(1, 3),
    st.booleans(),
)
def test_the_slope_of_tkml_is_the_mean_over_all_ways_to_break_ties(scores, true, k, two_sided):
    z, mask = np.array(scores, dtype=float), np.array(true)
    value, slope = TKML(k, two_sided).value_and_derivative(mask[None], z[None])
    if value[0] == 0 or not mask.any() or (two_sided and mask.all()):
        assert not slope.any()
        return
    ways = [
        slope_without_ties(z + 1e-6 * np.array(way), mask, k, two_sided) for way in itertools.permutations(range(4))
    ]
    np.testing.assert_allclose(slope[0], np.mean(ways, axis=0), atol=1e-12)
