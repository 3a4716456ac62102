"""All times of rankrange.torch on one GPU: selection, TKML, training steps and tokens.

The exactness of all kernels at full size is `PYTHONPATH=src python tests/pytorch/kernel_checks.py`.
"""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rankrange.torch as rrt

from .harness import Row, benchmark

LOSSES = tuple(1 << power for power in (10, 16, 20, 22, 24, 26))
LABELS = ("4096x1000", "1024x32000", "512x131072", "256x1000000")
TOKENS = ("8192x4096x128256", "8192x2048x151936", "16384x2048x32000")
# Milliseconds of full logits, of ours keeping all and keeping 60% where the goals were set, on another H200.
TOKEN_GOALS = ((48.9, 40.3, 37.7), (37.3, 26.1, 23.8), (15.0, 10.6, 9.3))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
Calls = dict[str, Callable[[], Any]]


def medians(calls: Calls, rounds: int, burst: int = 1, pause: float = 0.0) -> dict[str, float]:
    """Median milliseconds of each call, in turns of `burst` calls one after the other without waiting for the device.

    After a pause every turn finds the same clock: heavy calls lower it for the next. A call that fails is left out.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(rounds + 2):
        for name, call in calls.items():
            if name not in times:
                continue
            time.sleep(pause)
            try:
                found = event_times(call, burst)
            except Exception as error:
                print(f"  {name} failed: {type(error).__name__}: {str(error)[:300]}", flush=True)
                del times[name]
                continue
            if round_ >= 2:
                times[name] += found[burst // 3 :]
    return {name: statistics.median(found) for name, found in times.items()}


def event_times(call: Callable[[], Any], count: int) -> list[float]:
    if DEVICE == "cpu":
        begin = time.perf_counter()
        call()
        return [1000 * (time.perf_counter() - begin)] * count
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for begin, end in pairs:
        begin.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in pairs]


def with_device(calls: Calls, rounds: int, burst: int) -> dict[str, float]:
    """Times from a loop, which waits for Python, and those of the device alone."""
    times = medians(calls, rounds, burst)
    return times | {f"{name}; device": device_time(calls[name]) for name in times if DEVICE == "cuda"}


def device_time(call: Callable[[], Any], count: int = 20) -> float:
    """Milliseconds of one of `count` calls, all of which are in the queue before the first one begins."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(count * 4_000_000)  # cycles; some 2 ms for Python to queue each call
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / count


def both_ways(loss: Callable[..., Tensor], leaves: list[Tensor], *rest: Any) -> Callable[[], None]:
    def call() -> None:
        for leaf in leaves:
            leaf.grad = None
        loss(*leaves, *rest).backward()

    return call


def rows_of(what: str, size: Any, times: dict[str, float], extra: dict[str, float] | None = None) -> Iterator[Row]:
    """Rows of one comparison."""
    for name, ms in times.items():
        row: Row = {"torch": torch.__version__, "what": what, "size": size, "loss": name, "ms": round(ms, 4)}
        yield row | {"extra_gib": "" if extra is None else round(extra[name], 3)}


# --- selection and labels


def selection(n: int) -> Iterator[Row]:
    losses = torch.rand(n, device=DEVICE, requires_grad=True)
    module = rrt.AoRRLoss(m=0.1, k=0.9)
    m, k = round(0.1 * n), round(0.9 * n)
    calls = {
        "mean": both_ways(torch.mean, [losses]),
        "ours": both_ways(lambda s: rrt.ranked_range(s, 0.1, 0.9), [losses]),
        "AoRRLoss": both_ways(module, [losses]),
        "sort": both_ways(lambda s: s.sort(descending=True).values[m:k].mean(), [losses]),
    }
    return rows_of("selection", n, with_device(calls, 5, burst=40))


def labels(size: str) -> Iterator[Row]:
    shape = tuple(map(int, size.split("x")))
    scores = torch.randn(shape, device=DEVICE, requires_grad=True)
    mask = torch.rand(shape, device=DEVICE) < 5 / shape[1]
    index = torch.where(mask, torch.arange(shape[1], device=DEVICE), -1).topk(24, 1).values
    calls = {
        "ours; mask": both_ways(lambda z: rrt.tkml(z, mask, 5), [scores]),
        "ours; indices": both_ways(lambda z: rrt.tkml(z, index, 5), [scores]),
    }
    return rows_of("tkml", size, with_device(calls, 5, burst=20))


# --- a training step


def network(width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for into, out in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * 16, 10)).to(DEVICE)


def training_step(name: str, net: nn.Module, images: Tensor) -> Iterator[Row]:
    """A step of SGD: host and device."""
    n = len(images)
    target, index = torch.randint(0, 10, (n,), device=DEVICE), torch.arange(n, device=DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    base = nn.CrossEntropyLoss(reduction="none")
    plain, given = nn.CrossEntropyLoss(), rrt.AoRRLoss(base, m=0.1)
    per_class = rrt.AoRRLoss(base, m=0.1, per_class=True)
    automatic, compiled = (rrt.AoRRLoss(base, m="auto", n_samples=n).to(DEVICE) for _ in range(2))
    compiled(net(images).detach(), target, index)  # which allocates the buffers
    compiled.compile()
    losses: dict[str, Callable[[Tensor], Tensor]] = {
        "cross-entropy": lambda z: plain(z, target),
        "AoRRLoss m=.1": lambda z: given(z, target),
        "AoRRLoss per_class": lambda z: per_class(z, target),
        "AoRRLoss auto": lambda z: automatic(z, target, index),
        "AoRRLoss auto, compiled": lambda z: compiled(z, target, index),
    }

    def step(loss: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def call() -> None:
            optimizer.zero_grad()
            loss(net(images)).backward()
            optimizer.step()

        return call

    return rows_of("step", name, medians({key: step(loss) for key, loss in losses.items()}, 7, burst=20))


def perceptron() -> Iterator[Row]:
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)).to(DEVICE)
    return training_step("mlp 1024x64", net, torch.randn(1024, 64, device=DEVICE))


def convolutions(batch: int, width: int) -> Iterator[Row]:
    return training_step(f"cnn {batch}", network(width), torch.randn(batch, 3, 32, 32, device=DEVICE))


# --- tokens


def token_losses() -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Every loss by its name; those of other libraries if they are installed."""
    losses = {"full logits": lambda h, w, y: F.cross_entropy((h @ w.t()).float(), y)}
    for name, m in (("all", 0), ("60%", 0.4)):
        losses[f"ours; {name}"] = lambda h, w, y, m=m: rrt.linear_ranked_range(h, w, y, m, 1.0)
        # as many tokens as have logits of .25 GiB
        losses[f"ours; {name}; chunk"] = lambda h, w, y, m=m: rrt.linear_ranked_range(
            h, w, y, m, 1.0, chunk=(1 << 27) // len(w)
        )
    losses["ours; auto"] = rrt.LinearAoRRLoss("auto")
    losses["ours; weights"] = lambda h, w, y: rrt.linear_ranked_range(
        h, w, y, 0, 1.0, token_weights=torch.ones(len(y), device=DEVICE)
    )
    losses["ours; weights by loss"] = lambda h, w, y: rrt.linear_ranked_range(
        h, w, y, 0, 1.0, token_weights=lambda x: torch.exp(-x)
    )
    try:
        from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction as Liger

        def liger(h: Tensor, w: Tensor, y: Tensor) -> Tensor:
            found = Liger.apply(h, w, y, None, None, -100, 0.0, 0.0, "mean")
            return found[0] if isinstance(found, tuple) else found

        losses["Liger"] = liger
    except ImportError as error:
        print(f"without Liger: {error}")
    try:
        from cut_cross_entropy import linear_cross_entropy

        losses["Cut Cross-Entropy"] = lambda h, w, y: linear_cross_entropy(h, w, y)
    except ImportError as error:
        print(f"without Cut Cross-Entropy: {error}")
    return losses


def token_inputs(n: int, features: int, words: int, peaked: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Random hidden states; if peaked, the model gives most targets a probability near 1."""
    g = torch.Generator(DEVICE).manual_seed(0)
    weight = torch.randn(words, features, device=DEVICE, generator=g, dtype=torch.bfloat16).mul_(features**-0.5)
    target = torch.randint(0, words, (n,), device=DEVICE, generator=g)
    hidden = torch.randn(n, features, device=DEVICE, generator=g, dtype=torch.bfloat16)
    if peaked:
        hidden = hidden + 20.0 * weight[target]
    return hidden.requires_grad_(), weight.requires_grad_(), target


def extra_memory(call: Callable[[], None], leaves: list[Tensor]) -> float:
    """GiB beyond inputs and gradients."""
    for leaf in leaves:
        leaf.grad = None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    return (torch.cuda.max_memory_allocated() - before - sum(leaf.nbytes for leaf in leaves)) / 2**30


def tokens(size: str, peaked: bool) -> Iterator[Row]:
    hidden, weight, target = token_inputs(*map(int, size.split("x")), peaked)
    calls = {name: both_ways(loss, [hidden, weight], target) for name, loss in token_losses().items()}
    times = medians(calls, 9, pause=0.05)
    extra = {name: extra_memory(calls[name], [hidden, weight]) for name in times} if DEVICE == "cuda" else None
    yield from rows_of("peaked" if peaked else "tokens", size, times, extra)
    del hidden, weight, target, calls
    torch.cuda.empty_cache()


def attempt(part: Callable[..., Iterator[Row]], *arguments: Any) -> list[Row]:
    """The rows of one part; what fails is printed and does not stop the others."""
    try:
        return list(part(*arguments))
    except Exception:
        print(f"FAILED {part.__name__}{arguments}\n{traceback.format_exc(limit=-3)}", flush=True)
        return []


def goals(rows: list[Row]) -> list[tuple[str, float, float]]:
    """Figures and what they should be at most (0: no goal); of tokens also in units of full logits of the same run."""
    ms = {(row["what"], str(row["size"]), row["loss"]): row["ms"] for row in rows}
    extra = {(row["what"], str(row["size"]), row["loss"]): row["extra_gib"] for row in rows}
    lines: list[tuple[str, float, float]] = []
    for n, goal in ((1 << 24, 0.40), (1 << 26, 0.70)):
        lines += [(f"selection of {n}, {name}, ms", ms.get(("selection", str(n), name), 0.0), goal)
                  for name in ("ours", "ours; device")]  # fmt: skip
    for (what, size, loss), found in ms.items():
        if what == "step" and loss != "cross-entropy":
            goal = 1.1 if loss == "AoRRLoss m=.1" else 0.0
            lines.append((f"step {size}, {loss} / cross-entropy", found / ms[what, size, "cross-entropy"], goal))
        if loss.endswith("; chunk"):
            where = f"{what} {size}, {loss}"
            lines.append((f"{where} / no chunk", found / ms[what, size, loss.removesuffix("; chunk")], 1.15))
            lines.append((f"{where}, extra GiB", float(extra[what, size, loss] or 0.0), 0.5))
    for size, goals in zip(TOKENS, TOKEN_GOALS, strict=True):
        full = ms.get(("tokens", size, "full logits"), 0.0)
        for name, goal in zip(("ours; all", "ours; 60%"), goals[1:], strict=True):
            found = ms.get(("tokens", size, name), 0.0)
            lines.append((f"tokens {size}, {name}, ms", found, goal))
            lines.append((f"tokens {size}, {name} / full logits", found / full if full else 0.0, goal / goals[0]))
    return sorted(lines)


def _goals(rows: Any) -> Any:
    lines = goals(rows.to_dict("records"))
    frame = type(rows)(lines, columns=["figure", "found", "at most"]).set_index("figure")
    return frame[frame["found"] > 0].replace({"at most": {0.0: float("nan")}})


@benchmark(_goals, losses=(1024,), labels_of=("8x100",), tokens_of=("8x4x16",), skip_steps=True)
def torch_gpu(
    losses: tuple = LOSSES, labels_of: tuple = LABELS, tokens_of: tuple = TOKENS, skip_steps: bool = False
) -> Iterator[Row]:
    """Forward and backward of every loss: medians between CUDA events around each call, in turns.

    Small calls wait for Python; "; device" is the time of the device alone, for calls that wait in its queue. "extra"
    is the peak memory beyond inputs and gradients. Liger-Kernel and Cut Cross-Entropy are compared if they can be
    imported. What fails is reported and left out. The table has the figures with goals.
    """
    torch.manual_seed(0)
    parts: list[tuple[Any, ...]] = (
        [] if skip_steps else [(perceptron,), (convolutions, 128, 64), (convolutions, 512, 128)]
    )
    parts += [(selection, n) for n in losses] + [(labels, size) for size in labels_of]
    parts += [(tokens, size, peaked) for peaked in (False, True) for size in tokens_of]
    for part in parts:
        yield from attempt(*part)
