"""Build wheel and sdist, check what is in them, install the wheel into an empty environment, and run the demo there.

python docs/release_check.py

It also runs a few tests from the unpacked sdist, so that whoever packages the library can run them all.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def _run(*command: str | Path, cwd: Path = ROOT) -> None:
    print("$", " ".join(str(part) for part in command), flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=cwd)


def _build() -> tuple[Path, Path]:
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", DIST)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def _check_contents(wheel: Path, sdist: Path) -> None:
    _run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    _run(sys.executable, "-m", "check_wheel_contents", wheel)
    inside = zipfile.ZipFile(wheel).namelist()
    strangers = [name for name in inside if not name.startswith(("rankrange/", "rankrange-"))]
    unexpected = [name for name in inside if Path(name).suffix in (".csv", ".npz", ".parquet") or "test" in name]
    unexpected += [name for name in inside if name.startswith(("rankrange/paper/", "rankrange/datasets/"))]
    if strangers or unexpected:
        raise SystemExit(f"the wheel holds more than the package: {strangers + unexpected}")
    print(f"wheel: {len(inside)} files, {wheel.stat().st_size / 1e3:.0f} kB; sdist {sdist.stat().st_size / 1e3:.0f} kB")


def _try_in_an_empty_environment(wheel: Path, sdist: Path, folder: Path) -> None:
    venv.create(folder / "empty", with_pip=True)
    python = folder / "empty" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    install = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    _run(*install, f"{wheel}[app]")
    _run(python, "-m", "rankrange", "demo", cwd=folder)
    if not list(folder.glob("rankrange-demo*.html")):
        raise SystemExit("the demo wrote no report")
    _run(*install, "pytest", "hypothesis", "mpmath")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "sdist", filter="data")
    (unpacked,) = (folder / "sdist").iterdir()
    _run(
        python,
        "-m",
        "pytest",
        "-q",
        "tests/core/test_ranges.py",
        "tests/core/test_select.py",
        "tests/test_metrics.py",
        cwd=unpacked,
    )


def main() -> None:
    wheel, sdist = _build()
    _check_contents(wheel, sdist)
    with tempfile.TemporaryDirectory() as folder:
        _try_in_an_empty_environment(wheel, sdist, Path(folder))
    print("the release can go out")


if __name__ == "__main__":
    main()
