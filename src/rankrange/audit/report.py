"""The page of an audit, and the short form of it that a notebook shows."""

from __future__ import annotations

import base64
from typing import Any

from markupsafe import Markup

from ..pages.charts import histogram, whiskers
from ..pages.shell import asset, embed, fragment, page
from ..pages.text import visible
from .findings import Audit, show, show_gain, show_range, unit

# A page stays below 2 MB whatever the table holds: suspects are left off its end until it does.
_MOST_BYTES = 1_900_000
_TEXT = 80


def audit_page(audit: Audit) -> str:
    """The page of an audit: one self-contained HTML file as text."""
    limit = max(len(audit.images), max((len(cells) for cells in audit.cells.values()), default=0))
    while True:
        text = page(f"Audit of {audit.name}", _body(audit, limit), script=asset("audit.js"))
        if len(text.encode()) <= _MOST_BYTES or limit <= 1:
            return text
        limit //= 2


def audit_fragment(audit: Audit, limit: int = 10) -> Markup:
    """For a notebook: the findings, the scores and the first suspects; no script and no style of its own."""
    return fragment("audit_short.html", **_values(audit, limit))


def _body(audit: Audit, limit: int) -> Markup:
    values = _values(audit, limit)
    data = {
        "curve": _rounded(audit.cut_curve()),
        "rows": len(audit.judgement.wrong),
        "start": _start(audit),
        "axis": {key: values["chart"][key] for key in ("log_low", "log_high", "left", "right")},
        "side": audit.image_side,
        "suspects": [_packed(audit, place, suspect) for place, suspect in enumerate(values["suspects"])],
        "columns": [visible(name, _TEXT) for name in audit.cells],
        "word": audit.word,
    }
    return fragment("audit.html", data=embed("audit-data", data), **values)


def _values(audit: Audit, limit: int) -> dict[str, Any]:
    j = audit.judgement
    cuts = [("λ", j.lam if j.k < len(j.wrong) else None), ("λ̂", j.lam_hat if j.m else None)]
    return {
        "audit": audit,
        "j": j,
        "sentences": audit.sentences(),
        "suspects": audit.suspects(limit),
        "chart": histogram(audit.distribution(), cuts),
        "measures": [(m, whiskers(m)) for m in j.measures],
        "show": show,
        "show_gain": show_gain,
        "show_range": show_range,
        "unit": unit,
        "above": int((j.losses > j.lam_hat).sum()) if j.m else 0,
        "percent": _percent,
        "unused": [column for column in audit.columns if not column.used],
        "missing": sum(column.missing for column in audit.columns),
        "share": lambda part, whole: f"{100 * part / whole:.1f}%" if whole else "0%",
    }


def _start(audit: Audit) -> int:
    """The place of the slider at first: at the model's own cut, else where as many rows are cut as are likely wrong."""
    counts = audit.cut_curve()["count"]
    wanted = audit.judgement.m or audit.n_likely or 1
    return min(range(len(counts)), key=lambda i: abs(counts[i] - wanted))


def _packed(audit: Audit, place: int, suspect: Any) -> dict[str, Any]:
    packed: dict[str, Any] = {
        "rank": suspect.rank,
        "row": suspect.row,
        "given": visible(suspect.given, _TEXT),
        "suggested": visible(suspect.suggested, _TEXT),
        "p": round(suspect.p_wrong, 4),
        "loss": float(f"{suspect.loss:.4g}"),
        "action": suspect.action,
        "why": visible(suspect.why, 400),
    }
    if audit.cells:
        packed["cells"] = [visible(cells[place], _TEXT) for cells in audit.cells.values()]
    if audit.images:
        packed["image"] = base64.b64encode(audit.images[place]).decode()
    return packed


def _rounded(curve: dict[str, list[float]]) -> dict[str, list[float]]:
    """Enough digits for the page; counts stay whole."""
    return {k: [v if k == "count" else float(f"{v:.5g}") for v in values] for k, values in curve.items()}


def _percent(p: float) -> str:
    return ">99%" if p > 0.995 else f"{100 * p:.0f}%"
