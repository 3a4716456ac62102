"""The Triton kernel of a pass over rows on a device, in Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")


def test_the_kernel_finds_what_eager_float64_finds():
    here = Path(__file__).parent
    code = """
import device_pass_checks as checks
from triton_interpreter import patch_once_per_launch
patch_once_per_launch()
for case in checks.CASES:
    checks.check_pass(case)
    if case[6] == checks.torch.float32 and case[0] > 1:
        checks.check_newton(case)
for listed_rows in (1500, 3000):
    checks.check_evaluation(listed_rows)
print("checked", len(checks.CASES))
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(here), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("checked")
