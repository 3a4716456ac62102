"""The command line, as a user calls it."""

import os
import re
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

import rankrange
from rankrange import cli

matplotlib_image = pytest.importorskip("matplotlib.image")


def run(*arguments, cwd):
    command = [sys.executable, "-W", "error", "-m", "rankrange", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def rows_of(text):
    """name -> (ranks, slope, off by, outliers cut)."""
    pattern = r"(\S+) +(\d+)\.\.(\d+) +y = +(-?[\d.]+) ([+-]) ([\d.]+) x +([\d.]+) +(\d+) of (\d+)"
    found = {}
    for name, first, last, _, sign, slope, off, cut, total in re.findall(pattern, text):
        found[name] = (int(first), int(last), float(sign + slope), float(off), int(cut), int(total))
    return found


def test_demo_prints_a_table_and_writes_a_plot_into_the_current_folder(tmp_path):
    result = run("demo", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert set(rows_of(result.stdout)) == {"average", "top-k", "trimmed", "AoRR"}
    assert [path.name for path in tmp_path.iterdir()] == ["rankrange-demo.png"]
    assert str(tmp_path.resolve() / "rankrange-demo.png") in result.stdout
    picture = matplotlib_image.imread(tmp_path / "rankrange-demo.png")
    assert picture.shape[0] > 400
    assert np.ptp(picture) > 0.5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_ranked_range_leaves_the_planted_outliers_out(seed, tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path / "plot.png"), "--seed", str(seed)]) == 0
    rows = rows_of(capsys.readouterr().out)
    for name in ("trimmed", "AoRR"):
        first, _, slope, off, cut, total = rows[name]
        assert first == total + 1
        assert cut == total
        assert abs(slope - 0.5) < 0.1
        assert off < 0.25
    for name in ("average", "top-k"):
        assert rows[name][3] > 1.0


def test_the_same_seed_gives_the_same_plot_and_table(tmp_path, capsys):
    paths = [tmp_path / "one.svg", tmp_path / "two.svg"]
    texts = []
    for path in paths:
        assert cli.main(["demo", "--out", str(path)]) == 0
        texts.append(capsys.readouterr().out.replace(path.name, "plot"))
    assert texts[0] == texts[1]


def test_an_existing_plot_is_replaced_and_readable_by_others(tmp_path):
    path = tmp_path / "plot.pdf"
    path.write_text("old")
    previous = os.umask(0o022)
    try:
        assert cli.main(["demo", "--out", str(path)]) == 0
    finally:
        os.umask(previous)
    assert path.read_bytes().startswith(b"%PDF")
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_without_matplotlib_the_table_is_printed_and_the_remedy_named(tmp_path, capsys):
    missing = {"matplotlib.figure": None, "matplotlib.backends.backend_agg": None}
    with mock.patch.dict(sys.modules, missing):
        assert cli.main(["demo", "--out", str(tmp_path / "plot.png")]) == 2
    captured = capsys.readouterr()
    assert "AoRR" in captured.out
    assert captured.err == (
        "rankrange: the plot needs matplotlib, which is not installed; run: pip install 'rankrange[app]'\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--out", "plot.txt"], r"a plot is one of .png, .pdf, .svg, got --out plot.txt; give"),
        (["demo", "--out", "."], r"a plot is one of .*, got --out \.; give"),
        (["demo", "--out", "folder.png"], r"--out must name a file, got the folder folder.png; add"),
        (["demo", "--out", "missing/plot.png"], r"in a folder that exists, got missing/plot.png; make missing first"),
    ],
)
def test_a_bad_place_for_the_plot_is_one_sentence_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.png").mkdir()
    assert cli.main(arguments) == 2
    captured = capsys.readouterr()
    assert re.fullmatch(rf"rankrange: .*{message}.*\n", captured.err)
    assert captured.out == ""  # told before any work is done


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (PermissionError(13, "Permission denied"), 2, "Permission denied; choose"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_plot_that_cannot_be_written_leaves_nothing_behind(error, code, message, tmp_path, capsys):
    with mock.patch("os.replace", side_effect=error):
        assert cli.main(["demo", "--out", str(tmp_path / "plot.png")]) == code
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", ["", "dance", "demo --seed -1", "demo --seed x", "demo extra"])
def test_bad_arguments_end_with_exit_code_2_and_the_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments.split())
    assert ended.value.code == 2
    assert "usage: rankrange" in capsys.readouterr().err


def test_help_and_version(capsys):
    for arguments, expected in (("--help", "demo"), ("demo --help", "--out"), ("--version", rankrange.__version__)):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments.split())
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out
