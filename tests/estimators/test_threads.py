"""BLAS threads: one inside our own loops over small matrices, and after a call as many as before it."""

import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

from rankrange import AoRRClassifier, AoRRRegressor, TKMLClassifier
from rankrange.core import threads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = (X[:, 0] + 0.3 * RNG.normal(size=120) > 0).astype(int)
CALLS = {
    "choice of m": lambda: AoRRClassifier(random_state=0).fit(X, Y),
    "given m": lambda: AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(X, Y),
    "regression": lambda: AoRRRegressor(m=0.1, C="auto", random_state=0).fit(X, X[:, 0] + 0.0),
    "labels": lambda: TKMLClassifier(max_iter=5, random_state=0).fit(X, Y),
    "an error on the way": lambda: fails(AoRRClassifier(m=500)),
}


def fails(model):
    with pytest.raises(ValueError, match="m < k"):
        model.fit(X, Y)


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        yield blas_threads()


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


@pytest.mark.parametrize("name", CALLS)
def test_solvers_multiply_on_one_thread_and_put_back_what_was_there(two_threads, name):
    if not two_threads or max(two_threads) < 2:
        pytest.skip("this BLAS has no threads")
    with threads_in_solvers() as inside:
        CALLS[name]()
    assert inside == (set() if name == "an error on the way" else {1})
    assert blas_threads() == two_threads


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
    with threads.threads_for(X):
        assert set(blas_threads()) <= {1}
