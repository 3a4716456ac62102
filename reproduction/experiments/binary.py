"""Table 3 and Figure 7: five aggregates on five binary data sets with two losses.

Held-out protocol: every aggregate is minimised for all settings of its grid, and the validation rows choose. Grids are
the paper's (k = 1 and 0.1 to 1 of n, C from 1 to 10^5, m in [1, k)), but m is thinned to eight shares of k; on Monk
every m is tried at the printed C = 10^4. The same fits chosen on test rows are a table of their own. Figure 7 takes the
k that AT_k chose.

The paper's protocol: Algorithm 1 with the k, m, C and the numbers of steps of Tables 12 and 13 at a rate of 0.01. Every
tenth iterate is evaluated, and the one with the smallest validation error is kept, for all aggregates alike. The rate
is that of the average of the kept losses. Further columns change one thing about AoRR. Figure 7 has five shares m / k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import SVC

from rankrange import AoRRClassifier, RankedRangeClassifier, algorithms

from .. import data, plots
from ..baselines import RobustMax, margin_losses, robust_maximum
from . import Cell, Row, every
from .toy import ZERO

TITLE = "Table 3 and Figure 7: five aggregates on five binary data sets"
NEEDS = ("monk", "australian", "phoneme", "titanic", "splice")
LOSSES = ("logistic", "hinge")
METRIC, ON_TEST, EQUAL = "error %", "error %, chosen on test rows", "error %, as many candidates"
MODELS, AGAINST_M, VARIANTS = "error %, other models", "error % against m", "error % of AoRR at the printed k and m"
TABLES = {
    METRIC: ("Table 3: error on test rows, %", "lower"),
    ON_TEST: ("The same fits, chosen by their error on the test rows, %", "lower"),
    EQUAL: ("The same choice among as many candidates: means over 200 random subsets of each grid, %", "lower"),
    MODELS: ("Other models on the same splits, %", "lower"),
    VARIANTS: ("AoRR at the printed k, m and C, with one thing changed, %", "lower"),
}
CS = (1e0, 1e1, 1e2, 1e3, 1e4, 1e5)
KS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)  # shares of n
MS = (0.8, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05)  # shares of k, and m = 1
SWEEP = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # shares of k in Figure 7
SLACKS = (0.3, 1.0, 3.0, 10.0, 30.0)
EVERY_M = 250  # up to this many training rows
ROUGH: dict[str, Any] = {"max_iter": 20, "tol": 1e-2}  # accurate enough to choose between candidates
BUDGETS, DRAWS = (6, 30, 66), 200
# Tables 12 and 13: k, m, outer and inner steps; C = 10^4 and the rate 0.01 in all of them.
PRINTED = {
    ("monk", "logistic"): (70, 20, 5, 2000),
    ("australian", "logistic"): (80, 3, 10, 1000),
    ("phoneme", "logistic"): (1400, 100, 10, 1000),
    ("titanic", "logistic"): (500, 10, 10, 1000),
    ("splice", "logistic"): (450, 50, 10, 1000),
    ("monk", "hinge"): (70, 45, 5, 1000),
    ("australian", "hinge"): (80, 3, 5, 1000),
    ("phoneme", "hinge"): (1400, 410, 10, 500),
    ("titanic", "hinge"): (500, 10, 5, 500),
    ("splice", "hinge"): (450, 50, 10, 1000),
}
PRINTED_C, RATE, EVALUATE_EVERY = 1e4, 0.01, 10


def cells(protocol: str, quick: bool) -> list[Cell]:
    """One cell for each data set, loss and split."""
    return every("binary", protocol, quick, NEEDS[:1] if quick else NEEDS, LOSSES, 2 if quick else 10)


def run(cell: Cell) -> tuple[list[Row], dict[str, Any]]:
    """One split with one loss."""
    return _held_out(cell) if cell.protocol == "held-out" else _papers_steps(cell)


def _error(predicted: Any, y: Any) -> float:
    return 100.0 * float(np.mean(predicted != y))


# ---- held-out protocol: minima, chosen on validation rows ------------------------------------------------------------


class Candidate(NamedTuple):
    """Settings of a fitted model, its errors on validation and test rows, and its rank among ties: simplest first."""

    settings: dict[str, float]
    validation: float
    test: float
    order: tuple[float, float, float]


def choose(candidates: list[Candidate]) -> Candidate:
    """The candidate with the smallest validation error; the simplest of those that tie."""
    return min(candidates, key=lambda c: (c.validation, c.order))


class Bench:
    """Fits models to the training rows of a split and measures their errors on the others."""

    def __init__(self, parts: list[Any], loss: str) -> None:
        (self.X, self.y), self.validation, self.test = parts
        self.loss, self.n = loss, len(self.y)

    def measured(self, settings: dict[str, float], predict: Callable[[Any], Any], order: Any) -> Candidate:
        """A candidate, from its predictions."""
        errors = (_error(predict(X), y) for X, y in (self.validation, self.test))
        return Candidate(settings, *errors, order)

    def larger_class(self, X: Any) -> Any:
        """The prediction of a model that is no better than scores of zero."""
        return np.full(len(X), np.bincount(self.y).argmax())

    def ranges(self, pairs: list[tuple[int, int]], Cs: tuple[float, ...] = CS, **settings: Any) -> list[Candidate]:
        """Candidates for all pairs (m, k) and every C, relative to the mean of the kept losses as in the paper."""
        found = []
        for m, k in pairs:
            for C in Cs:
                model = AoRRClassifier(m, k, loss=self.loss, C=C / (k - m), random_state=0, **settings)
                model.fit(self.X, self.y)
                zero = model.objective_ / C >= 0.999 * ZERO[self.loss]
                predict = self.larger_class if zero else model.predict
                found.append(self.measured({"m": m, "k": k, "C": C}, predict, (m, -k, C)))
        return found

    def robust_max(self, slacks: tuple[float, ...]) -> list[Candidate]:
        """Candidates with Robust_Max for every slack and C; a large slack is nearer to the average."""
        found = []
        for slack in slacks:
            at_zero = robust_maximum(np.full(self.n, ZERO[self.loss]), slack)[0]
            for C in CS:
                model = RobustMax(slack, loss=self.loss, C=C).fit(self.X, self.y)
                # A slack that covers all losses at zero leaves nothing to gain.
                zero = model.objective_ >= at_zero - 0.001 * ZERO[self.loss]
                predict = self.larger_class if zero else model.predict
                found.append(self.measured({"slack": slack, "C": C}, predict, (0, -slack, C)))
        return found


def _held_out(cell: Cell) -> tuple[list[Row], dict[str, Any]]:
    bench, loss = Bench(data.split(cell.dataset, cell.seed), cell.part), cell.part
    n, shares = bench.n, (1.0, 0.5) if cell.quick else KS
    ks = sorted({1, *(round(share * n) for share in shares)}, reverse=True)
    found = {"Maximum": bench.ranges([(0, 1)]), "Robust_Max": bench.robust_max((3.0,) if cell.quick else SLACKS)}
    found |= {"Average": bench.ranges([(0, n)]), "AT_k": bench.ranges([(0, k) for k in ks])}
    pairs = [(m, k) for k in ks for m in _counts((0.3,) if cell.quick else MS, k)]
    found["AoRR"] = bench.ranges(pairs, CS[3:4] if cell.quick else CS, **ROUGH)
    if n <= EVERY_M and not cell.quick:
        found["AoRR"] += bench.ranges([(m, k) for k in ks for m in range(1, k)], (PRINTED_C,), **ROUGH)
    chosen = {method: choose(candidates) for method, candidates in found.items()}
    rows = [Row(method, loss, METRIC, best.test) for method, best in chosen.items()]
    rows.append(Row("larger class", loss, METRIC, _error(bench.larger_class(bench.test[0]), bench.test[1])))
    rows += [Row(method, loss, ON_TEST, min(c.test for c in candidates)) for method, candidates in found.items()]
    rows += _equal_choices(cell, found)
    # Figure 7. AoRR needs m < k: if AT_k chose k = 1, as for tied zero models, it takes the next larger k.
    k = max(int(chosen["AT_k"].settings["k"]), ks[-2])
    shares = SWEEP[4::5] if cell.quick else SWEEP
    for share in shares:
        swept = bench.ranges([(max(1, round(share * k)), k)], CS[3:4] if cell.quick else CS, **ROUGH)
        rows.append(Row(f"AoRR, m/k={share:g}", loss, AGAINST_M, choose(swept).test))
    rows += [Row(method, loss, AGAINST_M, best.test) for method, best in chosen.items() if method != "AoRR"]
    if loss == "logistic":
        rows += [Row(name, "all", MODELS, value) for name, value in _other_models(bench, cell).items()]
        rows.append(Row("AoRR", "all", MODELS, chosen["AoRR"].test))
    settings = {method: best.settings for method, best in chosen.items()}
    return rows, {"chosen": settings, "candidates": {method: len(c) for method, c in found.items()}}


def _counts(shares: tuple[float, ...], k: int) -> list[int]:
    return sorted({1, *(round(share * k) for share in shares)} - {0, k}) if k > 1 else []


def _equal_choices(cell: Cell, found: dict[str, list[Candidate]]) -> list[Row]:
    """Mean test error if the choice is among random subsets of the candidates, of the same size for all methods."""
    rng, rows = np.random.default_rng(cell.seed), []
    for method, candidates in found.items():
        for size in (size for size in BUDGETS if len(candidates) >= size):
            draws = [rng.choice(len(candidates), size, replace=False) for _ in range(DRAWS)]
            mean = np.mean([choose([candidates[i] for i in draw]).test for draw in draws])
            rows.append(Row(f"{method} of {size}", cell.part, EQUAL, float(mean)))
    return rows


def _other_models(bench: Bench, cell: Cell) -> dict[str, float]:
    """Test errors of standard models, each with the settings of the smallest validation error."""
    trees = HistGradientBoostingClassifier(random_state=cell.seed)
    widths = [w / bench.X.shape[1] for w in (0.3, 1.0, 3.0)]
    plans: dict[str, list[Any]] = {
        "logistic regression": [LogisticRegression(C=C / bench.n, max_iter=2000) for C in np.logspace(-1, 5, 25)],
        "ridge": [RidgeClassifier(alpha=alpha) for alpha in np.logspace(-3, 4, 15)],
        "SVM, RBF kernel": [SVC(C=C, gamma=width) for C in np.logspace(-1, 3, 5) for width in widths],
        "boosted trees": [trees],
        "boosted trees in the ranked range": [RankedRangeClassifier(trees, random_state=cell.seed)],
    }
    if cell.quick:
        plans = {name: models for name, models in plans.items() if "trees" not in name}
    fits = {name: [model.fit(bench.X, bench.y) for model in models] for name, models in plans.items()}
    return {name: choose([bench.measured({}, m.predict, ()) for m in models]).test for name, models in fits.items()}


# ---- the paper's protocol: steps, stopped early ----------------------------------------------------------------------


class Trace:
    """Validation and test errors along the iterates, whose last column is the intercept."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = [(np.column_stack([X, np.ones(len(X))]), y) for X, y in parts[1:]]
        self.count, self.errors = 0, []

    def __call__(self, theta: Any) -> None:
        """Evaluate every tenth iterate."""
        self.count += 1
        if self.count % EVALUATE_EVERY == 0:
            self.errors.append([_error(X @ np.ravel(theta) > 0, y) for X, y in self.parts])

    @property
    def kept(self) -> list[float]:
        """Validation and test error of the iterate that is best on the validation rows, the first of those that tie."""
        return min(self.errors, key=lambda pair: pair[0])


def _papers_steps(cell: Cell) -> tuple[list[Row], dict[str, Any]]:
    k, m, outer, inner = PRINTED[cell.dataset, cell.part]
    inner = inner // 20 if cell.quick else inner
    parts = data.split(cell.dataset, cell.seed)
    n = len(parts[0][1])

    def steps(m: int, k: int, parts: list[Any] = parts, rate: float = 0.0, **changed: Any) -> Trace:
        (X, y), trace = parts[0], Trace(parts)
        settings = {"loss": cell.part, "C": PRINTED_C, "outer_steps": outer, "inner_steps": inner, "watch": trace}
        rate = rate or RATE * n / (k - m)
        algorithms.dca(np.column_stack([X, np.ones(n)]), 2 * y - 1, m, k, step=rate, **{**settings, **changed})
        return trace

    at_k = [steps(0, max(1, round(share * n))) for share in (1.0, 0.7, 0.5, 0.3, 0.1)]
    robust = [_robust_max_steps(parts, cell.part, slack, outer * inner) for slack in (1.0, 10.0)]
    aorr = steps(m, k)
    kept = {
        "Maximum": steps(0, 1).kept,
        "Robust_Max": min(trace.kept for trace in robust),
        "Average": at_k[0].kept,
        "AT_k": min(trace.kept for trace in at_k),
        "AoRR": aorr.kept,
    }
    rows = [Row(method, cell.part, METRIC, errors[1]) for method, errors in kept.items()]
    rows += [Row(method, cell.part, AGAINST_M, errors[1]) for method, errors in kept.items() if method != "AoRR"]
    swept = {share: steps(max(1, round(share * k)), k) for share in SWEEP[1::3]}
    rows += [Row(f"AoRR, m/k={share:g}", cell.part, AGAINST_M, trace.kept[1]) for share, trace in swept.items()]
    start = np.random.default_rng(0).normal(size=(1, parts[0][0].shape[1] + 1))
    minimum = Bench(parts, cell.part).ranges([(m, k)], (PRINTED_C,))[0]
    halved = Bench(parts, cell.part).ranges([(max(1, m // 2), k // 2)], (PRINTED_C,))[0]
    variants = {
        "best iterate on validation rows": aorr.kept[1],
        "last iterate": aorr.errors[-1][1],
        "best iterate on test rows": min(test for _, test in aorr.errors),
        "m - 1, as printed": steps(m - 1, k).kept[1],
        "random start": steps(m, k, theta=start).kept[1],
        "no penalty": steps(m, k, C=np.inf).kept[1],
        "rate of the mean over all rows": steps(m, k, rate=RATE).kept[1],
        "scaled before the split": steps(m, k, data.split(cell.dataset, cell.seed, scale_on="all")).kept[1],
        "minimised": minimum.test,
        "minimised, k and m of all rows": halved.test,
    }
    return rows + [Row(name, cell.part, VARIANTS, value) for name, value in variants.items()], {}


def _robust_max_steps(parts: list[Any], loss: str, slack: float, steps: int) -> Trace:
    """Subgradient steps on Robust_Max, which is no ranked range."""
    (X, y), trace = parts[0], Trace(parts)
    X, signs = np.column_stack([X, np.ones(len(X))]), 2 * y - 1
    theta = np.zeros(X.shape[1])
    for _ in range(steps):
        s, slope = margin_losses(loss, signs, X @ theta)
        theta = theta - RATE * (X.T @ (slope * robust_maximum(s, slack)[1]) + theta / PRINTED_C)
        trace(theta)
    return trace


def figures(results: Any) -> dict[str, Any]:
    """Figure 7: test error against m, at the k that AT_k chose, or the printed one."""
    places = results.settings(AGAINST_M)
    if not places:
        return {}
    sets = list(dict.fromkeys(dataset for dataset, _ in places))
    figure, axes = plots.sheet(len(LOSSES), len(sets), width=2.8)
    shares = [float(name.partition("=")[2]) for name in results.methods(AGAINST_M) if "=" in name]
    for dataset, loss in places:
        axis = axes[LOSSES.index(loss), sets.index(dataset)]
        values = [results.array(AGAINST_M, dataset, loss, f"AoRR, m/k={share:g}") for share in shares]
        plots.curve(axis, shares, np.transpose(values), "AoRR", marker="o", ms=3)
        for method in ("Maximum", "Robust_Max", "Average", "AT_k"):
            plots.level(axis, results.array(AGAINST_M, dataset, loss, method), method)
        axis.set(title=f"{dataset}, {loss}", xlabel="m / k", ylabel="test error, %")
    plots.shared_legend(figure, axes)
    return {"figure-7": figure}
