"""Where the paper's text goes wrong: the items of docs/paper.md that need no solver, each shown to fail and put right.

Items that belong to a theorem (the sub-gradient rule, ties in Theorem 1, the bilevel form, calibration, the start of
lambda_hat) are beside that theorem in test_theorems.py and test_calibration.py.
"""

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.metrics import label_ranking_average_precision_score

from rankrange import ThresholdRange, range_weights, ranked_range, thresholds
from rankrange.core.losses import Logistic

# --- Item 2: the stochastic inner loop of Algorithm 1 ---


def walk_of_lambda(losses, target, steps=20_000, seed=0):
    """lambda <- lambda - step (target - I[s_i > lambda]) on random samples, steps 1/sqrt(l)."""
    rng, lam, path = np.random.default_rng(seed), 0.0, []
    for step, i in enumerate(rng.integers(len(losses), size=steps), start=1):
        lam -= (target - (losses[i] > lam)) / np.sqrt(step)
        path.append(lam)
    return np.array(path)


def test_lambda_step_as_printed_runs_to_minus_infinity():
    losses, k = np.random.default_rng(1).exponential(size=200), 60
    path = walk_of_lambda(losses, k)
    assert (np.diff(path) <= 0).all()  # k - I is never negative
    assert path[-1] < -1000


def test_lambda_step_scaled_by_n_finds_the_threshold():
    losses, k = np.random.default_rng(1).exponential(size=200), 60
    path = walk_of_lambda(losses, k / len(losses))
    assert path[-5000:].mean() == pytest.approx(thresholds(losses, 0, k)[0], abs=0.1)


def test_theta_step_needs_the_same_factor():
    """The mean of the printed theta step is no gradient of the sub-problem; with theta_hat / n it is, up to 1/n."""
    rng = np.random.default_rng(2)
    X, y, loss, m, k = rng.normal(size=(40, 3)), rng.choice([-1.0, 1.0], size=40), Logistic(), 5, 30
    theta, anchor = rng.normal(size=3), rng.normal(size=3)
    theta_hat = X.T @ _weighted_slopes(loss, y, X @ anchor, 0, m)
    s, slope = loss.value_and_derivative(y, X @ theta)
    lam = thresholds(s, 0, k + 1)[0]  # between ranks k and k + 1 the indicator selects k samples
    sampled = (X * (slope * (s > lam))[:, None]).mean(axis=0)
    gradient = X.T @ _weighted_slopes(loss, y, X @ theta, 0, k) - theta_hat
    np.testing.assert_allclose(sampled - theta_hat / len(y), gradient / len(y), atol=1e-12)
    printed = sampled - theta_hat
    cosine = printed @ gradient / np.linalg.norm(printed) / np.linalg.norm(gradient)
    assert cosine < 0.999


def _weighted_slopes(loss, y, z, m, k):
    s, slope = loss.value_and_derivative(y, z)
    return range_weights(s, m, k) * slope


# --- Item 4: operation 2 of Algorithm 2 ---


@pytest.mark.parametrize("heavy", ["exponential", "logistic loss of a noisy fit"])
def test_operation_2_gives_a_lower_cut_that_cuts_nothing(heavy):
    """mean - 2 std of losses with a long tail is negative, so that k = n and only trimming is left."""
    rng = np.random.default_rng(3)
    if heavy == "exponential":
        losses = rng.exponential(size=5000)
    else:  # 20% wrong labels on a model that separates the rest
        margins = np.abs(rng.normal(3, 1, size=5000)) * np.where(rng.random(5000) < 0.2, -1, 1)
        losses = Logistic().value(np.ones(5000), margins)
    lam_hat, lam = losses.mean() + losses.std(), losses.mean() - 2 * losses.std()
    assert lam < 0
    m, k = ThresholdRange(lam, lam_hat).counts(losses)
    assert k == len(losses)
    assert 0 < m < k


# --- Item 5: theta = 0 ---


def two_classes():
    rng = np.random.default_rng(4)
    y = np.repeat([-1.0, 1.0], 30)
    return rng.normal(size=(60, 2)) + 0.4 * y[:, None], y


def test_theta_zero_is_critical_for_dca():
    """At theta = 0 all losses tie. Where the tangent of phi_m is a sub-gradient of phi_k, as here, exact DCA stays."""
    (X, y), m, k = two_classes(), 10, 30
    n = len(y)
    gradients = -y[:, None] * X / 2  # of log(1 + exp(-y x.theta)) at 0
    tangent = (m / n) * gradients.sum(axis=0)
    weights = linprog(
        np.zeros(n), A_eq=np.vstack([gradients.T, np.ones(n)]), b_eq=np.r_[tangent, k], bounds=[(0, 1)] * n
    )
    assert weights.success  # q in [0, 1] with sum k and sum of q_i gradient_i equal to the tangent


def test_theta_zero_is_no_minimum():
    (X, y), m, k = two_classes(), 10, 30
    at_zero = ranked_range(Logistic().value(y, np.zeros(60)), m, k)
    assert at_zero == pytest.approx(np.log(2))
    direction = (y[:, None] * X).mean(axis=0)
    along = [ranked_range(Logistic().value(y, X @ (step * direction)), m, k) for step in (1e-4, 1e-3, 1e-2, 0.1)]
    assert (np.diff([at_zero, *along]) < 0).all()


# --- Item 6: average precision ---


def average_precision(true, scores, counts):
    """Section 5's formula for one row; `counts(rank, rank of j)` says which true labels count for label j."""
    rank = np.argsort(np.argsort(-scores)) + 1
    return np.mean([counts(rank[true], j).sum() / j for j in rank[true]])


def test_average_precision_as_printed_gives_nothing_to_a_perfect_ranking_of_one_label():
    rng = np.random.default_rng(5)
    scores, true = rng.normal(size=6), np.array([True, False, True, False, False, True])
    usual = label_ranking_average_precision_score(true[None], scores[None])
    assert average_precision(true, scores, np.less_equal) == pytest.approx(usual, rel=1e-12)
    perfect, one = np.array([3.0, 2.0, 1.0]), np.array([True, False, False])
    assert average_precision(one, perfect, np.less) == 0.0
    assert average_precision(one, perfect, np.less_equal) == 1.0


# --- The loss of section 5 where a sample has more than k true labels ---


def test_tkml_as_printed_rewards_pulling_scores_together_where_there_are_more_true_labels_than_k():
    """The paper's form then costs at least 1 however good the scores; equal scores reach 1. The two-sided form is 0."""
    from rankrange.core.losses import TKML

    y = np.array([[True, True, True, False]])
    perfect, equal = np.array([[9.0, 8.0, 7.0, -9.0]]), np.zeros((1, 4))
    paper, two_sided = TKML(1, two_sided=False), TKML(1)
    assert paper.value(y, perfect)[0] == 2.0
    assert paper.value(y, equal)[0] == 1.0
    assert two_sided.value(y, perfect)[0] == 0.0
    assert two_sided.value(y, equal)[0] == 1.0
