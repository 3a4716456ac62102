"""Figures 1 to 4, which need no data: aggregates compared, the truncated loss, ICVaR as an area, Algorithm 2."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import gamma

from rankrange import RankedRange, range_weights
from rankrange.risk import icvar

from .. import plots
from . import Cell, Row

TITLE = "Figures 1 to 4: illustrations"
NEEDS = ()
TABLES: dict[str, tuple[str, str]] = {}
LAM, LAM_HAT = 0.4, 1.3  # of Figure 2


def cells(protocol: str, quick: bool) -> list[Cell]:
    """None: the illustrations need no data."""
    return []


def run(cell: Cell) -> tuple[list[Row], dict[str, Any]]:
    """An error, because there are no cells."""
    raise ValueError(f"the illustrations have no cells, got {cell}")


def figures(results: Any) -> dict[str, Any]:
    """The four illustrations."""
    return {"figure-1": _aggregates(), "figure-2": _truncated(), "figure-3": _icvar(), "figure-4": _algorithm_2()}


def individual_losses(t: Any) -> dict[str, Any]:
    """Hinge and logistic loss of margins t; the paper's logistic loss has the logarithm to base 2, so it is 1 at 0."""
    return {"hinge": np.maximum(1.0 - t, 0.0), "logistic": np.log2(1.0 + np.exp(-t))}


def truncated(s: Any) -> Any:
    """The loss of one sample when both thresholds are fixed: [s - lam]_+ - [s - lam_hat]_+ + lam."""
    return np.maximum(s - LAM, 0.0) - np.maximum(s - LAM_HAT, 0.0) + LAM


def _aggregates() -> Any:
    """Figure 1: the ranked losses, with those that each aggregate keeps and its value."""
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
    for axis, (name, keep) in zip(axes.flat, ranges.items(), strict=True):
        weights = range_weights(losses, keep)
        value = float(weights @ losses / weights.sum())
        axis.bar(ranks, losses, color="#e3e3e3")
        axis.bar(ranks, losses * (weights > 0), color=plots.COLOURS.get(name, "#56B4E9"))
        axis.bar(ranks[:m], losses[:m], color="none", edgecolor="#222222", lw=0.9, hatch="////")
        axis.axhline(value, color="#222222", lw=1, ls=":")
        axis.set_title(f"{name}: {value:.2f}", fontsize=9)
        axis.set(xticks=[1, m, k, n], xlabel="rank of the loss (hatched: outliers)", ylabel="loss")
    return figure


def _truncated() -> Any:
    """Figure 2: the individual losses, capped, and truncated on both sides."""
    t = np.linspace(-2.4, 3.0, 800)
    figure, axes = plots.sheet(1, 2, width=4.6, height=3.2, sharey=True)
    for axis, (name, s) in zip(axes.flat, individual_losses(t).items(), strict=True):
        axis.plot(t, (t < 0).astype(float), color="#999999", lw=1.2, label="0-1")
        axis.plot(t, s, color=plots.COLOURS["Average"], ls="--", lw=1.8, label=name)
        axis.plot(t, np.minimum(s, LAM_HAT), color=plots.COLOURS["AT_k"], lw=1.6, label=f"{name}, capped")
        axis.plot(t, truncated(s), color=plots.COLOURS["AoRR"], lw=2.4, label="AoRR")
        for height, text in ((LAM, rf"$\lambda$ = {LAM}"), (LAM_HAT, rf"$\hat\lambda$ = {LAM_HAT}")):
            axis.axhline(height, color="#bbbbbb", lw=0.8, ls=":")
            axis.text(t[-1], height + 0.05, text, ha="right", fontsize=8)
        axis.set(ylim=(0, 3), xlabel="y f(x)", ylabel="loss of one sample", title=f"{name} loss")
        axis.legend(frameon=False, fontsize=8)
    return figure


def _icvar() -> Any:
    """Figure 3: the tail between two levels, as an area under the density and under the quantiles."""
    mu, nu = 0.1, 0.45
    law = gamma(2.2, scale=0.8)
    upper, lower = law.isf([mu, nu])
    figure, axes = plots.sheet(1, 2, width=4.6, height=3.1)
    left, right = axes[0]
    s, between = np.linspace(0, 7, 400), np.linspace(lower, upper, 200)
    left.plot(s, law.pdf(s), color="#444444")
    left.fill_between(between, law.pdf(between), color="#F2C14E", lw=0)
    share = np.linspace(0.002, 1, 500)
    right.plot(share, law.isf(share), color="#444444")
    right.fill_between(share, law.isf(share), where=(share >= mu) & (share <= nu), color="#F2C14E", lw=0)
    marks = {left: ((lower, r"VaR$_\nu$"), (upper, r"VaR$_\mu$")), right: ((mu, r"$\mu$ = m/n"), (nu, r"$\nu$ = k/n"))}
    for axis, pairs in marks.items():
        for at, name in pairs:
            axis.axvline(at, color="#C0392B", ls="--", lw=1.2)
            axis.text(at, 0.97, f" {name}", color="#C0392B", transform=axis.get_xaxis_transform(), va="top")
    area = float(icvar(law.ppf((np.arange(20_000) + 0.5) / 20_000), mu, nu))
    left.set(xlabel="loss s", ylabel="density", title=rf"$\mu$ = {mu}, $\nu$ = {nu}")
    right.set(xlabel="share of larger losses", ylabel="loss s", title=f"ICVaR, the area: {area:.3f}")
    return figure


_STEPS = (
    ((0.02, 0.62), "training rows,\nsome labels wrong"),
    ((0.02, 0.12), "validation rows,\nlabels right"),
    ((0.27, 0.62), "1-3  warm up:\nminimise the average\nuntil the validation\nloss stops falling"),
    ((0.53, 0.12), "4  losses of the\nvalidation rows"),
    ((0.53, 0.62), "7, 8  minimise what lies\nbetween the thresholds"),
    ((0.79, 0.12), "5, 6  thresholds\n" + r"$\hat\lambda$ = mean + 1 sd" + "\n" + r"$\lambda$ = mean - 2 sd"),
    ((0.79, 0.62), "model, and how many\nrows lie above each:\n" + r"$m$ and $k$"),
)
_ARROWS = ((0, 2), (2, 4), (1, 3), (2, 3), (3, 5), (5, 4), (4, 3), (4, 6))


def _algorithm_2() -> Any:
    """Figure 4: how clean validation rows set the two thresholds."""
    figure, ((axes,),) = plots.sheet(1, 1, width=9.6, height=3.2)
    axes.set_axis_off()
    boxes = [
        axes.text(x + 0.095, y + 0.15, text, ha="center", va="center", fontsize=8.5, bbox={"fc": "#eef3f8", "pad": 8})
        for (x, y), text in _STEPS
    ]
    for one, other in _ARROWS:
        bend = "arc3,rad=0.25" if (one, other) == (4, 3) else "arc3"
        style = {"arrowstyle": "-|>", "connectionstyle": bend, "color": "#555555"}
        ends = {"patchA": boxes[one].get_bbox_patch(), "patchB": boxes[other].get_bbox_patch()}
        axes.annotate("", boxes[other].get_position(), boxes[one].get_position(), arrowprops={**style, **ends})
    return figure
