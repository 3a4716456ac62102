"""Shared by AoRRClassifier and AoRRRegressor: parameters, `fit` and the fitted attributes."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from ..core.aggregates import Stratified
from ..core.arrays import Array
from ..core.cuts import cuts_of
from ..core.objective import Design, Objective
from ..core.ranges import RankedRange
from ..core.row_space import RowSpace
from ..core.transition import predicted_codes
from ..crossfit.choose import Choice, adapt_k, choose_m, loses_a_class
from ..crossfit.folds import whole_number
from ..crossfit.held_out import choose_C
from ..crossfit.with_clean import choose_with_validation
from ..solvers import Result, Settings, solve
from ..solvers.polish import PRODUCTS_FROM
from .aggregated import aggregated, by_groups, check_aggregate, cuts_by_group, group_table, searched, uses_m
from .sparse import SparseCoef, check_l1_ratio, fit_sparse
from .streamed import on_device, tensor_scores
from .weights import as_count, canonical_rows, is_whole, present_rows, product_of, scale_of, unit_of


class AoRRLinear(SparseCoef, BaseEstimator):
    """Base class of the classifier and the regressor: parameters, `fit` and the fitted attributes."""

    # Parameters: `__init__` of the subclasses stores them.
    m: Any
    k: Any
    loss: str
    C: Any
    fit_intercept: bool
    n_starts: int
    max_iter: int
    tol: float
    random_state: Any
    n_jobs: int | None
    aggregate: Any
    l1_ratio: float
    lam_hat_: Any
    _largest_C = float(np.finfo(np.float64).max)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the training rows. A saved model contains no data."""
        state = {name: value for name, value in super().__getstate__().items() if name != "_training"}
        if callable(state.get("_noise")):
            del state["_noise"]
        return state

    def _is_auto(self, name: str) -> bool:
        value = getattr(self, name)
        words = self._allowed_strings(name)
        if isinstance(value, str) and value not in words:
            raise ValueError(
                f"{name} must be {' or '.join(map(repr, words))}, an int (a count) or a float in [0, 1], got {value!r}"
            )
        return isinstance(value, str)

    def _allowed_strings(self, name: str) -> tuple[str, ...]:
        """Strings that are allowed for m or k."""
        return ("auto", "adaptive") if name == "k" and is_classifier(self) else ("auto",)

    def _range(self) -> RankedRange:
        """The range as given, with m = 0 and k = n in place of "auto", and k = n in place of "adaptive"."""
        if isinstance(self.m, RankedRange):
            if not self._is_auto("k"):
                raise TypeError(f"{self.m!r} already defines k, got k={self.k!r} as well; leave k out")
            return self.m
        return RankedRange(0 if self._is_auto("m") else self.m, 1.0 if self._is_auto("k") else self.k)

    def _check_params(self) -> None:
        check_C(self.C, most=self._largest_C, auto=not self.l1_ratio)
        check_positive(self, "tol")
        whole_number("max_iter", self.max_iter, 1)
        whole_number("n_starts", self.n_starts, 0)
        check_flags(self)
        check_l1_ratio(self)

    def _solve(
        self,
        X: Any,
        y: Array,
        weight: Array | None,
        loss: Any,
        n_outputs: int,
        clean: tuple[Any, Array] | None,
        factor: Array | None = None,
        groups: Array | None = None,
    ) -> None:
        """Build the objective, choose m, k and C if they are "auto", run the solver and store the fitted attributes.

        The mass of a row is its `weight` times `factor`, the weight of its class. Folds never split a group, unless the
        aggregate compares `groups`. If an m chosen without clean rows drops more than half of a class in the final fit,
        the fit is repeated with m = 0. Fits with an l1 penalty are left to `fit_sparse`.
        """
        check_aggregate(self, groups)
        if self.l1_ratio and np.inf != self.C:  # without a penalty l1_ratio has no effect
            if clean is not None:
                raise ValueError("X_val and y_val choose m and k with l1_ratio=0 only; pass m as a number")
            return fit_sparse(self, X, y, weight, factor, loss, n_outputs, seed_of(self.random_state))
        keep = self._range()
        given_groups = groups
        self._training: Any = None  # the rows for summaries, which are never saved
        if weight is None and factor is None and not sp.issparse(X):
            self._training = X, y
        rng = np.random.default_rng(seed_of(self.random_state))
        by_products = n_outputs == 1 and self.m != "auto" and _many_columns(X)
        if groups is None:
            rows, targets, mass = canonical_rows(X, y, weight, factor, as_sparse=by_products)
        else:
            (rows, targets, mass), groups = present_rows(X, y, product_of(weight, factor), groups)
        m, k = keep.masses(len(targets) if mass is None else float(mass.sum()), whole=is_whole(mass))
        space = RowSpace.of(rows)
        given = Design(X, bool(self.fit_intercept))
        design = Design(rows if space is None else space.X, given.fit_intercept)
        C = 1.0 if self.C == "auto" else float(self.C) / (scale_of(weight) if self.m == "auto" else 1.0)
        objective = Objective(design, targets, loss, C * (k - m), n_outputs, m=m, k=k, sample_weight=mass)
        objective = searched(self, self._by_class(objective), groups)
        if space is not None:
            clean = None if clean is None else (space.coordinates(clean[0]), clean[1])
        unit = unit_of(weight, factor)
        together = None if by_groups(self.aggregate) else groups
        objective, choice = self._choose(objective, clean, rng, unit, together)
        objective = aggregated(self, objective, groups)
        self.C_ = objective.C_of_sum
        attempts = [(objective.m, None)] if choice is None else [*choice.fits, (0, None)]
        for m, fit in attempts:
            objective = objective.ranked(m * unit if fit is not None else m, objective.k)
            result = self._run_chosen(objective, fit, rng)
            if (
                choice is None
                or clean is not None
                or not loses_a_class(searched(self, objective, groups), result.w, objective.m)
            ):
                break
        if isinstance(self.k, str) and self.k == "adaptive":
            objective, result = adapt_k(objective, result, lambda part, W: self._run_chosen(part, W, rng))
        self.m_: float = as_count(objective.m)
        self.k_: float = as_count(objective.k)
        if space is not None:
            result = replace(result, w=_with_slopes(space.coefficients, result.w, design.d))
        self._store(result, replace(objective, design=given))
        as_given = self._by_class(replace(objective, design=given, y=y, sample_weight=product_of(weight, factor)))
        as_given = aggregated(self, as_given, given_groups)
        losses = result.losses if rows is X else None
        self._store_cuts(as_given.losses(given.scores(result.w)) if losses is None else losses, as_given)
        if not result.converged:
            warnings.warn(
                f"the fit did not reach tol={self.tol:g}: {result.message}; raise max_iter, scale "
                "the features, or lower C",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _by_class(self, objective: Objective) -> Objective:
        return objective

    def _compare_groups(self, X: Any, y: Array, weight: Array | None, loss: Any, n_outputs: int, groups: Any) -> None:
        """Set `groups_`, the loss of each group under the ordinary fit and this one; only for aggregates of groups."""
        self.__dict__.pop("groups_", None)
        if not by_groups(self.aggregate):
            return
        names, codes = np.unique(group_names(groups, X), return_inverse=True)
        total = float(X.shape[0] if weight is None else weight.sum())
        design = Design(X, bool(self.fit_intercept))
        objective = Objective(design, y, loss, self.C_ * total, n_outputs, m=0, k=total, sample_weight=weight)
        before = solve("auto", objective, None, Settings(tol=1e-3)).w
        here = self._warm(design, n_outputs)
        assert here is not None
        ordinary, robust = design.scores(before), design.scores(here)
        losses = objective.losses(ordinary), objective.losses(robust)
        right = None
        if is_classifier(self):
            right = predicted_codes(ordinary) == objective.strata, predicted_codes(robust) == objective.strata
        self.groups_ = group_table(names, codes, objective.mass.astype(np.float64), self.dropped_, losses, right)

    def _forget(self) -> None:
        """Remove the attributes of an earlier fit with other settings."""
        for name in ("path_", "confirmation_", "_noise", "n_passes_"):
            self.__dict__.pop(name, None)

    def _choose(
        self,
        objective: Objective,
        clean: tuple[Any, Array] | None,
        rng: np.random.Generator,
        unit: float,
        groups: Array | None,
    ) -> tuple[Objective, Choice | None]:
        """The objective with chosen values in place of "auto", and the `Choice` of m or k; None if neither is chosen.

        With a clean validation set, m and k are chosen by the paper's Algorithm 2. Otherwise m is chosen by
        cross-validation, and k="auto" keeps all ranks after m. Masses are measured in `unit`, so the choice does not
        depend on the scale of relative weights.
        """
        fixed = isinstance(self.m, RankedRange)
        chosen = not fixed and uses_m(self.aggregate)
        auto = {name: chosen and self._is_auto(name) for name in ("m", "k")}
        self._forget()
        n_jobs = effective_n_jobs(self.n_jobs)
        if self.C == "auto" and (clean is not None or not auto["m"]):
            C, self.path_ = choose_C(objective.in_units(unit), rng, n_jobs, groups)
            C /= unit
            objective = replace(objective, C=C * objective.kept)
        if clean is not None:
            if not uses_m(self.aggregate):
                raise ValueError(
                    f"X_val and y_val choose m and k, which have no effect on {self.aggregate!r}; leave them out"
                )
            if not any(auto.values()):
                raise ValueError(
                    f"X_val and y_val choose m and k, got m={self.m!r}, k={self.k!r}, which leave nothing to choose; "
                    "pass m='auto' or k='auto', or leave X_val and y_val out"
                )
            X_val, y_val = clean
            known = Objective(Design(X_val, bool(self.fit_intercept)), y_val, objective.loss, 1.0, objective.n_outputs)
            choice = choose_with_validation(
                objective.in_units(unit),
                known,
                choose_m=auto["m"],
                choose_k=auto["k"] and self.k == "auto",
            )
        elif auto["m"]:
            counted = objective.in_units(unit)
            given = None if self.C == "auto" else counted.C_of_sum
            choice = choose_m(counted, rng, C=given, n_jobs=n_jobs, groups=groups)
        else:
            return objective, None
        self._store_choice(choice)
        m, k = choice.m * unit, objective.k if choice.k is None else choice.k * unit
        C = objective.C_of_sum if self.C != "auto" or choice.C is None else choice.C / unit
        return replace(objective, m=m, k=k, C=C * (k - m)), choice

    def _store_choice(self, choice: Choice) -> None:
        self.path_ = choice.table
        self._noise: Any = choice.noise

    def _noise_found(self) -> tuple[float, float, float]:
        """The share of errors and its interval, computed when they are first read."""
        noise = self.__dict__.get("_noise")
        if noise is None:
            raise AttributeError(
                "noise_estimate_ and noise_interval_ need a fit that chose m or k, in memory; a model that was loaded "
                "has them only if they were read before it was saved"
            )
        share, low, high = noise if isinstance(noise, tuple) else map(float, noise())
        self._noise = share, low, high
        return share, low, high

    @property
    def noise_estimate_(self) -> float:
        """The estimated share of wrong labels or outliers."""
        return self._noise_found()[0]

    @property
    def noise_interval_(self) -> tuple[float, float]:
        """The 95% interval of `noise_estimate_`."""
        return self._noise_found()[1:]

    def _run_chosen(self, objective: Objective, start: Array | None, rng: np.random.Generator) -> Result:
        """Search, with `start` as one more start if the choice of m produced one."""
        settings = Settings(float(self.tol), int(self.max_iter), int(self.n_starts), rng)
        return solve("auto", objective, start, settings)

    def _warm(self, design: Design, n_outputs: int) -> Array | None:
        W = np.zeros((n_outputs, design.p))
        coef = self._dense_coef()
        if coef.shape != (n_outputs, design.d):
            return None
        W[:, : design.d] = coef
        if design.fit_intercept:
            W[:, -1] = self.intercept_
        return W

    def _store(self, result: Result, objective: Objective) -> None:
        """Store the result. The documented objective, C * sum of kept losses + penalty, is the solver's times its C.

        Without a penalty (C = inf) it is the sum of the kept losses.
        """
        self._store_weights(result.w, objective.design)
        factor = objective.C if np.isfinite(objective.C) else objective.kept
        self.objective_ = float(result.value) * factor
        self.n_iter_ = max(1, int(result.n_iter))  # certifying an optimal start counts as one iteration
        self.converged_ = bool(result.converged)
        self.certificate_ = float(result.certificate)
        self.message_ = result.message
        self.history_ = {
            "phase": np.array([phase for phase, _ in result.history]),
            "objective": np.array([value for _, value in result.history]) * factor,
        }

    def _store_cuts(self, losses: Array, objective: Objective) -> None:
        """Store the cuts and the dropped rows, in the order of the training rows."""
        lower, upper = cuts_of(losses, objective.m, objective.k, objective.sample_weight)
        if hasattr(objective.aggregate, "groups"):
            self.lam_ = float(lower.value)
            self.lam_hat_, self.dropped_ = cuts_by_group(losses, objective, Stratified(objective.aggregate.groups))
            return
        self.lam_ = float(lower.value)
        self.lam_hat_ = float(upper.value)
        # All m cut rows count: losses > lam_hat would leave out the m-th itself (docs/paper.md). Rows that tie at the
        # cut and are partly kept are not dropped.
        self.dropped_ = losses >= upper.value if objective.m and upper.takes_tie else losses > upper.value

    def _linear(self, X: Any, W: Array | None = None) -> Any:
        """Scores (n, r) of the rows of X for the fitted parameters or for W (r, p), on the device of X."""
        check_is_fitted(self, "coef_")
        if W is None:
            coef, intercept = self._dense_coef(), np.atleast_1d(self.intercept_)
        else:
            coef, intercept = W[:, : self.n_features_in_], W[:, -1] if self.fit_intercept else np.zeros(len(W))
        if on_device(X):
            return tensor_scores(self, X, np.column_stack([coef, intercept]))
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return X @ coef.T + intercept

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _with_slopes(change: Callable[[Array], Array], W: Array, d: int) -> Array:
    """Apply `change` to the first d columns of W, the slopes, and leave the intercepts as they are."""
    return np.column_stack([change(W[:, :d]), W[:, d:]])


def clean_rows(estimator: AoRRLinear, X_val: Any, y_val: Any, dtype: Any) -> tuple[Any, Array] | None:
    """Validate X_val and y_val and return them as arrays; None if there is no validation set."""
    if X_val is None and y_val is None:
        return None
    if X_val is None or y_val is None:
        given, missing = ("X_val", "y_val") if y_val is None else ("y_val", "X_val")
        raise ValueError(f"a validation set needs X_val and y_val, got {given} alone; pass {missing} too")
    if np.shape(X_val)[:1] == (0,):
        raise ValueError(f"the validation set must have at least one row, got X_val of shape {np.shape(X_val)}")
    X_val = validate_data(estimator, X_val, accept_sparse="csr", dtype=dtype, reset=False)
    y_val = column_or_1d(y_val)
    if len(y_val) != X_val.shape[0]:
        raise ValueError(
            f"X_val and y_val must have the same number of rows, got {X_val.shape[0]} and {len(y_val)}; "
            "pass one label per row"
        )
    return X_val, y_val


def group_codes(groups: Any, X: Any) -> Array | None:
    """The group of each row of X as a number; None if there are no groups."""
    if groups is None:
        return None
    return np.unique(group_names(groups, X), return_inverse=True)[1]


def group_names(groups: Any, X: Any) -> Array:
    """Validate groups, one value per row of X and none missing, and return them as an array; objects as strings."""
    groups = np.asarray(groups)
    if groups.ndim != 1:
        raise ValueError(f"groups must have shape (n_samples,), one value per row, got shape {groups.shape}")
    check_consistent_length(X, groups)
    missing = [value is None or value != value for value in groups.tolist()]
    if any(missing):
        raise ValueError(f"groups must not be missing, got {sum(missing)} rows without one; name a group for them")
    return groups.astype(str) if groups.dtype == object else groups


def check_flags(estimator: Any) -> None:
    """Raise a ValueError unless boolean parameters are booleans, 0 or 1: a string such as "no" would count as true."""
    for name in ("fit_intercept", "stratify"):
        value = getattr(estimator, name, False)
        if not isinstance(value, bool | np.bool_) and not (isinstance(value, numbers.Integral) and value in (0, 1)):
            raise ValueError(f"{name} must be True or False, got {value!r}")


def check_positive(estimator: Any, *names: str) -> None:
    """Raise a ValueError unless these parameters are finite numbers above 0."""
    for name in names:
        value = getattr(estimator, name)
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < np.inf:
            raise ValueError(f"{name} must be a number above 0 and finite, got {value!r}")


def check_C(C: Any, *, most: float = np.finfo(np.float64).max, auto: bool = True) -> None:
    """Raise a ValueError unless C is "auto" or in (0, most]; with `auto`, the message offers "auto" as well."""
    if isinstance(C, str) and C == "auto":
        return
    if isinstance(C, bool) or not isinstance(C, numbers.Real) or not 0 < float(C) <= most:
        end = " (inf is no penalty)" if np.isinf(most) else " and finite"
        word = "'auto' or " if auto else ""
        raise ValueError(f"C must be {word}a number above 0{end}, got {C!r}; 1.0 is scikit-learn's default")


def _many_columns(X: Any) -> bool:
    """Whether X is sparse, mostly zeros, and so wide that solvers should only form products with it."""
    return sp.issparse(X) and X.shape[1] >= PRODUCTS_FROM and 10 * X.nnz <= X.shape[0] * X.shape[1]


def seed_of(random_state: Any) -> int:
    """A seed for one fit, from anything that scikit-learn accepts as `random_state`."""
    if isinstance(random_state, int):
        return _seed_of_int(random_state)
    return int(check_random_state(random_state).randint(2**31))


@lru_cache(maxsize=64)
def _seed_of_int(random_state: int) -> int:
    """The seed for an int, cached: creating a generator costs as much as several passes over a small X."""
    return int(check_random_state(random_state).randint(2**31))


def warn_of_lost_class(classes: Array, codes: Array, mass: Array, dropped: Array, advice: str, stacklevel: int) -> None:
    """Warn if more than half of the rows of a class were dropped; the warning names the worst class."""
    size = np.bincount(codes, weights=mass, minlength=len(classes))
    cut = np.bincount(codes, weights=mass * dropped, minlength=len(size))
    lost = np.divide(cut, size, out=np.zeros_like(cut), where=size > 0)
    worst = int(lost.argmax())
    if lost[worst] > 0.5:
        warnings.warn(
            f"{lost[worst]:.0%} of the rows of class {classes.tolist()[worst]!r} were dropped ({cut[worst]:g} of "
            f"{size[worst]:g}): {advice}",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
