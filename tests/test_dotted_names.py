"""Every dotted name of the package that a docstring or a page mentions is there."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import rankrange

ROOT = Path(rankrange.__file__).parent
REPOSITORY = ROOT.parents[1]
# A hyphen follows keys of Dask's configuration, such as rankrange.sample-rows.
NAME = re.compile(r"(?<![\w./@-])rankrange(?:\.[A-Za-z_]\w*)+(?![\w-])")
# Optional packages; where one is not installed its names cannot be looked up.
NEEDS = {"rankrange.torch": "torch", "rankrange.dask": "dask", "rankrange.plots": "matplotlib"}
# Files that are named like the package.
FILES = {"rankrange.egg", "rankrange.css", "rankrange.svg", "rankrange.toml"}


def _docstrings(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return "\n".join(filter(None, (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))))


def _texts():
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT.parent).as_posix(), _docstrings(path)
    if (REPOSITORY / "docs").is_dir():
        pages = [
            *REPOSITORY.glob("*.md"),
            *(REPOSITORY / "docs").rglob("*.md"),
            *(REPOSITORY / "examples").rglob("*.py"),
        ]
        for path in sorted(page for page in pages if "_build" not in page.parts and page.name != "CHANGELOG.md"):
            yield path.relative_to(REPOSITORY).as_posix(), path.read_text(encoding="utf-8")


def _named():
    found: dict[str, str] = {}
    for where, text in _texts():
        for name in NAME.findall(text):
            if not any(name.startswith(file) for file in FILES):
                found.setdefault(name, where)
    return found


NAMED = _named()


def _resolved(name):
    """The object of a dotted name: the longest prefix that is a module, then attribute after attribute."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("rankrange"):
                raise
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise AttributeError(name)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_name_that_is_mentioned_is_there(name):
    for prefix, package in NEEDS.items():
        if name.startswith(prefix):
            pytest.importorskip(package)
    try:
        _resolved(name)
    except AttributeError as error:
        pytest.fail(f"{NAMED[name]} mentions {name}: {error}")


def test_names_are_found_where_they_are_mentioned():
    assert {"rankrange.torch", "rankrange.audit.load_model"} <= set(NAMED)
    with pytest.raises(AttributeError):
        _resolved("rankrange.torch_judge")
