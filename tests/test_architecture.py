"""What the architecture page says: the files it names are there, each once a way, and folds are drawn once."""

import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import rankrange
from rankrange.audit import audit_table
from rankrange.crossfit.folds import draw_folds

PACKAGE = Path(rankrange.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "development" / "architecture.md"


def _ways():
    if not PAGE.exists():
        pytest.skip("the documentation is not installed")
    parts = re.split(r"^### (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return {
        title: re.findall(r"`([a-z_]+/[a-z_]+\.py)`", text.split("\n## ")[0])
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_every_file_that_the_page_names_is_there():
    ways = _ways()
    assert len(ways) == 3
    for names in ways.values():
        assert len(names) > 8
        assert [name for name in names if not (PACKAGE / name).is_file()] == []


def test_data_pass_through_each_file_once():
    for title, names in _ways().items():
        steps = names if title != "An audit" else names[: names.index("cli/entry.py") + 1]
        twice = {name for name in steps if steps.count(name) > 1}
        # Results go back to the file that began.
        assert twice <= {"estimators/linear.py", "issues/out_of_fold.py"}, title


def _calls(function, work):
    """How often `work` calls a function, in any thread; nothing is patched."""
    found = []

    def watch(frame, event, _):
        if event == "call" and frame.f_code is function.__code__:
            found.append(frame.f_back.f_code.co_name)

    before = sys.getprofile()
    threading.setprofile(watch), sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(before), threading.setprofile(None)
    return len(found)


def test_label_issues_and_audits_draw_their_folds_once():
    """C, the scores of both models, the suspects and the user's own model are all out of one `Folds` object.

    For numeric targets m and C are chosen by the estimator, which draws folds of its own.
    """
    from sklearn.naive_bayes import GaussianNB

    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=100) > 0).astype(int)
    table = {f"x{j}": X[:, j] for j in range(3)}
    audits = {
        "classes": {"target": np.where(y, "yes", "no")},
    }
    assert _calls(draw_folds, lambda: rankrange.find_label_issues(X, y, random_state=0)) == 1
    for kind, target in audits.items():
        options = {"models": "linear", **({"estimator": GaussianNB()} if kind == "classes" else {})}
        assert _calls(draw_folds, lambda t=target, o=options: audit_table({**table, **t}, "target", **o)) == 1, kind
