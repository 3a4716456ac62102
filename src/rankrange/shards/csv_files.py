"""CSV for scans: converted once to Arrow, which can be read from any row on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .readers import pyarrow_module, readable

_BLOCK_BYTES = 1 << 24


def converted(path: Path, target: Any, folder: str) -> Path:
    """The same table as an Arrow file in `folder`: features as float64, the target as it is."""
    arrow_csv, pyarrow = pyarrow_module("csv"), pyarrow_module()
    out = Path(folder) / (path.stem + ".arrow")
    read = arrow_csv.ReadOptions(block_size=_BLOCK_BYTES)
    with readable(str(path), str(path)):
        with arrow_csv.open_csv(path, read) as head:
            names = head.schema.names
        kinds = {name: pyarrow.float64() for name in names if name != target}
        convert = arrow_csv.ConvertOptions(column_types=kinds)
        with (
            arrow_csv.open_csv(path, read, convert_options=convert) as reader,
            pyarrow.ipc.new_file(f"{out}.part", reader.schema) as writer,
        ):
            for batch in reader:
                writer.write_batch(batch)
    os.replace(f"{out}.part", out)
    return out
