"""AoRRLoss(m="auto"): what is cut, what is remembered, and that both survive checkpoints, processes and compilation."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import rankrange.torch as rrt
from rankrange.torch.callbacks import loss_figures

CLASSES = 5


def make_problem(n=1500, spread=1.0, seed=0):
    """Points around the corners of a simplex, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % CLASSES
    x = 3.0 * nn.functional.one_hot(y, 20).float() + spread * torch.randn(n, 20, generator=generator)
    return x, y


def flipped(y, rate, how="symmetric", seed=1):
    generator = torch.Generator().manual_seed(seed)
    step = torch.randint(1, CLASSES, (len(y),), generator=generator) if how == "symmetric" else 1
    return torch.where(torch.rand(len(y), generator=generator) < rate, (y + step) % CLASSES, y)


def train(x, y, criterion, epochs=12, batch=50, indexed=True, seed=0):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            optimizer.zero_grad()
            criterion(net(x[rows]), y[rows], *([rows] if indexed else [])).backward()
            optimizer.step()
    return net


def automatic(n_samples=2000, **settings):
    return rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), m="auto", n_samples=n_samples, **settings)


def stored(criterion):
    """The buffers, without the spare row of padding and ignored samples."""
    return {
        name: buffer if name in ("auto.sums", "batches") else buffer[:-1] for name, buffer in criterion.named_buffers()
    }


def accuracy(net):
    x, y = make_problem(seed=9)
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def test_on_clean_separable_data_next_to_nothing_is_cut():
    x, y = make_problem()
    criterion = automatic()
    net = train(x, y, criterion)
    assert (criterion.sample_weights() < 0.5).float().mean() < 0.01
    assert criterion.shares.max() < 0.05
    assert accuracy(net) > accuracy(train(x, y, nn.CrossEntropyLoss(), indexed=False)) - 0.01


@pytest.mark.parametrize(("how", "rate"), [("symmetric", 0.4), ("pair", 0.3)])
def test_most_of_what_is_cut_is_wrong_and_most_of_what_is_wrong_is_cut(how, rate):
    x, y = make_problem(spread=0.7)
    noisy = flipped(y, rate, how)
    criterion = automatic(n_samples=len(x))
    net = train(x, noisy, criterion)
    cut, wrong = criterion.sample_weights() < 0.5, noisy != y
    assert wrong[cut].float().mean() > 0.9
    assert cut[wrong].float().mean() > 0.8
    assert abs(criterion.shares.mean() - rate) < 0.1
    plain = train(x, noisy, rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none")), indexed=False)
    assert accuracy(net) > accuracy(plain) + 0.03


@pytest.mark.parametrize("indexed", [True, False])
def test_no_class_is_cut_away_however_rare_or_noisy_it_is(indexed):
    x, y = make_problem(2000)
    rows = torch.cat([torch.nonzero(y != 0)[:, 0], torch.nonzero(y == 0)[:30, 0]])  # a rare class
    x, y = x[rows], y[rows]
    noisy = torch.where((y == 1) & (torch.rand(len(y), generator=torch.Generator().manual_seed(0)) < 0.45), 2, y)
    criterion = automatic()
    net = train(x, noisy, criterion, indexed=indexed)
    with torch.no_grad():
        found = net(x).argmax(1)
    for c in range(CLASSES):
        assert (found[y == c] == c).float().mean() > 0.5, c


@pytest.mark.parametrize("n_clean", [0, 240])
def test_weights_are_those_of_the_definition(n_clean):
    """One class, written out: two visits, then r, m, d and the cut of the module's docstring by hand."""
    n, sizes = 80 + n_clean, np.array([20, 20, 20, 20, n_clean])
    criterion, kind = automatic(n_samples=n), torch.arange(5).repeat_interleave(torch.tensor(sizes))
    first = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.1, 0.9], [0.9, 0.1]])
    second = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.9, 0.1], [0.3, 0.7], [0.9, 0.1]])
    for visit in (first, second):
        value = criterion(visit[kind].log(), torch.zeros(n, dtype=torch.long), torch.arange(n))
    ratios = np.array([[1, 2 / 8, 3 / 7, 1 / 9, 1], [1, 3 / 7, 1, 2 / 8, 1]])
    decay = 2 ** (-n / 500)
    r = (decay * ratios[0] + ratios[1]) @ sizes / (n * (decay + 1))
    trust = np.clip((2 / 3 - 0.45) / 0.2, 0, 1)  # of three kinds that disagreed, two did again with the same class
    weights = np.minimum(1, ratios[1] / (trust * min(1, 4 * (1 - r)) * r)) ** 2
    np.testing.assert_allclose(criterion.last_weights, weights[kind], rtol=1e-5)
    losses = -np.log(second[:, 0].numpy())
    assert value.item() == pytest.approx(float(sizes * weights @ losses / (sizes @ weights)), rel=1e-5)
    assert weights.min() < 0.6


def test_suspects_are_mostly_wrong_and_all_that_names_a_row_names_the_sample():
    x, y = make_problem()
    noisy = flipped(y, 0.2)
    criterion = automatic()
    keep = torch.arange(200, len(x))  # indices of a subset are those of the whole
    loader = DataLoader(Subset(rrt.WithIndex(TensorDataset(x, noisy)), keep.tolist()), batch_size=50, shuffle=True)
    torch.manual_seed(0)
    net = nn.Linear(20, CLASSES)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(10):
        for inputs, target, index in loader:
            optimizer.zero_grad()
            criterion(net(inputs), target, index).backward()
            optimizer.step()
    found = criterion.suspects()
    assert found.table["row"].min() >= 200
    clean, noisy = y.numpy(), noisy.numpy()
    np.testing.assert_array_equal(found.table["given"], noisy[found.table["row"]])
    top = found.table[: round(0.15 * len(keep))]
    assert (noisy != clean)[top["row"]].mean() > 0.9
    assert (top["suggested"] == clean[top["row"]]).mean() > 0.9
    assert (top["cut"] > 0.3).mean() > 0.9
    assert abs(found.noise_estimate - 0.2) < 0.1
    ranked = found.top(len(keep))
    assert sorted(ranked["row"]) == keep.tolist()
    np.testing.assert_array_equal(ranked["given"], noisy[ranked["row"]])
    np.testing.assert_array_equal(found.given, noisy[found.index])
    first = ranked["row"][0]
    found.decide(first, "drop")
    assert found.index[~found.decided()[1]].tolist() == [first]
    with pytest.raises(ValueError, match="got 3, which 0 rows have"):
        found.decide(3, "drop")  # never visited


def test_p_wrong_is_calibrated():
    x, y = make_problem(spread=1.2)
    noisy = flipped(y, 0.2)
    criterion = automatic()
    train(x, noisy, criterion)
    found = criterion.suspects()
    likely = found.p_wrong >= 0.5
    assert likely.sum() > 150
    assert abs(found.p_wrong[likely].mean() - (noisy != y).numpy()[likely].mean()) < 0.1
    for table in (found.table, found.ranked):
        assert (table["p_wrong"] == found.p_wrong[table["row"]]).all()
        assert (table["action"][table["p_wrong"] < 0.5] == "look").all()
        assert (np.diff(found.score[table["row"]]) <= 0.0).all()
    np.testing.assert_allclose(found.table["fdr"][-1], 1 - found.table["p_wrong"].mean())


def test_disagreements_that_change_at_each_visit_flag_nothing():
    """Its objections are sure of themselves, but other ones at each visit."""
    generator = torch.Generator().manual_seed(0)
    criterion, target = automatic(), torch.arange(500) % CLASSES
    for _ in range(12):
        output = 12 * nn.functional.one_hot(torch.randint(CLASSES, (500,), generator=generator), CLASSES).float()
        output[100:] = 12 * nn.functional.one_hot(target[100:], CLASSES).float()  # a fifth of the samples is in doubt
        criterion(output, target, torch.arange(500))
    found = criterion.suspects()
    assert len(found) == 0
    # The ranking follows the p_wrong that is reported: the rest of the score is the error of the prediction.
    from rankrange.issues.find import P_WRONG_IN_SCORE

    rest = found.score - P_WRONG_IN_SCORE * found.p_wrong
    assert rest.min() > -1e-9
    assert rest.max() < 1.0 - P_WRONG_IN_SCORE + 1e-9


@pytest.mark.parametrize(("broken", "shows"), [(-torch.inf, False), (torch.nan, True)])
def test_an_infinite_loss_is_dropped_and_a_nan_shows(broken, shows):
    """Both have the weight 0: without a history it is computed from the prediction alone."""
    criterion, target = automatic(), torch.arange(40) % 2
    output = 4.0 * nn.functional.one_hot(target, 2)
    output[:20] = output[:20].flip(1)
    criterion(output, target)
    output[0, target[0]] = broken
    leaf = output.requires_grad_()
    value = criterion.eval()(leaf, target)
    value.backward()
    assert criterion.last_weights[0] == 0
    assert value.isnan() == shows
    assert leaf.grad[0].isnan().any() == shows


def test_weights_of_losses_without_classes_are_those_of_the_definition():
    """Of the second batch, a loss s above lam_hat, four times the mean of the first, has the weight (lam_hat / s)^2."""
    criterion = rrt.AoRRLoss(lambda output, target: output - target, m="auto", n_samples=40)
    target = torch.zeros(40)
    criterion(torch.linspace(0.5, 1.5, 40), target)
    criterion(target, target)  # losses of 0, of which a hinge has many, do not count
    losses = torch.tensor([0.1, 3.9, 8.0, 40.0] * 10)
    value = criterion(losses, target)
    weights = np.minimum(1.0, 4.0 / losses.numpy()) ** 2
    np.testing.assert_allclose(criterion.last_weights, weights, rtol=1e-5)
    assert value.item() == pytest.approx(float(weights @ losses.numpy() / weights.sum()), rel=1e-5)


def test_more_classes_than_are_remembered_leave_three_numbers_per_sample():
    """And a batch of suspects alone has a small loss, with class weights of any unit."""
    generator = torch.Generator().manual_seed(0)
    criterion = automatic(n_samples=400)
    base = nn.CrossEntropyLoss(reduction="none", weight=torch.full((200,), 5.0))
    weighted = rrt.AoRRLoss(base, "auto", n_samples=400)
    target = torch.arange(400) % 200
    for shift in (3, 7, 7, 7):
        output = torch.randn(400, 200, generator=generator) + 8 * nn.functional.one_hot(target, 200)
        output[:40] = output[:40].roll(shift, 1)  # the first forty look like another class
        for loss in (criterion, weighted):
            loss(output, target, torch.arange(400))
    first = output[:1], target[:1], torch.arange(1)
    value = criterion.eval()(*first)
    torch.testing.assert_close(value, criterion.last_weights[0] * nn.functional.cross_entropy(*first[:2]))
    torch.testing.assert_close(weighted.eval()(*first), value)
    assert criterion.auto.history.rows.shape == (401, 3)
    assert torch.equal(criterion.auto.history.rows[:400, 2], output.argmax(1).float())
    weights = criterion.sample_weights()
    assert weights[:40].max() < 0.5
    assert weights[40:].mean() > 0.95
    with pytest.raises(ValueError, match="needs the whole softmax"):
        criterion.suspects()


@pytest.mark.parametrize("wrong", [10, -1])
def test_an_index_that_no_sample_has_is_an_error_and_changes_nothing(wrong):
    criterion = automatic(n_samples=10)
    scores, target = torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)
    criterion(scores, target, torch.tensor([0, 9, 4]))
    before = {name: buffer.clone() for name, buffer in criterion.named_buffers()}
    with pytest.raises(ValueError, match=r"indices must be at least 0.*got .*n_samples=len\(dataset\)"):
        criterion(scores, target, torch.tensor([0, wrong, 4]))
    torch.testing.assert_close(dict(criterion.named_buffers()), before)


@pytest.mark.parametrize(("n_samples", "n_classes"), [(7, 3), (10, 4)])
def test_a_state_of_another_size_is_an_error(n_samples, n_classes):
    saved, other = automatic(n_samples=10), automatic(n_samples=n_samples)
    for criterion, width in ((saved, 3), (other, n_classes)):
        criterion(torch.zeros(5, width), torch.zeros(5, dtype=torch.long), torch.arange(5))
    with pytest.raises(RuntimeError, match="size mismatch"):
        other.load_state_dict(saved.state_dict())


@pytest.mark.parametrize(("n_classes", "ignored"), [(5, -100), (120, -100), (5, 2), (120, 2), (0, 2)])
def test_targets_that_are_ignored_or_no_class_are_left_out(n_classes, ignored):
    """-100 was an IndexError below 100 classes and another class from 100 on; ignore_index= changed nothing."""
    generator = torch.Generator().manual_seed(0)
    base = nn.CrossEntropyLoss(reduction="none", ignore_index=ignored) if n_classes else nn.MSELoss(reduction="none")
    settings = {} if ignored == -100 else {"ignore_index": ignored}
    one, other = rrt.AoRRLoss(base, "auto", n_samples=60, **settings), rrt.AoRRLoss(base, "auto", n_samples=60)
    for _ in range(4):
        index = torch.randperm(60, generator=generator)[:20]
        output = 4.0 * torch.randn((20, n_classes) if n_classes else 20, generator=generator)
        target = torch.where(index % 4 == 0, ignored, index % n_classes if n_classes else index.float())
        counts = target != ignored
        torch.testing.assert_close(one(output, target, index), other(output[counts], target[counts], index[counts]))
        torch.testing.assert_close(one.last_weights[counts], other.last_weights)
        assert (one.last_weights[~counts] == 0).all()
        assert loss_figures(one)["kept"] == pytest.approx(loss_figures(other)["kept"])
    for name, buffer in stored(other).items():
        torch.testing.assert_close(stored(one)[name], buffer)


def test_of_equal_indices_in_a_batch_the_last_one_is_stored():
    """A padding sampler repeats samples; on a GPU the order of writes to one place is not defined."""
    criterion, generator = automatic(n_samples=9), torch.Generator().manual_seed(0)
    index = torch.tensor([3, 7, 3, 1, 7, 3])
    output = torch.randn(6, CLASSES, generator=generator)
    criterion(output, torch.arange(6) % CLASSES, index)
    torch.testing.assert_close(criterion.auto.history.rows[[1, 3, 7]], output[[3, 5, 4]].softmax(1))
    assert criterion.auto.given[[1, 3, 7]].tolist() == [3, 0, 4]
    assert criterion.auto.history.visits[[1, 3, 7]].tolist() == [1, 1, 1]


def test_double_precision_stays():
    criterion = automatic(n_samples=4)
    output = torch.randn(4, CLASSES, dtype=torch.float64, requires_grad=True)
    for _ in range(3):
        value = criterion(output, torch.arange(4), torch.arange(4))
    assert value.dtype == criterion.auto.history.rows.dtype == torch.float64
    torch.testing.assert_close(criterion.auto.history.rows[:4], output.detach().softmax(1), rtol=1e-14, atol=0)


def test_a_change_of_the_kind_of_target_is_an_error_and_keeps_the_class_sums():
    scores, target = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
    loss = automatic()
    loss(scores, target)
    sums = loss.auto.sums.clone()
    with pytest.raises(ValueError, match="one kind of target"):
        loss(scores, scores.softmax(1))
    assert torch.equal(loss.auto.sums, sums)
    loss(scores, target)


@pytest.mark.parametrize("batch", ["none", "classes", "losses"])
def test_samples_that_were_not_visited_have_the_weight_one(batch):
    loss = automatic(n_samples=5) if batch == "classes" else rrt.AoRRLoss(m="auto", n_samples=5)
    if batch == "classes":
        loss(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]))
    elif batch == "losses":
        loss(torch.ones(4))
    assert torch.equal(loss.sample_weights(), torch.ones(5))
