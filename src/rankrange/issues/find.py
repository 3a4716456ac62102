"""`find_label_issues`: out-of-fold predictions of an ensemble, the posterior of wrong labels, the table of suspects.

The members of the ensemble are two linear fits, those of the table `MEMBERS`, a strongly penalised linear fit for a
sparse X, and nearest neighbours if they improve the predictions. A classifier of the user replaces the linear fits;
probabilities of the user replace all members but the neighbours. `label_noise` computes the probability that each label
is wrong. Linear fits are not trained on high-leverage rows, whose rate of wrong labels is estimated separately.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from ..core.arrays import Array
from ..core.engines import engine
from ..crossfit.distant_rows import high_leverage_rows, rows_with_unique_levels
from ..crossfit.folds import Folds, Report, draw_folds, label_folds, silent
from ..crossfit.members import MEMBERS, MemberTask
from ..crossfit.numeric import standardised
from ..crossfit.predictions import less_confident, penalised_predictions
from ..estimators import AoRRClassifier
from ..label_noise import Costs, LabelNoiseModel, LabelNoisePosterior, NoisePrior, actions, with_high_leverage
from .out_of_fold import (
    Data,
    Predictions,
    estimator_predictions,
    given_predictions,
    neighbour_predictions,
    trimmed_predictions,
)
from .sentences import SURPRISING
from .suspects import LabelIssues

# Linear models alone are surprised by rows that other models predict, so the least probability of a surprise is five
# times the default: 2% of rows that only trees predict are no longer flagged (p_wrong .3 instead of .91), and 6% of
# planted errors still are. With .03 the log loss of development tables is lower, but these errors are missed.
_LINEAR_MEMBERS, _LINEAR_SURPRISES = {"ordinary", "robust", "penalised"}, 0.005
# The largest size of a sparse X that is converted to a dense array for trees.
_MAX_DENSE = 5e7


def find_label_issues(
    X: Any = None,
    y: Any = None,
    *,
    estimator: Any = None,
    cv: Any = 5,
    n_repeats: int | None = None,
    pred_probs: Any = None,
    classes: Any = None,
    texts: Any = None,
    labels: str = "annotated",
    neighbours: bool = True,
    trees: bool = True,
    learn_from: Any = None,
    review_cost: float = 0.2,
    drop_cost: float = 1.0,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> LabelIssues:
    """Find the rows whose labels are probably wrong. Every prediction is out of fold.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n_samples, n_features), optional
        Numeric features in any units. Missing values (NaN) of a dense X are filled with the median and marked by an
        indicator column. X may also be a scan (`rankrange.scan`), which contains the labels, or a Dask collection. With
        more rows than their sample, the members of the ensemble are fitted to the sample, without nearest neighbours,
        and one pass predicts all rows. pred_probs, learn_from, n_repeats and n_jobs are not available then.
    y : array_like of shape (n_samples,)
        The labels, some of which may be wrong.
    estimator : None, AoRRClassifier or classifier with predict_proba, default=None
        The model that predicts the labels. None is an AoRRClassifier whose C is chosen by cross-validated log loss. An
        AoRRClassifier gives C and fit_intercept; the share to drop is estimated. Any other classifier, for example a
        pipeline, may take any X; trees and nearest neighbours are added if X can be converted to numbers.
    cv : int, splitter or iterable of (train, test), default=5
        The folds. Each fold must train on all rows that it does not test, and all rows must be tested equally often.
        For a scan or a Dask collection cv must be an int.
    n_repeats : int, optional
        How often the cross-validation is repeated with new folds, if `cv` is an int. The default is 2 for texts alone,
        and for two classes and up to 4,000 rows, otherwise 1.
    pred_probs : array_like of shape (n_samples, n_classes), optional
        Out-of-fold probabilities of your own model, with columns in the order of the sorted classes of y, or in that of
        `classes`. No model is fitted then; with X, nearest neighbours may be added.
    classes : array_like of shape (n_classes,), optional
        The classes of the columns of `pred_probs`, if there are columns for classes that no row of y has.
    texts : sequence of n_samples strings, optional
        A text for each row, which need not be in X. It adds a linear model of its words and character n-grams to the
        ensemble; X is then optional.
    labels : {"annotated", "observed"}, default="annotated"
        How the labels came about. Annotated labels were assigned by people or programs and may be wrong. Observed
        outcomes, such as a purchase or a default, cannot be: an unlikely outcome is then only surprising. No label is
        called wrong, and the rows are ranked by the probability that the models gave the outcome (see `LabelIssues`).
    neighbours : bool, default=True
        Whether to add nearest neighbours to the ensemble, if they increase the likelihood.
    trees : bool, default=True
        Whether to add boosted trees, a forest and, if there are more columns than rows, l1-penalised models to the
        ensemble; X must be convertible to numbers. They are left out for a sparse X of more than 5e7 cells.
    learn_from : array_like of shape (n_samples,), optional
        Labels to train on instead of y, for example y after a review. p_wrong and the share of wrong labels still refer
        to y, because they cannot be estimated from labels whose worst errors were corrected.
    review_cost, drop_cost : float
        The cost of reviewing a row by hand, and of dropping a row with a correct label; training on one wrong label
        costs 1. They determine which rows are suspects, and their "action": with the defaults, rows with p_wrong of at
        least 0.2 are listed for review, and rows with at least 0.5 are to be dropped or relabelled.
    random_state : int, RandomState or None, default=None
        Seed for the folds, the trees and all samples.
    n_jobs : int or None, default=None
        Number of parallel jobs for the folds, if the estimator is not an AoRRClassifier.
    verbose : int, default=0
        1 prints progress.

    Returns
    -------
    LabelIssues
        The suspects, worst first, and the posterior of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from rankrange import find_label_issues, noise
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 2))
    >>> y = np.where(X[:, 0] > 0, "cat", "dog")
    >>> given = noise.symmetric(y, 0.1, random_state=0)  # 30 labels are wrong
    >>> issues = find_label_issues(X, given, random_state=0)
    >>> worst = issues["row"][:20]
    >>> bool((given[worst] != y[worst]).all())  # the twenty worst are all wrong
    True
    """
    if labels not in ("annotated", "observed"):
        raise ValueError(
            f"labels must be 'annotated' (assigned, so they may be wrong) or 'observed' (outcomes), got {labels!r}"
        )
    if classes is not None and pred_probs is None:
        raise ValueError("classes names the columns of pred_probs, got classes alone; leave it out, or pass pred_probs")
    costs = Costs(drop=drop_cost, review=review_cost)
    if estimator is not None and pred_probs is not None:
        raise ValueError("find_label_issues takes estimator or pred_probs, got both; leave one of them out")
    fitting = {"cv": None if isinstance(cv, int) and cv == 5 else cv, "n_repeats": n_repeats}
    if pred_probs is not None:
        _refuse({**fitting, "texts": texts}, "pred_probs are used without any fit")
    if hasattr(X, "__rankrange_rows__") or hasattr(X, "__dask_graph__"):
        given = {"pred_probs": pred_probs, "learn_from": learn_from, "n_jobs": n_jobs, "n_repeats": n_repeats}
        _refuse({**given, "texts": texts}, "a scan or a Dask collection is read in a few passes")
        if labels == "observed":
            raise ValueError("labels='observed' needs rows in memory, got a scan; pass a sample of its rows as arrays")
        options = {"estimator": estimator, "cv": cv, "trees": trees, "neighbours": neighbours, "costs": costs}
        found_in_passes: LabelIssues = engine("issues")(X, y, **options, random_state=random_state, verbose=verbose)
        return found_in_passes
    if texts is not None:
        texts = [str(text) for text in texts]
        if y is not None and len(texts) != len(y):
            raise ValueError(f"texts must have one text per label, {len(y)}, got {len(texts)}")
    by_text = texts is not None and X is None and pred_probs is None and estimator is None
    is_linear = estimator is None or isinstance(estimator, AoRRClassifier)
    data = Data.checked(
        X, y, pred_probs is not None or by_text, any_X=not is_linear, learn_from=learn_from, classes=classes
    )
    n, n_classes = len(data.codes), len(data.classes)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    report: Report = print if verbose else silent
    high_leverage, predictions = np.zeros(n, dtype=bool), None
    members: dict[str, Array] = {}
    if pred_probs is not None:
        folds = draw_folds(n, rng, strata=data.learnt, n_folds=min(5, n), n_repeats=1)
        predictions = given_predictions(pred_probs, data, classes)
    else:
        folds = label_folds(data.learnt, cv, 2 if by_text and n_repeats is None else n_repeats, rng)
        if is_linear and not by_text:
            high_leverage = high_leverage_rows(data.X, data.learnt) | rows_with_unique_levels(data.X)
            folds, unscaled = folds.without(high_leverage), data.X
            data, predictions = _linear_predictions(data, estimator, folds, report)
            if estimator is None and _mostly_zero(unscaled):
                members["penalised"] = penalised_predictions(unscaled, data.learnt, n_classes, folds)
        elif not by_text:
            predictions = estimator_predictions(data, X, estimator, folds, n_jobs, report)
        dense = as_dense(data.X) if trees and data.X is not None else None
        for name in MEMBERS if dense is not None else ("text",):
            members |= MEMBERS[name](MemberTask(dense, data.learnt, n_classes, folds, rng, texts))
            report(f"{name} predicted all rows out of fold")
    if predictions is None:
        if not members:
            raise ValueError("texts must have words in common, got none; pass X as well")
        predictions = Predictions.of_model(np.log(np.maximum(members["text"], 1e-12))[None], data.codes, "text")
    members = predictions.members | members
    near = folds.once() if neighbours and data.X is not None else None
    members, posterior = _inferred(data, members, high_leverage, near, rng, report)
    common = {
        "given": data.classes[data.codes],
        "members": tuple((name, posterior.weights[name], P) for name, P in members.items()),
        "high_leverage": high_leverage,
        "classes": data.classes,
        "index": data.index,
        "contradicted": posterior.contradicted,
    }
    if labels == "observed":
        return _ranked_outcomes(data, posterior, common)
    return _suspects(data, predictions, posterior, costs, common)


def _refuse(given: dict[str, Any], rule: str) -> None:
    """Raise an error with `rule` for the first of these arguments that is given (not None)."""
    for name, value in given.items():
        if value is not None:
            raise TypeError(f"{rule}, got {name} as well; leave it out")


def _linear_predictions(
    data: Data, estimator: AoRRClassifier | None, folds: Folds, report: Report
) -> tuple[Data, Predictions]:
    """The data with columns scaled as in the linear fits, and the predictions of these fits.

    If the user passed an estimator, columns are not scaled. Otherwise they are standardised. A sparse X with at least
    half zeros is also fitted without scaling, because TF-IDF weights are informative; the fits with the smaller
    out-of-fold log loss are kept.
    """
    trained = np.asarray(folds.train.any(axis=0), dtype=np.float64)
    scaled = replace(data, X=standardised(data.X, trained))
    views = [data] if estimator is not None else [scaled, data][: 1 + _mostly_zero(data.X)]
    found = [(view, trimmed_predictions(view, estimator, folds, report)) for view in views]
    rows = np.arange(len(data.codes))
    of_given = [np.maximum(predictions.members["ordinary"][rows, data.learnt], 1e-30) for _, predictions in found]
    return found[int(np.argmax([np.log(likelihood).mean() for likelihood in of_given]))]


def _mostly_zero(X: Any) -> bool:
    return sp.issparse(X) and 2 * X.nnz <= X.shape[0] * X.shape[1]


def as_dense(X: Any) -> Array | None:
    """X as a dense array for trees; None if a sparse X has more than 5e7 cells."""
    if not sp.issparse(X):
        return np.asarray(X)
    return np.asarray(X.toarray()) if X.shape[0] * X.shape[1] <= _MAX_DENSE else None


def _inferred(
    data: Data,
    members: dict[str, Array],
    high_leverage: Array,
    folds: Folds | None,
    rng: np.random.Generator,
    report: Report,
) -> tuple[dict[str, Array], LabelNoisePosterior]:
    """The members, to which nearest neighbours may be added if `folds` are given, and the posterior of all rows."""
    # If labels were corrected, at least one label was wrong.
    prior = NoisePrior() if (data.learnt == data.codes).all() else NoisePrior(no_error=0.0)
    if set(members) <= _LINEAR_MEMBERS:
        prior = replace(prior, surprises=_LINEAR_SURPRISES)
    model, weight = LabelNoiseModel(prior), (~high_leverage).astype(np.float64)
    posterior = model.fit(members, data.codes, weight)
    near = None if folds is None else neighbour_predictions(data, posterior.mean, high_leverage, folds, rng)
    if near is not None:
        members = {**members, "neighbours": near}
        posterior = model.fit(members, data.codes, weight)
    if data.X is not None:
        doubtful = less_confident(members, data.codes, data.X, posterior.transition)
        if doubtful is not members:
            members = dict(doubtful)
            posterior = model.fit(members, data.codes, weight)
    counted = ", ".join(f"{name} {share:.2f}" for name, share in posterior.weights.items())
    report(f"weights of the members: {counted}")
    return members, with_high_leverage(posterior, data.codes, high_leverage)


# The weight of p_wrong in the score by which rows are ranked. The rest is the out-of-fold margin of the most probable
# other class over the given label, scaled to [0, 1]; with two classes it is 1 - P(given label).
# With errors in one class of breast cancer the average precision is .983 with .8 and .931 with .5.
P_WRONG_IN_SCORE = 0.8


def ranking_score(p_wrong: Array, p_given: Array, p_other: Array) -> Array:
    """The score by which rows are ranked, from the out-of-fold P(given label) and that of the likeliest other class."""
    return P_WRONG_IN_SCORE * p_wrong + (1.0 - P_WRONG_IN_SCORE) * (1.0 + p_other - p_given) / 2.0


def add_fdr(table: Array) -> None:
    """Fill the column "fdr": the mean of 1 - p_wrong over the rows up to this one."""
    table["fdr"] = np.cumsum(1.0 - table["p_wrong"]) / np.arange(1, len(table) + 1)


def _table(data: Data, order: Array, columns: dict[str, Array]) -> Array:
    """A structured array of the names, the given labels and these columns (n,) of the rows in this order."""
    names = np.arange(len(data.codes)) if data.index is None else data.index
    columns = {"row": names, "given": data.classes[data.codes], **columns}
    table = np.empty(len(order), dtype=[(name, values.dtype) for name, values in columns.items()])
    for name, values in columns.items():
        table[name] = values[order]
    return table


def _ranked_outcomes(data: Data, posterior: LabelNoisePosterior, common: dict[str, Any]) -> LabelIssues:
    """The result for observed outcomes: rows ranked by the probability of the outcome, none of them called wrong."""
    mean = posterior.mean / posterior.mean.sum(axis=1, keepdims=True)
    probability, expected = mean[np.arange(len(data.codes)), data.codes], data.classes[mean.argmax(axis=1)]
    columns = {"expected": expected, "probability": probability, "loss": -np.log(np.maximum(probability, 1e-12))}
    table = _table(data, np.argsort(probability, kind="stable"), columns)
    return LabelIssues(
        table=table[table["probability"] < SURPRISING],
        score=1.0 - probability,
        p_wrong=np.zeros(len(table)),
        suggested=expected,
        noise_estimate=0.0,
        noise_interval=(0.0, 0.0),
        ranked=table,
        labels="observed",
        expected_surprises=float(mean[mean < SURPRISING].sum()),
        **common,
    )


def _suspects(
    data: Data, predictions: Predictions, posterior: LabelNoisePosterior, costs: Costs, common: dict[str, Any]
) -> LabelIssues:
    """The result for annotated labels: rows ranked by the score, and those with an action."""
    rows, p_wrong, losses = np.arange(len(data.codes)), posterior.p_wrong, predictions.losses
    other, predicted = posterior.p_true.copy(), posterior.mean.copy()
    other[rows, data.codes] = predicted[rows, data.codes] = -1.0
    score = ranking_score(p_wrong, posterior.mean[rows, data.codes], predicted.max(axis=1))
    columns = {
        "suggested": data.classes[other.argmax(axis=1)],
        "p_wrong": p_wrong,
        "loss": losses.mean(axis=0),
        "distance": (losses - predictions.cuts).mean(axis=0),
        "cut": (losses > predictions.cuts).mean(axis=0),
        "fdr": np.zeros(len(rows)),
        # No class is suggested for a high-leverage row, because it may be an outlier.
        "action": actions(p_wrong, np.where(common["high_leverage"], 0.0, other.max(axis=1)), costs),
    }
    table = _table(data, np.argsort(-score, kind="stable"), columns)
    suspects = table[table["action"] != ""]
    for part in (suspects, table):
        add_fdr(part)
    return LabelIssues(
        table=suspects,
        score=score,
        p_wrong=p_wrong,
        suggested=data.classes[posterior.p_true.argmax(axis=1)],
        noise_estimate=float(posterior.share),
        noise_interval=posterior.interval,
        ranked=table,
        no_error=posterior.no_error,
        transition=posterior.transition,
        dropped_share=predictions.dropped_share,
        C=predictions.C,
        **common,
    )
