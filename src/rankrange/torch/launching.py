"""How the kernels are started, with as little Python as can be: compiled kernels and workspaces are kept."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

try:
    import triton

    from . import _joint_kernels, _label_kernels, _large_kernels, _memory_kernels, _select_kernels
except ImportError:
    triton = None

TRITON = triton is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"


def _known(text: str) -> bool:
    major, minor = text.split(".")[:2]
    return (3, 6) <= (int(major), int(minor)) <= (3, 9)


# Where the arguments of each kernel hold the size that Triton specializes.
_SIZE_AT = {"small": 4, "narrow": 4, "finish": 4, "joint": 5, "weigh": 4, "short_rows": 4, "spread": 5}
_SIZE_AT |= {"long_rows_by_mask": 5, "long_rows_by_index": 5, "remember": 10}
_KERNELS: dict[str, Any] = {}
if TRITON:
    for module in (_joint_kernels, _label_kernels, _large_kernels, _memory_kernels, _select_kernels):
        _KERNELS |= {name: getattr(module, name) for name in _SIZE_AT if hasattr(module, name)}
# How a compiled kernel is run is Triton's own business: known of these versions, the usual way for all others.
_LAUNCH_COMPILED = TRITON and not INTERPRETED and _known(triton.__version__)
# Whether programs that wait for each other can be launched; the interpreter has one program, which never waits.
JOINT = INTERPRETED or (_LAUNCH_COMPILED and torch.version.cuda is not None)


class Compiled(NamedTuple):
    """A compiled kernel: run(*grid, stream, function, metadata, None, None, None, *arguments)."""

    run: Any
    function: Any
    metadata: Any


_COMPILED: dict[Any, Compiled] = {}
_WORKSPACES: dict[tuple[int, int, int], Tensor] = {}


def current_device() -> int:
    return -1 if INTERPRETED else torch.cuda.current_device()


def current_stream(device: int) -> int:
    return 0 if INTERPRETED else triton.runtime.driver.active.get_current_stream(device)


def launch(
    name: str,
    grid_0: int,
    grid_1: int,
    given: tuple[Any, ...],
    constants: tuple[Any, ...],
    warps: int,
    together: bool = False,
) -> Compiled | None:
    """Launch a kernel: all its tensors on one device, the first of them the only one whose alignment may vary.

    Triton looks up the compiled kernel by all its arguments, at more than the cost of the launch itself; what the
    code depends on is known here, so that the second launch of a kind goes straight to it. Returned is how to.
    With `together` the programs all run at once, or the launch fails.
    """
    first, n = given[0], given[_SIZE_AT[name]]
    device = first.get_device()
    key = name, device, first.dtype, first.data_ptr() % 16, n % 16, n == 1, given[1].dtype, constants, warps
    compiled = _COMPILED.get(key)
    if compiled is not None and device == current_device():
        compiled.run(
            grid_0, grid_1, 1, current_stream(device), compiled.function, compiled.metadata, None, None, None,
            *given, *constants,
        )  # fmt: skip
        return compiled
    with torch.cuda.device(device) if first.is_cuda else contextlib.nullcontext():
        options = {"launch_cooperative_grid": True} if together else {}
        kernel = _KERNELS[name][(grid_0, grid_1, 1)](*given, *constants, num_warps=warps, **options)
    if INTERPRETED:
        _COMPILED[key] = Compiled(lambda *grid_and_more: _KERNELS[name][grid_and_more[:3]](*grid_and_more[9:]), 0, 0)
    elif _LAUNCH_COMPILED and not hasattr(kernel, "result"):
        _COMPILED[key] = Compiled(kernel.run, kernel.function, kernel.packed_metadata)
    return _COMPILED.get(key)


def workspace(words: int, beside: Tensor, own: bool) -> Tensor:
    """Zeros for one launch: its own, or those kept for the current stream, which `joint` leaves as it found them.

    Launches on one stream follow each other. A CUDA graph may be replayed beside any of them: what is captured has
    a workspace of its own.
    """
    device = beside.get_device()
    if own or device != current_device() or (device >= 0 and torch.cuda.is_current_stream_capturing()):
        return torch.zeros(words, dtype=torch.int32, device=beside.device)
    key = words, device, current_stream(device)
    kept = _WORKSPACES.get(key)
    if kept is None:
        kept = _WORKSPACES[key] = torch.zeros(words, dtype=torch.int32, device=beside.device)
    return kept


@functools.cache
def processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
