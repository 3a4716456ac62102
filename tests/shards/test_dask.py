"""Dask collections on a real cluster of processes on this machine, also when processes are killed.

`test_fits_in_passes` compares fits of Dask arrays with those in memory.
"""

import multiprocessing
import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from chunked_rows import D, in_chunks
from chunked_rows import table as rows_of

import rankrange
from rankrange import AoRRClassifier, find_label_issues
from rankrange.shards import LostDataError
from shaped_tables import shaped

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N = 18_000
CHUNKS = (7_001, 0, 6_999, 4_000)
SETTINGS = {"m": 0.1, "k": 0.9, "C": 0.05, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def _small_sample():
    with dask.config.set({"rankrange.sample-rows": 4_000}):
        yield


def start_cluster(workers=2):
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    )


@pytest.fixture(scope="session")
def client():
    """Workers fork from one process that has imported what they need, also those that replace a killed one."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    with dask.config.set({"distributed.worker.multiprocessing-method": method}):
        distributed.utils.get_mp_context().set_forkserver_preload(["distributed", "rankrange.shards.dask_rows"])
        with start_cluster() as cluster, distributed.Client(cluster) as client:
            yield client


@pytest.fixture
def fragile(client):
    """Its workers may be killed: others are started in their place, and are there before the next test."""
    yield client
    client.wait_for_workers(2, timeout=120)


def table(classes=2):
    return rows_of(classes, n=N)


def chunked(array, chunks=CHUNKS):
    return da.from_array(array, chunks=(chunks, *array.shape[1:]))


def in_process(X, y, weight=None, chunks=CHUNKS):
    rows = in_chunks(X, y, weight, np.cumsum([0, *chunks]), 4_000)
    return AoRRClassifier(**SETTINGS).fit(rows)


def assert_same_bits(model, reference):
    for name in ("coef_", "intercept_", "objective_", "certificate_", "lam_", "lam_hat_", "m_", "k_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(reference, name), err_msg=name)


@pytest.mark.parametrize(("weighted", "classes"), [(True, 2), (False, 3)])
def test_a_cluster_gives_the_fit_and_the_predictions_of_the_same_chunks_in_this_process(client, classes, weighted):
    X, y = table(classes)
    w = np.random.default_rng(1).integers(0, 3, N).astype(float) if weighted else None
    lazy = chunked(X)
    model = AoRRClassifier(**SETTINGS).fit(lazy, chunked(y), None if w is None else chunked(w))
    assert_same_bits(model, in_process(X, y, w))
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        result, expected = getattr(model, method)(lazy), getattr(model, method)(X)
        assert isinstance(result, da.Array)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(result.compute(), expected)
    assert isinstance(model.dropped_, da.Array)
    assert model.dropped_.compute().sum() == pytest.approx(model.m_, rel=1.0 if weighted else 0.0)
    with pytest.raises(ValueError, match="must have the 5 columns of the fit, got 3"):
        model.predict(lazy[:, :3])


def test_sparse_chunks_give_what_they_give_in_memory(client):
    X, y = table()
    X[np.abs(X) < 0.5] = 0
    sparse = chunked(X).map_blocks(sp.csr_matrix)
    model = AoRRClassifier(**SETTINGS).fit(sparse, chunked(y))
    inside = AoRRClassifier(**SETTINGS).fit(X, y)
    assert model.objective_ == pytest.approx(inside.objective_, rel=1e-6)
    np.testing.assert_array_equal(model.predict(sparse).compute(), model.predict(X))


def test_a_folder_of_parquet_files_is_cut_alike_for_features_and_target(tmp_path):
    """Dask reads several files at once, the more the fewer columns: the target came in other chunks."""
    pytest.importorskip("pyarrow")
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(700, 4)), columns=list("abcd"))
    table["label"] = (table["a"] + rng.normal(size=700) > 0).astype(int)
    for part in range(7):
        table[part * 100 : (part + 1) * 100].to_parquet(tmp_path / f"{part}.parquet", index=False)
    frame = dd.read_parquet(str(tmp_path))
    model = AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(frame.drop(columns="label"), frame["label"])
    plain = AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(rankrange.scan(tmp_path, target="label"))
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.predict(frame.drop(columns="label")), plain.predict(table[list("abcd")]))
    alone = AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(frame[["a"]], frame["label"])
    assert len(alone.predict(frame[["a"]]).compute()) == 700


def test_a_dataframe_of_unknown_lengths_with_an_empty_partition(client):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = table()
    features = [f"c{j}" for j in range(D)]
    frame = pd.DataFrame(X, columns=features).assign(y=np.array(["no", "yes"])[y], w=1.0, i=np.arange(N))
    parts = dd.from_pandas(frame, npartitions=4)
    parts = parts[(parts.i < 4_500) | (parts.i >= 9_100)]  # the second partition loses all its rows
    left = frame[(frame.i < 4_500) | (frame.i >= 9_100)]
    model = AoRRClassifier(**SETTINGS).fit(parts[features], parts["y"], parts["w"])
    lengths = [len(part) for part in parts.partitions]
    assert_same_bits(model, in_process(left[features].to_numpy(), left["y"].to_numpy(), np.ones(len(left)), lengths))
    assert model.feature_names_in_.tolist() == features
    assert model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(model.predict(parts[features]).compute(), model.predict(left[features]))
    assert model.score(parts[features], parts["y"]) == model.score(left[features], left["y"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda X, y: (chunked(X), y), TypeError, "y must be a Dask array, dataframe or series, got ndarray"),
        (lambda X, y: (da.from_array(X, chunks=(7_000, 2)), chunked(y)), ValueError,
         r"chunks of whole rows, got 3 chunks of columns; use X.rechunk"),
        (lambda X, y: (chunked(X), chunked(y, (N,))), ValueError, "cut into the same chunks of rows, got"),
        (lambda X, y: (chunked(X), chunked(y, (7_000, 1, 6_999, 4_000))), ValueError,
         r"same number of rows in each chunk, got \[7001, 7000\] in chunk 0"),
        (lambda X, y: (chunked(X[:0], (0,)), chunked(y[:0], (0,))), ValueError, "at least one row, got none"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_collections_is_said(change, error, message):
    with dask.config.set(scheduler="synchronous"), pytest.raises(error, match=message):
        AoRRClassifier(**SETTINGS).fit(*change(*table()))


def test_wrong_labels_on_a_cluster_are_those_found_in_this_process(client):
    X, y, _ = shaped("three classes", 3_000, 0.2)
    chunks = (1_500, 1, 1_499)
    with dask.config.set({"rankrange.sample-rows": 1_500}):
        found = find_label_issues(chunked(X, chunks), chunked(y, chunks), random_state=0)
    alone = find_label_issues(in_chunks(X, y, None, (0, 1_500, 1_501, 3_000), 1_500), random_state=0)
    np.testing.assert_array_equal(found.table, alone.table)
    np.testing.assert_array_equal(np.asarray(found.p_wrong), np.asarray(alone.p_wrong))
    assert found.noise_interval == alone.noise_interval


def kill_one(client, after=0.0):
    pid = next(iter(client.run(os.getpid).values()))
    timer = threading.Timer(after, os.kill, (pid, signal.SIGKILL))
    timer.start()
    return timer


def slowly(block):
    time.sleep(0.2)
    return block


def test_a_killed_worker_changes_nothing_where_chunks_can_be_made_again(fragile):
    """The worker dies in the middle: chunks are made from their source again, and the answer has the same bits."""
    X, y = table()
    slow = chunked(X).map_blocks(slowly, meta=np.empty((0, 0)))
    timer = kill_one(fragile, after=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AoRRClassifier(**SETTINGS).fit(slow, chunked(y))
    timer.join()
    assert_same_bits(model, in_process(X, y))


def test_scattered_data_that_are_lost_are_an_error_that_says_so(fragile):
    X, y = table()
    futures = fragile.scatter([X[:9_000], X[9_000:]])
    scattered = da.concatenate([da.from_delayed(f, (9_000, D), dtype=X.dtype) for f in futures])
    kill_one(fragile).join()
    began = time.monotonic()
    while len(fragile.nthreads()) > 1 and time.monotonic() - began < 10:  # until the scheduler has noticed
        time.sleep(0.05)
    with pytest.raises(LostDataError, match="scattered exist once"):
        AoRRClassifier(**SETTINGS).fit(scattered, chunked(y, (9_000, 9_000)))
    assert time.monotonic() - began < 60  # an error, not a hang


def die(block):
    os.kill(os.getpid(), signal.SIGKILL)  # what the operating system does to a process that takes too much memory
    return block


def test_a_chunk_that_kills_every_worker_is_an_error(fragile, monkeypatch):
    X, y = table()
    deadly = chunked(X, (N,)).map_blocks(die, meta=np.empty((0, 0)))
    monkeypatch.setattr(fragile.cluster.scheduler, "allowed_failures", 0)  # the default, 3, kills four workers
    with pytest.raises(LostDataError, match="use smaller chunks or larger workers"):
        AoRRClassifier(**SETTINGS).fit(deadly, chunked(y, (N,)))


def test_no_worker_at_all_is_an_error_and_not_a_hang():
    X, y = table()
    with (
        dask.config.set({"rankrange.worker-timeout": 1.0}),
        start_cluster(0) as cluster,
        distributed.Client(cluster),
        pytest.raises(LostDataError, match="needs at least one worker, got none"),
    ):
        AoRRClassifier(**SETTINGS).fit(chunked(X), chunked(y))
