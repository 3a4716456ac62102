"""How much memory an audit of a file takes, and how much there is."""

from __future__ import annotations

from pathlib import Path

from ..tables.read import Source

# Measured as peaks of whole audits with a page, 20,000 to 300,000 rows of CSV, 10 to 15 columns: 282, 454 and 712 MB
# where this says 310, 447 and 726. Python with its packages; and for each byte of CSV text, or of columns unpacked,
# what the fits make of it. The first bytes take more: neighbours and trees are asked about so many rows at most.
# Columns cost by themselves too: 300 rows of 1,000, 5,000 and 9,998 columns took 405, 651 and 886 MB where this says
# 453, 832 and 885.
_BASE, _FIRST, _PER_FIRST, _PER_BYTE, _PER_COLUMN = 270_000_000, 8_000_000, 26.0, 9.5, 30_000


def memory_needed(source: Source) -> int:
    """About how many bytes an audit of the file takes at its peak."""
    first = min(source.n_bytes, _FIRST)
    return int(_BASE + _PER_FIRST * first + _PER_BYTE * (source.n_bytes - first) + _PER_COLUMN * len(source.names))


def free_memory() -> int | None:
    """Bytes that this process may still take: what the machine has, or what its container allows; None if unknown."""
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
    """Whether an audit of the file would fit into so many bytes, or into the memory that is free."""
    free = free_memory() if limit is None else limit
    return free is None or memory_needed(source) <= free
