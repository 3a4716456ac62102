"""The paper's data: generated sets against their sources, files against their checksums, OpenML's copies converted."""

import gzip
import types

import numpy as np
import pandas as pd
import pytest

from reproduction import data


@pytest.mark.data
@pytest.mark.parametrize(("name", "file"), [("monk", "monk.csv.gz"), ("titanic", "titanic.csv.gz")])
def test_generated_sets_are_the_originals_up_to_the_order_of_rows(name, file):
    bunch = data.load(name)
    original = np.loadtxt(data._folder() / file, delimiter=",", skiprows=1)
    made = np.column_stack([bunch.data, bunch.target])
    original[:, -1] = original[:, -1] == original[:, -1].max()
    for rows in (original, made):
        rows[:] = rows[np.lexsort(rows.T)]
    np.testing.assert_allclose(made, original)


def test_generated_sets_have_the_published_counts():
    monk, titanic = data.load("monk"), data.load("titanic")
    assert (monk.data.shape, monk.target.sum()) == ((432, 6), 228)
    assert (titanic.data.shape, titanic.target.sum()) == ((2201, 3), 711)
    assert len(np.unique(np.column_stack([titanic.data, titanic.target]), axis=0)) == 24


@pytest.mark.parametrize("name", data.TOYS)
def test_the_bayes_rule_of_a_toy_set_has_the_stated_error(name):
    toy = data.load(name, n_samples=400_000, n_outliers=0, random_state=1)
    wrong = (toy.data @ toy.bayes_coef + toy.bayes_intercept > 0) != toy.target
    assert wrong.mean() == pytest.approx(toy.bayes_error, abs=5 * np.sqrt(toy.bayes_error / 400_000))


@pytest.mark.parametrize("name", data.TOYS)
def test_outliers_of_a_toy_set_lie_beyond_the_bayes_rule_and_come_first(name):
    toy = data.load(name, n_outliers=5, random_state=2)
    assert toy.outliers.tolist() == [True] * 5 + [False] * 195
    assert (toy.target[:5] == 1).all()
    assert (toy.data[:5] @ toy.bayes_coef + toy.bayes_intercept < 0).all()
    np.testing.assert_array_equal(toy.data, data.load(name, n_outliers=5, random_state=2).data)


@pytest.mark.data
def test_mnist_has_its_digits():
    mnist = data.load("mnist")
    assert (mnist.data.shape, mnist.test_data.shape, mnist.data.dtype) == ((60_000, 784), (10_000, 784), np.uint8)
    assert np.bincount(mnist.target).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_a_file_with_other_contents_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKRANGE_DATA", str(tmp_path))
    (tmp_path / "yeast.csv.gz").write_bytes(gzip.compress(b"a,label:b\n1,0\n"))
    with pytest.raises(ValueError, match="must have the SHA-256"):
        data.load("yeast")
    (tmp_path / "yeast.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(ValueError, match="must be a complete gzip file"):
        data.load("yeast")


def test_without_the_file_the_error_names_the_remedy_and_nothing_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKRANGE_DATA", str(tmp_path))
    monkeypatch.setattr(data, "fetch_openml", lambda **_: pytest.fail("the network was asked"))
    for name in ("splice", "mnist"):
        with pytest.raises(FileNotFoundError, match=f"must hold .*{name}.*--download"):
            data.load(name)


@pytest.mark.data
@pytest.mark.parametrize("name", ["splice", "phoneme", "emotions"])
def test_openmls_copy_is_converted_to_the_papers(name, monkeypatch):
    bunch, table = data.load(name), data.TABLES[name]
    if name == "splice":
        letters = np.array(list("ACGT"))[np.searchsorted([1, 2, 3, 4], bunch.data)]
        letters = np.where(bunch.data == 2, "G", np.where(bunch.data == 3, "C", letters))
        values = np.vstack([letters, np.full((1, 60), "N")])  # an ambiguous row, which the paper's copy leaves out
        target = np.append(bunch.target, 0)
    else:
        values, target = bunch.data, bunch.target
        if name == "phoneme":
            values = (values - data._PHONEME_MEAN) / data._PHONEME_STD
    labels = np.where(target == 1, table.positive, "no")
    frames = types.SimpleNamespace(data=pd.DataFrame(values), target=pd.DataFrame(labels))
    monkeypatch.delenv("RANKRANGE_DATA")
    monkeypatch.setattr(data, "fetch_openml", lambda **_: frames)
    fetched = data.load(name, download=True)
    assert fetched.verified
    np.testing.assert_allclose(fetched.data, bunch.data)
    np.testing.assert_array_equal(fetched.target, bunch.target)


def test_parts_of_a_split_are_disjoint_and_scaled_by_the_first():
    parts = data.split("titanic", 3)
    assert [len(y) for _, y in parts] == [1100, 550, 551]
    np.testing.assert_allclose(parts[0][0].mean(axis=0), 0.0, atol=1e-12)
    assert np.abs(parts[2][0].mean(axis=0)).max() > 1e-3
    everything = np.vstack([X for X, _ in data.split("titanic", 3, scale_on="all")])
    np.testing.assert_allclose(everything.std(axis=0), 1.0)


def test_unknown_names_and_options_are_refused():
    with pytest.raises(ValueError, match="name must be one of monk"):
        data.load("iris")
    with pytest.raises(TypeError, match="only the toy sets take options"):
        data.load("monk", n_samples=3)
    with pytest.raises(ValueError, match="lower n_outliers"):
        data.load("toy_imbalanced", n_samples=20, n_outliers=30)
