"""A convolutional net on MNIST with 40% of its training labels wrong: cross-entropy against the average ranked range.

    python examples/mnist_noisy_cnn.py [--quick] [--device cpu|cuda] [--epochs N] [--seed N]

Symmetric noise: 40% of the labels are another digit. After many epochs cross-entropy memorises them. AoRR with m = 0.4
leaves out the 40% largest losses of every batch, which after an ordinary first epoch are mostly those of wrong labels,
and does not memorise them. Both runs use the same net, batches and labels; the test labels are clean. The change is
one line. The data come from the folder named by RANKRANGE_DATA, or are fetched from OpenML.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import rankrange.torch as rrt
from rankrange import noise

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction import data

NOISE = 0.4


def load(n_train: int, device: str, seed: int) -> dict[str, Tensor]:
    """Images and noisy labels to train on, images and clean labels to test on."""
    digits = data.load("mnist")
    clean = digits.target[:n_train]
    noisy = noise.symmetric(clean, NOISE, random_state=seed)

    def images(pixels):
        return torch.from_numpy(pixels).to(device).float().div(255).sub(0.13).div(0.31).reshape(-1, 1, 28, 28)

    def labels(y):
        return torch.from_numpy(y).to(device)

    return {
        "x": images(digits.data[:n_train]), "y": labels(noisy),
        "test_x": images(digits.test_data), "test_y": labels(digits.test_target),
    }  # fmt: skip


class Run:
    """A net in training; `robust` is the whole difference between the two."""

    def __init__(self, robust: bool, given: argparse.Namespace) -> None:
        self.robust, self.given, self.seconds = robust, given, []
        self.net = make_net(given).to(given.device)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.criterion: nn.Module = nn.CrossEntropyLoss()
        if robust:
            self.criterion = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m=NOISE)

    def epoch(self, data: dict[str, Tensor], order: Tensor, warm_up: bool) -> None:
        if self.robust:
            self.criterion.m = 0.0 if warm_up else NOISE
        synchronize(self.given.device)
        start = time.perf_counter()
        for rows in order.split(self.given.batch_size):
            self.optimizer.zero_grad(set_to_none=True)
            self.criterion(self.net(data["x"][rows]), data["y"][rows]).backward()
            self.optimizer.step()
        synchronize(self.given.device)
        self.seconds.append(time.perf_counter() - start)


def make_net(given: argparse.Namespace) -> nn.Module:
    torch.manual_seed(given.seed)
    width = 16 if given.quick else 64
    return nn.Sequential(
        nn.Conv2d(1, width, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(50 * width, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


@torch.no_grad()
def accuracy(net: nn.Module, data: dict[str, Tensor]) -> float:
    right = [
        (net(x).argmax(1) == y).sum()
        for x, y in zip(data["test_x"].split(2000), data["test_y"].split(2000), strict=True)
    ]
    return sum(right).item() / len(data["test_y"])


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="6,000 images, for a few minutes on two cores")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--batch-size", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.epochs = given.epochs or (15 if given.quick else 60)
    given.batch_size = given.batch_size or (128 if given.quick else 2048)
    data = load(6_000 if given.quick else 60_000, given.device, given.seed)
    plain, robust = Run(False, given), Run(True, given)
    generator = torch.Generator().manual_seed(given.seed)
    for epoch in range(given.epochs):
        order = torch.randperm(len(data["y"]), generator=generator).to(given.device)
        for run in (plain, robust):  # in turn, so that a busy machine slows both
            run.epoch(data, order, warm_up=epoch == 0)
        found = [accuracy(run.net, data) for run in (plain, robust)]
        print(f"epoch {epoch + 1:2d}: clean test accuracy {found[0]:.2%}, with AoRR {found[1]:.2%}", flush=True)
    print(f"at the end: cross-entropy {found[0]:.2%}, AoRR {found[1]:.2%}, {100 * (found[1] - found[0]):+.1f} points")
    medians = [statistics.median(run.seconds) for run in (plain, robust)]
    print(f"seconds an epoch: {medians[0]:.3f} and {medians[1]:.3f}, {medians[1] / medians[0]:.3f} times")


if __name__ == "__main__":
    main()
