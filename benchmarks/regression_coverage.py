"""Coverage of 95% intervals of robust regression by simulation, and the efficiency of the estimates.

y = sum of p standard normal predictors + standard normal noise. "vertical": 10 is added to 20% of targets. "leverage":
20% of the rows lie 10 standard deviations out in every predictor and follow the plane with all slopes reversed. "weak
leverage": 5 out, and their targets are noise about 0; there a fit without any slope explains the outliers, and with few
rows the optimum of the trimmed problem itself contains them. Shares of the coefficients inside their 95% intervals, by
`summary()`; the efficiency is the ratio of the variances of least squares and of the estimate on clean data.

Samples are many, so the search takes n_starts=1. From 200 rows on, MM-estimates of all samples are computed together:
the equations of the S- and the M-estimate are solved from the true coefficients on, without a search, and standard
errors come from the functions of the library. The first 50 samples of each cell are fitted with the default settings as
well: `like_default` is the share of them whose coefficients and intervals are the same to 1e-5.
"""

from __future__ import annotations

import argparse
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.linear_model import LinearRegression

import record
from rankrange import AoRRRegressor
from rankrange.inference.bisquare import FOR_BREAKDOWN, constant_of, weight
from rankrange.inference.bootstrap import draws, resampled_mm
from rankrange.inference.influence import mm_covariance
from rankrange.inference.mm import m_scale
from rankrange.solvers.elemental import TrimmedSquares

METHODS = {"MM": {"step": "mm"}, "reweighted LTS": {"step": "reweight"}}
KINDS = ("clean", "vertical", "leverage", "weak leverage")
_LIKE, _TOGETHER, _BOOTSTRAP = 50, 200, 200


def simulated(n: int, p: int, kind: str, rng: np.random.Generator, share: float = 0.2) -> tuple[Any, Any]:
    """Rows as described at the head of this file; outliers come first."""
    X, bad = rng.normal(size=(n, p)), int(share * n)
    if "leverage" in kind:
        X[:bad] += 5.0 if "weak" in kind else 10.0
    y = X.sum(axis=1) + rng.normal(size=n)
    if kind == "vertical":
        y[:bad] += 10.0
    elif kind == "leverage":
        y[:bad] -= 2.0 * X[:bad].sum(axis=1)
    elif kind == "gross leverage":
        y[:bad] = rng.normal(size=bad) - 1000.0
    elif kind == "weak leverage":
        y[:bad] = rng.normal(size=bad)
    return X, y


def coverage(given: argparse.Namespace) -> None:
    for n in given.n:
        for p in (2, 5):
            for kind in given.kinds:
                for method in given.methods:
                    row = _cell(n, p, kind, method, given)
                    print(
                        f"{n:5} {p} {kind:14} {method:15} covered {row['covered']:.4f} {row['efficiency']}", flush=True
                    )
                    record.append("regression_coverage", [row])


def _cell(n: int, p: int, kind: str, method: str, given: argparse.Namespace) -> dict[str, Any]:
    truth = np.append(np.ones(p), 0.0)
    seeds = range(given.first_seed, given.first_seed + given.repeats)
    samples = [simulated(n, p, kind, np.random.default_rng([seed, n, p])) for seed in seeds]
    together = method == "MM" and n >= _TOGETHER
    many = _solved_together(samples, truth) if together else _fitted(samples, method, given.n_starts)
    few = _fitted(samples[:_LIKE], method, 10)
    same = [np.abs(a[: len(b)] - b).max(axis=1) <= 1e-5 for a, b in zip(many, few, strict=True)]
    inside = np.abs(many[0] - truth) <= many[1]
    plain = [_least_squares(X, y) - truth for X, y in samples] if kind == "clean" else []
    return {
        "n": n, "p": p, "kind": kind, "method": method, "covered": round(float(np.mean(inside)), 4),
        "worst_coefficient": round(float(np.mean(inside, axis=0).min()), 4),
        "efficiency": round(float(np.var(plain) / np.var(many[0] - truth)), 3) if plain else "",
        "repeats": given.repeats, "first_seed": given.first_seed,
        "n_starts": "together" if together else given.n_starts,
        "like_default": round(float(np.mean(same[0] & same[1])), 3),
    }  # fmt: skip


def _least_squares(X: Any, y: Any) -> Any:
    line = LinearRegression().fit(X, y)
    return np.append(line.coef_, line.intercept_)


def _fitted(samples: list[Any], method: str, n_starts: int) -> tuple[Any, Any]:
    """Coefficients, the intercept last, and half the lengths of their intervals, by the estimator."""
    found, reach = [], []
    for X, y in samples:
        model = AoRRRegressor("half", C=np.inf, n_starts=n_starts, random_state=0, **METHODS[method]).fit(X, y)
        summary = model.summary()
        found.append(np.roll(summary.coef, -1))
        reach.append(np.roll(np.ptp(summary.conf_int(), axis=1) / 2, -1))
    return np.array(found), np.array(reach)


def _solved_together(samples: list[Any], truth: Any, at_once: int = 200) -> tuple[Any, Any]:
    """The same for MM-estimates, many samples at a time."""
    found, reach = [], []
    for start in range(0, len(samples), at_once):
        some = samples[start : start + at_once]
        Z = np.stack([np.column_stack([X, np.ones(len(y))]) for X, y in some])
        y = np.stack([y for _, y in some])
        c = constant_of(0.95)
        first, scale = _iterated(Z, y, np.tile(truth, (len(y), 1)), None, FOR_BREAKDOWN)
        b, _ = _iterated(Z, y, first, scale, c)
        found.append(b)
        reach.append([_half_length(*of, c) for of in zip(Z, y, b, first, scale, strict=True)])
    return np.concatenate(found), np.concatenate(reach)


def _iterated(Z: Any, y: Any, b: Any, scale: Any, c: float) -> tuple[Any, Any]:
    """Reweighted least squares (samples, p) from b on, with the scale held, or as the S-estimate's if it is None."""
    moving, b, p = np.arange(len(b)), b.copy(), b.shape[1]
    s = m_scale(_residuals(Z, y, b), p) if scale is None else scale
    for _ in range(2000):
        A = Z[moving]
        w = weight(_residuals(A, y[moving], b[moving]) / s[moving, None], c)
        weighted = (A * w[:, :, None]).transpose(0, 2, 1)
        after = np.linalg.solve(weighted @ A, weighted @ y[moving][:, :, None])[:, :, 0]
        far = np.abs(after - b[moving]).max(axis=1) > 1e-9
        b[moving] = after
        if scale is None:
            s[moving] = m_scale(_residuals(A, y[moving], after), p, s[moving], 1)
        moving = moving[far]
        if not len(moving):
            break
    return b, m_scale(_residuals(Z, y, b), p, s) if scale is None else s


def _residuals(Z: Any, y: Any, b: Any) -> Any:
    return y - (Z @ b[:, :, None])[:, :, 0]


@lru_cache(maxsize=2)
def _draws(n: int) -> Any:
    return draws(n, np.random.default_rng(0))


def _half_length(Z: Any, y: Any, b: Any, first: Any, scale: float, c: float) -> Any:
    n, p = Z.shape
    P = np.zeros((p, p))
    if n <= _BOOTSTRAP:
        moved = resampled_mm(TrimmedSquares(Z, y, n, P), b, first, scale, c, _draws(n))
        low, high = np.quantile(moved, (0.158655, 0.841345), axis=0)
        bse = (high - low) / 2
    else:
        bse = np.sqrt(np.diag(mm_covariance(Z, P, y - Z @ b, y - Z @ first, scale, c)))
    return student.ppf(0.975, n - p) * bse
