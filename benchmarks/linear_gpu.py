"""Fits of rows on a GPU: seconds, certificates, and the objective against the fit on the CPU.

Rows are drawn on the device: normal columns, labels by a logistic model whose scores have standard deviation 2, and 8%
of the rows three times as far out with their label flipped. Times are between two calls of torch.cuda.synchronize, X
and y on the device, after a fit that is not counted.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from rankrange import AoRRClassifier

from .harness import Row, benchmark, rounded, spread

KINDS = ("normal", "heavy-tailed", "correlated", "binary", "unscaled")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def columns(rows: int, d: int, kind: str, generator: Any) -> Any:
    """Rows of one kind: normal; t with 3 degrees; neighbours correlated by .9; 0 or 1; scales from 1e-3 to 1e3."""
    x = torch.empty(rows, d, device=DEVICE).normal_(generator=generator)
    if kind == "heavy-tailed":
        x /= torch.empty(rows, 3, device=DEVICE).normal_(generator=generator).pow_(2).mean(1, keepdim=True).sqrt_()
    elif kind == "correlated":
        for j in range(1, d):
            x[:, j] = 0.9 * x[:, j - 1] + 0.19**0.5 * x[:, j]
    elif kind == "binary":
        x = (x > torch.linspace(-1, 1.5, d, device=DEVICE)).to(x.dtype)
    elif kind == "unscaled":
        x *= torch.logspace(-3, 3, d, device=DEVICE)
    return x


def draw(n: int, d: int, seed: int = 0, kind: str = "normal", flips: float = 0.08) -> tuple[Any, Any]:
    """X (n, d) float32 and y (n,) bool, some rows at a time."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    w = torch.randn(d, generator=generator, device=DEVICE)
    first = columns(min(n, 10_000), d, kind, generator)
    w /= first.std(0) + 1e-9
    score = first @ w
    w, centre = w * (2.0 / score.std()), score.mean() * (2.0 / score.std())
    X, y = torch.empty(n, d, device=DEVICE), torch.empty(n, dtype=torch.bool, device=DEVICE)
    for start in range(0, n, 1 << 22):
        rows = slice(start, min(start + (1 << 22), n))
        x = X[rows]
        x.copy_(columns(len(x), d, kind, generator))
        u, v = torch.rand(2, len(x), generator=generator, device=DEVICE)
        bad = v < flips
        y[rows] = (x @ w - centre + torch.logit(u) > 0) ^ bad
        if kind != "binary":
            x[bad] *= 3.0
    return X, y


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    wait = torch.cuda.synchronize if DEVICE == "cuda" else (lambda: None)
    wait()
    start = time.perf_counter()
    result = run()
    wait()
    return time.perf_counter() - start, result


def newton(X: Any, y: Any, C: float = 1.0) -> int:
    """An ordinary logistic fit by Newton's method in plain PyTorch, from zero to a step of 1e-6: its steps."""
    n, d = X.shape
    t = y.to(X.dtype) * 2 - 1
    w = torch.zeros(d + 1, dtype=torch.float64, device=X.device)
    ridge = torch.ones_like(w) / (C * n)
    ridge[-1] = 0.0
    for steps in range(1, 31):  # noqa: B007 - the number of steps is the result
        q = torch.sigmoid(-t * (X @ w[:-1].float() + w[-1].float()))
        u, h = -t * q, q * (1 - q)
        gradient = torch.cat([(u @ X).double(), u.sum(dtype=torch.float64)[None]]) / n + ridge * w
        H = torch.zeros(d + 1, d + 1, dtype=torch.float64, device=X.device)
        for start in range(0, n, 1 << 23):
            rows = slice(start, start + (1 << 23))
            weighted = X[rows] * h[rows, None]
            H[:d, :d] += weighted.T @ X[rows]
            H[:d, d] += weighted.sum(0, dtype=torch.float64)
        H[d, :d], H[d, d] = H[:d, d], h.sum(dtype=torch.float64)
        change = torch.linalg.solve(H / n + torch.diag(ridge), gradient)
        w -= change
        if float(change.abs().max()) < 1e-6:
            break
    return steps


def fitted(X: Any, y: Any, repeats: int, **settings: Any) -> Row:
    """The median of several fits, and what the last one found."""
    times = [seconds(lambda: AoRRClassifier(random_state=0, **settings).fit(X, y)) for _ in range(repeats + 1)][1:]
    model = times[-1][1]
    row: Row = {"n": X.shape[0], "d": X.shape[1], "seconds": statistics.median(t for t, _ in times)}
    row |= {"passes": getattr(model, "n_passes_", ""), "certificate": f"{model.certificate_:.1e}"}
    return row | {"objective": model.objective_, "m_": model.m_, "C_": model.C_}


SETTINGS: dict[str, dict[str, Any]] = {
    "AoRR m=0.1 k=1.0": {"m": 0.1, "k": 1.0},
    "AoRR m=0.1 k=0.9": {"m": 0.1, "k": 0.9},
    "ordinary m=0": {"m": 0, "k": 1.0},
    "AoRR m=auto": {"m": "auto"},
    "AoRR m=0.1 C=auto": {"m": 0.1, "k": 1.0, "C": "auto"},
}


@benchmark(
    lambda rows: rows.set_index(["n", "d", "what"]), sizes=("4000x4",), auto=("4000x4",), cpu=("4000x4",), repeats=1
)
def linear_gpu(
    seed: int = 0,
    sizes: tuple = ("1e8x30", "1e7x100", "1e7x30", "1e6x30"),
    auto: tuple = ("1e7x30",),
    cpu: tuple = ("1e6x30",),
    repeats: int = 3,
) -> Iterator[Row]:
    """Seconds of fits with given and automatic m and C, and of Newton's method; the CPU's objective."""
    for size in dict.fromkeys([*sizes, *auto, *cpu]):
        n, d = (int(float(part)) for part in size.split("x"))
        X, y = draw(n, d, seed)
        for what, settings in SETTINGS.items():
            if size in (auto if "auto" in what else sizes):
                yield rounded({"what": what, **fitted(X, y, 1 if "auto" in what else repeats, **settings)}, 8)
        empty = dict.fromkeys(("passes", "certificate", "objective", "m_", "C_"), "")
        if size in sizes:
            newton(X, y)
            spent, steps = seconds(lambda X=X, y=y: newton(X, y))
            yield rounded({"what": "Newton, PyTorch", "n": n, "d": d, "seconds": spent, **empty, "passes": steps})
        for m, k in ((0.1, 1.0), (0.1, 0.9), (0, 1.0)) if size in cpu else ():
            settings = {"m": m, "k": k, "tol": 1e-9}
            there = fitted(X, y, 1, **settings)
            host = fitted(X.cpu().double().numpy(), y.cpu().numpy(), 1, **settings)
            row = {"what": f"CPU m={m} k={k}", **host, "objective": there["objective"] / host["objective"] - 1}
            yield rounded(row, 12)


@benchmark(lambda rows: spread(rows.assign(all=""), "all", "ratio"), count=1, rows=5000)
def linear_gpu_random(seed: int = 0, count: int = 20, rows: int = 10**7) -> Iterator[Row]:
    """Seconds over those of Newton's method on all rows, on problems drawn at random.

    n from 10^6 to 10^7, d from 5 to 100, five kinds of columns, 0 to 20% of the labels flipped, m from 0 to .3, k from
    .7 to 1.
    """
    for number in range(count):
        own = 1000 * seed + number
        rng = np.random.default_rng([29, own])
        n, d = min(rows, int(10 ** rng.uniform(6, 7))), int(5 * 20 ** rng.uniform())
        flips = float(rng.choice([0.0, 0.02, 0.08, 0.2]))
        m, k = float(rng.choice([0.0, flips, flips + 0.02, 0.3])), float(rng.choice([1.0, 1.0, 0.9, 0.7]))
        kind = str(rng.choice(KINDS))
        X, y = draw(n, d, own, kind, flips)
        row = fitted(X, y, 1, m=round(m, 2), k=k)
        newton(X, y)
        row |= {"kind": kind, "flips": flips, "m": round(m, 2), "k": k, "seed": own}
        yield rounded(row | {"ratio": row["seconds"] / seconds(lambda X=X, y=y: newton(X, y))[0]}, 8)
