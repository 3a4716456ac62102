"""The rooms of the package stand in one order, and each asks only itself and those before it.

Imports are read from the source, so that lazy ones (inside a function) and those for type checkers count as well.
"""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import rankrange

ROOT = Path(rankrange.__file__).parent
ORDER = (
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
    "solvers",
    "crossfit",
    "inference",
    "estimators",
    "regression",
    "onnx",
    "pages",
    "issues",
    "shards",
    "tables",
    "plots",
    "audit",
    "torch",
    "cli",
    "__main__",
)


class Import(NamedTuple):
    """One module of the package that a module asks for."""

    target: str  # dotted, below the package; empty for the package itself
    name: str  # what is asked of the package itself
    line: int
    lazy: bool  # inside a function
    typing_only: bool


def dotted(path, root=ROOT):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {dotted(path): path for path in sorted(ROOT.rglob("*.py"))}


def tree_of(module):
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def marked(tree):
    """(node, inside a function, for type checkers only) of each node."""
    stack = [(tree, False, False)]
    while stack:
        node, lazy, typing_only = stack.pop()
        yield node, lazy, typing_only
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        checked = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    stack.append((child, inside, typing_only or (checked and name == "body")))


def targets_of(node, module, is_package, known):
    """(module below the package, name) of what an import statement, or a call of import_module, asks for."""
    if isinstance(node, ast.Import):
        asked = [(alias.name, "") for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            home = ["rankrange", *module.split(".")] if module else ["rankrange"]
            home = home[: len(home) - node.level + is_package]
            base = ".".join([*home, base] if base else home)
        asked = [(base, alias.name) for alias in node.names]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
        first = node.args[0]
        asked = [(first.value, "")] if isinstance(first, ast.Constant) else []
    else:
        asked = []
    for base, name in asked:
        if base.split(".")[0] != "rankrange":
            continue
        below = base.removeprefix("rankrange").removeprefix(".")
        deeper = f"{below}.{name}" if below else name
        yield (deeper, "") if deeper in known else (below or homes().get(name, ""), name)


@cache
def homes():
    """Where the public names of the package live, as its own imports say."""
    imports = [node for node in ast.walk(tree_of("")) if isinstance(node, ast.ImportFrom) and node.level]
    return {alias.name: node.module for node in imports for alias in node.names}


@cache
def imports_of(module):
    return imports_in(tree_of(module), module, SOURCES[module].name == "__init__.py", SOURCES)


def imports_in(tree, module, is_package, known):
    return [
        Import(target, name, node.lineno, lazy, typing_only)
        for node, lazy, typing_only in marked(tree)
        for target, name in targets_of(node, module, is_package, known)
    ]


def room(module):
    return module.split(".")[0]


def test_every_room_has_its_place():
    assert {room(module) for module in SOURCES if module} <= set(ORDER)


def test_a_module_asks_only_its_own_room_and_those_before_it():
    upward = []
    for module in filter(None, SOURCES):
        before = ORDER[: ORDER.index(room(module)) + 1]
        upward += [(module, i.line, i.target) for i in imports_of(module) if i.target and room(i.target) not in before]
    assert not upward, f"imports upward, as (module, line, what it imports): {upward}"


def test_the_package_itself_is_asked_for_public_names_alone():
    """Those count as imports of the room they live in; only the version lives in the package itself."""
    asked = {(module, i.name) for module in filter(None, SOURCES) for i in imports_of(module) if not i.target}
    assert {(module, name) for module, name in asked if name != "__version__"} == set()


def test_networks_need_the_mathematics_alone():
    """rankrange.torch must import where scikit-learn is not installed; issues are for one function that lists them."""
    for module in SOURCES:
        if room(module) == "torch":
            asked = [i for i in imports_of(module) if not i.typing_only]
            assert {room(i.target) for i in asked if not i.lazy} <= {"torch", "core"}, module
            assert {room(i.target) for i in asked} <= {"torch", "core", "issues", "label_noise"}, module


def cycle_in(graph):
    """One cycle of a graph, as a list of nodes; None where there is none."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        path.append(node)
        found = next((cycle for other in sorted(graph.get(node, ())) if (cycle := visit(other))), None)
        path.pop()
        done.add(node)
        return found

    return next((cycle for node in graph if (cycle := visit(node))), None)


def test_modules_do_not_import_each_other_in_a_circle():
    """Imports inside a function count: they hide a circle from Python, not from a reader."""
    graph = {
        module: {i.target for i in imports_of(module) if i.target and not i.typing_only} - {module}
        for module in SOURCES
    }
    assert cycle_in(graph) is None


def test_rooms_do_not_import_each_other_in_a_circle_whatever_the_order():
    graph = {}
    for module in SOURCES:
        if module:
            graph.setdefault(room(module), set()).update(room(i.target) for i in imports_of(module) if i.target)
    assert cycle_in({name: others - {name} for name, others in graph.items()}) is None


def test_the_reader_of_imports_sees_each_kind():
    """What the tests above rest on: relative and absolute, lazy, for type checkers, of the package, by name."""
    source = """
from ..core import select
from ..core.select import cuts_of
from . import path
from .path import Sets
from .. import __version__, AoRRClassifier
import rankrange.cli.entry
import numpy
if TYPE_CHECKING:
    from ..issues import table
def later():
    from ..audit.result import Audit
    importlib.import_module("rankrange.issues.find")
"""
    known = {"core.select", "crossfit.path", "cli.entry", "issues.table", "audit.result", "issues.find"}
    found = imports_in(ast.parse(source), "crossfit.choose", False, known)
    assert {(i.target or i.name, i.lazy, i.typing_only) for i in found} == {
        ("core.select", False, False),
        ("crossfit.path", False, False),
        ("__version__", False, False),
        ("estimators", False, False),
        ("cli.entry", False, False),
        ("issues.table", False, True),
        ("audit.result", True, False),
        ("issues.find", True, False),
    }
    within = imports_in(ast.parse("from .path import Sets\nfrom ..core import select"), "crossfit", True, known)
    assert [i.target for i in sorted(within, key=lambda i: i.line)] == ["crossfit.path", "core.select"]


def test_the_search_for_circles_finds_one():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c", "a"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None
