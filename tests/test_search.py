"""RangeSearchCV: scikit-learn's grid search, warm-started along m, against scikit-learn's own over cold fits."""

import warnings
from typing import ClassVar

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, ParameterGrid

from rankrange import AoRRClassifier, AoRRRegressor, RankedRange
from rankrange.crossfit.grid import RangeSearchCV, paper_grid

GRID = {"m": [0, 0.05, 0.15, 0.3], "k": [1.0, 0.8], "C": [0.01, 1.0]}


def far_and_wrong(n=200, seed=0):
    X, y = make_classification(n, 4, n_redundant=0, n_clusters_per_class=1, class_sep=1.5, flip_y=0, random_state=seed)
    X[:20] *= 20.0
    y[:20] = 1 - y[:20]
    return X, y


@pytest.fixture(scope="module")
def searches():
    X, y = far_and_wrong()
    model = AoRRClassifier(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of candidates that cut half of a class
        cold = GridSearchCV(model, GRID, cv=3, return_train_score=True).fit(X, y)
    return cold, RangeSearchCV(model, GRID, cv=3, return_train_score=True).fit(X, y)


def test_the_answer_is_that_of_cold_fits(searches):
    cold, warm = searches
    assert warm.best_params_ == cold.best_params_
    assert warm.best_score_ == pytest.approx(cold.best_score_, abs=0.02)
    np.testing.assert_array_equal(warm.best_estimator_.coef_, cold.best_estimator_.coef_)
    place = [cold.cv_results_["params"].index(params) for params in warm.cv_results_["params"]]
    apart = np.abs(warm.cv_results_["mean_test_score"] - cold.cv_results_["mean_test_score"][place])
    assert np.median(apart) < 0.01


def test_tables_and_attributes_are_those_of_scikit_learn(searches):
    cold, warm = searches
    assert set(warm.cv_results_) == set(cold.cv_results_)
    assert {name for name in vars(cold) if name.endswith("_")} <= {name for name in vars(warm) if name.endswith("_")}
    for name, column in cold.cv_results_.items():
        assert len(warm.cv_results_[name]) == len(column)
    assert sorted(map(repr, warm.cv_results_["params"])) == sorted(
        repr({"C": p["C"], "k": p["k"], "m": p["m"]}) for p in cold.cv_results_["params"]
    )
    best = warm.cv_results_["rank_test_score"] == 1
    assert warm.cv_results_["mean_test_score"][best].min() == warm.cv_results_["mean_test_score"].max()
    X, y = far_and_wrong(seed=1)
    assert warm.score(X, y) == warm.best_estimator_.score(X, y)


def test_the_result_does_not_depend_on_the_number_of_processes(searches):
    X, y = far_and_wrong()
    again = RangeSearchCV(AoRRClassifier(random_state=0), GRID, cv=3, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(again.cv_results_["mean_test_score"], searches[1].cv_results_["mean_test_score"])


def test_grids_of_several_parts_have_their_own_m():
    X, y = far_and_wrong()
    grid = [{"m": [0, 20], "k": [50]}, {"m": [0, 5, 40, 60], "k": [1.0]}]
    search = RangeSearchCV(AoRRClassifier(random_state=0), grid, cv=2, scoring="balanced_accuracy").fit(X, y)
    assert search.cv_results_["params"] == [{"k": 50, "m": m} for m in (0, 20)] + [
        {"k": 1.0, "m": m} for m in (0, 5, 40, 60)
    ]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_regression_can_be_searched():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = X.sum(axis=1) + 0.1 * rng.normal(size=120)
    y[:20] += 30
    model = AoRRRegressor(C=1e4, random_state=0)
    search = RangeSearchCV(model, {"m": [0, 0.1, 0.2]}, cv=4, scoring="neg_median_absolute_error").fit(X, y)
    assert search.best_params_["m"] == 0.2


class Recorded(AoRRClassifier):
    """Tells each fit's m, as a count, and the coefficients it starts from."""

    seen: ClassVar[list] = []

    def fit(self, X, y):
        start = self.coef_.copy() if self.warm_start and hasattr(self, "coef_") else None
        super().fit(X, y)
        self.seen.append((self.m_, start, self.coef_.copy()))
        return self


@pytest.mark.parametrize("ms", [[0, 0.05, 0.15, 0.3], [0.15, 30, 0, 0.05]])
def test_a_path_runs_from_the_largest_m_to_the_smallest_each_fit_from_the_one_before(ms):
    """Where more rows are cut poor minima are flatter, so that the first search is the easy one."""
    X, y = far_and_wrong()
    Recorded.seen.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        RangeSearchCV(Recorded(k=1.0, random_state=0), {"m": ms}, cv=2, refit=False).fit(X, y)
    first, second = Recorded.seen[:4], Recorded.seen[4:]
    for path in (first, second):
        counts = [m for m, _, _ in path]
        assert counts == sorted(counts, reverse=True)
        assert len(set(counts)) == 4
        assert path[0][1] is None
        for (_, start, _), (_, _, before) in zip(path[1:], path[:-1], strict=True):
            np.testing.assert_array_equal(start, before)


def test_values_of_m_without_an_order_and_the_largest_number_are_searched_from_many_starts():
    """A path begins at the largest m: an "auto" or a range before it may be any m."""
    X, y = far_and_wrong()
    Recorded.seen.clear()
    ms = [RankedRange(0.05, 1.0), 0.1, "auto", 0.2, RankedRange(0.3, 1.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        RangeSearchCV(Recorded(random_state=0), {"m": ms}, cv=2, refit=False).fit(X, y)
    for path in (Recorded.seen[:5], Recorded.seen[5:]):
        assert [start is None for _, start, _ in path] == [True, True, True, True, False]
        assert [m for m, _, _ in path[-2:]] == [20, 10]


def test_the_grid_of_the_paper():
    grid = paper_grid(200)
    assert [part["k"][0] for part in grid] == [1, *range(20, 200, 20), 1.0]
    assert [[C * 200 for C in part["C"]] for part in grid] == [pytest.approx([1.0, 10.0, 100.0, 1e3, 1e4, 1e5])] * 11
    for part in grid:
        k = 200 if part["k"][0] == 1.0 and isinstance(part["k"][0], float) else part["k"][0]
        assert all(0 <= m < k for m in part["m"])
    small = paper_grid(50, k=[1.0], m=[0.5], C=[1.0])
    assert len(list(ParameterGrid(small))) == 1 + 3


def test_what_it_cannot_search_is_refused():
    X, y = far_and_wrong()
    with pytest.raises(ValueError, match="without m"):
        RangeSearchCV(AoRRClassifier(), {"C": [1.0]}).fit(X, y)
    with pytest.raises(ValueError, match="one metric"):
        RangeSearchCV(AoRRClassifier(), {"m": [0]}, scoring=["accuracy", "f1"]).fit(X, y)


def test_groups_and_weights_by_rank_are_searched():
    from sklearn import config_context

    from rankrange import RankWeights

    X, y = far_and_wrong()
    weights = {"m": [0], "aggregate": [RankWeights("extremile", tau=tau) for tau in (0.6, 0.8)]}
    found = RangeSearchCV(AoRRClassifier(), weights, cv=3).fit(X, y)
    assert found.best_estimator_.aggregate is not None
    with config_context(enable_metadata_routing=True):
        model = AoRRClassifier(aggregate="worst-group", random_state=0).set_fit_request(groups=True)
        groups = np.arange(len(y)) % 2
        found = RangeSearchCV(model, {"m": [0, 0.1]}, cv=3).fit(X, y, groups=groups)
    assert found.best_estimator_.groups_["group"].tolist() == [0, 1]
