"""Docstrings are plain text first: what reStructuredText would take for markup is made harmless on its way to the site.

A name that ends in an underscore, as fitted attributes do, would become a link, and |y - z| a substitution.
"""

from __future__ import annotations

import re
from typing import Any

_FITTED = re.compile(r"(?<![\w`*\\:.])(\w[\w.]*)_(?![\w`*\\])")
_GUIDE = re.compile(r"docs/((?:[\w-]+/)?\w+)\.md")


def mend(line: str) -> str:
    """One line of a docstring without accidental markup; code and directives stay as they are."""
    if line.lstrip().startswith((">>>", "...", "..", ":", "array(")):
        return line
    pieces = re.split(r"(``[^`]*``|`[^`]*`)", line)
    for i in range(0, len(pieces), 2):
        pieces[i] = _FITTED.sub(r"\1\_", pieces[i]).replace("|", r"\|")
        pieces[i] = _GUIDE.sub(r":doc:`/\1`", pieces[i])  # guides are named as files, which help() readers can open
    return "".join(pieces)


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    in_code = False
    for i, line in enumerate(lines):
        in_code = line.lstrip().startswith(">>>") or (in_code and bool(line.strip()))
        if not in_code:
            lines[i] = mend(line)


def setup(app: Any) -> dict[str, bool]:
    """Run after numpydoc has put the sections in order."""
    app.connect("autodoc-process-docstring", _process, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
