"""`rankrange audit`: what it finds, what it writes, and that each output says the same."""

import contextlib
import csv
import gzip
import hashlib
import io
import json
import re

import numpy as np
import pytest

from rankrange import cli

pa = pytest.importorskip("pyarrow")
for package in ("jinja2", "rich", "skops"):
    pytest.importorskip(package)

from rankrange.audit import audit_table, load_model  # noqa: E402
from rankrange.audit.target import find_target  # noqa: E402
from rankrange.tables.read import open_table  # noqa: E402

N = 240


def columns(seed=0, n=N):
    """Two classes that a line tells apart, a text column that helps, missing cells, a constant and a name a row."""
    rng = np.random.default_rng(seed)
    x, z, colour = rng.normal(size=n), rng.normal(size=n), rng.choice(["red", "green", "blue"], size=n)
    y = x + 0.5 * z + 1.5 * (colour == "red") + 0.1 * rng.normal(size=n) > 0.5
    wrong = np.zeros(n, dtype=bool)
    wrong[rng.choice(n, n // 12, replace=False)] = True
    return {
        "x": [f"{v:.4f}" for v in x],
        "z": ["" if i % 20 == 0 else f"{v:.4f}" for i, v in enumerate(z)],
        "colour": colour.tolist(),
        "same": ["7"] * n,
        "name": [f"row number {i}" for i in range(n)],
        "code": [f"{i % 7:03d}" for i in range(n)],
        "label": np.where(y ^ wrong, "yes", "no").tolist(),
    }, wrong


def write_csv(path, table):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One audit with every output; (folder, rows of the file, wrong rows, JSON)."""
    folder = tmp_path_factory.mktemp("audit")
    table, wrong = columns()
    path = write_csv(folder / "table.csv", table)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    options = [f"--{n}={folder / f}" for n, f in (("report", "r.html"), ("out", "s.csv"), ("clean", "c.csv"))]
    command = ["audit", str(path), "--target", "label", "--model", str(folder / "m.skops"), "--json", *options]
    command += ["--clean-if", "0.7", "--jobs", "1", "--seed", "0"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert cli.main(command) == 0
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    return folder, table, wrong, json.loads(out.getvalue()), err.getvalue()


def test_outputs_are_there_and_nothing_else(done):
    folder = done[0]
    assert {path.name for path in folder.iterdir()} == {"table.csv", "r.html", "s.csv", "c.csv", "m.skops"}


def test_most_planted_errors_are_among_the_suspects(done):
    _, _, wrong, found, _ = done
    rows = np.array([suspect["row"] for suspect in found["suspects"]]) - 1
    likely = np.array([suspect["p_wrong"] >= 0.5 for suspect in found["suspects"]])
    assert wrong[rows].sum() >= 0.6 * wrong.sum()
    assert wrong[rows[likely]].mean() > 0.6
    assert found["n_likely_wrong"] == likely.sum()
    assert found["noise"]["low"] <= wrong.mean() <= found["noise"]["high"]


def test_the_csv_lists_the_suspects_of_the_json_with_their_rows_as_written(done):
    folder, table, _, found, _ = done
    listed = read_csv(folder / "s.csv")
    assert [int(row["row"]) for row in listed] == [suspect["row"] for suspect in found["suspects"]]
    for row, suspect in zip(listed, found["suspects"], strict=True):
        assert (row["given"], row["suggested"]) == (suspect["given"], suspect["suggested"])
        assert float(row["p_wrong"]) == pytest.approx(suspect["p_wrong"], abs=1e-4)
        for name, cells in table.items():
            assert row[name] == cells[suspect["row"] - 1]  # 003 stays 003


def test_the_clean_table_is_the_file_without_the_rows_that_it_may_touch(done):
    folder, table, _, found, _ = done
    gone = {suspect["row"] - 1 for suspect in found["suspects"] if suspect["p_wrong"] >= 0.7}
    assert 0 < len(gone) < found["n_likely_wrong"]
    rows = [row for i, row in enumerate(zip(*table.values(), strict=True)) if i not in gone]
    assert [tuple(row.values()) for row in read_csv(folder / "c.csv")] == rows


def test_the_model_loads_and_predicts_as_the_audit_says(done):
    folder, table, wrong, found, _ = done
    model = load_model(folder / "m.skops")
    guess = model.predict(open_table(folder / "table.csv").read())
    given = np.array(table["label"])
    truth = np.where(wrong, np.where(given == "yes", "no", "yes"), given)
    assert (guess == truth).mean() > 0.9
    assert model[-1].m_ == found["model"]["m"]


def test_a_model_file_with_foreign_types_is_refused(tmp_path):
    import skops.io
    from sklearn.base import BaseEstimator

    class Foreign(BaseEstimator):
        pass

    globals()["Foreign"] = Foreign
    Foreign.__qualname__ = "Foreign"
    (tmp_path / "m.skops").write_bytes(skops.io.dumps(Foreign()))
    with pytest.raises(ValueError, match=r"types of rankrange only, got .*Foreign.*; do not load it"):
        load_model(tmp_path / "m.skops")


def test_progress_goes_to_standard_error_before_the_work(done):
    lines = done[4].splitlines()
    assert "reading table.csv" in lines[0]
    assert any("out of fold" in line for line in lines)


def test_what_became_of_the_columns_is_reported(done):
    found = {column["name"]: column for column in done[3]["columns"]}
    assert found["z"]["missing"] == N // 20
    assert "median" in found["z"]["how"]
    assert [name for name, column in found.items() if not column["used"]] == ["same", "name"]
    assert "all values are the same" in found["same"]["how"]
    assert "its own value" in found["name"]["how"]
    assert "3 values" in found["colour"]["how"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """One quiet audit for the terminal that relabels; (table, suspects, cleaned file, standard output and error)."""
    folder = tmp_path_factory.mktemp("shown")
    table, _ = columns()
    path = write_csv(folder / "table.csv", table)
    suspects, clean = folder / "suspects.csv", folder / "clean.csv"
    command = ["audit", str(path), "-t", "label", "-q", "--top", "3", "--clean-how", "relabel", "--clean-if", "0.5"]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert cli.main([*command, "--out", str(suspects), "--clean", str(clean)]) == 0
    return table, suspects, clean, out.getvalue(), err.getvalue()


def test_the_table_on_the_terminal_is_short_and_names_what_was_written(shown):
    _, suspects, clean, out, err = shown
    assert err == ""
    assert "of the labels are wrong (95% interval)" in " ".join(out.split())
    assert "accuracy on labels as given" in out
    assert len(re.findall(r"^ *\d+ +(?:yes|no) ", out, re.M)) == 3
    assert str(suspects) in out.replace("\n", "")
    assert str(clean) in out.replace("\n", "")
    assert len(out.splitlines()) < 40


def test_relabel_mends_instead_of_dropping(shown):
    table, suspects, cleaned, _, _ = shown
    listed, clean = read_csv(suspects), read_csv(cleaned)
    mended = {int(row["row"]): row["suggested"] for row in listed if row["action"] == "relabel"}
    dropped = {int(row["row"]) for row in listed if row["action"] == "drop"}
    assert mended or dropped
    kept = [i for i in range(1, N + 1) if i not in dropped]
    assert [row["label"] for row in clean] == [mended.get(i, table["label"][i - 1]) for i in kept]


# ---- formats and tasks -----------------------------------------------------------------------------------------------


def typed():
    table, _ = columns()
    numbers = {name: [float(v) if v else None for v in table[name]] for name in ("x", "z")}
    return pa.table({**numbers, "colour": table["colour"], "label": table["label"]})


def save_parquet(path):
    import pyarrow.parquet

    pyarrow.parquet.write_table(typed(), path)


def save_arrow(path):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, typed().schema) as writer:
        writer.write_table(typed())


def save_stream(path):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, typed().schema) as writer:
        writer.write_table(typed())


def save_gzip(path):
    table, _ = columns()
    plain = write_csv(path.with_suffix(".plain"), {n: table[n] for n in ("x", "z", "colour", "label")})
    path.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()


def save_tabs(path):
    table, _ = columns()
    lines = zip(*(table[n] for n in ("x", "z", "colour", "label")), strict=True)
    path.write_text("x\tz\tcolour\tlabel\r\n" + "".join("\t".join(line) + "\r\n" for line in lines), encoding="utf-8")


def save_latin(path):
    table, _ = columns()
    table = {name: table[name] for name in ("x", "z", "colour", "label")}
    text = write_csv(path, table).read_text(encoding="utf-8").replace("red", "rosé")
    path.write_text(text, encoding="latin-1")


FORMATS = {
    "t.parquet": (save_parquet, "utf-8"),
    "t.arrow": (save_arrow, "utf-8"),
    "t.arrows": (save_stream, "utf-8"),
    "t.csv.gz": (save_gzip, "utf-8"),
    "t.tsv": (save_tabs, "utf-8"),
    "t.csv": (save_latin, "latin-1"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_read_as_the_plain_csv(name, tmp_path):
    save, encoding = FORMATS[name]
    save(tmp_path / name)
    found = open_table(tmp_path / name, encoding=encoding).read().to_pydict()
    found["colour"] = [colour.replace("rosé", "red") for colour in found["colour"]]
    assert found == typed().to_pydict()


def test_a_binary_file_and_a_text_in_another_encoding_give_the_same_suspects(tmp_path, capsys):
    found = []
    for name in ("t.parquet", "t.csv"):
        save, encoding = FORMATS[name]
        save(tmp_path / name)
        command = ["audit", str(tmp_path / name), "-t", "label", "-q", "--json", "--encoding", encoding]
        assert cli.main([*command, "--models", "linear", "--jobs", "1"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["rows"] == found[1]["rows"] == N
    keys = ("row", "given", "suggested", "p_wrong")
    listed = [[tuple(suspect[key] for key in keys) for suspect in one["suspects"]] for one in found]
    assert listed[0] == listed[1] != []


def test_the_same_seed_gives_the_same_result_whatever_the_number_of_jobs(done, tmp_path, capsys):
    """The audit of the fixture had one job."""
    folder, *_, one, _ = done
    command = ["audit", str(folder / "table.csv"), "-t", "label", "-q", "--json", "--clean-if", "0.7"]
    assert cli.main([*command, "--clean", str(tmp_path / "c.csv"), "--seed", "0", "--jobs", "3"]) == 0
    three = json.loads(capsys.readouterr().out)
    assert {key for key in one if one[key] != three[key]} <= {"seconds"}
    assert (tmp_path / "c.csv").read_bytes() == (folder / "c.csv").read_bytes()


def test_regression_finds_planted_outliers_and_ignores_them():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = 100 + X @ [3.0, -2.0, 1.0] + rng.normal(scale=0.5, size=300)
    bad = rng.choice(300, 15, replace=False)
    X[bad, 0] += 3.0  # far out on one side, where they turn the line
    y[bad] -= 30.0
    audit = audit_table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}, "y")
    assert audit.result.task == "numbers"
    assert set(audit.result.order[:15].tolist()) == set(bad.tolist())
    assert audit.n_likely == pytest.approx(15, abs=2)
    gain = audit.result.measures[1].gain  # without the outliers
    assert gain.value > 0
    guess = audit.pipeline.predict({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    clean = np.setdiff1d(np.arange(300), bad)
    assert np.abs(guess - y)[clean].mean() < 0.6  # in the units of y


def moods(form):
    """(table, target, labels of each row, names): three labels, of which all are wrong in the first eight rows."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 4))
    Y = X @ rng.normal(size=(4, 3)) + 0.3 * rng.normal(size=(200, 3)) > 0
    Y[:8] = ~Y[:8]
    names = ["calm", "happy", "sad"]
    table = {f"x{j}": X[:, j] for j in range(4)}
    sets = [[name for name, true in zip(names, row, strict=True) if true] for row in Y]
    if form == "columns":
        return table | {name: Y[:, j].astype(int) for j, name in enumerate(names)}, names, Y, names
    return table | {"mood": ["|".join(labels) for labels in sets] if form == "cells" else sets}, "mood", Y, names


@pytest.mark.parametrize("form", ["columns", "cells", "lists"])
def test_multi_label_targets_in_all_three_forms_are_the_same(form):
    table, columns, Y, names = moods(form)
    names_of = [columns] if isinstance(columns, str) else columns
    target = find_target(pa.table(table), names_of, separator="|" if form == "cells" else None)
    assert target.task == "labels"
    assert target.names == names
    np.testing.assert_array_equal(target.y, Y)


@pytest.mark.parametrize(
    "form", ["columns", *(pytest.param(form, marks=pytest.mark.slow) for form in ("cells", "lists"))]
)
def test_an_audit_of_a_multi_label_table_says_which_labels_to_add_and_remove(form):
    table, target, Y, names = moods(form)
    audit = audit_table(table, target)
    assert audit.result.task == "labels"
    np.testing.assert_array_equal(audit.target.y, Y)
    worst = set(audit.result.order[:10].tolist())
    assert len(worst & set(range(8))) >= 6
    mended = [suspect for suspect in audit.suspects() if suspect.action == "relabel"]
    assert {s.rank for s in mended} == {s.rank for s in audit.suspects() if s.p_wrong >= 0.8} != set()
    told = [(s.row, *change) for s in mended for change in re.findall(r"(add|remove) '(\w+)'", s.why.lower())]
    assert all((verb == "add") != Y[row, names.index(label)] for row, verb, label in told)
    assert np.mean([row < 8 for row, _, _ in told]) > 0.8  # the planted ones
    for s in mended:
        suggested = [] if s.suggested == "(none)" else re.split(r"\W+", s.suggested)
        changed = {name for name in names if (name in suggested) != Y[s.row, names.index(name)]}
        assert changed == {label for row, _, label in told if row == s.row}


def test_classes_from_numbers_texts_and_booleans():
    x = np.random.default_rng(2).normal(size=120)
    for y, expected in (
        (np.digitize(x, [-0.5, 0.5]), ["0", "1", "2"]),
        ((x > 0).tolist(), ["false", "true"]),
        (np.where(x > 0, 1.0, -1.0), ["-1", "1"]),
        (np.where(x > 0, "b", "a"), ["a", "b"]),
    ):
        target = find_target(pa.table({"y": y}), ["y"])
        assert target.task == "classes"
        assert [name.lower() for name in target.names] == expected
        np.testing.assert_array_equal([target.names[code].lower() for code in target.y], [_text(v) for v in y])


def _text(value):
    return str(value).lower().removesuffix(".0")


def test_many_different_numbers_are_a_regression_unless_the_task_says_otherwise():
    y = np.arange(60) % 30
    assert find_target(pa.table({"y": y}), ["y"]).task == "numbers"
    assert find_target(pa.table({"y": np.repeat(np.arange(5), 20)}), ["y"]).task == "classes"
    assert find_target(pa.table({"y": np.repeat(np.arange(5), 20)}), ["y"], "numbers").task == "numbers"
    assert find_target(pa.table({"y": np.repeat(np.arange(5), 20)}), ["y"], "classes").names == list("01234")


def test_rows_without_a_target_and_rare_classes_are_left_out_and_reported():
    table, _ = columns()
    label = list(table["label"])
    label[3] = label[10] = None
    label[20] = "odd"
    x = [float(v) for v in table["x"]]
    audit = audit_table({"x": x, "z": table["z"], "colour": table["colour"], "label": label}, "label")
    assert audit.n_rows == N
    np.testing.assert_array_equal(audit.target.rows, np.setdiff1d(np.arange(N), [3, 10, 20]))
    assert "2 rows without a target are left out" in audit.notes
    assert "1 row of 1 class with fewer than 5 rows is left out" in audit.notes
    shown = {suspect.row: suspect.given for suspect in audit.suspects()}
    assert shown
    assert all(label[row] == given for row, given in shown.items())
