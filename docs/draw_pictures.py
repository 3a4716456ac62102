"""Draw the pictures of the guides into docs/images: `python docs/draw_pictures.py [NAME ...]`.

The pictures are stored, so that neither the tests nor the site wait for the fits behind them. `audit_pages` and
`suspects` need Chromium, chromedriver and selenium, `regression_stars` the data that RANKRANGE_DATA names.
"""

from __future__ import annotations

import csv
import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.animation import FuncAnimation, PillowWriter
from sklearn.datasets import load_breast_cancer, load_digits, make_moons, make_multilabel_classification
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import HuberRegressor, LinearRegression
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rankrange.torch as rrt
from rankrange import (
    AoRRClassifier,
    AoRRRegressor,
    RankedRangeClassifier,
    TKMLClassifier,
    find_label_issues,
    noise,
    plots,
)
from rankrange.audit import audit_file, audit_table
from rankrange.regression import mm

OUT = Path(__file__).parent / "images"
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
BLUE, ORANGE, GREY = "#3b74c4", "#d95f02", "#b8c0cc"


def _save(figure: Any, name: str) -> None:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(OUT / f"{name}.png", dpi=130)
    plt.close(figure)


def choose_m() -> None:
    """The gain of each share of dropped rows."""
    X, y = load_breast_cancer(return_X_y=True)
    given = noise.asymmetric(y, {0: 1}, 0.3, random_state=0)
    model = AoRRClassifier(random_state=0).fit(StandardScaler().fit_transform(X), given)
    figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    plots.plot_tuning(model, ax=axis)
    _save(figure, "choose_m")


def leverage() -> None:
    """The moving picture of the README: one row is dragged away, and three lines are fitted at each place."""
    rng = np.random.default_rng(1)
    x = np.append(rng.uniform(0, 4, 30), 4.0)
    y = np.append(x[:-1] + 0.4 * rng.normal(size=30), 4.0)
    ends = np.array([[-0.5], [10.5]])
    models = {
        "least squares": (LinearRegression(), ORANGE),
        "Huber": (HuberRegressor(max_iter=1000), GREY),
        "rankrange": (AoRRRegressor(m=0.1, k=1.0, C=np.inf, random_state=0), BLUE),
    }
    figure, axis = plt.subplots(figsize=(6.4, 3.4), layout="constrained")

    def draw(frame: int) -> None:
        share = np.sin(np.pi * frame / 40)  # there and back
        x[-1], y[-1] = 4.0 + 6.0 * share, 4.0 - 7.0 * share
        axis.clear()
        axis.plot(x[:-1], y[:-1], "o", color="0.35", ms=4)
        axis.plot(x[-1], y[-1], "o", color="#c0392b", ms=9)
        for name, (model, colour) in models.items():
            axis.plot(ends, model.fit(x[:, None], y).predict(ends), color=colour, lw=2.2, label=name)
        axis.set(xlim=(-0.5, 10.5), ylim=(-4, 8), xticks=[], yticks=[], title="One row is dragged away")
        axis.legend(frameon=False, loc="upper left")

    FuncAnimation(figure, draw, frames=40).save(OUT / "leverage.gif", PillowWriter(fps=12), dpi=80)
    plt.close(figure)


def any_model() -> None:
    """Boosted trees on two moons, alone and wrapped."""
    X, y = make_moons(600, noise=0.2, random_state=0)
    given = noise.symmetric(y, 0.2, random_state=0)
    trees = HistGradientBoostingClassifier(random_state=0)
    wrapped = RankedRangeClassifier(trees, random_state=0).fit(X, given)
    trees.fit(X, given)
    x0, x1 = np.meshgrid(np.linspace(-1.8, 2.8, 300), np.linspace(-1.3, 1.8, 250))
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained", sharey=True)
    for axis, model, title in zip(axes, (trees, wrapped), ("boosted trees", "wrapped boosted trees"), strict=True):
        shown = np.ones(len(y), dtype=bool) if model is trees else ~wrapped.dropped_
        chance = model.predict_proba(np.column_stack([x0.ravel(), x1.ravel()]))[:, 1].reshape(x0.shape)
        axis.contourf(x0, x1, chance, levels=[0, 0.5, 1], colors=[BLUE, ORANGE], alpha=0.2)
        for c, colour in enumerate((BLUE, ORANGE)):
            axis.plot(*X[shown & (given == c)].T, "o", ms=3, color=colour)
            axis.plot(*X[~shown & (given == c)].T, "x", ms=5, color=colour)
        axis.set(title=title, xticks=[], yticks=[])
    _save(figure, "any_model")


def multilabel() -> None:
    """The scores of the labels of one row."""
    X, Y = make_multilabel_classification(1000, 20, n_classes=8, n_labels=3, random_state=1)
    X = StandardScaler().fit_transform(X)
    model = TKMLClassifier(top_k=3, random_state=0).fit(X[:600], Y[:600])
    row = 600 + int(((Y[600:].sum(axis=1) == 3) & (model.predict(X[600:]) == Y[600:]).all(axis=1)).argmax())
    scores = model.decision_function(X[row : row + 1])[0]
    order = np.argsort(-scores)
    figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
    axis.bar(range(8), scores[order], color=[BLUE] * 3 + [GREY] * 5)
    true = np.flatnonzero(Y[row][order])
    axis.plot(true, scores[order][true], "o", color=ORANGE, label="true label")
    axis.axhline(0, color="0.4", lw=0.8)
    axis.set(ylabel="score", title="The three best of eight labels")
    axis.set_xticks(range(8), [f"label {label}" for label in order], rotation=30)
    axis.legend(frameon=False)
    _save(figure, "multilabel")


def networks() -> None:
    """Accuracy on the true labels by epoch."""
    torch.manual_seed(0)
    X = torch.randn(1000, 5)
    y = (X[:, 0] + 0.5 * X[:, 1] > 0).long()
    given = torch.where(torch.arange(1000) < 300, 1 - y, y)
    base = nn.CrossEntropyLoss(reduction="none")
    robust = rrt.AoRRLoss(base, m="auto", n_samples=1000)
    criteria = {"cross-entropy": lambda output, target, index: base(output, target).mean(), 'm="auto"': robust}
    figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (name, criterion), colour in zip(criteria.items(), (ORANGE, BLUE), strict=True):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 2))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        right = []
        for _ in range(40):
            for x, target, index in DataLoader(rrt.WithIndex(TensorDataset(X, given)), batch_size=100, shuffle=True):
                optimizer.zero_grad()
                criterion(net(x), target, index).backward()
                optimizer.step()
            right.append((net(X).argmax(1) == y).float().mean().item())
        axis.plot(range(1, 41), right, color=colour, lw=2, label=name)
    axis.set(xlabel="epoch", ylabel="accuracy on true labels", title="30% of the labels are wrong")
    axis.legend(frameon=False)
    _save(figure, "networks")


def groups() -> None:
    """Accuracy in both groups of the guide's data, for three objectives."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 2))
    group = np.where(rng.random(3000) < 0.15, "small", "large")
    y = np.where(group == "small", X @ [0.5, 1.0], X @ [1.0, 0.2]) > 0
    given = y.copy()
    wrong = np.flatnonzero(group[:700] == "small")[:11]
    X[wrong] *= 3
    given[wrong] = ~given[wrong]
    models = {
        "mean of all rows": AoRRClassifier(m=0).fit(X[:700], given[:700]),
        "worst group": AoRRClassifier(m=0, aggregate="worst-group").fit(X[:700], given[:700], groups=group[:700]),
        "worst group, m = 0.1": AoRRClassifier(m=0.1, aggregate="worst-group", random_state=0).fit(
            X[:700], given[:700], groups=group[:700]
        ),
    }
    figure, axis = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    for shift, (name, colour) in enumerate((("large", GREY), ("small", ORANGE))):
        rows = 700 + np.flatnonzero(group[700:] == name)
        shares = [100 * model.score(X[rows], y[rows]) for model in models.values()]
        bars = axis.bar(np.arange(3) + 0.4 * shift - 0.2, shares, 0.38, color=colour, label=f"{name} group")
        axis.bar_label(bars, fmt="%.0f%%")
    axis.set(xticks=range(3), xticklabels=models, ylabel="accuracy on new rows (%)", ylim=(50, 112))
    axis.legend(frameon=False, loc="upper right", ncols=2)
    _save(figure, "groups")


def sparse_models() -> None:
    """The path of the guide's sparse model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 500))
    y = 3 * X[:, 0] - 2 * X[:, 1] + 2 * X[:, 2] + 0.3 * rng.normal(size=100)
    y[:10] += 30
    search = AoRRRegressor(C="auto", l1_ratio=1.0, random_state=0).fit(X, y)
    figure, axis = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    plots.plot_path(search, ax=axis)
    _save(figure, "sparse_models")


def partial_auc() -> None:
    """That of the gallery."""
    _of_the_gallery("plot_partial_auc", "partial_auc")


def dropped_tokens() -> None:
    """That of the gallery."""
    _of_the_gallery("plot_noisy_tokens", "dropped_tokens")


def _of_the_gallery(example: str, name: str) -> None:
    runpy.run_path(str(OUT.parents[1] / "examples" / f"{example}.py"), run_name="__main__")
    plt.gcf().savefig(OUT / f"{name}.png", dpi=80 if name == "partial_auc" else 110)
    plt.close("all")


def regression_stars() -> None:
    """The stars of Cygnus with both lines."""
    path = Path(os.environ["RANKRANGE_DATA"], "robust_regression", "starsCYG.csv")
    x, y = np.loadtxt(path, delimiter=",", skiprows=1).T
    model, line = mm(x[:, None], y, random_state=0), LinearRegression().fit(x[:, None], y)
    kinds = np.asarray(model.diagnostics().kinds)
    figure, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for kind, colour in (("regular", BLUE), ("good leverage point", ORANGE), ("bad leverage point", "#2e8b57")):
        axis.plot(x[kinds == kind], y[kinds == kind], "o", color=colour, ms=5, label=kind)
    ends = np.array([[x.min()], [x.max()]])
    axis.plot(ends, line.predict(ends), "--", color="0.4", label="least squares")
    axis.plot(ends, model.predict(ends), color=BLUE, label="MM-estimate")
    axis.set(xlabel="log of the surface temperature", ylabel="log of the light intensity")
    axis.invert_xaxis()  # as astronomers draw it
    axis.legend(frameon=False, loc="lower left")
    _save(figure, "regression_stars")


def what_can_be_known() -> None:
    """Two tables with one wrong label in ten: separate and overlapping classes."""
    rng = np.random.default_rng(0)
    figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.0), layout="constrained", sharey=True)
    for axis, distance, title in zip(axes, (6.0, 1.2), ("separate classes", "overlapping classes"), strict=True):
        true = rng.integers(0, 2, 1500)
        X = rng.normal(size=(1500, 2)) + distance * true[:, None] / np.sqrt(2)
        given = noise.symmetric(true, 0.1, random_state=0)
        issues = find_label_issues(X, given, random_state=0)
        probability = sum(weight * P for _, weight, P in issues.members)[np.arange(1500), given]
        parts = [probability[given == true], probability[given != true]]
        axis.hist(parts, np.linspace(0, 1, 21), stacked=True, color=[BLUE, ORANGE], label=["right", "wrong"])
        low, high = issues.noise_interval
        axis.set(title=f"{title}: {low:.0%} to {high:.0%} wrong", xlabel="probability of the given label")
        axis.set_yscale("symlog")
    axes[0].set_ylabel("rows")
    axes[0].legend(frameon=False, loc="upper center")
    _save(figure, "what_can_be_known")


def _flow(axis: Any, boxes: list[tuple[float, float, str, str]], dashed: tuple[int, int] | None = None) -> None:
    """Boxes (x, y, text, colour), each with an arrow to the next; and one dashed arrow."""
    drawn = [
        axis.text(
            x, y, text, ha="center", va="center", fontsize=9, bbox={"boxstyle": "round", "fc": colour, "ec": "#4a5568"}
        )
        for x, y, text, colour in boxes
    ]
    arrows = [(i, i + 1, "-") for i in range(len(boxes) - 1)] + ([(*dashed, "--")] if dashed else [])
    for start, end, line in arrows:
        style = {"arrowstyle": "-|>", "color": "#4a5568", "ls": line, "shrinkA": 4, "shrinkB": 4}
        style |= {"patchA": drawn[start].get_bbox_patch(), "patchB": drawn[end].get_bbox_patch()}
        axis.annotate("", boxes[end][:2], boxes[start][:2], arrowprops=style, zorder=0)
    axis.axis("off")


def trainers() -> None:
    """How the index of a sample reaches the loss."""
    figure, axis = plt.subplots(figsize=(7.0, 2.3), layout="constrained")
    boxes = [
        (0, 1, "rrt.WithIndex(dataset)", "#dbe7f6"),
        (3, 1, "batch: x, y, index", "#ffffff"),
        (6, 1, "model(x)", "#fbe3d0"),
        (6, 0, "criterion(output, y, index)", "#dbe7f6"),
        (3, 0, "running means\nper sample", "#ffffff"),
        (0, 0, "weights: wrong labels\ncount little", "#ffffff"),
    ]
    _flow(axis, boxes, dashed=(1, 3))
    axis.text(1.5, 1.1, "DataLoader", ha="center", fontsize=8, color="#4a5568")
    axis.text(4.05, 0.42, "y, index", ha="center", fontsize=8, color="#4a5568")
    axis.set(xlim=(-0.9, 7.2), ylim=(-0.4, 1.4))
    _save(figure, "trainers")


def gpu() -> None:
    """Recorded seconds of a fit against the number of rows."""
    with open(RESULTS / "linear_gpu.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["d"] == "30"]
    figure, axis = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    kinds = (
        ("AoRR m=0.1 k=1.0", "H200, m=0.1", BLUE, "o-"),
        ("ordinary m=0", "H200, ordinary fit (m=0)", GREY, "o-"),
        ("Newton, PyTorch", "H200, ordinary fit by Newton's method", GREY, "o--"),
        ("AoRR m=auto", 'H200, m="auto"', BLUE, "s"),
        ("CPU m=0.1 k=1.0", "CPU of the same machine, m=0.1", ORANGE, "D"),
    )
    for what, name, colour, style in kinds:
        points = sorted((int(row["n"]), float(row["seconds"])) for row in rows if row["what"] == what)
        axis.plot(*zip(*points, strict=True), style, color=colour, label=name)
    axis.set(xscale="log", yscale="log", xlabel="rows (30 columns)", ylabel="seconds of a certified fit")
    axis.legend(frameon=False, fontsize=8)
    _save(figure, "gpu")


def boosting() -> None:
    """Recorded accuracy that LightGBM regains, with the objective and inside the classifier."""
    with open(RESULTS / "boosting_objective.csv", encoding="utf-8") as file:
        runs = [run for run in csv.DictReader(file) if run["library"] == "lightgbm"]
    kinds = {"10%": ("symmetric", 0.1), "20%": ("symmetric", 0.2), "40%": ("symmetric", 0.4)}
    methods = (
        ("plain", "plain LightGBM", GREY),
        ("objective known m", "objective of LightGBM(m=share)", ORANGE),
        ("classifier", "RankedRangeClassifier", BLUE),
        ("clean", "trained on correct labels", "#6b7a90"),
    )
    figure, axis = plt.subplots(figsize=(6.8, 3.4), layout="constrained")
    for shift, (method, name, colour) in enumerate(methods):
        means = [
            np.mean([float(run[method]) for run in runs if (run["noise"], float(run["rate"])) == kind])
            for kind in kinds.values()
        ]
        bars = axis.bar(np.arange(len(kinds)) + 0.2 * shift - 0.3, means, 0.19, color=colour, label=name)
        axis.bar_label(bars, fmt="%.0f", fontsize=8)
    axis.set(xticks=range(len(kinds)), xticklabels=[f"{name} wrong labels" for name in kinds])
    axis.set(ylabel="mean test accuracy (%), 11 tables", ylim=(50, 108))
    axis.legend(frameon=False, fontsize=8, ncols=2, loc="upper center")
    _save(figure, "boosting")


def works_with() -> None:
    """The steps of a project, with the tools of each."""
    figure, axis = plt.subplots(figsize=(6.2, 1.3), layout="constrained")
    steps = [
        (0, "data", "Hugging Face datasets\nskrub, pandera", "#ffffff"),
        (3, "training", "scikit-learn, PyTorch\nboosting, Optuna", "#dbe7f6"),
        (6, "review", "Label Studio", "#fbe3d0"),
        (9, "use", "ONNX\nMLflow", "#ffffff"),
    ]
    _flow(axis, [(x, 0, tools, colour) for x, _, tools, colour in steps])
    for x, step, _, _ in steps:
        axis.text(x, 0.3, step, ha="center", fontsize=10, color="#4a5568")
    axis.set(xlim=(-1.7, 9.9), ylim=(-0.3, 0.5))
    _save(figure, "works_with")


@contextmanager
def _page(html: str, height: int) -> Iterator[Any]:
    """A browser that shows a page, 1,000 pixels wide."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]:
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    size = {"width": 1000, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        page.write_text(html, encoding="utf-8")
        browser.get(page.as_uri())
        yield browser
    browser.quit()


def audit_pages() -> None:
    """The page of an audit, and its review."""
    data = load_breast_cancer()
    given = noise.symmetric(data.target, 0.05, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "tumours.csv")
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*data.feature_names, "diagnosis"])
            writer.writerows([*row, data.target_names[label]] for row, label in zip(data.data, given, strict=True))
        html = audit_file(table, "diagnosis").report()
    with _page(html, 1080) as browser:
        browser.save_screenshot(str(OUT / "report.png"))
    with _page(html, 860) as browser:
        browser.execute_script("document.getElementById('start').click()")
        for choice in "rrkru":
            browser.find_element("id", "card").send_keys(choice)
        browser.execute_script("document.getElementById('review-section').scrollIntoView({behavior: 'instant'})")
        browser.save_screenshot(str(OUT / "audit_review.png"))


def suspects() -> None:
    """The list of suspects on the page of an audit of digits."""
    digits = load_digits()
    given = noise.symmetric(digits.target, 0.05, random_state=0)[:1000]
    table = {name: digits.data[:1000, i] for i, name in enumerate(digits.feature_names)} | {"digit": given}
    with _page(audit_table(table, "digit", models="linear", pixels=8).report(), 780) as browser:
        browser.execute_script("document.getElementById('h-suspects').parentNode.scrollIntoView({behavior: 'instant'})")
        browser.save_screenshot(str(OUT / "suspects.png"))


DRAWN = (
    leverage,
    choose_m,
    any_model,
    multilabel,
    networks,
    groups,
    sparse_models,
    partial_auc,
    dropped_tokens,
    regression_stars,
    what_can_be_known,
    trainers,
    gpu,
    boosting,
    works_with,
    audit_pages,
    suspects,
)

if __name__ == "__main__":
    for draw in DRAWN:
        if draw.__name__ in sys.argv[1:] or len(sys.argv) == 1:
            draw()
