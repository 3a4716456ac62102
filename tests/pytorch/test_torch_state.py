"""What the losses of PyTorch remember: looking at it changes nothing, and neither does a batch with a NaN."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

import rankrange.torch as rrt  # noqa: E402

N, CLASSES = 60, 3


def batches(seed=0, width=CLASSES, size=20, steps=12):
    """Scores, labels and indices of batches."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        rows = torch.arange(step * size, (step + 1) * size) % N
        yield 3.0 * torch.randn(size, width, generator=generator), rows % width, rows


def state(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=0, equal_nan=True, msg=name)


def automatic(**settings):
    return rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=N, **settings)


LOOKS = {
    "weights of all samples": lambda loss: loss.sample_weights(),
    "suspects": lambda loss: loss.suspects(),
    "a copy": copy.deepcopy,
    "its state": lambda loss: loss.state_dict(),
    "its text": repr,
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_what_a_loss_remembers_changes_nothing(look):
    plain, looked = automatic(), automatic()
    for step, (scores, labels, rows) in enumerate(batches()):
        values = [loss(scores, labels, rows) for loss in (plain, looked)]
        assert values[0] == values[1]
        if step in (3, 7):
            modes = [part.training for part in looked.modules()]
            LOOKS[look](looked)
            assert [part.training for part in looked.modules()] == modes
        assert_same(state(plain), state(looked))


def test_a_loss_that_is_evaluated_remembers_nothing():
    loss = automatic()
    for scores, labels, rows in batches(steps=6):
        loss(scores, labels, rows)
    before = state(loss)
    loss.eval()
    for scores, labels, rows in batches(seed=1, steps=4):
        loss(scores, labels, rows)
    assert_same(state(loss), before)


@pytest.mark.parametrize("m", [0.0, 0.1])
@pytest.mark.parametrize("k", [0.5, 1.0])
def test_a_batch_with_a_nan_leaves_the_cuts_of_a_stream(m, k):
    loss = rrt.AoRRLoss(m=m, k=k, ranking="stream")
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        loss(torch.rand(40, generator=generator))
    before = state(loss)
    spoilt = torch.rand(40, generator=generator)
    spoilt[7] = torch.nan
    assert loss(spoilt).isnan()  # loud, but not remembered
    assert_same(state(loss), before)
    assert loss(torch.rand(40, generator=generator)).isfinite()
    assert any((value != before[name]).any() for name, value in state(loss).items())


def test_an_empty_batch_leaves_the_cuts_of_a_stream():
    loss = rrt.AoRRLoss(m=0.1, k=0.9, ranking="stream")
    loss(torch.rand(40))
    before = state(loss)
    loss(torch.empty(0))
    assert_same(state(loss), before)


@pytest.mark.parametrize(("m", "k"), [(0.45, 0.55), (0.4, 0.5)])
def test_the_upper_cut_of_a_stream_is_never_below_the_lower(m, k):
    """Batches that jump between levels drive the tracked cuts past each other; the cuts of a batch keep their order."""
    loss = rrt.AoRRLoss(m=m, k=k, ranking="stream", step=1.0)
    generator, crossed = torch.Generator().manual_seed(0), 0
    for step in range(100):
        losses = torch.rand(10, generator=generator) * (10.0 if step % 3 else 0.1) + 5.0 * (step % 2)
        assert loss(losses) >= 0.0
        crossed += int(loss.cuts.tracked[1] < loss.cuts.tracked[0])
        assert loss.lam_hat >= loss.lam
        assert ((loss.last_weights >= 0.0) & (loss.last_weights <= 1.0)).all()
    assert crossed > 0


def test_a_memory_that_grows_remembers_as_one_of_known_size():
    """Indices come in a growing range: what was remembered moves along."""
    known = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=300)
    grown = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto")
    generator = torch.Generator().manual_seed(0)
    for step in range(12):
        rows = torch.randperm(20 * (step % 6 + 1), generator=generator)[:20]
        scores = 3.0 * torch.randn(20, CLASSES, generator=generator)
        assert known(scores, rows % CLASSES, rows) == grown(scores, rows % CLASSES, rows)
    n = len(grown.sample_weights())
    for name in ("rows", "visits", "cuts", "given"):
        one, other = (getattr(loss.auto.memory, name)[:n] for loss in (known, grown))
        assert (one == other).all()
    torch.testing.assert_close(known.sample_weights()[:n], grown.sample_weights())


@pytest.mark.parametrize("training", [True, False])
def test_warm_up_counts_training_batches_alone(training):
    loss = rrt.AoRRLoss(m=1, k=2, warmup=2)
    losses = torch.tensor([9.0, 2.0, 1.0])
    loss.train(training)
    values = [float(loss(losses)) for _ in range(4)]
    assert values == ([4.0, 4.0, 2.0, 2.0] if training else [4.0] * 4)


def test_ranks_inside_classes_take_the_same_share_of_each():
    """By the definition: of each class m and k times its size, a sample at the cut in part."""
    generator = torch.Generator().manual_seed(0)
    losses, target = torch.rand(37, generator=generator), torch.randint(0, 3, (37,), generator=generator)
    for m, k in ((0.1, 1.0), (0.25, 0.8), (0.0, 0.33)):
        weights = weights_inside_classes(losses, target, m, k)
        for c in range(3):
            own = losses[target == c]
            size = len(own)
            ranked = weights[target == c][own.argsort(descending=True)]
            edges = [min(i + 1, k * size) - max(i, m * size) for i in range(size)]
            torch.testing.assert_close(ranked, torch.tensor(edges).clamp(min=0.0), atol=1e-5, rtol=0)


def test_a_schedule_sets_m_and_k_at_once():
    loss = rrt.AoRRLoss(m=0.0, k=0.3)
    assert rrt.LinearSchedule(loss, m=0.5, k=1.0).step() == (0.5, 1.0)


def test_a_state_of_a_given_m_is_refused_by_an_automatic_loss():
    with pytest.raises((ValueError, RuntimeError), match="made with m='auto'"):
        rrt.LinearAoRRLoss(m="auto").load_state_dict(
            {"_extra_state": rrt.LinearAoRRLoss(m=0.2).state_dict()["_extra_state"]}, strict=False
        )


def test_losses_of_double_precision_are_ranked_in_it():
    losses = 1.0 + torch.tensor([1e-12, 3e-12, 2e-12, 0.0], dtype=torch.float64)
    weights = weights_inside_classes(losses, torch.zeros(4, dtype=torch.int64), 0.25, 0.75)
    torch.testing.assert_close(weights, torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64))
    loss = rrt.AoRRLoss(lambda scores, target: losses, m=0.25, k=0.75, per_class=True)
    loss(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
    assert loss.last_weights.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_a_fused_loss_can_be_copied_and_frees_the_batch():
    hidden = torch.randn(8, 4, requires_grad=True)
    layer = nn.Linear(4, 4)
    loss = rrt.LinearAoRRLoss(m=0.25)
    activations = layer(hidden)
    loss(activations, torch.randn(5, 4), torch.arange(8) % 5)
    copy.deepcopy(loss)
    stored = loss._last["tokens"].hidden
    assert not stored.requires_grad
    assert stored.untyped_storage().nbytes() == 0
