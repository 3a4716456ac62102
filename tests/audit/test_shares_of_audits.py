"""What an audit says about shares and about numeric targets whose noise differs between rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np


def _without_suspects(audit, low, high):
    from rankrange.audit.task_result import Interval

    j = audit.result
    empty = {"order": j.order[:0], "actions": j.actions[:0], "suggested": [], "expected": [], "against": j.against[:0]}
    result = replace(j, wrong=np.zeros(len(j.wrong)), noise=Interval(0.5 * (low + high), low, high), **empty)
    return replace(audit, result=result, row_problems=[])


def test_an_uncertain_share_is_never_reported_together_with_nothing_to_do(audit):
    unclear = _without_suspects(audit, 0.0, 0.269)
    said, page = " ".join(unclear.sentences()), unclear.report()
    worst = int(np.argmax(audit.result.losses))
    assert unclear.share_unclear
    assert "nothing to review" not in said
    assert f"row {worst}" in said
    assert "Nothing to do" not in page
    assert "nothing to review" not in page
    assert "begin with those that fit worst" in page
    clear = _without_suspects(audit, 0.0, 0.004)
    assert "There is nothing to review." in clear.sentences()
    assert "There is nothing to review." in clear.report()
