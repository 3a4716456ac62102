"""Rows on a device, here tensors of the CPU: which of them stay there, what is refused, and when PyTorch is loaded.

`test_fits_in_passes` compares fits of tensors with those in memory.
"""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from chunked_rows import fit_by, table

from rankrange import AoRRClassifier, TKMLClassifier

torch = pytest.importorskip("torch")


def fit_as_on_device(model, X, y=None, **given):
    """`fit` as if X were on a device."""
    X = torch.as_tensor(X) if isinstance(X, np.ndarray) else X
    with mock.patch("rankrange.estimators.streamed.on_device", lambda rows: not isinstance(rows, np.ndarray)):
        return model.fit(X, y, **given)


def test_float32_stays_float32_and_m_rows_are_dropped():
    X, y = table(dtype=np.float32)
    model = fit_as_on_device(AoRRClassifier(m=0.1, k=1.0, random_state=0), X, y)
    assert model.coef_.dtype == model.intercept_.dtype == np.float32
    assert model.n_passes_ > 1
    assert isinstance(model.dropped_, np.ndarray)
    assert model.dropped_.sum() == len(y) // 10


def test_tensors_of_the_cpu_are_arrays():
    X, y = (torch.as_tensor(part) for part in table())
    plain = AoRRClassifier(m=0, k=1.0).fit(X, y)
    assert not hasattr(plain, "n_passes_")
    assert isinstance(plain.predict(X), np.ndarray)


def test_tensors_of_the_cpu_stay_tensors_if_scikit_learn_dispatches():
    """Dispatching must be allowed before SciPy is imported: a process of its own."""
    code = """
import numpy as np
import sklearn
import torch

from chunked_rows import table
from rankrange import AoRRClassifier

X, y = table()
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


@pytest.mark.parametrize("y", [[0, 1] * 500, [2.0, -1.0] * 500, [5, 7, 9, 5] * 250, [0, 10**9, 7, 7] * 250])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_labels_of_any_dtype_are_the_classes(y, dtype):
    y = torch.tensor(y).to(dtype)
    X = np.random.default_rng(0).normal(size=(1000, 2))
    model = fit_by("tensors", AoRRClassifier(0, 1.0), X, y, sample_rows=600)
    np.testing.assert_array_equal(model.classes_, np.unique(y.numpy()))


X_SMALL, Y_SMALL = table(n=50)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"X": sp.csr_array(X_SMALL)}, "needs dense rows"),
        ({"X": torch.as_tensor(X_SMALL).to_sparse()}, "needs dense rows"),
        ({"X": X_SMALL[:, 0]}, "X must be a matrix"),
        ({"X": X_SMALL + 1j}, "X must hold real numbers"),
        ({"X": X_SMALL[:40]}, "one value for each of the 40 rows"),
        ({"y": None}, "needs y"),
        ({"sample_weight": 1.0}, "sample_weight must hold one value for each of the 50 rows"),
        ({"groups": np.arange(50)}, "got groups as well"),
        ({"X_val": X_SMALL, "y_val": Y_SMALL}, "got X_val and y_val as well"),
    ],
)
def test_what_a_device_does_not_take_is_said(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit_as_on_device(AoRRClassifier(m=0.1), **{"X": X_SMALL, "y": Y_SMALL, **given})


class OnDevice:
    """Rows of CuPy as far as they are looked at."""

    __cuda_array_interface__ = None


@pytest.mark.parametrize("method", ["fit", "predict"])
def test_a_model_of_labels_names_the_host(method):
    model = TKMLClassifier(m=0).fit(X_SMALL, Y_SMALL)
    arguments = (OnDevice(), Y_SMALL)[: 2 if method == "fit" else 1]
    with pytest.raises(TypeError, match=r"TKMLClassifier needs rows in the host's memory.*X\.cpu\(\)\.numpy\(\)"):
        getattr(model, method)(*arguments)


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
    assert "pip install torch" in done.stdout
