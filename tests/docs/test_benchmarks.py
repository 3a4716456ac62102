"""Every benchmark is listed with one line, and runs in its tiny version."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas")
from benchmarks import harness
from benchmarks.__main__ import MODULES

ROOT = Path(__file__).parents[2]
NAMES = [name for names in MODULES.values() for name in names]
# Libraries that only some benchmarks compare with.
NEEDS = {
    **dict.fromkeys(["label_errors", "label_errors_real", "label_errors_numbers", "label_intervals"], "cleanlab"),
    "boosting_objective": "lightgbm",
    **dict.fromkeys(["linear_gpu", "linear_gpu_random"], "torch"),
    **dict.fromkeys(["torch_gpu", "torch_noise", "torch_text"], "torch"),
}


def test_the_readme_has_one_line_for_each():
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == sorted(NAMES)


def test_a_commit_of_digits_is_no_number(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKRANGE_COMMIT", "03402773")
    record = str(tmp_path / "record.csv")
    harness.append(record, [{"value": 1.0}])
    assert harness.recorded(record)["commit"].tolist() == ["03402773"]


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_its_tiny_version_runs(name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    command = [sys.executable, "-m", "benchmarks", name, "--tiny"]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **threads}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "=" in done.stdout  # at least one row
