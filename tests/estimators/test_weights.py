"""What a weight means: whole ones are repetitions, others are relative, and "auto" does not depend on their scale."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from rankrange import AoRRClassifier, AoRRRegressor, RankedRangeClassifier, RankedRangeRegressor, TKMLClassifier
from rankrange.estimators.weights import class_factors, unit_of
from rankrange.shards import ArrayRows

N = 160
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
TRUE = (X @ [2.0, -1.0, 0.0] > 0).astype(int)
WRONG = RNG.random(N) < 0.15
LABELS = np.where(WRONG, 1 - TRUE, TRUE)
NUMBERS = X @ [2.0, -1.0, 0.0] + 0.1 * RNG.normal(size=N) + 20.0 * WRONG
WEIGHT = RNG.uniform(0.2, 3.0, N)
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


@pytest.mark.parametrize("name", CHOOSING)
def test_what_auto_chooses_does_not_depend_on_the_scale_of_relative_weights(name):
    model, y = CHOOSING[name]
    reference = told(model.fit(X, y, sample_weight=WEIGHT))
    for scale in (1.0 / WEIGHT.sum(), 7.3e4):
        assert_same(told(model.fit(X, y, sample_weight=scale * WEIGHT)), reference)


# Counts of a class are rounded to whole rows, masses are not.
@pytest.mark.parametrize("name", [name for name in CHOOSING if name != "stratified"])
def test_equal_weights_are_no_weights(name):
    model, y = CHOOSING[name]
    reference = told(model.fit(X, y))
    for weight in (1.0 / N, 0.5):
        assert_same(told(model.fit(X, y, sample_weight=np.full(N, weight))), reference)


@pytest.mark.parametrize("m", [0.15, "auto"])
def test_a_row_of_no_weight_is_no_row(m):
    weight = np.where(np.arange(N) % 5 == 0, 0.0, WEIGHT)
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
        rows = np.repeat(np.arange(N), weight.astype(int))
        yield {"class_weight": class_weight}, X[rows], LABELS[rows], None
    if (mass == np.floor(mass)).all():
        rows = np.repeat(np.arange(N), mass.astype(int))
        yield {}, X[rows], LABELS[rows], None


CUT, RANGE, AUTO = {"m": 0.1}, {"m": 0.1, "k": 0.8}, {"m": "auto"}


@pytest.mark.parametrize(
    ("settings", "class_weight"),
    [(CUT, "balanced"), (AUTO, "balanced"), (CUT, {0: 1, 1: 3}), (AUTO, {0: 1, 1: 3}), (RANGE, {0: 2.5, 1: 1})],
    ids=str,
)
@pytest.mark.parametrize("counts", [False, True], ids=["once", "counted"])
def test_class_weights_under_a_cut_are_weights_and_repetitions(settings, class_weight, counts):
    weight = np.where(np.arange(N) % 3 == 0, 2.0, 1.0) if counts else None
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
    assert (model.m_, model.k_) == (N // 10, N)
    assert type(model.m_) is type(model.k_) is int
    assert type(AoRRClassifier(0.1, 1.0, random_state=0).fit(X, LABELS, sample_weight=WEIGHT).m_) is float


def test_whole_weights_of_any_type_repeat_rows_for_models_that_take_no_weights():
    weight = np.where(np.arange(N) % 2, 50.0, 1.0)
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
