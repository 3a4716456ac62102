"""What all benchmarks share: the list of them, times, and records in benchmarks/results/NAME.csv.

A benchmark is a generator of rows. Its keyword arguments are its options on the command line, and `tiny` holds those
of a trial that takes seconds. A row of a record has date, commit, device and versions before its own columns.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

try:
    import pandas as pd
except ImportError:  # tables need it, measurements do not
    pd = None  # type: ignore[assignment]

RESULTS = Path(__file__).parent / "results"
DATA = Path(os.environ.get("RANKRANGE_DATA", "data"))
Row = dict[str, Any]
Table = Callable[["pd.DataFrame"], Any]


# ---- the list --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Benchmark:
    """How to measure, what to show of the rows, the columns that say what a row is about, and options of a trial."""

    measure: Callable[..., Iterator[Row]]
    table: Table
    keys: Sequence[str]
    tiny: dict[str, Any]


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(table: Table, *, keys: Sequence[str] = (), **tiny: Any) -> Callable[..., Any]:
    """Register a generator of rows under its name."""

    def register(measure: Callable[..., Iterator[Row]]) -> Callable[..., Iterator[Row]]:
        BENCHMARKS[measure.__name__] = Benchmark(measure, table, keys, tiny)
        return measure

    return register


# ---- tables ----------------------------------------------------------------------------------------------------------


def means(by: str | list[str], columns: list[str]) -> Table:
    """Means of some columns, and the number of runs."""
    return lambda rows: rows.groupby(by, sort=False)[columns].mean().assign(runs=rows.groupby(by, sort=False).size())


def spread(rows: pd.DataFrame, by: Any, column: str) -> pd.DataFrame:
    """Median, 90% quantile and worst of a column, and their number."""
    groups = rows.groupby(by, sort=False)[column]
    found = {"median": groups.median(), "90%": groups.quantile(0.9), "worst": groups.max(), "runs": groups.size()}
    return pd.DataFrame(found)


def gains(rows: pd.DataFrame, by: Any, column: str, other: str) -> pd.DataFrame:
    """Mean of the paired difference of two columns with its standard error, median and worst."""
    groups = (rows[column] - rows[other]).groupby([rows[key] for key in ([by] if isinstance(by, str) else by)])
    found = {"mean gain": groups.mean(), "error": groups.sem(), "median": groups.median(), "worst": groups.min()}
    return pd.DataFrame({**found, "runs": groups.size()})


def regained(rows: pd.DataFrame, by: Any, methods: Sequence[str]) -> pd.DataFrame:
    """Share of what wrong labels cost (clean - plain) that each method regains: a ratio of sums; nothing if no cost."""
    sums = rows.groupby(by)[["plain", "clean", *methods]].sum()
    lost = sums["clean"] - sums["plain"]
    found = {"lost": lost / rows.groupby(by).size()}
    shares = {name: (sums[name] - sums["plain"]) / lost.where(lost != 0) for name in methods}
    return pd.DataFrame({**found, **shares})


# ---- times -----------------------------------------------------------------------------------------------------------


def timed(run: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[Any, float]:
    """The result and its core seconds."""
    start = time.process_time()
    result = run(*arguments, **named)
    return result, time.process_time() - start


def medians(calls: Mapping[str, Callable[[], Any]], repeats: int = 5, most: float = np.inf) -> dict[str, float]:
    """Median core seconds of each call, in turns, because the speed of a shared core changes; fewer turns if long."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats):
        if turn and sum(map(sum, times.values())) > most:
            break
        for name, call in calls.items():
            times[name].append(timed(call)[1])
    return {name: statistics.median(found) for name, found in times.items()}


class OutOfTime(Exception):
    """A call did not end within its limit."""


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime after so many core seconds."""

    def stop(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def alone(run: Callable[..., Row], *arguments: Any) -> Row:
    """The row of a call in a process of its own, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(run, *arguments).result()


def peak_mb() -> int:
    """The most memory that this process has held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def extra_memory(run: Callable[[], Any]) -> int:
    """Bytes that a call holds at its peak beyond what is held before it. Linux alone."""

    def status(field: str) -> int:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))

    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    before = status("VmRSS")
    run()
    return status("VmHWM") - before


# ---- records ---------------------------------------------------------------------------------------------------------


def rounded(row: Row, digits: int = 4) -> Row:
    """Numbers with so many digits after the point, and NumPy's as Python's."""
    return {
        key: round(float(value), digits) if isinstance(value, float | np.floating) else value
        for key, value in row.items()
    }


def path_of(name: str) -> Path:
    """A file of its own, or the record of this name."""
    return Path(name) if name.endswith(".csv") else RESULTS / f"{name}.csv"


def recorded(name: str) -> pd.DataFrame:
    """All rows of a record; the digits of a commit are no number."""
    return pd.read_csv(path_of(name), dtype={"commit": str})


def append(name: str, rows: Sequence[Row]) -> Path:
    """Add rows by one write, so that runs at the same time do not mix; other columns than the file has are an error."""
    path, full = path_of(name), [{**circumstances(), **row} for row in rows]
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


def circumstances() -> dict[str, str]:
    """Date, commit, device and versions."""
    found = {"date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"), "commit": _commit(), "device": _device()}
    return found | {"python": platform.python_version(), "numpy": np.__version__}


def _commit() -> str:
    """The commit, with a + where the source differs from it; a copy without history names it in RANKRANGE_COMMIT."""
    if "RANKRANGE_COMMIT" in os.environ:
        return os.environ["RANKRANGE_COMMIT"]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(RESULTS.parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if git("status", "--short", "../src") else "")


def _device() -> str:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    name, cpus = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if cpus.exists():
        models = [line for line in cpus.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        name = models[0].partition(":")[2].strip() if models else name
    return f"{name}; {os.cpu_count()} cores".replace(",", ";")
