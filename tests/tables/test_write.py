"""Outputs appear whole or not at all, whatever interrupts them, and every cell comes back from CSV."""

import csv
import io
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankrange.errors import UserError
from rankrange.tables import write as outputs
from rankrange.tables.write import check_paths


def test_all_files_are_ready_before_the_first_is_moved(tmp_path):
    (tmp_path / "one").write_text("old")

    def fail(file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match=r"cannot write .*two: No space left on device; free some space"):
        outputs.write_whole({tmp_path / "one": b"new", tmp_path / "two": fail})
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    assert (tmp_path / "one").read_text() == "old"


def test_an_existing_file_is_replaced_and_readable_by_others(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    previous = os.umask(0o022)
    try:
        outputs.write_whole({path: b"new"})
    finally:
        os.umask(previous)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_kill_9_leaves_no_output_that_could_be_taken_for_one(moment, tmp_path):
    """A kill while the outputs are written, and one before the first of them is moved into place."""
    (tmp_path / "r.html").write_text("old")
    code = (
        "import os; from pathlib import Path; from rankrange.tables.write import write_whole; "
        f"os.{moment} = Path.replace = lambda *a, **k: os.kill(os.getpid(), 9); "
        "write_whole({Path(name): name.encode() for name in ('r.html', 's.csv', 'c.csv', 'm.skops')})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "r.html").read_text() == "old"
    others = {path.name for path in tmp_path.iterdir()} - {"r.html"}
    assert len(others) == (1 if moment == "fsync" else 4)
    assert all(name.startswith(".") and name.endswith(".tmp") for name in others)


@given(st.lists(st.text(alphabet='aü1.-=+@ "\n\r,;|\t', max_size=5), min_size=1), st.sampled_from(",;\t|"))
def test_every_cell_comes_back_from_csv(cells, delimiter):
    written = outputs.csv_lines([[cell, "x"] for cell in cells], delimiter, safe=False).decode()
    read = list(csv.reader(io.StringIO(written, newline=""), delimiter=delimiter))
    assert read == [[cell, "x"] for cell in cells]


def test_outputs_never_replace_what_is_read_or_an_unnamed_file(tmp_path):
    tasks = tmp_path / "tasks.json"
    (tmp_path / "folder").mkdir()
    part = tmp_path / "folder" / "part.parquet"
    check_paths({"--out": part}, [("a file that is read", part.parent)])
    part.write_bytes(b"x")
    with pytest.raises(UserError, match=r"--out must not replace a file of a folder that is read, got .*part.parquet"):
        check_paths({"--out": part}, [("a file that is read", part.parent)])
    beside = {tasks.with_suffix(".xml"): tasks}
    check_paths({"--export label-studio": tasks}, beside=beside)
    tasks.with_suffix(".xml").write_text("somebody's own")
    with pytest.raises(UserError, match=r"tasks.xml would be written beside .*tasks.json, got a file that exists"):
        check_paths({"--export label-studio": tasks}, beside=beside)
    tasks.write_text("[]")  # both from an earlier run
    check_paths({"--export label-studio": tasks}, beside=beside)
