"""The audit by groups: each group's rows, ignored share and loss, the worst first, as the rows say."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from rankrange.audit import audit_table


@pytest.fixture(scope="module")
def audit():
    rng = np.random.default_rng(0)
    site = np.array([f"<s{i}>" for i in range(8)])[rng.integers(0, 8, 480)]
    x = rng.normal(size=480)
    y = x > 0
    bad = (site == "<s3>") & (rng.random(480) < 0.4)  # one site confuses the labels
    table = {"x": x.tolist(), "kind": np.where(y ^ bad, "a", "b").tolist(), "site": site.tolist()}
    return audit_table(table, "kind", group="site", models="linear"), site


def test_the_group_with_wrong_labels_comes_first_and_is_named(audit):
    found, site = audit
    assert found.by_group[0].name == "<s3>"
    assert sum(group.rows for group in found.by_group) == 480
    assert any("By site, the models fit '<s3>' worst" in note for note in found.notes)
    for group in found.by_group:
        rows = site == group.name
        assert group.loss == pytest.approx(found.result.losses[rows].mean())
        assert group.wrong == pytest.approx(found.result.wrong[rows].mean())
        assert group.ignored == pytest.approx(found.result.dropped[rows].mean())
    assert [group["name"] for group in found.to_dict()["by_group"]] == [group.name for group in found.by_group]


def test_without_groups_there_is_no_table():
    table = {"x": [i % 7 for i in range(60)], "kind": ["a", "b"] * 30}
    assert audit_table(table, "kind", models="linear").by_group == []
