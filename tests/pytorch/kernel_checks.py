"""Checks of the Triton kernels against eager PyTorch and against sorting, on a GPU or in Triton's interpreter.

A program of its own, because the interpreter must be chosen before Triton is imported:
    TRITON_INTERPRET=1 python tests/kernel_checks.py CHECK ...       small sizes on a CPU
    python tests/kernel_checks.py                                    all checks at full size on a GPU
"""

import functools
import os
import sys
from pathlib import Path

import torch
from token_kernel_checks import check_token_auto, check_token_losses, check_token_scores, inputs  # noqa: F401

import rankrange.torch as rrt
from rankrange.torch import cuts, functional, kernels

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
# Sizes at which small inputs meet every path: many tiles, lists that overflow, histograms too coarse to decide.
TINY = kernels.Sizes(
    small=64, sample=64, tile=128, list=32, replicas=2, bins=64, label_tile=16, read_again=1 << 10
)  # fmt: skip
SIZES = [273] if INTERPRETED else [16385, 65535, 65537, 131073, 10**6 + 3, 1 << 24, (1 << 24) + 1, 1 << 26]


def losses_of_many_kinds(n, device):
    """Shapes of losses that break selections: ties of every mass, tails, order, infinities, signed zeros."""
    generator = torch.Generator(device).manual_seed(n)

    def normal():
        return torch.randn(n, device=device, generator=generator)

    yield "normal", normal()
    yield "exponential", -torch.rand(n, device=device, generator=generator).clamp(min=1e-30).log()
    yield "heavy tails", normal() / normal()
    yield "all tied", torch.full((n,), 0.6931, device=device)
    yield "half zero", torch.relu(normal())
    yield "twenty values", (5 * torch.rand(n, device=device, generator=generator)).mul(4).round()
    yield "coarse", normal().mul(500).round().div(500)
    yield "ascending", normal().sort().values
    yield "signed zeros", torch.where(normal() > 0, 0.0, -0.0)
    infinite = normal()
    infinite[: n // 10] = torch.inf
    yield "infinite", infinite
    yield "bfloat16", normal().bfloat16()
    yield "float16", normal().half()
    broken = normal()
    broken[n // 2] = torch.nan
    yield "one NaN", broken


def ranks_for(n):
    return [(0, n), (0, 1), (n // 10, n - n // 10), (n // 2, n // 2 + 1), (n - 1, n), (max(n // 1000, 1), n - 1)]


def by_sorting(losses, m, k):
    """Value, cut and weights from a full sort in float64: the definition. A NaN makes all of them NaN."""
    s = losses.double()
    kept = s.sort(descending=True).values[m:k]
    cut = cuts.cut_at_ranks(s, m, k)
    return torch.where(s.isnan().any(), torch.nan, kept.mean()), cut, cuts.cut_weights(s, cut)


COMPARED = []


def compare(what, found, expected, dtype=torch.float32):
    COMPARED.append(what)
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(
        found.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def check_large():
    """narrow, finish and weigh."""
    for n in SIZES:
        for name, losses in losses_of_many_kinds(n, DEVICE):
            chosen = ranks_for(n)
            if INTERPRETED:  # which takes its time: both cuts for every kind, and other ranks for ties
                turn = chosen[(hash_of(name) + n) % len(chosen)]
                chosen = [chosen[2], turn] if tied(losses) else [chosen[2]]
            for m, k in chosen:
                compare_range(f"{name}, n={n}, m={m}, k={k}", losses, m, k)


def compare_range(what, losses, m, k):
    """Value, cut and gradient of the kernels against the definition; the same losses give the same bits again."""
    value, cut = kernels.ranked_range(losses, m, k, 1 / (k - m))
    expected, expected_cut, weights = by_sorting(losses, m, k)
    compare(f"cut of {what}", cut, expected_cut)
    compare(f"value of {what}", value, expected, losses.dtype)
    gradient = kernels.weigh(losses, cut, 0.5, torch.tensor(3.0, device=DEVICE, dtype=losses.dtype))
    compare(f"gradient of {what}", gradient, 1.5 * weights, losses.dtype)
    assert value.dtype == gradient.dtype == losses.dtype
    if not INTERPRETED or "exponential" in what:
        again, cut_again = kernels.ranked_range(losses, m, k, 1 / (k - m))
        assert torch.equal(again.nan_to_num(), value.nan_to_num()), what
        assert torch.equal(cut_again.nan_to_num(), cut.nan_to_num()), what


def tied(losses):
    return len(losses.unique()) < len(losses) // 2


def hash_of(name):
    return sum(map(ord, name))


def sampled_places(n, sample):
    """Where `sample_of` looks, computed once more."""
    i = torch.arange(sample)
    scrambled = (i * 2654435761 & 0xFFFFFFFF) ^ ((i * 2246822519 & 0xFFFFFFFF) >> 15)
    stretch = n // sample
    return i * stretch + (scrambled >> 4) % stretch


def check_neighbours():
    """Many losses on neighbouring floats, so that a bin has several values and starts with one of them."""
    n, values = (1500, 260) if INTERPRETED else (10**6 + 3, 1 << 15)
    generator = torch.Generator().manual_seed(0)
    keys = torch.tensor(1.0).view(torch.int32) + torch.randint(values, (n,), generator=generator, dtype=torch.int32)
    losses = keys.view(torch.float32).to(DEVICE)
    for m, k in ((682, 872), (585, 775)) if INTERPRETED else [(n // 97 * i, n // 97 * (i + 12)) for i in range(5, 85)]:
        compare_range(f"neighbours, m={m}, k={k}", losses, m, k)


def check_misled():
    """A sample that shows only the largest losses, or only the smallest, costs time and not exactness."""
    n = 401 if INTERPRETED else 10**6 + 3
    for far in (100.0, -100.0):
        losses = torch.randn(n, generator=torch.Generator().manual_seed(n))
        losses[sampled_places(n, kernels.SIZES.sample)] += far
        losses = losses.to(DEVICE)
        for m, k in ((n // 4, n - n // 4), (n // 2, n // 2 + 1)):
            compare_range(f"{far}, m={m}, k={k}", losses, m, k)


def check_small():
    """One program a row, alone and in rows."""
    sizes = [1, 2, 3, 41] if INTERPRETED else [1, 2, 3, 41, 401, 1024, 4097, 16384]
    for n in sizes:
        for number, (name, losses) in enumerate(losses_of_many_kinds(n, DEVICE)):
            if INTERPRETED and n <= 3 and (number + n) % 2:  # each kind at one or two of these sizes
                continue
            ranks = [(m, k) for m, k in dict.fromkeys(ranks_for(n)) if m < k]
            for m, k in [ranks[(number + n) % len(ranks)]] if INTERPRETED else ranks:
                compare_range(f"{name}, n={n}, m={m}, k={k}", losses, m, k)
    rows = torch.randn(3, 5, 37, device=DEVICE)
    value, _ = kernels.ranked_range(rows, 4, 30, 1 / 26)
    compare("rows", value, rows.sort(-1, descending=True).values[..., 4:30].mean(-1))


def labels_of_many_kinds(n_rows, n_labels, device):
    generator = torch.Generator(device).manual_seed(n_labels)

    def draw():
        return torch.randn(n_rows, n_labels, device=device, generator=generator)

    def mask(share):
        return torch.rand(n_rows, n_labels, device=device, generator=generator) < share

    few = min(4 / n_labels, 0.5)
    yield "few true", draw(), mask(few)
    yield "many true", draw(), mask(0.5)
    yield "rounded", draw().mul(2).round(), mask(few)
    yield "all tied", torch.zeros(n_rows, n_labels, device=device), mask(few)
    yield "ascending", draw().sort(1).values, mask(0.2)
    yield "none true", draw(), mask(0.0)
    yield "all true", draw(), mask(1.1)
    absent = draw()
    absent[:, n_labels // 2 :] = -torch.inf
    yield "absent labels", absent, mask(few) & absent.isfinite()
    yield "bfloat16", draw().bfloat16(), mask(few)
    yield "float16", draw().half(), mask(few)
    broken = draw()
    broken[0, n_labels // 2] = torch.nan
    yield "one NaN", broken, mask(few)


def check_labels():
    shapes = [(3, 6), (2, 41)] if INTERPRETED else [(7, 6), (50, 1000), (9, 4097), (5, 32000), (3, 10**6 + 1)]
    for n_rows, n_labels in shapes:
        for top_k in (3, 30) if INTERPRETED else (1, 5, 100, 3000):  # 30 and 3000 exceed the lanes of a tile
            if top_k >= n_labels or not kernels.fits_tkml(torch.empty(n_rows, n_labels, device=DEVICE), top_k):
                continue
            for number, (name, scores, mask) in enumerate(labels_of_many_kinds(n_rows, n_labels, DEVICE)):
                for two_sided in (True, False):
                    if INTERPRETED and (number + n_labels + two_sided) % 2:  # each kind meets both losses
                        continue
                    what = f"{name}, {scores.shape}, k={top_k}, two_sided={two_sided}"
                    compare_rows(what, scores, mask, top_k, two_sided)


def compare_rows(what, scores, mask, top_k, two_sided):
    upstream = torch.linspace(-1, 2, len(scores), device=DEVICE, dtype=scores.dtype)
    leaf = scores.double().requires_grad_()
    expected = functional._tkml_rows(leaf, mask, top_k, two_sided)
    expected.backward(upstream.double())
    losses, marks = kernels.find_scores(scores, mask, top_k, two_sided)
    compare(f"loss of {what}", losses, expected.detach(), scores.dtype)
    gradient = kernels.spread(scores, mask, marks, upstream)
    compare(f"gradient of {what}", gradient, leaf.grad, scores.dtype)
    assert losses.dtype == gradient.dtype == scores.dtype


def check_public():
    """First and second derivatives of the public functions against float64, which eager PyTorch computes."""

    def mask(*shape):
        return torch.rand(shape, device=DEVICE) < 5 / shape[-1]

    cases = [(lambda x: rrt.ranked_range(x, 0.1, 0.8), (n,)) for n in ((50,) if INTERPRETED else (50, 5000, 200_003))]
    cases.append((lambda x: rrt.ranked_range(x, 5, 40, dim=1).sum(), (7 if INTERPRETED else 70_000, 50)))
    for n_labels in (30,) if INTERPRETED else (30, 20_000):
        cases.append((lambda x, true: rrt.tkml(x, true, 3), (4, n_labels), mask(4, n_labels)))
    for number, (function, shape, *more) in enumerate(cases):
        x = torch.randn(shape, device=DEVICE).mul(512).round() / 512  # so that squares are exact, and so are their ties
        found, expected = (derivatives(function, leaf, *more) for leaf in (x, x.double()))
        for what in ("gradient", "second derivative"):
            compare(f"{what} of case {number}", found[what], expected[what])
    x = torch.randn(3, 30, device=DEVICE)
    for operator, given in (("ranked_range", (x[0], 3, 24, 0.5)), ("tkml", (x, mask(3, 30), 3, True))):
        operator = getattr(torch.ops.rankrange, operator)
        torch.library.opcheck(operator, given, test_utils=("test_schema", "test_faketensor"))


def derivatives(function, x, *more):
    """Of -3 function(x^2): the gradient, and the gradient of its sum."""
    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(-3.0 * function(leaf**2, *more), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), leaf)
    return {"gradient": first, "second derivative": second}


def check_compile():
    """One graph, forward and backward, through the registered operators."""

    def both(losses, scores, mask):
        return rrt.ranked_range(losses, 0.1, 0.9) + rrt.tkml(scores, mask, 2)

    run = torch.compile(both, fullgraph=True, backend="aot_eager" if INTERPRETED else "inductor")
    for n in (20, 33) if INTERPRETED else (20, 33, 100_000):
        losses, scores = torch.randn(n, device=DEVICE), torch.randn(n, 6, device=DEVICE)
        mask = torch.rand(n, 6, device=DEVICE) < 0.3
        results = []
        for function in (both, run):
            leaves = losses.clone().requires_grad_(), scores.clone().requires_grad_()
            function(*leaves, mask).backward()
            results.append([leaf.grad for leaf in leaves])
        torch.testing.assert_close(*results)


def check_no_wait():
    """Nothing waits for the device, ignored tokens or not (a GPU alone can tell)."""
    if INTERPRETED:
        return
    losses = torch.rand(1 << 20, device=DEVICE, requires_grad=True)
    scores = torch.randn(8, 1000, device=DEVICE, requires_grad=True)
    mask = torch.rand(8, 1000, device=DEVICE) < 0.01
    hidden, weight, target, _ = inputs(2048, 512, 50257, torch.bfloat16, False)
    tokens = hidden.view(8, 256, -1), weight, target.view(8, 256)
    calls = [lambda: rrt.tkml(scores, mask, 3), lambda: rrt.ranked_range(losses[:1000].double(), 0.1, 0.9)]
    for settings in ({}, {"ranking": "stream", "warmup": 2}):
        calls.append(functools.partial(rrt.AoRRLoss(m=0.1, k=0.9, **settings).to(DEVICE), losses))
    labels, base = torch.arange(8, device=DEVICE), torch.nn.CrossEntropyLoss(reduction="none")
    weighted = torch.nn.CrossEntropyLoss(reduction="none", weight=torch.ones(1000, device=DEVICE))
    calls += [functools.partial(rrt.AoRRLoss(each, 0.1), scores, labels) for each in (base, weighted)]
    calls.append(functools.partial(rrt.AoRRLoss(base, 0.1, per_class=True), scores, labels))
    calls.append(functools.partial(rrt.AoRRLoss(base, "auto", n_samples=8), scores, labels, labels))
    for settings in ({"m": 0.1, "k": 0.7}, {}, {"m": "auto"}, {"m": 0.1, "k": 0.7, "per": "sequence"}):
        calls.append(functools.partial(rrt.LinearAoRRLoss(**settings), *tokens))
    for call in calls:
        call().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for call in calls:
            call().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def check_graph():
    """A CUDA graph of forward and backward, replayed on other losses."""
    if INTERPRETED:
        return
    for n in (1000, 300_000, 1 << 23):
        losses = torch.rand(n, device=DEVICE, requires_grad=True)
        scores = torch.randn(4, n // 4, device=DEVICE, requires_grad=True)
        mask = torch.rand(4, n // 4, device=DEVICE) < 20 / n

        def step(losses=losses, scores=scores, mask=mask):
            losses.grad = scores.grad = None
            (rrt.ranked_range(losses, 0.1, 0.9) + rrt.tkml(scores, mask, 3)).backward()

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        found = losses.grad, scores.grad
        for seed in range(3):
            generator = torch.Generator(DEVICE).manual_seed(seed)
            with torch.no_grad():
                losses.copy_(torch.rand(n, device=DEVICE, generator=generator))
                scores.copy_(torch.randn(4, n // 4, device=DEVICE, generator=generator))
            graph.replay()
            replayed = [gradient.clone() for gradient in found]
            step()
            assert torch.equal(replayed[0], losses.grad)
            assert torch.equal(replayed[1], scores.grad)


def check_group():
    """A process group of one on the GPU: counts and ranks stay there, and nothing waits."""
    if INTERPRETED:
        return
    import tempfile

    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            for dtype in (torch.float32, torch.float64, torch.bfloat16):
                losses = torch.randn(1001, device=DEVICE).to(dtype).requires_grad_()
                for m, k in ((0.1, 0.9), (100, 900), (0, 1), (0.5, 1.0)):
                    expected = torch.autograd.grad(rrt.ranked_range(losses, m, k), losses)[0]
                    rrt.ranked_range(losses, m, k, group=dist.group.WORLD)
                    torch.cuda.set_sync_debug_mode("error")
                    value = rrt.ranked_range(losses, m, k, group=dist.group.WORLD)
                    torch.cuda.set_sync_debug_mode("default")
                    found = torch.autograd.grad(value, losses)[0]
                    compare(
                        f"group, {dtype}, m={m}, k={k}",
                        found,
                        expected,
                        min(dtype, torch.float32, key=lambda d: d.itemsize),
                    )
            assert rrt.ranked_range(losses, 0, 2000, group=dist.group.WORLD).isnan()
        finally:
            torch.cuda.set_sync_debug_mode("default")
            dist.destroy_process_group()


CHECKS = {name[6:]: function for name, function in globals().items() if name.startswith("check_")}


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    if INTERPRETED:
        sys.path.insert(0, str(Path(__file__).parents[1]))
        import triton_interpreter

        triton_interpreter.patch_once_per_launch()
        kernels.SIZES = TINY
    failed = []
    for name in sys.argv[1:] or CHECKS:
        try:
            CHECKS[name]()
            print(f"ok      {name}", flush=True)
        except Exception as error:
            if len(sys.argv) == 2:
                raise
            failed.append(name)
            print(f"FAILED  {name}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(COMPARED)} comparisons")
    sys.exit(f"{len(failed)} of the checks failed" if failed else 0)
