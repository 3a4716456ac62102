"""AoRRClassifier: a linear classifier trained on a ranked range of its losses."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ..compatibility import StrOptions
from ..core.arrays import Array
from ..core.losses import OF_SEVERAL, losses_for
from ..core.objective import Design, Objective
from ..core.transition import joined, probabilities_of
from ..inference.table import Summary
from ..solvers import Result
from .fitted import FORMATS, PER_CLASS, LogProbabilities, of_rows
from .linear import AoRRLinear, Rows, check_loss, check_present, clean_rows, group_codes, warn_of_lost_class, weights_of
from .streamed import STREAMED_ROWS, ScoresRows, by_chunks, like, on_host
from .summaries import logistic_summary
from .weights import class_factors, product_of

# Probabilities are calibrated on at most this many rows.
_SAMPLE_ROWS = 20_000


class AoRRClassifier(ScoresRows, LogProbabilities, ClassifierMixin, AoRRLinear):
    """Linear classifier that ignores the training rows it fits worst.

    The objective is C times the sum of the training losses ranked m+1 to k, plus ||coef||^2 / 2; the intercept is not
    penalised. With the logistic loss the fit equals scikit-learn's LogisticRegression(C=C) on the kept rows, and on all
    rows for m=0 and k=1.0. Dropping the m largest losses removes the influence of outliers and wrong labels completely.
    With k below the number of rows, rows that are fitted easily are ignored as well. The average, the maximum, the
    average top-k, the median and the trimmed mean of the losses are special cases (see `RankedRange`).

    Parameters
    ----------
    m : "auto", int, float or RankedRange, default="auto"
        How many of the largest losses to drop. An int is a count, a float in [0, 1] a fraction of the training rows.
        "auto" chooses m by cross-validation on the given labels, or from the losses of a clean validation set if `fit`
        gets one (the paper's Algorithm 2). Cross-validation drops nothing without a gain or with fewer than 20 rows,
        and never more than half of a class (docs/how-to/choose_m.md). A RankedRange defines both m and k.
    k : "auto", "adaptive", int or float, default="auto"
        The last rank to keep, as a count or a fraction. "auto" keeps all ranks after m, or chooses k if `fit` gets a
        clean validation set. "adaptive" starts with all rows and lowers k to n/2, n/4, n/8, n/16 and n/32 when the
        training accuracy reaches 70, 80, 90, 95 and 99.5%.
    loss : {"logistic", "hinge", "squared_hinge"}, default="logistic"
        The loss of one row. With more than two classes these are the softmax cross-entropy and the sum of one squared
        hinge per class; the hinge is for two classes.
    C : float or "auto", default=1.0
        Inverse of regularization strength, as in scikit-learn; `np.inf` means no penalty. "auto" chooses C by the
        out-of-fold loss, on the folds that also choose m: between 0.001 and 100, or with an l1 penalty along a path
        from the largest C without nonzero coefficients. With fewer than 20 rows C is 1.
    fit_intercept : bool, default=True
        Whether to fit an intercept.
    n_starts : int, default=10
        Number of random starts, beside the ordinary fit and two fits without high-leverage rows.
    max_iter, tol : int and float, default=200 and 1e-6
        The solver stops after `max_iter` iterations, or when the relative duality gap is at most `tol`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply sample_weight.
    random_state : int, RandomState or None, default=None
        Seed for the starts and the folds. The same seed gives the same fit.
    n_jobs : int or None, default=None
        Number of threads for the fits that choose m and C; -1 uses all cores. The result does not depend on it.
    aggregate : None, "per-class", "worst-group", "group-cvar", RankWeights or another aggregate, default=None
        How the losses of the rows are combined. None is the ranked range. "per-class" drops the same share of each
        class, which protects rare classes; otherwise a warning names a class that loses more than half of its rows.
        "worst-group" minimises the largest mean loss of the `groups` that `fit` gets, "group-cvar" the mean over the
        worse half of the groups. Both first drop the share m of the largest losses within each group.
        `RankWeights(...)` weights losses by their rank; m and k must then be left at their defaults. For others see
        CONTRIBUTING.md; m="auto" is chosen as for the ranked range.
    l1_ratio : float, default=0.0
        The share of the l1 penalty: (1 - l1_ratio) / 2 ||coef||^2 + l1_ratio ||coef||_1 is added to C times the kept
        losses. Above 0 many coefficients are zero (docs/how-to/sparse_models.md). It needs loss="logistic".
        `sparse_coef_` holds the coefficients as a sparse matrix.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (1, n_features) or (n_classes, n_features), and (1,) or (n_classes,)
        Weights of the features, and intercepts; one row for two classes.
    classes_, n_features_in_ : ndarray of shape (n_classes,) and int
        The classes, sorted, and the number of features.
    m_, k_, C_ : int, int and float
        The m, k and C that were used. m_ and k_ are counts, or sums of weights if sample weights are not integers.
    lam_, lam_hat_ : float
        The lower and the upper cut of the training losses: the k-th and the m-th largest loss. lam_hat_ is infinite for
        m = 0. It is an array for aggregate="per-class" (one cut per class) and for an aggregate over groups.
    dropped_ : ndarray of bool of shape (n_samples,)
        Whether each training row was dropped. These are m_ rows, or fewer if several rows tie at the cut: tied rows
        share what is left of m_ and are marked as kept.
    temperature_, ordinary_share_ : float
        The factor, at most 1, by which `predict_proba` multiplies the scores, and the weight of the ordinary fit to all
        rows. They are 1 and 0 if no row was dropped or the loss is not "logistic"; only m="auto" has such a weight.
    objective_ : float
        C times the sum of the kept losses + (1 - l1_ratio) / 2 ||coef_||^2 + l1_ratio ||coef_||_1.
    certificate_ : float
        A proved upper bound on (objective_ - best) / objective_, where best is the minimum with the same rows dropped.
        For m = 0 that is the global minimum, otherwise a local one (if the m-th loss is above the next). Infinite if
        nothing is proved.
    converged_, message_, n_iter_, history_ : bool, str, ndarray of shape (1,) and dict
        Whether `tol` was reached, why the solver stopped, the number of iterations, and arrays "phase" and "objective"
        with one entry per step.
    groups_ : dict
        Arrays with one entry per group: "group", "rows", "dropped" (the share), and the mean loss and accuracy of the
        kept rows under the ordinary fit ("loss_before", "accuracy_before") and under this one ("loss", "accuracy").
        Only with an aggregate over groups.
    path_ : dict
        What was compared. If m was chosen: arrays "m" (a share), "path", "score", "gain" over m = 0 and its standard
        "error"; fits that drop more than half of a class are listed only. If C was: "C", "loss" and "loss_error", and
        with an l1 penalty the coefficients "coef" (C, outputs, n_features). With a clean validation set: "m", "k",
        "lam_hat", "lam" and "validation_loss".
    noise_estimate_, noise_interval_ : float and pair of float
        The estimated share of wrong labels and its 95% interval, if m or k was chosen. They come from linear models
        and extra trees; the upper bound counts every label that these models mispredict. m_ / n may differ from the
        estimate, because m_ is chosen for accuracy.

    References
    ----------
    Hu, Ying, Wang and Lyu, "Sum of Ranked Range Loss for Supervised Learning", JMLR 23 (2022).

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import AoRRClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] > 0
    >>> X_bad, y_bad = X.copy(), y.copy()
    >>> X_bad[:20], y_bad[:20] = 10 * X[:20], ~y[:20]  # far out, and with the wrong label
    >>> model = AoRRClassifier(m=0.1, k=1.0, random_state=0).fit(X_bad, y_bad)
    >>> model.score(X, y) > 0.95, int(model.dropped_[:20].sum())
    (True, 20)
    """

    def __init__(
        self,
        m: Any = "auto",
        k: Any = "auto",
        *,
        loss: str = "logistic",
        C: Any = 1.0,
        fit_intercept: bool = True,
        n_starts: int = 10,
        max_iter: int = 200,
        tol: float = 1e-6,
        class_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        aggregate: Any = None,
        l1_ratio: float = 0.0,
    ) -> None:
        self.m = m
        self.k = k
        self.loss = loss
        self.C = C
        self.fit_intercept = fit_intercept
        self.n_starts = n_starts
        self.max_iter = max_iter
        self.tol = tol
        self.class_weight = class_weight
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.aggregate = aggregate
        self.l1_ratio = l1_ratio

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **AoRRLinear._parameter_constraints,
        "k": [Real, StrOptions({"auto", "adaptive"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    _l1_losses = ("logistic",)

    def _validated(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any, groups: Any) -> Rows:
        X, y = validate_data(self, X, y, **FORMATS)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if y.dtype.kind not in "biu" or 2 * len(self.classes_) > len(y):  # few distinct integers are always classes
            check_classification_targets(y)
        weight, factor = weights_of(sample_weight, X), None
        if self.class_weight is not None:
            factor = class_factors(self.class_weight, self.classes_, codes, weight)
        mass = product_of(weight, factor)
        check_present(self, codes if mass is None else codes[mass > 0])
        clean = clean_rows(self, X_val, y_val, X.dtype)
        if clean is not None:
            unknown = np.setdiff1d(clean[1], self.classes_)
            if len(unknown):
                raise ValueError(
                    f"y_val must hold classes of y only, got {unknown[:5].tolist()}, which are not among "
                    f"{self.classes_[:10].tolist()}; drop these rows or add the classes to y"
                )
            clean = clean[0], self._encode(np.searchsorted(self.classes_, clean[1]), X.dtype)
        return Rows(X, self._encode(codes, X.dtype), weight, factor, group_codes(groups, X), clean)

    def _encode(self, codes: Array, dtype: Any) -> Array:
        return (2 * codes - 1).astype(dtype) if len(self.classes_) == 2 else codes

    def _loss(self) -> tuple[Any, int]:
        of_two, n_classes = losses_for("binary"), len(self.classes_)
        check_loss(self.loss, of_two)
        if n_classes == 2:
            return of_two[self.loss](), 1
        if self.loss not in OF_SEVERAL:
            others = ", ".join(map(repr, OF_SEVERAL))
            raise ValueError(  # the first sentence is the one that scikit-learn's checks ask for
                "Only binary classification is supported. "
                f"loss={self.loss!r} is for two classes, got {n_classes}; use one of {others}"
            )
        return OF_SEVERAL[self.loss](), n_classes

    def _finish(self, rows: Rows) -> None:
        super()._finish(rows)
        self._calibrate(rows.X, rows.y, rows.mass, self.dropped_)

    def _calibrate(self, X: Any, y: Array, mass: Array | None, dropped: Array, share: float = 1.0) -> None:
        """Set the temperature and, if "auto" dropped rows, the share of the ordinary fit in the probabilities.

        Both maximise the likelihood of the given labels. A fit without the rows that contradict it is overconfident,
        and it has poor probabilities for the rows that it does not fit. Rows with scores more extreme than those of 99%
        of the kept rows do not count: one high-leverage row could otherwise make all probabilities uninformative. The
        rows have a `share` of the weight of all training rows.
        """
        self.temperature_, self.ordinary_share_ = 1.0, 0.0
        if self.loss != "logistic" or self.m_ == 0:
            return
        sample = np.arange(0, X.shape[0], -(-X.shape[0] // _SAMPLE_ROWS))
        weight = np.ones(len(sample)) if mass is None else mass[sample].astype(np.float64)
        # Not `decision_function`, which would warn that the column names of a frame are missing.
        Z = np.asarray(X[sample] @ self._dense_coef().T + self.intercept_, dtype=np.float64)
        codes = (y[sample] > 0 if Z.shape[1] == 1 else y[sample]).astype(np.intp)
        reach = np.abs(Z[:, 0]) if Z.shape[1] == 1 else np.ptp(Z, axis=1)
        order = np.argsort(reach, kind="stable")
        kept = np.cumsum((weight * ~dropped[sample])[order])
        weight *= reach <= reach[order[np.searchsorted(kept, 0.99 * kept[-1])]]

        def cost(P: Array) -> float:
            return -float(weight @ np.log(np.maximum(P[np.arange(len(sample)), codes], 1e-300)))

        def cost_at(log: float) -> float:
            return cost(probabilities_of(np.exp(log) * Z))

        end = minimize_scalar(cost_at, bounds=(np.log(1e-3), 0.0), method="bounded", options={"xatol": 1e-7})
        self.temperature_ = float(np.exp(end.x))
        if self.m != "auto":
            return
        self._ordinary_line = self._ordinary_fit(X, y, mass, share)[1]
        ordinary = Design(X[sample], bool(self.fit_intercept)).scores(self._ordinary_line).T
        both = probabilities_of(self.temperature_ * Z), probabilities_of(ordinary)
        self.ordinary_share_ = float(min(np.linspace(0.0, 1.0, 21), key=lambda part: cost(joined(*both, part))))

    def _store(self, result: Result, objective: Objective) -> None:
        super()._store(result, objective)
        self.n_iter_ = np.array([self.n_iter_], dtype=np.int32)  # as in LogisticRegression

    def _store_coefficients(self, W: Array, dtype: Any) -> None:
        if len(W) > 1 and self.loss == "logistic" and not self._l1:
            W = W - W.mean(axis=0)  # a softmax does not change, and the penalty is least
        super()._store_coefficients(W, dtype)

    def _store_dropped(self, losses: Array, objective: Objective) -> None:
        super()._store_dropped(losses, objective)
        codes = objective.strata
        advice = "the class may be rare, not mislabelled; aggregate='per-class' drops the same share of each"
        warn_of_lost_class(self.classes_, codes, objective.mass.astype(np.float64), self.dropped_, advice, 5)

    def summary(self, level: float = 0.95) -> Summary:
        """Coefficients with standard errors, z tests and confidence intervals.

        If rows were dropped, an interval covers both extremes: the coefficient itself, correct if every dropped label
        is wrong, and the coefficient times `temperature_`, correct if none is. It needs a fit of two classes with
        loss="logistic", k=1.0, l1_ratio=0, dense X and no sample_weight, in this process.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level of the intervals.

        Returns
        -------
        Summary
            Prints as a table; `to_frame()` gives a DataFrame.

        Examples
        --------
        >>> import numpy as np
        >>> from rankrange import AoRRClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 1))
        >>> y = X[:, 0] + rng.logistic(size=300) > 0
        >>> print(AoRRClassifier(0, 1.0, C=100.0).fit(X, y).summary().coef.round(1))
        [0.  1.3]
        """
        return logistic_summary(self, level)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.loss in OF_SEVERAL
        return tags

    @by_chunks
    @of_rows("ndarray of shape (n_samples,) or (n_samples, n_classes): The scores.", STREAMED_ROWS)
    def decision_function(self, X: Any) -> Any:
        """Confidence scores of the rows of X: one per class or, of two classes, one, positive for `classes_[1]`."""
        scores: Any = self._linear(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @by_chunks
    @of_rows("ndarray of shape (n_samples,): The predicted classes.", STREAMED_ROWS)
    def predict(self, X: Any) -> Any:
        """Predict the class of each row of X."""
        scores = self.decision_function(X)
        chosen = (scores > 0) * 1 if scores.ndim == 1 else scores.argmax(1)
        if isinstance(chosen, np.ndarray) or self.classes_.dtype.kind not in "biuf":
            return self.classes_[on_host(chosen)]
        return like(chosen, self.classes_)[chosen]

    @available_if(lambda self: self.loss == "logistic")
    @by_chunks
    @of_rows(PER_CLASS, STREAMED_ROWS)
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities of the rows of X; only with loss="logistic".

        If rows were dropped, the scores are first multiplied by `temperature_`, which is fitted to the labels of all
        training rows, including the dropped ones. If m="auto" dropped them, the probabilities of the ordinary fit are
        mixed in with weight `ordinary_share_`. The class that `predict` returns always has the largest probability.
        """
        scores = self._linear(X)
        found = probabilities_of(self.temperature_ * on_host(scores))
        if self.ordinary_share_:
            ordinary = probabilities_of(on_host(self._linear(X, self._ordinary_line)))
            found = joined(found, ordinary, self.ordinary_share_)
        return like(scores, found)
