"""Build the site: `make docs`, or `python docs/build.py [--draft]`.

Tables and plots are drawn from the recorded results first, then Sphinx runs with warnings as errors. Nothing asks the
network. `--draft` leaves the examples of the gallery unrun, for work on texts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PAGES = HERE / "_build" / "html"


def _step(what: str, *command: str) -> None:
    began = time.monotonic()
    subprocess.run([sys.executable, *command], check=True, cwd=HERE)
    print(f"{what}: {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draft", action="store_true", help="do not run the examples of the gallery")
    given = parser.parse_args()
    os.environ["RANKRANGE_DRAW_GALLERY"] = "0" if given.draft else "1"
    _step("tables and plots of the benchmarks", "draw_benchmarks.py")
    jobs = str(min(2, os.cpu_count() or 1))
    strict = [] if given.draft else ["-W", "--keep-going"]
    _step("the site", "-m", "sphinx", "-q", "-b", "html", "-j", jobs, *strict, ".", str(PAGES))
    print(f"open {PAGES / 'index.html'}")


if __name__ == "__main__":
    main()
