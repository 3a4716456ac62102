"""Out-of-sample views of the rows: what fits that have not seen a row say of its label, and where they would cut it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.parallel import Parallel, delayed

from ..core.arrays import Array
from ..core.flips import WrongLabels, wrong_labels
from ..core.losses import Logistic, Softmax
from ..core.objective import Design, Objective
from ..crossfit.folds import deal
from ..crossfit.service import CrossFit
from ..estimators import AoRRClassifier

Report = Callable[[str], Any]
_MOST_CUT = 0.45


@dataclass(frozen=True)
class Data:
    """Rows and labels, checked: codes 0..K-1 of the sorted classes."""

    X: Any
    codes: Array
    classes: Array

    @classmethod
    def checked(cls, X: Any, y: Any, fitted: bool) -> Data:
        """Check X and y as users give them; `fitted` says that probabilities are given and nothing is to be fitted."""
        if y is None or (X is None and not fitted):
            raise ValueError("find_label_issues needs y, and X or pred_probs; pass find_label_issues(X, y)")
        y = column_or_1d(y)
        if X is not None:
            X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
            if X.shape[0] != len(y):
                raise ValueError(
                    f"X and y must have the same number of rows, got {X.shape[0]} and {len(y)}; pass one label per row"
                )
        classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        if len(classes) < 2:
            raise ValueError(f"need at least two classes in y, got only {classes.tolist()}; nothing can be wrong here")
        if not fitted and counts.min() < 2:
            rare = classes.tolist()[int(counts.argmin())]
            raise ValueError(f"each class needs two rows to be judged by the others, got one of {rare!r}; drop it")
        return cls(X, codes, classes)


def test_parts(data: Data, cv: Any, n_repeats: int | None, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw the folds.

    Parameters
    ----------
    data : Data
        The rows, of which each class is dealt out evenly.
    cv : int, splitter or iterable
        Folds as users name them.
    n_repeats : int or None
        How often folds are drawn anew; None decides by the number of rows.
    rng : Generator
        Shuffles.

    Returns
    -------
    tests, repeats : ndarray of bool of shape (F, n) and ndarray of shape (F,)
        Which rows each fold leaves out, and the repeat it belongs to.
    """
    n = len(data.codes)
    few = len(data.classes) == 2 and n <= 4000
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        repeats = (2 if few else 1) if n_repeats is None else n_repeats
        for name, value, least in (("cv", cv, 2), ("n_repeats", repeats, 1)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be an int of at least {least}, got {value!r}")
        drawn = [deal(data.codes, int(cv), rng) for _ in range(repeats)]
        return np.array([fold == f for fold in drawn for f in range(cv)]), np.repeat(np.arange(repeats), cv)
    pairs = list(cv.split(np.zeros((n, 1)), data.codes) if hasattr(cv, "split") else cv)
    tests = np.zeros((len(pairs), n), dtype=bool)
    for mask, (train, test) in zip(tests, pairs, strict=True):
        mask[test] = True
        if mask[train].any() or len(train) + len(test) != n:
            raise ValueError("a fold of cv must train on exactly the rows that it does not test; use for example KFold")
    times = tests.sum(axis=0)
    if times.min() == 0 or times.min() != times.max():
        raise ValueError(
            f"cv must leave out each row equally often, got {times.min()} to {times.max()} times; use KFold"
        )
    before = np.cumsum(tests, axis=0) - tests
    return tests, np.array([int(before[f][tests[f]].max()) for f in range(len(tests))])


@dataclass(frozen=True)
class Views:
    """Out-of-sample log probabilities, and the losses above which a row is cut.

    logs (V, R, n, K): V fits of growing m, the ordinary one first, R repeats. `best` is the fit that trains best, and
    cuts (R, n) its lam_hat in the fold where the row was left out. `plain` is the model of flips on the ordinary fit.
    """

    logs: Array
    best: int
    cuts: Array
    plain: WrongLabels | None = None


def given_views(pred_probs: Any, data: Data) -> Views:
    """Views made of ready-made probabilities, checked."""
    P = check_array(pred_probs, dtype=np.float64)
    shape = (len(data.codes), len(data.classes))
    if P.shape != shape:
        raise ValueError(
            f"pred_probs must have one row per label and one column per class, shape {shape}, got {P.shape}; columns "
            "are in the order of the sorted classes of y"
        )
    if (P < 0).any() or not np.allclose(P.sum(axis=1), 1.0, atol=1e-3):
        raise ValueError(
            "pred_probs must be probabilities: none negative, and each row must sum to 1; divide each row by its sum"
        )
    return _views_of(np.log(np.maximum(P, 1e-12))[None, None], data)


def _views_of(logs: Array, data: Data) -> Views:
    """Views of one fit; rows are cut above the share of losses that are estimated to be wrong."""
    plain = wrong_labels(logs[0].mean(axis=0), data.codes)
    losses = -logs[0][:, np.arange(len(data.codes)), data.codes]
    cut = np.quantile(losses, 1.0 - max(plain.rate, 1.0 / len(data.codes)), axis=1, keepdims=True)
    return Views(logs, 0, np.broadcast_to(cut, losses.shape), plain)


def foreign_views(
    data: Data, estimator: Any, tests: Array, repeats: Array, n_jobs: int | None, report: Report
) -> Views:
    """Views of a classifier of another package.

    Parameters
    ----------
    data : Data
        The rows and their labels.
    estimator : classifier with predict_proba
        Cloned for each fold.
    tests, repeats : ndarray
        The folds, as `test_parts` draws them.
    n_jobs : int or None
        Folds fitted at a time.
    report : callable
        Is told what has been fitted.
    """
    if not hasattr(estimator, "predict_proba"):
        raise ValueError(
            f"estimator must have predict_proba, got {type(estimator).__name__}; wrap it in CalibratedClassifierCV"
        )
    logs = np.full((repeats[-1] + 1, len(data.codes), len(data.classes)), np.log(1e-12))
    found = Parallel(n_jobs=n_jobs)(delayed(_predict)(clone(estimator), data, test) for test in tests)
    for repeat, test, (known, P) in zip(repeats, tests, found, strict=True):
        logs[repeat][np.ix_(np.flatnonzero(test), known)] = np.log(np.maximum(P, 1e-12))
    report(f"{len(tests)} folds fitted")
    return _views_of(logs[None], data)


def _predict(estimator: Any, data: Data, test: Array) -> tuple[Array, Array]:
    fitted = estimator.fit(data.X[~test], data.codes[~test])
    return np.asarray(fitted.classes_), fitted.predict_proba(data.X[test])


def trimmed_views(
    data: Data,
    estimator: AoRRClassifier | None,
    tests: Array,
    repeats: Array,
    rng: np.random.Generator,
    report: Report,
) -> Views:
    """Views of an ordinary fit and of fits that cut about as many rows as seem wrong.

    Parameters
    ----------
    data : Data
        The rows and their labels.
    estimator : AoRRClassifier or None
        Where C and the intercept come from; None chooses C.
    tests, repeats : ndarray
        The folds, as `test_parts` draws them.
    rng : Generator
        Draws random starts.
    report : callable
        Is told what has been fitted.
    """
    objective = _objective(data, estimator)
    cross = CrossFit(objective, tests, None if estimator is None or estimator.C == "auto" else float(estimator.C))
    fits = cross.ordinary
    report(f"{len(tests)} ordinary fits, C = {cross.C:g}")
    views = _views_of_parts(data, fits.cuts(0), cross.scores(fits), repeats, 0)
    plain = wrong_labels(views.logs[0].mean(axis=0), data.codes)
    share = min(max(plain.rate, 1.0 / len(data.codes)), _MOST_CUT if objective.n_outputs == 1 else 0.6)
    fits = cross.trimmed(np.array([0.5 * share, share]))
    report(f"{2 * len(tests)} fits that cut up to {share:.1%} of the rows")
    views = _views_of_parts(data, fits.cuts(2), cross.scores(fits), repeats, 2)
    return replace(views, plain=plain)


def _views_of_parts(data: Data, limits: Array, parts: list[tuple[Array, Array]], repeats: Array, best: int) -> Views:
    n, K = len(data.codes), len(data.classes)
    logs = np.empty((len(parts[0][1]), repeats[-1] + 1, n, K), dtype=np.float32)
    cuts = np.empty((repeats[-1] + 1, n))
    for repeat, limit, (rows, scores) in zip(repeats, limits, parts, strict=True):
        Z = np.stack([np.zeros_like(scores[:, 0]), scores[:, 0]], axis=1) if scores.shape[1] == 1 else scores
        logs[:, repeat, rows] = log_softmax(Z, axis=1).transpose(0, 2, 1)
        cuts[repeat, rows] = limit
    return Views(logs, best, cuts)


def _objective(data: Data, estimator: AoRRClassifier | None) -> Objective:
    if estimator is not None and estimator.loss != "logistic":
        raise ValueError(f"an AoRRClassifier needs loss='logistic' to give probabilities, got {estimator.loss!r}")
    n, K = len(data.codes), len(data.classes)
    design = Design(data.X, True if estimator is None else bool(estimator.fit_intercept))
    if K == 2:
        return Objective(design, (2 * data.codes - 1).astype(data.X.dtype), Logistic(), 1.0, 1, m=0, k=n)
    return Objective(design, data.codes, Softmax(), 1.0, K, m=0, k=n)
