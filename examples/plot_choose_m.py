"""
How many rows should I leave out?
=================================

You do not have to know. ``m="auto"``, the default, tries several shares of dropped rows and scores each fit by
cross-validation on the labels as they are. It drops rows only if that helps by more than chance.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from rankrange import AoRRClassifier, noise

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
n = 120 if os.environ.get("RANKRANGE_SMALL") else 340
X, X_test, y, y_test = train_test_split(X, y, train_size=n, random_state=0)
rates = [0.0, 0.1, 0.2, 0.3]
given = {rate: noise.symmetric(y, rate, random_state=3) for rate in rates}
models = {rate: AoRRClassifier(random_state=0).fit(X, given[rate]) for rate in rates}

# %%
# Each curve shows the cross-validated gain of dropping a share of the rows over dropping none. The larger dot is the
# chosen share.
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", width_ratios=[3, 2])
for rate, colour in zip(rates, ["#7f7f7f", "#3b74c4", "#1b9e77", "#d95f02"], strict=True):
    tuning = models[rate].path_
    shares = np.unique(tuning["m"])
    gains = [100 * tuning["gain"][tuning["m"] == share].max() for share in shares]
    left.plot(shares, gains, "o-", ms=4, color=colour, label=f"{rate:.0%} of the labels wrong")
    chosen = models[rate].m_ / len(y)
    left.plot(chosen, np.interp(chosen, shares, gains), "o", ms=11, mfc="white", mec=colour, mew=2.5)
left.axhline(0, color="0.5", lw=0.8)
left.set(xlabel="share of rows left out", ylabel="gain in balanced accuracy (points)", ylim=(-12, 12))
left.set_title("Cross-validated gain, and the chosen share")
left.legend(frameon=False)

# %%
# On clean test rows the gain increases with the share of wrong labels, and nothing is lost if all labels are right.
plain = [100 * LogisticRegression().fit(X, given[rate]).score(X_test, y_test) for rate in rates]
robust = [100 * models[rate].score(X_test, y_test) for rate in rates]
right.plot(rates, plain, "s--", color="#7f8fa6", label="LogisticRegression")
right.plot(rates, robust, "o-", color="#d95f02", lw=2.2, label='AoRRClassifier, m="auto"')
right.set(xlabel="share of labels that are wrong", ylabel="accuracy on clean rows, %", title="Accuracy on clean rows")
right.legend(frameon=False)
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
