"""What an audit says about shares and about numeric targets whose noise differs between rows."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest


def test_a_column_of_one_value_and_a_few_others_draws_no_warning():
    pa = pytest.importorskip("pyarrow")
    from rankrange.audit.pictures import column_picture
    from rankrange.audit.target import find_target
    from rankrange.tables.columns import Column

    values = np.zeros(3000)
    values[[5, 9]] = 1e6, -3.0
    target = find_target(pa.table({"y": ["a", "b"] * 1500}), ["y"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = column_picture(Column("x", "numbers", values), target, ["a", "b"])
        spread = column_picture(Column("x", "numbers", np.arange(3000.0)), target, ["a", "b"])
    assert np.sum(picture.counts) == 3000
    assert (np.sum(spread.counts, axis=0) > 100).all()


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
