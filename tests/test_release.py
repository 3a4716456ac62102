"""What a release says about itself agrees: versions, minimum versions, files that people look for."""

import re
from pathlib import Path

import pytest

import rankrange

try:
    import tomllib
except ImportError:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_place_names_the_same_version():
    assert re.search(r"^version: (\S+)$", read("CITATION.cff"), re.M)[1] == rankrange.__version__
    assert re.search(r'^  version: "(\S+)"$', read("conda/recipe.yaml"), re.M)[1] == rankrange.__version__
    assert f"## {rankrange.__version__}" in read("CHANGELOG.md")


def minimum_versions():
    """Package to its lower bound, of what the library itself needs."""
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["app"], *extras["data"], *extras["dask"]]
    found = (re.match(r"([a-z0-9-]+)(?:\[\w+\])?>=([\d.]+)", line) for line in wanted)
    return {match[1]: match[2] for match in found}


def test_the_oldest_versions_are_those_that_the_project_allows():
    tried = dict(re.findall(r"^([a-z0-9-]+)(?:\[\w+\])?==([\d.]+)$", read("tests/oldest.txt"), re.M))
    allowed = minimum_versions()
    assert set(tried) == set(allowed)
    for package, version in allowed.items():
        assert tried[package] == version or tried[package].startswith(f"{version}.")


def test_the_recipe_asks_for_what_the_project_asks_for():
    asked = dict(re.findall(r"^    - ([a-z0-9-]+) >=([\d.]+)$", read("conda/recipe.yaml"), re.M))
    asked["matplotlib"] = asked.pop("matplotlib-base")
    needed = {name: version for name, version in minimum_versions().items() if name not in ("pandas", "dask")}
    assert {name: asked[name] for name in needed} == needed


@pytest.mark.parametrize("name", ["LICENSE", "SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "CITATION.cff"])
def test_what_people_look_for_is_there(name):
    assert len(read(name)) > 200


def test_the_tools_before_a_commit_are_those_of_make_lint():
    hooks = read(".pre-commit-config.yaml")
    for hook in ("ruff-check", "ruff-format", "mypy"):
        assert f"id: {hook}" in hooks
