"""Audit of a target with classes: the members of `find_label_issues` are scored, and find the suspects."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_sample_weight

from ..core.arrays import Array
from ..errors import UserError
from ..estimators import AoRRClassifier
from ..issues.find import find_label_issues
from ..issues.sentences import remark
from ..issues.suspects import LabelIssues
from ..label_noise import LIKELY
from ..pages.text import percent
from .plan import Plan, Progress
from .target import Target
from .task_result import (
    LISTED,
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

# If two probabilities are this close, neither label is preferred.
_MIN_DISAGREEMENT = 0.1
_MEMBERS = {
    "ordinary": "the linear model",
    "robust": "the robust linear model",
    "boosting": "boosted trees",
    "forest": "the forest",
    "coarse_forest": "the forest with large leaves",
    "penalised": "the strongly penalised linear model",
    "sparse": "the sparse linear model",
    "sparse robust": "the robust sparse linear model",
    "neighbours": "the labels of the nearest rows",
    "text": "the linear model of the words",
    "model": "the given model",
}


def study_classification(X: Array, target: Target, plan: Plan, progress: Progress) -> TaskResult:
    """Audit a target with classes, given the encoded rows X (n, features)."""
    codes, names = target.y, target.names
    n, K = len(codes), len(names)
    progress("predicting every row out of fold")
    issues = _issues(X, target, plan)
    members = {name: _normalised(P) for name, _, P in issues.members}
    mean = _normalised(np.sum([weight * P for _, weight, P in issues.members], axis=0))
    linear = issues if "robust" in members else _linear(X, target, plan)
    both = np.stack([_normalised(P) for name, _, P in linear.members if name in ("ordinary", "robust")])
    progress("fitting the model on all rows")
    share, labels = float(linear.dropped_share), np.array(names, dtype=str)[codes]
    model = AoRRClassifier(share, 1.0, C=linear.C, n_starts=2, tol=1e-3, random_state=plan.seed).fit(X, labels)
    probability = mean[np.arange(n), codes].astype(np.float64)
    noise = Interval(issues.noise_estimate, *issues.noise_interval)
    wrong, noise = without_decided(issues.p_wrong, noise, target, plan)
    losses = -np.log(np.clip(probability, 1e-30, 1.0))
    action = np.full(n, "", dtype="U7")
    if issues.ranked is not None and not plan.observed:
        action[issues.ranked["row"]] = issues.ranked["action"]
    score = np.where(target.relabelled, -1.0, issues.score)
    order = ranking(score, wrong, probability, LISTED, observed=plan.observed)
    suggested = _other_class(np.asarray(issues.suggested), codes, mean)
    weights = _weights(model, names)
    result = TaskResult(
        task="classes",
        ordinary_name="logistic regression, all rows",
        robust_name="AoRR, worst rows ignored",
        model=model,
        **facts_of(model, share, plan),
        measures=_measures(both, codes, wrong < LIKELY, "" if plan.observed else " on labels as given"),
        losses=losses,
        wrong=wrong,
        probability=probability,
        order=order,
        actions=action[order],
        suggested=[names[c] for c in suggested[order]],
        expected=[prediction(members, mean, i, (codes[i], suggested[i]), wrong[i], names) for i in order],
        against=(X[order] - X.mean(axis=0)) * (weights[suggested[order]] - weights[codes[order]]),
        groups=groups_of(names, codes, model.dropped_, wrong, losses),
        noise=noise,
        contradicted=float((mean.argmax(axis=1) != codes).mean()),
        loss_name="log loss",
        posterior=issues,
        expected_surprises=float(mean[mean < SURPRISING].sum()),
        notes=_accuracy_notes(issues, members, codes),
    )
    # The weights of the ensemble were fitted to these labels, so it must exceed chance by twice the usual margin.
    ensemble = Interval.of_mean((mean.argmax(axis=1) == codes) * compute_sample_weight("balanced", codes))
    ensemble = Interval(ensemble.value, 2.0 * ensemble.low - ensemble.value, ensemble.high)
    return at_chance(result, 1.0 / K, result.measures[1], ensemble)


def _issues(X: Array, target: Target, plan: Plan) -> LabelIssues:
    """The out-of-fold predictions of the ensemble, and the posterior of wrong labels; p_wrong is about given labels."""
    if plan.pred_probs is not None:
        given: dict[str, Any] = {"pred_probs": plan.pred_probs, "neighbours": False, "random_state": plan.seed}
        try:
            return find_label_issues(X, target.original, **given)
        except ValueError as error:  # probabilities that do not fit the classes
            raise UserError(str(error)) from error
    free = plan.groups is None  # neighbours may be of the same group, and trees would learn from later rows
    return find_label_issues(
        X,
        target.original,
        estimator=plan.estimator,
        cv=plan.folds,
        neighbours=plan.models == "all" and free,
        trees=plan.models != "linear" and not plan.forward,
        texts=plan.texts,
        learn_from=target.y,
        random_state=plan.seed,
    )


def _linear(X: Array, target: Target, plan: Plan) -> LabelIssues:
    return find_label_issues(X, target.y, cv=plan.folds, neighbours=False, trees=False, random_state=plan.seed)


def _normalised(P: Array) -> Array:
    return np.asarray(P / P.sum(axis=1, keepdims=True))


def _accuracy_notes(issues: LabelIssues, members: dict[str, Array], codes: Array) -> list[str]:
    """Notes on the accuracy of the best model and, if there are any, on likely wrong rows with high leverage."""
    right = {name: float((P.argmax(axis=1) == codes).mean()) for name, P in members.items()}
    best = max(right, key=lambda name: right[name])
    name = _MEMBERS.get(best, best)
    who = f"{len(right)} kinds of models. The best, {name}," if len(right) > 1 else f"{name} alone, which"
    notes = [f"The target was predicted by {who} agrees with {right[best]:.1%} of the rows out of fold."]
    if issues.high_leverage is not None and bool((issues.high_leverage & (issues.p_wrong >= LIKELY)).any()):
        count = int((issues.high_leverage & (issues.p_wrong >= LIKELY)).sum())
        notes.append(f"{count:,} of the listed rows lie far from all others and may be outliers.")
    return notes


def _measures(both: Array, codes: Array, kept: Array, given: str) -> list[Measure]:
    right = both.argmax(axis=2) == codes
    balanced = compute_sample_weight("balanced", codes)
    loss = -np.log(np.clip(both[:, np.arange(len(codes)), codes], 1e-30, 1.0))
    return [
        Measure.of_rows(f"accuracy{given}", *right, percent=True),
        Measure.of_rows(f"balanced accuracy{given}", *(right * balanced), percent=True),
        *Measure.without(kept, "accuracy without likely wrong labels", right, percent=True),
        Measure.of_rows(f"log loss{given}", *loss, higher=False),
    ]


def _weights(model: AoRRClassifier, names: list[str]) -> Array:
    """Coefficients (K, features), one row per class; a binary model has half of its row for each, of opposite sign."""
    codes = [model.classes_.tolist().index(name) for name in names]
    coef = model.coef_ if len(model.coef_) > 1 else np.concatenate([-0.5 * model.coef_, 0.5 * model.coef_])
    return np.asarray(coef[codes])


def _other_class(suggested: Array, codes: Array, mean: Array) -> Array:
    """The suggested class, or the most probable other class if the suggestion is the given one."""
    other = mean.copy()
    other[np.arange(len(codes)), codes] = -np.inf
    return np.where(suggested == codes, other.argmax(axis=1), suggested)


def prediction(
    members: dict[str, Array], mean: Array, i: int, pair: tuple[int, int], wrong: float, names: list[str]
) -> str:
    """The mean prediction for row i, or that of each member if they disagree, in words, with a remark on p(wrong).

    `pair` has the codes of the given and the suggested class.
    """
    shares = {name: [float(P[i, c]) for c in pair] for name, P in members.items()}
    sides = {share > other for share, other in shares.values() if abs(share - other) > _MIN_DISAGREEMENT}
    given, other = (float(mean[i, c]) for c in pair)
    text = f"models fitted without the row predict {_gives([given, other], pair, names)}"
    if len(sides) > 1:
        parts = [f"{_MEMBERS.get(name, name)} {_gives(both, pair, names)}" for name, both in shares.items()]
        text = f"models fitted without the row disagree: {'; '.join(parts)}"
    return text + remark(names[pair[0]], names[pair[1]], given, other, wrong)


def _gives(shares: list[float], pair: tuple[int, int], names: list[str]) -> str:
    return ", ".join(f"'{names[c]}' {percent(p)}" for c, p in zip(pair, shares, strict=True))
