"""The parts of an audit against independent oracles: encoding, targets, the cut curve, outliers, plots."""

import dataclasses

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
for package in ("jinja2", "matplotlib"):
    pytest.importorskip(package)

from matplotlib.figure import Figure  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402

from rankrange import AoRRClassifier, plots  # noqa: E402
from rankrange.audit import audit_table  # noqa: E402
from rankrange.audit.target import find_target  # noqa: E402
from rankrange.audit.task_result import Interval  # noqa: E402
from rankrange.errors import UserError  # noqa: E402
from rankrange.outliers import outlier_posterior  # noqa: E402
from rankrange.tables.encode import TableEncoder  # noqa: E402

RNG = np.random.default_rng(0)


def test_numbers_are_standardised_and_texts_are_one_hot():
    x, text = RNG.normal(3.0, 2.0, size=200), RNG.choice(list("abc"), size=200)
    X = TableEncoder().fit_transform({"x": x, "text": text})
    np.testing.assert_allclose(X[:, 0], (x - x.mean()) / x.std())
    expected = pd.get_dummies(pd.Series(text)).to_numpy()
    assert {tuple(column) for column in X[:, 1:].T} == {tuple(column) for column in expected.T.astype(float)}


def test_missing_numbers_become_the_median_and_are_marked():
    x = RNG.normal(size=101)
    x[:11] = np.nan
    X = TableEncoder().fit_transform({"x": x})
    known = x[11:]
    np.testing.assert_allclose(X[:11, 0], (np.median(known) - known.mean()) / known.std())
    np.testing.assert_array_equal(X[:, 1], np.isnan(x))


def test_a_value_far_out_does_not_set_the_scale():
    x = RNG.normal(size=300)
    x[7] = 1e9
    X = TableEncoder().fit_transform({"x": x})
    rest = np.delete(np.arange(300), 7)
    assert X[rest, 0].std() == pytest.approx(1.0)
    assert X[7, 0] == np.median(X[rest, 0])
    np.testing.assert_array_equal(X[:, 1], np.arange(300) == 7)


def test_two_codes_of_minus_999_leave_a_linear_fit_as_it_is():
    rng = np.random.default_rng(0)
    X = rng.normal(50.0, 10.0, size=(500, 3))
    y = X[:, 0] + X[:, 1] > 100.0
    spoilt = X.copy()
    spoilt[[20, 300], 0] = -999.0
    found = []
    for values in (X, spoilt):
        encoder = TableEncoder()
        fit = LogisticRegression().fit(encoder.fit_transform(dict(zip("abc", values.T, strict=True))), y)
        found.append(fit.coef_[0][[encoder.feature_names_.index(name) for name in "abc"]])
    np.testing.assert_allclose(found[1], found[0], rtol=0.03, atol=0.03)


def test_a_new_cell_beyond_the_values_of_the_fit_is_not_far_outside_unless_it_is():
    x = np.append(np.linspace(0.0, 1.0, 400), -999.0)
    encoder = TableEncoder().fit({"x": x})
    X = encoder.transform({"x": [1.0, 2.0, 1e6, -999.0, np.nan]})
    np.testing.assert_array_equal(X[:, 1], [0, 0, 1, -1, 0])
    assert X[0, 0] == X[1, 0] > X[2, 0] == X[3, 0] == X[4, 0]


def test_infinite_and_huge_values_give_finite_features():
    x = np.array([1e308, -1e308, np.inf, np.nan] * 10 + [1.0, 2.0] * 10)
    assert np.isfinite(TableEncoder().fit_transform({"x": x})).all()


def test_rare_values_are_pooled_and_unknown_ones_join_them():
    text = ["a"] * 50 + ["b"] * 50 + ["rare one", "rare two"]
    encoder = TableEncoder().fit({"t": text})
    assert encoder.feature_names_ == ["t = a", "t = b", "t = (other)"]
    np.testing.assert_array_equal(encoder.transform({"t": ["a", "rare one", "never seen"]})[:, 2], [0, 1, 1])


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (["same"] * 60, "all values are the same"),
        ([5] * 60, "all values are the same"),
        ([None] * 60, "no cell has a value"),
        (list(range(60)), "it contains row numbers"),
        ([f"name {i}" for i in range(60)], "nearly every row has its own value"),
        ([[1, 2]] * 60, "neither numbers nor text"),
    ],
)
def test_columns_that_cannot_help_are_left_out_with_the_reason(column, reason):
    encoder = TableEncoder().fit(pa.table({"x": RNG.normal(size=60), "column": pa.array(column)}))
    report = encoder.report_[1]
    assert not report.used
    assert reason in report.how
    assert encoder.feature_names_ == ["x"]


def test_dates_booleans_and_numbers_written_as_text_are_numbers():
    days = pd.date_range("2020-01-01", periods=50, freq="7D")
    ages = [str(20 + i % 40) for i in range(49)] + ["old"]
    frame = pd.DataFrame({"day": days, "yes": [True, False] * 25, "age": ages})
    encoder = TableEncoder().fit(frame)
    assert [report.kind for report in encoder.report_] == ["dates", "yes or no", "numbers"]
    steps = np.diff(encoder.transform(frame)[:, 0])
    np.testing.assert_allclose(steps, steps[0])
    assert "1 cells that are not numbers" in encoder.report_[2].how


ISO = ["2024-01-31", "2024-02-29 08:30", "2024-03-01T10:00:00"]


@pytest.mark.parametrize("text", [ISO[:1] + ["2023-12-01"], ISO, ["2024-01-31T10:00:00Z", "2024-05-05T00:00:00Z"]])
def test_iso_dates_as_text_are_encoded_as_parsed_dates_are(text):
    cells = [*(text * 20), None]
    parsed = [None if v is None else pd.Timestamp(v).tz_localize(None) for v in cells]
    encoder = TableEncoder().fit({"visit": cells})
    assert encoder.report_[0].kind == "dates"
    np.testing.assert_allclose(encoder.transform({"visit": cells}), TableEncoder().fit_transform({"visit": parsed}))
    np.testing.assert_allclose(encoder.transform({"visit": parsed}), encoder.transform({"visit": cells}))


def test_what_a_model_fitted_on_dates_cannot_read_is_an_error_with_the_remedy():
    encoder = TableEncoder().fit({"visit": pd.date_range("2020-01-01", periods=50, freq="7D")})
    for bad in (["31.01.2020"], [20200131]):
        with pytest.raises(ValueError, match=r"'visit' must hold dates as in the fit, got .*parse_dates=\['visit'\]"):
            encoder.transform({"visit": bad})
    assert encoder.transform({"visit": [None]}).shape == (1, 1)
    numbers = TableEncoder().fit({"x": [1.5, 2.5, 3.0] * 20})
    with pytest.raises(ValueError, match="'x' must hold numbers as in the fit, got text"):
        numbers.transform({"x": ["2020-01-31"]})


@pytest.mark.parametrize("words", [("yes", "no"), ("Y", "N"), ("True", "False"), ("t", "f")])
def test_yes_and_no_are_one_and_nought_with_a_mark_for_missing_cells(words):
    cells = [words[0], words[1], words[1], None] * 20
    encoder = TableEncoder().fit({"smoker": cells})
    expected = [[1, 0], [0, 0], [0, 0], [0, 1]] * 20
    np.testing.assert_array_equal(encoder.transform({"smoker": cells}), expected)
    for same in ([True, False, False, None], [1, 0, 0, None], ["yes", "no", "no", None]):
        np.testing.assert_array_equal(encoder.transform({"smoker": same}), expected[:4])
        frame = pd.DataFrame({"smoker": pd.Series(same, dtype=object)})
        np.testing.assert_array_equal(encoder.transform(frame), expected[:4])
    for bad in ([1, 2], ["maybe", "yes"]):
        with pytest.raises(ValueError, match=r"'smoker' must hold yes or no as in the fit, got .*; write yes and no"):
            encoder.transform({"smoker": bad})


def test_letters_that_are_no_pair_stay_apart_and_booleans_are_no_such_texts():
    encoder = TableEncoder().fit({"grade": ["t", "y", "n", "f"] * 20})
    assert len(encoder.feature_names_) == 4
    with pytest.raises(ValueError, match=r"'grade' must hold texts as in the fit \(.*\), got true and false"):
        encoder.transform({"grade": [True, False]})


@pytest.mark.parametrize("kind", ["pyarrow", "pandas", "polars", "dict"])
def test_every_kind_of_table_is_encoded_alike(kind):
    table = {"x": [1.0, 2.5, None, 4.0] * 10, "t": ["a", "b", None, "a"] * 10}
    if kind == "polars":
        made = pytest.importorskip("polars").DataFrame(table)
    else:
        made = {"pyarrow": pa.table, "pandas": pd.DataFrame, "dict": dict}[kind](table)
    np.testing.assert_allclose(TableEncoder().fit_transform(made), TableEncoder().fit_transform(pa.table(table)))


def test_multi_label_cells_are_distinguished_from_plain_texts_with_a_comma():
    sets = find_target(pa.table({"y": ["a|b", "a", "b", "b|c", "c"] * 10}), ["y"], separator="|")
    assert (sets.task, sets.names, sets.separator) == ("labels", ["a", "b", "c"], "|")
    places = find_target(pa.table({"y": ["Paris, France", "Rome, Italy"] * 20}), ["y"])
    assert (places.task, places.names) == ("classes", ["Paris, France", "Rome, Italy"])


@pytest.mark.parametrize("clean", ["normal", "skewed"])
def test_outliers_among_normal_residuals_are_flagged_and_normal_ones_are_not(clean):
    residual = RNG.normal(size=2000)
    assert (outlier_posterior(residual, clean=clean).p_wrong >= 0.5).mean() < 0.01
    residual[:100] += 12.0
    found = outlier_posterior(residual, clean=clean)
    assert (found.p_wrong[:100] >= 0.5).all()
    assert (found.p_wrong[100:] >= 0.5).mean() < 0.01
    assert found.interval[0] <= 0.05 <= found.interval[1]


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(lambda rng: rng.laplace(size=3000), id="laplace"),
        pytest.param(lambda rng: rng.exponential(size=3000) - 0.7, id="exponential"),
        pytest.param(lambda rng: rng.gamma(2.0, size=3000) - 2.0, id="gamma"),
        pytest.param(lambda rng: np.exp(0.6 * rng.normal(size=3000)) - 1.0, id="lognormal"),
    ],
)
def test_skewed_amounts_and_long_tails_are_no_errors_and_hide_none(right):
    rng = np.random.default_rng(0)
    residual = right(rng)
    for same in (residual, -residual):
        assert (outlier_posterior(same, clean="skewed").p_wrong >= 0.5).mean() < 0.005
    residual[:60] += rng.choice([-1.0, 1.0], 60) * rng.uniform(8, 20, 60) * residual.std()
    found = outlier_posterior(residual, clean="skewed")
    assert (found.p_wrong[:60] >= 0.5).mean() > 0.95
    assert (found.p_wrong[60:] >= 0.5).mean() < 0.005
    assert found.interval[0] <= 0.025


def test_errors_of_one_side_do_not_widen_it():
    """A fifth of all rows, which is a third of the side that they are on."""
    residual = np.random.default_rng(0).normal(size=2000)
    residual[:400] = 15.0 + residual[:400]
    wrong = outlier_posterior(residual, clean="skewed").p_wrong
    assert (wrong[:400] >= 0.5).all()
    assert (wrong[400:] >= 0.5).mean() < 0.01


def test_an_interval_of_a_mean_covers_it_at_its_rate():
    draws = RNG.normal(1.0, 3.0, size=(2000, 50))
    inside = [i.low <= 1.0 <= i.high for i in map(Interval.of_mean, draws)]
    assert np.mean(inside) == pytest.approx(0.945, abs=0.02)


@pytest.fixture(scope="module")
def audit():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(250, 2))
    y = (X[:, 0] > 0) ^ (rng.random(250) < 0.1)
    return audit_table({"a": X[:, 0], "b": X[:, 1], "y": y}, "y")


@pytest.mark.parametrize("ties", [False, True])
def test_the_cut_curve_counts_the_rows_at_or_above_each_cut(audit, ties):
    if ties:
        result = dataclasses.replace(audit.result, losses=audit.result.losses.round(0))
        audit = dataclasses.replace(audit, result=result)
    losses, wrong = audit.result.losses, audit.result.wrong
    curve = audit.cut_curve()
    for cut, count, precision, found in zip(*curve.values(), strict=True):
        above = losses >= cut
        assert count == above.sum()
        assert precision == pytest.approx(wrong[above].mean())
        assert found == pytest.approx(wrong[above].sum() / wrong.sum())


def test_the_bars_count_every_row_once(audit):
    bars = audit.distribution()
    assert sum(bars["rows"]) == 250
    assert sum(bars["wrong"]) == pytest.approx(audit.result.wrong.sum())


def test_a_table_without_use_or_target_is_an_error_with_the_remedy():
    with pytest.raises(UserError, match="did you mean 'yes'"):
        audit_table({"x": [1, 2], "yes": [0, 1]}, "yess")


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


def test_plot_ranked_keeps_the_whole_range_by_default():
    losses = np.arange(10.0)
    ax = plots.plot_ranked(losses, ax=Figure().subplots())
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), losses[::-1])


def test_plots_of_losses_and_of_tuning_draw_into_the_axis_they_are_given():
    losses = RNG.exponential(size=40)
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


@pytest.mark.parametrize("task", ["classes", "labels"])
def test_where_columns_do_not_predict_the_target_no_row_is_called_wrong(task):
    rng = np.random.default_rng(5)
    table = {"x": rng.normal(size=300), "z": rng.choice(list("ab"), 300)}
    target = ["a label", "another", "third"] if task == "labels" else "y"
    if task == "labels":
        table |= {name: rng.integers(0, 2, 300) for name in target}
    else:
        table["y"] = rng.choice(["p", "q"], 300)
    audit = audit_table(table, target)
    assert audit.n_likely == 0
    assert audit.sentences()[1].startswith("The other columns do not predict the target better than chance")
    found = audit.to_dict()
    assert found["noise"]["low"] == 0.0
    assert 0.0 < found["noise"]["estimate"] < found["noise"]["high"] < 0.6
    assert found["suspects"]  # the rows most worth a look are listed, with their probability
    assert "unknown" in audit.report()


def test_a_regression_without_outliers_has_no_suspects_and_a_page():
    x = np.linspace(-1, 1, 60)
    audit = audit_table({"x": x, "z": x**2, "y": 3 * x + 0.1 * np.sin(40 * x)}, "y")
    assert audit.n_likely == 0
    assert "<!DOCTYPE html>" in audit.report()
