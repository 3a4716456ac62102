"""Plots of results. Each function draws into matplotlib axes and returns them; without `ax` it makes a new figure.

`plot_ranked` shows losses and the ranks that are kept, `plot_tuning` the choice of m, `plot_path` the coefficients of
sparse models, and `plot_diagnostics` the outliers of a robust regression. `plot_losses` and `plot_scores` show an
`Audit` (rankrange.audit): its losses and cuts, and the gain of the robust model over the ordinary one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from .core.ranges import RankedRange
from .core.select import thresholds

__all__ = ["plot_diagnostics", "plot_losses", "plot_path", "plot_ranked", "plot_scores", "plot_tuning"]
Plot = TypeVar("Plot", bound=Callable[..., Any])
KEPT, CUT, SOFT = "#2457a6", "#b4400b", "#5a5651"
# The number of coefficients that a path names: as many as matplotlib has colours.
_NAMED_LINES = 10


_MARKS = {
    "regular": (".", KEPT),
    "vertical outlier": ("x", CUT),
    "good leverage point": ("^", KEPT),
    "bad leverage point": ("s", CUT),
}
_RESIDUAL = "residual / robust scale"


def _draws(plot: Plot) -> Plot:
    """Complete the docstring of a plot by the axes that it draws into and returns."""
    head, title, example = (inspect.getdoc(plot) or "").partition("Examples\n")
    axes = "ax : matplotlib Axes, optional\n    The axes to draw into."
    returned = "Returns\n-------\nmatplotlib Axes\n    The axes."
    plot.__doc__ = f"{head.rstrip()}\n{axes}\n\n{returned}\n\n{title}{example}\n"
    return plot


@_draws
def plot_ranked(
    losses: ArrayLike, m: int | float | RankedRange = 0, k: int | float | None = None, *, ax: Any = None
) -> Any:
    """Draw losses from the largest to the smallest, with the ranks that are kept and the finite cuts.

    Parameters
    ----------
    losses : array_like of shape (n,)
        The losses.
    m, k : int or float; m may also be a RankedRange
        The ranks to keep, m+1 to k; by default all.

    Examples
    --------
    >>> from rankrange.plots import plot_ranked
    >>> ax = plot_ranked([9.0, 0.2, 0.7, 0.7, 0.1, 0.4], 1, 4)
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['kept: ranks 2 to 4', 'not kept']
    """
    ax = _axis(ax)
    values = np.sort(np.asarray(losses, dtype=np.float64))[::-1]
    keep = m if isinstance(m, RankedRange) else RankedRange(m, 1.0 if k is None else k)
    first, last = keep.counts(len(values))
    ranks = np.arange(1, len(values) + 1)
    inside = (ranks > first) & (ranks <= last)
    ax.plot(ranks[inside], values[inside], ".", color=KEPT, label=f"kept: ranks {first + 1} to {last}")
    ax.plot(ranks[~inside], values[~inside], "x", color=CUT, label="not kept")
    for name, cut in zip((r"$\lambda$", r"$\hat\lambda$"), thresholds(values, keep), strict=True):
        if np.isfinite(cut):
            ax.axhline(cut, color=SOFT, lw=1, ls=":")
            ax.annotate(name, (1.0, cut), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    ax.set(xlabel="rank of the loss", ylabel="loss")
    ax.legend(frameon=False)
    return ax


@_draws
def plot_tuning(estimator: Any, *, ax: Any = None) -> Any:
    """Draw the cross-validated gain over m = 0 for each candidate m, with its standard error, and mark the chosen m.

    Candidates are drawn by the way they were fitted: step by step from the ordinary fit, with more rows dropped at each
    step, or by a search from several starts.

    Parameters
    ----------
    estimator : AoRRClassifier or AoRRRegressor
        An estimator that was fitted with m="auto", without a clean validation set, to enough rows for cross-validation.
        Otherwise there is no table of scores, which is a ValueError.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from rankrange import AoRRClassifier
    >>> from rankrange.plots import plot_tuning
    >>> X, y = make_classification(100, 4, flip_y=0.2, random_state=0)
    >>> plot_tuning(AoRRClassifier(random_state=0).fit(X, y)).get_ylabel()
    'cross-validated gain in score over m = 0'
    """
    table = getattr(estimator, "path_", None)
    if not table or "score" not in table:
        raise ValueError(
            "plot_tuning needs an estimator fitted with m='auto' on enough rows; it has no table of scores"
        )
    ax = _axis(ax)
    ax.errorbar(table["m"], table["gain"], table["error"], fmt="o-", ms=4, lw=1, capsize=2, label="gain")
    ax.axhline(0.0, color=SOFT, lw=1, ls=":")
    share = estimator.m_ / (len(estimator.dropped_) if hasattr(estimator, "dropped_") else estimator.k_)
    ax.axvline(share, color=CUT, lw=1, ls="--", label=f"chosen: m / n = {share:.2g}")
    ax.set(xlabel="share of the rows that is dropped, m / n", ylabel="cross-validated gain in score over m = 0")
    ax.legend(frameon=False)
    return ax


@_draws
def plot_path(model: Any, *, ax: Any = None) -> Any:
    """Draw the coefficients against C for the chosen m, and mark the chosen C.

    The legend names the ten columns with the largest absolute coefficients (and their class, if there are several); all
    others are grey. Coefficients that are 0 for every C are not drawn.

    Parameters
    ----------
    model : AoRRRegressor or AoRRClassifier
        A fitted model with an l1 penalty (`l1_ratio` above 0) whose C was chosen (C="auto").

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import AoRRRegressor
    >>> from rankrange.plots import plot_path
    >>> X = np.random.default_rng(0).normal(size=(40, 10))
    >>> plot_path(AoRRRegressor(0, C="auto", l1_ratio=1.0).fit(X, X[:, 0] + X[:, 1] ** 2)).get_xlabel()
    'C'
    """
    table = getattr(model, "path_", {})
    if "coef" not in table:
        raise ValueError(
            "plot_path needs a model with a path of penalties, got one without; fit it with C='auto' and l1_ratio=1.0"
        )
    ax = _axis(ax)
    coef = table["coef"]
    lines, names = coef.reshape(len(coef), -1), _coefficient_names(model, coef.shape[1:])
    order = np.argsort(-np.abs(lines).max(axis=0), kind="stable")
    order = order[lines[:, order].any(axis=0)]
    for number, j in enumerate(order):
        if number < _NAMED_LINES:  # colours are not repeated
            ax.semilogx(table["C"], lines[:, j], lw=1.3, color=f"C{number}", label=names[j], zorder=3)
        else:
            ax.semilogx(table["C"], lines[:, j], lw=0.8, color=SOFT, alpha=0.4)
    if len(order):
        ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    ax.axvline(model.C_, color=SOFT, lw=1, ls=":")
    _label_decades(ax, float(table["C"][-1] / table["C"][0]))
    ax.set(xlabel="C", ylabel="coefficient", title=f"m = {model.m_:g}")
    return ax


@_draws
def plot_losses(audit: Any, *, ax: Any = None) -> Any:
    """Draw a histogram of the out-of-fold losses, the estimated number of wrong labels in each bin, and the cuts.

    Parameters
    ----------
    audit : Audit
        The result of `rankrange.audit.audit_table`.

    Examples
    --------
    >>> from rankrange.audit import audit_table
    >>> from rankrange.plots import plot_losses
    >>> audit = audit_table({"x": [i % 7 + i // 20 for i in range(40)], "y": ["a"] * 20 + ["b"] * 20}, "y")
    >>> plot_losses(audit).get_ylabel()
    'rows'
    """
    _check_audit(audit, "plot_losses")
    ax = _axis(ax)
    bars, j = audit.distribution(), audit.result
    edges = np.array(bars["edges"])
    ax.bar(edges[:-1], bars["rows"], np.diff(edges), align="edge", color=KEPT, label="rows")
    ax.bar(edges[:-1], bars["wrong"], np.diff(edges), align="edge", color=CUT, label="of these, estimated wrong")
    cuts = [(r"$\lambda$", max(j.lam, float(edges[0])))] if j.k < len(j.wrong) else []
    cuts += [(r"$\hat\lambda$", j.lam_hat)] if j.m else []
    for name, cut in cuts:
        ax.axvline(cut, color=SOFT, lw=1.2, ls="--")
        ax.annotate(name, (cut, 1.0), xycoords=("data", "axes fraction"), ha="center", va="bottom")
    ax.set(xscale="log", xlabel=f"out-of-fold {j.loss_name}", ylabel="rows")
    ax.legend(frameon=False)
    return ax


@_draws
def plot_scores(audit: Any, *, ax: Any = None) -> Any:
    """Draw the gain of the robust model in percentage points, with 95% intervals, for each score that is a share.

    If no score is a share, as in regression, the gain in the first score is drawn in its own unit.

    Parameters
    ----------
    audit : Audit
        The result of an audit.

    Examples
    --------
    >>> from rankrange.audit import audit_table
    >>> from rankrange.plots import plot_scores
    >>> audit = audit_table({"x": [i % 7 + i // 20 for i in range(40)], "y": ["a"] * 20 + ["b"] * 20}, "y")
    >>> plot_scores(audit).get_xlabel()
    'gain of the model that ignores the worst rows (points)'
    """
    _check_audit(audit, "plot_scores")
    ax = _axis(ax)
    measures = [m for m in audit.result.measures if m.percent] or audit.result.measures[:1]
    factor = 100.0 if measures[0].percent else 1.0
    for position, measure in enumerate(measures):
        gain = measure.gain
        spread = [[factor * (gain.value - gain.low)], [factor * (gain.high - gain.value)]]
        ax.errorbar(factor * gain.value, position, xerr=spread, fmt="o", color=KEPT, capsize=3)
        # Names inside the axes: a figure without a layout engine would clip them outside.
        ax.text(0.02, position - 0.15, measure.name, transform=ax.get_yaxis_transform(), va="bottom")
    ax.axvline(0.0, color=SOFT, lw=1, ls=":")
    ax.set(yticks=[], ylim=(len(measures) - 0.5, -0.5))
    ax.set_xlabel("gain of the model that ignores the worst rows" + (" (points)" if measures[0].percent else ""))
    return ax


def plot_diagnostics(model: Any, X: Any = None, y: Any = None, *, ax: Any = None) -> Any:
    """Draw residuals against robust distances, a QQ plot, residuals against fitted values, and residuals by row.

    Residuals are divided by the robust scale and clipped to [-1e6, 1e6].

    Parameters
    ----------
    model : AoRRRegressor
        Fitted with loss="squared" and k=1.0.
    X, y : array_like, optional
        Rows to draw; by default the training rows.
    ax : matplotlib Axes, optional
        Axes for one panel only: residuals against distances.

    Returns
    -------
    matplotlib Axes, or an array of four
        The axes that were drawn into.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import AoRRRegressor
    >>> from rankrange.plots import plot_diagnostics
    >>> x = np.arange(40.0)
    >>> y = 2 * x + np.sin(9 * x)
    >>> model = AoRRRegressor("half", C=np.inf, random_state=0).fit(x[:, None], y)
    >>> plot_diagnostics(model).shape
    (2, 2)
    """
    if not hasattr(model, "diagnostics"):
        raise TypeError(
            f"plot_diagnostics needs a fitted AoRRRegressor, for example from rankrange.regression.mm, got "
            f"{type(model).__name__}"
        )
    found = model.diagnostics(X, y)
    if ax is not None:
        return _leverage_plot(ax, found)
    import matplotlib.pyplot
    from scipy.stats import norm

    axes = matplotlib.pyplot.subplots(2, 2, figsize=(10, 8), layout="constrained")[1]
    _leverage_plot(axes[0, 0], found)
    r = np.clip(found.residuals, -1e6, 1e6)  # after an exact fit the scale is 0 and outliers have infinite residuals
    n = len(r)
    quantiles = norm.ppf((np.arange(n) + 0.5) / n)
    at = np.empty(n)
    at[np.argsort(r, kind="stable")] = quantiles
    axes[0, 1].plot(quantiles[[0, -1]], quantiles[[0, -1]], color=SOFT, lw=1, label="normal")
    panels = (
        (axes[0, 1], at, "normal quantile", "QQ plot"),
        (axes[1, 0], found.fitted, "fitted value", "residuals by fitted value"),
        (axes[1, 1], np.arange(n), "row", "residuals by row"),
    )
    for panel, x, name, title in panels:
        _draw_kinds(panel, x, r, found)
        for cut in (-found.residual_cut, found.residual_cut):
            panel.axhline(cut, color=SOFT, lw=1, ls=":")
        panel.set(xlabel=name, ylabel=_RESIDUAL, title=title)
    return axes


def _draw_kinds(ax: Any, x: Any, r: Any, found: Any) -> None:
    """Draw the residuals r against x; each kind of row has the same marker in every panel."""
    kinds = found.kinds
    for kind, count in found.counts.items():
        if count:
            mark, color = _MARKS[kind]
            ax.plot(x[kinds == kind], r[kinds == kind], mark, color=color, label=f"{kind} ({count})")


def _leverage_plot(ax: Any, found: Any) -> Any:
    """Draw residuals against robust distances, with the cut-offs for outliers and, if it is finite, high leverage."""
    _draw_kinds(ax, found.distances, np.clip(found.residuals, -1e6, 1e6), found)
    for cut in (-found.residual_cut, found.residual_cut):
        ax.axhline(cut, color=SOFT, lw=1, ls=":")
    if np.isfinite(found.distance_cut):
        ax.axvline(found.distance_cut, color=SOFT, lw=1, ls=":")
    ax.set(xlabel="robust distance of the features", ylabel=_RESIDUAL, title="outliers and leverage")
    ax.legend(frameon=False, fontsize="small")
    return ax


def _check_audit(audit: Any, name: str) -> None:
    if not hasattr(audit, "result"):
        raise TypeError(f"{name} needs the result of rankrange.audit.audit_table, got {type(audit).__name__}")


def _axis(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot

    return matplotlib.pyplot.subplots(layout="constrained")[1]


def _coefficient_names(model: Any, shape: tuple[int, ...]) -> list[str]:
    """Names of coefficients of shape (outputs, columns), flattened: the column, and the class if there are several."""
    outputs, count = shape
    columns = [str(name) for name in getattr(model, "feature_names_in_", [f"column {j}" for j in range(count)])]
    if outputs == 1:
        return columns
    return [f"{name} ({label})" for label in model.classes_.tolist() for name in columns]


def _label_decades(ax: Any, ratio: float) -> None:
    """Label a logarithmic axis whose end is `ratio` times its start.

    The labels are powers of ten and, if the ratio is below 300, also 2 and 5 times these. If it is at most 10, they are
    about four round numbers instead.
    """
    from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter

    ticks = LogLocator(subs=(1.0, 2.0, 5.0) if ratio < 300 else (1.0,)) if ratio > 10 else MaxNLocator(4)
    ax.xaxis.set_major_locator(ticks)
    ax.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    ax.xaxis.set_minor_formatter(NullFormatter())
