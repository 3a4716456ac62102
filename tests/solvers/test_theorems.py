"""The paper's theorems, lemmas and propositions, one test each, by the paper's name (docs/paper.md has the table).

Everything minimised here over lambda is convex and piecewise linear with its breaks at the values themselves, so that
trying every value is an exact minimisation. The theorem on ICVaRs is in test_risk.py.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rankrange import RankedRange, range_weights, ranked_range, thresholds
from rankrange.core.losses import TKML, Logistic


def phi(s, k):
    """The sum of the k largest."""
    return math.fsum(sorted(s, reverse=True)[:k])


def psi(s, m, k):
    return math.fsum(sorted(s, reverse=True)[m:k])


def plus(x):
    return np.maximum(0.0, x)


def top_sum_at(lam, s, k):
    return k * lam + plus(s - lam).sum()


# Quarters: sums of them are exact, so that equalities can be asked for. Few values, so many ties.
values = st.lists(st.integers(-12, 12).map(lambda v: v / 4), min_size=1, max_size=9).map(np.array)


@st.composite
def with_ranks(draw, values=values):
    s = draw(values)
    m = draw(st.integers(0, len(s) - 1))
    return s, m, draw(st.integers(m + 1, len(s)))


@st.composite
def pairs(draw):
    s, m, k = draw(with_ranks())
    other = draw(st.lists(st.integers(-12, 12).map(lambda v: v / 4), min_size=len(s), max_size=len(s)).map(np.array))
    return s, other, m, k


# --- Section 3: the sum of the ranked range ---


@given(with_ranks())
def test_definition_sorr_is_the_difference_of_two_top_sums(case):
    s, m, k = case
    assert ranked_range(s, m, k, reduction="sum") == pytest.approx(phi(s, k) - phi(s, m), abs=1e-12)
    assert ranked_range(s, m, k) == pytest.approx(psi(s, m, k) / (k - m), abs=1e-12)


@given(pairs())
def test_lemma_ogryczak_top_sum_is_a_minimum_over_lambda_and_convex(case):
    s, other, _, k = case
    assert min(top_sum_at(lam, s, k) for lam in s) == phi(s, k)
    assert top_sum_at(thresholds(s, 0, k)[0], s, k) == phi(s, k)  # s_[k] is an optimum
    assert phi((s + other) / 2, k) <= (phi(s, k) + phi(other, k)) / 2


@given(with_ranks())
def test_theorem_1_identity(case):
    s, m, k = case
    two_minima = min(top_sum_at(lam, s, k) for lam in s) - min(top_sum_at(lam, s, m) for lam in s)
    assert ranked_range(s, m, k, reduction="sum") == pytest.approx(two_minima, abs=1e-12)


@given(with_ranks())
def test_theorem_1_lambdas_are_the_thresholds(case):
    s, m, k = case
    lam, lam_hat = thresholds(s, m, k)
    assert lam_hat >= lam
    assert top_sum_at(lam, s, k) == min(top_sum_at(v, s, k) for v in s)
    if m:
        assert top_sum_at(lam_hat, s, m) == min(top_sum_at(v, s, m) for v in s)


def test_theorem_1_strict_inequality_fails_on_ties():
    """Of (1, 1, 1) with m=1, k=2, both lambda and lambda_hat have the single optimum 1 (docs/paper.md)."""
    s = np.ones(3)
    assert thresholds(s, 1, 2) == (1.0, 1.0)
    for rank in (1, 2):
        assert all(top_sum_at(lam, s, rank) > top_sum_at(1.0, s, rank) for lam in (0.5, 0.999, 1.001, 2.0))


def test_theorem_1_with_an_outer_minimum_over_theta():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=15), rng.normal(size=15)
    losses = [(x * theta - y) ** 2 for theta in np.linspace(-3, 3, 61)]  # each convex in theta
    left = min(psi(s, 3, 10) for s in losses)
    right = min(min(top_sum_at(v, s, 10) for v in s) - min(top_sum_at(v, s, 3) for v in s) for s in losses)
    assert left == pytest.approx(right, rel=1e-12)
    assert min(ranked_range(s, 3, 10, reduction="sum") for s in losses) == pytest.approx(right, rel=1e-12)


# --- Equation (subgradient_phi_m) ---


@given(pairs())
@settings(max_examples=300)
def test_subgradient_of_the_top_sum(case):
    """phi(s') >= phi(s) + <q, s' - s> for our weights, ties or not."""
    s, other, m, k = case
    for rank in {m, k} - {0}:
        q = range_weights(s, 0, rank)
        assert phi(other, rank) >= phi(s, rank) + q @ (other - s) - 1e-12


@given(st.integers(0, 2**32))
def test_subgradient_of_the_top_sum_through_theta(seed):
    """The chain rule of the paper, also at theta = 0, where every loss ties."""
    rng = np.random.default_rng(seed)
    X, y, loss = rng.normal(size=(30, 3)), rng.choice([-1.0, 1.0], size=30), Logistic()
    theta, other = rng.normal(size=3) * rng.integers(0, 2), rng.normal(size=3)
    s, slope = loss.value_and_derivative(y, X @ theta)
    m = int(rng.integers(1, 30))
    gradient = X.T @ (range_weights(s, 0, m) * slope)
    assert phi(loss.value(y, X @ other), m) >= phi(s, m) + gradient @ (other - theta) - 1e-10


@given(st.permutations(range(8)), st.lists(st.integers(-3, 12), min_size=8, max_size=8), st.integers(1, 8))
def test_subgradient_rule_as_printed_belongs_to_one_rank_less(distinct, other, m):
    """The indicator s_i > s_[m] selects m - 1 samples: without ties, a sub-gradient of phi_{m-1} (docs/paper.md)."""
    s, other = np.array(distinct, dtype=float), np.array(other, dtype=float)
    printed = (s > thresholds(s, 0, m)[0]).astype(float)
    assert printed.sum() == m - 1
    assert phi(other, m - 1) >= phi(s, m - 1) + printed @ (other - s)


def test_subgradient_rule_as_printed_is_none_of_phi_m():
    violations = 0
    rng = np.random.default_rng(1)
    for _ in range(800):
        s, other, m = rng.normal(size=8), rng.normal(size=8), int(rng.integers(1, 8))
        printed = (s > thresholds(s, 0, m)[0]).astype(float)
        violations += phi(other, m) < phi(s, m) + printed @ (other - s) - 1e-12
    assert violations > 50
    # The smallest case: m = 1 selects nothing, as if the maximum could not fall.
    s, lower = np.array([1.0, 0.0]), np.array([0.0, 0.0])
    assert phi(lower, 1) < phi(s, 1) + (s > s.max()) @ (lower - s)


def test_subgradient_rule_with_equality_fails_on_ties():
    """s_i >= s_[m] selects every sample where all tie, as at theta = 0, and then overshoots."""
    s, m = np.full(5, math.log(2)), 2
    assert phi(s + 1, m) < phi(s, m) + (s >= thresholds(s, 0, m)[0]) @ np.ones(5)
    assert phi(s + 1, m) == pytest.approx(phi(s, m) + range_weights(s, 0, m) @ np.ones(5))


# --- Section 3.1: the bilevel form ---


def binary_masks(n, kept):
    for chosen in itertools.combinations(range(n), kept):
        q = np.zeros(n)
        q[list(chosen)] = 1.0
        yield q


def bilevel_at(lam, q, s, m, k):
    return (k - m) * lam + q @ plus(s - lam)


@given(with_ranks())
@settings(max_examples=60)
def test_theorem_aorr_equal_bilevel_form(case):
    """The minimum over q and lambda is the ranked range, and our cut set and lower threshold attain it."""
    s, m, k = case
    best = min(bilevel_at(lam, q, s, m, k) for q in binary_masks(len(s), len(s) - m) for lam in s)
    assert best == psi(s, m, k)
    q = 1 - range_weights(s, 0, m) if m else np.ones(len(s))
    assert bilevel_at(thresholds(s, m, k)[0], q, s, m, k) == pytest.approx(psi(s, m, k), abs=1e-12)


@given(with_ranks())
@settings(max_examples=60)
def test_theorem_aorr_equal_top_of_the_kept_losses(case):
    """Equation (aorr_newform), first row: the k - m largest of q s, for losses s >= 0."""
    s, m, k = case
    s = abs(s)
    assert min(phi(q * s, k - m) for q in binary_masks(len(s), len(s) - m)) == psi(s, m, k)


@given(with_ranks(), st.integers(0, 2**32))
def test_theorem_aorr_equal_relaxed_to_fractions_that_sum_to_n_minus_m(case, seed):
    """No q in [0, 1] of sum n - m, with any lambda, is below the ranked range: the relaxation is tight."""
    s, m, k = case
    rng, n = np.random.default_rng(seed), len(s)
    masks = list(itertools.islice(binary_masks(n, n - m), 50))
    q = rng.dirichlet(np.ones(len(masks))) @ np.array(masks)  # a point between corners
    lam = rng.uniform(s.min() - 2, s.max() + 2)
    assert bilevel_at(lam, q, s, m, k) >= psi(s, m, k) - 1e-9


def test_theorem_aorr_equal_needs_the_sum_of_q_and_not_its_number_of_nonzeros():
    """As printed, q in [0, 1] with ||q||_0 = n - m: tiny q leave that count alone, and nothing bounds the value."""
    s, m, k = np.array([4.0, 3.0, 2.0, 1.0]), 1, 3
    q = np.array([0.0, 0.01, 0.01, 0.01])
    assert np.count_nonzero(q) == len(s) - m
    found = [bilevel_at(lam, q, s, m, k) for lam in (-1e1, -1e3, -1e6)]
    assert found[0] < psi(s, m, k)
    assert found[2] < found[1] < found[0] < 0


# --- Section 6: the concave lemma and the min-max form ---


@given(pairs())
def test_lemma_concave_bottom_sum_is_a_maximum_over_lambda(case):
    s, other, m, _ = case
    n = len(s)

    def bottom_sum_at(lam):
        return (n - m) * lam - plus(lam - s).sum()

    assert max(bottom_sum_at(lam) for lam in s) == psi(s, m, n)
    if m:
        assert bottom_sum_at(thresholds(s, m, n)[1]) == psi(s, m, n)  # s_[m] is an optimum
    assert psi((s + other) / 2, m, n) >= (psi(s, m, n) + psi(other, m, n)) / 2
    assert ranked_range(s, m, n, reduction="sum") == pytest.approx(psi(s, m, n), abs=1e-12)


def combined(lam, lam_hat, s, m, k):
    """(k - m) times the objective inside the min-max of equation (combine)."""
    return (k - m) * lam + (len(s) - m) * lam_hat - plus(lam_hat - plus(s - lam)).sum()


@given(with_ranks())
def test_equation_combine_min_max_is_the_ranked_range(case):
    s, m, k = case
    best = min(max(combined(lam, v, s, m, k) for v in plus(s - lam)) for lam in s)
    assert best == psi(s, m, k)


@given(with_ranks())
def test_equation_combine_measures_lambda_hat_on_the_shifted_losses(case):
    """At lambda = s_[k] the best lambda_hat is s_[m] - lambda; s_[m] itself is no better and often worse."""
    s, m, k = case
    assume(m >= 1)
    lam, upper = thresholds(s, m, k)
    assert combined(lam, upper - lam, s, m, k) == psi(s, m, k)
    assert combined(lam, upper, s, m, k) <= psi(s, m, k)


def test_equation_combine_started_at_the_unshifted_threshold_keeps_too_many():
    s, m, k = np.random.default_rng(2).exponential(size=1000), 50, 400
    lam, upper = thresholds(s, m, k)

    def active(lam_hat):
        return int(((s > lam) & (plus(s - lam) < lam_hat)).sum())

    assert active(upper - lam) == k - m - 1  # strictly between the two cuts
    assert active(upper) > k - m
    assert combined(lam, upper, s, m, k) < psi(s, m, k) - 0.1


# --- Section 4: special cases ---


@given(values)
def test_special_cases_of_section_4(s):
    n, ranked = len(s), sorted(s, reverse=True)
    middle = (ranked[math.floor((n + 1) / 2) - 1] + ranked[math.ceil((n + 1) / 2) - 1]) / 2
    assert ranked_range(s, RankedRange.average()) == pytest.approx(math.fsum(s) / n)
    assert ranked_range(s, RankedRange.maximum()) == max(s)
    assert ranked_range(s, RankedRange.median()) == middle == np.median(s)
    for k in range(1, n + 1):
        assert ranked_range(s, RankedRange.top(k)) == pytest.approx(phi(s, k) / k)
        assert ranked_range(s, RankedRange.trimmed(k - 1)) == pytest.approx(psi(s, k - 1, n) / (n - k + 1))
        assert ranked_range(s, RankedRange.kth(k)) == ranked[k - 1]


@given(with_ranks())
@settings(max_examples=50)
def test_robust_maximum_is_the_best_maximum_without_the_outliers(case):
    """The least maximum over all sets that leave out k - 1 samples is the k-th largest loss."""
    s, outliers, _ = case
    best = min(max(s[list(kept)]) for kept in itertools.combinations(range(len(s)), len(s) - outliers))
    assert ranked_range(s, RankedRange.robust_maximum(outliers)) == best


@given(with_ranks())
def test_equation_aorr_loss_is_a_truncated_individual_loss(case):
    """Fixed cuts turn each loss into clip(s - lam, 0, lam_hat - lam); at the thresholds these sum to psi."""
    s, m, k = case
    lam, lam_hat = thresholds(s, m, k)
    lam_hat = min(lam_hat, s.max())  # where m = 0 any lam_hat from the largest loss on is optimal
    truncated = plus(s - lam) - plus(s - lam_hat)
    np.testing.assert_array_equal(truncated, np.clip(s - lam, 0, lam_hat - lam))
    assert truncated.sum() + k * lam - m * lam_hat == psi(s, m, k)


# --- Section 5: TKML ---

scores = st.lists(st.integers(-12, 12).map(lambda v: v / 4), min_size=2, max_size=8).map(np.array)


@given(scores, st.data())
def test_tkml_is_a_ranked_range_over_labels(f, data):
    top_k = data.draw(st.integers(1, len(f) - 1))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(f), max_size=len(f))))
    assume(mask.any())
    label_losses = plus(1 + f - f[mask].min())
    found = TKML(top_k, two_sided=False).value(mask[None], f[None])[0]
    assert found == ranked_range(label_losses, top_k, top_k + 1)


@given(scores, st.data())
def test_proposition_1_tkml_is_a_lower_bound_of_the_conventional_multi_label_loss(f, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(f), max_size=len(f))))
    assume(mask.any() and not mask.all())
    conventional = max(0.0, 1 + f[~mask].max() - f[mask].min())
    assert TKML(int(mask.sum()), two_sided=False).value(mask[None], f[None])[0] <= conventional


@given(scores, st.data())
def test_tkml_of_one_label_is_the_multi_class_loss_where_the_label_is_ranked_first(f, data):
    """|Y| = k = 1: equal while the true class has the highest score, below the Crammer-Singer loss elsewhere."""
    y = data.draw(st.integers(0, len(f) - 1))
    tkml = TKML(1, two_sided=False).value((np.arange(len(f)) == y)[None], f[None])[0]
    multi_class = max(0.0, 1 + np.delete(f, y).max() - f[y])
    assert tkml == multi_class if f[y] == f.max() else tkml <= multi_class
