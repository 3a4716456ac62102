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
from rankrange import (
    AoRRClassifier,
    AoRRRegressorCV,
    RankedRangeClassifier,
    TKMLClassifier,
    datasets,
    noise,
    plots,
)

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


def groups() -> None:
    """Accuracy in both groups of the guide's data, for three objectives."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 2))
    group = np.where(rng.random(3000) < 0.15, "small", "large")
    y = np.where(group == "small", X @ [0.5, 1.0], X @ [1.0, 0.2]) > 0
    given = y.copy()
    wrong = np.flatnonzero(group[:700] == "small")[:11]
    X[wrong] *= 3
    given[wrong] = ~given[wrong]
    models = {
        "mean of all rows": AoRRClassifier(m=0).fit(X[:700], given[:700]),
        "worst group": AoRRClassifier(m=0, aggregate="worst-group").fit(X[:700], given[:700], groups=group[:700]),
        "worst group, m = 0.1": AoRRClassifier(m=0.1, aggregate="worst-group", random_state=0).fit(
            X[:700], given[:700], groups=group[:700]
        ),
    }
    figure, axis = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for shift, (name, colour) in enumerate((("large", GREY), ("small", ORANGE))):
        rows = 700 + np.flatnonzero(group[700:] == name)
        shares = [100 * model.score(X[rows], y[rows]) for model in models.values()]
        bars = axis.bar(np.arange(3) + 0.4 * shift - 0.2, shares, 0.38, color=colour, label=f"{name} group")
        axis.bar_label(bars, fmt="%.0f%%")
    axis.set(xticks=range(3), xticklabels=models, ylabel="accuracy on new rows (%)", ylim=(50, 112))
    axis.legend(frameon=False, loc="upper right", ncols=2)
    _save(figure, "groups")


def sparse_models() -> None:
    """The path of the guide's sparse model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 500))
    y = 3 * X[:, 0] - 2 * X[:, 1] + 2 * X[:, 2] + 0.3 * rng.normal(size=100)
    y[:10] += 30
    search = AoRRRegressorCV(m=(0.0, 0.15), n_penalties=30, random_state=0).fit(X, y)
    figure, axis = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    plots.path(search, ax=axis)
    _save(figure, "sparse_models")


def toy_sets() -> None:
    """Both toy sets with ten outliers."""
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    for axis, name in zip(axes, ("toy_multimodal", "toy_imbalanced"), strict=True):
        toy = datasets.load(name, n_outliers=10, random_state=3)
        for c, colour in enumerate((BLUE, ORANGE)):
            rows = toy.target == c
            axis.plot(*toy.data[rows & ~toy.outliers].T, "o", ms=3, color=colour, label=f"class {c}")
        axis.plot(*toy.data[toy.outliers].T, "x", ms=6, color="black", label="outliers (class 1)")
        axis.set(title=name, xlabel="x1", ylabel="x2")
    axes[0].legend(frameon=False)
    _save(figure, "toy_sets")


if __name__ == "__main__":
    for draw in (choose_m, any_model, multilabel, networks, groups, sparse_models, toy_sets):
        draw()
