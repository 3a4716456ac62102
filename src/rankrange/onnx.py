"""Export fitted models as ONNX graphs, with converters for skl2onnx.

A linear model becomes a matrix product, followed by a softmax for probabilities. An ensemble becomes the graphs of its
members, which skl2onnx converts, and the weighted mean of their probabilities or, for a regressor, of their
predictions. skl2onnx is imported only when a model is converted. May import: `core`, `crossfit`, `estimators`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .core.arrays import Array
from .core.transition import IN_FRONT, MIN_PROBABILITY
from .crossfit.models import Renumbered
from .estimators import (
    AoRRClassifier,
    AoRRClassifierCV,
    AoRRRegressor,
    AoRRRegressorCV,
    RankedRangeClassifier,
    RankedRangeRegressor,
)

__all__ = ["register_converters", "to_onnx"]

_CLASSIFIERS = (AoRRClassifier, AoRRClassifierCV, RankedRangeClassifier)
_REGRESSORS = (AoRRRegressor, AoRRRegressorCV, RankedRangeRegressor)


def to_onnx(model: Any, X: Any, *, target_opset: int | None = None) -> Any:
    """Convert a fitted model, or a pipeline that ends with one, to an ONNX graph.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted AoRRClassifier, AoRRClassifierCV, AoRRRegressor, AoRRRegressorCV, RankedRangeClassifier or
        RankedRangeRegressor, or a pipeline that ends with one. Classes must be integers, booleans or strings. skl2onnx
        must be able to convert the base estimator of a RankedRangeClassifier or RankedRangeRegressor, as it does the
        linear models, trees, forests and gradient boosting of scikit-learn. That of RankedRangeClassifier also needs
        `predict_proba`; with skl2onnx 1.20 and protobuf 7 its default cannot be converted.
    X : ndarray of shape (n, n_features)
        Example rows. They define the number of columns and the dtype of the graph, float32 or float64.
    target_opset : int, optional
        The version of the ONNX operator set, 13 or later (for some models earlier ones); by default the newest that
        skl2onnx supports.

    Returns
    -------
    onnx.ModelProto
        A graph with the input "X". A classifier has the output "label" (integers or strings) and, if it has
        `predict_proba`, "probabilities". A regressor has the output "variable".

    Raises
    ------
    ValueError
        If the model, or a model inside it, cannot be converted, or if X is not a matrix of floats.
    ImportError
        If skl2onnx is not installed.

    Examples
    --------
    >>> from rankrange.onnx import to_onnx
    >>> graph = to_onnx(model, X[:1])  # doctest: +SKIP
    >>> session = onnxruntime.InferenceSession(graph.SerializeToString())  # doctest: +SKIP
    >>> labels, probabilities = session.run(None, {"X": X})  # doctest: +SKIP
    """
    _check_model(model)
    X = np.asarray(X)
    if X.dtype.kind != "f" or X.ndim != 2:
        raise ValueError(f"X must be a table of float32 or float64, got {X.dtype} of shape {X.shape}; convert it first")
    register_converters()
    from skl2onnx import to_onnx as convert

    try:
        return convert(model, X[:1], target_opset=target_opset)
    except Exception as error:  # skl2onnx raises many kinds of errors
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0][:80]
        other = "" if target_opset is None else f"another target_opset than {target_opset}, "
        raise ValueError(
            f"skl2onnx must convert every model inside {_name_of(model)}, got an error from it: {reason}; use {other}"
            "another model of scikit-learn there, or register a converter"
        ) from error


def register_converters() -> None:
    """Register the estimators of this package with skl2onnx.

    `skl2onnx.to_onnx` then converts pipelines that contain them.

    Examples
    --------
    >>> from rankrange.onnx import register_converters
    >>> register_converters()  # doctest: +SKIP
    >>> skl2onnx.to_onnx(pipeline, X[:1])  # doctest: +SKIP
    """
    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:
        raise ImportError("ONNX needs skl2onnx, which is not installed; run: pip install skl2onnx") from error

    for kind in (*_CLASSIFIERS, *_REGRESSORS):
        classifies = kind in _CLASSIFIERS
        update_registered_converter(
            kind,
            f"RankRange{kind.__name__}",
            _classifier_shapes if classifies else _regressor_shapes,
            _convert_classifier if classifies else _convert_regressor,
            parser=_parse_classifier if classifies else None,
        )


def _last(model: Any) -> Any:
    return model.steps[-1][1] if isinstance(model, Pipeline) else model


def _name_of(model: Any) -> str:
    last = _last(model)
    base = getattr(last, "estimator", None)
    return f"{type(last).__name__}({'' if base is None else type(_last(base)).__name__})"


def _check_model(model: Any) -> None:
    last = _last(model)
    if not isinstance(last, (*_CLASSIFIERS, *_REGRESSORS)):
        names = ", ".join(kind.__name__ for kind in (*_CLASSIFIERS, *_REGRESSORS))
        raise ValueError(f"to_onnx converts {names} and pipelines that end with one, got {type(last).__name__}")
    if isinstance(last, RankedRangeClassifier) and not hasattr(last, "predict_proba"):
        raise ValueError(
            f"to_onnx needs a base estimator with predict_proba, got {type(last.estimator).__name__}, which has none; "
            "calibrate it with sklearn.calibration.CalibratedClassifierCV"
        )
    check_is_fitted(last)
    if isinstance(last, _CLASSIFIERS):
        _names(last)


# ---- callbacks of skl2onnx -------------------------------------------------------------------------------------------


def _parse_classifier(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType, guess_tensor_type

    operator = scope.declare_local_operator(f"RankRange{type(model).__name__}", model)
    operator.inputs.extend(inputs)
    kind = Int64TensorType if _names(model).dtype.kind == "i" else StringTensorType
    operator.outputs.append(scope.declare_local_variable("label", kind()))
    if hasattr(model, "predict_proba"):
        operator.outputs.append(scope.declare_local_variable("probabilities", guess_tensor_type(inputs[0].type)))
    return operator.outputs


def _names(model: Any) -> Array:
    """The classes as integers or strings, the two types that ONNX supports; other types are an error."""
    classes = np.asarray(model.classes_)
    if classes.dtype.kind in "iub":
        return classes.astype(np.int64)
    if all(isinstance(label, str) for label in classes.tolist()):
        return classes.astype(str)
    raise ValueError(f"labels in ONNX must be integers or strings, got {classes[:3].tolist()}; encode them before fit")


def _classifier_shapes(operator: Any) -> None:
    n = operator.inputs[0].get_first_dimension()
    operator.outputs[0].type.shape = [n]
    if len(operator.outputs) > 1:
        operator.outputs[1].type.shape = [n, len(operator.raw_operator.classes_)]


def _regressor_shapes(operator: Any) -> None:
    operator.outputs[0].type = type(operator.inputs[0].type)([operator.inputs[0].get_first_dimension(), 1])


def _convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    model, graph = operator.raw_operator, _Graph(operator, container)
    make = _of_ensemble if isinstance(model, RankedRangeClassifier) else _of_linear_classifier
    label, probabilities = make(model, graph)
    graph.end(label, 0, scope, container)
    if len(operator.outputs) > 1:
        graph.end(probabilities, 1, scope, container)


def _convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    model, graph = operator.raw_operator, _Graph(operator, container)
    if not isinstance(model, RankedRangeRegressor):
        graph.end(graph.linear(model.coef_, model.intercept_), 0, scope, container)
        return
    parts = [graph.column(graph.member(part)) for part in _members(model)]
    graph.end(graph.sum(parts, _weights(model)), 0, scope, container)


def _members(model: Any) -> list[Any]:
    return [model.estimator_] if model.refit == "single" else list(model.estimators_)


def _weights(model: Any) -> Array:
    return np.ones(1) if model.refit == "single" else np.asarray(model.estimator_weights_)


# ---- the graphs ------------------------------------------------------------------------------------------------------


def _of_linear_classifier(model: Any, graph: _Graph) -> tuple[Any, Any]:
    """Nodes for the class with the largest score, and for the probabilities as in `AoRRClassifier.predict_proba`.

    The second is None if the model has no `predict_proba`.
    """
    scores = graph.linear(model.coef_, model.intercept_)
    label = graph.label(graph.of_two(scores) if len(model.classes_) == 2 else scores, _names(model))
    if not hasattr(model, "predict_proba"):
        return label, None
    robust = graph.probabilities(graph.times(scores, getattr(model, "temperature_", 1.0)))
    share = getattr(model, "ordinary_share_", 0.0)
    if not share:
        return label, robust
    W = np.atleast_2d(model._ordinary_line)
    slopes, intercept = (W[:, :-1], W[:, -1]) if model.fit_intercept else (W, np.zeros(len(W)))
    return label, graph.joined(robust, graph.probabilities(graph.linear(slopes, intercept)), share)


def _of_ensemble(model: Any, graph: _Graph) -> tuple[Any, Any]:
    """Nodes for the predicted class, and for the members' mean probabilities at the fitted temperature."""
    parts = []
    for part in _members(model):
        inner = part.model if isinstance(part, Renumbered) else part
        columns = np.searchsorted(model.classes_, part.classes_)
        made = graph.member(inner, classifies=True)
        parts.append(graph.spread(graph.normed(made[1]), columns, len(model.classes_)))
    P = graph.sum(parts, _weights(model))
    is_single = model.refit == "single" and not isinstance(
        part, Renumbered
    )  # the labels of the member, as its `predict` returns them
    label = made[0] if is_single else graph.label(P, _names(model))
    return label, P if model.temperature_ == 1.0 else graph.tempered(P, model.temperature_)


class _Graph:
    """Builds the graph of one converter from its input.

    Each method but `end` adds operators and returns their output.
    """

    def __init__(self, operator: Any, container: Any) -> None:
        from skl2onnx.algebra import onnx_ops
        from skl2onnx.common.data_types import guess_numpy_type

        self.ops, self.outputs, self.X = onnx_ops, operator.outputs, operator.inputs[0]
        self.version, self.dtype = container.target_opset, guess_numpy_type(operator.inputs[0].type)

    def op(self, name: str, *inputs: Any, **settings: Any) -> Any:
        """Add the ONNX operator `name`; float constants are cast to the dtype of the input."""
        cast = [value.astype(self.dtype) if _is_float(value) else value for value in inputs]
        return getattr(self.ops, f"Onnx{name}")(*cast, op_version=self.version, **settings)

    def end(self, node: Any, index: int, scope: Any, container: Any) -> None:
        """Make a node the output number `index` of the graph."""
        self.op("Identity", node, output_names=[self.outputs[index]]).add_to(scope, container)

    def member(self, model: Any, classifies: bool = False) -> Any:
        """Add the graph of a model. Its outputs are predictions or, if `classifies`, labels and probabilities."""
        from skl2onnx.algebra.onnx_operator import OnnxSubEstimator

        steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
        node = self.X
        for step in steps[:-1]:
            if step is not None and not isinstance(step, str):  # "passthrough"
                node = OnnxSubEstimator(step, node, op_version=self.version)
        plain = classifies and not isinstance(steps[-1], _CLASSIFIERS)
        options = {"zipmap": False} if plain else None
        return OnnxSubEstimator(steps[-1], node, op_version=self.version, options=options)

    def linear(self, slopes: Any, intercept: Any) -> Any:
        W = np.atleast_2d(slopes.toarray() if hasattr(slopes, "toarray") else slopes)
        return self.op("Add", self.op("MatMul", self.X, W.T.copy()), np.atleast_1d(intercept)[None, :])

    def times(self, node: Any, factor: float) -> Any:
        return node if factor == 1.0 else self.op("Mul", node, np.array([factor]))

    def sum(self, parts: list[Any], weights: Array) -> Any:
        total = self.times(parts[0], weights[0])
        for part, weight in zip(parts[1:], weights[1:], strict=True):
            total = self.op("Add", total, self.times(part, weight))
        return total

    def column(self, node: Any) -> Any:
        return self.op("Reshape", node, np.array([-1, 1], dtype=np.int64))

    def row_sum(self, node: Any) -> Any:
        return self.op("ReduceSum", node, np.array([1], dtype=np.int64), keepdims=1)

    def normed(self, node: Any) -> Any:
        return self.op("Div", node, self.row_sum(node))

    def spread(self, node: Any, columns: Array, n: int) -> Any:
        """A matrix of n columns with the columns of `node` at the positions `columns`, and 0 elsewhere."""
        if len(columns) == n:
            return node
        return self.op("MatMul", node, np.eye(n)[columns])

    def of_two(self, score: Any) -> Any:
        """Two columns of scores from the one score of a binary classifier. The first class wins a tie at 0."""
        return self.op("Concat", self.times(score, 0.0), score, axis=1)

    def probabilities(self, scores: Any) -> Any:
        """Probabilities (n, classes) from scores (n, classes), or from (n, 1) for two classes."""
        if self.one_column:
            return self.op("Softmax", self.of_two(scores), axis=1)
        return self.op("Softmax", scores, axis=1)

    @property
    def one_column(self) -> bool:
        return len(self.outputs) > 1 and self.outputs[1].type.shape[1] == 2

    def label(self, scores: Any, names: Array) -> Any:
        best = self.op("ArgMax", scores, axis=1, keepdims=0)
        return self.op("Gather", names, best, axis=0)

    def tempered(self, P: Any, temperature: float) -> Any:
        clipped = self.op("Clip", P, np.array(MIN_PROBABILITY), np.array(1.0))
        return self.op("Softmax", self.times(self.op("Log", clipped), 1.0 / temperature), axis=1)

    def joined(self, robust: Any, ordinary: Any, share: float) -> Any:
        """A mixture of both probabilities that keeps the robust fit's class first, as in `core.transition.joined`."""
        n = self.outputs[1].type.shape[1]
        P = self.sum([ordinary, robust], np.array([share, 1.0 - share]))
        front = self.op("Gather", np.eye(n), self.op("ArgMax", robust, axis=1, keepdims=0), axis=0)
        front_score = self.row_sum(self.op("Mul", P, front))
        before = self.op("LessOrEqual", front_score, P)
        mask = self.op("Mul", front, np.array([0.0]))
        mask = self.op("Where", before, self.op("Add", mask, np.array([1.0])), mask)
        mean = self.op("Div", self.row_sum(self.op("Mul", P, mask)), self.row_sum(mask))
        shared = self.op("Where", before, mean, P)
        return self.times(self.op("Add", shared, self.times(front, IN_FRONT)), 1.0 / (1.0 + IN_FRONT))


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"
