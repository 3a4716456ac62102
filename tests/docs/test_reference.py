"""The reference has every public name and no other; their docstrings are complete, and their examples run."""

import doctest
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import rankrange

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
MODULES = ["rankrange", "rankrange.estimators", "rankrange.shards", "rankrange.torch", "rankrange.torch.callbacks"]
MODULES += [f"rankrange.{name}" for name in rankrange._SUBMODULES if f"rankrange.{name}" not in MODULES]
NEEDS = {
    "rankrange.torch": "torch",
    "rankrange.torch.callbacks": "torch",
    "rankrange.plots": "matplotlib",
    "rankrange.audit": "pyarrow",
}


ENTRY = re.compile(r"^\.\. currentmodule:: (\S+)|^   ([A-Za-z_][\w.]*)$|^\.\. py:data:: (\S+)", re.M)


def documented():
    """Full names of all entries of the reference."""
    names, module = set(), ""
    for current, *entries in ENTRY.findall(REFERENCE):
        module = current or module
        names |= {f"{module}.{name}" for name in entries if name}
    return names


def resolve(name):
    """The object of a full name."""
    for parent in (name.rpartition(".")[0], name.rpartition(".")[0].rpartition(".")[0]):
        if importlib.util.find_spec(parent):
            found = importlib.import_module(parent)
            for part in name.removeprefix(f"{parent}.").split("."):
                found = getattr(found, part)
            return found
    raise LookupError(name)


def offered(module):
    """The public names of one module, or a skip if the package that it needs is not installed."""
    if module in NEEDS:
        pytest.importorskip(NEEDS[module])
    inside = importlib.import_module(module)
    return {name: getattr(inside, name) for name in getattr(inside, "__all__", ()) if name != "__version__"}


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module):
    public = offered(module)
    here = {id(resolve(name)) for name in documented() if name.startswith(module) or not name.startswith(tuple(NEEDS))}
    assert [name for name, found in public.items() if id(found) not in here] == []


def test_the_reference_holds_public_names_only():
    public = {f"{module}.{name}" for module in MODULES if module not in NEEDS for name in offered(module)}
    names = {name for name in documented() if not name.startswith((*NEEDS, "rankrange.core.losses."))}
    assert names <= public


# Not asked for: a summary that begins with a verb, links outside the text, an extended summary, descriptions that begin
# with a capital letter (some begin with the name of an argument), an example of what one only receives.
NOT_ASKED = {"ES01", "PR08", "SA01", "SA04", "SS05", "SS06", "RT02", "PR10"}
RECEIVED = {"Suspect", "LostDataError", "DataNotFoundError", "LazyRows", "Scan"}
RECEIVED |= {
    "Disagreement",
    "Merged",
    "Chunk",
    "LocalRows",
    "Rows",
    "Decision",
    "Decisions",
    "RowProblem",
    "Log",
    "Result",
    "Settings",
    "Solver",
}
# Their parameters are described as attributes, or are those of the class that they stand for.
BY_REFERENCE = {"Scan", "Suspect", "Decision", "RowProblem"}


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_pass_numpydocs_checks(module):
    validate = pytest.importorskip("numpydoc.validate").validate
    faults = []
    for name, found in offered(module).items():
        excused = NOT_ASKED | ({"EX01"} if name in RECEIVED else set())
        excused |= {"PR01", "RT01"} if {name, module} & BY_REFERENCE else set()
        if callable(found):
            errors = validate(f"{found.__module__}.{found.__qualname__}")["errors"]
            faults += [f"{name}: {code} {text}" for code, text in errors if code not in excused]
    assert faults == []


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_docstrings_run(module, monkeypatch):
    if module in ("rankrange.plots", "rankrange.audit"):
        for package in ("matplotlib", "pyarrow", "skops"):
            pytest.importorskip(package)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    printed, runner = [], doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    for name, found in offered(module).items():
        home = getattr(found, "__module__", module)
        nearest = max((other for other in MODULES if f"{home}.".startswith(f"{other}.")), key=len, default="")
        if nearest == module or (home.startswith(module) and name not in offered(nearest)):  # each example once
            home = importlib.import_module(home)
            for test in doctest.DocTestFinder(exclude_empty=True).find(found, name, globs=vars(home).copy()):
                runner.run(test, out=printed.append)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    assert not runner.failures, "".join(printed)
