"""`rankrange datasets`: the paper's data sets, which of them are available, and how to get the others."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from .entry import add_file

HELP = "list the data sets of the paper, and which are available"
DESCRIPTION = """\
List the data sets that rankrange.datasets.load can load: which are available, in which folder, and how to get the
others. Nothing is downloaded.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rankrange datasets`."""
    add_file(
        parser,
        "--data-home",
        metavar="DIR",
        help="the folder to look in (default: the environment variable RANKRANGE_DATA)",
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the list of data sets, and return the exit code."""
    from ..datasets import names

    folder = arguments.data_home or (Path(os.environ["RANKRANGE_DATA"]) if os.environ.get("RANKRANGE_DATA") else None)
    found = [_availability(name, folder) for name in names()]
    if arguments.json:
        json.dump({"folder": None if folder is None else str(folder), "datasets": found}, sys.stdout, indent=1)
        print()
        return 0
    width = max(len(entry["name"]) for entry in found) + 2
    for entry in found:
        print(f"{entry['name']:<{width}}{'yes' if entry['available'] else 'no':<5}{entry['where']}")
    print()
    if folder is None:
        print("No folder is set: set RANKRANGE_DATA or pass --data-home. docs/how-to/datasets.md describes the files.")
    else:
        print(f"The folder is {folder}. docs/how-to/datasets.md describes the files.")
    missing = [entry["name"] for entry in found if not entry["available"]]
    if missing:
        print(f"Missing: {', '.join(missing)}. `rankrange reproduce --download` downloads them from OpenML.")
    return 0


def _availability(name: str, folder: Path | None) -> dict[str, Any]:
    from ..datasets.files import TABLES
    from ..datasets.made import MADE, TOYS

    if name in MADE or name in TOYS:
        return {"name": name, "available": True, "where": "generated, needs no file"}
    files = [f"{name}.csv.gz"] if name in TABLES else _mnist_files()
    missing = [file for file in files if folder is None or not (folder / file).is_file()]
    if not missing:
        return {"name": name, "available": True, "where": f"{folder}"}
    source = f"OpenML {TABLES[name].openml}" if name in TABLES else "OpenML 554"
    return {
        "name": name,
        "available": False,
        "where": f"needs {missing[0]}{' ...' if len(missing) > 1 else ''}, or {source}",
    }


def _mnist_files() -> list[str]:
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return [f"mnist/{part}-ubyte.gz" for part in parts]
