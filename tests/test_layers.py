"""Packages stand in one order, and each imports only from itself and from those before it."""

import ast
from pathlib import Path

import rankrange

ROOT = Path(rankrange.__file__).parent
ORDER = (
    *(
        "errors",
        "compatibility",
        "core",
        "label_noise",
        "outliers",
        "metrics",
        "noise",
        "risk",
        "algorithms",
        "boosting",
    ),
    *("solvers", "crossfit", "inference", "estimators", "regression", "onnx", "pages", "issues", "shards", "tables"),
    *("plots", "audit", "torch", "cli", "__main__"),
)
# These must import where scikit-learn is not installed; issues are for one function that lists them.
OF_TORCH = {"torch", "core", "issues", "label_noise", "errors", "compatibility"}


def imports():
    """(package, package it imports from, file, line) of the whole source: lazy imports and those for types too."""
    homes = {alias.name: node.module for node in ast.walk(ast.parse((ROOT / "__init__.py").read_text("utf-8")))
             if isinstance(node, ast.ImportFrom) for alias in node.names}  # fmt: skip
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        for node in ast.walk(ast.parse(path.read_text("utf-8"))) if parts != ("__init__",) else ():
            if isinstance(node, ast.ImportFrom):
                base = parts[: len(parts) - node.level] if node.level else ()
                inside = node.level or (node.module or "").split(".")[0] == "rankrange"
                names = (node.module or "").removeprefix("rankrange").strip(".").split(".") if inside else []
                full = [*base, *filter(None, names)]
                for alias in node.names if inside else ():
                    found = full[0] if full else homes.get(alias.name, alias.name).split(".")[0]
                    yield parts[0], found, str(path.relative_to(ROOT)), node.lineno


def test_a_package_imports_only_from_itself_and_from_those_before_it():
    found = [entry for entry in imports() if entry[1] in ORDER]
    assert len(found) > 300
    assert {package for package, *_ in found} <= set(ORDER)
    assert [entry for entry in found if ORDER.index(entry[1]) > ORDER.index(entry[0])] == []
    assert [entry for entry in found if entry[0] == "torch" and entry[1] not in OF_TORCH] == []
