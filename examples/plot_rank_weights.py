"""
Which ranks should count?
=========================

Any of them: `RankWeights` takes weights by rank as an array, as a function of the rank share, or by name. If larger
losses weigh more, the fit is convex and certified. If the largest weigh less, it is robust to outliers.
"""

import matplotlib.pyplot as plt
import numpy as np

from rankrange import AoRRRegressor, RankWeights

named = {
    "mean": RankWeights("trimmed", m=0.0, k=1.0),
    "superquantile, 0.2": RankWeights("superquantile", alphas=[0.2]),
    "extremile, 0.9": RankWeights("extremile", tau=0.9),
    "trimmed, 0.1": RankWeights("trimmed", m=0.1, k=1.0),
    "u (1 - u)": RankWeights(lambda u: u * (1 - u)),
}

# %%
# Ten of a hundred points lie far above the line, at its right end. Weights that grow with the loss follow them.
rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-2, 2, 100))
y = x + 0.3 * rng.normal(size=100)
y[80::2] += 6.0
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
right.scatter(x, y, s=14, color="0.7")
for (name, weights), color in zip(named.items(), ("0.2", "#c2300c", "#e08214", "#3b74c4", "#4d9221"), strict=True):
    model = AoRRRegressor(aggregate=weights, C=100.0, random_state=0).fit(x[:, None], y)
    left.step(np.arange(100), 100 * weights.on(-np.arange(100.0)), where="post", color=color, label=name)
    right.plot(x, model.predict(x[:, None]), color=color, label=name)
    proved = f"gap at most {model.certificate_:.0e}" if weights.convex else "a local minimum"
    print(f"{name:<20} slope {model.coef_[0]:5.2f}, {proved}")
left.set(xlabel="rank of the loss, the largest first", ylabel="weight relative to the mean", ylim=(0, 6))
left.legend()
right.set(xlabel="x", ylabel="y")
plt.show()
