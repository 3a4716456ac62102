"""`rankrange.scan`: every format gives the same rows, a copy on disk changes nothing, and broken files are named."""

import functools
import gzip
import os
import pickle

import numpy as np
import pytest
from chunked_rows import D, in_chunks, weights
from chunked_rows import table as rows_of

import rankrange
from rankrange import AoRRClassifier, AoRRRegressor

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")
arrow_csv = pytest.importorskip("pyarrow.csv")
pytest.importorskip("pyarrow.orc")

N = 25_000
SETTINGS = {"m": 0.12, "k": 0.9, "C": 50.0, "random_state": 0}
scan = functools.partial(rankrange.scan, sample_rows=6_000)


def rows(dtype=np.float32):
    X, y = rows_of(dtype=dtype, n=N)
    return X, np.array(["no", "yes"])[y], weights("whole", N) + 1


def table(dtype=np.float32):
    X, y, w = rows(dtype)
    return pa.table({**{f"x{j}": X[:, j] for j in range(D)}, "y": y, "w": w})


def folder_of(path, whole, length=9_001):
    path.mkdir()
    for number, start in enumerate(range(0, N, length)):
        pq.write_table(whole.slice(start, length), path / f"part-{number}.parquet")
    (path / "_SUCCESS").write_text("")
    return path


def written(path, kind, dtype=np.float32):
    """The table in one of the formats, and what names its target and weight."""
    whole, file = table(dtype), path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(whole, file, row_group_size=7_000)
    elif kind == "folder":
        folder_of(file, whole)
    elif kind == "feather":
        feather.write_feather(whole, file, compression="uncompressed", chunksize=3_333)
    elif kind == "orc":
        pa.orc.write_table(whole, file)
    elif kind == "npy":
        for place, array in zip((file, path / "y.npy", path / "w.npy"), rows(dtype), strict=True):
            np.save(place, array)
        return file, {"target": path / "y.npy", "weight": path / "w.npy"}
    else:
        with gzip.open(file, "wb") if kind == "csv.gz" else open(file, "wb") as text:
            arrow_csv.write_csv(whole, text)
    return file, {"target": "y", "weight": "w"}


def in_memory(dtype=np.float32):
    return AoRRClassifier(**SETTINGS).fit(in_chunks(*rows(dtype), (0, N)))


@pytest.mark.parametrize("spill", [None, True], ids=["as it is", "spilled"])
@pytest.mark.parametrize("kind", ["parquet", "folder", "feather", "orc", "npy", "csv", "csv.gz"])
def test_every_format_gives_the_fit_of_the_rows_in_memory(tmp_path, kind, spill):
    dtype = np.float64 if "csv" in kind else np.float32  # CSV is written with all digits and read as float64
    path, names = written(tmp_path, kind, dtype)
    source = scan(path, **names, spill=spill)
    model = AoRRClassifier(**SETTINGS).fit(source)
    expected = in_memory(dtype)
    for name in ("coef_", "intercept_", "objective_", "lam_hat_"):
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=1e-5, err_msg=name)
    assert model.certificate_ <= 1e-6
    assert model.coef_.dtype == dtype
    np.testing.assert_array_equal(np.asarray(model.dropped_), np.asarray(expected.dropped_))
    np.testing.assert_array_equal(model.dropped_.indices(), np.flatnonzero(np.asarray(expected.dropped_)))
    assert model.classes_.tolist() == ["no", "yes"]
    assert len(source.targets()[0]) == N
    np.testing.assert_array_equal(source.targets()[0], rows()[1])
    assert model.score(source) == pytest.approx(expected.score(rows(dtype)[0], rows()[1], rows()[2]))
    if kind != "npy":
        assert model.feature_names_in_.tolist() == [f"x{j}" for j in range(D)]


def test_a_scan_survives_pickling(tmp_path):
    path, names = written(tmp_path, "parquet")
    source = scan(path, **names, columns=["x0", "x2"], spill=True)
    copy = pickle.loads(pickle.dumps(source))
    fits = [AoRRClassifier(**SETTINGS).fit(one) for one in (source, copy)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert copy.sample_rows == 6_000


def test_columns_of_one_npy_file_and_chosen_columns(tmp_path):
    X, y, _ = rows(np.float64)
    np.save(tmp_path / "all.npy", np.asfortranarray(np.column_stack([X, y == "yes"])))
    model = AoRRClassifier(**SETTINGS).fit(scan(tmp_path / "all.npy", target=D, columns=[0, 2]))
    source = in_chunks(X[:, [0, 2]], (y == "yes") * 1.0, None, (0, N))
    np.testing.assert_allclose(model.coef_, AoRRClassifier(**SETTINGS).fit(source).coef_, rtol=1e-6)


def test_a_number_with_decimals_may_follow_whole_ones(tmp_path):
    lines = ["a,b,y"] + [f"{i % 7},{i % 5},{(i % 7 > 3) ^ (i % 50 == 0):d}" for i in range(200_000)]
    (tmp_path / "a.csv").write_text("\n".join([*lines, "0.5,1,0"]))
    source = scan(tmp_path / "a.csv", target="y")
    assert source.n_rows == 200_001
    assert AoRRClassifier(0.05, 1.0, random_state=0).fit(source).score(source) > 0.9


def test_regression_with_whole_numbers_and_truth_values_as_features(tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 50, N), rng.random(N) < 0.5
    whole = pa.table({"a": a, "b": b, "t": 3.0 * a - b + 0.1 * rng.normal(size=N)})
    pq.write_table(whole, tmp_path / "a.parquet")
    model = AoRRRegressor(0.05, 1.0, C=1e6, random_state=0).fit(scan(tmp_path / "a.parquet", target="t"))
    np.testing.assert_allclose(model.coef_, [3, -1], atol=0.02)


def test_missing_numbers_are_named_by_file_and_column_and_leave_no_copy(tmp_path):
    path = folder_of(tmp_path / "parts", table())
    last = pq.read_table(path / "part-2.parquet")
    x1 = last["x1"].to_pylist()
    x1[5] = None
    pq.write_table(last.set_column(1, "x1", pa.array(x1, pa.float32())), path / "part-2.parquet")
    for spill in (None, tmp_path / "copy"):
        with pytest.raises(ValueError, match=r"1 NaN or infinite in .*part-2.parquet, .* in column 'x1' of row 18007"):
            AoRRClassifier(**SETTINGS).fit(scan(path, target="y", weight="w", spill=spill))
    assert os.listdir(tmp_path / "copy") == []


def test_files_that_differ_are_named(tmp_path):
    path = folder_of(tmp_path / "parts", table())
    odd = pq.read_table(path / "part-1.parquet")
    pq.write_table(odd.set_column(0, "x0", odd["x0"].cast(pa.float64())), path / "part-1.parquet")
    with pytest.raises(ValueError, match=r"got 'x0' as float in .*part-0.parquet and as double in .*part-1.parquet"):
        scan(path, target="y")
    pq.write_table(odd.drop_columns(["x3"]), path / "part-1.parquet")
    with pytest.raises(ValueError, match=r"'x3' as float in .* and as no such column in .*part-1.parquet"):
        scan(path, target="y")


@pytest.mark.parametrize(
    ("kind", "name", "damage"),
    [
        ("folder", "part-1.parquet", lambda data: data[:-300]),
        ("folder", "part-1.parquet", lambda data: data[:200] + bytes(len(data) // 2) + data[200 + len(data) // 2 :]),
        ("npy", "a.npy", lambda data: data[:-1_000]),
    ],
)
def test_a_damaged_file_is_named(tmp_path, kind, name, damage):
    path, names = written(tmp_path, kind)
    broken = path / name if path.is_dir() else path
    broken.write_bytes(damage(broken.read_bytes()))
    with pytest.raises(ValueError, match=rf"must be readable, got .*{name}.*damaged or cut off|finite, got .*{name}"):
        AoRRClassifier(**SETTINGS).fit(scan(path, **names, spill=None))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("none.parquet", {"target": "y"}, "needs an existing file or folder"),
        ("empty", {"target": "y"}, "must hold Parquet, Arrow or ORC files, got none"),
        ("a.xlsx", {"target": "y"}, r"got \.xlsx"),
        ("two", {"target": 1}, r"one \.npy"),  # only the first of them would be read
        ("a.parquet", {"target": "label"}, "target must be a column of the table, got 'label'; it has 'x0'"),
        ("a.parquet", {"target": "x0"}, "features must be numbers, got column 'y' of type"),
        ("a.parquet", {"target": "y", "columns": []}, "at least one column of features"),
        ("a.parquet", {"target": "y", "columns": ["z"]}, "must be columns of the table, each once .*, got 'z'; name"),
        ("a.parquet", {"target": "y", "columns": ["x0", "y"]}, "each once and none of them target or weight, got 'y'"),
        ("twice.csv", {"target": "kind"}, "must be columns of the table, each once .*, got 'a'"),
        ("a.npy", {"target": 4, "columns": [5]}, "each once and none of them target or weight, got 5"),
        ("a.npy", {"target": 9}, r"number of a column below 5 or another .npy file, got 9"),
        ("a.csv", {"target": "kind"}, "the target must not be missing"),
        ("b.csv", {"target": "kind"}, "features must be numbers, got column 'a' with the text 'x'"),
    ],
)
def test_what_cannot_be_scanned_is_said(tmp_path, name, options, message):
    written(tmp_path, "parquet")
    written(tmp_path, "npy")
    (tmp_path / "a.xlsx").write_text("")
    for folder in ("empty", "two"):
        (tmp_path / folder).mkdir()
    for letter in "ab":
        np.save(tmp_path / "two" / f"{letter}.npy", np.ones((3, 2)))
    (tmp_path / "twice.csv").write_text("a,a,kind\n1,2,p\n3,4,q\n")
    lines = [f"{i},{-i},{'pq'[i % 2] if i != 7 else ''}\n" for i in range(40)]
    (tmp_path / "a.csv").write_text("".join(["a,b,kind\n", *lines]))
    (tmp_path / "b.csv").write_text("".join(["a,b,kind\n", *(f"{i},1,p\n" for i in range(900_000)), "x,1,q\n"]))
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        scan(tmp_path / name, **options)


def test_a_table_without_rows_and_one_of_one_class_are_errors(tmp_path):
    whole = table()
    for part, message in (
        (whole.slice(0, 0), "at least one row, got none"),
        (whole.filter(pa.compute.equal(whole["y"], "no")), "needs at least two classes with positive weight"),
    ):
        pq.write_table(part, tmp_path / "a.parquet")
        with pytest.raises(ValueError, match=message):
            AoRRClassifier(**SETTINGS).fit(scan(tmp_path / "a.parquet", target="y", weight="w"))


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_a_file_that_changes_after_the_fit_is_an_error_and_a_copy_of_it_stays(tmp_path, kind):
    path, names = written(tmp_path, kind)
    source, copied = scan(path, **names), scan(path, **names, spill=tmp_path / "copy")
    models = [AoRRClassifier(**SETTINGS).fit(rows) for rows in (source, copied)]
    before = np.asarray(models[1].dropped_)
    if kind == "npy":
        np.save(path, rows()[0][::-1])
    else:
        pq.write_table(table().slice(0, 9_000), path)
    with pytest.raises(ValueError, match=rf"must not change, got another version of .*a.{kind}; scan and fit again"):
        np.asarray(models[0].dropped_)
    if kind == "parquet":  # .npy files are never copied
        np.testing.assert_array_equal(np.asarray(models[1].dropped_), before)
        (X,) = (tmp_path / "copy").rglob("X")
        X.write_bytes(X.read_bytes()[:-1_000])
        with pytest.raises(ValueError, match=r"got .*X, which is damaged or cut off"):
            np.asarray(models[1].dropped_)


def test_scans_that_share_a_spill_folder_keep_their_own_copies(tmp_path):
    rng = np.random.default_rng(0)
    paths = []
    for month in ("01", "02"):
        X = rng.normal(size=(300, 2))
        y = (X[:, 0] + rng.logistic(size=300) > 0).astype(int)
        paths.append(tmp_path / f"2024.{month}.csv")
        whole = pa.table({"a": X[:, 0], "b": X[:, 1], "y": y})
        whole.to_pandas().to_csv(paths[-1], index=False)
        pq.write_table(whole, tmp_path / f"{month}.parquet")
    for files in (paths, [tmp_path / "01.parquet", tmp_path / "02.parquet"]):
        shared, alone = (
            [AoRRClassifier(0.1, 1.0, random_state=0).fit(scan(file, target="y", spill=spill)) for file in files]
            for spill in (tmp_path / "s", None)
        )
        for one, own in zip(shared, alone, strict=True):
            np.testing.assert_array_equal(one.coef_, own.coef_)
            np.testing.assert_array_equal(np.asarray(one.dropped_), np.asarray(own.dropped_))
