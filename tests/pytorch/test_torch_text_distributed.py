"""Token losses over several processes (gloo): equal to one process on the joined batch, and no hang when one dies."""

import functools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.distributed as dist  # noqa: E402
from test_torch_distributed import run_group  # noqa: E402
from torch import nn  # noqa: E402

import rankrange.torch as rrt  # noqa: E402

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this PyTorch was built without gloo")

SIZES = {2: [5, 0], 4: [2, 3, 0, 1]}  # sequences a process: uneven, and none at all
SETTINGS = {
    "tokens": {"m": 0.2, "k": 0.8},
    "counts": {"m": 3, "k": 9, "key": "loss"},
    "all": {},
    "sequences": {"m": 0.3, "per": "sequence"},
    "auto": {"m": "auto", "warmup": 1},
    "auto by sequence": {"m": "auto", "per": "sequence"},
    "warm": {"m": 0.3, "warmup": 9},
}


def make_data(n, tied):
    g = torch.Generator().manual_seed(n)
    x, y = torch.randn(n, 6, 4, generator=g), torch.randint(0, 7, (n, 6), generator=g)
    if tied:
        x, y = torch.ones_like(x), torch.where(y < 3, 1, 2)
    y[0, :2] = -100
    return x, y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 5), nn.Linear(5, 7)

    def forward(self, x, y, criterion):
        return criterion(torch.tanh(self.body(x)), self.head.weight, y, self.head.bias)


def steps(model, x, y, criterion, n_steps=3):
    for _ in range(n_steps):
        model.zero_grad()
        value = model(x, y, criterion)
        value.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.3 * parameter.grad
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return {"value": value.detach(), "gradients": gradients, "weights": criterion.last_weights}


def make_model():
    torch.manual_seed(0)
    return Model()


CASES = [(name, tied) for name in SETTINGS for tied in (False, True)]


def accumulate(rank, sizes):
    """As transformers' trainer does it: each process's part of the sum, times the number of processes, averaged."""
    x, y = (part.split(sizes)[rank] for part in make_data(sum(sizes), False))
    criterion, model = rrt.LinearAoRRLoss(group=dist.group.WORLD), make_model()
    n_items = int((make_data(sum(sizes), False)[1] != -100).sum())
    hidden = torch.tanh(model.body(x))
    return criterion(hidden, model.head.weight, y, model.head.bias, n_items=n_items).detach() * len(sizes)


def sharded(rank, sizes):
    """Gradients where FSDP2 has sharded body and head; the head's matrix is gathered by the loss."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = make_model(), init_device_mesh("cpu", (len(sizes),))
    x, y = (part.split(sizes)[rank] for part in make_data(sum(sizes), False))
    for part in (model.body, model.head):
        fully_shard(part, mesh=mesh)
    model(x, y, rrt.LinearAoRRLoss(0.2, 0.8, group=dist.group.WORLD)).backward()
    return [parameter.grad.full_tensor() for parameter in model.parameters()]


def check_cases(rank, sizes):
    sizes = SIZES[len(sizes)]
    results = []
    for name, tied in CASES:
        x, y = (part.split(sizes)[rank] for part in make_data(sum(sizes), tied))
        criterion = rrt.LinearAoRRLoss(group=dist.group.WORLD, **SETTINGS[name])
        results.append(steps(nn.parallel.DistributedDataParallel(make_model()), x, y, criterion))
    results.append({"value": accumulate(rank, sizes), "sharded": sharded(rank, sizes)})
    return results


@pytest.mark.parametrize("world", [2, 4])
def test_loss_and_gradients_are_those_of_one_process_on_the_joined_batch(world, tmp_path):
    found = run_group(world, tmp_path, check_cases)
    for i, (name, tied) in enumerate(CASES):
        x, y = make_data(sum(SIZES[world]), tied)
        expected = steps(make_model(), x, y, rrt.LinearAoRRLoss(**SETTINGS[name]))
        same = functools.partial(torch.testing.assert_close, rtol=1e-6, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")
        for process in found:
            same(process[i]["value"], expected["value"])
            same(process[i]["gradients"], expected["gradients"])
        if not tied:  # rounding in blocks of other sizes may break a tie otherwise, between equal tokens
            same(torch.cat([process[i]["weights"] for process in found]), expected["weights"])
    joined = make_model()(*make_data(sum(SIZES[world]), False), rrt.LinearAoRRLoss()).detach()
    model = make_model()
    model(*make_data(sum(SIZES[world]), False), rrt.LinearAoRRLoss(0.2, 0.8)).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    for process in found:  # parts of accumulated batches add up over the processes
        torch.testing.assert_close(process[-1]["value"], joined)
        torch.testing.assert_close(process[-1]["sharded"], gradients, rtol=1e-6, atol=1e-6)
