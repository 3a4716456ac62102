"""
What if several people review the suspects?
===========================================

An audit lists suspects, a labelling tool shows them, and several people decide. Their answers come back as one file.
This example simulates reviewers with known error rates, so that every number can be compared with the
truth: how far they agree, what the majority gets right, and what their answers say about the other suspects.
"""

import json
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from rankrange.audit import apply_decisions, audit_table, merge_decisions, read_reviews, recalibrate

rng = np.random.default_rng(1)
n = 400 if os.environ.get("RANKRANGE_SMALL") else 2000
length, width, weight = rng.normal(size=(3, n))
true = np.where(length + 0.6 * width - 0.4 * weight + 0.4 * rng.normal(size=n) > 0, "reed", "sedge")
wrong = rng.random(n) < 0.15
given = np.where(wrong, np.where(true == "reed", "sedge", "reed"), true)
plants = pd.DataFrame({"length": length, "width": width, "weight": weight, "kind": given}).round(3)
audit = audit_table(plants, "kind", models="linear")
made = audit.to_label_studio()
print(f"{len(made.tasks)} tasks; {int(wrong.sum())} labels are wrong")

# %%
# ``made.tasks`` and ``made.config`` are what Label Studio imports. Here three people answer a random half of the
# tasks. The answers are written in the format of a Label Studio export: annotations with each task, skipped ones
# marked.
ERRS = {"anna": 0.05, "ben": 0.1, "cleo": 0.25}


def annotation(name, row):
    other = "sedge" if true[row] == "reed" else "reed"
    label = other if rng.random() < ERRS[name] else true[row]
    choice = {"from_name": "label", "to_name": "cells", "type": "choices", "value": {"choices": [str(label)]}}
    skipped = bool(rng.random() < 0.05)
    return {"completed_by": {"email": name}, "was_cancelled": skipped, "result": [] if skipped else [choice]}


places = rng.permutation(len(made.tasks))
reviewed, rest = places[: len(places) // 2], places[len(places) // 2 :]
export = []
for place in reviewed:
    task = made.tasks[place]
    row = int(task["data"]["rankrange"]["row"])
    export.append({**task, "id": int(place), "annotations": [annotation(name, row) for name in ERRS]})
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "export.json")
    path.write_text(json.dumps(export))
    merged = merge_decisions(read_reviews([path]))
for sentence in merged.in_words():
    print(sentence)

# %%
# The majority is applied. ``rankrange apply table.csv export.json --out fixed.csv`` does the same on the command line.
fixed = apply_decisions(plants, merged.decisions)
rows = [int(decision.row) for decision in merged.decisions.made]
before, after = (np.mean(table["kind"].to_numpy()[rows] == true[rows]) for table in (plants, fixed))
print(f"right labels among the reviewed rows: {before:.0%} before, {after:.0%} after")

# %%
# The reviewed half was drawn at random, so it is representative of the other half: `recalibrate` corrects the
# probabilities of the audit. The corrected ones sum to about the number of wrong labels among the other suspects.
found = recalibrate(merged.decisions)
p_rest = np.array([made.tasks[place]["data"]["rankrange"]["p_wrong"] for place in rest])
rows = np.array([int(made.tasks[place]["data"]["rankrange"]["row"]) for place in rest])
print(
    f"wrong labels among {len(rest)} suspects that were not reviewed: {int(wrong[rows].sum())}, expected "
    f"{p_rest.sum():.0f} by the audit and {found.predict(p_rest).sum():.0f} after recalibration"
)

# %%
# Left: the agreement of each pair beyond chance. Right: probabilities before and after the reviews.
figure, axes = plt.subplots(1, 2, figsize=(10.5, 3.8), layout="constrained")
pairs = [" and ".join(pair) for pair in merged.kappa]
axes[0].barh(pairs, [kappa for kappa, _ in merged.kappa.values()], color="#3b74c4")
axes[0].set(xlabel="Cohen's kappa", xlim=(0, 1), title="How far reviewers agree")
grid = np.linspace(p_rest.min(), 1.0, 200)
axes[1].plot(grid, grid, color="0.7", label="by the audit")
axes[1].plot(grid, found.predict(grid), color="#3b74c4", label="recalibrated")
axes[1].set(xlabel="p_wrong of the audit", ylabel="share found wrong", title="Recalibration by reviews")
axes[1].legend(frameon=False)
for axis in axes:
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
