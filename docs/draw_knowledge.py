"""Draw the picture of docs/explanation/what_can_be_known.md: `python docs/draw_knowledge.py`."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import numpy as np

from rankrange import find_label_issues, noise

BLUE, ORANGE = "#3b74c4", "#d95f02"


def main() -> None:
    """Two tables with one wrong label in ten: separate and overlapping classes."""
    rng = np.random.default_rng(0)
    figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.0), layout="constrained", sharey=True)
    for axis, distance, title in zip(axes, (6.0, 1.2), ("separate classes", "overlapping classes"), strict=True):
        true = rng.integers(0, 2, 1500)
        X = rng.normal(size=(1500, 2)) + distance * true[:, None] / np.sqrt(2)
        given = noise.symmetric(true, 0.1, random_state=0)
        issues = find_label_issues(X, given, random_state=0)
        mean = sum(weight * P for _, weight, P in issues.members)
        probability = mean[np.arange(1500), given]
        parts = [probability[given == true], probability[given != true]]
        axis.hist(parts, np.linspace(0, 1, 21), stacked=True, color=[BLUE, ORANGE], label=["right", "wrong"])
        low, high = issues.noise_interval
        axis.set(
            title=f"{title}: {low:.0%} to {high:.0%} wrong", xlabel="probability of the given label", yscale="symlog"
        )
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("rows")
    axes[0].legend(frameon=False, loc="upper center")
    figure.savefig(Path(__file__).parent / "images" / "what_can_be_known.png", dpi=130)


if __name__ == "__main__":
    main()
