"""Partial AUC: metric, pair objective, solver, estimator and torch loss against their definitions over all pairs."""

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import roc_auc_score, roc_curve
from sklearn.model_selection import StratifiedKFold

from rankrange import PartialAUCClassifier
from rankrange.core.objective import Design
from rankrange.core.pairs import Masses, PairObjective, squared_hinge_sums
from rankrange.metrics import partial_auc_score
from rankrange.solvers.pairwise import solve_pairs

RATES = [((0.0, 1.0), (0.0, 1.0)), ((0.0, 0.3), (0.0, 1.0)), ((0.13, 0.61), (0.0, 1.0)), ((0.0, 0.5), (0.37, 0.9))]


def squared_hinge(t):
    return np.maximum(0, 1 - t) ** 2


def two_classes(n=120, d=4, lift=1.5, seed=0, share=0.3):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < share
    y[:2] = False, True
    X = rng.normal(size=(n, d))
    X[y, :2] += lift
    return X, y


# The metric


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(1, 3)), min_size=2, max_size=25),
    st.floats(0.01, 1.0),
)
def test_from_zero_the_score_is_that_of_scikit_learn_with_ties_and_weights(rows, hi):
    y, score, weight = (np.array(column) for column in zip(*rows, strict=True))
    if y.all() or not y.any():
        return
    expected = roc_auc_score(y, score, max_fpr=hi, sample_weight=weight)
    assert partial_auc_score(y, score, fpr=(0, hi), sample_weight=weight) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("fpr", "tpr"), RATES)
@pytest.mark.parametrize("ties", [False, True])
def test_the_score_is_the_area_in_a_rectangle_under_the_roc_curve(fpr, tpr, ties):
    rng = np.random.default_rng(1)
    y = rng.random(60) < 0.4
    score = rng.normal(size=60) + y
    score = np.round(score) if ties else score
    x, height, _ = roc_curve(y, score, drop_intermediate=False)
    at = fpr[0] + (np.arange(400_000) + 0.5) / 400_000 * (fpr[1] - fpr[0])
    area = (np.clip(np.interp(at, x, height), *tpr) - tpr[0]).mean() / (tpr[1] - tpr[0])
    assert partial_auc_score(y, score, fpr=fpr, tpr=tpr, standardize=False) == pytest.approx(area, abs=1e-5)


@pytest.mark.parametrize(("lo", "hi"), [(0.0, 0.1), (0.033, 0.07), (0.2, 1.0)])
def test_the_score_is_the_share_of_kept_pairs_in_order(lo, hi):
    """The definition by the ranked range: a pair counts with the weight of its negative, in fractions too."""
    rng = np.random.default_rng(2)
    u, v = rng.normal(size=31) + 1, rng.normal(size=47)
    cuts = np.clip(np.arange(48), lo * 47, hi * 47)
    kept = np.diff(cuts)[np.argsort(np.argsort(-v))]
    pairs = sum(w * np.mean(u > value) for w, value in zip(kept, v, strict=True)) / kept.sum()
    y, score = np.r_[np.ones(31), np.zeros(47)], np.r_[u, v]
    assert partial_auc_score(y, score, fpr=(lo, hi), standardize=False) == pytest.approx(pairs)


def test_chance_is_one_half_and_order_is_one():
    y = np.r_[np.ones(5), np.zeros(5)]
    for fpr, tpr in RATES:
        assert partial_auc_score(y, np.zeros(10), fpr=fpr, tpr=tpr) == pytest.approx(0.5)
        assert partial_auc_score(y, y, fpr=fpr, tpr=tpr) == pytest.approx(1.0)


def test_a_weight_in_the_score_is_a_repetition():
    rng = np.random.default_rng(3)
    y, score, weight = rng.random(30) < 0.5, rng.integers(0, 9, 30), rng.integers(0, 4, 30)
    again = np.repeat(np.arange(30), weight)
    assert partial_auc_score(y, score, fpr=(0.1, 0.45), sample_weight=weight) == pytest.approx(
        partial_auc_score(y[again], score[again], fpr=(0.1, 0.45))
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fpr": (0.5, 0.1)}, "0 <= lo < hi <= 1"),
        ({"fpr": (0.0, float("nan"))}, "0 <= lo < hi <= 1"),
        ({"fpr": 0.1}, "pair of rates"),
        ({"fpr": ("0", "1")}, "pair of numbers"),
        ({"y": [1, 1, 1]}, "exactly two classes"),
        ({"score": [0.1, np.nan, 1.0]}, "finite"),
        ({"score": [[0.1], [0.2], [0.3]]}, "one entry per row"),
        ({"sample_weight": [1.0, -1.0, 1.0]}, "negative"),
        ({"sample_weight": [1.0, 1.0]}, "one weight per position"),
    ],
)
def test_hostile_input_of_the_metric_is_a_clear_error(change, message):
    arguments = {"y": [0, 1, 1], "score": [0.1, 0.2, 0.3], "fpr": (0.0, 0.5), **change}
    with pytest.raises((ValueError, TypeError), match=message):
        partial_auc_score(arguments.pop("y"), arguments.pop("score"), **arguments)


# Pair losses


@pytest.mark.parametrize("spread", [0.0, 1.0, 100.0])
def test_sums_over_pairs_are_those_of_the_matrix(spread):
    rng = np.random.default_rng(4)
    u, v, R = spread * rng.normal(size=600), spread * np.round(rng.normal(size=500), 2), rng.random((500, 2))
    matrix = squared_hinge(u[:, None] - v[None, :])
    h = 1e-5
    slope = (squared_hinge(u[:, None] - v - h) - squared_hinge(u[:, None] - v + h)) / (2 * h)
    value, pull, bend = squared_hinge_sums(u, v, R, (0, 1, 2))
    np.testing.assert_allclose(value, matrix @ R, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(pull, slope @ R, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bend, 2.0 * (u[:, None] - v < 1) @ R, rtol=1e-9, atol=1e-9)


def objective_of(X, y, fpr, tpr, C=0.5, mass=None):
    mass = np.ones(len(y)) if mass is None else mass
    sides = [np.flatnonzero(y), np.flatnonzero(~y)]
    a, b = (mass[side] for side in sides)
    keep = Masses((1 - tpr[1]) * a.sum(), (1 - tpr[0]) * a.sum()), Masses(fpr[0] * b.sum(), fpr[1] * b.sum())
    designs = [Design(X[side], False) for side in sides]
    return PairObjective(*designs, C, a, b, *keep)


def shares(scores, lo, hi):
    """Weights by rank from the largest: the definition, by counting tied scores."""
    above = (scores[None, :] > scores[:, None]).sum(1)
    tied = (scores[None, :] == scores[:, None]).sum(1)
    ends = lo * len(scores), hi * len(scores)
    return (np.clip(above + tied, *ends) - np.clip(above, *ends)) / tied / (ends[1] - ends[0])


def by_definition(X, y, fpr, tpr, C, w):
    u, v = X[y] @ w, X[~y] @ w
    p, q = shares(-u, 1 - tpr[1], 1 - tpr[0]), shares(v, *fpr)
    kept = (tpr[1] - tpr[0]) * y.sum()
    return C * kept * (p @ squared_hinge(u[:, None] - v[None, :]) @ q) + w @ w / 2


@pytest.mark.parametrize(("fpr", "tpr"), RATES)
def test_the_objective_is_the_mean_over_kept_pairs_with_its_derivatives(fpr, tpr):
    X, y = two_classes()
    objective = objective_of(X, y, fpr, tpr)
    w = np.array([0.3, -0.2, 0.5, 0.1])
    point = objective.at(w)
    assert point.value == pytest.approx(by_definition(X, y, fpr, tpr, 0.5, w))
    steps = 1e-6 * np.eye(4)
    change = [(objective.value(w + h) - objective.value(w - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(point.gradient, change, rtol=1e-5, atol=1e-5)
    top = objective.cutting(w)
    held = top.at_scores(w, point.u, point.v, (point.p, point.q))
    bend = [(objective.at(w + h).gradient - objective.at(w - h).gradient) / 2e-6 for h in steps]
    np.testing.assert_allclose(top.hessian(held), bend, rtol=1e-3, atol=1e-3)


@given(st.integers(0, 10_000))
def test_ties_and_whole_weights_are_repetition(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(-1, 2, (20, 2)).astype(float), np.arange(20) % 3 == 0
    mass, w = rng.integers(1, 4, 20).astype(float), np.array([1.0, 0.5])
    again = np.repeat(np.arange(20), mass.astype(int))
    fpr, tpr = sorted(rng.uniform(0, 1, 2)), sorted(rng.uniform(0, 1, 2))
    weighted = objective_of(X, y, fpr, tpr, mass=mass).value(w)
    assert weighted == pytest.approx(by_definition(X[again], y[again], fpr, tpr, 0.5, w))


# The solver


@pytest.mark.parametrize(("fpr", "tpr"), [((0.0, 1.0), (0.0, 1.0)), ((0.0, 0.1), (0.0, 1.0)), ((0.0, 0.3), (0.4, 1.0))])
def test_a_certified_minimum_is_below_what_another_method_finds(fpr, tpr):
    X, y = two_classes(lift=2.0)
    objective = objective_of(X, y, fpr, tpr)
    result = solve_pairs(objective, np.zeros(4))
    assert result.certificate <= 1e-6
    best = min(
        scipy.optimize.minimize(lambda w: by_definition(X, y, fpr, tpr, 0.5, w), start, method="Nelder-Mead").fun
        for start in (np.ones(4), result.w[0])
    )
    assert result.value <= best + 1e-6 * best
    assert result.value == pytest.approx(by_definition(X, y, fpr, tpr, 0.5, result.w[0]))


def test_zero_is_proved_where_no_line_lifts_the_positives_above_the_hardest_negatives():
    X, y = two_classes(400, lift=0.3)
    result = solve_pairs(objective_of(X, y, (0.0, 0.05), (0.0, 1.0)), np.ones(4))
    assert result.certificate <= 1e-6
    np.testing.assert_array_equal(result.w, 0)
    rng = np.random.default_rng(6)
    values = [by_definition(X, y, (0.0, 0.05), (0.0, 1.0), 0.5, w) for w in 0.05 * rng.normal(size=(50, 4))]
    assert min(values) > result.value


@pytest.mark.parametrize(("fpr", "tpr"), [((0.1, 0.4), (0.0, 1.0)), ((0.05, 0.5), (0.0, 0.7))])
def test_rounds_of_cutting_never_rise_and_end_at_a_minimum_with_the_cut_held(fpr, tpr):
    X, y = two_classes(lift=2.0)
    objective = objective_of(X, y, fpr, tpr)
    result = solve_pairs(objective, np.ones(4))
    values = [value for _, value in result.history]
    assert (np.diff(values) <= 1e-12 * values[0]).all()
    assert result.certificate <= 1e-6
    around = [result.w[0] + 1e-3 * d for d in np.random.default_rng(7).normal(size=(40, 4))]
    assert min(map(objective.value, around)) >= result.value * (1 - 1e-6)


# The estimator


def test_a_given_range_is_what_is_minimised_and_feature_names_are_kept():
    pandas = pytest.importorskip("pandas")
    X, y = two_classes(300, lift=2.0)
    model = PartialAUCClassifier(train_fpr=(0.0, 0.2), C=0.5, random_state=0)
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = clone(model).fit(frame, np.where(y, "sick", "well"))
    assert list(model.feature_names_in_) == list("abcd")
    assert list(model.classes_) == ["sick", "well"]
    w = -model.coef_[0]
    expected = by_definition(X, ~y, (0.0, 0.2), (0.0, 1.0), 0.5, -w)
    assert model.objective_ == pytest.approx(expected)
    assert model.certificate_ <= 1e-6


def test_sparse_rows_are_the_same_rows():
    X, y = two_classes(150, lift=2.0)
    weight = np.random.default_rng(8).integers(0, 3, 150)
    model = PartialAUCClassifier(train_fpr=(0.0, 0.3), random_state=0)
    first = clone(model).fit(X, y, sample_weight=weight)
    sparse = clone(model).set_params(tol=1e-10).fit(sp.csr_array(X), y, sample_weight=weight)
    np.testing.assert_allclose(sparse.predict_proba(X), first.predict_proba(X), atol=1e-4)
    assert sparse.threshold_ == pytest.approx(first.threshold_, abs=1e-4)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(9)
    y = rng.random(6000) < 0.2
    X = rng.normal(size=(6000, 4))
    easy = rng.random(6000) < 0.5
    X[y & easy, 0] += 5.0
    X[y & ~easy, 1] += 1.5
    train = np.arange(6000) < 1500
    model = PartialAUCClassifier(fpr=(0.0, 0.05), random_state=0).fit(X[train], y[train])
    return model, X[~train], y[~train]


def test_auto_compares_on_folds_and_takes_the_logistic_fit_unless_another_gains(fitted):
    model, _, _ = fitted
    table = model.tuning_
    assert table["chosen"].sum() == 1
    logistic = np.isnan(table["fpr"][:, 0])
    best = int(table["chosen"].argmax())
    if model.train_fpr_ is None:
        assert logistic[best]
    else:
        assert table["gain"][best] > table["error"][best]
        assert tuple(table["fpr"][best]) == model.train_fpr_


def test_the_threshold_keeps_the_rate_on_new_rows(fitted):
    model, X, y = fitted
    scores = model.decision_function(X)
    for rate in (0.05, 0.2):
        assert (scores[~y] > model.threshold_for(rate)).mean() == pytest.approx(rate, abs=0.025)
    assert model.threshold_ == model.threshold_for(0.05)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.threshold_for(5)


def test_probabilities_are_calibrated_where_the_line_is_right_however_the_fit_is_scaled():
    X, y = two_classes(6000, lift=1.0)
    model = PartialAUCClassifier(train_fpr=(0.0, 1.0), C=1e-3, random_state=0).fit(X[:2000], y[:2000])
    probability = model.predict_proba(X[2000:])[:, 1]
    for low in (0.0, 0.2, 0.5):
        inside = (probability >= low) & (probability < low + 0.3)
        assert y[2000:][inside].mean() == pytest.approx(probability[inside].mean(), abs=0.06)
    np.testing.assert_array_equal(model.predict(X[2000:]), probability > 0.5)


def test_folds_may_be_given():
    X, y = two_classes(100, lift=2.0)
    model = PartialAUCClassifier(train_fpr=(0.0, 0.5), cv=StratifiedKFold(3)).fit(X, y)
    given = PartialAUCClassifier(train_fpr=(0.0, 0.5), cv=list(StratifiedKFold(3).split(X, y))).fit(X, y)
    assert model.threshold_ == given.threshold_
    with pytest.raises(ValueError, match="both classes"):
        PartialAUCClassifier(train_fpr=(0.0, 0.5), cv=[(np.flatnonzero(y), np.flatnonzero(~y))]).fit(X, y)


def test_classes_that_overlap_too_much_for_the_range_are_a_warning():
    X, y = two_classes(300, lift=0.3)
    with pytest.warns(UserWarning, match="all coefficients are 0"):
        PartialAUCClassifier(train_fpr=(0.0, 0.05)).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"fpr": (0.1, 0.05)}, "0 <= lo < hi <= 1"),
        ({"fpr": (-0.1, 0.05)}, "0 <= lo < hi <= 1"),
        ({"tpr": (0.5, 0.5)}, "0 <= lo < hi <= 1"),
        ({"train_fpr": "narrow"}, "pair of rates"),
        ({"train_fpr": (0.0, 0.001)}, "at least one negative"),
        ({"C": -1.0}, "'C' parameter of PartialAUCClassifier must be"),
        ({"cv": 1}, "cv must be"),
        ({"tol": 0.0}, "'tol' parameter of PartialAUCClassifier must be"),
    ],
)
def test_hostile_parameters_are_a_clear_error(parameters, message):
    X, y = two_classes(60)
    with pytest.raises((ValueError, TypeError), match=message):
        PartialAUCClassifier(**parameters).fit(X, y)


def test_hostile_rows_are_a_clear_error():
    X, y = two_classes(60)
    with pytest.raises(ValueError, match="class"):
        PartialAUCClassifier().fit(X, np.zeros(60, int))
    with pytest.raises(ValueError, match="two classes with positive weight"):
        PartialAUCClassifier().fit(X, y, sample_weight=(~y).astype(float))
    with pytest.raises(ValueError, match="binary"):
        PartialAUCClassifier().fit(X, np.arange(60) % 3)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        PartialAUCClassifier().fit(X, y)


# Networks


@pytest.mark.parametrize(("fpr", "tpr"), RATES)
def test_torch_equals_the_definition_and_its_gradient_finite_differences(fpr, tpr):
    torch = pytest.importorskip("torch")
    from rankrange.torch import PartialAUCLoss

    X, y = two_classes(60)
    w = np.array([0.3, -0.2, 0.5, 0.1])
    scores = torch.tensor(X @ w, requires_grad=True)
    value = PartialAUCLoss(fpr, tpr=tpr)(scores, torch.tensor(y))
    value.backward()
    kept = (tpr[1] - tpr[0]) * y.sum()
    assert value.item() == pytest.approx((by_definition(X, y, fpr, tpr, 1.0, w) - w @ w / 2) / kept)
    point = objective_of(X, y, fpr, tpr, C=1.0).at(w)
    np.testing.assert_allclose(scores.grad.numpy() @ X, (point.gradient - w) / kept, rtol=1e-9, atol=1e-12)


def test_torch_shares_ties_and_makes_nan_loud_and_empty_classes_zero():
    torch = pytest.importorskip("torch")
    from rankrange.torch import PartialAUCLoss
    from rankrange.torch.cuts import ranks_of

    z = torch.tensor([1.0, 1.0, 0.0, 2.0, 1.0], dtype=torch.float64)
    inside = torch.tensor([True, True, True, False, True])
    expected = shares(np.array([1.0, 1.0, 0.0, 1.0]), 0.1, 0.6)
    found = ranks_of(z, inside.long()).shares(0.4, 2.4) / 2.0
    np.testing.assert_allclose(found[inside].numpy(), expected)
    criterion = PartialAUCLoss()
    assert torch.isnan(criterion(torch.tensor([1.0, float("nan"), 0.0]), torch.tensor([1, 0, 0])))
    assert criterion(torch.tensor([1.0, 2.0]), torch.tensor([0, 0])) == 0
    assert criterion(torch.tensor([1.0, 2.0]), torch.tensor([1, 1])) == 0
    scores, target = torch.randn(200, generator=torch.Generator().manual_seed(0)), torch.arange(200) % 4 == 0
    torch.testing.assert_close(criterion(scores + 1000, target), criterion(scores, target), rtol=1e-3, atol=0)
    with pytest.raises(ValueError, match="one score and one target"):
        criterion(torch.zeros(3, 2), torch.zeros(3))
    with pytest.raises(ValueError, match="0 <= lo < hi"):
        PartialAUCLoss((0.2, 0.1))


def test_torch_stream_finds_the_cuts_of_the_data_set():
    """Batches of 40 negatives show no rank of .01; the tracked cut does."""
    torch = pytest.importorskip("torch")
    from rankrange.torch import PartialAUCLoss

    generator = torch.Generator().manual_seed(0)
    criterion = PartialAUCLoss((0.0, 0.1), ranking="stream")
    for _ in range(400):
        criterion(torch.randn(44, generator=generator), torch.arange(44) < 4)
    assert criterion.negative_cuts.tracked[0].item() == pytest.approx(1.2816, abs=0.25)
    other = PartialAUCLoss((0.0, 0.1), ranking="stream")
    other.load_state_dict(criterion.state_dict())
    assert torch.equal(other.negative_cuts.tracked, criterion.negative_cuts.tracked)
