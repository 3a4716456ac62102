"""Which training labels are wrong: the memory of a training run, judged by the flip model of `find_label_issues`.

The network was trained on the labels it is asked about, so it is surer of itself than it should be, most of all where
right labels of hard images were cut by mistake. What tells is how often it repeats its objections: the probability that
a label is wrong is that of the flip model times the firmness of the objections to its class (`ClassJudge.firmness`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import Array
from ..core.flips import LIKELY, POSSIBLE, SURE
from .auto import SOFTMAX_UP_TO, AutoCut
from .doubts import ClassJudge

if TYPE_CHECKING:
    from ..issues import LabelIssues


def suspects_of(auto: AutoCut) -> LabelIssues:
    """The table of suspects among the samples that were visited; this waits for the device and copies the memory."""
    from ..issues import find_label_issues

    memory, judge = auto.memory, auto.judge
    visits = memory.visits[:-1].cpu().numpy()
    seen = np.flatnonzero(visits)
    width = memory.rows.shape[1]
    if len(seen) == 0 or width < 2 or not isinstance(judge, ClassJudge):
        raise ValueError(
            f"suspects() needs the remembered probabilities of samples with classes, got {len(seen)} samples of width "
            f"{width}; train with criterion(output, target, index) first"
        )
    belief = memory.rows[:-1].cpu().double().numpy()[seen]
    given = memory.given[:-1].cpu().numpy()[seen]
    if given.max() >= width:
        raise ValueError(
            f"suspects() needs the whole softmax, remembered for up to {SOFTMAX_UP_TO} classes, got labels up to "
            f"{given.max()}; judge these samples by criterion.auto.memory.cuts / criterion.auto.memory.visits"
        )
    present = np.unique(given)
    belief = belief[:, present] + 1e-12
    found = find_label_issues(y=given, pred_probs=belief / belief.sum(1, keepdims=True))
    found = _discounted(found, judge.firmness().cpu().double().numpy()[given])
    found.table["cut"] = (memory.cuts[:-1].cpu().numpy()[seen] / visits[seen])[found.table["row"]]
    found.table["row"] = seen[found.table["row"]]
    return found


def _discounted(found: LabelIssues, firmness: Array) -> LabelIssues:
    """The same findings, each claim that a label is wrong times the firmness of the objections to it."""
    p_wrong = found.p_wrong * firmness
    table = found.table[p_wrong[found.table["row"]] >= POSSIBLE]
    claims = p_wrong[table["row"]]
    table["p_wrong"] = claims
    table["fdr"] = np.cumsum(1.0 - claims) / np.arange(1, len(table) + 1)
    sure = (table["action"] == "relabel") & (claims >= SURE)
    table["action"] = np.where(sure, "relabel", np.where(claims >= LIKELY, "drop", "look"))
    return replace(found, table=table, p_wrong=p_wrong)
