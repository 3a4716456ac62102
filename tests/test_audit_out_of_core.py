"""Audits of tables that would not fit into memory: decided by themselves, in passes, with the same kind of result."""

import csv
import gc
import os
import shutil
import tempfile

import numpy as np
import pytest

from rankrange import find_label_issues
from rankrange.audit import audit_file
from rankrange.audit.out_of_core import OutOfCoreAudit
from rankrange.audit.out_of_core_models import outliers_of_all
from rankrange.cli.entry import main
from rankrange.errors import UserError
from rankrange.outliers import outlier_posterior
from rankrange.tables.read import open_table
from shaped_tables import shaped

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
arrow_csv = pytest.importorskip("pyarrow.csv")

N = 12_000


OUT_OF_CORE = {"memory_limit": 1, "sample_rows": 4_000}


def log_odds(x, city):
    return 3 * x[:, 0] - 2 * x[:, 1] + 2 * (city == "oslo")


def table():
    """Numbers, texts, missing cells, a column that counts the rows and one with a stray text near its end."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    city = rng.choice(["rome", "oslo", "lima"], N)
    age = rng.integers(1, 90, N).astype(object)
    age[rng.random(N) < 0.05] = None
    z = log_odds(x, city)
    true = np.where(z + rng.logistic(size=N) > 0, "buy", "leave")
    wrong = rng.random(N) < 0.1
    given = np.where(wrong, np.where(true == "buy", "leave", "buy"), true).astype(object)
    given[7] = None
    price = z + 0.5 * rng.normal(size=N)
    price[:100] += 40
    stray = np.array([str(i % 7) for i in range(N)], dtype=object)
    stray[-5] = "unknown"
    columns = {"id": np.arange(N), "a": x[:, 0], "b": x[:, 1], "city": city, "age": list(age), "odd": list(stray)}
    return pa.table({**columns, "label": list(given), "price": price}), wrong


def written(folder, kind):
    whole, wrong = table()
    path = folder / f"table.{kind}"
    pq.write_table(whole, path) if kind == "parquet" else arrow_csv.write_csv(whole, path)
    return path, wrong


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_table_beyond_memory_is_audited_in_passes(tmp_path, kind, capsys, monkeypatch, no_memory):
    path, wrong = written(tmp_path, kind)
    places = tmp_path / "temporary"
    places.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(places))
    out, clean, report = tmp_path / "s.csv", tmp_path / f"clean.{kind}", tmp_path / "r.html"
    model, problems = tmp_path / "model.skops", tmp_path / "problems.csv"
    options = [
        "--problems",
        problems,
        "--out",
        out,
        "--clean",
        clean,
        "--report",
        report,
        "--model",
        model,
        "--clean-how",
        "relabel",
    ]
    assert main(["audit", str(path), "--target", "label", "--ignore", "price", *map(str, options)]) == 0
    told = capsys.readouterr()
    assert "the audit is out of core" in told.err
    assert "pass 1 over 11,999 rows (describe)" in told.err
    assert "would not fit into memory" in told.out.replace("\n", " ")
    assert "no other problems" not in told.out
    assert "Rows were not checked for other problems" in " ".join(told.out.split())
    with open(out, newline="") as file:
        found = [int(row["row"]) - 1 for row in csv.DictReader(file)]
    assert np.mean(wrong[found[:300]]) > 0.9
    left = pq.read_table(clean) if kind == "parquet" else arrow_csv.read_csv(clean)
    assert left.schema.names == table()[0].schema.names
    assert 0.85 * N < left.num_rows <= N
    assert left["label"].to_pylist() != table()[0]["label"].to_pylist()
    assert "<html" in report.read_text()
    gc.collect()
    assert os.listdir(places) == []  # what was written on the way is gone


def test_patterns_of_ignored_columns_match_as_in_memory(tmp_path):
    path, _ = written(tmp_path, "parquet")
    source = open_table(path)
    audit = OutOfCoreAudit(source, "label", print, ignore=["pri*", "id"])
    assert set(source.names) - set(audit.rest) == {"label", "price", "id"}
    with pytest.raises(UserError, match="ignore must name a column, got 'prise'"):
        OutOfCoreAudit(source, "label", print, ignore=["prise"])


def test_its_model_predicts_a_table(tmp_path):
    path, wrong = written(tmp_path, "parquet")
    audit = audit_file(path, "label", ignore=["price"], **OUT_OF_CORE)
    whole = table()[0]
    guess = audit.pipeline.predict(whole.drop_columns(["label", "price"]))
    given = np.array(whole["label"].to_pylist(), dtype=object)
    assert np.mean((guess == given)[~wrong]) > 0.85
    assert audit.n_rows == N
    assert len(audit.result.wrong) == N - 1
    assert audit.result.noise.low - 0.02 < 0.1 < audit.result.noise.high + 0.02
    assert 7 not in audit.target.rows
    assert {column.name for column in audit.columns} == {"a", "b", "city", "age", "odd"}  # id counts the rows
    rows = audit.target.rows[audit.result.order[:20]]
    assert [suspect.row - 1 for suspect in audit.suspects(20)] == rows.tolist()
    assert audit.cells["city"][:20] == [whole["city"][int(row)].as_py() for row in rows]
    check_scores(audit)


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("xor", 0.0),
        ("xor", 0.2),
        ("three classes", 0.2),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("three classes", 0.0), ("circle", 0.0), ("circle", 0.2))
        ),
    ],
)
def test_wrong_labels_out_of_core_are_those_in_memory(tmp_path, name, noise):
    X, y, _ = shaped(name, 3_000, noise)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(4)}, "y": [f"kind {c}" for c in y]}), path)
    audit = audit_file(path, "y", **OUT_OF_CORE)
    assert "would not fit into memory" in audit.notes[0]
    found, inside = audit.result, find_label_issues(X, y, random_state=0)
    assert np.abs(found.wrong - inside.p_wrong).mean() < 0.05
    assert abs(found.noise.value - inside.noise_estimate) < 0.03
    assert (found.wrong >= 0.5).sum() <= (inside.p_wrong >= 0.5).sum() + 0.1 * noise * len(y)
    listed = found.wrong[found.order]
    assert len(listed) >= 20  # the rows most worth a look, whatever their p_wrong
    assert len(set(found.order[listed >= 0.2])) == (found.wrong >= 0.2).sum()
    np.testing.assert_array_equal(found.actions == "look", (listed >= 0.2) & (listed < 0.5))
    np.testing.assert_array_equal(found.actions == "", listed < 0.2)  # they only fill the list


def check_scores(audit):
    """What comes from sums over passes, against its definition row by row."""
    j = audit.result
    score = j.measures[0].ordinary
    whole = table()[0]
    best = log_odds(np.stack([whole["a"], whole["b"]], axis=1), np.array(whole["city"].to_pylist())) > 0
    bayes = np.mean(np.where(best, "buy", "leave") == np.array(whole["label"].to_pylist(), dtype=object))
    # The model is the one that the labels were drawn from: no fit does better but by chance, and none need do worse.
    assert score.value == pytest.approx(bayes, abs=4 * np.sqrt(bayes * (1 - bayes) / N))
    assert score.low < score.value < score.high
    likely = np.bincount(audit.target.y[j.wrong >= 0.5], minlength=2)
    assert [group.suspects for group in j.groups] == likely.tolist()
    assert sum(group.rows for group in j.groups) == len(j.wrong)


def test_numbers_beyond_memory(tmp_path):
    path, _ = written(tmp_path, "csv")
    audit = audit_file(path, "price", ignore=["label"], **OUT_OF_CORE)
    assert {suspect.row for suspect in audit.suspects(100)} == set(range(1, 101))
    assert audit.result.measures[1].gain.value > 0


def test_no_room_on_the_disk_is_one_sentence(tmp_path, monkeypatch, capsys, no_memory):
    path, _ = written(tmp_path, "parquet")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: type("Room", (), {"free": 10}))
    assert main(["audit", str(path), "--target", "label"]) == 2
    assert "of disk in" in capsys.readouterr().err


def test_a_table_that_fits_is_read_whole(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(table()[0].slice(0, 60), path)
    stages = []
    audit = audit_file(path, "price", ignore=["label"], memory_limit=10**12, progress=stages.append)
    assert "read" not in audit.settings  # out of core it says so there
    assert not any("pass" in stage for stage in stages)


def test_beyond_memory_each_side_of_a_skewed_number_has_its_own_width():
    """As in memory: what is far below is told, though as much above is usual."""
    rng = np.random.default_rng(0)
    residual = rng.exponential(1.0, 20_000) - np.log(2.0)  # the median is 0, nothing lies below -0.7
    residual[:20] = -4.0
    wrong, _ = outliers_of_all(residual, step=5)
    inside = outlier_posterior(residual, clean="skewed").p_wrong
    assert wrong[:20].min() > 0.9
    assert np.abs(wrong - inside).mean() < 0.01
    assert (wrong[residual > 0] > 0.5).mean() < 0.01
    assert outliers_of_all(np.abs(residual), step=5)[0].shape == residual.shape
