"""Formulas as drawings inside the page: matplotlib sets them, so that neither a network nor TeX is needed.

The same drawings serve the site and the PDF of the report. They take the colour of the text around them, in dark
mode too, and carry their source as a label for those who listen.
"""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any

from docutils import nodes
from matplotlib import rc_context
from matplotlib.textpath import TextPath

_SIZE = 10.0  # points; everything below is relative to it
_COMMANDS = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}


def _outline(formula: str) -> tuple[str, tuple[float, float, float, float]]:
    """The outline of a formula as an SVG path, and its box: left, bottom, right, top, with the baseline at 0."""
    with rc_context({"mathtext.fontset": "stix", "text.usetex": False}):
        path = TextPath((0, 0), f"${formula}$", size=_SIZE)
    parts = []
    for vertices, code in path.iter_segments(curves=True, simplify=False):
        numbers = (
            "" if code == 79 else " ".join(f"{value:.2f}" for value in vertices * ([1, -1] * (len(vertices) // 2)))
        )
        parts.append(_COMMANDS[int(code)] + numbers)
    box = path.get_extents()
    return "".join(parts), (box.x0, box.y0, box.x1, box.y1)


@cache
def svg(formula: str) -> str:
    """One line of mathematics as inline SVG, standing on the baseline of the text around it."""
    outline, (left, bottom, right, top) = _outline(" ".join(formula.split()))
    width, height, depth = right - left + 0.6, top - bottom + 0.6, -bottom + 0.3
    return (
        f'<svg class="formula" role="img" aria-label="{escape(formula, quote=True)}" '
        f'viewBox="{left - 0.3:.2f} {-top - 0.3:.2f} {width:.2f} {height:.2f}" '
        f'style="width:{width / _SIZE * 1.12:.3f}em;height:{height / _SIZE * 1.12:.3f}em;'
        f'vertical-align:{-depth / _SIZE * 1.12:.3f}em">'
        f'<path fill="currentColor" d="{outline}"/></svg>'
    )


def block(formula: str) -> str:
    """A displayed formula; lines are divided by a double backslash."""
    lines = (svg(line.replace("&", "").strip()) for line in formula.split(r"\\") if line.strip())
    return '<div class="formula-block">' + "".join(f"<div>{line}</div>" for line in lines) + "</div>"


def _visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(svg(node.astext()))
    raise nodes.SkipNode


def _visit_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(block(node.astext()))
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("drawn", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
