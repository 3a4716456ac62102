"""Token losses with the last layer in one: losses and gradients are those of the definition in float64."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import rankrange as rr
import rankrange.torch as rrt

IGNORED = -100
TRIMMED_OR_ALL = pytest.mark.parametrize("ranks", [(0.2, 0.9), (0, 1.0)], ids=str)


def definition(hidden, weight, target, m, k=None, key=None, per="token", bias=None, reference=None, softcap=None,
               label_smoothing=0.0, token_weights=None, reduction="mean"):  # fmt: skip
    """The loss from all logits: sort, take the ranks, average. Of equal keys the first has the higher rank."""
    logits, y = F.linear(hidden, weight, bias).flatten(0, -2), target.flatten()
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    losses = F.cross_entropy(logits, y, reduction="none", ignore_index=IGNORED, label_smoothing=label_smoothing)
    keys = losses if reference is None else losses - reference.flatten()
    if key == "excess" or (key is None and per == "token" and reference is None):
        keys = F.cross_entropy(logits, y, reduction="none", ignore_index=IGNORED)
        keys = keys - torch.distributions.Categorical(logits=logits, validate_args=False).entropy()
    rows = torch.arange(len(y)).view(-1, 1 if per == "token" else target.shape[-1])
    units = [unit for unit in (row[y[row] != IGNORED] for row in rows) if len(unit)]
    units.sort(key=lambda unit: -float(keys.detach()[unit].mean()))  # Python's sort is stable
    if not units:
        return 0.0 * logits.sum()
    if isinstance(m, rr.RankedRange):
        low, high = m.counts(len(units))
    else:
        exact = [rank * len(units) if isinstance(rank, float) else rank for rank in (m, k)]
        low, high = map(round, exact)
        if low >= high:
            low = int(sum(exact) / 2)
            high = low + 1
    kept = torch.cat(units[low:high])
    w = torch.ones_like(losses) if token_weights is None else token_weights
    w = (w(losses) if callable(w) else w.flatten())[kept].detach()
    return (w * losses[kept]).sum() / (w.sum() if reduction == "mean" else 1.0)


def batch(seed=0, shape=(5, 7), features=4, words=11, dtype=torch.float64, spread=1.0, ignored=0.3, bias=False):
    g = torch.Generator().manual_seed(seed)
    hidden = (spread * torch.randn(*shape, features, generator=g, dtype=torch.float64)).to(dtype).requires_grad_()
    weight = torch.randn(words, features, generator=g, dtype=torch.float64).to(dtype).requires_grad_()
    target = torch.randint(0, words, shape, generator=g)
    target = torch.where(torch.rand(shape, generator=g) < ignored, IGNORED, target)
    b = torch.randn(words, generator=g, dtype=torch.float64).to(dtype).requires_grad_() if bias else None
    return hidden, weight, target, b


def gradients(value, *inputs):
    return torch.autograd.grad(1.7 * value, [x for x in inputs if x is not None])


def assert_equal_with_gradients(found, expected, *inputs, **tolerance):
    torch.testing.assert_close(found, expected, **tolerance)
    torch.testing.assert_close(gradients(found, *inputs), gradients(expected, *inputs), **tolerance)


def check(hidden, weight, target, m, k=None, rtol=1e-9, atol=1e-10, chunk=None, **options):
    found = rrt.linear_ranked_range(hidden, weight, target, m, k, chunk=chunk, **options)
    expected = definition(hidden, weight, target, m, k, **options)
    assert_equal_with_gradients(found, expected, hidden, weight, options.get("bias"), rtol=rtol, atol=atol)


RANKS = [(0.2, 0.8), (0, 1.0), (0.0, 0.5), (0.3, 1.0), (2, 9), (0, 1), (4, 5), (1, 1.0), (0.45, 0.46)]
RANKS += [(rr.RankedRange.median(),), (rr.RankedRange.kth(0.5),), (rr.RankedRange.robust_maximum(0.2),)]


@pytest.mark.parametrize("ranks", RANKS, ids=str)
@pytest.mark.parametrize("key", ["excess", "loss"])
def test_loss_and_gradients_are_those_of_the_definition(ranks, key):
    hidden, weight, target, bias = batch(bias=True)
    check(hidden, weight, target, *ranks, key=key, bias=bias)
    check(hidden, weight, target, *ranks, key=key, bias=bias, softcap=2.0, label_smoothing=0.1)


def by_probability(losses):
    return torch.exp(-losses)


@given(st.data())
def test_any_batch_equals_the_definition(data):
    """Empty ones, all tokens ignored, ties, extreme logits; tokens or sequences, weights, chunks."""
    draw = data.draw
    n, spread = draw(st.integers(0, 30)), draw(st.sampled_from([1.0, 0.0, 300.0]))
    hidden, weight, target, bias = batch(
        draw(st.integers(0, 10**6)),
        draw(st.sampled_from([(n, 3), (n,), (2, n, 2)])),
        ignored=draw(st.sampled_from([0.0, 0.5, 0.9, 2.0])),
        spread=spread,
        bias=spread == 1.0,
    )
    m = draw(st.floats(0.0, 0.9))
    units = st.sampled_from(["token", "sequence"][: target.dim()])
    options = {"per": draw(units), "key": draw(st.sampled_from([None, "excess", "loss", "reference"])), "bias": bias}
    if options["key"] == "reference":
        reference = torch.rand(target.shape, dtype=torch.float64)
        options |= {"key": draw(st.sampled_from([None, "reference"]))}  # which is the default with a reference
        options["reference"] = torch.where(target == IGNORED, torch.inf, reference)
    if spread == 1.0:  # otherwise losses are tied up to rounding, or all weights are 0
        options["softcap"] = draw(st.sampled_from([None, 2.0]))
        options["label_smoothing"] = draw(st.sampled_from([0.0, 0.1]))
        options["reduction"] = draw(st.sampled_from(["mean", "sum"]))
        weights = torch.rand(target.shape, dtype=torch.float64)
        advantages = [weights - 0.5] if options["reduction"] == "sum" else []
        options["token_weights"] = draw(st.sampled_from([None, weights, by_probability, *advantages]))
    chunk = draw(st.sampled_from([None, 1, 4, 1000]))
    check(hidden, weight, target, m, min(m + draw(st.floats(0.01, 1.0)), 1.0), chunk=chunk, **options)


def test_extreme_logits_stay_finite():
    hidden, weight, target, _ = batch(spread=3e37, dtype=torch.float32, ignored=0.0)
    hidden = hidden.detach().clamp(-1e38, 1e38).requires_grad_()
    value = rrt.linear_ranked_range(hidden, weight.detach() / 100, target, 0.1, 0.9)
    assert value.isfinite()
    assert gradients(value, hidden)[0].isfinite().all()


@TRIMMED_OR_ALL
def test_an_ignored_token_may_overflow(ranks):
    hidden, weight, target, _ = batch(dtype=torch.float32)
    with torch.no_grad():
        hidden[1, 2] = 3e38
    target[1, 2] = IGNORED
    value = rrt.linear_ranked_range(hidden, weight, target, *ranks)
    assert all(gradient.isfinite().all() for gradient in gradients(value, hidden, weight))


def test_a_word_that_cannot_be_has_an_infinite_loss_which_can_be_dropped():
    hidden, weight, target, bias = batch(bias=True, ignored=0.0)
    with torch.no_grad():
        bias[3] = -torch.inf
    n = int((target == 3).sum())
    assert n > 0
    assert rrt.linear_ranked_range(hidden, weight, target, 0, 1.0, bias=bias).isinf()
    value = rrt.linear_ranked_range(hidden, weight, target, n, 1.0, bias=bias)
    other = torch.where(target == 3, IGNORED, target)
    expected = rrt.linear_ranked_range(hidden, weight, other, 0, 1.0, bias=bias)
    assert_equal_with_gradients(value, expected, hidden, weight)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@TRIMMED_OR_ALL
def test_nan_is_loud_but_not_in_an_ignored_token(ranks, reduction):
    hidden, weight, target, _ = batch(ignored=0.0)
    with torch.no_grad():
        hidden[1, 2] = torch.nan
    value = rrt.linear_ranked_range(hidden, weight, target, *ranks, reduction=reduction)
    assert value.isnan()
    if ranks != (0, 1.0):
        assert all(g.isnan().any() for g in gradients(value, hidden, weight))
    target[1, 2] = IGNORED
    assert rrt.linear_ranked_range(hidden, weight, target, *ranks).isfinite()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@TRIMMED_OR_ALL
def test_narrow_dtypes(dtype, ranks):
    hidden, weight, target, _ = batch(dtype=dtype, features=8, ignored=0.1)
    criterion = rrt.LinearAoRRLoss(*ranks)
    value = criterion(hidden, weight, target)
    assert value.dtype == torch.float32
    # Which tokens are kept may differ where rounded logits tie: the loss is compared on those that were.
    exact = hidden.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    expected = definition(*exact, torch.where(criterion.last_weights > 0, target, IGNORED), 0, 1.0)
    tolerance = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance)
    for mine, true in zip(gradients(value, hidden, weight), gradients(expected, *exact), strict=True):
        assert mine.dtype == dtype
        assert (mine.double() - true).norm() < tolerance * true.norm()


LARGE = {"shape": (16, 9), "words": 40_000, "ignored": 0.0}  # 144 tokens: 46 MB of logits, more than a block has


class Results(TorchDispatchMode):
    """The dtype and size of every tensor that an operation returns."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        self.seen |= {(x.dtype, x.numel()) for x in tree_leaves(found) if isinstance(x, torch.Tensor)}
        return found


@pytest.mark.parametrize("chunk", [None, 3])
def test_with_chunks_no_gradient_of_the_matrix_is_wider_than_the_matrix(chunk):
    hidden, weight, target, _ = batch(dtype=torch.bfloat16)
    with Results() as results:
        gradients(rrt.linear_ranked_range(hidden, weight, target, 0, 1.0, chunk=chunk), hidden, weight)
    assert ((torch.float32, weight.numel()) in results.seen) == (chunk is None)


@pytest.mark.parametrize(("ranks", "products"), [((0.1, 0.5), 1 + 2 * 0.4), ((0, 1.0), 2)], ids=str)
def test_all_logits_are_never_in_memory_nor_computed_twice(ranks, products):
    """Two more products for gradients, of the kept tokens alone; that of the hidden states is not counted."""
    hidden, weight, target, _ = batch(**LARGE)
    logits = hidden.shape[:-1].numel() * len(weight)

    with Results() as results, FlopCounterMode(display=False) as flops:
        gradients(rrt.linear_ranked_range(hidden, weight, target, *ranks), hidden, weight)
    assert max(size for _, size in results.seen) < 0.8 * logits
    one = 2 * logits * hidden.shape[-1]  # a multiplication and an addition
    assert flops.get_total_flops() <= 1.05 * products * one
    with torch.no_grad(), FlopCounterMode(display=False) as flops:
        rrt.linear_ranked_range(hidden, weight, target, *ranks)
    assert flops.get_total_flops() == one


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_a_step_under_torch_compile_is_one_graph():
    torch._dynamo.reset()
    hidden, weight, target, _ = batch()

    def step(h, w, y):
        return rrt.linear_ranked_range(torch.tanh(h), w, y, 0.1, 0.8)

    run = torch.compile(step, backend="aot_eager", fullgraph=True)
    assert_equal_with_gradients(run(hidden, weight, target), step(hidden, weight, target), hidden, weight)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": torch.zeros(5, 7)}, "one integer per token"),
        ({"target": torch.full((5, 7), 11)}, "from 0 to 10"),
        ({"weight": torch.zeros(11, 3)}, "need hidden"),
        ({"weight": torch.zeros(11, 4)}, "one dtype"),
        ({"key": "perplexity"}, "key must be"),
        ({"key": "reference"}, "belong together"),
        ({"key": "loss", "reference": torch.zeros(5, 7)}, "belong together"),
        ({"reference": torch.zeros(5)}, "one loss per token"),
        ({"token_weights": torch.zeros(7)}, "one weight per token"),
        ({"per": "batch"}, "per must be"),
        ({"bias": torch.zeros(3)}, "bias must have"),
        ({"softcap": 0.0}, "softcap must be"),
        ({"label_smoothing": 1.0}, "label_smoothing must be"),
        ({"m": 100, "k": 200}, "need 0 <= m < k <= n"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_errors_say_what_is_wrong(change, message):
    hidden, weight, target, _ = batch()
    given = {"hidden": hidden, "weight": weight, "target": target, "m": 0.1, "k": 0.9, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        rrt.linear_ranked_range(**given)


def test_counts_that_cannot_be_checked_without_waiting_make_the_loss_nan(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # as on a GPU, no value is read
    hidden, weight, target, _ = batch()
    value = rrt.linear_ranked_range(hidden, weight, target, 100, 200)
    assert value.isnan()
    assert all(gradient.isnan().any() for gradient in gradients(value, hidden, weight))


def test_weights_of_tokens_carry_no_gradient():
    hidden, weight, target, _ = batch()
    w = torch.rand(target.shape, requires_grad=True)
    value = rrt.linear_ranked_range(hidden, weight, target, 0, 1.0, token_weights=w)
    assert torch.autograd.grad(value, w, allow_unused=True) == (None,)


def test_losses_of_tokens_are_those_of_full_logits_without_gradient():
    hidden, weight, target, bias = batch(bias=True)
    found = rrt.token_losses(hidden, weight, target, bias=bias, softcap=2.0, label_smoothing=0.1)
    logits = 2.0 * torch.tanh((hidden @ weight.T + bias) / 2.0)
    expected = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none", label_smoothing=0.1)
    torch.testing.assert_close(found, expected.detach().reshape(target.shape))
    assert not found.requires_grad


def test_with_chunks_backward_is_once():
    hidden, weight, target, _ = batch()
    value = rrt.linear_ranked_range(hidden, weight, target, 0, 1.0, chunk=4)
    torch.autograd.grad(value, hidden, retain_graph=True)
    with pytest.raises(RuntimeError, match="call backward once"):
        torch.autograd.grad(value, hidden)


def test_a_fused_loss_keeps_nothing_of_the_batch_alive():
    hidden, weight, target, _ = batch()
    loss = rrt.LinearAoRRLoss(m=0.25)
    loss(torch.tanh(hidden), weight, target)
    stored = [x for x in tree_leaves(loss._last) if isinstance(x, torch.Tensor)]
    assert all(not x.requires_grad and x.untyped_storage().nbytes() <= 8 * target.numel() for x in stored)
