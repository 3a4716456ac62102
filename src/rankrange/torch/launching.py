"""Launching of kernels: launch sizes, and caches of compiled kernels and workspaces."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .compatibility import raw_stream

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


# The position of the size argument, which Triton specializes, in each kernel.
_SIZE_AT = {"small": 4, "narrow": 4, "finish": 4, "joint": 5, "weigh": 4, "short_rows": 4, "spread": 5}
_SIZE_AT |= {"long_rows_by_mask": 5, "long_rows_by_index": 5, "remember": 10}
_KERNELS: dict[str, Any] = {}
if TRITON:
    for module in (_joint_kernels, _label_kernels, _large_kernels, _memory_kernels, _select_kernels):
        _KERNELS |= {name: getattr(module, name) for name in _SIZE_AT if hasattr(module, name)}
# Calling a compiled kernel directly is internal to Triton. The call is known for these versions; with other versions
# kernels are launched through the public interface.
_LAUNCH_COMPILED = TRITON and not INTERPRETED and _known(triton.__version__)
# Whether cooperative launches are possible; the interpreter has one program, which never waits.
JOINT = INTERPRETED or (_LAUNCH_COMPILED and torch.version.cuda is not None)


class Compiled(NamedTuple):
    """A compiled kernel: run(*grid, stream, function, metadata, None, None, None, *arguments)."""

    run: Any
    function: Any
    metadata: Any


_COMPILED: dict[Any, Compiled] = {}
_WORKSPACES: dict[tuple[int, int, int], Tensor] = {}


@functools.cache
def processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


class Plan(NamedTuple):
    """Sizes of the launches, all powers of two. Tests use small sizes to cover all code paths with small inputs."""

    small: int = 1 << 14  # the largest number of losses per row for one program
    joint: int = 1 << 20  # the largest number of losses for a single launch
    sample: int = 1 << 12  # losses from which the pivots near the cuts are found
    tile: int = 1 << 12  # losses that a program reads at once
    list: int = 1 << 12  # the largest number of losses near both cuts that are listed
    replicas: int = 8  # copies of each histogram, which avoid contention
    bins: int = 1 << 11  # of a histogram
    warps: int = 16
    weigh_tile: int = 1 << 12  # losses that a program weights at once
    short: int = 1 << 12  # the largest number of labels per row for one program
    label_tile: int = 1 << 11  # labels of a longer row that a program reads at once
    per_thread: int = 8  # labels per thread

    @property
    def words(self) -> int:
        """The size of the workspace in 32-bit words; its layout is in `_large_kernels`."""
        return 64 + 1024 + self.list + 4 * self.replicas * self.bins

    def programs(self, n: int, device: torch.device) -> int:
        """The number of programs of a pass over n losses: at most one per multiprocessor."""
        return min(-(-n // self.tile), processors(device), 1024)


PLAN = Plan()
# Measured on an H200: from these numbers of losses, larger tiles and samples are faster.
_LARGER = PLAN._replace(tile=1 << 13, warps=32, sample=1 << 13)
_LARGEST = _LARGER._replace(sample=1 << 14, list=1 << 13, bins=1 << 12)


def plan_for(n: int) -> Plan:
    return PLAN if n < 1 << 22 else _LARGER if n < 1 << 25 else _LARGEST


def current_device() -> int:
    return -1 if INTERPRETED else torch.cuda.current_device()


# the raw handle, as in inductor's generated code
current_stream: Any = (lambda device: 0) if INTERPRETED else raw_stream
_capturing: Any = (lambda: False) if INTERPRETED else torch.cuda.is_current_stream_capturing


def launch(
    name: str,
    grid_0: int,
    grid_1: int,
    given: tuple[Any, ...],
    constants: tuple[Any, ...],
    warps: int,
    together: bool = False,
) -> None:
    """Launch a kernel. All tensors must be on one device, and only the alignment of the first may vary.

    `given` are the arguments of the kernel, the tensors first, and `constants` its compile-time constants. Triton's
    lookup of a compiled kernel takes longer than the launch, so compiled kernels are cached by the arguments that their
    code depends on. With `together` all programs run at once (a cooperative launch), or the launch fails.
    """
    first = given[0]
    device = first.get_device()
    key = _kind(name, first, given[_SIZE_AT[name]], given[1].dtype, constants, warps)
    compiled = _COMPILED.get(key)
    if compiled is not None and device == current_device():
        compiled.run(
            grid_0, grid_1, 1, current_stream(device), compiled.function, compiled.metadata, None, None, None,
            *given, *constants,
        )  # fmt: skip
        return
    with torch.cuda.device(device) if first.is_cuda else contextlib.nullcontext():
        options = {"launch_cooperative_grid": True} if together else {}
        kernel = _KERNELS[name][(grid_0, grid_1, 1)](*given, *constants, num_warps=warps, **options)
    if INTERPRETED:
        _COMPILED[key] = Compiled(lambda *grid_and_more: _KERNELS[name][grid_and_more[:3]](*grid_and_more[9:]), 0, 0)
    elif _LAUNCH_COMPILED and not hasattr(kernel, "result"):
        _COMPILED[key] = Compiled(kernel.run, kernel.function, kernel.packed_metadata)


def _kind(
    name: str, first: Tensor, n: int, second: torch.dtype, constants: tuple[Any, ...], warps: int
) -> tuple[Any, ...]:
    device, dtype, alignment = first.get_device(), first.dtype, first.data_ptr() % 16
    return name, device, dtype, alignment, n % 16, n == 1, second, constants, warps


def compiled_for(*kind: Any) -> Compiled | None:
    """The compiled kernel of an earlier `launch`, or None if there was none.

    `kind` is the name, the first tensor, the size, the dtype of the second tensor, the constants and the warps.
    """
    return _COMPILED.get(_kind(*kind))


def workspace(words: int, like: Tensor, new: bool) -> Tensor:
    """A workspace for one launch: the cached one of the current stream, or a new one.

    It is new, and zeroed, if `new` is set or the tensor is not on the current device.
    """
    device = like.get_device()
    if new or device != current_device():
        return torch.zeros(words, dtype=torch.int32, device=like.device)
    return kept_workspace(words, device, current_stream(device))


def kept_workspace(words: int, device: int, stream: int) -> Tensor:
    """The cached workspace of a stream for the kernel `joint`, which leaves it ready for the next launch.

    Launches on one stream run in order. A CUDA graph may be replayed concurrently, so captured launches get their own
    workspace.
    """
    kept = _WORKSPACES.get((words, device, stream))
    capturing = _capturing()
    if kept is None or capturing:
        kept = torch.zeros(words, dtype=torch.int32, device="cpu" if device < 0 else f"cuda:{device}")
        if not capturing:
            _WORKSPACES[words, device, stream] = kept
    return kept
