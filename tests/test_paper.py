"""The reproduction of the paper: its numbers, its cells, its protocols, and pages that say what the cells say."""

import contextlib
import io
import json
import math
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from rankrange.errors import UserError
from rankrange.paper import EXPERIMENTS, experiment
from rankrange.paper.experiments import binary, iterates
from rankrange.paper.harness import command
from rankrange.paper.harness import tables_page as pages
from rankrange.paper.harness.candidates import Candidate, Grid, choose
from rankrange.paper.harness.cells import (
    PROTOCOLS,
    Cell,
    Measure,
    Outcome,
    Plan,
    Results,
    TableSpec,
    decided,
    splits_needed,
    splits_to_decide,
)
from rankrange.paper.harness.printed import Row, expected, moved, printed, rows_of
from rankrange.paper.harness.publish import write_pages
from rankrange.paper.harness.runner import run_cells
from rankrange.paper.harness.split import Part, Split
from rankrange.paper.harness.store import Store, commit, versions

ROOT = Path(__file__).parent.parent
MADE = ("monk", "titanic", "toy_multimodal", "toy_imbalanced")  # data sets that need no folder


def reproduce(*arguments):
    import argparse

    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(a) for a in arguments]))


def quietly(text):
    pass


# --- the paper's numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "mean_and_deviation"),
    [
        (("binary", "error %", "monk", "logistic", "AoRR"), (12.69, 2.34)),
        (("binary", "error %", "australian", "hinge", "AT_k"), (12.51, 4.03)),
        (("binary", "error %", "splice", "hinge", "Robust_Max"), (22.82, 2.63)),
        (("mnist-symmetric", "accuracy %", "mnist", "noise=0.4", "AoRR"), (91.87, 0.11)),
        (("multilabel", "top-k accuracy %", "scene", "k=3", "TKML"), (88.92, 1.47)),
        (("multilabel", "AP %", "emotions", "all", "TKML"), (84.82, None)),
        (("mnist-asymmetric", "top-1 accuracy %", "mnist", "noise=0.4", "TKML"), (75.0, 1.15)),
        (("tkml-aorr", "top-k accuracy %", "yeast", "noise=0.3, k'=4", "TKML-AoRR"), (44.71, 2.11)),
        (("binary", "error %", "monk", "logistic", "nobody"), (None, None)),
    ],
)
def test_expected_numbers_are_the_printed_ones(where, mean_and_deviation):
    assert printed(*where) == mean_and_deviation


def test_every_cell_of_every_table_is_expected():
    """Tables 3, 4, 5, 7, 8, 9 and 10 have 50, 9, 6, 45, 9, 30 and 60 numbers."""

    def count(found):
        return 1 if isinstance(found, list) else sum(map(count, found.values()))

    assert count(expected()) == 50 + 9 + 6 + 45 + 9 + 30 + 60
    assert set(expected()) <= set(EXPERIMENTS)


# --- plans ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("size", ["full", "quick", "smoke"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cells_have_names_of_their_own_and_belong_to_their_plan(name, size, protocol):
    module = experiment(name)
    cells = module.cells(Plan(protocol, size))
    assert len({cell.key for cell in cells}) == len(cells)
    assert all((cell.experiment, cell.protocol, cell.size) == (name, protocol, size) for cell in cells)
    assert {cell.dataset for cell in cells} <= set(module.NEEDS)
    assert name == module.NAME
    assert all(re.fullmatch(r"[\w.=-]+", cell.key) for cell in cells)


def test_grid_is_the_papers():
    """k in {1} and 10%..100% of n, m in [1, k)."""
    grid = Grid()
    assert sorted(grid.ks(200)) == [1, *range(20, 201, 20)]
    assert all(1 <= m < k for k in grid.ks(200) for m in grid.ms(k))
    assert all(1 in grid.ms(k) for k in grid.ks(200) if k > 1)


def test_ties_go_to_the_simpler_model():
    settings = [(5, 100, 10.0), (3, 100, 1e5), (3, 150, 1e5), (3, 150, 1e1), (1, 10, 1.0)]
    candidates = [Candidate({"m": m, "k": k, "C": C}, [10.0, 0.0]) for m, k, C in settings]
    candidates[-1].errors[0] = 11.0
    assert choose(candidates).settings == {"m": 3, "k": 150, "C": 1e1}


# --- the store and the runner -----------------------------------------------------------------------------------------


CELL = Cell("toy", "toy_multimodal", "1 outliers", 0, "honest", "smoke")


def test_a_cell_comes_back_as_it_was_written(tmp_path):
    store = Store(tmp_path / "run")
    store.open("smoke", resume=False)
    outcome = Outcome([Measure("AoRR", "logistic", "error %", 1.25)], {"points": [[1, 2.5], ["a", None]]})
    assert store.read(CELL) is None
    store.write(CELL, outcome, 1.0, 0.5)
    assert store.read(CELL) == outcome
    entry = json.loads(store.path(CELL).read_text())
    assert entry["seed"] == 1000
    assert entry["versions"] == versions()
    assert (entry["protocol"], entry["size"], entry["seconds"]) == ("honest", "smoke", 1.0)


def test_a_damaged_cell_is_done_again_and_an_infinite_number_is_an_error(tmp_path):
    store = Store(tmp_path)
    store.open("smoke", resume=False)
    store.path(CELL).write_text('{"cell": {"exp')
    assert store.read(CELL) is None
    with pytest.raises(ValueError, match="Out of range"):
        store.write(CELL, Outcome([Measure("a", "b", "c", float("inf"))]), 1.0, 1.0)
    assert not list(store.cells.glob("*.tmp"))


def test_a_folder_with_files_is_an_error_unless_the_run_goes_on(tmp_path):
    store = Store(tmp_path)
    store.open("smoke", resume=False)
    with pytest.raises(UserError, match="add --resume"):
        store.open("smoke", resume=False)
    store.open("smoke", resume=True)
    with pytest.raises(UserError, match="size 'smoke' in the folder and 'full' now"):
        store.open("full", resume=True)


def test_a_run_goes_on_only_with_the_same_versions(tmp_path):
    store = Store(tmp_path)
    store.open("smoke", resume=False)
    store.write(CELL, Outcome([]), 1.0, 1.0)
    for path in (tmp_path / "run.json", store.path(CELL)):
        path.write_text(path.read_text().replace(f'"numpy": "{versions()["numpy"]}"', '"numpy": "0.9"'))
    with pytest.raises(UserError, match=r"numpy 0\.9 in the folder"):
        store.open("smoke", resume=True)
    with pytest.raises(UserError, match=r"numpy 0\.9 in the folder"):
        store.read(CELL)


def without_times(folder):
    """All cells of a run folder, less how long they took."""
    found = {path.name: json.loads(path.read_text()) for path in (folder / "cells").glob("*.json")}
    return {name: {k: v for k, v in entry.items() if "seconds" not in k} for name, entry in found.items()}


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_that_was_killed_goes_on_to_the_same_numbers(tmp_path, jobs):
    """kill -9 after some cells, then --resume: all cells equal those of an uninterrupted run, and none is run twice."""
    script = (
        "import argparse, sys; from rankrange.paper.harness import command\n"
        "if __name__ == '__main__':\n"
        "    parser = argparse.ArgumentParser(); command.add_arguments(parser)\n"
        "    sys.exit(command.run(parser.parse_args()))\n"
    )
    (tmp_path / "go.py").write_text(script)
    start = [sys.executable, str(tmp_path / "go.py"), "m-sweep", "--smoke", "--out"]
    killed = subprocess.Popen([*start, str(tmp_path / "killed"), "--jobs", str(jobs)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed").glob("cells/*.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    early = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed" / "cells").glob("*.json")}
    assert early
    assert reproduce("m-sweep", "--smoke", "--out", tmp_path / "killed", "--jobs", 1, "--resume") == 0
    assert reproduce("m-sweep", "--smoke", "--out", tmp_path / "whole", "--jobs", 1) == 0
    assert without_times(tmp_path / "killed") == without_times(tmp_path / "whole")
    assert all((tmp_path / "killed" / "cells" / name).stat().st_mtime_ns == t for name, t in early.items())
    for name in ("results.json", "claims.json"):
        resumed, whole = (json.loads((tmp_path / run / name).read_bytes()) for run in ("killed", "whole"))
        if name == "results.json":
            assert resumed.pop("work")  # core seconds are never the same
            assert whole.pop("work")
        assert resumed == whole


def test_one_cell_that_fails_does_not_stop_the_others(tmp_path):
    store = Store(tmp_path)
    store.open("smoke", resume=False)
    impossible, later = replace(CELL, part="no outliers at all"), replace(CELL, split=1)
    failures = run_cells([impossible, later], store, progress=quietly)
    assert [f.cell for f in failures] == [impossible]
    assert "ValueError: invalid literal" in failures[0].reason
    assert [cell for cell, *_ in store.finished()] == [later]


class Interrupting(io.StringIO):
    """A standard error that sends a signal to this process when the first line is written."""

    def __init__(self, number):
        super().__init__()
        self.number = number

    def write(self, text):
        number, self.number = self.number, None
        if number is not None:
            signal.raise_signal(number)
        return super().write(text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_or_a_termination_leaves_what_is_finished_and_says_how_to_go_on(tmp_path, number):
    before = signal.getsignal(signal.SIGTERM)
    of_interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores them
    try:
        with contextlib.redirect_stderr(Interrupting(number)) as said:
            assert reproduce("toy", "--smoke", "--out", tmp_path / "run", "--jobs", 1) == 130
    finally:
        signal.signal(signal.SIGINT, of_interrupts)
    assert "--resume" in said.getvalue()
    assert signal.getsignal(signal.SIGTERM) == before


# --- data -------------------------------------------------------------------------------------------------------------


def test_without_the_data_what_is_missing_is_listed_and_the_rest_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RANKRANGE_DATA", str(tmp_path))
    names = ("binary", "mnist-asymmetric", "multilabel")
    assert reproduce(*names, "--smoke", "--out", tmp_path / "run", "--jobs", 1) == 1
    said = capsys.readouterr().err
    missing = {"mnist-asymmetric": "mnist", "multilabel": "emotions"}
    for name, data in missing.items():
        assert f"  {data}, needed by {name}" in said
    assert said.count("RANKRANGE_DATA") == 1  # one sentence for all
    assert "--download" in said
    assert "download=" not in said  # that is how Python asks, not the command line
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert {row["dataset"] for row in rows} == {"monk"}
    assert "Not in this run: binary: australian, phoneme" in (tmp_path / "run" / "results.md").read_text()


def test_with_no_data_at_all_nothing_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RANKRANGE_DATA", str(tmp_path))
    assert reproduce("mnist-asymmetric", "--smoke", "--out", tmp_path / "run", "--jobs", 1) == 2
    assert "nothing can be run" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_list_says_what_there_is(capsys):
    assert reproduce("--list") == 0
    said = capsys.readouterr().out
    assert all(name in said for name in EXPERIMENTS)


def test_an_unknown_experiment_is_named_with_those_that_exist(tmp_path, capsys):
    assert reproduce("bynary", "--out", tmp_path / "run") == 2
    assert "'bynary'" in capsys.readouterr().err


# --- rows, claims and pages -------------------------------------------------------------------------------------------


def finished(value, *, split, protocol="honest", method="AoRR"):
    cell = Cell("binary", "monk", "logistic", split, protocol, "smoke")
    return cell, Outcome([Measure(method, "logistic", "error %", value)])


def test_protocols_are_never_mixed_in_a_row():
    cells = [finished(10.0 + s, split=s) for s in range(3)] + [finished(5.0, split=s, protocol="paper") for s in (0, 1)]
    rows = rows_of(cells)
    assert [(row.protocol, row.mean, row.n) for row in rows] == [("honest", 11.0, 3), ("paper", 5.0, 2)]


def test_a_row_has_the_agreed_keys_and_the_definition_of_mean_and_deviation():
    row = rows_of([finished(10.0, split=0), finished(13.0, split=1)])[0]
    names = "experiment dataset method setting metric protocol paper_mean paper_sd mean sd n verdict"
    assert " ".join(asdict(row)) == names
    assert (row.mean, row.sd, row.paper_mean, row.paper_sd) == (11.5, pytest.approx(4.5**0.5), 12.69, 2.34)
    assert row.units == pytest.approx((11.5 - 12.69) / (4.5 + 2.34**2) ** 0.5)
    assert row.verdict == "same"


@pytest.mark.parametrize(
    ("values", "verdict", "reached"),
    [((9.0, 9.1), "better", True), ((13.0, 13.2), "same", True), ((16.0, 16.1), "worse", False)],
)
def test_a_verdict_looks_the_way_of_the_metric(values, verdict, reached):
    row = rows_of([finished(v, split=s) for s, v in enumerate(values)])[0]
    assert (row.verdict, row.reached(higher_is_better=False)) == (verdict, reached)


def test_differences_are_paired_over_splits():
    cells = [finished(v, split=s) for s, v in enumerate((1.0, 5.0, 9.0))]
    cells += [finished(v, split=s, method="Average") for s, v in enumerate((2.0, 6.0, 10.5))]
    difference, error, n = Results(cells).paired("monk", "AoRR", "Average", "logistic", "error %")
    assert (difference, n) == (pytest.approx(-3.5 / 3), 3)
    assert error == pytest.approx((((1 / 6) ** 2 * 2 + (1 / 3) ** 2) / 2 / 3) ** 0.5)
    assert decided(difference, error) == "holds"
    assert decided(-difference, error) == "does not hold"
    assert decided(0.1, 1.0) == "not decided"


def test_that_many_splits_decide_a_difference_in_four_of_five_runs():
    """Drawn: differences of mean 0.5 and deviation 2, over as many splits as the rule asks for."""
    rng = np.random.default_rng(0)
    n = splits_to_decide(0.5, 2.0 / 10**0.5, 10)
    assert n == math.ceil((2.84 * 2.0 / 0.5) ** 2)
    runs = rng.normal(0.5, 2.0, (4000, int(n)))
    errors = runs.std(axis=1, ddof=1) / n**0.5
    won = [decided(-mean, error) == "holds" for mean, error in zip(runs.mean(axis=1), errors, strict=True)]
    assert np.mean(won) == pytest.approx(0.8, abs=0.03)
    assert splits_to_decide(12.0, 2.0, 10, bar=10.0) == splits_to_decide(-2.0, 2.0, 10)
    assert splits_to_decide(0.0, 0.0, 10) == math.inf


def test_what_is_open_says_how_many_splits_it_would_take():
    text = splits_needed({"one": (1.0, 0.1, 10), "two": (0.1, 0.1, 10), "three": (0.0, 0.0, 10)})
    assert "one" not in text
    assert "two 81;" in text
    assert "three above 100,000" in text
    assert splits_needed({"one": (1.0, 0.1, 10), "alone": (1.0, math.nan, 1)}) == ""


def test_results_name_the_commit_of_every_cell(tmp_path):
    store = Store(tmp_path)
    store.open("smoke", resume=False)
    made = finished(1.0, split=0)
    store.write(*made, 1.0, 1.0)
    here = commit()
    assert store.commits() == {"binary (honest)": [here or "unknown"]}
    assert pages.as_record(pages.build(store))["commits"] == store.commits()


def test_a_table_has_its_lines_and_columns():
    rows = rows_of([finished(v, split=0, method=m) for m, v in (("AoRR", 1.0), ("Average", 2.0), ("secret", 3.0))])
    spec = TableSpec("t", "error %", ("dataset",), "method", False, methods=("Average", "AoRR"))
    table = pages.table_of(spec, rows)
    assert table.head == ["dataset", "Average", "AoRR"]
    assert [(line, [row.mean for row in found]) for line, found in table.body] == [(["monk"], [2.0, 1.0])]


def row_of(value, sd, method="AoRR", n=10):
    return Row("binary", "monk", method, "logistic", "error %", "honest", None, None, value, sd, n, "not printed")


def test_runs_are_compared_beyond_the_noise_of_their_splits():
    """Two standard errors of the difference of two means of 10 splits with deviation 1 are 2 sqrt(2/10) = 0.894."""
    before = [row_of(10.0, 1.0), row_of(5.0, 1.0, "Average"), row_of(1.0, 0.0, "exact"), row_of(2.0, 1.0, "gone")]
    after = [row_of(10.89, 1.0), row_of(5.9, 1.0, "Average"), row_of(1.0, 0.0, "exact"), row_of(3.0, 1.0, "new")]
    assert [(move.key[2], move.before, move.after) for move in moved(before, after)] == [
        ("Average", 5.0, 5.9),
        ("gone", 2.0, None),
        ("new", None, 3.0),
    ]
    assert moved(before, before) == []


def test_a_comparison_reads_both_formats_and_refuses_others(tmp_path, capsys):
    store = Store(tmp_path / "run")
    store.open("smoke", resume=False)
    store.write(*finished(12.0, split=0), 1.0, 1.0)
    write_pages(store, tmp_path / "run")
    new = json.loads((tmp_path / "run" / "results.json").read_text())
    assert new["format"] == pages.FORMAT
    assert new["versions"] == versions()
    (tmp_path / "old.json").write_text(json.dumps([{**row, "mean": 11.0} for row in new["rows"]]))
    reproduce("--pages-only", "--out", tmp_path / "run", "--compare", tmp_path / "old.json")
    said = capsys.readouterr().out
    assert "11 -> 12" in said
    assert "1 of 1 numbers differ" in said
    reproduce("--pages-only", "--out", tmp_path / "run", "--compare", tmp_path / "run" / "results.json")
    assert "0 of 1 numbers differ" in capsys.readouterr().out
    (tmp_path / "bad.json").write_text("{}")
    assert reproduce("--pages-only", "--out", tmp_path / "run", "--compare", tmp_path / "bad.json") == 2


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_steps_of_algorithm_1_follow_the_ranked_range(loss):
    """One inner step at the outer point moves against the gradient of the ranked range itself."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 2)), rng.integers(0, 2, 30)
    split = Split(*(Part(X, y) for _ in range(3)))
    w = iterates.Descent(4, 20, start="random").first(3)

    def value(w):
        s = iterates.losses_and_slopes(loss, 2.0 * y - 1.0, (np.c_[X, np.ones(30)] @ w)[:, None])[0][:, 0]
        return np.sort(s)[::-1][4:20].mean() + w @ w / 2e4

    slope = np.array([(value(w + e) - value(w - e)) / 2e-6 for e in 1e-6 * np.eye(3)])
    moved_to = w - 0.01 * slope
    expected_error = 100 * np.mean((np.c_[X, np.ones(30)] @ moved_to > 0) != (y > 0))
    trace = iterates.follow([iterates.Descent(4, 20, start="random")], split, loss, 1, 1)[0]
    assert trace.last == pytest.approx(expected_error)
    s, slopes = iterates.losses_and_slopes(loss, 2.0 * y - 1.0, (np.c_[X, np.ones(30)] @ w)[:, None])
    weights = (iterates.top_weights(s[:, 0], 20) - iterates.top_weights(s[:, 0], 4)) / 16
    np.testing.assert_allclose(np.c_[X, np.ones(30)].T @ (slopes[:, 0] * weights) + w / 1e4, slope, atol=1e-6)


def test_choices_among_equal_numbers_of_candidates_are_means_over_subsets():
    """Where the subset is the whole grid, the choice is that of the whole grid."""
    candidates = [Candidate({"C": float(i)}, [float(i), 10.0 * i]) for i in range(6)]
    found = dict.fromkeys(binary.METHODS, candidates)
    measures = binary._equal_choices(Cell("binary", "monk", "logistic", 0), found)
    assert {measure.method for measure in measures} == {f"{method} of 6" for method in binary.METHODS}
    assert all(measure.value == 0.0 for measure in measures)


def smokes():
    """Experiments and the protocols in which they have cells; they need the folder unless their data are made here."""
    for name in EXPERIMENTS:
        for protocol, marks in (("honest", []), ("paper", [pytest.mark.slow])):
            needs = {cell.dataset for cell in experiment(name).cells(Plan(protocol, "smoke"))}
            if needs and name != "illustrations":
                more = [] if needs <= set(MADE) else [pytest.mark.data]
                yield pytest.param(name, protocol, marks=[*marks, *more])


@pytest.mark.parametrize(("name", "protocol"), list(smokes()))
def test_smoke_of_each_experiment(name, protocol, tmp_path):
    """Every cell runs, the rows fill their tables, and the pages hold every table and figure."""
    cells = experiment(name).cells(Plan(protocol, "smoke"))
    store = Store(tmp_path)
    store.open("smoke", resume=False)
    assert run_cells(cells, store, progress=quietly) == []
    report = write_pages(store, tmp_path)
    assert {row.protocol for row in report.rows} == {protocol}
    text, html = ((tmp_path / f"results.{end}").read_text() for end in ("md", "html"))
    figures = list((tmp_path / "figures").glob("*.png"))
    assert f", {protocol} protocol" in text
    assert len(figures) >= 1
    assert all(f"figures/{figure.name}" in text for figure in figures)
    assert html.count("data:image/png") == len(figures)
    for spec in experiment(name).TABLES:
        # Our own tables are about choices that see no test row.
        assert spec.title in text or (protocol == "paper" and spec.title.startswith("Ours"))
    assert "need all of its cells" not in text


def test_earlier_pages_hold_the_place_of_what_is_not_whole(tmp_path):
    """An experiment of two cells: with one of them finished the earlier number stays, with both the new one stands."""

    def wrote(store, value, parts):
        for part in parts:
            cell = Cell("binary", "monk", part, 0, "honest", "smoke")
            store.write(cell, Outcome([Measure("AoRR", part, "error %", value)]), 1.0, 1.0)

    before, after = Store(tmp_path / "before"), Store(tmp_path / "after")
    for store in (before, after):
        store.open("smoke", resume=False)
    wrote(before, 1.0, ("logistic", "hinge"))
    write_pages(before, tmp_path / "pages")
    earlier = pages.earlier(tmp_path / "pages")
    earlier_figures = earlier.pictures["binary", "honest"]
    wrote(after, 2.0, ("logistic",))
    half = write_pages(after, tmp_path / "new", keep=tmp_path / "pages")
    assert {row.mean for row in half.rows} == {1.0}
    assert half.pictures["binary", "honest"] == earlier_figures
    wrote(after, 2.0, ("hinge",))
    assert {row.mean for row in write_pages(after, tmp_path / "new", keep=tmp_path / "pages").rows} == {2.0}
    (tmp_path / "pages" / "results.json").write_text(json.dumps({"format": 2, "rows": []}))
    with pytest.raises(UserError, match="pages to keep need"):
        pages.earlier(tmp_path / "pages")


def test_pages_of_nothing_are_an_error(tmp_path):
    with pytest.raises(UserError, match="at least one finished cell"):
        write_pages(Store(tmp_path), tmp_path)


def test_the_page_of_the_paper_shows_what_the_committed_results_give():
    text = (ROOT / "docs" / "paper-section.md").read_text(encoding="utf-8")
    assert pages.with_summary(text, ROOT / "docs" / "results") == text


def test_committed_results_are_whole():
    """Every printed number has a row of the honest protocol, and the page names every figure."""
    rows = pages.read_record(ROOT / "docs/results/results.json")
    there = {(r.experiment, r.metric, r.dataset, r.setting, r.method) for r in rows if r.protocol == "honest"}
    for name, metrics in expected().items():
        for metric, datasets in metrics.items():
            for dataset, settings in datasets.items():
                for setting, methods in settings.items():
                    for method in methods:
                        assert (name, metric, dataset, setting, method) in there
    page = (ROOT / "docs/results/results.md").read_text(encoding="utf-8")
    for figure in (ROOT / "docs/results/figures").glob("*.png"):
        assert f"figures/{figure.name}" in page
