"""Read folders saved by Hugging Face `datasets`, and folders of Parquet files, as one table.

`Dataset.save_to_disk` writes Arrow streams, `state.json` (the files in order) and `dataset_info.json` (the types of the
columns). Class labels are converted to their names, images and audio to the paths of their files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..pages.text import visible


def load_folder(folder: Path) -> Any:
    """Read a folder of `Dataset.save_to_disk`, or the Parquet files of a folder, as one pyarrow Table.

    If the folder itself has no Parquet files, those of its subfolder `data` are read. Class labels of a saved data set
    become texts. It is an error if the folder is neither, has several splits, or a file is missing or damaged.
    """
    import pyarrow.parquet

    if (folder / "dataset_dict.json").is_file():
        splits = _facts(folder / "dataset_dict.json").get("splits")
        names = [str(name) for name in splits] if isinstance(splits, list) else []
        raise UserError(
            f"one split is audited at a time, got {visible(', '.join(names), 80)} in {folder}; name one, such as "
            f"{folder / (names[0] if names else 'train')}"
        )
    if (folder / "state.json").is_file():
        return _saved(folder)
    files = sorted(folder.glob("*.parquet")) or sorted((folder / "data").glob("*.parquet"))
    if not files:
        raise UserError(
            "a table is a file, or a folder with state.json (a saved data set) or Parquet files, got the folder "
            f"{folder}; name a file in it"
        )
    return _joined(folder, files, pyarrow.parquet.read_table)


def read_stream(path: Path) -> Any:
    """Read an Arrow stream as a pyarrow Table that stays on disk."""
    import pyarrow

    return pyarrow.ipc.open_stream(pyarrow.memory_map(str(path))).read_all()


def _saved(folder: Path) -> Any:
    files = _facts(folder / "state.json").get("_data_files")
    names = [entry.get("filename") for entry in files if isinstance(entry, dict)] if isinstance(files, list) else []
    # A name that contains a folder could point outside of this folder.
    odd = [name for name in names if not isinstance(name, str) or Path(name).name != name or name in (".", "..")]
    if odd or not names:
        raise UserError(f"state.json must name Arrow files of its folder, got other names in {folder}; save it again")
    table = _joined(folder, [folder / str(name) for name in names], read_stream)
    info = folder / "dataset_info.json"
    features = _facts(info).get("features") if info.is_file() else None
    for index, name in enumerate(table.schema.names):
        feature = features.get(name) if isinstance(features, dict) else None
        if isinstance(feature, dict):
            table = table.set_column(index, name, _decoded(table.column(index), feature, name, folder))
    return table


def _joined(folder: Path, files: list[Path], read: Callable[[Path], Any]) -> Any:
    import pyarrow

    try:
        return pyarrow.concat_tables([read(file) for file in files], promote_options="permissive")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"cannot read the data set in {folder} ({visible(str(error), 100)}); save it again") from error


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path} ({visible(str(error), 80)}); save the data set again") from error
    return facts if isinstance(facts, dict) else {}


def _decoded(column: Any, feature: dict[str, Any], name: str, folder: Path) -> Any:
    """Class labels as their names (None if negative), images and audio as the paths of their files, others unchanged.

    A class label without a name is an error.
    """
    import pyarrow

    kind = feature.get("_type")
    if kind == "ClassLabel" and pyarrow.types.is_integer(column.type):
        labels = [str(label) for label in feature.get("names") or []]
        codes = column.to_pylist()
        if any(code is not None and code >= len(labels) for code in codes):
            raise UserError(f"class labels must have names, got a code without one in '{visible(name, 60)}', {folder}")
        cells = [None if code is None or code < 0 else labels[code] for code in codes]
    elif kind in ("Image", "Audio") and pyarrow.types.is_struct(column.type):
        cells = [None if cell is None else cell.get("path") for cell in column.to_pylist()]
    else:
        return column
    return pyarrow.array(cells, type=pyarrow.string())
