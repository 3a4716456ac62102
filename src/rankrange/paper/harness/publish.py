"""Write the pages of a run: results.json, claims.json, results.md, results.html, figures, and a summary in a README."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from ...tables.write import write_whole
from .html import as_html
from .store import Store
from .tables_page import Report, as_json, as_markdown, as_record, build, earlier, onto, with_summary


def write_pages(store: Store, folder: Path, readme: Path | None = None, keep: Path | None = None) -> Report:
    """Write all pages into `folder`, from the finished cells of a run, and return their contents.

    Figures of an earlier run in `folder` are deleted. The block of results in the file `readme` is replaced.
    Experiments that are not finished are taken from the earlier pages in the folder `keep`, with their commits.
    """
    report = build(store) if keep is None else onto(earlier(keep), build(store), store)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "figures").mkdir(exist_ok=True)
    drawn = {name: content for pictures in report.pictures.values() for name, content in pictures.items()}
    for name, content in drawn.items():
        write_whole({folder / "figures" / f"{name}.png": content})
    for old in (folder / "figures").glob("*.png"):
        if old.stem not in drawn:  # of an earlier run
            old.unlink()
    claims = [{"experiment": f.experiment, "protocol": f.protocol, **asdict(f.claim)} for f in report.findings]
    for name, text in (
        ("results.json", as_json(as_record(report))),
        ("claims.json", as_json(claims)),
        ("results.md", as_markdown(report)),
        ("results.html", as_html(report)),
    ):
        write_whole({folder / name: text.encode()})
    if readme is not None:
        write_whole({readme: with_summary(readme.read_text(encoding="utf-8"), folder).encode()})
    return report
