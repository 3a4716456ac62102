"""One ranking over several processes (gloo): equal to one process on the joined batch, and no hang when one dies."""

import datetime
import functools
import multiprocessing
import os
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

import rankrange as rr
import rankrange.torch as rrt

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch was built without gloo")

# Sequences of six tokens a process, the first so many of them: uneven, and none at all.
SIZES = {2: [7, 0], 4: [2, 4, 0, 1]}
SAMPLES = {
    "fractions": {"m": 0.2, "k": 0.8},
    "counts": {"m": 3, "k": 9},
    "largest": {"m": 0, "k": 1},
    "one rank left": {"m": 0.5, "k": 0.51},
    "warm": {"m": 0.2, "k": 0.8, "warmup": 5},
    "auto": {"m": "auto", "n_samples": 60},
}
TOKENS = {
    "tokens": {"m": 0.2, "k": 0.8},
    "counts of tokens": {"m": 3, "k": 9, "key": "loss"},
    "all tokens": {},
    "sequences": {"m": 0.3, "per": "sequence"},
    "auto by token": {"m": "auto", "warmup": 1},
    "auto by sequence": {"m": "auto", "per": "sequence"},
}
CASES = [(name, dtype, tied) for name in SAMPLES | TOKENS for dtype, tied in (("float32", False), ("float32", True))]
CASES += [("fractions", "float64", tied) for tied in (False, True)]


def make_data(n, dtype, tied):
    """Inputs, targets and indices of n sequences; if tied, three different losses in all."""
    g = torch.Generator().manual_seed(n)
    x, y = torch.randn(n, 6, 4, generator=g).to(dtype), torch.randint(0, 7, (n, 6), generator=g)
    if tied:
        x, y = torch.ones_like(x), y % 3
    return x, y, torch.arange(n)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 7)
        with torch.no_grad():
            for parameter in self.parameters():  # few digits, so that ties are exact in batches of every size
                parameter.copy_(parameter.mul(64).round() / 64)

    def forward(self, x, y, index, criterion):
        hidden = torch.relu(self.body(x))
        if isinstance(criterion, rrt.LinearAoRRLoss):
            return criterion(hidden, self.head.weight, torch.where(y == 6, -100, y), self.head.bias)
        index = [(6 * index[:, None] + torch.arange(6)).flatten()] if criterion.automatic else []
        return criterion(self.head(hidden).flatten(0, 1), y.flatten(), *index)


def make_criterion(name, group=None):
    if name in TOKENS:
        return rrt.LinearAoRRLoss(group=group, **TOKENS[name])
    return rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), group=group, **SAMPLES[name])


def steps(model, data, criterion, n_steps):
    """Steps of gradient descent: what the last one found, and what the loss has stored."""
    for _ in range(n_steps):
        model.zero_grad()
        value = model(*data, criterion)
        value.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.3 * parameter.grad
    rows = {key: each[:-1] if "history" in key or "given" in key else each for key, each in criterion.named_buffers()}
    stored = {key: each[~each.isnan()] for key, each in rows.items()}  # no spare rows, no padding
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    of_samples = isinstance(criterion, rrt.AoRRLoss) and not criterion.automatic
    cut = criterion._last["cut"] if of_samples else []
    found = {"value": value.detach(), "gradients": gradients, "cut": cut, "stored": stored}
    return found | {"weights": criterion.last_weights}


def part_of(rank, sizes, dtype="float32", tied=False):
    return [part.split(sizes)[rank] for part in make_data(sum(sizes), getattr(torch, dtype), tied)]


def check_cases(rank, sizes):
    """What one process of the group finds in every case."""
    results = []
    for name, dtype, tied in CASES:
        model = nn.parallel.DistributedDataParallel(Model().to(getattr(torch, dtype)))
        criterion = make_criterion(name, dist.group.WORLD)
        results.append(steps(model, part_of(rank, sizes, dtype, tied), criterion, 1 if tied else 3))
    results.append({"value": accumulate(rank, sizes), "sharded": sharded(rank, sizes)})
    return results


def accumulate(rank, sizes):
    """As transformers' trainer does it: each process's part of the sum, times the number of processes, averaged."""
    x, y, _ = part_of(rank, sizes)
    model, n_items = Model(), make_data(sum(sizes), torch.float32, False)[1].numel()
    hidden, criterion = torch.tanh(model.body(x)), rrt.LinearAoRRLoss(group=dist.group.WORLD)
    return criterion(hidden, model.head.weight, y, model.head.bias, n_items=n_items).detach() * len(sizes)


def sharded(rank, sizes):
    """Gradients where FSDP2 has sharded body and head; the head's matrix is gathered by the loss."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = Model(), init_device_mesh("cpu", (len(sizes),))
    for part in (model.body, model.head):
        fully_shard(part, mesh=mesh)
    model(*part_of(rank, sizes), make_criterion("tokens", dist.group.WORLD)).backward()
    return [parameter.grad.full_tensor() for parameter in model.parameters()]


def check_edges(rank, sizes):
    results = {}
    group = dist.group.WORLD
    empty = torch.zeros(0, requires_grad=True)
    nothing = rrt.ranked_range(empty, 0.1, 0.9, group=group)
    nothing.backward()
    results["nothing"] = nothing.detach()
    values = torch.tensor([torch.nan, 1.0, 2.0] if rank == 0 else [3.0, 4.0])
    results["nan"] = rrt.ranked_range(values, 1, 3, group=group)
    values = torch.tensor([torch.inf, -0.0, 2.0] if rank == 0 else [0.0, 4.0])
    results["infinite"] = rrt.ranked_range(values, 1, 3, group=group)
    results["median"] = rrt.ranked_range(values[values < 9], rr.RankedRange.median(), group=group)
    results["half"] = rrt.ranked_range(torch.arange(4.0).bfloat16() + rank, 0.25, 0.75, group=group)
    for name, ranks in (("too many", (0, 100)), ("none left", (0.3, 0.35))):
        with pytest.raises(ValueError, match="need 0 <= m < k <= n") as error:
            rrt.ranked_range(torch.ones(2), *ranks, group=group)
        results[name] = str(error.value)
    return results


def check_stream(rank, sizes):
    """Batches of the stream end after the same number of steps everywhere, with whatever sizes."""
    loss = rrt.AoRRLoss(m=0.1, k=0.7, ranking="stream", group=dist.group.WORLD)
    generator = torch.Generator().manual_seed(rank)
    for step in range(150):
        value = loss(torch.rand((rank + step) % 5 * 8, generator=generator) * (rank + 1))
    batch = torch.rand(6, generator=generator, requires_grad=True)
    value = loss.eval()(batch)
    value.backward()
    return {"tracked": loss.cuts.tracked, "value": value.detach(), "batch": batch.detach(), "gradient": batch.grad}


def worker(rank, world, folder, job, timeout):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=timeout),
    )
    torch.save(job(rank, SIZES[world]), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def process_context():
    """Fresh processes: forked from one that has imported PyTorch and not used it, where the platform can do that."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rankrange.torch", "torch._dynamo", "torch.distributed.fsdp", "pytest"])
    return context


def run_group(world, folder, job, timeout=60):
    """Run `job` in `world` processes; their results, or None for one that left without any."""
    context = process_context()
    processes = [context.Process(target=worker, args=(r, world, str(folder), job, timeout)) for r in range(world)]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
    finally:
        for process in processes:
            process.kill()
            process.join()
    files = [folder / f"{rank}.pt" for rank in range(world)]
    return [torch.load(file, weights_only=True) if file.exists() else None for file in files]


@pytest.mark.parametrize("world", [2, 4])
def test_loss_and_gradients_are_those_of_one_process_on_the_joined_batch(world, tmp_path):
    found = run_group(world, tmp_path, check_cases)
    for i, (name, dtype, tied) in enumerate(CASES):
        data = make_data(sum(SIZES[world]), getattr(torch, dtype), tied)
        expected = steps(Model().to(data[0].dtype), data, make_criterion(name), 1 if tied else 3)
        same = functools.partial(torch.testing.assert_close, rtol=1e-6, atol=1e-6,
                                 msg=lambda m, n=name: f"{n}: {m}")  # fmt: skip
        for process in found:
            for what in ("value", "gradients", "cut", "stored"):
                same(process[i][what], expected[what])
        if name in SAMPLES or not tied:  # tokens with equal keys are ranked by rounding in blocks
            same(torch.cat([process[i]["weights"] for process in found]), expected["weights"])
    data, model = make_data(sum(SIZES[world]), torch.float32, False), Model()
    hidden = torch.tanh(model.body(data[0]))
    joined = rrt.LinearAoRRLoss()(hidden, model.head.weight, data[1], model.head.bias).detach()
    model(*data, make_criterion("tokens")).backward()
    for process in found:  # parts of accumulated batches add up over the processes
        torch.testing.assert_close(process[-1]["value"], joined)
        gradients = [parameter.grad for parameter in model.parameters()]
        torch.testing.assert_close(process[-1]["sharded"], gradients, rtol=1e-6, atol=1e-6)


def test_edges_of_the_joined_batch(tmp_path):
    for process in run_group(2, tmp_path, check_edges):
        assert process["nothing"] == 0
        assert process["nan"].isnan()
        assert process["infinite"] == 3  # of inf, 4, 2, 0, -0: ranks 2 and 3
        assert process["median"] == 1  # of 4, 2, 0, -0
        assert process["half"] == 2  # of 4, 3, 3, 2, 2, 1, 1, 0: ranks 3 to 6
        assert "got m=0, k=100 for n=4 values" in process["too many"]
        assert "got m=1, k=1 for n=4 values" in process["none left"]


def test_tracked_cuts_are_the_same_everywhere_and_gradients_those_of_the_joined_batch(tmp_path):
    one, other = run_group(2, tmp_path, check_stream)
    torch.testing.assert_close(one["tracked"], other["tracked"], rtol=0, atol=0)
    lam, lam_hat, _ = one["tracked"]
    joined = torch.cat([one["batch"], other["batch"]])
    kept = ((joined > lam) & (joined <= lam_hat)) / (0.6 * len(joined))
    torch.testing.assert_close(torch.cat([one["gradient"], other["gradient"]]) / 2, kept)
    for process in (one, other):
        torch.testing.assert_close(process["value"], (kept * joined).sum())
    # Half of the losses are uniform on [0, 1], half on [0, 2]: 30% lie below 0.4 and 10% above 1.6.
    torch.testing.assert_close(one["tracked"][:2], torch.tensor([0.4, 1.6]), rtol=0, atol=0.15)


def leave(rank, sizes, how, folder):
    """The last process dies or stalls before a ranking; the other tells how its own call ended, and how soon."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=4))  # a busy machine needs some
    rrt.ranked_range(torch.rand(3), 0.1, 0.9, group=group)
    if rank == 1:
        if how == "dies":
            os._exit(1)
        while not os.path.exists(f"{folder}/0.pt"):
            time.sleep(0.1)
        return None
    begin = time.monotonic()
    try:
        rrt.ranked_range(torch.rand(3), 0.1, 0.9, group=group)
    except RuntimeError as error:
        return {"error": str(error), "seconds": time.monotonic() - begin}
    return {"error": "", "seconds": time.monotonic() - begin}


@pytest.mark.parametrize("how", ["dies", "stalls"])
def test_a_process_that_is_gone_is_an_error_within_the_timeout_not_a_hang(how, tmp_path):
    survivor = run_group(2, tmp_path, functools.partial(leave, how=how, folder=str(tmp_path)))[0]
    assert survivor["error"]
    assert survivor["seconds"] < 60
