"""Running means of each sample across visits, by its index in the data set.

A row is a running mean: the softmax of the sample if there are few classes, otherwise one to three numbers. Rows are on
the device of the losses and in the state_dict. No operation waits for the current batch on the device. An index without
a row goes to a spare row, whose content is not used. If the size of the data set was not given, the memory grows with
the indices; if it was given, a larger index is an error. Both happen immediately if the indices are on the host. On a
device, the memory grows some batches later, when a copy of the largest index has arrived on the host, and only one in
_CHECK_EVERY batches is checked for errors. A negative index is an error too; on a device this is checked only if the
size was given.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_FIRST_ROWS = 1 << 12
_CHECK_EVERY = 64  # batches
_LAG = 8  # batches between copying the largest index from the device and reading it


def copy_to_host(values: Tensor) -> tuple[Tensor, Any]:
    """Start a copy of a CUDA tensor to the host, and return the copy and the event of its completion.

    For a tensor on another device the copy is complete, and the event is None.
    """
    if values.device.type != "cuda":
        return values.cpu(), None
    copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return copy, event


def arrived(event: Any) -> bool:
    return event is None or event.query()


class Resizable(nn.Module):
    """A module whose buffers take the shape of a checkpoint, because their shape is initially unknown.

    Once it is known, a checkpoint of another shape is an error.
    """

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, buffer in list(self._buffers.items()):
            saved = state_dict.get(prefix + name)
            if saved is None or buffer is None or saved.shape == buffer.shape:
                continue
            reason = self._refusal(name, buffer, saved)
            if reason:
                args[-1].append(reason)  # error_msgs: load_state_dict raises them all together
                return
            setattr(self, name, torch.zeros_like(saved, device=buffer.device))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _refusal(self, name: str, buffer: Tensor, saved: Tensor) -> str:
        """Why a buffer cannot take the shape of a saved one; empty if it can."""
        if 0 in (len(buffer), len(saved)) and saved.dim() == buffer.dim() and saved.shape[1:] == buffer.shape[1:]:
            return ""
        return (
            f"a loss that has seen batches loads states of its own shape, got {name} of shape {tuple(saved.shape)} for "
            f"{tuple(buffer.shape)}; load the state into a new AoRRLoss, for the same number of classes"
        )


class Memory(Resizable):
    """Running means `rows` by sample index, with the label `given`, the number of visits and the number of cuts.

    A cut is a visit at which the weight of the sample was below 0.5.

    Parameters
    ----------
    n_samples : int or None
        Indices are below this; None lets the memory grow with the indices it sees.
    factor : float
        The weight of the past: new = factor * old + (1 - factor) * current. The value of the first visit is stored
        unchanged. The caller computes these means.
    argument : str, default="n_samples"
        The name of n_samples in messages.
    """

    rows: Tensor
    visits: Tensor
    cuts: Tensor
    given: Tensor

    def __init__(self, n_samples: int | None, factor: float, argument: str = "n_samples") -> None:
        super().__init__()
        if n_samples is not None and (isinstance(n_samples, bool) or not isinstance(n_samples, int) or n_samples < 1):
            raise ValueError(
                f"{argument} must be the size of the data set or None, got {n_samples!r}; pass {argument}=len(dataset)"
            )
        self.n_samples, self.factor, self.argument = n_samples, factor, argument
        self.register_buffer("rows", torch.zeros(1, 0))
        self.register_buffer("visits", torch.zeros(1, dtype=torch.int32))
        self.register_buffer("cuts", torch.zeros(1, dtype=torch.int32))
        self.register_buffer("given", torch.full((1,), -1, dtype=torch.int64))
        self._copies: list[tuple[Tensor, Any]] = []
        self._checks = 0

    @property
    def size(self) -> int:
        return len(self.visits) - 1

    def prepare(self, index: Tensor, width: int, device: torch.device) -> None:
        """Check the indices, and allocate rows of this width on this device for all known indices.

        A width other than before is an error.
        """
        if len(index) and not torch.compiler.is_compiling():
            self._check(index)
        rows = self.rows
        needed = self.n_samples or (self.size if torch.compiler.is_compiling() else self._largest(index) + 1)
        if needed < rows.shape[0] and rows.shape[1] == width and rows.device == device:
            return
        if self.rows.shape[1] not in (0, width):
            raise ValueError(
                f"all outputs must have the same width, got {width} after {self.rows.shape[1]}; "
                "use one AoRRLoss per model"
            )
        size = self.size if needed <= self.size else needed if self.n_samples else max(needed, 2 * self.size)
        self._resize(size, width, device)

    def row_of(self, index: Tensor, device: torch.device) -> Tensor:
        """The row of each index, on the device; the spare row for indices without one."""
        on_host = index.device.type == "cpu"
        index = index.to(device, non_blocking=True)
        if on_host and not torch.compiler.is_compiling():  # already checked by `prepare`
            return index
        return torch.where((index >= 0) & (index < self.size), index, self.size)

    def recall(self, row: Tensor) -> tuple[Tensor, Tensor]:
        """The stored values and the numbers of visits of these rows; 0 visits for a row without a sample."""
        return self.rows[row], self.visits[row]

    def remember(self, row: Tensor, values: Tensor, visits: Tensor, target: Tensor | None, cut: Tensor) -> None:
        """Store the values and labels of these rows, and count the visit and whether the sample was cut."""
        self.rows.index_copy_(0, row, values)
        self.visits.index_copy_(0, row, visits + 1)
        self.cuts.index_copy_(0, row, self.cuts[row] + cut)
        if target is not None:
            self.given.index_copy_(0, row, target)
        for buffer in (self.rows, self.visits, self.cuts):
            buffer[-1].zero_()  # several samples may share the spare row: its content is meaningless
        self.given[-1].fill_(-1)

    def _check(self, index: Tensor) -> None:
        """Raise an error for an invalid index.

        Indices on a device are checked occasionally, with a delay, and only if `n_samples` was given.
        """
        if index.device.type == "cpu":
            self._refuse(torch.stack(index.aminmax()))
        elif self.n_samples is not None and not torch.cuda.is_current_stream_capturing():
            if self._checks % _CHECK_EVERY == 0:
                self._copies.append(copy_to_host(torch.stack(index.aminmax())))
            self._checks += 1
            if self._copies and arrived(self._copies[0][1]):
                self._refuse(self._copies.pop(0)[0])

    def _refuse(self, ends: Tensor) -> None:
        low, high = ends.tolist()
        if low < 0 or (self.n_samples is not None and high >= self.n_samples):
            below = "" if self.n_samples is None else f" and below {self.argument}={self.n_samples}"
            raise ValueError(
                f"indices must be at least 0{below}, got {low} to {high}; pass the index of each sample in the data "
                f"set, and {self.argument}=len(dataset)"
            )

    def _refusal(self, name: str, buffer: Tensor, saved: Tensor) -> str:
        expected = self.n_samples + 1 if self.n_samples is not None else len(saved)
        if saved.dim() != buffer.dim() or len(saved) not in (1, expected):
            return (
                f"a memory for {self.argument}={self.n_samples} loads states of as many samples, got {name} of "
                f"{max(len(saved) - 1, 0)}; pass the {self.argument} of the loss that was saved, or None"
            )
        if name == "rows" and 0 < buffer.shape[1] != saved.shape[1] > 0:
            return (
                f"all outputs must have the same width, got a state of width {saved.shape[1]} after outputs of width "
                f"{buffer.shape[1]}; load it into a new AoRRLoss"
            )
        return ""

    def _largest(self, index: Tensor) -> int:
        if len(index) == 0:
            return -1
        if index.device.type == "cpu":
            return int(index.max())
        self._copies.append(copy_to_host(index.max()))
        if len(self._copies) <= _LAG:
            return _FIRST_ROWS - 1
        copy, event = self._copies.pop(0)
        event.synchronize()  # from an earlier batch, so the device does not have to wait
        return int(copy)

    def _resize(self, size: int, width: int, device: torch.device) -> None:
        kept = self.size
        for name, empty in (("rows", 0.0), ("visits", 0), ("cuts", 0), ("given", -1)):
            old = getattr(self, name)
            new = torch.full(
                (size + 1, width) if name == "rows" else (size + 1,), empty, dtype=old.dtype, device=device
            )
            if kept:
                new[:kept] = old[:kept].to(device)
            setattr(self, name, new)
