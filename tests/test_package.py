"""What importing the package loads, and what it offers."""

import ast
import subprocess
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

import rankrange

HEAVY = ("torch", "pandas", "sklearn", "matplotlib", "scipy")


def run(code):
    """The output of a fresh interpreter with warnings as errors."""
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_the_package_is_light():
    assert run(f"import sys, rankrange; print([name for name in {HEAVY} if name in sys.modules])") == "[]"


def test_ranges_are_pure_python():
    assert run("import sys, rankrange; rankrange.RankedRange(0, 1); print('numpy' in sys.modules)") == "False"


def test_submodules_are_attributes_loaded_when_first_used():
    assert run("import rankrange; print(rankrange.core.losses.__name__)") == "rankrange.core.losses"
    assert run("import sys, rankrange; rankrange.risk; print('torch' in sys.modules)") == "False"


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


def sources():
    return sorted(Path(rankrange.__file__).parent.rglob("*.py"))


def test_no_module_unpickles_evaluates_or_opens_a_connection():
    """Data flows through arrays and text, and nothing leaves the machine."""
    for path in sources():
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        imported = {alias.name.split(".")[0] for n in nodes if isinstance(n, ast.Import) for alias in n.names}
        imported |= {n.module.split(".")[0] for n in nodes if isinstance(n, ast.ImportFrom) and n.module}
        assert not imported & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path
        assert not imported & {"socket", "urllib", "requests", "http", "httpx"}, path
        called = {n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        assert not called & {"eval", "exec", "compile", "__import__"}, path
