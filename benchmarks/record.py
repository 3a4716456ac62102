"""Where benchmarks leave their figures: one row per measurement in benchmarks/results/NAME.csv, with commit and device.

Rows of a run are appended by one write to a file opened for appending, so that runs at the same time do not mix; a new
file gets its header the same way. A file whose columns differ from the rows is an error, never mixed.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"


def append(name: str, rows: Sequence[Mapping[str, Any]], device: str | None = None) -> Path:
    """Add the rows of one run, each with date, commit, device and versions before its own columns."""
    full = [{**circumstances(device), **row} for row in rows]
    path = RESULTS / f"{name}.csv"
    RESULTS.mkdir(exist_ok=True)
    header = ",".join(full[0])
    if path.exists() and path.read_text(encoding="utf-8").partition("\n")[0] != header:
        raise SystemExit(f"{path} has other columns than this run, which has {header}; move it away first")
    text = io.StringIO()
    if not path.exists():
        text.write(header + "\n")
    csv.DictWriter(text, full[0], lineterminator="\n").writerows(full)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, text.getvalue().encode())
    finally:
        os.close(handle)
    return path


def circumstances(device: str | None = None) -> dict[str, str]:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "commit": _commit(),
        "device": device or _processor(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _commit() -> str:
    """The commit, with a + where the source differs from it; a copy without history names it in RANKRANGE_COMMIT."""
    if "RANKRANGE_COMMIT" in os.environ:
        return os.environ["RANKRANGE_COMMIT"]
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        result = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=False)
        return result.stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if git("status", "--short", "../src") else "")


def _processor() -> str:
    name = platform.processor() or platform.machine()
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {os.cpu_count()} cores".replace(",", ";")
