"""Files that appear whole or not at all.

Every output is written to a hidden temporary file beside its place, forced to the disk, and moved into place when all
of them are ready. Whatever happens before, a kill included, leaves the old file or none; what a kill leaves behind is a
dot file that ends in `.tmp` and cannot be taken for an output.
"""

from __future__ import annotations

import gzip
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UserError

Writer = Callable[[BinaryIO], None]


def check_places(outputs: Mapping[str, Path], inputs: Mapping[str, Path]) -> None:
    """Before any work, raise an error for outputs that could not be written or would overwrite what is read.

    Both mappings go from the name of an option to its path.
    """
    taken = {path.resolve(): option for option, path in inputs.items()}
    for option, path in outputs.items():
        if path.is_dir():
            raise UserError(f"{option} must name a file, got the folder {path}; add a file name")
        if not path.parent.is_dir():
            raise UserError(f"{option} must lie in a folder that exists, got {path}; make {path.parent} first")
        if path.exists() and not path.is_file():
            raise UserError(f"{option} must name a regular file, got {path}, a pipe or device; choose another place")
        place = path.resolve()
        if place in taken:
            raise UserError(f"{option} must not be {taken[place]}, got {path} for both; give it another name")
        taken[place] = option
        if not os.access(path.parent, os.W_OK):
            raise UserError(f"no permission to write into {path.parent}; choose another place for {option}")


def write_whole(outputs: Mapping[Path, bytes | Writer]) -> None:
    """Write all files, or none that is new: contents are bytes, or a function that writes them into a binary file."""
    ready: list[tuple[str, Path]] = []
    path = Path()
    try:
        for path, content in outputs.items():
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".tmp")
            ready.append((name, path))
            with os.fdopen(handle, "wb") as file:
                if callable(content):
                    content(file)
                else:
                    file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        while ready:
            name, path = ready[0]
            os.replace(name, path)
            ready.pop(0)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose another place"
        ) from error
    finally:
        for name, _ in ready:
            Path(name).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def packed(path: Path, write: Writer) -> Writer:
    """The writer itself, or one that packs what it writes where the name ends in .gz."""
    if path.suffix.lower() != ".gz":
        return write

    def zipped(file: BinaryIO) -> None:
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as inner:
            write(inner)  # type: ignore[arg-type]

    return zipped


def csv_lines(rows: Iterable[Iterable[Any]], delimiter: str) -> bytes:
    """Lines of CSV. Python's csv module leaves a carriage return without quotes, which would end the line there."""
    special = re.compile(f'["\r\n{re.escape(delimiter)}]')

    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"' if special.search(cell) else cell

    text = "".join(delimiter.join(quoted(str(cell)) for cell in row) + "\n" for row in rows)
    return text.encode("utf-8", "replace")
