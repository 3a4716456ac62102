"""Fits to the rows outside each fold, over all shards. Up to eight fits share their passes.

A hash of the row number determines the fold of a row. Eight fits in one pass cost about half as much as eight passes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..core.arrays import Array
from ..core.losses import LOSSES
from ..core.objective import Design, Objective
from ..solvers import Log
from .engine import Shards
from .evaluation import FullData
from .fit import _first_pass, _Passes, _rank
from .row_blocks import one_thread
from .shard_kernels import Evaluation, Fold, Model, Partial, Request, evaluate, fold_numbers
from .shard_steps import Descent

# The tolerance of fits for label issues: predictions hardly depend on the last digits.
_TOL, _STEPS = 1e-4, 4


class SharedPasses:
    """Combines the requests of several fits into common passes.

    Each fit runs in its own thread and waits when it needs a pass. The pass runs once all fits wait.
    """

    def __init__(self, shards: Shards, model: Model, on_pass: Callable[[str], None]) -> None:
        self.shards, self.model, self.on_pass = shards, model, on_pass
        self._changed = threading.Condition()
        self._requests: dict[int, Request] = {}
        self._answers: dict[int, Any] = {}
        self._running = 0

    def run(self, fits: Sequence[Callable[[Callable[[Request], Partial]], Any]]) -> list[Any]:
        """Run all fits and return their results. If fits fail, the error of the first of them is raised.

        Each fit is called with a function that returns the `Partial` of a `Request`.
        """
        results: list[Any] = [None] * len(fits)
        self._running = len(fits)

        def work(index: int) -> None:
            try:
                results[index] = fits[index](lambda request: self._evaluate(index, request))
            except BaseException as error:  # raised again in the calling thread
                results[index] = error
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

        threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(fits))]
        for thread in threads:
            thread.start()
        self._serve()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    def _evaluate(self, index: int, request: Request) -> Partial:
        with self._changed:
            self._requests[index] = request
            self._changed.notify_all()
            self._changed.wait_for(lambda: index in self._answers)
            answer = self._answers.pop(index)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _serve(self) -> None:
        """Run passes until all fits have ended: one for all requests, once every running fit has sent one."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._requests) == self._running)
                if not self._running:
                    return
                waiting = sorted(self._requests)
                requests = tuple(self._requests.pop(index) for index in waiting)
            try:
                self.on_pass(f"{len(requests)} fits")
                found = self.shards.reduce(evaluate, Evaluation(self.model, requests)).parts
                answers: list[Any] = [part.pack() for part in found]
            except BaseException as error:  # the error ends each fit
                answers = [error] * len(waiting)
            with self._changed:
                self._answers.update(zip(waiting, answers, strict=True))
                self._changed.notify_all()


def fit_folds(
    shards: Shards,
    data: Any,
    parts: list[Objective],
    starts: Array,
    share: float,
    C: float,
    passes: Callable[[str], None],
) -> Array:
    """Parameters (2, folds, r, p) of the fits to all rows outside each fold, ordinary and trimmed.

    `data` are the results of the first pass, `parts` the sample without the rows of each fold, and `starts` parameters
    (2, folds, r, p). `share` is the share that the trimmed fits drop; with 0 they are the ordinary fits. C is
    scikit-learn's. `passes` is called before each pass. A fit makes at most _STEPS steps, to the tolerance _TOL.
    """
    n_folds = len(parts)

    def fit(v: int, number: int) -> Callable[..., Array]:
        total, part = data.total - float(data.fold_masses[number]), parts[number]
        m = v * share * total
        m = round(m) if data.whole else m
        at = replace(part, m=_rank(m * part.total / total, part), k=part.total, C=C * (total - m))
        fold = Fold(data.sampling.seed, n_folds, number)
        n = round(data.description.n * total / data.total)

        def run(ask: Callable[[Request], Partial]) -> Array:
            def without(request: Request) -> Partial:
                return ask(replace(request, without=fold))

            full = FullData(shards, data.model, at, n, total, m, total, evaluate_one=without)
            full.limit = max(full.limit // (2 * n_folds), 1000)
            return Descent(full, tol=_TOL, max_iter=_STEPS, log=Log(None)).run(starts[v, number])[0].W

        return run

    together = SharedPasses(shards, data.model, passes)
    ends = together.run([fit(v, number) for v in ((0, 1) if share else (0,)) for number in range(n_folds)])
    found = np.array(ends).reshape(-1, n_folds, *ends[0].shape)
    return found if share else np.concatenate([found, found])


def regress_folds(shards: Shards, models: tuple[Any, Any], n_folds: int, random_state: Any) -> tuple[Array, int]:
    """Parameters (2, folds, 1, p) of an ordinary and a robust regressor, fitted to the rows outside each fold.

    `models` are the two regressors, fitted to all rows. The fits start from them, and use loss, C and dropped share of
    the robust one. The second result is the seed of the folds.
    """
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    with one_thread():
        passes = _Passes(0)
        data = _first_pass(shards, models[1], int(rng.integers(2**63)), passes, n_folds)
        rows, y, weight = data.sample
        design = Design(rows, bool(models[1].fit_intercept))
        objective = Objective(design, y, LOSSES[data.model.loss](), 1.0, 1, m=0, k=len(y), sample_weight=weight)
        fold = fold_numbers(data.sampling.seed, n_folds, np.concatenate(data.description.numbers), len(y))
        parts = [objective.rows(np.flatnonzero(fold != number), 0, 1) for number in range(n_folds)]
        starts = np.array([[_parameters(model)] * n_folds for model in models])
        share = float(models[1].m_) / data.total
        return fit_folds(shards, data, parts, starts, share, float(models[1].C_), passes), data.sampling.seed


def _parameters(model: Any) -> Array:
    coef = np.atleast_2d(model.coef_).astype(np.float64)
    return np.column_stack([coef, np.atleast_1d(model.intercept_)]) if model.fit_intercept else coef
