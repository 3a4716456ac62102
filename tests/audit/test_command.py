"""`rankrange audit`: what it finds, what it writes, and that each output says the same."""

import argparse
import contextlib
import csv
import hashlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

import rankrange
from rankrange import cli
from rankrange.audit import audit_table, load_model

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
    audit = audit_table({"x": x, "z": table["z"], "colour": table["colour"], "label": label}, "label", models="linear")
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


# ---- help, completion, the demo -------------------------------------------------------------------------------------


def run(*arguments, cwd):
    command = [sys.executable, "-W", "error", "-m", "rankrange", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_demo_finds_nearly_all_planted_errors_and_writes_the_report_into_the_current_folder(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo"]) == 0
    out, err = capsys.readouterr()
    found = re.search(
        r"(\d+) rows are flagged as likely wrong; (\d+) of these are planted errors\..* has (\d+) of the (\d+) planted",
        out.replace("\n", " "),
    )
    flagged, hits, listed, planted = (int(group) for group in found.groups())
    assert planted == 40
    assert listed >= 0.85 * planted  # the others look like the digit that they are labelled as
    assert hits >= 0.7 * planted  # the smallest of ten draws, whose mean is .85
    assert hits >= 0.9 * flagged
    decided, kept, left = map(int, re.search(r"(\d+) are relabelled, (\d+) kept\. (\d+) of the 40", out).groups())
    assert decided + kept == 15
    assert left == planted - decided
    assert f"Decided so far: {decided} wrong, {kept} right." in out
    assert "predicting every row" in err  # progress is not on standard output
    assert [path.name for path in tmp_path.iterdir()] == ["rankrange-demo.html"]
    page = (tmp_path / "rankrange-demo.html").read_text(encoding="utf-8")
    assert (tmp_path / "rankrange-demo.html").as_uri() in out.replace("\n", "")
    assert page.startswith("<!DOCTYPE html>")
    assert len(page.encode()) < 2_000_000


def test_a_bad_path_of_the_report_is_an_error_before_any_work(tmp_path, capsys):
    assert cli.main(["demo", "--report", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert re.fullmatch(r"rankrange: --report must name a file, got the folder .*; add a file name\n", captured.err)
    assert captured.out == ""


def test_without_the_packages_of_the_app_the_remedy_is_named(tmp_path, capsys):
    with mock.patch.dict(sys.modules, {"pyarrow": None}):
        assert cli.main(["demo", "--quiet", "--report", str(tmp_path / "page.html")]) == 2
    expected = "rankrange: this needs pyarrow, which is not installed; run: pip install pyarrow\n"
    assert capsys.readouterr().err == expected
    assert list(tmp_path.iterdir()) == []


def test_an_audit_without_a_target_lists_the_columns(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("age,diagnosis\n1,a\n")
    assert cli.main(["audit", str(tmp_path / "t.csv")]) == 2
    assert re.search(r"--target must name the column .* has the columns 'age', 'diagnosis'", capsys.readouterr().err)


EXPORTS = [f"audit t.csv -t y --export {words}" for words in ("label-studio=a.xml", "prodigy=a.json", "label-studio=")]


@pytest.mark.parametrize("arguments", ["", "dance", "demo --seed -1", "demo --seed x", "demo extra", "audit", *EXPORTS])
def test_bad_arguments_end_with_exit_code_2_and_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments.split())
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "usage: rankrange" in told
    assert arguments not in EXPORTS or "must be label-studio=FILE.json" in told


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--help", "audit"),
        ("demo --help", "--report"),
        ("audit --help", "exit codes: 0 done, 2 bad input, 130 interrupted"),
        ("--version", rankrange.__version__),
    ],
)
def test_help_and_version(arguments, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments.split())
    assert ended.value.code == 0
    assert expected in capsys.readouterr().out


def test_the_options_of_an_audit_have_the_names_and_defaults_of_audit_table():
    from rankrange.audit import audit_table
    from rankrange.cli import run_audit
    from rankrange.cli.options import AUDIT

    parser = argparse.ArgumentParser()
    run_audit.add_arguments(parser)
    given = vars(parser.parse_args(["t.csv", "--target", "y"]))
    names = [name.split()[0] for name in AUDIT]
    known = inspect.signature(audit_table).parameters
    of_python = {"table", "target", "name", "source", "row_names", "progress"}
    assert set(names) == set(known) - of_python
    for name in names:
        default = known[name].default
        assert given[name] == (list(default) if isinstance(default, tuple) else default), name


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv[1:] = ['--help']\ntry:\n import rankrange.cli as c; c.main()\nexcept SystemExit: pass\n"
    )
    code += "print(sorted(m for m in sys.modules if m in {'numpy', 'sklearn', 'pyarrow', 'rich', 'torch', 'jinja2'}))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


@pytest.mark.skipif(not os.path.exists("/bin/bash"), reason="needs bash")
def test_bash_completes_a_command(tmp_path):
    pytest.importorskip("shtab")
    script = run("--print-completion", "bash", cwd=tmp_path).stdout
    ask = 'COMP_WORDS=(rankrange au); COMP_CWORD=1; _shtab_rankrange; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["/bin/bash", "-c", script + "\n" + ask], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["audit"]


@pytest.mark.parametrize(
    ("error", "code", "message"), [(KeyboardInterrupt, 130, "interrupted"), (MemoryError, 2, "not enough memory")]
)
def test_an_interruption_or_too_little_memory_is_one_sentence(error, code, message, monkeypatch, capsys):
    def stopped(arguments):
        raise error

    monkeypatch.setattr("rankrange.cli.run_demo.run", stopped)
    assert cli.main(["demo"]) == code
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
