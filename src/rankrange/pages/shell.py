"""The shell of every page: title, style, a strict content security policy, and at most one script.

Values are inserted by Jinja2 with autoescape, or as JSON in a data block that is not executed. The policy contains the
hashes of the page's own style and script, so an injected script does not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from .. import __version__
from .text import visible

_HERE = Path(__file__).parent / "templates"
# Characters that could end a script block, start a tag or break a line inside a JavaScript string.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&'\u2028\u2029\x7f"}


def page(title: str, body: Markup, *, script: str = "") -> str:
    """A whole HTML page without external resources; the body is Markup, and `script` is JavaScript of this package."""
    if not isinstance(body, Markup):
        raise TypeError(f"body must be Markup, escaped already, got {type(body).__name__}; make it with fragment()")
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError("script must not contain '</script' or '<!--'; split these strings")
    style = asset("style.css")
    allowed = _hash(script) if script else "'none'"
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {allowed}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return str(
        fragment(
            "page.html",
            title=title,
            body=body,
            style=Markup(style),
            script=Markup(script),
            policy=policy,
            version=__version__,
        )
    )


def fragment(template: str, **values: Any) -> Markup:
    """Render a file of the folder of templates. All values are escaped unless they are Markup."""
    return Markup(_environment().get_template(template).render(**values))


def embed(name: str, data: Any) -> Markup:
    """A block of data that the script of the page reads as JSON, from document.getElementById(name).textContent.

    NaN and infinity raise a ValueError.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)
    return Markup('<script type="application/json" id="{}">{}</script>').format(name, Markup(text))


@cache
def asset(name: str) -> str:
    """A text file from the folder of templates, such as the style."""
    return (_HERE / name).read_text(encoding="utf-8").strip()


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["visible"] = visible
    return environment


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
