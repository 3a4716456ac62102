"""Runs cells in processes with one thread each, longest first, and stores each when it is finished.

The result of a cell depends only on the cell, so neither the number of processes nor the order changes a number.
Workers ignore Ctrl-C, which the parent handles, and exit if the parent was killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from .. import experiment
from .cells import Cell
from .store import Store

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Failure:
    """A cell that failed, and the reason."""

    cell: Cell
    reason: str


def run_cells(cells: Sequence[Cell], store: Store, *, jobs: int = 1, progress: Callable[[str], None]) -> list[Failure]:
    """Run the cells that are not in the store, in `jobs` processes, and return those that failed.

    One job, or a single cell, runs in this process. `progress` is called with lines about the progress.
    """
    todo = [cell for cell in cells if store.read(cell) is None]
    if len(todo) < len(cells):
        progress(f"{len(cells) - len(todo)} of {len(cells)} cells are finished already")
    todo.sort(key=lambda cell: (-_cost(cell), cell.split, cell.key))
    if not todo:
        return []
    with _one_thread_per_process(), _bar(todo, progress) as step:
        ends = _in_processes(todo, store, jobs) if jobs > 1 and len(todo) > 1 else _here(todo, store)
        failures = []
        for cell, seconds, reason in ends:
            if reason:
                failures.append(Failure(cell, reason))
            step(cell, seconds, reason)
    return failures


def _cost(cell: Cell) -> float:
    """The approximate cost of a cell in seconds, by the function `cost` of its experiment; 1 if there is none."""
    cost = getattr(experiment(cell.experiment), "cost", None)
    return 1.0 if cost is None else float(cost(cell))


# --- one cell --------------------------------------------------------------------------------------------------------


def _work(cell: Cell, store: Store) -> tuple[float, str]:
    """Run a cell and write it; return the seconds it took, and the error as text, empty if there is none.

    A cell that another run on the same folder has finished meanwhile is not run again.
    """
    started, before = time.perf_counter(), time.process_time()
    try:
        if store.read(cell) is not None:
            return 0.0, ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # candidates that did not converge are used like the others
            outcome = experiment(cell.experiment).run(cell)
        store.write(cell, outcome, time.perf_counter() - started, time.process_time() - before)
    except Exception as error:
        return time.perf_counter() - started, f"{type(error).__name__}: {error}"
    return time.perf_counter() - started, ""


def _here(todo: Sequence[Cell], store: Store) -> Iterator[tuple[Cell, float, str]]:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        for cell in todo:
            yield cell, *_work(cell, store)


def _in_processes(todo: Sequence[Cell], store: Store, jobs: int) -> Iterator[tuple[Cell, float, str]]:
    ours = set(multiprocessing.active_children())
    # Spawned: a fork would inherit locks of threads that do not exist in the child.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(todo)), context, initializer=_start_worker)
    try:
        futures = {pool.submit(_work, cell, store): cell for cell in todo}
        for future in as_completed(futures):
            yield futures[future], *future.result()
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - ours:
            child.terminate()
        raise


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _end_with(parent: Any) -> None:
    multiprocessing.connection.wait([parent])
    os._exit(1)


@contextlib.contextmanager
def _one_thread_per_process() -> Iterator[None]:
    """Set environment variables that limit new processes to one thread, and restore them at the end."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# --- progress --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _bar(todo: Sequence[Cell], progress: Callable[[str], None]) -> Iterator[Callable[[Cell, float, str], None]]:
    """A function to call as cells end: a progress bar in a terminal with rich, otherwise a line every few seconds."""
    if sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
            with Progress(*columns, console=Console(stderr=True)) as bar:
                task = bar.add_task("", total=sum(_cost(cell) for cell in todo))
                done = iter(range(1, len(todo) + 1))

                def step(cell: Cell, seconds: float, reason: str) -> None:
                    bar.update(task, advance=_cost(cell), description=f"{next(done)} of {len(todo)} cells")
                    if reason:
                        bar.console.print(f"{cell.key} failed: {reason}", markup=False)

                yield step
                return
    yield _Lines(todo, progress)


class _Lines:
    """Failures at once, and a line every few seconds: how many cells are done, and about how long the rest takes."""

    def __init__(self, todo: Sequence[Cell], progress: Callable[[str], None]) -> None:
        self.progress, self.total, self.done = progress, len(todo), 0
        self.work, self.worked = sum(_cost(cell) for cell in todo), 0.0
        self.started = self.printed = time.perf_counter()

    def __call__(self, cell: Cell, seconds: float, reason: str) -> None:
        self.done, self.worked, now = self.done + 1, self.worked + _cost(cell), time.perf_counter()
        if reason:
            self.progress(f"{cell.key} failed: {reason}")
        elif now - self.printed > 5.0 or self.done == self.total:
            left = (now - self.started) * (self.work - self.worked) / max(self.worked, 1e-9)
            self.progress(
                f"{self.done} of {self.total} cells, last {cell.key} in {seconds:.1f} s; about {left:.0f} s left"
            )
            self.printed = now
