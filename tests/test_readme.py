"""The examples of the README run and print what they say, and CONTRIBUTING quotes the code of the package."""

import contextlib
import inspect
import io
import re
from pathlib import Path

import pytest

from rankrange.core import aggregates, losses

ROOT = Path(__file__).parent.parent
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)


def promised(example):
    """What the comments of an example say it prints: `# -> text` to the letter, `# ~> numbers` about."""
    return re.findall(r"# ([-~])> (.*?)(?: {3,}.*)?$", example, re.M)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: re.findall(r"import (\S+)", text)[-1])
def test_readme_example_prints_what_it_says(example):
    if "torch" in example:
        pytest.importorskip("torch")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(example, "README.md", "exec"), {"__name__": "readme"})
    lines = output.getvalue().splitlines()
    assert len(lines) == len(promised(example)) > 0
    for line, (kind, expected) in zip(lines, promised(example), strict=True):
        if kind == "-":
            assert line == expected.strip()
        else:
            assert [float(v) for v in line.split()] == pytest.approx([float(v) for v in expected.split()], abs=0.02)


def test_readme_names_commands_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\S+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M):
        assert re.search(rf"^{target}:", makefile, re.M)


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"<!-- (\w+)\.(\w+) -->\n```python\n(.*?)^```$", CONTRIBUTING, re.M | re.S)


@pytest.mark.parametrize(("module", "name", "quoted"), QUOTED, ids=[f"{module}.{name}" for module, name, _ in QUOTED])
def test_contributing_quotes_the_code_of_the_package(module, name, quoted):
    home = {"losses": losses, "aggregates": aggregates}[module]
    assert quoted == inspect.getsource(getattr(home, name))


def test_contributing_shows_a_loss_and_an_aggregate():
    assert {module for module, _, _ in QUOTED} == {"losses", "aggregates"}


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert "generated/" in target or (page.parent / target).exists(), target
