"""RankedRangeClassifier and RankedRangeRegressor: any model, without the rows that are probably wrong."""

import pickle
import typing
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine, make_blobs, make_moons
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import LeaveOneGroupOut, TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from rankrange import (
    AoRRClassifier,
    PartialAUCClassifier,
    RankedRangeClassifier,
    RankedRangeRegressor,
    find_label_issues,
    noise,
    ranked_range,
)
from rankrange.core.transition import temperature, tempered
from rankrange.crossfit.folds import Folds
from rankrange.crossfit.numeric import numeric_view
from rankrange.outliers.scatter import sizes

QUICK = HistGradientBoostingClassifier(max_iter=10)
WORDS = make_pipeline(TfidfVectorizer(), LogisticRegression(C=10.0))


def moons(n=400, seed=0):
    return make_moons(n, noise=0.15, random_state=seed)


def test_no_row_of_a_class_of_a_few_rows_is_dropped():
    X, y = make_blobs([100, 100, 3], centers=[[0, 0], [6, 0], [3, 0]], random_state=0)
    model = RankedRangeClassifier(GaussianNB(), random_state=0).fit(X, y)
    assert not model.dropped_[y == 2].any()


# ---- classes: a given m


@pytest.mark.parametrize("kind", [RankedRangeClassifier, RankedRangeRegressor])
@pytest.mark.parametrize(("m", "count"), [(30, 30), (0.1, 40), (0, 0)])
def test_a_given_m_drops_exactly_the_rows_of_largest_out_of_fold_loss(kind, m, count):
    X, y = moons(400)
    base = QUICK if kind is RankedRangeClassifier else KNeighborsRegressor(7)
    model = kind(base, m=m, random_state=0).fit(X, noise.symmetric(y, 0.1, 0))
    assert (model.m_, model.k_, model.dropped_.sum()) == (count, 400, count)
    if count:
        assert model.losses_[model.dropped_].min() >= model.losses_[~model.dropped_].max()
        assert model.lam_hat_ == np.sort(model.losses_)[::-1][count - 1]


def test_the_losses_are_out_of_fold():
    """A model that remembers its rows has no loss on them; only rows it has not seen tell."""
    X, y = moons(200)
    X[:, 0] += np.arange(200) * 1e-9
    folds = [(np.arange(100), np.arange(100, 200)), (np.arange(100, 200), np.arange(100))]
    model = RankedRangeClassifier(KNeighborsClassifier(1), m=0, cv=folds).fit(X, y)
    for train, test in folds:
        P = KNeighborsClassifier(1).fit(X[train], y[train]).predict_proba(X[test])[np.arange(100), y[test]]
        np.testing.assert_allclose(model.losses_[test], -np.log(np.maximum(P, 1e-12)))


def test_the_alternation_falls_and_ends_with_models_that_have_not_seen_what_was_dropped():
    X, y = moons(400)
    given = noise.symmetric(y, 0.25, 0)
    model = RankedRangeClassifier(GaussianNB(), m=0.25, k=0.95, cv=2, random_state=0).fit(X, given)
    values = model.tuning_["objective"]
    assert len(values) >= 2
    assert (np.diff(values[:-1]) < 0).all()
    easy = np.zeros(400, dtype=bool)
    easy[np.argsort(-model.losses_, kind="stable")[380:]] = True
    trained = sum(fit.class_count_.sum() for fit in model.estimators_)
    assert trained == (~model.dropped_ & ~easy).sum()
    # the value that was reached is the ranked range of the losses that were ranked
    assert ranked_range(model.losses_, 100, 380) == pytest.approx(
        values[-2] if values[-1] >= values[-2] else min(values[:-1])
    )


# ---- classes: weights, groups, folds


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers what it was fitted on."""

    seen: typing.ClassVar = []

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        Recorder.seen.append(np.asarray(X)[:, 0].copy())
        return self

    def predict_proba(self, X):
        Recorder.seen.append(np.asarray(X)[:, 0].copy())
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


@pytest.mark.parametrize("n_groups", [2, 3, 4, 20])
def test_rows_of_a_group_are_never_on_both_sides_and_few_groups_are_a_fold_each(n_groups):
    Recorder.seen = []
    groups, n_folds = np.arange(100) % n_groups, min(5, n_groups)
    X, y = np.column_stack([groups, np.arange(100.0)]), np.arange(100) // 2 % 2
    RankedRangeClassifier(Recorder(), random_state=0).fit(X, y, groups=groups)
    assert len(Recorder.seen) == 2 * n_folds + 1  # models of folds judge, beside one of all rows: nothing is dropped
    train, test = ([set(rows) for rows in Recorder.seen[side : 2 * n_folds : 2]] for side in (0, 1))
    assert all(one | other == set(range(n_groups)) and not one & other for one, other in zip(train, test, strict=True))
    assert sorted(group for held_out in test for group in held_out) == list(range(n_groups))
    values = RankedRangeRegressor(random_state=0).fit(X, X[:, 1], groups=groups).predict(X)
    assert np.isfinite(values).all()


def test_a_split_by_time_never_drops_the_first_rows():
    X, y = moons(300)
    given = noise.symmetric(y, 0.2, 0)
    model = RankedRangeClassifier(QUICK, cv=TimeSeriesSplit(4), random_state=0).fit(X, given)
    assert not model.dropped_[:60].any()
    np.testing.assert_allclose(model.p_wrong_[:60], model.noise_estimate_)
    assert model.dropped_[60:][(given != y)[60:]].mean() > 0.5
    assert len(model.estimators_) == 8  # before and after rows were dropped


@pytest.mark.parametrize("m", ["auto", 12])
def test_weights_are_repetition_where_copies_share_a_fold(m):
    X, y = moons(120)
    given = noise.symmetric(y, 0.2, 0)
    weight = np.random.default_rng(0).integers(0, 4, 120)
    rows = np.repeat(np.arange(120), weight)
    fold = np.arange(120) % 4

    def fitted(index, sample_weight=None):
        cv = list(LeaveOneGroupOut().split(index, groups=fold[index]))
        model = RankedRangeClassifier(LogisticRegression(), m=m, cv=cv, random_state=0)
        return model.fit(X[index], given[index], sample_weight)

    weighted, repeated = fitted(np.arange(120), weight), fitted(rows)
    if m == "auto":
        assert weighted.dropped_.any()
        np.testing.assert_array_equal(weighted.dropped_[rows], repeated.dropped_)
        np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=0.01)
    else:  # a row that straddles the cut goes whole to one side
        assert abs(weight[weighted.dropped_].sum() - m) <= 1.5
    assert not weighted.dropped_[weight == 0].any()


def test_fractional_weights_reach_the_model():
    X, y = moons(100)
    weight = np.linspace(0.1, 2, 100)
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    heavy = RankedRangeClassifier(pipe, random_state=0).fit(X, y, sample_weight=weight)
    light = RankedRangeClassifier(pipe, random_state=0).fit(X, y)
    assert not np.allclose(heavy.predict_proba(X), light.predict_proba(X))


# ---- any X, any model


def mixed(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "colour": pd.Categorical(rng.choice(["red", "green", "blue"], n)),
            "shop": rng.choice(["a", "b"], n),
        }
    )
    y = np.where(frame["size"] + (frame["colour"] == "red") - 0.3 > 0, "good", "bad")
    return frame, y, noise.symmetric(y, 0.15, seed)


def columns():
    levels = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["colour", "shop"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["size", "age"]),
    )
    return make_pipeline(levels, LogisticRegression())


def test_a_pipeline_takes_a_table_of_categories_and_missing_values():
    frame, y, given = mixed()
    for base in (columns(), HistGradientBoostingClassifier(max_iter=20)):
        table = frame if base is not None and hasattr(base, "steps") else frame.astype({"shop": "category"})
        model = RankedRangeClassifier(base, random_state=0).fit(table, given)
        assert list(model.feature_names_in_) == ["size", "age", "colour", "shop"]
        assert model.n_features_in_ == 4
        assert model.dropped_[given != y].mean() > 0.6
        assert model.dropped_[given == y].mean() < 0.1
        assert (model.predict(table) == y).mean() > 0.9


def texts(n=240, seed=0):
    rng = np.random.default_rng(seed)
    words = {0: ["engine", "wheel", "road", "fuel"], 1: ["goal", "match", "team", "score"]}
    y = np.arange(n) % 2
    return [" ".join(rng.choice(words[label] + ["the", "a", "one"], 8)) for label in y], y


def test_texts_need_nothing_but_a_vectoriser_and_sparse_rows_nothing():
    X, y = texts()
    given = noise.symmetric(y, 0.2, 0)
    for rows, base in ((X, WORDS), (TfidfVectorizer().fit_transform(X).tocoo(), LogisticRegression())):
        model = RankedRangeClassifier(base, random_state=0).fit(rows, given)
        assert model.dropped_[given != y].mean() > 0.8
        assert (model.predict(rows) == y).mean() > 0.97
        assert hasattr(model, "n_features_in_") == (base is not WORDS)
        assert (list(model.tuning_["source"]) == ["folds"]) == (base is WORDS)


# ---- scikit-learn's habits


def test_results_repeat_with_the_seed_whatever_the_number_of_jobs():
    X, y = moons(200)
    a, b = (RankedRangeClassifier(QUICK, random_state=3, n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
    np.testing.assert_array_equal(a.p_wrong_, b.p_wrong_)


def test_steps_that_put_out_tables_stay_as_they_are():
    frame, _, given = mixed()
    pipe = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression())
    pipe[:-1].set_output(transform="pandas")
    model = RankedRangeClassifier(pipe, random_state=0).fit(frame[["size", "age"]], given)
    assert isinstance(model.estimators_[0][:-1].transform(frame[["size", "age"]]), pd.DataFrame)


def test_further_arguments_of_fit_are_cut_to_the_rows():
    X, y = moons(100)
    seen: typing.ClassVar = []

    class Curious(GaussianNB):
        def fit(self, X, y, note=None, word=None):
            seen.append((len(X), len(note), word))
            return super().fit(X, y)

    RankedRangeClassifier(Curious(), random_state=0).fit(X, y, note=np.arange(100), word="w")
    assert seen
    assert all(rows == notes and word == "w" for rows, notes, word in seen)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"m": "all"}, "'m' parameter of RankedRangeClassifier must be"),
        ({"k": 0.9}, "k below n needs a given m"),
        ({"ensemble": "both"}, "'ensemble' parameter of RankedRangeClassifier must be"),
        ({"cv": 1}, "cv must be an int of at least 2"),
        ({"m": 0.9, "k": 0.5}, "need m < k"),
        ({"cv": [(np.arange(50), np.arange(40, 60))]}, "must not overlap, got 10 rows"),
        ({"cv": []}, "at least one pair"),
        ({"y": np.zeros(60)}, "at least two classes with positive weight"),
        ({"groups": np.zeros(60)}, "at least 2 groups, got 1"),
        ({"estimator": Ridge()}, "RankedRangeClassifier needs a classifier, got the regressor Ridge"),
        ({"estimator": "trees"}, r"instance with a method fit, got 'trees'; for example GaussianNB\(\)"),
        ({"estimator": GaussianNB}, r"instance with a method fit, got <class .*; for example GaussianNB\(\)"),
        (
            {"estimator": KNeighborsClassifier(), "sample_weight": np.linspace(0.1, 2, 60)},
            "sample_weight needs a model whose fit takes it.*got KNeighbors",
        ),
    ],
)
def test_bad_settings_are_refused(settings, message):
    X, y = moons(60)
    fit = {"y": y} | {name: settings[name] for name in ("y", "groups", "sample_weight") if name in settings}
    params = {name: value for name, value in settings.items() if name not in fit}
    with pytest.raises(ValueError, match=message):
        RankedRangeClassifier(**{"estimator": GaussianNB(), **params}).fit(X, **fit)
    with pytest.raises(ValueError, match="RankedRangeRegressor needs a regressor, got the classifier GaussianNB"):
        RankedRangeRegressor(GaussianNB()).fit(X, y)


def test_nothing_is_dropped_from_too_few_rows():
    X, y = moons(16)
    model = RankedRangeClassifier(GaussianNB()).fit(X, y)
    assert not model.dropped_.any()
    assert (model.noise_estimate_, model.noise_interval_) == (0.0, (0.0, 1.0))
    assert len(model.estimators_) == 1
    np.testing.assert_allclose(model.predict_proba(X), GaussianNB().fit(X, y).predict_proba(X))


# ---- probabilities


def odds(P):
    """log p1 / p0 of probabilities, none below .0001."""
    P = np.clip(P, 1e-4, 1.0)
    return np.log(P[:, 1] / P[:, 0])


def test_an_ensemble_predicts_the_mean_of_its_models_at_a_temperature():
    X, y = moons(300)
    model = RankedRangeClassifier(GaussianNB(), random_state=0).fit(X, noise.symmetric(y, 0.2, 0))
    assert len(model.estimators_) == 10
    np.testing.assert_allclose(model.estimator_weights_, [0.15] * 5 + [0.05] * 5)
    weighed = zip(model.estimator_weights_, model.estimators_, strict=True)
    mean = sum(weight * m.predict_proba(X) for weight, m in weighed)
    np.testing.assert_allclose(odds(model.predict_proba(X)), odds(mean) / model.temperature_)
    np.testing.assert_array_equal(model.predict(X), mean.argmax(axis=1))
    given = model.set_params(m=0.2).fit(X, y)
    assert given.temperature_ == 1.0
    np.testing.assert_allclose(given.predict_proba(X), np.mean([m.predict_proba(X) for m in given.estimators_], axis=0))


@pytest.mark.parametrize(
    "model",
    [RankedRangeClassifier(KNeighborsClassifier(1), m=0, ensemble=False), AoRRClassifier(0), PartialAUCClassifier()],
)
def test_the_logarithm_of_probability_0_is_minus_infinity(model):
    """Far out every probability is 0 or 1; a warning of NumPy would be an error here."""
    X, y = moons(60)
    found = clone(model).fit(X, y).predict_log_proba(1e6 * X)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.tile([-np.inf, 0.0], (60, 1)))


def test_without_a_cut_the_model_of_all_rows_is_the_one_that_was_given():
    X, y = make_blobs(300, centers=[[0, 0], [9, 0]], random_state=0)
    forest = RandomForestClassifier(5, random_state=7)
    model = RankedRangeClassifier(forest, random_state=0).fit(X, y)
    assert not model.dropped_.any()
    alone = clone(forest).fit(X, y)
    np.testing.assert_array_equal(model.estimators_[-1].predict_proba(X), alone.predict_proba(X))
    np.testing.assert_allclose(model.estimator_weights_, [0.05] * 5 + [0.75])
    single = model.set_params(ensemble=False).fit(X, y)
    np.testing.assert_array_equal(single.estimator_.predict_proba(X), alone.predict_proba(X))
    states = [part.random_state for part in model.set_params(ensemble=True).fit(X, y).estimators_]
    assert len(set(states)) == 6  # the others have states of their own


def test_trimming_makes_rows_look_easier_and_the_temperature_corrects_for_it():
    X, y = make_moons(2400, noise=0.5, random_state=0)  # one row in five is on the wrong side
    given = noise.symmetric(y[:400], 0.2, 0)
    model = RankedRangeClassifier(KNeighborsClassifier(3), random_state=0).fit(X[:400], given)
    assert model.dropped_.mean() > 0.1
    P, accuracy = model.predict_proba(X[400:]), model.score(X[400:], y[400:])
    own = model.estimators_[:5]  # the others saw what was dropped
    untempered = np.mean([part.predict_proba(X[400:]) for part in own], axis=0)
    overconfident = untempered.max(axis=1).mean() - accuracy
    assert overconfident > 0.07
    assert abs(P.max(axis=1).mean() - accuracy) < overconfident
    assert log_loss(y[400:], P) < log_loss(y[400:], untempered.clip(1e-3, 1.0 - 1e-3))


def test_a_single_model_is_the_model_itself_on_the_rows_that_are_left():
    X, y = moons(300)
    given = noise.symmetric(y, 0.2, 0)
    model = RankedRangeClassifier(GaussianNB(), ensemble=False, random_state=0).fit(X, given)
    alone = GaussianNB().fit(X[~model.dropped_], given[~model.dropped_])
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    np.testing.assert_allclose(model.estimator_.predict_proba(X), alone.predict_proba(X))
    np.testing.assert_allclose(odds(model.predict_proba(X)), odds(alone.predict_proba(X)) / model.temperature_)
    assert not hasattr(model, "estimators_")
    assert not hasattr(model.set_params(ensemble=True).fit(X, given), "estimator_")


def drawn(seed=0, n=4000, classes=3):
    """Probabilities, and classes drawn from them."""
    rng = np.random.default_rng(seed)
    P = softmax(rng.normal(0.0, 2.0, (n, classes)), axis=1)
    return P, (rng.random((n, 1)) > P.cumsum(axis=1)).sum(axis=1), rng


@pytest.mark.parametrize("heat", [0.5, 1.0, 3.0])
def test_a_temperature_is_found_again_behind_wrong_labels(heat):
    P, true, rng = drawn()
    T = np.array([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    given = (rng.random((4000, 1)) > T[true].cumsum(axis=1)).sum(axis=1)
    told = P**heat / (P**heat).sum(axis=1, keepdims=True)
    found = temperature(told, given, T, np.ones(4000))
    assert found == pytest.approx(heat, rel=0.1)
    usual = told.min(axis=1) > 1e-4
    np.testing.assert_allclose(tempered(told, heat)[usual], P[usual])
    assert temperature(told, given, np.eye(3), np.ones(4000)) > 1.3 * heat  # wrong labels look like less to be sure of


# ---- numbers


def waves(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1], rng


@pytest.mark.parametrize("by", ["feature", "target"])
def test_noise_that_grows_is_not_taken_for_outliers(by):
    X, f, rng = waves(1500)
    scale = 0.05 + 0.6 * (X[:, 1] + 3) / 6 if by == "feature" else 0.05 + 0.5 * (f - f.min())
    y = f + scale**1.5 * rng.normal(size=1500)
    model = RankedRangeRegressor(KNeighborsRegressor(15), random_state=0).fit(X, y)
    assert model.dropped_.mean() < 0.015


def test_rows_that_trees_cannot_reach_are_not_dropped_and_the_fit_is_no_worse():
    """Residuals are large at the edge of the data, where trees cannot follow a slope; no target is wrong."""
    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(500, 3)), rng.normal(size=(2000, 3))
    y = X.sum(axis=1) + 0.15 * rng.normal(size=500)
    model = RankedRangeRegressor(random_state=0).fit(X, y)
    plain = HistGradientBoostingRegressor(random_state=0).fit(X, y)
    assert not model.dropped_.any()
    assert model.noise_interval_[0] == 0.0
    worse = np.mean((model.predict(X_test) - X_test.sum(axis=1)) ** 2)
    assert worse <= 1.05 * np.mean((plain.predict(X_test) - X_test.sum(axis=1)) ** 2)
    assert model.p_wrong_.max() > 0.5  # they do look like outliers


# ---- what they are made of


def test_folds_average_the_predictions_of_each_row():
    test = np.array([[1, 1, 0, 0], [1, 0, 1, 0]], dtype=bool)
    found = Folds(~test, test).average([np.array([1.0, 2.0]), np.array([3.0, 5.0])])
    np.testing.assert_array_equal(found, [2.0, 2.0, 5.0, np.nan])


def test_a_numeric_view_keeps_numbers_and_encodes_the_rest():
    frame, _, _ = mixed(40)
    frame["name"] = [f"row {i}" for i in range(40)]  # says nothing of other rows
    frame["count"] = pd.array([None, *range(39)], dtype="Int64")
    frame["day"] = pd.date_range("2020-01-01", periods=40)
    view = numeric_view(frame)
    assert np.isfinite(view).all()
    assert view.shape == (40, 1 + 2 + 3 + 2 + 2 + 1)
    assert numeric_view(["some text", "more"]) is None
    assert numeric_view(np.array([["a long text"], ["another"], ["third"]])) is None
    X = np.arange(6.0).reshape(3, 2)
    assert numeric_view(X) is X


def test_never_more_than_half_of_the_rows_are_dropped():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(700, 4))
    y = np.where(rng.random(700) < 0.3, 8, 4 * (X[:, 0] > 0) + rng.integers(0, 4, 700))  # 580 rows were
    assert RankedRangeClassifier(GaussianNB(), random_state=0).fit(X, y).dropped_.mean() <= 0.5


def test_rows_without_a_residual_do_not_lower_the_expected_size():
    residual = np.random.default_rng(0).normal(size=400)
    residual[:100] = np.nan  # as the first rows of a series, which no fold tests
    found = sizes(residual)
    np.testing.assert_array_equal(found[100:], sizes(residual[100:]))
    np.testing.assert_allclose(found[:100], found[100:].mean())


# ---- models of many kinds, other packages' among them


class Bare:
    """Nothing but fit and predict: the class of the nearest row."""

    def fit(self, X, y):
        self.X, self.y = StandardScaler().fit(X), np.asarray(y)
        self.rows = self.X.transform(X)
        return self

    def predict(self, X):
        distance = ((self.X.transform(X)[:, None] - self.rows[None]) ** 2).sum(axis=2)
        return self.y[distance.argmin(axis=1)]


BOOSTING = {
    "lightgbm": ("LGBM", {"n_estimators": 20, "verbose": -1, "n_jobs": 1}),
    "xgboost": ("XGB", {"n_estimators": 20, "n_jobs": 1}),
    "catboost": ("CatBoost", {"iterations": 30, "verbose": 0, "thread_count": 1, "allow_writing_files": False}),
}
PERCEPTRON = MLPClassifier((10,), solver="lbfgs", alpha=1.0, max_iter=5_000, tol=1e-2)
CLASSIFIERS = {
    "perceptron": make_pipeline(StandardScaler(), PERCEPTRON),
    "linear": make_pipeline(StandardScaler(), AoRRClassifier(m=0)),
    "forest": RandomForestClassifier(30),
    "bare": Bare(),
}
REGRESSORS = {"default": None, "neighbours": KNeighborsRegressor(7)}


def boosting(package, kind):
    name, settings = BOOSTING[package]
    return getattr(pytest.importorskip(package), name + kind)(**settings)


@pytest.mark.parametrize(
    ("name", "ensemble"), [("catboost", False), *((name, True) for name in BOOSTING | CLASSIFIERS)]
)
def test_classifiers_of_any_package_drop_planted_errors_and_little_else(name, ensemble):
    X, y = load_wine(return_X_y=True)
    given = noise.symmetric(y, 0.15, 0)
    base = CLASSIFIERS[name] if name in CLASSIFIERS else boosting(name, "Classifier")
    model = RankedRangeClassifier(base, ensemble=ensemble, random_state=0).fit(X, given)
    assert model.dropped_[given != y].mean() > 0.7
    assert model.dropped_[given == y].mean() < 0.06
    assert model.m_ == model.dropped_.sum()
    np.testing.assert_array_equal(model.dropped_, model.p_wrong_ >= 0.5)
    assert model.noise_estimate_ == pytest.approx(model.p_wrong_.mean())
    assert model.noise_interval_[0] < 0.15 < model.noise_interval_[1]
    assert set(model.tuning_) == {"source", "weight", "gain"}
    assert model.tuning_["weight"].sum() == pytest.approx(1.0)
    assert model.predict(X).shape == (len(y),)
    assert model.score(X, y) > 0.93
    if name == "bare":
        with pytest.raises(AttributeError, match="'RankedRangeClassifier' has no attribute 'predict_proba'"):
            model.predict_proba(X)
    else:
        P = model.predict_proba(X)
        np.testing.assert_allclose(P.sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.classes_[P.argmax(axis=1)], model.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    assert not hasattr(clone(model), "classes_")


@pytest.mark.parametrize("name", REGRESSORS | BOOSTING)
def test_regressors_of_any_package_drop_planted_outliers_and_little_else(name):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (1400, 2))
    truth = np.sin(X[:, 0]) + 0.3 * X[:, 1]
    (X, fresh), (y, truth) = np.split(X, [400]), np.split(truth, [400])
    y = y + 0.1 * rng.normal(size=400)
    bad = rng.choice(400, 30, replace=False)
    y[bad] += rng.choice([-1, 1], 30) * rng.uniform(2, 5, 30)
    base = REGRESSORS[name] if name in REGRESSORS else boosting(name, "Regressor")
    model = RankedRangeRegressor(base, random_state=0).fit(X, y)
    assert model.dropped_[bad].mean() > 0.95
    assert model.dropped_.sum() < 45
    assert model.noise_interval_[0] < 30 / 400 < model.noise_interval_[1] + 0.02
    plain = clone(base or HistGradientBoostingRegressor(random_state=0)).fit(X, y)
    assert np.mean((model.predict(fresh) - truth) ** 2) < 0.5 * np.mean((plain.predict(fresh) - truth) ** 2)


@pytest.mark.parametrize("name", BOOSTING)
def test_boosting_of_other_packages_takes_weights_missing_values_and_categories(name):
    frame, y, given = mixed()
    codes = np.unique(given, return_inverse=True)[1]
    base = boosting(name, "Classifier")
    if name == "xgboost":
        base.set_params(enable_categorical=True, tree_method="hist")
    if name == "catboost":
        base.set_params(cat_features=["colour", "shop"])
    table = frame.astype({"shop": "category"})
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    model = RankedRangeClassifier(base, random_state=0).fit(table, codes, sample_weight=weight)
    assert roc_auc_score(given != y, model.p_wrong_) > 0.95  # how many are dropped differs from draw to draw
    assert model.dropped_[given == y].mean() < 0.02
    assert model.dropped_.any()
    if name != "xgboost":  # which takes codes alone, by itself as well
        named = RankedRangeClassifier(base, ensemble=False, random_state=0).fit(table, given)
        assert (named.predict(table) == y).mean() > 0.85


class Strict(ClassifierMixin, BaseEstimator):
    """Takes the labels 0, 1, ... without gaps and no others, as XGBoost does."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        if not np.array_equal(self.classes_, np.arange(len(self.classes_))):
            raise ValueError(f"expected 0..{len(self.classes_) - 1}, got {self.classes_}")
        self.model_ = GaussianNB().fit(X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X)

    def predict_proba(self, X):
        return self.model_.predict_proba(X)


def test_a_fold_that_lacks_a_class_is_renumbered_for_models_that_insist():
    X, y = load_wine(return_X_y=True)
    order = np.argsort(y, kind="stable")  # folds by position lack the first class, or the last
    thirds = np.array_split(order, 3)
    cv = [(np.concatenate([t for t in thirds if t is not test]), test) for test in thirds]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # folds without a class cannot vouch for it
        model = RankedRangeClassifier(Strict(), m=5, cv=cv, random_state=0).fit(X, y)
    assert any(not hasattr(part, "model_") for part in model.estimators_)
    lacking = model.estimators_[0]
    np.testing.assert_array_equal(lacking.classes_, np.unique(y[cv[0][0]]))
    assert set(lacking.predict(X)) <= set(lacking.classes_)
    assert lacking.predict_proba(X).shape == (len(y), len(lacking.classes_))
    pickle.loads(pickle.dumps(model)).predict(X)


def test_label_issues_of_tables_with_missing_values_categories_and_texts():
    frame, y, given = mixed()
    frame["note"] = np.resize(texts()[0], len(frame))
    frame.loc[::7, "size"] = np.nan
    issues = find_label_issues(frame, given, estimator=columns(), random_state=0)
    assert (given != y)[issues["row"][:20]].mean() > 0.6
    lists = find_label_issues(list(texts()[0]), texts()[1].tolist(), estimator=WORDS, random_state=0)
    assert len(lists["row"]) < 12
    series = pd.Series(texts()[0], index=[f"row {i}" for i in range(240)])
    assert len(find_label_issues(series, texts()[1], estimator=WORDS, random_state=0)["row"]) < 12
