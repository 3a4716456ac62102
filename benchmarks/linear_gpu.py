"""Fits of rows on a GPU: seconds, certificates, and the objective against the fit on the CPU.

    python benchmarks/linear_gpu.py [--check] [--tune 1e8x30] [--record] [--sizes 1e8x30 1e7x100] [--auto 1e7x30]

Rows are drawn on the device: normal columns, labels by a logistic model with slopes of norm 2, and 8% of the rows three
times as far out with their label flipped. Each time is the median of `--repeats` fits after one that is not counted,
between two calls of torch.cuda.synchronize, X and y on the device; "host" is what is left of it outside of passes.
  AoRR          m=0.1, k=1.0 and m=0.1, k=0.9
  ordinary      m=0, k=1.0 by the same code
  Newton        twelve lines of eager PyTorch, float64 sums of float32 rows, from zero to a step of 1e-6
  scikit-learn  LogisticRegression, lbfgs, array API dispatch, where the installed version takes tensors
  CPU           the fit on the CPU in float64, and the objective on the device over it, less 1, at two tolerances
--check compares the kernel with eager float64 on random odd shapes first; --tune times one pass with several tiles.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import traceback
import warnings
from pathlib import Path

os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import sklearn
import torch
from sklearn.linear_model import LogisticRegression

import record
from rankrange import AoRRClassifier
from rankrange.device import device_rows, passes
from rankrange.shards.shard_kernels import Interval, Model, Request


def draw(n: int, d: int, device: str, seed: int = 0):
    """X (n, d) float32 and y (n,) bool, some rows at a time."""
    generator = torch.Generator(device).manual_seed(seed)
    w = torch.randn(d, generator=generator, device=device)
    w *= 2.0 / w.norm()
    X = torch.empty(n, d, device=device)
    y = torch.empty(n, dtype=torch.bool, device=device)
    for start in range(0, n, 1 << 22):
        rows = slice(start, min(start + (1 << 22), n))
        x = X[rows].normal_(generator=generator)
        u, v = torch.rand(2, len(x), generator=generator, device=device)
        bad = v < 0.08
        y[rows] = (x @ w + torch.logit(u) > 0) ^ bad
        x[bad] *= 3.0
    return X, y


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(run) -> tuple[float, object]:
    wait()
    start = time.perf_counter()
    result = run()
    wait()
    return time.perf_counter() - start, result


class Clock:
    """Seconds inside of the engine, counted while a fit runs."""

    def __init__(self) -> None:
        self.inside, self.parts = 0.0, {}

    def __enter__(self):
        names = "reduce", "lazy_rows", "hessian", "sure_at", "some"
        self._kept = {name: getattr(device_rows.DeviceRows, name) for name in names}
        for name, method in self._kept.items():
            setattr(device_rows.DeviceRows, name, self._timed(name, method))
        return self

    def _timed(self, name, method):
        def timed(rows, *arguments):
            spent, result = seconds(lambda: method(rows, *arguments))
            kind = getattr(arguments[0], "__name__", name) if arguments and name == "reduce" else name
            self.inside += spent
            self.parts[kind] = self.parts.get(kind, 0.0) + spent
            return result

        return timed

    def __exit__(self, *exception):
        for name, method in self._kept.items():
            setattr(device_rows.DeviceRows, name, method)


def newton(X, y, C: float = 1.0):
    """An ordinary logistic fit by Newton's method, in plain PyTorch."""
    n, d = X.shape
    t = y.to(X.dtype) * 2 - 1
    w = torch.zeros(d + 1, dtype=torch.float64, device=X.device)
    ridge = torch.ones_like(w) / (C * n)
    ridge[-1] = 0.0
    steps = 0
    while steps < 30:
        steps += 1
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
    return w, steps


def timed_fit(kind: str, X, y, repeats: int, **settings) -> dict:
    """The median of several fits, and what the last one found."""

    def fit():
        return AoRRClassifier(random_state=0, **settings).fit(X, y)

    times = [seconds(fit) for _ in range(repeats + 1)][1:]
    model = times[-1][1]
    with Clock() as clock:
        whole, _ = seconds(fit)
    parts = " ".join(f"{name}={spent:.3f}" for name, spent in clock.parts.items())
    return {
        "what": kind, "n": X.shape[0], "d": X.shape[1], "seconds": statistics.median(t for t, _ in times),
        "host": whole - clock.inside, "steps": model.n_passes_, "certificate": model.certificate_,
        "objective": model.objective_, "note": f"m_={model.m_} {parts}",
    }  # fmt: skip


def other(kind: str, X, run, note) -> dict:
    run()
    spent, result = seconds(run)
    return {
        "what": kind, "n": X.shape[0], "d": X.shape[1], "seconds": spent, "host": np.nan, "steps": note(result),
        "certificate": np.nan, "objective": np.nan, "note": "",
    }  # fmt: skip


def by_scikit_learn(X, y):
    with sklearn.config_context(array_api_dispatch=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LogisticRegression(C=1.0, solver="lbfgs").fit(X, y.to(X.dtype))


def against_cpu(n: int, d: int, device: str) -> list[dict]:
    """The same rows on the CPU and on the device: the relative difference of the objectives."""
    X, y = draw(n, d, device, seed=1)
    rows = []
    for m, k in ((0.1, 1.0), (0.1, 0.9), (0, 1.0)):
        settings = {"m": m, "k": k, "tol": 1e-9, "random_state": 0}
        spent, cpu = seconds(lambda s=settings: AoRRClassifier(**s).fit(X.cpu().double().numpy(), y.cpu().numpy()))
        there = AoRRClassifier(**settings, device=device).fit(X, y)
        usual = AoRRClassifier(m=m, k=k, random_state=0, device=device).fit(X, y)
        apart = int((cpu.dropped_ != there.dropped_).sum())
        differences = there.objective_ / cpu.objective_ - 1.0, usual.objective_ / cpu.objective_ - 1.0
        rows.append({
            "what": f"CPU m={m} k={k}", "n": n, "d": d, "seconds": spent, "host": np.nan, "steps": cpu.n_iter_,
            "certificate": there.certificate_, "objective": there.objective_,
            "note": "tol=1e-9: {:.1e} tol=1e-6: {:.1e}".format(*differences) + f" dropped by one alone: {apart}",
        })  # fmt: skip
    return rows


def check(device: str) -> None:
    """The kernel against eager float64 on random odd shapes."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    import device_pass_checks as checks

    rng = np.random.default_rng(0)
    cases = list(checks.CASES)
    for number in range(10):  # each takes a compilation
        loss = ("logistic", "logistic", "squared", "huber")[number % 4]
        low = None if rng.random() < 0.4 else tuple(np.sort(rng.uniform(0.5, 1.0, 2)))
        high = None if rng.random() < 0.3 else tuple(np.sort(rng.uniform(0.0, 0.5, 2)))
        dtype = torch.float32 if rng.random() < 0.7 else torch.float64
        n, d = int(10 ** rng.uniform(0, 5.5)), int(rng.integers(1, 140))
        cases.append((n, d, loss, rng.random() < 0.8, rng.random() < 0.5, loss == "logistic" and rng.random() < 0.3,
                      dtype, (low, high)))  # fmt: skip
    worst = max((checks.check_pass(case, device, seed), case[:3]) for seed, case in enumerate(cases))
    print(
        f"kernel against eager float64: {len(cases)} shapes, largest relative error of a sum {worst[0]:.1e} {worst[1]}"
    )


def tune(n: int, d: int, device: str) -> None:
    """Milliseconds of one pass with several tile sizes."""
    X, y = draw(n, d, device)
    data = passes.Data(X, 2 * y.to(torch.int8) - 1, None, Model("logistic", 1, True, np.dtype(float), np.array([0, 1])))
    W = np.full((1, d + 1), 0.1)
    size = X.numel() * 4 / 1e9
    usual = passes.BLOCK, passes.WARPS, passes._PROGRAMS_PER_PROCESSOR
    for block, warps, programs in ((128, 4, 12), (128, 4, 24), (256, 8, 12), (256, 4, 12), (64, 2, 24)):
        passes.BLOCK, passes.WARPS, passes._PROGRAMS_PER_PROCESSOR = block, warps, programs
        try:
            run = passes.FusedPass(data)
            both = []
            for call in (
                lambda r=run: r.sums(Request(W, None, Interval(3.0, 3.0001))),
                lambda r=run: r.losses(W, 0, min(n, r.chunk)),
            ):
                call()
                both.append(min(seconds(call)[0] for _ in range(5)))
        except Exception as error:
            print(f"  tile {block} warps {warps}: {type(error).__name__} {str(error)[:80]}")
            continue
        print(f"  {n:.0e} x {d}: tile {block:3} warps {warps} programs {programs:2}: sums {1e3 * both[0]:6.2f} ms, "
              f"{size / both[0]:5.0f} GB/s; losses of {min(n, run.chunk)} {1e3 * both[1]:6.2f} ms")  # fmt: skip
    passes.BLOCK, passes.WARPS, passes._PROGRAMS_PER_PROCESSOR = usual


def shapes(texts: list[str]) -> list[tuple[int, int]]:
    return [(int(float(n)), int(d)) for n, d in (text.split("x") for text in texts)]


def fits(n: int, d: int, device: str, repeats: int, own: dict, add) -> None:
    X, y = draw(n, d, device)
    add(timed_fit("AoRR m=0.1 k=1.0", X, y, repeats, m=0.1, k=1.0, **own))
    add(timed_fit("AoRR m=0.1 k=0.9", X, y, repeats, m=0.1, k=0.9, **own))
    add(timed_fit("ordinary m=0 k=1.0", X, y, repeats, m=0, k=1.0, **own))
    add(other("Newton, PyTorch", X, lambda: newton(X, y), lambda found: found[1]))
    try:
        add(other("scikit-learn lbfgs", X, lambda: by_scikit_learn(X, y), lambda m: int(np.max(on_host(m.n_iter_)))))
    except Exception as error:
        print(
            f"scikit-learn {sklearn.__version__} does not take these tensors: {type(error).__name__} {str(error)[:100]}"
        )


def automatic(n: int, d: int, device: str, own: dict, add) -> None:
    X, y = draw(n, d, device)
    add(timed_fit("AoRR m=auto", X, y, 1, m="auto", **own))
    add(timed_fit("AoRR m=auto C=auto", X, y, 1, m="auto", C="auto", **own))


def attempt(run) -> None:
    """One part of the benchmark; what fails is shown, and the others go on."""
    try:
        run()
    except Exception:
        print(traceback.format_exc()[-1500:], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", nargs="*", default=["1e6x30", "1e7x30", "1e7x100", "1e8x30"])
    parser.add_argument("--auto", nargs="*", default=["1e7x30"])
    parser.add_argument("--cpu", nargs="*", default=["1e6x30"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--tune", nargs="*", default=[])
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    name = torch.cuda.get_device_name() if given.device.startswith("cuda") else record.circumstances()["device"]
    print(f"{name}, torch {torch.__version__}, scikit-learn {sklearn.__version__}", flush=True)
    rows: list[dict] = []

    def add(*found: dict) -> None:
        rows.extend(found)
        for row in found:
            print(f"{row['n']:.0e} x {row['d']:3}  {row['what']:22} {row['seconds']:8.3f} s  host {row['host']:6.3f}  "
                  f"{row['steps']:3} steps  gap {row['certificate']:8.1e}  {row['note']}", flush=True)  # fmt: skip

    own = {"device": given.device} if given.device == "cpu" else {}
    if given.check:
        attempt(lambda: check(given.device))
    for n, d in shapes(given.sizes):
        attempt(lambda n=n, d=d: fits(n, d, given.device, given.repeats, own, add))
    for n, d in shapes(given.auto):
        attempt(lambda n=n, d=d: automatic(n, d, given.device, own, add))
    for n, d in shapes(given.tune):
        attempt(lambda n=n, d=d: tune(n, d, given.device))
    for n, d in shapes(given.cpu):
        attempt(lambda n=n, d=d: add(*against_cpu(n, d, given.device)))
    if given.record:
        versions = {"torch": torch.__version__, "scikit-learn": sklearn.__version__}
        print(record.append("linear_gpu", [{**versions, **row} for row in rows], name))


def on_host(values):
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values


if __name__ == "__main__":
    main()
