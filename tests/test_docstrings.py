"""The examples of what users call run and print what they say."""

import doctest
import importlib
import importlib.util
import inspect
import sys

import pytest

import rankrange
from rankrange import audit, estimators, issues, metrics, noise, plots, risk

# What users call, by the module that offers it.
OFFERED = {
    rankrange: [name for name in rankrange.__all__ if name != "__version__"],
    estimators: estimators.__all__,
    issues: issues.__all__,
    metrics: metrics.__all__,
    noise: noise.__all__,
    risk: risk.__all__,
    plots: plots.__all__,
    audit: ["Audit", "apply_decisions", "audit_file", "audit_table", "load_model", "read_decisions"],
}
if importlib.util.find_spec("torch"):
    import rankrange.torch as rrt

    OFFERED[rrt] = rrt.__all__
NAMES = [(module, name) for module, names in OFFERED.items() for name in names]
every_name = pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: getattr(part, "__name__", part))
# A class that several modules offer has one docstring, whose examples run once.
ONCE = list({id(getattr(module, name)): (module, name) for module, name in reversed(NAMES)}.values())[::-1]


def sections(text):
    lines = text.splitlines()
    return {lines[i - 1].strip() for i in range(1, len(lines)) if lines[i].strip() and set(lines[i].strip()) == {"-"}}


@every_name
def test_what_users_call_says_what_it_takes_and_shows_how(module, name):
    found = getattr(module, name)
    text = inspect.getdoc(found)
    assert "Examples" in sections(text)
    assert "Parameters" in sections(text) or not inspect.signature(found).parameters
    if inspect.isfunction(found):
        assert "Returns" in sections(text)


@every_name
def test_every_parameter_is_described(module, name):
    found = getattr(module, name)
    described = inspect.getdoc(found).partition("Parameters\n")[2]
    entries = [line.partition(" : ")[0] for line in described.splitlines() if line and not line.startswith(" ")]
    named = {part.strip(" *") for entry in entries for part in entry.split(",")}
    parameters = inspect.signature(found).parameters
    assert {parameter for parameter in parameters if parameter not in named} == set()


@pytest.mark.parametrize(("module", "name"), ONCE, ids=lambda part: getattr(part, "__name__", part))
def test_the_examples_run(module, name):
    if module in (plots, audit):
        for package in ("matplotlib", "pyarrow", "skops"):
            pytest.importorskip(package)
    found = getattr(module, name)
    home = importlib.import_module(found.__module__)
    tests = doctest.DocTestFinder(exclude_empty=True).find(found, name, globs=vars(home).copy())
    assert any(test.examples for test in tests)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    said = []
    for test in tests:
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)


@pytest.fixture(autouse=True)
def no_open_figures(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
