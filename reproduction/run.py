"""Run the paper's experiments: python -m reproduction.run [NAME ...] [--protocol both] [--quick].

Each finished cell is a file below --out, so that an interrupted run continues where it stopped; a cell that must be run
again is deleted by hand. At the end `compare` writes results.md and the figures into the same folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from . import compare, data
from .experiments import NAMES, PROTOCOLS, Cell, module

ROOT = Path(__file__).parent.parent


def main(argv: list[str] | None = None) -> int:
    """Run the cells that are not finished, write the page, and return 0, or 1 if cells failed or lack data."""
    arguments = _parser().parse_args(argv)
    protocols = list(PROTOCOLS) if arguments.protocol == "both" else [arguments.protocol]
    names = [name for name in NAMES if not arguments.names or name in arguments.names]
    cells = [cell for name in names for p in protocols for cell in module(name).cells(p, arguments.quick)]
    if arguments.sets:
        cells = [cell for cell in cells if cell.dataset in arguments.sets]
    if arguments.splits:
        cells = [cell for cell in cells if cell.split < arguments.splits]
    ready, missing = _with_data(cells, arguments.download)
    todo = [cell for cell in ready if not (arguments.out / cell.file).exists()]
    _say(f"{len(cells)} cells, {len(ready) - len(todo)} finished, {len(missing)} without data")
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed, started, commit = 0, time.perf_counter(), _commit()
    ends = Parallel(arguments.jobs, return_as="generator_unordered")(
        delayed(work)(cell, arguments.out, commit) for cell in todo
    )
    for count, (cell, problem) in enumerate(ends, 1):
        failed += bool(problem)
        left = (time.perf_counter() - started) * (len(todo) - count) / count
        _say(f"{count} of {len(todo)}, {cell.file} {problem or 'done'}; about {left:.0f} s left")
    page = compare.write(arguments.out)
    _say(f"results: {page}")
    return 1 if failed or missing else 0


def work(cell: Cell, out: Path, commit: str) -> tuple[Cell, str]:
    """Run a cell in one thread and write its file, whole or not at all; return the error as text, empty if none."""
    started = time.process_time()
    try:
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")  # candidates that did not converge are used like the others
            rows, extra = module(cell.experiment).run(cell)
    except Exception as error:
        return cell, f"failed: {type(error).__name__}: {error}"
    record = {
        **asdict(cell),
        "seed": cell.seed,
        "commit": commit,
        "seconds": round(time.process_time() - started, 2),
        "rows": [tuple(row) for row in rows],
        "extra": extra,
    }
    write_whole(out / cell.file, json.dumps(record, allow_nan=False, indent=1))
    return cell, ""


def write_whole(path: Path, text: str) -> None:
    """Write a file that is complete or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m reproduction.run", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--protocol", choices=[*PROTOCOLS, "both"], default="both")
    parser.add_argument("--quick", action="store_true", help="few splits, small grids and few steps: half a minute")
    parser.add_argument("--sets", nargs="+", choices=data.names(), metavar="SET", help="only these data sets")
    parser.add_argument("--splits", type=int, metavar="N", help="at most the first N splits")
    parser.add_argument("--out", type=Path, default=Path("rankrange-results"), help="default: rankrange-results")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes; default: one per core")
    parser.add_argument("--download", action="store_true", help="fetch missing data sets from OpenML")
    return parser


def _with_data(cells: list[Cell], download: bool) -> tuple[list[Cell], list[Cell]]:
    """The cells whose data can be loaded, and the others; what is missing is printed."""
    absent: dict[str, Any] = {}
    for name in dict.fromkeys(cell.dataset for cell in cells):
        try:
            data.load(name, download=download)
        except (FileNotFoundError, ValueError) as error:
            absent[name] = error
            _say(f"{name}: {error}")
    return [c for c in cells if c.dataset not in absent], [c for c in cells if c.dataset in absent]


def _commit() -> str:
    """The commit and the versions behind the numbers."""
    asked = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    packages = " ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    return f"{asked.stdout.strip() or 'unknown'}, Python {sys.version.split()[0]} {packages}"


def _say(text: str) -> None:
    print(f"reproduction: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
