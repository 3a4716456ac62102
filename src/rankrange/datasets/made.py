"""Generated data sets: Monk from its rule, Titanic from its contingency table, the toy sets from a seed."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr
from sklearn.utils import Bunch, check_random_state

from .files import Store, Table, bunch, read_table


def _make_monk() -> Bunch:
    """MONK-3 on all 432 cells of its grid, in the order of UCI's monks-3.test."""
    sizes = (3, 3, 2, 3, 4, 2)
    grid = np.array(list(itertools.product(*(range(1, size + 1) for size in sizes))), dtype=np.float64)
    _, a2, _, a4, a5, _ = grid.T
    target = ((a5 == 3) & (a4 == 1)) | ((a5 != 4) & (a2 != 3))
    return bunch(
        "monk",
        grid,
        target.astype(np.int64),
        [f"a{i}" for i in range(1, 7)],
        ("false", "true"),
        "its rule",
        "MONK-3 on its whole grid, without noise: (a5 = 3 and a4 = 1) or (a5 != 4 and a2 != 3).",
        verified="made here",
    )


# Class, Age, Sex as KEEL codes them, and how many died and survived.
_FIRST, _SECOND, _THIRD, _CREW = -1.87, -0.923, 0.0214, 0.965
_ADULT, _CHILD, _FEMALE, _MALE = -0.228, 4.38, -1.92, 0.521
_TITANIC = {
    (_FIRST, _CHILD, _MALE): (0, 5),
    (_FIRST, _CHILD, _FEMALE): (0, 1),
    (_FIRST, _ADULT, _MALE): (118, 57),
    (_FIRST, _ADULT, _FEMALE): (4, 140),
    (_SECOND, _CHILD, _MALE): (0, 11),
    (_SECOND, _CHILD, _FEMALE): (0, 13),
    (_SECOND, _ADULT, _MALE): (154, 14),
    (_SECOND, _ADULT, _FEMALE): (13, 80),
    (_THIRD, _CHILD, _MALE): (35, 13),
    (_THIRD, _CHILD, _FEMALE): (17, 14),
    (_THIRD, _ADULT, _MALE): (387, 75),
    (_THIRD, _ADULT, _FEMALE): (89, 76),
    (_CREW, _ADULT, _MALE): (670, 192),
    (_CREW, _ADULT, _FEMALE): (3, 20),
}


def _make_titanic() -> Bunch:
    rows = [(*cell, label) for cell, counts in _TITANIC.items() for label in (0, 1) for _ in range(counts[label])]
    # Shuffled with a fixed seed: folds of consecutive rows would otherwise contain only a few cells.
    values = np.array(rows)[np.random.RandomState(0).permutation(len(rows))]
    return bunch(
        "titanic",
        np.ascontiguousarray(values[:, :3]),
        values[:, 3].astype(np.int64),
        ("Class", "Age", "Sex"),
        ("died", "survived"),
        "its contingency table",
        "Who survived, by class, age and sex in KEEL's codes: 24 different rows with the label, so losses tie.",
        verified="made here",
    )


MADE: dict[str, Callable[[], Bunch]] = {"monk": _make_monk, "titanic": _make_titanic}


@dataclass(frozen=True)
class _Toy:
    """A mixture of Gaussians in the plane, with equal variance and centres (c, c), and outliers of class 1.

    Without outliers the Bayes rule is linear, and its error is known. `spread` and `outlier_spread` are the standard
    deviations of the clusters and of the outliers. `file` has the paper's own points, and `table` its properties.
    """

    modes: tuple[tuple[float, float], ...]  # clusters of class 1: (c, share of the class)
    other: float  # c of class 0
    share: float  # of class 0 among all rows
    outlier: tuple[float, float]  # the centre of the outliers of class 1
    file: str
    table: Table
    paper_slope: float  # of the Bayes rule of the paper's own points: class 1 if slope * (x1 + x2) + 1 > 0
    paper_error: float  # its error
    spread: float = 0.22
    outlier_spread: float = 0.1

    def bayes(self) -> tuple[float, float]:
        """The threshold t of the Bayes rule "class 1 if x1 + x2 < t", and the error of the rule, as a share."""
        centres, shares = np.sqrt(2.0) * np.array([c for c, _ in self.modes]), np.array([p for _, p in self.modes])
        other, s = np.sqrt(2.0) * self.other, self.spread  # along the diagonal, where the centres lie

        def log_odds(u: float) -> float:
            of_one = logsumexp(-((u - centres) ** 2) / (2 * s**2), b=(1 - self.share) * shares)
            return float(of_one + (u - other) ** 2 / (2 * s**2) - math.log(self.share))

        u = brentq(log_odds, centres.max(), other, xtol=1e-14)  # the odds decrease in u, so there is one root
        wrong_one = (1 - self.share) * shares @ ndtr((centres - u) / s)
        return math.sqrt(2.0) * u, float(wrong_one + self.share * ndtr((u - other) / s))


TOYS = {
    "toy_multimodal": _Toy(
        modes=((0.0, 0.9), (1.0, 0.1)),
        other=2.0,
        share=0.5,
        outlier=(2.0, 2.5),
        file="synthetic_data4_1.csv.gz",
        table=Table(
            200, 2, (100,), "f4af8e0ac2b8872febefdb2290631eb6eae69fe271153788f35f028da4575666", "", labels=("-1", "+1")
        ),
        paper_slope=-0.3472222222222222,
        paper_error=0.00018077714750150268,
    ),
    "toy_imbalanced": _Toy(
        modes=((0.0, 1.0),),
        other=1.0,
        share=0.02,
        outlier=(1.0, 1.15),
        file="synthetic_data6_1.csv.gz",
        table=Table(
            200, 2, (196,), "39b9db2d2da038ef5e179480b7672c086d65fc24f36793ba9271eeb01e60394f", "", labels=("-1", "+1")
        ),
        paper_slope=-0.8403361344537812,
        paper_error=0.00014419119682723122,
    ),
}


def load_toy(name: str, store: Store, options: dict[str, Any]) -> Bunch:
    """A toy set (a key of `TOYS`) from its generator or, with source="paper", from the paper's file in the folder.

    `options` are those of `load`; the first row of the paper's file is its outlier.
    """
    toy, source = TOYS[name], options.get("source", "generated")
    allowed = {"source"} if source == "paper" else {"source", "n_samples", "n_outliers", "random_state"}
    if source not in ("generated", "paper"):
        raise ValueError(f"source must be 'generated' or 'paper', got {source!r}; choose one of the two")
    if not options.keys() <= allowed:
        raise TypeError(
            f"a toy set with source={source!r} takes the options {', '.join(sorted(allowed))}, got "
            f"{sorted(options.keys() - allowed)}; leave these out"
        )
    if source == "paper":
        path = store.find(toy.file)
        if path is None:
            raise store.missing(name, toy.file, "", f", or leave out source='paper' to have {name} made from a seed")
        data, target, _, _ = read_table(path, toy.table)
        outliers = np.arange(len(data)) == 0
        coef, intercept, error = [toy.paper_slope] * 2, 1.0, toy.paper_error
        where, verified = f"file {path}", "checksum"
    else:
        seeded = {"n_samples": 200, "n_outliers": 1, "random_state": 0} | options
        seeded.pop("source", None)
        data, target, outliers = _make_toy(toy, **seeded)
        intercept, error = toy.bayes()
        coef, where, verified = [-1.0, -1.0], f"a generator with {seeded}", "made here"
    facts = f"Two classes in the plane; the first {outliers.sum()} rows are outliers of class 1 among class 0."
    more = {"bayes_coef": np.array(coef), "bayes_intercept": intercept, "bayes_error": error}
    return bunch(
        name, data, target, ("x1", "x2"), ("-1", "+1"), where, facts, outliers=outliers, verified=verified, **more
    )


def _make_toy(toy: _Toy, n_samples: int, n_outliers: int, random_state: Any) -> tuple[NDArray[Any], ...]:
    for option, value in (("n_samples", n_samples), ("n_outliers", n_outliers)):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise TypeError(f"{option} must be an int, got {value!r} of type {type(value).__name__}")
    n_zero = max(1, round(toy.share * n_samples))
    n_clean = n_samples - n_zero - n_outliers
    if n_outliers < 0 or n_clean < 1:
        raise ValueError(
            f"need n_outliers >= 0 and a clean row of each class, got n_outliers={n_outliers} of n_samples={n_samples} "
            f"with {n_zero} in class 0; lower n_outliers or raise n_samples"
        )
    counts = [round(share * n_clean) for _, share in toy.modes[1:]]
    counts = [n_clean - sum(counts), *counts, n_zero]
    centres = np.repeat([c for c, _ in toy.modes] + [toy.other], counts)[:, None]
    rng = check_random_state(random_state)
    far = toy.outlier + toy.outlier_spread * rng.standard_normal((n_outliers, 2))
    data = np.concatenate([far, centres + toy.spread * rng.standard_normal((n_clean + n_zero, 2))])
    rows = np.arange(n_samples)
    return data, (rows < n_samples - n_zero).astype(np.int64), rows < n_outliers
