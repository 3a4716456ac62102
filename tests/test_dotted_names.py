"""Every dotted name of the package that a docstring or a page mentions is there."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from importlib.util import find_spec
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


def _pages():
    """The modules of the package, and the pages and examples where a checkout has them."""
    yield from sorted(ROOT.rglob("*.py"))
    if (REPOSITORY / "docs").is_dir():
        pages = [
            *REPOSITORY.glob("*.md"),
            *(REPOSITORY / "docs").rglob("*.md"),
            *(REPOSITORY / "examples").rglob("*.py"),
        ]
        yield from sorted(page for page in pages if "_build" not in page.parts and page.name != "CHANGELOG.md")


def _docstrings(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return "\n".join(filter(None, (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))))


def _named(path):
    """The dotted names that a page, or the docstrings of a module, mention."""
    text = _docstrings(path) if ROOT in path.parents else path.read_text(encoding="utf-8")
    return {name for name in NAME.findall(text) if not any(name.startswith(file) for file in FILES)}


@cache
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


def test_every_name_that_a_page_or_a_docstring_mentions_is_there():
    missing, unknown = [], set()
    for path in _pages():
        for name in sorted(_named(path)):
            if any(name.startswith(prefix) and find_spec(package) is None for prefix, package in NEEDS.items()):
                unknown.add(name)
                continue
            try:
                _resolved(name)
            except AttributeError as error:
                missing.append(f"{path.relative_to(REPOSITORY)} mentions {name}: {error}")
    assert not missing
    if unknown:
        pytest.skip(f"packages are not installed that {', '.join(sorted(unknown))} need")


def test_names_are_found_where_they_are_mentioned():
    assert "rankrange.shards" in set().union(*(_named(path) for path in (ROOT / "audit").rglob("*.py")))
    if (REPOSITORY / "docs").is_dir():
        pages = set().union(*(_named(path) for path in REPOSITORY.glob("docs/**/*.md")))
        assert {"rankrange.torch", "rankrange.audit.load_model"} <= pages
    with pytest.raises(AttributeError):
        _resolved("rankrange.torch_judge")
