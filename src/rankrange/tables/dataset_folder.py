"""Folders saved by Hugging Face `datasets`, and folders of Parquet files: the files of their table.

Class labels are converted to their names, images and audio to the paths of their files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..pages.text import visible


def files_of(folder: Path) -> list[Path]:
    """The Arrow streams of a saved data set, in order, or the Parquet files of a folder or of its `data`."""
    if (folder / "dataset_dict.json").is_file():
        names = [str(name) for name in _list_in(folder / "dataset_dict.json", "splits")] or ["train"]
        raise UserError(
            f"one split is audited at a time, got {visible(', '.join(names), 80)} in {folder}; name one, such as "
            f"{folder / names[0]}"
        )
    if (folder / "state.json").is_file():
        files = _list_in(folder / "state.json", "_data_files")
        names = [str(entry.get("filename", "..")) for entry in files if isinstance(entry, dict)]
        # A name that contains a folder could point outside of this folder.
        if not names or any(Path(name).name != name or name in (".", "..") for name in names):
            raise UserError(f"state.json must name Arrow files of its folder, got others in {folder}; save it again")
        return [folder / name for name in names]
    found = sorted(folder.glob("*.parquet")) or sorted((folder / "data").glob("*.parquet"))
    if not found:
        raise UserError(
            "a table is a file, or a folder with state.json (a saved data set) or Parquet files, got the folder "
            f"{folder}; name a file in it"
        )
    return found


def read_stream(path: Path) -> Any:
    """Read an Arrow stream as a pyarrow Table that stays on disk, with the types of the data set that it is part of."""
    import pyarrow

    table = pyarrow.ipc.open_stream(pyarrow.memory_map(str(path))).read_all()
    info = path.parent / "dataset_info.json"
    features = _facts(info).get("features") if info.is_file() else None
    for index, name in enumerate(table.schema.names):
        feature = features.get(name) if isinstance(features, dict) else None
        if isinstance(feature, dict):
            table = table.set_column(
                index, name, _decoded(table.column(index), feature, f"'{visible(name, 60)}', {path}")
            )
    return table


def _list_in(path: Path, key: str) -> list[Any]:
    found = _facts(path).get(key)
    return found if isinstance(found, list) else []


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path} ({visible(str(error), 80)}); save the data set again") from error
    return facts if isinstance(facts, dict) else {}


def _decoded(column: Any, feature: dict[str, Any], where: str) -> Any:
    """Class labels as their names (None if negative), images and audio as the paths of their files, others unchanged.

    A class label without a name is an error.
    """
    import pyarrow

    kind = feature.get("_type")
    if kind == "ClassLabel" and pyarrow.types.is_integer(column.type):
        labels = dict(enumerate(map(str, feature.get("names") or [])))
        codes = column.to_pylist()
        if any(code is not None and code >= len(labels) for code in codes):
            raise UserError(f"class labels must have names, got a code without one in {where}; save the data set again")
        return pyarrow.array([labels.get(code) for code in codes], type=pyarrow.string())
    if kind in ("Image", "Audio") and pyarrow.types.is_struct(column.type):
        return pyarrow.array([cell and cell.get("path") for cell in column.to_pylist()], pyarrow.string())
    return column
