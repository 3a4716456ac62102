"""Theorem AR_calibration: does the best score at a point have the sign of the Bayes rule?

At one point x with eta = P(Y = 1 | x) and fixed cuts lam < lam_hat, the score t minimises
eta g(s(t)) + (1 - eta) g(s(-t)) with g(s) = [s - lam]_+ - [s - lam_hat]_+. Losses are scaled to s(0) = 1.

What was found (docs/paper.md): the theorem holds for lam < s(0), for logistic, hinge and the square loss alike; that a
loss is non-increasing is not needed. At lam >= s(0), which its statement allows, it fails for all three.
"""

import itertools

import numpy as np
import pytest

from rankrange import ranked_range, thresholds
from rankrange.core.losses import Hinge, Logistic, Squared

LOSSES = {
    "logistic": lambda t: Logistic().value(np.ones_like(t), t) / np.log(2),
    "hinge": lambda t: Hinge().value(np.ones_like(t), t),
    "square": lambda t: Squared().value(np.ones_like(t), t),
}
# Fine near zero, where a wrong sign would hide, and far out, where the cuts take over. Symmetric, with 0 in it.
POSITIVE = np.unique(np.r_[np.linspace(0, 3, 3001)[1:], np.linspace(3, 60, 2000), np.geomspace(1e-6, 1, 50)])
GRID = np.r_[-POSITIVE[::-1], 0.0, POSITIVE]

every_loss = pytest.mark.parametrize("s", LOSSES.values(), ids=LOSSES.keys())


def signs_of_the_minimisers(s, eta, lam, lam_hat):
    """The signs of all scores on the grid that attain the minimum of the risk at the point."""

    def truncated(loss):
        return np.clip(loss - lam, 0, lam_hat - lam)

    risk = eta * truncated(s(GRID)) + (1 - eta) * truncated(s(-GRID))
    return set(np.sign(GRID[risk <= risk.min() + 1e-12]))


ETAS = [0.51, 0.6, 0.9, 0.999]
LAMS, LAM_HATS = [0.0, 0.2, 0.6, 0.95], [0.1, 0.5, 0.9, 1.0, 1.3, 3.0, 50.0]
BELOW = [(lam, lam_hat) for lam, lam_hat in itertools.product(LAMS, LAM_HATS) if lam < lam_hat]


@every_loss
@pytest.mark.parametrize(("lam", "lam_hat"), BELOW)
def test_theorem_ar_calibration_below_the_loss_at_zero(s, lam, lam_hat):
    """All minimisers have the sign of the Bayes rule. The square loss too, though it is not non-increasing."""
    for eta in ETAS:
        assert signs_of_the_minimisers(s, eta, lam, lam_hat) == {1.0}
        assert signs_of_the_minimisers(s, 1 - eta, lam, lam_hat) == {-1.0}


def test_theorem_ar_calibration_does_not_need_a_non_increasing_loss():
    """For convex s with s'(0) < 0 the right sign is never worse, so the paper's counter-example is none.

    Let t' > 0 minimise s. Up to t', s(t) <= s(-t), so turning a wrong sign round helps. Beyond it s(-t) >= s(-t') and
    s(t) >= s(t'): the score t' is at least as good as the wrong sign. A loss far steeper on the right side shows it.
    """

    def steep(t):
        return np.maximum(1 - t, 1 + 20 * (t - 0.5))

    assert steep(np.array(2.0)) > steep(np.array(-2.0))  # here a confident right answer costs more than a wrong one
    for (lam, lam_hat), eta in itertools.product(BELOW, ETAS):
        if lam_hat > 0.55:  # below, the smallest loss of `steep` is above lam_hat and every score costs the same
            assert signs_of_the_minimisers(steep, eta, lam, lam_hat) == {1.0}


def test_square_loss_counts_a_confident_right_answer_as_an_outlier():
    """What does go wrong with the square loss: truncated, it is no longer monotone in the margin."""
    lam, lam_hat = 0.4, 1.3

    def cost(name, t):
        return float(np.clip(LOSSES[name](np.array([t])) - lam, 0, lam_hat - lam)[0])

    assert cost("square", 3.0) == cost("square", -3.0) == pytest.approx(lam_hat - lam)
    for name in ("logistic", "hinge"):
        costs = [cost(name, t) for t in np.linspace(-5, 5, 101)]
        assert (np.diff(costs) <= 1e-15).all()


@every_loss
@pytest.mark.parametrize("lam_hat", [1.1, 2.0, 50.0])
def test_theorem_ar_calibration_fails_where_lambda_is_the_loss_at_zero(s, lam_hat):
    """lam = s(0): the score 0 costs nothing and every other score something. No minimiser has the right sign."""
    for eta in ETAS:
        assert signs_of_the_minimisers(s, eta, 1.0, lam_hat) == {0.0}


@every_loss
@pytest.mark.parametrize(("lam", "lam_hat"), [(1.1, 1.2), (1.1, 5.0), (3.0, 4.0)])
def test_theorem_ar_calibration_is_empty_where_lambda_is_above_the_loss_at_zero(s, lam, lam_hat):
    """lam > s(0): small scores of either sign cost nothing. A right minimiser exists, and so does a wrong one."""
    for eta in ETAS:
        assert signs_of_the_minimisers(s, eta, lam, lam_hat) == {-1.0, 0.0, 1.0}


@every_loss
def test_theorem_ar_calibration_fails_where_k_is_below_the_bayes_error(s):
    """The case above is not far-fetched: lam reaches s(0) as soon as k/n is at most the Bayes error.

    Two points: eta = .6 with mass .8 and eta = .5 with mass .2, so a Bayes error of .42; m/n = .1 and k/n = .3. The
    best scores move the second point out, where the cut takes its wrong half, and leave the first at 0.
    """
    mass = np.array([0.8 * 0.6, 0.8 * 0.4, 0.1, 0.1])
    out = 1.0

    def losses(first, second):
        return s(np.array([first, -first, second, -second]))

    def objective(first, second):
        return ranked_range(losses(first, second), 0.1, 0.3, sample_weight=mass, reduction="sum")

    scores = np.linspace(-3, 3, 61)
    found = {(a, b): objective(a, b) for a in scores for b in scores}
    assert objective(0.0, out) == pytest.approx(min(found.values()), abs=1e-12)
    assert objective(0.0, out) == pytest.approx(0.2)
    lam, lam_hat = thresholds(losses(0.0, out), 0.1, 0.3, sample_weight=mass)
    assert lam == pytest.approx(1.0, abs=1e-15)
    assert lam_hat > lam  # all that the theorem asks for
    assert signs_of_the_minimisers(s, 0.6, lam, lam_hat) == {0.0}
