"""
Which of my labels are wrong?
=============================

Eighty of a thousand handwritten digits get a wrong label. ``find_label_issues`` ranks all rows by the probability that
their label is wrong, from out-of-fold predictions. We know which labels are wrong; the function does not.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rankrange import find_label_issues, noise

n = 400 if os.environ.get("RANKRANGE_SMALL") else 1000
images, truth = load_digits(return_X_y=True)
images, truth = images[:n], truth[:n]
given = noise.symmetric(truth, 0.08, random_state=0)

# %%
# ``trees=False`` leaves boosted trees out of the ensemble of linear models, neighbours and trees. Digits do not need
# them, and it is faster.
#
# One call gives the suspects, worst first: the label as given, the label that would fit, and the probability that
# it is wrong.
issues = find_label_issues(images / 16, given, trees=False, random_state=0)
print(issues)

# %%
# These are the eighteen worst. The colour of the frame shows whether the label really is one of the planted errors.
figure, axes = plt.subplots(3, 6, figsize=(10, 5.6), layout="constrained")
for axis, row in zip(axes.flat, issues["row"], strict=False):
    axis.imshow(images[row].reshape(8, 8), cmap="gray_r")
    planted = given[row] != truth[row]
    axis.set_title(f"given {given[row]}, suggested {issues.suggested[row]}", fontsize=9.5)
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(color="#1b9e77" if planted else "#d95f02", linewidth=3)
figure.suptitle("Green frame: the label really is wrong")

# %%
# How far down the list are the wrong labels? A perfect ranking would put all of them first.
ranking = np.argsort(-np.asarray(issues.p_wrong))
found = np.cumsum(given[ranking] != truth[ranking])
n_wrong = int(found[-1])
figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
axis.plot(np.arange(1, n + 1), found, lw=2.5, color="#3b74c4", label="ranked by p(wrong)")
axis.plot([0, n_wrong, n], [0, n_wrong, n_wrong], ":", color="0.3", label="a perfect ranking")
axis.plot([0, n], [0, n_wrong], "--", color="0.6", label="rows in random order")
axis.set(xlabel="rows that are reviewed", ylabel="wrong labels found", xlim=(0, 3 * n_wrong), ylim=(0, n_wrong * 1.1))
axis.legend(frameon=False)
axis.spines[["top", "right"]].set_visible(False)
plt.show()
