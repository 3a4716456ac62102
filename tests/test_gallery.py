"""The examples of the gallery run, draw, and ask a question."""

import ast
import os
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))
NEEDS = {
    "plot_audit_table": ("pandas", "pyarrow", "jinja2"),
    "plot_several_reviewers": ("pandas", "pyarrow", "jinja2"),
    "plot_text_and_categories": ("pandas",),
    "plot_network_noisy_labels": ("torch",),
    "plot_several_processes": ("torch",),
    "plot_noisy_tokens": ("torch",),
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_draws(path, monkeypatch):
    for package in ("matplotlib", *NEEDS.get(path.stem, ())):
        pytest.importorskip(package)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("RANKRANGE_SMALL", "1")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    try:
        runpy.run_path(str(path), run_name="__main__")
        figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        assert figures
        assert all(any(axis.has_data() for axis in figure.axes) for figure in figures)
    finally:
        pyplot.close("all")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_title_of_an_example_is_a_question(path):
    title = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]
    assert title.endswith("?")
    assert len(title) < 70


def test_every_example_has_a_place_in_the_gallery():
    sys.path.insert(0, os.fspath(ROOT / "docs" / "_ext"))
    try:
        from gallery_order import QUESTIONS
    finally:
        sys.path.pop(0)
    assert sorted(QUESTIONS) == [path.name for path in EXAMPLES]
