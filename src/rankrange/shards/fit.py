"""Fits on shards: one pass draws a sample, a search on the sample finds a start, and a few exact steps use all rows."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import ndtri
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from ..core.arrays import Array
from ..core.cuts import Cut
from ..core.losses import LOSSES, losses_for
from ..core.objective import Design, Objective
from ..core.ranges import RankedRange
from ..crossfit.choose import choose_m, loses_a_class
from ..crossfit.held_out import choose_C
from ..estimators.weights import scale_of, unit_of
from ..solvers import Log, Result, Settings, search
from ..solvers.concentration import hessian
from ..solvers.descent import Metric, descend
from .describe import Description, describe
from .engine import SAMPLE_ROWS, LazyRows, Shards
from .evaluation import FullData, Iterate
from .holdout import candidates, confirmed
from .row_blocks import one_thread
from .shard_kernels import MAX_CLASSES, Cutting, Interval, Model, Sampling, TangentTable, dropped, n_slope_groups
from .shard_steps import Descent

# The largest number of entries of the sample.
_SAMPLE_NUMBERS = 40_000_000
# More searches than in memory: a search on the sample is cheap, and its starts determine the minimum.
_SEARCHES = 3
_SEARCH_ROWS = 1 << 15
_LOSSES = ("logistic", "hinge", "squared", "huber")


@dataclass(frozen=True)
class _Data:
    """The validated results of the first pass."""

    description: Description
    model: Model
    total: float  # the mass of all rows: the sum of their weights, or of their class weights
    fold_masses: Array  # the same for the rows of each fold
    whole: bool  # whether all these weights are integers
    sample: tuple[Any, Array, Array | None]  # X, encoded y, and masses or None
    sampling: Sampling

    @property
    def unit(self) -> float:
        """The mass of one effective row: 1 for integer weights, estimated from the sample for others."""
        return 1.0 if self.whole else unit_of(self.sample[2])


# Parameters that have no effect on shards, and so must have these values.
_IN_MEMORY = {
    "aggregate": None,
    "l1_ratio": 0.0,
    "step": None,
}


def fit_on_shards(shards: Shards, estimator: Any) -> Any:
    """Fit an estimator to shards, as its `fit` does if X is a `ShardList`.

    Parameters
    ----------
    shards : Shards
        The rows, with their targets and weights.
    estimator : AoRRClassifier or AoRRRegressor
        The estimator to fit.

    Returns
    -------
    AoRRClassifier or AoRRRegressor
        The estimator. `dropped_` is computed lazily, and `n_passes_` is the number of passes over the data.
    """
    estimator._check_params()
    check_supported(estimator, getattr(shards, "place", "on shards"))
    rng = np.random.default_rng(check_random_state(estimator.random_state).randint(2**31))
    with one_thread():
        passes = _Passes()
        data = _first_pass(shards, estimator, int(rng.integers(2**63)), passes)
        estimator.n_features_in_ = next(iter(data.description.n_columns))
        estimator.__dict__.pop("feature_names_in_", None)
        if shards.columns is not None:
            estimator.feature_names_in_ = np.asarray(shards.columns, dtype=object)
        m, k, sample = _chosen(estimator, data, rng)
        search_rows = getattr(shards, "search_rows", _SEARCH_ROWS)
        dtype = getattr(shards, "search_dtype", data.model.dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # a start that overflows is discarded
            start = _search(sample, m, data.total, estimator, rng, search_rows, dtype)
        if m > 0 and hasattr(estimator, "path_"):
            start = _closer(sample, start, search_rows)
            m, sample, start = _confirmed(shards, estimator, data, m, k, sample, start, passes)
            if loses_a_class(sample, start, sample.m):
                m, sample = 0, replace(sample, m=0, C=estimator.C_ * k)
                start = _search(sample, m, data.total, estimator, rng, search_rows, dtype)
        kind = getattr(shards, "full_data", FullData)
        full = kind(shards, data.model, sample, data.description.n, data.total, m, k, passes)
        log = Log()
        iterate, gap, n_iter = _descended(estimator, full, start, search_rows, log)
        _store(estimator, shards, data, full, iterate, gap, n_iter, log)
    estimator.n_passes_ = passes.count
    return estimator


def _descended(estimator: Any, full: FullData, start: Array, rows: int, log: Log) -> tuple[Iterate, float, int]:
    """The final point of the steps on all rows, its certificate, and the number of steps.

    Steps on the sample usually improve the start first. If steps on all rows are cheap (`full.smooth`), a run without
    steps on the sample is tried before; if it reaches the tolerance, it is returned, otherwise the better of both runs.
    If all losses of the sample are tied at the start of a run, the result is the point 0 with certificate inf.
    """
    further = getattr(full.shards, "further_steps", 0)
    settings: Any = {"tol": float(estimator.tol), "max_iter": int(estimator.max_iter), "log": log, "further": further}
    tried: list[tuple[Iterate, float, int]] = []
    for closer in (False, True) if full.smooth else (True,):
        W = _closer(full.sample, start, rows) if closer else start
        if _all_tie(full.sample, W):
            return _tied_at_zero(full, np.zeros_like(W)), np.inf, 0
        tried.append(Descent(full, **settings).run(W))
        if tried[-1][1] <= estimator.tol:
            break
    return min(tried, key=lambda end: (end[1] > estimator.tol, end[0].value))


class _Passes:
    """Counts passes over the data, and prints them if `verbose` is set."""

    def __init__(self, verbose: int = 0) -> None:
        self.count, self.verbose = 0, verbose

    def __call__(self, kind: str) -> None:
        self.count += 1
        if self.verbose:
            print(f"pass {self.count} over the data ({kind})")


def check_supported(estimator: Any, place: str) -> None:
    """Raise a ValueError for settings that a fit `place` ("on shards", "on a device") does not support."""
    if estimator.loss not in _LOSSES:
        own = losses_for("binary" if is_classifier(estimator) else "numbers")
        raise ValueError(
            f"a fit {place} needs one of the losses {', '.join(name for name in _LOSSES if name in own)}, got "
            f"loss={estimator.loss!r}; use another loss, or fit NumPy arrays"
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


def _first_pass(shards: Shards, estimator: Any, seed: int, passes: _Passes, n_folds: int = 0) -> _Data:
    n = n_rows(shards)
    if n == 0:
        raise ValueError("a fit needs at least one row, got none in all shards; check the path or the collection")
    columns = shards.n_columns if hasattr(shards, "n_columns") else 1
    size = min(getattr(shards, "sample_rows", SAMPLE_ROWS), max(_SAMPLE_NUMBERS // max(columns, 1), 5 * columns, 1000))
    threshold = min(math.floor(size / n * 2.0**64), 2**64 - 1)
    passes("describe")
    sampling = Sampling(seed, threshold, is_classifier(estimator), n_folds)
    found = shards.reduce(describe, sampling)
    _check_description(found, shards)
    model = _model(estimator, found)
    X = [batch.X for batch in found.sample]
    rows = sp.vstack(X, format="csr") if found.sparse else np.concatenate(X)
    y = model.encoded(np.concatenate([batch.y for batch in found.sample]))
    weight = None
    if found.weighted:
        weight = np.concatenate([np.ones(len(b.y)) if b.weight is None else b.weight for b in found.sample])
    weight = model.mass(y, weight)
    masses, whole = _masses(found, model)
    found.sample = []
    rows = rows.astype(model.dtype, copy=False)
    return _Data(found, model, float(masses[0]), masses[1:], whole, (rows, y, weight), sampling)


def n_rows(shards: Any) -> int:
    """The number of rows in all shards."""
    if hasattr(shards, "n_rows"):
        return int(shards.n_rows)
    return int(shards.shards[-1].stop) if shards.shards else 0


def _check_description(found: Description, shards: Shards) -> None:
    if found.error is not None:
        raise ValueError(_with_column_names(found.error, shards.columns))
    if len(found.n_columns) > 1:
        raise ValueError(
            f"all shards must have the same number of columns, got {sorted(found.n_columns)}; select the same columns"
        )
    if len(found.labels) > MAX_CLASSES:
        raise ValueError(
            f"a classifier needs at most {MAX_CLASSES} classes, got {len(found.labels)} in all; the target seems to "
            "be a number: use AoRRRegressor"
        )
    if not found.sample:
        raise ValueError("the sample of the rows is empty: no row has a positive weight; check the weights")


def _with_column_names(message: str, columns: list[str] | None) -> str:
    """Replace `{column:3}` in a message by the name of column 3, or by 3 without names; kernels know only numbers."""
    head, found, tail = message.partition("{column:")
    if not found:
        return message
    number, _, rest = tail.partition("}")
    return f"{head}{number if columns is None else repr(columns[int(number)])}{rest}"


def _model(estimator: Any, found: Description) -> Model:
    common = {"fit_intercept": bool(estimator.fit_intercept), "dtype": found.dtype}
    if not is_classifier(estimator):
        return Model(estimator.loss, 1, **common)
    classes = np.unique(np.array(list(found.labels)))
    check_classification_targets(classes)
    counts = np.array([found.labels[label] for label in classes.tolist()])
    if np.count_nonzero(counts[:, 1]) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs at least two classes with positive weight, got one class: "
            f"{classes[counts[:, 1] > 0]}; check y"
        )
    estimator.classes_ = classes
    r = 1 if len(classes) == 2 else len(classes)
    columns = next(iter(found.n_columns))
    if r * r * (columns + 1) > 4_000_000:
        raise ValueError(
            f"a fit on shards needs classes^2 * columns of at most 4,000,000, got {r} classes and {columns} columns; "
            "use fewer columns, or fit in memory"
        )
    hinge = estimator.loss == "hinge"
    if hinge and r > 1:
        raise ValueError(
            f"a hinge on shards needs two classes, got {r}: with more, a row has a kink for each pair of classes, and "
            "the driver cannot hold them; use loss='logistic', or fit in memory"
        )
    factor = None
    if estimator.class_weight is not None:
        factor = _class_factors(estimator.class_weight, classes, counts[:, 0])
    loss = "hinge" if hinge else "logistic" if r == 1 else "softmax"
    return Model(loss, r, classes=classes, class_weight=factor, **common)


def _class_factors(class_weight: Any, classes: Array, counts: Array) -> Array:
    if isinstance(class_weight, str) and class_weight == "balanced":
        return np.asarray(counts.sum() / (len(classes) * counts.astype(np.float64)))
    return np.asarray(compute_class_weight(class_weight, classes=classes, y=classes), dtype=np.float64)


def _masses(found: Description, model: Model) -> tuple[Array, bool]:
    """The mass of all rows, then of each fold, and whether all weights, or all class weights, are integers.

    Weights and class weights together are an error.
    """
    if model.class_weight is None:
        return found.mass.total(), found.whole
    if found.weighted:
        raise ValueError(
            "a fit out of core or on a device takes class_weight or sample weights, got both; multiply them into one "
            "column of weights"
        )
    assert model.classes is not None
    counts = np.array([found.labels[label] for label in model.classes.tolist()])
    counts = np.delete(counts, 1, axis=1)  # all rows, then those of each fold
    return model.class_weight @ counts, bool((model.class_weight == np.floor(model.class_weight)).all())


def _chosen(estimator: Any, data: _Data, rng: np.random.Generator) -> tuple[float, float, Objective]:
    """m and k as masses of all rows, and the objective of the sample with the same shares m/n and k/n.

    m and C are chosen on the sample if they are "auto". Sets `C_` and the attributes of the choice.
    """
    m, k = estimator._range().masses(data.total, whole=data.whole)
    rows, y, weight = data.sample
    loss = LOSSES[data.model.loss]()
    sample = Objective(Design(rows, data.model.fit_intercept), y, loss, 1.0, data.model.n_outputs, sample_weight=weight)
    share, unit = sample.total / data.total, data.unit
    C = None if estimator.C == "auto" else float(estimator.C)
    auto = not isinstance(estimator.m, RankedRange) and estimator._is_auto("m")
    if C is not None and auto and data.model.class_weight is None:
        C /= 1.0 if data.whole else scale_of(weight)
    estimator._forget()
    total = data.total / unit
    if auto:
        uncut = replace(sample, m=0, k=_rank(k * share, sample)).in_units(unit)
        choice = choose_m(uncut, rng, C=None if C is None else C * unit, total=total)
        m = choice.m * unit / share
        m = round(m) if data.whole else m
        if C is None and choice.C is not None:
            C = choice.C / unit
        estimator._store_choice(choice)
    ranked = replace(sample, m=_rank(m * share, sample), k=_rank(k * share, sample))
    if C is None:
        C = choose_C(ranked.in_units(unit), rng, total=total)[0] / unit
    estimator.C_ = C
    return m, k, replace(ranked, C=estimator.C_ * (k - m))


def _confirmed(
    shards: Shards,
    estimator: Any,
    data: _Data,
    m: float,
    k: float,
    sample: Objective,
    start: Array,
    passes: _Passes,
) -> tuple[float, Objective, Array]:
    """Confirm or change m and C by a pass over the rows outside the sample; no pass if there are none.

    Returns m, the objective of the sample and a start. Sets `C_` and `confirmation_`.
    """
    if sample.design.n >= data.description.n:
        return m, sample, start
    share = sample.total / data.total
    shares = estimator.path_.get("m", np.empty(0))
    tried = candidates(sample, start, m, share, estimator.C_, shares, estimator.C == "auto")
    residual = np.abs(sample.design.scores(start)[0] - sample.y) if data.model.classes is None else np.ones(1)
    sigma = max(float(np.quantile(residual, 0.7)) / ndtri(0.85), 1e-9 * float(np.abs(sample.y).max()))
    best, estimator.confirmation_ = confirmed(shards, data.model, data.sampling, tried, sigma, passes, data.unit)
    chosen = tried[best]
    m = round(chosen.m) if data.whole else chosen.m
    estimator.C_ = chosen.C
    at = replace(sample, m=_rank(m * share, sample), C=chosen.C * (k - m))
    return m, at, chosen.W


def _rank(mass: float, sample: Objective) -> float:
    """A mass as a rank in the sample: at most that of all its rows, and a count if they have no weights."""
    if sample.sample_weight is not None:
        return min(mass, sample.total)
    return min(round(mass), sample.design.n)


def _search(
    sample: Objective,
    m: float,
    total: float,
    estimator: Any,
    rng: np.random.Generator,
    rows: int,
    dtype: Any,
) -> Array:
    """The parameters of a search on the sample, or for m > 0 the best of several.

    For m > 0, m and k are raised, because the sample may have more outliers by chance. These searches use about `rows`
    rows if the sample has more than twice as many, in this dtype.
    """
    share = m / total
    size = sample.design.n
    wide = sample
    if m > 0:
        spread = 2.5 * math.sqrt(size * share * (1.0 - share)) * sample.total / size
        upper, lower = (_rank(rank + spread, sample) for rank in (sample.m, sample.k))
        upper = min(upper, 0.9 * lower) if sample.sample_weight is not None else min(upper, int(0.9 * lower))
        wide = replace(sample, m=upper, k=lower)
    settings = Settings(1e-3, 100, int(estimator.n_starts), rng)
    if m == 0:
        return search(wide, None, settings).w
    part = _as_dtype(wide if size <= 2 * rows else _every(wide, size // rows), dtype)
    ends = [search(part, None, settings) for _ in range(_SEARCHES)]
    return np.asarray(min(ends, key=lambda end: end.value).w, dtype=np.float64)


def _as_dtype(objective: Objective, dtype: Any) -> Objective:
    """The objective with X and labels in `dtype`, which must represent X exactly; unchanged for numeric targets."""
    design = objective.design
    if design.X.dtype == dtype or objective.loss.targets == "numbers":
        return objective
    y = objective.y.astype(dtype) if objective.y.dtype.kind == "f" else objective.y
    return replace(objective, design=Design(design.X.astype(dtype), design.fit_intercept), y=y)


def _closer(sample: Objective, W: Array, rows: int) -> Array:
    """W after steps on the whole sample, which are cheap compared with passes over all rows.

    Unchanged if m = 0 or the sample is small, because the search then used the whole sample.
    """
    if sample.m == 0 or sample.design.n <= 2 * rows:
        return W
    part = _every(sample, sample.design.n // rows)
    return descend(sample.batch, W[None], Metric(hessian(part, W)), max_iter=20, tol=1e-7)[0][0]


def _every(objective: Objective, step: int) -> Objective:
    """The objective on every step-th row, with the same shares m/n and k/n."""
    rows = np.arange(0, objective.design.n, step)
    part = objective.rows(rows, 0, 1)
    share = part.total / objective.total
    return replace(part, m=_rank(objective.m * share, part), k=_rank(objective.k * share, part))


def _all_tie(sample: Objective, W: Array) -> bool:
    """Whether all sampled rows have nearly the same loss, as at W = 0; False for numeric targets."""
    losses = sample.losses(sample.design.scores(W)).astype(np.float64)
    return sample.loss.targets != "numbers" and float(np.ptp(losses)) < 1e-6 * abs(float(losses.mean()))


def _tied_at_zero(full: FullData, zero: Array) -> Iterate:
    """The evaluation at W = 0, which needs no pass, because all losses of a classifier are equal there.

    A search ends at zero if k is below about twice the number of misclassified rows. All rows are tied at the cut, so
    there is no certificate.
    """
    value = float(full.sample.losses(full.sample.design.scores(zero))[0])
    cut = Cut(value, full.k, full.total)
    upper = Cut(value, full.m, full.total) if full.m > 0 else None
    r = full.model.n_outputs
    table = np.zeros((n_slope_groups(r), TangentTable.width(r, full.sample.design.d)))
    return Iterate(
        zero, value, np.zeros_like(zero), cut, upper, table, None, np.empty(0), value, Interval(value, value)
    )


def _store(
    estimator: Any, shards: Any, data: _Data, full: FullData, iterate: Iterate, gap: float, n_iter: int, log: Log
) -> None:
    converged = gap <= estimator.tol
    message = (
        f"the gap is at most {estimator.tol:g} of the objective"
        if converged
        else "all losses are tied at zero, and no direction lowers them: k is too small for the number of errors"
        if not iterate.W.any()
        else f"stopped after {n_iter} steps with a relative gap of {gap:.2g}"
    )
    estimator.m_ = int(full.m) if data.whole else float(full.m)
    estimator.k_ = int(full.k) if data.whole else float(full.k)
    result = Result(iterate.W, iterate.value, n_iter, converged, message, log.history, gap)
    estimator._store(result, full.sample)
    least = max(iterate.least, 0.0) if full.model.by_margin else iterate.least
    lower = None if full.model.by_margin and full.k >= full.total else iterate.lower
    estimator.lam_ = least if lower is None else lower.value
    estimator.lam_hat_ = np.inf if iterate.upper is None else iterate.upper.value
    whole_tie = iterate.upper is not None and iterate.upper.takes_tie
    cutting = Cutting(data.model, iterate.W, estimator.lam_hat_, whole_tie)
    estimator.dropped_ = (
        shards.lazy_rows(dropped, cutting)
        if hasattr(shards, "lazy_rows")
        else LazyRows(shards, dropped, cutting, data.description.n)
    )
    if is_classifier(estimator):
        _warn_of_lost_classes(estimator, data, iterate)
    if not converged:
        warnings.warn(
            f"the fit on shards did not reach tol={estimator.tol:g}: {message}; raise max_iter or tol, or lower C",
            ConvergenceWarning,
            stacklevel=4,
        )


def _warn_of_lost_classes(estimator: Any, data: _Data, iterate: Iterate) -> None:
    """Warn if most rows of a class were dropped.

    There is no warning with weights, or with a lower cut (k < n or a hinge), because missing rows may lie below it.
    """
    if (
        iterate.lower is not None
        or iterate.upper is None
        or data.description.weighted
        or data.model.class_weight is not None
    ):
        return
    kept = iterate.table()[:, TangentTable.MASS]
    kept = kept[::-1] if data.model.n_outputs == 1 else kept  # slopes are positive on the rows of the first class
    size = np.array([data.description.labels[label][0] for label in estimator.classes_.tolist()], dtype=np.float64)
    lost = 1.0 - kept / size
    if (lost > 0.5).any():
        worst = int(lost.argmax())
        warnings.warn(
            f"{lost[worst]:.0%} of the rows of class {estimator.classes_.tolist()[worst]!r} were dropped: it may be "
            "rare, not wrong; lower m, or fit in memory with stratify=True",
            UserWarning,
            stacklevel=5,
        )
