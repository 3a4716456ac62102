"""
How do I find more positives at few false alarms?
=================================================

A screening test that may flag 1 to 5% of the healthy depends on the left end of its ROC curve. A logistic fit uses all
rows. :class:`rankrange.PartialAUCClassifier` ranks the positives above the negatives of that end only, and falls back
to the logistic fit if cross-validation shows no gain.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_curve

from rankrange import PartialAUCClassifier
from rankrange.metrics import partial_auc_score

# %%
# Half of the positives stand out in one column. The others differ a little in a second one, and no linear model finds
# most of them at a low false positive rate. A logistic fit still adapts to them.
rng = np.random.default_rng(0)
n = 4000 if os.environ.get("RANKRANGE_SMALL") else 10_000
y = rng.random(n) < 0.1
X = rng.normal(size=(n, 8))
stand_out = rng.random(n) < 0.5
X[y & stand_out, 0] += 3.5
X[y & ~stand_out, 1] += 1.5
train = np.arange(n) < n // 3

# %%
# ``train_fpr="auto"``, the default, chooses what to train on. The range of interest itself is rarely the best one to
# train on.
logistic = LogisticRegression().fit(X[train], y[train])
model = PartialAUCClassifier(fpr=(0.0, 0.05), random_state=0).fit(X[train], y[train])
print("trained on false positive rates", model.train_fpr_, "and true positive rates", model.train_tpr_)
scores = {
    "logistic": logistic.decision_function(X[~train]),
    "partial AUC": model.decision_function(X[~train]),
}
for name, score in scores.items():
    print(f"{name}: partial AUC up to 5% {partial_auc_score(y[~train], score, fpr=(0, 0.05)):.3f}")
flagged = scores["partial AUC"] > model.threshold_
print(f"flagged: {flagged[~y[~train]].mean():.1%} of the negatives, {flagged[y[~train]].mean():.1%} of the positives")

# %%
# The curves on rows that were held out. The dot is the threshold, which was chosen on other held-out rows.
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for (name, score), colour in zip(scores.items(), ["0.45", "#3b74c4"], strict=True):
    for axis in (left, right):
        axis.plot(*roc_curve(y[~train], score)[:2], color=colour, lw=2, label=name)
for axis in (left, right):
    axis.axvspan(0, 0.05, color="#3b74c4", alpha=0.1, lw=0)
    axis.plot(flagged[~y[~train]].mean(), flagged[y[~train]].mean(), "o", color="#c2300c", ms=8, label="threshold_")
    axis.set(xlabel="false positive rate", ylabel="true positive rate")
    axis.spines[["top", "right"]].set_visible(False)
left.set(title="The whole curve", xlim=(0, 1), ylim=(0, 1))
right.set(title="Where it counts", xlim=(0, 0.08), ylim=(0, 0.75))
left.legend(frameon=False, loc="lower right")
plt.show()
