"""
How do I serve the worst group without following its wrong labels?
==================================================================

Ordinary training serves the largest group. Worst-group training minimises the largest mean loss over the groups, so it
also follows the wrong labels of the worst group. Trimming inside the groups first drops the same share of each group's
rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from rankrange import AoRRClassifier

# %%
# One group in seven follows another rule, and a tenth of its labels is wrong.
rng = np.random.default_rng(3)
X = rng.normal(size=(3000, 2))
group = np.where(rng.random(3000) < 0.15, "small", "large")
y = np.where(group == "small", X @ [0.5, 1.0], X @ [1.0, 0.2]) > 0
train = np.arange(3000) < 700
given = y.copy()
wrong = rng.choice(np.flatnonzero(train & (group == "small")), 11, replace=False)
X[wrong] *= 3  # wrong rows that lie far out have the largest losses
given[wrong] = ~given[wrong]

models = {
    "ordinary": AoRRClassifier(m=0),
    "worst group": AoRRClassifier(m=0, aggregate="worst-group"),
    "worst group,\nm = 0.1 in each": AoRRClassifier(m=0.1, aggregate="worst-group", random_state=0),
}
accuracy = {}
for name, model in models.items():
    groups = None if model.aggregate is None else group[train]
    model.fit(X[train], given[train], groups=groups)
    test = {g: ~train & (group == g) for g in ("large", "small")}
    accuracy[name] = [model.score(X[rows], y[rows]) for rows in test.values()]

# %%
# `groups_` compares each group before and after, on the training rows that were kept.
table = models["worst group,\nm = 0.1 in each"].groups_
for g, dropped, before, after in zip(
    table["group"], table["dropped"], table["loss_before"], table["loss"], strict=True
):
    print(f"{g}: {dropped:.0%} dropped, mean loss {before:.2f} before, {after:.2f} after")

# %%
# On clean test rows plain worst-group training loses too much accuracy in the large group, because it follows wrong
# rows. With trimming the worst-group accuracy is highest.
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
rows = train & (group == "small")
left.scatter(*X[rows].T, c=np.where(given[rows], "#3b74c4", "#e08214"), s=18)
left.scatter(*X[wrong].T, facecolors="none", edgecolors="#c2300c", s=80, label="wrong label")
ends = np.array([-6.0, 6.0])
for (name, model), style in zip(models.items(), (":", "--", "-"), strict=True):
    w = model.coef_[0]
    left.plot(ends, -(w[0] * ends + model.intercept_[0]) / w[1], style, color="0.2", label=name.replace("\n", " "))
left.set(xlim=(-6, 6), ylim=(-6, 6), title="the small group, and three lines")
left.legend(fontsize=8)
places = np.arange(len(models))
for shift, label, color in ((-0.2, "large group", "0.6"), (0.2, "small group", "#3b74c4")):
    right.bar(places + shift, [a[int(shift > 0)] for a in accuracy.values()], 0.38, color=color, label=label)
right.set_xticks(places, list(models))
right.set(ylim=(0.5, 1.0), ylabel="accuracy on clean test rows")
right.legend()
plt.show()
