"""`rankrange audit`: what it finds, what it writes, and that each output says the same."""

import contextlib
import csv
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


def test_json_csv_and_model_agree_and_list_rows_as_written(done):
    folder, table, wrong, found, _ = done
    assert found["noise"]["low"] <= wrong.mean() <= found["noise"]["high"]
    assert found["n_likely_wrong"] == sum(suspect["p_wrong"] >= 0.5 for suspect in found["suspects"])
    assert load_model(folder / "m.skops")[-1].m_ == found["model"]["m"]
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


# ---- formats and tasks -----------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_result_whatever_the_number_of_jobs(done, tmp_path, capsys):
    """The audit of the fixture had one job."""
    folder, *_, one, _ = done
    command = ["audit", str(folder / "table.csv"), "-t", "label", "-q", "--json", "--clean-if", "0.7"]
    assert cli.main([*command, "--clean", str(tmp_path / "c.csv"), "--seed", "0", "--jobs", "3"]) == 0
    three = json.loads(capsys.readouterr().out)
    assert {key for key in one if one[key] != three[key]} <= {"seconds"}
    assert (tmp_path / "c.csv").read_bytes() == (folder / "c.csv").read_bytes()


def test_rows_without_a_target_and_rare_classes_are_left_out_and_reported():
    table, _ = columns()
    label = list(table["label"])
    label[3] = label[10] = None
    label[20] = "odd"
    x = [float(v) for v in table["x"]]
    audit = audit_table({"x": x, "z": table["z"], "colour": table["colour"], "label": label}, "label")
    assert audit.n_rows == N
    np.testing.assert_array_equal(audit.target.rows, np.setdiff1d(np.arange(N), [3, 10, 20]))
    assert {"Left out: 2 rows without a target", "Left out: 1 row of 1 class with fewer than 5 rows"} <= set(
        audit.notes
    )
    shown = {suspect.row: suspect.given for suspect in audit.suspects()}
    assert shown
    assert all(label[row] == given for row, given in shown.items())


def test_the_terminal_lists_as_many_rows_as_asked(done, tmp_path, capsys):
    out = tmp_path / "s.csv"
    command = ["audit", str(done[0] / "table.csv"), "-t", "label", "-q", "--top", "3", "--models", "linear"]
    assert cli.main([*command, "--out", str(out)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert len(re.findall(r"^ *\d+ +(?:yes|no) ", told.out, re.M)) == 3
    listed = int(
        re.search(r"^The first 3 of (\d+) (?:rows, \d+ of them suspect|suspect rows), worst", told.out, re.M)[1]
    )
    assert listed == len(read_csv(out))
    assert str(out) in told.out.replace("\n", "")
