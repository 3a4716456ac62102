"""Turn names in code font into links to the reference, so that guides need no markup for it."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.util.nodes import make_refnode

import rankrange

_TOP = {name for name in rankrange.__all__ if name[0].isupper() or "_" in name.strip("_")}


def _full_name(text: str) -> str:
    """The full name that a word in code font stands for: `rrt.tkml(...)` is `rankrange.torch.tkml`."""
    name = text.split("(")[0].strip()
    if name.startswith("rrt."):
        return "rankrange.torch." + name.removeprefix("rrt.")
    return f"rankrange.{name}" if name in _TOP else name


def _link(app: Any, doctree: nodes.document, docname: str) -> None:
    objects = app.env.get_domain("py").objects
    for node in list(doctree.findall(nodes.literal)):
        if isinstance(node.parent, nodes.reference | nodes.title):
            continue
        entry = objects.get(_full_name(node.astext()))
        if entry is None or entry.docname == docname:
            continue
        link = make_refnode(app.builder, docname, entry.docname, entry.node_id, [node.deepcopy()])
        node.replace_self(link)


def setup(app: Any) -> dict[str, bool]:
    """Register the step that makes the links."""
    app.connect("doctree-resolved", _link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
