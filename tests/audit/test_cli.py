"""The command line, as a user calls it: help, completion, the demo."""

import argparse
import inspect
import os
import re
import subprocess
import sys
from unittest import mock

import pytest

import rankrange
from rankrange import cli

for package in ("jinja2", "pyarrow", "rich"):
    pytest.importorskip(package)


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
