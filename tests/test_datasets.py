"""The data sets: made ones against the originals, read ones against every way a file or OpenML can be wrong."""

import gzip
import hashlib
import io
import json
import os
import shutil
from pathlib import Path
from urllib.error import HTTPError, URLError

import numpy as np
import pytest
import sklearn.datasets
from scipy import integrate, stats
from sklearn.utils import Bunch

from rankrange import datasets
from rankrange.datasets import DataNotFoundError, load
from rankrange.datasets.files import TABLES

TOYS = ["toy_multimodal", "toy_imbalanced"]


@pytest.fixture
def paper_data():
    home = os.environ.get("RANKRANGE_DATA")
    if not home:
        pytest.skip("RANKRANGE_DATA does not name a folder with the paper's data")
    return Path(home)


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv("RANKRANGE_DATA", raising=False)


def rows_of(path):
    with gzip.open(path, "rt") as lines:
        return np.loadtxt(lines, delimiter=",", skiprows=1)


def sorted_rows(table):
    return table[np.lexsort(table.T)]


def test_names():
    expected = "monk australian phoneme titanic splice emotions scene yeast mnist toy_multimodal toy_imbalanced"
    assert sorted(datasets.names()) == sorted(expected.split())


# ---- made here -------------------------------------------------------------------------------------------------------


@pytest.mark.data
def test_monk_is_the_original_row_by_row(paper_data):
    monk, original = load("monk"), rows_of(paper_data / "monk.csv.gz")
    np.testing.assert_array_equal(np.column_stack([monk.data, monk.target]), original)


@pytest.mark.data
def test_titanic_is_the_original_up_to_the_order_of_rows(paper_data):
    titanic, original = load("titanic"), rows_of(paper_data / "titanic.csv.gz")
    np.testing.assert_array_equal(sorted_rows(np.column_stack([titanic.data, titanic.target])), sorted_rows(original))


def test_monk_counts():
    monk = load("monk")
    assert monk.data.shape == (432, 6)
    assert monk.target.sum() == 228
    assert len(np.unique(monk.data, axis=0)) == 432


def test_titanic_has_the_published_margins():
    titanic = load("titanic")
    table = np.column_stack([titanic.data, titanic.target])
    assert len(table) == 2201
    assert len(np.unique(table, axis=0)) == 24
    assert np.unique(titanic.data[:, 0], return_counts=True)[1].tolist() == [325, 285, 706, 885]  # first to crew
    assert (titanic.data[:, 1] > 0).sum() == 109  # children
    assert (titanic.data[:, 2] < 0).sum() == 470  # women
    survived = [titanic.target[titanic.data[:, 0] == c].sum() for c in np.unique(titanic.data[:, 0])]
    assert survived == [203, 118, 178, 212]


def test_made_sets_need_no_folder_and_do_not_share_memory(no_folder):
    for name in ["monk", "titanic", *TOYS]:
        first = load(name)
        first.data[:] = 0
        assert load(name).data.any()
        assert first.verified == "made here"


@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("n_outliers", [0, 1, 2, 3, 4, 5, 10, 20])
def test_toy_sets_have_the_outliers_they_say(name, n_outliers):
    toy = load(name, n_outliers=n_outliers, random_state=n_outliers)
    assert toy.data.shape == (200, 2)
    assert toy.target.sum() == (100 if name == "toy_multimodal" else 196)
    assert toy.outliers.sum() == n_outliers
    predicted = toy.data @ toy.bayes_coef + toy.bayes_intercept > 0
    assert (toy.target[toy.outliers] == 1).all()
    assert not predicted[toy.outliers].any()  # each outlier lies on the wrong side of the best rule
    assert np.mean(predicted[~toy.outliers] != toy.target[~toy.outliers]) < 0.01


def density(name, x, y, label):
    """The mixture as docs/how-to/datasets.md states it."""

    def normal(c):
        return stats.norm.pdf(x, c, 0.22) * stats.norm.pdf(y, c, 0.22)

    if name == "toy_multimodal":
        return 0.5 * (0.9 * normal(0) + 0.1 * normal(1)) if label else 0.5 * normal(2)
    return 0.98 * normal(0) if label else 0.02 * normal(1)


@pytest.mark.parametrize("name", TOYS)
def test_toy_bayes_rule_and_error_are_those_of_the_mixture(name):
    toy = load(name)
    grid = np.linspace(-2, 4, 2001)
    x, y = np.meshgrid(grid, grid)
    one, zero = density(name, x, y, 1), density(name, x, y, 0)
    predicted = x * toy.bayes_coef[0] + y * toy.bayes_coef[1] + toy.bayes_intercept > 0
    clear = np.abs(x * toy.bayes_coef[0] + y * toy.bayes_coef[1] + toy.bayes_intercept) > 1e-9
    seen = np.maximum(one, zero) > 1e-250  # below, densities underflow
    np.testing.assert_array_equal(predicted[clear & seen], (one > zero)[clear & seen])
    error = integrate.simpson(integrate.simpson(np.minimum(one, zero), x=grid), x=grid)
    assert toy.bayes_error == pytest.approx(error, rel=1e-4)


def test_toy_sets_are_seeded():
    one, same, other = (load("toy_multimodal", random_state=seed).data for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).all()


@pytest.mark.data
@pytest.mark.parametrize(("name", "file"), [(TOYS[0], "data4_1"), (TOYS[1], "data6_1")])
def test_the_papers_own_toy_sets(paper_data, name, file):
    toy = load(name, source="paper")
    np.testing.assert_array_equal(
        np.column_stack([toy.data, toy.target]), rows_of(paper_data / f"synthetic_{file}.csv.gz")
    )
    predicted = toy.data @ toy.bayes_coef + toy.bayes_intercept > 0
    np.testing.assert_array_equal(predicted != toy.target, toy.outliers)  # wrong on the outlier and nowhere else
    assert toy.verified == "checksum"


# ---- read from a folder ----------------------------------------------------------------------------------------------


@pytest.mark.data
@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_as_they_are(paper_data, name):
    table = load(name, download=False)
    labels = table.target.reshape(len(table.target), -1)
    np.testing.assert_array_equal(np.column_stack([table.data, labels]), rows_of(paper_data / f"{name}.csv.gz"))
    assert table.verified == "checksum"
    assert len(table.feature_names) == table.data.shape[1]
    assert len(table.target_names) == (2 if table.target.ndim == 1 else table.target.shape[1])
    assert not any(label.startswith("label:") for label in table.target_names)
    assert table.data.dtype == np.float64
    assert table.target.dtype == np.int64
    assert name in table.DESCR


@pytest.mark.data
def test_mnist_from_its_files(paper_data):
    mnist = load("mnist", download=False)
    assert mnist.data.shape == (60000, 784)
    assert mnist.test_data.shape == (10000, 784)
    assert mnist.data.dtype == mnist.test_data.dtype == np.uint8
    assert mnist.target[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test_target[:5].tolist() == [7, 2, 1, 0, 4]
    assert mnist.data.flags.writeable
    # The published mean and deviation of the training pixels on a scale of 0 to 1.
    assert mnist.data.mean() / 255 == pytest.approx(0.1307, abs=1e-4)
    assert mnist.data.std() / 255 == pytest.approx(0.3081, abs=1e-4)


AUSTRALIAN_HEADER = ",".join([f"A{i}" for i in range(1, 15)] + ["target"])


def write_australian(folder, header=AUSTRALIAN_HEADER, n_rows=690, n_ones=307, value="0", keep=None):
    lines = [header] + [",".join([value] * 14 + [str(int(i < n_ones))]) for i in range(n_rows)]
    content = gzip.compress(("\n".join(lines) + "\n").encode())
    (folder / "australian.csv.gz").write_bytes(content[:keep])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"keep": -20}, "complete gzip file"),
        ({"keep": 5}, "complete gzip file"),
        ({"keep": 0}, "14 feature columns"),
        ({"n_rows": 500}, "must have 690 rows.* got 500"),
        ({"n_rows": 0}, "no row below the header"),
        ({"n_ones": 300}, r"\(307,\) rows of each label, got 690, 14 and \(300,\)"),
        ({"header": AUSTRALIAN_HEADER.replace("target", "label")}, "1 named 'target', got: 15 columns"),
        ({"header": AUSTRALIAN_HEADER.replace("A3,", "")}, "14 feature columns.* got: 14 columns"),
        ({"header": "target," + AUSTRALIAN_HEADER.removesuffix(",target")}, "got: 15 columns, target, A1"),
        ({"value": "?"}, "690 rows of 15 numbers"),
        ({"value": "nan"}, "finite values, got 9660"),
        ({"value": "0,0"}, "must have 690 rows|690 rows of 15 numbers"),
        ({}, "sha256 aa27d75062169688.* got: [0-9a-f]{64}"),
    ],
)
def test_a_damaged_table_is_an_error_that_says_what_is_wrong(tmp_path, damage, message):
    write_australian(tmp_path, **damage)
    with pytest.raises(ValueError, match=message) as caught:
        load("australian", data_home=tmp_path)
    assert "australian.csv.gz" in str(caught.value)
    assert "good copy" in str(caught.value)


@pytest.mark.data
def test_one_changed_digit_fails_the_checksum(paper_data, tmp_path):
    content = gzip.decompress((paper_data / "yeast.csv.gz").read_bytes())
    changed = content.replace(b"0.004168", b"0.004169", 1)
    assert changed != content
    (tmp_path / "yeast.csv.gz").write_bytes(gzip.compress(changed))
    with pytest.raises(ValueError, match="sha256"):
        load("yeast", data_home=tmp_path)
    (tmp_path / "yeast.csv.gz").write_bytes(gzip.compress(content, 1))  # packed anew: the same data
    assert load("yeast", data_home=tmp_path).verified == "checksum"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x08\x03" + bytes(12), "shape .60000, 28, 28."),
        (b"\0\0\x08\x03\0\0\xea\x60\0\0\0\x1c\0\0\0\x1c" + bytes(1000), "47040000 unsigned bytes.* got: 1000 bytes"),
        (b"", "got: 0 bytes"),
    ],
)
def test_a_damaged_idx_file_is_an_error(tmp_path, content, message):
    (tmp_path / "mnist").mkdir()
    for part in ("train", "t10k"):
        for kind in ("images-idx3", "labels-idx1"):
            (tmp_path / "mnist" / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=message):
        load("mnist", data_home=tmp_path)


@pytest.mark.data
def test_data_home_goes_before_the_environment(paper_data, tmp_path, monkeypatch):
    shutil.copy(paper_data / "australian.csv.gz", tmp_path)
    write_australian(tmp_path.parent, n_rows=3)
    monkeypatch.setenv("RANKRANGE_DATA", str(tmp_path.parent))
    assert load("australian", data_home=tmp_path).source == f"file {tmp_path / 'australian.csv.gz'}"
    with pytest.raises(ValueError, match="690 rows"):
        load("australian")


# ---- OpenML ----------------------------------------------------------------------------------------------------------


def serve(monkeypatch, data, target):
    """OpenML with this one data set; returns the calls it gets."""
    calls = []

    def fetch_openml(**arguments):
        calls.append(arguments)
        return Bunch(data=data, target=target)

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    return calls


@pytest.mark.data
def test_openml_australian_with_its_categories(paper_data, no_folder, monkeypatch, tmp_path):
    pd = pytest.importorskip("pandas")
    original = load("australian", data_home=paper_data)
    X = pd.DataFrame(original.data, columns=original.feature_names)
    for column in ("A1", "A4", "A8"):
        X[column] = X[column].astype(int).astype(str).astype("category")
    calls = serve(monkeypatch, X, pd.Series(original.target.astype(str), dtype="category"))
    fetched = load("australian", data_home=tmp_path)
    np.testing.assert_array_equal(fetched.data, original.data)
    np.testing.assert_array_equal(fetched.target, original.target)
    assert fetched.verified == "checksum"
    assert fetched.source == "OpenML 40981 (australian)"
    assert calls[0]["data_id"] == 40981
    assert calls[0]["data_home"] == str(tmp_path)


@pytest.mark.data
def test_openml_splice_is_turned_into_the_papers(paper_data, no_folder, monkeypatch):
    pd = pytest.importorskip("pandas")
    original = load("splice", data_home=paper_data)
    rng = np.random.default_rng(0)
    letters = np.array(["", "A", "G", "C", "T"])[original.data.astype(int)]
    ambiguous = letters[:15].copy()
    ambiguous[np.arange(15), rng.integers(60, size=15)] = rng.choice(list("NDSR"), size=15)
    kinds = np.where(original.target == 1, "N", rng.choice(["EI", "IE"], size=3175))
    order = rng.permutation(3190)
    X = pd.DataFrame(np.concatenate([letters, ambiguous])[order]).astype("category")
    serve(monkeypatch, X, pd.Series(np.concatenate([kinds, ["N"] * 15])[order], dtype="category"))
    fetched = load("splice")
    assert fetched.verified == "checksum"
    np.testing.assert_array_equal(
        sorted_rows(np.column_stack([fetched.data, fetched.target])),
        sorted_rows(np.column_stack([original.data, original.target])),
    )


@pytest.mark.data
def test_openml_phoneme_is_turned_back_from_z_scores(paper_data, no_folder, monkeypatch):
    pd = pytest.importorskip("pandas")
    original = load("phoneme", data_home=paper_data)
    z_scores = (original.data - original.data.mean(axis=0)) / original.data.std(axis=0)
    target = pd.Series(original.target + 1).astype("category")
    serve(monkeypatch, pd.DataFrame(z_scores.round(6)), target)
    fetched = load("phoneme")
    np.testing.assert_allclose(fetched.data, original.data, atol=1e-9)
    np.testing.assert_array_equal(fetched.target, original.target)
    serve(monkeypatch, pd.DataFrame(original.data), target)
    with pytest.raises(ValueError, match="mean 0 and deviation 1"):
        load("phoneme")


@pytest.mark.data
def test_openml_multilabel(paper_data, no_folder, monkeypatch):
    pd = pytest.importorskip("pandas")
    original = load("yeast", data_home=paper_data)
    Y = pd.DataFrame(np.where(original.target == 1, "TRUE", "FALSE"), columns=original.target_names).astype("category")
    X = pd.DataFrame(original.data, columns=original.feature_names)
    serve(monkeypatch, X, Y)
    fetched = load("yeast")
    np.testing.assert_array_equal(fetched.target, original.target)
    np.testing.assert_array_equal(fetched.data, original.data)
    assert fetched.target_names == original.target_names
    assert fetched.verified == "checksum"
    serve(monkeypatch, X.assign(Att1=0.0), Y)
    assert load("yeast").verified == "shape and class counts"
    serve(monkeypatch, X, Y.iloc[:, :13])
    with pytest.raises(ValueError, match=r"OpenML 40597 \(yeast\) must have 2417 rows"):
        load("yeast")


@pytest.mark.data
def test_openml_mnist_is_split_as_the_original(paper_data, no_folder, monkeypatch):
    pd = pytest.importorskip("pandas")
    original = load("mnist", data_home=paper_data)
    X = pd.DataFrame(np.concatenate([original.data, original.test_data]))
    y = pd.Series(np.concatenate([original.target, original.test_target]).astype(str), dtype="category")
    serve(monkeypatch, X, y)
    fetched = load("mnist")
    for field in ("data", "target", "test_data", "test_target"):
        np.testing.assert_array_equal(fetched[field], original[field])
    assert fetched.verified == "checksum"
    serve(monkeypatch, X[:1000], y[:1000])
    with pytest.raises(ValueError, match="70000 rows"):
        load("mnist")


def openml_server(name, data_id, attributes, rows, target):
    """What OpenML's interface answers: three JSON documents and the ARFF file, by the end of the address."""
    arff = "\n".join([f"@relation {name}", *(f"@attribute {a} {kind}" for a, kind in attributes), "@data", *rows])
    features = [
        {
            "index": str(i),
            "name": a,
            "data_type": "nominal" if kind.startswith("{") else kind.lower(),
            "is_target": str(a == target).lower(),
            "is_ignore": str(kind == "STRING").lower(),
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }
        for i, (a, kind) in enumerate(attributes)
    ]
    description = {
        "id": str(data_id),
        "name": name,
        "version": "1",
        "description": "made up",
        "format": "ARFF",
        "status": "active",
        "file_id": "1",
        "default_target_attribute": target,
        "url": f"https://api.openml.org/data/v1/download/1/{name}.arff",
        "md5_checksum": hashlib.md5(arff.encode()).hexdigest(),
    }
    count = {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": str(len(rows))}]}}
    documents = {
        f"data/features/{data_id}": {"data_features": {"feature": features}},
        f"data/qualities/{data_id}": count,
        f"json/data/{data_id}": {"data_set_description": description},
    }

    def urlopen(request, *args, **kwargs):
        address = request.full_url if hasattr(request, "full_url") else request
        for end, document in documents.items():
            if address.endswith(end):
                return Response(json.dumps(document).encode())
        return Response(arff.encode())

    return urlopen


class Response(io.BytesIO):
    def info(self):
        return {}


def test_scikit_learns_own_reader_gives_what_is_converted(no_folder, monkeypatch, tmp_path):
    """The real fetch_openml on a made-up answer: nominal letters, a name to ignore, then again from its cache."""
    pytest.importorskip("pandas")
    kinds = ["N"] * 1648 + ["EI"] * 1000 + ["IE"] * 527
    rows = [f"{kind},row{i}," + ",".join(["ACGT"[i % 4]] * 60) for i, kind in enumerate(kinds)]
    rows.append("N,doubtful," + ",".join(["A"] * 59 + ["D"]))
    letters = [(f"attribute_{i}", "{A,G,T,C,N,D,S,R}") for i in range(1, 61)]
    attributes = [("Class", "{N,EI,IE}"), ("Instance_name", "STRING"), *letters]
    answer = openml_server("splice", 46, attributes, rows, "Class")
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", answer)
    splice = load("splice", data_home=tmp_path)
    assert splice.data.shape == (3175, 60)
    assert splice.data[:4, 0].tolist() == [1, 3, 2, 4]  # A, C, G, T
    assert splice.target.sum() == 1648
    assert splice.verified == "shape and class counts"
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", offline)
    np.testing.assert_array_equal(load("splice", data_home=tmp_path).data, splice.data)


def offline(*args, **kwargs):
    raise URLError("Temporary failure in name resolution")


@pytest.mark.parametrize("name", [*TABLES, "mnist"])
def test_offline_and_missing_is_one_sentence_that_says_what_to_do(no_folder, monkeypatch, tmp_path, name):
    pytest.importorskip("pandas")
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", offline)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(DataNotFoundError, match=f"data set '{name}' needs .*RANKRANGE_DATA.*; put it there") as caught:
        load(name, data_home=tmp_path)
    assert "Temporary failure in name resolution" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    assert isinstance(caught.value.__cause__, URLError)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (ImportError("no pandas"), r"rankrange\[data\]"),
        (HTTPError("https://openml.org", 500, "Internal Server Error", None, None), "500"),
        (TimeoutError("timed out"), "timed out"),
        (ValueError("md5 checksum of local file does not match description"), "md5 checksum"),
    ],
)
def test_other_failures_of_openml(no_folder, monkeypatch, failure, message):
    def fetch_openml(**arguments):
        raise failure

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
    with pytest.raises(DataNotFoundError, match=message) as caught:
        load("phoneme")
    assert caught.value.__cause__ is failure


def test_download_false_never_asks_the_network(no_folder, monkeypatch):
    calls = serve(monkeypatch, None, None)
    with pytest.raises(DataNotFoundError, match=r"no folder is named; put it there, or pass download=True"):
        load("scene", download=False)
    with pytest.raises(DataNotFoundError, match="leave out source='paper'"):
        load("toy_multimodal", source="paper")
    assert calls == []


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: load("iris"), ValueError, "must be one of monk.* got 'iris'"),
        (lambda: load(3), ValueError, "got 3"),
        (lambda: load("monk", n_outliers=3), TypeError, "only the toy sets take options"),
        (lambda: load("toy_multimodal", outliers=3), TypeError, r"got \['outliers'\]"),
        (lambda: load("toy_multimodal", source="web"), ValueError, "'web'"),
        (lambda: load("toy_multimodal", source="paper", n_outliers=2), TypeError, r"got \['n_outliers'\]"),
        (lambda: load("toy_multimodal", n_outliers=-1), ValueError, "n_outliers=-1"),
        (lambda: load("toy_multimodal", n_outliers=100), ValueError, "n_outliers=100 of n_samples=200"),
        (lambda: load("toy_imbalanced", n_samples=1), ValueError, "n_samples=1 with 1"),
        (lambda: load("toy_imbalanced", n_samples=10.0), TypeError, "n_samples must be an int"),
        (lambda: load("toy_imbalanced", n_outliers=True), TypeError, "bool"),
    ],
)
def test_bad_input_gets_rule_value_and_remedy(call, error, message):
    with pytest.raises(error, match=message):
        call()
