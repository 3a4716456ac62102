"""The flow of an audit: how often files are read and models fitted; large files; observed outcomes."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from definitions import slow
from rankrange import AoRRRegressor, cli, find_label_issues
from rankrange.audit import audit_file, audit_table
from shaped_tables import shaped

N = 6_000


def table(n=N, seed=0):
    """Numbers, texts, missing cells, row numbers, and a column with a text near its end; 10% wrong labels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    city = rng.choice(["rome", "oslo", "lima"], n)
    age = rng.integers(1, 90, n).astype(object)
    age[rng.random(n) < 0.05] = None
    z = 3 * x[:, 0] - 2 * x[:, 1] + 2 * (city == "oslo")
    true = np.where(z + rng.logistic(size=n) > 0, "buy", "leave")
    wrong = rng.random(n) < 0.1
    given = np.where(wrong, np.where(true == "buy", "leave", "buy"), true).astype(object)
    given[7] = None
    price = z + 0.5 * rng.normal(size=n)
    price[:50] += 40
    odd = np.array([str(i % 7) for i in range(n)], dtype=object)
    odd[-5] = "unknown"
    columns = {"id": np.arange(n), "a": x[:, 0], "b": x[:, 1], "city": city, "age": list(age), "odd": list(odd)}
    return pa.table({**columns, "label": list(given), "price": price}), wrong


def written(folder, n=N):
    whole, wrong = table(n)
    arrow_csv.write_csv(whole, folder / "table.csv")
    return folder / "table.csv", wrong


# ---- once --------------------------------------------------------------------------------------------------------


def test_a_file_is_read_once_as_a_table_and_once_for_the_listed_rows(tmp_path, monkeypatch):
    from rankrange.tables.read import Source

    path, _ = written(tmp_path, 400)
    calls = []
    for name in ("read", "batches"):
        whole = getattr(Source, name)
        monkeypatch.setattr(
            Source, name, lambda self, *a, _f=whole, _n=name, **k: (calls.append(_n), _f(self, *a, **k))[1]
        )
    outputs = [f"--{name}={tmp_path / file}" for name, file in (("report", "r.html"), ("out", "s.csv"))]
    assert cli.main(["audit", str(path), "-t", "label", "--ignore", "price", "-q", "--models", "linear", *outputs]) == 0
    assert sorted(calls) == ["batches", "read"]


@pytest.mark.parametrize("outliers", [0, 40])
def test_linear_models_of_numbers_are_fitted_once_per_fold(monkeypatch, outliers):
    """To all rows, and in five folds the ordinary one, and the robust one if it ignores a row."""
    rng, fits, fit = np.random.default_rng(0), [], AoRRRegressor.fit
    monkeypatch.setattr(AoRRRegressor, "fit", lambda self, X, *a, **k: (fits.append(len(X)), fit(self, X, *a, **k))[1])
    x = rng.normal(size=(200, 2))
    y = x[:, 0] + 0.1 * rng.normal(size=200) + 30.0 * (np.arange(200) < outliers)
    audit = audit_table({"a": x[:, 0], "b": x[:, 1], "y": y}, "y", models="linear", jobs=1)
    assert (audit.result.m > 0) is (outliers > 0)
    assert len(fits) == (11 if outliers else 6)


def test_linear_models_are_fitted_once_per_fold_and_columns_are_converted_once(monkeypatch):
    from rankrange.issues import find
    from rankrange.tables.columns import Column

    calls, names, fit, of = [], [], find.trimmed_predictions, Column.of.__func__
    monkeypatch.setattr(find, "trimmed_predictions", lambda *a: (calls.append(len(a[2])), fit(*a))[1])
    convert = classmethod(lambda cls, name, *a, **k: (names.append(name), of(cls, name, *a, **k))[1])
    monkeypatch.setattr(Column, "of", convert)
    audit_table(table(300)[0], "label", ignore=["price"], models="linear", jobs=1)
    assert len(calls) == 1
    assert sorted(names) == sorted({"id", "a", "b", "city", "age", "odd", "label"})


# ---- large files -------------------------------------------------------------------------------------------------

LARGE = {"large_from": 1, "sample_rows": 3_000}


def test_all_rows_of_a_large_file_are_predicted(tmp_path):
    path, wrong = written(tmp_path)
    audit = audit_file(path, "label", ignore=["price"], **LARGE)
    assert "come from a sample of" in audit.notes[0]
    assert audit.n_rows == N
    assert len(audit.p_wrong) == N - 1
    assert 7 not in audit.target.rows
    assert np.mean(wrong[audit.target.rows[audit.result.order[:150]]]) > 0.9
    assert audit.result.noise.low - 0.02 < 0.1 < audit.result.noise.high + 0.02
    assert {column.name for column in audit.columns if column.used} == {"a", "b", "city", "age", "odd"}
    whole = table()[0]
    rows = audit.target.rows[audit.result.order[:20]]
    assert [suspect.row - 1 for suspect in audit.suspects(20)] == rows.tolist()
    assert audit.cells["city"][:20] == [whole["city"][int(row)].as_py() for row in rows]
    assert sum(group.rows for group in audit.result.groups) == N - 1
    likely = np.bincount(audit.target.y[audit.p_wrong >= 0.5], minlength=2)
    assert [group.suspects for group in audit.result.groups] == likely.tolist()
    guess = audit.pipeline.predict(whole.drop_columns(["label", "price"]))
    assert np.mean((guess == np.array(whole["label"].to_pylist(), dtype=object))[~wrong]) > 0.85
    assert "<html" in audit.report()


@pytest.mark.parametrize(("name", "noise"), [("xor", 0.2), *slow(("three classes", 0.2)), ("circle", 0.0)])
def test_wrong_labels_of_a_large_file_are_those_in_memory(tmp_path, name, noise):
    X, y, _ = shaped(name, 3_000, noise)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": [f"kind {c}" for c in y]}), path)
    audit = audit_file(path, "y", large_from=1, sample_rows=1_500)
    inside = find_label_issues(X, y, random_state=0)
    assert np.abs(audit.p_wrong - inside.p_wrong).mean() < 0.08
    assert abs(audit.result.noise.value - inside.noise_estimate) < 0.05
    listed = audit.p_wrong[audit.result.order]
    assert len(listed) >= 20
    np.testing.assert_array_equal(audit.result.actions == "look", (listed >= 0.2) & (listed < 0.5))


@pytest.mark.parametrize("labels", ["annotated", "observed"])
def test_outliers_of_a_large_file_with_a_numeric_target_are_found(tmp_path, labels):
    path, _ = written(tmp_path, 3_000)
    options = {"labels": labels, "models": "linear" if labels == "observed" else "all"}
    audit = audit_file(path, "price", ignore=["label"], large_from=1, sample_rows=1_000, **options)
    assert {suspect.row for suspect in audit.suspects(50)} == set(range(1, 51))


# ---- observed outcomes -------------------------------------------------------------------------------------------


def outcomes(task):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 3))
    z = 2 * x[:, 0] - x[:, 1]
    columns = {f"x{j}": x[:, j] for j in range(3)}
    columns["x0"][5] = 1e6  # problems of rows stay
    if task == "classes":
        return columns | {"y": np.where(z + 0.8 * rng.logistic(size=300) > 0, "yes", "no")}, ["y"]
    if task == "numbers":
        return columns | {"y": z + rng.standard_t(3, size=300)}, ["y"]
    return columns | {f"y{j}": (z + rng.logistic(size=300) > j).astype(int) for j in range(2)}, ["y0", "y1"]


@pytest.mark.parametrize("task", ["classes", "numbers", "labels"])
def test_no_view_of_observed_outcomes_calls_a_row_wrong(task, tmp_path, capsys):
    columns, target = outcomes(task)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path)
    names = [f"--target={name}" for name in target]
    files = {"--report": tmp_path / "r.html", "--out": tmp_path / "s.csv"}
    outputs = [f"{option}={file}" for option, file in files.items()]
    outputs += [f"--export=label-studio={tmp_path / 'tasks.json'}"] if task != "numbers" else []
    assert cli.main(["audit", str(path), *names, "--labels", "observed", "-q", *outputs]) == 0
    views = {"terminal": capsys.readouterr().out}
    assert cli.main(["audit", str(path), *names, "--labels", "observed", f"--clean={tmp_path / 'c.csv'}"]) == 2
    assert "--clean drops rows whose target is wrong, got --labels observed" in capsys.readouterr().err
    assert cli.main(["audit", str(path), *names, "--labels", "observed", "-q", "--json", "--models", "linear"]) == 0
    views["json"] = capsys.readouterr().out
    views |= {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir() if file.suffix != ".parquet"}
    for name, text in views.items():
        assert "wrong" not in text.lower(), name
        assert "relabel" not in text.lower(), name
    assert "surprising" in views["terminal"]
    assert "its outcome is" in views["terminal"]
    assert 'data-key="action"' not in views["r.html"]
    found = json.loads(views["json"])
    assert found["labels"] == "observed"
    assert found["row_problems"]["counts"]["outlier"] == 1
    probabilities = [row["probability"] for row in found["surprising"]]
    assert probabilities == sorted(probabilities)
    assert len(probabilities) >= 20


def test_annotated_labels_are_an_assumption_that_the_first_sentence_names():
    columns, target = outcomes("classes")
    audit = audit_table(columns, target[0], models="linear")
    assert "labels='observed'" in audit.sentences()[0]
    assert "wrong" in " ".join(audit.sentences())
