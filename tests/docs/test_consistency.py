"""What several files say agrees: versions, requirements, quoted code, named tests, links, and recorded figures."""

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import tomllib
from pathlib import Path

import pytest

import rankrange
from rankrange.core import aggregates, losses

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = [line for group in PROJECT["optional-dependencies"].values() for line in group]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def names_of(requirements):
    return {re.match(r"[a-z0-9-]+", line)[0] for line in requirements}


# ---- releases --------------------------------------------------------------------------------------------------------


def test_every_place_names_the_same_version():
    assert re.search(r"^version: (\S+)$", read("CITATION.cff"), re.M)[1] == rankrange.__version__
    assert f"## {rankrange.__version__}" in read("CHANGELOG.md")


def test_the_oldest_versions_are_those_that_the_project_allows():
    tried = dict(re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?==([\d.]+)$", read("tests/oldest.txt"), re.M))
    groups = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *groups["app"], *groups["data"], *groups["dask"]]
    allowed = dict(re.match(r"([a-z0-9-]+)(?:\[\w+\])?>=([\d.]+)", line).groups() for line in wanted)
    assert set(tried) == set(allowed)
    assert all(tried[name] == version or tried[name].startswith(f"{version}.") for name, version in allowed.items())


def test_what_is_imported_is_declared():
    imported = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            imported |= {name.split(".")[0] for name in names}
    imported -= set(sys.stdlib_module_names) | {"rankrange", "distributed"}  # dask[distributed]
    called = {"sklearn": "scikit-learn", "PIL": "pillow"}
    assert {called.get(name, name).replace("_", "-") for name in imported} <= names_of(
        [*PROJECT["dependencies"], *EXTRAS]
    )


def test_users_choose_versions_and_our_own_runs_are_constrained():
    assert not [line for line in [*PROJECT["dependencies"], *EXTRAS] if "==" in line.split(";")[0]]
    lines = [*read("Makefile").splitlines(), *read(".github/workflows/tests.yml").splitlines()]
    installs = [line for line in lines if "pip install" in line and "-oldest" not in line]
    assert installs
    assert all(".ci/constraints.txt" in line or "$(CONSTRAINTS)" in line for line in installs)


# ---- pages -----------------------------------------------------------------------------------------------------------


def test_the_readme_names_commands_that_exist():
    for target in re.findall(r"^make (\S+)", read("README.md"), re.M):
        assert re.search(rf"^{target}:", read("Makefile"), re.M), target


QUOTED = re.findall(r"<!-- (\w+)\.(\w+) -->\n```python\n(.*?)^```$", read("CONTRIBUTING.md"), re.M | re.S)


@pytest.mark.parametrize(("module", "name", "quoted"), QUOTED, ids=[name for _, name, _ in QUOTED])
def test_contributing_quotes_the_code_of_the_package(module, name, quoted):
    home = {"losses": losses, "aggregates": aggregates}[module]
    assert quoted == inspect.getsource(getattr(home, name))


def test_links_and_mentions_of_pages_lead_somewhere():
    """Sphinx checks the links between pages of the site; these are the others."""
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert "generated/" in target or (page.parent / target).exists(), f"{page}: {target}"
        named = set(re.findall(r"\b(test_\w+\.py)", page.read_text(encoding="utf-8")))
        assert named <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}, page
    for file in [
        *(path for part in ("src", "benchmarks", "examples", "tests") for path in ROOT.glob(f"{part}/**/*.py"))
    ]:
        for page in re.findall(r"docs/[\w/-]+\.md", file.read_text(encoding="utf-8")):
            assert (ROOT / page).is_file(), f"{file} mentions {page}"


def test_the_page_of_the_paper_names_tests_and_functions_that_exist():
    paper = read("docs/paper.md")
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py")]
    existing = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.M)}
    named = set(re.findall(r"`(test_\w+)`", paper))
    assert len(named) > 20
    assert named <= existing
    for name in set(re.findall(r"`(rankrange(?:\.\w+)+)`", paper)):
        if not name.startswith("rankrange.torch") or importlib.util.find_spec("torch"):
            package, *parts = name.split(".")
            found = importlib.import_module(package)
            for part in parts:
                found = getattr(found, part)


def test_every_file_that_the_architecture_page_names_is_there():
    page = read("docs/development/architecture.md")
    names = re.findall(r"`((?!tests/)[a-z_]+/[a-z_]+\.py)`", page)
    assert len(names) > 20
    assert [name for name in names if not (ROOT / "src" / "rankrange" / name).is_file()] == []


# ---- figures ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def drawing(monkeypatch):
    for package in ("matplotlib", "pandas", "pyarrow"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("draw_benchmarks")


def test_the_evidence_of_the_readme_is_what_was_recorded(drawing):
    assert drawing.evidence() in read("README.md")


def test_the_evidence_leaves_out_no_table_of_a_record(drawing):
    """With the sets of two even classes alone the gains looked twice as large."""
    lines = drawing.evidence().splitlines()
    automatic, trees = drawing.recorded("linear_auto"), drawing.recorded("any_model")
    automatic = automatic[automatic["aggregate"] == "all rows"]
    for name, counted in (
        ("labels wrong in one class", automatic["kind"] == "class-dependent"),
        ("high-leverage rows", (automatic["kind"] == "far") & (automatic["rate"] == 0.1)),
        ("all labels right", automatic["kind"] == "none"),
        ("boosted trees", (trees["base"] == "hgb") & (trees["rate"] > 0)),
    ):
        (line,) = [line for line in lines if name in line.split("|")[1]]
        assert f" {counted.sum()} runs " in line
        assert "median" in line
        assert "worst" in line


def test_every_record_makes_a_table_on_a_page(drawing):
    names = {name for modules in drawing.PAGES.values() for module in modules for name in drawing.MODULES[module]}
    for record in sorted((ROOT / "benchmarks" / "results").glob("*.csv")):
        assert record.stem in names
        if not record.stem.startswith(("torch", "linear_gpu")) or importlib.util.find_spec("torch"):
            head, _, *rows = [line for line in drawing.section(record.stem).splitlines() if line.startswith("| ")]
            assert rows, record
            assert head.count("|") == rows[0].count("|")
