"""docs/how-to/trainers.md runs as printed; a stand-in makes the calls of Lightning, which is large, in its order."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

import rankrange.torch as rrt  # noqa: E402

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "trainers.md").read_text(encoding="utf-8")


def code_under(heading):
    """The Python code of one section."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return code


def run_section(heading):
    names = {}
    exec(compile(code_under(heading), f"docs/how-to/trainers.md, {heading}", "exec"), names)
    return names


def noisy_batches(n_batches=60, size=64, flipped=0.2):
    """A linear problem with three classes and some labels wrong; and the same labels clean."""
    generator = torch.Generator().manual_seed(0)
    true = torch.randn(20, 3, generator=generator)
    for _ in range(n_batches):
        x = torch.randn(size, 20, generator=generator)
        clean = (x @ true).argmax(1)
        wrong = torch.rand(size, generator=generator) < flipped
        yield x, torch.where(wrong, (clean + 1) % 3, clean), clean


class StandInModule(nn.Module):
    """What Lightning's trainer asks of a module, and what a module may ask of it."""

    def log(self, name, value):
        self.log_dict({name: value})

    def log_dict(self, values):
        self.logged = {**getattr(self, "logged", {}), **values}


def stand_in_fit(module, batches):
    """The order of the calls in a Lightning fit."""
    optimizer = module.configure_optimizers()
    module.train()
    module.on_fit_start()
    for index, batch in enumerate(batches):
        optimizer.zero_grad()
        module.training_step(batch, index).backward()
        optimizer.step()
    module.on_train_epoch_end()


def noisy_dataset():
    x, y, clean = (torch.cat(parts) for parts in zip(*noisy_batches(), strict=True))
    return torch.utils.data.TensorDataset(x, y), clean


def share_of_errors(criterion, dataset, clean):
    """How much of the eighth that is most suspect is wrong."""
    worst = criterion.sample_weights().argsort()[: len(clean) // 8]
    return (dataset.tensors[1] != clean)[worst].float().mean()


def test_lightning(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning", types.SimpleNamespace(LightningModule=StandInModule))
    dataset, clean = noisy_dataset()
    module = run_section("Lightning")["RobustClassifier"](nn.Linear(20, 3), len(dataset))
    loader = torch.utils.data.DataLoader(rrt.WithIndex(dataset), batch_size=64)
    stand_in_fit(module, [batch for _ in range(8) for batch in loader])
    assert share_of_errors(module.criterion, dataset, clean) > 0.8
    assert module.logged["train_loss"] > 0
    assert module.logged["rankrange/suspects"] > 0
    assert module.state_dict()["criterion.auto.history.rows"].shape == (len(dataset) + 1, 3)


def test_skorch():
    pytest.importorskip("skorch", reason="skorch is not installed")
    dataset, clean = noisy_dataset()
    torch.manual_seed(0)
    x, y = (part.numpy() for part in dataset.tensors)
    net = run_section("skorch")["robust_net"](len(x))
    net.fit({"features": x, "index": np.arange(len(x))}, y)
    assert share_of_errors(net.criterion_, dataset, clean) > 0.8
