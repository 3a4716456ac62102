"""Models around which the ranked range is put: boosted trees, forests and boosting libraries, with wrong labels.

60% of the rows train, at most 1,000 (digits 500), the rest tests; wrong labels are planted in the training part alone.
`plain` is the base fitted to the labels as they are, `clean` the same fitted to the true ones. What a method regains is
(method - plain) / (clean - plain), as a ratio of sums over cells, because single gaps can be close to zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import cross_val_predict

from rankrange import RankedRangeClassifier, RankedRangeRegressor
from rankrange.boosting import CatBoost, LightGBM, XGBoost, labels_of_scores

from .data import KINDS, PAPER, TABLES, codes, corrupt, table
from .harness import DATA, Row, benchmark, regained, rounded, spread, timed

# ---- classifiers -----------------------------------------------------------------------------------------------------


def split(name: str, seed: int, most: int) -> tuple[Any, Any, Any, Any]:
    """Training rows, their labels, test rows, theirs."""
    X, y = table(name)
    order = np.random.default_rng(seed).permutation(len(y))
    n = min(int(0.6 * len(y)), 500 if name == "digits" else most)
    train, test = order[:n], order[max(n, int(0.6 * len(y))) :][:3000]
    take = (lambda rows: X.iloc[rows].reset_index(drop=True)) if isinstance(X, pd.DataFrame) else (lambda rows: X[rows])
    return take(train), y[train], take(test), y[test]


def base_of(name: str, seed: int) -> Any:
    """An estimator of a library, in one thread."""
    if name == "hgb":
        return HistGradientBoostingClassifier(random_state=seed)
    if name == "forest":
        return RandomForestClassifier(random_state=seed)
    if name == "lightgbm":
        from lightgbm import LGBMClassifier

        return LGBMClassifier(verbose=-1, n_jobs=1, random_state=seed)
    if name == "xgboost":
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=100, n_jobs=1, random_state=seed)
    from catboost import CatBoostClassifier

    return CatBoostClassifier(**of_catboost(seed))


def of_catboost(seed: int) -> dict[str, Any]:
    """Settings of the plain fit and of that with the objective."""
    settings = {"iterations": 100, "learning_rate": 0.1, "boosting_type": "Plain", "leaf_estimation_iterations": 1}
    return settings | {"thread_count": 1, "random_seed": seed, "allow_writing_files": False, "verbose": 0}


def drawn_cells(sets: tuple, seed: int, tables: int | None) -> Iterator[tuple[str, str, float]]:
    """All tables with all kinds of noise, or so many tables drawn at random for each kind."""
    for i, (kind, rate) in enumerate(KINDS):
        chosen = sets if tables is None else np.random.default_rng([seed, i]).choice(sets, tables, replace=False)
        yield from ((str(name), kind, rate) for name in chosen)


def _any_model_table(rows: pd.DataFrame) -> pd.DataFrame:
    noisy = rows[rows["kind"] != "none"]
    found = regained(noisy, ["base", "kind", "rate"], ["ensemble", "single"])
    times = spread(noisy, ["base", "kind", "rate"], "ensemble_time").add_prefix("time, ")
    return found.join(times)


@benchmark(_any_model_table, seeds=1, sets=("titanic",), rows=200)
def any_model(
    seed: int = 0,
    seeds: int = 10,
    sets: tuple = (*PAPER, *TABLES),
    tables: int | None = None,
    base: str = "hgb",
    rows: int = 1000,
    cleanlab: bool = False,
) -> Iterator[Row]:
    """RankedRangeClassifier around boosted trees, forests or LightGBM: accuracy on right labels.

    `single` is the base fitted to the rows that the ensemble keeps; `--cleanlab` adds CleanLearning(base), which prunes
    and refits, with its defaults. Times are core seconds in units of a 5-fold cross-validation of the base.
    """
    for draw in range(seed, seed + seeds):
        for name, kind, rate in drawn_cells(sets, draw, tables):
            X, y, X_test, y_test = split(name, draw, rows)
            given = corrupt(X, y, kind, rate, draw)[1]
            X, X_test = (codes(X), codes(X_test)) if base == "forest" else (X, X_test)
            model = base_of(base, draw)
            unit = timed(cross_val_predict, model, X, given, cv=5, method="predict_proba")[1]
            ours, seconds = timed(RankedRangeClassifier(model, random_state=draw).fit, X, given)
            kept, wrong = np.flatnonzero(~ours.dropped_), given != y
            row: Row = {"base": base, "set": name, "kind": kind, "rate": rate, "seed": draw, "n": len(y)}
            few = X.iloc[kept] if isinstance(X, pd.DataFrame) else X[kept]
            fits = {"plain": clone(model).fit(X, given), "clean": clone(model).fit(X, y), "ensemble": ours}
            fits["single"] = clone(model).fit(few, given[kept])
            if cleanlab:
                from cleanlab.classification import CleanLearning

                fits["cleanlab"] = CleanLearning(clone(model), seed=draw).fit(X, given)
            for method, fit in fits.items():
                row[method] = 100 * float((np.ravel(fit.predict(X_test)) == y_test).mean())
            row |= {"ensemble_time": seconds / unit, "cut": ours.dropped_.mean(), "wrong": wrong.mean()}
            row["precision"] = wrong[ours.dropped_].mean() if ours.dropped_.any() else ""
            row["recall"] = ours.dropped_[wrong].mean() if wrong.any() else ""
            low, high = ours.noise_interval_
            yield rounded(row | {"estimate": ours.noise_estimate_, "low": low, "high": high}, 5)


# ---- objectives of boosting libraries --------------------------------------------------------------------------------

OF_TWO_CLASSES = ("monk", "australian", "phoneme", "titanic", "splice", "breast cancer", "mushrooms", "compas")
METHODS = ("plain", "clean", "objective known m", "objective m=.2", "classifier")


def by_objective(library: str, m: float, seed: int, X: Any, y: Any, X_test: Any) -> Any:
    """The labels that a run with the objective predicts."""
    base = base_of(library, seed)
    if library == "xgboost":
        return base.set_params(objective=XGBoost(m).objective).fit(X, y).predict(X_test)
    if library == "lightgbm":
        more = {"num_class": int(y.max()) + 1} if y.max() > 1 else {}
        model = base.set_params(objective=LightGBM(m).objective, **more).fit(X, y)
        return labels_of_scores(model.predict(X_test, raw_score=True))
    objective = CatBoost(m, n_rows=len(y)).objective
    model = base.__class__(loss_function=objective, eval_metric="Logloss", **of_catboost(seed)).fit(X, y)
    return labels_of_scores(model.predict(X_test, prediction_type="RawFormulaVal"))


def _predicted(model: Any, X: Any, y: Any, X_test: Any) -> Any:
    return model.fit(X, y).predict(X_test)


@benchmark(lambda rows: regained(rows, ["library", "noise", "rate"], METHODS[2:]), seeds=1, sets=("titanic",))
def boosting_objective(
    seed: int = 14, seeds: int = 2, library: str = "lightgbm", sets: tuple = (*PAPER, *TABLES)
) -> Iterator[Row]:
    """The ranked range inside one boosting run (LightGBM, XGBoost or CatBoost) against RankedRangeClassifier around it.

    `objective known m` has m = the true share of wrong labels, `objective m=.2` a guess. CatBoost has the tables of two
    classes. Needs the library.
    """
    for draw in range(seed, seed + seeds):
        for name in sets if library != "catboost" else OF_TWO_CLASSES:
            for kind, rate in KINDS:
                X, y, X_test, y_test = split(name, draw, 1000)
                given = corrupt(X, y, kind, rate, draw)[1]
                if library != "lightgbm":
                    X, X_test = codes(X), codes(X_test)
                base, m = base_of(library, draw), float((given != y).mean())
                wrapped = RankedRangeClassifier(base, random_state=draw)
                row: Row = {"library": library, "set": name, "noise": kind, "rate": rate, "seed": draw}
                for method in METHODS:
                    labels, share = (y if method == "clean" else given), m if "known" in method else 0.2
                    if method.startswith("objective"):
                        found, seconds = timed(by_objective, library, share, draw, X, labels, X_test)
                    else:
                        model = wrapped if method == "classifier" else clone(base)
                        found, seconds = timed(_predicted, model, X, labels, X_test)
                    row |= {f"{method} seconds": seconds, method: 100 * float((np.ravel(found) == y_test).mean())}
                yield rounded(row, 3)


# ---- regressors ------------------------------------------------------------------------------------------------------

NUMERIC = ("friedman1", "friedman2", "friedman3", "growing", "laplace", "heavy")
FILES = {"boston": "Boston.csv", "nox": "NOxEmissions.csv.gz"}
NUMERIC_CELLS = (
    ("none", 0.0),
    ("both sides", 0.05),
    ("both sides", 0.1),
    ("both sides", 0.2),
    ("upwards", 0.1),
    ("other", 0.2),
)


def numeric_table(name: str, seed: int, n: int = 1600) -> tuple[Any, Any]:
    """X and y: tables of known noise, and real ones with their rows in an order that the seed draws."""
    rng = np.random.default_rng(seed)
    if name.startswith("friedman"):
        kind = {"friedman1": make_friedman1, "friedman2": make_friedman2, "friedman3": make_friedman3}[name]
        X, y = kind(n, noise=0.0, random_state=seed)
        return X, y + 0.2 * y.std() * rng.normal(size=n)
    if name in NUMERIC:
        X = rng.normal(size=(n, 5))
        signal = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * X[:, 3]
        if name == "growing":
            return X, signal + (0.1 + np.abs(X[:, 4])) * rng.normal(size=n)
        return X, signal + 0.5 * (rng.laplace(size=n) if name == "laplace" else rng.standard_t(3, n))
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        frame = pd.read_csv(DATA / "robust_regression" / FILES[name])
        y, X = frame.pop("target").to_numpy(), frame.to_numpy(dtype=float)
    order = rng.permutation(len(y))
    return X[order], y[order]


def wrong_numbers(y: Any, kind: str, rate: float, seed: int) -> Any:
    """Targets shifted by 5 to 15 standard deviations to either side or upwards, or exchanged for those of others."""
    rng, given = np.random.default_rng([seed, 1]), y.copy()
    rows = rng.choice(len(y), round(rate * len(y)), replace=False)
    if kind == "other":
        given[rows] = y[np.roll(rows, 1)]
    elif kind != "none":
        sign = 1.0 if kind == "upwards" else rng.choice([-1.0, 1.0], len(rows))
        given[rows] += sign * rng.uniform(5, 15, len(rows)) * y.std()
    return given


@benchmark(lambda rows: regained(rows, ["base", "kind", "rate"], ["ensemble", "single"]), seeds=1, sets=("diabetes",))
def any_regressor(
    seed: int = 0, seeds: int = 5, sets: tuple = ("diabetes", "boston", "nox", *NUMERIC), base: str = "hgb"
) -> Iterator[Row]:
    """RankedRangeRegressor around boosted trees or forests: mean absolute error in standard deviations of the target.

    At most 600 rows train. `lost` is negative because a lower error is better. `growing`, `laplace` and `heavy` have
    noise that grows with a column, has a peak, or long tails; nothing is wrong there unless planted.
    """
    for draw in range(seed, seed + seeds):
        for name in sets:
            X, y = numeric_table(name, draw)
            n = min(int(0.6 * len(y)), 600)
            X, X_test, truth, y_test = X[:n], X[n : n + 1000], y[:n], y[n : n + 1000]
            for kind, rate in NUMERIC_CELLS:
                given = wrong_numbers(truth, kind, rate, draw)
                make = HistGradientBoostingRegressor if base == "hgb" else RandomForestRegressor
                unit = timed(cross_val_predict, make(random_state=draw), X, given, cv=5)[1]
                ours, seconds = timed(RankedRangeRegressor(make(random_state=draw), random_state=draw).fit, X, given)
                kept, wrong = ~ours.dropped_, given != truth
                fits = {"plain": (X, given), "clean": (X, truth), "single": (X[kept], given[kept])}
                models = {method: make(random_state=draw).fit(*rows) for method, rows in fits.items()}
                row: Row = {"base": base, "set": name, "kind": kind, "rate": rate, "seed": draw, "n": n}
                for method, fit in {**models, "ensemble": ours}.items():
                    row[method] = float(np.abs(fit.predict(X_test) - y_test).mean() / truth.std())
                row |= {"time": seconds / unit, "dropped": ours.dropped_.mean()}
                row["precision"] = wrong[~kept].mean() if not kept.all() else ""
                row["recall"] = (~kept)[wrong].mean() if wrong.any() else ""
                yield rounded(row, 5)
