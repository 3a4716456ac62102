"""Estimates of the memory that an audit of a file needs and of the free memory."""

from __future__ import annotations

from pathlib import Path

from ..tables.read import Source

# The terms: Python with its packages; a factor for each byte of CSV text or of uncompressed columns, larger for the
# first bytes because neighbours and trees use a limited number of rows; and a cost per column. Measured peaks of whole
# audits with a page: 282, 454 and 712 MB for 20,000 to 300,000 rows of CSV with 10 to 15 columns (estimated 310, 447
# and 726), and 405, 651 and 886 MB for 300 rows of 1,000, 5,000 and 9,998 columns (estimated 453, 832 and 885).
_BASE, _FIRST, _PER_FIRST, _PER_BYTE, _PER_COLUMN = 270_000_000, 8_000_000, 26.0, 9.5, 30_000


def memory_needed(source: Source) -> int:
    """The estimated peak memory of an audit of the file, in bytes."""
    first = min(source.n_bytes, _FIRST)
    return int(_BASE + _PER_FIRST * first + _PER_BYTE * (source.n_bytes - first) + _PER_COLUMN * len(source.names))


def free_memory() -> int | None:
    """The free memory of the machine or of its container, in bytes; None if unknown."""
    free = _from_meminfo()
    limit, used = (_number(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit is not None and used is not None:
        free = limit - used if free is None else min(free, limit - used)
    return free


def _from_meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max" means no limit
        return None


def sized(count: float) -> str:
    """Bytes in words: 12 kB, 3.4 GB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            value = count / size
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{count:.0f} bytes"


def fits_memory(source: Source, limit: int | None = None) -> bool:
    """Whether an audit of the file fits into `limit` bytes, or into the free memory; True if that is unknown."""
    free = free_memory() if limit is None else limit
    return free is None or memory_needed(source) <= free
