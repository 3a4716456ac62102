"""Value and weights of a ranked range against one np.partition at the same two ranks, and against a full np.sort.

    python benchmarks/selection.py [--n 10000000] [--repeats 7] [--no-record]

Targets: at most 1.6 times the partition, at least 5 times faster than the sort, memory at most 3 times the input. All
are measured in turn in the same run, and medians compared. Results are checked against the sort before any timing.
(The file is not called select.py: a script of that name would hide Python's own module `select`.)
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import record
from rankrange import range_weights, ranked_range
from rankrange.core.cuts import select

DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "exponential": lambda rng, n: rng.exponential(size=n),
    "24 distinct": lambda rng, n: rng.choice(rng.exponential(size=24), size=n),
    "sorted": lambda rng, n: np.sort(rng.exponential(size=n)),
    "constant": lambda rng, n: np.full(n, 0.7),
}


def check(values: Any, m: int, k: int) -> None:
    ranked = np.sort(values)[::-1]
    found = select(values, m, k)
    assert (found.lam, found.lam_hat) == (ranked[k - 1], ranked[m - 1])
    assert np.isclose(found.total, ranked[m:k].sum(), rtol=1e-10)
    assert np.isclose(found.weights.sum(), k - m, rtol=1e-12)
    assert ranked_range(values, m, k, reduction="sum") == found.total
    assert np.array_equal(range_weights(values, m, k), found.weights)


def medians(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each call, all of them in turn in every round."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(found) for name, found in times.items()}


def peak_over_input(call: Callable[[], Any], values: Any) -> float:
    """The input and the most that the call held beside it, in units of the input."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (values.nbytes + peak) / values.nbytes


def measure(distribution: str, n: int, repeats: int) -> dict[str, Any]:
    values = DISTRIBUTIONS[distribution](np.random.default_rng(0), n)
    m, k = n // 10, n - n // 10
    check(values, m, k)
    calls: dict[str, Callable[[], Any]] = {
        "both": lambda: select(values, m, k),
        "public": lambda: (ranked_range(values, m, k), range_weights(values, m, k)),
        "partition": lambda: np.partition(values, [n - k, n - m]),
        "sort": lambda: np.sort(values),
    }
    seconds = medians(calls, repeats)
    return {
        "n": n,
        "distribution": distribution,
        "m": m,
        "k": k,
        **{f"{name}_ms": f"{1000 * value:.1f}" for name, value in seconds.items()},
        "both_over_partition": f"{seconds['both'] / seconds['partition']:.2f}",
        "public_over_partition": f"{seconds['public'] / seconds['partition']:.2f}",
        "sort_over_both": f"{seconds['sort'] / seconds['both']:.1f}",
        "memory_over_input": f"{max(peak_over_input(calls[name], values) for name in ('both', 'public')):.2f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n", type=int, default=10**7, help="how many losses (default: ten million)")
    parser.add_argument("--repeats", type=int, default=7, help="rounds; medians are reported (default: 7)")
    parser.add_argument("--no-record", action="store_true", help="print only, leave benchmarks/results alone")
    arguments = parser.parse_args()
    rows = []
    print(f"{arguments.n:,} float64 losses, ranks n/10+1..9n/10; medians of {arguments.repeats} rounds")
    print("both: select.select; public: ranked_range, then range_weights")
    for distribution in DISTRIBUTIONS:
        rows.append(measure(distribution, arguments.n, arguments.repeats))
        if len(rows) == 1:
            print("  ".join(rows[0]))
        print("  ".join(f"{value!s:>{len(name)}}" for name, value in rows[-1].items()))
    if not arguments.no_record:
        print(f"added to {record.append('selection', rows)}")


if __name__ == "__main__":
    main()
