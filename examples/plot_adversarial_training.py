"""
How do I train against attacks when some labels are wrong?
==========================================================

Adversarial training minimises the loss under the worst small change of every image. With a wrong label the network
learns to defend that label. A ranked range over the adversarial losses leaves out the rows that no network can fit.
This recipe follows outlier-robust adversarial training (Hu and others, ACML 2023) and needs only `AoRRLoss`.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import rankrange.torch as rrt

SMALL = "RANKRANGE_SMALL" in os.environ
EPOCHS, SIZE, STEPS = (3, 0.1, 2) if SMALL else (100, 0.1, 3)

images, digits = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(digits))
X = torch.tensor(images[order] / 16.0, dtype=torch.float32)
y = torch.tensor(digits[order])
train, test = slice(0, 1000), slice(1000, None)
given = y[train].clone()
wrong = torch.arange(400)  # four in ten labels are any digit
given[wrong] = torch.tensor(np.random.default_rng(1).integers(0, 10, 400))


# %%
# An attack moves each pixel by at most 0.1 in the direction that raises the loss, in a few steps.
def attacked(net: nn.Module, x: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    change = torch.zeros_like(x)
    for _ in range(STEPS):
        change.requires_grad_(True)
        loss = nn.functional.cross_entropy(net(x + change), label)
        (slope,) = torch.autograd.grad(loss, change)
        change = (change.detach() + 2 * SIZE / STEPS * slope.sign()).clamp(-SIZE, SIZE)
    return (x + change).clamp(0, 1).detach()


def accuracies(criterion: nn.Module) -> tuple[float, float]:
    """Accuracy on clean test images, and on attacked ones."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(1000).split(100):
            optimiser.zero_grad()
            bad = attacked(net, X[train][rows], given[rows])
            criterion(net(bad), given[rows]).backward()
            optimiser.step()
    bad = attacked(net, X[test], y[test])
    return tuple((net(x).argmax(1) == y[test]).float().mean().item() for x in (X[test], bad))


# %%
# The criterion is the only difference. The warm-up lets the network learn before its losses are informative. On these
# small images the gain is within the noise of the seed: over four seeds +.009 on clean and +.007 on attacked images,
# from -.005 to +.020 and from -.010 to +.021. So the example shows how to combine the two methods, not that the
# combination helps.
base = nn.CrossEntropyLoss(reduction="none")
losses = {
    "mean": rrt.AoRRLoss(base),
    "ranked range,\nm = 0.3": rrt.AoRRLoss(base, m=0.3, k=1.0, warmup=50),
}
results = {name: accuracies(criterion) for name, criterion in losses.items()}
for name, (clean, under_attack) in results.items():
    print(f"{' '.join(name.split()):<24} clean {clean:.3f}   attacked {under_attack:.3f}")

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
places = np.arange(len(results))
for shift, kind, color in ((-0.2, "clean images", "0.6"), (0.2, "attacked images", "#3b74c4")):
    axis.bar(places + shift, [r[int(shift > 0)] for r in results.values()], 0.38, color=color, label=kind)
axis.set_xticks(places, list(results))
axis.set(ylim=(0, 1), ylabel="accuracy on test images")
axis.legend(loc="lower right")
plt.show()
