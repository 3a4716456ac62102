"""AoRRClassifier: a linear classifier trained on a ranked range of its losses."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from ..core.losses import CrammerSinger, Hinge, Logistic, Softmax
from ..core.objective import Design, Objective
from ..core.stratified import StratifiedObjective
from ..crossfit.choose import mass_of, strata_of
from .linear import AoRRLinear, clean_rows, fitted_elsewhere

Array = NDArray[Any]


class AoRRClassifier(ClassifierMixin, AoRRLinear):
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

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None
    ) -> AoRRClassifier:
        """Fit to the rows of X (dense or sparse) and their labels y.

        X_val and y_val are rows whose labels are known to be right: m and k are then learnt from their losses. X may
        also be rows beyond memory, from `rankrange.scan`, which hold their labels and weights themselves.
        """
        if fitted_elsewhere(self, X, y, sample_weight, X_val, y_val):
            return self
        self._check_params()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        weight = self._mass(X, codes, sample_weight)
        self._check_classes(codes if weight is None else codes[weight > 0])
        loss, n_outputs = self._loss()
        clean = clean_rows(self, X_val, y_val, X.dtype)
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
