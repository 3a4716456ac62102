"""Tables 4 and 5: MNIST with symmetric label noise, a linear softmax model, and the estimated number of wrong labels.

Of the 60,000 training images 10,000 are a validation set with correct labels, as in the paper. Of the others, exactly
20, 30 or 40% get a wrong label. The paper stops its descent early; we minimise. All methods have scikit-learn's C =
0.1, which was chosen among 0.02, 0.1 and 0.5 on the validation set of a split that is not reported. The average loss is
also fitted with a C chosen on the validation set, so AoRR is compared with a tuned model.
"""

from __future__ import annotations

import time
import warnings
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ... import AoRRClassifier, datasets, noise
from ...core.arrays import Array
from ..harness.cells import Cell, Claim, Measure, Outcome, Plan, Results, TableSpec, decided, splits_needed, together

NAME = "mnist-symmetric"
TITLE = "MNIST with symmetric label noise: accuracy and the estimate of m (Tables 4 and 5)"
NEEDS = ("mnist",)
RATES = (0.2, 0.3, 0.4)
ACCURACY, COUNT, MISS = "accuracy %", "m", "|m - truth|"
TUNED, ALONE = "Average, C tuned", "AoRR, no clean rows"
PRINTED = ("Average", "AT_k", "AoRR")
METHODS = (*PRINTED, ALONE, TUNED)
TABLES = (
    TableSpec(
        "Table 4: accuracy on the 10,000 test images, %",
        ACCURACY,
        lines=("method",),
        columns="setting",
        methods=METHODS,
        note="The last two are not in the paper: AoRR that sees no clean row, and Average with C chosen on clean rows.",
    ),
    TableSpec(
        "Table 5: the estimate of m",
        COUNT,
        lines=("method",),
        columns="setting",
        higher_is_better=False,
        methods=("truth", "AoRR", ALONE),
        note="The paper's estimates are too high, so lower is better down to the truth.",
    ),
    TableSpec(
        "Error of the estimate of m",
        MISS,
        lines=("method",),
        columns="setting",
        higher_is_better=False,
        methods=("AoRR", ALONE),
        note="The paper's estimates are off by 1,722, 1,431 and 1,026.",
    ),
)
SPLITS = {"full": 5, "quick": 1, "smoke": 1}
PAPER_SPLITS = {"full": 2, "quick": 1, "smoke": 1}
# Training and clean rows. With fewer rows, images are coarser: each pixel is the mean of four.
ROWS = {"full": (50_000, 10_000), "quick": (5000, 2000), "smoke": (400, 200)}
_PENALTY = 0.1  # scikit-learn's C
_PENALTIES = (0.001, 0.01, _PENALTY)
_TOL = 1e-4


def cells(plan: Plan) -> list[Cell]:
    """One cell for each rate of noise and split."""
    rates = RATES[:1] if plan.size == "smoke" else RATES
    return [
        Cell(NAME, "mnist", setting(rate), split, plan.protocol, plan.size)
        for split in range((PAPER_SPLITS if plan.protocol == "paper" else SPLITS)[plan.size])
        for rate in rates
    ]


def cost(cell: Cell) -> float:
    """About how many core seconds a cell takes."""
    return {"full": 90.0, "quick": 8.0, "smoke": 2.0}[cell.size]


def setting(rate: float) -> str:
    """The name of a noise rate in the table."""
    return f"noise={rate:g}"


class Images(NamedTuple):
    """Images with pixels in [0, 1] and their digits, and those to test on."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


class Split(NamedTuple):
    """Training images, clean validation images and test images, with pixels in [0, 1].

    `given` are the training labels, and `wrong` marks those that are wrong.
    """

    X: Array
    given: Array
    wrong: Array
    X_clean: Array
    y_clean: Array
    X_test: Array
    y_test: Array


def split_of(cell: Cell, images: Images, n_train: int, n_clean: int) -> Split:
    """The rows of a cell: noisy training rows, clean ones, and the test rows."""
    order = np.random.default_rng(cell.seed).permutation(len(images.y))
    clean, train = order[:n_clean], order[n_clean : n_clean + n_train]
    given = noise.symmetric(images.y[train], float(cell.part.split("=")[1]), cell.seed)
    wrong = given != images.y[train]
    return Split(images.X[train], given, wrong, images.X[clean], images.y[clean], images.X_test, images.y_test)


@cache
def _mnist(coarse: bool) -> Images:
    bunch = datasets.load("mnist")
    images, test = ((part / np.float32(255.0)).astype(np.float32) for part in (bunch.data, bunch.test_data))
    if coarse:
        images, test = (part.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) for part in (images, test))
    return Images(images, np.asarray(bunch.target), test, np.asarray(bunch.test_target))


def run(cell: Cell) -> Outcome:
    """`measured` for MNIST."""
    return measured(cell, split_of(cell, _mnist(coarse=cell.size != "full"), *ROWS[cell.size]))


def measured(cell: Cell, split: Split) -> Outcome:
    """Fit all methods and report their test accuracy, and the m of AoRR compared with the number of wrong labels.

    Protocol "honest": AoRR uses the m and k that predict the clean rows best. Protocol "paper": those of the last
    update of Algorithm 2.
    """
    C = _PENALTY
    clean = {"X_val": split.X_clean, "y_val": split.y_clean}
    fits: dict[str, AoRRClassifier] = {}
    seconds = {}
    tasks = {
        "Average": lambda: _fit(split, C, m=0, k=1.0),
        "AT_k": lambda: _fit(split, C, clean, m=0, k="auto"),
        "AoRR": lambda: _fit(split, C, clean),
        ALONE: lambda: _fit(split, C),
        TUNED: lambda: _tuned(split, fits["Average"]),
    }
    if cell.protocol == "paper":
        tasks = {name: tasks[name] for name in PRINTED}
    for method, task in tasks.items():
        start = time.process_time()
        fits[method] = task()
        if method == "AoRR" and cell.protocol == "paper":
            fits[method] = _as_printed(split, C, fits[method])
        seconds[method] = time.process_time() - start
    accuracy = {method: 100.0 * float(fit.score(split.X_test, split.y_test)) for method, fit in fits.items()}
    measures = [Measure(method, cell.part, ACCURACY, value) for method, value in accuracy.items()]
    truth = float(split.wrong.sum())
    measures.append(Measure("truth", cell.part, COUNT, truth))
    for method in _estimating(fits):
        measures.append(Measure(method, cell.part, COUNT, float(fits[method].m_)))
        measures.append(Measure(method, cell.part, MISS, abs(fits[method].m_ - truth)))
    return Outcome(measures, _extra(fits, split, seconds))


def _fit(split: Split, C: float, clean: dict[str, Array] | None = None, **settings: Any) -> AoRRClassifier:
    with warnings.catch_warnings():
        # About a gap above 1e-4 of the objective, and a class that loses many rows: `_extra` records the cut rows.
        warnings.simplefilter("ignore", UserWarning)
        return AoRRClassifier(**settings, C=C, tol=_TOL, random_state=0).fit(split.X, split.given, **(clean or {}))


def _estimating(fits: dict[str, AoRRClassifier]) -> list[str]:
    """The names of the fits that estimate m."""
    return [method for method in ("AoRR", ALONE) if method in fits]


def _tuned(split: Split, average: AoRRClassifier) -> AoRRClassifier:
    """The ordinary fit with the C that predicts the clean rows best; the smallest one if several tie."""
    fits = [_fit(split, penalty, m=0, k=1.0) for penalty in _PENALTIES if penalty < _PENALTY]
    fits.append(average)
    return max(fits, key=lambda fit: fit.score(split.X_clean, split.y_clean))


def _as_printed(split: Split, C: float, fit: AoRRClassifier) -> AoRRClassifier:
    """Fit again with the m and k of the last update of Algorithm 2, instead of those that predict clean rows best."""
    return _fit(split, C, m=int(fit.tuning_["m"][-1]), k=int(fit.tuning_["k"][-1]))


def _extra(fits: dict[str, AoRRClassifier], split: Split, seconds: dict[str, float]) -> dict[str, Any]:
    """Additional results: core seconds, the k of AT_k, the tuned C, and for each method that estimates m a dict.

    It has m, k, the estimated share of wrong labels with its interval, under "found" the precision and recall of the
    dropped rows, and under "looks" all values of m that were tried: counts with clean rows, otherwise shares.
    """
    extra: dict[str, Any] = {"seconds": seconds, "k": float(fits["AT_k"].k_)}
    if TUNED in fits:
        extra["C of " + TUNED] = float(fits[TUNED].C)
    for method in _estimating(fits):
        fit = fits[method]
        hits = float((fit.dropped_ & split.wrong).sum())
        extra[method] = {
            "m": float(fit.m_),
            "k": float(fit.k_),
            "wrong labels, estimate": getattr(fit, "noise_estimate_", None),
            "interval": list(getattr(fit, "noise_interval_", ())),
            "found": [hits / max(1.0, float(fit.dropped_.sum())), hits / float(split.wrong.sum())],
            "looks": [float(m) for m in getattr(fit, "tuning_", {}).get("m", [])],
        }
    return extra


# --- claims and figures -----------------------------------------------------------------------------------------------


def _rates(results: Results) -> list[float]:
    measured = {cell.part for cell, _ in results.outcomes}
    return [rate for rate in RATES if setting(rate) in measured]


def claims(results: Results) -> list[Claim]:
    """The paper's claims about Tables 4 and 5, tested over paired splits, and our own."""
    measured = {measure.method for _, outcome in results.outcomes for measure in outcome.measures}
    sentences = {
        ("AoRR", "Average"): "AoRR is more accurate than Average at every rate of noise.",
        ("AoRR", "AT_k"): "AoRR is more accurate than AT_k at every rate of noise.",
        ("AoRR", TUNED): "AoRR is more accurate than Average with a tuned penalty. (Ours.)",
        (ALONE, TUNED): "AoRR without clean rows beats Average tuned with clean rows. (Ours.)",
    }
    estimates = {
        "AoRR": "The estimate of m is close to the number of wrong labels.",
        ALONE: "The same without any clean row. (Ours.)",
    }
    return [
        *(_better(results, *pair, text) for pair, text in sentences.items() if measured >= set(pair)),
        *(_estimates(results, method, text) for method, text in estimates.items() if method in measured),
        _top_k_is_average(results),
    ]


def _better(results: Results, one: str, other: str, text: str) -> Claim:
    found = {setting(rate): results.paired("mnist", one, other, setting(rate), ACCURACY) for rate in _rates(results)}
    verdict = together([decided(-difference, error) for difference, error, _ in found.values()])
    lines = [f"{name} {difference:+.2f} ({error:.2f})" for name, (difference, error, _) in found.items()]
    evidence = f"{one} - {other}, paired over splits, points: {'; '.join(lines)}."
    return Claim(text, verdict, evidence + (splits_needed(found) if verdict == "not decided" else ""))


def _estimates(results: Results, method: str, text: str) -> Claim:
    lines, closer = [], []
    for rate in _rates(results):
        misses = np.array(list(results.values("mnist", method, setting(rate), MISS).values()))
        truths = np.array(list(results.values("mnist", "truth", setting(rate), COUNT).values()))
        lines.append(f"{setting(rate)} off by {misses.mean():.0f} of {truths.mean():.0f}")
        closer.append(bool((misses / truths).max() <= 0.15))
    verdict = "holds" if closer and all(closer) else "does not hold"
    return Claim(text, verdict, f"The criterion is 15% in every split; {'; '.join(lines)}.")


def _top_k_is_average(results: Results) -> Claim:
    same = [outcome.extra["k"] == ROWS[cell.size][0] for cell, outcome in results.outcomes]
    text = "AT_k with the paper's operation 2 is Average: mean - 2 deviations of the losses is below zero. (Ours.)"
    return Claim(text, "holds" if all(same) else "does not hold", f"k = n in {sum(same)} of {len(same)}.")


def figures(results: Results) -> dict[str, Any]:
    """Accuracy and the estimate of m against the noise rate."""
    from ..harness import figures as plots

    rates = _rates(results)
    figure, (axes,) = plots.sheet(1, 2, width=4.2, height=3.3)
    looks = {"Average": "Average", TUNED: "Average", "AoRR": "AoRR", ALONE: "AoRR"}
    for method, like in looks.items():
        style = {"ls": ":"} if method in (TUNED, ALONE) else {}
        for axis, metric in zip(axes, (ACCURACY, COUNT), strict=True):
            values = _by_split(results, method, rates, metric)
            if values:
                plots.curve(axis, rates, values, like, label=method, marker="o", **style)
    axes[0].set(xlabel="share of wrong labels", ylabel="test accuracy, %", xticks=rates)
    plots.curve(axes[1], rates, _by_split(results, "truth", rates, COUNT), "Bayes", label="truth")
    axes[1].set(xlabel="share of wrong labels", ylabel="m", xticks=rates)
    for one in axes:
        one.legend(fontsize=8, frameon=False)
    return {"mnist-symmetric": figure}


def _by_split(results: Results, method: str, rates: list[float], metric: str) -> list[list[float]]:
    found = [results.values("mnist", method, setting(rate), metric) for rate in rates]
    splits = sorted(set.intersection(*(set(values) for values in found))) if found else []
    return [[values[split] for values in found] for split in splits]
