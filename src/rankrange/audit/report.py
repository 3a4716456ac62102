"""The HTML page of an audit, and a short version for notebooks."""

from __future__ import annotations

import base64
import shlex
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from ..errors import with_flags
from ..pages.charts import histogram, rising, scatter, stacked, whiskers
from ..pages.shell import asset, embed, fragment, page
from ..pages.text import percent, plural, visible
from .decisions import IdentifiedRows, target_as_text
from .evidence import Near
from .pictures import confusions, found_curve
from .problems import count_problems, words_of
from .sentences import columns_in_words, suggestion
from .target import plain_name

if TYPE_CHECKING:
    from .findings import Audit, Suspect

# The largest size of a page. If a page is larger, the last suspects are left out.
_MAX_BYTES = 1_900_000
_TEXT = 80
# What the page says about the cut of the slider.
_FACTS = [("precision", "of these estimated wrong"), ("found", "of all wrong rows found")]


def audit_page(audit: Audit, rows: bool = True) -> str:
    """The page of an audit: one self-contained HTML file as text.

    The number of suspects is halved until the page has at most 1.9 MB. Without `rows` it has no cells of single rows.
    """
    limit = max(len(audit.images), max((len(cells) for cells in audit.cells.values()), default=0))
    identified = audit.identified
    script = "\n".join(asset(name) for name in ("audit.js", "review.js")[: 1 if audit.observed else 2])
    text = ""
    for shown in (limit >> i for i in range(max(limit, 1).bit_length())):
        text = page(f"Audit of {audit.name}", _body(audit, shown, identified, rows), script=script)
        if len(text.encode()) <= _MAX_BYTES:
            break
    return text


def audit_fragment(audit: Audit, limit: int = 10) -> Markup:
    """HTML for a notebook: the findings, the scores and the first suspects, without script or style."""
    return fragment("audit_short.html", **_values(audit, limit, rows=True))


def _body(audit: Audit, limit: int, identified: IdentifiedRows, rows: bool) -> Markup:
    values = _values(audit, limit, rows)
    values["sentences"] = [with_flags(sentence) for sentence in values["sentences"]]
    curve = audit.cut_curve()
    # The slider starts at the cut of the model or, if it drops no row, at the number of likely wrong rows.
    start = np.abs(np.array(curve["count"]) - (audit.result.m or audit.n_likely or 1)).argmin()
    data = {
        "curve": _rounded(curve),
        "rows": len(audit.result.wrong),
        "start": int(start),
        "axis": {key: values["chart"][key] for key in ("log_low", "log_high", "left", "right")},
        "side": audit.image_side,
        "suspects": [
            _packed(audit, index, suspect, identified, rows) for index, suspect in enumerate(audit.suspects(limit))
        ],
        "columns": [visible(name, _TEXT) for name in audit.cells],
        "facts": [] if audit.observed else _FACTS,
        "total": audit.n_listed,
        "table": identified.table,
        "target": target_as_text(audit.target.columns),
        "task": audit.target.task,
        "labels": audit.target.names[:500] if audit.target.task == "classes" else [],
    }
    return fragment("audit.html", data=embed("audit-data", data), **_pictures(audit, rows), **values)


def _values(audit: Audit, limit: int, rows: bool) -> dict[str, Any]:
    j = audit.result
    cuts = [("λ", j.lam if j.k < len(j.wrong) else None), ("λ̂", j.lam_hat if j.m else None)]
    return {
        "audit": audit,
        "j": j,
        "sentences": audit.sentences(),
        "suspects": [_shown(audit, suspect, rows) for suspect in audit.suspects(limit)],
        "with_rows": rows and bool(audit.cells or audit.images),
        "chart": histogram(audit.distribution(), cuts),
        "measures": [(m, whiskers(m)) for m in j.measures],
        "above": int((j.losses > j.lam_hat).sum()) if j.m else 0,
        "percent": percent,
        "columns_in_words": columns_in_words(audit),
        "share": lambda part, whole: f"{100 * part / whole:.1f}%" if whole else "0%",
    }


def _pictures(audit: Audit, rows: bool) -> dict[str, Any]:
    """Variables for the templates of the charts, of the review and of other problems."""
    evidence = audit.evidence
    labels, counts = ([], []) if audit.observed else confusions(audit.target, audit.result)
    most = max((max(row) for row in counts), default=1) or 1
    counted = count_problems(audit.row_problems)
    parts = () if audit.source.path.is_dir() else audit.source.parts
    names = [part.path.name for part in parts] or [audit.name]
    return {
        "evidence": evidence,
        # A curve of less than one expected error would promise errors that are probably not there.
        "curve": _review_curve(audit) if audit.n_listed and audit.result.wrong.sum() >= 1.0 else None,
        "map": _mapped(audit) if evidence.points else None,
        "confused": {"labels": labels, "counts": counts, "heat": lambda count: -(-5 * count // most)},
        "overview": _overview(audit),
        "without_picture": [name for name in audit.cells if name not in {one.name for one in evidence.columns}],
        "overview_row": lambda column: fragment("overview_row.html", c=column),
        "problems": [
            (words_of(kind)[1].capitalize(), [p for p in audit.row_problems if p.kind == kind], f"{count:,}")
            for kind, count in counted.items()
        ],
        "in_words": lambda problem: problem.sentence if rows else "values are left out",
        "command_name": " ".join(shlex.quote(visible(name)) for name in names) + " --decisions" * (len(names) > 1),
        "command_target": " ".join(f"--target {shlex.quote(visible(name))}" for name in audit.target.columns),
    }


def _review_curve(audit: Audit) -> dict[str, Any]:
    """The curve of errors found during a review, and a sentence with its value where most of the errors are found."""
    seen, total = found_curve(audit.result), float(audit.result.wrong.sum())
    rows = np.unique(np.linspace(0, len(seen) - 1, 101).astype(int))
    stop, last = int(np.searchsorted(seen, 0.8 * seen[-1])), len(seen) - 1
    sentence = f"After {plural(stop, 'row')} you have seen {seen[stop]:.0%} of the {total:,.0f} expected errors"
    rest = f"; after all {last:,} listed, {seen[-1]:.0%}." if stop < last else "."
    return {**rising(rows.tolist(), seen[rows].tolist()), "says": sentence + rest}


def _mapped(audit: Audit) -> dict[str, Any]:
    points = audit.evidence.points
    crosses, dots = sum(rank > 0 for rank in points["rank"]), sum(rank == 0 for rank in points["rank"])
    n_others = len(audit.result.wrong) - audit.n_listed
    some = [f"{dots:,} of {n_others:,} rows"] if dots < n_others else []
    some += [f"the first {crosses:,} of {audit.n_listed:,} listed"] if crosses < audit.n_listed else []
    return {
        **scatter(points, len(audit.evidence.labels)),
        "left_out": "the map shows " + " and ".join(some) if some else "",
    }


def _overview(audit: Audit) -> list[dict[str, Any]]:
    """The columns with their pictures, and a text alternative for screen readers."""
    reports, unusual = {column.name: column for column in audit.columns}, Counter[str | None]()
    for problem in audit.row_problems:
        unusual[problem.column] += len(problem.rows)
    return [
        {
            "name": picture.name,
            "kind": reports[picture.name].kind,
            "missing": reports[picture.name].missing,
            "unusual": unusual[picture.name],
            "ends": picture.ends,
            "says": f"bars of {picture.name}: {', '.join(picture.values) or ' to '.join(picture.ends)}",
            **stacked(picture.counts),
        }
        for picture in audit.evidence.columns
    ]


def _shown(audit: Audit, suspect: Suspect, rows: bool) -> dict[str, Any]:
    """A listed row as it is shown; without `rows`, the reason has no cells."""
    return {
        "rank": suspect.rank,
        "row": plain_name(suspect.row),
        "given": visible(suspect.given, _TEXT),
        "suggested": visible(suggestion(audit, suspect), 2 * _TEXT),
        "p": round(suspect.probability if audit.observed else suspect.p_wrong, 4),
        "loss": float(f"{suspect.loss:.4g}"),
        "action": suspect.action,
        "why": visible(suspect.why if rows else audit.result.expected[suspect.rank - 1], 600),
    }


def _packed(audit: Audit, index: int, suspect: Suspect, identified: IdentifiedRows, rows: bool) -> dict[str, Any]:
    packed: dict[str, Any] = {
        **_shown(audit, suspect, rows),
        "contents": identified.contents[index],
        "cell": identified.given[index],
        "to": "" if audit.target.task == "numbers" else suspect.suggested,  # a prediction is no new value
    }
    evidence = audit.evidence
    if not rows:
        return packed
    if audit.cells:
        packed["cells"] = [visible(cells[index], _TEXT) for cells in audit.cells.values()]
        marks = evidence.marks[index] if index < len(evidence.marks) else {}
        packed["marks"] = {str(i): visible(marks[name], 200) for i, name in enumerate(audit.cells) if name in marks}
    if audit.images:
        packed["image"] = base64.b64encode(audit.images[index]).decode()
    if index < len(evidence.near):
        packed["near"] = [_near(audit, near) for near in evidence.near[index]]
    return packed


def _near(audit: Audit, near: Near) -> dict[str, Any]:
    found: dict[str, Any] = {"row": plain_name(audit.row_names.name(near.row)), "target": visible(near.target, _TEXT)}
    if near.cells:
        found["cells"] = [visible(cell, _TEXT) for cell in near.cells]
    if near.image:
        found["image"] = base64.b64encode(near.image).decode()
    return found


def _rounded(curve: dict[str, list[float]]) -> dict[str, list[float]]:
    return {k: [v if k == "count" else float(f"{v:.5g}") for v in values] for k, values in curve.items()}
