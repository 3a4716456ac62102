"""Audit of a multi-label target: one logistic regression per label, TKML, and the posterior of wrong labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from ..core.arrays import Array
from ..core.losses import TKML
from ..crossfit.folds import PENALTIES
from ..crossfit.neighbours import POOL, neighbour_means
from ..crossfit.numeric import standardised
from ..estimators import TKMLClassifier
from ..label_noise import LIKELY, POSSIBLE, SURE, LabelNoiseModel, actions
from ..metrics import rows_in_order
from .plan import SAMPLE, Plan, Progress
from .target import Target
from .task_result import (
    SURPRISING,
    Interval,
    Measure,
    TaskResult,
    at_chance,
    facts_of,
    groups_of,
    ranking,
    without_decided,
)

# Candidates for the share of rows to ignore: TKML has no path over m, so each needs a fit.
_SHARES = (0.0, 0.05, 0.1, 0.2)


def study_multilabel(X: Array, target: Target, plan: Plan, progress: Progress) -> TaskResult:
    """Audit a multi-label target, given the encoded rows X (n, features)."""
    Y, names = target.y, target.names
    top_k = int(np.clip(round(float(Y.sum(axis=1).mean())), 1, Y.shape[1] - 1))
    progress("choosing the penalty")
    C, share = _settings(X, Y, top_k, plan)
    progress("predicting every row out of fold")
    robust = TKMLClassifier(top_k, m=share, C=C, random_state=plan.seed)
    scores = np.stack([plan.out_of_fold(one, X, Y.astype(int), "decision_function") for one in (_logistic(C), robust)])
    progress("fitting the model on all rows")
    labels = [{name for name, true in zip(names, row, strict=True) if true} for row in Y]
    model = robust.fit(X, labels, groups=plan.groups)
    progress("looking for unlikely labels")
    P = expit(scores[0])
    cells, noise = without_decided(*_wrong_cells(X, target.original, P, plan), target, plan)
    probability = np.where(Y, P, 1.0 - P).min(axis=1)
    wrong, losses = cells.max(axis=1), TKML(top_k).value(Y, scores[1])
    order = ranking(wrong, wrong, probability, 0, observed=plan.observed)
    doubt = (np.where(Y, 1.0 - P, P) if plan.observed else cells)[order]
    most = doubt.max(axis=1)
    # Labels that are almost certainly wrong are corrected, so the row itself is kept.
    changed = doubt > 0.5 if plan.observed else doubt >= np.where(most >= SURE, SURE, np.minimum(LIKELY, most))[:, None]
    worst = doubt.argmax(axis=1)
    index = np.array([model.classes_.tolist().index(name) for name in names])  # the model sorts its labels
    sign = np.where(Y[order, worst], -1.0, 1.0)
    result = TaskResult(
        task="labels",
        ordinary_name="one logistic regression per label",
        robust_name=f"top-{top_k} learning with the ranked range",
        model=model,
        **facts_of(model, share, plan),
        measures=_measures(Y, scores, top_k, wrong < LIKELY),
        losses=losses,
        wrong=wrong,
        probability=probability,
        order=order,
        actions=actions(wrong[order], wrong[order]),
        suggested=[target.labels_text(i, mask) for i, mask in zip(order, Y[order] ^ changed, strict=True)],
        expected=[_explanation(Y[i], p, names, plan.observed) for i, p in zip(order, doubt, strict=True)],
        against=sign[:, None] * (X[order] - X.mean(axis=0)) * model.coef_[index[worst]],
        groups=[
            groups_of(("", name), Y[:, j].astype(int), model.dropped_, cells[:, j], losses)[1]
            for j, name in enumerate(names)
        ],
        noise=noise,
        contradicted=float(((P > 0.5) != Y).mean()),
        expected_surprises=float(np.minimum(P, 1.0 - P)[np.minimum(P, 1.0 - P) < SURPRISING].sum()),
        loss_name=f"top-{top_k} multi-label loss",
        top_k=top_k,
        notes=["Shares of labels refer to the cells of the target: one yes or no per row and label."],
    )
    always = np.broadcast_to(Y.mean(axis=0), Y.shape)  # the accuracy of always predicting the most frequent labels
    return at_chance(result, float(rows_in_order(Y, always, top_k).mean()), result.measures[0])


def _logistic(C: float) -> OneVsRestClassifier:
    return OneVsRestClassifier(LogisticRegression(C=C, tol=1e-3, max_iter=1000))


def _settings(X: Array, Y: Array, top_k: int, plan: Plan) -> tuple[float, float]:
    """C with the smallest log loss, and the share to ignore with the best top-k accuracy, on one fold of a sample."""
    sample = np.random.default_rng([plan.seed, 1]).permutation(len(Y))[:SAMPLE]
    train, test = (sample[mask[0][sample]] for mask in (plan.folds.train, plan.folds.test))

    def scores(model: Any) -> Array:
        return np.asarray(model.fit(X[train], Y[train].astype(int)).decision_function(X[test]))

    losses = [np.logaddexp(0.0, np.where(Y[test], -z, z)).sum() for z in map(scores, map(_logistic, PENALTIES))]
    C = PENALTIES[int(np.argmin(losses))]
    models = [TKMLClassifier(top_k, m=share, C=C, random_state=plan.seed) for share in _SHARES]
    right = np.array([rows_in_order(Y[test], scores(model), top_k) for model in models], dtype=np.float64)
    gains = right - right[0]
    best = int(gains.mean(axis=1).argmax())
    enough = gains[best].mean() > gains[best].std() / np.sqrt(len(test))
    return C, _SHARES[best] if enough else 0.0


def _wrong_cells(X: Array, Y: Array, p: Array, plan: Plan) -> tuple[Array, Interval]:
    """Array (rows, labels): the probability that each cell is wrong, and the share of wrong cells.

    Each label is a binary target with the out-of-fold probabilities `p`; nearest neighbours and extra trees also
    predict it, if the plan has all models and no groups or times, and with at most `POOL` rows.
    """
    yes = {"logistic": p}
    # No nearest neighbours: they may belong to the same group or to a later time.
    if plan.models == "all" and plan.groups is None and len(Y) <= POOL:
        yes["neighbours"] = neighbour_means(
            standardised(X), Y, plan.folds.once(), np.random.default_rng([plan.seed, 3])
        )
        trees = ExtraTreesRegressor(60, min_samples_leaf=5, bootstrap=True, random_state=plan.seed)
        yes["forest"] = plan.out_of_fold(trees, X, Y.astype(np.float64))
    found = []
    for label, given in enumerate(Y.T.astype(np.intp)):
        members = {name: np.column_stack([1.0 - P[:, label], P[:, label]]) for name, P in yes.items()}
        found.append(LabelNoiseModel().fit(members, given))
    share, low, high = np.mean([(one.share, *one.interval) for one in found], axis=0).tolist()
    return np.column_stack([one.p_wrong for one in found]), Interval(share, low, high)


def _measures(Y: Array, scores: Array, top_k: int, kept: Array) -> list[Measure]:
    right = np.array([rows_in_order(Y, s, top_k) for s in scores])
    return [
        Measure.of_rows(f"top-{top_k} accuracy on labels as given", *right, percent=True),
        *Measure.without(kept, f"top-{top_k} accuracy without likely wrong rows", right, percent=True),
        Measure.of_rows("average precision", *(_precision(Y, s) for s in scores), percent=True),
    ]


def _precision(Y: Array, scores: Array) -> Array:
    """Label ranking average precision of each row; 1 if all labels are true or none is."""
    among_all = rankdata(-scores, "max", axis=1)
    among_true = rankdata(np.where(Y, -scores, np.inf), "max", axis=1)
    n_true = Y.sum(axis=1)
    mean = np.where(Y, among_true / among_all, 0.0).sum(axis=1) / np.maximum(n_true, 1)
    return np.where((n_true == 0) | (n_true == Y.shape[1]), 1.0, mean)


def _explanation(true: Array, p: Array, names: list[str], observed: bool) -> str:
    """A sentence with the labels to add or to remove, and up to three labels that are uncertain.

    `true` is the mask of the given labels, and `p` the probabilities that its entries are wrong. For observed outcomes
    `p` are those of the contrary, and the three most surprising entries are named.
    """
    order = np.argsort(-p)
    if observed:
        given = np.where(true, 1.0 - p, p)
        return "; ".join(
            f"'{names[i]}' is {'given' if true[i] else 'absent'}, models give it {given[i]:.0%}" for i in order[:3]
        )
    parts = [f"{'remove' if true[i] else 'add'} '{names[i]}' ({p[i]:.0%})" for i in order if p[i] >= SURE]
    for i in [i for i in order[:3] if POSSIBLE <= p[i] < SURE]:
        parts.append(f"'{names[i]}' may be {'wrong' if true[i] else 'missing'} ({p[i]:.0%})")
    return "; ".join(parts)
