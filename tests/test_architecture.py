"""The files that the architecture page names are there, and each way of the data names a file once."""

import re
from pathlib import Path

import pytest

import rankrange

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
