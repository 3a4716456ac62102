"""Draw the pictures of the guides into docs/images: `python docs/draw_pictures.py`.

The pictures are stored, so that neither the tests nor the site wait for the fits behind them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, make_moons, make_multilabel_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rankrange.torch as rrt
from rankrange import AoRRClassifier, RankedRangeClassifier, TKMLClassifier, noise, plots

OUT = Path(__file__).parent / "images"
BLUE, ORANGE, GREY = "#3b74c4", "#d95f02", "#b8c0cc"


def _save(figure: Any, name: str) -> None:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(OUT / f"{name}.png", dpi=130)
    plt.close(figure)


def choose_m() -> None:
    """The gain of each share of dropped rows."""
    X, y = load_breast_cancer(return_X_y=True)
    given = noise.asymmetric(y, {0: 1}, 0.3, random_state=0)
    model = AoRRClassifier(random_state=0).fit(StandardScaler().fit_transform(X), given)
    figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    plots.plot_tuning(model, ax=axis)
    _save(figure, "choose_m")


def any_model() -> None:
    """Boosted trees on two moons, alone and wrapped."""
    X, y = make_moons(600, noise=0.2, random_state=0)
    given = noise.symmetric(y, 0.2, random_state=0)
    trees = HistGradientBoostingClassifier(random_state=0)
    wrapped = RankedRangeClassifier(trees, random_state=0).fit(X, given)
    trees.fit(X, given)
    x0, x1 = np.meshgrid(np.linspace(-1.8, 2.8, 300), np.linspace(-1.3, 1.8, 250))
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained", sharey=True)
    for axis, model, title in zip(axes, (trees, wrapped), ("boosted trees", "wrapped boosted trees"), strict=True):
        shown = np.ones(len(y), dtype=bool) if model is trees else ~wrapped.dropped_
        chance = model.predict_proba(np.column_stack([x0.ravel(), x1.ravel()]))[:, 1].reshape(x0.shape)
        axis.contourf(x0, x1, chance, levels=[0, 0.5, 1], colors=[BLUE, ORANGE], alpha=0.2)
        for c, colour in enumerate((BLUE, ORANGE)):
            axis.plot(*X[shown & (given == c)].T, "o", ms=3, color=colour)
            axis.plot(*X[~shown & (given == c)].T, "x", ms=5, color=colour)
        axis.set(title=title, xticks=[], yticks=[])
    _save(figure, "any_model")


def multilabel() -> None:
    """The scores of the labels of one row."""
    X, Y = make_multilabel_classification(1000, 20, n_classes=8, n_labels=3, random_state=1)
    X = StandardScaler().fit_transform(X)
    model = TKMLClassifier(top_k=3, random_state=0).fit(X[:600], Y[:600])
    row = 600 + int(((Y[600:].sum(axis=1) == 3) & (model.predict(X[600:]) == Y[600:]).all(axis=1)).argmax())
    scores = model.decision_function(X[row : row + 1])[0]
    order = np.argsort(-scores)
    figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
    axis.bar(range(8), scores[order], color=[BLUE] * 3 + [GREY] * 5)
    true = np.flatnonzero(Y[row][order])
    axis.plot(true, scores[order][true], "o", color=ORANGE, label="true label")
    axis.axhline(0, color="0.4", lw=0.8)
    axis.set(ylabel="score", title="The three best of eight labels")
    axis.set_xticks(range(8), [f"label {label}" for label in order], rotation=30)
    axis.legend(frameon=False)
    _save(figure, "multilabel")


def networks() -> None:
    """Accuracy on the true labels by epoch."""
    torch.manual_seed(0)
    X = torch.randn(1000, 5)
    y = (X[:, 0] + 0.5 * X[:, 1] > 0).long()
    given = torch.where(torch.arange(1000) < 300, 1 - y, y)
    base = nn.CrossEntropyLoss(reduction="none")
    robust = rrt.AoRRLoss(base, m="auto", n_samples=1000)
    criteria = {"cross-entropy": lambda output, target, index: base(output, target).mean(), 'm="auto"': robust}
    figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (name, criterion), colour in zip(criteria.items(), (ORANGE, BLUE), strict=True):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 2))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        right = []
        for _ in range(40):
            for x, target, index in DataLoader(rrt.WithIndex(TensorDataset(X, given)), batch_size=100, shuffle=True):
                optimizer.zero_grad()
                criterion(net(x), target, index).backward()
                optimizer.step()
            right.append((net(X).argmax(1) == y).float().mean().item())
        axis.plot(range(1, 41), right, color=colour, lw=2, label=name)
    axis.set(xlabel="epoch", ylabel="accuracy on true labels", title="30% of the labels are wrong")
    axis.legend(frameon=False)
    _save(figure, "networks")


if __name__ == "__main__":
    for draw in (choose_m, any_model, multilabel, networks):
        draw()
