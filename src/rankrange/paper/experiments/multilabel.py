"""Tables 7 and 8: three multi-label methods on Emotions, Scene and Yeast, compared with the most frequent labels.

LR is one logistic regression per label, LSEP the log-sum-exp pairwise loss, and TKML the top-k multi-label loss.

Protocol "honest": three quarters of the rows are training rows, on which C is chosen by 5-fold cross-validation; the
last quarter is used once, for the test. All methods choose from the same three values of C: LR and LSEP by their own
loss, TKML by the accuracy at the step where it stops, with one C for all k. TKML has the two-sided loss; "TKML, paper's
loss" is chosen in the same way. If no row has more than k true labels, the two losses and fits are the same.

Emotions, whose results vary most between splits, and Yeast have thirty splits, Scene has ten. In the first ten the
paper's loss is fitted as well. On Yeast it is also minimised without early stopping, which shows the effect of the loss
itself: with C chosen by the accuracy at the minimum (half of the rows for training, a quarter for validation, then
both), and with C = 10, which TKML chooses most often. For k = 2, where ten splits were not conclusive, there are
thirty.

Protocol "paper": one half of the rows for training, C from 10^0 to 10^5 chosen on the validation quarter, TKML with the
paper's loss, minimised with the paper's learning rate of 0.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ... import TKMLClassifier
from ...core.arrays import Array
from ...estimators import LogisticPerLabel, LSEPClassifier
from ...metrics import label_ranking_average_precision
from ..harness.cells import Cell, Claim, Measure, Outcome, Plan, Results, TableSpec, at_least, every_split, together
from ..harness.printed import printed
from ..harness.rankers import (
    KS,
    METRIC,
    Parts,
    best_C,
    cut,
    folds,
    listed,
    logistic,
    lsep,
    paired,
    parts,
    power,
    stopped,
)

NAME = "multilabel"
TITLE = "Top-k multi-label accuracy and average precision on three data sets (Tables 7 and 8)"
DATASETS = ("emotions", "scene", "yeast")
NEEDS = DATASETS
OURS, THEIRS = "TKML", "TKML, paper's loss"
MINIMISED = ("TKML, paper's loss minimised, C chosen", "TKML, paper's loss minimised, C = 10")
OWN_C, BEST = "TKML, C=auto", "TKML, best on test rows"
CONSTANT = "constant label set"
AP = "AP %"
METHODS = (CONSTANT, "LR", "LSEP", OURS, THEIRS)
TABLES = (
    TableSpec(
        "Table 7: top-k multi-label accuracy, %",
        METRIC,
        lines=("dataset", "setting"),
        columns="method",
        methods=(*METHODS, OWN_C, BEST, *MINIMISED),
        note="TKML is the two-sided loss in the honest protocol and the paper's in the paper's. For comparison: the "
        "k most frequent labels, and the paper's loss, stopped by the same rule and, on Yeast, minimised. In the paper "
        "protocol the validation quarter chooses C, and once more the test rows; C=auto is the estimator's own choice.",
    ),
    TableSpec(
        "Table 8: average precision, %",
        AP,
        lines=("dataset",),
        columns="method",
        methods=(*METHODS, OWN_C, BEST),
        note="Of TKML the mean over k = 1..5. The usual definition, in which the best-ranked true label counts.",
    ),
)
SPLITS = {"full": {"emotions": 30, "scene": 10, "yeast": 30}, "quick": dict.fromkeys(DATASETS, 2)}
PAPER_SPLITS = 5
FIRST = 10  # splits in which the paper's loss is fitted as well, and minimised for all k
_LEFT_OPEN = 2  # the k that these splits do not decide
CS = {"full": (3.0, 10.0, 30.0), "quick": (10.0,), "smoke": (10.0,)}
PAPER_CS = {"full": (1e0, 1e1, 1e2, 1e3, 1e4, 1e5), "quick": (1e2, 1e4), "smoke": (1e4,)}
VALIDATION = {"full": 5, "quick": 0.25, "smoke": 0.25}
FIXED_C = 10.0


def cells(plan: Plan) -> list[Cell]:
    """One cell for each data set and split; in the honest protocol also one "minimised" for each split of yeast.

    The size "smoke" has one cell, of emotions.
    """
    n_splits = SPLITS.get(plan.size, {"emotions": 1})
    if plan.protocol == "paper":
        n_splits = {dataset: min(splits, PAPER_SPLITS) for dataset, splits in n_splits.items()}
    found = [cell for name, splits in n_splits.items() for cell in every_split(NAME, plan, [name], ["chosen"], splits)]
    if plan.protocol == "honest" and plan.size != "smoke":
        found += every_split(NAME, plan, ["yeast"], ["minimised"], n_splits["yeast"])
    return found


def cost(cell: Cell) -> float:
    """About how many seconds a cell takes."""
    seconds = {"emotions": 4.0, "scene": 15.0, "yeast": 15.0}[cell.dataset]
    return (0.3 if cell.split >= FIRST else 1.0) * seconds * {"full": 1.0, "quick": 0.1, "smoke": 0.1}[cell.size]


def run(cell: Cell) -> Outcome:
    """Fit all methods on the training rows, and report their top-k accuracy and average precision on the test rows."""
    return _as_in_the_paper(cell) if cell.protocol == "paper" else measured(cell, parts(cell.dataset, cell.seed, 0.75))


def measured(cell: Cell, rows: Parts) -> Outcome:
    """Protocol "honest": what is chosen depends on the training rows alone."""
    return _minimised(cell, rows) if cell.part == "minimised" else _chosen(cell, rows)


def _chosen(cell: Cell, rows: Parts) -> Outcome:
    Cs, how = CS[cell.size], folds(VALIDATION[cell.size], cell.seed)
    models = {"LR": logistic(Cs, rows.X, rows.Y, how), "LSEP": lsep(Cs, rows.X, rows.Y, how)}
    scores = {
        CONSTANT: [rows.constant()],
        **{name: [model.decision_function(rows.X_test)] for name, model in models.items()},
    }
    tried = _tkml_paths(cell, rows)
    one_C = {name: best_C(fits, Cs, KS) for name, fits in tried.items()}
    chosen = {name: [fits[k, one_C[name]] for k in KS] for name, fits in tried.items()}
    if cell.dataset == "emotions":  # its AP is far below the printed one: tests whether the choice of C is the reason
        settings: dict[str, Any] = {"validation": VALIDATION[cell.size], "random_state": cell.seed, "max_iter": 80}
        chosen[OWN_C] = [TKMLClassifier(k, C="auto", **settings).fit(rows.X, rows.Y) for k in KS]
    for name, fits in chosen.items():
        scores[name] = [fit.decision_function(rows.X_test) for fit in fits]
    C = {**{name: model.C * len(rows.X) for name, model in models.items()}, **one_C}
    steps = {f"k={k}": {name: _steps(chosen[name][index]) for name in chosen} for index, k in enumerate(KS)}
    return Outcome(_measured(rows, scores), {"C": C, "steps": steps})


def _tkml_paths(cell: Cell, rows: Parts) -> dict[str, dict[tuple[int, float], TKMLClassifier]]:
    """TKML fits by (k, C), stopped early on held-out rows: with our loss and, in the first ten splits, the paper's."""
    settings = {"validation": VALIDATION[cell.size], "random_state": cell.seed}
    grid = [(k, C) for k in KS for C in CS[cell.size]]
    found = {OURS: {(k, C): stopped(k, C, rows.X, rows.Y, **settings) for k, C in grid}}
    if cell.split < FIRST:
        exceeds_k = {k: bool((rows.Y.sum(axis=1) > k).any()) for k in KS}
        found[THEIRS] = {
            (k, C): stopped(k, C, rows.X, rows.Y, loss="paper", **settings) if exceeds_k[k] else found[OURS][k, C]
            for k, C in grid
        }
    return found


def _measured(rows: Parts, scores: dict[str, list[Array]]) -> list[Measure]:
    """Accuracy at each k and the mean AP, in percent; a method has one array of scores per k, or one for all k."""
    measures = [
        Measure(name, f"k={k}", METRIC, rows.accuracy(each[index if len(each) > 1 else 0], k))
        for index, k in enumerate(KS)
        for name, each in scores.items()
    ]
    for name, each in scores.items():
        precisions = [label_ranking_average_precision(rows.Y_test, f) for f in each]
        measures.append(Measure(name, "all", AP, 100.0 * float(np.mean(precisions))))
    return measures


def _steps(fit: TKMLClassifier) -> int:
    return 0 if fit.stopped_at_start_ else len(fit.history_["objective"]) - 1


def _minimised(cell: Cell, rows: Parts) -> Outcome:
    """Accuracy of the paper's loss, minimised without early stopping: with a C chosen on held-out rows, and C = 10."""
    first = len(rows.Y) * 2 // 3
    halves = cut(rows.X, rows.Y, first)
    measures, chosen = [], {}
    for k in KS if cell.split < FIRST else (_LEFT_OPEN,):
        held_out = {C: halves.accuracy(_end(k, C, halves).decision_function(halves.X_test), k) for C in CS[cell.size]}
        chosen[f"k={k}"] = C = max(held_out, key=lambda C: held_out[C])
        ends = {c: _end(k, c, rows) for c in {C, FIXED_C}}
        for name, c in zip(MINIMISED, (C, FIXED_C), strict=True):
            accuracy = rows.accuracy(ends[c].decision_function(rows.X_test), k)
            measures.append(Measure(name, f"k={k}", METRIC, accuracy))
    return Outcome(measures, {"C": chosen})


def _end(k: int, C: float, rows: Parts) -> TKMLClassifier:
    return TKMLClassifier(k, C=C / len(rows.X), loss="paper", validation=None, max_iter=200).fit(rows.X, rows.Y)


def _as_in_the_paper(cell: Cell) -> Outcome:
    rows = parts(cell.dataset, cell.seed, 0.5)
    middle = len(rows.Y_test) // 2
    held = Parts(rows.X, rows.Y, rows.X_test[:middle], rows.Y_test[:middle])
    test = Parts(rows.X, rows.Y, rows.X_test[middle:], rows.Y_test[middle:])
    Cs = PAPER_CS[cell.size]
    scores: dict[str, list[Array]] = {CONSTANT: [test.constant()], **{name: [] for name in ("LR", "LSEP", OURS, BEST)}}
    chosen: dict[str, dict[str, float]] = {}
    precisions = []
    for_all = {name: _papers_scores(name, KS[0], Cs, rows, cell.size) for name in ("LR", "LSEP")}
    for k in KS:
        found = {**for_all, OURS: _papers_scores(OURS, k, Cs, rows, cell.size)}
        C = {name: max(Cs, key=lambda C: held.accuracy(f[C][:middle], k)) for name, f in found.items()}
        C[BEST] = max(Cs, key=lambda C: test.accuracy(found[OURS][C][middle:], k))
        for name, best in C.items():
            scores[name].append(found[OURS if name == BEST else name][best][middle:])
        precisions.append(max(label_ranking_average_precision(test.Y_test, f[middle:]) for f in found[OURS].values()))
        chosen[f"k={k}"] = C
    measures = [m for m in _measured(test, scores) if (m.method, m.metric) != (BEST, AP)]
    measures.append(Measure(BEST, "all", AP, 100.0 * float(np.mean(precisions))))
    return Outcome(measures, {"C": chosen})


def _papers_scores(name: str, k: int, Cs: tuple[float, ...], rows: Parts, size: str) -> dict[float, Array]:
    """Scores of the method `name` for the validation and test rows, by the paper's C."""
    n = len(rows.X)
    return {C: _papers_model(name, k, C / n, size).fit(rows.X, rows.Y).decision_function(rows.X_test) for C in Cs}


def _papers_model(name: str, k: int, C: float, size: str) -> Any:
    if name == "LR":
        return LogisticPerLabel(C=C, tol=1e-6)
    if name == "LSEP":
        return LSEPClassifier(C=C, tol=1e-5)
    steps = {"full": 1000, "quick": 200, "smoke": 50}[size]
    settings: dict[str, Any] = {"solver": "minmax", "learning_rate": 0.1, "max_iter": steps, "validation": None}
    return TKMLClassifier(k, C=C, loss="paper", **settings)


# --- claims and figures -----------------------------------------------------------------------------------------------


def claims(results: Results) -> list[Claim]:
    """The paper's claims about Tables 7 and 8, tested over paired splits, and our own."""
    found = _papers_claims(results)
    if any(cell.protocol == "honest" for cell, _ in results.outcomes):
        found += [*_against_lr(results), *_against_the_papers_loss(results)]
    return [*found, *_emotions_ap(results)]


def _cells(dataset: str, ks: Iterable[int] = KS) -> list[tuple[str, str]]:
    return [(dataset, f"k={k}") for k in ks]


def _claim(
    results: Results,
    text: str,
    other: str,
    pairs: list[tuple[str, str]],
    *,
    bar: float = 0.0,
    metric: str = METRIC,
    more: str = "",
) -> list[Claim]:
    """The claim that TKML exceeds another method by more than `bar` for all pairs (data set, setting)."""
    differences = paired(results, OURS, other, pairs, metric)
    if not differences:
        return []
    verdicts = [at_least(*pair, bar=bar) for pair in differences.values()]
    evidence = (
        f"Above {bar:g} by two standard errors in {verdicts.count('holds')} of {len(verdicts)}. TKML - {other}: "
        f"{listed(differences)}."
    )
    verdict = together(verdicts)
    if verdict == "not decided":
        evidence += power(results, OURS, other, pairs, metric, bar)
    return [Claim(text, verdict, evidence + more)]


def _papers_claims(results: Results) -> list[Claim]:
    found = []
    for other in ("LR", "LSEP"):
        found += _claim(results, f"On Emotions TKML beats {other} for every k.", other, _cells("emotions"))
    near = "TKML beats LR where k is near the mean number of true labels (Emotions 1, 2; Yeast 4, 5)."
    found += _claim(results, near, "LR", [*_cells("emotions", (1, 2)), *_cells("yeast", (4, 5))])
    for other in ("LR", "LSEP"):
        every = [(dataset, "all") for dataset in DATASETS]
        found += _claim(results, f"TKML has a higher AP than {other} on all three sets.", other, every, metric=AP)
    return found


def _against_lr(results: Results) -> list[Claim]:
    everywhere = paired(results, OURS, "LR", [pair for dataset in DATASETS for pair in _cells(dataset)])
    found = []
    if everywhere:
        worst = min(difference for difference, _ in everywhere.values())
        text = "TKML (two-sided) is nowhere more than half a point below LR. (Ours; on the mean.)"
        found.append(Claim(text, "holds" if worst >= -0.5 else "does not hold", f"TKML - LR: {listed(everywhere)}."))
    gains = "On Yeast TKML (two-sided) beats LR at k = 2, 4, 5. (Ours.)"
    return [*found, *_claim(results, gains, "LR", _cells("yeast", (2, 4, 5)))]


def _against_the_papers_loss(results: Results) -> list[Claim]:
    found = []
    reasons = {
        THEIRS: "Stopped by the same rule the paper's loss stays at or near its start, which is LR.",
        MINIMISED[0]: "On some splits it ends at a constant label set, which at k = 2 is as good as TKML.",
        MINIMISED[1]: "At the C that TKML mostly chooses.",
    }
    for other, reason in reasons.items():
        text = f"On Yeast, k = 1, 2, 3, the two-sided loss is 10 points above: {other}. (Ours.)"
        found += _claim(results, text, other, _cells("yeast", (1, 2, 3)), bar=10.0, more=f" {reason}")
    return found


def _emotions_ap(results: Results) -> list[Claim]:
    """Our claim: no method here reaches the AP that the paper prints for TKML on Emotions, whatever C is chosen."""
    mean = printed(NAME, AP, "emotions", "all", OURS)[0]
    found = {name: list(results.values("emotions", name, "all", AP).values()) for name in (*METHODS, OWN_C, BEST)}
    found = {name: values for name, values in found.items() if len(values) > 1}
    if OURS not in found or mean is None:
        return []
    reached = [name for name, values in found.items() if np.mean(values) + np.std(values, ddof=1) >= mean]
    text = (
        f"On Emotions no method here comes within a deviation of the AP of {mean:g} that is printed for TKML. (Ours.)"
    )
    listing = "; ".join(f"{name} {np.mean(v):.2f} (deviation {np.std(v, ddof=1):.2f})" for name, v in found.items())
    return [Claim(text, "does not hold" if reached else "holds", f"AP: {listing}.")]


def figures(results: Results) -> dict[str, Any]:
    """TKML minus LR, with the two-sided loss and with the paper's, paired over splits, with two standard errors."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    axes = figure.subplots(1, len(DATASETS), sharey=False)
    for axis, dataset in zip(axes, DATASETS, strict=True):
        for shift, (name, colour) in zip((-0.12, 0.12), ((OURS, "#0072b2"), (THEIRS, "#d55e00")), strict=True):
            differences = paired(results, name, "LR", [(dataset, f"k={k}") for k in KS])
            at = [int(setting[2:]) + shift for _, setting in differences]
            values = np.array(list(differences.values())).reshape(-1, 2)
            label = "two-sided" if name == OURS else "paper's loss"
            axis.errorbar(at, values[:, 0], 2 * values[:, 1], fmt="o", color=colour, capsize=3, label=label)
        axis.axhline(0.0, color="0.6", linewidth=1)
        axis.set(title=dataset.capitalize(), xlabel="k", xticks=KS)
    axes[0].set_ylabel("accuracy - LR, points")
    axes[-1].legend(frameon=False)
    return {"multilabel-differences": figure}
