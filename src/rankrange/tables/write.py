"""Atomic writes: every output is written to a hidden file in its folder and moved into place when all are ready.

An error before that leaves the old files or none. So does a kill, which may leave a hidden file that ends in `.tmp`.
"""

from __future__ import annotations

import gzip
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import UserError
from ..pages.text import csv_safe

Writer = Callable[[BinaryIO], None]


def check_paths(
    outputs: Mapping[str, Path | None],
    inputs: Iterable[tuple[str, Path | None]] = (),
    beside: Mapping[Path, Path] | None = None,
) -> dict[str, Path]:
    """The outputs that are asked for; an error if one cannot be written or would overwrite an input or another output.

    `outputs` has the path of each option, or None, `inputs` what is read, and `beside` the files that are written
    beside an output without being named: they replace older ones only together with the output.
    """
    taken = {path.resolve(): option for option, path in inputs if path is not None}
    folders = {path for path in taken if path.is_dir()}
    asked = {option: path for option, path in outputs.items() if path is not None}
    for path, output in (beside or {}).items():
        if path.exists() and not output.exists():
            raise UserError(f"{path} would be written beside {output}, got a file that exists; choose another name")
    implied = {f"the file beside {output.name}": path for path, output in (beside or {}).items()}
    for option, path in {**asked, **implied}.items():
        if path.is_dir():
            raise UserError(f"{option} must name a file, got the folder {path}; add a file name")
        if not path.parent.is_dir():
            raise UserError(f"{option} must lie in a folder that exists, got {path}; make {path.parent} first")
        if path.exists() and not path.is_file():
            raise UserError(f"{option} must name a regular file, got {path}, a pipe or device; choose another path")
        if not os.access(path.parent, os.W_OK):
            raise UserError(f"no permission to write into {path.parent}; choose another path for {option}")
        if path.exists() and folders & set(path.resolve().parents):
            raise UserError(f"{option} must not replace a file of a folder that is read, got {path}; choose another")
        other = taken.setdefault(path.resolve(), option)
        if other != option:
            raise UserError(f"{option} must not be {other}, got {path} for both; give it another name")
    return asked


def write_whole(outputs: Mapping[Path, bytes | Writer]) -> None:
    """Write all files or none, unless an error comes between two moves into place.

    Contents are bytes, or a function that writes to a binary file. An OSError is raised as a UserError.
    """
    drafts: dict[Path, Path] = {}
    path = Path()
    try:
        for path, content in outputs.items():
            draft = path.parent / f".{path.name[:100]}.{secrets.token_hex(6)}.tmp"
            with draft.open("xb") as file:
                drafts[path] = draft
                if callable(content):
                    content(file)
                else:
                    file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for path, draft in drafts.items():
            draft.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; free some space or choose another") from error
    finally:
        for draft in drafts.values():
            draft.unlink(missing_ok=True)


def packed(path: Path, write: Writer) -> Writer:
    """Return the writer, or a writer that compresses its output with gzip if the name of the path ends in .gz."""
    if path.suffix.lower() != ".gz":
        return write

    def zipped(file: BinaryIO) -> None:
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as inner:
            write(inner)  # type: ignore[arg-type]

    return zipped


def csv_lines(rows: Iterable[Iterable[Any]], delimiter: str = ",", *, safe: bool = True) -> bytes:
    """Lines of CSV in UTF-8, with "\\n" as line end; characters that UTF-8 cannot encode become "?".

    Cells like formulas get a leading apostrophe, unless `safe` is false. A single carriage return is quoted, which
    Python's csv module may leave out.
    """
    special = re.compile(f'["\r\n{re.escape(delimiter)}]')

    def quoted(cell: str) -> str:
        cell = csv_safe(cell) if safe else cell
        return '"' + cell.replace('"', '""') + '"' if special.search(cell) else cell

    text = "".join(delimiter.join(quoted(str(cell)) for cell in row) + "\n" for row in rows)
    return text.encode("utf-8", "replace")
