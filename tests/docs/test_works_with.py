"""The recipes of docs/how-to for other packages, each run with its package; skipped where one is missing."""

import re
from pathlib import Path

import pytest
from test_examples import blocks, check_printed, printed_by

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "works_with.md"
TEXT = PAGE.read_text(encoding="utf-8")
# test_torch_trainers.py runs the classes, which print nothing.
RECIPES = [code for code in blocks(PAGE) if "# ->" in code]


# What other packages warn of is not ours to fix.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", RECIPES, ids=lambda code: re.search(r"import (\w+)", code)[1])
def test_a_recipe_runs_and_prints_what_the_page_says(code, tmp_path, monkeypatch):
    for package in set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)):
        pytest.importorskip(package)
    if "to_pandera" in code:
        pytest.importorskip("pandera")
    monkeypatch.chdir(tmp_path)
    printed = printed_by(code, {"__name__": "page"})
    if "Trainer(" in code:  # trainers print as well, before the page does
        printed = printed[-code.count("# ->") :]
    check_printed(printed, code)


def test_every_tool_of_the_table_has_a_recipe():
    """On this page, or on the page that its line names."""
    for names, what, versions in re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)[2:]:
        assert re.search(r"\d+\.\d+", versions), names
        named = re.search(r"\{doc\}`(\w+)`", what)
        page = (
            PAGE.with_name(f"{named.group(1)}.md").read_text(encoding="utf-8") if named else TEXT.partition("\n## ")[2]
        )
        for tool in names.split(", "):
            assert tool.split()[0] in page, tool
