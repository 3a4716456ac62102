"""The encoder of tables: numbers, dates, texts and marks of missing cells as features, without any label."""

import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LogisticRegression

from rankrange.tables.encode import TableEncoder

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


def test_a_value_far_outside_is_marked_and_does_not_set_the_scale():
    x = np.append(np.linspace(0.0, 1.0, 400), -999.0)
    encoder = TableEncoder().fit({"x": x})
    assert encoder.transform({"x": x})[:400, 0].std() == pytest.approx(1.0)
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
    assert encoder.report_[0].how == "2 values, one 0/1 column each; 2 rare values in one column"
    np.testing.assert_array_equal(encoder.transform({"t": ["a", "rare one", "never seen"]})[:, 2], [0, 1, 1])


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (["same"] * 60, "all values are the same"),
        ([5] * 60, "all values are the same"),
        ([None] * 60, "no cell has a value"),
        (pa.array([None] * 60, pa.dictionary(pa.int32(), pa.string())), "no cell has a value"),
        (list(range(60)), "it contains row numbers"),
        ([f"name {i}" for i in range(60)], "60 different texts in 60 rows"),
        ([f"{i * 7919 % 10007:x}-{i:x}" for i in range(60)], "60 different texts in 60 rows"),
        ([[1, 2]] * 60, "neither numbers nor text"),
    ],
)
def test_columns_that_cannot_help_are_left_out_with_the_reason(column, reason):
    encoder = TableEncoder().fit(pa.table({"x": RNG.normal(size=60), "column": pa.array(column)}))
    report = encoder.report_[1]
    assert not report.used
    assert reason in report.how
    assert encoder.feature_names_ == ["x"]


def test_dates_and_numbers_written_as_text_are_those_of_their_types():
    days = pd.Series(pd.date_range("2020-01-01 08:30", periods=50, freq="7D"))
    ages = [20.0 + i % 40 for i in range(49)] + [np.nan]
    typed = pd.DataFrame({"day": days, "zulu": days, "age": ages})
    texts = pd.DataFrame(
        {
            "day": days.dt.strftime("%Y-%m-%d %H:%M"),
            "zulu": days.dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "age": [*map(str, ages[:49]), "old"],
        }
    )
    encoder = TableEncoder().fit(texts)
    assert [report.kind for report in encoder.report_] == ["dates", "dates", "numbers"]
    np.testing.assert_allclose(encoder.transform(texts), TableEncoder().fit_transform(typed))
    np.testing.assert_allclose(encoder.transform(typed), encoder.transform(texts))
    assert "1 cell of other texts counted as missing" in encoder.report_[2].how


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


def test_a_model_reads_a_new_table_in_the_form_of_the_first():
    when = [f"{day:02d}/{1 + day % 12:02d}/2024" for day in range(1, 29)]
    encoder = TableEncoder().fit(pa.table({"when": when}))
    early, late = encoder.transform(pa.table({"when": ["01/02/2024", "01/03/2024"]}))[:, 0]
    assert late > early  # February and March, not 2 and 3 January
    assert late - early == pytest.approx(29 / encoder.columns_[0]["scale"])


GOOD = ["great phone works well", "really nice and good quality", "excellent product love it"]


POOR = ["terrible waste of money", "bad quality broke at once", "awful do not buy it"]


def reviews(n, rng):
    y = rng.integers(0, 2, n)
    extra = ["the", "item", "bought", "last", "week", "from", "shop", "town"]
    return y, [
        f"{(GOOD if v else POOR)[rng.integers(3)]} {' '.join(rng.choice(extra, 4))} {i}" for i, v in enumerate(y)
    ]


def test_prose_becomes_informative_features():
    y, texts = reviews(300, np.random.default_rng(0))
    encoder = TableEncoder().fit(pa.table({"review": texts[:200]}))
    X = [encoder.transform(pa.table({"review": part})) for part in (texts[:200], texts[200:])]
    assert LogisticRegression().fit(X[0], y[:200]).score(X[1], y[200:]) > 0.95
    assert np.isfinite(encoder.transform(pa.table({"review": ["", "???", None]}))).all()


@pytest.mark.parametrize("form", ["{:.4f}", "${:.2f}", "{:.1f}%", "2024-01-{:02.0f}", "{:02.0f}.03.2024"])
@pytest.mark.parametrize("mark", [".", "-", "missing", "n.a.", "None", "#DIV/0!", "N/A", "Unknown"])
def test_marks_in_a_column_of_numbers_or_dates_are_missing_cells(mark, form):
    texts = [form.format(1 + i % 28) for i in range(200)]
    marked, empty = ({"x": [text if i % 5 else cell for i, text in enumerate(texts)]} for cell in (mark, None))
    encoder = TableEncoder()
    np.testing.assert_array_equal(encoder.fit_transform(marked), TableEncoder().fit_transform(empty))
    assert encoder.report_[0].used
    assert encoder.report_[0].missing == 40
    assert f"40 cells with '{mark}' counted as missing" in encoder.report_[0].how


@pytest.mark.parametrize("cells", [[None, None], ["-", None], ["NA", "unknown"]])
def test_a_column_of_numbers_may_have_only_missing_cells_in_a_new_table(cells):
    encoder = TableEncoder().fit({"x": [1.0, 2.5, 3.0], "b": [True, False, True]})
    new, same = (pa.table({"x": column, "b": column}) for column in (pa.array(cells, pa.string()), pa.nulls(2)))
    np.testing.assert_array_equal(encoder.transform(new), encoder.transform(same))
    with pytest.raises(ValueError, match="'x' must hold numbers as in the fit, got text"):
        encoder.transform(pa.table({"x": ["high", "-"], "b": [True, False]}))


def test_marks_among_texts_are_values():
    levels = ["none", "low", "high", "-"]
    encoder = TableEncoder().fit({"x": [levels[i % 4] for i in range(80)], "y": list(range(3)) * 26 + [0, 1]})
    assert set(encoder.columns_[0]["levels"]) == set(levels)
    assert "counted as missing" not in encoder.report_[0].how


@pytest.mark.parametrize(
    ("start", "every", "cycles"),
    [
        ("2024-01-01 00:30", "1h", {"day": 1.0}),
        ("2023-01-01", "4D", {"week": 7.0}),
        ("2023-01-01", "5D", {"week": 7.0, "year": 365.2425}),
        ("2022-01-03", "7D", {"year": 365.2425}),
    ],
)
def test_dates_give_the_time_of_each_cycle_that_they_cover_twice(start, every, cycles):
    days = pd.Series(pd.date_range(start, periods=170, freq=every))
    encoder = TableEncoder().fit({"on": days})
    names = encoder.feature_names_
    assert names == ["on", *(f"on (time of the {cycle}, {i})" for cycle in cycles for i in range(1, 5))]
    assert encoder.owner_ == ["on"] * len(names)
    assert re.findall(r"time of the (\w+)", encoder.report_[0].how) == [*cycles]
    for j, length in enumerate(cycles.values()):
        waves = [encoder.transform({"on": days + pd.Timedelta(days=d)})[:, 4 * j + 1 : 4 * j + 5] for d in (0, length)]
        np.testing.assert_allclose(*waves, atol=1e-3)
        np.testing.assert_allclose(waves[0][:, 0] ** 2 + waves[0][:, 1] ** 2, 1.0)


def test_a_model_of_dates_can_learn_the_hour_of_the_day():
    days = pd.Series(pd.date_range("2024-01-01", periods=400, freq="7h"))
    X, night = TableEncoder().fit_transform({"day": days}), (days.dt.hour < 8).to_numpy()
    assert LogisticRegression(C=10).fit(X[::2], night[::2]).score(X[1::2], night[1::2]) > 0.85
