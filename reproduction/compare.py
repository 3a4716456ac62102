"""Compare the results of a run with the printed numbers and judge the claims: results.md and its figures.

One rule for every verdict. A difference is decided by two standard errors: a claim holds if it is beyond its bar by
two, it does not hold if it is short of it by two, and is open otherwise. A number of ours is better or worse than the
printed one by two standard errors of both, and the same otherwise.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import data
from .experiments import NAMES, PROTOCOLS, module

HERE = Path(__file__).parent
HOLDS, FAILS, OPEN = "holds", "does not hold", "open"
# Runs behind a printed number, for its standard error: 10 splits, or 5 runs on MNIST.
PRINTED_RUNS = {"mnist-symmetric": 5, "mnist-asymmetric": 5}


@cache
def toml(name: str) -> dict[str, Any]:
    """A TOML file of this folder."""
    return tomllib.loads((HERE / name).read_text(encoding="utf-8"))


class Results:
    """The finished cells of one experiment and protocol."""

    def __init__(self, name: str, protocol: str, records: Iterable[dict[str, Any]]) -> None:
        self.name, self.protocol = name, protocol
        self.records = sorted(records, key=lambda r: (r["dataset"], r["part"], r["split"]))
        self.table: dict[tuple[str, str, str, str], dict[int, float]] = {}
        for record in self.records:
            for method, setting, metric, value in record["rows"]:
                found = self.table.setdefault((metric, record["dataset"], setting, method), {})
                found[record["split"]] = value

    def values(self, metric: str, dataset: str, setting: str, method: str) -> dict[int, float]:
        """The values of one measure by split; empty if it was not measured."""
        return self.table.get((metric, dataset, setting, method), {})

    def array(self, metric: str, dataset: str, setting: str, method: str) -> Any:
        """The values of one measure in the order of the splits."""
        return np.array([value for _, value in sorted(self.values(metric, dataset, setting, method).items())])

    def settings(self, metric: str) -> list[tuple[str, str]]:
        """Pairs (data set, setting) of a metric, in the order of measurement."""
        return list(dict.fromkeys(key[1:3] for key in self.table if key[0] == metric))

    def methods(self, metric: str) -> list[str]:
        """The methods of a metric, in the order of measurement."""
        return list(dict.fromkeys(key[3] for key in self.table if key[0] == metric))


def printed(name: str, metric: str, dataset: str, setting: str, method: str) -> list[float]:
    """The printed [mean, deviation], [mean] without a deviation, or [] if the paper does not print the number."""
    found: Any = toml("printed.toml")
    for key in (name, metric, dataset, setting, method):
        found = found.get(key, {})
    return list(found)


# ---- verdicts --------------------------------------------------------------------------------------------------------


def decide(gap: float, error: float) -> str:
    """The rule: a gap above 0 by two standard errors holds, below 0 by two does not, otherwise it is open."""
    return HOLDS if gap > 2.0 * error else FAILS if gap < -2.0 * error else OPEN


def mean_and_error(values: Any) -> tuple[float, float]:
    """The mean over splits and its standard error, which is infinite for fewer than two splits."""
    values = np.asarray(list(values), dtype=float)
    if len(values) < 2:
        return (float(values.mean()) if len(values) else math.nan), math.inf
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def against_printed(name: str, better: str, values: Any, paper: list[float]) -> str:
    """Whether a mean of ours is better, worse or the same as the printed one."""
    mean, error = mean_and_error(values)
    paper_error = paper[1] / math.sqrt(PRINTED_RUNS.get(name, 10)) if len(paper) > 1 else 0.0
    sign = 1.0 if better == "higher" else -1.0
    verdict = decide(sign * (mean - paper[0]), math.hypot(error, paper_error))
    return {HOLDS: "better", FAILS: "worse", OPEN: "same"}[verdict]


class Judged(NamedTuple):
    """A claim with its verdict and the differences behind it."""

    claim: dict[str, Any]
    verdict: str
    evidence: str


def judge(claim: dict[str, Any], results: Results) -> Judged | None:
    """Judge a claim of claims.toml; None if nothing of it was measured.

    A claim says that `one` - `other` is above, or below, a bar in all of its cells [data set, setting], which may hold
    wildcards. Terms are methods, or "method @ setting" for another setting, in which {} is the cell's; lists are
    summed. "printed" is the printed mean of `one`, and the bar "deviation" allows its deviation. With `range = true`,
    `one` is a pattern of methods along a curve, and two neighbours must satisfy the claim in each cell.
    """
    sign = 1.0 if "above" in claim else -1.0
    bar = claim.get("above", claim.get("below"))
    verdicts, lines = [], []
    for place in _places(claim, results):
        curve = _curve(claim, results, place)
        gaps = [_gap(claim, results, place, method, sign, bar) for method in curve]
        found = [(method, gap) for method, gap in zip(curve, gaps, strict=True) if gap is not None]
        if not found:
            continue
        each = [decide(mean - bar_, error) for _, (mean, error, bar_) in found]
        verdicts.append(_in_range(each) if claim.get("range") else each[0])
        method, (mean, error, _) = max(found, key=lambda pair: pair[1][0] - pair[1][2])
        where = " ".join(place) + (f" best at {method}" if claim.get("range") else "")
        lines.append(f"{where} {sign * mean:+.2f} ({error:.2f})")
    if not verdicts:
        return None
    verdict = FAILS if FAILS in verdicts else HOLDS if set(verdicts) == {HOLDS} else OPEN
    counts = f"{verdicts.count(HOLDS)} of {len(verdicts)} hold, {verdicts.count(FAILS)} do not"
    return Judged(claim, verdict, f"{counts}: {'; '.join(lines)}")


def _places(claim: dict[str, Any], results: Results) -> list[tuple[str, str]]:
    """The cells of a claim: those measured that match a pattern, and those without wildcards as they are."""
    known = results.settings(claim["metric"])
    places: list[tuple[str, str]] = []
    for dataset, setting in claim.get("cells", [["*", "*"]]):
        if "*" in dataset + setting:
            places += [place for place in known if fnmatchcase(place[0], dataset) and fnmatchcase(place[1], setting)]
        else:
            places.append((dataset, setting))
    return list(dict.fromkeys(places))


def _curve(claim: dict[str, Any], results: Results, place: tuple[str, str]) -> list[Any]:
    if not claim.get("range"):
        return [claim["one"]]
    measured = [m for m in results.methods(claim["metric"]) if fnmatchcase(m, claim["one"])]
    return sorted(measured, key=lambda method: float(method.rpartition("=")[2]))


def _in_range(verdicts: list[str]) -> str:
    if any(pair == (HOLDS, HOLDS) for pair in itertools.pairwise(verdicts)):
        return HOLDS
    return FAILS if set(verdicts) == {FAILS} else OPEN


def _gap(
    claim: dict[str, Any], results: Results, place: tuple[str, str], one: Any, sign: float, bar: Any
) -> tuple[float, float, float] | None:
    """Signed mean difference, standard error and signed bar in one cell; None if something was not measured."""
    metric, (dataset, setting) = claim["metric"], place
    total: dict[int, float] | None = None
    paper = printed(results.name, metric, dataset, setting, one) if isinstance(one, str) else []
    for factor, terms in ((sign, one), (-sign, claim.get("other", []))):
        for term in [terms] if isinstance(terms, str) else terms:
            if term == "printed":
                if not paper:
                    return None
                values = dict.fromkeys(total or {}, paper[0])
            else:
                method, _, other_setting = term.partition(" @ ")
                values = results.values(metric, dataset, other_setting.replace("{}", setting) or setting, method)
            total = {
                split: (0.0 if total is None else total[split]) + factor * value
                for split, value in values.items()
                if total is None or split in total
            }
    if not total:
        return None
    if bar == "deviation":  # worse than the printed mean by at most its deviation
        bar = -sign * paper[1] if len(paper) > 1 else 0.0
    mean, error = mean_and_error(total.values())
    return mean, error, sign * bar


# ---- the page --------------------------------------------------------------------------------------------------------


def read(folder: Path) -> list[Results]:
    """The finished cells below a folder, by experiment and protocol in the order of the paper."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*/*/*.json"))]
    found = []
    for name in NAMES:
        for protocol in PROTOCOLS:
            own = [r for r in records if (r["experiment"], r["protocol"]) == (name, protocol)]
            found += [Results(name, protocol, own)] if own else []
    return found


def write(folder: Path) -> Path:
    """Write results.md and the figures into the folder of a run."""
    from .run import write_whole

    found = read(folder)
    summary, body = [], []
    totals = {protocol: np.zeros((2, 3), dtype=int) for protocol in PROTOCOLS}
    for results in found:
        tables, counts = _tables(results)
        judged = [one for claim in claims_of(results) if (one := judge(claim, results))]
        verdicts = [one.verdict for one in judged]
        claims = [verdicts.count(verdict) for verdict in (HOLDS, OPEN, FAILS)]
        totals[results.protocol] += (counts, claims)
        summary.append(_summary(results.name, results.protocol, _splits(results), counts, claims))
        body += [f"## {module(results.name).TITLE}, {results.protocol} protocol", "", _about(results), "", *tables]
        if judged:
            body += ["| claim | of | verdict | evidence |", "|---|---|---|---|"]
            body += [f"| {j.claim['text']} | {j.claim['of']} | {j.verdict} | {j.evidence} |" for j in judged] + [""]
        body += [f"![{name}](figures/{name}.png)" for name in _draw(results, folder)] + [""]
    summary += [_summary("all", protocol, "", *both) for protocol, both in totals.items()]
    head = ["# The paper's experiments, repeated", "", (__doc__ or "").partition("\n\n")[2], *_protocols(found), ""]
    head += ["| experiment | protocol | splits | numbers: better, same, worse | claims: hold, open, do not |"]
    head += ["|---|---|---|---|---|", *summary, "", *_data_sets()]
    head += [f"## {module('illustrations').TITLE}", "", "`make reproduce ARGS=illustrations`: seconds.", ""]
    pictures = _draw(Results("illustrations", "held-out", []), folder)
    head += [f"![{name}](figures/{name}.png)" for name in pictures] + [""]
    write_whole(folder / "results.md", "\n".join(head + body).rstrip() + "\n")
    return folder / "results.md"


def claims_of(results: Results) -> list[dict[str, Any]]:
    """The claims about an experiment and protocol."""
    return [
        claim
        for claim in toml("claims.toml")["claim"]
        if claim["experiment"] == results.name and results.protocol in claim.get("protocols", PROTOCOLS)
    ]


def _protocols(found: list[Results]) -> list[str]:
    commits = sorted({record["commit"] for results in found for record in results.records})
    sizes = {record["quick"] for results in found for record in results.records}
    return [
        *(f"- {name}: {text}" for name, text in PROTOCOLS.items()),
        f"- Seeds: 1000 + number of the split. Size: {' and '.join('quick' if q else 'full' for q in sorted(sizes))}.",
        f"- Made by: {'; '.join(commits)}.",
        "- A cell of a table: our mean (deviation); the printed one; the verdict. Standard errors over random splits "
        "of one data set are approximate, because the splits share rows.",
    ]


def _data_sets() -> list[str]:
    """Tables 2 and 6: size, and the ratio of the classes or the number of labels per row beside the printed one."""
    lines = ["## Tables 2 and 6: the data sets", "", "Every command writes this table, of the sets that it finds.", ""]
    lines += ["| | rows | columns | | here | paper |", "|---|---|---|---|---|---|"]
    for name, paper in toml("printed.toml")["data"].items():
        try:
            X, y = (bunch := data.load(name)).data, bunch.target
        except (FileNotFoundError, ValueError):
            continue
        if y.ndim == 1:
            what, here = "larger class / smaller", np.bincount(y).max() / np.bincount(y).min()
        else:
            what, here = "labels per row", y.sum() / len(y)
        lines.append(f"| {name} | {len(X)} | {X.shape[1]} | {what} | {here:.2f} | {paper[0]:.2f} |")
    return [*lines, ""]


def _about(results: Results) -> str:
    minutes = sum(record["seconds"] for record in results.records) / 60.0
    command = f"`make reproduce ARGS='{results.name} --protocol {results.protocol}'`"
    settings = (module(results.name).__doc__ or "").partition("\n\n")[2]  # says where a grid is thinned
    return f"{command}: {minutes:.1f} minutes of one core.\n\n{settings.strip()}"


def _splits(results: Results) -> str:
    splits = sorted({len(values) for values in results.table.values()})
    return f"{splits[0]} to {splits[-1]}" if len(splits) > 1 else str(splits[0])


def _summary(name: str, protocol: str, splits: str, numbers: Iterable[int], claims: Iterable[int]) -> str:
    return f"| {name} | {protocol} | {splits} | {', '.join(map(str, numbers))} | {', '.join(map(str, claims))} |"


def _tables(results: Results) -> tuple[list[str], list[int]]:
    """The tables of an experiment as Markdown, and how many numbers are better, the same and worse than printed."""
    lines, verdicts = [], []
    for metric, (title, better) in module(results.name).TABLES.items():
        methods = results.methods(metric)
        if not methods:
            continue
        lines += [f"**{title}**", "", f"| | {' | '.join(methods)} |", "|---" * (len(methods) + 1) + "|"]
        for place in results.settings(metric):
            shown = []
            for method in methods:
                values = results.array(metric, *place, method)
                paper = printed(results.name, metric, *place, method)
                text = _number(values)
                if len(values) and paper:
                    verdicts.append(against_printed(results.name, better, values, paper))
                    text += f"<br>paper {paper[0]:g}" + (f" ({paper[1]:g})" if len(paper) > 1 else "")
                    text += f"<br>{verdicts[-1]}"
                shown.append(text)
            lines.append(f"| {' '.join(place)} | {' | '.join(shown)} |")
        lines.append("")
    return lines, [verdicts.count(verdict) for verdict in ("better", "same", "worse")]


def _number(values: Any) -> str:
    if not len(values):
        return ""
    digits = 0 if abs(values.mean()) >= 1000 else 2
    return f"{values.mean():.{digits}f}" + (f" ({values.std(ddof=1):.{digits}f})" if len(values) > 1 else "")


def _draw(results: Results, folder: Path) -> list[str]:
    figures = module(results.name).figures(results)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    suffix = "" if results.protocol == "held-out" else "-paper"
    for name, figure in figures.items():
        figure.savefig(folder / "figures" / f"{name}{suffix}.png", dpi=110)
    return [name + suffix for name in figures]


if __name__ == "__main__":
    print(write(Path(sys.argv[1] if len(sys.argv) > 1 else "rankrange-results")))
