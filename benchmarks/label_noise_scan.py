"""Is p_wrong of a row the same in memory and out of core? `find_label_issues` on arrays and on a Parquet scan of them.

    python benchmarks/label_noise_scan.py [--rows 12000] [--seeds 1] [--first 0] [--tables xor circle] [--no-record]
    python benchmarks/label_noise_scan.py --million

A cell is a table of known true classes (tests/shaped_tables.py: ten shapes, linear and not, with and without overlap),
a share of wrong labels (0 or .2) and a seed. Reported: the mean difference of p_wrong between memory and scan over all
rows, and beside it the difference between two seeds in memory, which is what the draw of the folds alone does; the
estimated shares, rows flagged (p_wrong >= .5) and average precision of both; core seconds. `--million` is one scan of a
million rows of ten columns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score

import rankrange
import record
from rankrange import find_label_issues

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from shaped_tables import SHAPES, shaped

NOISE = (0.0, 0.2)
MILLION = 1_000_000


def scanned(X: Any, y: Any, folder: str) -> Any:
    """The rows as a scan of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder) / "rows.parquet"
    pq.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y}), path)
    return rankrange.scan(path, target="y")


def timed(*arguments: Any, seed: int) -> tuple[Any, Any, float]:
    start = time.process_time()
    issues = find_label_issues(*arguments, random_state=seed)
    seconds = time.process_time() - start
    return issues, np.asarray(issues.p_wrong), seconds


def cell(name: str, rows: int, noise: float, seed: int) -> dict[str, Any]:
    X, y, wrong = shaped(name, rows, noise, seed)
    with tempfile.TemporaryDirectory() as folder:
        outside, p_scan, scan_seconds = timed(scanned(X, y, folder), seed=seed)
    inside, p_memory, seconds = timed(X, y, seed=seed)
    _, p_other, _ = timed(X, y, seed=seed + 1000)
    row = {"table": name, "rows": rows, "noise": noise, "seed": seed}
    row |= {"difference": np.abs(p_memory - p_scan).mean(), "between_seeds": np.abs(p_memory - p_other).mean()}
    row |= {"wrong": wrong.mean(), "share": inside.noise_estimate, "share_scan": outside.noise_estimate}
    row |= {"flagged": (p_memory >= 0.5).sum(), "flagged_scan": (p_scan >= 0.5).sum()}
    for suffix, p in (("", p_memory), ("_scan", p_scan)):
        row[f"ap{suffix}"] = average_precision_score(wrong, p) if wrong.any() else ""
    row |= {"seconds": seconds, "seconds_scan": scan_seconds}
    return {key: round(float(v), 4) if isinstance(v, float | np.floating) else v for key, v in row.items()}


def million() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(MILLION, 10)).astype(np.float32)
    wrong = rng.random(MILLION) < 0.1
    y = ((X[:, 0] * X[:, 1] + 0.3 * X[:, 2] > 0) ^ wrong).astype(int)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        issues = find_label_issues(scanned(X, y, folder), random_state=0)
    share, flagged = issues.noise_estimate, issues["row"][issues["p_wrong"] >= 0.5]
    row = {"rows": MILLION, "seconds_scan": time.process_time() - start, "wrong": wrong.mean(), "share_scan": share}
    return row | {"flagged_scan": len(flagged), "precision": wrong[flagged].mean()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=12_000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--tables", nargs="+", default=list(SHAPES))
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--no-record", action="store_true")
    asked = parser.parse_args()
    if asked.million:
        found = [million()]
        print(found[0])
        if not asked.no_record:
            record.append("label_noise_scan_million", found)
        return
    found = []
    for seed in range(asked.first, asked.first + asked.seeds):
        for name in asked.tables:
            cells = [cell(name, asked.rows, noise, seed) for noise in NOISE]
            print(*cells, sep="\n", flush=True)
            found += cells
            if not asked.no_record:
                record.append("label_noise_scan", cells)
    for noise in NOISE:
        part = [row for row in found if row["noise"] == noise]
        worst = max(part, key=lambda row: row["difference"])
        apart = max(abs(row["share"] - row["share_scan"]) for row in part)
        median = np.median([row["difference"] for row in part])
        print(f"noise {noise}: difference of p_wrong, median {median:.3f}, worst {worst['difference']:.3f} ", end="")
        print(f"({worst['table']}); shares differ by up to {apart:.3f}")


if __name__ == "__main__":
    main()
