"""The process is left as it was found: umask, csv limits, warnings, threads of BLAS and OpenMP, random state."""

from __future__ import annotations

import csv
import io
import locale
import os
import random
import signal
import sys
import threading
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

import rankrange
from rankrange import AoRRClassifier, AoRRRegressor, RankedRangeClassifier, TKMLClassifier, find_label_issues
from rankrange.core import threads
from rankrange.tables.records import records


def _state():
    mask = os.umask(0)
    os.umask(mask)
    pools = {(pool["user_api"], pool["filepath"]): pool["num_threads"] for pool in threadpool_info()}
    return {
        "umask": mask,
        "csv": csv.field_size_limit(),
        "dialects": csv.list_dialects(),
        "filters": [tuple(getattr(part, "pattern", part) for part in entry) for entry in warnings.filters],
        "shown by": warnings.showwarning,
        "threads": pools,
        "numpy": repr(np.random.get_state()),  # noqa: NPY002
        "python": random.getstate(),
        "errors": np.geterr(),
        "printing": repr(np.get_printoptions()),
        "locale": locale.setlocale(locale.LC_ALL),
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "recursion": sys.getrecursionlimit(),
    }


def _rows(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] > 0, X[:, 0] + 0.1 * rng.normal(size=n)


def _file(folder, long=False):
    X, y, z = _rows()
    note = "n" * 200_000 if long else "n"
    lines = [
        f"{a[0]},{a[1]},{'ab'[int(b)]},{c},{note if i == 0 else 'm'}"
        for i, (a, b, c) in enumerate(zip(X, y, z, strict=True))
    ]
    path = folder / "t.csv"
    path.write_text("\n".join(["x,w,kind,price,note", *lines]), encoding="utf-8")
    return path


def _scan(folder):
    X, y, _ = _rows(400)
    np.save(folder / "rows.npy", np.column_stack([X, y]))
    return rankrange.scan(folder / "rows.npy", target=3)


def _audit(target, **options):
    def call(folder):
        from rankrange.audit import audit_file

        audit_file(_file(folder), target, ignore=["note"], jobs=2, **options)

    return call


def _command(folder):
    from rankrange.cli import main

    path = _file(folder, long=True)
    outputs = ["--report", str(folder / "r.html"), "--out", str(folder / "s.csv"), "--clean", str(folder / "c.csv")]
    assert main(["audit", str(path), "--target", "kind", "--models", "linear", "--jobs", "1", "-q", *outputs]) == 0


def _tree():
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=2)


def _refused(folder):
    with pytest.raises(ValueError, match="m < k"):
        AoRRClassifier(m=500, random_state=0).fit(*_rows()[:2])


CALLS = {
    "an error": _refused,
    "AoRRClassifier": lambda folder: AoRRClassifier(random_state=0).fit(*_rows()[:2]).predict_proba(_rows()[0]),
    "AoRRRegressor": lambda folder: AoRRRegressor(random_state=0).fit(_rows()[0], _rows()[2]),
    "RankedRangeClassifier": lambda folder: RankedRangeClassifier(_tree(), random_state=0).fit(*_rows()[:2]),
    "TKMLClassifier": lambda folder: TKMLClassifier(1, random_state=0).fit(
        _rows()[0], np.eye(2, dtype=int)[_rows()[1] * 1]
    ),
    "find_label_issues": lambda folder: find_label_issues(*_rows()[:2], random_state=0),
    "scan": lambda folder: AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(_scan(folder)).predict(_scan(folder)),
    "find_label_issues on a scan": lambda folder: find_label_issues(_scan(folder), random_state=0),
    "audit of classes": _audit("kind"),
    "audit of numbers": _audit("price", models="linear"),
    "command": _command,
}


@contextmanager
def threads_in_solvers():
    """The numbers of BLAS threads at the calls of functions of `rankrange.solvers`, constructors aside."""
    found, libraries = set(), ThreadpoolController().select(user_api="blas").lib_controllers

    def watch(frame, event, _):
        solver = frame.f_globals.get("__name__", "").startswith("rankrange.solvers")
        if event == "call" and solver and frame.f_code.co_name != "__init__":
            found.add(max(library.get_num_threads() for library in libraries))

    sys.setprofile(watch)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(CALLS))
def test_a_call_leaves_the_process_as_it_was(name, tmp_path, capsys):
    for package in ("pyarrow.parquet", "jinja2", "rich", "skops.io"):
        pytest.importorskip(package)
    with threadpool_limits(2):
        before = _state()
        with threads_in_solvers() as inside:
            CALLS[name](tmp_path)
        after = _state()
    if name in ("AoRRClassifier", "AoRRRegressor", "TKMLClassifier", "an error"):
        assert inside == (set() if name == "an error" else {1})
    # What is imported now may bring thread pools of its own.
    after["threads"] = {pool: after["threads"][pool] for pool in before["threads"]}
    assert after == before


@given(st.text(alphabet="a\",;\n\r' ", max_size=60))
def test_records_are_those_of_the_csv_module(text):
    lines = list(io.StringIO(text, newline=""))
    found = list(records(iter(lines), ","))
    assert "".join(record for record, *_ in found) == text
    assert [0, *(line for *_, line in found)][-1] == len(lines)
    try:
        wanted = list(csv.reader(iter(lines), strict=False))
    except csv.Error:  # a carriage return inside a cell without quotes
        return
    assert [cells for _, cells, _ in found] == wanted


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield blas_threads()


def test_whoever_leaves_last_puts_back_the_threads(two_threads):
    """Two that overlap: the first to come is the first to go."""
    came, may_go, gone = threading.Event(), threading.Event(), threading.Event()

    def first():
        with threads.one_thread():
            came.set()
            may_go.wait(10)
        gone.set()

    other = threading.Thread(target=first)
    other.start()
    assert came.wait(10)
    with threads.one_thread():
        may_go.set()
        assert gone.wait(10)
        assert set(blas_threads()) == {1}
    other.join()
    assert blas_threads() == two_threads


def test_large_products_keep_their_threads(two_threads):
    large = np.broadcast_to(0.0, (3000, 3000))
    with threads.threads_for(large):
        assert blas_threads() == two_threads
    with threads.threads_for(np.zeros((120, 4))):
        assert set(blas_threads()) <= {1}
