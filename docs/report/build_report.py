"""Draw figures and tables of the technical report from recorded results, and make its PDF where WeasyPrint is at hand.

    python docs/report/build_report.py

The text is docs/report/index.md, which is also a page of the site. `make docs` runs this.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "_ext")]

import draw_benchmarks as bench  # noqa: E402
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from draw_benchmarks import BLUE, GREEN, GREY, ORANGE, column, grouped, runs_of, table  # noqa: E402

OUT = HERE / "generated"
STYLE = """
@page { size: A4; margin: 22mm 21mm 20mm; @bottom-center { content: counter(page); font: 9pt serif; color: #555; } }
body { font: 10pt/1.42 "DejaVu Serif", serif; color: #16181c; }
h1 { font-size: 19pt; line-height: 1.2; margin: 0 0 4pt; } h2 { font-size: 13.5pt; margin: 16pt 0 5pt; }
h3 { font-size: 11pt; margin: 11pt 0 3pt; } p { margin: 0 0 6pt; }
a { color: #1d5196; text-decoration: none; } code { font: 8.6pt "DejaVu Sans Mono", monospace; }
table { border-collapse: collapse; font-size: 8.4pt; margin: 6pt auto 9pt; page-break-inside: avoid; }
th, td { padding: 2pt 6pt; border-bottom: .4pt solid #bbb; text-align: left; } th { border-bottom: .9pt solid #333; }
img { max-width: 100%; display: block; margin: 5pt auto; } .formula-block { text-align: center; margin: 6pt 0; }
blockquote { margin: 0 12pt 8pt; font-size: 9.4pt; }
"""


def _save(figure: object, name: str) -> None:
    for axis in figure.axes:  # type: ignore[attr-defined]
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(OUT / f"{name}.png", dpi=150)  # type: ignore[attr-defined]
    plt.close(figure)


def cost() -> None:
    """Figure: what a fit costs, before and after the Newton solver."""
    figure, axis = plt.subplots(figsize=(6.6, 2.9), layout="constrained")
    for name, style in (("before", "--"), ("after", "-")):
        groups = grouped(runs_of(f"linear_suite_{name}"), lambda run: run["loss"])
        for loss, colour in (("logistic", BLUE), ("squared", ORANGE), ("hinge", GREEN)):
            ratio = np.sort(column(groups[loss], "ratio"))
            share = np.arange(1, len(ratio) + 1) / len(ratio)
            label = f"{loss}, now" if name == "after" else f"{loss}, before"
            axis.step(ratio, share, style, color=colour, lw=1.6, label=label, where="post")
    axis.set(xscale="log", xlabel="cost in ordinary fits", ylabel="share of problems")
    axis.legend(frameon=False, fontsize=8)
    _save(figure, "cost")


def degenerate() -> str:
    """Figure and table: both TKML losses minimised from the same start."""
    groups = grouped(runs_of("tkml_losses"), lambda run: int(run["k"]))
    ks = sorted(groups)
    mean = {name: [column(groups[k], name).mean() for k in ks] for name in runs_of("tkml_losses")[0] if "_" in name}
    figure, axis = plt.subplots(figsize=(6.6, 2.7), layout="constrained")
    axis.plot(ks, mean["accuracy_paper_start"], "o:", color=GREY, label="the start: one logistic regression per label")
    axis.plot(ks, mean["accuracy_paper_end"], "s-", color=ORANGE, label="printed loss, minimised")
    axis.plot(ks, mean["accuracy_two_sided_end"], "o-", color=BLUE, label="two-sided loss, minimised")
    axis.set(xlabel="k", ylabel="top-k accuracy, %", xticks=ks, ylim=(0, 90))
    axis.legend(frameon=False, fontsize=8)
    _save(figure, "degenerate")
    rows = [
        [
            str(k),
            f"{100 * column(groups[k], 'crowded').mean():.0f}%",
            f"{mean['F_paper_start'][i]:.2f} to {mean['F_paper_end'][i]:.2f}",
            f"{mean['accuracy_paper_start'][i]:.1f} to {mean['accuracy_paper_end'][i]:.1f}",
            f"{mean['F_two_sided_start'][i]:.2f} to {mean['F_two_sided_end'][i]:.2f}",
            f"{mean['accuracy_two_sided_start'][i]:.1f} to {mean['accuracy_two_sided_end'][i]:.1f}",
        ]
        for i, k in enumerate(ks)
    ]
    head = ["k", "rows with more than k labels", "printed: F", "accuracy", "two-sided: F", "accuracy"]
    return table(head, rows)


def descent() -> str:
    """Table: where the scheme that descends, quasi-Newton steps and Algorithm 3 end."""
    rows = []
    for (name, noise), group in sorted(grouped(runs_of("tkml_descent"), lambda r: (r["set"], r["noise"])).items()):
        values = [column(group, key).mean() for key in ("F_start", "F_algorithm_3", "F_auto", "F_dca")]
        rose = max(column(group, "auto_largest_rise").max(), column(group, "dca_largest_rise").max())
        rows.append([name, noise, *(f"{value:.3f}" for value in values), "none" if rose <= 0 else f"{rose:.1e}"])
    return table(
        ["set", "noise", "F at the start", "Algorithm 3", "auto", "separation", "largest rise of a step"], rows
    )


def regret() -> str:
    """Figure and table: accuracy lost against the m that clean labels would choose."""
    runs = runs_of("auto_tabular")
    kinds = grouped(runs, lambda r: "none" if float(r["rate"]) == 0 else f"{r['kind']} {float(r['rate']):g}")
    names, methods = sorted(kinds), {"LR": GREY, "LRCV": GREEN, "auto": ORANGE}
    figure, axis = plt.subplots(figsize=(6.6, 2.9), layout="constrained")
    rows = []
    for i, (method, colour) in enumerate(methods.items()):
        lost = [column(kinds[name], "clean").mean() - column(kinds[name], method).mean() for name in names]
        axis.bar(np.arange(len(names)) + 0.27 * (i - 1), lost, 0.25, color=colour, label=method)
    for name in names:
        cells = grouped(kinds[name], lambda run: run["set"])
        worst = [max(column(c, "clean").mean() - column(c, m).mean() for c in cells.values()) for m in methods]
        mean = [column(kinds[name], "clean").mean() - column(kinds[name], m).mean() for m in methods]
        rows.append([name, str(len(kinds[name])), *(f"{a:.1f}; {b:.1f}" for a, b in zip(mean, worst, strict=True))])
    axis.axhline(0, color="0.3", lw=0.8)
    axis.set(ylabel="points lost", ylim=(-4, 20))
    axis.set_xticks(range(len(names)), names, rotation=18, ha="right", fontsize=8)
    axis.legend(frameon=False, fontsize=8)
    _save(figure, "regret")
    return table(["wrong labels", "runs", "LR: mean; worst set", "LRCV", "auto"], rows)


def estimates() -> str:
    """Figure: the estimated share of wrong labels against the true one."""
    runs = [run for run in runs_of("auto_tabular") if run["kind"] != "far" and run.get("estimate")]
    figure, axis = plt.subplots(figsize=(6.6, 2.6), layout="constrained")
    colours = iter(plt.get_cmap("tab10").colors)
    covered = 0
    for name, group in grouped(runs, lambda run: run["set"]).items():
        wrong = column(group, "wrong") + np.random.default_rng(0).normal(scale=0.004, size=len(group))
        axis.plot(wrong, column(group, "estimate"), "o", ms=3, alpha=0.5, color=next(colours), label=name)
        inside = (column(group, "low") <= column(group, "wrong")) & (column(group, "wrong") <= column(group, "high"))
        covered += int(inside.sum())
    axis.plot([0, 0.32], [0, 0.32], color="0.3", lw=0.8)
    axis.set(xlabel="true share of wrong labels", ylabel="estimate")
    axis.legend(frameon=False, fontsize=7.5, ncols=2)
    _save(figure, "estimates")
    return f"The nominal 95% intervals held the true share in {100 * covered / len(runs):.0f}% of {len(runs)} runs.\n"


def claims() -> tuple[str, str]:
    """Tables: how many claims of the paper hold, and those that do not."""
    entries = json.loads((HERE.parent / "results" / "claims.json").read_text(encoding="utf-8"))
    entries = entries["claims"] if isinstance(entries, dict) else entries
    rows = []
    for experiment in dict.fromkeys(entry["experiment"] for entry in entries):
        found = Counter(entry["verdict"] for entry in entries if entry["experiment"] == experiment)
        rows.append([experiment, *(str(found[verdict]) for verdict in ("holds", "not decided", "does not hold"))])
    failed = [[e["experiment"], e["protocol"], e["text"]] for e in entries if e["verdict"] == "does not hold"]
    return table(["experiment", "hold", "not decided", "do not hold"], rows), table(
        ["experiment", "protocol", "claim"], failed
    )


def _plain(text: str) -> str:
    """The report as Markdown that any reader knows: includes filled in, roles as words."""

    def fill(match: re.Match[str]) -> str:
        return (HERE / match[1]).read_text(encoding="utf-8")

    text = re.sub(r"<!-- site only -->.*?<!-- end -->\n", "", text, flags=re.S)
    text = re.sub(r"```\{include\} (\S+)\n```", fill, text)
    return re.sub(r"\{doc\}`(?:\.\./)?([^`]+)`", r"*\1* of the site", text)


def write_pdf(text: str) -> bool:
    """The PDF, by WeasyPrint; False where that is not installed."""
    try:
        from weasyprint import HTML
    except (ImportError, OSError) as error:  # OSError: its libraries of the system are missing
        print(f"no PDF: WeasyPrint cannot be used here ({error})")
        return False
    from drawn_math import block, svg
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    markdown = MarkdownIt("commonmark").enable("table")
    markdown.use(
        dollarmath_plugin, renderer=lambda formula, options: (block if options["display_mode"] else svg)(formula)
    )
    body = markdown.render(_plain(text))
    page = f'<!doctype html><html lang="en"><title>rankrange: technical report</title><style>{STYLE}</style>{body}'
    HTML(string=page, base_url=str(HERE)).write_pdf(OUT / "rankrange-report.pdf")
    return True


def tables() -> dict[str, str]:
    """The tables and sentences of the report by name, as Markdown."""
    held, failed = claims()
    return {
        "degenerate": degenerate(),
        "descent": descent(),
        "regret": regret(),
        "estimates": estimates(),
        "claims": held,
        "failed": failed,
        "fits": bench.fits().table,
    }


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    cost()
    for name, content in tables().items():
        (OUT / f"{name}.txt").write_text(content, encoding="utf-8")
    made = write_pdf((HERE / "index.md").read_text(encoding="utf-8"))
    link = "{download}`This report as PDF <rankrange-report.pdf>`.\n" if made else "The PDF was not made here.\n"
    (OUT / "pdf.txt").write_text(link.replace("<rank", "<generated/rank"), encoding="utf-8")


if __name__ == "__main__":
    main()
