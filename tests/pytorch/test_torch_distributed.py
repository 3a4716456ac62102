"""One ranking over several processes (gloo): equal to one process on the joined batch, and no hang when one dies."""

import datetime
import functools
import multiprocessing
import os
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import rankrange as rr  # noqa: E402
import rankrange.torch as rrt  # noqa: E402

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch was built without gloo")

# One batch size a process, the first so many of them: uneven, and one empty.
SIZES = {2: [13, 0], 4: [5, 17, 0, 2]}
SETTINGS = {
    "fractions": {"m": 0.2, "k": 0.8},
    "counts": {"m": 3, "k": 9},
    "largest": {"m": 0, "k": 1},
    "all": {"m": 0.0, "k": 1.0},
    "one rank left": {"m": 0.5, "k": 0.51},
    "warm": {"m": 0.2, "k": 0.8, "warmup": 5},
}


def make_data(n, dtype, tied):
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, 4, dtype=dtype, generator=generator)
    if tied:
        x = x[torch.zeros(n, dtype=torch.long)] * (torch.arange(n) % 3)[:, None]  # three different losses in all
    return x, torch.arange(n) % 3 if not tied else torch.zeros(n, dtype=torch.long)


def make_model(dtype):
    torch.manual_seed(0)
    return nn.Linear(4, 3).to(dtype)


def train_step(model, x, y, **settings):
    loss = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), **settings)
    value = loss(model(x), y)
    value.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return {"value": value.detach(), "gradients": gradients, "cut": loss._last["cut"], "weights": loss.last_weights}


CASES = [(name, torch.float32, tied) for name in SETTINGS for tied in (False, True)]
CASES += [("fractions", torch.float64, tied) for tied in (False, True)]


def check_cases(rank, sizes):
    """What one process of the group finds in every case."""
    results = []
    for name, dtype, tied in CASES:
        x, y = (part.split(sizes)[rank] for part in make_data(sum(sizes), dtype, tied))
        model = nn.parallel.DistributedDataParallel(make_model(dtype))
        results.append(train_step(model, x, y, group=dist.group.WORLD, **SETTINGS[name]))
    return results


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
    try:
        rrt.ranked_range(torch.ones(2), 0, 100, group=group)
    except ValueError as error:
        results["error"] = str(error)
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
        x, y = make_data(sum(SIZES[world]), dtype, tied)
        expected = train_step(make_model(dtype), x, y, **SETTINGS[name])
        same = functools.partial(torch.testing.assert_close, rtol=1e-6, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
        for process in found:
            for what in ("value", "gradients", "cut"):
                same(process[i][what], expected[what])
        same(torch.cat([process[i]["weights"] for process in found]), expected["weights"])


def test_edges_of_the_joined_batch(tmp_path):
    for process in run_group(2, tmp_path, check_edges):
        assert process["nothing"] == 0
        assert process["nan"].isnan()
        assert process["infinite"] == 3  # of inf, 4, 2, 0, -0: ranks 2 and 3
        assert process["median"] == 1  # of 4, 2, 0, -0
        assert process["half"] == 2  # of 4, 3, 3, 2, 2, 1, 1, 0: ranks 3 to 6
        assert "got m=0, k=100 for n=4 values" in process["error"]


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
    group = dist.new_group(timeout=datetime.timedelta(seconds=8))  # a busy machine needs some
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


def test_a_group_ranks_everything_together():
    with pytest.raises(ValueError, match="leave dim out"):
        rrt.ranked_range(torch.ones(2, 2), 0, 1, dim=1, group=object())
