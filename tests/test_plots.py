"""The plots draw what their data say into the axes that they are given."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import matplotlib.pyplot
from matplotlib.figure import Figure

from rankrange import AoRRClassifier, plots
from rankrange.regression import mm

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def audit():
    pytest.importorskip("pyarrow")
    from rankrange.audit import audit_table

    x, z = np.random.default_rng(3).normal(size=(2, 150))
    return audit_table({"x": x, "z": z, "y": (x > 0) ^ (z > 1.2)}, "y", models="linear")


@pytest.mark.parametrize("name", ["plot_losses", "plot_scores"])
def test_plots_of_an_audit_draw_into_the_axis_they_are_given(name, audit):
    figure = Figure()
    ax = figure.subplots()
    assert getattr(plots, name)(audit, ax=ax) is ax
    assert ax.has_data()
    assert ax.get_xlabel()
    figure.savefig("/dev/null", format="png")


def test_every_text_of_the_scores_lies_on_a_figure_of_the_default_size(audit):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = Figure()
    ax = plots.plot_scores(audit, ax=figure.subplots())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    names = [m.name for m in audit.result.measures if m.percent]
    texts = [t for t in [*ax.texts, *ax.get_yticklabels(), ax.xaxis.label] if t.get_text()]
    assert set(names) <= {t.get_text() for t in texts}
    for text in texts:
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_plots_of_losses_and_of_tuning_draw_into_the_axis_they_are_given():
    losses = RNG.exponential(size=40)
    np.testing.assert_array_equal(plots.plot_ranked(losses).get_lines()[0].get_ydata(), np.sort(losses)[::-1])
    ax = plots.plot_ranked(losses, 5, 30, ax=Figure().subplots())
    kept, cut = ax.get_lines()[:2]
    np.testing.assert_allclose(kept.get_ydata(), np.sort(losses)[::-1][5:30])
    assert len(cut.get_ydata()) == 15
    X = RNG.normal(size=(80, 2))
    model = AoRRClassifier(random_state=0).fit(X, X[:, 0] > 0)
    ax = plots.plot_tuning(model, ax=Figure().subplots())
    assert ax.get_ylabel() == "cross-validated gain in score over m = 0"
    named = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"chosen: m / n = {model.m_ / 80:.2g}" in named
    assert not {"none", "up", "search"} & set(named)
    with pytest.raises(ValueError, match="needs an estimator fitted with m='auto'"):
        plots.plot_tuning(AoRRClassifier(m=0.1, random_state=0).fit(X, X[:, 0] > 0))
    for draw in (plots.plot_losses, plots.plot_scores):
        with pytest.raises(TypeError, match="audit_table, got AoRRClassifier"):
            draw(model)
    with pytest.raises(TypeError, match="fitted AoRRRegressor"):
        plots.plot_diagnostics(model)


def test_the_diagnostics_are_four_panels_with_the_same_marks_or_one():
    x = np.arange(60.0)
    y = 2.0 * x + np.sin(9 * x)
    y[:15] += 20.0
    model = mm(x[:, None], y, random_state=0)
    axes = plots.plot_diagnostics(model)
    assert axes.shape == (2, 2)
    assert all(ax.get_title() for ax in axes.flat)
    marks = [{line.get_marker() for line in ax.get_lines()} - {"None"} for ax in axes.flat]
    assert all(found == marks[0] for found in marks)
    ax = Figure().subplots()
    assert plots.plot_diagnostics(model, x[:20, None], y[:20], ax=ax) is ax
    assert any("vertical outlier" in text.get_text() for text in ax.get_legend().get_texts())
    matplotlib.pyplot.close("all")
