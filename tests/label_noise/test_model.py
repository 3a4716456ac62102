"""LabelNoiseModel: tested by what probabilities must satisfy, on predictions whose truth is known."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn.model_selection import cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from definitions import slow
from rankrange.label_noise import Costs, LabelNoiseModel, NoisePrior, actions
from rankrange.label_noise.high_leverage import high_leverage_labels


def table(n, n_classes=2, margin=4.0, rates=0.0, seed=0, overlap=0.0):
    """Calibrated predictions of noisy labels: true classes with log odds of about `margin`, flipped at `rates`."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, n_classes, n)
    logits = (0.3 + overlap) * rng.normal(size=(n, n_classes))
    logits[np.arange(n), true] += margin * np.exp(0.5 * rng.normal(size=n))
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    true = (rng.random((n, 1)) > np.cumsum(P, axis=1)[:, :-1]).sum(axis=1)
    rates = np.broadcast_to(rates, n_classes)
    T = np.where(np.eye(n_classes) == 1, 1 - rates[:, None], rates[:, None] / (n_classes - 1))
    given = (rng.random((n, 1)) > np.cumsum(T[true], axis=1)[:, :-1]).sum(axis=1)
    return P @ T, true, given


def skill(p_wrong, wrong):
    """1 is certainty of the truth, 0 what the share alone gives, negative is misleading: by log loss over all rows."""

    def loss(p):
        p = np.clip(p, 1e-6, 1 - 1e-6)
        return -np.mean(np.where(wrong, np.log(p), np.log(1 - p)))

    return 1 - loss(p_wrong) / loss(np.full(len(wrong), wrong.mean()))


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("rate", [0.05, 0.2, 0.35])
def test_planted_errors_are_flagged_and_the_share_is_in_its_interval(n_classes, rate):
    P, true, given = table(1000, n_classes, margin=8.0, rates=rate, seed=3)
    posterior = LabelNoiseModel().fit({"model": P}, given)
    wrong = given != true
    assert skill(posterior.p_wrong, wrong) > 0.6
    # Somebody who knows the true rate and the clean predictions flags what is contradicted: rows that are hard are not.
    clear = wrong & (P.argmax(axis=1) == true) & (P.max(axis=1) > 0.9 * (1 - rate))
    assert (posterior.p_wrong[clear] >= 0.5).mean() > 0.7
    assert posterior.interval[0] <= wrong.mean() <= posterior.interval[1]


@pytest.mark.parametrize(("n_classes", "overlap"), [(2, 0.0), (2, 1.5), (2, 3.0), (5, 0.0), (5, 1.0)])
def test_clean_labels_are_not_flagged(n_classes, overlap):
    P, _, given = table(800, n_classes, margin=3.0, overlap=overlap, seed=5)
    posterior = LabelNoiseModel().fit({"model": P}, given)
    assert (posterior.p_wrong >= 0.5).mean() <= 0.005
    assert -np.log1p(-posterior.p_wrong).mean() <= 0.03
    assert posterior.interval[0] == 0.0


def test_a_class_with_noise_of_its_own_is_found_and_the_transition_says_which():
    P, true, given = table(1500, 6, margin=8.0, rates=[0.0, 0.0, 0.3, 0.0, 0.0, 0.0], seed=1)
    posterior = LabelNoiseModel().fit({"model": P}, given)
    wrong = given != true
    assert (posterior.p_wrong[wrong] >= 0.5).mean() > 0.8
    rates = 1 - posterior.transition.diagonal()
    assert rates.argmax() == 2
    assert 0.15 < rates[2] < 0.4  # truth .3: the rate of a single class comes out too low
    assert np.delete(rates, 2).max() < 0.05


def test_noise_towards_one_class_is_learnt_as_such():
    P, true, _ = table(1500, 4, margin=5.0, seed=2)
    rng = np.random.default_rng(0)
    given = np.where((true == 1) & (rng.random(1500) < 0.4), 3, true)
    P[:, 3] += 0.4 * P[:, 1]
    P[:, 1] *= 0.6
    T = LabelNoiseModel().fit({"model": P}, given).transition
    assert T[1, 3] > 3 * max(T[1, 0], T[1, 2])


@pytest.mark.parametrize("n_classes", [2, 4])
def test_uninformative_predictions_say_little_about_the_share(n_classes):
    """Predictions that tell nothing about the labels are no proof of clean labels: the interval is wide and has 0."""
    rng = np.random.default_rng(1)
    P = rng.dirichlet(np.full(n_classes, 40), 600)
    posterior = LabelNoiseModel().fit({"model": P}, rng.integers(0, n_classes, 600))
    low, high = posterior.interval
    assert low == 0.0
    assert high > 0.2
    assert 0.05 < posterior.share < high
    assert np.ptp(posterior.p_wrong) < 0.5


@pytest.mark.parametrize("seed", range(4))
def test_errors_that_hide_the_classes_are_not_called_clean(seed):
    """40% wrong labels leave almost no information in few rows. The log loss stays near that of the true share."""
    P, true, given = table(250, 2, margin=1.5, rates=0.4, seed=seed)
    posterior = LabelNoiseModel().fit({"model": P}, given)
    assert skill(posterior.p_wrong, given != true) > -0.4


@pytest.mark.parametrize("n", [50, 1000, 20_000])
def test_if_no_label_contradicts_its_prediction_three_may_still_be_wrong(n):
    codes = np.arange(n) % 2
    P = np.where(codes[:, None] == np.arange(2), 0.9999, 0.0001)
    found = LabelNoiseModel().fit({"model": P}, codes)
    assert found.interval[0] == 0.0
    assert found.interval[1] >= found.share + 3.0 / n


def test_few_labels_of_a_class_bound_the_share():
    """Wrong labels of the majority would be labels of the minority, so there are at most as many of them."""
    rng = np.random.default_rng(0)
    given = (rng.random(1000) < 0.02).astype(int)
    posterior = LabelNoiseModel().fit({"model": np.tile([0.98, 0.02], (1000, 1))}, given)
    assert posterior.share < 0.05
    assert posterior.interval[1] < 0.08


def test_posteriors_are_probabilities_and_agree_with_each_other():
    P, _, given = table(500, 3, rates=0.1)
    posterior = LabelNoiseModel().fit({"a": P, "b": np.full_like(P, 1 / 3)}, given)
    np.testing.assert_allclose(posterior.p_true.sum(axis=1), 1.0)
    np.testing.assert_allclose(posterior.p_wrong, 1 - posterior.p_true[np.arange(500), given])
    np.testing.assert_allclose(posterior.transition.sum(axis=1), 1.0)
    assert posterior.interval[0] <= posterior.share <= posterior.interval[1]
    assert posterior.interval[1] >= posterior.contradicted
    assert sum(posterior.weights.values()) == pytest.approx(1.0)
    assert posterior.weights["b"] < 0.05  # uninformative members get no weight
    assert posterior.gains["a"] > 100 > posterior.gains["b"]


def test_predict_gives_the_rows_of_the_fit_what_the_fit_gave_them():
    P, _, given = table(400, 3, rates=0.15)
    posterior = LabelNoiseModel().fit({"model": P}, given)
    light = pickle.loads(pickle.dumps(posterior.without_rows()))
    found = light.predict({"model": P[:50]}, given[:50])
    np.testing.assert_allclose(found.p_wrong, posterior.p_wrong[:50])
    np.testing.assert_allclose(found.p_true, posterior.p_true[:50])
    with pytest.raises(ValueError, match="members of the fit"):
        light.predict({"other": P}, given)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_weights_are_repetition_and_order_does_not_matter(seed, n_classes):
    P, _, codes = table(240, n_classes, rates=0.1, seed=seed)
    rng = np.random.default_rng(seed)
    Q = 0.5 * P.round(1) + 0.5 / n_classes  # another member, with many ties
    weight, model = rng.integers(0, 3, 240), LabelNoiseModel()
    weighted = model.fit({"one": P, "other": Q}, codes, weight)
    rows = rng.permutation(np.repeat(np.arange(240), weight))
    repeated = model.fit({"one": P[rows], "other": Q[rows]}, codes[rows])
    np.testing.assert_allclose(repeated.p_wrong, weighted.p_wrong[rows], atol=1e-6)
    assert weighted.share == pytest.approx(repeated.share)
    assert weighted.interval == pytest.approx(repeated.interval, abs=1e-6)
    assert weighted.weights == pytest.approx(repeated.weights)
    assert weighted.gains == pytest.approx(repeated.gains, rel=1e-3)
    assert sum(weighted.weights.values()) == pytest.approx(1.0)


def test_names_of_classes_and_names_and_order_of_members_do_not_matter():
    P, _, given_labels = table(500, 4, rates=[0.3, 0.0, 0.1, 0.0])
    order = np.array([2, 0, 3, 1])
    members = {"sharp": P, "blurred": 0.5 * P + 0.5 / 4, "rounded": P.round(1) + 1e-3}
    one = LabelNoiseModel().fit(members, given_labels)
    turned = {f"another {name}": members[name][:, order] for name in reversed(members)}
    other = LabelNoiseModel().fit(turned, np.argsort(order)[given_labels])
    assert {name.removeprefix("another "): w for name, w in other.weights.items()} == pytest.approx(
        one.weights, abs=1e-6
    )
    np.testing.assert_allclose(other.p_wrong, one.p_wrong, atol=1e-6)
    np.testing.assert_allclose(other.transition, one.transition[np.ix_(order, order)], atol=1e-6)


@pytest.mark.parametrize("tables", [20, *slow(80)])
def test_labels_are_wrong_as_often_as_p_wrong_states_at_both_ends_and_more_often_the_larger_it_is(tables):
    """The rows of tables with 2 to 5 classes, from clear to overlapping, up to 30% wrong."""
    rng, found = np.random.default_rng(0), []
    for seed in range(tables):
        n_classes, rate = int(rng.choice([2, 3, 5])), float(rng.choice([0.0, 0.02, 0.05, 0.1, 0.2, 0.3]))
        margin, overlap = rng.uniform(2.5, 8.0), rng.uniform(0.0, 1.5)
        P, true, given = table(400, n_classes, margin, rate, 1000 + seed, overlap)
        found.append((LabelNoiseModel().fit({"model": P}, given).p_wrong, given != true))
    p_wrong, wrong = (np.concatenate(part) for part in zip(*found, strict=True))
    sure, likely = p_wrong < 0.01, p_wrong >= 0.8
    assert sure.mean() > 0.4
    assert wrong[sure].mean() <= 0.01
    assert wrong[likely].mean() >= 0.8
    assert 0.5 * wrong.sum() <= p_wrong.sum() <= 1.5 * wrong.sum()
    group = np.digitize(p_wrong, [0.01, 0.05, 0.2, 0.5, 0.8])
    assert (np.diff([wrong[group == g].mean() for g in range(6)]) > 0).all()


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6))
def test_more_wrong_labels_give_a_larger_share(seed):
    """The same rows and predictions; labels that are wrong stay wrong when more of them are."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, 600)
    logits = 0.5 * rng.normal(size=(600, 3)) + 6.0 * np.eye(3)[true]
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    turn, other = rng.random(600), (true + rng.integers(1, 3, 600)) % 3
    shares = [
        LabelNoiseModel().fit({"model": P}, np.where(turn < rate, other, true)).share for rate in (0.0, 0.05, 0.15, 0.3)
    ]
    assert (np.diff(shares) > 0.02).all()


@pytest.mark.parametrize("seed", range(3))
def test_errors_of_one_pair_of_classes_are_not_a_hard_class(seed):
    """Wrong labels that lead to one class, whatever the features are, are found however many there are."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, 600)
    X = rng.normal(size=(600, 2)) + np.array([[0, 0], [3, 0], [0, 3]])[true]
    logits = 3.0 * np.column_stack([np.full(600, 1.5), X])
    P = softmax(logits, axis=1)
    order, clear = rng.permutation(np.flatnonzero(true == 0)), P[:, 0] > 0.9
    for n in (40, 60, 80, 100):
        given = true.copy()
        given[order[:n]] = 1
        posterior = LabelNoiseModel().fit({"model": P}, given)
        wrong = (given != true) & clear
        assert (posterior.p_wrong[wrong] > 0.5).mean() > 0.8
        assert posterior.no_error < 0.2
        assert abs(posterior.share - n / 600) < 0.05


def test_predictions_that_do_not_know_the_second_class_are_rarely_evidence_of_noise():
    """The leaves of a tree give 0 or 1: where its hard rows lead is known by the labels of the class only.

    In two of twelve draws right labels are flagged.
    """
    flagged = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        y = rng.integers(0, 6, 900)
        X = rng.normal(size=(900, 4)) + 1.6 * rng.normal(size=(6, 4))[y]
        P = cross_val_predict(DecisionTreeClassifier(random_state=0), X, y, method="predict_proba")
        flagged.append((LabelNoiseModel().fit({"tree": P}, y).p_wrong >= 0.5).mean())
    assert np.sum(np.array(flagged) < 0.02) >= 10
    assert max(flagged) < 0.3


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6))
def test_the_share_is_the_mean_of_p_wrong_by_weight(seed):
    P, _, codes = table(300, 3, rates=0.2, seed=seed)
    weight = np.random.default_rng(seed).exponential(size=300)
    posterior = LabelNoiseModel().fit({"model": P}, codes, weight)
    assert posterior.share == pytest.approx(np.average(posterior.p_wrong, weights=weight))


@pytest.mark.parametrize(
    ("rate", "second"), [(0.1, False), (0.0, True), *slow((0.0, False), (0.3, False), (0.1, True), (0.3, True))]
)
def test_one_label_moves_the_others_by_little(rate, second):
    """With a second member a label also moves the weights; in a clean table the first wrong labels say the most."""
    P, true, given_labels = table(400, 2, margin=2.0, overlap=1.0, rates=rate, seed=7)
    model, rng = LabelNoiseModel(), np.random.default_rng(0)
    members = {"a": P}
    if second:
        members["b"] = np.column_stack([1.0 - true, true]) * 0.5 + 0.5 * rng.dirichlet([2.0, 2.0], 400)
    before, moved = model.fit(members, given_labels).p_wrong, []
    for row in rng.choice(400, 20, replace=False):
        flipped = given_labels.copy()
        flipped[row] = 1 - flipped[row]
        change = np.abs(model.fit(members, flipped).p_wrong - before)
        moved.append(np.delete(change, row).max())
    assert np.median(moved) <= 0.05
    assert second or rate == 0.0 or np.quantile(moved, 0.9) <= 0.05


@pytest.mark.parametrize("n_classes", [2, 3])
def test_p_wrong_does_not_jump_where_the_predicted_class_changes(n_classes):
    """The curves of two classes do not meet at equal probabilities, so p_wrong moved by up to .5 there."""
    P, _, codes = table(600, n_classes, margin=2.0, overlap=1.0, rates=np.linspace(0.0, 0.3, n_classes), seed=1)
    posterior = LabelNoiseModel().fit({"m": P}, codes)
    for label in range(n_classes):
        sides = [np.append([0.4 + step, 0.4 - step], np.full(n_classes - 2, 0.2)) for step in (-1e-6, 1e-6)]
        sides = np.array(sides) / np.sum(sides[0])
        p_wrong = posterior.predict({"m": sides}, np.full(2, label)).p_wrong
        assert abs(p_wrong[0] - p_wrong[1]) < 1e-3


def test_rows_without_a_prediction_get_the_share():
    P, _, given_labels = table(300, 2, rates=0.1)
    P[7] = np.nan
    posterior = LabelNoiseModel().fit({"m": P}, given_labels)
    assert posterior.p_wrong[7] == pytest.approx(posterior.share)
    assert np.isfinite(posterior.p_wrong).all()


def test_a_prior_without_no_error_is_never_sure_of_clean_labels():
    P, _, given_labels = table(300, 2)
    assert LabelNoiseModel(NoisePrior(no_error=0.0)).fit({"m": P}, given_labels).no_error < 0.9
    assert LabelNoiseModel().fit({"m": P}, given_labels).no_error > 0.5


def test_actions_are_those_of_least_expected_cost():
    p = np.linspace(0, 1, 201)
    for drop, review in ((1.0, 0.2), (4.0, 0.1), (0.25, 0.05)):
        costs = Costs(drop, review)
        found = actions(p, np.zeros_like(p), costs)
        keep, change = p, drop * (1 - p)
        changed = np.isin(found, ["drop", "relabel"])
        assert (change[changed] <= keep[changed] + 1e-9).all()
        assert (change[~changed] >= keep[~changed] - 1e-9).all()
        assert (keep[found == "look"] >= review - 1e-9).all()
        assert (keep[found == ""] <= max(review, 0) + 1e-9).all()
    for costs in (Costs(), Costs(4.0, 0.1), Costs(0.1, 2.0)):  # a review that costs more than dropping is not asked for
        np.testing.assert_array_equal(actions(p, np.zeros_like(p), costs) != "", p >= costs.review_from)
    for costs in (None, Costs(0.1, 2.0), Costs(review=0.05)):  # what a review costs does not make a class sure
        assert actions(np.array([0.9, 0.6]), np.array([0.9, 0.55]), costs).tolist() == ["relabel", "drop"]


def test_high_leverage_labels_are_mostly_right_or_mostly_wrong():
    P = np.column_stack([np.full(20, 0.1), np.full(20, 0.9)])
    agreeing = high_leverage_labels(P, np.ones(20, dtype=int), np.zeros(20))
    contradicting = high_leverage_labels(P, np.zeros(20, dtype=int), np.zeros(20))
    assert agreeing[0].max() < 0.1
    assert contradicting[0].min() > 0.9
    assert contradicting[2][0] <= contradicting[1] <= contradicting[2][1]


def test_high_leverage_rows_with_the_predicted_labels_are_like_the_others():
    """With 20% noise elsewhere, high-leverage rows were given a rate of 0 or a rate near 1 instead."""
    rng = np.random.default_rng(0)
    P = np.column_stack(
        [np.full(40, 0.2), np.full(40, 0.8)]
    )  # the predictions know that a fifth of the labels is wrong
    codes = (rng.random(40) < 0.8).astype(int)
    usual = np.where(codes == 0, 0.95, 0.01)
    p_wrong, share, (low, high) = high_leverage_labels(P, codes, usual)
    np.testing.assert_allclose(p_wrong, usual, atol=0.03)
    assert low <= share <= high


def test_intervals_of_the_rate_of_high_leverage_labels_cover_it():
    """Rates are drawn as the prior has them: none wrong in most tables, otherwise mostly wrong."""
    rng, covered = np.random.default_rng(0), []
    for _ in range(300):
        rate = 0.0 if rng.random() < 0.9 else rng.beta(9.0, 1.0)
        P = np.where(np.arange(2), 0.1, 0.9) * np.ones((6, 1))
        true = (rng.random(6) < 0.1).astype(int)
        _, share, (low, high) = high_leverage_labels(P, np.where(rng.random(6) < rate, 1 - true, true), np.zeros(6))
        assert low <= share <= high
        covered.append(low - 0.03 <= rate <= high + 0.03)  # the grid of rates has steps of 0.03
    assert np.mean(covered) > 0.9


def test_overconfident_predictions_are_not_taken_for_uninformative_ones():
    """A network that was trained on the labels is certain of most of them; what it contradicts is still wrong."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 2, 1000)
    given_labels = np.where(np.arange(1000) < 200, 1 - true, true)
    own = 1 / (1 + np.exp(-np.abs(rng.normal(5, 2, 1000))))
    P = np.where(true[:, None] == np.arange(2), own[:, None], 1 - own[:, None])
    posterior = LabelNoiseModel().fit({"network": P}, given_labels)
    assert (posterior.p_wrong[:200] >= 0.5).mean() > 0.9
    assert posterior.share == pytest.approx(0.2, abs=0.03)


def test_many_rows_distinguish_a_probability_of_one_in_ten_thousand_from_one_in_a_thousand():
    """The more certain a calibrated prediction is, the more likely another label is wrong."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 30_000)
    given = np.where(rng.random(30_000) < 0.1, rng.integers(0, 3, 30_000), true)
    certainty = rng.choice([0.9, 0.99, 0.999, 0.9999], 30_000)
    hard = rng.random(30_000) > certainty  # calibrated: this often another class is the true one
    predicted = np.where(hard, (true + 1) % 3, true)
    P = np.repeat((0.5 * (1.0 - certainty))[:, None], 3, axis=1)
    P[np.arange(30_000), predicted] = certainty
    p_wrong = LabelNoiseModel().fit({"model": P}, given).p_wrong
    other = given != predicted
    at = [other & (certainty == level) for level in (0.9, 0.99, 0.999, 0.9999)]
    levels = [p_wrong[rows].mean() for rows in at]
    assert (np.diff(levels) > 0.0).all()
    np.testing.assert_allclose(levels[1:], [(given != true)[rows].mean() for rows in at[1:]], atol=0.03)


def test_without_information_the_posterior_is_bayes_rule_with_the_class_frequencies():
    """If predictions hold no information, the true class given a label depends on frequencies and transition alone."""
    codes = np.random.default_rng(0).choice(2, 900, p=[0.8, 0.2])
    labels = np.bincount(codes) / len(codes)
    P = np.tile(labels, (len(codes), 1))
    prior = NoisePrior(no_error=0.0, shared_rate=1.0, rate_decay=1e-4, unpredictable=1.0)  # the rate is .003
    found = LabelNoiseModel(prior).fit({"model": P}, codes)
    T = np.array([[0.997, 0.003], [0.003, 0.997]])
    np.testing.assert_allclose(found.transition, T, atol=1e-9)
    joint = np.linalg.solve(T.T, labels)[:, None] * T  # (true, given); the frequencies before the errors
    np.testing.assert_allclose(found.p_true, (joint / joint.sum(axis=0)).T[codes], atol=1e-4)
    assert found.p_wrong[codes == 1].mean() > found.p_wrong[codes == 0].mean() > 0.0  # rare labels are wrong more often


@pytest.mark.parametrize(
    "settings_of_prior",
    [
        {"surprises": 0.0},
        {"surprises": 0.5},
        {"no_error": -0.1},
        {"unpredictable": 2.0},
        {"rate_decay": 0.0},
        {"class_sd": 0.0},
        {"steepness_sd": np.nan},
    ],
)
def test_a_prior_that_is_no_distribution_is_refused_by_the_name_of_its_parameter(settings_of_prior):
    """Such a prior gave a share of NaN with the interval (0, 0)."""
    with pytest.raises(ValueError, match=next(iter(settings_of_prior))):
        NoisePrior(**settings_of_prior)


@pytest.mark.parametrize("rate_decay", [1e-6, 1e-3, 1e3])
def test_every_positive_decay_of_the_rates_is_a_prior(rate_decay):
    """With a very fast decay all rates underflowed, and the posterior was NaN."""
    P, _, codes = table(300, 2, margin=2.0, overlap=1.0, rates=0.1, seed=0)
    posterior = LabelNoiseModel(NoisePrior(rate_decay=rate_decay)).fit({"m": P}, codes)
    assert 0.0 <= posterior.interval[0] <= posterior.share <= posterior.interval[1] <= 1.0
    assert np.isfinite(posterior.p_wrong).all()


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
    found = LabelNoiseModel().fit({"model": P}, given)
    wrong = true != given
    assert found.share == pytest.approx(wrong.mean(), abs=0.03)
    assert found.interval[0] <= wrong.mean() <= found.interval[1]
    likely = found.p_wrong >= 0.5
    assert found.p_wrong[likely].mean() == pytest.approx(wrong[likely].mean(), abs=0.2)


P50, _, CODES = table(50)


@pytest.mark.parametrize(
    ("predictions", "codes", "weight", "message"),
    [
        ({"a": np.ones((50, 1))}, CODES, None, "at least two classes, got 1"),
        ({"a": P50, "b": P50[:, :1]}, CODES, None, "one shape"),
        ({"a": P50, "b": 3.0 * P50}, CODES, None, r"must be probabilities.* of 'b'; convert"),
        ({"a": P50, "b": np.log(P50)}, CODES, None, r"must be probabilities.* of 'b'; convert"),
        ({"a": P50}, CODES, np.zeros(50), "positive weight"),
        ({"a": P50}, CODES, np.ones(5), "weight must have one number per label"),
        ({"a": P50}, CODES - 1, None, "codes must be integers from 0 to 1"),
        ({"a": P50}, CODES + 1, None, "codes must be integers from 0 to 1"),
        ({"a": P50}, CODES.astype(float), None, "codes must be integers from 0 to 1"),
        ({"a": P50}, CODES.astype(str), None, "codes must be integers from 0 to 1"),
    ],
)
def test_hostile_input_is_an_error_that_says_what_is_wrong(predictions, codes, weight, message):
    with pytest.raises(ValueError, match=message):
        LabelNoiseModel().fit(predictions, codes, weight)
    if weight is None and len(predictions) == 1 and P50 is predictions["a"]:
        with pytest.raises(ValueError, match=message):
            LabelNoiseModel().fit({"a": P50}, CODES).predict(predictions, codes)


def test_arguments_of_another_type_are_refused_by_name():
    with pytest.raises(TypeError, match="predictions must be a mapping"):
        LabelNoiseModel().fit(P50, CODES)
    with pytest.raises(TypeError, match="prior must be a NoisePrior"):
        LabelNoiseModel(prior={"no_error": 0.5})
    with pytest.raises(ValueError, match="drop_cost must be a positive"):
        Costs(drop=0.0)


def test_the_interval_includes_errors_of_a_class_that_lost_most_of_its_labels():
    """Three quarters of the third class have the label of the second one, so models agree with the wrong labels."""
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 900)
    given_labels = np.where((true == 2) & (rng.random(900) < 0.75), 1, true)
    P = np.full((900, 3), 0.02)
    P[true == 0, 0] = 0.96
    P[true == 1, 1] = 0.96
    P[true == 2] = [0.02, 0.74, 0.24]
    posterior = LabelNoiseModel().fit({"model": P}, given_labels)
    wrong = (given_labels != true).mean()
    assert posterior.contradicted < 0.5 * wrong
    assert posterior.interval[0] <= wrong <= posterior.interval[1]
