"""Figures 1 to 4, which need no data: aggregates compared, the truncated loss, ICVaR as an area, Algorithm 2."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import gamma

from ... import RankedRange, range_weights
from ...risk import cvar, icvar
from ..harness.cells import Cell, Claim, Outcome, Plan, Results

NAME = "illustrations"
TITLE = "The illustrations of the paper (Figures 1 to 4)"
NEEDS: tuple[str, ...] = ()
TABLES = ()
LAM, LAM_HAT = 0.4, 1.3  # of Figure 2


def cells(plan: Plan) -> list[Cell]:
    """An empty list: the illustrations need no data."""
    return []


def run(cell: Cell) -> Outcome:
    """Raise an error, because there is no cell to run."""
    raise ValueError(f"the illustrations have no cells, got {cell}; draw them with figures()")


def claims(results: Results) -> list[Claim]:
    """An empty list: the illustrations make no claims."""
    return []


def figures(results: Results) -> dict[str, Any]:
    """The four illustrations."""
    return {
        "aggregates": _aggregates(),
        "truncated-loss": _truncated_loss(),
        "icvar": _icvar(),
        "algorithm-2": _algorithm_2(),
    }


def _aggregates() -> Any:
    """Figure 1: the ranked losses, with those that each aggregate keeps and its value."""
    from ..harness import figures as plots

    n, m, k = 24, 3, 14
    losses = np.sort(np.random.default_rng(3).exponential(0.8, n))[::-1] + np.array([4.2, 3.1, 2.4] + [0.0] * (n - 3))
    ranges = {
        "Maximum": RankedRange.maximum(),
        "Average": RankedRange.average(),
        "Median": RankedRange.median(),
        "AT_k": RankedRange.top(k),
        "Trimmed": RankedRange.trimmed(m),
        "AoRR": RankedRange(m, k),
    }
    figure, axes = plots.sheet(2, 3, width=3.4, height=2.3, sharex=True, sharey=True)
    ranks = np.arange(1, n + 1)
    for one, (name, keep) in zip(axes.flat, ranges.items(), strict=True):
        weights = range_weights(losses, keep)
        one.bar(ranks, losses, color="#e3e3e3", width=0.82)
        colour = plots.COLOURS.get(name, "#56B4E9")
        one.bar(ranks, losses * (weights > 0), color=colour, width=0.82)
        one.bar(ranks[:m], losses[:m], color="none", edgecolor="#222222", lw=0.9, width=0.82, hatch="////")
        kept = np.flatnonzero(weights > 0)
        value = float(weights @ losses / weights.sum())
        one.axhline(value, color="#222222", lw=1, ls=":")
        text = f"ranks {kept[0] + 1} to {kept[-1] + 1}" if len(kept) > 1 else f"rank {kept[0] + 1}"
        one.set_title(f"{plots.NAMES.get(name, name)}: {text}, value {value:.2f}", fontsize=9)
        one.set_xticks([1, m, k, n])
    for one in axes[-1]:
        one.set_xlabel("rank of the loss (hatched: outliers)", fontsize=8)
    for one in axes[:, 0]:
        one.set_ylabel("loss", fontsize=8)
    return figure


def _truncated_loss() -> Any:
    """Figure 2: [s - lam]_+ - [s - lam_hat]_+ + lam, the loss of one sample when both cuts are fixed."""
    from ..harness import figures as plots

    t = np.linspace(-2.4, 3.0, 800)
    figure, axes = plots.sheet(1, 2, width=4.6, height=3.2, sharey=True)
    losses = {"hinge": np.maximum(1.0 - t, 0.0), "logistic": np.log1p(np.exp(-t))}
    for one, (name, s) in zip(axes.flat, losses.items(), strict=True):
        truncated = np.maximum(s - LAM, 0.0) - np.maximum(s - LAM_HAT, 0.0) + LAM
        one.axvspan(0.0, t[-1], color="#f2f2ee", zorder=0)
        one.text(t[-1] - 0.08, 2.85, "right side", ha="right", va="top", fontsize=8, color="#666666")
        one.plot(t, (t < 0).astype(float), color="#999999", lw=1.2, label="0-1")
        one.plot(t, s, color=plots.COLOURS["Average"], ls="--", lw=1.8, label=name)
        one.plot(
            t, np.minimum(s, LAM_HAT), color=plots.COLOURS["AT_k"], ls=(0, (5, 1)), lw=1.6, label=f"{name}, capped"
        )
        one.plot(t, truncated, color=plots.COLOURS["AoRR"], lw=2.4, label="AoRR")
        for level, text in ((LAM, rf"$\lambda$ = {LAM}"), (LAM_HAT, rf"$\hat\lambda$ = {LAM_HAT}")):
            one.axhline(level, color="#bbbbbb", lw=0.8, ls=":")
            one.text(t[-1], level + 0.05, text, ha="right", fontsize=8)
        one.set(ylim=(0, 3), xlim=(t[0], t[-1]))
        one.set_xlabel("y f(x)", fontsize=9)
        one.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.6, 0.93))
        one.set_title(f"{name} loss", fontsize=10)
    axes[0, 0].set_ylabel("loss of one sample", fontsize=9)
    return figure


def _icvar() -> Any:
    """Figure 3: the tail between two levels, as an area under the density and under the quantiles."""
    from ..harness import figures as plots

    mu, nu = 0.1, 0.45
    law = gamma(2.2, scale=0.8)
    values = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    upper, lower = law.isf([mu, nu])
    figure, axes = plots.sheet(1, 2, width=4.6, height=3.1)
    s, between = np.linspace(0, 7, 400), np.linspace(lower, upper, 200)
    left, right = axes[0]
    left.plot(s, law.pdf(s), color="#444444", lw=1.4)
    left.fill_between(between, law.pdf(between), color="#F2C14E", alpha=0.85, lw=0)
    for cut, name in ((lower, r"$\lambda$ = VaR$_\nu$"), (upper, r"$\hat\lambda$ = VaR$_\mu$")):
        left.axvline(cut, color="#C0392B", ls="--", lw=1.2)
        left.text(cut + 0.06, 0.97, name, fontsize=9, color="#C0392B", transform=left.get_xaxis_transform(), va="top")
    left.set_xlabel("loss s", fontsize=9)
    left.set_ylabel("density", fontsize=9)
    left.set_ylim(bottom=0)
    left.set_title(rf"the losses between the cuts, $\mu$ = {mu}, $\nu$ = {nu}", fontsize=10)
    share = np.linspace(0.002, 1, 500)
    quantile = law.isf(share)
    right.plot(share, quantile, color="#444444", lw=1.4)
    right.fill_between(share, quantile, where=(share >= mu) & (share <= nu), color="#F2C14E", alpha=0.85, lw=0)
    for cut, name in ((mu, r"$\mu = m/n$"), (nu, r"$\nu = k/n$")):
        right.axvline(cut, color="#C0392B", ls="--", lw=1.2)
        right.text(
            cut + 0.012, 0.97, name, fontsize=9, color="#C0392B", transform=right.get_xaxis_transform(), va="top"
        )
    area = float(icvar(values, mu, nu))
    parts = nu * float(cvar(values, nu)) - mu * float(cvar(values, mu))
    right.set_title(rf"ICVaR = $\nu C_\nu - \mu C_\mu$ = {parts:.3f}; area {area:.3f}", fontsize=10)
    right.set_xlabel("share of larger losses", fontsize=9)
    right.set_ylabel("loss s", fontsize=9)
    right.set_ylim(bottom=0)
    return figure


_STEPS = (
    ((0.02, 0.62), "training rows,\nsome labels wrong", "#f1eee9"),
    ((0.02, 0.12), "validation rows,\nlabels right", "#f1eee9"),
    ((0.27, 0.62), "1-3  warm up:\nminimise the average\nuntil the validation\nloss stops falling", "#dbe7f5"),
    ((0.53, 0.12), "4  losses of the\nvalidation rows", "#dbe7f5"),
    ((0.53, 0.62), "7, 8  minimise what lies\nbetween the cuts", "#fbe3d3"),
    ((0.79, 0.12), "5, 6  cuts\n" + r"$\hat\lambda$ = mean + 1 sd" + "\n" + r"$\lambda$ = mean - 2 sd", "#fbe3d3"),
    ((0.79, 0.62), "model, and how many\nrows lie above each cut:\n" + r"$m$ and $k$", "#e2efe0"),
)
_ARROWS = ((0, 2), (2, 4), (1, 3), (2, 3), (3, 5), (5, 4), (4, 3), (4, 6))


def _algorithm_2() -> Any:
    """Figure 4: how clean validation rows set the two cuts (AoRRClassifier.fit with X_val and y_val)."""
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    from ..harness import figures as plots

    figure, grid = plots.sheet(1, 1, width=9.6, height=3.2)
    axes = grid[0, 0]
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    width, height = 0.19, 0.3
    boxes = []
    for (x, y), text, colour in _STEPS:
        box = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0.006", fc=colour, ec="#777777", lw=1)
        axes.add_patch(box)
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8.5)
        boxes.append(box)
    for one, other in _ARROWS:
        (x1, y1), (x2, y2) = _STEPS[one][0], _STEPS[other][0]
        bend = 0.25 if (one, other) == (4, 3) else 0.0
        arrow = FancyArrowPatch(
            (x1 + width / 2, y1 + height / 2),
            (x2 + width / 2, y2 + height / 2),
            patchA=boxes[one],
            patchB=boxes[other],
            arrowstyle="-|>",
            mutation_scale=12,
            color="#555555",
            shrinkA=2,
            shrinkB=2,
            connectionstyle=f"arc3,rad={bend}",
        )
        axes.add_patch(arrow)
    return figure
