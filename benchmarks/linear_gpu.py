"""Fits of rows on a GPU: seconds, certificates, and the objective against the fit on the CPU.

    python benchmarks/linear_gpu.py [--check] [--tune 1e8x30] [--record] [--sizes 1e8x30 1e7x100] [--auto 1e7x30]
                                    [--seed 0] [--random 20] [--profile 1e7x100] [--choices 2e5x10]

Rows are drawn on the device, from a seed: normal columns, labels by a logistic model whose scores have standard
deviation 2, and 8% of the rows three times as far out with their label flipped. `--random` draws problems instead: n
from 10^6 to 10^7, d from 5 to 100, five kinds of columns (`columns`), 0 to 20% of the labels flipped, m from 0 to .3, k
from .7 to 1; it reports seconds over those of Newton's method on all rows, median, 90% and worst. Each time is the
median of `--repeats` fits after one that is not counted, between two calls of torch.cuda.synchronize, X and y on the
device; "host" is what is left of it outside of passes.
  AoRR          m=0.1, k=1.0 and m=0.1, k=0.9
  ordinary      m=0, k=1.0 by the same code
  Newton        twelve lines of eager PyTorch, float64 sums of float32 rows, from zero to a step of 1e-6
  scikit-learn  LogisticRegression, lbfgs, array API dispatch, where the installed version takes tensors
  CPU           the fit on the CPU in float64, and the objective on the device over it, less 1, at two tolerances
--check compares the kernels with eager float64 on random odd shapes first; --tune times one pass with several tiles,
and the Hessian fused with score, loss, weight and gradient beside eager float64; --profile lists where one fit spends
its time, on the host and on the device; --choices compares the C and m chosen there with those of the CPU, on four
sets of labels of which 10% are wrong. RANKRANGE_COMMIT names the commit where there is no git.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
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
from rankrange.device import device_objective, device_rows, newton_pass, passes
from rankrange.shards.shard_kernels import Interval, Model, Request

KINDS = ("normal", "heavy-tailed", "correlated", "binary", "unscaled")


def columns(rows: int, d: int, kind: str, generator, device: str):
    """Rows of one kind: normal; t with 3 degrees; neighbours correlated by .9; 0 or 1; scales from 1e-3 to 1e3."""
    x = torch.empty(rows, d, device=device).normal_(generator=generator)
    if kind == "heavy-tailed":
        x /= torch.empty(rows, 3, device=device).normal_(generator=generator).pow_(2).mean(1, keepdim=True).sqrt_()
    elif kind == "correlated":
        for j in range(1, d):
            x[:, j] = 0.9 * x[:, j - 1] + 0.19**0.5 * x[:, j]
    elif kind == "binary":
        x = (x > torch.linspace(-1, 1.5, d, device=device)).to(x.dtype)
    elif kind == "unscaled":
        x *= torch.logspace(-3, 3, d, device=device)
    return x


def draw(n: int, d: int, device: str, seed: int = 0, kind: str = "normal", flips: float = 0.08):
    """X (n, d) float32 and y (n,) bool, some rows at a time."""
    generator = torch.Generator(device).manual_seed(seed)
    w = torch.randn(d, generator=generator, device=device)
    first = columns(min(n, 10_000), d, kind, generator, device)
    w /= first.std(0) + 1e-9
    score = first @ w
    w, centre = w * (2.0 / score.std()), score.mean() * (2.0 / score.std())
    X = torch.empty(n, d, device=device)
    y = torch.empty(n, dtype=torch.bool, device=device)
    for start in range(0, n, 1 << 22):
        rows = slice(start, min(start + (1 << 22), n))
        x = X[rows]
        x.copy_(columns(len(x), d, kind, generator, device))
        u, v = torch.rand(2, len(x), generator=generator, device=device)
        bad = v < flips
        y[rows] = (x @ w - centre + torch.logit(u) > 0) ^ bad
        if kind != "binary":
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
    """Seconds inside of the engine, counted while a fit runs; what is called from inside counts once."""

    PLACES = (
        (device_rows.DeviceRows, ("reduce", "lazy_rows", "certain_at", "some")),
        (device_objective.DeviceData, ("__init__", "evaluate_at", "hessians", "movable")),
        (passes.EagerPass, ("sums",)),
        (passes.FusedPass, ("sums",)),
    )

    def __init__(self) -> None:
        self.inside, self.parts, self.calls, self.busy = 0.0, {}, {}, False

    def __enter__(self):
        self._kept = [(kind, name, getattr(kind, name)) for kind, names in self.PLACES for name in names]
        for kind, name, method in self._kept:
            setattr(kind, name, self._timed(name, method))
        return self

    def _timed(self, name, method):
        def timed(rows, *arguments):
            if self.busy:
                return method(rows, *arguments)
            self.busy = True
            try:
                spent, result = seconds(lambda: method(rows, *arguments))
            finally:
                self.busy = False
            kind = getattr(arguments[0], "__name__", name) if arguments and name == "reduce" else name
            self.inside += spent
            self.parts[kind] = self.parts.get(kind, 0.0) + spent
            self.calls[kind] = self.calls.get(kind, 0) + 1
            return result

        return timed

    def __exit__(self, *exception):
        for kind, name, method in self._kept:
            setattr(kind, name, method)

    def __str__(self):
        return " ".join(f"{name}={spent:.3f}/{self.calls[name]}" for name, spent in self.parts.items())


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
    return {
        "what": kind, "n": X.shape[0], "d": X.shape[1], "seconds": statistics.median(t for t, _ in times),
        "host": whole - clock.inside, "steps": model.n_passes_, "certificate": model.certificate_,
        "objective": model.objective_, "note": f"m_={model.m_} C_={model.C_:g} {clock}",
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


def against_cpu(n: int, d: int, device: str, seed: int) -> list[dict]:
    """The same rows on the CPU and on the device: the relative difference of the objectives."""
    X, y = draw(n, d, device, seed)
    rows = []
    for m, k in ((0.1, 1.0), (0.1, 0.9), (0, 1.0)):
        settings = {"m": m, "k": k, "tol": 1e-9, "random_state": 0}
        spent, cpu = seconds(lambda s=settings: AoRRClassifier(**s).fit(X.cpu().double().numpy(), y.cpu().numpy()))
        there = AoRRClassifier(**settings).fit(X, y)
        usual = AoRRClassifier(m=m, k=k, random_state=0).fit(X, y)
        default = AoRRClassifier(m=m, k=k, random_state=0).fit(X.cpu().double().numpy(), y.cpu().numpy())
        apart = int((cpu.dropped_ != there.dropped_).sum())
        differences = [one.objective_ / cpu.objective_ - 1.0 for one in (there, usual, default)]
        rows.append({
            "what": f"CPU m={m} k={k}", "n": n, "d": d, "seconds": spent, "host": np.nan, "steps": cpu.n_iter_,
            "certificate": there.certificate_, "objective": there.objective_,
            "note": "tol=1e-9: {:.1e} tol=1e-6: {:.1e} CPU at tol=1e-6: {:.1e}".format(*differences)
            + f" dropped by one alone: {apart}",
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
    print(f"kernel against eager float64: {len(cases)} shapes, largest error of a sum {worst[0]:.1e} {worst[1]}")
    cases = [case for case in cases if case[6] == torch.float32 and case[0] > 1 and case[1] < 127]
    worst = max((checks.check_newton(case, device, seed), case[:3]) for seed, case in enumerate(cases))
    print(f"with the Hessian: {len(cases)} shapes, largest error of an entry {worst[0]:.1e} {worst[1]}")


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
    if d < 128:
        tune_hessian(data, W)


def tune_hessian(data, W) -> None:
    """Milliseconds of value, gradient and Hessian: fused on all rows, and on those of the metric beside eager."""
    step = -(-data.X.numel() // data.sizes.metric_numbers)
    some = passes.Data(data.X[::step], data.y[::step].contiguous(), None, data.model)
    right = newton_pass.eager(some, W, -np.inf, 3.0)
    print(f"  eager, {some.n} rows: {least(lambda: newton_pass.eager(some, W, -np.inf, 3.0)):6.2f} ms")
    usual = newton_pass.PRECISION
    for tile in (
        (128, 8, 2),
        (128, 4, 2),
        (64, 8, 4),
        (64, 4, 4),
        (64, 2, 8),
        (32, 4, 4),
        (32, 2, 8),
        (32, 8, 2, "tf32x3"),
    ):
        newton_pass.PRECISION = "tf32x3" if len(tile) > 3 else usual

        def run(part, tile=tile):
            return newton_pass.by_kernel(part, W, -np.inf, 3.0, newton_pass.Tile(*tile[:3]))

        try:
            found = run(some)
            both = [least(lambda part=part, run=run: run(part)) for part in (some, data)]
        except Exception as error:
            print(f"  fused {tile}: {type(error).__name__} {str(error)[:80]}")
            continue
        error = np.abs(found.hessian - right.hessian).max() / np.abs(right.hessian).max()
        print(f"  fused {tile}: {both[0]:6.2f} ms, all {data.n} rows {both[1]:6.2f} ms, error {error:.1e}", flush=True)
    newton_pass.PRECISION = usual


def least(call) -> float:
    """Milliseconds: the least of five calls after one."""
    call()
    return 1e3 * min(seconds(call)[0] for _ in range(5))


def random_problem(seed: int) -> dict:
    """Sizes, kind of data and settings from a seed."""
    rng = np.random.default_rng([29, seed])
    n, d = int(10 ** rng.uniform(6, 7)), int(5 * 20 ** rng.uniform())
    flips = float(rng.choice([0.0, 0.02, 0.08, 0.2]))
    m, k = float(rng.choice([0.0, flips, flips + 0.02, 0.3])), float(rng.choice([1.0, 1.0, 0.9, 0.7]))
    return {"n": n, "d": d, "kind": str(rng.choice(KINDS)), "flips": flips, "m": round(m, 2), "k": k, "seed": seed}


def random_fits(seed: int, count: int, device: str, own: dict, add) -> None:
    """Problems drawn from a seed: seconds of the second fit, over those of Newton's method."""
    ratios = []
    for number in range(count):
        at = random_problem(1000 * seed + number)
        X, y = draw(at["n"], at["d"], device, at["seed"], at["kind"], at["flips"])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            row = timed_fit("random", X, y, 1, m=at["m"], k=at["k"], **own)
        newton(X, y)
        ratio = row["seconds"] / seconds(lambda X=X, y=y: newton(X, y))[0]
        ratios.append((ratio, number))
        about = " ".join(f"{name}={at[name]}" for name in ("kind", "flips", "m", "k", "seed"))
        warned = "".join(" warned: " + str(one.message)[:60] for one in said[:1])
        add({**row, "note": f"{about} over Newton {ratio:.1f} {row['note']}{warned}"})
    values = np.array([ratio for ratio, _ in ratios])
    print(f"random: {count} problems, seconds over Newton's: median {np.median(values):.1f}, 90% "
          f"{np.quantile(values, 0.9):.1f}, worst {max(ratios)[0]:.1f} (number {max(ratios)[1]})")  # fmt: skip


def shapes(texts: list[str]) -> list[tuple[int, int]]:
    return [(int(float(n)), int(d)) for n, d in (text.split("x") for text in texts)]


def fits(n: int, d: int, device: str, seed: int, repeats: int, own: dict, add) -> None:
    X, y = draw(n, d, device, seed)
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


def automatic(n: int, d: int, device: str, seed: int, own: dict, add) -> None:
    X, y = draw(n, d, device, seed)
    add(timed_fit("AoRR m=auto", X, y, 1, m="auto", **own))
    add(timed_fit("AoRR m=auto C=auto", X, y, 1, m="auto", C="auto", **own))
    add(timed_fit("AoRR m=0.1 C=auto", X, y, 1, m=0.1, k=1.0, C="auto", **own))


def profile(n: int, d: int, device: str, seed: int, own: dict) -> None:
    """Where one fit spends its time: functions on the host, then kernels on the device."""
    X, y = draw(n, d, device, seed)
    for k in (1.0, 0.9):

        def fit(k=k):
            return AoRRClassifier(random_state=0, m=0.1, k=k, **own).fit(X, y)

        fit()
        host = cProfile.Profile()
        host.runcall(seconds, fit)
        print(f"profile of {n:.0e} x {d}, m=0.1, k={k}", flush=True)
        statistic = pstats.Stats(host, stream=sys.stdout)
        statistic.sort_stats("cumulative").print_stats("rankrange", 45)
        statistic.sort_stats("tottime").print_stats(20)
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=kinds) as there:
            seconds(fit)
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        print(there.key_averages().table(sort_by=by, row_limit=15, max_name_column_width=60), flush=True)


def attempt(run) -> None:
    """One part of the benchmark; what fails is shown, and the others go on."""
    try:
        run()
    except Exception:
        print(traceback.format_exc()[-1500:], flush=True)


def compare_choices(n: int, d: int, device: str, seed: int) -> None:
    """Print the C and m that the CPU and the device choose on the same rows."""
    for draw in range(4):
        rng = np.random.default_rng([seed, draw])
        X = rng.normal(size=(n, d))
        y = X @ (rng.normal(size=d) * 2.0 / d**0.5) + rng.logistic(size=n) > 0
        X[:, 0] *= np.where(wrong := rng.random(n) < 0.1, 3.0, 1.0)
        y ^= wrong
        for settings in ({"m": 0.1, "k": 1.0, "C": "auto"}, {"m": "auto"}):
            there = torch.as_tensor(X, device=device), torch.as_tensor(y, device=device)
            fits = [AoRRClassifier(random_state=0, **settings).fit(*rows) for rows in ((X, y), there)]
            print(f"{n} x {d} {settings}: CPU and device C={[fit.C_ for fit in fits]} m={[fit.m_ for fit in fits]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sizes", nargs="*", default=["1e8x30", "1e7x100", "1e7x30", "1e6x30"])
    parser.add_argument("--auto", nargs="*", default=["1e7x30"])
    parser.add_argument("--cpu", nargs="*", default=["1e6x30"])
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--tune", nargs="*", default=[])
    parser.add_argument("--profile", nargs="*", default=[])
    parser.add_argument("--choices", nargs="*", default=[])
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    name = torch.cuda.get_device_name() if given.device.startswith("cuda") else record.circumstances()["device"]
    print(f"{name}, torch {torch.__version__}, scikit-learn {sklearn.__version__}", flush=True)
    versions = {"torch": torch.__version__, "scikit-learn": sklearn.__version__}

    def add(*found: dict) -> None:
        if given.record:  # at once: what a time limit cuts off loses no rows before it
            record.append("linear_gpu", [{**versions, **row} for row in found], name)
        for row in found:
            print(f"{row['n']:.0e} x {row['d']:3}  {row['what']:22} {row['seconds']:8.3f} s  host {row['host']:6.3f}  "
                  f"{row['steps']:3} steps  gap {row['certificate']:8.1e}  {row['note']}", flush=True)  # fmt: skip

    own = {"device": given.device} if given.device == "cpu" else {}
    if given.check:
        attempt(lambda: check(given.device))
    for n, d in shapes(given.sizes):
        attempt(lambda n=n, d=d: fits(n, d, given.device, given.seed, given.repeats, own, add))
    for n, d in shapes(given.auto):
        attempt(lambda n=n, d=d: automatic(n, d, given.device, given.seed, own, add))
    if given.random:
        attempt(lambda: random_fits(given.seed, given.random, given.device, own, add))
    for n, d in shapes(given.profile):
        attempt(lambda n=n, d=d: profile(n, d, given.device, given.seed, own))
    for n, d in shapes(given.choices):
        attempt(lambda n=n, d=d: compare_choices(n, d, given.device, given.seed))
    for n, d in shapes(given.tune):
        attempt(lambda n=n, d=d: tune(n, d, given.device))
    for n, d in shapes(given.cpu):
        attempt(lambda n=n, d=d: add(*against_cpu(n, d, given.device, given.seed + 1)))


def on_host(values):
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values


if __name__ == "__main__":
    main()
