"""
What does the ranked range measure?
===================================

A risk. The mean of the worst 10% of the losses is the conditional value at risk, CVaR, which is common in finance. The
ranked range is an *interval* CVaR: the mean between two quantiles. It leaves out the extreme tail.
"""

import matplotlib.pyplot as plt
import numpy as np

from rankrange.risk import cvar, icvar, icvar_bounds

rng = np.random.default_rng(0)
losses = np.sort(rng.gamma(2.0, 1.0, 400))
losses[-8:] += 6  # a few outliers
mu, nu = 0.05, 0.4  # from the worst 5% to the worst 40%
n, m, k = len(losses), int(mu * len(losses)), int(nu * len(losses))

# %%
# The area under the quantile function, divided by the width, is the mean of the losses in that range. nu CVaR(nu) -
# mu CVaR(mu) is the area that the ranked range keeps.
print(f"mean of the worst 40%: {cvar(losses, nu):.2f}; from 5 to 40%: {icvar(losses, mu, nu) / (nu - mu):.2f}")
ranks = np.arange(n) / n
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
ordered = losses[::-1]
left.plot(ranks, ordered, color="0.2", lw=1.8)
left.fill_between(ranks, ordered, where=ranks < mu, color="#c2300c", alpha=0.35, lw=0, label="dropped: the worst 5%")
left.fill_between(
    ranks,
    ordered,
    where=(ranks >= mu) & (ranks < nu),
    color="#3b74c4",
    alpha=0.4,
    lw=0,
    label="kept: up to the worst 40%",
)
left.fill_between(ranks, ordered, where=ranks >= nu, color="0.85", lw=0, label="easy rows, ignored")
left.set(
    xlabel="share of rows with a larger loss",
    ylabel="loss",
    title="The ranked range as an area",
    xlim=(0, 1),
    ylim=(0, None),
)
left.legend(frameon=False)

# %%
# The standard deviation of the estimate decreases with the number of rows. Outliers distort the estimate of CVaR, but
# not that of the interval CVaR.
sizes = np.array([50, 100, 200, 400, 800, 1600])
draws = {"CVaR(0.4)": [], "interval CVaR(0.05, 0.4), as a mean": []}
for size in sizes:
    values = []
    for seed in range(200):
        local = np.random.default_rng(seed)
        sample = local.gamma(2.0, 1.0, size)
        sample[local.random(size) < 0.02] += 6
        values.append((cvar(sample, nu), icvar(sample, mu, nu) / (nu - mu)))
    for name, column in zip(draws, np.array(values).T, strict=True):
        draws[name].append(np.quantile(column, [0.05, 0.5, 0.95]))
for (name, quantiles), colour in zip(draws.items(), ["#c2300c", "#3b74c4"], strict=True):
    low, middle, high = np.array(quantiles).T
    right.fill_between(sizes, low, high, color=colour, alpha=0.2, lw=0)
    right.plot(sizes, middle, "o-", color=colour, label=name)
right.set(
    xscale="log",
    xticks=sizes,
    xticklabels=sizes,
    xlabel="rows in the sample",
    ylabel="estimate",
    title="90% of 200 draws",
)
right.minorticks_off()
right.legend(frameon=False)
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
low, high = icvar_bounds(n, m, k, 0.05, 0.0, 20.0)
print(f"with 95% confidence the true value lies at most {low:.2f} below and {high:.2f} above")
plt.show()
