"""Checks of the Triton kernels against eager PyTorch and against sorting, on a GPU or in Triton's interpreter.

A program of its own, because the interpreter must be chosen before Triton is imported:
    TRITON_INTERPRET=1 python tests/kernel_checks.py CHECK ...       small sizes on a CPU
    python tests/kernel_checks.py                                    all checks at full size on a GPU
"""

import os
import sys
import traceback

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import rankrange.torch as rrt
import triton_interpreter
from rankrange.torch import cuts, functional, kernels

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
# Sizes at which small inputs meet every path: many tiles, lists that overflow, histograms too coarse to decide.
TINY = kernels.Plan(
    small=64, joint=0, sample=64, tile=128, list=32, replicas=2, bins=64,
    weigh_tile=64, short=16, label_tile=16,
)  # fmt: skip
PLANS = [TINY] if INTERPRETED else [None]  # in the interpreter `check_workspaces` compares the joint kernel
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


def ranks_for(n):
    return [(0, n), (0, 1), (n // 10, n - n // 10), (n // 2, n // 2 + 1), (n - 1, n), (max(n // 1000, 1), n - 1)]


def by_sorting(losses, m, k):
    """Value, cut and weights from a full sort in float64: the definition."""
    s = losses.double()
    kept = s.sort(descending=True).values[m:k]
    cut = cuts.cut_at_ranks(s, m, k)
    return kept.mean(), cut, cuts.cut_weights(s, cut)


def compare(what, found, expected, dtype=torch.float32):
    tolerance = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    torch.testing.assert_close(
        found.double(), expected.double(), rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def check_large():
    """narrow, finish and weigh."""
    for plan in PLANS:
        for n in SIZES:
            for name, losses in losses_of_many_kinds(n, DEVICE):
                chosen = ranks_for(n)
                if INTERPRETED:  # which takes its time: both cuts for every kind, and other ranks for ties
                    turn = chosen[(hash_of(name) + n) % len(chosen)]
                    chosen = [chosen[2], turn] if tied(losses) else [chosen[2]]
                for m, k in chosen:
                    what = f"{name}, n={n}, m={m}, k={k}"
                    value, cut, kept = kernels.find_range(losses, m, k, 1 / (k - m), plan, keep_weights=True, own=False)
                    expected, expected_cut, weights = by_sorting(losses, m, k)
                    if kept is not None:
                        compare(f"weights of {what}", kept * (k - m), weights)
                    compare(f"cut of {what}", cut, expected_cut)
                    compare(f"value of {what}", value, expected)
                    gradient = kernels.weigh(losses, cut, torch.tensor(3.0, device=DEVICE), 0.5, plan=plan)
                    compare(f"gradient of {what}", gradient, 1.5 * weights)


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


def check_misled():
    """A sample that shows only the largest losses, or only the smallest, costs time and not exactness."""
    n, plan = (401, TINY) if INTERPRETED else (10**6 + 3, kernels.PLAN)
    for far in (100.0, -100.0):
        losses = torch.randn(n, generator=torch.Generator().manual_seed(n))
        losses[sampled_places(n, plan.sample)] += far
        losses = losses.to(DEVICE)
        for m, k in ((n // 4, n - n // 4), (n // 2, n // 2 + 1)):
            value, cut, _ = kernels.find_range(losses, m, k, 1 / (k - m), plan=plan)
            expected, expected_cut, _ = by_sorting(losses, m, k)
            compare(f"cut, {far}, m={m}, k={k}", cut, expected_cut)
            compare(f"value, {far}, m={m}, k={k}", value, expected)


def check_small():
    """One program a row, alone and in rows."""
    sizes = [1, 2, 3, 41, 130] if INTERPRETED else [1, 2, 3, 41, 401, 1024, 4097, 16384]
    for n in sizes:
        for number, (name, losses) in enumerate(losses_of_many_kinds(n, DEVICE)):
            if INTERPRETED and n <= 3 and (number + n) % 2:  # each kind at one or two of these sizes
                continue
            ranks = [(m, k) for m, k in dict.fromkeys(ranks_for(n)) if m < k]
            for m, k in [ranks[(number + n) % len(ranks)]] if INTERPRETED else ranks:
                value, cut, weights = kernels.find_range(losses, m, k, 1 / (k - m), keep_weights=True)
                expected, expected_cut, expected_weights = by_sorting(losses, m, k)
                what = f"{name}, n={n}, m={m}, k={k}"
                compare(f"value of {what}", value, expected)
                compare(f"cut of {what}", cut, expected_cut)
                compare(f"weights of {what}", weights * (k - m), expected_weights)
    rows = torch.randn(3, 5, 37, device=DEVICE)
    value, _, _ = kernels.find_range(rows, 4, 30, 1 / 26)
    compare("rows", value, rows.sort(-1, descending=True).values[..., 4:30].mean(-1))


def check_dtypes():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for n in ((41,) if dtype == torch.float32 else (41, 300)) if INTERPRETED else (41, 10**6 + 3, 1 << 24):
            plan = TINY if INTERPRETED else None
            losses = torch.randn(n, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(n)).to(dtype)
            m, k = n // 10, n - n // 5
            value, cut, _ = kernels.find_range(losses, m, k, 1 / (k - m), plan=plan)
            expected, expected_cut, weights = by_sorting(losses, m, k)
            compare(f"value, {dtype}, n={n}", value, expected, dtype)
            compare(f"cut, {dtype}, n={n}", cut, expected_cut)
            gradient = kernels.weigh(losses, cut, torch.ones((), device=DEVICE, dtype=dtype), 1.0, plan=plan)
            assert value.dtype == gradient.dtype == dtype
            compare(f"gradient, {dtype}, n={n}", gradient, weights, dtype)


def check_nan():
    for n, plan in ((10, TINY), (300, TINY)) if INTERPRETED else ((10, None), (10**6, None)):
        losses = torch.randn(n, device=DEVICE)
        losses[n // 2] = torch.nan
        value, cut, _ = kernels.find_range(losses, 1, n - 1, 1.0, plan=plan)
        assert value.isnan()
        assert cut.isnan().all()
        assert kernels.weigh(losses, cut, torch.ones((), device=DEVICE), 1.0, plan=plan).isnan().all()


def check_repeats():
    """The same losses give the same bits."""
    n, plan = (401, TINY) if INTERPRETED else ((1 << 22) + 5, None)
    losses = torch.randn(n, device=DEVICE)
    for m, k in ((n // 10, n - n // 10), (n // 1000, n))[: 1 if INTERPRETED else 2]:
        runs = [kernels.find_range(losses, m, k, 1 / (k - m), plan=plan) for _ in range(2 if INTERPRETED else 20)]
        for value, cut, _ in runs[1:]:
            assert torch.equal(value, runs[0][0])
            assert torch.equal(cut, runs[0][1])


def check_public():
    """Through the public functions: gradients, scaled upstream gradients, second derivatives, registered operators."""
    for n in (50,) if INTERPRETED else (50, 5000, 200_003):
        losses = torch.randn(n, device=DEVICE, requires_grad=True)
        m, k = n // 10, n - n // 5
        rrt.ranked_range(losses, m, k)
        value = rrt.ranked_range(losses, m, k)  # the second call is made from what the first has left
        (gradient,) = torch.autograd.grad(-3.0 * value, losses, retain_graph=True)
        _, _, weights = by_sorting(losses.detach(), m, k)
        compare(f"upstream gradient, n={n}", gradient, -3.0 * weights / (k - m))
        if n == 50:  # many rows at once
            rows = torch.randn(7 if INTERPRETED else 70_000, 50, device=DEVICE, requires_grad=True)
            (gradient,) = torch.autograd.grad(rrt.ranked_range(rows, 5, 40, dim=1).sum(), rows)
            cut = cuts.cut_at_ranks(rows.detach().double(), 5, 40)
            compare("rows", gradient, cuts.cut_weights(rows.detach().double(), cut) / 35)
        loss = rrt.AoRRLoss(m=m, k=k)
        loss(losses)
        compare(f"weights of the module, n={n}", loss.last_weights, weights)
        (first,) = torch.autograd.grad(rrt.ranked_range(losses**3, m, k), losses, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), losses)
        _, _, weights = by_sorting(losses.detach() ** 3, m, k)
        compare(f"second derivative, n={n}", second, 6 * losses.detach() * weights / (k - m))
        operator = torch.ops.rankrange.ranked_range
        torch.library.opcheck(operator, (losses, m, k, 0.5), test_utils=("test_schema", "test_faketensor"))
        other = losses.detach().requires_grad_()
        operator(other, m, k, 1 / (k - m))[0].backward()
        (same,) = torch.autograd.grad(value, losses)
        compare(f"gradient of the operator, n={n}", other.grad, same)


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


def as_indices(mask, width):
    """The true labels of each row, padded with -1 and with one of them given twice; and the mask they make."""
    index = torch.where(mask, torch.arange(mask.shape[1], device=mask.device), -1).sort(1, descending=True).values
    index = torch.nn.functional.pad(index, (0, max(width - mask.shape[1], 0)), value=-1)[:, :width].contiguous()
    index[:, -1] = index[:, 0]
    return index, cuts.label_mask(index, mask.shape[1])


def check_labels():
    shapes = [(3, 6), (2, 41)] if INTERPRETED else [(7, 6), (50, 1000), (9, 4097), (5, 32000), (3, 10**6 + 1)]
    plan = TINY if INTERPRETED else kernels.PLAN
    for n_rows, n_labels in shapes:
        for top_k in (3,) if INTERPRETED else (1, 5, 100):
            if top_k >= n_labels or not kernels.fits_tkml(torch.empty(n_rows, n_labels, device=DEVICE), None, top_k):
                continue
            for number, (name, scores, mask) in enumerate(labels_of_many_kinds(n_rows, n_labels, DEVICE)):
                index, index_mask = as_indices(mask, 12 if n_labels != 12 else 13)
                for two_sided in (True, False):
                    targets = [(mask, mask), (index, index_mask), (mask.float(), mask)]
                    if INTERPRETED:  # each kind meets both targets in both losses, over the two shapes
                        targets = [targets[(number + n_labels + two_sided) % 2]]
                    for target, same in targets:
                        what = f"{name}, {scores.shape}, k={top_k}, two_sided={two_sided}, {target.dtype}"
                        compare_rows(what, scores, target, same, top_k, two_sided, plan)


def compare_rows(what, scores, target, mask, top_k, two_sided, plan):
    upstream = torch.linspace(-1, 2, len(scores), device=DEVICE)
    leaf = scores.double().requires_grad_()
    expected = functional._tkml_rows(leaf, mask, top_k, two_sided)
    expected.backward(upstream.double())
    losses, marks = kernels.find_scores(scores, target, top_k, two_sided, plan=plan)
    compare(f"loss of {what}", losses, expected.detach())
    gradient = kernels.spread(scores, target, marks, upstream, plan=plan)
    compare(f"gradient of {what}", gradient, leaf.grad)


def check_label_dtypes():
    n_labels, plan = (50, TINY) if INTERPRETED else (40_000, kernels.PLAN)
    for dtype in (torch.bfloat16, torch.float16):
        scores = torch.randn(3, n_labels, device=DEVICE).to(dtype)
        mask = torch.rand(3, n_labels, device=DEVICE) < 3 / n_labels
        losses, marks = kernels.find_scores(scores, mask, 3, True, plan=plan)
        gradient = kernels.spread(scores, mask, marks, torch.ones(3, device=DEVICE, dtype=dtype), plan=plan)
        leaf = scores.double().requires_grad_()
        expected = functional._tkml_rows(leaf, mask, 3, True)
        expected.sum().backward()
        assert losses.dtype == gradient.dtype == dtype
        compare(f"loss, {dtype}", losses, expected.detach(), dtype)
        compare(f"gradient, {dtype}", gradient, leaf.grad, dtype)


def check_public_labels():
    for n_labels in (30,) if INTERPRETED else (30, 20_000):
        scores = torch.randn(4, n_labels, device=DEVICE, requires_grad=True)
        mask = torch.rand(4, n_labels, device=DEVICE) < 5 / n_labels
        (gradient,) = torch.autograd.grad(rrt.tkml(scores, mask, 3), scores)
        expected = functional._tkml_rows(scores, mask, 3, True).mean()
        (expected,) = torch.autograd.grad(expected, scores)
        compare("gradient", gradient, expected)
        (first,) = torch.autograd.grad(rrt.tkml(scores**3, mask, 3), scores, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), scores)
        (first,) = torch.autograd.grad(
            functional._tkml_rows(scores**3, mask, 3, True).mean(), scores, create_graph=True
        )
        (expected,) = torch.autograd.grad(first.sum(), scores)
        compare("second derivative", second, expected)
        torch.library.opcheck(
            torch.ops.rankrange.tkml, (scores, mask, 3, True), test_utils=("test_schema", "test_faketensor")
        )
        broken = scores.detach().clone()
        broken[1, 2] = torch.nan
        broken.requires_grad_()
        losses = rrt.tkml(broken, mask, 3, reduction="none")
        losses.sum().backward()
        assert losses.isnan().tolist() == [False, True, False, False]
        assert broken.grad.isnan().all(1).tolist() == [False, True, False, False]


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
    """Nothing waits for the device (a GPU alone can tell)."""
    if INTERPRETED:
        return
    losses = torch.rand(1 << 20, device=DEVICE, requires_grad=True)
    scores = torch.randn(8, 1000, device=DEVICE, requires_grad=True)
    mask = torch.rand(8, 1000, device=DEVICE) < 0.01
    modules = [rrt.AoRRLoss(m=0.1, k=0.9), rrt.AoRRLoss(m=0.1, k=0.9, ranking="stream", warmup=2).to(DEVICE)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for module in modules:
            (module(losses) + rrt.tkml(scores, mask, 3)).backward()
        rrt.ranked_range(losses[:1000].double(), 0.1, 0.9).backward()
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


def check_again():
    """Calls like an earlier one give the same bits as the first, and what differs is not taken for one."""
    started = []
    original, kernels._apply = kernels._apply, lambda *given: started.append(given[0]) or original(*given)
    module = rrt.AoRRLoss(m=0.1, k=0.8)
    try:
        for n in (48, 300) if INTERPRETED else (48, 300, 5000, 40_000, 200_000, 1 << 20, (1 << 20) + 16):
            for dtype in (torch.float32,) if INTERPRETED and n > 48 else (torch.float32, torch.bfloat16):
                losses = torch.randn(n, device=DEVICE).to(dtype).requires_grad_()
                calls = [
                    lambda s: rrt.ranked_range(s, 0.1, 0.8),
                    lambda s: rrt.ranked_range(s, 1, 8, reduction="sum"),
                    module,
                ]
                for call in calls:
                    kernels._READY.clear()
                    found = []
                    for _ in range(3):
                        value = call(losses)
                        gradient = torch.autograd.grad(-2.0 * value, losses, retain_graph=True)[0]
                        assert torch.equal(gradient, torch.autograd.grad(-2.0 * value, losses)[0])
                        found.append((value.detach(), gradient, module.lam if call is module else value.detach()))
                    assert all(map(torch.equal, found[0], found[1]))
                    assert all(map(torch.equal, found[0], found[2]))
                    assert len(started) == (2 if n <= kernels.PLAN.joint else 0)
                    started.clear()
    finally:
        kernels._apply = original
    losses = torch.arange(64.0, device=DEVICE, requires_grad=True)
    for m, k, expected in ((0, 1, 63.0), (0.0, 1.0, 31.5), (0, 1, 63.0), (0, 1.0, 31.5), (1, 2, 62.0)):
        assert rrt.ranked_range(losses, m, k) == expected
    ready = len(kernels._READY)
    assert ready
    assert rrt.ranked_range(torch.arange(65.0, device=DEVICE, requires_grad=True)[1:], 0, 1) == 64  # aligned otherwise
    assert rrt.ranked_range(torch.arange(128.0, device=DEVICE, requires_grad=True)[::2], 0, 1) == 126
    with torch.no_grad():
        assert not rrt.ranked_range(losses, 0, 1).requires_grad
    assert rrt.ranked_range(losses.detach(), 0, 1) == 63
    assert len(kernels._READY) == ready


def check_workspaces():
    """What is kept from one launch to the next is as good as new: after every kind of losses, with other ranks."""
    found = []
    original, kernels.workspace = kernels.workspace, lambda *asked: found.append(original(*asked)) or found[-1]
    n = 300 if INTERPRETED else 40_000
    try:
        for number, (name, losses) in enumerate(losses_of_many_kinds(n, DEVICE)):
            ranks = ranks_for(n)
            plan = TINY._replace(joint=1 << 20, list=256 if number % 2 else 32) if INTERPRETED else kernels.PLAN
            for m, k in ranks[number % len(ranks) :][:1] if INTERPRETED else ranks:
                value, cut, _ = kernels.find_range(losses, m, k, 1 / (k - m), plan, own=False)
                left = found.pop().clone()
                expected, expected_cut, weights = by_sorting(losses, m, k)
                compare(f"cut of {name}, m={m}, k={k}", cut, expected_cut)
                compare(f"value of {name}, m={m}, k={k}", value, expected)
                gradient = kernels.weigh(losses, cut, torch.tensor(3.0, device=DEVICE), 0.5, plan=plan)
                compare(f"gradient of {name}, m={m}, k={k}", gradient, 1.5 * weights)
                assert left[4] > 0, "no program has waited: this was not the joint kernel"
                for start, end in (
                    (4, 5),
                    (16, 24),
                    (48, 52),
                    (64, 64 + 1024 + plan.list),
                ):  # overwritten, not added to
                    left[start:end] = 0
                assert not left.any(), f"{name}, m={m}, k={k} left something at {left.nonzero()[:, 0].tolist()[:9]}"
                if INTERPRETED and number > 2:
                    continue
                bare, no_cut, _ = kernels.find_range(losses, m, k, 1 / (k - m), plan, keep_cut=False, own=False)
                assert no_cut is None
                assert torch.equal(bare, value)
    finally:
        kernels.workspace = original


def check_streams():
    """Streams, threads, graphs and what runs beside them do not share a workspace (a GPU alone can tell)."""
    if INTERPRETED:
        return
    from concurrent.futures import ThreadPoolExecutor

    devices = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    sizes = [20_000, 65_537, 300_000, 1 << 20]
    losses = [
        kind(n, device=device, generator=torch.Generator(device).manual_seed(n)).requires_grad_()
        for n in sizes
        for kind in (torch.randn, torch.rand)
        for device in devices
    ]

    def both_ways(number):
        value = rrt.ranked_range(losses[number], 0.1, 0.9)
        return value.detach(), *torch.autograd.grad(value, losses[number])

    def many(number):
        with torch.cuda.device(losses[number].device), torch.cuda.stream(torch.cuda.Stream(losses[number].device)):
            found = [both_ways(number) for _ in range(50)]
            torch.cuda.current_stream().synchronize()
        return found

    def same(found, number):
        return all(torch.equal(one, other) for one, other in zip(found, expected[number], strict=True))

    expected = [both_ways(number) for number in range(len(losses))]
    torch.cuda.synchronize()
    with ThreadPoolExecutor(len(losses)) as pool:
        for number, found in enumerate(pool.map(many, range(len(losses)))):
            assert all(same(one, number) for one in found), f"{losses[number].shape} on a stream of its own"
    numbers = [number for number in range(len(losses)) if losses[number].device.index == torch.cuda.current_device()]
    graphs = []
    for number in numbers:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = both_ways(number)
        graphs.append((graph, torch.cuda.Stream(), found))
    for _ in range(20):
        for graph, stream, _ in graphs:
            with torch.cuda.stream(stream):
                graph.replay()
        for number in numbers:
            assert same(both_ways(number), number), "beside graphs"
    torch.cuda.synchronize()
    for number, (_, _, found) in zip(numbers, graphs, strict=True):
        assert same(found, number), "in a graph, beside others"


def remembered(n_classes, size, dtype, fused):
    """Values, gradients and state of m="auto" over some batches, by the kernel or by eager PyTorch."""
    fits, kernels.fits_memory = kernels.fits_memory, kernels.fits_memory if fused else lambda losses, output: False
    try:
        generator = torch.Generator().manual_seed(n_classes)
        base = torch.nn.CrossEntropyLoss(reduction="none")
        criterion = rrt.AoRRLoss(base, m="auto", n_samples=None if n_classes == 3 else 3 * size).to(DEVICE)
        found = []
        for step in range(8):
            index = torch.randperm(3 * size, generator=generator)[:size]
            target = (index + (index % 4 == 0)) % n_classes  # a quarter of the labels is wrong
            true = torch.nn.functional.one_hot(index % n_classes, n_classes)
            output = torch.randn(size, n_classes, generator=generator) + 4 * true
            output[0] = torch.nan if step == 5 else output[0]
            output = output.to(DEVICE, dtype).requires_grad_()
            value = criterion(output, target.to(DEVICE), index.to(DEVICE))
            gradient = torch.autograd.grad(value, output)[0]
            found.append((value.detach(), gradient, criterion.last_weights))
        return found, criterion.state_dict()
    finally:
        kernels.fits_memory = fits


def check_memory():
    for n_classes, size in ((2, 1), (10, 128), (3, 37), (100, 90), *(() if INTERPRETED else ((10, 5000), (128, 4096)))):
        for dtype in (torch.float32, torch.bfloat16) if n_classes == 10 else (torch.float32,):
            (found, state), (expected, right) = (remembered(n_classes, size, dtype, fused) for fused in (True, False))
            again, same = remembered(n_classes, size, dtype, True)
            what = f"memory, {n_classes} classes, {size} samples, {dtype}"
            for step, (mine, eager, twice) in enumerate(zip(found, expected, again, strict=True)):
                for one, other, repeated in zip(mine, eager, twice, strict=True):
                    torch.testing.assert_close(
                        one.float(), other.float(), atol=2e-3 if dtype == torch.bfloat16 else 1e-5,
                        rtol=1e-2 if dtype == torch.bfloat16 else 1e-4, equal_nan=True,
                        msg=lambda text, step=step, what=what: f"{what}, batch {step}: {text}",
                    )  # fmt: skip
                    assert torch.equal(one.nan_to_num(), repeated.nan_to_num()), f"{what}: other bits in a second run"
            for name, buffer in right.items():
                torch.testing.assert_close(
                    state[name], buffer, msg=lambda text, n=name, what=what: f"{what}, {n}: {text}"
                )
                assert torch.equal(state[name], same[name]), f"{what}: other bits in a second run, {name}"


def _is_triton(module):
    return module.partition(".")[0] == "triton"


def launches(step):
    """Operations on tensors of a loss and its gradient, without views and without those of Triton's interpreter."""

    class Counter(TorchDispatchMode):
        n = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            views = ("view", "detach", "empty", "alias", "select.int", "expand")
            callers = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(None))
            self.n += not any(tag in str(function) for tag in views) and not any(map(_is_triton, callers))
            return function(*args, **(kwargs or {}))

    output = torch.randn(16, 10, generator=torch.Generator().manual_seed(0)).to(DEVICE).requires_grad_()
    label, index = torch.arange(16, device=DEVICE) % 10, torch.arange(16, device=DEVICE)
    with Counter() as counter:
        torch.autograd.grad(step(output, label, index), output)
    return counter.n


def check_launches():
    """With m="auto", a step has the kernel and at most seven operations more than cross-entropy."""
    criterion = rrt.AoRRLoss(torch.nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=16).to(DEVICE)
    launches(criterion)
    ours = launches(criterion)
    plain = launches(lambda output, target, index: torch.nn.functional.cross_entropy(output, target))
    assert ours <= plain + 7, f"{ours} operations, cross-entropy has {plain}"


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
                    group = dist.group.WORLD
                    expected = torch.autograd.grad(rrt.ranked_range(losses, m, k), losses)[0]
                    rrt.ranked_range(losses, m, k, group=group)
                    torch.cuda.set_sync_debug_mode("error")
                    value = rrt.ranked_range(losses, m, k, group=group)
                    torch.cuda.set_sync_debug_mode("default")
                    found = torch.autograd.grad(value, losses)[0]
                    compare(
                        f"group, {dtype}, m={m}, k={k}", found, expected, dtype if dtype.itemsize < 8 else torch.float32
                    )
            assert rrt.ranked_range(losses, 0, 2000, group=group).isnan()
            assert rrt.AoRRLoss(m=0.6, group=group)(losses[:1]) == losses[0]
        finally:
            torch.cuda.set_sync_debug_mode("default")
            dist.destroy_process_group()


CHECKS = {name[6:]: function for name, function in globals().items() if name.startswith("check_")}


if __name__ == "__main__":
    torch.manual_seed(0)
    if INTERPRETED:
        triton_interpreter.patch_once_per_launch()
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
    sys.exit(f"{len(failed)} of the checks failed" if failed else 0)
