"""Do the descending solvers of TKML-AoRR descend, and how do they compare with the paper's Algorithm 3?

    RANKRANGE_DATA=... python benchmarks/tkml_descent.py [--sets emotions scene yeast]

For each data set (a random half of the rows, scaled), k' = 1..5 and label noise 0 and 0.3, with m a tenth of the rows,
or three tenths with noise: the largest rise of the objective in any step, the value reached, and when the value of
Algorithm 3 after 1,000 steps at rate 0.3 was reached. All start from the same logistic regression per label, whose
time is left out. Seconds are those of the processor. One row per cell in benchmarks/results/tkml_descent.csv.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from rankrange import noise
from rankrange.core.losses import TKML
from rankrange.core.objective import Design
from rankrange.solvers.label_ranking import LabelObjective, by_separation, descend_and_polish
from rankrange.solvers.minmax import minmax
from rankrange.solvers.per_label import logistic_per_label
from record import append

sys.path.insert(0, str(Path(__file__).parent.parent))
from reproduction import data

SETS = ("emotions", "scene", "yeast")
C = 10.0  # relative to the mean of the kept losses


class Clock:
    """The objective of each W it is shown, and when."""

    def __init__(self, objective: LabelObjective) -> None:
        self.objective = objective
        self.spent = 0.0  # on looking, which is not the solver's
        self.begun = time.process_time()
        self.seen: list[tuple[float, float]] = []

    def __call__(self, W: Any) -> None:
        now = time.process_time()
        self.seen.append((now - self.begun - self.spent, self.objective.value(W)))
        self.spent += time.process_time() - now

    def reached(self, value: float) -> float:
        return next((at for at, each in self.seen if each <= value), np.inf)

    def rise(self) -> float:
        """The largest rise of the path that was watched: quasi-Newton steps, then polishing ones."""
        values = [value for _, value in self.seen]
        return max(np.diff(values), default=-np.inf)


def cell(name: str, k: int, rate: float) -> dict[str, Any]:
    bunch = data.load(name)
    rows = np.random.default_rng(0).permutation(len(bunch.data))[: len(bunch.data) // 2]
    X = StandardScaler().fit_transform(bunch.data[rows])
    true = noise.multilabel(bunch.target[rows], rate, random_state=0) == 1
    m = round((0.3 if rate else 0.1) * len(X))
    objective = LabelObjective(Design(X, True), true, TKML(k), C, true.shape[1], m=m, k=len(X))
    start = logistic_per_label(objective.design, objective.blocks, C)[0]
    begun = time.process_time()
    paper = minmax(objective, start, rate=0.3, max_iter=1000)
    paper_s = time.process_time() - begun
    clock = Clock(objective)
    auto = descend_and_polish(objective, start, watch=clock)
    auto_s = time.process_time() - clock.begun - clock.spent
    exact = Clock(objective)
    dca = by_separation(objective, start, tol=1e-3, max_iter=10, watch=exact)
    return {
        "set": name,
        "k": k,
        "noise": rate,
        "m": m,
        "F_start": f"{objective.value(start):.8g}",
        "F_algorithm_3": f"{paper.value:.8g}",
        "algorithm_3_s": f"{paper_s:.3g}",
        "F_auto": f"{auto.value:.8g}",
        "auto_s": f"{auto_s:.3g}",
        "auto_reached_algorithm_3_s": f"{clock.reached(paper.value):.3g}",
        "auto_largest_rise": f"{clock.rise():.2g}",
        "auto_certificate": f"{auto.certificate:.2g}",
        "F_dca": f"{dca.value:.8g}",
        "dca_s": f"{time.process_time() - exact.begun:.3g}",
        "dca_rounds": dca.n_iter,
        "dca_largest_rise": f"{exact.rise():.2g}",
        "dca_certificate": f"{dca.certificate:.2g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    for name in parser.parse_args().sets:
        for rate in (0.0, 0.3):
            for k in range(1, 6):
                row = cell(name, k, rate)
                append("tkml_descent", [row])
                print(" ".join(f"{key}={value}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
