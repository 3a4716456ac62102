"""AoRRLoss, TKMLLoss and the schedule: what a training loop sees."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import rankrange as rr
import rankrange.torch as rrt


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_last_weights_and_cuts_are_those_of_numpy():
    s = torch.tensor([[3.0, 1.0, 2.0], [2.0, 2.0, 9.0]])
    loss = rrt.AoRRLoss(m=1, k=3)
    with pytest.raises(AttributeError, match="call the loss first"):
        _ = loss.lam
    loss(s)
    assert (loss.lam, loss.lam_hat) == (2.0, 9.0)
    np.testing.assert_allclose(loss.last_weights, rr.range_weights(s.numpy(), 1, 3, axis=None), rtol=1e-6)


def test_a_batch_of_none_gives_zero_and_a_batch_too_small_for_its_fractions_keeps_one():
    loss = rrt.AoRRLoss(m=0.6, k=1.0)
    assert loss(torch.zeros(0)) == 0
    assert loss(torch.tensor([5.0])) == 5
    assert rrt.AoRRLoss(m=0.0, k=0.1)(torch.tensor([5.0, 7.0])) == 7
    assert rrt.AoRRLoss(m=0.4, k=0.6)(torch.tensor([3.0, 5.0, 7.0, 9.0])) == 5
    assert rrt.AoRRLoss(m=0, k=1.0, ranking="stream")(torch.tensor([1.0, 3.0])) == 2
    assert rrt.AoRRLoss(m=0.1, warmup=0.2, total_batches=50).warmup == 10
    assert rrt.WorstGroupLoss()(torch.zeros(0), groups=torch.zeros(0, dtype=torch.long)) == 0


# --- ranks in the data set ----------------------------------------------------------------------------------------


def stream_of(losses, batch_size, epochs, generator):
    for _ in range(epochs):
        yield from losses[torch.randperm(len(losses), generator=generator)].split(batch_size)


@pytest.mark.parametrize("batch_size", [7, 64])
def test_tracked_cuts_approach_those_of_the_data_set(batch_size):
    generator = seeded()
    data = torch.cat([torch.randn(1800, generator=generator).abs(), 1e6 + torch.rand(200, generator=generator)])
    loss = rrt.AoRRLoss(m=0.1, k=0.7, ranking="stream", step=0.05)
    shares = []
    for batch in stream_of(data, batch_size, 12, generator):
        loss(batch)
        shares.append([(data > cut).float().mean().item() for cut in (loss.lam_hat, loss.lam)])
    late = np.array(shares[len(shares) // 2 :])
    np.testing.assert_allclose(late.mean(0), [0.1, 0.7], atol=0.02)
    assert np.abs(late - [0.1, 0.7]).mean() < 0.1  # although the quartiles of a small batch may be those of outliers
    assert loss(torch.full((batch_size,), 1e6)) == 0  # a batch full of outliers loses all of them
    assert loss.last_weights.sum() == 0


def test_the_upper_cut_never_falls_below_the_lower_however_the_losses_jump():
    """Tracked cuts that lie close may cross when the losses change their level; the cuts of a batch do not."""
    generator = seeded()
    crossed = 0
    for _ in range(5):
        loss = rrt.AoRRLoss(m=0.45, k=0.55, ranking="stream", step=1.0)
        for _ in range(200):
            level, width = 10 * torch.rand(2, generator=generator)
            value = loss(level + width * torch.rand(20, generator=generator))
            assert loss.lam <= loss.lam_hat
            assert value >= 0
            crossed += int(loss.cuts.tracked[0] > loss.cuts.tracked[1])
    assert crossed > 10  # or nothing has been shown


def test_tracking_does_not_depend_on_the_unit_of_the_losses():
    small, large = (rrt.AoRRLoss(m=0.1, k=0.9, ranking="stream") for _ in range(2))
    for batch in stream_of(torch.rand(300, generator=seeded()), 20, 2, seeded()):
        small(batch)
        large(1024 * batch)
    torch.testing.assert_close(1024 * small.lam_hat, large.lam_hat)


def test_infinite_and_empty_batches_leave_the_tracked_cuts_finite():
    loss = rrt.AoRRLoss(m=0.3, k=0.9, ranking="stream")
    loss(torch.tensor([torch.inf, torch.inf, torch.inf, 1.0]))
    assert loss(torch.zeros(0)) == 0
    for batch in torch.rand(20, 10, generator=seeded()):
        assert loss(torch.cat([batch, torch.tensor([torch.inf])])).isfinite()
    assert loss.lam_hat.isfinite()
    tracked = loss.cuts.tracked.clone()
    assert loss(torch.tensor([torch.nan, 1.0])).isnan()
    assert torch.equal(loss.cuts.tracked, tracked)


@pytest.mark.parametrize("ranking", ["batch", "stream"])
def test_warm_up_is_the_plain_mean(ranking):
    loss = rrt.AoRRLoss(m=0.2, k=0.8, ranking=ranking, warmup=3)
    batches = torch.rand(5, 40, generator=seeded())
    for i, batch in enumerate(batches):
        value = loss(batch)
        assert (value.item() == pytest.approx(batch.mean().item())) == (i < 3)
        assert (loss.last_weights == 1).all() == (i < 3)


def test_schedule_sets_k_by_the_accuracy_reached_and_round_trips():
    loss = rrt.AoRRLoss(m=0.1, k=1.0)
    schedule = rrt.AccuracySchedule(loss, {0.9: 0.25, 0.8: 0.5})
    assert [schedule.step(a) for a in (0.5, 0.8, 0.85, 0.97, 0.7)] == [1.0, 0.5, 0.5, 0.25, 1.0]
    schedule.step(0.9)
    fresh = rrt.AoRRLoss(m=0.1, k=1.0)
    rrt.AccuracySchedule(fresh, {0.9: 0.25, 0.8: 0.5}).load_state_dict(schedule.state_dict())
    assert fresh.k == 0.25


def test_without_torch_the_package_imports_and_the_subpackage_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import rankrange\n"
        "try:\n    rankrange.torch\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install torch" in done.stdout


@pytest.mark.parametrize("loss", [rrt.AoRRLoss(m=1, k=3), rrt.AoRRLoss(m="auto", n_samples=4), rrt.LinearAoRRLoss(0.2)])
def test_what_has_no_value_yet_is_no_attribute(loss):
    names = [name for name, _ in inspect.getmembers(loss)]
    assert "m" in names
    for name in ("lam", "lam_hat", "last_weights"):
        assert name not in names
        with pytest.raises(AttributeError, match="call the loss first"):
            getattr(loss, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = loss.nothing
    if loss.m != "auto":
        with pytest.raises(AttributeError, match=r"needs m='auto', got .*with m='auto'"):
            _ = loss.share if isinstance(loss, rrt.LinearAoRRLoss) else loss.shares


# --- classes, class weights and groups ----------------------------------------------------------------------------


def repeated(losses, counts, m, k):
    """By the definition: each loss as often as its count says."""
    return sum(sorted(np.repeat(losses, counts), reverse=True)[m:k]) / (k - m)


@pytest.mark.parametrize("tied", [False, True])
def test_ranks_inside_classes_take_the_same_share_of_each_and_ties_share(tied):
    losses, target = torch.rand(40, generator=seeded(), dtype=torch.float64), torch.arange(40) % 4
    losses = losses.mul(4).round() if tied else losses
    loss = rrt.AoRRLoss(lambda scores, target: losses, m=0.2, k=0.7, per_class=True)
    value = loss(torch.zeros(40, 4), target)
    rows = [rr.range_weights(losses[target == c].numpy(), 2, 7) for c in range(4)]
    for c in range(4):
        np.testing.assert_allclose(loss.last_weights[target == c], rows[c])
    assert value.item() == pytest.approx(sum(rows[c] @ losses[target == c].numpy() for c in range(4)) / 20)


def test_class_weights_at_m_0_give_the_weighted_mean_of_pytorch():
    """It was the mean of the weighted losses: 3.12 instead of 1.34."""
    weight = torch.tensor([0.2, 1.0, 5.0])
    scores, target = 2 * torch.randn(60, 3, generator=seeded()), torch.arange(60) % 3
    found = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none", weight=weight))(scores, target)
    torch.testing.assert_close(found, nn.CrossEntropyLoss(weight=weight)(scores, target))
    soft = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none", weight=weight))(input=scores, target=scores.softmax(1))
    torch.testing.assert_close(soft, nn.CrossEntropyLoss(weight=weight)(scores, scores.softmax(1)))
    loss = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none", weight=weight), "auto", n_samples=60)
    torch.testing.assert_close(
        loss(scores, target, torch.arange(60)), nn.CrossEntropyLoss(weight=weight)(scores, target)
    )
    ignoring = {"weight": weight, "ignore_index": 2}
    found = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none", **ignoring))(scores, target)
    torch.testing.assert_close(found, nn.CrossEntropyLoss(**ignoring)(scores, target))


@pytest.mark.parametrize(("m", "k"), [(0.25, 0.75), (0.0, 0.5), (10, 40)])
def test_class_weights_are_repetitions(m, k):
    counts = torch.tensor([1, 2, 4])
    scores, target = 2 * torch.randn(24, 3, generator=seeded(), dtype=torch.float64), torch.arange(24) % 3
    base = nn.CrossEntropyLoss(reduction="none", weight=counts.double())
    losses = nn.functional.cross_entropy(scores, target, reduction="none").numpy()
    low, high = (round(rank * 56) if isinstance(rank, float) else rank for rank in (m, k))
    found = rrt.AoRRLoss(base, m, k)(scores, target)
    assert found.item() == pytest.approx(repeated(losses, counts[target], low, high))


@pytest.mark.parametrize("how", ["plain", "per class", "class weights", "stream", "worst group"])
def test_losses_that_differ_in_double_precision_only_are_ranked(how):
    losses, target = 1.0 + 1e-12 * torch.arange(8, dtype=torch.float64), torch.zeros(8, dtype=torch.long)
    scores = losses[:, None] * torch.ones(2, dtype=torch.float64)
    base = (
        nn.NLLLoss(reduction="none", weight=torch.ones(2).double()) if how == "class weights" else lambda z, y: z[:, 0]
    )
    settings = {"per class": {"per_class": True}, "stream": {"ranking": "stream"}}.get(how, {})
    if how == "worst group":
        loss = rrt.WorstGroupLoss(base, m=2)
        loss(scores, target, groups=target)
    else:
        loss = rrt.AoRRLoss(base, m=0.25, **settings)
        loss(-scores if how == "class weights" else scores, target)
    dropped = [7] if how == "stream" else [6, 7]  # a loss at a tracked cut is kept
    assert (loss.last_weights == 0).nonzero()[:, 0].tolist() == dropped


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("worst", [None, 0.5, 1.0])
@pytest.mark.parametrize("m", [0, 7])
def test_worst_groups_by_the_definition(m, worst, ties):
    """Drop the same share of each group, average the worst groups."""
    losses = torch.rand(40, generator=seeded(m), dtype=torch.float64)
    losses = losses.mul(5).round() if ties else losses
    groups = torch.arange(40) % 4
    loss = rrt.WorstGroupLoss(None, m, worst)
    leaf = losses.clone().requires_grad_()
    value = loss(leaf, groups=groups * 10 - 3)
    quotas = [2, 2, 2, 1] if m else [0] * 4  # largest remainders, the first ones of equal ones
    means = sorted((float(losses[groups == g].sort().values[: 10 - quotas[g]].mean()) for g in range(4)), reverse=True)
    n_groups = 1 if worst is None else int(4 * worst)
    assert value.item() == pytest.approx(np.mean(means[:n_groups]))
    value.backward()
    torch.testing.assert_close(leaf.grad, loss.last_weights)
    assert loss.last_weights.sum().item() == pytest.approx(1.0)


def test_a_group_that_loses_all_its_samples_does_not_count():
    losses, groups = torch.tensor([-1.0, -2.0, -3.0, -4.0]), torch.tensor([0, 1, 1, 1])
    assert rrt.WorstGroupLoss(m=2)(losses, groups=groups) == -3.5
