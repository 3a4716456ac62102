"""Callbacks in the real trainers, with tiny models: what the loss does is in the trainer's own log."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

import rankrange.torch as rrt  # noqa: E402
from rankrange.torch.callbacks import (  # noqa: E402
    _use_group,
    hugging_face_callback,
    loss_figures,
)

# What the trainers warn of at their own start is not ours to fix.
pytestmark = pytest.mark.filterwarnings("ignore")
N = 64


def samples():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(N, 4, generator=g)
    y = (x[:, 0] > 0).long()
    y[:6] = 1 - y[:6]
    return x, y


def cross_entropy():
    return nn.CrossEntropyLoss(reduction="none")


def test_figures_are_those_of_the_last_batch():
    criterion = rrt.AoRRLoss(cross_entropy(), m=0.25)
    assert loss_figures(criterion) == {}
    x, y = samples()
    logits = torch.stack([-x[:, 0], x[:, 0]], dim=1)
    criterion(logits, y)
    losses = sorted(cross_entropy()(logits, y).tolist(), reverse=True)
    found = loss_figures(criterion, suspects=True)
    assert set(found) == {"cut", "kept"}
    assert found["kept"] == pytest.approx(0.75)
    assert losses[16] <= found["cut"] <= losses[15] + 1e-6


class Classifier(nn.Module):
    """A model as the Trainer calls one: keywords in, logits out."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x, labels=None):
        return {"logits": self.head(x)}


def hugging_face(tmp_path, **options):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    x, y = samples()
    rows = [{"x": a, "labels": b} for a, b in zip(x, y, strict=True)]
    usual = {
        "per_device_train_batch_size": 16,
        "num_train_epochs": 3,
        "learning_rate": 0.1,
        "logging_steps": 2,
        "remove_unused_columns": False,
    }
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, **(usual | options)
    )
    torch.manual_seed(0)
    return transformers.Trainer(Classifier(), arguments, train_dataset=rrt.WithIndex(rows), eval_dataset=rows)


def test_the_trainer_of_hugging_face_uses_the_loss_and_logs_it(tmp_path):
    trainer = hugging_face(tmp_path)
    criterion = rrt.AoRRLoss(cross_entropy(), m="auto", n_samples=N)
    hugging_face_callback(criterion).attach(trainer)
    trainer.train()
    logged = {name for entry in trainer.state.log_history for name in entry}
    assert {"rankrange/kept", "rankrange/share", "rankrange/share_1", "rankrange/suspects"} <= logged
    # Every sample was passed with its index: all of them are remembered.
    assert len(criterion.suspects().index) == N
    assert trainer.evaluate()["eval_loss"] > 0


def test_the_trainer_takes_the_step_of_the_ranked_range(tmp_path):
    trainer = hugging_face(tmp_path, max_steps=1, learning_rate=0.5, optim="sgd", lr_scheduler_type="constant",
                           max_grad_norm=0.0, per_device_train_batch_size=N)  # fmt: skip
    x, y = samples()
    start = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    losses = cross_entropy()(trainer.model(x)["logits"], y)
    expected = losses.sort(descending=True).values[16:].mean()
    gradient = torch.autograd.grad(expected, list(trainer.model.parameters()))
    hugging_face_callback(rrt.AoRRLoss(cross_entropy(), m=0.25)).attach(trainer)
    trainer.train()
    for old, new, g in zip(start, trainer.model.parameters(), gradient, strict=True):
        torch.testing.assert_close(new.detach(), old - 0.5 * g, rtol=1e-4, atol=1e-5)


def test_accumulated_batches_take_the_step_of_one_batch(tmp_path):
    found = []
    for batch in (N, N // 4):
        trainer = hugging_face(tmp_path / str(batch), max_steps=2, learning_rate=0.5, optim="sgd",
                               lr_scheduler_type="constant", max_grad_norm=0.0, per_device_train_batch_size=batch,
                               gradient_accumulation_steps=N // batch)  # fmt: skip
        hugging_face_callback(rrt.AoRRLoss(cross_entropy(), m=0)).attach(trainer)
        trainer.train()
        found.append([parameter.detach().clone() for parameter in trainer.model.parameters()])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_a_trainer_that_removes_the_index_is_refused(tmp_path):
    trainer = hugging_face(tmp_path, remove_unused_columns=True)
    with pytest.raises(ValueError, match="remove_unused_columns=False"):
        hugging_face_callback(rrt.AoRRLoss(cross_entropy(), m="auto", n_samples=N)).attach(trainer)


def test_in_a_distributed_run_a_loss_gets_the_group_of_all_processes(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    losses = [rrt.AoRRLoss(cross_entropy(), m="auto", n_samples=4), rrt.LinearAoRRLoss(m=0.1)]
    alone = [
        rrt.AoRRLoss(cross_entropy(), m=0.1, per_class=True),
        rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none", weight=torch.ones(2)), m=0.1),
    ]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        for loss in (*losses, *alone):
            _use_group(loss)
        assert all(loss.group is torch.distributed.group.WORLD for loss in losses)
        assert all(loss.group is None for loss in alone)
    finally:
        torch.distributed.destroy_process_group()


def test_figures_of_losses_without_indices_or_positive_losses():
    scores, target = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    automatic = rrt.AoRRLoss(cross_entropy(), m="auto", n_samples=8)
    automatic(scores, target)
    assert "suspects" not in loss_figures(automatic, suspects=True)
    loss = rrt.AoRRLoss(m="auto", n_samples=3)
    loss(torch.zeros(3))
    assert loss_figures(loss) == {"kept": 1.0, "share": 0.0}


def test_the_share_of_wrong_labels_is_the_mean_over_classes_with_samples():
    loss = rrt.AoRRLoss(cross_entropy(), m="auto", n_samples=4)
    loss(30.0 * torch.eye(10)[[2, 5, 2, 5]], torch.tensor([2, 5, 2, 5]))
    assert loss_figures(loss) == {"kept": 1.0, "share": 0.0, "share_2": 0.0, "share_5": 0.0}
    loss(30.0 * torch.eye(10)[[5, 2, 5, 2]], torch.tensor([2, 5, 2, 5]))
    found = loss_figures(loss)
    assert found["share"] == pytest.approx((found["share_2"] + found["share_5"]) / 2) == pytest.approx(0.5, abs=0.01)


def test_the_kept_share_leaves_out_ignored_targets():
    base = nn.CrossEntropyLoss(reduction="none", ignore_index=-100)
    scores = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    loss = rrt.AoRRLoss(base, m=1, ignore_index=-100)
    loss(scores, torch.tensor([0, 1, 2, 0, -100, -100, -100, -100]))
    assert loss_figures(loss)["kept"] == 0.75
    loss = rrt.AoRRLoss(base, ignore_index=-100)
    loss(scores, torch.full((8,), -100))
    assert loss_figures(loss) == {}  # neither the mean of no weights nor the infinite cut
