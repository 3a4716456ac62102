"""Which of my training labels are wrong? Ask the network while it trains.

    python examples/network_noisy_labels.py [--images N] [--epochs N] [--device cpu|cuda]

Three in ten of these handwritten digits are labelled as the next digit. Cross-entropy memorises these errors. The same
network with `AoRRLoss(m="auto")`, the same batches and no further setting, leaves them out: it gets the index of each
sample, keeps a running mean of its predictions, and cuts the labels that the network contradicts repeatedly. The
number of wrong labels is not given. At the end it lists them, each with a suggested label.

The data come from the folder named by RANKRANGE_DATA, or are fetched from OpenML.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rankrange.torch as rrt
from rankrange import noise

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction import data

NOISE = 0.3


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def train(loader: DataLoader, criterion: nn.Module, with_index: bool, given: argparse.Namespace) -> nn.Module:
    net = make_net().to(given.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(1)  # the same order of the samples for both
    for _ in range(given.epochs):
        for x, y, index in loader:
            optimizer.zero_grad()
            more = (index.to(given.device),) if with_index else ()
            criterion(net(x.to(given.device)), y.to(given.device), *more).backward()
            optimizer.step()
    return net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    digits = data.load("mnist")
    clean = digits.target[: given.images].astype(np.int64)
    noisy = noise.asymmetric(clean, {c: (c + 1) % 10 for c in range(10)}, NOISE, random_state=0)

    def images(pixels: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(pixels.reshape(-1, 1, 28, 28).astype(np.float32) / 255.0)

    dataset = rrt.WithIndex(TensorDataset(images(digits.data[: given.images]), torch.from_numpy(noisy)))
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    auto = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=len(dataset)).to(given.device)
    nets = {
        "cross-entropy": train(loader, nn.CrossEntropyLoss(), False, given),
        "m='auto'": train(loader, auto, True, given),
    }
    x, y = images(digits.test_data).to(given.device), torch.from_numpy(digits.test_target.astype(np.int64))
    for name, net in nets.items():
        with torch.no_grad():
            right = torch.cat([net(part).argmax(1).cpu() for part in x.split(1000)]) == y
        print(f"{name}: {right.float().mean():.1%} of the clean test digits")
    suspects = auto.suspects()
    print(suspects)
    likely = suspects.table[suspects.table["p_wrong"] >= 0.5]
    wrong, correct = noisy != clean, likely["suggested"] == clean[likely["row"]]
    found = wrong[likely["row"]]
    print(
        f"{len(likely)} labels are called wrong; {found.mean():.1%} of them are, and these are "
        f"{found.sum() / wrong.sum():.1%} of all errors. The suggested label is right for {correct.mean():.1%}."
    )


if __name__ == "__main__":
    main()
