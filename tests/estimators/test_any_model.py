"""RankedRangeClassifier and RankedRangeRegressor: any model, without the rows that are probably wrong."""

import typing

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_blobs, make_moons
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import LeaveOneGroupOut, TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from rankrange import (
    RankedRangeClassifier,
    RankedRangeRegressor,
    noise,
    ranked_range,
)

QUICK = HistGradientBoostingClassifier(max_iter=10)


def moons(n=400, seed=0):
    return make_moons(n, noise=0.15, random_state=seed)


# ---- classes: what is dropped


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
    words = make_pipeline(TfidfVectorizer(), LogisticRegression())
    for rows, base in ((X, words), (TfidfVectorizer().fit_transform(X).tocoo(), LogisticRegression())):
        model = RankedRangeClassifier(base, random_state=0).fit(rows, given)
        assert model.dropped_[given != y].mean() > 0.8
        assert (model.predict(rows) == y).mean() > 0.97
        assert hasattr(model, "n_features_in_") == (base is not words)
        assert (list(model.tuning_["source"]) == ["folds"]) == (base is words)


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
