"""`rankrange reproduce`: run the paper's experiments and compare the results with the printed numbers."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

from ...errors import UserError
from .. import EXPERIMENTS, experiment
from .cells import PROTOCOLS, Cell, Plan
from .printed import Row, moved
from .publish import write_pages
from .runner import run_cells
from .store import Store
from .tables_page import read_record

DESCRIPTION = """\
Run the paper's experiments and write results.json, results.md and results.html,
which compare each number with the printed one. Finished cells are stored:
--resume continues after an interruption and gives the same numbers."""
EPILOG = "exit codes: 0 done, 1 some experiments failed or lack data, 2 bad input, 130 interrupted."
_DEFAULT_OUT = "rankrange-results"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `rankrange reproduce`."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"experiments to run (default: all): {', '.join(EXPERIMENTS)}"
    )
    parser.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default="honest",
        help="honest: every choice on training and validation rows (default); paper: what the paper describes, if "
        "that differs",
    )
    parser.add_argument("--quick", action="store_true", help="fewer splits and grid points: minutes for everything")
    parser.add_argument("--smoke", action="store_true", help=argparse.SUPPRESS)  # seconds: for tests
    parser.add_argument("--resume", action="store_true", help="resume the run in --out")
    parser.add_argument(
        "--out", type=Path, default=Path(_DEFAULT_OUT), metavar="FOLDER", help=f"run folder (default: {_DEFAULT_OUT})"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="how many processes to use (default: one per core)",
    )
    parser.add_argument("--download", action="store_true", help="download missing data sets from OpenML")
    parser.add_argument("--list", action="store_true", help="list the experiments and the data they need")
    parser.add_argument("--pages-only", action="store_true", help="run nothing; write the pages from finished cells")
    parser.add_argument("--pages", type=Path, metavar="FOLDER", help="where to write the pages (default: --out)")
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        help="a results.json of an earlier run: list the numbers that differ by more than noise",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="pages of an earlier run, used for experiments that are not finished in this one",
    )
    parser.add_argument("--readme", type=Path, metavar="FILE", help="replace the block of results in this README")


def run(arguments: argparse.Namespace) -> int:
    """Run the experiments and write the pages, and return the exit code.

    0 done, 1 some cells failed or lack data, 2 bad input, 130 interrupted.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the workers too, as Ctrl-C does
    try:
        return _run(arguments)
    except UserError as error:
        _progress(str(error))
        return 2
    except KeyboardInterrupt:
        _progress(f"interrupted; finished cells are in {arguments.out}, go on with --resume")
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(arguments: argparse.Namespace) -> int:
    modules = _modules(arguments.names)
    if arguments.jobs < 1:
        raise UserError(f"--jobs must be at least 1, got {arguments.jobs}; leave it out for one process per core")
    if arguments.list:
        return _list(modules, arguments.download)
    store = Store(arguments.out)
    pages = arguments.pages or arguments.out
    if arguments.compare is not None:
        earlier = read_record(arguments.compare)  # read before any work, so a damaged file is reported immediately
    if arguments.pages_only:
        report = write_pages(store, pages, arguments.readme, arguments.keep)
        _progress(f"pages are in {pages.resolve()}")
        if arguments.compare is not None:
            _compare(earlier, report.rows)
        return 0
    size = "smoke" if arguments.smoke else "quick" if arguments.quick else "full"
    plan = Plan(arguments.protocol, size)
    wanted = [cell for module in modules.values() for cell in module.cells(plan)]
    cells = _with_data(wanted, modules, arguments.download)
    if wanted and not cells:
        raise UserError("nothing can be run: the data of every experiment asked for are missing")
    store.open(size, resume=arguments.resume)
    started = time.perf_counter()
    failures = run_cells(cells, store, jobs=arguments.jobs, progress=_progress)
    what = f"{' '.join(modules) if len(modules) < len(EXPERIMENTS) else 'all experiments'}, {plan.protocol} protocol:"
    store.note(time.perf_counter() - started, what=what, jobs=arguments.jobs, cells=len(cells), failed=len(failures))
    if len(failures) < len(cells) or not cells:
        report = write_pages(store, pages, arguments.readme, arguments.keep)
        if arguments.compare is not None:
            _compare(earlier, report.rows)
        _progress(f"done in {time.perf_counter() - started:.0f} s; pages are in {pages.resolve()}")
    for failure in failures:
        _progress(f"failed: {failure.cell.key}: {failure.reason}")
    return 1 if failures or len(cells) < len(wanted) else 0


def _compare(earlier: list[Row], rows: list[Row]) -> None:
    """Print the numbers that differ from an earlier run by more than noise, for the experiments of this run."""
    present = {(row.experiment, row.protocol) for row in rows}
    moves = moved((row for row in earlier if (row.experiment, row.protocol) in present), rows)
    for move in moves:
        print(move)
    print(f"{len(moves)} of {len(rows)} numbers differ by more than noise, or occur in only one of the two runs.")


def _progress(text: str) -> None:
    print(f"rankrange: {text}", file=sys.stderr, flush=True)


def _modules(names: list[str]) -> dict[str, ModuleType]:
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        raise UserError(
            f"an experiment is one of {', '.join(EXPERIMENTS)}; got {', '.join(map(repr, unknown))}, choose among these"
        )
    return {name: experiment(name) for name in EXPERIMENTS if not names or name in names}


# --- data ------------------------------------------------------------------------------------------------------------


def _missing(needs: tuple[str, ...], download: bool) -> dict[str, str]:
    """The data sets among `needs` that cannot be loaded, with the reason."""
    from ...datasets import load

    found = {}
    for name in needs:
        try:
            load(name, download=download)
        except (FileNotFoundError, ValueError) as error:
            found[name] = str(error)
    return found


def _with_data(cells: list[Cell], modules: dict[str, ModuleType], download: bool) -> list[Cell]:
    """The cells whose data are available. Missing data sets are printed with the remedy."""
    missing = _missing(tuple(dict.fromkeys(cell.dataset for cell in cells)), download)
    if not missing:
        return cells
    _progress("data sets that are missing:")
    for name, reason in missing.items():
        why = "" if "download=True" in reason else f": {reason}"  # the remedy is printed below
        _progress(f"  {name}, needed by {', '.join(n for n, module in modules.items() if name in module.NEEDS)}{why}")
    _progress("set RANKRANGE_DATA to a folder that has them (docs/how-to/datasets.md), or add --download to use OpenML")
    ready = [cell for cell in cells if cell.dataset not in missing]
    _progress(f"left out: {len(cells) - len(ready)} of {len(cells)} cells; the others run")
    return ready


def _list(modules: dict[str, ModuleType], download: bool) -> int:
    missing = _missing(tuple(dict.fromkeys(n for module in modules.values() for n in module.NEEDS)), download)
    for name, module in modules.items():
        counts = ", ".join(f"{len(module.cells(Plan('honest', size)))} {size}" for size in ("full", "quick"))
        print(f"{name:<17}{module.TITLE}")
        print(f"{'':<17}cells: {counts}; data: {', '.join(module.NEEDS) or 'none'}")
        lacking = [need for need in module.NEEDS if need in missing]
        if lacking:
            print(f"{'':<17}missing: {', '.join(lacking)}")
    if missing:
        print("Set RANKRANGE_DATA to a folder that has the missing data (docs/how-to/datasets.md), or add --download.")
    return 0
