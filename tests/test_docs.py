"""docs/paper.md names only what exists, and says so where nothing does yet."""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAPER = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


@cache
def functions_in(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/\w+\.py::\w+)`", PAPER))))
def test_every_test_named_exists(name):
    file, _, function = name.partition("::")
    assert function in functions_in(file)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(rankrange(?:\.\w+)+)`", PAPER))))
def test_every_function_named_exists(name):
    if name.startswith("rankrange.torch"):
        pytest.importorskip("torch")
    package, *parts = name.split(".")
    found = importlib.import_module(package)
    for part in parts:
        found = getattr(found, part)
    assert callable(found)


def test_every_row_names_something_or_says_that_it_is_not_built_yet():
    rows = [line for line in PAPER.splitlines() if line.startswith("| ") and not line.startswith("| part")]
    assert len(rows) > 45
    for row in rows:
        held_by = row.strip("| ").split(" | ")[-1]
        assert "`" in held_by or "not built yet" in held_by or "above" in held_by, row


def test_the_items_are_numbered_without_a_gap_and_all_references_lead_to_one():
    items = [int(number) for number in re.findall(r"^(\d+)\. \*\*", PAPER, re.M)]
    assert items == list(range(1, len(items) + 1))
    referred = {int(n) for found in re.findall(r"items? (\d+)(?: and (\d+))?", PAPER) for n in found if n}
    assert referred <= set(items)
    pages = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    for page in pages:
        assert {int(n) for n in re.findall(r"paper\.md\)?, item (\d+)", page.read_text(encoding="utf-8"))} <= set(items)
