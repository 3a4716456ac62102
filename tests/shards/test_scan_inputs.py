"""What scans refuse, and settings that need rows in memory."""

from __future__ import annotations

import numpy as np
import pytest

from rankrange import AoRRClassifier, AoRRRegressor, scan
from rankrange.shards import ArrayRows


def test_a_csv_scan_refuses_an_empty_label_and_names_a_mistyped_target(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "table.csv"
    path.write_text("a,b,kind\n" + "".join(f"{i},{-i},{'pq'[i % 2] if i != 7 else ''}\n" for i in range(40)))
    with pytest.raises(ValueError, match="the target must not be missing"):
        AoRRClassifier(m=0, k=1.0).fit(scan(path, target="kind"))
    with pytest.raises(ValueError, match="target must be a column of the table, got 'Kind'"):
        scan(path, target="Kind")


def test_several_npy_files_are_refused(tmp_path):
    """Only the first of them would be read."""
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"one \.npy"):
        scan(tmp_path, target=1)


@pytest.mark.parametrize(
    "settings",
    [
        {"l1_ratio": 1.0},
        {"aggregate": "worst-group"},
        {"step": "reweight"},
        {"step": "mm"},
        {"C": np.inf},
    ],
    ids=lambda settings: next(iter(settings)),
)
@pytest.mark.parametrize("where", ["shards", "dask"])
def test_settings_that_need_rows_in_memory_are_refused_elsewhere(settings, where):
    X = np.random.default_rng(0).normal(size=(60, 2))
    if where == "dask":
        arrays = pytest.importorskip("dask.array")
        rows = arrays.from_array(X), arrays.from_array(X[:, 0])
    else:
        rows = (ArrayRows([X], [X[:, 0]]),)
    with pytest.raises(ValueError, match=next(iter(settings))):
        AoRRRegressor(0.1, 1.0, **settings).fit(*rows)
