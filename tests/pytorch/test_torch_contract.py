"""What every loss of rankrange.torch can do: copies, states, compilation, autocast, transforms, derivatives."""

import copy
import io

import pytest
import torch
from torch import nn

import rankrange as rr
import rankrange.torch as rrt
from definitions import slow

N, CLASSES, FEATURES = 12, 4, 3
TARGET = torch.arange(N) % CLASSES
GROUPS = torch.arange(N) % 3
# Torch's own deprecations at the first use of its compiler are not ours to fix.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")


def cross_entropy(**settings):
    return nn.CrossEntropyLoss(reduction="none", **settings)


def of_classes(loss, scores):
    return loss(scores, TARGET.to(scores.device))


def with_index(loss, scores):
    return loss(scores, TARGET.to(scores.device), torch.arange(N))


def of_groups(loss, scores):
    return loss(scores, TARGET, groups=GROUPS)


def of_labels(loss, scores):
    return loss(scores, torch.arange(N * CLASSES).reshape(N, CLASSES) % 3 == 0)


def of_pairs(loss, scores):
    return loss(scores[:, 0], TARGET == 0)


def of_tokens(loss, scores):
    weight = torch.linspace(-1, 2, 7 * CLASSES, dtype=scores.dtype, device=scores.device).reshape(7, CLASSES)
    target = torch.arange(N, device=scores.device).reshape(3, 4) % 7
    index = {"index": torch.arange(3)} if loss.automatic else {}
    return loss(scores.reshape(3, 4, CLASSES), weight, target, **index)


LOSSES = {
    "AoRRLoss": (lambda: rrt.AoRRLoss(cross_entropy(), 0.2, 0.8), of_classes),
    "class weights": (
        lambda: rrt.AoRRLoss(cross_entropy(weight=torch.tensor([1.0, 2.0, 0.5, 1.0])), 0.2, 0.8),
        of_classes,
    ),
    "per class": (lambda: rrt.AoRRLoss(cross_entropy(), 0.2, 0.8, per_class=True), of_classes),
    "stream": (lambda: rrt.AoRRLoss(cross_entropy(), 0.2, 0.8, ranking="stream", warmup=1), of_classes),
    "auto": (lambda: rrt.AoRRLoss(cross_entropy(), "auto", n_samples=N), with_index),
    "WorstGroupLoss": (lambda: rrt.WorstGroupLoss(cross_entropy(), 0.2, worst=0.5), of_groups),
    "TKMLLoss": (lambda: rrt.TKMLLoss(2), of_labels),
    "PartialAUCLoss": (lambda: rrt.PartialAUCLoss((0.1, 0.7)), of_pairs),
    "partial AUC of a stream": (lambda: rrt.PartialAUCLoss((0.1, 0.7), ranking="stream"), of_pairs),
    "LinearAoRRLoss": (lambda: rrt.LinearAoRRLoss(0.2, 0.8), of_tokens),
    "all tokens": (lambda: rrt.LinearAoRRLoss(), of_tokens),
    "auto by token": (lambda: rrt.LinearAoRRLoss("auto", warmup=1, n_documents=3), of_tokens),
    "auto by sequence": (lambda: rrt.LinearAoRRLoss("auto", per="sequence", n_documents=3), of_tokens),
}
FUSED = [name for name, (_, call) in LOSSES.items() if call is of_tokens]
every_loss = pytest.mark.parametrize("name", LOSSES)


def batches(count, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [2.0 * torch.randn(N, CLASSES, generator=generator, dtype=dtype) for _ in range(count)]


def used(name, count=3, dtype=torch.float32):
    """A loss that has seen some batches of a network, and its call."""
    make, call = LOSSES[name]
    loss = make().to(dtype) if name == "class weights" else make()
    for scores in batches(count, dtype):
        call(loss, torch.tanh(scores.requires_grad_()))
    return loss, call


def state(loss):
    return {
        key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in loss.state_dict().items()
    }


def assert_same(one, other):
    assert one.keys() == other.keys()
    for key, value in one.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, other[key], rtol=0, atol=0, equal_nan=True)
        else:
            assert value == other[key]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_loss
def test_a_copy_and_a_restored_state_continue_alike(name, dtype):
    (loss, call), (restored, _) = used(name, dtype=dtype), used(name, 0, dtype)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    restored.load_state_dict(torch.load(file, weights_only=True))
    copied = copy.deepcopy(loss)
    for scores in batches(3, dtype):
        values = [call(each, scores) for each in (loss, copied, restored)]
        assert values[0] == values[1] == values[2]
    assert_same(state(loss), state(copied))
    assert_same(state(loss), state(restored))


@every_loss
def test_weights_averaging_and_evaluation_change_nothing(name):
    loss, call = used(name)
    averaged = torch.optim.swa_utils.AveragedModel(loss)
    before = state(loss)
    loss.eval()
    call(averaged.module.eval(), batches(1)[0])
    call(loss, 3.0 * batches(1)[0])
    assert_same(state(loss), before)


class Called(nn.Module):
    def __init__(self, loss, call):
        super().__init__()
        self.loss, self.call = loss, call

    def forward(self, scores):
        return self.call(self.loss, scores)


@every_loss
def test_a_functional_call_uses_and_changes_the_given_buffers_alone(name):
    loss, call = used(name)
    scores, before = batches(4)[-1], {key: buffer.clone() for key, buffer in loss.named_buffers()}
    expected = call(copy.deepcopy(loss), scores)
    given = {f"loss.{key}": buffer.clone() for key, buffer in loss.named_buffers()}
    assert torch.func.functional_call(Called(loss, call), given, (scores,)) == expected
    assert_same(dict(loss.named_buffers()), before)


@pytest.mark.parametrize("seen", [0, 1])
@pytest.mark.parametrize("name", ["AoRRLoss", "stream", "auto", "LinearAoRRLoss", "auto by token"])
def test_the_state_follows_the_outputs_to_their_device(name, seen):
    """A device without values stands for a GPU: an operation on tensors of two devices is an error on both."""
    loss, call = used(name, seen)
    for scores in batches(2):
        assert call(loss, scores.to("meta")).is_meta
    assert all(buffer.is_meta for key, buffer in loss.named_buffers() if key != "batches" or loss.warmup)


@every_loss
def test_a_nan_is_loud_and_forgotten(name):
    loss, call = used(name)
    scores = batches(1)[0]
    broken = scores.clone()
    broken[5] = torch.nan
    assert call(loss, broken).isnan()
    assert call(loss, scores).isfinite()


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
@pytest.mark.parametrize("name", FUSED)
def test_no_tokens_give_zero(name, shape):
    """With m="auto" a batch without tokens was an error; the guide selects the tokens that count."""
    loss, weight = LOSSES[name][0](), torch.ones(5, 4, requires_grad=True)
    if loss.per == "token" or len(shape) == 2:
        value = loss(torch.zeros(*shape, 4, requires_grad=True), weight, torch.zeros(shape, dtype=torch.long))
        value.backward()
        assert value == 0
        assert weight.grad.eq(0).all()


@every_loss
def test_first_derivatives_are_those_of_finite_differences(name):
    loss, call = used(name, dtype=torch.float64)
    loss.eval()
    scores = batches(4, torch.float64)[-1].requires_grad_()
    assert torch.autograd.gradcheck(lambda z: call(loss, z), scores)


@every_loss
def test_second_derivatives_are_exact_or_an_error(name):
    loss, call = used(name, dtype=torch.float64)
    loss.eval()
    scores = batches(4, torch.float64)[-1].requires_grad_()
    if name in FUSED:
        with pytest.raises(RuntimeError, match="no second derivatives"):
            torch.autograd.grad(call(loss, scores), scores, create_graph=True)
    else:
        assert torch.autograd.gradgradcheck(lambda z: call(loss, z), scores)


@every_loss
def test_transforms_work_or_say_that_they_do_not(name):
    loss, call = used(name)
    loss.eval()
    scores = batches(4)[-1]
    leaf = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(call(loss, leaf), leaf)
    if name in FUSED:
        with pytest.raises(NotImplementedError, match=r"transforms of torch\.func"):
            torch.func.grad(lambda z: call(loss, z))(scores)
        return
    torch.testing.assert_close(torch.func.grad(lambda z: call(loss, z))(scores), expected)
    if name in ("AoRRLoss", "per class", "class weights", "TKMLLoss"):
        both = torch.stack([scores, -scores])
        found = torch.func.vmap(lambda z: call(loss, z))(both)
        torch.testing.assert_close(found, torch.stack([call(loss, each) for each in both]))


@every_loss
def test_autocast_gives_a_float_and_gradients_of_the_dtype_of_the_leaf(name):
    loss, call = used(name)
    leaf = batches(4)[-1].requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        value = call(loss, leaf @ torch.eye(CLASSES))
    value.backward()
    assert leaf.grad.dtype == torch.float32
    assert leaf.grad.isfinite().all()


# Compilation takes a second or two: of losses with the same steps one is in the default run.
ALIKE = {"class weights", "per class", "all tokens", "auto by sequence"}
COMPILED = LOSSES.keys() - ALIKE - {"WorstGroupLoss", "partial AUC of a stream"}


@pytest.mark.parametrize("name", [*sorted(COMPILED), *slow(*sorted(ALIKE))])
def test_a_compiled_step_is_the_eager_one(name):
    torch._dynamo.reset()
    loss, call = used(name)
    other = copy.deepcopy(loss)
    whole = name not in FUSED  # which count their batches on the host
    run = torch.compile(lambda z: call(other, z), fullgraph=whole, backend="aot_eager")
    for scores in batches(2):
        torch.testing.assert_close(run(scores), call(loss, scores))
        if hasattr(loss, "last_weights"):
            torch.testing.assert_close(other.last_weights, loss.last_weights)
    for name, buffer in loss.named_buffers():
        torch.testing.assert_close(other.get_buffer(name), buffer, equal_nan=True)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["AoRRLoss", "auto", "LinearAoRRLoss", "auto by token"])
def test_ranks_and_batches_are_in_every_state(name):
    loss, _ = used(name)
    assert loss.state_dict()["_extra_state"] == {"m": loss.m, "k": loss.k, "batches": int(loss.batches)}
    given = rrt.AoRRLoss(m=0.1) if isinstance(loss, rrt.AoRRLoss) else rrt.LinearAoRRLoss(0.1)
    if loss.m == "auto":
        with pytest.raises(ValueError, match="make a new loss"):
            given.load_state_dict(loss.state_dict(), strict=False)
        with pytest.raises(ValueError, match="make a new loss"):
            loss.load_state_dict(given.state_dict(), strict=False)
    else:
        given.load_state_dict(loss.state_dict(), strict=False)
        assert (given.m, given.k) == (0.2, 0.8)


LOOKS = {
    "weights of all samples": lambda loss: loss.sample_weights(),
    "suspects": lambda loss: loss.suspects(),
    "a copy": copy.deepcopy,
    "its text": repr,
}


@pytest.mark.parametrize("look", LOOKS)
def test_looking_at_what_a_loss_stores_changes_nothing(look):
    (plain, call), (looked, _) = used("auto"), used("auto")
    LOOKS[look](looked)
    assert all(part.training for part in looked.modules())
    for scores in batches(2):
        assert call(plain, scores) == call(looked, scores)
    assert_same(state(plain), state(looked))


def automatic(**settings):
    return rrt.AoRRLoss(cross_entropy(), "auto", **{"n_samples": 4, **settings})


def by_class(**settings):
    return rrt.AoRRLoss(cross_entropy(), **{"m": 0.25, "per_class": True, **settings})


def documents():
    return rrt.LinearAoRRLoss("auto", n_documents=2)


SCORES, LABELS = torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)
NO_GROUPS = torch.zeros(2, dtype=torch.long)
ONES, TRUE = torch.ones(4), torch.zeros(2, 5)
TEXT = torch.zeros(2, 3, 4), torch.zeros(5, 4), torch.zeros(2, 3, dtype=torch.long)
ERRORS = [
    (lambda: rrt.ranked_range(ONES, 0, 5), "need 0 <= m < k <= n, got m=0, k=5 for n=4"),
    (lambda: rrt.ranked_range(ONES, 0, 1, reduction="none"), "reduction must be 'mean' or 'sum'"),
    (lambda: rrt.ranked_range(ONES.sum(), 0, 1), "one loss per sample"),
    (lambda: rrt.ranked_range(torch.arange(4), 0, 1), r"floating point, got torch\.int64"),
    (lambda: rrt.ranked_range(ONES, 0), "need both m and k, got m=0 alone"),
    (lambda: rrt.ranked_range(ONES, rr.RankedRange.median(), 3), "leave k out"),
    (lambda: rrt.ranked_range(TRUE, 0, 1, dim=1, group=object()), "leave dim out"),
    (lambda: rrt.rank_weighted_mean(TRUE, rr.RankWeights([1, 0])), r"losses must have shape \(n,\), got \(2, 5\)"),
    (lambda: rrt.rank_weighted_mean(ONES, [1, 0]), r"use RankWeights\(\[1, 0\]\)"),
    (lambda: rrt.tkml(TRUE, TRUE, 5), "need 1 <= top_k < labels, got top_k=5 for 5 labels"),
    (lambda: rrt.tkml(TRUE, torch.zeros(3, 5), 1), r"target must be a 0/1 mask of shape \(2, 5\)"),
    (lambda: rrt.tkml(TRUE, torch.zeros(2, 3), 1), "pass label indices as integers"),
    (lambda: rrt.tkml(TRUE, TRUE, 1.5), "top_k must be an int"),
    (lambda: rrt.tkml(ONES, ONES, 1), "scores must be floating point"),
    (lambda: rrt.AoRRLoss(nn.CrossEntropyLoss()), "one loss per sample, got reduction='mean'"),
    (lambda: rrt.AoRRLoss(m=3, k=0.9, ranking="stream"), r"m and k must be fractions, got m=3, k=0\.9"),
    (lambda: rrt.AoRRLoss(m=0, k=1, ranking="stream"), "m and k must be fractions"),
    (lambda: rrt.AoRRLoss(cross_entropy(weight=torch.ones(3)), 0.1, ranking="stream"), "class weights ranks within"),
    (lambda: by_class(m="auto", n_samples=9), "leave out one"),
    (lambda: by_class(group="some"), "leave out one"),
    (lambda: by_class(ranking="stream"), "leave out one"),
    (lambda: by_class()(SCORES, torch.zeros(4, 2)), "one class label per sample"),
    (lambda: rrt.AoRRLoss(m=0.25, per_class=True)(torch.arange(8.0)), "one class label per sample"),
    (lambda: rrt.AoRRLoss(m=0.1, warmup=0.2), "pass total_batches"),
    (lambda: rrt.AoRRLoss(m=0.5, ignore_index=-100)(torch.ones(3)), "second argument"),
    (lambda: rrt.AoRRLoss(m=0.1).suspects(), "needs m='auto', got m"),
    (lambda: setattr(rrt.AoRRLoss(m=0.1), "m", "auto"), "'auto' in the constructor"),
    (lambda: setattr(rrt.AoRRLoss(m=0.1), "k", 0.1), "need m < k"),
    (lambda: rrt.AoRRLoss(m="auto", k=0.9, n_samples=4), r"needs k=1\.0"),
    (lambda: automatic(n_samples=0), r"pass n_samples=len\(dataset\)"),
    (lambda: automatic(n_samples=None), r"pass n_samples=len\(dataset\)"),
    (lambda: automatic()(SCORES, LABELS, torch.zeros(4)), r"one integer per sample, shape \(4,\)"),
    (lambda: automatic().suspects(), r"criterion\(output, target, index\) first"),
    (lambda: rrt.WorstGroupLoss()(torch.zeros(3), groups=NO_GROUPS), "one integer per loss"),
    (lambda: rrt.WorstGroupLoss(worst=1.5), "share of the groups"),
    (lambda: rrt.TKMLLoss(0), "top_k must be an int of at least 1, got 0"),
    (lambda: rrt.AccuracySchedule(rrt.AoRRLoss(m=0.1), {0.8: 0.05}), "need m < k"),
    (lambda: rrt.LinearSchedule(rrt.LinearAoRRLoss(), m=3), "fractions"),
    (lambda: rrt.LinearSchedule(rrt.LinearAoRRLoss(), m=0.1, steps=0), "steps >= 1"),
    (lambda: rrt.LinearAoRRLoss("automatic"), "got"),
    (lambda: rrt.LinearAoRRLoss("auto", 0.5), "got"),
    (lambda: rrt.LinearAoRRLoss("auto", key="loss"), "got"),
    (lambda: rrt.LinearAoRRLoss("auto", per="document"), "got"),
    (lambda: rrt.LinearAoRRLoss(0.6, 0.5), "got"),
    (lambda: rrt.LinearAoRRLoss(key="foo"), "got"),
    (lambda: rrt.LinearAoRRLoss(0.1).suspects(), "m='auto'"),
    (lambda: setattr(rrt.LinearAoRRLoss("auto"), "m", 0.1), "make a new loss"),
    (lambda: rrt.LinearAoRRLoss("auto")(*TEXT, index=torch.arange(2)), "pass n_documents"),
    (lambda: documents()(*TEXT, index=torch.tensor([0, 5])), "below n_documents=2"),
    (lambda: documents()(*TEXT, index=torch.arange(3)), r"one integer per sample, shape \(2,\)"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
