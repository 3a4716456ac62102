"""The Triton kernels: in Triton's interpreter at small sizes, and where there is a GPU on it at full size."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed", allow_module_level=True)

CHECKS = Path(__file__).with_name("kernel_checks.py")


def run(interpreted):
    """The interpreter has to be chosen before Triton is imported: a process of its own."""
    environment = {**os.environ, "TRITON_INTERPRET": "1" if interpreted else "0"}
    done = subprocess.run([sys.executable, CHECKS], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_kernels_equal_eager_pytorch_in_the_interpreter():
    run(interpreted=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_kernels_equal_eager_pytorch_on_the_gpu():
    run(interpreted=False)
