"""
What do noisy labels do to my network?
======================================

It memorises them, a little later than the correct ones. ``AoRRLoss(m="auto")`` finds the labels that the network
contradicts repeatedly, reduces their weight, and lists them in the end. The number of wrong labels need not be known.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rankrange.torch as rrt
from rankrange import noise

epochs = 4 if os.environ.get("RANKRANGE_SMALL") else 40
images, truth = load_digits(return_X_y=True)
X = torch.tensor(images / 16, dtype=torch.float32)
train, test = slice(0, 1200), slice(1200, None)
given = noise.symmetric(truth[train], 0.3, random_state=0)
dataset = rrt.WithIndex(TensorDataset(X[train], torch.tensor(given)))


def follow(criterion, with_index):
    """Train one network; after each epoch note how it does on clean rows, and how many wrong labels it has learnt."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    wrong = given != truth[train]
    history = []
    for _ in range(epochs):
        for x, y, index in DataLoader(dataset, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            criterion(net(x), y, *([index] if with_index else [])).backward()
            optimizer.step()
        with torch.no_grad():
            predicted = net(X).argmax(1).numpy()
        history.append((np.mean(predicted[test] == truth[test]), np.mean(predicted[train][wrong] == given[wrong])))
    return 100 * np.array(history)


auto = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=len(dataset))
runs = {"cross-entropy": follow(nn.CrossEntropyLoss(), False), 'AoRRLoss(m="auto")': follow(auto, True)}

# %%
# Left: accuracy on rows that were not used for training. Right: how many of the wrong labels the network repeats.
figure, axes = plt.subplots(1, 2, figsize=(11, 3.9), layout="constrained")
for (name, history), colour in zip(runs.items(), ["#7f8fa6", "#d95f02"], strict=True):
    for axis, values in zip(axes, history.T, strict=True):
        axis.plot(np.arange(1, epochs + 1), values, lw=2.4, color=colour, label=name)
axes[0].set(xlabel="epoch", ylabel="accuracy on clean rows, %", title="Test accuracy")
axes[1].set(xlabel="epoch", ylabel="wrong labels repeated, %", title="Memorised wrong labels", ylim=(0, 100))
axes[0].legend(frameon=False, loc="lower left")

# %%
# The suspects come from the same run; no cross-validation is needed. These are the twelve worst.
suspects = auto.suspects()
print(suspects)
figure, axes = plt.subplots(2, 6, figsize=(10, 3.9), layout="constrained")
for axis, row in zip(axes.flat, suspects["row"], strict=False):
    axis.imshow(images[row].reshape(8, 8), cmap="gray_r")
    axis.set(title=f"label {given[row]}", xticks=[], yticks=[])
plt.show()
