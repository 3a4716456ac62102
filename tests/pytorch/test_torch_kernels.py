"""The Triton kernels: in Triton's interpreter at small sizes, and where there is a GPU on it at full size."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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


@pytest.mark.filterwarnings("ignore")  # of defaults that will change
@pytest.mark.slow  # a few seconds for each kernel
@pytest.mark.parametrize("name", ["small", "narrow", "finish", "rows"])
def test_kernels_compile_for_a_gpu_on_any_machine(name):
    """The interpreter knows no types, and a compiler needs no device."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from rankrange.torch import kernels

    tile, chosen, depth = kernels._lanes(131072, 5)
    sizes = kernels.SIZES
    known = {"SAMPLE": sizes.sample, "TILE": sizes.tile, "CAP": sizes.list, "REPLICAS": sizes.replicas, "DEPTH": depth,
             "N_BINS": sizes.bins, "BLOCK": sizes.small, "CHOSEN": chosen, "TWO_SIDED": True}  # fmt: skip
    known |= {"TILE": tile} if name == "rows" else {}
    types = {"x_ptr": "*bf16", "value_ptr": "*bf16", "loss_ptr": "*bf16", "target_ptr": "*u8", "ws_ptr": "*i32",
             "lanes_ptr": "*i32", "cut_ptr": "*fp32", "weight_ptr": "*fp32", "marks_ptr": "*fp32",
             "scale": "fp32"}  # fmt: skip
    modules = kernels._select_kernels, kernels._large_kernels, kernels._label_kernels
    kernel = next(getattr(module, name) for module in modules if hasattr(module, name))
    signature = {key: "constexpr" if key in known else types.get(key, "i32") for key in kernel.arg_names}
    constants = {(i,): known[key] for i, key in enumerate(kernel.arg_names) if key in known}
    compiled = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 90, 32))
    assert compiled.asm["ptx"]
