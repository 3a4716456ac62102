"""
How does it compare with cleanlab?
==================================

cleanlab finds wrong labels from the predicted probabilities of any classifier. ``find_label_issues`` can use the same
probabilities, or several models of its own. This example compares how both rank digits with planted errors.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

from rankrange import find_label_issues, noise

n = 400 if os.environ.get("RANKRANGE_SMALL") else 1200
X, truth = load_digits(return_X_y=True)
X, truth = X[:n] / 16, truth[:n]
kinds = {
    "any other digit": noise.symmetric(truth, 0.15, random_state=0),
    "the next digit": noise.asymmetric(truth, {c: (c + 1) % 10 for c in range(10)}, 0.15, random_state=0),
    "even digits only": noise.asymmetric(truth, {c: (c + 2) % 10 for c in range(0, 10, 2)}, 0.3, random_state=0),
}


def rankings(given):
    """Higher is more suspicious, for three ways to rank."""
    probabilities = cross_val_predict(LogisticRegression(C=1.0, max_iter=200), X, given, method="predict_proba", cv=5)
    found = {
        "rankrange": np.asarray(find_label_issues(X, given, trees=False, random_state=0).p_wrong),
        "rankrange, given the probabilities": np.asarray(find_label_issues(y=given, pred_probs=probabilities).p_wrong),
    }
    try:
        from cleanlab.rank import get_label_quality_scores
    except ImportError:  # its default score, written out
        found["cleanlab"] = 1 - probabilities[np.arange(n), given]
    else:
        found["cleanlab"] = 1 - get_label_quality_scores(given, probabilities)
    return found


# %%
# Average precision is 1 if all wrong labels are ranked before all correct ones. Labels that always become the next
# digit are harder, because a model learns them in part.
precision = {
    kind: {name: average_precision_score(given != truth, score) for name, score in rankings(given).items()}
    for kind, given in kinds.items()
}
names = list(next(iter(precision.values())))
figure, axis = plt.subplots(figsize=(8.5, 3.8), layout="constrained")
for i, (name, colour) in enumerate(zip(names, ["#d95f02", "#f2b184", "#7f8fa6"], strict=True)):
    heights = [precision[kind][name] for kind in kinds]
    bars = axis.bar(np.arange(len(kinds)) + 0.27 * (i - 1), heights, 0.25, color=colour, label=name)
    axis.bar_label(bars, fmt="%.2f", fontsize=9)
axis.set(xticks=range(len(kinds)), xticklabels=[f"wrong label: {kind}" for kind in kinds], ylim=(0, 1.25))
axis.set(ylabel="average precision", title="Who ranks the planted errors first?")
axis.legend(frameon=False, ncols=3, loc="upper center")
axis.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# This is one data set and one draw of errors. The benchmark pages compare both on many data sets, including those on
# which cleanlab is better.
