"""The recipes of docs/how-to for other packages, each run with its package; skipped where one is missing."""

import contextlib
import io
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "works_with.md"
TEXT = PAGE.read_text(encoding="utf-8")
PAGES = [PAGE, PAGE.with_name("boosting.md"), PAGE.with_name("trainers.md")]
# test_torch_trainers.py runs the classes of trainers.md, which print nothing.
RECIPES = [
    code
    for page in PAGES
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if "# ->" in code
]
NUMBER = re.compile(r"\d+\.\d+")


# What other packages warn of is not ours to fix.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code", RECIPES, ids=lambda code: re.search(r"import (\w+)", code)[1])
def test_a_recipe_runs_and_prints_what_the_page_says(code, tmp_path, monkeypatch):
    for package in set(re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)):
        pytest.importorskip(package)
    if "to_pandera" in code:
        pytest.importorskip("pandera")
    monkeypatch.chdir(tmp_path)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "recipe", "exec"), {"__name__": "page"})
    promised = re.findall(r"# [-~]> (.*)$", code, re.MULTILINE)
    if "for model in" in code:
        promised = promised * 2
    printed = output.getvalue().splitlines()
    if "Trainer(" in code:  # trainers print as well, before the page does
        printed = printed[-len(promised) :]
    for line, expected in zip(printed, promised, strict=True):
        assert NUMBER.sub("0", line) == NUMBER.sub("0", expected)
        near = [float(number) for number in NUMBER.findall(expected)]
        assert [float(number) for number in NUMBER.findall(line)] == pytest.approx(near, abs=0.03)


def test_every_tool_of_the_table_has_a_recipe():
    """On this page, or on the page that its line names."""
    for names, what, versions in re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)[2:]:
        assert NUMBER.search(versions), names
        named = re.search(r"\{doc\}`(\w+)`", what)
        page = (
            PAGE.with_name(f"{named.group(1)}.md").read_text(encoding="utf-8") if named else TEXT.partition("\n## ")[2]
        )
        for tool in names.split(", "):
            assert tool.split()[0] in page, tool
