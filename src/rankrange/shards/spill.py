"""Plain copies of rows on disk: the first pass writes them while it reads, later passes need no decoding."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from .readers import FileShard, Layout, Part
from .row_blocks import Batch


class Spilling:
    """A shard that leaves its rows in `folder` as X.npy, y.npy and weight.npy while they pass by.

    Files are written under other names and take their own when all rows are there, so that a pass that ends early
    leaves nothing behind that looks whole.
    """

    def __init__(self, shard: FileShard, folder: str, n: int, layout: Layout) -> None:
        self.shard, self.folder, self.n, self.layout = shard, Path(folder), n, layout
        self.start, self.stop = shard.start, shard.stop
        self._codes: dict[Any, int] = {}
        self._coded = False

    def batches(self) -> Iterator[Batch]:
        """The rows, batch by batch, written to the copy as they pass."""
        files: dict[str, Any] = {}
        try:
            for batch in self.shard.batches():
                for name, values in self._columns(batch):
                    if name not in files:
                        files[name] = self._open(name, values)
                    files[name].write(np.ascontiguousarray(values).data)
                yield batch
        finally:
            for file in files.values():
                file.close()

    def _columns(self, batch: Batch) -> Iterator[tuple[str, Array]]:
        yield "X", np.asarray(batch.X, dtype=self.layout.dtype)
        yield "y", self._plain(batch.y)
        if batch.weight is not None:
            yield "weight", batch.weight

    def _plain(self, y: Array) -> Array:
        """Labels that are not numbers as codes, in the order in which they come."""
        if y.dtype.kind in "fiub" and not self._coded:
            return y
        self._coded = True
        values, inverse = np.unique(y.astype(str), return_inverse=True)
        return np.array([self._codes.setdefault(str(v), len(self._codes)) for v in values], dtype=np.int32)[inverse]

    def _open(self, name: str, values: Array) -> Any:
        file = open(self.folder / f"{name}.npy.part", "wb")  # noqa: SIM115 - closed when the pass ends
        header = {"descr": values.dtype.str, "fortran_order": False, "shape": (self.n, *values.shape[1:])}
        np.lib.format.write_array_header_1_0(file, header)
        return file

    def finish(self) -> tuple[tuple[Part, ...], Layout]:
        """Give the files their names; the parts and the layout of the copy."""
        names = ["X", "y"] + (["weight"] if self.layout.weight is not None else [])
        paths = {name: str(self.folder / f"{name}.npy") for name in names}
        for path in paths.values():
            os.replace(path + ".part", path)
        labels = np.array(list(self._codes)) if self._coded else None
        features = tuple(self.layout.features)
        layout = Layout("npy", features, paths["y"], paths.get("weight"), self.layout.dtype, labels)
        return (Part(paths["X"], 0, 0, self.n, paths["X"]),), layout

    def abandon(self) -> None:
        """Remove what was begun."""
        for name in ("X", "y", "weight"):
            (self.folder / f"{name}.npy.part").unlink(missing_ok=True)
