"""The contents of the pages of results, from finished cells: numbers, claims, tables, Markdown, and a summary."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import UserError, missing_package
from .. import EXPERIMENTS, experiment
from .cells import PROTOCOLS, Claim, Plan, Results, TableSpec
from .printed import NOT_PRINTED, Row, higher_is_better, rows_of
from .store import Store

PROTOCOL_NOTES = {
    "honest": "Scaling and all choices use training and validation rows only; test rows are used once.",
    "paper": "What the paper describes, or what its numbers suggest if they differ: choices use test rows. Such "
    "numbers are optimistic and are given for comparison only.",
}
_MARKS = ("<!-- results: made by `rankrange reproduce --pages-only`, do not edit -->", "<!-- end of results -->")
FORMAT = 3  # of results.json
# The method that each experiment is about.
OWN = {
    "binary": "AoRR",
    "mnist-symmetric": "AoRR",
    "multilabel": "TKML",
    "mnist-asymmetric": "TKML",
    "tkml-aorr": "TKML-AoRR",
}


@dataclass(frozen=True)
class Finding:
    """A claim with its experiment and its protocol."""

    experiment: str
    protocol: str
    claim: Claim


@dataclass(frozen=True)
class Report:
    """The contents of a page: numbers, claims and figures.

    `about` is the manifest of the run with "work", the core seconds by (experiment, protocol), and "commits".
    """

    rows: list[Row]
    findings: list[Finding]
    pictures: dict[tuple[str, str], dict[str, bytes]]  # (experiment, protocol) -> PNG by name
    about: dict[str, Any]


def as_record(report: Report) -> dict[str, Any]:
    """All numbers with the versions that produced them, in the format that `rankrange reproduce --compare` reads."""
    made = {name: report.about.get(name) for name in ("size", "commit", "versions", "commits")}
    made["work"] = {_of(*key): round(seconds, 1) for key, seconds in report.about["work"].items()}
    made["figures"] = {_of(*key): list(drawn) for key, drawn in report.pictures.items()}
    return {"format": FORMAT, **made, "rows": [asdict(row) for row in report.rows]}


def read_record(path: Path) -> list[Row]:
    """The rows of a results.json of any format; before format 2 the file was a plain list of rows.

    A file that cannot be read as such raises a UserError.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return [Row(**row) for row in (found["rows"] if isinstance(found, dict) else found)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"a results.json of `rankrange reproduce` is needed, got {path}: {error}") from error


def _of(name: str, protocol: str) -> str:
    """The name of an experiment and its protocol in results.json, such as "binary (honest)"."""
    return f"{name} ({protocol})"


def earlier(folder: Path) -> Report:
    """The contents of earlier pages, read from their folder; an earlier format or missing figures are an error."""
    rows = read_record(folder / "results.json")
    about = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    keys = {_of(name, protocol): (name, protocol) for name in EXPERIMENTS for protocol in PROTOCOLS}
    try:
        about["work"] = {keys[name]: seconds for name, seconds in about["work"].items()}
        pictures = {
            keys[name]: {one: (folder / "figures" / f"{one}.png").read_bytes() for one in names}
            for name, names in about["figures"].items()
        }
    except (OSError, KeyError, TypeError) as error:
        raise UserError(f"pages to keep need results.json of format {FORMAT} and its figures: {error!r}") from error
    return Report(rows, _findings(folder), pictures, about)


def onto(kept: Report, new: Report, store: Store) -> Report:
    """The new report, with earlier results for each experiment and protocol that is not finished in `store`.

    It has no wall times, because it is not of one run.
    """
    finished = {cell.key for cell, _, _ in store.finished()}
    plans = {key: experiment(key[0]).cells(Plan(key[1], new.about["size"])) for key in new.pictures}
    complete = {key for key, cells in plans.items() if all(cell.key in finished for cell in cells)}

    def taken(old: Iterable[Any], fresh: Iterable[Any]) -> list[Any]:
        both = [one for one in old if (one.experiment, one.protocol) not in complete]
        both += [one for one in fresh if (one.experiment, one.protocol) in complete]
        return sorted(both, key=lambda one: (order.index(one.experiment), PROTOCOLS.index(one.protocol)))

    def joined(old: dict[Any, Any], fresh: dict[Any, Any], names: Iterable[Any]) -> dict[Any, Any]:
        found = {**{k: v for k, v in old.items() if k not in names}, **{k: v for k, v in fresh.items() if k in names}}
        return dict(sorted(found.items(), key=lambda item: str(item[0])))

    order = list(EXPERIMENTS)
    commits = joined(kept.about["commits"], new.about["commits"], {_of(*key) for key in complete})
    about = {**new.about, "commits": commits, "work": joined(kept.about["work"], new.about["work"], complete)}
    about["passes"] = []  # no single run: wall time is meaningless
    pictures = joined(kept.pictures, new.pictures, complete)
    return Report(taken(kept.rows, new.rows), taken(kept.findings, new.findings), pictures, about)


def _findings(folder: Path) -> list[Finding]:
    entries = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    return [Finding(e["experiment"], e["protocol"], Claim(e["text"], e["verdict"], e["evidence"])) for e in entries]


def build(store: Store) -> Report:
    """The contents of the pages, from the finished cells; a store without finished cells raises an error."""
    finished = store.finished()
    manifest = store.manifest()
    if not finished or manifest is None:
        raise UserError(
            f"pages need at least one finished cell, found none in {store.folder}; run without --pages-only"
        )
    rows = [_rounded(row) for row in rows_of((cell, outcome) for cell, outcome, _ in finished)]
    findings, pictures = [], {}
    for name in EXPERIMENTS:
        for protocol in PROTOCOLS:
            part = [(c, o) for c, o, _ in finished if (c.experiment, c.protocol) == (name, protocol)]
            if not part:
                if (name, protocol) == ("illustrations", "honest"):
                    pictures[name, protocol] = _illustrations()
                continue
            claims, drawn = _read_off(experiment(name), Results(part), "" if protocol == "honest" else f"-{protocol}")
            findings += [Finding(name, protocol, claim) for claim in claims]
            pictures[name, protocol] = drawn
    work = {key: 0.0 for key in pictures if key[0] != "illustrations"}
    for cell, _, seconds in finished:
        work[cell.experiment, cell.protocol] += seconds
    return Report(rows, findings, pictures, {**manifest, "work": work, "commits": store.commits()})


@cache
def _illustrations() -> dict[str, bytes]:
    """Draw the figures that need no results, once per process."""
    return _draw(experiment("illustrations").figures(Results([])), "")


def _read_off(module: ModuleType, results: Results, suffix: str) -> tuple[list[Claim], dict[str, bytes]]:
    """The claims and figures of an experiment; if cells are missing, one undecided claim about that and no figure."""
    try:
        return module.claims(results), _draw(module.figures(results), suffix)
    except (KeyError, IndexError, ValueError, StopIteration) as error:
        why = f"Not all cells are there: {type(error).__name__}: {error}."
        return [Claim("Claims and figures of this experiment need all of its cells.", "not decided", why)], {}


def _rounded(row: Row) -> Row:
    """Round mean and standard deviation to ten digits: the last bits depend on the machine, and pages would differ."""
    short = {name: None if (v := getattr(row, name)) is None else float(f"{v:.10g}") for name in ("mean", "sd")}
    return replace(row, **short)  # type: ignore[arg-type]


def as_json(content: Any) -> str:
    """Values as indented JSON text."""
    return json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _draw(figures: dict[str, Any], suffix: str) -> dict[str, bytes]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from PIL import Image
    except ImportError as error:
        raise missing_package("matplotlib", "drawing the figures") from error
    drawn = {}
    for name, figure in figures.items():
        FigureCanvasAgg(figure)
        whole, small = io.BytesIO(), io.BytesIO()
        figure.savefig(whole, format="png", dpi=110)
        # 200 colours are enough for lines and text, and half the size. Rare colours must stay: a legend has little ink.
        few = Image.open(whole).convert("RGB").quantize(200, method=Image.Quantize.MAXCOVERAGE)
        few.save(small, format="png", optimize=True)
        drawn[name + suffix] = small.getvalue()
    return drawn


# --- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table of results: its specification, its head, and for each line its names and its cells (None if empty)."""

    spec: TableSpec
    head: list[str]
    body: list[tuple[list[str], list[Row | None]]]

    @property
    def splits(self) -> str:
        """The number of splits as text, or its range if it differs between cells."""
        ns = sorted({row.n for _, rows in self.body for row in rows if row})
        return f"{ns[0]} splits" if len(ns) == 1 else f"{ns[0]} to {ns[-1]} splits"


def table_of(spec: TableSpec, rows: Iterable[Row]) -> Table | None:
    """The rows of one experiment and protocol as the table that `spec` defines; None if there are no such rows."""
    shown = [r for r in rows if r.metric == spec.metric and (not spec.methods or r.method in spec.methods)]
    if not shown:
        return None
    if spec.methods:
        shown.sort(key=lambda row: spec.methods.index(row.method))
    columns = list(dict.fromkeys(getattr(row, spec.columns) for row in shown))
    found: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in shown:
        found.setdefault(tuple(getattr(row, name) for name in spec.lines), {})[getattr(row, spec.columns)] = row
    lines = sorted(found, key=lambda line: _first(line, shown, spec)) if "method" not in spec.lines else list(found)
    body: list[tuple[list[str], list[Row | None]]] = [
        (list(line), [found[line].get(column) for column in columns]) for line in lines
    ]
    return Table(spec, [*spec.lines, *columns], body)


def _first(line: tuple[str, ...], rows: list[Row], spec: TableSpec) -> int:
    return next(i for i, row in enumerate(rows) if tuple(getattr(row, name) for name in spec.lines) == line)


def number(mean: float | None, sd: float | None) -> str:
    """A mean with its standard deviation in parentheses, as text; empty without a mean.

    Both have two decimals, or none if the mean is 1000 or more in absolute value.
    """
    if mean is None:
        return ""
    digits = 0 if abs(mean) >= 1000 else 2
    return f"{mean:.{digits}f}" + ("" if sd is None else f" ({sd:.{digits}f})")


def cell_lines(row: Row) -> list[str]:
    """The lines of a table cell: our number and, if the paper prints one, that number and the comparison of both.

    The comparison is the difference in combined standard deviations, and the verdict.
    """
    if row.paper_mean is None:
        return [number(row.mean, row.sd)]
    units = "" if row.units is None else f"{row.units:+.1f} "
    return [number(row.mean, row.sd), f"paper {number(row.paper_mean, row.paper_sd)}", f"{units}{row.verdict}"]


def sections(report: Report) -> Iterable[tuple[str, str, list[Table], list[Claim], dict[str, bytes]]]:
    """For each experiment and protocol: both names, tables, claims and figures, in the order of the paper."""
    for name in EXPERIMENTS:
        for protocol in PROTOCOLS:
            if (name, protocol) not in report.pictures:
                continue
            rows = [row for row in report.rows if (row.experiment, row.protocol) == (name, protocol)]
            tables = [table for spec in experiment(name).TABLES if (table := table_of(spec, rows))]
            claims = [f.claim for f in report.findings if (f.experiment, f.protocol) == (name, protocol)]
            yield name, protocol, tables, claims, report.pictures[name, protocol]


def headline(rows: list[Row], findings: list[Finding]) -> str:
    """The results of the protocol "honest" in two sentences."""
    compared = [row for row in rows if row.protocol == "honest" and row.verdict != NOT_PRINTED]
    n, fine = len(compared), sum(row.verdict != "worse" for row in compared)
    claims = [f.claim.verdict for f in findings if f.protocol == "honest"]
    hold, fail = claims.count("holds"), claims.count("does not hold")
    return (
        f"Of {n} numbers that the paper prints, {fine} are the same here or better and {n - fine} are worse. Of "
        f"{len(claims)} claims that were tested {hold} hold, {fail} do not, and {len(claims) - hold - fail} are open."
    )


HOW_TO_READ = (
    "Each cell: our mean over the splits (standard deviation), below it the paper's, then ours - paper in units of the "
    "combined deviation, sqrt(ours^2 + paper's^2), and a verdict: same (within one unit), better or worse. Claims are "
    "tested on differences over the same splits: they hold or fail by two standard errors, otherwise they are not "
    "decided. A standard error over random splits of one data set is an approximation: the splits share rows. In the "
    "summary, the paper's own method (AoRR or TKML) has reached a printed number where it comes within one of the "
    "paper's deviations, or is better."
)


def about(report: Report) -> list[str]:
    """Sentences about the run: missing data sets, versions, seeds, commits, core time by experiment, wall time."""
    facts = report.about
    packages = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    honest = sum(seconds for (_, protocol), seconds in facts["work"].items() if protocol == "honest") / 60.0
    each = "; ".join(f"{name} ({protocol}) {s / 60:.1f}" for (name, protocol), s in facts["work"].items())
    passes = facts["passes"]
    wall = ""
    if len(passes) == 1:
        wall = f" Wall time: {passes[0]['seconds'] / 60:.1f} min, {passes[0]['jobs']} processes."
    return [
        *_left_out(report),
        f"Size: {facts['size']}. Made with {packages}. Seeds: 1000 + number of the split. {_made_by(facts['commits'])}",
        f"Work, in minutes of one core: {each}. All of the honest protocol: {honest:.1f}, or {honest / 2:.1f} on two "
        f"cores; figures and pages take a few seconds more.{wall}",
    ]


def _made_by(commits: dict[str, list[str]]) -> str:
    """The commits behind the numbers: one for all, or one list per experiment if they differ."""
    found = sorted({commit for made_by in commits.values() for commit in made_by})
    if len(found) == 1:
        return f"Commit: {found[0]}."
    return "Commits: " + "; ".join(f"{name} {', '.join(made_by)}" for name, made_by in commits.items()) + "."


def _left_out(report: Report) -> list[str]:
    """A sentence about data sets that are not in this run, which claims about every data set do not cover.

    It is in a list, which is empty if there are none.
    """
    found_sets: dict[str, set[str]] = {}
    for row in report.rows:
        found_sets.setdefault(row.experiment, set()).add(row.dataset)
    missing = {name: [d for d in experiment(name).NEEDS if d not in found] for name, found in found_sets.items()}
    listed = "; ".join(f"{name}: {', '.join(gone)}" for name, gone in missing.items() if gone)
    return [f"Not in this run: {listed}. Claims about every data set speak of the others alone."] if listed else []


# --- Markdown ---------------------------------------------------------------------------------------------------------


def as_markdown(report: Report) -> str:
    """The page of results as Markdown."""
    out = ["# The paper, reproduced", "", "Made by `rankrange reproduce`; do not edit.", ""]
    out += [headline(report.rows, report.findings), "", *summary_table(report.rows, report.findings), ""]
    out += [line for text in (HOW_TO_READ, *about(report)) for line in (text, "")]
    for name, protocol, tables, claims, pictures in sections(report):
        module = experiment(name)
        label = f", {protocol} protocol" if experiment(name).NEEDS else ""
        out += [f"## {module.TITLE}{label}", ""]
        if label:
            out += [f"`rankrange reproduce {name}`. Protocol **{protocol}**: {PROTOCOL_NOTES[protocol]}", ""]
        for table in tables:
            out += _markdown_table(table)
        if claims:
            out += ["| claim | verdict | evidence |", "|---|---|---|"]
            out += [f"| {_flat(c.text)} | **{c.verdict}** | {_flat(c.evidence)} |" for c in claims] + [""]
        out += [line for picture in pictures for line in (f"![{picture}](figures/{picture}.png)", "")]
    return "\n".join(out).rstrip() + "\n"


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _markdown_table(table: Table) -> list[str]:
    out = [f"**{table.spec.title}** ({table.splits}). {table.spec.note}".strip(), ""]
    out += ["| " + " | ".join(map(_flat, table.head)) + " |", "|" + "---|" * len(table.head)]
    for line, rows in table.body:
        texts = ["<br>".join(cell_lines(row)) if row else "" for row in rows]
        out.append("| " + " | ".join(map(_flat, [*line, *texts])) + " |")
    return [*out, ""]


# --- the summary ------------------------------------------------------------------------------------------------------


def summary_table(rows: list[Row], findings: list[Finding]) -> list[str]:
    """The summary as lines of a Markdown table, one per experiment and protocol below the head."""
    out = [
        "| experiment | protocol | numbers | better, same, worse | the paper's own method reached | "
        "claims: hold, open, fail |",
        "|---|---|---|---|---|---|",
    ]
    for name in EXPERIMENTS:
        for protocol in PROTOCOLS:
            shown = [row for row in rows if (row.experiment, row.protocol) == (name, protocol)]
            claims = [f.claim.verdict for f in findings if (f.experiment, f.protocol) == (name, protocol)]
            if shown or claims:
                out.append(_summary_line(name, protocol, [r for r in shown if r.verdict != NOT_PRINTED], claims))
    return out


def _summary_line(name: str, protocol: str, compared: list[Row], claims: list[str]) -> str:
    ours = [row for row in compared if row.method == OWN.get(name)]
    reached = sum(row.reached(bool(higher_is_better(name, row.metric))) for row in ours)
    verdicts = [sum(row.verdict == v for row in compared) for v in ("better", "same", "worse")]
    counts = [claims.count(verdict) for verdict in ("holds", "not decided", "does not hold")]
    split = ", ".join(map(str, verdicts)) if compared else ""
    return (
        f"| {name} | {protocol} | {len(compared) or 'none printed'} | {split} "
        f"| {f'{OWN[name]}: {reached} of {len(ours)}' if ours else ''} | {', '.join(map(str, counts))} |"
    )


def summary(folder: Path) -> str:
    """The block of results for a README between its marks, from results.json and claims.json of a folder."""
    rows = read_record(folder / "results.json")
    findings = _findings(folder)
    return "\n".join([_MARKS[0], headline(rows, findings), "", *summary_table(rows, findings), _MARKS[1]])


def with_summary(text: str, folder: Path) -> str:
    """The text of a README with its block of results replaced; a text without the marks of the block is an error."""
    start, end = (text.find(mark) for mark in _MARKS)
    if start < 0 or end < start:
        raise UserError(f"the README needs the line {_MARKS[0]} and below it {_MARKS[1]}, got none; add both lines")
    return text[:start] + summary(folder) + text[end + len(_MARKS[1]) :]
