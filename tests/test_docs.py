"""docs/paper.md names only what exists, and says so where nothing does yet; the examples of the guides run."""

import ast
import contextlib
import importlib.util
import io
import os
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification

from rankrange import noise

ROOT = Path(__file__).parent.parent
PAPER = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


@cache
def functions_in(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/\w+\.py::\w+)`", PAPER))))
def test_every_test_named_exists(name):
    file, _, function = name.partition("::")
    assert function in functions_in(file)


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(rankrange(?:\.\w+)+)`", PAPER))))
def test_every_function_named_exists(name):
    if name.startswith("rankrange.torch"):
        pytest.importorskip("torch")
    package, *parts = name.split(".")
    found = importlib.import_module(package)
    for part in parts:
        found = getattr(found, part)
    assert callable(found)


def test_every_row_names_something_or_says_that_it_is_not_built_yet():
    rows = [line for line in PAPER.splitlines() if line.startswith("| ") and not line.startswith("| part")]
    assert len(rows) > 45
    for row in rows:
        held_by = row.strip("| ").split(" | ")[-1]
        assert "`" in held_by or "not built yet" in held_by or "above" in held_by, row


def test_the_items_are_numbered_without_a_gap_and_all_references_lead_to_one():
    items = [int(number) for number in re.findall(r"^(\d+)\. \*\*", PAPER, re.M)]
    assert items == list(range(1, len(items) + 1))
    referred = {int(n) for found in re.findall(r"items? (\d+)(?: and (\d+))?", PAPER) for n in found if n}
    assert referred <= set(items)
    pages = [*ROOT.glob("src/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    for page in pages:
        assert {int(n) for n in re.findall(r"paper\.md\)?, item (\d+)", page.read_text(encoding="utf-8"))} <= set(items)


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", ["start/sklearn.md", "start/networks.md", "how-to/datasets.md"])
def test_the_examples_of_a_first_page_run_and_print_what_they_say(page):
    """One after the other. `# ~> numbers` is about, `# -> text` to the letter; other lines print what they like."""
    if page == "start/networks.md":
        pytest.importorskip("torch")
    names = {}
    assert blocks(page)
    for block in blocks(page):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(block, page, "exec"), names)
        printed = output.getvalue().splitlines()
        for kind, expected in re.findall(r"# ([-~])> (.*)$", block, re.M):
            line = printed[-1]  # the promise stands at the end of a block
            if kind == "-":
                assert line == expected
            else:
                assert [float(v) for v in line.split()] == pytest.approx([float(v) for v in expected.split()], abs=0.03)


def of_seed(block, seed):
    return block.replace("random_state=0", f"random_state={seed}").replace("manual_seed(0)", f"manual_seed({seed})")


def gains_of(seed):
    """What the first page for users of scikit-learn compares: accuracies of the ordinary and of the robust models."""
    names, linear, _, _, trees = {}, *blocks("start/sklearn.md")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(of_seed(linear, seed), names)
        exec(of_seed(trees, seed), names)
    models = ((names["plain"], names["robust"]), (names["trees"], names["wrapped"]))
    return [[model.score(names["X_test"], names["y_test"]) for model in pair] for pair in models]


def test_the_robust_models_of_the_first_page_do_better():
    """About the numbers printed there would allow the order to be wrong."""
    for ordinary, robust in gains_of(0):
        assert robust > ordinary + 0.02


@pytest.mark.slow
def test_the_gain_of_the_first_page_is_no_luck():
    of_seeds = np.array([gains_of(seed) for seed in range(10)])
    assert ((of_seeds[:, :, 1] > of_seeds[:, :, 0]).sum(axis=0) >= 9).all()
    means = of_seeds.mean(axis=0)
    assert means[0] == pytest.approx([0.88, 0.96], abs=0.01)  # as the page says


def test_the_robust_loss_of_the_first_page_does_better_than_the_one_it_replaces():
    torch = pytest.importorskip("torch")
    block = blocks("start/networks.md")[0]
    assert "# was: nn.CrossEntropyLoss()" in block
    old = re.sub(r"criterion = .*# was: (.*)$", r"criterion = \1", block, flags=re.M)
    right = []
    for code in (block, old):
        names = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "networks.md", "exec"), names)
        right.append((names["net"](names["X"]).argmax(1) == names["y"]).to(torch.float64).mean().item())
    assert right[0] > right[1]


def rows_with_errors():
    """What the guides call X and y, and rows that are known to be right."""
    X, y = make_classification(200, 30, n_informative=10, random_state=0)
    return {"X": X[:150], "y": noise.symmetric(y[:150], 0.1, random_state=0), "X_clean": X[150:], "y_clean": y[150:]}


@pytest.mark.parametrize("page", ["how-to/choose_m.md", "explanation/solvers.md"])
def test_the_examples_of_a_guide_run(page, monkeypatch):
    """One after the other, as a reader would type them, on few rows; the clean ones are made here."""
    names = rows_with_errors()
    monkeypatch.setattr("sklearn.datasets.load_breast_cancer", lambda return_X_y: (names["X"], names["y"]))
    assert blocks(page)
    for block in blocks(page):
        exec(compile(block, page, "exec"), names)


@pytest.mark.data
def test_the_examples_of_the_multi_label_guide_run():
    if not os.environ.get("RANKRANGE_DATA"):
        pytest.skip("needs the folder named by RANKRANGE_DATA")
    for block in blocks("how-to/multilabel.md"):
        exec(compile(block, "how-to/multilabel.md", "exec"), {})


def test_the_examples_of_the_audit_guide_run(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    rows, columns = rows_with_errors(), [f"x{i}" for i in range(30)]
    lines = [
        ",".join([*(f"{value:.4f}" for value in x), "sick" if y else "well"])
        for x, y in zip(rows["X"], rows["y"], strict=True)
    ]
    (tmp_path / "patients.csv").write_text("\n".join([",".join([*columns, "diagnosis"]), *lines]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    new = {name: rows["X_clean"][:, i] for i, name in enumerate(columns)}
    for block in blocks("how-to/audit.md"):
        exec(compile(block, "how-to/audit.md", "exec"), {"new_table": new})


@pytest.fixture(scope="module")
def benchmark_page():
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("draw_benchmarks", ROOT / "docs" / "draw_benchmarks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "part", re.findall(r"generated/(\w+)\.txt", (ROOT / "docs/benchmarks/index.md").read_text("utf-8"))
)
def test_every_table_of_the_benchmarks_has_rows_and_no_empty_column(benchmark_page, part, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_page, "OUT", tmp_path)
    head, _, *rows = [line.strip("| ").split(" | ") for line in benchmark_page.PARTS[part]().splitlines()]
    assert rows
    for i, name in enumerate(head):
        assert any(len(row) > i and row[i].strip() for row in rows), name


def test_the_evidence_of_the_readme_is_what_was_recorded(benchmark_page):
    assert benchmark_page.evidence() in (ROOT / "README.md").read_text(encoding="utf-8")
