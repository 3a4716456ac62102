"""
Can I use a pipeline with text and categories?
==============================================

Yes. ``find_label_issues`` and ``RankedRangeClassifier`` take whatever your pipeline takes, and only select rows of it.
Here support tickets have a subject line, a channel and a number, and a tenth of them were filed under the wrong team.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from rankrange import find_label_issues

rng = np.random.default_rng(0)
n = 200 if os.environ.get("RANKRANGE_SMALL") else 600
words = {
    "billing": ["invoice", "payment", "refund", "card", "charged", "twice", "price", "receipt", "account"],
    "technical": ["error", "crash", "login", "screen", "update", "slow", "password", "install", "account"],
    "shipping": ["parcel", "late", "address", "delivery", "lost", "box", "courier", "tracking", "receipt"],
}
teams = list(words)
truth = rng.choice(teams, n)
subject = [" ".join(rng.choice(words[team], 4)) for team in truth]
channel = [
    rng.choice(["mail", "phone", "chat"], p=[0.6, 0.3, 0.1] if t == "billing" else [0.3, 0.2, 0.5]) for t in truth
]
tickets = pd.DataFrame({"subject": subject, "channel": channel, "minutes": rng.gamma(3, 5, n).round()})
filed = truth.copy()
wrong = rng.choice(n, n // 10, replace=False)
filed[wrong] = [rng.choice([team for team in teams if team != truth[i]]) for i in wrong]
tickets.assign(team=filed).head()

# %%
# The pipeline is the one that you would use anyway.
pipeline = make_pipeline(
    make_column_transformer(
        (TfidfVectorizer(), "subject"),
        (OneHotEncoder(handle_unknown="ignore"), ["channel"]),
        (StandardScaler(), ["minutes"]),
    ),
    LogisticRegression(C=10),
)
issues = find_label_issues(tickets, filed, estimator=pipeline, random_state=0)
worst = issues["row"][:6]
print(tickets.loc[worst, ["subject"]].assign(filed=filed[worst], suggested=[issues.suggested[row] for row in worst]))

# %%
# Every ticket has a probability that it was filed wrongly. The planted errors are at the right end.
p_wrong = np.asarray(issues.p_wrong)
planted = filed != truth
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.9), layout="constrained", width_ratios=[3, 2])
bins = np.linspace(0, 1, 26)
left.hist(
    [p_wrong[~planted], p_wrong[planted]], bins, stacked=True, color=["#9db8dc", "#d95f02"], label=["right", "wrong"]
)
left.set(yscale="log", xlabel="probability that the ticket was filed wrongly", ylabel="tickets")
left.legend(frameon=False, title="the ticket is filed")
table = np.zeros((3, 3), dtype=int)
for row in np.flatnonzero(p_wrong >= 0.5):
    table[teams.index(filed[row]), teams.index(issues.suggested[row])] += 1
right.imshow(table, cmap="Oranges")
for i in range(3):
    for j in range(3):
        right.text(j, i, table[i, j] or "", ha="center", va="center", color="black")
right.set(
    xticks=range(3),
    yticks=range(3),
    xticklabels=teams,
    yticklabels=teams,
    xlabel="team that fits",
    ylabel="filed under",
)
right.set_title("Who gets whose tickets?")
left.spines[["top", "right"]].set_visible(False)
plt.show()
