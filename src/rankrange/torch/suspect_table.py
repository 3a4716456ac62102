"""Which training labels are wrong: the memory of a training run, judged by the flip model of `find_label_issues`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .auto import SOFTMAX_UP_TO
from .memory import Memory

if TYPE_CHECKING:
    from ..issues import LabelIssues


def suspects_of(memory: Memory) -> LabelIssues:
    """The table of suspects among the samples that were visited; this waits for the device and copies the memory."""
    from ..issues import find_label_issues

    visits = memory.visits[:-1].cpu().numpy()
    seen = np.flatnonzero(visits)
    width = memory.rows.shape[1]
    if len(seen) == 0 or width < 2:
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
    found.table["cut"] = (memory.cuts[:-1].cpu().numpy()[seen] / visits[seen])[found.table["row"]]
    found.table["row"] = seen[found.table["row"]]
    return found
