"""The gates of the search: objectives paired with stored ones, cost in ordinary fits, certificates; R and enumeration.

    OMP_NUM_THREADS=1 python benchmarks/linear_gates.py --store FILE [--seed 300] [--count 8] [--losses ...]
    OMP_NUM_THREADS=1 python benchmarks/linear_gates.py --against FILE
    RANKRANGE_DATA=... python benchmarks/linear_gates.py --regression [--repeats 10]

--store writes the objectives, seconds and certificates of drawn problems to a JSON file, for example those of another
commit on PYTHONPATH. --against fits the same problems again and compares. Problems are those of linear_random, with at
most 20,000 rows, and elastic nets: l1 (two classes) and l1_squared, with at most 3,000 rows and 40 columns. There are
three times as many logistic problems as of another loss. --regression counts the classic sets of least trimmed squares
on which no seed ends above R, and those on which every seed finds the enumerated optimum.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import ElasticNet, LogisticRegression

import linear_random
import regression
from rankrange import AoRRClassifier, AoRRRegressor

NETS = {"l1": "logistic", "l1_squared": "squared"}
LOSSES = ("logistic", "sparse", "softmax3", "softmax10", "hinge", "squared", "absolute", *NETS)
MOST_ROWS = 20_000
NET_SIZE = (3000, 40)


def drawn(loss: str, seed: int, index: int) -> tuple[linear_random.Problem, Any, Any]:
    problem, rng = linear_random.draw(NETS.get(loss, loss), seed, index)
    rows, columns = NET_SIZE if loss in NETS else (MOST_ROWS, problem.d)
    problem = replace(problem, n=min(problem.n, rows), d=min(problem.d, columns))
    return problem, *linear_random.data(problem, rng)


def contenders(loss: str, problem: linear_random.Problem) -> tuple[Any, Any]:
    """The ordinary fit and ours."""
    if loss not in NETS:
        return linear_random.ordinary(problem), linear_random.ours(problem)
    settings = {"m": problem.m, "k": 1.0, "C": problem.C, "l1_ratio": 0.9, "random_state": 0}
    if loss == "l1":
        ordinary = LogisticRegression(C=problem.C, l1_ratio=0.9, solver="saga", tol=1e-6, max_iter=1000)
        return ordinary, AoRRClassifier(**settings)
    return ElasticNet(alpha=0.5 / (problem.C * problem.n), l1_ratio=0.9, tol=1e-6), AoRRRegressor(**settings)


def value(loss: str, problem: linear_random.Problem, fit: Any, X: Any, y: Any) -> float:
    if loss not in NETS:
        return linear_random.objective(problem, fit, X, y)
    n, coef = len(y), np.ravel(fit.coef_)
    plain = replace(problem, k=1.0, C=np.inf)
    penalty = 0.9 * np.abs(coef).sum() + 0.05 * (coef**2).sum()
    return linear_random.objective(plain, fit, X, y) + penalty / (problem.C * (n - round(problem.m * n)))


def measure(loss: str, seed: int, index: int, repeats: int) -> dict[str, Any]:
    problem, X, y = drawn(loss, seed, index)
    ordinary, fit = contenders(loss, problem)
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for model, seconds in zip((ordinary, fit), spent, strict=True):
            begun = time.process_time()
            model.fit(X, y)
            seconds.append(time.process_time() - begun)
    name = problem.name.replace(problem.loss, loss, 1)
    theirs, ours = (statistics.median(seconds) for seconds in spent)
    result = {"name": name, "objective": value(loss, problem, fit, X, y), "ordinary_s": theirs, "ours_s": ours}
    return result | {"certificate": float(fit.certificate_), "m": problem.m}


def report(loss: str, rows: list[dict[str, Any]], before: dict[str, dict[str, Any]]) -> None:
    ratios = np.array([row["ours_s"] / row["ordinary_s"] for row in rows])
    print(
        f"{loss}: {len(rows)} problems, ordinary fits: median {np.median(ratios):.2f}, 90% "
        f"{np.quantile(ratios, 0.9):.2f}, worst {ratios.max():.1f} ({rows[int(ratios.argmax())]['name']}); "
        f"certificates above 1e-6: {sum(not row['certificate'] <= 1e-6 for row in rows)}"
    )
    pairs = [(row, before[row["name"]]) for row in rows if row["name"] in before]
    if pairs:
        higher = np.array([(row["objective"] + 1e-9) / (old["objective"] + 1e-9) for row, old in pairs])
        slower = np.array([row["ours_s"] / old["ours_s"] for row, old in pairs])
        print(
            f"    objective over the stored one: mean {higher.mean():.5f}, worst {higher.max():.4f}, best "
            f"{higher.min():.4f}, higher by 1%: {(higher > 1.01).sum()}, lower by 1%: {(higher < 0.99).sum()}; "
            f"seconds over stored: median {np.median(slower):.2f}, sum {sum(r['ours_s'] for r, _ in pairs):.2f} "
            f"of {sum(old['ours_s'] for _, old in pairs):.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=300)
    parser.add_argument("--count", type=int, default=8, help="problems of each loss")
    parser.add_argument("--repeats", type=int, default=3, help="fits of each problem, or seeds of the classic sets")
    parser.add_argument("--losses", default=",".join(LOSSES))
    parser.add_argument("--store", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--regression", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.regression:
        regression.objectives(arguments.repeats)
        return
    before = json.loads(arguments.against.read_text("utf-8")) if arguments.against else {}
    found: dict[str, Any] = {}
    for loss in arguments.losses.split(","):
        rows = []
        for index in range(arguments.count * (3 if loss == "logistic" else 1)):
            row = measure(loss, arguments.seed, index, arguments.repeats)
            rows.append(row)
            found[row["name"]] = row
            old = before.get(row["name"])
            change = "" if old is None else f"{row['objective'] / max(old['objective'], 1e-9) - 1:+.1e}"
            was = "" if old is None else f"was {old['ours_s']:.3f}"
            print(
                f"{row['name']:<105} {row['objective']:.8g} {row['ours_s'] / row['ordinary_s']:8.2f} "
                f"{row['ours_s']:8.3f} s {row['certificate']:9.2g} {change} {was}",
                flush=True,
            )
        report(loss, rows, before)
    if arguments.store:
        arguments.store.write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main()
