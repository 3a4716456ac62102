"""The page of results as HTML: the same tables, claims and figures as the Markdown page, in one file."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from ...errors import missing_package
from .. import experiment
from .cells import Claim
from .printed import Row
from .tables_page import (
    HOW_TO_READ,
    PROTOCOL_NOTES,
    Report,
    Table,
    about,
    cell_lines,
    headline,
    sections,
    summary_table,
)


def as_html(report: Report) -> str:
    """The page of results as one HTML file."""
    try:
        from markupsafe import Markup

        from ...pages.shell import page
    except ImportError as error:
        raise missing_package("jinja2", "the HTML page") from error
    lead = Markup('<h1>The paper, reproduced</h1><p class="lead">{}</p>')
    parts = [lead.format(headline(report.rows, report.findings))]
    parts.append(Markup("<section><h2>Summary</h2>{}</section>").format(_html_summary(report)))
    parts += [Markup('<p class="note">{}</p>').format(text) for text in (HOW_TO_READ, *about(report))]
    for name, protocol, tables, claims, pictures in sections(report):
        label = f", {protocol} protocol" if experiment(name).NEEDS else ""
        inside = [Markup("<h2>{}{}</h2>").format(experiment(name).TITLE, label)]
        if label:
            text = "<p><code>rankrange reproduce {}</code>. Protocol <strong>{}</strong>: {}</p>"
            inside.append(Markup(text).format(name, protocol, PROTOCOL_NOTES[protocol]))
        inside += [_html_table(table) for table in tables]
        inside += [_html_claims(claims)] if claims else []
        for picture, content in pictures.items():
            source = "data:image/png;base64," + base64.b64encode(content).decode()
            image = '<div class="scroll"><img src="{}" alt="{}" loading="lazy"></div>'
            inside.append(Markup(image).format(source, picture.replace("-", " ")))
        parts.append(Markup('<section class="long" id="{}">{}</section>').format(f"{name}-{protocol}", _join(inside)))
    return page("The paper, reproduced", _join(parts))


def _join(parts: Iterable[Any]) -> Any:
    from markupsafe import Markup

    return Markup("\n").join(parts)


def _grid(head: Iterable[Any], lines: Iterable[Iterable[Any]], caption: str = "") -> Any:
    from markupsafe import Markup

    tops = Markup("").join(Markup('<th scope="col">{}</th>').format(text) for text in head)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(Markup("<td>{}</td>").format(text) for text in line))
        for line in lines
    )
    text = '<div class="scroll"><table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    return Markup(text).format(caption, tops, body)


def _html_summary(report: Report) -> Any:
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in summary_table(report.rows, report.findings)
        if not line.startswith("|---")
    ]
    return _grid(lines[0], lines[1:])


_COLOURS = {"better": "good", "worse": "cut", "holds": "good", "does not hold": "cut"}


def _html_table(table: Table) -> Any:
    from markupsafe import Markup

    def cell(row: Row | None) -> Any:
        if row is None:
            return ""
        ours, *rest = cell_lines(row)
        text = Markup("<strong>{}</strong>").format(ours)
        if rest:
            colour = _COLOURS.get(row.verdict, "soft")
            text += Markup('<br><span class="soft">{}</span><br><span class="{}">{}</span>').format(
                rest[0], colour, rest[1]
            )
        return text

    caption = f"{table.spec.title} ({table.splits}). {table.spec.note}".strip()
    return _grid(table.head, ([*line, *(cell(row) for row in rows)] for line, rows in table.body), caption)


def _html_claims(claims: list[Claim]) -> Any:
    from markupsafe import Markup

    def verdict(text: str) -> Any:
        return Markup('<span class="tag {}">{}</span>').format(_COLOURS.get(text, "soft"), text)

    return _grid(("claim", "verdict", "evidence"), ((c.text, verdict(c.verdict), c.evidence) for c in claims))
