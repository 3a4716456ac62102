"""Fits in passes: one pass draws a sample, the fit of the sample is the start, and a few exact steps use all rows.

If the sample holds all rows, the fit is the one in memory.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from ..core.arrays import Array
from ..core.losses import LOSSES
from ..core.objective import Design, Objective
from ..core.ranges import RankedRange
from ..core.threads import one_thread
from ..crossfit.choose import choose_m, loses_a_class
from ..crossfit.held_out import choose_C
from ..estimators.linear import warn_of_lost_class
from ..estimators.weights import scale_of, unit_of
from ..solvers import Log, Result, Settings, search
from ..solvers.concentration import concentrate
from ..solvers.trim import most_dropped, sample_rows
from .evaluation import FullData, Passes
from .inputs import as_rows
from .kernels import (
    Cutting,
    Description,
    Model,
    Sampling,
    describe,
    dropped,
)
from .rows import Chunk, Rows, given
from .steps import Descent, End

# The largest number of entries of the sample.
_SAMPLE_NUMBERS = 40_000_000
# More searches than in memory, on about this many rows of a large sample: their starts determine the minimum. The
# search uses more if m leaves few rows of the rare classes.
_SEARCHES, _SEARCH_ROWS = 3, 1 << 12
# Parameters that need the rows in memory, and the values that they must have here.
_IN_MEMORY = {"aggregate": None, "l1_ratio": 0.0, "step": None}


def fit(estimator: Any, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """Fit AoRRClassifier or AoRRRegressor to a scan, Dask collections, tensors or any `Rows`, as its `fit` does.

    Fitted attributes are NumPy; `dropped_` is lazy for scans and Dask if the table has more rows than the sample.
    `n_passes_` is the number of passes over the data.
    """
    estimator._check_params()
    rows = as_rows(X, y, sample_weight, estimator)
    check_supported(estimator, rows.place)
    rng = np.random.default_rng(check_random_state(estimator.random_state).randint(2**31))
    passes = Passes(rows)
    data = first_pass(passes, estimator, int(rng.integers(2**63)))
    if data.chunk.X.shape[0] == rows.n_rows:
        return _in_memory(estimator, passes, data.chunk)
    estimator._shape = rows.n_rows, rows.n_columns
    estimator.n_features_in_ = rows.n_columns
    if data.model.classes is not None:
        estimator.classes_ = rows.named(data.model.classes)
    _store_names(estimator, rows)
    with one_thread():
        m, k, sample, start = _start(estimator, rows, data, rng)
        log, zero = Log(), np.zeros_like(start)
        if is_classifier(estimator) and sample.at(zero).value <= sample.at(start).value:
            # A search ends at zero if k is below about twice the number of misclassified rows. There all losses are
            # tied at the cuts, so there is no certificate, and no pass is needed.
            value = sample.at(zero).value
            end = End(Cutting(data.model, zero, value if m else np.inf, False), value, value, np.inf, 0)
        else:
            full = FullData(passes, data.model, sample, data.chunk, data.total, m, k, float(estimator.tol))
            end = Descent(full, max_iter=int(estimator.max_iter), log=log).run(start)
        _store(estimator, rows, data, sample, (m, k), end, log)
    estimator.n_passes_ = passes.count
    return estimator


@dataclass(frozen=True)
class Data:
    """The validated results of the first pass."""

    model: Model
    total: float  # the mass of all rows: the sum of their weights, or of their class weights
    whole: bool  # whether all these weights are integers
    chunk: Chunk  # the sample
    X: Any  # its features, encoded targets, and masses or None
    y: Array
    mass: Array | None
    numbers: Array  # the numbers of its rows
    sampling: Sampling

    @property
    def unit(self) -> float:
        """The mass of one effective row: 1 for integer weights, estimated from the sample for others."""
        return 1.0 if self.whole else unit_of(self.chunk.weight, self.model.factor(self.y))

    def objective(self) -> Objective:
        """The objective of the sample with m = 0, k = n and C = 1."""
        design, loss = Design(self.X, self.model.fit_intercept), LOSSES[self.model.loss]()
        found = Objective(design, self.y, loss, 1.0, self.model.n_outputs, m=0, k=len(self.y), sample_weight=self.mass)
        return replace(found, k=found.total)


def check_supported(estimator: Any, place: str) -> None:
    """Raise a ValueError for settings that a fit `place` ("out of core", "on a device") does not support."""
    taken = ("logistic",) if is_classifier(estimator) else ("squared", "huber")
    if estimator.loss not in taken:
        raise ValueError(
            f"a fit {place} needs one of the losses {', '.join(taken)}, got loss={estimator.loss!r}; use another loss, "
            "or fit NumPy arrays"
        )
    for name, default in _IN_MEMORY.items():
        value = getattr(estimator, name, default)
        if value != default:
            raise ValueError(
                f"a fit {place} needs {name}={default!r}, got {name}={value!r}; fit NumPy arrays for other settings"
            )
    if np.inf == estimator.C:
        raise ValueError(f"a fit {place} needs a finite C, got C=inf; fit NumPy arrays for it")
    if isinstance(estimator.k, str) and estimator.k == "adaptive":
        raise ValueError(f"a fit {place} needs k as a number or 'auto', got k='adaptive'; fit NumPy arrays for it")


def first_pass(passes: Passes, estimator: Any, seed: int) -> Data:
    """Count and check all rows, and draw the sample."""
    rows = passes.rows
    if rows.n_rows == 0:
        raise ValueError("a fit needs at least one row, got none in all; check the path or the collection")
    columns = max(rows.n_columns, 1)
    size = min(rows.sample_rows, max(_SAMPLE_NUMBERS // columns, 5 * columns, 1000))
    sampling = Sampling(seed, -(-rows.n_rows // size), is_classifier(estimator), rows.columns)
    with one_thread():
        found: Description = passes(describe, sampling)
    if len(found.columns) > 1:
        raise ValueError(
            f"all chunks must have the same number of columns, got {sorted(found.columns)}; select the same columns"
        )
    if found.error is not None:
        raise ValueError(found.error)
    model = _model(estimator, found)
    chunk, numbers = _joined(found.sample), sampling.numbers(0, rows.n_rows)
    if sampling.step > 1 and chunk.weight is not None:
        numbers, chunk = numbers[chunk.weight > 0], chunk.rows(np.flatnonzero(chunk.weight > 0))
        if not len(numbers):
            raise ValueError("the sample of the rows is empty: no row has a positive weight; check the weights")
    y = model.encoded(chunk.y)
    total, whole = _masses(found, model)
    X, mass = model.features(chunk.X), model.mass(y, chunk.weight)
    return Data(model, total, whole, chunk, X, y, mass, numbers, sampling)


def _joined(parts: tuple[Chunk, ...]) -> Chunk:
    X = [part.X for part in parts]
    stacked = sp.vstack(X, format="csr") if any(map(sp.issparse, X)) else np.concatenate(X)
    weight = None
    if any(part.weight is not None for part in parts):
        weight = np.concatenate([np.ones(len(part.y)) if part.weight is None else part.weight for part in parts])
    return Chunk(0, stacked, np.concatenate([part.y for part in parts]), weight)


def _model(estimator: Any, found: Description) -> Model:
    common: Any = {"fit_intercept": bool(estimator.fit_intercept), "dtype": found.dtype}
    if not is_classifier(estimator):
        return Model(estimator.loss, 1, **common)
    classes = np.unique(np.array(list(found.mass_of_label)))
    check_classification_targets(classes)
    masses = np.array([found.mass_of_label[label] for label in classes.tolist()], dtype=np.float64)
    present = masses > 0
    if np.count_nonzero(present) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs at least two classes with positive weight, got one class: "
            f"{classes[present]}; check y"
        )
    r, columns = 1 if len(classes) == 2 else len(classes), next(iter(found.columns))
    if r * r * (columns + 1) > 4_000_000:
        raise ValueError(
            f"a fit in passes needs classes^2 * columns of at most 4,000,000, got {r} classes and {columns} columns; "
            "use fewer columns, or fit in memory"
        )
    factor = None
    if isinstance(estimator.class_weight, str) and estimator.class_weight == "balanced":
        factor = masses.sum() / (present.sum() * np.where(present, masses, np.inf))
    elif estimator.class_weight is not None:
        factor = compute_class_weight(estimator.class_weight, classes=classes, y=classes).astype(np.float64)
    return Model("logistic" if r == 1 else "softmax", r, classes=classes, class_weight=factor, **common)


def _masses(found: Description, model: Model) -> tuple[float, bool]:
    """The mass of all rows, and whether all weights and class weights are integers."""
    if model.class_weight is None or model.classes is None:
        return found.mass, found.whole
    factor = model.class_weight
    total = sum(f * found.mass_of_label[label] for f, label in zip(factor, model.classes.tolist(), strict=True))
    return float(total), found.whole and bool((factor == np.floor(factor)).all())


def _in_memory(estimator: Any, passes: Passes, chunk: Chunk) -> Any:
    """The fit in memory of all rows."""
    rows = passes.rows
    estimator.fit(chunk.X, rows.named(chunk.y), chunk.weight)
    _store_names(estimator, rows)
    estimator.dropped_ = rows.per_row(given, estimator.dropped_)
    estimator.n_passes_ = passes.count
    return estimator


def _store_names(estimator: Any, rows: Rows) -> None:
    if rows.columns is not None:
        estimator.feature_names_in_ = np.asarray(rows.columns, dtype=object)


def _start(estimator: Any, rows: Rows, data: Data, rng: np.random.Generator) -> tuple[float, float, Objective, Array]:
    """m and k as masses of all rows, the objective of the sample with the same shares m/n and k/n, and its fit.

    Sets `C_` and the attributes of the choice. A fit that drops more than half of a class is replaced by the next one.
    """
    m, k = estimator._range().masses(data.total, whole=data.whole)
    sample, unit = data.objective(), data.unit
    share = sample.total / data.total
    C = None if estimator.C == "auto" else float(estimator.C)
    auto = not isinstance(estimator.m, RankedRange) and estimator._is_auto("m")
    if C is not None and auto:
        C /= scale_of(data.chunk.weight)
    fits: list[tuple[float, Array | None]] = [(m, None)]
    if auto:
        uncut = replace(sample, m=0, k=_rank(k * share, sample)).in_units(unit)
        choice = choose_m(uncut, rng, C=None if C is None else C * unit, total=data.total / unit)
        fits = [*((found * unit / share, W) for found, W in choice.fits), (0, None)]
        C = choice.C / unit if C is None and choice.C is not None else C
        estimator._store_choice(choice)
    if C is None:
        ranked = replace(sample, m=_rank(m * share, sample), k=_rank(k * share, sample))
        C = choose_C(ranked.in_units(unit), rng, total=data.total / unit)[0] / unit
    estimator.C_ = C
    for m, W in fits:
        m = round(m) if data.whole else m
        ranked = replace(sample, m=_rank(m * share, sample), k=_rank(k * share, sample), C=C * (k - m))
        with np.errstate(over="ignore", invalid="ignore"):  # a start that overflows is discarded
            start = _search(ranked, m / data.total, W, Settings(1e-3, 100, int(estimator.n_starts), rng))
        if not auto or not loses_a_class(ranked, start, ranked.m):
            break
    return m, k, ranked, start


def _rank(mass: float, sample: Objective) -> float:
    """A mass as a rank in the sample: at most that of all its rows, and a count if they have no weights."""
    if sample.sample_weight is not None:
        return min(mass, sample.total)
    return min(round(mass), sample.design.n)


def _search(sample: Objective, share: float, given: Array | None, settings: Settings) -> Array:
    """The fit of the sample, which drops this share: for m > 0 the best of several searches, also from a `given` start.

    There m and k are raised, because the sample may have more outliers by chance. Searches use every few rows of a
    large sample; steps on the whole sample follow.
    """
    if sample.m == 0:
        return search(sample, None, settings).w
    step = -(-sample.design.n // max(_SEARCH_ROWS, sample_rows(sample)))
    part = sample.rows(np.arange(0, sample.design.n, step), 0, 1)
    size, ratio = part.design.n, part.total / sample.total
    spread = 2.5 * math.sqrt(size * share * (1.0 - share)) * part.total / size
    upper, lower = (_rank(ratio * rank + spread, part) for rank in (sample.m, sample.k))
    upper = min(upper, 0.9 * lower, most_dropped(sample, part))
    part = replace(part, m=upper if part.sample_weight is not None else int(upper), k=lower)
    ends = [search(part, W, settings) for W in [given] + [None] * (_SEARCHES - 1)]
    return concentrate(sample, np.asarray(min(ends, key=lambda end: end.value).w, dtype=np.float64))[0]


def _store(
    estimator: Any, rows: Rows, data: Data, sample: Objective, ranks: tuple[float, float], end: End, log: Log
) -> None:
    converged, W = end.gap <= estimator.tol, end.cutting.W
    message = (
        f"the gap is at most {estimator.tol:g} of the objective"
        if converged
        else "all losses are tied at zero, and no direction lowers them: k is too small for the number of errors"
        if not W.any()
        else f"stopped after {end.n_iter} steps with a relative gap of {end.gap:.2g}"
    )
    estimator.m_, estimator.k_ = (int(rank) if data.whole else float(rank) for rank in ranks)
    estimator._store(Result(W, end.value, end.n_iter, converged, message, log.history, end.gap), sample)
    estimator.lam_, estimator.lam_hat_ = end.lam, end.cutting.lam_hat
    estimator.dropped_ = rows.per_row(dropped, end.cutting)
    if is_classifier(estimator):
        of_sample = dropped(data.chunk, end.cutting)
        estimator._calibrate(data.X, data.y, data.mass, of_sample, sample.total / data.total)
        mass = np.ones(len(data.y)) if data.mass is None else data.mass
        advice = "it may be rare, not wrong; lower m, or fit in memory with aggregate='per-class'"
        warn_of_lost_class(estimator.classes_, data.model.codes(data.y), mass, of_sample, advice, 5)
    if not converged:
        warnings.warn(
            f"the fit {rows.place} did not reach tol={estimator.tol:g}: {message}; raise max_iter or tol, or lower C",
            ConvergenceWarning,
            stacklevel=4,
        )
