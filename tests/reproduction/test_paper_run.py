"""The reproduction: printed numbers, one rule for every verdict, the paper's settings, runs that can be resumed."""

import json

import numpy as np
import pytest

from rankrange import algorithms
from reproduction import compare, data, run
from reproduction.compare import FAILS, HOLDS, OPEN, Results, judge
from reproduction.experiments import NAMES, PROTOCOLS, Cell, Row, module

CLAIMS = compare.toml("claims.toml")["claim"]
PRINTED_TABLES = ("data", "binary", "mnist-symmetric", "multilabel", "mnist-asymmetric", "tkml-aorr")


def results(values):
    """Results of Table 3 on Monk from values by split; a method is of the logistic loss unless it says "@ setting"."""
    rows = []
    for name, found in values.items():
        method, _, setting = name.partition(" @ ")
        rows += [(split, (method, setting or "logistic", "error %", value)) for split, value in enumerate(found)]
    splits = sorted({split for split, _ in rows})
    records = [{"split": s, "rows": [row for split, row in rows if split == s]} for s in splits]
    return Results("binary", "held-out", [{"dataset": "monk", "part": "", **record} for record in records])


# ---- printed numbers and claims --------------------------------------------------------------------------------------


def test_every_number_of_the_tables_is_printed():
    def leaves(node):
        return 1 if isinstance(node, list) else sum(leaves(child) for child in node.values())

    counts = {name: leaves(tables) for name, tables in compare.toml("printed.toml").items()}
    assert counts == dict(zip(PRINTED_TABLES, (8, 50, 15, 54, 30, 60), strict=True))
    assert compare.printed("binary", "error %", "monk", "hinge", "AoRR") == [13.17, 2.13]
    assert compare.printed("multilabel", "AP %", "emotions", "all", "TKML") == [84.82]
    assert compare.printed("tkml-aorr", "top-k accuracy %", "yeast", "noise=0.3, k'=4", "TKML-AoRR") == [44.71, 2.11]
    assert compare.printed("binary", "error %", "monk", "hinge", "no such method") == []


LOWER, HIGHER = [-3.0, -2.9, -3.1], [3.0, 2.9, 3.1]
TWO_CELLS = {"one @ a": [-5.0, -5.1], "other @ a": [0.0, 0.0], "one @ b": [9.0, -9.0], "other @ b": [0.0, 0.0]}
NOISE = {"T @ 0.4": [9.0, 9.2], "S @ 0.4": [2.0, 2.1], "T @ 0.2": [5.0, 5.1], "S @ 0.2": [4.0, 4.0]}
# (9 - 2) - (5 - 4)
OF_NOISE = {"one": ["T @ {}", "S @ 0.2"], "other": ["S @ {}", "T @ 0.2"], "cells": [["monk", "0.4"]]}
PRINTED = {"one": "AoRR", "other": "printed", "below": "deviation"}  # 12.69 (2.34)
RANGE = {"one": "AoRR, m/k=*", "range": True, "below": 0}


def curve(*values):
    """A curve over m / k = .1, .2 and .5, which are not measured in this order."""
    found = dict(zip((0.1, 0.2, 0.5), values, strict=True))
    return {f"AoRR, m/k={m}": [found[m], found[m] + 0.1] for m in (0.1, 0.5, 0.2)}


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        ({"below": 0}, {"one": LOWER}, HOLDS),
        ({"above": 0}, {"one": LOWER}, FAILS),
        ({"below": 0}, {"one": HIGHER}, FAILS),
        ({"above": 0}, {"one": HIGHER}, HOLDS),
        ({"below": 0}, {"one": [-9.0, 9.0, 1.0]}, OPEN),
        ({"above": 0}, {"one": [-3.0]}, OPEN),
        ({"below": 0}, {"one": [0.0, 0.0]}, OPEN),
        ({"below": -2.0}, {"one": LOWER}, HOLDS),
        ({"below": -4.07}, {"one": LOWER}, FAILS),
        ({"below": 0}, TWO_CELLS, OPEN),
        ({"below": 0, "cells": [["monk", "a"]]}, TWO_CELLS, HOLDS),
        ({"below": 0, "cells": [["titanic", "a"]]}, TWO_CELLS, None),
        ({**OF_NOISE, "above": 5.5}, NOISE, HOLDS),
        ({**OF_NOISE, "above": 6.5}, NOISE, FAILS),
        (PRINTED, {"AoRR": [14.9, 14.91]}, HOLDS),
        (PRINTED, {"AoRR": [15.2, 15.21]}, FAILS),
        (RANGE, curve(-5.0, -5.0, 3.0), HOLDS),
        (RANGE, curve(-5.0, 3.0, -5.0), OPEN),
        (RANGE, curve(4.0, 3.0, 5.0), FAILS),
    ],
)
def test_a_claim_is_judged_by_two_standard_errors_beyond_its_bar_in_all_of_its_cells(claim, values, verdict):
    if not any(name.startswith("other") for name in values):
        values = {**values, "other": [0.0] * len(next(iter(values.values())))}
    judged = judge({"metric": "error %", "one": "one", "other": "other", **claim}, results(values))
    assert (judged and judged.verdict) == verdict


def test_printed_numbers_are_bars_with_their_deviation():
    assert compare.against_printed("binary", "lower", [9.0, 9.1], [12.69, 2.34]) == "better"
    assert compare.against_printed("binary", "higher", [9.0, 9.1], [12.69, 2.34]) == "worse"
    assert compare.against_printed("binary", "lower", [12.0, 13.1], [12.69, 2.34]) == "same"


def test_the_gains_that_the_text_names_are_claims():
    bars = {name: {c.get("above", c.get("below")) for c in CLAIMS if c["experiment"] == name} for name in NAMES}
    assert bars["binary"] >= {-4.07, -3.87}
    assert bars["mnist-symmetric"] >= {2.71, 3.53, 4.25}
    assert bars["multilabel"] >= {4.63, 2.16}
    assert bars["tkml-aorr"] >= {10}
    assert all("verdict" not in claim and ("above" in claim) != ("below" in claim) for claim in CLAIMS)


def test_figure_2_has_the_logarithm_to_base_2():
    losses = module("illustrations").individual_losses(np.array([0.0, -1.0]))
    np.testing.assert_allclose(losses["logistic"], [1.0, np.log2(1 + np.e)])
    np.testing.assert_allclose(module("illustrations").truncated(np.array([0.1, 0.7, 9.0])), [0.4, 0.7, 1.3])


# ---- the paper's settings, and choices without test rows -------------------------------------------------------------


class Reached(Exception):
    """The settings with which an algorithm was called."""


# A cell, its algorithm, and what the paper's table says: Tables 11 to 15 and 17.
SETTINGS = [
    ("toy", "toy_multimodal", "1 outliers", "dca", {"outer_steps": 100, "inner_steps": 1000}),
    ("binary", "monk", "logistic", "dca", {"outer_steps": 5, "inner_steps": 2000, "C": 1e4}),
    ("binary", "phoneme", "hinge", "dca", {"outer_steps": 10, "inner_steps": 500, "C": 1e4}),
    ("mnist-symmetric", "mnist", "noise=0.2", "dca_without_k_and_m", {"inner_steps": 5000, "step": 0.5}),
    ("mnist-symmetric", "mnist", "noise=0.2", "dca_without_k_and_m", {"warm_up_step": 0.4}),
    ("multilabel", "emotions", "all", "tkml", {"outer_steps": 20, "inner_steps": 1000, "step": 0.1, "C": 1e4}),
    ("tkml-aorr", "yeast", "noise=0.1", "tkml_aorr", {"steps": 1000, "step": 0.3}),
]


@pytest.mark.data
@pytest.mark.parametrize(("name", "dataset", "part", "algorithm", "expected"), SETTINGS)
def test_the_papers_protocol_runs_its_algorithms_with_its_settings(
    name, dataset, part, algorithm, expected, monkeypatch
):
    def reached(*_, **settings):
        raise Reached({key: settings[key] for key in expected})

    monkeypatch.setattr(algorithms, algorithm, reached)
    with pytest.raises(Reached) as found:
        module(name).run(Cell(name, "paper", dataset, part, 0))
    assert found.value.args[0] == expected


def test_table_16_has_its_steps():
    experiment = module("mnist-asymmetric")
    assert (experiment.OUTER, experiment.INNER, experiment.RATE) == ({0.2: 27, 0.3: 25, 0.4: 21}, 2000, 0.1)


@pytest.mark.parametrize(
    ("name", "dataset", "part"),
    [("binary", "monk", "hinge"), pytest.param("tkml-aorr", "yeast", "noise=0.2", marks=pytest.mark.data)],
)
@pytest.mark.filterwarnings("ignore")
def test_no_choice_of_the_held_out_protocol_sees_test_labels(name, dataset, part, monkeypatch):
    cell = Cell(name, "held-out", dataset, part, 0, quick=True)
    parts = [
        (X[:150, :20], y[:150])
        for X, y in data.split(dataset, 0, (0.8, 0.2) if dataset == "yeast" else (0.5, 0.25, 0.25))
    ]
    chosen = []
    for seed in (None, 0):
        *others, (X, y) = parts
        labels = y if seed is None else np.random.default_rng(seed).permutation(y)
        monkeypatch.setattr(data, "split", lambda *_, parts=[*others, (X, labels)], **__: parts)
        chosen.append(module(name).run(cell)[1]["chosen"])
    assert chosen[0] == chosen[1]


def test_ties_go_to_the_simpler_model_and_all_candidates_are_one_subset():
    binary = module("binary")
    candidates = [binary.Candidate({"m": m}, 5.0, 10.0 + m, (m, 0.0, 0.0)) for m in (3, 1, 2)] * 2
    assert binary.choose(candidates).settings == {"m": 1}
    (row,) = binary._equal_choices(Cell("binary", "held-out", "monk", "hinge", 0), {"AoRR": candidates})
    assert row.value == 11.0


# ---- runs ------------------------------------------------------------------------------------------------------------


def quick(out, *arguments):
    return run.main([*arguments, "--quick", "--jobs", "1", "--out", str(out)])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("small", [True, False])
def test_cells_have_files_of_their_own(name, protocol, small):
    cells = module(name).cells(protocol, small)
    assert len({cell.file for cell in cells}) == len(cells)
    assert all((cell.experiment, cell.protocol, cell.quick) == (name, protocol, small) for cell in cells)
    assert {cell.dataset for cell in cells} <= set(module(name).NEEDS)


def test_a_run_continues_where_it_stopped_and_writes_the_page(tmp_path, capsys):
    assert quick(tmp_path, "binary", "--sets", "monk", "--splits", "1") == 0
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "paper 12.69 (2.34)" in page
    assert "| monk | 432 | 6 | larger class / smaller | 1.12 | 1.12 |" in page
    assert "does not hold" in page or "open" in page
    assert all((tmp_path / "figures" / f"{name}.png").stat().st_size for name in ("figure-2", "figure-7"))
    files = sorted(tmp_path.glob("binary/*/*.json"))
    before = {path: json.loads(path.read_text(encoding="utf-8")) for path in files}
    files[0].unlink()
    assert quick(tmp_path, "binary", "--sets", "monk", "--splits", "1") == 0
    assert f"{len(files) - 1} finished" in capsys.readouterr().err
    after = json.loads(files[0].read_text(encoding="utf-8"))
    assert after["rows"] == before[files[0]]["rows"]
    assert {"seed", "commit", "seconds"} <= after.keys()


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    def one_number(cell):
        return [Row("AoRR", "logistic", "error %", 1 / (cell.part != "5 outliers"))], {"points": {}}

    monkeypatch.setattr(module("toy"), "run", one_number)
    assert quick(tmp_path, "toy", "--protocol", "held-out", "--splits", "1") == 1
    assert "failed: ZeroDivisionError" in capsys.readouterr().err
    assert len(list(tmp_path.glob("toy/held-out/*.json"))) == 4


def test_missing_data_are_named_and_the_rest_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RANKRANGE_DATA", str(tmp_path / "nowhere"))
    assert quick(tmp_path, "multilabel", "illustrations") == 1
    assert "emotions.csv.gz" in capsys.readouterr().err
    assert (tmp_path / "figures" / "figure-4.png").exists()


@pytest.mark.slow
@pytest.mark.data
def test_a_quick_run_judges_claims_of_every_experiment(tmp_path):
    assert quick(tmp_path) == 0
    measured = compare.read(tmp_path)
    assert {(r.name, r.protocol) for r in measured} == {(n, p) for n in NAMES[1:] for p in PROTOCOLS}
    for found in measured:
        assert [claim for claim in compare.claims_of(found) if judge(claim, found)]
        assert set(module(found.name).TABLES) & {key[0] for key in found.table}
