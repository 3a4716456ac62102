"""Which labels are wrong? Every row is judged by fits that have not seen it, and the suspects come worst first.

The score of a row joins what its label costs with the probability of being wrong under a model of flips
(`rankrange.core.flips`), which knows that labels of one class may be wrong more often than those of another. Three
sources are put together: the ordinary fit; a fit that cuts as many rows as seem wrong, where it predicts better; and
the labels of the nearest rows, where they add to the likelihood of the labels by more than two standard errors, which
is where a linear model misses part of the structure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..core.arrays import Array
from ..core.flips import LIKELY, POSSIBLE, SURE, wrong_labels
from ..crossfit.partitions import test_parts
from ..estimators import AoRRClassifier
from .neighbours import neighbour_view
from .suspects import LabelIssues
from .views import Data, Report, Views, foreign_views, given_views, trimmed_views


def find_label_issues(
    X: Any = None,
    y: Any = None,
    *,
    estimator: Any = None,
    cv: Any = 5,
    n_repeats: int | None = None,
    pred_probs: Any = None,
    neighbours: bool = True,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> LabelIssues:
    """Find the rows whose labels are probably wrong; no row is judged by a fit that has seen it.

    Parameters
    ----------
    X : array_like or sparse matrix of shape (n_samples, n_features), optional
        The rows. Without them rows are ranked by `pred_probs` alone. What `rankrange.scan` gives holds its labels, so
        that y is left out; rows are then judged in a few passes, by a linear model and by trees grown on a sample.
    y : array_like of shape (n_samples,)
        Their labels, of which some may be wrong.
    estimator : None, AoRRClassifier or classifier with predict_proba, default=None
        The model that judges. None is an AoRRClassifier whose C is chosen by cross-validated log loss. Any other
        classifier, a pipeline for example, may take whatever it likes for X: texts, tables with categories and missing
        values. Its nearest rows are asked where X can be read as numbers.
    cv : int, splitter or iterable of (train, test), default=5
        Folds. Each must train on the rows that it does not test, and all rows must be left out equally often.
    n_repeats : int, optional
        How often the folds are drawn anew: twice with two classes and up to 4,000 rows, else once.
    pred_probs : array_like of shape (n_samples, n_classes), optional
        Ready-made out-of-sample probabilities, columns in the order of the sorted classes; nothing is fitted then.
    neighbours : bool, default=True
        Whether the labels of the nearest rows of X may judge as well; they do only where they add to the likelihood.
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
    if hasattr(X, "__rankrange_issues__"):  # rows beyond memory judge themselves
        found: LabelIssues = X.__rankrange_issues__(
            estimator=estimator, cv=cv, random_state=random_state, verbose=verbose
        )
        return found
    own = estimator is None or isinstance(estimator, AoRRClassifier)
    data = Data.checked(X, y, pred_probs is not None, any_X=not own)
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    report: Report = print if verbose else (lambda message: None)
    if pred_probs is not None:
        views = given_views(pred_probs, data)
    else:
        few = len(data.classes) == 2 and len(data.codes) <= 4000
        tests, repeats = test_parts(data.codes, cv, (2 if few else 1) if n_repeats is None else n_repeats, rng)
        if own:
            views = trimmed_views(data, estimator, tests, repeats, report)
        else:
            views = foreign_views(data, X, estimator, tests, repeats, n_jobs, report)
    return _judge(data, views, neighbours, rng, report)


def _judge(data: Data, views: Views, neighbours: bool, rng: np.random.Generator, report: Report) -> LabelIssues:
    rows, codes = np.arange(len(data.codes)), data.codes
    plain = np.exp(views.logs[0].mean(axis=0).astype(np.float64))
    assert views.plain is not None
    useful = _useful(data, views)
    sources = [views.plain, *(wrong_labels(views.logs[v].mean(axis=0), codes) for v in useful)]
    robust = [("robust", 1.0 / len(sources), np.exp(views.logs[v].mean(axis=0))) for v in useful]
    opinions = (("ordinary", 1.0 / len(sources), plain.astype(np.float32)), *robust)
    flipped, true = (np.mean([getattr(source, name) for source in sources], axis=0) for name in ("wrong", "true"))
    model = sources[-1]
    soft = 1.0 - plain[rows, codes]
    if data.X is None:
        report("no X: rows are ranked by the probabilities alone")
        found = _tabulate(data, views, soft, flipped, true, model.rate, model.interval, 0.0)
        return replace(found, opinions=opinions)
    weight, near = neighbour_view(data, plain, rng) if neighbours else (0.0, plain)
    report(f"the labels of the nearest rows count with a weight of {weight:.2f}")
    rate, interval = model.rate, model.interval
    if weight:
        local = wrong_labels(np.log(near), codes)
        pairs = ((soft, 1.0 - near[rows, codes]), (flipped, local.wrong), (true, local.true))
        soft, flipped, true = ((1.0 - weight) * linear + weight * nearby for linear, nearby in pairs)
        rate = (1.0 - weight) * rate + weight * local.rate
        low, high = ((1.0 - weight) * a + weight * b for a, b in zip(interval, local.interval, strict=True))
        interval = (low, high)
        opinions = (*((name, (1.0 - weight) * share, P) for name, share, P in opinions), ("neighbours", weight, near))
    found = _tabulate(data, views, (2.0 * flipped + soft) / 3.0, flipped, true, rate, interval, weight)
    return replace(found, opinions=opinions)


def _useful(data: Data, views: Views) -> list[int]:
    """The fit that cuts, where its balanced accuracy on the labels is higher than that of the ordinary one."""
    worth = 1.0 / np.bincount(data.codes)[data.codes]
    score = [worth @ (views.logs[v].mean(axis=0).argmax(axis=1) == data.codes) for v in (0, views.best)]
    return [views.best] if score[1] > score[0] else []


def _tabulate(
    data: Data,
    views: Views,
    score: Array,
    p_wrong: Array,
    true: Array,
    rate: float,
    interval: tuple[float, float],
    weight: float,
) -> LabelIssues:
    rows, codes = np.arange(len(data.codes)), data.codes
    losses = -views.logs[views.best][:, rows, codes].astype(np.float64)
    suggested = true.argmax(axis=1)
    order = np.argsort(-score, kind="stable")
    order = order[p_wrong[order] >= POSSIBLE]
    sure = (p_wrong[order] >= SURE) & (suggested[order] != codes[order]) & (true[order].max(axis=1) >= SURE)
    table = np.zeros(
        len(order),
        dtype=[
            ("row", np.intp),
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
    table["row"] = order
    table["given"], table["suggested"] = data.classes[codes[order]], data.classes[suggested[order]]
    table["p_wrong"], table["loss"] = p_wrong[order], losses[:, order].mean(axis=0)
    table["distance"] = (losses - views.cuts)[:, order].mean(axis=0)
    table["cut"] = (losses > views.cuts)[:, order].mean(axis=0)
    table["fdr"] = np.cumsum(1.0 - p_wrong[order]) / np.arange(1, len(order) + 1)
    table["action"] = np.where(sure, "relabel", np.where(p_wrong[order] >= LIKELY, "drop", "look"))
    return LabelIssues(
        table, score, p_wrong, data.classes[codes], data.classes[suggested], float(rate), interval, float(weight)
    )
