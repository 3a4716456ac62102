"""Tables 4 and 5: MNIST with symmetric label noise, a linear softmax model, and the estimated number of wrong labels.

Of the 60,000 training images 10,000 are a validation set with correct labels; of the others, exactly 20, 30 or 40% get
a wrong label.

Held-out protocol: all methods are minimised with scikit-learn's C = 0.1, which was chosen on the validation set of a
split that is not reported. AoRR chooses m and k on the clean rows, "AoRR, no clean rows" by itself; "Average, C tuned"
takes the C that predicts the clean rows best.

The paper's protocol: Algorithm 2 with Table 14's 20 x 5,000 steps at 0.5 after a warm-up at 0.4, which ends when the
loss of the clean rows no longer falls. Its steps draw one row; here they draw BATCH rows. AT_k takes as many steps of
Algorithm 1 from the end of the warm-up, with the k that operation 2 gives there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax

from rankrange import AoRRClassifier, algorithms, noise

from .. import data
from . import Cell, Row, every

TITLE = "Tables 4 and 5: MNIST with symmetric label noise"
NEEDS = ("mnist",)
ACCURACY, COUNT, MISS, KEPT = "accuracy %", "m", "|m - truth| / truth", "k / n"
TABLES = {
    ACCURACY: ("Table 4: accuracy on the 10,000 test images, %", "higher"),
    COUNT: ("Table 5: the estimate of m (the paper's are too high: lower is better down to the truth)", "lower"),
    MISS: ("Relative error of the estimate of m", "lower"),
}
TUNED, ALONE = "Average, C tuned", "AoRR, no clean rows"
PENALTIES = (0.001, 0.01, 0.1)  # scikit-learn's C
BATCH = 500


def cells(protocol: str, quick: bool) -> list[Cell]:
    """One cell for each rate of noise and split."""
    splits = 1 if quick else 5 if protocol == "held-out" else 2
    parts = [f"noise={rate:g}" for rate in ((0.2,) if quick else (0.2, 0.3, 0.4))]
    return every("mnist-symmetric", protocol, quick, NEEDS, parts, splits)


def run(cell: Cell) -> tuple[list[Row], dict[str, Any]]:
    """Accuracy of all methods on the test images, and the m of AoRR beside the number of wrong labels."""
    images = data.load("mnist")
    X, X_test = (pixels.astype(np.float32) / np.float32(255) for pixels in (images.data, images.test_data))
    order = np.random.default_rng(cell.seed).permutation(len(X))
    clean, train = (order[:100], order[100:300]) if cell.quick else (order[:10_000], order[10_000:])
    given = noise.symmetric(images.target[train], float(cell.part.partition("=")[2]), cell.seed)
    fit = _held_out if cell.protocol == "held-out" else _algorithm_2
    found, counts, kept = fit(X[train], given, X[clean], images.target[clean], cell)
    truth = float(np.sum(given != images.target[train]))
    rows = [Row("truth", cell.part, COUNT, truth)]
    for method, predict in found.items():
        rows.append(Row(method, cell.part, ACCURACY, 100.0 * float(np.mean(predict(X_test) == images.test_target))))
    for method, m in counts.items():
        rows += [Row(method, cell.part, COUNT, m), Row(method, cell.part, MISS, abs(m - truth) / truth)]
    return [*rows, Row("AT_k", cell.part, KEPT, kept / len(train))], {}


def _held_out(X: Any, y: Any, X_clean: Any, y_clean: Any, cell: Cell) -> tuple[Any, dict[str, float], float]:
    clean = {"X_val": X_clean, "y_val": y_clean}

    def fit(C: float = PENALTIES[-1], using: Any = None, **settings: Any) -> AoRRClassifier:
        return AoRRClassifier(**settings, C=C, tol=1e-4, random_state=0).fit(X, y, **(using or {}))

    fits = {"Average": fit(m=0, k=1.0), "AT_k": fit(m=0, k="auto", using=clean), "AoRR": fit(using=clean), ALONE: fit()}
    averages = [fit(C, m=0, k=1.0) for C in PENALTIES[:-1]] + [fits["Average"]]
    fits[TUNED] = max(averages, key=lambda model: model.score(X_clean, y_clean))
    counts = {method: float(fits[method].m_) for method in ("AoRR", ALONE)}
    return {method: model.predict for method, model in fits.items()}, counts, float(fits["AT_k"].k_)


def _algorithm_2(X: Any, y: Any, X_clean: Any, y_clean: Any, cell: Cell) -> tuple[Any, dict[str, float], float]:
    X, X_clean = (np.column_stack([part, np.ones(len(part), part.dtype)]) for part in (X, X_clean))
    steps = {"outer_steps": 2, "inner_steps": 20} if cell.quick else {"outer_steps": 20, "inner_steps": 5000}
    steps |= {"warm_up_steps": 50 if cell.quick else 1000, "warm_up_step": 0.4, "step": 0.5}

    def fit(**settings: Any) -> Any:
        how = {**steps, "batch_size": BATCH, "random_state": cell.seed, **settings}
        return algorithms.dca_without_k_and_m(X, y, X_clean, y_clean, **how)

    def losses(run: Any) -> Any:
        return -log_softmax(X @ run.theta.T, axis=1)[np.arange(len(y)), y]

    runs = {"Average": fit(outer_steps=0)}
    kept = max(1, int(np.sum(losses(runs["Average"]) > runs["Average"].lam)))  # operation 2 after the warm-up
    how = {name: steps[name] for name in ("outer_steps", "inner_steps")}
    how |= {"step": steps["step"] * len(y) / kept, "batch_size": BATCH, "theta": runs["Average"].theta}
    runs["AT_k"] = algorithms.dca(X, y, 0, kept, loss="softmax", random_state=cell.seed, **how)
    runs["AoRR"] = fit()
    counts = {"AoRR": float(np.sum(losses(runs["AoRR"]) > runs["AoRR"].lam_hat))}
    predictors = {
        name: lambda Z, theta=run.theta: np.argmax(Z @ theta[:, :-1].T + theta[:, -1], axis=1)
        for name, run in runs.items()
    }
    return predictors, counts, float(kept)


def figures(results: Any) -> dict[str, Any]:
    """None: the paper shows tables."""
    return {}
