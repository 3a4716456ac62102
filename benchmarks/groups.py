"""Worst-group training with trimming inside the groups."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from rankrange import AoRRClassifier

from .data import load, scaled
from .harness import Row, benchmark


def constructions(seed: int) -> Iterator[tuple[str, Any]]:
    for small, cosine, noise in product((0.15, 0.05), (0.3, 0.7), (0.0, 0.5)):
        rng = np.random.default_rng([seed, int(100 * small), int(10 * cosine), int(10 * noise)])
        X, groups = rng.normal(size=(6000, 6)), (rng.random(6000) < small).astype(int)
        first, second = np.eye(6)[0], cosine * np.eye(6)[0] + np.sqrt(1 - cosine**2) * np.eye(6)[1]
        score = np.where(groups == 1, X @ second, X @ first) + noise * rng.logistic(size=6000)
        yield f"small {small:g} cosine {cosine:g} noise {noise:g}", (X, score > 0, groups, 1000, rng)


def real(seed: int) -> Iterator[tuple[str, Any]]:
    for name in ("breast cancer", "digits 4 and 9"):
        rng = np.random.default_rng([seed, len(name)])
        X, y = load(name.split(" 4")[0])
        if name[0] == "d":
            X, y = X[np.isin(y, (4, 9))], y[np.isin(y, (4, 9))] == 9
        groups = (X[:, 0] <= np.quantile(X[:, 0], 0.2)) if name[0] == "b" else X.sum(1) >= np.quantile(X.sum(1), 0.8)
        order = rng.permutation(len(y))
        rows = scaled(X)[0][order], np.asarray(y, dtype=bool)[order], groups[order].astype(int)
        yield name, (*rows, len(y) // 2, rng)


def fits(X: Any, y: Any, groups: Any, fairlearn: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"ERM": LogisticRegression().fit(X, y)}
    for aggregate, m in (("worst-group", 0), ("worst-group", 0.05), ("worst-group", 0.1), ("group-cvar", 0.1)):
        model = AoRRClassifier(m, aggregate=aggregate, random_state=0)
        found[f"{aggregate} m={m:g}"] = model.fit(X, y, groups=groups)
    return found | ({"fairlearn": bounded_group_loss(X, y, groups)} if fairlearn else {})


def bounded_group_loss(X: Any, y: Any, groups: Any) -> Any:
    """fairlearn's exponentiated gradient with BoundedGroupLoss, the bound that does best on the noisy training rows."""
    from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient, ZeroOneLoss

    models = []
    for bound in (0.1, 0.2, 0.3):
        model = ExponentiatedGradient(LogisticRegression(), BoundedGroupLoss(ZeroOneLoss(), upper_bound=bound))
        models.append(model.fit(X, y.astype(int), sensitive_features=groups) or model)
    return max(models, key=lambda model: worst(model, X, y, groups))


def worst(model: Any, X: Any, y: Any, groups: Any) -> float:
    """Accuracy in the worst group."""
    settings = {"random_state": 0} if type(model).__name__ == "ExponentiatedGradient" else {}
    right = np.asarray(model.predict(X, **settings)).astype(bool) == y
    return float(min(right[groups == g].mean() for g in np.unique(groups)))


def _means(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of the worst group by problem, and in how many problems each contender is above two of them."""
    found = rows.pivot_table(index="problem", columns="contender", values="worst_group_accuracy", sort=False)
    above = {f"above {name}": found.gt(found[name], axis=0).sum() for name in ("ERM", "worst-group m=0")}
    return pd.concat([found, pd.DataFrame(above).T])


@benchmark(_means, seeds=1)
def groups(seed: int = 10, seeds: int = 5, fairlearn: bool = False) -> Iterator[Row]:
    """Accuracy of the worst group on clean test rows: worst-group training with and without trimming, and ERM.

    Eight constructions: 1,000 training rows, 6 normal columns, a small group of 15% or 5% whose labels follow another
    direction (cosine .3 or .7), noise-free or with logistic noise of scale .5. Two real tables: breast cancer (the
    group is the lower fifth by mean radius) and digits, 4 against 9 (the fifth with the most ink). In the small group
    10% of the training labels are exchanged. All contenders are linear with C = 1 on scaled columns; `--fairlearn` adds
    its BoundedGroupLoss.
    """
    for draw in range(seed, seed + seeds):
        for name, (X, y, of, n, rng) in [*constructions(draw), *real(draw)]:
            given, small = y[:n].copy(), np.flatnonzero(of[:n] == 1)
            wrong = rng.choice(small, round(0.1 * len(small)), replace=False)
            given[wrong] = ~given[wrong]
            for contender, model in fits(X[:n], given, of[:n], fairlearn).items():
                accuracy = round(worst(model, X[n:], y[n:], of[n:]), 4)
                yield {"problem": name, "seed": draw, "contender": contender, "worst_group_accuracy": accuracy}
