"""Files that cannot be audited, files that mean harm, and outputs that appear whole or not at all."""

import contextlib
import csv
import gzip
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from rankrange import cli

GOOD = b"a,b,y\n" + b"1,x,0\n2.5,z,1\n" * 30


BAD = {
    "empty": (b"", "needs a header line and rows, got the empty file .*; check the export"),
    "blank lines": (b"\n\n\n", "got the empty file"),
    "header only": (b"a,b,y\n", "needs rows, got only a header in .*; add rows"),
    "one column": (b"y\n" + b"0\n1\n" * 30, "needs a target and at least one other column, got one column"),
    "a line above the header": (
        b"Report of March\n" + GOOD,
        "got one column, 'Report of March', in .*; delete lines above the header, or pass .* as --delimiter",
    ),
    "one class": (GOOD.replace(b",1\n", b",0\n"), r"two classes of at least 5 rows, got 1 .* \(of '0'\); choose"),
    "duplicate names": (
        GOOD.replace(b"a,b,y", b"a,a,y"),
        "column names must differ, got 'a' more than once .*; rename",
    ),
    "short line": (
        GOOD + b"1,2\n",
        "every line needs the 3 cells of the header, got 2 in line 62 .*; correct that line",
    ),
    "long line": (GOOD + b"1,2,3,4\n", "the 3 cells of the header, got 4 in line 62"),
    "open quote": (GOOD + b'1,"x,0\n' + GOOD[6:], "every line needs the 3 cells of the header"),
    "semicolons": (GOOD.replace(b",", b";"), "separated by the comma, but .* by the semicolon; pass --delimiter ';'"),
    "tabs": (GOOD.replace(b",", b"\t"), "seem to be by the tab; pass --delimiter tab"),
    "not UTF-8": (GOOD + b"1,\xe9,0\n", "must be utf-8 text, got byte 0xE9 in line 62 .*--encoding latin-1"),
    "not UTF-8, far down": (
        GOOD + b"1,x,0\n" * 3_000_000 + b"1,\xe9,0\n",
        "must be utf-8 text, got other bytes in column 'b'",
    ),
    "UTF-16": (GOOD.decode().encode("utf-16"), "got UTF-16 in .*; pass --encoding utf-16"),
    "binary": (bytes(range(256)) * 20, "got a binary file in .*; export it as CSV or Parquet"),
    "spreadsheet": (b"PK\x03\x04" + bytes(100), "starts like Excel but cannot be read .*; copy it again"),
    "gzip cut short": (gzip.compress(GOOD * 999)[:-30], "gzip file must be complete, got .*; copy it again"),
    "gzip of nothing": (gzip.compress(b""), "got the empty file"),
    "broken Parquet": (b"PAR1 nothing PAR1", "starts like Parquet but cannot be read .*; copy it again"),
    "broken Arrow": (b"ARROW1\0\0nothing", "starts like Arrow but cannot be read .*; copy it again"),
    "100,000 columns": (
        b"y," + b",".join(b"c%d" % i for i in range(99_999)) + b"\n" + b",".join([b"1"] * 100_000) + b"\n",
        "at most 10,000 columns are audited, got 100,000 or more in .*; keep",
    ),
    "one endless line": (b"abc," * 2_000_000, "at most 10,000 columns are audited, got 2,000,001 or more"),
    "too few rows": (b"a,b,y\n" + b"1,x,0\n2,z,1\n" * 4, "at least 20 rows with a target, got 8 of 8"),
    "no use": (b"a,y\n" + b"5,0\n5,1\n" * 30, "at least one column besides the target must be usable, got none"),
    "no target at all": (
        GOOD.replace(b",0\n", b",\n").replace(b",1\n", b",NA\n"),
        "at least 20 rows with a target, got 0",
    ),
    "a class a row": (
        b"a,y\n" + b"".join(b"%d,name %d\n" % (i, i) for i in range(300)),
        "at most 200 classes are audited, got 300",
    ),
    "no header": (GOOD[6:].replace(b"x", b"7").replace(b"z", b"2"), "here it holds numbers; add a header"),
    "one value": (b"a,y\n" + b"".join(b"%d,2.5\n" % i for i in range(60)), "two classes of at least 5 rows, got 1"),
}


def audit(path, *more):
    folder = path.parent
    places = ["--report", str(folder / "r.html"), "--out", str(folder / "s.csv"), "--clean", str(folder / "c.csv")]
    return cli.main(["audit", str(path), "--target", "y", *places, "--model", str(folder / "m.skops"), *more])


def refused(code, capsys, folder, left, message):
    captured = capsys.readouterr()
    sentence = [line for line in captured.err.splitlines() if line.startswith("rankrange: ")]
    assert code == 2
    assert captured.out == ""
    assert len(sentence) == 1
    assert re.search(message, sentence[0]), sentence[0]
    assert "Traceback" not in captured.err
    assert {path.name for path in folder.iterdir()} == left


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_sentence_with_the_remedy_exit_code_2_and_no_output(name, tmp_path, capsys):
    content, message = BAD[name]
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    refused(audit(path, "--quiet"), capsys, tmp_path, {"t.csv"}, message)


def test_a_folder_a_missing_file_and_a_pipe_are_errors_with_the_nearest_name(tmp_path, capsys):
    (tmp_path / "table.csv").write_bytes(GOOD)
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    there = {"table.csv", "folder.csv", "pipe.csv"}
    refused(audit(tmp_path / "folder.csv"), capsys, tmp_path, there, "got the folder .*folder.csv; name a file in it")
    refused(audit(tmp_path / "tabel.csv"), capsys, tmp_path, there, "no file .*; did you mean .*table.csv")
    refused(audit(tmp_path / "qqqqqqqq"), capsys, tmp_path, there, "no file .*; check the path")
    refused(audit(tmp_path / "pipe.csv"), capsys, tmp_path, there, "regular file is needed, got .*pipe.csv, a pipe")


def test_a_file_without_permission_is_an_error(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD)
    path.chmod(0)
    refuses = contextlib.nullcontext()
    if os.access(path, os.R_OK):  # root may read everything
        refuses = mock.patch.object(Path, "open", side_effect=PermissionError(13, "Permission denied"))
    with refuses:
        code = audit(path)
    refused(code, capsys, tmp_path, {"t.csv"}, "no permission to read .*t.csv; ask its owner, or run: chmod")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--delimiter", ";;"], "a delimiter is one ASCII character or 'tab', got ';;'"),
        (["--encoding", "klingon"], "unknown encoding 'klingon'; use for example"),
        (["--target", "Y"], "--target must name a column, got 'Y', which .* does not have; did you mean 'y'"),
        (["--target", "diagnosis"], "got 'diagnosis', which .* does not have; it has 'a', 'b', 'y'"),
        (["--ignore", "c"], "--ignore must name a column, got 'c'"),
        (["--ignore", "y"], "cannot be both target and ignore"),
        (["--task", "numbers", "--target", "b"], "each must hold 0 and 1"),
        (["--task", "labels"], "--task labels needs several target columns"),
        (["--ignore", "a", "--ignore", "b"], "needs a column besides the target"),
    ],
)
def test_options_that_do_not_fit_the_file_are_errors(more, message, tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD)
    refused(audit(path, "-q", *more), capsys, tmp_path, {"t.csv"}, message)


def test_outputs_never_overwrite_the_input_or_each_other(tmp_path, capsys):
    path, numbers, tasks = (tmp_path / name for name in ("t.csv", "e.npy", "tasks.xml"))
    contents = {path: GOOD, numbers: b"numbers", tasks: b"somebody's own"}
    for file, content in contents.items():
        file.write_bytes(content)
    for words, message in (
        (f"--clean {tmp_path}/./t.csv", "--clean must not be a file that is read"),
        (f"--out {tmp_path}/x --report {tmp_path}/x", "--out must not be --report, got .* for both"),
        (f"--out {tmp_path}", "--out must name a file, got the folder"),
        (f"--out {tmp_path}/no/x", "must lie in a folder that exists"),
        ("--out /dev/null", "must name a regular file, got /dev/null"),
        (f"--embeddings {numbers} --out {numbers}", "--out must not be --embeddings"),
        (f"--pred-probs {numbers} --out {numbers}", "--out must not be --pred-probs"),
        (f"--export label-studio={tmp_path}/tasks.json", "tasks.xml would be written beside"),
    ):
        left = {"t.csv", "e.npy", "tasks.xml"}
        refused(cli.main(["audit", str(path), "-t", "y", *words.split()]), capsys, tmp_path, left, message)
    assert {file: file.read_bytes() for file in contents} == contents


# ---- whole or not at all ---------------------------------------------------------------------------------------------


def test_all_files_of_an_audit_are_moved_together(tmp_path, monkeypatch):
    """Killed or out of order at the first move, a whole audit has written all of its files and moved none."""
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD)
    (tmp_path / "r.html").write_text("old")
    written, moved = [], []
    flush = os.fsync

    def stop(source, target):
        moved.append(len(written))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", lambda file: written.append(file) or flush(file))
    monkeypatch.setattr(os, "replace", stop)
    names = {"report": "r.html", "out": "s.csv", "clean": "c.csv", "model": "m.skops"}
    places = [f"--{option}={tmp_path / name}" for option, name in names.items()]
    assert cli.main(["audit", str(path), "-t", "y", "-q", *places]) == 130
    assert moved == [len(names)]
    assert {p.name for p in tmp_path.iterdir()} == {"t.csv", "r.html"}
    assert (tmp_path / "r.html").read_text() == "old"


def test_ctrl_c_ends_an_audit_with_130_and_nothing_written(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD)
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "  # shells may ignore it
        "from rankrange import cli; import rankrange.audit.classification as c, time; "
        "c.find_label_issues = lambda *a, **k: (print('now', flush=True), time.sleep(60)); "
        "sys.exit(cli.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "audit", "t.csv", "-t", "y", "--out", "s.csv"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "now\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; nothing was left half-written" in err
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


# ---- files that mean harm --------------------------------------------------------------------------------------------

HARM = [
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "\t=1+1",
    "\r=1+1",
    " =1+1",
    "\uff1d1+1",
    "\u202egnp.exe",
    "a\x00b\x1b[31mred",
    "${7*7}{{7*7}}</script>",
    "javascript:alert(1)",
    "'; DROP TABLE rows; --",
]


def harmful_csv(path):
    """Headers, labels and cells that mean harm, in a table that can be audited."""
    rng = np.random.default_rng(0)
    n = 150
    x = rng.normal(size=n)
    y = x + 0.05 * rng.normal(size=n) > 0
    y[:10] = ~y[:10]
    labels = np.where(y, HARM[0], HARM[2])
    header = [HARM[1], HARM[4], "\u202eevil", HARM[0] + "y"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for i in range(n):
            writer.writerow([f"{x[i]:.4f}", HARM[i % len(HARM)].replace("\x00", ""), f"{rng.normal():.3f}", labels[i]])
    return path, header[-1]


def opens_safely(cell):
    """What spreadsheet programs take for a formula starts with one of these, white space skipped; numbers do not."""
    text = cell.lstrip("\t\r\n \ufeff")
    if cell[:1] in "\t\r\n" and cell:
        return False
    if text[:1] not in set("=+-@\uff1d\uff0b\uff0d\uff20") or not text:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_csv_files_made_from_a_harmful_one_open_safely(tmp_path, capsys):
    path, target = harmful_csv(tmp_path / "t.csv")
    out, clean, page = (tmp_path / name for name in ("s.csv", "c.csv", "r.html"))
    outputs = ["--out", str(out), "--clean", str(clean), "--report", str(page)]
    assert cli.main(["audit", str(path), "-t", target, "--models", "linear", *outputs]) == 0
    for made in (out, clean):
        with made.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        assert len(rows) > 5
        assert [cell for row in rows for cell in row if not opens_safely(cell)] == []
        assert len({len(row) for row in rows}) == 1
    captured = capsys.readouterr()
    hidden = [c for c in captured.out + captured.err if not c.isprintable() and c != "\n"]
    assert hidden == []  # no escape sequence reaches the terminal
    text = page.read_text(encoding="utf-8")
    assert "<img src=x" not in text
    assert "<script>window" not in text
    assert "\u202e" not in text


def test_a_harmful_name_in_an_error_message_is_shown_not_obeyed(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text("a\x1b[2J\u202e,a\x1b[2J\u202e,y\n1,2,0\n" * 2, encoding="utf-8")
    assert cli.main(["audit", str(path), "-t", "y"]) == 2
    err = capsys.readouterr().err
    assert "⟨001B⟩[2J⟨202E⟩" in err
    assert all(c.isprintable() or c == "\n" for c in err)


@pytest.mark.parametrize("options", [["--clean-if", "0.5"], ["--clean-how", "relabel"]])
def test_options_that_would_be_ignored_are_errors_before_the_file_is_read(options, capsys):
    assert cli.main(["audit", "nowhere.csv", "--target", "kind", *options]) == 2
    assert "without --clean; add --clean clean.csv" in capsys.readouterr().err
