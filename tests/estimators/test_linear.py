"""AoRRClassifier and AoRRRegressor as scikit-learn estimators."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import skops.io
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from rankrange import AoRRClassifier, AoRRRegressor, RankedRange

RNG = np.random.default_rng(11)
N = 150
X = RNG.normal(size=(N, 4))
Y = np.where(X @ [1.0, -1.0, 2.0, 0.0] + 0.5 * RNG.normal(size=N) > 0, "yes", "no")
REAL = X @ [1.0, -1.0, 2.0, 0.0] + 0.1 * RNG.normal(size=N)
FIXED = {"m": 0.1, "k": 0.9, "random_state": 0}


def test_a_k_of_one_that_looks_like_a_share_is_named():
    with pytest.warns(UserWarning, match="k=1 is a count: it keeps one loss") as caught:
        fit = AoRRClassifier(m=0, k=1).fit(X, Y)
    assert fit.k_ == 1
    assert caught[0].filename == __file__
    for keeps in ({"k": 1.0}, {"k": 2}, {"m": RankedRange.maximum()}):  # pytest makes warnings errors
        AoRRRegressor(**{"m": 0, **keeps}).fit(X, REAL)


def test_fitted_attributes_are_those_documented():
    fit = AoRRClassifier(m=15, k=120, C=0.9, random_state=0).fit(X, Y)
    assert fit.coef_.shape == (1, 4)
    assert fit.intercept_.shape == (1,)
    assert (fit.m_, fit.k_) == (15, 120)
    assert list(fit.classes_) == ["no", "yes"]
    assert fit.dropped_.sum() == 15
    losses = np.logaddexp(0, -np.where(fit.classes_[1] == Y, 1, -1) * fit.decision_function(X))
    ranked = np.sort(losses)[::-1]
    assert fit.lam_ == pytest.approx(ranked[119])
    assert fit.lam_hat_ == pytest.approx(ranked[14])
    assert fit.objective_ == pytest.approx(0.9 * ranked[15:120].sum() + (fit.coef_**2).sum() / 2, rel=1e-9)
    assert fit.history_["objective"][-1] == pytest.approx(fit.objective_)
    assert fit.converged_
    average = AoRRClassifier(m=0, k=0.5).fit(X, Y)
    assert average.lam_hat_ == np.inf
    assert not average.dropped_.any()


def test_aggregates_are_settings():
    losses = {}
    for name, keep in {
        "average": RankedRange.average(),
        "maximum": RankedRange.maximum(),
        "median": RankedRange.median(),
        "top": RankedRange.top(0.3),
        "trimmed": RankedRange.trimmed(0.1),
        "kth": RankedRange.kth(10),
    }.items():
        m, k = keep.counts(N)
        fit = AoRRRegressor(m=keep, C=100.0 / (k - m), loss="absolute", random_state=0).fit(X, REAL)
        ranked = np.sort(np.abs(REAL - fit.predict(X)))[::-1]
        by_definition = 100.0 * ranked[m:k].mean() + (fit.coef_**2).sum() / 2
        assert fit.objective_ == pytest.approx(by_definition, rel=1e-6)
        losses[name] = fit.objective_
    assert losses["median"] <= losses["trimmed"] <= losses["average"] <= losses["top"] <= losses["maximum"]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_kept_and_layout_does_not_matter(dtype, order):
    fit = AoRRClassifier(C=10.0, **FIXED).fit(np.asarray(X, dtype=dtype, order=order), Y)
    assert fit.coef_.dtype == dtype
    reference = AoRRClassifier(C=10.0, **FIXED).fit(X, Y)
    np.testing.assert_allclose(fit.coef_, reference.coef_, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("estimator", [AoRRClassifier(**FIXED), AoRRRegressor(m=0.1, k=1.0, random_state=0)])
def test_model_files_round_trip_without_pickle(estimator, tmp_path):
    fit = estimator.fit(X, Y if isinstance(estimator, AoRRClassifier) else REAL)
    path = tmp_path / "model.skops"
    skops.io.dump(fit, path)
    trusted = skops.io.get_untrusted_types(file=path)
    assert all(name.startswith("rankrange.") for name in trusted)
    np.testing.assert_array_equal(skops.io.load(path, trusted=trusted).predict(X), fit.predict(X))


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize(
    ("name", "Z", "y", "C"),
    [
        ("constant features", np.ones((N, 3)), Y, 1.0),
        ("separable", X, np.where(X[:, 0] > 0, "yes", "no"), 1e12),
        ("two rows", X[:2], np.array(["no", "yes"]), 1.0),
        ("more columns than rows", RNG.normal(size=(20, 100)), np.array(["no", "yes"] * 10), 1.0),
        ("columns of very different scale", X * [1.0, 1e8, 1e-8, 1e4], Y, 1.0),
        ("all losses tied", np.zeros((N, 2)), Y, 1.0),
    ],
)
def test_awkward_data_gives_a_finite_answer_with_an_honest_verdict(name, Z, y, C, loss):
    fit = AoRRClassifier(loss=loss, C=C, **FIXED)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit.fit(Z, y)
    assert np.isfinite(fit.coef_).all()
    assert np.isfinite(fit.objective_)
    assert fit.converged_ == (fit.certificate_ <= 1e-6)
    assert fit.converged_ or any(issubclass(w.category, ConvergenceWarning) for w in caught)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": -1.0}, "'C' parameter of AoRRClassifier must be"),
        ({"loss": "log"}, "loss must be"),
        ({"max_iter": 0}, "'max_iter' parameter of AoRRClassifier must be"),
        ({"m": "many"}, r"'m' parameter of AoRRClassifier must be .* 'int'"),
        ({"m": 0.5, "k": 0.4}, "need m < k"),
        ({"m": 3, "k": 1000}, "lower k to n"),
        ({"m": 1.5}, "fraction"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        AoRRClassifier(**{**FIXED, **params}).fit(X, Y)


def test_probabilities_of_a_fit_that_drops_rows_are_those_of_the_likeliest_scale():
    """At temperature_ the log loss is least in the scale, over rows as near as 99% of the kept; decisions stay."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = (X[:, 0] + rng.logistic(size=400) > 0).astype(int)
    fit = AoRRClassifier(m=0.2, k=1.0, random_state=0).fit(X, y)
    scores = fit.decision_function(X)

    near = np.abs(scores) <= np.quantile(np.abs(scores)[~fit.dropped_], 0.99, method="inverted_cdf")

    def cost(factor):
        return np.logaddexp(0.0, -factor * np.where(y == 1, 1, -1) * scores)[near].mean()

    assert 0 < fit.temperature_ < 1
    assert all(cost(fit.temperature_) <= cost(fit.temperature_ * by) for by in (0.99, 1.01))
    np.testing.assert_allclose(fit.predict_proba(X)[:, 1], 1 / (1 + np.exp(-fit.temperature_ * scores)))
    np.testing.assert_array_equal(fit.predict_proba(X).argmax(axis=1), fit.predict(X))
    assert AoRRClassifier(m=0, k=1.0, random_state=0).fit(X, y).temperature_ == 1.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_where_no_line_fits_all_rows_are_as_good_as_those_of_logistic_regression(n_classes):
    """A fit that chooses m leaves out the corner that contradicts the line; its probabilities still know of it."""
    rng = np.random.default_rng(0)

    def table(n):
        Z = rng.normal(size=(n, 2))
        y = np.digitize(Z[:, 0], [0.0] if n_classes == 2 else [-0.6, 0.6])
        corner = (Z[:, 0] > 0.7) & (Z[:, 1] > 0.3)
        return Z, np.where(corner, 0, y)

    (Z, y), (T, target) = table(800), table(3000)
    fit, ordinary = AoRRClassifier(random_state=0).fit(Z, y), LogisticRegression().fit(Z, y)
    assert fit.m_ > 0
    assert 0.0 <= fit.ordinary_share_ <= 1.0
    P = fit.predict_proba(T)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    np.testing.assert_array_equal(fit.classes_[P.argmax(axis=1)], fit.predict(T))
    assert log_loss(target, P) <= log_loss(target, ordinary.predict_proba(T)) + 0.02
    np.testing.assert_allclose(P, AoRRClassifier(random_state=0).fit(sp.csr_matrix(Z), y).predict_proba(T), atol=1e-3)
    assert AoRRClassifier(m=0.2, k=1.0, random_state=0).fit(Z, y).ordinary_share_ == 0.0


@pytest.mark.parametrize("package", [pd, pl])
def test_a_data_frame_is_fitted_and_scored_without_a_warning(package):
    """The columns of the frame have names, which rows that were checked inside a fit have lost."""
    frame = package.DataFrame(dict(zip("abcd", X.T, strict=True)))
    for target in (Y, np.digitize(REAL, [-1.0, 1.0])):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit = AoRRClassifier(**FIXED).fit(frame, target)
            assert fit.predict_proba(frame).shape == (N, len(set(target)))
        plain = AoRRClassifier(**FIXED).fit(X, target)
        np.testing.assert_array_equal(fit.coef_, plain.coef_)
        assert fit.temperature_ == plain.temperature_
