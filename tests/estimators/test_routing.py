"""What goes along with the rows, sample_weight and groups, reaches every fit and every choice, routed or not."""

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.datasets import make_classification
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrange import (
    AoRRClassifier,
    AoRRRegressor,
    PartialAUCClassifier,
    RankedRangeClassifier,
    RankWeights,
    TKMLClassifier,
)
from rankrange.crossfit.folds import draw_folds, hold_out

# Of two or three penalties an end is often chosen, and labels here are random.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{start}:UserWarning") for start in ("the chosen C", "all coefficients are zero")
]

X, Y = make_classification(120, 4, flip_y=0.1, random_state=0)
Y = np.sort(Y)  # folds that are not dealt out within classes would lack one
WEIGHT = np.random.default_rng(0).uniform(0.5, 2.0, len(Y))
GROUPS = np.random.default_rng(1).integers(0, 12, len(Y))


# ---- groups


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_of_one_group_leave_nothing_to_choose(weighted):
    """Folds are of whole groups: with one, m and C stay at their defaults. Rows of weight 0 have no group."""
    wrong = np.where(np.arange(len(Y)) % 7 == 0, 1 - Y, Y)
    weight, groups = None, np.zeros(len(Y))
    if weighted:
        weight = np.where(np.arange(len(Y)) % 4 == 0, 0.0, 1.0)
        groups[weight == 0] = np.flatnonzero(weight == 0)
    for model in (AoRRClassifier(C=1.0, random_state=0), AoRRRegressor(random_state=0)):
        assert model.fit(X, wrong, sample_weight=weight, groups=groups).m_ == 0
    assert AoRRClassifier(m=0.1, C="auto").fit(X, wrong, sample_weight=weight, groups=groups).C_ == 1.0
    assert np.isfinite(PartialAUCClassifier().fit(X, wrong, sample_weight=weight, groups=groups).threshold_)


def test_rows_of_folds_and_rows_held_out_are_of_whole_groups():
    for test in draw_folds(len(Y), np.random.default_rng(0), strata=Y, groups=GROUPS, n_repeats=2).test:
        assert test.any()
        assert not np.intersect1d(GROUPS[test], GROUPS[~test]).size
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(Y))
        held = hold_out(len(Y), 30, order, GROUPS)
        rest = np.setdiff1d(order, held)
        assert 0 < len(held) < len(Y)
        assert not np.intersect1d(GROUPS[held], GROUPS[rest]).size
    few = hold_out(4, 1, np.arange(4), np.array([0, 0, 0, 1]))
    assert few.tolist() == [0, 1, 2]


def similar_rows(n_patients=40, n_columns=30):
    rng, patient = np.random.default_rng(0), np.repeat(np.arange(n_patients), 6)
    rows = rng.normal(size=(n_patients, n_columns))[patient]
    return rows + 0.01 * rng.normal(size=rows.shape), patient, rng


L1 = {"C": "auto", "l1_ratio": 1.0, "n_starts": 1, "random_state": 0}
# The model, what it reports, and how much lower that is at least if folds do not split patients.
COPIES = {
    "labels, rows held out": (TKMLClassifier(C=1.0, validation=0.3, max_iter=30, random_state=0), "stop_score_", 0.75),
    "labels, folds": (TKMLClassifier(C=1.0, validation=3, max_iter=30, random_state=0), "stop_score_", 0.75),
    "partial AUC": (PartialAUCClassifier((0.0, 0.5), train_fpr=(0.0, 1.0), random_state=0), "slope_", 0.6),
    "penalty of classes": (AoRRClassifier(0, **L1), "C_", 1.0),
    "weights by rank": (
        AoRRClassifier(C="auto", aggregate=RankWeights("extremile", tau=0.6), random_state=0),
        "C_",
        0.1,
    ),
    "penalty of numbers": (AoRRRegressor(0, **L1), "C_", 1.0),
}


@pytest.mark.parametrize("name", COPIES)
def test_only_folds_of_whole_groups_see_that_nothing_is_predicted(name):
    """Six almost equal rows of each patient, with random targets."""
    (model, reported, factor), (rows, patient, rng) = COPIES[name], similar_rows()
    target = {"labels": np.eye(3, dtype=int)[rng.integers(0, 3, 40)], "penalty of numbers": rng.normal(size=40)}
    y = target.get(name.partition(",")[0], rng.integers(0, 2, 40))[patient]
    free, grouped = clone(model).fit(rows, y), clone(model).fit(rows, y, groups=patient)
    assert getattr(grouped, reported) < factor * getattr(free, reported)


@pytest.mark.parametrize("value", [None, np.nan, "NaT", "NA"])
def test_groups_of_another_length_and_rows_without_a_group_are_errors(value):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        AoRRClassifier().fit(X, Y, groups=GROUPS[:-1])
    if value in ("NA", "NaT"):
        value = getattr(pytest.importorskip("pandas"), value)
    with pytest.raises(ValueError, match="groups must not be missing, got 1 rows without one"):
        AoRRClassifier().fit(X, Y, groups=np.array([value, *GROUPS[1:]], dtype=object))


SEEN = []


class Recording(AoRRClassifier):
    """Notes the groups that it is fitted with."""

    def fit(self, X, y=None, sample_weight=None, *, groups=None):
        SEEN.append(groups)
        return super().fit(X, y, sample_weight, groups=groups)


def test_a_model_inside_a_ranked_range_gets_the_groups_that_it_takes():
    SEEN.clear()
    RankedRangeClassifier(Recording(m=0.1), random_state=0).fit(X, Y, groups=GROUPS)
    assert SEEN
    assert all(groups is not None for groups in SEEN)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = Recording(m=0.1).set_fit_request(groups=False, sample_weight=True)
        RankedRangeClassifier(asks, random_state=0).fit(X, Y, groups=GROUPS, sample_weight=WEIGHT)
    assert SEEN[-1] is None


@pytest.mark.parametrize("task", ["classes", "numbers", "labels"])
def test_groups_of_an_audit_reach_the_choices_of_m_and_C(task):
    pandas = pytest.importorskip("pandas")
    for package in ("jinja2", "pyarrow"):
        pytest.importorskip(package)
    from rankrange.audit import audit_table

    rows, patient, rng = similar_rows() if task == "numbers" else similar_rows(60, 100)
    frame = pandas.DataFrame(rows).rename(columns="c{}".format).assign(patient=[f"p{i}" for i in patient])
    true = (rows[::6, 0] > 0) ^ (rng.random(len(rows[::6])) < 0.15)
    frame["target"] = {
        "classes": np.where(true, "yes", "no"),
        "numbers": rng.normal(size=len(true)),
        "labels": np.where(true, "sea;sky", "land"),
    }[task][patient]
    options = {"models": "linear", **({"labels_by": ";"} if task == "labels" else {"task": task})}
    parted = audit_table(frame, "target", group="patient", **options).result
    free = audit_table(frame, "target", ignore=["patient"], **options).result
    assert parted.C <= 0.01 * free.C
    if task == "labels":
        assert parted.model.stop_score_ < 0.8 < free.model.stop_score_


# ---- every estimator


def public_estimators():
    """All public estimators with a fit of their own, as cheap as they come."""
    import rankrange

    cheap = {
        "AoRRClassifier": {"m": 0.05, "n_starts": 0},
        "AoRRRegressor": {"m": 0.05, "n_starts": 0},
        "RankedRangeClassifier": {"estimator": LogisticRegression()},
        "RankedRangeRegressor": {"estimator": LinearRegression()},
        "TKMLClassifier": {"max_iter": 5},
    }
    kinds = {name: getattr(rankrange, name) for name in rankrange.__all__}
    kinds = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, BaseEstimator)}
    made = {name: kind(**cheap.get(name, {}), random_state=0) for name, kind in kinds.items()}
    return made


ESTIMATORS = public_estimators()


def target_of(model):
    return X[:, 0] + 0.1 * Y if is_regressor(model) else Y


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_takes_weights_and_groups_routed_through_a_pipeline(name):
    """The routed fit is that of the last step by hand."""
    model = clone(ESTIMATORS[name])
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sample_weight=True, groups=True)
        for part in (getattr(model, "estimator", None),):
            if isinstance(part, LogisticRegression | LinearRegression):
                part.set_fit_request(sample_weight=True)
        routed = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), clone(model))
        routed.fit(X, target_of(model), sample_weight=WEIGHT, groups=GROUPS)
        scaled = StandardScaler().fit_transform(X)
        direct = clone(model).fit(scaled, target_of(model), sample_weight=WEIGHT, groups=GROUPS)
        np.testing.assert_allclose(routed[-1].predict(scaled), direct.predict(scaled))
        plain = clone(model).fit(scaled, target_of(model), groups=GROUPS)
    if hasattr(direct, "decision_function"):
        assert not np.array_equal(direct.decision_function(scaled), plain.decision_function(scaled))
