"""`suspects()` of a training run: the stored predictions are passed to `rankrange.find_label_issues`.

The network was trained on these labels, so it is overconfident, especially if correct labels of hard images were
dropped by mistake. Repeated disagreements are better evidence. p_wrong is therefore the p_wrong of `find_label_issues`
times a factor for the class of the label (`ClassNoise.p_wrong_factor`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import Array
from .auto import SOFTMAX_UP_TO, AutoCut
from .label_noise import ClassNoise

if TYPE_CHECKING:
    from ..issues import LabelIssues


def suspects_of(auto: AutoCut) -> LabelIssues:
    """The suspects among the samples used in training; copies the running means from the device.

    Classes that are not a label of any of them are left out. Without stored class probabilities it is an error.
    """
    from ..issues import find_label_issues

    memory, noise_model = auto.memory, auto.noise_model
    visits = memory.visits[:-1].cpu().numpy()
    visited = np.flatnonzero(visits)
    width = memory.rows.shape[1]
    if len(visited) == 0 or width < 2 or not isinstance(noise_model, ClassNoise):
        raise ValueError(
            f"suspects() needs the stored class probabilities of samples, got {len(visited)} samples of width "
            f"{width}; train with criterion(output, target, index) first"
        )
    probabilities = memory.rows[:-1].cpu().double().numpy()[visited]
    given = memory.given[:-1].cpu().numpy()[visited]
    if given.max() >= width:
        raise ValueError(
            f"suspects() needs the whole softmax, which is stored for up to {SOFTMAX_UP_TO} classes, got labels up to "
            f"{given.max()}; use criterion.auto.memory.cuts / criterion.auto.memory.visits for these samples"
        )
    present = np.unique(given)
    probabilities = probabilities[:, present] + 1e-12
    found = find_label_issues(y=given, pred_probs=probabilities / probabilities.sum(1, keepdims=True))
    found = _discounted(found, noise_model.p_wrong_factor().cpu().double().numpy()[given])
    cut = memory.cuts[:-1].cpu().numpy()[visited] / visits[visited]
    return replace(
        found, table=_numbered(found.table, cut, visited), ranked=_numbered(found.ranked, cut, visited), index=visited
    )


def _discounted(found: LabelIssues, p_wrong_factor: Array) -> LabelIssues:
    """Multiply each p_wrong by its factor, and compute the ranking, the actions, the fdr and the suspects again."""
    from ..issues.find import P_WRONG_IN_SCORE
    from ..label_noise import SURE, actions

    assert found.ranked is not None
    p_wrong = found.p_wrong * p_wrong_factor
    score = found.score - P_WRONG_IN_SCORE * (found.p_wrong - p_wrong)
    ranked = found.ranked[np.argsort(-score[found.ranked["row"]], kind="stable")]
    ranked["p_wrong"] = probability = p_wrong[ranked["row"]]
    sure = (ranked["action"] == "relabel") & (probability >= SURE)
    chosen = actions(probability, sure.astype(np.float64))
    ranked["action"] = np.where(chosen == "", "look", chosen)
    table = ranked[chosen != ""]
    for part in (ranked, table):
        part["fdr"] = np.cumsum(1.0 - part["p_wrong"]) / np.arange(1, len(part) + 1)
    return replace(found, table=table, ranked=ranked, p_wrong=p_wrong, score=score)


def _numbered(table: Any, cut: Array, visited: Array) -> Array:
    """The table with the share of visits at which each sample was cut, and with rows named by sample index."""
    table = table.copy()
    table["cut"], table["row"] = cut[table["row"]], visited[table["row"]]
    return table
