"""AoRRRegressorCV and AoRRClassifierCV: the l1 or elastic net penalty and m, chosen together by cross-validation.

For each m a path of penalties is fitted on the training rows of each fold, from the largest penalty to the smallest,
each fit starting from the one before. The score of a test fold is a trimmed mean of its losses, which is robust to
outliers in the test fold. The m with the best score is chosen, and by the one-standard-error rule the largest penalty
at this m whose score is within one standard error of the best. An integer weight is a repetition of the row; other
weights are relative.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from ..compatibility import check_sample_weight
from ..core.aggregates import Stratified
from ..core.arrays import Array
from ..core.cuts import select
from ..core.losses import Huber, Logistic, Softmax, Squared
from ..crossfit.folds import Folds, draw_folds, given_folds, row_keys, whole_number
from ..solvers.sparse import Cut, ElasticNet, follow, inner_rows, near_the_median, trimmed_net
from .classifier import AoRRClassifier
from .linear import check_flags, seed_of
from .regressor import AoRRRegressor, check_numeric_target
from .sparse import SparseCoef, as_float64
from .weights import is_whole, scale_of

# The tolerance of fits that are only compared, and the random starts of a search on a path.
_TOL, _PATH_STARTS = 1e-3, 3
# The tolerance of the path that is reported.
_LAST_TOL = 1e-6
# Sparse rows of up to this many entries become dense, so that both forms have the same path.
_DENSE_UP_TO = 4_000_000


class _SparseCV(SparseCoef, BaseEstimator):
    """Base class of AoRRRegressorCV and AoRRClassifierCV."""

    m: Any
    loss: str
    l1_ratio: float
    n_penalties: int
    eps: float
    cv: Any
    score_trim: float
    rule: str
    fit_intercept: bool
    n_starts: int
    random_state: Any
    path_: dict[str, Array]

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None) -> Any:
        """Choose m and C, and fit the model with them to all rows.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n_samples, n_features)
            The rows.
        y : array_like of shape (n_samples,)
            Their targets.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the rows. An integer weight is a repetition of the row; other weights are relative.
        groups : array_like of shape (n_samples,), optional
            The group of each row; rows of one group are in the same fold.

        Returns
        -------
        object
            The fitted model itself.
        """
        self._check()
        if not is_classifier(self):
            check_numeric_target(y)
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=not is_classifier(self), ensure_min_samples=2
        )
        weight = None
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            weight = weight / scale_of(weight)
        small = sp.issparse(X) and X.shape[0] * X.shape[1] <= _DENSE_UP_TO
        net = self._net(as_float64(X.toarray() if small else X), y)
        rows, mass = _rows_and_mass(net, weight)
        seed = seed_of(self.random_state)
        folds = self._folds(X, y, groups, net, rows, np.random.default_rng(seed))
        net = net.take(rows)
        shares = np.unique(np.atleast_1d(np.asarray(self.m, dtype=np.float64)))
        scores, Cs = self._scores(net, shares, mass, folds, seed)
        self._choose(scores, Cs, shares)
        model = AoRRClassifier if is_classifier(self) else AoRRRegressor
        by_class: dict[str, Any] = {"aggregate": "per-class"} if self._by_class() else {}
        self.best_estimator_ = model(
            self.m_,
            loss=self.loss,
            C=self.C_,
            l1_ratio=self.l1_ratio,
            fit_intercept=self.fit_intercept,
            n_starts=self.n_starts,
            random_state=seed,
            **by_class,
        ).fit(X, y, sample_weight=weight)
        if hasattr(self, "feature_names_in_"):
            self.best_estimator_.feature_names_in_ = self.feature_names_in_
        self.intercept_, self.dropped_ = self.best_estimator_.intercept_, self.best_estimator_.dropped_
        self.certificate_ = self.best_estimator_.certificate_
        self.path_ = {**self.path_, "coef": self._path_of_model(net, mass, Cs)}
        self._warn_of_the_choice()
        return self

    def _warn_of_the_choice(self) -> None:
        """Warn if all coefficients are zero, or if a penalty below the smallest of the path may be better."""
        Cs = self.path_["C"]
        if not self.coef_.any():
            others = f"another m, a score_trim above the share of outliers (got {self.score_trim!r})"
            if len(Cs) == 1:
                reason = "no smaller penalty was compared; raise n_penalties"
            elif self.rule == "one-se":
                reason = f"no smaller penalty predicts better by one standard error; use rule='best', {others}"
            else:
                reason = f"no smaller penalty predicts better; use {others}"
            warnings.warn(
                f"all coefficients are zero with the chosen C={self.C_:.3g}: {reason}, or look at path_['score']",
                UserWarning,
                stacklevel=3,
            )
        if len(Cs) > 1 and Cs[-1] == self.C_:
            warnings.warn(
                f"the chosen C={self.C_:.3g} is the largest that was compared, and a larger one may be better; set "
                f"eps below {self.eps!r}",
                UserWarning,
                stacklevel=3,
            )

    @property
    def coef_(self) -> Any:
        """The coefficients of `best_estimator_`; `sparsify()` and `densify()` convert both."""
        return self.best_estimator_.coef_

    @coef_.setter
    def coef_(self, coef: Any) -> None:
        self.best_estimator_.coef_ = coef

    def _check(self) -> None:
        try:
            shares = np.atleast_1d(np.asarray(self.m, dtype=np.float64))
        except (TypeError, ValueError):  # a word such as "auto"
            shares = np.full(1, np.nan)
        if not len(shares) or not ((shares >= 0) & (shares < 1)).all():
            raise ValueError(
                f"m must hold fractions of the rows in [0, 1), of which the best is chosen, got m={self.m!r}; pass for "
                "example (0.0, 0.2)"
            )
        whole_number("n_penalties", self.n_penalties, 1)
        if not (_is_count(self.cv) or hasattr(self.cv, "split") or _holds_pairs(self.cv)):
            raise ValueError(f"cv must be an int of at least 2, a splitter or splits, got {self.cv!r}; use 5")
        if not _is_number(self.l1_ratio) or not 0 < self.l1_ratio <= 1:
            raise ValueError(
                f"l1_ratio must be in (0, 1], one number, got l1_ratio={self.l1_ratio!r}; without an l1 penalty use "
                "AoRRClassifier or AoRRRegressor"
            )
        if not _is_number(self.eps) or not 0 < self.eps < 1:
            raise ValueError(f"eps must be in (0, 1), got {self.eps!r}; 0.02 is the default")
        if not _is_number(self.score_trim) or not 0 <= self.score_trim < 1:
            raise ValueError(f"score_trim must be in [0, 1), got {self.score_trim!r}; 0.3 is the default")
        whole_number("n_starts", self.n_starts, 0)
        check_flags(self)
        if self.rule not in ("one-se", "best"):
            raise ValueError(f"rule must be 'one-se' or 'best', got {self.rule!r}")

    def _net(self, X: Any, y: Array) -> ElasticNet:
        raise NotImplementedError

    def _choose(self, scores: Array, Cs: Array, shares: Array) -> None:
        """Choose the m and the penalty with the best (lowest) score.

        With rule="one-se" the penalty is the largest at that m whose score is within one standard error of the best.
        """
        mean, folds = scores.mean(axis=2), scores.shape[2]
        # One split has no standard error, and the best score is taken.
        error = scores.std(axis=2, ddof=1) / np.sqrt(folds) if folds > 1 else np.zeros_like(mean)
        i, j = np.unravel_index(int(mean.argmin()), mean.shape)
        within = np.flatnonzero(mean[i] <= mean[i, j] + (error[i, j] if self.rule == "one-se" else 0.0))
        self.m_, self.C_ = float(shares[i]), float(Cs[within[0]])
        self.path_ = {"m": shares, "C": Cs, "score": mean, "error": error}

    def _scores(
        self, net: ElasticNet, shares: Array, mass: Array | None, folds: Folds, seed: int
    ) -> tuple[Array, Array]:
        """Scores (shares, penalties, folds), the lower the better, and the values of C, increasing."""
        low = inner_rows(net, max(float(shares.max()), float(self.score_trim)))
        inner = net.take(low)
        if not is_classifier(self):
            inner = replace(inner, y=near_the_median(inner.y))
        weights = np.ones(len(net.y)) if mass is None else mass
        total = float(weights.sum())
        Cs = _grid(inner, weights[low], int(self.n_penalties), float(self.eps)) * weights[low].sum() / total
        scores = np.empty((len(shares), len(Cs), len(folds)))
        for fold, (train, test) in enumerate(zip(folds.train, folds.test, strict=True)):
            part, held_out = net.take(np.flatnonzero(train)), net.take(np.flatnonzero(test))
            train_mass, test_mass = (None, None) if mass is None else (mass[train], mass[test])
            # C is relative to a sum over rows: fewer rows need a larger one for the same penalty.
            factor = total / float(weights[train].sum())
            for i, share in enumerate(shares):
                fits = self._path_fits(part, train_mass, float(share), Cs * factor, seed)
                for j, (coef, intercept) in enumerate(fits):
                    losses = held_out.losses(held_out.scores(coef, intercept))
                    scores[i, j, fold] = _trimmed_mean(losses, float(self.score_trim), test_mass)
        return scores, Cs

    def _folds(self, X: Any, y: Array, groups: Any, net: ElasticNet, rows: Array, rng: np.random.Generator) -> Folds:
        """The folds of these rows: drawn, stratified by class and without splitting groups, or those of `cv`."""
        if groups is not None:
            check_consistent_length(X, groups)
            groups = np.asarray(groups)
        if not isinstance(self.cv, numbers.Integral):
            return given_folds(self.cv, X, y, groups).among(rows)
        if int(self.cv) > len(rows):
            raise ValueError(
                f"cv={self.cv} folds need at least {self.cv} rows, got {len(rows)}; use cv={len(rows)} or less"
            )
        codes = np.unique(net.y[rows], return_inverse=True)[1] if is_classifier(self) else None
        least = int(self.cv) if codes is None else int(np.bincount(codes).min())
        if least < int(self.cv) and groups is None:  # folds of groups are those of scikit-learn, which warns
            warnings.warn(
                f"each class should be in every fold, got {least} rows of the smallest class and cv={self.cv}; use "
                "fewer folds, or drop the class",
                UserWarning,
                stacklevel=3,
            )
        parted = None if groups is None else groups[rows]
        return draw_folds(len(rows), rng, strata=codes, groups=parted, n_folds=int(self.cv), n_repeats=1)

    def _by_class(self) -> bool:
        """Whether the same share of each class is dropped."""
        return bool(getattr(self, "stratify", False))

    def _path_fits(
        self, net: ElasticNet, mass: Array | None, share: float, Cs: Array, seed: int
    ) -> list[tuple[Array, Array]]:
        """Coefficients and intercepts for each C, from the largest penalty to the smallest, with warm starts."""
        rng = np.random.default_rng(seed)
        fits: list[tuple[Array, Array]] = []
        start = None
        cut = self._cut(net, mass, share)
        third = max(1, len(Cs) // 3)
        for j, C in enumerate(Cs):
            cut = cut._replace(C=float(C))
            # The rows are searched anew at the beginning of each third of the path; other fits continue from the last.
            if start is None or (j % third == 0 and j < 3 * third):
                found = trimmed_net(net, cut, start, n_starts=_PATH_STARTS, rng=rng, tol=_TOL, max_iter=20)
            else:
                found = follow(net, cut, start)
            start = found.coef, found.intercept
            fits.append(start)
        return fits

    def _path_of_model(self, net: ElasticNet, mass: Array | None, Cs: Array) -> Array:
        """Coefficients (penalties, outputs, columns) along the path, by warm starts from the fitted model."""
        model = np.atleast_2d(self.coef_), np.atleast_1d(np.asarray(self.intercept_, dtype=np.float64))
        chosen = int(np.argmin(np.abs(Cs - self.C_)))
        coefs = np.empty((len(Cs), *model[0].shape))
        coefs[chosen] = model[0]
        cut = self._cut(net, mass, self.m_)
        for indices in (range(chosen - 1, -1, -1), range(chosen + 1, len(Cs))):
            start = model
            for j in indices:
                found = follow(net, cut._replace(C=float(Cs[j])), start, tol=_LAST_TOL, max_iter=20)
                start = found.coef, found.intercept
                coefs[j] = found.coef
        return coefs

    def _cut(self, net: ElasticNet, mass: Array | None, share: float) -> Cut:
        """The cut that drops this share of the rows, but never all; its C is set later, along a path."""
        n = len(net.y)
        m = min(round(share * n), n - 1) if mass is None else share * float(mass.sum())
        classes = Stratified(np.unique(net.y, return_inverse=True)[1]) if self._by_class() else None
        return Cut(m, mass, 1.0, classes)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class AoRRRegressorCV(RegressorMixin, _SparseCV):
    """`AoRRRegressor` with an l1 penalty that chooses m and C together by cross-validation.

    Fits for each share m follow a path of penalties on the training rows of each fold. A trimmed mean of the losses
    scores the test rows, which is robust to outliers among them.

    Parameters
    ----------
    m : float or tuple of float, default=(0.0, 0.1, 0.2, 0.3)
        Fractions of rows to drop; the best one is chosen.
    loss : {"squared", "huber"}, default="squared"
        The loss of a row.
    l1_ratio : float, default=1.0
        The share of the l1 penalty, above 0; see `AoRRRegressor`.
    n_penalties : int, default=50
        How many values of C are compared.
    eps : float, default=0.02
        The smallest penalty divided by the largest one. At the largest one all coefficients are zero in a fit without
        the rows of highest leverage.
    cv : int, splitter or iterable of (train, test), default=5
        Folds; an int is their number.
    score_trim : float, default=0.3
        The share of the largest losses of each test fold that its score leaves out. It must exceed the share of
        outliers.
    rule : {"one-se", "best"}, default="one-se"
        Whether to take the largest penalty within one standard error of the best score, or the best one.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    n_starts : int, default=10
        Number of random starts of the final fit.
    random_state : int, RandomState or None, default=None
        Seed for folds and starts.

    Attributes
    ----------
    m_, C_ : float
        The chosen m, a fraction, and the chosen C.
    best_estimator_ : AoRRRegressor
        The model with `m_` and `C_`, fitted to all rows.
    coef_, intercept_, dropped_ : ndarray
        Those of `best_estimator_`. `dropped_` marks m_ * n_samples rows, rounded; rows that tie at the cut are kept.
    certificate_ : float
        The `certificate_` of `best_estimator_`; see `AoRRClassifier`.
    n_features_in_ : int
        Number of features.
    path_ : dict
        Arrays "m" (M,), "C" (P,), "score" and its standard "error" (M, P), the lower the better, and "coef"
        (P, outputs, n_features): the coefficients along the path with `m_`, followed from the fitted model at `C_`.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import AoRRRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 100))
    >>> y = 3 * X[:, 0] - 3 * X[:, 1] + rng.normal(size=60)
    >>> y[:6] = 50.0
    >>> model = AoRRRegressorCV((0.0, 0.1), n_penalties=10, random_state=0).fit(X, y)
    >>> model.m_, int(model.dropped_[:6].sum())
    (0.1, 6)
    """

    def __init__(
        self,
        m: Any = (0.0, 0.1, 0.2, 0.3),
        *,
        loss: str = "squared",
        l1_ratio: float = 1.0,
        n_penalties: int = 50,
        eps: float = 0.02,
        cv: Any = 5,
        score_trim: float = 0.3,
        rule: str = "one-se",
        fit_intercept: bool = True,
        n_starts: int = 10,
        random_state: Any = None,
    ) -> None:
        self.m = m
        self.loss = loss
        self.l1_ratio = l1_ratio
        self.n_penalties = n_penalties
        self.eps = eps
        self.cv = cv
        self.score_trim = score_trim
        self.rule = rule
        self.fit_intercept = fit_intercept
        self.n_starts = n_starts
        self.random_state = random_state

    def _net(self, X: Any, y: Array) -> ElasticNet:
        losses = {"squared": Squared, "huber": Huber}
        if self.loss not in losses:
            raise ValueError(f"loss must be 'squared' or 'huber', got {self.loss!r}")
        return ElasticNet(
            X, np.asarray(y, dtype=np.float64), losses[self.loss](), 1, float(self.l1_ratio), bool(self.fit_intercept)
        )

    def predict(self, X: Any) -> Array:
        """Predicted targets (n,) of the rows of X."""
        return _of_model(self, "predict", X)


class AoRRClassifierCV(ClassifierMixin, _SparseCV):
    """`AoRRClassifier` with an l1 penalty that chooses m and C together by cross-validation.

    Fits for each share m follow a path of penalties on the training rows of each fold. A trimmed mean of the losses
    scores the test rows, which is robust to wrong labels among them.

    Parameters
    ----------
    m : float or tuple of float, default=(0.0, 0.1, 0.2, 0.3)
        Fractions of rows to drop; the best one is chosen.
    loss : {"logistic"}, default="logistic"
        The loss of a row.
    l1_ratio : float, default=1.0
        The share of the l1 penalty, above 0; see `AoRRClassifier`.
    n_penalties : int, default=50
        How many values of C are compared.
    eps : float, default=0.02
        The smallest penalty divided by the largest one. At the largest one all coefficients are zero in a fit without
        the rows of highest leverage.
    cv : int, splitter or iterable of (train, test), default=5
        Folds; an int is the number of stratified folds.
    score_trim : float, default=0.3
        The share of the largest losses of each test fold that its score leaves out. It must exceed the share of
        outliers.
    rule : {"one-se", "best"}, default="one-se"
        Whether to take the largest penalty within one standard error of the best score, or the best one.
    fit_intercept : bool, default=True
        Whether the model has an intercept.
    n_starts : int, default=10
        Number of random starts of the final fit.
    stratify : bool, default=True
        Whether the same share of each class is dropped, as in enetLTS. Otherwise mostly one class may be dropped.
    random_state : int, RandomState or None, default=None
        Seed for folds and starts.

    Attributes
    ----------
    m_, C_ : float
        The chosen m, a fraction, and the chosen C.
    best_estimator_ : AoRRClassifier
        The model with `m_` and `C_`, fitted to all rows.
    coef_, intercept_, dropped_ : ndarray
        Those of `best_estimator_`. `dropped_` marks m_ * n_samples rows, rounded; rows that tie at the cut are kept.
    certificate_ : float
        The `certificate_` of `best_estimator_`; see `AoRRClassifier`.
    n_features_in_ : int
        Number of features.
    classes_ : ndarray of shape (n_classes,)
        The classes in order.
    path_ : dict
        Arrays "m" (M,), "C" (P,), "score" and its standard "error" (M, P), the lower the better, and "coef"
        (P, outputs, n_features): the coefficients along the path with `m_`, followed from the fitted model at `C_`.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import AoRRClassifierCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(80, 60))
    >>> y = X[:, 0] + X[:, 1] + 0.5 * rng.normal(size=80) > 0
    >>> model = AoRRClassifierCV((0.0,), n_penalties=10, random_state=0).fit(X, y)
    >>> {0, 1} <= set(np.flatnonzero(model.coef_[0]))
    True
    """

    classes_: Array

    def __init__(
        self,
        m: Any = (0.0, 0.1, 0.2, 0.3),
        *,
        loss: str = "logistic",
        l1_ratio: float = 1.0,
        n_penalties: int = 50,
        eps: float = 0.02,
        cv: Any = 5,
        score_trim: float = 0.3,
        rule: str = "one-se",
        fit_intercept: bool = True,
        n_starts: int = 10,
        stratify: bool = True,
        random_state: Any = None,
    ) -> None:
        self.m = m
        self.loss = loss
        self.l1_ratio = l1_ratio
        self.n_penalties = n_penalties
        self.eps = eps
        self.cv = cv
        self.score_trim = score_trim
        self.rule = rule
        self.fit_intercept = fit_intercept
        self.n_starts = n_starts
        self.stratify = stratify
        self.random_state = random_state

    def _net(self, X: Any, y: Array) -> ElasticNet:
        if self.loss != "logistic":
            raise ValueError(f"loss must be 'logistic', got {self.loss!r}")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"AoRRClassifierCV needs at least two classes, got one class: {self.classes_}; check y")
        settings = float(self.l1_ratio), bool(self.fit_intercept)
        if len(self.classes_) == 2:
            return ElasticNet(X, 2.0 * codes - 1.0, Logistic(), 1, *settings)
        return ElasticNet(X, codes, Softmax(), len(self.classes_), *settings)

    def decision_function(self, X: Any) -> Array:
        """Scores of the rows of X: (n,) for two classes, otherwise (n, n_classes)."""
        return _of_model(self, "decision_function", X)

    def predict(self, X: Any) -> Array:
        """The most likely class of each row of X."""
        return _of_model(self, "predict", X)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, (n, n_classes)."""
        return _of_model(self, "predict_proba", X)


def _of_model(estimator: Any, method: str, X: Any) -> Array:
    """Call a method of `best_estimator_`. X is validated here, so that error messages name this class."""
    check_is_fitted(estimator, "best_estimator_")
    X = validate_data(estimator, X, accept_sparse="csr", dtype=np.float64, reset=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        return np.asarray(getattr(estimator.best_estimator_, method)(X))


def _is_count(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= 2


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _holds_pairs(cv: Any) -> bool:
    return isinstance(cv, Iterable) and not isinstance(cv, str)


def _rows_and_mass(net: ElasticNet, weight: Array | None) -> tuple[Array, Array | None]:
    """The indices of the rows in canonical order, and their weights.

    If weights are integers, rows are repeated instead and the returned weights are None, so that a row of weight 2
    equals a row that occurs twice.
    """
    order = np.lexsort((net.y, row_keys(net.X, 0)))
    if is_whole(weight):
        return (order if weight is None else np.repeat(order, weight[order].astype(np.intp))), None
    order = order[weight[order] > 0]  # type: ignore[index]
    return order, weight[order]  # type: ignore[index]


def _grid(net: ElasticNet, mass: Array, count: int, eps: float) -> Array:
    """Values of C, from the largest at which all coefficients are zero to 1 / eps times it.

    One outlier could change this C arbitrarily, so `net` has only rows of low leverage and clipped numeric targets. If
    no column is informative, the first C is 1.
    """
    first = net.largest_penalty(mass)
    if not np.isfinite(first):  # no column is informative
        first = 1.0
    return np.asarray(first * np.geomspace(1.0, 1.0 / eps, count))


def _trimmed_mean(losses: Array, trim: float, mass: Array | None = None) -> float:
    """The mean of the losses without the share `trim` of the largest, a number of rows that is rounded up.

    At least one loss is kept. With masses, the share is exact and the mean weighted.
    """
    total = len(losses) if mass is None else float(mass.sum())
    m = trim * total if mass is not None else min(total - 1, np.ceil(trim * total))
    return float(select(losses, m, total, mass).total) / (total - m)
