"""The ranked range as an objective of boosting: derivatives by definition, and the libraries where installed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankrange import ranked_range
from rankrange.boosting import CatBoost, LightGBM, XGBoost, labels_of_scores, probabilities_of_scores


def losses_of(scores, y):
    """The definition: minus the log of the probability of the label."""
    if scores.ndim == 1:
        scores = np.stack([np.zeros_like(scores), scores], axis=1)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return -np.log(p[np.arange(len(y)), y] / p.sum(axis=1))


def drawn(seed, n, classes):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, classes)) if classes > 2 else rng.normal(size=n)
    return scores, rng.integers(0, classes, n)


class DataSet:
    """Labels and weights as the data sets of XGBoost and LightGBM hold them."""

    def __init__(self, y, weight):
        self.get_label, self.get_weight = (lambda: y), (lambda: weight)


def repeated(weight, *arrays):
    return [np.repeat(array, weight, axis=0) for array in arrays]


@given(st.integers(0, 10**6), st.integers(4, 12), st.sampled_from([2, 3, 5]), st.integers(0, 2))
def test_the_gradient_is_that_of_the_sum_of_kept_losses_where_a_weight_is_a_repetition(seed, n, classes, m):
    scores, y = drawn(seed, n, classes)
    weight = np.random.default_rng(seed).integers(1, 4, n) if seed % 2 else np.ones(n, dtype=int)
    k = weight.sum() - 1
    mass = weight.astype(float) if seed % 2 else []
    gradient, hessian = LightGBM(m, k, warm_up=0).objective(scores, DataSet(y, mass))
    assert (hessian > 0).all()
    by_estimator = XGBoost(m, k, warm_up=0).objective(y, scores, mass if seed % 2 else None)
    np.testing.assert_array_equal((gradient, hessian), by_estimator)
    step = 1e-6
    for place in np.ndindex(scores.shape):
        ends = []
        for sign in (1, -1):
            moved = scores.copy()
            moved[place] += sign * step
            ends.append(sum(sorted(losses_of(*repeated(weight, moved, y)), reverse=True)[m:k]))
        assert gradient[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-5)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_second_derivatives_are_those_of_the_log_loss_scaled_as_lightgbm_scales_its_own(classes):
    """With respect to each score, times K / (K - 1) for several classes."""
    scores, y = drawn(0, 6, classes)
    _, hessian = XGBoost(0, 1.0, warm_up=0).derivatives(scores, y)
    for j in range(classes if classes > 2 else 1):
        change = 1e-4 * (np.arange(classes) == j) if classes > 2 else 1e-4
        second = losses_of(scores + change, y) - 2 * losses_of(scores, y) + losses_of(scores - change, y)
        factor = classes / (classes - 1) if classes > 2 else 1.0
        np.testing.assert_allclose(hessian.reshape(6, -1)[:, j], factor * second / 1e-8, atol=1e-5)


def test_ties_at_a_cut_share_it():
    gradient, _ = XGBoost(1, 4, warm_up=0).derivatives(np.array([3.0, 3.0, 1.0, -2.0]), np.zeros(4, dtype=int))
    assert gradient[0] == gradient[1] == pytest.approx(0.5 / (1 + np.exp(-3.0)))


def test_the_first_rounds_use_all_rows_and_a_new_run_restarts_the_count():
    """CatBoost passes twice over the rows in a round: for the splits, and for the leaves."""
    ranked, in_blocks = XGBoost(5, warm_up=2), CatBoost(5, n_rows=20, warm_up=2).objective
    scores, y = drawn(5, 20, 2)
    for _ in range(2):
        rounds = [np.zeros(20), scores, scores, scores]
        kept = [np.count_nonzero(ranked.derivatives(s, y)[0]) for s in rounds]
        passes = [[first for first, _ in in_blocks.calc_ders_range(s, y, None)] for s in rounds for _ in range(2)]
        assert kept == [20, 20, 15, 15]
        assert np.count_nonzero(passes, axis=1).tolist() == [20] * 4 + [15] * 4


@pytest.mark.parametrize("classes", [2, 3])
def test_the_metric_is_the_mean_of_kept_losses_where_a_weight_is_a_repetition(classes):
    scores, y = drawn(2, 30, classes)
    weight = np.random.default_rng(0).integers(1, 4, 30)
    catboost = CatBoost(2, 15).metric
    assert not catboost.is_max_optimal()
    columns = [scores] if classes == 2 else list(scores.T)
    for given_weight, whole in (([], np.ones(30, dtype=int)), (weight.astype(float), weight)):
        expected = np.mean(sorted(losses_of(*repeated(whole, scores, y)), reverse=True)[2:15])
        assert float(ranked_range(losses_of(scores, y), 2, 15, sample_weight=whole)) == pytest.approx(expected)
        assert LightGBM(2, 15).metric(scores, DataSet(y, given_weight))[1] == pytest.approx(expected)
        assert XGBoost(2, 15).metric(scores, DataSet(y, given_weight))[1] == pytest.approx(expected)
        assert catboost.get_final_error(*catboost.evaluate(columns, y, given_weight)) == pytest.approx(expected)
    assert LightGBM(2, 15).metric(y, scores, weight)[1] == pytest.approx(expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_become_the_probabilities_whose_log_is_the_loss(classes):
    scores, y = drawn(4, 30, classes)
    p = probabilities_of_scores(scores)
    assert p.sum(axis=1) == pytest.approx(np.ones(30))
    assert -np.log(p[np.arange(30), y]) == pytest.approx(losses_of(scores, y))
    names = np.array(["x", "y", "z"])[:classes]
    assert labels_of_scores(scores, names).tolist() == names[p.argmax(axis=1)].tolist()


def test_scores_without_meaning_are_refused():
    with pytest.raises(ValueError, match="finite"):
        probabilities_of_scores([0.0, np.inf])
    with pytest.raises(ValueError, match="need 2 classes, got 3"):
        labels_of_scores([0.0, 1.0], ["a", "b", "c"])


def test_what_cannot_be_boosted_is_refused():
    with pytest.raises(ValueError, match="labels must be 0 to 1"):
        XGBoost(1).derivatives(np.zeros(3), np.array([0, 1, 2]))
    with pytest.raises(ValueError, match="finite"):
        XGBoost(1).derivatives(np.array([0.0, np.nan]), np.array([0, 1]))
    with pytest.raises(ValueError, match="warm_up"):
        XGBoost(1, warm_up=-1)


# ---- the libraries ---------------------------------------------------------------------------------------------------


def noisy(classes=2, n=600, rate=0.25):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    y = np.digitize(X[:, 0], [0.0] if classes == 2 else [-0.5, 0.5])
    return X, y, np.where(rng.random(n) < rate, (y + 1) % classes, y)


def lightgbm_scores(X, y, m, history, more):
    """Raw scores after sixty rounds, and the metric in each."""
    lightgbm = pytest.importorskip("lightgbm")
    params = {"objective": LightGBM(m).objective, "verbose": -1, "num_threads": 1, "seed": 0, "num_leaves": 8, **more}
    data, record = lightgbm.Dataset(X, y), lightgbm.record_evaluation(history)
    feval = LightGBM(m).metric
    return lightgbm.train(params, data, 60, valid_sets=[data], feval=feval, callbacks=[record]).predict(X)


def xgboost_scores(X, y, m, history, more):
    xgboost = pytest.importorskip("xgboost")
    params = {"nthread": 1, "max_depth": 3, "base_score": 0.0, "disable_default_eval_metric": 1, **more}
    data, ours = xgboost.DMatrix(X, y), {"obj": XGBoost(m).objective, "custom_metric": XGBoost(m).metric}
    evals = {"evals": [(data, "training")], "evals_result": history, "verbose_eval": False}
    return xgboost.train(params, data, 60, **ours, **evals).predict(data, output_margin=True)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scores_of", [lightgbm_scores, xgboost_scores])
def test_boosting_lowers_the_ranked_range_and_is_right_more_often(scores_of, classes):
    X, y, given_y = noisy(classes)
    history, more = {}, {"num_class": classes} if classes > 2 else {}
    plain, ours = (scores_of(X, given_y, m, history, more) for m in (0, 0.25))
    assert (labels_of_scores(ours) == y).mean() > (labels_of_scores(plain) == y).mean()
    assert history["training"]["ranked_range"][-1] < history["training"]["ranked_range"][0]


def test_without_a_cut_lightgbm_boosts_its_own_log_loss():
    lightgbm = pytest.importorskip("lightgbm")
    X, _, y = noisy()
    params = {"verbose": -1, "num_threads": 1, "num_leaves": 8, "boost_from_average": False}
    own = lightgbm.train({**params, "objective": "binary"}, lightgbm.Dataset(X, y), 20).predict(X, raw_score=True)
    ours = lightgbm.train({**params, "objective": LightGBM(0).objective}, lightgbm.Dataset(X, y), 20).predict(X)
    assert ours == pytest.approx(own, abs=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_of_the_estimator_of_lightgbm_become_its_labels(classes):
    lightgbm = pytest.importorskip("lightgbm")
    X, y, _ = noisy(classes)
    names = np.array(["x", "y", "z"])[y]
    more = {"num_class": classes} if classes > 2 else {}
    model = lightgbm.LGBMClassifier(objective=LightGBM(0.05).objective, n_estimators=30, verbose=-1, n_jobs=1, **more)
    scores = model.fit(X, names).predict(X, raw_score=True)
    with pytest.warns(UserWarning, match="raw scores"):
        assert np.array_equal(scores, model.predict_proba(X))
    assert (labels_of_scores(scores, model.classes_) == names).mean() > 0.95
    assert probabilities_of_scores(scores).shape == (len(y), classes)


def test_blocks_of_rows_are_cut_where_the_pass_before_was_by_their_weight():
    """Weight 2 equals the row twice: a quarter of the weight is dropped, not of the rows."""
    scores, y = drawn(3, 40, 2)
    weight = np.random.default_rng(0).integers(1, 6, 40)

    def derivatives(rows, weight):
        objective = CatBoost(0.25, n_rows=len(rows), warm_up=0).objective
        for _ in range(2):  # the first pass finds the cut
            found = []
            for i in range(0, len(rows), 7):
                block = slice(i, i + 7)
                mass = None if weight is None else weight[block].tolist()
                found += objective.calc_ders_range(scores[rows][block].tolist(), y[rows][block].tolist(), mass)
        return np.array(found)

    all_rows = np.arange(40)
    expected = XGBoost(0.25, warm_up=0).derivatives(scores, y)[0]
    np.testing.assert_allclose(derivatives(all_rows, None)[:, 0], -expected, atol=1e-15)
    rows = np.repeat(all_rows, weight)
    summed = np.zeros((40, 2))
    np.add.at(summed, rows, derivatives(rows, None))
    found = derivatives(all_rows, weight)
    np.testing.assert_allclose(found, summed, atol=1e-12)
    assert 0 < (found[:, 1] == 0).sum() < 20


@pytest.mark.filterwarnings("ignore:Failed to import numba")
def test_catboost_boosts_the_ranked_range_of_all_rows():
    catboost = pytest.importorskip("catboost")
    X, y, given_y = noisy()
    scores = {}
    for m in (0, 0.25):
        model = catboost.CatBoostClassifier(
            loss_function=CatBoost(m, n_rows=len(y)).objective,
            eval_metric="Logloss",
            boosting_type="Plain",
            leaf_estimation_iterations=1,
            iterations=60,
            depth=4,
            learning_rate=0.3,
            thread_count=1,
            allow_writing_files=False,
            verbose=0,
        ).fit(X, given_y)
        scores[m] = model.predict(X, prediction_type="RawFormulaVal")
    assert ((scores[0.25] > 0) == y).mean() > ((scores[0] > 0) == y).mean()


@pytest.mark.filterwarnings("ignore:Failed to import numba")
@pytest.mark.parametrize(
    ("settings", "classes", "message"),
    [
        ({"n_rows": 601}, 2, "got n_rows=601 and 1,200 rows"),
        ({"boosting_type": "Ordered"}, 2, "boosting_type='Plain'"),
        ({"eval_metric": "MultiClass"}, 3, "two classes, got 3"),
    ],
)
def test_what_catboost_cannot_boost_is_said(settings, classes, message):
    catboost = pytest.importorskip("catboost")
    X, y, _ = noisy(classes)
    usual = {"boosting_type": "Plain", "leaf_estimation_iterations": 1, "eval_metric": "Logloss", "iterations": 5}
    objective = CatBoost(0.1, n_rows=settings.pop("n_rows", len(y))).objective
    model = catboost.CatBoostClassifier(
        loss_function=objective, thread_count=1, allow_writing_files=False, verbose=0, **(usual | settings)
    )
    with pytest.raises(catboost.CatBoostError, match=message):
        model.fit(X, y)


@pytest.mark.filterwarnings("ignore:Failed to import numba")
@pytest.mark.parametrize("classes", [2, 3])
def test_the_metric_of_catboost_ranks_all_rows(classes):
    catboost = pytest.importorskip("catboost")
    X, _, y = noisy(classes, n=1_500)
    model = catboost.CatBoostClassifier(
        loss_function="Logloss" if classes == 2 else "MultiClass", eval_metric=CatBoost(0.25).metric, iterations=10,
        depth=3, learning_rate=0.3, thread_count=1, allow_writing_files=False, verbose=0,
    ).fit(X, y)  # fmt: skip
    scores = model.predict(X, prediction_type="RawFormulaVal")
    expected = np.mean(sorted(losses_of(scores, y), reverse=True)[375:])
    assert model.get_evals_result()["learn"]["RankedRangeMetric"][-1] == pytest.approx(expected, rel=1e-4)


def test_in_the_first_round_of_catboost_all_rows_count():
    """All scores are 0 and all losses tie: a cut among them would drop every row from the second pass."""
    objective = CatBoost(0.25, n_rows=8, warm_up=0).objective
    for _ in range(2):
        assert all(second < 0.0 for _, second in objective.calc_ders_range([0.0] * 8, [0, 1] * 4, None))


def test_tied_scores_are_predicted_as_the_first_class():
    assert labels_of_scores([0.0, -0.0, 1e-300, -1.0], ["no", "yes"]).tolist() == ["no", "no", "yes", "no"]
    assert labels_of_scores([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0]], list("abc")).tolist() == ["a", "b"]
