"""
Is it better than Huber, RANSAC or Theil-Sen?
=============================================

Robust regression has a long history. This example moves a growing share of the points of a line into one cluster,
fits four estimators of scikit-learn and two settings of ``AoRRRegressor``, and shows where each of them breaks down.
"""

import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import HuberRegressor, LinearRegression, RANSACRegressor, TheilSenRegressor

from rankrange import AoRRRegressor

warnings.filterwarnings("ignore", message=".*RANSAC.*")
repeats = 1 if os.environ.get("RANKRANGE_SMALL") else 10


def points(share, seed, n=200):
    """A line, and a share of its points moved into a cluster at its right end that pulls it down."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 10, n)
    y = 1 + 0.5 * x + rng.normal(scale=0.4, size=n)
    moved = rng.choice(n, int(share * n), replace=False)
    x[moved] = rng.uniform(7, 12, len(moved))
    y[moved] = rng.normal(-3, 0.8, len(moved))
    return x[:, None], y, moved


def estimators(seed):
    """No estimator is given the share of moved points; the last one only assumes that it is below 45%."""
    return {
        "least squares": LinearRegression(),
        "Huber": HuberRegressor(max_iter=500),
        "Theil-Sen": TheilSenRegressor(random_state=seed, max_subpopulation=400),
        "RANSAC": RANSACRegressor(random_state=seed),
        'AoRRRegressor, m="auto"': AoRRRegressor(C=10.0, random_state=seed),
        "AoRRRegressor, m=0.45": AoRRRegressor(m=0.45, C=10.0, random_state=seed),
    }


def slope(model):
    """The slope of a fitted line."""
    return float(np.ravel(getattr(model, "estimator_", model).coef_)[0])


# %%
# The error of the slope, over ten draws per share. ``m="auto"`` finds the slope up to a fifth of moved points; from
# three in ten on it treats the cluster as part of the data, because a fit that drops nothing predicts the other rows
# as well. RANSAC breaks down a little later. If many points may be bad, set a bound: ``m=0.45`` costs a little on clean
# data and is robust to the end.
shares = [0.0, 0.1, 0.2, 0.3, 0.4]
errors = {name: np.zeros((len(shares), repeats)) for name in estimators(0)}
for i, share in enumerate(shares):
    for seed in range(repeats):
        X, y, _ = points(share, seed)
        for name, model in estimators(seed).items():
            errors[name][i, seed] = abs(slope(model.fit(X, y)) - 0.5)

colours = dict(zip(errors, ["#7f7f7f", "#c2559d", "#8c6bb1", "#1b9e77", "#f0a050", "#d95f02"], strict=True))
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
X, y, moved = points(0.3, 0)
kept = np.setdiff1d(np.arange(len(y)), moved)
left.plot(X[kept], y[kept], "o", ms=3.5, color="0.5")
left.plot(X[moved], y[moved], "x", color="0.2")
ends = np.array([[0.0], [12.0]])
for name, model in estimators(0).items():
    left.plot(ends, model.fit(X, y).predict(ends), lw=2.2, color=colours[name], label=name)
left.set(xlabel="x", ylabel="y", title="Three points in ten were moved")
left.legend(frameon=False, fontsize=9)
for name, values in errors.items():
    right.plot(shares, values.mean(axis=1), "o-", color=colours[name], label=name)
    right.fill_between(shares, values.min(axis=1), values.max(axis=1), color=colours[name], alpha=0.12, lw=0)
right.set(xlabel="share of points moved", ylabel="error of the slope", title=f"Mean and range over {repeats} draws")
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
