"""Table 9 and Figure 8: the top-k SVM and TKML on MNIST with class-conditional label noise.

The labels of the 60,000 training rows are replaced (2 -> 7, 3 -> 8, 5 <-> 6, 7 -> 1) at the given rate; the 10,000 test
rows are clean. Both methods are linear on the raw pixels, with top_k = 1 as in the paper, and one fit gives the top-1
to top-5 accuracy. Logistic regression (LR) is added for comparison.

Protocol "honest": C and the step at which TKML stops are chosen on a fifth of the noisy rows. Protocol "paper": C is
chosen on the test rows, as in the released code, separately for each k. The paper does not print its C.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import TKMLClassifier, noise
from ...core.arrays import Array
from ...datasets import load
from ...estimators import LogisticPerLabel, TopKSVMClassifier
from ..harness.cells import (
    Cell,
    Claim,
    Measure,
    Outcome,
    Plan,
    Results,
    TableSpec,
    at_least,
    every_split,
    mean_difference,
    splits_needed,
    standard_error,
    together,
)
from ..harness.printed import printed
from ..harness.rankers import listed, paired, power

NAME = "mnist-asymmetric"
TITLE = "Top-k accuracy on MNIST with asymmetric noise (Table 9, Figure 8)"
NEEDS = ("mnist",)
NOISE = (0.2, 0.3, 0.4)
MAPPING = {2: 7, 3: 8, 5: 6, 6: 5, 7: 1}
TOPS = (1, 2, 3, 4, 5)
SVM, TKML, LR = "SVM_alpha", "TKML", "LR"
# At this noise the top-5 accuracy was below the printed one, so TKML is also fitted with the estimator's choice of C.
OWN_C, SHORT = "TKML, C=auto", "noise=0.2"
METHODS = (LR, SVM, TKML)
TABLES = tuple(
    TableSpec(
        f"Table 9: top-{top} accuracy, %",
        f"top-{top} accuracy %",
        lines=("setting",),
        columns="method",
        methods=(*METHODS, OWN_C),
        note="LR, one logistic regression per class, is not in the paper, nor the estimator's own choice of C.",
    )
    for top in TOPS
)
SPLITS = {"full": 5, "quick": 2, "smoke": 1}
PAPER_SPLITS = {"full": 2, "quick": 1, "smoke": 1}
CS = {"full": (1e2, 1e3), "quick": (1e2,), "smoke": (1e2,)}
ROWS = {"full": 60_000, "quick": 6_000, "smoke": 1_000}


def cells(plan: Plan) -> list[Cell]:
    """One cell for each rate of noise and split."""
    rates = (0.3,) if plan.size == "smoke" else NOISE
    n_splits = (PAPER_SPLITS if plan.protocol == "paper" else SPLITS)[plan.size]
    return every_split(NAME, plan, ["mnist"], [f"noise={rate:g}" for rate in rates], n_splits)


def cost(cell: Cell) -> float:
    """About how many seconds a cell takes."""
    return {"full": 70.0, "quick": 3.0, "smoke": 1.0}[cell.size]


def run(cell: Cell) -> Outcome:
    """Fit all methods on the noisy rows, and report their top-1 to top-5 accuracy on the clean test rows."""
    rate = float(cell.part.removeprefix("noise="))
    data = load("mnist")
    rows = np.random.default_rng(cell.seed).permutation(len(data.target))[: ROWS[cell.size]]
    X, X_test = (pixels.astype(np.float32) / np.float32(255) for pixels in (data.data[rows], data.test_data))
    y = noise.asymmetric(data.target[rows], MAPPING, rate, random_state=cell.seed)
    measures: list[Measure] = []
    extra: dict[str, Any] = {"C": {}, "class error %": {}}
    for method, fits in _models(cell, X, y).items():
        ranks = {C: _ranks(model.decision_function(X_test), data.test_target) for C, model in fits.items()}
        accuracy = {C: [_percent(each < top) for top in TOPS] for C, each in ranks.items()}
        # One model, unless C is chosen on the test rows: then the best for each k.
        measures += [
            Measure(method, cell.part, f"top-{top} accuracy %", max(found[index] for found in accuracy.values()))
            for index, top in enumerate(TOPS)
        ]
        C = max(accuracy, key=lambda C: accuracy[C][0])
        extra["C"][method] = C
        extra["class error %"][method] = [_percent(ranks[C][data.test_target == digit] > 0) for digit in range(10)]
    return Outcome(measures, extra)


def _percent(hits: Array) -> float:
    return 100.0 * float(np.mean(hits))


def _ranks(scores: Array, y: Array) -> Array:
    """For each row, the number of classes with a higher score than its class y: 0 is a correct prediction."""
    of_label = np.take_along_axis(scores, y.astype(np.intp)[:, None], axis=1)
    return np.sum(scores > of_label, axis=1)


def _models(cell: Cell, X: Array, y: Array) -> dict[str, dict[float, Any]]:
    """The fits of each method, by the paper's C: the best C on held-out noisy rows or, in protocol "paper", every C.

    In protocol "honest", noise 0.2 also has TKML with the estimator's choice of C.
    """
    makers: dict[str, Any] = {
        LR: lambda C: LogisticPerLabel(C=C, tol=1e-4),
        SVM: lambda C: TopKSVMClassifier(1, C=C, tol=1e-4, max_iter=100),
    }
    stopped = {C: _tkml(C / len(y), cell).fit(X, y) for C in CS[cell.size]}
    if cell.protocol == "paper":
        every = {method: {C: make(C / len(y)).fit(X, y) for C in CS[cell.size]} for method, make in makers.items()}
        return {**every, TKML: stopped}
    found: dict[str, dict[float, Any]] = {}
    for method, make in makers.items():
        C = _held_out_C(make, X, y, CS[cell.size])
        found[method] = {C: make(C / len(y)).fit(X, y)}
    C = max(stopped, key=lambda C: stopped[C].stop_score_)
    found[TKML] = {C: stopped[C]}
    if cell.part == SHORT:
        fit = _tkml("auto", cell).fit(X, y)
        found[OWN_C] = {fit.C_ * len(y): fit}
    return found


def _held_out_C(make: Any, X: Array, y: Array, Cs: tuple[float, ...]) -> float:
    """The C with the best top-1 accuracy on the last fifth of the rows; the rows must be in random order.

    A single C is returned without a fit.
    """
    first = len(y) * 4 // 5
    right = {}
    for C in Cs if len(Cs) > 1 else ():
        scores = make(C / first).fit(X[:first], y[:first]).decision_function(X[first:])
        right[C] = np.mean(_ranks(scores, y[first:]) == 0)
    return max(right, key=lambda C: right[C]) if right else Cs[0]


def _tkml(C: Any, cell: Cell) -> TKMLClassifier:
    return TKMLClassifier(1, C=C, validation=0.2, max_iter=40, random_state=cell.seed)


# --- claims and figures -----------------------------------------------------------------------------------------------


def claims(results: Results) -> list[Claim]:
    """The paper's claims about Table 9 and Figure 8, tested over paired splits, and our own."""
    settings = [("mnist", f"noise={rate:g}") for rate in NOISE]
    found = []
    for other in (SVM, LR):
        for top in TOPS:
            differences = paired(results, TKML, other, settings, f"top-{top} accuracy %")
            if differences:
                text = f"TKML beats {other} in top-{top} accuracy at every noise level."
                text += " (Ours; the paper has no such row.)" if other == LR else ""
                verdict = together([at_least(*pair) for pair in differences.values()])
                evidence = f"TKML - {other}: {listed(differences)}."
                if verdict == "not decided":
                    evidence += power(results, TKML, other, settings, f"top-{top} accuracy %")
                found.append(Claim(text, verdict, evidence))
    return [*found, *_grows(results), *_flipped(results), *_top_5(results)]


def _top_5(results: Results) -> list[Claim]:
    """Our claim: at noise 0.2 TKML reaches the printed top-5 accuracy, up to a deviation; other methods are listed."""
    metric = "top-5 accuracy %"
    mean, deviation = printed(NAME, metric, "mnist", SHORT, TKML)
    found = {name: list(results.values("mnist", name, SHORT, metric).values()) for name in (TKML, OWN_C, SVM, LR)}
    if not found[TKML] or mean is None or deviation is None:
        return []
    text = "At noise 0.2 TKML's top-5 accuracy is within one of the paper's deviations of the printed one, or higher."
    listing = "; ".join(f"{name} {np.mean(values):.3f}" for name, values in found.items() if values)
    verdict = "holds" if np.mean(found[TKML]) >= mean - deviation else "does not hold"
    return [Claim(text, verdict, f"Printed {mean:.2f} ({deviation:.2f}). Here: {listing}.")]


def _grows(results: Results) -> list[Claim]:
    """The paper: the gain over the SVM grows with the noise."""
    gains = []
    for rate in (0.2, 0.4):
        ours, theirs = (results.values("mnist", name, f"noise={rate:g}", "top-1 accuracy %") for name in (TKML, SVM))
        gains.append({split: ours[split] - theirs[split] for split in ours.keys() & theirs.keys()})
    mean, error, n = mean_difference(gains[1], gains[0])
    if n < 2:
        return []
    text = "The gain of TKML over SVM_alpha in top-1 accuracy grows from noise 0.2 to noise 0.4."
    more = splits_needed({"the gain": (mean, error, n)})
    return [Claim(text, at_least(mean, error), f"Gain at 0.4 - gain at 0.2: {mean:+.2f} ({error:.2f}).{more}")]


def _flipped(results: Results) -> list[Claim]:
    """The paper: TKML has fewer errors in the noisy classes, such as 2 and 3 and especially 5."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    n = 0
    for digit in (2, 3, 5):
        for rate in NOISE:
            errors = _class_errors(results, rate)
            if len(errors[TKML]) > 1:
                less = errors[SVM][:, digit] - errors[TKML][:, digit]
                n = len(less)
                found[f"class {digit}", f"noise={rate:g}"] = float(less.mean()), float(standard_error(less))
    if not found:
        return []
    text = "TKML errs less than SVM_alpha on the flipped classes 2, 3 and 5."
    verdict = together([at_least(*pair) for pair in found.values()])
    evidence = f"Error of SVM_alpha - error of TKML: {listed(found)}."
    if verdict == "not decided":
        evidence += splits_needed({" ".join(name): (*pair, n) for name, pair in found.items()})
    return [Claim(text, verdict, evidence)]


def _class_errors(results: Results, rate: float) -> dict[str, Array]:
    """The error in percent in each class, (splits, 10), for each method."""
    outcomes = [outcome for cell, outcome in results.outcomes if cell.part == f"noise={rate:g}"]
    return {
        method: np.array([outcome.extra["class error %"][method] for outcome in outcomes]).reshape(-1, 10)
        for method in METHODS
    }


def figures(results: Results) -> dict[str, Any]:
    """Figure 8: the error in each class, at each noise level."""
    from matplotlib.figure import Figure

    rates = [rate for rate in NOISE if len(_class_errors(results, rate)[TKML])]
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    axes = figure.subplots(1, max(1, len(rates)), sharey=True, squeeze=False)[0]
    colours = {LR: "0.6", SVM: "#d55e00", TKML: "#0072b2"}
    for axis, rate in zip(axes, rates, strict=False):
        for i, (method, errors) in enumerate(_class_errors(results, rate).items()):
            spread = errors.std(axis=0, ddof=1) if len(errors) > 1 else None
            at = np.arange(10) + 0.27 * (i - 1)
            axis.bar(at, errors.mean(axis=0), 0.25, yerr=spread, color=colours[method], label=method)
        axis.set(title=f"noise {rate:g}", xlabel="class (flipped: 2, 3, 5, 6, 7)", xticks=range(10))
    axes[0].set_ylabel("error, %")
    axes[0].legend(frameon=False)
    return {"mnist-asymmetric-classes": figure}
