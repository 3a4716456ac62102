"""RankedRangeClassifier and RankedRangeRegressor around models of many kinds, other packages' among them."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_wine
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_any_model import columns, mixed, texts

from rankrange import (
    AoRRClassifier,
    RankedRangeClassifier,
    RankedRangeRegressor,
    find_label_issues,
    noise,
)


def lightgbm(kind):
    package = pytest.importorskip("lightgbm")
    return getattr(package, f"LGBM{kind}")(n_estimators=20, verbose=-1, n_jobs=1)


def xgboost(kind):
    package = pytest.importorskip("xgboost")
    return getattr(package, f"XGB{kind}")(n_estimators=20, n_jobs=1)


def catboost(kind):
    package = pytest.importorskip("catboost")
    return getattr(package, f"CatBoost{kind}")(iterations=30, verbose=0, thread_count=1, allow_writing_files=False)


def perceptron(_kind):
    return make_pipeline(StandardScaler(), MLPClassifier((10,), solver="lbfgs", alpha=1.0, max_iter=5_000, tol=1e-2))


def linear(_kind):
    return make_pipeline(StandardScaler(), AoRRClassifier(m=0))


def trees(_kind):
    return RandomForestClassifier(30)


class Bare:
    """Nothing but fit and predict: the class of the nearest row."""

    def fit(self, X, y):
        self.X, self.y = StandardScaler().fit(X), np.asarray(y)
        self.rows = self.X.transform(X)
        return self

    def predict(self, X):
        distance = ((self.X.transform(X)[:, None] - self.rows[None]) ** 2).sum(axis=2)
        return self.y[distance.argmin(axis=1)]


def bare(_kind):
    return Bare()


KINDS = [lightgbm, xgboost, catboost, perceptron, linear, trees, bare]


@pytest.mark.parametrize(("kind", "ensemble"), [(catboost, False), *((kind, True) for kind in KINDS)])
def test_classifiers_of_any_package_drop_planted_errors_and_little_else(kind, ensemble):
    X, y = load_wine(return_X_y=True)
    given = noise.symmetric(y, 0.15, 0)
    model = RankedRangeClassifier(kind("Classifier"), ensemble=ensemble, random_state=0).fit(X, given)
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
    if kind is bare:
        with pytest.raises(AttributeError, match="'RankedRangeClassifier' has no attribute 'predict_proba'"):
            model.predict_proba(X)
    else:
        P = model.predict_proba(X)
        np.testing.assert_allclose(P.sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.classes_[P.argmax(axis=1)], model.predict(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    assert not hasattr(clone(model), "classes_")


def neighbours(_kind):
    return KNeighborsRegressor(7)


@pytest.mark.parametrize("kind", [None, neighbours, lightgbm, xgboost, catboost])
def test_regressors_of_any_package_drop_planted_outliers_and_little_else(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (1400, 2))
    truth = np.sin(X[:, 0]) + 0.3 * X[:, 1]
    (X, fresh), (y, truth) = np.split(X, [400]), np.split(truth, [400])
    y = y + 0.1 * rng.normal(size=400)
    bad = rng.choice(400, 30, replace=False)
    y[bad] += rng.choice([-1, 1], 30) * rng.uniform(2, 5, 30)
    base = kind and kind("Regressor")
    model = RankedRangeRegressor(base, random_state=0).fit(X, y)
    assert model.dropped_[bad].mean() > 0.95
    assert model.dropped_.sum() < 45
    assert model.noise_interval_[0] < 30 / 400 < model.noise_interval_[1] + 0.02
    plain = clone(base or HistGradientBoostingRegressor(random_state=0)).fit(X, y)
    assert np.mean((model.predict(fresh) - truth) ** 2) < 0.5 * np.mean((plain.predict(fresh) - truth) ** 2)


@pytest.mark.parametrize("kind", [xgboost, catboost, lightgbm])
def test_boosting_of_other_packages_takes_weights_missing_values_and_categories(kind):
    frame, y, given = mixed()
    codes = np.unique(given, return_inverse=True)[1]
    base = kind("Classifier")
    if kind is xgboost:
        base.set_params(enable_categorical=True, tree_method="hist")
    if kind is catboost:
        base.set_params(cat_features=["colour", "shop"])
    table = frame.astype({"shop": "category"})
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    model = RankedRangeClassifier(base, random_state=0).fit(table, codes, sample_weight=weight)
    assert roc_auc_score(given != y, model.p_wrong_) > 0.95  # how many are dropped differs from draw to draw
    assert model.dropped_[given == y].mean() < 0.02
    assert model.dropped_.any()
    if kind is not xgboost:  # which takes codes alone, by itself as well
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
    lists = find_label_issues(list(texts()[0]), texts()[1].tolist(), estimator=words(), random_state=0)
    assert len(lists["row"]) < 12
    series = pd.Series(texts()[0], index=[f"row {i}" for i in range(240)])
    assert len(find_label_issues(series, texts()[1], estimator=words(), random_state=0)["row"]) < 12


def words():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    return make_pipeline(TfidfVectorizer(), LogisticRegression(C=10.0))
