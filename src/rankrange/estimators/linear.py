"""AoRRClassifier and AoRRRegressor: linear models trained on a ranked range of their losses."""

from __future__ import annotations

import numbers
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data

from ..core.losses import Absolute, CrammerSinger, Hinge, Huber, Logistic, Softmax, Squared
from ..core.objective import Design, Objective
from ..core.ranges import RankedRange
from ..core.select import cuts_of
from ..core.stratified import StratifiedObjective
from ..crossfit.choose import Choice, Report, adapt_k, choose_m, mass_of, silent, strata_of
from ..crossfit.with_clean import choose_with_validation
from ..solvers import Log, Result, bilevel, dca, multistart, subgradient
from ..solvers.multistart import _on_all_rows as refine
from .prepare import canonical_rows
from .streaming import Stream

Array = NDArray[Any]
_SOLVERS = ("auto", "dca", "subgradient", "bilevel")


class _AoRRLinear(BaseEstimator):
    """What classifier and regressor share: parameters, fit, attributes."""

    def __init__(
        self,
        m: Any = "auto",
        k: Any = "auto",
        *,
        loss: str,
        C: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        n_starts: int = 10,
        max_iter: int = 200,
        tol: float = 1e-6,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        operations: Any = None,
    ) -> None:
        self.m = m
        self.k = k
        self.loss = loss
        self.C = C
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.n_starts = n_starts
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start
        self.operations = operations

    def _is_auto(self, name: str) -> bool:
        value = getattr(self, name)
        words = ("auto", "adaptive") if name == "k" and is_classifier(self) else ("auto",)
        if isinstance(value, str) and value not in words:
            raise ValueError(
                f"{name} must be {' or '.join(map(repr, words))}, an int (a count) or a float in [0, 1], got {value!r}"
            )
        return isinstance(value, str)

    def _range(self) -> RankedRange:
        """The range as given, with m = 0 and k = n for what is to be chosen."""
        if isinstance(self.m, RankedRange):
            if not self._is_auto("k"):
                raise TypeError(f"{self.m!r} already says what to keep, got k={self.k!r} beside it; leave k out")
            return self.m
        return RankedRange(0 if self._is_auto("m") else self.m, 1.0 if self._is_auto("k") else self.k)

    def _check_params(self) -> None:
        for name, lowest in (("C", 0.0), ("tol", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or not lowest < float(value) < np.inf:
                raise ValueError(f"{name} must be a number above {lowest:g} and finite, got {value!r}")
        for name, least in (("max_iter", 1), ("n_starts", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
                raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")
        if self.solver not in _SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(_SOLVERS)}, got {self.solver!r}")

    def _solve(
        self, X: Any, y: Array, weight: Array | None, loss: Any, n_outputs: int, clean: tuple[Any, Array] | None
    ) -> None:
        """Build the objective, choose m and k, run the solver, store the result under the documented names."""
        keep = self._range()
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        rows, targets, mass = canonical_rows(X, y, weight)
        whole = mass is None or bool((mass == np.floor(mass)).all())
        m, k = keep.masses(len(targets) if mass is None else float(mass.sum()), whole=whole)
        design = Design(rows, bool(self.fit_intercept))
        objective = Objective(design, targets, loss, float(self.C), n_outputs, m=m, k=k, sample_weight=mass)
        objective = self._by_class(objective)
        start = self._warm(design, n_outputs) if self.warm_start and hasattr(self, "coef_") else None
        choice = self._choose(objective, clean, rng)
        if choice is not None:
            objective = replace(objective, m=choice.m, k=objective.k if choice.k is None else choice.k)
        result = self._run_chosen(objective, start, None if choice is None else choice.start, rng)
        if isinstance(self.k, str) and self.k == "adaptive":
            objective, result = adapt_k(objective, result, lambda part, W: self._run_chosen(part, None, W, rng))
        self.m_: float = int(objective.m) if whole else float(objective.m)
        self.k_: float = int(objective.k) if whole else float(objective.k)
        self._store(result, design)
        given = Design(X, design.fit_intercept)
        as_given = self._by_class(replace(objective, design=given, y=y, sample_weight=weight))
        losses = result.losses if rows is X else None
        self._store_cuts(as_given.losses(given.scores(result.w)) if losses is None else losses, as_given)
        if not result.converged:
            warnings.warn(
                f"the {self.solver!r} solver did not reach tol={self.tol:g}: {result.message}; raise max_iter, scale "
                "the features, or lower C",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _by_class(self, objective: Objective) -> Objective:
        return objective

    def _choose(self, objective: Objective, clean: tuple[Any, Array] | None, rng: np.random.Generator) -> Choice | None:
        """m and k where they are left open; with a clean validation set by Algorithm 2."""
        fixed = isinstance(self.m, RankedRange)
        auto = {name: not fixed and self._is_auto(name) for name in ("m", "k")}
        for name in ("tuning_", "noise_estimate_", "noise_interval_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        report: Report = print if self.verbose else silent
        if clean is not None:
            if not any(auto.values()):
                raise ValueError(
                    f"X_val and y_val choose m and k, got m={self.m!r}, k={self.k!r}, which leave nothing to choose; "
                    "pass m='auto' or k='auto', or leave X_val and y_val out"
                )
            X_val, y_val = clean
            known = Objective(Design(X_val, bool(self.fit_intercept)), y_val, objective.loss, 1.0, objective.n_outputs)
            choice = choose_with_validation(
                objective,
                known,
                self.operations,
                choose_m=auto["m"],
                choose_k=auto["k"] and self.k == "auto",
                report=report,
            )
        elif auto["m"]:
            choice = choose_m(objective, rng, report)
        else:
            return None
        self.tuning_ = choice.table
        self.noise_estimate_, *interval = map(float, choice.noise)
        self.noise_interval_ = tuple(interval)
        if self.verbose:
            print(f"m = {choice.m:g} of {objective.total:g}: {choice.reason}")
        return choice

    def _run_chosen(
        self, objective: Objective, warm: Array | None, start: Array | None, rng: np.random.Generator
    ) -> Result:
        """Go on from `start` where the choice ended in one; else search, with `warm` as one more start."""
        if start is None:
            return self._run(objective, warm, rng)
        if self.solver != "auto":
            return self._run(objective, start, rng)
        log = Log(print if self.verbose else None)
        return refine(objective, start[None], rng, float(self.tol), int(self.max_iter), log)

    def _run(self, objective: Objective, start: Array | None, rng: np.random.Generator) -> Result:
        log = Log(print if self.verbose else None)
        common: dict[str, Any] = {"tol": float(self.tol), "log": log}
        if self.solver == "auto":
            return multistart(
                objective, start, n_starts=int(self.n_starts), rng=rng, max_iter=int(self.max_iter), **common
            )
        shape = (objective.n_outputs, objective.design.p)
        if self.solver == "subgradient":
            start = rng.normal(scale=0.01, size=shape) if start is None else start
            return subgradient(objective, start, inner=10 * int(self.max_iter), **common)
        if start is None:  # the ordinary fit; at zero all losses tie, and both methods would stay there
            start = bilevel(replace(objective, m=0, k=objective.total), np.zeros(shape), tol=1e-4).w
        method = dca if self.solver == "dca" else bilevel
        return method(objective, start, max_iter=int(self.max_iter), **common)

    def _warm(self, design: Design, n_outputs: int) -> Array | None:
        W = np.zeros((n_outputs, design.p))
        coef = np.atleast_2d(self.coef_)
        if coef.shape != (n_outputs, design.d):
            return None
        W[:, : design.d] = coef
        if design.fit_intercept:
            W[:, -1] = self.intercept_
        return W

    def _store(self, result: Result, design: Design) -> None:
        self._store_weights(result.w, design)
        self.objective_ = float(result.value)
        self.n_iter_ = max(1, int(result.n_iter))  # the certificate of a start that was optimal takes one look too
        self.converged_ = bool(result.converged)
        self.certificate_ = float(result.certificate)
        self.message_ = result.message
        self.history_ = {
            "phase": np.array([phase for phase, _ in result.history]),
            "objective": np.array([value for _, value in result.history]),
        }

    def _store_cuts(self, losses: Array, objective: Objective) -> None:
        """The cuts and the dropped rows, on the rows as they were given."""
        lower, upper = cuts_of(losses, self.m_, self.k_, objective.sample_weight)
        self.lam_ = float(lower.value)
        self.lam_hat_: Any = float(upper.value)
        # All m cut rows count: losses > lam_hat would leave out the m-th itself (docs/paper.md). Rows that tie at the
        # cut and are partly kept are not dropped.
        self.dropped_ = losses >= upper.value if self.m_ and upper.taken >= upper.tied else losses > upper.value

    def _learn(self, X: Any, y: Array, weight: Array | None, loss: Any, n_outputs: int) -> None:
        """One pass of `partial_fit`."""
        keep = self._range()
        if (isinstance(keep.m, int) and keep.m > 0) or isinstance(keep.k, int):
            raise ValueError(
                f"a stream has no length, so partial_fit needs m and k as fractions, got m={self.m!r}, k={self.k!r}; "
                "pass for example m=0.1, k=1.0"
            )
        design = Design(X, bool(self.fit_intercept))
        objective = Objective(design, y, loss, float(self.C), n_outputs, sample_weight=weight)
        shape = (n_outputs, design.p)
        stream = Stream(self.stream_) if hasattr(self, "stream_") else Stream.start(shape)
        if not hasattr(self, "stream_") and hasattr(self, "coef_"):  # go on from a fit
            known = self._warm(design, n_outputs)
            stream.W = stream.W if known is None else known
        stream.learn(objective, float(keep.m), float(keep.k))
        self.stream_: dict[str, Array] = stream.state()
        self.m_, self.k_ = float(keep.m), float(keep.k)
        self.lam_, self.lam_hat_ = stream.lam, stream.lam_hat
        self._store_weights(stream.W, design)

    def _linear(self, X: Any) -> Array:
        """Scores (n, r)."""
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return X @ np.atleast_2d(self.coef_).T + self.intercept_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _clean_rows(estimator: _AoRRLinear, X_val: Any, y_val: Any, dtype: Any) -> tuple[Any, Array] | None:
    """The validation set, checked; None where there is none."""
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
            f"X_val and y_val must have as many rows, got {X_val.shape[0]} and {len(y_val)}; pass one label a row"
        )
    return X_val, y_val


class AoRRClassifier(ClassifierMixin, _AoRRLinear):
    """Linear classifier that keeps the training losses ranked m+1..k and ignores the others.

    It minimises the average of the kept losses + ||coef||^2 / (2 C); the intercept is not penalised. Cutting the top m
    removes outliers and wrong labels completely; k below n keeps the fit from being dominated by what is already
    easy. Average, maximum, average top-k, median and trimmed losses are settings of (m, k); see `RankedRange`.

    Parameters
    ----------
    m, k : "auto", int, float or, for m, a RankedRange
        An int is a count, a float in [0, 1] a fraction of the training rows. m="auto" is chosen by cross-validation
        against the labels as they are (docs/auto.md), and is 0 unless that shows a gain; k="auto" is all rows. With
        a clean validation set both are learnt from its losses (Algorithm 2). k="adaptive" starts at n and falls to
        n/2, n/4, n/8, n/16, n/32 as the training accuracy passes 70, 80, 90, 95, 99.5%. A stream (`partial_fit`) can
        not be cross-validated: there "auto" cuts nothing.
    loss : "logistic" (softmax for more than two classes) or "hinge" (Crammer-Singer)
    C : float
        Inverse strength of the penalty, relative to the *mean* loss: C here is n times scikit-learn's C, and the
        default is a strong penalty; C=len(y) is scikit-learn's default.
    solver : "auto", "dca", "subgradient" or "bilevel"
        "auto" searches from many starts and certifies the result. "dca" is the paper's Algorithm 1 with exact inner
        solves, "bilevel" its section 3.1, both from the ordinary fit. "subgradient" is Algorithm 1 as printed, for
        comparison: 5 rounds of 10 * max_iter steps.
    n_starts : int
        Random starts of "auto", beside the ordinary fit and one that leaves out far rows.
    max_iter, tol : int, float
        Budget of iterations, and the relative duality gap at which the fit has converged.
    class_weight : dict, "balanced" or None
        Multiplies sample_weight.
    random_state, n_jobs, verbose, warm_start
        As in scikit-learn. The result does not depend on n_jobs. With warm_start the last solution is one more start.
    stratify : bool
        Cut the same share of each class, so that a rare class is not erased; lam_hat_ is then one cut a class.
        Without it a warning says where a class lost more than half of its rows.
    operations : None, two quantiles, or two functions of the losses
        How a clean validation set (X_val and y_val of `fit`) gives the upper and the lower cut: None is the paper's,
        mean + 1 and mean - 2 standard deviations of its losses; (0.95, 0.0) are quantiles of them.

    Attributes
    ----------
    coef_ (1 or n_classes, n_features), intercept_, classes_, n_features_in_
    m_, k_ : the counts (with fractional weights: masses) that were used
    lam_, lam_hat_ : the cuts s_[k] and s_[m] of the training losses; lam_hat_ is infinite for m = 0
    dropped_ : bool (n,), the training rows that were cut
    objective_, n_iter_, converged_, message_
    certificate_ : float
        A proved bound on (objective_ - best) / objective_, where best is the least value with the same rows cut: the
        least of all for m = 0, and otherwise a local minimum wherever s_[m] > s_[m+1]. Infinite if nothing is proved.
    history_ : dict of arrays "phase" and "objective"
    tuning_ : dict of arrays (where something was chosen)
        For each fit that was compared "m" (a share), "path", "score", and "gain" over m = 0 with its standard "error".
        With a clean validation set, for each look at it, "m", "k", "lam_hat", "lam" and "validation_loss".
    noise_estimate_, noise_interval_ : float and a pair (where something was chosen)
        The estimated share of wrong labels, and its 95% interval. It is not m_ / n: m_ is what trains best.
    """

    def __init__(
        self,
        m: Any = "auto",
        k: Any = "auto",
        *,
        loss: str = "logistic",
        C: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        n_starts: int = 10,
        max_iter: int = 200,
        tol: float = 1e-6,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        stratify: bool = False,
        operations: Any = None,
    ) -> None:
        super().__init__(
            m,
            k,
            loss=loss,
            C=C,
            fit_intercept=fit_intercept,
            solver=solver,
            n_starts=n_starts,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
            warm_start=warm_start,
            operations=operations,
        )
        self.class_weight = class_weight
        self.stratify = stratify

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> AoRRClassifier:
        """Fit to the rows of X (dense or sparse) and their labels y.

        X_val and y_val are rows whose labels are known to be right: m and k are then learnt from their losses.
        """
        self._check_params()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        weight = self._mass(X, codes, sample_weight)
        self._check_classes(codes if weight is None else codes[weight > 0])
        loss, n_outputs = self._loss()
        clean = _clean_rows(self, X_val, y_val, X.dtype)
        if clean is not None:
            unknown = np.setdiff1d(clean[1], self.classes_)
            if len(unknown):
                raise ValueError(
                    f"y_val must hold classes of y only, got {unknown[:5].tolist()}, which are not among "
                    f"{self.classes_[:10].tolist()}; drop these rows or add the classes to y"
                )
            clean = clean[0], self._encode(np.searchsorted(self.classes_, clean[1]), X.dtype)
        y = self._encode(codes, X.dtype)
        del codes  # as long as y; the fit needs the memory
        self._solve(X, y, weight, loss, n_outputs, clean)
        return self

    def _by_class(self, objective: Objective) -> Objective:
        if not self.stratify:
            return objective
        fields = {name: getattr(objective, name) for name in objective.__dataclass_fields__}
        return StratifiedObjective(**{**fields, "groups": strata_of(objective)})

    def _store_cuts(self, losses: Array, objective: Objective) -> None:
        super()._store_cuts(losses, objective)
        codes = strata_of(objective)
        if isinstance(objective, StratifiedObjective):
            lam_hat, self.dropped_ = np.full(len(self.classes_), np.inf), np.zeros(len(losses), dtype=bool)
            for rows, cut in objective.cuts(losses):
                lam_hat[codes[rows[0]]] = cut.value
                over = losses[rows] >= cut.value if cut.taken >= cut.tied else losses[rows] > cut.value
                self.dropped_[rows[over]] = True
            self.lam_hat_ = lam_hat
        self._warn_of_lost_classes(codes, mass_of(objective).astype(np.float64))

    def _warn_of_lost_classes(self, codes: Array, mass: Array) -> None:
        size = np.bincount(codes, weights=mass, minlength=len(self.classes_))
        cut = np.bincount(codes, weights=mass * self.dropped_, minlength=len(size))
        lost = np.divide(cut, size, out=np.zeros_like(cut), where=size > 0)
        if (lost > 0.5).any():
            worst = int(lost.argmax())
            warnings.warn(
                f"{lost[worst]:.0%} of the rows of class {self.classes_.tolist()[worst]!r} were cut ({cut[worst]:g} of "
                f"{size[worst]:g}): it may be rare, not wrong; stratify=True cuts the same share of each class",
                UserWarning,
                stacklevel=5,
            )

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> AoRRClassifier:
        """Learn from one more part of a stream; the first call must name all classes. m and k must be fractions."""
        self._check_params()
        first = not hasattr(self, "stream_")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=first)
        if classes is not None and first:
            self.classes_ = np.unique(classes)
        elif not hasattr(self, "classes_"):
            raise ValueError("the first call of partial_fit must name all classes; pass classes=np.unique(labels)")
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y holds labels that were not among the classes of the first call: {unknown[:5]}")
        codes = np.searchsorted(self.classes_, y)
        self._check_classes(np.arange(len(self.classes_)))
        loss, n_outputs = self._loss()
        self._learn(X, self._encode(codes, X.dtype), self._mass(X, codes, sample_weight), loss, n_outputs)
        return self

    def _mass(self, X: Any, codes: Array, sample_weight: Any) -> Array | None:
        if sample_weight is None and self.class_weight is None:
            return None
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.class_weight is not None:
            present = np.unique(codes)
            balance = compute_class_weight(self.class_weight, classes=self.classes_[present], y=self.classes_[codes])
            weight = weight * balance[np.searchsorted(present, codes)]
        return weight

    def _check_classes(self, codes: Array) -> None:
        present = np.flatnonzero(np.bincount(codes, minlength=len(self.classes_)))
        if len(present) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes with positive weight, got one class: "
                f"{self.classes_[present]}; check y"
            )

    def _loss(self) -> tuple[Any, int]:
        if self.loss not in ("logistic", "hinge"):
            raise ValueError(f"loss must be 'logistic' or 'hinge', got {self.loss!r}")
        if len(self.classes_) == 2:
            return (Logistic() if self.loss == "logistic" else Hinge()), 1
        return (Softmax() if self.loss == "logistic" else CrammerSinger()), len(self.classes_)

    def _encode(self, codes: Array, dtype: Any) -> Array:
        return (2 * codes - 1).astype(dtype) if len(self.classes_) == 2 else codes

    def _store_weights(self, W: Array, design: Design) -> None:
        self.coef_ = W[:, : design.d].astype(design.X.dtype)
        self.intercept_ = (W[:, -1] if design.fit_intercept else np.zeros(len(W))).astype(design.X.dtype)

    def decision_function(self, X: Any) -> Array:
        """Scores: (n,) for two classes, positive for classes_[1]; else (n, n_classes)."""
        scores = self._linear(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> Array:
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[chosen]

    @available_if(lambda self: self.loss == "logistic")
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities of the logistic model."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack([expit(-scores), expit(scores)], axis=1)
        return softmax(scores, axis=1)

    @available_if(lambda self: self.loss == "logistic")
    def predict_log_proba(self, X: Any) -> Array:
        return np.log(self.predict_proba(X))


class AoRRRegressor(RegressorMixin, _AoRRLinear):
    """Linear regression that keeps the training losses ranked m+1..k; with loss="squared", k=1.0 least trimmed squares.

    It minimises the average of the kept losses + ||coef||^2 / (2 C). loss is "squared", (y - z)^2; "absolute",
    |y - z|; or "huber", (y - z)^2 / 2 within 1 of y and linear beyond. The other parameters and the attributes are
    those of `AoRRClassifier`.
    """

    def __init__(
        self,
        m: Any = "auto",
        k: Any = "auto",
        *,
        loss: str = "squared",
        C: float = 1.0,
        fit_intercept: bool = True,
        solver: str = "auto",
        n_starts: int = 10,
        max_iter: int = 200,
        tol: float = 1e-6,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        operations: Any = None,
    ) -> None:
        super().__init__(
            m,
            k,
            loss=loss,
            C=C,
            fit_intercept=fit_intercept,
            solver=solver,
            n_starts=n_starts,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
            warm_start=warm_start,
            operations=operations,
        )

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None) -> AoRRRegressor:
        """Fit to the rows of X (dense or sparse) and their targets y; X_val and y_val are rows without outliers."""
        self._check_params()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        clean = _clean_rows(self, X_val, y_val, X.dtype)
        if clean is not None:
            clean = clean[0], np.asarray(clean[1], dtype=X.dtype)
        self._solve(X, y.astype(X.dtype, copy=False), weight, self._loss(), 1, clean)
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> AoRRRegressor:
        """Learn from one more part of a stream. m and k must be fractions."""
        self._check_params()
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            y_numeric=True,
            reset=not hasattr(self, "stream_"),
        )
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        self._learn(X, y.astype(X.dtype, copy=False), weight, self._loss(), 1)
        return self

    def _loss(self) -> Any:
        losses = {"squared": Squared, "absolute": Absolute, "huber": Huber}
        if self.loss not in losses:
            raise ValueError(f"loss must be one of {', '.join(losses)}, got {self.loss!r}")
        return losses[self.loss]()

    def _store_weights(self, W: Array, design: Design) -> None:
        self.coef_ = W[0, : design.d].astype(design.X.dtype)
        self.intercept_ = float(W[0, -1]) if design.fit_intercept else 0.0

    def predict(self, X: Any) -> Array:
        return self._linear(X)[:, 0]
