"""Saved Hugging Face data sets as tables."""

import json

import numpy as np
import pyarrow as pa
import pytest

from rankrange.errors import UserError
from rankrange.tables.read import open_table


def columns(n=120):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    label = ((x > 0) ^ (rng.random(n) < 0.1)).astype(int)
    return {"x": x.tolist(), "note": [f"n{i}" for i in range(n)], "label": label.tolist()}


def saved(folder, table, features, parts=2):
    """What `Dataset.save_to_disk` leaves, written by hand so that the test needs no `datasets`."""
    folder.mkdir(parents=True, exist_ok=True)
    n = -(-table.num_rows // parts)
    names = [f"data-{i:05d}-of-{parts:05d}.arrow" for i in range(parts)]
    for i, name in enumerate(names):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table.slice(i * n, n))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    return folder


FEATURES = {
    "x": {"dtype": "float64", "_type": "Value"},
    "label": {"names": ["no", "yes"], "_type": "ClassLabel"},
    "image": {"_type": "Image"},
}


def test_a_saved_data_set_is_one_table_with_the_names_of_its_classes(tmp_path):
    given = columns()
    table = open_table(saved(tmp_path / "set", pa.table(given), FEATURES)).read()
    assert table.to_pydict() == {**given, "label": [["no", "yes"][code] for code in given["label"]]}


def test_the_real_library_saves_what_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    given = columns()
    features = datasets.Features(
        x=datasets.Value("float64"), note=datasets.Value("string"), label=datasets.ClassLabel(names=["no", "yes"])
    )
    datasets.disable_progress_bars()
    whole = datasets.Dataset.from_dict(given, features=features)
    whole.save_to_disk(tmp_path / "set", num_shards=3)
    table = open_table(tmp_path / "set").read()
    assert table.column("x").to_pylist() == given["x"]
    assert set(table.column("label").to_pylist()) == {"no", "yes"}
    datasets.DatasetDict(train=whole, test=whole).save_to_disk(tmp_path / "splits")
    with pytest.raises(UserError, match="train, test"):
        open_table(tmp_path / "splits")
    assert open_table(tmp_path / "splits" / "train").read().num_rows == 120


def test_pictures_are_paths_and_unlabelled_rows_are_missing(tmp_path):
    image = [{"bytes": b"123", "path": "a.png"}, {"bytes": None, "path": "b.png"}]
    table = open_table(saved(tmp_path / "set", pa.table({"image": image, "label": [1, -1]}), FEATURES)).read()
    assert table.to_pydict() == {"image": ["a.png", "b.png"], "label": ["yes", None]}


def test_parquet_files_of_a_folder_are_one_table(tmp_path):
    import pyarrow.parquet

    for name, x in (("b", [3]), ("a", [1, 2])):
        pyarrow.parquet.write_table(pa.table({"x": x, "y": x}), tmp_path / f"{name}.parquet")
    assert open_table(tmp_path).read().column("x").to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ["escape", "no files", "damaged", "absent", "no json", "code", "empty"])
def test_a_hostile_folder_is_a_clear_error(tmp_path, kind):
    folder = saved(tmp_path / "set", pa.table(columns()), FEATURES)
    state = folder / "state.json"
    if kind == "escape":
        state.write_text(json.dumps({"_data_files": [{"filename": "../../secret.arrow"}]}))
    elif kind == "no files":
        state.write_text("[]")
    elif kind == "damaged":
        (folder / "data-00000-of-00002.arrow").write_bytes(b"x" * 100)
    elif kind == "absent":
        (folder / "data-00001-of-00002.arrow").unlink()
    elif kind == "no json":
        state.write_text("{")
    elif kind == "code":
        saved(folder, pa.table({"x": [1.0, 2.0], "label": [0, 7]}), FEATURES)
    elif kind == "empty":
        folder = tmp_path / "empty"
        folder.mkdir()
    with pytest.raises(UserError):
        open_table(folder)
