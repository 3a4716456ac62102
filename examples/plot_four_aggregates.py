"""
Why does one bad point bend my line?
====================================

Because the point with the largest loss has the largest influence on the average. Here a line is fitted to points of
which one in five was moved away. The four fits differ only in the ranks of the losses that they use.
"""

import matplotlib.pyplot as plt
import numpy as np

from rankrange import AoRRRegressor

rng = np.random.default_rng(4)
n, n_bad = 80, 16
x = np.sort(rng.uniform(0, 10, n))
y = 1 + 0.5 * x + rng.normal(scale=0.4, size=n)
bad = rng.choice(np.arange(n // 2, n), n_bad, replace=False)
y[bad] = rng.normal(-2.5, 0.7, n_bad)

# %%
# The average, the average of the worst third, the trimmed mean and the ranked range are settings of the same two
# numbers.
settings = {
    "average: all points": (0, 1.0),
    "top third: the worst points only": (0, 0.33),
    "trimmed: all but the 16 worst": (16, 1.0),
    "ranked range: ranks 17 to 70": (16, 70),
}
fits = {name: AoRRRegressor(m=m, k=k, C=100.0, random_state=0).fit(x[:, None], y) for name, (m, k) in settings.items()}

# %%
# The first two lines follow the moved points; the last two ignore them.
colours = ["#3b74c4", "#c2559d", "#1b9e77", "#d95f02"]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), width_ratios=[3, 2], layout="constrained")
good = np.setdiff1d(np.arange(n), bad)
left.plot(x[good], y[good], "o", ms=4, color="0.4", label="points")
left.plot(x[bad], y[bad], "x", color="black", label="moved points")
ends = np.array([0, 10])
left.plot(ends, 1 + 0.5 * ends, "k--", lw=1, label="truth")
for (name, fit), colour in zip(fits.items(), colours, strict=True):
    wide = {"lw": 6, "alpha": 0.45} if name.startswith("trimmed") else {"lw": 2}
    left.plot(ends, fit.predict(ends[:, None]), color=colour, label=name, **wide)
left.set(xlabel="x", ylabel="y", ylim=(-5, 12), title="Four fits to the same points")
left.legend(frameon=False, fontsize=8.5, loc="upper left", ncols=2)

# %%
# The right panel shows the losses in order of size, and the range of ranks that is kept.
last = fits["ranked range: ranks 17 to 70"]
losses = (last.predict(x[:, None]) - y) ** 2
order = np.argsort(-losses)
is_bad = np.isin(order, bad)
ranks = np.arange(1, n + 1)
right.axvspan(16.5, 70.5, color=colours[3], alpha=0.12, lw=0)
right.semilogy(ranks[~is_bad], losses[order][~is_bad], "o", ms=4, color="0.4")
right.semilogy(ranks[is_bad], losses[order][is_bad], "x", color="black")
right.text(43, losses.max(), "these ranks count", ha="center", color=colours[3], weight="bold")
right.set(xlabel="rank of the squared error", ylabel="squared error", title="The ranks that are kept")
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
