"""A weight is a repetition, for every estimator and every step below: all equal, zero, above one, fractions."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from definitions import slow
from rankrange import (
    AoRRClassifier,
    AoRRRegressor,
    PartialAUCClassifier,
    RankedRangeClassifier,
    RankedRangeRegressor,
    TKMLClassifier,
)
from rankrange.core.aggregates import AGGREGATES
from rankrange.core.losses import LOSSES
from rankrange.core.objective import Design, Objective
from rankrange.crossfit.alternate import by_rank
from rankrange.crossfit.folds import Folds, draw_folds
from rankrange.crossfit.models import Task, fit_folds, fit_rows
from rankrange.crossfit.neighbours import neighbour_means
from rankrange.crossfit.predictions import linear_predictions
from rankrange.estimators.weights import class_factors, unit_of
from rankrange.outliers import outlier_posterior, outlier_share
from rankrange.outliers.scatter import robust_scale
from rankrange.shards import ArrayRows

N = 120
WEIGHTS = {
    "all 2": np.full(N, 2.0),
    "0 to 3": np.random.default_rng(5).integers(0, 4, N).astype(float),
    "0 or 1": np.random.default_rng(6).integers(0, 2, N).astype(float),
    "1 or 5": np.random.default_rng(7).choice([1.0, 5.0], N),
}


def rows(classes=2, seed=0):
    """Rows of overlapping classes, a tenth of the labels wrong; and numbers with a tenth of outliers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    codes = (3 * X[:, :classes] + rng.gumbel(size=(N, classes))).argmax(axis=1)
    numbers = X @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=N)
    wrong = rng.random(N) < 0.1
    return X, np.where(wrong, (codes + 1) % classes, codes), np.where(wrong, numbers + 15.0, numbers)


def repeated(weight, *arrays):
    rows = np.repeat(np.arange(len(weight)), weight.astype(int))
    return [array[rows] for array in arrays]


# The kind of target, the model, and the weights that a fit is tried with beside "0 to 3".
FITS = {
    **{f"two classes, m={m}": ("two", AoRRClassifier(m, C=0.3), WEIGHTS) for m in (0, 0.1)},
    **{f"three classes, m={m}": ("three", AoRRClassifier(m, C=0.3), WEIGHTS) for m in (0, 0.1)},
    **{f"numbers, m={m}": ("numbers", AoRRRegressor(m, C=10.0), WEIGHTS) for m in (0, 0.1)},
    "two classes, chosen m": ("two", AoRRClassifier(C=0.3), ["0 to 3"]),
    "three classes, chosen m": ("three", AoRRClassifier(C=0.3), ["0 to 3"]),
    "numbers, chosen m": ("numbers", AoRRRegressor(C=10.0), ["0 to 3"]),
    "chosen C": ("wide", AoRRClassifier(0, C="auto"), ["0 to 3", "1 or 5"]),
    "an l1 penalty": ("wide", AoRRClassifier(0.1, 0.7, C=0.5, l1_ratio=0.5), ["0 to 3"]),
    "an l1 penalty of numbers": ("numbers", AoRRRegressor(0.1, 0.7, C=0.1, l1_ratio=0.5), ["0 to 3"]),
    "sparse": ("sparse", AoRRClassifier(0.1), ["0 to 3"]),
    **{step: ("numbers", AoRRRegressor("half", C=np.inf, step=step), ["0 to 3"]) for step in ("reweight", "mm")},
    "partial AUC": ("two", PartialAUCClassifier(train_fpr=(0.0, 0.3)), ["0 to 3"]),
    "chosen l1 penalty": ("wide", AoRRClassifier(0.1, C="auto", l1_ratio=1.0, n_starts=1), ["0 to 3"]),
    "chosen l1 penalty of numbers": ("numbers", AoRRRegressor(0.1, C="auto", l1_ratio=1.0, n_starts=1), ["0 to 3"]),
    "labels, rows held out": ("sets", TKMLClassifier(2, m=0.1, C=2.0, validation=0.3, max_iter=20), ["0 to 3"]),
    "labels, folds": ("sets", TKMLClassifier(2, m=0.1, C=2.0, validation=4, max_iter=20), ["0 to 3"]),
    "labels": ("sets", TKMLClassifier(2, m=0.1, C=2.0, validation=None, max_iter=20), ["0 to 3"]),
}
CASES = [(name, weight) for name, (*_, weights) in FITS.items() for weight in weights]
# Coefficients, what was chosen, what it was chosen by, and what is told of the fit.
TOLD = ("coef_", "m_", "k_", "C_", "intercept_", "objective_", "lam_", "lam_hat_", "noise_interval_", "threshold_")


@pytest.mark.parametrize(("name", "weight"), CASES)
def test_a_fit_cannot_tell_a_weight_from_repeated_rows_in_any_order(name, weight):
    kind, model, _ = FITS[name]
    X, y, numbers = rows(3 if kind in ("three", "sets") else 2)
    if kind == "wide":
        X = np.column_stack([X, np.random.default_rng(0).normal(size=(N, 12))])
    if kind == "sparse":
        X = sp.hstack([X, sp.random_array((N, 250), density=0.05, rng=np.random.default_rng(0))], format="csr")
    y = {"numbers": numbers, "sets": np.eye(4, dtype=int)[y] | np.eye(4, dtype=int)[(y + 1) % 4]}.get(kind, y)
    w = WEIGHTS[weight]
    by_weight = clone(model).set_params(random_state=0).fit(X, y, w)
    order = np.random.default_rng(1).permutation(int(w.sum()))
    by_rows = clone(model).set_params(random_state=0).fit(*(part[order] for part in repeated(w, X, y)))
    for told in (*TOLD, "bse_") if name in ("reweight", "mm") else TOLD:
        if hasattr(by_rows, told):
            np.testing.assert_allclose(getattr(by_weight, told), getattr(by_rows, told), rtol=1e-9, atol=1e-12)
    if hasattr(by_rows, "dropped_"):
        np.testing.assert_array_equal(repeated(w, by_weight.dropped_)[0][order], by_rows.dropped_)
    paths = getattr(by_weight, "path_", {}), getattr(by_rows, "path_", {})
    for column in {"score", "loss"} & paths[0].keys():
        np.testing.assert_allclose(paths[0][column], paths[1][column], rtol=1e-9, atol=1e-12)
    if hasattr(by_rows, "predict_proba"):
        np.testing.assert_allclose(by_weight.predict_proba(X), by_rows.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_the_estimated_share_of_errors_is_a_share_of_the_weight(kind):
    """A twentieth of the rows are errors, each of three times the mean weight of the others."""
    rng = np.random.default_rng(0)
    X, wrong = rng.normal(size=(400, 3)), np.arange(400) % 20 == 0
    z = X @ [3.0, -2.0, 1.0]
    weight = np.where(wrong, 3.0, rng.uniform(0.25, 1.75, 400))
    if kind == "classes":
        model = AoRRClassifier(random_state=0).fit(X, (z > 0) ^ wrong, sample_weight=weight)
    else:
        model = AoRRRegressor(random_state=0).fit(X, z + 0.2 * rng.normal(size=400) + 9.0 * wrong, sample_weight=weight)
    assert model.noise_estimate_ == pytest.approx(weight[wrong].sum() / weight.sum(), abs=0.02)


@pytest.mark.parametrize("scale", [0.37, 1.0, 6.5])
def test_a_fit_that_is_always_right_scores_one_whatever_the_weights(scale):
    X, _, _ = rows()
    y = (X[:, 0] > 0).astype(int)
    X[:, 0] += np.where(y == 1, 3.0, -3.0)
    weight = scale * np.random.default_rng(1).uniform(0.5, 2.0, N)
    found = AoRRClassifier(C=1.0, random_state=0).fit(X, y, weight).path_
    assert found["score"][0] == pytest.approx(1.0)
    assert found["score"].max() == pytest.approx(1.0)


# ---- below the estimators ------------------------------------------------------------------------------------------


class WithPrior(ClassifierMixin, BaseEstimator):
    """A classifier that learns from one number per row, which its fit is given beside X and y."""

    def fit(self, X, y, hint=None):
        assert len(hint) == len(X) == len(y)
        self.inner_ = GaussianNB().fit(np.column_stack([X, hint]), y)
        self.classes_ = self.inner_.classes_
        self.hint_ = float(np.mean(hint))
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(np.column_stack([X, np.full(len(X), self.hint_)]))


@pytest.mark.parametrize("weight", WEIGHTS)
def test_any_model_with_arguments_of_its_fit_cannot_tell_a_weight_from_repeated_rows(weight):
    (X, y, _), w = rows(), WEIGHTS[weight]
    hint, chosen = np.arange(N, dtype=float), np.arange(0, N, 2)
    model = fit_rows(WithPrior(), Task(X, y, np.arange(2), w, {"hint": hint}), chosen)
    other = WithPrior().fit(*repeated(w[chosen], X[chosen], y[chosen]), *repeated(w[chosen], hint[chosen]))
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.3, 700.0])
@pytest.mark.parametrize("model", [GaussianNB(), LinearRegression()], ids=lambda model: type(model).__name__)
def test_models_of_folds_cannot_tell_a_weight_from_repeated_rows(model, scale):
    """Neither whole weights, nor fractions, nor so many that they are not written out."""
    (X, y, _), w = rows(), WEIGHTS["0 to 3"]
    folds = draw_folds(N, np.random.default_rng(0), n_folds=3, n_repeats=2)
    classes = np.arange(2) if hasattr(model, "predict_proba") else None
    by_weight = fit_folds(model, Task(X, y, classes, scale * w), folds).out_of_fold
    parts = [np.repeat(part, w.astype(int), axis=1) for part in (folds.train, folds.test)]
    by_rows = fit_folds(model, Task(*repeated(w, X, y), classes), Folds(*parts)).out_of_fold
    np.testing.assert_allclose(repeated(w, by_weight)[0], by_rows, rtol=1e-6)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_members_of_the_ensemble_cannot_tell_a_weight_from_repeated_rows(weight):
    (X, y, _), w = rows(3), WEIGHTS[weight]
    folds = draw_folds(N, np.random.default_rng(0), n_folds=3, n_repeats=1)
    parts = [np.repeat(part, w.astype(int), axis=1) for part in (folds.train, folds.test)]

    def near(X, y, K, folds, mass=None):
        return (neighbour_means(X, np.eye(K)[y], folds, np.random.default_rng(0), mass),)

    for predict, slack in ((linear_predictions, 2e-2), (near, 1e-9)):
        by_weight = predict(X, y, 3, folds, w)
        by_rows = predict(*repeated(w, X, y), 3, Folds(*parts))
        for one, other in zip(by_weight, by_rows, strict=True):
            np.testing.assert_allclose(repeated(w, one)[0], other, atol=slack)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_outliers_cannot_tell_a_weight_from_repeated_rows(weight):
    w = WEIGHTS[weight]
    rng = np.random.default_rng(0)
    residual, expected = rng.normal(size=N), np.ones(N)
    residual[:10] += 12.0
    one, other = (
        outlier_posterior(residual, w, expected=expected),
        outlier_posterior(*repeated(w, residual, np.ones(N)), expected=repeated(w, expected)[0]),
    )
    assert one.rate == pytest.approx(other.rate)
    assert one.interval == pytest.approx(other.interval)
    np.testing.assert_allclose(
        repeated(w, one.p_wrong, one.standardised), [other.p_wrong, other.standardised], atol=1e-6
    )
    assert robust_scale(residual, w) == pytest.approx(robust_scale(*repeated(w, residual, np.ones(N))))
    assert outlier_share(residual, w) == pytest.approx(outlier_share(*repeated(w, residual, np.ones(N))))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e9])
def test_targets_of_no_weight_are_absent_whatever_they_are(value):
    rng = np.random.default_rng(0)
    residual, expected = rng.normal(size=N), rng.uniform(0.5, 2.0, N)
    residual[:8] += 12.0
    w = np.where(np.arange(N) % 4 == 1, 0.0, 1.5)
    there = w > 0
    spoilt = np.where(there, residual, value)
    one = outlier_posterior(spoilt, w, expected=expected)
    other = outlier_posterior(residual[there], w[there], expected=expected[there])
    assert (one.rate, one.interval) == (other.rate, other.interval)
    np.testing.assert_array_equal(one.p_wrong[there], other.p_wrong)
    np.testing.assert_array_equal(one.standardised[there], other.standardised)


# ---- objectives and solvers ----------------------------------------------------------------------------------------

PAIRS = [(name, loss) for name in AGGREGATES for loss in ("logistic", "hinge", "squared", "softmax")]


@pytest.mark.parametrize(("aggregate", "loss"), PAIRS)
def test_an_objective_cannot_tell_a_weight_from_repeated_rows(aggregate, loss):
    """Values, gradients and the weights of rows, for every aggregate."""
    (X, codes, numbers), w = rows(3), WEIGHTS["0 to 3"][:N]
    y, outputs = {"squared": (numbers, 1), "softmax": (codes, 3)}.get(loss, (np.where(codes > 0, 1.0, -1.0), 1))
    total = int(w.sum())

    def objective(X, y, groups, mass, m, k):
        kind = AGGREGATES[aggregate](groups)
        design = Design(X, True)
        return Objective(design, y, LOSSES[loss](), 2.0, outputs, m=m, k=k, sample_weight=mass, aggregate=kind)

    W = np.random.default_rng(3).normal(size=(outputs, 4))
    groups = codes % 2
    one = objective(X, y, groups, w, 0.1 * total, 0.8 * total)
    ones = np.ones(total)
    other = objective(*repeated(w, X, y, groups), ones, 0.1 * total, 0.8 * total)
    assert one.value(W) == pytest.approx(other.value(W))
    np.testing.assert_allclose(one.at(W).gradient, other.at(W).gradient, atol=1e-9)
    summed = np.bincount(np.repeat(np.arange(N), w.astype(int)), other.at(W).weights, minlength=N)
    np.testing.assert_allclose(one.at(W).weights, summed, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_row_belongs_where_the_middle_of_its_ranks_falls(seed):
    rng = np.random.default_rng(seed)
    losses, mass = rng.permutation(N).astype(float), rng.integers(1, 4, N).astype(float)
    m, k = 0.2 * mass.sum(), 0.7 * mass.sum()
    dropped, easy = by_rank(losses, np.ones(N, dtype=bool), m, k, mass)
    for row in range(N):
        before = mass[losses > losses[row]].sum()
        assert dropped[row] == (before + mass[row] / 2 < m)
        assert easy[row] == (before + mass[row] / 2 > k)


# ---- relative weights, and class weights ----------------------------------------------------------------------------


ROWS = 160
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3))
TRUE = (X @ [2.0, -1.0, 0.0] > 0).astype(int)
WRONG = RNG.random(ROWS) < 0.15
LABELS = np.where(WRONG, 1 - TRUE, TRUE)
NUMBERS = X @ [2.0, -1.0, 0.0] + 0.1 * RNG.normal(size=ROWS) + 20.0 * WRONG
WEIGHT = RNG.uniform(0.2, 3.0, ROWS)
SETS = np.stack([TRUE, 1 - TRUE, X[:, 2] > 0], axis=1).astype(int)
CHOOSING = {
    "classifier": (AoRRClassifier(random_state=0), LABELS),  # with m="auto", C=1.0
    "classifier, C too": (AoRRClassifier(C="auto", random_state=0), LABELS),
    "classifier, C alone": (AoRRClassifier(m=0.15, C="auto", random_state=0), LABELS),
    "regressor, l1 penalty": (AoRRRegressor(0.15, C="auto", l1_ratio=1.0, n_starts=1, random_state=0), NUMBERS),
    "stratified": (AoRRClassifier(aggregate="per-class", random_state=0), LABELS),
    "regressor, C too": (AoRRRegressor(C="auto", random_state=0), NUMBERS),
    "any classifier": (RankedRangeClassifier(GaussianNB(), random_state=0), LABELS),
    "any penalised classifier": (RankedRangeClassifier(LogisticRegression(), random_state=0), LABELS),
    "any regressor": (RankedRangeRegressor(Ridge(), random_state=0), NUMBERS),
    "labels": (TKMLClassifier(max_iter=20, random_state=0), SETS),
}


def told(model):
    """What a fit says of its rows, and what it dropped, as a share."""
    scores = model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)
    if hasattr(model, "predict_proba") and not hasattr(model, "coef_"):
        scores = model.predict_proba(X)
    return scores, model.m_ / model.k_, model.dropped_


def assert_same(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-3, atol=1e-3)
    assert one[1] == pytest.approx(other[1], rel=1e-9)
    np.testing.assert_array_equal(one[2], other[2])


@pytest.mark.parametrize("scale", [1.0 / WEIGHT.sum(), *slow(7.3e4)])
@pytest.mark.parametrize("name", CHOOSING)
def test_what_auto_chooses_does_not_depend_on_the_scale_of_relative_weights(name, scale):
    model, y = CHOOSING[name]
    reference = told(model.fit(X, y, sample_weight=WEIGHT))
    assert_same(told(model.fit(X, y, sample_weight=scale * WEIGHT)), reference)


# Counts of a class are rounded to whole rows, masses are not.
@pytest.mark.parametrize("weight", [0.5, *slow(1.0 / ROWS)])
@pytest.mark.parametrize("name", [name for name in CHOOSING if name != "stratified"])
def test_equal_weights_are_no_weights(name, weight):
    model, y = CHOOSING[name]
    assert_same(told(model.fit(X, y, sample_weight=np.full(ROWS, weight))), told(model.fit(X, y)))


@pytest.mark.parametrize("m", [0.15, "auto"])
def test_a_row_of_no_weight_is_no_row(m):
    weight = np.where(np.arange(ROWS) % 5 == 0, 0.0, WEIGHT)
    rows = weight > 0
    for model, y in ((AoRRClassifier(m, random_state=0), LABELS), (AoRRRegressor(m, random_state=0), NUMBERS)):
        one = model.fit(X, y, sample_weight=weight).coef_
        np.testing.assert_allclose(model.fit(X[rows], y[rows], sample_weight=weight[rows]).coef_, one, rtol=1e-9)


def test_one_unit_is_the_weight_of_a_row_and_counts_are_counted():
    assert unit_of(None) == unit_of(np.array([2.0, 3.0, 0.0])) == 1.0
    assert unit_of(np.array([0.25, 0.25, 0.0])) == 0.25
    np.testing.assert_allclose(WEIGHT.sum() / unit_of(WEIGHT), WEIGHT.sum() ** 2 / (WEIGHT**2).sum())
    counts, factor = np.array([2.0, 1.0, 3.0]), np.array([0.5, 0.5, 1.5])
    assert unit_of(counts, factor) == pytest.approx(unit_of(np.repeat(factor, counts.astype(int))))


# ---- class weights under a cut


def forms_of(class_weight, weight):
    """The same masses: by class, by row, and written out as far as they are whole."""
    factor = class_factors(class_weight, np.array([0, 1]), LABELS, weight)
    values = {label: float(factor[label == LABELS][0]) for label in (0, 1)}
    mass = factor if weight is None else factor * weight
    yield {"class_weight": values}, X, LABELS, weight
    yield {}, X, LABELS, mass
    if weight is not None:
        rows = np.repeat(np.arange(ROWS), weight.astype(int))
        yield {"class_weight": class_weight}, X[rows], LABELS[rows], None
    if (mass == np.floor(mass)).all():
        rows = np.repeat(np.arange(ROWS), mass.astype(int))
        yield {}, X[rows], LABELS[rows], None


CUT, RANGE, AUTO = {"m": 0.1}, {"m": 0.1, "k": 0.8}, {"m": "auto"}


@pytest.mark.parametrize(
    ("settings", "class_weight"),
    [(CUT, "balanced"), (AUTO, "balanced"), (CUT, {0: 1, 1: 3}), (AUTO, {0: 1, 1: 3}), (RANGE, {0: 2.5, 1: 1})],
    ids=str,
)
@pytest.mark.parametrize("counts", [False, True], ids=["once", "counted"])
def test_class_weights_under_a_cut_are_weights_and_repetitions(settings, class_weight, counts):
    weight = np.where(np.arange(ROWS) % 3 == 0, 2.0, 1.0) if counts else None
    options = {"k": 1.0, **settings, "random_state": 0, "tol": 1e-9}
    reference = AoRRClassifier(class_weight=class_weight, **options).fit(X, LABELS, sample_weight=weight)
    for given, rows, y, mass in forms_of(class_weight, weight):
        if settings["m"] == "auto" and mass is not None and given == {} and unit_of(mass) != 1.0:
            continue  # relative weights: how many rows they stand for is not known
        model = AoRRClassifier(**given, **options).fit(rows, y, sample_weight=mass)
        np.testing.assert_allclose(model.coef_, reference.coef_, rtol=1e-4, atol=1e-5)
        assert model.m_ == pytest.approx(reference.m_)


def test_masses_that_are_whole_are_counts():
    model = AoRRClassifier(0.1, 1.0, class_weight="balanced", random_state=0).fit(X, LABELS)
    assert (model.m_, model.k_) == (ROWS // 10, ROWS)
    assert type(model.m_) is type(model.k_) is int
    assert type(AoRRClassifier(0.1, 1.0, random_state=0).fit(X, LABELS, sample_weight=WEIGHT).m_) is float


def test_whole_weights_of_any_type_repeat_rows_for_models_that_take_no_weights():
    weight = np.where(np.arange(ROWS) % 2, 50.0, 1.0)
    model = RankedRangeClassifier(KNeighborsClassifier(), m=0.1, random_state=0)
    of_floats = model.fit(X, LABELS, sample_weight=weight).predict_proba(X)
    np.testing.assert_array_equal(of_floats, model.fit(X, LABELS, sample_weight=weight.astype(int)).predict_proba(X))
    with pytest.raises(ValueError, match=r"unless the weights are whole and at most 1,000,000 in all.*KNeighbors"):
        model.fit(X, LABELS, sample_weight=1e6 * weight)


@pytest.mark.parametrize("kind", [AoRRClassifier, AoRRRegressor])
def test_weights_of_a_scan_are_relative_too(kind):
    y = LABELS if kind is AoRRClassifier else NUMBERS
    fits = []
    for scale in (1.0, 2.0**-10):
        rows = ArrayRows([np.tile(X, (9, 1))], [np.tile(y, 9)], [scale * np.tile(WEIGHT, 9)])
        rows.sample_rows = 800
        fits.append(kind(random_state=0).fit(rows))
    one, other = fits
    assert one.m_ / one.k_ == other.m_ / other.k_ > 0
    np.testing.assert_allclose(other.coef_, one.coef_, rtol=1e-9)
