"""LinearAoRRLoss and m="auto" for text: noise is found, clean text is left alone, and checkpoints hold all of it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rankrange as rr
import rankrange.torch as rrt
from rankrange.torch import text_noise
from rankrange.torch.token_passes import Scores

WORDS, LENGTH = 64, 48


def language(seed=1):
    """Next-word probabilities of a language that uses the first half of the words."""
    table = (3 * torch.randn(WORDS, WORDS, generator=torch.Generator().manual_seed(seed))).softmax(1)
    table[:, WORDS // 2 :] = 0
    return table / table.sum(1, keepdim=True)


def documents(n, generator, table):
    words = [torch.randint(0, WORDS // 2, (n, 1), generator=generator)]
    for _ in range(LENGTH - 1):
        words.append(torch.multinomial(table[words[-1][:, 0]], 1, generator=generator))
    return torch.cat(words, 1)


def corrupted(text, kind, share, generator):
    """(text, which tokens are wrong)."""
    if kind == "token":
        wrong = torch.rand(text.shape, generator=generator) < share
        return torch.where(wrong, torch.randint(0, WORDS, text.shape, generator=generator), text), wrong
    wrong = (torch.rand(len(text), 1, generator=generator) < share).expand_as(text)
    order = torch.rand(text.shape, generator=generator).argsort(1)
    return torch.where(wrong, text.gather(1, order), text), wrong


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 24), nn.Linear(24, WORDS, bias=False)

    def forward(self, words):
        return self.embed(words)


def train(criterion, kind, share, epochs=40, n=256, batch=64, fresh=False):
    """A bigram model on a corpus of n documents, or on `fresh` ones in each epoch; (wrong tokens, corpus, model)."""
    torch.manual_seed(0)
    generator, model, table = torch.Generator().manual_seed(2), Bigram(), language()
    text, wrong = corrupted(documents(n, generator, table), kind, share, generator)
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    for _ in range(epochs):
        for index in torch.randperm(n, generator=generator).split(batch):
            optimizer.zero_grad()
            words = text[index]
            criterion(model(words[:, :-1]), model.head.weight, words[:, 1:], index=index).backward()
            optimizer.step()
        if fresh:
            text, wrong = corrupted(documents(n, generator, table), kind, share, generator)
    return wrong[:, 1:], text, model


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
def test_the_share_of_noise_among_the_tokens_is_found(share):
    criterion = rrt.LinearAoRRLoss("auto", warmup=20, n_documents=256)
    wrong, text, model = train(criterion, "token", share, epochs=25, fresh=True)
    assert float(criterion.share) == pytest.approx(share, abs=0.01 + 0.15 * share)
    criterion.eval()(model(text[:, :-1]), model.head.weight, text[:, 1:])
    weights = criterion.last_weights
    assert weights[~wrong].mean() > 0.98 - share / 2
    if share:
        # Half of the random words are words of the language, many of them likely ones.
        assert weights[wrong].mean() < 0.55
        assert weights[wrong & (text[:, 1:] >= WORDS // 2)].mean() < 0.1


class Tokenizer:
    @staticmethod
    def decode(words):
        return " ".join(str(int(word)) for word in words)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_documents_in_random_order_are_left_out_and_listed_with_their_text(share):
    criterion = rrt.LinearAoRRLoss("auto", per="sequence", n_documents=256)
    wrong, text, model = train(criterion, "document", share)
    bad = wrong[:, 0].nonzero()[:, 0].tolist()
    criterion.eval()(model(text[:, :-1]), model.head.weight, text[:, 1:], index=torch.arange(256))
    dropped = (criterion.last_weights == 0).all(1).nonzero()[:, 0].tolist()
    assert dropped == bad
    assert float(criterion.share) == pytest.approx(share, abs=0.05)
    found = criterion.suspects(len(bad) or 5, tokens=text, tokenizer=Tokenizer)
    assert [suspect.dropped for suspect in found] == sorted((suspect.dropped for suspect in found), reverse=True)
    if share:
        assert {suspect.document for suspect in found} == set(bad)
        assert found[0].text == Tokenizer.decode(text[found[0].document])
        assert found == criterion.suspects(len(bad), tokens=lambda i: text[i], tokenizer=Tokenizer)
        assert criterion.suspects(1)[0].text is None
        assert found[0].dropped > 0.9
        assert found[0].visits == 40
        assert found[0].loss > 2.0
    else:
        assert all(suspect.dropped < 0.1 for suspect in found)


@pytest.mark.parametrize(("noisy", "share"), [(0.3, 0.3), (1.0, 0.0)])
def test_ranks_of_noise_have_the_density_of_its_share(noisy, share):
    """Any model: tokens are uniform noise or the likeliest word. If all look like noise, the model is untrained."""
    generator, n = torch.Generator().manual_seed(0), 200_000
    words = torch.randint(0, WORDS, (n,), generator=generator)
    rank = torch.where(torch.rand(n, generator=generator) < noisy, words, WORDS - 1) / WORDS
    noise = text_noise.TokenNoise()
    assert float(noise.share()) == 0.0
    noise.update(Scores(*[torch.zeros(n)] * 4, rank), torch.ones(n, dtype=torch.bool))
    assert float(noise.share()) == pytest.approx(share, abs=0.02)
    found = noise.share()
    noise.update(Scores(*[torch.full((n,), torch.nan)] * 4, torch.zeros(n)), torch.ones(n, dtype=torch.bool))
    torch.testing.assert_close(noise.share(), found)


def test_the_gain_of_a_document_is_the_entropy_of_its_words_minus_its_loss():
    target = torch.tensor([[1, 1, 2, 3], [4, 4, 4, 4], [5, 6, 0, 0]])
    counted = torch.tensor([[True] * 4, [True] * 4, [True, True, False, False]])
    losses = torch.full((3, 4), 0.25)
    gains = text_noise.gains_of(losses, target, counted)
    entropy = torch.tensor(
        [0.5 * torch.tensor(2.0).log() + 0.5 * torch.tensor(4.0).log(), 0.0, torch.tensor(2.0).log()]
    )
    torch.testing.assert_close(gains, entropy - 0.25)
    assert text_noise.gains_of(losses, target, torch.zeros_like(counted)).isnan().all()


@pytest.mark.parametrize(("n_positive", "limit"), [(700, 0.0), (300, -torch.inf)])
def test_documents_are_dropped_once_most_have_a_gain_well_above_zero(n_positive, limit):
    noise = text_noise.DocumentGains()
    assert noise.limit() == -torch.inf
    gains = 1.0 + 0.1 * torch.rand(1000, generator=torch.Generator().manual_seed(0))
    noise.update(torch.where(torch.arange(1000) < n_positive, gains, -gains))
    assert noise.limit() == limit
    assert noise.share() == pytest.approx(0.3 if limit == 0 else 0.0)


def batch(seed=0):
    g = torch.Generator().manual_seed(seed)
    hidden, weight = torch.randn(6, 5, 4, generator=g), torch.randn(9, 4, generator=g)
    target = torch.randint(0, 9, (6, 5), generator=g)
    target[0, :3] = -100
    return hidden.requires_grad_(), weight.requires_grad_(), target


def test_weights_and_cuts_describe_the_last_batch():
    hidden, weight, target = batch()
    criterion = rrt.LinearAoRRLoss(0.2, 0.8, key="loss")
    with pytest.raises(AttributeError, match="call the loss first"):
        _ = criterion.last_weights
    value = criterion(hidden, weight, target)
    losses = F.cross_entropy((hidden @ weight.T).reshape(-1, 9), target.reshape(-1), reduction="none")
    counted = losses[target.reshape(-1) != -100].detach()
    assert criterion.last_weights.shape == target.shape
    assert criterion.last_weights[0, :3].tolist() == [0, 0, 0]
    torch.testing.assert_close(
        (criterion.last_weights.reshape(-1) * losses).sum() / criterion.last_weights.sum(), value
    )
    ordered = counted.sort(descending=True).values
    torch.testing.assert_close(criterion.lam, ordered[round(0.8 * 27) - 1])
    torch.testing.assert_close(criterion.lam_hat, ordered[round(0.2 * 27) - 1])
    torch.testing.assert_close(value.detach(), torch.tensor(rr.ranked_range(counted.numpy(), 0.2, 0.8)))


@pytest.mark.parametrize("per", ["token", "sequence"])
def test_weights_of_tokens_do_not_change_what_is_remembered(per):
    hidden, weight, target = batch()
    one, other = (rrt.LinearAoRRLoss("auto", per=per, warmup=0, n_documents=6) for _ in range(2))
    for _ in range(3):
        one(hidden, weight, target, index=torch.arange(6))
        other(hidden, weight, target, index=torch.arange(6), token_weights=torch.full(target.shape, 3.0))
    torch.testing.assert_close(one.history.rows[:6], other.history.rows[:6])
    torch.testing.assert_close(other.last_weights, 3.0 * one.last_weights)


def test_a_warm_up_averages_all_tokens_and_is_part_of_the_state():
    hidden, weight, target = batch()
    criterion = rrt.LinearAoRRLoss(0.3, warmup=0.5, total_batches=4)
    plain = rrt.linear_ranked_range(hidden, weight, target, 0, 1.0)
    trimmed = rrt.linear_ranked_range(hidden, weight, target, 0.3, 1.0)
    assert criterion.eval()(hidden, weight, target) == plain
    criterion.train()
    values = [criterion(hidden, weight, target) for _ in range(4)]
    assert values == [plain, plain, trimmed, trimmed]
    other = rrt.LinearAoRRLoss(0.1, warmup=2)
    other.load_state_dict(criterion.state_dict())
    assert other(hidden, weight, target) == trimmed


def test_batches_that_are_accumulated_count_by_their_tokens():
    """The sum over micro-batches is the mean over all tokens, as transformers' trainer wants it."""
    hidden, weight, target = batch()
    criterion = rrt.LinearAoRRLoss()
    n = int((target != -100).sum())
    parts = [criterion(hidden[i : i + 2], weight, target[i : i + 2], n_items=n) for i in (0, 2, 4)]
    torch.testing.assert_close(sum(parts), criterion(hidden, weight, target))


def test_a_linear_schedule_moves_both_ranks_and_is_restored():
    criterion = rrt.LinearAoRRLoss(0.0, 1.0)
    schedule = rrt.LinearSchedule(criterion, m=0.2, k=0.6, start=2, steps=4)
    seen = [schedule.step() for _ in range(4)]
    assert seen[1] == (0.0, 1.0)
    assert seen[3] == (pytest.approx(0.1), pytest.approx(0.8))
    other = rrt.LinearAoRRLoss(0.0, 1.0)
    again = rrt.LinearSchedule(other, m=0.2, k=0.6, start=2, steps=4)
    again.load_state_dict(schedule.state_dict())
    assert (other.m, other.k) == seen[3]
    assert [again.step() for _ in range(4)][-1] == (pytest.approx(0.2), pytest.approx(0.6))
    assert rrt.LinearSchedule(rrt.AoRRLoss(m=0.0, k=0.3), m=0.5, k=1.0).step() == (0.5, 1.0)  # at once


# --- AoRRLoss(ignore_index=)


@pytest.mark.parametrize("options", [{"m": 0.2, "k": 0.8}, {"m": 2, "k": 9}, {"m": 0.2, "warmup": 1}], ids=str)
def test_ignored_losses_are_neither_ranked_nor_counted(options):
    g = torch.Generator().manual_seed(0)
    logits, target = torch.randn(40, 5, generator=g, requires_grad=True), torch.randint(0, 5, (40,), generator=g)
    target[::3] = -100
    base = nn.CrossEntropyLoss(reduction="none", ignore_index=-100)
    criterion = rrt.AoRRLoss(base, ignore_index=-100, **options)
    other = rrt.AoRRLoss(nn.CrossEntropyLoss(reduction="none"), **options)
    for _ in range(2):
        value, expected = criterion(logits, target), other(logits[target >= 0], target[target >= 0])
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(*(torch.autograd.grad(x, logits)[0] for x in (value, expected)))
    torch.testing.assert_close(criterion.last_weights[target >= 0], other.last_weights)
    assert (criterion.last_weights[target < 0] == 0).all()


def test_ignored_tokens_of_sequences_and_of_nothing():
    base = nn.CrossEntropyLoss(reduction="none", ignore_index=-100)
    criterion = rrt.AoRRLoss(base, m=0.5, ignore_index=-100)
    logits = torch.randn(2, 3, 4, requires_grad=True)
    assert criterion(logits, torch.full((2, 4), -100)) == 0
    criterion(logits, torch.tensor([[0, 1, -100, 2], [1, 1, 1, 1]]))
    assert criterion.last_weights.shape == (2, 4)
