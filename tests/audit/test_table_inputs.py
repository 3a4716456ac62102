"""Any table in: formats good and damaged, prose, many values, dates, money, groups, time; files that others made."""

import csv
import io
import json
import re
import sys
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from rankrange import cli
from rankrange.audit import audit_file, audit_table
from rankrange.errors import UserError

TAGS = ["p;q", "p", "q"]
ROWS = [{"a": i, "b": f"x{i % 3}", "c": i / 2, "t": TAGS[i % 3], "y": ["no", "yes"][i % 2]} for i in range(40)]


def test_standard_input_is_read_once_and_kept_until_the_end(capsys):
    text = "a,y\n" + "1,u\n2,v\n" * 30
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()))):
        assert cli.main(["audit", "-", "--target", "y", "--quiet", "--json", "--models", "linear"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 60


def test_an_array_has_no_names_of_columns():
    with pytest.raises(UserError, match=r"a table is a data frame, .* got ndarray; name the columns"):
        audit_table(np.zeros((30, 2)), "y")


# ---- groups, time, columns -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pred_probs": np.full((39, 2), 0.5)}, "one row for each of the 40 rows of the table, got 39"),
        ({"pred_probs": np.full((40, 3), 0.5)}, "one column per class"),
        ({"pred_probs": np.full((40, 2), 0.5), "estimator": "GaussianNB"}, "by estimator= or by pred_probs=, got both"),
        ({"embeddings": np.full((40, 2), np.nan)}, "must be finite numbers .* embeddings contains NaN"),
        ({"embeddings": np.zeros(40)}, r"of shape \(rows, columns\): Expected 2D array"),
        ({"embeddings": "no.npy"}, "embeddings must be finite numbers .* No such file"),
        ({"group": "a", "time": "c"}, "by group or by time, got both"),
        ({"time": "b"}, "time needs a date or a number in each row, got texts"),
        ({"models": "forest"}, "models is one of all, linear, trees"),
        ({"estimator": "os.system"}, "names a classifier of scikit-learn"),
        ({"estimator": "RandomForest"}, "did you mean RandomForestClassifier"),
        ({"estimator": "LinearRegression"}, "names a classifier of scikit-learn"),
        ({"estimator": "VotingClassifier"}, "must work with its default settings"),
        ({"dates": "american"}, "dates must be one of day-first, month-first"),
        ({"time": "a", "estimator": "GaussianNB"}, "with time=, .* got an estimator"),
        ({"time": "a", "models": "trees"}, "with time=, .* got models='trees'"),
        ({"target": "c", "estimator": "GaussianNB"}, "need a target of classes, got numbers"),
        ({"target": "t", "labels_by": ";", "models": "trees"}, "a target of classes or numbers, got labels"),
        ({"target": "t", "labels_by": ";", "task": "classes"}, "labels_by .* got task='classes' as well"),
        ({"target": "c", "labels_by": ";", "task": "numbers"}, "labels_by .* got task='numbers' as well"),
        ({"target": ["y", "t"], "labels_by": ";"}, "labels_by .* got 2 target columns as well"),
    ],
)
def test_options_that_cannot_be_used_are_errors_before_anything_is_fitted(options, message):
    stages = []
    with pytest.raises(UserError, match=message):
        audit_table(pa.Table.from_pylist(ROWS), **{"target": "y", "progress": stages.append, **options})
    assert not [stage for stage in stages if stage.startswith(("choosing", "fitting"))]


def test_a_classifier_can_be_named(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 3))
    kinds = np.where(rows[:, 0] * rows[:, 1] > 0, "same", "other")
    kinds[:15] = np.where(kinds[:15] == "same", "other", "same")
    table = tmp_path / "table.csv"
    lines = [",".join([*(f"{value:.4f}" for value in row), kind]) for row, kind in zip(rows, kinds, strict=True)]
    table.write_text("\n".join(["a,b,c,kind", *lines]))
    arguments = ["audit", str(table), "--target", "kind", "--estimator", "ExtraTreesClassifier", "--json", "--quiet"]
    arguments += ["--models", "linear"]  # no trees beside the named classifier
    assert cli.main(arguments) == 0
    wrong = [suspect["row"] for suspect in json.loads(capsys.readouterr().out)["suspects"][:10]]
    assert sum(row <= 15 for row in wrong) >= 8


# ---- whole audits ----------------------------------------------------------------------------------------------------


def test_a_table_with_everything_is_audited_with_no_preparation(tmp_path):
    rng = np.random.default_rng(1)
    n = 150
    y = rng.integers(0, 2, n)
    words = [["great phone works well", "really nice quality"], ["terrible waste of money", "bad quality broke"]]
    texts = [f"{words[1 - v][rng.integers(2)]} bought last week {i}" for i, v in enumerate(y)]
    rows = ["review;city;price;discount;when;patient;verdict"]
    for i in range(n):
        day = f"{rng.integers(1, 29):02d}.{rng.integers(1, 13):02d}.2025"
        price = f"{rng.integers(1, 9)}.{rng.integers(100, 999)},{rng.integers(10, 99)} €"
        rows.append(
            f"{texts[i]};city{rng.integers(60)};{price};{rng.integers(60)}%;{day};p{i // 3};{['poor', 'good'][y[i]]}"
        )
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    audit = audit_file(path, "verdict", delimiter=";", group="patient", models="linear")
    assert [(c.name, c.kind, c.used) for c in audit.columns] == [
        ("review", "text", True),
        ("city", "text", True),
        ("price", "numbers", True),
        ("discount", "numbers", True),
        ("when", "dates", True),
    ]
    assert audit.result.measures[0].robust.value > 0.95
    assert audit.report().startswith("<!DOCTYPE html>")


@pytest.fixture(scope="module")
def tickets():
    """Texts of two queues, and every thirteenth label wrong."""
    rng = np.random.default_rng(0)
    queue = np.where(np.arange(260) % 2, "refund", "tech")
    said = {
        "refund": ["charged twice", "money back", "invoice wrong"],
        "tech": ["black screen", "app crashes", "no login"],
    }
    fill = ["the", "a", "my", "your", "on", "in", "today", "yesterday", "really", "since", "order", "phone"]
    texts = [" ".join([*rng.choice(said[q], 2), *rng.choice(fill, 7)]) for q in queue]
    given = queue.copy()
    given[::13] = np.where(queue[::13] == "tech", "refund", "tech")
    return pa.table({"text": texts, "queue": given})


def test_the_reason_of_a_text_is_a_word_that_its_label_hardly_has(tickets):
    audit = audit_table(tickets, "queue", models="linear")
    texts, queue = (np.array(tickets.column(name).to_pylist()) for name in ("text", "queue"))
    suspects = audit.suspects()
    assert len(suspects) > 10
    for place, suspect in enumerate(suspects):
        word = re.search(r"the word '(\w+)' is in", audit.evidence.reasons[place]).group(1)
        has = np.array([word in text.split() for text in texts])
        assert has[suspect.row]
        assert has[queue == suspect.given].mean() < has[queue == suspect.suggested].mean()


# ---- whole audits of what an option brings ---------------------------------------------------------------------------


def with_errors(truth, rng):
    """Labels of which 6% are wrong, and the numbers of these rows as an audit of a file counts them."""
    wrong = rng.random(len(truth)) < 0.06
    return np.where(truth ^ wrong, "yes", "no"), set((np.flatnonzero(wrong) + 1).tolist())


def audited(folder, columns, *options, target="kind"):
    """What the command says of a table: rows that are likely wrong, and the problems besides."""
    table, out, problems = (folder / name for name in ("table.csv", "suspects.csv", "problems.csv"))
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    order = ["audit", table, "--target", target, "--out", out, "--problems", problems, "--models", "linear", "--quiet"]
    assert cli.main([str(word) for word in [*order, *options]]) == 0
    with out.open(encoding="utf-8", newline="") as file:
        likely = {int(row["row"]) for row in csv.DictReader(file) if float(row["p_wrong"]) >= 0.5}
    return likely, problems.read_text(encoding="utf-8")


def overlap(found, wanted):
    """(the share of the wanted that was found, the share of what was found that is wanted)."""
    return len(found & wanted) / len(wanted), len(found & wanted) / max(len(found), 1)


def test_given_probabilities_find_errors_that_the_columns_do_not_predict(tmp_path, capsys):
    rng = np.random.default_rng(0)
    truth = rng.random(400) < 0.5
    given, wrong = with_errors(truth, rng)
    sure = np.clip(np.where(truth, 0.95, 0.05) + 0.03 * rng.normal(size=400), 0.01, 0.99)
    np.save(tmp_path / "p.npy", np.column_stack([1 - sure, sure]))  # columns in the order no, yes
    columns = {"noise": rng.normal(size=400), "kind": given}
    columns["kind"][[50, 51]] = ""  # rows without a label are not judged, and the others keep their probabilities
    likely, _ = audited(tmp_path, columns, "--pred-probs", tmp_path / "p.npy")
    assert overlap(likely, wrong - {51, 52}) == (1.0, 1.0)
    assert audited(tmp_path, columns, "--models", "linear")[0] == set()


def test_embeddings_are_used_like_other_columns(tmp_path, capsys):
    rng = np.random.default_rng(1)
    E = rng.normal(size=(400, 3))
    given, wrong = with_errors(E @ [3.0, -3.0, 2.0] > 0, rng)
    np.save(tmp_path / "e.npy", E.astype(np.float32))
    columns = {"noise": rng.normal(size=400), "kind": given}
    found, right = overlap(audited(tmp_path, columns, "--embeddings", tmp_path / "e.npy")[0], wrong)
    assert found > 0.6
    assert right > 0.8


def test_along_time_the_past_predicts_the_future(tmp_path, capsys):
    n, shares = 400, []
    for seed in (2, 3, 4):
        rng = np.random.default_rng(seed)
        x, when = rng.normal(size=n), rng.permutation(n)
        given, wrong = with_errors(x > 0, rng)
        sensor = 0.1 * rng.normal(size=n) + 5.0 * (when > 0.7 * n)
        columns = {"x": x, "sensor": sensor, "when": when, "kind": given}
        likely, _ = audited(tmp_path, columns, "--time", "when")
        shares.append(overlap(likely, wrong))
    found, right = np.mean(shares, axis=0)
    assert found > 0.75
    assert right > 0.85
