"""Table 3: five data sets, logistic and hinge loss, five aggregates, and a tuned logistic regression for comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.svm import SVC

from ... import RankedRangeClassifier
from ..harness.candidates import Bench, Candidate, Grid, choose
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
    splits_needed,
    together,
)
from ..harness.split import split_of_seed

NAME = "binary"
TITLE = "Error of five aggregates on five binary data sets (Table 3)"
DATASETS = ("monk", "australian", "phoneme", "titanic", "splice")
NEEDS = DATASETS
LOSSES = ("logistic", "hinge")
METHODS = ("Maximum", "Robust_Max", "Average", "AT_k", "AoRR")
LR = "LR (scikit-learn)"
GIVEN = "AoRR, printed k and m"
# k and m of Tables 12 and 13; C is 10^4 in all of them.
SETTINGS = {
    "logistic": {
        "monk": (70, 20),
        "australian": (80, 3),
        "phoneme": (1400, 100),
        "titanic": (500, 10),
        "splice": (450, 50),
    },
    "hinge": {
        "monk": (70, 45),
        "australian": (80, 3),
        "phoneme": (1400, 410),
        "titanic": (500, 10),
        "splice": (450, 50),
    },
}
METRIC, EQUAL, MODELS = "error %", "error %, as many candidates", "error %, other models"
# Random subsets of the larger grids, so all methods choose among equally many candidates: sizes, and number of draws.
BUDGETS, DRAWS = (6, 30, 66), 200
TABLES = (
    TableSpec(
        "Table 3: error on test rows, %",
        METRIC,
        lines=("dataset", "setting"),
        columns="method",
        higher_is_better=False,
        methods=(*METHODS, LR, GIVEN),
        note="Not in the paper: a tuned logistic regression and, in the paper protocol, AoRR minimised at the k, m and "
        "C of Tables 12 and 13 with nothing to choose. The same values of C and k for all, so that methods with more "
        "settings choose from more: AoRR 480 models, AT_k 66, Robust_Max 30, Average and Maximum 6, LR 25. The more "
        "there are, the more a choice follows chance on the rows that choose.",
    ),
    TableSpec(
        "Ours: the same choice among as many candidates, %",
        EQUAL,
        lines=("dataset", "setting"),
        columns="method",
        higher_is_better=False,
        note=f"Mean over {DRAWS} random subsets of each grid, of 6, 30 or 66 candidates: what a larger grid is worth.",
    ),
    TableSpec(
        "Ours: other models on the same splits, %",
        MODELS,
        lines=("dataset",),
        columns="method",
        higher_is_better=False,
        note="Not in the paper. Ridge and the SVM with an RBF kernel choose their penalty and width, and AoRR all of "
        "its settings, on the validation rows; boosted trees have scikit-learn's default settings, alone and inside "
        "RankedRangeClassifier.",
    ),
)
SPLITS = {"full": 10, "quick": 2, "smoke": 1}
# More splits for claims that ten do not decide; by their standard deviation, thirty would in four of five runs.
MORE = {("australian", "hinge"): 30, ("splice", "hinge"): 30}
PAPER_SPLITS = {"full": 10, "quick": 1, "smoke": 1}
GRIDS = {
    "full": Grid(),
    "quick": Grid(k=(1.0, 0.7, 0.5, 0.3), m=(0.45, 0.2, 0.05), slack=(1.0, 10.0)),
    "smoke": Grid(k=(1.0, 0.5), m=(0.3,), slack=(3.0,)),
}


def cells(plan: Plan) -> list[Cell]:
    """One cell for each data set, loss and split."""
    datasets = ("monk",) if plan.size == "smoke" else DATASETS
    if plan.protocol == "paper":
        return every_split(NAME, plan, datasets, LOSSES, PAPER_SPLITS[plan.size])
    more = MORE if plan.size == "full" else {}
    return [
        cell
        for dataset in datasets
        for loss in LOSSES
        for cell in every_split(NAME, plan, [dataset], [loss], more.get((dataset, loss), SPLITS[plan.size]))
    ]


def cost(cell: Cell) -> float:
    """About how many seconds a cell takes."""
    fits = {"full": 1.0, "quick": 0.15, "smoke": 0.02}[cell.size]
    return fits * (30.0 if cell.part == "hinge" else 18.0)


def run(cell: Cell) -> Outcome:
    """Fit all candidates to the training rows, choose one for each method, and report its error on the test rows.

    Protocol "honest": the choice uses the validation rows. Protocol "paper": it uses the test rows, as the printed
    numbers for Australian suggest; such an error is biased downwards by the choice.
    """
    split = split_of_seed(cell.dataset, cell.seed)
    bench = Bench(split.train, (split.validation, split.test), cell.part, GRIDS[cell.size])
    found = {
        "Maximum": bench.maximum(),
        "Robust_Max": bench.robust_max(),
        "Average": bench.average(),
        "AT_k": bench.top_k(),
        "AoRR": bench.ranked_range(),
    }
    if cell.part == "logistic":
        found[LR] = _logistic_regressions(bench)
    if cell.protocol == "paper":
        k, m = SETTINGS[cell.part][cell.dataset]
        found[GIVEN] = [bench.one(m, k, 1e4)]
    chooser = 1 if cell.protocol == "paper" else 0
    chosen = {method: choose(candidates, chooser) for method, candidates in found.items()}
    measures = [Measure(method, cell.part, METRIC, best.errors[1]) for method, best in chosen.items()]
    if cell.protocol == "honest":  # our own tables are about choices without test rows
        measures += _equal_choices(cell, found)
    if cell.protocol == "honest" and cell.part == "logistic":
        measures += [Measure(name, "all", MODELS, error) for name, error in other_models(bench, cell).items()]
        measures.append(Measure("AoRR", "all", MODELS, chosen["AoRR"].errors[1]))
    extra: dict[str, Any] = {
        "n": bench.n,
        "chosen": {method: best.settings for method, best in chosen.items()},
        "validation error %": {method: best.errors[0] for method, best in chosen.items()},
        "candidates": {method: len(candidates) for method, candidates in found.items()},
    }
    return Outcome(measures, extra)


def _logistic_regressions(bench: Bench) -> list[Candidate]:
    """Logistic regressions of scikit-learn with a finer grid: 25 values of the paper's C from 10^-1 to 10^5."""
    found = []
    for C in np.logspace(-1, 5, 25):
        model = LogisticRegression(C=C / bench.n, max_iter=2000).fit(bench.train.X, bench.train.y)
        found.append(Candidate({"C": float(C)}, [part.error(model.predict(part.X)) for part in bench.others]))
    return found


def _equal_choices(cell: Cell, found: dict[str, list[Candidate]]) -> list[Measure]:
    """Mean test error if the choice is among random subsets of the candidates, of the same size for all methods.

    Methods with fewer candidates than this size are left out.
    """
    rng = np.random.default_rng(cell.seed)
    measures = []
    for method in METHODS:
        candidates = found[method]
        for size in BUDGETS:
            if len(candidates) >= size:
                draws = [rng.choice(len(candidates), size, replace=False) for _ in range(DRAWS)]
                picked = [choose([candidates[i] for i in draw]).errors[1] for draw in draws]
                measures.append(Measure(f"{method} of {size}", cell.part, EQUAL, float(np.mean(picked))))
    return measures


def other_models(bench: Bench, cell: Cell) -> dict[str, float]:
    """Test errors in percent of standard models, by name, each with the settings of the smallest validation error.

    The size "smoke" has only ridge.
    """
    trees = HistGradientBoostingClassifier(random_state=cell.seed)
    plans: dict[str, list[Any]] = {
        "ridge": [RidgeClassifier(alpha=float(alpha)) for alpha in np.logspace(-3, 4, 15)],
        "SVM, RBF kernel": [
            SVC(C=float(C), gamma=float(width) / bench.train.X.shape[1])
            for C in np.logspace(-1, 3, 5)
            for width in (0.3, 1.0, 3.0)
        ],
        "boosted trees": [trees],
        "boosted trees in the ranked range": [RankedRangeClassifier(trees, random_state=cell.seed)],
    }
    if cell.size == "smoke":
        plans = {"ridge": plans["ridge"][::7]}
    decides, test = bench.others
    found = {}
    for name, models in plans.items():
        fitted = [model.fit(bench.train.X, bench.train.y) for model in models]
        best = min(fitted, key=lambda model: decides.error(model.predict(decides.X))) if len(fitted) > 1 else fitted[0]
        found[name] = test.error(best.predict(test.X))
    return found


# --- claims and figures -----------------------------------------------------------------------------------------------

# The standard deviations of the paper's AoRR column are in expected.toml; the differences are those in its text.
_AGAINST_AVERAGE = {("monk", "logistic"): -7.0, ("monk", "hinge"): -5.0, ("phoneme", "logistic"): -2.0}


def claims(results: Results) -> list[Claim]:
    """The paper's claims about Table 3, tested over paired splits, and our own."""
    return [
        *_as_printed(results),
        *_as_printed(results, GIVEN, "At the printed k, m and C, minimised, AoRR's error"),
        *_best_of_all(results),
        *_named_gains(results),
        *_against_lr(results),
        *_zero_is_best(results),
    ]


def _as_printed(results: Results, method: str = "AoRR", what: str = "AoRR's error") -> list[Claim]:
    """The claim that `method`, which is AoRR or AoRR at the printed settings, reaches the printed numbers of AoRR."""
    from ..harness.printed import printed

    reached: list[str] = []
    missed: list[str] = []
    for dataset, loss in pairs_of(results):
        mean, deviation = printed(NAME, METRIC, dataset, loss, "AoRR")
        values = list(results.values(dataset, method, loss, METRIC).values())
        if mean is None or deviation is None or not values:
            continue
        text = f"{dataset} {loss} {np.mean(values):.2f} against {mean:.2f} ({deviation:.2f})"
        (reached if np.mean(values) <= mean + deviation else missed).append(text)
    n = len(reached) + len(missed)
    if not n:
        return []
    text = f"{what} is within one of the paper's deviations of the printed one, or smaller, on every data set."
    evidence = f"It holds in {len(reached)} of {n}. Missed: {'; '.join(missed) or 'none'}."
    if missed and results.outcomes[0][0].protocol == "honest":
        evidence += " The paper protocol shows what choosing on the test rows gives there."
    return [Claim(text, "does not hold" if missed else "holds", evidence)]


def _line(results: Results, dataset: str, one: str, other: str, loss: str) -> tuple[str, float, float]:
    difference, error, _ = results.paired(dataset, one, other, loss, METRIC)
    return f"{dataset} {loss} {difference:+.2f} ({error:.2f})", difference, error


_COST_OF_CHOICE = (
    " As far as we know: where no rows pull the fit astray, cutting gains nothing, and AoRR is chosen among 480 models "
    "on a quarter of the rows, the average among 6, which costs it some tenths of a point."
)
_WHY = {
    "Average": _COST_OF_CHOICE,
    "AT_k": _COST_OF_CHOICE,
    "Robust_Max": " As far as we know: with much slack Robust_Max is close to the average, which is enough there.",
}


def _best_of_all(results: Results) -> list[Claim]:
    """The paper: AoRR is best on all five data sets with both losses. One claim for each other method."""
    found = []
    for other in METHODS[:-1]:
        lines = [(dataset, loss, *_line(results, dataset, "AoRR", other, loss)) for dataset, loss in pairs_of(results)]
        verdicts = [decided(difference, error) for *_, difference, error in lines]
        held, failed = verdicts.count("holds"), verdicts.count("does not hold")
        verdict = together(verdicts)
        text = f"AoRR has a smaller error than {other} on every data set with both losses."
        evidence = f"Smaller by two standard errors in {held} of {len(lines)}, larger in {failed}. AoRR - {other}: "
        why = "" if verdict == "holds" else _WHY.get(other, "")
        if verdict == "not decided":
            why += _power(results, other)
        found.append(Claim(text, verdict, evidence + "; ".join(line[2] for line in lines) + "." + why))
    return found


def _power(results: Results, other: str) -> str:
    pairs = pairs_of(results)
    return splits_needed({f"{d} {loss}": results.paired(d, "AoRR", other, loss, METRIC) for d, loss in pairs})


def pairs_of(results: Results) -> list[tuple[str, str]]:
    """The pairs (data set, loss) that were measured, in the order of the table."""
    measured = {(cell.dataset, cell.part) for cell, _ in results.outcomes}
    return [(dataset, loss) for dataset in DATASETS for loss in LOSSES if (dataset, loss) in measured]


def _named_gains(results: Results) -> list[Claim]:
    found = []
    for (dataset, loss), bar in _AGAINST_AVERAGE.items():
        if (dataset, loss) not in pairs_of(results):
            continue
        line, difference, error = _line(results, dataset, "AoRR", "Average", loss)
        text = f"On {dataset} ({loss}) AoRR - Average is at most {bar:g} points."
        verdict = "holds" if difference <= bar else "does not hold" if difference - 2 * error > bar else "not decided"
        more = splits_needed({"it": results.paired(dataset, "AoRR", "Average", loss, METRIC)}, bar)
        evidence = f"Paired difference and its standard error: {line}."
        found.append(Claim(text, verdict, evidence + (more if verdict == "not decided" else "")))
    return found


def _against_lr(results: Results) -> list[Claim]:
    """Our claim: AoRR beats a tuned logistic regression on every data set."""
    lines = [_line(results, dataset, "AoRR", LR, loss) for dataset, loss in pairs_of(results) if loss == "logistic"]
    lines = [line for line in lines if np.isfinite(line[1])]
    if not lines:
        return []
    held = sum(decided(difference, error) == "holds" for _, difference, error in lines)
    text = "AoRR (logistic) beats a tuned logistic regression on every data set. (Ours; the paper has no such row.)"
    evidence = f"It does by two standard errors on {held} of {len(lines)}: " + "; ".join(line[0] for line in lines)
    return [Claim(text, "holds" if held == len(lines) else "does not hold", evidence + ".")]


def _zero_is_best(results: Results) -> list[Claim]:
    values = {pair: list(results.values(pair[0], "Maximum", pair[1], METRIC).values()) for pair in pairs_of(results)}
    text = "The maximum loss gives a classifier that is poor, but not trivial (22 to 29% in Table 3)."
    evidence = (
        "None of the data sets is linearly separable, so that any line has some row on its wrong side and the maximum "
        "is never below its value at zero: minimised to the end it predicts the larger class. The printed numbers can "
        "only be those of iterates on the way. Errors here: "
    )
    errors = [f"{dataset} {loss} {np.mean(found):.1f}" for (dataset, loss), found in values.items() if found]
    return [Claim(text, "does not hold", evidence + "; ".join(errors) + ".")] if errors else []


def figures(results: Results) -> dict[str, Any]:
    """AoRR minus Average, AT_k and Robust_Max: mean over paired splits, with two standard errors."""
    from ..harness import figures as plots

    others = ("Average", "AT_k", "Robust_Max")
    pairs = pairs_of(results)
    figure, axes = plots.sheet(1, len(others), width=3.6, height=3.6, sharey=True, sharex=True)
    for one, other in zip(axes[0], others, strict=True):
        for position, (dataset, loss) in enumerate(pairs):
            difference, error, _ = results.paired(dataset, "AoRR", other, loss, METRIC)
            colour = plots.COLOURS["AoRR"] if loss == "logistic" else plots.COLOURS["Average"]
            spread = None if np.isnan(error) else 2 * error
            one.errorbar(difference, position, xerr=spread, fmt="o", ms=5, color=colour, capsize=2, lw=1.4)
        one.axvline(0, color="#222222", lw=0.9)
        one.set_title(f"AoRR - {plots.NAMES.get(other, other)}", fontsize=10)
        one.set_xlabel("points of test error (left of 0: AoRR better)", fontsize=8)
        one.set_yticks(range(len(pairs)), [f"{dataset}, {loss}" for dataset, loss in pairs], fontsize=8)
    axes[0, 0].invert_yaxis()
    return {"binary-differences": figure}
