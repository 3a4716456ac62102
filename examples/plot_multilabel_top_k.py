"""
How do I predict the best three of many labels?
===============================================

``TKMLClassifier`` learns one score per label and is trained for the ranking: the true labels should be among the best
k. A row counts as correct if its k best labels are all true or include all true ones. One training row in eight has
random labels.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import StandardScaler

from rankrange import TKMLClassifier
from rankrange.metrics import top_k_multilabel_accuracy

n = 500 if os.environ.get("RANKRANGE_SMALL") else 2000
X, Y = make_multilabel_classification(n, n_features=40, n_classes=12, n_labels=4, length=60, random_state=0)
X = StandardScaler().fit_transform(X)
X, X_test, Y, Y_test = train_test_split(X, Y, test_size=0.5, random_state=0)
rng = np.random.default_rng(0)
junk = rng.choice(len(X), len(X) // 8, replace=False)
X[junk], Y[junk] = 4 * X[junk], Y[rng.permutation(len(X))[: len(junk)]]  # far out, with the labels of other rows

# %%
# The baseline is one logistic regression per label. TKML is fitted for each k, once on all rows and once without the
# 15% of the rows that fit worst (``m=0.15``).
per_label = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
base_scores = per_label.predict_proba(X_test)
ks = [1, 2, 3, 4, 5, 6]
names = (
    "TKMLClassifier(k, m=0.15)",
    "TKMLClassifier(k)",
    "one LogisticRegression per label",
    "the k most frequent labels",
)
accuracy = {name: [] for name in names}
models = {}
for k in ks:
    models[k] = TKMLClassifier(k, m=0.15, C=0.1, random_state=0).fit(X, Y)
    all_rows = TKMLClassifier(k, C=0.1, random_state=0).fit(X, Y)
    frequent = np.tile(Y.mean(axis=0), (len(X_test), 1))
    scores = models[k].decision_function(X_test), all_rows.decision_function(X_test), base_scores, frequent
    for name, score in zip(accuracy, scores, strict=True):
        accuracy[name].append(100 * top_k_multilabel_accuracy(Y_test, score, k))

# %%
# The right panel shows ten rows. Filled squares are the labels that were predicted, rings the true ones.
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", width_ratios=[3, 2])
for (name, values), colour in zip(accuracy.items(), ["#d95f02", "#f0a050", "#3b74c4", "#9a9a9a"], strict=True):
    left.plot(ks, values, "o-", lw=2, color=colour, label=name)
left.set(xlabel="k", ylabel="top-k multi-label accuracy, %", title="Rows whose best k labels are right")
left.legend(frameon=False)
left.spines[["top", "right"]].set_visible(False)
predicted = models[3].predict(X_test[:10])
rows, labels = np.nonzero(predicted)
right.scatter(labels, rows, s=130, marker="s", color="#f2b184", label="predicted, best three")
rows, labels = np.nonzero(Y_test[:10])
right.scatter(labels, rows, s=110, facecolors="none", edgecolors="0.15", lw=1.6, label="true")
right.set(
    xlabel="label",
    ylabel="row",
    xticks=range(12),
    yticks=range(10),
    ylim=(10.8, -0.7),
    title="Ten rows that were held out",
)
right.legend(frameon=False, ncols=2, loc="lower center")
plt.show()
