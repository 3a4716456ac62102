"""Time the loss of a language model with its last layer on a GPU: ours against full logits and Liger-Kernel.

    python benchmarks/torch_tokens.py [--record] [--quick]

Forward and backward in bfloat16, random hidden states, medians of calls in turns between CUDA events, from Python.
"mean" averages all tokens; "none" are Liger's losses per token and the ranked range of them, which computes everything
and multiplies what is dropped by zero. "extra" is the peak memory beyond inputs and gradients. liger-kernel is taken
if it can be imported. The goals: keeping 60% at most .75, .5 and .9 times Liger's mean at the three shapes and .6 times
its "none"; keeping 90% at most its mean at the first two; keeping all at most 1.05 times the better of full logits and
Liger.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import rankrange.torch as rrt
import record

SHAPES = [(8192, 4096, 128256), (8192, 2048, 151936), (16384, 2048, 32000)]
GOALS = {0: {"60%": 0.75, "90%": 1.0}, 1: {"60%": 0.5, "90%": 1.0}, 2: {"60%": 0.9}}
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def contenders() -> dict[str, Loss]:
    """Every loss by its name; Liger's where it is installed."""
    losses: dict[str, Loss] = {"full logits, mean": lambda h, w, y: F.cross_entropy((h @ w.t()).float(), y)}
    try:
        from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction as Liger

        def liger(h: Tensor, w: Tensor, y: Tensor, reduction: str) -> Tensor:
            found = Liger.apply(h, w, y, None, None, -100, 0.0, 0.0, reduction)
            return found[0] if isinstance(found, tuple) else found

        losses["Liger, mean"] = lambda h, w, y: liger(h, w, y, "mean")
        losses["Liger, none"] = lambda h, w, y: rrt.ranked_range(liger(h, w, y, "none"), 0.4, 1.0)
    except ImportError as error:
        print(f"without Liger: {error}")
    for name, m in (("all", 0), ("90%", 0.1), ("60%", 0.4), ("30%", 0.7)):
        losses[f"ours, {name}"] = lambda h, w, y, m=m: rrt.linear_ranked_range(h, w, y, m, 1.0)
    automatic = rrt.LinearAoRRLoss("auto")
    losses["ours, auto"] = automatic
    return losses


def inputs(shape: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    n, features, words = shape
    g = torch.Generator("cuda").manual_seed(0)
    hidden = torch.randn(n, features, device="cuda", generator=g, dtype=torch.bfloat16).requires_grad_()
    weight = torch.randn(words, features, device="cuda", generator=g, dtype=torch.bfloat16).mul_(features**-0.5)
    return hidden, weight.requires_grad_(), torch.randint(0, words, (n,), device="cuda", generator=g)


def step(loss: Loss, hidden: Tensor, weight: Tensor, target: Tensor) -> None:
    hidden.grad = weight.grad = None
    loss(hidden, weight, target).backward()


def extra_memory(loss: Loss, *given: Tensor) -> float:
    """GiB beyond inputs and gradients."""
    given[0].grad = given[1].grad = None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step(loss, *given)
    peak = torch.cuda.max_memory_allocated()
    return (peak - before - sum(x.nbytes for x in given[:2])) / 2**30


def times(losses: dict[str, Loss], given: tuple[Tensor, ...], repeats: int) -> dict[str, float]:
    """Median milliseconds of each, called in turns."""
    found: dict[str, list[float]] = {name: [] for name in losses}
    for round_ in range(repeats + 2):
        for name, loss in losses.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            step(loss, *given)
            end.record()
            torch.cuda.synchronize()
            if round_ >= 2:
                found[name].append(begin.elapsed_time(end))
    return {name: statistics.median(values) for name, values in found.items()}


def measure(number: int, shape: tuple[int, int, int], repeats: int) -> list[dict[str, object]]:
    given = inputs(shape)
    hidden, weight, _ = given
    losses = contenders()
    product = times({"": lambda h, w, y: (h.detach() @ w.detach().t()).sum() * h.sum()}, given, 3)[""]
    memory = {name: extra_memory(loss, *given) for name, loss in losses.items()}
    took = times(losses, given, repeats)
    again = times({name: losses[name] for name in ("ours, 60%",)}, given, repeats)["ours, 60%"]
    print(f"\n{' x '.join(map(str, shape))}: a product and a sum {product:.1f} ms; 60% again {again:.2f} ms")
    rows: list[dict[str, object]] = []
    for name, ms in took.items():
        mean, none = took.get("Liger, mean"), took.get("Liger, none")
        over_mean = "" if mean is None else f"{ms / mean:.3f}"
        over_none = "" if none is None else f"{ms / none:.3f}"
        goal = GOALS[number].get(name.removeprefix("ours, "), "")
        if name == "ours, all":
            best = min(x for x in (mean, took["full logits, mean"]) if x is not None)
            goal = f"{1.05 * best / mean:.3f}" if mean else ""
        print(
            f"  {name:20s} {ms:8.2f} ms  of Liger's mean {over_mean:>6s} (goal {goal!s:>5s})  of none {over_none:>6s}"
            f"  extra {memory[name]:6.2f} GiB"
        )
        rows.append(
            {
                "torch": torch.__version__,
                "tokens": shape[0],
                "features": shape[1],
                "words": shape[2],
                "loss": name.replace(",", ";"),
                "ms": f"{ms:.3f}",
                "of_liger_mean": over_mean,
                "of_liger_none": over_none,
                "goal": goal,
                "extra_gib": f"{memory[name]:.3f}",
            }
        )
    del hidden, weight, given
    torch.cuda.empty_cache()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--quick", action="store_true", help="one repeat of each")
    arguments = parser.parse_args()
    rows = [row for number, shape in enumerate(SHAPES) for row in measure(number, shape, 1 if arguments.quick else 9)]
    if arguments.record:
        print(record.append("torch_tokens", rows, torch.cuda.get_device_name().replace(",", ";")))


if __name__ == "__main__":
    main()
