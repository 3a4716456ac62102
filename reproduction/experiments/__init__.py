"""The experiments by name, in the order of the paper. Each is a module with these names:

TITLE, NEEDS                  what it shows, and the data sets that it loads
TABLES                        {metric: (title, whether lower or higher values are better)}
cells(protocol, quick)        all of its work, as a list of `Cell`
run(cell)                     one piece of it: a list of `Row`, and a dict of further JSON values
figures(results)              matplotlib figures by file name, from `compare.Results`; no figures if cells are missing
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

NAMES = ("illustrations", "toy", "binary", "mnist-symmetric", "multilabel", "mnist-asymmetric", "tkml-aorr")
PROTOCOLS = {
    "held-out": "Scaling and all choices use training and validation rows only; test rows are used once.",
    "paper": "The paper's algorithms with the settings, steps and rates of its Tables 11 to 17, errata corrected. "
    "Where a choice is made on test rows, as in the paper's code, the section says so.",
}


def module(name: str) -> ModuleType:
    """The module of an experiment."""
    return importlib.import_module(f"reproduction.experiments.{name.replace('-', '_')}")


@dataclass(frozen=True)
class Cell:
    """One unit of work: a split of a data set. `part` distinguishes several units, for example losses."""

    experiment: str
    protocol: str
    dataset: str
    part: str
    split: int
    quick: bool = False

    @property
    def file(self) -> str:
        """The file of its results, below the folder of the run."""
        return f"{self.experiment}/{self.protocol}/{self.dataset}.{self.part.replace(' ', '_')}.{self.split:02d}.json"

    @property
    def seed(self) -> int:
        """The same for all methods and parts of a split, so that differences are paired."""
        return 1000 + self.split


class Row(NamedTuple):
    """One number. `setting` is the row or column of the paper's table, such as "logistic" or "k=3"."""

    method: str
    setting: str
    metric: str
    value: float


def every(name: str, protocol: str, quick: bool, sets: Iterable[str], parts: Iterable[str], splits: int) -> list[Cell]:
    """A cell for each split, data set and part; the first splits of all come first."""
    sets, parts = list(sets), list(parts)
    return [
        Cell(name, protocol, dataset, part, split, quick)
        for split in range(splits)
        for dataset in sets
        for part in parts
    ]
