"""What is claimed of wrong labels holds, and where labels do not show any, nothing is claimed."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from rankrange import find_label_issues, noise
from rankrange.core.rates import averaged_labels
from rankrange.crossfit.judge import far_rows, odd_rows, weigh


def both(p):
    """Probabilities of two classes from that of the second."""
    return np.column_stack([1.0 - p, p])


def learned(n, rates, seed):
    """Rows of two classes that are apart, their labels, and a model that knows how often it will be contradicted."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 2, n)
    given = np.where(rng.random(n) < np.asarray(rates)[true], 1 - true, true)
    share = np.where(true == 1, 1.0 - rates[1], rates[0])
    return true, given, both(expit(np.log(share + 0.01) - np.log(1.01 - share) + 0.05 * rng.normal(size=n)))


@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.2, 0.2), (0.0, 0.3)])
def test_a_rate_that_a_model_has_learned_is_seen_by_the_order_of_the_rows(rates):
    true, given, P = learned(1500, rates, seed=1)
    found = averaged_labels([P], given)
    wrong = true != given
    assert found.rate == pytest.approx(wrong.mean(), abs=0.03)
    assert found.interval[0] <= wrong.mean() <= found.interval[1]
    likely = found.wrong >= 0.5
    assert found.wrong[likely].mean() == pytest.approx(wrong[likely].mean(), abs=0.15)


def test_classes_that_overlap_are_not_called_wrong():
    flagged = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 2, 800)
        z = 2.0 * (y - 0.5) * 1.5 + rng.normal(size=800)  # 7% lie on the wrong side
        found = weigh({"model": both(expit(3.0 * z))}, y)
        flagged.append(int((found.p_wrong >= 0.5).sum()))
        assert found.interval[0] == 0.0
    assert max(flagged) == 0


def test_as_many_labels_as_are_not_predicted_may_be_wrong():
    """Errors among the hard rows look like hard rows, so the interval must leave room for them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 1000)
    P = both(expit(2.0 * (y - 0.5) + 1.5 * rng.normal(size=1000)))
    assert weigh({"model": P}, y).interval[1] >= (P.argmax(axis=1) != y).mean()


def test_rows_with_levels_of_their_own_do_not_belong():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 3, (300, 4)), rng.normal(size=(300, 2))]).astype(float)
    assert not odd_rows(X).any()
    X[7, :4] = [7.5, -9.25, 6.5, 11.0]
    X[11, 0] = 40.0  # one odd value alone is a problem of that cell
    assert np.flatnonzero(odd_rows(X)).tolist() == [7]
    levels = np.eye(30)[np.r_[rng.integers(0, 3, 297), [27, 28, 29]]]  # a column for each level, three of them rare
    assert not odd_rows(levels).any()


def test_odd_rows_are_claimed_whatever_is_expected_of_their_labels_and_others_stay_untold():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (400, 5)).astype(float), rng.integers(0, 2, 400)  # nothing can be predicted
    X[:20] += rng.uniform(5.0, 9.0, (20, 5))
    issues = find_label_issues(X, y, random_state=0, calibrate=True)
    assert issues.p_wrong[:20].min() >= 0.9
    assert issues.p_wrong[20:].max() < 0.2
    assert set(issues.top(20)["row"].tolist()) == set(range(20))
    assert set(issues["action"].tolist()) == {"drop"}
    assert not (far_rows(X[20:], y[20:])).any()


def test_what_trees_explain_is_no_error_though_a_line_of_your_own_cannot():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (1200, 2))
    y = ((X**2).sum(axis=1) < 0.55).astype(int)
    issues = find_label_issues(X, y, estimator=LogisticRegression(), neighbours=False, random_state=0)
    assert (issues.p_wrong >= 0.5).mean() <= 0.005
    assert issues.noise_interval[0] == 0.0
    assert issues.noise_estimate < 0.01
    alone = find_label_issues(X, y, estimator=LogisticRegression(), neighbours=False, trees=False, random_state=0)
    assert alone.noise_estimate > 0.1
    given = noise.symmetric(y, 0.1, 0)
    issues = find_label_issues(X, given, estimator=LogisticRegression(), neighbours=False, random_state=0)
    likely = issues.p_wrong >= 0.5
    assert likely.sum() > 60
    assert issues.p_wrong[likely].mean() == pytest.approx((given != y)[likely].mean(), abs=0.15)
