"""p_wrong in memory and out of core."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score

import rankrange
from rankrange import find_label_issues
from tests.shaped_tables import SHAPES, shaped

from .harness import Row, benchmark, rounded, timed


def scanned(X: Any, y: Any, folder: str, sample_rows: int = 1 << 17) -> Any:
    """The rows as a scan of a Parquet file, of which label issues see a sample."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder) / "rows.parquet"
    pq.write_table(pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y}), path)
    return rankrange.scan(path, target="y", sample_rows=sample_rows)


def _by_noise(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.assign(shares=(rows["share"] - rows["share_scan"]).abs())
    return rows.groupby("noise")[["difference", "between_seeds", "shares", "seconds", "seconds_scan"]].agg(
        ["median", "max"]
    )


@benchmark(_by_noise, rows=600, tables=("xor",))
def label_noise_scan(seed: int = 0, seeds: int = 1, rows: int = 12_000, tables: tuple = tuple(SHAPES)) -> Iterator[Row]:
    """Mean difference of p_wrong between memory and a Parquet scan, beside that between two seeds in memory.

    Ten shapes of known true classes, linear and not, with and without overlap; 0 or 20% wrong labels. The sample of the
    scan has half of the rows; with all of them the result would be that in memory.
    """
    for draw in range(seed, seed + seeds):
        for name in tables:
            for noise in (0.0, 0.2):
                X, y, wrong = shaped(name, rows, noise, draw)
                with tempfile.TemporaryDirectory() as folder:
                    scan, seconds_scan = timed(find_label_issues, scanned(X, y, folder, rows // 2), random_state=draw)
                    p_scan = np.asarray(scan.p_wrong)
                memory, seconds = timed(find_label_issues, X, y, random_state=draw)
                other = find_label_issues(X, y, random_state=draw + 1000).p_wrong
                row: Row = {"table": name, "rows": rows, "noise": noise, "seed": draw, "wrong": wrong.mean()}
                row |= {"difference": np.abs(memory.p_wrong - p_scan).mean()}
                row |= {"between_seeds": np.abs(memory.p_wrong - other).mean()}
                row |= {"share": memory.noise_estimate, "share_scan": scan.noise_estimate}
                row |= {"flagged": int((memory.p_wrong >= 0.5).sum()), "flagged_scan": int((p_scan >= 0.5).sum())}
                for suffix, p in (("", memory.p_wrong), ("_scan", p_scan)):
                    row[f"ap{suffix}"] = float(average_precision_score(wrong, p)) if wrong.any() else ""
                yield rounded(row | {"seconds": seconds, "seconds_scan": seconds_scan})


@benchmark(lambda rows: rows, rows=5000)
def label_noise_million(seed: int = 0, rows: int = 1_000_000) -> Iterator[Row]:
    """find_label_issues on one scan of a million rows of ten columns, 10% of the labels wrong."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 10)).astype(np.float32)
    wrong = rng.random(rows) < 0.1
    y = ((X[:, 0] * X[:, 1] + 0.3 * X[:, 2] > 0) ^ wrong).astype(int)
    with tempfile.TemporaryDirectory() as folder:
        start, wall = time.process_time(), time.perf_counter()
        issues = find_label_issues(scanned(X, y, folder), random_state=0)
    flagged = issues["row"][issues["p_wrong"] >= 0.5]
    row: Row = {"rows": rows, "core_seconds": time.process_time() - start, "seconds": time.perf_counter() - wall}
    row |= {"wrong": wrong.mean(), "share": issues.noise_estimate, "flagged": len(flagged)}
    yield rounded(row | {"precision": float(wrong[flagged].mean()) if len(flagged) else ""})
