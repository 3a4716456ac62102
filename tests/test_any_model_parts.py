"""What the estimators around any model are made of: numbers, judgement, any X for find_label_issues; and the guide."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline

from rankrange import RankedRangeClassifier, RankedRangeRegressor, find_label_issues, noise
from rankrange.crossfit.folds import Folds, draw_folds
from rankrange.crossfit.judge import judge, mixture_weights
from rankrange.crossfit.numeric import numeric_view
from rankrange.crossfit.residuals import judge_numbers
from test_any_model import columns, mixed, moons, texts

# ---- numbers


def waves(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1], rng


@pytest.mark.parametrize("base", [None, KNeighborsRegressor(7)])
def test_outliers_are_dropped(base):
    X, f, rng = waves()
    y = f + 0.1 * rng.normal(size=400)
    bad = rng.choice(400, 30, replace=False)
    y[bad] += rng.choice([-1, 1], 30) * rng.uniform(2, 5, 30)
    model = RankedRangeRegressor(base, random_state=0).fit(X, y)
    assert model.dropped_[bad].mean() > 0.95
    assert model.dropped_.sum() < 45
    assert model.noise_interval_[0] < 30 / 400 < model.noise_interval_[1] + 0.02
    plain = (base or HistGradientBoostingRegressor(random_state=0)).fit(X, y)
    fresh, truth, _ = waves(1000, 1)
    assert np.mean((model.predict(fresh) - truth) ** 2) < 0.5 * np.mean((plain.predict(fresh) - truth) ** 2)


@pytest.mark.parametrize("seed", range(3))
def test_normal_noise_holds_no_outliers(seed):
    X, f, rng = waves(600, seed)
    model = RankedRangeRegressor(KNeighborsRegressor(15), random_state=0).fit(X, f + 0.3 * rng.normal(size=600))
    assert model.dropped_.mean() < 0.01


@pytest.mark.parametrize("by", ["feature", "target"])
def test_noise_that_grows_is_not_taken_for_outliers(by):
    X, f, rng = waves(1500)
    scale = 0.05 + 0.6 * (X[:, 1] + 3) / 6 if by == "feature" else 0.05 + 0.5 * (f - f.min())
    y = f + scale**1.5 * rng.normal(size=1500)
    model = RankedRangeRegressor(KNeighborsRegressor(15), random_state=0).fit(X, y)
    assert model.dropped_.mean() < 0.015


def test_numbers_with_a_given_m():
    X, f, rng = waves()
    y = f + 0.1 * rng.normal(size=400)
    y[:20] += 4
    model = RankedRangeRegressor(KNeighborsRegressor(7), m=20, refit="single", n_repeats=1, random_state=0).fit(X, y)
    assert model.dropped_[:20].all()
    assert model.m_ == model.dropped_.sum() == 20
    assert isinstance(model.estimator_, KNeighborsRegressor)


# ---- what they are made of


def test_mixture_weights_make_the_labels_most_likely():
    rng = np.random.default_rng(0)
    likelihood, share = rng.uniform(0.05, 1, (3, 200)), np.full(200, 1 / 200)
    weights = mixture_weights(likelihood, share)
    best = np.log(weights @ likelihood).mean()
    for other in rng.dirichlet(np.ones(3), 300):
        assert np.log(other @ likelihood).mean() <= best + 1e-6


def test_an_opinion_that_says_nothing_gets_no_weight():
    X, y = moons(600)
    given = noise.symmetric(y, 0.2, 0)
    folds = draw_folds(600, np.random.default_rng(0), strata=given)
    good = folds.average(
        [GaussianNB().fit(X[a], given[a]).predict_proba(X[b]) for a, b in zip(folds.train, folds.test, strict=True)]
    )
    verdict = judge({"good": good, "idle": np.full((600, 2), 0.5)}, given)
    assert verdict.weights[0] > 0.9
    assert verdict.interval[0] < 0.2 < verdict.interval[1]


def test_labels_that_nothing_predicts_are_mostly_left_alone():
    cut = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(300, 4)), rng.integers(0, 2, 300)
        cut.append(RankedRangeClassifier(GaussianNB(), n_repeats=2, random_state=0).fit(X, y).dropped_.mean())
    assert np.median(cut) < 0.02


def test_rows_that_no_opinion_knows_get_the_overall_rate():
    P = np.tile([0.9, 0.1], (100, 1))
    P[:5] = np.nan
    verdict = judge({"one": P}, (np.arange(100) % 10 == 0).astype(int))
    np.testing.assert_array_equal(verdict.p_wrong[:5], verdict.rate)


def test_folds_average_what_each_row_was_told():
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


def test_residuals_beyond_a_normal_are_the_outliers():
    rng = np.random.default_rng(0)
    residual = rng.normal(size=5000)
    residual[:100] = rng.choice([-1, 1], 100) * 8.0
    found = judge_numbers(residual, np.zeros(5000), np.ones(5000))
    assert found.p_wrong[:100].min() > 0.95
    assert (found.p_wrong[100:] >= 0.5).mean() < 0.003
    assert found.interval[0] < 0.02 < found.interval[1]
    assert np.abs(found.standardised[100:]).std() == pytest.approx(1.0, abs=0.45)


# ---- find_label_issues with any X


def test_label_issues_of_texts_and_tables():
    X, y = texts()
    given = noise.symmetric(y, 0.1, 0)
    issues = find_label_issues(
        X, given, estimator=make_pipeline(TfidfVectorizer(), LogisticRegression()), random_state=0
    )
    assert np.isin(np.flatnonzero(given != y), issues["row"]).mean() > 0.9
    frame, y, given = mixed()
    issues = find_label_issues(frame, given, estimator=columns(), random_state=0)
    worst = issues["row"][: (given != y).sum()]
    assert (given != y)[worst].mean() > 0.6


def test_label_issues_refuse_other_lengths_and_still_refuse_nan_for_the_linear_model():
    X, y = texts()
    with pytest.raises(ValueError, match="same number of rows, got 239 and 240"):
        find_label_issues(X[:-1], y, estimator=make_pipeline(TfidfVectorizer(), LogisticRegression()))


def test_a_splitter_may_test_rows_unequally_often():
    X, y = moons(100)
    RankedRangeClassifier(GaussianNB(), cv=KFold(3), random_state=0).fit(X, y)


GUIDE = (Path(__file__).parent.parent / "docs" / "any_model.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("example", re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S))
def test_the_guide_prints_what_it_says(example):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(example, "any_model.md", "exec"), {"__name__": "guide"})
    assert output.getvalue().splitlines() == re.findall(r"# -> (.*)$", example, re.M) != []
