"""What importing the package loads and offers, in which order packages import, and which names they may use."""

import ast
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import rankrange

HEAVY = ("torch", "pandas", "sklearn", "matplotlib", "scipy")


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (f"import sys, rankrange; print([name for name in {HEAVY} if name in sys.modules])", "[]"),
        ("import sys, rankrange; rankrange.RankedRange(0, 1); print('numpy' in sys.modules)", "False"),
        ("import rankrange; print(rankrange.core.losses.__name__)", "rankrange.core.losses"),
        ("import sys, rankrange; rankrange.risk; print('torch' in sys.modules)", "False"),
    ],
)
def test_importing_the_package_is_light_and_submodules_are_loaded_when_first_used(code, printed):
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (result.stdout.strip(), result.stderr) == (printed, "")


def test_every_public_name_is_there():
    assert set(rankrange.__all__) <= set(dir(rankrange))
    for name in rankrange.__all__:
        assert getattr(rankrange, name) is not None


@pytest.mark.parametrize("name", [name for name in rankrange._SUBMODULES if name != "torch"])
def test_every_submodule_is_listed_and_imports(name):
    assert getattr(rankrange, name).__name__ == f"rankrange.{name}"
    assert name in dir(rankrange)


def test_a_name_that_is_not_there_says_so():
    with pytest.raises(AttributeError, match=r"module 'rankrange' has no attribute 'ranked_rage'"):
        rankrange.ranked_rage  # noqa: B018


def test_the_version_is_the_one_installed():
    assert rankrange.__version__ == metadata.version("rankrange")


def test_the_package_is_typed():
    assert (resources.files("rankrange") / "py.typed").is_file()


# ---- what the source says --------------------------------------------------------------------------------------------

ROOT = Path(rankrange.__file__).parent
ORDER = (
    *("errors", "compatibility", "core", "label_noise", "outliers", "metrics", "noise", "risk", "algorithms"),
    *("boosting", "solvers", "crossfit", "inference", "estimators", "regression", "onnx", "pages", "issues", "shards"),
    *("tables", "plots", "audit", "torch", "cli", "__main__"),
)
# These must import where scikit-learn is not installed; issues are for one function that lists them.
OF_TORCH = {"torch", "core", "issues", "label_noise", "errors", "compatibility"}


@pytest.fixture(scope="module")
def sources():
    """The nodes of the syntax tree of each module, by its path below the package."""
    paths = sorted(ROOT.rglob("*.py"))
    return {path.relative_to(ROOT): list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))) for path in paths}


def imports(sources):
    """(package, package it imports from, file, line) of the whole source: lazy imports and those for types too."""
    of_names = {alias.name: node.module for node in sources[Path("__init__.py")]
                if isinstance(node, ast.ImportFrom) for alias in node.names}  # fmt: skip
    for path, nodes in sources.items():
        parts = path.with_suffix("").parts
        for node in nodes if parts != ("__init__",) else ():
            if isinstance(node, ast.ImportFrom):
                base = parts[: len(parts) - node.level] if node.level else ()
                inside = node.level or (node.module or "").split(".")[0] == "rankrange"
                names = (node.module or "").removeprefix("rankrange").strip(".").split(".") if inside else []
                full = [*base, *filter(None, names)]
                for alias in node.names if inside else ():
                    found = full[0] if full else of_names.get(alias.name, alias.name).split(".")[0]
                    yield parts[0], found, str(path), node.lineno


def test_a_package_imports_only_from_itself_and_from_those_before_it(sources):
    found = [entry for entry in imports(sources) if entry[1] in ORDER]
    assert len(found) > 300
    assert {package for package, *_ in found} <= set(ORDER)
    assert [entry for entry in found if ORDER.index(entry[1]) > ORDER.index(entry[0])] == []
    assert [entry for entry in found if entry[0] == "torch" and entry[1] not in OF_TORCH] == []


def private_names(nodes):
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("sklearn", "torch"):
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from (part for part in parts if part.startswith("_") and not part.startswith("__"))
        if isinstance(node, ast.Attribute) and node.attr == "_C" and getattr(node.value, "id", "") == "torch":
            yield "torch._C"


def test_private_names_of_other_packages_are_used_in_one_module_each(sources):
    found = {path.as_posix() for path, nodes in sources.items() if any(private_names(nodes))}
    assert found == {"compatibility.py", "torch/kernels.py"}


def test_no_module_unpickles_evaluates_or_opens_a_connection(sources):
    """Data flows through arrays and text, and nothing leaves the machine."""
    for path, nodes in sources.items():
        imported = {alias.name.split(".")[0] for n in nodes if isinstance(n, ast.Import) for alias in n.names}
        imported |= {n.module.split(".")[0] for n in nodes if isinstance(n, ast.ImportFrom) and n.module}
        assert not imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path
        assert not imported & {"socket", "urllib", "requests", "http", "httpx"}, path
        called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        assert not called & {"eval", "exec", "compile", "__import__"}, path
