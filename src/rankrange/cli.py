"""The `rankrange` command. Exit codes: 0 done, 2 bad input or something missing, 130 interrupted.

`rankrange demo` shows the ranked range over samples: four aggregates fit a line to points of which some were moved.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import __version__
from .ranges import RankedRange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_DEMO_PLOT = "rankrange-demo.png"
_FORMATS = (".png", ".pdf", ".svg")


class UserError(Exception):
    """Something the user can put right: shown as one sentence, without a traceback."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except UserError as error:
        print(f"rankrange: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rankrange: interrupted; nothing was left half-written", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rankrange", description="Learning with the ranked range of the losses.")
    parser.add_argument("--version", action="version", version=f"rankrange {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser(
        "demo",
        help="see the ranked range at work on points with planted outliers",
        description="Fit a line to points with planted outliers by four aggregates of the same squared errors, print "
        "what each makes of them and draw one plot.",
    )
    demo.add_argument(
        "--out",
        type=Path,
        default=Path(_DEMO_PLOT),
        metavar="PATH",
        help=f"where to write the plot, one of {', '.join(_FORMATS)} (default: {_DEMO_PLOT} in this folder)",
    )
    demo.add_argument("--seed", type=_seed, default=0, help="seed of the points (default: 0)")
    demo.set_defaults(run=_demo)
    return parser


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a seed is a whole number from 0 on, got {text!r}; try --seed 1")
    return int(text)


# --- demo ---


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


def _demo(arguments: argparse.Namespace) -> None:
    _check_out(arguments.out)
    points = _plant_outliers(arguments.seed)
    n_moved, n = int(points.moved.sum()), len(points.x)
    fits = [
        _fit_line("average", RankedRange.average(), points),
        _fit_line("top-k", RankedRange.top(n // 3), points),
        _fit_line("trimmed", RankedRange.trimmed(n_moved), points),
        _fit_line("AoRR", RankedRange(n_moved, n - n // 6), points),
    ]
    _print_table(points, fits)
    _write_whole(arguments.out, _draw(points, fits, arguments.out.suffix.lower()))
    print(f"\nThe plot is in {arguments.out.resolve()}")


def _plant_outliers(seed: int) -> _Points:
    import numpy as np

    rng, n, n_moved, (a, b) = np.random.default_rng(seed), 60, 12, (1.0, 0.5)
    x = np.sort(rng.uniform(0, 10, size=n))
    y = a + b * x + rng.normal(scale=0.4, size=n)
    moved = np.zeros(n, dtype=bool)
    moved[rng.choice(np.arange(n // 2, n), size=n_moved, replace=False)] = True
    y[moved] = rng.normal(-2.5, 0.7, size=n_moved)
    return _Points(x, y, moved, (a, b))


def _fit_line(name: str, keep: RankedRange, points: _Points) -> _Fit:
    """The line with the least aggregate, by a derivative-free search from lines through random pairs of points."""
    import numpy as np
    from scipy.optimize import minimize

    from .select import ranked_range

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
    from .select import range_weights

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


_COLOURS = {"average": "#0072B2", "top-k": "#CC79A7", "trimmed": "#009E73", "AoRR": "#D55E00"}  # told apart by all eyes


def _draw(points: _Points, fits: list[_Fit], suffix: str) -> bytes:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(
            "the plot needs matplotlib, which is not installed; run: pip install 'rankrange[app]'"
        ) from error
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    _draw_lines(left, points, fits)
    _draw_ranks(right, points, fits[-1])
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix[1:], dpi=150)
    return buffer.getvalue()


def _draw_lines(axes: Any, points: _Points, fits: list[_Fit]) -> None:
    import numpy as np

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
    import numpy as np

    from .select import thresholds

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
    axes.set(xlabel="rank of the squared error", ylabel="squared error", title=f"What {fit.name} looks at")


def _check_out(path: Path) -> None:
    """Before any work: a plot that cannot be written is an error now, not at the end."""
    if path.suffix.lower() not in _FORMATS:
        raise UserError(f"a plot is one of {', '.join(_FORMATS)}, got --out {path}; give the file such an ending")
    if path.is_dir():
        raise UserError(f"--out must name a file, got the folder {path}; add a file name")
    if not path.parent.is_dir():
        raise UserError(f"--out must lie in a folder that exists, got {path}; make {path.parent} first")


def _write_whole(path: Path, content: bytes) -> None:
    """The file appears whole or not at all: written beside its place, then moved into it."""
    name = ""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # mkstemp makes files that only their owner can read
        os.replace(name, path)
    except BaseException as error:
        if name:
            Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise UserError(f"cannot write {path}: {error.strerror}; choose another place with --out") from error
        raise
