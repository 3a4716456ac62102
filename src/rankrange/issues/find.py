"""Which labels are wrong? Every row is judged by fits that have not seen it, and the suspects come worst first.

Opinions of several kinds are mixed so that the labels as they are become most likely: an ordinary linear fit, one that
cuts as many rows as seem wrong, boosted trees, a forest, and the labels of the nearest rows where they add something. A
model that predicts nothing has no say. What the mixture says of wrong labels is averaged over all rates at which labels
may be wrong (`core.rates`), rows far out apart from the others (`crossfit.judge`), and the claims are tried on the same
table with planted errors (`issues.trial`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from ..core.arrays import Array
from ..core.flips import LIKELY, POSSIBLE, SURE
from ..crossfit.folds import Folds, test_parts
from ..crossfit.judge import Weighed, far_rows, mixed, odd_rows, weigh
from ..crossfit.opinions import less_sure, tree_opinions
from ..estimators import AoRRClassifier
from .suspects import LabelIssues
from .trial import Correction, Stack, try_claims
from .views import Data, Report, Views, foreign_views, given_views, neighbour_view, trimmed_views

# Numbers in a sparse X that is written out for trees, at most.
_WRITTEN_OUT = 5e7


def find_label_issues(
    X: Any = None,
    y: Any = None,
    *,
    estimator: Any = None,
    cv: Any = 5,
    n_repeats: int | None = None,
    pred_probs: Any = None,
    neighbours: bool = True,
    trees: bool = True,
    calibrate: bool = False,
    learn_from: Any = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> LabelIssues:
    """Find the rows whose labels are probably wrong; no row is judged by a fit that has seen it.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n_samples, n_features), optional
        The rows, numbers of any units; missing ones (NaN) are filled with the median and marked by a column of their
        own. Without X rows are ranked by `pred_probs` alone. What `rankrange.scan` gives holds its labels, so
        that y is left out; rows are then judged in a few passes, by a linear model and by trees grown on a sample,
        and the nearest rows are not asked. pred_probs, learn_from, n_repeats, n_jobs and calibrate are for memory.
    y : array_like of shape (n_samples,)
        Their labels, of which some may be wrong.
    estimator : None, AoRRClassifier or classifier with predict_proba, default=None
        The model that judges. None is an AoRRClassifier whose C is chosen by cross-validated log loss, and trees beside
        it. Any other classifier, a pipeline for example, may take whatever it likes for X: texts, tables with
        categories and missing values. Where X can be read as numbers, trees and the nearest rows are asked beside it:
        what they explain and your model does not is no error of the labels.
    cv : int, splitter or iterable of (train, test), default=5
        Folds. Each must train on the rows that it does not test, and all rows must be left out equally often. On a
        scan a number of up to 4; the default stands for 4.
    n_repeats : int, optional
        How often the folds are drawn anew: twice with two classes and up to 4,000 rows, else once.
    pred_probs : array_like of shape (n_samples, n_classes), optional
        Ready-made out-of-sample probabilities, columns in the order of the sorted classes; nothing is fitted then, so
        that no estimator may be given beside them.
    neighbours : bool, default=True
        Whether the labels of the nearest rows of X may judge as well; they do only where they add to the likelihood.
    trees : bool, default=True
        Whether boosted trees and a forest judge beside the linear fits, or beside a classifier of your own where X can
        be read as numbers.
    calibrate : bool, default=False
        Whether the claims are tried: errors of the estimated kinds are planted among rows thought right, judged the
        same way, and counted (`LabelIssues.trial`). It costs about as much again on small tables, nothing where no
        label seems wrong, and moves p_wrong by little; the audit does it unless told otherwise.
    learn_from : array_like of shape (n_samples,), optional
        Labels that the fits learn from in the place of y: y after a review, for example. Judged are the labels of y
        still, and how many are wrong is estimated on them, because the share of wrong labels among those that nobody
        has looked at cannot be seen from labels of which the worst were mended.
    random_state : int, RandomState or None, default=None
        A seed for the folds.
    n_jobs : int or None, default=None
        Folds fitted at a time, for estimators of other packages.
    verbose : int, default=0
        1 prints what is being fitted.

    Returns
    -------
    LabelIssues
        The suspects, worst first, and what is known of all rows.

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
    if estimator is not None and pred_probs is not None:
        raise ValueError("find_label_issues takes estimator or pred_probs, got both; leave one of them out")
    fitting = {
        "cv": None if isinstance(cv, int) and cv == 5 else cv,
        "n_repeats": n_repeats,
        "calibrate": calibrate or None,
    }
    if pred_probs is not None:
        _refuse(fitting, "ready-made probabilities need no fits")
    if hasattr(X, "__rankrange_issues__"):  # rows beyond memory judge themselves
        given = {"y": y, "pred_probs": pred_probs, "learn_from": learn_from, "n_jobs": n_jobs, **fitting, "cv": None}
        _refuse(given, "rows beyond memory hold their labels and are judged in a few passes")
        judged: LabelIssues = X.__rankrange_issues__(
            estimator=estimator, cv=cv, trees=trees, random_state=random_state, verbose=verbose
        )
        return judged
    own = estimator is None or isinstance(estimator, AoRRClassifier)
    data = Data.checked(X, y, pred_probs is not None, any_X=not own, learn_from=learn_from)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    report: Report = print if verbose else (lambda message: None)
    nowhere = np.zeros(len(data.codes), dtype=bool)
    if pred_probs is not None:
        views = given_views(pred_probs, data)
        return _judge(data, views, {"model": views.opinion(0)}, nowhere, neighbours, rng, report)
    few = len(data.classes) == 2 and len(data.codes) <= 4000
    tests, repeats = test_parts(data.learnt, cv, (2 if few else 1) if n_repeats is None else n_repeats, rng)
    if not own:
        views = foreign_views(data, X, estimator, tests, repeats, n_jobs, report)
        opinions, far = {"model": views.opinion(0)}, nowhere
    else:
        far = far_rows(data.X, data.learnt) | odd_rows(data.X)
        data = data.scaled(far) if estimator is None else data  # a C that was given is about X as it is
        views = trimmed_views(data, estimator, tests, repeats, far, report)
        opinions = {"ordinary": views.opinion(0), "robust": views.opinion(views.best)}
    dense, settled = _written_out(data.X) if trees and data.X is not None else None, None
    if dense is not None:
        once = tests[repeats == 0]
        found, settled = tree_opinions(dense, data.learnt, len(data.classes), Folds(~once & ~far, once), rng)
        opinions.update(found)
        report(f"{2 * len(once)} fits of trees; boosting stops at round {settled.stop}")
    if not own:
        return _judge(data, views, opinions, far, neighbours, rng, report)
    stack = Stack(data.X if dense is None else dense, len(data.classes), float(views.C or 1.0), settled, neighbours)
    return _judge(data, views, opinions, far, neighbours, rng, report, stack if calibrate else None)


def _refuse(given: dict[str, Any], rule: str) -> None:
    """Raise an error for the first argument that is not None."""
    for name, value in given.items():
        if value is not None:
            raise TypeError(f"{rule}, got {name} beside them; leave it out")


def _written_out(X: Any) -> Array | None:
    """X as an array, which trees need; None where that would be too large."""
    if not sp.issparse(X):
        return np.asarray(X)
    return np.asarray(X.toarray()) if X.shape[0] * X.shape[1] <= _WRITTEN_OUT else None


def _weighed(data: Data, opinions: dict[str, Array], far: Array) -> Weighed:
    """What the opinions say together; where some labels were mended, that no label is wrong is out of the question."""
    odd = odd_rows(data.X) if far.any() else far
    weighed = weigh(opinions, data.codes, far, odd=odd)
    others = float(weighed.stories[1:].sum())
    if (data.learnt == data.codes).all() or others == 0.0:
        return weighed
    return weigh(opinions, data.codes, far, np.array([0.0, *weighed.stories[1:]]) / others, odd)


def _judge(
    data: Data,
    views: Views,
    opinions: dict[str, Array],
    far: Array,
    neighbours: bool,
    rng: np.random.Generator,
    report: Report,
    stack: Stack | None = None,
) -> LabelIssues:
    if neighbours and data.X is not None:
        near = neighbour_view(data, mixed(opinions, data.codes, far)[1], far, rng)
        opinions = opinions if near is None else {**opinions, "neighbours": near}
    weighed = _weighed(data, opinions, far)
    if data.X is not None:
        doubtful = less_sure(opinions, data.codes, data.X, weighed.transition)
        if doubtful is not opinions:
            opinions = dict(doubtful)
            weighed = _weighed(data, opinions, far)
    told = ", ".join(f"{name} {weight:.2f}" for name, weight in weighed.weights.items())
    report(f"how much each opinion counts: {told}")
    correction = Correction()
    if stack is not None:
        stack = replace(stack, neighbours="neighbours" in opinions)
        correction = try_claims(stack, weighed, far, rng)
        report(f"trial: {correction.planted} planted errors among {correction.rows} rows")
    p_wrong = np.where(far, weighed.p_wrong, correction(weighed.p_wrong)) if weighed.told else weighed.p_wrong
    return _tabulate(data, views, opinions, weighed, p_wrong, far, correction)


def _tabulate(
    data: Data,
    views: Views,
    opinions: dict[str, Array],
    weighed: Weighed,
    p_wrong: Array,
    far: Array,
    correction: Correction,
) -> LabelIssues:
    rows, codes = np.arange(len(data.codes)), data.codes
    score = (2.0 * weighed.ranking + 1.0 - weighed.mean[rows, codes]) / 3.0
    score[far] = np.maximum(score, p_wrong)[far]  # what models expect far out is worth little
    losses = -views.logs[views.best][:, rows, codes].astype(np.float64)
    suggested = weighed.true.argmax(axis=1)
    other = weighed.mean.copy()
    other[rows, codes] = -1.0
    best_other = other.argmax(axis=1)
    order = np.argsort(-score, kind="stable")
    fits = (best_other == suggested) & (weighed.true.max(axis=1) >= SURE)
    table = np.zeros(
        len(order),
        dtype=[
            ("row", np.intp if data.index is None else data.index.dtype),
            ("given", data.classes.dtype),
            ("suggested", data.classes.dtype),
            ("p_wrong", np.float64),
            ("loss", np.float64),
            ("distance", np.float64),
            ("cut", np.float64),
            ("fdr", np.float64),
            ("action", "U7"),
        ],
    )
    table["row"] = order if data.index is None else data.index[order]
    table["given"], table["suggested"] = data.classes[codes[order]], data.classes[best_other[order]]
    table["p_wrong"], table["loss"] = p_wrong[order], losses[:, order].mean(axis=0)
    table["distance"] = (losses - views.cuts)[:, order].mean(axis=0)
    table["cut"] = (losses > views.cuts)[:, order].mean(axis=0)
    likely = np.where(fits & (p_wrong >= SURE) & ~far, "relabel", "drop")[order]
    table["action"] = np.where(p_wrong[order] >= LIKELY, likely, "look")
    listed = p_wrong[order] >= POSSIBLE
    suspects = table[listed]
    suspects["fdr"] = np.cumsum(1.0 - suspects["p_wrong"]) / np.arange(1, len(suspects) + 1)
    table["fdr"] = np.cumsum(1.0 - table["p_wrong"]) / np.arange(1, len(table) + 1)
    return LabelIssues(
        suspects,
        score,
        p_wrong,
        data.classes[codes],
        data.classes[suggested],
        float(weighed.rate),
        (float(weighed.interval[0]), float(weighed.interval[1])),
        float(weighed.weights.get("neighbours", 0.0)),
        tuple((name, weighed.weights[name], P) for name, P in opinions.items()),
        far=far,
        trial=correction,
        ranked=table,
        index=data.index,
    )
