"""
Can my boosted trees ignore wrong labels too?
=============================================

``RankedRangeClassifier`` wraps any model. Out-of-fold predictions show which labels are probably wrong, those rows are
dropped, and the model is fitted to the others. Here it wraps gradient boosting on two moons.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.ensemble import HistGradientBoostingClassifier

from rankrange import RankedRangeClassifier, noise

n = 200 if os.environ.get("RANKRANGE_SMALL") else 700
X, truth = make_moons(n, noise=0.18, random_state=0)
X_test, y_test = make_moons(5000, noise=0.18, random_state=1)
given = noise.symmetric(truth, 0.25, random_state=0)
trees = HistGradientBoostingClassifier(max_iter=40, random_state=0)

plain = trees.fit(X, given)
robust = RankedRangeClassifier(HistGradientBoostingClassifier(max_iter=40, random_state=0), random_state=0)
robust.fit(X, given)
scores = plain.score(X_test, y_test), robust.score(X_test, y_test)
print(f"share of wrong labels: {np.mean(given != truth):.0%}, estimated {robust.noise_estimate_:.0%}")

# %%
# Trees alone fit islands around wrong labels. Without the dropped rows (crosses), the boundary follows the two moons.
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharey=True)
grid = np.stack(np.meshgrid(np.linspace(-1.7, 2.7, 180), np.linspace(-1.2, 1.7, 180)), axis=-1)
colours = np.array(["#3b74c4", "#e08a1e"])
for axis, model, name, score in zip(
    axes, (plain, robust), ("trees alone", "trees in RankedRangeClassifier"), scores, strict=True
):
    values = model.predict_proba(grid.reshape(-1, 2))[:, 1].reshape(180, 180)
    axis.contourf(grid[..., 0], grid[..., 1], values, 12, cmap="PuOr_r", alpha=0.6)
    axis.contour(grid[..., 0], grid[..., 1], values, [0.5], colors="0.1", linewidths=1.6)
    dropped = robust.dropped_ if model is robust else np.zeros(n, dtype=bool)
    axis.scatter(*X[~dropped].T, s=11, c=colours[given[~dropped]], lw=0.2, edgecolors="white")
    axis.scatter(*X[dropped].T, s=22, c=colours[given[dropped]], marker="x", lw=1)
    axis.set_title(f"{name}: {score:.1%} right on clean rows")
    axis.set(xticks=[], yticks=[])
plt.show()
