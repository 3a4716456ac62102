"""Figures 5 and 6: two sets of points in the plane with 1 to 20 outliers, and decision boundaries of the aggregates.

The paper shows one draw of each set. Here each case is drawn several times, which gives standard errors; the figures
show the paper's own points if the data folder has them. The error is measured on 20,000 new points of the same mixture
without outliers; the Bayes error is 0.02%.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import AoRRClassifier
from ...core.arrays import Array
from ...datasets import load
from ..harness.candidates import ZERO
from ..harness.cells import (
    Cell,
    Claim,
    Measure,
    Outcome,
    Plan,
    Results,
    TableSpec,
    decided,
    mean_difference,
    scikit_learns_C,
    splits_needed,
    standard_error,
    together,
)

NAME = "toy"
TITLE = "Aggregates on points in the plane with outliers (Figures 5 and 6)"
NEEDS = ("toy_multimodal", "toy_imbalanced")
METRIC = "error %"
METHODS = ("Average", "Maximum", "AT_k", "AoRR")
LOSSES = ("logistic", "hinge")
CASES = (1, 2, 3, 4, 5, 10, 20)
TABLES = (
    TableSpec(
        "Error on fresh points without outliers, %",
        METRIC,
        lines=("dataset", "setting"),
        columns="method",
        higher_is_better=False,
        methods=METHODS,
        note="With h outliers AT_k keeps k = h + 1 losses and AoRR rank h + 1 alone, as in the paper, which prints no "
        "numbers. A model that does not beat zero predicts the larger class.",
    ),
)
SPLITS = {"full": 10, "quick": 3, "smoke": 1}
SPLITS_OF_ONE = {**SPLITS, "full": 30}  # one outlier: ten draws do not decide whether AoRR is better than Average
_C = 1e4  # the paper's value for its other data; its toy settings do not state it
_PAPERS = "paper's points"
_ROWS = {"full": 200, "quick": 200, "smoke": 60}
_FRESH = {"full": 20_000, "quick": 20_000, "smoke": 2000}


def cells(plan: Plan) -> list[Cell]:
    """One cell for each data set, number of outliers and draw, and one per data set for the paper's own points.

    toy_imbalanced has one outlier only.
    """
    cases = CASES if plan.size != "smoke" else (1, 5)
    found = [
        Cell(NAME, dataset, f"{h} outliers", split, plan.protocol, plan.size)
        for dataset in NEEDS
        for h in (cases if dataset == "toy_multimodal" else cases[:1])
        for split in range((SPLITS_OF_ONE if h == 1 else SPLITS)[plan.size])
    ]
    return found + [Cell(NAME, dataset, _PAPERS, 0, plan.protocol, plan.size) for dataset in NEEDS]


def cost(cell: Cell) -> float:
    """About how many seconds a cell takes."""
    return 3.0 if cell.part.startswith("1 ") else 0.7


def _ks(n: int, size: str) -> list[int]:
    shares = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0) if size != "smoke" else (1.0,)
    return [2, *sorted({round(share * n) for share in shares} - {1, 2})]


def run(cell: Cell) -> Outcome:
    """Fit all methods with both losses to one draw, and report their error on new points.

    Draws with one outlier, the first ten of a full run, also have the errors against k. For the cell of the paper's own
    points, see `_papers_points`.
    """
    if cell.part == _PAPERS:
        return _papers_points(cell)
    h = int(cell.part.split()[0])
    data = load(cell.dataset, n_samples=_ROWS[cell.size], n_outliers=h, random_state=cell.seed)
    fresh = load(cell.dataset, n_samples=_FRESH[cell.size], n_outliers=0, random_state=cell.seed + 500_000)
    measures, lines = [], {}
    for loss in LOSSES:
        for method, model in _models(data, h, loss).items():
            error = _error(model, data, fresh)
            measures.append(Measure(method, _setting(loss, h), METRIC, error))
            lines[f"{method} {loss}"] = _line(model)
    extra: dict[str, Any] = {"lines": lines, "bayes error %": 100.0 * float(data.bayes_error)}
    if h == 1 and cell.split < SPLITS[cell.size]:
        extra["against k"] = {loss: _against_k(data, fresh, loss, cell.size) for loss in LOSSES}
    return Outcome(measures, extra)


def _setting(loss: str, h: int) -> str:
    return f"{loss}, {h} outlier{'s' if h > 1 else ''}"


def _fit(data: Any, m: int, k: int, loss: str) -> AoRRClassifier:
    C = scikit_learns_C(_C, len(data.target), m, k)
    return AoRRClassifier(m, k, loss=loss, C=C, n_starts=5, tol=1e-4, random_state=0).fit(data.data, data.target)


def _error(model: AoRRClassifier, data: Any, fresh: Any) -> float:
    """The error in percent on new points; a model that is no better than the zero model predicts the larger class."""
    if model.objective_ / _C >= 0.999 * ZERO[model.loss]:
        return 100.0 * float(np.mean(fresh.target != np.bincount(data.target).argmax()))
    return 100.0 * float(np.mean(model.predict(fresh.data) != fresh.target))


def _models(data: Any, h: int, loss: str) -> dict[str, AoRRClassifier]:
    n = len(data.target)
    ranges = {"Average": (0, n), "Maximum": (0, 1), "AT_k": (0, h + 1), "AoRR": (h, h + 1)}
    return {method: _fit(data, m, k, loss) for method, (m, k) in ranges.items()}


def _line(model: AoRRClassifier) -> list[float]:
    """w1, w2 and b of the rule: class 1 if w @ x + b > 0."""
    return [*map(float, model.coef_[0]), float(model.intercept_[0])]


def _against_k(data: Any, fresh: Any, loss: str, size: str) -> dict[str, list[float]]:
    """Errors in percent of AT_k and of AoRR with m = 1, for several values of k, and these values."""
    ks = _ks(len(data.target), size)
    found: dict[str, list[float]] = {"k": [float(k) for k in ks]}
    for method, m in (("AT_k", 0), ("AoRR", 1)):
        models = [_fit(data, m, k, loss) for k in ks]
        found[method] = [_error(model, data, fresh) for model in models]
    return found


def _papers_points(cell: Cell) -> Outcome:
    """Decision boundaries for the paper's own points or, if these are missing, for a draw of ours.

    The outcome has no measures. The size "smoke" always uses a draw.
    """
    try:
        wanted = {"source": "paper"} if cell.size != "smoke" else {"n_samples": _ROWS[cell.size], "random_state": 0}
        data = load(cell.dataset, download=False, **wanted)
    except FileNotFoundError:
        data = load(cell.dataset, random_state=0)
    lines = {f"{name} {loss}": _line(model) for loss in LOSSES for name, model in _models(data, 1, loss).items()}
    coef = [*map(float, np.ravel(data.bayes_coef)), float(data.bayes_intercept)]
    points = {"x": data.data.round(4).tolist(), "y": data.target.tolist(), "outliers": data.outliers.tolist()}
    return Outcome([], {"lines": lines, "points": points, "bayes": coef, "source": data.source})


# --- claims and figures -----------------------------------------------------------------------------------------------


def claims(results: Results) -> list[Claim]:
    """The paper's claims about Figures 5 and 6, tested over paired draws."""
    found = [_better_than(results, other) for other in METHODS[:-1]]
    return [*found, *_over_k(results), *_logistic_average(results)]


def _better_than(results: Results, other: str) -> Claim:
    """The paper's claim that AoRR beats the aggregate `other` in all cases."""
    settings = dict.fromkeys((cell.dataset, m.setting) for cell, outcome in results.outcomes for m in outcome.measures)
    found = {f"{d} {s}": results.paired(d, "AoRR", other, s, METRIC) for d, s in settings}
    lines = [(name, difference, error) for name, (difference, error, _) in found.items()]
    verdicts = [decided(difference, error) for *_, difference, error in lines]
    held, failed = verdicts.count("holds"), verdicts.count("does not hold")
    verdict = together(verdicts)
    rest = [
        f"{name} {difference:+.3f} ({error:.3f})"
        for (name, difference, error), v in zip(lines, verdicts, strict=True)
        if v != "holds"
    ]
    evidence = f"Smaller error by two standard errors in {held} of {len(lines)} cases, larger in {failed}."
    text = f"With as many ranks cut as there are outliers, AoRR draws a better line than {other} in every case."
    evidence += f" The others: {'; '.join(rest)}." if rest else ""
    return Claim(text, verdict, evidence + (splits_needed(found) if verdict == "not decided" else ""))


def _curves(results: Results, dataset: str, loss: str) -> tuple[list[float], dict[str, Array]]:
    found = [
        outcome.extra["against k"][loss]
        for cell, outcome in results.outcomes
        if cell.dataset == dataset and "against k" in outcome.extra
    ]
    return found[0]["k"], {method: np.array([one[method] for one in found]) for method in ("AT_k", "AoRR")}


def _bayes(results: Results, dataset: str) -> list[float]:
    return [o.extra["bayes error %"] for c, o in results.outcomes if c.dataset == dataset and "against k" in o.extra]


def _over_k(results: Results) -> list[Claim]:
    lines, verdicts = [], []
    for dataset in NEEDS:
        for loss in LOSSES:
            k, curves = _curves(results, dataset, loss)
            differences = curves["AoRR"] - curves["AT_k"]
            if len(differences) < 2:
                continue
            error = standard_error(differences)
            better = int((differences.mean(axis=0) + 2 * error < 0).sum())
            worse = int((differences.mean(axis=0) - 2 * error > 0).sum())
            verdicts.append((better, worse))
            lines.append(f"{dataset} {loss}: smaller at {better} of {len(k)} values of k, larger at {worse}")
    if not lines:
        return []
    holds = all(worse == 0 for _, worse in verdicts) and any(better for better, _ in verdicts)
    text = "For values of k other than 2 AoRR (m = 1) still has an advantage over AT_k."
    return [Claim(text, "holds" if holds else "does not hold", "; ".join(lines) + ".")]


def _logistic_average(results: Results) -> list[Claim]:
    """The paper: with 10 and 20 outliers the average works better with the logistic loss than with the hinge loss."""
    lines, verdicts = [], []
    for h in (10, 20):
        of_losses = (results.values(NEEDS[0], "Average", _setting(loss, h), METRIC) for loss in LOSSES)
        difference, error, n = mean_difference(*of_losses)
        if n > 1:
            verdicts.append(decided(difference, error))
            lines.append(f"{h} outliers {difference:+.2f} ({error:.2f})")
    if not lines:
        return []
    verdict = verdicts[0] if len(set(verdicts)) == 1 else "not decided"
    text = "With 10 and 20 outliers the average works better with the logistic than with the hinge loss."
    why = (
        " As far as we know: the paper stops its descent early, here both are minimised." if verdict != "holds" else ""
    )
    return [Claim(text, verdict, "Logistic - hinge: " + "; ".join(lines) + "." + why)]


# --- figures ----------------------------------------------------------------------------------------------------------


def figures(results: Results) -> dict[str, Any]:
    """Figures 5 and 6: the decision boundary of each aggregate, and for one outlier the error against k."""
    return {"toy-one-outlier": _figure_5(results), "toy-more-outliers": _figure_6(results)}


def _figure_5(results: Results) -> Any:
    from ..harness import figures as plots

    figure, axes = plots.sheet(2, 4, width=3.1, height=2.9)
    for column, (dataset, loss) in enumerate((d, loss) for d in NEEDS for loss in LOSSES):
        shown = next(o.extra for c, o in results.outcomes if c.dataset == dataset and c.part == _PAPERS)
        points = {name: np.array(values) for name, values in shown["points"].items()}
        _scatter(axes[0, column], points["x"], points["y"], points["outliers"])
        _boundaries(axes[0, column], shown, loss, shown["bayes"])
        axes[0, column].set_title(f"{dataset.removeprefix('toy_')}, {loss}", fontsize=10)
        k, curves = _curves(results, dataset, loss)
        for method, values in curves.items():
            plots.curve(axes[1, column], k, values, method, marker="o", ms=3)
        plots.level(axes[1, column], _bayes(results, dataset), "Bayes")
        axes[1, column].set_xscale("log")
        axes[1, column].set_yscale("symlog", linthresh=0.1)
        axes[1, column].set_ylim(bottom=0)
        axes[1, column].set_xlabel("k", fontsize=9)
    axes[1, 0].set_ylabel("error on fresh points, %", fontsize=9)
    plots.shared_legend(figure, axes)
    return figure


def _figure_6(results: Results) -> Any:
    from ..harness import figures as plots

    cases = sorted({int(c.part.split()[0]) for c, _ in results.outcomes if c.part != _PAPERS} - {1})
    figure, axes = plots.sheet(len(LOSSES), len(cases), width=2.3, height=2.5)
    for column, h in enumerate(cases):
        cell, outcome = next((c, o) for c, o in results.outcomes if c.part == f"{h} outliers" and c.split == 0)
        data = load(cell.dataset, n_samples=_ROWS[cell.size], n_outliers=h, random_state=cell.seed)
        for row, loss in enumerate(LOSSES):
            _scatter(axes[row, column], data.data, data.target, data.outliers)
            bayes = [*np.ravel(data.bayes_coef), float(data.bayes_intercept)]
            _boundaries(axes[row, column], outcome.extra, loss, bayes)
            axes[row, column].set_title(f"{h} outliers, {loss}", fontsize=9)
    plots.shared_legend(figure, axes)
    return figure


def _scatter(axes: Any, x: Array, y: Array, outliers: Array) -> None:
    clean = ~outliers.astype(bool)
    for label, colour in ((1, "#6FA8DC"), (0, "#E78B82")):
        rows = clean & (y == label)
        axes.scatter(*x[rows].T, s=9, color=colour, alpha=0.75, lw=0)
    axes.scatter(*x[~clean].T, s=38, color="#1F4E8C", marker="x", lw=1.7, zorder=3, label="outliers")
    margin = 0.25
    axes.set_xlim(x[:, 0].min() - margin, x[:, 0].max() + margin)
    axes.set_ylim(x[:, 1].min() - margin, x[:, 1].max() + margin)
    axes.set_aspect("equal", adjustable="box")
    axes.grid(False)


def _boundaries(axes: Any, extra: dict[str, Any], loss: str, bayes: list[float]) -> None:
    """Draw the decision boundary of each method; a note lists the methods whose model is zero and has none."""
    from ..harness.figures import NAMES

    _boundary(axes, bayes, "Bayes")
    without = [method for method in METHODS if not _boundary(axes, extra["lines"][f"{method} {loss}"], method)]
    if without:
        text = "no line: " + ", ".join(NAMES.get(method, method) for method in without)
        axes.text(0.02, 0.02, text, transform=axes.transAxes, fontsize=7, color="#666666")


def _boundary(axes: Any, line: list[float], method: str) -> bool:
    """Draw the line w @ x + b = 0 inside the axes; return False for a zero model, which has none."""
    from ..harness.figures import COLOURS, NAMES, STYLES

    w1, w2, b = line
    style = {"color": COLOURS[method], "ls": STYLES[method], "lw": 1.7, "label": NAMES.get(method, method)}
    if np.hypot(w1, w2) < 1e-6:
        axes.plot([], [], **style)
        return False
    xs, ys = np.array(axes.get_xlim()), np.array(axes.get_ylim())
    ends = (xs, -(w1 * xs + b) / w2) if abs(w2) > abs(w1) else (-(w2 * ys + b) / w1, ys)
    axes.plot(*ends, scalex=False, scaley=False, **style)
    return True
