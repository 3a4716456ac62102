"""The structure of an experiment: cells of work and their outcomes.

The outcome of a cell depends only on the cell, so cells can run in any process and in any order, and an interrupted run
can be resumed. An outcome has measures (one number per method, setting and metric) and data for figures. Measures of
several splits become rows of the results, which are compared with the paper's printed numbers.

An experiment is a module of `rankrange.paper.experiments`, listed in `rankrange.paper.EXPERIMENTS`, with these names:

    NAME, TITLE                     "binary", "Table 3: ..."
    NEEDS                           the data sets it loads, by the names of `rankrange.datasets`
    TABLES                          tuple[TableSpec, ...]: how its rows are shown on the page
    cells(plan) -> list[Cell]       all of its work
    run(cell) -> Outcome            one piece; loads its data through `rankrange.datasets`, seeds by `cell.seed`
    claims(results) -> list[Claim]  the paper's claims about this experiment, tested over paired splits
    figures(results) -> dict[str, Figure]     matplotlib figures by file name without ending
    cost(cell) -> float             optional: about how many seconds a cell takes; the longest cells run first

Modules use the public API of rankrange (`iterates` also its losses) and import matplotlib only inside `figures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import RankedRange

PROTOCOLS = ("honest", "paper")


@dataclass(frozen=True)
class Plan:
    """The protocol and the size of a run.

    protocol : "honest" (every choice uses training and validation rows, and test rows are used once) or "paper" (as the
        paper describes it, if that differs).
    size : "full"; "quick" (fewer splits and grid points: the whole paper in 4 minutes); "smoke" (seconds, for tests).
    """

    protocol: str = "honest"
    size: str = "full"


@dataclass(frozen=True)
class Cell:
    """One unit of work: a split of a data set. `part` distinguishes several units of one data set and split."""

    experiment: str
    dataset: str
    part: str
    split: int
    protocol: str = "honest"
    size: str = "full"

    @property
    def key(self) -> str:
        """A unique key that is a valid file name."""
        part = "".join(c if c.isalnum() or c in "._=" else "_" for c in self.part)
        return f"{self.experiment}.{self.dataset}.{part}.{self.split:03d}.{self.protocol}.{self.size}"

    @property
    def seed(self) -> int:
        """The seed, the same for all methods and parts of a split, so differences are paired."""
        return 1000 + self.split


def every_split(name: str, plan: Plan, datasets: Sequence[str], parts: Sequence[str], splits: int) -> list[Cell]:
    """A cell of an experiment for each data set, part and split, in that order."""
    return [
        Cell(name, dataset, part, split, plan.protocol, plan.size)
        for dataset in datasets
        for part in parts
        for split in range(splits)
    ]


@dataclass(frozen=True)
class Measure:
    """One result of a cell. `setting` is the column or row of the paper's table, such as "logistic" or "k=3"."""

    method: str
    setting: str
    metric: str
    value: float


@dataclass(frozen=True)
class Outcome:
    """The results of a cell.

    `extra` is JSON (numbers, strings, lists, dicts), for example choices or points of a curve.
    """

    measures: list[Measure]
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableSpec:
    """How rows of the results become a table on the page.

    metric : the rows with this metric are shown.
    lines, columns : names among "dataset", "method", "setting"; the table has one line for each combination of values
        of `lines`, and one column for each value of `columns`.
    higher_is_better : whether larger values are better.
    methods : the methods to show, in this order; empty means all, in the order of the measures.
    """

    title: str
    metric: str
    lines: tuple[str, ...]
    columns: str
    higher_is_better: bool = True
    methods: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, or of ours, and whether the results support it.

    verdict : "holds", "does not hold" or, for a difference within two standard errors, "not decided".
    evidence : the numbers behind the verdict, as text.
    """

    text: str
    verdict: str
    evidence: str


class Results:
    """The outcomes of one experiment and protocol with their cells, sorted by key, for claims and figures."""

    def __init__(self, outcomes: Iterable[tuple[Cell, Outcome]]) -> None:
        self.outcomes = sorted(outcomes, key=lambda pair: pair[0].key)

    def values(self, dataset: str, method: str, setting: str, metric: str) -> dict[int, float]:
        """The values of one measure, by the number of the split."""
        return {
            cell.split: measure.value
            for cell, outcome in self.outcomes
            for measure in outcome.measures
            if (cell.dataset, measure.method, measure.setting, measure.metric) == (dataset, method, setting, metric)
        }

    def paired(self, dataset: str, one: str, other: str, setting: str, metric: str) -> tuple[float, float, int]:
        """The mean of one - other over the splits that have both, its standard error, and the number of splits."""
        return mean_difference(*(self.values(dataset, method, setting, metric) for method in (one, other)))


def mean_difference(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[float, float, int]:
    """The mean of one - other over the splits that have both, its standard error, and the number of splits.

    The standard error is NaN for fewer than two splits. Without any split the mean is NaN as well.
    """
    differences = np.array([one[split] - other[split] for split in sorted(one.keys() & other.keys())])
    if len(differences) < 2:
        return (float(differences.mean()) if len(differences) else np.nan), np.nan, len(differences)
    return float(differences.mean()), float(standard_error(differences)), len(differences)


def standard_error(values: Any) -> Any:
    """The standard error of the mean over the first axis, which has one entry per split."""
    return values.std(axis=0, ddof=1) / np.sqrt(len(values))


def decided(difference: float, error: float, *, at_most: float = 0.0) -> str:
    """Decide whether a paired difference is below `at_most`, by two standard errors.

    Returns "holds", "does not hold" (it is above by two) or "not decided".
    """
    if difference + 2.0 * error < at_most:
        return "holds"
    return "does not hold" if difference - 2.0 * error > at_most else "not decided"


def at_least(difference: float, error: float, bar: float = 0.0) -> str:
    """Decide whether a paired difference is above `bar`, by two standard errors.

    Returns "holds", "does not hold" (it is below by two) or "not decided".
    """
    return decided(-difference, error, at_most=-bar)


def together(verdicts: list[str]) -> str:
    """One verdict from several: "holds" if all hold, "does not hold" if one does not, otherwise "not decided"."""
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and all(verdict == "holds" for verdict in verdicts) else "not decided"


# Two standard errors decide. A true difference of 2.84 standard errors is decided in four of five runs.
_DECIDES, _FOUR_OF_FIVE = 2.0, 0.84


def splits_to_decide(difference: float, error: float, n: int, bar: float = 0.0) -> float:
    """Estimate how many splits would decide a paired difference in four of five runs.

    A difference is decided if it is two standard errors from the threshold `bar`.

    Parameters
    ----------
    difference, error : float
        The mean difference over n splits and its standard error. The mean and the standard deviation of the differences
        are assumed to stay the same with more splits.
    n : int
        How many splits there were.
    bar : float, default=0.0
        The threshold.

    Returns
    -------
    float
        An integer of at least n; infinite if the difference equals the threshold or the standard error is not finite.

    Examples
    --------
    >>> from rankrange.paper.harness.cells import splits_to_decide
    >>> splits_to_decide(0.5, 0.5, 10)  # a deviation of 0.5 sqrt(10): (2.84 * 1.58 / 0.5)^2
    81.0
    """
    gap = abs(difference - bar)
    if not gap > 1e-12 * (1.0 + abs(bar)) or not math.isfinite(error):
        return math.inf
    return float(max(n, math.ceil(n * ((_DECIDES + _FOUR_OF_FIVE) * error / gap) ** 2)))


def splits_needed(differences: Mapping[str, tuple[float, float, int]], bar: float = 0.0) -> str:
    """A sentence with the number of splits that would decide the undecided differences; empty if all are decided.

    A difference is (mean, standard error, number of splits). It is decided if it is two standard errors from `bar`.
    The sentence starts with a space.
    """
    still = {
        name: found
        for name, found in differences.items()
        if math.isfinite(found[1]) and decided(*found[:2], at_most=bar) == "not decided"
    }
    if not still:
        return ""
    needed = {name: splits_to_decide(*found, bar=bar) for name, found in still.items()}
    counts = [f"{name} {_about(count)}" for name, count in needed.items()]
    return f" Number of splits that would decide the open cases in four of five runs: {'; '.join(counts)}."


def _about(count: float) -> str:
    """A count as text, rounded up to two digits; counts above 100,000 are not given."""
    if count > 1e5:
        return "above 100,000 (no difference to speak of)"
    unit = 10 ** max(0, len(str(int(count))) - 2)
    return f"{math.ceil(count / unit) * unit:,}"


def scikit_learns_C(C: float, n: int, m: float = 0, k: float = 1.0) -> float:
    """Convert the paper's C to scikit-learn's, C / (k - m) with m and k as counts.

    The paper's is relative to the mean of the kept losses, scikit-learn's to their sum.
    """
    dropped, kept_to = RankedRange(m, k).counts(n)
    return C / (kept_to - dropped)
