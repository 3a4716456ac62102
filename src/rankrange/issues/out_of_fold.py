"""Input validation, and out-of-fold predictions: given, of any classifier, or of linear fits and neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.base import is_regressor
from sklearn.utils import check_array, column_or_1d

from ..compatibility import num_samples
from ..core.arrays import Array
from ..crossfit.folds import Folds, Report
from ..crossfit.models import Task, fit_folds
from ..crossfit.neighbours import neighbour_means
from ..crossfit.numeric import numeric_view, standardised
from ..crossfit.predictions import log_probabilities, logistic_objective, trimmed_fits, wrong_share
from ..estimators import AoRRClassifier
from ..estimators.linear import is_missing
from ..label_noise import mixture_weights

# Settings of an AoRRClassifier that change the model, and that the linear fits of `find_label_issues` do not have.
IGNORED = ("aggregate", "l1_ratio")


def index_of(table: Any) -> Array | None:
    """The index of a pandas data frame or series, if it is not just 0 to n - 1; otherwise None."""
    index = getattr(table, "index", None)
    if index is None or type(table).__module__.split(".")[0] != "pandas":
        return None
    labels = np.empty(len(index), dtype=object)
    labels[:] = index.tolist()
    plain = np.asarray(index) if index.dtype.kind in "iu" else labels
    return None if plain.dtype.kind in "iu" and np.array_equal(plain, np.arange(len(plain))) else plain


@dataclass(frozen=True)
class Data:
    """Validated rows and labels. X is numeric, or None; `index` is that of a data frame, or None.

    `codes` (n,) are the given labels as indices 0..K-1 into `classes`, the sorted classes. `learnt` (n,) are the labels
    that models are trained on; they differ from `codes` if labels were corrected.
    """

    X: Any
    codes: Array
    classes: Array
    learnt: Array
    index: Array | None = None

    @classmethod
    def checked(
        cls, X: Any, y: Any, has_probabilities: bool, any_X: bool, learn_from: Any = None, classes: Any = None
    ) -> Data:
        """Validate X and y as given by the user; X may be None if the user gave probabilities (`has_probabilities`).

        With a model of the user (`any_X`), X may be anything that this model accepts. The attribute X is then numeric,
        or None if the given X cannot be converted. `classes` has all classes, if y may lack some.
        """
        if y is None or (X is None and not has_probabilities):
            raise ValueError(
                "find_label_issues needs y, and X or pred_probs, got not both; pass find_label_issues(X, y), or "
                "find_label_issues(None, y, pred_probs=P)"
            )
        index = index_of(X)
        y = _labels("y", y)
        if X is not None:
            X = X if any_X else _as_numbers(X)
            rows = num_samples(X)
            if rows != len(y):
                raise ValueError(
                    f"X and y must have the same number of rows, got {rows} and {len(y)}; pass one label per row"
                )
            X = numeric_view(X) if any_X else X
        present, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        classes = present if classes is None else _all_classes(classes, present)
        codes = np.searchsorted(classes, present)[codes]
        if len(classes) < 2:
            raise ValueError(f"need at least two classes in y, got only {classes.tolist()}; check y")
        if not has_probabilities and counts.min() < 2:
            raise ValueError(_too_rare(classes, counts))
        return cls(X, codes, classes, codes if learn_from is None else _relabelled(learn_from, classes, len(y)), index)


def _all_classes(classes: Any, present: Array) -> Array:
    """The given classes, sorted; a repeated one, or a label that is none of them, is a ValueError."""
    named = _labels("classes", classes)
    found = np.unique(named)
    if len(found) < len(named):
        raise ValueError(f"classes must differ, got {len(named)} names of {len(found)} classes; name each column once")
    absent = np.setdiff1d(present, found)
    if len(absent):
        raise ValueError(f"classes must include every label of y, got none for {absent[:5].tolist()}; add them")
    return np.asarray(found)


def _labels(name: str, y: Any) -> Array:
    """Validate labels and return them as an array (n,); a missing label is an error."""
    if isinstance(y, str):
        raise ValueError(
            f"{name} must have one label per row, got the text {y!r}; pass the column itself, as in X[{y!r}]"
        )
    absent = is_missing(y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object))
    if absent.any():
        raise ValueError(
            f"{name} must have a label in every row, got {int(absent.sum())} missing (None or NaN), the first at "
            f"position {int(absent.ravel().argmax())}; drop these rows from X and y"
        )
    if np.ndim(y) == 2 and np.shape(y)[1] > 1:
        raise ValueError(
            f"{name} must have one label per row, got an array of shape {np.shape(y)}; out-of-fold probabilities go "
            "into pred_probs=, as in find_label_issues(y=labels, pred_probs=P)"
        )
    return np.asarray(column_or_1d(y))


def _too_rare(classes: Array, counts: Array) -> str:
    """The error message for a class with one row, or for labels that look numeric."""
    numbers = classes.dtype.kind in "fiu"
    if numbers and ((classes % 1 != 0).any() or len(classes) > max(20, counts.sum() // 10)):
        return (
            f"find_label_issues is for classes, got a y that looks numeric ({len(classes)} different values in "
            f"{counts.sum()} rows); use rankrange.audit.audit_table or RankedRangeRegressor, which take numeric targets"
        )
    rare = classes.tolist()[int(counts.argmin())]
    return f"each class needs two rows, got one of {rare!r}; drop it"


def _as_numbers(X: Any) -> Any:
    """Validate a numeric X; missing values of a dense X are filled, and indicators of them are added as columns."""
    kinds: Any = getattr(X, "dtypes", None)
    named = kinds.items() if hasattr(kinds, "items") else ()
    dates = [str(name) for name, kind in named if getattr(kind, "kind", "") in ("m", "M")]
    if dates:
        raise ValueError(
            f"X must be numeric if no estimator is given, got dates or times in {dates[:3]}; convert them to numbers, "
            "drop them, or use rankrange.audit.audit_table for a table of any columns"
        )
    try:
        X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False)
    except ValueError as error:
        if "could not convert string" not in str(error) and "dtype='numeric'" not in str(error):
            raise
        raise ValueError(
            f"X must be numeric if no estimator is given, got texts ({str(error)[:99]}); pass estimator= a pipeline "
            "that takes them, or use rankrange.audit.audit_table for a table of any columns"
        ) from error
    entries = X.data if sp.issparse(X) else X
    if np.isinf(entries).any():
        raise ValueError("X must be finite, got infinite values; replace them with NaN, drop the rows, or clip them")
    missing = np.isnan(entries)
    if not missing.any():
        return X
    if sp.issparse(X):
        raise ValueError(
            "a sparse X must not have missing values (NaN), got some; fill them, or pass a dense X, in which they are "
            "filled with the median"
        )
    if missing.all():
        raise ValueError("X must have at least one number, got only missing values (NaN); check how it was read")
    return numeric_view(X)


def _relabelled(learn_from: Any, classes: Array, n: int) -> Array:
    """Validate the labels to train on instead of y, and return them as indices (n,) into `classes`."""
    labels = _labels("learn_from", learn_from)
    if len(labels) != n:
        raise ValueError(
            f"learn_from must have one label per row of y, got {len(labels)} for {n} rows; pass all labels"
        )
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise ValueError(
            f"learn_from must hold classes of y only, got {unknown[:5].tolist()}; use classes that occur in y"
        )
    codes = np.searchsorted(classes, labels)
    if np.bincount(codes, minlength=len(classes)).min() < 2:
        raise ValueError("learn_from must have two rows of each class of y, got fewer; drop the rare class from both")
    return codes


class Predictions(NamedTuple):
    """Out-of-fold probabilities (n, classes) of each model, and the losses above which rows are dropped.

    `losses` (repeats, n) are those of the last model, and `cuts` (repeats, n) the loss above which it drops a row; for
    linear fits the cut lam_hat in the fold that left out the row. `dropped_share` is the share of rows that it drops,
    and C the penalty of linear fits.
    """

    members: dict[str, Array]
    losses: Array
    cuts: Array
    dropped_share: float = 0.0
    C: float | None = None

    @classmethod
    def of_model(cls, logs: Array, codes: Array, name: str = "model") -> Predictions:
        """Predictions of one model, from log probabilities (repeats, n, classes).

        In each repeat the cut is the quantile of the losses above which there are as many rows as estimated wrong
        labels, at least one.
        """
        n, P = len(codes), np.exp(logs.mean(axis=0))
        losses = -logs[:, np.arange(n), codes]
        cuts = np.quantile(losses, 1.0 - max(wrong_share(P, codes), 1.0 / n), axis=1, keepdims=True)
        return cls({name: P}, losses, np.broadcast_to(cuts, losses.shape))


def given_predictions(pred_probs: Any, data: Data, classes: Any = None) -> Predictions:
    """Validate the probabilities of the user, whose columns are named, or in the order of `classes`, or sorted."""
    shape, wanted = (len(data.codes), len(data.classes)), data.classes.tolist()
    named = set(getattr(pred_probs, "columns", ())) == set(wanted)
    P = check_array(pred_probs[wanted] if named else pred_probs, dtype=np.float64, ensure_2d=False)
    if P.shape != shape:
        remedy = "columns are in the order of the sorted classes of y; if y lacks some of the classes, pass classes="
        if classes is not None:
            remedy = f"classes= names {len(wanted)} columns: it must name each column of pred_probs once"
        raise ValueError(
            f"pred_probs must have one row per label and one column per class, shape {shape}, got {P.shape}; {remedy}"
        )
    if classes is not None and not named:
        P = P[:, np.argsort(_labels("classes", classes), kind="stable")]
    if (P < 0).any() or not np.allclose(P.sum(axis=1), 1.0, atol=1e-3):
        raise ValueError(
            "pred_probs must be probabilities: none negative, and each row must sum to 1; divide each row by its sum"
        )
    if classes is None and not hasattr(pred_probs, "columns"):
        _check_order_of_columns(P, data)
    return Predictions.of_model(np.log(np.maximum(P, 1e-12))[None], data.codes)


def _check_order_of_columns(P: Array, data: Data) -> None:
    """Raise an error if another order of the columns agrees with most labels, and with far more than the given one."""
    confusion = np.zeros((P.shape[1], P.shape[1]))
    np.add.at(confusion, (P.argmax(axis=1), data.codes), 1.0 / len(P))
    columns, order = linear_sum_assignment(-confusion)
    agree, best = float(np.trace(confusion)), float(confusion[columns, order].sum())
    if best > 0.5 and best > 2.0 * agree:
        raise ValueError(
            f"columns of pred_probs must be in the order of the sorted classes of y, got {agree:.0%} of the labels "
            f"that are the most probable class, and {best:.0%} with classes={data.classes[order].tolist()}; pass these "
            f"classes, or classes={data.classes.tolist()} if the order is right"
        )


def estimator_predictions(
    data: Data, X: Any, estimator: Any, folds: Folds, n_jobs: int | None, report: Report
) -> Predictions:
    """Predictions of any classifier with predict_proba, cloned for each fold; X is anything that it accepts."""
    if isinstance(estimator, type):
        raise ValueError(f"estimator must be an instance, got the class {estimator.__name__}; add parentheses")
    if not hasattr(estimator, "fit"):
        raise ValueError(f"estimator must be a classifier, got {estimator!r}; pass for example GaussianNB()")
    if is_regressor(estimator):
        raise ValueError(
            f"find_label_issues needs a classifier with predict_proba, got the regressor {type(estimator).__name__}; "
            "use AoRRClassifier, or rankrange.audit.audit_table for a numeric target"
        )
    if not hasattr(estimator, "predict_proba"):
        raise ValueError(
            f"estimator must have predict_proba, got {type(estimator).__name__}; wrap it in CalibratedClassifierCV"
        )
    task = Task(X, data.learnt, np.arange(len(data.classes)))
    found = fit_folds(estimator, task, folds, n_jobs=n_jobs)
    logs = np.empty((folds.repeats[-1] + 1, len(data.codes), len(data.classes)))
    for repeat, test, P in zip(folds.repeats, folds.test, found.parts, strict=True):
        logs[repeat][test] = np.log(np.maximum(P, 1e-12))
    report(f"{len(folds)} folds fitted")
    return Predictions.of_model(logs, data.codes)


def check_settings(estimator: AoRRClassifier, ignored: tuple[str, ...] = (*IGNORED, "class_weight")) -> None:
    """Raise an error if the loss is not the logistic one, or if a parameter that is not used is set."""
    if estimator.loss != "logistic":
        raise ValueError(f"an AoRRClassifier needs loss='logistic' to give probabilities, got {estimator.loss!r}")
    for name in ignored:
        if value := getattr(estimator, name):
            raise ValueError(
                f"find_label_issues does not use {name} of an AoRRClassifier, got {name}={value!r}; leave it out"
            )


def trimmed_predictions(data: Data, estimator: AoRRClassifier | None, folds: Folds, report: Report) -> Predictions:
    """Predictions of two linear fits: ordinary, and with the estimated share of wrong labels dropped.

    C and `fit_intercept` are those of the estimator. Without one, or with C="auto", C is chosen.
    """
    if estimator is not None:
        check_settings(estimator)
    n, K, repeats = len(data.codes), len(data.classes), folds.repeats[-1] + 1
    objective = logistic_objective(data.X, data.learnt, K, estimator is None or bool(estimator.fit_intercept))
    C = None if estimator is None or estimator.C == "auto" else float(estimator.C)
    fits, parts = trimmed_fits(objective, data.learnt, folds, C, report)
    logs, cuts = np.empty((2, repeats, n, K), dtype=np.float32), np.empty((repeats, n))
    for repeat, limit, (rows, scores) in zip(folds.repeats, fits.cuts, parts, strict=True):
        logs[:, repeat, rows] = log_probabilities(scores)
        cuts[repeat, rows] = limit
    ordinary, robust = (np.exp(part.mean(axis=0)) for part in logs)
    losses = -logs[1][:, np.arange(n), data.codes].astype(np.float64)
    return Predictions({"ordinary": ordinary, "robust": robust}, losses, cuts, fits.share, fits.C)


def neighbour_predictions(
    data: Data, plain: Array, high_leverage: Array, folds: Folds, rng: np.random.Generator
) -> Array | None:
    """The class shares (n, classes) among the nearest training rows; None if they do not improve the ensemble.

    The neighbours are used if a mixture with them has a mean log likelihood that is more than two standard errors above
    that of `plain` (n, classes), the probabilities of the ensemble without them. High-leverage rows do not count in the
    comparison.
    """
    X = data.X if sp.issparse(data.X) else standardised(data.X, (~high_leverage).astype(np.float64))
    targets = np.eye(len(data.classes))[data.learnt]
    shares = neighbour_means(X, targets, folds, rng)
    rows = np.flatnonzero(~high_leverage & np.isfinite(shares[:, 0]))
    likelihood = np.clip(np.stack([P[rows, data.codes[rows]] for P in (plain, shares)]), 1e-4, 1.0)
    share = mixture_weights(likelihood, np.ones(len(rows)))
    gain = np.log(share @ likelihood) - np.log(likelihood[0])
    return shares if gain.mean() > 2.0 * gain.std() / np.sqrt(len(rows)) else None
