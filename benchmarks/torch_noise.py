"""Networks on wrong labels, human ones (CIFAR-10N) and planted ones (MNIST): all methods with one network and schedule.

    python benchmarks/torch_noise.py [--data cifar10n mnist] [--columns ...] [--seeds 2 3 4] [--methods ...] [--record]
                                     [--missing]
    python benchmarks/torch_noise.py --table                   the tables of docs/benchmarks/networks.md
    python benchmarks/torch_noise.py --tiny                    a few hundred images, for a CPU

Prints clean test accuracy after the last epoch, the mean over seeds with its standard error, and for m="auto" what was
cut and how much of it was wrong. Data come from the folder named by RANKRANGE_DATA. A method is given the true share of
wrong labels where it needs one ("range", "stream", "co-teaching"), and nothing otherwise. The rule of m="auto" was
settled on seeds 0 and 1 with 3,000 training images held out; the seeds that are reported, and the test images, had no
part in it. `--save FOLDER` keeps what m="auto" remembered, for torch_suspects.py.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rankrange.torch as rrt
import record
from noisy_nets import DEVICE, Pair, Run, Task, cifar10n, mnist, noisy_mnist, residual_net, small_cnn, train_together

WARM_UP = 0.2  # of the epochs, for the methods that need one


class Method:
    """Cross-entropy, and what the others change."""

    def network(self, task: Task) -> nn.Module:
        return task.network()

    def start(self, task: Task) -> None:
        self.task = task
        self.hot = F.one_hot(task.labels, 10).float()

    def loss(self, output: Tensor, target: Tensor, index: Tensor) -> Tensor:
        return F.cross_entropy(output, target)

    def epoch(self, number: int) -> None:
        """After each epoch."""

    def buffers(self) -> list[Tensor]:
        """What a step changes beside the network."""
        return []

    def weights(self) -> Tensor | None:
        """The weight of each training sample at the end, where there is one."""
        return None


class Generalised(Method):
    """Generalised cross-entropy, q = .7 (Zhang and Sabuncu, 2018)."""

    def loss(self, output: Tensor, target: Tensor, index: Tensor) -> Tensor:
        p = output.softmax(1).gather(1, target[:, None])[:, 0].clamp(min=1e-6)
        return ((1.0 - p**0.7) / 0.7).mean()


class Symmetric(Method):
    """Symmetric cross-entropy with the weights that its authors use for CIFAR-10 (Wang et al., 2019)."""

    def loss(self, output: Tensor, target: Tensor, index: Tensor) -> Tensor:
        p = output.softmax(1).gather(1, target[:, None])[:, 0]
        return 0.1 * F.cross_entropy(output, target) + 4.0 * (1.0 - p).mean()


class EarlyLearning(Method):
    """Early-learning regularisation with the weight 1 (Liu et al., 2020; their 3 diverges under this schedule)."""

    def start(self, task: Task) -> None:
        super().start(task)
        self.memory = torch.zeros_like(self.hot)

    def buffers(self) -> list[Tensor]:
        return [self.memory]

    def loss(self, output: Tensor, target: Tensor, index: Tensor) -> Tensor:
        p = output.softmax(1).clamp(1e-4, 1.0 - 1e-4)
        with torch.no_grad():
            self.memory[index] = 0.7 * self.memory[index] + 0.3 * p / p.sum(1, keepdim=True)
        pull = torch.log(1.0 - (self.memory[index] * p).sum(1).clamp(max=1.0 - 1e-4)).mean()
        return F.cross_entropy(output, target) + pull


class CoTeaching(Method):
    """Two networks, each trained on what the other finds easiest (Han et al., 2018); they are given the true share.

    The share that is left out grows from none to the true one over a fifth of training. Twice the cost of the others.
    """

    def network(self, task: Task) -> nn.Module:
        return Pair(task.network)

    def start(self, task: Task) -> None:
        super().start(task)
        self.kept = torch.full((), float(task.batch), device=DEVICE)

    def buffers(self) -> list[Tensor]:
        return [self.kept]

    def loss(self, output: Tensor, target: Tensor, index: Tensor) -> Tensor:
        losses = [F.cross_entropy(half, target, reduction="none") for half in output.chunk(2, 1)]
        easy = [one.detach().argsort().argsort() < self.kept for one in losses]
        return sum((one * chosen).sum() / self.kept for one, chosen in zip(losses, reversed(easy), strict=True))

    def epoch(self, number: int) -> None:
        share = self.task.share_wrong * min(1.0, (number + 1) / (WARM_UP * self.task.epochs))
        self.kept.fill_(round((1.0 - share) * self.task.batch))


class RememberAndCut(Method):
    """The softmax of every sample is remembered; cut is what is surely another class (confident learning's rule)."""

    def start(self, task: Task) -> None:
        super().start(task)
        self.memory, self.seen = torch.zeros_like(self.hot), torch.zeros(len(self.hot), 1, device=DEVICE)
        self.kept = torch.ones(len(self.hot), device=DEVICE)

    def buffers(self) -> list[Tensor]:
        return [self.memory, self.seen, self.kept]

    def loss(self, output: Tensor, target: Tensor, index: Tensor) -> Tensor:
        with torch.no_grad():
            p, old = output.softmax(1), self.memory[index]
            self.memory[index] = torch.where(self.seen[index] > 0, 0.7 * old + 0.3 * p, p)
            self.seen.index_fill_(0, index, 1.0)
        kept = self.kept[index]
        return (kept * F.cross_entropy(output, target, reduction="none")).sum() / kept.sum().clamp(min=1.0)

    def epoch(self, number: int) -> None:
        if number + 1 < WARM_UP * self.task.epochs:
            return
        limits = (self.memory * self.hot).sum(0) / self.hot.sum(0).clamp(min=1.0)
        best, which = self.memory.max(1)
        self.kept.copy_(~((which != self.task.labels) & (best >= limits[which])))

    def weights(self) -> Tensor:
        return self.kept


class Range(Method):
    """The library's loss, with the settings given here; `true_share` makes m the share of wrong labels."""

    def __init__(self, true_share: bool = False, **settings: Any) -> None:
        self.true_share, self.settings = true_share, settings
        self.auto = settings.get("m") == "auto"

    def start(self, task: Task) -> None:
        super().start(task)
        settings: dict[str, Any] = dict(self.settings)
        if self.true_share:
            batches = task.epochs * (len(task.labels) // task.batch)
            settings |= {"m": task.share_wrong, "warmup": WARM_UP, "total_batches": batches}
        elif self.auto:
            settings |= {"n_samples": len(task.labels)}
        self.criterion = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), **settings).to(DEVICE)
        few = torch.arange(2, device=DEVICE)  # in evaluation mode a call only makes the buffers
        self.criterion.eval()
        self.loss(torch.zeros(2, 10, device=DEVICE), task.labels[:2], few)
        self.criterion.train()

    def buffers(self) -> list[Tensor]:
        return list(self.criterion.buffers())

    def loss(self, output: Tensor, target: Tensor, index: Tensor) -> Tensor:
        return self.criterion(output, target, index) if self.auto else self.criterion(output, target)

    def weights(self) -> Tensor | None:
        return self.criterion.sample_weights() if self.auto else None


METHODS = {
    "cross-entropy": Method,
    "GCE .7": Generalised,
    "symmetric CE": Symmetric,
    "ELR": EarlyLearning,
    "co-teaching": CoTeaching,
    "range, true m": lambda: Range(true_share=True),
    "stream, true m": lambda: Range(true_share=True, ranking="stream"),
    "remember and cut": RememberAndCut,
    "auto": lambda: Range(m="auto"),
}
# A given m with all defaults: no warm-up, no true share. Asked of one kind of noise that once made it collapse.
GIVEN = {f"m = {m}": (lambda m=m: Range(m=m)) for m in (0.1, 0.2, 0.3, 0.4, 0.5)}
ALL = METHODS | GIVEN


def tasks_of(data: str, seed: int, tiny: bool) -> dict[str, Task]:
    """Each column of labels as a task."""
    folder, limit = Path(os.environ.get("RANKRANGE_DATA", ".")), 640 if tiny else None
    if data == "cifar10n":
        images, columns, test_images, test_labels = cifar10n(folder / "cifar10n", limit)
        base = Task(images, columns["clean"], columns["clean"], test_images, test_labels, residual_net)
        if tiny:
            base = replace(base, network=lambda: residual_net(8), epochs=5)
    else:
        images, clean, test_images, test_labels = mnist(folder / "mnist", limit)
        columns = noisy_mnist(images, clean, seed)
        base = Task(images, clean, clean, test_images, test_labels, small_cnn, 20, 256, 0.1, 1e-4, None, 33.0, 79.0)
        if tiny:
            base = replace(base, network=lambda: small_cnn(4), epochs=5, batch=64)
    return {column: replace(base, labels=labels) for column, labels in columns.items()}


def measured(data: str, column: str, method: str, run: Run) -> dict[str, Any]:
    """The row of one run."""
    row = {"data": data, "column": column, "method": method, "seed": run.seed, "accuracy": round(run.accuracy(), 2)}
    weights, wrong = run.method.weights(), run.task.labels != run.task.clean
    cut = torch.zeros_like(wrong) if weights is None else weights < 0.5
    right = float((cut & wrong).sum() / cut.sum().clamp(min=1))
    return row | {
        "wrong": round(run.task.share_wrong, 4),
        "cut": round(float(cut.float().mean()), 4),
        "of_it_wrong": round(right, 4),
    }


def run_all(
    jobs: Sequence[tuple[str, str, str, int]], tasks: dict[Any, Task], given: argparse.Namespace
) -> list[dict[str, Any]]:
    """Train all jobs (data, column, method, seed), some at a time; rows are printed and recorded as they come."""
    rows = []
    for first in range(0, len(jobs), given.side_by_side):
        part = jobs[first : first + given.side_by_side]
        makers = [lambda job=job: Run(tasks[job[0], job[3], job[1]], ALL[job[2]](), job[3]) for job in part]
        for (data, column, method, _), run in zip(part, train_together(makers), strict=True):
            rows.append(measured(data, column, method, run))
            print(rows[-1], flush=True)
            if given.save is not None and method == "auto":
                save_memory(given.save / f"auto_{data}_{column.replace(' ', '')}_{run.seed}.npz", run)
        if given.record:
            device = torch.cuda.get_device_name() if DEVICE == "cuda" else None
            new = [{"torch": torch.__version__, **row} for row in rows[first:]]
            print(record.append("torch_noise", new, device), flush=True)
    return rows


def save_memory(path: Path, run: Run) -> None:
    """What was remembered, with the true labels."""
    state = {name: tensor.cpu().numpy() for name, tensor in run.method.criterion.auto.named_buffers()}
    state["history.rows"] = state["history.rows"].astype(np.float16)
    np.savez_compressed(path, clean=run.task.clean.cpu().numpy(), **state)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Methods by columns: mean accuracy and its standard error."""
    columns = list(dict.fromkeys((row["data"], row["column"]) for row in rows))
    lines = ["| method | " + " | ".join(column for _, column in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = [
            _cell([r["accuracy"] for r in rows if (r["data"], r["column"], r["method"]) == (*column, method)])
            for column in columns
        ]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else ""
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def epoch_ratio(task: Task, repeats: int = 3) -> float:
    """Time of an epoch with m="auto" over one with cross-entropy, step by step from Python, in turn; the median."""
    loops = [Run(task, METHODS[name](), 0) for name in ("cross-entropy", "auto")]
    ratios = []
    for _ in range(repeats):
        seconds = []
        for run in loops:
            run.shuffle()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(run.steps):
                run.train_step()
                run.total.zero_()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        ratios.append(seconds[1] / seconds[0])
    return statistics.median(ratios)


def recorded() -> list[dict[str, Any]]:
    """The newest recorded row of each run."""
    path = record.RESULTS / "torch_noise.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = {(r["data"], r["column"], r["method"], int(r["seed"])): r for r in csv.DictReader(file)}
    order = {name: place for place, name in enumerate(ALL)}
    return [
        {"data": data, "column": column, "method": method, "seed": seed, "accuracy": float(row["accuracy"])}
        for (data, column, method, seed), row in sorted(rows.items(), key=lambda item: order[item[0][2]])
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="+", default=["cifar10n", "mnist"], choices=["cifar10n", "mnist"])
    parser.add_argument("--columns", nargs="+", help="of the labels; all of them by default")
    parser.add_argument("--seeds", nargs="+", type=int, default=[2, 3, 4])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(ALL))
    parser.add_argument("--side-by-side", type=int, default=8 if DEVICE == "cuda" else 1)
    parser.add_argument("--tiny", action="store_true", help="a few hundred images, for a CPU")
    parser.add_argument("--save", type=Path, help="a folder for what m='auto' remembered")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--missing", action="store_true", help="leave out what has been recorded")
    parser.add_argument("--table", action="store_true", help="train nothing, and show what was recorded")
    return parser.parse_args()


def main() -> None:
    given = parsed()
    if given.table:
        print("\n\n".join(table([r for r in recorded() if r["data"] == data]) for data in given.data))
        return
    torch.backends.cudnn.benchmark = True
    tasks = {
        (data, seed, column): task
        for data in given.data
        for seed in given.seeds
        for column, task in tasks_of(data, seed, given.tiny).items()
        if given.columns is None or column in given.columns
    }
    jobs = [(data, column, method, seed) for (data, seed, column) in tasks for method in given.methods]
    if given.missing:
        there = {(row["data"], row["column"], row["method"], row["seed"]) for row in recorded()}
        jobs = [job for job in jobs if job not in there]
    rows = run_all(jobs, tasks, given)
    print(table(rows))
    if "auto" in given.methods:
        print(f"time of an epoch over cross-entropy's: {epoch_ratio(next(iter(tasks.values()))):.3f}")


if __name__ == "__main__":
    main()
