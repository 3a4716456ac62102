"""
What if the labels of one class are wrong more often?
=====================================================

Then an ordinary classifier moves its boundary: it learns to predict class 0 too often, because many rows of class 1
carry that label. More data do not help. Here a third of class 1 is labelled class 0.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from rankrange import AoRRClassifier

rng = np.random.default_rng(3)
n = 600
truth = np.repeat([0, 1], n // 2)
centres = np.array([[-1.1, 0.4], [1.1, -0.4]])
X = centres[truth] + rng.normal(scale=0.8, size=(n, 2))
given = truth.copy()
given[rng.choice(np.flatnonzero(truth == 1), n // 6, replace=False)] = 0

plain = LogisticRegression().fit(X, given)
robust = AoRRClassifier(random_state=0).fit(X, given)
print(f"right on the true labels: ordinary {plain.score(X, truth):.1%}, robust {robust.score(X, truth):.1%}")
print(f"{robust.dropped_.sum()} rows were left out; {(given != truth)[robust.dropped_].mean():.0%} of them are wrong")

# %%
# Both pictures show the labels as given. Rows whose label is wrong are ringed. The ordinary boundary (left) lets
# class 0 reach far into class 1. The robust model drops the pale rows on the right, and its boundary separates the
# true classes.
figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", sharey=True)
grid = np.stack(np.meshgrid(np.linspace(-4, 4, 200), np.linspace(-3.5, 3.5, 200)), axis=-1)
colours = np.array(["#3b74c4", "#e08a1e"])
for axis, model, name in ((axes[0], plain, "LogisticRegression"), (axes[1], robust, 'AoRRClassifier, m="auto"')):
    values = model.predict_proba(grid.reshape(-1, 2))[:, 1].reshape(200, 200)
    axis.contourf(grid[..., 0], grid[..., 1], values, [0, 0.5, 1], colors=colours, alpha=0.15)
    axis.contour(grid[..., 0], grid[..., 1], values, [0.5], colors="0.15", linewidths=2)
    pale = robust.dropped_ if model is robust else np.zeros(n, dtype=bool)
    axis.scatter(*X[~pale].T, s=14, c=colours[given[~pale]], lw=0)
    axis.scatter(*X[pale].T, s=14, c=colours[given[pale]], lw=0, alpha=0.25)
    wrong = given != truth
    axis.scatter(*X[wrong].T, s=44, facecolors="none", edgecolors="0.35", lw=0.6)
    axis.set_title(f"{name}: {model.score(X, truth):.1%} right")
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
