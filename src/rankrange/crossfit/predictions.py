"""Out-of-fold predictions of linear models: an ordinary fit, one that drops suspect rows, and penalised ones.

Linear models hardly overfit wrong labels. Texts are columns of TF-IDF. Predictions of rows with missing cells are made
less confident if that makes the labels more likely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from ..core.arrays import Array
from ..core.losses import Logistic, Softmax
from ..core.objective import Design, Objective
from ..core.row_space import spanned
from ..core.transition import MIN_PROBABILITY
from ..label_noise import LabelNoiseModel
from .folds import Folds, Report, silent
from .held_out import best_C
from .models import Task, fit_folds
from .numeric import standardised
from .path import dropping, ordinary_fit, out_of_fold, part_of, upwards, with_C

Parts = list[tuple[Array, Array]]
# Candidates for the C of l1-penalised fits, times the number of rows.
_SPARSE_PENALTIES = np.geomspace(2.0, 60.0, 12)
# The largest number of columns of words and of character n-grams, and the weight of the latter: words of long texts
# are more specific, but short or misspelt texts have few words in common.
_TEXT_COLUMNS, _CHARACTER_WEIGHT = 20_000, 0.5
# Rows that are examined for missing cells, and the smallest number of marked and of other rows.
_SAMPLED, _MIN_MARKED = 2000, 20


class FoldFits(NamedTuple):
    """Two fits on the training rows of each fold: an ordinary one, and one that drops a `share` of the rows.

    W (2, F, r, p) are the parameters, `cuts` (F,) the upper cuts of the training losses of the second, and C is
    scikit-learn's.
    """

    W: Array
    share: float
    cuts: Array
    C: float


def logistic_objective(
    X: Any, codes: Array, n_classes: int, fit_intercept: bool = True, mass: Array | None = None
) -> Objective:
    """The objective with m = 0, k = n and C = 1 of a logistic (softmax) model of labels 0..n_classes-1."""
    n, design = len(codes), Design(X, fit_intercept)
    if n_classes == 2:
        y, loss, outputs = (2 * codes - 1).astype(X.dtype), Logistic(), 1
        return Objective(design, y, loss, 1.0, outputs, m=0, k=n, sample_weight=mass)
    return Objective(design, codes, Softmax(), 1.0, n_classes, m=0, k=n, sample_weight=mass)


def trimmed_fits(
    objective: Objective,
    codes: Array,
    folds: Folds,
    C: float | None,
    report: Report = silent,
) -> tuple[FoldFits, Parts]:
    """Two fits of each fold, and for each fold its test rows and their scores (2, r, rows).

    One fit drops no rows, the other the estimated share of wrong labels, at least one row. C is scikit-learn's; None
    chooses it. Without an l1 penalty the coefficients are in coordinates of the span of few rows.
    """
    if not objective.l1_ratio:
        design = Design(spanned(objective.design.X), objective.design.fit_intercept)
        objective = replace(objective, design=design)
    mass = objective.mass
    objective = replace(objective, k=objective.total)
    C = best_C(objective, folds, np.random.default_rng(0)) if C is None else C
    objective = with_C(objective, C)
    trains = [np.flatnonzero(train & (mass > 0)) for train in folds.train]
    ordinary = np.array([ordinary_fit(part_of(objective, rows)) for rows in trains])
    report(f"{len(folds)} ordinary fits, C = {C:g}")
    P = np.exp(folds.average([log_probabilities(Z)[0] for _, Z in out_of_fold(objective, folds, ordinary[None])]))
    # rows that are in no training set have high leverage and are ignored
    predicted = folds.tested & folds.train.any(axis=0)
    rate = wrong_share(P[predicted], codes[predicted], None if mass.dtype == bool else mass[predicted])
    share = max(rate, 1.0 / len(codes))
    trimmed, cuts = ordinary.copy(), np.zeros(len(folds))
    for fold, rows in enumerate(trains):
        part = part_of(objective, rows)
        W = trimmed[fold] = upwards(part, (0.5 * share, share), ordinary[fold])[-1][1]
        cuts[fold] = dropping(part, share).select(part.losses(part.design.scores(W))).lam_hat
    fits = FoldFits(np.array([ordinary, trimmed]), share, cuts, C)
    report(f"{2 * len(folds)} fits that cut up to {share:.1%} of the rows")
    return fits, out_of_fold(objective, folds, fits.W)


def wrong_share(P: Array, codes: Array, mass: Array | None = None) -> float:
    """The estimated share of wrong labels, from the out-of-fold probabilities (n, classes) of one model."""
    return LabelNoiseModel().fit({"model": P}, codes, mass).share


def log_probabilities(Z: Array) -> Array:
    """Log probabilities (candidates, rows, classes) from scores (candidates, 1 or classes, rows)."""
    full = np.stack([np.zeros_like(Z[:, 0]), Z[:, 0]], axis=1) if Z.shape[1] == 1 else Z
    return np.asarray(log_softmax(full, axis=1).transpose(0, 2, 1))


def linear_predictions(
    X: Any, codes: Array, n_classes: int, folds: Folds, mass: Array | None = None
) -> tuple[Array, ...]:
    """Out-of-fold probabilities (n, n_classes) of the ordinary and of the trimmed linear fit."""
    return _both(logistic_objective(X, codes, n_classes, mass=mass), codes, folds)


def _both(objective: Objective, codes: Array, folds: Folds, C: float | None = None) -> tuple[Array, ...]:
    _, parts = trimmed_fits(objective, codes, folds, C)
    logs = folds.average([log_probabilities(Z).transpose(1, 0, 2) for _, Z in parts])
    return np.exp(logs[:, 0]), np.exp(logs[:, 1])


def sparse_predictions(X: Array, codes: Array, n_classes: int, folds: Folds) -> dict[str, Array]:
    """Probabilities (n, n_classes) of an ordinary ("sparse") and of a trimmed ("sparse robust") l1-penalised fit.

    Empty unless there are more columns than rows. If few of many columns are informative, an l2 penalty spreads the
    coefficients over all columns.
    """
    if X.shape[1] <= X.shape[0]:
        return {}
    X = standardised(np.asarray(X, dtype=np.float64))
    objective = replace(logistic_objective(X, codes, n_classes), l1_ratio=1.0)
    # for columns of unit variance, all coefficients are about zero at the first
    C = best_C(objective, folds, np.random.default_rng(0), _SPARSE_PENALTIES / len(codes))
    return dict(zip(("sparse", "sparse robust"), _both(objective, codes, folds, C), strict=True))


def penalised_predictions(X: Any, codes: Array, n_classes: int, folds: Folds) -> Array:
    """Array (n, n_classes): calibrated out-of-fold probabilities of logistic regression with scikit-learn's penalty.

    For texts this penalty is strong: the predictions are underconfident, but wrong labels influence them little.
    """
    task = Task(X, codes, np.arange(n_classes))
    P = fit_folds(LogisticRegression(max_iter=300, tol=1e-3), task, folds).out_of_fold
    usual = _log_frequencies(P)
    return _powered(_likeliest(P, usual, codes, np.eye(n_classes)), P, usual)


def _log_frequencies(P: Array) -> Array:
    return np.asarray(np.log(np.maximum(P.mean(axis=0), MIN_PROBABILITY)))


def _powered(power: float, P: Array, usual: Array) -> Array:
    """Probabilities (n, classes), their ratio to the class frequencies (`usual` is its logarithm) to this power."""
    return np.asarray(softmax(power * (np.log(np.maximum(P, MIN_PROBABILITY)) - usual) + usual, axis=1))


def _cost(power: float, P: Array, usual: Array, codes: Array, transition: Array) -> float:
    """Minus the log likelihood of the labels, which are drawn from true classes by `transition` (true, given)."""
    return -float(np.log((_powered(power, P, usual) @ transition)[np.arange(len(codes)), codes]).sum())


def _likeliest(*task: Array) -> float:
    return float(minimize_scalar(_cost, bounds=(0.05, 5.0), args=task, method="bounded").x)


def text_features(texts: Sequence[str]) -> Any:
    """TF-IDF of words and marks, of pairs of them, and of character n-grams, as a CSR matrix.

    A mark is a character that is neither a letter, a digit nor a space. Without words and marks there are no columns.
    """
    settings: dict[str, Any] = {
        "sublinear_tf": True,
        "min_df": 2 if len(texts) > 20 else 1,
        "max_features": _TEXT_COLUMNS,
    }
    words = TfidfVectorizer(token_pattern=r"(?u)\w+|[^\w\s]", ngram_range=(1, 2), **settings)
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), **settings)
    parts = []
    for vectorizer, weight in ((words, 1.0), (characters, _CHARACTER_WEIGHT)):
        try:
            parts.append(weight * vectorizer.fit_transform(texts))
        except ValueError:  # no word occurs twice
            continue
    return sp.hstack(parts).tocsr() if parts else sp.csr_matrix((len(texts), 0))


def text_predictions(texts: Sequence[str], codes: Array, n_classes: int, folds: Folds) -> dict[str, Array]:
    """Probabilities (n, n_classes) of `penalised_predictions` from `text_features`; empty without features."""
    X = text_features(texts)
    return {"text": penalised_predictions(X, codes, n_classes, folds)} if X.shape[1] else {}


def less_confident(members: Mapping[str, Array], codes: Array, X: Any, transition: Array) -> Mapping[str, Array]:
    """The predictions (n, classes), less confident for rows with a missing cell if that makes their labels more likely.

    A linear model fills a missing cell with an average value and does not lower its confidence, so rows that depend on
    this cell look wrong under a noise model with `transition` (true, given). If no cell is missing, the same mapping is
    returned.
    """
    markers = missing_cells(X)
    if not len(markers):
        return members
    return {name: _less_confident(P, codes, markers, transition) for name, P in members.items()}


def _less_confident(P: Array, codes: Array, markers: Array, transition: Array) -> Array:
    """The predictions of one member; each of `markers` (columns, n) has the rows in which a column is missing.

    The log likelihood of the labels of these rows must gain 1.
    """
    P, usual = P.copy(), _log_frequencies(P)
    common = _likeliest(P, usual, codes, transition)  # all predictions may be over- or underconfident
    for rows in markers:
        task = P[rows], usual, codes[rows], transition
        power = _likeliest(*task)
        if power < common and _cost(common, *task) - _cost(power, *task) >= 1.0:
            P[rows] = _powered(power / common, P[rows], usual)
    return P


def missing_cells(X: Any) -> Array:
    """Masks (columns, n) of the rows in which a binary column of a dense X marks the missing cells of another column.

    On these rows, at least 20 as are the others, this other column is constant: its missing cells were filled. At most
    4000 rows are examined.
    """
    n, found = X.shape[0], []
    sample = np.empty((0, 0)) if sp.issparse(X) else X[:: 1 + n // _SAMPLED]
    binary = ((sample == sample.min(axis=0, initial=np.inf)) | (sample == sample.max(axis=0, initial=-np.inf))).all(
        axis=0
    )
    others = sample[:, ~binary]
    for column in np.flatnonzero(binary).tolist():
        for value in np.unique(sample[:, column]):
            rows, part = X[:, column] == value, others[sample[:, column] == value]
            if _MIN_MARKED <= rows.sum() <= n - _MIN_MARKED and (part == part[:1]).all(axis=0).any():
                found.append(rows)
    return np.array(found)
