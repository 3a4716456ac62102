"""Models as ONNX graphs predict what they predict themselves, by onnxruntime."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rankrange import AoRRClassifier, AoRRRegressor, RankedRangeClassifier, TKMLClassifier, noise
from rankrange.onnx import register_converters, to_onnx

# What skl2onnx and onnx warn of inside is not ours to fix.
pytestmark = pytest.mark.filterwarnings("ignore")


def run(graph, X):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"X": X})


def flowers(n_classes=3, names=False):
    X, y = load_iris(return_X_y=True)
    X, y = X[y >= 3 - n_classes].astype(np.float32), y[y >= 3 - n_classes]
    y = noise.symmetric(y, 0.1, 0)
    return X, np.array(["a", "b", "c"])[y] if names else y


def assert_same(model, X, tolerance=1e-5):
    pytest.importorskip("skl2onnx")
    label, *more = run(to_onnx(model, X), X)
    assert label.tolist() == model.predict(X).tolist()
    assert bool(more) == hasattr(model, "predict_proba")
    for P in more:
        assert pytest.approx(model.predict_proba(X), abs=tolerance) == P


@pytest.mark.parametrize(
    ("n_classes", "settings"),
    [
        *((n, settings) for n in (2, 3) for settings in ({"m": 5}, {"m": "auto"}, {"m": 0, "C": 0.1})),
        (2, {"m": 5, "loss": "hinge"}),
    ],
)
def test_linear_classifiers(n_classes, settings):
    X, y = flowers(n_classes, names=n_classes == 2)
    assert_same(AoRRClassifier(**settings, n_starts=1, random_state=0).fit(X, y), X)


def test_probabilities_that_are_joined_with_those_of_all_rows():
    """The classifier's own mixture, for every share, whichever it had chosen."""
    X, y = load_iris(return_X_y=True)
    X = X.astype(np.float32)
    model = AoRRClassifier("auto", n_starts=1, random_state=0).fit(X, noise.symmetric(y, 0.2, 1))
    assert model.m_ > 0
    for model.ordinary_share_ in (0.0, 0.3, 0.9):
        assert_same(model, X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_linear_regressors(dtype):
    X, y = load_diabetes(return_X_y=True)
    model = AoRRRegressor(m=20, n_starts=1).fit(X.astype(dtype), y)
    pytest.importorskip("skl2onnx")
    found = run(to_onnx(model, X.astype(dtype)), X.astype(dtype))[0]
    assert found.ravel() == pytest.approx(model.predict(X), rel=1e-4 if dtype == np.float32 else 1e-10)


@pytest.mark.parametrize("targets", ["classes", "indicator", "lists"])
def test_rankers_of_labels(targets):
    """With scores that tie, of which the last label is predicted."""
    pytest.importorskip("skl2onnx")
    X, y = flowers(names=True)
    Y = np.array(y[:, None] == ["a", "b", "c"], dtype=int)
    Y = {"classes": y, "indicator": Y, "lists": [[name] if name != "b" else ["a", "c"] for name in y]}[targets]
    model = TKMLClassifier(1, C=1.0, validation=None, max_iter=5, random_state=0).fit(X, Y)
    for _ in range(2):
        label, scores = run(to_onnx(model, X), X)
        np.testing.assert_array_equal(label, model.predict(X))
        assert scores == pytest.approx(X @ model.coef_.T + model.intercept_, abs=1e-4)
        model.coef_, model.intercept_ = np.zeros_like(model.coef_), np.zeros_like(model.intercept_)


def test_pipelines_also_by_skl2onnx_itself():
    skl2onnx = pytest.importorskip("skl2onnx")
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:200, :4].astype(np.float32)
    model = make_pipeline(StandardScaler(), AoRRClassifier(m=10, n_starts=0)).fit(X, y[:200])
    assert_same(model, X)
    register_converters()
    assert run(skl2onnx.to_onnx(model, X[:1]), X)[0].tolist() == model.predict(X).tolist()


class Unknown(StandardScaler):
    """A transformer that skl2onnx has no converter for."""


@pytest.mark.parametrize("version", [13, 17, None])
def test_the_graph_has_the_version_of_operators_that_was_asked_for(version):
    pytest.importorskip("skl2onnx")
    X, y = flowers()
    models = [
        AoRRClassifier("auto", n_starts=1, random_state=0).fit(X, y),
        AoRRRegressor(m=5, random_state=0).fit(X, y),
        TKMLClassifier(1, C=1.0, validation=None, max_iter=5, random_state=0).fit(X, y),
    ]
    for model in models:
        graph = to_onnx(model, X, target_opset=version)
        found = next(one.version for one in graph.opset_import if one.domain == "")
        assert found == version if version else found > 17
        np.testing.assert_allclose(np.ravel(run(graph, X)[0]), model.predict(X), atol=1e-4)
    with pytest.raises(ValueError, match="use another target_opset than 99"):
        to_onnx(models[0], X, target_opset=99)


def test_what_cannot_be_converted_is_said():
    X, y = flowers()
    with pytest.raises(ValueError, match="got RankedRangeClassifier"):
        to_onnx(RankedRangeClassifier(), X)
    with pytest.raises(ValueError, match="float32 or float64, got int64"):
        to_onnx(AoRRClassifier(m=1, n_starts=0).fit(X, y), X.astype(np.int64))
    with pytest.raises(NotFittedError):
        to_onnx(AoRRClassifier(m=1), X)
    pytest.importorskip("skl2onnx")
    with pytest.raises(ValueError, match=r"every step before AoRRClassifier"):
        to_onnx(make_pipeline(Unknown(), AoRRClassifier(m=1, n_starts=0)).fit(X, y), X)
    with pytest.raises(ValueError, match="integers or strings"):
        to_onnx(AoRRClassifier(m=1, n_starts=0).fit(X, y.astype(float)), X)
