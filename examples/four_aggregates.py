"""Four aggregates of the same squared errors: a line through points of which some were moved away.

    python examples/four_aggregates.py [plot.png] [seed]

Average and top-k follow the outliers; the trimmed mean and the ranked range leave them out.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import minimize

from rankrange import RankedRange, range_weights, ranked_range, thresholds

Array = NDArray[Any]


@dataclass(frozen=True)
class _Points:
    x: Array
    y: Array
    moved: Array  # the planted outliers
    truth: tuple[float, float]  # intercept and slope


@dataclass(frozen=True)
class _Fit:
    name: str
    keep: RankedRange
    line: tuple[float, float]
    losses: Array

    def off_by(self, points: _Points) -> float:
        """Root mean square distance of the fitted from the true line over the points."""
        (a, b), (true_a, true_b) = self.line, points.truth
        return float((((a - true_a) + (b - true_b) * points.x) ** 2).mean() ** 0.5)


def _plant_outliers(seed: int) -> _Points:
    rng, n, n_moved, (a, b) = np.random.default_rng(seed), 60, 12, (1.0, 0.5)
    x = np.sort(rng.uniform(0, 10, size=n))
    y = a + b * x + rng.normal(scale=0.4, size=n)
    moved = np.zeros(n, dtype=bool)
    moved[rng.choice(np.arange(n // 2, n), size=n_moved, replace=False)] = True
    y[moved] = rng.normal(-2.5, 0.7, size=n_moved)
    return _Points(x, y, moved, (a, b))


def _fit_line(name: str, keep: RankedRange, points: _Points) -> _Fit:
    """The line with the least aggregate, by a derivative-free search from lines through random pairs of points."""

    def losses(line: Array) -> Array:
        return (points.y - line[0] - line[1] * points.x) ** 2

    rng = np.random.default_rng(0)
    starts = [np.polyfit(points.x, points.y, 1)[::-1]]
    for _ in range(12):
        i, j = np.sort(rng.choice(len(points.x), size=2, replace=False))
        slope = (points.y[j] - points.y[i]) / (points.x[j] - points.x[i])
        starts.append(np.array([points.y[i] - slope * points.x[i], slope]))
    searches = [minimize(lambda w: ranked_range(losses(w), keep), w, method="Nelder-Mead", tol=1e-8) for w in starts]
    best = min(searches, key=lambda search: search.fun)
    return _Fit(name, keep, (float(best.x[0]), float(best.x[1])), losses(best.x))


def _print_table(points: _Points, fits: list[_Fit]) -> None:
    n, n_moved, (a, b) = len(points.x), int(points.moved.sum()), points.truth
    print(f"{n} points near the line y = {a:.2f} + {b:.2f} x; {n_moved} of them were moved away from it.")
    print("Each line minimises the mean of the squared errors ranked m+1..k, rank 1 being the largest.\n")
    print(f"{'aggregate':<11}{'keeps ranks':<13}{'line':<22}{'off by':>7}   outliers not kept")
    for fit in fits:
        m, k = fit.keep.counts(n)
        cut = int((range_weights(fit.losses, fit.keep)[points.moved] == 0).sum())
        (a, b), sign = fit.line, "+" if fit.line[1] >= 0 else "-"
        print(
            f"{fit.name:<11}{f'{m + 1}..{k}':<13}{f'y = {a:5.2f} {sign} {abs(b):.2f} x':<22}"
            f"{fit.off_by(points):>7.2f}   {cut} of {n_moved}"
        )


_COLOURS = {
    "average": "#0072B2",
    "top-k": "#CC79A7",
    "trimmed": "#009E73",
    "AoRR": "#D55E00",
}  # distinguishable for colour-blind readers


def _draw(points: _Points, fits: list[_Fit], path: str) -> None:
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    _draw_lines(left, points, fits)
    _draw_ranks(right, points, fits[-1])
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _draw_lines(axes: Any, points: _Points, fits: list[_Fit]) -> None:
    ends = np.array([-0.3, 10.3])
    axes.plot(points.x[~points.moved], points.y[~points.moved], "o", ms=4.5, color="#555555", label="points")
    axes.plot(points.x[points.moved], points.y[points.moved], "x", ms=6.5, mew=1.8, color="black", label="outliers")
    axes.plot(ends, points.truth[0] + points.truth[1] * ends, "--", color="black", lw=1.2, label="truth")
    for fit in fits:
        # Broad and pale below the AoRR line: the two nearly coincide.
        style = {"lw": 7, "alpha": 0.4} if fit.name == "trimmed" else {"lw": 2.2}
        label = f"{fit.name} (off by {fit.off_by(points):.2f})"
        axes.plot(ends, fit.line[0] + fit.line[1] * ends, color=_COLOURS[fit.name], label=label, **style)
    axes.set(xlabel="x", ylabel="y", xlim=ends, title="Four aggregates of the same squared errors")
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(0.0, 1.0))
    axes.set_ylim(top=points.y.max() + 3.2)  # room for the legend


def _draw_ranks(axes: Any, points: _Points, fit: _Fit) -> None:
    """The losses of one fit in their ranks, with the range that is kept between its two cuts."""
    order = np.argsort(-fit.losses)
    ranks, losses, moved = np.arange(1, len(order) + 1), fit.losses[order], points.moved[order]
    m, k = fit.keep.counts(len(order))
    lam, lam_hat = thresholds(fit.losses, fit.keep)
    axes.axvspan(m + 0.5, k + 0.5, color=_COLOURS[fit.name], alpha=0.13, lw=0)
    axes.semilogy(ranks[~moved], losses[~moved], "o", ms=4.5, color="#555555")
    axes.semilogy(ranks[moved], losses[moved], "x", ms=6.5, mew=1.8, color="black")
    text = {"ha": "center", "va": "top", "color": _COLOURS[fit.name], "weight": "bold"}
    axes.text((m + k + 1) / 2, losses.max(), f"kept: ranks {m + 1} to {k}", **text)
    for cut, name in ((lam_hat, r"$\hat\lambda = s_{[m]}$"), (lam, r"$\lambda = s_{[k]}$")):
        axes.axhline(cut, color=_COLOURS[fit.name], lw=1, ls=":")
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right"}
        axes.annotate(name, (1.0, cut), (-2, 3), **place)
    axes.set(xlabel="rank of the squared error", ylabel="squared error", title=f"The ranks that {fit.name} uses")


def main(path: str = "rankrange-demo.png", seed: str = "0") -> None:
    points = _plant_outliers(int(seed))
    n_moved, n = int(points.moved.sum()), len(points.x)
    fits = [
        _fit_line("average", RankedRange.average(), points),
        _fit_line("top-k", RankedRange.top(n // 3), points),
        _fit_line("trimmed", RankedRange.trimmed(n_moved), points),
        _fit_line("AoRR", RankedRange(n_moved, n - n // 6), points),
    ]
    _print_table(points, fits)
    _draw(points, fits, path)
    print(f"\nThe plot is in {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
