"""Networks on wrong labels, human ones (CIFAR-10N) and planted ones (MNIST), with one network and schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rankrange.torch as rrt

from .harness import DATA, Row, benchmark
from .noisy_nets import DEVICE, Run, Task, cifar10n, mnist, noisy_mnist, residual_net, small_cnn, train_together


class Method:
    """Cross-entropy, and what the others change."""

    def start(self, task: Task) -> None:
        self.task = task
        self.hot = F.one_hot(task.labels, 10).float()

    def loss(self, output: Tensor, target: Tensor, index: Tensor) -> Tensor:
        return F.cross_entropy(output, target)

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
            settings |= {"m": task.share_wrong, "warmup": 0.2, "total_batches": batches}
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
    "range, true m": lambda: Range(true_share=True),
    "stream, true m": lambda: Range(true_share=True, ranking="stream"),
    "auto": lambda: Range(m="auto"),
}


def tasks_of(data: str, seed: int, small: bool) -> dict[str, Task]:
    """Each column of labels as a task."""
    limit = 640 if small else None
    if data == "cifar10n":
        images, columns, test_images, test_labels = cifar10n(DATA / "cifar10n", limit)
        base = Task(images, columns["clean"], columns["clean"], test_images, test_labels, residual_net)
        if small:
            base = replace(base, network=lambda: residual_net(8), epochs=5)
    else:
        images, clean, test_images, test_labels = mnist(limit)
        columns = noisy_mnist(images, clean, seed)
        base = Task(images, clean, clean, test_images, test_labels, small_cnn, 20, 256, 0.1, 1e-4, None, 33.0, 79.0)
        if small:
            base = replace(base, network=lambda: small_cnn(4), epochs=5, batch=64)
    return {column: replace(base, labels=labels) for column, labels in columns.items()}


def measured(data: str, column: str, method: str, run: Run) -> Row:
    """The row of one run."""
    row: Row = {
        "torch": torch.__version__,
        "data": data,
        "column": column,
        "method": method,
        "seed": run.seed,
        "accuracy": round(run.accuracy(), 2),
    }
    weights, wrong = run.method.weights(), run.task.labels != run.task.clean
    cut = torch.zeros_like(wrong) if weights is None else weights < 0.5
    right = float((cut & wrong).sum() / cut.sum().clamp(min=1))
    return row | {
        "wrong": round(run.task.share_wrong, 4),
        "cut": round(float(cut.float().mean()), 4),
        "of_it_wrong": round(right, 4),
    }


def _accuracies(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy of each method by columns of labels, with its standard error over seeds."""
    rows = rows.drop_duplicates(["data", "column", "method", "seed"], keep="last")
    groups = rows.groupby(["data", "column", "method"], sort=False)["accuracy"]
    text = groups.mean().map("{:.2f}".format) + groups.sem().map(" ± {:.2f}".format).replace(" ± nan", "")
    return text.unstack(["data", "column"], sort=False)


@benchmark(_accuracies, data=("mnist",), seeds=1, methods=("cross-entropy", "auto"), columns=("pair .3",), small=True)
def torch_noise(
    data: tuple = ("cifar10n", "mnist"),
    columns: tuple = ("all",),
    seed: int = 2,
    seeds: int = 3,
    methods: tuple = tuple(METHODS),
    side_by_side: int = 8 if DEVICE == "cuda" else 1,
    small: bool = False,
) -> Iterator[Row]:
    """Clean test accuracy after the last epoch; for m="auto" what was cut and how much of it was wrong.

    A method is given the true share of wrong labels where it needs one ("range", "stream"), and nothing
    otherwise. The rule of m="auto" was settled on the seeds 0 and 1 with 3,000 training images held out. `--small`: a
    few hundred images, for a CPU.
    """
    torch.backends.cudnn.benchmark = True
    tasks = {
        (name, draw, column): task
        for name in data
        for draw in range(seed, seed + seeds)
        for column, task in tasks_of(name, draw, small).items()
        if columns == ("all",) or column in columns
    }
    jobs = [(key, method) for key in tasks for method in methods]
    for first in range(0, len(jobs), side_by_side):
        part = jobs[first : first + side_by_side]
        makers = [lambda key=key, method=method: Run(tasks[key], METHODS[method](), key[1]) for key, method in part]
        for ((name, _, column), method), run in zip(part, train_together(makers), strict=True):
            yield measured(name, column, method, run)
