"""Finished cells on disk, one JSON file each, written atomically.

A run folder holds `run.json` (size, versions and the calls of the command) and `cells/KEY.json`. A file is written
under a temporary name, synced to disk and then moved, so a killed process loses at most its current cells. A resumed
run reads the finished cells and computes the others.
"""

from __future__ import annotations

import json
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import UserError
from ...tables.write import write_whole
from .cells import Cell, Measure, Outcome

_PACKAGES = ("numpy", "scipy", "scikit-learn", "torch")


def versions() -> dict[str, str]:
    """Versions that the numbers may depend on, in addition to the seed."""
    found = {"rankrange": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def commit() -> str | None:
    """The commit of the checkout that the package runs from, with a plus if files differ; None without a checkout."""
    folder = Path(__file__).resolve().parent
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


@dataclass(frozen=True)
class Store:
    """A run folder with its manifest and its finished cells."""

    folder: Path

    @property
    def cells(self) -> Path:
        """The folder of finished cells."""
        return self.folder / "cells"

    def path(self, cell: Cell) -> Path:
        """The path at which a cell is stored."""
        return self.cells / f"{cell.key}.json"

    def open(self, size: str, *, resume: bool) -> None:
        """Create the folder or, with `resume`, check that the run in it has the same size and versions.

        If they differ, or if the folder is not empty without `resume`, a UserError is raised. Temporary files of a
        killed process are deleted.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise UserError(f"--out must be a folder, got the file {self.folder}; choose another name")
        old = any(self.folder.iterdir()) if self.folder.exists() else False
        if old and not resume:
            raise UserError(
                f"--out must be a new or an empty folder, got {self.folder}, which holds files; add --resume to go on "
                "with an earlier run, or choose another folder"
            )
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make {self.cells}: {error.strerror}; choose another place with --out") from error
        for left in self.cells.glob(".*.tmp"):  # of a process that was killed
            left.unlink(missing_ok=True)
        manifest = self.manifest()
        if manifest is None:
            begun: dict[str, Any] = {"size": size, "versions": versions(), "commit": commit(), "passes": []}
            self._write(self.folder / "run.json", begun)
            return
        for what, stored, now in (("size", manifest["size"], size), ("versions", manifest["versions"], versions())):
            if stored != now:
                raise UserError(
                    f"a run can be resumed only with the same plan and versions, got {what} {_differ(stored, now)}; "
                    "choose a new folder with --out"
                )

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the run (run.json); None if there is none or it is damaged."""
        try:
            return json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def note(self, seconds: float, **facts: Any) -> None:
        """Add one call of the command to the manifest: its end, its duration and its work."""
        manifest = self.manifest() or {"versions": versions(), "passes": []}
        ended = datetime.now(timezone.utc).isoformat(timespec="seconds")
        manifest["passes"].append({"ended": ended, "seconds": round(seconds, 1), **facts})
        self._write(self.folder / "run.json", manifest)

    def write(self, cell: Cell, outcome: Outcome, seconds: float, work: float) -> None:
        """Store a finished cell with its wall time and its core time, both in seconds."""
        content = {
            "cell": asdict(cell),
            "seed": cell.seed,
            "protocol": cell.protocol,
            "size": cell.size,
            "versions": versions(),
            "commit": commit(),
            "seconds": round(seconds, 3),
            "core_seconds": round(work, 3),
            "measures": [asdict(measure) for measure in outcome.measures],
            "extra": outcome.extra,
        }
        self._write(self.path(cell), content)

    def read(self, cell: Cell) -> Outcome | None:
        """The outcome of a finished cell; None if it is not finished or its file is damaged.

        A cell of other versions raises a UserError.
        """
        found = self._load(self.path(cell))
        if found is None or found.get("cell") != asdict(cell):
            return None
        if found["versions"] != versions():
            raise UserError(
                f"a run can be resumed only with the same versions, got {_differ(found['versions'], versions())} in "
                f"{self.path(cell)}; choose a new folder with --out"
            )
        return _outcome(found)

    def finished(self) -> list[tuple[Cell, Outcome, float]]:
        """All finished cells with their core seconds, whatever their versions."""
        found = (self._load(path) for path in sorted(self.cells.glob("*.json")))
        return [(Cell(**entry["cell"]), _outcome(entry), float(entry["core_seconds"])) for entry in found if entry]

    def commits(self) -> dict[str, list[str]]:
        """The commits by which finished cells were computed, by experiment and protocol: "binary (honest)"."""
        found: dict[str, set[str]] = {}
        for path in sorted(self.cells.glob("*.json")):
            entry = self._load(path)
            if entry:
                name = f"{entry['cell']['experiment']} ({entry['cell']['protocol']})"
                found.setdefault(name, set()).add(entry.get("commit") or "unknown")
        return {name: sorted(made_by) for name, made_by in found.items()}

    @staticmethod
    def _load(path: Path) -> dict[str, Any] | None:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):  # the cell of a damaged file is computed again
            return None

    @staticmethod
    def _write(path: Path, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
        write_whole({path: text.encode()})


def _outcome(entry: dict[str, Any]) -> Outcome:
    return Outcome([Measure(**measure) for measure in entry["measures"]], entry["extra"])


def _differ(stored: Any, now: Any) -> str:
    if not isinstance(stored, dict):
        return f"{stored!r} in the folder and {now!r} now"
    names = sorted(name for name in stored.keys() | now.keys() if stored.get(name) != now.get(name))
    return "; ".join(f"{name} {stored.get(name)} in the folder and {now.get(name)} now" for name in names)
