"""Export fitted linear models as ONNX graphs, with converters for skl2onnx.

A model becomes a matrix product, followed by a softmax for probabilities or by the choice of the labels with the
highest scores. skl2onnx is imported only when a model is converted. May import: `core`, `estimators`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from .core.arrays import Array
from .core.transition import IN_FRONT
from .estimators import AoRRClassifier, AoRRRegressor, TKMLClassifier

__all__ = ["register_converters", "to_onnx"]

_CONVERTED = (AoRRClassifier, TKMLClassifier, AoRRRegressor)


def to_onnx(model: Any, X: Any, *, target_opset: int | None = None) -> Any:
    """Convert a fitted linear model, or a pipeline that ends with one, to an ONNX graph.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted AoRRClassifier, AoRRRegressor or TKMLClassifier, or a pipeline that ends with one. Classes must be
        integers, booleans or strings.
    X : ndarray of shape (n, n_features)
        Example rows. They define the number of columns and the dtype of the graph, float32 or float64.
    target_opset : int, optional
        The version of the ONNX operator set, 13 or later; by default the newest that skl2onnx supports.

    Returns
    -------
    onnx.ModelProto
        A graph with the input "X". A classifier has the output "label" (what `predict` returns, dense) and, if it has
        `predict_proba`, "probabilities"; TKMLClassifier has "scores" (n, labels). A regressor has "variable".

    Raises
    ------
    ValueError
        If the model cannot be converted, or if X is not a matrix of floats.
    ImportError
        If skl2onnx is not installed.

    Examples
    --------
    >>> from rankrange.onnx import to_onnx
    >>> graph = to_onnx(model, X[:1])  # doctest: +SKIP
    >>> session = onnxruntime.InferenceSession(graph.SerializeToString())  # doctest: +SKIP
    >>> labels, probabilities = session.run(None, {"X": X})  # doctest: +SKIP
    """
    last = model.steps[-1][1] if isinstance(model, Pipeline) else model
    if not isinstance(last, _CONVERTED):
        names = ", ".join(kind.__name__ for kind in _CONVERTED)
        raise ValueError(f"to_onnx converts {names} and pipelines that end with one, got {type(last).__name__}")
    check_is_fitted(last)
    if not isinstance(last, AoRRRegressor):
        _names(last)
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
            f"skl2onnx must convert every step before {type(last).__name__}, got an error from it: {reason}; use "
            f"{other}another transformer of scikit-learn, or register a converter"
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

    for kind in _CONVERTED:
        parse = None if kind is AoRRRegressor else _parse
        update_registered_converter(kind, f"RankRange{kind.__name__}", _shapes, _convert, parser=parse)


# ---- callbacks of skl2onnx -------------------------------------------------------------------------------------------


def _parse(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs of a classifier."""
    from skl2onnx.common.data_types import Int64TensorType, StringTensorType, guess_tensor_type

    operator = scope.declare_local_operator(f"RankRange{type(model).__name__}", model)
    operator.inputs.extend(inputs)
    is_int = _is_indicator(model) or _names(model).dtype.kind == "i"
    operator.outputs.append(scope.declare_local_variable("label", (Int64TensorType if is_int else StringTensorType)()))
    second = "scores" if isinstance(model, TKMLClassifier) else "probabilities"
    if second == "scores" or hasattr(model, "predict_proba"):
        operator.outputs.append(scope.declare_local_variable(second, guess_tensor_type(inputs[0].type)))
    return operator.outputs


def _is_indicator(model: Any) -> bool:
    """Whether the model predicts an indicator matrix."""
    return getattr(model, "target_kind_", "classes") != "classes"


def _names(model: Any) -> Array:
    """The classes as integers or strings, the two types that ONNX supports; other types are an error."""
    classes = np.asarray(model.classes_)
    if classes.dtype.kind in "iub":
        return classes.astype(np.int64)
    if all(isinstance(label, str) for label in classes.tolist()):
        return classes.astype(str)
    raise ValueError(f"labels in ONNX must be integers or strings, got {classes[:3].tolist()}; encode them before fit")


def _shapes(operator: Any) -> None:
    model, n = operator.raw_operator, operator.inputs[0].get_first_dimension()
    if isinstance(model, AoRRRegressor):
        operator.outputs[0].type = type(operator.inputs[0].type)([n, 1])
        return
    wide = [n, len(model.classes_)]
    operator.outputs[0].type.shape = wide if _is_indicator(model) else [n]
    if len(operator.outputs) > 1:
        operator.outputs[1].type.shape = wide


def _convert(scope: Any, operator: Any, container: Any) -> None:
    model, graph = operator.raw_operator, _Graph(operator, container)
    scores = graph.linear(model.coef_, model.intercept_)
    if isinstance(model, AoRRRegressor):
        found = [scores]
    elif isinstance(model, TKMLClassifier):
        n, one = len(model.classes_), not _is_indicator(model)
        best = graph.highest(scores, 1 if one else int(model.top_k), n)
        label = graph.named(graph.op("Reshape", best, np.array([-1])), model) if one else graph.marks(best, n)
        found = [label, scores]
    else:
        two = len(model.classes_) == 2  # the first class wins a tie at 0
        scores = graph.op("Concat", graph.times(scores, 0.0), scores, axis=1) if two else scores
        found = [graph.named(graph.op("ArgMax", scores, axis=1, keepdims=0), model)]
        found += [graph.probabilities(model, scores)] if len(operator.outputs) > 1 else []
    for node, output in zip(found, operator.outputs, strict=True):
        graph.op("Identity", node, output_names=[output]).add_to(scope, container)


class _Graph:
    """Builds the graph of one converter from its input: each method adds operators and returns their output."""

    def __init__(self, operator: Any, container: Any) -> None:
        from skl2onnx.algebra import onnx_ops
        from skl2onnx.common.data_types import guess_numpy_type

        self.ops, self.X = onnx_ops, operator.inputs[0]
        self.version, self.dtype = container.target_opset, guess_numpy_type(operator.inputs[0].type)

    def op(self, name: str, *inputs: Any, **settings: Any) -> Any:
        """Add the ONNX operator `name`; float constants are cast to the dtype of the input."""
        cast = [value.astype(self.dtype) if _is_float(value) else value for value in inputs]
        return getattr(self.ops, f"Onnx{name}")(*cast, op_version=self.version, **settings)

    def linear(self, slopes: Any, intercept: Any) -> Any:
        W = np.atleast_2d(slopes.toarray() if hasattr(slopes, "toarray") else slopes)
        return self.op("Add", self.op("MatMul", self.X, W.T.copy()), np.atleast_1d(intercept)[None, :])

    def times(self, node: Any, factor: float) -> Any:
        return node if factor == 1.0 else self.op("Mul", node, np.array([factor]))

    def named(self, codes: Any, model: Any) -> Any:
        return self.op("Gather", _names(model), codes, axis=0)

    def highest(self, scores: Any, count: int, n: int) -> Any:
        """The columns (rows, count) of the highest scores; of tied scores the last columns, as in `metrics`."""
        backwards = self.op("Gather", scores, np.arange(n)[::-1].copy(), axis=1)
        top = self.op("TopK", backwards, np.array([count]), axis=1, output_names=["top_scores", "top_columns"])
        return self.op("Sub", np.array([n - 1]), top[1])

    def marks(self, columns: Any, n: int) -> Any:
        """The indicator matrix of the columns (rows, count)."""
        ones = self.op("OneHot", columns, np.array([n]), np.array([0, 1]))
        return self.op("ReduceSum", ones, np.array([1], dtype=np.int64), keepdims=0)

    def probabilities(self, model: Any, scores: Any) -> Any:
        """Probabilities as in `AoRRClassifier.predict_proba`."""
        robust = self.op("Softmax", self.times(scores, getattr(model, "temperature_", 1.0)), axis=1)
        share = getattr(model, "ordinary_share_", 0.0)
        if not share:
            return robust
        W, d = np.atleast_2d(model._ordinary_line), np.shape(model.coef_)[-1]
        other = self.linear(W[:, :d], W[:, d] if model.fit_intercept else np.zeros(len(W)))
        if len(W) == 1:
            other = self.op("Concat", self.times(other, 0.0), other, axis=1)
        return self._joined(robust, self.op("Softmax", other, axis=1), share, len(model.classes_))

    def _joined(self, robust: Any, ordinary: Any, share: float, n: int) -> Any:
        """A mixture of both probabilities that keeps the robust fit's class first, as in `core.transition.joined`."""
        P = self.op("Add", self.times(ordinary, share), self.times(robust, 1.0 - share))
        front = self.op("Gather", np.eye(n), self.op("ArgMax", robust, axis=1, keepdims=0), axis=0)
        front_score = self._row_sum(self.op("Mul", P, front))
        before = self.op("LessOrEqual", front_score, P)
        mask = self.op("Mul", front, np.array([0.0]))
        mask = self.op("Where", before, self.op("Add", mask, np.array([1.0])), mask)
        mean = self.op("Div", self._row_sum(self.op("Mul", P, mask)), self._row_sum(mask))
        shared = self.op("Where", before, mean, P)
        return self.times(self.op("Add", shared, self.times(front, IN_FRONT)), 1.0 / (1.0 + IN_FRONT))

    def _row_sum(self, node: Any) -> Any:
        return self.op("ReduceSum", node, np.array([1], dtype=np.int64), keepdims=1)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"
