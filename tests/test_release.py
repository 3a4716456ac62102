"""What a release says about itself agrees: versions, minimum versions, files that people look for."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

import rankrange

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_every_place_names_the_same_version():
    assert re.search(r"^version: (\S+)$", read("CITATION.cff"), re.M)[1] == rankrange.__version__
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


@pytest.mark.parametrize("name", ["LICENSE", "SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "CITATION.cff"])
def test_what_people_look_for_is_there(name):
    assert len(read(name)) > 200


def test_the_tools_before_a_commit_are_those_of_make_lint():
    hooks = read(".pre-commit-config.yaml")
    for hook in ("ruff-check", "ruff-format", "mypy"):
        assert f"id: {hook}" in hooks


# What a module is called where it is not called as its package.
PACKAGES = {"sklearn": "scikit-learn", "PIL": "pillow", "yaml": "pyyaml"}


def imported_packages():
    """All that the library imports and neither Python nor itself brings."""
    found = set()
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            found |= {name.split(".")[0] for name in names}
    return {PACKAGES.get(name, name).replace("_", "-") for name in found - set(sys.stdlib_module_names) - {"rankrange"}}


def test_what_is_imported_is_declared():
    extras = [line for group in PROJECT["optional-dependencies"].values() for line in group]
    declared = {re.match(r"[a-z0-9-]+", line)[0] for line in [*PROJECT["dependencies"], *extras]}
    declared |= {"distributed"}  # dask[distributed]
    assert imported_packages() <= declared
    needed = {re.match(r"[a-z0-9-]+", line)[0] for line in PROJECT["dependencies"]}
    assert {"joblib", "threadpoolctl"} <= needed


def test_users_choose_versions_and_only_our_own_runs_are_pinned():
    extras = [line for group in PROJECT["optional-dependencies"].values() for line in group]
    assert not [line for line in [*PROJECT["dependencies"], *extras] if "==" in line.split(";")[0]]
    assert "torch>=2.4" in PROJECT["optional-dependencies"]["torch"]
    assert "torch==2.13.0" in read(".ci/constraints.txt").splitlines()
    lines = "\n".join(map(read, ("Makefile", ".github/workflows/tests.yml"))).splitlines()
    installs = [line for line in lines if re.search("pip install", line) and "-oldest" not in line]
    assert len(installs) >= 3  # Makefile and CI
    assert all(".ci/constraints.txt" in line or "$(CONSTRAINTS)" in line for line in installs)
    assert "CONSTRAINTS := .ci/constraints.txt" in read("Makefile")
