"""Audit of a target with classes: ordinary and robust logistic regression, and `find_label_issues`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.losses import Logistic, Softmax
from ..core.objective import Design, Objective
from ..core.transition import LIKELY
from ..estimators import AoRRClassifier
from ..issues.find import find_label_issues
from ..issues.suspects import LabelIssues
from .plan import Plan, Progress, choose_penalty, fit_ordinary, fit_robust
from .target import Target
from .task_result import Group, Interval, Measure, TaskResult, facts_of, lost_groups, marked_at_chance

# If two probabilities are this close, neither label is preferred.
_MIN_DISAGREEMENT = 0.1
# At least this many rows are listed, however small their p_wrong.
_LISTED = 20
# Up to this many rows, linear models are fitted again to find suspects.
_REFITTED_UP_TO = 100_000
_MEMBER_NAMES = {
    "ordinary": "the ordinary one gives",
    "robust": "the robust one",
    "boosting": "boosted trees",
    "forest": "a forest",
    "coarse_forest": "a forest with large leaves",
    "penalised": "a strongly penalised linear model",
    "sparse": "a sparse linear model",
    "sparse robust": "a robust sparse linear model",
    "neighbours": "the labels of the nearest rows",
    "model": "the given model gives",
}


def study_classification(X: Array, target: Target, plan: Plan, progress: Progress) -> TaskResult:
    """Audit a target with classes, given the encoded rows X (n, features).

    If no model predicts better than chance, the result is marked so (`marked_at_chance`).
    """
    codes, names = target.y, target.names
    n, K = len(codes), len(names)
    plan = plan.draw(codes)
    progress("choosing the penalty")
    penalty = choose_penalty(_objective(X, codes, K), plan)
    logs = np.empty((2, n, K), dtype=np.float32)
    fold_m = plan.fit_both(_fold, (X, codes, penalty), logs, progress)
    progress("fitting the model on all rows")
    labels = np.array(names, dtype=str)[codes]
    model = fit_robust(AoRRClassifier, X, labels, penalty, plan, plan.n_folds, plan.blocks())
    progress("looking for wrong labels")
    # The fits that find suspects have the penalty of the model, so findings about one apply to the other.
    issues = _issues(X, target, AoRRClassifier(C=penalty), plan, logs)
    listed = _listed(issues, target.relabelled)
    order = listed["row"]
    wrong = np.where(target.relabelled, 0.0, issues.p_wrong)
    mean: Array = np.asarray(sum(weight * P for _, weight, P in issues.members))
    suggested = _other_class(np.asarray(issues.suggested), codes, mean)
    code_of = {name: c for c, name in enumerate(model.classes_.tolist())}
    weights = _weights(model, [code_of[name] for name in names])
    kept = wrong < LIKELY
    noise = Interval(issues.noise_estimate, *map(float, issues.noise_interval))
    groups = _groups(codes, names, model.dropped_, wrong)
    result = TaskResult(
        task="classes",
        ordinary_name="logistic regression, all rows",
        robust_name="AoRR, worst rows ignored",
        model=model,
        **facts_of(model, fold_m),
        measures=_measures(logs, codes, K, kept),
        losses=-np.log(np.clip(mean[np.arange(n), codes].astype(np.float64), 1e-30, 1.0)),
        wrong=wrong,
        order=order,
        actions=listed["action"],
        suggested=[names[c] for c in suggested[order]],
        expected=[_explanation(issues.members, i, (codes[i], suggested[i]), wrong[i], names) for i in order],
        against=X[order] * (weights[suggested[order]] - weights[codes[order]]),
        groups=groups,
        noise=noise.without(float(target.relabelled.mean())),
        loss_name="log loss",
        notes=[*lost_groups(groups), *_accuracy_notes(issues, codes, plan.pred_probs is None and _scored(plan, n))],
    )
    # Trees or given probabilities may predict labels that the linear models do not. Their weights were fitted to these
    # labels, and the best of them was selected, so they must exceed chance by twice the usual margin.
    ensemble = Interval.of_mean((mean.argmax(axis=1) == codes) * _balanced_weights(codes, K))
    ensemble = Interval(ensemble.value, 2.0 * ensemble.low - ensemble.value, ensemble.high)
    return marked_at_chance(result, 1.0 / K, result.measures[1], ensemble)


def _listed(issues: LabelIssues, reviewed: Array) -> Array:
    """The suspects and the first 20 rows of the ranking, without rows that were relabelled in a review."""
    assert issues.ranked is not None
    ranked = issues.ranked[~reviewed[issues.ranked["row"]]]
    return ranked[(ranked["action"] != "") | (np.arange(len(ranked)) < _LISTED)]


def _issues(X: Array, target: Target, linear_model: AoRRClassifier, plan: Plan, logs: Array) -> LabelIssues:
    """Find suspects by the given probabilities, by predictions that were already scored, or by new fits."""
    codes = target.original
    # With many rows, the predictions that were scored are reused: new fits of the same kind would be no better.
    if plan.pred_probs is not None or _scored(plan, len(codes)):
        given = np.exp(logs.astype(np.float64)).mean(axis=0) if plan.pred_probs is None else plan.pred_probs
        given = given / given.sum(axis=1, keepdims=True)
        return find_label_issues(X, codes, pred_probs=given, neighbours=False, random_state=plan.seed)
    return find_label_issues(
        X,
        codes,
        estimator=linear_model if plan.estimator is None else plan.estimator,
        cv=plan.folds,
        neighbours=plan.models == "all" and plan.together is None,
        trees=plan.models != "linear",
        learn_from=target.y,
        random_state=plan.seed,
    )


def _scored(plan: Plan, n: int) -> bool:
    """Whether the scored predictions find the suspects: with a time column, or linear models and over 100,000 rows."""
    return plan.forward or (plan.models == "linear" and n > _REFITTED_UP_TO)


_NAMES = {
    "ordinary": "the linear model",
    "robust": "the robust linear model",
    "boosting": "boosted trees",
    "forest": "the forest",
    "coarse_forest": "the forest with large leaves",
    "penalised": "the strongly penalised linear model",
    "sparse": "the sparse linear model",
    "sparse robust": "the robust sparse linear model",
    "neighbours": "the labels of the nearest rows",
    "model": "the given model",
}


def _accuracy_notes(issues: LabelIssues, codes: Array, by_scores: bool) -> list[str]:
    """Notes on the accuracy of the best model and, if there are any, on likely wrong rows with high leverage.

    `by_scores`: whether the suspects come from the scored predictions of the linear models (`_scored`).
    """
    right = {name: float((P.argmax(axis=1) == codes).mean()) for name, _, P in issues.members}
    best = max(right, key=lambda name: right[name])
    name = "the linear model" if by_scores else _NAMES.get(best, best)
    who = f"{len(right)} kinds of models. The best, {name}," if len(right) > 1 else f"{name} alone, which"
    notes = [
        f"Labels were predicted by {who} agrees with {right[best]:.1%} of the labels out of fold. "
        "The interval of the share of wrong labels accounts for labels that these models cannot predict. It does "
        "not account for errors that all models agree with."
    ]
    if issues.high_leverage is not None and bool((issues.high_leverage & (issues.p_wrong >= LIKELY)).any()):
        count = int((issues.high_leverage & (issues.p_wrong >= LIKELY)).sum())
        notes.append(f"{count:,} of the likely wrong rows lie far from all others and may be outliers.")
    return notes


def _objective(X: Array, codes: Array, K: int) -> Objective:
    design, n = Design(X, True), len(codes)
    if K == 2:
        return Objective(design, (2 * codes - 1).astype(X.dtype), Logistic(), 1.0, 1, m=0, k=n)
    return Objective(design, codes, Softmax(), 1.0, K, m=0, k=n)


def _fold(X: Array, codes: Array, penalty: float, plan: Plan, f: int) -> tuple[Array, int]:
    """Log probabilities (2, test rows, K) of an ordinary and a robust fit for fold f, and m of the robust fit.

    With groups or a time column, C is chosen again on the training rows, and `penalty` is not used.
    """
    train, test = plan.of_fold(f)
    X_train, X_test = X[train], X[test]
    if plan.together is not None:  # rows that are excluded from training must not choose the penalty
        penalty = choose_penalty(_objective(X_train, codes[train], int(codes.max()) + 1), plan, train)
    ordinary = fit_ordinary(AoRRClassifier, X_train, codes[train], penalty)
    robust = fit_robust(AoRRClassifier, X_train, codes[train], penalty, plan, f, plan.blocks(train))
    logs = [np.log(np.maximum(fit.predict_proba(X_test), 1e-30)) for fit in (ordinary, robust)]
    return np.stack(logs), int(robust.m_)


def _balanced_weights(codes: Array, K: int) -> Array:
    """The weight of each row in balanced accuracy, in which all classes have the same weight."""
    return np.asarray((len(codes) / K / np.bincount(codes, minlength=K))[codes])


def _measures(logs: Array, codes: Array, K: int, kept: Array) -> list[Measure]:
    right = logs.argmax(axis=2) == codes
    balanced = _balanced_weights(codes, K)
    of_given = logs[:, np.arange(len(codes)), codes]
    found = [
        Measure.of_rows("accuracy on labels as given", right[0], right[1], percent=True),
        Measure.of_rows("balanced accuracy on labels as given", right[0] * balanced, right[1] * balanced, percent=True),
    ]
    if not kept.all():
        found.append(Measure.of_rows("accuracy without likely wrong labels", *right[:, kept], percent=True))
    return [*found, Measure.of_rows("log loss on labels as given", -of_given[0], -of_given[1], higher=False)]


def _weights(model: AoRRClassifier, codes: list[int]) -> Array:
    """Coefficients (K, features), one row per class; `codes` are the positions of the classes in the model.

    The one row of a binary model is split into two halves of opposite sign.
    """
    if len(model.coef_) == 1:
        both = np.concatenate([-0.5 * model.coef_, 0.5 * model.coef_])
        return both[codes]
    return model.coef_[codes]


def _other_class(suggested: Array, codes: Array, mean: Array) -> Array:
    """The suggested class, or the most probable other class if the suggestion is the given one."""
    same = np.flatnonzero(suggested == codes)
    other = mean[same].copy()
    other[np.arange(len(same)), codes[same]] = -np.inf
    found = suggested.copy()
    found[same] = other.argmax(axis=1)
    return found


def _explanation(members: Any, i: int, pair: tuple[int, int], wrong: float, names: list[str]) -> str:
    """The mean prediction behind p(wrong) for row i, or that of each member if the members disagree, in words.

    `pair` has the codes of the given and the suggested class. A remark follows if the given one is more probable by the
    mean, but likely wrong because such errors are frequent.
    """
    shares = [(name, [float(P[i, c]) for c in pair]) for name, _, P in members]
    mean = [sum(weight * float(P[i, c]) for _, weight, P in members) for c in pair]
    sides = {share > other for _, (share, other) in shares if abs(share - other) > _MIN_DISAGREEMENT}
    if len(sides) < 2:
        text = f"models fitted without the row predict {_gives(mean, pair, names)}"
    else:
        parts = [f"{_MEMBER_NAMES.get(name, name)} {_gives(both, pair, names)}" for name, both in shares]
        text = f"models fitted without the row disagree: {'; '.join(parts)}"
    if mean[0] > mean[1] and wrong >= LIKELY:
        text += f"; but '{names[pair[0]]}' is often wrong in this table, so '{names[pair[1]]}' is likelier"
    return text


def _gives(shares: list[float], pair: tuple[int, int], names: list[str]) -> str:
    return ", ".join(f"'{names[c]}' {_percent(p)}" for c, p in zip(pair, shares, strict=True))


def _percent(p: float) -> str:
    p = 100 * p
    return f"{p:.0f}%" if 1 <= p <= 99 else ("under 1%" if p < 1 else "over 99%")


def _groups(codes: Array, names: list[str], dropped: Array, wrong: Array) -> list[Group]:
    counts = [np.bincount(codes[mask], minlength=len(names)) for mask in (slice(None), dropped, wrong >= LIKELY)]
    return [Group(name, *(int(count[c]) for count in counts)) for c, name in enumerate(names)]
