"""What is remembered of each sample from one visit to the next, by its index in the data set.

A row is a running mean: the softmax of the sample where classes are few, else one or two numbers. Rows live on the
device of the losses and in the state_dict. Nothing here waits for the device: an index beyond the rows there are goes
to a spare last row, and where the size of the data set was not given, the rows grow some batches later, from a copy of
the largest index that has long arrived.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_FIRST_ROWS = 1 << 12
_LAG = 8  # batches between asking the device for its largest index and reading the answer


class Resizable(nn.Module):
    """A module whose buffers take the shape that a checkpoint has: what is remembered is not known at the start."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, buffer in list(self._buffers.items()):
            saved = state_dict.get(prefix + name)
            if saved is not None and buffer is not None and saved.shape != buffer.shape:
                setattr(self, name, torch.zeros_like(saved, device=buffer.device))
        super()._load_from_state_dict(state_dict, prefix, *args)


class Memory(Resizable):
    """Running means by sample index, with the label, the number of visits and how often the sample was cut.

    Parameters
    ----------
    n_samples : int or None
        Indices are below this; None lets the memory grow with the indices it sees.
    factor : float
        What a visit leaves of the past: new = factor * old + (1 - factor) * seen. The first visit is taken as it is.
    """

    rows: Tensor
    visits: Tensor
    cuts: Tensor
    given: Tensor

    def __init__(self, n_samples: int | None, factor: float) -> None:
        super().__init__()
        if n_samples is not None and (isinstance(n_samples, bool) or not isinstance(n_samples, int) or n_samples < 1):
            raise ValueError(
                f"n_samples must be the number of samples that indices point into, got {n_samples!r}; "
                "pass n_samples=len(dataset), or None to let the memory grow"
            )
        self.n_samples, self.factor = n_samples, factor
        self.register_buffer("rows", torch.zeros(1, 0))
        self.register_buffer("visits", torch.zeros(1, dtype=torch.int32))
        self.register_buffer("cuts", torch.zeros(1, dtype=torch.int32))
        self.register_buffer("given", torch.full((1,), -1, dtype=torch.int64))
        self._asked: list[tuple[Tensor, Any]] = []

    @property
    def size(self) -> int:
        return len(self.visits) - 1

    def prepare(self, index: Tensor, width: int, device: torch.device) -> None:
        """Make room for what is about to come: rows of this width on this device, as many as are known to be needed."""
        rows = self.rows
        needed = self.n_samples or (self.size if torch.compiler.is_compiling() else self._largest(index) + 1)
        if needed < rows.shape[0] and rows.shape[1] == width and rows.device == device:
            return
        if self.rows.shape[1] not in (0, width):
            raise ValueError(
                f"a memory keeps one kind of row, got outputs of width {width} after width {self.rows.shape[1]}; "
                "use one AoRRLoss per model"
            )
        size = self.size if needed <= self.size else needed if self.n_samples else max(needed, 2 * self.size)
        self._resize(size, width, device)

    def place(self, index: Tensor, device: torch.device) -> Tensor:
        """The row of each index; the last one for indices that have none."""
        on_host = index.device.type == "cpu"
        index = index.to(device, non_blocking=True)
        if on_host or self.n_samples is not None:
            return index
        return torch.where((index >= 0) & (index < self.size), index, self.size)

    def recall(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, visits) of these places as they are; a place without a sample was never visited."""
        return self.rows[place], self.visits[place]

    def remember(self, place: Tensor, values: Tensor, visits: Tensor, target: Tensor | None, cut: Tensor) -> None:
        """Store the rows, and count the visit and whether the sample was cut."""
        self.rows.index_copy_(0, place, values)
        self.visits.index_copy_(0, place, visits + 1)
        self.cuts.index_copy_(0, place, self.cuts[place] + cut)
        if target is not None:
            self.given.index_copy_(0, place, target)
        for buffer in (self.rows, self.visits, self.cuts):
            buffer[-1].zero_()  # many samples may have met there: what the last of them left is nobody's
        self.given[-1].fill_(-1)

    def _largest(self, index: Tensor) -> int:
        if len(index) == 0:
            return -1
        if index.device.type == "cpu":
            return int(index.max())
        answer = torch.empty((), dtype=torch.int64, pin_memory=True).copy_(index.max(), non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        self._asked.append((answer, arrived))
        if len(self._asked) <= _LAG:
            return _FIRST_ROWS - 1
        answer, arrived = self._asked.pop(0)
        arrived.synchronize()  # of a batch long ago: the device has the batches since then to work on
        return int(answer)

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
