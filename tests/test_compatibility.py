"""Private names of scikit-learn and PyTorch are asked for in one module each, and do what is needed of them."""

import ast
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import rankrange
from rankrange import compatibility

ROOT = Path(rankrange.__file__).parent


def private_names(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("sklearn", "torch"):
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from (part for part in parts if part.startswith("_") and not part.startswith("__"))
        if isinstance(node, ast.Attribute) and node.attr == "_C" and getattr(node.value, "id", "") == "torch":
            yield "torch._C"


def test_private_names_are_asked_for_in_one_module():
    found = {path.relative_to(ROOT).as_posix(): list(private_names(path)) for path in sorted(ROOT.rglob("*.py"))}
    assert {name for name, names in found.items() if names} == {"compatibility.py", "torch/kernels.py"}


def test_what_the_private_helpers_do():
    X, y = np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 2.0])
    assert compatibility.num_samples(X.tolist()) == 3
    model = LogisticRegression()
    compatibility.check_n_features(model, X, reset=True)
    compatibility.check_feature_names(model, X, reset=True)
    with pytest.raises(ValueError, match="features"):
        compatibility.check_n_features(model, X[:, :1], reset=False)
    np.testing.assert_array_equal(compatibility.safe_indexing(X, [2, 0]), X[[2, 0]])
    np.testing.assert_array_equal(compatibility.check_y(y.tolist()), y)
    np.testing.assert_array_equal(compatibility.check_sample_weight(None, X), np.ones(3))
    chosen = compatibility.check_method_params(X, {"sample_weight": y, "flag": True}, indices=[1])
    assert chosen["sample_weight"].tolist() == [1.0]
    assert chosen["flag"] is True
    assert compatibility.routing_enabled() in (True, False)
    assert compatibility.clone_parametrized(LogisticRegression(C=3.0)).C == 3.0
