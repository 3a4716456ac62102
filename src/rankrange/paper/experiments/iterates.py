"""Table 3 with the steps of the paper's Algorithm 1 and early stopping, instead of minimisation.

Algorithm 1 takes sub-gradient steps on all training rows with a rate of 0.01 and the numbers of outer and inner steps
of Tables 12 and 13. Every tenth iterate and the last of each outer step are evaluated. The one with the smallest error
on the validation rows is kept (early stopping), and its test error is reported. All five aggregates take the same steps
with the same early stopping. The second table uses AoRR at the printed k, m and C, and each column changes one setting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ... import AoRRClassifier
from ...core.arrays import Array
from ...core.losses import Hinge, Logistic
from ...estimators.robust_max import robust_maximum
from ..harness.cells import (
    Cell,
    Claim,
    Measure,
    Outcome,
    Plan,
    Results,
    TableSpec,
    decided,
    every_split,
    scikit_learns_C,
    together,
)
from ..harness.printed import printed
from ..harness.split import Split, split_of_seed
from .binary import DATASETS, LOSSES, METHODS, SETTINGS, pairs_of

NAME = "iterates"
TITLE = "Table 3 by the paper's own steps, stopped early, and AoRR at the printed settings"
NEEDS = DATASETS
METRIC, PRINTED_SETTINGS = "error %", "error % at the printed k and m"
MINIMISED, STEPS = "minimised", "steps, best on validation rows"
VARIANTS = (
    MINIMISED,
    "minimised, counts of all rows",
    "minimised, C on the sum",
    STEPS,
    "steps, last point",
    "steps, m - 1 as printed",
    "steps, random start",
    "steps, each outer step anew",
    "steps, no penalty",
    "steps, scaled before the split",
    "steps, best on test rows",
)
TABLES = (
    TableSpec(
        "Error on test rows of the point that is best on validation rows, %",
        METRIC,
        lines=("dataset", "setting"),
        columns="method",
        higher_is_better=False,
        methods=METHODS,
        note="Robust_Max chooses among two slacks and AT_k among five k, on validation rows; AoRR has the printed k "
        "and m, and C is 10^4 for all.",
    ),
    TableSpec(
        "AoRR at the printed k, m and C: one thing changed per column",
        PRINTED_SETTINGS,
        lines=("dataset", "setting"),
        columns="method",
        higher_is_better=False,
        methods=("printed", *VARIANTS),
        note="Points of the steps are those best on validation rows unless the column says otherwise.",
    ),
)
# Outer and inner steps of Tables 12 and 13.
COUNTS = {
    "logistic": {"monk": (5, 2000)},
    "hinge": {"monk": (5, 1000), "australian": (5, 1000), "phoneme": (10, 500), "titanic": (5, 500)},
}
_USUAL = (10, 1000)
_RATE, _C = 0.01, 1e4
_EVALUATE_EVERY = 10
SPLITS = {"full": 10, "quick": 1, "smoke": 1}
SLACKS = (1.0, 10.0)
SHARES = (1.0, 0.7, 0.5, 0.3, 0.1)


def cells(plan: Plan) -> list[Cell]:
    """One cell for each data set, loss and split; only in the protocol "paper", because the steps are the paper's."""
    if plan.protocol != "paper":
        return []
    datasets = ("monk",) if plan.size == "smoke" else DATASETS
    return every_split(NAME, plan, datasets, LOSSES, SPLITS[plan.size])


def cost(cell: Cell) -> float:
    """About how many seconds a cell takes."""
    return {"full": 1.0, "quick": 0.2, "smoke": 0.05}[cell.size] * (60.0 if cell.dataset == "phoneme" else 15.0)


@dataclass(frozen=True)
class Descent:
    """One run of Algorithm 1: m and k, or the slack of Robust_Max, the start ("zero" or "random"), and the paper's C.

    If `anew` is set, each outer step begins at the start again.
    """

    m: int
    k: int
    slack: float | None = None
    start: str = "zero"
    anew: bool = False
    C: float = _C

    def first(self, d: int) -> Array:
        """The d initial coefficients: zeros, or normal random numbers."""
        return np.zeros(d) if self.start == "zero" else np.random.default_rng(0).normal(size=d)

    def shares(self, losses: Array) -> Array:
        """The weights of the losses in a subgradient of Robust_Max or of the sum of the k largest losses / (k - m)."""
        if self.slack is not None:
            return robust_maximum(losses, self.slack, None)[1]
        return top_weights(losses, self.k) / (self.k - self.m)


class Trace(NamedTuple):
    """Errors in percent along the iterates.

    Validation and test error of the iterate that is best on the validation rows, test error of the last iterate, and
    smallest test error of all.
    """

    validation: float
    kept: float
    last: float
    least: float


def top_weights(losses: Array, count: int) -> Array:
    """A subgradient of the sum of the `count` largest losses: 1 above the cut; ties share the remaining weight."""
    n = len(losses)
    if count <= 0 or count >= n:
        return np.full(n, float(count >= n))
    cut = np.partition(losses, n - count)[n - count]
    above, tied = losses > cut, losses == cut
    return above + tied * ((count - above.sum()) / tied.sum())


def losses_and_slopes(loss: str, signs: Array, scores: Array) -> tuple[Array, Array]:
    """Logistic or hinge loss of scores (n, runs), and its derivatives."""
    return (Hinge() if loss == "hinge" else Logistic()).value_and_derivative(signs[:, None], scores)


def follow(descents: list[Descent], split: Split, loss: str, outer: int, inner: int) -> list[Trace]:
    """Take the steps of all descents together and return their errors, one trace per descent.

    Each of the `outer` steps determines the m largest losses, and is followed by `inner` sub-gradient steps.
    """
    parts = [np.column_stack([part.X, np.ones(len(part.y))]) for part in (split.train, split.validation, split.test)]
    truth = [part.y > 0 for part in (split.validation, split.test)]
    X, signs = parts[0], 2.0 * split.train.y - 1.0
    W = np.column_stack([descent.first(X.shape[1]) for descent in descents])
    decay = np.array([1.0 / descent.C for descent in descents])
    seen: list[Array] = []
    for _ in range(outer):
        pull = _pull(descents, X, signs, loss, W)
        for index, descent in enumerate(descents):
            if descent.anew:
                W[:, index] = descent.first(X.shape[1])
        for step in range(inner):
            s, slope = losses_and_slopes(loss, signs, X @ W)
            weights = np.column_stack([d.shares(s[:, index]) for index, d in enumerate(descents)])
            W = W - _RATE * (X.T @ (slope * weights) - pull + W * decay)
            if step % _EVALUATE_EVERY == 0 or step == inner - 1:
                pairs = zip(parts[1:], truth, strict=True)
                seen.append(np.array([((Z @ W > 0) != right[:, None]).mean(axis=0) for Z, right in pairs]))
    errors = 100.0 * np.array(seen)  # (evaluations, 2, descents)
    best = errors[:, 0].argmin(axis=0)  # the first of tied iterates
    return [
        Trace(*(float(v) for v in (errors[b, 0, j], errors[b, 1, j], errors[-1, 1, j], errors[:, 1, j].min())))
        for j, b in enumerate(best)
    ]


def _pull(descents: list[Descent], X: Array, signs: Array, loss: str, W: Array) -> Array:
    """A subgradient of the sum of the m largest losses / (k - m) at the iterates W, one column per descent.

    The inner steps subtract it.
    """
    s, slope = losses_and_slopes(loss, signs, X @ W)
    weights = [top_weights(s[:, i], d.m) / (d.k - d.m) for i, d in enumerate(descents)]
    return np.asarray(X.T @ (slope * np.column_stack(weights)))


def run(cell: Cell) -> Outcome:
    """Fit all aggregates by the paper's steps, and AoRR at the printed settings with one setting changed at a time.

    The measures are test errors.
    """
    split = split_of_seed(cell.dataset, cell.seed)
    outer, inner = COUNTS[cell.part].get(cell.dataset, _USUAL)
    inner = inner if cell.size == "full" else inner // (4 if cell.size == "quick" else 40)
    k, m = SETTINGS[cell.part][cell.dataset]
    plans = _plans(len(split.train.y), m, k)
    traces = dict(zip(plans, follow(list(plans.values()), split, cell.part, outer, inner), strict=True))
    rescaled = split_of_seed(cell.dataset, cell.seed, scale_on="all")
    traces["scaled"] = follow([plans["AoRR"]], rescaled, cell.part, outer, inner)[0]
    kept = {
        "Maximum": traces["Maximum"],
        "Robust_Max": _best(traces, "Robust_Max"),
        "Average": traces["Average"],
        "AT_k": _best(traces, "AT_k"),
        "AoRR": traces["AoRR"],
    }
    measures = [Measure(method, cell.part, METRIC, trace.kept) for method, trace in kept.items()]
    found = _variants(cell, split, m, k, traces)
    measures += [Measure(name, cell.part, PRINTED_SETTINGS, value) for name, value in found.items()]
    last = {method: trace.last for method, trace in kept.items()}
    return Outcome(measures, {"last point": last, "least": {name: trace.least for name, trace in kept.items()}})


def _plans(n: int, m: int, k: int) -> dict[str, Descent]:
    aorr = Descent(m, k)
    return {
        "Maximum": Descent(0, 1),
        **{f"Robust_Max {slack:g}": Descent(0, 1, slack=slack) for slack in SLACKS},
        "Average": Descent(0, n),
        **{f"AT_k {share:g}": Descent(0, round(share * n)) for share in SHARES},
        "AoRR": aorr,
        "m - 1": replace(aorr, m=m - 1),
        "random": replace(aorr, start="random"),
        "anew": replace(aorr, anew=True),
        "no penalty": replace(aorr, C=np.inf),
    }


def _best(traces: dict[str, Trace], method: str) -> Trace:
    return min((trace for name, trace in traces.items() if name.startswith(method)), key=lambda t: t.validation)


def _variants(cell: Cell, split: Split, m: int, k: int, traces: dict[str, Trace]) -> dict[str, float]:
    """The columns of the second table, by name: errors in percent; "printed" only if the paper has the number."""
    mean, _ = printed("binary", METRIC, cell.dataset, cell.part, "AoRR")
    n, of_all = len(split.train.y), (max(1, round(m / 2)), round(k / 2))
    steps = traces["AoRR"]
    fitted = {
        MINIMISED: _minimised(split, cell.part, m, k, scikit_learns_C(_C, n, m, k)),
        "minimised, counts of all rows": _minimised(split, cell.part, *of_all, scikit_learns_C(_C, n, *of_all)),
        "minimised, C on the sum": _minimised(split, cell.part, m, k, _C),
    }
    return {
        **({} if mean is None else {"printed": mean}),
        **fitted,
        STEPS: steps.kept,
        "steps, last point": steps.last,
        "steps, m - 1 as printed": traces["m - 1"].kept,
        "steps, random start": traces["random"].kept,
        "steps, each outer step anew": traces["anew"].kept,
        "steps, no penalty": traces["no penalty"].kept,
        "steps, scaled before the split": traces["scaled"].kept,
        "steps, best on test rows": steps.least,
    }


def _minimised(split: Split, loss: str, m: int, k: int, C: float) -> float:
    model = AoRRClassifier(m, k, loss=loss, C=C, random_state=0).fit(split.train.X, split.train.y)
    return split.test.error(model.predict(split.test.X))


# --- claims and figures -----------------------------------------------------------------------------------------------


def claims(results: Results) -> list[Claim]:
    """Whether each aggregate and each variant reaches the printed numbers, and whether AoRR beats Average and AT_k."""
    found = [claim for method in METHODS for claim in _reached(results, METRIC, method, method)]
    for variant in VARIANTS:
        found += _reached(results, PRINTED_SETTINGS, variant, "AoRR", f"AoRR at the printed settings, {variant},")
    return [*found, *_against(results, "Average"), *_against(results, "AT_k")]


def _reached(results: Results, metric: str, method: str, row: str, what: str = "") -> list[Claim]:
    """The claim that the errors of `method` are at most one standard deviation above those of `row` in Table 3."""
    lines, missed = [], 0
    for dataset, loss in pairs_of(results):
        mean, deviation = printed("binary", METRIC, dataset, loss, row)
        values = list(results.values(dataset, method, loss, metric).values())
        if mean is None or deviation is None or not values:
            continue
        missed += bool(np.mean(values) > mean + deviation)
        lines.append(f"{dataset} {loss} {np.mean(values):.1f} against {mean:.1f} ({deviation:.1f})")
    if not lines:
        return []
    text = (
        f"{what or f'{method} by the steps of the paper'} comes within one deviation of Table 3, or below, everywhere."
    )
    evidence = f"In {len(lines) - missed} of {len(lines)}: {'; '.join(lines)}."
    return [Claim(text, "does not hold" if missed else "holds", evidence)]


def _against(results: Results, other: str) -> list[Claim]:
    """Compare AoRR with another aggregate, with the same early stopping for both."""
    lines, verdicts = [], []
    for dataset, loss in pairs_of(results):
        difference, error, _ = results.paired(dataset, "AoRR", other, loss, METRIC)
        lines.append(f"{dataset} {loss} {difference:+.2f} ({error:.2f})")
        verdicts.append(decided(difference, error))
    held, failed = verdicts.count("holds"), verdicts.count("does not hold")
    text = f"With the same steps and the same early stopping AoRR has a smaller error than {other} everywhere."
    evidence = f"Smaller by two standard errors in {held} of {len(lines)}, larger in {failed}: {'; '.join(lines)}."
    return [Claim(text, together(verdicts), evidence)] if lines else []


def figures(results: Results) -> dict[str, Any]:
    """The printed errors of AoRR and of Maximum, and ours with early stopping and (for AoRR) at the minimum."""
    from ..harness import figures as plots

    pairs = pairs_of(results)
    figure, axes = plots.sheet(1, 2, width=4.6, height=3.8, sharey=True)
    shown = (("AoRR", PRINTED_SETTINGS, (MINIMISED, STEPS)), ("Maximum", METRIC, ("Maximum",)))
    for axis, (row, metric, methods) in zip(axes[0], shown, strict=True):
        for position, (dataset, loss) in enumerate(pairs):
            mean, deviation = printed("binary", METRIC, dataset, loss, row)
            if mean is not None:
                axis.errorbar(
                    mean, position, xerr=deviation, fmt="k|", ms=12, capsize=2, label="printed" * (position == 0)
                )
            for method, colour in zip(methods, ("#d55e00", "#0072b2"), strict=False):
                values = list(results.values(dataset, method, loss, metric).values())
                name = method if row == "AoRR" else STEPS
                axis.plot(np.mean(values), position, "o", color=colour, label=name * (position == 0))
        axis.set_title(f"{row}: printed, and by our runs", fontsize=10)
        axis.set_xlabel("error on test rows, %", fontsize=8)
        axis.set_yticks(range(len(pairs)), [f"{dataset}, {loss}" for dataset, loss in pairs], fontsize=8)
        axis.legend(frameon=False, fontsize=7)
    axes[0, 0].invert_yaxis()
    return {"iterates": figure}
