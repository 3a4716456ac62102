"""What one ranked range costs a training loop beside a plain mean, where the host is the limit: 2^10 to 2^20 losses.

    python benchmarks/torch_host.py [--record] [--rounds N] [--device cuda|cpu]

Forward and backward, m = 10%, k = 90%, float32. Each line gives medians in microseconds, in turns with torch.mean:
  host    wall time of a call until Python has it back, nothing waited for: what the processor spends
  loop    wall time per call of many calls one after the other, the device waited for at the end
  events  between CUDA events around each call, called one after the other
  graph   replayed from a CUDA graph: what the device alone takes
and the ratio to the mean of each. The target is a loop of at most 1.3 means. The floor is the last block: a Function of
Python that does nothing but hand back a tensor made beforehand, which is what any loss written in Python takes. On a
CPU, where the kernels do not run, only host and loop are given, for eager PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import rankrange.torch as rrt
import record
from torch_kernels import event_times, replayed

SIZES = [1 << power for power in (10, 12, 14, 15, 16, 17, 18, 20)]
TARGET = 1.3
Call = Callable[[], None]


class Nothing(torch.autograd.Function):
    """What any loss costs that is a Function of Python: two calls from the engine, no kernel of its own."""

    @staticmethod
    def forward(ctx: Any, losses: torch.Tensor, value: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        ctx.gradient = gradient
        return value.view(())

    @staticmethod
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[Any, None, None]:
        return ctx.gradient, None, None


def contenders(n: int, device: str) -> dict[str, Call]:
    torch.manual_seed(0)
    losses = torch.rand(n, device=device).requires_grad_()
    module = rrt.AoRRLoss(m=0.1, k=0.9)
    value, gradient = torch.zeros(1, device=device), torch.zeros(n, device=device)

    def both_ways(loss: Callable[[torch.Tensor], torch.Tensor]) -> Call:
        def call() -> None:
            losses.grad = None
            loss(losses).backward()

        return call

    return {
        "mean": both_ways(torch.mean),
        "ranked_range": both_ways(lambda s: rrt.ranked_range(s, 0.1, 0.9)),
        "AoRRLoss": both_ways(module),
        "nothing": both_ways(lambda s: Nothing.apply(s, value, gradient)),
    }


# --- timing, in microseconds


def host_time(call: Call, count: int) -> float:
    """The median of single calls; the device is waited for in between, so that its queue is never full."""
    found = []
    for _ in range(count):
        _wait()
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return 1e6 * statistics.median(found)


def loop_time(call: Call, count: int) -> float:
    _wait()
    start = time.perf_counter()
    for _ in range(count):
        call()
    _wait()
    return 1e6 * (time.perf_counter() - start) / count


def event_time(call: Call, count: int) -> float:
    return 1e3 * statistics.median(event_times(call, count))


def graph_time(call: Call, count: int) -> float:
    return event_time(replayed(call), count)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure(n: int, device: str, rounds: int) -> list[dict[str, Any]]:
    """One row per contender: medians over rounds in which all take their turn."""
    calls = contenders(n, device)
    ways = {"host": host_time, "loop": loop_time}
    if device == "cuda":
        ways |= {"events": event_time}
    found: dict[tuple[str, str], list[float]] = {(name, way): [] for name in calls for way in ways}
    for name in calls:  # compile, fill caches
        loop_time(calls[name], 20)
    for _ in range(rounds):
        for name, call in calls.items():
            for way, timed in ways.items():
                found[name, way].append(timed(call, 100))
    rows = []
    for name in calls:
        row: dict[str, Any] = {"losses": n, "contender": name}
        for way in ("host", "loop", "events"):
            times = found.get((name, way))
            row[f"{way}_us"] = round(statistics.median(times), 1) if times else ""
        row["graph_us"] = round(graph_time(calls[name], 100), 1) if device == "cuda" and name != "nothing" else ""
        mean_of_loop = statistics.median(found["mean", "loop"])
        row["loop_over_mean"] = round(statistics.median(found[name, "loop"]) / mean_of_loop, 3)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="append to benchmarks/results/torch_host.csv")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    name = torch.cuda.get_device_name() if arguments.device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}; microseconds, forward and backward; target: loop at most {TARGET} means")
    print(f"{'losses':>9} {'contender':<14}{'host':>9}{'loop':>9}{'events':>9}{'graph':>9}{'loop/mean':>11}")
    rows = []
    for n in SIZES:
        for row in measure(n, arguments.device, arguments.rounds):
            rows.append({**row, "torch": torch.__version__})
            times = "".join(f"{row[way + '_us']!s:>9}" for way in ("host", "loop", "events", "graph"))
            print(f"{n:>9} {row['contender']:<14}{times}{row['loop_over_mean']:>11}", flush=True)
    reached = [row["losses"] for row in rows if row["contender"] == "ranked_range" and row["loop_over_mean"] <= TARGET]
    print(f"ranked_range at most {TARGET} means at {len(reached)} of {len(SIZES)} sizes: {reached}")
    if arguments.record:
        record.append("torch_host", rows, device=name.replace(",", ";"))


if __name__ == "__main__":
    main()
