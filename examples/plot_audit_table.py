"""
How do I check a table from Python?
===================================

``audit_table`` is the command ``rankrange audit`` for notebooks. It takes a data frame, needs no preparation of the
columns, and returns one object with all results. The table here is simulated: 600 loans with a few wrong decisions.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from rankrange.audit import audit_table
from rankrange.plots import plot_losses, plot_scores

rng = np.random.default_rng(0)
n = 250 if os.environ.get("RANKRANGE_SMALL") else 600
income = rng.lognormal(3.4, 0.4, n)
debt = rng.gamma(2.0, 6.0, n)
job = rng.choice(["employed", "self-employed", "retired"], n, p=[0.6, 0.25, 0.15])
paid_back = income - 0.9 * debt + 6 * (job == "employed") + rng.normal(scale=2, size=n) > 18
wrong = rng.choice(n, n // 12, replace=False)
decision = np.where(paid_back, "paid", "default")
decision[wrong] = np.where(paid_back[wrong], "default", "paid")
loans = pd.DataFrame({"income": income.round(1), "debt": debt.round(1), "job": job, "outcome": decision})
loans.loc[::37, "debt"] = np.nan  # empty cells are fine
loans.head()

# %%
# One call audits the table. In a notebook the result is displayed as a page.
audit = audit_table(loans, "outcome", name="loans")
suspects = audit.suspects(8)
for suspect in suspects[:4]:
    print(f"row {suspect.row}: {suspect.given} should perhaps be {suspect.suggested}, p(wrong) = {suspect.p_wrong:.2f}")

# %%
# The loss of each row, the cut, and the gain of ignoring the rows above it.
figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
plot_losses(audit, ax=axes[0])
plot_scores(audit, ax=axes[1])

# %%
# The errors were planted, so the result can be checked: large losses are mostly planted errors.
figure, axis = plt.subplots(figsize=(7, 4.4), layout="constrained")
planted = np.isin(np.arange(n), wrong)
axis.scatter(income, debt, s=14, c=np.where(paid_back, "#3b74c4", "#e0a030"), alpha=0.6, lw=0)
axis.scatter(income[planted], debt[planted], s=70, facecolors="none", edgecolors="0.2", label="planted errors")
rows = np.array([suspect.row for suspect in audit.suspects(n) if suspect.p_wrong >= 0.5], dtype=int)
axis.scatter(income[rows], debt[rows], s=36, marker="x", color="#c2300c", label="flagged as likely wrong")
axis.set(xlabel="income", ylabel="debt", title="Planted and found")
axis.legend(frameon=False)
axis.spines[["top", "right"]].set_visible(False)
plt.show()
