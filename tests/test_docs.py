"""docs/paper.md names only what exists, and says so where nothing does yet; the examples of the guides run."""

import ast
import contextlib
import importlib.util
import io
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from rankrange import find_label_issues

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


DOCS = ROOT / "docs"
# Their code needs the trainers: tests/test_torch_adapters.py and tests/test_torch_text_trainers.py run it.
TRAINERS = {"how-to/trainers.md", "how-to/text_models.md"}
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for part in ("start", "how-to", "explanation")
    for path in DOCS.glob(f"{part}/*.md")
)


def about(text):
    """Words and numbers of a line apart, so that numbers may differ a little."""
    pieces = NUMBER.split(text)
    return [" ".join(words.split()) for words in pieces[::2]], [float(number) for number in pieces[1::2]]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and page not in TRAINERS])
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    """Block after block, as a reader types them. `# -> text` is exact, in `# ~> text` numbers may differ by .03."""
    for package in set(re.findall(r"^(?:from|import) (\w+)", "\n".join(blocks(page)), re.M)):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in blocks(page):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(block, page, "exec"), names)
        printed, promised = output.getvalue().splitlines(), re.findall(r"# ([-~])> (.*)$", block, re.M)
        assert len(printed) == len(promised), (printed, "a block says all that it prints")
        for line, (kind, expected) in zip(printed, promised, strict=True):
            if kind == "-":
                assert line == expected
            else:
                (words, numbers), (of_page, near) = about(line), about(expected)
                assert (words, numbers) == (of_page, pytest.approx(near, abs=0.03))


def run_with_seed(seed, *code):
    """The names that code of a page leaves, with another seed than the page's."""
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in code:
            block = block.replace("random_state=0", f"random_state={seed}").replace("seed(0)", f"seed({seed})")
            exec(compile(block, "page", "exec"), names)
    return names


def wins_with_scikit_learn(seed):
    """Whether the robust models of the page beat the ordinary ones: the linear model, and the trees."""
    linear, _, _, trees = blocks("start/sklearn.md")
    names = run_with_seed(seed, linear, trees)
    models = (("plain", "robust"), ("trees", "wrapped"))
    ordinary, robust = ([names[pair[i]].score(names["X_test"], names["y_test"]) for pair in models] for i in (0, 1))
    return [one > other for one, other in zip(robust, ordinary, strict=True)]


def wins_with_networks(seed):
    names = run_with_seed(seed, blocks("start/networks.md")[0])
    return [names["robust"] > names["ordinary"]]


def wins_with_a_table(seed):
    """The demonstration: of digits with planted errors more than half of those are among as many suspects."""
    X, y = load_digits(return_X_y=True)
    X, y, given = X[:500], y[:500], y[:500].copy()
    rng = np.random.default_rng(seed)
    planted = rng.choice(500, 40, replace=False)
    given[planted] = (given[planted] + rng.integers(1, 10, 40)) % 10
    first = find_label_issues(X, given, random_state=seed).top(40)["row"]
    return [(given[first] != y[first]).mean() > 0.5]


@pytest.mark.parametrize("wins", [wins_with_scikit_learn, wins_with_networks])
def test_the_robust_models_of_a_first_page_do_better(wins):
    """About the numbers printed there would allow the order to be wrong."""
    if wins is wins_with_networks:
        pytest.importorskip("torch")
    assert all(wins(0))


@pytest.mark.slow
@pytest.mark.parametrize("wins", [wins_with_scikit_learn, wins_with_networks, wins_with_a_table])
def test_the_gain_of_a_first_page_holds_for_nine_of_ten_seeds(wins):
    if wins is wins_with_networks:
        pytest.importorskip("torch")
    assert (np.array([wins(seed) for seed in range(10)]).sum(axis=0) >= 9).all()


@pytest.fixture(scope="module")
def benchmark_page():
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("draw_benchmarks", ROOT / "docs" / "draw_benchmarks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "part",
    sorted(
        set(
            re.findall(
                r"generated/(\w+)\.txt", "\n".join(path.read_text("utf-8") for path in DOCS.glob("benchmarks/*.md"))
            )
        )
    ),
)
def test_every_table_of_the_benchmarks_has_rows_and_no_empty_column(benchmark_page, part, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark_page, "OUT", tmp_path)
    head, _, *rows = [line.strip("| ").split(" | ") for line in benchmark_page.PARTS[part]().splitlines()]
    assert rows
    for i, name in enumerate(head):
        assert any(len(row) > i and row[i].strip() for row in rows), name


def test_the_evidence_of_the_readme_is_what_was_recorded(benchmark_page):
    assert benchmark_page.evidence() in (ROOT / "README.md").read_text(encoding="utf-8")
