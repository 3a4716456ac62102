"""PartialAUCClassifier: a linear classifier for low false positive rates."""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from ..compatibility import Interval, StrOptions
from ..core.arrays import Array
from ..core.ranges import check_rates
from ..core.row_space import RowSpace
from ..core.threads import threads_for
from ..crossfit.folds import Folds, given_folds, whole_number
from ..crossfit.fpr_choice import (
    MIN_TO_COMPARE,
    Candidate,
    Chosen,
    LabelledRows,
    Rates,
    Task,
    calibrate,
    candidates_of,
    choose,
    fit,
    folds_of,
    negative_scale,
    threshold_at,
)
from .fitted import FORMATS, PER_CLASS, LinearModel, LogProbabilities, forget, of_rows
from .linear import check_present, seed_of, weights_of
from .weights import unit_of


class PartialAUCClassifier(LogProbabilities, ClassifierMixin, LinearModel):
    """Linear classifier for a range of false positive rates, for example in screening and fraud detection.

    It is trained to rank positives above those negatives that lie between two false positive rates, a ranked range of
    the negatives. The objective is C times the sum over the positives of their mean pair loss against these negatives,
    plus ||coef||^2 / 2. No matrix of pairs is formed. A range that starts above 0 leaves out the negatives with the
    highest scores, which may be mislabelled positives; the minimum is then a local one.

    Parameters
    ----------
    fpr : pair of float, default=(0.0, 0.05)
        The false positive rates of interest, 0 <= lo < hi <= 1.
    tpr : pair of float, default=(0.0, 1.0)
        The true positive rates of interest (two-way partial AUC). (0.5, 1.0) uses the half of the positives with the
        lower scores; an upper end below 1 leaves out the positives with the lowest scores.
    train_fpr : "auto" or pair of float, default="auto"
        The range to train on. "auto" compares several candidates by cross-validation, each for several C: the range of
        interest, wider ranges, a range with only the higher-scored half of the positives, and logistic regression.
        Logistic regression is chosen unless another candidate is better by more than one standard error, and always
        with fewer than 10 positives, or fewer than 10 negatives in the range of interest (for C="auto" then with C=1).
        A narrow range needs classes that hardly overlap; otherwise all coefficients are 0.
    C : float or "auto", default=1.0
        Inverse of regularization strength. "auto" tries 0.1, 1 and 10. A number is used as it is, except that
        train_fpr="auto" tries 0.1, 1 and 10 times C.
    cv : int, splitter or iterable of (train, test), default=5
        Folds for choosing the range and C, for the probabilities and for the threshold. An int is a number of
        stratified folds, with identical rows of a class in one fold; candidates are then fitted to at most about 6,000
        training rows of each. If a class has only one distinct row or one group, training rows replace held-out rows,
        nothing is compared, and the smallest C is used.
    max_iter, tol : int and float, default=200 and 1e-6
        The solver stops after `max_iter` iterations, or when the relative duality gap is at most `tol`.
    random_state : int, RandomState or None, default=None
        Seed for the folds.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (1, n_features) and (1,)
        Weights of the features, and the intercept. Pair losses do not depend on it; it is set so that a score of 0
        means a probability of 0.5.
    classes_ : ndarray of shape (2,)
        The classes; the second one is the positive class.
    threshold_ : float
        Threshold of the decision function for the upper end of `fpr`, estimated on held-out rows.
    train_fpr_, train_tpr_, C_ : pair of float, pair of float and float
        The ranges that were trained on and the C that was used; `train_fpr_` is None for the logistic fit.
    slope_ : float
        Log odds per unit of the decision function, estimated on held-out rows.
    certificate_ : float
        A proved upper bound on (objective_ - best) / objective_, where best is the minimum with the same rows left out.
        That is the global minimum if `train_fpr_` starts at 0 and `train_tpr_` ends at 1.
    objective_, converged_, message_, n_iter_, history_
        As in `AoRRClassifier`.
    tuning_ : dict
        The candidates, if the range or C was chosen: arrays "fpr" (NaN for logistic regression), "tpr", "C", "score"
        (partial AUC divided by its maximum), "gain" over logistic regression (over the best candidate if `train_fpr`
        is a range), its standard "error", and "chosen".

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import PartialAUCClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(2000) < 0.1
    >>> X = rng.normal(size=(2000, 3)) + 2 * y[:, None]
    >>> model = PartialAUCClassifier(fpr=(0.0, 0.05), random_state=0).fit(X, y)
    >>> flagged = model.decision_function(X) > model.threshold_
    >>> bool(flagged[~y].mean() < 0.07), bool(flagged[y].mean() > 0.9)
    (True, True)
    """

    def __init__(
        self,
        fpr: Any = (0.0, 0.05),
        *,
        tpr: Any = (0.0, 1.0),
        train_fpr: Any = "auto",
        C: Any = 1.0,
        cv: Any = 5,
        max_iter: int = 200,
        tol: float = 1e-6,
        random_state: Any = None,
    ) -> None:
        self.fpr = fpr
        self.tpr = tpr
        self.train_fpr = train_fpr
        self.C = C
        self.cv = cv
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "C": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> PartialAUCClassifier:
        """Fit the model to training data.

        Parameters
        ----------
        X, y : array_like or sparse matrix of shape (n_samples, n_features), and array_like of shape (n_samples,)
            Training data, and labels of two classes, of which the larger is the positive class.
        sample_weight, groups : array_like of shape (n_samples,), optional
            Weights of the rows; weight 2 equals the row twice. The group of each row; folds never split a group.

        Returns
        -------
        PartialAUCClassifier
            The fitted estimator.
        """
        self._validate_params()
        task = Task(check_rates("fpr", self.fpr), check_rates("tpr", self.tpr), float(self.tol), int(self.max_iter))
        auto = isinstance(self.train_fpr, str) and self.train_fpr == "auto"
        train_fpr = "auto" if auto else check_rates("train_fpr", self.train_fpr)
        forget(self)
        X, y = validate_data(self, X, y, **FORMATS)
        rows, unit, present = self._rows(X, y, sample_weight)
        candidates = self._candidates(rows, task, train_fpr, unit)
        if groups is not None:
            check_consistent_length(X, groups)
            groups = np.asarray(groups)
        folds = self._folds(rows, X, y, groups, present)
        space = RowSpace.of(rows.X)
        if space is not None:
            rows = LabelledRows(space.X, rows.positive, rows.mass)
        with threads_for(rows.X):
            chosen = choose(rows, candidates, task, folds)
            result = fit(rows, chosen.candidate, task, chosen.start)
        self._store_result(result, 1.0)
        self._store_coefficients(result.w if space is None else space.coefficients(result.w), X.dtype)
        self._store(chosen, result.w[0], rows, task.fpr[1])
        if not self.coef_.any():
            warnings.warn(
                f"all coefficients are 0: the classes overlap too much for train_fpr={self.train_fpr_}, and no linear "
                "model ranks the mean positive above these negatives; widen the range or use train_fpr='auto'",
                UserWarning,
                stacklevel=2,
            )
        self._warn_unless_converged(self.tol, 2)
        return self

    def _rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[LabelledRows, float, Any]:
        """The rows with positive weight, the weight of one effective row, and the indices of these rows."""
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y")
        if kind != "binary":
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        self.classes_, codes = np.unique(y, return_inverse=True)
        weight = weights_of(sample_weight, X)
        present = slice(None) if weight is None else np.flatnonzero(weight)
        check_present(self, codes[present])
        mass = np.ones(len(codes)) if weight is None else weight[present]
        return LabelledRows(X[present], codes[present] == 1, mass), unit_of(weight), present

    def _folds(self, rows: LabelledRows, X: Any, y: Any, groups: Any, present: Any) -> Folds:
        """Stratified folds, or those of the splitter `cv`, of the rows with positive weight."""
        if isinstance(self.cv, Integral):
            cv = whole_number("cv", self.cv, 2)
            return folds_of(rows, cv, seed_of(self.random_state), None if groups is None else groups[present])
        given = given_folds(self.cv, X, y, groups)
        folds = Folds(given.train[:, present], given.test[:, present])
        if not all(rows.has_both(mask) for mask in (*folds.train, *folds.test)):
            raise ValueError(
                "each split of cv must have rows of both classes to fit and to score, got one without; use for "
                "example StratifiedKFold"
            )
        return folds

    def _candidates(self, rows: LabelledRows, task: Task, train_fpr: Any, unit: float) -> list[Candidate]:
        negatives, positives = (rows.mass_of(side) / unit for side in (False, True))
        if train_fpr == "auto":
            few = min(negatives * (task.fpr[1] - task.fpr[0]), positives) < MIN_TO_COMPARE
            if few:
                return [Candidate(None, task.tpr, 1.0 if self.C == "auto" else float(self.C))]
        elif negatives * (train_fpr[1] - train_fpr[0]) < 1.0 - 1e-9:
            raise ValueError(
                f"the range must hold at least one negative, got train_fpr={train_fpr} of {negatives:.6g} negatives, "
                f"which is {negatives * (train_fpr[1] - train_fpr[0]):.3g}; widen it or use train_fpr='auto'"
            )
        return candidates_of(task, train_fpr, self.C)

    def _store(self, chosen: Chosen, w: Array, rows: LabelledRows, rate: float) -> None:
        """Store the chosen ranges and C, the intercept, the slope of the log odds, the threshold and `tuning_`."""
        self.train_fpr_: Rates | None = chosen.candidate.fpr
        self.train_tpr_, self.C_ = chosen.candidate.tpr, chosen.candidate.C
        centre, spread = negative_scale(rows, w)
        slope, level = calibrate(chosen.held_out)
        self.slope_ = slope / spread
        self.intercept_ = np.array([level / self.slope_ - centre])
        held = chosen.held_out.score[~chosen.held_out.positive]
        self._held_negatives = (held * spread + level / self.slope_, chosen.held_out.mass[~chosen.held_out.positive])
        self.threshold_ = self.threshold_for(rate)
        if chosen.table is not None:
            self.tuning_ = chosen.table

    def threshold_for(self, fpr: float) -> float:
        """The threshold of the decision function for a false positive rate, estimated on held-out rows.

        Parameters
        ----------
        fpr : float
            The false positive rate, between 0 and 1.

        Returns
        -------
        float
            The threshold: flag rows with ``decision_function(X) > threshold``. If the rate is below 1 / (n + 1) for n
            held-out negatives, it is their highest score, and the false positive rate may be higher.
        """
        if isinstance(fpr, bool) or not isinstance(fpr, Real) or not 0.0 <= float(fpr) <= 1.0:
            raise ValueError(f"fpr must be a rate between 0 and 1, got {fpr!r}; pass for example 0.01")
        check_is_fitted(self)
        return threshold_at(*self._held_negatives, float(fpr))

    @of_rows("ndarray of shape (n_samples,): One score per row.")
    def decision_function(self, X: Any) -> Array:
        """Confidence scores of the rows of X; above 0 the positive class is more likely."""
        return np.asarray(self._checked(X) @ self.coef_[0] + self.intercept_[0])

    @of_rows("ndarray of shape (n_samples,): One of `classes_` per row.")
    def predict(self, X: Any) -> Array:
        """Predict the more likely class; `decision_function(X) > threshold_` flags rows at the rate `fpr`."""
        positive = self.decision_function(X) > 0
        return np.asarray(self.classes_[positive * 1])

    @of_rows(PER_CLASS)
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, calibrated on held-out rows."""
        odds = self.decision_function(X) * self.slope_
        return np.column_stack([expit(-odds), expit(odds)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
