"""Which training labels are wrong? One run with m="auto" against cross-validated networks ranked by cleanlab.

    python benchmarks/torch_suspects.py --train FOLDER [--columns worse random1] [--seed 2]        on a GPU
    python benchmarks/torch_suspects.py --judge FOLDER [--record]                                  anywhere

`--train` trains the network of torch_noise.py five times with cross-entropy, each time without one fold, and saves the
probabilities of the fold. `--judge` needs them and the runs that `torch_noise.py --save FOLDER` kept: the average
precision of the real errors among all labels ranked, by `suspects()` and by each of cleanlab's ways (where cleanlab is
not installed, by its formulas for self-confidence and normalised margin), and the mean p_wrong of the labels with
p_wrong of at least one half against how many of them are wrong.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import nn

import rankrange.torch as rrt
import record
from noisy_nets import DEVICE, Run, train_together
from torch_noise import Method, tasks_of

FOLDS = 5


def train(folder: Path, columns: list[str], seed: int, tiny: bool) -> None:
    """Save the probabilities of the CIFAR-10N labels, each from a network that has not seen the image."""
    torch.backends.cudnn.benchmark = True
    for column in columns:
        task = tasks_of("cifar10n", seed, tiny)[column]
        n = len(task.labels)
        fold = torch.arange(n, device=DEVICE)[torch.randperm(n, generator=torch.Generator().manual_seed(seed))] % FOLDS
        parts = [replace(task, images=task.images[fold != k], labels=task.labels[fold != k]) for k in range(FOLDS)]
        runs = train_together([lambda part=part: Run(part, Method(), seed) for part in parts])
        probabilities = torch.zeros(n, 10, device=DEVICE)
        for k, run in enumerate(runs):
            probabilities[fold == k] = run.outputs(task.images[fold == k]).softmax(1)
        labels, clean = (part.cpu().numpy().astype(np.uint8) for part in (task.labels, task.clean))
        np.savez_compressed(
            folder / f"folds_cifar10n_{column}_{seed}.npz", p=probabilities.cpu().numpy(), labels=labels, clean=clean
        )


def suspects_of(saved: Any) -> Any:
    """The table of `suspects()`, from a saved memory."""
    state = {name: torch.from_numpy(saved[name]) for name in saved.files if name != "clean"}
    state["history.rows"] = state["history.rows"].float()
    n_samples = len(state["history.visits"]) - 1
    criterion = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=n_samples)
    criterion.auto.load_state_dict(state)
    return criterion.suspects()


def rankings(probabilities: Any, labels: Any) -> dict[str, Any]:
    """How suspect each label is by cleanlab's rankings; the first two are formulas that need no package."""
    rows = np.arange(len(labels))
    own = probabilities[rows, labels]
    others = probabilities.copy()
    others[rows, labels] = -1.0
    found = {"self-confidence": 1.0 - own, "normalised margin": others.max(1) - own}
    try:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        return found
    for name in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
        found[f"cleanlab {name}"] = 1.0 - get_label_quality_scores(labels, probabilities, method=name)
    issues = find_label_issues(labels, probabilities, n_jobs=1)
    found["cleanlab filter"] = issues + 0.5 * found["cleanlab self_confidence"]
    return found


def calibration(path: Path) -> dict[str, Any]:
    """The row of one run with m="auto"."""
    saved = np.load(path)
    _, data, column, seed = path.stem.split("_")
    found = suspects_of(saved)
    wrong, likely = found.given != saved["clean"][: len(found.given)], found.p_wrong >= 0.5
    row = {"data": data, "column": column, "seed": seed, "wrong": round(float(wrong.mean()), 4)}
    claimed = float(found.p_wrong[likely].mean()) if likely.any() else 0.0
    true = float(wrong[likely].mean()) if likely.any() else 0.0
    row |= {"ranking": "suspects()", "ap": _precision(wrong, found.score), "likely": int(likely.sum())}
    return row | {"claimed": round(claimed, 3), "true": round(true, 3), "estimate": round(found.noise_estimate, 4)}


def ranked(path: Path) -> list[dict[str, Any]]:
    """The rows of one set of cross-validated probabilities: one per way to rank them."""
    saved = np.load(path)
    _, data, column, seed = path.stem.split("_")
    wrong = saved["labels"] != saved["clean"]
    row = {"data": data, "column": column, "seed": seed, "wrong": round(float(wrong.mean()), 4)}
    blank = dict.fromkeys(("likely", "claimed", "true", "estimate"), "")
    scores = rankings(saved["p"], saved["labels"].astype(np.int64))
    return [row | {"ranking": name, "ap": _precision(wrong, score)} | blank for name, score in scores.items()]


def _precision(wrong: Any, score: Any) -> float | str:
    return round(float(average_precision_score(wrong, score)), 4) if wrong.any() else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", type=Path)
    parser.add_argument("--judge", type=Path)
    parser.add_argument("--columns", nargs="+", default=["worse", "random1", "aggre"])
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    if given.train is not None:
        os.makedirs(given.train, exist_ok=True)
        train(given.train, given.columns, given.seed, given.tiny)
    if given.judge is not None:
        rows = [calibration(path) for path in sorted(given.judge.glob("auto_*.npz"))]
        rows += [row for path in sorted(given.judge.glob("folds_*.npz")) for row in ranked(path)]
        for row in rows:
            print(*row.values(), sep="\t")
        if given.record:
            print(record.append("torch_suspects", rows))


if __name__ == "__main__":
    main()
