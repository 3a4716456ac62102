"""
How do I know that the fit is good?
===================================

Leaving out rows makes the objective non-convex: it has many local minima, and the start of a search decides in which
one it ends. This example draws that landscape for two parameters, and shows what ``certificate_`` proves.
"""

import os

import matplotlib.pyplot as plt
import numpy as np

from rankrange import AoRRRegressor, ranked_range

rng = np.random.default_rng(2)
n, m = 30, 20
x = rng.uniform(-3, 3, n)
y = 0.8 * x + 0.5 + rng.normal(scale=0.15, size=n)
junk = rng.choice(n, m - 2, replace=False)  # only twelve of thirty points follow the line
y[junk] = rng.uniform(-4, 4, m - 2)

# %%
# The objective is the mean of the squared errors without the 20 largest. It is computed for a grid of lines. In the
# left panel, the dark valley is the line in the data, and each white dot is a local minimum in which a descent can end.
size = 80 if os.environ.get("RANKRANGE_SMALL") else 220
slopes, intercepts = np.meshgrid(np.linspace(-2.2, 2.2, size), np.linspace(-3, 3, size))
errors = (y - slopes[..., None] * x - intercepts[..., None]) ** 2
values = ranked_range(errors, m, n)
inner = values[1:-1, 1:-1]
around = [np.roll(np.roll(values, i, 0), j, 1)[1:-1, 1:-1] for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
hollow = np.argwhere(np.all([inner < other for other in around], axis=0)) + 1

# %%
# Plain alternation (fit the kept rows, rank again) from random starts ends in many of them. The solver of
# ``AoRRRegressor`` compares many starts at low cost, and bounds how much lower the objective could be near its
# result.
ends = []
for _ in range(12):
    line = rng.uniform([-2, -3], [2, 3])
    for _ in range(60):
        kept = np.argsort((y - line[0] * x - line[1]) ** 2)[: n - m]
        line = np.polyfit(x[kept], y[kept], 1)
    ends.append(line)
model = AoRRRegressor(m=m, k=n, C=100.0, random_state=0).fit(x[:, None], y)
print(f"objective {model.objective_:.4f}, certificate {model.certificate_:.1e}, converged: {model.converged_}")

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained", width_ratios=[3, 2])
shown = left.contourf(slopes, intercepts, np.log10(values), 24, cmap="viridis")
figure.colorbar(shown, ax=left, label="log10 of the objective")
left.plot(
    slopes[tuple(hollow.T)], intercepts[tuple(hollow.T)], ".", color="white", ms=5, label="local minima of the grid"
)
left.plot(*np.array(ends).T, "s", mfc="none", mec="#ffb085", ms=9, mew=1.8, label="ends of plain alternation")
left.plot(model.coef_[0], model.intercept_, "*", color="#ff5a1f", ms=17, mec="white", label="AoRRRegressor")
left.set(xlabel="slope", ylabel="intercept", title="The objective for every line")
left.legend(fontsize=8.5, loc="upper right")
ends_x = np.array([-3.2, 3.2])
for line in ends:
    right.plot(ends_x, line[0] * ends_x + line[1], color="#ffb085", lw=1)
right.plot(x[~model.dropped_], y[~model.dropped_], "o", ms=5, color="0.3", label="kept")
right.plot(x[model.dropped_], y[model.dropped_], "x", color="0.3", label="left out")
right.plot(ends_x, model.predict(ends_x[:, None]), color="#ff5a1f", lw=2.5, label="AoRRRegressor")
right.set(xlabel="x", ylabel="y", title="The corresponding lines", ylim=(-5, 5))
right.legend(frameon=False, fontsize=8.5)
right.spines[["top", "right"]].set_visible(False)
plt.show()
