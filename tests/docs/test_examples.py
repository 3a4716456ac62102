"""The examples of the README, the pages and the gallery run and print what they say: `make docs-check`."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from rankrange import noise

pytestmark = pytest.mark.site
ROOT = Path(__file__).parents[2]
# Their code needs other packages: the tests of the trainers and test_works_with.py run it.
ELSEWHERE = {"text_models.md", "works_with.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("[hse]*/*.md"))]
GALLERY = sorted((ROOT / "examples").glob("plot_*.py"))
NUMBER = re.compile(r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def about(text):
    """Words and numbers of a line apart, so that numbers may differ a little."""
    pieces = NUMBER.split(text)
    return [" ".join(words.split()) for words in pieces[::2]], [float(number) for number in pieces[1::2]]


def check_printed(lines, block):
    """`# -> text` is exact; in `# ~> text` numbers may differ by .03."""
    promised = re.findall(r"# ([-~])> (.*?)(?: {3,}.*)?$", block, re.M)
    assert len(lines) == len(promised), (lines, "a block says all that it prints")
    for line, (kind, expected) in zip(lines, promised, strict=True):
        (words, numbers), (of_page, near) = about(line), about(expected)
        assert line == expected or (kind == "~" and words == of_page and numbers == pytest.approx(near, abs=0.03))


def wins_with_scikit_learn(names):
    """Whether the robust models of the page beat the ordinary ones: the linear model, and the trees."""
    models = (("plain", "robust"), ("trees", "wrapped"))
    scores = [[names[name].score(names["X_test"], names["y_test"]) for name in pair] for pair in models]
    return [robust > ordinary for ordinary, robust in scores]


def wins_with_networks(names):
    return [names["robust"] > names["ordinary"]]


# What a first page promises: about the numbers that it prints would allow the order to be wrong.
WINS = {
    ROOT / "docs" / "start" / "sklearn.md": wins_with_scikit_learn,
    ROOT / "docs" / "start" / "networks.md": wins_with_networks,
}


def run(page, seed=0):
    """The names that the code of a page leaves, run block after block, and what each block prints."""
    for package in set(re.findall(r"^(?:from|import) (\w+)", "\n".join(blocks(page)), re.M)):
        pytest.importorskip(package)
    names, printed = {"__name__": "page"}, []
    for block in blocks(page):
        block = block.replace("random_state=0", f"random_state={seed}").replace("seed(0)", f"seed({seed})")
        printed.append(printed_by(block, names))
    return names, printed


def printed_by(block, names):
    """The lines that a block of code prints with these names."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(block, "page", "exec"), names)
    return output.getvalue().splitlines()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page) and page.name not in ELSEWHERE], ids=lambda page: page.stem
)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = run(page)
    for block, lines in zip(blocks(page), printed, strict=True):
        check_printed(lines, block)
    if page in WINS:
        assert all(WINS[page](names))


@pytest.mark.slow
@pytest.mark.parametrize("page", WINS, ids=lambda page: page.stem)
def test_the_gain_of_a_first_page_holds_for_nine_of_ten_seeds(page):
    assert (np.array([WINS[page](run(page, seed)[0]) for seed in range(10)]).sum(axis=0) >= 9).all()


def console(page, number):
    """The pieces of what the block of this number on a page shows below its commands; `...` stands for anything."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    block = re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S)[number]
    lines = [line for line in block.splitlines() if line and not line.startswith("$ ")]
    return [" ".join(piece.split()) for line in lines for piece in line.split("...") if piece.strip()]


def test_commands_print_what_the_pages_say(tmp_path, monkeypatch, capsys):
    """28 of 569 diagnoses are wrong; a reviewer who knows the truth decides the first 30 suspects."""
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    from rankrange.audit import audit_file
    from rankrange.cli import main

    monkeypatch.chdir(tmp_path)
    data = load_breast_cancer(as_frame=True)
    given = noise.symmetric(data.target.to_numpy(), 0.05, random_state=0)
    data.data.assign(diagnosis=data.target_names[given]).to_csv("tumours.csv", index=False)
    audit, truth = audit_file("tumours.csv", "diagnosis"), pd.Series(data.target_names[data.target], range(1, 570))
    for suspect in audit.suspects(30):
        right = truth[suspect.row]
        audit.decide(suspect.row, *(["keep"] if right == suspect.given else ["relabel", right]))
    audit.save_decisions("decisions.csv")
    more = ["--decisions", "decisions.csv"]
    for page, number, command in (
        ("how-to/audit.md", 1, ["audit", "tumours.csv", "--target", "diagnosis"]),
        ("how-to/review.md", 1, ["apply", "tumours.csv", "decisions.csv", "--out", "fixed.csv"]),
        ("how-to/review.md", 2, ["audit", "fixed.csv", "--target", "diagnosis", *more]),
        ("start/table.md", 0, ["demo"]),
    ):
        assert main(command) == 0
        printed, shown = " ".join(capsys.readouterr().out.split()), console(page, number)
        assert shown
        for words, numbers in map(about, shown):  # the words, with numbers that differ by at most a fifth, or one
            found = re.search(f" ?{NUMBER.pattern} ?".join(map(re.escape, words)), printed)
            assert found, words
            assert [float(number) for number in found.groups()] == pytest.approx(numbers, rel=0.2, abs=1)


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_an_example_of_the_gallery_runs_and_draws(path, monkeypatch):
    source = path.read_text(encoding="utf-8")
    for package in ("matplotlib", *re.findall(r"^(?:from|import) (pandas|torch|cleanlab)\b", source, re.M)):
        pytest.importorskip(package)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("RANKRANGE_SMALL", "1")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    try:
        runpy.run_path(str(path), run_name="__main__")
        figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        assert figures
        assert all(any(axis.has_data() for axis in figure.axes) for figure in figures)
    finally:
        pyplot.close("all")
