"""Fits of rows on a device, here on CPU tensors: objective, cuts and certificate are those of a fit on the CPU."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from rankrange import AoRRClassifier, AoRRRegressor, TKMLClassifier

torch = pytest.importorskip("torch")
from rankrange.shards.kernels import Interval, Model, Request, evaluate  # noqa: E402
from rankrange.shards.rows import Chunk  # noqa: E402
from rankrange.shards.tensor_rows import tensor_rows  # noqa: E402


def fit_there(model, X, y, sample_weight=None):
    """`fit` on CPU tensors with small samples and chunks, so that a few thousand rows take every path of many."""
    rows = tensor_rows(X, y, sample_weight, model)
    choosing = "auto" in (model.m, model.C)
    rows.sample_rows, rows.search_rows, rows.spaced_rows, rows.chunk_rows = 1500 if choosing else 600, 300, 1000, 700
    return model.fit(rows)


def fit_as_on_device(model, X, y=None, **given):
    """`fit` as if X were on a device."""
    X = torch.as_tensor(X) if isinstance(X, np.ndarray) else X
    with mock.patch("rankrange.estimators.streamed.on_device", lambda rows: not isinstance(rows, np.ndarray)):
        return model.fit(X, y, **given)


def flipped(n=4000, d=4, seed=0, dtype=np.float64):
    """A logistic problem with 8% of the labels flipped, three times as far out."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) + rng.logistic(size=n) * 0.5 > 0
    bad = rng.random(n) < 0.08
    X[bad], y[bad] = 3 * X[bad], ~y[bad]
    return X.astype(dtype), y


def numeric(n=4000, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X @ rng.normal(size=d) + 0.5 + rng.normal(size=n)
    y[: n // 20] += 30.0
    return X, y


def logistic_losses(model, X, y):
    z = X.astype(np.float64) @ model.coef_[0].astype(np.float64) + float(model.intercept_[0])
    return np.logaddexp(0.0, -np.where(y == model.classes_[1], 1.0, -1.0) * z)


@pytest.mark.parametrize(("m", "k"), [(0.1, 1.0), (0.1, 0.8), (0, 1.0), (0, 0.9)])
def test_the_objective_is_that_of_its_definition_and_proved(m, k):
    X, y = flipped()
    model = fit_there(AoRRClassifier(m=m, k=k, random_state=0), X, y)
    s = logistic_losses(model, X, y)
    kept = np.sort(s)[::-1][round(m * len(y)) : round(k * len(y))]
    assert model.objective_ == pytest.approx(kept.sum() + (model.coef_**2).sum() / 2, rel=1e-9)
    assert model.certificate_ <= 1e-6
    assert model.dropped_.sum() == round(m * len(y))
    if m:
        assert s[model.dropped_].min() > s[~model.dropped_].max()
        assert model.lam_hat_ == pytest.approx(s[model.dropped_].min(), rel=1e-9)
    assert model.lam_ == pytest.approx(kept[-1], rel=1e-6)


@pytest.mark.parametrize("m", [0, 0.1])
def test_the_fit_is_that_on_the_cpu(m):
    X, y = flipped(seed=1)
    settings = {"m": m, "k": 1.0, "tol": 1e-8, "random_state": 0}
    there = fit_there(AoRRClassifier(**settings), X, y)
    here = AoRRClassifier(**settings).fit(X, y)
    # With m = 0 there is one minimum; otherwise many, and the search may end in one beside.
    assert there.objective_ == pytest.approx(here.objective_, rel=settings["tol"] if m == 0 else 1e-3)
    assert (there.dropped_ != here.dropped_).mean() < 0.01


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_a_regressor_drops_the_outliers(loss):
    X, y = numeric()
    model = AoRRRegressor(m=0.05, k=1.0, loss=loss, tol=1e-8, random_state=0)
    there, here = fit_there(clone(model), X, y), model.fit(X, y)
    assert there.dropped_[:200].all()
    assert there.certificate_ <= 1e-8
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-7)
    assert there.score(torch.as_tensor(X), y) == pytest.approx(here.score(X, y), abs=1e-4)


def test_several_classes_with_names():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = np.array(["ant", "bee", "cow"])[np.argmax(X + 0.3 * rng.gumbel(size=X.shape), axis=1)]
    model = AoRRClassifier(m=0, k=1.0, tol=1e-8)
    there, here = fit_there(clone(model), X, y), model.fit(X, y)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-7)
    assert list(there.classes_) == ["ant", "bee", "cow"]
    assert (there.predict(X) == here.predict(X)).mean() > 0.999


def test_a_whole_weight_is_a_repetition():
    X, y = flipped(n=1500, seed=2)
    weight = np.random.default_rng(0).integers(0, 4, len(y))
    model = AoRRClassifier(m=0, k=1.0, tol=1e-9)
    weighted = fit_there(clone(model), X, y, weight)
    repeated = fit_there(clone(model), np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-8)


@pytest.mark.parametrize("k", [1.0, 0.8])
def test_rows_that_tie_at_a_cut_share_it(k):
    """Eight different rows, thousands of times: far more ties at each cut than rows that may be collected."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (9000, 3)).astype(np.float32)
    y = X @ [1.0, -1.0, 0.5] + 0.7 * rng.logistic(size=len(X)) > 0
    settings = {"m": 0.1, "k": k, "random_state": 0}
    there = fit_there(AoRRClassifier(**settings), X, y)
    s = logistic_losses(there, X, y)
    kept = np.sort(s)[::-1][900 : round(k * 9000)]
    assert there.objective_ == pytest.approx(kept.sum() + (there.coef_**2).sum() / 2, rel=1e-6)
    assert there.certificate_ <= 1e-6
    assert there.dropped_.sum() <= 900


def test_class_weights_multiply_the_losses_of_a_class():
    X, y = flipped(n=1500, seed=3)
    settings = {"m": 0, "k": 1.0, "tol": 1e-9}
    by_class = fit_there(AoRRClassifier(**settings, class_weight={False: 1.0, True: 3.0}), X, y)
    by_row = fit_there(AoRRClassifier(**settings), X, y, np.where(y, 3.0, 1.0))
    assert by_class.objective_ == pytest.approx(by_row.objective_, rel=1e-8)
    np.testing.assert_allclose(by_class.coef_, by_row.coef_, atol=1e-4)  # a gap of 1e-9 leaves its root


def test_m_is_chosen_on_the_sample():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(6000, 4))
    y = X @ [2.0, -1.0, 1.0, 0.0] + 0.3 * rng.logistic(size=len(X)) > 0
    X[:500], y[:500] = 0.5 * X[:500] + [9.0, -4.0, 4.0, 0.0], False  # a cluster of outliers
    model = fit_there(AoRRClassifier(random_state=0), X, y)
    assert 0.05 < model.m_ / len(y) <= 0.15
    assert model.dropped_[:500].all()
    assert 0 < model.temperature_ < 1
    assert model.score(X[500:], y[500:]) > 0.9
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1.0)


def test_float32_stays_float32():
    X, y = flipped(n=20_000, dtype=np.float32)
    model = fit_as_on_device(AoRRClassifier(m=0.1, k=1.0, random_state=0), X, y)
    assert model.coef_.dtype == model.intercept_.dtype == np.float32
    assert model.dropped_.sum() == 2000


def test_tensors_of_the_cpu_are_arrays():
    X, y = (torch.as_tensor(part) for part in flipped(n=20_000))
    plain = AoRRClassifier(m=0, k=1.0).fit(X, y)
    assert not hasattr(plain, "n_passes_")
    assert isinstance(plain.predict(X), np.ndarray)


def test_tensors_of_the_cpu_stay_tensors_if_scikit_learn_dispatches():
    """Dispatching must be allowed before SciPy is imported: a process of its own."""
    code = """
import numpy as np
import sklearn
import torch

from rankrange import AoRRClassifier
from test_device import flipped

X, y = flipped(n=20_000)
tensors = torch.as_tensor(X), torch.as_tensor(y)
with sklearn.config_context(array_api_dispatch=True):
    model = AoRRClassifier(m=0, k=1.0).fit(*tensors)
    assert model.n_passes_ > 1
    assert isinstance(model.coef_, np.ndarray)
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        there = getattr(model, method)(tensors[0])
        assert isinstance(there, torch.Tensor), method
        np.testing.assert_allclose(there.numpy(), getattr(model, method)(X), rtol=1e-9, atol=1e-12)
    assert model.score(*tensors) == model.score(X, y)
"""
    here = str(Path(__file__).parent)
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join([here, *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared", "huber"])
@pytest.mark.parametrize("weighted", [False, True])
def test_kernels_find_on_tensors_what_they_find_on_arrays(loss, dtype, weighted):
    rng = np.random.default_rng(0)
    n, d, r = 20_011, 7, 3 if loss == "softmax" else 1
    X = rng.normal(size=(n, d)).astype(dtype)
    y = rng.normal(size=n) if loss in ("squared", "huber") else rng.integers(0, max(r, 2), n)
    weight = rng.integers(0, 3, n).astype(float) if weighted else None
    classes = None if loss in ("squared", "huber") else np.arange(max(r, 2))
    factor = np.array([1.0, 2.0, 0.5])[: max(r, 2)] if classes is not None and not weighted else None
    model = Model(loss, r, True, dtype, classes, factor)
    W = rng.normal(size=(r, d + 1))
    chunk = Chunk(0, X, y, weight)
    there = Chunk(0, *(None if part is None else torch.as_tensor(part) for part in chunk[1:4]))
    s = np.sort(model.losses(model.encoded(y), model.scores(W, X))[0].astype(float))
    at = [i + np.argmax(np.diff(s[i : i + 50])) for i in (np.array([0.1, 0.15, 0.9, 0.95]) * n).astype(int)]
    edges = [0.5 * (s[i] + s[i + 1]) for i in at]  # no loss is so near to an edge that rounding decides
    low, high = Interval(*edges[:2]), Interval(*edges[2:])
    requests = [
        Request(W, low, high),
        Request(W, Interval(low.low, high.high), high),  # brackets that overlap
        Request(W, edges=np.array(edges, dtype=dtype)),
        Request(W + 0.1, among=(W, Interval(low.high, high.low))),
    ]
    for request in requests:
        found, expected = (evaluate(rows, (model, request)) for rows in (there, chunk))
        close = {"rtol": 1e-4 if dtype == "float32" else 1e-9, "atol": 1e-3 if dtype == "float32" else 1e-7}
        np.testing.assert_allclose(found.sums, expected.sums, **close)
        assert found.least == pytest.approx(expected.least, rel=1e-4, abs=1e-6)
        assert found.n_near == expected.n_near
        assert sum(part.mass.sum() for part in found.near) == sum(part.mass.sum() for part in expected.near)


@pytest.mark.parametrize("y", [[0, 1] * 500, [2.0, -1.0] * 500, [5, 7, 9, 5] * 250, [0, 10**9, 7, 7] * 250])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
def test_labels_of_any_dtype_are_the_classes(y, dtype):
    y = torch.tensor(y).to(dtype)
    model = fit_there(AoRRClassifier(0, 1.0), np.random.default_rng(0).normal(size=(1000, 2)), y)
    np.testing.assert_array_equal(model.classes_, np.unique(y.numpy()))


def test_so_few_rows_that_the_search_sees_all_of_them_are_fitted_on_the_host():
    X, y = flipped(n=500)
    settings = {"m": 0.1, "k": 0.9, "random_state": 0}
    there = fit_as_on_device(AoRRClassifier(**settings), torch.as_tensor(X), torch.as_tensor(y))
    here = AoRRClassifier(**settings).fit(X, y)
    assert there.objective_ == here.objective_
    assert (there.dropped_ == here.dropped_).all()


X_SMALL, Y_SMALL = flipped(n=50)


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({"aggregate": "per-class"}, {}, "a fit on a device"),
        ({"aggregate": "group-cvar"}, {}, "needs aggregate=None"),
        ({"loss": "squared_hinge"}, {}, "a fit on a device needs one of the losses"),
        ({"loss": "hinge"}, {}, "a fit on a device needs one of the losses"),
        ({"k": "adaptive"}, {}, "needs k as a number"),
        ({}, {"X": sp.csr_array(X_SMALL)}, "needs dense rows"),
        ({}, {"X": torch.as_tensor(X_SMALL).to_sparse()}, "needs dense rows"),
        ({}, {"X": X_SMALL * np.nan}, "X must be finite"),
        ({}, {"X": X_SMALL[:, 0]}, "X must be a matrix"),
        ({}, {"X": X_SMALL[:40]}, "one value for each of the 40 rows"),
        ({}, {"y": None}, "needs y"),
        ({}, {"y": np.full(50, np.inf)}, "y must be finite"),
        ({}, {"sample_weight": -np.ones(50)}, "must not be negative"),
        ({}, {"sample_weight": np.full(50, np.nan)}, "sample_weight must be finite"),
        ({}, {"groups": np.arange(50)}, "got groups as well"),
        ({}, {"X_val": X_SMALL, "y_val": Y_SMALL}, "got X_val and y_val as well"),
    ],
)
def test_what_a_device_does_not_take_is_said(settings, given, message):
    given = {"X": X_SMALL, "y": Y_SMALL, **given}
    with pytest.raises((ValueError, TypeError), match=message):
        fit_as_on_device(AoRRClassifier(**{"m": 0.1, **settings}), **given)


def test_a_regressor_says_what_it_does_not_take_there():
    X, y = numeric(n=20_000)
    with pytest.raises(ValueError, match="a fit on a device needs step=None"):
        fit_as_on_device(AoRRRegressor(m=0.1, k=1.0, step="reweight"), X, y)
    with pytest.raises(ValueError, match="needs one of the losses"):
        fit_as_on_device(AoRRRegressor(m=0.1, loss="absolute"), X, y)


class OnDevice:
    """Rows of CuPy as far as they are looked at."""

    __cuda_array_interface__ = None


@pytest.mark.parametrize("method", ["fit", "predict"])
def test_a_model_of_labels_names_the_host(method):
    model = TKMLClassifier(m=0).fit(X_SMALL, Y_SMALL)
    arguments = (OnDevice(), Y_SMALL)[: 2 if method == "fit" else 1]
    with pytest.raises(TypeError, match=r"TKMLClassifier needs rows in the host's memory.*X\.cpu\(\)\.numpy\(\)"):
        getattr(model, method)(*arguments)


def test_half_of_the_rows_is_known_on_a_device():
    X, y = numeric(n=2000)
    assert fit_there(AoRRRegressor(m="half", random_state=0), X, y).m_ == 2000 - (2000 + 5 + 1) // 2


def test_nothing_loads_pytorch_without_need():
    code = """
import sys
import numpy as np
from rankrange import AoRRClassifier
X = np.random.default_rng(0).normal(size=(100, 2))
AoRRClassifier(m=0.1).fit(X, X[:, 0] > 0).predict(X)
assert "torch" not in sys.modules
sys.modules["torch"] = None
try:
    from unittest import mock
    with mock.patch("rankrange.estimators.streamed.on_device", return_value=True):
        AoRRClassifier(m=0.1).fit(X, X[:, 0] > 0)
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'rankrange[torch]'" in done.stdout
