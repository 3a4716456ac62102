"""Base class of AoRRClassifier and AoRRRegressor: validate the data, build an objective, solve it, store the result."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.base import is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from ..compatibility import Interval, StrOptions, check_sample_weight
from ..core.arrays import Array
from ..core.cuts import Ranked
from ..core.objective import MAX_FACTORED_SPARSE, Design, Objective
from ..core.ranges import RankedRange
from ..core.row_space import RowSpace
from ..core.threads import threads_for
from ..crossfit.choose import Choice, adapt_k, choose_m, loses_a_class
from ..crossfit.held_out import choose_C, follow_penalties
from ..crossfit.with_clean import choose_with_validation
from ..solvers import Result, Settings, solve
from .aggregated import aggregates_of, by_groups, check_aggregate, cuts_by_group, group_table, uses_m
from .fitted import LinearModel, forget, range_of
from .streamed import fit_streamed, is_streamed, on_device, tensor_scores
from .weights import as_count, canonical_rows, is_whole, product_of, scale_of, unit_of


class Rows(NamedTuple):
    """Validated training data: X, encoded targets, sample weights and class weights of the rows, groups, clean rows.

    All but X and y may be None. `groups` are the names of the groups, and the number of the group of each row.
    """

    X: Any
    y: Array
    weight: Array | None
    factor: Array | None
    groups: tuple[Array, Array] | None
    clean: tuple[Any, Array] | None

    @property
    def mass(self) -> Array | None:
        """The weight of each row times that of its class."""
        return product_of(self.weight, self.factor)


class AoRRLinear(LinearModel):
    """Base class of the classifier and the regressor; `__init__` of the subclasses stores the parameters."""

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

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "m": [RankedRange, Integral, Real, StrOptions({"auto"})],
        "k": [Integral, Real, StrOptions({"auto"})],
        "C": [Interval(Real, 0, None, closed="right"), StrOptions({"auto"})],
        "fit_intercept": ["boolean"],
        "n_starts": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
    }
    # The losses that an l1 penalty supports.
    _l1_losses: tuple[str, ...]

    # ---- fitting

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        groups: Any = None,
    ) -> Any:
        """Fit the model to training data.

        Parameters
        ----------
        X : array_like, sparse matrix of shape (n_samples, n_features), scan, Dask collection or tensor
            Training data. A scan (`rankrange.scan`) also contains the targets and the weights.
        y : array_like of shape (n_samples,)
            Class labels or target values.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the rows. An integer weight is a repetition: weight 2 equals the row twice. Other weights are
            relative: with m="auto", multiplying all of them by a constant changes nothing, and C refers to weights that
            average one (docs/explanation/weights.md).
        X_val, y_val : array_like, optional
            A clean validation set, whose targets are known to be right. If m or k is "auto", it is then chosen from the
            losses of that set.
        groups : array_like of shape (n_samples,), optional
            The group of each row. If `aggregate` compares groups, these are the groups. Otherwise they are clusters,
            for example patients, and the folds that choose m or C never split a cluster; with a single cluster m is 0
            and C is 1 if they are "auto".

        Returns
        -------
        object
            The fitted estimator.
        """
        self._check_params()
        forget(self)
        if is_streamed(X):
            return fit_streamed(self, X, y, sample_weight, X_val=X_val, y_val=y_val, groups=groups)
        rows = self._validated(X, y, sample_weight, X_val, y_val, groups)
        with threads_for(rows.X):
            self._solve(rows)
            self._finish(rows)
        return self

    def _check_params(self) -> None:
        """Raise an error if a parameter is invalid, or if two parameters contradict each other."""
        self._validate_params()
        if self._l1 and self.loss not in self._l1_losses:
            raise ValueError(
                f"l1_ratio={self.l1_ratio!r} does not support loss={self.loss!r}; use one of "
                f"{', '.join(map(repr, self._l1_losses))}, or l1_ratio=0"
            )

    @property
    def _l1(self) -> float:
        """The share of the l1 penalty; 0 if there is no penalty."""
        return 0.0 if np.inf == self.C else float(self.l1_ratio)

    def _is_auto(self, name: str) -> bool:
        value = getattr(self, name)
        return isinstance(value, str) and value != "half"

    def _range(self) -> RankedRange:
        """The range as given, with m = 0 and k = n in place of "auto", and k = n in place of "adaptive"."""
        m, k = 0 if self._is_auto("m") else self.m, 1.0 if self._is_auto("k") else self.k
        return range_of(m, k, k_given=not self._is_auto("k"))

    def _validated(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any, groups: Any) -> Rows:
        """The data as validated arrays, with encoded targets."""
        raise NotImplementedError

    def _loss(self) -> tuple[Any, int]:
        """The loss of a row and the number of scores."""
        raise NotImplementedError

    def _finish(self, rows: Rows) -> None:
        """What follows the fit: the table of groups, calibration, a second step."""
        self._store_groups(rows)

    def _solve(self, rows: Rows) -> None:
        """Build the objective, choose m, k and C if they are "auto", run the solver and store the result.

        If an m that was chosen without clean rows drops more than half of a class in the final fit, the next smaller
        candidate is tried, and m = 0 in the end.
        """
        check_aggregate(self, rows.groups)
        rng = np.random.default_rng(seed_of(self.random_state))
        objective, groups, space = self._objective(rows)
        searched, aggregate = aggregates_of(self.aggregate, objective.strata, groups)
        unit = unit_of(rows.weight, rows.factor)
        objective = replace(objective, aggregate=searched)
        clean = rows.clean
        if clean is not None and space is not None:
            clean = space.coordinates(clean[0]), clean[1]
        objective, choice = self._choose(objective, clean, rng, unit, None if by_groups(self.aggregate) else groups)
        self.C_ = objective.C_of_sum
        for m, start in [(objective.m, None)] if choice is None else [*choice.fits, (0, None)]:
            objective = replace(objective.ranked(m if start is None else m * unit, objective.k), aggregate=aggregate)
            result = self._search(objective, start, rng)
            judged = replace(objective, aggregate=searched)
            if choice is None or clean is not None or not loses_a_class(judged, result.w, objective.m):
                break
        if isinstance(self.k, str) and self.k == "adaptive":
            objective, result = adapt_k(objective, result, lambda part, W: self._search(part, W, rng))
        if self._l1 and self.C == "auto" and "C" in self.__dict__.get("path_", {}):
            self.path_["coef"] = follow_penalties(objective, result.w, self.path_["C"])
        if space is not None:
            d = objective.design.d
            result = replace(result, w=np.column_stack([space.coefficients(result.w[:, :d]), result.w[:, d:]]))
        self._store_rows(rows, objective, result)

    def _objective(self, rows: Rows) -> tuple[Objective, Array | None, RowSpace | None]:
        """The objective on the rows in canonical form, the groups of these rows, and the row space that replaces X."""
        loss, n_outputs = self._loss()
        groups = None if rows.groups is None else rows.groups[1]
        # Texts of two classes: the search of dense rows ends no lower and takes up to four times as long.
        by_products = loss.targets == "binary" and self.m != "auto" and _many_columns(rows.X)
        X, y, mass, groups = canonical_rows(rows.X, rows.y, rows.weight, rows.factor, groups, as_sparse=by_products)
        m, k = self._range().masses(len(y) if mass is None else float(mass.sum()), whole=is_whole(mass))
        space = None if self._l1 else RowSpace.of(X)
        design = Design(X if space is None else space.X, bool(self.fit_intercept))
        C = 1.0 if self.C == "auto" else float(self.C) / (scale_of(rows.weight) if self.m == "auto" else 1.0)
        settings: dict[str, Any] = {"m": m, "k": k, "sample_weight": mass, "l1_ratio": self._l1}
        return Objective(design, y, loss, C * (k - m), n_outputs, **settings), groups, space

    def _choose(
        self, objective: Objective, clean: tuple[Any, Array] | None, rng: Any, unit: float, groups: Array | None
    ) -> tuple[Objective, Choice | None]:
        """The objective with chosen values in place of "auto", and the `Choice` of m or k; None if neither is chosen.

        With a clean validation set, m and k are chosen by the paper's Algorithm 2. Otherwise m is chosen by
        cross-validation, and k="auto" keeps all ranks after m. Masses are measured in `unit`, so the choice does not
        depend on the scale of relative weights.
        """
        chosen = not isinstance(self.m, RankedRange) and uses_m(self.aggregate)
        auto = {name: chosen and self._is_auto(name) for name in ("m", "k")}
        jobs: dict[str, Any] = {"n_jobs": effective_n_jobs(self.n_jobs), "groups": groups}
        if self.C == "auto" and (clean is not None or not auto["m"]):
            C, self.path_ = choose_C(objective.in_units(unit), rng, **jobs)
            objective = replace(objective, C=C / unit * objective.kept)
        counted = objective.in_units(unit)
        if clean is not None:
            if not any(auto.values()):
                raise ValueError(
                    f"X_val and y_val choose m and k, got m={self.m!r}, k={self.k!r} and aggregate={self.aggregate!r}, "
                    "which leave nothing to choose; pass m='auto' or k='auto', or leave X_val and y_val out"
                )
            known = replace(counted, design=Design(clean[0], counted.design.fit_intercept), y=clean[1])
            known = replace(known, m=0, k=1, C=1.0, sample_weight=None, aggregate=Ranked())
            choice = choose_with_validation(counted, known, choose_m=auto["m"], choose_k=auto["k"] and self.k == "auto")
        elif auto["m"]:
            choice = choose_m(counted, rng, C=None if self.C == "auto" else counted.C_of_sum, **jobs)
        else:
            return objective, None
        self._store_choice(choice)
        m, k = choice.m * unit, objective.k if choice.k is None else choice.k * unit
        C = objective.C_of_sum if self.C != "auto" or choice.C is None else choice.C / unit
        return replace(objective, m=m, k=k, C=C * (k - m)), choice

    def _search(self, objective: Objective, start: Array | None, rng: np.random.Generator) -> Result:
        """Search, with `start` as one more start if the choice of m produced one."""
        settings = Settings(float(self.tol), int(self.max_iter), int(self.n_starts), rng)
        return solve(objective, start, settings)

    # ---- fitted attributes

    def _store_choice(self, choice: Choice) -> None:
        self.path_ = choice.table
        self._noise: Any = choice.noise

    def _store_rows(self, rows: Rows, objective: Objective, result: Result) -> None:
        """Store the result with m, k, the cuts and the dropped rows; `objective` is on the rows in canonical form."""
        self.m_: float = as_count(objective.m)
        self.k_: float = as_count(objective.k)
        plain = rows.mass is None and self.aggregate is None and not self._l1
        if plain and not sp.issparse(rows.X):
            self._training = rows.X, rows.y  # for summaries; never saved
        given = replace(objective, design=Design(rows.X, bool(self.fit_intercept)), y=rows.y, sample_weight=rows.mass)
        groups = None if rows.groups is None else rows.groups[1]
        given = replace(given, aggregate=aggregates_of(self.aggregate, given.strata, groups)[1])
        self._store(result, given)
        losses = result.losses if objective.design.X is rows.X else None
        self._store_dropped(given.losses(given.design.scores(result.w)) if losses is None else losses, given)
        self._warn_unless_converged(self.tol, 4)

    def _store(self, result: Result, objective: Objective) -> None:
        """Store the result. The documented objective, C * sum of kept losses + penalty, is the solver's times its C.

        Without a penalty (C = inf) it is the sum of the kept losses.
        """
        self._store_coefficients(result.w, objective.design.X.dtype)
        self._store_result(result, objective.C if np.isfinite(objective.C) else objective.kept)

    def _store_dropped(self, losses: Array, objective: Objective) -> None:
        """Store the cuts and the dropped rows, in the order of the training rows."""
        self._store_cuts(losses, objective.m, objective.k, objective.sample_weight)
        if hasattr(objective.aggregate, "groups"):
            self.lam_hat_, self.dropped_ = cuts_by_group(losses, objective)

    def _ordinary_fit(self, X: Any, y: Array, mass: Array | None, share: float = 1.0) -> tuple[Objective, Array]:
        """The objective without trimming of rows with a `share` of the weight of all training rows, and its minimum."""
        loss, n_outputs = self._loss()
        design, total = Design(X, bool(self.fit_intercept)), float(X.shape[0] if mass is None else mass.sum())
        settings: dict[str, Any] = {"m": 0, "k": total, "sample_weight": mass, "l1_ratio": self._l1}
        objective = Objective(design, y, loss, self.C_ * total / share, n_outputs, **settings)
        return objective, solve(objective, None, Settings(tol=1e-3)).w

    def _store_groups(self, rows: Rows) -> None:
        """Set `groups_`, the loss of each group under the ordinary fit and this one; only for aggregates of groups."""
        if not by_groups(self.aggregate) or rows.groups is None:
            return
        objective, W = self._ordinary_fit(rows.X, rows.y, rows.mass)
        ordinary = objective.design.scores(W)
        robust = (rows.X @ self._dense_coef().T + self.intercept_).T
        self.groups_ = group_table(*rows.groups, objective, self.dropped_, ordinary, robust)

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

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the training rows. A saved model contains no data."""
        state = {name: value for name, value in super().__getstate__().items() if name != "_training"}
        if callable(state.get("_noise")):
            del state["_noise"]
        return state

    # ---- coefficients and predictions

    def sparsify(self) -> Any:
        """Convert `coef_` to a sparse matrix (outputs, n_features), which saves memory if most coefficients are zero.

        Returns
        -------
        object
            The model itself.
        """
        self.coef_ = self.sparse_coef_
        return self

    def densify(self) -> Any:
        """Undo `sparsify`.

        Returns
        -------
        object
            The model itself.
        """
        coef = self._dense_coef()
        self.coef_ = coef if is_classifier(self) else coef[0]
        return self

    @property
    def sparse_coef_(self) -> Any:
        """The coefficients (outputs, n_features) as a sparse matrix."""
        check_is_fitted(self, "coef_")
        return sp.csr_matrix(self.coef_)

    def _dense_coef(self) -> Array:
        """The coefficients (outputs, n_features)."""
        check_is_fitted(self, "coef_")
        return np.atleast_2d(self.coef_.toarray() if sp.issparse(self.coef_) else self.coef_)

    def _linear(self, X: Any, W: Array | None = None) -> Any:
        """Scores (n, r) of the rows of X for the fitted parameters or for W (r, p), on the device of X."""
        if W is None:
            coef, intercept = self._dense_coef(), np.atleast_1d(self.intercept_)
        else:
            coef, intercept = W[:, : self.n_features_in_], W[:, -1] if self.fit_intercept else np.zeros(len(W))
        if on_device(X):
            return tensor_scores(self, X, np.column_stack([coef, intercept]))
        return self._checked(X) @ coef.T + intercept


def clean_rows(estimator: AoRRLinear, X_val: Any, y_val: Any, dtype: Any) -> tuple[Any, Array] | None:
    """Validate X_val and y_val and return them as arrays; None if there is no validation set."""
    if X_val is None and y_val is None:
        return None
    if X_val is None or y_val is None:
        given, missing = ("X_val", "y_val") if y_val is None else ("y_val", "X_val")
        raise ValueError(f"a validation set needs X_val and y_val, got {given} alone; pass {missing} too")
    X_val = validate_data(estimator, X_val, accept_sparse="csr", dtype=dtype, reset=False)
    y_val = column_or_1d(y_val)
    check_consistent_length(X_val, y_val)
    return X_val, y_val


def numeric_target(y: Any) -> Any:
    """Convert texts and objects to floats. None becomes NaN, which validation refuses; it accepts None."""
    if y is None or np.asarray(y).dtype.kind not in "OUS":
        return y
    try:
        return np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must be numeric: {error}; use a classifier for labels") from None


def weights_of(sample_weight: Any, X: Any) -> Array | None:
    """Validate sample weights and return them in float64; None if there are none."""
    if sample_weight is None:
        return None
    return np.asarray(check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))


def group_codes(groups: Any, X: Any) -> tuple[Array, Array] | None:
    """The names of the groups, and the number of the group of each row of X; None if there are no groups."""
    if groups is None:
        return None
    groups = np.asarray(groups)
    if groups.ndim != 1:
        raise ValueError(f"groups must have shape (n_samples,), one value per row, got shape {groups.shape}")
    check_consistent_length(X, groups)
    missing = int(is_missing(groups).sum())
    if missing:
        raise ValueError(f"groups must not be missing, got {missing} rows without one; name a group for them")
    return np.unique(groups.astype(str) if groups.dtype == object else groups, return_inverse=True)


def is_missing(values: Array) -> Array:
    """Mask of the values that are None, NaN or pandas' NA or NaT; pandas need not be installed."""
    if values.dtype.kind != "O":
        return np.asarray(values != values)  # NaN and NaT alone differ from themselves
    absent = [value is None or type(value).__name__ == "NAType" or value != value for value in values.ravel()]
    return np.reshape(absent, values.shape)


def _many_columns(X: Any) -> bool:
    """Whether X is sparse, mostly zeros, and so wide that solvers should only form products with it."""
    return sp.issparse(X) and X.shape[1] >= MAX_FACTORED_SPARSE and 10 * X.nnz <= X.shape[0] * X.shape[1]


def seed_of(random_state: Any) -> int:
    """A seed for one fit, from anything that scikit-learn accepts as `random_state`."""
    return int(check_random_state(random_state).randint(2**31))


def check_loss(loss: Any, known: dict[str, Any]) -> None:
    """Raise a ValueError unless the loss is in the table; other modules may have added to it."""
    if loss not in known:
        raise ValueError(f"loss must be one of {', '.join(map(repr, known))}, got {loss!r}")


def check_present(estimator: Any, codes: Array) -> None:
    """Raise a ValueError unless the codes of the rows of positive weight have at least two classes."""
    present = np.unique(codes)
    if len(present) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs at least two classes with positive weight, got one class: "
            f"{estimator.classes_[present]}; check y"
        )


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
