"""Audit of a multi-label target: one logistic regression per label, TKML, and the posterior of wrong labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, xlog1py, xlogy
from scipy.stats import rankdata

from ..core.arrays import Array
from ..core.losses import TKML
from ..core.objective import Design
from ..crossfit.folds import PENALTIES, hold_out
from ..crossfit.predictions import POOL, multilabel_shares
from ..crossfit.simple_models import smooth_multilabel
from ..estimators import TKMLClassifier
from ..label_noise import LIKELY, POSSIBLE, SURE, LabelNoiseModel, actions
from ..metrics import top_k_labels
from ..solvers.blocks import Blocks
from ..solvers.per_label import logistic_per_label
from .plan import Plan, Progress
from .target import Target
from .task_result import Group, Interval, Measure, TaskResult, facts_of, marked_at_chance

# Candidate shares of rows to ignore. TKML has no path over m, so each candidate needs a fit.
_SHARES = (0.0, 0.05, 0.1, 0.2)
# The largest number of folds that choose the penalty: each fold needs one fit per label.
_PENALTY_FOLDS = 3


def study_multilabel(X: Array, target: Target, plan: Plan, progress: Progress) -> TaskResult:
    """Audit a multi-label target, given the encoded rows X (n, features).

    If no model predicts better than the most frequent labels, there are no suspects.
    """
    Y, names = target.y, target.names
    n, L = Y.shape
    top_k = int(np.clip(round(float(Y.sum(axis=1).mean())), 1, L - 1))
    plan = plan.draw(np.minimum(Y.sum(axis=1), top_k + 1))
    progress("choosing the penalty")
    penalty = _choose_penalty(X, Y, plan)
    scores = np.empty((2, n, L))
    fold_m = plan.fit_both(_fold, (X, Y, top_k, penalty), scores, progress)
    progress("fitting the model on all rows")
    model = _fit_robust(X, Y, names, top_k, penalty, plan, plan.n_folds, plan.blocks())
    progress("looking for wrong labels")
    cells, noise = _wrong_cells(X, target.original, expit(scores[0]), plan)
    noise = noise.without(float((target.original != Y).mean()))
    cells[target.relabelled] = 0.0
    wrong = cells.max(axis=1)
    order = np.argsort(-wrong, kind="stable")
    order = order[wrong[order] >= POSSIBLE]
    # Labels that are almost certainly wrong are corrected, so the row itself is kept.
    certain = wrong[order] >= SURE
    changed = cells[order] >= np.where(certain, SURE, np.minimum(LIKELY, wrong[order]))[:, None]
    suggested = Y[order] ^ changed
    worst = cells[order].argmax(axis=1)
    sign = np.where(Y[order, worst], -1.0, 1.0)
    index = np.array([model.classes_.tolist().index(name) for name in names])  # the model sorts its labels
    result = TaskResult(
        task="labels",
        ordinary_name="one logistic regression per label",
        robust_name=f"top-{top_k} learning with the ranked range",
        model=model,
        **facts_of(model, fold_m),
        measures=_measures(Y, scores, top_k, wrong < LIKELY),
        losses=np.asarray(TKML(top_k).value(Y, scores[1]), dtype=np.float64),
        wrong=wrong,
        order=order,
        actions=actions(wrong[order], wrong[order]),
        suggested=[target.labels_text(mask) for mask in suggested],
        expected=[_explanation(Y[i], cells[i], names) for i in order],
        against=sign[:, None] * X[order] * model.coef_[index[worst]],
        groups=_groups(Y, cells, names, model.dropped_),
        noise=noise,
        loss_name=f"top-{top_k} multi-label loss",
        top_k=top_k,
        notes=["The share of wrong labels refers to the cells of the target: one yes or no per row and label."],
    )
    always = np.broadcast_to(Y.mean(axis=0), Y.shape)  # the accuracy of always predicting the most frequent labels
    return marked_at_chance(result, float(_right(Y, always, top_k).mean()), result.measures[0])


def _choose_penalty(X: Array, Y: Array, plan: Plan, among: Array | None = None) -> float:
    """The C with the smallest out-of-fold log loss among `PENALTIES`, which are tried until the loss increases.

    At most `plan.penalty_rows` random rows and three folds are used. `among` are the positions of the rows of X in the
    table; None means all rows.
    """
    rng, n = plan.rng(1), len(Y)
    rows = np.sort(rng.choice(n, min(n, plan.penalty_rows), replace=False))
    folds = plan.folds_among(rows if among is None else among[rows], rng).first(_PENALTY_FOLDS)
    costs = []
    for penalty in PENALTIES:
        cost = 0.0
        for masks in zip(folds.train, folds.test, strict=True):
            train, test = (rows[mask] for mask in masks)
            scores = _ordinary_scores(X[train], Y[train], penalty, X[test], tol=1e-4)
            p = np.clip(expit(scores), 1e-12, 1 - 1e-12)
            cost -= float((xlogy(Y[test], p) + xlog1py(~Y[test], -p)).sum())
        costs.append(cost)
        if len(costs) > 1 and costs[-1] > costs[-2]:
            break
    return PENALTIES[int(np.argmin(costs))]


def _fold(X: Array, Y: Array, top_k: int, penalty: float, plan: Plan, f: int) -> tuple[Array, int]:
    """Scores (2, test rows, L) of an ordinary and a robust fit for fold f, and m of the robust fit.

    With groups or a time column, C is chosen again on the training rows, and `penalty` is not used.
    """
    train, test = plan.of_fold(f)
    X_train = X[train]
    if plan.together is not None:  # rows that are excluded from training must not choose the penalty
        penalty = _choose_penalty(X_train, Y[train], plan, train)
    ordinary = _ordinary_scores(X_train, Y[train], penalty, X[test])
    robust = _fit_robust(X_train, Y[train], None, top_k, penalty, plan, f, plan.blocks(train))
    return np.stack([ordinary, robust.decision_function(X[test])]), int(robust.m_)


def _ordinary_scores(X: Array, Y: Array, penalty: float, X_test: Array, tol: float = 1e-7) -> Array:
    """Scores (test rows, L) of one logistic regression per label."""
    design = Design(X, True)
    W, _, _ = logistic_per_label(design, Blocks(design, Y), penalty * len(X), tol=tol, max_iter=500)
    return Design(X_test, True).scores(W).T


def _fit_robust(
    X: Array,
    Y: Array,
    names: list[str] | None,
    top_k: int,
    penalty: float,
    plan: Plan,
    stream: int,
    groups: Array | None = None,
) -> TKMLClassifier:
    """Fit TKML-AoRR with m chosen from `_SHARES`.

    m is the share with the best top-k accuracy on a held-out fifth of at most `plan.m_rows` rows, or 0 if the gain over
    0 is at most one standard error. `names` are the classes of the model; None means numbers. `stream` numbers the
    random generator, and rows of one of `groups` stay together.
    """
    rng, n = plan.rng(2, stream), len(Y)
    rows = rng.permutation(n)[: plan.m_rows]
    held = hold_out(len(rows), len(rows) // 5, np.arange(len(rows)), None if groups is None else groups[rows])
    test, train = rows[held], np.delete(rows, held)
    seed = int(rng.integers(2**31))
    right = []
    for share in _SHARES:
        fit = TKMLClassifier(top_k, m=share, C=penalty, random_state=seed)
        fit.fit(X[train], Y[train].astype(int), groups=None if groups is None else groups[train])
        right.append(_right(Y[test], fit.decision_function(X[test]), top_k))
    gains = np.array(right, dtype=np.float64) - right[0]
    best = int(gains.mean(axis=1).argmax())
    if gains[best].mean() <= gains[best].std() / np.sqrt(len(test)):
        best = 0
    targets: Any = Y.astype(int)
    if names is not None:
        targets = [{name for name, true in zip(names, row, strict=True) if true} for row in Y]
    return TKMLClassifier(top_k, m=_SHARES[best], C=penalty, random_state=seed).fit(X, targets, groups=groups)


def _wrong_cells(X: Array, Y: Array, p: Array, plan: Plan) -> tuple[Array, Interval]:
    """Array (rows, labels): the probability that each cell is wrong, and the share of wrong cells.

    Each label is a binary target with the out-of-fold probabilities `p` of logistic regression. Nearest neighbours and
    smooth functions also predict it, if the plan has all models and no groups or times, and with at most `POOL` rows.
    """
    yes = {"logistic": p}
    # No nearest neighbours: they may belong to the same group or to a later time.
    if plan.models == "all" and plan.together is None and len(Y) <= POOL:
        yes["neighbours"] = multilabel_shares(X, Y, plan.rng(3))
        yes["smooth"] = smooth_multilabel(X, Y, plan.rng(5))
    found = []
    for label, given in enumerate(Y.T.astype(np.intp)):
        members = {name: np.column_stack([1.0 - P[:, label], P[:, label]]) for name, P in yes.items()}
        found.append(LabelNoiseModel().fit(members, given))
    share, low, high = np.mean([(one.share, *one.interval) for one in found], axis=0).tolist()
    return np.column_stack([one.p_wrong for one in found]), Interval(share, low, high)


def _right(Y: Array, scores: Array, top_k: int) -> Array:
    hits = (Y & top_k_labels(scores, top_k)).sum(axis=1)
    return hits == np.minimum(Y.sum(axis=1), top_k)


def _measures(Y: Array, scores: Array, top_k: int, kept: Array) -> list[Measure]:
    right = np.array([_right(Y, s, top_k) for s in scores])
    found = [Measure.of_rows(f"top-{top_k} accuracy on labels as given", *right, percent=True)]
    if not kept.all():
        name = f"top-{top_k} accuracy without likely wrong rows"
        found.append(Measure.of_rows(name, *right[:, kept], percent=True))
    return [*found, Measure.of_rows("average precision", *(_precision(Y, s) for s in scores), percent=True)]


def _precision(Y: Array, scores: Array) -> Array:
    """Label ranking average precision of each row; 1 if all labels are true or none is."""
    among_all = rankdata(-scores, "max", axis=1)
    among_true = rankdata(np.where(Y, -scores, np.inf), "max", axis=1)
    n_true = Y.sum(axis=1)
    mean = np.where(Y, among_true / among_all, 0.0).sum(axis=1) / np.maximum(n_true, 1)
    return np.where((n_true == 0) | (n_true == Y.shape[1]), 1.0, mean)


def _explanation(true: Array, wrong: Array, names: list[str]) -> str:
    """A sentence with the labels to add or to remove, and up to three labels that are uncertain.

    `true` are the given labels as a mask, and `wrong` the probabilities that its entries are wrong.
    """
    parts = []
    for i in [i for i in np.argsort(-wrong) if wrong[i] >= SURE]:
        parts.append(f"{'remove' if true[i] else 'add'} '{names[i]}' ({wrong[i]:.0%})")
    for i in [i for i in np.argsort(-wrong)[:3] if POSSIBLE <= wrong[i] < SURE]:
        parts.append(f"'{names[i]}' may be {'wrong' if true[i] else 'missing'} ({wrong[i]:.0%})")
    return "; ".join(parts)


def _groups(Y: Array, cells: Array, names: list[str], dropped: Array) -> list[Group]:
    likely = cells >= LIKELY
    return [
        Group(name, int(Y[:, j].sum()), int((Y[:, j] & dropped).sum()), int((Y[:, j] & likely[:, j]).sum()))
        for j, name in enumerate(names)
    ]
