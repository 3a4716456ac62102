"""What a trainer logs of a loss, and the group that a loss gets from it."""

import types

import pytest
import torch
from torch import nn

import rankrange.torch as rrt
from rankrange.torch.callbacks import _check_trainer, _use_group, loss_figures


def cross_entropy():
    return nn.CrossEntropyLoss(reduction="none")


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"m": "auto"}, "remembers documents"), ({"m": 0.1, "per": "sequence"}, "ranks documents")],
)
def test_documents_that_are_joined_are_refused(settings, message):
    arguments = types.SimpleNamespace(remove_unused_columns=False, padding_free=True)
    with pytest.raises(ValueError, match=rf"{message}, got padding_free=True"):
        _check_trainer(types.SimpleNamespace(args=arguments), rrt.LinearAoRRLoss(**settings))


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
    assert loss_figures(loss) == {}
    loss(scores, torch.full((8,), -100))
    assert loss_figures(loss) == {}  # neither the mean of no weights nor the infinite cut
