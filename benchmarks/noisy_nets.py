"""Small networks trained on wrong labels, many at a time: data, networks, and the training loop.

A training step (batch, augmentation, network, loss, optimiser) is captured once as a CUDA graph and replayed, and
several runs share the GPU on streams of their own: on an H200 a run of 25 epochs on 20,000 images takes some 7 seconds.
That a loss can be captured also shows that it never waits for the device. Without a GPU the same step runs as it is.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reproduction import data as paper

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CIFAR_LABELS = {"clean": "clean_label", "aggre": "aggre_label", "random1": "random_label1", "worse": "worse_label"}


@dataclass(frozen=True)
class Task:
    """Images (n, height, width, channels) in bytes, noisy and clean labels, and how a network is trained on them."""

    images: Tensor
    labels: Tensor
    clean: Tensor
    test_images: Tensor
    test_labels: Tensor
    network: Callable[[], nn.Module]
    epochs: int = 25
    batch: int = 128
    peak: float = 0.1  # of the learning rate, which rises for a fifth of training and falls for the rest, in lines
    decay: float = 5e-4
    padding: int | None = 4  # of the random crops, with random flips; None for neither
    centre: float = 121.0
    scale: float = 64.0

    @property
    def share_wrong(self) -> float:
        return float((self.labels != self.clean).float().mean())


# --- data ---------------------------------------------------------------------------------------------------------


@functools.cache
def cifar10n(folder: Path, limit: int | None = None) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """Images, columns of labels, test images and test labels of the CIFAR-10N subset."""
    train, test = np.load(folder / "train.npz"), np.load(folder / "test.npz")
    columns = {name: _labels(train[key][:limit]) for name, key in CIFAR_LABELS.items()}
    return _decoded(train, limit), columns, _decoded(test, limit), _labels(test["label"][:limit])


@functools.cache
def mnist(limit: int | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    bunch = paper.load("mnist")
    images = [torch.tensor(part.reshape(-1, 28, 28, 1)[:limit]).to(DEVICE) for part in (bunch.data, bunch.test_data)]
    return images[0], _labels(bunch.target[:limit]), images[1], _labels(bunch.test_target[:limit])


def noisy_mnist(images: Tensor, clean: Tensor, seed: int) -> dict[str, Tensor]:
    """The labels of each cell: symmetric, each class to the next, depending on the image, and as they are."""
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(len(clean), generator=generator).to(clean.device)
    other = torch.randint(1, 10, (len(clean),), generator=generator).to(clean.device)
    return {
        "symmetric .2": torch.where(draw < 0.2, (clean + other) % 10, clean),
        "symmetric .4": torch.where(draw < 0.4, (clean + other) % 10, clean),
        "pair .3": torch.where(draw < 0.3, (clean + 1) % 10, clean),
        "instance .3": _by_instance(images, clean, 0.3, generator),
        "none": clean,
    }


def _by_instance(images: Tensor, clean: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Labels whose chance of being wrong, and the class they go to, depend on the image (after Xia et al., 2020)."""
    flat = images.reshape(len(clean), -1).float().cpu() / 255.0
    flat = (flat - flat.mean(0)) / (flat.std() + 1e-6)
    maps = torch.randn(10, flat.shape[1], 10, generator=generator) / flat.shape[1] ** 0.5
    own = clean.cpu()
    pull = torch.zeros(len(own), 10)
    for c in range(10):
        pull[own == c] = flat[own == c] @ maps[c]
    pull.scatter_(1, own[:, None], -torch.inf)
    chance = (rate + 0.1 * torch.randn(len(own), generator=generator)).clamp(0.0, 1.0)
    other = torch.multinomial(pull.softmax(1), 1, generator=generator)[:, 0]
    return torch.where(torch.rand(len(own), generator=generator) < chance, other, own).to(clean.device)


def _decoded(archive: Any, limit: int | None) -> Tensor:
    from PIL import Image

    data, offset = archive["jpeg"], archive["offset"]

    def image(i: int) -> Any:
        return np.asarray(Image.open(io.BytesIO(data[offset[i] : offset[i + 1]].tobytes())).convert("RGB"))

    with ThreadPoolExecutor(8) as pool:
        return torch.from_numpy(np.stack(list(pool.map(image, range(limit or len(offset) - 1))))).to(DEVICE)


def _labels(values: Any) -> Tensor:
    return torch.from_numpy(values.astype(np.int64)).to(DEVICE)


# --- networks -----------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = _conv(inputs, outputs, 3, stride), _conv(outputs, outputs, 3, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else _conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.two(F.relu(self.one(x), inplace=True)) + self.shortcut(x), inplace=True)


def _conv(inputs: int, outputs: int, size: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs))


def residual_net(width: int = 64) -> nn.Module:
    """Fourteen layers in three stages, 2.8 million parameters at the usual width."""
    stages = [Block(width, width, 1), Block(width, width, 1)]
    for inputs in (width, 2 * width):
        stages += [Block(inputs, 2 * inputs, 2), Block(2 * inputs, 2 * inputs, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)]
    return nn.Sequential(_conv(3, width, 3, 1), nn.ReLU(inplace=True), *stages, *head)


def small_cnn(width: int = 32) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(50 * width, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


# --- training -----------------------------------------------------------------------------------------------------


class Run:
    """One training. `method` has start(task), loss(output, target, index), buffers()."""

    def __init__(self, task: Task, method: Any, seed: int) -> None:
        self.task, self.method, self.seed = task, method, seed
        torch.manual_seed(seed)
        self.net = task.network().to(DEVICE)
        if task.images.shape[-1] > 1:
            self.net = self.net.to(memory_format=torch.channels_last)
        self.generator = torch.Generator(DEVICE).manual_seed(seed)
        n, self.side = len(task.labels), task.images.shape[1]
        self.steps = n // task.batch
        pad = task.padding or 0
        self.padded = F.pad(task.images.permute(0, 3, 1, 2), [pad] * 4).permute(0, 2, 3, 1).contiguous()
        t = (torch.arange(self.steps * task.epochs, device=DEVICE) + 1) / (self.steps * task.epochs)
        self.rates = task.peak * torch.where(t < 0.2, t / 0.2, (1 - t) / 0.8)
        self.order = torch.zeros(self.steps, task.batch, dtype=torch.long, device=DEVICE)
        self.shift = torch.zeros(2, n, dtype=torch.long, device=DEVICE)
        self.flip = torch.zeros(n, dtype=torch.bool, device=DEVICE)
        self.step, self.total = (torch.zeros(1, dtype=torch.long, device=DEVICE) for _ in range(2))
        self.parameters = list(self.net.parameters())
        self.momenta = [torch.zeros_like(p) for p in self.parameters]
        method.start(task)
        self.shuffle()
        self.stream = torch.cuda.Stream() if DEVICE == "cuda" else None
        self.graph = self._captured() if DEVICE == "cuda" else None

    def shuffle(self) -> None:
        """The order, crops and flips of an epoch."""
        n = len(self.task.labels)
        order = torch.randperm(n, generator=self.generator, device=DEVICE)
        self.order.copy_(order[: self.order.numel()].view_as(self.order))
        if self.task.padding is not None:
            high = 2 * self.task.padding + 1
            self.shift.copy_(torch.randint(high, (2, n), generator=self.generator, device=DEVICE))
            self.flip.copy_(torch.rand(n, generator=self.generator, device=DEVICE) < 0.5)
        self.step.zero_()

    def images(self, rows: Tensor) -> Tensor:
        across = torch.arange(self.side, device=DEVICE)
        y = self.shift[0, rows][:, None] + across
        x = self.shift[1, rows][:, None] + torch.where(self.flip[rows][:, None], self.side - 1 - across, across)
        return self._scaled(self.padded[rows[:, None, None], y[:, :, None], x[:, None, :]])

    def _scaled(self, images: Tensor) -> Tensor:
        return ((images.float() - self.task.centre) / self.task.scale).permute(0, 3, 1, 2)

    def train_step(self) -> None:
        rows = self.order.index_select(0, self.step)[0]
        with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False, enabled=DEVICE == "cuda"):
            output = self.net(self.images(rows))
        loss = self.method.loss(output.float(), self.task.labels[rows], rows)
        gradients = list(torch.autograd.grad(loss, self.parameters))
        with torch.no_grad():  # SGD with Nesterov momentum; the rate is read on the device
            torch._foreach_add_(gradients, self.parameters, alpha=self.task.decay)
            torch._foreach_mul_(self.momenta, 0.9)
            torch._foreach_add_(self.momenta, gradients)
            torch._foreach_add_(gradients, self.momenta, alpha=0.9)
            torch._foreach_mul_(gradients, self.rates.index_select(0, self.total)[0])
            torch._foreach_sub_(self.parameters, gradients)
            self.step += 1
            self.total += 1

    def _captured(self) -> torch.cuda.CUDAGraph:
        state = [*self.parameters, *self.net.buffers(), *self.momenta, self.step, self.total, *self.method.buffers()]
        self.stream.wait_stream(torch.cuda.current_stream())
        with self.on_stream():
            saved = [tensor.detach().clone() for tensor in state]
            for _ in range(3):
                self.train_step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self.train_step()
        with torch.no_grad(), self.on_stream():  # the steps so far were for warming up
            for tensor, old in zip(state, saved, strict=True):
                tensor.copy_(old)
        torch.cuda.synchronize()
        return graph

    def advance(self) -> None:
        with self.on_stream():
            self.graph.replay() if self.graph is not None else self.train_step()

    def on_stream(self) -> Any:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    @torch.no_grad()
    def outputs(self, images: Tensor) -> Tensor:
        self.net.eval()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            found = torch.cat([self.net(self._scaled(part)).float() for part in images.split(1000)])
        self.net.train()
        return found

    def accuracy(self) -> float:
        right = self.outputs(self.task.test_images).argmax(1) == self.task.test_labels
        return 100.0 * float(right.float().mean())


def train_together(makers: Sequence[Callable[[], Run]]) -> list[Run]:
    """Build the runs and train them side by side, step by step."""
    runs = [make() for make in makers]
    for epoch in range(max(run.task.epochs for run in runs)):
        for run in runs:
            with run.on_stream():
                if epoch:
                    run.shuffle()
        for step in range(max(run.steps for run in runs)):
            for run in runs:
                if step < run.steps:
                    run.advance()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return runs
