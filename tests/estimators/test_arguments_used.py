"""Every argument is used or refused: on arrays, frames, scans, Dask, and in audits in memory and in passes."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

from rankrange import (
    AoRRClassifier,
    AoRRRegressor,
    PartialAUCClassifier,
    RankedRangeClassifier,
    RankedRangeRegressor,
    TKMLClassifier,
    find_label_issues,
)
from rankrange.shards import ArrayRows

N = 1500
# How fast, or how loud, but not what comes out.
HOW_NOT_WHAT = {"n_jobs", "verbose"}
# More starts, or others, may end at the same minimum.
SAME_MINIMUM = {"n_starts", "random_state"}
OTHER = {
    "m": 0.2,
    "k": 0.8,
    "C": 0.01,
    "fit_intercept": False,
    "n_starts": 0,
    "max_iter": 1,
    "tol": 0.5,
    "random_state": 7,
    "class_weight": {False: 1, True: 5},
    "step": "reweight",
    "aggregate": "worst-group",
    "l1_ratio": 0.5,
}


def _rows(n=N):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    z = X[:, 0] - X[:, 1] + 0.5 * rng.logistic(size=n)
    y = z > 0.8
    y[:150] = ~y[:150]
    return X, y, np.where(np.arange(n) < 150, z + 20.0, z)


def _sharded(X, y, weight=None):
    at = len(X) // 3
    weights = None if weight is None else [weight[:at], weight[at:]]
    return ArrayRows([X[:at], X[at:]], [y[:at], y[at:]], weights, columns=list("abcd"))


LABELS = (np.random.default_rng(1).normal(size=(160, 4)) > 0.3).astype(int)
# A base in which each parameter matters, and another value of each. `fit` gets (X, y), or a scan; y is of this kind.
FITS = {
    "classes of a scan": (AoRRClassifier, "classes", {"m": 0.1, "random_state": 0}, {**OTHER, "loss": "hinge"}),
    "numbers of a scan": (AoRRRegressor, "numbers", {"m": 0.1, "random_state": 0}, {**OTHER, "loss": "huber"}),
    "classes": (AoRRClassifier, "classes", {"m": 0.1, "k": 0.9, "random_state": 0}, {**OTHER, "loss": "hinge"}),
    "numbers": (
        AoRRRegressor,
        "numbers",
        {"m": 0.1, "k": 0.9, "loss": "huber", "random_state": 0},
        {**OTHER, "loss": "absolute"},
    ),
    "numbers without a lower cut": (
        AoRRRegressor,
        "numbers",
        {"m": 0.1, "k": 1.0, "random_state": 0},
        {"step": "reweight", "loss": "absolute", "C": np.inf},
    ),
    "partial AUC": (
        PartialAUCClassifier,
        "classes",
        {"train_fpr": (0.0, 0.5), "random_state": 0},
        {"fpr": (0.0, 0.3), "tpr": (0.2, 1.0), "train_fpr": (0.0, 0.3), "loss": "logistic", "C": 0.01, "cv": 3}
        | {"max_iter": 1, "tol": 0.5, "random_state": 7},
    ),
    "labels": (
        TKMLClassifier,
        "labels",
        {"m": 0.1, "C": 1.0, "validation": None, "random_state": 0},
        {"top_k": 2, "m": 0.2, "k": 0.8, "C": 0.01, "loss": "paper"} | {"validation": 0.5, "max_iter": 1},
    ),
    "any classifier": (
        RankedRangeClassifier,
        "classes",
        {"estimator": LogisticRegression(), "m": 0.1, "random_state": 0},
        {"estimator": LogisticRegression(C=0.01), "m": 0.2, "k": 0.8, "ensemble": False, "cv": 3} | {"random_state": 7},
    ),
    "any regressor": (
        RankedRangeRegressor,
        "numbers",
        {"estimator": Ridge(), "m": 0.1, "random_state": 0},
        {"estimator": Ridge(50.0), "m": 0.2, "k": 0.8, "ensemble": False, "cv": 3, "random_state": 7},
    ),
}
_SEEN = ("coef_", "intercept_", "n_iter_", "m_", "k_", "C_", "lam_", "lam_hat_", "threshold_", "dropped_", "losses_")


def _everything(model, X):
    found = [np.ravel(getattr(model, name)) for name in _SEEN if hasattr(model, name)]
    path = [np.ravel(part) for part in getattr(model, "path_", {}).values()]
    predicted = np.ravel(model.predict(X) if not hasattr(model, "predict_proba") else model.predict_proba(X))
    return np.concatenate([*found, *path, predicted]).astype(float)


def test_no_parameter_is_left_out():
    for kind in {case[0] for case in FITS.values()}:
        tried = {name for case in FITS.values() if case[0] is kind for name in case[3]}
        tried |= SAME_MINIMUM
        assert set(inspect.signature(kind).parameters) - HOW_NOT_WHAT <= tried, kind


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_each_parameter_changes_a_fit_or_is_refused(name):
    kind, target, base, others = FITS[name]
    X, classes, numbers = _rows(N if "scan" in name else 160)
    X[-1] *= 20.0
    y = {"classes": classes, "numbers": numbers, "labels": LABELS}[target]
    data = (X, y)
    if "scan" in name:
        data = (_sharded(X, y),)
        data[0].sample_rows = 500
    usual, ignored = _everything(kind(**base).fit(*data), X), []
    for other in others.keys() & inspect.signature(kind).parameters.keys():
        strict = {**base, "tol": 1e-12} if other == "max_iter" and hasattr(kind(), "tol") else base
        reference = usual if strict is base else _everything(kind(**strict).fit(*data), X)
        try:
            if np.array_equal(_everything(kind(**{**strict, other: others[other]}).fit(*data), X), reference):
                ignored.append(other)
        except ValueError as error:
            if other not in str(error):
                raise
    assert set(ignored) <= SAME_MINIMUM


def test_each_parameter_of_find_label_issues_changes_what_it_finds():
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = (X**2).sum(axis=1) > 1.2  # a line cannot predict it, so that neighbours can help
    predicted = np.column_stack([~y, y]) * 0.6 + 0.2
    y[:40] = ~y[:40]
    base = {"trees": False, "random_state": 0}
    others = {
        "estimator": GaussianNB(),
        "cv": 3,
        "n_repeats": 1,
        "pred_probs": predicted,
        "neighbours": False,
        "trees": True,
        "learn_from": np.where(np.arange(300) < 20, ~y, y),
        "review_cost": 0.5,
        "drop_cost": 0.4,
        "random_state": 7,
        "texts": np.where(X[:, 0] > 0, "right side", "left side"),
        "labels": "observed",
    }

    def outcome(**settings):
        found = find_label_issues(None if "pred_probs" in settings else X, y, **settings)
        named = found.table["action"] if found.labels == "annotated" else ()
        actions = [{"relabel": 1.0, "drop": 2.0}.get(action, 0.0) for action in named]
        return np.concatenate([found.p_wrong, found.score, found.table["row"], actions, [found.noise_estimate]])

    tried = set(inspect.signature(find_label_issues).parameters) - HOW_NOT_WHAT - {"X", "y"}
    assert tried == {*others, "classes"}  # which goes with pred_probs
    usual = outcome(**base)
    assert not [name for name, value in others.items() if np.array_equal(outcome(**{**base, name: value}), usual)]


@pytest.mark.parametrize(("name", "value"), [("cv", 3), ("cv", KFold(5)), ("n_repeats", 2)])
def test_arguments_of_fits_are_refused_beside_ready_made_probabilities(name, value):
    y = np.arange(60) % 2
    with pytest.raises(TypeError, match=f"pred_probs are used without any fit, got {name}"):
        find_label_issues(None, y, pred_probs=np.full((60, 2), 0.5), **{name: value})


# ---- what is done with a scan after the fit --------------------------------------------------------------------------


def test_what_cannot_be_predicted_of_a_scan_is_said():
    X, y, _ = _rows(300)
    rows = _sharded(X, y)
    model = AoRRClassifier(m=0.1, k=1.0).fit(rows)
    with pytest.raises(TypeError, match="already contains the target"):
        model.score(rows, y)
    with pytest.raises(TypeError, match="score needs y"):
        model.score(X)
    renamed = ArrayRows([X], [y], columns=list("abcx"))
    with pytest.raises(ValueError, match="'d' in only one of the two"):
        model.predict(renamed)
    narrow = ArrayRows([X[:, :3]], [y])
    with pytest.raises(ValueError, match="the 4 columns of the fit, got 3"):
        model.predict(narrow)
    holes = X.copy()
    holes[7, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.predict(_sharded(holes, y))
    for step in (StandardScaler(), LogisticRegression()):
        with pytest.raises(TypeError, match="read the table into memory"):
            step.fit(rows, y)


# ---- audits ----------------------------------------------------------------------------------------------------------


def test_models_linear_asks_no_trees_about_numbers():
    """The residuals are then those of the linear model, whose errors are among the measures."""
    pytest.importorskip("pyarrow")
    from rankrange.audit import audit_table

    x = np.random.default_rng(0).normal(size=300)
    for models, same in (("linear", True), ("all", False)):
        found = audit_table({"x": x, "y": x**2}, "y", models=models, jobs=1).result
        of_linear = found.measures[0].robust.value
        assert bool(np.abs(found.residuals).mean() == pytest.approx(of_linear, rel=1e-6)) is same
