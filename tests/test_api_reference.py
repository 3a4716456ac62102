"""The reference holds every public name, and every docstring in it passes numpydoc's checks."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

import rankrange

ROOT = Path(__file__).parent.parent
REFERENCE = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
MODULES = [
    "rankrange",
    "rankrange.audit",
    "rankrange.boosting",
    "rankrange.estimators",
    "rankrange.issues",
    "rankrange.label_noise",
    "rankrange.algorithms",
    "rankrange.metrics",
    "rankrange.noise",
    "rankrange.onnx",
    "rankrange.plots",
    "rankrange.regression",
    "rankrange.risk",
    "rankrange.shards",
    "rankrange.torch",
    "rankrange.torch.callbacks",
]
NEEDS = {
    "rankrange.torch": "torch",
    "rankrange.torch.callbacks": "torch",
    "rankrange.plots": "matplotlib",
    "rankrange.audit": "pyarrow",
}


def documented():
    """Full names of all entries of the reference."""
    names, module, listing = set(), "", False
    for line in REFERENCE.splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.match(r"\.\. py:data:: (\S+)", line):
            names.add(f"{module}.{found[1]}")
        elif line.startswith(".. autosummary::"):
            listing = True
        elif listing and (found := re.match(r"   ([A-Za-z_][\w.]*)$", line)):
            names.add(f"{module}.{found[1]}")
        elif line and not line.startswith(" "):
            listing = False
    return names


def resolve(name):
    """The object of a full name."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


def offered(module):
    """The names of one module, or a skip where the package that it needs is not installed."""
    if module in NEEDS:
        pytest.importorskip(NEEDS[module])
    return [name for name in importlib.import_module(module).__all__ if name != "__version__"]


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module):
    inside = importlib.import_module(module) if offered(module) else None
    here = {id(resolve(name)) for name in documented() if name.startswith(module) or not name.startswith(tuple(NEEDS))}
    missing = [name for name in offered(module) if id(getattr(inside, name)) not in here]
    assert missing == []


def test_the_reference_holds_public_names_only():
    public = {f"{module}.{name}" for module in MODULES if module not in NEEDS for name in offered(module)}
    names = {name for name in documented() if not name.startswith((*NEEDS, "rankrange.core.losses."))}
    assert names <= public


def test_every_submodule_with_public_names_is_listed_here():
    """A new module with an `__all__` must be given its place in the reference."""
    for name in rankrange._SUBMODULES:
        source = importlib.util.find_spec(f"rankrange.{name}").origin
        if re.search(r"^__all__ = ", Path(source).read_text(encoding="utf-8"), re.M):
            assert f"rankrange.{name}" in MODULES


# What is not asked for: a summary that begins with a verb, links outside the text, descriptions that begin with a
# capital letter (some begin with the name of an argument).
NOT_ASKED = {"ES01", "PR08", "SA01", "SA04", "SS05", "SS06", "RT02", "PR10"}
# Records that one receives, and protocols that one writes a class for, have no example of their own.
RECEIVED = {
    "Suspect",
    "LostDataError",
    "DataNotFoundError",
    "LazyRows",
    "Scan",
}
RECEIVED |= {"Chunk", "LocalRows", "Rows", "Decision", "Decisions", "RowProblem", "Log", "Result", "Settings", "Solver"}
# The parameters of these are those of the class that they stand for, or described as attributes; the code of the last
# one is quoted whole in CONTRIBUTING.md.
BY_REFERENCE = {"Scan", "Suspect", "Decision", "RowProblem", "descend_from_starts"}
# Solvers are called by their names; `solve` shows how.
SOLVERS = "rankrange.solvers"


def excused(module, name):
    codes = set(NOT_ASKED)
    if name in RECEIVED or (module == SOLVERS and name != "solve"):
        codes.add("EX01")
    if name in BY_REFERENCE or module in BY_REFERENCE:
        codes |= {"PR01", "RT01"}
    return codes


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_pass_numpydocs_checks(module):
    validate = pytest.importorskip("numpydoc.validate").validate
    faults = []
    for name in offered(module):
        found = getattr(importlib.import_module(module), name)
        if callable(found):
            errors = validate(f"{found.__module__}.{found.__qualname__}")["errors"]
            faults += [f"{name}: {code} {text}" for code, text in errors if code not in excused(module, name)]
    assert faults == []
